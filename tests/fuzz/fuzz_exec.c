/*
 * fuzz_exec.c - any statement, run over tables with rows, indexes, views and calls of the hashing
 * test model, must end in rows or in an error that is not our own mistake. What a query returns is
 * the same with every rule of the planner off; what a statement writes is found by indexes as by
 * scans; a rollback takes it back. Each input starts from the same database.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "exec/exec.h"
#include "tests/fuzz/sql_mutate_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Statements take milliseconds; what runs on (a recursion without end, a product of joins) is
 * cancelled, and so is what returns more rows than are worth comparing. */
enum { LIMIT_MS = 300, ROWS_MAX = 20000, VARIANTS = 3 };

static const char *const contents[] = {
    "CREATE TABLE everything (id INTEGER PRIMARY KEY, flag BOOLEAN DEFAULT TRUE, score REAL CHECK "
    "(score >= 0), note TEXT UNIQUE DEFAULT 'none', bytes BLOB, made TEXT DEFAULT '2024-02-29', "
    "CHECK (id <> 13 OR flag))",
    "CREATE TABLE few_shot (id INTEGER PRIMARY KEY, review TEXT, answer TEXT)",
    "CREATE TABLE movies (id INTEGER PRIMARY KEY, title TEXT, synopsis TEXT, year INTEGER)",
    "CREATE TABLE reviews (id INTEGER, movie_id INTEGER, title TEXT, review TEXT, stars REAL, "
    "fresh BOOLEAN)",
    "CREATE INDEX movies_year ON movies (year, title)",
    "CREATE INDEX reviews_movie ON reviews (movie_id, stars)",
    "CREATE VIEW recent(a, b) AS SELECT title, year FROM movies WHERE year > 2000",
    "CREATE VIEW shots AS SELECT review, answer FROM few_shot ORDER BY id DESC",
    "CREATE VIEW tones AS SELECT id, LLM('Tone of {review}?', review) AS tone FROM reviews",
    "INSERT INTO few_shot VALUES (1, 'fine', 'good'), (2, 'dull', 'bad'), (3, 'so so', 'good')",
    "INSERT INTO movies SELECT n, CASE n % 3 WHEN 0 THEN NULL ELSE 'film ' || n END, 'about ' || "
    "(n % 4), 1995 + n % 9 FROM generate_series(1, 12) AS s(n)",
    "INSERT INTO reviews SELECT n, nullif(n % 14, 0), 't' || (n % 5), CASE n % 7 WHEN 0 THEN NULL "
    "WHEN 1 THEN '' ELSE 'words ' || (n % 6) END, n % 11 * 0.5, CASE n % 3 WHEN 0 THEN TRUE WHEN 1 "
    "THEN FALSE END FROM generate_series(1, 40) AS s(n)",
    "INSERT INTO everything SELECT n, n % 2 = 0, n * 0.25, CASE WHEN n % 4 > 0 THEN 'note ' || n "
    "END, CAST('b' || n AS BLOB), DATE('2024-01-01') FROM generate_series(1, 12) AS s(n)",
    "CREATE MODEL small FROM 'test:hash'",
    "SET model = 'small'",
    "SET cache = off",
    "ANALYZE",
};

static db *d;
static char all_rules[2048]; /* as SET rules_off takes them */

static void broken(str sql, const char *what, const char *detail) {
    fprintf(stderr, "broken: %s: %s\nin: %.*s\n", what, detail, (int)sql.n, sql.p);
    abort();
}

typedef struct outcome {
    bool failed, whole; /* whole: ran to its end, all rows counted */
    int64_t changes;
    uint64_t rows, bag; /* sum of the rows' hashes */
} outcome;

static void count_rows(const batch *b, outcome *out) {
    buf line = {0};
    for (int row = 0; row < b->rows; row++) {
        buf_clear(&line);
        for (int c = 0; c < b->ncols; c++) {
            value v = column_get(&b->cols[c], row);
            buf_printf(&line, "|%d", v.type == TYPE_NULL);
            if (v.type == TYPE_REAL) /* sums hang on the order of rows in their last digits */
                buf_printf(&line, "%.9g", v.r);
            else if (v.type != TYPE_NULL)
                value_print(&line, v);
        }
        out->bag += hash64(line.p, line.n, 7);
    }
    out->rows += (uint64_t)b->rows;
    buf_free(&line);
}

static outcome run(str sql) {
    outcome out = {.changes = -1};
    err e = {0};
    const batch *b;
    stmt *s = db_submit(d, sql);
    stmt_status status;
    while ((status = stmt_next(s, LIMIT_MS, &b, &e)) == STMT_ROWS && out.rows < ROWS_MAX)
        count_rows(b, &out);
    if (status == STMT_PENDING) {
        stmt_cancel(s);
        while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS)
            ;
        status = STMT_PENDING;
    }
    if (status == STMT_ERROR &&
        (e.code == ERR_NONE || e.code == ERR_INTERNAL || e.code == ERR_CORRUPT || !e.message[0]))
        broken(sql, "an error that is ours", e.message);
    if (status == STMT_ERROR && (e.pos > (int)sql.n || e.pos + e.len > (int)sql.n))
        broken(sql, "an error's place is outside the text", e.message);
    out.failed = status == STMT_ERROR;
    out.whole = status == STMT_DONE;
    if (status == STMT_DONE)
        out.changes = stmt_changes(s);
    stmt_free(s);
    return out;
}

