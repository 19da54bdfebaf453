/*
 * config.c - reads a model's configuration from its GGUF file and checks that its tensors fit it.
 *
 * Adding an architecture is a row in `families` and, if it does something new, a field in
 * model_config. Invariant: a forward pass can run every configuration that config_read accepts: all
 * sizes are positive and bounded, all tensors are there with the shapes that it needs. Mixtures of
 * experts and other architectures are refused by name.
 */
#include "config_int.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct family {
    const char *arch;
    rope_pairing pairing;
    bool qkv_bias, qk_norm, fused;
    int norope_step;
    bool gemma;      /* embeddings multiplied by sqrt(n_embd); GELU */
    bool local_rope; /* layers with a window have a base of 10000, whatever the other layers have */
    bool embeds;     /* the model cannot generate text: files have a pooling and no causal mask */
    /* bert: layer norms after each sum, no gate, learned positions instead of rope; nomic-bert has
     * the norms, but a gate and rope */
    bool bert, nomic;
    /* the next three: see model_config */
    bool post_norm;
    int window_period;
    bool window_first;
    /* defaults for files without these keys */
    int window;
    double attn_softcap, final_softcap;
} family;

static const family families[] = {
    {.arch = "llama", .pairing = ROPE_NEIGHBOURS},
    {.arch = "smollm3", .pairing = ROPE_NEIGHBOURS, .norope_step = 4},
    {.arch = "qwen2", .pairing = ROPE_HALVES, .qkv_bias = true},
    {.arch = "qwen3", .pairing = ROPE_HALVES, .qk_norm = true},
    {.arch = "phi3", .pairing = ROPE_HALVES, .fused = true, .window_period = 1},
    {.arch = "gemma", .pairing = ROPE_HALVES, .gemma = true},
    {.arch = "gemma2",
     .pairing = ROPE_HALVES,
     .gemma = true,
     .post_norm = true,
     .window_period = 2,
     .window_first = true,
     .window = 4096,
     .attn_softcap = 50,
     .final_softcap = 30},
    {.arch = "gemma3",
     .pairing = ROPE_HALVES,
     .gemma = true,
     .post_norm = true,
     .qk_norm = true,
     .local_rope = true,
     .window_period = 6},
    {.arch = "gemma-embedding",
     .pairing = ROPE_HALVES,
     .gemma = true,
     .post_norm = true,
     .qk_norm = true,
     .local_rope = true,
     .embeds = true,
     .window_period = 6},
    {.arch = "bert", .pairing = ROPE_HALVES, .norope_step = 1, .embeds = true, .bert = true},
    {.arch = "nomic-bert", .pairing = ROPE_HALVES, .embeds = true, .nomic = true},
};

/* ---- keys ----------------------------------------------------------------------------------- */

/* Keys are "<arch>.<name>". */
typedef struct reader {
    const gguf *g;
    const char *arch;
    err *e;
} reader;

static bool has_u64(const reader *r, const char *name, uint64_t *out) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    return gguf_get_u64(r->g, key, out);
}

static bool has_f64(const reader *r, const char *name, double *out) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    return gguf_get_f64(r->g, key, out) && isfinite(*out);
}

static bool has_bool(const reader *r, const char *name, bool *out) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    return gguf_get_bool(r->g, key, out);
}

static bool has_str(const reader *r, const char *name, str *out) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    return gguf_get_str(r->g, key, out);
}

/* Reads a count from 1 to `most`. If the file lacks the key, uses `fallback`; it is an error if
 * `fallback` is 0. */
static int read_count(const reader *r, const char *name, int fallback, int most, int *out) {
    uint64_t v;
    if (!has_u64(r, name, &v)) {
        if (fallback == 0)
            return err_set(r->e, ERR_CORRUPT,
                           "the model file lacks %s.%s, or it is not a single number", r->arch,
                           name);
        v = (uint64_t)fallback;
    }
    if (v == 0 || v > (uint64_t)most)
        return err_set(r->e, ERR_CORRUPT, "%s.%s is %" PRIu64 ", not in 1 … %d", r->arch, name, v,
                       most);
    *out = (int)v;
    return 0;
}

/* ---- sizes ---------------------------------------------------------------------------------- */

