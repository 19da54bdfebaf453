/*
 * op.c - pulls from operators and closes them, checks the cancel flag, counts rows and times; and
 * helper functions that operators share.
 *
 * Invariant: an operator is closed exactly once, before its inputs, even after an error.
 */
#include <string.h>

#include "op_int.h"

/* ---- pulling --------------------------------------------------------------------------------- */

static double clock_if_measured(const op *o) {
    return o->ctx->counts.actual ? clock_ms() : 0;
}

static void count_rows(op *o, uint64_t rows) {
    const run_counts *counts = &o->ctx->counts;
    o->actual.rows += rows;
    if (counts->rows_out && !o->class->counted_before)
        counts->rows_out[o->node->number] += rows;
}

int op_next(op *o, batch **out, err *e) {
    *out = NULL;
    if (check_cancel(o->ctx->cancel, e))
        return ERR_CANCELLED;
    double start = clock_if_measured(o);
    int status = o->class->next(o, out, e);
    o->asked = true;
    o->actual.ms += clock_if_measured(o) - start;
    if (status == 0 && *out)
        count_rows(o, (uint64_t)(*out)->rows);
    return status;
}

int op_drain(op *o, rowset *into, err *e) {
    batch *b;
    int status;
    while ((status = op_next(o, &b, e)) == 0 && b)
        if ((status = rowset_append(into, b, e)) != 0)
            return status;
    return status;
}

int op_rows(op *o, mem_budget *memory, const rowset **rows, rowset **own, err *e) {
    *own = NULL;
    if (!o->class->rows) {
        *rows = *own = rowset_new_in(memory, o->node->types, o->node->ncols);
        return op_drain(o, *own, e);
    }
    double start = clock_if_measured(o);
    int status = o->class->rows(o, rows, e);
    o->asked = true;
    o->actual.ms += clock_if_measured(o) - start;
    if (status == 0)
        count_rows(o, (uint64_t)rowset_rows(*rows));
    return status;
}

/* ---- closing --------------------------------------------------------------------------------- */

void op_report(exec_ctx *ctx, int number, const plan_actual *actual) {
    plan_actual *a = &ctx->counts.actual[number];
    if (a->known) {
        /* The node has run before. For the snapshot or another reader it returned the same rows,
         * which count once; in another round of a recursion it returned other rows, which are
         * added. */
        a->ms += actual->ms;
        a->idle = a->idle && actual->idle;
        a->rows =
            ctx->counts.adds_rounds ? a->rows + actual->rows : BASE_MAX(a->rows, actual->rows);
        return;
    }
    *a = *actual;
    a->known = true;
}

double op_own_ms(const op *o) {
    double ms = o->actual.ms;
    if (o->left)
        ms -= o->left->actual.ms;
    if (o->right)
        ms -= o->right->actual.ms;
    return BASE_MAX(ms, 0);
}

static void report(const op *o) {
    plan_actual a = o->actual;
    a.idle = !o->asked;
    a.ms = op_own_ms(o);
    op_report(o->ctx, o->node->number, &a);
}

void op_close(op *o) {
    if (!o)
        return;
    if (o->class->close)
        o->class->close(o);
    if (o->ctx->counts.actual && !o->class->reports)
        report(o);
    op_close(o->left);
    op_close(o->right);
    o->left = o->right = NULL;
    arena_free(o->pass);
    o->pass = NULL;
}

/* ---- for operators --------------------------------------------------------------------------- */

void op_init_out(op *o) {
    o->out = (batch){.ncols = o->node->ncols, .mem = o->pass};
    o->out.cols = ARENA_ARRAY(o->mem, column, BASE_MAX(o->node->ncols, 1));
}

int op_open_out(op *o, err *e) {
    (void)e;
    op_init_out(o);
    return 0;
}

void op_choose(op *o, batch *in, const int *rows, int count, batch **out) {
    *out = count == in->rows ? in : count ? &o->out : NULL;
    if (*out != &o->out)
        return;
    for (int c = 0; c < in->ncols; c++)
        column_gather(&o->out.cols[c], o->pass, &in->cols[c], rows, count);
    o->out.rows = count;
}

void op_next_kept(op *o, const rowset *rows, int *at, batch **out) {
    *out = NULL;
    if (*at == rowset_batches(rows))
        return;
    o->out = *rowset_batch(rows, (*at)++);
    *out = &o->out;
}

int op_eval(op *o, expr *const *exprs, int n, const batch *in, column *out, err *e) {
    int status = 0;
    for (int k = 0; k < n && status == 0; k++)
        status = eval_column(exprs[k], in, o->pass, &out[k], e);
    return status;
}

int op_eval_keys(op *o, const sort_key *keys, int n, const batch *in, column *out, err *e) {
    int status = 0;
    for (int k = 0; k < n && status == 0; k++)
        status = eval_column(keys[k].value, in, o->pass, &out[k], e);
    return status;
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

void err_add_row(op *o, expr *const *exprs, int n, const batch *in, int64_t before, err *e) {
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

bool calls_are_answered(const exec_ctx *ctx) {
    return !ctx->count_only && !(ctx->stmt && ctx->stmt->kind == STMT_WARM);
}

bool right_side_must_drain(const exec_ctx *ctx, const plan_node *join) {
    return !calls_are_answered(ctx) && plan_has_llm(join->left);
}
