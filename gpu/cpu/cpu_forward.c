/*
 * cpu_forward.c - a pass through the layers on the CPU.
 *
 * Work is split into tiles of rows and parts of columns. With many tiles, a task runs one tile
 * through several stages of a layer. With few tiles, every stage is run separately, as tiles ×
 * parts tasks. Both ways do the same operations on each row in the same order. So the choice, by
 * numbers of rows and threads, does not change the bits. The end of the last layer and the head run
 * only for the wanted rows.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cpu_int.h"

/* ---- stages ---------------------------------------------------------------------------------- */

void cpu_norm(const cpu_work *w, const float *x, const float *weight, const float *bias,
              float *out) {
    const model_config *c = &w->engine->config;
    if (bias != NULL)
        w->s->k->layer_norm(x, weight, bias, c->eps, c->n_embd, out);
    else
        w->s->k->rms_norm(x, weight, c->eps, c->n_embd, out);
}

/* Computes a = norm(x), or with a layer norm x = norm(x) and a = x, and stores a as an operand of the
 * type. */
static void norm_rows(cpu_work *w, tile_range t, const float *weight, const float *bias,
                      gemm_type type, int worker) {
    int n = w->engine->config.n_embd;
    float *scratch = cpu_scratch_of(w, worker);
    for (int i = t.first; i < t.first + t.rows; i++) {
        float *x = w->x + (size_t)i * (size_t)n;
        cpu_norm(w, x, weight, bias, scratch);
        if (bias != NULL)
            memcpy(x, scratch, sizeof *x * (size_t)n);
        cpu_operand_store(w, type, scratch, n, cpu_row_of(w->a, type, i, n));
    }
}

static void stage_qkv(cpu_work *w, tile_range t, int part, int worker) {
    const model_config *c = &w->engine->config;
    const model_layer *layer = &w->s->model.layers[w->layer];
    const gemm_part *p = &layer->qkv.parts[part];
    const float *out = gemm_run(w->s->g, &layer->qkv, part, worker, t.rows,
                                cpu_row_of(w->a, layer->qkv.type, t.first, c->n_embd));
    size_t width = (size_t)cpu_heads(c) * (size_t)c->head_dim;
    for (int i = 0; i < t.rows; i++) {
        float *to = w->qkv + (size_t)(t.first + i) * width + (size_t)p->first;
        memcpy(to, out + (size_t)i * (size_t)p->n, sizeof(float) * (size_t)p->n);
        if (layer->qkv_bias != NULL)
            w->s->k->add(to, layer->qkv_bias + p->first, p->n);
    }
}

static void stage_keys(cpu_work *w, tile_range t) {
    for (int i = t.first; i < t.first + t.rows; i++)
        for (int head = 0; w->rows[i].keep == KEEP_FIRST && head < w->engine->config.n_kv_heads;
             head++)
            cpu_keys_store(w, i, head);
}

/* Computes x += A × part. For models that norm a branch before the sum, computes y = A × part. */
static void stage_add(cpu_work *w, tile_range t, const gemm_weight *weight, int part, int worker,
                      void *a, const float *bias, bool normed) {
    int n = w->engine->config.n_embd;
    const gemm_part *p = &weight->parts[part];
    const float *out = gemm_run(w->s->g, weight, part, worker, t.rows,
                                cpu_row_of(a, weight->type, t.first, weight->k));
    for (int i = 0; i < t.rows; i++) {
        size_t at = (size_t)(t.first + i) * (size_t)n + (size_t)p->first;
        const float *from = out + (size_t)i * (size_t)p->n;
        if (normed)
            memcpy(w->y + at, from, sizeof(float) * (size_t)p->n);
        else
            w->s->k->add(w->x + at, from, p->n);
        if (bias != NULL)
            w->s->k->add((normed ? w->y : w->x) + at, bias + p->first, p->n);
    }
}

static void post_norm_rows(cpu_work *w, tile_range t, const float *weight, int worker) {
    int n = w->engine->config.n_embd;
    float *scratch = cpu_scratch_of(w, worker);
    for (int i = t.first; i < t.first + t.rows && weight != NULL; i++) {
        w->s->k->rms_norm(w->y + (size_t)i * (size_t)n, weight, w->engine->config.eps, n, scratch);
        w->s->k->add(w->x + (size_t)i * (size_t)n, scratch, n);
    }
}

