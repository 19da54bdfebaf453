/*
 * cpu.c - the CPU backend: opens a model, chooses the precision, and defines the backend's table.
 *
 * Owns the engine's CPU state; cpu_forward.c runs passes. Invariant: the fingerprint covers
 * everything that the bits of KV depend on: weights, positions, precision, kernels and library (by
 * the probe's output).
 *
 * If the side file has the probe's output for the same library, settings and shapes, opening uses
 * this record and does not load weights: a statement whose answers are all stored needs no weights.
 * The first session that runs a pass loads the weights (cpu_ready) and probes. If the probe's
 * output differs from the record, the record is corrected and the session fails. The engine is then
 * outdated: an engine that is opened later has the right fingerprint.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_int.h"

/* 'auto' chooses a precision over a more exact one only if it is this many times faster. */
static const double MUST_GAIN = 1.2;

static bool bf16_gains(const side_facts *facts) {
    return facts->rate[LLM_BF16] > facts->rate[LLM_F32] * MUST_GAIN;
}

static bool in_bytes(llm_precision p) {
    return p == LLM_INT8 || p == LLM_INT8X2;
}

/* True if the widths of the matrices are multiples of INT8_GROUP. */
static bool fits_bytes(const model_config *c) {
    int run = c->n_heads / c->n_kv_heads * c->head_dim; /* columns that attention stores at once */
    return (c->n_embd | c->ffn | run) % INT8_GROUP == 0;
}

static bool is_of_layer(const gguf_tensor *t) {
    return t->ndims == 2 && t->name.n > 4 && memcmp(t->name.p, "blk.", 4) == 0;
}

/* True if all matrices of the layers are quantised in the file. */
static bool is_quantised(const gguf *file) {
    bool all = true;
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        if (is_of_layer(t))
            all = all && quant_find(t->type)->block_elements > 1;
    }
    return all;
}

/* Returns the share of the layers' weights that bytes with `levels` steps can hold
 * (model_fits_bytes). */
static double share_in_bytes(const gguf *file, int levels) {
    double held = 0, sum = 0;
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        double n = is_of_layer(t) ? (double)t->dims[0] * (double)t->dims[1] : 0;
        held += model_fits_bytes(t, levels) ? n : 0;
        sum += n;
    }
    return sum > 0 ? held / sum : 0;
}

/* Measures FLOP/s of one thread in every precision and chooses the precision of 'auto'. int8 is
 * chosen only for quantised files, which lose little more accuracy by it: llama.cpp also rounds
 * states to bytes in groups of 32 for these files. It is not chosen for embedding models: their
 * vectors lose more than in bf16, and gain little speed. */
static void rates_measure(const llm_engine *engine, const int8_kernels *int8, side_facts *out) {
    static const gemm_type types[LLM_PRECISIONS] = {[LLM_F32] = GEMM_F32,
                                                    [LLM_BF16] = GEMM_BF16,
                                                    [LLM_INT8] = GEMM_INT8,
                                                    [LLM_INT8X2] = GEMM_INT8X2};
    const model_config *c = &engine->config;
    for (llm_precision p = LLM_F32; p < LLM_PRECISIONS; p++)
        if (!in_bytes(p) || fits_bytes(c))
            out->rate[p] = gemm_measure(types[p], c->n_embd, 384);
    out->precision = bf16_gains(out) ? LLM_BF16 : LLM_F32;
    if (out->rate[LLM_INT8] > out->rate[out->precision] * MUST_GAIN && c->pooling == POOL_NONE &&
        is_quantised(engine->file) && share_in_bytes(engine->file, int8->levels) > 0.5)
        out->precision = LLM_INT8;
}

/* Returns the facts in the side file. If the file has none, measures them and writes the file. */
static side_facts facts_find(const llm_engine *engine, const cpu_state *s) {
    side_facts facts;
    if (side_file_read(s->cache_dir, s->weights, s->machine, &facts) &&
        facts.precision != LLM_PRECISION_AUTO)
        return facts;
    facts = (side_facts){0};
    rates_measure(engine, s->int8, &facts);
    facts.chat = engine_prefers_chat(engine);
    side_file_write(s->cache_dir, s->weights, s->machine, &facts);
    return facts;
}

