/*
 * llm_history_int.h - the record of statements that called a model: written as a statement ends,
 * read by system tables.
 */
#ifndef KVASIR_LLM_HISTORY_INT_H
#define KVASIR_LLM_HISTORY_INT_H

#include "core/exec_ctx_int.h"

/* The figures that a record keeps, in the order on disk, each with its column of kvasir_statements. */
#define HISTORY_FIGURES(X)                                                                         \
    X(distinct_inputs, "inputs")                                                                   \
    X(answers_stored, "answers_stored")                                                            \
    X(prompt_tokens, "prompt_tokens")                                                              \
    X(computed_tokens, "computed_tokens")                                                          \
    X(reused_memory, "from_memory")                                                                \
    X(reused_disk, "from_disk")                                                                    \
    X(output_tokens, "output_tokens")

/* The fixed part of a record, as it is stored. */
#define HISTORY_MEMBER(name, column) uint64_t name;
typedef struct history_entry {
    uint32_t version;
    int32_t status; /* 0, or the code of the error it ended in */
    uint64_t number;
    int64_t at; /* seconds since 1970, when it ended */
    uint64_t rows;
    HISTORY_FIGURES(HISTORY_MEMBER)
    double seconds;
} history_entry;

/* Appends the record of a statement that has ended with this status; nothing if it asked no model. */
void history_record(const exec_summary *sum, stmt_kind kind, str text, int status, buf *out);
void history_write(db *d, buf *record);
/* All that is kept, oldest first, copied into `a`. */
int history_read(txn *t, arena *a, history_entry **out, str **texts, int *count, err *e);

#endif
