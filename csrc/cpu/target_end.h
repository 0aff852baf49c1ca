/* Ends the part of a file that is compiled for one instruction set. */
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
