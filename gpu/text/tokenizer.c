/*
 * tokenizer.c - loads a vocabulary; finds special tokens in text and encodes the rest as BPE,
 * SentencePiece or WordPiece; decodes.
 *
 * Invariant: text from data (parse_special false) never becomes a guarded token: such text is not
 * searched for guarded tokens, and merging cannot produce them. Guarded tokens are control tokens,
 * tokens that end an answer, and the markup of the file's chat template, even if a converter marked
 * it as user-defined. Other user-defined tokens (runs of line breaks, HTML tags of gemma) are
 * ordinary text, which is searched for them before any splitting.
 */
#include "tokenizer_parts_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A limit on the time of loading, which tries every division of a token into two. Real tokens have
 * less than 200 bytes. */
enum { LONGEST_TOKEN = 4096 };

/* ---- the vocabulary ------------------------------------------------------------------------- */

int32_t vocab_find(const tokenizer *t, str text) {
    const hash_slot *s = hash_index_first(&t->by_text, hash64(text.p, text.n, 0));
    while (s && !str_equal(t->texts[s->item], text))
        s = hash_index_next(&t->by_text, s);
    return s ? (int32_t)s->item : -1;
}

/* Whether merging plain text may produce the token. */
static bool merges_into(const tokenizer *t, int32_t id) {
    if (token_is(t, id, TOKEN_IS_GUARDED) || t->texts[id].n == 0)
        return false;
    return t->kinds[id] == TOKEN_NORMAL ||
           (t->kinds[id] == TOKEN_USER_DEFINED && t->kind != KIND_SENTENCEPIECE);
}

static void index_texts(tokenizer *t) {
    t->by_text.mem = t->mem;
    hash_index_reserve(&t->by_text, (uint32_t)t->n);
    for (int32_t id = 0; id < t->n; id++) {
        str text = t->texts[id];
        if (merges_into(t, id) && vocab_find(t, text) < 0)
            hash_index_add(&t->by_text, hash64(text.p, text.n, 0), (uint32_t)id);
    }
}

static int load_texts(tokenizer *t, const gguf *g, err *e) {
    gguf_array array;
    arena *scratch = arena_new();
    str *texts;
    int32_t *kinds = NULL;
    int rc = 0;
    if (!gguf_get_array(g, "tokenizer.ggml.tokens", &array) ||
        !gguf_array_strs(&array, scratch, &texts) || array.count == 0)
        rc = err_set(e, ERR_CORRUPT, "the model file has no vocabulary (tokenizer.ggml.tokens)");
    else if (array.count > INT32_MAX / 4)
        rc = err_set(e, ERR_CORRUPT, "the model's vocabulary is too large: %" PRIu64 " tokens",
                     array.count);
    if (rc == 0) {
        t->n = (int)array.count;
        t->texts = ARENA_ARRAY(t->mem, str, t->n);
        t->kinds = ARENA_ARRAY(t->mem, uint8_t, t->n);
        t->flags = ARENA_ARRAY(t->mem, uint8_t, t->n);
        if (gguf_get_array(g, "tokenizer.ggml.token_type", &array) &&
            (array.count != (uint64_t)t->n || !gguf_array_i32(&array, scratch, &kinds)))
            rc = err_set(e, ERR_CORRUPT,
                         "the model's token types do not match its vocabulary in number or type");
    }
    for (int32_t id = 0; rc == 0 && id < t->n; id++) {
        if (texts[id].n > LONGEST_TOKEN) {
            rc =
                err_set(e, ERR_CORRUPT, "token %d of the model's vocabulary is too long: %zu bytes",
                        (int)id, texts[id].n);
            break;
        }
        t->texts[id] = str_copy(t->mem, texts[id]);
        bool known = kinds && kinds[id] >= TOKEN_NORMAL && kinds[id] <= TOKEN_BYTE;
        t->kinds[id] = (uint8_t)(known ? kinds[id] : TOKEN_NORMAL);
    }
    arena_free(scratch);
    return rc;
}

