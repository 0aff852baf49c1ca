/* A C program that uses csrc/exact without Python: what its header promises to C programmers.
 *
 *     cc -Icsrc exact_core.c csrc/exact/?*.c csrc/cpu/?*.c csrc/threads/?*.c -pthread -lm
 *
 * exact_core arrays FILE    sums the arrays of the file: uint64 load, components and n before each
 * exact_core fills          accumulators to which as much was added as they take without a carry
 * exact_core tables         scatter tables to which as much was added as they take
 * exact_core instructions   which are in use
 * exact_core modes          how many sums were right beside other roundings, traps and flags
 *
 * Prints that, or a line per accumulator: its value as an integer in units of 2^-1074 and in base
 * 2^32, least digit first, and the value as the bits of f16, bf16, f32 and f64.
 * tests/native/test_exact_core.py knows what they should be. */
#include "cpu/instruction_set.h"
#include "exact/exact.h"
#include "exact/extract.h"

#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void print(const gr_exact *acc)
{
    const gr_load targets[] = {GR_LOAD_f16, GR_LOAD_bf16, GR_LOAD_f32, GR_LOAD_f64};
    gr_exact normal = *acc;
    if (acc->fill > 1u << 30)
        fail("digits may be larger than exact.c says");
    for (int k = 0; k < GR_EXACT_DIGITS - 1; k++)
        if (imaxabs(acc->digit[k]) > (int64_t)acc->fill << 32)
            fail("a digit is larger than the header says");
    gr_exact_normalize(&normal);
    for (int k = 0; k < GR_EXACT_DIGITS; k++)
        printf("%" PRId64 " ", normal.digit[k]);
    for (int t = 0; t < 4; t++)
        printf("%" PRIu64 " ", gr_exact_round(acc, targets[t]));
    printf("%" PRIu64 "\n", acc->count);
}

/* Whole, in two pieces, and by way of bytes: the same. */
static void sum_array(const unsigned char *data, size_t n, gr_load load, int components)
{
    unsigned char bytes[GR_EXACT_MOST_BYTES], again[GR_EXACT_MOST_BYTES];
    gr_exact sum[2], pieces[2], other[2];
    gr_load found;
    int parts;
    size_t element = gr_load_size(load) * (size_t)components, half = n / 2;

    gr_exact_sum_array(data, n, load, components, 0, sum);
    gr_exact_sum_array(data, half, load, components, 1, pieces);
    gr_exact_sum_array(NULL, 0, load, components, 1, other);
    gr_exact_add_array(other, data + half * element, n - half, load, components, 1);
    for (int c = 0; c < components; c++)
        gr_exact_merge(&pieces[c], &other[c]);
    size_t size = gr_exact_to_bytes(sum, components, load, bytes);
    if (!size || gr_exact_to_bytes(pieces, components, load, again) != size ||
        memcmp(bytes, again, size) != 0)
        fail("the same elements have given other bytes");
    if (gr_exact_from_bytes(bytes, size, other, &parts, &found) != GR_EXACT_OK ||
        parts != components || found != load)
        fail("the bytes cannot be read back");
    if (gr_exact_to_bytes(other, components, load, again) != size ||
        memcmp(bytes, again, size) != 0)
        fail("the bytes have another value");
    for (int c = 0; c < components; c++)
        print(&sum[c]);
}

static void sum_arrays(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint64_t head[3];
    if (!file)
        fail("no such file");
    while (fread(head, sizeof head, 1, file) == 1) {
        size_t size = gr_load_size((gr_load)head[0]) * head[1] * head[2];
        unsigned char *data = malloc(size ? size : 1);
        if (!data || fread(data, 1, size, file) != size)
            fail("the file is too short");
        sum_array(data, head[2], (gr_load)head[0], (int)head[1]);
        free(data);
    }
    fclose(file);
}

/* `times` deposits of the same number, by doubling. */
static gr_exact deposits(uint32_t times, int64_t mantissa, int exponent)
{
    gr_exact power, sum;
    gr_exact_init(&power);
    gr_exact_init(&sum);
    gr_exact_add_scaled(&power, mantissa, exponent);
    for (; times; times >>= 1) {
        gr_exact copy = power;
        if (times & 1)
            gr_exact_merge(&sum, &power);
        gr_exact_merge(&power, &copy);
    }
    return sum;
}

static void fill_accumulators(void)
{
    const int64_t numbers[] = {INT64_MAX, -INT64_MAX, INT64_MIN, 1, 0xffffffff};
    const int exponents[] = {GR_EXACT_UNIT, GR_EXACT_UNIT + 31, -5, 1037};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 4; j++)
            for (int log = 30; log <= 31; log++)
                for (uint32_t more = 0; more < 5; more++) {
                    uint32_t times = (1u << log) - 2;
                    gr_exact sum = deposits(times, numbers[i], exponents[j]);
                    for (uint32_t k = 0; k < more; k++)
                        gr_exact_add_scaled(&sum, numbers[i], exponents[j]);
                    sum.count = times + more;
                    printf("%" PRId64 " %d ", numbers[i], exponents[j]);
                    print(&sum);
                }
}

