/*
 * ast.c - constructors of the syntax tree, called by the grammar.
 *
 * Invariant: every node has its span of text and its depth; a node deeper than AST_MAX_DEPTH ends
 * the parse with ERR_LIMIT. The binder interprets the tree. Only what the spelling determines is
 * interpreted here: values of literals, flat chains of AND, OR and ||, negated operators such as
 * NOT IN.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ast_int.h"
#include "grammar.h"

void list_add(arena *a, list *l, void *item) {
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 4;
        void **items = arena_alloc(a, sizeof *items * (size_t)cap);
        if (l->n)
            memcpy(items, l->items, sizeof *items * (size_t)l->n);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = item;
}

list *list_new(arena *a) {
    return ARENA_NEW(a, list);
}

void parser_fail(parser *p, err_code code, int pos, int len, const char *format, ...) {
    if (p->failed)
        return;
    p->failed = true;
    char message[sizeof p->error->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    err_set_at(p->error, code, pos, len, "%s", message);
}

bool option_switch(const copy_option *o, bool *on) {
    *on = true;
    return !o->value || (o->value->kind == NODE_LITERAL && parse_boolean(o->value->literal, on));
}

/* ---- names and texts ------------------------------------------------------------------------- */

/* Returns the text between the quotes, with doubled quotes reduced to one. */
static str unquote(arena *a, str s) {
    char quote = s.p[0];
    str inner = {s.p + 1, s.n - 2};
    if (!memchr(inner.p, quote, inner.n))
        return inner;
    char *out = arena_alloc(a, inner.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < inner.n; i++) {
        out[n++] = inner.p[i];
        if (inner.p[i] == quote)
            i++;
    }
    out[n] = 0;
    return (str){out, n};
}

ident ident_of(parser *p, token t) {
    ident i = {t.text, t.pos, t.len};
    if (t.text.n >= 2 && t.text.p[0] == '"')
        i.name = unquote(p->mem, t.text);
    return i;
}

ident *ident_copy(parser *p, token t) {
    ident *i = ARENA_NEW(p->mem, ident);
    *i = ident_of(p, t);
    return i;
}

str text_of(parser *p, token t) {
    return unquote(p->mem, t.text);
}

str slice_of(parser *p, int from, int to) {
    while (from < to && strchr(" \t\r\n\f\v", p->text.p[from]))
        from++;
    while (to > from && strchr(" \t\r\n\f\v", p->text.p[to - 1]))
        to--;
    return (str){p->text.p + from, (size_t)(to - from)};
}

void limit_of_two(parser *p, token comma) {
    if (p->failed)
        return;
    parser_fail(p, ERR_SYNTAX, comma.pos, comma.len, "LIMIT takes one number");
    err_hint(p->error, "LIMIT a, b is written LIMIT b OFFSET a");
}

column_spec *column_spec_untyped(parser *p, token name) {
    column_spec *c = ARENA_NEW(p->mem, column_spec);
    c->name = ident_of(p, name);
    c->type = TYPE_TEXT;
    if (p->failed)
        return c;
    str n = {c->name.name.p, BASE_MIN(c->name.name.n, (size_t)60)};
    parser_fail(p, ERR_SYNTAX, name.pos, name.len, "column \"%.*s\" has no type", (int)n.n, n.p);
    err_hint(p->error, "add INTEGER, REAL, TEXT, BOOLEAN or BLOB after the name: %.*s TEXT",
             (int)n.n, n.p);
    return c;
}

type_spec type_spec_new(parser *p, token name, node *width, token end) {
    type_spec t = {ident_of(p, name), width, end.pos + end.len};
    t.name.len = t.end - name.pos;
    return t;
}

static int dims_of(parser *p, const node *width) {
    bool whole = width->literal.type == TYPE_INTEGER;
    if (whole && width->literal.i >= 1 && width->literal.i <= VECTOR_DIMS_MAX)
        return (int)width->literal.i;
    parser_fail(p, ERR_LIMIT, width->pos, width->len, "a VECTOR has 1 to %d elements",
                VECTOR_DIMS_MAX);
    return 0;
}

