/* cooperative_groups::reduce over a tile. */
#ifndef GPUREDUCE_EMULATOR_COOPERATIVE_GROUPS_REDUCE_H
#define GPUREDUCE_EMULATOR_COOPERATIVE_GROUPS_REDUCE_H

#include "../cooperative_groups.h"

namespace cooperative_groups
{

template <typename T> struct plus {
    GR_UNTRACED T operator()(T a, T b) const
    {
        return a + b;
    }
};
template <typename T> struct less {
    GR_UNTRACED T operator()(T a, T b) const
    {
        return b < a ? b : a;
    }
};
template <typename T> struct greater {
    GR_UNTRACED T operator()(T a, T b) const
    {
        return a < b ? b : a;
    }
};

/* As on the GPU, 32-bit integers use one warp reduction instruction. */
#define GR_TILE_REDUCE(type, operation, intrinsic)                                                 \
    template <unsigned Size, typename Parent>                                                      \
    GR_INTRINSIC type reduce(const thread_block_tile<Size, Parent> &tile, type value,              \
                             operation<type>, GR_SITE)                                             \
    {                                                                                              \
        return intrinsic(tile.mask(), value, file, line);                                          \
    }
GR_TILE_REDUCE(int, plus, __reduce_add_sync)
GR_TILE_REDUCE(unsigned, plus, __reduce_add_sync)
GR_TILE_REDUCE(int, less, __reduce_min_sync)
GR_TILE_REDUCE(unsigned, less, __reduce_min_sync)
GR_TILE_REDUCE(int, greater, __reduce_max_sync)
GR_TILE_REDUCE(unsigned, greater, __reduce_max_sync)
#undef GR_TILE_REDUCE

/* Other types use a butterfly of shuffles. In each step, half of the lanes compute a + b and their
 * partners b + a. Every lane of the tile gets the result. */
template <unsigned Size, typename Parent, typename T, typename Operation>
GR_INTRINSIC T reduce(const thread_block_tile<Size, Parent> &tile, T value, Operation operation,
                      GR_SITE)
{
    for (unsigned distance = Size / 2; distance > 0; distance /= 2)
        value = operation(value, tile.shfl_xor(value, distance, file, line));
    return value;
}

} // namespace cooperative_groups

#endif
