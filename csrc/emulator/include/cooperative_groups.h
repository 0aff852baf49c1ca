/* Cooperative groups: blocks, tiles of a warp, clusters and the grid. */
#pragma once

#include "cuda_runtime.h"

namespace cooperative_groups
{

/* Functions without arguments: of a type, and of an object. */
#define GR_IS(type, name, value)                                                                   \
    GR_UNTRACED static type name()                                                                 \
    {                                                                                              \
        return value;                                                                              \
    }
#define GR_HAS(type, name, value)                                                                  \
    GR_UNTRACED type name() const                                                                  \
    {                                                                                              \
        return value;                                                                              \
    }

class thread_block
{
  public:
    GR_UNTRACED static void sync(GR_SITE)
    {
        gr_block_barrier(file, line);
    }
    GR_IS(unsigned, thread_rank, gr_thread_rank())
    GR_IS(unsigned, num_threads, (blockDim.x * blockDim.y) * blockDim.z)
    GR_IS(unsigned, size, num_threads())
    GR_IS(dim3, group_index, blockIdx)
    GR_IS(dim3, thread_index, threadIdx)
    GR_IS(dim3, group_dim, blockDim)
};

GR_INTRINSIC thread_block this_thread_block()
{
    return thread_block();
}

#define GR_TILE_SHUFFLE(name, type, op)                                                            \
    template <typename T> GR_UNTRACED T name(T value, type lane, GR_SITE) const                    \
    {                                                                                              \
        return gr_shuffle(op, mask(), value, (int)lane, Size, file, line);                         \
    }

/* A tile: `Size` adjacent lanes of a warp. `Parent` is the type of the group that it was cut from,
 * and has no effect here. */
template <unsigned Size, typename Parent = void> class thread_block_tile
{
    static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0,
                  "a tile is a power of two of at most 32 lanes");

    GR_UNTRACED static unsigned lane()
    {
        return gr_thread_rank() & 31;
    }

  public:
    /* The mask of the tile's lanes, as the warp intrinsics take it. Not part of CUDA; for reduce()
     * only. */
    GR_IS(unsigned, mask, (0xffffffffu >> (32 - Size)) << (lane() & ~(Size - 1)))
    thread_block_tile() = default;
    template <typename Other> GR_UNTRACED thread_block_tile(const thread_block_tile<Size, Other> &)
    {
    }
    GR_IS(unsigned, thread_rank, gr_thread_rank() & (Size - 1))
    GR_IS(constexpr unsigned, num_threads, Size)
    GR_IS(constexpr unsigned, size, Size)
    GR_IS(unsigned, meta_group_rank, gr_thread_rank() / Size)
    GR_IS(unsigned, meta_group_size, (thread_block::num_threads() + Size - 1) / Size)
    GR_UNTRACED static void sync(GR_SITE)
    {
        gr_warp_collective(GR_SYNCWARP, mask(), 0, 0, 32, file, line);
    }
    GR_TILE_SHUFFLE(shfl, int, GR_SHUFFLE_INDEX)
    GR_TILE_SHUFFLE(shfl_up, unsigned, GR_SHUFFLE_UP)
    GR_TILE_SHUFFLE(shfl_down, unsigned, GR_SHUFFLE_DOWN)
    GR_TILE_SHUFFLE(shfl_xor, unsigned, GR_SHUFFLE_XOR)
    GR_UNTRACED int any(int predicate, GR_SITE) const
    {
        return __any_sync(mask(), predicate, file, line);
    }
    GR_UNTRACED int all(int predicate, GR_SITE) const
    {
        return __all_sync(mask(), predicate, file, line);
    }
    GR_UNTRACED unsigned ballot(int predicate, GR_SITE) const
    {
        return __ballot_sync(mask(), predicate, file, line) >> (lane() & ~(Size - 1));
    }
};

template <unsigned Size>
GR_INTRINSIC thread_block_tile<Size, thread_block> tiled_partition(const thread_block &)
{
    return thread_block_tile<Size, thread_block>();
}
template <unsigned Size, unsigned Outer, typename Parent>
GR_INTRINSIC thread_block_tile<Size, thread_block_tile<Outer, Parent>>
tiled_partition(const thread_block_tile<Outer, Parent> &)
{
    static_assert(Size <= Outer, "a tile is no larger than what it is cut from");
    return thread_block_tile<Size, thread_block_tile<Outer, Parent>>();
}

/* The lanes of a warp that called coalesced_threads() together. */
class coalesced_group
{
    unsigned lanes;

    GR_UNTRACED unsigned lane_of(unsigned rank) const
    {
        unsigned left = lanes;
        while (rank--)
            left &= left - 1;
        return (unsigned)__builtin_ctz(left);
    }