/* Returns a text like "one thread does 250 GFLOP/s in f32, 540 in bf16". */
static const char *rates_text(llm_engine *engine, const side_facts *facts) {
    buf b = {0};
    for (llm_precision p = LLM_F32; p < LLM_PRECISIONS; p++)
        if (facts->rate[p] > 0)
            buf_printf(&b, "%s%.0f %sin %s", b.n > 0 ? ", " : "one thread does ",
                       facts->rate[p] / 1e9, b.n > 0 ? "" : "GFLOP/s ", llm_precision_name(p));
    const char *text = arena_printf(engine->mem, "%s", b.p);
    buf_free(&b);
    return text;
}

static int precision_choose(llm_engine *engine, cpu_state *s, const llm_engine_options *options,
                            const side_facts *facts, err *e) {
    llm_model_info *info = &engine->info;
    bool automatic = options->precision == LLM_PRECISION_AUTO;
    s->precision = automatic ? facts->precision : options->precision;
    info->precision = llm_precision_name(s->precision);
    info->precision_reason = automatic ? rates_text(engine, facts) : "as set";
    bool bytes = in_bytes(s->precision);
    if (bytes && s->int8 == NULL) {
        return err_set(
            e, ERR_UNSUPPORTED,
            "precision '%s' needs a processor with AVX2; the kernels for this one are: %s",
            info->precision, kernels_choose(engine->config.head_dim, true)->name);
    }
    if (bytes && share_in_bytes(engine->file, s->int8->levels) == 0) {
        err_set(e, ERR_UNSUPPORTED,
                "precision '%s' on this processor (it lacks VNNI) needs a model file with Q4_0, "
                "Q4_1, Q5_0, Q5_1, Q4_K or Q5_K weights; this file has none",
                info->precision);
        err_hint(e, "SET precision = 'auto'");
        return ERR_UNSUPPORTED;
    }
    if (bytes && !fits_bytes(&engine->config)) {
        return err_set(
            e, ERR_UNSUPPORTED,
            "precision '%s' needs matrix widths that are multiples of %d; this model has "
            "widths of %d and %d",
            info->precision, INT8_GROUP, engine->config.n_embd, engine->config.ffn);
    }
    s->wide = s->precision == LLM_BF16 || (bytes && bf16_gains(facts)) ? GEMM_BF16 : GEMM_F32;
    return 0;
}

static model_types types_of(const cpu_state *s) {
    model_types out = {s->wide, s->wide, s->wide, s->wide, s->wide, 0};
    if (!in_bytes(s->precision))
        return out;
    out.levels = s->int8->levels;
    out.rest = s->precision == LLM_INT8 ? GEMM_INT8 : GEMM_INT8X2;
    /* in one plane, q, k and v lose as much accuracy as all other matrices together; in the last
     * layer two planes cost little time, since only wanted rows use it */
    if (s->precision == LLM_INT8X2 || (s->wide == GEMM_F32 && s->int8->planes_gain))
        out.qkv = out.last = GEMM_INT8X2;
    return out;
}

/* Uses the recorded token rates if the engine's precision is the precision of 'auto'. Returns true
 * if both rates are recorded. */
static bool rates_recall(llm_engine *engine, cpu_state *s, const side_facts *facts) {
    llm_model_info *info = &engine->info;
    s->keeps_rates = facts->precision == s->precision;
    info->prefill_tok_s = s->keeps_rates ? facts->prefill_tok_s : 0;
    info->decode_tok_s = s->keeps_rates ? facts->decode_tok_s : 0;
    return info->prefill_tok_s > 0 && info->decode_tok_s > 0;
}

/* Estimates the rates from the speed of the layers' products at a large and a small height.
 * Sessions replace the estimates by measured rates. */
