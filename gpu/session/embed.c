/*
 * embed.c - vectors of texts: tokens, and passes over whole texts.
 *
 * A pass has as many whole texts as fit, in the caller's order; their rows are packed without
 * padding, so texts of different lengths cost nothing. Invariant: a text is in one pass, in blocks
 * of its own, so that its vector does not depend on its neighbours. Which texts are equal, stored or
 * wanted first is the caller's concern.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "session_int.h"

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Tokens of all texts, one after the other. */
typedef struct text_tokens {
    llm_token *ids;
    size_t count, cap;
    size_t *ends; /* [texts] number of tokens up to the end of the text */
    size_t longest;
} text_tokens;

/* Appends the tokens of a text, with BOS and EOS ([CLS] and [SEP]) if the model has them. Returns
 * whether the text lost its end. */
static bool text_encode(const llm_engine *engine, str text, text_tokens *out) {
    bool bos = engine->adds_bos && engine->bos >= 0, eos = engine->adds_eos && engine->eos >= 0;
    if (bos)
        ARRAY_PUSH(out->ids, out->count, out->cap, engine->bos);
    size_t first = out->count, most = (size_t)BASE_MAX(engine->info.context - bos - eos, 0);
    engine_encode(engine, text, false, engine_starts_after(engine, bos ? engine->bos : -1),
                  &out->ids, &out->count, &out->cap);
    bool truncated = out->count - first > most;
    out->count = truncated ? first + most : out->count;
    if (eos)
        ARRAY_PUSH(out->ids, out->count, out->cap, engine->eos);
    return truncated;
}

size_t llm_embed_tokens(const llm_engine *engine, str text, bool *truncated) {
    text_tokens tokens = {0};
    bool cut = text_encode(engine, text, &tokens);
    if (truncated != NULL)
        *truncated = cut;
    free(tokens.ids);
    return tokens.count;
}

static int texts_encode(const llm_engine *engine, const str *texts, size_t count,
                        const atomic_bool *cancel, text_tokens *out, llm_figures *figures, err *e) {
    enum { POLL = 256 };
    out->ends = mem_alloc(sizeof *out->ends * BASE_MAX(count, (size_t)1));
    for (size_t i = 0; i < count; i++) {
        size_t before = out->count;
        if (i % POLL == 0 && cancel != NULL && atomic_load(cancel))
            return err_set(e, ERR_CANCELLED, "cancelled");
        figures->truncated += text_encode(engine, texts[i], out);
        out->ends[i] = out->count;
        out->longest = BASE_MAX(out->longest, out->count - before);
        if (out->count == before)
            return err_set(e, ERR_LIMIT, "text %zu of %zu has no token, so it has no vector", i + 1,
                           count);
    }
    return 0;
}

/* ---- passes ---------------------------------------------------------------------------------- */

typedef struct embed_job {
    llm_engine *engine;
    void *work;
    text_tokens tokens;
    size_t count, next; /* texts; the first text of the next pass */
    float *const *out;
    int rows_cap;
    pass pass;
    int32_t *blocks; /* [rows_cap] block tables of the pass's texts, one after the other */
    size_t *texts;   /* [rows_cap] indexes of the pass's texts */
} embed_job;

/* Adds the next text. false: the pass is full. */
static bool pass_add(embed_job *j) {
    pass *p = &j->pass;
    size_t from = j->next > 0 ? j->tokens.ends[j->next - 1] : 0;
    int n = (int)(j->tokens.ends[j->next] - from);
    if (p->nrows + n > j->rows_cap)
        return false;
    int32_t first = 0, blocks = (n + LLM_BLOCK_TOKENS - 1) / LLM_BLOCK_TOKENS;
    if (p->npools > 0) {
        const pass_pool *last = &p->pools[p->npools - 1];
        first = p->rows[last->first].table[(last->count - 1) / LLM_BLOCK_TOKENS] + 1;
    }
    for (int32_t b = 0; b < blocks; b++)
        j->blocks[first + b] = first + b;
    for (int i = 0; i < n; i++)
        p->rows[p->nrows + i] = (pass_row){
            .token = j->tokens.ids[from + (size_t)i], .position = i, .table = j->blocks + first};
    p->pools[p->npools] = (pass_pool){.first = p->nrows, .count = n, .vector = j->out[j->next]};
    j->texts[p->npools++] = j->next++;
    p->nrows += n;
    return true;
}

/* A damaged file, or one whose states overflow in this precision, gives NaN. */
static int vectors_check(const embed_job *j, err *e) {
    for (int i = 0; i < j->pass.npools; i++) {
        for (int d = 0; d < j->engine->info.embedding; d++) {
            if (!isfinite(j->pass.pools[i].vector[d])) {
                err_set(e, ERR_MODEL, "the model '%s' gave a vector that is not a number",
                        j->engine->info.path);
                err_hint(e, "SET precision = 'f32', or fetch the model file again");
                return ERR_MODEL;
            }
        }
    }
    return 0;
}

