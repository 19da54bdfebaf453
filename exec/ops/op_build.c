/*
 * op_build.c - from plan nodes to open operators.
 *
 * Invariant: whatever fails, the operators built so far are closed. The input of a shared node is
 * built by the operator that reads it first (op_shared.c), so that it runs once.
 */
#include "op_int.h"
#include "plan_calls_int.h"

/* The class that runs `node`, and the node of its left input. */
static const op_class *choose_class(const exec_ctx *ctx, const plan_node *node,
                                    const plan_node **left) {
    const plan_node *base = ctx->classes[PLAN_LLM]->base(node);
    *left = base ? base : node->left;
    return ctx->classes[base ? PLAN_LLM : node->kind];
}

static int open_op(op *o, const plan_node *left, err *e) {
    const plan_node *right = o->class->builds_inputs ? NULL : o->node->right;
    int status = left && !o->class->builds_inputs ? op_build(o->ctx, left, &o->left, e) : 0;
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
    const plan_node *left = NULL;
    o->class = ready ? &op_rowset : choose_class(ctx, node, &left);
    o->node = node;
    o->ctx = ctx;
    o->mem = ctx->mem;
    o->pass = arena_new();
    o->state = arena_zalloc(o->mem, o->class->state_bytes);
    if (ready)
        ((rowset_state *)o->state)->rows = ready;
    int status = open_op(o, left, e);
    *out = o;
    if (status) {
        op_close(o);
        *out = NULL;
    }
    return status;
}
