/*
 * text.c - functions on the text of statements: end of a statement, token classes, and an error's
 * line with a caret.
 *
 * It uses only the lexer, so it also works on text that cannot be parsed. Positions are byte
 * offsets, columns are terminal cells.
 */
#include <string.h>

#include "ast_int.h"
#include "grammar.h"

bool sql_statement_end(str text, size_t *length, bool *empty) {
    size_t at = 0;
    int open = 0;
    *empty = true;
    *length = text.n;
    while (at < text.n) {
        size_t n = 0;
        const char *problem = NULL;
        int code = sql_lex(text, at, &n, &problem);
        bool unclosed = code == TK_ILLEGAL && at + n >= text.n && memchr("'\"/", text.p[at], 3);
        if (unclosed) {
            *empty = false;
            return false;
        }
        at += n;
        if (code == TK_SPACE || code == TK_COMMENT)
            continue;
        if (code == TK_SEMI && open <= 0) {
            *length = at;
            return true;
        }
        *empty = false;
        open += (code == TK_LP) - (code == TK_RP);
    }
    return false;
}

size_t sql_token(str text, size_t at, token_class *out) {
    size_t n = 0;
    const char *problem = NULL;
    int code = sql_lex(text, at, &n, &problem);
    switch (code) {
    case 0:
    case TK_SPACE:
        *out = TOKEN_BLANK;
        break;
    case TK_COMMENT:
        *out = TOKEN_COMMENT;
        break;
    case TK_ILLEGAL:
        *out = TOKEN_BAD;
        break;
    case TK_ID:
    case TK_STRINGNAME:
    case TK_VARIABLE:
        *out = TOKEN_NAME;
        break;
    case TK_NUMBER:
        *out = TOKEN_NUMBER;
        break;
    case TK_STRING:
    case TK_TEXT_LIST:
    case TK_BLOB:
        *out = TOKEN_STRING;
        break;
    default:
        *out = keyword_is_operator(code) ? TOKEN_OPERATOR : TOKEN_KEYWORD;
        break;
    }
    return n;
}

/* ---- error positions ------------------------------------------------------------------------- */

static size_t line_start(str text, size_t pos) {
    while (pos > 0 && text.p[pos - 1] != '\n')
        pos--;
    return pos;
}

void sql_error_place(str text, int pos, int *line, int *col) {
    size_t at = pos < 0 ? 0 : BASE_MIN((size_t)pos, text.n), start = line_start(text, at);
    *line = 1;
    for (size_t i = 0; i < start; i++)
        *line += text.p[i] == '\n';
    *col = (int)utf8_length((str){text.p + start, at - start}) + 1;
}

/* Appends s with each control character replaced by one blank, so that the caret is in the right
 * column on any terminal. */
static void append_flat(buf *out, str s) {
    for (size_t i = 0; i < s.n; i++)
        buf_append_char(out, (unsigned char)s.p[i] < ' ' || s.p[i] == 127 ? ' ' : s.p[i]);
}

static int flat_width(str s) {
    buf flat = {0};
    append_flat(&flat, s);
    int width = utf8_width(buf_str(&flat));
    buf_free(&flat);
    return width;
}

/* Returns the offset of the first character that starts at or after `at`. */
static size_t next_start(str s, size_t at) {
    while (at < s.n && ((unsigned char)s.p[at] & 0xc0) == 0x80)
        at++;
    return at;
}

void sql_error_caret(str text, const err *e, int columns, buf *out) {
    enum { LEAST = 24, MOST = 80, MARGIN = 4 };
    int most = BASE_MIN(BASE_MAX(columns, LEAST), MOST) - MARGIN, before = most * 2 / 3;
    if (e->pos < 0)
        return;
    size_t pos = BASE_MIN((size_t)e->pos, text.n), start = line_start(text, pos), end = pos;
    while (end < text.n && text.p[end] != '\n')
        end++;
    while (end > pos && text.p[end - 1] == '\r')
        end--;
    /* of a line that is too long only the part around the position is shown */
    size_t from = start;
    while (flat_width((str){text.p + from, pos - from}) > before)
        from = next_start(
            text, from + BASE_MAX((size_t)1, (pos - from) / 4 > 200 ? (pos - from) / 4 : 1));
    str rest = {text.p + from, end - from};
    size_t shown = utf8_fit(rest, most);
    if (shown < rest.n && from + shown <= pos)
        shown = rest.n < pos - from + 1 ? rest.n : pos - from + 1;
    bool cut_left = from > start, cut_right = shown < rest.n;
    buf_append_c(out, cut_left ? "  …" : "  ");
    append_flat(out, (str){rest.p, shown});
    buf_append_c(out, cut_right ? "…\n" : "\n");
    int indent = flat_width((str){text.p + from, pos - from}) + 2 + cut_left;
    for (int i = 0; i < indent; i++)
        buf_append_char(out, ' ');
    size_t marked_end = BASE_MIN(pos + (size_t)BASE_MAX(e->len, 0), from + shown);
    int width = marked_end > pos ? flat_width((str){text.p + pos, marked_end - pos}) : 1;
    buf_append_char(out, '^');
    for (int i = 1; i < width; i++)
        buf_append_char(out, '~');
    buf_append_char(out, '\n');
}
