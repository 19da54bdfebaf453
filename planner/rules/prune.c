/*
 * prune.c - removes columns that are not read, so that they are neither scanned nor carried through
 * the plan. Also removes LLM calls whose answers are not read.
 *
 * Invariant: a node keeps its columns that are in `wanted`, in the same order. A shared relation
 * keeps every column that one of its references needs. The tree is pruned again and again until the
 * set of these columns no longer grows.
 */
#include <string.h>

#include "rules_int.h"

typedef struct pruner {
    rule_ctx *r;
    /* By number of a shared relation: for each of its columns, whether a reference needs it. NULL:
     * no reference has been visited yet. */
    bool **shared_wants;
    /* By number of a shared relation: the relation's input as pruned in this walk over the tree. */
    rel **shared_done;
    bool grew; /* this walk has added columns to shared_wants */
} pruner;

static rel *prune(pruner *p, rel *x, const id_set *wanted);

/* Prunes the input of x, whose own columns are already pruned. `passed`: columns that x returns
 * unchanged from its input; may be NULL. */
static rel *prune_input(pruner *p, rel *x, const id_set *passed) {
    id_set reads = id_set_new(p->r->mem);
    if (passed)
        id_set_add_all(&reads, passed);
    rel_reads(x, &reads);
    return rel_over(p->r, x, prune(p, x->left, &reads), NULL);
}

/* Prunes x to exactly the columns of `shape`, in their order. */
static rel *prune_to(pruner *p, rel *x, const rel *shape) {
    id_set ids = id_set_columns(p->r->mem, shape);
    return rel_like(p->r, prune(p, x, &ids), shape);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* Returns the positions of x's columns that are in `wanted`, and sets *count to their number. */
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

/* Returns from[at[0]], from[at[1]], … */
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
    if (count == x->ncols || x->kind == REL_SYSTEM || x->kind == REL_SERIES)
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
    /* no column is needed, only the number of rows, which is the same below */
    if (count == 0)
        return prune(p, x->left, wanted);
    if (count < x->ncols) {
        copy = with_columns(p, x, at, count);
        copy->project.exprs = ARENA_ARRAY(p->r->mem, rel_expr, count + 1);
        for (int i = 0; i < count; i++)
            copy->project.exprs[i] = x->project.exprs[at[i]];
    }
    return prune_input(p, copy, NULL);
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
    return prune_input(p, copy, NULL);
}

static rel *prune_llm(pruner *p, rel *x, const id_set *wanted) {
    llm_site *sites = ARENA_ARRAY(p->r->mem, llm_site, x->llm.nsites + 1);
    int n = 0;
    bool same = true;
    for (int i = 0; i < x->llm.nsites; i++) {
        llm_site u = x->llm.sites[i];
        int nprobs = 0;
        llm_prob *probs = ARENA_ARRAY(p->r->mem, llm_prob, u.nprobs + 1);
        for (int k = 0; k < u.nprobs; k++)
            if (id_set_has(wanted, u.probs[k].id))
                probs[nprobs++] = u.probs[k];
        same = same && nprobs == u.nprobs;
        u.probs = probs;
        u.nprobs = nprobs;
        if (nprobs > 0 || id_set_has(wanted, u.out_id))
            sites[n++] = u;
    }
    if (n == 0)
        return prune(p, x->left, wanted);
    rel *copy = same && n == x->llm.nsites ? x : make_llm(p->r, x->left, sites, n);
    return prune_input(p, copy, wanted);
}

static rel *prune_residual(pruner *p, rel *x, const id_set *wanted) {
    rel *copy = rel_copy(p->r, prune_input(p, x, wanted));
    copy->residual.null_ids = ARENA_ARRAY(p->r->mem, int, x->residual.nnull + 1);
    copy->residual.nnull = 0;
    for (int i = 0; i < x->residual.nnull; i++)
        if (rel_column_of(copy->left, x->residual.null_ids[i]))
            copy->residual.null_ids[copy->residual.nnull++] = x->residual.null_ids[i];
    return copy;
}

