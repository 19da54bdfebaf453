/*
 * reference.c - the forward pass as the models' papers define it, in plain f32, that the CPU and
 * CUDA backends are compared with.
 *
 * Written for readability, not speed: one function per step, all tokens of a sequence at once,
 * activations [n][width] row-major, nothing kept between passes. All differences between
 * architectures are fields of model_config.
 *
 *   x += attention(norm(x))    x += feed_forward(norm(x))    logits = head(norm(x))
 *
 * With layer norms (bert) the normed state replaces x: x = norm(x), x += attention(x).
 */
#include "reference.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reference {
    const gguf *g;
    model_config c;
    int sinks, window; /* streaming attention; window 0: off */
};

/* The activations of one pass over n tokens. */
typedef struct pass {
    const reference *r;
    const model_config *c;
    int n, layer;
    float *x;          /* [n][n_embd] the residual stream */
    float *h, *branch; /* [n][n_embd] a normed input, a branch's output */
    float *q, *att;    /* [n][n_heads * head_dim] */
    float *q_sink;     /* as q, rotated for the position from which it attends to sinks */
    float *k, *v;      /* [n][n_kv_heads * head_dim] */
    float *gate, *up;  /* [n][ffn] */
    float *scores;     /* [n] */
    float *wide;       /* [dense] */
    float *row;        /* one dequantised weight row, at most max(n_embd, q width, ffn) wide */
} pass;

int reference_open(const gguf *g, reference **out, err *e) {
    reference *r = mem_zalloc(sizeof *r);
    r->g = g;
    int rc = config_read(g, &r->c, e);
    if (rc) {
        free(r);
        r = NULL;
    }
    *out = r;
    return rc;
}

void reference_close(reference *r) {
    free(r);
}

void reference_set_streaming(reference *r, int sinks, int window) {
    r->sinks = sinks;
    r->window = window;
}

