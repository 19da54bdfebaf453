/*
 * ast_int.h - the syntax tree, which the grammar builds and the binder reads, and the parser's
 * state.
 *
 * Names are as written and unresolved. All nodes live in the statement's arena. Invariant: no tree
 * is deeper than AST_MAX_DEPTH (chains of AND, OR and || are flat), so that walks may recurse.
 */
#ifndef KVASIR_AST_INT_H
#define KVASIR_AST_INT_H

#include "words/words_int.h"

enum { AST_MAX_DEPTH = 400 };

/* A token: bytes [pos, pos + len) of the statement's text. */
typedef struct token {
    str text; /* as written */
    int pos, len;
} token;

typedef struct list {
    void **items;
    int n, cap;
} list;

/* A name and its span; name.n = 0: absent. */
typedef struct ident {
    str name; /* without quotes */
    int pos, len;
} ident;

/* True if the name was quoted; a quoted keyword is a name. */
static inline bool ident_quoted(ident i) {
    return i.len > (int)i.name.n;
}

typedef struct query query;
typedef struct node node;
typedef struct window_spec window_spec;

typedef enum node_kind {
    /* literal; digits: a number as written, so that -9223372036854775808 gives an INTEGER */
    NODE_LITERAL,
    NODE_VARIABLE, /* name */
    NODE_COLUMN,   /* qualifier.name */
    NODE_STAR,     /* qualifier.* or * */
    NODE_DEFAULT,  /* DEFAULT in VALUES */
    NODE_OP,       /* op over args; AND, OR, CONCAT have two or more */
    NODE_ROW,      /* (args): a row of two or more values */
    NODE_BETWEEN,  /* args: x, low, high; NOT BETWEEN is OP_NOT over it */
    NODE_IN, /* args: x, items…; IN (SELECT …): x only, and query; NOT IN is OP_NOT over it */
    NODE_EXISTS,   /* query */
    NODE_SUBQUERY, /* query: a scalar subquery */
    NODE_CASE,     /* args: [operand,] when, then, …, else; has_operand, has_else */
    NODE_CAST,     /* args[0], type */
    NODE_CALL,     /* name(args); distinct, star, order_by, filter, over */
    /* args: prompt, fields; names: the aliases of args; options; on_error; returns; name: the
     * name of SQL_LLM_NAMES by which it was written, or absent */
    NODE_LLM,
    NODE_BOUND /* bound: a column that the binder substitutes; the grammar never creates one */
} node_kind;

typedef struct llm_option {
    ident name;
    node *value;
} llm_option;

typedef struct llm_type {
    bool given;       /* the call has RETURNS */
    ident name;       /* TEXT, ENUM, … as written */
    list literals;    /* of str*: ENUM(…) */
    bool between;     /* BETWEEN is written */
    node *low, *high; /* BETWEEN low AND high */
    list fields;      /* of struct_field*: STRUCT(…) */
    bool in_order;    /* STRUCT(…) IN ORDER */
    int pos, len;
} llm_type;

/* A field of STRUCT(…): a column that the call returns. */
typedef struct struct_field {
    ident name;
    llm_type type;
    str description; /* p = NULL: none */
    int pos, len;
} struct_field;

/* NULL ON ERROR, ERROR ON ERROR or DEFAULT x ON ERROR of an LLM call. */
typedef struct llm_on_error {
    bool given;
    bool fails;      /* ERROR ON ERROR */
    node *otherwise; /* the literal x, or NULL's; a null pointer: ERROR, or not given */
} llm_on_error;

