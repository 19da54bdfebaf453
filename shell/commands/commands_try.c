/*
 * commands_try.c - .try: asks the forms of a question that a SELECT lists about a sample of its rows
 * and compares them. try_report.c makes what is printed, scores.c the scores.
 *
 *   .try SELECT mood AS truth, LLM('…', review) RETURNS … AS plain, LLM(…) … AS four FROM reviews
 *
 * Each LLM call of the select list is a form (variant). It is asked by a statement of its own,
 *
 *   SELECT mood, LLM('…', review) RETURNS … AS "(form)", LLM_PROB("(form)", 'positive'), …
 *   FROM reviews QUALIFY mood IS NOT NULL AND row_number() OVER (ORDER BY mood IS NULL, hash(*)) <= 200
 *
 * so that its tokens and seconds are those of this form alone. The sample is the same for all forms
 * and at every run. Forms share what the cache has: KV of equal beginnings, and answers to equal
 * prompts, so that the calibrated form of a call asks nothing.
 *
 * Invariant: neither tables nor settings are changed. What is wrong with the SELECT is found by
 * preparing it as written, before any model is asked.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "storage/containers.h"
#include "try_int.h"

enum { SAMPLE_ROWS = 200, MOST_ROWS = 1000000, MOST_PROBS = 32 };

typedef struct trial {
    shell *sh;
    arena *mem;
    str sql;
    select_parts parts;
    const select_column *truth; /* NULL: none */
    classes classes;
    variant *variants; /* [n], in the order of the select list */
    int n;
    /* options */
    int64_t rows;
    const char *truth_name; /* NULL: not given */
    bool calibrate, confusion;
    buf said; /* the notices of the last form */
} trial;

/* ---- classes --------------------------------------------------------------------------------- */

static int class_named(const classes *c, str name) {
    int i = 0;
    while (i < c->n && !str_equal(c->names[i], name))
        i++;
    return i < c->n ? i : SCORES_NONE;
}

int class_of(classes *c, value v, bool add) {
    buf text = {0};
    if (v.type == TYPE_NULL)
        return SCORES_NONE;
    value_print(&text, v);
    int i = class_named(c, buf_str(&text));
    if (i == SCORES_NONE && add) {
        i = c->n;
        ARENA_PUSH(c->mem, c->names, c->n, c->cap, str_copy(c->mem, buf_str(&text)));
    }
    buf_free(&text);
    return i;
}

/* ---- running statements ---------------------------------------------------------------------- */

/* Where errors in the statement are, for shell_error. */
static place place_of(const shell *sh, str sql) {
    place where = sh->where ? *sh->where : (place){0};
    if (where.text.n && sql.p >= where.text.p && sql.p < where.text.p + where.text.n)
        where.at = (size_t)(sql.p - where.text.p);
    else
        where = (place){.text = sql, .line = 1}; /* the last statement */
    return where;
}

static bool fail_at(const trial *t, int pos, int len, const char *message, const char *hint) {
    place where = place_of(t->sh, t->sql);
    err e = {.pos = -1};
    err_set_at(&e, ERR_BIND, pos, len, "%s", message);
    err_hint(&e, "%s", hint);
    shell_error(t->sh, &where, &e);
    return false;
}

/* Prints the statement's notices, unless they are those in *said, and puts them there. */
static void print_notices(const stmt *s, const char *name, buf *said) {
    str rest = str_from(stmt_notice(s));
    if (said && str_equal(buf_str(said), rest))
        return;
    if (said) {
        buf_clear(said);
        buf_append_str(said, rest);
    }
    while (rest.n > 0) {
        str line = str_split_next(&rest, '\n');
        fprintf(stderr, "notice: %s: %.*s\n", name, (int)line.n, line.p);
    }
}

int try_run(shell *sh, str sql, const char *name, buf *said, shell_batch_fn fn, void *ctx,
            exec_summary *cost, err *e) {
    stmt *s = db_prepare(sh->db, sql);
    *e = (err){.pos = -1};
    int status = TRY_NOT_CONFIRMED;
    if (estimate_confirm(sh, s)) {
        stmt_run(s);
        status = shell_wait(sh, s, name, fn, ctx, e);
        print_notices(s, name, said);
        stmt_summary(s, cost);
    }
    stmt_free(s);
    return status;
}

bool try_failed(shell *sh, int status, const err *e) {
    return status != TRY_NOT_CONFIRMED && shell_failed(sh, e);
}

