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

/* Whether the inexact flag works. Some emulators of processors have no flags. */
bool gr_flags_work(void);

/* Makes the variable opaque: the compiler must assume that this reads and changes it. */
#define GR_OPAQUE(variable) __asm__ volatile("" : "+m"(variable) : : "memory")

#if defined(__x86_64__)
/* Not <fenv.h>, which also goes through the old x87 unit. MXCSR has the mode and the flags. Without
 * the flags: subnormals are neither read nor written as zero, and no exception traps. */
enum { GR_MODE_SETTINGS = 0xffc0, GR_MODE_PLAIN = 0x1f80, GR_FLAG_INEXACT = 1 << 5 };

typedef unsigned gr_arithmetic;

#define gr_get_mode _mm_getcsr
#define gr_set_mode _mm_setcsr
#define gr_get_flags _mm_getcsr
#define gr_set_flags _mm_setcsr
#elif defined(__aarch64__)
/* FPCR without DN, which chooses among NaNs: no flushing to zero, rounding to nearest, no trap. */
#define GR_MODE_SETTINGS (~((uint64_t)1 << 25))
enum { GR_MODE_PLAIN = 0, GR_FLAG_INEXACT = 1 << 4 };

typedef uint64_t gr_arithmetic;

#define GR_REGISTER(get, set, name)                                                                \
    static inline uint64_t get(void)                                                               \
    {                                                                                              \
        uint64_t bits;                                                                             \
        __asm__ volatile("mrs %0, " name : "=r"(bits));                                            \
        return bits;                                                                               \
    }                                                                                              \
    static inline void set(uint64_t bits)                                                          \
    {                                                                                              \
        __asm__ volatile("msr " name ", %0" : : "r"(bits) : "memory");                             \
    }
GR_REGISTER(gr_get_mode, gr_set_mode, "fpcr")
GR_REGISTER(gr_get_flags, gr_set_flags, "fpsr")
#undef GR_REGISTER
#endif

/* Between gr_begin_plain and gr_end_plain, this thread's arithmetic is plain. Code between them
 * must read its inputs from memory and write its results to memory.
 *
 * The functions for the flag are fast if it has the same state as last time: if not, the processor
 * has mispredicted it and repeats some work. */
#if defined(__x86_64__) || defined(__aarch64__)
static inline gr_arithmetic gr_begin_plain(void)
{
    gr_arithmetic before = gr_get_mode();
    if ((before & GR_MODE_SETTINGS) != GR_MODE_PLAIN)
        gr_set_mode(GR_MODE_PLAIN);
    __asm__ volatile("" : : : "memory");
    return before;
}

static inline void gr_end_plain(gr_arithmetic before)
{
    __asm__ volatile("" : : : "memory");
    if ((before & GR_MODE_SETTINGS) != GR_MODE_PLAIN)
        gr_set_mode(before);
}

static inline bool gr_inexact(void)
{
    return gr_get_flags() & GR_FLAG_INEXACT;
}

static inline void gr_lower_inexact(void)
{
    gr_arithmetic flags = gr_get_flags();
    if (flags & GR_FLAG_INEXACT)
        gr_set_flags(flags & ~(gr_arithmetic)GR_FLAG_INEXACT);
}

static inline void gr_raise_inexact(void)
{
    gr_set_flags(gr_get_flags() | GR_FLAG_INEXACT);
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

#ifdef FE_INEXACT
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
#endif

GR_C_END
