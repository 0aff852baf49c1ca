/* Tiles of running sums: their elements and entries, and the sums before them. */
#ifndef GPUREDUCE_KERNEL_RUNNING_H
#define GPUREDUCE_KERNEL_RUNNING_H

#include "matrix.h"
#include "shared/running.h"

/* A sum of neighbours. `begins`: sums begin anew at one of them, and this sum is of the elements
 * from the last such element on. */
template <typename Acc> struct Run {
    Acc sum;
    bool begins;

    /* Appends the sum of the neighbours that follow. */
    __device__ __forceinline__ void append(const Run &next)
    {
        if (next.begins)
            sum = next.sum;
        else
            sum += next.sum;
        begins |= next.begins;
    }
};

template <typename Acc> __device__ __forceinline__ Run<Acc> from_lane(const Run<Acc> &run, int lane)
{
    return {__shfl_sync(0xffffffffu, run.sum, lane),
            __shfl_sync(0xffffffffu, (int)run.begins, lane) != 0};
}

template <typename Acc>
__device__ __forceinline__ Run<Acc> from_lane_below(const Run<Acc> &run, unsigned lanes)
{
    return {__shfl_up_sync(0xffffffffu, run.sum, lanes),
            __shfl_up_sync(0xffffffffu, (int)run.begins, lanes) != 0};
}

template <typename Acc>
__device__ __forceinline__ Run<Acc> from_lane_above(const Run<Acc> &run, unsigned lanes)
{
    return {__shfl_down_sync(0xffffffffu, run.sum, lanes),
            __shfl_down_sync(0xffffffffu, (int)run.begins, lanes) != 0};
}

/* Waits for a block that has drawn an earlier ticket, so it runs. */
__device__ __forceinline__ void wait_for(const unsigned *flag)
{
    while (!load_current(flag))
        __nanosleep(20);
    __threadfence();
}

template <typename Acc> __device__ __forceinline__ Acc current(const void *sums, size_t k)
{
    constexpr unsigned words = sizeof(Acc) / sizeof(unsigned);
    const volatile unsigned *from = static_cast<const volatile unsigned *>(sums) + k * words;
    unsigned word[words];
    for (unsigned i = 0; i < words; i++)
        word[i] = from[i];
    Acc sum;
    memcpy(&sum, word, sizeof sum);
    return sum;
}

/* Where a line's elements and entries lie, and where its sums begin anew. */
template <typename T> struct Line {
    const gr_running_lines &of;
    const T *in;
    char *to;
    bool is_there;

    __device__ __forceinline__ Line(const gr_running_lines &of, void *entries, size_t strip,
                                    unsigned column)
        : of(of)
    {
        size_t per_outer = (of.columns + of.width - 1) / of.width;
        int64_t o = int64_t(strip / per_outer), c = int64_t(strip % per_outer * of.width + column);
        is_there = uint64_t(c) < of.columns;
        in = static_cast<const T *>(of.in) + o * of.outer_step + c * of.column_step;
        to = static_cast<char *>(entries) + o * of.to_outer_step + c * of.to_column_step;
    }

    __device__ __forceinline__ T element(size_t i) const
    {
        return in[int64_t(i) * of.step];
    }

    __device__ __forceinline__ void *entry(size_t i) const
    {
        return to + int64_t(i) * of.to_step;
    }
};

template <typename T>
__device__ __forceinline__ void store_zero(const Line<T> &line, const gr_sums &of)
{
    if (line.is_there)
        store_bits(line.to - line.of.to_step, 0, of.bytes);
}

/* How many elements, from element `i` on, come before the next element at which sums begin anew. 0:
 * sums begin anew at element i. */
__device__ __forceinline__ size_t until_next(const gr_running_lines &of, size_t i)
{
    if (of.period >= of.n)
        return i ? SIZE_MAX : 0;
    size_t past = i % of.period;
    return past ? of.period - past : 0;
}

/* Whether sums begin anew within elements `first` to `end` - 1. */
__device__ __forceinline__ bool begins_within(const gr_running_lines &of, size_t first, size_t end)
{
    return until_next(of, first) < end - first;
}

/* Rounds a sum to 24 bits or fewer if it is far from the middle between two such numbers: then what
 * is not in `of.sum` does not matter. 2^11 units in the last place are far. */
__device__ __forceinline__ bool round_far(const gr_proven &of, const gr_sums &sums, double *rounded)
{
    gr_format format = gr_format_of(sums.type);
    double unknown = gr_magnitude(of.rest) + sums.additions * 0x1p-52 * of.bound;
    long long bits = __double_as_longlong(of.sum);
    int exponent = int(bits >> 52 & 0x7ff) - 1023;
    bool is_normal = exponent >= format.unit + format.fraction || of.sum == 0;
    if (format.fraction > 23 || !is_normal || !(unknown <= gr_magnitude(of.sum) * 0x1p-43))
        return false;
    long long half = 1ll << (51 - format.fraction), low = bits & (2 * half - 1);
    *rounded = format.fraction == 23 ? of.sum : rounded_to_odd(of.sum);
    return (low < half ? half - low : low - half) > 1 << 11;
}

