/*
 * test_exec_struct.c - a field of a STRUCT gets the same answer and the same probability, bit for
 * bit, whatever other fields are asked, in any order, in a select list or in FROM, and whatever
 * decides what the statement costs: caches, threads, schedules, filters, limits, an interruption.
 *
 * The judge: the STRUCT of that field alone, asked without stored answers. Random statements are
 * compared with it by SQL. KVASIR_SEED and KVASIR_CASES choose others; with the default model
 * (KVASIR_MODEL or the installed one; skipped when absent) there are fewer.
 */
#include "exec_answer_int.h"
#include "exec_cache_int.h"

enum { HASH_CASES = 500, MODEL_CASES = 50, CASES_PER_TABLE = 5, MOST_FIELDS = 5 };

typedef struct field {
    const char *name, *type;
    bool lists; /* LLM_PROB() has a value */
} field;

static const field pool[] = {
    {"mood", "ENUM('warm', 'cold')", true},
    {"rate", "INTEGER BETWEEN 1 AND 5 'of five'", true},
    {"kind", "ENUM('red', 'red deer', 'fox') 'one of the animals'", true},
    {"is it old", "BOOLEAN", true},
    {"n", "INTEGER", false},
    {"x", "REAL", false},
    {"why", "TEXT", false},
    {"Word", "TEXT 'one word'", false},
};
enum { POOL = BASE_COUNT(pool) };

static uint64_t state_of_random;

static uint32_t pick(uint32_t n) {
    state_of_random = hash_mix(state_of_random, 0x9e3779b97f4a7c15u);
    return (uint32_t)(state_of_random >> 32) % n;
}

/* ---- statements ------------------------------------------------------------------------------ */

typedef struct test_case {
    int n, fields[MOST_FIELDS];
    const char *prompt, *inputs, *options;
    const char *set; /* a setting that changes answers */
} test_case;

static test_case random_case(void) {
    static const char *const prompts[] = {"Read it", "Read {f} with care", "What of it?\nThink"};
    static const char *const inputs[] = {"f", "f, g", "g || f AS f"};
    static const char *const options[] = {", max_tokens => 4", ", max_tokens => 4, examples => few",
                                          ", max_tokens => 3"};
    test_case c = {
        .prompt = prompts[pick(3)], .inputs = inputs[pick(3)], .options = options[pick(3)]};
    c.set = pick(2) ? "SET llm_calibrate = 'batch'" : "SET llm_calibrate = 'auto'";
    bool used[POOL] = {false};
    for (int wanted = 1 + (int)pick(MOST_FIELDS); c.n < wanted;) {
        int f = (int)pick(POOL);
        if (!used[f])
            c.fields[c.n++] = f;
        used[f] = true;
    }
    return c;
}

static void append_struct(buf *out, const test_case *c, const int *fields, int n) {
    buf_printf(out, "LLM('%s', %s%s) RETURNS STRUCT(", c->prompt, c->inputs, c->options);
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s\"%s\" %s", i ? ", " : "", pool[fields[i]].name, pool[fields[i]].type);
    buf_append_char(out, ')');
}

/* Appends SELECT id, the fields, "p field" for their probabilities FROM t. */
static void append_query(buf *out, const test_case *c, const int *fields, int n, bool in_from) {
    buf_append_c(out, "SELECT id");
    for (int i = 0; i < n && in_from; i++)
        buf_printf(out, ", x.\"%s\"", pool[fields[i]].name);
    if (!in_from) {
        buf_append_c(out, ", ");
        append_struct(out, c, fields, n);
    }
    for (int i = 0; i < n; i++)
        if (pool[fields[i]].lists)
            buf_printf(out, ", LLM_PROB(%s\"%s\") AS \"p %s\"", in_from ? "x." : "",
                       pool[fields[i]].name, pool[fields[i]].name);
    buf_append_c(out, " FROM t");
    if (!in_from)
        return;
    buf_append_c(out, ", ");
    append_struct(out, c, fields, n);
    buf_append_c(out, " AS x");
}

