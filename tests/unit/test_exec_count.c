/*
 * test_exec_count.c - EXPLAIN (TOKENS) counts what EXPLAIN ANALYZE then measures: random statements
 * without LLM filters, under every strategy with the settings that make a run take it, and an empty
 * cache; EXPLAIN (TREE) adds up to the same; and a statement that is run again asks nothing.
 *
 *   KVASIR_SEED=7 KVASIR_CASES=100 KVASIR_CASE=12 test_exec_count
 */
#include "exec_answer_int.h"
#include "exec_cache_int.h"

enum { CASES = 1500, CASES_PER_DATA = 20 };

typedef struct gen {
    uint64_t state;
} gen;

static uint32_t pick(gen *g, uint32_t n) {
    g->state = hash_mix(g->state, 0x9e3779b97f4a7c15ull);
    return (uint32_t)((g->state >> 33) % n);
}

static bool chance(gen *g, uint32_t percent) {
    return pick(g, 100) < percent;
}

/* ---- statements ------------------------------------------------------------------------------ */

/* Calls that are no equal ones often come to the same prompts: by fields made in other ways, and by
 * types that allow the same answers. */
static void gen_call(gen *g, buf *out, const char *table) {
    static const char *const prompts[] = {"Which?", "Which of {f}?", "What is it?"};
    static const char *const texts[] = {"%s.a", "%s.b", "coalesce(%s.a, 'red')", "%s.b || ''"};
    static const char *const returns[] = {" RETURNS BOOLEAN", " RETURNS ENUM('yes', 'no')",
                                          " RETURNS INTEGER BETWEEN 1 AND 3", " RETURNS TEXT"};
    buf f = {0}, h = {0};
    buf_printf(&f, texts[pick(g, 4)], table);
    buf_printf(&h, chance(g, 60) ? texts[pick(g, 4)] : "%s.k", table);
    uint32_t as = pick(g, 4);
    buf_printf(out, "CAST(LLM('%s', %s AS f", prompts[pick(g, 3)], f.p);
    if (chance(g, 50))
        buf_printf(out, ", %s AS g", h.p);
    if (as < 2 && chance(g, 15))
        buf_append_c(out, ", examples => few");
    buf_printf(out, "%s)%s AS TEXT)", as == 3 ? ", max_tokens => 3" : "", returns[as]);
    buf_free(&f);
    buf_free(&h);
}

static void gen_item(gen *g, buf *out, const char *table) {
    uint32_t shape = pick(g, 8);
    if (shape == 0)
        buf_printf(out, "CASE WHEN %s.k > 0 THEN ", table);
    else if (shape == 1)
        buf_printf(out, "coalesce(CAST(%s.k AS TEXT), ", table);
    gen_call(g, out, table);
    buf_append_c(out, shape == 0 ? " END" : shape == 1 ? ")" : "");
}

static void gen_items(gen *g, buf *out, const char *table) {
    for (uint32_t n = 1 + pick(g, 3), i = 0; i < n; i++) {
        buf_append_c(out, i ? ", " : "");
        gen_item(g, out, table);
    }
}

static void gen_select(gen *g, buf *out, bool one) {
    static const char *const from[] = {" FROM r", " FROM r JOIN s ON r.k = s.k",
                                       " FROM r LEFT JOIN s ON r.k = s.k", " FROM r, s"};
    buf_append_c(out, "SELECT ");
    if (one)
        gen_item(g, out, "r");
    else
        gen_items(g, out, "r");
    uint32_t shape = pick(g, 4);
    if (shape > 0 && !one) {
        buf_append_c(out, ", ");
        gen_item(g, out, "s");
    }
    buf_append_c(out, from[shape]);
    if (chance(g, 30))
        buf_append_c(out, " WHERE r.k > 0");
    if (!one && chance(g, 20))
        buf_append_c(out, " ORDER BY r.n DESC LIMIT 5");
}

/* What has {t} and {t*} in it for an item or some of table t. */
static void gen_from_pattern(gen *g, buf *out, const char *pattern) {
    for (const char *at; (at = strchr(pattern, '{')) != NULL; pattern = strchr(at, '}') + 1) {
        char table[] = {at[1], 0};
        buf_append(out, pattern, (size_t)(at - pattern));
        if (at[2] == '*')
            gen_items(g, out, table);
        else
            gen_item(g, out, table);
    }
    buf_append_c(out, pattern);
}

