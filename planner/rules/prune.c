/*
 * prune.c - columns that nobody reads: not scanned, not decoded, not carried, not asked of the
 * model.
 *
 * Invariant: a node keeps the columns in `wanted` that it has, in the order it had them; LLM calls
 * whose answers nobody reads are not made. What shared references want is summed over all of them:
 * the walk is repeated until the sum stands.
 */
#include <string.h>

#include "rules_int.h"

typedef struct pruner {
    rule_ctx *r;
    bool **shared_wants; /* per share number: which positions; NULL: not met yet */
    rel **shared_done;   /* per share number: the pruned input of this pass */
    bool grew;
} pruner;

static rel *prune(pruner *p, rel *x, const id_set *wanted);

static id_set plus_reads(pruner *p, const rel *x, const id_set *wanted) {
    id_set all = id_set_new(p->r->mem);
    id_set_add_all(&all, wanted);
    rel_reads(x, &all);
    return all;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* The positions of wanted columns; all of them if none fell away (then `x` may stay). */
static int *wanted_positions(pruner *p, const rel *x, const id_set *wanted, int *count) {
    int *at = ARENA_ARRAY(p->r->mem, int, x->ncols + 1);
    *count = 0;
    for (int i = 0; i < x->ncols; i++)
        if (id_set_has(wanted, x->cols[i].id))
            at[(*count)++] = i;
    return at;
}

static rel *with_columns(pruner *p, const rel *x, const int *at, int count) {
    rel *copy = rel_copy(p->r, x);
    copy->cols = ARENA_ARRAY(p->r->mem, rel_column, count + 1);
    copy->ncols = count;
    for (int i = 0; i < count; i++)
        copy->cols[i] = x->cols[at[i]];
    return copy;
}

static int *pick(pruner *p, const int *from, const int *at, int count) {
    int *out = ARENA_ARRAY(p->r->mem, int, count + 1);
    for (int i = 0; i < count; i++)
        out[i] = from[at[i]];
    return out;
}

static rel *prune_values(pruner *p, rel *x, const int *at, int count) {
    rel *copy = with_columns(p, x, at, count);
    copy->values.rows = ARENA_ARRAY(p->r->mem, expr **, x->values.nrows + 1);
    for (int i = 0; i < x->values.nrows; i++) {
        copy->values.rows[i] = ARENA_ARRAY(p->r->mem, expr *, count + 1);
        for (int k = 0; k < count; k++)
            copy->values.rows[i][k] = x->values.rows[i][at[k]];
    }
    return copy;
}

static rel *prune_leaf(pruner *p, rel *x, const id_set *wanted) {
    int count, *at = wanted_positions(p, x, wanted, &count);
    if (count == x->ncols || x->kind == REL_SYSTEM || x->kind == REL_SERIES) /* made whole */
        return x;
    if (x->kind == REL_VALUES)
        return prune_values(p, x, at, count);
    rel *copy = with_columns(p, x, at, count);
    if (x->kind == REL_SCAN)
        copy->scan.columns = pick(p, x->scan.columns, at, count);
    else
        copy->file.columns = pick(p, x->file.columns, at, count);
    return copy;
}

/* ---- one input ------------------------------------------------------------------------------- */

static rel *prune_project(pruner *p, rel *x, const id_set *wanted) {
    int count, *at = wanted_positions(p, x, wanted, &count);
    rel *copy = x;
    if (count == 0) /* only rows are counted */
        return prune(p, x->left, wanted);
    if (count < x->ncols) {
        copy = with_columns(p, x, at, count);
        copy->project.exprs = ARENA_ARRAY(p->r->mem, rel_expr, count + 1);
        for (int i = 0; i < count; i++)
            copy->project.exprs[i] = x->project.exprs[at[i]];
    }
    id_set reads = id_set_new(p->r->mem);
    rel_reads(copy, &reads);
    return rel_over(p->r, copy, prune(p, x->left, &reads), NULL);
}

static rel *prune_group(pruner *p, rel *x, const id_set *wanted) {
    rel *copy = rel_copy(p->r, x);
    int n = x->group.nkeys;
    copy->cols = ARENA_ARRAY(p->r->mem, rel_column, x->ncols + 1);
    copy->group.aggs = ARENA_ARRAY(p->r->mem, rel_agg, x->group.naggs + 1);
    copy->group.naggs = 0;
    memcpy(copy->cols, x->cols, sizeof *x->cols * (size_t)n);
    for (int i = 0; i < x->group.naggs; i++)
        if (id_set_has(wanted, x->group.aggs[i].id)) {
            copy->cols[n + copy->group.naggs] = x->cols[n + i];
            copy->group.aggs[copy->group.naggs++] = x->group.aggs[i];
        }
    copy->ncols = n + copy->group.naggs;
    if (copy->group.naggs == x->group.naggs)
        copy = x;
    id_set reads = id_set_new(p->r->mem);
    rel_reads(copy, &reads);
    return rel_over(p->r, copy, prune(p, x->left, &reads), NULL);
}

static rel *prune_llm(pruner *p, rel *x, const id_set *wanted) {
    llm_use *uses = ARENA_ARRAY(p->r->mem, llm_use, x->llm.nuses + 1);
    int n = 0;
    bool same = true;
    for (int i = 0; i < x->llm.nuses; i++) {
        llm_use u = x->llm.uses[i];
        bool prob = u.prob_id >= 0 && id_set_has(wanted, u.prob_id);
        same = same && prob == (u.prob_id >= 0);
        if (!prob)
            u.prob_id = -1;
        if (prob || id_set_has(wanted, u.out_id))
            uses[n++] = u;
    }
    if (n == 0)
        return prune(p, x->left, wanted);
    rel *copy = same && n == x->llm.nuses ? x : make_llm(p->r, x->left, uses, n);
    id_set reads = plus_reads(p, copy, wanted);
    rel *left = prune(p, x->left, &reads);
    return rel_over(p->r, copy, left, NULL);
}

static rel *prune_residual(pruner *p, rel *x, const id_set *wanted) {
    id_set reads = plus_reads(p, x, wanted);
    rel *left = prune(p, x->left, &reads);
    rel *copy = rel_copy(p->r, x);
    copy->residual.null_ids = ARENA_ARRAY(p->r->mem, int, x->residual.nnull + 1);
    copy->residual.nnull = 0;
    for (int i = 0; i < x->residual.nnull; i++)
        if (rel_column_of(left, x->residual.null_ids[i]))
            copy->residual.null_ids[copy->residual.nnull++] = x->residual.null_ids[i];
    copy->left = left;
    rel_set_columns(p->r->mem, copy);
    return copy;
}

/* Rows are what counts (DISTINCT, set operations): every column is wanted. */
static rel *prune_whole(pruner *p, rel *x) {
    id_set left = id_set_new(p->r->mem), right = id_set_new(p->r->mem);
    id_set_add_columns(&left, x->left);
    if (x->right)
        id_set_add_columns(&right, x->right);
    return rel_over(p->r, x, prune(p, x->left, &left),
                    x->right ? prune(p, x->right, &right) : NULL);
}

/* ---- two inputs, shared ones ----------------------------------------------------------------- */

static rel *prune_union_all(pruner *p, rel *x, const id_set *wanted) {
    int count, *at = wanted_positions(p, x, wanted, &count);
    if (count == x->ncols)
        return prune_whole(p, x);
    rel *copy = with_columns(p, x, at, count);
    rel *inputs[2] = {x->left, x->right};
    for (int side = 0; side < 2; side++) {
        rel *shape = with_columns(p, inputs[side], at, count);
        id_set ids = id_set_new(p->r->mem);
        id_set_add_columns(&ids, shape);
        inputs[side] = rel_like(p->r, prune(p, inputs[side], &ids), shape);
    }
    copy->left = inputs[0];
    copy->right = inputs[1];
    return copy;
}

static rel *prune_join(pruner *p, rel *x, const id_set *wanted) {
    id_set reads = plus_reads(p, x, wanted);
    if (x->kind == REL_APPLY) { /* not unnested: the right side may read any column of the left */
        id_set unbound = rel_free_ids(p->r, x->right);
        id_set_add_all(&reads, &unbound);
    }
    rel *left = prune(p, x->left, &reads), *right = prune(p, x->right, &reads);
    return rel_over(p->r, x, left, right);
}

static rel *prune_shared(pruner *p, rel *x, const id_set *wanted) {
    int number = x->shared.number, count;
    bool *wants = p->shared_wants[number];
    if (!wants)
        wants = p->shared_wants[number] = ARENA_ARRAY(p->r->mem, bool, x->ncols + 1);
    for (int i = 0; i < x->ncols; i++)
        if (id_set_has(wanted, x->cols[i].id) && !wants[i])
            wants[i] = p->grew = true;
    int *at = ARENA_ARRAY(p->r->mem, int, x->ncols + 1);
    count = 0;
    for (int i = 0; i < x->ncols; i++)
        if (wants[i])
            at[count++] = i;
    if (!p->shared_done[number]) {
        rel *shape = with_columns(p, x->left, at, count);
        id_set ids = id_set_new(p->r->mem);
        id_set_add_columns(&ids, shape);
        p->shared_done[number] = rel_like(p->r, prune(p, x->left, &ids), shape);
    }
    rel *copy = with_columns(p, x, at, count);
    copy->left = p->shared_done[number];
    return copy;
}

static rel *prune_number(pruner *p, rel *x, const id_set *wanted) {
    rel *left = prune(p, x->left, wanted);
    return id_set_has(wanted, x->number.id) ? rel_over(p->r, x, left, NULL) : left;
}

/* Without the functions that nobody reads; the sort keeps only the keys that the others need. */
static rel *prune_window(pruner *p, rel *x, const id_set *wanted) {
    rel_window *functions = ARENA_ARRAY(p->r->mem, rel_window, x->window.nfunctions + 1);
    int n = 0, nkeys = 0;
    for (int i = 0; i < x->window.nfunctions; i++)
        if (id_set_has(wanted, x->window.functions[i].id)) {
            functions[n++] = x->window.functions[i];
            nkeys = BASE_MAX(nkeys, x->window.functions[i].nkeys);
        }
    if (n == 0)
        return prune(p, x->left, wanted);
    rel *copy = x;
    if (n < x->window.nfunctions) {
        copy = rel_copy(p->r, x);
        copy->window.functions = functions;
        copy->window.nfunctions = n;
        copy->window.nkeys = nkeys;
        rel_set_columns(p->r->mem, copy);
    }
    id_set reads = plus_reads(p, copy, wanted);
    return rel_over(p->r, copy, prune(p, x->left, &reads), NULL);
}

static rel *prune(pruner *p, rel *x, const id_set *wanted) {
    id_set reads;
    switch (x->kind) {
    case REL_VALUES:
    case REL_SCAN:
    case REL_FILE:
    case REL_SYSTEM:
    case REL_SERIES:
        return prune_leaf(p, x, wanted);
    case REL_PROJECT:
        return prune_project(p, x, wanted);
    case REL_GROUP:
        return prune_group(p, x, wanted);
    case REL_LLM:
        return prune_llm(p, x, wanted);
    case REL_DISTINCT:
    case REL_RECURSIVE:
        return prune_whole(p, x);
    case REL_WORKING: /* rows of all columns */
        return x;
    case REL_SETOP:
        return x->setop.op == SETOP_UNION_ALL ? prune_union_all(p, x, wanted) : prune_whole(p, x);
    case REL_JOIN:
    case REL_APPLY:
        return prune_join(p, x, wanted);
    case REL_SHARED:
        return prune_shared(p, x, wanted);
    case REL_NUMBER:
        return prune_number(p, x, wanted);
    case REL_WINDOW:
        return prune_window(p, x, wanted);
    case REL_OUTER_RESIDUAL:
        return prune_residual(p, x, wanted);
    case REL_FILTER:
    case REL_SORT:
    case REL_LIMIT:
    case REL_PIPELINE:
        break;
    }
    reads = plus_reads(p, x, wanted);
    return rel_over(p->r, x, prune(p, x->left, &reads), NULL);
}

rel *prune_columns(rule_ctx *r, rel *x) {
    pruner p = {.r = r, .shared_wants = ARENA_ARRAY(r->mem, bool *, r->next_share + 1)};
    id_set wanted = id_set_new(r->mem);
    id_set_add_columns(&wanted, x);
    rel *done;
    do {
        p.grew = false;
        p.shared_done = ARENA_ARRAY(r->mem, rel *, r->next_share + 1);
        done = prune(&p, x, &wanted);
    } while (p.grew);
    return done;
}
