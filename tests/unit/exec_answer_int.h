/*
 * exec_answer_int.h - statements of the random tests with their answers as texts, to be compared:
 * rows in their order or as bags.
 */
#ifndef KVASIR_EXEC_ANSWER_INT_H
#define KVASIR_EXEC_ANSWER_INT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/exec.h"

typedef struct answer {
    char **rows; /* values with | between them */
    int n, room;
    bool failed;
    err e;
} answer;

static inline void answer_add(answer *a, str row) {
    if (a->n == a->room) {
        a->room = a->room ? 2 * a->room : 16;
        a->rows = mem_realloc(a->rows, sizeof *a->rows * (size_t)a->room);
    }
    a->rows[a->n++] = mem_strndup(row.p ? row.p : "", row.n);
}

static inline void answer_free(answer *a) {
    for (int i = 0; i < a->n; i++)
        free(a->rows[i]);
    free(a->rows);
    *a = (answer){0};
}

static inline int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Makes a bag of the rows. */
static inline void answer_sort(answer *a) {
    if (a->n)
        qsort(a->rows, (size_t)a->n, sizeof *a->rows, by_text);
}

/* Two that failed are equal, whatever they say of it. */
static inline bool answer_equal(const answer *a, const answer *b) {
    if (a->failed != b->failed || a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->rows[i], b->rows[i]) != 0)
            return false;
    return true;
}

static inline void print_answer(const char *title, const answer *a) {
    printf("-- %s: %d rows%s%s\n", title, a->n, a->failed ? ", " : "",
           a->failed ? a->e.message : "");
    for (int i = 0; i < a->n && i < 12; i++)
        printf("%s\n", a->rows[i]);
}

static inline void print_row(buf *line, const batch *b, int row) {
    for (int c = 0; c < b->ncols; c++) {
        value v = column_get(&b->cols[c], row);
        buf_append_c(line, c ? "|" : "");
        if (v.type == TYPE_NULL)
            buf_append_c(line, "NULL");
        else
            value_print(line, v);
    }
}

/* Unless `summary` is NULL, also returns what the statement cost. */
static inline void run_summary(db *d, str sql, answer *out, exec_summary *summary) {
    stmt *s = db_submit(d, sql);
    const batch *b;
    stmt_status status;
    buf line = {0};
    *out = (answer){0};
    while ((status = stmt_next(s, -1, &b, &out->e)) == STMT_ROWS)
        for (int k = 0; k < b->rows; k++) {
            buf_clear(&line);
            print_row(&line, b, k);
            answer_add(out, buf_str(&line));
        }
    out->failed = status == STMT_ERROR;
    buf_free(&line);
    if (summary)
        stmt_summary(s, summary);
    stmt_free(s);
}

static inline void run(db *d, str sql, answer *out) {
    run_summary(d, sql, out, NULL);
}

/* Where an error is the test's own. */
static inline void run_c(db *d, const char *sql) {
    answer a;
    run(d, str_from(sql), &a);
    if (a.failed)
        fail_msg("%s: %s", sql, a.e.message);
    answer_free(&a);
}

/* Statements, one a line. */
static inline void run_lines(db *d, str text) {
    while (text.n) {
        const char *end = memchr(text.p, '\n', text.n);
        char *sql = mem_strndup(text.p, (size_t)(end - text.p));
        run_c(d, sql);
        text = (str){end + 1, text.n - (size_t)(end - text.p) - 1};
        free(sql);
    }
}

static inline long number_from(const char *name, long standard) {
    const char *text = getenv(name);
    return text ? atol(text) : standard;
}

#endif
