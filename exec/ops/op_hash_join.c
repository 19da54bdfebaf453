/*
 * op_hash_join.c - hash join: builds a hash table of the right input and looks up each left row in
 * it. The left input's order is kept. join_read.c reads the inputs, also of index joins.
 *
 *   chains[entry]  the first and the last right row of a distinct key
 *   next[row]      the next right row of the same key, in input order
 *
 * Invariant: a NULL key matches nothing unless the join is null_safe. The mark of a MARK join for
 * IN (mark_null) is NULL if no row matched but a comparison with a NULL key might have been true;
 * rows with NULL keys are compared one by one.
 */
#include "join_pairs_int.h"
#include "rows/cells_int.h"
#include "rows/hash_table_int.h"

typedef struct row_chain {
    int64_t first, last; /* numbers of right rows; -1: none */
} row_chain;

typedef struct hash_join_state {
    join_pairs pairs;
    hash_table *table;
    row_chain *chains;  /* [entry of `table`] */
    size_t nchains;     /* allocated length of `chains` */
    int64_t *next;      /* [right row] the next row of its chain; -1: none */
    rowset *right_keys; /* the keys of every right row; NULL if the mark cannot be NULL */
    int64_t *null_rows; /* right rows with a NULL key; NULL if the mark cannot be NULL */
    mem_array chains_in, next_in, null_rows_in; /* memory of these arrays */
    int64_t nnull;                              /* number of null_rows */
    column *left_keys;
    uint32_t entries[BATCH_ROWS];
    int64_t found[BATCH_ROWS];     /* [left row] its entry in `table`, or -1 */
    uint8_t left_null[BATCH_ROWS]; /* [left row] whether it has a NULL key */
    int left;                      /* current row of the left batch */
    int64_t chain;                 /* the right row to pair the current left row with next, or -1 */
} hash_join_state;

static bool mark_can_be_null(const op *o) {
    return o->node->join.kind == JOIN_MARK && o->node->join.mark_null && !o->node->join.null_safe;
}

/* ---- building -------------------------------------------------------------------------------- */

static int make_chains(op *o, err *e) {
    hash_join_state *s = o->state;
    size_t n = hash_table_count(s->table), room = BASE_MAX(n, s->nchains * 2);
    if (n <= s->nchains)
        return 0;
    int status = mem_array_resize(&s->chains_in, &o->memory, sizeof *s->chains * room, e);
    if (status)
        return status;
    s->chains = s->chains_in.p;
    for (size_t k = s->nchains; k < room; k++)
        s->chains[k] = (row_chain){-1, -1};
    s->nchains = room;
    return 0;
}

static int build_batch(op *o, const batch *b, int64_t start, column *keys, err *e) {
    hash_join_state *s = o->state;
    int nkeys = o->node->join.nkeys;
    int status = op_eval(o, o->node->join.right_keys, nkeys, b, keys, e);
    if (status == 0)
        status = hash_table_add(s->table, keys, b->rows, s->entries, e);
    if (status == 0)
        status = make_chains(o, e);
    if (status)
        return status;
    for (int k = 0; k < b->rows; k++) {
        int64_t row = start + k;
        s->next[row] = -1;
        if (!o->node->join.null_safe && row_has_null(keys, nkeys, k)) {
            if (mark_can_be_null(o))
                s->null_rows[s->nnull++] = row;
            continue;
        }
        row_chain *chain = &s->chains[s->entries[k]];
        if (chain->last < 0)
            chain->first = row;
        else
            s->next[chain->last] = row;
        chain->last = row;
    }
    if (!mark_can_be_null(o))
        return 0;
    batch kept = {.rows = b->rows, .ncols = nkeys, .cols = keys, .mem = o->pass};
    return rowset_append(s->right_keys, &kept, e);
}

static int join_build(op *o, err *e) {
    hash_join_state *s = o->state;
    int nkeys = o->node->join.nkeys;
    value_type *types = ARENA_ARRAY(o->mem, value_type, nkeys);
    column *keys = ARENA_ARRAY(o->mem, column, nkeys);
    for (int k = 0; k < nkeys; k++)
        types[k] = o->node->join.right_keys[k]->type;
    s->left_keys = ARENA_ARRAY(o->mem, column, nkeys);
    s->table = hash_table_new(&o->memory, types, nkeys);
    size_t bytes = sizeof *s->next * (size_t)rowset_rows(s->pairs.right);
    int status = mem_array_resize(&s->next_in, &o->memory, bytes, e);
    if (mark_can_be_null(o) && status == 0) {
        s->right_keys = rowset_new_in(&o->memory, types, nkeys);
        status = mem_array_resize(&s->null_rows_in, &o->memory, bytes, e);
    }
    s->next = s->next_in.p;
    s->null_rows = s->null_rows_in.p;
    for (int b = 0; b < rowset_batches(s->pairs.right) && status == 0; b++) {
        arena_reset(o->pass);
        if (check_cancel(o->ctx->cancel, e))
            return ERR_CANCELLED;
        status = build_batch(o, rowset_batch(s->pairs.right, b), (int64_t)b * BATCH_ROWS, keys, e);
    }
    return status;
}

/* ---- probing --------------------------------------------------------------------------------- */

static void start_row(hash_join_state *s) {
    s->chain = -1;
    if (s->left < s->pairs.in->rows && s->found[s->left] >= 0)
        s->chain = s->chains[s->found[s->left]].first;
}

