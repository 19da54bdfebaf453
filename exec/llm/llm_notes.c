/*
 * llm_notes.c - what a run says about its answers: how often each answer was given, and notices
 * about answers that should not be trusted.
 *
 * Invariant: only rows whose answer was wanted count. A notice is true of this run and names what
 * to look at or to type.
 */
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"

enum { LITERAL_SHOWN = 40 };

/* ---- ended, shortened, failed ---------------------------------------------------------------- */

/* The answers of a call that are of one kind, such as failed. */
typedef struct answer_kind {
    uint32_t count;          /* number of answers of this kind */
    uint32_t of;             /* number of all answers */
    long long row;           /* the first row with an answer of this kind, counted from 1 */
    const llm_answer *first; /* this row's answer */
} answer_kind;

static bool was_ended(const llm_answer *a) {
    return a->ended;
}

static bool was_shortened(const llm_answer *a) {
    return a->shortened;
}

static bool has_failed(const llm_answer *a) {
    return a->failed;
}

static answer_kind answers_of(const site_run *site, bool (*is)(const llm_answer *)) {
    answer_kind k = {0};
    for (uint32_t i = 0; i < site->in->count; i++) {
        bool known = site->answers[i] != NULL && !site->answers[i]->pending;
        k.of += known;
        k.count += known && is(site->answers[i]);
    }
    for (int64_t r = 0; k.count > 0 && k.first == NULL && r < site->in->rows; r++) {
        uint32_t input = site->in->of_row[r];
        const llm_answer *a = input != NO_INPUT ? site->answers[input] : NULL;
        k.row = (long long)r + 1;
        k.first = a != NULL && !a->pending && is(a) ? a : NULL;
    }
    return k;
}

/* Returns what stands for the answer of a failed call, as SQL. */
static const char *otherwise_shown(const llm_call *call, arena *mem) {
    buf text = {0};
    value_print_sql(&text, call->otherwise);
    const char *out = arena_strndup(mem, text.p, utf8_fit(buf_str(&text), LITERAL_SHOWN));
    buf_free(&text);
    return out;
}

static void note_kinds(op *o, const site_run *site, arena *mem) {
    const llm_call *call = site->plan->call;
    answer_kind ended = answers_of(site, was_ended), cut = answers_of(site, was_shortened),
                failed = answers_of(site, has_failed);
    if (ended.count > 0)
        exec_notice(o->ctx, "%.*s: %u of %u answers end at max_tokens = %d, the first in row %lld",
                    (int)call->label.n, call->label.p, ended.count, ended.of,
                    llm_call_max_tokens(o->ctx->settings, call), ended.row);
    if (cut.count > 0) {
        const llm_model_info *m = llm_engine_info(site->engine);
        const char *limit = m->remote
                                ? "the server's context"
                                : arena_printf(mem, "the model's context of %d tokens", m->context);
        bool vectors = call->returns == RETURNS_VECTOR;
        exec_notice(o->ctx, "%.*s: %u of %u %s to fit %s, the first for row %lld",
                    (int)call->label.n, call->label.p, cut.count, cut.of,
                    vectors ? "texts lost their ends" : "prompts left fields out", limit, cut.row);
    }
    if (failed.count > 0)
        exec_notice(o->ctx, "%.*s: %u of %u calls failed and are %s, the first in row %lld: %.*s",
                    (int)call->label.n, call->label.p, failed.count, failed.of,
                    otherwise_shown(call, mem), failed.row, (int)failed.first->text.n,
                    failed.first->text.p);
    o->ctx->llm->figures.answers_ended += ended.count;
    o->ctx->llm->figures.prompts_shortened += cut.count;
    o->ctx->counts.summary.failed += failed.count;
}

/* ---- how often each answer was given --------------------------------------------------------- */

