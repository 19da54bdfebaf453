/*
 * test_exec_graph.c - calls that read each other's answers: what a statement answers does not depend
 * on how far one operator goes through them, and no prompt on which rows were asked about.
 *
 * The judge: each level of a random stack of derived tables is stored by CREATE TABLE AS, so that no
 * call reads an answer that is not a cell of a table. The stack then runs in one statement, under every
 * variant of the settings and with each rule off. Calls are not calibrated: a table's calls would have
 * other inputs to be calibrated by.
 *
 *   KVASIR_SEED=7 KVASIR_CASES=100 KVASIR_CASE=12 test_exec_graph     (KVASIR_CASE: this one alone,
 *                                                                     with its SQL)
 *   KVASIR_LONG=1: 10,000
 */
#include "exec_answer_int.h"
#include "exec_cache_int.h"
#include "exec_random_int.h"

enum {
    CASES = 300,
    LONG_CASES = 10000,
    CASES_PER_DATA = 20,
    MAX_LEVELS = 4,
    MAX_COLUMNS = 16,
    NAME = 16
};

/* ---- statements ------------------------------------------------------------------------------ */

/* The columns of a level. */
typedef struct gen {
    uint64_t state;
    char texts[MAX_COLUMNS][NAME], numbers[MAX_COLUMNS][NAME];
    int ntexts, nnumbers;
    int calls;
} gen;

static uint32_t pick(gen *g, uint32_t n) {
    g->state += 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash_mix(g->state, 17) >> 33) % n;
}

static bool chance(gen *g, uint32_t percent) {
    return pick(g, 100) < percent;
}

/* Columns that were added last are the likeliest. */
static int recent(gen *g, int n) {
    return chance(g, 60) ? n - 1 - (int)pick(g, (uint32_t)BASE_MIN(n, 2))
                         : (int)pick(g, (uint32_t)n);
}

static const char *text_column(gen *g) {
    return g->texts[recent(g, g->ntexts)];
}

static const char *number_column(gen *g) {
    return g->numbers[recent(g, g->nnumbers)];
}

static void gen_text(gen *g, buf *out) {
    static const char *const forms[] = {"q.%s",
                                        "q.%s",
                                        "q.%s",
                                        "upper(q.%s)",
                                        "coalesce(q.%s, 'none')",
                                        "nullif(q.%s, 'x')",
                                        "substr(q.%s, 1, 2)"};
    if (chance(g, 15)) {
        buf_printf(out, "q.%s || q.%s", text_column(g), text_column(g));
        return;
    }
    const char *form = forms[pick(g, BASE_COUNT(forms))], *at = strstr(form, "%s");
    buf_printf(out, "%.*s%s%s", (int)(at - form), form, text_column(g), at + 2);
}

static void gen_number(gen *g, buf *out) {
    if (chance(g, 70))
        buf_printf(out, "q.%s", number_column(g));
    else
        buf_printf(out, "q.%s + q.%s", number_column(g), number_column(g));
}

/* A call of one to three fields. Returns whether its answer is a text. */
static bool gen_call(gen *g, buf *out) {
    static const struct question {
        const char *prompt, *options, *returns;
        int fields;
        bool is_text;
    } questions[] = {
        {"What of {f}?", "", "RETURNS ENUM('x', 'y', 'z')", 1, true},
        {"Which?", "", "RETURNS ENUM('x', 'y')", 2, true},
        {"Which of {g}?", "", "RETURNS ENUM('x', 'y', 'z')", 3, true},
        {"Say", ", max_tokens => 4", "RETURNS TEXT", 2, true},
        {"Say of {f}", ", max_tokens => 3", "RETURNS TEXT", 1, true},
        {"Rate {f}", "", "RETURNS INTEGER BETWEEN 0 AND 3", 1, false},
        {"Count", " NULL ON ERROR", "RETURNS INTEGER", 3, false},
        {"Like these", ", examples => few", "RETURNS ENUM('x', 'y')", 2, true},
    };
    const struct question *q = &questions[pick(g, BASE_COUNT(questions))];
    buf_printf(out, "LLM('%s', ", q->prompt);
    if (chance(g, 25))
        gen_number(g, out);
    else
        gen_text(g, out);
    buf_append_c(out, " AS f");
    if (q->fields > 1) {
        buf_append_c(out, ", ");
        gen_text(g, out);
        buf_append_c(out, " AS g");
    }
    if (q->fields > 2)
        buf_printf(out, ", q.%s AS h", text_column(g));
    buf_printf(out, "%s) %s", q->options, q->returns);
    g->calls++;
    return q->is_text;
}