struct node {
    node_kind kind;
    int pos, len;
    int depth; /* levels of the tree below and including the node; see AST_MAX_DEPTH */
    value literal;
    str digits;
    ident qualifier, name;
    expr_op op;
    int nargs;
    node **args;
    int cap;
    bool distinct, star, has_operand, has_else;
    list order_by; /* of order_item*: ORDER BY inside an aggregate's parentheses */
    node *filter;
    window_spec *over;
    query *query;
    value_type type;
    int dims;     /* NODE_CAST: of VECTOR(n), else 0 */
    ident *names; /* NODE_LLM: [nargs] aliases; name.n = 0: the argument has no alias */
    list options; /* NODE_LLM: of llm_option* */
    int contexts; /* NODE_LLM: the argument that is the value of contexts =>; 0: none */
    llm_on_error on_error;
    llm_type returns;
    const struct_field *field; /* NODE_LLM: the field of its STRUCT that is asked; NULL: all */
    /* NODE_LLM: the field before it in a STRUCT IN ORDER, whose prompt it goes on from; or NULL */
    const node *previous;
    const expr *bound;
};

typedef struct select_item {
    node *value;
    ident alias;
} select_item;

typedef struct order_item {
    node *value;
    bool descending, nulls_given, nulls_first;
} order_item;

/* A bound of a frame; `offset` is set only for PRECEDING and FOLLOWING. */
typedef struct bound_spec {
    bound_kind kind;
    node *offset;
    int pos, len;
} bound_spec;

typedef struct frame_spec {
    frame_unit unit;
    bound_spec start, end;
    frame_exclude exclude;
    int pos, len;
} frame_spec;

/* The window after OVER, or after AS in the WINDOW clause. */
struct window_spec {
    bool is_name;      /* OVER base, without parentheses */
    ident base;        /* named window that this one uses or extends; may be absent */
    list partition_by; /* of node* */
    list order_by;     /* of order_item* */
    frame_spec *frame; /* NULL: the default frame */
    int pos, len, depth;
};

/* WINDOW name AS (spec) */
typedef struct window_def {
    ident name;
    window_spec *spec;
} window_def;

typedef enum from_kind {
    FROM_NAME,
    FROM_FILE,
    FROM_FUNCTION,
    FROM_QUERY,
    FROM_LLM, /* LLM(…) RETURNS STRUCT(…): its fields for each row to its left */
    FROM_JOIN
} from_kind;

typedef struct from_item from_item;
struct from_item {
    from_kind kind;
    int pos, len;
    int clause; /* offset of the word FROM, if this is all of a FROM clause */
    int depth;
    ident name;         /* FROM_NAME, FROM_FUNCTION */
    str path;           /* FROM_FILE */
    list args, options; /* FROM_FUNCTION: of node*; of llm_option* */
    query *query;
    bool lateral; /* FROM_QUERY: it may read the tables to its left */
    node *llm;    /* FROM_LLM */
    ident alias;
    list columns; /* of ident*: column aliases */
    join_kind join;
    from_item *left, *right;
    node *on;
    list using_columns; /* of ident* */
    ident natural;      /* the word NATURAL; name.n = 0: not a NATURAL JOIN */
};

/* AS MATERIALIZED: CTE_KEPT. AS NOT MATERIALIZED: CTE_INLINED. Otherwise CTE_EITHER. */
typedef enum cte_sharing { CTE_EITHER, CTE_KEPT, CTE_INLINED } cte_sharing;

typedef struct cte {
    cte_sharing sharing;
    ident name;
    list columns; /* of ident* */
    query *query;
    bool recursive; /* written in WITH RECURSIVE: the query may refer to this CTE */
} cte;

typedef enum query_kind { QUERY_SELECT, QUERY_VALUES, QUERY_SETOP } query_kind;

struct query {
    query_kind kind;
    int pos, len;
    str text; /* of a subquery in an expression; GROUP BY recognises equal subqueries by it */
    int depth;
    list with; /* of cte* */
    bool distinct;
    list items; /* of select_item* */
    from_item *from;
    node *where;
    list group_by; /* of node* */
    node *having;
    list windows; /* of window_def* */
    node *qualify;
    list rows; /* QUERY_VALUES: of list* of node* */
    set_op op;
    list terms;    /* QUERY_SETOP: of query*; two terms, or all terms of a UNION ALL chain */
    list order_by; /* of order_item* */
    node *limit, *offset;
};

