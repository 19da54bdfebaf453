/*
 * commands_compare.c - .compare: runs one query under each strategy of EXPLAIN (TOKENS) and prints
 * what each run took, and whether all returned the same rows.
 *
 * Invariant: the runs leave nothing behind. They neither read nor store answers or KV blocks, record
 * nothing, and have settings of their own (stmt_override), so nothing is to be restored.
 *
 * A run that reaches the time limit is a sample. The tokens of the whole are then counted, as
 * EXPLAIN (TOKENS) does, since the beginning of an ordered run shares less than the rest, and its
 * seconds are scaled by these tokens. The rows of a sample are not compared.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands_int.h"
#include "storage/containers.h"

enum { LIMIT_S = 20, STRATEGIES = 4 };

typedef struct strategy {
    const char *name, *psm, *kv_cache, *schedule, *window;
} strategy;

static const strategy strategies[STRATEGIES] = {
    {"no cache", "off", "off", "tree", "64"},
    {"FIFO", "off", "on", "fifo", "64"},
    {"fixed", "fixed", "on", "tree", "0"},
    {"grouped", "grouped", "on", "tree", "0"},
};

/* The first run is likely to end within the limit, and then knows the tokens of the whole; the
 * second is what the speed-ups refer to. If Ctrl-C stops a later one, the table has both. */
static const int run_order[STRATEGIES] = {3, 0, 2, 1};

typedef struct run {
    bool done;    /* there are figures */
    bool sampled; /* it reached a limit after some tokens */
    double seconds;
    double sent, computed, output; /* tokens of prompts, those computed, and tokens of answers */
    uint64_t *rows;                /* [nrows] hashes of the result's rows, in their order */
    size_t nrows, cap;
} run;

typedef struct comparison {
    shell *sh;
    str text;
    char limit[32]; /* the time limit as SET max_seconds takes it; "0": none */
    double whole;   /* prompt tokens of a run that ended; 0: none has */
    bool counted;
    double counts[STRATEGIES]; /* the tokens that each strategy computes, if `counted` */
    run runs[STRATEGIES];
} comparison;

/* ---- running --------------------------------------------------------------------------------- */

static void take_rows(void *ctx, stmt *s, const batch *b) {
    run *r = ctx;
    buf text = {0};
    (void)s;
    for (int i = 0; i < b->rows; i++) {
        buf_clear(&text);
        for (int k = 0; k < b->ncols; k++) {
            value v = column_get(&b->cols[k], i);
            buf_append_char(&text, v.type == TYPE_NULL ? '-' : '=');
            if (v.type != TYPE_NULL)
                value_print_sql(&text, v);
        }
        ARRAY_PUSH(r->rows, r->nrows, r->cap, hash64(text.p, text.n, 0));
    }
    buf_free(&text);
}

/* Runs the statement under a strategy and `limit`, a setting that stops it. Its rows are added to
 * *out. Returns 0 or the error's code; a run that reached the limit is a sample, not an error. */
static int run_statement(const comparison *x, const strategy *how, const char *const limit[2],
                         run *out, err *e) {
    const char *const set[][2] = {{"cache", "off"},
                                  {"psm", how->psm},
                                  {"kv_cache", how->kv_cache},
                                  {"llm_schedule", how->schedule},
                                  {"llm_window", how->window},
                                  {limit[0], limit[1]}};
    exec_summary sum;
    int code = 0;
    *e = (err){.pos = -1};
    stmt *s = db_prepare(x->sh->db, x->text);
    for (size_t i = 0; i < BASE_COUNT(set) && code == 0; i++)
        code = stmt_override(s, set[i][0], set[i][1], e);
    if (code == 0) {
        stmt_run(s);
        code = shell_wait(x->sh, s, how->name, take_rows, out, e);
        stmt_summary(s, &sum);
        out->sampled = sum.reached_limit && sum.llm.prompt_tokens > 0;
        out->done = code == 0 || out->sampled;
        out->seconds = sum.seconds - sum.held_seconds;
        out->sent = (double)sum.llm.prompt_tokens;
        out->computed = (double)sum.llm.computed_tokens;
        out->output = (double)sum.llm.output_tokens;
    }
    stmt_free(s);
    return out->done ? 0 : code;
}

