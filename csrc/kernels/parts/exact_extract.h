/* float64: three bins in registers; the rests that do not fit go to integers in shared memory.
 *
 * A bin starts at 1.5 2^k. While it stays in [2^k, 2^(k+1)] its last place is worth u = 2^(k-52),
 * so next = bin + x;  x -= next - bin;  bin = next; adds to it the multiple of u nearest to x and
 * leaves the rest of x, at most u/2, to the next bin. exact/extract.h has the proof: all is exact
 * as long as |x| < 2^p with p + r + 1 <= k and the bin takes at most 2^r numbers. Here r = 10, and
 * the next bin's k is 42 less: together they hold any x < 2^(k-11) that is a multiple of 2^(k-136).
 *
 * Each warp has its own k. It rises when a larger element comes: the bins are emptied and restart
 * with the larger k. Emptied bins are kept as digits, one in each of the warp's lanes. The rest of
 * an element after the last bin goes to the words at once, if rests are rare. Otherwise it is
 * deposited as integers: the digits of thread t are in column t of shared memory. So are flights
 * with elements too large for any k. If most elements would leave a rest, a warp deposits integers
 * for a while without trying the bins. */
#pragma once

#include "exact_deposits.h"

/* Digits of one thread. A deposit adds less than 2^53 to a digit, so carries are propagated after
 * 2^9 deposits. There are 66 digits: the highest digit of any element carries into one more. */
struct Column {
    static constexpr unsigned digits = GR_EXACT_COLUMN, most = 1 << 9;
    static constexpr unsigned unused = ~0u, clear = unused - 1; /* not written; all zero */
    long long *digit;
    unsigned row;           /* bytes between neighbouring digits */
    unsigned held = unused; /* deposits since the last carry, or one of these */

    __device__ __forceinline__ Column()
    {
        digit = deposit_memory<long long>() + threadIdx.x;
        row = blockDim.x * (unsigned)sizeof *digit;
    }

    __device__ __forceinline__ bool is_used() const
    {
        return held < clear;
    }

    DEVICE_FUNCTION void write_zeros(long long *digit)
    {
        for (unsigned k = 0; k < digits; k++)
            digit[k * blockDim.x] = 0;
    }

    DEVICE_FUNCTION void carry(long long *digit)
    {
        long long over = 0;
        for (unsigned k = 0; k < digits; k++) {
            long long sum = digit[k * blockDim.x] + over;
            over = sum >> 32;
            digit[k * blockDim.x] = k < digits - 1 ? sum & 0xffffffff : sum;
        }
    }

    /* Writes zeros to an unused column, before it is added to or read. */
    __device__ __forceinline__ void prepare()
    {
        if (held != unused)
            return;
        write_zeros(digit);
        held = clear;
    }

    __device__ __forceinline__ void make_room(unsigned count)
    {
        if (held > most - count) {
            if (is_used())
                carry(digit);
            else
                prepare();
            held = 0;
        }
        held += count;
    }

    /* Adds a finite x, after make_room(). Takes most of the time if bits are random, so it masks no
     * bits: a funnel shift uses the last five of `position`, the offset of x's last bit in its
     * digit. Both digits are read before either is written, which halves the waiting. */
    __device__ __forceinline__ void add(double x)
    {
        unsigned upper = (unsigned)__double2hiint(x), field = upper >> 20 & 0x7ff;
        unsigned normal = field < 1 ? field : 1, position = field - normal;
        unsigned high = (upper & 0xfffff) + (normal << 20);
        long long size = (long long)((unsigned long long)high << 32 | (unsigned)__double2loint(x));
        long long negative = (int)upper >> 31; /* 0 or -1 */
        size = (size ^ negative) - negative;
        unsigned low = (unsigned)size, middle = (unsigned)(size >> 32);
        unsigned sign = (unsigned)((int)middle >> 31);
        unsigned long long rest = (unsigned long long)__funnelshift_l(middle, sign, position) << 32;
        rest |= __funnelshift_l(low, middle, position);
        char *at = reinterpret_cast<char *>(digit) + position / 32 * row;
        long long *lower = reinterpret_cast<long long *>(at);
        long long *higher = reinterpret_cast<long long *>(at + row);
        long long first = *lower, second = *higher;
        *lower = first + __funnelshift_l(0, low, position);
        *higher = second + (long long)rest;
    }
};

