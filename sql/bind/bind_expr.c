/*
 * bind_expr.c - expressions: resolves names to columns, converts operands to common types and keeps
 * track of guards.
 *
 * The guard (b->at.guard) is the condition under which the value being bound is evaluated; an LLM
 * call in that value is asked only for rows that satisfy the guard. AND, OR and CASE add conditions
 * to the guard in this file; COALESCE, IIF and FILTER in bind_call.c. Invariant: a bound expression
 * refers to columns by id and contains no LLM call and no subquery: calls and subqueries are steps
 * of b->at.lift.
 */
#include <string.h>

#include "bind_int.h"

/* ---- tests ----------------------------------------------------------------------------------- */

static expr *test(binder *b, expr *x, value v, bool negated) {
    expr *with = expr_literal(b->mem, v);
    with->type = v.type == TYPE_NULL ? x->type : v.type;
    return expr_op2(b->mem, negated ? OP_IS_NOT : OP_IS, TYPE_BOOLEAN, x, with);
}

expr *is_true(binder *b, expr *x, bool negated) {
    return test(b, x, value_bool(true), negated);
}

static expr *is_false(binder *b, expr *x, bool negated) {
    return test(b, x, value_bool(false), negated);
}

expr *is_null(binder *b, expr *x) {
    return test(b, x, value_null(), false);
}

/* A volatile condition is not added to the guard. It may differ when evaluated a second time, and
 * then the model would not be asked for a row that needs the answer. */
expr *bind_guarded(binder *b, const node *n, expr *more) {
    expr *before = b->at.guard;
    if (more && !expr_is_volatile(more))
        b->at.guard = expr_and(b->mem, before, more);
    expr *x = bind_expr(b, n);
    b->at.guard = before;
    return x;
}

expr *bind_condition(binder *b, const node *n, truth_context matters) {
    truth_context before = b->at.truth;
    b->at.truth = matters;
    expr *x = bind_as(b, n, TYPE_BOOLEAN);
    b->at.truth = before;
    return x ? to_condition(b, x) : NULL;
}

/* Maximum number of nodes that copies of operands may add: nested copies grow exponentially. */
enum { MAX_COPIES = 1 << 20 };

/* Binds an operand that occurs `times` times in the bound tree, as in x BETWEEN a AND b. */
static expr *bind_repeated(binder *b, const node *n, int times) {
    int64_t before = b->copies;
    b->copies = BASE_MIN((before ? before : 1) * times, (int64_t)MAX_COPIES + 1);
    expr *x = bind_expr(b, n);
    b->copies = before;
    return x;
}

/* Returns the operand in a form that can occur in several comparisons. A volatile operand must be
 * evaluated only once: *draw is set to it, and the result is an EXPR_LET_VAR, which let_over makes
 * read its value. For any other operand *draw is NULL. */
static expr *shared_operand(binder *b, expr *operand, expr **draw) {
    *draw = expr_is_volatile(operand) ? operand : NULL;
    if (!*draw)
        return operand;
    return expr_at(expr_new(b->mem, EXPR_LET_VAR, operand->type, 0), operand->pos, operand->len);
}

/* Returns x with its EXPR_LET_VARs reading the value of `draw`; x itself if draw is NULL. */
static expr *let_over(binder *b, expr *draw, expr *x) {
    if (!draw || !x)
        return x;
    expr *once = expr_new(b->mem, EXPR_LET, x->type, 2);
    once->args[0] = draw;
    once->args[1] = x;
    return once;
}

static bool count_copies(binder *b, const node *n) {
    b->excess += b->copies > 1 ? b->copies - 1 : 0;
    if (b->excess <= MAX_COPIES)
        return true;
    fail(b, ERR_LIMIT, n->pos, n->len,
         "the expression is too large: nested BETWEEN, IN and CASE copy their operands");
    return false;
}