static void gen_condition(gen *g, buf *out, bool calls) {
    static const char *const text_tests[] = {" = 'x'", " <> 'y'", " IS NULL", " LIKE '%e%'"};
    static const char *const number_tests[] = {" > 0", " = 1", " IS NOT NULL", " < 3"};
    if (chance(g, 25)) {
        buf_append_c(out, chance(g, 30) ? "NOT (" : "(");
        gen_condition(g, out, calls);
        buf_append_c(out, chance(g, 50) ? " AND " : " OR ");
        gen_condition(g, out, calls);
        buf_append_char(out, ')');
        return;
    }
    bool is_text = chance(g, 70);
    if (calls && g->calls < MAX_LEVELS && chance(g, 40))
        is_text = gen_call(g, out);
    else if (is_text)
        gen_text(g, out);
    else
        gen_number(g, out);
    buf_append_c(out, is_text ? text_tests[pick(g, 4)] : number_tests[pick(g, 4)]);
}

/* Writes the columns that a level adds to its input, and its WHERE. */
static void gen_level(gen *g, int level, buf *columns, buf *where) {
    buf call = {0};
    bool guarded = chance(g, 25);
    buf_append_c(columns, ", ");
    if (guarded) {
        buf_append_c(columns, "CASE WHEN ");
        gen_condition(g, columns, false);
        buf_append_c(columns, " THEN ");
    }
    bool is_text = gen_call(g, &call);
    buf_printf(columns, "%s%s AS c%d", call.p, guarded ? " END" : "", level);
    bool prob = !guarded && chance(g, 20);
    if (prob)
        buf_printf(columns, ", LLM_PROB(c%d) AS p%d", level, level);
    if (chance(g, 45)) {
        buf_append_c(where, " WHERE ");
        gen_condition(g, where, true);
    }
    snprintf(is_text ? g->texts[g->ntexts++] : g->numbers[g->nnumbers++], NAME, "c%d", level);
    if (prob)
        snprintf(g->numbers[g->nnumbers++], NAME, "p%d", level);
    buf_free(&call);
}

/* What is asked of the whole stack: FROM @ stands for it, with the alias q. Some ask for few of its
 * rows. */
static void gen_top(gen *g, const char *last, buf *out) {
    buf where = {0};
    if (chance(g, 60)) {
        buf_append_c(&where, " WHERE ");
        gen_condition(g, &where, true);
    }
    const char *w = where.p ? where.p : "";
    const char *and_w = where.p ? where.p + strlen(" WHERE ") : "TRUE";
    switch (pick(g, 10)) {
    case 0:
    case 1:
        buf_printf(out, "SELECT q.n, q.%s FROM @%s LIMIT %u OFFSET %u", last, w, 1 + pick(g, 5),
                   pick(g, 3));
        return buf_free(&where);
    case 2:
        buf_printf(out, "SELECT q.n, q.%s FROM @%s ORDER BY q.v DESC, q.n LIMIT %u", last, w,
                   1 + pick(g, 4));
        return buf_free(&where);
    case 3:
        buf_printf(out, "SELECT DISTINCT q.k, q.%s FROM @%s ORDER BY 1, 2",
                   chance(g, 50) ? last : "v", w);
        return buf_free(&where);
    case 4:
        buf_printf(out, "SELECT r.n FROM r WHERE %sEXISTS (SELECT 1 FROM @ WHERE q.k = r.k AND %s)",
                   chance(g, 30) ? "NOT " : "", and_w);
        return buf_free(&where);
    case 5:
        buf_printf(out,
                   "SELECT q.k, min(q.v), count(DISTINCT q.%s) FROM @%s GROUP BY q.k ORDER BY 1",
                   last, w);
        return buf_free(&where);
    case 6:
        buf_printf(
            out,
            "SELECT n FROM (SELECT q.n, row_number() OVER (PARTITION BY q.k ORDER BY q.v, q.n)"
            " AS place FROM @%s) AS w WHERE place <= %u ORDER BY n",
            w, 1 + pick(g, 2));
        return buf_free(&where);
    case 7:
        buf_printf(out, "SELECT r.n FROM r WHERE r.v IN (SELECT q.k FROM @%s)", w);
        return buf_free(&where);
    case 8:
        buf_printf(out,
                   "SELECT s.w, q.n, q.%s FROM s JOIN @ ON s.k = q.k AND %s ORDER BY 1, 2, 3 "
                   "LIMIT 7",
                   last, and_w);
        return buf_free(&where);
    default:
        buf_printf(out, "SELECT q.n, q.%s FROM @%s", last, w);
        buf_free(&where);
    }
}