static int read_sizes(const reader *r, model_config *c) {
    enum { MOST = 1 << 20 };
    int rc = read_count(r, "block_count", 0, CONFIG_MAX_LAYERS, &c->n_layers);
    if (rc == 0)
        rc = read_count(r, "embedding_length", 0, MOST, &c->n_embd);
    if (rc == 0)
        rc = read_count(r, "feed_forward_length", 0, MOST, &c->ffn);
    if (rc == 0)
        rc = read_count(r, "attention.head_count", 0, 4096, &c->n_heads);
    if (rc == 0)
        rc = read_count(r, "attention.head_count_kv", c->n_heads, 4096, &c->n_kv_heads);
    if (rc == 0)
        rc = read_count(r, "attention.key_length", BASE_MAX(1, c->n_embd / c->n_heads),
                        CONFIG_MAX_HEAD_DIM, &c->head_dim);
    if (rc == 0)
        rc = read_count(r, "rope.dimension_count", c->head_dim, c->head_dim, &c->rope_dims);
    if (rc == 0)
        rc = read_count(r, "context_length", 2048, INT32_MAX, &c->context);
    if (rc)
        return rc;
    uint64_t value_length;
    if (has_u64(r, "attention.value_length", &value_length) &&
        value_length != (uint64_t)c->head_dim)
        return err_set(r->e, ERR_UNSUPPORTED,
                       "models whose values (%" PRIu64 ") and keys (%d) differ in length are not "
                       "supported",
                       value_length, c->head_dim);
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(r->e, ERR_CORRUPT,
                       "the number of heads (%d) must be a multiple of that of key heads (%d)",
                       c->n_heads, c->n_kv_heads);
    if (c->head_dim % 2 != 0 || c->rope_dims % 2 != 0)
        return err_set(r->e, ERR_CORRUPT,
                       "the dimensions of a head (%d) and those of them that are rotated (%d) must "
                       "be even",
                       c->head_dim, c->rope_dims);
    const gguf_tensor *embedding = gguf_find(r->g, "token_embd.weight");
    if (!embedding || embedding->dims[1] > INT32_MAX)
        return err_set(r->e, ERR_CORRUPT, "the model file has no token_embd.weight");
    c->vocab = (int)embedding->dims[1];
    double eps = 1e-5;
    if (!has_f64(r, "attention.layer_norm_rms_epsilon", &eps))
        has_f64(r, "attention.layer_norm_epsilon", &eps);
    if (!(eps >= 0))
        return err_set(r->e, ERR_CORRUPT, "the epsilon of the model's norms is negative");
    c->eps = (float)eps;
    return 0;
}

/* ---- positions ------------------------------------------------------------------------------ */

static const char LONG_DIVISORS[] = "rope_factors_long.weight";

/* Reads Llama 3's divisors, or phi3's short ones. Which of phi3's two sets applies would depend
 * on the length of the context, and so would the bits of short prompts. So the long set is not
 * used. */
static int read_divisors(const reader *r, model_config *c) {
    const gguf_tensor *t = gguf_find(r->g, "rope_freqs.weight");
    if (!t)
        t = gguf_find(r->g, "rope_factors_short.weight");
    if (!t)
        return 0;
    if (t->type != GGUF_F32 || t->dims[0] != (uint64_t)c->rope_dims / 2 ||
        t->bytes != t->dims[0] * sizeof(float))
        return err_set(r->e, ERR_CORRUPT,
                       "the tensor %.*s does not have one f32 for each rotated pair",
                       (int)t->name.n, t->name.p);
    c->has_rope_divisors = true;
    model_tensor_rows(t, 0, 1, c->rope_divisors);
    for (int i = 0; i < c->rope_dims / 2; i++) {
        if (!isfinite(c->rope_divisors[i]) || c->rope_divisors[i] <= 0)
            return err_set(r->e, ERR_CORRUPT,
                           "the tensor %.*s has a number that is not positive or not finite",
                           (int)t->name.n, t->name.p);
    }
    return 0;
}

/* Finds the kind of scaling and its factor. Phi3's converter writes two sets of divisors and no
 * kind. Other converters may write a factor (formerly named scale_linear) and no kind, which means
 * linear. */
static void scaling_kind(const reader *r, str *kind, double *factor) {
    if (!has_f64(r, "rope.scaling.factor", factor))
        has_f64(r, "rope.scale_linear", factor);
    if (has_str(r, "rope.scaling.type", kind) && kind->n > 0)
        return;
    if (gguf_find(r->g, LONG_DIVISORS) != NULL)
        *kind = STR("longrope");
    else if (*factor != 0)
        *kind = STR("linear");
}

