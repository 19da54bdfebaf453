/*
 * op_llm.c - the LLM operator: gathers all rows of its pipeline's base, dedups what is asked about
 * them, orders it, has it answered stage by stage, and hands rows out in input order.
 *
 *   base --drain--> rowset --per use--> inputs, prompt, order --chunk by chunk, stage by stage-->
 *   answers, rows dropped --> batches
 *
 * Invariant: the rows come out as they came in, whatever the order of prompts and stages (DIALECT
 * 4); what a prompt says follows from all rows of the base, never from what a filter kept (DESIGN
 * 2.2). Rows go through the stages in chunks: in waves where not all that pass are needed
 * (llm_waves.c); in growing chunks where filters may change places after a look at what they
 * keep; in chunks whose KV fits where a later stage asks about data that an earlier one has
 * computed; else all at once.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"
#include "ops/op_int.h"
#include "rows/rowset_int.h"

/* Chunks of rows that later stages ask about again take one part in so many of the KV memory. */
enum { KEPT_PART = 2 };

/* ---- preparation ----------------------------------------------------------------------------- */

psm_strategy llm_strategy_of(const settings *s) {
    static const psm_strategy strategies[] = {[PSM_SETTING_OFF] = PSM_OFF,
                                              [PSM_SETTING_FIXED] = PSM_FIXED,
                                              [PSM_SETTING_GROUPED] = PSM_GROUPED,
                                              [PSM_SETTING_AUTO] = PSM_AUTO};
    BASE_COVERS(strategies, PSM_SETTINGS);
    return strategies[s->psm];
}

static arena *mem_of(op *o) {
    return ((llm_state *)o->state)->mem;
}

static int solve_order(op *o, use_run *u, err *e) {
    double started = clock_seconds();
    int status = order_solve(o->ctx, u->prompt, u->in, llm_strategy_of(o->ctx->settings), mem_of(o),
                             &u->order, e);
    o->ctx->counts.summary.solve_seconds += clock_seconds() - started;
    return status;
}

/* The examples follow the statement's field order,
 * so they join the head once the order is known. */
static void place_examples(op *o, use_run *u) {
    const llm_runtime *r = o->ctx->llm;
    int at = u->use->call->number - 1;
    uint8_t order[PSM_MAX_FIELDS];
    bool ordered = u->order.psm.ngroups > 0;
    if (ordered)
        order_only(&u->order.psm, u->in->nfields, order);
    prompt_close_head(u->prompt, r->examples[at], r->nexamples[at], ordered ? order : NULL);
}

static bool data_first_wanted(const settings *s) {
    return s->llm_layout == LAYOUT_DATA_FIRST;
}

/* A guard that reads answers is looked at when the rows
 * are asked: until then all of them may need the call. */
static const plan_call_site *unguarded(op *o, const use_run *u) {
    if (!u->use->late_guard)
        return u->use;
    plan_call_site *copy = ARENA_NEW(o->mem, plan_call_site);
    *copy = *u->use;
    copy->guard = NULL;
    return copy;
}

/* What a use keeps by input and by row. */
static void make_room(op *o, use_run *u) {
    u->answers = ARENA_ARRAY(mem_of(o), llm_answer *, u->in->count + 1);
    u->state = ARENA_ARRAY(mem_of(o), uint8_t, u->in->count + 1);
    u->rank = ARENA_ARRAY(mem_of(o), uint32_t, u->in->count + 1);
    if (u->use->late_guard)
        u->guarded = ARENA_ARRAY(mem_of(o), uint8_t, u->in->rows + 1);
}

static void rank_inputs(use_run *u) {
    for (uint32_t k = 0; k < u->in->count; k++)
        u->rank[u->order.psm.row_order[k]] = k;
}

