/*
 * try_report.c - prints what .try and .agree have found out: tables of texts.
 *
 * Invariant: what is printed depends on the arguments only.
 */
#include <math.h>

#include "try_int.h"

/* ---- tables ---------------------------------------------------------------------------------- */

enum { TABLE_CLASSES = 16, NAME_COLUMNS = 16 };

/* A table of texts: row 0 is the heading. The first column is aligned left, others right. */
typedef struct text_table {
    arena *mem;
    int ncols, nrows;
    const char **cells; /* [nrows][ncols]; NULL: empty */
} text_table;

static text_table table_new(arena *mem, int nrows, int ncols) {
    return (text_table){mem, ncols, nrows,
                        ARENA_ARRAY(mem, const char *, (size_t)nrows *(size_t)ncols)};
}

static const char **cell(const text_table *t, int row, int col) {
    return &t->cells[row * t->ncols + col];
}

static int cell_width(const text_table *t, int row, int col) {
    return utf8_width(str_from(*cell(t, row, col)));
}

static void table_print(const text_table *t, buf *out) {
    int *widths = ARENA_ARRAY(t->mem, int, t->ncols);
    for (int r = 0; r < t->nrows; r++)
        for (int k = 0; k < t->ncols; k++)
            widths[k] = BASE_MAX(widths[k], cell_width(t, r, k));
    for (int r = 0; r < t->nrows; r++) {
        for (int k = 0; k < t->ncols; k++) {
            int pad = widths[k] - cell_width(t, r, k) + (k > 0 ? 2 : 0);
            format_pad(out, k > 0 ? pad : 0);
            buf_append_str(out, str_from(*cell(t, r, k)));
            format_pad(out, k > 0 ? 0 : pad);
        }
        while (out->n > 0 && out->p[out->n - 1] == ' ')
            out->p[--out->n] = 0;
        buf_append_char(out, '\n');
    }
}

static const char *percent(arena *mem, double share) {
    return isnan(share) ? "-" : arena_printf(mem, "%.1f %%", 100 * share);
}

static const char *count(arena *mem, uint64_t n) {
    buf b = {0};
    buf_append_count(&b, n);
    const char *text = arena_strndup(mem, b.p, b.n);
    buf_free(&b);
    return text;
}

/* A class's name in one line, cut to NAME_COLUMNS. */
static const char *class_name(const classes *c, int class) {
    str name = c->names[class];
    buf b = {0};
    size_t fits = utf8_fit(name, NAME_COLUMNS);
    if (fits < name.n)
        fits = utf8_fit(name, NAME_COLUMNS - 1);
    format_visible(&b, (str){name.p, fits}, true);
    buf_append_c(&b, fits < name.n ? "…" : "");
    const char *text = arena_strndup(c->mem, b.n ? b.p : "", b.n);
    buf_free(&b);
    return text;
}

/* ---- .try ------------------------------------------------------------------------------------ */

static const char *hit_rate(const llm_figures *m, arena *mem) {
    if (m->prompt_tokens == 0)
        return m->answers_stored > 0 ? "known" : "-";
    return arena_printf(mem, "%.0f %%", 100 * BASE_MAX(llm_hit_rate(m), 0.0));
}

/* Without loading the model, which only the first form does. */
static double model_seconds(const llm_figures *m) {
    return (m->prefill_ms + m->decode_ms + m->store_ms) / 1000;
}

static void print_known(const variant *v, int n, buf *out) {
    uint64_t known = 0;
    for (int i = 0; i < n; i++)
        known += v[i].cost.llm.answers_stored;
    if (known == 0)
        return;
    buf_append_count(out, known);
    buf_append_c(out, known == 1 ? " answer was" : " answers were");
    buf_append_c(out, " known and not asked again; the column tokens includes their prompts\n");
}