bool try_check(shell *sh, str sql, arena *mem, sql_tree *tree) {
    place where = place_of(sh, sql);
    err e = {.pos = -1};
    int status = sql_parse(sql, mem, tree, &e);
    if (status == 0 && !tree->is_query)
        return shell_complain(sh, "the last statement is no SELECT");
    if (status == 0) {
        stmt *s = db_prepare(sh->db, sql);
        stmt_estimate(s, false);
        status = shell_wait(sh, s, NULL, NULL, NULL, &e);
        stmt_free(s);
    }
    if (status == ERR_CANCELLED)
        return shell_failed(sh, &e);
    if (status)
        shell_error(sh, &where, &e);
    return status == 0;
}

/* ---- the SELECT ------------------------------------------------------------------------------ */

static bool add_variant(trial *t, const select_column *c, const char *calibrate) {
    bool off = calibrate && strcmp(calibrate, "off") == 0;
    const char *name = c->name.n
                           ? arena_strndup(t->mem, c->name.p, c->name.n)
                           : arena_printf(t->mem, "column %d", (int)(c - t->parts.columns) + 1);
    variant *v = &t->variants[t->n++];
    *v = (variant){.column = c, .calibrate = calibrate};
    v->name = calibrate && !off ? arena_printf(t->mem, "%s (calibrated)", name) : name;
    for (int i = 0; i < c->nanswers; i++)
        class_of(&t->classes, c->answers[i], true);
    return t->classes.n <= TRY_CLASSES ||
           fail_at(t, c->pos, c->len, "more than 256 different answers cannot be compared", "");
}

static bool list_variants(trial *t) {
    t->variants = ARENA_ARRAY(t->mem, variant, 2 * t->parts.ncolumns);
    for (int i = 0; i < t->parts.ncolumns; i++) {
        const select_column *c = &t->parts.columns[i];
        bool both = t->calibrate && !c->calibrates;
        if (c->calls_model && !c->is_call)
            return fail_at(
                t, c->pos, c->len, "a form must be an LLM call alone",
                "write LLM(…) RETURNS … AS name; its probabilities are asked for anyway");
        if (c->is_call && c->nanswers == 0)
            return fail_at(t, c->pos, c->len, "this call has no list of answers to compare",
                           "write RETURNS ENUM('…', …), BOOLEAN or INTEGER BETWEEN 1 AND 5");
        if (c->is_call &&
            (!add_variant(t, c, both ? "off" : NULL) || (both && !add_variant(t, c, "batch"))))
            return false;
    }
    return t->n > 0 || fail_at(t, 0, (int)t->sql.n, "there is no LLM call in the select list",
                               "SELECT …, LLM('…', field) RETURNS … AS name FROM …");
}

/* The truth is the column that --truth names, else one named truth, else the only column that is
 * no LLM call. */
static bool find_truth(trial *t) {
    const select_column *only = NULL;
    int others = 0;
    str wanted = t->truth_name ? str_from(t->truth_name) : STR("truth");
    for (int i = 0; i < t->parts.ncolumns; i++) {
        const select_column *c = &t->parts.columns[i];
        if (c->calls_model)
            continue;
        only = c;
        others++;
        if (str_equal_nocase(c->name, wanted))
            t->truth = c;
    }
    if (t->truth == NULL && t->truth_name)
        return shell_complain(t->sh, "the select list has no column \"%s\" without an LLM call",
                              t->truth_name);
    if (t->truth == NULL && others > 1)
        return fail_at(t, only->pos, only->len, "several columns could be the truth",
                       "name the truth: AS truth, or --truth COLUMN");
    if (t->truth == NULL)
        t->truth = only;
    return true;
}

/* Appends what all statements have in common, from FROM on. Rows without truth are left out. */
static void append_sample(const trial *t, buf *out) {
    buf_append_char(out, ' ');
    buf_append_str(out, t->parts.from);
    buf_append_c(out, " QUALIFY ");
    if (t->truth)
        buf_printf(out, "(%.*s) IS NOT NULL AND ", (int)t->truth->text.n, t->truth->text.p);
    buf_append_c(out, "row_number() OVER (ORDER BY ");
    if (t->truth)
        buf_printf(out, "(%.*s) IS NULL, ", (int)t->truth->text.n, t->truth->text.p);
    buf_printf(out, "hash(*)) <= %lld", (long long)t->rows);
}

static void append_call(const trial *t, const variant *v, buf *out) {
    str text = v->column->text;
    size_t at = (size_t)v->column->after_prompt;
    buf_append(out, text.p, at);
    if (v->calibrate)
        buf_printf(out, ", calibrate => '%s'", v->calibrate);
    buf_append(out, text.p + at, text.n - at);
    buf_append_c(out, " AS \"(form)\"");
    for (int i = 0; v->column->nanswers <= MOST_PROBS && i < v->column->nanswers; i++) {
        buf_append_c(out, ", LLM_PROB(\"(form)\", ");
        value_print_sql(out, v->column->answers[i]);
        buf_append_char(out, ')');
    }
    append_sample(t, out);
}

