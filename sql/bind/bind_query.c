/*
 * bind_query.c - queries: WITH, set operations, SELECT, ORDER BY, LIMIT, and subqueries in
 * expressions.
 *
 *   SELECT:  FROM -> filters of WHERE -> [groups, HAVING] -> [windows, QUALIFY] -> steps of the
 *            select list -> PROJECT -> DISTINCT -> SORT -> LIMIT
 *
 * Invariant: bind_query returns one column with a new id per output, in the order written.
 */
#include <math.h>
#include <string.h>

#include "bind_int.h"

/* ---- subqueries ------------------------------------------------------------------------------ */

/* Binds q in a context of its own: it sees the outer scope, but not the steps of the enclosing
 * clause. `inherited` is the guard of each of its calls. */
static int nested_query(binder *b, query *q, expr *inherited, rel **out) {
    bind_place before = b->at;
    b->at = (bind_place){.scope = before.scope,
                         .refuse = before.refuse,
                         .instead = before.instead,
                         .guard = inherited,
                         .inherited = inherited};
    int status = bind_query(b, q, out);
    b->at = before;
    if (status)
        return status;
    for (int i = 0; i < (*out)->ncols; i++)
        id_of(b, (*out)->cols[i].id)->is_null |= (*out)->cols[i].type == TYPE_NULL;
    rel_settle_all(*out);
    return 0;
}

int subquery(binder *b, query *q, rel **out) {
    return nested_query(b, q, NULL, out);
}

int derived_query(binder *b, query *q, rel **out) {
    return nested_query(b, q, b->at.guard, out);
}

typedef struct guard_search {
    int id;
    bool found;
} guard_search;

static void search_guard(rel_visit *v, expr **x) {
    guard_search *s = v->ctx;
    s->found = s->found || expr_mentions(*x, s->id);
}

/* Binds a subquery in an expression. Its calls read the guard as one BOOLEAN column. So a subquery
 * that is correlated only by its guard runs at most three times (TRUE, FALSE, NULL) instead of once
 * per row. */
static int guarded_query(binder *b, query *q, rel **out, int *guard_id) {
    *guard_id = -1;
    if (!b->at.guard)
        return subquery(b, q, out);
    guard_search used = {new_id(b), false};
    expr *inherited = expr_column(b->mem, used.id, TYPE_BOOLEAN, STR("guard"));
    int status = nested_query(b, q, inherited, out);
    rel_visit v = {.on_expr = search_guard, .ctx = &used};
    if (!status)
        rel_walk(*out, &v);
    if (!status && used.found)
        *guard_id = used.id;
    return status;
}

static bool allows_subquery(binder *b, const node *n) {
    if (b->at.refuse) {
        fail_node(b, n, "a subquery is not allowed in %s", b->at.refuse);
        if (b->at.instead)
            err_hint(b->e, "%s", b->at.instead);
    } else if (!b->at.lift)
        fail_node(b, n, "a subquery is not allowed in this place");
    return !b->at.refuse && b->at.lift;
}

static int check_column_count(binder *b, const node *n, rel *r, int count) {
    if (r->ncols == count)
        return 0;
    return fail_node(b, n, "the subquery must return %s column%s, not %d",
                     count == 1 ? "one" : arena_printf(b->mem, "%d", count), count == 1 ? "" : "s",
                     r->ncols);
}

static step *apply_step(binder *b, join_kind kind, str text, rel *right, int guard_id) {
    step *s = ARENA_NEW(b->mem, step);
    s->is_apply = true;
    s->kind = kind;
    s->text = text;
    s->right = right;
    s->mark_id = s->value_id = -1;
    s->guard_id = guard_id;
    s->guard = guard_id >= 0 ? b->at.guard : NULL;
    if (kind == JOIN_MARK)
        s->mark_id = new_id(b);
    else
        s->value_id = right->cols[0].id;
    lift_apply(b, b->at.lift, s);
    return s;
}