static void gen_statement(gen *g, buf *out) {
    static const char *const patterns[] = {
        "SELECT * FROM (SELECT r.n, {r*} FROM r) AS x JOIN (SELECT r.n, {r*} FROM r) AS y "
        "ON x.n = y.n",
        "SELECT r.k, max({r}), count({r}) FROM r GROUP BY r.k",
        "SELECT (SELECT group_concat({s}) FROM s WHERE s.k = r.k), {r*} FROM r",
        "WITH q AS (SELECT r.n, r.a, r.b, r.k, {r} AS e FROM r) "
        "SELECT x.e, y.e, {x} FROM q AS x JOIN q AS y ON x.n = y.n"};
    uint32_t shape = pick(g, 10);
    if (shape < 4) {
        gen_select(g, out, false);
    } else if (shape < 6) {
        gen_select(g, out, true);
        buf_append_c(out, " UNION ALL ");
        gen_select(g, out, true);
    } else {
        gen_from_pattern(g, out, patterns[shape - 6]);
    }
}

static void gen_data(gen *g, db *d) {
    static const char *const words[] = {
        "'red'", "'red deer'", "'the quick brown fox jumps over the lazy dog'",
        "'fox'", "NULL",       "'the quick brown fox jumps over the lazy cat and looks back'"};
    buf out = {0};
    buf_append_c(&out, "DROP TABLE IF EXISTS r\nDROP TABLE IF EXISTS s\n"
                       "CREATE TABLE r (n INTEGER PRIMARY KEY, k INTEGER, a TEXT, b TEXT)\n"
                       "CREATE TABLE s (k INTEGER, a TEXT, b TEXT)\nINSERT INTO r VALUES ");
    for (uint32_t i = 0, n = 1 + pick(g, 60); i < n; i++)
        buf_printf(&out, "%s(%u, %u, %s, %s)", i ? ", " : "", i, pick(g, 4), words[pick(g, 6)],
                   words[pick(g, 6)]);
    buf_append_c(&out, "\nINSERT INTO s VALUES ");
    for (uint32_t i = 0, n = 1 + pick(g, 9); i < n; i++)
        buf_printf(&out, "%s(%u, %s, %s)", i ? ", " : "", pick(g, 4), words[pick(g, 6)],
                   words[pick(g, 6)]);
    buf_append_c(&out, "\n");
    run_lines(d, buf_str(&out));
    buf_free(&out);
}

/* ---- figures --------------------------------------------------------------------------------- */

enum { NODES = 16, FIGURES = 4 };

/* By LLM node as printed: distinct inputs, prompt tokens, computed, asked before. */
typedef struct figures {
    long of[NODES][FIGURES];
    int n;
} figures;

/* The next number in the line, its thousands apart; -1: none. */
static long next_number(const char **p) {
    long n = 0;
    while (**p && (**p < '0' || **p > '9'))
        ++*p;
    if (!**p)
        return -1;
    for (; (**p >= '0' && **p <= '9') || **p == ','; ++*p)
        if (**p == ',' && (p[0][1] < '0' || p[0][1] > '9'))
            break;
        else if (**p != ',')
            n = 10 * n + (**p - '0');
    return n;
}

/* The line with a node's figures: of the strategy, or measured; a node that nobody asked has the
 * latter in both. */
static bool read_figures(const char *line, const char *strategy, long *out) {
    const char *row = strategy ? strstr(line, strategy) : NULL;
    const char *measured = strstr(line, " distinct inputs, "), *p;
    bool found = row && strstr(row, " %") && !measured;
    if (!found && (!measured || strstr(line, "≈")))
        return false;
    p = found ? row : line;
    if (found)
        (void)next_number(&p); /* rows */
    for (int i = 0; i < 3; i++)
        out[i] = next_number(&p);
    const char *before = strstr(line, " asked before");
    out[3] = 0;
    if (before) {
        while (before > line && ((before[-1] >= '0' && before[-1] <= '9') || before[-1] == ','))
            before--;
        out[3] = next_number(&before);
    }
    return true;
}

