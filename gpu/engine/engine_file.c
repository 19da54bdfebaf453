/*
 * engine_file.c - what backends that run a model file share: opening it, its facts, its tokenizer.
 *
 * Invariant: everything here follows from the file, not from the device.
 */
#include "engine_int.h"

/* Smaller models follow a completion prompt better than chat turns. */
static const uint64_t CHAT_FROM_PARAMETERS = 1000000000;

uint64_t engine_parameters(const gguf *file) {
    uint64_t total = 0;
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        uint64_t n = 1;
        for (int d = 0; d < t->ndims; d++)
            n *= t->dims[d];
        total += n;
    }
    return total;
}

/* Puts the file's path before the message: the functions that read parts of the file do not know
 * the path. */
static int add_path(const char *path, err *e) {
    err why = *e;
    err_set(e, why.code, "'%s': %s", path, why.message);
    if (why.hint[0])
        err_hint(e, "%s", why.hint);
    return (int)why.code;
}

/* Checks that each token has a row in the embedding: a missing row would be read out of bounds.
 * Rows without a token are padding. */
static int vocabulary_check(const llm_engine *engine, err *e) {
    int tokens = tokenizer_size(engine->tokenizer), rows = engine->config.vocab;
    if (tokens <= rows)
        return 0;
    return err_set(e, ERR_CORRUPT,
                   "the model's vocabulary has %d tokens, but its embedding table only %d rows",
                   tokens, rows);
}

int engine_file_open(llm_engine *engine, const char *path, err *e) {
    int code = gguf_open(path, &engine->file, e);
    if (code != 0)
        return code;
    code = config_read(engine->file, &engine->config, e);
    code = code != 0 ? code : tokenizer_new(engine->file, &engine->tokenizer, e);
    code = code != 0 ? code : vocabulary_check(engine, e);
    if (code != 0)
        return add_path(path, e);
    engine->bos = tokenizer_bos(engine->tokenizer);
    engine->eos = tokenizer_eos(engine->tokenizer);
    engine->adds_bos = tokenizer_adds_bos(engine->tokenizer);
    /* models that take the last token's state were trained with EOS there */
    engine->adds_eos = tokenizer_adds_eos(engine->tokenizer, engine->config.pooling == POOL_LAST);
    engine->chat = template_for_chat(engine->file, &engine->info.chat_family);
    return 0;
}

int engine_file_identify(llm_engine *engine, const char *cache_dir, pool *threads, err *e) {
    int code = identity_find(engine->file, engine->info.path, cache_dir, threads, engine->mem,
                             &engine->identity, e);
    engine->info.weights = engine->identity->hash;
    return code;
}

int engine_file_check(llm_engine *engine, const hash128 *loaded, pool *threads, err *e) {
    if (engine->identity == NULL)
        return 0;
    bool same = loaded == NULL || hash128_equal(*loaded, identity_stamp(engine->file));
    if (same && identity_unchanged(engine->identity, threads, loaded != NULL))
        return 0;
    if (pool_check(threads, e) != 0)
        return ERR_CANCELLED;
    atomic_store(&engine->outdated, true);
    err_set(e, ERR_MODEL, "the model '%s' changed after it was opened", engine->info.path);
    err_hint(e, "run the statement again: it will use the new file for all answers");
    return ERR_MODEL;
}

void engine_file_facts(llm_engine *engine) {
    const model_config *c = &engine->config;
    llm_model_info *info = &engine->info;
    info->name = c->name.n > 0 ? arena_strndup(engine->mem, c->name.p, c->name.n) : c->arch;
    info->architecture = c->arch;
    info->layers = c->n_layers;
    info->width = c->n_embd;
    info->heads = c->n_heads;
    info->kv_heads = c->n_kv_heads;
    info->head_dim = c->head_dim;
    info->ffn = c->ffn;
    info->vocab = c->vocab;
    info->context = c->context;
    static const char *const poolings[] = {[POOL_NONE] = NULL,
                                           [POOL_MEAN] = "mean",
                                           [POOL_FIRST] = "first token",
                                           [POOL_LAST] = "last token"};
    info->pooling = poolings[c->pooling];
    info->generates = c->pooling == POOL_NONE;
    info->embedding = c->pooling == POOL_NONE ? 0 : c->n_embd;
    if (engine->file != NULL) {
        info->parameters = engine_parameters(engine->file);
        info->file_bytes = gguf_file_bytes(engine->file);
    }
}

bool engine_prefers_chat(const llm_engine *engine) {
    return engine->chat != NULL && engine_parameters(engine->file) >= CHAT_FROM_PARAMETERS;
}

void engine_file_encode(const llm_engine *engine, str text, bool parse_special, bool segment_start,
                        llm_token **out, size_t *count, size_t *cap) {
    tokenizer_encode(engine->tokenizer, text, parse_special, segment_start, out, count, cap);
}

void engine_file_decode(const llm_engine *engine, llm_token token, bool special, buf *out) {
    tokenizer_decode(engine->tokenizer, token, special, out);
}
