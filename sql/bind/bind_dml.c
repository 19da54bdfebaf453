/*
 * bind_dml.c - INSERT, UPDATE and DELETE: each becomes a query for the rows to write, plus the
 * CHECKs on them.
 *
 * The query of INSERT returns all columns of the table in table order, cast, with defaults filled
 * in. The query of UPDATE returns the rowid and all new values, the query of DELETE the rowid.
 * Invariant: exec evaluates CHECKs, but neither evaluates a DEFAULT nor converts to a column type.
 * bind_returning.c appends the columns of RETURNING.
 */
#include <string.h>

#include "bind_int.h"

/* ---- one row of a table ---------------------------------------------------------------------- */

int find_column(binder *b, const table_def *t, ident name) {
    for (int i = 0; i < t->ncolumns; i++)
        if (str_equal_nocase(t->columns[i].name, name.name))
            return i;
    fail_ident(b, name, "no column \"%.*s\" in \"%.*s\"", (int)name.name.n, name.name.p,
               (int)t->name.n, t->name.p);
    const char **names = ARENA_ARRAY(b->mem, const char *, t->ncolumns);
    for (int i = 0; i < t->ncolumns; i++)
        names[i] = arena_strndup(b->mem, t->columns[i].name.p, t->columns[i].name.n);
    hint_nearest(b, name.name, names, (size_t)t->ncolumns);
    return -1;
}

int find_columns(binder *b, const table_def *t, const list *names, int **out) {
    int *columns = ARENA_ARRAY(b->mem, int, names->n);
    for (int i = 0; i < names->n; i++) {
        ident *name = names->items[i];
        if ((columns[i] = find_column(b, t, *name)) < 0)
            return (int)b->e->code;
        for (int k = 0; k < i; k++)
            if (columns[k] == columns[i])
                return fail_ident(b, *name, "column \"%.*s\" is named twice", (int)name->name.n,
                                  name->name.p);
    }
    *out = columns;
    return 0;
}

void table_scope(binder *b, const table_def *t, str alias, scope *s) {
    for (int i = 0; i < t->ncolumns; i++)
        scope_add(b, s, alias, t->columns[i].name, new_id(b), t->columns[i].type);
}

void set_slots(expr *x, const scope *s) {
    if (x->kind == EXPR_COLUMN)
        for (int i = 0; i < s->n; i++)
            if (s->cols[i].id == x->column.id)
                x->column.slot = i;
    for (int i = 0; i < x->nargs; i++)
        set_slots(x->args[i], s);
}

static expr *bind_over_row(binder *b, const node *n, scope *s, const char *refuse) {
    bind_place before = b->at;
    lift none = {{0}};
    b->at.refuse = b->at.no_aggregate = refuse;
    b->at.scope = s;
    b->at.lift = &none;
    b->at.group = NULL;
    expr *x = bind_expr(b, n);
    b->at = before;
    if (x && s)
        set_slots(x, s);
    return x;
}

expr *bind_row_condition(binder *b, const node *n, scope *s, const char *refuse) {
    expr *x = bind_over_row(b, n, s, refuse);
    x = x ? to_condition(b, x) : NULL;
    if (x && expr_is_volatile(x)) {
        fail_node(b, n, "%s must be deterministic", refuse);
        return NULL;
    }
    return x;
}

/* Binds a CHECK from the catalog. Its errors have no position in this statement. */
static int bind_check_text(binder *b, const table_def *t, str sql, scope *s, row_check *out) {
    node *n;
    err problem = {0};
    int status = sql_parse_expr(sql, b->mem, &n, &problem);
    if (!status) {
        b->view_depth++;
        out->value = bind_row_condition(b, n, s, "CHECK");
        b->view_depth--;
        out->text = sql;
        return out->value ? 0 : (int)b->e->code;
    }
    return err_set(b->e, ERR_CORRUPT, "the stored CHECK (%.*s) of table \"%.*s\" is invalid: %s",
                   (int)sql.n, sql.p, (int)t->name.n, t->name.p, problem.message);
}

