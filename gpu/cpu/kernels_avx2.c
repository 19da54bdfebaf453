/* kernels_avx2.c - kernels_impl.h compiled for AVX2; kernels_int.h explains how. */
#if defined(__x86_64__)
#define KERNELS_TABLE kernels_avx2
#define KERNELS_NAME "AVX2"
#include "kernels_impl.h"
#else
typedef int kernels_avx2_is_not_built; /* ISO C requires a declaration */
#endif
