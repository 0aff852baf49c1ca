/* float64: three bins in registers, and what does not fit them into integers in shared memory.
 *
 * A bin starts at 1.5 2^k. While it stays in [2^k, 2^(k+1)] its last place is worth u = 2^(k-52),
 * so next = bin + x;  x -= next - bin;  bin = next; adds to it the multiple of u nearest to x and
 * leaves the rest of x, at most u/2, to the next bin. exact/extract.h has the proof: all is exact
 * as long as |x| < 2^p with p + r + 1 <= k and the bin takes at most 2^r numbers. Here r = 10, and
 * the next bin's k is 42 less: together they hold any x < 2^(k-11) that is a multiple of 2^(k-136).
 *
 * k is a warp's own. It rises when a larger element comes: the bins are emptied and start again
 * higher up. What bins held is kept as digits, one in each of the warp's lanes. What the last bin
 * leaves of an element goes to the words at once, if that is rare, and else is deposited as
 * integers: thread t's digits are in column t of shared memory. So are flights with elements too
 * large for any k. Where most elements would leave something, a warp deposits integers for a while
 * without trying the bins. */
#ifndef GPUREDUCE_EXACT_EXTRACT_H
#define GPUREDUCE_EXACT_EXTRACT_H

#include "exact_deposits.h"

/* Digits of one thread. A deposit adds less than 2^53 to a digit, so after 2^9 of them the carries
 * are taken. 66: what the highest digit that an element reaches carries needs one more. */
struct Column {
    static constexpr unsigned digits = GR_EXACT_COLUMN, most = 1 << 9;
    static constexpr unsigned unused = ~0u, clear = unused - 1; /* nothing there; zeros are there */
    long long *digit;
    unsigned row;           /* bytes from a digit to the next */
    unsigned held = unused; /* deposits since the carries were taken, or one of these */

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

    /* To be added to, or to others. */
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

    /* Adds a finite x; there is room. Random bits take as long as this does. So no bits are masked:
     * a funnel shift takes the last five of `position`, which are where its digit has the last bit
     * of x. And both digits are read before either is written, which is half the waiting. */
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
    static constexpr unsigned least_patience = 32, most_patience = 1 << 9;
    static constexpr unsigned few = 4, many = 8; /* lanes */
    static constexpr unsigned nowhere = Gathering::nowhere;
    static constexpr unsigned reach = 31;    /* digits that are kept: the next takes their carry */
    static constexpr unsigned span = 6;      /* digits that a set of bins reaches over */
    static constexpr unsigned below_low = 8; /* kept, too, for warps with lower bins */
    static constexpr unsigned first_word = 0, words = exact_digits;
    static constexpr int bins = 3, step = 42, headroom = 11;
    static constexpr int raised_by = 8, spare_binades = 4; /* at a time; for peaks to come */
    static constexpr unsigned infinity = 0x7ff00000; /* the upper word of inf, and nan's is more */
    Column column;
    double bin[bins];
    long long kept = 0;     /* of what the warp's bins took: lane k mod 32 keeps digit k, .. */
    unsigned low = nowhere; /* .. from this digit on, in all warps of a block */
    int top;           /* the first bin's k; the same in all lanes of a warp, as are these three: */
    unsigned taken;    /* elements since the bins were empty */
    unsigned wild = 0; /* flights for which the bins are not tried */
    unsigned patience = least_patience;
    unsigned spare = 1 << 16; /* flights of which rests may still go to the words at once */
    unsigned flags = 0;