/* True if n may contain an LLM call. A subquery counts, because it may read a view with a call. */
static bool may_have_call(const node *n) {
    if (n->kind == NODE_LLM || n->query)
        return true;
    for (int i = 0; i < n->nargs; i++)
        if (may_have_call(n->args[i]))
            return true;
    for (int i = 0; i < n->order_by.n; i++)
        if (may_have_call(((order_item *)n->order_by.items[i])->value))
            return true;
    return n->filter && may_have_call(n->filter);
}

/* ---- names and values ------------------------------------------------------------------------ */

/* Returns the select item whose alias is n, or NULL. */
static const output *find_alias(const binder *b, const node *n) {
    for (int i = 0; b->at.aliases && !n->qualifier.name.n && i < b->at.naliases; i++)
        if (b->at.aliases[i].value && str_equal_nocase(b->at.aliases[i].name, n->name.name))
            return &b->at.aliases[i];
    return NULL;
}

/* Binds an alias as the value of its select item. ORDER BY is bound after the select list and
 * reuses the bound item; GROUP BY and HAVING bind the item again. An alias is not visible inside
 * its own definition. */
static expr *bind_alias(binder *b, const node *n, const output *meant) {
    const output *aliases = b->at.aliases;
    err_clear(b->e);
    if (meant->bound)
        return meant->bound;
    b->at.aliases = NULL;
    expr *x = bind_expr(b, meant->value);
    b->at.aliases = aliases;
    if (x && (b->at.group || b->at.reevaluated_by) && expr_is_volatile(x) &&
        !(b->at.group && group_has_key(b->at.group, x))) {
        fail_node(b, n,
                  "\"%.*s\" is not deterministic: %s would evaluate it again and see another value",
                  (int)n->name.name.n, n->name.name.p,
                  b->at.reevaluated_by ? b->at.reevaluated_by : "HAVING");
        err_hint(b->e, "compute it in a subquery: SELECT … FROM (SELECT …) WHERE …");
        return NULL;
    }
    return x;
}

bool is_time_word(str name, function_id *function) {
    static const struct {
        const char *name;
        function_id function;
    } words[] = {{"current_date", FUNC_DATE},
                 {"current_time", FUNC_TIME},
                 {"current_timestamp", FUNC_DATETIME}};
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        if (str_equal_nocase(name, str_from(words[i].name))) {
            *function = words[i].function;
            return true;
        }
    return false;
}

static expr *current_time_of(binder *b, const node *n) {
    function_id function;
    if (n->qualifier.name.n || ident_quoted(n->name) || !is_time_word(n->name.name, &function))
        return NULL;
    expr *x = expr_new(b->mem, EXPR_FUNC, TYPE_TEXT, 0);
    x->function = function;
    return x;
}

static str qualified(binder *b, const scope_column *c) {
    if (!c->table.n)
        return c->name;
    return str_from(
        arena_printf(b->mem, "%.*s.%.*s", (int)c->table.n, c->table.p, (int)c->name.n, c->name.p));
}

static expr *bind_column(binder *b, const node *n) {
    expr *now = current_time_of(b, n);
    if (now)
        return now;
    const scope_column *c = scope_find(b, n);
    if (c)
        return expr_column(b->mem, c->id, c->type, qualified(b, c));
    const output *meant = find_alias(b, n);
    return meant ? bind_alias(b, n, meant) : NULL;
}

static expr *bind_variable(binder *b, const node *n) {
    for (int i = 0; i + 1 < 2 * b->env->nvariables; i += 2)
        if (str_equal(b->env->variables[i], n->name.name))
            return expr_literal(b->mem, value_text(b->env->variables[i + 1]));
    fail_node(b, n, "no variable :%.*s", (int)n->name.name.n, n->name.name.p);
    err_hint(b->e, "define it with .set %.*s=VALUE", (int)n->name.name.n, n->name.name.p);
    return NULL;
}

/* ---- operators ------------------------------------------------------------------------------- */

/* Returns the condition under which operand x of AND or OR does not determine the result. A NULL
 * operand does not, unless the context treats NULL like the value that would determine it. */
