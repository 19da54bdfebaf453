/*
 * llm_waves.c - asking about no more rows than what stands above needs of those that pass.
 *
 *   wanted   a LIMIT above: waves of rows in input order, until it has enough
 *   each     one (or a few) of the rows equal in some columns will do: round by round, some rows of
 *            each group that has not given enough yet, up to twice as many each time; the first in
 *            the order of the window or sort above, if there is one
 *   both     waves, without the rows of groups that have given enough
 *   partner  a join above: rows that tie with none of its left ones are not asked about
 *
 * Invariant: the rows that are handed out, in input order (DIALECT 4), are the first that pass, of
 * all or of each group; and in an order of a window's or sort's maybe some more, which that leaves
 * out. Prompts are as they would be if all rows were asked, since inputs, layout and orders are
 * fixed before the first wave.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"
#include "ops/op_int.h"
#include "rows/row_sort_int.h"
#include "rows/rowset_int.h"

enum { FIRST_WAVE = 16, WAVE_GROWTH = 8 };

/* The group of rows that are one each. */
enum { OWN_GROUP = UINT32_MAX };

static const plan_demand *demand_of(const op *o) {
    return &o->node->pipeline.demand;
}

/* ---- partners -------------------------------------------------------------------------------- */

/* A row that the filters may drop must not fail for what is made of it above them. */
static bool is_of_the_rows(const err *e) {
    return e->code == ERR_ARITHMETIC || e->code == ERR_TYPE || e->code == ERR_LIMIT;
}

static bool has_null(const column *keys, int n, int row) {
    for (int k = 0; k < n; k++)
        if (keys[k].type == TYPE_NULL || column_is_null(&keys[k], row))
            return true;
    return false;
}

/* The values in which the join's left rows tie; *any: one of them could tie with whatever there is.
 */
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

/* Rows of the base that tie with none of the partners are of no use. */
static int drop_others(op *o, hash_table *table, column *keys, int64_t *found, err *e) {
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

static int find_partners(op *o, err *e) {
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
    hash_table *table = hash_table_new(o->ctx, types, n);
    status = read_partners(o, table, keys, entries, &any, e);
    if (status == 0 && !any)
        status = drop_others(o, table, keys, found, e);
    hash_table_free(table);
    if (status == 0 || !is_of_the_rows(e))
        return status;
    err_clear(e); /* the join will tell, if it comes to that */
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
            status = hash_table_add(table, keys, b->rows, s->group_of + at, e);
        } else if (is_of_the_rows(e)) {
            status = 0;
            err_clear(e);
            for (int k = 0; k < b->rows; k++)
                s->group_of[at + k] = OWN_GROUP;
        }
        at += b->rows;
    }
    s->ngroups = hash_table_count(table);
    return status;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* The values by which a window or sort orders the rows. */
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

/* Which rows tie with the one before them in their group. */
static void find_ties(op *o, const rowset *keys) {
    llm_state *s = o->state;
    int64_t n = rowset_rows(keys), *before = ARENA_ARRAY(s->mem, int64_t, s->ngroups + 1);
    s->tied = ARENA_ARRAY(s->mem, uint8_t, n + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = s->in_order[i], *last;
        if (s->group_of[row] == OWN_GROUP)
            continue;
        last = &before[s->group_of[row]]; /* counted from 1 */
        s->tied[row] = *last > 0 && ties(o, keys, row, *last - 1);
        *last = row + 1;
    }
}

static int sort_keys(op *o, rowset *keys, err *e) {
    llm_state *s = o->state;
    const plan_demand *d = demand_of(o);
    int64_t n = rowset_rows(s->rows);
    uint32_t *rows;
    int status = read_order(o, keys, e);
    if (status && is_of_the_rows(e)) { /* the node above will tell, if it comes to that */
        err_clear(e);
        for (int64_t r = 0; r < n; r++)
            s->group_of[r] = OWN_GROUP;
        return 0;
    }
    if (status == 0)
        status = sort_rows(o->ctx, keys, d->top_n.order, d->top_n.norder, &rows, e);
    if (status)
        return status;
    s->in_order = arena_alloc(s->mem, sizeof *rows * (size_t)BASE_MAX(n, 1));
    memcpy(s->in_order, rows, sizeof *rows * (size_t)n);
    free(rows);
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
    rowset *keys = rowset_new(o->ctx, types, n);
    int status = sort_keys(o, keys, e);
    rowset_free(keys);
    return status;
}