static int read_scaling(const reader *r, model_config *c) {
    str kind = {0};
    double original = c->context, factor = 0;
    c->rope_factor = 1;
    c->rope_magnitude = 1;
    c->yarn_beta_fast = 32;
    c->yarn_beta_slow = 1;
    scaling_kind(r, &kind, &factor);
    bool trained = has_f64(r, "rope.scaling.original_context_length", &original);
    has_f64(r, "rope.scaling.attn_factor", &c->rope_magnitude);
    c->yarn_context = original;
    if (str_equal(kind, STR("longrope"))) {
        if (!trained || original < 1)
            return err_set(r->e, ERR_UNSUPPORTED,
                           "\"longrope\" positions are supported up to the original context "
                           "length, which the model file does not have "
                           "(rope.scaling.original_context_length)");
        c->context = original < c->context ? (int)original : c->context;
        return 0;
    }
    if (kind.n == 0 || str_equal(kind, STR("none")))
        return 0;
    if (factor <= 0)
        return err_set(r->e, ERR_CORRUPT,
                       "the model file has no positive scaling factor (rope.scaling.factor)");
    c->rope_factor = factor;
    if (str_equal(kind, STR("linear"))) {
        c->scaling = ROPE_LINEAR;
    } else if (str_equal(kind, STR("yarn"))) {
        c->scaling = ROPE_YARN;
        has_f64(r, "rope.scaling.yarn_beta_fast", &c->yarn_beta_fast);
        has_f64(r, "rope.scaling.yarn_beta_slow", &c->yarn_beta_slow);
        if (original < 1 || c->yarn_beta_fast <= 0 || c->yarn_beta_slow <= 0)
            return err_set(r->e, ERR_CORRUPT, "the model file's yarn settings are not positive");
    } else {
        return err_set(r->e, ERR_UNSUPPORTED, "position scaling \"%.*s\" is not supported",
                       (int)BASE_MIN(kind.n, 40u), kind.p);
    }
    return 0;
}

static int read_positions(const reader *r, const family *f, model_config *c) {
    c->pairing = f->pairing;
    c->norope_step = f->norope_step;
    c->rope_theta = 10000;
    has_f64(r, "rope.freq_base", &c->rope_theta);
    if (c->rope_theta <= 1)
        return err_set(r->e, ERR_CORRUPT, "%s.rope.freq_base is not above 1", r->arch);
    c->rope_theta_local = f->local_rope ? 10000 : c->rope_theta;
    uint64_t window = (uint64_t)f->window;
    has_u64(r, "attention.sliding_window", &window);
    if (f->window_period && window > 0 && window <= INT32_MAX) {
        c->window = (int)window;
        c->window_period = f->window_period;
        c->window_first = f->window_first;
    }
    int rc = read_divisors(r, c);
    return rc ? rc : read_scaling(r, c);
}

/* ---- what architectures do differently ------------------------------------------------------ */

static void read_traits(const reader *r, const family *f, model_config *c) {
    c->attn_scale = (float)(1 / sqrt((double)c->head_dim));
    c->embd_scale = 1;
    c->activation = FFN_SILU;
    if (f->gemma) {
        c->embd_scale = sqrtf((float)c->n_embd);
        c->activation = FFN_GELU_TANH;
        /* only the 27B models scale by the width per head, and their files do not say so */
        bool big = (strcmp(f->arch, "gemma2") == 0 && c->n_layers == 46) ||
                   (strcmp(f->arch, "gemma3") == 0 && c->n_layers == 62);
        if (big)
            c->attn_scale = (float)(1 / sqrt((double)c->n_embd / c->n_heads));
    }
    double attn_cap = f->attn_softcap, final_cap = f->final_softcap;
    has_f64(r, "attn_logit_softcapping", &attn_cap);
    has_f64(r, "final_logit_softcapping", &final_cap);
    c->attn_softcap = (float)attn_cap;
    c->final_softcap = (float)final_cap;
    c->qk_norm = f->qk_norm;
    c->post_norm = f->post_norm;
    c->fused_qkv = c->fused_gate_up = f->fused;
    c->qkv_bias = f->qkv_bias || model_tensor(r->g, 0, "attn_q.bias") != NULL;
    c->output_bias = model_tensor(r->g, 0, "attn_output.bias") != NULL;
    c->tied_head = gguf_find(r->g, "output.weight") == NULL;
    if (f->bert || f->nomic) {
        c->layer_norm = true;
        c->types = gguf_find(r->g, "token_types.weight") != NULL;
        c->fused_qkv = model_tensor(r->g, 0, "attn_qkv.weight") != NULL;
        c->qkv_bias = c->qkv_bias || model_tensor(r->g, 0, "attn_qkv.bias") != NULL;
        c->ungated = c->positions = f->bert;
        c->activation = f->bert ? FFN_GELU : FFN_SILU;
        c->ffn_bias = model_tensor(r->g, 0, "ffn_up.bias") != NULL;
    }
}