/* True if r certainly has at most one row. */
static bool has_one_row(const rel *r) {
    for (; r; r = r->left)
        switch (r->kind) {
        case REL_VALUES:
            return r->values.nrows <= 1;
        case REL_GROUP:
            return r->group.nkeys == 0;
        case REL_LIMIT:
            if (r->limit.limit >= 0 && r->limit.limit <= 1)
                return true;
            break;
        case REL_PROJECT:
        case REL_FILTER:
        case REL_SORT:
        case REL_DISTINCT:
        case REL_WINDOW:
        case REL_LLM:
            break;
        case REL_APPLY: /* scalar subqueries and marks keep the number of rows */
            if (r->join.kind != JOIN_SINGLE && r->join.kind != JOIN_MARK)
                return false;
            break;
        default:
            return false;
        }
    return false;
}

/* Binds a scalar subquery. More than one row is an error only where the value is needed, so the
 * guard becomes the join condition. */
expr *bind_scalar(binder *b, const node *n) {
    rel *r;
    int guard;
    if (!allows_subquery(b, n) || guarded_query(b, n->query, &r, &guard) ||
        check_column_count(b, n, r, 1))
        return NULL;
    step *s = apply_step(b, JOIN_SINGLE, n->query->text, r, guard);
    if (b->at.guard && !has_one_row(r))
        s->predicate = b->at.guard;
    return expr_column(b->mem, r->cols[0].id, r->cols[0].type, r->cols[0].name);
}

expr *bind_exists(binder *b, const node *n) {
    rel *r;
    int guard;
    if (!allows_subquery(b, n) || guarded_query(b, n->query, &r, &guard))
        return NULL;
    step *s = apply_step(b, JOIN_MARK, n->query->text, r, guard);
    return expr_column(b->mem, s->mark_id, TYPE_BOOLEAN, STR("exists"));
}

/* Returns a column that is TRUE if a row of r satisfies all of `equal`. */
static expr *mark_step(binder *b, str text, rel *r, int guard, expr **equal, int width) {
    step *s = apply_step(b, JOIN_MARK, text, r, guard);
    s->predicate = expr_chain(b->mem, OP_AND, equal, width);
    s->mark_null = true;
    return expr_column(b->mem, s->mark_id, TYPE_BOOLEAN, STR("in"));
}

expr *bind_in_query(binder *b, const node *n) {
    rel *r;
    int guard;
    if (!allows_subquery(b, n))
        return NULL;
    const node *l = n->args[0];
    bool row = l->kind == NODE_ROW;
    int width = row ? l->nargs : 1;
    expr **equal = ARENA_ARRAY(b->mem, expr *, width);
    for (int i = 0; i < width; i++)
        if (!(equal[i] = bind_expr(b, row ? l->args[i] : l)))
            return NULL;
    if (guarded_query(b, n->query, &r, &guard) || check_column_count(b, n, r, width))
        return NULL;
    for (int i = 0; i < width; i++) {
        expr *y = expr_column(b->mem, r->cols[i].id, r->cols[i].type, r->cols[i].name);
        if (unify_comparison(b, OP_EQ, &equal[i], &y, n->pos, n->len))
            return NULL;
        equal[i] = expr_op2(b->mem, OP_EQ, TYPE_BOOLEAN, equal[i], y);
    }
    return mark_step(b, n->query->text, r, guard, equal, width);
}

/* Returns the text by which a grouped query recognises equal IN lists. */
static str rows_text(binder *b, expr *const *equal, int n) {
    buf text = {0};
    for (int i = 0; i < n; i++) {
        expr_print(equal[i]->args[1], &text);
        buf_append_c(&text, ", ");
    }
    str copy = str_copy(b->mem, buf_str(&text));
    buf_free(&text);
    return copy;
}

/* Returns the common type of the constants that part i is compared with in all rows. Returns
 * TYPE_NULL if a value is not a constant, or if the types or the left sides differ. */
static value_type rows_type(expr *const *equal, int nrows, int width, int i) {
    value_type type = TYPE_NULL;
    for (int k = 0; k < nrows; k++) {
        const expr *x = equal[k * width + i], *y = x->args[1];
        if (!expr_is_constant(y) || y->type == TYPE_NULL || (type && y->type != type) ||
            !expr_equal(x->args[0], equal[i]->args[0]))
            return TYPE_NULL;
        type = y->type;
    }
    return type;
}

