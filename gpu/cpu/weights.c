/*
 * weights.c - reads a file's tensors into packed matrices, in parallel.
 *
 * Owns the order of rows (weights_int.h). Invariant: a matrix is never dequantised as a whole; each
 * part is dequantised into a temporary buffer and packed from there. config.c decides which tensors
 * an architecture has.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weights_int.h"

/* ---- rows in the pass's order ---------------------------------------------------------------- */

typedef struct row_source {
    const packed_model *m;
    int layer;
    const gemm_weight *w;
} row_source;

/* Returns the file's index of dimension i of a head. The rope kernel pairs dimensions of the two
 * halves; the file's rope may pair neighbours. */
static int head_dimension(const model_config *c, int i) {
    int half = c->rope_dims / 2;
    if (c->pairing == ROPE_HALVES || i >= c->rope_dims)
        return i;
    return i < half ? 2 * i : 2 * (i - half) + 1;
}

static int permuted_row(const model_config *c, int row) {
    return row / c->head_dim * c->head_dim + head_dimension(c, row % c->head_dim);
}

/* Reads row `row` of the matrix of q, k and v, or element `row` of its bias. `kind` is "weight" or
 * "bias". */
static void qkv_read(const row_source *s, int row, const char *kind, float *out) {
    const model_config *c = s->m->config;
    int q = c->n_heads * c->head_dim, k = c->n_kv_heads * c->head_dim;
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v"};
    int part = row < q ? 0 : row < q + k ? 1 : 2;
    int base = part == 0 ? 0 : part == 1 ? q : q + k;
    int local = part < 2 ? permuted_row(c, row - base) : row - base;
    char name[64];
    if (c->fused_qkv) {
        snprintf(name, sizeof name, "attn_qkv.%s", kind);
        local += base;
    } else {
        snprintf(name, sizeof name, "%s.%s", parts[part], kind);
    }
    const gguf_tensor *t = model_tensor(s->m->file, s->layer, name);
    if (t->ndims == 1 || t->dims[1] <= 1) {
        /* a bias: reads the whole vector for one element */
        float *whole = mem_alloc(sizeof(float) * (size_t)t->dims[0]);
        model_tensor_rows(t, 0, 1, whole);
        *out = whole[local];
        free(whole);
        return;
    }
    model_tensor_rows(t, (uint64_t)local, 1, out);
}

static void qkv_row(const void *ctx, int row, float *out) {
    qkv_read(ctx, row, "weight", out);
}

static void gate_up_row(const void *ctx, int row, float *out) {
    const row_source *s = ctx;
    const gemm_part *part = &s->w->parts[row / s->w->parts[0].n];
    if (s->m->config->ungated) {
        model_tensor_rows(model_tensor(s->m->file, s->layer, "ffn_up.weight"), (uint64_t)row, 1,
                          out);
        return;
    }
    int half = part->n / 2, local = row - part->first;
    bool up = local >= half;
    int source = part->first / 2 + (up ? local - half : local);
    bool fused = s->m->config->fused_gate_up;
    const char *name = fused || up ? "ffn_up.weight" : "ffn_gate.weight";
    source += fused && up ? s->m->config->ffn : 0;
    model_tensor_rows(model_tensor(s->m->file, s->layer, name), (uint64_t)source, 1, out);
}

static void o_row(const void *ctx, int row, float *out) {
    const row_source *s = ctx;
    model_tensor_rows(model_tensor(s->m->file, s->layer, "attn_output.weight"), (uint64_t)row, 1,
                      out);
}

static void down_row(const void *ctx, int row, float *out) {
    const row_source *s = ctx;
    model_tensor_rows(model_tensor(s->m->file, s->layer, "ffn_down.weight"), (uint64_t)row, 1, out);
}

void model_head_row(const packed_model *m, int id, float *out) {
    model_tensor_rows(m->head_tensor, (uint64_t)id, 1, out);
}

static void head_row(const void *ctx, int row, float *out) {
    const packed_model *m = ((const row_source *)ctx)->m;
    model_head_row(m, row, out);
    if (m->screen != NULL)
        head_screen_set(m->screen, row, out);
}

void model_embed(const packed_model *m, int id, int position, float *scratch, float *out) {
    model_tensor_rows(m->embedding, (uint64_t)id, 1, out);
    float scale = m->config->embd_scale;
    int n = m->config->n_embd;
    for (int i = 0; scale != 1.0f && i < n; i++)
        out[i] *= scale;
    for (int i = 0; m->type != NULL && i < n; i++)
        out[i] += m->type[i];
    if (m->positions == NULL)
        return;
    model_tensor_rows(m->positions, (uint64_t)position, 1, scratch);
    for (int i = 0; i < n; i++)
        out[i] += scratch[i];
}

/* ---- small tensors --------------------------------------------------------------------------- */

static float *rows_load(packed_model *m, const gguf_tensor *t, uint64_t rows) {
    if (t == NULL)
        return NULL;
    float *out = ARENA_ARRAY(m->mem, float, t->dims[0] * rows);
    model_tensor_rows(t, 0, rows, out);
    return out;
}

