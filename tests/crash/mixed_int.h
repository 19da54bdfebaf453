/*
 * mixed_int.h - the parts of crash_mixed: a writer's endless script, the points at which a writer
 * dies, what a database holds.
 *
 * Invariant: a statement of a script depends on nothing but seed, writer and number, so that the
 * writer and its judge make the same ones apart. Texts are appended to a buf of the caller's.
 */
#ifndef MIXED_INT_H
#define MIXED_INT_H

#include "exec/exec.h"

/* ---- mixed_script.c: what a writer does ------------------------------------------------------ */

/* Statements come in blocks of BLOCK. The first makes the writer's tables; each later one is a
 * transaction, from BEGIN to COMMIT or ROLLBACK, or BLOCK statements outside of transactions. */
enum { BLOCK = 8 };

typedef struct script {
    uint64_t seed;
    int writer;        /* its tables are w<writer>_*; all writers add rows to the table `shared` */
    const char *dir;   /* of the files that COPY reads and writes */
    const char *files; /* prefix of those it writes */
} script;

void script_statement(const script *s, int64_t number, buf *out);
enum { SCRIPT_FILES = 2 };
/* Appends the path of file i that COPY TO writes. */
void script_file(const script *s, int i, buf *out);
/* Makes the files that COPY FROM reads. */
void script_make_inputs(const char *dir);

/* ---- mixed_points.c: when a writer dies ------------------------------------------------------ */

/* SIGKILL at the nth call, from now on and counted over all threads, of a function that changes a
 * file or writes to a pipe. */
typedef enum point { POINT_BEFORE, POINT_AFTER, POINT_WITHIN, POINTS } point;
void point_arm(int nth, point where);

/* ---- mixed_contents.c: what is there --------------------------------------------------------- */

/* Runs a statement and appends its rows, a line each, to `rows` (NULL: none are wanted). Returns the
 * error's code or 0; *changes as stmt_changes, 0 on an error. */
int run_statement(db *d, str text, buf *rows, int64_t *changes);
/* Appends everything of a writer: its objects, all rows of its tables and views, the number of its
 * rows in `shared`, and answers of the model on a sample of its rows. */
void contents_append(db *d, int writer, buf *out);
/* Checks every table of a database: that its rows, each of its indexes, and the number of its rows
 * agree, that the indexes are in order, and that its statistics can be read. */
void contents_check(const char *database);
/* Checks that the ids of `shared` are 1, 2, 3, … */
void contents_check_shared(db *d);

#endif