/* ---- embedding models ----------------------------------------------------------------------- */

static int read_dense(const reader *r, model_config *c) {
    const gguf_tensor *first = gguf_find(r->g, "dense_2.weight");
    if (first == NULL)
        return 0;
    if (first->dims[1] > INT32_MAX)
        return err_set(r->e, ERR_CORRUPT, "the tensor dense_2.weight has too many rows");
    c->dense = (int)first->dims[1];
    return 0;
}

/* Reads how the model makes a vector of a text. A decoder is an embedding model if its file names a
 * pooling (qwen3). */
static int read_pooling(const reader *r, const family *f, model_config *c) {
    enum { FILE_NONE, FILE_MEAN, FILE_CLS, FILE_LAST, FILE_RANK }; /* values in the file */
    static const model_pooling kinds[] = {[FILE_NONE] = POOL_NONE,
                                          [FILE_MEAN] = POOL_MEAN,
                                          [FILE_CLS] = POOL_FIRST,
                                          [FILE_LAST] = POOL_LAST,
                                          [FILE_RANK] = POOL_NONE};
    uint64_t pooling = FILE_NONE;
    bool causal = !f->embeds;
    has_u64(r, "pooling_type", &pooling);
    has_bool(r, "attention.causal", &causal);
    if (pooling == FILE_RANK)
        return err_set(r->e, ERR_UNSUPPORTED,
                       "models that rank texts are not supported (%s.pooling_type is %d)", r->arch,
                       FILE_RANK);
    if (pooling >= BASE_COUNT(kinds))
        return err_set(r->e, ERR_CORRUPT, "%s.pooling_type is %" PRIu64 ", not in 0 … %d", r->arch,
                       pooling, FILE_RANK);
    c->pooling = kinds[pooling];
    c->both_ways = !causal;
    if (c->pooling == POOL_NONE && (f->embeds || c->both_ways))
        return err_set(r->e, ERR_UNSUPPORTED,
                       "the model file does not say how a text's vector is made from its tokens' "
                       "(%s.pooling_type)",
                       r->arch);
    return c->pooling != POOL_NONE ? read_dense(r, c) : 0;
}

/* ---- tensors -------------------------------------------------------------------------------- */

const gguf_tensor *model_tensor(const gguf *g, int layer, const char *name) {
    char full[128];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return gguf_find(g, full);
}

void model_tensor_rows(const gguf_tensor *t, uint64_t first, uint64_t rows, float *out) {
    const quant_type *q = quant_find((uint32_t)t->type);
    size_t width = (size_t)t->dims[0];
    size_t row_bytes = width / (size_t)q->block_elements * (size_t)q->block_bytes;
    assert((first + rows) * row_bytes <= t->bytes);
    q->dequantize((const uint8_t *)t->data + (size_t)first * row_bytes, out, width * (size_t)rows);
}

const gguf_tensor *config_norm(const gguf *g, const model_config *c, int layer, norm_place place,
                               const char *kind) {
    static const char *const before[] = {"attn_norm", "ffn_norm", "output_norm"};
    char name[64];
    if (!c->layer_norm) {
        snprintf(name, sizeof name, "%s.%s", before[place], kind);
        return model_tensor(g, place == NORM_FINAL ? -1 : layer, name);
    }
    bool first = place == NORM_ATTENTION && layer == 0;
    const char *after = first               ? "token_embd_norm"
                        : place == NORM_FFN ? "attn_output_norm"
                                            : "layer_output_norm";
    snprintf(name, sizeof name, "%s.%s", after, kind);
    return model_tensor(g, place == NORM_FFN ? layer : layer - 1, name);
}

