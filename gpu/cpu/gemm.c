/*
 * gemm.c - matrix products: oneDNN at fixed heights, the probe that finds these heights, and the
 * products of weights in bytes.
 *
 * Owns every oneDNN handle. Invariant: for a given weight and row of A, gemm_run returns the same
 * bits for any height, index of the row in the tile, other rows, and thread. Callers divide the
 * work into tiles and tasks.
 */
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gemm_int.h"
#include "int8_int.h"

extern void omp_set_num_threads(int);

enum { MAX_SHAPES = 32, MAX_HEIGHTS = 4, MAX_PART = 4096 };

/* One primitive: A [height, k] × B [k, n]. */
typedef struct gemm_kernel {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_t *src, *dst, *scratch; /* per worker */
} gemm_kernel;

typedef struct gemm_shape {
    int k, n;
    dnnl_memory_desc_t packed;
    gemm_kernel kernels[MAX_HEIGHTS];
} gemm_shape;

/* Packed weights are allocated together on huge pages: a decode step reads all of them, and with
 * small pages it would wait for page table walks. */
enum { HUGE_PAGE = 2 << 20, CHUNK = 16 * HUGE_PAGE, PACKED_ALIGN = 4096 };

typedef struct gemm_chunk {
    struct gemm_chunk *next;
    char *bytes;
    size_t size, used;
} gemm_chunk;

struct gemm {
    pool *threads;
    int workers;
    gemm_type wide;
    const int8_kernels *int8; /* NULL: the processor has no such kernels */
    /* true if a weight of this type is declared and the type is in bytes */
    bool in_bytes[GEMM_TYPES];
    dnnl_engine_t engine;
    dnnl_stream_t *streams; /* per worker */
    float **out;            /* per worker: C, [heights[0], MAX_PART] */
    gemm_shape shapes[MAX_SHAPES];
    int nshapes;
    int heights[MAX_HEIGHTS]; /* descending */
    int nheights;
    atomic_size_t bytes;
    pthread_mutex_t packing; /* guards chunks */
    gemm_chunk *chunks;      /* list of chunks; the first is the chunk being filled */
};