static void stage_gate_up(cpu_work *w, tile_range t, int part, int worker) {
    const model_config *c = &w->engine->config;
    const model_layer *layer = &w->s->model.layers[w->layer];
    const gemm_part *p = &layer->gate_up.parts[part];
    const float *out = gemm_run(w->s->g, &layer->gate_up, part, worker, t.rows,
                                cpu_row_of(w->a, layer->gate_up.type, t.first, c->n_embd));
    gemm_type type = layer->down.type;
    /* number of columns of the part's activations, and the first */
    int columns = c->ungated ? p->n : p->n / 2, first = c->ungated ? p->first : p->first / 2;
    float *scratch = cpu_scratch_of(w, worker);
    void (*act)(const float *, const float *, int, float *) =
        c->activation == FFN_SILU ? w->s->k->swiglu : w->s->k->geglu;
    const float *bias = layer->up_bias != NULL ? layer->up_bias + p->first : NULL;
    for (int i = 0; i < t.rows; i++) {
        const float *row = out + (size_t)i * (size_t)p->n;
        if (c->ungated)
            w->s->k->gelu(row, bias, columns, scratch);
        else
            act(row, row + columns, columns, scratch);
        char *to = cpu_row_of(w->h, type, t.first + i, c->ffn);
        cpu_operand_store(w, type, scratch, columns, to + gemm_row_bytes(type, first));
    }
}

/* ---- stages as tasks ------------------------------------------------------------------------- */

typedef enum stage {
    STAGE_ATTN_NORM,
    STAGE_QKV,
    STAGE_KEYS,
    STAGE_O,
    STAGE_FFN_NORM,
    STAGE_GATE_UP,
    STAGE_DOWN,
    STAGE_END
} stage;

/* Returns the number of parts of columns of the stage's product. 0: the stage has no product, so a
 * tile can be split by rows. */
static int stage_parts(const model_layer *layer, stage s) {
    switch (s) {
    case STAGE_QKV:
        return layer->qkv.nparts;
    case STAGE_O:
        return layer->o.nparts;
    case STAGE_GATE_UP:
        return layer->gate_up.nparts;
    case STAGE_DOWN:
        return layer->down.nparts;
    default:
        return 0;
    }
}

static void stage_run(cpu_work *w, stage s, tile_range t, int part, int worker) {
    const model_layer *layer = &w->s->model.layers[w->layer];
    switch (s) {
    case STAGE_ATTN_NORM:
        norm_rows(w, t, layer->attn_norm, layer->attn_norm_bias, layer->qkv.type, worker);
        break;
    case STAGE_QKV:
        stage_qkv(w, t, part, worker);
        break;
    case STAGE_KEYS:
        stage_keys(w, t);
        break;
    case STAGE_O:
        stage_add(w, t, &layer->o, part, worker, w->att, layer->o_bias,
                  layer->post_attn_norm != NULL);
        break;
    case STAGE_FFN_NORM:
        post_norm_rows(w, t, layer->post_attn_norm, worker);
        norm_rows(w, t, layer->ffn_norm, layer->ffn_norm_bias, layer->gate_up.type, worker);
        break;
    case STAGE_GATE_UP:
        stage_gate_up(w, t, part, worker);
        break;
    case STAGE_DOWN:
        stage_add(w, t, &layer->down, part, worker, w->h, layer->down_bias,
                  layer->post_ffn_norm != NULL);
        break;
    case STAGE_END:
        post_norm_rows(w, t, layer->post_ffn_norm, worker);
        break;
    }
}

typedef struct stage_job {
    cpu_work *w;
    stage first, last;
    int parts;  /* number of parts of a tile's columns */
    int slices; /* number of slices of a tile's rows */
} stage_job;

/* Task: runs all of the job's stages for one tile. */
static void tile_task(void *ctx, int task, int worker) {
    const stage_job *job = ctx;
    for (stage s = job->first; s <= job->last; s++) {
        int parts = BASE_MAX(stage_parts(&job->w->s->model.layers[job->w->layer], s), 1);
        for (int p = 0; p < parts; p++)
            stage_run(job->w, s, cpu_tile_of(job->w, task), p, worker);
    }
}

/* Task: runs one stage for one part of a tile's columns. */
static void part_task(void *ctx, int task, int worker) {
    const stage_job *job = ctx;
    tile_range t = cpu_tile_of(job->w, task / job->parts);
    stage_run(job->w, job->first, t, task % job->parts, worker);
}

