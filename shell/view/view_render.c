/*
 * view_render.c - draws a view_state into an array of cells, without a terminal.
 *
 * Invariant: view_render is a pure function and writes every one of the w × h cells and no other.
 * On a small screen the least important panels are left out.
 */
#include <string.h>

#include "view_int.h"

enum {
    LABEL_COLUMNS = 11,
    OPERATOR_COLUMNS = 30,
    OPERATOR_NARROW = 16,
    SMALL_W = 60,
    SMALL_H = 12,
    TINY_W = 40,
    TINY_H = 6
};

/* ---- drawing --------------------------------------------------------------------------------- */

typedef struct canvas {
    const view_state *v;
    view_cell *cells;
    int w, h; /* size of the screen in columns and rows */
    int row;  /* the next row to draw */
} canvas;

static void put_cell(canvas *c, int x, int y, str grapheme, view_attr attr) {
    view_cell *cell = &c->cells[y * c->w + x];
    size_t n = BASE_MIN(grapheme.n, sizeof cell->text - 1);
    memcpy(cell->text, grapheme.p, n);
    cell->text[n] = 0;
    cell->attr = (uint8_t)attr;
}

/* Writes text from column x on, cut at the right edge. Returns the column after the text. */
static int put(canvas *c, int x, int y, view_attr attr, const char *text) {
    if (y < 0 || y >= c->h)
        return x;
    for (str s = str_from(text); s.n && x < c->w;) {
        size_t n = utf8_fit(s, 1);
        int width = 1;
        if (n == 0) {
            n = utf8_fit(s, 2);
            width = 2;
        }
        if (n == 0 || x + width > c->w)
            break;
        put_cell(c, x, y, (str){s.p, n}, attr);
        if (width == 2)
            put_cell(c, x + 1, y, (str){"", 0}, attr);
        x += width;
        s = (str){s.p + n, s.n - n};
    }
    return x;
}

static int put_buf(canvas *c, int x, view_attr attr, buf *text) {
    x = put(c, x, c->row, attr, text->p ? text->p : "");
    buf_free(text);
    return x;
}

/* Writes text from outside the program, such as names, with control characters made visible. */
static int put_visible(canvas *c, int x, view_attr attr, const char *text) {
    buf shown = {0};
    format_visible(&shown, str_from(text), c->v->utf8);
    return put_buf(c, x, attr, &shown);
}

static void label(canvas *c, const char *text) {
    put_visible(c, 1, VIEW_DIM, text);
}

/* Draws a bar of `columns`, filled to the fraction `part`. In UTF-8 the steps are 1/8 column. */
static int put_bar(canvas *c, int x, int columns, double part, view_attr attr) {
    int steps = (int)(BASE_MIN(BASE_MAX(part, 0.0), 1.0) * columns * 8 + 0.5);
    for (int i = 0; i < columns; i++)
        put(c, x + i, c->row, attr, progress_bar(steps - 8 * i, c->v->utf8));
    return x + columns;
}

/* Returns the width of a bar that `text` columns of text follow: a third of the screen, less on a
 * narrow screen. */
static int bar_columns(const canvas *c, int text) {
    return BASE_MIN(c->w / 3, BASE_MAX(c->w - LABEL_COLUMNS - 1 - text, 8));
}

/* Writes a count, right-aligned in columns x to x + 9. */
static void put_count(canvas *c, int x, uint64_t n) {
    enum { COUNT_COLUMNS = 10 };
    buf text = {0};
    buf_append_count(&text, n);
    put_buf(c, x + COUNT_COLUMNS - BASE_MIN((int)text.n, (int)COUNT_COLUMNS), VIEW_PLAIN, &text);
}

