/* The instruction set that CPU sums use. */
#pragma once

/* From the slowest to the one that needs most of the processor. */
typedef enum {
    GR_BASELINE,
    GR_AVX2,
    GR_AVX512,
    /* AVX-512 on processors that execute each instruction as two 256-bit halves: other methods are
     * fastest there. */
    GR_AVX512_HALVES,
    GR_INSTRUCTION_SETS
} gr_instruction_set;

/* Their names, as in the environment variable GPUREDUCE_SIMD. */
extern const char *const gr_instruction_set_names[GR_INSTRUCTION_SETS];

/* Returns the best instruction set for the processor, or the one that GPUREDUCE_SIMD names, if the
 * processor supports it. The variable is read when the library is loaded. */
gr_instruction_set gr_instructions(void);

/* Defines a function that returns the table of functions for the instruction set in use. */
#ifdef __x86_64__
#define GR_CHOOSE_TABLE(function, type, baseline, avx2, avx512, halves)                            \
    const type *function(void)                                                                     \
    {                                                                                              \
        static const type *const tables[] = {&baseline, &avx2, &avx512, &halves};                  \
        return tables[gr_instructions()];                                                          \
    }
#else
#define GR_CHOOSE_TABLE(function, type, baseline, avx2, avx512, halves)                            \
    const type *function(void)                                                                     \
    {                                                                                              \
        return &baseline;                                                                          \
    }
#endif