/* Task: runs one stage for one slice of a tile's rows. */
static void slice_task(void *ctx, int task, int worker) {
    const stage_job *job = ctx;
    tile_range t = cpu_tile_of(job->w, task / job->slices);
    int slice = task % job->slices, from = t.rows * slice / job->slices;
    t.rows = t.rows * (slice + 1) / job->slices - from;
    t.first += from;
    stage_run(job->w, job->first, t, 0, worker);
}

static void stages(cpu_work *w, stage first, stage last) {
    pool *threads = w->s->threads;
    int tiles = cpu_tile_count(w), n = pool_threads(threads);
    if (tiles >= 3 * n || n == 1) {
        stage_job job = {.w = w, .first = first, .last = last};
        pool_run(threads, tiles, tile_task, &job);
        return;
    }
    const model_layer *layer = &w->s->model.layers[w->layer];
    for (stage s = first; s <= last; s++) {
        if (s == STAGE_END && layer->post_ffn_norm == NULL)
            continue;
        stage_job job = {.w = w, .first = s, .parts = stage_parts(layer, s), .slices = n};
        if (job.parts > 0)
            pool_run(threads, tiles * job.parts, part_task, &job);
        else
            pool_run(threads, tiles * job.slices, slice_task, &job);
    }
}

static void attend_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    int heads = w->engine->config.n_kv_heads;
    cpu_attend(w, task / heads, task % heads, worker);
}

/* Copies the slots that a branch of the prefix tree shares with its parent's last block. Copies run
 * in order, since a copy may read the result of an earlier copy. */
static void copies_run(cpu_work *w, bool after_moves) {
    for (int i = 0; i < w->p->ncopies; i++)
        if (w->p->copies[i].after_moves == after_moves)
            cpu_kv_copy(w, &w->p->copies[i]);
}

/* ---- first and last rows --------------------------------------------------------------------- */

void cpu_angles(const cpu_work *w, int set, int position, float magnitude, float *out) {
    int half = w->engine->config.rope_dims / 2;
    const float *f = set & ANGLES_LOCAL ? w->s->frequencies_local : w->s->frequencies;
    for (int i = 0; i < half; i++) {
        double angle = (double)position * (double)f[i];
        out[i] = (float)cos(angle) * magnitude;
        out[half + i] = (float)sin(angle) * magnitude;
    }
}

static void embed_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    const model_config *c = &w->engine->config;
    int position = w->rows[task].position, sink = BASE_MIN(position, w->s->sinks + w->s->window);
    model_embed(&w->s->model, w->rows[task].token, position, cpu_scratch_of(w, worker),
                w->x + (size_t)task * (size_t)c->n_embd);
    for (int set = 0; set < ANGLES_SETS; set++) {
        if (w->angles[set] != NULL) {
            cpu_angles(w, set, set & ANGLES_SINK ? sink : position, w->s->rope_magnitude,
                       w->angles[set] + (size_t)task * (size_t)c->rope_dims);
        }
    }
}

/* Lists the rows that are needed after the last layer's keys. */
static void wanted_rows(cpu_work *w) {
    w->nwanted = 0;
    for (int i = 0; i < w->p->npools; i++) {
        const pass_pool *text = &w->p->pools[i];
        model_pooling kind = w->engine->config.pooling;
        int first = kind == POOL_LAST ? text->first + text->count - 1 : text->first;
        for (int j = 0; j < (kind == POOL_MEAN ? text->count : 1); j++)
            w->wanted[w->nwanted++] = first + j;
    }
    for (int i = 0; i < w->p->nwants; i++) {
        int row = w->p->wants[i].row;
        if (w->nwanted == 0 || w->wanted[w->nwanted - 1] != row)
            w->wanted[w->nwanted++] = row;
    }
}

static void row_move(float *base, int from, int to, size_t columns) {
    if (base != NULL)
        memcpy(base + (size_t)to * columns, base + (size_t)from * columns, sizeof *base * columns);
}

/* Sets how many keys each row may see: up to its own, or those of its whole text. */
static void ends_fill(cpu_work *w) {
    for (int i = 0; i < w->nrows; i++)
        w->ends[i] = w->rows[i].position + 1;
    for (int i = 0; i < w->p->npools && w->engine->config.both_ways; i++)
        for (int j = 0; j < w->p->pools[i].count; j++)
            w->ends[w->p->pools[i].first + j] = w->p->pools[i].count;
}

