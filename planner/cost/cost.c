/*
 * cost.c - the cost model, in milliseconds. An LLM node costs tokens / rate, any other node rows *
 * a constant.
 *
 * Invariant: a cost depends only on the estimates, and on the settings and rates of plan_env. With
 * nominal rates it is the same on every machine. The hit rate is that of a sorted prefix tree with
 * one field order: a prefix of k fields is computed once per distinct combination of their values.
 */
#include <math.h>
#include <string.h>

#include "core/pipeline_int.h"
#include "estimate_int.h"

static const double BYTES_PER_TOKEN = 4.2;
static const double NOMINAL_PREFILL = 2000, NOMINAL_DECODE = 500; /* tokens per second */
static const double FIRST_BATCH = 16; /* minimum rows that filters are given under a LIMIT */

/* ---- LLM nodes ------------------------------------------------------------------------------- */

static double text_tokens(const estimator *s, str text) {
    return s->env->count_tokens ? s->env->count_tokens(s->env->ctx, text)
                                : (double)text.n / BYTES_PER_TOKEN;
}

static void order_as_written(const llm_call *call, uint8_t *order) {
    for (int i = 0; i < call->nfields; i++)
        order[i] = (uint8_t)i;
}

/* Moves the fields that are computed from answers without a list of allowed ones to the end. */
static void texts_last(const llm_call *call, uint8_t *order) {
    uint8_t last[PSM_MAX_FIELDS];
    int n = 0, kept = 0;
    for (int i = 0; i < call->nfields && call->nfields <= PSM_MAX_FIELDS; i++)
        if (call->answer_texts[order[i]] == UINT32_MAX)
            last[n++] = order[i];
        else
            order[kept++] = order[i];
    for (int i = 0; i < n; i++)
        order[kept + i] = last[i];
}

/* Chooses a call's field order, by the first of these that applies:
 * 1. the setting field_order lists it;
 * 2. psm = 'off': as written;
 * 3. field_order = 'keep', and an earlier run recorded an order;
 * 4. there is a joint sample (`joint`, from joint_distinct): the order with the fewest tokens;
 * 5. otherwise by descending field_estimate.score.
 * In 3 to 5, fields that are computed from TEXT answers come last. */
static order_origin choose_order(estimator *s, const llm_call *call, const field_estimate *f,
                                 const double *joint, uint8_t *order) {
    const settings *set = s->env->settings;
    str wanted = str_from(set->field_order);
    bool keep = str_equal_nocase(wanted, STR("keep"));
    if (!keep && !str_equal_nocase(wanted, STR("fresh"))) {
        str unknown; /* the name of an unknown field is reported by exec */
        (void)llm_call_listed_order(call, wanted, order, &unknown);
        return ORDER_LISTED;
    }
    if (set->psm == PSM_SETTING_OFF) {
        order_as_written(call, order);
        return ORDER_WRITTEN;
    }
    if (keep && s->env->field_order && s->env->field_order(s->env->ctx, call, order)) {
        texts_last(call, order);
        return ORDER_RECORDED;
    }
    if (joint) {
        joint_order(s, f, joint, call->nfields, order);
        return ORDER_SAMPLED;
    }
    for (int i = 0; i < call->nfields; i++) {
        int at = i;
        for (; at > 0 && f[order[at - 1]].score < f[i].score; at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t)i;
    }
    texts_last(call, order);
    return ORDER_SCORED;
}

/* Returns the average bytes per token of a column's values. Measures them with the tokenizer on the
 * values in the column's statistics; returns a constant if there is no tokenizer or no
 * statistics. */
static double bytes_per_token(estimator *s, const column_stats *c) {
    double bytes = 0, tokens = 0;
    if (!c || !s->env->count_tokens)
        return BYTES_PER_TOKEN;
    for (token_bytes *t = s->measured; t; t = t->next)
        if (t->stats == c)
            return t->bytes;
    /* the lowest value (-2), the highest (-1) and the common values */
    for (int i = -2; i < c->ncommon; i++) {
        value text, v = i == -2 ? c->low : i == -1 ? c->high : c->common[i];
        err ignored = {0};
        if (v.type == TYPE_NULL || value_cast(s->mem, v, TYPE_TEXT, &text, &ignored) != 0)
            continue;
        double weight = i < 0 ? 1.0 / 16 : c->common_fraction[i];
        bytes += weight * (double)text.s.n;
        tokens += weight * text_tokens(s, text.s);
    }
    token_bytes *made = ARENA_NEW(s->mem, token_bytes);
    *made =
        (token_bytes){s->measured, c, bytes > 0 && tokens > 0 ? bytes / tokens : BYTES_PER_TOKEN};
    s->measured = made;
    return made->bytes;
}

