/* Arrays as rows and columns, and the places of their sums. */
#ifndef GPUREDUCE_KERNEL_MATRIX_H
#define GPUREDUCE_KERNEL_MATRIX_H

#include "common.h"
#include "shared/matrix.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T> struct Matrix {
    gr_matrix of;

    /* The number of rows in all batches. */
    __device__ __forceinline__ size_t rows() const
    {
        return of.batches * of.rows;
    }

    __device__ __forceinline__ const T *row(size_t r) const
    {
        const T *first = static_cast<const T *>(of.base);
        if (of.batches == 1)
            return first + (int64_t)r * of.row_step;
        return first + (int64_t)(r / of.rows) * of.batch_step +
               (int64_t)(r % of.rows) * of.row_step;
    }

    __device__ __forceinline__ const T *batch(size_t b) const
    {
        return static_cast<const T *>(of.base) + (int64_t)b * of.batch_step;
    }

    /* Whether each row begins at a 16-byte boundary and consists of whole packs. */
    __device__ __forceinline__ bool has_whole_packs() const
    {
        constexpr uint64_t count = Pack<T>::count;
        return ((uintptr_t)of.base / sizeof(T) | of.columns | (uint64_t)of.row_step |
                (uint64_t)of.batch_step) %
                   count ==
               0;
    }
};

/* The places of the sums. A sum is rounded to its type once, when it is stored. */
template <typename Acc> struct Sums {
    gr_sums of;

    __device__ __forceinline__ void put(size_t k, Acc sum) const
    {
        sum += initial(k);
        if (of.is_native)
            static_cast<Acc *>(of.base)[k] = sum;
        else
            convert(static_cast<char *>(of.base) + k * of.bytes, sum);
    }

    /* Stores sum k at a distance of so many bytes from the first one. */
    __device__ __forceinline__ void put_at(int64_t distance, size_t k, Acc sum) const
    {
        void *to = static_cast<char *>(of.base) + distance;
        sum += initial(k);
        if (of.is_native)
            *static_cast<Acc *>(to) = sum;
        else
            convert(to, sum);
    }

    /* Stores `count` neighbouring sums, by wide stores if possible. */
    template <unsigned count>
    __device__ __forceinline__ void put_all(size_t k, const Acc (&sum)[count]) const
    {
        constexpr unsigned pack = Pack<Acc, false>::count;
        Acc *to = static_cast<Acc *>(of.base) + k;
        if (of.is_native && count % pack == 0 && (uintptr_t)to % 16 == 0) {
            for (unsigned i = 0; i < count; i += pack) {
                Acc wide[pack];
                uint4 bits;
                for (unsigned j = 0; j < pack; j++)
                    wide[j] = sum[i + j] + initial(k + i + j);
                memcpy(&bits, wide, sizeof bits);
                *reinterpret_cast<uint4 *>(to + i) = bits;
            }
            return;
        }
        for (unsigned i = 0; i < count; i++)
            put(k + i, sum[i]);
    }

  private:
    __device__ __forceinline__ Acc initial(size_t k) const
    {
        Acc value;
        memcpy(&value, &of.initial[of.parts == 2 ? k % 2 : 0], sizeof value);
        return value;
    }

    __device__ __forceinline__ void convert(void *to, Acc sum) const
    {
        switch (of.type) {
        case GR_LOAD_f16: *static_cast<__half *>(to) = __float2half(float(sum)); break;
        case GR_LOAD_bf16: *static_cast<__nv_bfloat16 *>(to) = __float2bfloat16(float(sum)); break;
        case GR_LOAD_f32: *static_cast<float *>(to) = float(sum); break;
        case GR_LOAD_f64: *static_cast<double *>(to) = double(sum); break;
        default: store_low_bytes(to, (unsigned long long)sum);
        }
    }

    /* Integers wrap around. */
    __device__ __forceinline__ void store_low_bytes(void *to, unsigned long long sum) const
    {
        switch (of.bytes) {
        case 1: *static_cast<uint8_t *>(to) = (uint8_t)sum; break;
        case 2: *static_cast<uint16_t *>(to) = (uint16_t)sum; break;
        case 4: *static_cast<unsigned *>(to) = (unsigned)sum; break;
        default: *static_cast<unsigned long long *>(to) = sum;
        }
    }
};

/* The offset in shared memory of the byte `at` of a tile. */
template <typename In> __device__ __forceinline__ unsigned tile_offset(unsigned at)
{
    return at + at / 128 * (sizeof(In) < 4 ? 4 : (unsigned)sizeof(In));
}

/* The sum of the elements in a 32-bit word. */
template <typename Acc, typename In> __device__ __forceinline__ Acc word_sum(const void *address)
{
    In element[sizeof(In) < 4 ? 4 / sizeof(In) : 1];
    memcpy(element, address, sizeof element);
    Acc sum = Acc(element[0]);
    for (unsigned j = 1; j < sizeof element / sizeof(In); j++)
        sum += Acc(element[j]);
    return sum;
}

#endif
