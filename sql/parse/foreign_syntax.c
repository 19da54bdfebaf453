/*
 * foreign_syntax.c - what people write by habit from other dialects, and how it is written here.
 *
 * Owns hints alone: the parser has stumbled already, and says where.
 */
#include "ast_int.h"
#include "grammar.h"

enum { ANY_CODE = -1 };

/* How the statement begins (NULL: anyhow), the token before (0: none) and its word, the one
 * stumbled over and its word (NULL: any). */
static const struct {
    const char *start;
    int previous;
    const char *word;
    int code;
    const char *at;
    const char *hint;
} habits[] = {
    {NULL, TK_ID, "TOP", TK_NUMBER, NULL,
     "the first rows are LIMIT n, at the end of the statement"},
    {NULL, TK_ID, "DATE", TK_STRING, NULL, "dates are texts: '2024-01-31', or date('2024-01-31')"},
    {NULL, TK_ID, "INTERVAL", ANY_CODE, NULL,
     "a time moves by date(x, '+1 day') or datetime(x, '-2 hours')"},
    {NULL, TK_EQ, NULL, TK_LT, NULL, "less or equal is written <="},
    {NULL, TK_ID, NULL, TK_ARROW, NULL, "greater or equal is written >="},
    {NULL, TK_LIKE, NULL, TK_PERCENT, NULL, "a pattern is a text in single quotes: '%…%'"},
    {NULL, TK_ID, "REGEXP", TK_STRING, NULL,
     "there are no regular expressions: LIKE, ILIKE and GLOB take patterns"},
    {NULL, TK_ID, "RLIKE", TK_STRING, NULL,
     "there are no regular expressions: LIKE, ILIKE and GLOB take patterns"},
    {NULL, TK_ID, "SIMILAR", TK_TO, NULL,
     "there are no regular expressions: LIKE, ILIKE and GLOB take patterns"},
    {NULL, TK_MINUS, NULL, TK_GT, NULL, "there are no JSON operators"},
    {NULL, TK_SLASH, NULL, TK_SLASH, NULL, "INTEGER / INTEGER is whole by itself"},
    {NULL, ANY_CODE, NULL, TK_ID, "SEPARATOR", "write group_concat(x, ', ')"},
    {NULL, ANY_CODE, NULL, TK_ID, "ISNULL", "write IS NULL"},
    {NULL, ANY_CODE, NULL, TK_ID, "NOTNULL", "write IS NOT NULL"},
    {NULL, ANY_CODE, NULL, TK_ID, "FETCH", "the first rows are LIMIT n"},
    {NULL, TK_ID, "FETCH", TK_FIRST, NULL, "the first rows are LIMIT n"},
    {NULL, TK_DISTINCT, NULL, TK_ON, NULL,
     "one row of each: QUALIFY row_number() OVER (PARTITION BY key ORDER BY …) = 1"},
    {NULL, TK_ID, "IGNORE", TK_NULLS, NULL,
     "every row counts: WHERE x IS NOT NULL in a subquery leaves the others out"},
    {NULL, TK_ID, "RESPECT", TK_NULLS, NULL, "every row counts here: leave it out"},
    {NULL, TK_PARTITION, NULL, TK_BY, NULL,
     "a window stands in parentheses: OVER (PARTITION BY …)"},
    {NULL, TK_BY, NULL, TK_ALL, NULL, "give the columns, or their numbers: BY 1, 2"},
    {NULL, TK_ID, "GROUPING", TK_ID, "SETS", "write a GROUP BY for each grouping, with UNION ALL"},
    {NULL, TK_GROUP, NULL, TK_LP, NULL,
     "median(x) is the middle; ORDER BY stands within an aggregate's parentheses"},
    {NULL, TK_EXCEPT, NULL, TK_ALL, NULL,
     "row_number() OVER (PARTITION BY …) as a further column tells equal rows apart"},
    {NULL, TK_INTERSECT, NULL, TK_ALL, NULL,
     "row_number() OVER (PARTITION BY …) as a further column tells equal rows apart"},
    {NULL, TK_ID, "YEAR", TK_FROM, NULL, "a date's year is strftime('%Y', x)"},
    {NULL, TK_ID, "MONTH", TK_FROM, NULL, "a date's month is strftime('%m', x)"},
    {NULL, TK_ID, "DAY", TK_FROM, NULL, "a date's day is strftime('%d', x)"},
    {NULL, TK_STAR, NULL, TK_EXCLUDE, NULL, "list the columns that are wanted"},
    {NULL, TK_STAR, NULL, TK_REPLACE, NULL, "list the columns that are wanted"},
    {NULL, TK_GT, NULL, TK_ALL, NULL, "more than all is more than (SELECT MAX(…) …)"},
    {NULL, TK_LT, NULL, TK_ALL, NULL, "less than all is less than (SELECT MIN(…) …)"},
    {NULL, TK_LP, NULL, TK_SELECT, NULL,
     "a query as a value has parentheses of its own; = ANY (…) is IN (…)"},
    {NULL, TK_ID, NULL, TK_DOT, NULL,
     "a table has no schema before its name; a file stands in single quotes"},
    {NULL, TK_CREATE, NULL, TK_ID, "TEMP",
     "there are no temporary tables: WITH name AS (…), or DROP TABLE later"},
    {NULL, TK_CREATE, NULL, TK_ID, "TEMPORARY",
     "there are no temporary tables: WITH name AS (…), or DROP TABLE later"},
    {NULL, TK_KEY, NULL, TK_ID, "AUTOINCREMENT",
     "an INTEGER PRIMARY KEY numbers its rows by itself"},
    {NULL, TK_CREATE, NULL, TK_ID, "TRIGGER", "there are no triggers"},
    {"CREATE", TK_LP, NULL, TK_ID, NULL, "a type's width is a number; FOREIGN KEY is not offered"},
    {"CREATE", TK_RP, NULL, TK_WHERE, NULL, "an index holds all rows of its table"},
    {"DELETE", ANY_CODE, NULL, TK_LIMIT, NULL, "write WHERE key IN (SELECT key … LIMIT n)"},
    {"DELETE", ANY_CODE, NULL, TK_USING, NULL, "write WHERE column IN (SELECT …)"},
    {NULL, 0, NULL, TK_FROM, NULL, "begin with SELECT * FROM"},
    {NULL, 0, NULL, TK_DESC, NULL,
     ".schema NAME shows a table's columns; SHOW TABLES lists the tables"},
    {NULL, 0, NULL, TK_ID, "DESCRIBE",
     ".schema NAME shows a table's columns; SHOW TABLES lists the tables"},
    {NULL, 0, NULL, TK_ID, "SUMMARIZE",
     "SELECT count(a), count(DISTINCT a), min(a), max(a), avg(a) FROM name says what is in it"},
    {NULL, 0, NULL, TK_ID, "PRAGMA",
     "SET and SHOW are for settings, .schema NAME for a table's columns"},
    {NULL, TK_AS, NULL, TK_STRING, NULL, "a name is quoted with \""},
    {"SHOW", TK_ID, "COLUMNS", TK_FROM, NULL, ".schema NAME shows a table's columns"},
    {NULL, 0, NULL, TK_ID, "PIVOT",
     "sum(x) FILTER (WHERE key = 'a') AS a makes a column of one key"},
    {NULL, 0, NULL, TK_ID, "REINDEX", "every change keeps indexes up to date"},
    {NULL, 0, NULL, TK_ID, "CHECKPOINT", "what is committed is on the disk"},
    {NULL, 0, NULL, TK_ID, "USE", ".open NAME opens another database"},
    {NULL, 0, NULL, TK_ID, "TRUNCATE", "DELETE FROM name empties a table"},
    {NULL, 0, NULL, TK_ID, "VACUUM",
     "free pages are used again by themselves; .backup DIRECTORY makes a compact copy"},
    {NULL, 0, NULL, TK_ID, "ATTACH",
     "one database is open at a time: .open NAME; COPY … TO 'f.csv' carries rows"},
    {NULL, 0, NULL, TK_ID, "MERGE", "write INSERT … ON CONFLICT DO UPDATE"},
    {NULL, 0, NULL, TK_REPLACE, NULL, "write INSERT … ON CONFLICT (key) DO UPDATE SET …"},
    {NULL, TK_INSERT, NULL, TK_OR, NULL,
     "write INSERT INTO … ON CONFLICT DO NOTHING, or DO UPDATE SET …"},
    {"WITH", TK_RP, NULL, TK_UPDATE, NULL,
     "WITH stands in subqueries: UPDATE t SET a = (WITH … SELECT …)"},
    {"WITH", TK_RP, NULL, TK_DELETE, NULL,
     "WITH stands in subqueries: DELETE FROM t WHERE a IN (WITH … SELECT …)"},
    {"DROP", TK_ID, NULL, TK_COMMA, NULL, "DROP takes one name at a time"},
    {"DROP", TK_ID, NULL, TK_ID, "CASCADE", "nothing is dropped along: leave CASCADE out"},
    {NULL, 0, NULL, TK_ID, "START", "a transaction begins with BEGIN"},
    {"BEGIN", ANY_CODE, NULL, TK_ID, "IMMEDIATE",
     "BEGIN stands alone: the first write waits for other writers"},
    {"BEGIN", ANY_CODE, NULL, TK_ID, "EXCLUSIVE",
     "BEGIN stands alone: the first write waits for other writers"},
    {"BEGIN", ANY_CODE, NULL, TK_ID, "DEFERRED",
     "BEGIN stands alone: the first write waits for other writers"},
    {NULL, 0, NULL, TK_ID, "SAVEPOINT",
     "there are no savepoints: an error undoes its own statement alone"},
    {"ROLLBACK", ANY_CODE, NULL, TK_TO, NULL,
     "there are no savepoints: an error undoes its own statement alone"},
    {"COPY", TK_TO, NULL, TK_ID, "STDOUT",
     "a file's name in single quotes; for the screen, .mode csv and SELECT"},
    {"COPY", TK_FROM, NULL, TK_ID, "STDIN",
     "a file's name in single quotes; '-' is standard input"},
    {"CREATE", TK_REPLACE, NULL, TK_TABLE, NULL, "DROP TABLE IF EXISTS name comes before it"},
    {NULL, TK_EXPLAIN, NULL, TK_ID, "QUERY", "EXPLAIN alone shows the plan"},
    {NULL, TK_EXPLAIN, NULL, TK_ID, "VERBOSE", "EXPLAIN alone shows the plan"},
};

static bool is_word(token t, const char *word) {
    return !word || str_equal_nocase(t.text, str_from(word));
}

const char *habit_hint(const parser *p, int code, token at) {
    for (size_t i = 0; i < BASE_COUNT(habits); i++)
        if ((habits[i].previous == ANY_CODE || habits[i].previous == p->previous_code) &&
            (habits[i].code == ANY_CODE || habits[i].code == code) &&
            is_word(p->previous, habits[i].word) && is_word(at, habits[i].at) &&
            is_word(p->first, habits[i].start))
            return habits[i].hint;
    return NULL;
}
