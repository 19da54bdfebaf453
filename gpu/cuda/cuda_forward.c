/*
 * cuda_forward.c - runs a pass on the card.
 *
 * For each part, its buffer is sent in one copy. The layers are enqueued, or a captured graph of
 * the same shape is launched. Then the head runs for the rows with wants, and the results come
 * back in one copy. The steps are those of cpu_forward.c. Values are rounded to bf16 at the same
 * places and also after gate and up.
 *
 *   norm → a | a·Wqkv → qkv | bias, norm, rope → q, KV | copies | attention → att | x += att·Wo
 *   norm → a | a·Wgu → gate_up | act → h | x += h·Wdown
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_int.h"

/* The rows that a layer computes: all rows of the part, or only the rows with wants from the last
 * layer's attention on. */
typedef struct row_set {
    float *x;
    const uint16_t *q;
    int rows;
    const int32_t *positions;
    const attend_shape *shape;
    const attend_layout *at;
} row_set;

/* The state of a running part. The first error is kept and fails the pass. */
typedef struct flow {
    cuda_work *w;
    const cuda_part *part;
    cudaStream_t stream;
    int code;
    err *e;
} flow;

static void check(flow *f, cudaError_t status, const char *what) {
    if (f->code == 0)
        f->code = cuda_check(status, what, f->e);
}

/* Returns the device address of the array at offset `at` of the part's buffer. */
static const void *on_card(const flow *f, size_t at) {
    return f->w->part_device + at;
}

static void multiply(flow *f, int plan, const uint16_t *weight, const uint16_t *a, int rows,
                     void *out) {
    if (f->code == 0) {
        f->code =
            cuda_gemm_run(f->w->s->g, plan, weight, a, rows, out, f->w->workspace, f->stream, f->e);
    }
}

/* ---- layers ---------------------------------------------------------------------------------- */

static uint16_t *layer_kv(const cuda_work *w, int layer) {
    return w->kv.pool + (size_t)layer * w->kv.layer_elements;
}

static void qkv_run(flow *f, int i) {
    cuda_work *w = f->w;
    const model_config *c = &w->engine->config;
    const cuda_layer *y = &w->s->layers[i];
    int rows = f->part->shape.rows;
    multiply(f, w->s->plan_qkv, y->qkv, w->a, rows, w->qkv);
    qkv_args args = {.qkv = w->qkv,
                     .bias = y->qkv_bias,
                     .q_norm = y->q_norm,
                     .k_norm = y->k_norm,
                     .angles = y->window > 0 && w->s->two_ropes ? w->angles_local : w->angles,
                     .slots = on_card(f, f->part->at.slots),
                     .q = w->q,
                     .kv = layer_kv(w, i),
                     .block_elements = w->kv.block_elements,
                     .rope = !y->has_rope                    ? ROPE_KIND_NONE
                             : c->pairing == ROPE_NEIGHBOURS ? ROPE_KIND_NEIGHBOURS
                                                             : ROPE_KIND_HALVES,
                     .eps = c->eps,
                     .rows = rows,
                     .heads = c->n_heads,
                     .kv_heads = c->n_kv_heads,
                     .d = c->head_dim,
                     .rope_dims = c->rope_dims};
    check(f, k_qkv(&args, f->stream), "rope and KV");
}

static void copies_run(flow *f, int layer) {
    const cuda_work *w = f->w;
    const model_config *c = &w->engine->config;
    const slot_copy *copies = on_card(f, f->part->at.copies);
    for (int level = 0, from = 0; level < f->part->copy_levels; from = w->copy_ends[level++]) {
        check(f,
              k_copy(copies + from, w->copy_ends[level] - from, layer_kv(w, layer),
                     w->kv.block_elements, c->n_kv_heads, c->head_dim, f->stream),
              "copying shared slots");
    }
}