value_type type_of(parser *p, type_spec spec, int *dims) {
    value_type t = TYPE_TEXT;
    ident name = spec.name;
    bool found = type_parse(name.name, &t);
    *dims = found && t == TYPE_VECTOR && spec.width ? dims_of(p, spec.width) : 0;
    if (found || p->failed)
        return t;
    static const char *const known[] = {"INTEGER", "REAL",   "TEXT",    "BOOLEAN", "BLOB",
                                        "BIGINT",  "DOUBLE", "VARCHAR", "VECTOR"};
    parser_fail(p, ERR_BIND, name.pos, name.len, "no type \"%.*s\"", (int)name.name.n, name.name.p);
    const char *meant = str_nearest(name.name, known, BASE_COUNT(known));
    if (meant)
        err_hint(p->error, "did you mean %s?", meant);
    else
        err_hint(p->error, "use INTEGER, REAL, TEXT, BOOLEAN, BLOB or VECTOR(n)");
    return t;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

node *node_new(parser *p, node_kind kind, int pos, int len) {
    node *n = ARENA_NEW(p->mem, node);
    n->kind = kind;
    n->pos = pos;
    n->len = len;
    n->depth = 1;
    return n;
}

node *node_span(node *n, int from_pos, int to_end) {
    n->pos = from_pos;
    n->len = to_end - from_pos;
    return n;
}

static int node_end(const node *n) {
    return n->pos + n->len;
}

/* Raises *depth to one more than `below`, the depth of a child. */
static void deepen(parser *p, int *depth, int below, int pos, int len) {
    if (below + 1 > *depth)
        *depth = below + 1;
    if (*depth > AST_MAX_DEPTH)
        parser_fail(p, ERR_LIMIT, pos, len, "the statement is nested more than %d deep",
                    AST_MAX_DEPTH);
}

void node_arg(parser *p, node *n, node *arg) {
    if (n->nargs == n->cap) {
        int cap = n->cap ? 2 * n->cap : 2;
        node **args = arena_alloc(p->mem, sizeof *args * (size_t)cap);
        if (n->nargs)
            memcpy(args, n->args, sizeof *args * (size_t)n->nargs);
        n->args = args;
        n->cap = cap;
    }
    n->args[n->nargs++] = arg;
    deepen(p, &n->depth, arg->depth, n->pos, n->len);
}

node *node_value(parser *p, token t, value v) {
    node *n = node_new(p, NODE_LITERAL, t.pos, t.len);
    n->literal = v;
    return n;
}

node *node_text(parser *p, token t) {
    return node_value(p, t, value_text(text_of(p, t)));
}

static int hex_digit(char c) {
    return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

node *node_blob(parser *p, token t) {
    size_t n = (t.text.n - 3) / 2;
    char *bytes = arena_alloc(p->mem, n + 1);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(hex_digit(t.text.p[2 + 2 * i]) * 16 + hex_digit(t.text.p[3 + 2 * i]));
    bytes[n] = 0;
    return node_value(p, t, (value){.type = TYPE_BLOB, .s = {bytes, n}});
}

/* Makes a number literal. An integer that does not fit 64 bits becomes REAL, as in sqlite3. */
node *node_number(parser *p, token t) {
    node *n = node_new(p, NODE_LITERAL, t.pos, t.len);
    int64_t i;
    double r;
    n->digits = t.text;
    if (parse_integer(t.text, &i))
        n->literal = value_int(i);
    else if (parse_real(t.text, &r))
        n->literal = value_real(r);
    else
        parser_fail(p, ERR_SYNTAX, t.pos, t.len,
                    "\"%.*s\" is not a number, or is out of range for REAL",
                    (int)BASE_MIN(t.text.n, (size_t)60), t.text.p);
    return n;
}

node *node_variable(parser *p, token t) {
    node *n = node_new(p, NODE_VARIABLE, t.pos, t.len);
    n->name = (ident){{t.text.p + 1, t.text.n - 1}, t.pos, t.len};
    return n;
}

node *node_column(parser *p, token *qualifier, token name) {
    int start = qualifier ? qualifier->pos : name.pos;
    node *n = node_new(p, NODE_COLUMN, start, name.pos + name.len - start);
    n->name = ident_of(p, name);
    if (qualifier)
        n->qualifier = ident_of(p, *qualifier);
    if (str_equal_nocase(n->name.name, STR("rowid")))
        p->mentions_rowid = true;
    return n;
}

node *node_star(parser *p, token *qualifier, token star) {
    int start = qualifier ? qualifier->pos : star.pos;
    node *n = node_new(p, NODE_STAR, start, star.pos + star.len - start);
    if (qualifier)
        n->qualifier = ident_of(p, *qualifier);
    return n;
}

node *node_unary(parser *p, expr_op op, token at, node *x) {
    int64_t i;
    if (op == OP_NEG && x->kind == NODE_LITERAL && x->digits.n && x->digits.p[0] != '-') {
        str digits = str_from(arena_printf(p->mem, "-%.*s", (int)x->digits.n, x->digits.p));
        x->digits = digits;
        if (parse_integer(digits, &i))
            x->literal = value_int(i);
        else if (x->literal.type == TYPE_REAL)
            x->literal.r = -x->literal.r;
        return node_span(x, at.pos, node_end(x));
    }
    node *n = node_new(p, NODE_OP, at.pos, node_end(x) - at.pos);
    n->op = op;
    node_arg(p, n, x);
    return n;
}

/* Makes a AND b AND c one node with three args: if `a` is a chain of the same operator, it is
 * extended by b. A chain on the right, as in a AND (b AND c), stays a node of its own. */
node *node_binary(parser *p, expr_op op, node *a, node *b) {
    bool chain = op == OP_AND || op == OP_OR || op == OP_CONCAT;
    if (chain && a->kind == NODE_OP && a->op == op && a->nargs >= 2) {
        node_arg(p, a, b);
        return node_span(a, a->pos, node_end(b));
    }
    node *n = node_new(p, NODE_OP, a->pos, node_end(b) - a->pos);
    n->op = op;
    node_arg(p, n, a);
    node_arg(p, n, b);
    return n;
}

static node *node_not(parser *p, bool negated, node *x) {
    if (!negated)
        return x;
    node *n = node_new(p, NODE_OP, x->pos, x->len);
    n->op = OP_NOT;
    node_arg(p, n, x);
    return n;
}

node *node_like(parser *p, expr_op op, bool negated, node *a, node *pattern, node *escape) {
    node *n = node_binary(p, op, a, pattern);
    if (escape) {
        node_arg(p, n, escape);
        node_span(n, n->pos, node_end(escape));
    }
    return node_not(p, negated, n);
}

node *node_regexp(parser *p, bool negated, node *a, node *pattern) {
    str name = STR("regexp_matches");
    node *n = node_new(p, NODE_CALL, a->pos, node_end(pattern) - a->pos);
    n->name = (ident){.name = name, .pos = n->pos, .len = BASE_MIN(n->len, (int)name.n)};
    node_arg(p, n, a);
    node_arg(p, n, pattern);
    return node_not(p, negated, n);
}

node *node_is(parser *p, bool negated, node *x, node *y) {
    return node_binary(p, negated ? OP_IS_NOT : OP_IS, x, y);
}

/* Maximum number of values in a row. The binder turns a comparison of rows into a tree whose depth
 * is the number of values. */
enum { MOST_IN_ROW = 64 };

node *node_row(parser *p, token open, node *first, const list *rest, token close) {
    node *n = node_new(p, NODE_ROW, open.pos, close.pos + close.len - open.pos);
    node_arg(p, n, first);
    for (int i = 0; i < rest->n; i++)
        node_arg(p, n, rest->items[i]);
    if (n->nargs > MOST_IN_ROW)
        parser_fail(p, ERR_LIMIT, n->pos, n->len, "a row has at most %d values", MOST_IN_ROW);
    return n;
}

node *node_between(parser *p, bool negated, node *x, node *low, node *high) {
    node *n = node_new(p, NODE_BETWEEN, x->pos, node_end(high) - x->pos);
    node_arg(p, n, x);
    node_arg(p, n, low);
    node_arg(p, n, high);
    return node_not(p, negated, n);
}

static void set_query(parser *p, node *n, query *q) {
    n->query = q;
    q->text = slice_of(p, q->pos, q->pos + q->len);
    deepen(p, &n->depth, q->depth, n->pos, n->len);
}

node *node_in(parser *p, bool negated, node *x, list *items, query *q, token end) {
    node *n = node_new(p, NODE_IN, x->pos, end.pos + end.len - x->pos);
    node_arg(p, n, x);
    for (int i = 0; items && i < items->n; i++)
        node_arg(p, n, items->items[i]);
    if (items && items->n == 1 && n->args[1]->kind == NODE_SUBQUERY) { /* x IN ((SELECT …)) */
        q = n->args[1]->query;
        n->nargs = 1;
    }
    if (q)
        set_query(p, n, q);
    return node_not(p, negated, n);
}

node *node_exists(parser *p, token at, query *q) {
    node *n = node_new(p, NODE_EXISTS, at.pos, q->pos + q->len - at.pos);
    set_query(p, n, q);
    return n;
}

node *node_subquery(parser *p, query *q) {
    node *n = node_new(p, NODE_SUBQUERY, q->pos, q->len);
    set_query(p, n, q);
    return n;
}

node *node_case(parser *p, token start, node *operand, list *whens, node *otherwise, token end) {
    node *n = node_new(p, NODE_CASE, start.pos, end.pos + end.len - start.pos);
    n->has_operand = operand != NULL;
    n->has_else = otherwise != NULL;
    if (operand)
        node_arg(p, n, operand);
    for (int i = 0; i < whens->n; i++)
        node_arg(p, n, whens->items[i]);
    if (otherwise)
        node_arg(p, n, otherwise);
    return n;
}

node *node_cast(parser *p, int start, node *x, type_spec type, int end) {
    node *n = node_new(p, NODE_CAST, start, end - start);
    n->type = type_of(p, type, &n->dims);
    node_arg(p, n, x);
    return n;
}

node *node_distance(parser *p, const char *function, node *x, node *y) {
    node *n = node_new(p, NODE_CALL, x->pos, node_end(y) - x->pos);
    n->name = (ident){str_from(function), x->pos, node_end(y) - x->pos};
    node_arg(p, n, x);
    node_arg(p, n, y);
    return n;
}

node *node_call(parser *p, token name, bool distinct, list *args, token end) {
    node *n = node_new(p, NODE_CALL, name.pos, end.pos + end.len - name.pos);
    n->name = ident_of(p, name);
    n->distinct = distinct;
    for (int i = 0; args && i < args->n; i++)
        node_arg(p, n, args->items[i]);
    return n;
}

node *node_call_star(parser *p, token name, token end) {
    node *n = node_call(p, name, false, NULL, end);
    n->star = true;
    return n;
}

node *node_ordered(parser *p, node *call, const list *order_by) {
    call->order_by = *order_by;
    for (int i = 0; i < order_by->n; i++)
        deepen(p, &call->depth, ((order_item *)order_by->items[i])->value->depth, call->pos,
               call->len);
    return call;
}

node *node_filter(parser *p, node *call, node *condition, token end) {
    call->filter = condition;
    deepen(p, &call->depth, condition->depth, call->pos, call->len);
    return node_span(call, call->pos, end.pos + end.len);
}

/* ---- windows --------------------------------------------------------------------------------- */

node *node_over(parser *p, node *call, window_spec *over) {
    call->over = over;
    deepen(p, &call->depth, over->depth, call->pos, call->len);
    return node_span(call, call->pos, over->pos + over->len);
}

window_spec *window_new(parser *p, token *base, list *partition_by, list *order_by,
                        frame_spec *frame) {
    window_spec *w = ARENA_NEW(p->mem, window_spec);
    w->depth = 1;
    w->frame = frame;
    if (base)
        w->base = ident_of(p, *base);
    if (partition_by)
        w->partition_by = *partition_by;
    if (order_by)
        w->order_by = *order_by;
    for (int i = 0; i < w->partition_by.n; i++)
        w->depth = BASE_MAX(w->depth, ((node *)w->partition_by.items[i])->depth);
    for (int i = 0; i < w->order_by.n; i++)
        w->depth = BASE_MAX(w->depth, ((order_item *)w->order_by.items[i])->value->depth);
    for (int i = 0; frame && i < 2; i++) {
        const node *offset = i ? frame->end.offset : frame->start.offset;
        w->depth = BASE_MAX(w->depth, offset ? offset->depth : 1);
    }
    return w;
}

window_spec *window_named(parser *p, token name) {
    window_spec *w = window_new(p, &name, NULL, NULL, NULL);
    w->is_name = true;
    w->pos = name.pos;
    w->len = name.len;
    return w;
}

window_spec *window_paren(window_spec *w, token open, token close) {
    w->pos = open.pos;
    w->len = close.pos + close.len - open.pos;
    return w;
}

window_def *window_def_new(parser *p, token name, window_spec *spec) {
    window_def *d = ARENA_NEW(p->mem, window_def);
    d->name = ident_of(p, name);
    d->spec = spec;
    return d;
}

bound_spec *bound_new(parser *p, bound_kind kind, node *offset, token start, token end) {
    bound_spec *b = ARENA_NEW(p->mem, bound_spec);
    int from = offset ? offset->pos : start.pos;
    *b = (bound_spec){kind, offset, from, end.pos + end.len - from};
    return b;
}

frame_spec *frame_new(parser *p, frame_unit unit, token start, const bound_spec *from,
                      const bound_spec *to, frame_exclude exclude) {
    frame_spec *f = ARENA_NEW(p->mem, frame_spec);
    const bound_spec here = {BOUND_CURRENT, NULL, from->pos, from->len}, *last = to ? to : from;
    *f = (frame_spec){unit,    *from,     to ? *to : here,
                      exclude, start.pos, last->pos + last->len - start.pos};
    return f;
}

/* ---- LLM calls ------------------------------------------------------------------------------- */

llm_arg *llm_arg_new(parser *p, node *x, token *alias, token *option) {
    llm_arg *a = ARENA_NEW(p->mem, llm_arg);
    a->value = x;
    if (alias)
        a->alias = ident_of(p, *alias);
    if (option)
        a->option = ident_of(p, *option);
    return a;
}

node *node_text_list(parser *p, token t) {
    node *n = node_new(p, NODE_ROW, t.pos, t.len);
    for (int at = 1; t.text.p[at] != ']'; at++) {
        if (t.text.p[at] != '\'')
            continue;
        token one = {{t.text.p + at, 0}, t.pos + at, 0};
        size_t length;
        const char *problem;
        sql_lex(p->text, (size_t)one.pos, &length, &problem);
        one.text.n = length;
        one.len = (int)length;
        node_arg(p, n, node_text(p, one));
        at += one.len - 1;
    }
    return n;
}

llm_type *llm_type_new(parser *p, token start, token name, list *literals, node *low, node *high,
                       token end) {
    llm_type *t = ARENA_NEW(p->mem, llm_type);
    t->given = true;
    t->name = ident_of(p, name);
    if (literals)
        t->literals = *literals;
    t->between = low != NULL;
    t->low = low;
    t->high = high;
    t->pos = start.pos;
    t->len = end.pos + end.len - start.pos;
    return t;
}

llm_type *llm_struct_new(parser *p, token name, const list *fields, token end) {
    llm_type *t = llm_type_new(p, name, name, NULL, NULL, NULL, end);
    t->fields = *fields;
    return t;
}

struct_field *struct_field_new(parser *p, token name, const llm_type *type,
                               const token *description) {
    struct_field *f = ARENA_NEW(p->mem, struct_field);
    int end = description ? description->pos + description->len : type->pos + type->len;
    *f = (struct_field){
        .name = ident_of(p, name), .type = *type, .pos = name.pos, .len = end - name.pos};
    if (description)
        f->description = text_of(p, *description);
    return f;
}

struct_field *struct_field_untyped(parser *p, token name) {
    ident n = ident_of(p, name);
    if (!p->failed) {
        int shown = (int)BASE_MIN(n.name.n, (size_t)60);
        parser_fail(p, ERR_SYNTAX, name.pos, name.len, "field \"%.*s\" of STRUCT has no type",
                    shown, n.name.p);
        size_t end = (size_t)name.pos + (size_t)name.len;
        if (end < p->text.n && p->text.p[end] == ':')
            err_hint(p->error, "write no colon between the name and its type: %.*s TEXT", shown,
                     n.name.p);
        else
            err_hint(p->error,
                     "add TEXT, ENUM('…', …), BOOLEAN, INTEGER [BETWEEN a AND b] or REAL after the "
                     "name: %.*s TEXT",
                     shown, n.name.p);
    }
    return struct_field_new(p, name, llm_type_new(p, name, name, NULL, NULL, NULL, name), NULL);
}

static void add_option(parser *p, list *options, const llm_arg *a) {
    llm_option *o = ARENA_NEW(p->mem, llm_option);
    *o = (llm_option){a->option, a->value};
    list_add(p->mem, options, o);
}

node *node_llm(parser *p, token start, const list *args, llm_on_error on_error, llm_type *returns,
               token end) {
    int stop = returns ? returns->pos + returns->len : end.pos + end.len;
    p->calls_model = true;
    node *n = node_new(p, NODE_LLM, start.pos, stop - start.pos);
    n->names = ARENA_ARRAY(p->mem, ident, args->n);
    const llm_arg *contexts = NULL;
    for (int i = 0; i < args->n; i++) {
        llm_arg *a = args->items[i];
        if (str_equal_nocase(a->option.name, STR("contexts"))) {
            if (contexts)
                parser_fail(p, ERR_BIND, a->option.pos, a->option.len,
                            "option contexts is given twice");
            contexts = a;
        } else if (a->option.name.n) {
            add_option(p, &n->options, a);
            deepen(p, &n->depth, a->value->depth, n->pos, n->len);
        } else {
            n->names[n->nargs] = a->alias;
            node_arg(p, n, a->value);
        }
    }
    if (contexts)
        node_contexts(p, n, contexts);
    n->on_error = on_error;
    if (returns)
        n->returns = *returns;
    return n;
}

/* ---- queries --------------------------------------------------------------------------------- */

static query *query_new(parser *p, query_kind kind, token start) {
    query *q = ARENA_NEW(p->mem, query);
    q->kind = kind;
    q->pos = start.pos;
    q->depth = 1;
    q->len = p->previous.pos + p->previous.len - start.pos;
    return q;
}

static void query_deepen(parser *p, query *q, int below) {
    deepen(p, &q->depth, below, q->pos, q->len);
}

static void query_deepen_list(parser *p, query *q, const list *nodes) {
    for (int i = 0; nodes && i < nodes->n; i++)
        query_deepen(p, q, ((node *)nodes->items[i])->depth);
}

query *query_paren(query *q, token open, token close) {
    q->pos = open.pos;
    q->len = close.pos + close.len - open.pos;
    return q;
}

/* True if q is a UNION ALL that can take another term: a UNION ALL b UNION ALL c is one chain of
 * three terms and adds only one level of depth. */
static bool is_chain(const query *q) {
    return q->kind == QUERY_SETOP && q->op == SETOP_UNION_ALL && !q->with.n && !q->order_by.n &&
           !q->limit && !q->offset;
}

query *query_setop(parser *p, set_op op, query *a, query *b) {
    query *q = a;
    if (a->kind == QUERY_SETOP && a->depth == AST_MAX_DEPTH && !p->failed) {
        parser_fail(p, ERR_LIMIT, b->pos, b->len,
                    "UNION, EXCEPT and INTERSECT combine fewer than %d SELECTs", AST_MAX_DEPTH);
        err_hint(p->error,
                 "UNION ALL has no such limit: write SELECT DISTINCT * FROM (… UNION ALL …)");
    }
    if (op != SETOP_UNION_ALL || !is_chain(a)) {
        q = query_new(p, QUERY_SETOP, (token){{NULL, 0}, a->pos, 0});
        q->op = op;
        list_add(p->mem, &q->terms, a);
        query_deepen(p, q, a->depth);
    }
    q->len = b->pos + b->len - q->pos;
    list_add(p->mem, &q->terms, b);
    query_deepen(p, q, b->depth);
    return q;
}

/* Returns the query to which an outer ORDER BY or LIMIT is added. This is q, or a new query around
 * q if q already has an ORDER BY or LIMIT. */
static query *query_wrap(parser *p, query *q) {
    if (!q->order_by.n && !q->limit && !q->offset)
        return q;
    query *outer = query_new(p, QUERY_SELECT, (token){{NULL, 0}, q->pos, 0});
    outer->len = q->len;
    list_add(p->mem, &outer->items,
             select_item_new(p, node_star(p, NULL, (token){{NULL, 0}, q->pos, 1}), NULL));
    outer->from = from_query(p, q);
    query_deepen(p, outer, q->depth);
    return outer;
}

query *query_tail(parser *p, query *q, list *order_by, node *limit, node *offset) {
    q = query_wrap(p, q);
    if (order_by) {
        q->order_by = *order_by;
        for (int i = 0; i < order_by->n; i++)
            query_deepen(p, q, ((order_item *)order_by->items[i])->value->depth);
    }
    q->limit = limit;
    q->offset = offset;
    q->len = p->previous.pos + p->previous.len - q->pos;
    return q;
}

query *query_with(parser *p, token start, query *q, list *with, bool recursive) {
    /* in WITH … (WITH … SELECT …) the names of the inner WITH stay local to q */
    if (q->with.n) {
        query *outer = query_new(p, QUERY_SELECT, (token){{NULL, 0}, q->pos, 0});
        list_add(p->mem, &outer->items,
                 select_item_new(p, node_star(p, NULL, (token){{NULL, 0}, q->pos, 1}), NULL));
        outer->from = from_query(p, q);
        query_deepen(p, outer, q->depth);
        q = outer;
    }
    q->with = *with;
    int end = p->previous.pos + p->previous.len;
    for (int i = 0; i < with->n; i++) {
        cte *c = with->items[i];
        c->recursive = recursive;
        query_deepen(p, q, c->query->depth);
    }
    q->pos = start.pos;
    q->len = end - start.pos;
    return q;
}

query *query_select(parser *p, token start, bool distinct, list *items, from_item *from,
                    node *where, list *group_by, node *having) {
    query *q = query_new(p, QUERY_SELECT, start);
    q->distinct = distinct;
    q->items = *items;
    for (int i = 0; i < items->n; i++)
        query_deepen(p, q, ((select_item *)items->items[i])->value->depth);
    q->from = from;
    if (from)
        query_deepen(p, q, from->depth);
    q->where = where;
    if (where)
        query_deepen(p, q, where->depth);
    if (group_by) {
        q->group_by = *group_by;
        query_deepen_list(p, q, group_by);
    }
    q->having = having;
    if (having)
        query_deepen(p, q, having->depth);
    return q;
}

query *query_windows(parser *p, query *q, list *windows, node *qualify) {
    if (windows)
        q->windows = *windows;
    for (int i = 0; i < q->windows.n; i++)
        query_deepen(p, q, ((window_def *)q->windows.items[i])->spec->depth);
    q->qualify = qualify;
    if (qualify)
        query_deepen(p, q, qualify->depth);
    q->len = p->previous.pos + p->previous.len - q->pos;
    return q;
}

query *query_values(parser *p, token start, list *rows) {
    query *q = query_new(p, QUERY_VALUES, start);
    q->rows = *rows;
    for (int i = 0; i < rows->n; i++)
        query_deepen_list(p, q, rows->items[i]);
    return q;
}

void assign_row(parser *p, list *to, const list *columns, node *x) {
    bool row = x->kind == NODE_ROW;
    int n = row ? x->nargs : 1;
    if (x->kind == NODE_SUBQUERY && columns->n > 1 && !p->failed) {
        parser_fail(p, ERR_UNSUPPORTED, x->pos, x->len,
                    "setting several columns from one subquery is not supported");
        err_hint(p->error, "write UPDATE … SET a = q.a, b = q.b FROM (SELECT …) AS q WHERE …");
    }
    if (n != columns->n)
        parser_fail(p, ERR_SYNTAX, x->pos, x->len, "%d column%s cannot be set to %d value%s",
                    columns->n, columns->n == 1 ? "" : "s", n, n == 1 ? "" : "s");
    for (int i = 0; i < n && i < columns->n; i++) {
        assignment *a = ARENA_NEW(p->mem, assignment);
        a->column = *(ident *)columns->items[i];
        a->value = row ? x->args[i] : x;
        list_add(p->mem, to, a);
    }
}

cte *cte_new(parser *p, token name, list *columns, query *q, cte_sharing sharing) {
    cte *c = ARENA_NEW(p->mem, cte);
    c->name = ident_of(p, name);
    if (columns)
        c->columns = *columns;
    c->query = q;
    c->sharing = sharing;
    return c;
}

static from_item *from_new(parser *p, from_kind kind, int pos, int len) {
    from_item *f = ARENA_NEW(p->mem, from_item);
    f->kind = kind;
    f->pos = pos;
    f->len = len;
    f->depth = 1;
    return f;
}

from_item *from_name(parser *p, token name) {
    from_item *f = from_new(p, FROM_NAME, name.pos, name.len);
    f->name = ident_of(p, name);
    return f;
}

from_item *from_file(parser *p, token path) {
    from_item *f = from_new(p, FROM_FILE, path.pos, path.len);
    f->path = text_of(p, path);
    return f;
}

from_item *from_function(parser *p, token name, const list *args, token end) {
    from_item *f = from_new(p, FROM_FUNCTION, name.pos, end.pos + end.len - name.pos);
    f->name = ident_of(p, name);
    for (int i = 0; i < args->n; i++) {
        llm_arg *a = args->items[i];
        deepen(p, &f->depth, a->value->depth, f->pos, f->len);
        if (a->option.name.n)
            add_option(p, &f->options, a);
        else
            list_add(p->mem, &f->args, a->value);
        if (a->value->kind == NODE_STAR || a->alias.name.n)
            parser_fail(p, ERR_SYNTAX, a->value->pos, a->value->len,
                        "a function in FROM takes values");
    }
    return f;
}

from_item *from_query(parser *p, query *q) {
    from_item *f = from_new(p, FROM_QUERY, q->pos, q->len);
    f->query = q;
    deepen(p, &f->depth, q->depth, f->pos, f->len);
    return f;
}

from_item *from_llm(parser *p, node *llm) {
    from_item *f = from_new(p, FROM_LLM, llm->pos, llm->len);
    f->llm = llm;
    deepen(p, &f->depth, llm->depth, f->pos, f->len);
    return f;
}

from_item *from_alias(parser *p, from_item *f, token *alias, list *columns) {
    f->alias = ident_of(p, *alias);
    if (columns)
        f->columns = *columns;
    return f;
}

from_item *from_join(parser *p, join_kind kind, from_item *a, from_item *b, node *on,
                     list *using_columns) {
    from_item *f = from_new(p, FROM_JOIN, a->pos, b->pos + b->len - a->pos);
    f->join = kind;
    f->left = a;
    f->right = b;
    f->on = on;
    if (using_columns)
        f->using_columns = *using_columns;
    deepen(p, &f->depth, a->depth, f->pos, f->len);
    deepen(p, &f->depth, b->depth, f->pos, f->len);
    if (on)
        deepen(p, &f->depth, on->depth, f->pos, f->len);
    return f;
}

bool is_split(const from_item *f) {
    return f->kind == FROM_FUNCTION && (str_equal_nocase(f->name.name, STR("chunk")) ||
                                        str_equal_nocase(f->name.name, STR("string_split")));
}

static bool item_reaches_left(const from_item *f) {
    return f->kind == FROM_LLM || f->lateral || is_split(f);
}

/* True if an item of the tree sees the tables to the left of the tree. NATURAL would match the columns
 * of these tables, too, if they were in its tree. */
static bool reaches_left(const from_item *f) {
    if (f->kind != FROM_JOIN)
        return item_reaches_left(f);
    return !f->natural.name.n && (reaches_left(f->left) || item_reaches_left(f->right));
}

from_item *from_comma(parser *p, from_item *a, from_item *b) {
    if (b->kind != FROM_JOIN || !reaches_left(b))
        return from_join(p, JOIN_CROSS, a, b, NULL, NULL);
    return from_join(p, b->join, from_comma(p, a, b->left), b->right, b->on, &b->using_columns);
}

order_item *order_item_new(parser *p, node *x, bool descending, int nulls) {
    order_item *o = ARENA_NEW(p->mem, order_item);
    o->value = x;
    o->descending = descending;
    o->nulls_given = nulls >= 0;
    o->nulls_first = nulls >= 0 ? nulls != 0 : descending;
    return o;
}

select_item *select_item_new(parser *p, node *x, token *alias) {
    select_item *s = ARENA_NEW(p->mem, select_item);
    s->value = x;
    if (alias)
        s->alias = ident_of(p, *alias);
    return s;
}

ast *ast_new(parser *p, ast_kind kind) {
    ast *a = ARENA_NEW(p->mem, ast);
    a->kind = kind;
    return a;
}

ast *ast_insert(parser *p, token name, list *columns, query *q, ast *conflict) {
    ast *a = ast_new(p, AST_INSERT);
    a->name = ident_of(p, name);
    a->query = q;
    a->default_values = q == NULL;
    if (columns)
        a->columns = *columns;
    if (conflict) {
        a->on_conflict = conflict->on_conflict;
        a->conflict_columns = conflict->conflict_columns;
        a->conflict_set = conflict->conflict_set;
        a->conflict_where = conflict->conflict_where;
    }
    return a;
}
