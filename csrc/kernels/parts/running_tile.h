/* Tiles of running sums: their elements and entries, and the sums before them. */
#pragma once

#include "running.h"

/* The least magnitude of a sum that round_far rounds. `rest` and the error bound of such a sum
 * are together at most 2^10 units in the last place of a float64. */
__device__ __forceinline__ double least_far(const gr_proven &of, const gr_sums &sums,
                                            const gr_format &format)
{
    double unknown = gr_magnitude(of.rest) + sums.additions * 0x1p-52 * of.bound;
    double least = unknown * 0x1p43, normal = gr_power_of_two(format.unit + format.fraction);
    return least <= normal ? normal : least; /* or nan */
}

/* Rounds a sum to 24 bits or fewer if it is far from the middle between two such numbers: by more
 * than 2^11 ulps of float64. Then its error cannot change the result. Else returns false. */
__device__ __forceinline__ bool round_far(double sum, double least, const gr_format &format,
                                          double *rounded)
{
    unsigned long long bits = (unsigned long long)__double_as_longlong(sum);
    unsigned long long half = 1ull << (51 - format.fraction), low = bits & (2 * half - 1);
    *rounded = format.fraction == 23 ? sum : rounded_to_odd(sum);
    return gr_magnitude(sum) >= least && low + (1 << 11) - half > 1 << 12;
}

/* Stores an entry. Returns whether its rounding is proven. */
template <typename In, typename Acc>
__device__ __forceinline__ bool put_entry(void *to, const gr_sums &sums, const Acc &sum)
{
    if constexpr (is_proven<Acc>) {
        double rounded;
        if (!finish_proven(sum.of, sums, &rounded))
            return false;
        store_usual<In>(to, sums, rounded);
    } else
        store_usual<In>(to, sums, sum);
    return true;
}

/* One block's tile. Thread `part` of a column has `of.items` of its elements, from `first` on.
 * Elements and entries lie in shared memory, so that neighbouring lanes load and store neighbours.
 */