static void attend_run(flow *f, int layer, const row_set *r) {
    cuda_work *w = f->w;
    const model_config *c = &w->engine->config;
    attend_args args = {.q = r->q,
                        .kv = layer_kv(w, layer),
                        .block_elements = w->kv.block_elements,
                        .blocks = on_card(f, r->at->blocks),
                        .positions = r->positions,
                        .states = on_card(f, r->at->states),
                        .out = w->att,
                        .state_out = w->state_out,
                        .state_norm = w->state_norm,
                        .heads = c->n_heads,
                        .kv_heads = c->n_kv_heads,
                        .d = c->head_dim,
                        .window = w->s->layers[layer].window,
                        .scale = c->attn_scale,
                        .cap = c->attn_softcap};
    for (int level = 0; level < r->shape->levels; level++) {
        args.tasks = on_card(f, r->at->wide[level]);
        args.count = r->shape->wide[level];
        args.wide = true;
        check(f, k_attend(&args, f->stream), "attention");
        args.tasks = on_card(f, r->at->narrow[level]);
        args.count = r->shape->narrow[level];
        args.wide = false;
        check(f, k_attend(&args, f->stream), "attention");
    }
    check(f,
          k_merge(on_card(f, r->at->merges), r->shape->merges, w->state_out, w->state_norm,
                  c->n_heads, c->head_dim, w->att, f->stream),
          "merging attention");
}

/* Writes the norm of x to w->a, the input of the next product. In post-norm models the output of
 * the previous branch is still in w->y; it is first normed and added to x. */
static void norm_run(flow *f, const row_set *r, const float *branch_weight, const float *weight,
                     bool in_place) {
    const model_config *c = &f->w->engine->config;
    norm_args args = {.x = r->x,
                      .branch = branch_weight != NULL ? f->w->y : NULL,
                      .branch_weight = branch_weight,
                      .weight = weight,
                      .eps = c->eps,
                      .n = c->n_embd,
                      .rows = r->rows,
                      .in_place = in_place,
                      .out = f->w->a};
    check(f, k_norm(&args, f->stream), "a norm");
}

/* Computes x += a·W. If a post-norm comes before the sum, computes y = a·W instead. */
static void branch_run(flow *f, int plan, const uint16_t *weight, const uint16_t *a,
                       const float *bias, bool normed, const row_set *r) {
    float *to = normed ? f->w->y : r->x;
    multiply(f, plan, weight, a, r->rows, to);
    if (bias != NULL)
        check(f, k_bias(to, bias, f->w->engine->config.n_embd, r->rows, f->stream), "a bias");
}

/* In the last layer, keeps only the wanted rows. Gathers their rows of x in the buffer qkv, and
 * their rows of q in the buffer a; the previous contents of both buffers are no longer needed. */
static void rows_narrow(flow *f, row_set *r) {
    cuda_work *w = f->w;
    const model_config *c = &w->engine->config;
    const int32_t *wanted = on_card(f, f->part->at.wanted);
    size_t q = (size_t)(c->n_heads * c->head_dim) * sizeof(uint16_t),
           x = (size_t)c->n_embd * sizeof(float);
    check(f, k_gather(w->x, wanted, x, f->part->nwanted, w->qkv, f->stream), "gathering rows");
    check(f, k_gather(w->q, wanted, q, f->part->nwanted, w->a, f->stream), "gathering rows");
    *r = (row_set){.x = w->qkv,
                   .q = w->a,
                   .rows = f->part->nwanted,
                   .positions = on_card(f, f->part->at.wanted_positions),
                   .shape = &f->part->last,
                   .at = &f->part->at.last};
}

/* Enqueues all layers and the final norm. The normed wanted rows are then in r->x (f32) and in w->a
 * (bf16). */
