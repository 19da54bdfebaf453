/*
 * tokenizer_bpe.c - byte-level BPE: each byte of a piece is a symbol; the file's merges join them.
 *
 * The vocabulary writes a byte as a letter: a printable Latin-1 byte as the character itself, the
 * other 68 bytes as U+0100 and up, in order. A byte whose letter is not in the vocabulary becomes
 * the three bytes of U+FFFD, or nothing if these are not in the vocabulary either. It does not
 * become the unknown token, which in such files is a control token. pretokenize.c makes the pieces.
 */
#include "tokenizer_parts_int.h"

#include <stdlib.h>
#include <string.h>

static bool is_own_letter(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

static void make_alphabet(tokenizer *t) {
    uint16_t next = 256;
    memset(t->letter_bytes, 0xff, sizeof t->letter_bytes);
    for (int byte = 0; byte < 256; byte++) {
        t->letters[byte] = is_own_letter(byte) ? (uint16_t)byte : next++;
        t->letter_bytes[t->letters[byte]] = (int16_t)byte;
    }
}

/* ---- loading -------------------------------------------------------------------------------- */

/* Adds the merge of a line "left right". Tokens of a byte-level vocabulary have no spaces in them.
 * A merge whose parts or result are not tokens cannot occur and is skipped, as llama.cpp does.
 * false: the line has no space. */
static bool add_merge(tokenizer *t, str line, uint32_t rank, buf *joined) {
    const char *space = line.n > 1 ? memchr(line.p + 1, ' ', line.n - 1) : NULL;
    if (!space)
        return false;
    str left = {line.p, (size_t)(space - line.p)};
    str right = {space + 1, line.n - left.n - 1};
    buf_clear(joined);
    buf_append_str(joined, left);
    buf_append_str(joined, right);
    int32_t a = vocab_find(t, left), b = vocab_find(t, right),
            merged = vocab_find(t, buf_str(joined));
    if (a >= 0 && b >= 0 && merged >= 0)
        merge_table_add(t->merges, a, b, rank, merged);
    return true;
}

static int load_merges(tokenizer *t, const gguf *g, err *e) {
    gguf_array array;
    arena *scratch = arena_new();
    str *lines;
    int rc = 0;
    if (!gguf_get_array(g, "tokenizer.ggml.merges", &array) ||
        !gguf_array_strs(&array, scratch, &lines) || array.count >= UINT32_MAX)
        rc =
            err_set(e, ERR_CORRUPT, "the model's vocabulary has no merges (tokenizer.ggml.merges)");
    buf joined = {0};
    for (uint32_t i = 0; rc == 0 && i < array.count; i++) {
        if (i == 0)
            t->merges = merge_table_new((size_t)array.count);
        if (!add_merge(t, lines[i], i, &joined))
            rc = err_set(e, ERR_CORRUPT,
                         "merge %u of the model's vocabulary is not a pair of tokens", i);
    }
    if (rc == 0 && !t->merges)
        t->merges = merge_table_new(0);
    buf_free(&joined);
    arena_free(scratch);
    return rc;
}

int bpe_load(tokenizer *t, const gguf *g, err *e) {
    str pre;
    if (!gguf_get_str(g, "tokenizer.ggml.pre", &pre)) {
        err_set(e, ERR_UNSUPPORTED,
                "the model file does not name its pre-tokenizer (tokenizer.ggml.pre)");
        err_hint(e, "convert the model again with a newer converter");
        return ERR_UNSUPPORTED;
    }
    int rc = pretokenizer_new(pre, &t->pre, e);
    if (rc)
        return rc;
    t->adds_bos = pretokenizer_adds_bos(t->pre);
    make_alphabet(t);
    for (int byte = 0; byte < 256; byte++) {
        char letter[4];
        t->byte_ids[byte] = vocab_find(t, (str){letter, utf8_encode(t->letters[byte], letter)});
    }
    return load_merges(t, g, e);
}

/* ---- encoding ------------------------------------------------------------------------------- */

/* Fills ids with the symbols of a piece's bytes, up to 3 per byte. Returns their number. */
static size_t piece_symbols(const tokenizer *t, str piece, int32_t *ids) {
    size_t n = 0;
    for (size_t i = 0; i < piece.n; i++) {
        int32_t id = t->byte_ids[(unsigned char)piece.p[i]];
        if (id >= 0) {
            ids[n++] = id;
            continue;
        }
        const int32_t replacement[3] = {t->byte_ids[0xEF], t->byte_ids[0xBF], t->byte_ids[0xBD]};
        if (replacement[0] >= 0 && replacement[1] >= 0 && replacement[2] >= 0) {
            memcpy(ids + n, replacement, sizeof replacement);
            n += 3;
        }
    }
    return n;
}

/* Returns the token whose text is the whole piece, or -1. */
static int32_t whole_piece(const tokenizer *t, str piece) {
    char name[512]; /* a letter has at most two bytes */
    size_t n = 0;
    if (piece.n > sizeof name / 2 - 1)
        return -1;
    for (size_t i = 0; i < piece.n; i++)
        n += utf8_encode(t->letters[(unsigned char)piece.p[i]], name + n);
    return vocab_find(t, (str){name, n});
}

static void encode_piece(const tokenizer *t, str piece, token_list *out) {
    if (pretokenizer_takes_whole(t->pre)) {
        int32_t id = whole_piece(t, piece);
        if (id >= 0) {
            token_push(out, id);
            return;
        }
    }
    int32_t few[3 * 64];
    int32_t *ids = piece.n * 3 <= BASE_COUNT(few) ? few : mem_alloc(piece.n * 3 * sizeof *ids);
    size_t n = merge_run(t->merges, ids, piece_symbols(t, piece, ids));
    for (size_t i = 0; i < n; i++)
        token_push(out, ids[i]);
    if (ids != few)
        free(ids);
}

void bpe_encode(const tokenizer *t, str text, token_list *out) {
    pieces walk;
    pieces_open(&walk, t->pre, text);
    for (str piece; pieces_next(&walk, &piece);)
        encode_piece(t, piece, out);
    pieces_close(&walk);
}

/* ---- decoding ------------------------------------------------------------------------------- */

void bpe_decode(const tokenizer *t, str token, buf *out) {
    while (token.n) {
        uint32_t cp;
        size_t n = utf8_next(token, &cp);
        if (cp < BPE_LETTERS && t->letter_bytes[cp] >= 0)
            buf_append_char(out, (char)t->letter_bytes[cp]);
        else
            buf_append(out, token.p, n); /* the text of added tokens is not in the alphabet */
        token.p += n;
        token.n -= n;
    }
}
