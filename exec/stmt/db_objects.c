/*
 * db_objects.c - lists the tables, views, indexes, models and system tables of a database.
 */
#include <string.h>

#include "stmt_int.h"
#include "system/object_sql_int.h"
#include "system/system_int.h"

typedef struct object_list {
    db *db;
    arena *mem;
    db_object *items;
    int count, capacity;
} object_list;

static db_object *add(object_list *l, const char *kind, str name, buf *sql, int ncolumns) {
    if (l->count == l->capacity) {
        db_object *old = l->items;
        l->capacity = BASE_MAX(16, l->capacity * 2);
        l->items = ARENA_ARRAY(l->mem, db_object, l->capacity);
        if (l->count)
            memcpy(l->items, old, sizeof *old * (size_t)l->count);
    }
    db_object *o = &l->items[l->count++];
    o->kind = kind;
    o->table = NULL;
    o->name = arena_strndup(l->mem, name.p, name.n);
    o->sql = arena_strndup(l->mem, buf_str(sql).p, sql->n);
    o->ncolumns = ncolumns;
    o->columns = ARENA_ARRAY(l->mem, const char *, BASE_MAX(ncolumns, 1));
    o->types = ARENA_ARRAY(l->mem, value_type, BASE_MAX(ncolumns, 1));
    buf_clear(sql);
    return o;
}

static void add_indexes(object_list *l, const table_def *t, buf *sql) {
    const char *table = arena_strndup(l->mem, t->name.p, t->name.n);
    for (int i = 0; i < t->nindexes; i++) {
        const index_def *x = &t->indexes[i];
        if (index_is_constraint(t, x))
            continue;
        index_sql(t, x, sql);
        add(l, "index", x->name, sql, 0)->table = table;
    }
}

static void add_tables(object_list *l, const catalog *c, buf *sql) {
    for (int k = 0; k < c->ntables; k++) {
        const table_def *t = &c->tables[k];
        table_sql(t, sql);
        db_object *o = add(l, "table", t->name, sql, t->ncolumns);
        for (int i = 0; i < t->ncolumns; i++) {
            o->columns[i] = arena_strndup(l->mem, t->columns[i].name.p, t->columns[i].name.n);
            o->types[i] = t->columns[i].type;
        }
    }
    for (int k = 0; k < c->ntables; k++)
        add_indexes(l, &c->tables[k], sql);
}

/* Adds the views. A view's columns come from binding its query now; a view whose query no longer
 * binds has no columns. */
static void add_views(db *d, object_list *l, const catalog *c, buf *sql) {
    for (int k = 0; k < c->nviews; k++) {
        const view_def *v = &c->views[k];
        sql_stmt *x = NULL;
        err ignored;
        bind_env env = {
            .catalog = c, .settings = &d->settings, .system_table = system_table_columns, .ctx = d};
        buf query = {0};
        buf_append_c(&query, "SELECT * FROM ");
        sql_print_name(&query, v->name);
        str text = str_copy(l->mem, buf_str(&query));
        bool bound = sql_bind_text(text, &env, l->mem, &x, &ignored) == 0;
        view_sql(v, sql);
        db_object *o = add(l, "view", v->name, sql, bound ? x->query->ncols : 0);
        for (int i = 0; i < o->ncolumns; i++) {
            o->columns[i] =
                arena_strndup(l->mem, x->query->cols[i].name.p, x->query->cols[i].name.n);
            o->types[i] = x->query->cols[i].type;
        }
        buf_free(&query);
    }
}

static void add_models(object_list *l, const catalog *c, buf *sql) {
    for (int k = 0; k < c->nmodels; k++) {
        model_sql(&c->models[k], sql);
        add(l, "model", c->models[k].name, sql, 0);
    }
}

static void add_system(object_list *l, buf *sql) {
    const system_table_info *t;
    for (size_t k = 0; (t = system_table_at(k)) != NULL; k++) {
        db_object *o = add(l, "system", str_from(t->name), sql, t->ncols);
        for (int i = 0; i < t->ncols; i++) {
            o->columns[i] = arena_strndup(l->mem, t->cols[i].name.p, t->cols[i].name.n);
            o->types[i] = t->cols[i].type;
        }
    }
}

static int list_objects(void *arg, err *e) {
    object_list *l = arg;
    db *d = l->db;
    buf sql = {0};
    txn *t = d->txn;
    int status = t ? 0 : txn_begin(d->store, false, NULL, &t, e);
    if (status)
        return status;
    const catalog *c = txn_catalog(t);
    add_tables(l, c, &sql);
    add_views(d, l, c, &sql);
    add_models(l, c, &sql);
    add_system(l, &sql);
    if (t != d->txn)
        txn_abort(t);
    buf_free(&sql);
    return 0;
}

int db_objects(db *d, arena *a, db_object **out, int *count, err *e) {
    object_list l = {.db = d, .mem = a};
    int status = worker_call(&d->worker, list_objects, &l, e);
    *out = l.items;
    *count = l.count;
    return status;
}