static expr *not_decisive(binder *b, expr_op op, truth_context matters, expr *x) {
    if (op == OP_AND)
        return matters == TRUTH_TRUE ? x : is_false(b, x, true);
    return matters == TRUTH_FALSE ? is_false(b, x, false) : is_true(b, x, true);
}

/* Returns the guard of operand i of AND or OR: no operand before it determines the result. */
static expr *undecided(binder *b, const node *n, expr **before, int i) {
    expr **open = ARENA_ARRAY(b->mem, expr *, i);
    int nopen = 0;
    for (int k = 0; k < i; k++)
        if (!expr_is_volatile(before[k]))
            open[nopen++] = not_decisive(b, n->op, b->at.truth, before[k]);
    return nopen ? expr_chain(b->mem, OP_AND, open, nopen) : NULL;
}

static expr *bind_chain(binder *b, const node *n) {
    expr **args = ARENA_ARRAY(b->mem, expr *, n->nargs), *before = b->at.guard;
    for (int i = 0; i < n->nargs; i++) {
        if (i > 0 && may_have_call(n->args[i]))
            b->at.guard = expr_and(b->mem, before, undecided(b, n, args, i));
        args[i] = bind_condition(b, n->args[i], b->at.truth);
        b->at.guard = before;
        if (!args[i])
            return NULL;
    }
    return expr_chain(b->mem, n->op, args, n->nargs);
}

static expr *bind_concat(binder *b, const node *n) {
    expr **args = ARENA_ARRAY(b->mem, expr *, n->nargs);
    bool constant = true, null = false;
    for (int i = 0; i < n->nargs; i++) {
        expr *arg = bind_expr(b, n->args[i]);
        if (!arg || !(arg = to_type(b, arg, TYPE_TEXT, "||")))
            return NULL;
        args[i] = arg;
        constant = constant && arg->kind == EXPR_LITERAL;
        null = null || expr_is_null(arg);
    }
    if (!constant)
        return expr_chain(b->mem, OP_CONCAT, args, n->nargs);
    buf joined = {0};
    for (int i = 0; i < n->nargs; i++)
        value_print(&joined, args[i]->literal);
    expr *folded =
        expr_literal(b->mem, null ? value_null() : value_text(str_copy(b->mem, buf_str(&joined))));
    folded->type = TYPE_TEXT;
    buf_free(&joined);
    return folded;
}

static expr *bind_arithmetic(binder *b, const node *n) {
    static const char *const names[] = {"+", "-", "*", "/", "%"};
    expr *l = bind_expr(b, n->args[0]);
    expr *r = l ? bind_expr(b, n->args[1]) : NULL;
    if (!r)
        return NULL;
    const char *what = names[n->op];
    if (!(l = to_number(b, l, what)) || !(r = to_number(b, r, what)))
        return NULL;
    value_type type = l->type == TYPE_REAL || r->type == TYPE_REAL ? TYPE_REAL : TYPE_INTEGER;
    if (!(l = to_type(b, l, type, what)) || !(r = to_type(b, r, type, what)))
        return NULL;
    return expr_op2(b->mem, n->op, type, l, r);
}

static expr *bind_negative(binder *b, const node *n) {
    expr *x = bind_expr(b, n->args[0]);
    if (!x || !(x = to_number(b, x, "-")))
        return NULL;
    return expr_op1(b->mem, OP_NEG, x->type, x);
}

static expr *comparison(binder *b, expr_op op, expr *l, expr *r, const node *n) {
    if (unify_comparison(b, op, &l, &r, n->pos, n->len))
        return NULL;
    return expr_op2(b->mem, op, TYPE_BOOLEAN, l, r);
}

static void note_null(binder *b, const expr *l, const expr *r) {
    if (b->view_depth == 0 && (l->type == TYPE_NULL || r->type == TYPE_NULL) &&
        !(expr_is_constant(l) && expr_is_constant(r)))
        b->compares_null = true;
}

static expr *bind_row_comparison(binder *b, const node *n);

