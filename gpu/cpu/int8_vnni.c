/*
 * int8_vnni.c - int8_impl.h compiled for AVX-512 with VNNI; kernels_int.h explains how. An
 * instruction computes 64 products.
 */
#if defined(__x86_64__)
#define INT8_TABLE int8_vnni
#define INT8_NAME "AVX-512 VNNI"
#include "int8_impl.h"
#else
typedef int int8_vnni_is_not_built; /* ISO C requires a declaration */
#endif