template <typename In, typename Acc> struct RunningTile {
    using Few = ShortSum<Acc, In>;
    static constexpr unsigned next_place = GR_RUNNING_BLOCK + GR_RUNNING_BLOCK / 32;

    const gr_running_lines &of;
    const gr_running_memory &memory;
    unsigned width, apart, column, part, strip, tile, rows, stride;
    size_t begin, first;
    Line<In> line;

    __device__ __forceinline__ RunningTile(const gr_running_lines &of,
                                           const gr_running_memory &memory, void *entries,
                                           unsigned number)
        : of(of), memory(memory), width(of.width), apart(GR_RUNNING_BLOCK >> of.log_width),
          column(threadIdx.x & (width - 1)), part(threadIdx.x >> of.log_width),
          strip(of.strips == 1 ? 0 : number % unsigned(of.strips)),
          tile(of.strips == 1 ? number : number / unsigned(of.strips)),
          rows(of.in_tile >> of.log_width), stride(width > 32 ? next_place : width),
          begin(size_t(tile) * rows), first(begin + part * of.items),
          line(of, entries, strip, column)
    {
    }

    /* The place of the tile's element or entry k in shared memory. Gaps avoid bank conflicts. */
    __device__ __forceinline__ unsigned place(unsigned k) const
    {
        unsigned gap = of.log_width < 2 ? of.log_width : 2;
        return k + (k >> (5 + gap) << gap);
    }

    /* The number of rows whose elements a thread loads and whose entries it stores: row `part`, and
     * each apart-th row after it. Their places in shared memory are next_place apart. */
    __device__ __forceinline__ unsigned count() const
    {
        size_t i = begin + part, left = i < line.length ? line.length - i : 0;
        return ((left < rows ? unsigned(left) : rows) * width + GR_RUNNING_BLOCK - 1) /
               GR_RUNNING_BLOCK;
    }

    /* Calls use(is_there, turns) for each of these rows. `is_there`: the row exists. `turns`: the
     * next row belongs to the next of the short lines. */
    template <typename Use> __device__ __forceinline__ void each(Use use) const
    {
        constexpr unsigned at_once = 16;
        unsigned n = count();
        uint64_t turns = of.turns ? beginnings() >> 1 : 0;
        MOSTLY_ONCE
        for (unsigned j = 0; j < of.items; j += at_once, turns >>= at_once)
            if (j + at_once <= n && !of.turns) {
                UNROLLED
                for (unsigned k = 0; k < at_once; k++)
                    use(true, false);
            } else {
                UNROLLED
                for (unsigned k = 0; k < at_once; k++)
                    use(j + k < n, (turns >> k & 1) != 0);
            }
    }

    __device__ __forceinline__ void load(In *staged) const
    {
        const In *from = line.in + int64_t(begin + part) * of.step;
        int64_t step = of.step * apart, turn = of.column_step * width - of.step * of.period;
        In *to = staged + place(threadIdx.x);
        each([&](bool is_there, bool turns) {
            copy_ahead(to, from, is_there);
            from += turns ? step + turn : step;
            to += next_place;
        });
        wait_for_copies();
    }

    template <typename Bits> __device__ __forceinline__ void store(const void *staged) const
    {
        const Bits *from = static_cast<const Bits *>(staged) + place(threadIdx.x);
        char *to = line.to + int64_t(begin + part) * of.to_step;
        int64_t step = of.to_step * apart;
        int64_t turn = of.to_column_step * width - of.to_step * of.period;
        each([&](bool is_there, bool turns) {
            if (is_there)
                *reinterpret_cast<Bits *>(to) = *from;
            from += next_place;
            to += turns ? step + turn : step;
        });
    }

    /* Stores entries. Adds `before` to the entries up to the element where sums begin anew. */
    __device__ __forceinline__ void store_after(const In *staged, const Acc &before) const
    {
        size_t next = next_beginning(of, begin), row = begin + part;
        const In *from = staged + place(threadIdx.x);
        char *to = line.to + int64_t(begin + part) * of.to_step;
        int64_t step = of.to_step * apart;
        each([&](bool is_there, bool) {
            if (is_there)
                *reinterpret_cast<In *>(to) = row < next ? In(before + Acc(*from)) : *from;
            row += apart;
            from += next_place;
            to += step;
        });
    }

    __device__ __forceinline__ void store(const void *staged, unsigned bytes) const
    {
        switch (bytes) {
        case 1: return store<uint8_t>(staged);
        case 2: return store<uint16_t>(staged);
        case 4: return store<unsigned>(staged);
        default: store<unsigned long long>(staged);
        }
    }

    /* Bit j: sums begin anew at element j of this thread. */
    __device__ __forceinline__ uint64_t beginnings() const
    {
        uint64_t found = 0;
        if (!of.offset)
            for (size_t i = next_beginning(of, first); i < first + of.items; i += of.period)
                found |= uint64_t(1) << (i - first);
        else
            for (uint64_t k = offsets_below(of, first); k < of.offsets;) {
                size_t i = size_t(of.offset[k]);
                if (i - first >= of.items)
                    break;
                found |= uint64_t(1) << (i - first);
                k++;
                if (k < of.offsets && size_t(of.offset[k]) == i) /* perhaps many are equal */
                    k = offsets_below(of, i + 1);
            }
        return found;
    }

    static constexpr unsigned at_once = 4; /* elements that have no gaps in between */

    /* Calls use(place, begins) for each at_once of this thread's elements, in their order: with the
     * first element's place, from which the next are `stride` apart, and the bits of `begins`. */
    template <typename Use> __device__ __forceinline__ void each_own(uint64_t begins, Use use) const
    {
        unsigned k = part * of.items * width + column;
        MOSTLY_ONCE
        for (unsigned j = 0; j < of.items; j += at_once, begins >>= at_once) {
            use(place(k), unsigned(begins));
            k += at_once * width;
        }
    }

    /* Adds up this thread's elements from the last one on at which sums begin anew. Returns whether
     * float64 sums of its elements alone are exact. */
    __device__ __forceinline__ bool add_own(const In *staged, uint64_t begins, Acc *sum) const
    {
        if constexpr (is_short<Acc, Few>) {
            Sizes<In> sizes;
            Few few = 0;
            each_own(begins, [&](unsigned to, unsigned begins) {
                UNROLLED
                for (unsigned i = 0; i < at_once; i++) {
                    few = begins >> i & 1 ? 0 : few;
                    add_short<Acc>(few, sizes, staged[to + i * stride]);
                }
            });
            if (sizes.allow(of.items)) {
                add_to(*sum, few);
                return true;
            }
        }
        each_own(begins, [&](unsigned to, unsigned begins) {
            UNROLLED
            for (unsigned i = 0; i < at_once; i++) {
                if (begins >> i & 1)
                    *sum = Acc(0);
                add_to(*sum, staged[to + i * stride]);
            }
        });
        return false;
    }

    /* Makes this thread's entries. `sum` is the sum of all earlier elements. `is_exact`: float64
     * adds this thread's elements exactly, so that round_far() rounds most entries. Returns
     * whether all entries are proven. */
    __device__ __forceinline__ bool put_own(const In *staged, char *entries, const gr_sums &out,
                                            uint64_t begins, bool is_exact, Acc sum) const
    {
        constexpr int type = load_of<In>();
        bool is_done = true, is_usual = out.type == type;
        if constexpr (is_short<Acc, Few>) {
            if (is_exact && is_usual) {
                gr_format format = gr_format_of(gr_load(type));
                double least = least_far(sum.of, out, format), few = 0;
                bool is_zero = sum.of.sum == 0 && sum.of.rest == 0 && sum.of.bound == 0;
                double exact_below =
                    is_zero ? INFINITY : 0; /* smaller entries are the exact `few` itself */
                In *put = reinterpret_cast<In *>(entries);
                each_own(begins, [&](unsigned to, unsigned begins) {
                    if (begins & 1)
                        sum = Acc(0), few = 0, exact_below = INFINITY;
                    bool is_far = begins % (1 << at_once) < 2;
                    double sum_there = few, rounded[at_once];
                    if (is_far) {
                        UNROLLED
                        for (unsigned i = 0; i < at_once; i++) {
                            add_short<Acc>(sum_there, staged[to + i * stride]);
                            is_far &=
                                round_far(sum.of.sum + sum_there, least, format, &rounded[i]) ||
                                gr_magnitude(sum_there) < exact_below;
                        }
                    }
                    if (is_far) {
                        few = sum_there;
                        UNROLLED
                        for (unsigned i = 0; i < at_once; i++)
                            put[to + i * stride] = converted<In>(rounded[i]);
                        return;
                    }
                    MOSTLY_ONCE
                    for (unsigned i = 0; i < at_once; i++, to += stride) {
                        if (i > 0 && (begins >> i & 1))
                            sum = Acc(0), few = 0, exact_below = INFINITY;
                        add_short<Acc>(few, staged[to]);
                        if (round_far(sum.of.sum + few, least, format, rounded) ||
                            gr_magnitude(few) < exact_below) {
                            put[to] = converted<In>(*rounded);
                            continue;
                        }
                        Acc entry = sum;
                        add_to(entry, few);
                        is_done &= put_entry<In>(&put[to], out, entry);
                    }
                });
                return is_done;
            }
        } else if constexpr (!is_proven<Acc>)
            if (is_usual) {
                In *put = reinterpret_cast<In *>(entries);
                each_own(begins, [&](unsigned to, unsigned begins) {
                    In x[at_once];
                    UNROLLED
                    for (unsigned i = 0; i < at_once; i++)
                        x[i] = staged[to + i * stride];
                    UNROLLED
                    for (unsigned i = 0; i < at_once; i++) {
                        sum = begins >> i & 1 ? Acc(0) : sum;
                        add_to(sum, x[i]);
                        put[to + i * stride] = converted<In>(sum);
                    }
                });
                return true;
            }
        each_own(begins, [&](unsigned to, unsigned begins) {
            MOSTLY_ONCE
            for (unsigned i = 0; i < at_once; i++, to += stride, begins >>= 1) {
                if (begins & 1)
                    sum = Acc(0);
                add_to(sum, staged[to]);
                is_done &= put_entry<In>(entries + to * out.bytes, out, sum);
            }
        });
        return is_done;
    }

    /* The sum of the column's threads before this one. In the column's last thread, `total` is the
     * sum of all of its threads. `has_any`: whether any thread of the warp has a sum. */
    __device__ __forceinline__ Run<Acc> scan(Run<Acc> run, bool has_any, Run<Acc> *of_warps,
                                             Run<Acc> *total) const
    {
        if (apart == 1)
            return *total = {Acc(0), false};
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (unsigned lanes = width; has_any && lanes < 32; lanes *= 2) {
            Run<Acc> sum = from_lane_below(run, lanes);
            if (lane >= lanes)
                run = joined(sum, run);
        }
        Run<Acc> own = from_lane_below(run, width < 32 ? width : 0), before = {Acc(0), false};
        if (lane + width >= 32)
            of_warps[warp * width + column] = run;
        __syncthreads();
        MOSTLY_ONCE
        for (unsigned w = 0; w < warp; w++)
            before.append(of_warps[w * width + column]);
        *total = joined(before, run);
        return lane < width ? before : joined(before, own);
    }

    __device__ __forceinline__ Told<Acc> *told(void *sums, size_t t) const
    {
        return static_cast<Told<Acc> *>(sums) + (t * of.strips + strip) * width + column;
    }

    /* The number of tiles of a group, or of a stretch without groups. */
    __device__ __forceinline__ unsigned in_group() const
    {
        return of.groups ? GR_RUNNING_STRETCH / GR_RUNNING_GROUPS : GR_RUNNING_STRETCH;
    }

    /* In a column's last thread: the sum from the beginning of this tile's stretch up to this tile,
     * or, without `with_groups`, from the beginning of its group. The first threads add up the sums
     * of groups, and the other threads those of tiles. */
    __device__ __forceinline__ Run<Acc> sum_of_told(bool with_groups, Run<Acc> *of_warps) const
    {
        constexpr unsigned at_once = sizeof(Acc) > 8 ? 2 : 4;
        unsigned n = in_group(), group = tile / n, sums = of.groups + n;
        unsigned own = sums > apart ? sums / apart : 1, first = part * own;
        bool of_tiles = first >= of.groups;
        unsigned from = of_tiles ? group * n + (first - of.groups)
                                 : tile / GR_RUNNING_STRETCH * of.groups + first;
        unsigned end = of_tiles ? tile : group;
        unsigned there = first < sums && from < end && (of_tiles || with_groups) ? end - from : 0;
        size_t next = of.strips * width, elements = size_t(rows) * (of_tiles ? 1 : n);
        const Told<Acc> *at = told(of_tiles ? memory.sums : memory.group_sums, from);
        Run<Acc> run = {Acc(0), false}, total;
        MOSTLY_ONCE
        for (unsigned j = 0; j < own; j += at_once) {
            Acc sum[at_once];
            bool is_told[at_once];
            UNROLLED
            for (unsigned k = 0; k < at_once; k++)
                if (j + k < own && j + k < there)
                    is_told[k] = at[(j + k) * next].is_told(&sum[k]);
            UNROLLED
            for (unsigned k = 0; k < at_once; k++)
                if (j + k < own && j + k < there) {
                    size_t begin = (from + j + k) * elements;
                    if (!is_told[k])
                        sum[k] = at[(j + k) * next].wait();
                    run.append({sum[k], begins_within(of, begin, begin + elements)});
                }
        }
        scan(run, (threadIdx.x / 32 * 32 >> of.log_width) * own < sums, of_warps, &total);
        return total;
    }

    __device__ __forceinline__ bool is_teller() const
    {
        return part == apart - 1;
    }

    /* Publishes this tile's sum for other blocks. */
    __device__ __forceinline__ void tell(const Run<Acc> &total) const
    {
        if (is_teller())
            told(memory.sums, tile)->tell(total.sum);
    }

    /* Stores the sum before this tile in before[column]. At the end of a group or a stretch, a
     * column's last thread publishes the sum of the group, or up to the end of the stretch. `total`
     * is its sum of the tile. The order of all additions is the same in every run. */
    __device__ __forceinline__ void look_back(const Run<Acc> &total, Run<Acc> *of_warps,
                                              Run<Acc> *before) const
    {
        unsigned n = in_group(), stretch = tile / GR_RUNNING_STRETCH;
        bool is_known = stretch == 0;
        Run<Acc> all = {Acc(0), false};
        if (is_teller() && stretch > 0)
            is_known = told(memory.up_to, stretch - 1)->is_told(&all.sum);
        if (of.groups && tile % n == n - 1) {
            Run<Acc> tiles = sum_of_told(false, of_warps);
            if (is_teller())
                told(memory.group_sums, tile / n)->tell(joined(tiles, total).sum);
            __syncthreads();
        }
        Run<Acc> near = sum_of_told(true, of_warps);
        if (is_teller()) {
            if (!is_known && !near.begins)
                all.sum = told(memory.up_to, stretch - 1)->wait();
            all.append(near);
            if (tile % GR_RUNNING_STRETCH == GR_RUNNING_STRETCH - 1)
                told(memory.up_to, stretch)->tell(joined(all, total).sum);
            before[column] = all;
        }
        __syncthreads();
    }
};