/* Fails if the statement is not a query that calls a model. With `count`, sets x->counts. */
static int check_statement(comparison *x, bool count, err *e) {
    stmt *s = db_prepare(x->sh->db, x->text);
    *e = (err){.pos = -1};
    stmt_estimate(s, count);
    int code = shell_wait(x->sh, s, "counting", NULL, NULL, e);
    const exec_estimate *found = stmt_estimated(s);
    for (int i = 0; i < found->nstrategies; i++)
        for (int k = 0; k < STRATEGIES; k++)
            if (strcmp(found->strategies[i].name, strategies[k].name) == 0)
                x->counts[k] = (double)found->strategies[i].computed_tokens;
    x->counted = count && code == 0;
    if (code == 0 && stmt_what(s) != STMT_SELECT)
        code = err_set(e, ERR_BIND, ".compare runs a statement several times: it takes a SELECT");
    else if (code == 0 && found->cost_ms <= 0)
        code = err_set(e, ERR_BIND,
                       "this statement asks the model about no row: there is nothing to compare");
    stmt_free(s);
    return code;
}

/* Runs the statement until the model has computed something: the first pass after a model is opened
 * loads its weights, which is no strategy's time. */
static int warm_up(const comparison *x, err *e) {
    static const char *const one_pass[] = {"max_tokens_total", "1"};
    run ignored = {0};
    int code = run_statement(x, &strategies[run_order[0]], one_pass, &ignored, e);
    free(ignored.rows);
    if (code == 0 && ignored.sent <= 0)
        code = err_set(e, ERR_BIND, "no row of this statement reaches a model call");
    return code;
}

static int run_all(comparison *x, err *e) {
    const char *const limit[] = {"max_seconds", x->limit};
    int code = check_statement(x, false, e);
    if (code == 0)
        code = warm_up(x, e);
    for (int i = 0; i < STRATEGIES && code == 0; i++) {
        run *r = &x->runs[run_order[i]];
        code = run_statement(x, &strategies[run_order[i]], limit, r, e);
        if (code == 0 && !r->sampled)
            x->whole = r->sent;
        else if (code == 0 && !x->counted)
            code = check_statement(x, true, e);
        r->done = r->done && code == 0;
    }
    return code;
}

