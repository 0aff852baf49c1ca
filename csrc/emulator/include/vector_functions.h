/* make_float4() and similar functions. */
#pragma once

#include "vector_types.h"

#define GR_MAKE(scalar, name)                                                                      \
    inline name##1 make_##name##1(scalar x)                                                        \
    {                                                                                              \
        return {x};                                                                                \
    }                                                                                              \
    inline name##2 make_##name##2(scalar x, scalar y)                                              \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    inline name##3 make_##name##3(scalar x, scalar y, scalar z)                                    \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w)                          \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }

GR_MAKE(signed char, char)
GR_MAKE(unsigned char, uchar)
GR_MAKE(short, short)
GR_MAKE(unsigned short, ushort)
GR_MAKE(int, int)
GR_MAKE(unsigned int, uint)
GR_MAKE(long, long)
GR_MAKE(unsigned long, ulong)
GR_MAKE(long long, longlong)
GR_MAKE(unsigned long long, ulonglong)
GR_MAKE(float, float)
GR_MAKE(double, double)

#undef GR_MAKE