static bool has_row(const node *n) {
    return n->args[0]->kind == NODE_ROW || n->args[1]->kind == NODE_ROW;
}

/* Returns the type that an LLM call without RETURNS gets from a comparison with n: the type of a
 * number literal, else TYPE_NULL (llm_note_use handles other operands). */
static value_type used_beside(const node *n) {
    return n->kind == NODE_LITERAL && type_is_number(n->literal.type) ? n->literal.type : TYPE_NULL;
}

static expr *bind_comparison(binder *b, const node *n) {
    if (has_row(n))
        return bind_row_comparison(b, n);
    expr *l = bind_as(b, n->args[0], used_beside(n->args[1]));
    expr *r = l ? bind_as(b, n->args[1], used_beside(n->args[0])) : NULL;
    if (!r)
        return NULL;
    note_null(b, l, r);
    return comparison(b, n->op, l, r, n);
}

/* Binds IS. x IS TRUE accepts numbers, as conditions do; x IS NULL accepts any type. */
static expr *bind_is(binder *b, const node *n) {
    if (has_row(n))
        return bind_row_comparison(b, n);
    expr *l = bind_expr(b, n->args[0]);
    expr *r = l ? bind_expr(b, n->args[1]) : NULL;
    if (!r)
        return NULL;
    if (r->kind == EXPR_LITERAL && r->type == TYPE_BOOLEAN && !(l = to_condition(b, l)))
        return NULL;
    return comparison(b, n->op, l, r, n);
}

static expr *bind_like(binder *b, const node *n) {
    static const char *const names[] = {"LIKE", "ILIKE", "GLOB"};
    const char *what = names[n->op - OP_LIKE];
    expr *x = expr_new(b->mem, EXPR_OP, TYPE_BOOLEAN, n->nargs);
    x->op = n->op;
    for (int i = 0; i < n->nargs; i++) {
        expr *arg = bind_expr(b, n->args[i]);
        if (!arg || !(x->args[i] = to_type_implicit(b, arg, TYPE_TEXT, what)))
            return NULL;
    }
    if (n->nargs == 3 && x->args[2]->kind == EXPR_LITERAL && !expr_is_null(x->args[2]) &&
        utf8_length(x->args[2]->literal.s) != 1) {
        fail_node(b, n->args[2], "ESCAPE must be one character");
        return NULL;
    }
    return x;
}

static expr *bind_row_between(binder *b, const node *n);

static expr *bind_between(binder *b, const node *n) {
    if (has_row(n) || n->args[2]->kind == NODE_ROW)
        return bind_row_between(b, n);
    expr *x = bind_repeated(b, n->args[0], 2);
    expr *low = x ? bind_expr(b, n->args[1]) : NULL;
    expr *high = low ? bind_expr(b, n->args[2]) : NULL;
    if (!high)
        return NULL;
    expr *draw, *operand = shared_operand(b, x, &draw);
    expr *from = comparison(b, OP_GE, operand, low, n),
         *to = from ? comparison(b, OP_LE, operand, high, n) : NULL;
    return to ? let_over(b, draw, expr_and(b->mem, from, to)) : NULL;
}

static expr *bind_row_in(binder *b, const node *n, bool searched);

static expr *bind_in(binder *b, const node *n) {
    bool searched = b->at.truth == TRUTH_TRUE;
    b->at.truth = TRUTH_ANY;
    if (n->query)
        return bind_in_query(b, n);
    if (n->args[0]->kind == NODE_ROW)
        return bind_row_in(b, n, searched);
    expr *in = expr_new(b->mem, EXPR_IN, TYPE_BOOLEAN, n->nargs);
    if (!(in->args[0] = bind_as(b, n->args[0], used_beside(n->args[1]))))
        return NULL;
    for (int i = 1; i < n->nargs; i++) {
        expr *x = in->args[0];
        if (!(in->args[i] = bind_expr(b, n->args[i])) ||
            unify_comparison(b, OP_EQ, &x, &in->args[i], n->pos, n->len))
            return NULL;
        if (expr_is_null(in->args[0]) || in->args[0]->kind != EXPR_LITERAL)
            in->args[0] = x; /* x may now be a typed NULL, or a BOOLEAN converted to INTEGER */
    }
    return in;
}

