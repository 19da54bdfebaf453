/* kernels_avx2.c - the kernel table for AVX2; the source is kernels_impl.h, the flags are CMake's.
 */
#if defined(__x86_64__)
#define KERNELS_TABLE kernels_avx2
#define KERNELS_NAME "AVX2"
#include "kernels_impl.h"
#else
typedef int kernels_avx2_is_not_built; /* ISO C wants a declaration */
#endif
