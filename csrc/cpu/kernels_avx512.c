#include "cpu/kernels.h"

#ifdef __x86_64__
#include "cpu/avx512.h"

#define KERNELS gr_cpu_avx512
#include "cpu/kernels_text.h"

#include "cpu/target_end.h"
#endif
