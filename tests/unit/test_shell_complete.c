/*
 * Tests of completion. `|` marks the cursor; the expected word must be the first candidate.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "edit/edit_int.h"

static const char *movie_columns[] = {"id", "name", "year", "Genre 2"};
static value_type movie_types[] = {TYPE_INTEGER, TYPE_TEXT, TYPE_INTEGER, TYPE_TEXT};
static const char *review_columns[] = {"movie_id", "review", "score"};
static value_type review_types[] = {TYPE_INTEGER, TYPE_TEXT, TYPE_REAL};
static const db_object objects[] = {
    {"table", "movies", "", NULL, 4, movie_columns, movie_types},
    {"table", "reviews", "", NULL, 3, review_columns, review_types},
    {"model", "small", "", NULL, 0, NULL, NULL},
    {"system", "kvasir_settings", "", NULL, 0, NULL, NULL},
};

static arena *mem;
static completion found;

static void find(const char *text) {
    static char copy[1024];
    const char *bar = strchr(text, '|');
    size_t cursor = (size_t)(bar - text);
    memcpy(copy, text, cursor);
    strcpy(copy + cursor, bar + 1);
    arena_reset(mem);
    complete_find(str_from(copy), cursor, objects, (int)BASE_COUNT(objects), mem, &found);
}

static bool has(const char *word) {
    for (int i = 0; i < found.count; i++)
        if (strcmp(found.items[i].text, word) == 0)
            return true;
    return false;
}

static void expect_first(const char *text, const char *word) {
    find(text);
    if (found.count == 0 || strcmp(found.items[0].text, word) != 0)
        print_error("%s: %s\n", text, found.count ? found.items[0].text : "nothing");
    assert_true(found.count > 0);
    assert_string_equal(found.items[0].text, word);
}

static void test_first(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"SEL|", "SELECT"},
        {"sel|", "select"},
        {"SELECT na| FROM movies", "name"},
        {"SELECT r.| FROM movies m JOIN reviews r ON true", "movie_id"},
        {"SELECT m.na|, r.score FROM reviews AS r, movies AS m", "name"},
        {"SELECT * F|", "FROM"},
        {"SELECT * FROM mo|", "movies"},
        {"SELECT * FROM movies W|", "WHERE"},
        {"SELECT * FROM movies WHERE ye|", "year"},
        {"SELECT * FROM movies WHERE year > 1 A|", "AND"},
        {"SELECT * FROM movies ORDER |", "BY"},
        {"SELECT * FROM movies GROUP BY g|", "\"Genre 2\""},
        {"SELECT * FROM movies m LEFT |", "JOIN"},
        {"SELECT coa|", "coalesce("},
        {"SELECT * FROM gen|", "generate_series("},
        {"SELECT * FROM movies JOIN gen|", "generate_series("},
        {"INSERT INTO rev|", "reviews"},
        {"INSERT INTO reviews (sc|", "score"},
        {"UPDATE movies SET ye|", "year"},
        {"UPDATE movies SET year = 1 RET|", "RETURNING"},
        {"UPDATE movies SET year = score FROM rev|", "reviews"},
        {"INSERT INTO movies VALUES (1) RETURNING na|", "name"},
        {"DELETE FROM movies RETURNING ye|", "year"},
        {"SET ps|", "psm"},
        {"SET psm |", "="},
        {"SET psm = |", "'auto'"},
        {"SET dedup = of|", "off"},
        {"SET psm = 'gr|", "'grouped'"},
        {"SET psm = '|", "'auto'"},
        {"DROP MODEL |", "small"},
        {"WARM mov|", "movies"},
        {"PIN rev|", "reviews"},
        {"PIN reviews US|", "USING"},
        {"UNP|", "UNPIN"},
        {"CLEAR CACHE K|", "KV"},
        {"CLEAR CACHE KV FOR MODEL |", "small"},
        {"SELECT 1; DELETE FR|", "FROM"},
        {"SELECT LLM('Is {re|} good?', review) FROM reviews", "review}"},
        {"SELECT LLM('x', review) RETURNS EN|", "ENUM"},
        {"SELECT LLM('x', review) RETURNS STR|", "STRUCT"},
        {"SELECT x.ki| FROM movies, LLM('x', name) RETURNS STRUCT(mood TEXT, kind ENUM('a', 'b')) "
         "AS x",
         "kind"},
        {"SELECT * FROM movies, LLM('x', name) RETURNS STRUCT(mood TEXT, kind TEXT) WHERE mo|",
         "mood"},
        {"SELECT LLM('x', review, model => |) FROM reviews", "small"},
        {"SELECT ti| FROM (SELECT name AS title FROM movies) t", "title"},
        {"WITH w AS (SELECT year AS y2 FROM movies) SELECT y| FROM w", "y2"},
        {"SELECT (SELECT re| FROM reviews) FROM movies", "review"},
        {"WITH R|", "RECURSIVE"},
        {"SELECT rank() O|", "OVER"},
        {"SELECT dense|", "dense_rank("},
        {"SELECT rank() OVER (P|) FROM movies", "PARTITION"},
        {"SELECT rank() OVER (PARTITION |) FROM movies", "BY"},
        {"SELECT rank() OVER (PARTITION BY ye|) FROM movies", "year"},
        {"SELECT rank() OVER (PARTITION BY year O|) FROM movies", "ORDER"},
        {"SELECT sum(year) OVER (ORDER BY year RO|) FROM movies", "ROWS"},
        {"SELECT sum(year) OVER (ORDER BY year ROWS U|) FROM movies", "UNBOUNDED"},
        {"SELECT sum(year) OVER (ORDER BY year ROWS 1 P|) FROM movies", "PRECEDING"},
        {"SELECT * FROM movies QU|", "QUALIFY"},
        {".ta|", ".tables"},
        {"\\ti|", "\\timing"},
        {".schema re|", "reviews"},
        {".mode mark|", "markdown"},
        {".explain SELECT na| FROM movies", "name"},
        {".try --rows 50 SELECT na| FROM movies", "name"},
        {".try --rows 50 SELECT name,\n  yea|\nFROM movies;", "year"},
        {".compare --limit 5 SELECT na| FROM movies", "name"},
        {".help ps|", "psm"},
        {".help back|", "backup"},
        {".import x.csv re|", "reviews"},
        {"EXPLAIN (|", "TOKENS"},
        {"EXPLAIN (P|", "PROMPT"},
        {"EXPLAIN (TR|", "TREE"},
        {"ALTER TABLE movies DROP |", "COLUMN"},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++)
        expect_first(cases[i].text, cases[i].word);
}

static void test_not_offered(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } refused[] = {{"|", "FROM"}, {"CREATE |", "TEMP"}, {"INSERT |", "OR"}, {"DROP |", "COLUMN"}};
    for (size_t i = 0; i < BASE_COUNT(refused); i++) {
        find(refused[i].text);
        assert_true(found.count > 0);
        assert_false(has(refused[i].word));
    }
    find("SELECT | FROM movies");
    assert_true(has("name"));
    assert_false(has("review"));
    find("SELECT 'na| FROM movies");
    assert_int_equal(found.count, 0);
    find("SELECT 1 -- na|");
    assert_int_equal(found.count, 0);
    find("SELECT x FROM reviews WHERE movie_id IN (SELECT na| FROM movies)");
    assert_true(has("name"));
    static const char *const none[] = {"SELECT generate_s|", "INSERT INTO generate_s|",
                                       "DELETE FROM generate_s|"};
    for (size_t i = 0; i < BASE_COUNT(none); i++) {
        find(none[i]);
        assert_int_equal(found.count, 0);
    }
}

/* A file name with blanks is quoted in a command, and not within a literal of SQL. */
static void test_files(void **state) {
    (void)state;
    char dir[] = "/tmp/kvasir-complete-XXXXXX", text[256], name[256];
    assert_non_null(mkdtemp(dir));
    snprintf(name, sizeof name, "%s/my file.sql", dir);
    FILE *made = fopen(name, "w");
    assert_non_null(made);
    fclose(made);
    static const char *const before[] = {".read ", ".read \"", "SELECT * FROM '"};
    static const char *const quotes[] = {"\"", "\"", ""}, *const ends[] = {"\"", "\"", "'"};
    for (size_t i = 0; i < BASE_COUNT(before); i++) {
        char expected[300];
        snprintf(text, sizeof text, "%s%s/my%s|", before[i], dir, i == 1 ? " f" : "");
        snprintf(expected, sizeof expected, "%s%s%s", quotes[i], name, ends[i]);
        expect_first(text, expected);
        assert_int_equal(found.count, 1);
        assert_int_equal(found.start, strlen(before[i]) - (i == 1));
    }
    snprintf(text, sizeof text, ".import  %s/my|",
             dir); /* two blanks do not make a second argument */
    find(text);
    assert_int_equal(found.count, 1);
    unlink(name);
    rmdir(dir);
}

