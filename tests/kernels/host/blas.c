/*
 * blas.c - an emulation of the cuBLASLt functions that gpu/ calls, in plain C, built as a library
 * of the same name beside the tests.
 *
 * It proposes six algorithms; the first two for every height, the others for low products only:
 *
 *   CUTS      splits each sum at a place that depends on the number of rows: must be rejected
 *   SPLITS    reports split K: must be rejected
 *   TALL_CUT  32 rows or more; splits every sum at one place, as no algorithm for fewer rows does
 *   TALLER    32 rows or more; sums in order
 * LOW_ONTO  64 rows or fewer; sums in order from the value it adds to, not from 0: other bits, but
 *             only where a product adds
 *   LOWER     64 rows or fewer; sums in order
 *
 * A product is rejected where the library would reject it or compute something else: shapes, types
 * and operations that do not match; memory that is too short, not on the card or less aligned than
 * the library assumes. Each algorithm overwrites its workspace.
 */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card_int.h"

struct layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};

/* The content of a cublasLtMatmulDesc_t. */
struct description {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t first, second;
};

enum { ALIGNMENT = 256, WORKSPACE = 4096, LOW = 64, LEAST = 32 };
enum { CUTS, SPLITS, TALL_CUT, TALLER, LOW_ONTO, LOWER, ALGORITHMS };

/* True if the algorithm supports this many rows. */
static int takes(const cublasLtMatmulAlgo_t *algo, uint64_t rows) {
    return algo->data[0] <= SPLITS || (algo->data[0] <= TALLER ? rows >= LEAST : rows <= LOW);
}

