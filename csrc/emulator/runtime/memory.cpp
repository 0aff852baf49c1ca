/* The emulated devices' memory. It is host memory, but every allocation is recorded, so that
 * pointers that CUDA rejects are rejected here. New device memory is filled with 0xff, a NaN in
 * every float format, so that reads of uninitialized memory show up. */
#include <errno.h>
#include <map>
#include <mutex>
#include <new>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utility>
#include <vector>
#include <sys/uio.h>
#include <unistd.h>

#include "backend/backend.h"
#include "emulator/runtime/guard.h"
#include "emulator/runtime/launch.h"
#include "threads/control_group.h"
#include "threads/forks.h"
#include "threads/interrupts.h"

namespace gr
{

struct Range {
    size_t bytes;
    bool device, guarded;
    int number; /* of the device, for memory of a device */
};

struct Memory {
    std::mutex mutex;
    std::map<uintptr_t, Range> ranges; /* by first address */
    size_t device_bytes[most_devices] = {}, host_bytes = 0;
    std::vector<std::pair<uint64_t, size_t>> limits; /* by token; the last one applies */
    bool guard = false;                              /* whether new device memory is guarded */
};

/* Never destroyed: other threads may free their memory while the process exits. */
static Memory *memory()
{
    static Memory *const the_memory = new Memory;
    return the_memory;
}

static void lock_memory()
{
    memory()->mutex.lock();
}

static void unlock_memory()
{
    memory()->mutex.unlock();
}

/* See engine/workspace.c. */
GR_AROUND_FORK(lock_memory, unlock_memory, unlock_memory)

/* Constructs memory() at load time. With construction on first use, a fork() during it would leave
 * the child without the constructing thread. */
__attribute__((constructor)) static void make_memory()
{
    memory();
}

/* Half of the memory that this process may use. */
static size_t device_memory()
{
    static const size_t quota = (size_t)gr_memory_quota(&gr_own_group) / 2;
    size_t half = (size_t)sysconf(_SC_PHYS_PAGES) / 2 * (size_t)sysconf(_SC_PAGESIZE);
    return quota < half ? quota : half;
}

static size_t limit_of(const Memory *m)
{
    return m->limits.size() ? m->limits.back().second : device_memory();
}

/* Returns false if interrupted. */
static bool poison(char *memory, size_t bytes)
{
    constexpr size_t slice = 16 << 20;
    for (size_t at = 0; at < bytes; at += slice) {
        memset(memory + at, 0xff, bytes - at < slice ? bytes - at : slice);
        if (bytes > slice && gr_ask_for_interrupts())
            return false;
    }
    return true;
}

static cudaError_t take_range(Memory *m, void *address, Range range)
{
    return without_throwing([&] {
        std::lock_guard<std::mutex> lock(m->mutex);
        m->ranges[(uintptr_t)address] = range;
        return cudaSuccess;
    });
}

/* The counter of the bytes that are allocated on a device, or of pinned host memory. */
static size_t *bytes_of(Memory *m, bool device, int number)
{
    return device ? &m->device_bytes[number] : &m->host_bytes;
}

static void give(void *address, size_t bytes, bool guarded)
{
    if (guarded)
        give_guarded(address, bytes);
    else
        free(address);
}

static cudaError_t allocate(void **out, size_t bytes, bool device)
{
    if (!out)
        return cudaErrorInvalidValue;
    *out = nullptr;
    if (!bytes)
        return cudaSuccess;
    Memory *m = memory();
    int number = current_device();
    size_t *used = bytes_of(m, device, number);
    {
        std::lock_guard<std::mutex> lock(m->mutex);
        size_t limit = limit_of(m);
        if (device && (*used > limit || bytes > limit - *used))
            return cudaErrorMemoryAllocation;
        *used += bytes; /* reserved before the slow fill */
    }
    bool guarded = device && m->guard;
    void *address = guarded                                             ? take_guarded(bytes)
                    : posix_memalign(&address, device_alignment, bytes) ? nullptr
                                                                        : address;
    cudaError_t state = !address ? cudaErrorMemoryAllocation
                        : device && !poison(static_cast<char *>(address), bytes)
                            ? cudaErrorUnknown
                            : take_range(m, address, Range{bytes, device, guarded, number});
    if (state == cudaSuccess) {
        *out = address;
        return cudaSuccess;
    }
    give(address, bytes, guarded);
    std::lock_guard<std::mutex> lock(m->mutex);
    *used -= bytes;
    return state;
}

static cudaError_t release(void *address, bool device)
{
    if (!address)
        return cudaSuccess;
    Memory *m = memory();
    Range range;
    {
        std::lock_guard<std::mutex> lock(m->mutex);
        auto found = m->ranges.find((uintptr_t)address);
        if (found == m->ranges.end() || found->second.device != device)
            return cudaErrorInvalidValue;
        range = found->second;
        *bytes_of(m, device, range.number) -= range.bytes;
        m->ranges.erase(found);
    }
    give(address, range.bytes, range.guarded);
    return cudaSuccess;
}

struct Found {
    uintptr_t first;
    size_t bytes; /* of the whole allocation; 0: the address is in none */
    bool device;
    int number; /* of the device */
};

static Found range_of(const void *address)
{
    Memory *m = memory();
    uintptr_t at = (uintptr_t)address;
    std::lock_guard<std::mutex> lock(m->mutex);
    auto after = m->ranges.upper_bound(at);
    if (after == m->ranges.begin())
        return Found{};
    --after;
    if (at - after->first >= after->second.bytes)
        return Found{};
    return Found{after->first, after->second.bytes, after->second.device, after->second.number};
}

size_t device_range_near(uintptr_t address, uintptr_t *first)
{
    Memory *m = memory();
    uintptr_t least = guard_bytes;
    size_t bytes = 0;
    for (const auto &range : m->ranges) {
        uintptr_t end = range.first + range.second.bytes;
        uintptr_t away = address < range.first ? range.first - address : address - end;
        if (range.second.guarded && away < least) {
            least = away;
            *first = range.first;
            bytes = range.second.bytes;
        }
    }
    return bytes;
}

uintptr_t damaged_byte()
{
    Memory *m = memory();
    std::lock_guard<std::mutex> lock(m->mutex);
    uintptr_t found = 0;
    for (const auto &range : m->ranges)
        if (range.second.guarded && !found)
            found = repair_guarded(range.first, range.second.bytes);
    return found;
}

void guard_new_memory()
{
    memory()->guard = true;
}

size_t device_range(const void *address, uintptr_t *first)
{
    Found range = range_of(address);
    *first = range.first;
    return range.device ? range.bytes : 0;
}

static bool on_device(const void *address, size_t bytes)
{
    Found range = range_of(address);
    return range.device && range.bytes - ((uintptr_t)address - range.first) >= bytes;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    if ((unsigned)kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (!bytes)
        return cudaSuccess;
    if (!to || !from)
        return cudaErrorInvalidValue;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if ((to_device && !on_device(to, bytes)) || (from_device && !on_device(from, bytes)))
        return cudaErrorInvalidValue;
    memmove(to, from, bytes);
    return cudaSuccess;
}

static cudaError_t fill(void *address, int value, size_t bytes)
{
    if (bytes && !on_device(address, bytes))
        return cudaErrorInvalidValue;
    if (bytes)
        memset(address, value, bytes);
    return cudaSuccess;
}

/* The operating system does the read, and returns EFAULT where a direct read would crash. */
static int can_read(uintptr_t address)
{
    char byte;
    iovec to = {&byte, 1}, from = {reinterpret_cast<void *>(address), 1};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1)
        return 1;
    return errno != EFAULT; /* if the call itself is forbidden: unknown, assume readable */
}

} // namespace gr