static int fail(err *e, dnnl_status_t status, const char *what) {
    if (status == dnnl_out_of_memory)
        return err_set(e, ERR_FULL, "not enough memory for the model's matrices");
    return err_set(e, ERR_INTERNAL, "oneDNN: %s failed (status %d)", what, (int)status);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static dnnl_data_type_t input_type(const gemm *g) {
    return g->wide == GEMM_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* `packed` is the layout of B; NULL lets the library choose the layout. */
static dnnl_status_t kernel_describe(const gemm *g, int k, int n, int height,
                                     const dnnl_memory_desc_t *packed, dnnl_primitive_desc_t *out) {
    dnnl_dims_t ad = {height, k}, bd = {k, n}, cd = {height, n};
    dnnl_memory_desc_t a, b, c;
    dnnl_memory_desc_init_by_tag(&a, 2, ad, input_type(g), dnnl_ab);
    dnnl_memory_desc_init_by_tag(&b, 2, bd, input_type(g), dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&c, 2, cd, dnnl_f32, dnnl_ab);
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, &a, packed != NULL ? packed : &b, NULL, &c);
    dnnl_primitive_attr_t attr;
    if (status != dnnl_success || (status = dnnl_primitive_attr_create(&attr)) != dnnl_success)
        return status;
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    status = dnnl_primitive_desc_create(out, &desc, attr, g->engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static void kernel_free(gemm_kernel *k, int workers) {
    dnnl_memory_t *lists[] = {k->src, k->dst, k->scratch};
    for (size_t i = 0; i < BASE_COUNT(lists); i++) {
        for (int w = 0; lists[i] != NULL && w < workers; w++)
            if (lists[i][w] != NULL)
                dnnl_memory_destroy(lists[i][w]);
        free(lists[i]);
    }
    if (k->primitive != NULL)
        dnnl_primitive_destroy(k->primitive);
    if (k->desc != NULL)
        dnnl_primitive_desc_destroy(k->desc);
    *k = (gemm_kernel){0};
}

static dnnl_status_t memories_new(const gemm *g, dnnl_primitive_desc_t desc, dnnl_query_t what,
                                  void *handle, dnnl_memory_t **out) {
    int index = what == dnnl_query_exec_arg_md ? DNNL_ARG_SCRATCHPAD : 0;
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(desc, what, index);
    *out = mem_zalloc(sizeof **out * (size_t)g->workers);
    dnnl_status_t status = dnnl_success;
    for (int w = 0; w < g->workers && status == dnnl_success; w++)
        status = dnnl_memory_create(&(*out)[w], md, g->engine, handle);
    return status;
}

static dnnl_status_t kernel_new(const gemm *g, gemm_shape *shape, int height, bool first,
                                gemm_kernel *out) {
    dnnl_status_t status =
        kernel_describe(g, shape->k, shape->n, height, first ? NULL : &shape->packed, &out->desc);
    if (status != dnnl_success)
        return status;
    if (first)
        shape->packed = *dnnl_primitive_desc_query_md(out->desc, dnnl_query_weights_md, 0);
    status = dnnl_primitive_create(&out->primitive, out->desc);
    if (status == dnnl_success)
        status = memories_new(g, out->desc, dnnl_query_src_md, DNNL_MEMORY_NONE, &out->src);
    if (status == dnnl_success)
        status = memories_new(g, out->desc, dnnl_query_dst_md, DNNL_MEMORY_NONE, &out->dst);
    if (status == dnnl_success) {
        status = memories_new(g, out->desc, dnnl_query_scratchpad_md, DNNL_MEMORY_ALLOCATE,
                              &out->scratch);
    }
    return status;
}

static void kernel_run(gemm *g, gemm_kernel *k, dnnl_memory_t weights, int worker, const void *a,
                       float *c) {
    dnnl_memory_set_data_handle(k->src[worker], (void *)(uintptr_t)a);
    dnnl_memory_set_data_handle(k->dst[worker], c);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, k->src[worker]},
                              {DNNL_ARG_WEIGHTS, weights},
                              {DNNL_ARG_DST, k->dst[worker]},
                              {DNNL_ARG_SCRATCHPAD, k->scratch[worker]}};
    dnnl_primitive_execute(k->primitive, g->streams[worker], 4, args);
    dnnl_stream_wait(g->streams[worker]);
}

/* ---- lifetime -------------------------------------------------------------------------------- */

int gemm_new(pool *threads, gemm_type wide, gemm **out, err *e) {
    omp_set_num_threads(1);
    gemm *g = mem_zalloc(sizeof *g);
    g->threads = threads;
    g->workers = threads != NULL ? pool_threads(threads) : 1;
    g->wide = wide;
    g->int8 = int8_choose();
    pthread_mutex_init(&g->packing, NULL);
    g->streams = mem_zalloc(sizeof *g->streams * (size_t)g->workers);
    g->out = mem_zalloc(sizeof *g->out * (size_t)g->workers);
    dnnl_status_t status = dnnl_engine_create(&g->engine, dnnl_cpu, 0);
    for (int w = 0; w < g->workers && status == dnnl_success; w++)
        status = dnnl_stream_create(&g->streams[w], g->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        gemm_free(g);
        return fail(e, status, "creating an engine");
    }
    *out = g;
    return 0;
}

void gemm_free(gemm *g) {
    if (g == NULL)
        return;
    for (int s = 0; s < g->nshapes; s++)
        for (int h = 0; h < MAX_HEIGHTS; h++)
            kernel_free(&g->shapes[s].kernels[h], g->workers);
    for (int w = 0; w < g->workers; w++) {
        if (g->streams[w] != NULL)
            dnnl_stream_destroy(g->streams[w]);
        free(g->out[w]);
    }
    if (g->engine != NULL)
        dnnl_engine_destroy(g->engine);
    for (gemm_chunk *c = g->chunks, *next; c != NULL; c = next) {
        next = c->next;
        free(c->bytes);
        free(c);
    }
    pthread_mutex_destroy(&g->packing);
    free(g->streams);
    free(g->out);
    free(g);
}

size_t gemm_row_bytes(gemm_type type, int k) {
    if (gemm_in_bytes(type))
        return int8_operand_bytes(gemm_planes(type), k);
    return (size_t)k * (type == GEMM_BF16 ? sizeof(uint16_t) : sizeof(float));
}

size_t gemm_bytes(const gemm *g) {
    return atomic_load(&g->bytes);
}

/* ---- shapes and heights ---------------------------------------------------------------------- */

static int shape_find(gemm *g, int k, int n, err *e) {
    for (int s = 0; s < g->nshapes; s++)
        if (g->shapes[s].k == k && g->shapes[s].n == n)
            return s;
    if (g->nshapes == MAX_SHAPES)
        return -err_set(e, ERR_LIMIT, "a model has at most %d different matrix shapes", MAX_SHAPES);
    g->shapes[g->nshapes] = (gemm_shape){.k = k, .n = n};
    return g->nshapes++;
}

int gemm_declare(gemm *g, gemm_type type, int n, int k, int part, gemm_weight *out, err *e) {
    part = BASE_MIN(part, MAX_PART);
    *out = (gemm_weight){.type = type, .k = k, .n = n, .nparts = (n + part - 1) / part};
    if (gemm_in_bytes(type) && (g->int8 == NULL || k % INT8_GROUP != 0)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "8-bit weights need a processor with AVX2 and matrices whose width is a "
                       "multiple of %d; one is %d wide",
                       INT8_GROUP, k);
    }
    g->in_bytes[type] = gemm_in_bytes(type);
    out->parts = mem_zalloc(sizeof *out->parts * (size_t)out->nparts);
    for (int i = 0; i < out->nparts; i++) {
        gemm_part *p = &out->parts[i];
        p->first = i * part;
        p->n = BASE_MIN(part, n - p->first);
        p->shape = gemm_in_bytes(type) ? 0 : shape_find(g, k, p->n, e);
        if (p->shape < 0)
            return (int)e->code;
    }
    return 0;
}