  public:
    GR_UNTRACED explicit coalesced_group(unsigned active) : lanes(active) {}
    GR_HAS(unsigned, mask, lanes)
    GR_HAS(unsigned, size, (unsigned)__builtin_popcount(lanes))
    GR_HAS(unsigned, num_threads, size())
    GR_HAS(unsigned, thread_rank,
           (unsigned)__builtin_popcount(lanes &((1u << (gr_thread_rank() & 31)) - 1)))
    GR_UNTRACED void sync(GR_SITE) const
    {
        gr_warp_collective(GR_SYNCWARP, lanes, 0, 0, 32, file, line);
    }
    template <typename T> GR_UNTRACED T shfl(T value, unsigned rank, GR_SITE) const
    {
        int lane = (int)lane_of(rank % size());
        return gr_shuffle(GR_SHUFFLE_INDEX, lanes, value, lane, 32, file, line);
    }
    template <typename T> GR_UNTRACED T shfl_down(T value, unsigned delta, GR_SITE) const
    {
        unsigned rank = thread_rank();
        return shfl(value, rank + delta < size() ? rank + delta : rank, file, line);
    }
    template <typename T> GR_UNTRACED T shfl_up(T value, unsigned delta, GR_SITE) const
    {
        unsigned rank = thread_rank();
        return shfl(value, rank >= delta ? rank - delta : rank, file, line);
    }
    GR_UNTRACED int any(int predicate, GR_SITE) const
    {
        return __any_sync(lanes, predicate, file, line);
    }
    GR_UNTRACED int all(int predicate, GR_SITE) const
    {
        return __all_sync(lanes, predicate, file, line);
    }
};

GR_INTRINSIC coalesced_group coalesced_threads(GR_SITE)
{
    return coalesced_group(__activemask(file, line));
}

/* A block or a tile: for functions that take either. */
class thread_group
{
    unsigned lanes = 0; /* of a tile; 0: a block */

  public:
    GR_UNTRACED thread_group(const thread_block &) {}
    template <unsigned Size, typename Parent>
    GR_UNTRACED thread_group(const thread_block_tile<Size, Parent> &) : lanes(Size)
    {
    }
    GR_HAS(unsigned, size, lanes ? lanes : thread_block::num_threads())
    GR_HAS(unsigned, num_threads, size())
    GR_HAS(unsigned, thread_rank, lanes ? gr_thread_rank() & (lanes - 1) : gr_thread_rank())
    GR_UNTRACED void sync(GR_SITE) const
    {
        if (!lanes)
            gr_block_barrier(file, line);
        else
            gr_warp_collective(GR_SYNCWARP,
                               (0xffffffffu >> (32 - lanes))
                                   << (gr_thread_rank() & 31 & ~(lanes - 1)),
                               0, 0, 32, file, line);
    }
};

/* The blocks of a cluster. In a launch without clusters, each cluster is one block. */
class cluster_group
{
  public:
    struct arrival_token {
    };
    GR_UNTRACED static void sync(GR_SITE)
    {
        gr_wide_barrier(GR_CLUSTER, file, line);
    }
    GR_UNTRACED static arrival_token barrier_arrive(GR_SITE)
    {
        gr_cluster_arrive(file, line);
        return arrival_token();
    }
    GR_UNTRACED static void barrier_wait(GR_SITE)
    {
        gr_cluster_wait(file, line);
    }
    GR_UNTRACED static void barrier_wait(arrival_token &&, GR_SITE)
    {
        gr_cluster_wait(file, line);
    }
    GR_IS(unsigned, block_rank, gr_where().cluster_rank)
    GR_IS(unsigned, num_blocks, gr_where().cluster_size)
    GR_IS(unsigned, thread_rank, block_rank() * thread_block::num_threads() + gr_thread_rank())
    GR_IS(unsigned, num_threads, num_blocks() * thread_block::num_threads())
    GR_IS(unsigned, size, num_threads())
    /* Returns the corresponding address in another block's shared memory. */
    template <typename T> GR_UNTRACED static T *map_shared_rank(T *address, int rank)
    {
        gr_position at = gr_where();
        ptrdiff_t blocks_away = (ptrdiff_t)rank - (ptrdiff_t)at.cluster_rank;
        return (T *)((char *)address + blocks_away * (ptrdiff_t)at.shared_stride);
    }
};

GR_INTRINSIC cluster_group this_cluster()
{
    return cluster_group();
}

class grid_group
{
  public:
    /* Faults if the launch is not cooperative. */
    GR_UNTRACED static void sync(GR_SITE)
    {
        gr_wide_barrier(GR_GRID, file, line);
    }
    GR_IS(bool, is_valid, gr_where().cooperative)
    GR_IS(unsigned long long, block_rank, gr_where().block_rank)
    GR_IS(unsigned long long, num_blocks, gr_where().blocks)
    GR_IS(unsigned long long, thread_rank,
          block_rank() * thread_block::num_threads() + gr_thread_rank())
    GR_IS(unsigned long long, num_threads, num_blocks() * thread_block::num_threads())
    GR_IS(unsigned long long, size, num_threads())
    GR_IS(dim3, group_dim, gridDim)
};

GR_INTRINSIC grid_group this_grid()
{
    return grid_group();
}

template <typename Group> GR_INTRINSIC void sync(const Group &group, GR_SITE)
{
    group.sync(file, line);
}

#undef GR_IS
#undef GR_HAS
#undef GR_TILE_SHUFFLE

} // namespace cooperative_groups
