/*
 * objects.c - what is in the database, as names and as the SQL that makes it.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "stmt/db_int.h"

/* ---- SQL text -------------------------------------------------------------------------------- */

static bool is_keyword(str name) {
    size_t count;
    const char *const *words = sql_keywords(&count);
    for (size_t k = 0; k < count; k++)
        if (str_equal_nocase(name, str_from(words[k])))
            return true;
    return false;
}

void name_sql(str name, buf *out) {
    bool plain = name.n > 0 && (isalpha((unsigned char)name.p[0]) || name.p[0] == '_');
    for (size_t k = 0; k < name.n && plain; k++)
        plain = isalnum((unsigned char)name.p[k]) || name.p[k] == '_';
    if (plain && !is_keyword(name)) {
        buf_append_str(out, name);
        return;
    }
    buf_append_char(out, '"');
    for (size_t k = 0; k < name.n; k++) {
        if (name.p[k] == '"')
            buf_append_char(out, '"');
        buf_append_char(out, name.p[k]);
    }
    buf_append_char(out, '"');
}

static void column_list(const table_def *t, const index_def *x, buf *out) {
    buf_append_char(out, '(');
    for (int k = 0; k < x->ncolumns; k++) {
        buf_append_c(out, k ? ", " : "");
        name_sql(t->columns[x->columns[k]].name, out);
    }
    buf_append_char(out, ')');
}

/* Whether a constraint of CREATE TABLE made the index: the binder
 * names those <table>_<columns>_key. A user's index of such a
 * name is shown as UNIQUE within its table, which means the same. */
static bool is_constraint(const table_def *t, const index_def *x) {
    buf tail = {0};
    if (x->primary || !x->unique)
        return x->primary;
    for (int k = 0; k < x->ncolumns; k++) {
        buf_append_char(&tail, '_');
        buf_append_str(&tail, t->columns[x->columns[k]].name);
    }
    buf_append_c(&tail, "_key");
    bool made = x->name.n > tail.n &&
                str_equal_nocase((str){x->name.p + (x->name.n - tail.n), tail.n}, buf_str(&tail));
    buf_free(&tail);
    return made;
}

static const index_def *column_constraint(const table_def *t, int column_at) {
    for (int k = 0; k < t->nindexes; k++) {
        const index_def *x = &t->indexes[k];
        if (is_constraint(t, x) && x->ncolumns == 1 && x->columns[0] == column_at)
            return x;
    }
    return NULL;
}

void table_sql(const table_def *t, buf *out) {
    buf_append_c(out, "CREATE TABLE ");
    name_sql(t->name, out);
    buf_append_c(out, " (");
    for (int c = 0; c < t->ncolumns; c++) {
        const column_def *d = &t->columns[c];
        const index_def *x = column_constraint(t, c);
        buf_append_c(out, c ? ", " : "");
        name_sql(d->name, out);
        buf_printf(out, " %s", type_name(d->type));
        if (c == t->rowid_column || (x && x->primary))
            buf_append_c(out, " PRIMARY KEY");
        else if (x)
            buf_append_c(out, " UNIQUE");
        if (d->not_null && c != t->rowid_column && !(x && x->primary))
            buf_append_c(out, " NOT NULL");
        if (d->default_sql.n)
            buf_printf(out, " DEFAULT (%.*s)", (int)d->default_sql.n, d->default_sql.p);
        if (d->check_sql.n)
            buf_printf(out, " CHECK (%.*s)", (int)d->check_sql.n, d->check_sql.p);
    }
    for (int k = 0; k < t->nindexes; k++) {
        const index_def *x = &t->indexes[k];
        if (!is_constraint(t, x) || x->ncolumns == 1)
            continue;
        buf_append_c(out, x->primary ? ", PRIMARY KEY " : ", UNIQUE ");
        column_list(t, x, out);
    }
    for (int k = 0; k < t->nchecks; k++)
        buf_printf(out, ", CHECK (%.*s)", (int)t->checks[k].n, t->checks[k].p);
    buf_append_c(out, ")");
}

static void index_sql(const table_def *t, const index_def *x, buf *out) {
    buf_append_c(out, x->unique ? "CREATE UNIQUE INDEX " : "CREATE INDEX ");
    name_sql(x->name, out);
    buf_append_c(out, " ON ");
    name_sql(t->name, out);
    buf_append_char(out, ' ');
    column_list(t, x, out);
}

void view_sql(const view_def *v, buf *out) {
    buf_append_c(out, "CREATE VIEW ");
    name_sql(v->name, out);
    for (int k = 0; k < v->ncolumns; k++) {
        buf_append_c(out, k ? ", " : " (");
        name_sql(v->columns[k], out);
    }
    buf_append_c(out, v->ncolumns ? ") AS " : " AS ");
    buf_append_str(out, v->sql);
}

void model_sql(const model_def *m, buf *out) {
    buf_append_c(out, "CREATE MODEL ");
    name_sql(m->name, out);
    buf_append_c(out, " FROM ");
    value_print_sql(out, value_text(m->source));
}

/* ---- db_objects ------------------------------------------------------------------------------ */

typedef struct object_list {
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
        if (is_constraint(t, x))
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

/* A view's columns are what its query gives now; a view that no longer binds has none. */
static void add_views(db *d, object_list *l, const catalog *c, buf *sql) {
    for (int k = 0; k < c->nviews; k++) {
        const view_def *v = &c->views[k];
        sql_stmt *x = NULL;
        err ignored;
        bind_env env = {
            .catalog = c, .settings = &d->settings, .system_table = system_table_columns, .ctx = d};
        buf query = {0};
        buf_append_c(&query, "SELECT * FROM ");
        name_sql(v->name, &query);
        str text = str_copy(l->mem, buf_str(&query));
        bool bound = sql_bind(text, &env, l->mem, &x, &ignored) == 0;
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

static int list_objects(db *d, void *arg, err *e) {
    object_list *l = arg;
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
    object_list l = {.mem = a};
    int status = db_call(d, list_objects, &l, e);
    *out = l.items;
    *count = l.count;
    return status;
}
