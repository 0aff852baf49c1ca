#include "cpu/kernels.h"

#ifdef __x86_64__
#include "cpu/avx2.h"

#define KERNELS gr_cpu_avx2
#include "cpu/kernels_text.h"

#include "cpu/target_end.h"
#endif
