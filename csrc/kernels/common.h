/* What more than one kernel uses. Ordinary CUDA C, the same for the GPU and the emulator. */
#ifndef GPUREDUCE_COMMON_H
#define GPUREDUCE_COMMON_H

#include "device.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The largest power of two below `block`: half of it when it is a power of two itself, and more
 * when it is not, so that the first tree step folds the ragged end in. Needs block >= 2. */
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

/* The sum of `value` over the block, in thread 0: what `warp_shfl` spells out. It uses one slot of
 * shared memory per warp; whoever calls it twice puts a block barrier between the calls. */
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

/* Neighbouring elements that one 16-byte load brings. */
template <typename T> struct Pack {
    static constexpr unsigned count = 16 / sizeof(T);
    T element[count];

    template <typename Acc> __device__ __forceinline__ Acc sum() const
    {
        Acc total = Acc(element[0]);
        for (unsigned k = 1; k < count; k++)
            total += Acc(element[k]);
        return total;
    }
};

/* An array seen as packs: `head` loose elements up to the first 16-byte boundary, `packs` whole
 * packs, and `tail` loose elements. 16-byte loads must lie on 16-byte boundaries. */
template <typename In> struct Packed;
template <typename T> struct Packed<const T *> {
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

    __device__ __forceinline__ Pack<T> operator[](size_t i) const
    {
        uint4 bits = reinterpret_cast<const uint4 *>(first)[i];
        Pack<T> pack;
        memcpy(&pack, &bits, sizeof pack);
        return pack;
    }
};

#endif