static expr *bind_not(binder *b, const node *n) {
    static const truth_context opposite[] = {
        [TRUTH_ANY] = TRUTH_ANY, [TRUTH_TRUE] = TRUTH_FALSE, [TRUTH_FALSE] = TRUTH_TRUE};
    expr *x = bind_condition(b, n->args[0], opposite[b->at.truth]);
    return x ? expr_op1(b->mem, OP_NOT, TYPE_BOOLEAN, x) : NULL;
}

static expr *bind_op(binder *b, const node *n) {
    switch (n->op) {
    case OP_AND:
    case OP_OR:
        return bind_chain(b, n);
    case OP_CONCAT:
        return bind_concat(b, n);
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_DIV:
    case OP_MOD:
        return bind_arithmetic(b, n);
    case OP_NEG:
        return bind_negative(b, n);
    case OP_EQ:
    case OP_NE:
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
        return bind_comparison(b, n);
    case OP_IS:
    case OP_IS_NOT:
        return bind_is(b, n);
    case OP_LIKE:
    case OP_ILIKE:
    case OP_GLOB:
        return bind_like(b, n);
    case OP_NOT:
        return bind_not(b, n);
    case EXPR_OPS:
        break;
    }
    return NULL;
}

/* ---- rows of values -------------------------------------------------------------------------- */

/* A comparison of rows is expanded into comparisons of their parts, which can use an index. */

static bool rows_match(binder *b, const node *l, const node *r) {
    if (l->kind == NODE_ROW && r->kind == NODE_ROW) {
        if (l->nargs == r->nargs)
            return true;
        fail_node(b, r, "cannot compare a row of %d values with a row of %d", l->nargs, r->nargs);
        return false;
    }
    const node *row = l->kind == NODE_ROW ? l : r, *other = row == l ? r : l;
    fail_node(b, other, "a row of %d values can only be compared with another row", row->nargs);
    if (other->kind == NODE_SUBQUERY)
        err_hint(b->e, "write (…) IN (SELECT …) to search the rows of a query");
    return false;
}

/* One part of two compared rows. */
typedef struct row_pair {
    expr *x, *y; /* of the left row, of the right row */
    expr *equal; /* x = y; x IS y in IS and IS NOT */
    expr *draw;  /* the volatile operand, or NULL: see shared_operand */
} row_pair;

/* Binds one part of two compared rows, which occurs `times` times in the bound tree. */
static bool bind_pair(binder *b, const node *l, const node *r, int times, row_pair *out) {
    *out = (row_pair){.x = bind_repeated(b, l, times)};
    out->y = out->x ? bind_repeated(b, r, times) : NULL;
    if (!out->y)
        return false;
    if (times == 1)
        return true;
    if (expr_is_volatile(out->x) && expr_is_volatile(out->y)) {
        fail_node(b, r, "row comparison needs at least one side without random()");
        err_hint(b->e, "compute one of them in a subquery: FROM (SELECT random() AS r)");
        return false;
    }
    if (expr_is_volatile(out->x))
        out->x = shared_operand(b, out->x, &out->draw);
    else
        out->y = shared_operand(b, out->y, &out->draw);
    return true;
}

/* Binds the parts of two rows. The guard of each part is that the parts before it are not known to
 * differ. */
