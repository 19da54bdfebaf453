/* kernels_amx.c - the kernel table for AMX, with AVX-512 BF16
 * beside it; the source is kernels_impl.h, the flags are CMake's. */
#if defined(__x86_64__)
#define KERNELS_TABLE kernels_amx
#define KERNELS_NAME "AMX"
#define KERNELS_TILES
#include "kernels_impl.h"
#else
typedef int kernels_amx_is_not_built; /* ISO C wants a declaration */
#endif
