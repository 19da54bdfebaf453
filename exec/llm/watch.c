/*
 * watch.c - what the live view shows of a running statement (branches of the prefix tree,
 * operators, the reused share of prompts), and pausing.
 *
 * Invariant: nothing here changes which prompts are sent, or their order. All work beyond recording
 * each prompt is done once when an LLM operator ends, and, only while the view is open, at most four
 * times a second.
 */
#include <string.h>
#include <time.h>

#include "prompt_tree_int.h"
#include "watch_int.h"

/* Minimum time between two collections of details. */
static const double DETAILS_S = 0.25;
/* PAUSE_LOOK_MS: time between two checks whether a paused statement has been resumed. */
enum { PAUSE_LOOK_MS = 20, TEXT_PERCENT = 100 };

/* ---- prompts --------------------------------------------------------------------------------- */

static void push_shared(exec_progress *p, int percent) {
    if (p->nshared == EXEC_SHARED) {
        memmove(p->shared, p->shared + 1, sizeof p->shared - sizeof p->shared[0]);
        p->nshared--;
    }
    p->shared[p->nshared++] = (uint8_t)percent;
}

void watch_prompt(exec_progress *p, const llm_event *event, const llm_inputs *in, uint32_t input,
                  const uint8_t *order) {
    if (event->prompt_tokens > 0)
        push_shared(p, (int)((int64_t)event->reused_tokens * TEXT_PERCENT / event->prompt_tokens));
    p->last_input[0] = 0;
    for (int k = in->nfields - 1; k >= 0; k--) {
        if (input_lacks(in, order[k], input))
            continue;
        utf8_copy(p->last_input, sizeof p->last_input,
                  in->fields[order[k]].text[in->value[order[k]][input]]);
        return;
    }
}

void watch_baseline(exec_progress *p, const plan_tokens *counted) {
    int i = 0;
    while (i < p->nbaselines && strcmp(p->baselines[i].name, counted->strategy) != 0)
        i++;
    if (i == EXEC_BASELINES)
        return;
    if (i == p->nbaselines) {
        p->baselines[i] = (exec_baseline){.computed_tokens = 0};
        utf8_copy(p->baselines[i].name, sizeof p->baselines[i].name, str_from(counted->strategy));
        p->nbaselines++;
    }
    p->baselines[i].prompt_tokens += counted->llm.prompt_tokens;
    p->baselines[i].computed_tokens += counted->llm.computed_tokens;
}

void watch_stored(llm_runtime *r, llm_span *const *spans, int nspans) {
    for (int i = 0; i < nspans; i++) {
        size_t count;
        llm_span_tokens(spans[i], &count);
        r->figures.stored_tokens += count;
    }
}

/* ---- details --------------------------------------------------------------------------------- */

/* Copies the beginning of `text` that fits, up to the end of a word. */
static void copy_words(char *out, size_t size, str text) {
    static const char more[] = " …";
    utf8_copy(out, text.n < size ? size : size - sizeof more + 1, text);
    if (text.n < size)
        return;
    char *end = strrchr(out, ' ');
    strcpy(end ? end : out + strlen(out), more);
}

static void collect_branches(const engine_session *x, exec_progress *p) {
    llm_branch found[EXEC_BRANCHES];
    buf text = {0};
    p->nbranches = llm_session_branches(x->session, found, EXEC_BRANCHES);
    for (int i = 0; i < p->nbranches; i++) {
        const llm_branch *b = &found[i];
        exec_branch *to = &p->branches[i];
        *to = (exec_branch){
            .depth = b->depth, .tokens = b->tokens, .prompts = b->fanout, .done = b->done};
        buf_clear(&text);
        prompt_branch_text(x->engine, b->first, b->nfirst, b->before, b->nbefore,
                           b->nfirst == b->tokens, &text);
        copy_words(to->text, sizeof to->text, buf_str(&text));
    }
    buf_free(&text);
}

static void collect_places(const engine_session *x, exec_progress *p) {
    llm_place found[EXEC_PLACES];
    p->nplaces = BASE_MIN(llm_session_places(x->session, found, EXEC_PLACES), (int)EXEC_PLACES);
    for (int i = 0; i < p->nplaces; i++) {
        const llm_place *from = &found[i];
        exec_place *to = &p->places[i];
        *to = (exec_place){.in_flight = from->in_flight,
                           .window = from->window,
                           .answered = from->answered,
                           .refused = from->refused,
                           .prompt_tokens = from->prompt,
                           .cached_tokens = from->cached,
                           .tokens_s = from->tokens_s,
                           .median_ms = from->median_ms,
                           .slow_ms = from->slow_ms};
        utf8_copy(to->url, sizeof to->url, str_from(from->url));
        utf8_copy(to->state, sizeof to->state, str_from(from->state));
    }
}