static bool bind_pairs(binder *b, const node *n, int times, row_pair *pairs) {
    const node *l = n->args[0], *r = n->args[1];
    expr_op same = n->op == OP_IS || n->op == OP_IS_NOT ? OP_IS : OP_EQ;
    expr *guard = b->at.guard, *undecided = NULL;
    for (int i = 0; i < l->nargs; i++) {
        if (may_have_call(l->args[i]) || may_have_call(r->args[i]))
            b->at.guard = expr_and(b->mem, guard, undecided);
        bool ok = bind_pair(b, l->args[i], r->args[i], i + 1 < l->nargs ? times : 1, &pairs[i]);
        b->at.guard = guard;
        expr *x = pairs[i].x, *y = pairs[i].y;
        if (!ok || unify_comparison(b, n->op, &x, &y, r->args[i]->pos, r->args[i]->len))
            return false;
        /* `=` with a NULL part is never true; <> and < may be true because of another part */
        if (n->op == OP_EQ)
            note_null(b, pairs[i].x, pairs[i].y);
        expr *equal = pairs[i].equal = expr_op2(b->mem, same, TYPE_BOOLEAN, x, y);
        if (!expr_is_volatile(equal))
            undecided = expr_and(b->mem, undecided, is_false(b, equal, true));
    }
    return true;
}

/* Binds (a, b) < (c, d) as a <= c AND (a < c OR b < d). */
static expr *bind_row_order(binder *b, const node *n) {
    int count = n->args[1]->nargs;
    bool less = n->op == OP_LT || n->op == OP_LE;
    row_pair *pairs = ARENA_ARRAY(b->mem, row_pair, count);
    if (!bind_pairs(b, n, 2, pairs))
        return NULL;
    expr *x = comparison(b, n->op, pairs[count - 1].x, pairs[count - 1].y, n);
    for (int i = count - 2; i >= 0 && x; i--) {
        row_pair *p = &pairs[i];
        expr *first = comparison(b, less ? OP_LE : OP_GE, p->x, p->y, n);
        expr *decides = first ? comparison(b, less ? OP_LT : OP_GT, p->x, p->y, n) : NULL;
        if (!decides)
            return NULL;
        expr *either = expr_chain(b->mem, OP_OR, (expr *[]){decides, x}, 2);
        x = let_over(b, p->draw, expr_and(b->mem, first, either));
    }
    return x;
}

static expr *bind_row_comparison(binder *b, const node *n) {
    const node *r = n->args[1];
    if (!rows_match(b, n->args[0], r))
        return NULL;
    if (n->op >= OP_LT && n->op <= OP_GE)
        return bind_row_order(b, n);
    row_pair *pairs = ARENA_ARRAY(b->mem, row_pair, r->nargs);
    expr **parts = ARENA_ARRAY(b->mem, expr *, r->nargs);
    if (!bind_pairs(b, n, 1, pairs))
        return NULL;
    bool differ = n->op == OP_NE || n->op == OP_IS_NOT;
    for (int i = 0; i < r->nargs; i++) {
        parts[i] = differ ? comparison(b, n->op, pairs[i].x, pairs[i].y, n) : pairs[i].equal;
        if (!parts[i])
            return NULL;
    }
    return expr_chain(b->mem, differ ? OP_OR : OP_AND, parts, r->nargs);
}

static node *compared(binder *b, expr_op op, node *l, node *r) {
    node *n = ARENA_NEW(b->mem, node);
    *n = (node){.kind = NODE_OP, .pos = r->pos, .len = r->len, .op = op, .nargs = 2};
    n->args = ARENA_ARRAY(b->mem, node *, 2);
    n->args[0] = l;
    n->args[1] = r;
    return n;
}

static expr *bind_row_between(binder *b, const node *n) {
    node *both = compared(b, OP_AND, compared(b, OP_GE, n->args[0], n->args[1]),
                          compared(b, OP_LE, n->args[0], n->args[2]));
    expr *x = bind_repeated(b, both, 2);
    if (x && expr_is_volatile(x)) {
        fail_node(b, n, "BETWEEN for rows does not support random()");
        return NULL;
    }
    return x;
}

/* Returns the condition that part i is one of the listed values; an index can use it. Returns NULL
 * if the values are not constants or are not compared with a plain column. */
