/*
 * cuda_gemm.c - cuBLASLt: loading it, choosing algorithms whose bits do not depend on the batch,
 * running products.
 *
 * Owns every cuBLASLt handle. Invariant: for a given plan, weight and row of A, cuda_gemm_run
 * produces the same bits whatever the number of rows and the row's position; the probe fails if
 * some plan has no algorithm that passes this test. cuda_forward.c decides when to run what.
 */
#include "cuda_gemm_int.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_kernels_int.h"

/* ---- the library ----------------------------------------------------------------------------- */

#define BLAS_FUNCTIONS(X)                                                                          \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)

typedef struct blas_table {
#define X(name) __typeof__(&name) name;
    BLAS_FUNCTIONS(X)
#undef X
} blas_table;

/* The upper ends of the ranges of heights (numbers of rows of A). Each range has its own
 * algorithm. */
static const int heights[] = {64, 256, 1024, 4096, INT32_MAX};
enum {
    HEIGHTS = 5,
    REFERENCES = 32, /* maximum number of algorithms tried as the reference, per height */
    CANDIDATES = 12, /* maximum number of algorithms tried for a range */
    TIMED_RUNS = 5,  /* number of runs per timing */
    FILLS = 16       /* number of fills of up to FILL_BYTES before a timing (product_time) */
};
static const size_t WORKSPACE_BYTES = (size_t)32 << 20, FILL_BYTES = (size_t)32 << 20;

typedef struct gemm_plan {
    int n, k, rows;
    cuda_gemm_out out;
    cublasLtMatmulAlgo_t algorithms[HEIGHTS];
    bool own[HEIGHTS]; /* true: the range's algorithm is not the reference */
} gemm_plan;

struct cuda_gemm {
    void *library;
    blas_table blas;
    cublasLtHandle_t handle;
    /* D = Wᵀ × A, where W is stored column-major [K, N]; the same for all plans */
    cublasLtMatmulDesc_t product;
    cublasLtMatmulPreference_t preference;
    gemm_plan plans[CUDA_GEMM_PLANS];
    int nplans;
};

int cuda_check(cudaError_t status, const char *what, err *e) {
    if (status == cudaSuccess)
        return 0;
    cudaGetLastError(); /* clears the error, so that the next launch does not report it again */
    err_code code = status == cudaErrorMemoryAllocation ? ERR_FULL : ERR_INTERNAL;
    return err_set(e, code, "CUDA: %s: %s", what, cudaGetErrorString(status));
}

static int blas_check(cublasStatus_t status, const char *what, err *e) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return err_set(e, ERR_INTERNAL, "cuBLASLt: %s failed (status %d)", what, (int)status);
}

/* Loads cuBLASLt. It is never unloaded (RTLD_NODELETE): the driver unloads its kernels when the
 * process exits. */
