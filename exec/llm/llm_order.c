/*
 * llm_order.c - the order of a call's fields and inputs: calls the PSM solver with token counts,
 * and keeps a record of field orders in the catalog.
 *
 * Invariant: the field order is a function of statement, data, settings and the record alone. The
 * record belongs to a call (instruction, fields, model). A recorded order is used if it computes at
 * most 5 % more tokens than a fresh one. So a statement with another WHERE finds the stored
 * answers. The record has the last few orders, and the oldest that is good enough is used. So the
 * same question about different tables, whose best orders differ, finds each table's order again.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm_int.h"

static const double RECORD_TOLERANCE = 1.05;

/* Maximum number of recorded orders of a call; the oldest comes first. */
enum { RECORDED_ORDERS = 4 };

/* ---- solving --------------------------------------------------------------------------------- */

psm_strategy llm_strategy_of(const settings *s) {
    static const psm_strategy strategies[] = {[PSM_SETTING_OFF] = PSM_OFF,
                                              [PSM_SETTING_FIXED] = PSM_FIXED,
                                              [PSM_SETTING_GROUPED] = PSM_GROUPED,
                                              [PSM_SETTING_AUTO] = PSM_AUTO};
    BASE_COVERS(strategies, PSM_SETTINGS);
    return strategies[s->psm];
}

/* Returns a field's values if no input has it. */
static const uint32_t *all_absent(const llm_inputs *in, arena *mem) {
    uint32_t *ids = arena_alloc(mem, sizeof *ids * BASE_MAX(in->count, 1u));
    for (uint32_t i = 0; i < in->count; i++)
        ids[i] = PSM_ABSENT;
    return ids;
}

/* Fills *out with the inputs in the solver's form, measured in tokens. Fields that are computed from
 * answers, and those whose order is not solved, are absent. Its arrays are allocated in `mem`. */
static void solver_input(const prompt *p, const llm_inputs *in, arena *mem, psm_input *out) {
    psm_field *fields = ARENA_ARRAY(mem, psm_field, p->nfields + 1);
    const uint32_t *absent = p->call->reads_answers ? all_absent(in, mem) : NULL;
    for (int f = 0; f < p->nfields; f++) {
        if (p->call->answer_texts[f] > 0 || f >= p->nsolved) {
            fields[f] = (psm_field){.name = p->call->field_names[f], .value = absent};
            continue;
        }
        uint32_t distinct = p->nvalues[f];
        uint32_t *length = ARENA_ARRAY(mem, uint32_t, distinct + 1);
        const int32_t **units = ARENA_ARRAY(mem, const int32_t *, distinct + 1);
        size_t count;
        for (uint32_t i = 0; i < distinct; i++) {
            units[i] = llm_span_tokens(p->values[f][i], &count);
            length[i] = (uint32_t)count;
        }
        llm_span_tokens(p->names[f], &count);
        fields[f] = (psm_field){.name = p->call->field_names[f],
                                .name_units = (uint32_t)count,
                                .distinct = distinct,
                                .value = in->value[f],
                                .length = length,
                                .units = units};
    }
    *out = (psm_input){.rows = in->count, .nfields = p->nfields, .fields = fields};
}

/* Returns the field order as text, such as "synopsis, review". If groups of rows differ, lists the
 * orders of the largest groups with their numbers of rows. */
static str order_text(const prompt *p, const psm_result *r, arena *mem) {
    buf b = {0};
    for (int g = 0; g < r->ngroups && g < 3; g++) {
        if (g)
            buf_append_c(&b, "; ");
        for (int k = 0; k < r->groups[g].fields; k++) {
            if (k)
                buf_append_c(&b, ", ");
            buf_append_str(&b, p->call->field_names[r->groups[g].order[k]]);
        }
        if (r->orders > 1)
            buf_printf(&b, " (%u)", r->groups[g].rows);
    }
    if (r->orders > 3)
        buf_printf(&b, "; %u more", r->orders - 3);
    str text = str_copy(mem, buf_str(&b));
    buf_free(&b);
    return text;
}

void order_rank(input_order *o, uint32_t count, arena *mem) {
    o->rank = ARENA_ARRAY(mem, uint32_t, count + 1);
    for (uint32_t k = 0; k < count; k++)
        o->rank[o->psm.row_order[k]] = k;
}

