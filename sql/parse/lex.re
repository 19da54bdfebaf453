/*
 * lex.re - the lexer, for re2c: splits text into tokens without allocating. Keywords are looked
 * up in keywords.c.
 *
 * Invariant: it reads no byte at or after `limit` and sees a NUL there, so the text needs no
 * terminator.
 */
#include "parse/ast_int.h"
#include "grammar.h"

/* Returns the end of a comment, or NULL if it is unterminated. `at` is the position after its
 * opening slash and star. Comments nest. */
static const unsigned char *skip_comment(const unsigned char *at, const unsigned char *limit) {
    int depth = 1;
    while (at + 1 < limit) {
        if (at[0] == '*' && at[1] == '/') {
            at += 2;
            if (--depth == 0)
                return at;
        } else if (at[0] == '/' && at[1] == '*') {
            at += 2;
            depth++;
        } else {
            at++;
        }
    }
    return NULL;
}

static int scan(const unsigned char *start, const unsigned char *limit, const unsigned char **end, const char **problem) {
    const unsigned char *cursor = start, *marker = start;
#define PEEK() (cursor < limit ? *cursor : 0)
    /*!re2c
    re2c:yyfill:enable = 0;
    re2c:flags:input = custom;
    re2c:api:style = free-form;
    re2c:define:YYCTYPE = "unsigned char";
    re2c:define:YYPEEK = "PEEK()";
    re2c:define:YYSKIP = "++cursor;";
    re2c:define:YYBACKUP = "marker = cursor;";
    re2c:define:YYRESTORE = "cursor = marker;";

    letter = [A-Za-z_\x80-\xff];
    digit = [0-9];
    word = letter (letter | digit | "$")*;
    exponent = [eE] [+-]? digit+;

    [ \t\r\n\f\v]+ { *end = cursor; return TK_SPACE; }
    "--" [^\n\x00]* { *end = cursor; return TK_COMMENT; }
    "/*" {
        const unsigned char *after = skip_comment(cursor, limit);
        *end = after ? after : limit;
        *problem = "unterminated comment";
        return after ? TK_COMMENT : TK_ILLEGAL;
    }
    "'" ([^'\x00] | "''")* "'" { *end = cursor; return TK_STRING; }
    "'" ([^'\x00] | "''")* { *end = cursor; *problem = "unterminated text: its closing ' is missing"; return TK_ILLEGAL; }
    [xX] "'" ([0-9A-Fa-f] [0-9A-Fa-f])* "'" { *end = cursor; return TK_BLOB; }
    [xX] "'" [^'\x00]* "'"? { *end = cursor; *problem = "not a blob: it needs an even number of hexadecimal digits, as in X'00ff'"; return TK_ILLEGAL; }
    '"' ([^"\x00] | '""')+ '"' { *end = cursor; return TK_STRINGNAME; }
    '"' '"' { *end = cursor; *problem = "a name cannot be empty"; return TK_ILLEGAL; }
    '"' ([^"\x00] | '""')* { *end = cursor; *problem = "unterminated name: its closing \" is missing"; return TK_ILLEGAL; }
    ":" letter (letter | digit)* { *end = cursor; return TK_VARIABLE; }
    digit+ | digit+ "." digit* exponent? | "." digit+ exponent? | digit+ exponent { *end = cursor; return TK_NUMBER; }
    (digit+ | digit+ "." digit* | "." digit+) exponent? word { *end = cursor; *problem = "not a number; write texts in single quotes"; return TK_ILLEGAL; }
    word { *end = cursor; return TK_ID; }

    "=>" { *end = cursor; return TK_ARROW; }
    "::" { *end = cursor; return TK_CAST_TO; }
    "||" { *end = cursor; return TK_CONCAT; }
    "<->" { *end = cursor; return TK_L2_DISTANCE; }
    "<=>" { *end = cursor; return TK_COSINE_DISTANCE; }
    "<#>" { *end = cursor; return TK_NEGATIVE_INNER; }
    "<>" | "!=" { *end = cursor; return TK_NE; }
    "<=" { *end = cursor; return TK_LE; }
    ">=" { *end = cursor; return TK_GE; }
    "==" | "=" { *end = cursor; return TK_EQ; }
    "<" { *end = cursor; return TK_LT; }
    ">" { *end = cursor; return TK_GT; }
    "+" { *end = cursor; return TK_PLUS; }
    "-" { *end = cursor; return TK_MINUS; }
    "*" { *end = cursor; return TK_STAR; }
    "/" { *end = cursor; return TK_SLASH; }
    "%" { *end = cursor; return TK_PERCENT; }
    "(" { *end = cursor; return TK_LP; }
    ")" { *end = cursor; return TK_RP; }
    "," { *end = cursor; return TK_COMMA; }
    "." { *end = cursor; return TK_DOT; }
    ";" { *end = cursor; return TK_SEMI; }

    "\x00" {
        *end = cursor;
        *problem = "unexpected NUL byte";
        return TK_ILLEGAL;
    }
    blank = [ \t\r\n]*;
    text = "'" ([^'\x00] | "''")* "'";
    "[" blank text (blank "," blank text)* blank "]" { *end = cursor; return TK_TEXT_LIST; }
    "[" ([ \t]* [0-9'\x2d] [^\]\x00\n]* | [ \t]* | [^\]\x00\n]* "," [^\]\x00\n]*) "]" { *end = cursor; *problem = "lists are not supported; write a vector as '[1, 2, 3]'::VECTOR, or one row for each value, as in VALUES (1), (2), or x IN (1, 2)"; return TK_ILLEGAL; }
    "`" [^`\x00]* "`"? | "[" [^\]\x00\n]* "]" { *end = cursor; *problem = "quote names with \""; return TK_ILLEGAL; }
    "~" { *end = cursor; *problem = "unexpected ~; write x REGEXP 'pattern', and (?i) at its start to ignore case"; return TK_ILLEGAL; }
    ":" | "?" digit* | "$" (letter | digit)* { *end = cursor; *problem = "write variables as :name"; return TK_ILLEGAL; }
    "\\" { *end = cursor; *problem = "write shell commands on a line of their own"; return TK_ILLEGAL; }
    "&&" { *end = cursor; *problem = "unexpected &&; write AND"; return TK_ILLEGAL; }
    * { *end = cursor; *problem = "unexpected character"; return TK_ILLEGAL; }
    */
#undef PEEK
}

int sql_lex(str text, size_t at, size_t *length, const char **problem) {
    if (at >= text.n) {
        *length = 0;
        return 0;
    }
    const unsigned char *start = (const unsigned char *)text.p + at, *limit = (const unsigned char *)text.p + text.n;
    const unsigned char *end = start;
    int code = scan(start, limit, &end, problem);
    *length = (size_t)(end - start);
    if (code == TK_ID) {
        int keyword = keyword_code((str){(const char *)start, *length});
        return keyword ? keyword : code;
    }
    return code;
}
