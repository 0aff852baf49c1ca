#include "cpu/baseline.h"

#define KERNELS gr_proven_baseline
#include "exact/proven_text.h"