static void kernels_drop(gemm *g) {
    for (int s = 0; s < g->nshapes; s++)
        for (int h = 0; h < MAX_HEIGHTS; h++)
            kernel_free(&g->shapes[s].kernels[h], g->workers);
}

/* Makes the kernels of all shapes at the given heights. Returns false if, for a shape, the library
 * does not have the same layout and algorithm at all heights. */
static bool kernels_make(gemm *g, const int *heights, int count) {
    const char *name = NULL;
    for (int s = 0; s < g->nshapes; s++) {
        for (int h = 0; h < count; h++) {
            gemm_kernel *k = &g->shapes[s].kernels[h];
            if (kernel_new(g, &g->shapes[s], heights[h], h == 0, k) != dnnl_success)
                return false;
            const char *impl = NULL;
            dnnl_primitive_desc_query(k->desc, dnnl_query_impl_info_str, 0, &impl);
            if (name == NULL || h == 0)
                name = impl;
            else if (strcmp(name, impl) != 0)
                return false; /* another algorithm has other bits, and is often slow */
        }
    }
    return true;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Returns memory for packed weights, which is freed with g. Returns NULL if memory is short. */
static void *room_for(gemm *g, size_t bytes) {
    bytes = (bytes + PACKED_ALIGN - 1) & ~(size_t)(PACKED_ALIGN - 1);
    pthread_mutex_lock(&g->packing);
    gemm_chunk *c = g->chunks;
    if (c == NULL || c->size - c->used < bytes) {
        size_t size = BASE_MAX((size_t)CHUNK, (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1));
        char *memory = aligned_alloc(HUGE_PAGE, size);
        c = NULL;
        if (memory != NULL) {
            (void)madvise(memory, size, MADV_HUGEPAGE); /* only for speed, so it may fail */
            c = mem_zalloc(sizeof *c);
            *c = (gemm_chunk){g->chunks, memory, size, 0};
            g->chunks = c;
        }
    }
    void *room = c != NULL ? c->bytes + c->used : NULL;
    if (c != NULL)
        c->used += bytes;
    pthread_mutex_unlock(&g->packing);
    return room;
}

/* Packs plain [n, k] into `room`, which has the packed size or is DNNL_MEMORY_ALLOCATE. */
static dnnl_status_t pack(gemm *g, const gemm_shape *shape, float *plain, void *room,
                          dnnl_memory_t *out) {
    dnnl_dims_t dims = {shape->k, shape->n};
    dnnl_memory_desc_t md;
    dnnl_memory_desc_init_by_tag(&md, 2, dims, dnnl_f32, dnnl_ba); /* [n, k] row-major */
    dnnl_memory_t from = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t reorder = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_status_t status = dnnl_memory_create(&from, &md, g->engine, plain);
    if (status == dnnl_success)
        status = dnnl_memory_create(out, &shape->packed, g->engine, room);
    if (status == dnnl_success) {
        status = dnnl_reorder_primitive_desc_create(&desc, &md, g->engine, &shape->packed,
                                                    g->engine, NULL);
    }
    if (status == dnnl_success)
        status = dnnl_primitive_create(&reorder, desc);
    if (status == dnnl_success)
        status = dnnl_stream_create(&stream, g->engine, dnnl_stream_default_flags);
    if (status == dnnl_success) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, *out}};
        status = dnnl_primitive_execute(reorder, stream, 2, args);
        dnnl_stream_wait(stream);
        dnnl_stream_destroy(stream);
    }
    if (reorder != NULL)
        dnnl_primitive_destroy(reorder);
    if (desc != NULL)
        dnnl_primitive_desc_destroy(desc);
    if (from != NULL)
        dnnl_memory_destroy(from);
    return status;
}

