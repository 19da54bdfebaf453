/*
 * bind_recursive.c - WITH RECURSIVE: a CTE that reads itself.
 *
 *   first UNION [ALL] recursive …       REL_RECURSIVE(first, recursive over REL_WORKING)
 *
 * A round processes all rows of the previous round, as in psql; sqlite3 processes one row at a
 * time. The result is the same, because only filters, projections and joins are allowed above the
 * working rows, and these treat each row independently. Invariant: a recursive part reads its CTE
 * exactly once and contains no LLM call.
 */
#include <string.h>

#include "bind_int.h"

/* ---- references to a name -------------------------------------------------------------------- */

static bool query_names(const query *q, str name);

static bool nodes_name(const list *nodes, str name);

static bool node_names(const node *n, str name) {
    if (!n)
        return false;
    for (int i = 0; i < n->nargs; i++)
        if (node_names(n->args[i], name))
            return true;
    for (int i = 0; i < n->order_by.n; i++)
        if (node_names(((order_item *)n->order_by.items[i])->value, name))
            return true;
    return node_names(n->filter, name) || (n->query && query_names(n->query, name));
}

static bool nodes_name(const list *nodes, str name) {
    for (int i = 0; i < nodes->n; i++)
        if (node_names(nodes->items[i], name))
            return true;
    return false;
}

static bool from_names(const from_item *f, str name) {
    if (!f)
        return false;
    if (f->kind == FROM_NAME)
        return str_equal_nocase(f->name.name, name);
    return from_names(f->left, name) || from_names(f->right, name) || node_names(f->on, name) ||
           node_names(f->llm, name) || (f->query && query_names(f->query, name));
}

static bool with_names(const query *q, str name, bool *hidden) {
    *hidden = false;
    for (int i = 0; i < q->with.n; i++) {
        const cte *c = q->with.items[i];
        if (query_names(c->query, name))
            return true;
        if (str_equal_nocase(c->name.name, name)) {
            *hidden = true;
            return false;
        }
    }
    return false;
}

static bool query_names(const query *q, str name) {
    bool hidden;
    if (with_names(q, name, &hidden) || hidden)
        return !hidden;
    for (int i = 0; i < q->terms.n; i++)
        if (query_names(q->terms.items[i], name))
            return true;
    for (int i = 0; i < q->items.n; i++)
        if (node_names(((select_item *)q->items.items[i])->value, name))
            return true;
    for (int i = 0; i < q->order_by.n; i++)
        if (node_names(((order_item *)q->order_by.items[i])->value, name))
            return true;
    for (int i = 0; i < q->rows.n; i++)
        if (nodes_name(q->rows.items[i], name))
            return true;
    return from_names(q->from, name) || node_names(q->where, name) ||
           nodes_name(&q->group_by, name) || node_names(q->having, name) ||
           node_names(q->qualify, name);
}

/* ---- operators above the working rows -------------------------------------------------------- */

static int count_working(const rel *r, int number) {
    int n = 0;
    for (; r; r = r->left) {
        n += r->kind == REL_WORKING && r->working.number == number;
        if (r->right)
            n += count_working(r->right, number);
    }
    return n;
}

/* Returns where the working rows are read, as text for an error, if that place is not allowed; else
 * NULL. */
static const char *invalid_place(const rel *r, int number) {
    while (r->kind != REL_WORKING) {
        bool in_right = r->right && count_working(r->right, number) > 0;
        switch (r->kind) {
        case REL_FILTER:
        case REL_PROJECT:
        case REL_LLM: /* check_part reports the call */
            break;
        case REL_JOIN:
            if (in_right && r->join.kind != JOIN_INNER && r->join.kind != JOIN_CROSS)
                return "on the right of LEFT JOIN";
            break;
        case REL_APPLY:
            if (in_right)
                return "in a subquery that may read other tables";
            break;
        case REL_GROUP:
            return "under GROUP BY or an aggregate";
        case REL_WINDOW:
            return "under a window function";
        case REL_DISTINCT:
            return "under DISTINCT";
        case REL_SORT:
        case REL_LIMIT:
            return "under ORDER BY or LIMIT";
        case REL_SETOP:
            return "under another UNION, EXCEPT or INTERSECT";
        default:
            return "here";
        }
        r = in_right ? r->right : r->left;
    }
    return NULL;
}

typedef struct call_search {
    const llm_call *call;
} call_search;

static void find_call(rel_visit *v, llm_site *u) {
    call_search *s = v->ctx;
    s->call = u->call;
}

static int check_part(binder *b, const cte_binding *c, const query *term, rel *r) {
    ident name = c->def->name;
    int n = (int)name.name.n, times = count_working(r, c->number);
    const char *where = times == 1 ? invalid_place(r, c->number) : NULL;
    call_search s = {NULL};
    rel_visit v = {.on_site = find_call, .ctx = &s};
    rel_walk(r, &v);
    if (s.call) {
        fail(b, ERR_UNSUPPORTED, s.call->pos, s.call->len,
             "an LLM call is not allowed in the recursive part of \"%.*s\"", n, name.name.p);
        err_hint(b->e, "use LLM() in the query that reads the recursive CTE");
        return ERR_UNSUPPORTED;
    }
    if (times == 1 && !where)
        return 0;
    if (times == 1)
        fail(b, ERR_UNSUPPORTED, term->pos, term->len, "a recursive part cannot read \"%.*s\" %s",
             n, name.name.p, where);
    else
        fail(b, ERR_UNSUPPORTED, term->pos, term->len,
             "the recursive part must read \"%.*s\" exactly once, not %d times", n, name.name.p,
             times);
    if (where && strcmp(where, "under DISTINCT") == 0)
        err_hint(b->e, "use UNION without ALL to drop duplicate rows");
    return ERR_UNSUPPORTED;
}