/* ---- the truth ------------------------------------------------------------------------------- */

typedef struct truths {
    classes classes;
    uint64_t rows[TRY_CLASSES]; /* [classes.n] */
} truths;

static void take_truth(void *ctx, stmt *s, const batch *b) {
    truths *x = ctx;
    (void)s;
    for (int i = 0; i < b->rows; i++) {
        bool room = x->classes.n < TRY_CLASSES;
        int k = class_of(&x->classes, column_get(&b->cols[0], i), room);
        if (k != SCORES_NONE)
            x->rows[k]++;
    }
}

/* Reads the truth of the sample, without asking the model, and checks that it can be answered. */
static bool check_truth(trial *t) {
    truths x = {.classes = {.mem = t->mem}};
    buf sql = {0};
    err e;
    exec_summary cost;
    buf_append_str(&sql, t->parts.head);
    buf_append_str(&sql, t->truth->text);
    append_sample(t, &sql);
    int status = try_run(t->sh, buf_str(&sql), "truth", NULL, take_truth, &x, &cost, &e);
    buf_free(&sql);
    if (status)
        return try_failed(t->sh, status, &e);
    if (x.classes.n == 0)
        return shell_complain(t->sh, "the SELECT has no rows with a truth");
    for (int i = 0; i < x.classes.n; i++) {
        if (class_named(&t->classes, x.classes.names[i]) != SCORES_NONE)
            continue;
        str name = x.classes.names[i];
        return fail_at(
            t, t->truth->pos, t->truth->len,
            arena_printf(t->mem, "no form can answer '%.*s', the truth of %llu of these rows",
                         (int)BASE_MIN(name.n, (size_t)80), name.p, (unsigned long long)x.rows[i]),
            arena_printf(t->mem, "write the truth as the answers are: CASE WHEN … THEN '%.40s' …",
                         arena_strndup(t->mem, t->classes.names[0].p, t->classes.names[0].n)));
    }
    return true;
}

/* ---- running the forms ----------------------------------------------------------------------- */

typedef struct taking {
    trial *t;
    variant *v;
} taking;

static void take_answers(void *ctx, stmt *s, const batch *b) {
    taking *x = ctx;
    variant *v = x->v;
    classes *c = &x->t->classes;
    (void)s;
    int at = x->t->truth != NULL, nprobs = b->ncols - at - 1;
    for (int i = 0; i < b->rows; i++) {
        size_t row = v->rows;
        ARENA_PUSH(x->t->mem, v->answer, v->rows, v->answer_cap,
                   class_of(c, column_get(&b->cols[at], i), false));
        if (at) {
            ARENA_RESERVE(x->t->mem, v->truth, v->rows, v->truth_cap);
            v->truth[row] = class_of(c, column_get(&b->cols[0], i), false);
        }
        if (nprobs == 0)
            continue;
        ARENA_RESERVE(x->t->mem, v->probs, v->rows * (size_t)c->n, v->probs_cap);
        memset(v->probs + row * (size_t)c->n, 0, sizeof *v->probs * (size_t)c->n);
        for (int k = 0; k < nprobs; k++) {
            value p = column_get(&b->cols[at + 1 + k], i);
            size_t of = (size_t)class_of(c, v->column->answers[k], false);
            v->probs[row * (size_t)c->n + of] = p.type == TYPE_REAL ? p.r : 0;
        }
    }
}

static int run_variant(trial *t, variant *v, err *e) {
    buf sql = {0};
    taking x = {t, v};
    buf_append_str(&sql, t->parts.head);
    if (t->truth) {
        buf_append_str(&sql, t->truth->text);
        buf_append_c(&sql, ", ");
    }
    append_call(t, v, &sql);
    int status = try_run(t->sh, buf_str(&sql), v->name, &t->said, take_answers, &x, &v->cost, e);
    buf_free(&sql);
    if (status == 0 && t->truth)
        scores_of(v->truth, v->answer, v->probs, v->rows, t->classes.n, t->mem, &v->scores);
    return status;
}

/* Returns the variant of the best balanced accuracy, which always giving one answer does not raise;
 * of equals the one of better agreement, then the first. */
static const variant *best_of(const variant *v, int n) {
    const variant *best = NULL;
    for (int i = 0; i < n; i++) {
        const scores *s = &v[i].scores, *b = best ? &best->scores : NULL;
        if (!isnan(s->balanced) && (b == NULL || s->balanced > b->balanced ||
                                    (s->balanced == b->balanced && s->agreement > b->agreement)))
            best = &v[i];
    }
    return best;
}