/* ---- the cases ------------------------------------------------------------------------------- */

typedef struct test_case {
    int number, levels;
    buf sql;       /* in one statement */
    buf flat;      /* statements that store level after level, a line each */
    buf of_tables; /* the statement over the last table */
    answer expected;
} test_case;

/* Appends `top` with `source` as the stack. */
static void append_top(buf *out, str top, str source) {
    const char *at = memchr(top.p, '@', top.n);
    buf_append(out, top.p, (size_t)(at - top.p));
    buf_append_str(out, source);
    buf_append_c(out, " AS q");
    buf_append(out, at + 1, top.n - (size_t)(at + 1 - top.p));
}

static void make_case(uint64_t seed, int number, test_case *c) {
    gen g = {.state = hash_mix(seed, (uint64_t)number + 1),
             .texts = {"a", "b"},
             .numbers = {"k", "v"},
             .ntexts = 2,
             .nnumbers = 2};
    buf stack = {0}, top = {0}, last = {0};
    *c = (test_case){.number = number, .levels = 2 + (int)pick(&g, MAX_LEVELS - 1)};
    buf_append_c(&stack, "r");
    for (int i = 1; i <= c->levels; i++) {
        buf columns = {0}, where = {0}, below = stack;
        stack = (buf){0};
        gen_level(&g, i, &columns, &where);
        buf_printf(&stack, "(SELECT q.*%s FROM %s AS q%s)", columns.p, below.p,
                   where.p ? where.p : "");
        buf_printf(&c->flat, "CREATE TABLE t%d AS SELECT q.*%s FROM %s AS q%s\n", i, columns.p,
                   i == 1 ? "r" : last.p, where.p ? where.p : "");
        buf_clear(&last);
        buf_printf(&last, "t%d", i);
        buf_free(&columns);
        buf_free(&where);
        buf_free(&below);
    }
    char name[NAME];
    snprintf(name, sizeof name, "c%d", c->levels);
    gen_top(&g, name, &top);
    append_top(&c->sql, buf_str(&top), buf_str(&stack));
    append_top(&c->of_tables, buf_str(&top), buf_str(&last));
    buf_free(&stack);
    buf_free(&top);
    buf_free(&last);
}

static void free_case(test_case *c) {
    buf_free(&c->sql);
    buf_free(&c->flat);
    buf_free(&c->of_tables);
    answer_free(&c->expected);
}

static void gen_data(gen *g, buf *out) {
    uint32_t n = 1 + pick(g, chance(g, 40) ? 80 : 14), m = pick(g, 9);
    buf_append_c(out,
                 "DROP TABLE IF EXISTS r\nDROP TABLE IF EXISTS s\n"
                 "CREATE TABLE r (n INTEGER PRIMARY KEY, k INTEGER, a TEXT, b TEXT, v INTEGER)\n"
                 "CREATE TABLE s (k INTEGER, w INTEGER)\n");
    for (uint32_t i = 0; i < n; i++)
        buf_printf(out, "%s(%u, %s, %s, %s, %s)%s", i ? ", " : "INSERT INTO r VALUES ", i,
                   numbers[pick(g, DOMAIN)], texts[pick(g, DOMAIN)], texts[pick(g, DOMAIN)],
                   numbers[pick(g, DOMAIN)], i + 1 == n ? "\n" : "");
    for (uint32_t i = 0; i < m; i++)
        buf_printf(out, "%s(%s, %s)%s", i ? ", " : "INSERT INTO s VALUES ",
                   numbers[pick(g, DOMAIN)], numbers[pick(g, DOMAIN)], i + 1 == m ? "\n" : "");
    if (chance(g, 50))
        buf_append_c(out, "ANALYZE\n");
}

/* Settings that only decide what a statement costs. Each stands alone: RESET follows. */
static const char *const variants[] = {
    "RESET ALL",
    "SET rules_off = 'waves, reorder'\nSET psm = 'off'",
    "SET psm = 'off'",
    "SET psm = 'fixed'",
    "SET psm = 'grouped'",
    "SET field_order = 'f'",
    "SET field_order = 'fresh'",
    "SET dedup = off",
    "SET kv_cache = off",
    "SET llm_schedule = 'fifo'\nSET llm_window = 2",
    "SET llm_sample = 0",
    "SET llm_sample = 2",
    "SET llm_sample = 0\nSET llm_chunk = 2",
    "SET llm_chunk = 1\nSET kv_memory = '192kB'",
    "SET answer_cache = on",
    "SET answer_cache = on",
    "SET work_memory = '4kB'",
};