void try_costs(const variant *v, int n, const variant *best, const classes *c, arena *mem,
               buf *out) {
    static const char *const scored[] = {"agreement", "balanced", "AUC"};
    static const char *const costs[] = {"tokens", "computed", "hit rate", "time"};
    int nscores = v->truth ? (int)BASE_COUNT(scored) : 0, at = 2 + nscores;
    bool baseline = v->truth && v->scores.commonest >= 0;
    text_table t = table_new(mem, n + 1 + baseline, at + (int)BASE_COUNT(costs));
    *cell(&t, 0, 0) = "";
    *cell(&t, 0, 1) = "rows";
    for (int k = 0; k < nscores; k++)
        *cell(&t, 0, 2 + k) = scored[k];
    for (size_t k = 0; k < BASE_COUNT(costs); k++)
        *cell(&t, 0, at + (int)k) = costs[k];
    for (int i = 0; i < n; i++) {
        const llm_figures *m = &v[i].cost.llm;
        const scores *s = &v[i].scores;
        *cell(&t, i + 1, 0) = arena_printf(mem, "%s %s", &v[i] == best ? "*" : " ", v[i].name);
        *cell(&t, i + 1, 1) = count(mem, v[i].truth ? s->rows : v[i].rows);
        if (v->truth) {
            *cell(&t, i + 1, 2) = percent(mem, s->agreement);
            *cell(&t, i + 1, 3) = percent(mem, s->balanced);
            *cell(&t, i + 1, 4) = isnan(s->auc) ? "-" : arena_printf(mem, "%.3f", s->auc);
        }
        *cell(&t, i + 1, at) = count(mem, m->prompt_tokens + m->stored_tokens);
        *cell(&t, i + 1, at + 1) = count(mem, m->computed_tokens);
        *cell(&t, i + 1, at + 2) = hit_rate(m, mem);
        *cell(&t, i + 1, at + 3) = arena_printf(mem, "%.2f s", model_seconds(m));
    }
    if (baseline) {
        const scores *s = &v->scores;
        int known = 0;
        for (int k = 0; k < s->n; k++)
            known += scores_of_truth(s, k) > 0;
        *cell(&t, n + 1, 0) = arena_printf(mem, "  (always '%s')", class_name(c, s->commonest));
        *cell(&t, n + 1, 1) = count(mem, s->rows);
        *cell(&t, n + 1, 2) = percent(mem, s->commonest_agreement);
        *cell(&t, n + 1, 3) = percent(mem, 1.0 / known);
    }
    table_print(&t, out);
    print_known(v, n, out);
}

static void print_fallen(const variant *v, const classes *c, buf *out) {
    uint64_t none = 0, *rows = ARENA_ARRAY(c->mem, uint64_t, c->n + 1);
    const char *comma = "";
    for (size_t i = 0; i < v->rows; i++)
        if (v->answer[i] == SCORES_NONE)
            none++;
        else
            rows[v->answer[i]]++;
    buf_printf(out, "%s:", v->name);
    for (int k = 0; k < c->n; k++) {
        if (rows[k] == 0)
            continue;
        buf_printf(out, "%s %s ", comma, class_name(c, k));
        buf_append_count(out, rows[k]);
        comma = ",";
    }
    if (none)
        buf_printf(out, "%s NULL %s", comma, count(c->mem, none));
    buf_append_char(out, '\n');
}

void try_answers(const variant *v, int n, const classes *c, arena *mem, buf *out) {
    for (int i = 0; i < n; i++)
        print_fallen(&v[i], c, out);
    if (n < 2)
        return;
    text_table t = table_new(mem, n + 1, n);
    *cell(&t, 0, 0) = "agreement with";
    for (int i = 0; i < n; i++) {
        *cell(&t, i + 1, 0) = arena_printf(mem, "%d %s", i + 1, v[i].name);
        for (int k = 0; k < i; k++) {
            *cell(&t, 0, k + 1) = arena_printf(mem, "%d", k + 1);
            *cell(&t, i + 1, k + 1) = percent(
                mem, scores_equal(v[i].answer, v[k].answer, BASE_MIN(v[i].rows, v[k].rows)));
        }
    }
    buf_append_char(out, '\n');
    table_print(&t, out);
}

/* ---- agreement and the confusion table ------------------------------------------------------- */

void try_confusion(const scores *s, const char *corner, const classes *c, arena *mem, buf *out) {
    int *shown = ARENA_ARRAY(mem, int, s->n + 1), n = 0;
    for (int k = 0; k < s->n; k++)
        if (scores_of_truth(s, k) > 0 || scores_of_answer(s, k) > 0)
            shown[n++] = k;
    if (n > TABLE_CLASSES) {
        buf_printf(out, "%s: no table of %d classes\n", corner, n);
        return;
    }
    text_table t = table_new(mem, n + 1, n + 2);
    *cell(&t, 0, 0) = corner;
    *cell(&t, 0, n + 1) = "recall";
    for (int i = 0; i < n; i++) {
        *cell(&t, i + 1, 0) = *cell(&t, 0, i + 1) = class_name(c, shown[i]);
        for (int k = 0; k < n; k++)
            *cell(&t, i + 1, k + 1) = count(mem, s->table[shown[i] * s->n + shown[k]]);
        *cell(&t, i + 1, n + 1) = percent(mem, scores_recall(s, shown[i]));
    }
    table_print(&t, out);
}

void try_agreement(const scores *s, const char *truth, const char *answer, const classes *c,
                   arena *mem, buf *out) {
    buf_printf(out, "%s %s", count(mem, s->rows), s->rows == 1 ? "row" : "rows");
    if (s->rows > 0)
        buf_printf(out, ": agreement %s, balanced %s; always '%s': agreement %s",
                   percent(mem, s->agreement), percent(mem, s->balanced),
                   class_name(c, s->commonest), percent(mem, s->commonest_agreement));
    if (s->no_truth || s->no_answer)
        buf_printf(out, "\nnot counted: %s without %s, %s without %s", count(mem, s->no_truth),
                   truth, count(mem, s->no_answer), answer);
    buf_append_char(out, '\n');
    if (s->rows > 0)
        try_confusion(s, arena_printf(mem, "%s \\ %s", truth, answer), c, mem, out);
}
