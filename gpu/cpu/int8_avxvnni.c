/*
 * int8_avxvnni.c - int8_impl.h compiled for AVX2 with VNNI: 32 products an instruction.
 * kernels_int.h explains how.
 */
#if defined(__x86_64__)
#define INT8_TABLE int8_avxvnni
#define INT8_NAME "AVX-VNNI"
#include "int8_impl.h"
#else
typedef int int8_avxvnni_is_not_built; /* ISO C requires a declaration */
#endif
