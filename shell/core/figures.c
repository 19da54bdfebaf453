/*
 * figures.c - figures of a finished statement: the summary line after it, and the list of .stats.
 */
#include <string.h>

#include "shell_int.h"

void shell_summary_line(const exec_summary *s, buf *out) {
    const llm_figures *m = &s->llm;
    buf_append_count(out, m->inputs);
    /* false: EXPLAIN (TOKENS) only counted rows */
    bool asked = m->prompt_tokens || m->answers_stored;
    buf_printf(out, " %s %s, ", m->inputs == 1 ? "row" : "rows", asked ? "asked" : "counted");
    if (asked && m->distinct_inputs != m->inputs) {
        buf_append_count(out, m->distinct_inputs);
        buf_append_c(out, m->distinct_inputs == 1 ? " distinct input, " : " " WORDS_INPUTS ", ");
    }
    /* The time is without pauses, like the view's clock. */
    progress_duration(out, s->seconds - s->held_seconds);
    if (m->prompt_tokens) {
        buf_printf(out, ", " WORDS_HIT_RATE " %.0f %%, ", 100 * BASE_MAX(llm_hit_rate(m), 0.0));
        buf_append_count(out, m->computed_tokens);
        buf_append_c(out, " of ");
        buf_append_count(out, m->prompt_tokens);
        buf_append_c(out, " tokens " WORDS_COMPUTED);
        buf_append_c(out, m->unreported > 0 ? " (expected)" : m->served > 0 ? " (reported)" : "");
    }
    if (m->money > 0) { /* of a server's model that has prices */
        buf_append_c(out, ", ");
        buf_append_money(out, m->money, s->currency);
    }
    if (m->answers_stored) {
        buf_append_c(out, ", ");
        buf_append_count(out, m->answers_stored);
        buf_append_c(out, m->answers_stored == 1 ? " answer known" : " " WORDS_KNOWN);
    }
    if (s->failed > 0) {
        buf_append_c(out, ", ");
        buf_append_count(out, s->failed);
        buf_append_c(out, " failed");
    }
    if (s->answers[0] != 0)
        buf_printf(out, "\n%s", s->answers);
}

static void stat_line(buf *out, const char *name, uint64_t n) {
    buf count = {0};
    buf_append_count(&count, n);
    buf_printf(out, "%20s  %s\n", name, count.p);
    buf_free(&count);
}

static void bytes_line(buf *out, const char *name, uint64_t bytes) {
    buf text = {0};
    buf_append_bytes(&text, bytes);
    buf_printf(out, "%20s  %s\n", name, text.p);
    buf_free(&text);
}

void shell_figures(const exec_summary *s, buf *out) {
    enum { MEMORY_SHOWN = 1 << 20 }; /* what operators keep is shown from so many bytes on */
    const llm_figures *m = &s->llm;
    buf_printf(out, "%20s  %.3f s\n", "time", s->seconds);
    stat_line(out, "rows", s->rows);
    if (s->space.heap_peak_bytes >= MEMORY_SHOWN || s->space.file_peak_bytes > 0)
        bytes_line(out, "kept in memory", s->space.heap_peak_bytes);
    if (s->space.file_peak_bytes > 0)
        bytes_line(out, "in temporary files", s->space.file_peak_bytes);
    if (m->inputs == 0)
        return;
    buf_printf(out, "%20s  %.3f s\n%20s  %.3f s\n", "in the model", s->llm_seconds,
               "ordering prompts", s->solve_seconds);
    if (s->held_seconds > 0)
        buf_printf(out, "%20s  %.3f s\n", "paused", s->held_seconds);
#define COUNTER_LINE(name, label, always, key)                                                     \
    if (*(label) && ((always) || m->name > 0))                                                     \
        stat_line(out, label, m->name);
    LLM_COUNTERS(COUNTER_LINE)
#undef COUNTER_LINE
    if (s->failed > 0)
        stat_line(out, "failed", s->failed);
    if (m->held_ms > 0)
        buf_printf(out, "%20s  %.3f s\n", "held back by limits", m->held_ms / 1e3);
    if (m->money > 0) {
        buf_printf(out, "%20s  ", "cost");
        buf_append_money(out, m->money, s->currency);
        buf_append_char(out, '\n');
    }
    str answers = str_from(s->answers);
    while (answers.n > 0) {
        str line = str_split_next(&answers, '\n');
        buf_printf(out, "%20s  %.*s\n", "answers", (int)line.n, line.p);
    }
    if (m->prompt_tokens)
        buf_printf(out, "%20s  %.1f %%%s\n", WORDS_HIT_RATE, 100 * llm_hit_rate(m),
                   m->unreported > 0 ? " (expected: the server does not report cached tokens)"
                   : m->served > 0   ? " (reported)"
                                     : "");
    uint64_t body = m->prompt_tokens - BASE_MIN(m->head_tokens, m->prompt_tokens);
    if (body && m->head_tokens) {
        double saved =
            (double)m->prompt_tokens - (double)m->computed_tokens - (double)m->head_tokens;
        buf_printf(out, "%20s  %.1f %%\n", "without the head",
                   100 * BASE_MAX(saved, 0.0) / (double)body);
    }
}