using namespace gr;

extern "C" {

/* Checks the first and the last byte on every call and caches nothing, because other code of the
 * process may free its memory at any time. */
int gr_backend_can_read(gr_range bytes, gr_range *known)
{
    *known = {1, 0};
    return can_read(bytes.first) && can_read(bytes.last);
}

int gr_backend_memory_limit(uint64_t token, size_t bytes)
{
    Memory *m = memory();
    return without_throwing([&] {
               std::lock_guard<std::mutex> lock(m->mutex);
               for (auto at = m->limits.begin(); at != m->limits.end(); ++at)
                   if (at->first == token) {
                       m->limits.erase(at);
                       break;
                   }
               if (bytes)
                   m->limits.emplace_back(token, bytes);
               return cudaSuccess;
           }) == cudaSuccess;
}

size_t gr_backend_live_bytes(void)
{
    Memory *m = memory();
    std::lock_guard<std::mutex> lock(m->mutex);
    size_t bytes = m->host_bytes;
    for (size_t used : m->device_bytes)
        bytes += used;
    return bytes;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *)
{
    static char one;
    *pool = reinterpret_cast<cudaMemPool_t>(&one);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, enum cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t size, cudaMemPool_t, cudaStream_t)
{
    return cudaMalloc(out, size);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t)
{
    return cudaFree(pointer);
}

cudaError_t cudaMalloc(void **out, size_t size)
{
    return set_error(allocate(out, size, true));
}

cudaError_t cudaFree(void *pointer)
{
    return set_error(release(pointer, true));
}

cudaError_t cudaHostAlloc(void **out, size_t size, unsigned int)
{
    return set_error(allocate(out, size, false));
}

cudaError_t cudaFreeHost(void *pointer)
{
    return set_error(release(pointer, false));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t count, enum cudaMemcpyKind kind)
{
    return set_error(copy(to, from, count, kind));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t)
{
    return set_error(copy(to, from, count, kind));
}

cudaError_t cudaMemset(void *pointer, int value, size_t count)
{
    return set_error(fill(pointer, value, count));
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t count, cudaStream_t)
{
    return set_error(fill(pointer, value, count));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    if (!free_bytes || !total)
        return set_error(cudaErrorInvalidValue);
    Memory *m = memory();
    std::lock_guard<std::mutex> lock(m->mutex);
    size_t limit = limit_of(m), used = m->device_bytes[current_device()];
    *total = device_memory();
    *free_bytes = limit > used ? limit - used : 0;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    if (!attributes)
        return set_error(cudaErrorInvalidValue);
    Found range = range_of(pointer);
    void *address = const_cast<void *>(pointer);
    attributes->type = !range.bytes   ? cudaMemoryTypeUnregistered
                       : range.device ? cudaMemoryTypeDevice
                                      : cudaMemoryTypeHost;
    attributes->device = range.bytes ? range.number : -2;
    attributes->devicePointer = range.bytes ? address : nullptr;
    attributes->hostPointer = range.device ? nullptr : address;
    return cudaSuccess;
}
}
