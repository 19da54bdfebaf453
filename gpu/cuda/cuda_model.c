/*
 * cuda_model.c - loads a model file's tensors as bf16 matrices on the card.
 *
 * Rows are dequantised on the host by quant.c, in parallel, into a pinned buffer, and copied from
 * there. Invariant: every tensor type that the CPU backend can read can be read here, by the same
 * code. config.c decides what an architecture consists of.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels_int.h"
#include "cuda_int.h"
#include "storage/containers.h"

enum { LOAD_ROWS = 16 };                            /* rows per task of the thread pool */
static const size_t STAGE_BYTES = (size_t)64 << 20; /* minimum size of the pinned buffer */

/* Rows [first, first + rows) of a tensor. */
typedef struct tensor_rows {
    const gguf_tensor *t;
    int first, rows;
} tensor_rows;

typedef struct loader {
    llm_engine *engine;
    cuda_state *s;
    const kernels *k;
    uint16_t *stage; /* pinned */
    size_t stage_bytes;
    uint64_t seed; /* for random weights */
    err *e;
    int code; /* the first error, after which later steps do nothing */
} loader;

/* ---- memory ---------------------------------------------------------------------------------- */

void *cuda_engine_alloc(cuda_state *s, size_t bytes, const char *what, err *e) {
    void *p = NULL;
    if (cuda_check(cudaMalloc(&p, bytes), what, e) != 0)
        return NULL;
    ARRAY_PUSH(s->allocations, s->nallocations, s->allocations_cap, p);
    s->weight_bytes += bytes;
    return p;
}

static void *weights_alloc(loader *l, size_t bytes) {
    if (l->code != 0)
        return NULL;
    void *p = cuda_engine_alloc(l->s, bytes, "memory for the model's weights", l->e);
    l->code = p == NULL ? (int)l->e->code : 0;
    return p;
}

static void check(loader *l, cudaError_t status, const char *what) {
    if (l->code == 0)
        l->code = cuda_check(status, what, l->e);
}

/* ---- matrices -------------------------------------------------------------------------------- */

typedef struct convert_job {
    loader *l;
    const gguf_tensor *t;
    int first, rows;
    size_t columns;
} convert_job;

static void convert_task(void *ctx, int task, int worker) {
    (void)worker;
    const convert_job *job = ctx;
    int at = task * LOAD_ROWS, rows = BASE_MIN(LOAD_ROWS, job->rows - at);
    float *wide = mem_alloc(sizeof *wide * (size_t)rows * job->columns);
    model_tensor_rows(job->t, (uint64_t)(job->first + at), (uint64_t)rows, wide);
    uint16_t *to = job->l->stage + (size_t)at * job->columns;
    for (int i = 0; i < rows; i++) {
        job->l->k->to_bf16(wide + (size_t)i * job->columns, (int)job->columns,
                           to + (size_t)i * job->columns);
    }
    free(wide);
}

static void rows_load(loader *l, tensor_rows source, size_t columns, uint16_t *to) {
    size_t fit = l->stage_bytes / (columns * sizeof(uint16_t));
    for (int at = 0; at < source.rows && l->code == 0;) {
        int rows = (int)BASE_MIN((size_t)(source.rows - at), fit);
        convert_job job = {l, source.t, source.first + at, rows, columns};
        pool_run(l->s->threads, (rows + LOAD_ROWS - 1) / LOAD_ROWS, convert_task, &job);
        if ((l->code = pool_check(l->s->threads, l->e)) != 0)
            return;
        size_t bytes = (size_t)rows * columns * sizeof(uint16_t);
        check(l,
              cudaMemcpyAsync(to + (size_t)at * columns, l->stage, bytes, cudaMemcpyHostToDevice,
                              l->s->stream),
              "copying weights");
        check(l, cudaStreamSynchronize(l->s->stream), "copying weights");
        at += rows;
    }
}

/* Loads a matrix [rows, columns] that consists of `count` pieces, one below the other. */
static uint16_t *matrix_load(loader *l, int rows, int columns, const tensor_rows *pieces,
                             int count) {
    size_t width = (size_t)columns, at = 0;
    uint16_t *matrix = weights_alloc(l, (size_t)rows * width * sizeof(uint16_t));
    if (matrix == NULL)
        return NULL;
    if (l->engine->file == NULL) {
        /* makes outputs half as large as inputs, which keeps the residual stream in range */
        float scale = sqrtf(3.0f / (float)columns);
        check(l, k_random(matrix, (size_t)rows * width, l->seed++ << 40, scale, l->s->stream),
              "random weights");
        return matrix;
    }
    for (int i = 0; i < count; i++) {
        rows_load(l, pieces[i], width, matrix + at * width);
        at += (size_t)pieces[i].rows;
    }
    return matrix;
}

