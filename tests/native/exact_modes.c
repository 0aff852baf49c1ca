/* Sums in programs that have told the processor to add otherwise, and what becomes of their flag.
 *
 *     exact_modes
 *
 * Fails with a line that says what, or prints how many sums were right. */
#include "exact/exact.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

enum { MOST = 200000, LENGTHS = 5 };

static const size_t lengths[LENGTHS] = {20, 900, 1024, 5000, MOST};
static float singles[MOST];
static double doubles[MOST];
static gr_exact wanted[LENGTHS][2];
static int right;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void sum(int i, int wide, gr_exact *out)
{
    gr_exact_sum_array(wide ? (void *)doubles : (void *)singles, lengths[i],
                       wide ? GR_LOAD_f64 : GR_LOAD_f32, 1, 0, out);
}

static void same_sums(const char *mode)
{
    gr_exact got;
    for (int i = 0; i < LENGTHS; i++)
        for (int wide = 0; wide < 2; wide++) {
            sum(i, wide, &got);
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
            sum(i, wide, &got);
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

int main(void)
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
            sum(i, wide, &wanted[i][wide]);
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
    return 0;
}
