/*
 * op_build.c - makes and opens the operators of a plan.
 *
 * Invariant: on failure the operators built so far are closed. The input of a shared node is built
 * by its first reader (op_shared.c), so that it runs once.
 */
#include "op_int.h"

static int open_op(op *o, err *e) {
    const plan_node *left = o->class->builds_inputs ? NULL : o->node->left;
    const plan_node *right = o->class->builds_inputs ? NULL : o->node->right;
    int status = left ? op_build(o->ctx, left, &o->left, e) : 0;
    if (status == 0 && right)
        status = op_build(o->ctx, right, &o->right, e);
    double start = o->ctx->counts.actual ? clock_ms() : 0;
    if (status == 0 && o->class->open)
        status = o->class->open(o, e);
    if (o->ctx->counts.actual)
        o->actual.ms += clock_ms() - start;
    return status;
}

int op_build(exec_ctx *ctx, const plan_node *node, op **out, err *e) {
    if (ctx->count_only && plan_filters_answers(node))
        return op_build(ctx, node->left, out, e);
    op *o = ARENA_NEW(ctx->mem, op);
    rowset *ready = ctx->kept.ready ? ctx->kept.ready[node->number] : NULL;
    o->class = ready ? &op_rowset : ctx->classes[node->kind];
    o->node = node;
    o->ctx = ctx;
    o->memory.space = ctx->space;
    o->memory.cancel = ctx->cancel;
    o->memory.limit_bytes = (size_t)BASE_MAX(ctx->settings->work_memory, 1);
    o->mem = ctx->mem;
    o->pass = arena_new();
    o->state = arena_zalloc(o->mem, o->class->state_bytes);
    if (ready)
        ((rowset_state *)o->state)->rows = ready;
    int status = open_op(o, e);
    *out = o;
    if (status) {
        op_close(o);
        *out = NULL;
    }
    return status;
}