int bind_checks(binder *b, const table_def *t, sql_stmt *s) {
    scope row = {.outer = NULL};
    int n = 0, total = t->nchecks;
    for (int i = 0; i < t->ncolumns; i++)
        total += t->columns[i].check_sql.n > 0;
    s->nchecks = total;
    if (total == 0)
        return 0;
    table_scope(b, t, t->name, &row);
    s->checks = ARENA_ARRAY(b->mem, row_check, total);
    int status = 0;
    for (int i = 0; i < t->ncolumns && !status; i++)
        if (t->columns[i].check_sql.n)
            status = bind_check_text(b, t, t->columns[i].check_sql, &row, &s->checks[n++]);
    for (int i = 0; i < t->nchecks && !status; i++)
        status = bind_check_text(b, t, t->checks[i], &row, &s->checks[n++]);
    return status;
}

int bind_default_node(binder *b, const node *n, const column_def *c) {
    expr *x = bind_over_row(b, n, NULL, "DEFAULT");
    return x && to_column(b, x, c) ? 0 : (int)b->e->code;
}

int bind_default(binder *b, const column_def *c, expr **out) {
    *out = NULL;
    if (!c->default_sql.n)
        return 0;
    node *n;
    err problem = {0};
    int status = sql_parse_expr(c->default_sql, b->mem, &n, &problem);
    if (status)
        return err_set(b->e, ERR_CORRUPT, "the stored DEFAULT of column \"%.*s\" is invalid: %s",
                       (int)c->name.n, c->name.p, problem.message);
    b->view_depth++;
    expr *x = bind_over_row(b, n, NULL, "DEFAULT");
    *out = x ? to_column(b, x, c) : NULL;
    b->view_depth--;
    return *out ? 0 : (int)b->e->code;
}

/* ---- INSERT ---------------------------------------------------------------------------------- */

typedef struct target {
    const table_def *table;
    int n;           /* number of columns that get a value */
    int *columns;    /* [n]: their indexes in the table */
    expr **defaults; /* per column of the table; the literal NULL if the column has no DEFAULT */
} target;

static int find_target(binder *b, const ast *a, target *t) {
    int status = find_table(b, a->name, &t->table);
    if (status)
        return status;
    t->n = t->table->ncolumns;
    if (a->columns.n) {
        t->n = a->columns.n;
        if ((status = find_columns(b, t->table, &a->columns, &t->columns)) != 0)
            return status;
    } else {
        t->columns = ARENA_ARRAY(b->mem, int, t->n);
        for (int i = 0; i < t->n; i++)
            t->columns[i] = i;
    }
    t->defaults = ARENA_ARRAY(b->mem, expr *, t->table->ncolumns);
    for (int i = 0; i < t->table->ncolumns && !status; i++) {
        status = bind_default(b, &t->table->columns[i], &t->defaults[i]);
        if (!status && !t->defaults[i]) {
            t->defaults[i] = expr_literal(b->mem, value_null());
            t->defaults[i]->type = t->table->columns[i].type;
        }
    }
    return status;
}

static int wrong_width(binder *b, const target *t, int pos, int len, int given) {
    fail(b, ERR_BIND, pos, len, "%d value%s given for %d column%s of table \"%.*s\"", given,
         given == 1 ? "" : "s", t->n, t->n == 1 ? "" : "s", (int)t->table->name.n,
         t->table->name.p);
    if (given < t->n && t->n == t->table->ncolumns)
        err_hint(b->e, "list the columns to fill: INSERT INTO %.*s (…)",
                 (int)BASE_MIN(t->table->name.n, (size_t)80), t->table->name.p);
    return ERR_BIND;
}

static expr *bind_cell(binder *b, void *ctx, const node *n, int at) {
    const target *t = ctx;
    const column_def *c = &t->table->columns[t->columns[at]];
    if (n->kind == NODE_DEFAULT)
        return t->defaults[t->columns[at]];
    expr *x = bind_expr(b, n);
    return x && x->type != c->type ? to_column(b, x, c) : x;
}

static void name_columns(binder *b, const table_def *t, rel *r) {
    for (int i = 0; i < t->ncolumns; i++)
        r->cols[i] = (rel_column){new_id(b), t->columns[i].type, t->columns[i].name, {NULL, 0}};
}