static void rates_guess(llm_engine *engine, cpu_state *s) {
    llm_model_info *info = &engine->info;
    static const double products = 0.7; /* share of the layers' products in the time of a pass */
    if (info->prefill_tok_s <= 0)
        info->prefill_tok_s = products * cpu_gemm_rate(engine, gemm_tile(s->g));
    if (info->decode_tok_s <= 0)
        info->decode_tok_s = products * cpu_gemm_rate(engine, gemm_height(s->g, GEMM_SMALL));
    if (s->keeps_rates) {
        side_file_keep_rates(s->cache_dir, s->weights, s->machine, info->prefill_tok_s,
                             info->decode_tok_s);
    }
}

static int kv_choose(llm_engine *engine, cpu_state *s, const llm_engine_options *options, err *e) {
    llm_model_info *info = &engine->info;
    /* an embedding model keeps no KV: its type and the form of attention are no choices */
    if (engine->config.pooling != POOL_NONE) {
        info->kv_dtype = s->kv_dtype = s->wide == GEMM_BF16 ? LLM_KV_BF16 : LLM_KV_F32;
        return 0;
    }
    info->attention = options->attention;
    info->kv_dtype = s->kv_dtype = options->kv_dtype;
    if (options->attention == LLM_ATTENTION_FULL)
        return 0;
    int sinks = options->sink_tokens, window = options->window_tokens;
    if (sinks < 0 || window < 1 || sinks > engine->config.context - window) {
        return err_set(
            e, ERR_LIMIT,
            "streaming attention with %d sink tokens and a window of %d: sinks must be at "
            "least 0, the window at least 1, their sum at most the model's context of %d",
            sinks, window, engine->config.context);
    }
    info->sink_tokens = s->sinks = sinks;
    info->window_tokens = s->window = window;
    return 0;
}

static void info_fill(llm_engine *engine, cpu_state *s) {
    const model_config *c = &engine->config;
    llm_model_info *info = &engine->info;
    snprintf(s->device, sizeof s->device, "cpu (%s)", s->k->name);
    engine_file_facts(engine);
    info->device = s->device;
    info->weight_bytes = s->probe.packed_bytes;
    info->kv_bytes_per_token = cpu_kv_layout(c, s->kv_dtype).block / LLM_BLOCK_TOKENS;
    info->threads = pool_threads(s->threads);
}

/* Returns a hash of everything that the bits of KV depend on. */
static hash128 fingerprint(const llm_engine *engine, const cpu_state *s) {
    buf b = {0};
    const model_config *c = &engine->config;
    buf_append(&b, &s->weights, sizeof s->weights);
    buf_append(&b, &s->probe.digest, sizeof s->probe.digest);
    buf_append(&b, s->frequencies, sizeof(float) * (size_t)(c->rope_dims / 2));
    buf_append(&b, s->frequencies_local, sizeof(float) * (size_t)(c->rope_dims / 2));
    buf_printf(&b, "%s %s kv-%s attention %d+%d block %d version 3", engine->info.precision,
               s->k->name, llm_kv_dtype_name(s->kv_dtype), s->sinks, s->window, LLM_BLOCK_TOKENS);
    float in[64], out[64 * 3];
    for (int i = 0; i < 64; i++)
        in[i] = (float)(i - 40) * 0.173f;
    s->k->exp(in, 64, out);
    s->k->rms_norm(in, NULL, 1e-5f, 64, out + 64);
    s->k->swiglu(in, in, 64, out + 128);
    buf_append(&b, out, sizeof out);
    if (c->pooling != POOL_NONE) {
        s->k->layer_norm(in, in, in, 1e-5f, 64, out);
        s->k->gelu(in, NULL, 64, out + 64);
        buf_append(&b, out, sizeof(float) * 128);
        buf_printf(&b, "vector %d version 1", (int)c->pooling);
    }
    hash128 h = hash_128(b.p, b.n);
    buf_free(&b);
    return h;
}

