/*
 * tokenizer_spm.c - SentencePiece's BPE: the pair of tokens whose result has the highest score
 * merges first; characters that are not tokens become byte tokens.
 *
 * Loading turns scores into ranks, so that merge.c works for both kinds of tokenizer: every
 * division of a token into two tokens is a pair, ranked by the token's score (equal scores, equal
 * ranks). The vocabulary writes a space as the mark U+2581. If no token has a mark after another
 * character (vocabularies trained with split-by-whitespace), nothing merges across such a place,
 * and text is divided there into short pieces.
 */
#include "tokenizer_parts_int.h"

#include <stdlib.h>
#include <string.h>

static const char SPACE_MARK[] = "\xE2\x96\x81";
enum { MARK_BYTES = 3 };

static bool mark_at(str s, size_t at) {
    return s.n - at >= MARK_BYTES && memcmp(s.p + at, SPACE_MARK, MARK_BYTES) == 0;
}

/* ---- loading -------------------------------------------------------------------------------- */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Adds every division of token `id` into two tokens as a pair. */
static void add_cuts(tokenizer *t, int32_t id, uint32_t rank) {
    str text = t->texts[id];
    uint32_t cp;
    for (size_t at = utf8_next(text, &cp); at < text.n;
         at += utf8_next((str){text.p + at, text.n - at}, &cp)) {
        int32_t left = vocab_find(t, (str){text.p, at});
        int32_t right = left < 0 ? -1 : vocab_find(t, (str){text.p + at, text.n - at});
        if (right >= 0)
            merge_table_add(t->merges, left, right, rank, id);
        if (mark_at(text, at) && !mark_at(text, at - BASE_MIN(at, (size_t)MARK_BYTES)))
            t->splits_at_space = false;
    }
}

static int load_scores(tokenizer *t, const gguf *g, err *e) {
    gguf_array array;
    arena *scratch = arena_new();
    float *scores;
    if (!gguf_get_array(g, "tokenizer.ggml.scores", &array) || array.count != (uint64_t)t->n ||
        !gguf_array_f32(&array, scratch, &scores)) {
        arena_free(scratch);
        return err_set(e, ERR_CORRUPT,
                       "the model's vocabulary has no scores (tokenizer.ggml.scores)");
    }
    scored *order = ARENA_ARRAY(scratch, scored, t->n + 1);
    for (int32_t i = 0; i < t->n; i++)
        order[i] = (scored){scores[i] == scores[i] ? scores[i] : 0, i}; /* NaN becomes 0 */
    qsort(order, (size_t)t->n, sizeof *order, by_score);
    t->merges = merge_table_new((size_t)t->n * 2);
    t->splits_at_space = true;
    uint32_t rank = 0;
    for (int32_t i = 0; i < t->n; i++) {
        rank += i > 0 && order[i].score != order[i - 1].score;
        if (vocab_find(t, t->texts[order[i].id]) == order[i].id)
            add_cuts(t, order[i].id, rank);
    }
    arena_free(scratch);
    return 0;
}

static int hex_digit(char c) {
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Byte tokens are named <0x00> to <0xFF>. */
static void find_bytes(tokenizer *t) {
    for (int i = 0; i < 256; i++)
        t->byte_ids[i] = -1;
    for (int32_t id = 0; id < t->n; id++) {
        str text = t->texts[id];
        if (t->kinds[id] != TOKEN_BYTE || text.n != 6 || memcmp(text.p, "<0x", 3) != 0)
            continue;
        int high = hex_digit(text.p[3]), low = hex_digit(text.p[4]);
        if (high >= 0 && low >= 0)
            t->byte_ids[high * 16 + low] = id;
    }
}

int spm_load(tokenizer *t, const gguf *g, err *e) {
    t->adds_bos = true;
    t->adds_space_prefix = true;
    gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->adds_space_prefix);
    str arch;
    t->strips_after_special =
        gguf_get_str(g, "general.architecture", &arch) && str_equal(arch, STR("phi3"));
    find_bytes(t);
    t->ascii_ids = ARENA_ARRAY(t->mem, int32_t, 128);
    for (int c = 0; c < 128; c++) {
        char ch = (char)c;
        t->ascii_ids[c] = vocab_find(t, (str){&ch, 1});
    }
    return load_scores(t, g, e);
}

