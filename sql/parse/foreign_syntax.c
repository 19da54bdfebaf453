/*
 * foreign_syntax.c - hints for syntax of other SQL dialects: what to write here instead.
 *
 * It only chooses the hint; the parser reports the syntax error and its position.
 */
#include "ast_int.h"
#include "grammar.h"

enum { ANY_CODE = -1 };

static const struct {
    const char *start; /* first word of the statement; NULL: any */
    int previous;      /* code of the token before the unexpected one; 0: none is before it */
    const char *word;  /* text of the token before the unexpected one; NULL: any */
    int code;          /* code of the unexpected token */
    const char *at;    /* text of the unexpected token; NULL: any */
    const char *hint;
} patterns[] = {
    {NULL, TK_ID, "TOP", TK_NUMBER, NULL, "write LIMIT n at the end of the statement"},
    {NULL, TK_ID, "DATE", TK_STRING, NULL,
     "dates are texts: write '2024-01-31' or date('2024-01-31')"},
    {NULL, TK_ID, "INTERVAL", ANY_CODE, NULL, "write date(x, '+1 day') or datetime(x, '-2 hours')"},
    {NULL, TK_EQ, NULL, TK_LT, NULL, "write <="},
    {NULL, TK_ID, NULL, TK_ARROW, NULL, "write >="},
    {NULL, TK_LIKE, NULL, TK_PERCENT, NULL, "write the pattern in single quotes: '%…%'"},
    {NULL, TK_ID, "RLIKE", TK_STRING, NULL, "write x REGEXP 'pattern'"},
    {NULL, TK_ID, "SIMILAR", TK_TO, NULL,
     "write x REGEXP '^(pattern)$', with .* for % and . for _, or LIKE"},
    {NULL, TK_MINUS, NULL, TK_GT, NULL, "JSON operators are not supported"},
    {NULL, TK_NULL, NULL, TK_ON, NULL, "remove the comma before NULL: LLM('…', x NULL ON ERROR)"},
    {NULL, TK_ERROR, NULL, TK_ON, NULL,
     "remove the comma before ERROR: LLM('…', x ERROR ON ERROR)"},
    {NULL, TK_DEFAULT, NULL, TK_ID, NULL, "write a literal: DEFAULT 'unknown' ON ERROR"},
    {NULL, TK_RP, NULL, TK_NULL, NULL,
     "in a call it stands before the ): LLM('…', x NULL ON ERROR)"},
    {NULL, TK_RETURNS, NULL, TK_TABLE, NULL, "write RETURNS STRUCT(name TYPE, …)"},
    {NULL, TK_STRUCT, NULL, ANY_CODE, NULL,
     "list its fields in parentheses: RETURNS STRUCT(name TYPE, …)"},
    {NULL, TK_RETURNS, NULL, TK_ID, NULL,
     "only LLM() has RETURNS; what AI_FILTER() and the like return is fixed"},
    {NULL, TK_ARROW, NULL, TK_TEXT_LIST, NULL,
     "write the list without the name: AI_CLASSIFY(x, ['a', 'b'])"},
    {NULL, TK_ID, "ARRAY", TK_TEXT_LIST, NULL,
     "write the list without ARRAY: AI_CLASSIFY(x, ['a', 'b'])"},
    {NULL, ANY_CODE, NULL, TK_TEXT_LIST, NULL,
     "lists are not supported; write one row for each value, as in VALUES (1), (2), or x IN (1, "
     "2)"},
    {NULL, TK_SLASH, NULL, TK_SLASH, NULL, "write /: INTEGER / INTEGER is an integer division"},
    {NULL, ANY_CODE, NULL, TK_ID, "SEPARATOR", "write group_concat(x, ', ')"},
    {NULL, ANY_CODE, NULL, TK_ID, "ISNULL", "write IS NULL"},
    {NULL, ANY_CODE, NULL, TK_ID, "NOTNULL", "write IS NOT NULL"},
    {NULL, ANY_CODE, NULL, TK_ID, "FETCH", "write LIMIT n"},
    {NULL, TK_ID, "FETCH", TK_FIRST, NULL, "write LIMIT n"},
    {NULL, TK_DISTINCT, NULL, TK_ON, NULL,
     "for one row per key, use QUALIFY row_number() OVER (PARTITION BY key ORDER BY …) = 1"},
    {NULL, TK_ID, "IGNORE", TK_NULLS, NULL,
     "IGNORE NULLS is not supported; filter with WHERE x IS NOT NULL in a subquery"},
    {NULL, TK_ID, "RESPECT", TK_NULLS, NULL, "remove RESPECT NULLS; it is the default"},
    {NULL, TK_PARTITION, NULL, TK_BY, NULL, "put the window in parentheses: OVER (PARTITION BY …)"},
    {NULL, TK_BY, NULL, TK_ALL, NULL, "list the columns or their numbers: BY 1, 2"},
    {NULL, TK_ID, "GROUPING", TK_ID, "SETS",
     "write one GROUP BY query per grouping and combine them with UNION ALL"},
    {NULL, TK_GROUP, NULL, TK_LP, NULL,
     "use median(x) for the middle value; an aggregate's ORDER BY goes inside its parentheses"},
    {NULL, TK_EXCEPT, NULL, TK_ALL, NULL,
     "to keep duplicates, add row_number() OVER (PARTITION BY …) as a column on both sides"},
    {NULL, TK_INTERSECT, NULL, TK_ALL, NULL,
     "to keep duplicates, add row_number() OVER (PARTITION BY …) as a column on both sides"},
    {NULL, TK_ID, "YEAR", TK_FROM, NULL, "write strftime('%Y', x)"},
    {NULL, TK_ID, "MONTH", TK_FROM, NULL, "write strftime('%m', x)"},
    {NULL, TK_ID, "DAY", TK_FROM, NULL, "write strftime('%d', x)"},
    {NULL, TK_STAR, NULL, TK_EXCLUDE, NULL, "list the columns instead"},
    {NULL, TK_STAR, NULL, TK_REPLACE, NULL, "list the columns instead"},
    {NULL, TK_GT, NULL, TK_ALL, NULL, "write > (SELECT max(…) …)"},
    {NULL, TK_LT, NULL, TK_ALL, NULL, "write < (SELECT min(…) …)"},
    {NULL, TK_ID, "MATCH", TK_STRING, NULL,
     "there is no full-text index; write x ILIKE '%word%' or x REGEXP '(?i)\\bword\\b'"},
    {NULL, ANY_CODE, NULL, TK_ID, "MATCH",
     "there is no full-text index; write x ILIKE '%word%' or x REGEXP '(?i)\\bword\\b'"},
    {NULL, TK_LP, NULL, TK_SELECT, NULL,
     "put the subquery in its own parentheses: f((SELECT …)); for = ANY (…) write IN (…); for "
     "ENUM(SELECT …) write LLM('…', x, labels => t) RETURNS ENUM"},
    {NULL, TK_ID, NULL, TK_DOT, NULL,
     "write a table name without a schema, a file name in single quotes"},
    {NULL, TK_CREATE, NULL, TK_ID, "TEMP",
     "temporary tables are not supported; use WITH name AS (…), or CREATE TABLE and DROP TABLE"},
    {NULL, TK_CREATE, NULL, TK_ID, "TEMPORARY",
     "temporary tables are not supported; use WITH name AS (…), or CREATE TABLE and DROP TABLE"},
    {NULL, TK_KEY, NULL, TK_ID, "AUTOINCREMENT",
     "remove AUTOINCREMENT; an INTEGER PRIMARY KEY is numbered automatically"},
    {NULL, TK_CREATE, NULL, TK_ID, "TRIGGER", "triggers are not supported"},
    {"CREATE", TK_LP, NULL, TK_ID, NULL,
     "a type's width must be a number; foreign keys are not supported"},
    {"CREATE", TK_RP, NULL, TK_WHERE, NULL, "partial indexes are not supported; remove WHERE"},
    {"DELETE", ANY_CODE, NULL, TK_LIMIT, NULL, "write WHERE key IN (SELECT key … LIMIT n)"},
    {"DELETE", ANY_CODE, NULL, TK_USING, NULL, "write WHERE column IN (SELECT …)"},
    {NULL, 0, NULL, TK_FROM, NULL, "write SELECT * FROM …"},
    {NULL, 0, NULL, TK_DESC, NULL,
     ".schema NAME shows a table's columns; SHOW TABLES lists the tables"},
    {NULL, 0, NULL, TK_ID, "DESCRIBE",
     ".schema NAME shows a table's columns; SHOW TABLES lists the tables"},
    {NULL, 0, NULL, TK_ID, "SUMMARIZE",
     "write SELECT count(a), count(DISTINCT a), min(a), max(a), avg(a) FROM name"},
    {NULL, 0, NULL, TK_ID, "PRAGMA",
     "use SET and SHOW for settings, .schema NAME for a table's columns, .check for damage"},
    {NULL, TK_AS, NULL, TK_STRING, NULL, "quote a name with \""},
    {"SHOW", TK_ID, "COLUMNS", TK_FROM, NULL, ".schema NAME shows a table's columns"},
    {NULL, 0, NULL, TK_ID, "PIVOT",
     "write sum(x) FILTER (WHERE key = 'a') AS a, one such column per key"},
    {NULL, 0, NULL, TK_ID, "REINDEX", "not needed: indexes are always up to date"},
    {NULL, 0, NULL, TK_ID, "CHECKPOINT", "not needed: committed changes are on disk"},
    {NULL, 0, NULL, TK_ID, "USE", ".open NAME opens another database"},
    {NULL, 0, NULL, TK_ID, "TRUNCATE", "write DELETE FROM name"},
    {NULL, 0, NULL, TK_ID, "VACUUM",
     "not needed: free pages are reused; .backup DIRECTORY makes a compact copy"},
    {NULL, 0, NULL, TK_ID, "ATTACH",
     "only one database can be open; switch with .open NAME, copy rows with COPY … TO 'f.csv'"},
    {NULL, 0, NULL, TK_ID, "MERGE", "write INSERT … ON CONFLICT DO UPDATE"},
    {NULL, 0, NULL, TK_REPLACE, NULL, "write INSERT … ON CONFLICT (key) DO UPDATE SET …"},
    {NULL, TK_INSERT, NULL, TK_OR, NULL,
     "write INSERT INTO … ON CONFLICT DO NOTHING, or DO UPDATE SET …"},
    {"WITH", TK_RP, NULL, TK_UPDATE, NULL,
     "put WITH into a subquery: UPDATE t SET a = (WITH … SELECT …)"},
    {"WITH", TK_RP, NULL, TK_DELETE, NULL,
     "put WITH into a subquery: DELETE FROM t WHERE a IN (WITH … SELECT …)"},
    {"DROP", TK_ID, NULL, TK_COMMA, NULL, "write one DROP per name"},
    {"DROP", TK_ID, NULL, TK_ID, "CASCADE", "remove CASCADE; dependent objects are not dropped"},
    {NULL, 0, NULL, TK_ID, "START", "write BEGIN"},
    {"BEGIN", ANY_CODE, NULL, TK_ID, "IMMEDIATE",
     "write BEGIN alone; the first write waits for other writers"},
    {"BEGIN", ANY_CODE, NULL, TK_ID, "EXCLUSIVE",
     "write BEGIN alone; the first write waits for other writers"},
    {"BEGIN", ANY_CODE, NULL, TK_ID, "DEFERRED",
     "write BEGIN alone; the first write waits for other writers"},
    {NULL, 0, NULL, TK_ID, "SAVEPOINT",
     "savepoints are not supported; an error undoes only its own statement"},
    {"ROLLBACK", ANY_CODE, NULL, TK_TO, NULL,
     "savepoints are not supported; an error undoes only its own statement"},
    {"COPY", TK_TO, NULL, TK_ID, "STDOUT",
     "write a file name in single quotes; to print CSV, use .mode csv and SELECT"},
    {"COPY", TK_FROM, NULL, TK_ID, "STDIN",
     "write a file name in single quotes; '-' is standard input"},
    {"CREATE", TK_REPLACE, NULL, TK_TABLE, NULL, "write DROP TABLE IF EXISTS name first"},
    {NULL, TK_EXPLAIN, NULL, TK_ID, "QUERY", "write EXPLAIN alone"},
    {NULL, TK_EXPLAIN, NULL, TK_ID, "VERBOSE", "write EXPLAIN alone"},
};

static bool is_word(token t, const char *word) {
    return !word || str_equal_nocase(t.text, str_from(word));
}

const char *foreign_syntax_hint(const parser *p, int code, token at) {
    if (code == TK_RP && p->previous_code == TK_LP && is_word(p->before, "STRUCT"))
        return "name its fields: STRUCT(mood TEXT, …)";
    if (code == TK_LP && is_word(p->before, "."))
        return "function names have no dot: AI.IF is AI_FILTER, AI.CLASSIFY is AI_CLASSIFY, "
               "AI.SCORE is AI_SCORE, AI.GENERATE is AI_COMPLETE";
    for (size_t i = 0; i < BASE_COUNT(patterns); i++)
        if ((patterns[i].previous == ANY_CODE || patterns[i].previous == p->previous_code) &&
            (patterns[i].code == ANY_CODE || patterns[i].code == code) &&
            is_word(p->previous, patterns[i].word) && is_word(at, patterns[i].at) &&
            is_word(p->first, patterns[i].start))
            return patterns[i].hint;
    return NULL;
}