expr *bind_in_rows(binder *b, expr *const *equal, int nrows, int width) {
    if (b->at.refuse || !b->at.lift || b->at.returning)
        return NULL;
    rel_column *cols = ARENA_ARRAY(b->mem, rel_column, width);
    for (int i = 0; i < width; i++) {
        cols[i].name = str_from(arena_printf(b->mem, "column%d", i + 1));
        if ((cols[i].type = rows_type(equal, nrows, width, i)) == TYPE_NULL)
            return NULL;
    }
    values_part *parts = ARENA_ARRAY(b->mem, values_part, nrows);
    for (int k = 0; k < nrows; k++) {
        parts[k].cells = ARENA_ARRAY(b->mem, expr *, width);
        for (int i = 0; i < width; i++)
            parts[k].cells[i] = equal[k * width + i]->args[1];
    }
    rel *rows = values_rel(b, parts, nrows, cols, width);
    expr **same = ARENA_ARRAY(b->mem, expr *, width);
    for (int i = 0; i < width; i++) {
        expr *y = expr_column(b->mem, rows->cols[i].id, cols[i].type, cols[i].name);
        same[i] = expr_op2(b->mem, OP_EQ, TYPE_BOOLEAN, equal[i]->args[0], y);
    }
    return mark_step(b, rows_text(b, equal, nrows * width), rows, -1, same, width);
}

/* ---- LIMIT ----------------------------------------------------------------------------------- */

static int limit_value(binder *b, const node *n, const char *what, int64_t *out) {
    bind_place before = b->at;
    lift none = {{0}};
    b->at.refuse = what;
    b->at.lift = &none;
    b->at.scope = NULL;
    expr *x = bind_expr(b, n);
    b->at = before;
    if (x && x->kind == EXPR_LITERAL && x->literal.type == TYPE_REAL &&
        x->literal.r != floor(x->literal.r))
        return fail_node(b, n, "%s must be a whole number", what);
    if (!x || !(x = to_type_implicit(b, x, TYPE_INTEGER, what)))
        return (int)b->e->code;
    if (x->kind != EXPR_LITERAL)
        return fail_node(b, n, "%s must be a constant", what);
    if (expr_is_null(x))
        return 0;
    if (x->literal.i < 0)
        return fail_node(b, n, "%s cannot be negative", what);
    *out = x->literal.i;
    return 0;
}

static int bind_limit(binder *b, query *q, int64_t *limit, int64_t *offset) {
    *limit = -1;
    *offset = 0;
    int status = q->limit ? limit_value(b, q->limit, "LIMIT", limit) : 0;
    if (!status && q->offset)
        status = limit_value(b, q->offset, "OFFSET", offset);
    return status;
}

static int add_limit(binder *b, query *q, rel **r) {
    int64_t limit, offset;
    int status = bind_limit(b, q, &limit, &offset);
    if (!status && (limit >= 0 || offset > 0))
        *r = rel_limit(b->mem, *r, limit, offset);
    return status;
}

/* ---- SELECT ---------------------------------------------------------------------------------- */

/* Returns the text of an expression as a column name. If it has line breaks or tabs, each run of
 * blanks becomes one blank; other texts are returned unchanged. */
static str one_line(binder *b, str s) {
    bool plain = true;
    for (size_t i = 0; i < s.n; i++)
        plain = plain && (unsigned char)s.p[i] >= ' ';
    if (plain)
        return s;
    char *out = arena_alloc(b->mem, s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        bool blank = (unsigned char)s.p[i] <= ' ';
        if (!blank || (n > 0 && out[n - 1] != ' '))
            out[n++] = blank ? ' ' : s.p[i];
    }
    return (str){out, n};
}

static str output_name(binder *b, const select_item *item) {
    const node *n = item->value;
    if (item->alias.name.n)
        return item->alias.name;
    if (n->kind == NODE_COLUMN)
        return n->name.name;
    /* in a view, n->pos is an offset in the view's text, but b->text is the statement's text */
    if (b->view_depth > 0) {
        if (n->kind == NODE_CALL)
            return n->name.name;
        return n->kind == NODE_LLM ? STR("llm") : STR("?column?");
    }
    return one_line(b, (str){b->text.p + n->pos, (size_t)n->len});
}