static int probe_batch(op *o, err *e) {
    hash_join_state *s = o->state;
    int status = join_read_left(o, &s->pairs, e);
    if (status || !s->pairs.in)
        return status;
    if (!s->table && (status = join_build(o, e)) != 0)
        return status;
    arena_reset(o->pass);
    status = op_eval(o, o->node->join.left_keys, o->node->join.nkeys, s->pairs.in, s->left_keys, e);
    if (status)
        return status;
    hash_table_find(s->table, s->left_keys, s->pairs.in->rows, o->node->join.null_safe, s->found);
    for (int k = 0; mark_can_be_null(o) && k < s->pairs.in->rows; k++)
        s->left_null[k] = row_has_null(s->left_keys, o->node->join.nkeys, k);
    s->left = 0;
    start_row(s);
    return 0;
}

/* Whether the keys of two rows are equal if NULL is taken as equal to any value. */
static bool could_match(const op *o, const hash_join_state *s, const value *left, int64_t row) {
    for (int k = 0; k < o->node->join.nkeys; k++) {
        value right = rowset_get(s->right_keys, row, k);
        if (left[k].type != TYPE_NULL && right.type != TYPE_NULL &&
            value_compare(left[k], right) != 0)
            return false;
    }
    return true;
}

/* Sets pairs.unknown of a left row if, for some right row, the comparison of keys is NULL and the
 * predicate is not false. Evaluates the left keys again, because o->pass was reset after the first
 * time. */
static int find_unknown(op *o, int left, err *e) {
    hash_join_state *s = o->state;
    const plan_node *p = o->node;
    int ncols = s->pairs.in->ncols + p->right->ncols, nkeys = p->join.nkeys;
    bool left_null = s->left_null[left] != 0;
    int64_t count = left_null ? rowset_rows(s->pairs.right) : s->nnull;
    if (count == 0)
        return 0;
    arena *mem = arena_new();
    value *keys = ARENA_ARRAY(mem, value, nkeys), *row = ARENA_ARRAY(mem, value, ncols),
          test = value_null();
    int status = 0;
    for (int c = 0; c < s->pairs.in->ncols; c++)
        row[c] = column_get(&s->pairs.in->cols[c], left);
    for (int k = 0; k < nkeys && status == 0; k++)
        status = eval_value(p->join.left_keys[k], row, s->pairs.in->ncols, mem, &keys[k], e);
    for (int64_t k = 0; k < count && status == 0 && !s->pairs.unknown[left]; k++) {
        int64_t at = left_null ? k : s->null_rows[k];
        if (!could_match(o, s, keys, at))
            continue;
        for (int c = 0; c < p->right->ncols; c++)
            row[s->pairs.in->ncols + c] = rowset_get(s->pairs.right, at, c);
        if (p->join.predicate)
            status = eval_value(p->join.predicate, row, ncols, mem, &test, e);
        s->pairs.unknown[left] = test.type == TYPE_NULL || test.i != 0;
    }
    arena_free(mem);
    return status;
}

static int probe_fill(op *o, err *e) {
    hash_join_state *s = o->state;
    join_pairs *p = &s->pairs;
    join_kind kind = o->node->join.kind;
    bool needs_end = join_needs_end(kind);
    bool one_decides = kind == JOIN_SEMI || kind == JOIN_ANTI || kind == JOIN_MARK;
    bool one_is_enough = one_decides && !o->node->join.predicate;
    if (one_decides && s->left < p->in->rows && p->matched[s->left])
        s->chain = -1; /* an earlier candidate matched the left row */
    while (s->left < p->in->rows && p->count < BATCH_ROWS) {
        if (s->chain >= 0) {
            join_add(p, s->left, s->chain);
            s->chain = one_is_enough ? -1 : s->next[s->chain];
            continue;
        }
        if (needs_end)
            join_add(p, s->left, END_OF_LEFT_ROW);
        if (mark_can_be_null(o)) {
            int status = find_unknown(o, s->left, e);
            if (status)
                return status;
        }
        s->left++;
        start_row(s);
    }
    return 0;
}

static int hash_join_next(op *o, batch **out, err *e) {
    hash_join_state *s = o->state;
    for (;;) {
        int status = 0;
        if (!s->pairs.in || s->left == s->pairs.in->rows)
            status = probe_batch(o, e);
        if (status || !s->pairs.in)
            return status;
        if (check_cancel(o->ctx->cancel, e))
            return ERR_CANCELLED;
        if ((status = probe_fill(o, e)) != 0 || (status = join_emit(o, &s->pairs, e)) != 0)
            return status;
        if (o->out.rows) {
            *out = &o->out;
            return 0;
        }
    }
}

static void hash_join_close(op *o) {
    hash_join_state *s = o->state;
    hash_table_free(s->table);
    rowset_free(s->pairs.kept.rows);
    rowset_free(s->pairs.own_right);
    rowset_free(s->right_keys);
    mem_array_free(&s->chains_in);
    mem_array_free(&s->next_in);
    mem_array_free(&s->null_rows_in);
}

const op_class op_hash_join = {.name = "hash join",
                               .state_bytes = sizeof(hash_join_state),
                               .open = op_open_out,
                               .next = hash_join_next,
                               .close = hash_join_close};
