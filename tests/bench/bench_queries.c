/*
 * bench_queries - the papers' queries on real tables: no cache, FIFO, fixed and grouped order side by side.
 *
 *   bench_queries --data DIR [--rows N] [--baseline-rows K] [--query Q1,Q2] [--mode fixed,…] [--json]
 *   bench_queries --tutorial DIR [--seconds S]      the quick start's demonstration on the tutorials' data
 *
 * DIR holds rt.reviews.tsv.gz and rt.movie_info.tsv.gz. Whole movies are taken in a seeded order until there are N joined rows, which
 * are then shuffled by a fixed seed. Fields are r.review, m.synopsis, in that order as written. Every mode starts with empty KV and
 * no stored answers; the model is opened before the clock starts. Modes run on --baseline-rows are scaled by tokens and marked ~.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

enum { MAX_MODES = 4 };

typedef struct review {
    str movie, text, fresh;
} review;

typedef struct movie {
    str id, synopsis;
    int nreviews;
} movie;

typedef struct dataset {
    arena *mem;
    movie *movies;
    int nmovies;
    review *reviews;
    int nreviews, capacity;
} dataset;

typedef struct mode {
    const char *name, *label, *settings; /* statements that set it up */
    bool slow;
} mode;

static const mode modes[MAX_MODES] = {
    {"no_cache", "no cache", "SET psm = 'off'; SET kv_cache = off; SET llm_schedule = 'tree'; SET llm_window = 64", true},
    {"fifo", "FIFO", "SET psm = 'off'; SET kv_cache = on; SET llm_schedule = 'fifo'; SET llm_window = 64", true},
    {"fixed", "fixed", "SET psm = 'fixed'; SET kv_cache = on; SET llm_schedule = 'tree'; SET llm_window = 0", false},
    {"grouped", "grouped", "SET psm = 'grouped'; SET kv_cache = on; SET llm_schedule = 'tree'; SET llm_window = 0", false},
};

typedef struct query {
    const char *name, *sql; /* %s: the table of rows */
    bool is_filter;         /* returns n of the rows that pass */
    bool one_order;         /* has examples: grouped is fixed */
} query;

static const query queries[] = {
    {"Q1",
     "SELECT r.n, LLM('Summarize the review in a few words.', r.review, m.synopsis, max_tokens => 16) "
     "FROM %s r JOIN movies m ON r.movie = m.id ORDER BY r.n",
     false, false},
    {"Q2",
     "SELECT r.n FROM %s r JOIN movies m ON r.movie = m.id "
     "WHERE LLM('Is the review positive or negative?', r.review, m.synopsis, examples => few_shot) "
     "RETURNS ENUM('positive', 'negative') = 'positive' ORDER BY r.n",
     true, true},
};

typedef struct result {
    const char *query;
    const mode *mode;
    bool scaled;
    int rows;
    double seconds, agreement;
    double prompt_tokens, head_tokens, computed_tokens, thr_body;
    uint64_t hash;
    double sql_seconds;
} result;

typedef struct options {
    const char *data, *tutorial, *queries, *modes;
    int rows, baseline_rows;
    double seconds;
    bool json;
} options;

static BASE_NORETURN void die(const char *what, const err *e) {
    fprintf(stderr, "bench_queries: %s%s%s\n", what, e ? ": " : "", e ? e->message : "");
    if (e && e->hint[0])
        fprintf(stderr, "  hint: %s\n", e->hint);
    exit(1);
}

/* ---- SQL --------------------------------------------------------------------------------------- */

typedef void (*row_fn)(void *ctx, const batch *b);