static expr *listed_values(binder *b, expr *const *equal, int nrows, int width, int i) {
    expr *in = expr_new(b->mem, EXPR_IN, TYPE_BOOLEAN, nrows + 1);
    in->args[0] = equal[i]->args[0];
    for (int k = 0; k < nrows; k++) {
        const expr *x = equal[k * width + i];
        if (x->args[0]->kind != EXPR_COLUMN || !expr_is_constant(x->args[1]) ||
            llm_info_of(b, x->args[0]))
            return NULL;
        in->args[k + 1] = x->args[1];
    }
    return in;
}

/* Binds (a, b) IN ((1, 2), (3, 4)) as (a = 1 AND b = 2) OR (a = 3 AND b = 4), preceded by the
 * implied a IN (1, 3) AND b IN (2, 4), which can use indexes. A long list becomes a hash lookup,
 * like IN (VALUES …); the implied conditions are then added only if `searched`, which says that the
 * context needs only the rows for which the result is true. */
static expr *bind_row_in(binder *b, const node *n, bool searched) {
    enum { HASHED_ROWS = 32 }; /* with fewer rows, comparing costs less than hashing */
    const node *l = n->args[0];
    int width = l->nargs, nrows = n->nargs - 1;
    expr **left = ARENA_ARRAY(b->mem, expr *, width), *draw = NULL;
    for (int i = 0; i < width; i++) {
        if (!(left[i] = bind_repeated(b, l->args[i], 2 * nrows)))
            return NULL;
        if (nrows > 1 && draw && expr_is_volatile(left[i])) {
            fail_node(b, l->args[i], "only one value of the row before IN may use random()");
            return NULL;
        }
        if (nrows > 1 && !draw)
            left[i] = shared_operand(b, left[i], &draw);
    }
    expr **equal = ARENA_ARRAY(b->mem, expr *, nrows * width);
    expr **any = ARENA_ARRAY(b->mem, expr *, nrows), **all = ARENA_ARRAY(b->mem, expr *, width + 1);
    for (int k = 0; k < nrows; k++) {
        const node *r = n->args[k + 1];
        if (!rows_match(b, l, r))
            return NULL;
        for (int i = 0; i < width; i++) {
            expr *x = left[i], *y = bind_expr(b, r->args[i]);
            if (!y || !(equal[k * width + i] = comparison(b, OP_EQ, x, y, r->args[i])))
                return NULL;
        }
        any[k] = expr_chain(b->mem, OP_AND, &equal[k * width], width);
    }
    int nall = 0;
    bool long_list = nrows >= HASHED_ROWS && !draw && !may_have_call(l);
    expr *hashed = long_list ? bind_in_rows(b, equal, nrows, width) : NULL;
    for (int i = 0; i < width && nrows > 1 && (searched || !hashed); i++)
        if ((all[nall] = listed_values(b, equal, nrows, width, i)) != NULL)
            nall++;
    all[nall++] = hashed ? hashed : expr_chain(b->mem, OP_OR, any, nrows);
    return let_over(b, draw, expr_chain(b->mem, OP_AND, all, nall));
}

/* ---- CASE ------------------------------------------------------------------------------------ */

/* Binds CASE x WHEN v … as CASE WHEN x = v …, with x evaluated once. The guard of a branch is that
 * its condition is true and the conditions before it were not true. */
