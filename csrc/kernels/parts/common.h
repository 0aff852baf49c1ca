/* Code that several kernels share. Ordinary CUDA C, the same for the GPU and the emulator. */
#ifndef GPUREDUCE_COMMON_H
#define GPUREDUCE_COMMON_H

#include "device.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>
#include <utility>

/* The largest power of two below `block`. This is half of `block` if that is a power of two, and
 * more if not, so that the first tree step folds the ragged end in. Needs block >= 2. */
__device__ __forceinline__ unsigned first_stride(unsigned block)
{
    return 1u << (31 - __clz(block - 1));
}

/* The sum of `value` over the 32 lanes of a warp, in lane 0. */
template <typename Acc> __device__ __forceinline__ Acc warp_sum(Acc value)
{
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

/* The sum of `value` over the block, in thread 0, computed as in `warp_shfl`. It uses one slot of
 * shared memory per warp. Two calls need a block barrier between them. */
template <typename Acc> __device__ __forceinline__ Acc block_sum(Acc value)
{
    Acc *partial = shared_array<Acc>();
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    value = warp_sum(value);
    if (lane == 0)
        partial[warp] = value;
    __syncthreads();
    if (warp == 0) {
        value = lane < blockDim.x / 32 ? partial[lane] : Acc(0);
        value = warp_sum(value);
    }
    return value;
}

/* The sum of `value` over a team of `team` threads, in its first one: 1 to 32 lanes of a warp, or
 * the block. */
template <typename Acc> __device__ __forceinline__ Acc team_sum(Acc value, unsigned team)
{
    if (team > 32)
        return block_sum(value);
    for (unsigned offset = team / 2; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

/* The sum of `count` values of one thread. `count` is a power of two. The chain of dependent
 * additions is short: log2(count). */
template <typename Acc, unsigned count>
__device__ __forceinline__ Acc sum_by_halves(Acc (&value)[count])
{
    for (unsigned half = count / 2; half > 0; half /= 2)
        for (unsigned k = 0; k < half; k++)
            value[k] += value[k + half];
    return value[0];
}

/* Neighbouring elements, loaded by one 16-byte load. */
template <typename T, bool narrow = sizeof(T) < 4> struct Pack {
    static constexpr unsigned count = sizeof(T) < 16 ? 16 / sizeof(T) : 1;
    T element[count];
};

/* Narrow elements stay in the words that were loaded: taking them apart and putting them together
 * again would cost more instructions than adding them up. */
template <typename T> struct Pack<T, true> {
    static constexpr unsigned count = 16 / sizeof(T);
    unsigned word[4];
};

template <typename Acc, typename T> __device__ __forceinline__ Acc sum_of(const Pack<T> &pack)
{
    T element[Pack<T>::count];
    memcpy(element, &pack, sizeof element);
    Acc total = Acc(element[0]);
    for (unsigned k = 1; k < Pack<T>::count; k++)
        total += Acc(element[k]);
    return total;
}

/* Small integers are added up within 32-bit words: one instruction adds four bytes or two halves.
 * Adding them one by one would take longer than loading them from memory. */
template <typename Acc> __device__ __forceinline__ Acc sum_of(const Pack<int8_t> &pack)
{
    int total = 0;
    for (unsigned k = 0; k < 4; k++)
        total = __dp4a(int(pack.word[k]), 0x01010101, total);
    return Acc(total);
}

template <typename Acc> __device__ __forceinline__ Acc sum_of(const Pack<uint8_t> &pack)
{
    unsigned total = 0;
    for (unsigned k = 0; k < 4; k++)
        total = __dp4a(pack.word[k], 0x01010101u, total);
    return Acc(total);
}

template <typename Acc> __device__ __forceinline__ Acc sum_of(const Pack<int16_t> &pack)
{
    int total = 0;
    for (unsigned k = 0; k < 4; k++)
        total = __dp2a_lo(int(pack.word[k]), 0x0101, total);
    return Acc(total);
}

template <typename Acc> __device__ __forceinline__ Acc sum_of(const Pack<uint16_t> &pack)
{
    unsigned total = 0;
    for (unsigned k = 0; k < 4; k++)
        total = __dp2a_lo(pack.word[k], 0x0101u, total);
    return Acc(total);
}

/* View of an array as packs: `head` loose elements before the first 16-byte boundary, `packs` whole
 * packs, and `tail` loose elements. 16-byte loads must be aligned to 16 bytes. */
template <typename In> struct Packed;
template <typename T> struct Packed<const T *> {
    using Element = T;
    const T *first;
    size_t head, packs, tail;

    __device__ __forceinline__ Packed(const T *in, size_t n)
    {
        size_t misaligned = reinterpret_cast<uintptr_t>(in) % 16 / sizeof(T);
        head = misaligned ? Pack<T>::count - misaligned : 0;
        head = head < n ? head : n;
        first = in + head;
        packs = (n - head) / Pack<T>::count;
        tail = (n - head) % Pack<T>::count;
    }

    /* Computes the addresses here: before the wait for earlier kernels, not after it. */
    __device__ __forceinline__ void settled()
    {
        settle(first);
        settle(head);
        settle(packs);
        settle(tail);
    }

    /* Earlier kernels may still write the array, so no data may be read before the wait for them. A
     * prefetch to the L2 cache is safe, as the L2 cache is coherent for the whole device. It
     * fetches only the first bytes of a block's share: many more would slow down the reads of the
     * earlier kernel. A share may begin before the first pack, within its cache line, even if it
     * holds no pack; if the array has no packs, nothing is prefetched. */
    __device__ __forceinline__ void fetch_ahead(size_t begin, size_t end) const
    {
        constexpr size_t line = 8, most = 2048; /* packs */
        size_t count = end - begin < packs ? end - begin : packs;
        uintptr_t from = reinterpret_cast<uintptr_t>(first) + begin * 16;
        for (size_t i = threadIdx.x * line; i < count && i < most; i += blockDim.x * line)
            fetch_into_l2(reinterpret_cast<const void *>(from + i * 16));
    }

    __device__ __forceinline__ const void *address(size_t i) const
    {
        return first + i * Pack<T>::count;
    }

    /* The number of packs from the start of a 128-byte line to `first`, and from it to the next. */
    __device__ __forceinline__ size_t into_line() const
    {
        return reinterpret_cast<uintptr_t>(first) / 16 % 8;
    }

    __device__ __forceinline__ size_t before_line() const
    {
        size_t lead = (8 - into_line()) % 8;
        return lead < packs ? lead : packs;
    }

    /* Loads a pack from global or shared memory, by one load. */
    __device__ __forceinline__ static Pack<T> whole(const void *address)
    {
        uint4 bits = *static_cast<const uint4 *>(address);
        Pack<T> pack;
        memcpy(&pack, &bits, sizeof pack);
        return pack;
    }

    __device__ __forceinline__ Pack<T> operator[](size_t i) const
    {
        return whole(address(i));
    }

    /* The bits of a pack, unconverted. */
    __device__ __forceinline__ Pack<unsigned> words(size_t i) const
    {
        uint4 bits = *static_cast<const uint4 *>(address(i));
        return {{bits.x, bits.y, bits.z, bits.w}};
    }

    __device__ __forceinline__ Pack<unsigned> words_or_zero(size_t i, size_t end) const
    {
        return i < end ? words(i) : Pack<unsigned>{{0, 0, 0, 0}};
    }

    /* The pack, or zeros without a load from `end` on. */
    __device__ __forceinline__ Pack<T> or_zero(size_t i, size_t end) const
    {
        if (i < end)
            return (*this)[i];
        Pack<T> pack;
        memset(&pack, 0, sizeof pack);
        return pack;
    }
};

/* Sums the elements outside the 16-byte boundaries: thread `id` of the grid adds at most one at
 * either end. */
template <typename Acc, typename In>
__device__ __forceinline__ Acc loose_ends(In in, size_t n, const Packed<In> &packed, size_t id)
{
    Acc sum = id < packed.head ? Acc(in[id]) : Acc(0);
    if (id < packed.tail)
        sum += Acc(in[n - 1 - id]);
    return sum;
}

/* The same two elements, for a later conversion and addition. Adding them before the loop over the
 * packs would make the first load of the loop wait for them. */
template <typename Acc, typename In> struct LooseEnds {
    using Element = std::decay_t<decltype(std::declval<In>()[0])>;
    bool any;
    Element head, tail;

    /* Only the first few threads of the grid load an element. */
    __device__ __forceinline__ LooseEnds(In in, size_t n, const Packed<In> &packed, size_t id)
        : any(id < packed.head || id < packed.tail), head(id < packed.head ? in[id] : Element{}),
          tail(id < packed.tail ? in[n - 1 - id] : Element{})
    {
    }

    /* Without the condition the compiler converts them as soon as they are loaded. */
    __device__ __forceinline__ Acc after(Acc sum) const
    {
        if (any) {
            sum += Acc(head);
            sum += Acc(tail);
        }
        return sum;
    }
};

/* The method of `last_block`, with less waiting: each block stores its sum, and the block that
 * draws the last ticket adds up all sums. A sum and the mark that it is valid are one word. So no
 * fence is needed to order the sum before the ticket: if a sum arrives later than the ticket, the
 * last block polls for it. Only the first warp finishes, so no block barrier is needed. The marks
 * are cleared for the next launch. `sum` is used in thread 0 only. */
template <typename Acc>
__device__ __forceinline__ void finish_in_last_block(Acc sum, Acc *out, Marked<Acc> *work,
                                                     unsigned *ticket)
{
    constexpr unsigned flight = 8;
    unsigned drawn = 0;
    if (threadIdx.x >= 32)
        return;
    if (threadIdx.x == 0) {
        put_marked(work + blockIdx.x, sum);
        drawn = atomicInc(ticket, gridDim.x - 1);
    }
    if (__shfl_sync(0xffffffffu, drawn, 0) != gridDim.x - 1)
        return;

    sum = 0;
    for (unsigned block = threadIdx.x; block < gridDim.x; block += 32 * flight) {
        Acc partial[flight];
        unsigned marks;
        do {
            marks = ~0u;
            for (unsigned k = 0; k < flight; k++) {
                partial[k] = 0;
                if (block + 32 * k < gridDim.x)
                    marks &= get_marked(work + block + 32 * k, partial[k]);
            }
        } while (!marks);
        for (unsigned k = 0; k < flight; k++) {
            sum += partial[k];
            if (block + 32 * k < gridDim.x)
                take_mark_off(work + block + 32 * k);
        }
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0)
        *out = sum;
}

#endif