static void run(db *d, const char *sql, row_fn each, void *ctx, exec_summary *summary) {
    err e = {0};
    const batch *b;
    stmt *s = db_submit(d, str_from(sql));
    for (;;) {
        stmt_status status = stmt_next(s, -1, &b, &e);
        if (status == STMT_ERROR) {
            fprintf(stderr, "in: %.300s\n", sql);
            die("statement failed", &e);
        }
        if (status == STMT_DONE)
            break;
        if (status == STMT_ROWS && each)
            each(ctx, b);
    }
    if (summary)
        stmt_summary(s, summary);
    stmt_free(s);
}

static void run_all(db *d, const char *statements) {
    str rest = str_from(statements);
    while (rest.n) {
        const char *end = memchr(rest.p, ';', rest.n);
        size_t n = end ? (size_t)(end - rest.p) : rest.n;
        char *one = mem_strndup(rest.p, n);
        run(d, one, NULL, NULL, NULL);
        free(one);
        n += end != NULL;
        rest = (str){rest.p + n, rest.n - n};
    }
}

/* ---- data -------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int csv_find(const csv *c, const char *name) {
    for (int i = 0; i < csv_column_count(c); i++)
        if (str_equal_nocase(csv_column_name(c, i), str_from(name)))
            return i;
    fprintf(stderr, "bench_queries: no column %s\n", name);
    exit(1);
}

/* Reads three text columns of a file; `keep` decides per row. */
static void read_file(const char *dir, const char *file, const char *const names[3], arena *mem,
                      void (*keep)(dataset *, str, str, str), dataset *set) {
    err e = {0};
    csv *c;
    buf path = {0};
    csv_options text_only = {.all_text = true};
    buf_printf(&path, "%s/%s", dir, file);
    if (csv_open(path.p, &text_only, &c, &e))
        die("cannot read the data", &e);
    int n = csv_column_count(c), at[3];
    value_type *types = mem_alloc(sizeof *types * (size_t)n);
    for (int i = 0; i < n; i++)
        types[i] = TYPE_TEXT;
    for (int i = 0; i < 3; i++)
        at[i] = csv_find(c, names[i]);
    arena *pass = arena_new();
    for (;;) {
        batch b = {.mem = pass};
        if (csv_next(c, types, &b, NULL, &e))
            die("cannot read the data", &e);
        if (b.rows == 0)
            break;
        for (int r = 0; r < b.rows; r++) {
            str cell[3];
            for (int i = 0; i < 3; i++)
                cell[i] = column_is_null(&b.cols[at[i]], r) ? (str){"", 0} : str_copy(mem, b.cols[at[i]].s[r]);
            keep(set, cell[0], cell[1], cell[2]);
        }
        arena_reset(pass);
    }
    arena_free(pass);
    free(types);
    buf_free(&path);
    csv_close(c);
}

static void keep_movie(dataset *d, str id, str synopsis, str unused) {
    (void)unused;
    if (synopsis.n == 0)
        return;
    if (d->nmovies % 1024 == 0)
        d->movies = mem_realloc(d->movies, sizeof *d->movies * (size_t)(d->nmovies + 1024));
    d->movies[d->nmovies++] = (movie){id, synopsis, 0};
}

static void keep_review(dataset *d, str id, str text, str fresh) {
    if (text.n == 0)
        return;
    if (d->nreviews == d->capacity) {
        d->capacity = d->capacity ? d->capacity * 2 : 4096;
        d->reviews = mem_realloc(d->reviews, sizeof *d->reviews * (size_t)d->capacity);
    }
    d->reviews[d->nreviews++] = (review){id, text, fresh};
}

static void insert_flush(db *d, buf *sql) {
    if (sql->n)
        run(d, sql->p, NULL, NULL, NULL);
    buf_clear(sql);
}

static void insert_row(db *d, buf *sql, const char *table, int64_t n, const str *cells, int ncells) {
    buf_printf(sql, sql->n ? ", (" : "INSERT INTO %s VALUES (", table);
    if (n >= 0)
        buf_printf(sql, "%" PRId64 ", ", n);
    for (int i = 0; i < ncells; i++) {
        if (i)
            buf_append_c(sql, ", ");
        value_print_sql(sql, value_text(cells[i]));
    }
    buf_append_char(sql, ')');
    if (sql->n > 200000)
        insert_flush(d, sql);
}