int gemm_pack(gemm *g, gemm_weight *w, int part, gemm_row row, const void *ctx, err *e) {
    gemm_part *p = &w->parts[part];
    float *plain = mem_alloc(sizeof(float) * (size_t)p->n * (size_t)w->k);
    for (int i = 0; i < p->n; i++)
        row(ctx, p->first + i, plain + (size_t)i * (size_t)w->k);
    const gemm_shape *shape = &g->shapes[p->shape];
    bool in_bytes = gemm_in_bytes(w->type);
    size_t bytes =
        in_bytes ? int8_weight_bytes(p->n, w->k) : dnnl_memory_desc_get_size(&shape->packed);
    void *room = room_for(g, bytes);
    dnnl_status_t status = room == NULL ? dnnl_out_of_memory : dnnl_success;
    if (room != NULL && in_bytes) {
        g->int8->pack(plain, p->n, w->k, room);
        p->memory = room;
    } else if (room != NULL) {
        dnnl_memory_t packed = NULL;
        status = pack(g, shape, plain, room, &packed);
        p->memory = packed;
    }
    free(plain);
    atomic_fetch_add(&g->bytes, bytes);
    return status == dnnl_success ? 0 : fail(e, status, "packing a matrix");
}

void gemm_weight_free(gemm_weight *w) {
    for (int i = 0; i < w->nparts; i++)
        if (w->parts[i].memory != NULL && !gemm_in_bytes(w->type))
            dnnl_memory_destroy(w->parts[i].memory);
    free(w->parts);
    *w = (gemm_weight){0};
}

/* ---- the probe ------------------------------------------------------------------------------- */

enum { PROBE_ROWS = 80, PROBE_VERSION = 2 };

