#include "exact/proven_kernels.h"

#ifdef __x86_64__
#include "cpu/avx2.h"

#define KERNELS gr_proven_avx2
#include "exact/proven_text.h"

#include "cpu/target_end.h"
#endif
