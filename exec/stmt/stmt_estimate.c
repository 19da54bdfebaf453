/*
 * stmt_estimate.c - estimates a statement before it runs: the plan's estimates and, on request, the
 * tokens that each strategy would compute.
 *
 * Invariant: estimating changes no data and leaves no transaction open. The bound statement is
 * kept, so that running it need not bind it again (stmt_prepare).
 */
#include <stdio.h>
#include <string.h>

#include "stmt_int.h"

static void add_strategy(exec_estimate *x, const plan_tokens *t) {
    int k = 0;
    while (k < x->nstrategies && strcmp(x->strategies[k].name, t->strategy) != 0)
        k++;
    if (k == EXEC_BASELINES)
        return;
    exec_baseline *one = &x->strategies[k];
    if (k == x->nstrategies) {
        x->nstrategies++;
        *one = (exec_baseline){.computed_tokens = 0};
        snprintf(one->name, sizeof one->name, "%s", t->strategy);
    }
    one->prompt_tokens += t->llm.prompt_tokens;
    one->computed_tokens += t->llm.computed_tokens;
}

/* Runs the operators below the LLM calls and counts prompt tokens, as EXPLAIN (TOKENS) does. */
static int count_tokens(stmt *s, err *e) {
    int nnodes = s->ctx.plan->nnodes;
    plan_actual *actual = ARENA_ARRAY(s->mem, plan_actual, BASE_MAX(nnodes, 1));
    s->drops_rows = s->ctx.count_only = true;
    s->ctx.counts.actual = actual;
    int status = stmt_run_plan(s, NULL, e);
    actual = s->ctx.counts.actual; /* asking about a sample may have replaced the plan */
    nnodes = s->ctx.plan->nnodes;
    s->estimate.nstrategies = 0;
    for (int k = 0; k < nnodes && status == 0; k++)
        for (int i = 0; i < actual[k].ntokens; i++)
            add_strategy(&s->estimate, &actual[k].tokens[i]);
    return status;
}

static int estimate(stmt *s, bool count, err *e) {
    int status = stmt_parse(s, e);
    if (status == 0)
        status = stmt_prepare(s, false, e);
    if (status)
        return status;
    const sql_stmt *x = s->bound;
    s->kind = x->kind;
    if (x->ncalls == 0 || !x->query || x->kind == STMT_WARM)
        return 0;
    status = stmt_plan(s, x, e);
    if (status)
        return status;
    const plan_estimate *total = &s->ctx.plan->total;
    s->estimate.cost_ms = total->cost_ms;
    s->estimate.distinct_inputs = total->distinct_inputs;
    s->estimate.computed_tokens = total->computed_tokens;
    s->estimate.money = total->money;
    if (s->ctx.plan->currency)
        utf8_copy(s->estimate.currency, sizeof s->estimate.currency,
                  str_from(s->ctx.plan->currency));
    return count ? count_tokens(s, e) : 0;
}

static void estimate_job(stmt *s, bool count) {
    err e, ignored;
    err_clear(&e);
    stmt_open_ctx(s);
    int status = estimate(s, count, &e);
    stmt_release_ctx(s);
    stmt_end_txn(s, false, &ignored);
    stmt_finish(s, status, &e);
}

static void job_estimate(void *s) {
    estimate_job(s, false);
}

static void job_count(void *s) {
    estimate_job(s, true);
}

void stmt_estimate(stmt *s, bool count) {
    stmt_start(s, count ? job_count : job_estimate);
}

const exec_estimate *stmt_estimated(const stmt *s) {
    return &s->estimate;
}
