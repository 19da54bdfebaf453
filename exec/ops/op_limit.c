/*
 * op_limit.c - LIMIT and OFFSET: over all rows, or over each group of equal partition columns.
 *
 * Invariant: without partitions no more input is read once the limit is reached.
 */
#include <stdlib.h>
#include <string.h>

#include "op_int.h"
#include "rows/hash_table_int.h"
#include "storage/containers.h"

typedef struct limit_state {
    int64_t seen; /* number of input rows so far */
    hash_table *partitions;
    int64_t *counts; /* [partition] number of input rows so far */
    size_t ncounts;  /* allocated length of `counts` */
    uint32_t entries[BATCH_ROWS];
    int rows[BATCH_ROWS];
} limit_state;

static int limit_open(op *o, err *e) {
    (void)e;
    limit_state *s = o->state;
    int n = o->node->limit.npartition;
    op_init_out(o);
    if (n == 0)
        return 0;
    value_type *types = ARENA_ARRAY(o->mem, value_type, n);
    for (int k = 0; k < n; k++)
        types[k] = o->node->types[o->node->limit.partition[k]];
    s->partitions = hash_table_new(&o->memory, types, n);
    return 0;
}

static bool wanted(const op *o, int64_t position) {
    int64_t limit = o->node->limit.limit, offset = BASE_MAX(o->node->limit.offset, 0);
    return position >= offset && (limit < 0 || position - offset < limit);
}

static int choose_partitioned(op *o, const batch *in, int *count, err *e) {
    limit_state *s = o->state;
    int n = o->node->limit.npartition;
    column *keys = ARENA_ARRAY(o->pass, column, n);
    for (int k = 0; k < n; k++)
        keys[k] = in->cols[o->node->limit.partition[k]];
    int status = hash_table_add(s->partitions, keys, in->rows, s->entries, e);
    if (status)
        return status;
    size_t before = s->ncounts;
    ARRAY_RESERVE(s->counts, hash_table_count(s->partitions), s->ncounts);
    memset(s->counts + before, 0, sizeof *s->counts * (s->ncounts - before));
    for (int k = 0; k < in->rows; k++)
        if (wanted(o, s->counts[s->entries[k]]++))
            s->rows[(*count)++] = k;
    return 0;
}

static int limit_next(op *o, batch **out, err *e) {
    limit_state *s = o->state;
    int64_t limit = o->node->limit.limit, offset = BASE_MAX(o->node->limit.offset, 0);
    while (!*out) {
        batch *in;
        int count = 0, status;
        if (limit == 0 || (!s->partitions && limit > 0 && s->seen - offset >= limit))
            return 0;
        if ((status = op_next(o->left, &in, e)) != 0 || !in)
            return status;
        arena_reset(o->pass);
        if (s->partitions)
            status = choose_partitioned(o, in, &count, e);
        for (int k = 0; !s->partitions && k < in->rows; k++)
            if (wanted(o, s->seen + k))
                s->rows[count++] = k;
        if (status)
            return status;
        s->seen += in->rows;
        op_choose(o, in, s->rows, count, out);
    }
    return 0;
}

static void limit_close(op *o) {
    limit_state *s = o->state;
    hash_table_free(s->partitions);
    free(s->counts);
}

const op_class op_limit = {.name = "limit",
                           .state_bytes = sizeof(limit_state),
                           .open = limit_open,
                           .next = limit_next,
                           .close = limit_close};
