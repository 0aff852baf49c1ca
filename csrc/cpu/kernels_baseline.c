#include "cpu/baseline.h"

#define KERNELS gr_cpu_baseline
#include "cpu/kernels_text.h"
