/*
 * exec_other_int.h - a database directory of the test's own, statements with what came of them, and
 * another process at work on the same directory.
 *
 * The other process is the test program again: `program DIRECTORY WAIT_MS SQL …` waits, runs the
 * statements, lingers for a while where they left a transaction open, and exits with 0 or the first
 * error's code. The test's main hands over to be_other where there are arguments.
 */
#ifndef KVASIR_EXEC_OTHER_INT_H
#define KVASIR_EXEC_OTHER_INT_H

#include <ftw.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/exec.h"

extern char **environ;

enum { LINGER_US = 600000 };

static char directory[64], path[80];

/* ---- SQL ------------------------------------------------------------------------------------- */

static inline db *open_path(void) {
    db *d;
    err e;
    db_options options = {.path = path};
    if (db_open(&options, &d, &e) != 0) {
        fprintf(stderr, "%s\n", e.message);
        exit(2);
    }
    return d;
}

typedef struct outcome {
    int status;
    uint64_t hash; /* of the rows */
    int64_t first; /* the first INTEGER of the last batch */
    exec_summary sum;
    char notice[512];
} outcome;

static inline outcome run(db *d, const char *sql) {
    const batch *b;
    stmt_status status;
    err e;
    outcome out = {.hash = 1, .first = -1};
    stmt *s = db_submit(d, str_from(sql));
    err_clear(&e);
    while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS)
        for (int c = 0; c < b->ncols; c++)
            for (int r = 0; r < b->rows; r++) {
                const column *col = &b->cols[c];
                if (column_is_null(col, r))
                    out.hash = hash_mix(out.hash, 7);
                else if (col->type == TYPE_TEXT)
                    out.hash = hash64(col->s[r].p, col->s[r].n, out.hash);
                else
                    out.hash = hash_mix(out.hash, (uint64_t)col->i[r]);
                if (r == 0 && c == 0 && col->type == TYPE_INTEGER)
                    out.first = col->i[0];
            }
    out.status = status == STMT_ERROR ? (int)e.code : 0;
    stmt_summary(s, &out.sum);
    snprintf(out.notice, sizeof out.notice, "%s", stmt_notice(s));
    stmt_free(s);
    if (out.status)
        fprintf(stderr, "%s: %s\n", sql, e.message);
    return out;
}

static inline outcome run_ok(db *d, const char *sql) {
    outcome o = run(d, sql);
    assert_int_equal(o.status, 0);
    return o;
}

/* ---- the other process ----------------------------------------------------------------------- */

/* Statements end at the first NULL. */
static inline pid_t start_other(const char *wait_ms, const char *first, const char *second) {
    char self[] = "/proc/self/exe";
    char *args[] = {
        self, path, (char *)(uintptr_t)wait_ms, (char *)(uintptr_t)first, (char *)(uintptr_t)second,
        NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, args, environ), 0);
    return pid;
}

/* Waits for its end. */
static inline bool other_succeeds(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static inline void wait_other(pid_t pid) {
    assert_true(other_succeeds(pid));
}

static inline int be_other(int argc, char **argv) {
    int status = 0;
    snprintf(path, sizeof path, "%s", argv[1]);
    usleep((useconds_t)atoi(argv[2]) * 1000);
    db *d = open_path();
    for (int k = 3; k < argc && !status; k++)
        status = run(d, argv[k]).status;
    if (db_in_transaction(d))
        usleep(LINGER_US);
    db_close(d);
    return status;
}

/* ---- the directory --------------------------------------------------------------------------- */

static inline int make_directory(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%.40s/kvasir-exec-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(directory))
        return 1;
    snprintf(path, sizeof path, "%s/d.kvasir", directory);
    return 0;
}

static inline int remove_one(const char *name, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(name);
}

static inline int remove_directory(void **state) {
    (void)state;
    return nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