static int expand_star(binder *b, const node *n, const scope *s, output *outs, int *count) {
    int before = *count;
    for (int i = 0; i < s->n; i++) {
        const scope_column *c = &s->cols[i];
        if (c->hidden_column ||
            (n->qualifier.name.n ? !str_equal_nocase(c->table, n->qualifier.name) : c->merged))
            continue;
        outs[(*count)++] = (output){.col = c, .name = c->name, .qualifier = c->table};
    }
    if (*count > before)
        return 0;
    if (!n->qualifier.name.n)
        return fail_node(b, n, "* needs FROM");
    const node named = {.kind = NODE_COLUMN,
                        .pos = n->pos,
                        .len = n->len,
                        .qualifier = n->qualifier,
                        .name = {STR("*"), n->pos, n->len}};
    scope_find(b, &named);
    return (int)b->e->code;
}

/* Adds a column for each field of a STRUCT. */
static int expand_struct(binder *b, const select_item *item, output *outs, int *count) {
    int width = struct_width(item->value);
    const node **columns = ARENA_ARRAY(b->mem, const node *, width);
    if (item->alias.name.n) {
        fail_ident(b, item->alias,
                   "a STRUCT in a select list is several columns and takes no name");
        err_hint(b->e, "move it to FROM to name it: FROM …, LLM(…) RETURNS STRUCT(…) AS %.*s",
                 (int)BASE_MIN(item->alias.name.n, (size_t)60), item->alias.name.p);
        return ERR_BIND;
    }
    if (struct_columns(b, item->value, columns))
        return (int)b->e->code;
    for (int i = 0; i < width; i++)
        outs[(*count)++] = (output){.value = columns[i], .name = columns[i]->field->name.name};
    return 0;
}

static int list_outputs(binder *b, const list *items, const scope *s, output **out, int *count) {
    int most = items->n;
    for (int i = 0; i < items->n; i++) {
        const node *n = ((select_item *)items->items[i])->value;
        most += n->kind == NODE_STAR ? s->n : struct_width(n);
    }
    output *outs = ARENA_ARRAY(b->mem, output, most);
    *count = 0;
    for (int i = 0; i < items->n; i++) {
        select_item *item = items->items[i];
        if (item->value->kind == NODE_STAR) {
            int status = expand_star(b, item->value, s, outs, count);
            if (status)
                return status;
        } else if (struct_width(item->value) > 0) {
            int status = expand_struct(b, item, outs, count);
            if (status)
                return status;
        } else {
            outs[(*count)++] = (output){.value = item->value, .name = output_name(b, item)};
        }
    }
    *out = outs;
    return 0;
}

static int bind_outputs(binder *b, output *outs, int n) {
    for (int i = 0; i < n; i++) {
        const scope_column *c = outs[i].col;
        outs[i].bound =
            c ? expr_column(b->mem, c->id, c->type, c->name) : bind_expr(b, outs[i].value);
        if (!outs[i].bound)
            return (int)b->e->code;
        if (!c && outs[i].value->kind == NODE_COLUMN)
            outs[i].qualifier = outs[i].value->qualifier.name;
    }
    return 0;
}

int bind_select_list(binder *b, const list *items, const scope *s, output **outs, int *count) {
    int status = list_outputs(b, items, s, outs, count);
    return status ? status : bind_outputs(b, *outs, *count);
}

/* Returns the index of the output that ORDER BY names by position or alias; -1 if it is another
 * expression; -2 with an error. */
static int output_of(binder *b, const node *n, const output *outs, int nouts) {
    if (n->kind == NODE_LITERAL && n->literal.type == TYPE_INTEGER) {
        if (n->literal.i >= 1 && n->literal.i <= nouts)
            return (int)n->literal.i - 1;
        fail_node(b, n, "ORDER BY %lld: the select list has %d column%s", (long long)n->literal.i,
                  nouts, nouts == 1 ? "" : "s");
        return -2;
    }
    if (n->kind != NODE_COLUMN || n->qualifier.name.n)
        return -1;
    int found = -1;
    for (int i = 0; i < nouts; i++)
        if (str_equal_nocase(outs[i].name, n->name.name)) {
            if (found >= 0 && outs[found].bound && outs[i].bound &&
                !expr_equal(outs[found].bound, outs[i].bound)) {
                fail_node(b, n, "ORDER BY \"%.*s\" is ambiguous: two columns have that name",
                          (int)n->name.name.n, n->name.name.p);
                return -2;
            }
            found = found < 0 ? i : found;
        }
    return found;
}

