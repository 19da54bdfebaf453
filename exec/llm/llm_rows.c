/*
 * llm_rows.c - subsets of the rows of a pipeline's base: their order, their columns, conditions
 * over them.
 *
 * Invariant: slots are the same in all stages: the base's columns, then the columns of each stage's
 * answers.
 */
#include <math.h>
#include <stdlib.h>

#include "op_llm_int.h"
#include "rows/rowset_int.h"

/* The KV of the data of a chunk's rows takes at most the KV memory divided by this number. */
enum { KEPT_PART = 2 };

/* ---- which rows ------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t llm_drop_filtered_rows(const llm_state *s, int64_t *rows, int64_t count) {
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++)
        if (!s->dropped[rows[i]])
            rows[n++] = rows[i];
    return n;
}

void llm_sort_rows(int64_t *rows, int64_t count) {
    qsort(rows, (size_t)count, sizeof *rows, ascending);
}

int64_t *llm_rows_left(const llm_state *s, int64_t step, arena *mem, int64_t *count) {
    int64_t n = rowset_rows(s->rows),
            *rows = arena_alloc(mem, sizeof *rows * (size_t)BASE_MAX(n, 1));
    *count = 0;
    for (int64_t r = 0; r < n; r += step)
        if (!s->dropped[r])
            rows[(*count)++] = r;
    return rows;
}

int64_t *llm_rows_in_order(const llm_state *s, int at, const input_order *order, arena *mem) {
    int64_t n = rowset_rows(s->rows),
            *rows = arena_alloc(mem, sizeof *rows * (size_t)BASE_MAX(n, 1));
    for (int64_t r = 0; r < n && !order; r++)
        rows[r] = r;
    if (!order)
        return rows;
    const llm_inputs *in = s->sites[at].in;
    /* start[0]: where the next row without an input goes; start[k + 1]: where the next row goes
     * whose input has rank k */
    int64_t *start = ARENA_ARRAY(mem, int64_t, (size_t)in->count + 2);
    for (int64_t r = 0; r < n; r++)
        start[in->of_row[r] == NO_INPUT ? 1 : order->rank[in->of_row[r]] + 2]++;
    for (uint32_t k = 1; k < in->count + 2; k++)
        start[k] += start[k - 1];
    for (int64_t r = 0; r < n; r++)
        rows[start[in->of_row[r] == NO_INPUT ? 0 : order->rank[in->of_row[r]] + 1]++] = r;
    return rows;
}

bool llm_may_chunk(const op *o) {
    const llm_state *s = o->state;
    for (int i = 1; i < s->nsites && !sessions_are_kept(o->ctx->llm); i++)
        if (s->sites[i].engine != s->sites[0].engine)
            return false;
    return true;
}

int llm_shared_prefix_site(const llm_state *s) {
    for (int i = 0; i < s->nsites; i++) {
        if (s->sites[i].after)
            return (int)(s->sites[i].after->leader - s->sites);
        for (int k = 0; k < i && s->sites[i].prompt->shares_row; k++)
            if (s->sites[k].leader == s->sites[i].leader && s->sites[k].stage != s->sites[i].stage)
                return (int)(s->sites[i].leader - s->sites);
    }
    return -1;
}

int llm_rows_kept_at_once(op *o, int at, const input_order *order, int64_t *rows, err *e) {
    const site_run *site = &((llm_state *)o->state)->sites[at];
    const psm_result *psm = &order->psm;
    size_t token_bytes = BASE_MAX(llm_engine_info(site->engine)->kv_bytes_per_token, (size_t)1);
    llm_session *session;
    llm_memory memory;
    int status = runtime_session(o->ctx->llm, site->engine, &session, e);
    if (status)
        return status;
    llm_session_memory(session, &memory);
    double tokens = (double)memory.kv_budget_bytes / (double)token_bytes / KEPT_PART;
    double per_input =
        (double)(psm->total_units - psm->shared_units) / BASE_MAX(site->in->count, 1u) +
        site->answer_field_tokens + (double)site->prompt->head_tokens;
    double per_row = per_input * site->in->count / (double)BASE_MAX(site->in->needed_rows, 1);
    *rows = (int64_t)BASE_MIN(BASE_MAX(tokens / BASE_MAX(per_row, 1e-6), 1), 1e15);
    return 0;
}

