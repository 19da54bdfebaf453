/*
 * commands_agree.c - .agree: compares two columns of a SELECT, the truth and the answers.
 *
 * Invariant: the rows of a result are not kept after it was printed. So .agree without a SELECT runs
 * the last statement again, which must be one.
 */
#include <stdlib.h>
#include <string.h>

#include "storage/containers.h"
#include "try_int.h"

typedef struct agreement {
    arena *mem;
    const char *names[2]; /* of the columns: truth, answer */
    int columns[2];
    bool begun; /* there was a row, so `columns` is set */
    bool found; /* both columns are there */
    classes classes;
    int *of[2]; /* [rows]: classes */
    size_t rows, caps[2];
} agreement;

static void find_columns(agreement *x, const stmt *s) {
    x->begun = x->found = true;
    for (int k = 0; k < 2; k++) {
        x->columns[k] = -1;
        for (int i = stmt_column_count(s) - 1; i >= 0; i--)
            if (str_equal_nocase(str_from(x->names[k]), str_from(stmt_column_name(s, i))))
                x->columns[k] = i;
        x->found = x->found && x->columns[k] >= 0;
    }
}

static void take_pairs(void *ctx, stmt *s, const batch *b) {
    agreement *x = ctx;
    if (!x->begun)
        find_columns(x, s);
    for (int i = 0; x->found && i < b->rows && x->classes.n <= TRY_CLASSES; i++) {
        for (int k = 0; k < 2; k++) {
            ARENA_RESERVE(x->mem, x->of[k], x->rows + 1, x->caps[k]);
            x->of[k][x->rows] = class_of(&x->classes, column_get(&b->cols[x->columns[k]], i), true);
        }
        x->rows++;
    }
}

/* Whether any value of one column is a value of the other. */
static bool have_common(const scores *s) {
    for (int k = 0; k < s->n; k++)
        if (scores_of_truth(s, k) > 0 && scores_of_answer(s, k) > 0)
            return true;
    return s->rows == 0;
}

typedef struct sorted_class {
    str name;
    int class;
} sorted_class;

/* Numbers come before texts. */
static int by_name(const void *a, const void *b) {
    const sorted_class *x = a, *y = b;
    int64_t i, k;
    bool first = parse_integer(x->name, &i), second = parse_integer(y->name, &k);
    if (first != second)
        return first ? -1 : 1;
    return first ? (i > k) - (i < k) : str_compare(x->name, y->name);
}

/* Sorts the classes by number or by name. */
static void sort_classes(agreement *x) {
    classes *c = &x->classes;
    sorted_class *order = ARENA_ARRAY(x->mem, sorted_class, c->n + 1);
    int *to = ARENA_ARRAY(x->mem, int, c->n + 1);
    for (int i = 0; i < c->n; i++)
        order[i] = (sorted_class){c->names[i], i};
    qsort(order, (size_t)c->n, sizeof *order, by_name);
    for (int i = 0; i < c->n; i++) {
        c->names[i] = order[i].name;
        to[order[i].class] = i;
    }
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < x->rows; i++)
            x->of[k][i] = x->of[k][i] == SCORES_NONE ? SCORES_NONE : to[x->of[k][i]];
}

static void print_agreement(shell *sh, agreement *x) {
    scores s;
    buf out = {0};
    sort_classes(x);
    scores_of(x->of[0], x->of[1], NULL, x->rows, x->classes.n, x->mem, &s);
    try_agreement(&s, x->names[0], x->names[1], &x->classes, x->mem, &out);
    shell_print(sh, &out);
    if (!have_common(&s))
        fprintf(stderr, "notice: no value of %s is a value of %s\n", x->names[0], x->names[1]);
}

bool cmd_agree(shell *sh, command_call *c) {
    agreement x = {.mem = c->mem, .classes = {.mem = c->mem}};
    str sql;
    sql_tree tree;
    err e;
    exec_summary cost;
    if (c->argc < 2 || (c->argc > 2 && command_select(str_from(c->argv[2])).n == 0))
        return shell_complain(sh, "usage: %s TRUTH ANSWER [SELECT …;]; both are names of columns",
                              c->name);
    x.names[0] = c->argv[0];
    x.names[1] = c->argv[1];
    if (!try_select(sh, c, &sql) || !shell_ready(sh) || !try_check(sh, sql, c->mem, &tree))
        return false;
    int status = try_run(sh, sql, c->name, NULL, take_pairs, &x, &cost, &e);
    if (status)
        return try_failed(sh, status, &e);
    if (!x.begun)
        return shell_complain(sh, "the SELECT has no rows");
    if (!x.found)
        return shell_complain(sh, "the SELECT has no column \"%s\"", x.names[x.columns[0] >= 0]);
    if (x.classes.n > TRY_CLASSES)
        return shell_complain(sh, "there are too many values to compare: more than %d",
                              TRY_CLASSES);
    print_agreement(sh, &x);
    if (c->argc == 2 && cost.llm.distinct_inputs)
        shell_note(sh,
                   "the statement was run again: %llu of %llu distinct inputs had stored answers",
                   (unsigned long long)cost.llm.answers_stored,
                   (unsigned long long)cost.llm.distinct_inputs);
    return true;
}