static void must_run(const char *sql) {
    if (!run(str_from(sql)).whole)
        broken(str_from(sql), "the fuzzer's own statement failed", "");
}

static void set_rules(bool on) {
    char sql[sizeof all_rules + 64];
    snprintf(sql, sizeof sql, "SET rules_off = '%s'", on ? "" : all_rules);
    must_run(sql);
}

static void start(void) {
    db_options options = {0};
    err e = {0};
    if (db_open(&options, &d, &e))
        broken(STR(":memory:"), "no database", e.message);
    for (size_t i = 0; i < BASE_COUNT(contents); i++)
        must_run(contents[i]);
    const plan_rule_info *rule;
    for (size_t i = 0; (rule = plan_rule(i)) != NULL; i++)
        snprintf(all_rules + strlen(all_rules), sizeof all_rules - strlen(all_rules), "%s%s",
                 i ? ", " : "", rule->name);
}

typedef struct traits {
    bool runs, writes, vague; /* vague: two runs may differ, or the order of rows shows */
} traits;

static bool one_of(str word, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (str_equal_nocase(word, str_from(words[i])))
            return true;
    return false;
}

/* What begins otherwise changes the session (SET, COMMIT), or files; so may a path. */
static traits look_at(str sql) {
    static const char *const begins[] = {"SELECT", "WITH",   "VALUES", "FROM",  "INSERT", "UPDATE",
                                         "DELETE", "CREATE", "DROP",   "ALTER", "EXPLAIN"};
    static const char *const writers[] = {"INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER"};
    static const char *const vague[] = {"LIMIT", "OFFSET",       "OVER",
                                        "FETCH", "GROUP_CONCAT", "random",
                                        "now",   "EXPLAIN",      "max_tokens_total"};
    traits t = {0};
    token_class class;
    bool first = true;
    for (size_t at = 0, n; at < sql.n; at += n) {
        n = sql_token(sql, at, &class);
        str word = {sql.p + at, n};
        if (class == TOKEN_BLANK || class == TOKEN_COMMENT)
            continue;
        if (first)
            t.runs = one_of(word, begins, BASE_COUNT(begins));
        first = false;
        t.writes |= one_of(word, writers, BASE_COUNT(writers));
        t.vague |= one_of(word, vague, BASE_COUNT(vague)) ||
                   (n > 8 && (strncasecmp(word.p, "CURRENT_", 8) == 0 ||
                              strncasecmp(word.p, "kvasir_", 7) == 0));
        if (class == TOKEN_STRING && (memchr(word.p, '/', n) || memchr(word.p, '~', n)))
            t.runs = false;
        t.vague |= class == TOKEN_STRING && n == 5 && strncasecmp(word.p, "'now'", 5) == 0;
    }
    return t;
}

/* Rows as the indexes have them and as the tables do. */
static void check_indexes(str sql) {
    static const char *const by_index[] = {
        "SELECT id, note FROM everything WHERE note > ''",
        "SELECT id, title, year FROM movies WHERE year > 0",
        "SELECT rowid, movie_id, stars FROM reviews WHERE movie_id > 0"};
    outcome found[BASE_COUNT(by_index)];
    for (size_t i = 0; i < BASE_COUNT(by_index); i++)
        found[i] = run(str_from(by_index[i]));
    set_rules(false);
    for (size_t i = 0; i < BASE_COUNT(by_index); i++) {
        outcome scanned = run(str_from(by_index[i]));
        if (found[i].whole && (!scanned.whole || scanned.bag != found[i].bag))
            broken(sql, "an index and its table differ", by_index[i]);
    }
    set_rules(true);
}

static void run_writing(str sql) {
    must_run("BEGIN");
    outcome o = run(sql);
    if (o.whole && o.changes > 0)
        check_indexes(sql);
    must_run("ROLLBACK");
}

static void run_reading(str sql, bool vague) {
    outcome o = run(sql);
    if (!o.whole || vague)
        return;
    set_rules(false);
    outcome plain = run(sql);
    set_rules(true);
    if (plain.whole && (plain.rows != o.rows || plain.bag != o.bag))
        broken(sql, "rules change the answer", "");
}

static void run_one(str sql) {
    traits t = look_at(sql);
    if (!t.runs)
        return;
    if (t.writes)
        run_writing(sql);
    else
        run_reading(sql, t.vague);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!d) {
        if (!freopen("/dev/null", "r", stdin)) /* FROM '-' would wait for it */
            return 0;
        start();
    }
    str text = {(const char *)data, size};
    uint64_t state = hash64(data, size, 2);
    run_one(text);
    for (int i = 0; i < VARIANTS; i++) {
        buf other = {0};
        sql_mutate(text, &state, &other);
        if (other.n)
            run_one(buf_str(&other));
        buf_free(&other);
    }
    return 0;
}