static void figures_of(db *d, const char *how, str sql, const char *strategy, figures *out) {
    buf text = {0};
    answer a;
    buf_printf(&text, "EXPLAIN %s %.*s", how, (int)sql.n, sql.p);
    run(d, buf_str(&text), &a);
    if (a.failed)
        fail_msg("%s: %s", text.p, a.e.message);
    *out = (figures){0};
    if (getenv("KVASIR_CASE"))
        print_answer(how, &a);
    for (char *rest = a.rows[0], *line; (line = strsep(&rest, "\n")) != NULL;) {
        assert_in_range(out->n, 0, NODES - 1);
        out->n += read_figures(line, strategy, out->of[out->n]);
    }
    answer_free(&a);
    buf_free(&text);
}

/* The prompt tokens and computed tokens that EXPLAIN (TREE) adds up; 0 if nothing would be sent. */
static void tree_figures(db *d, str sql, long out[2]) {
    buf text = {0};
    answer a;
    buf_printf(&text, "EXPLAIN (TREE) %.*s", (int)sql.n, sql.p);
    run(d, buf_str(&text), &a);
    if (a.failed)
        fail_msg("%s: %s", text.p, a.e.message);
    const char *total = strstr(a.rows[0], " sent, ");
    while (total && total > a.rows[0] && total[-1] != '\n')
        total--;
    out[0] = out[1] = 0;
    if (total) {
        (void)next_number(&total); /* prompts */
        out[0] = next_number(&total);
        out[1] = next_number(&total);
    }
    answer_free(&a);
    buf_free(&text);
}

/* ---- the cases ------------------------------------------------------------------------------- */

static const struct {
    const char *name, *settings;
} strategies[] = {
    {"no cache", "SET psm = 'off'\nSET kv_cache = off\n"},
    {"FIFO", "SET psm = 'off'\nSET llm_schedule = 'fifo'\nSET llm_window = 64\n"},
    {"fixed", "SET psm = 'fixed'\n"},
    {"grouped", "SET psm = 'grouped'\n"},
};

static const char *const variants[] = {
    "",
    "SET dedup = off\n",
    "SET llm_layout = 'data'\n",
    "SET llm_layout = 'auto'\n",
    "SET kv_memory = '192kB'\n",
    "SET kv_memory = '192kB'\nSET llm_layout = 'data'\n",
    "SET field_order = 'fresh'\n",
    "SET dedup = off\nSET work_memory = '4kB'\n",
};

/* EXPLAIN (TREE) shows the prompts that EXPLAIN (TOKENS) counts; the settings are those of the
 * strategy "fixed". TOKENS counts the rows beyond a LIMIT too. After a stage, a session drops what
 * only one prompt had, so of several stages it may compute more than the tree has. */
static int check_tree(db *d, int number, str sql) {
    figures counted;
    long sum[2] = {0}, shown[2];
    if (strstr(sql.p, "LIMIT"))
        return 0;
    figures_of(d, "(TOKENS)", sql, "fixed", &counted);
    for (int k = 0; k < counted.n; k++)
        for (int f = 0; f < 2; f++)
            sum[f] += counted.of[k][f + 1];
    tree_figures(d, sql, shown);
    if (sum[0] == shown[0] && (counted.n > 1 ? sum[1] >= shown[1] : sum[1] == shown[1]))
        return 0;
    printf("case %d: the tree has %ld tokens, %ld computed; counted are %ld, %ld\n%.*s\n", number,
           shown[0], shown[1], sum[0], sum[1], (int)sql.n, sql.p);
    return 1;
}