/* A tensor that the model must have if `wanted`; rows = 1: a vector. */
typedef struct needed {
    const char *name;
    int64_t columns, rows;
    bool wanted;
} needed;

static int check_tensor(const reader *r, int layer, const needed *n) {
    if (!n->wanted)
        return 0;
    const gguf_tensor *t = model_tensor(r->g, layer, n->name);
    char where[32] = "";
    if (layer >= 0)
        snprintf(where, sizeof where, "blk.%d.", layer);
    if (!t)
        return err_set(r->e, ERR_CORRUPT, "the model file lacks the tensor %s%s", where, n->name);
    if (t->dims[0] != (uint64_t)n->columns || t->dims[1] != (uint64_t)n->rows || t->dims[2] != 1 ||
        t->dims[3] != 1)
        return err_set(r->e, ERR_CORRUPT,
                       "the tensor %s%s is %" PRIu64 " × %" PRIu64 " instead of %" PRId64
                       " × %" PRId64,
                       where, n->name, t->dims[0], t->dims[1], n->columns, n->rows);
    return 0;
}

static int check_layer(const reader *r, const model_config *c, int layer) {
    int64_t d = c->n_embd, q = (int64_t)c->n_heads * c->head_dim,
            kv = (int64_t)c->n_kv_heads * c->head_dim;
    bool split = !c->fused_qkv, after = c->layer_norm;
    const needed list[] = {
        {"attn_norm.weight", d, 1, !after},
        {"attn_q.weight", d, q, split},
        {"attn_k.weight", d, kv, split},
        {"attn_v.weight", d, kv, split},
        {"attn_qkv.weight", d, q + 2 * kv, c->fused_qkv},
        {"attn_q.bias", q, 1, c->qkv_bias && split},
        {"attn_k.bias", kv, 1, c->qkv_bias && split},
        {"attn_v.bias", kv, 1, c->qkv_bias && split},
        {"attn_qkv.bias", q + 2 * kv, 1, c->qkv_bias && !split},
        {"attn_q_norm.weight", c->head_dim, 1, c->qk_norm},
        {"attn_k_norm.weight", c->head_dim, 1, c->qk_norm},
        {"attn_output.weight", q, d, true},
        {"attn_output.bias", d, 1, c->output_bias},
        {"post_attention_norm.weight", d, 1, c->post_norm},
        {"ffn_norm.weight", d, 1, !after},
        {"attn_output_norm.weight", d, 1, after},
        {"attn_output_norm.bias", d, 1, after},
        {"layer_output_norm.weight", d, 1, after},
        {"layer_output_norm.bias", d, 1, after},
        {"ffn_gate.weight", d, c->ffn, !c->fused_gate_up && !c->ungated},
        {"ffn_up.weight", d, c->fused_gate_up ? 2 * (int64_t)c->ffn : c->ffn, true},
        {"ffn_up.bias", c->ffn, 1, c->ffn_bias},
        {"ffn_down.weight", c->ffn, d, true},
        {"ffn_down.bias", d, 1, c->ffn_bias},
        {"post_ffw_norm.weight", d, 1, c->post_norm},
    };
    int rc = 0;
    for (size_t i = 0; i < BASE_COUNT(list) && rc == 0; i++)
        rc = check_tensor(r, layer, &list[i]);
    return rc;
}

