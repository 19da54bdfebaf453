/*
 * int8_avx2.c - int8_int.h's products for AVX2 alone: pairs of products summed in 16 bits, so groups of weights have 31 steps.
 * The source is int8_impl.h, the flags are CMake's.
 */
#if defined(__x86_64__)
#define INT8_TABLE int8_avx2
#define INT8_NAME "AVX2"
#include "int8_impl.h"
#else
typedef int int8_avx2_is_of_x86; /* a translation unit must declare something */
#endif