static int solve(const prompt *p, const llm_inputs *in, const psm_options *options, arena *mem,
                 input_order *out, err *e) {
    psm_input input;
    solver_input(p, in, mem, &input);
    return psm_solve(&input, options, mem, &out->psm, e);
}

void order_of_dominant_fields(const psm_result *r, int nfields, uint8_t *order) {
    const psm_group *most = &r->groups[0];
    bool used[PSM_MAX_FIELDS] = {false};
    int n = 0;
    for (int g = 1; g < r->ngroups; g++)
        if (r->groups[g].fields > most->fields)
            most = &r->groups[g];
    for (int k = 0; k < most->fields; k++) {
        order[n++] = most->order[k];
        used[most->order[k]] = true;
    }
    for (int f = 0; f < nfields; f++)
        if (!used[f])
            order[n++] = (uint8_t)f;
}

/* ---- fields computed from answers ------------------------------------------------------------ */

static uint64_t computed_units(const psm_result *r) {
    return r->total_units - r->shared_units;
}

/* Whether a field is computed from another call's answers, of which there is a list of allowed ones. */
static bool has_few_texts(const llm_call *call, int f) {
    return call->answer_texts[f] > 0 && call->answer_texts[f] < UINT32_MAX;
}

/* Returns the most units that the known fields take behind fields of `texts` different texts: `texts`
 * trees of their own, each at most as large as the one tree; or nothing shared but a name. */
static uint64_t units_behind(const prompt *p, const llm_inputs *in, const psm_result *solved,
                             uint64_t texts) {
    uint8_t order[PSM_MAX_FIELDS];
    size_t name = 0;
    order_of_dominant_fields(solved, in->nfields, order);
    if (solved->groups[0].fields > 0)
        llm_span_tokens(p->names[order[0]], &name);
    uint64_t names = solved->orders == 1 ? (in->count - texts) * name : 0;
    return BASE_MIN(texts * computed_units(solved), solved->total_units - names);
}

/* Whether the fields with few texts, such as the answers of an ENUM, come before the known fields:
 * whatever the answers are, this computes no more tokens. So few rows, of which neither order shares
 * anything, have the order that many rows have. */
static bool few_texts_first(const prompt *p, const llm_inputs *in, const psm_result *solved) {
    uint64_t texts = 1, before = 0, after = 0;
    for (int f = 0; f < p->nsolved; f++) {
        size_t name;
        if (!has_few_texts(p->call, f))
            continue;
        llm_span_tokens(p->names[f], &name);
        texts = BASE_MIN(texts * p->call->answer_texts[f], in->count);
        before += texts * (name + 1);
        after += in->count * (name + 1);
    }
    return after > 0 &&
           before + units_behind(p, in, solved, texts) <= computed_units(solved) + after;
}

/* Rewrites an input's order: fields with few texts if `first`, known fields, other fields computed
 * from answers, absent fields. given: the order of all fields that are present; NULL: there is none. */
static void place_answers(const llm_call *call, const llm_inputs *in, uint32_t input, bool first,
                          const uint8_t *given, uint8_t *order) {
    uint8_t solved[PSM_MAX_FIELDS];
    bool placed[PSM_MAX_FIELDS] = {false};
    int n = 0;
    memcpy(solved, given ? given : order, (size_t)in->nfields);
    for (int f = 0; f < in->nfields; f++)
        placed[f] = in->value[f][input] == PSM_ABSENT;
    for (int f = 0; f < in->nfields && first; f++)
        if (!placed[f] && has_few_texts(call, f)) {
            placed[f] = true;
            order[n++] = (uint8_t)f;
        }
    for (int k = 0; k < in->nfields; k++)
        if (!placed[solved[k]] && (given || call->answer_texts[solved[k]] == 0)) {
            placed[solved[k]] = true;
            order[n++] = solved[k];
        }
    for (int f = 0; f < in->nfields; f++)
        if (!placed[f])
            order[n++] = (uint8_t)f;
    for (int f = 0; f < in->nfields; f++)
        if (in->value[f][input] == PSM_ABSENT)
            order[n++] = (uint8_t)f;
}

