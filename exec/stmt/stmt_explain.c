/*
 * stmt_explain.c - EXPLAIN: the plan as text, with estimates, token counts (TOKENS) or measurements
 * (ANALYZE).
 *
 * Invariant: plain EXPLAIN reads no table and calls no model. EXPLAIN ANALYZE runs the statement
 * with all its effects and drops its rows. EXPLAIN (TOKENS) runs the operators below the LLM calls,
 * counts the prompts, and changes nothing.
 */
#include "stmt_int.h"

static int print_plan(stmt *s, const sql_stmt *x, bool times, err *e) {
    buf out = {0};
    const exec_ctx *c = &s->ctx;
    if (x->explain.rules)
        plan_print_rules(c->plan, &out);
    else if (x->explain.json)
        plan_print_json(c->plan, c->counts.actual, &out);
    else
        plan_print(c->plan, c->counts.actual, times, &out);
    s->drops_rows = false;
    int status = stmt_push_text(s, STR("plan"), buf_str(&out), true, e);
    buf_free(&out);
    return status;
}

/* Runs x and measures its nodes. For a node that runs twice (snapshot, retries), op_close adds the
 * times of both runs. */
static int measure(stmt *s, sql_stmt *x, err *e) {
    switch (x->kind) {
    case STMT_INSERT:
    case STMT_UPDATE:
    case STMT_DELETE:
        return stmt_dml(s, x, e);
    case STMT_CREATE_TABLE_AS:
        return stmt_create_table_as(s, x, e);
    case STMT_COPY_TO:
        return stmt_copy_to(s, x, e);
    default:
        return stmt_select(s, x, e);
    }
}

int stmt_explain(stmt *s, sql_stmt *x, err *e) {
    sql_stmt *inner = x->explain.stmt;
    if (!inner->query)
        return err_set(e, ERR_UNSUPPORTED, "EXPLAIN needs a statement with a query");
    /* ask the planner to record its rules and savings */
    inner->explain.rules = x->explain.rules;
    inner->explain.savings = true;
    int status = stmt_plan(s, inner, e);
    if (status || (!x->explain.analyze && !x->explain.tokens))
        return status ? status : print_plan(s, x, false, e);
    s->drops_rows = true;
    s->ctx.count_only = x->explain.tokens;
    s->ctx.counts.actual = ARENA_ARRAY(s->mem, plan_actual, BASE_MAX(s->ctx.plan->nnodes, 1));
    if (x->explain.tokens)
        status = stmt_run_plan(s, NULL, e);
    else
        status = measure(s, inner, e);
    x = s->bound; /* a retry after a conflict binds the statement again */
    return status ? status : print_plan(s, x, x->explain.analyze, e);
}
