/*
 * sql_mutate_int.h - statements like a given one, for the fuzzers: its tokens replaced, doubled,
 * dropped or joined by words of the dialect.
 */
#ifndef KVASIR_SQL_MUTATE_INT_H
#define KVASIR_SQL_MUTATE_INT_H

#include "sql/sql.h"

/* Words a statement may hold: swapped in for tokens,
 * they reach further into the binder than bytes do. */
static const char *const sql_words[] = {
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
    "LLM_PROB(LLM('Good?', review), 'yes')",
    "LLM_MEAN(LLM('Good?', review) RETURNS INTEGER BETWEEN 1 AND 5)",
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

static inline uint32_t sql_draw(uint64_t *state, uint32_t n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

/* The text with some of its tokens replaced, doubled,
 * dropped, or one put in; chosen by the text itself. */
static inline void sql_mutate(str text, uint64_t *state, buf *out) {
    token_class class;
    for (size_t at = 0, n; at < text.n; at += n) {
        n = sql_token(text, at, &class);
        uint32_t die = class == TOKEN_BLANK ? 99 : sql_draw(state, 40);
        if (die == 0)
            continue;
        if (die <= 2) {
            buf_printf(out, " %s ", sql_words[sql_draw(state, (uint32_t)BASE_COUNT(sql_words))]);
            continue;
        }
        buf_append(out, text.p + at, n);
        if (die == 3)
            buf_append(out, text.p + at, n);
        if (die == 4)
            buf_printf(out, " %s ", sql_words[sql_draw(state, (uint32_t)BASE_COUNT(sql_words))]);
    }
}

#endif
