#include "exact/extract.h"

#include "cpu/instruction_set.h"

const gr_extract_kernels *gr_extract_best(void)
{
    static const gr_extract_kernels *const tables[GR_INSTRUCTION_SETS] = {
        [GR_BASELINE] = &gr_extract_baseline,
#ifdef __x86_64__
        [GR_AVX2] = &gr_extract_avx2,
        [GR_AVX512] = &gr_extract_avx512,
        [GR_AVX512_HALVES] = &gr_extract_avx512_halves,
#endif
    };
    return tables[gr_instructions()];
}