/* ---- encoding ------------------------------------------------------------------------------- */

/* Appends the text, with the mark instead of each space. */
static void escape(const tokenizer *t, str text, bool space_prefix, buf *out) {
    if (space_prefix && t->adds_space_prefix)
        buf_append(out, SPACE_MARK, MARK_BYTES);
    while (text.n) {
        const char *space = memchr(text.p, ' ', text.n);
        size_t n = space ? (size_t)(space - text.p) : text.n;
        if (n)
            buf_append(out, text.p, n);
        if (space)
            buf_append(out, SPACE_MARK, MARK_BYTES);
        n += space != NULL;
        text.p += n;
        text.n -= n;
    }
}

static void push_bytes(const tokenizer *t, str bytes, token_list *out) {
    for (size_t i = 0; i < bytes.n; i++) {
        int32_t id = t->byte_ids[(unsigned char)bytes.p[i]];
        if (id >= 0)
            token_push(out, id);
        else if (t->unknown >= 0 && i == 0)
            token_push(out, t->unknown); /* only one per character */
    }
}

/* Appends the tokens of a piece. `ids` is work memory for one id per byte. A character that is not
 * a token gets the id ~offset, which does not merge. */
static void encode_piece(const tokenizer *t, str piece, int32_t *ids, token_list *out) {
    size_t n = 0;
    for (size_t at = 0; at < piece.n;) {
        unsigned char c = (unsigned char)piece.p[at];
        uint32_t cp;
        size_t step = c < 128 ? 1 : utf8_next((str){piece.p + at, piece.n - at}, &cp);
        int32_t id = c < 128 ? t->ascii_ids[c] : vocab_find(t, (str){piece.p + at, step});
        ids[n++] = id >= 0 ? id : ~(int32_t)at;
        at += step;
    }
    n = merge_run(t->merges, ids, n);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= 0) {
            token_push(out, ids[i]);
            continue;
        }
        uint32_t cp;
        size_t at = (size_t)~ids[i];
        push_bytes(t, (str){piece.p + at, utf8_next((str){piece.p + at, piece.n - at}, &cp)}, out);
    }
}

/* Returns the length in bytes of the first piece. It ends before a mark that follows another
 * character, since nothing merges across this place. At most 2^30, since offsets in a piece have 31
 * bits. */
static size_t piece_bytes(const tokenizer *t, str text) {
    enum { LONGEST = 1 << 30 };
    if (!t->splits_at_space)
        return BASE_MIN(text.n, (size_t)LONGEST);
    size_t at = 0;
    while (mark_at(text, at))
        at += MARK_BYTES;
    const char *mark = memmem(text.p + at, text.n - at, SPACE_MARK, MARK_BYTES);
    return BASE_MIN(mark ? (size_t)(mark - text.p) : text.n, (size_t)LONGEST);
}

void spm_encode(const tokenizer *t, str text, bool space_prefix, token_list *out) {
    buf escaped = {0};
    escape(t, text, space_prefix, &escaped);
    int32_t few[256], *ids = few;
    size_t cap = BASE_COUNT(few);
    for (str rest = buf_str(&escaped); rest.n;) {
        str piece = {rest.p, piece_bytes(t, rest)};
        if (piece.n > cap) {
            int32_t *old = ids == few ? NULL : ids;
            cap = piece.n;
            ids = mem_realloc(old, cap * sizeof *ids);
        }
        encode_piece(t, piece, ids, out);
        rest.p += piece.n;
        rest.n -= piece.n;
    }
    if (ids != few)
        free(ids);
    buf_free(&escaped);
}

/* ---- decoding ------------------------------------------------------------------------------- */

void spm_decode(const tokenizer *t, llm_token id, buf *out) {
    str text = t->texts[id];
    if (t->kinds[id] == TOKEN_BYTE) {
        for (int byte = 0; byte < 256; byte++)
            if (t->byte_ids[byte] == id)
                buf_append_char(out, (char)byte);
        return;
    }
    for (size_t at = 0; at < text.n;) {
        bool mark = mark_at(text, at);
        buf_append(out, mark ? " " : text.p + at, 1);
        at += mark ? MARK_BYTES : 1;
    }
}