/* Estimates the tokens of an answer. */
static double expected_output(const estimator *s, const llm_call *call) {
    double learned = s->env->output_tokens ? s->env->output_tokens(s->env->ctx, call) : -1;
    if (learned >= 0)
        return learned;
    if (call->returns != RETURNS_TEXT)
        return call->returns == RETURNS_VECTOR ? 0 : 1;
    return 0.7 * (double)llm_call_max_tokens(s->env->settings, call);
}

/* Estimates the rows that send a prompt: their guard is true and no required field is NULL. */
static double asking_rows(estimator *s, const llm_site *site, const rel *input) {
    double rows = estimate_rel(s, input)->rows;
    if (site->call->prompt.type == TYPE_NULL)
        return 0;
    if (site->guard)
        rows *= estimate_selectivity(s, site->guard, input);
    for (int i = 0; i < site->call->nfields; i++)
        if (site->call->field_required[i])
            rows *= 1 - estimate_expr(s, site->args[i], input).null_fraction;
    return rows;
}

/* Estimates the number of distinct inputs of a call. Fills f, and sets *joint to the result of
 * joint_distinct. */
static double distinct_inputs(estimator *s, const llm_site *site, const rel *input, double rows,
                              field_estimate *f, double **joint) {
    double distinct = BASE_MIN(1, rows);
    for (int i = 0; i < site->call->nfields; i++) {
        column_estimate c = estimate_expr(s, site->args[i], input);
        double present = 1 - (site->call->field_required[i] ? 0 : c.null_fraction);
        f[i].tokens = (c.bytes / bytes_per_token(s, c.stats) +
                       text_tokens(s, site->call->field_names[i]) + 2) *
                      present;
        f[i].distinct = BASE_MAX(1, BASE_MIN(c.distinct, rows));
        f[i].score = f[i].tokens * rows / f[i].distinct;
        f[i].joint = c.joint;
        distinct = BASE_MIN(distinct * f[i].distinct, rows);
    }
    *joint = joint_distinct(s, site->call, f, rows);
    if (*joint)
        distinct = BASE_MIN((*joint)[(1u << site->call->nfields) - 1], rows);
    return s->env->settings->dedup ? distinct : rows;
}

void estimate_answer(estimator *s, const llm_site *site, const rel *input, column_estimate *c) {
    const llm_call *call = site->call;
    field_estimate *f = ARENA_ARRAY(s->mem, field_estimate, call->nfields + 1);
    double rows = estimate_rel(s, input)->rows, asking = asking_rows(s, site, input), *joint,
           inputs = distinct_inputs(s, site, input, asking, f, &joint), bytes = 0;
    for (int i = 0; i < call->nliterals; i++)
        bytes += (double)call->literals[i].n / call->nliterals;
    if (call->nliterals > 0)
        *c = (column_estimate){.distinct = call->nliterals, .bytes = bytes};
    else if (call->returns == RETURNS_TEXT)
        *c = (column_estimate){.distinct = inputs,
                               .bytes = expected_output(s, call) * BYTES_PER_TOKEN};
    c->distinct = BASE_MIN(c->distinct, inputs);
    c->null_fraction = rows > 0 ? BASE_MAX(0, 1 - asking / rows) : 0;
}

/* Tokens per second. */
typedef struct rates {
    double prefill, decode;
} rates;

static rates rates_of(const plan_env *env) {
    rates r = {NOMINAL_PREFILL, NOMINAL_DECODE};
    if (env->settings->cost_rates != RATES_NOMINAL && env->prefill_tok_s > 0)
        r.prefill = env->prefill_tok_s;
    if (env->settings->cost_rates != RATES_NOMINAL && env->decode_tok_s > 0)
        r.decode = env->decode_tok_s;
    return r;
}

