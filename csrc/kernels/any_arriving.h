/* An array that the host is still copying to where kernels read it. A block waits for its share. */
#ifndef GPUREDUCE_KERNEL_ARRIVING_H
#define GPUREDUCE_KERNEL_ARRIVING_H

#include "common.h"
#include "engine/arriving.h"

template <typename T> struct Arriving {
    gr_arriving array;

    __device__ __forceinline__ const T *data() const
    {
        return static_cast<const T *>(array.data);
    }

    __device__ __forceinline__ T operator[](size_t i) const
    {
        return data()[i];
    }
};

template <typename T> struct Packed<Arriving<T>> : Packed<const T *> {
    gr_arriving array;
    size_t bytes;

    __device__ __forceinline__ Packed(const Arriving<T> &in, size_t n)
        : Packed<const T *>(in.data(), n), array(in.array), bytes(n * sizeof(T))
    {
    }

    __device__ __forceinline__ bool is_there(size_t piece) const
    {
        return load_of_host(array.mark + GR_MARK_STEP * piece) == array.arrived;
    }

    /* What is still being written would be fetched twice. */
    __device__ __forceinline__ void fetch_ahead(size_t, size_t) const {}

    /* A lane looks for each piece: one after the other they would take a journey over the bus each.
     * Who looks takes something of the bus from those who read, so all look less and less often.
     * What the host wrote before a mark is seen by the lane that has seen the mark, and behind the
     * barrier by all. */
    __device__ __forceinline__ void await(size_t begin, size_t end) const
    {
        constexpr unsigned least_nap = 125, nap_per_piece = 1000; /* ns */
        size_t piece = begin * 16 / GR_PIECE_BYTES, stop = end == this->packs ? bytes : end * 16;
        size_t pieces = (stop + GR_PIECE_BYTES - 1) / GR_PIECE_BYTES;
        unsigned longest = nap_per_piece * unsigned(pieces - piece);
        if (threadIdx.x < 32)
            for (piece += threadIdx.x; piece < pieces; piece += 32)
                for (unsigned nap = least_nap; !is_there(piece);
                     nap = nap < longest ? 2 * nap : nap)
                    __nanosleep(nap);
        __syncthreads();
    }
};

#endif
