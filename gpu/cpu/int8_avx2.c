/*
 * int8_avx2.c - int8_impl.h compiled for AVX2; kernels_int.h explains how. Products of pairs are
 * added in 16 bits, so a group of weights has at most 31 steps.
 */
#if defined(__x86_64__)
#define INT8_TABLE int8_avx2
#define INT8_NAME "AVX2"
#include "int8_impl.h"
#else
typedef int int8_avx2_is_not_built; /* ISO C requires a declaration */
#endif