/* Estimates the tokens of the prefix tree over the fields in this order. */
static double tree_tokens(const llm_call *call, const field_estimate *f, const double *joint,
                          const uint8_t *order, double distinct) {
    double prefixes = 1, tokens = 0;
    uint32_t set = 0;
    for (int k = 0; k < call->nfields; k++) {
        set |= joint ? 1u << order[k] : 0;
        prefixes = BASE_MIN(joint ? joint[set] : prefixes * f[order[k]].distinct, distinct);
        tokens += prefixes * f[order[k]].tokens;
    }
    return tokens;
}

double estimate_instruction_tokens(const estimator *s, const llm_call *call) {
    return text_tokens(s, call->instruction) + 3;
}

/* Estimates the tokens of the line before the answer. */
static double tail_tokens(const estimator *s, const llm_call *call) {
    return call->cue.n > 0 ? text_tokens(s, call->cue) + 1 : 2;
}

/* Estimates the tokens of a call's prompts and how many of them are computed, if the call goes on
 * from the prompts of another, whose KV is there. */
static void chained_tokens(const estimator *s, const llm_call *call, const field_estimate *f,
                           double distinct, double *prompt, double *computed) {
    *prompt = *computed = 0;
    for (int i = 0; i < call->nfields; i++) {
        *prompt += f[i].tokens;
        *computed += i >= call->after->nfields ? f[i].tokens : 0;
    }
    for (const llm_call *c = call; c; c = c->after) {
        double own = tail_tokens(s, c) + (c->same_struct ? 0 : estimate_instruction_tokens(s, c));
        *prompt += own;
        *computed += c == call ? own : 0;
    }
    *prompt *= distinct;
    *computed *= distinct;
}

/* Estimates the tokens of the labels that the prompt lists. */
static double label_tokens(const llm_call *call) {
    double tokens = 0;
    const llm_labels *shown = call->shown_labels;
    for (int i = 0; shown && i < shown->n; i++) {
        double bytes = (double)shown->labels[i].n;
        bytes += shown->descriptions ? (double)shown->descriptions[i].n : 0;
        tokens += bytes / BYTES_PER_TOKEN + 1;
    }
    return tokens;
}

order_origin estimate_llm_site(estimator *s, const llm_site *site, const rel *input,
                               site_layout layout, plan_estimate *out, uint8_t *order) {
    const llm_call *call = site->call;
    double rows = asking_rows(s, site, input), body = 0, *joint;
    field_estimate *f = ARENA_ARRAY(s->mem, field_estimate, call->nfields + 1);
    double distinct = distinct_inputs(s, site, input, rows, f, &joint);
    order_origin origin = choose_order(s, call, f, joint, order);
    for (int i = 0; i < call->nfields; i++)
        body += f[i].tokens;
    double question = estimate_instruction_tokens(s, call), head = label_tokens(call);
    double tail = tail_tokens(s, call);
    if (call->examples)
        head += estimate_rel(s, call->examples)->rows * (body + 4 * call->nexample_answers);
    double prompt = distinct * (question + head + body + tail);
    double computed = distinct * tail;
    if (layout != LAID_ON_ROW)
        computed +=
            (distinct > 0 ? head : 0) +
            (layout == LAID_INSTRUCTION_FIRST ? BASE_MIN(1, distinct) : distinct) * question;
    if (layout == LAID_INSTRUCTION_FIRST || layout == LAID_DATA_FIRST)
        computed += tree_tokens(call, f, joint, order, distinct);
    if (call->after)
        chained_tokens(s, call, f, distinct, &prompt, &computed);
    if (call->returns == RETURNS_VECTOR)
        prompt = distinct * body;
    if (!s->env->settings->kv_cache || call->returns == RETURNS_VECTOR)
        computed = prompt;
    double output = expected_output(s, call) * distinct;
    /* The prefill already computes the first token of an answer. */
    double decoded = call->returns == RETURNS_TEXT ? output : BASE_MAX(0, output - distinct);
    rates rate = rates_of(s->env);
    double choice = s->env->choice_tokens ? distinct * s->env->choice_tokens(s->env->ctx, call) : 0;
    out->distinct_inputs += distinct;
    out->prompt_tokens += prompt;
    out->computed_tokens += computed;
    out->output_tokens += output;
    out->choice_tokens += choice;
    if (s->env->money)
        out->money += s->env->money(s->env->ctx, call, prompt, computed, output);
    out->cost_ms += 1e3 * ((computed + choice) / rate.prefill + decoded / rate.decode);
    out->hit_rate =
        out->prompt_tokens > 0 ? BASE_MAX(0, 1 - out->computed_tokens / out->prompt_tokens) : 0;
    return origin;
}