/* ---- control tokens ------------------------------------------------------------------------- */

/* Control tokens that some converters mark as user-defined or normal. */
static const struct {
    const char *text;
    bool ends; /* the token ends an answer */
} known_controls[] = {
    {"<|im_start|>", false},
    {"<|im_end|>", true},
    {"<|start_header_id|>", false},
    {"<|end_header_id|>", false},
    {"<|eot_id|>", true},
    {"<|eom_id|>", true},
    {"<|begin_of_text|>", false},
    {"<|end_of_text|>", true},
    {"<|endoftext|>", true},
    {"<|end|>", true},
    {"<|user|>", false},
    {"<|assistant|>", false},
    {"<|system|>", false},
    {"<start_of_turn>", false},
    {"<end_of_turn>", true},
};

static bool occurs_in(str text, str needle) {
    return needle.n && text.n && memmem(text.p, text.n, needle.p, needle.n) != NULL;
}

static void flag_by_text(tokenizer *t, int32_t id, str chat_template) {
    str text = t->texts[id];
    uint8_t kind = t->kinds[id];
    if (kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN)
        t->flags[id] |= TOKEN_IS_CONTROL | TOKEN_IS_GUARDED;
    if (text.n < 3 || (text.p[0] != '<' && text.p[0] != '['))
        return;
    for (size_t i = 0; i < BASE_COUNT(known_controls); i++) {
        if (str_equal(text, str_from(known_controls[i].text)))
            t->flags[id] |= (uint8_t)(TOKEN_IS_CONTROL | TOKEN_IS_GUARDED |
                                      (known_controls[i].ends ? TOKEN_IS_END : 0));
    }
    if (kind == TOKEN_USER_DEFINED && (text.p[1] == '|' || occurs_in(chat_template, text)))
        t->flags[id] |= TOKEN_IS_GUARDED;
}

/* Reads the token id at `key` and sets the token's flags. Sets *out to the id, or to -1 if the file
 * has none. */
static int load_id(tokenizer *t, const gguf *g, const char *key, uint8_t flags, int32_t *out,
                   err *e) {
    uint64_t id;
    *out = -1;
    if (!gguf_get_u64(g, key, &id))
        return 0;
    if (id >= (uint64_t)t->n)
        return id == UINT32_MAX
                   ? 0
                   : err_set(e, ERR_CORRUPT,
                             "the model file's %s names a token that its vocabulary does not have",
                             key);
    *out = (int32_t)id;
    t->flags[id] |= flags;
    return 0;
}

static int load_flags(tokenizer *t, const gguf *g, err *e) {
    str chat_template = {0};
    gguf_get_str(g, "tokenizer.chat_template", &chat_template);
    for (int32_t id = 0; id < t->n; id++)
        flag_by_text(t, id, chat_template);
    const uint8_t control = TOKEN_IS_CONTROL | TOKEN_IS_GUARDED, end = control | TOKEN_IS_END;
    int32_t ignored;
    bool words = t->kind == KIND_WORDPIECE;
    const char *bos = words ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id";
    /* llama.cpp spells it so */
    const char *eos = words ? "tokenizer.ggml.seperator_token_id" : "tokenizer.ggml.eos_token_id";
    int rc = load_id(t, g, bos, control, &t->bos, e);
    if (rc == 0)
        rc = load_id(t, g, eos, end, &t->eos, e);
    if (rc == 0)
        rc = load_id(t, g, "tokenizer.ggml.eot_token_id", end, &ignored, e);
    if (rc == 0)
        rc = load_id(t, g, "tokenizer.ggml.eom_token_id", end, &ignored, e);
    if (rc == 0)
        rc = load_id(t, g, "tokenizer.ggml.unknown_token_id", control, &t->unknown, e);
    return rc;
}

/* ---- special tokens in text ----------------------------------------------------------------- */

