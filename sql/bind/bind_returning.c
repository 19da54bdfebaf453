/*
 * bind_returning.c - RETURNING: the output of INSERT, UPDATE and DELETE.
 *
 *   a written row   rowid | column 1 … n | FROM's column 1 … f | step 1 … m
 *
 * Its expressions are evaluated after a row is written, when a generated key and the result of ON
 * CONFLICT are known. LLM calls and subqueries in them are steps of the query for the rows to
 * write, so that no model runs while other writers wait. Invariant: no step reads a value that is
 * known only after writing.
 */
#include "bind_int.h"

/* The ids [low, high) of the columns whose values are known only after writing. */
typedef struct id_range {
    int low, high;
    bool found; /* the query reads one of these columns */
} id_range;

/* Fills *row with the columns of a written row, under their ids in the query. Columns that INSERT
 * may generate (the key) or DO UPDATE may change get new ids, which are set in *made. */
static void written_row(binder *b, const sql_stmt *s, str alias, const scope *from, scope *row,
                        id_range *made) {
    const table_def *t = s->table;
    bool insert = s->kind == STMT_INSERT, named = false;
    const rel_column *cols = s->query->cols + !insert; /* without the rowid of UPDATE and DELETE */
    *made = (id_range){.low = b->next_id};
    int rowid = insert ? new_id(b) : s->query->cols[0].id;
    for (int i = 0; i < t->ncolumns; i++) {
        int id = cols[i].id;
        if (s->on_conflict == CONFLICT_UPDATE)
            id = new_id(b);
        if (i == t->rowid_column && insert)
            id = rowid;
        else if (i == t->rowid_column)
            rowid = id;
        scope_add(b, row, alias, t->columns[i].name, id, t->columns[i].type);
        named = named || str_equal_nocase(t->columns[i].name, STR("rowid"));
    }
    if (!named)
        scope_add(b, row, alias, STR("rowid"), rowid, TYPE_INTEGER)->hidden_column = true;
    made->high = b->next_id;
    for (int i = 0; from && i < from->n; i++)
        scope_add_column(b, row, &from->cols[i]);
}

static void search_id(void *ctx, int id) {
    id_range *made = ctx;
    made->found = made->found || (id >= made->low && id < made->high);
}

static void search_expr(rel_visit *v, expr **x) {
    expr_columns(*x, search_id, v->ctx);
}

/* Adds the steps above the query for the rows to write; the query's columns keep their
 * positions. */
static int place_steps(binder *b, const list *items, lift *steps, id_range *made, sql_stmt *s) {
    if (steps->steps.n == 0)
        return 0;
    s->query = lift_place(b, steps, s->query);
    rel_visit v = {.on_expr = search_expr, .ctx = made};
    rel_walk(s->query, &v);
    if (!made->found)
        return 0;
    const node *first = ((select_item *)items->items[0])->value,
               *last = ((select_item *)items->items[items->n - 1])->value;
    fail(b, ERR_UNSUPPORTED, first->pos, last->pos + last->len - first->pos,
         "an LLM call or a subquery in RETURNING cannot read %s known only when the row is written",
         s->on_conflict == CONFLICT_UPDATE ? "columns that DO UPDATE may change: they are"
                                           : "the generated key: it is");
    err_hint(b->e, "return the columns only, and read them in a SELECT afterwards");
    return ERR_UNSUPPORTED;
}

/* Returns a projection of all columns, so that the query ends in a PROJECT whose columns are in
 * order. */
static rel *project_all(binder *b, rel *r) {
    rel *p = rel_project(b->mem, r, r->ncols);
    for (int i = 0; i < p->ncols; i++) {
        expr *x = expr_column(b->mem, r->cols[i].id, r->cols[i].type, r->cols[i].name);
        p->cols[i] = r->cols[i];
        p->cols[i].id = new_id(b);
        p->project.exprs[i] = (rel_expr){x, p->cols[i].id};
    }
    return p;
}

static int keep_outputs(binder *b, const output *outs, int n, const scope *slots, sql_stmt *s) {
    s->nreturning = n;
    s->returning = ARENA_ARRAY(b->mem, expr *, n);
    s->returning_cols = ARENA_ARRAY(b->mem, rel_column, n);
    for (int i = 0; i < n; i++) {
        expr *x = outs[i].bound;
        if (x->type == TYPE_NULL && !(x = to_type(b, x, TYPE_TEXT, "RETURNING")))
            return (int)b->e->code;
        set_slots(x, slots);
        s->returning[i] = x;
        s->returning_cols[i] = (rel_column){-1, x->type, outs[i].name, outs[i].qualifier};
    }
    return 0;
}

static bool mentions(const node *n, const scope_column *c) {
    bool table = !n->qualifier.name.n || str_equal_nocase(n->qualifier.name, c->table);
    if (n->query || (n->kind == NODE_STAR && table) ||
        (n->kind == NODE_COLUMN && table && str_equal_nocase(n->name.name, c->name)))
        return true;
    for (int i = 0; i < n->nargs; i++)
        if (mentions(n->args[i], c))
            return true;
    return n->filter && mentions(n->filter, c);
}

bool returning_mentions(const ast *a, const scope_column *c) {
    for (int i = 0; a->returning && i < a->returning->n; i++)
        if (mentions(((select_item *)a->returning->items[i])->value, c))
            return true;
    return false;
}

int bind_returning(binder *b, const ast *a, str alias, const scope *from, sql_stmt *s) {
    if (!a->returning)
        return 0;
    scope row = {.outer = NULL}, slots = {.outer = NULL}, *outer = b->at.scope;
    lift steps = {{0}};
    output *outs;
    id_range made;
    int n, nrow = s->query->ncols;
    written_row(b, s, alias, from, &row, &made);
    scope_add(b, &slots, alias, STR("rowid"),
              s->kind == STMT_INSERT ? made.low : s->query->cols[0].id, TYPE_INTEGER);
    b->at.scope = &row;
    b->at.lift = &steps;
    b->at.returning = true;
    b->at.no_aggregate = "RETURNING";
    int status = bind_select_list(b, a->returning, &row, &outs, &n);
    b->at.scope = outer;
    b->at.lift = NULL;
    b->at.returning = false;
    if (!status)
        status = place_steps(b, a->returning, &steps, &made, s);
    if (status)
        return status;
    for (int i = 0; i < s->table->ncolumns; i++)
        scope_add_column(b, &slots, &row.cols[i]);
    for (int i = slots.n - (s->kind == STMT_INSERT); i < s->query->ncols; i++) {
        const rel_column *c = &s->query->cols[i];
        scope_add(b, &slots, alias, c->name, c->id, c->type);
    }
    if (s->query->ncols > nrow)
        s->query = project_all(b, s->query);
    return keep_outputs(b, outs, n, &slots, s);
}
