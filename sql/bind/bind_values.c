/*
 * bind_values.c - VALUES, as a query or in INSERT: constant rows, and rows with LLM calls.
 *
 *   VALUES (1, LLM('p', 'a' AS x)), (2, LLM('p', 'b' AS x))
 *     -> PROJECT #1, LLM#3 over LLM 'p' (x: #2) over VALUES (1, 'a'), (2, 'b')
 *
 * Consecutive rows form one part if they differ only in named fields of their LLM calls and in
 * columns without calls. The differing values become columns of constant rows. The expressions of
 * the first row are bound once over these rows, so that the prompts of all rows form one batch.
 * Invariant: parts keep the order written. A row with a subquery is a part of its own.
 */
#include "bind_int.h"

/* ---- equal rows ------------------------------------------------------------------------------ */

static bool has_call(const node *n) {
    bool found = n->kind == NODE_LLM;
    for (int i = 0; i < n->nargs && !found; i++)
        found = has_call(n->args[i]);
    return found;
}

static bool has_query(const node *n) {
    bool found = n->query || (n->filter && has_query(n->filter));
    for (int i = 0; i < n->nargs && !found; i++)
        found = has_query(n->args[i]);
    for (int i = 0; i < n->options.n && !found; i++)
        found = has_query(((llm_option *)n->options.items[i])->value);
    return found;
}

/* True if argument i of a call may differ by row: it has an explicit name. */
static bool varies_by_row(const node *n, int i) {
    return n->kind == NODE_LLM && i > 0 && n->names[i].name.n && n->args[i]->kind != NODE_STAR &&
           !has_call(n->args[i]);
}

static bool same_words(const node *x, const node *y) {
    return x->kind == y->kind && x->literal.type == y->literal.type &&
           value_compare(x->literal, y->literal) == 0 && str_equal(x->digits, y->digits) &&
           str_equal(x->qualifier.name, y->qualifier.name) &&
           str_equal(x->name.name, y->name.name) && x->op == y->op && x->nargs == y->nargs &&
           x->distinct == y->distinct && x->star == y->star && x->has_operand == y->has_operand &&
           x->has_else == y->has_else && x->type == y->type && x->dims == y->dims;
}

static bool same_node(const node *x, const node *y);

static bool same_returns(const llm_type *x, const llm_type *y) {
    if (x->given != y->given || !str_equal(x->name.name, y->name.name) ||
        x->literals.n != y->literals.n || x->between != y->between)
        return false;
    for (int i = 0; i < x->literals.n; i++)
        if (!str_equal(*(str *)x->literals.items[i], *(str *)y->literals.items[i]))
            return false;
    return !x->between || (same_node(x->low, y->low) && same_node(x->high, y->high));
}

static bool same_call(const node *x, const node *y) {
    if (x->options.n != y->options.n || !same_returns(&x->returns, &y->returns))
        return false;
    for (int i = 0; i < x->nargs; i++)
        if (!str_equal(x->names[i].name, y->names[i].name))
            return false;
    for (int i = 0; i < x->options.n; i++) {
        const llm_option *o = x->options.items[i], *p = y->options.items[i];
        if (!str_equal_nocase(o->name.name, p->name.name) || !same_node(o->value, p->value))
            return false;
    }
    return true;
}

static bool same_node(const node *x, const node *y) {
    if (!same_words(x, y) || x->kind == NODE_STAR || x->filter || y->filter)
        return false;
    if (x->kind == NODE_LLM && !same_call(x, y))
        return false;
    for (int i = 0; i < x->nargs; i++)
        if (!(varies_by_row(x, i) && varies_by_row(y, i)) && !same_node(x->args[i], y->args[i]))
            return false;
    return true;
}

static bool has_same_shape(const list *x, const list *y) {
    for (int k = 0; k < x->n; k++) {
        const node *n = x->items[k], *m = y->items[k];
        if (has_query(n) || has_query(m) || has_call(n) != has_call(m) ||
            (has_call(n) && !same_node(n, m)))
            return false;
    }
    return true;
}

static int count_same_shape(const list *rows, int first) {
    const list *row = rows->items[first];
    bool asks = false;
    for (int k = 0; k < row->n && !asks; k++)
        asks = has_call(row->items[k]);
    int n = 1;
    while (asks && first + n < rows->n && has_same_shape(row, rows->items[first + n]))
        n++;
    return n;
}

/* ---- varying values as columns --------------------------------------------------------------- */

/* A varying value that becomes a column of the constant rows: a whole cell or a field of a call. */
typedef struct varying_value {
    const node *value;
    int cell; /* index of the cell in its row; -1: the value is a field of a call */
    str name;
} varying_value;

static void add_varying(binder *b, list *varying, const node *n, int cell, str name) {
    varying_value *h = ARENA_NEW(b->mem, varying_value);
    *h = (varying_value){n, cell, name};
    list_add(b->mem, varying, h);
}