/* Inputs, tokens and field order of one use; its group's where it has a leader. */
static int prepare_use(op *o, use_run *u, err *e) {
    exec_ctx *ctx = o->ctx;
    bool leads = u->leader == u;
    int status = runtime_engine(ctx->llm, u->use->call, &u->engine, e);
    u->in = u->leader->in;
    if (status == 0 && leads)
        status = inputs_gather(ctx, unguarded(o, u), ((llm_state *)o->state)->rows,
                               ctx->settings->dedup, mem_of(o), &u->in, e);
    if (status)
        return status;
    prompt_spec spec = {.call = u->use->call,
                        .engine = u->engine,
                        .ctx = ctx,
                        .data_first = data_first_wanted(ctx->settings),
                        .like = leads ? NULL : u->leader->prompt};
    status = prompt_new(&spec, u->in, &u->prompt, e);
    if (status == 0)
        status = solve_order(o, u, e);
    if (status)
        return status;
    make_room(o, u);
    facts_recall(ctx, u->use->call, llm_engine_info(u->engine)->fingerprint, &u->facts);
    return 0;
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* Lets the group of `leader` send the data first where that computes fewer tokens; they then stand
 * in one order for all its calls. */
static int lay_out_group(op *o, use_run *leader, err *e) {
    llm_state *s = o->state;
    layout_call *calls = ARENA_ARRAY(o->mem, layout_call, s->nuses + 1);
    llm_inputs *distinct = leader->in;
    bool data_first = data_first_wanted(o->ctx->settings);
    int count = 0, status = 0;
    arena *mem = NULL;
    for (int i = 0; i < s->nuses; i++)
        if (s->uses[i].leader == leader)
            calls[count++] = (layout_call){s->uses[i].prompt, s->uses[i].use->asked_share};
    if (count < 2 || o->ctx->settings->llm_layout == LAYOUT_INSTRUCTION_FIRST)
        return 0;
    /* whether rows are asked apart must not change what they are asked */
    if (!data_first && !o->ctx->settings->dedup) {
        mem = arena_new_in(o->ctx->space);
        status = inputs_gather(o->ctx, unguarded(o, leader), s->rows, true, mem, &distinct, e);
    }
    if (status == 0 && !data_first)
        status = layout_choose(calls, count, distinct, &data_first, e);
    arena_free(mem);
    for (int i = 0; i < s->nuses && status == 0 && data_first; i++) {
        use_run *u = &s->uses[i];
        if (u->leader != leader)
            continue;
        prompt_lay_out(u->prompt, true);
        u->order = leader->order;
    }
    return status;
}

/* "synopsis, review", with the call's number where
 * uses [first, end) differ, and what stands first. */
static str orders_text(op *o, int first, int end) {
    llm_state *s = o->state;
    buf b = {0};
    bool alike = true;
    for (int i = first + 1; i < end; i++)
        alike = alike && str_equal(s->uses[i].order.text, s->uses[first].order.text) &&
                s->uses[i].prompt->data_first == s->uses[first].prompt->data_first;
    for (int i = first; i < (alike ? BASE_MIN(end, first + 1) : end); i++) {
        const use_run *u = &s->uses[i];
        if (!alike)
            buf_printf(&b, "%s#%d ", i > first ? ", then " : "", u->use->call->number);
        buf_append_str(&b, u->order.text);
        if (u->prompt->data_first && u->order.text.n > 0)
            buf_append_c(&b, ", before the instruction");
    }
    /* figures are read after the operator has gone */
    str text = str_copy(o->ctx->mem, buf_str(&b));
    buf_free(&b);
    return text;
}

static int prepare_uses(op *o, err *e) {
    llm_state *s = o->state;
    int status = 0;
    for (int i = 0; i < s->nuses; i++) {
        s->uses[i].leader = &s->uses[i];
        for (int k = 0; k < i && s->uses[i].leader == &s->uses[i]; k++)
            if (s->uses[k].use->group == s->uses[i].use->group)
                s->uses[i].leader = s->uses[k].leader;
    }
    for (int i = 0; i < s->nuses && status == 0; i++) {
        double started = clock_seconds();
        status = prepare_use(o, &s->uses[i], e);
        s->stages[s->uses[i].stage].ms += 1e3 * (clock_seconds() - started);
    }
    for (int i = 0; i < s->nuses && status == 0; i++)
        if (s->uses[i].leader == &s->uses[i])
            status = lay_out_group(o, &s->uses[i], e);
    for (int i = 0; i < s->nuses && status == 0; i++) {
        place_examples(o, &s->uses[i]);
        rank_inputs(&s->uses[i]);
    }
    for (int i = 0; i < s->nstages && status == 0; i++) {
        llm_stage *t = &s->stages[i];
        t->actual.field_order = orders_text(o, t->first_use, t->first_use + t->plan->nsites);
    }
    return status;
}

static int prepare(op *o, err *e) {
    llm_state *s = o->state;
    s->started_s = clock_seconds();
    llm_publish(o, "reading");
    int status = op_rows(o->left, &s->rows, &s->own_rows, e);
    llm_publish(o, "ordering");
    if (status == 0) {
        s->dropped = ARENA_ARRAY(s->mem, uint8_t, rowset_rows(s->rows) + 1);
        status = llm_waves_prepare(o, e);
    }
    if (status == 0)
        status = prepare_uses(o, e);
    if (status == 0) {
        utf8_copy(s->progress.field_order, sizeof s->progress.field_order,
                  orders_text(o, 0, s->nuses));
    }
    s->prepared = status == 0;
    s->operators_before = o->ctx->llm->operators_started;
    o->ctx->llm->operators_started += o->ctx->llm->sample > 0 ? 0 : s->nstages;
    s->progress.operators = watch_operators(o->ctx->plan->root);
    return status;
}

/* ---- stage by stage -------------------------------------------------------------------------- */

/* One stage over rows[0..*count), of which those that pass stay. */
static int run_stage(op *o, int stage, uint32_t done, int64_t *rows, int64_t *count, err *e) {
    llm_state *s = o->state;
    llm_stage *t = &s->stages[stage];
    int64_t before = *count, kept;
    bool counted = o->ctx->counts.rows_out != NULL;
    int status = llm_ask_stage(o, stage, done, rows, before, e);
    t->rows_in += before;
    t->actual.rows += (uint64_t)before;
    if (counted)
        o->ctx->counts.rows_out[t->plan->number] +=
            t->plan->number == o->node->number ? 0 : (uint64_t)before;
    for (int i = 0; i < t->plan->nfilters && status == 0; i++) {
        arena *mem = arena_new_in(o->ctx->space);
        int64_t *passed = arena_alloc(mem, sizeof *passed * (size_t)BASE_MAX(*count, 1));
        status = llm_rows_where(o, t->plan->filters[i], rows, *count, passed, &kept, e);
        for (int64_t r = 0, k = 0; r < *count && status == 0; r++)
            if (k < kept && passed[k] == rows[r])
                k++;
            else
                s->dropped[rows[r]] = 1;
        if (status == 0) {
            memcpy(rows, passed, sizeof *rows * (size_t)kept);
            *count = kept;
            t->filter_rows[i] += (uint64_t)kept;
            if (counted && t->plan->filter_numbers[i] != o->node->number)
                o->ctx->counts.rows_out[t->plan->filter_numbers[i]] += (uint64_t)kept;
        }
        arena_free(mem);
    }
    t->rows_kept += *count;
    return status;
}

int llm_run_stages(op *o, uint32_t *done, bool deciding, int64_t *rows, int64_t *count, err *e) {
    llm_state *s = o->state;
    int status = 0, stage;
    llm_rank_look(s, *done, rows, *count);
    while (status == 0 && (stage = llm_rank_next(s, *done, deciding)) >= 0) {
        llm_rank_note(o, *done, stage, s->decided_rows);
        status = run_stage(o, stage, *done, rows, count, e);
        *done |= 1u << stage;
        llm_rank_look(s, *done, rows, *count);
    }
    return status;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

int llm_kept_use(const llm_state *s) {
    for (int i = 0; i < s->nuses; i++)
        for (int k = 0; k < i && s->uses[i].prompt->data_first; k++)
            if (s->uses[k].leader == s->uses[i].leader && s->uses[k].stage != s->uses[i].stage)
                return (int)(s->uses[i].leader - s->uses);
    return -1;
}

int llm_rows_kept_at_once(op *o, int use, const input_order *order, int64_t *rows, err *e) {
    const use_run *u = &((llm_state *)o->state)->uses[use];
    const psm_result *psm = &order->psm;
    size_t token_bytes = BASE_MAX(llm_engine_info(u->engine)->kv_bytes_per_token, (size_t)1);
    llm_session *session;
    llm_memory memory;
    int status = runtime_session(o->ctx->llm, u->engine, &session, e);
    if (status)
        return status;
    llm_session_memory(session, &memory);
    double tokens = (double)memory.kv_budget_bytes / (double)token_bytes / KEPT_PART;
    double per_input = (double)(psm->total_units - psm->shared_units) / BASE_MAX(u->in->count, 1u) +
                       (double)u->prompt->head_tokens;
    double per_row = per_input * u->in->count / (double)BASE_MAX(u->in->needed_rows, 1);
    *rows = (int64_t)BASE_MIN(BASE_MAX(tokens / BASE_MAX(per_row, 1e-6), 1), 1e15);
    return 0;
}

int64_t *llm_rows_in_order(const llm_state *s, int use, const uint32_t *rank, arena *mem) {
    int64_t n = rowset_rows(s->rows),
            *rows = arena_alloc(mem, sizeof *rows * (size_t)BASE_MAX(n, 1));
    for (int64_t r = 0; r < n && !rank; r++)
        rows[r] = r;
    if (!rank)
        return rows;
    const llm_inputs *in = s->uses[use].in;
    int64_t *at = ARENA_ARRAY(mem, int64_t, (size_t)in->count + 2);
    for (int64_t r = 0; r < n; r++)
        at[in->of_row[r] == NO_INPUT ? 1 : rank[in->of_row[r]] + 2]++;
    for (uint32_t k = 1; k < in->count + 2; k++)
        at[k] += at[k - 1];
    for (int64_t r = 0; r < n; r++)
        rows[at[in->of_row[r] == NO_INPUT ? 0 : rank[in->of_row[r]] + 1]++] = r;
    return rows;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t llm_rows_wanted(const llm_state *s, int64_t *rows, int64_t count) {
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++)
        if (!s->dropped[rows[i]])
            rows[n++] = rows[i];
    return n;
}

void llm_sort_rows(int64_t *rows, int64_t count) {
    qsort(rows, (size_t)count, sizeof *rows, ascending);
}

/* Every step-th row that was not dropped, ascending. */
static int64_t *rows_left(const llm_state *s, int64_t step, arena *mem, int64_t *count) {
    int64_t n = rowset_rows(s->rows),
            *rows = arena_alloc(mem, sizeof *rows * (size_t)BASE_MAX(n, 1));
    *count = 0;
    for (int64_t r = 0; r < n; r += step)
        if (!s->dropped[r])
            rows[(*count)++] = r;
    return rows;
}

/* Chunk by chunk in the order of use `by`: through all stages, or (`deciding`) through those that
 * remove rows; *done: which these were. */
static int run_chunks(op *o, int by, int64_t first, int64_t most, bool deciding, uint32_t *done,
                      err *e) {
    llm_state *s = o->state;
    arena *mem = arena_new_in(o->ctx->space);
    int64_t n = rowset_rows(s->rows), size = first,
            *rows = llm_rows_in_order(s, by, s->uses[by].rank, mem);
    int status = 0;
    for (int64_t from = 0; from < n && status == 0; from += size, size = BASE_MIN(2 * size, most)) {
        size = BASE_MIN(BASE_MIN(size, most), n - from);
        int64_t count = size;
        count = llm_rows_wanted(s, rows + from, count);
        llm_sort_rows(rows + from, count);
        *done = 0;
        status = llm_run_stages(o, done, deciding, rows + from, &count, e);
        s->decided_rows += size;
    }
    arena_free(mem);
    return status;
}

/* A session serves one engine: going from one to the
 * other chunk by chunk would lose the KV each time. */
bool llm_has_one_engine(const llm_state *s) {
    for (int i = 1; i < s->nuses; i++)
        if (s->uses[i].engine != s->uses[0].engine)
            return false;
    return true;
}

/* Every row through every stage. */
static int run_all(op *o, err *e) {
    llm_state *s = o->state;
    bool chunks = llm_has_one_engine(s);
    int kept = chunks ? llm_kept_use(s) : -1;
    int64_t n = rowset_rows(s->rows), chunk = o->ctx->settings->llm_chunk, count;
    bool looks = chunks && chunk > 0 && n >= 2 * chunk && llm_rank_free(s);
    int64_t most = n;
    uint32_t done = 0;
    int status = kept >= 0 ? llm_rows_kept_at_once(o, kept, &s->uses[kept].order, &most, e) : 0;
    if (status == 0 && kept >= 0)
        status = run_chunks(o, kept, looks ? BASE_MIN(chunk, most) : most, most, false, &done, e);
    else if (status == 0 && looks)
        status = run_chunks(o, 0, chunk, n, true, &done, e);
    arena *mem = arena_new_in(o->ctx->space);
    int64_t *rows = rows_left(s, 1, mem, &count);
    if (status == 0)
        status = llm_run_stages(o, &done, false, rows, &count, e);
    arena_free(mem);
    s->decided_rows = n;
    return status;
}

/* Counting: every row passes. */
static int count_all(op *o, err *e) {
    llm_state *s = o->state;
    int status = 0;
    plan_actual *counted = ARENA_ARRAY(o->mem, plan_actual, s->nstages + 1);
    s->decided_rows = rowset_rows(s->rows);
    for (int i = 0; i < s->nstages; i++) {
        counted[i] = s->stages[i].actual;
        counted[i].rows = (uint64_t)s->decided_rows;
    }
    status = llm_count_stages(o, o->ctx->llm->counts, counted, e);
    for (int i = 0; i < s->nstages; i++)
        s->stages[i].actual = counted[i];
    return status;
}

/* A sample of the rows meets every stage, whatever its conditions. */
static int run_sample(op *o, err *e) {
    llm_state *s = o->state;
    int64_t n = rowset_rows(s->rows), count;
    arena *mem = arena_new_in(o->ctx->space);
    int64_t *rows = rows_left(s, BASE_MAX(1, n / o->ctx->llm->sample), mem, &count);
    int status = 0;
    for (int i = 0; i < s->nstages && status == 0; i++)
        status = llm_ask_stage(o, i, (1u << i) - 1, rows, count, e);
    arena_free(mem);
    s->decided_rows = n;
    return status;
}

/* All rows, or the next wave. */
static int decide_rows(op *o, err *e) {
    llm_state *s = o->state;
    const plan_demand *d = &o->node->pipeline.demand;
    if (o->ctx->count_only)
        return count_all(o, e);
    if (o->ctx->llm->sample == 0 && s->decided_rows == 0)
        llm_ask_known(o);
    int status = o->ctx->llm->sample > 0 ? run_sample(o, e)
                 : d->limit_hint > 0     ? llm_run_wave(o, e)
                 : d->top_n.n > 0        ? llm_run_rounds(o, e)
                                         : run_all(o, e);
    if (status == 0)
        llm_ask_remember(o);
    return status;
}

/* ---- handing out ----------------------------------------------------------------------------- */

/* The next rows that were decided and not dropped, up to a batch. */
static int next_rows(llm_state *s, int64_t *rows) {
    int n = 0;
    for (; s->emitted_rows < s->decided_rows && n < BATCH_ROWS; s->emitted_rows++)
        if (!s->dropped[s->emitted_rows])
            rows[n++] = s->emitted_rows;
    return n;
}

static int emit(op *o, const int64_t *rows, int count, batch **out, err *e) {
    arena_reset(o->pass);
    o->out = (batch){.rows = count, .ncols = o->node->ncols, .mem = o->pass};
    o->out.cols = ARENA_ARRAY(o->pass, column, o->node->ncols + 1);
    *out = &o->out;
    return llm_rows_columns(o, NULL, rows, count, &o->out, e);
}

static int llm_open(op *o, err *e) {
    llm_state *s = o->state;
    (void)e;
    s->scratch = arena_new();
    s->mem = arena_new_in(o->ctx->space);
    llm_stages_open(o);
    return 0;
}

static int llm_next(op *o, batch **out, err *e) {
    llm_state *s = o->state;
    int64_t rows[BATCH_ROWS];
    int count = 0, status = s->prepared ? 0 : prepare(o, e);
    *out = NULL;
    while (status == 0 && (count = next_rows(s, rows)) == 0 &&
           s->decided_rows < rowset_rows(s->rows))
        status = decide_rows(o, e);
    if (status || count == 0 || o->ctx->llm->sample > 0)
        return status; /* a sample's rows go nowhere: what they taught is kept */
    return emit(o, rows, count, out, e);
}

/* Figures line by line: what the top line shows happened in the operator as a whole. */
static void report_stages(op *o) {
    llm_state *s = o->state;
    plan_actual top = {.rows = o->actual.rows, .ms = op_own_ms(o), .idle = !o->asked, .bound = NAN};
    bool counting = o->ctx->count_only; /* no filter was applied */
    for (int i = 0; i < s->nstages; i++)
        top.ms -= s->stages[i].ms;
    top.ms = BASE_MAX(top.ms, 0);
    for (int i = 0; i < s->nstages; i++) {
        llm_stage *t = &s->stages[i];
        bool is_top = i + 1 == s->nstages && (counting || t->plan->nfilters == 0);
        t->actual.ms = t->ms;
        if (is_top) {
            t->actual.rows = top.rows;
            t->actual.ms += top.ms;
            t->actual.idle = top.idle;
        }
        op_report(o->ctx, t->plan->number, &t->actual);
        for (int k = 0; k < t->plan->nfilters && !counting; k++) {
            is_top = t->plan->filter_numbers[k] == o->node->number;
            op_report(o->ctx, t->plan->filter_numbers[k],
                      is_top ? &top : &(plan_actual){.rows = t->filter_rows[k], .bound = NAN});
        }
    }
}

static void llm_close(op *o) {
    llm_state *s = o->state;
    if (o->ctx->llm && s->prepared) {
        llm_ask_tell(o);
        runtime_figures(o->ctx->llm, &o->ctx->counts.summary.llm);
        runtime_memory(o->ctx->llm, &o->ctx->counts.summary.memory);
        watch_details(o->ctx, &s->progress, true);
        llm_publish(o, "done");
    }
    if (o->ctx->counts.actual)
        report_stages(o);
    /* the next statement may ask the same: it finds them, however soon it comes */
    if (s->progress.answers_kept > 0)
        cache_flush(llm_answers_cache(o->ctx));
    for (int i = 0; i < s->nuses; i++)
        prompt_free(s->uses[i].prompt);
    rowset_free(s->own_rows);
    arena_free(s->scratch);
    arena_free(s->mem);
}

const op_class op_llm = {.name = "LLM",
                         .state_bytes = sizeof(llm_state),
                         .open = llm_open,
                         .next = llm_next,
                         .close = llm_close,
                         .reports = true};