/* Completes a solved order with the fields computed from answers, and names it. */
static void finish(const prompt *p, const llm_inputs *in, const psm_options *options, arena *mem,
                   input_order *out) {
    uint8_t written[PSM_MAX_FIELDS];
    const uint8_t *given = out->recorded ? NULL : options->given_order;
    int answers = 0;
    for (int f = 0; f < in->nfields; f++) {
        answers += f < p->nsolved && p->call->answer_texts[f] > 0;
        written[f] = (uint8_t)f;
    }
    if (!given && options->strategy == PSM_OFF)
        given = written;
    bool first = answers > 0 && in->count > 0 && !given && few_texts_first(p, in, &out->psm);
    for (uint32_t i = 0; i < in->count && answers > 0; i++)
        place_answers(p->call, in, i, first, given,
                      out->psm.field_order + (size_t)i * (size_t)in->nfields);
    for (int g = 0; g < out->psm.ngroups; g++)
        out->psm.groups[g].fields += answers;
    out->text = order_text(p, &out->psm, mem);
    if (out->recorded)
        out->text = str_from(arena_printf(mem, "%.*s (kept)", (int)out->text.n, out->text.p));
    if (p->call->blends && !p->blends)
        out->text =
            str_from(arena_printf(mem, "%.*s; contexts are exact: this model does not blend",
                                  (int)out->text.n, out->text.p));
}

/* ---- SET field_order = 'a, b' ---------------------------------------------------------------- */

/* Makes an order in which blended contexts come first: their KV is computed behind what precedes
 * them. */
static const uint8_t *contexts_first(const llm_call *call, arena *mem) {
    uint8_t *order = ARENA_ARRAY(mem, uint8_t, call->nfields + 1);
    int n = 0;
    for (int others = 0; others < 2; others++)
        for (int f = 0; f < call->nfields; f++)
            if (call->field_lists[f] == !others)
                order[n++] = (uint8_t)f;
    return order;
}

/* Makes, in `mem`, the order that SET field_order lists, or that blended contexts need. *out = NULL:
 * there is none. */
static int listed_order(const settings *s, const prompt *p, arena *mem, const uint8_t **out,
                        err *e) {
    const llm_call *call = p->call;
    str list = str_from(s->field_order), unknown;
    *out = NULL;
    if (str_equal_nocase(list, STR("keep")) || str_equal_nocase(list, STR("fresh"))) {
        *out = p->blends ? contexts_first(call, mem) : NULL;
        return 0;
    }
    uint8_t *order = ARENA_ARRAY(mem, uint8_t, call->nfields + 1);
    *out = order;
    if (llm_call_listed_order(call, list, order, &unknown))
        return 0;
    const char **names = ARENA_ARRAY(mem, const char *, call->nfields + 1);
    for (int f = 0; f < call->nfields; f++)
        names[f] = arena_strndup(mem, call->field_names[f].p, call->field_names[f].n);
    err_set_at(e, ERR_BIND, call->pos, call->len,
               "field_order names \"%.*s\", which is not a field of LLM#%d", (int)unknown.n,
               unknown.p, call->number);
    const char *meant = str_nearest(unknown, names, (size_t)call->nfields);
    if (meant)
        err_hint(e, "did you mean \"%s\"?", meant);
    else
        err_hint(e, "SET field_order = 'keep', the default, to list no fields");
    return ERR_BIND;
}

int order_solve_plain(const exec_ctx *ctx, const prompt *p, const llm_inputs *in,
                      psm_strategy strategy, bool bound, arena *mem, input_order *out, err *e) {
    psm_options options = {.strategy = strategy,
                           .one_order = llm_call_root(p->call)->examples != NULL,
                           .bound = bound,
                           .cancel = ctx->cancel};
    int status = listed_order(ctx->settings, p, mem, &options.given_order, e);
    if (status == 0)
        status = solve(p, in, &options, mem, out, e);
    if (status == 0)
        finish(p, in, &options, mem, out);
    return status;
}

int order_solve_best(const prompt *p, const llm_inputs *in, arena *mem, input_order *out, err *e) {
    psm_options options = {.strategy = PSM_FIXED, .one_order = true};
    int status = solve(p, in, &options, mem, out, e);
    if (status == 0)
        finish(p, in, &options, mem, out);
    return status;
}

int order_gap(const prompt *p, const llm_inputs *in, const input_order *order, double *gap,
              err *e) {
    psm_input input;
    psm_score score;
    arena *mem = arena_new();
    solver_input(p, in, mem, &input);
    int status = psm_evaluate(&input, order->psm.field_order, order->psm.row_order, &score, e);
    *gap = status == 0 && score.total_units
               ? order->psm.bound - (double)score.cell_units / (double)score.total_units
               : NAN;
    arena_free(mem);
    return status;
}

/* ---- the record ------------------------------------------------------------------------------ */

