/*
 * llm_run.c - sends rows through the stages of a pipeline, all at once or chunk by chunk.
 *
 * Chunks serve two purposes. If filters may change places once it is known which share of rows they
 * keep, the first chunk is small and later chunks grow. If a later stage asks about data whose KV
 * an earlier stage computed, a chunk has at most as many rows as the KV memory can hold.
 */
#include <string.h>

#include "op_llm_int.h"
#include "ops/op_int.h"

/* ---- stage by stage -------------------------------------------------------------------------- */

/* Adds the work done since `before` to this stage: no other stage has run since then. */
static void add_work(op *o, llm_stage *t, const llm_figures *before) {
    llm_figures now;
    runtime_figures(o->ctx->llm, &now);
    llm_figures_add_since(&t->actual.llm, before, &now);
    t->tokens += now.computed_tokens - before->computed_tokens + now.choice_tokens -
                 before->choice_tokens +
                 (uint64_t)OUTPUT_WEIGHT * (now.output_tokens - before->output_tokens);
}

int llm_run_sender(op *o, int stage, uint32_t done, const int64_t *rows, int64_t count, err *e) {
    llm_state *s = o->state;
    llm_stage *t = &s->stages[stage];
    llm_figures before;
    s->stage_started_s = clock_seconds();
    s->progress.operator_number = s->operators_before + stage + 1;
    runtime_figures(o->ctx->llm, &before);
    int status = llm_send_stage(&s->sender, stage, done, rows, count, e);
    add_work(o, t, &before);
    double seconds = clock_seconds() - s->stage_started_s;
    t->ms += 1e3 * seconds;
    o->ctx->counts.summary.llm_seconds += seconds;
    return status;
}

/* Runs one stage on rows[0..*count), and keeps the rows that pass. */
static int run_stage(op *o, int stage, uint32_t done, int64_t *rows, int64_t *count, err *e) {
    llm_state *s = o->state;
    llm_stage *t = &s->stages[stage];
    int64_t before = *count, kept;
    bool counted = o->ctx->counts.rows_out != NULL;
    int status = llm_run_sender(o, stage, done, rows, before, e);
    t->rows_in += before;
    t->actual.rows += (uint64_t)before;
    if (counted)
        o->ctx->counts.rows_out[t->plan->number] +=
            t->plan->number == o->node->number ? 0 : (uint64_t)before;
    for (int i = 0; i < t->plan->nfilters && status == 0 && s->mode->filters; i++) {
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
    llm_rank_count_inputs(s, *done, rows, *count);
    while (status == 0 && (stage = llm_rank_next(s, *done, deciding)) >= 0) {
        llm_rank_explain_swap(o, *done, stage, s->decided_rows);
        status = run_stage(o, stage, *done, rows, count, e);
        *done |= 1u << stage;
        llm_rank_count_inputs(s, *done, rows, *count);
    }
    return status;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Sends the rows through the stages chunk by chunk, in the order of call site `by`. The first chunk
 * has `first` rows, each later chunk twice as many as the chunk before, but at most `most`.
 * `deciding`: only stages that remove rows, and stages that these depend on. *done: the stages that
 * the last chunk has been through. */
static int run_chunks(op *o, int by, int64_t first, int64_t most, bool deciding, uint32_t *done,
                      err *e) {
    llm_state *s = o->state;
    arena *mem = arena_new_in(o->ctx->space);
    int64_t n = rowset_rows(s->rows), size = first,
            *rows = llm_rows_in_order(s, by, s->sites[by].order, mem);
    int status = 0;
    for (int64_t from = 0; from < n && status == 0; from += size, size = BASE_MIN(2 * size, most)) {
        size = BASE_MIN(BASE_MIN(size, most), n - from);
        int64_t count = size;
        count = llm_drop_filtered_rows(s, rows + from, count);
        llm_sort_rows(rows + from, count);
        *done = 0;
        status = llm_run_stages(o, done, deciding, rows + from, &count, e);
        s->decided_rows += size;
    }
    arena_free(mem);
    return status;
}

int llm_run_all(op *o, err *e) {
    llm_state *s = o->state;
    bool chunks = llm_may_chunk(o);
    int kept = chunks ? llm_shared_prefix_site(s) : -1;
    int64_t n = rowset_rows(s->rows), chunk = o->ctx->settings->llm_chunk, count;
    bool adapts = chunks && chunk > 0 && n >= 2 * chunk && llm_order_is_flexible(s);
    int64_t most = n;
    uint32_t done = 0;
    int status = kept >= 0 ? llm_rows_kept_at_once(o, kept, s->sites[kept].order, &most, e) : 0;
    if (status == 0 && kept >= 0)
        status = run_chunks(o, kept, adapts ? BASE_MIN(chunk, most) : most, most, false, &done, e);
    else if (status == 0 && adapts)
        status = run_chunks(o, 0, chunk, n, true, &done, e);
    arena *mem = arena_new_in(o->ctx->space);
    int64_t *rows = llm_rows_left(s, 1, mem, &count);
    if (status == 0)
        status = llm_run_stages(o, &done, false, rows, &count, e);
    arena_free(mem);
    s->decided_rows = n;
    return status;
}

int llm_run_next(op *o, err *e) {
    const plan_demand *d = &o->node->pipeline.demand;
    return d->limit_hint > 0 ? llm_run_limit_batch(o, e)
           : d->top_n.n > 0  ? llm_run_top_n(o, e)
                             : llm_run_all(o, e);
}

int llm_run_sample(op *o, err *e) {
    llm_state *s = o->state;
    int64_t n = rowset_rows(s->rows), count;
    arena *mem = arena_new_in(o->ctx->space);
    int64_t *rows = llm_rows_left(s, BASE_MAX(1, n / o->ctx->llm->sample), mem, &count);
    int status = 0;
    for (int i = 0; i < s->nstages && status == 0; i++)
        status = llm_run_sender(o, i, (1u << i) - 1, rows, count, e);
    arena_free(mem);
    s->decided_rows = n;
    return status;
}
