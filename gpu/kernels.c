/*
 * kernels.c - choosing a kernel table at start.
 *
 * Invariant: the choice depends on the machine and ONEDNN_MAX_CPU_ISA alone, so that a process and
 * its next run agree.
 */
#include <stdlib.h>
#include <strings.h>

#include "kernels_int.h"

/* How far oneDNN may go by its own variable: 0 below AVX2, 1 AVX2, 2 AVX-512, 3 with bf16. */
static int allowed_level(void) {
    static const struct {
        const char *isa;
        int level;
    } levels[] = {{"AVX512_CORE", 2}, {"AVX512_CORE_VNNI", 2},
                  {"AVX2", 1},        {"AVX2_VNNI", 1},
                  {"AVX", 0},         {"SSE41", 0}};
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");
    if (isa == NULL) {
        isa = getenv("DNNL_MAX_CPU_ISA");
    }
    for (size_t i = 0; isa != NULL && i < BASE_COUNT(levels); i++) {
        if (strcasecmp(isa, levels[i].isa) == 0) {
            return levels[i].level;
        }
    }
    return 3;
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
            if (level >= 3 && __builtin_cpu_supports("avx512bf16") &&
                __builtin_cpu_supports("avx512vnni")) {
                out[n++] = &kernels_avx512bf16;
            }
        }
    }
#endif
    return n;
}

const kernels *kernels_choose(int head_dim, bool narrow) {
    const kernels *tables[4];
    int n = kernels_available(tables);
    while (n > 0 && (head_dim % tables[n - 1]->width != 0 || (tables[n - 1]->narrow && !narrow))) {
        n--;
    }
    return n > 0 ? tables[n - 1] : NULL;
}