hash128 gemm_identity(const gemm *g) {
    static const char *const settings[] = {
        "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA",           "ONEDNN_CPU_ISA_HINTS",
        "DNNL_CPU_ISA_HINTS", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"};
    const dnnl_version_t *v = dnnl_version();
    buf b = {0};
    buf_printf(&b, "%d %s %d.%d.%d %s", PROBE_VERSION, g->wide == GEMM_BF16 ? "bf16" : "f32",
               v->major, v->minor, v->patch, v->hash);
    for (size_t i = 0; i < BASE_COUNT(settings); i++) {
        const char *set = getenv(settings[i]);
        buf_printf(&b, "|%s", set != NULL ? set : "");
    }
    for (int s = 0; s < g->nshapes; s++)
        buf_printf(&b, "|%d %d", g->shapes[s].k, g->shapes[s].n);
    for (int type = 0; type < GEMM_TYPES; type++)
        if (g->in_bytes[type])
            buf_printf(&b, "|in bytes, %d", type);
    hash128 h = hash_128(b.p, b.n);
    buf_free(&b);
    return h;
}

static void probe_fill(float *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = hash_mix(seed, i);
        x[i] = (float)((double)(bits >> 11) * 0x1p-53 - 0.5);
    }
}

static uint16_t bf16_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* Returns `height` rows in the wide type. Row i is a copy of row (i * step + shift) mod PROBE_ROWS
 * of a. */
static void *probe_rows(const gemm *g, const float *a, int k, int height, int step, int shift) {
    char *out = mem_alloc((size_t)height * gemm_row_bytes(g->wide, k));
    for (int i = 0; i < height; i++) {
        const float *row = a + (size_t)((i * step + shift) % PROBE_ROWS) * (size_t)k;
        for (int j = 0; j < k; j++)
            if (g->wide == GEMM_BF16)
                ((uint16_t *)(void *)out)[(size_t)i * (size_t)k + (size_t)j] = bf16_of(row[j]);
            else
                ((float *)(void *)out)[(size_t)i * (size_t)k + (size_t)j] = row[j];
    }
    return out;
}

/* True if every height gives each row the same bits at several indexes of the tile. Fills reference
 * [PROBE_ROWS, n] with these bits. */
static bool shape_agrees(gemm *g, int s, const float *a, dnnl_memory_t weights, float *reference) {
    gemm_shape *shape = &g->shapes[s];
    static const int steps[] = {1, 3, 7};
    bool *known = mem_zalloc(PROBE_ROWS), same = true;
    size_t bytes = sizeof(float) * (size_t)shape->n;
    for (int h = 0; h < g->nheights; h++) {
        int height = g->heights[h];
        float *c = mem_alloc(bytes * (size_t)height);
        for (int shift = 0; shift < PROBE_ROWS; shift += BASE_MAX(height / 2, 8)) {
            int step = steps[(shift / 8) % 3];
            void *rows = probe_rows(g, a, shape->k, height, step, shift);
            kernel_run(g, &shape->kernels[h], weights, 0, rows, c);
            free(rows);
            for (int i = 0; i < height; i++) {
                int row = (i * step + shift) % PROBE_ROWS;
                float *ref = reference + (size_t)row * (size_t)shape->n;
                if (!known[row]) {
                    memcpy(ref, c + (size_t)i * (size_t)shape->n, bytes);
                    known[row] = true;
                }
                same = same && memcmp(ref, c + (size_t)i * (size_t)shape->n, bytes) == 0;
            }
        }
        free(c);
    }
    free(known);
    return same;
}

static bool heights_agree(gemm *g, hash128 *digest) {
    bool same = true;
    hash128 sum = {0, 0};
    for (int s = 0; s < g->nshapes && same; s++) {
        gemm_shape *shape = &g->shapes[s];
        size_t k = (size_t)shape->k, n = (size_t)shape->n;
        float *a = mem_alloc(sizeof(float) * PROBE_ROWS * k), *w = mem_alloc(sizeof(float) * k * n);
        float *reference = mem_zalloc(sizeof(float) * PROBE_ROWS * n);
        probe_fill(a, PROBE_ROWS * k, 1);
        probe_fill(w, k * n, 2);
        dnnl_memory_t weights = NULL;
        same = pack(g, shape, w, DNNL_MEMORY_ALLOCATE, &weights) == dnnl_success &&
               shape_agrees(g, s, a, weights, reference);
        hash128 h = hash_128(reference, sizeof(float) * (size_t)g->heights[g->nheights - 1] * n);
        sum.low = hash_mix(sum.low, h.low);
        sum.high = hash_mix(sum.high, h.high);
        dnnl_memory_destroy(weights);
        free(a);
        free(w);
        free(reference);
    }
    *digest = sum;
    return same;
}

