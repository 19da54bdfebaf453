/*
 * llm_stages.c - a pipeline's stages while they run, and their conditions over chosen rows.
 *
 * Invariant: slots are the same in all stages: the base's columns, then those of each stage's
 * answers.
 */
#include <math.h>

#include "op_llm_int.h"
#include "rows/rowset_int.h"

/* ---- opening --------------------------------------------------------------------------------- */

static void add_uses(op *o, int stage, int nsites) {
    llm_state *s = o->state;
    llm_stage *t = &s->stages[stage];
    t->first_use = s->nuses;
    for (int k = 0; k < nsites; k++)
        s->uses[s->nuses++] = (use_run){.use = &t->plan->sites[k], .stage = stage};
}

void llm_stages_open(op *o) {
    llm_state *s = o->state;
    const plan_node *n = o->node;
    int nuses = 0;
    s->nstages = n->pipeline.nstages;
    for (int i = 0; i < s->nstages; i++)
        nuses += n->pipeline.stages[i].nsites;
    s->stages = ARENA_ARRAY(o->mem, llm_stage, s->nstages);
    s->uses = ARENA_ARRAY(o->mem, use_run, nuses + 1);
    for (int i = 0; i < s->nstages; i++) {
        s->stages[i].plan = &n->pipeline.stages[i];
        s->stages[i].filter_rows = ARENA_ARRAY(o->mem, uint64_t, s->stages[i].plan->nfilters + 1);
        add_uses(o, i, s->stages[i].plan->nsites);
    }
    s->may_move = n->pipeline.may_reorder && o->ctx->settings->llm_chunk > 0;
}

/* ---- answers as columns ---------------------------------------------------------------------- */

static int answer_columns(op *o, const use_run *u, const int64_t *rows, int count, arena *mem,
                          column *out, column *prob, err *e) {
    column_init(out, mem, llm_call_type(u->use->call), count, false);
    if (prob)
        column_init(prob, mem, TYPE_REAL, count, false);
    for (int i = 0; i < count; i++) {
        uint32_t input = u->in->of_row[rows[i]];
        if (u->use->late_guard && !u->guarded[rows[i]])
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
    for (int c = 0; c < o->node->left->ncols; c++)
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
