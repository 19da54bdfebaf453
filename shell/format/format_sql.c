/*
 * format_sql.c - lays CREATE statements out over lines.
 *
 * Invariant: only blanks between tokens are changed, so that the text stays the same statement.
 */
#include <string.h>

#include "format_int.h"

enum { INDENT = 4 };

typedef struct layout {
    buf *out;
    int columns;
    int used;   /* columns used of the current line */
    int indent; /* of the current column or clause; its further lines get INDENT more */
    bool empty; /* the current line has no token yet */
} layout;

static void new_line(layout *l, int indent) {
    buf_append_char(l->out, '\n');
    format_pad(l->out, indent);
    l->used = indent;
    l->empty = true;
}

/* Appends tokens that stay together, after a blank if `blank` and the line has tokens. */
static void put(layout *l, str tokens, bool blank) {
    if (tokens.n == 0)
        return;
    str rest = tokens, first = str_split_next(&rest, '\n'), last = first; /* lines of a literal */
    while (rest.n)
        last = str_split_next(&rest, '\n');
    blank = blank && !l->empty;
    if (!l->empty && l->used + blank + utf8_width(first) > l->columns) {
        new_line(l, l->indent + INDENT);
        blank = false;
    }
    format_pad(l->out, blank);
    buf_append_str(l->out, tokens);
    l->used = last.p == first.p ? l->used + blank + utf8_width(first) : utf8_width(last);
    l->empty = false;
}

/* Whether the statement is printed as it is: all of its lines fit, or a comment needs its line. */
static bool stays(str sql, int columns) {
    token_class class;
    for (size_t at = 0, n; (n = sql_token(sql, at, &class)) > 0; at += n)
        if (class == TOKEN_COMMENT && sql.p[at] == '-')
            return true;
    bool fits = true;
    while (sql.n && columns > 0 && fits)
        fits = utf8_width(str_split_next(&sql, '\n')) <= columns;
    return fits;
}

static bool begins_clause(str token) {
    static const char *const clauses[] = {"WITH",  "SELECT", "FROM",      "WHERE",
                                          "GROUP", "HAVING", "WINDOW",    "ORDER",
                                          "LIMIT", "UNION",  "INTERSECT", "EXCEPT"};
    for (size_t i = 0; i < BASE_COUNT(clauses); i++)
        if (str_equal_nocase(token, str_from(clauses[i])))
            return true;
    return false;
}

void format_sql(buf *out, str sql, int columns) {
    static const str table = {"CREATE TABLE ", 13};
    if (stays(sql, columns)) {
        buf_append_str(out, sql);
        return;
    }
    bool is_table = str_equal((str){sql.p, BASE_MIN(sql.n, table.n)}, table), blank = false;
    layout l = {.out = out, .columns = columns, .empty = true};
    str held = {sql.p, 0}; /* the tokens since the last place where a line may end */
    token_class class;
    int depth = 0;
    for (size_t at = 0, n; (n = sql_token(sql, at, &class)) > 0; at += n) {
        str token = {sql.p + at, n};
        bool comma = str_equal(token, STR(",")), open = str_equal(token, STR("("));
        depth -= str_equal(token, STR(")"));
        bool clause = depth == 0 && class == TOKEN_KEYWORD && begins_clause(token);
        bool list_end = is_table && depth == 0 && str_equal(token, STR(")"));
        bool item_end = is_table && ((open && depth == 0) || (comma && depth == 1));
        depth += open;
        if (class == TOKEN_BLANK || clause || list_end) {
            put(&l, held, blank);
            held = (str){token.p, 0};
            blank = true;
        }
        if (clause || list_end) {
            l.indent = clause ? INDENT : 0;
            new_line(&l, l.indent);
        }
        if (class == TOKEN_BLANK) {
            held.p += n;
            continue;
        }
        held.n += n;
        if (item_end || comma) {
            put(&l, held, blank);
            held = (str){token.p + n, 0};
            blank = false;
        }
        if (item_end) {
            l.indent = INDENT;
            new_line(&l, INDENT);
        }
    }
    put(&l, held, blank);
}
