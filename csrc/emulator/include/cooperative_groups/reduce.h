/* cooperative_groups::reduce over a tile or a coalesced group. */
#pragma once

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

/* A butterfly of shuffles. In each step, half of the lanes compute a + b and their partners b + a.
 * Every lane of the tile gets the result. */
template <unsigned Size, typename Parent, typename T, typename Operation>
GR_UNTRACED T gr_reduce(const thread_block_tile<Size, Parent> &tile, T value, Operation operation,
                        GR_SITE)
{
    for (unsigned distance = Size / 2; distance > 0; distance /= 2)
        value = operation(value, tile.shfl_xor(value, distance, file, line));
    return value;
}

/* A tree of shuffles, whose root has rank 0. */
template <typename T, typename Operation>
GR_UNTRACED T gr_reduce(const coalesced_group &group, T value, Operation operation, GR_SITE)
{
    unsigned rank = group.thread_rank();
    for (unsigned distance = 1; distance < group.size(); distance *= 2) {
        T other = group.shfl_down(value, distance, file, line);
        if (rank % (2 * distance) == 0 && rank + distance < group.size())
            value = operation(value, other);
    }
    return group.shfl(value, 0, file, line);
}

template <typename Group, typename T, typename Operation>
GR_INTRINSIC T reduce(const Group &group, T value, Operation operation, GR_SITE)
{
    return gr_reduce(group, value, operation, file, line);
}

/* As on the GPU, 32-bit integers use one warp reduction instruction. */
#define GR_REDUCE(type, operation, intrinsic)                                                      \
    template <typename Group>                                                                      \
    GR_INTRINSIC type reduce(const Group &group, type value, operation<type>, GR_SITE)             \
    {                                                                                              \
        return intrinsic(group.mask(), value, file, line);                                         \
    }
GR_REDUCE(int, plus, __reduce_add_sync)
GR_REDUCE(unsigned, plus, __reduce_add_sync)
GR_REDUCE(int, less, __reduce_min_sync)
GR_REDUCE(unsigned, less, __reduce_min_sync)
GR_REDUCE(int, greater, __reduce_max_sync)
GR_REDUCE(unsigned, greater, __reduce_max_sync)
#undef GR_REDUCE

} // namespace cooperative_groups
