/* View of an array of any strides and any element type: `in[i]` is the i-th element in the order of
 * its dimensions, converted to Acc. It costs a division per dimension and element, so contiguous
 * arrays are passed as plain pointers instead. */
#pragma once

#include "common.h"
#include "shared/elements.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Element number `offset` from an address on, converted to Acc. `load` is a gr_load, or
 * GR_ELEMENTS_I64. */
template <typename Acc>
__device__ __forceinline__ Acc element_at(const void *base, int64_t offset, int load)
{
    switch (load) {
    case GR_LOAD_i8: return Acc(static_cast<const int8_t *>(base)[offset]);
    case GR_LOAD_u8: return Acc(static_cast<const uint8_t *>(base)[offset]);
    case GR_LOAD_i16: return Acc(static_cast<const int16_t *>(base)[offset]);
    case GR_LOAD_u16: return Acc(static_cast<const uint16_t *>(base)[offset]);
    case GR_LOAD_i32: return Acc(static_cast<const int32_t *>(base)[offset]);
    case GR_LOAD_u32: return Acc(static_cast<const uint32_t *>(base)[offset]);
    case GR_LOAD_f16: return Acc(float(static_cast<const __half *>(base)[offset]));
    case GR_LOAD_bf16: return Acc(float(static_cast<const __nv_bfloat16 *>(base)[offset]));
    case GR_LOAD_f32: return Acc(static_cast<const float *>(base)[offset]);
    case GR_LOAD_f64: return Acc(static_cast<const double *>(base)[offset]);
    case GR_ELEMENTS_I64: return Acc(static_cast<const long long *>(base)[offset]);
    default: return Acc(static_cast<const unsigned long long *>(base)[offset]);
    }
}

template <typename Acc> struct Elements {
    gr_elements array;

    __device__ __forceinline__ Acc operator[](size_t i) const
    {
        int64_t offset = 0;
        i += array.first;
        for (int d = array.dims - 1; d > 0; d--) {
            offset += (int64_t)(i % array.size[d]) * array.step[d];
            i /= array.size[d];
        }
        offset += (int64_t)i * array.step[0];
        return element_at<Acc>(array.base, offset, array.load);
    }
};

/* For kernels that load 16 bytes at a time: packs of consecutive elements at any addresses. */
template <typename Acc> struct Packed<Elements<Acc>> {
    using Element = Acc;
    Elements<Acc> in;
    size_t head, packs, tail;

    __device__ __forceinline__ Packed(const Elements<Acc> &in, size_t n)
        : in(in), head(0), packs(n / Pack<Acc>::count), tail(n % Pack<Acc>::count)
    {
    }

    __device__ __forceinline__ void fetch_ahead(size_t, size_t) const {}

    __device__ __forceinline__ Pack<Acc> or_zero(size_t i, size_t end) const
    {
        Pack<Acc> pack;
        for (unsigned k = 0; k < Pack<Acc>::count; k++)
            pack.element[k] = i < end ? in[i * Pack<Acc>::count + k] : Acc(0);
        return pack;
    }

    __device__ __forceinline__ Pack<unsigned> words(size_t i) const
    {
        return words_or_zero(i, i + 1);
    }

    __device__ __forceinline__ Pack<unsigned> words_or_zero(size_t i, size_t end) const
    {
        Pack<Acc> pack = or_zero(i, end);
        Pack<unsigned> words;
        memcpy(&words, &pack, sizeof words);
        return words;
    }
};
