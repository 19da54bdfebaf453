/*
 * llm_history_int.h - the history of statements that called a model: written at a statement's end,
 * read by kvasir_statements and SHOW CACHE.
 */
#ifndef KVASIR_LLM_HISTORY_INT_H
#define KVASIR_LLM_HISTORY_INT_H

#include "core/exec_ctx_int.h"

/* The figures of a record, in their order on disk, and the names of their columns in
 * kvasir_statements. */
#define HISTORY_FIGURES(X)                                                                         \
    X(distinct_inputs, "inputs")                                                                   \
    X(answers_stored, "answers_stored")                                                            \
    X(prompt_tokens, "prompt_tokens")                                                              \
    X(computed_tokens, "computed_tokens")                                                          \
    X(reused_memory, "from_memory")                                                                \
    X(reused_disk, "from_disk")                                                                    \
    X(output_tokens, "output_tokens")

/* The fixed part of a record, as stored. */
#define HISTORY_MEMBER(name, column) uint64_t name;
typedef struct history_entry {
    uint32_t version;
    int32_t status;  /* 0, or the code of the statement's error */
    uint64_t number; /* number of the record, from 0 */
    int64_t at;      /* when the statement ended, in seconds since 1970 */
    uint64_t rows;
    HISTORY_FIGURES(HISTORY_MEMBER)
    double seconds;
} history_entry;

/* Appends the record of a statement that ended with this status. Appends nothing if the statement
 * called no model. */
void history_record(const exec_summary *sum, stmt_kind kind, str text, int status, buf *out);
void history_write(db *d, buf *record); /* stores a record; does nothing if the record is empty */
/* Reads all stored records and their statements' texts, oldest first, copied into `a`. */
int history_read(txn *t, arena *a, history_entry **out, str **texts, int *count, err *e);

#endif
