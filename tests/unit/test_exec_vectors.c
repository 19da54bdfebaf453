/*
 * test_exec_vectors.c - ORDER BY a distance LIMIT k, alone and for each row of a table, gives the
 * same rows, distances and order with rule.nearest on and off, on one thread and on several. With an
 * ivfflat index of which all lists are read it gives the same rows but for the rounding of codes,
 * whatever was inserted, changed and deleted before.
 *
 * Tables have NULLs, equal vectors and equal distances, few rows and several batches; a batch of the
 * large one is large enough for threads.
 *
 *   KVASIR_SEED=7 KVASIR_CASES=100 test_exec_vectors
 */
#include "exec_answer_int.h"

enum { CASES = 60, SMALL_DIMS = 3, LARGE_DIMS = 96, LARGE_ROWS = 9000, LISTED_DIMS = 8 };

static uint64_t seed;

static int pick(int n) {
    seed += 0x9e3779b97f4a7c15u;
    return (int)((hash_mix(seed, 11) >> 33) % (uint64_t)n);
}

/* Few values, so that vectors and distances repeat. */
static void print_vector(buf *out, int dims) {
    buf_append_c(out, "'[");
    for (int i = 0; i < dims; i++)
        buf_printf(out, "%s%g", i ? "," : "",
                   (pick(5) - 2) / 2.0 + (dims > SMALL_DIMS ? 0.01 * pick(3) : 0));
    buf_append_c(out, "]'");
}

static void fill(db *d, const char *table, int rows, int dims) {
    buf sql = {0};
    buf_printf(&sql, "CREATE TABLE %s (id INTEGER PRIMARY KEY, n INTEGER, v VECTOR(%d))", table,
               dims);
    run_c(d, sql.p);
    for (int i = 0; i < rows; i++) {
        if (i % 500 == 0) {
            buf_clear(&sql);
            buf_printf(&sql, "INSERT INTO %s VALUES ", table);
        }
        buf_printf(&sql, "%s(%d, %d, ", i % 500 ? "," : "", i + 1, pick(10));
        if (pick(20) == 0)
            buf_append_c(&sql, "NULL");
        else
            print_vector(&sql, dims);
        buf_append_char(&sql, ')');
        if (i % 500 == 499 || i == rows - 1)
            run_c(d, sql.p);
    }
    buf_free(&sql);
}

static void print_query(buf *out, const char *table, int dims, int rows) {
    static const char *const operators[] = {"<->", "<#>", "<=>"};
    const char *how = operators[pick(3)];
    buf query = {0};
    if (pick(4) == 0)
        buf_printf(&query, "(SELECT v FROM %s WHERE id = %d)", table, pick(rows) + 1);
    else
        print_vector(&query, dims);
    buf_printf(out, "SELECT id, %sn FROM %s", pick(2) ? "v <-> v, " : "", table);
    /* a vector of zeros has no cosine distance; a query of zeros fails either way */
    buf_printf(out, " WHERE n >= %d%s", pick(4),
               pick(8) ? " AND (v IS NULL OR vector_norm(v) > 0)" : "");
    buf_printf(out, " ORDER BY v %s %s%s", how, query.p,
               pick(3)   ? ""
               : pick(2) ? ", n"
                         : ", n DESC, id DESC");
    buf_printf(out, " LIMIT %d OFFSET %d", pick(2) ? pick(12) : pick(rows), pick(3) ? 0 : pick(20));
    buf_free(&query);
}

/* The nearest rows of each row: of one that has no vector, of one of zeros, and with NULLs among the
 * rows to search. */
static void print_join(buf *out, const char *table, int rows) {
    static const char *const operators[] = {"<->", "<#>", "<=>"};
    const char *how = operators[pick(3)];
    int first = pick(rows / 2);
    bool swapped = pick(2);
    buf_printf(out,
               "SELECT a.id, x.* FROM %s AS a %s LATERAL (SELECT id, n%s FROM %s AS b "
               "WHERE n >= %d%s ORDER BY %s.v %s %s.v LIMIT %d) AS x ON %s "
               "WHERE a.id BETWEEN %d AND %d",
               table, pick(2) ? "JOIN" : "LEFT JOIN", pick(2) ? ", a.v <-> v" : "", table, pick(10),
               pick(8) ? " AND (v IS NULL OR vector_norm(v) > 0)" : "", swapped ? "b" : "a", how,
               swapped ? "a" : "b", pick(12) + 1, pick(2) ? "true" : "x.n < 9", first,
               first + 1 + pick(rows < 1000 ? 30 : 2));
    if (pick(8))
        buf_append_c(out, " AND (a.v IS NULL OR vector_norm(a.v) > 0)");
}