static float *vector_load(packed_model *m, int layer, const char *name) {
    return rows_load(m, model_tensor(m->file, layer, name), 1);
}

/* Loads the weights of a norm and, for a layer norm, its bias. */
static void norm_load(packed_model *m, int layer, norm_place place, float **weight, float **bias) {
    const model_config *c = m->config;
    *weight = rows_load(m, config_norm(m->file, c, layer, place, "weight"), 1);
    *bias = c->layer_norm ? rows_load(m, config_norm(m->file, c, layer, place, "bias"), 1) : NULL;
}

static float *head_norm_load(packed_model *m, int layer, const char *name) {
    float *plain = vector_load(m, layer, name);
    float *out = ARENA_ARRAY(m->mem, float, m->config->head_dim);
    for (int i = 0; i < m->config->head_dim; i++)
        out[i] = plain[head_dimension(m->config, i)];
    return out;
}

static void layer_load_vectors(packed_model *m, int l) {
    const model_config *c = m->config;
    model_layer *layer = &m->layers[l];
    norm_load(m, l, NORM_ATTENTION, &layer->attn_norm, &layer->attn_norm_bias);
    norm_load(m, l, NORM_FFN, &layer->ffn_norm, &layer->ffn_norm_bias);
    if (c->post_norm) {
        layer->post_attn_norm = vector_load(m, l, "post_attention_norm.weight");
        layer->post_ffn_norm = vector_load(m, l, "post_ffw_norm.weight");
    }
    if (c->output_bias)
        layer->o_bias = vector_load(m, l, "attn_output.bias");
    if (c->ffn_bias) {
        layer->up_bias = vector_load(m, l, "ffn_up.bias");
        layer->down_bias = vector_load(m, l, "ffn_down.bias");
    }
    if (c->qk_norm) {
        layer->q_norm = head_norm_load(m, l, "attn_q_norm.weight");
        layer->k_norm = head_norm_load(m, l, "attn_k_norm.weight");
    }
    if (c->qkv_bias) {
        int n = (c->n_heads + 2 * c->n_kv_heads) * c->head_dim;
        row_source s = {m, l, NULL};
        layer->qkv_bias = ARENA_ARRAY(m->mem, float, n);
        for (int i = 0; i < n; i++)
            qkv_read(&s, i, "bias", &layer->qkv_bias[i]);
    }
    layer->has_rope = config_layer_has_rope(c, l);
    layer->window = config_layer_window(c, l);
}

/* ---- packing --------------------------------------------------------------------------------- */

typedef struct pack_job {
    gemm_weight *w;
    int part, layer;
    gemm_row row;
} pack_job;

typedef struct pack_work {
    packed_model *m;
    pack_job *jobs;
    int count;
    atomic_int failed;
    err first_error;
} pack_work;

static void pack_task(void *ctx, int task, int worker) {
    (void)worker;
    pack_work *work = ctx;
    pack_job *job = &work->jobs[task];
    /* an earlier load, which was cancelled, has packed the part */
    if (job->w->parts[job->part].memory != NULL)
        return;
    row_source source = {work->m, job->layer, job->w};
    err e = {0};
    if (gemm_pack(work->m->g, job->w, job->part, job->row, &source, &e) != 0 &&
        atomic_exchange(&work->failed, 1) == 0)
        work->first_error = e;
}

static void jobs_add(pack_work *work, gemm_weight *w, int layer, gemm_row row) {
    for (int p = 0; p < w->nparts; p++)
        work->jobs[work->count++] = (pack_job){w, p, layer, row};
}

static int pack_all(packed_model *m, pool *threads, err *e) {
    int total = m->head.nparts;
    for (int l = 0; l < m->config->n_layers; l++) {
        model_layer *y = &m->layers[l];
        total += y->qkv.nparts + y->o.nparts + y->gate_up.nparts + y->down.nparts;
    }
    pack_work work = {.m = m, .jobs = mem_alloc(sizeof(pack_job) * (size_t)total)};
    for (int l = 0; l < m->config->n_layers; l++) {
        model_layer *y = &m->layers[l];
        jobs_add(&work, &y->qkv, l, qkv_row);
        jobs_add(&work, &y->o, l, o_row);
        jobs_add(&work, &y->gate_up, l, gate_up_row);
        jobs_add(&work, &y->down, l, down_row);
    }
    jobs_add(&work, &m->head, -1, head_row);
    pool_run(threads, work.count, pack_task, &work);
    free(work.jobs);
    if (atomic_load(&work.failed)) {
        *e = work.first_error;
        return (int)e->code;
    }
    return pool_check(threads, e);
}

/* ---- loading --------------------------------------------------------------------------------- */

bool model_fits_bytes(const gguf_tensor *t, int levels) {
    int own = quant_find(t->type)->levels;
    return levels == 255 || (own > 0 && own <= levels);
}

