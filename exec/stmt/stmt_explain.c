/*
 * stmt_explain.c - EXPLAIN: the plan as text, with estimates, token counts (TOKENS) or measurements
 * (ANALYZE); or the prompts (PROMPT, TREE).
 *
 * Invariant: plain EXPLAIN reads no table and calls no model. EXPLAIN ANALYZE runs the statement
 * with all its effects and drops its rows. TOKENS, PROMPT and TREE run the operators below the LLM
 * calls, count or show the prompts, and change nothing.
 */
#include "llm/llm_runtime_int.h"
#include "stmt_int.h"

static int print_plan(stmt *s, const sql_stmt *x, bool times, err *e) {
    buf out = {0};
    const exec_ctx *c = &s->ctx;
    text_form form = TEXT_PLAN;
    if (c->show != SHOW_NOTHING) {
        llm_show_print(c, &out);
        form = c->show == SHOW_TREE ? TEXT_TREE : TEXT_PROMPTS;
    } else if (x->explain.rules)
        plan_print_rules(c->plan, &out);
    else if (x->explain.json)
        plan_print_json(c->plan, c->counts.actual, &out);
    else
        plan_print(c->plan, c->counts.actual, times, &out);
    s->drops_rows = false;
    int status = stmt_push_text(s, STR("plan"), buf_str(&out), form, e);
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
    bool shows = x->explain.prompt || x->explain.tree;
    if (shows && inner->ncalls == 0) {
        err_set(e, ERR_BIND, "the statement has no LLM call, so there are no prompts to show");
        err_hint(e, "EXPLAIN without %s shows the plan", x->explain.tree ? "(TREE)" : "(PROMPT)");
        return ERR_BIND;
    }
    /* ask the planner to record its rules and savings */
    inner->explain.rules = x->explain.rules;
    inner->explain.savings = true;
    int status = stmt_plan(s, inner, e);
    if (status || (!x->explain.analyze && !x->explain.tokens && !shows))
        return status ? status : print_plan(s, x, false, e);
    s->drops_rows = true;
    s->ctx.count_only = x->explain.tokens || shows;
    s->ctx.show = x->explain.tree ? SHOW_TREE : shows ? SHOW_PROMPTS : SHOW_NOTHING;
    s->ctx.counts.actual = ARENA_ARRAY(s->mem, plan_actual, BASE_MAX(s->ctx.plan->nnodes, 1));
    if (s->ctx.count_only)
        status = stmt_run_plan(s, NULL, e);
    else
        status = measure(s, inner, e);
    x = s->bound; /* a retry after a conflict binds the statement again */
    return status ? status : print_plan(s, x, x->explain.analyze, e);
}