void call_fact_key(const llm_call *call, const char *prefix, bool cue, hash128 fingerprint,
                   buf *out) {
    buf b = {0};
    buf_append(&b, &fingerprint, sizeof fingerprint);
    buf_append_str(&b, call->instruction);
    for (int f = 0; f < call->nfields; f++) {
        buf_append_char(&b, 0);
        buf_append_str(&b, call->field_names[f]);
    }
    if (cue && call->cue.n > 0)
        buf_printf(&b, "%c%c%.*s", 0, 0, (int)call->cue.n, call->cue.p);
    for (const llm_call *c = call->after; c; c = c->after) {
        buf_printf(&b, "%c%d", 0, call->same_struct);
        buf_append_str(&b, c->cue);
        buf_append_char(&b, 0);
        buf_append_str(&b, c->instruction);
    }
    hash128 h = hash_128(b.p, b.n);
    buf_free(&b);
    buf_printf(out, "%s/%016llx%016llx", prefix, (unsigned long long)h.high,
               (unsigned long long)h.low);
}

static bool is_permutation(const uint8_t *order, int n) {
    uint64_t seen = 0;
    for (int i = 0; i < n; i++) {
        if (order[i] >= n)
            return false;
        seen |= 1ull << order[i];
    }
    return n == 64 || seen == (1ull << n) - 1;
}

/* EXPLAIN (TOKENS) changes no recorded order. An order that a run would record is kept here, since
 * a later call of the statement would find it. */
typedef struct noted_order {
    str key, bytes;
    struct noted_order *next;
} noted_order;

static int record_find(exec_ctx *ctx, str key, arena *mem, str *stored, bool *found, err *e) {
    for (const noted_order *n = ctx->llm->noted_orders; n; n = n->next)
        if (str_equal(n->key, key)) {
            *stored = n->bytes;
            *found = true;
            return 0;
        }
    return fact_get(ctx->db, key, mem, stored, found, e);
}

static void record_keep(exec_ctx *ctx, str key, str bytes) {
    llm_runtime *r = ctx->llm;
    if (!ctx->count_only) {
        fact_put(ctx, key, bytes);
        return;
    }
    noted_order *n = ARENA_NEW(r->mem, noted_order);
    *n = (noted_order){str_copy(r->mem, key), str_copy(r->mem, bytes), r->noted_orders};
    r->noted_orders = n;
}

/* Replaces the fresh order in *out by the recorded `order` if the recorded one is nearly as good.
 * *usable: whether it was replaced. */
static int try_recorded(const prompt *p, const llm_inputs *in, const uint8_t *order,
                        psm_options *options, arena *mem, input_order *out, bool *usable, err *e) {
    input_order kept = {0};
    uint8_t all[PSM_MAX_FIELDS];
    for (int f = 0; f < p->nfields; f++)
        all[f] = f < p->nsolved ? order[f] : (uint8_t)f;
    options->given_order = all;
    int status = solve(p, in, options, mem, &kept, e);
    *usable = status == 0 && (double)computed_units(&kept.psm) <=
                                 RECORD_TOLERANCE * (double)computed_units(&out->psm);
    if (*usable) {
        *out = kept;
        out->recorded = true;
    }
    return status;
}

/* Appends the fresh order to the record, and drops the oldest orders beyond RECORDED_ORDERS. */
static void record_fresh(exec_ctx *ctx, str key, str stored, const uint8_t *fresh, size_t n) {
    buf orders = {0};
    size_t skip = stored.n >= RECORDED_ORDERS * n ? stored.n - (RECORDED_ORDERS - 1) * n : 0;
    buf_append(&orders, stored.p + skip, stored.n - skip);
    buf_append(&orders, fresh, n);
    record_keep(ctx, key, buf_str(&orders));
    buf_free(&orders);
}

/* Uses a recorded order if it is nearly as good as the fresh one; otherwise records the fresh one.
 * Orders that differ between groups of rows are not recorded. */