static int check_widths(binder *b, const target *t, const list *rows) {
    for (int i = 0; i < rows->n; i++) {
        const list *row = rows->items[i];
        const node *first = row->items[0], *last = row->items[row->n - 1];
        if (row->n != t->n)
            return wrong_width(b, t, first->pos, last->pos + last->len - first->pos, row->n);
    }
    return 0;
}

/* Extends the cells of the listed columns to cells for all columns of the table. */
static expr **with_defaults(binder *b, const target *t, expr **cells) {
    size_t bytes = sizeof *cells * (size_t)t->table->ncolumns;
    expr **all = memcpy(ARENA_ARRAY(b->mem, expr *, t->table->ncolumns), t->defaults, bytes);
    for (int i = 0; cells && i < t->n; i++)
        all[t->columns[i]] = cells[i];
    return all;
}

static int insert_values(binder *b, const ast *a, target *t, rel **out) {
    values_part standard = {0}, *parts = &standard;
    int nparts = 1, ncols = t->table->ncolumns, status = 0;
    b->at.no_aggregate = "VALUES";
    if (!a->default_values)
        status = check_widths(b, t, &a->query->rows);
    if (!status && !a->default_values)
        status = bind_rows(b, &a->query->rows, bind_cell, t, &parts, &nparts);
    if (status)
        return status;
    for (int i = 0; i < nparts; i++)
        parts[i].cells = with_defaults(b, t, parts[i].cells);
    rel_column *cols = ARENA_ARRAY(b->mem, rel_column, ncols);
    for (int i = 0; i < ncols; i++)
        cols[i] = (rel_column){-1, t->table->columns[i].type, t->table->columns[i].name, {NULL, 0}};
    *out = values_rel(b, parts, nparts, cols, ncols);
    return 0;
}

static int insert_query(binder *b, const ast *a, const target *t, rel **out) {
    rel *r;
    int status = bind_query(b, a->query, &r);
    if (status)
        return status;
    if (r->ncols != t->n)
        return wrong_width(b, t, a->query->pos, a->query->len, r->ncols);
    rel *p = rel_project(b->mem, r, t->table->ncolumns);
    name_columns(b, t->table, p);
    for (int i = 0; i < p->ncols; i++)
        p->project.exprs[i] = (rel_expr){t->defaults[i], p->cols[i].id};
    for (int i = 0; i < t->n; i++) {
        const column_def *c = &t->table->columns[t->columns[i]];
        rel_settle(r, i, c->type);
        expr *x = expr_column(b->mem, r->cols[i].id, r->cols[i].type, r->cols[i].name);
        p->project.exprs[t->columns[i]].value = to_column(b, x, c);
    }
    *out = p;
    return 0;
}

static int conflict_target(binder *b, const ast *a, sql_stmt *s) {
    const table_def *t = s->table;
    if (!a->conflict_columns.n) {
        if (a->on_conflict != CONFLICT_UPDATE)
            return 0;
        fail_ident(b, a->name, "ON CONFLICT DO UPDATE needs the unique columns");
        err_hint(b->e, "write ON CONFLICT (id) DO UPDATE");
        return ERR_BIND;
    }
    s->nconflict = a->conflict_columns.n;
    int status = find_columns(b, t, &a->conflict_columns, &s->conflict_columns);
    if (status)
        return status;
    if (s->nconflict == 1 && s->conflict_columns[0] == t->rowid_column)
        return 0;
    for (int i = 0; i < t->nindexes; i++) {
        const index_def *x = &t->indexes[i];
        int matched = 0;
        for (int k = 0; x->unique && x->ncolumns == s->nconflict && k < x->ncolumns; k++)
            for (int m = 0; m < s->nconflict; m++)
                matched += x->columns[k] == s->conflict_columns[m];
        if (matched == s->nconflict)
            return 0;
    }
    fail_ident(b, *(ident *)a->conflict_columns.items[0],
               "ON CONFLICT: no unique index or primary key has these columns");
    return ERR_BIND;
}

