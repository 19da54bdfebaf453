/*
 * pretokenize.c - splits text into the pieces within which BPE merges, by the pattern that a GGUF
 * file names.
 *
 * Invariant: the concatenated pieces are the text, for any bytes. The table below is the only place
 * that has the names of pre-tokenizers. The patterns list white space explicitly: without PCRE2_UCP
 * \s matches ASCII only; with PCRE2_UCP it is slower and matches U+180E, which the original
 * patterns do not. Where an original splits twice (at single digits, then by GPT-2's pattern), one
 * pattern with the same result replaces both.
 */
#include "tokenizer_parts_int.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#define SPACE                                                                                      \
    "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{"    \
    "205F}\\x{3000}"
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define SUFFIX "'s|'t|'re|'ve|'m|'ll|'d"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
/* A run of white space without its last space, which belongs to the next word; at the end of the
 * text, the whole run. */
#define BLANKS "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define LINES "[" SPACE "]*[\\r\\n]+|"
#define CASED(suffix)                                                                              \
    LEAD "[" UPPER "]*[" LOWER "]+" suffix "|" LEAD "[" UPPER "]+[" LOWER "]*" suffix

#define GPT2 SUFFIX "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" BLANKS
/* As if the text were first split at digits and then GPT2 applied to each part: white space before
 * a digit is at the end of a part, so the whole run is a piece. */
#define DIGITS_GPT2                                                                                \
    SUFFIX "| ?\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE "]+(?![^" SPACE                 \
           "\\p{N}])|[" SPACE "]+"
#define LLAMA3                                                                                     \
    "(?i:" SUFFIX ")|" LEAD "\\p{L}+|\\p{N}{1,3}| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|" LINES BLANKS
#define QWEN2                                                                                      \
    "(?i:" SUFFIX ")|" LEAD "\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|" LINES BLANKS
#define O200K                                                                                      \
    CASED("(?i:" SUFFIX ")?") "|\\p{N}{1,3}| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES BLANKS
#define TEKKEN CASED("") "|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES BLANKS

typedef struct pre_row {
    const char *name; /* tokenizer.ggml.pre */
    const char *pattern;
    bool takes_whole; /* pretokenizer_takes_whole */
    bool adds_bos;    /* pretokenizer_adds_bos */
} pre_row;

static const pre_row rows[] = {
    {"smollm", DIGITS_GPT2, false, false},
    {"starcoder", DIGITS_GPT2, false, false},
    {"refact", DIGITS_GPT2, false, false},
    {"command-r", DIGITS_GPT2, false, false},
    {"codeshell", DIGITS_GPT2, false, false},
    {"exaone", DIGITS_GPT2, false, false},
    {"gpt2", GPT2, false, false},
    {"gpt-2", GPT2, false, false},
    {"phi-2", GPT2, false, false},
    {"mpt", GPT2, false, false},
    {"olmo", GPT2, false, false},
    {"llama-bpe", LLAMA3, true, true},
    {"llama3", LLAMA3, true, true},
    {"llama-v3", LLAMA3, true, true},
    {"falcon3", LLAMA3, true, true},
    {"pixtral", LLAMA3, true, true},
    {"dbrx", LLAMA3, false, false},
    {"smaug-bpe", LLAMA3, false, false},
    {"qwen2", QWEN2, false, false},
    {"stablelm2", QWEN2, false, false},
    {"deepseek-r1-qwen", QWEN2, false, false},
    {"gpt-4o", O200K, false, false},
    {"llama4", O200K, false, false},
    {"tekken", TEKKEN, true, true},
};

struct pretokenizer {
    const pre_row *row;
    pcre2_code *code;
    bool jit;
};

static const pre_row *find_row(str name) {
    for (size_t i = 0; i < BASE_COUNT(rows); i++)
        if (str_equal(name, str_from(rows[i].name)))
            return &rows[i];
    return NULL;
}

int pretokenizer_new(str name, pretokenizer **out, err *e) {
    *out = NULL;
    const pre_row *row = find_row(name);
    if (!row)
        return err_set(e, ERR_UNSUPPORTED, "the model's pre-tokenizer \"%.*s\" is not supported",
                       (int)BASE_MIN(name.n, 80u), name.p);
    int code;
    PCRE2_SIZE at;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)row->pattern, PCRE2_ZERO_TERMINATED,
                                         PCRE2_UTF | PCRE2_ANCHORED, &code, &at, NULL);
    if (!compiled)
        return err_set(e, ERR_INTERNAL,
                       "the pattern of the pre-tokenizer %s does not compile (error %d at %zu)",
                       row->name, code, at);
    pretokenizer *p = mem_zalloc(sizeof *p);
    p->row = row;
    p->code = compiled;
    /* Without JIT (forbidden by the system, or not in the library) matching is slower. */
    p->jit = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
    *out = p;
    return 0;
}

void pretokenizer_free(pretokenizer *p) {
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p);
}

bool pretokenizer_takes_whole(const pretokenizer *p) {
    return p->row->takes_whole;
}

bool pretokenizer_adds_bos(const pretokenizer *p) {
    return p->row->adds_bos;
}

/* ---- walking -------------------------------------------------------------------------------- */

/* Returns the number of bytes of the code point at `at`, or 0 if the text is not valid UTF-8
 * there. */
static size_t valid_step(str text, size_t at) {
    if ((signed char)text.p[at] >= 0)
        return 1;
    uint32_t cp;
    size_t n = utf8_next((str){text.p + at, text.n - at}, &cp);
    return n > 1 ? n : 0;
}

void pieces_open(pieces *w, const pretokenizer *p, str text) {
    *w = (pieces){.p = p, .text = text};
    w->match = pcre2_match_data_create(1, NULL);
    if (!w->match)
        abort(); /* out of memory, as mem_alloc does */
}

void pieces_close(pieces *w) {
    pcre2_match_data_free(w->match);
}

/* Returns the length of the piece at w->at, within the run of valid UTF-8. */
static size_t match_piece(pieces *w) {
    PCRE2_SPTR subject = (PCRE2_SPTR)w->text.p;
    /* pieces_next has checked the run; without this flag every call would check it again */
    uint32_t flags = PCRE2_NO_UTF_CHECK;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (w->p->jit)
        rc = pcre2_jit_match(w->p->code, subject, w->valid_end, w->at, flags, w->match, NULL);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        rc = pcre2_match(w->p->code, subject, w->valid_end, w->at, flags | PCRE2_NO_JIT, w->match,
                         NULL);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(w->match);
    if (rc >= 0 && ends[1] > w->at)
        return ends[1] - w->at;
    /* no match, which should not happen with these patterns: one character is a piece */
    return valid_step(w->text, w->at);
}

/* Returns the length of the run of valid UTF-8, or of invalid bytes, that starts at `at`. */
static size_t run_bytes(str text, size_t at, bool valid) {
    size_t end = at;
    while (end < text.n) {
        size_t step = valid_step(text, end);
        if ((step != 0) != valid)
            break;
        end += valid ? step : 1;
    }
    return end - at;
}

bool pieces_next(pieces *w, str *piece) {
    if (w->at >= w->text.n)
        return false;
    if (w->at == w->valid_end)
        w->valid_end += run_bytes(w->text, w->at, true);
    size_t n;
    if (w->at == w->valid_end) {
        n = run_bytes(w->text, w->at, false);
        w->valid_end += n;
    } else {
        n = match_piece(w);
    }
    *piece = (str){w->text.p + w->at, n};
    w->at += n;
    return true;
}