/* A type as written. */
typedef struct type_spec {
    ident name;
    node *width; /* n of VECTOR(n); NULL: none */
    int end;     /* offset of its end in the text */
} type_spec;

typedef struct column_spec {
    ident name;
    value_type type;
    int dims; /* as in column_def */
    bool not_null, primary, unique;
    node *standard; /* DEFAULT */
    str default_sql, check_sql;
    list checks; /* of node* */
} column_spec;

typedef struct table_spec {
    list columns;     /* of column_spec* */
    list primary_key; /* of ident* */
    list uniques;     /* of list* of ident* */
    list checks;      /* of check_spec* */
    int pos, len;
} table_spec;

typedef struct check_spec {
    node *value;
    str sql;
} check_spec;

typedef struct assignment {
    ident column;
    node *value;
} assignment;

typedef struct copy_option {
    ident name;
    node *value; /* NULL: the option is a word without a value */
} copy_option;

typedef enum ast_kind {
    AST_NONE,
    AST_QUERY,
    AST_INSERT,
    AST_UPDATE,
    AST_DELETE,
    AST_CREATE_TABLE,
    AST_CREATE_INDEX,
    AST_CREATE_VIEW,
    AST_CREATE_MODEL,
    AST_DROP,
    AST_ADD_COLUMN,
    AST_DROP_COLUMN,
    AST_RENAME_TABLE,
    AST_RENAME_COLUMN,
    AST_COPY_FROM,
    AST_COPY_TO,
    AST_SIMPLE, /* BEGIN, COMMIT, ROLLBACK: see `stmt` */
    AST_SET,
    AST_RESET,
    AST_SHOW,
    AST_EXPLAIN,
    AST_ANALYZE,
    AST_CLEAR_CACHE,
    AST_WARM, /* WARM and PIN */
    AST_UNPIN
} ast_kind;

typedef struct ast ast;
struct ast {
    ast_kind kind;
    stmt_kind stmt; /* AST_SIMPLE, AST_DROP */
    ident name;     /* table, view, index, model, setting */
    ident name2;    /* second part of a setting, new name, table of an index, alias of the target */
    ident column;   /* CREATE INDEX: the method after USING, or absent */
    list columns; /* of ident*; CREATE INDEX … USING: the column, the operator class or absent */
    /* of assignment* (UPDATE), copy_option* (COPY, EXPLAIN, CREATE INDEX … USING) or order_item*
     * (CREATE INDEX) */
    list items;
    query *query;
    table_spec *table;
    column_spec *spec;
    from_item *from; /* UPDATE … FROM; NULL: none */
    node *where, *value;
    node *llm; /* WARM, PIN */
    bool pin;
    conflict_action on_conflict;
    list conflict_columns;
    list conflict_set; /* of assignment* */
    node *conflict_where;
    list *returning; /* of select_item*; NULL: none */
    bool if_exists, if_not_exists, or_replace, unique, default_values, analyze;
    str path, sql;
    value set_value;
    clear_what clear;
    ast *inner; /* EXPLAIN */
};

/* ---- the parser's state ---------------------------------------------------------------------- */

typedef struct parser {
    arena *mem;
    str text;
    err *error;
    bool failed;
    ast *result;
    token last, previous; /* the current token and the token before it */
    token before;         /* the token before `previous` */
    int last_code, previous_code;
    token first; /* first token of the statement */
    int end;     /* end offset of the statement's last token that is not a semicolon */
    bool mentions_rowid, calls_model; /* as in sql_tree */
} parser;

/* foreign_syntax.c: returns a hint if token `at` is unexpected but valid in another dialect; else
 * NULL. */
const char *foreign_syntax_hint(const parser *p, int code, token at);