static int apply_record(exec_ctx *ctx, const prompt *p, const llm_inputs *in, psm_options *options,
                        arena *mem, input_order *out, err *e) {
    uint8_t fresh[PSM_MAX_FIELDS];
    size_t n = (size_t)p->nsolved;
    buf key = {0};
    str stored = {"", 0};
    bool found = false, usable = false;
    if (out->psm.used != PSM_FIXED || out->psm.ngroups == 0)
        return 0;
    order_of_dominant_fields(&out->psm, p->nfields, fresh);
    call_fact_key(llm_call_root(p->call), "field_order", false,
                  llm_engine_info(p->engine)->fingerprint, &key);
    int status = record_find(ctx, buf_str(&key), mem, &stored, &found, e);
    if (!found || stored.n % n != 0)
        stored.n = 0;
    for (size_t at = 0; at < stored.n && status == 0 && !usable; at += n) {
        const uint8_t *order = (const uint8_t *)stored.p + at;
        usable = memcmp(order, fresh, n) == 0;
        if (!usable && is_permutation(order, p->nsolved))
            status = try_recorded(p, in, order, options, mem, out, &usable, e);
    }
    if (status == 0 && !usable)
        record_fresh(ctx, buf_str(&key), stored, fresh, n);
    buf_free(&key);
    return status;
}

int order_solve(exec_ctx *ctx, const prompt *p, const llm_inputs *in, psm_strategy strategy,
                arena *mem, input_order *out, err *e) {
    psm_options options = {.strategy = strategy,
                           .one_order = llm_call_root(p->call)->examples != NULL,
                           .cancel = ctx->cancel};
    *out = (input_order){0};
    bool keep = str_equal_nocase(str_from(ctx->settings->field_order), STR("keep"));
    if (p->nfields > PSM_MAX_FIELDS)
        return err_set_at(e, ERR_LIMIT, p->call->pos, p->call->len,
                          "an LLM call takes at most %d fields, this one has %d", PSM_MAX_FIELDS,
                          p->nfields);
    int status = listed_order(ctx->settings, p, mem, &options.given_order, e);
    if (status == 0)
        status = solve(p, in, &options, mem, out, e);
    const uint8_t *listed = options.given_order;
    if (status == 0 && keep && !listed && strategy != PSM_OFF && p->nsolved > 1)
        status = apply_record(ctx, p, in, &options, mem, out, e);
    options.given_order = listed;
    if (status == 0)
        finish(p, in, &options, mem, out);
    return status;
}

/* ---- calls that go on from other calls ------------------------------------------------------- */

typedef struct followed {
    uint32_t rank, input;
} followed;

static int by_followed(const void *a, const void *b) {
    const followed *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->input < y->input ? -1 : x->input > y->input;
}

/* Sets of[input] to an input of `after_in` in the same row; NO_INPUT: the rows of the input have
 * none, and will have no answer. */
static uint32_t *inputs_followed(const llm_inputs *after_in, const llm_inputs *in, arena *mem) {
    uint32_t *of = ARENA_ARRAY(mem, uint32_t, in->count + 1);
    for (uint32_t i = 0; i < in->count; i++)
        of[i] = NO_INPUT;
    for (int64_t r = 0; r < in->rows; r++)
        if (in->of_row[r] != NO_INPUT)
            of[in->of_row[r]] = after_in->of_row[r];
    return of;
}

void order_follow(const input_order *after, const llm_inputs *after_in, const llm_inputs *in,
                  arena *mem, input_order *out) {
    arena *scratch = arena_new();
    const uint32_t *of = inputs_followed(after_in, in, scratch);
    uint32_t *rank = ARENA_ARRAY(scratch, uint32_t, after_in->count + 1);
    followed *list = ARENA_ARRAY(scratch, followed, in->count + 1);
    size_t n = (size_t)in->nfields, before = (size_t)after_in->nfields;
    for (uint32_t k = 0; k < after_in->count; k++)
        rank[after->psm.row_order[k]] = k;
    *out = *after;
    out->psm.bound = NAN;
    out->psm.field_order = ARENA_ARRAY(mem, uint8_t, n * in->count + 1);
    out->psm.row_order = ARENA_ARRAY(mem, uint32_t, in->count + 1);
    for (uint32_t i = 0; i < in->count; i++) {
        uint8_t *order = out->psm.field_order + n * i;
        bool follows = of[i] != NO_INPUT;
        for (size_t f = 0; f < n; f++)
            order[f] = (uint8_t)f;
        if (follows && before > 0)
            memcpy(order, after->psm.field_order + before * of[i], before);
        list[i] = (followed){follows ? rank[of[i]] : after_in->count, i};
    }
    qsort(list, in->count, sizeof *list, by_followed);
    for (uint32_t k = 0; k < in->count; k++)
        out->psm.row_order[k] = list[k].input;
    arena_free(scratch);
}
