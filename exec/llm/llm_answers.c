/*
 * llm_answers.c - answers: the statement's memo, the answers stored on disk, and their SQL values.
 *
 * Invariant: with SET dedup = on, a statement asks a prompt at most once per model, constraint and
 * sampling. A stored answer is used only if its whole identity, every prompt token included,
 * compares equal.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llm_int.h"

/* ---- the memo -------------------------------------------------------------------------------- */

typedef struct memo_entry {
    hash128 key;
    llm_answer *answer; /* NULL: free slot */
} memo_entry;

struct answer_memo {
    memo_entry *entries;
    uint32_t count;    /* used entries */
    uint32_t capacity; /* of `entries`: 0 or a power of two */
    arena *table;      /* holds only the entries; freed when a larger array replaces them */
    arena *mem;        /* holds the answers */
    workmem *space;
};

answer_memo *answer_memo_new(workmem *space, arena *answers) {
    answer_memo *m = mem_zalloc(sizeof *m);
    m->space = space;
    m->mem = answers;
    return m;
}

void answer_memo_free(answer_memo *m) {
    if (!m)
        return;
    arena_free(m->table);
    free(m);
}

static memo_entry *memo_slot(memo_entry *entries, uint32_t capacity, hash128 key) {
    uint32_t at = (uint32_t)key.low & (capacity - 1);
    while (entries[at].answer && !hash128_equal(entries[at].key, key))
        at = (at + 1) & (capacity - 1);
    return &entries[at];
}

llm_answer *answer_memo_find(const answer_memo *m, hash128 key) {
    return m->capacity ? memo_slot(m->entries, m->capacity, key)->answer : NULL;
}

static void memo_grow(answer_memo *m) {
    uint32_t capacity = BASE_MAX(m->capacity * 2, 256u);
    arena *table = arena_new_in(m->space);
    memo_entry *entries = ARENA_ARRAY(table, memo_entry, capacity);
    for (uint32_t i = 0; i < m->capacity; i++)
        if (m->entries[i].answer)
            *memo_slot(entries, capacity, m->entries[i].key) = m->entries[i];
    arena_free(m->table);
    m->table = table;
    m->entries = entries;
    m->capacity = capacity;
}

/* An answer with all probabilities also serves a prompt that does not ask for them, but not the
 * other way round: so the two kinds have keys of their own, in the memo and on disk. */
hash128 answer_key(const prompt *p, const answer_id *id) {
    return p->all_probs ? id->key : (hash128){~id->key.low, id->key.high};
}

llm_answer *answer_memo_find_prompt(const answer_memo *m, const prompt *p, const answer_id *id) {
    llm_answer *a = answer_memo_find(m, id->key);
    return a != NULL || p->all_probs ? a : answer_memo_find(m, answer_key(p, id));
}

llm_answer *answer_memo_expect(answer_memo *m) {
    llm_answer *a = ARENA_NEW(m->mem, llm_answer);
    *a = (llm_answer){.pending = true, .text = STR("")};
    return a;
}

void answer_memo_link(answer_memo *m, hash128 key, llm_answer *a) {
    if (m->count * 2 >= m->capacity)
        memo_grow(m);
    memo_entry *slot = memo_slot(m->entries, m->capacity, key);
    if (slot->answer)
        return;
    *slot = (memo_entry){key, a};
    m->count++;
}

void answer_memo_fill(answer_memo *m, llm_answer *expected, const llm_answer *a, int nliterals) {
    *expected = *a;
    expected->text = str_copy(m->mem, a->text);
    if (a->probs) {
        double *probs = ARENA_ARRAY(m->mem, double, nliterals);
        memcpy(probs, a->probs, sizeof *probs * (size_t)nliterals);
        expected->probs = probs;
    }
}

/* ---- sampling -------------------------------------------------------------------------------- */

void call_sampling(const settings *s, const llm_call *call, llm_sampling *out) {
    *out = (llm_sampling){.temperature = (float)s->temperature,
                          .top_p = (float)s->top_p,
                          .min_p = (float)s->min_p,
                          .top_k = (int)s->top_k,
                          .seed = (uint64_t)s->seed};
    if (call->temperature.type == TYPE_REAL)
        out->temperature = (float)call->temperature.r;
    if (s->top_p <= 0) /* only the likeliest token is left to choose from */
        out->temperature = 0;
}

int call_stops(const settings *s, const llm_call *call, str *own, const str **out) {
    *own = str_from(s->stop);
    *out = call->nstop > 0 ? call->stop : own;
    return call->nstop > 0 ? call->nstop : own->n > 0;
}

/* ---- on disk --------------------------------------------------------------------------------- */

