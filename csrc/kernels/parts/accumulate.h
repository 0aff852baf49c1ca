/* Adding elements to sums: to numbers, and to float64 numbers that prove the rounding of their sum
 * (exact/proven.h). */
#ifndef GPUREDUCE_KERNEL_ACCUMULATE_H
#define GPUREDUCE_KERNEL_ACCUMULATE_H

#include "common.h"
#include "exact/proven.h"
#include "exact/round.h"
#include "shared/matrix.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ __forceinline__ void merge_proven(gr_proven *to, const gr_proven *more)
{
    gr_proven_merge(to, more);
}

__device__ __forceinline__ void merge_proven(gr_proven3 *to, const gr_proven3 *more)
{
    gr_proven3_merge(to, more);
}

__device__ __forceinline__ void add_proven(gr_proven *to, double x)
{
    gr_proven_add(to, x);
}

__device__ __forceinline__ void add_proven(gr_proven3 *to, double x)
{
    gr_proven3_add(to, x);
}

/* T: gr_proven, or gr_proven3. */
template <typename T> struct Proven {
    T of;

    Proven() = default;

    __device__ __forceinline__ Proven(double x) : of{}
    {
        of.sum = x;
    }

    __device__ __forceinline__ Proven &operator+=(const Proven &more)
    {
        merge_proven(&of, &more.of);
        return *this;
    }
};

typedef Proven<gr_proven> type_proven;
typedef Proven<gr_proven3> type_proven3;

template <typename T>
__device__ __forceinline__ Proven<T> __shfl_down_sync(unsigned mask, Proven<T> value,
                                                      unsigned lanes)
{
    constexpr unsigned count = sizeof(T) / sizeof(double);
    double part[count];
    memcpy(part, &value.of, sizeof part);
    for (unsigned i = 0; i < count; i++)
        part[i] = __shfl_down_sync(mask, part[i], lanes);
    memcpy(&value.of, part, sizeof part);
    return value;
}

/* The type that an element is converted to before it is added. */
template <typename Acc> struct Addend {
    using type = Acc;
};
template <typename T> struct Addend<Proven<T>> {
    using type = double;
};

template <typename Acc, typename T> __device__ __forceinline__ void add_to(Acc &sum, T x)
{
    sum += Acc(x);
}

template <typename P, typename T> __device__ __forceinline__ void add_to(Proven<P> &sum, T x)
{
    add_proven(&sum.of, double(float(x)));
}

template <typename P> __device__ __forceinline__ void add_to(Proven<P> &sum, double x)
{
    add_proven(&sum.of, x);
}

template <typename P> __device__ __forceinline__ void add_to(Proven<P> &sum, Proven<P> x)
{
    sum += x;
}

template <typename Acc, typename T>
__device__ __forceinline__ void add_pack_to(Acc &sum, const Pack<T> &pack)
{
    sum += sum_of<Acc>(pack);
}

template <typename P, typename T>
__device__ __forceinline__ void add_pack_to(Proven<P> &sum, const Pack<T> &pack)
{
    T element[Pack<T>::count];
    memcpy(element, &pack, sizeof element);
    for (unsigned k = 0; k < Pack<T>::count; k++)
        add_to(sum, element[k]);
}

/* As loose_ends() in common.h. */
template <typename Acc, typename In>
__device__ __forceinline__ Acc ends_of(In in, size_t n, const Packed<In> &packed, size_t id)
{
    Acc sum = 0;
    if (id < packed.head)
        add_to(sum, in[id]);
    if (id < packed.tail)
        add_to(sum, in[n - 1 - id]);
    return sum;
}

#endif
