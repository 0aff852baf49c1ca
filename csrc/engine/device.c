/* Devices and versions. */
#include "engine/internal.h"

#include "threads/clock.h"
#include "threads/forks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_DEVICES = 64,
    KEPT_PARTS = 32 /* the pool keeps 1/32 of the device's memory */
};
static gr_facts facts[MAX_DEVICES];
static unsigned char awake[MAX_DEVICES];

static gr_status find_facts(int device, gr_error *error)
{
    int sms = 0, major = 0, minor = 0, shared = 0, l2 = 0;
    size_t free_bytes;
    error->status = GR_OK;
    TRY(cudaFree(NULL));
    TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    TRY(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    TRY(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device));
    TRY(cudaMemGetInfo(&free_bytes, &facts[device].memory_bytes));
    facts[device].l2_bytes = (size_t)l2;
    facts[device].sms = (unsigned)sms;
    facts[device].shared_bytes = (size_t)shared;
    facts[device].capability = major * 10 + minor;
    __atomic_store_n(&awake[device], 1, __ATOMIC_RELEASE);
done:
    return error->status;
}

static pthread_mutex_t waking = PTHREAD_MUTEX_INITIALIZER;

/* In a child process, a thread that held this mutex is gone, so the child starts with a new one.
 * Taking the mutex before fork() might take seconds. */
static void forget_waking(void)
{
    waking = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

GR_AROUND_FORK(NULL, NULL, forget_waking)

gr_status gr_wake(int device, double *init_ms, gr_error *error)
{
    int count = 0;

    error->status = GR_OK;
    if (init_ms)
        *init_ms = 0;
    if (device < 0 || device >= MAX_DEVICES || !__atomic_load_n(&awake[device], __ATOMIC_ACQUIRE)) {
        TRY(cudaGetDeviceCount(&count));
        if (device < 0 || device >= count || device >= MAX_DEVICES)
            return gr_fail(error, GR_BAD_VALUE, "there is no %s device %d: there %s %d",
                           gr_backend_name(), device, count == 1 ? "is" : "are", count);
    }
    TRY(cudaSetDevice(device));
    if (!__atomic_load_n(&awake[device], __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&waking);
        double start = gr_now_ms();
        if (!awake[device])
            find_facts(device, error);
        if (init_ms)
            *init_ms = gr_now_ms() - start;
        pthread_mutex_unlock(&waking);
    }
done:
    return error->status;
}

int gr_current_device(void)
{
    int device = -1;
    (void)cudaGetDevice(&device);
    return device;
}

const gr_facts *gr_facts_of(int device)
{
    return &facts[device];
}

static gr_status make_pool(int device, gr_error *error)
{
    struct cudaMemPoolProps props;
    uint64_t kept = facts[device].memory_bytes / KEPT_PARTS;
    cudaMemPool_t pool;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = device;
    error->status = GR_OK;
    TRY(cudaMemPoolCreate(&pool, &props));
    TRY(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
    facts[device].pool = pool;
done:
    return error->status;
}

gr_status gr_allocate(int device, size_t bytes, void *stream, void **memory, gr_error *error)
{
    error->status = GR_OK;
    pthread_mutex_lock(&waking);
    if (!facts[device].pool) /* not before it is needed: some devices have no memory pools */
        make_pool(device, error);
    pthread_mutex_unlock(&waking);
    if (error->status != GR_OK)
        return error->status;
    TRY(cudaMallocFromPoolAsync(memory, bytes, facts[device].pool, stream));
done:
    return error->status;
}

size_t gr_arena_take(gr_arena *arena, size_t count, size_t size)
{
    size_t at = (arena->bytes + 255) / 256 * 256;
    arena->bytes = at + count * size;
    return at;
}

gr_status gr_arena_open(gr_arena *arena, int device, void *stream, gr_error *error)
{
    error->status = GR_OK;
    arena->stream = stream;
    if (arena->bytes &&
        gr_allocate(device, arena->bytes, stream, (void **)&arena->base, error) != GR_OK)
        return error->status;
    if (arena->zeroed)
        TRY(cudaMemsetAsync(arena->base, 0, arena->zeroed, stream));
done:
    return error->status;
}

void gr_arena_close(const gr_arena *arena)
{
    if (arena->base)
        (void)cudaFreeAsync(arena->base, arena->stream);
}

gr_status gr_check_context(gr_error *error)
{
    size_t available, total;
    error->status = GR_OK;
    TRY(cudaMemGetInfo(&available, &total));
done:
    return error->status;
}

gr_status gr_pointer_device(const void *pointer, int *device, gr_error *error)
{
    struct cudaPointerAttributes attributes;
    error->status = GR_OK;
    *device = 0;
    if (!pointer) { /* an array without elements: any device will do */
        TRY(cudaGetDevice(device));
        return GR_OK;
    }
    TRY(cudaPointerGetAttributes(&attributes, pointer));
    *device = attributes.device;
    if (gr_backend_reads_host_memory())
        *device = attributes.device < 0 ? 0 : attributes.device;
    else if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged &&
             gr_check_context(error) == GR_OK)
        gr_fail(error, GR_BAD_VALUE, "the array's memory is not on a %s device", gr_backend_name());
done:
    return error->status;
}

gr_status gr_device_count(int *count, gr_error *error)
{
    *count = 0;
    error->status = GR_OK;
    TRY(cudaGetDeviceCount(count));
done:
    return error->status;
}

gr_status gr_device_at(int index, gr_device *device, gr_error *error)
{
    struct cudaDeviceProp properties;
    int memory_khz = 0, bus_bits = 0, clock_khz = 0;

    error->status = GR_OK;
    TRY(cudaGetDeviceProperties(&properties, index));
    TRY(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, index));
    TRY(cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, index));
    TRY(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, index));

    memset(device, 0, sizeof *device);
    snprintf(device->name, sizeof device->name, "%s", properties.name);
    device->major = properties.major;
    device->minor = properties.minor;
    device->sms = properties.multiProcessorCount;
    device->memory_bytes = properties.totalGlobalMem;
    device->l2_bytes = (size_t)properties.l2CacheSize;
    /* Double data rate: two transfers per clock. */
    device->peak_gb_s = 2.0 * memory_khz * 1e3 * bus_bits / 8 / 1e9;
    device->clock_mhz = clock_khz / 1e3;
done:
    return error->status;
}

void gr_versions(int *runtime, int *driver)
{
    *runtime = *driver = 0;
    (void)cudaRuntimeGetVersion(runtime);
    (void)cudaDriverGetVersion(driver);
}