int llm_waves_prepare(op *o, err *e) {
    llm_state *s = o->state;
    const plan_demand *d = demand_of(o);
    int status = find_partners(o, e);
    if (status || d->top_n.n == 0)
        return status;
    s->group_of = ARENA_ARRAY(s->mem, uint32_t, rowset_rows(s->rows) + 1);
    s->ngroups = 1;
    if (d->top_n.nkeys > 0) {
        value_type *types = ARENA_ARRAY(o->mem, value_type, d->top_n.nkeys);
        for (int k = 0; k < d->top_n.nkeys; k++)
            types[k] = d->top_n.keys[k]->type;
        hash_table *table = hash_table_new(o->ctx, types, d->top_n.nkeys);
        status = find_groups(o, table, e);
        hash_table_free(table);
    }
    s->asked = ARENA_ARRAY(s->mem, int64_t, s->ngroups + 1);
    s->passed = ARENA_ARRAY(s->mem, int64_t, s->ngroups + 1);
    return status ? status : find_order(o, e);
}

static bool has_enough(const op *o, int64_t row) {
    const llm_state *s = o->state;
    return s->group_of && s->group_of[row] != OWN_GROUP &&
           s->passed[s->group_of[row]] >= demand_of(o)->top_n.n;
}

/* Of the rows that passed, ascending, those that are the first of their groups; where another order
 * says which these are, all: the node above takes the first. */
static void keep_first(op *o, const int64_t *rows, int64_t count) {
    llm_state *s = o->state;
    for (int64_t i = 0; s->group_of && i < count; i++) {
        uint32_t group = s->group_of[rows[i]];
        s->dropped[rows[i]] = !s->in_order && has_enough(o, rows[i]);
        if (group != OWN_GROUP)
            s->passed[group]++;
    }
}

/* ---- waves ----------------------------------------------------------------------------------- */

/* The LIMIT above `node`, which uses no more than so many rows of what it gives; NULL: not below
 * `at`. A shared node is looked into once. */
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

/* The rows that reached the LIMIT above so far. */
static int64_t rows_passed(op *o) {
    llm_state *s = o->state;
    if (!s->limit)
        s->limit = find_limit(o->ctx->plan->root, o->node, NULL,
                              ARENA_ARRAY(o->mem, bool, o->ctx->plan->nnodes + 1));
    assert(s->limit && o->ctx->counts.rows_out);
    return (int64_t)o->ctx->counts.rows_out[s->limit->left->number];
}

/* The share of the base's rows that all filters are planned to keep. */
static double planned_share(const op *o) {
    const llm_state *s = o->state;
    double share = 1;
    for (int i = 0; i < s->nstages; i++)
        share *= s->stages[i].plan->estimate.selectivity;
    return BASE_MIN(1, BASE_MAX(share, 0.01));
}

/* As many rows as should bring the rest of what the LIMIT wants, going by the share that passed, or
 * is expected to at first. One more that passed and two more that were asked are imagined, so that
 * bad luck at the start does not ask for all. */
static int64_t wave_rows(op *o) {
    llm_state *s = o->state;
    int64_t passed = rows_passed(o), wanted = BASE_MAX(demand_of(o)->limit_hint - passed, 1);
    double share = planned_share(o);
    if (s->asked_rows == 0)
        s->passed_before = passed; /* of other inputs of a union */
    else
        share = (double)(passed - s->passed_before + 1) / (double)(s->asked_rows + 2);
    double rows = ceil((double)wanted / share);
    double most = s->wave > 0 ? (double)WAVE_GROWTH * (double)s->wave : rows;
    return (int64_t)BASE_MAX(BASE_MIN(rows, most), FIRST_WAVE);
}