static void standard_settings(db *d) {
    run_lines(d,
              STR("RESET ALL\nSET model = 'hashing'\nSET cost_rates = 'nominal'\nSET answer_cache "
                  "= off\nSET llm_layout = 'instruction'\nSET llm_calibrate = 'off'\n"));
}

static void run_with(db *d, const test_case *c, const char *set, const char *more, answer *out) {
    buf lines = {0};
    if (strcmp(set, "RESET ALL") != 0)
        buf_printf(&lines, "%s\n", set);
    if (more)
        buf_printf(&lines, "%s\n", more);
    run_lines(d, buf_str(&lines));
    buf_free(&lines);
    run(d, buf_str(&c->sql), out);
    standard_settings(d);
}

static void print_case(const test_case *c, const buf *data) {
    printf("%s%s%s\n%s\n", data->p, c->flat.p, c->of_tables.p, c->sql.p);
}

static int check(db *d, const test_case *c, const char *set, const char *more,
                 const answer *expected, const buf *data) {
    answer a;
    run_with(d, c, set, more, &a);
    bool ok = answer_equal(expected, &a);
    if (!ok) {
        printf("case %d differs under %s %s\n", c->number, set, more ? more : "");
        print_case(c, data);
        print_answer("expected", expected);
        print_answer("got", &a);
    }
    answer_free(&a);
    return !ok;
}

static void judge(db *d, test_case *c) {
    run_lines(d, buf_str(&c->flat));
    run(d, buf_str(&c->of_tables), &c->expected);
    for (int i = 1; i <= c->levels; i++) {
        char drop[32];
        snprintf(drop, sizeof drop, "DROP TABLE t%d", i);
        run_c(d, drop);
    }
}

/* Data first is another prompt, and so another answer: the same one under all variants. */
static int check_layout(db *d, const test_case *c, const char *layout, const buf *data) {
    answer chosen;
    int bad = 0;
    run_with(d, c, layout, NULL, &chosen);
    for (size_t i = 1; i < BASE_COUNT(variants) && !bad; i++)
        bad = check(d, c, layout, variants[i], &chosen, data);
    answer_free(&chosen);
    return bad;
}

static int check_case(db *d, test_case *c, const buf *data) {
    const plan_rule_info *rule;
    int bad = 0;
    judge(d, c);
    if (c->expected.failed) {
        printf("case %d: the judge fails: %s\n", c->number, c->expected.e.message);
        print_case(c, data);
        return 1;
    }
    for (size_t i = 0; i < BASE_COUNT(variants) && !bad; i++)
        bad = check(d, c, variants[i], NULL, &c->expected, data);
    for (size_t i = 0; (rule = plan_rule(i)) != NULL && !bad; i++) {
        char off[120];
        snprintf(off, sizeof off, "SET rules_off = '%s'", rule->name);
        /* without it there is no plan for a correlated subquery */
        if (strcmp(rule->name, "unnest") != 0)
            bad = check(d, c, off, NULL, &c->expected, data);
    }
    if (c->number % 3 == 0 && !bad)
        bad = check_layout(d, c, "SET llm_layout = 'auto'", data);
    if (c->number % 3 == 1 && !bad)
        bad = check_layout(d, c, "SET llm_layout = 'data'", data);
    return bad;
}

static db *open_db(void) {
    db *d = open_random_db();
    standard_settings(d);
    return d;
}

static void test_stacks_answer_as_tables_do(void **state) {
    (void)state;
    uint64_t seed = (uint64_t)number_from("KVASIR_SEED", 1);
    int n = (int)number_from("KVASIR_CASES", getenv("KVASIR_LONG") ? LONG_CASES : CASES);
    int only = (int)number_from("KVASIR_CASE", -1), bad = 0;
    db *d = open_db();
    buf data = {0};
    printf("seed %llu: %d stacks, each under %d settings and without each rule\n",
           (unsigned long long)seed, n, (int)BASE_COUNT(variants));
    for (int i = 0; i < n && bad < 10; i++) {
        test_case c;
        make_case(seed, i, &c);
        if (i % CASES_PER_DATA == 0) {
            gen g = {.state = hash_mix(seed, (uint64_t)i + 1) + 77};
            buf_clear(&data);
            gen_data(&g, &data);
            run_lines(d, buf_str(&data));
        }
        if (only == i)
            print_case(&c, &data);
        if (only < 0 || only == i)
            bad += check_case(d, &c, &data);
        free_case(&c);
    }
    buf_free(&data);
    db_close(d);
    assert_int_equal(bad, 0);
}