/* Moves the wanted rows to the front; only these rows are computed from here on. */
static void rows_compact(cpu_work *w) {
    const model_config *c = &w->engine->config;
    for (int i = 0; i < w->nwanted; i++) {
        int from = w->wanted[i];
        if (from == i)
            continue;
        row_move(w->x, from, i, (size_t)c->n_embd);
        row_move(w->qkv, from, i, (size_t)(cpu_heads(c) * c->head_dim));
        for (int set = 0; set < ANGLES_SETS; set++)
            row_move(w->angles[set], from, i, (size_t)c->rope_dims);
        w->rows[i] = w->rows[from];
        w->ends[i] = w->ends[from];
    }
    w->nrows = w->nwanted;
}

/* ---- the pass -------------------------------------------------------------------------------- */

/* Returns the number of rows per attention task. With few rows in the pass, tasks are smaller, so
 * that all threads have work. With many rows, tasks are larger, so that more rows share the reading
 * of a block. */
static int attend_rows_for(const cpu_work *w) {
    int tasks = 3 * pool_threads(w->s->threads), heads = w->engine->config.n_kv_heads;
    int rows = w->nrows * heads / tasks;
    return BASE_MIN(BASE_MAX(rows, 8), ATTEND_ROWS);
}

static void layer_run(cpu_work *w, bool last) {
    stages(w, STAGE_ATTN_NORM, w->store_keys_on_attention ? STAGE_QKV : STAGE_KEYS);
    copies_run(w, false);
    if (w->p->nmoves > 0 || w->p->nprobes > 0 || w->keeps_late)
        cpu_blend_run(w);
    copies_run(w, true);
    if (last)
        rows_compact(w);
    if (w->nrows == 0)
        return;
    w->attend_rows = attend_rows_for(w);
    pool_run(w->s->threads, cpu_attend_chunks(w) * w->engine->config.n_kv_heads, attend_task, w);
    stages(w, STAGE_O, STAGE_END);
}

static void wants_reserve(cpu_work *w, int wants) {
    if (wants > w->wants_cap) {
        w->wants_cap = wants * 2;
        size_t bytes = sizeof(int) * (size_t)w->wants_cap;
        w->wanted = mem_realloc(w->wanted, bytes);
        w->want_rows = mem_realloc(w->want_rows, bytes);
        w->whole = mem_realloc(w->whole, bytes);
    }
}

int cpu_forward(llm_engine *engine, void *work, const pass *p, err *e) {
    cpu_work *w = work;
    if (p->nrows > w->rows_cap || p->nwants > w->rows_cap) {
        return err_set(e, ERR_INTERNAL,
                       "a pass of %d rows and %d wants exceeds the buffers of %d rows", p->nrows,
                       p->nwants, w->rows_cap);
    }
    pool_lock(w->s->threads);
    w->p = p;
    w->nrows = p->nrows;
    memcpy(w->rows, p->rows, sizeof *p->rows * (size_t)p->nrows);
    wants_reserve(w, BASE_MAX(p->nwants, p->npools > 0 ? p->nrows : 0));
    wanted_rows(w);
    ends_fill(w);
    w->store_keys_on_attention = cpu_rows_are_independent(w);
    w->keeps_late = false;
    for (int i = 0; i < w->nrows; i++)
        w->keeps_late |= w->rows[i].keep == KEEP_MOVED;
    pool_run(w->s->threads, w->nrows, embed_task, w);
    int layers = engine->config.n_layers;
    for (w->layer = 0; w->layer < layers; w->layer++)
        layer_run(w, w->layer == layers - 1);
    if (p->npools > 0)
        cpu_pool_run(w);
    else if (w->nwanted > 0)
        cpu_head_run(w);
    pool_unlock(w->s->threads);
    return 0;
}

/* ---- benchmarks' bound ----------------------------------------------------------------------- */

typedef struct bound_job {
    cpu_state *s;
    char *a;
    int rows, height;
} bound_job;

/* Task: computes the products of one layer for one tile. */
static void bound_task(void *ctx, int task, int worker) {
    const bound_job *job = ctx;
    int tiles = job->rows / job->height;
    const model_layer *layer = &job->s->model.layers[task / tiles];
    const gemm_weight *weights[] = {&layer->qkv, &layer->o, &layer->gate_up, &layer->down};
    for (size_t i = 0; i < BASE_COUNT(weights); i++) {
        size_t tile = (size_t)job->height * gemm_row_bytes(weights[i]->type, weights[i]->k);
        for (int p = 0; p < weights[i]->nparts; p++) {
            gemm_run(job->s->g, weights[i], p, worker, job->height,
                     job->a + (size_t)(task % tiles) * tile);
        }
    }
}

