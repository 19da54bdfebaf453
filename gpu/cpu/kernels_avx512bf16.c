/* kernels_avx512bf16.c - kernels_impl.h compiled for AVX-512 BF16; kernels_int.h explains how. */
#if defined(__x86_64__)
#define KERNELS_TABLE kernels_avx512bf16
#define KERNELS_NAME "AVX-512 BF16"
#include "kernels_impl.h"
#else
typedef int kernels_avx512bf16_is_not_built; /* ISO C requires a declaration */
#endif
