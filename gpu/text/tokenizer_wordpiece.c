/*
 * tokenizer_wordpiece.c - BERT's WordPiece: normalised words, each written with the longest pieces
 * that the vocabulary has.
 *
 * Words are as BERT's BasicTokenizer makes them: control characters are removed, case and accents
 * too unless the vocabulary has capitals, white space divides, and a punctuation mark or an
 * ideograph is a word by itself. The vocabulary writes the mark U+2581 before a word's first piece.
 * A word that it cannot write whole, or of more than MOST_CHARACTERS, is the unknown token. Invariant:
 * plain text never becomes a control token, since only unguarded tokens are looked up.
 */
#include <string.h>
#include <utf8proc.h>

#include "tokenizer_parts_int.h"

enum { MOST_CHARACTERS = 100, MARK_BYTES = 3, CHARACTER_BYTES = 4 };
static const char MARK[] = "\xE2\x96\x81";

/* ---- characters ------------------------------------------------------------------------------ */

typedef enum char_kind {
    CHAR_NONE,  /* removed */
    CHAR_SPACE, /* ends a word */
    CHAR_ALONE, /* a word by itself */
    CHAR_WORD
} char_kind;

static bool is_ideograph(uint32_t c) {
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                  {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < BASE_COUNT(ranges); i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

static bool is_punctuation(uint32_t c, utf8proc_category_t category) {
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static char_kind kind_of(uint32_t c) {
    if (c == '\t' || c == '\n' || c == '\r' || c == ' ')
        return CHAR_SPACE;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    switch (category) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
        return CHAR_NONE;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return CHAR_SPACE;
    default:
        if (c == 0xFFFD)
            return CHAR_NONE;
        return is_punctuation(c, category) || is_ideograph(c) ? CHAR_ALONE : CHAR_WORD;
    }
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The word being read, after its mark. Characters beyond MOST_CHARACTERS are only counted. */
typedef struct word {
    char text[MARK_BYTES + MOST_CHARACTERS * CHARACTER_BYTES];
    size_t n; /* bytes, with the mark */
    size_t characters;
} word;

static void word_start(word *w) {
    memcpy(w->text, MARK, MARK_BYTES);
    w->n = MARK_BYTES;
    w->characters = 0;
}

static void word_add(word *w, uint32_t c) {
    if (w->characters++ < MOST_CHARACTERS)
        w->n += utf8_encode(c, w->text + w->n);
}

/* Returns the longest token that text[from, n) begins with, and sets *bytes to its length; -1: there
 * is none. */
static int32_t longest_piece(const tokenizer *t, const char *text, size_t from, size_t n,
                             size_t *bytes) {
    size_t least = from == 0 ? MARK_BYTES : 0;
    bool mark = n - from >= MARK_BYTES && memcmp(text + from, MARK, MARK_BYTES) == 0;
    if (from > 0 && mark) /* a mark in the text: what begins with it is the first piece of a word */
        return -1;
    for (size_t len = BASE_MIN(n - from, t->longest); len > least; len--) {
        bool inside = from + len < n && ((unsigned char)text[from + len] & 0xC0u) == 0x80u;
        int32_t id = inside ? -1 : vocab_find(t, (str){text + from, len});
        if (id >= 0) {
            *bytes = len;
            return id;
        }
    }
    return -1;
}

/* Appends the word's tokens, and starts the next word. */
static void word_end(const tokenizer *t, word *w, token_list *out) {
    size_t before = *out->count, at = 0, bytes;
    bool whole = w->characters <= MOST_CHARACTERS;
    while (w->characters > 0 && whole && at < w->n) {
        int32_t id = longest_piece(t, w->text, at, w->n, &bytes);
        if (id >= 0)
            token_push(out, id);
        at += bytes * (id >= 0);
        whole = id >= 0;
    }
    if (!whole) {
        *out->count = before;
        token_push(out, t->unknown);
    }
    word_start(w);
}

/* Adds a character, in lower case and without accents unless the vocabulary has them. Words are
 * divided by the decomposed characters. */
static void character_add(const tokenizer *t, word *w, uint32_t c, token_list *out) {
    utf8proc_int32_t parts[16] = {(utf8proc_int32_t)c};
    utf8proc_ssize_t n = 1;
    int boundary = 0;
    if (c >= 0x80 && !t->cased)
        n = utf8proc_decompose_char((utf8proc_int32_t)c, parts, BASE_COUNT(parts),
                                    UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        if (!t->cased && utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN)
            continue;
        uint32_t part = (uint32_t)(t->cased ? parts[i] : utf8proc_tolower(parts[i]));
        bool alone = is_punctuation(part, utf8proc_category((utf8proc_int32_t)part));
        if (alone)
            word_end(t, w, out);
        word_add(w, part);
        if (alone)
            word_end(t, w, out);
    }
}

void wordpiece_encode(const tokenizer *t, str text, token_list *out) {
    word w;
    word_start(&w);
    while (text.n > 0) {
        uint32_t c = (unsigned char)text.p[0];
        size_t bytes = 1;
        if (c >= 0x80)
            bytes = utf8_next(text, &c);
        text.p += bytes;
        text.n -= bytes;
        bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        char_kind kind = letter ? CHAR_WORD : kind_of(c);
        if (kind == CHAR_SPACE || kind == CHAR_ALONE)
            word_end(t, &w, out);
        if (letter)
            word_add(&w, c);
        else if (kind == CHAR_ALONE || kind == CHAR_WORD)
            character_add(t, &w, c, out);
        if (kind == CHAR_ALONE)
            word_end(t, &w, out);
    }
    word_end(t, &w, out);
}

void wordpiece_decode(const tokenizer *t, llm_token id, buf *out) {
    str text = t->texts[id];
    bool first = text.n > MARK_BYTES && memcmp(text.p, MARK, MARK_BYTES) == 0;
    if (first)
        buf_append_char(out, ' ');
    buf_append(out, text.p + (first ? MARK_BYTES : 0), text.n - (first ? MARK_BYTES : 0));
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool has_capital(str text) {
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] >= 'A' && text.p[i] <= 'Z')
            return true;
    return false;
}

/* Finds a control token whose id the file does not name. */
static int control_find(tokenizer *t, const char *text, int32_t *id, err *e) {
    for (int32_t i = 0; *id < 0 && i < t->n; i++)
        *id = str_equal(t->texts[i], str_from(text)) ? i : -1;
    if (*id < 0)
        return err_set(e, ERR_CORRUPT, "the model's vocabulary has no token %s", text);
    t->flags[*id] |= TOKEN_IS_CONTROL | TOKEN_IS_GUARDED;
    return 0;
}

int wordpiece_load(tokenizer *t, err *e) {
    int rc = control_find(t, "[CLS]", &t->bos, e);
    rc = rc ? rc : control_find(t, "[SEP]", &t->eos, e);
    rc = rc ? rc : control_find(t, "[UNK]", &t->unknown, e);
    if (rc)
        return rc;
    t->adds_bos = t->adds_eos = true;
    for (int32_t id = 0; id < t->n; id++) {
        bool control = t->texts[id].n > 1 && t->texts[id].p[0] == '[';
        if (control || token_is(t, id, TOKEN_IS_GUARDED) || t->kinds[id] != TOKEN_NORMAL)
            continue;
        t->longest = BASE_MAX(t->longest, t->texts[id].n);
        t->cased = t->cased || has_capital(t->texts[id]);
    }
    return 0;
}