typedef struct ordering {
    int n;
    int *outputs;  /* [n]: index of the output that is the key; -1: another expression */
    expr **values; /* [n]: the key, if outputs[i] is -1 */
    const list *items;
} ordering;

static int bind_order(binder *b, query *q, const output *outs, int nouts, ordering *o) {
    o->n = q->order_by.n;
    o->items = &q->order_by;
    o->outputs = ARENA_ARRAY(b->mem, int, o->n);
    o->values = ARENA_ARRAY(b->mem, expr *, o->n);
    for (int i = 0; i < o->n; i++) {
        const order_item *item = q->order_by.items[i];
        o->outputs[i] = output_of(b, item->value, outs, nouts);
        if (o->outputs[i] == -2)
            return (int)b->e->code;
        if (o->outputs[i] >= 0)
            continue;
        if (!(o->values[i] = bind_expr(b, item->value)))
            return (int)b->e->code;
        for (int k = 0; k < nouts && o->outputs[i] < 0; k++)
            if (expr_equal(outs[k].bound, o->values[i]))
                o->outputs[i] = k;
        if (o->outputs[i] < 0 && q->distinct)
            return fail_node(b, item->value,
                             "with SELECT DISTINCT, ORDER BY can use only selected columns");
    }
    return 0;
}

static rel *add_sort(binder *b, rel *r, const ordering *o, const int *ids,
                     const value_type *types) {
    sort_key *keys = ARENA_ARRAY(b->mem, sort_key, o->n);
    for (int i = 0; i < o->n; i++) {
        const order_item *item = o->items->items[i];
        keys[i] = (sort_key){expr_column(b->mem, ids[i], types[i], STR("")), item->descending,
                             item->nulls_first};
        for (int k = 0; k < r->ncols; k++)
            if (r->cols[k].id == ids[i])
                keys[i].value->column.name = r->cols[k].name;
    }
    return rel_sort(b->mem, r, keys, o->n);
}

/* Returns a PROJECT of the outputs, followed by the sort keys that are not outputs. Sets ids[i] and
 * types[i] to the column of sort key i. */
static rel *project_outputs(binder *b, rel *r, const output *outs, int nouts, const ordering *o,
                            int *ids, value_type *types) {
    int hidden = 0;
    for (int i = 0; i < o->n; i++)
        hidden += o->outputs[i] < 0;
    rel *p = rel_project(b->mem, r, nouts + hidden);
    for (int i = 0; i < nouts; i++) {
        int id = new_id(b);
        id_copy(b, id, outs[i].bound);
        p->project.exprs[i] = (rel_expr){outs[i].bound, id};
        p->cols[i] = (rel_column){id, outs[i].bound->type, outs[i].name, outs[i].qualifier};
    }
    int at = nouts;
    for (int i = 0; i < o->n; i++) {
        int k = o->outputs[i];
        if (k < 0) {
            k = at++;
            p->project.exprs[k] = (rel_expr){o->values[i], new_id(b)};
            p->cols[k] = (rel_column){
                p->project.exprs[k].id, o->values[i]->type, STR("sort key"), {NULL, 0}};
            if (p->cols[k].type == TYPE_NULL)
                p->cols[k].type = o->values[i]->type = TYPE_TEXT;
        }
        ids[i] = p->cols[k].id;
        types[i] = p->cols[k].type;
    }
    return p;
}

/* Removes the hidden sort keys. */
static rel *project_first(binder *b, rel *r, int ncols) {
    rel *p = rel_project(b->mem, r, ncols);
    for (int i = 0; i < ncols; i++) {
        expr *x = expr_column(b->mem, r->cols[i].id, r->cols[i].type, r->cols[i].name);
        int id = new_id(b);
        id_copy(b, id, x);
        p->project.exprs[i] = (rel_expr){x, id};
        p->cols[i] = r->cols[i];
        p->cols[i].id = id;
    }
    return p;
}

static rel *finish_select(binder *b, query *q, rel *r, const output *outs, int nouts,
                          const ordering *o) {
    int *ids = ARENA_ARRAY(b->mem, int, o->n);
    value_type *types = ARENA_ARRAY(b->mem, value_type, o->n);
    r = project_outputs(b, r, outs, nouts, o, ids, types);
    if (q->distinct)
        r = rel_distinct(b->mem, r);
    if (o->n)
        r = add_sort(b, r, o, ids, types);
    if (add_limit(b, q, &r))
        return NULL;
    return r->ncols > nouts ? project_first(b, r, nouts) : r;
}