static const gguf_tensor *tensor(const loader *l, int layer, const char *name) {
    return l->engine->file != NULL ? model_tensor(l->engine->file, layer, name) : NULL;
}

static uint16_t *qkv_load(loader *l, int layer) {
    const model_config *c = &l->engine->config;
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    tensor_rows pieces[3] = {{tensor(l, layer, "attn_q.weight"), 0, q},
                             {tensor(l, layer, "attn_k.weight"), 0, kv},
                             {tensor(l, layer, "attn_v.weight"), 0, kv}};
    tensor_rows fused = {tensor(l, layer, "attn_qkv.weight"), 0, q + 2 * kv};
    return matrix_load(l, q + 2 * kv, c->n_embd, c->fused_qkv ? &fused : pieces,
                       c->fused_qkv ? 1 : 3);
}

static uint16_t *gate_up_load(loader *l, int layer) {
    const model_config *c = &l->engine->config;
    tensor_rows pieces[2] = {{tensor(l, layer, "ffn_gate.weight"), 0, c->ffn},
                             {tensor(l, layer, "ffn_up.weight"), 0, c->ffn}};
    tensor_rows fused = {tensor(l, layer, "ffn_up.weight"), 0, 2 * c->ffn};
    return matrix_load(l, 2 * c->ffn, c->n_embd, c->fused_gate_up ? &fused : pieces,
                       c->fused_gate_up ? 1 : 2);
}

static uint16_t *plain_load(loader *l, int layer, const char *name, int rows, int columns) {
    tensor_rows piece = {tensor(l, layer, name), 0, rows};
    return matrix_load(l, rows, columns, &piece, 1);
}

/* ---- vectors --------------------------------------------------------------------------------- */

static float *floats_send(loader *l, const float *values, int n) {
    float *out = weights_alloc(l, sizeof(float) * (size_t)n);
    if (out != NULL) {
        check(l, cudaMemcpy(out, values, sizeof(float) * (size_t)n, cudaMemcpyHostToDevice),
              "copying a vector");
    }
    return out;
}

/* Loads a vector of n values: the named tensors, concatenated. Without a file, all values are 1. */
static float *vector_load(loader *l, int layer, const char *const *names, int count, int n) {
    float *values = mem_alloc(sizeof *values * (size_t)n);
    for (int i = 0; i < n; i++)
        values[i] = 1;
    int at = 0;
    for (int i = 0; i < count && l->engine->file != NULL; i++) {
        const gguf_tensor *t = tensor(l, layer, names[i]);
        model_tensor_rows(t, 0, 1, values + at);
        at += (int)t->dims[0];
    }
    float *out = floats_send(l, values, n);
    free(values);
    return out;
}

static float *one_vector(loader *l, int layer, const char *name, int n) {
    return vector_load(l, layer, &name, 1, n);
}