static expr *bind_case(binder *b, const node *n) {
    int at = n->has_operand ? 1 : 0, branches = (n->nargs - at - (n->has_else ? 1 : 0)) / 2;
    expr *operand = n->has_operand ? bind_repeated(b, n->args[0], branches) : NULL;
    if (n->has_operand && !operand)
        return NULL;
    expr *draw = NULL, *x = expr_new(b->mem, EXPR_CASE, TYPE_NULL, 2 * branches + 1);
    if (operand)
        operand = shared_operand(b, operand, &draw);
    expr **values = ARENA_ARRAY(b->mem, expr *, branches + 1);
    expr *none_before = NULL;
    for (int i = 0; i < branches; i++) {
        const node *when = n->args[at + 2 * i], *then = n->args[at + 2 * i + 1];
        b->at.truth = operand ? TRUTH_ANY : TRUTH_TRUE;
        expr *condition = bind_guarded(b, when, none_before);
        b->at.truth = TRUTH_ANY;
        if (condition)
            condition = operand ? comparison(b, OP_EQ, operand, condition, when)
                                : to_condition(b, condition);
        if (!condition)
            return NULL;
        x->args[2 * i] = condition;
        expr *here = may_have_call(then) ? expr_and(b->mem, none_before, condition) : NULL;
        if (!(values[i] = bind_guarded(b, then, here)))
            return NULL;
        none_before = expr_and(b->mem, none_before, is_true(b, condition, true));
    }
    values[branches] = n->has_else ? bind_guarded(b, n->args[n->nargs - 1], none_before)
                                   : expr_literal(b->mem, value_null());
    if (!values[branches] || unify_all(b, values, branches + 1, "CASE", &x->type))
        return NULL;
    for (int i = 0; i < branches; i++)
        x->args[2 * i + 1] = values[i];
    x->args[2 * branches] = values[branches];
    if (x->type == TYPE_NULL)
        return expr_literal(b->mem, value_null());
    return let_over(b, draw, x);
}

/* ---- bind_expr ------------------------------------------------------------------------------- */

static expr *bind_cast(binder *b, const node *n) {
    expr *x = bind_expr(b, n->args[0]);
    return x ? to_written_type(b, x, n->type, n->dims) : NULL;
}

static expr *bind_kind(binder *b, const node *n, value_type used) {
    switch (n->kind) {
    case NODE_LITERAL:
        return expr_literal(b->mem, n->literal);
    case NODE_VARIABLE:
        return bind_variable(b, n);
    case NODE_BOUND:
        return expr_column(b->mem, n->bound->column.id, n->bound->type, n->bound->column.name);
    case NODE_COLUMN:
        return bind_column(b, n);
    case NODE_STAR:
        fail_node(b, n, "* is allowed only in a select list and in LLM()");
        return NULL;
    case NODE_DEFAULT:
        fail_node(b, n, "DEFAULT is allowed only in INSERT … VALUES");
        return NULL;
    case NODE_OP:
        return bind_op(b, n);
    case NODE_ROW:
        fail_node(b, n, "a row of values is allowed only in comparisons, BETWEEN and IN");
        return NULL;
    case NODE_BETWEEN:
        return bind_between(b, n);
    case NODE_IN:
        return bind_in(b, n);
    case NODE_EXISTS:
        return bind_exists(b, n);
    case NODE_SUBQUERY:
        return bind_scalar(b, n);
    case NODE_CASE:
        return bind_case(b, n);
    case NODE_CAST:
        return bind_cast(b, n);
    case NODE_CALL:
        return bind_call(b, n);
    case NODE_LLM:
        return bind_llm(b, n, used);
    }
    return NULL;
}

expr *bind_constant(binder *b, const node *n, const char *what) {
    bind_place before = b->at;
    lift none = {{0}};
    b->at.refuse = what;
    b->at.lift = &none;
    expr *x = bind_expr(b, n);
    b->at = before;
    return x ? to_number(b, x, what) : NULL;
}

static bool uses_truth(const node *n) {
    return n->kind == NODE_IN ||
           (n->kind == NODE_OP && (n->op == OP_AND || n->op == OP_OR || n->op == OP_NOT));
}

expr *bind_as(binder *b, const node *n, value_type used) {
    truth_context matters = b->at.truth;
    if (!uses_truth(n))
        b->at.truth = TRUTH_ANY;
    expr *x = count_copies(b, n) ? bind_kind(b, n, used) : NULL;
    b->at.truth = matters;
    if (!x || b->view_depth > 0)
        return x;
    if (x->pos < 0)
        expr_at(x, n->pos, n->len);
    return x;
}

expr *bind_expr(binder *b, const node *n) {
    return bind_as(b, n, TYPE_NULL);
}