template <> struct Deposit<double> {
    static constexpr unsigned most_threads = GR_EXACT_F64_THREADS, flight = 9, rounds = 0;
    static constexpr unsigned room = (1 << 10) / (2 * flight) * 2 * flight;
    static constexpr unsigned least_backoff = 32, most_backoff = 1 << 9;
    static constexpr unsigned few = 4, many = 8; /* lanes with rare rests; with frequent ones */
    static constexpr unsigned nowhere = Gathering::nowhere;
    static constexpr unsigned reach = 31;    /* digits that are kept; one more takes their carry */
    static constexpr unsigned span = 6;      /* digits that a set of bins spans */
    static constexpr unsigned below_low = 8; /* also kept, for warps with lower bins */
    static constexpr unsigned first_word = 0, words = exact_digits;
    static constexpr int bins = 3, step = 42, headroom = 11;
    static constexpr int raised_by = 8, spare_binades = 4; /* binades: of a step; for later peaks */
    static constexpr unsigned infinity = 0x7ff00000;       /* the upper word of inf; nan: greater */
    Column column;
    double bin[bins];
    long long kept = 0;     /* sums of emptied bins: lane k mod 32 keeps digit k, .. */
    unsigned low = nowhere; /* .. from this digit on, in all warps of a block */
    int top;           /* the first bin's k; like the next three, equal in all lanes of a warp */
    unsigned taken;    /* elements since the bins were empty */
    unsigned wild = 0; /* flights that will skip the bins */
    unsigned backoff = least_backoff;
    unsigned spare = 1 << 16; /* flights whose rests may still go to the words at once */
    unsigned flags = 0;

    __device__ __forceinline__ Deposit()
    {
        start(headroom - 1023); /* the first larger element raises the bins */
    }

    static __device__ __forceinline__ int bin_exponent(int top, int b)
    {
        int k = top - b * step;
        return k < -1022 ? -1022 : k;
    }

    static __device__ __forceinline__ double middle(int k)
    {
        return __hiloint2double((k + 1023) << 20 | 1 << 19, 0);
    }

    __device__ __forceinline__ void start(int k)
    {
        top = k;
        taken = 0;
        for (int b = 0; b < bins; b++)
            bin[b] = middle(bin_exponent(top, b));
    }

    /* Adds up the warp's bins: lane 8 b gets bin b's sum. As bits, the floats of a binade are
     * consecutive integers. Each step adds up half as many numbers in half as many lanes. */
    __device__ __forceinline__ long long units() const
    {
        long long sum[4] = {0, 0, 0, 0};
        for (int b = 0; b < bins; b++)
            sum[b] =
                __double_as_longlong(bin[b]) - __double_as_longlong(middle(bin_exponent(top, b)));
        for (unsigned half = 2; half > 0; half /= 2) {
            bool is_upper = threadIdx.x & 8 * half;
            for (unsigned i = 0; i < half; i++) {
                long long given = is_upper ? sum[i] : sum[half + i];
                sum[i] = (is_upper ? sum[half + i] : sum[i]) +
                         __shfl_xor_sync(0xffffffffu, given, 8 * half);
            }
        }
        for (unsigned offset = 4; offset > 0; offset /= 2)
            sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], offset);
        return threadIdx.x % 8 == 0 ? sum[0] : 0;
    }

    static __device__ __forceinline__ unsigned position(int top, int b)
    {
        return (unsigned)(bin_exponent(top, b) - 52 - GR_EXACT_UNIT);
    }

    /* The first warp to call this decides which digits all warps of the block keep. */
    __device__ __forceinline__ void agree(unsigned lowest)
    {
        if (threadIdx.x % 32 == 0) {
            unsigned mine = lowest < below_low ? 0 : lowest - below_low;
            low = atomicCAS(&gathering()->low, nowhere, mine);
            low = low == nowhere ? mine : low;
        }
        low = __shfl_sync(0xffffffffu, low, 0);
    }

    /* Returns the digit of this lane, in the range that starts at digit `from`. */
    static __device__ __forceinline__ unsigned digit_from(unsigned from)
    {
        return from + (threadIdx.x - from) % 32;
    }

    /* Moves the sums of the bins to the kept digits, or to the words if these are out of range. A
     * digit gets less than 2^34 from three bins. As each call takes at least one flight, a digit
     * has room for 2^29 flights of a warp, which would be 2 TB. */
    __device__ __forceinline__ void keep()
    {
        if (taken == 0)
            return;
        long long sum = units(), digit = 0;
        if (!__any_sync(0xffffffffu, sum != 0))
            return;
        unsigned lowest = position(top, bins - 1) / 32;
        bool is_kept = low != nowhere && lowest - low <= reach - span;
        unsigned k = digit_from(is_kept ? low : lowest);
        for (int b = 0; b < bins; b++)
            digit += digit_of(__shfl_sync(0xffffffffu, sum, 8 * b), position(top, b) % 32,
                              k - position(top, b) / 32);
        if (is_kept)
            kept += digit;
        else
            add_digit(k, digit);
    }

    __device__ __forceinline__ void restart(int next_top)
    {
        keep();
        start(next_top);
    }

    static __device__ __forceinline__ unsigned upper(double x)
    {
        return (unsigned)__double2hiint(x) & 0x7fffffff;
    }

    /* Returns the least upper word of elements that are too large for the bins. */
    static __device__ __forceinline__ unsigned limit(int top)
    {
        return (unsigned)(top - headroom + 1023) << 20;
    }

    /* Sets the flag of an inf or nan and returns 0 for it; returns other x unchanged. */
    __device__ __forceinline__ double take_special(double x)
    {
        if (upper(x) < infinity)
            return x;
        flags |= special_flag(x);
        return 0;
    }

    __device__ __forceinline__ double extract(double x)
    {
        for (int b = 0; b < bins; b++) {
            double next = bin[b] + x;
            x -= next - bin[b];
            bin[b] = next;
        }
        return x;
    }

    __device__ __forceinline__ void go_wild()
    {
        wild = backoff;
        backoff = backoff < most_backoff ? 2 * backoff : backoff;
    }

    /* Raises the bins for a flight whose greatest upper word is `peak` in this lane, if this helps.
     * Called by all lanes of the warp. Two elements per lane serve as a sample: the bins are not
     * raised if they could not take most of them. */
    __device__ __forceinline__ void raise(unsigned peak, const double (&x)[2 * flight])
    {
        peak = largest_in_warp(peak);
        /* In steps, so that warps choose equal k; rounded up. */
        int k = (int)(peak >> 20) + headroom + spare_binades + raised_by - 1;
        k = k / raised_by * raised_by - 1022;
        k = k < 1022 ? k : 1022;
        int least = k - (bins - 1) * step + 1023; /* elements of lower fields leave rests */
        unsigned below = (unsigned)(least > 0 ? least : 0) << 20;
        bool is_small = upper(x[0]) - 1 < below || upper(x[1]) - 1 < below; /* and not 0 */
        if ((unsigned)__popc(__ballot_sync(0xffffffffu, is_small)) > many) {
            go_wild();
        } else if (peak >= limit(k)) {
            wild = 1;
        } else {
            restart(k);
            if (low == nowhere && peak > 0) /* zeros would set `low` too low for others */
                agree(position(k, bins - 1) / 32);
        }
    }

    __device__ __forceinline__ void add_integers(const double (&x)[2 * flight])
    {
        column.make_room(2 * flight);
        for (unsigned j = 0; j < 2 * flight; j++)
            column.add(x[j]);
    }

    /* Adds a finite x to the digits of the words, which the block's threads share. */
    static __device__ __forceinline__ void add_number(double x)
    {
        unsigned field = upper(x) >> 20;
        long long fraction = __double_as_longlong(x) & 0xfffffffffffff;
        long long size = fraction | (long long)(field ? 1 : 0) << 52;
        add_integer(x < 0 ? -size : size, field ? field - 1 : 0);
    }

    /* Adds rare rests to the words. They go through the column's memory, as registers cannot be
     * indexed, and an unrolled loop would make the code long. */
    __device__ __forceinline__ void add_rare(const double (&x)[2 * flight])
    {
        unsigned which = 0;
        spare--;
        for (unsigned j = 0; j < 2 * flight; j++) {
            if (x[j] != 0)
                which |= 1u << j;
            column.digit[j * blockDim.x] = __double_as_longlong(x[j]);
        }
        MOSTLY_ONCE
        for (; which; which &= which - 1) {
            unsigned j = (unsigned)__ffs((int)which) - 1;
            add_number(__longlong_as_double(column.digit[j * blockDim.x]));
        }
        column.held = Column::unused;
    }

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned)
    {
        double x[2 * flight];
        unsigned peak = 0, left = 0;
        memcpy(x, pack, sizeof x);
        for (unsigned j = 0; j < 2 * flight; j++)
            peak = peak > upper(x[j]) ? peak : upper(x[j]);
        if (wild == 0 && __any_sync(0xffffffffu, peak >= limit(top)))
            raise(peak, x);
        if (wild > 0) {
            wild--;
            if (peak >= infinity)
                for (unsigned j = 0; j < 2 * flight; j++)
                    x[j] = take_special(x[j]);
            add_integers(x);
            return;
        }
        for (unsigned j = 0; j < 2 * flight; j++) {
            x[j] = extract(x[j]);
            left |= upper(x[j]) | (unsigned)__double2loint(x[j]);
        }
        unsigned lanes = (unsigned)__popc(__ballot_sync(0xffffffffu, left != 0));
        if (left) {
            if (lanes <= few && spare > 0 && !column.is_used())
                add_rare(x);
            else
                add_integers(x);
        }
        taken += 2 * flight;
        if (lanes > many)
            go_wild();
        else
            backoff = least_backoff;
        if (lanes > many || taken == room)
            restart(lanes > many ? headroom - 1023 : top);
    }

    /* Adds one of the elements that an array may have outside the 16-byte boundaries. */
    __device__ __forceinline__ void add_loose(double x)
    {
        add_number(take_special(x));
    }

    __device__ __forceinline__ void leave()
    {
        keep();
        gathering()->value[threadIdx.x] = kept;
        add_flags(flags);
        if (__syncthreads_or(column.is_used()))
            gather_columns();
    }

    /* Most arrays do not need the columns. But clearing them takes as long as a flight, and costs
     * no time while the earlier kernel is running. */
    __device__ __forceinline__ void prepare()
    {
        column.prepare();
    }

    /* Not needed: each warp restarts its own bins. */
    __device__ __forceinline__ void clear() {}

    /* Each lane holds the same digit in all warps. No warp keeps the last digit of the range. */
    static __device__ __forceinline__ long long merge(unsigned &k)
    {
        const Gathering *all = gathering();
        unsigned lane = threadIdx.x;
        long long sum = 0;
        for (unsigned warp = 0; warp < most_threads / 32; warp++)
            if (warp < blockDim.x / 32)
                sum += all->value[32 * warp + lane];
        long long over = __shfl_sync(0xffffffffu, sum >> 32, (int)(lane + 31) % 32);
        k = digit_from(all->low);
        return (sum & 0xffffffff) + over;
    }

    /* Adds up the columns of all threads, with separate sums of the low and high halves of the
     * digits. Lane l adds digits l and l + 32 of its warp's columns, in an order that keeps the
     * lanes in different banks. The few digits above are added by shuffles, as most lanes would be
     * idle. Then each word belongs to one thread, which adds the carry from the digit below. */
    __device__ __forceinline__ void gather_columns()
    {
        constexpr unsigned rows = Column::digits / 32, parts = rows + 1;
        long long *all = deposit_memory<long long>(), low[parts], high[parts];
        unsigned lane = threadIdx.x % 32;
        column.prepare();
        __syncwarp();
        for (unsigned p = 0; p < rows; p++) {
            low[p] = high[p] = 0;
            for (unsigned i = 0; i < 32; i++) {
                long long digit = all[(lane + 32 * p) * blockDim.x + (threadIdx.x ^ i)];
                low[p] += digit & 0xffffffff;
                high[p] += digit >> 32;
            }
        }
        low[rows] = high[rows] = 0;
        for (unsigned k = 32 * rows; k < Column::digits; k++) {
            long long digit = all[k * blockDim.x + threadIdx.x];
            long long sum = warp_total(digit & 0xffffffff), over = warp_total(digit >> 32);
            low[rows] = lane == k % 32 ? sum : low[rows];
            high[rows] = lane == k % 32 ? over : high[rows];
        }
        __syncwarp();
        for (unsigned p = 0; p < parts; p++) {
            all[2 * p * blockDim.x + threadIdx.x] = low[p];
            all[(2 * p + 1) * blockDim.x + threadIdx.x] = high[p];
        }
        __syncthreads();
        /* The only condition in the inner loop is the warp's, so that no load waits for another. */
        for (unsigned k = threadIdx.x; k <= Column::digits; k += blockDim.x) {
            unsigned below = k > 0 ? k - 1 : 0;
            const long long *here = all + k / 32 * 2 * blockDim.x + k % 32;
            const long long *there = all + (below / 32 * 2 + 1) * blockDim.x + below % 32;
            long long sum = 0, over = 0;
            for (unsigned warp = 0; warp < most_threads / 32; warp++)
                if (warp < blockDim.x / 32) {
                    sum += here[32 * warp];
                    over += there[32 * warp];
                }
            gathering()->word[k] += (unsigned long long)(sum + (k > 0 ? over : 0));
        }
        if (threadIdx.x == 0)
            gathering()->is_used = 1;
    }
};