/* The typed answers of a call, as its priors decide them. */
typedef struct answer_tally {
    /* [nliterals + 3] number of rows by answer, of those whose answer is NULL, of those whose
     * answer calibration changed, and of those with the DEFAULT of a failed call */
    uint64_t *rows;
    uint32_t known;     /* number of distinct inputs with an answer */
    uint32_t scored;    /* number of these that have the probabilities of all answers */
    uint32_t changed;   /* number of these whose answer calibration changed */
    uint32_t *count;    /* [nliterals] number of these inputs */
    double *mean;       /* [nliterals] sum of the probability over the scored inputs */
    double *low, *high; /* [nliterals] its range over them */
} answer_tally;

/* Returns, by input, the number of rows whose answer was wanted, and adds to *empty the number of
 * such rows that are empty (llm_inputs). */
static uint64_t *wanted_rows(const site_run *site, arena *mem, uint64_t *empty) {
    const llm_inputs *in = site->in;
    uint64_t *out = arena_zalloc(mem, sizeof *out * ((size_t)in->count + 1));
    for (int64_t r = 0; r < in->rows; r++)
        if (site->asked[r] && in->of_row[r] != NO_INPUT)
            out[in->of_row[r]]++;
        else if (site->asked[r])
            *empty += in->empty[r];
    return out;
}

static void tally_answers(op *o, const site_run *site, arena *mem, answer_tally *t) {
    int n = site->plan->call->nliterals;
    int fails = site->plan->call->otherwise.type == TYPE_NULL ? 0 : 2;
    double *probs = ARENA_ARRAY(mem, double, n);
    *t = (answer_tally){.rows = ARENA_ARRAY(mem, uint64_t, n + 3),
                        .count = ARENA_ARRAY(mem, uint32_t, n),
                        .mean = ARENA_ARRAY(mem, double, n),
                        .low = ARENA_ARRAY(mem, double, n),
                        .high = ARENA_ARRAY(mem, double, n)};
    const uint64_t *wanted = wanted_rows(site, mem, &t->rows[n]);
    for (uint32_t i = 0; i < site->in->count; i++) {
        const llm_answer *a = site->answers[i];
        if (a == NULL || a->pending || a->failed || a->choice < 0) {
            t->rows[n + fails] += a != NULL && a->failed ? wanted[i] : 0;
            continue;
        }
        llm_answer decided = llm_decided(o, site, a, probs);
        t->count[decided.choice]++;
        t->rows[decided.choice] += wanted[i];
        if (decided.choice != a->choice) {
            t->rows[n + 1] += wanted[i];
            t->changed++;
        }
        t->known++;
        for (int k = 0; k < n && decided.probs != NULL; k++) {
            double p = decided.probs[k];
            t->low[k] = t->scored == 0 ? p : BASE_MIN(t->low[k], p);
            t->high[k] = t->scored == 0 ? p : BASE_MAX(t->high[k], p);
            t->mean[k] += p;
        }
        t->scored += decided.probs != NULL;
    }
}

enum { ANSWERS_SHOWN = 8, NAME_SHOWN = 30 };

static const char *literal_shown(const llm_call *call, int literal, bool quoted, arena *mem) {
    char text[LITERAL_SHOWN + 1];
    if (call->returns == RETURNS_BOOLEAN)
        return literal == 0 ? "true" : "false";
    utf8_copy(text, sizeof text, call->literals[literal]);
    return arena_printf(mem, quoted && call->returns == RETURNS_ENUM ? "'%s'" : "%s", text);
}

typedef struct answer_rows {
    uint64_t rows;
    int literal;
} answer_rows;

static int commonest_first(const void *a, const void *b) {
    const answer_rows *x = a, *y = b;
    return x->rows != y->rows ? (x->rows < y->rows ? 1 : -1) : x->literal - y->literal;
}

/* Appends ", name 1,234"; of a number ", 5 (1,234)". */
static void append_answer(buf *out, const char *name, bool number, uint64_t rows) {
    buf_printf(out, "%s%s %s", out->n > 0 ? ", " : "", name, number ? "(" : "");
    buf_append_count(out, rows);
    buf_append_c(out, number ? ")" : "");
}