int llm_run_wave(op *o, err *e) {
    llm_state *s = o->state;
    int64_t n = rowset_rows(s->rows), at = s->decided_rows, count = 0;
    uint32_t done = 0;
    s->wave = BASE_MIN(wave_rows(o), n - at);
    arena *mem = arena_new_in(o->ctx->space);
    int64_t *rows = arena_alloc(mem, sizeof *rows * (size_t)BASE_MAX(s->wave, 1));
    for (; at < n && count < s->wave; at++)
        if (has_enough(o, at))
            s->dropped[at] = 1;
        else if (!s->dropped[at])
            rows[count++] = at;
    s->asked_rows += count;
    int status = llm_run_stages(o, &done, false, rows, &count, e);
    keep_first(o, rows, count);
    arena_free(mem);
    s->decided_rows = at;
    return status;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* As many rows of a group as should bring what it misses, going by the share of it that passed (as
 * in waves), but no more than `most`, and not so few that there would be many rounds. */
static int64_t rows_of_group(const op *o, uint32_t group, int64_t most) {
    const llm_state *s = o->state;
    int64_t asked = s->asked[group], missing = demand_of(o)->top_n.n - s->passed[group];
    double rows = (double)missing * (double)(asked + 2) / (double)(s->passed[group] + 1);
    return asked == 0 || rows >= (double)most ? most : BASE_MAX((int64_t)ceil(rows), asked / 8);
}

enum { CLOSED = -1 }; /* no more of a group in this round */

/* Whether a row is among the next `open` ones of its group, or ties with the last of them. */
static bool is_next(const llm_state *s, int64_t row, int64_t *open) {
    if (*open > 0)
        (*open)--;
    else if (*open == 0 && !(s->tied && s->tied[row]))
        *open = CLOSED;
    return *open != CLOSED;
}

/* Moves up to `most` rows of each group without enough, and those that tie with the last of these,
 * from waiting[0..*count) to `rows`, ascending; drops those of groups with enough; returns how many
 * it moved. */
static int64_t choose_round(op *o, int64_t most, int64_t *waiting, int64_t *count, int64_t *open,
                            int64_t *rows) {
    llm_state *s = o->state;
    int64_t left = 0, moved = 0;
    for (uint32_t g = 0; g < s->ngroups; g++)
        open[g] = rows_of_group(o, g, most);
    for (int64_t i = 0; i < *count; i++) {
        int64_t r = waiting[i];
        uint32_t group = s->group_of[r];
        if (s->dropped[r])
            continue;
        if (has_enough(o, r)) {
            s->dropped[r] = 1;
        } else if (group == OWN_GROUP || is_next(s, r, &open[group])) {
            s->asked[group == OWN_GROUP ? s->ngroups : group]++;
            rows[moved++] = r;
        } else {
            waiting[left++] = r;
        }
    }
    *count = left;
    if (s->in_order)
        llm_sort_rows(rows, moved);
    return moved;
}

int llm_run_rounds(op *o, err *e) {
    llm_state *s = o->state;
    int64_t n = rowset_rows(s->rows), left = n, count;
    int64_t first = BASE_MAX(demand_of(o)->top_n.n, FIRST_WAVE / BASE_MAX((int64_t)s->ngroups, 1)),
            most = BASE_MIN(first, n);
    arena *mem = arena_new_in(o->ctx->space);
    int64_t *waiting = arena_alloc(mem, sizeof *waiting * (size_t)BASE_MAX(n, 1)),
            *rows = arena_alloc(mem, sizeof *rows * (size_t)BASE_MAX(n, 1)),
            *open = arena_alloc(mem, sizeof *open * BASE_MAX(s->ngroups, 1u));
    int status = 0;
    for (int64_t r = 0; r < n; r++)
        waiting[r] = s->in_order ? s->in_order[r] : r;
    while (status == 0 && (count = choose_round(o, most, waiting, &left, open, rows)) > 0) {
        int64_t asked = count;
        uint32_t done = 0;
        status = llm_run_stages(o, &done, false, rows, &count, e);
        keep_first(o, rows, count);
        s->decided_rows += asked;
        most = BASE_MIN(2 * most, n);
    }
    arena_free(mem);
    s->decided_rows = n;
    return status;
}
