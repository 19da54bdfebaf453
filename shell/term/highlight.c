/*
 * highlight.c - SQL syntax highlighting by the token classes of the lexer.
 */
#include "term_int.h"

static style class_style(token_class class, str text, size_t end) {
    switch (class) {
    case TOKEN_KEYWORD:
        return STYLE_KEYWORD;
    case TOKEN_NUMBER:
        return STYLE_NUMBER;
    case TOKEN_STRING:
        return STYLE_STRING;
    case TOKEN_COMMENT:
        return STYLE_COMMENT;
    case TOKEN_BAD:
        return STYLE_ERROR;
    case TOKEN_NAME:
        return end < text.n && text.p[end] == '(' ? STYLE_FUNCTION : STYLE_PLAIN;
    case TOKEN_OPERATOR:
    case TOKEN_BLANK:
        return STYLE_PLAIN;
    }
    return STYLE_PLAIN;
}

void highlight(str text, bool color, buf *out) {
    token_class class = TOKEN_BLANK;
    for (size_t at = 0, n; at < text.n && (n = sql_token(text, at, &class)) > 0; at += n) {
        style s = class_style(class, text, at + n);
        buf_append_c(out, style_on(color, s));
        buf_append(out, text.p + at, n);
        buf_append_c(out, style_off(color, s));
    }
}
