/*
 * view_state.c - what the live view knows of a run, gathered from the run's exec_progress.
 *
 * Invariant: a view_state depends only on the sequence of its updates. So a recording of these
 * updates shows the same pictures as the run did.
 */
#include <string.h>

#include "view_int.h"

void view_start(view_state *v, str statement, bool utf8) {
    *v = (view_state){.utf8 = utf8};
    size_t n = 0;
    char line[sizeof v->statement + 4]; /* utf8_copy cuts it between two characters */
    bool blank = true;                  /* runs of blanks become one */
    for (size_t i = 0; i < statement.n && n < sizeof line; i++) {
        bool space = statement.p[i] == 0 || strchr(" \t\r\n", statement.p[i]) != NULL;
        if (!space || !blank)
            line[n++] = space ? ' ' : statement.p[i];
        blank = space;
    }
    utf8_copy(v->statement, sizeof v->statement, (str){line, n});
}

static void push_sample(view_state *v, float hit) {
    if (v->nhit == VIEW_SAMPLES) {
        memmove(v->hit, v->hit + 1, sizeof v->hit - sizeof v->hit[0]);
        v->nhit--;
    }
    v->hit[v->nhit++] = hit;
}

static void push_answer(view_state *v, const exec_progress *x) {
    const view_answer *last = &v->answers[0];
    if (x->last_answer[0] == 0 || (v->nanswers && !strcmp(last->answer, x->last_answer) &&
                                   !strcmp(last->input, x->last_input)))
        return;
    memmove(v->answers + 1, v->answers, sizeof v->answers - sizeof v->answers[0]);
    v->nanswers = BASE_MIN(v->nanswers + 1, VIEW_ANSWERS);
    snprintf(v->answers[0].answer, sizeof v->answers[0].answer, "%s", x->last_answer);
    snprintf(v->answers[0].input, sizeof v->answers[0].input, "%s", x->last_input);
}

void view_add_baseline(view_state *v, const exec_baseline *more) {
    int i = 0;
    while (i < v->nbaselines && strcmp(v->baselines[i].name, more->name) != 0)
        i++;
    if (i == EXEC_BASELINES)
        return;
    if (i == v->nbaselines) {
        v->baselines[v->nbaselines++] = *more;
        return;
    }
    v->baselines[i].prompt_tokens += more->prompt_tokens;
    v->baselines[i].computed_tokens += more->computed_tokens;
}

/* Baselines counted before the run (estimate_baselines) cover all operators: no more are needed. */
bool view_wants_baselines(const view_state *v) {
    bool have_all = v->nbaselines > 0 && v->counted_operator == 0;
    return v->panel == PANEL_STRATEGIES && !have_all &&
           v->counted_operator != v->now.operator_number;
}

static void take_baselines(view_state *v, const exec_progress *x) {
    if (x->nbaselines == 0 || x->operator_number == v->counted_operator)
        return;
    v->counted_operator = x->operator_number;
    for (int i = 0; i < x->nbaselines; i++)
        view_add_baseline(v, &x->baselines[i]);
}

void view_update(view_state *v, const exec_progress *x) {
    v->now = *x;
    push_answer(v, x);
    take_baselines(v, x);
    /* Answers arrive in groups, one per pass of the engine: a single interval is too noisy. */
    if (!rates_update(&v->rates, x, x->seconds, 0.5, 0.2))
        return;
    const llm_figures *a = &v->mark, *b = &x->llm;
    uint64_t seen_before = a->reused_memory + a->reused_disk,
             seen = b->reused_memory + b->reused_disk;
    bool grew = seen >= seen_before && b->computed_tokens >= a->computed_tokens;
    double fresh = grew ? (double)(b->computed_tokens - a->computed_tokens) : 0;
    double reused = grew ? (double)(seen - seen_before) : 0;
    if (fresh + reused > 0) {
        v->hit_now = reused / (fresh + reused);
        push_sample(v, (float)v->hit_now);
    }
    v->mark = x->llm;
}

void view_finish(view_state *v, const exec_progress *x, const char *outcome) {
    v->finished = true;
    view_update(v, x);
    snprintf(v->now.phase, sizeof v->now.phase, "%s", outcome);
}

double view_tokens_per_second(const view_state *v) {
    enum { LEAST_MS = 100 }; /* the time of fewer tokens says little */
    const llm_figures *m = &v->now.llm;
    return m->prefill_ms > LEAST_MS
               ? (double)(m->computed_tokens + m->choice_tokens) * 1e3 / m->prefill_ms
               : v->now.prefill_tok_s;
}

uint64_t view_tokens_without_reuse(const view_state *v) {
    const llm_figures *m = &v->now.llm;
    return m->reused_memory + m->reused_disk + m->computed_tokens + m->stored_tokens;
}

double view_seconds_of(const view_state *v, const exec_baseline *b) {
    const exec_progress *x = &v->now;
    double rate = view_tokens_per_second(v);
    if (rate < 1 || x->rows_done == 0)
        return 0;
    double rest = BASE_MAX(x->seconds - (double)x->llm.computed_tokens / rate, 0.0);
    double load = BASE_MIN(x->llm.load_ms / 1e3, rest);
    double other = (rest - load) / (double)x->rows_done;
    return load + (double)b->computed_tokens / rate +
           other * (double)BASE_MAX(x->rows_total, x->rows_done);
}

double view_speed_up(const view_state *v) {
    const exec_progress *x = &v->now;
    double rate = view_tokens_per_second(v);
    uint64_t saved = view_tokens_without_reuse(v) - x->llm.computed_tokens;
    return rate >= 1 && x->seconds > 0 ? 1 + (double)saved / rate / x->seconds : 0;
}