const model_config *reference_config(const reference *r) {
    return &r->c;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* With sixteen partial sums compilers can vectorise this without reordering other arithmetic. */
static float dot(const float *a, const float *b, int n) {
    float sums[16] = {0};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            sums[j] += a[i + j] * b[i + j];
    float sum = 0;
    for (int j = 0; j < 16; j++)
        sum += sums[j];
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y[n][rows] = x[n][K] · W[first … first + rows)ᵀ, where K is W's dims[0]; adds these rows of the bias
 * unless it is NULL. */
static void multiply(const pass *p, const gguf_tensor *w, int first, int rows,
                     const gguf_tensor *bias, const float *x, int n, float *y) {
    int width = (int)w->dims[0];
    for (int r = 0; r < rows; r++) {
        model_tensor_rows(w, (uint64_t)(first + r), 1, p->row);
        for (int i = 0; i < n; i++)
            y[(size_t)i * (size_t)rows + (size_t)r] =
                dot(p->row, x + (size_t)i * (size_t)width, width);
    }
    if (!bias)
        return;
    float *b = mem_alloc((size_t)bias->dims[0] * sizeof *b);
    model_tensor_rows(bias, 0, 1, b);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < rows; r++)
            y[(size_t)i * (size_t)rows + (size_t)r] += b[first + r];
    free(b);
}

/* out[i] = x[i] / rms(x[i]) * weight for `count` vectors of `width`; out may be x. */
static void rms_norm(const pass *p, const gguf_tensor *weight, const float *x, int count, int width,
                     float *out) {
    model_tensor_rows(weight, 0, 1, p->row);
    for (int i = 0; i < count; i++, x += width, out += width) {
        double sum = 0;
        for (int j = 0; j < width; j++)
            sum += (double)x[j] * (double)x[j];
        float scale = (float)(1 / sqrt(sum / width + (double)p->c->eps));
        for (int j = 0; j < width; j++)
            out[j] = x[j] * scale * p->row[j];
    }
}

/* out[i] = (x[i] - mean) / deviation * weight + bias for p->n states; out may be x. */
static void layer_norm(const pass *p, const gguf_tensor *weight, const gguf_tensor *bias,
                       const float *x, float *out) {
    int width = p->c->n_embd;
    float *b = mem_alloc((size_t)width * sizeof *b);
    model_tensor_rows(weight, 0, 1, p->row);
    model_tensor_rows(bias, 0, 1, b);
    for (int i = 0; i < p->n; i++, x += width, out += width) {
        double mean = 0, square = 0;
        for (int j = 0; j < width; j++)
            mean += (double)x[j] / width;
        for (int j = 0; j < width; j++)
            square += ((double)x[j] - mean) * ((double)x[j] - mean);
        double scale = 1 / sqrt(square / width + (double)p->c->eps);
        for (int j = 0; j < width; j++)
            out[j] = (float)(((double)x[j] - mean) * scale) * p->row[j] + b[j];
    }
    free(b);
}

/* h = norm(x); with layer norms, x becomes h. */
static void norm_states(const pass *p, int layer, norm_place place) {
    const gguf_tensor *weight = config_norm(p->r->g, p->c, layer, place, "weight");
    if (!p->c->layer_norm) {
        rms_norm(p, weight, p->x, p->n, p->c->n_embd, p->h);
        return;
    }
    layer_norm(p, weight, config_norm(p->r->g, p->c, layer, place, "bias"), p->x, p->h);
    memcpy(p->x, p->h, (size_t)p->n * (size_t)p->c->n_embd * sizeof *p->x);
}

/* Applies rope to every head of x[n][heads * head_dim], for position min(i, last) in row i. */
static void rotate(const pass *p, float *x, int heads, int last) {
    const model_config *c = p->c;
    int half = c->rope_dims / 2;
    float frequencies[CONFIG_MAX_HEAD_DIM / 2];
    config_rope_frequencies(c, p->layer, frequencies);
    double magnitude = (double)config_rope_magnitude(c);
    for (int position = 0; position < p->n; position++) {
        for (int i = 0; i < half; i++) {
            double angle = (double)BASE_MIN(position, last) * (double)frequencies[i];
            float cosine = (float)(cos(angle) * magnitude), sine = (float)(sin(angle) * magnitude);
            int a = c->pairing == ROPE_NEIGHBOURS ? 2 * i : i;
            int b = c->pairing == ROPE_NEIGHBOURS ? 2 * i + 1 : i + half;
            for (int head = 0; head < heads; head++) {
                float *v =
                    x + ((size_t)position * (size_t)heads + (size_t)head) * (size_t)c->head_dim;
                float va = v[a], vb = v[b];
                v[a] = va * cosine - vb * sine;
                v[b] = va * sine + vb * cosine;
            }
        }
    }
}

static float soft_cap(float x, float cap) {
    return cap > 0 ? cap * tanhf(x / cap) : x;
}

static void softmax(float *x, int n) {
    float top = x[0];
    for (int i = 1; i < n; i++)
        top = fmaxf(top, x[i]);
    float sum = 0;
    for (int i = 0; i < n; i++) {
        x[i] = expf(x[i] - top);
        sum += x[i];
    }
    for (int i = 0; i < n; i++)
        x[i] /= sum;
}

/* True if streaming attention applies to the layer. A layer whose own window is not larger was
 * trained without sinks and keeps that window. */
static bool streams(const pass *p) {
    int window = config_layer_window(p->c, p->layer);
    return p->r->window > 0 && (window == 0 || window > p->r->window);
}

/* Attention of one query head at one position; out[head_dim]. */
static void attend(const pass *p, int position, int head, float *out) {
    const model_config *c = p->c;
    size_t width = (size_t)c->head_dim, kv_width = (size_t)c->n_kv_heads * width;
    size_t at = ((size_t)position * (size_t)c->n_heads + (size_t)head) * width;
    size_t kv_head = (size_t)(head / (c->n_heads / c->n_kv_heads)) * width;
    int sinks = streams(p) ? p->r->sinks : 0;
    int window = streams(p) ? p->r->window : config_layer_window(c, p->layer);
    int first = window > 0 ? BASE_MAX(position - window + 1, 0) : 0, last = position;
    if (c->both_ways) {
        first = window > 0 ? BASE_MAX(position - window / 2, 0) : 0;
        last = window > 0 ? BASE_MIN(position + window / 2, p->n - 1) : p->n - 1;
    }
    for (int j = 0; j <= last; j++) {
        const float *q = (j < sinks ? p->q_sink : p->q) + at;
        float score = dot(q, p->k + (size_t)j * kv_width + kv_head, c->head_dim) * c->attn_scale;
        bool seen = j < sinks || j >= first;
        p->scores[j] = seen ? soft_cap(score, c->attn_softcap) : -INFINITY;
    }
    softmax(p->scores, last + 1);
    memset(out, 0, width * sizeof *out);
    for (int j = 0; j <= last; j++) {
        const float *v = p->v + (size_t)j * kv_width + kv_head;
        for (size_t d = 0; d < width; d++)
            out[d] += p->scores[j] * v[d];
    }
}

static const gguf_tensor *weight(const pass *p, const char *name) {
    return model_tensor(p->r->g, p->layer, name);
}

static void project_qkv(const pass *p) {
    const model_config *c = p->c;
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    bool bias = c->qkv_bias;
    if (c->fused_qkv) {
        const gguf_tensor *w = weight(p, "attn_qkv.weight");
        const gguf_tensor *b = bias ? weight(p, "attn_qkv.bias") : NULL;
        multiply(p, w, 0, q, b, p->h, p->n, p->q);
        multiply(p, w, q, kv, b, p->h, p->n, p->k);
        multiply(p, w, q + kv, kv, b, p->h, p->n, p->v);
        return;
    }
    multiply(p, weight(p, "attn_q.weight"), 0, q, bias ? weight(p, "attn_q.bias") : NULL, p->h,
             p->n, p->q);
    multiply(p, weight(p, "attn_k.weight"), 0, kv, bias ? weight(p, "attn_k.bias") : NULL, p->h,
             p->n, p->k);
    multiply(p, weight(p, "attn_v.weight"), 0, kv, bias ? weight(p, "attn_v.bias") : NULL, p->h,
             p->n, p->v);
}

/* ---- layers --------------------------------------------------------------------------------- */

/* x += the branch, after its post-norm if the architecture has one. */
static void add_branch(const pass *p, const char *post_norm) {
    const model_config *c = p->c;
    if (c->post_norm)
        rms_norm(p, weight(p, post_norm), p->branch, p->n, c->n_embd, p->branch);
    for (size_t i = 0; i < (size_t)p->n * (size_t)c->n_embd; i++)
        p->x[i] += p->branch[i];
}

static void attention(const pass *p) {
    const model_config *c = p->c;
    norm_states(p, p->layer, NORM_ATTENTION);
    project_qkv(p);
    if (c->qk_norm) {
        rms_norm(p, weight(p, "attn_q_norm.weight"), p->q, p->n * c->n_heads, c->head_dim, p->q);
        rms_norm(p, weight(p, "attn_k_norm.weight"), p->k, p->n * c->n_kv_heads, c->head_dim, p->k);
    }
    memcpy(p->q_sink, p->q, (size_t)p->n * (size_t)c->n_heads * (size_t)c->head_dim * sizeof *p->q);
    if (config_layer_has_rope(c, p->layer)) {
        rotate(p, p->q_sink, c->n_heads, p->r->sinks + p->r->window);
        rotate(p, p->q, c->n_heads, p->n);
        rotate(p, p->k, c->n_kv_heads, p->n);
    }
    for (int position = 0; position < p->n; position++) {
        for (int head = 0; head < c->n_heads; head++)
            attend(p, position, head,
                   p->att + ((size_t)position * (size_t)c->n_heads + (size_t)head) *
                                (size_t)c->head_dim);
    }
    multiply(p, weight(p, "attn_output.weight"), 0, c->n_embd,
             c->output_bias ? weight(p, "attn_output.bias") : NULL, p->att, p->n, p->branch);
    add_branch(p, "post_attention_norm.weight");
}

static float activate(ffn_activation kind, float x) {
    if (kind == FFN_SILU)
        return x / (1 + expf(-x));
    if (kind == FFN_GELU)
        return 0.5f * x * (1 + erff(x * 0.70710678118654752440f));
    const float root = 0.79788456080286535588f; /* sqrt(2 / pi) */
    return 0.5f * x * (1 + tanhf(root * (x + 0.044715f * x * x * x)));
}

static void feed_forward(const pass *p) {
    const model_config *c = p->c;
    norm_states(p, p->layer, NORM_FFN);
    const gguf_tensor *up = weight(p, "ffn_up.weight");
    const gguf_tensor *gate = c->fused_gate_up ? up : weight(p, "ffn_gate.weight");
    const gguf_tensor *up_bias = c->ffn_bias ? weight(p, "ffn_up.bias") : NULL;
    size_t count = (size_t)p->n * (size_t)c->ffn;
    multiply(p, up, c->fused_gate_up ? c->ffn : 0, c->ffn, up_bias, p->h, p->n, p->up);
    if (!c->ungated)
        multiply(p, gate, 0, c->ffn, NULL, p->h, p->n, p->gate);
    for (size_t i = 0; i < count; i++)
        p->up[i] = c->ungated ? activate(c->activation, p->up[i])
                              : p->up[i] * activate(c->activation, p->gate[i]);
    multiply(p, weight(p, "ffn_down.weight"), 0, c->n_embd,
             c->ffn_bias ? weight(p, "ffn_down.bias") : NULL, p->up, p->n, p->branch);
    add_branch(p, "post_ffw_norm.weight");
}

/* ---- the pass ------------------------------------------------------------------------------- */

static void embed(const pass *p, const llm_token *tokens) {
    const gguf_tensor *table = model_tensor(p->r->g, -1, "token_embd.weight");
    size_t width = (size_t)p->c->n_embd;
    for (int i = 0; i < p->n; i++)
        model_tensor_rows(table, (uint64_t)tokens[i], 1, p->x + (size_t)i * width);
    for (size_t i = 0; i < (size_t)p->n * width; i++)
        p->x[i] *= p->c->embd_scale;
    for (int i = 0; i < p->n && p->c->types; i++) {
        model_tensor_rows(model_tensor(p->r->g, -1, "token_types.weight"), 0, 1, p->row);
        for (size_t j = 0; j < width; j++)
            p->x[(size_t)i * width + j] += p->row[j];
    }
    for (int i = 0; i < p->n && p->c->positions; i++) {
        model_tensor_rows(model_tensor(p->r->g, -1, "position_embd.weight"), (uint64_t)i, 1,
                          p->row);
        for (size_t j = 0; j < width; j++)
            p->x[(size_t)i * width + j] += p->row[j];
    }
}

static void head(pass *p, int first, float *logits) {
    const model_config *c = p->c;
    p->layer = -1;
    norm_states(p, c->n_layers, NORM_FINAL);
    multiply(p, weight(p, c->tied_head ? "token_embd.weight" : "output.weight"), 0, c->vocab, NULL,
             p->h + (size_t)first * (size_t)c->n_embd, p->n - first, logits);
    size_t count = (size_t)(p->n - first) * (size_t)c->vocab;
    for (size_t i = 0; i < count; i++)
        logits[i] = soft_cap(logits[i], c->final_softcap);
}

/* All activations in one allocation, whose start is x. */
static bool allocate(pass *p) {
    const model_config *c = p->c;
    size_t n = (size_t)p->n, d = (size_t)c->n_embd, ffn = (size_t)c->ffn;
    size_t q = (size_t)c->n_heads * (size_t)c->head_dim,
           kv = (size_t)c->n_kv_heads * (size_t)c->head_dim;
    size_t dense = (size_t)c->dense, widest = BASE_MAX(BASE_MAX(d, q), BASE_MAX(ffn, dense));
    float *at =
        mem_try_alloc((n * (3 * d + 3 * q + 2 * kv + 2 * ffn + 1 + dense) + widest) * sizeof *at);
    if (!at)
        return false;
    float **parts[] = {&p->x, &p->h, &p->branch, &p->q,  &p->q_sink, &p->att,
                       &p->k, &p->v, &p->gate,   &p->up, &p->scores, &p->wide};
    const size_t widths[] = {d, d, d, q, q, q, kv, kv, ffn, ffn, 1, dense};
    for (size_t i = 0; i < BASE_COUNT(parts); i++) {
        *parts[i] = at;
        at += n * widths[i];
    }
    p->row = at;
    return true;
}

/* Runs the layers over tokens[n] and leaves the states in p->x; the caller frees it. */
static int layers_run(pass *p, const llm_token *tokens, err *e) {
    for (int i = 0; i < p->n; i++) {
        if (tokens[i] < 0 || tokens[i] >= p->c->vocab)
            return err_set(e, ERR_LIMIT, "token %d is not in the model's vocabulary",
                           (int)tokens[i]);
    }
    if (!allocate(p))
        return err_set(e, ERR_FULL, "no memory for a reference pass over %d tokens", p->n);
    embed(p, tokens);
    for (p->layer = 0; p->layer < p->c->n_layers; p->layer++) {
        attention(p);
        feed_forward(p);
    }
    return 0;
}

int reference_forward(const reference *r, const llm_token *tokens, int n, int first, float *logits,
                      err *e) {
    assert(first >= 0 && first < n && r->c.pooling == POOL_NONE);
    pass p = {.r = r, .c = &r->c, .n = n};
    int code = layers_run(&p, tokens, e);
    if (code == 0)
        head(&p, first, logits);
    free(p.x);
    return code;
}

/* vector[n_embd] = the states of a text, pooled, through the dense layers, of length 1. */
static void pool_states(const pass *p, float *vector) {
    const model_config *c = p->c;
    size_t width = (size_t)c->n_embd;
    int from = c->pooling == POOL_LAST ? p->n - 1 : 0, to = c->pooling == POOL_FIRST ? 1 : p->n;
    norm_states(p, c->n_layers, NORM_FINAL);
    for (size_t j = 0; j < width; j++) {
        double sum = 0, norm = to - from;
        for (int i = from; i < to; i++)
            sum += (double)p->h[(size_t)i * width + j];
        vector[j] = (float)(sum / norm);
    }
    if (c->dense > 0) {
        multiply(p, model_tensor(p->r->g, -1, "dense_2.weight"), 0, c->dense, NULL, vector, 1,
                 p->wide);
        multiply(p, model_tensor(p->r->g, -1, "dense_3.weight"), 0, c->n_embd, NULL, p->wide, 1,
                 vector);
    }
    double square = 0;
    for (size_t j = 0; j < width; j++)
        square += (double)vector[j] * (double)vector[j];
    for (size_t j = 0; j < width; j++)
        vector[j] = (float)((double)vector[j] / sqrt(square));
}

int reference_embed(const reference *r, const llm_token *tokens, int n, float *vector, err *e) {
    assert(n > 0 && r->c.pooling != POOL_NONE);
    pass p = {.r = r, .c = &r->c, .n = n};
    int code = layers_run(&p, tokens, e);
    if (code == 0)
        pool_states(&p, vector);
    free(p.x);
    return code;
}