static void layers_run(flow *f, row_set *r) {
    cuda_work *w = f->w;
    cuda_state *s = w->s;
    const model_config *c = &w->engine->config;
    const int32_t *positions = on_card(f, f->part->at.positions);
    *r = (row_set){
        w->x, w->q, f->part->shape.rows, positions, &f->part->shape.attend, &f->part->at.all};
    check(f,
          k_embed(on_card(f, f->part->at.tokens), s->embedding, c->embd_scale, c->n_embd, r->rows,
                  w->x, f->stream),
          "embedding");
    check(f,
          k_angles(positions, s->frequencies, c->rope_dims / 2, s->rope_magnitude, r->rows,
                   w->angles, f->stream),
          "angles");
    if (s->two_ropes) {
        check(f,
              k_angles(positions, s->frequencies_local, c->rope_dims / 2, s->rope_magnitude,
                       r->rows, w->angles_local, f->stream),
              "angles");
    }
    /* post-norm weight of the branch in w->y that is not yet added to x; NULL: none */
    const float *pending = NULL;
    for (int i = 0; i < c->n_layers; i++) {
        const cuda_layer *y = &s->layers[i];
        norm_run(f, r, pending, y->attn_norm, false);
        qkv_run(f, i);
        copies_run(f, i);
        if (i == c->n_layers - 1 && !f->part->all_wanted) {
            if (f->part->nwanted == 0)
                return;
            rows_narrow(f, r);
        }
        attend_run(f, i, r);
        branch_run(f, s->plan_o, y->o, w->att, y->o_bias, y->post_attn_norm != NULL, r);
        norm_run(f, r, y->post_attn_norm, y->ffn_norm, false);
        multiply(f, s->plan_gate_up, y->gate_up, w->a, r->rows, w->gate_up);
        check(f,
              k_activate(w->gate_up, c->ffn, c->activation == FFN_GELU_TANH, r->rows, w->h,
                         f->stream),
              "activation");
        branch_run(f, s->plan_down, y->down, w->h, NULL, y->post_ffn_norm != NULL, r);
        pending = y->post_ffn_norm;
    }
    norm_run(f, r, pending, s->final_norm, true);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static cuda_graph *graph_find(cuda_work *w, const graph_shape *shape) {
    for (int i = 0; i < w->ngraphs; i++)
        if (memcmp(&w->graphs[i].shape, shape, sizeof *shape) == 0)
            return &w->graphs[i];
    return NULL;
}

/* Returns a free entry, or the least recently used one after destroying its graph. */
static cuda_graph *graph_entry(cuda_work *w) {
    if (w->ngraphs < CUDA_GRAPHS)
        return &w->graphs[w->ngraphs++];
    cuda_graph *oldest = &w->graphs[0];
    for (int i = 1; i < w->ngraphs; i++)
        oldest = w->graphs[i].used < oldest->used ? &w->graphs[i] : oldest;
    if (oldest->exec != NULL)
        cudaGraphExecDestroy(oldest->exec);
    return oldest;
}

/* Captures the layers as a graph. Returns false if cuBLASLt cannot be captured or memory is short;
 * the layers then run without a graph. */
static bool graph_capture(flow *f, row_set *r, cudaGraphExec_t *out) {
    cudaGraph_t graph = NULL;
    if (cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    err ignored = {0};
    flow captured = *f;
    captured.e = &ignored;
    layers_run(&captured, r);
    cudaError_t status = cudaStreamEndCapture(f->stream, &graph);
    bool good = status == cudaSuccess && captured.code == 0 &&
                cudaGraphInstantiate(out, graph, 0) == cudaSuccess;
    if (graph != NULL)
        cudaGraphDestroy(graph);
    cudaGetLastError(); /* clears the error: a failed capture does not fail the pass */
    return good;
}

static void layers_launch(flow *f, row_set *r) {
    cuda_work *w = f->w;
    cuda_graph *graph = f->part->graph ? graph_find(w, &f->part->shape) : NULL;
    if (graph != NULL && graph->exec == NULL && !graph->refused) {
        graph->refused = !graph_capture(f, r, &graph->exec);
    } else if (graph == NULL && f->part->graph) {
        graph = graph_entry(w);
        *graph = (cuda_graph){.shape = f->part->shape};
    }
    if (graph != NULL)
        graph->used = ++w->graph_clock;
    if (graph == NULL || graph->exec == NULL) {
        layers_run(f, r);
        return;
    }
    r->x = w->x; /* in a graph all rows are wanted, so rows_narrow did not run */
    check(f, cudaGraphLaunch(graph->exec, f->stream), "launching a graph");
}

/* ---- the head -------------------------------------------------------------------------------- */

/* Sizes in floats of the results that follow the items' logits: PASS_TOP values and PASS_TOP ids
 * per top-k want, then a `drawn` per draw. */
enum { TOP_FLOATS = 2 * PASS_TOP, DRAWN_FLOATS = sizeof(drawn) / sizeof(float) };
_Static_assert((int)DRAWN_MOST == (int)PASS_DRAW && sizeof(drawn) % sizeof(float) == 0,
               "a `drawn` holds as many candidates as a want, and its size is whole floats");

/* Returns the offset of the draws in the results, in floats: an even number, so that the draws are
 * 8-byte aligned. */
static size_t draws_at(const cuda_part *part) {
    return ((size_t)part->nitems + (size_t)part->ntops * TOP_FLOATS + 1) / 2 * 2;
}

static size_t answers_floats(const cuda_part *part) {
    return draws_at(part) + (size_t)part->ndraws * DRAWN_FLOATS;
}

static int answers_reserve(cuda_work *w, const cuda_part *part, err *e) {
    size_t floats = answers_floats(part), bytes = floats * sizeof(float);
    size_t slice = (size_t)CUDA_HEAD_ROWS * (size_t)w->engine->config.vocab * sizeof(float);
    bool raw = part->nwhole > part->ntops + part->ndraws;
    int code = cuda_pinned_reserve(&w->back, &w->back_cap, BASE_MAX(bytes, raw ? slice : 0), e);
    if (code != 0 || floats <= w->answers_cap)
        return code;
    cudaFree(w->answers);
    w->answers = NULL;
    w->answers_cap = 0;
    code = cuda_check(cudaMalloc((void **)&w->answers, bytes * 2), "memory for logits", e);
    w->answers_cap = code == 0 ? floats * 2 : 0;
    return code;
}

/* Enqueues the logits of the whole vocabulary for the slice w->whole[first, first + rows), which
 * has at most CUDA_HEAD_ROWS wants. */
static void logits_make(flow *f, int first, int rows) {
    cuda_work *w = f->w;
    const model_config *c = &w->engine->config;
    const int32_t *whole = (const int32_t *)on_card(f, f->part->at.whole) + first;
    check(f, k_gather(w->a, whole, (size_t)c->n_embd * sizeof(uint16_t), rows, w->att, f->stream),
          "gathering rows");
    multiply(f, w->s->plan_head, w->s->head, w->att, rows, w->logits);
    check(f, k_soft_cap(w->logits, (size_t)rows * (size_t)c->vocab, c->final_softcap, f->stream),
          "soft cap");
}

static int tops_most(const cuda_work *w, int first, int rows) {
    int k = 0;
    for (int i = first; i < first + rows; i++)
        k = BASE_MAX(k, w->whole[i]->top);
    return k;
}

/* Enqueues a slice's top-k: values [rows, k] and ids [rows, k], at the place of the slice's first
 * want in the results. k is the largest `top` of the slice's wants. */
static void tops_make(flow *f, int first, int rows) {
    cuda_work *w = f->w;
    int k = tops_most(w, first, rows);
    float *values = w->answers + f->part->nitems + (size_t)first * TOP_FLOATS;
    int32_t *ids = (int32_t *)(void *)(values + (size_t)rows * PASS_TOP);
    check(f, k_top(w->logits, w->engine->config.vocab, rows, k, values, ids, f->stream),
          "the likeliest tokens");
}

/* Enqueues a slice's draws. Each draw gets as many candidates as the largest `top` of the slice's
 * wants. */
static void draws_make(flow *f, int first, int rows) {
    cuda_work *w = f->w;
    size_t at = (size_t)(first - f->part->ntops);
    const float *temperatures = on_card(f, f->part->at.temperatures);
    drawn *out = (drawn *)(void *)(w->answers + draws_at(f->part)) + at;
    check(f,
          k_draw(w->logits, w->engine->config.vocab, rows, tops_most(w, first, rows),
                 temperatures + at, out, f->stream),
          "candidates of draws");
}

/* Copies a slice's logits to its wants through the pinned buffer. */
static void raw_return(flow *f, int first, int rows) {
    cuda_work *w = f->w;
    size_t vocab = (size_t)w->engine->config.vocab, bytes = (size_t)rows * vocab * sizeof(float);
    check(f, cudaMemcpyAsync(w->back, w->logits, bytes, cudaMemcpyDeviceToHost, f->stream),
          "reading logits");
    check(f, cudaStreamSynchronize(f->stream), "reading logits");
    for (int i = 0; i < rows && f->code == 0; i++) {
        memcpy(w->whole[first + i]->logits, (float *)(void *)w->back + (size_t)i * vocab,
               vocab * sizeof(float));
    }
}

static void slices_run(flow *f, int from, int to, void (*use)(flow *f, int first, int rows)) {
    for (int first = from; first < to; first += CUDA_HEAD_ROWS) {
        int rows = BASE_MIN(CUDA_HEAD_ROWS, to - first);
        logits_make(f, first, rows);
        use(f, first, rows);
    }
}

static void head_run(flow *f, const row_set *r) {
    cuda_work *w = f->w;
    const cuda_part *part = f->part;
    const model_config *c = &w->engine->config;
    check(f,
          k_head_ids(on_card(f, part->at.items), part->nitems, r->x, w->s->head, c->n_embd,
                     c->final_softcap, w->answers, f->stream),
          "allowed tokens");
    slices_run(f, 0, part->ntops, tops_make);
    slices_run(f, part->ntops, part->ntops + part->ndraws, draws_make);
    slices_run(f, part->ntops + part->ndraws, part->nwhole, raw_return);
}

static void logits_reject(flow *f) {
    f->code = err_set(f->e, ERR_INTERNAL,
                      "the GPU computed logits that are not finite (NaN or infinity)");
}

static void tops_return(flow *f, const float *answers, int first, int rows) {
    cuda_work *w = f->w;
    int k = tops_most(w, first, rows);
    const float *values = answers + f->part->nitems + (size_t)first * TOP_FLOATS;
    const int32_t *ids = (const int32_t *)(const void *)(values + (size_t)rows * PASS_TOP);
    for (int i = 0; i < rows; i++) {
        const pass_want *want = w->whole[first + i];
        int n = BASE_MIN(want->top, k);
        for (int j = 0; j < n; j++) {
            if (ids[i * k + j] >= w->engine->config.vocab) {
                logits_reject(f);
                return;
            }
            want->logits[j] = values[i * k + j];
            want->top_ids[j] = ids[i * k + j];
        }
    }
}

static void draws_return(flow *f, const float *answers) {
    const drawn *all = (const drawn *)(const void *)(answers + draws_at(f->part));
    for (int i = 0; i < f->part->ndraws; i++) {
        pass_want *want = f->w->whole[f->part->ntops + i];
        want->total = all[i].total;
        memcpy(want->logits, all[i].values, sizeof(float) * (size_t)want->top);
        memcpy(want->top_ids, all[i].ids, sizeof(llm_token) * (size_t)want->top);
        if (want->total == 0 || all[i].ids[want->top - 1] >= f->w->engine->config.vocab)
            logits_reject(f);
    }
}

static void answers_return(flow *f) {
    cuda_work *w = f->w;
    size_t bytes = answers_floats(f->part) * sizeof(float);
    if (bytes > 0) {
        check(f, cudaMemcpyAsync(w->back, w->answers, bytes, cudaMemcpyDeviceToHost, f->stream),
              "reading answers");
    }
    check(f, cudaStreamSynchronize(f->stream), "running a pass");
    if (f->code != 0)
        return;
    const float *answers = (const float *)(void *)w->back, *item = answers;
    for (int i = 0; i < f->part->nwants; i++) {
        const pass_want *want = &f->part->p->wants[f->part->want_first + i];
        if (want->ids != NULL) {
            memcpy(want->logits, item, sizeof(float) * (size_t)want->count);
            item += want->count;
        }
    }
    for (int first = 0; first < f->part->ntops && f->code == 0; first += CUDA_HEAD_ROWS)
        tops_return(f, answers, first, BASE_MIN(CUDA_HEAD_ROWS, f->part->ntops - first));
    if (f->code == 0)
        draws_return(f, answers);
}

/* ---- the pass -------------------------------------------------------------------------------- */

/* While this part computes, prefetches the blocks of the next part or pass. */
static void next_prefetch(flow *f) {
    cuda_work *w = f->w;
    const pass *p = f->part->p;
    int next = f->part->first + f->part->nrows;
    err ignored = {0};
    if (f->code != 0 || !w->kv.paged)
        return;
    if (next < p->nrows && cuda_part_rows(w, p, next, &ignored) > 0)
        check(f, cuda_kv_prefetch(&w->kv, w->used, w->nused, true), "prefetching KV blocks");
    else if (next == p->nrows)
        check(f, cuda_kv_prefetch(&w->kv, p->next, (size_t)p->nnext, false),
              "prefetching KV blocks");
}

static int part_run(cuda_work *w, const cuda_part *part, err *e) {
    flow f = {.w = w, .part = part, .stream = w->stream, .e = e};
    row_set rows;
    check(&f, cuda_kv_wait(&w->kv, f.stream), "waiting for KV blocks");
    check(&f,
          cudaMemcpyAsync(w->part_device, w->part_host, part->at.bytes, cudaMemcpyHostToDevice,
                          f.stream),
          "sending a pass's rows");
    layers_launch(&f, &rows);
    check(&f, cuda_kv_begin(&w->kv, f.stream), "recording an event");
    if (part->nwanted > 0)
        head_run(&f, &rows);
    next_prefetch(&f);
    answers_return(&f);
    cuda_kv_end(&w->kv);
    if (f.code != 0) {
        /* waits until the card no longer uses the buffers */
        cudaStreamSynchronize(f.stream);
    }
    return f.code;
}

/* Runs the copies whose target block no row of the pass uses. Their source blocks are complete in
 * all layers, so all layers are copied at once. */
static int copies_finish(cuda_work *w, const pass *p, err *e) {
    const model_config *c = &w->engine->config;
    int code = 0;
    for (int i = 0; i < p->ncopies && code == 0; i++) {
        if (w->copied[i])
            continue;
        int32_t blocks[] = {p->copies[i].from, p->copies[i].to};
        code = cuda_kv_bring(&w->kv, blocks, 2, e);
        code = code != 0 ? code
                         : cuda_check(cuda_kv_wait(&w->kv, w->stream), "waiting for KV blocks", e);
        slot_copy copy = {cuda_kv_slot(&w->kv, blocks[0]), cuda_kv_slot(&w->kv, blocks[1]),
                          p->copies[i].tokens};
        size_t head = (size_t)ATTEND_BLOCK * (size_t)c->head_dim,
               bytes = head / ATTEND_BLOCK * (size_t)copy.tokens * 2;
        size_t pitch = head * sizeof(uint16_t), parts = w->kv.block_elements / head;
        uint16_t *from = w->kv.pool + (size_t)copy.from * w->kv.block_elements;
        uint16_t *to = w->kv.pool + (size_t)copy.to * w->kv.block_elements;
        code = code != 0 ? code
                         : cuda_check(cudaMemcpy2DAsync(to, pitch, from, pitch, bytes, parts,
                                                        cudaMemcpyDeviceToDevice, w->stream),
                                      "copying shared slots", e);
        code = code != 0 || !w->kv.paged
                   ? code
                   : cuda_check(cudaStreamSynchronize(w->stream), "copying", e);
    }
    return code != 0 ? code
                     : cuda_check(cudaStreamSynchronize(w->stream), "copying shared slots", e);
}

static int copies_reserve(cuda_work *w, int n) {
    if (n > w->copies_cap) {
        w->copies_cap = 2 * n;
        size_t cap = (size_t)w->copies_cap;
        w->copies = mem_realloc(w->copies, sizeof *w->copies * cap);
        w->sorted = mem_realloc(w->sorted, sizeof *w->sorted * cap);
        w->copy_ends = mem_realloc(w->copy_ends, sizeof *w->copy_ends * cap);
        w->copied = mem_realloc(w->copied, sizeof *w->copied * cap);
    }
    if (n > 0)
        memset(w->copied, 0, sizeof *w->copied * (size_t)n);
    return 0;
}

/* Plans the part and allocates what it needs, before any of its kernels is enqueued. */
static int part_prepare(cuda_work *w, cuda_part *part, err *e) {
    int code = cuda_part_make(w, part, e);
    return code != 0 ? code : answers_reserve(w, part, e);
}

/* Halves the maximum number of rows of a part, for a retry after a part ran out of memory. Returns
 * false if the part has only one row. */
static bool rows_halve(cuda_work *w, const cuda_part *part, err *e) {
    int rows = BASE_MIN(part->nrows, w->rows_cap) / 2;
    if (rows < 1)
        return false;
    w->rows_cap = rows;
    /* the part did not run its copies */
    for (int i = 0; i < part->p->ncopies; i++)
        w->copied[i] = w->copied[i] == part->first + 1 ? 0 : w->copied[i];
    cudaGetLastError(); /* clears the error */
    err_clear(e);
    return true;
}

int cuda_forward(llm_engine *engine, void *work, const pass *p, err *e) {
    (void)engine;
    cuda_work *w = work;
    int code = cuda_check(cudaSetDevice(w->s->device), "choosing the GPU", e);
    code = code != 0 ? code : cuda_check(w->copy_error, "moving KV blocks", e);
    copies_reserve(w, p->ncopies);
    int want = 0;
    for (int first = 0; first < p->nrows && code == 0;) {
        cuda_part part = {.p = p, .first = first, .want_first = want};
        part.nrows = cuda_part_rows(w, p, first, e);
        if (part.nrows == 0)
            return (int)e->code;
        if (w->kv.moved) {
            cuda_graphs_drop(w);
            w->kv.moved = false;
        }
        code = part_prepare(w, &part, e);
        if (code == ERR_FULL && rows_halve(w, &part, e)) {
            code = 0;
            continue;
        }
        code = code != 0 ? code : part_run(w, &part, e);
        first += part.nrows;
        want += part.nwants;
    }
    return code != 0 ? code : copies_finish(w, p, e);
}
