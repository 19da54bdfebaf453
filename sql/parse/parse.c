/*
 * parse.c - the parser's driver: feeds the lexer's tokens to the grammar and reports syntax errors
 * with position and hint.
 *
 * Invariant: only the first error is reported; the parser gets no token after it.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ast_int.h"
#include "grammar.h"

enum { MAX_OPEN_PARENTHESES = AST_MAX_DEPTH };

/* ---- messages -------------------------------------------------------------------------------- */

/* Returns the clause keyword that `word` may misspell (FORM, WEHRE, GRUOP), or NULL. The grammar
 * may have accepted such a word as an alias. */
static const char *clause_nearest(str word) {
    static const char *const clauses[] = {
        "FROM",  "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT",     "JOIN",   "LEFT",
        "INNER", "CROSS", "USING", "UNION", "EXCEPT", "INTERSECT", "OFFSET", "VALUES",
        "ON",    "AND",   "OR",    "SET",   "AS",     "RETURNS",   "FILTER", "BETWEEN",
        "LIKE",  "DESC",  "ASC",   "NULLS", "OVER",   "WINDOW",    "QUALIFY"};
    return str_nearest(word, clauses, BASE_COUNT(clauses));
}

/* Returns the keyword nearest to the word: a keyword that the grammar accepts here; if none is
 * near, a clause keyword; else any keyword. NULL if no keyword is near. */
static const char *nearest(str word, const int *expected, int nexpected) {
    const char *near_ones[256];
    size_t n = 0;
    for (int i = 0; i < nexpected && n < BASE_COUNT(near_ones); i++) {
        const char *name = keyword_name(expected[i]);
        if (name && name[0] >= 'A' && name[0] <= 'Z')
            near_ones[n++] = name;
    }
    const char *found = str_nearest(word, near_ones, n);
    if (!found)
        found = clause_nearest(word);
    return found ? found : keyword_nearest(word);
}

/* Adds a hint such as "expected ON or USING" if at most FEW tokens are possible. Returns true if it
 * added the hint. */
static bool hint_expected(err *e, const int *expected, int nexpected) {
    enum { FEW = 4 };
    const char *words[FEW];
    int n = 0;
    for (int i = 0; i < nexpected; i++) {
        const char *name = keyword_name(expected[i]);
        if (expected[i] == 0)
            name = "the end of the statement";
        if (!name)
            continue;
        if (n == FEW)
            return false;
        words[n++] = name;
    }
    char out[128];
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        const char *join = i == 0 ? "" : i == n - 1 ? " or " : ", ";
        const char *quote = isalpha((unsigned char)words[i][0]) ? "" : "\"";
        int k = snprintf(out + used, sizeof out - used, "%s%s%s%s", join, quote, words[i], quote);
        if (k < 0 || used + (size_t)k >= sizeof out)
            return false;
        used += (size_t)k;
    }
    if (n)
        err_hint(e, "expected %s", out);
    return n > 0;
}

static bool ends_value(int code) {
    return code == TK_ID || code == TK_STRING || code == TK_NUMBER || code == TK_RP;
}

/* Hints at a missing comma between two adjacent values; otherwise at a missing ), if the grammar
 * accepts a ) here. */
static void hint_missing(parser *p, int code, const int *expected, int nexpected) {
    bool closing = false;
    for (int i = 0; i < nexpected; i++)
        closing = closing || expected[i] == TK_RP;
    if (ends_value(p->previous_code) && ends_value(code) && code != TK_RP)
        err_hint(p->error, "a comma may be missing before it");
    else if (closing && code != TK_COMMA)
        err_hint(p->error, "close the open ( with )");
}

/* A word of two letters is near too many keywords; only YB and NO (for BY and ON) are corrected. */
static bool worth_guessing(token t) {
    return t.len > 2 || (t.len == 2 && (str_equal_nocase(t.text, STR("yb")) ||
                                        str_equal_nocase(t.text, STR("no"))));
}

static void hint_keyword_or_expected(parser *p, int code, token at, const int *expected,
                                     int nexpected) {
    bool wants_name = false, keyword = keyword_code(at.text) != 0;
    for (int i = 0; i < nexpected; i++)
        wants_name = wants_name || expected[i] == TK_ID;
    if (p->previous_code == TK_COMMA && keyword)
        err_hint(p->error, "remove the comma before it");
    else if (keyword && wants_name && p->previous_code != TK_ID)
        err_hint(p->error, "%.*s is a keyword; to use it as a name, write \"%.*s\"", at.len,
                 at.text.p, at.len, at.text.p);
    else if (!hint_expected(p->error, expected, nexpected))
        hint_missing(p, code, expected, nexpected);
}