static void find_fields(binder *b, const node *n, list *varying) {
    for (int i = 0; i < n->nargs; i++)
        if (varies_by_row(n, i))
            add_varying(b, varying, n->args[i], -1, n->names[i].name);
        else
            find_fields(b, n->args[i], varying);
}

static list find_varying(binder *b, const list *row) {
    list varying = {0};
    for (int k = 0; k < row->n; k++) {
        const node *n = row->items[k];
        if (has_call(n))
            find_fields(b, n, &varying);
        else
            add_varying(b, &varying, n, k, str_from(arena_printf(b->mem, "column%d", k + 1)));
    }
    return varying;
}

/* Binds the varying values of one row. *fit is set to whether the fields have the same types as in
 * the rows before. */
static int bind_varying(binder *b, const list *varying, cell_binder *cell, void *ctx, expr **out,
                        value_type *types, bool *fit) {
    *fit = true;
    for (int i = 0; i < varying->n; i++) {
        const varying_value *h = varying->items[i];
        out[i] = h->cell >= 0 ? cell(b, ctx, h->value, h->cell) : bind_expr(b, h->value);
        if (!out[i])
            return (int)b->e->code;
        if (h->cell < 0 && types[i] && out[i]->type && out[i]->type != types[i])
            *fit = false; /* a cast to one type would change prompts: 1 would become 1.0 */
    }
    for (int i = 0; i < varying->n && *fit; i++)
        types[i] = types[i] ? types[i] : out[i]->type;
    return 0;
}

static int unify_varying(binder *b, const list *varying, expr ***rows, int nrows,
                         value_type *types) {
    expr **down = ARENA_ARRAY(b->mem, expr *, nrows);
    for (int i = 0; i < varying->n; i++) {
        for (int k = 0; k < nrows; k++)
            down[k] = rows[k][i];
        int status = unify_all(b, down, nrows, "VALUES", &types[i]);
        if (status)
            return status;
        bool open = types[i] == TYPE_NULL && ((varying_value *)varying->items[i])->cell < 0;
        for (int k = 0; k < nrows; k++)
            if (!(rows[k][i] = open ? to_type(b, down[k], TYPE_TEXT, "a field") : down[k]))
                return (int)b->e->code;
        types[i] = open ? TYPE_TEXT : types[i];
    }
    return 0;
}

/* Returns a copy of n in which columns of `source` replace the varying fields, in the order of
 * find_fields. */
