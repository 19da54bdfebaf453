/* kernels_avx512bf16.c - the kernel table for AVX-512 BF16;
 * the source is kernels_impl.h, the flags are CMake's. */
#if defined(__x86_64__)
#define KERNELS_TABLE kernels_avx512bf16
#define KERNELS_NAME "AVX-512 BF16"
#include "kernels_impl.h"
#else
typedef int kernels_avx512bf16_is_not_built; /* ISO C wants a declaration */
#endif
