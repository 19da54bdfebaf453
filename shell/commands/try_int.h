/*
 * try_int.h - what .try and .agree share: running the user's SELECT, and printing what was found.
 *
 * All structs live in the command's arena.
 */
#ifndef KVASIR_TRY_INT_H
#define KVASIR_TRY_INT_H

#include "commands_int.h"
#include "scores_int.h"

/* The distinct values of truth and answers, as value_print writes them. */
typedef struct classes {
    arena *mem;
    str *names;
    int n, cap;
} classes;

enum { TRY_CLASSES = 256 }; /* the most classes that are compared */

/* ---- the user's SELECT (commands_try.c) ------------------------------------------------------ */

/* Returns the value's class, or SCORES_NONE for NULL. A value that is no class yet becomes one if
 * `add`, else gives SCORES_NONE. */
int class_of(classes *c, value v, bool add);

/* Sets *out to the SELECT of the command, or else to the last statement. False: there is none. */
bool try_select(shell *sh, const command_call *c, str *out);
/* Parses and binds it as written, without running it. Prints its error, or that it is no SELECT. */
bool try_check(shell *sh, str sql, arena *mem, sql_tree *tree);

enum { TRY_NOT_CONFIRMED = -1 };
/* Runs a query and calls fn with each batch. `name` precedes its notices, which are not printed if
 * they are those of the run before (in *said; NULL: always). Returns 0, the error's code, or
 * TRY_NOT_CONFIRMED: the user was asked and does not want to run it. */
int try_run(shell *sh, str sql, const char *name, buf *said, shell_batch_fn fn, void *ctx,
            exec_summary *cost, err *e);
/* Prints the error of try_run; returns false. */
bool try_failed(shell *sh, int status, const err *e);

/* ---- printing (try_report.c) ----------------------------------------------------------------- */

/* A form of the question. */
typedef struct variant {
    const char *name;
    const select_column *column;
    const char *calibrate; /* calibrate => this option is added to the call; NULL: not */
    /* [rows]: classes, or SCORES_NONE for NULL; truth: only if there is one */
    int *truth, *answer;
    double *probs; /* [rows][classes.n]; NULL: not read */
    size_t rows, truth_cap, answer_cap, probs_cap;
    scores scores; /* if there is a truth */
    exec_summary cost;
} variant;

/* Append reports, ended by a newline. `best`: the variant to be marked; NULL: none. */
void try_costs(const variant *v, int n, const variant *best, const classes *c, arena *mem,
               buf *out);
/* How the answers fell, and how often each two variants agree. */
void try_answers(const variant *v, int n, const classes *c, arena *mem, buf *out);
/* The confusion table. `corner` heads its first column. */
void try_confusion(const scores *s, const char *corner, const classes *c, arena *mem, buf *out);
/* The agreement of two columns with these names, and their confusion table. */
void try_agreement(const scores *s, const char *truth, const char *answer, const classes *c,
                   arena *mem, buf *out);

#endif
