/* join_parts: makes results of complex numbers, such as variances, from the sums of their parts.
 *
 * Other kernels have added up the real parts of a group and their squares, and after these the
 * imaginary parts and their squares, as if they were two groups. One thread makes a result.
 *
 * Still wasted: a launch, and a store and a load of these sums. */
#include "parts/layout.h"
#include "parts/matrix.h"

/* The base of `of` is the sums. */
template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 1)
    join_parts(const __grid_constant__ gr_layout of, const __grid_constant__ Sums<Acc> out,
               size_t count)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    const Acc *part = static_cast<const Acc *>(of.base);
    size_t threads = (size_t)gridDim.x * blockDim.x;
    for (size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += threads) {
        Place place(of.dim, of.kept, k);
        void *to = static_cast<char *>(out.of.base) + place.out;
        if (!store_of_parts(to, out.of, part[2 * k], part[2 * k + 1]))
            mark_unproven(out.of, k);
    }
}