/* Appends the line of a call to exec_summary.answers: "mood: positive 131, negative 109". */
static void print_call(const exec_ctx *ctx, const llm_call *call, const uint64_t *rows, buf *out) {
    arena *mem = arena_new();
    buf line = {0};
    bool numbers = call->returns == RETURNS_INTEGER;
    int n = call->nliterals, listed = 0, others = 0;
    uint64_t other_rows = 0;
    answer_rows *list = ARENA_ARRAY(mem, answer_rows, n);
    str name = call->field.n > 0 ? call->field : rel_name_of_call(ctx->stmt->query, call);
    for (int k = 0; k < n; k++)
        list[k] = (answer_rows){rows[k], k};
    qsort(list, (size_t)n, sizeof *list, commonest_first);
    for (int k = 0; k < n; k++) {
        if (listed == ANSWERS_SHOWN || (list[k].rows == 0 && n > ANSWERS_SHOWN)) {
            others += list[k].rows > 0;
            other_rows += list[k].rows;
            continue;
        }
        listed++;
        append_answer(&line, literal_shown(call, list[k].literal, false, mem), numbers,
                      list[k].rows);
    }
    if (others > 0)
        append_answer(&line, arena_printf(mem, "%d others", others), numbers, other_rows);
    if (rows[n] > 0)
        append_answer(&line, "NULL", numbers, rows[n]);
    if (rows[n + 2] > 0)
        append_answer(&line, arena_printf(mem, "%s on error", otherwise_shown(call, mem)), numbers,
                      rows[n + 2]);
    if (rows[n + 1] > 0) {
        buf_append_c(&line, "; calibration changed ");
        buf_append_count(&line, rows[n + 1]);
    }
    if (name.n > 0 && name.n <= NAME_SHOWN)
        buf_printf(out, "%s%.*s: ", out->n > 0 ? "\n" : "", (int)name.n, name.p);
    else
        buf_printf(out, "%sLLM#%d: ", out->n > 0 ? "\n" : "", call->number);
    buf_append_str(out, buf_str(&line));
    buf_free(&line);
    arena_free(mem);
}

/* Adds a call's rows to the counts of earlier operators, and writes all calls anew to the summary. */
static void summarize(op *o, const llm_call *call, const uint64_t *rows) {
    exec_ctx *ctx = o->ctx;
    uint64_t **sums = ctx->llm->answer_rows;
    int at = call->number - 1;
    if (sums[at] == NULL)
        sums[at] = ARENA_ARRAY(ctx->llm->mem, uint64_t, call->nliterals + 3);
    for (int k = 0; k < call->nliterals + 3; k++)
        sums[at][k] += rows[k];
    buf text = {0};
    for (int i = 0; i < ctx->stmt->ncalls; i++)
        if (sums[ctx->stmt->calls[i]->number - 1] != NULL)
            print_call(ctx, ctx->stmt->calls[i], sums[ctx->stmt->calls[i]->number - 1], &text);
    utf8_copy(ctx->counts.summary.answers, sizeof ctx->counts.summary.answers, buf_str(&text));
    buf_free(&text);
}

/* A notice is given if at least LOPSIDED of at least MANY_ANSWERS distinct inputs have the same
 * answer. It names the probabilities of the runner-up if they spread by SPREAD or more: then they
 * tell the inputs apart although the answers do not. */
enum { MANY_ANSWERS = 30 };
static const double LOPSIDED = 0.95, SPREAD = 0.05;

