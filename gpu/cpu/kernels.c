/*
 * kernels.c - selects the kernel tables for this processor at run time.
 *
 * Invariant: the choice depends only on the processor and ONEDNN_MAX_CPU_ISA, so every process on a
 * machine makes the same one.
 */
#include <stdlib.h>
#include <strings.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "int8_int.h"
#include "kernels_int.h"

enum { LEVEL_NONE, LEVEL_AVX2, LEVEL_AVX2_VNNI, LEVEL_AVX512, LEVEL_VNNI, LEVEL_BF16 };

/* Returns the highest instruction set that oneDNN's environment variable allows, or the highest of
 * all if the variable is not set. */
static int allowed_level(void) {
    static const struct {
        const char *isa;
        int level;
    } levels[] = {{"AVX512_CORE_BF16", LEVEL_BF16},
                  {"AVX512_CORE_FP16", LEVEL_BF16},
                  {"AVX512_CORE", LEVEL_AVX512},
                  {"AVX512_CORE_VNNI", LEVEL_VNNI},
                  {"AVX2", LEVEL_AVX2},
                  {"AVX2_VNNI", LEVEL_AVX2_VNNI},
                  {"AVX", LEVEL_NONE},
                  {"SSE41", LEVEL_NONE}};
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");
    if (isa == NULL)
        isa = getenv("DNNL_MAX_CPU_ISA");
    for (size_t i = 0; isa != NULL && i < BASE_COUNT(levels); i++)
        if (strcasecmp(isa, levels[i].isa) == 0)
            return levels[i].level;
    return LEVEL_BF16;
}

/* ---- what the processor supports ------------------------------------------------------------- */

#if defined(__x86_64__)
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_vnni(void) {
    return __builtin_cpu_supports("avx512vnni");
}

static bool has_avx_vnni(void) {
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
}

static bool has_bf16(void) {
    return __builtin_cpu_supports("avx512bf16");
}
#endif

int kernels_available(const kernels **out) {
    int n = 0, allowed = allowed_level();
    out[n++] = &kernels_generic;
#if defined(__x86_64__)
    if (allowed >= LEVEL_AVX2 && has_avx2())
        out[n++] = &kernels_avx2;
    if (allowed >= LEVEL_AVX512 && has_avx512()) {
        out[n++] = &kernels_avx512;
        if (allowed >= LEVEL_BF16 && has_vnni() && has_bf16())
            out[n++] = &kernels_avx512bf16;
    }
#endif
    return n;
}

const kernels *kernels_choose(int head_dim, bool narrow) {
    const kernels *tables[KERNELS_TABLES];
    int n = kernels_available(tables);
    while (n > 0 && (head_dim % tables[n - 1]->heads != 0 || (tables[n - 1]->narrow && !narrow)))
        n--;
    return n > 0 ? tables[n - 1] : NULL;
}

int int8_available(const int8_kernels **out) {
    int n = 0;
    (void)out;
#if defined(__x86_64__)
    int allowed = allowed_level();
    if (allowed >= LEVEL_AVX2 && has_avx2())
        out[n++] = &int8_avx2;
    if (allowed >= LEVEL_AVX2_VNNI && has_avx_vnni())
        out[n++] = &int8_avxvnni;
    if (allowed >= LEVEL_VNNI && has_avx512() && has_vnni())
        out[n++] = &int8_vnni;
#endif
    return n;
}

const int8_kernels *int8_choose(void) {
    const int8_kernels *tables[INT8_TABLES];
    int n = int8_available(tables);
    return n > 0 ? tables[n - 1] : NULL;
}
