/*
 * pipeline.c - makes, rebuilds and reads REL_PIPELINE nodes.
 */
#include "pipeline_int.h"

rel *chain_over(rule_ctx *r, rel *top, const rel *base, rel *instead) {
    return top == base ? instead : rel_over(r, top, chain_over(r, top->left, base, instead), NULL);
}

rel *pipeline_base(const rel *pipeline) {
    rel *x = pipeline->left;
    for (int left = pipeline->pipeline.details->nstages; left > 0; x = x->left)
        left -= x->kind == REL_LLM;
    return x;
}

chain_stage *pipeline_stages(arena *mem, const rel *pipeline) {
    int at = pipeline->pipeline.details->nstages;
    chain_stage *stages = ARENA_ARRAY(mem, chain_stage, at + 1);
    const rel *x = pipeline->left, *top = x;
    for (; at > 0; x = x->left) {
        if (x->kind != REL_LLM)
            continue;
        chain_stage *t = &stages[--at];
        t->llm = x;
        for (const rel *f = top; f != x; f = f->left)
            t->nfilters++;
        t->filters = ARENA_ARRAY(mem, const rel *, t->nfilters + 1);
        for (int i = t->nfilters; top != x; top = top->left)
            t->filters[--i] = top;
        top = x->left;
    }
    return stages;
}

/* ---- in EXPLAIN (RULES) ---------------------------------------------------------------------- */

static void print_exprs(const conjuncts *list, const char *before, buf *out) {
    for (int i = 0; i < list->n; i++) {
        buf_append_c(out, i ? ", " : before);
        expr_print(list->list[i], out);
    }
}

static void print(const llm_pipeline *p, buf *out) {
    const row_demand *d = &p->demand;
    for (int i = 0; i < d->semi_join.keys.n; i++) {
        buf_append_c(out, i ? " and " : " only where ");
        expr_print(d->semi_join.partner_keys.list[i], out);
        buf_append_c(out, d->semi_join.nulls_match ? " is " : " = ");
        expr_print(d->semi_join.keys.list[i], out);
    }
    if (d->limit_hint > 0)
        buf_printf(out, " in waves for %lld", (long long)d->limit_hint);
    if (d->top_n.n == 0)
        return;
    buf_printf(out, "%s%lld%s", d->limit_hint > 0 ? ", " : " in waves for ", (long long)d->top_n.n,
               d->top_n.with_ties ? " with ties" : "");
    print_exprs(&d->top_n.keys, " per ", out);
    sort_keys_print(" by ", d->top_n.order, d->top_n.norder, out);
}

/* ---- making ---------------------------------------------------------------------------------- */

rel *pipeline_new(rule_ctx *r, rel *chain, int nstages) {
    llm_pipeline *details = ARENA_NEW(r->mem, llm_pipeline);
    *details = (llm_pipeline){.nstages = nstages};
    rel *x = rel_new(r->mem, REL_PIPELINE, chain, NULL);
    x->pipeline.details = details;
    x->pipeline.print = print;
    return x;
}

rel *pipeline_with(rule_ctx *r, const rel *pipeline, const llm_pipeline *details) {
    llm_pipeline *own = ARENA_NEW(r->mem, llm_pipeline);
    *own = *details;
    rel *x = rel_copy(r, pipeline);
    x->pipeline.details = own;
    return x;
}