static void clock_text(buf *out, double seconds) {
    long s = (long)seconds;
    if (s >= 3600)
        buf_printf(out, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        buf_printf(out, "%ld:%02ld", s / 60, s % 60);
}

static void draw_title(canvas *c) {
    const exec_progress *x = &c->v->now;
    for (int i = 0; i < c->w; i++)
        put_cell(c, i, c->row, STR(" "), VIEW_TITLE);
    buf text = {0}, time = {0};
    buf_append_c(&text, " kvasir");
    if (x->operators)
        buf_printf(&text, "  LLM %d of %d", x->operator_number, x->operators);
    buf_append_c(&text, "  ");
    format_visible(&text, str_from(x->phase), c->v->utf8);
    if (c->v->finished)
        progress_duration(&time, x->seconds);
    else
        clock_text(&time, x->seconds);
    buf_append_char(&time, ' ');
    put_buf(c, 0, VIEW_TITLE, &text);
    put_buf(c, BASE_MAX(c->w - utf8_width(buf_str(&time)), 0), VIEW_TITLE, &time);
    c->row++;
}

static void draw_statement(canvas *c) {
    put_visible(c, 1, VIEW_DIM, c->v->statement);
    c->row++;
}

static void append_inputs(buf *out, const exec_progress *x) {
    buf_append_count(out, x->rows_done);
    buf_append_c(out, " of ");
    buf_append_count(out, x->rows_total);
}

/* Returns the answers per second: of the last moments, or of the whole run if it is finished. */
static double answer_rate(const view_state *v) {
    const exec_progress *x = &v->now;
    uint64_t known = BASE_MIN(x->llm.answers_stored, x->rows_done);
    if (!v->finished)
        return v->rates.rows;
    return (double)(x->rows_done - known) / BASE_MAX(x->llm_seconds, 1e-3);
}

static void draw_inputs(canvas *c) {
    const exec_progress *x = &c->v->now;
    double rate = answer_rate(c->v);
    buf text = {0};
    label(c, WORDS_INPUTS_SHORT);
    double part = x->rows_total ? (double)x->rows_done / (double)x->rows_total : 0;
    int at = put_bar(c, LABEL_COLUMNS, bar_columns(c, 30), part, VIEW_GOOD) + 1;
    append_inputs(&text, x);
    if (rate > 0) {
        buf_append_c(&text, "  ");
        if (rate < 100)
            buf_printf(&text, "%.1f", rate);
        else
            buf_append_count(&text, (uint64_t)rate);
        buf_append_c(&text, "/s");
    }
    if (!c->v->finished && rate > 0 && x->rows_total > x->rows_done) {
        buf_append_c(&text, "  ETA ");
        progress_duration(&text, (double)(x->rows_total - x->rows_done) / rate);
    }
    if (x->llm.answers_stored) {
        buf_append_c(&text, "  ");
        buf_append_count(&text, x->llm.answers_stored);
        buf_append_c(&text, " known");
    }
    put_buf(c, at, VIEW_PLAIN, &text);
    c->row++;
}

/* Returns a block that fills the fraction `part` of a row's height. */
static const char *step(bool utf8, double part) {
    static const char *const steps[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {"_", "_", ".", ".", "-", "-", "=", "#"};
    int k = BASE_MIN(BASE_MAX((int)(part * 8), 0), 7);
    return utf8 ? steps[k] : ascii[k];
}

static void draw_spark(canvas *c, int x, int columns) {
    const view_state *v = c->v;
    for (int i = BASE_MAX(v->nhit - columns, 0); i < v->nhit; i++)
        put(c, x++, c->row, VIEW_GOOD, step(v->utf8, v->hit[i]));
}

static void draw_hit(canvas *c) {
    const view_state *v = c->v;
    buf text = {0};
    label(c, WORDS_HIT_RATE);
    double average = 100 * progress_hit_rate(&v->now.llm);
    if (v->finished && v->now.llm.prompt_tokens == 0)
        buf_append_c(&text, "no prompt was sent");
    else if (v->finished)
        buf_printf(&text, "%.0f %%  ", average);
    else
        buf_printf(&text, "now %3.0f %%  average %3.0f %%  ", 100 * v->hit_now, average);
    int at = put_buf(c, LABEL_COLUMNS, VIEW_BOLD, &text);
    draw_spark(c, at, c->w - at - 1);
    c->row++;
}

/* Draws one bar that shows where prompt tokens came from: KV in memory, KV on disk, stored answers
 * (whose prompts were never sent), computed. */
static void draw_split(canvas *c) {
    const exec_progress *x = &c->v->now;
    const struct {
        const char *name;
        uint64_t tokens;
        view_attr attr;
        bool always;
    } parts[] = {{"memory", x->llm.reused_memory, VIEW_GOOD, true},
                 {"disk", x->llm.reused_disk, VIEW_DISK, true},
                 {"known", x->llm.stored_tokens, VIEW_KNOWN, false},
                 {WORDS_COMPUTED, x->llm.computed_tokens, VIEW_WORK, true}};
    enum { TEXT_COLUMNS = 52 };
    double all = 0, before = 0;
    int columns = bar_columns(c, TEXT_COLUMNS);
    int at = LABEL_COLUMNS + columns + 1;
    for (size_t i = 0; i < BASE_COUNT(parts); i++)
        all += (double)parts[i].tokens;
    label(c, "tokens");
    for (size_t i = 0; i < BASE_COUNT(parts); i++) {
        double part = all > 0 ? (double)parts[i].tokens / all : 0;
        int from = (int)(before * columns + 0.5), to = (int)((before + part) * columns + 0.5);
        put_bar(c, LABEL_COLUMNS + from, to - from, 1, parts[i].attr);
        before += part;
        if (!parts[i].always && parts[i].tokens == 0)
            continue;
        buf text = {0};
        buf_printf(&text, "%s %.0f %%", parts[i].name, 100 * part);
        at = put_buf(c, at, parts[i].attr, &text) + 2;
    }
    c->row++;
}

static void draw_tokens(canvas *c) {
    const llm_figures *m = &c->v->now.llm;
    const struct {
        const char *name;
        uint64_t n;
    } parts[] = {
        {"sent", m->prompt_tokens},
        {WORDS_COMPUTED, m->computed_tokens},
        {"saved", m->reused_memory + m->reused_disk},
        {"output", m->output_tokens},
    };
    buf text = {0};
    double all = (double)(m->computed_tokens + m->output_tokens),
           average = all / BASE_MAX(c->v->now.seconds, 1e-3);
    buf_append_count(&text, (uint64_t)(c->v->finished ? average : c->v->rates.tokens));
    buf_append_c(&text, " tok/s");
    int x = put_buf(c, LABEL_COLUMNS, VIEW_BOLD, &text) + 2;
    for (size_t i = 0; i < BASE_COUNT(parts); i++) {
        buf_printf(&text, "%s ", parts[i].name);
        x = put_buf(c, x, VIEW_DIM, &text);
        buf_append_count(&text, parts[i].n);
        x = put_buf(c, x, VIEW_PLAIN, &text) + 2;
    }
    c->row++;
}

/* Writes a line such as "KV memory ███ 34 MB of 1.0 GB". */
static int put_budget(canvas *c, const char *name, uint64_t used, uint64_t budget) {
    buf text = {0};
    label(c, name);
    int at = put_bar(c, LABEL_COLUMNS, bar_columns(c, 30),
                     budget > 0 ? (double)used / (double)budget : 0, VIEW_DISK);
    buf_append_bytes(&text, used);
    buf_append_c(&text, " of ");
    buf_append_bytes(&text, budget);
    return put_buf(c, at + 1, VIEW_PLAIN, &text);
}

static void draw_memory(canvas *c) {
    const exec_progress *x = &c->v->now;
    const llm_figures *m = &x->llm;
    buf text = {0};
    int at = put_budget(c, "KV memory", x->memory.kv_bytes, x->memory.kv_budget_bytes);
    buf_printf(&text, x->memory.live_sequences == 1 ? "  %d sequence" : "  %d sequences",
               x->memory.live_sequences);
    if (m->evicted_blocks)
        buf_printf(&text, "  %llu blocks evicted", (unsigned long long)m->evicted_blocks);
    put_buf(c, at, VIEW_PLAIN, &text);
    c->row++;
    if (x->disk_budget_bytes == 0)
        return;
    put_budget(c, "KV disk", x->disk_bytes, x->disk_budget_bytes);
    c->row++;
}

static void draw_order(canvas *c) {
    if (c->v->now.field_order[0] == 0)
        return;
    label(c, "fields");
    put_visible(c, LABEL_COLUMNS, VIEW_PLAIN, c->v->now.field_order);
    c->row++;
}

/* Draws the latest prompts in the order they ran, one per column. The height is the share of the
 * prompt's tokens that was reused. */
static void draw_strip(canvas *c) {
    const exec_progress *x = &c->v->now;
    int columns = BASE_MIN(c->w - LABEL_COLUMNS - 1, x->nshared);
    if (x->nshared == 0)
        return;
    label(c, "order");
    for (int i = 0; i < columns; i++) {
        int percent = x->shared[x->nshared - columns + i];
        put(c, LABEL_COLUMNS + i, c->row, percent < 50 ? VIEW_WORK : VIEW_GOOD,
            step(c->v->utf8, percent / 100.0));
    }
    c->row++;
}

/* Writes text from column x, wrapped at blanks, and moves to the row after it. */
static void put_wrapped(canvas *c, int x, int last_row, view_attr attr, const char *text) {
    for (str left = str_from(text); left.n && c->row < last_row; c->row++) {
        str line = format_wrap(&left, BASE_MAX(c->w - x, 1));
        buf shown = {0};
        buf_append_str(&shown, line);
        put_buf(c, x, attr, &shown);
    }
}

/* ---- the prefix tree ------------------------------------------------------------------------- */

/* A line of the tree: a branch, or the prompts of a branch that no branch below it has. */
typedef struct tree_line {
    const exec_branch *branch; /* NULL: these prompts */
    int depth;
    int64_t prompts, done;
} tree_line;

typedef struct tree_lines {
    int n;
    tree_line line[2 * EXEC_BRANCHES];
    const exec_branch *open[EXEC_BRANCHES]; /* by depth: the branch whose lines are being added */
    int64_t prompts[EXEC_BRANCHES];         /* by depth: number of its prompts without a line */
    int64_t done[EXEC_BRANCHES];            /* by depth: number of these that are answered */
    int nopen;
} tree_lines;

/* Ends the lines of the open branches from `depth` on. */
static void close_branches(tree_lines *t, int depth) {
    for (; t->nopen > depth; t->nopen--) {
        int own = t->nopen - 1;
        bool parts = t->prompts[own] < t->open[own]->prompts;
        if (parts && t->prompts[own] > 0)
            t->line[t->n++] = (tree_line){NULL, own + 1, t->prompts[own], t->done[own]};
    }
}

static void list_branches(const exec_progress *x, tree_lines *t) {
    t->n = t->nopen = 0;
    for (int i = 0; i < x->nbranches; i++) {
        const exec_branch *b = &x->branches[i];
        int depth = BASE_MIN(b->depth, t->nopen);
        close_branches(t, depth);
        if (depth > 0) {
            t->prompts[depth - 1] -= b->prompts;
            t->done[depth - 1] -= b->done;
        }
        t->line[t->n++] = (tree_line){b, depth, b->prompts, b->done};
        t->open[depth] = b;
        t->prompts[depth] = b->prompts;
        t->done[depth] = b->done;
        t->nopen = depth + 1;
    }
    close_branches(t, 0);
}

/* Returns whether a line at `depth` with the same parent follows line i. */
static bool sibling_follows(const tree_lines *t, int i, int depth) {
    for (i++; i < t->n && t->line[i].depth > depth; i++)
        ;
    return i < t->n && t->line[i].depth == depth;
}

/* Returns the first line to show on the first panel: the branch that is being answered. */
static int first_unanswered(const tree_lines *t) {
    for (int i = 0; i < t->n; i++)
        if (t->line[i].done < t->line[i].prompts &&
            (i + 1 == t->n || t->line[i + 1].depth <= t->line[i].depth))
            return i;
    return 0;
}

static void append_number(buf *out, int64_t n, int width) {
    buf number = {0};
    buf_append_count(&number, (uint64_t)BASE_MAX(n, 0));
    buf_printf(out, "%*s", width, number.p);
    buf_free(&number);
}

/* Writes text that has line-drawing characters. */
static int put_text(canvas *c, int x, view_attr attr, buf *text) {
    buf ascii = {0};
    if (c->v->utf8)
        return put_buf(c, x, attr, text);
    format_ascii(&ascii, buf_str(text));
    buf_free(text);
    return put_buf(c, x, attr, &ascii);
}

/* Writes a line as EXPLAIN (TREE) does: its branches, and the beginning of its text. */
static void draw_branch(canvas *c, const tree_lines *t, int i, bool tokens) {
    enum { DEEPEST = 8 }; /* number of levels drawn */
    const tree_line *l = &t->line[i];
    bool all = l->done >= l->prompts;
    buf text = {0};
    append_number(&text, l->prompts, 8);
    int x = put_buf(c, 0, VIEW_PLAIN, &text);
    append_number(&text, l->done, 10);
    x = put_buf(c, x, all ? VIEW_GOOD : l->done > 0 ? VIEW_WORK : VIEW_DIM, &text);
    if (tokens && l->branch)
        append_number(&text, l->branch->tokens, 8);
    else if (tokens)
        buf_printf(&text, "%8s", "");
    buf_append_c(&text, "  ");
    for (int k = BASE_MAX(1, l->depth - DEEPEST); k < l->depth; k++)
        buf_append_c(&text, sibling_follows(t, i, k) ? "│  " : "   ");
    if (l->depth > 0)
        buf_append_c(&text, sibling_follows(t, i, l->depth) ? "├─ " : "└─ ");
    x = put_text(c, x, VIEW_DIM, &text);
    if (l->branch) {
        buf whole = {0};
        format_visible(&whole, str_from(l->branch->text), c->v->utf8);
        format_cut(&text, buf_str(&whole), c->w - x);
        buf_free(&whole);
    } else {
        buf_append_c(&text, "… ");
        append_number(&text, l->prompts, 0);
        buf_append_c(&text, " more");
    }
    put_text(c, x, VIEW_PLAIN, &text);
}

static void draw_tree(canvas *c, int rows, int from) {
    enum { WIDE = 60 };
    tree_lines t;
    list_branches(&c->v->now, &t);
    if (t.n == 0 || rows < 2)
        return;
    bool tokens = c->w >= WIDE;
    put(c, 0, c->row++, VIEW_BOLD,
        tokens ? " " WORDS_PROMPTS "  answered  tokens  shared prefixes"
               : " " WORDS_PROMPTS "  answered  shared prefixes");
    from = from < 0 ? first_unanswered(&t) : from;
    from = BASE_MAX(BASE_MIN(from, t.n - (rows - 1)), 0);
    for (int i = from; i < t.n && i - from < rows - 1; i++, c->row++)
        draw_branch(c, &t, i, tokens);
}

/* Draws the tree alone. */
static void draw_tree_panel(canvas *c, int last_row) {
    if (c->v->now.nbranches > 0)
        draw_tree(c, last_row - c->row, c->v->scroll);
    else
        put_wrapped(c, 1, last_row, VIEW_DIM,
                    c->v->finished ? "no two prompts were sent that share a prefix"
                                   : "no prompts yet that share a prefix");
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void draw_operators(canvas *c, int rows, int from) {
    const exec_progress *x = &c->v->now;
    if (x->noperators == 0 || rows < 2)
        return;
    int numbers = c->w < SMALL_W ? OPERATOR_NARROW : OPERATOR_COLUMNS;
    put(c, 1, c->row, VIEW_BOLD, "operators");
    put(c, numbers + 3, c->row, VIEW_DIM, "rows in");
    put(c, numbers + 20, c->row++, VIEW_DIM, "out");
    for (int i = from; i < x->noperators && i - from < rows - 1; i++, c->row++) {
        const exec_operator *o = &x->operator_rows[i];
        int indent = BASE_MIN(2 * o->depth, numbers / 2);
        put_visible(c, 1 + indent, o->model ? VIEW_GOOD : VIEW_PLAIN, o->name);
        if (!o->source)
            put_count(c, numbers, o->rows_in);
        put_count(c, numbers + 13, o->rows_out);
    }
}

static void draw_answers(canvas *c, int rows, int from) {
    const view_state *v = c->v;
    if (v->nanswers == 0 || rows < 2)
        return;
    put(c, 1, c->row++, VIEW_BOLD, "last answers");
    for (int i = from; i < v->nanswers && i - from < rows - 1; i++, c->row++) {
        int x = put_visible(c, 1, VIEW_PLAIN, v->answers[i].answer);
        put_visible(c, x + 2, VIEW_DIM, v->answers[i].input);
    }
}

static void draw_keys(canvas *c, int row) {
    static const struct {
        const char *key, *brief, *text;
        int panel; /* -1: none */
    } keys[] = {{"q", "shell", "back to the shell", -1},
                {"c", "cancel, keep", "cancel, keep answers", -1},
                {"p", "pause", "pause", -1},
                {"?", "help", "help", -1},
                {"1", "run", "run", PANEL_RUN},
                {"2", "compare", "compare", PANEL_STRATEGIES},
                {"3", "prefixes", "prefix tree", PANEL_TREE},
                {"4", "rows", "rows, answers", PANEL_ROWS}};
    enum { WIDE = 112 };
    int x = 1;
    for (size_t i = 0; i < BASE_COUNT(keys); i++) {
        bool here = keys[i].panel == (int)c->v->panel;
        if (c->v->finished && strchr("cp", *keys[i].key))
            continue;
        const char *text = c->w < WIDE ? keys[i].brief : keys[i].text;
        if (*keys[i].key == 'p' && c->v->now.paused)
            text = "resume";
        if (x + 2 + (int)strlen(text) > c->w)
            break;
        x = put(c, x, row, VIEW_TITLE, keys[i].key);
        x = put(c, x + 1, row, here ? VIEW_BOLD : VIEW_DIM, text) + 2;
    }
}

/* ---- other strategies ------------------------------------------------------------------------ */

/* Returns a large digit's dots, 3 columns of 5 rows: bit 14 is the upper left one, bit 0 the lower
 * right one. */
static unsigned digit_bits(char c) {
    static const unsigned digits[] = {075557, 026227, 071747, 071717, 055711,
                                      074717, 074757, 071111, 075757, 075717};
    return c == '.' ? 4 : c == 'x' ? 00525 : c >= '0' && c <= '9' ? digits[c - '0'] : 0;
}

enum { DIGIT_ROWS = 5, DIGIT_COLUMNS = 3 };

/* Writes text in large digits, each dot two columns wide, and moves to the row after them. Returns
 * the column after the text. */
static int put_large(canvas *c, int x, view_attr attr, const char *text) {
    const char *dot = c->v->utf8 ? "██" : "##";
    for (; *text; text++) {
        for (int i = 0; i < DIGIT_ROWS * DIGIT_COLUMNS; i++)
            if (digit_bits(*text) >> (DIGIT_ROWS * DIGIT_COLUMNS - 1 - i) & 1)
                put(c, x + i % DIGIT_COLUMNS * 2, c->row + i / DIGIT_COLUMNS, attr, dot);
        x += *text == '.' ? 3 : 2 * DIGIT_COLUMNS + 1;
    }
    c->row += DIGIT_ROWS;
    return x;
}

static void draw_speed_up(canvas *c) {
    static const char about[] = "faster than without reuse";
    enum { ROOMY = 20, WIDE = 60 };
    double times = view_speed_up(c->v);
    buf text = {0};
    if (times <= 0)
        return;
    buf_printf(&text, "%.*fx", times < 99.95 ? 1 : 0, times);
    if (c->h >= ROOMY && c->w >= WIDE) {
        int row = c->row + DIGIT_ROWS - 1;
        int x = put_large(c, 2, VIEW_GOOD, text.p) + 1;
        put(c, x, row, VIEW_BOLD, about);
        buf_free(&text);
    } else {
        buf_printf(&text, " %s", about);
        put_buf(c, 1, VIEW_BOLD, &text);
    }
    c->row += c->h >= ROOMY ? 2 : 1;
}

/* Writes text that ends before column `end`. */
static void put_right(canvas *c, int end, view_attr attr, buf *text) {
    put_buf(c, BASE_MAX(end - utf8_width(buf_str(text)), 0), attr, text);
}

/* Draws a strategy's line. seconds: 0 if unknown. */
static void draw_strategy(canvas *c, const exec_baseline *b, uint64_t most, double seconds,
                          bool own) {
    enum { HIT = 30, TIME = 40, BAR = 42, BAR_LEAST = 10 };
    double share = b->prompt_tokens ? (double)b->computed_tokens / (double)b->prompt_tokens : 1;
    buf text = {0};
    put_visible(c, 1, own ? VIEW_BOLD : VIEW_DIM, b->name);
    put_count(c, LABEL_COLUMNS - 1, b->computed_tokens);
    buf_printf(&text, "%.1f %%", 100 * BASE_MAX(1 - share, 0));
    put_right(c, HIT, VIEW_PLAIN, &text);
    if (seconds > 0) {
        buf_append_c(&text, own ? "" : "~");
        if (seconds < 100)
            progress_duration(&text, seconds);
        else
            clock_text(&text, seconds);
        put_right(c, TIME, own ? VIEW_BOLD : VIEW_PLAIN, &text);
    }
    if (c->w >= BAR + BAR_LEAST)
        put_bar(c, BAR, c->w - BAR - 1, (double)b->computed_tokens / (double)BASE_MAX(most, 1u),
                own ? VIEW_GOOD : VIEW_WORK);
    c->row++;
}

/* Says what the figures mean: what is counted, what is estimated. */
static void draw_strategy_notes(canvas *c, int last_row) {
    const view_state *v = c->v;
    double rate = view_tokens_per_second(v);
    buf text = {0};
    if (!v->finished) {
        buf_append_c(&text, "this run so far: ");
        append_inputs(&text, &v->now);
        buf_append_c(&text, " " WORDS_INPUTS ". ");
    }
    if (rate > 0) {
        buf_append_c(&text, "~ is estimated: this machine computes ");
        buf_append_count(&text, (uint64_t)rate);
        buf_append_c(&text, " tokens a second.");
    }
    if (view_wants_baselines(v) && !v->finished)
        buf_append_c(&text, " Counting what FIFO, fixed and grouped would compute.");
    c->row++;
    put_wrapped(c, 1, last_row, VIEW_DIM, text.p ? text.p : "");
    buf_free(&text);
}

/* Draws what this run and other strategies compute for the same statement. */
static void draw_strategies(canvas *c, int last_row) {
    const view_state *v = c->v;
    const llm_figures *m = &v->now.llm;
    const exec_baseline *others = v->baselines;
    uint64_t all = view_tokens_without_reuse(v), most = all;
    exec_baseline none = {"no cache", all, all}, own = {"this run", m->prompt_tokens, 0};
    int n = v->nbaselines;
    own.computed_tokens = m->computed_tokens;
    if (n == 0) { /* not counted: only the prompts so far are known */
        others = &none;
        n = 1;
    }
    draw_speed_up(c);
    put(c, 1, c->row++, VIEW_BOLD, "strategy   " WORDS_COMPUTED "  " WORDS_HIT_RATE "      time");
    for (int i = 0; i < n; i++)
        most = BASE_MAX(most, others[i].computed_tokens);
    for (int i = 0; i < n && c->row + 1 < last_row; i++)
        draw_strategy(c, &others[i], most, view_seconds_of(v, &others[i]), false);
    if (c->row < last_row)
        draw_strategy(c, &own, most, v->now.seconds, true);
    draw_strategy_notes(c, last_row);
}

/* ---- help, and the whole screen -------------------------------------------------------------- */

static void draw_help(canvas *c, int last_row) {
    static const char *const lines[][2] = {
        {"q", "back to the shell; the statement keeps running"},
        {"c", "cancel; answers are kept (not with SET cache = off)"},
        {"p", "pause or resume the statement"},
        {"1 2 3 4", "the run, other strategies, the prefix tree, operators and answers"},
        {"arrows", "left, right: switch panels; up, down: scroll"},
        {WORDS_INPUTS_SHORT, WORDS_INPUTS " with an answer; known: stored by an earlier run"},
        {WORDS_HIT_RATE, "share of the prompt tokens whose KV was reused"},
        {"tokens", "reused from memory or disk, in stored answers, or computed"},
        {"KV", "attention keys and values held in memory and on disk, and the limits"},
        {"fields", "the order of the fields in the prompts"},
        {"order", "latest prompts; the higher, the more of a prompt was reused"},
        {"prefixes", "prompts that begin with a text, and how many of them are answered"},
    };
    for (size_t i = 0; i < BASE_COUNT(lines) && c->row < last_row; i++) {
        label(c, lines[i][0]);
        put_wrapped(c, LABEL_COLUMNS, last_row, VIEW_PLAIN, lines[i][1]);
    }
}

/* Draws the only line that a tiny screen shows. */
static void draw_one_line(canvas *c) {
    const exec_progress *x = &c->v->now;
    buf text = {0};
    buf_append_count(&text, x->rows_done);
    buf_append_char(&text, '/');
    buf_append_count(&text, x->rows_total);
    buf_printf(&text, " " WORDS_INPUTS_SHORT "  hit %.0f %%", 100 * progress_hit_rate(&x->llm));
    put_buf(c, 0, VIEW_PLAIN, &text);
}

/* Draws the operators, in at most half of the rows, and below them the answers. The arrow keys
 * scroll the answers. */
static void draw_rows_panel(canvas *c, int last_row) {
    int most = BASE_MAX(c->v->nanswers - 1, 0);
    draw_operators(c, BASE_MIN(c->v->now.noperators + 1, (last_row - c->row) / 2 + 1), 0);
    c->row += c->v->now.noperators > 0 && last_row - c->row > 3;
    draw_answers(c, last_row - c->row, BASE_MIN(c->v->scroll, most));
}

/* Distributes `rows` over n lists, one row at a time to each list i that has fewer than wants[i]
 * rows. gets[i]: the number of rows of list i. */
static void share_rows(int rows, const int *wants, int *gets, int n) {
    bool left = true;
    memset(gets, 0, sizeof *gets * (size_t)n);
    while (rows > 0 && left) {
        left = false;
        for (int i = 0; i < n && rows > 0; i++) {
            if (gets[i] == wants[i])
                continue;
            gets[i]++;
            rows--;
            left = true;
        }
    }
}

static void draw_lists(canvas *c, int last_row) {
    static void (*const draw[])(canvas *, int, int) = {draw_tree, draw_operators, draw_answers};
    enum { LISTS = BASE_COUNT(draw), ROOMY = 30 };
    const exec_progress *x = &c->v->now;
    tree_lines tree;
    list_branches(x, &tree);
    const int wants[LISTS] = {tree.n + (tree.n > 0), x->noperators + (x->noperators > 0),
                              c->v->nanswers + (c->v->nanswers > 0)};
    int gets[LISTS], blanks = 0;
    bool roomy = c->h >= ROOMY;
    for (int i = 0; i < LISTS; i++)
        blanks += roomy && wants[i] > 0;
    share_rows(last_row - c->row - blanks, wants, gets, LISTS);
    for (int i = 0; i < LISTS; i++) {
        c->row += roomy && gets[i] > 1;
        draw[i](c, gets[i], draw[i] == draw_tree ? -1 : 0);
    }
}

static void draw_run(canvas *c, int last_row, bool small, bool full) {
    draw_inputs(c);
    draw_hit(c);
    draw_split(c);
    if (!small) {
        draw_tokens(c);
        draw_memory(c);
        draw_order(c);
    }
    draw_strip(c);
    if (full)
        draw_lists(c, last_row);
    else
        draw_answers(c, last_row - c->row, 0);
}

void view_render(const view_state *v, int w, int h, view_cell *cells) {
    canvas c = {.v = v, .cells = cells, .w = w, .h = h};
    if (w <= 0 || h <= 0)
        return;
    for (int i = 0; i < w * h; i++)
        cells[i] = (view_cell){" ", VIEW_PLAIN};
    if (h < TINY_H || w < TINY_W) {
        draw_one_line(&c);
        return;
    }
    bool small = h < SMALL_H || w < SMALL_W, full = h >= 24 && w >= 80;
    int last_row = h - 1;
    draw_title(&c);
    draw_keys(&c, last_row);
    if (!small) {
        draw_statement(&c);
        c.row += full;
    }
    if (v->help)
        draw_help(&c, last_row);
    else if (v->panel == PANEL_STRATEGIES)
        draw_strategies(&c, last_row);
    else if (v->panel == PANEL_TREE)
        draw_tree_panel(&c, last_row);
    else if (v->panel == PANEL_ROWS)
        draw_rows_panel(&c, last_row);
    else
        draw_run(&c, last_row, small, full);
}
