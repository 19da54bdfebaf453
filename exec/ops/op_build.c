/*
 * op_build.c - from plan nodes to operators; what is done around every operator: cancel, rows,
 * time, closing.
 *
 * Invariant: an operator is closed exactly once, its children after it, whatever failed before. A
 * shared node's input is built by the operator that reads it first (op_shared.c), so that it runs
 * once.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "llm/op_llm_int.h"
#include "op_int.h"

static const op_class *const classes[] = {
#define OPERATOR(id, operator, name) [PLAN_##id] = &op_##operator,
    PLAN_KINDS(OPERATOR)
#undef OPERATOR
};

static int build_children(op *o, err *e) {
    const plan_node *node = o->node, *left = node->left;
    if (o->class == &op_rowset || o->class == &op_shared)
        return 0;
    if (o->class == &op_llm) /* it runs all nodes of its stack */
        left = llm_stack_base(node);
    int status = left ? op_build(o->ctx, left, &o->left, e) : 0;
    if (status == 0 && node->right)
        status = op_build(o->ctx, node->right, &o->right, e);
    return status;
}

int op_build(exec_ctx *ctx, const plan_node *node, op **out, err *e) {
    if (ctx->count_only && count_passes_filter(node))
        return op_build(ctx, node->left, out, e);
    op *o = ARENA_NEW(ctx->mem, op);
    rowset *ready = ctx->ready ? ctx->ready[node->number] : NULL;
    o->class = ready ? &op_rowset : llm_stack_base(node) ? &op_llm : classes[node->kind];
    o->node = node;
    o->ctx = ctx;
    o->mem = ctx->mem;
    o->pass = arena_new();
    o->state = arena_zalloc(o->mem, o->class->state_bytes);
    if (ready)
        ((rowset_state *)o->state)->rows = ready;
    int status = build_children(o, e);
    double start = ctx->actual ? clock_ms() : 0;
    if (status == 0 && o->class->open)
        status = o->class->open(o, e);
    if (ctx->actual)
        o->actual.ms += clock_ms() - start;
    *out = o;
    if (status) {
        op_close(o);
        *out = NULL;
    }
    return status;
}

/* Rows read ahead were counted when they were read. */
static void count_rows(op *o, uint64_t rows) {
    o->actual.rows += rows;
    if (o->ctx->rows_out && o->class != &op_rowset)
        o->ctx->rows_out[o->node->number] += rows;
}

int op_next(op *o, batch **out, err *e) {
    *out = NULL;
    if (check_cancel(o->ctx->cancel, e))
        return ERR_CANCELLED;
    double start = o->ctx->actual ? clock_ms() : 0;
    int status = o->class->next(o, out, e);
    o->asked = true;
    if (o->ctx->actual)
        o->actual.ms += clock_ms() - start;
    if (status == 0 && *out)
        count_rows(o, (uint64_t)(*out)->rows);
    return status;
}

int op_rows(op *o, const rowset **rows, rowset **own, err *e) {
    int status = 0;
    *own = NULL;
    if (o->class != &op_rowset && o->class != &op_shared) {
        *rows = *own = rowset_new(o->ctx, o->node->types, o->node->ncols);
        return rowset_drain(*own, o, e);
    }
    double start = o->ctx->actual ? clock_ms() : 0;
    if (o->class == &op_rowset)
        *rows = ((const rowset_state *)o->state)->rows;
    else
        status = op_shared_rows(o, rows, e);
    o->asked = true;
    if (o->ctx->actual)
        o->actual.ms += clock_ms() - start;
    if (status == 0)
        count_rows(o, (uint64_t)rowset_rows(*rows));
    return status;
}

void op_report(exec_ctx *ctx, const plan_node *node, const plan_actual *actual) {
    plan_actual *a = &ctx->actual[node->number];
    if (a->known) { /* read ahead or shared before: the rows are the same ones */
        a->ms += actual->ms;
        a->idle = a->idle && actual->idle;
        a->rows = ctx->runs_again ? a->rows + actual->rows : BASE_MAX(a->rows, actual->rows);
        return;
    }
    *a = *actual;
    a->known = true;
}

/* Time is kept per node alone: what the children took is theirs. */
static void report(const op *o) {
    plan_actual a = o->actual;
    a.idle = !o->asked;
    if (o->left)
        a.ms -= o->left->actual.ms;
    if (o->right)
        a.ms -= o->right->actual.ms;
    a.ms = BASE_MAX(a.ms, 0);
    op_report(o->ctx, o->node, &a);
}

void op_close(op *o) {
    if (!o)
        return;
    if (o->class->close)
        o->class->close(o);
    if (o->ctx->actual)
        report(o);
    op_close(o->left);
    op_close(o->right);
    o->left = o->right = NULL;
    arena_free(o->pass);
    o->pass = NULL;
}

/* ---- shared helps ---------------------------------------------------------------------------- */

void op_init_out(op *o) {
    o->out = (batch){.ncols = o->node->ncols, .mem = o->pass};
    o->out.cols = ARENA_ARRAY(o->mem, column, BASE_MAX(o->node->ncols, 1));
}

int op_open_out(op *o, err *e) {
    (void)e;
    op_init_out(o);
    return 0;
}

void op_gather(op *o, const batch *in, const int *rows, int count) {
    for (int c = 0; c < in->ncols; c++)
        column_gather(&o->out.cols[c], o->pass, &in->cols[c], rows, count);
    o->out.rows = count;
}

int op_eval(op *o, expr *const *exprs, int n, const batch *in, column *out, err *e) {
    int status = 0;
    for (int k = 0; k < n && status == 0; k++)
        status = eval_column(exprs[k], in, o->pass, &out[k], e);
    return status;
}

bool op_right_counts(const op *o) {
    const exec_ctx *ctx = o->ctx;
    bool answered = !ctx->count_only && !(ctx->stmt && ctx->stmt->kind == STMT_WARM);
    return !answered && snapshot_has_calls(o->node->left);
}

static bool row_fails(op *o, expr *const *exprs, int n, const batch *in, int row) {
    err ignored;
    batch one = {.rows = 1, .ncols = in->ncols, .mem = o->pass};
    one.cols = ARENA_ARRAY(o->pass, column, BASE_MAX(in->ncols, 1));
    for (int c = 0; c < in->ncols; c++)
        column_gather(&one.cols[c], o->pass, &in->cols[c], &row, 1);
    column out;
    for (int k = 0; k < n; k++)
        if (eval_column(exprs[k], &one, o->pass, &out, &ignored) != 0)
            return true;
    return false;
}

void op_name_row(op *o, expr *const *exprs, int n, const batch *in, int64_t before, err *e) {
    bool by_value = e->code == ERR_TYPE || e->code == ERR_ARITHMETIC;
    const sql_stmt *s = o->ctx->stmt;
    bool writes = s && (s->kind == STMT_INSERT || s->kind == STMT_UPDATE);
    if (!by_value || !writes || strncmp(e->message, "row ", 4) == 0)
        return;
    for (int row = 0; row < in->rows; row++) {
        if (!row_fails(o, exprs, n, in, row))
            continue;
        char message[sizeof e->message];
        memcpy(message, e->message, sizeof message);
        err_code code = e->code;
        int pos = e->pos, len = e->len;
        err_set_at(e, code, pos, len, "row %lld: %s", (long long)(before + row + 1), message);
        return;
    }
}