void parser_unexpected(parser *p, int code, token at, const int *expected, int nexpected) {
    if (p->failed)
        return;
    p->failed = true;
    const char *foreign = foreign_syntax_hint(p, code, at);
    if (foreign) {
        err_set_at(p->error, ERR_SYNTAX, at.pos, at.len, "syntax error at \"%.*s\"",
                   (int)BASE_MIN(at.text.n, (size_t)60), at.text.p);
        err_hint(p->error, "%s", foreign);
        return;
    }
    const char *meant = NULL;
    token place = at;
    if (p->previous_code == TK_ID && worth_guessing(p->previous) &&
        (meant = clause_nearest(p->previous.text)) != NULL)
        place = p->previous;
    else if (code == TK_ID && worth_guessing(at))
        meant = nearest(at.text, expected, nexpected);
    /* an unexpected end is reported right after the last token: line breaks may follow it */
    if (code == 0 && !meant)
        err_set_at(p->error, ERR_SYNTAX, p->previous.pos + p->previous.len, 0,
                   "unexpected end of the statement");
    else
        err_set_at(p->error, ERR_SYNTAX, place.pos, place.len, "syntax error at \"%.*s\"",
                   (int)BASE_MIN(place.text.n, (size_t)60), place.text.p);
    if (meant)
        err_hint(p->error, "did you mean %s?", meant);
    else
        hint_keyword_or_expected(p, code, at, expected, nexpected);
}

/* ---- tokens to the grammar ------------------------------------------------------------------- */

static void feed(parser *p, void *machine, int code, token t) {
    if (!p->first.len)
        p->first = t;
    p->last = t;
    p->last_code = code;
    sql_grammar(machine, code, t, p);
    p->before = p->previous;
    p->previous = t;
    p->previous_code = code;
    if (code && code != TK_SEMI)
        p->end = t.pos + t.len;
}

/* Counts open parentheses in *open. Returns true, with an error, if there are too many. */
static bool nested_too_deep(parser *p, int code, token t, int *open) {
    if (code == TK_LP && ++*open > MAX_OPEN_PARENTHESES) {
        parser_fail(p, ERR_LIMIT, t.pos, t.len, "parentheses are nested more than %d deep",
                    MAX_OPEN_PARENTHESES);
        return true;
    }
    if (code == TK_RP && *open > 0)
        --*open;
    return false;
}

/* Returns the code of the next token, skipping blanks and comments. Moves *at past the token. */
static int peek(const parser *p, size_t *at) {
    for (;;) {
        size_t length = 0;
        const char *problem = NULL;
        int code = sql_lex(p->text, *at, &length, &problem);
        *at += length;
        if (code != TK_SPACE && code != TK_COMMENT)
            return code;
    }
}

static bool is_name(int code) {
    return code == TK_ID || code == TK_STRINGNAME ||
           (code > 0 && code < TK_SPACE && sql_grammarFallback(code) == TK_ID);
}

/* True if a condition can begin with this token. */
static bool begins_value(int code) {
    static const int codes[] = {TK_NUMBER, TK_STRING, TK_LP,    TK_NOT,     TK_CASE,
                                TK_CAST,   TK_EXISTS, TK_NULL,  TK_TRUE,    TK_FALSE,
                                TK_LLM,    TK_LEFT,   TK_RIGHT, TK_VARIABLE};
    bool found = is_name(code);
    for (size_t i = 0; i < BASE_COUNT(codes); i++)
        found = found || codes[i] == code;
    return found;
}

/* True if a clause can end with this token. */
static bool ends_clause(int code) {
    return is_name(code) || ends_value(code) || code == TK_NULL || code == TK_TRUE ||
           code == TK_FALSE || code == TK_BLOB || code == TK_VARIABLE;
}

/* True if a number or variable comes next, with or without a ( before it. These cannot follow an
 * alias. */
static bool number_follows(const parser *p, size_t at) {
    int next = peek(p, &at);
    if (next == TK_LP)
        next = peek(p, &at);
    return next == TK_NUMBER || next == TK_VARIABLE;
}

/* True if a subquery in parentheses or a function call comes next. */
static bool table_follows(const parser *p, size_t at) {
    int next = peek(p, &at), then = peek(p, &at);
    if (is_name(next))
        return then == TK_LP;
    return next == TK_LP &&
           (then == TK_SELECT || then == TK_WITH || then == TK_VALUES || then == TK_LP);
}

/* Returns the code of a token in its context. OVER, FILTER, LATERAL, WINDOW and QUALIFY are keywords only
 * between the tokens that their syntax requires, as in sqlite3; elsewhere they are names (and
 * aliases without AS). OFFSET cannot be an alias if a number follows. A name of SQL_LLM_NAMES is one
 * if a ( follows. `at` is the position after the word. */
static int keyword_in_context(const parser *p, int code, str word, size_t at) {
    bool called = p->previous_code == TK_RP;
    if (code == TK_ID && llm_name_find(word) && peek(p, &at) == TK_LP)
        return TK_LLM_NAME;
    if (code == TK_OFFSET)
        return number_follows(p, at) ? TK_OFFSET_NUMBER : code;
    if (code == TK_LATERAL)
        return (p->previous_code == TK_COMMA || p->previous_code == TK_JOIN ||
                p->previous_code == TK_FROM) &&
                       table_follows(p, at)
                   ? code
                   : TK_ID;
    if (code != TK_OVER && code != TK_FILTER && code != TK_WINDOW && code != TK_QUALIFY)
        return code;
    int next = peek(p, &at);
    if (code == TK_QUALIFY)
        return ends_clause(p->previous_code) && begins_value(next) ? code : TK_ID;
    if (code == TK_OVER)
        return called && (next == TK_LP || is_name(next)) ? code : TK_ID;
    if (code == TK_FILTER)
        return called && next == TK_LP ? code : TK_ID;
    return is_name(next) && peek(p, &at) == TK_AS ? code : TK_ID;
}