/* ---- what is asked --------------------------------------------------------------------------- */

/* Runs a statement and returns its figures; compares strategies in the middle if `compare`. */
static llm_figures figures_of(db *d, const char *sql, bool compare, answer *out) {
    exec_summary summary;
    exec_progress progress;
    stmt *s = db_submit(d, str_from(sql));
    const batch *b;
    stmt_status status;
    *out = (answer){0};
    stmt_watch(s, compare);
    stmt_compare(s, compare);
    while ((status = stmt_next(s, -1, &b, &out->e)) == STMT_ROWS)
        for (int k = 0; k < b->rows; k++) {
            buf line = {0};
            print_row(&line, b, k);
            answer_add(out, buf_str(&line));
            buf_free(&line);
        }
    stmt_progress(s, &progress);
    stmt_summary(s, &summary);
    stmt_free(s);
    if (status == STMT_ERROR)
        fail_msg("%s: %s", sql, out->e.message);
    assert_int_equal(progress.nbaselines > 0, compare);
    return summary.llm;
}

static db *open_reviews(void) {
    db *d = open_db();
    run_c(d,
          "CREATE TABLE reviews AS SELECT n AS id, n % 20 AS movie, n * 7 % 5 AS stars, 'Review ' "
          "|| n AS review FROM generate_series(1, 240) AS n");
    run_c(d, "CREATE TABLE movies AS SELECT n AS id, 'Film ' || n AS title FROM generate_series(0, "
             "19) AS n");
    return d;
}

#define SUMMED "(SELECT *, LLM('Summarise {review}', review) AS s FROM reviews)"
#define GOOD "LLM('Is {s} good?', s) = 'yes'"

static void test_demand_reaches_every_call(void **state) {
    (void)state;
    static const struct {
        const char *sql;
        unsigned most;
    } cases[] = {
        {"SELECT id FROM " SUMMED " WHERE " GOOD " LIMIT 3", 32},
        {"SELECT id FROM " SUMMED " WHERE " GOOD " ORDER BY stars DESC LIMIT 2", 48},
        {"SELECT DISTINCT movie FROM " SUMMED " WHERE " GOOD, 136},
        {"SELECT id FROM (SELECT *, LLM('More of {s}', s) AS w FROM " SUMMED
         ") WHERE LLM('Is {w} good?', w) = 'yes' LIMIT 3",
         48},
        {"SELECT 1 WHERE EXISTS (SELECT 1 FROM " SUMMED " WHERE " GOOD ")", 32},
        {"SELECT title FROM movies WHERE id < 3 AND id IN (SELECT movie FROM " SUMMED " WHERE " GOOD
         ")",
         36},
        {"SELECT id FROM " SUMMED " WHERE " GOOD
         " QUALIFY row_number() OVER (PARTITION BY movie ORDER BY stars, id) = 1",
         136},
        {"SELECT id, lower(s) || '!' FROM " SUMMED " LIMIT 3", 3},
        {"SELECT id FROM (SELECT r.id, upper(s) || title AS t FROM " SUMMED
         " AS r JOIN movies AS m ON r.movie = m.id) WHERE LLM('Is {t} good?', t) = 'yes' LIMIT 3",
         32},
    };
    static const char *const calibrated[] = {"SET llm_calibrate = 'off'", "RESET llm_calibrate"};
    db *d = open_reviews();
    for (size_t k = 0; k < BASE_COUNT(calibrated); k++) {
        run_c(d, calibrated[k]);
        for (size_t i = 0; i < BASE_COUNT(cases); i++) {
            answer a;
            llm_figures spent = figures_of(d, cases[i].sql, false, &a);
            if (spent.requests == 0 || spent.requests > cases[i].most)
                fail_msg("%s: %llu requests, wanted at most %u", cases[i].sql,
                         (unsigned long long)spent.requests, cases[i].most);
            answer_free(&a);
        }
    }
    db_close(d);
}