static void name_operator(char *out, size_t size, const explain_line *l) {
    const plan_node *n = l->node;
    if (l->kind == PLAN_SCAN) {
        size_t prefix = (size_t)snprintf(out, size, "scan ");
        utf8_copy(out + prefix, size - prefix, n->scan.table->name);
        return;
    }
    if (l->kind == PLAN_LLM_PIPELINE)
        snprintf(out, size, "LLM#%d", l->stage->sites[0].call->number);
    else
        snprintf(out, size, "%s",
                 l->kind == PLAN_SETOP ? set_op_name(n->setop.op) : plan_kind_name(l->kind));
    for (char *p = strchr(out, '_'); p; p = strchr(p, '_'))
        *p = ' ';
}

/* Sets depth[] of a pipeline's stages: the number of lines above a stage's first one that depend on
 * the stage. Stages that may run in either order can have the same depth. Returns the number of lines
 * of the longest chain of stages. */
static int stage_depths(const plan_node *n, int *depth) {
    int most = 0;
    for (int i = n->pipeline.nstages; i-- > 0;) {
        depth[i] = 0;
        for (int k = i + 1; k < n->pipeline.nstages; k++)
            if (n->pipeline.stages[k].after >> i & 1)
                depth[i] = BASE_MAX(depth[i], depth[k] + n->pipeline.stages[k].nfilters + 1);
        most = BASE_MAX(most, depth[i] + n->pipeline.stages[i].nfilters + 1);
    }
    return most;
}

/* Collects the lines of EXPLAIN in their order, without projections. */
static void collect_operators(const exec_ctx *ctx, const plan_node *n, int depth,
                              exec_progress *p) {
    const uint64_t *rows = ctx->counts.rows_out;
    int stages[PIPELINE_STAGES];
    explain_line line, below;
    bool pipeline = n && n->kind == PLAN_LLM_PIPELINE;
    int lines = pipeline ? stage_depths(n, stages) : n && n->kind != PLAN_PROJECT;
    for (int i = 0; n && explain_line_at(n, i, &line); i++) {
        if (p->noperators == EXEC_OPERATORS)
            return;
        if (line.kind == PLAN_PROJECT)
            continue;
        exec_operator *o = &p->operator_rows[p->noperators++];
        int in_pipeline = pipeline ? stages[line.stage - n->pipeline.stages] +
                                         line.stage->nfilters - 1 - line.filter
                                   : 0;
        *o = (exec_operator){.depth = depth + in_pipeline,
                             .model = line.kind == PLAN_LLM_PIPELINE,
                             .source = !n->left && !n->right,
                             .rows_out = rows[line.number]};
        if (explain_line_at(n, i + 1, &below))
            o->rows_in = rows[below.number];
        else
            o->rows_in =
                (n->left ? rows[n->left->number] : 0) + (n->right ? rows[n->right->number] : 0);
        name_operator(o->name, sizeof o->name, &line);
    }
    if (n) {
        collect_operators(ctx, n->left, depth + lines, p);
        collect_operators(ctx, n->right, depth + lines, p);
    }
}

int watch_operators(const plan_node *n) {
    if (!n)
        return 0;
    int own = n->kind == PLAN_LLM_PIPELINE ? n->pipeline.nstages : 0;
    return own + watch_operators(n->left) + watch_operators(n->right);
}

void watch_details(exec_ctx *ctx, exec_progress *p, bool last) {
    llm_runtime *r = ctx->llm;
    double now = clock_seconds();
    bool watched = ctx->view && atomic_load_explicit(&ctx->view->watched, memory_order_relaxed);
    if (!last && (!watched || now - r->watched_s < DETAILS_S))
        return;
    r->watched_s = now;
    if (r->sessions.current && r->sessions.current->session) {
        collect_branches(r->sessions.current, p);
        collect_places(r->sessions.current, p);
    }
    p->noperators = 0;
    if (ctx->counts.rows_out)
        collect_operators(ctx, ctx->plan->root, 0, p);
    if (r->cache) {
        cache_stats stats;
        cache_get_stats(r->cache, &stats);
        p->disk_bytes = stats.bytes;
        p->disk_budget_bytes = stats.budget_bytes;
    }
}

/* ---- pausing --------------------------------------------------------------------------------- */

static bool held(const exec_ctx *ctx) {
    bool cancelled = ctx->cancel && atomic_load_explicit(ctx->cancel, memory_order_relaxed);
    return ctx->view && atomic_load_explicit(&ctx->view->paused, memory_order_relaxed) &&
           !cancelled;
}

double watch_pause(const exec_ctx *ctx, exec_progress *p, void (*publish)(op *o, const char *phase),
                   op *o) {
    if (!held(ctx))
        return 0;
    double started = clock_seconds();
    p->paused = true;
    publish(o, "paused");
    while (held(ctx))
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_LOOK_MS * 1000000L}, NULL);
    p->paused = false;
    return clock_seconds() - started;
}
