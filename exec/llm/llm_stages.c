/*
 * llm_stages.c - a stack of LLM nodes as stages, and their conditions over chosen rows.
 *
 * Invariant: slots are the same up a stack: the base's columns, then those of each node's answers.
 * A stage runs after those whose answers its guards and conditions read; volatile expressions keep
 * the place they were planned at.
 */
#include <math.h>

#include "op_llm_int.h"
#include "rows/rowset_int.h"

static bool in_stack(const plan_node *n) {
    return n->kind == PLAN_FILTER || n->kind == PLAN_LLM;
}

const plan_node *llm_stack_base(const plan_node *top) {
    const plan_node *base = NULL;
    for (const plan_node *n = top; in_stack(n); n = n->left) {
        if (n->kind != PLAN_LLM)
            continue;
        base = n->left;
        if (!n->llm.joins_below)
            break;
    }
    return base;
}

/* ---- dependencies ---------------------------------------------------------------------------- */

static int stage_of_slot(const llm_state *s, int slot) {
    for (int i = s->nstages; i-- > 0;)
        if (slot >= s->stages[i].node->left->ncols && slot < s->stages[i].node->ncols)
            return i;
    return -1;
}

static uint32_t stages_read(const llm_state *s, const expr *x) {
    uint32_t read = 0;
    int stage;
    if (x->kind == EXPR_COLUMN && (stage = stage_of_slot(s, x->column.slot)) >= 0)
        read |= 1u << stage;
    for (int i = 0; i < x->nargs; i++)
        read |= stages_read(s, x->args[i]);
    return read;
}

static bool stage_is_volatile(const llm_stage *t) {
    for (int i = 0; i < t->nfilters; i++)
        if (expr_is_volatile(t->filters[i]->filter.predicate))
            return true;
    for (int i = 0; i < t->nuses; i++) {
        const plan_llm_use *u = &t->node->llm.uses[i];
        if (u->guard && expr_is_volatile(u->guard))
            return true;
        for (int f = 0; f < u->call->nfields; f++)
            if (expr_is_volatile(u->args[f]))
                return true;
    }
    return false;
}

