/*
 * bench_queries.c - the papers' queries on real tables: no cache, FIFO, fixed and grouped order
 * side by side.
 *
 *   bench_queries --data DIR [--set movies|beer] [--rows N] [--baseline-rows K] [--query Q1,Q2]
 *   [--mode fixed,…] [--wide]
 *                 [--ablations] [--copy DIR] [--json]
 *
 * Q5, movies only: each review is judged with the three synopses nearest to it as contexts; needs the
 * embedding model. movies: fields are r.review, m.synopsis, in that order as written; --wide takes all of the
 * papers' columns that the data has. Every mode starts with empty KV and no stored answers; the
 * model is opened before the clock starts. Modes run on --baseline-rows are scaled by tokens and
 * marked ~. FIFO sees 64 requests at a time and has KV memory for 64. --copy: writes the rows of
 * Q2, in the order that shares most, and its examples as CSV files to DIR, for others to ask the
 * same. --ablations: field order alone, row order alone, dedup (without KV cache), and the order of
 * two LLM filters.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_data.h"

enum { MAX_MODES = 6, FIFO_WINDOW = 64 };

typedef struct mode {
    const char *name, *label, *settings; /* statements that set it up */
    bool slow, fifo;
    bool best_fields; /* fields written in the best order, not in the dataset's */
    bool ablation;
} mode;

static const mode modes[MAX_MODES] = {
    {"no_cache", "no cache",
     "SET psm = 'off'; SET kv_cache = off; SET llm_schedule = 'tree'; SET llm_window = 64", true,
     false, false, false},
    {"fifo", "FIFO",
     "SET psm = 'off'; SET kv_cache = on; SET llm_schedule = 'fifo'; SET llm_window = 64", true,
     true, false, false},
    {"columns", "fields",
     "SET psm = 'off'; SET kv_cache = on; SET llm_schedule = 'fifo'; SET llm_window = 64", true,
     true, true, true},
    {"row_order", "rows",
     "SET psm = 'off'; SET kv_cache = on; SET llm_schedule = 'tree'; SET llm_window = 0", true,
     false, false, true},
    {"fixed", "fixed",
     "SET psm = 'fixed'; SET kv_cache = on; SET llm_schedule = 'tree'; SET llm_window = 0", false,
     false, false, false},
    {"grouped", "grouped",
     "SET psm = 'grouped'; SET kv_cache = on; SET llm_schedule = 'tree'; SET llm_window = 0", false,
     false, false, false},
};

/* What is asked of a dataset. {T} in `from` is the table of rows, which has a key r.n. */
typedef struct subject {
    const char *name, *from, *fields, *best_fields, *wide, *best_wide, *group;
    const char *summary, *class, *rating; /* prompts */
    const char *class_tail, *yes, *no;    /* options and type of the class, two of its answers */
    const char *once, *once_fields;       /* columns whose values repeat, for dedup */
    const char *few, *few_fields,
        *few_type; /* a question about few distinct inputs, for the order of filters */
    void (*read)(const char *dir, int rows, bench_set *out);
    void (*load)(db *d, const bench_set *set, int nbase);
} subject;