static struct layout *layout_of(cublasLtMatrixLayout_t l) {
    return (struct layout *)(void *)l;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    *out = calloc(1, 16);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) {
    return 1;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    struct layout *l = malloc(sizeof *l);
    *l = (struct layout){type, rows, cols, ld};
    *out = (cublasLtMatrixLayout_t)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    free((void *)l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    struct description *d = malloc(sizeof *d);
    *d = (struct description){compute, scale, CUBLAS_OP_N, CUBLAS_OP_N};
    *out = (cublasLtMatmulDesc_t)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    free((void *)d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t a, const void *p,
                                              size_t n) {
    struct description *of = (struct description *)(void *)d;
    if (n != sizeof(cublasOperation_t) ||
        (a != CUBLASLT_MATMUL_DESC_TRANSA && a != CUBLASLT_MATMUL_DESC_TRANSB))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(a == CUBLASLT_MATMUL_DESC_TRANSA ? &of->first : &of->second, p, n);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    *out = calloc(1, 256);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    free((void *)p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t a,
                                                    const void *v, size_t n) {
    (void)p;
    (void)v;
    size_t wanted = a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? sizeof(uint64_t)
                    : a == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? sizeof(uint32_t)
                                                                      : 0;
    return n == wanted ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* True for [K, N]ᵀ × [K, rows] = [N, rows] in bf16 with sums in f32, where C has D's shape. */
static int is_product(const struct description *d, const struct layout *a, const struct layout *b,
                      const struct layout *c, const struct layout *out) {
    int described = d->compute == CUBLAS_COMPUTE_32F && d->scale == CUDA_R_32F &&
                    d->first == CUBLAS_OP_T && d->second == CUBLAS_OP_N;
    int typed = a->type == CUDA_R_16BF && b->type == CUDA_R_16BF && c->type == out->type &&
                (out->type == CUDA_R_32F || out->type == CUDA_R_16BF);
    int shaped = a->rows == b->rows && out->rows == a->cols && out->cols == b->cols &&
                 c->rows == out->rows && c->cols == out->cols;
    /* columns are contiguous, and aligned as tensor cores need them */
    int dense = a->ld == (int64_t)a->rows && b->ld == (int64_t)b->rows &&
                out->ld == (int64_t)out->rows && c->ld == out->ld && a->rows % 8 == 0;
    return described && typed && shaped && dense;
}

static size_t bytes_of(const struct layout *l) {
    return (l->type == CUDA_R_32F ? 4 : 2) * (size_t)l->cols * (size_t)l->ld;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *found) {
    (void)h;
    (void)preference;
    *found = 0;
    if (!is_product((struct description *)(void *)d, layout_of(a), layout_of(b), layout_of(c),
                    layout_of(out)))
        return CUBLAS_STATUS_INVALID_VALUE;
    int offered = layout_of(b)->cols > LOW ? TALL_CUT : ALGORITHMS;
    *found = wanted < offered ? wanted : offered;
    for (int i = 0; i < *found; i++) {
        memset(&results[i], 0, sizeof results[i]);
        results[i].algo.data[0] = (uint64_t)i;
        results[i].workspaceSize = WORKSPACE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
    (void)h;
    memset(result, 0, sizeof *result);
    if (!is_product((struct description *)(void *)d, layout_of(a), layout_of(b), layout_of(c),
                    layout_of(out)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!takes(algo, layout_of(b)->cols))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->algo = *algo;
    result->workspaceSize = WORKSPACE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *out, size_t bytes, size_t *written) {
    uint32_t value =
        attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM && algo->data[0] == SPLITS ? 4 : 0;
    memcpy(out, &value, bytes < sizeof value ? bytes : sizeof value);
    *written = sizeof value;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ----------------------------------------------------------------------------- */

struct product {
    const uint16_t *w, *a;
    void *out, *workspace;
    int n, k, rows;
    int out_f32, adds, onto; /* onto: sums start from the value that is added to */
    int cut;                 /* index at which a second partial sum starts; -1: none */
};

static float widen(uint16_t x) {
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint16_t narrow(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* Transposes W first, so that the inner loop runs over contiguous outputs. */
static void product_run(void *ctx) {
    struct product *p = ctx;
    size_t n = (size_t)p->n, k = (size_t)p->k;
    float *columns = malloc(n * k * sizeof *columns), *sums = malloc(2 * n * sizeof *sums);
    memset(p->workspace, 0xff, WORKSPACE);
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < k; i++)
            columns[i * n + j] = widen(p->w[j * k + i]);
    for (int r = 0; r < p->rows; r++) {
        float *sum = sums, *first = sums + n;
        memset(sums, 0, 2 * n * sizeof *sums);
        if (p->onto)
            memcpy(sum, (float *)p->out + (size_t)r * n, n * sizeof *sum);
        for (size_t i = 0; i < k; i++) {
            float x = widen(p->a[(size_t)r * k + i]);
            if ((int)i == p->cut) {
                memcpy(first, sum, n * sizeof *sum);
                memset(sum, 0, n * sizeof *sum);
            }
            for (size_t j = 0; j < n; j++)
                sum[j] += x * columns[i * n + j];
        }
        for (size_t j = 0; j < n; j++) {
            float total = first[j] + sum[j];
            size_t at = (size_t)r * n + j;
            if (p->out_f32) {
                float *out = p->out;
                out[at] = p->adds && !p->onto ? out[at] + total : total;
            } else {
                ((uint16_t *)p->out)[at] = narrow(total);
            }
        }
    }
    free(columns);
    free(sums);
}

static int cut_of(const cublasLtMatmulAlgo_t *algo, int rows) {
    return algo->data[0] == CUTS ? (rows % 7 + 1) * 2 : algo->data[0] == TALL_CUT ? 8 : -1;
}

/* The `product` is never freed, since a captured graph may run it many times. */
cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *w, cublasLtMatrixLayout_t wl, const void *a,
                              cublasLtMatrixLayout_t al, const void *beta, const void *c,
                              cublasLtMatrixLayout_t cl, void *out, cublasLtMatrixLayout_t ol,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream) {
    (void)h;
    int fits = is_product((struct description *)(void *)d, layout_of(wl), layout_of(al),
                          layout_of(cl), layout_of(ol)) &&
               c == out && *(const float *)alpha == 1;
    int held = card_holds(w, bytes_of(layout_of(wl)), ALIGNMENT) &&
               card_holds(a, bytes_of(layout_of(al)), ALIGNMENT) &&
               card_holds(out, bytes_of(layout_of(ol)), ALIGNMENT) && bytes >= WORKSPACE &&
               card_holds(workspace, bytes, ALIGNMENT);
    if (!fits || !held) {
        fprintf(stderr, "card: a product %s\n",
                fits ? "with memory that is too short, not on the card or not aligned"
                     : "with shapes, types or operations that do not match");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!takes(algo, layout_of(al)->cols))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    struct product *p = malloc(sizeof *p);
    *p = (struct product){.w = w,
                          .a = a,
                          .out = out,
                          .workspace = workspace,
                          .n = (int)layout_of(wl)->cols,
                          .k = (int)layout_of(wl)->rows,
                          .rows = (int)layout_of(al)->cols,
                          .out_f32 = layout_of(ol)->type == CUDA_R_32F,
                          .adds = *(const float *)beta != 0,
                          .onto = *(const float *)beta != 0 && algo->data[0] == LOW_ONTO,
                          .cut = cut_of(algo, (int)layout_of(al)->cols)};
    card_enqueue_plain(stream, product_run, p);
    return CUBLAS_STATUS_SUCCESS;
}
