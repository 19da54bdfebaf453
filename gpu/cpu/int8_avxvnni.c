/*
 * int8_avxvnni.c - int8_impl.h compiled for AVX2 with VNNI; kernels_int.h explains how. An
 * instruction computes 32 products.
 */
#if defined(__x86_64__)
#define INT8_TABLE int8_avxvnni
#define INT8_NAME "AVX-VNNI"
#include "int8_impl.h"
#else
typedef int int8_avxvnni_is_not_built; /* ISO C requires a declaration */
#endif