static int library_load(cuda_gemm *g, err *e) {
    static const int mode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    char name[64];
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    g->library = dlopen(name, mode);
    if (g->library == NULL) {
        /* the toolkit's folder may not be on the loader's path */
        char path[512];
        snprintf(path, sizeof path, "%s/%s", KVASIR_CUDA_LIBRARIES, name);
        g->library = dlopen(path, mode);
    }
    if (g->library == NULL) {
        err_set(e, ERR_UNSUPPORTED, "cannot load %s: %s", name, dlerror());
        err_hint(e, "install the CUDA runtime libraries, or SET device = 'cpu'");
        return ERR_UNSUPPORTED;
    }
    const char *missing = NULL;
#define X(symbol)                                                                                  \
    do {                                                                                           \
        void *p = dlsym(g->library, #symbol);                                                      \
        missing = p == NULL ? #symbol : missing;                                                   \
        memcpy(&g->blas.symbol, &p, sizeof p);                                                     \
    } while (0);
    BLAS_FUNCTIONS(X)
#undef X
    if (missing == NULL)
        return 0;
    err_set(e, ERR_UNSUPPORTED, "%s lacks the function %s", name, missing);
    err_hint(e, "SET device = 'cpu'");
    return ERR_UNSUPPORTED;
}

/* Excludes algorithms with a reduction: the remaining algorithms do not split the sum of an output
 * element. */
static int preference_make(cuda_gemm *g, err *e) {
    size_t workspace = WORKSPACE_BYTES;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasStatus_t status = g->blas.cublasLtMatmulPreferenceCreate(&g->preference);
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = g->blas.cublasLtMatmulPreferenceSetAttribute(
            g->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = g->blas.cublasLtMatmulPreferenceSetAttribute(
            g->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
            sizeof reductions);
    }
    return blas_check(status, "setting preferences", e);
}

int cuda_gemm_new(cuda_gemm **out, err *e) {
    cuda_gemm *g = mem_zalloc(sizeof *g);
    *out = g;
    int code = library_load(g, e);
    if (code != 0)
        return code;
    code = blas_check(g->blas.cublasLtCreate(&g->handle), "creating a handle", e);
    if (code == 0) {
        code = blas_check(
            g->blas.cublasLtMatmulDescCreate(&g->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            "describing a product", e);
    }
    if (code == 0) {
        cublasOperation_t transposed = CUBLAS_OP_T;
        code =
            blas_check(g->blas.cublasLtMatmulDescSetAttribute(
                           g->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
                       "describing a product", e);
    }
    return code != 0 ? code : preference_make(g, e);
}

void cuda_gemm_free(cuda_gemm *g) {
    if (g == NULL)
        return;
    if (g->preference != NULL)
        g->blas.cublasLtMatmulPreferenceDestroy(g->preference);
    if (g->product != NULL)
        g->blas.cublasLtMatmulDescDestroy(g->product);
    if (g->handle != NULL)
        g->blas.cublasLtDestroy(g->handle);
    if (g->library != NULL)
        dlclose(g->library);
    free(g);
}

int cuda_gemm_declare(cuda_gemm *g, int n, int k, cuda_gemm_out out, int rows, err *e) {
    for (int i = 0; i < g->nplans; i++) {
        gemm_plan *p = &g->plans[i];
        if (p->n == n && p->k == k && p->out == out) {
            p->rows = BASE_MAX(p->rows, rows);
            return i;
        }
    }
    if (g->nplans == CUDA_GEMM_PLANS) {
        err_set(e, ERR_LIMIT, "a model has at most %d different matrix shapes", CUDA_GEMM_PLANS);
        return -1;
    }
    g->plans[g->nplans] = (gemm_plan){.n = n, .k = k, .rows = rows, .out = out};
    return g->nplans++;
}

/* ---- one product ----------------------------------------------------------------------------- */

/* The three matrices in the library's column-major terms: W [K, N], A [K, rows], out [N, rows]. */
typedef struct layouts {
    cublasLtMatrixLayout_t w, a, out;
} layouts;

static void layouts_free(const cuda_gemm *g, layouts *l) {
    cublasLtMatrixLayout_t all[] = {l->w, l->a, l->out};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        if (all[i] != NULL)
            g->blas.cublasLtMatrixLayoutDestroy(all[i]);
}

static int layouts_make(const cuda_gemm *g, const gemm_plan *p, int rows, layouts *l, err *e) {
    *l = (layouts){0};
    uint64_t n = (uint64_t)p->n, k = (uint64_t)p->k, m = (uint64_t)rows;
    cudaDataType_t out = p->out == CUDA_GEMM_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cublasStatus_t status = g->blas.cublasLtMatrixLayoutCreate(&l->w, CUDA_R_16BF, k, n, p->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = g->blas.cublasLtMatrixLayoutCreate(&l->a, CUDA_R_16BF, k, m, p->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = g->blas.cublasLtMatrixLayoutCreate(&l->out, out, n, m, p->n);
    if (status != CUBLAS_STATUS_SUCCESS)
        layouts_free(g, l);
    return blas_check(status, "describing a matrix", e);
}

/* The operands of one product; `workspace` has `space` bytes and is used by one stream only. */
typedef struct operands {
    const void *w, *a;
    int rows;
    void *out, *workspace;
    size_t space;
} operands;

static int product_run(const cuda_gemm *g, const gemm_plan *p,
                       const cublasLtMatmulAlgo_t *algorithm, const operands *o,
                       cudaStream_t stream, err *e) {
    layouts l;
    int code = layouts_make(g, p, o->rows, &l, e);
    if (code != 0)
        return code;
    const float one = 1, beta = p->out == CUDA_GEMM_ADDS ? 1 : 0;
    cublasStatus_t status =
        g->blas.cublasLtMatmul(g->handle, g->product, &one, o->w, l.w, o->a, l.a, &beta, o->out,
                               l.out, o->out, l.out, algorithm, o->workspace, o->space, stream);
    layouts_free(g, &l);
    if (status != CUBLAS_STATUS_SUCCESS)
        cudaGetLastError(); /* clears the error, so that the next launch does not report it again */
    return blas_check(status, "a matrix product", e);
}

static int height_index(int rows) {
    int i = 0;
    while (rows > heights[i])
        i++;
    return i;
}

size_t cuda_gemm_workspace(void) {
    return WORKSPACE_BYTES;
}

int cuda_gemm_run(cuda_gemm *g, int plan, const void *w, const void *a, int rows, void *out,
                  void *workspace, cudaStream_t stream, err *e) {
    const gemm_plan *p = &g->plans[plan];
    int height = (rows + CUDA_GEMM_ROWS - 1) / CUDA_GEMM_ROWS * CUDA_GEMM_ROWS;
    operands o = {w, a, height, out, workspace, WORKSPACE_BYTES};
    return product_run(g, p, &p->algorithms[height_index(height)], &o, stream, e);
}

/* ---- the probe ------------------------------------------------------------------------------- */

/* The data that a plan is tested with; `expected` is the reference algorithm's output. */
typedef struct probe {
    cuda_gemm *g;
    cudaStream_t stream;
    int tallest;         /* the greatest height that the plan is tested for */
    int rows;            /* rows of the test data: `tallest`, or fewer if memory is short */
    uint16_t *w;         /* [n, k] */
    uint16_t *a;         /* [rows, k] */
    uint16_t *moved;     /* [rows, k]: some rows of a, copied to the start */
    void *expected;      /* [rows, n] */
    void *out;           /* [rows, n]: output of the algorithm under test */
    void *before;        /* [rows, n]: values that the plan adds to; NULL: the plan does not add */
    void *workspace;     /* [WORKSPACE_BYTES] */
    unsigned *differing; /* on the card: number of 16-bit words in which two outputs differ */
    cudaEvent_t begin, end;
} probe;

static size_t out_bytes(const gemm_plan *p) {
    return p->out == CUDA_GEMM_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static void probe_free(probe *t) {
    void *all[] = {t->w,   t->a,      t->moved,     t->expected,
                   t->out, t->before, t->workspace, t->differing};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        cudaFree(all[i]);
    if (t->begin != NULL)
        cudaEventDestroy(t->begin);
    if (t->end != NULL)
        cudaEventDestroy(t->end);
}

static int probe_new(probe *t, const gemm_plan *p, err *e) {
    size_t n = (size_t)p->n, k = (size_t)p->k, rows = (size_t)t->rows, element = out_bytes(p);
    size_t before = p->out == CUDA_GEMM_ADDS ? rows * n * element : 0;
    struct {
        void **at;
        size_t bytes;
    } wanted[] = {
        {(void **)&t->w, n * k * 2},        {(void **)&t->a, rows * k * 2},
        {(void **)&t->moved, rows * k * 2}, {&t->expected, rows * n * element},
        {&t->out, rows * n * element},      {&t->before, before},
        {&t->workspace, WORKSPACE_BYTES},   {(void **)&t->differing, sizeof *t->differing}};
    int code = cuda_check(cudaEventCreate(&t->begin), "creating an event", e);
    code = code != 0 ? code : cuda_check(cudaEventCreate(&t->end), "creating an event", e);
    for (size_t i = 0; i < BASE_COUNT(wanted) && code == 0; i++) {
        if (wanted[i].bytes > 0)
            code = cuda_check(cudaMalloc(wanted[i].at, wanted[i].bytes),
                              "memory for testing products", e);
    }
    if (code == 0)
        code = cuda_check(k_random(t->w, n * k, 1, 2, t->stream), "filling a matrix", e);
    /* `before` holds f32 values; two adjacent random bf16 values, read as one f32, are finite */
    if (code == 0 && before > 0)
        code = cuda_check(k_random(t->before, before / 2, 3, 2, t->stream), "filling a matrix", e);
    return code != 0 ? code
                     : cuda_check(k_random(t->a, rows * k, 2, 2, t->stream), "filling a matrix", e);
}

/* True if the algorithm uses no split K, no reduction, and not too much workspace. An algorithm
 * that does not support an attribute passes; the test of its bits then decides. */
static bool is_whole(const cuda_gemm *g, const cublasLtMatmulHeuristicResult_t *r) {
    int32_t splits = 0;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t size;
    if (r->state != CUBLAS_STATUS_SUCCESS || r->workspaceSize > WORKSPACE_BYTES)
        return false;
    if (g->blas.cublasLtMatmulAlgoConfigGetAttribute(&r->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                     &splits, sizeof splits,
                                                     &size) == CUBLAS_STATUS_SUCCESS &&
        splits > 1)
        return false;
    return g->blas.cublasLtMatmulAlgoConfigGetAttribute(
               &r->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction, sizeof reduction,
               &size) != CUBLAS_STATUS_SUCCESS ||
           reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

/* True if the algorithm supports products of this height. */
static bool fits(const cuda_gemm *g, const gemm_plan *p, const cublasLtMatmulAlgo_t *algorithm,
                 int rows) {
    layouts l;
    err ignored = {0};
    if (layouts_make(g, p, rows, &l, &ignored) != 0)
        return false;
    cublasLtMatmulHeuristicResult_t result = {0};
    cublasStatus_t status = g->blas.cublasLtMatmulAlgoCheck(g->handle, g->product, l.w, l.a, l.out,
                                                            l.out, algorithm, &result);
    layouts_free(g, &l);
    return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= WORKSPACE_BYTES;
}

static operands probe_operands(const probe *t, const void *a, int rows, void *out) {
    return (operands){t->w, a, rows, out, t->workspace, WORKSPACE_BYTES};
}

/* Prepares `out` for a product of rows [first, first + rows) of A. If the plan adds to `out`,
 * copies the values that it adds to. Otherwise fills `out` with NaN, which reveals unwritten
 * elements. */
static int out_begin(const probe *t, const gemm_plan *p, int first, int rows, void *out, err *e) {
    size_t row = (size_t)p->n * out_bytes(p), bytes = (size_t)rows * row;
    if (t->before == NULL)
        return cuda_check(cudaMemsetAsync(out, 0xff, bytes, t->stream), "poisoning", e);
    const char *from = (const char *)t->before + (size_t)first * row;
    return cuda_check(cudaMemcpyAsync(out, from, bytes, cudaMemcpyDeviceToDevice, t->stream),
                      "filling a matrix", e);
}

/* Sets *same to true if rows [first, first + rows) of A, multiplied alone, have the reference
 * bits. */
static int agrees(probe *t, const gemm_plan *p, const cublasLtMatmulAlgo_t *algorithm, int first,
                  int rows, bool *same, err *e) {
    size_t row = (size_t)p->k * sizeof(uint16_t), element = out_bytes(p), n = (size_t)p->n;
    unsigned differing = 1;
    const char *expected = (const char *)t->expected + (size_t)first * n * element;
    size_t halves = (size_t)rows * n * element / sizeof(uint16_t);
    const uint16_t *from = t->a + (size_t)first * (size_t)p->k;
    int code = cuda_check(
        cudaMemcpyAsync(t->moved, from, (size_t)rows * row, cudaMemcpyDeviceToDevice, t->stream),
        "moving rows", e);
    code = code != 0 ? code : out_begin(t, p, first, rows, t->out, e);
    operands o = probe_operands(t, t->moved, rows, t->out);
    err ignored = {0}; /* if the product fails, `out` keeps its content and so differs */
    (void)product_run(t->g, p, algorithm, &o, t->stream, &ignored);
    code = code != 0 ? code
                     : cuda_check(cudaMemsetAsync(t->differing, 0, sizeof *t->differing, t->stream),
                                  "a counter", e);
    code = code != 0 ? code
                     : cuda_check(k_differ((const uint16_t *)(const void *)expected, t->out, halves,
                                           t->differing, t->stream),
                                  "comparing", e);
    code = code != 0 ? code
                     : cuda_check(cudaMemcpyAsync(&differing, t->differing, sizeof differing,
                                                  cudaMemcpyDeviceToHost, t->stream),
                                  "reading a counter", e);
    code = code != 0 ? code : cuda_check(cudaStreamSynchronize(t->stream), "testing a product", e);
    *same = differing == 0;
    return code;
}

/* Returns the next height to test: about 1.5 times `rows`, but `tallest` as the last one; after
 * `tallest`, a greater height. */
static int height_after(int rows, int tallest) {
    int next = rows + BASE_MAX(rows / 2 / CUDA_GEMM_ROWS, 1) * CUDA_GEMM_ROWS;
    return rows < tallest ? BASE_MIN(next, tallest) : next;
}

/* A range of heights to test: above `above`, at most `tallest`. */
typedef struct range {
    int above, tallest;
} range;

static range range_of(const probe *t, int h) {
    return (range){h > 0 ? heights[h - 1] : 0, BASE_MIN(heights[h], t->rows)};
}

/* True if the algorithm supports all tested heights of the range. */
static bool takes(const probe *t, const gemm_plan *p, const cublasLtMatmulAlgo_t *algorithm,
                  range r) {
    bool all = true;
    for (int rows = CUDA_GEMM_ROWS; all && rows <= r.tallest; rows = height_after(rows, r.tallest))
        all = rows <= r.above || fits(t->g, p, algorithm, rows);
    return all;
}

/* Sets *same to true if the algorithm has the reference bits at all tested heights of the range
 * that it supports, for rows from the start, the middle and the end of A. */
static int agrees_everywhere(probe *t, const gemm_plan *p, const cublasLtMatmulAlgo_t *algorithm,
                             range r, bool *same, err *e) {
    *same = true;
    for (int rows = CUDA_GEMM_ROWS; *same && rows <= r.tallest;
         rows = height_after(rows, r.tallest)) {
        int places[] = {0, (t->rows - rows) / 2 | 1, t->rows - rows};
        bool passed = rows <= r.above || !fits(t->g, p, algorithm, rows);
        for (size_t i = 0; *same && !passed && i < BASE_COUNT(places); i++) {
            int first = BASE_MIN(places[i], t->rows - rows);
            int code = agrees(t, p, algorithm, first, rows, same, e);
            if (code != 0)
                return code;
        }
    }
    return 0;
}

static int candidates_ask(const cuda_gemm *g, const gemm_plan *p, int rows, int most,
                          cublasLtMatmulHeuristicResult_t *out, int *count, err *e) {
    layouts l;
    int code = layouts_make(g, p, rows, &l, e);
    if (code != 0)
        return code;
    cublasStatus_t status = g->blas.cublasLtMatmulAlgoGetHeuristic(
        g->handle, g->product, l.w, l.a, l.out, l.out, g->preference, most, out, count);
    layouts_free(g, &l);
    *count = status == CUBLAS_STATUS_SUCCESS ? *count : 0;
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? 0
                                                 : blas_check(status, "asking for algorithms", e);
}

/* Measures *ms, the time of TIMED_RUNS products of this height in milliseconds, after a warm-up
 * run. The card computes a low product faster than the host enqueues it, which would time the host.
 * So the card is first kept busy filling memory while the host enqueues all runs. */
static int product_time(probe *t, const gemm_plan *p, const cublasLtMatmulAlgo_t *algorithm,
                        int rows, float *ms, err *e) {
    operands o = probe_operands(t, t->a, rows, t->out);
    size_t bytes = BASE_MIN((size_t)t->rows * (size_t)p->n * out_bytes(p), FILL_BYTES);
    int code = product_run(t->g, p, algorithm, &o, t->stream, e);
    for (int i = 0; i < FILLS && code == 0; i++)
        code = cuda_check(cudaMemsetAsync(t->out, 0, bytes, t->stream), "filling a matrix", e);
    code = code != 0 ? code
                     : cuda_check(cudaEventRecord(t->begin, t->stream), "recording an event", e);
    for (int i = 0; i < TIMED_RUNS && code == 0; i++)
        code = product_run(t->g, p, algorithm, &o, t->stream, e);
    code =
        code != 0 ? code : cuda_check(cudaEventRecord(t->end, t->stream), "recording an event", e);
    code = code != 0 ? code : cuda_check(cudaEventSynchronize(t->end), "timing a product", e);
    return code != 0
               ? code
               : cuda_check(cudaEventElapsedTime(ms, t->begin, t->end), "timing a product", e);
}

typedef struct timed {
    const cublasLtMatmulHeuristicResult_t *found;
    float ms;
} timed;

static int by_time(const void *a, const void *b) {
    const timed *x = a, *y = b;
    return (x->ms > y->ms) - (x->ms < y->ms);
}

/* Chooses the fastest algorithm with the reference bits for range h, possibly the reference itself.
 * Only algorithms faster than the reference are tested, the fastest first. *chosen is false if no
 * algorithm was found. */
static int range_choose(probe *t, gemm_plan *p, int h, bool *chosen, err *e) {
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    timed order[CANDIDATES];
    range r = range_of(t, h);
    int count = 0, n = 0;
    float limit = INFINITY;
    bool taken = takes(t, p, &p->algorithms[h], r);
    int code = candidates_ask(t->g, p, r.tallest, CANDIDATES, found, &count, e);
    if (code == 0 && taken)
        code = product_time(t, p, &p->algorithms[h], r.tallest, &limit, e);
    for (int i = 0; code == 0 && i < count; i++) {
        float ms = 0;
        err ignored = {0};
        if (is_whole(t->g, &found[i]) && takes(t, p, &found[i].algo, r) &&
            product_time(t, p, &found[i].algo, r.tallest, &ms, &ignored) == 0 && ms < limit)
            order[n++] = (timed){&found[i], ms};
    }
    qsort(order, (size_t)n, sizeof *order, by_time);
    for (int i = 0; code == 0 && i < n && !p->own[h]; i++) {
        code = agrees_everywhere(t, p, &order[i].found->algo, r, &p->own[h], e);
        if (code == 0 && p->own[h])
            p->algorithms[h] = order[i].found->algo;
    }
    *chosen = taken || p->own[h];
    return code;
}

/* Chooses an algorithm for every range. Sets *chosen to true if every range has one. */
static int ranges_choose(probe *t, gemm_plan *p, bool *chosen, err *e) {
    int code = 0;
    *chosen = true;
    for (int h = 0; h < HEIGHTS && code == 0 && *chosen; h++) {
        if (h == 0 || heights[h - 1] < t->rows) {
            code = range_choose(t, p, h, chosen, e);
        } else {
            /* no height of this range is tested: it gets the algorithm of the range below */
            p->algorithms[h] = p->algorithms[h - 1];
            p->own[h] = p->own[h - 1];
        }
    }
    return code;
}

/* Tries the algorithm as the reference. Sets *chosen to true if its bits are the same at all
 * heights that it supports, and every range has an algorithm with these bits. */
static int reference_try(probe *t, gemm_plan *p, const cublasLtMatmulAlgo_t *algorithm,
                         bool *chosen, err *e) {
    range all = {0, t->rows};
    operands o = probe_operands(t, t->a, t->rows, t->expected);
    err ignored = {0};
    int code = out_begin(t, p, 0, t->rows, t->expected, e);
    *chosen = false;
    if (code != 0 || product_run(t->g, p, algorithm, &o, t->stream, &ignored) != 0)
        return code; /* an algorithm proposed for another height may not support this one */
    code = agrees_everywhere(t, p, algorithm, all, chosen, e);
    for (int h = 0; h < HEIGHTS; h++) {
        p->algorithms[h] = *algorithm;
        p->own[h] = false;
    }
    return code == 0 && *chosen ? ranges_choose(t, p, chosen, e) : code;
}

/* Tries the algorithms that the library proposes for height `rows` until one works as the
 * reference. */
static int reference_find(probe *t, gemm_plan *p, int rows, bool *chosen, err *e) {
    cublasLtMatmulHeuristicResult_t found[REFERENCES];
    int count = 0, code = candidates_ask(t->g, p, rows, REFERENCES, found, &count, e);
    for (int i = 0; code == 0 && i < count && !*chosen; i++)
        if (is_whole(t->g, &found[i]))
            code = reference_try(t, p, &found[i].algo, chosen, e);
    return code;
}

/* Finds the reference algorithm. Most rows are computed in tall products, so the algorithms
 * proposed for tall products are tried first. The algorithms for lower products are tried only if
 * no algorithm for tall products works. */
static int algorithms_choose(probe *t, gemm_plan *p, err *e) {
    bool chosen = false;
    int code = reference_find(t, p, t->tallest, &chosen, e);
    for (int h = HEIGHTS - 1; h-- > 0 && code == 0 && !chosen;)
        if (heights[h] < t->tallest)
            code = reference_find(t, p, heights[h], &chosen, e);
    if (code != 0 || chosen)
        return code;
    err_set(e, ERR_UNSUPPORTED,
            "cuBLASLt cannot multiply by a %d × %d matrix with the same results in every batch",
            p->n, p->k);
    err_hint(e, "SET device = 'cpu'");
    return ERR_UNSUPPORTED;
}

/* Mixes the first rows of the reference output into the digest. */
static int outputs_hash(probe *t, const gemm_plan *p, hash128 *digest, err *e) {
    size_t bytes = (size_t)CUDA_GEMM_ROWS * (size_t)p->n * out_bytes(p);
    char *host = mem_alloc(bytes);
    int code =
        cuda_check(cudaMemcpyAsync(host, t->expected, bytes, cudaMemcpyDeviceToHost, t->stream),
                   "reading a product", e);
    code = code != 0 ? code : cuda_check(cudaStreamSynchronize(t->stream), "reading a product", e);
    hash128 both[2] = {*digest, hash_128(host, bytes)};
    *digest = hash_128(both, sizeof both);
    free(host);
    return code;
}

/* Returns the largest number of rows, at most `rows`, whose test data fits in a quarter of the free
 * memory. At least CUDA_GEMM_ROWS. */
static int rows_fitting(const gemm_plan *p, int rows) {
    size_t left = 0, total = 0;
    size_t outs = p->out == CUDA_GEMM_ADDS ? 3 : 2;
    size_t row = (size_t)p->k * sizeof(uint16_t) * 2 + (size_t)p->n * out_bytes(p) * outs;
    if (cudaMemGetInfo(&left, &total) == cudaSuccess)
        rows = (int)BASE_MIN((size_t)rows, left / 4 / row);
    return BASE_MAX(rows / CUDA_GEMM_ROWS, 1) * CUDA_GEMM_ROWS;
}

int cuda_gemm_probe(cuda_gemm *g, cudaStream_t stream, int rows, hash128 *digest, err *e) {
    int code = 0;
    for (int i = 0; i < g->nplans && code == 0; i++) {
        gemm_plan *p = &g->plans[i];
        probe t = {.g = g, .stream = stream, .tallest = BASE_MIN(p->rows, rows)};
        t.rows = rows_fitting(p, t.tallest);
        code = probe_new(&t, p, e);
        code = code != 0 ? code : algorithms_choose(&t, p, e);
        code = code != 0 ? code : outputs_hash(&t, p, digest, e);
        probe_free(&t);
    }
    return code;
}

void cuda_gemm_describe(const cuda_gemm *g, buf *out) {
    buf_printf(out, "cuBLASLt %zu", g->blas.cublasLtGetVersion());
    for (int i = 0; i < g->nplans; i++) {
        const gemm_plan *p = &g->plans[i];
        int own = 0;
        for (int h = 0; h < HEIGHTS; h++)
            own += p->own[h];
        buf_printf(out, ", [%d, %d]: %d of %d tuned", p->n, p->k, own, (int)HEIGHTS);
    }
}
