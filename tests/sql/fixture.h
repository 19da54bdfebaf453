/* fixture.h - a small fixed catalog in memory, for tests and the fuzzer of sql/. */
#ifndef SQL_FIXTURE_H
#define SQL_FIXTURE_H

#include "sql/sql.h"

/* Everything is static but `settings`, which fixture_free frees. */
typedef struct fixture {
    settings settings;
    bind_env env;
} fixture;

void fixture_init(fixture *f);
void fixture_free(fixture *f);

#endif