static int pass_compute(embed_job *j, llm_figures *figures, err *e) {
    double start = clock_ms();
    j->pass.nrows = j->pass.npools = 0;
    while (j->next < j->count && pass_add(j))
        continue;
    int code = j->engine->backend->forward(j->engine, j->work, &j->pass, e);
    code = code != 0 ? code : engine_file_check(j->engine, NULL, NULL, e);
    code = code != 0 ? code : vectors_check(j, e);
    if (code != 0)
        return code;
    figures->passes++;
    figures->done += (uint64_t)j->pass.npools;
    figures->prompt_tokens += (uint64_t)j->pass.nrows;
    figures->computed_tokens += (uint64_t)j->pass.nrows;
    figures->prefill_ms += clock_ms() - start;
    return 0;
}

static int work_begin(embed_job *j, const llm_embed_options *o, llm_figures *figures, err *e) {
    double start = clock_ms();
    size_t most =
        BASE_MAX((size_t)(o->pass_tokens > 0 ? o->pass_tokens : session_pass_tokens(j->engine)),
                 j->tokens.longest);
    j->rows_cap = (int)BASE_MIN(most, j->tokens.count);
    size_t rows = (size_t)j->rows_cap;
    /* a text of one token has a block, too */
    work_size size = {.blocks = j->rows_cap, .rows = j->rows_cap, .cancel = o->cancel};
    int code = j->engine->backend->work_new(j->engine, &size, &j->work, e);
    figures->load_ms += clock_ms() - start;
    j->pass.rows = mem_alloc(sizeof *j->pass.rows * rows);
    j->pass.pools = mem_alloc(sizeof *j->pass.pools * rows);
    j->blocks = mem_alloc(sizeof *j->blocks * rows);
    j->texts = mem_alloc(sizeof *j->texts * rows);
    return code;
}

static int passes_run(embed_job *j, const llm_embed_options *o, llm_figures *figures, err *e) {
    int code = work_begin(j, o, figures, e);
    while (code == 0 && j->next < j->count) {
        if (o->cancel != NULL && atomic_load(o->cancel))
            return err_set(e, ERR_CANCELLED, "cancelled");
        code = pass_compute(j, figures, e);
        if (code == 0 && o->done != NULL)
            o->done(o->ctx, j->texts, (size_t)j->pass.npools);
    }
    return code;
}

static void job_free(embed_job *j) {
    if (j->work != NULL)
        j->engine->backend->work_free(j->engine, j->work);
    free(j->pass.rows);
    free(j->pass.pools);
    free(j->blocks);
    free(j->texts);
}

/* Vectors of a backend without a model. */
static int texts_make(llm_engine *engine, const str *texts, size_t count, float *const *out,
                      const llm_embed_options *o, const text_tokens *tokens, llm_figures *figures,
                      err *e) {
    for (size_t i = 0; i < count; i++) {
        if (o->cancel != NULL && atomic_load(o->cancel))
            return err_set(e, ERR_CANCELLED, "cancelled");
        engine->backend->embed(engine, texts[i], out[i]);
        figures->done++;
        if (o->done != NULL)
            o->done(o->ctx, &i, 1);
    }
    figures->prompt_tokens += tokens->count;
    figures->computed_tokens += tokens->count;
    return 0;
}

/* Records the rate, if there was enough work to measure it. */
static void rate_keep(llm_engine *engine, const llm_figures *f) {
    if (f->prefill_ms > 100 && engine->backend->keep_rates != NULL)
        engine->backend->keep_rates(engine, (double)f->computed_tokens * 1e3 / f->prefill_ms, 0);
}

int llm_embed(llm_engine *engine, const str *texts, size_t count, float *const *out,
              const llm_embed_options *options, llm_figures *figures, err *e) {
    llm_figures own = {.requests = count};
    if (engine->info.embedding == 0) {
        err_set(e, ERR_UNSUPPORTED, "the model '%s' (%s) generates text and makes no embeddings",
                engine->info.path, engine->info.architecture);
        err_hint(e,
                 "run sh tutorials/quickstart.sh --embedder to fetch an embedding model, or name "
                 "another one's .gguf file");
        return ERR_UNSUPPORTED;
    }
    embed_job j = {.engine = engine, .count = count, .out = out};
    int code = texts_encode(engine, texts, count, options->cancel, &j.tokens, &own, e);
    if (code == 0 && engine->backend->forward == NULL)
        code = texts_make(engine, texts, count, out, options, &j.tokens, &own, e);
    else if (code == 0 && count > 0)
        code = passes_run(&j, options, &own, e);
    rate_keep(engine, &own);
    if (figures != NULL)
        llm_figures_add(figures, &own);
    job_free(&j);
    free(j.tokens.ids);
    free(j.tokens.ends);
    return code;
}
