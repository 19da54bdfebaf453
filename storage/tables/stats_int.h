/*
 * stats_int.h - counts of a table's rows, shared by stats.c (counting) and stats_record.c
 * (encoding).
 */
#ifndef KVASIR_STATS_INT_H
#define KVASIR_STATS_INT_H

#include "tables_int.h"

enum {
    SAMPLE_ROWS = 1024,    /* maximum rows of the reservoir */
    JOINT_ROWS = 512,      /* maximum rows of the joint sample, taken from the reservoir */
    EXACT_DISTINCT = 1024, /* up to this number distinct values are counted exactly */
    EXACT_SLOTS = 2048,
    COMMON_MAX = 8, /* BASE_COUNT(column_stats.common) */
    HLL_BITS = 12,  /* bits of a hash that choose a HyperLogLog register */
    HLL_REGISTERS = 1 << HLL_BITS
};

typedef struct column_count {
    uint64_t nulls;
    uint64_t bytes;              /* total length of the printed values, except REALs */
    bool has_values;             /* a value that is not NULL was counted: low and high are valid */
    value low, high;             /* least and greatest value, long texts cut */
    int nexact;                  /* hashes in `exact`; above EXACT_DISTINCT only hll is valid */
    uint64_t exact[EXACT_SLOTS]; /* set of hashes by open addressing; 0: free */
    uint8_t hll[HLL_REGISTERS];  /* HyperLogLog registers */
} column_count;

struct stats_feed {
    arena *mem;
    uint64_t rows;   /* rows counted */
    uint64_t random; /* state of the random numbers that choose rows for the reservoir */
    int64_t *sample; /* [SAMPLE_ROWS] the reservoir: rowids */
    int nsample;
    column_count *columns;
    int ncolumns, rowid_column;
};

bool count_hash(column_count *c, uint64_t hash); /* false: the exact set has the hash already */

/* Loads the stored counts into f; *found = false: there are none, and f is undefined. */
int stats_record_counts(txn *t, const table_def *def, stats_feed *f, bool *found, err *e);
int stats_record_get(txn *t, const table_def *def, bool joint, arena *a, table_stats *out, err *e);
int stats_record_put(txn *t, const table_def *def, const table_stats *s, const stats_feed *f,
                     err *e);

#endif
