/*
 * join_pairs.c - makes output rows of a join from candidate pairs (join_pairs_int.h).
 */
#include <string.h>

#include "join_pairs_int.h"
#include "rows/cells_int.h"

bool join_needs_end(join_kind kind) {
    return kind != JOIN_INNER && kind != JOIN_CROSS;
}

/* Sets cols to the left columns, then `nright` right columns, of `count` pairs. */
static void gather_pairs(op *o, join_pairs *p, const int *left, const int64_t *rows, int count,
                         column *cols, int nright) {
    int nleft = p->in->ncols;
    for (int c = 0; c < nleft; c++)
        column_gather(&cols[c], o->pass, &p->in->cols[c], left, count);
    for (int c = 0; c < nright; c++)
        rowset_gather(p->right, c, o->pass, rows, count, &cols[nleft + c]);
}

/* Sets passes[k] and predicate_null[k] for every pair. */
static int test_pairs(op *o, join_pairs *p, err *e) {
    const expr *predicate = o->node->join.predicate;
    memset(p->passes, 1, (size_t)p->count);
    memset(p->predicate_null, 0, (size_t)p->count);
    if (!predicate || p->count == 0)
        return 0;
    int nright = o->node->right->ncols, n = 0;
    int *left = arena_alloc(o->pass, sizeof *left * (size_t)p->count),
        *where = arena_alloc(o->pass, sizeof *where * (size_t)p->count);
    int64_t *rows = arena_alloc(o->pass, sizeof *rows * (size_t)p->count);
    for (int k = 0; k < p->count; k++)
        if (p->row[k] != END_OF_LEFT_ROW) {
            left[n] = p->left[k];
            rows[n] = p->row[k];
            where[n++] = k;
        }
    if (n == 0)
        return 0;
    batch pairs = {.rows = n, .ncols = p->in->ncols + nright, .mem = o->pass};
    pairs.cols = ARENA_ARRAY(o->pass, column, BASE_MAX(pairs.ncols, 1));
    gather_pairs(o, p, left, rows, n, pairs.cols, nright);
    column test;
    int status = eval_column(predicate, &pairs, o->pass, &test, e);
    for (int k = 0; status == 0 && k < n; k++) {
        bool null = cell_is_null(&test, k);
        p->predicate_null[where[k]] = null;
        p->passes[where[k]] = !null && test.i[k] != 0;
    }
    return status;
}

static void put(join_pairs *p, int left, int64_t row) {
    p->out_left[p->out_count] = left;
    p->out_row[p->out_count++] = row;
}

/* Called after the last pair of a left row. Adds the output row that LEFT, SINGLE, SEMI, ANTI and
 * MARK joins make of the left row alone. */
static void finish_left(const op *o, join_pairs *p, int left) {
    bool matched = p->matched[left] != 0;
    switch (o->node->join.kind) {
    case JOIN_LEFT:
    case JOIN_SINGLE:
        if (!matched)
            put(p, left, -1);
        break;
    case JOIN_SEMI:
    case JOIN_ANTI:
        if (matched == (o->node->join.kind == JOIN_SEMI))
            put(p, left, -1);
        break;
    case JOIN_MARK:
        p->mark[p->out_count] = matched;
        p->mark_null[p->out_count] = !matched && o->node->join.mark_null && p->unknown[left];
        put(p, left, -1);
        break;
    case JOIN_INNER:
    case JOIN_CROSS:
        break;
    }
}

static int choose_pairs(op *o, join_pairs *p, err *e) {
    join_kind kind = o->node->join.kind;
    bool pairs_out =
        kind == JOIN_INNER || kind == JOIN_CROSS || kind == JOIN_LEFT || kind == JOIN_SINGLE;
    p->out_count = 0;
    for (int k = 0; k < p->count; k++) {
        int left = p->left[k];
        if (p->row[k] == END_OF_LEFT_ROW) {
            finish_left(o, p, left);
            continue;
        }
        p->unknown[left] |= p->predicate_null[k];
        if (!p->passes[k])
            continue;
        if (kind == JOIN_SINGLE && p->matched[left]) {
            err_set(e, ERR_CONSTRAINT, "a subquery used as a value returned more than one row");
            err_hint(e, "add LIMIT 1 to the subquery, or compare with IN (…)");
            return ERR_CONSTRAINT;
        }
        p->matched[left] = 1;
        if (pairs_out)
            put(p, left, p->row[k]);
    }
    return 0;
}

int join_emit(op *o, join_pairs *p, err *e) {
    join_kind kind = o->node->join.kind;
    bool left_alone = kind == JOIN_SEMI || kind == JOIN_ANTI || kind == JOIN_MARK;
    arena_reset(o->pass);
    int status = test_pairs(o, p, e);
    if (status == 0)
        status = choose_pairs(o, p, e);
    p->count = 0;
    o->out.rows = status ? 0 : p->out_count;
    if (status || p->out_count == 0)
        return status;
    gather_pairs(o, p, p->out_left, p->out_row, p->out_count, o->out.cols,
                 left_alone ? 0 : o->node->right->ncols);
    if (kind == JOIN_MARK) {
        column *mark = &o->out.cols[p->in->ncols];
        column_init(mark, o->pass, TYPE_BOOLEAN, p->out_count, true);
        memcpy(mark->null, p->mark_null, (size_t)p->out_count);
        for (int k = 0; k < p->out_count; k++)
            mark->i[k] = p->mark[k];
    }
    return 0;
}
