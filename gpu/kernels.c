/*
 * kernels.c - choosing a kernel table at start.
 *
 * Invariant: the choice depends on the machine and ONEDNN_MAX_CPU_ISA alone, so that a process and
 * its next run agree.
 */
#include <stdlib.h>
#include <strings.h>

#include "kernels_int.h"

/* How far oneDNN may go by its own variable: 0 below AVX2, 1 AVX2, 2 anything above. */
static int allowed_level(void) {
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");
    if (isa == NULL) {
        isa = getenv("DNNL_MAX_CPU_ISA");
    }
    if (isa == NULL || strcasecmp(isa, "ALL") == 0 || strncasecmp(isa, "AVX512", 6) == 0) {
        return 2;
    }
    return strncasecmp(isa, "AVX2", 4) == 0 ? 1 : 0;
}

int kernels_available(const kernels **out) {
    int n = 0;
    out[n++] = &kernels_generic;
#if defined(__x86_64__)
    int level = allowed_level();
    if (level >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        out[n++] = &kernels_avx2;
        if (level >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
            out[n++] = &kernels_avx512;
        }
    }
#endif
    return n;
}

const kernels *kernels_choose(int head_dim) {
    const kernels *tables[3];
    int n = kernels_available(tables);
    while (n > 0 && head_dim % tables[n - 1]->width != 0) {
        n--;
    }
    return n > 0 ? tables[n - 1] : NULL;
}
