/*
 * llm_rank.c - chooses the next stage of a pipeline: as planned, until the answers contradict the
 * plan's estimates.
 *
 * Of two stages, the one that saves more of the other stage's cost comes first. Where no two rows
 * share an input, this is the order by cost per row ÷ share of rows removed (Hellerstein and
 * Stonebraker, "Predicate Migration", 1993). Where many rows share an input, removing rows saves
 * little.
 *
 * The cost of an input and the share of rows kept begin as the plan's estimates and are replaced by
 * observations (Babu et al., "Adaptive Ordering of Pipelined Stream Filters", 2004). Inputs without
 * an answer are counted over the current rows: a few texts that occur in many rows are all asked
 * about early, and cost nothing later. Stored answers cost nothing.
 *
 * Invariant: tokens and rows decide, never a clock. So the same statement over the same data and
 * cache asks the same prompts.
 */
#include <inttypes.h>
#include <math.h>

#include "op_llm_int.h"

/* The weight of the plan's estimates, in observed rows or inputs. */
static const double PRIOR_ROWS = 8;
/* A stage comes before a stage that was planned before it only if the planned order of the two
 * saves less than this fraction of the tokens that the reverse order saves. */
static const double CLEARLY_LOWER = 0.8;

static double estimated_keep(const llm_stage *t) {
    double in = t->plan->estimate.rows;
    if (t->plan->nfilters == 0)
        return 1;
    return in > 0 ? BASE_MIN(1, t->plan->filter_estimates[t->plan->nfilters - 1].rows / in) : 0.5;
}

static double expected_keep(const llm_stage *t) {
    return (PRIOR_ROWS * estimated_keep(t) + (double)t->rows_kept) /
           (PRIOR_ROWS + (double)t->rows_in);
}

/* Estimates the number of tokens that the inputs without an answer will cost. */
static double expected_tokens(const llm_stage *t) {
    const plan_estimate *e = &t->plan->estimate;
    double planned = (e->computed_tokens + e->choice_tokens + OUTPUT_WEIGHT * e->output_tokens) /
                     BASE_MAX(e->distinct_inputs, 1);
    double an_input = (PRIOR_ROWS * planned * (1 - t->cached) + (double)t->tokens) /
                      (PRIOR_ROWS + (double)t->inputs_asked);
    return an_input * (double)t->new_inputs;
}

/* Estimates how many tokens less stage t costs after `first` has removed rows. */
static double spared_by(const llm_state *s, const llm_stage *t, const llm_stage *first) {
    double inputs = (double)t->new_inputs / t->plan->nsites;
    if (inputs <= 0)
        return 0;
    double left = plan_distinct_left(inputs, (double)s->ranked_rows, expected_keep(first));
    return expected_tokens(t) * (1 - left / inputs);
}

static bool goes_first(const llm_state *s, const llm_stage *t, const llm_stage *planned) {
    return spared_by(s, t, planned) < CLEARLY_LOWER * spared_by(s, planned, t);
}

/* Returns the bit set of the stages that remove rows, and of the stages that these depend on. */
static uint32_t deciding_stages(const llm_state *s) {
    uint32_t deciding = 0;
    for (int i = s->nstages; i-- > 0;)
        if (s->stages[i].plan->nfilters || (deciding >> i & 1))
            deciding |= 1u << i | s->stages[i].plan->after;
    return deciding;
}

/* Whether anything has been observed. */
static bool has_observed(const llm_state *s) {
    for (int i = 0; i < s->nstages; i++)
        if (s->stages[i].rows_in > 0 || s->stages[i].cached > 0)
            return true;
    return false;
}

int llm_rank_next(const llm_state *s, uint32_t done, bool deciding) {
    uint32_t wanted = deciding_stages(s);
    bool as_planned = !s->may_move || !has_observed(s);
    int best = -1, first = -1;
    for (int i = 0; i < s->nstages; i++) {
        const llm_stage *t = &s->stages[i];
        if ((done >> i & 1) || (t->plan->after & ~done))
            continue;
        if (!(wanted >> i & 1)) {
            /* the stage only adds columns: it comes after all stages that remove rows */
            first = first < 0 ? i : first;
            continue;
        }
        if (best < 0 || (!as_planned && goes_first(s, t, &s->stages[best])))
            best = i;
    }
    return best >= 0 || deciding ? best : first;
}

bool llm_order_is_flexible(const llm_state *s) {
    if (!s->may_move)
        return false;
    for (int i = 0; i < s->nstages; i++)
        for (int k = 0; k < i; k++)
            if (s->stages[i].plan->nfilters && s->stages[k].plan->nfilters &&
                !(s->stages[i].plan->after >> k & 1))
                return true;
    return false;
}

/* Counts the inputs of a call that these rows need and that have no answer. */
static uint32_t new_inputs(const llm_inputs *in, uint8_t *marks, const int64_t *rows,
                           int64_t count) {
    uint32_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t input = in->of_row[rows[i]];
        if (input == NO_INPUT || (marks[input] & (INPUT_SENT | INPUT_SEEN)))
            continue;
        marks[input] |= INPUT_SEEN;
        n++;
    }
    for (int64_t i = 0; i < count; i++)
        if (in->of_row[rows[i]] != NO_INPUT)
            marks[in->of_row[rows[i]]] &= (uint8_t)~INPUT_SEEN;
    return n;
}

void llm_rank_count_inputs(llm_state *s, uint32_t done, const int64_t *rows, int64_t count) {
    if (!llm_order_is_flexible(s) || !has_observed(s))
        return;
    for (int i = 0; i < s->nstages; i++) {
        llm_stage *t = &s->stages[i];
        uint64_t n = 0;
        for (int k = 0; k < t->plan->nsites && !(done >> i & 1); k++)
            n += new_inputs(s->sites[t->first_site + k].in, s->sender.marks[t->first_site + k],
                            rows, count);
        t->new_inputs = n;
    }
    s->ranked_rows = count;
}

void llm_rank_explain_swap(op *o, uint32_t done, int stage, int64_t after_rows) {
    llm_state *s = o->state;
    llm_stage *t = &s->stages[stage];
    uint32_t deciding = deciding_stages(s);
    int planned = 0;
    while (planned < stage && ((done >> planned & 1) || !(deciding >> planned & 1)))
        planned++;
    if (planned == stage || t->actual.reordered.n || !(deciding >> stage & 1))
        return;
    const llm_stage *before = &s->stages[planned];
    int number = before->plan->sites[0].call->number;
    t->actual.reordered = str_from(
        after_rows == 0
            ? arena_printf(o->ctx->mem,
                           "before #%d: %.0f %% of its answers are stored (#%d: %.0f %%)", number,
                           100 * t->cached, number, 100 * before->cached)
            : arena_printf(o->ctx->mem,
                           "before #%d after %" PRId64 " rows: keeps %.2g %% (planned with %.2g "
                           "%%), #%d keeps %.2g %% (%.2g %%)",
                           number, after_rows, 100 * expected_keep(t), 100 * estimated_keep(t),
                           number, 100 * expected_keep(before), 100 * estimated_keep(before)));
}

double llm_rank_reaching(const llm_state *s, int stage) {
    double share = 1;
    uint32_t done = 0;
    for (int next = llm_rank_next(s, done, false); next >= 0 && next != stage;
         next = llm_rank_next(s, done, false)) {
        share *= expected_keep(&s->stages[next]);
        done |= 1u << next;
    }
    return share;
}