static void make_table(db *d, uint32_t most) {
    static const char *const words[] = {"red", "deer", "the quick", "fox", "over a\nlazy", "dog"};
    buf sql = {0};
    int rows = 4 + (int)pick(most);
    run_c(d, "DROP TABLE IF EXISTS t");
    run_c(d, "CREATE TABLE t (id INTEGER PRIMARY KEY, f TEXT, g TEXT)");
    buf_append_c(&sql, "INSERT INTO t VALUES ");
    for (int i = 0; i < rows; i++) {
        buf_printf(&sql, "%s(%d", i ? ", " : "", i);
        for (int k = 0; k < 2; k++)
            if (pick(10) == 0)
                buf_append_c(&sql, ", NULL");
            else
                buf_printf(&sql, ", '%s %s'", words[pick(6)], words[pick(6)]);
        buf_append_char(&sql, ')');
    }
    run_c(d, sql.p);
    buf_free(&sql);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void create(db *d, const char *table, const buf *query) {
    buf sql = {0};
    buf_printf(&sql, "DROP TABLE IF EXISTS \"%s\"", table);
    run_c(d, sql.p);
    buf_clear(&sql);
    buf_printf(&sql, "CREATE TABLE \"%s\" AS %.*s", table, (int)query->n, query->p);
    run_c(d, sql.p);
    buf_free(&sql);
}

/* limit: LIMIT n, which may decide over which rows the order of the inputs is solved; or "". */
static void ask_alone(db *d, const test_case *c, const char *limit) {
    run_c(d, "SET answer_cache = off");
    for (int i = 0; i < c->n; i++) {
        buf query = {0}, table = {0};
        append_query(&query, c, &c->fields[i], 1, false);
        buf_append_c(&query, limit);
        buf_printf(&table, "alone %s", pool[c->fields[i]].name);
        create(d, table.p, &query);
        buf_free(&query);
        buf_free(&table);
    }
    run_c(d, "RESET answer_cache");
}

static long number_of(db *d, const char *sql) {
    answer a;
    run(d, str_from(sql), &a);
    if (a.failed || a.n != 1)
        fail_msg("%s: %s", sql, a.e.message);
    long n = atol(a.rows[0]);
    answer_free(&a);
    return n;
}

/* Compares table `together` with the judge's tables. */
static void compare(db *d, const test_case *c, const buf *query, const char *set) {
    for (int i = 0; i < c->n; i++) {
        const field *f = &pool[c->fields[i]];
        buf sql = {0};
        buf_printf(&sql,
                   "SELECT count(*) FROM together t LEFT JOIN \"alone %s\" a ON a.id = t.id WHERE "
                   "a.id IS NULL OR t.\"%s\" IS NOT a.\"%s\"",
                   f->name, f->name, f->name);
        if (f->lists)
            buf_printf(&sql, " OR t.\"p %s\" IS NOT a.\"p %s\"", f->name, f->name);
        if (number_of(d, sql.p) != 0)
            fail_msg("%s: \"%s\" differs in\n%s", set, f->name, query->p);
        buf_free(&sql);
    }
}

/* Runs the query until it ends under a limit on tokens that stops it before. */
static void run_interrupted(db *d, const buf *query) {
    answer a;
    run_c(d, "SET max_tokens_total = 200");
    for (int i = 0; i < 3; i++) {
        run(d, buf_str(query), &a);
        answer_free(&a);
    }
    run_c(d, "RESET max_tokens_total");
}

static void check_case(db *d, const test_case *c) {
    static const char *const costs[] = {
        "SET answer_cache = on",     "SET cache = off",
        "SET threads = 1",           "SET threads = 2",
        "SET kv_cache = off",        "SET llm_window = 3",
        "SET llm_schedule = 'fifo'", "SET llm_layout = 'data'",
        "SET llm_layout = 'auto'",   "SET rule.llm_placement = off",
        "SET rule.prune = off",
    };
    const char *set = costs[pick(BASE_COUNT(costs))];
    bool in_from = pick(2);
    buf query = {0};
    append_query(&query, c, c->fields, c->n, in_from);
    int first = c->fields[0];
    bool filtered = in_from && strncmp(pool[first].type, "INTEGER", 7) == 0;
    char limit[16] = "";
    if (filtered)
        buf_printf(&query, " WHERE x.\"%s\" > 2", pool[first].name);
    if (pick(3) == 0)
        snprintf(limit, sizeof limit, " LIMIT %u", 1 + pick(5));
    buf_append_c(&query, limit);
    run_c(d, c->set);
    ask_alone(d, c, filtered ? "" : limit);
    run_c(d, set);
    if (pick(4) == 0)
        run_interrupted(d, &query);
    create(d, "together", &query);
    compare(d, c, &query, set);
    run_c(d, "RESET ALL");
    buf_free(&query);
}

static db *open_with(const char *model) {
    static const char *const few =
        "CREATE TABLE few (f TEXT, mood TEXT, rate INTEGER, kind TEXT, \"is it old\" TEXT, n "
        "INTEGER, x REAL, why TEXT, word TEXT)";
    db_options options = {.path = NULL};
    db *d;
    err e;
    buf sql = {0};
    if (db_open(&options, &d, &e))
        fail_msg("%s", e.message);
    buf_printf(&sql, "CREATE MODEL asked FROM '%s'", model);
    run_c(d, sql.p);
    run_c(d, few);
    run_c(d, "INSERT INTO few VALUES ('red', 'warm', 4, 'red deer', 'true', 3, 0.5, 'so', 'red'), "
             "('dog', 'cold', NULL, 'fox', NULL, 1, NULL, 'it is', 'dog'), (NULL, NULL, 2, NULL, "
             "'false', NULL, 1, NULL, NULL)");
    buf_free(&sql);
    return d;
}

static void check_cases(const char *model, int cases, uint32_t rows) {
    db *d = open_with(model);
    state_of_random = (uint64_t)number_from("KVASIR_SEED", 1);
    for (int i = 0; i < cases; i++) {
        if (i % CASES_PER_TABLE == 0)
            make_table(d, rows);
        test_case c = random_case();
        run_c(d, "SET model = 'asked'");
        check_case(d, &c);
    }
    db_close(d);
}

static void test_fields_are_independent(void **state) {
    (void)state;
    check_cases("test:hash", (int)number_from("KVASIR_CASES", HASH_CASES), 24);
}

static void test_fields_are_independent_with_a_model(void **state) {
    char model[4096];
    (void)state;
    if (!find_model(model))
        skip();
    check_cases(model, (int)number_from("KVASIR_CASES", MODEL_CASES), 8);
}

/* ---- requests -------------------------------------------------------------------------------- */

static exec_summary spent(db *d, const char *sql) {
    const batch *b;
    exec_summary out;
    err e;
    stmt *s = db_submit(d, str_from(sql));
    stmt_status status;
    while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS)
        ;
    if (status == STMT_ERROR)
        fail_msg("%s: %s", sql, e.message);
    stmt_summary(s, &out);
    stmt_free(s);
    return out;
}