/* parse.c: parses a single expression: a DEFAULT or CHECK stored in the catalog. */
int sql_parse_expr(str text, arena *mem, node **out, err *e);
/* Reports that token `at` is unexpected; `expected` has the codes that the grammar accepts here. */
void parser_unexpected(parser *p, int code, token at, const int *expected, int nexpected);

/* lex.re: returns the code of the token at text[at] and sets *length. The code is 0 at the end of
 * the text, and TK_SPACE or TK_COMMENT for text that the parser skips. It is TK_ILLEGAL for invalid
 * text, with *problem set to the error. */
int sql_lex(str text, size_t at, size_t *length, const char **problem);
enum { TK_SPACE = 1000, TK_COMMENT, TK_ILLEGAL };

/* ast.c: sets *on to the option's value; an option without a value is on. Returns false if the
 * value is neither on nor off. */
bool option_switch(const copy_option *o, bool *on);

/* An argument of LLM() during parsing. */
typedef struct llm_arg {
    node *value;
    ident alias, option;
} llm_arg;

/* ---- ast.c: constructors that the grammar calls ---------------------------------------------- */

void list_add(arena *a, list *l, void *item);
list *list_new(arena *a);
ident ident_of(parser *p, token t);
ident *ident_copy(parser *p, token t);
str text_of(parser *p, token t); /* a string literal's text */

node *node_new(parser *p, node_kind kind, int pos, int len);
node *node_span(node *n, int from_pos, int to_end);
void node_arg(parser *p, node *n, node *arg); /* appends to args */
node *node_text(parser *p, token t);
node *node_blob(parser *p, token t);
node *node_number(parser *p, token t);
node *node_value(parser *p, token t, value v);
node *node_variable(parser *p, token t);
node *node_column(parser *p, token *qualifier, token name);
node *node_star(parser *p, token *qualifier, token star);
node *node_unary(parser *p, expr_op op, token at, node *x);
node *node_binary(parser *p, expr_op op, node *a, node *b);
node *node_like(parser *p, expr_op op, bool negated, node *a, node *pattern, node *escape);
/* a REGEXP pattern is regexp_matches(a, pattern) */
node *node_regexp(parser *p, bool negated, node *a, node *pattern);
node *node_is(parser *p, bool negated, node *x, node *y);
node *node_row(parser *p, token open, node *first, const list *rest, token close);
node *node_between(parser *p, bool negated, node *x, node *low, node *high);
node *node_in(parser *p, bool negated, node *x, list *items, query *q, token end);
node *node_exists(parser *p, token at, query *q);
node *node_subquery(parser *p, query *q);
node *node_case(parser *p, token start, node *operand, list *whens, node *otherwise, token end);
node *node_cast(parser *p, int start, node *x, type_spec type, int end);
/* x <-> y and the like: a call of the function. */
node *node_distance(parser *p, const char *function, node *x, node *y);
node *node_call(parser *p, token name, bool distinct, list *args, token end);
node *node_call_star(parser *p, token name, token end);
node *node_ordered(parser *p, node *call, const list *order_by);
node *node_filter(parser *p, node *call, node *condition, token end);
node *node_over(parser *p, node *call, window_spec *over);
/* `base`, the lists and `frame` are NULL if not written. */
window_spec *window_new(parser *p, token *base, list *partition_by, list *order_by,
                        frame_spec *frame);
window_spec *window_named(parser *p, token name);
window_spec *window_paren(window_spec *w, token open, token close);
window_def *window_def_new(parser *p, token name, window_spec *spec);
bound_spec *bound_new(parser *p, bound_kind kind, node *offset, token start, token end);
/* Makes a frame of `from` AND `to`. `to` is NULL if not written, which means CURRENT ROW. */
frame_spec *frame_new(parser *p, frame_unit unit, token start, const bound_spec *from,
                      const bound_spec *to, frame_exclude exclude);
node *node_llm(parser *p, token start, const list *args, llm_on_error on_error, llm_type *returns,
               token end);