static void layer_vectors_load(loader *l, int i, cuda_layer *y) {
    const model_config *c = &l->engine->config;
    static const char *const split[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias"};
    static const char *const fused[] = {"attn_qkv.bias"};
    y->attn_norm = one_vector(l, i, "attn_norm.weight", c->n_embd);
    y->ffn_norm = one_vector(l, i, "ffn_norm.weight", c->n_embd);
    if (c->post_norm) {
        y->post_attn_norm = one_vector(l, i, "post_attention_norm.weight", c->n_embd);
        y->post_ffn_norm = one_vector(l, i, "post_ffw_norm.weight", c->n_embd);
    }
    if (c->output_bias)
        y->o_bias = one_vector(l, i, "attn_output.bias", c->n_embd);
    if (c->qk_norm) {
        y->q_norm = one_vector(l, i, "attn_q_norm.weight", c->head_dim);
        y->k_norm = one_vector(l, i, "attn_k_norm.weight", c->head_dim);
    }
    if (c->qkv_bias) {
        int n = (c->n_heads + 2 * c->n_kv_heads) * c->head_dim;
        y->qkv_bias =
            c->fused_qkv ? vector_load(l, i, fused, 1, n) : vector_load(l, i, split, 3, n);
    }
    y->has_rope = config_layer_has_rope(c, i);
    y->window = config_layer_window(c, i);
}

/* ---- the model ------------------------------------------------------------------------------- */

static void rope_load(loader *l) {
    const model_config *c = &l->engine->config;
    cuda_state *s = l->s;
    float all[CONFIG_MAX_HEAD_DIM / 2], local[CONFIG_MAX_HEAD_DIM / 2];
    config_rope_frequencies(c, 0, local);
    memcpy(all, local, sizeof all);
    for (int i = 0; i < c->n_layers; i++)
        config_rope_frequencies(c, i, s->layers[i].window > 0 ? local : all);
    s->two_ropes = memcmp(all, local, sizeof(float) * (size_t)(c->rope_dims / 2)) != 0;
    s->frequencies = floats_send(l, all, c->rope_dims / 2);
    s->frequencies_local = floats_send(l, local, c->rope_dims / 2);
    s->rope_magnitude = config_rope_magnitude(c);
}

static void model_read(loader *l) {
    const model_config *c = &l->engine->config;
    cuda_state *s = l->s;
    s->layers = ARENA_ARRAY(l->engine->mem, cuda_layer, c->n_layers);
    s->embedding = plain_load(l, -1, "token_embd.weight", c->vocab, c->n_embd);
    s->head = c->tied_head ? s->embedding : plain_load(l, -1, "output.weight", c->vocab, c->n_embd);
    s->final_norm = one_vector(l, -1, "output_norm.weight", c->n_embd);
    for (int i = 0; i < c->n_layers && l->code == 0; i++) {
        cuda_layer *y = &s->layers[i];
        y->qkv = qkv_load(l, i);
        y->o = plain_load(l, i, "attn_output.weight", c->n_embd, c->n_heads * c->head_dim);
        y->gate_up = gate_up_load(l, i);
        y->down = plain_load(l, i, "ffn_down.weight", c->n_embd, c->ffn);
        layer_vectors_load(l, i, y);
    }
    if (l->code == 0)
        rope_load(l);
}

static int plans_declare(llm_engine *engine, err *e) {
    const model_config *c = &engine->config;
    cuda_state *s = engine->state;
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    /* with a post-norm the branch is normed before it is added, so the product must not add it */
    cuda_gemm_out branch = c->post_norm ? CUDA_GEMM_F32 : CUDA_GEMM_ADDS;
    s->plan_qkv = cuda_gemm_declare(s->g, q + 2 * kv, c->n_embd, CUDA_GEMM_F32, CUDA_PASS_ROWS, e);
    s->plan_o = cuda_gemm_declare(s->g, c->n_embd, q, branch, CUDA_PASS_ROWS, e);
    s->plan_gate_up =
        cuda_gemm_declare(s->g, 2 * c->ffn, c->n_embd, CUDA_GEMM_BF16, CUDA_PASS_ROWS, e);
    s->plan_down = cuda_gemm_declare(s->g, c->n_embd, c->ffn, branch, CUDA_PASS_ROWS, e);
    s->plan_head = cuda_gemm_declare(s->g, c->vocab, c->n_embd, CUDA_GEMM_F32, CUDA_HEAD_ROWS, e);
    int plans[] = {s->plan_qkv, s->plan_o, s->plan_gate_up, s->plan_down, s->plan_head};
    for (size_t i = 0; i < BASE_COUNT(plans); i++)
        if (plans[i] < 0)
            return (int)e->code;
    return 0;
}

int cuda_load(llm_engine *engine, hash128 *digest, err *e) {
    cuda_state *s = engine->state;
    *digest = (hash128){0};
    int code = plans_declare(engine, e);
    code = code != 0
               ? code
               : cuda_gemm_probe(s->g, s->stream,
                                 s->probe_rows > 0 ? s->probe_rows : CUDA_PROBE_ROWS, digest, e);
    if (code != 0)
        return code;
    const model_config *c = &engine->config;
    size_t widest =
        (size_t)BASE_MAX(BASE_MAX(c->n_embd, c->ffn), c->n_heads * c->head_dim) * sizeof(uint16_t);
    loader l = {.engine = engine,
                .s = s,
                .k = kernels_choose(engine->config.head_dim, false),
                .e = e,
                .seed = 7};
    l.stage_bytes = BASE_MAX(STAGE_BYTES, widest * LOAD_ROWS);
    code = cuda_check(cudaMallocHost((void **)&l.stage, l.stage_bytes), "a pinned buffer", e);
    if (code != 0)
        return code;
    model_read(&l);
    /* waits for all streams; the default stream copies the vectors */
    check(&l, cudaDeviceSynchronize(), "loading the model");
    cudaFreeHost(l.stage);
    return l.code;
}
