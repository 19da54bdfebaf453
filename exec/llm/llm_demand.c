/*
 * llm_demand.c - asks about fewer rows if the nodes above need only some of the rows that pass
 * (plan_demand; the planner's rule `waves`).
 *
 *   limit_hint   a LIMIT above: batches of rows in input order, until enough have passed
 *   top_n        the first n rows of each group that pass: rounds, each with some rows of every
 *                group of which fewer than n rows have passed; the maximum number of rows per group
 *                doubles each round
 *   both         limit batches, without rows of groups of which n rows have passed
 *   semi_join    a join above: rows that match no row of its left input are dropped
 *
 * Invariant: the returned rows, in input order, are the first rows that pass, of all rows or of
 * each group. If top_n has an order, further rows may be returned; the node above chooses the first
 * ones. Inputs, layout and orders are fixed before the first batch, so the prompts are those of a
 * run over all rows.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"
#include "ops/op_int.h"
#include "rows/row_sort_int.h"
#include "rows/rowset_int.h"

/* FIRST_BATCH: minimum rows of a limit batch, except the first one of a pipeline without filters;
 * the first top-n round has about as many or more.
 * BATCH_GROWTH: a limit batch has at most this many times the rows of the batch before it. */
enum { FIRST_BATCH = 16, BATCH_GROWTH = 8 };

/* The group of a row whose keys could not be evaluated. Each such row counts as a group of its
 * own. */
enum { OWN_GROUP = UINT32_MAX };

static const plan_demand *demand_of(const op *o) {
    return &o->node->pipeline.demand;
}

/* ---- semi-join ------------------------------------------------------------------------------- */

/* Whether the error comes from evaluating an expression over a row. This file ignores these errors,
 * because it evaluates rows that the filters may drop. The node above reports them for rows that
 * pass. */
static bool is_row_error(const err *e) {
    return e->code == ERR_ARITHMETIC || e->code == ERR_TYPE || e->code == ERR_LIMIT;
}

static bool has_null(const column *keys, int n, int row) {
    for (int k = 0; k < n; k++)
        if (keys[k].type == TYPE_NULL || column_is_null(&keys[k], row))
            return true;
    return false;
}

/* Adds the join partners' keys to the table. *any: one of these keys is NULL and may match every
 * row (mark_null). */
static int read_partners(op *o, hash_table *table, column *keys, uint32_t *entries, bool *any,
                         err *e) {
    const plan_demand *d = demand_of(o);
    op *left;
    batch *b = NULL;
    int status = op_build(o->ctx, d->semi_join.partner, &left, e);
    if (status)
        return status;
    while (!*any && (status = op_next(left, &b, e)) == 0 && b) {
        arena_reset(o->pass);
        status = op_eval(o, d->semi_join.partner_keys, d->semi_join.nkeys, b, keys, e);
        for (int k = 0; status == 0 && d->semi_join.mark_null && k < b->rows && !*any; k++)
            *any = has_null(keys, d->semi_join.nkeys, k);
        if (status == 0)
            status = hash_table_add(table, keys, b->rows, entries, e);
        if (status)
            break;
    }
    op_close(left);
    return status;
}

/* Drops rows of the base that match no partner. */
static int drop_unmatched(op *o, hash_table *table, column *keys, int64_t *found, err *e) {
    llm_state *s = o->state;
    const plan_demand *d = demand_of(o);
    int64_t at = 0;
    for (int i = 0; i < rowset_batches(s->rows); i++) {
        const batch *b = rowset_batch(s->rows, i);
        arena_reset(o->pass);
        int status = op_eval(o, d->semi_join.keys, d->semi_join.nkeys, b, keys, e);
        if (status)
            return status;
        hash_table_find(table, keys, b->rows, d->semi_join.nulls_match, found);
        for (int k = 0; k < b->rows; k++)
            if (found[k] < 0 && !(d->semi_join.mark_null && has_null(keys, d->semi_join.nkeys, k)))
                s->dropped[at + k] = 1;
        at += b->rows;
    }
    return 0;
}