static int conflict_assignments(binder *b, const ast *a, sql_stmt *s) {
    const table_def *t = s->table;
    scope row = {.outer = NULL};
    table_scope(b, t, t->name, &row);
    table_scope(b, t, STR("excluded"), &row);
    for (int i = t->ncolumns; i < row.n; i++)
        row.cols[i].merged = true; /* an unqualified name means the existing row */
    s->conflict_set = ARENA_ARRAY(b->mem, expr *, t->ncolumns);
    for (int i = 0; i < a->conflict_set.n; i++) {
        const assignment *set = a->conflict_set.items[i];
        int c = find_column(b, t, set->column);
        if (c < 0)
            return (int)b->e->code;
        if (s->conflict_set[c])
            return fail_ident(b, set->column, "column \"%.*s\" is set twice",
                              (int)set->column.name.n, set->column.name.p);
        expr *x = bind_over_row(b, set->value, &row, "ON CONFLICT");
        if (!x || !(x = to_column(b, x, &t->columns[c])))
            return (int)b->e->code;
        s->conflict_set[c] = x;
    }
    if (a->conflict_where &&
        !(s->conflict_where = bind_row_condition(b, a->conflict_where, &row, "ON CONFLICT")))
        return (int)b->e->code;
    return 0;
}

int bind_insert(binder *b, ast *a, sql_stmt *s) {
    target t = {0};
    s->kind = STMT_INSERT;
    int status = find_target(b, a, &t);
    if (status)
        return status;
    s->table = t.table;
    const query *q = a->query;
    bool values =
        !q || (q->kind == QUERY_VALUES && !q->with.n && !q->order_by.n && !q->limit && !q->offset);
    status = values ? insert_values(b, a, &t, &s->query) : insert_query(b, a, &t, &s->query);
    if (!status)
        status = bind_checks(b, t.table, s);
    s->on_conflict = a->on_conflict;
    if (!status && a->on_conflict != CONFLICT_FAIL)
        status = conflict_target(b, a, s);
    if (!status && a->on_conflict == CONFLICT_UPDATE)
        status = conflict_assignments(b, a, s);
    return status ? status : bind_returning(b, a, t.table->name, NULL, s);
}

/* ---- UPDATE, DELETE -------------------------------------------------------------------------- */

static str target_name(const ast *a, const sql_stmt *s) {
    return a->name2.name.n ? a->name2.name : s->table->name;
}

/* Joins FROM to the target rows. The columns of FROM follow the target's columns and are also added
 * to *from. */
static int join_from(binder *b, const ast *a, scope *rows, scope *from, rel **r) {
    int own = rows->n, status;
    rel *beside;
    b->target = rows->cols[0].table;
    if (a->from->kind == FROM_LLM) { /* sees the target's columns */
        status = bind_struct(b, a->from, rows, *r, r);
    } else {
        status = bind_from(b, a->from, rows, &beside);
        if (!status)
            *r = rel_join(b->mem, JOIN_CROSS, *r, beside, NULL);
    }
    if (status)
        return status;
    for (int i = own; i < rows->n; i++)
        scope_add_column(b, from, &rows->cols[i]);
    return 0;
}

/* Binds the rows of the table that satisfy WHERE. Their columns are the table's columns, the rowid,
 * then the columns of FROM. */
static int target_rows(binder *b, const ast *a, sql_stmt *s, scope *rows, scope *from, rel **out) {
    int status = find_table(b, a->name, &s->table);
    if (!status)
        status = bind_scan(b, s->table, target_name(a, s), NULL, true, rows, out);
    if (!status && a->from)
        status = join_from(b, a, rows, from, out);
    b->at.scope = rows;
    if (!status && a->where)
        status = bind_conjuncts(b, a->where, out);
    return status;
}

static rel_expr rowid_expr(binder *b, const sql_stmt *s, const rel *r, rel_column *col) {
    /* joins, filters and LLM calls only append columns, so the rowid still follows the table's
     * columns */
    const rel_column *from = &r->cols[s->table->ncolumns];
    *col = (rel_column){new_id(b), TYPE_INTEGER, STR("rowid"), {NULL, 0}};
    return (rel_expr){expr_column(b->mem, from->id, TYPE_INTEGER, from->name), col->id};
}