__device__ __forceinline__ bool round_far(const gr_proven3 &, const gr_sums &, double *)
{
    return false;
}

/* Stores an entry. Returns whether its rounding is proven. */
template <typename In, typename Acc>
__device__ __forceinline__ bool put_entry(void *to, const gr_sums &sums, const Acc &sum)
{
    if constexpr (is_proven<Acc>) {
        double rounded;
        if (!round_far(sum.of, sums, &rounded) && !finish_proven(sum.of, sums, &rounded))
            return false;
        store_usual<In>(to, sums, rounded);
    } else
        store_usual<In>(to, sums, sum);
    return true;
}

/* Copies an entry of 1 to 8 bytes. */
__device__ __forceinline__ void copy_bytes(void *to, const void *from, unsigned bytes)
{
    switch (bytes) {
    case 1: *static_cast<uint8_t *>(to) = *static_cast<const uint8_t *>(from); break;
    case 2: *static_cast<uint16_t *>(to) = *static_cast<const uint16_t *>(from); break;
    case 4: *static_cast<unsigned *>(to) = *static_cast<const unsigned *>(from); break;
    default:
        *static_cast<unsigned long long *>(to) = *static_cast<const unsigned long long *>(from);
    }
}

/* One block's tile. Thread `part` of a column has GR_RUNNING_ITEMS of its elements, from `first`
 * on.
 */