static int review_by_movie(const void *a, const void *b) {
    return str_compare(((const review *)a)->movie, ((const review *)b)->movie);
}

static void shuffle(review *rows, int n, uint64_t seed) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(next_random(&seed) % (uint64_t)(i + 1));
        review swap = rows[i];
        rows[i] = rows[j];
        rows[j] = swap;
    }
}

/* Takes whole movies in a seeded order until there are `rows` joined rows; returns them, shuffled. The two examples are the first
 * fresh and the first rotten review of the movies that come next in that order. */
static int choose_rows(dataset *d, int rows, review **out, review examples[2], str example_synopses[2]) {
    uint64_t seed = 20240311;
    int n = 0, want = 2;
    qsort(d->reviews, (size_t)d->nreviews, sizeof *d->reviews, review_by_movie);
    for (int i = d->nmovies - 1; i > 0; i--) {
        int j = (int)(next_random(&seed) % (uint64_t)(i + 1));
        movie swap = d->movies[i];
        d->movies[i] = d->movies[j];
        d->movies[j] = swap;
    }
    *out = mem_alloc(sizeof **out * (size_t)(d->nreviews + 1));
    bool found[2] = {false, false};
    for (int m = 0; m < d->nmovies && want > 0; m++) {
        review key = {.movie = d->movies[m].id};
        review *hit = bsearch(&key, d->reviews, (size_t)d->nreviews, sizeof key, review_by_movie);
        if (!hit)
            continue;
        while (hit > d->reviews && str_equal(hit[-1].movie, key.movie))
            hit--;
        for (; hit < d->reviews + d->nreviews && str_equal(hit->movie, key.movie); hit++) {
            int which = str_equal(hit->fresh, STR("fresh")) ? 0 : 1;
            if (n < rows) {
                (*out)[n++] = *hit;
            } else if (!found[which] && m % 2 == which) {
                examples[which] = *hit;
                example_synopses[which] = d->movies[m].synopsis;
                found[which] = true;
                want--;
            }
        }
    }
    shuffle(*out, n, 7);
    return n;
}

static void load_tables(db *d, dataset *set, const review *rows, int n, int nbase, const review ex[2], const str ex_synopses[2]) {
    buf sql = {0};
    run_all(d, "CREATE TABLE movies (id TEXT PRIMARY KEY, synopsis TEXT); "
               "CREATE TABLE few_shot (review TEXT, synopsis TEXT, answer TEXT); "
               "CREATE TABLE reviews (n INTEGER PRIMARY KEY, movie TEXT, review TEXT, fresh TEXT); "
               "CREATE TABLE base (n INTEGER PRIMARY KEY, movie TEXT, review TEXT, fresh TEXT)");
    for (int i = 0; i < set->nmovies; i++)
        insert_row(d, &sql, "movies", -1, (str[]){set->movies[i].id, set->movies[i].synopsis}, 2);
    insert_flush(d, &sql);
    for (int i = 0; i < n; i++)
        insert_row(d, &sql, "reviews", i, (str[]){rows[i].movie, rows[i].text, rows[i].fresh}, 3);
    insert_flush(d, &sql);
    for (int i = 0; i < nbase; i++)
        insert_row(d, &sql, "base", i, (str[]){rows[i].movie, rows[i].text, rows[i].fresh}, 3);
    insert_flush(d, &sql);
    for (int i = 1; i >= 0; i--) /* the rotten one first: a small model leans towards the answer that it saw last */
        insert_row(d, &sql, "few_shot", -1,
                   (str[]){ex[i].text, ex_synopses[i], i == 0 ? STR("positive") : STR("negative")}, 3);
    insert_flush(d, &sql);
    buf_free(&sql);
}