static int check(db *d, int number, str sql, const char *more) {
    int bad = 0;
    for (size_t i = 0; i < BASE_COUNT(strategies) && !bad; i++) {
        figures counted, measured;
        if (strcmp(strategies[i].name, "grouped") == 0 && strstr(sql.p, "examples"))
            continue; /* calls with examples have one order alone: "fixed" tells it */
        run_lines(
            d,
            str_from(
                "RESET ALL\nSET model = 'hashing'\nSET cache = off\nSET llm_calibrate = 'off'\n"));
        run_lines(d, str_from(strategies[i].settings));
        run_lines(d, str_from(more));
        figures_of(d, "(TOKENS)", sql, strategies[i].name, &counted);
        figures_of(d, "ANALYZE", sql, NULL, &measured);
        if (strcmp(strategies[i].name, "fixed") == 0 && !strstr(more, "kv_memory"))
            bad = check_tree(d, number, sql);
        if (bad)
            break;
        bad = counted.n != measured.n || memcmp(counted.of, measured.of, sizeof counted.of) != 0;
        if (!bad)
            continue;
        printf("case %d: counted is not measured, %s, %s\n%.*s\n", number, strategies[i].name, more,
               (int)sql.n, sql.p);
        for (int k = 0; k < counted.n || k < measured.n; k++)
            for (int f = 0; f < FIGURES; f++)
                printf("%8ld %8ld%s", counted.of[k][f], measured.of[k][f],
                       f + 1 < FIGURES ? ", " : "\n");
    }
    return bad;
}

static void test_counted_is_measured(void **state) {
    db_options options = {.path = NULL};
    uint64_t seed = (uint64_t)number_from("KVASIR_SEED", 1);
    int n = (int)number_from("KVASIR_CASES", CASES), only = (int)number_from("KVASIR_CASE", -1);
    int bad = 0;
    db *d;
    err e;
    (void)state;
    if (db_open(&options, &d, &e))
        fail_msg("%s", e.message);
    run_lines(d, str_from("CREATE MODEL hashing FROM 'test:hash'\n"
                          "CREATE TABLE few (f TEXT, g TEXT, answer TEXT)\n"
                          "INSERT INTO few VALUES ('red', 'deer', 'yes'), ('fox', NULL, 'no')\n"));
    for (int i = 0; i < n && bad < 10; i++) {
        gen g = {.state = hash_mix(seed, (uint64_t)i + 1)};
        buf sql = {0};
        gen_statement(&g, &sql);
        if (i % CASES_PER_DATA == 0)
            gen_data(&g, d);
        if (only < 0 || only == i)
            bad += check(d, i, buf_str(&sql), variants[(size_t)i % BASE_COUNT(variants)]);
        buf_free(&sql);
    }
    db_close(d);
    assert_int_equal(bad, 0);
}

static uint64_t requests_of(db *d, str sql) {
    exec_summary summary;
    const batch *b;
    err e;
    stmt *s = db_submit(d, sql);
    stmt_status status;
    while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS)
        continue;
    if (status == STMT_ERROR)
        fail_msg("%.*s: %s", (int)sql.n, sql.p, e.message);
    stmt_summary(s, &summary);
    stmt_free(s);
    return summary.llm.requests;
}

/* The same statement over the same rows asks the same prompts: all are stored. */
static void test_what_was_asked_is_not_asked_again(void **state) {
    db_options options = {.path = NULL};
    uint64_t seed = (uint64_t)number_from("KVASIR_SEED", 1);
    int n = (int)number_from("KVASIR_CASES", CASES / 3), bad = 0;
    db *d;
    err e;
    (void)state;
    if (db_open(&options, &d, &e))
        fail_msg("%s", e.message);
    run_lines(d, str_from("CREATE MODEL hashing FROM 'test:hash'\nSET model = 'hashing'\n"
                          "CREATE TABLE few (f TEXT, g TEXT, answer TEXT)\n"
                          "INSERT INTO few VALUES ('red', 'deer', 'yes'), ('fox', NULL, 'no')\n"));
    for (int i = 0; i < n && bad < 10; i++) {
        gen g = {.state = hash_mix(seed, (uint64_t)i + 1)};
        buf sql = {0};
        gen_statement(&g, &sql);
        if (i % CASES_PER_DATA == 0)
            gen_data(&g, d);
        run_lines(d, str_from("CLEAR CACHE\n"));
        uint64_t first = requests_of(d, buf_str(&sql)), again = requests_of(d, buf_str(&sql));
        if (again > 0) {
            printf("case %d: %d prompts, then %d others\n%s\n", i, (int)first, (int)again, sql.p);
            bad++;
        }
        buf_free(&sql);
    }
    db_close(d);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counted_is_measured),
                                       cmocka_unit_test(test_what_was_asked_is_not_asked_again)};
    return cmocka_run_group_tests(tests, own_cache, remove_cache);
}