static void run(parser *p, void *machine) {
    size_t at = 0;
    int open = 0;
    bool ended = false;
    while (!p->failed) {
        size_t length = 0;
        const char *problem = NULL;
        int code = sql_lex(p->text, at, &length, &problem);
        token t = {{p->text.p + at, length}, (int)at, (int)length};
        at += length;
        if (code == TK_SPACE || code == TK_COMMENT)
            continue;
        if (code == TK_ILLEGAL) {
            parser_fail(p, ERR_SYNTAX, t.pos, t.len, "%s", problem);
            if (*t.text.p == ':' && p->previous_code == TK_ID)
                err_hint(p->error,
                         "a name and its type have no colon between them: STRUCT(a TEXT)");
            return;
        }
        if (code && ended && code != TK_SEMI) {
            parser_fail(p, ERR_SYNTAX, t.pos, t.len,
                        "more than one statement: unexpected text after the ;");
            return;
        }
        ended = ended || code == TK_SEMI;
        if (nested_too_deep(p, code, t, &open))
            return;
        code = keyword_in_context(p, code, t.text, at);
        feed(p, machine, code, t);
        if (code == 0)
            return;
    }
}

/* Parses the text as if the token `first` preceded it: TK_EXPRESSION for an expression, 0 (no
 * token) for a statement. */
static int parse(str text, arena *mem, int first, parser *p, err *e) {
    *p = (parser){.mem = mem,
                  .text = text,
                  .error = e,
                  .last = {{NULL, 0}, -1, 0},
                  .previous = {{NULL, 0}, -1, 0}};
    if (text.n > (size_t)INT32_MAX / 2)
        return err_set(e, ERR_LIMIT, "the statement is longer than 1 GB");
    void *machine = sql_grammarAlloc(malloc);
    if (!machine)
        return err_set(e, ERR_FULL, "not enough memory to parse the statement");
    if (first)
        feed(p, machine, first, (token){{text.p, 0}, 0, 0});
    run(p, machine);
    sql_grammarFree(machine, free);
    if (p->failed)
        return (int)e->code;
    if (!p->result)
        return err_set_at(e, ERR_SYNTAX, 0, 0, "the statement is empty");
    return 0;
}

static bool is_analyzed(const ast *explain) {
    bool on = explain->analyze;
    for (int i = 0; i < explain->items.n; i++) {
        const copy_option *o = explain->items.items[i];
        if (str_equal_nocase(o->name.name, STR("ANALYZE")))
            option_switch(o, &on);
    }
    return on;
}

static bool writes(const ast *a) {
    switch (a->kind) {
    case AST_NONE:
    case AST_QUERY:
    case AST_COPY_TO:
    case AST_SIMPLE:
    case AST_SET:
    case AST_RESET:
    case AST_SHOW:
    case AST_CLEAR_CACHE:
    case AST_WARM:
    case AST_UNPIN:
        return false;
    case AST_EXPLAIN:
        return is_analyzed(a) && writes(a->inner);
    case AST_INSERT:
    case AST_UPDATE:
    case AST_DELETE:
    case AST_CREATE_TABLE:
    case AST_CREATE_INDEX:
    case AST_CREATE_VIEW:
    case AST_CREATE_MODEL:
    case AST_DROP:
    case AST_ADD_COLUMN:
    case AST_DROP_COLUMN:
    case AST_RENAME_TABLE:
    case AST_RENAME_COLUMN:
    case AST_COPY_FROM:
    case AST_ANALYZE:
        return true;
    }
    return true;
}

#ifdef KVASIR_TEST_MODELS
atomic_uint sql_parsed;
#endif

int sql_parse(str text, arena *mem, sql_tree *out, err *e) {
    parser p;
#ifdef KVASIR_TEST_MODELS
    sql_parsed++;
#endif
    err_clear(e);
    int status = parse(text, mem, 0, &p, e);
    if (status)
        return status;
    int start = p.first.pos;
    *out = (sql_tree){.text = text,
                      .statement = {text.p + start, (size_t)(p.end - start)},
                      .ast = p.result,
                      .writes = writes(p.result),
                      .is_query = p.result->kind == AST_QUERY,
                      .calls_model = p.calls_model && p.result->kind != AST_CREATE_VIEW,
                      .mentions_rowid = p.mentions_rowid};
    return 0;
}

int sql_parse_expr(str text, arena *mem, node **out, err *e) {
    parser p;
    int status = parse(text, mem, TK_EXPRESSION, &p, e);
    *out = status ? NULL : p.result->value;
    return status;
}
