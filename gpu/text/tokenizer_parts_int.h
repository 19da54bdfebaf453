/*
 * tokenizer_parts_int.h - what the tokenizer's files share: the vocabulary, the pair table, the
 * pre-tokenizer.
 *
 *   tokenizer.c      loads the vocabulary, finds control tokens in text, decodes; the public
 *                    functions
 *   tokenizer_bpe.c  byte-level BPE over pieces of the text
 *   tokenizer_spm.c  SentencePiece's BPE over characters, with byte fallback
 *   pretokenize.c    cuts text into pieces by a file's named pattern
 *   merge.c          the merge loop both kinds run, over a hash table of pairs
 *
 * Both kinds are the same loop once every pair of tokens that may merge has a rank: BPE files list
 * the ranks, SentencePiece files give scores, from which the ranks are made at load.
 */
#ifndef KVASIR_TOKENIZER_PARTS_INT_H
#define KVASIR_TOKENIZER_PARTS_INT_H

#include "storage/containers.h"
#include "tokenizer_int.h"

/* ---- merge.c --------------------------------------------------------------------------------- */

/* (left id, right id) → (rank, merged id); the lowest
 * rank merges first, equal ranks from left to right. */
typedef struct merge_table merge_table;

merge_table *merge_table_new(size_t expected_pairs);
void merge_table_free(merge_table *m); /* NULL is fine */
/* A pair that is already there keeps its lower rank. Ids are >= 0. */
void merge_table_add(merge_table *m, int32_t left, int32_t right, uint32_t rank, int32_t merged);
/* Merges ids[0..n) in place until no pair is in the table;
 * returns how many are left. Negative ids never merge. */
size_t merge_run(const merge_table *m, int32_t *ids, size_t n);

/* ---- pretokenize.c --------------------------------------------------------------------------- */

typedef struct pretokenizer pretokenizer;

int pretokenizer_new(str name, pretokenizer **out,
                     err *e);            /* ERR_UNSUPPORTED: the name is not in the table */
void pretokenizer_free(pretokenizer *p); /* NULL is fine */
bool pretokenizer_takes_whole(
    const pretokenizer *p); /* a piece that is a token is not split further */
bool pretokenizer_adds_bos(const pretokenizer *p); /* where the file does not say */

/* Walks over the pieces of a text: together they are the
 * text. A run of invalid UTF-8 is a piece of its own. */
typedef struct pieces {
    const pretokenizer *p;
    void *match; /* pcre2_match_data, of this walk alone */
    str text;
    size_t at, valid_end; /* text[at, valid_end) is valid UTF-8 */
} pieces;

void pieces_open(pieces *w, const pretokenizer *p, str text);
bool pieces_next(pieces *w, str *piece);
void pieces_close(pieces *w);

/* ---- the vocabulary -------------------------------------------------------------------------- */

enum { BPE_LETTERS = 256 + 68 };

/* tokenizer.ggml.token_type */
typedef enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
} token_kind;

enum token_flag {
    TOKEN_IS_CONTROL = 1, /* prints only on request */
    TOKEN_IS_GUARDED =
        2, /* plain text never becomes it: control tokens and the template's own markup */
    TOKEN_IS_END = 4
};

/* A token that is found in the text itself, before any splitting. */
typedef struct special_token {
    str text;
    int32_t id;
} special_token;

struct tokenizer {
    arena *mem;
    bool sentencepiece;
    int n;
    str *texts; /* [n] as the file writes them: byte-level alphabet, or with U+2581 for a space */
    uint8_t *kinds; /* [n] token_kind */
    uint8_t *flags; /* [n] of token_flag */

    hash_index by_text; /* ids of the tokens that plain text may become */

    special_token *specials; /* by first byte, then longest first */
    uint32_t special_from[257];
    bool plain_has_specials; /* some are not guarded */

    merge_table *merges;
    pretokenizer *pre;                 /* BPE only, as the alphabet: */
    uint16_t letters[256];             /* the code point that stands for a byte */
    int16_t letter_bytes[BPE_LETTERS]; /* and back; -1: it stands for none */
    int32_t byte_ids[256];             /* BPE: the byte's letter; SentencePiece: <0xXX>; -1: none */

    int32_t *ascii_ids; /* SentencePiece: [128] one-character tokens, -1: none */
    /* no token has a space inside: text may be cut before each run of spaces */
    bool splits_at_space;
    bool adds_space_prefix;
    /* phi3: white space after a control token of the template belongs to it */
    bool strips_after_special;

    int32_t bos, eos, unknown;
    bool adds_bos;
};

static inline bool token_is(const tokenizer *t, llm_token id, enum token_flag flag) {
    return (t->flags[id] & flag) != 0;
}

/* -1: no token that plain text may become has this text. */
int32_t vocab_find(const tokenizer *t, str text);

typedef struct token_list {
    llm_token **ids;
    size_t *count, *cap;
} token_list;

void token_push(token_list *out, llm_token id);

/* Each loads its part of the file (the vocabulary is there), encodes text without specials, and
 * decodes one token that is not a control token. */
int bpe_load(tokenizer *t, const gguf *g, err *e);
void bpe_encode(const tokenizer *t, str text, token_list *out);
void bpe_decode(const tokenizer *t, str token, buf *out);
int spm_load(tokenizer *t, const gguf *g, err *e);
void spm_encode(const tokenizer *t, str text, bool space_prefix, token_list *out);
void spm_decode(const tokenizer *t, llm_token id, buf *out);

#endif