/* ---- measuring --------------------------------------------------------------------------------- */

typedef struct answers {
    uint64_t hash;
    bool *positive;
    int rows;
} answers;

static void take_rows(void *ctx, const batch *b) {
    answers *a = ctx;
    for (int r = 0; r < b->rows; r++) {
        int64_t n = b->cols[0].i[r];
        a->hash = hash_mix(a->hash, (uint64_t)n);
        if (b->ncols == 1 && n >= 0 && n < a->rows)
            a->positive[n] = true;
        if (b->ncols > 1 && !column_is_null(&b->cols[1], r))
            a->hash = hash64(b->cols[1].s[r].p, b->cols[1].s[r].n, a->hash);
    }
}

/* Tokens of the bodies that were computed: the shared head is computed once where anything is reused, else with every prompt. */
static double thr_body(const result *r) {
    bool reuses = strcmp(r->mode->name, "no_cache") != 0;
    double head = reuses ? r->head_tokens / r->rows : r->head_tokens;
    double body = r->prompt_tokens - r->head_tokens;
    return body > 0 ? 1 - (r->computed_tokens - head) / body : 0;
}

static void measure(db *d, const query *q, const mode *m, const char *table, const review *rows, int n, result *out) {
    exec_summary summary;
    answers a = {.hash = 1, .positive = mem_zalloc((size_t)n + 1), .rows = n};
    buf sql = {0};
    int agree = 0;
    run_all(d, m->settings);
    const char *at = strstr(q->sql, "%s");
    buf_append(&sql, q->sql, (size_t)(at - q->sql));
    buf_append_c(&sql, table);
    buf_append_c(&sql, at + 2);
    run(d, sql.p, take_rows, &a, &summary);
    for (int i = 0; i < n; i++)
        agree += a.positive[i] == str_equal(rows[i].fresh, STR("fresh"));
    *out = (result){.query = q->name,
                    .mode = m,
                    .rows = n,
                    .seconds = summary.seconds,
                    .sql_seconds = summary.sql_seconds,
                    .agreement = q->is_filter ? (double)agree / n : NAN,
                    .prompt_tokens = (double)summary.llm.prompt_tokens,
                    .head_tokens = (double)summary.head_tokens,
                    .computed_tokens = (double)summary.llm.computed_tokens,
                    .hash = a.hash};
    out->thr_body = thr_body(out);
    buf_free(&sql);
    free(a.positive);
}

static void scale(result *r, const result *whole) {
    double factor = whole->prompt_tokens / r->prompt_tokens;
    r->scaled = true;
    r->seconds *= factor;
    r->computed_tokens *= factor;
    r->prompt_tokens *= factor;
    r->head_tokens *= factor;
    r->rows = whole->rows;
}

static void print_result(const result *r, const result *slowest, bool json) {
    double thr = 1 - r->computed_tokens / r->prompt_tokens;
    if (json) {
        printf("{\"query\":\"%s\",\"mode\":\"%s\",\"scaled\":%s,\"rows\":%d,\"seconds\":%.3f,\"sql_seconds\":%.3f,"
               "\"prompt_tokens\":%.0f,\"head_tokens\":%.0f,\"computed_tokens\":%.0f,\"thr\":%.4f,\"thr_body\":%.4f,",
               r->query, r->mode->name, r->scaled ? "true" : "false", r->rows, r->seconds, r->sql_seconds, r->prompt_tokens,
               r->head_tokens, r->computed_tokens, thr, r->thr_body);
        if (isnan(r->agreement))
            printf("\"agreement\":null,");
        else
            printf("\"agreement\":%.4f,", r->agreement);
        printf("\"answers_hash\":\"%016" PRIx64 "\"}\n", r->hash);
    } else {
        const char *mark = r->scaled ? "~" : " ";
        printf("%-3s %-9s %s%6d %s%9.2f %7.1fx %s%10.0f %s%10.0f %6.1f%% %6.1f%%  ", r->query, r->mode->label, " ", r->rows, mark,
               r->seconds, slowest->seconds / r->seconds, mark, r->prompt_tokens, mark, r->computed_tokens, 100 * thr,
               100 * r->thr_body);
        if (isnan(r->agreement))
            printf("    –  ");
        else
            printf("%.3f  ", r->agreement);
        printf("%016" PRIx64 "\n", r->hash);
    }
    fflush(stdout);
}

