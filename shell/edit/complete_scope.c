/*
 * complete_scope.c - reads an unfinished statement for completion: tokens, parentheses, tables and
 * aliases on both sides of the cursor, and the clause the cursor is in.
 *
 * Invariant: scope_read accepts any text and skips what it cannot parse.
 */
#include <string.h>

#include "complete_int.h"
#include "storage/containers.h"

str scope_unquote(str name) {
    if (name.n >= 2 && (name.p[0] == '"' || name.p[0] == '`') && name.p[name.n - 1] == name.p[0])
        return (str){name.p + 1, name.n - 2};
    return name;
}

bool scope_sees(const scope *s, int from_group, int table_group) {
    for (int g = from_group; g >= 0; g = s->parents[g])
        if (g == table_group)
            return true;
    return false;
}

bool token_in(const scope_token *t, const char *words) {
    for (str rest = str_from(words); rest.n && t->class != TOKEN_STRING;)
        if (str_equal_nocase(t->text, str_split_next(&rest, ' ')))
            return true;
    return false;
}

static bool is_word(token_class class) {
    return class == TOKEN_NAME || class == TOKEN_KEYWORD;
}

/* If the cursor is in the token, sets s->start to the start of the word, or sets in_string or
 * in_comment. */
static void place_cursor(scope *s, token_class class, size_t at, size_t n) {
    if (s->cursor <= at || s->cursor > at + n)
        return;
    bool inside = s->cursor < at + n;
    bool open = n == 1 || s->text.p[at + n - 1] != s->text.p[at];
    if ((class == TOKEN_STRING || class == TOKEN_BAD) && s->text.p[at] == '\'' &&
        (inside || open)) {
        s->in_string = true;
        s->string_start = at + 1;
    } else if (class == TOKEN_COMMENT && (inside || s->text.p[at] == '-')) {
        s->in_comment = true;
    } else if (is_word(class) || (class == TOKEN_BAD && s->text.p[at] == '"')) {
        s->start = at;
    }
}

/* Reads the tokens of the statement around the cursor, from the previous `;` to the next one. */
static void read_tokens(scope *s, arena *a) {
    int cap = 0, group = 0, groups_cap = 0;
    ARENA_PUSH(a, s->parents, s->ngroups, groups_cap, -1);
    s->start = s->cursor;
    token_class class;
    for (size_t at = 0, n; at < s->text.n && (n = sql_token(s->text, at, &class)) > 0; at += n) {
        place_cursor(s, class, at, n);
        if (class == TOKEN_BLANK || class == TOKEN_COMMENT)
            continue;
        str word = {s->text.p + at, n};
        if (str_equal(word, STR(";"))) {
            if (at >= s->cursor)
                break;
            s->ntokens = s->before = 0;
            s->ngroups = 1;
            group = s->group = 0;
            continue;
        }
        if (str_equal(word, STR(")")) && group > 0)
            group = s->parents[group];
        scope_token token = {class, word, group, s->ngroups};
        ARENA_PUSH(a, s->tokens, s->ntokens, cap, token);
        if (str_equal(word, STR("("))) {
            ARENA_PUSH(a, s->parents, s->ngroups, groups_cap, group);
            group = token.opens;
        }
        if (at + n <= s->start) {
            s->before = s->ntokens;
            s->group = group;
        }
    }
    if (s->start < s->cursor && s->in_string)
        s->start = s->cursor;
}

const scope_token *scope_token_at(const scope *s, int i) {
    static const scope_token none = {TOKEN_BLANK, {"", 0}, -1, -1};
    return i >= 0 && i < s->ntokens ? &s->tokens[i] : &none;
}

/* Returns the alias in `[AS] alias` at token i; `otherwise` if there is no alias. */
static str read_alias(const scope *s, int i, str otherwise) {
    if (token_is(scope_token_at(s, i), "AS"))
        i++;
    const scope_token *t = scope_token_at(s, i);
    bool under_cursor = t->text.p == s->text.p + s->start && s->start < s->cursor;
    return t->class == TOKEN_NAME && !under_cursor ? scope_unquote(t->text) : otherwise;
}

static const char opens_tables[] = "FROM JOIN INTO UPDATE WARM PIN UNPIN";
static const char closes_tables[] = "WHERE GROUP ORDER HAVING LIMIT SET ON USING SELECT VALUES "
                                    "UNION EXCEPT INTERSECT OFFSET RETURNING QUALIFY WINDOW";

static int matching_close(const scope *s, int open) {
    int i = open + 1;
    while (i < s->ntokens &&
           !(token_is(&s->tokens[i], ")") && s->tokens[i].group == s->tokens[open].group))
        i++;
    return i;
}

/* Returns the ( of STRUCT in LLM(…) RETURNS STRUCT(…) at token i, or -1. */
static int open_of_struct(const scope *s, int i) {
    if (!token_is(scope_token_at(s, i), "LLM") || !token_is(scope_token_at(s, i + 1), "("))
        return -1;
    int end = matching_close(s, i + 1);
    bool is_struct = token_is(scope_token_at(s, end + 1), "RETURNS") &&
                     token_is(scope_token_at(s, end + 2), "STRUCT") &&
                     token_is(scope_token_at(s, end + 3), "(");
    return is_struct ? end + 3 : -1;
}

