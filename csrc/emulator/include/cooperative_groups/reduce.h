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

/* Every lane of the tile gets the result: a butterfly, for half of which a + b is b + a. */
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