/* Mixes fixed products of weights in bytes into the digest. These products need no comparison of
 * heights (int8_int.h). */
static void bytes_digest(const gemm *g, gemm_type type, hash128 *digest) {
    enum { ROWS = 7, K = 4 * INT8_GROUP, N = INT8_COLUMNS };
    float w[N * K], a[ROWS * K], c[ROWS * N];
    _Alignas(INT8_ALIGN) char panels[K / INT8_GROUP * INT8_PANEL_GROUP];
    char rows[ROWS * (K / INT8_GROUP) * INT8_OPERAND_GROUP];
    probe_fill(a, ROWS * K, 1);
    probe_fill(w, N * K, 2);
    g->int8->pack(w, N, K, panels);
    for (size_t i = 0; i < ROWS; i++)
        g->int8->store(a + i * K, K, gemm_planes(type), rows + i * gemm_row_bytes(type, K));
    g->int8->product(rows, ROWS, gemm_planes(type), panels, N, K, c);
    hash128 h = hash_128(c, sizeof c);
    digest->low = hash_mix(digest->low, h.low);
    digest->high = hash_mix(digest->high, h.high);
}

/* Allocates each worker's buffer for results. Returns false if memory is short. */
static bool outputs_new(gemm *g) {
    size_t bytes = sizeof(float) * (size_t)g->heights[0] * MAX_PART;
    bool made = true;
    for (int w = 0; w < g->workers && made; w++) {
        g->out[w] = aligned_alloc(64, bytes);
        made = g->out[w] != NULL;
        if (made)
            memset(g->out[w], 0, bytes);
    }
    return made;
}

int gemm_probe(gemm *g, hash128 *digest, err *e) {
    static const int candidates[][MAX_HEIGHTS] = {
        /* height 1 is for decoding at batch 1, where memory bandwidth is the limit */
        {GEMM_TILE, GEMM_SMALL, 4, 1},
        {GEMM_TILE, GEMM_SMALL, 1},
        {GEMM_TILE, GEMM_SMALL, 4},
        {GEMM_TILE, GEMM_SMALL},
        {GEMM_TILE, 32},
        {GEMM_TILE},
        {32},
        {GEMM_SMALL},
        {1}};
    bool any = false;
    omp_set_num_threads(1);
    for (size_t i = 0; i < BASE_COUNT(candidates); i++) {
        g->nheights = 0;
        while (g->nheights < MAX_HEIGHTS && candidates[i][g->nheights] > 0)
            g->nheights++;
        memcpy(g->heights, candidates[i], sizeof g->heights);
        bool made = kernels_make(g, g->heights, g->nheights);
        any = any || made;
        if (made && heights_agree(g, digest)) {
            for (int type = 0; type < GEMM_TYPES; type++)
                if (g->in_bytes[type])
                    bytes_digest(g, (gemm_type)type, digest);
            return outputs_new(g) ? 0 : fail(e, dnnl_out_of_memory, "making buffers");
        }
        kernels_drop(g);
    }
    bool bf16 = g->wide == GEMM_BF16;
    err_set(e, ERR_UNSUPPORTED,
            any ? "oneDNN's %s matrix products are not reproducible on this processor: a result "
                  "depends on its place in the batch"
                : "oneDNN has no %s matrix products for this processor",
            bf16 ? "bf16" : "f32");
    err_hint(e, "SET precision = '%s'", bf16 ? "f32" : "bf16");
    return ERR_UNSUPPORTED;
}

static int height_at(const gemm *g, int rows) {
    int h = g->nheights - 1;
    while (h > 0 && g->heights[h] < rows)
        h--;
    return h;
}