/* Says how many rows a form did not answer. */
static void print_not_counted(const variant *v, int n, buf *out) {
    const char *before = "without an answer, not counted:";
    for (int i = 0; i < n; i++) {
        if (v[i].scores.no_answer == 0)
            continue;
        buf_printf(out, "%s %s %llu", before, v[i].name, (unsigned long long)v[i].scores.no_answer);
        before = ",";
    }
    if (*before == ',')
        buf_append_char(out, '\n');
}

static bool print_trial(const trial *t, int done) {
    buf out = {0};
    const variant *v = t->variants, *best = t->truth ? best_of(v, done) : NULL;
    if (v->rows == 0)
        return shell_complain(t->sh, "the SELECT has no rows");
    try_costs(v, done, best, &t->classes, t->mem, &out);
    if (t->truth == NULL) {
        buf_append_char(&out, '\n');
        try_answers(v, done, &t->classes, t->mem, &out);
    } else {
        print_not_counted(v, done, &out);
    }
    for (int i = 0; i < done && t->truth; i++) {
        if (!t->confusion && &v[i] != best)
            continue;
        buf_append_char(&out, '\n');
        try_confusion(&v[i].scores, arena_printf(t->mem, "truth \\ %s", v[i].name), &t->classes,
                      t->mem, &out);
    }
    shell_print(t->sh, &out);
    return true;
}

static bool run_variants(trial *t) {
    err e = {.pos = -1};
    int done = 0, status = 0;
    while (done < t->n && status == 0) {
        status = run_variant(t, &t->variants[done], &e);
        done += status == 0;
    }
    bool printed = done > 0 && print_trial(t, done);
    if (status > 0)
        err_set(&e, e.code, "%s: %s", t->variants[done].name, e.message);
    return status == 0 ? printed : try_failed(t->sh, status, &e);
}

/* ---- .try ------------------------------------------------------------------------------------ */

/* Returns the option's value: what follows '=' or the next word; NULL: neither. */
static const char *option_value(const command_call *c, int *i) {
    const char *equals = strchr(c->argv[*i], '=');
    if (equals)
        return equals + 1;
    return *i + 1 < c->argc ? c->argv[++*i] : NULL;
}

static bool is_option(const char *word, const char *option) {
    size_t n = strlen(option);
    return strncmp(word, option, n) == 0 && (word[n] == 0 || word[n] == '=');
}

static bool read_options(trial *t, const command_call *c) {
    t->rows = SAMPLE_ROWS;
    for (int i = 0; i < c->argc && command_select(str_from(c->argv[i])).n == 0; i++) {
        const char *word = c->argv[i], *number;
        if (is_option(word, "--rows")) {
            number = option_value(c, &i);
            if (!parse_integer(str_from(number), &t->rows) || t->rows < 1 || t->rows > MOST_ROWS)
                return shell_complain(t->sh, "--rows takes a number from 1 to %d, not '%s'",
                                      MOST_ROWS, number ? number : "");
        } else if (is_option(word, "--truth")) {
            if ((t->truth_name = option_value(c, &i)) == NULL)
                return shell_complain(t->sh, "--truth needs the name of a column");
        } else if (strcmp(word, "--calibrate") == 0) {
            t->calibrate = true;
        } else if (strcmp(word, "--confusion") == 0) {
            t->confusion = true;
        } else {
            return shell_complain(
                t->sh,
                "unexpected '%s'; usage: %s [--rows N] [--truth COLUMN] [--calibrate] "
                "[--confusion] SELECT …;",
                word, c->name);
        }
    }
    return true;
}

bool try_select(shell *sh, const command_call *c, str *out) {
    *out = command_select(c->rest);
    if (out->n == 0)
        *out = buf_str(&sh->last_text);
    return out->n > 0 || shell_complain(sh, "%s needs a SELECT: no statement has run yet", c->name);
}

bool cmd_try(shell *sh, command_call *c) {
    trial t = {.sh = sh, .mem = c->mem, .classes = {.mem = c->mem}};
    sql_tree tree;
    err e = {.pos = -1};
    if (!read_options(&t, c) || !try_select(sh, c, &t.sql) || !shell_ready(sh) ||
        !try_check(sh, t.sql, t.mem, &tree))
        return false;
    if (sql_select_parts(&tree, t.mem, &t.parts, &e) != 0)
        return fail_at(&t, e.pos, e.len, e.message, e.hint);
    bool ok = list_variants(&t) && find_truth(&t) && (t.truth == NULL || check_truth(&t)) &&
              run_variants(&t);
    buf_free(&t.said);
    return ok;
}