static void find_order(llm_state *s) {
    uint32_t pinned = 0; /* volatile stages below */
    for (int i = 0; i < s->nstages; i++) {
        llm_stage *t = &s->stages[i];
        for (int k = 0; k < t->nfilters; k++)
            t->after |= stages_read(s, t->filters[k]->filter.predicate);
        for (int k = 0; k < t->nuses; k++)
            if (t->node->llm.uses[k].guard)
                t->after |= stages_read(s, t->node->llm.uses[k].guard);
        if (stage_is_volatile(t)) {
            t->after = (1u << i) - 1;
            pinned |= 1u << i;
        }
        t->after = (t->after | (pinned & ((1u << i) - 1))) & ~(1u << i);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static void add_stage(op *o, const plan_node *node, const plan_node *const *filters, int nfilters) {
    llm_state *s = o->state;
    llm_stage *t = &s->stages[s->nstages++];
    *t = (llm_stage){.node = node, .nfilters = nfilters, .nuses = node->llm.nuses};
    t->filters = ARENA_ARRAY(o->mem, const plan_node *, nfilters + 1);
    t->filter_rows = ARENA_ARRAY(o->mem, uint64_t, nfilters + 1);
    for (int i = 0; i < nfilters; i++) /* met from above */
        t->filters[i] = filters[nfilters - 1 - i];
    s->nuses += t->nuses;
}

static void add_uses(op *o) {
    llm_state *s = o->state;
    int at = 0;
    s->uses = ARENA_ARRAY(o->mem, use_run, s->nuses + 1);
    for (int i = 0; i < s->nstages; i++) {
        s->stages[i].first_use = at;
        for (int k = 0; k < s->stages[i].nuses; k++, at++) {
            use_run *u = &s->uses[at];
            u->use = &s->stages[i].node->llm.uses[k];
            u->stage = i;
            u->late_guard = u->use->guard && stages_read(s, u->use->guard) != 0;
        }
    }
}

void llm_stages_open(op *o) {
    llm_state *s = o->state;
    int nnodes = 0, nfilters = 0;
    s->base = llm_stack_base(o->node);
    for (const plan_node *n = o->node; n != s->base; n = n->left)
        nnodes++;
    s->stages = ARENA_ARRAY(o->mem, llm_stage, nnodes);
    const plan_node **filters = ARENA_ARRAY(o->mem, const plan_node *, nnodes);
    for (const plan_node *n = o->node; n != s->base; n = n->left) {
        if (n->kind == PLAN_FILTER) {
            filters[nfilters++] = n;
            continue;
        }
        add_stage(o, n, filters, nfilters);
        nfilters = 0;
    }
    for (int i = 0, k = s->nstages - 1; i < k; i++, k--) {
        llm_stage swapped = s->stages[i];
        s->stages[i] = s->stages[k];
        s->stages[k] = swapped;
    }
    s->may_move = o->ctx->settings->llm_chunk > 0;
    for (int i = 0; i < s->nstages; i++)
        s->may_move = s->may_move && s->stages[i].node->llm.may_reorder;
    add_uses(o);
    find_order(s);
}

/* ---- answers as columns ---------------------------------------------------------------------- */

static int answer_columns(op *o, const use_run *u, const int64_t *rows, int count, arena *mem,
                          column *out, column *prob, err *e) {
    column_init(out, mem, llm_call_type(u->use->call), count, false);
    if (prob)
        column_init(prob, mem, TYPE_REAL, count, false);
    for (int i = 0; i < count; i++) {
        uint32_t input = u->in->of_row[rows[i]];
        if (u->late_guard && !u->guarded[rows[i]])
            input = NO_INPUT;
        const llm_answer *a = input == NO_INPUT ? NULL : u->answers[input];
        a = a && a->waits ? NULL : a;
        value v = value_null();
        int status = a ? answer_value(u->use->call, a, &v, e) : 0;
        if (input != NO_INPUT && !a && llm_answers_wanted(o->ctx))
            status =
                err_set(e, ERR_INTERNAL, "LLM#%d: an input was not answered", u->use->call->number);
        if (status)
            return status;
        column_set(out, mem, count, i, v);
        bool has_prob = a && !a->failed && !isnan(a->prob);
        if (prob)
            column_set(prob, mem, count, i, has_prob ? value_real(a->prob) : value_null());
    }
    return 0;
}

/* ---- conditions over chosen rows ------------------------------------------------------------- */

static void mark_slots(const expr *x, bool *read) {
    if (x->kind == EXPR_COLUMN)
        read[x->column.slot] = true;
    for (int i = 0; i < x->nargs; i++)
        mark_slots(x->args[i], read);
}

int llm_rows_columns(op *o, const bool *read, const int64_t *rows, int count, batch *out, err *e) {
    llm_state *s = o->state;
    int status = 0;
    for (int c = 0; c < s->base->ncols; c++)
        if (!read || read[c])
            rowset_gather(s->rows, c, out->mem, rows, count, &out->cols[c]);
    for (int i = 0; i < s->nuses && status == 0; i++) {
        const use_run *u = &s->uses[i];
        int prob = u->use->prob_slot;
        if (!read || read[u->use->out_slot] || (prob >= 0 && read[prob]))
            status = answer_columns(o, u, rows, count, out->mem, &out->cols[u->use->out_slot],
                                    prob >= 0 ? &out->cols[prob] : NULL, e);
    }
    return status;
}

int llm_rows_where(op *o, const expr *x, const int64_t *rows, int64_t count, int64_t *out,
                   int64_t *kept, err *e) {
    llm_state *s = o->state;
    int status = 0, picked, pick[BATCH_ROWS];
    int64_t n = 0;
    for (int64_t from = 0; from < count && status == 0; from += BATCH_ROWS) {
        int some = (int)BASE_MIN(count - from, BATCH_ROWS);
        arena_reset(s->scratch);
        bool *read = ARENA_ARRAY(s->scratch, bool, o->node->ncols + 1);
        batch view = {.rows = some, .ncols = o->node->ncols, .mem = s->scratch};
        view.cols = ARENA_ARRAY(s->scratch, column, o->node->ncols + 1);
        mark_slots(x, read);
        status = llm_rows_columns(o, read, rows + from, some, &view, e);
        if (status == 0)
            status = eval_filter(x, &view, s->scratch, pick, &picked, e);
        for (int i = 0; i < picked && status == 0; i++)
            out[n++] = rows[from + pick[i]];
    }
    *kept = n;
    return status;
}