    __device__ __forceinline__ Deposit()
    {
        start(headroom - 1023); /* whatever comes raises them */
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

    /* Takes what the warp's bins hold: bin b's sum is lane 8 b's. As bits, the floats of a binade
     * are consecutive integers. Each step adds up half as many numbers in half as many lanes. */
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

    /* Which digits the block's warps keep is settled by who comes first. */
    __device__ __forceinline__ void agree(unsigned lowest)
    {
        if (threadIdx.x % 32 == 0) {
            unsigned mine = lowest < below_low ? 0 : lowest - below_low;
            low = atomicCAS(&gathering()->low, nowhere, mine);
            low = low == nowhere ? mine : low;
        }
        low = __shfl_sync(0xffffffffu, low, 0);
    }

    /* The digit, from digit `from` on, that is this lane's. */
    static __device__ __forceinline__ unsigned digit_from(unsigned from)
    {
        return from + (threadIdx.x - from) % 32;
    }

    /* Moves what the bins hold to the digits that are kept; or to the words, if it is out of their
     * reach. A digit gets less than 2^34 of three bins. As that takes a flight at least, those of
     * 2^29 flights of a warp fit, which would be 2 TB. */
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

    /* An upper word from which on elements are too large for the bins. */
    static __device__ __forceinline__ unsigned limit(int top)
    {
        return (unsigned)(top - headroom + 1023) << 20;
    }

    /* Takes an inf or nan, and leaves 0 of it. */
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
        wild = patience;
        patience = patience < most_patience ? 2 * patience : patience;
    }

    /* Raises the bins, for a flight whose greatest upper word is `peak` in this lane, if that is
     * any good. All lanes of the warp. Two elements of each lane tell whether the raised bins could
     * take most of them. */
    __device__ __forceinline__ void raise(unsigned peak, const double (&x)[2 * flight])
    {
        for (unsigned offset = 16; offset > 0; offset /= 2) {
            unsigned other = __shfl_xor_sync(0xffffffffu, peak, offset);
            peak = peak > other ? peak : other;
        }
        /* In steps, so that the warps agree; rounded up. */
        int k = (int)(peak >> 20) + headroom + spare_binades + raised_by - 1;
        k = k / raised_by * raised_by - 1022;
        k = k < 1022 ? k : 1022;
        int least = k - (bins - 1) * step + 1023; /* a lower exponent field's last bits are lost */
        unsigned below = (unsigned)(least > 0 ? least : 0) << 20;
        bool is_small = upper(x[0]) - 1 < below || upper(x[1]) - 1 < below; /* and not 0 */
        if ((unsigned)__popc(__ballot_sync(0xffffffffu, is_small)) > many) {
            go_wild();
        } else if (peak >= limit(k)) {
            wild = 1;
        } else {
            restart(k);
            if (low == nowhere && peak > 0) /* zeros would put it out of others' reach */
                agree(position(k, bins - 1) / 32);
        }
    }

    __device__ __forceinline__ void add_integers(const double (&x)[2 * flight])
    {
        column.make_room(2 * flight);
        for (unsigned j = 0; j < 2 * flight; j++)
            column.add(x[j]);
    }

    /* Adds a finite x to digits that others add to, too. */
    static __device__ __forceinline__ void add_number(double x)
    {
        unsigned field = upper(x) >> 20;
        long long fraction = __double_as_longlong(x) & 0xfffffffffffff;
        long long size = fraction | (long long)(field ? 1 : 0) << 52;
        add_integer(x < 0 ? -size : size, field ? field - 1 : 0);
    }

    /* By way of the column's memory, as registers cannot be counted through, and the code written
     * out would be long. */
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
            patience = least_patience;
        if (lanes > many || taken == room)
            restart(lanes > many ? headroom - 1023 : top);
    }

    /* One of the two that an array may have outside the 16-byte boundaries. */
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

    /* Most arrays do not need the columns; but to clear them takes as long as a flight, and beside
     * the kernel ahead it takes nothing. */
    __device__ __forceinline__ void prepare()
    {
        column.prepare();
    }

    /* The warps do that by themselves. */
    __device__ __forceinline__ void clear() {}

    /* The lane has the same digit of all warps. Of the last one no warp keeps any. */
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

    /* Adds up the columns of all threads, low and high halves of the digits apart: lane l those of
     * digits l and l + 32 of its warp, in turns that keep the lanes in different banks. The few
     * digits above, for which most lanes would wait, go from lane to lane. Then a thread has a word
     * for itself, which gets what its digit carries from the one below. */
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
        /* No condition in the inner loop but the warp's, so that no load waits for another. */
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

#endif
