/* The C types of the tags of dtypes.h, as CUDA's functions take them. */
#ifndef GR_TYPES_H
#define GR_TYPES_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

typedef int8_t type_i8;
typedef uint8_t type_u8;
typedef int16_t type_i16;
typedef uint16_t type_u16;
typedef int32_t type_i32;
typedef uint32_t type_u32;
typedef unsigned long long type_u64;
typedef __half type_f16;
typedef __nv_bfloat16 type_bf16;
typedef float type_f32;
typedef double type_f64;

#endif
