/*
 * kernels.c - choosing a kernel table at start.
 *
 * Invariant: the choice depends on the machine and ONEDNN_MAX_CPU_ISA alone, so that a process and
 * its next run agree.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "int8_int.h"
#include "kernels_int.h"

enum { LEVEL_NONE, LEVEL_AVX2, LEVEL_AVX2_VNNI, LEVEL_AVX512, LEVEL_VNNI, LEVEL_BF16, LEVEL_AMX };

/* How far oneDNN may go by its own variable. */
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
    return LEVEL_AMX;
}

/* ---- a check of attention -------------------------------------------------------------------- */

enum { CHECK_QUERIES = 19, CHECK_ROOM = 32, CHECK_DIM = 64 };

/* Queries that see different parts of one block, in fixed pseudo-random numbers. */
static void check_attend(const kernels *k, float *sum, float *out) {
    _Alignas(64) uint16_t kt[CHECK_DIM * LLM_BLOCK_TOKENS], v[CHECK_DIM * LLM_BLOCK_TOKENS];
    float q[CHECK_ROOM * CHECK_DIM] = {0}, top[CHECK_QUERIES];
    uint16_t narrow[CHECK_ROOM * CHECK_DIM];
    int low[CHECK_QUERIES], high[CHECK_QUERIES];
    uint64_t seed = 1;
    for (int i = 0; i < CHECK_DIM * LLM_BLOCK_TOKENS; i++) {
        seed = hash_mix(seed, (uint64_t)i);
        float x[2] = {(float)(seed & 255) / 128 - 1, (float)(seed >> 8 & 255) / 128 - 1};
        k->to_bf16(x, 1, kt + i);
        k->to_bf16(x + 1, 1, v + i);
    }
    for (int i = 0; i < CHECK_QUERIES * CHECK_DIM; i++) {
        seed = hash_mix(seed, (uint64_t)i);
        q[i] = (float)(seed & 255) / 512 - 0.25f;
        out[i] = 0;
    }
    for (int i = 0; i < CHECK_QUERIES; i++) {
        top[i] = -INFINITY;
        sum[i] = 0;
        low[i] = i % 3;
        high[i] = LLM_BLOCK_TOKENS - i;
    }
    k->to_bf16(q, CHECK_ROOM * CHECK_DIM, narrow);
    attend_unit unit = {.q = k->narrow ? (const void *)narrow : q,
                        .nq = CHECK_QUERIES,
                        .d = CHECK_DIM,
                        .kt = kt,
                        .v = v,
                        .low = low,
                        .high = high,
                        .top = top,
                        .sum = sum,
                        .out = out};
    kernels_tiles(k, true);
    k->attend(&unit);
    kernels_tiles(k, false);
}

bool kernels_attend_alike(const kernels *k, const kernels *other) {
    static const float tolerance = 0.02f;
    float sum[2][CHECK_QUERIES], out[2][CHECK_QUERIES * CHECK_DIM];
    check_attend(k, sum[0], out[0]);
    check_attend(other, sum[1], out[1]);
    bool alike = true;
    for (int i = 0; alike && i < CHECK_QUERIES * CHECK_DIM; i++) {
        float a = out[0][i] / sum[0][i / CHECK_DIM], b = out[1][i] / sum[1][i / CHECK_DIM];
        alike = fabsf(a - b) <= tolerance;
    }
    return alike;
}

/* ---- what there is --------------------------------------------------------------------------- */

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

/* AMX's tiles of bf16: the processor's, and the kernel's leave to use them, which it gives to a
 * process that asks (Linux, Documentation/arch/x86/xstate.rst). */
static bool tiles_granted(void) {
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* Asked once: compilers, hypervisors and emulators have got tiles wrong, so they are tried, too. */
static bool has_tiles(void) {
    enum { UNKNOWN, YES, NO };
    static atomic_int known = UNKNOWN;
    if (atomic_load(&known) == UNKNOWN)
        atomic_store(
            &known,
            tiles_granted() && kernels_attend_alike(&kernels_amx, &kernels_avx512bf16) ? YES : NO);
    return atomic_load(&known) == YES;
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
        if (allowed >= LEVEL_BF16 && has_vnni() && has_bf16()) {
            out[n++] = &kernels_avx512bf16;
            if (allowed >= LEVEL_AMX && has_tiles())
                out[n++] = &kernels_amx;
        }
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
