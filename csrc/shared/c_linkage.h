/* Between these, functions have the linkage of C: files in C++ call them, too. */
#ifndef GPUREDUCE_C_LINKAGE_H
#define GPUREDUCE_C_LINKAGE_H

#ifdef __cplusplus
#define GR_C_BEGIN extern "C" {
#define GR_C_END }
#else
#define GR_C_BEGIN
#define GR_C_END
#endif

#endif