static int semi_join(op *o, err *e) {
    const plan_demand *d = demand_of(o);
    int n = d->semi_join.nkeys, status;
    bool any = false;
    if (!d->semi_join.partner || n == 0)
        return 0;
    value_type *types = ARENA_ARRAY(o->mem, value_type, n);
    for (int k = 0; k < n; k++)
        types[k] = d->semi_join.partner_keys[k]->type;
    column *keys = ARENA_ARRAY(o->mem, column, n);
    uint32_t *entries = ARENA_ARRAY(o->mem, uint32_t, BATCH_ROWS);
    int64_t *found = ARENA_ARRAY(o->mem, int64_t, BATCH_ROWS);
    hash_table *table = hash_table_new(&o->memory, types, n);
    status = read_partners(o, table, keys, entries, &any, e);
    if (status == 0 && !any)
        status = drop_unmatched(o, table, keys, found, e);
    hash_table_free(table);
    if (status == 0 || !is_row_error(e))
        return status;
    err_clear(e);
    return 0;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int find_groups(op *o, hash_table *table, err *e) {
    llm_state *s = o->state;
    const plan_demand *d = demand_of(o);
    column *keys = ARENA_ARRAY(o->mem, column, d->top_n.nkeys + 1);
    int status = 0;
    int64_t at = 0;
    for (int i = 0; i < rowset_batches(s->rows) && status == 0; i++) {
        const batch *b = rowset_batch(s->rows, i);
        arena_reset(o->pass);
        status = op_eval(o, d->top_n.keys, d->top_n.nkeys, b, keys, e);
        if (status == 0) {
            status = hash_table_add(table, keys, b->rows, s->demand.group_of + at, e);
        } else if (is_row_error(e)) {
            status = 0;
            err_clear(e);
            for (int k = 0; k < b->rows; k++)
                s->demand.group_of[at + k] = OWN_GROUP;
        }
        at += b->rows;
    }
    s->demand.ngroups = hash_table_count(table);
    return status;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Appends to `keys` the values by which a window or sort orders the rows. */
static int read_order(op *o, rowset *keys, err *e) {
    llm_state *s = o->state;
    const plan_demand *d = demand_of(o);
    batch values = {.ncols = d->top_n.norder,
                    .cols = ARENA_ARRAY(o->mem, column, d->top_n.norder),
                    .mem = o->pass};
    int status = 0;
    for (int i = 0; i < rowset_batches(s->rows) && status == 0; i++) {
        const batch *b = rowset_batch(s->rows, i);
        arena_reset(o->pass);
        values.rows = b->rows;
        for (int k = 0; k < values.ncols && status == 0; k++)
            status = eval_column(d->top_n.order[k].value, b, o->pass, &values.cols[k], e);
        if (status == 0)
            status = rowset_append(keys, &values, e);
    }
    return status;
}

static bool ties(const op *o, const rowset *keys, int64_t a, int64_t b) {
    const plan_demand *d = demand_of(o);
    return sort_compare(d->top_n.order, d->top_n.norder,
                        rowset_batch(keys, (int)(a / BATCH_ROWS))->cols, (int)(a % BATCH_ROWS),
                        rowset_batch(keys, (int)(b / BATCH_ROWS))->cols,
                        (int)(b % BATCH_ROWS)) == 0;
}

/* Marks each row that ties with the row before it in its group. */
static void find_ties(op *o, const rowset *keys) {
    llm_state *s = o->state;
    int64_t n = rowset_rows(keys), *before = ARENA_ARRAY(s->mem, int64_t, s->demand.ngroups + 1);
    s->demand.tied = ARENA_ARRAY(s->mem, uint8_t, n + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = s->demand.in_order[i], *last;
        if (s->demand.group_of[row] == OWN_GROUP)
            continue;
        last = &before[s->demand.group_of[row]]; /* the group's row before this one + 1; 0: none */
        s->demand.tied[row] = *last > 0 && ties(o, keys, row, *last - 1);
        *last = row + 1;
    }
}

static int sort_keys(op *o, rowset *keys, err *e) {
    llm_state *s = o->state;
    const plan_demand *d = demand_of(o);
    int64_t n = rowset_rows(s->rows);
    mem_array rows = {0};
    int status = read_order(o, keys, e);
    if (status && is_row_error(e)) {
        err_clear(e);
        for (int64_t r = 0; r < n; r++)
            s->demand.group_of[r] = OWN_GROUP;
        return 0;
    }
    if (status == 0)
        status = sort_rows(o->ctx, &o->memory, keys, d->top_n.order, d->top_n.norder, &rows, e);
    if (status)
        return status;
    s->demand.in_order = arena_alloc(s->mem, sizeof(uint32_t) * (size_t)BASE_MAX(n, 1));
    memcpy(s->demand.in_order, rows.p, sizeof(uint32_t) * (size_t)n);
    mem_array_free(&rows);
    if (d->top_n.with_ties)
        find_ties(o, keys);
    return 0;
}

static int find_order(op *o, err *e) {
    const plan_demand *d = demand_of(o);
    int n = d->top_n.norder;
    if (n == 0)
        return 0;
    value_type *types = ARENA_ARRAY(o->mem, value_type, n);
    for (int k = 0; k < n; k++)
        types[k] = d->top_n.order[k].value->type;
    rowset *keys = rowset_new_in(&o->memory, types, n);
    int status = sort_keys(o, keys, e);
    rowset_free(keys);
    return status;
}

int llm_demand_prepare(op *o, err *e) {
    llm_state *s = o->state;
    const plan_demand *d = demand_of(o);
    int status = semi_join(o, e);
    if (status || d->top_n.n == 0)
        return status;
    s->demand.group_of = ARENA_ARRAY(s->mem, uint32_t, rowset_rows(s->rows) + 1);
    s->demand.ngroups = 1;
    if (d->top_n.nkeys > 0) {
        value_type *types = ARENA_ARRAY(o->mem, value_type, d->top_n.nkeys);
        for (int k = 0; k < d->top_n.nkeys; k++)
            types[k] = d->top_n.keys[k]->type;
        hash_table *table = hash_table_new(&o->memory, types, d->top_n.nkeys);
        status = find_groups(o, table, e);
        hash_table_free(table);
    }
    s->demand.asked = ARENA_ARRAY(s->mem, int64_t, s->demand.ngroups + 1);
    s->demand.passed = ARENA_ARRAY(s->mem, int64_t, s->demand.ngroups + 1);
    return status ? status : find_order(o, e);
}

static bool has_enough(const op *o, int64_t row) {
    const llm_state *s = o->state;
    return s->demand.group_of && s->demand.group_of[row] != OWN_GROUP &&
           s->demand.passed[s->demand.group_of[row]] >= demand_of(o)->top_n.n;
}

/* Counts rows[], which passed, by group, and drops rows of groups that already have top_n.n rows.
 * With top_n.order it drops none: the node above chooses the first rows. `rows` is ascending. */
static void count_passed(op *o, const int64_t *rows, int64_t count) {
    llm_state *s = o->state;
    for (int64_t i = 0; s->demand.group_of && i < count; i++) {
        uint32_t group = s->demand.group_of[rows[i]];
        s->dropped[rows[i]] = !s->demand.in_order && has_enough(o, rows[i]);
        if (group != OWN_GROUP)
            s->demand.passed[group]++;
    }
}

/* ---- limit batches --------------------------------------------------------------------------- */

/* Returns the lowest LIMIT on the path from `at` down to `node`, or `limit` if that path has none.
 * NULL: node is not below `at`. `seen` marks searched nodes: a shared node is searched once. */
static const plan_node *find_limit(const plan_node *at, const plan_node *node,
                                   const plan_node *limit, bool *seen) {
    if (!at || at == node)
        return at ? limit : NULL;
    if (seen[at->number])
        return NULL;
    seen[at->number] = true;
    if (at->kind == PLAN_LIMIT && at->limit.npartition == 0)
        limit = at;
    const plan_node *found = find_limit(at->left, node, limit, seen);
    return found ? found : find_limit(at->right, node, limit, seen);
}

/* Returns the number of rows that have reached the LIMIT above. */
static int64_t rows_passed(op *o) {
    llm_state *s = o->state;
    if (!s->demand.limit)
        s->demand.limit = find_limit(o->ctx->plan->root, o->node, NULL,
                                     ARENA_ARRAY(o->mem, bool, o->ctx->plan->nnodes + 1));
    assert(s->demand.limit && o->ctx->counts.rows_out);
    return (int64_t)o->ctx->counts.rows_out[s->demand.limit->left->number];
}

/* Returns the estimated share of the base's rows that pass all filters. */
static double planned_share(const op *o) {
    const llm_state *s = o->state;
    double share = 1;
    for (int i = 0; i < s->nstages; i++)
        share *= s->stages[i].plan->estimate.selectivity;
    return BASE_MIN(1, BASE_MAX(share, 0.01));
}

static bool has_filters(const llm_state *s) {
    for (int i = 0; i < s->nstages; i++)
        if (s->stages[i].plan->nfilters > 0)
            return true;
    return false;
}

/* Returns the size of the next batch: the number of rows that the LIMIT still needs, divided by the
 * share of rows that pass. At first the share is the plan's estimate, later (passed + 1) /
 * (asked + 2) (Laplace's rule of succession), so that few passing rows at the start do not make the
 * batch huge. */
static int64_t batch_rows(op *o) {
    llm_state *s = o->state;
    int64_t passed = rows_passed(o), wanted = BASE_MAX(demand_of(o)->limit_hint - passed, 1);
    int64_t least = s->demand.asked_rows > 0 || has_filters(s) ? FIRST_BATCH : 1;
    double share = planned_share(o);
    if (s->demand.asked_rows == 0)
        s->demand.passed_before = passed; /* from other inputs of a union */
    else
        share = (double)(passed - s->demand.passed_before + 1) / (double)(s->demand.asked_rows + 2);
    double rows = ceil((double)wanted / share);
    double most = s->demand.batch > 0 ? (double)BATCH_GROWTH * (double)s->demand.batch : rows;
    return (int64_t)BASE_MAX(BASE_MIN(rows, most), (double)least);
}

int llm_run_limit_batch(op *o, err *e) {
    llm_state *s = o->state;
    int64_t n = rowset_rows(s->rows), at = s->decided_rows, count = 0;
    uint32_t done = 0;
    s->demand.batch = BASE_MIN(batch_rows(o), n - at);
    arena *mem = arena_new_in(o->ctx->space);
    int64_t *rows = arena_alloc(mem, sizeof *rows * (size_t)BASE_MAX(s->demand.batch, 1));
    for (; at < n && count < s->demand.batch; at++)
        if (has_enough(o, at))
            s->dropped[at] = 1;
        else if (!s->dropped[at])
            rows[count++] = at;
    s->demand.asked_rows += count;
    int status = llm_run_stages(o, &done, false, rows, &count, e);
    count_passed(o, rows, count);
    arena_free(mem);
    s->decided_rows = at;
    return status;
}

/* ---- top-n rounds ---------------------------------------------------------------------------- */

/* Returns how many rows of a group to ask about next: the number of rows that the group still
 * needs, divided by the share of its rows that pass (see batch_rows), but at most `most`. It is at
 * least an eighth of the number of rows asked about so far, which bounds the number of rounds. */
static int64_t rows_of_group(const op *o, uint32_t group, int64_t most) {
    const llm_state *s = o->state;
    int64_t asked = s->demand.asked[group],
            missing = demand_of(o)->top_n.n - s->demand.passed[group];
    double rows = (double)missing * (double)(asked + 2) / (double)(s->demand.passed[group] + 1);
    return asked == 0 || rows >= (double)most ? most : BASE_MAX((int64_t)ceil(rows), asked / 8);
}

enum { CLOSED = -1 }; /* a group that gets no more rows in this round */

/* Whether a row is one of the next *open rows of its group, or ties with the last of them. Updates
 * *open. */
static bool is_next(const llm_state *s, int64_t row, int64_t *open) {
    if (*open > 0)
        (*open)--;
    else if (*open == 0 && !(s->demand.tied && s->demand.tied[row]))
        *open = CLOSED;
    return *open != CLOSED;
}

/* Chooses the rows of a round: moves rows of groups that need more from waiting[0..*count) to
 * `rows` (ascending), and returns how many it moved. Moves at most `most` rows per group, and the
 * rows that tie with the last of them. Drops rows of groups that have enough. */
static int64_t choose_round(op *o, int64_t most, int64_t *waiting, int64_t *count, int64_t *open,
                            int64_t *rows) {
    llm_state *s = o->state;
    int64_t left = 0, moved = 0;
    for (uint32_t g = 0; g < s->demand.ngroups; g++)
        open[g] = rows_of_group(o, g, most);
    for (int64_t i = 0; i < *count; i++) {
        int64_t r = waiting[i];
        uint32_t group = s->demand.group_of[r];
        if (s->dropped[r])
            continue;
        if (has_enough(o, r)) {
            s->dropped[r] = 1;
        } else if (group == OWN_GROUP || is_next(s, r, &open[group])) {
            s->demand.asked[group == OWN_GROUP ? s->demand.ngroups : group]++;
            rows[moved++] = r;
        } else {
            waiting[left++] = r;
        }
    }
    *count = left;
    if (s->demand.in_order)
        llm_sort_rows(rows, moved);
    return moved;
}

int llm_run_top_n(op *o, err *e) {
    llm_state *s = o->state;
    int64_t n = rowset_rows(s->rows), left = n, count;
    int64_t first = BASE_MAX(demand_of(o)->top_n.n,
                             FIRST_BATCH / BASE_MAX((int64_t)s->demand.ngroups, 1)),
            most = BASE_MIN(first, n);
    arena *mem = arena_new_in(o->ctx->space);
    int64_t *waiting = arena_alloc(mem, sizeof *waiting * (size_t)BASE_MAX(n, 1)),
            *rows = arena_alloc(mem, sizeof *rows * (size_t)BASE_MAX(n, 1)),
            *open = arena_alloc(mem, sizeof *open * BASE_MAX(s->demand.ngroups, 1u));
    int status = 0;
    for (int64_t r = 0; r < n; r++)
        waiting[r] = s->demand.in_order ? s->demand.in_order[r] : r;
    while (status == 0 && (count = choose_round(o, most, waiting, &left, open, rows)) > 0) {
        int64_t asked = count;
        uint32_t done = 0;
        status = llm_run_stages(o, &done, false, rows, &count, e);
        count_passed(o, rows, count);
        s->decided_rows += asked;
        most = BASE_MIN(2 * most, n);
    }
    arena_free(mem);
    s->decided_rows = n;
    return status;
}