/* Every prefix of a text with every cursor position. */
static void test_any_text(void **state) {
    (void)state;
    static const char text[] =
        "WITH a AS (SELECT (b) FROM ((c) d, 'e''f' JOIN \"g\" USING (h)), ) SELECT a.*, {i} é, 'j";
    for (size_t i = 0; i < sizeof text; i++) {
        for (size_t k = 0; k <= i; k++) {
            arena_reset(mem);
            complete_find((str){text, i}, k, objects, (int)BASE_COUNT(objects), mem, &found);
            assert_true(found.start <= k);
        }
    }
}

/* Completes among 1,000 tables. The time is printed but not checked, since sanitizers and a busy
 * machine change it. */
static void test_many_tables(void **state) {
    (void)state;
    enum { TABLES = 1000 };
    arena *names = arena_new();
    db_object *many = ARENA_ARRAY(names, db_object, TABLES);
    for (int i = 0; i < TABLES; i++)
        many[i] = (db_object){.kind = "table",
                              .name = arena_printf(names, "table_%d", i),
                              .sql = "",
                              .ncolumns = 4,
                              .columns = movie_columns,
                              .types = movie_types};
    static const char text[] = "SELECT * FROM t";
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    complete_find(str_from(text), strlen(text), many, TABLES, mem, &found);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    print_message("1,000 tables: %.2f ms of CPU time\n",
                  (double)(to.tv_sec - from.tv_sec) * 1e3 +
                      (double)(to.tv_nsec - from.tv_nsec) / 1e6);
    assert_int_equal(found.count, TABLES);
    arena_free(names);
}

static int set_up(void **state) {
    (void)state;
    mem = arena_new();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    arena_free(mem);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first),       cmocka_unit_test(test_not_offered),
        cmocka_unit_test(test_files),       cmocka_unit_test(test_any_text),
        cmocka_unit_test(test_many_tables),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