/* Measures the seconds that the products of the first `layers` layers take, as the minimum of
 * `runs` runs. Returns 0 if memory is short. */
static double bound_seconds(llm_engine *engine, bound_job job, int layers, int runs,
                            clockid_t clock) {
    const model_config *c = &engine->config;
    size_t columns = (size_t)BASE_MAX(BASE_MAX(c->n_embd, c->ffn), c->n_heads * c->head_dim);
    job.s = engine->state;
    /* large enough for operands of any type */
    job.a = calloc((size_t)job.rows * columns, sizeof(float));
    double best = 0;
    pool_lock(job.s->threads);
    for (int i = 0; job.a != NULL && i < runs; i++) {
        struct timespec from, to;
        clock_gettime(clock, &from);
        pool_run(job.s->threads, layers * (job.rows / job.height), bound_task, &job);
        clock_gettime(clock, &to);
        double seconds =
            (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
        best = i == 0 ? seconds : BASE_MIN(best, seconds);
    }
    pool_unlock(job.s->threads);
    free(job.a);
    return best;
}

double cpu_gemm_bound(llm_engine *engine, int rows, clockid_t clock) {
    const cpu_state *s = engine->state;
    err unready = {0};
    if (cpu_ready(engine, NULL, &unready) != 0)
        return 0;
    bound_job job = {.rows = rows, .height = gemm_tile(s->g)};
    double seconds = bound_seconds(engine, job, engine->config.n_layers, 5, clock);
    return seconds > 0 ? rows / seconds : 0;
}

double cpu_gemm_rate(llm_engine *engine, int rows) {
    int all = engine->config.n_layers, layers = BASE_MIN(all, 8);
    bound_job job = {.rows = rows, .height = rows};
    double seconds = bound_seconds(engine, job, layers, 2, CLOCK_MONOTONIC);
    return seconds > 0 ? rows * (double)layers / all / seconds : 0;
}

/* ---- work memory ----------------------------------------------------------------------------- */

static void *aligned_zero(size_t bytes) {
    size_t rounded = (bytes + 127) / 64 * 64;
    void *p = aligned_alloc(64, rounded);
    if (p != NULL)
        memset(p, 0, rounded);
    return p;
}

static bool buffers_new(cpu_work *w) {
    const model_config *c = &w->engine->config;
    const model_types *types = &w->s->model.types;
    size_t width = (size_t)c->n_embd, rows = (size_t)w->rows_cap;
    size_t heads = (size_t)(c->n_heads * c->head_dim), a = 0, att = 0, h = 0;
    const gemm_type read[] = {types->qkv, types->rest, types->last, types->head};
    for (size_t i = 0; i < BASE_COUNT(read); i++) {
        a = BASE_MAX(a, gemm_row_bytes(read[i], c->n_embd));
        att = BASE_MAX(att, gemm_row_bytes(read[i], (int)heads));
        h = BASE_MAX(h, gemm_row_bytes(read[i], c->ffn));
    }
    size_t workers = (size_t)pool_threads(w->s->threads);
    w->x = aligned_zero(rows * width * sizeof(float));
    w->qkv = aligned_zero(rows * (size_t)(cpu_heads(c) * c->head_dim) * sizeof(float));
    w->a = aligned_zero(rows * a);
    w->att = aligned_zero(rows * att);
    w->h = aligned_zero(rows * h);
    w->norm_scratch =
        aligned_zero(workers * (size_t)BASE_MAX(BASE_MAX(c->n_embd, c->ffn), 64) * sizeof(float));
    w->dense = aligned_zero(workers * (size_t)c->dense * sizeof(float));
    bool more = w->dense != NULL, streams = w->s->window > 0;
    if (c->post_norm)
        more = more && (w->y = aligned_zero(rows * width * sizeof(float))) != NULL;
    for (int set = 0; set < ANGLES_SETS; set++) {
        if ((streams || !(set & ANGLES_SINK)) && (w->s->two_ropes || !(set & ANGLES_LOCAL))) {
            w->angles[set] = aligned_zero(rows * (size_t)c->rope_dims * sizeof(float));
            more = more && w->angles[set] != NULL;
        }
    }
    return more && w->x && w->qkv && w->a && w->att && w->h && w->norm_scratch;
}

static bool attend_scratch_new(cpu_work *w) {
    const model_config *c = &w->engine->config;
    size_t queries = (size_t)ATTEND_ROWS * (size_t)(c->n_heads / c->n_kv_heads),
           d = (size_t)c->head_dim;
    int workers = pool_threads(w->s->threads);
    bool made = true, streams = w->s->window > 0;
    w->attend = mem_zalloc(sizeof *w->attend * (size_t)workers);
    for (int i = 0; i < workers && made; i++) {
        attend_scratch *s = &w->attend[i];
        s->q = aligned_zero(queries * d * sizeof(float));
        s->q_sink = streams ? aligned_zero(queries * d * sizeof(float)) : NULL;
        s->kt = aligned_zero(LLM_BLOCK_TOKENS * d * sizeof(uint16_t));
        s->v = aligned_zero(LLM_BLOCK_TOKENS * d * sizeof(uint16_t));
        s->out = aligned_zero(queries * d * sizeof(float));
        s->top = aligned_zero(queries * sizeof(float));
        s->sum = aligned_zero(queries * sizeof(float));
        s->low = aligned_zero(queries * sizeof(int));
        s->high = aligned_zero(queries * sizeof(int));
        made = s->q && (s->q_sink || !streams) && s->kt && s->v && s->out && s->top && s->sum &&
               s->low && s->high;
    }
    return made;
}

int cpu_work_new(llm_engine *engine, const work_size *size, void **work, err *e) {
    int code = cpu_ready(engine, size->cancel, e);
    if (code != 0)
        return code;
    cpu_work *w = mem_zalloc(sizeof *w);
    w->engine = engine;
    w->s = engine->state;
    int tile = gemm_tile(w->s->g);
    w->rows_cap = (size->rows + tile - 1) / tile * tile;
    w->layout = cpu_kv_layout(&engine->config, w->s->kv_dtype);
    w->kv_bytes = (size_t)size->blocks * w->layout.block;
    /* no memory is reserved: kv_memory is a limit, and pages are allocated when they are first
     * written */
    void *kv = mmap(NULL, w->kv_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    w->kv = kv != MAP_FAILED ? kv : NULL;
    if (w->kv != NULL)
        madvise(w->kv, w->kv_bytes, MADV_HUGEPAGE);
    w->rows = mem_alloc(sizeof *w->rows * (size_t)w->rows_cap);
    w->ends = mem_alloc(sizeof *w->ends * (size_t)w->rows_cap);
    w->written = mem_zalloc((size_t)BASE_MAX(size->blocks, 1));
    bool scratch = attend_scratch_new(w);
    if (!scratch || !buffers_new(w) || w->kv == NULL) {
        buf kv_size = {0};
        buf_append_bytes(&kv_size, w->kv_bytes);
        cpu_work_free(engine, w);
        err_set(e, ERR_FULL,
                "not enough memory for %s of KV blocks and the buffers of a pass of %d tokens",
                kv_size.p, size->rows);
        err_hint(e, "lower kv_memory with SET");
        buf_free(&kv_size);
        return ERR_FULL;
    }
    *work = w;
    return 0;
}

void cpu_work_free(llm_engine *engine, void *work) {
    (void)engine;
    cpu_work *w = work;
    for (int i = 0; i < pool_threads(w->s->threads); i++) {
        attend_scratch *s = &w->attend[i];
        void *all[] = {s->q, s->q_sink, s->out, s->top, s->sum, s->low, s->high, s->kt, s->v};
        for (size_t j = 0; j < BASE_COUNT(all); j++)
            free(all[j]);
    }
    cpu_screen_free(w->screen);
    if (w->kv != NULL)
        munmap(w->kv, w->kv_bytes);
    void *all[] = {w->x,
                   w->qkv,
                   w->y,
                   w->a,
                   w->att,
                   w->h,
                   w->angles[0],
                   w->angles[1],
                   w->angles[2],
                   w->angles[3],
                   w->attend,
                   w->rows,
                   w->ends,
                   w->wanted,
                   w->want_rows,
                   w->whole,
                   w->tops,
                   w->written,
                   w->norm_scratch,
                   w->dense,
                   w};
    for (size_t j = 0; j < BASE_COUNT(all); j++)
        free(all[j]);
}
