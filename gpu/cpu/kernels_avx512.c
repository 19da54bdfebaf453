/* kernels_avx512.c - the kernel table for AVX-512; the
 * source is kernels_impl.h, the flags are CMake's. */
#if defined(__x86_64__)
#define KERNELS_TABLE kernels_avx512
#define KERNELS_NAME "AVX-512"
#include "kernels_impl.h"
#else
typedef int kernels_avx512_is_not_built; /* ISO C wants a declaration */
#endif
