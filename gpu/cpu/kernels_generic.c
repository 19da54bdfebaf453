/* kernels_generic.c - kernels_impl.h compiled for any machine; kernels_int.h explains how. */
#define KERNELS_TABLE kernels_generic
#define KERNELS_NAME "generic"
#include "kernels_impl.h"