static bool is_grouped(const query *q, const output *outs, int nouts) {
    if (q->group_by.n || q->having)
        return true;
    for (int i = 0; i < nouts; i++)
        if (outs[i].value && node_has_aggregate(outs[i].value))
            return true;
    for (int i = 0; i < q->order_by.n; i++)
        if (node_has_aggregate(((order_item *)q->order_by.items[i])->value))
            return true;
    for (int i = 0; i < q->windows.n; i++)
        if (window_has_aggregate(((window_def *)q->windows.items[i])->spec))
            return true;
    return q->qualify && node_has_aggregate(q->qualify);
}

/* Binds the select list and ORDER BY; their window functions are already bound. */
static int bind_shown(binder *b, query *q, windowing *w, lift *steps, output *outs, int nouts,
                      ordering *o) {
    b->at.lift = steps;
    b->at.windows = w;
    int status = bind_outputs(b, outs, nouts);
    b->at.aliases = outs;
    b->at.naliases = nouts;
    if (!status)
        status = bind_order(b, q, outs, nouts, o);
    b->at.windows = NULL;
    return status;
}

static int select_plain(binder *b, query *q, output *outs, int nouts, rel *r, rel **out) {
    windowing w = {.defs = &q->windows};
    conjunct_list qualify = {0};
    lift steps = {{0}};
    ordering o = {0};
    b->at.no_aggregate = "this place";
    int status = windows_bind(b, q, outs, nouts, &w);
    if (!status)
        status = windows_qualify(b, q, outs, nouts, &w, &qualify);
    if (!status)
        status = bind_shown(b, q, &w, &steps, outs, nouts, &o);
    if (!status)
        status = windows_place(b, &w, NULL, &qualify, &r);
    if (status)
        return status;
    r = lift_place(b, &steps, r);
    *out = finish_select(b, q, r, outs, nouts, &o);
    return *out ? 0 : (int)b->e->code;
}

static int select_grouped(binder *b, query *q, output *outs, int nouts, rel *r, rel **out) {
    grouping g = {0};
    windowing w = {.defs = &q->windows};
    lift steps = {{0}};
    ordering o = {0};
    conjunct_list having = {0}, qualify = {0};
    b->at.aliases = outs;
    b->at.naliases = nouts;
    int status = group_keys(b, &g, q, outs, nouts);
    b->at.group = &g;
    if (!status && q->having)
        status = group_having(b, &g, q->having, &having);
    if (!status)
        status = windows_bind(b, q, outs, nouts, &w);
    if (!status)
        status = windows_qualify(b, q, outs, nouts, &w, &qualify);
    if (!status)
        status = bind_shown(b, q, &w, &steps, outs, nouts, &o);
    b->at.group = NULL;
    if (!status)
        status = group_place(b, &g, &having, r, &r);
    if (!status)
        status = windows_place(b, &w, &g, &qualify, &r);
    for (int i = 0; i < nouts && !status; i++)
        status = group_rewrite(b, &g, &steps, &outs[i].bound);
    for (int i = 0; i < o.n && !status; i++)
        if (o.outputs[i] < 0)
            status = group_rewrite(b, &g, &steps, &o.values[i]);
    if (status)
        return status;
    group_prune(&steps);
    r = lift_place(b, &steps, r);
    *out = finish_select(b, q, r, outs, nouts, &o);
    return *out ? 0 : (int)b->e->code;
}

static int bind_select(binder *b, query *q, rel **out) {
    scope s = {.outer = b->at.scope};
    scope *outer = b->at.scope;
    lift *above = b->at.lift;
    rel *r = NULL;
    int status = 0;
    if (q->from)
        status = bind_from(b, q->from, &s, &r);
    else
        r = rel_one_row(b->mem);
    b->at.scope = &s;
    if (!status && q->where) {
        const list *before = b->where_aliases;
        b->where_aliases = &q->items;
        status = bind_conjuncts(b, q->where, &r);
        b->where_aliases = before;
    }
    output *outs = NULL;
    int nouts = 0;
    if (!status)
        status = list_outputs(b, &q->items, &s, &outs, &nouts);
    b->at.shown = outs;
    b->at.nshown = status ? 0 : nouts;
    if (!status)
        status = is_grouped(q, outs, nouts) ? select_grouped(b, q, outs, nouts, r, out)
                                            : select_plain(b, q, outs, nouts, r, out);
    b->at.scope = outer;
    b->at.lift = above;
    b->at.aliases = NULL;
    b->at.nshown = 0;
    return status;
}

