/*
 * tokenizer_parts_int.h - what the files of the tokenizer share.
 *
 *   tokenizer.c      the public functions: loads the vocabulary, finds special tokens in text
 *   tokenizer_bpe.c  byte-level BPE over pieces of the text
 *   tokenizer_spm.c  SentencePiece's BPE over characters, with byte fallback
 *   tokenizer_wordpiece.c  BERT's normalised words, and their longest pieces
 *   pretokenize.c    splits text into pieces by the pattern that the file names
 *   merge.c          the merge loop of both kinds, over a hash table of pairs
 *
 * BPE and SentencePiece run the same loop over ranked pairs of tokens. BPE
 * files list the pairs by rank; SentencePiece files have scores, which loading turns into ranks.
 */
#ifndef KVASIR_TOKENIZER_PARTS_INT_H
#define KVASIR_TOKENIZER_PARTS_INT_H

#include "storage/containers.h"
#include "tokenizer_int.h"

/* ---- merge.c --------------------------------------------------------------------------------- */

/* (left id, right id) → (rank, merged id). The lowest rank merges first, equal ranks from left to
 * right. */
typedef struct merge_table merge_table;

merge_table *merge_table_new(size_t expected_pairs);
void merge_table_free(merge_table *m); /* NULL is fine */
/* Adds a pair. If the pair is already in the table, the lower of its two ranks is kept. Ids are
 * >= 0. */
void merge_table_add(merge_table *m, int32_t left, int32_t right, uint32_t rank, int32_t merged);
/* Merges ids[n] in place until no pair is in the table. Returns the number of ids left. Negative
 * ids do not merge. */
size_t merge_run(const merge_table *m, int32_t *ids, size_t n);

/* ---- pretokenize.c --------------------------------------------------------------------------- */

typedef struct pretokenizer pretokenizer;

/* Makes the pre-tokenizer of a name. ERR_UNSUPPORTED: the name is not in the table. */
int pretokenizer_new(str name, pretokenizer **out, err *e);
void pretokenizer_free(pretokenizer *p); /* NULL is fine */
/* Whether a piece whose text is a token becomes that token without merging. */
bool pretokenizer_takes_whole(const pretokenizer *p);
/* Whether BOS is added if the file does not say. */
bool pretokenizer_adds_bos(const pretokenizer *p);

/* An iterator over the pieces of a text, whose concatenation is the text. A run of invalid UTF-8 is
 * one piece. */
typedef struct pieces {
    const pretokenizer *p;
    void *match; /* pcre2_match_data */
    str text;
    size_t at;        /* offset of the next piece */
    size_t valid_end; /* text[at, valid_end) is valid UTF-8; pieces end here at the latest */
} pieces;

void pieces_open(pieces *w, const pretokenizer *p, str text);
bool pieces_next(pieces *w, str *piece);
void pieces_close(pieces *w);

/* ---- the vocabulary -------------------------------------------------------------------------- */

/* The letters of the byte-level alphabet are code points below this one. */
enum { BPE_LETTERS = 256 + 68 };

/* The values of tokenizer.ggml.token_type. */
typedef enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
} token_kind;

enum token_flag {
    TOKEN_IS_CONTROL = 1, /* decoded only on request */
    TOKEN_IS_GUARDED = 2, /* plain text never becomes this token: control token, template markup */
    TOKEN_IS_END = 4      /* ends an answer */
};

/* A token that is searched for in the text, before any splitting. */
typedef struct special_token {
    str text;
    int32_t id;
} special_token;

typedef enum tokenizer_kind { KIND_BPE, KIND_SENTENCEPIECE, KIND_WORDPIECE } tokenizer_kind;

struct tokenizer {
    arena *mem;
    tokenizer_kind kind;
    int n;
    /* [n] as in the file: in the byte-level alphabet, or with U+2581 for a space (SentencePiece) or
     * before the first piece of a word (WordPiece) */
    str *texts;
    uint8_t *kinds; /* [n] token_kind */
    uint8_t *flags; /* [n] bits of token_flag */

    hash_index by_text; /* ids of the tokens that plain text may become */

    special_token *specials; /* sorted by first byte, then by descending length */
    /* specials with first byte b: specials[special_from[b]] to specials[special_from[b + 1] - 1] */
    uint32_t special_from[257];
    bool plain_has_specials; /* some special tokens are not guarded: plain text may become them */

    merge_table *merges;
    /* the token of a byte: in BPE the token of its letter, in SentencePiece <0xXX>; -1: none */
    int32_t byte_ids[256];

    /* BPE */
    pretokenizer *pre;
    uint16_t letters[256];             /* the code point that the vocabulary writes for a byte */
    int16_t letter_bytes[BPE_LETTERS]; /* the byte whose letter is this code point; -1: none */

    /* SentencePiece */
    int32_t *ascii_ids; /* [128] token of an ASCII character; -1: none */
    /* no token has the mark U+2581 after another character: text is divided before runs of marks */
    bool splits_at_space;
    bool adds_space_prefix;
    bool strips_after_special; /* phi3: white space after a template's control token is dropped */

    /* WordPiece */
    size_t longest; /* length in bytes of the longest token */
    bool cased;     /* the vocabulary has capitals: text keeps its case and accents */

    int32_t bos, eos, unknown;
    bool adds_bos, adds_eos;
    bool says_eos; /* the file says whether a text ends with EOS */
};

static inline bool token_is(const tokenizer *t, llm_token id, enum token_flag flag) {
    return (t->flags[id] & flag) != 0;
}

/* Returns the token with this text, if plain text may become it, else -1. */
int32_t vocab_find(const tokenizer *t, str text);

typedef struct token_list {
    llm_token **ids;
    size_t *count, *cap;
} token_list;

void token_push(token_list *out, llm_token id);

/* The functions of each kind of tokenizer. `load` is called when the vocabulary is loaded. `encode`
 * gets text in which no special token is to be found. `decode` gets a token that is not a control
 * token. */
int bpe_load(tokenizer *t, const gguf *g, err *e);
void bpe_encode(const tokenizer *t, str text, token_list *out);
void bpe_decode(const tokenizer *t, str token, buf *out);
int spm_load(tokenizer *t, const gguf *g, err *e);
void spm_encode(const tokenizer *t, str text, bool space_prefix, token_list *out);
void spm_decode(const tokenizer *t, llm_token id, buf *out);
int wordpiece_load(tokenizer *t, err *e);
void wordpiece_encode(const tokenizer *t, str text, token_list *out);
void wordpiece_decode(const tokenizer *t, llm_token id, buf *out);

#endif