/*
 * The format on disk, with sizes in bytes:
 *
 * identity: fingerprint 16 | guide key 16 | temperature, top_p, min_p 24 | top_k, seed 16 |
 *           max_tokens 4, number of stop texts 4 | template name, NUL | version of the value 1 |
 *           each stop text: length 4, text | prompt tokens 4 each |
 *           if ANSWER_PARTS is set in the version: what identify_parts() appends |
 *           if ANSWER_BLENDED is: share 8, rule 4
 * value:    flags 1 | choice 4 | output tokens 4 | prob 8 | unix time 8 | number of literals n 4 |
 *           their probabilities 8·n | text
 *
 * An answer without the probabilities of all literals has n = 0 and another key (answer_key).
 */
enum {
    ANSWER_VERSION = 4,
    ANSWER_HEADER = 29,   /* bytes of a value before its text */
    ANSWER_ENDED = 1,     /* flag: llm_answer.ended */
    ANSWER_SHORTENED = 2, /* flag: llm_answer.shortened */
    ANSWER_PARTS = 0x80,  /* in the version: fields may be left out of the prompt */
    ANSWER_BLENDED = 0x40 /* in the version: the prompt is blended */
};

/* Whether fields may have to be left out of a prompt. This is assumed if the prompt fills more than
 * half the context, since only the engine decides how much room the answer needs. */
static bool may_be_cut(const prompt *p, const settings *s, llm_span *const *spans, int nspans) {
    size_t total = 0, count;
    for (int i = 0; i < nspans; i++) {
        llm_span_tokens(spans[i], &count);
        total += count;
    }
    return s->llm_overflow != OVERFLOW_ERROR &&
           total > (size_t)llm_engine_info(p->engine)->context / 2;
}

/* Appends what determines which fields are left out: the length of each span, and which fields the
 * question names. */
static void identify_parts(const prompt *p, llm_span *const *spans, int nspans, buf *out) {
    for (int i = 0; i < nspans; i++) {
        size_t count;
        uint32_t part[2] = {0, 0};
        llm_span_tokens(spans[i], &count);
        part[0] = (uint32_t)count;
        int f = prompt_named_field(p, spans[i]);
        if (f >= 0)
            part[1] = 1 + (uint32_t)p->call->field_required[f];
        buf_append(out, part, sizeof part);
    }
}

void answer_identify(const prompt *p, const settings *s, llm_span *const *spans, int nspans,
                     answer_id *out) {
    hash128 fingerprint = llm_engine_info(p->engine)->fingerprint;
    hash128 guide = p->guide ? llm_guide_key(p->guide) : (hash128){0, 0};
    llm_sampling how;
    call_sampling(s, p->call, &how);
    if (p->guide || how.temperature <= 0) /* the other sampling options have no effect */
        how = (llm_sampling){.top_p = 1};
    double sampling[3] = {(double)how.temperature, (double)how.top_p, (double)how.min_p};
    int64_t more[3] = {how.top_k, (int64_t)how.seed, 0};
    str own;
    const str *stop;
    int nstop = p->guide ? 0 : call_stops(s, p->call, &own, &stop);
    if (!p->guide)
        more[2] = llm_call_max_tokens(s, p->call) | (int64_t)nstop << 32;
    buf_clear(&out->identity);
    buf_append(&out->identity, &fingerprint, sizeof fingerprint);
    buf_append(&out->identity, &guide, sizeof guide);
    buf_append(&out->identity, sampling, sizeof sampling);
    buf_append(&out->identity, more, sizeof more);
    buf_append(&out->identity, p->tmpl->name, strlen(p->tmpl->name) + 1);
    bool parts = may_be_cut(p, s, spans, nspans);
    buf_append_char(&out->identity, (char)(ANSWER_VERSION | (parts ? ANSWER_PARTS : 0) |
                                           (p->blends ? ANSWER_BLENDED : 0)));
    for (int i = 0; i < nstop; i++) {
        uint32_t length = (uint32_t)stop[i].n;
        buf_append(&out->identity, &length, sizeof length);
        buf_append_str(&out->identity, stop[i]);
    }
    for (int i = 0; i < nspans; i++) {
        size_t count;
        const llm_token *tokens = llm_span_tokens(spans[i], &count);
        buf_append(&out->identity, tokens, count * sizeof *tokens);
    }
    if (parts)
        identify_parts(p, spans, nspans, &out->identity);
    if (p->blends) {
        int32_t rule = (int32_t)p->blend.rule;
        buf_append(&out->identity, &p->blend.share, sizeof p->blend.share);
        buf_append(&out->identity, &rule, sizeof rule);
    }
    out->key = hash_128(out->identity.p, out->identity.n);
}

/* Reads the stored value of a prompt's answer that has the probabilities of `nprobs` literals. */
static bool value_load(cache *c, hash128 key, const answer_id *id, int nprobs, buf *bytes) {
    uint32_t count = 0;
    buf_clear(bytes);
    if (!cache_get(c, CACHE_ANSWERS, key, buf_str(&id->identity), NULL, 0, bytes) ||
        bytes->n < ANSWER_HEADER + sizeof(double) * (size_t)nprobs)
        return false;
    memcpy(&count, bytes->p + 25, 4);
    return count == (uint32_t)nprobs;
}