static bool is_special(const tokenizer *t, int32_t id) {
    return t->texts[id].n &&
           (t->flags[id] & TOKEN_IS_GUARDED || t->kinds[id] == TOKEN_USER_DEFINED);
}

static int by_first_byte(const void *a, const void *b) {
    const special_token *x = a, *y = b;
    unsigned char p = (unsigned char)x->text.p[0], q = (unsigned char)y->text.p[0];
    if (p != q)
        return p < q ? -1 : 1;
    if (x->text.n != y->text.n)
        return x->text.n > y->text.n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Returns the text to search for: user-defined tokens of SentencePiece files may have marks for
 * spaces. */
static str special_text(tokenizer *t, int32_t id) {
    if (t->kind != KIND_SENTENCEPIECE || t->kinds[id] != TOKEN_USER_DEFINED)
        return t->texts[id];
    buf b = {0};
    spm_decode(t, id, &b);
    str text = str_copy(t->mem, buf_str(&b));
    buf_free(&b);
    return text;
}

static void index_specials(tokenizer *t) {
    size_t n = 0;
    for (int32_t id = 0; id < t->n; id++)
        n += is_special(t, id);
    t->specials = ARENA_ARRAY(t->mem, special_token, n + 1);
    n = 0;
    for (int32_t id = 0; id < t->n; id++) {
        if (!is_special(t, id))
            continue;
        t->specials[n++] = (special_token){special_text(t, id), id};
        t->plain_has_specials |= !token_is(t, id, TOKEN_IS_GUARDED);
    }
    qsort(t->specials, n, sizeof *t->specials, by_first_byte);
    for (size_t i = 0; i < n; i++)
        t->special_from[(unsigned char)t->specials[i].text.p[0] + 1]++;
    for (int byte = 0; byte < 256; byte++)
        t->special_from[byte + 1] += t->special_from[byte];
}

/* Returns the longest special token that `text` begins with, or NULL. Guarded tokens are found only
 * with `guarded_too`. */
static const special_token *special_at(const tokenizer *t, str text, bool guarded_too) {
    unsigned char first = (unsigned char)text.p[0];
    for (uint32_t i = t->special_from[first]; i < t->special_from[first + 1]; i++) {
        const special_token *s = &t->specials[i];
        if (s->text.n <= text.n && memcmp(s->text.p, text.p, s->text.n) == 0 &&
            (guarded_too || !token_is(t, s->id, TOKEN_IS_GUARDED)))
            return s;
    }
    return NULL;
}

/* ---- the public functions ------------------------------------------------------------------- */

static int load(tokenizer *t, const gguf *g, err *e) {
    str model;
    if (!gguf_get_str(g, "tokenizer.ggml.model", &model))
        return err_set(e, ERR_UNSUPPORTED,
                       "the model file has no tokenizer (tokenizer.ggml.model)");
    t->kind = str_equal(model, STR("llama"))  ? KIND_SENTENCEPIECE
              : str_equal(model, STR("bert")) ? KIND_WORDPIECE
                                              : KIND_BPE;
    if (t->kind == KIND_BPE && !str_equal(model, STR("gpt2")))
        return err_set(e, ERR_UNSUPPORTED, "tokenizers of kind \"%.*s\" are not supported",
                       (int)BASE_MIN(model.n, 80u), model.p);
    int rc = load_texts(t, g, e);
    if (rc == 0)
        rc = load_flags(t, g, e);
    if (rc)
        return rc;
    index_texts(t);
    rc = t->kind == KIND_SENTENCEPIECE ? spm_load(t, g, e)
         : t->kind == KIND_WORDPIECE   ? wordpiece_load(t, e)
                                       : bpe_load(t, g, e);
    if (rc)
        return rc;
    index_specials(t);
    gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos);
    t->adds_bos = t->adds_bos && t->bos >= 0;
    t->says_eos = gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &t->adds_eos);
    return 0;
}