/* lists.c: returns the call, or, if it is json_group_array(), what it stands for. */
node *node_aggregate(parser *p, node *call);
/* Adds the value of the option contexts to the arguments of LLM(), whose `names` have room. */
void node_contexts(parser *p, node *llm, const llm_arg *given);

/* llm_names.c: a call by a name of SQL_LLM_NAMES, as the call of LLM() or LLM_MEAN() that it is. */
node *node_llm_name(parser *p, token name, const list *args, llm_on_error on_error, token end);
/* Returns ['a', 'b'] as a NODE_ROW of one or more texts. */
node *node_text_list(parser *p, token t);

llm_arg *llm_arg_new(parser *p, node *value, token *alias, token *option);
llm_type *llm_type_new(parser *p, token start, token name, list *literals, node *low, node *high,
                       token end);
llm_type *llm_struct_new(parser *p, token name, const list *fields, token end);
struct_field *struct_field_new(parser *p, token name, const llm_type *type,
                               const token *description);
/* Reports a field without a type as an error. */
struct_field *struct_field_untyped(parser *p, token name);

query *query_setop(parser *p, set_op op, query *a, query *b);
query *query_tail(parser *p, query *q, list *order_by, node *limit, node *offset);
query *query_with(parser *p, token start, query *q, list *with, bool recursive);
query *query_paren(query *q, token open, token close);
query *query_select(parser *p, token start, bool distinct, list *items, from_item *from,
                    node *where, list *group_by, node *having);
query *query_windows(parser *p, query *q, list *windows, node *qualify);
query *query_values(parser *p, token start, list *rows);
/* Appends the assignments of (a, b) = (1, 2) to a SET list, as a = 1 and b = 2. */
void assign_row(parser *p, list *to, const list *columns, node *x);
cte *cte_new(parser *p, token name, list *columns, query *q, cte_sharing sharing);

from_item *from_name(parser *p, token name);
from_item *from_file(parser *p, token path);
/* args: of llm_arg* */
from_item *from_function(parser *p, token name, const list *args, token end);
/* Whether it is a function that has rows for each row to its left: CHUNK() or string_split(). */
bool is_split(const from_item *f);
from_item *from_query(parser *p, query *q);
from_item *from_llm(parser *p, node *llm);
/* FROM a, b. LLM() sees all tables to its left, so a comma before a tree of joins that has LLM()
 * becomes a join inside that tree. */
from_item *from_comma(parser *p, from_item *a, from_item *b);
from_item *from_alias(parser *p, from_item *f, token *alias, list *columns);
from_item *from_join(parser *p, join_kind kind, from_item *a, from_item *b, node *on,
                     list *using_columns);

/* nulls: 1 for NULLS FIRST, 0 for NULLS LAST, -1 if neither is written. */
order_item *order_item_new(parser *p, node *value, bool descending, int nulls);
select_item *select_item_new(parser *p, node *value, token *alias);
ast *ast_new(parser *p, ast_kind kind);
ast *ast_insert(parser *p, token name, list *columns, query *q, ast *conflict);
type_spec type_spec_new(parser *p, token name, node *width, token end);
/* *dims: of VECTOR(n), else 0. */
value_type type_of(parser *p, type_spec t, int *dims);
/* Reports LIMIT a, b as an error. */
void limit_of_two(parser *p, token comma);
/* Reports a column definition without a type as an error. */
column_spec *column_spec_untyped(parser *p, token name);
/* Returns the statement's text from offset `from` to `to` without blanks at its ends. */
str slice_of(parser *p, int from, int to);
void parser_fail(parser *p, err_code code, int pos, int len, const char *format, ...)
    BASE_PRINTF(5, 6);

/* grammar.y */
void *sql_grammarAlloc(void *(*allocate)(size_t));
void sql_grammarFree(void *parser_, void (*release)(void *));
int sql_grammarFallback(int code); /* returns TK_ID for a keyword that can be a name, else 0 */
void sql_grammar(void *parser_, int code, token t, parser *p);

#endif
