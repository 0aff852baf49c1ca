/* View of the samples of a function: `in[i]` computes sample i. A single launch maps and reduces,
 * without an array in between. */
#pragma once

#include "common.h"
#define GR_SAMPLING DEVICE_FUNCTION
#include "shared/sample_values.h"

template <typename Acc> struct Samples {
    gr_samples samples;

    __device__ __forceinline__ Acc operator[](size_t i) const
    {
        return Acc(gr_sample(&samples, samples.first + i));
    }
};

/* For kernels that load 16 bytes at a time: packs of neighbouring samples. There is no boundary to
 * align to. */
template <typename Acc> struct Packed<Samples<Acc>> {
    Samples<Acc> in;
    size_t head, packs, tail;

    __device__ __forceinline__ Packed(Samples<Acc> in, size_t n)
        : in(in), head(0), packs(n / Pack<Acc>::count), tail(n % Pack<Acc>::count)
    {
    }

    __device__ __forceinline__ void settled() {}

    __device__ __forceinline__ size_t into_line() const
    {
        return 0;
    }

    __device__ __forceinline__ void fetch_ahead(size_t, size_t) const {}

    __device__ __forceinline__ Pack<Acc> operator[](size_t i) const
    {
        Pack<Acc> pack;
        for (unsigned k = 0; k < Pack<Acc>::count; k++)
            pack.element[k] = in[i * Pack<Acc>::count + k];
        return pack;
    }

    __device__ __forceinline__ Pack<Acc> or_zero(size_t i, size_t end) const
    {
        if (i < end)
            return (*this)[i];
        Pack<Acc> pack;
        memset(&pack, 0, sizeof pack);
        return pack;
    }
};
