/* The floating-point mode of this thread: whether its arithmetic follows the IEEE 754 defaults, and
 * the inexact flag. Every addition with a rounded result raises this flag, and it stays raised
 * until it is lowered.
 *
 *     gr_lower_inexact();
 *     GR_OPAQUE(x);  ... compute y from x ...  GR_OPAQUE(y);
 *     bool rounded = gr_inexact();
 *
 * Compilers do not know that additions raise flags. They move additions freely, limited only by
 * data dependences. So data dependences keep the additions between the two calls: their inputs
 * depend on a variable that is made opaque after the flag was lowered, and their results go into a
 * variable that is made opaque before the flag is read. Other code that is moved in between can
 * only raise the flag needlessly. */
#pragma once

#include "shared/c_linkage.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <stdint.h>
#else
#include <fenv.h>
#endif

GR_C_BEGIN

/* Whether additions round to nearest and keep subnormals, and, on x86-64 and AArch64, raise no
 * trap. Other code in the process may have changed the mode (-ffast-math libraries do). */
bool gr_plain_arithmetic(void);

/* Between gr_begin_plain and gr_end_plain, this thread's arithmetic is plain. Code between them
 * must read its inputs from memory and write its results to memory. */
#if defined(__x86_64__)
/* MXCSR without its flags: subnormals are neither read nor written as zero, and no exception traps.
 */
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
#elif defined(__aarch64__)
/* FPCR without DN, which chooses among NaNs: no flushing to zero, rounding to nearest, no trap. */
#define GR_FPCR_SETTINGS (~((uint64_t)1 << 25))

typedef uint64_t gr_arithmetic;

static inline uint64_t gr_fpcr(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static inline void gr_set_fpcr(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}

static inline gr_arithmetic gr_begin_plain(void)
{
    gr_arithmetic before = gr_fpcr();
    if (before & GR_FPCR_SETTINGS)
        gr_set_fpcr(0);
    __asm__ volatile("" : : : "memory");
    return before;
}

static inline void gr_end_plain(gr_arithmetic before)
{
    __asm__ volatile("" : : : "memory");
    if (before & GR_FPCR_SETTINGS)
        gr_set_fpcr(before);
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

/* Whether the inexact flag works. Some emulators of processors have no flags. */
bool gr_flags_work(void);

/* Makes the variable opaque: the compiler must assume that this reads and changes it. */
#define GR_OPAQUE(variable) __asm__ volatile("" : "+m"(variable) : : "memory")

/* These functions are fast if the flag has the same state as last time: if not, the processor has
 * mispredicted it and repeats some work. */
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
#elif defined(__aarch64__)
enum { GR_FPSR_INEXACT = 1 << 4 };

static inline uint64_t gr_fpsr(void)
{
    uint64_t flags;
    __asm__ volatile("mrs %0, fpsr" : "=r"(flags));
    return flags;
}

static inline void gr_set_fpsr(uint64_t flags)
{
    __asm__ volatile("msr fpsr, %0" : : "r"(flags));
}

static inline bool gr_inexact(void)
{
    return gr_fpsr() & GR_FPSR_INEXACT;
}

static inline void gr_lower_inexact(void)
{
    uint64_t flags = gr_fpsr();
    if (flags & GR_FPSR_INEXACT)
        gr_set_fpsr(flags & ~(uint64_t)GR_FPSR_INEXACT);
}

static inline void gr_raise_inexact(void)
{
    gr_set_fpsr(gr_fpsr() | GR_FPSR_INEXACT);
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
/* No flags: reports everything as rounded. */
static inline bool gr_inexact(void)
{
    return true;
}

static inline void gr_lower_inexact(void) {}
static inline void gr_raise_inexact(void) {}
#endif

GR_C_END
