/*
 * figures.c - figures of a finished statement: the summary line after it, and the list of .stats.
 */
#include "shell_int.h"

void shell_summary_line(const exec_summary *s, buf *out) {
    format_count(out, s->llm_inputs);
    const llm_stats *m = &s->llm;
    bool asked = m->prompt_tokens || s->answers_stored; /* false: EXPLAIN (TOKENS) counted rows */
    buf_printf(out, " %s %s, ", s->llm_inputs == 1 ? "row" : "rows", asked ? "asked" : "counted");
    progress_duration(out, s->seconds - s->held_seconds); /* like the view's clock */
    if (m->prompt_tokens) {
        double hit = 1 - (double)m->computed_tokens / (double)m->prompt_tokens;
        buf_printf(out, ", " WORDS_HIT_RATE " %.0f %%, ", 100 * BASE_MAX(hit, 0.0));
        format_count(out, m->computed_tokens);
        buf_append_c(out, " of ");
        format_count(out, m->prompt_tokens);
        buf_append_c(out, " tokens " WORDS_COMPUTED);
    }
    if (s->answers_stored) {
        buf_append_c(out, ", ");
        format_count(out, s->answers_stored);
        buf_append_c(out, s->answers_stored == 1 ? " answer known" : " " WORDS_KNOWN);
    }
}

static void stat_line(buf *out, const char *name, uint64_t n) {
    buf count = {0};
    format_count(&count, n);
    buf_printf(out, "%20s  %s\n", name, count.p);
    buf_free(&count);
}

void shell_figures(const exec_summary *s, buf *out) {
    buf_printf(out, "%20s  %.3f s\n", "time", s->seconds);
    stat_line(out, "rows", s->rows);
    if (s->space.file_peak_bytes > 0) {
        buf bytes = {0};
        buf_append_bytes(&bytes, s->space.file_peak_bytes);
        buf_printf(out, "%20s  %s\n", "in temporary files", bytes.p);
        buf_free(&bytes);
    }
    if (s->llm_inputs == 0)
        return;
    buf_printf(out, "%20s  %.3f s\n%20s  %.3f s\n", "in the model", s->llm_seconds,
               "ordering prompts", s->solve_seconds);
    if (s->held_seconds > 0)
        buf_printf(out, "%20s  %.3f s\n", "paused", s->held_seconds);
    stat_line(out, "LLM inputs", s->llm_inputs);
    stat_line(out, WORDS_INPUTS, s->distinct_inputs);
    stat_line(out, WORDS_KNOWN, s->answers_stored);
    if (s->answers_ended > 0)
        stat_line(out, "ended by max_tokens", s->answers_ended);
    if (s->prompts_shortened > 0)
        stat_line(out, "fields left out", s->prompts_shortened);
    stat_line(out, "requests", s->llm.requests);
    stat_line(out, WORDS_PROMPT, s->llm.prompt_tokens);
    stat_line(out, "of these shared head", s->llm.head_tokens);
    stat_line(out, WORDS_COMPUTED, s->llm.computed_tokens);
    stat_line(out, "reused from memory", s->llm.reused_memory);
    stat_line(out, "reused from disk", s->llm.reused_disk);
    stat_line(out, WORDS_OUTPUT, s->llm.output_tokens);
    stat_line(out, "model passes", s->llm.passes);
    if (s->llm.prompt_tokens)
        buf_printf(out, "%20s  %.1f %%\n", WORDS_HIT_RATE,
                   100 * (1 - (double)s->llm.computed_tokens / (double)s->llm.prompt_tokens));
    uint64_t body = s->llm.prompt_tokens - BASE_MIN(s->llm.head_tokens, s->llm.prompt_tokens);
    if (body && s->llm.head_tokens) {
        double saved = (double)s->llm.prompt_tokens - (double)s->llm.computed_tokens -
                       (double)s->llm.head_tokens;
        buf_printf(out, "%20s  %.1f %%\n", "without the head",
                   100 * BASE_MAX(saved, 0.0) / (double)body);
    }
}
