/*
 * split_chunks.c - CHUNK(): divides a text at words and sentences, by tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "split_int.h"
#include "storage/containers.h"

enum { WORD_BYTES = 32, WORDS_PER_LOOK = 1024 };

/* A word, and the tokens that it takes behind a blank. */
typedef struct word {
    uint32_t start, end; /* offsets in the text */
    uint32_t tokens;
    bool ends_sentence;
} word;

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whether a sentence ends at `end`: after . ! or ?, which quotes and brackets may follow, or before a
 * line break. */
static bool is_sentence_end(str text, uint32_t start, uint32_t end) {
    uint32_t at = end;
    while (at > start && strchr("\"')]}", text.p[at - 1]))
        at--;
    if (at > start && strchr(".!?", text.p[at - 1]))
        return true;
    for (at = end; at < text.n && is_blank(text.p[at]); at++)
        if (text.p[at] == '\n')
            return true;
    return false;
}

static uint32_t count_tokens(const llm_engine *engine, str text, const word *w) {
    char spaced[WORD_BYTES + 2] = {' '};
    size_t n = w->end - w->start, count;
    bool blank = w->start > 0 && is_blank(text.p[w->start - 1]);
    memcpy(spaced + blank, text.p + w->start, n);
    free(llm_tokenize(engine, (str){spaced, n + blank}, false, false, &count));
    return (uint32_t)count;
}

/* Finds the next word from `at`; false: there is none. */
static bool next_word(str text, uint32_t at, word *out) {
    while (at < text.n && is_blank(text.p[at]))
        at++;
    out->start = out->end = at;
    while (out->end < text.n && !is_blank(text.p[out->end]) && out->end - at < WORD_BYTES)
        out->end++;
    while (out->end > at && out->end < text.n && (text.p[out->end] & 0xc0) == 0x80)
        out->end--; /* not inside a character */
    return out->end > at;
}

/* Returns the end of the chunk that begins with word `first`. `before`: the end of the one before, which
 * is returned if no word fits behind the overlap. */
static uint32_t chunk_end(const split_spec *spec, const word *words, uint32_t n, uint32_t first,
                          uint32_t before) {
    uint32_t end = first;
    for (int64_t tokens = 0; end < n; end++) {
        tokens += words[end].tokens;
        if (tokens > spec->tokens && end > first)
            break;
    }
    uint32_t least = BASE_MAX(before, first + (end - first) / 2);
    for (uint32_t k = end; end < n && k > least; k--)
        if (words[k - 1].ends_sentence)
            return k;
    return end;
}

/* Returns the first word of the chunk after the one from `first` to `end`. */
static uint32_t next_first(const split_spec *spec, const word *words, uint32_t first,
                           uint32_t end) {
    int64_t tokens = 0;
    while (end > first + 1 && (tokens += words[end - 1].tokens) <= spec->overlap)
        end--;
    return end;
}

int split_chunks(const llm_engine *engine, const split_spec *spec, str text, arena *mem, str **out,
                 uint32_t *n, const atomic_bool *cancel, err *e) {
    word *words = NULL, w = {0};
    uint32_t nwords = 0, words_room = 0, room = 0;
    *out = NULL;
    *n = 0;
    if (text.n > UINT32_MAX)
        return err_set(e, ERR_LIMIT, "a text of more than 4 GB cannot be divided into chunks");
    for (uint32_t at = 0; next_word(text, at, &w); at = w.end) {
        if (nwords % WORDS_PER_LOOK == 0 && check_cancel(cancel, e))
            return ERR_CANCELLED;
        w.tokens = count_tokens(engine, text, &w);
        w.ends_sentence = is_sentence_end(text, w.start, w.end);
        ARENA_PUSH(mem, words, nwords, words_room, w);
    }
    for (uint32_t first = 0, before = 0; first < nwords;) {
        uint32_t end = chunk_end(spec, words, nwords, first, before);
        if (end <= before) {
            first = before;
            end = chunk_end(spec, words, nwords, first, before);
        }
        uint32_t start = words[first].start;
        before = end;
        str chunk = {text.p + start, words[end - 1].end - start};
        ARENA_PUSH(mem, *out, *n, room, chunk);
        first = end == nwords ? end : next_first(spec, words, first, end);
    }
    return 0;
}
