/*
 * exec_random_int.h - the random tests' database and the values of its tables.
 */
#ifndef KVASIR_EXEC_RANDOM_INT_H
#define KVASIR_EXEC_RANDOM_INT_H

#include "exec_answer_int.h"

static const char *const texts[] = {
    "'red'", "'red deer'", "'red deer run'", "''", "'the quick brown fox'", "NULL"};
static const char *const numbers[] = {"-1", "0", "1", "2", "3", "NULL"};
enum { DOMAIN = 6 };

/* Opens a database in memory that has the model `hashing` and the table `few`, for the questions'
 * examples. */
static inline db *open_random_db(void) {
    static const char *const setup =
        "CREATE MODEL hashing FROM 'test:hash'\nSET model = 'hashing'\n"
        "CREATE TABLE few (f TEXT, g TEXT, answer TEXT)\nINSERT INTO few VALUES ('red', 'deer', "
        "'x'), ('fox', NULL, 'y')\n";
    db_options options = {.path = NULL};
    db *d;
    err e;
    if (db_open(&options, &d, &e))
        fail_msg("%s", e.message);
    run_lines(d, str_from(setup));
    return d;
}

#endif
