/*
 * Tests of the shell's input: arguments, pieces of scripts, the history file, command names, signals.
 */
#include <errno.h>
#include <locale.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "run/run_int.h"

static bool parse(args *a, err *e, int argc, const char **argv) {
    *e = (err){0};
    return args_parse(argc, (char **)argv, a, e);
}
#define PARSE(a, e, ...)                                                                           \
    parse((a), (e), (int)(sizeof((const char *[]){"kvasir", __VA_ARGS__}) / sizeof(char *)),       \
          (const char *[]){"kvasir", __VA_ARGS__})

static void test_args(void **state) {
    (void)state;
    args a;
    err e;
    assert_true(PARSE(&a, &e, "db", "--csv", "-c", "SELECT 1", "--file=x.sql", "--set", "n=a=b",
                      "--keep-going"));
    assert_string_equal(a.db, "db");
    assert_string_equal(a.mode, "csv");
    assert_int_equal(a.ninputs, 2);
    assert_int_equal(a.inputs[1].kind, INPUT_FILE);
    assert_string_equal(a.inputs[1].text, "x.sql");
    assert_true(str_equal(a.variables[0].name, STR("n")));
    assert_string_equal(a.variables[0].value, "a=b");
    assert_true(a.keep_going);
    args_free(&a);
    assert_true(PARSE(&a, &e, ":memory:", "select 1", "-json"));
    assert_null(a.db);
    assert_int_equal(a.ninputs, 1);
    assert_string_equal(a.mode, "json");
    args_free(&a);
    assert_true(PARSE(&a, &e, "--", "-odd-name"));
    assert_string_equal(a.db, "-odd-name");
    args_free(&a);
}

static void test_args_wrong(void **state) {
    (void)state;
    args a;
    err e;
    assert_false(PARSE(&a, &e, "--markdwon"));
    assert_non_null(strstr(e.hint, "--markdown"));
    args_free(&a);
    assert_false(PARSE(&a, &e, "-c"));
    assert_non_null(strstr(e.message, "SQL"));
    args_free(&a);
    assert_false(PARSE(&a, &e, "--read-only=yes"));
    args_free(&a);
    assert_false(PARSE(&a, &e, "--set", "novalue"));
    args_free(&a);
    assert_false(PARSE(&a, &e, "a", "b", "c"));
    args_free(&a);
}

static void expect_piece(const char *text, bool last, piece_kind kind, size_t length) {
    size_t n = 0;
    assert_int_equal(script_piece(str_from(text), last, &n), kind);
    if (kind != PIECE_PARTIAL)
        assert_int_equal(n, length);
}

static void test_pieces(void **state) {
    (void)state;
    expect_piece("  \n SELECT 1;", false, PIECE_BLANK, 4);
    expect_piece("SELECT 1; SELECT 2;", false, PIECE_STATEMENT, 9);
    expect_piece("SELECT ';' -- ;\n;x", false, PIECE_STATEMENT, 17);
    expect_piece("SELECT 1", false, PIECE_PARTIAL, 0);
    expect_piece("SELECT 1", true, PIECE_STATEMENT, 8);
    /* an open parenthesis does not hide `;` */
    expect_piece("SELECT (1;", false, PIECE_STATEMENT, 10);
    expect_piece("SELECT '(;", false, PIECE_PARTIAL, 0);
    expect_piece(".tables\nSELECT 1;", false, PIECE_COMMAND, 7);
    expect_piece("\\dt", false, PIECE_PARTIAL, 0);
    expect_piece("\\dt", true, PIECE_COMMAND, 3);
    /* a SELECT after .try or .agree goes on up to `;` */
    expect_piece(".try --rows 5 SELECT a,\n ';' AS b\nFROM t; x", false, PIECE_COMMAND, 41);
    expect_piece(".try SELECT a\n", false, PIECE_PARTIAL, 0);
    expect_piece(".try SELECT a\n", true, PIECE_COMMAND, 14);
    expect_piece(".try\nSELECT a;", false, PIECE_COMMAND, 4);
    expect_piece(".agree a b\nSELECT a;", false, PIECE_COMMAND, 10);
    expect_piece(".explain SELECT a\n;", false, PIECE_COMMAND, 17);
    expect_piece("#!/usr/bin/kvasir\n", false, PIECE_BLANK, 17);
    expect_piece("-- only a comment\n", true, PIECE_BLANK, 17);
    expect_piece(";", false, PIECE_BLANK, 1);
}

static void test_history(void **state) {
    (void)state;
    char path[] = "/tmp/kvasir-history-XXXXXX";
    close(mkstemp(path));
    history_list first, second;
    history_open(&first, path);
    history_open(&second, path); /* two shells at once */
    assert_true(history_add(&first, STR("SELECT 'a\\n',\n  2;\n")));
    assert_false(history_add(&first, STR("SELECT 'a\\n',\n  2;"))); /* repeated */
    assert_true(history_add(&second, STR("SELECT 3;")));
    assert_false(history_add(&second, STR(" SELECT 'secret';")));
    assert_false(history_add(&second, STR("  \n")));
    history_close(&first);
    history_close(&second);
    history_open(&first, path);
    assert_int_equal(first.count, 2);
    assert_string_equal(first.lines[0], "SELECT 'a\\n',\n  2;");
    assert_string_equal(first.lines[1], "SELECT 3;");
    history_close(&first);
    unlink(path);
}

/* Limits the size of files, so that writing beyond it fails as on a full disk. */
typedef struct full_disk {
    struct rlimit usual;
    void (*handler)(int);
} full_disk;