static void rope_prepare(llm_engine *engine, cpu_state *s) {
    const model_config *c = &engine->config;
    size_t pairs = (size_t)(c->rope_dims / 2);
    s->frequencies = ARENA_ARRAY(engine->mem, float, pairs);
    s->frequencies_local = ARENA_ARRAY(engine->mem, float, pairs);
    config_rope_frequencies(c, 0, s->frequencies_local);
    memcpy(s->frequencies, s->frequencies_local, sizeof(float) * pairs);
    for (int l = 0; l < c->n_layers; l++) {
        bool local = config_layer_window(c, l) > 0;
        config_rope_frequencies(c, l, local ? s->frequencies_local : s->frequencies);
    }
    s->two_ropes = memcmp(s->frequencies, s->frequencies_local, sizeof(float) * pairs) != 0;
    s->rope_magnitude = config_rope_magnitude(c);
}

/* ---- weights --------------------------------------------------------------------------------- */

static void probe_keep(const cpu_state *s, const side_probe *found) {
    side_facts facts;
    side_probe *kept = &facts.probe[s->precision];
    if (side_file_read(s->cache_dir, s->weights, s->machine, &facts) &&
        (!hash128_equal(kept->identity, found->identity) ||
         !hash128_equal(kept->digest, found->digest) ||
         kept->packed_bytes != found->packed_bytes)) {
        *kept = *found;
        side_file_write(s->cache_dir, s->weights, s->machine, &facts);
    }
}

/* Loads the weights and runs the probe. Writes the probe's output to the side file and to *found.
 * The caller holds the pool's lock, or no other thread uses the engine yet. */
static int weights_load(llm_engine *engine, cpu_state *s, side_probe *found,
                        const atomic_bool *cancel, err *e) {
    const model_config *c = &engine->config;
    hash128 before = identity_stamp(engine->file);
    if (!s->model.begun && s->wide == GEMM_BF16 && c->pooling == POOL_NONE)
        s->model.screen = head_screen_new(s->k, c->vocab, c->n_embd);
    pool_let_cancel(s->threads, cancel);
    int code = model_load(&s->model, s->threads, &found->digest, e);
    code = code != 0 ? code : engine_file_check(engine, &before, s->threads, e);
    code = code != 0 ? code : pool_check(s->threads, e);
    pool_let_cancel(s->threads, NULL);
    if (code != 0)
        return code;
    if (s->model.screen != NULL && (s->model.screen->run = cpu_screen_order(s)) == 0) {
        head_screen_free(s->model.screen);
        s->model.screen = NULL;
    }
    gguf_release_pages(engine->file);
    found->identity = gemm_identity(s->g);
    found->packed_bytes = gemm_bytes(s->g);
    probe_keep(s, found);
    s->loaded = true;
    return 0;
}

int cpu_ready(llm_engine *engine, const atomic_bool *cancel, err *e) {
    cpu_state *s = engine->state;
    pool_lock(s->threads);
    if (s->load_error.code == ERR_CANCELLED)
        err_clear(&s->load_error);
    if (!s->loaded && s->load_error.code == ERR_NONE) {
        side_probe found = {0};
        int code = weights_load(engine, s, &found, cancel, &s->load_error);
        if (code == 0 && !hash128_equal(found.digest, s->probe.digest)) {
            atomic_store(&engine->outdated, true);
            err_set(&s->load_error, ERR_MODEL,
                    "the model '%s' now gives different results than when it was last loaded on "
                    "this machine",
                    engine->info.path);
            err_hint(&s->load_error,
                     "run the statement again, so that stored and new answers do not mix");
        }
    }
    if (s->load_error.code != ERR_NONE)
        *e = s->load_error;
    int code = (int)s->load_error.code;
    pool_unlock(s->threads);
    return code;
}

