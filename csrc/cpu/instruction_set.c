#include "cpu/instruction_set.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

const char *const gr_instruction_set_names[] = {"baseline", "avx2", "avx512", "avx512_halves"};

#ifdef __x86_64__
static bool have_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool have_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

/* Whether the processor executes 512-bit operations as two 256-bit halves, as Zen 4 does. Only
 * AMD is known to make such processors. */
static bool in_halves(void)
{
    const unsigned leaf = 0x8000001a, fp256 = 1 << 2, fp512 = 1 << 3;
    unsigned a, b, c, d;
    return __builtin_cpu_is("amd") && __get_cpuid(leaf, &a, &b, &c, &d) &&
           (a & (fp256 | fp512)) == fp256;
}

static gr_instruction_set best(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !have_f16c())
        return GR_BASELINE;
    if (!have_avx512())
        return GR_AVX2;
    return in_halves() ? GR_AVX512_HALVES : GR_AVX512;
}
#else
static gr_instruction_set best(void)
{
    return GR_BASELINE;
}
#endif

static gr_instruction_set chosen;

/* Reads the environment when the library is loaded: later, another thread may be changing it. */
__attribute__((constructor)) static void choose(void)
{
    const char *name = getenv("GPUREDUCE_SIMD");
    chosen = best();
    /* A processor with AVX-512 can run the methods for halves, too. */
    gr_instruction_set most = chosen == GR_AVX512 ? GR_AVX512_HALVES : chosen;
    for (int i = 0; name && i < GR_INSTRUCTION_SETS; i++)
        if (!strcmp(name, gr_instruction_set_names[i]))
            chosen = (gr_instruction_set)i < most ? (gr_instruction_set)i : most;
}

gr_instruction_set gr_instructions(void)
{
    return chosen;
}
