/*
 * fuzz_sql.c - any text, parsed and bound over the fixture's catalog, must end in a tree or an
 * error with a place in the text. Also walks it by tokens and looks for its end, as the shell does
 * at every key.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/sql/fixture.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static void walk_tokens(str text) {
    token_class class;
    size_t at = 0;
    while (at < text.n) {
        size_t n = sql_token(text, at, &class);
        check(n > 0 && n <= text.n - at, "a token has a length within the text");
        at += n;
    }
    size_t length;
    bool empty;
    sql_statement_end(text, &length, &empty);
    check(length <= text.n, "a statement ends within the text");
}

/* Words a statement may hold: swapped in for tokens,
 * they reach further into the binder than bytes do. */
static const char *const words[] = {
    "SELECT",
    "*",
    "FROM",
    "reviews",
    "movies",
    "r",
    "m",
    "title",
    "review",
    "stars",
    "year",
    "id",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "1",
    "2.5",
    "'yes'",
    "'x'",
    "NULL",
    "TRUE",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "<",
    "+",
    "||",
    "AND",
    "OR",
    "NOT",
    "IN",
    "EXISTS",
    "(SELECT id FROM movies)",
    "(SELECT max(year) FROM movies m WHERE m.id = movie_id)",
    "count(*)",
    "sum(stars)",
    "LLM('Good?', review)",
    "LLM_PROB(LLM('Good?', review))",
    "LLM('Rate', review) RETURNS INTEGER",
    "CASE WHEN fresh THEN 1 END",
    "coalesce(title, 'a')",
    "DISTINCT",
    "UNION",
    "EXCEPT",
    "JOIN",
    "LEFT JOIN",
    "CROSS JOIN",
    "ON",
    "USING (id)",
    "AS",
    "a",
    "FILTER (WHERE fresh)",
    "VALUES (1, 'a')",
    "WITH a AS (SELECT 1 AS id)",
    "IS NULL",
    "BETWEEN 1 AND 2",
    "LIKE 'a%'",
    "::TEXT",
    "rowid",
    "tones",
    "shots",
    "INSERT INTO",
    "UPDATE",
    "SET",
    "DEFAULT",
    "DESC",
    "NULLS FIRST",
    ".",
    "-",
    ":n",
    "kvasir_settings",
    "OVER (PARTITION BY year ORDER BY id)",
    "OVER w",
    "WINDOW w AS (ORDER BY id)",
    "QUALIFY",
    "RETURNING id",
    "generate_series(1, 9)",
    "WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up)",
    "ON CONFLICT (id) DO UPDATE SET",
    "excluded",
};

static uint32_t draw(uint64_t *state, uint32_t n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

/* The text with some of its tokens replaced, doubled,
 * dropped, or one put in; chosen by the text itself. */
static void mutate(str text, uint64_t *state, buf *out) {
    token_class class;
    for (size_t at = 0, n; at < text.n; at += n) {
        n = sql_token(text, at, &class);
        uint32_t die = class == TOKEN_BLANK ? 99 : draw(state, 40);
        if (die == 0)
            continue;
        if (die <= 2) {
            buf_printf(out, " %s ", words[draw(state, (uint32_t)BASE_COUNT(words))]);
            continue;
        }
        buf_append(out, text.p + at, n);
        if (die == 3)
            buf_append(out, text.p + at, n);
        if (die == 4)
            buf_printf(out, " %s ", words[draw(state, (uint32_t)BASE_COUNT(words))]);
    }
}

static void bind_one(str text, const bind_env *env) {
    arena *mem = arena_new();
    err e = {0};
    sql_stmt *s = NULL;
    buf out = {0};
    if (sql_bind(text, env, mem, &s, &e)) {
        check(e.code != ERR_NONE && e.code != ERR_INTERNAL && e.message[0],
              "a failure says what failed");
        check(e.pos <= (int)text.n && e.pos + e.len <= (int)text.n, "an error is within the text");
        sql_error_caret(text, &e, &out);
    } else if (s->query) {
        rel_print(s->query, &out);
    }
    buf_free(&out);
    arena_free(mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool ready;
    static fixture f;
    if (!ready) {
        fixture_init(&f);
        ready = freopen("/dev/null", "r", stdin) != NULL; /* FROM '-' would wait for it */
    }
    str text = {(const char *)data, size};
    uint64_t state = hash64(data, size, 1);
    walk_tokens(text);
    bind_one(text, &f.env);
    for (int i = 0; i < 4; i++) {
        buf other = {0};
        mutate(text, &state, &other);
        if (other.n)
            bind_one(buf_str(&other), &f.env);
        buf_free(&other);
    }
    return 0;
}