static void note_lopsided(op *o, const llm_call *call, const answer_tally *t, arena *mem) {
    int most = 0, next = -1;
    for (int k = 1; k < call->nliterals; k++)
        most = t->count[k] > t->count[most] ? k : most;
    for (int k = 0; k < call->nliterals; k++)
        if (k != most && (next < 0 || t->mean[k] > t->mean[next]))
            next = k;
    if (next < 0 || t->known < MANY_ANSWERS || (double)t->count[most] < LOPSIDED * (double)t->known)
        return;
    const char *more = "", *which = arena_printf(mem, "all %u", t->known);
    if (t->count[most] < t->known)
        which = arena_printf(mem, "%u of %u", t->count[most], t->known);
    if (t->high[next] - t->low[next] >= SPREAD)
        more = arena_printf(
            mem, ", although the probability of %s ranges from %.2f to %.2f%s",
            literal_shown(call, next, true, mem), t->low[next], t->high[next],
            llm_priors(o, call) == NULL
                ? ": calibrate => 'batch' decides by probability relative to the other rows"
                : "");
    exec_notice(o->ctx, "%.*s: %s answers are %s%s", (int)call->label.n, call->label.p, which,
                literal_shown(call, most, true, mem), more);
}

/* ---- NULL fields ----------------------------------------------------------------------------- */

/* The fields of a call that come from the relation whose rows it asks about; the others are
 * context. */
typedef struct asked_about {
    bool *is; /* [nfields] */
    int count;
    str column; /* the first of them as a column in SQL; n = 0: it is an expression */
} asked_about;

/* Returns how distinct a field is: the number of its texts, divided by the inputs that have it. */
static double distinctness(const llm_inputs *in, int f) {
    uint32_t with = 0;
    for (uint32_t i = 0; i < in->count; i++)
        with += in->value[f][i] != PSM_ABSENT;
    return with > 0 ? (double)in->fields[f].count / with : 0;
}

/* Finds the relation whose rows a call asks about: of reviews joined with their films, the reviews.
 * It is the one that has the most distinct field. Returns false if all fields come from one
 * relation, or if a field of another one is nearly as distinct. */
static bool find_asked_about(const op *o, const site_run *site, arena *mem, asked_about *out) {
    static const double repeats = 0.9;
    const llm_call *call = site->plan->call;
    int n = call->nfields, first = 0;
    const rel *node, **from = ARENA_ARRAY(mem, const rel *, n + 1);
    double *distinct = ARENA_ARRAY(mem, double, n + 1);
    const llm_site *u = rel_site_of_call(o->ctx->stmt->query, call, &node);
    if (u == NULL)
        return false;
    for (int f = 0; f < n; f++) {
        int id = expr_first_column(u->args[f]);
        bool same;
        from[f] = rel_column_source(node->left, &id, &same);
        distinct[f] = distinctness(site->in, f);
        first = distinct[f] > distinct[first] ? f : first;
    }
    *out = (asked_about){.is = ARENA_ARRAY(mem, bool, n + 1)};
    for (int f = 0; f < n; f++) {
        out->is[f] = from[f] == from[first];
        out->count += out->is[f];
        if (!out->is[f] && distinct[f] > repeats * distinct[first])
            return false;
    }
    out->column = u->args[first]->kind == EXPR_COLUMN ? u->args[first]->column.name : STR("");
    return out->count < n;
}

/* Lists the fields for which is[f] equals `which`: "review", "title and synopsis". */
static const char *fields_listed(const llm_call *call, const bool *is, bool which,
                                 const char *between, arena *mem) {
    buf b = {0};
    for (int f = 0; f < call->nfields; f++)
        if (is[f] == which)
            buf_printf(&b, "%s%.*s", b.n > 0 ? between : "", (int)call->field_names[f].n,
                       call->field_names[f].p);
    str text = str_copy(mem, buf_str(&b));
    buf_free(&b);
    return arena_strndup(mem, text.p, text.n);
}

/* Counts the rows whose answer was wanted, and those of them in which all fields in `is` are
 * NULL although others are not. */