/* ---- set operations -------------------------------------------------------------------------- */

rel *cast_columns(binder *b, rel *r, const value_type *types) {
    bool same = true;
    for (int i = 0; i < r->ncols; i++)
        same = same && r->cols[i].type == types[i];
    if (same)
        return r;
    rel *p = rel_project(b->mem, r, r->ncols);
    for (int i = 0; i < r->ncols; i++) {
        expr *x = expr_column(b->mem, r->cols[i].id, r->cols[i].type, r->cols[i].name);
        int id = new_id(b);
        id_copy(b, id, x);
        p->project.exprs[i] =
            (rel_expr){x->type == types[i] ? x : expr_cast(b->mem, x, types[i]), id};
        p->cols[i] = r->cols[i];
        p->cols[i].id = id;
        p->cols[i].type = types[i];
    }
    return p;
}

/* Returns the type of the column; TYPE_NULL for a column that is always NULL. */
static value_type known_type(binder *b, const rel_column *c) {
    return id_of(b, c->id)->is_null ? TYPE_NULL : c->type;
}

static int setop_types(binder *b, query *q, rel *l, rel *r, value_type *types) {
    for (int i = 0; i < l->ncols; i++) {
        value_type x = known_type(b, &l->cols[i]), y = known_type(b, &r->cols[i]);
        if (x != y && x && y && !(type_is_number(x) && type_is_number(y))) {
            fail(b, ERR_BIND, q->pos, q->len,
                 "column %d of %s is %s on one side and %s on the other", i + 1, set_op_sql(q->op),
                 type_name(x), type_name(y));
            err_hint(b->e, "convert it with CAST(… AS %s)", type_name(x == TYPE_TEXT ? y : x));
            return ERR_BIND;
        }
        types[i] = x || y ? BASE_MAX(x, y) : BASE_MAX(l->cols[i].type, r->cols[i].type);
        if (types[i]) {
            rel_settle(l, i, types[i]);
            rel_settle(r, i, types[i]);
        }
    }
    return 0;
}

static int bind_operand(binder *b, query *q, rel **out) {
    bind_place before = b->at;
    b->at.lift = NULL;
    b->at.aliases = NULL;
    int status = bind_query(b, q, out);
    b->at = before;
    return status;
}

static int bind_setop_order(binder *b, query *q, rel **r) {
    int n = (*r)->ncols;
    output *outs = ARENA_ARRAY(b->mem, output, n);
    scope s = {.outer = NULL};
    scope *outer = b->at.scope;
    for (int i = 0; i < n; i++) {
        outs[i].name = (*r)->cols[i].name;
        outs[i].bound = expr_column(b->mem, (*r)->cols[i].id, (*r)->cols[i].type, outs[i].name);
        scope_add(b, &s, STR(""), outs[i].name, (*r)->cols[i].id, (*r)->cols[i].type);
    }
    ordering o = {0};
    lift steps = {{0}};
    b->at.scope = &s;
    b->at.lift = &steps;
    b->at.no_aggregate = "ORDER BY of a set operation";
    int status = bind_order(b, q, outs, n, &o);
    b->at.scope = outer;
    b->at.lift = NULL;
    if (status)
        return status;
    if (o.n == 0)
        return add_limit(b, q, r);
    *r = finish_select(b, q, lift_place(b, &steps, *r), outs, n, &o);
    return *r ? 0 : (int)b->e->code;
}

