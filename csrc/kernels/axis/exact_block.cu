/* exact_block: a block adds up one sum in digits, where nothing is rounded.
 *
 * The other kernels of `exact` add up each sum in two or three float64 numbers, which nearly always
 * prove how it is rounded. What is left comes here. The threads of a block add their elements, as
 * integers, to the digits of exact_deposits.h in shared memory. Then one thread rounds them, by the
 * same code as the processors.
 *
 * Still wasted: three atomic additions per element, and a block for each sum, however short. */
#include "parts/exact_words.h"
#include "parts/layout.h"
#include "parts/matrix.h"

/* Adds up sum k. */
__device__ __forceinline__ void sum_in_digits(const gr_layout &of, const gr_sums &out, size_t terms,
                                              size_t k)
{
    constexpr size_t room = (size_t)1 << 29; /* elements whose digits fit into 62 bits */
    Place place(of.dim, of.kept, k);
    clear_words();
    __syncthreads();
    for (size_t begin = 0; begin < terms; begin += room) {
        size_t end = begin + room < terms ? begin + room : terms;
        for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
            Place at(of.dim + of.kept, of.reduced, i);
            if (!of.mask || of.mask[place.mask + at.mask])
                deposit(of_layout<double>(of, place.in + at.in));
        }
        __syncthreads();
        if (threadIdx.x == 0)
            carry_digits(gathering()->word);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        deposit(initial_of<double>(out, k));
        store_bits(static_cast<char *>(out.base) + place.out, round_words(out.type), out.bytes);
    }
    __syncthreads();
}

/* Adds up the sums that have a bit in `out.of.unproven`, or all if that is NULL. */
template <typename In, typename Acc>
__global__ void exact_block(gr_layout of, Sums<Acc> out, size_t sums, size_t terms)
{
    const unsigned *bits = out.of.unproven;
    if (bits && !*out.of.any_unproven)
        return;
    for (size_t k = blockIdx.x; k < sums; k += gridDim.x)
        if (!bits || bits[k / 32] >> k % 32 & 1)
            sum_in_digits(of, out.of, terms, k);
}
