/* Implements backend/backend.h for CUDA. The emulator's settings are empty functions here. */
#include "backend/backend.h"
#include "shared/cuda_types.h"
#include "threads/interrupts.h"

#include <cub/device/device_reduce.cuh>
#include <cuda/std/functional>

/* CUB adds in the type of the initial value, so each element is widened before it is added. */
template <typename T, typename Acc, typename Count>
static cudaError_t reduce_count(const void *in, void *out, Count n, void *work, size_t *work_bytes,
                                cudaStream_t stream)
{
    return cub::DeviceReduce::Reduce(work, *work_bytes, static_cast<const T *>(in),
                                     static_cast<Acc *>(out), n, cuda::std::plus<Acc>(), Acc(0),
                                     stream);
}

/* CUB computes offsets in a type as wide as the count's. CUB is the reference and must run at its
 * best: small elements are added up to 7% faster by a 32-bit count, where that is enough. Others
 * take as long by either. */
template <typename T, typename Acc>
static cudaError_t reduce(const void *in, void *out, size_t n, void *work, size_t *work_bytes,
                          cudaStream_t stream)
{
    if constexpr (sizeof(T) < 4)
        if (n <= INT32_MAX)
            return reduce_count<T, Acc>(in, out, (int32_t)n, work, work_bytes, stream);
    return reduce_count<T, Acc>(in, out, n, work, work_bytes, stream);
}

/* Each block loads a contiguous share, with eight loads in flight per thread, as `tiles` does. The
 * result depends on every load, so that the compiler keeps them. */
static __global__ void __launch_bounds__(1024, 1)
    load_only(const uint4 *in, size_t packs, unsigned *word)
{
    constexpr unsigned flight = 8;
    size_t end = packs * (blockIdx.x + 1) / gridDim.x, block = blockDim.x;
    uint4 pack[flight];
    unsigned seen = 0;

    for (size_t i = packs * blockIdx.x / gridDim.x + threadIdx.x; i < end; i += flight * block) {
        for (unsigned k = 0; k < flight; k++)
            pack[k] = i + k * block < end ? in[i + k * block] : make_uint4(0, 0, 0, 0);
        for (unsigned k = 0; k < flight; k++)
            seen ^= pack[k].x ^ pack[k].y ^ pack[k].z ^ pack[k].w;
    }
    if (seen == 0x9e3779b9 || blockIdx.x + threadIdx.x == 0) /* other threads: almost never */
        *word = seen;
}

/* Returns a function of the driver that the runtime does not have; NULL for an old driver. */
template <typename Function> static Function *of_driver(const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult state;
    if (cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &state) !=
        cudaSuccess)
        found = nullptr;
    return reinterpret_cast<Function *>(found);
}