static const subject subjects[] = {
    {"movies",
     "{T} r JOIN movies m ON r.movie = m.id",
     "r.review, m.synopsis",
     "m.synopsis, r.review",
     "m.genre, m.synopsis, m.studio, r.publisher, r.review, r.movie, r.top_critic",
     "m.synopsis, r.movie, m.studio, m.genre, r.publisher, r.top_critic, r.review",
     "r.movie",
     "Summarize the review in a few words.",
     "Is the review positive or negative?",
     "How much did the critic like the film, from 1 to 5?",
     ", examples => few_shot) RETURNS ENUM('positive', 'negative')",
     "positive",
     "negative",
     "m.synopsis AS synopsis",
     "r.synopsis",
     "What kind of film is it?",
     "m.synopsis",
     "ENUM('comedy', 'drama', 'thriller', 'horror', 'romance', 'documentary')",
     bench_movies,
     bench_load_movies},
    {"beer",
     "{T} r",
     "r.profile, r.time, r.overall, r.taste, r.palate, r.appearance, r.name, r.style, r.beer",
     "r.name, r.beer, r.style, r.time, r.profile, r.overall, r.taste, r.appearance, r.palate",
     "r.profile, r.time, r.overall, r.taste, r.palate, r.appearance, r.name, r.style, r.beer",
     "r.name, r.beer, r.style, r.time, r.profile, r.overall, r.taste, r.appearance, r.palate",
     "r.beer",
     "Describe the beer and its review in a few words.",
     "Is the beer of European origin?",
     "How much did the reviewer like the beer, from 1 to 5?",
     ") RETURNS ENUM('yes', 'no')",
     "yes",
     "no",
     "r.name AS name, r.style AS style",
     "r.name, r.style",
     "Where is this style of beer from?",
     "r.style",
     "ENUM('Belgium', 'Germany', 'England', 'Ireland', 'United States', 'elsewhere')",
     bench_beer,
     bench_load_beer},
};

/* {x} in `sql` stands for the subject's parts. */
typedef struct query {
    const char *name, *sql;
    double paper;    /* the papers' speed-up over no cache */
    bool is_filter;  /* returns the n of the rows that pass */
    bool is_grouped; /* one row a group */
} query;

static const query queries[] = {
    {"Q1", "SELECT r.n, LLM('{summary}', {fields}, max_tokens => 16) FROM {from} ORDER BY r.n", 3.6,
     false, false},
    {"Q2",
     "SELECT r.n FROM {from} WHERE LLM('{class}', {fields}{class_tail} = '{yes}' ORDER BY r.n", 4.4,
     true, false},
    {"Q3",
     "SELECT r.n, LLM('{summary}', {fields}, max_tokens => 16) FROM {from} "
     "WHERE LLM('{class}', {fields}{class_tail} = '{no}' ORDER BY r.n",
     3.0, false, false},
    {"Q4",
     "SELECT {group}, avg(LLM('{rating}', {fields}) RETURNS INTEGER BETWEEN 1 AND 5) FROM {from} "
     "GROUP BY {group} ORDER BY 1",
     3.4, false, true},
};

typedef struct answers {
    arena *mem;
    char **text; /* by n, or by position where rows are groups; NULL: no such row */
    int rows, count;
    bool grouped;
    uint64_t hash;
} answers;

typedef struct result {
    const char *query;
    const mode *mode;
    bool scaled;
    int rows;
    double seconds, agreement, same, paper;
    double prompt_tokens, head_tokens, computed_tokens, thr_body;
    double sql_seconds, solve_seconds;
    answers a;
} result;

typedef struct options {
    const char *data, *queries, *modes, *subject, *copy;
    int rows, baseline_rows;
    bool json, wide, ablations;
} options;

/* What all measurements of a run share. */
typedef struct bench {
    const options *o;
    const subject *s;
    bench_set set;
    db *d;
    int nbase;
    double kv_bytes_per_token;
} bench;

/* ---- statements ------------------------------------------------------------------------------ */

static const char *part_of(const bench *b, const char *name, size_t n, bool best) {
    const subject *s = b->s;
    const struct {
        const char *name, *text;
    } parts[] = {{"summary", s->summary},
                 {"class", s->class},
                 {"class_tail", s->class_tail},
                 {"rating", s->rating},
                 {"yes", s->yes},
                 {"no", s->no},
                 {"group", s->group},
                 {"from", s->from},
                 {"once", s->once},
                 {"few", s->few},
                 {"few_fields", s->few_fields},
                 {"few_type", s->few_type},
                 {"once_fields", s->once_fields},
                 {"fields", b->o->wide ? (best ? s->best_wide : s->wide)
                            : best     ? s->best_fields
                                       : s->fields}};
    for (size_t i = 0; i < BASE_COUNT(parts); i++)
        if (strlen(parts[i].name) == n && memcmp(parts[i].name, name, n) == 0)
            return parts[i].text;
    bench_die("a query names an unknown part", NULL);
}

