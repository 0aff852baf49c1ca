/* row_tile: a warp loads many short rows at once, and each lane adds up some of them.
 *
 * A row of a few elements is too short for a load by all lanes of a warp. So the warp loads
 * neighbouring rows in packs of 16 bytes, wherever one row ends and the next begins, and stores
 * them in shared memory. There each lane reads its own rows.
 *
 * Still wasted: each element is stored in shared memory and loaded again; and loads of one element,
 * if the first row does not begin at a 16-byte boundary. */
#include "parts/tile.h"

/* A tile has `per_lane` rows for each lane of a warp: `most` elements, or fewer at the end of the
 * array. Each warp has `tile_bytes` bytes of shared memory for its tile. */
template <typename In, typename Acc>
__global__ void __launch_bounds__(256, 4)
    row_tile(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out,
             unsigned per_lane, unsigned tile_bytes)
{
    /* float64 leaves unproven sums to a later launch: code for them here would take registers. */
    using Terms = std::conditional_t<sizeof(In) == 8, NoTerms, Strided<In>>;
    using Word = std::conditional_t<sizeof(In) == 8, unsigned long long, unsigned>;
    constexpr unsigned flight = 8, words = 16 / sizeof(Word);
    unsigned lane = threadIdx.x % 32, columns = (unsigned)in.of.columns;
    unsigned row_bytes = columns * (unsigned)sizeof(In), most = per_lane * 32 * columns;
    char *tile = shared_array<char>() + threadIdx.x / 32 * tile_bytes;
    size_t n = in.rows() * columns, warps = (size_t)gridDim.x * (blockDim.x / 32);
    const In *first = in.row(0);
    bool aligned = (uintptr_t)first % 16 == 0;

    for (size_t t = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; t * most < n;
         t += warps) {
        const In *from = first + t * most;
        unsigned count = n - t * most < most ? unsigned(n - t * most) : most;
        unsigned packs = aligned ? count / Pack<In>::count : 0;
        for (unsigned i = lane; i < packs; i += 32 * flight) {
            uint4 pack[flight];
            for (unsigned k = 0; k < flight; k++)
                if (i + 32 * k < packs)
                    pack[k] = reinterpret_cast<const uint4 *>(from)[i + 32 * k];
            for (unsigned k = 0; k < flight; k++)
                if (i + 32 * k < packs) {
                    Word part[words];
                    memcpy(part, &pack[k], sizeof part);
                    unsigned at = tile_offset<In>((i + 32 * k) * 16);
                    for (unsigned j = 0; j < words; j++)
                        *reinterpret_cast<Word *>(tile + at + j * sizeof(Word)) = part[j];
                }
        }
        for (unsigned i = packs * Pack<In>::count + lane; i < count; i += 32)
            *reinterpret_cast<In *>(tile + tile_offset<In>(i * (unsigned)sizeof(In))) = from[i];
        __syncwarp();
        unsigned long long again = 0; /* a bit for each row whose sum is not proven */
        for (unsigned k = 0; k < per_lane && (lane + 32 * k) * columns < count; k++) {
            unsigned row = lane + 32 * k, begin = row * row_bytes;
            size_t sum_number = t * per_lane * 32 + row;
            Sizes<In> sizes;
            Acc sum = 0;
            if constexpr (is_short<Acc, ShortSum<Acc, In>>) {
                ShortSum<Acc, In> few = 0;
                add_tile_row<Acc>(few, sizes, tile, begin, begin + row_bytes);
                if (sizes.allow(columns)) {
                    if (!out.template is_put_short<Terms>(sum_number, few))
                        again |= 1ull << k;
                    continue;
                }
            }
            add_tile_row<Acc>(sum, sizes, tile, begin, begin + row_bytes);
            if (!out.template is_put<Terms>(out.place(sum_number), sum_number, sum))
                again |= 1ull << k;
        }
        put_rows_again<Terms>(in, out, again, t * per_lane * 32 + lane, 32);
        __syncwarp();
    }
}
