/* kernels_generic.c - the kernel table of any machine; the source is kernels_impl.h. */
#define KERNELS_TABLE kernels_generic
#define KERNELS_NAME "generic"
#include "kernels_impl.h"