static bool chosen(const char *list, const char *name) {
    if (!list)
        return true;
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ','))
            return true;
    return false;
}

static void bench_query(db *d, const query *q, const review *rows, int n, int nbase, const options *o) {
    result results[MAX_MODES], *whole = NULL;
    bool have[MAX_MODES] = {false};
    for (int pass = 0; pass < 2; pass++) /* the quick modes first: they know the whole's tokens */
        for (int m = 0; m < MAX_MODES; m++) {
            bool sample = modes[m].slow && nbase < n;
            if (modes[m].slow != (pass == 1) || !chosen(o->modes, modes[m].name) || (q->one_order && m == 3))
                continue;
            measure(d, q, &modes[m], sample ? "base" : "reviews", rows, sample ? nbase : n, &results[m]);
            have[m] = true;
            if (!sample)
                whole = &results[m];
            else if (whole)
                scale(&results[m], whole);
        }
    const result *slowest = NULL;
    for (int m = 0; m < MAX_MODES; m++) {
        if (!have[m])
            continue;
        if (!slowest)
            slowest = &results[m];
        print_result(&results[m], slowest, o->json);
    }
}

static db *open_db(void) {
    err e = {0};
    db *d;
    const llm_model_info *info;
    db_options memory = {.model = getenv("KVASIR_MODEL")};
    if (db_open(&memory, &d, &e))
        die("cannot open a database", &e);
    if (db_model_info(d, &info, &e))
        die("cannot open the model", &e);
    run_all(d, "SET cache = off; SET answer_cache = off; SET field_order = 'fresh'");
    return d;
}

static void bench_data(const options *o) {
    static const char *const movie_columns[] = {"id", "synopsis", "rating"};
    static const char *const review_columns[] = {"id", "review", "fresh"};
    dataset set = {.mem = arena_new()};
    review *rows, examples[2] = {{{0}, {0}, {0}}, {{0}, {0}, {0}}};
    str synopses[2] = {{0}, {0}};
    read_file(o->data, "rt.movie_info.tsv.gz", movie_columns, set.mem, keep_movie, &set);
    read_file(o->data, "rt.reviews.tsv.gz", review_columns, set.mem, keep_review, &set);
    int n = choose_rows(&set, o->rows, &rows, examples, synopses);
    int nbase = o->baseline_rows > 0 && o->baseline_rows < n ? o->baseline_rows : n;
    db *d = open_db();
    load_tables(d, &set, rows, n, nbase, examples, synopses);
    if (!o->json)
        printf("%-3s %-9s %7s %10s %8s %11s %11s %7s %7s  %-6s %s\n", "", "mode", "rows", "seconds", "speed", "tokens sent",
               "computed", "THR", "body", "agree", "answers");
    for (size_t q = 0; q < BASE_COUNT(queries); q++)
        if (chosen(o->queries, queries[q].name))
            bench_query(d, &queries[q], rows, n, nbase, o);
    db_close(d);
    free(rows);
    free(set.movies);
    free(set.reviews);
    arena_free(set.mem);
}

/* ---- the quick start's demonstration ----------------------------------------------------------- */

static const char *const tutorial_sql =
    "SELECT r.id FROM demo r JOIN movies m ON r.movie = m.id "
    "WHERE LLM('Is the review positive or negative?', r.review, m.title, m.synopsis) "
    "RETURNS ENUM('positive', 'negative') = 'positive'";