int gemm_height(const gemm *g, int rows) {
    return g->heights[height_at(g, rows)];
}

int gemm_tile(const gemm *g) {
    return g->heights[0];
}

const float *gemm_run(gemm *g, const gemm_weight *w, int part, int worker, int rows,
                      const void *a) {
    const gemm_part *p = &w->parts[part];
    if (gemm_in_bytes(w->type)) {
        g->int8->product(a, rows, gemm_planes(w->type), p->memory, p->n, w->k, g->out[worker]);
        return g->out[worker];
    }
    gemm_kernel *kernel = &g->shapes[p->shape].kernels[height_at(g, rows)];
    kernel_run(g, kernel, p->memory, worker, a, g->out[worker]);
    return g->out[worker];
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Returns the CPU time of this thread: the load of other processes must not determine the
 * precision. */
static double seconds(void) {
    return clock_thread_ms() / 1e3;
}

enum { MEASURED_RUNS = 12 };

/* Measures the FLOP/s of oneDNN's product, as the maximum of MEASURED_RUNS runs. */
static double wide_measure(gemm_type type, int k, int n, float *w, const float *a, float *c) {
    gemm *g = NULL;
    err e = {0};
    if (gemm_new(NULL, type, &g, &e) != 0)
        return 0;
    double best = 0;
    g->heights[0] = GEMM_TILE;
    g->nheights = 1;
    shape_find(g, k, n, &e);
    dnnl_memory_t weights = NULL;
    if (kernels_make(g, g->heights, 1) &&
        pack(g, &g->shapes[0], w, DNNL_MEMORY_ALLOCATE, &weights) == dnnl_success) {
        void *rows = probe_rows(g, a, k, GEMM_TILE, 1, 0);
        for (int i = 0; i < MEASURED_RUNS; i++) {
            double start = seconds();
            kernel_run(g, &g->shapes[0].kernels[0], weights, 0, rows, c);
            best = BASE_MAX(best, 2.0 * GEMM_TILE * k * n / (seconds() - start));
        }
        dnnl_memory_destroy(weights);
        free(rows);
    }
    gemm_free(g);
    return best;
}

static double bytes_measure(gemm_type type, int k, int n, const float *w, const float *a,
                            float *c) {
    const int8_kernels *int8 = int8_choose();
    if (int8 == NULL || k % INT8_GROUP != 0)
        return 0;
    double best = 0;
    void *panels = aligned_alloc(INT8_ALIGN, int8_weight_bytes(n, k));
    char *rows = mem_alloc(GEMM_TILE * gemm_row_bytes(type, k));
    for (int i = 0; i < GEMM_TILE; i++)
        int8->store(a + (size_t)i * (size_t)k, k, gemm_planes(type),
                    rows + (size_t)i * gemm_row_bytes(type, k));
    if (panels != NULL)
        int8->pack(w, n, k, panels);
    for (int i = 0; panels != NULL && i < MEASURED_RUNS; i++) {
        double start = seconds();
        int8->product(rows, GEMM_TILE, gemm_planes(type), panels, n, k, c);
        best = BASE_MAX(best, 2.0 * GEMM_TILE * k * n / (seconds() - start));
    }
    free(rows);
    free(panels);
    return best;
}

double gemm_measure(gemm_type type, int k, int n) {
    float *w = mem_alloc(sizeof(float) * (size_t)k * (size_t)n);
    float *a = mem_alloc(sizeof(float) * PROBE_ROWS * (size_t)k);
    float *c = mem_alloc(sizeof(float) * GEMM_TILE * (size_t)n);
    probe_fill(w, (size_t)k * (size_t)n, 2);
    probe_fill(a, (size_t)k * PROBE_ROWS, 1);
    double rate = gemm_in_bytes(type) ? bytes_measure(type, k, n, w, a, c)
                                      : wide_measure(type, k, n, w, a, c);
    free(a);
    free(w);
    free(c);
    return rate;
}