static void count_nulls(const site_run *site, const bool *is, uint64_t *rows, uint64_t *null) {
    const llm_inputs *in = site->in;
    for (int64_t r = 0; r < in->rows; r++) {
        uint32_t input = in->of_row[r];
        bool absent = site->asked[r] && input != NO_INPUT;
        *rows += absent || (site->asked[r] && in->empty[r]);
        for (int f = 0; f < in->nfields && absent; f++)
            absent = !is[f] || input_lacks(in, f, input);
        *null += absent;
    }
}

static void note_context_only(op *o, const site_run *site, arena *mem) {
    const llm_call *call = site->plan->call;
    asked_about a;
    uint64_t rows = 0, null = 0;
    const char *hint = "";
    if (call->nfields < 2 || !find_asked_about(o, site, mem, &a))
        return;
    count_nulls(site, a.is, &rows, &null);
    if (null == 0)
        return;
    const char *which = fields_listed(call, a.is, true, " and ", mem);
    if (a.count == 1 && a.column.n > 0)
        hint = arena_printf(mem, " (WHERE %.*s IS NOT NULL leaves them out)", (int)a.column.n,
                            a.column.p);
    exec_notice(o->ctx, "LLM#%d: %s %s NULL in %llu of %llu rows, answered from %s alone%s",
                call->number, which, a.count > 1 ? "are" : "is", (unsigned long long)null,
                (unsigned long long)rows, fields_listed(call, a.is, false, " and ", mem), hint);
}

/* Rows without an input: the fields that the prompt names, or else all fields, are NULL. */
static void note_empty(op *o, const site_run *site, arena *mem) {
    const llm_call *call = site->plan->call;
    uint64_t rows = 0, empty = 0;
    bool named = false;
    for (int64_t r = 0; r < site->in->rows; r++) {
        bool without = site->in->of_row[r] == NO_INPUT;
        rows += site->asked[r] && (!without || site->in->empty[r]);
        empty += site->asked[r] && without && site->in->empty[r];
    }
    for (int f = 0; f < call->nfields; f++)
        named = named || call->field_required[f];
    if (empty == 0)
        return;
    const char *which = "all fields are";
    if (named || call->nfields == 1)
        which = arena_printf(mem, "%s is",
                             named ? fields_listed(call, call->field_required, true, " or ", mem)
                                   : fields_listed(call, call->field_required, false, "", mem));
    exec_notice(o->ctx, "LLM#%d: %s NULL in %llu of %llu rows: their answers are NULL",
                call->number, which, (unsigned long long)empty, (unsigned long long)rows);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void note_site(op *o, const site_run *site) {
    const llm_call *call = site->plan->call;
    arena *mem = arena_new();
    note_kinds(o, site, mem);
    if (call->nliterals > 0) {
        answer_tally t;
        tally_answers(o, site, mem, &t);
        note_lopsided(o, call, &t, mem);
        summarize(o, call, t.rows);
        o->ctx->llm->figures.answers_calibrated += t.changed;
    }
    if (call->cue.n == 0 || site->leader == site) { /* once for all fields of a STRUCT */
        note_empty(o, site, mem);
        note_context_only(o, site, mem);
    }
    arena_free(mem);
}

/* Of models at servers: once per statement, after its last operator so far. */
static void note_servers(op *o) {
    llm_runtime *r = o->ctx->llm;
    llm_figures now;
    runtime_figures(r, &now);
    uint64_t broken = now.broken_cells - r->broken_noted;
    r->broken_noted = now.broken_cells;
    if (broken > 0)
        exec_notice(
            o->ctx,
            "%llu value%s had the name of a control token, which the server would obey: they "
            "were sent with a zero-width space in it",
            (unsigned long long)broken, broken == 1 ? "" : "s");
}

void llm_note_answers(op *o) {
    const llm_state *s = o->state;
    for (int i = 0; i < s->nsites; i++)
        if (s->sites[i].answers && s->mode->answers && s->mode->returns)
            note_site(o, &s->sites[i]);
    note_servers(o);
}