/* ---- answers as columns ---------------------------------------------------------------------- */

static const llm_answer *answer_of_row(const site_run *site, int64_t row, bool *asked) {
    uint32_t input = site->in->of_row[row];
    if (site->plan->late_guard && !site->asked[row])
        input = NO_INPUT;
    *asked = input != NO_INPUT;
    const llm_answer *a = *asked ? site->answers[input] : NULL;
    return a && a->pending ? NULL : a;
}

static void prob_column(const op *o, const site_run *site, const plan_prob *p, const int64_t *rows,
                        int count, arena *mem, column *out) {
    double *probs = ARENA_ARRAY(mem, double, site->plan->call->nliterals + 1), r = NAN;
    column_init(out, mem, TYPE_REAL, count, false);
    for (int i = 0; i < count; i++, r = NAN) {
        bool asked;
        const llm_answer *a = answer_of_row(site, rows[i], &asked);
        if (a) {
            llm_answer decided = llm_decided(o, site, a, probs);
            r = answer_prob(site->plan->call, &decided, p->literal);
        }
        column_set(out, mem, count, i, isnan(r) ? value_null() : value_real(r));
    }
}

static int answer_column(op *o, const site_run *site, const int64_t *rows, int count, arena *mem,
                         column *out, err *e) {
    const llm_call *call = site->plan->call;
    double *probs = ARENA_ARRAY(mem, double, call->nliterals + 1);
    column_init(out, mem, llm_call_type(call), count, false);
    for (int i = 0; i < count; i++) {
        bool asked;
        const llm_answer *a = answer_of_row(site, rows[i], &asked);
        value v = value_null();
        int status = 0;
        if (a) {
            llm_answer decided = llm_decided(o, site, a, probs);
            if (decided.failed && ((llm_state *)o->state)->mode->answers)
                v = call->otherwise;
            else
                status = answer_value(call, &decided, &v, e);
        }
        if (asked && !a && ((llm_state *)o->state)->mode->answers)
            status = err_set(e, ERR_INTERNAL, "LLM#%d: an input was not answered", call->number);
        if (status)
            return status;
        column_set(out, mem, count, i, v);
    }
    return 0;
}

/* ---- conditions over chosen rows ------------------------------------------------------------- */

void llm_mark_slots(const expr *x, bool *read) {
    if (x->kind == EXPR_COLUMN)
        read[x->column.slot] = true;
    for (int i = 0; i < x->nargs; i++)
        llm_mark_slots(x->args[i], read);
}

int llm_rows_columns(op *o, const bool *read, const int64_t *rows, int count, batch *out, err *e) {
    llm_state *s = o->state;
    int status = 0;
    for (int c = 0; c < o->node->left->ncols; c++)
        if (!read || read[c])
            rowset_gather(s->rows, c, out->mem, rows, count, &out->cols[c]);
    for (int i = 0; i < s->nsites && status == 0; i++) {
        const site_run *site = &s->sites[i];
        int slot = site->plan->out_slot;
        if (!read || read[slot])
            status = answer_column(o, site, rows, count, out->mem, &out->cols[slot], e);
        for (int k = 0; k < site->plan->nprobs && status == 0; k++) {
            const plan_prob *p = &site->plan->probs[k];
            if (!read || read[p->slot])
                prob_column(o, site, p, rows, count, out->mem, &out->cols[p->slot]);
        }
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
        llm_mark_slots(x, read);
        status = llm_rows_columns(o, read, rows + from, some, &view, e);
        if (status == 0)
            status = eval_filter(x, &view, s->scratch, pick, &picked, e);
        for (int i = 0; i < picked && status == 0; i++)
            out[n++] = rows[from + pick[i]];
    }
    *kept = n;
    return status;
}