#define READ "LLM('Read', f) RETURNS STRUCT("
#define TYPED "mood ENUM('warm', 'cold'), rate INTEGER BETWEEN 1 AND 5, old BOOLEAN"

/* Only what is read is asked, each input once; the others are found stored. */
static void test_requests(void **state) {
    db *d = open_with("test:hash");
    exec_summary s;
    (void)state;
    run_c(d, "SET model = 'asked'");
    run_c(d, "SET llm_calibrate = 'off'");
    run_c(d, "CREATE TABLE t AS SELECT value AS id, 'row ' || value AS f FROM "
             "generate_series(1, 240) AS g(value)");
    s = spent(d, "SELECT id, " READ TYPED ", why TEXT) FROM t");
    assert_int_equal(s.llm.requests, 4 * 240);
    s = spent(d, "SELECT id, " READ "more ENUM('a', 'b'), " TYPED ", why TEXT) FROM t");
    assert_int_equal(s.llm.requests, 240);
    assert_int_equal(s.llm.answers_stored, 4 * 240);
    run_c(d, "SET answer_cache = off");
    s = spent(d, "SELECT x.mood, count(*) FROM t, " READ TYPED ", why TEXT) AS x GROUP BY x.mood");
    assert_int_equal(s.llm.requests, 240);
    s = spent(d, "SELECT count(*) FROM t, " READ TYPED ") AS x");
    assert_int_equal(s.llm.requests, 0);
    s = spent(d, "SELECT id, x.mood FROM t, " READ TYPED ") AS x WHERE x.rate > 3 LIMIT 3");
    assert_true(s.llm.requests <= 16 + 16);
    s = spent(d, "SELECT id, x.mood FROM t, " READ TYPED ") AS x ORDER BY x.rate DESC LIMIT 3");
    assert_int_equal(s.llm.requests, 240 + 3);
    db_close(d);
}

/* The row is computed once for all fields: head + rows + a cue for each field of each row. */
static void test_tokens(void **state) {
    db *d = open_with("test:hash");
    (void)state;
    run_c(d, "SET model = 'asked'");
    run_c(d, "SET llm_calibrate = 'off'");
    run_c(d, "SET answer_cache = off");
    run_c(d, "CREATE TABLE t AS SELECT value AS id, 'a row of some length, number ' || value AS f "
             "FROM generate_series(1, 100) AS g(value)");
    uint64_t one = spent(d, "SELECT " READ "a BOOLEAN) FROM t").llm.computed_tokens;
    uint64_t three =
        spent(d, "SELECT " READ "a BOOLEAN, b BOOLEAN, c BOOLEAN) FROM t").llm.computed_tokens;
    uint64_t cue = strlen("a:"); /* test:hash has a token a byte */
    assert_int_equal(three - one, 2 * 100 * cue);
    db_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_are_independent),
        cmocka_unit_test(test_fields_are_independent_with_a_model),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, own_cache, remove_cache);
}