/* Returns the number of columns of a part if a weight of n columns is split into about `parts`
 * parts. Parts are small enough that all threads have work even with few rows. */
static int part_columns(int n, int parts) {
    int part = (n / parts + 31) / 32 * 32;
    return BASE_MIN(BASE_MAX(part, 64), 512);
}

static const char *const split_qkv[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight", NULL};
static const char *const fused_qkv[] = {"attn_qkv.weight", NULL};
static const char *const attn_o[] = {"attn_output.weight", NULL};
static const char *const split_gate_up[] = {"ffn_gate.weight", "ffn_up.weight", NULL};
static const char *const up_alone[] = {"ffn_up.weight", NULL}; /* fused with the gate, or no gate */
static const char *const ffn_down[] = {"ffn_down.weight", NULL};

/* Returns the type `wanted`, or the wide type if `wanted` is a type in bytes and a tensor of the
 * matrix does not fit it. */
static gemm_type type_for(const packed_model *m, int layer, gemm_type wanted,
                          const char *const *from) {
    bool fits = true;
    for (; *from != NULL; from++)
        fits = fits && model_fits_bytes(model_tensor(m->file, layer, *from), m->types.levels);
    return gemm_in_bytes(wanted) && !fits ? m->types.wide : wanted;
}

static int weights_declare(packed_model *m, err *e) {
    const model_config *c = m->config;
    int heads = c->n_heads * c->head_dim, qkv = heads + 2 * c->n_kv_heads * c->head_dim, code = 0;
    int part = part_columns(c->n_embd, 8);
    for (int l = 0; l < c->n_layers && code == 0; l++) {
        model_layer *y = &m->layers[l];
        gemm_type rest = l == c->n_layers - 1 ? m->types.last : m->types.rest;
        struct {
            gemm_type type;
            const char *const *from;
            int n, k, part;
            gemm_weight *out;
        } const all[] = {{m->types.qkv, c->fused_qkv ? fused_qkv : split_qkv, qkv, c->n_embd,
                          part_columns(qkv, 6), &y->qkv},
                         {rest, attn_o, c->n_embd, heads, part, &y->o},
                         {rest, c->fused_gate_up || c->ungated ? up_alone : split_gate_up,
                          c->ungated ? c->ffn : 2 * c->ffn, c->n_embd, 384, &y->gate_up},
                         {rest, ffn_down, c->n_embd, c->ffn, part, &y->down}};
        for (size_t i = 0; i < BASE_COUNT(all) && code == 0; i++) {
            gemm_type type = type_for(m, l, all[i].type, all[i].from);
            code = gemm_declare(m->g, type, all[i].n, all[i].k, all[i].part, all[i].out, e);
        }
    }
    if (code != 0 || c->pooling != POOL_NONE)
        return code;
    return gemm_declare(m->g, m->types.head, c->vocab, c->n_embd, 512, &m->head, e);
}

int model_declare(packed_model *m, const gguf *file, const model_config *config, gemm *g,
                  const model_types *types, err *e) {
    *m =
        (packed_model){.file = file, .config = config, .g = g, .types = *types, .mem = arena_new()};
    m->layers = ARENA_ARRAY(m->mem, model_layer, config->n_layers);
    m->embedding = model_tensor(file, -1, "token_embd.weight");
    m->head_tensor = config->tied_head ? m->embedding : model_tensor(file, -1, "output.weight");
    m->positions = config->positions ? model_tensor(file, -1, "position_embd.weight") : NULL;
    return weights_declare(m, e);
}

int model_load(packed_model *m, pool *threads, hash128 *digest, err *e) {
    int code = m->begun ? 0 : gemm_probe(m->g, &m->digest, e);
    if (code != 0)
        return code;
    if (!m->begun) {
        const model_config *c = m->config;
        norm_load(m, c->n_layers, NORM_FINAL, &m->final_norm, &m->final_norm_bias);
        if (c->types)
            m->type = vector_load(m, -1, "token_types.weight");
        if (c->dense > 0) {
            m->dense[0] = rows_load(m, gguf_find(m->file, "dense_2.weight"), (uint64_t)c->dense);
            m->dense[1] = rows_load(m, gguf_find(m->file, "dense_3.weight"), (uint64_t)c->n_embd);
        }
        for (int l = 0; l < m->config->n_layers; l++)
            layer_load_vectors(m, l);
    }
    m->begun = true;
    *digest = m->digest;
    return pack_all(m, threads, e);
}

void model_free(packed_model *m) {
    for (int l = 0; m->layers != NULL && l < m->config->n_layers; l++) {
        gemm_weight_free(&m->layers[l].qkv);
        gemm_weight_free(&m->layers[l].o);
        gemm_weight_free(&m->layers[l].gate_up);
        gemm_weight_free(&m->layers[l].down);
    }
    gemm_weight_free(&m->head);
    head_screen_free(m->screen);
    arena_free(m->mem);
    *m = (packed_model){0};
}