/* Puts the subject's parts and the table's name into a query. */
static void expand(const bench *b, const char *sql, const char *table, bool best, buf *out) {
    for (const char *at = sql; *at; at++) {
        const char *end = *at == '{' ? strchr(at, '}') : NULL;
        if (!end) {
            buf_append_char(out, *at);
            continue;
        }
        if (memcmp(at, "{T}", 3) == 0)
            buf_append_c(out, table);
        else
            expand(b, part_of(b, at + 1, (size_t)(end - at - 1), best), table, best, out);
        at = end;
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void take_rows(void *ctx, const batch *b) {
    answers *a = ctx;
    for (int r = 0; r < b->rows; r++) {
        buf text = {0};
        for (int c = 0; c < b->ncols; c++) {
            value v = column_get(&b->cols[c], r);
            buf_append_char(&text, '|');
            if (v.type != TYPE_NULL)
                value_print(&text, v);
        }
        int64_t at = a->grouped ? a->count : b->cols[0].i[r];
        a->hash = hash64(text.p, text.n, a->hash);
        a->count++;
        if (at >= 0 && at < a->rows)
            a->text[at] = (char *)(uintptr_t)str_copy(a->mem, (str){text.p, text.n + 1}).p;
        buf_free(&text);
    }
}

/* The share of rows that both answered, or dropped,
 * alike; groups compare only over the same rows. */
static double same_answers(const answers *a, const answers *b) {
    int n = BASE_MIN(a->rows, b->rows), same = 0, seen = 0;
    if (n == 0 || (a->grouped && a->rows != b->rows))
        return NAN;
    for (int i = 0; i < n; i++) {
        bool neither = !a->text[i] && !b->text[i];
        same +=
            neither ? !a->grouped : a->text[i] && b->text[i] && strcmp(a->text[i], b->text[i]) == 0;
        seen += a->grouped ? !neither : 1;
    }
    return (double)same / BASE_MAX(seen, 1);
}

static double label_agreement(const bench *b, const answers *a) {
    int agree = 0, labelled = 0;
    for (int i = 0; i < a->rows; i++) {
        labelled += b->set.rows[i].label.n > 0;
        agree += (a->text[i] != NULL) == str_equal(b->set.rows[i].label, STR("fresh"));
    }
    return labelled ? (double)agree / a->rows : NAN;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Tokens of the bodies that were computed: the shared head is computed once where anything is
 * reused, else with every prompt. */
static double thr_body(const result *r) {
    bool reuses = strstr(r->mode->settings, "kv_cache = off") == NULL;
    double head = reuses ? r->head_tokens / r->rows : r->head_tokens;
    double body = r->prompt_tokens - r->head_tokens;
    return body > 0 ? 1 - (r->computed_tokens - head) / body : 0;
}

static void add_texts(void *ctx, const batch *b) {
    for (int r = 0; r < b->rows; r++)
        for (int c = 0; c < b->ncols; c++)
            if (!column_is_null(&b->cols[c], r)) {
                buf_append_str(ctx, b->cols[c].s[r]);
                buf_append_char(ctx, '\n');
            }
}

/* KV memory for as many requests as FIFO sees at a time: the first rows' fields, in whole blocks,
 * with room for a head and an answer. */
static void set_fifo_memory(bench *b) {
    buf sql = {0}, texts = {0}, listing = {0};
    err e;
    expand(b, "SELECT {fields} FROM {from} WHERE r.n < 64", "reviews", false, &sql);
    bench_run(b->d, sql.p, add_texts, &texts, NULL);
    if (db_tokenize(b->d, buf_str(&texts), &listing, NULL, &e))
        bench_die("cannot count tokens", &e);
    double tokens = atof(listing.p) + FIFO_WINDOW * 2.0 * LLM_BLOCK_TOKENS;
    buf_clear(&sql);
    buf_printf(&sql, "SET kv_memory = %.0f", tokens * b->kv_bytes_per_token);
    bench_run(b->d, sql.p, NULL, NULL, NULL);
    buf_free(&sql);
    buf_free(&texts);
    buf_free(&listing);
}

static void measure(bench *b, const query *q, const mode *m, const char *table, int n,
                    result *out) {
    exec_summary summary;
    arena *mem = b->set.mem;
    answers a = {.mem = mem,
                 .text = ARENA_ARRAY(mem, char *, n + 1),
                 .rows = n,
                 .grouped = q->is_grouped,
                 .hash = 1};
    buf sql = {0};
    bench_run(b->d, "RESET kv_memory", NULL, NULL, NULL);
    bench_run_all(b->d, m->settings);
    if (m->fifo)
        set_fifo_memory(b);
    expand(b, q->sql, table, m->best_fields, &sql);
    bench_run(b->d, sql.p, take_rows, &a, &summary);
    *out = (result){.query = q->name,
                    .mode = m,
                    .rows = n,
                    .paper = q->paper,
                    .seconds = summary.seconds,
                    .sql_seconds = summary.sql_seconds,
                    .solve_seconds = summary.solve_seconds,
                    .agreement = q->is_filter ? label_agreement(b, &a) : NAN,
                    .same = NAN,
                    .prompt_tokens = (double)summary.llm.prompt_tokens,
                    .head_tokens = (double)summary.llm.head_tokens,
                    .computed_tokens = (double)summary.llm.computed_tokens,
                    .a = a};
    out->thr_body = thr_body(out);
    buf_free(&sql);
}

static void scale(result *r, const result *whole) {
    double factor = whole->prompt_tokens / r->prompt_tokens;
    r->scaled = true;
    r->seconds *= factor;
    r->computed_tokens *= factor;
    r->prompt_tokens *= factor;
    r->head_tokens *= factor;
    r->sql_seconds *= factor;
    r->solve_seconds *= factor;
    r->rows = whole->rows;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_heading(const options *o) {
    if (!o->json)
        printf("%-6s %-9s %7s %10s %8s %6s %11s %11s %7s %7s %6s %6s %6s  %s\n", "", "mode", "rows",
               "seconds", "speed", "paper", "tokens sent", "computed", "THR", "body", "SQL", "same",
               "agree", "answers");
}

static void print_share(double share, bool json, const char *name) {
    if (json && isnan(share))
        printf("\"%s\":null,", name);
    else if (json)
        printf("\"%s\":%.4f,", name, share);
    else if (isnan(share))
        printf("%8s ", "–"); /* three bytes wide, one column */
    else
        printf("%6.3f ", share);
}

static void print_json(const result *r, double speed) {
    printf("{\"query\":\"%s\",\"mode\":\"%s\",\"scaled\":%s,\"rows\":%d,\"seconds\":%.3f,\"sql_"
           "seconds\":%.3f,"
           "\"prompt_tokens\":%.0f,\"head_tokens\":%.0f,\"computed_tokens\":%.0f,\"thr\":%.4f,"
           "\"thr_body\":%.4f,",
           r->query, r->mode->name, r->scaled ? "true" : "false", r->rows, r->seconds,
           r->sql_seconds, r->prompt_tokens, r->head_tokens, r->computed_tokens,
           1 - r->computed_tokens / r->prompt_tokens, r->thr_body);
    print_share(r->agreement, true, "agreement");
    print_share(r->same, true, "same_answers");
    printf("\"solve_seconds\":%.4f,\"speedup\":%.3f,\"paper_speedup\":%.1f,\"answers_hash\":\"%"
           "016" PRIx64 "\"}\n",
           r->solve_seconds, speed, r->paper, r->a.hash);
}

/* The slowest mode stands first; `reference` is what speed is told against. */
static void print_result(const result *r, const result *reference, bool json) {
    double speed = reference->seconds / r->seconds;
    if (json) {
        print_json(r, speed);
    } else {
        const char *mark = r->scaled ? "~" : " ";
        bool best = strcmp(r->mode->name, "grouped") == 0 && r->paper > 0;
        char paper[16] = "";
        if (best)
            snprintf(paper, sizeof paper, "%.1fx", r->paper);
        printf("%-6s %-9s %s%6d %s%9.2f %7.1fx %6s %s%10.0f %s%10.0f %6.1f%% %6.1f%% %5.2f%% ",
               r->query, r->mode->label, " ", r->rows, mark, r->seconds, speed, paper, mark,
               r->prompt_tokens, mark, r->computed_tokens,
               100 * (1 - r->computed_tokens / r->prompt_tokens), 100 * r->thr_body,
               100 * r->sql_seconds / r->seconds);
        print_share(r->same, false, "same_answers");
        print_share(r->agreement, false, "agreement");
        printf(" %016" PRIx64 "\n", r->a.hash);
    }
    fflush(stdout);
}

/* ---- queries --------------------------------------------------------------------------------- */

static bool chosen(const char *list, const char *name) {
    if (!list)
        return true;
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ','))
            return true;
    return false;
}

static bool wanted(const options *o, const mode *m) {
    return o->modes ? chosen(o->modes, m->name) : !m->ablation || o->ablations;
}

static void bench_query(bench *b, const query *q) {
    result results[MAX_MODES], *whole = NULL;
    const result *first = NULL;
    bool have[MAX_MODES] = {false};
    int n = b->set.nrows;
    for (int pass = 0; pass < 2; pass++) /* the quick modes first: they know the whole's tokens */
        for (int m = MAX_MODES - 1; m >= 0; m--) {
            bool sample = modes[m].slow && b->nbase < n;
            if (modes[m].slow != (pass == 1) || !wanted(b->o, &modes[m]))
                continue;
            measure(b, q, &modes[m], sample ? "base" : "reviews", sample ? b->nbase : n,
                    &results[m]);
            have[m] = true;
            if (!sample)
                whole = &results[m];
            else if (whole)
                scale(&results[m], whole);
        }
    for (int m = 0; m < MAX_MODES; m++) {
        if (!have[m])
            continue;
        first = first ? first : &results[m];
        if (&results[m] != first)
            results[m].same = same_answers(&first->a, &results[m].a);
        print_result(&results[m], first, b->o->json);
    }
}

/* ---- ablations of the operator --------------------------------------------------------------- */

/* Two settings side by side; the first is the slow one. */
static void bench_pair(bench *b, const query *q, const mode pair[2]) {
    result results[2];
    int n = b->set.nrows;
    bool sample = b->nbase < n;
    measure(b, q, &pair[1], "reviews", n, &results[1]);
    measure(b, q, &pair[0], sample ? "base" : "reviews", sample ? b->nbase : n, &results[0]);
    if (sample && strcmp(q->name, "DEDUP") == 0) {
        results[0].seconds *= (double)n / b->nbase; /* every row costs the same */
        results[0].prompt_tokens *= (double)n / b->nbase;
        results[0].head_tokens *= (double)n / b->nbase;
        results[0].computed_tokens *= (double)n / b->nbase;
        results[0].rows = n;
        results[0].scaled = true;
    }
    results[1].same = same_answers(&results[0].a, &results[1].a);
    print_result(&results[0], &results[0], b->o->json);
    print_result(&results[1], &results[0], b->o->json);
}

/* Where inputs repeat and nothing else helps: one field of a joined table, no KV cache. */
static void bench_dedup(bench *b) {
    static const mode pair[] = {
        {"dedup_off", "all rows",
         "SET psm = 'off'; SET kv_cache = off; SET llm_window = 64; SET dedup = off", true, false,
         false, true},
        {"dedup_on", "dedup",
         "SET psm = 'off'; SET kv_cache = off; SET llm_window = 64; SET dedup = on", false, false,
         false, true}};
    static const query q = {
        "DEDUP",
        "SELECT r.n, LLM('{few}', {once_fields}) RETURNS {few_type} FROM once_{T} r ORDER BY r.n",
        8.2, false, false};
    static const char *const tables[] = {"reviews", "base"};
    for (int t = 0; t < 2; t++) {
        buf sql = {0};
        expand(b, "CREATE TABLE once_{T} AS SELECT r.n AS n, {once} FROM {from}", tables[t], false,
               &sql);
        bench_run(b->d, sql.p, NULL, NULL, NULL);
        buf_free(&sql);
    }
    bench_pair(b, &q, pair);
    bench_run_all(b->d, "SET dedup = on; SET kv_cache = on");
}

typedef struct share {
    char literal[64];
    double share, rows;
} share;

/* Keeps the answer that most rows have among those that at most 15 % have; else the rarest. */
static void take_share(void *ctx, const batch *b) {
    share *best = ctx;
    for (int r = 0; r < b->rows; r++) {
        double s = (double)b->cols[1].i[r] / best->rows;
        bool first = best->literal[0] == 0, fits = s <= 0.15;
        if (column_is_null(&b->cols[0], r) ||
            !(first || (best->share > 0.15 ? s < best->share : fits && s > best->share)))
            continue;
        snprintf(best->literal, sizeof best->literal, "%.*s", (int)b->cols[0].s[r].n,
                 b->cols[0].s[r].p);
        best->share = s;
    }
}

/* A filter on every row's own prompt, written first, and one of few prompts that keeps few rows.
 * The measured share comes from a run before, as the planner's does. */
static void bench_filters(bench *b) {
    static const mode pair[] = {
        {"filters_written", "written",
         "SET psm = 'auto'; SET rules_off = 'llm_placement, llm_up, reorder'", false, false, false,
         true},
        {"filters_planned", "planned", "SET psm = 'auto'; SET rules_off = ''", false, false, false,
         true}};
    share s = {.rows = b->set.nrows};
    buf sql = {0}, text = {0};
    bench_run_all(
        b->d, "SET psm = 'auto'; SET llm_schedule = 'tree'; SET llm_window = 0; RESET kv_memory");
    expand(b,
           "SELECT q.a, count(*) FROM (SELECT LLM('{few}', {few_fields}) RETURNS {few_type} AS a "
           "FROM {from}) AS q GROUP BY q.a",
           "reviews", false, &sql);
    bench_run(b->d, sql.p, take_share, &s, NULL);
    buf_printf(
        &text,
        "SELECT r.n FROM {from} WHERE LLM('{summary}', {fields}, max_tokens => 16) IS NOT NULL "
        "AND LLM('{few}', {few_fields}) RETURNS {few_type} = '%s' ORDER BY r.n",
        s.literal);
    query q = {"FILTER", text.p, 6.7, false, false};
    if (!b->o->json)
        printf("FILTER: '%s' is the answer on %.1f %% of the rows\n", s.literal, 100 * s.share);
    else
        printf("{\"query\":\"FILTER\",\"literal\":\"%s\",\"selectivity\":%.4f}\n", s.literal,
               s.share);
    int nbase = b->nbase;
    b->nbase = b->set.nrows; /* rows passed depend on which rows there are: not scaled */
    bench_pair(b, &q, pair);
    b->nbase = nbase;
    bench_run_all(b->d, "SET rules_off = ''");
    buf_free(&sql);
    buf_free(&text);
}

/* ---- retrieval ------------------------------------------------------------------------------- */

/* Runs a statement for both tables of rows, and returns its seconds for the reviews. */
static double run_for_tables(bench *b, const char *sql) {
    static const char *const tables[] = {"base", "reviews"};
    exec_summary summary = {0};
    for (int t = 0; t < 2; t++) {
        buf text = {0};
        expand(b, sql, tables[t], false, &text);
        bench_run(b->d, text.p, NULL, NULL, &summary);
        buf_free(&text);
    }
    return summary.seconds;
}

/* Retrieval, then a judgement: without a KV cache and with contexts as they were retrieved; with PSM,
 * which may order them; and with blended contexts, whose answers are compared with the exact ones in
 * the order as retrieved. KV memory holds all contexts. */
static void bench_retrieval(bench *b) {
#define TREE                                                                                       \
    "SET psm = 'fixed'; SET kv_cache = on; SET llm_schedule = 'tree'; SET llm_window = 0; "        \
    "SET kv_memory = '8GB'; SET chunk_kv = "
#define BLEND(rule) TREE "'blend'; SET blend_rule = '" rule "'"
    static const mode retrieved[] = {
        {"ranked", "ranked", TREE "'exact'", false, false, false, true},
        {"set", "set", TREE "'exact'", false, false, false, true},
        {"blend_question", "question", BLEND("question"), false, false, false, true},
        {"blend_deviation", "deviation", BLEND("deviation"), false, false, false, true},
        {"blend_edges", "edges", BLEND("edges"), false, false, false, true}};
    enum { MODES = BASE_COUNT(retrieved) };
#define Q5(order)                                                                                  \
    "SELECT r.n, LLM('{class}', r.review, contexts => (SELECT f.synopsis FROM found f ORDER BY "   \
    "f.v <=> r.v LIMIT 3), contexts_order => '" order                                              \
    "') RETURNS ENUM('positive', 'negative') FROM asked_{T} r ORDER BY r.n"
    static const query by_rank = {"Q5", Q5("ranked"), 0, false, false},
                       as_set = {"Q5", Q5("set"), 0, false, false};
    exec_summary films;
    bench_run(b->d, "CREATE TABLE found AS SELECT synopsis, EMBED(synopsis) AS v FROM movies", NULL,
              NULL, &films);
    double embedding =
        films.seconds + run_for_tables(b, "CREATE TABLE asked_{T} AS SELECT r.n AS n, r.review AS "
                                          "review, EMBED(r.review) AS v FROM {T} r");
    double retrieval = run_for_tables(
        b, "SELECT count(f.synopsis) FROM asked_{T} r, LATERAL (SELECT f.synopsis FROM found f "
           "ORDER BY f.v <=> r.v LIMIT 3) AS f");
    /* priors of other samples would give other answers */
    bench_run(b->d, "SET llm_calibrate = 'off'", NULL, NULL, NULL);
    result base, results[MODES];
    int n = b->set.nrows;
    bool sample = b->nbase < n;
    for (int i = MODES - 1; i >= 0; i--)
        measure(b, i == 1 ? &as_set : &by_rank, &retrieved[i], "reviews", n, &results[i]);
    bench_run(b->d, "RESET chunk_kv", NULL, NULL, NULL);
    measure(b, &by_rank, &modes[0], sample ? "base" : "reviews", sample ? b->nbase : n, &base);
    if (sample)
        scale(&base, &results[0]);
    print_result(&base, &base, b->o->json);
    for (int i = 0; i < MODES; i++) {
        results[i].same = same_answers(i < 2 ? &base.a : &results[0].a, &results[i].a);
        print_result(&results[i], &base, b->o->json);
    }
    bench_run(b->d, "RESET llm_calibrate", NULL, NULL, NULL);
    double all = embedding + results[1].seconds;
    printf(b->o->json ? "{\"query\":\"Q5\",\"embedding_seconds\":%.3f,\"retrieval_seconds\":%.3f,"
                        "\"embedding_share\":%.4f,\"retrieval_share\":%.4f}\n"
                      : "Q5: embedding %.2f s, retrieval %.3f s: shares of the time with answering "
                        "%.4f and %.4f\n",
           embedding, retrieval, embedding / all, retrieval / all);
}

/* ---- running --------------------------------------------------------------------------------- */

static db *open_db(double *kv_bytes_per_token) {
    err e = {0};
    db *d;
    llm_model_info info;
    arena *mem = arena_new();
    db_options memory = {.model = getenv("KVASIR_MODEL")};
    if (db_open(&memory, &d, &e))
        bench_die("cannot open a database", &e);
    if (db_model_info(d, mem, &info, NULL, &e))
        bench_die("cannot open the model", &e);
    *kv_bytes_per_token = (double)info.kv_bytes_per_token;
    arena_free(mem);
    bench_run_all(d, "SET cache = off; SET answer_cache = off; SET llm_layout = 'auto'; SET "
                     "field_order = 'fresh'");
    /* weights are read for the first pass: that is no query's time, as it is no server's */
    bench_run(d, "SELECT LLM('Is this the first question?') RETURNS BOOLEAN", NULL, NULL, NULL);
    return d;
}

static const subject *find_subject(const char *name) {
    for (size_t i = 0; i < BASE_COUNT(subjects); i++)
        if (strcmp(subjects[i].name, name) == 0)
            return &subjects[i];
    bench_die("--set is movies or beer", NULL);
}

static void copy_questions(const bench *b) {
    buf sql = {0};
    buf_printf(&sql,
               "COPY (SELECT m.synopsis, r.review FROM reviews r JOIN movies m ON r.movie = m.id "
               "ORDER BY 1, 2) TO '%s/rows.csv'; COPY few_shot TO '%s/examples.csv'",
               b->o->copy, b->o->copy);
    bench_run_all(b->d, sql.p);
    buf_free(&sql);
}

static void bench_data(const options *o) {
    bench b = {.o = o, .s = find_subject(o->subject)};
    b.s->read(o->data, o->rows, &b.set);
    b.nbase =
        o->baseline_rows > 0 && o->baseline_rows < b.set.nrows ? o->baseline_rows : b.set.nrows;
    b.d = open_db(&b.kv_bytes_per_token);
    b.s->load(b.d, &b.set, b.nbase);
    bench_run(b.d, "ANALYZE", NULL, NULL, NULL);
    if (o->copy && b.s->load == bench_load_movies)
        copy_questions(&b);
    print_heading(o);
    for (size_t q = 0; q < BASE_COUNT(queries); q++)
        if (chosen(o->queries, queries[q].name))
            bench_query(&b, &queries[q]);
    if (chosen(o->queries, "Q5") && b.s->load == bench_load_movies)
        bench_retrieval(&b);
    if (o->ablations && chosen(o->queries, "DEDUP"))
        bench_dedup(&b);
    if (o->ablations && chosen(o->queries, "FILTER"))
        bench_filters(&b);
    db_close(b.d);
    bench_set_free(&b.set);
}

static const char usage[] = "usage: bench_queries --data DIR [--set movies|beer] [--rows N] "
                            "[--baseline-rows K] [--query Q1,Q2] "
                            "[--mode fixed,…] [--wide] [--ablations] [--copy DIR] [--json]";

/* Options that take a value; false: there is none of that name. */
static bool set_value(options *o, const char *name, const char *text) {
    if (strcmp(name, "--data") == 0)
        o->data = text;
    else if (strcmp(name, "--set") == 0)
        o->subject = text;
    else if (strcmp(name, "--rows") == 0)
        o->rows = atoi(text);
    else if (strcmp(name, "--baseline-rows") == 0)
        o->baseline_rows = atoi(text);
    else if (strcmp(name, "--query") == 0)
        o->queries = text;
    else if (strcmp(name, "--mode") == 0)
        o->modes = text;
    else if (strcmp(name, "--copy") == 0)
        o->copy = text;
    else
        return false;
    return true;
}

static bool set_switch(options *o, const char *name) {
    if (strcmp(name, "--json") == 0)
        return o->json = true;
    if (strcmp(name, "--wide") == 0)
        return o->wide = true;
    if (strcmp(name, "--ablations") == 0)
        return o->ablations = true;
    return false;
}

int main(int argc, char **argv) {
    options o = {.rows = 2000, .subject = "movies"};
    for (int i = 1; i < argc; i++) {
        if (set_switch(&o, argv[i]))
            continue;
        if (i + 1 == argc || !set_value(&o, argv[i], argv[i + 1]))
            bench_die(usage, NULL);
        i++;
    }
    if (!o.data)
        bench_die(usage, NULL);
    bench_data(&o);
    return 0;
}