static int check_tensors(const reader *r, const model_config *c) {
    const gguf_tensor *types = gguf_find(r->g, "token_types.weight");
    const needed list[] = {
        {"token_embd.weight", c->n_embd, c->vocab, true},
        {"output_norm.weight", c->n_embd, 1, !c->layer_norm},
        {"output.weight", c->n_embd, c->vocab, !c->tied_head},
        {"token_embd_norm.weight", c->n_embd, 1, c->layer_norm},
        {"token_embd_norm.bias", c->n_embd, 1, c->layer_norm},
        {"token_types.weight", c->n_embd, c->types ? (int64_t)types->dims[1] : 0, c->types},
        {"position_embd.weight", c->n_embd, c->context, c->positions},
        {"dense_2.weight", c->n_embd, c->dense, c->dense > 0},
        {"dense_3.weight", c->dense, c->n_embd, c->dense > 0},
    };
    int rc = 0;
    for (size_t i = 0; i < BASE_COUNT(list) && rc == 0; i++)
        rc = check_tensor(r, -1, &list[i]);
    for (int layer = 0; layer < c->n_layers && rc == 0; layer++)
        rc = check_layer(r, c, layer);
    return rc;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static const family *find_family(str arch) {
    for (size_t i = 0; i < BASE_COUNT(families); i++)
        if (str_equal(arch, str_from(families[i].arch)))
            return &families[i];
    return NULL;
}

static int refuse(str arch, err *e) {
    err_set(e, ERR_UNSUPPORTED, "models of architecture \"%.*s\" are not supported",
            (int)BASE_MIN(arch.n, 80u), arch.p);
    char known[256] = "";
    for (size_t i = 0, n = 0; i < BASE_COUNT(families); i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", families[i].arch);
    err_hint(e, "supported architectures are %s", known);
    return ERR_UNSUPPORTED;
}

int config_read(const gguf *g, model_config *c, err *e) {
    *c = (model_config){0};
    str arch;
    if (!gguf_get_str(g, "general.architecture", &arch))
        return err_set(e, ERR_CORRUPT, "the model file does not name its architecture");
    const family *f = find_family(arch);
    if (!f)
        return refuse(arch, e);
    reader r = {g, f->arch, e};
    uint64_t experts;
    if (has_u64(&r, "expert_count", &experts) && experts > 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "mixtures of experts are not supported (%s with %" PRIu64 " experts)",
                       f->arch, experts);
    c->arch = f->arch;
    gguf_get_str(g, "general.name", &c->name);
    int rc = read_sizes(&r, c);
    if (rc == 0)
        rc = read_positions(&r, f, c);
    if (rc)
        return rc;
    read_traits(&r, f, c);
    if (c->ffn_bias && !c->ungated)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s models with biases in a gated feed-forward part are not supported",
                       f->arch);
    rc = read_pooling(&r, f, c);
    return rc ? rc : check_tensors(&r, c);
}

/* ---- questions about layers ----------------------------------------------------------------- */

bool config_layer_has_rope(const model_config *c, int layer) {
    return c->norope_step == 0 || (layer + 1) % c->norope_step != 0;
}

int config_layer_window(const model_config *c, int layer) {
    if (c->window == 0)
        return 0;
    int place = layer % c->window_period;
    bool windowed =
        c->window_period == 1 || (c->window_first ? place == 0 : place != c->window_period - 1);
    return windowed ? c->window : 0;
}

/* Returns the index, as a real number, of the pair of dimensions that rotates `turns` times within
 * the trained context. */
static double yarn_dimension(const model_config *c, double theta, double turns) {
    const double tau = 6.283185307179586;
    return c->rope_dims * log(c->yarn_context / (turns * tau)) / (2 * log(theta));
}

/* Returns the share of pair i's trained frequency that is kept: 1 for high frequencies, 0 for
 * wavelengths over the context (YaRN, arXiv 2309.00071, section 3.2). */
static double yarn_kept(const model_config *c, double theta, int i) {
    double low = fmax(0, floor(yarn_dimension(c, theta, c->yarn_beta_fast)));
    double high = fmin(c->rope_dims - 1, ceil(yarn_dimension(c, theta, c->yarn_beta_slow)));
    double ramp = (i - low) / fmax(0.001, high - low);
    return 1 - fmin(1, fmax(0, ramp));
}

void config_rope_frequencies(const model_config *c, int layer, float *out) {
    bool local = config_layer_window(c, layer) > 0 && c->rope_theta_local != c->rope_theta;
    double theta = local ? c->rope_theta_local : c->rope_theta;
    for (int i = 0; i < c->rope_dims / 2; i++) {
        double f = pow(theta, -2.0 * i / c->rope_dims);
        if (c->has_rope_divisors)
            f /= (double)c->rope_divisors[i];
        /* a layer with its own base was trained without scaling */
        if (c->scaling == ROPE_LINEAR && !local)
            f /= c->rope_factor;
        if (c->scaling == ROPE_YARN && !local) {
            double kept = yarn_kept(c, theta, i);
            f = f * kept + f / c->rope_factor * (1 - kept);
        }
        out[i] = (float)f;
    }
}

float config_rope_magnitude(const model_config *c) {
    double stretched = c->scaling == ROPE_YARN ? 1 + 0.1 * log(c->rope_factor) : 1;
    return (float)(c->rope_magnitude * stretched);
}