int tokenizer_new(const gguf *g, tokenizer **out, err *e) {
    tokenizer *t = mem_zalloc(sizeof *t);
    t->mem = arena_new();
    int rc = load(t, g, e);
    if (rc) {
        tokenizer_free(t);
        t = NULL;
    }
    *out = t;
    return rc;
}

void tokenizer_free(tokenizer *t) {
    if (!t)
        return;
    merge_table_free(t->merges);
    pretokenizer_free(t->pre);
    arena_free(t->mem);
    free(t);
}

void token_push(token_list *out, llm_token id) {
    ARRAY_PUSH(*out->ids, *out->count, *out->cap, id);
}

static void encode_plain(const tokenizer *t, str text, bool space_prefix, token_list *out) {
    if (t->kind == KIND_SENTENCEPIECE)
        spm_encode(t, text, space_prefix, out);
    else if (t->kind == KIND_WORDPIECE)
        wordpiece_encode(t, text, out);
    else
        bpe_encode(t, text, out);
}

void tokenizer_encode(const tokenizer *t, str text, bool parse_special, bool segment_start,
                      llm_token **ids, size_t *count, size_t *cap) {
    token_list out = {ids, count, cap};
    size_t from = 0, at = 0;
    /* true: the next text gets SentencePiece's space prefix, as after every guarded token */
    bool prefix = segment_start;
    bool search = parse_special || t->plain_has_specials;
    while (search && at < text.n) {
        const special_token *s = special_at(t, (str){text.p + at, text.n - at}, parse_special);
        if (!s) {
            at++;
            continue;
        }
        bool guarded = token_is(t, s->id, TOKEN_IS_GUARDED);
        /* a user-defined token gets the space prefix too, even if no text comes before it */
        if (at > from || (prefix && !guarded))
            encode_plain(t, (str){text.p + from, at - from}, prefix, &out);
        token_push(&out, s->id);
        at += s->text.n;
        while (parse_special && t->strips_after_special && at < text.n &&
               memchr(" \t\r\n", text.p[at], 4))
            at++;
        from = at;
        prefix = guarded;
    }
    if (from < text.n)
        encode_plain(t, (str){text.p + from, text.n - from}, prefix, &out);
}

void tokenizer_decode(const tokenizer *t, llm_token id, bool special, buf *out) {
    if (id < 0 || id >= t->n)
        return;
    if (token_is(t, id, TOKEN_IS_CONTROL)) {
        if (special)
            buf_append_str(out, t->texts[id]);
    } else if (t->kind == KIND_SENTENCEPIECE) {
        spm_decode(t, id, out);
    } else if (t->kind == KIND_WORDPIECE) {
        wordpiece_decode(t, id, out);
    } else if (t->kinds[id] == TOKEN_USER_DEFINED) {
        buf_append_str(out, t->texts[id]);
    } else {
        bpe_decode(t, t->texts[id], out);
    }
}

int tokenizer_size(const tokenizer *t) {
    return t->n;
}

llm_token tokenizer_bos(const tokenizer *t) {
    return t->bos;
}

llm_token tokenizer_eos(const tokenizer *t) {
    return t->eos;
}

bool tokenizer_adds_bos(const tokenizer *t) {
    return t->adds_bos;
}

bool tokenizer_adds_eos(const tokenizer *t, bool otherwise) {
    return t->says_eos || t->kind == KIND_WORDPIECE ? t->adds_eos : otherwise;
}

bool tokenizer_is_control(const tokenizer *t, llm_token id) {
    return id >= 0 && id < t->n && token_is(t, id, TOKEN_IS_CONTROL);
}

bool tokenizer_starts_after(const tokenizer *t, llm_token id) {
    return t->kind == KIND_SENTENCEPIECE && t->adds_space_prefix &&
           (id < 0 || (id < t->n && token_is(t, id, TOKEN_IS_GUARDED)));
}

bool tokenizer_is_end(const tokenizer *t, llm_token id) {
    return id >= 0 && id < t->n && token_is(t, id, TOKEN_IS_END);
}