/* ---- the relation ---------------------------------------------------------------------------- */

/* Casts the recursive part to the column types of the first part. Numbers may be widened; any other
 * difference of types is an error. */
static int fit_types(binder *b, set_op op, const query *term, const rel *first, rel **part) {
    rel *r = *part;
    value_type *types = ARENA_ARRAY(b->mem, value_type, first->ncols);
    if (r->ncols != first->ncols)
        return fail(b, ERR_BIND, term->pos, term->len,
                    "%s needs the same number of columns on both sides, not %d and %d",
                    set_op_sql(op), first->ncols, r->ncols);
    for (int i = 0; i < first->ncols; i++) {
        value_type to = types[i] = first->cols[i].type, from = r->cols[i].type;
        bool null = from == TYPE_NULL || id_of(b, r->cols[i].id)->is_null;
        bool widens = type_is_number(from) && type_is_number(to) && from < to;
        if (from == TYPE_NULL)
            rel_settle(r, i, to);
        if (null || from == to || widens)
            continue;
        fail(b, ERR_BIND, term->pos, term->len,
             "column %d is %s in the first part of the recursion and %s in a recursive part", i + 1,
             type_name(to), type_name(from));
        err_hint(b->e, "use CAST(… AS %s) in the first part, or CAST(… AS %s) in the recursive one",
                 type_name(from), type_name(to));
        return ERR_BIND;
    }
    *part = cast_columns(b, r, types);
    return 0;
}

static int bind_part(binder *b, cte_binding *c, query *q, int at, const rel *first, rel **out) {
    const query *term = q->terms.items[at];
    int status = bind_terms(b, q, at, at + 1, out);
    if (!status)
        status = check_part(b, c, term, *out);
    return status ? status : fit_types(b, q->op, term, first, out);
}

/* Binds the recursive terms, which read c->working: the terms from index `at` on. */
static int bind_parts(binder *b, cte_binding *c, query *q, int at, rel *first, rel **out) {
    *out = NULL;
    for (int i = at; i < q->terms.n; i++) {
        rel *part;
        int status = bind_part(b, c, q, i, first, &part);
        if (status)
            return status;
        *out = *out ? bind_union_all(b, *out, part) : part;
    }
    return 0;
}

static int check_shape(binder *b, const cte_binding *c, const query *q, int at) {
    str name = c->def->name.name;
    const query *term = q->terms.items[at];
    if (at == 0 || (q->op != SETOP_UNION_ALL && q->op != SETOP_UNION)) {
        fail(b, ERR_BIND, term->pos, term->len,
             at == 0 ? "the first part of \"%.*s\" cannot read \"%.*s\" itself"
                     : "\"%.*s\" can read \"%.*s\" only through UNION or UNION ALL",
             (int)name.n, name.p, (int)name.n, name.p);
        err_hint(b->e, "write SELECT … UNION ALL SELECT … FROM %.*s",
                 (int)BASE_MIN(name.n, (size_t)60), name.p);
        return ERR_BIND;
    }
    for (int i = at; i < q->terms.n; i++) {
        term = q->terms.items[i];
        if (!query_names(term, name))
            return fail(b, ERR_BIND, term->pos, term->len,
                        "a part that does not read \"%.*s\" must come before those that do",
                        (int)name.n, name.p);
    }
    if (q->order_by.n) {
        const node *key = ((order_item *)q->order_by.items[0])->value;
        fail_node(b, key, "a recursive CTE cannot have an ORDER BY");
        err_hint(b->e, "put ORDER BY into the query that reads \"%.*s\"",
                 (int)BASE_MIN(name.n, (size_t)60), name.p);
        return ERR_BIND;
    }
    return 0;
}

static int bind_recursion(binder *b, cte_binding *c, query *q, int at, rel **out) {
    rel *first, *parts;
    int status = bind_terms(b, q, 0, at, &first);
    if (status)
        return status;
    rel_settle_all(first);
    rel working = *first;
    working.cols = ARENA_ARRAY(b->mem, rel_column, first->ncols);
    memcpy(working.cols, first->cols, sizeof *first->cols * (size_t)first->ncols);
    status = rename_columns(b, working.cols, working.ncols, &c->def->columns, c->def->name.name);
    if (status)
        return status;
    cte_binding *outer = c->outer, *around = b->ctes;
    c->working = &working;
    c->reads_itself = true;
    c->outer = around; /* includes the WITH of its own query */
    b->ctes = c;
    status = bind_parts(b, c, q, at, first, &parts);
    b->ctes = around;
    c->outer = outer;
    c->working = NULL;
    c->references = 0;
    if (status)
        return status;
    *out = rel_recursive(b->mem, first, parts, c->number, q->op == SETOP_UNION);
    for (int i = 0; i < first->ncols; i++) {
        (*out)->cols[i] = first->cols[i];
        (*out)->cols[i].id = new_id(b);
    }
    return 0;
}

int bind_recursive(binder *b, cte_binding *c, query *q, rel **out, bool *done) {
    str name = c->def->name.name;
    int at = 0, status;
    while (at < q->terms.n && !query_names(q->terms.items[at], name))
        at++;
    *done = at < q->terms.n;
    if (!*done)
        return 0;
    if ((status = check_shape(b, c, q, at)) != 0)
        return status;
    scope *outer = b->at.scope, *hidden = b->recursion_outer;
    b->at.scope = NULL; /* the CTE is evaluated once, not per row of the outer query */
    b->recursion_outer = outer ? outer : hidden;
    status = bind_recursion(b, c, q, at, out);
    b->at.scope = outer;
    b->recursion_outer = hidden;
    return status;
}