int cpu_load(llm_engine *engine, const llm_engine_options *options, err *e) {
    cpu_state *s = mem_zalloc(sizeof *s);
    engine->state = s;
    s->k = kernels_choose(engine->config.head_dim, false);
    if (s->k == NULL) {
        return err_set(
            e, ERR_UNSUPPORTED,
            "heads of %d dimensions are not supported: the CPU backend needs a multiple of 4",
            engine->config.head_dim);
    }
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");
    /* rates measured by a debug or sanitizer build must not be used by other builds */
    snprintf(s->machine, sizeof s->machine, "%s %s " BUILD_KIND, s->k->name,
             isa != NULL ? isa : "");
    s->cache_dir = mem_strdup(options->cache_dir);
    s->threads = pool_new(engine->info.threads);
    pool_let_cancel(s->threads, options->cancel);
    int code = engine_file_identify(engine, s->cache_dir, s->threads, e);
    pool_let_cancel(s->threads, NULL);
    if (code != 0)
        return code;
    s->weights = engine->info.weights;
    s->int8 = int8_choose();
    side_facts facts = facts_find(engine, s);
    engine->info.default_format =
        facts.chat != 0 && engine->chat != NULL ? LLM_FORMAT_CHAT : LLM_FORMAT_COMPLETION;
    code = precision_choose(engine, s, options, &facts, e);
    code = code != 0 ? code : kv_choose(engine, s, options, e);
    s->k = kernels_choose(engine->config.head_dim, s->wide == GEMM_BF16);
    code = code != 0 ? code : gemm_new(s->threads, s->wide, &s->g, e);
    model_types types = types_of(s);
    code =
        code != 0 ? code : model_declare(&s->model, engine->file, &engine->config, s->g, &types, e);
    if (code != 0)
        return code;
    rope_prepare(engine, s);
    s->probe = facts.probe[s->precision];
    bool known = !options->load_now && s->probe.packed_bytes > 0 &&
                 hash128_equal(s->probe.identity, gemm_identity(s->g));
    if (!rates_recall(engine, s, &facts) || !known) {
        code = weights_load(engine, s, &s->probe, options->cancel, e);
        if (code != 0)
            return code;
        rates_guess(engine, s);
    }
    info_fill(engine, s);
    engine->info.fingerprint = fingerprint(engine, s);
    return 0;
}

static int cpu_open(llm_engine *engine, const llm_engine_options *options, err *e) {
    int code = engine_file_open(engine, options->path, e);
    return code != 0 ? code : cpu_load(engine, options, e);
}

static void cpu_close(llm_engine *engine) {
    cpu_state *s = engine->state;
    if (s == NULL)
        return;
    if (s->model.mem != NULL)
        model_free(&s->model);
    gemm_free(s->g);
    pool_free(s->threads);
    free(s->cache_dir);
    free(s);
}

static void cpu_keep_rates(llm_engine *engine, double prefill_tok_s, double decode_tok_s) {
    cpu_state *s = engine->state;
    pool_lock(s->threads);
    if (s->keeps_rates)
        side_file_keep_rates(s->cache_dir, s->weights, s->machine, prefill_tok_s, decode_tok_s);
    pool_unlock(s->threads);
}

static int cpu_kv_read(llm_engine *engine, void *work, int32_t block, void *out, err *e) {
    (void)engine;
    (void)e;
    cpu_work *w = work;
    memcpy(out, cpu_kv_block(w, block), w->layout.block);
    return 0;
}

static void cpu_kv_write(llm_engine *engine, void *work, int32_t block, const void *in) {
    (void)engine;
    cpu_work *w = work;
    memcpy(cpu_kv_block(w, block), in, w->layout.block);
}

const llm_backend backend_cpu = {
    .name = "cpu",
    .pass_tokens = 1024,
    .max_batch = 256,
    .blends = true,
    .open = cpu_open,
    .close = cpu_close,
    .encode = engine_file_encode,
    .decode = engine_file_decode,
    .work_new = cpu_work_new,
    .work_free = cpu_work_free,
    .forward = cpu_forward,
    .kv_read = cpu_kv_read,
    .kv_write = cpu_kv_write,
    .keep_rates = cpu_keep_rates,
};