/* Reads the tables of every FROM list of the statement, and its CTEs. */
static void read_tables(scope *s, arena *a) {
    int cap = 0;
    bool *in_list = ARENA_ARRAY(a, bool, s->ngroups + 1);
    bool expect = false;
    for (int i = 0; i < s->ntokens; i++) {
        const scope_token *t = &s->tokens[i];
        if (i == s->before)
            s->expects_table = expect;
        if (t->class == TOKEN_KEYWORD && token_in(t, opens_tables)) {
            in_list[t->group] = token_is(t, "FROM") || token_is(t, "JOIN");
            expect = true;
        } else if (t->class == TOKEN_KEYWORD && token_in(t, closes_tables)) {
            in_list[t->group] = expect = false;
        } else if (token_is(t, ",")) {
            expect = in_list[t->group];
        } else if (expect && token_is(t, "(")) {
            int end = matching_close(s, i);
            str alias = read_alias(s, end + 1, (str){"", 0});
            ARENA_PUSH(a, s->tables, s->ntables, cap,
                       ((scope_table){alias, alias, t->group, t->opens}));
            expect = false;
        } else if (expect && open_of_struct(s, i) >= 0) {
            int open = open_of_struct(s, i);
            str alias = read_alias(s, matching_close(s, open) + 1, (str){"", 0});
            ARENA_PUSH(a, s->tables, s->ntables, cap,
                       ((scope_table){alias, alias, t->group, s->tokens[open].opens}));
            expect = false;
        } else if (expect && t->class != TOKEN_OPERATOR) {
            str name = scope_unquote(t->text);
            bool typed = t->text.p == s->text.p + s->start && s->start < s->cursor;
            if (!typed && t->class != TOKEN_STRING)
                ARENA_PUSH(a, s->tables, s->ntables, cap,
                           ((scope_table){name, read_alias(s, i + 1, name), t->group, -1}));
            expect = false;
        }
        bool cte = t->class == TOKEN_NAME && token_is(scope_token_at(s, i + 1), "AS") &&
                   token_is(scope_token_at(s, i + 2), "(") &&
                   (token_is(scope_token_at(s, i - 1), "WITH") ||
                    token_is(scope_token_at(s, i - 1), ",") ||
                    token_is(scope_token_at(s, i - 1), "RECURSIVE"));
        if (cte && token_is(&s->tokens[0], "WITH"))
            ARENA_PUSH(a, s->tables, s->ntables, cap,
                       ((scope_table){
                           scope_unquote(t->text), {"", 0}, GROUP_WITH, s->tokens[i + 2].opens}));
    }
    if (s->before == s->ntokens)
        s->expects_table = expect;
}

/* Finds the last clause keyword that is before the cursor and directly in the same parentheses. */
static void read_clause(scope *s) {
    static const char *const clauses[] = {
        "SELECT",    "FROM",    "WHERE",     "GROUP",   "HAVING", "ORDER", "LIMIT",  "ON",
        "SET",       "VALUES",  "USING",     "RETURNS", "INTO",   "JOIN",  "UPDATE", "DELETE",
        "RETURNING", "QUALIFY", "PARTITION", "ROWS",    "RANGE",  "GROUPS"};
    enum { IN_WINDOWS = 4 }; /* the last four are clauses only inside of OVER (…) */
    size_t n = BASE_COUNT(clauses) - (s->group ? 0 : IN_WINDOWS);
    s->clause = "";
    for (int i = s->before - 1; i >= 0; i--) {
        if (s->tokens[i].group != s->group)
            continue;
        for (size_t k = 0; k < n; k++) {
            if (s->tokens[i].class == TOKEN_KEYWORD && token_is(&s->tokens[i], clauses[k])) {
                s->clause = clauses[k];
                return;
            }
        }
    }
}

void scope_read(str text, size_t cursor, arena *a, scope *out) {
    *out = (scope){.text = text, .cursor = cursor};
    read_tokens(out, a);
    read_tables(out, a);
    read_clause(out);
}

/* Calls `visit` for the fields of STRUCT(…): the first word of each item. */
static void struct_fields(const scope *s, int group, void (*visit)(void *ctx, str name),
                          void *ctx) {
    bool first = true;
    for (int i = 0; i < s->ntokens; i++) {
        const scope_token *t = &s->tokens[i];
        if (t->group != group || token_is(t, ")"))
            continue;
        if (first && is_word(t->class))
            visit(ctx, scope_unquote(t->text));
        first = token_is(t, ",");
    }
}

/* A column's name is taken to be the last name in its item of the select list. */
void scope_subquery_columns(const scope *s, int group, void (*visit)(void *ctx, str name),
                            void *ctx) {
    bool in_list = false;
    str last = {0};
    for (int i = 1; i < s->ntokens; i++)
        if (s->tokens[i].opens == group && token_is(&s->tokens[i], "(") &&
            token_is(&s->tokens[i - 1], "STRUCT")) {
            struct_fields(s, group, visit, ctx);
            return;
        }
    for (int i = 0; i < s->ntokens; i++) {
        const scope_token *t = &s->tokens[i];
        if (t->group != group)
            continue;
        if (token_is(t, "SELECT")) {
            in_list = true;
        } else if (in_list && (token_is(t, ",") || token_is(t, "FROM"))) {
            if (last.n)
                visit(ctx, last);
            last = (str){0};
            if (token_is(t, "FROM"))
                return;
        } else if (in_list && t->class == TOKEN_NAME && !token_is(scope_token_at(s, i + 1), "(")) {
            last = scope_unquote(t->text);
        }
    }
    if (in_list && last.n)
        visit(ctx, last);
}