extern "C" {

cudaError_t gr_backend_load_only(const void *in, size_t bytes, unsigned *word, cudaStream_t stream)
{
    enum { BLOCK = 512, BLOCKS_PER_SM = 2 };
    uintptr_t first = (uintptr_t(in) + 15) / 16 * 16, last = uintptr_t(in) + bytes;
    size_t packs = last > first ? (last - first) / 16 : 0;
    int device, sms;
    cudaError_t state = cudaGetDevice(&device);
    if (state == cudaSuccess)
        state = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (state != cudaSuccess)
        return state;
    size_t grid = packs / BLOCK + 1, most = size_t(sms) * BLOCKS_PER_SM;
    load_only<<<unsigned(grid < most ? grid : most), BLOCK, 0, stream>>>(
        reinterpret_cast<const uint4 *>(first), packs, word);
    return cudaGetLastError();
}

cudaError_t gr_backend_cub(const void *in, void *out, size_t n, gr_load load, gr_acc acc,
                           void *work, size_t *work_bytes, cudaStream_t stream)
{
#define X(from, to)                                                                                \
    if (load == GR_LOAD_##from && acc == GR_ACC_##to)                                              \
        return reduce<type_##from, type_##to>(in, out, n, work, work_bytes, stream);
    GR_PAIRS_ALL(X)
#undef X
    return cudaErrorNotSupported;
}

cudaError_t gr_backend_load_kernels(const void *image, const char *const *symbol, int count,
                                    const void **entry)
{
    cudaLibrary_t library = nullptr;
    cudaError_t state =
        cudaLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
    for (int i = 0; i < count && state == cudaSuccess; i++) {
        cudaKernel_t kernel = nullptr;
        state = cudaLibraryGetKernel(&kernel, library, symbol[i]);
        entry[i] = kernel; /* cudaLaunchKernelExC takes it in place of a function */
    }
    if (state != cudaSuccess && library)
        (void)cudaLibraryUnload(library);
    return state;
}

const char *gr_backend_name(void)
{
    return "cuda";
}

const char *gr_backend_clock(void)
{
    return "cuda_event";
}

const char *gr_backend_fault(void)
{
    return "";
}

int gr_backend_is_lost(cudaError_t code)
{
    switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorAssert: return 1;
    default: return 0;
    }
}

static cudaError_t time_graph(cudaGraphExec_t graph, cudaStream_t stream, unsigned warmups,
                              unsigned repeats, double *ms)
{
    cudaEvent_t start = nullptr, stop = nullptr;
    cudaError_t state = cudaEventCreate(&start);
    if (state == cudaSuccess)
        state = cudaEventCreate(&stop);
    for (unsigned i = 0; i < warmups && state == cudaSuccess; i++)
        state = cudaGraphLaunch(graph, stream);
    for (unsigned i = 0; i < repeats && state == cudaSuccess && !gr_ask_for_interrupts(); i++) {
        float elapsed = 0;
        cudaEventRecord(start, stream);
        cudaGraphLaunch(graph, stream);
        cudaEventRecord(stop, stream);
        state = cudaEventSynchronize(stop);
        if (state == cudaSuccess)
            state = cudaEventElapsedTime(&elapsed, start, stop);
        ms[i] = elapsed;
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    return state;
}

cudaError_t gr_backend_replay(cudaStream_t stream, int (*launch)(void *context), void *context,
                              unsigned in_a_row, unsigned warmups, unsigned repeats, double *ms)
{
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    cudaError_t state = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (state != cudaSuccess)
        return state;
    int failed = 0;
    for (unsigned i = 0; i < in_a_row && !failed; i++)
        failed = launch(context);
    state = cudaStreamEndCapture(stream, &graph);
    if (failed && state == cudaSuccess)
        state = cudaErrorUnknown;
    if (state == cudaSuccess)
        state = cudaGraphInstantiate(&runnable, graph, 0);
    if (state == cudaSuccess)
        state = time_graph(runnable, stream, warmups, repeats, ms);
    for (unsigned i = 0; i < repeats && state == cudaSuccess; i++)
        ms[i] /= in_a_row;
    if (runnable)
        cudaGraphExecDestroy(runnable);
    if (graph)
        cudaGraphDestroy(graph);
    return state;
}

/* Returns the size of the allocation that holds `address`, 0 if there is none, and sets *first to
 * its start. */
static size_t range_of(uintptr_t address, uintptr_t *first)
{
    typedef int get_range(unsigned long long *base, size_t *bytes, unsigned long long address);
    static get_range *const ask = of_driver<get_range>("cuMemGetAddressRange");
    unsigned long long base = 0;
    size_t bytes = 0;
    *first = 0;
    if (!ask) /* an old driver: all memory counts as readable */
        return SIZE_MAX;
    if (ask(&base, &bytes, address) != 0)
        return 0;
    *first = uintptr_t(base);
    return bytes;
}

/* The bytes may span several allocations that are mapped side by side. */
int gr_backend_can_read(gr_range bytes, gr_range *known)
{
    uintptr_t at = bytes.first, first;
    do {
        size_t size = range_of(at, &first);
        if (!size)
            return 0;
        if (at == bytes.first)
            known->first = first;
        known->last = first + (size - 1);
        at = known->last + 1;
    } while (known->last < bytes.last);
    return 1;
}

size_t gr_backend_elements_at_once(void)
{
    return size_t(1) << 34; /* tenths of a second per launch */
}

int gr_backend_reads_host_memory(void)
{
    return 0;
}

/* A signal handler may change the thread's current device. */
void *gr_backend_put_aside(void)
{
    int device = -1;
    (void)cudaGetDevice(&device);
    return reinterpret_cast<void *>(2 + intptr_t(device));
}

void gr_backend_take_up(void *aside)
{
    int device = int(reinterpret_cast<intptr_t>(aside) - 2);
    if (device >= 0)
        (void)cudaSetDevice(device);
}

void gr_backend_return_to(int device)
{
    typedef int get_state(int device, unsigned *flags, int *active);
    static get_state *const ask = of_driver<get_state>("cuDevicePrimaryCtxGetState");
    int current = device, active = 0;
    unsigned flags;
    if (cudaGetDevice(&current) != cudaSuccess || current == device)
        return;
    if (ask && ask(device, &flags, &active) == 0 && active)
        (void)cudaSetDevice(device);
}

void gr_backend_schedule(int, uint64_t) {}

int gr_backend_device_count(int)
{
    return 0;
}

int gr_backend_memory_limit(uint64_t, size_t)
{
    return 1;
}

void gr_backend_guard_memory(void) {}

size_t gr_backend_live_bytes(void)
{
    return 0;
}

int gr_backend_traced(void)
{
    return 0;
}
}