template <typename In, typename Acc> struct RunningTile {
    const gr_running_lines &of;
    const gr_running_memory &memory;
    size_t strip, tile, rows, begin, first;
    unsigned width, column, part;

    __device__ __forceinline__ RunningTile(const gr_running_lines &of,
                                           const gr_running_memory &memory, size_t number)
        : of(of), memory(memory), strip(number % of.strips), tile(number / of.strips),
          rows(GR_RUNNING_WALK / of.width), begin(tile * rows), width(of.width),
          column(threadIdx.x % of.width), part(threadIdx.x / of.width)
    {
        first = begin + part * GR_RUNNING_ITEMS;
    }

    __device__ __forceinline__ size_t end() const
    {
        return begin + rows < of.n ? begin + rows : of.n;
    }

    /* The place of the tile's element or entry k in shared memory, without bank conflicts. */
    static __device__ __forceinline__ unsigned padded(unsigned k)
    {
        return k + k / 32;
    }

    /* Calls use(k, line, i) for each element of the tile, neighbours by neighbouring lanes. */
    template <typename Use> __device__ __forceinline__ void each(void *entries, Use use) const
    {
        Line<In> line(of, entries, strip, column);
        UNROLLED
        for (unsigned k = 0; k < GR_RUNNING_ITEMS; k++) {
            size_t i = begin + part + (size_t)k * (GR_RUNNING_BLOCK / width);
            if (line.is_there && i < of.n)
                use(threadIdx.x + k * GR_RUNNING_BLOCK, line, i);
        }
    }

    /* Element or entry j of this thread. */
    __device__ __forceinline__ unsigned own(unsigned j) const
    {
        return padded((part * GR_RUNNING_ITEMS + j) * width + column);
    }

    __device__ __forceinline__ unsigned count() const
    {
        size_t left = first < of.n ? of.n - first : 0;
        return left < GR_RUNNING_ITEMS ? unsigned(left) : unsigned(GR_RUNNING_ITEMS);
    }

    /* Calls use(x, j, begins) for this thread's elements. */
    template <typename Use>
    __device__ __forceinline__ void each_own(const In (&x)[GR_RUNNING_ITEMS], Use use) const
    {
        size_t until = until_next(of, first);
        unsigned n = count();
        UNROLLED
        for (unsigned j = 0; j < GR_RUNNING_ITEMS; j++)
            if (j < n) {
                use(x[j], j, until == 0);
                until = (until ? until : of.period) - 1;
            }
    }

    __device__ __forceinline__ Run<Acc> sum_of(const In (&x)[GR_RUNNING_ITEMS]) const
    {
        Run<Acc> run = {Acc(0), false};
        each_own(x, [&](In element, unsigned, bool begins) {
            if (begins)
                run = {Acc(0), true};
            add_to(run.sum, element);
        });
        return run;
    }

    /* The sums of the threads before this one, and of the whole tile. */
    __device__ __forceinline__ Run<Acc> scan(Run<Acc> run, Run<Acc> *of_warps,
                                             Run<Acc> *total) const
    {
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (unsigned lanes = width; lanes < 32; lanes *= 2) {
            Run<Acc> sum = from_lane_below(run, lanes);
            if (lane >= lanes) {
                sum.append(run);
                run = sum;
            }
        }
        Run<Acc> own = from_lane_below(run, width < 32 ? width : 0), before = {Acc(0), false};
        if (lane + width >= 32)
            of_warps[warp * width + column] = run;
        __syncthreads();
        *total = before;
        for (unsigned w = 0; w < GR_RUNNING_BLOCK / 32; w++) {
            if (w == warp)
                before = *total;
            total->append(of_warps[w * width + column]);
        }
        if (lane >= width)
            before.append(own);
        return before;
    }

    __device__ __forceinline__ size_t number(size_t t) const
    {
        return t * of.strips + strip;
    }

    /* The sum of tile t, which another block has written. */
    __device__ __forceinline__ Run<Acc> of_tile(size_t t, unsigned c) const
    {
        wait_for(&memory.summed[number(t)]);
        return {current<Acc>(memory.sums, number(t) * width + c),
                begins_within(of, t * rows, (t + 1) * rows)};
    }

    __device__ __forceinline__ bool group_begins(size_t g) const
    {
        size_t elements = rows * GR_RUNNING_GROUP;
        return begins_within(of, g * elements, (g + 1) * elements);
    }

    /* The sum of the groups before group g, from the nearest one on up to which the sum is known.
     * Additions in the order of the groups make it the same in every run. */
    __device__ __forceinline__ Acc before_group(size_t g, unsigned c) const
    {
        unsigned lane = threadIdx.x % 32, far;
        bool is_there = lane < g;
        size_t k = is_there ? number(g - 1 - lane) : 0;
        do {
            bool is_known = is_there && load_current(&memory.group_known[k]);
            bool is_summed = is_there && load_current(&memory.group_summed[k]);
            unsigned known = __ballot_sync(0xffffffffu, is_known),
                     summed = __ballot_sync(0xffffffffu, is_summed);
            unsigned nearest = known & (0u - known);
            far = known && ((nearest - 1) & ~summed) == 0 ? (unsigned)__ffs((int)known) : 0;
            if (!far)
                __nanosleep(20);
        } while (!far);
        __threadfence();
        Run<Acc> run = {Acc(0), false};
        if (lane < far && is_there) {
            bool is_known = lane == far - 1;
            run.sum =
                current<Acc>(is_known ? memory.group_before : memory.group_sums, k * width + c);
            run.begins = !is_known && group_begins(g - 1 - lane);
        }
        Run<Acc> sum = from_lane(run, (int)far - 1);
        for (unsigned i = far - 1; i-- > 0;)
            sum.append(from_lane(run, (int)i));
        return sum.sum;
    }

    /* The sum of the tiles of this group before this one. */
    __device__ __forceinline__ Run<Acc> in_group(unsigned c) const
    {
        unsigned lane = threadIdx.x % 32, place = unsigned(tile % GR_RUNNING_GROUP);
        Run<Acc> run = {Acc(0), false};
        if (lane < place)
            run = of_tile(tile - place + lane, c);
        for (unsigned lanes = 1; lanes < 32; lanes *= 2) {
            Run<Acc> next = from_lane_above(run, lanes);
            if (lane + lanes < 32)
                run.append(next);
        }
        return from_lane(run, 0);
    }

    /* Leaves the sums before this tile in `before`, one per column, and tells other blocks of this
     * tile's, `total`. The last tile of a group also adds up the group, and all up to it. */
    __device__ __forceinline__ void look_back(const Run<Acc> &total, Run<Acc> *totals,
                                              Run<Acc> *before) const
    {
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        size_t me = number(tile), g = tile / GR_RUNNING_GROUP, group = number(g);
        bool is_last = tile % GR_RUNNING_GROUP == GR_RUNNING_GROUP - 1;
        if (part == 0) {
            totals[column] = total;
            static_cast<Acc *>(memory.sums)[me * width + column] = total.sum;
            __threadfence();
        }
        __syncthreads();
        if (threadIdx.x == 0)
            atomicExch(&memory.summed[me], 1u);
        for (unsigned c = warp; c < width; c += GR_RUNNING_BLOCK / 32) {
            Run<Acc> run = in_group(c);
            if (lane == 0) {
                before[c] = run;
                run.append(totals[c]);
                totals[c] = run;
                if (is_last)
                    static_cast<Acc *>(memory.group_sums)[group * width + c] = run.sum;
                __threadfence();
            }
        }
        __syncthreads();
        if (is_last && threadIdx.x == 0)
            atomicExch(&memory.group_summed[group], 1u);
        for (unsigned c = warp; c < width; c += GR_RUNNING_BLOCK / 32) {
            Run<Acc> all = {Acc(0), false}; /* before this group */
            if (g > 0 && !before[c].begins)
                all.sum = is_last ? before_group(g, c) : known_before(g, c);
            __syncwarp(); /* all lanes have read before[c] */
            if (lane == 0) {
                Run<Acc> known = all;
                known.append(totals[c]);
                if (is_last)
                    static_cast<Acc *>(memory.group_before)[group * width + c] = known.sum;
                all.append(before[c]);
                before[c] = all;
                __threadfence();
            }
        }
        __syncthreads();
        if (is_last && threadIdx.x == 0)
            atomicExch(&memory.group_known[group], 1u);
    }

    __device__ __forceinline__ Acc known_before(size_t g, unsigned c) const
    {
        wait_for(&memory.group_known[number(g - 1)]);
        return current<Acc>(memory.group_before, number(g - 1) * width + c);
    }
};

#endif