void estimate_data(estimator *s, const llm_site *site, const rel *input, double *tokens,
                   double *inputs) {
    uint8_t *order = ARENA_ARRAY(s->mem, uint8_t, site->call->nfields + 1);
    field_estimate *f = ARENA_ARRAY(s->mem, field_estimate, site->call->nfields + 1);
    double *joint,
        distinct = distinct_inputs(s, site, input, estimate_rel(s, input)->rows, f, &joint);
    (void)choose_order(s, site->call, f, joint, order);
    *tokens = tree_tokens(site->call, f, joint, order, distinct);
    *inputs = distinct;
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* Milliseconds on one core, roughly: only their ratio to token costs matters. */
static const double ROW_MS = 0.0002;       /* a row that a node reads */
static const double SORT_ROW_MS = 0.00005; /* a row of a sort, times log2 of the number of rows */
static const double PAIR_MS = 0.00002;     /* a pair of rows that a join compares */

/* Whether a join's condition has an equality, so that the join can hash instead of comparing all
 * pairs. */
static bool has_equality(const expr *x) {
    if (!x || x->kind != EXPR_OP)
        return false;
    if (x->op == OP_AND)
        return has_equality(x->args[0]) || has_equality(x->args[1]);
    return (x->op == OP_EQ || x->op == OP_IS) && !expr_is_constant(x->args[0]) &&
           !expr_is_constant(x->args[1]);
}

static double join_ms(const rel *r, double left, double right, double out) {
    double pairs = has_equality(r->join.predicate) ? 0 : left * right * PAIR_MS;
    return (left + right + out) * ROW_MS + pairs;
}

/* Estimates the cost of a node in ms, without the cost of its inputs. */
static double estimate_cost_ms(estimator *s, const rel *r) {
    double rows = estimate_rel(s, r)->rows;
    double in = r->left ? estimate_rel(s, r->left)->rows : rows;
    double right = r->right ? estimate_rel(s, r->right)->rows : 0;
    switch (r->kind) {
    case REL_JOIN:
    case REL_APPLY:
        return join_ms(r, in, right, rows);
    case REL_WINDOW:
        return rows * (r->window.nkeys ? log2(rows + 2) * SORT_ROW_MS : 0) +
               in * r->window.nfunctions * ROW_MS;
    case REL_SORT:
        return in * log2(in + 2) * SORT_ROW_MS;
    default:
        return (in + right) * ROW_MS;
    }
}

/* Returns the estimate of a line without LLM calls. */
static plan_estimate estimate_line(estimator *s, const rel *r, double cost_ms) {
    const rel_estimate *e = estimate_rel(s, r);
    return (plan_estimate){.rows = e->rows, .guess = e->guess, .cost_ms = cost_ms};
}

static void estimate_stage(estimator *s, const chain_stage *from, const call_layout *layouts,
                           plan_stage *t) {
    t->estimate = estimate_line(s, from->llm, 0);
    t->estimate.selectivity = 1;
    for (int i = 0; i < t->nsites; i++) {
        plan_call_site *site = &t->sites[i];
        const call_layout *l = &layouts[i];
        site->group = l->group;
        site->asked_share = l->asked_share;
        site->data_first = l->layout == LAID_DATA_FIRST || l->layout == LAID_ON_DATA;
        site->answer_tokens = expected_output(s, site->call);
        site->order_origin = estimate_llm_site(s, &from->llm->llm.sites[i], from->llm->left,
                                               l->layout, &t->estimate, site->field_order);
    }
    for (int i = 0; i < t->nfilters; i++)
        t->filter_estimates[i] =
            estimate_line(s, from->filters[i], estimate_cost_ms(s, from->filters[i]));
}

static void estimate_pipeline(estimator *s, const rel *r, plan_node *node) {
    const chain_stage *from = pipeline_stages(s->mem, r);
    const call_layout *layouts = estimate_layout(s, r);
    for (int i = 0; i < node->pipeline.nstages; i++) {
        estimate_stage(s, &from[i], layouts, &node->pipeline.stages[i]);
        layouts += node->pipeline.stages[i].nsites;
    }
}

void estimate_node(estimator *s, const rel *r, plan_node *node) {
    if (r->kind == REL_PIPELINE)
        estimate_pipeline(s, r, node);
    node->estimate = estimate_line(s, r, r->kind == REL_PIPELINE ? 0 : estimate_cost_ms(s, r));
}

/* ---- the whole plan -------------------------------------------------------------------------- */

static bool has_calibrated_call(const plan_stage *t) {
    for (int i = 0; i < t->nsites; i++)
        if (llm_call_is_calibrated(t->sites[i].call))
            return true;
    return false;
}

/* Scales the estimate of a stage of which only `wanted` passing rows are needed. Returns the number
 * of rows that the stage is asked about. */
static double estimate_early_termination(plan_stage *t, double wanted) {
    plan_estimate *e = &t->estimate;
    double asked = wanted / BASE_MAX(e->selectivity, 1e-6);
    asked = t->nfilters > 0 ? BASE_MAX(FIRST_BATCH, asked) : asked;
    if (asked >= e->rows)
        return e->rows;
    double share = asked / e->rows;
    if (has_calibrated_call(t)) /* the inputs from which priors are computed are asked as well */
        share = BASE_MIN(1, BASE_MAX(share, LLM_PRIOR_INPUTS / BASE_MAX(e->distinct_inputs, 1)));
    e->distinct_inputs *= share;
    e->prompt_tokens *= share;
    e->computed_tokens *= share;
    e->output_tokens *= share;
    e->choice_tokens *= share;
    e->money *= share;
    e->cost_ms *= share;
    return asked;
}

/* Returns the number of passing rows that the nodes above a pipeline need; -1: all. */
static double used_rows(const plan_demand *d) {
    double rows = d->limit_hint > 0 ? (double)d->limit_hint : -1;
    double top_n = d->top_n.n > 0 ? d->top_n.groups * (double)d->top_n.n : -1;
    return rows < 0 || top_n < 0 ? BASE_MAX(rows, top_n) : BASE_MIN(rows, top_n);
}

/* Completes the estimates of a pipeline's stages, from the last to the first, since a stage has to
 * return only the rows that the next stage asks about. */
static void finish_pipeline(plan *p, plan_node *n) {
    double used = used_rows(&n->pipeline.demand);
    for (int i = n->pipeline.nstages; i-- > 0;) {
        plan_stage *t = &n->pipeline.stages[i];
        plan_estimate *e = &t->estimate;
        if (t->nfilters > 0 && e->rows > 0)
            e->selectivity = BASE_MIN(1, t->filter_estimates[t->nfilters - 1].rows / e->rows);
        if (used >= 0)
            used = estimate_early_termination(t, used);
        p->total.distinct_inputs += e->distinct_inputs;
        p->total.prompt_tokens += e->prompt_tokens;
        p->total.computed_tokens += e->computed_tokens;
        p->total.money += e->money;
        p->total.output_tokens += e->output_tokens;
        p->total.choice_tokens += e->choice_tokens;
        n->estimate.cost_ms += e->cost_ms;
        for (int k = 0; k < t->nfilters; k++)
            n->estimate.cost_ms += t->filter_estimates[k].cost_ms;
    }
}

static void finish_node(plan *p, plan_node *n, bool *seen) {
    if (!n || seen[n->number])
        return;
    seen[n->number] = true;
    if (n->kind == PLAN_LLM_PIPELINE)
        finish_pipeline(p, n);
    p->total.cost_ms += n->estimate.cost_ms;
    finish_node(p, n->left, seen);
    finish_node(p, n->right, seen);
}

void estimate_plan(plan *p, arena *mem) {
    bool *seen = ARENA_ARRAY(mem, bool, p->nnodes + 1);
    plan_estimate *t = &p->total;
    *t = (plan_estimate){.selectivity = 1};
    if (p->root) {
        t->rows = p->root->estimate.rows;
        t->guess = p->root->estimate.guess;
    }
    finish_node(p, p->root, seen);
    for (int i = 0; i < p->stmt->ncalls; i++)
        finish_node(p, p->examples[i], seen);
    t->hit_rate = t->prompt_tokens > 0 ? BASE_MAX(0, 1 - t->computed_tokens / t->prompt_tokens) : 0;
}
