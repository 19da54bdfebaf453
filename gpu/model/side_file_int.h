/*
 * side_file_int.h - recorded facts about a model on this machine, and hashes of model files
 * (side_file.c). `dir` is llm_engine_options.cache_dir; NULL: nothing is read or written.
 */
#ifndef KVASIR_SIDE_FILE_INT_H
#define KVASIR_SIDE_FILE_INT_H

#include "gpu/llm.h"

/* The result of the matrix products' probe at the last load. All zero: none is recorded. */
typedef struct side_probe {
    hash128 identity;      /* hash of all that the result depends on (cpu/gemm.c, gemm_identity) */
    hash128 digest;        /* hash of the bits that the probe computed */
    uint64_t packed_bytes; /* size of all packed weights */
} side_probe;

typedef struct side_facts {
    llm_precision precision; /* meaning of 'auto' on this machine; AUTO: not yet measured */
    /* FLOP/s of one thread; 0: this machine does not support the precision */
    double rate[LLM_PRECISIONS];
    double prefill_tok_s, decode_tok_s; /* 0: not yet measured */
    int chat; /* not 0: LLM_FORMAT_AUTO means chat; users may edit this line of the file */
    side_probe probe[LLM_PRECISIONS];
} side_facts;

/* Reads the recorded facts. `model` is the hash of the model's files, `machine` the name of the
 * device. false: there is no valid file. */
bool side_file_read(const char *dir, hash128 model, const char *machine, side_facts *out);
void side_file_write(const char *dir, hash128 model, const char *machine, const side_facts *facts);
/* Replaces the recorded rates by those above 0; does nothing if there is no file. */
void side_file_keep_rates(const char *dir, hash128 model, const char *machine, double prefill_tok_s,
                          double decode_tok_s);

/* Read and record the hash that the model's files at `path` have while their stamp is `stamp`
 * (identity.c). One record is kept per path. */
bool side_file_identity_read(const char *dir, const char *path, hash128 stamp, hash128 *out);
void side_file_identity_write(const char *dir, const char *path, hash128 stamp, hash128 identity);

#endif
