/*
 * int8_vnni.c - int8_int.h's products for AVX-512 with VNNI: 64 products an instruction.
 * The source is int8_impl.h, the flags are CMake's.
 */
#if defined(__x86_64__)
#define INT8_TABLE int8_vnni
#define INT8_NAME "AVX-512 VNNI"
#include "int8_impl.h"
#else
typedef int int8_vnni_is_of_x86; /* a translation unit must declare something */
#endif