static void make_demo(db *d, int rows) {
    buf sql = {0};
    run_all(d, "DROP TABLE IF EXISTS demo");
    buf_printf(&sql, "CREATE TABLE demo AS SELECT id, movie, review FROM reviews ORDER BY id LIMIT %d", rows);
    run(d, sql.p, NULL, NULL, NULL);
    buf_free(&sql);
}

static void load_tutorial(db *d, const char *dir) {
    static const char *const files[] = {"movies", "reviews"};
    for (int i = 0; i < 2; i++) {
        buf sql = {0};
        buf_printf(&sql, "CREATE TABLE %s AS SELECT * FROM '%s/%s.csv'", files[i], dir, files[i]);
        run(d, sql.p, NULL, NULL, NULL);
        buf_free(&sql);
    }
}

static void count_row(void *ctx, const batch *b) {
    *(int64_t *)ctx = b->cols[0].i[0];
}

static void demonstrate(const options *o) {
    static const int shown[] = {0, 1, 2};
    static const char *const labels[] = {"no cache", "FIFO", "PSM"};
    exec_summary s;
    int64_t total = 0;
    db *d = open_db();
    load_tutorial(d, o->tutorial);
    run(d, "SELECT count(*) FROM reviews", count_row, &total, NULL);
    make_demo(d, 6);
    run_all(d, modes[0].settings);
    run(d, tutorial_sql, NULL, NULL, &s);
    int rows = (int)BASE_MIN((double)total, BASE_MAX(12.0, o->seconds / (s.seconds / 6)));
    make_demo(d, rows);
    printf("%s\n\non %d of the %" PRId64 " reviews, as many as row-by-row calls answer in about %.0f s:\n\n", tutorial_sql, rows,
           total, o->seconds);
    printf("  %-10s %9s %13s %16s %15s %9s\n", "", "seconds", "tokens sent", "tokens computed", "token hit rate", "speed-up");
    double first = 0;
    for (size_t i = 0; i < BASE_COUNT(shown); i++) {
        run_all(d, modes[shown[i]].settings);
        run(d, tutorial_sql, NULL, NULL, &s);
        if (i == 0)
            first = s.seconds;
        printf("  %-10s %9.2f %13" PRIu64 " %16" PRIu64 " %14.1f%% %8.1fx\n", labels[i], s.seconds, s.llm.prompt_tokens,
               s.llm.computed_tokens, 100.0 * (1 - (double)s.llm.computed_tokens / (double)s.llm.prompt_tokens),
               first / s.seconds);
        fflush(stdout);
    }
    printf("\nFIFO keeps the prefixes it has seen; PSM also decides the order of fields and rows, so that prompts share them.\n");
    db_close(d);
}

int main(int argc, char **argv) {
    options o = {.rows = 2000, .seconds = 20};
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--json") == 0)
            o.json = true;
        else if (!next)
            die("usage: bench_queries --data DIR [--rows N] [--baseline-rows K] [--query Q1,Q2] [--mode …] [--json]", NULL);
        else if (strcmp(argv[i], "--data") == 0)
            o.data = argv[++i];
        else if (strcmp(argv[i], "--tutorial") == 0)
            o.tutorial = argv[++i];
        else if (strcmp(argv[i], "--rows") == 0)
            o.rows = atoi(argv[++i]);
        else if (strcmp(argv[i], "--baseline-rows") == 0)
            o.baseline_rows = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seconds") == 0)
            o.seconds = atof(argv[++i]);
        else if (strcmp(argv[i], "--query") == 0)
            o.queries = argv[++i];
        else if (strcmp(argv[i], "--mode") == 0)
            o.modes = argv[++i];
        else
            die("unknown option", NULL);
    }
    if (o.tutorial)
        demonstrate(&o);
    else if (o.data)
        bench_data(&o);
    else
        die("say --data DIR or --tutorial DIR", NULL);
    return 0;
}
