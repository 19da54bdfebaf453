/*
 * side_file_int.h - a model's measured facts on this machine, and its files' hashes (side_file.c).
 */
#ifndef KVASIR_SIDE_FILE_INT_H
#define KVASIR_SIDE_FILE_INT_H

#include "gpu/llm.h"

/* What the probe of the products found at the last load. All zero: nothing on record. */
typedef struct side_probe {
    hash128 identity; /* what it hangs on (gemm_identity) */
    hash128 digest;
    uint64_t packed_bytes; /* of all weights */
} side_probe;

typedef struct side_facts {
    llm_precision precision;            /* chosen by measurement; AUTO: nothing was measured */
    double rate[LLM_PRECISIONS];        /* FLOP/s of one thread; 0: not on this machine */
    double prefill_tok_s, decode_tok_s; /* 0: not yet measured */
    int chat;                           /* 'auto' means chat format; one may edit it */
    side_probe probe[LLM_PRECISIONS];
} side_facts;

/* false: there is none that can be used. */
bool side_file_read(const char *dir, hash128 model, const char *machine, side_facts *out);
void side_file_write(const char *dir, hash128 model, const char *machine, const side_facts *facts);
/* Puts the rates that are above 0 in the place of
 * those on record; nothing where there is no record. */
void side_file_keep_rates(const char *dir, hash128 model, const char *machine, double prefill_tok_s,
                          double decode_tok_s);

/* The hash of a model's files (identity.c) when they had
 * this stamp; one record for each path, that of its first file. */
bool side_file_identity_read(const char *dir, const char *path, hash128 stamp, hash128 *out);
void side_file_identity_write(const char *dir, const char *path, hash128 stamp, hash128 identity);

#endif
