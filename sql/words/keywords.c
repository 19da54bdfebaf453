/*
 * keywords.c - the table of keywords, for the lexer, completion, hints and messages.
 *
 * Invariant: the table is sorted by name (checked by tests/unit/test_sql_text.c), and each word is
 * a token of grammar.y (checked by the compiler).
 */
#include <ctype.h>
#include <string.h>

#include "grammar.h"
#include "words_int.h"

/* X(word): its token code is TK_<word>. */
/* clang-format off */
#define SQL_KEYWORDS(X) \
    X(ADD) X(ALL) X(ALTER) X(ANALYZE) X(AND) X(ANSWERS) X(AS) X(ASC) X(BEGIN) X(BETWEEN) X(BY) \
    X(CACHE) X(CASE) X(CAST) X(CHECK) X(CLEAR) X(COLLATE) X(COLUMN) X(COMMIT) X(CONFLICT) \
    X(CONSTRAINT) X(COPY) X(CREATE) X(CROSS) X(CURRENT) X(DEFAULT) X(DELETE) X(DESC) X(DISTINCT) \
    X(DO) X(DROP) X(ELSE) X(END) X(ERROR) X(ESCAPE) X(EXCEPT) X(EXCLUDE) X(EXISTS) X(EXPLAIN) X(FALSE) \
    X(FILTER) X(FIRST) X(FOLLOWING) X(FOR) X(FROM) X(FULL) X(GLOB) X(GROUP) X(GROUPS) X(HAVING) \
    X(IF) X(ILIKE) X(IN) X(INDEX) X(INNER) X(INSERT) X(INTERSECT) X(INTO) X(IS) X(JOIN) X(KEY) \
    X(KV) X(LAST) X(LATERAL) X(LEFT) X(LIKE) X(LIMIT) X(LLM) X(MATERIALIZED) X(MODEL) X(NATURAL) \
    X(NO) X(NOT) X(NOTHING) X(NULL) X(NULLS) X(OFFSET) X(ON) X(OR) X(ORDER) X(OTHERS) X(OUTER) \
    X(OVER) X(PARTITION) X(PIN) X(PRECEDING) X(PRIMARY) X(QUALIFY) X(RANGE) X(RECURSIVE) \
    X(REFERENCES) X(REGEXP) X(RENAME) X(REPLACE) X(RESET) X(RETURNING) X(RETURNS) X(RIGHT) X(ROLLBACK) \
    X(ROW) X(ROWS) X(SELECT) X(SET) X(SHOW) X(STRUCT) X(TABLE) X(THEN) X(TIES) X(TO) X(TRANSACTION) X(TRUE) \
    X(UNBOUNDED) X(UNION) X(UNIQUE) X(UNPIN) X(UPDATE) X(USING) X(VALUES) X(VIEW) X(WARM) X(WHEN) \
    X(WHERE) X(WINDOW) X(WITH)
/* clang-format on */

#define KEYWORD_NAME(word) #word,
static const char *const names[] = {SQL_KEYWORDS(KEYWORD_NAME)};
#define KEYWORD_CODE(word) TK_##word,
static const int codes[] = {SQL_KEYWORDS(KEYWORD_CODE)};

static const struct {
    int code;
    const char *name;
} signs[] = {
    {TK_EQ, "="},          {TK_NE, "<>"},
    {TK_LT, "<"},          {TK_LE, "<="},
    {TK_GT, ">"},          {TK_GE, ">="},
    {TK_PLUS, "+"},        {TK_MINUS, "-"},
    {TK_STAR, "*"},        {TK_SLASH, "/"},
    {TK_PERCENT, "%"},     {TK_CONCAT, "||"},
    {TK_CAST_TO, "::"},    {TK_LP, "("},
    {TK_RP, ")"},          {TK_COMMA, ","},
    {TK_DOT, "."},         {TK_SEMI, ";"},
    {TK_ARROW, "=>"},      {TK_ID, "a name"},
    {TK_STRING, "a text"}, {TK_NUMBER, "a number"},
    {TK_BLOB, "a blob"},   {TK_VARIABLE, "a :variable"},
};

int keyword_code(str word) {
    char upper[16];
    if (word.n >= sizeof upper)
        return 0;
    for (size_t i = 0; i < word.n; i++)
        upper[i] = (char)(word.p[i] >= 'a' && word.p[i] <= 'z' ? word.p[i] - 32 : word.p[i]);
    upper[word.n] = 0;
    size_t low = 0, high = BASE_COUNT(names);
    while (low < high) {
        size_t middle = (low + high) / 2;
        int c = strcmp(upper, names[middle]);
        if (c == 0)
            return codes[middle];
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
}

const char *keyword_name(int code) {
    for (size_t i = 0; i < BASE_COUNT(codes); i++)
        if (codes[i] == code)
            return names[i];
    for (size_t i = 0; i < BASE_COUNT(signs); i++)
        if (signs[i].code == code)
            return signs[i].name;
    return NULL;
}

bool keyword_is_operator(int code) {
    for (size_t i = 0; i < BASE_COUNT(signs); i++)
        if (signs[i].code == code)
            return code != TK_ID && code != TK_STRING && code != TK_NUMBER && code != TK_BLOB &&
                   code != TK_VARIABLE;
    return false;
}

const char *keyword_nearest(str word) {
    return str_nearest(word, names, BASE_COUNT(names));
}

const char *const *sql_keywords(size_t *count) {
    *count = BASE_COUNT(names);
    return names;
}

void sql_print_name(buf *out, str name) {
    bool plain = name.n > 0 && !isdigit((unsigned char)name.p[0]);
    for (size_t k = 0; k < name.n && plain; k++)
        plain = isalnum((unsigned char)name.p[k]) || name.p[k] == '_';
    for (size_t k = 0; k < BASE_COUNT(names) && plain; k++)
        plain = !str_equal_nocase(name, str_from(names[k]));
    if (plain) {
        buf_append_str(out, name);
        return;
    }
    buf_append_char(out, '"');
    for (size_t k = 0; k < name.n; k++) {
        if (name.p[k] == '"')
            buf_append_char(out, '"');
        buf_append_char(out, name.p[k]);
    }
    buf_append_char(out, '"');
}