static full_disk disk_full(rlim_t bytes) {
    full_disk d;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &d.usual), 0);
    d.handler = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, d.usual.rlim_max}), 0);
    return d;
}

static void disk_free(const full_disk *d) {
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &d->usual), 0);
    signal(SIGXFSZ, d->handler);
}

/* A long file is trimmed to the latest statements; if that cannot be written it keeps all. */
static void test_history_is_trimmed(void **state) {
    (void)state;
    enum { WRITTEN = 10000, KEPT = 5000 };
    char path[] = "/tmp/kvasir-history-XXXXXX";
    FILE *out = fdopen(mkstemp(path), "w");
    for (int i = 1; i <= WRITTEN; i++)
        fprintf(out, "SELECT %d;\n", i);
    fclose(out);
    struct stat before, after;
    assert_int_equal(stat(path, &before), 0);
    full_disk disk = disk_full(0);
    history_list h;
    history_open(&h, path);
    disk_free(&disk);
    assert_int_equal(h.count, KEPT);
    history_close(&h);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    for (int round = 0; round < 2; round++) {
        history_open(&h, path);
        assert_int_equal(h.count, KEPT);
        assert_string_equal(h.lines[0], "SELECT 5001;");
        assert_string_equal(h.lines[KEPT - 1], "SELECT 10000;");
        history_close(&h);
        assert_int_equal(stat(path, &after), 0);
        assert_true(after.st_size < before.st_size);
    }
    unlink(path);
}

/* A line that a full disk cut short is removed, so that the next line is not joined to it. */
static void test_history_lines_are_whole(void **state) {
    (void)state;
    char path[] = "/tmp/kvasir-history-XXXXXX";
    close(mkstemp(path));
    history_list h;
    history_open(&h, path);
    assert_true(history_add(&h, STR("SELECT 1;")));
    full_disk disk = disk_full(14);
    assert_true(history_add(&h, STR("SELECT 2;")));
    disk_free(&disk);
    assert_true(history_add(&h, STR("SELECT 3;")));
    history_close(&h);
    history_open(&h, path);
    assert_int_equal(h.count, 2);
    assert_string_equal(h.lines[0], "SELECT 1;");
    assert_string_equal(h.lines[1], "SELECT 3;");
    history_close(&h);
    unlink(path);
}

static void test_commands(void **state) {
    (void)state;
    static const struct {
        const char *typed, *name;
    } cases[] = {
        {".tables", "tables"}, {"\\dt", "tables"}, {"\\d+", "tables"},    {".QUIT", "quit"},
        {"\\q", "quit"},       {".exit", "quit"},  {"\\timing", "timer"}, {".tim", "timer"},
        {"\\!", "shell"},      {"\\?", "help"},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        const command *c = command_find(str_from(cases[i].typed));
        assert_non_null(c);
        assert_string_equal(c->name, cases[i].name);
    }
    assert_null(command_find(STR(".tabels")));
    assert_null(command_find(STR(".")));
}

/* The locale decides only whether UTF-8 is drawn; upper and lower case ignore it. In Turkish I is not
 * the capital of i (that locale is seldom installed). */
static void test_letters_ignore_the_locale(void **state) {
    (void)state;
    static const char *const names[] = {"tr_TR.UTF-8", "C.utf8"};
    for (size_t i = 0; i < BASE_COUNT(names); i++) {
        term t;
        setenv("LC_ALL", names[i], 1);
        term_detect(&t, true);
        assert_true(t.utf8);
        assert_string_equal(setlocale(LC_CTYPE, NULL), "C.UTF-8");
        assert_int_equal(strcasecmp("MINUTE", "minute"), 0);
    }
    unsetenv("LC_ALL");
}

/* Ctrl-C between two statements of a script cancels the next one. */
static void test_interrupts_before_a_statement(void **state) {
    (void)state;
    enum { PATIENCE_MS = 20000 };
    db_options options = {0};
    db *d;
    err e = {0};
    const batch *b;
    signals_install();
    assert_int_equal(db_open(&options, &d, &e), 0);
    raise(SIGINT);
    stmt *s = db_submit(d, STR("SELECT count(*) FROM generate_series(1, 1000000000000)"));
    signals_watch(s);
    assert_int_equal(stmt_next(s, PATIENCE_MS, &b, &e), STMT_ERROR);
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_int_equal(signals_interrupts(), 1);
    signals_watch(NULL);
    stmt_free(s);
    signals_clear();
    s = db_submit(d, STR("SELECT 1"));
    signals_watch(s);
    assert_int_equal(stmt_next(s, PATIENCE_MS, &b, &e), STMT_ROWS);
    signals_watch(NULL);
    stmt_free(s);
    db_close(d);
}

/* The handler of SIGTERM preserves errno, even if restoring the terminal fails. This test is the last,
 * because a second SIGTERM ends the process. */
static void test_termination_leaves_errno(void **state) {
    (void)state;
    int out = dup(STDOUT_FILENO);
    signals_install();
    term_set_restore_text("x");
    close(STDOUT_FILENO);
    errno = ENOENT;
    raise(SIGTERM);
    int after = errno;
    dup2(out, STDOUT_FILENO);
    close(out);
    term_set_restore_text(NULL);
    assert_int_equal(after, ENOENT);
    assert_int_equal(signals_terminated(), SIGTERM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_args),
        cmocka_unit_test(test_args_wrong),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_history_is_trimmed),
        cmocka_unit_test(test_history_lines_are_whole),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_letters_ignore_the_locale),
        cmocka_unit_test(test_interrupts_before_a_statement),
        cmocka_unit_test(test_termination_leaves_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
