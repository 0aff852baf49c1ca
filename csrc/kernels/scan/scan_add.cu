/* scan_add: adds the sum of all earlier blocks to the entries of each block but the first.
 *
 * The scan before this launch made `size` entries per block, and work[b] is the sum of the elements
 * of the blocks up to b. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void scan_add(In work, Acc *out, size_t n, unsigned size)
{
    Acc before = work[blockIdx.x];
    size_t first = (blockIdx.x + (size_t)1) * size;
    for (unsigned k = threadIdx.x; k < size && first + k < n; k += blockDim.x)
        out[first + k] = before + out[first + k];
}