static void test_rule_keeps_results(void **state) {
    (void)state;
    static const char *const ways[] = {"SET threads = 1", "SET threads = 3",
                                       "SET rule.nearest = off"};
    db *d;
    err e = {0};
    seed = (uint64_t)number_from("KVASIR_SEED", 1);
    int n = (int)number_from("KVASIR_CASES", CASES), failed = 0;
    assert_int_equal(db_open(&(db_options){.path = NULL}, &d, &e), 0);
    fill(d, "small", 200, SMALL_DIMS);
    fill(d, "large", LARGE_ROWS, LARGE_DIMS);
    buf sql = {0};
    for (int i = 0; i < n; i++) {
        answer a[BASE_COUNT(ways)];
        bool small = pick(3) > 0;
        buf_clear(&sql);
        if (i % 2)
            print_join(&sql, small ? "small" : "large", small ? 200 : LARGE_ROWS);
        else
            print_query(&sql, small ? "small" : "large", small ? SMALL_DIMS : LARGE_DIMS,
                        small ? 200 : LARGE_ROWS);
        for (size_t k = 0; k < BASE_COUNT(ways); k++) {
            run_c(d, ways[k]);
            run(d, buf_str(&sql), &a[k]);
        }
        run_c(d, "SET rule.nearest = on");
        for (size_t k = 1; k < BASE_COUNT(ways); k++)
            if (!answer_equal(&a[0], &a[k]) || strcmp(a[0].e.message, a[k].e.message) != 0)
                fail_msg("%s differs from %s: %s", ways[k], ways[0], sql.p);
        failed += a[0].failed;
        assert_true(i < n - 1 || failed < n / 2); /* else little was compared */
        for (size_t k = 0; k < BASE_COUNT(ways); k++)
            answer_free(&a[k]);
    }
    buf_free(&sql);
    db_close(d);
}

/* ---- the index ------------------------------------------------------------------------------- */

static void print_direction(buf *out) {
    buf_append_c(out, "'[");
    for (int i = 0; i < LISTED_DIMS; i++)
        buf_printf(out, "%s%g", i ? "," : "", (pick(2001) - 1000) / 100.0);
    buf_append_c(out, "]'");
}

static void insert_listed(db *d, int first, int rows) {
    buf sql = {0};
    buf_append_c(&sql, "INSERT INTO listed VALUES ");
    for (int i = 0; i < rows; i++) {
        buf_printf(&sql, "%s(%d, ", i ? "," : "", first + i);
        if (pick(30) == 0)
            buf_append_c(&sql, "NULL");
        else
            print_direction(&sql);
        buf_append_char(&sql, ')');
    }
    run_c(d, sql.p);
    buf_free(&sql);
}

static void change_listed(db *d, int round) {
    buf sql = {0};
    insert_listed(d, 100000 + 1000 * round, 1 + pick(40));
    buf_printf(&sql, "UPDATE listed SET v = ");
    print_direction(&sql);
    buf_printf(&sql, " WHERE id %% 997 = %d", pick(997));
    run_c(d, sql.p);
    buf_clear(&sql);
    buf_printf(&sql, "DELETE FROM listed WHERE id %% 211 = %d", pick(211));
    run_c(d, sql.p);
    buf_free(&sql);
}

/* Returns the number of values that both answers have. */
static int count_common(const answer *a, const answer *b) {
    int n = 0;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            n += strcmp(a->rows[i], b->rows[k]) == 0;
    return n;
}

static void test_lists_find_the_nearest(void **state) {
    (void)state;
    enum { ROUNDS = 60, ROWS = 15200 };
    static const char *const indexes[] = {
        "CREATE INDEX listed_v ON listed USING ivfflat (v)",
        "CREATE INDEX listed_v ON listed USING ivfflat (v vector_cosine_ops) WITH (lists = 17)"};
    db *d;
    err e = {0};
    int wanted = 0, found = 0;
    buf sql = {0};
    seed = (uint64_t)number_from("KVASIR_SEED", 1);
    assert_int_equal(db_open(&(db_options){.path = NULL}, &d, &e), 0);
    run_c(d, "CREATE TABLE listed (id INTEGER PRIMARY KEY, v VECTOR(8))");
    for (int i = 0; i < ROWS; i += 400)
        insert_listed(d, i + 1, 400);
    run_c(d, "SET vector_probes = 100000");
    for (int round = 0; round < ROUNDS; round++) {
        answer with, without;
        int cosine = round / (ROUNDS / 2);
        if (round % (ROUNDS / 2) == 0) {
            run_c(d, "DROP INDEX IF EXISTS listed_v");
            run_c(d, indexes[cosine]);
        }
        change_listed(d, round);
        buf_clear(&sql);
        buf_printf(&sql, "SELECT id FROM listed ORDER BY v %s ", cosine ? "<=>" : "<->");
        print_direction(&sql);
        buf_printf(&sql, " LIMIT %d", 1 + pick(30));
        run(d, buf_str(&sql), &with);
        run_c(d, "SET rule.lists = off");
        run(d, buf_str(&sql), &without);
        run_c(d, "SET rule.lists = on");
        assert_false(with.failed || without.failed);
        assert_int_equal(with.n, without.n);
        wanted += without.n;
        found += count_common(&with, &without);
        answer_free(&with);
        answer_free(&without);
    }
    assert_true(found > wanted - wanted / 100);
    buf_clear(&sql);
    buf_append_c(&sql, "EXPLAIN ");
    buf_append_c(&sql, "SELECT id FROM listed ORDER BY v <=> ");
    print_direction(&sql);
    buf_append_c(&sql, " LIMIT 3");
    answer shown;
    run(d, buf_str(&sql), &shown);
    bool used = false;
    for (int i = 0; i < shown.n; i++)
        used = used || strstr(shown.rows[i], "with listed_v") != NULL;
    assert_true(used);
    answer_free(&shown);
    buf_free(&sql);
    db_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule_keeps_results),
                                       cmocka_unit_test(test_lists_find_the_nearest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
