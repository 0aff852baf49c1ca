/* Whether this thread's floating-point arithmetic is as IEEE 754 says by default, and the
 * processor's own word on whether anything was rounded: a flag that every addition with a rounded
 * result raises, and that stays up until it is lowered.
 *
 *     gr_lower_inexact();
 *     GR_OPAQUE(x);  ... compute y from x ...  GR_OPAQUE(y);
 *     bool rounded = gr_inexact();
 *
 * Compilers do not know that additions raise flags, and move them as they like but for what they
 * are computed from and what is computed from them. So that is what keeps them here: they begin
 * with a number that is opaque after the flag was lowered, and their results go into one that is
 * opaque before it is looked at. What else gets in between can only raise it in vain. */
#ifndef GPUREDUCE_EXACT_ARITHMETIC_H
#define GPUREDUCE_EXACT_ARITHMETIC_H

#include <stdbool.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* That additions round to nearest and keep subnormals; and, on x86-64, that none of it interrupts
 * the program. Other code in the process may have told the processor otherwise (-ffast-math
 * libraries do). */
bool gr_plain_arithmetic(void);

/* For what must not depend on it: between the two, this thread's arithmetic is plain. What is
 * computed there is computed from memory, and goes to memory. */
#ifdef __x86_64__
/* All but the flags: no subnormals taken or made zero, no exception that interrupts. */
enum { GR_MXCSR_SETTINGS = 0xffc0, GR_MXCSR_PLAIN = 0x1f80 };

typedef unsigned gr_arithmetic;

static inline gr_arithmetic gr_begin_plain(void)
{
    gr_arithmetic before = _mm_getcsr();
    if ((before & GR_MXCSR_SETTINGS) != GR_MXCSR_PLAIN)
        _mm_setcsr(GR_MXCSR_PLAIN);
    __asm__ volatile("" : : : "memory");
    return before;
}

static inline void gr_end_plain(gr_arithmetic before)
{
    __asm__ volatile("" : : : "memory");
    if ((before & GR_MXCSR_SETTINGS) != GR_MXCSR_PLAIN)
        _mm_setcsr(before);
}
#else
typedef struct {
    bool was_plain;
    fenv_t before;
} gr_arithmetic;

static inline gr_arithmetic gr_begin_plain(void)
{
    gr_arithmetic found;
    found.was_plain = gr_plain_arithmetic();
    if (!found.was_plain) {
        (void)fegetenv(&found.before);
        (void)fesetenv(FE_DFL_ENV);
    }
    __asm__ volatile("" : : : "memory");
    return found;
}

static inline void gr_end_plain(gr_arithmetic found)
{
    __asm__ volatile("" : : : "memory");
    if (!found.was_plain)
        (void)fesetenv(&found.before);
}
#endif

/* Some programs that impersonate processors have no flags. */
bool gr_flags_work(void);

/* Nobody knows what it makes of the variable. */
#define GR_OPAQUE(variable) __asm__ volatile("" : "+m"(variable) : : "memory")

/* These are quick as long as the flag is found as it was found last time: a processor that has
 * guessed so does some work again if not. */
#if defined(__x86_64__)
/* Not <fenv.h>, which also goes through the old x87 unit. */
enum { GR_MXCSR_INEXACT = 1 << 5 };

static inline bool gr_inexact(void)
{
    return _mm_getcsr() & GR_MXCSR_INEXACT;
}

static inline void gr_lower_inexact(void)
{
    unsigned flags = _mm_getcsr();
    if (flags & GR_MXCSR_INEXACT)
        _mm_setcsr(flags & ~(unsigned)GR_MXCSR_INEXACT);
}

static inline void gr_raise_inexact(void)
{
    _mm_setcsr(_mm_getcsr() | GR_MXCSR_INEXACT);
}
#elif defined(FE_INEXACT)
static inline bool gr_inexact(void)
{
    return fetestexcept(FE_INEXACT) != 0;
}

static inline void gr_lower_inexact(void)
{
    feclearexcept(FE_INEXACT);
}

static inline void gr_raise_inexact(void)
{
    feraiseexcept(FE_INEXACT);
}
#else
/* No flags: as if everything were rounded. */
static inline bool gr_inexact(void)
{
    return true;
}

static inline void gr_lower_inexact(void) {}
static inline void gr_raise_inexact(void) {}
#endif

#ifdef __cplusplus
}
#endif

#endif