/* Nodes that compare whole rows (DISTINCT, set operations) read all columns of their inputs. */
static rel *prune_whole(pruner *p, rel *x) {
    return rel_over(p->r, x, prune_to(p, x->left, x->left),
                    x->right ? prune_to(p, x->right, x->right) : NULL);
}

/* ---- two inputs, shared ones ----------------------------------------------------------------- */

static rel *prune_union_all(pruner *p, rel *x, const id_set *wanted) {
    int count, *at = wanted_positions(p, x, wanted, &count);
    if (count == x->ncols)
        return prune_whole(p, x);
    rel *copy = with_columns(p, x, at, count);
    copy->left = prune_to(p, x->left, with_columns(p, x->left, at, count));
    copy->right = prune_to(p, x->right, with_columns(p, x->right, at, count));
    return copy;
}

static rel *prune_join(pruner *p, rel *x, const id_set *wanted) {
    id_set reads = id_set_copy(wanted);
    rel_reads(x, &reads);
    /* a subquery that was not unnested may read columns of the left input */
    if (x->kind == REL_APPLY) {
        id_set unbound = rel_free_ids(p->r, x->right);
        id_set_add_all(&reads, &unbound);
    }
    rel *left = prune(p, x->left, &reads), *right = prune(p, x->right, &reads);
    return rel_over(p->r, x, left, right);
}

static rel *prune_shared(pruner *p, rel *x, const id_set *wanted) {
    int number = x->shared.number, count = 0;
    bool *wants = p->shared_wants[number];
    if (!wants)
        wants = p->shared_wants[number] = ARENA_ARRAY(p->r->mem, bool, x->ncols + 1);
    for (int i = 0; i < x->ncols; i++)
        if (id_set_has(wanted, x->cols[i].id) && !wants[i])
            wants[i] = p->grew = true;
    int *at = ARENA_ARRAY(p->r->mem, int, x->ncols + 1);
    for (int i = 0; i < x->ncols; i++)
        if (wants[i])
            at[count++] = i;
    if (!p->shared_done[number])
        p->shared_done[number] = prune_to(p, x->left, with_columns(p, x->left, at, count));
    rel *copy = with_columns(p, x, at, count);
    copy->left = p->shared_done[number];
    return copy;
}

static rel *prune_number(pruner *p, rel *x, const id_set *wanted) {
    rel *left = prune(p, x->left, wanted);
    return id_set_has(wanted, x->row_number.id) ? rel_over(p->r, x, left, NULL) : left;
}

/* Drops the functions that are not read, and the sort keys that only dropped functions need. */
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
    return prune_input(p, copy, wanted);
}

static rel *prune(pruner *p, rel *x, const id_set *wanted) {
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
    case REL_WORKING: /* has all columns of the recursion */
        return x;
    case REL_SETOP:
        return x->setop.op == SETOP_UNION_ALL ? prune_union_all(p, x, wanted) : prune_whole(p, x);
    case REL_JOIN:
    case REL_APPLY:
        return prune_join(p, x, wanted);
    case REL_SHARED:
        return prune_shared(p, x, wanted);
    case REL_ROW_NUMBER:
        return prune_number(p, x, wanted);
    case REL_WINDOW:
        return prune_window(p, x, wanted);
    case REL_OUTER_RESIDUAL:
        return prune_residual(p, x, wanted);
    case REL_FILTER:
    case REL_SORT:
    case REL_LIMIT:
    case REL_PIPELINE:
    case REL_SPLIT:
        break;
    }
    return prune_input(p, x, wanted);
}

rel *prune_columns(rule_ctx *r, rel *x) {
    pruner p = {.r = r, .shared_wants = ARENA_ARRAY(r->mem, bool *, r->next_share + 1)};
    id_set wanted = id_set_columns(r->mem, x);
    rel *done;
    do {
        p.grew = false;
        p.shared_done = ARENA_ARRAY(r->mem, rel *, r->next_share + 1);
        done = prune(&p, x, &wanted);
    } while (p.grew);
    return done;
}
