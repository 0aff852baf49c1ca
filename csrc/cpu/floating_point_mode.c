#include "cpu/floating_point_mode.h"

#include <float.h>
#include <stdatomic.h>

static bool flags_tell(void)
{
    bool before = gr_inexact();
    gr_lower_inexact();
    volatile double one = 1, small = 0x1p-60, sum = one + one;
    bool early = gr_inexact();
    sum = one + small;
    (void)sum;
    bool told = gr_inexact();
    if (!before)
        gr_lower_inexact();
    return told && !early;
}

/* The answer is cached: the test is slow, and its result is the same for all threads. */
bool gr_flags_work(void)
{
    enum { UNKNOWN, YES, NO };
    static atomic_int known;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        answer = flags_tell() ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}

#if defined(__x86_64__) || defined(__aarch64__)
bool gr_plain_arithmetic(void)
{
    return (gr_get_mode() & GR_MODE_SETTINGS) == GR_MODE_PLAIN;
}
#else
bool gr_plain_arithmetic(void)
{
    if (FLT_EVAL_METHOD == 2 || FLT_EVAL_METHOD < 0) /* x87: wider than float64 */
        return false;
    volatile double least = 0x1p-1074, one = 1, small = 0x1p-60, normal = DBL_MIN;
    if (least + least == 0 || normal - normal / 4 == 0)
        return false;
    return one + small == 1 && -one - small == -1 && one - small == 1 && small - one == -1;
}
#endif