/* As if every table of float64 had taken all elements but `missing`; then `more` are added. */
static void fill_tables(double x, size_t missing, size_t more)
{
    const double limit[2] = {0x1p-18, 0x1p17}, unit[2] = {0x1p-51, 0x1p-17};
    static gr_scatter scatter;
    gr_pairs one[GR_PAIR_TABLES];
    gr_exact sum;
    gr_exact *const sums[2] = {&sum, &sum}; /* so that all tables are added up */
    double data[3 * GR_PAIR_TABLES];

    gr_exact_init(&sum);
    memset(one, 0, sizeof one);
    for (size_t i = 0; i < 3 * GR_PAIR_TABLES; i++)
        data[i] = x;
    gr_extract_baseline.scatter(data, GR_PAIR_TABLES, one);
    scatter.used = true;
    scatter.added = GR_PAIR_MOST - missing;
    for (int t = 0; t < GR_PAIR_TABLES; t++)
        for (int w = 0; w < GR_PAIRS; w++)
            for (int i = 0; i < 2; i++) {
                double units = one[t][w][i] / unit[i];
                if (!(fabs(one[t][w][i]) <= limit[i]) || units != trunc(units))
                    fail("an element adds something else than scatter.h says");
                scatter.table[t][w][i] = (double)scatter.added * one[t][w][i];
            }
    gr_scatter_add(&scatter, data, more, gr_extract_baseline.scatter, sums);
    gr_scatter_empty(&scatter, sums);
    sum.count = (GR_PAIR_MOST - missing) * GR_PAIR_TABLES + more;
    printf("%a 0 ", x);
    print(&sum);
}

static void tell_instructions(void)
{
    printf("%s\n", gr_instruction_set_names[gr_instructions()]);
}

enum { MOST = 200000, LENGTHS = 5 };

static const size_t lengths[LENGTHS] = {20, 900, 1024, 5000, MOST};
static float singles[MOST];
static double doubles[MOST];
static gr_exact wanted[LENGTHS][2];
static int right;

static void sum_some(int i, int wide, gr_exact *out)
{
    gr_exact_sum_array(wide ? (void *)doubles : (void *)singles, lengths[i],
                       wide ? GR_LOAD_f64 : GR_LOAD_f32, 1, 0, out);
}

static void same_sums(const char *mode)
{
    gr_exact got;
    for (int i = 0; i < LENGTHS; i++)
        for (int wide = 0; wide < 2; wide++) {
            sum_some(i, wide, &got);
            gr_exact_negate(&got);
            gr_exact_merge(&got, &wanted[i][wide]);
            if (!gr_exact_is_zero(&got))
                fail(mode);
            right++;
        }
}

static void raise_inexact(void)
{
    volatile double one = 1, small = 0x1p-60, rounded = one + small;
    (void)rounded;
}

/* Up, it stays up. */
static void flags(void)
{
    gr_exact got;
    for (int i = 0; i < LENGTHS; i++)
        for (int wide = 0; wide < 2; wide++) {
            feclearexcept(FE_ALL_EXCEPT);
            raise_inexact();
            sum_some(i, wide, &got);
            if (!fetestexcept(FE_INEXACT))
                fail("the program's flag was lowered");
            right++;
        }
}

static void other_roundings(void)
{
    const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int m = 0; m < 3; m++) {
        fesetround(modes[m]);
        same_sums("rounding otherwise");
    }
    fesetround(FE_TONEAREST);
}

/* Sums where the processor was told to add otherwise, and what becomes of the program's flag. */
static void other_modes(void)
{
    fenv_t usual;
    unsigned state = 1;
    for (int i = 0; i < MOST; i++) {
        state = state * 1664525 + 1013904223;
        /* Subnormals, and some so large that they do not fit the same bins. */
        uint32_t bits = state >> 9 | (i % 700 == 699 ? 0x3f800000 : 0) | (state & 0x80000000);
        memcpy(&singles[i], &bits, sizeof bits);
        uint64_t more = (uint64_t)state << 20 | (i % 900 == 899 ? (uint64_t)1 << 62 : 0);
        memcpy(&doubles[i], &more, sizeof more);
    }
    fegetenv(&usual);
    for (int i = 0; i < LENGTHS; i++)
        for (int wide = 0; wide < 2; wide++)
            sum_some(i, wide, &wanted[i][wide]);
    same_sums("as before");
    flags();
    other_roundings();
#ifdef __x86_64__
    _mm_setcsr(_mm_getcsr() | 0x8040); /* subnormals are taken for zero, and become zero */
    same_sums("without subnormals");
    fesetenv(&usual);
#endif
#ifdef __GLIBC__
    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(FE_INEXACT); /* SIGFPE for whoever rounds */
    same_sums("where rounding interrupts");
    fesetenv(&usual);
#endif
    same_sums("as at first");
    printf("%d sums\n", right);
}

int main(int argc, char **argv)
{
    /* The first three have the largest high and low parts, of all bits, and half of high's unit. */
    const double numbers[] = {0x1.ffffffff8p1009,
                              0x1.00001ffffffffp2,
                              0x1.000000004p1009,
                              0x1.fffffffffffffp1023,
                              -0x1.fffffffffffffp-1007,
                              0x1p-1074,
                              1};
    if (argc == 3 && strcmp(argv[1], "arrays") == 0)
        sum_arrays(argv[2]);
    else if (argc == 2 && strcmp(argv[1], "fills") == 0)
        fill_accumulators();
    else if (argc == 2 && strcmp(argv[1], "tables") == 0)
        for (int i = 0; i < 7; i++)
            for (size_t missing = 0; missing < 3; missing++)
                for (size_t more = 1; more <= 3 * GR_PAIR_TABLES; more++)
                    fill_tables(numbers[i], missing, more);
    else if (argc == 2 && strcmp(argv[1], "instructions") == 0)
        tell_instructions();
    else if (argc == 2 && strcmp(argv[1], "modes") == 0)
        other_modes();
    else
        fail("arrays FILE, fills, instructions, modes or tables");
    return 0;
}