static node *fill_fields(binder *b, const node *n, const rel *source, int *at) {
    node *copy = ARENA_NEW(b->mem, node);
    *copy = *n;
    copy->args = ARENA_ARRAY(b->mem, node *, n->nargs);
    for (int i = 0; i < n->nargs; i++) {
        if (!varies_by_row(n, i)) {
            copy->args[i] = fill_fields(b, n->args[i], source, at);
            continue;
        }
        const rel_column *c = &source->cols[(*at)++];
        node *field = copy->args[i] = ARENA_NEW(b->mem, node);
        field->kind = NODE_BOUND;
        field->pos = n->args[i]->pos;
        field->len = n->args[i]->len;
        field->bound = expr_column(b->mem, c->id, c->type, c->name);
    }
    return copy;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Returns column `at` of the constant rows. A column of NULLs stays a literal, as its type is still
 * open. */
static expr *source_cell(binder *b, const rel *source, int at) {
    const rel_column *c = &source->cols[at];
    return c->type ? expr_column(b->mem, c->id, c->type, c->name)
                   : expr_literal(b->mem, value_null());
}

/* Binds the *n rows from `first`, which have equal shape, as one part. Reduces *n to the rows
 * before the type of a field changes. */
static int bind_same_shape(binder *b, const list *rows, int first, int *n, cell_binder *cell,
                           void *ctx, values_part *part) {
    const list *row = rows->items[first];
    list varying = find_varying(b, row);
    expr ***values = ARENA_ARRAY(b->mem, expr **, *n);
    value_type *types = ARENA_ARRAY(b->mem, value_type, varying.n);
    bool fit = true;
    int taken = 0;
    for (; taken < *n && fit; taken += fit) {
        list of_row = find_varying(b, rows->items[first + taken]);
        values[taken] = ARENA_ARRAY(b->mem, expr *, varying.n);
        int status = bind_varying(b, &of_row, cell, ctx, values[taken], types, &fit);
        if (status)
            return status;
    }
    *n = taken;
    int status = unify_varying(b, &varying, values, taken, types);
    if (status)
        return status;
    rel *source = part->source = rel_make(b->mem, REL_VALUES, varying.n);
    source->values.nrows = taken;
    source->values.rows = values;
    for (int i = 0; i < varying.n; i++)
        source->cols[i] =
            (rel_column){new_id(b), types[i], ((varying_value *)varying.items[i])->name, {NULL, 0}};
    for (int k = 0, at = 0; k < row->n; k++) {
        const node *x = row->items[k];
        if (!has_call(x))
            part->cells[k] = source_cell(b, source, at++);
        else if (!(part->cells[k] = cell(b, ctx, fill_fields(b, x, source, &at), k)))
            return (int)b->e->code;
    }
    return 0;
}

int bind_rows(binder *b, const list *rows, cell_binder *cell, void *ctx, values_part **parts,
              int *nparts) {
    *parts = ARENA_ARRAY(b->mem, values_part, rows->n);
    *nparts = 0;
    int status = 0;
    for (int i = 0, n; i < rows->n && !status; i += n) {
        const list *row = rows->items[i];
        values_part *part = &(*parts)[(*nparts)++];
        part->cells = ARENA_ARRAY(b->mem, expr *, row->n);
        b->at.lift = &part->steps;
        n = count_same_shape(rows, i);
        if (n > 1)
            status = bind_same_shape(b, rows, i, &n, cell, ctx, part);
        for (int k = 0; n == 1 && !part->source && k < row->n && !status; k++)
            if (!(part->cells[k] = cell(b, ctx, row->items[k], k)))
                status = (int)b->e->code;
    }
    b->at.lift = NULL;
    return status;
}

rel *bind_union_all(binder *b, rel *l, rel *r) {
    rel *u = rel_make(b->mem, REL_SETOP, l->ncols);
    u->left = l;
    u->right = r;
    u->setop.op = SETOP_UNION_ALL;
    for (int i = 0; i < l->ncols; i++) {
        u->cols[i] = l->cols[i];
        u->cols[i].id = new_id(b);
    }
    return u;
}

/* Returns the parts, in order, joined by UNION ALL as a balanced tree. */
static rel *union_all(binder *b, rel **parts, int n) {
    if (n == 1)
        return parts[0];
    rel *l = union_all(b, parts, n / 2), *r = union_all(b, parts + n / 2, n - n / 2);
    rel *u = bind_union_all(b, l, r);
    for (int i = 0; i < l->ncols; i++) {
        id_copy(b, u->cols[i].id,
                expr_column(b->mem, l->cols[i].id, l->cols[i].type, l->cols[i].name));
    }
    return u;
}

static void name_columns(binder *b, rel *r, const rel_column *cols) {
    for (int i = 0; i < r->ncols; i++) {
        r->cols[i] = cols[i];
        r->cols[i].id = new_id(b);
    }
}

rel *values_rel(binder *b, values_part *parts, int nparts, const rel_column *cols, int ncols) {
    bool plain = true;
    for (int i = 0; i < nparts; i++)
        plain = plain && !parts[i].source && parts[i].steps.steps.n == 0;
    if (plain) {
        rel *r = rel_make(b->mem, REL_VALUES, ncols);
        r->values.nrows = nparts;
        r->values.rows = ARENA_ARRAY(b->mem, expr **, nparts);
        for (int i = 0; i < nparts; i++)
            r->values.rows[i] = parts[i].cells;
        name_columns(b, r, cols);
        return r;
    }
    rel **done = ARENA_ARRAY(b->mem, rel *, nparts);
    for (int i = 0; i < nparts; i++) {
        rel *source = parts[i].source ? parts[i].source : rel_one_row(b->mem);
        done[i] = rel_project(b->mem, lift_place(b, &parts[i].steps, source), ncols);
        name_columns(b, done[i], cols);
        for (int k = 0; k < ncols; k++) {
            done[i]->project.exprs[k] = (rel_expr){parts[i].cells[k], done[i]->cols[k].id};
            /* a column over several parts can hold answers of several calls */
            if (nparts == 1)
                id_copy(b, done[i]->cols[k].id, parts[i].cells[k]);
        }
    }
    return union_all(b, done, nparts);
}

/* ---- VALUES as a query ----------------------------------------------------------------------- */

static expr *bind_value(binder *b, void *ctx, const node *n, int at) {
    (void)ctx;
    (void)at;
    return bind_expr(b, n);
}

int bind_values(binder *b, query *q, rel **out) {
    int ncols = ((list *)q->rows.items[0])->n, nparts;
    for (int i = 1; i < q->rows.n; i++) {
        list *row = q->rows.items[i];
        if (row->n != ncols)
            return fail_node(b, row->items[0],
                             "row %d of VALUES has %d value%s, but the first has %d", i + 1, row->n,
                             row->n == 1 ? "" : "s", ncols);
    }
    values_part *parts;
    b->at.no_aggregate = "VALUES";
    int status = bind_rows(b, &q->rows, bind_value, NULL, &parts, &nparts);
    rel_column *cols = ARENA_ARRAY(b->mem, rel_column, ncols);
    expr **down = ARENA_ARRAY(b->mem, expr *, nparts);
    for (int k = 0; k < ncols && !status; k++) {
        for (int i = 0; i < nparts; i++)
            down[i] = parts[i].cells[k];
        cols[k].name = str_from(arena_printf(b->mem, "column%d", k + 1));
        status = unify_all(b, down, nparts, "VALUES", &cols[k].type);
        for (int i = 0; i < nparts; i++)
            parts[i].cells[k] = down[i];
    }
    if (!status)
        *out = values_rel(b, parts, nparts, cols, ncols);
    return status;
}
