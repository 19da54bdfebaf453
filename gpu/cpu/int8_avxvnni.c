/*
 * int8_avxvnni.c - int8_int.h's products for AVX2 with VNNI: 32 products an instruction.
 * The source is int8_impl.h, the flags are CMake's.
 */
#if defined(__x86_64__)
#define INT8_TABLE int8_avxvnni
#define INT8_NAME "AVX-VNNI"
#include "int8_impl.h"
#else
typedef int int8_avxvnni_is_of_x86; /* a translation unit must declare something */
#endif
