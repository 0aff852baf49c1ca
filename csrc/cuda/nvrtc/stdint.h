/* For NVRTC, which has no headers of the C library. The types are those of libcu++ under NVRTC. */
#ifndef GPUREDUCE_NVRTC_STDINT_H
#define GPUREDUCE_NVRTC_STDINT_H

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef signed short int16_t;
typedef unsigned short uint16_t;
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;

#define INT32_MAX 0x7fffffff
#define UINT32_MAX 0xffffffffu
#define SIZE_MAX (~size_t(0))

#endif