static int bind_assignments(binder *b, const ast *a, const table_def *t, expr **values) {
    for (int i = 0; i < a->items.n; i++) {
        const assignment *set = a->items.items[i];
        int c = find_column(b, t, set->column);
        if (c < 0)
            return (int)b->e->code;
        if (values[c])
            return fail_ident(b, set->column, "column \"%.*s\" is set twice",
                              (int)set->column.name.n, set->column.name.p);
        expr *x = bind_expr(b, set->value);
        if (!x || !(x = to_column(b, x, &t->columns[c])))
            return (int)b->e->code;
        values[c] = x;
    }
    return 0;
}

/* Projects the rowid, the table's columns (with the new values of `values`) and the columns
 * `from`. */
static rel *project_rows(binder *b, const sql_stmt *s, rel *with_steps, const rel *rows,
                         expr *const *values, const scope *from) {
    const table_def *t = s->table;
    int n = t->ncolumns + 1;
    rel *p = rel_project(b->mem, with_steps, n + from->n);
    p->project.exprs[0] = rowid_expr(b, s, rows, &p->cols[0]);
    for (int i = 1; i < p->ncols; i++) {
        const scope_column *beside = i < n ? NULL : &from->cols[i - n];
        const rel_column *old = &rows->cols[i - 1];
        int id = new_id(b);
        expr *x = beside ? expr_column(b->mem, beside->id, beside->type, beside->name)
                         : expr_column(b->mem, old->id, old->type, old->name);
        if (i < n && values && values[i - 1])
            x = values[i - 1];
        else
            /* so that a call in RETURNING can share the answers of SET and WHERE */
            id_copy(b, id, x);
        str name = beside ? beside->name : t->columns[i - 1].name;
        p->cols[i] =
            (rel_column){id, beside ? beside->type : t->columns[i - 1].type, name, {NULL, 0}};
        p->project.exprs[i] = (rel_expr){x, id};
    }
    return p;
}

int bind_update(binder *b, ast *a, sql_stmt *s) {
    scope *rows = ARENA_NEW(b->mem, scope), from = {.outer = NULL}, kept = {.outer = NULL};
    lift steps = {{0}};
    rel *r;
    s->kind = STMT_UPDATE;
    int status = target_rows(b, a, s, rows, &from, &r);
    if (status)
        return status;
    const table_def *t = s->table;
    expr **values = ARENA_ARRAY(b->mem, expr *, t->ncolumns);
    b->at.lift = &steps;
    b->at.no_aggregate = "UPDATE";
    status = bind_assignments(b, a, t, values);
    if (status)
        return status;
    for (int i = 0; i < from.n; i++)
        if (returning_mentions(a, &from.cols[i]))
            scope_add_column(b, &kept, &from.cols[i]);
    s->query = project_rows(b, s, lift_place(b, &steps, r), r, values, &kept);
    for (int i = 0, k = 0; k < kept.n; i++)
        if (from.cols[i].id == kept.cols[k].id)
            from.cols[i].id = s->query->cols[t->ncolumns + 1 + k++].id;
    s->update_from = a->from != NULL;
    /* rows of FROM that set the same values are no error: duplicates are removed */
    if (a->from)
        s->query = rel_distinct(b->mem, s->query);
    status = bind_checks(b, t, s);
    return status ? status : bind_returning(b, a, target_name(a, s), &from, s);
}

int bind_delete(binder *b, ast *a, sql_stmt *s) {
    scope *rows = ARENA_NEW(b->mem, scope), none = {.outer = NULL};
    rel *r;
    s->kind = STMT_DELETE;
    int status = target_rows(b, a, s, rows, &none, &r);
    if (status)
        return status;
    if (a->returning) {
        s->query = project_rows(b, s, r, r, NULL, &none);
        return bind_returning(b, a, target_name(a, s), NULL, s);
    }
    s->query = rel_project(b->mem, r, 1);
    s->query->project.exprs[0] = rowid_expr(b, s, r, &s->query->cols[0]);
    return 0;
}