/* Replaces the figures of a sample by those of the whole. */
static void scale_sample(comparison *x, int k) {
    run *r = &x->runs[k];
    double sent = BASE_MAX(x->whole > 0 ? x->whole : x->counts[0], r->sent);
    double share = x->counts[0] > 0 ? x->counts[k] / x->counts[0] : r->computed / r->sent;
    double answers = r->output * sent / r->sent;
    r->seconds *= BASE_MAX((sent * share + answers) / (r->computed + r->output), 1.0);
    r->computed = sent * share;
    r->sent = sent;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t *sorted(const run *r) {
    uint64_t *copy = mem_alloc(sizeof *copy * (r->nrows + 1));
    if (r->nrows)
        memcpy(copy, r->rows, sizeof *copy * r->nrows);
    qsort(copy, r->nrows, sizeof *copy, by_value);
    return copy;
}

/* Returns how many rows of the longer result the other one lacks. If both have the same number of
 * rows and some repeat, rows are compared by position, since swapped answers would go unnoticed. */
static size_t rows_differing(const run *a, const run *b) {
    uint64_t *x = sorted(a), *y = sorted(b);
    size_t i = 0, k = 0, common = 0, places = 0;
    bool repeats = false;
    for (size_t n = 1; n < a->nrows; n++)
        repeats = repeats || x[n] == x[n - 1];
    while (i < a->nrows && k < b->nrows) {
        uint64_t left = x[i], right = y[k];
        common += left == right;
        i += left <= right;
        k += right <= left;
    }
    free(x);
    free(y);
    for (size_t n = 0; n < a->nrows && n < b->nrows; n++)
        places += a->rows[n] != b->rows[n];
    return repeats && a->nrows == b->nrows ? places : BASE_MAX(a->nrows, b->nrows) - common;
}

/* Appends a line about the rows of all runs that ended: whether they are those of the first one. */
static void print_rows(const comparison *x, buf *out) {
    const run *first = NULL;
    const char *name = NULL;
    size_t most = 0, compared = 0, differing = 0;
    buf equal = {0}, counts = {0};
    for (int k = 0; k < STRATEGIES; k++) {
        const run *r = &x->runs[k];
        if (!r->done || r->sampled)
            continue;
        size_t n = first ? rows_differing(first, r) : 0;
        buf_printf(&equal, "%s%s", compared ? ", " : "", strategies[k].name);
        if (first)
            buf_printf(&counts, "%s%s %zu", compared > 1 ? ", " : "", strategies[k].name, n);
        name = first ? name : strategies[k].name;
        first = first ? first : r;
        differing += n;
        most = BASE_MAX(most, r->nrows);
        compared++;
    }
    if (compared < 2)
        buf_append_c(out, "rows are not compared: fewer than two runs reached their end\n");
    else if (differing == 0)
        buf_printf(out, "the same rows from: %s\n", equal.p);
    else
        buf_printf(out,
                   "rows that differ from those of %s: %s, of %zu; fields in another order are "
                   "another prompt\n",
                   name, counts.p, most);
    buf_free(&equal);
    buf_free(&counts);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Appends a number in a column of 15, with the mark of a scaled one. */
static void print_tokens(const run *r, double tokens, buf *out) {
    buf text = {0};
    buf_append_c(&text, r->sampled ? "~" : "");
    buf_append_count(&text, (uint64_t)(tokens + 0.5));
    buf_printf(out, "%15s", text.p);
    buf_free(&text);
}

/* Appends the line of a run. Its speed-up is over `reference`, if that run was made. */
static void print_run(const char *name, const run *r, const run *reference, bool best, bool color,
                      buf *out) {
    char seconds[32], faster[32] = "";
    snprintf(seconds, sizeof seconds, "%s%.*f s", r->sampled ? "~" : "", r->seconds < 100 ? 2 : 0,
             r->seconds);
    if (reference->done)
        snprintf(faster, sizeof faster, "%.1fx", reference->seconds / r->seconds);
    buf_printf(out, "%s%-9s", style_on(color && best, STYLE_BOLD), name);
    print_tokens(r, r->sent, out);
    print_tokens(r, r->computed, out);
    buf_printf(out, "%8.1f %%%12s%10s%s%s\n", 100 * BASE_MAX(1 - r->computed / r->sent, 0.0),
               seconds, faster, best ? "  best" : "", style_off(color && best, STYLE_BOLD));
}

/* Prints the runs that were made. "best" is what computes the fewest tokens. */
static void print_comparison(const comparison *x) {
    const shell *sh = x->sh;
    bool color = sh->term.color_out && sh->out.path == NULL, sampled = false;
    double least = 0;
    buf out = {0};
    for (int k = 0; k < STRATEGIES; k++)
        if (x->runs[k].done && (least <= 0 || x->runs[k].computed < least))
            least = x->runs[k].computed;
    buf_printf(&out, "%-9s%15s%15s%10s%12s%10s\n", "strategy", "prompt tokens", WORDS_COMPUTED,
               WORDS_HIT_RATE, "time", "speed-up");
    for (int k = 0; k < STRATEGIES; k++) {
        const run *r = &x->runs[k];
        if (r->done)
            print_run(strategies[k].name, r, &x->runs[0], r->computed <= least, color, &out);
        sampled = sampled || r->sampled;
    }
    if (sampled)
        buf_append_c(&out,
                     "~ stopped at a limit (--limit SECONDS, max_tokens_total): its tokens are "
                     "counted, its time is scaled to them\n");
    print_rows(x, &out);
    shell_print(x->sh, &out);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Removes the first word of the text and the blanks after it, and returns the word. */
static str take_word(str *text) {
    size_t n = 0;
    while (n < text->n && !isspace((unsigned char)text->p[n]))
        n++;
    str word = {text->p, n};
    *text = str_trim((str){text->p + n, text->n - n}, STR_SPACES);
    return word;
}

/* Reads --limit SECONDS or --limit=SECONDS before the statement, and removes it from *text. */
static bool parse_limit(comparison *x, const command_call *c, str *text) {
    static const str option = {"--limit", sizeof "--limit" - 1};
    double seconds = LIMIT_S;
    str rest = *text, word = take_word(&rest), given;
    if (word.n > 2 && memcmp(word.p, "--", 2) == 0) {
        str name = str_split_next(&word, '=');
        if (!str_equal(name, option))
            return shell_complain(x->sh, "%s has no option '%.*s'; it has --limit SECONDS", c->name,
                                  (int)name.n, name.p);
        given = word.n ? word : take_word(&rest);
        if (!parse_real(given, &seconds) || !isfinite(seconds) || seconds < 0)
            return shell_complain(x->sh, "--limit takes seconds (0: no limit), not '%.*s'",
                                  (int)given.n, given.p);
        *text = rest;
    }
    snprintf(x->limit, sizeof x->limit, "%g", seconds);
    return true;
}

bool cmd_compare(shell *sh, command_call *c) {
    comparison x = {.sh = sh};
    err e = {.pos = -1};
    bool any = false;
    str text = c->rest;
    if (!shell_ready(sh) || !parse_limit(&x, c, &text))
        return false;
    x.text = command_statement(sh, c, text);
    if (x.text.n == 0)
        return false;
    int code = run_all(&x, &e);
    for (int k = 0; k < STRATEGIES; k++)
        any = any || x.runs[k].done;
    if (any && (code == 0 || code == ERR_CANCELLED)) {
        for (int k = 0; k < STRATEGIES; k++)
            if (x.runs[k].done && x.runs[k].sampled)
                scale_sample(&x, k);
        print_comparison(&x);
    }
    for (int k = 0; k < STRATEGIES; k++)
        free(x.runs[k].rows);
    return code == 0 || shell_failed(sh, &e);
}