static int join_terms(binder *b, query *q, int pos, int len, rel *l, rel *r, rel **out) {
    if (l->ncols != r->ncols)
        return fail(b, ERR_BIND, pos, len,
                    "%s needs the same number of columns on both sides, not %d and %d",
                    set_op_sql(q->op), l->ncols, r->ncols);
    value_type *types = ARENA_ARRAY(b->mem, value_type, l->ncols);
    int status = setop_types(b, q, l, r, types);
    if (status)
        return status;
    l = cast_columns(b, l, types);
    r = cast_columns(b, r, types);
    rel *u = rel_make(b->mem, REL_SETOP, l->ncols);
    u->left = l;
    u->right = r;
    u->setop.op = q->op;
    for (int i = 0; i < l->ncols; i++) {
        u->cols[i] = l->cols[i];
        u->cols[i].id = new_id(b);
        id_info *li = id_of(b, l->cols[i].id), *ri = id_of(b, r->cols[i].id);
        id_info *info = id_of(b, u->cols[i].id);
        if (li->call && li->call == ri->call) /* both sides are answers of the same call */
            info->call = li->call;
        for (int k = 0; k < 2; k++) {
            const rel_column *c = &(k ? r : l)->cols[i];
            info->made_of[k] = expr_column(b->mem, c->id, c->type, c->name);
        }
        info->is_null = li->is_null && ri->is_null;
    }
    *out = u;
    return 0;
}

/* Binds the terms [from, to) as a balanced tree, so that thousands of terms are about a dozen
 * levels deep. */
int bind_terms(binder *b, query *q, int from, int to, rel **out) {
    if (to - from == 1)
        return bind_operand(b, q->terms.items[from], out);
    int middle = from + (to - from + 1) / 2;
    rel *l, *r;
    int status = bind_terms(b, q, from, middle, &l);
    if (!status)
        status = bind_terms(b, q, middle, to, &r);
    const query *second = q->terms.items[middle];
    return status ? status : join_terms(b, q, second->pos, second->len, l, r, out);
}

/* ---- WITH, bind_query ------------------------------------------------------------------------ */

int bind_with(binder *b, query *q) {
    for (int i = 0; i < q->with.n; i++) {
        cte *def = q->with.items[i];
        for (int k = 0; k < i; k++)
            if (str_equal_nocase(((cte *)q->with.items[k])->name.name, def->name.name))
                return fail_ident(b, def->name, "WITH defines \"%.*s\" twice",
                                  (int)def->name.name.n, def->name.name.p);
        cte_binding *c = ARENA_NEW(b->mem, cte_binding);
        c->def = def;
        c->outer = b->ctes;
        c->number = b->next_share++;
        c->scope = b->at.scope;
        b->recursion = def->recursive ? c : NULL;
        const cte *around = b->defining;
        b->defining = def;
        int status = subquery(b, def->query, &c->bound);
        b->defining = around;
        if (!status)
            status =
                rename_columns(b, c->bound->cols, c->bound->ncols, &def->columns, def->name.name);
        if (status)
            return status;
        b->ctes = c;
    }
    return 0;
}

/* Replaces the reference to a CTE by a projection if it is the only reference: the CTE's rows need
 * not be shared then. */
static void unshare(binder *b, const cte_binding *stop) {
    for (cte_binding *c = b->ctes; c && c != stop; c = c->outer) {
        if (c->references != 1 || c->def->sharing == CTE_KEPT)
            continue;
        rel *r = c->last;
        r->kind = REL_PROJECT;
        r->project.exprs = ARENA_ARRAY(b->mem, rel_expr, r->ncols);
        for (int i = 0; i < r->ncols; i++) {
            const rel_column *from = &r->left->cols[i];
            r->project.exprs[i] =
                (rel_expr){expr_column(b->mem, from->id, from->type, from->name), r->cols[i].id};
        }
    }
}

static int bind_setop(binder *b, cte_binding *recursion, query *q, rel **out) {
    bool done = false;
    int status = recursion ? bind_recursive(b, recursion, q, out, &done) : 0;
    if (!status && !done)
        status = bind_terms(b, q, 0, q->terms.n, out);
    return status ? status : bind_setop_order(b, q, out);
}

int bind_query(binder *b, query *q, rel **out) {
    cte_binding *before = b->ctes, *recursion = b->recursion;
    b->recursion = NULL;
    int status = bind_with(b, q);
    if (!status)
        switch (q->kind) {
        case QUERY_SELECT:
            status = bind_select(b, q, out);
            break;
        case QUERY_VALUES:
            status = bind_values(b, q, out);
            if (!status)
                status = bind_setop_order(b, q, out);
            break;
        case QUERY_SETOP:
            status = bind_setop(b, recursion, q, out);
            break;
        }
    unshare(b, before);
    b->ctes = before;
    return status;
}