bool answer_load(cache *c, const answer_id *id, const prompt *p, bool shortened, arena *mem,
                 llm_answer *out) {
    buf bytes = {0};
    int nprobs = p->call->nliterals;
    bool found = value_load(c, id->key, id, nprobs, &bytes);
    /* a server may answer without probabilities although they are wanted */
    if (!found && (!p->all_probs || llm_engine_info(p->engine)->remote)) {
        nprobs = 0;
        found = value_load(c, answer_key(p, id), id, nprobs, &bytes);
    }
    char flags = found ? bytes.p[0] : 0;
    found = found && (shortened || !(flags & ANSWER_SHORTENED));
    if (found) {
        int32_t choice;
        uint32_t tokens;
        size_t header = ANSWER_HEADER + sizeof(double) * (size_t)nprobs;
        memcpy(&choice, bytes.p + 1, 4);
        memcpy(&tokens, bytes.p + 5, 4);
        *out = (llm_answer){.choice = choice,
                            .output_tokens = tokens,
                            .ended = flags & ANSWER_ENDED,
                            .shortened = flags & ANSWER_SHORTENED};
        memcpy(&out->prob, bytes.p + 9, 8);
        double *probs = ARENA_ARRAY(mem, double, nprobs + 1);
        memcpy(probs, bytes.p + ANSWER_HEADER, header - ANSWER_HEADER);
        out->probs = nprobs > 0 ? probs : NULL;
        out->text = str_copy(mem, (str){bytes.p + header, bytes.n - header});
    }
    buf_free(&bytes);
    return found;
}

void answer_store(cache *c, const answer_id *id, const prompt *p, const llm_answer *a,
                  double cost_ms) {
    buf bytes = {0};
    int32_t choice = a->choice;
    int64_t now = (int64_t)time(NULL);
    buf_append_char(&bytes,
                    (char)((a->ended ? ANSWER_ENDED : 0) | (a->shortened ? ANSWER_SHORTENED : 0)));
    buf_append(&bytes, &choice, 4);
    buf_append(&bytes, &a->output_tokens, 4);
    buf_append(&bytes, &a->prob, 8);
    uint32_t count = a->probs ? (uint32_t)p->call->nliterals : 0;
    buf_append(&bytes, &now, 8);
    buf_append(&bytes, &count, 4);
    buf_append(&bytes, a->probs, sizeof(double) * count);
    buf_append_str(&bytes, a->text);
    cache_put(c, CACHE_ANSWERS, answer_key(p, id), buf_str(&id->identity), (hash128){0, 0}, cost_ms,
              buf_str(&bytes));
    buf_free(&bytes);
}

/* ---- as SQL ---------------------------------------------------------------------------------- */

double answer_prob(const llm_call *call, const llm_answer *a, int literal) {
    if (a->failed || literal == PROB_OF_ANSWER)
        return a->failed ? NAN : a->prob;
    if (!a->probs || literal >= 0)
        return a->probs ? a->probs[literal] : NAN;
    if (call->returns == RETURNS_BOOLEAN)
        return a->probs[0];
    double mean = 0;
    for (int i = 0; i < call->nliterals; i++) {
        int64_t number = 0;
        parse_integer(call->literals[i], &number);
        mean += (double)number * a->probs[i];
    }
    return mean;
}

int answer_value(const llm_call *call, const llm_answer *a, value *out, err *e) {
    *out = value_null();
    if (a->failed)
        return 0;
    switch (call->returns) {
    case RETURNS_TEXT:
        *out = value_text(a->text);
        return 0;
    case RETURNS_ENUM:
        /* The value is the literal as the statement has it, spaces included. */
        if (a->choice < 0 || a->choice >= call->nliterals)
            break;
        *out = value_text(call->literals[a->choice]);
        return 0;
    case RETURNS_BOOLEAN:
        *out = value_bool(a->choice == 0);
        return 0;
    case RETURNS_INTEGER:
        out->type = TYPE_INTEGER;
        if (parse_integer(a->text, &out->i))
            return 0;
        break;
    case RETURNS_REAL:
        out->type = TYPE_REAL;
        if (parse_real(a->text, &out->r))
            return 0;
        break;
    case RETURNS_VECTOR:
        *out = (value){.type = TYPE_VECTOR, .s = a->text};
        return 0;
    }
    return err_set(e, ERR_MODEL, "LLM#%d: '%.*s' is not an answer of type %s", call->number,
                   (int)BASE_MIN(a->text.n, 60u), a->text.p, llm_returns_name(call->returns));
}