/* What was asked under a LIMIT is found by the statement without it, and the other way round: the
 * prompts, with the order of their fields, are the same. */
static void test_prompts_do_not_depend_on_demand(void **state) {
    (void)state;
    static const char *const stacks[] = {
        "SELECT id FROM " SUMMED " WHERE " GOOD,
        "SELECT id, LLM('Why is {s} {mood}?', s, mood) FROM (SELECT *, LLM('Is {s} sad or glad?', "
        "s) "
        "RETURNS ENUM('sad', 'glad') AS mood FROM " SUMMED ")",
        "SELECT r.id FROM (SELECT *, LLM('Is it sad?', review) RETURNS ENUM('sad', 'glad') AS mood "
        "FROM reviews) AS r JOIN movies AS m ON r.movie = m.id WHERE LLM('Is it?', review, title, "
        "mood) = 'yes'",
        "SELECT id FROM " SUMMED
        " WHERE LLM('Long?', s, review) = 'yes' AND LLM('Old?', s, review) = "
        "'yes'",
    };
    static const char *const layouts[] = {"instruction", "data", "auto"};
    db *d = open_reviews();
    run_c(d, "SET answer_cache = on");
    run_c(d, "SET field_order = 'fresh'");
    for (size_t i = 0; i < BASE_COUNT(stacks) * BASE_COUNT(layouts); i++) {
        const char *sql = stacks[i / BASE_COUNT(layouts)];
        buf set = {0}, few = {0};
        answer a;
        buf_printf(&set, "SET llm_layout = '%s'", layouts[i % BASE_COUNT(layouts)]);
        buf_printf(&few, "%s LIMIT 3", sql);
        run_c(d, set.p);
        run_c(d, "CLEAR CACHE");
        llm_figures first = figures_of(d, few.p, false, &a);
        answer_free(&a);
        llm_figures all = figures_of(d, sql, false, &a);
        answer_free(&a);
        assert_in_range(first.requests, 1, 100);
        assert_int_equal(all.answers_stored, first.requests);
        first = figures_of(d, few.p, false, &a);
        answer_free(&a);
        assert_int_equal(first.requests, 0);
        buf_free(&set);
        buf_free(&few);
    }
    db_close(d);
}

/* Counting under way makes up texts that are not known yet; the run then makes its own. */
static void test_comparing_changes_no_answer(void **state) {
    (void)state;
    static const char sql[] =
        "SELECT id, s, LLM('Why {s}?', s, review) FROM " SUMMED " WHERE " GOOD;
    db *d = open_reviews();
    answer plain, compared;
    llm_figures a = figures_of(d, sql, false, &plain), b = figures_of(d, sql, true, &compared);
    assert_true(answer_equal(&plain, &compared));
    assert_int_equal(a.requests, b.requests);
    assert_int_equal(a.prompt_tokens, b.prompt_tokens);
    answer_free(&plain);
    answer_free(&compared);
    db_close(d);
}

static int depth_of(const exec_progress *p, const char *name) {
    for (int i = 0; i < p->noperators; i++)
        if (strcmp(p->operator_rows[i].name, name) == 0)
            return p->operator_rows[i].depth;
    fail_msg("no %s among %d operators", name, p->noperators);
    return -1;
}

/* A call is below those that read it, beside those that it has nothing to do with. */
static void test_the_view_indents_by_depth(void **state) {
    (void)state;
    db *d = open_reviews();
    exec_progress p;
    const batch *b;
    err e;
    stmt *s = db_submit(
        d, STR("SELECT id FROM " SUMMED " WHERE " GOOD " AND LLM('Is it old?', review) = 'yes'"));
    while (stmt_next(s, -1, &b, &e) == STMT_ROWS)
        ;
    stmt_progress(s, &p);
    stmt_free(s);
    assert_int_equal(depth_of(&p, "LLM#2"), 1); /* below its filter */
    assert_int_equal(depth_of(&p, "LLM#1"), 2);
    assert_int_equal(depth_of(&p, "LLM#3"), 1);
    assert_int_equal(depth_of(&p, "scan reviews"), 3);
    db_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stacks_answer_as_tables_do),
                                       cmocka_unit_test(test_demand_reaches_every_call),
                                       cmocka_unit_test(test_prompts_do_not_depend_on_demand),
                                       cmocka_unit_test(test_comparing_changes_no_answer),
                                       cmocka_unit_test(test_the_view_indents_by_depth)};
    return cmocka_run_group_tests(tests, own_cache, remove_cache);
}
