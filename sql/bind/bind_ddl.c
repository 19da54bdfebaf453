/*
 * bind_ddl.c - CREATE, DROP and ALTER, checked against the catalog.
 *
 * The catalog keeps DEFAULT, CHECK and the query of a view as text; they are bound here only to
 * check them.
 */
#include <stdlib.h>
#include <string.h>

#include "bind_int.h"

/* ---- names ----------------------------------------------------------------------------------- */

static const char *kind_of(binder *b, str name) {
    const catalog *c = b->env->catalog;
    const table_def *t;
    if (catalog_table(c, name))
        return "TABLE";
    if (catalog_view(c, name))
        return "VIEW";
    if (catalog_model(c, name))
        return "MODEL";
    return catalog_index(c, name, &t) ? "INDEX" : NULL;
}

/* Checks that the name is free: tables, views and system tables share one namespace. */
static int relation_free(binder *b, ident name, const char *making, bool if_not_exists,
                         bool or_replace) {
    const char *is = catalog_table(b->env->catalog, name.name)  ? "table"
                     : catalog_view(b->env->catalog, name.name) ? "view"
                     : is_system_table(b, name.name)            ? "system table"
                                                                : NULL;
    if (!is || (strcmp(is, making) == 0 && (if_not_exists || or_replace)))
        return 0;
    return fail_ident(b, name, "%s \"%.*s\" already exists", is, (int)name.name.n, name.name.p);
}

/* ---- CREATE TABLE ---------------------------------------------------------------------------- */

static str joined_name(binder *b, const table_def *t, const int *columns, int n,
                       const char *suffix) {
    buf out = {0};
    buf_append_str(&out, t->name);
    for (int i = 0; i < n; i++)
        buf_printf(&out, "_%.*s", (int)t->columns[columns[i]].name.n,
                   t->columns[columns[i]].name.p);
    buf_append_c(&out, suffix);
    str s = str_copy(b->mem, buf_str(&out));
    buf_free(&out);
    return s;
}

static void add_index(binder *b, table_def *t, const int *columns, int n, bool primary) {
    index_def *x = &t->indexes[t->nindexes++];
    *x = (index_def){.unique = true, .primary = primary, .ncolumns = n};
    x->columns = ARENA_ARRAY(b->mem, int, n);
    memcpy(x->columns, columns, sizeof *columns * (size_t)n);
    x->name = primary ? str_from(arena_printf(b->mem, "%.*s_pkey", (int)t->name.n, t->name.p))
                      : joined_name(b, t, columns, n, "_key");
}

static int table_columns(binder *b, const table_spec *spec, table_def *t) {
    t->ncolumns = spec->columns.n;
    t->columns = ARENA_ARRAY(b->mem, column_def, t->ncolumns);
    for (int i = 0; i < t->ncolumns; i++) {
        const column_spec *c = spec->columns.items[i];
        for (int k = 0; k < i; k++)
            if (str_equal_nocase(t->columns[k].name, c->name.name))
                return fail_ident(b, c->name, "column \"%.*s\" is named twice", (int)c->name.name.n,
                                  c->name.name.p);
        t->columns[i] =
            (column_def){c->name.name,   c->type,     c->dims, c->not_null || c->primary,
                         c->default_sql, c->check_sql};
    }
    return 0;
}

static int table_keys(binder *b, const table_spec *spec, table_def *t) {
    int *primary = ARENA_ARRAY(b->mem, int, t->ncolumns), n = 0, status = 0;
    t->indexes = ARENA_ARRAY(b->mem, index_def, spec->columns.n + spec->uniques.n + 1);
    t->rowid_column = -1;
    for (int i = 0; i < t->ncolumns; i++) {
        const column_spec *c = spec->columns.items[i];
        if (c->primary && n++ > 0) {
            fail_ident(b, c->name, "a table can have only one primary key");
            err_hint(b->e, "write PRIMARY KEY (a, b) for several columns");
            return ERR_BIND;
        }
        if (c->primary)
            primary[0] = i;
    }
    if (spec->primary_key.n) {
        ident *first = spec->primary_key.items[0];
        if (n)
            return fail_ident(b, *first, "a table can have only one primary key");
        if ((status = find_columns(b, t, &spec->primary_key, &primary)) != 0)
            return status;
        n = spec->primary_key.n;
    }
    for (int i = 0; i < n; i++)
        t->columns[primary[i]].not_null = true;
    if (n == 1 && t->columns[primary[0]].type == TYPE_INTEGER)
        t->rowid_column = primary[0];
    else if (n)
        add_index(b, t, primary, n, true);
    for (int i = 0; i < t->ncolumns; i++)
        if (((column_spec *)spec->columns.items[i])->unique && i != t->rowid_column)
            add_index(b, t, &i, 1, false);
    for (int i = 0; i < spec->uniques.n && !status; i++) {
        int *columns;
        const list *names = spec->uniques.items[i];
        status = find_columns(b, t, names, &columns);
        if (!status)
            add_index(b, t, columns, names->n, false);
    }
    return status;
}

/* Binds each DEFAULT and CHECK from its syntax tree rather than its text, so that errors have a
 * position. */
static int check_expressions(binder *b, const table_spec *spec, const table_def *t) {
    scope row = {.outer = NULL};
    table_scope(b, t, t->name, &row);
    for (int i = 0; i < spec->columns.n; i++) {
        const column_spec *c = spec->columns.items[i];
        if (c->standard && bind_default_node(b, c->standard, &t->columns[i]))
            return (int)b->e->code;
        for (int k = 0; k < c->checks.n; k++)
            if (!bind_row_condition(b, c->checks.items[k], &row, "CHECK"))
                return (int)b->e->code;
    }
    for (int i = 0; i < spec->checks.n; i++)
        if (!bind_row_condition(b, ((check_spec *)spec->checks.items[i])->value, &row, "CHECK"))
            return (int)b->e->code;
    return 0;
}

/* A vector has no order that a search uses, and its key would rarely fit. */
static int refuse_vector_keys(binder *b, const table_def *t, const index_def *x, ident at) {
    for (int k = 0; k < x->ncolumns; k++) {
        str name = t->columns[x->columns[k]].name;
        if (t->columns[x->columns[k]].type != TYPE_VECTOR)
            continue;
        fail(b, ERR_UNSUPPORTED, at.pos, at.len,
             "column \"%.*s\" is a VECTOR, which cannot be in an index or key", (int)name.n,
             name.p);
        err_hint(b->e, "vectors have an index of their own: CREATE INDEX ON %.*s USING ivfflat (…)",
                 (int)BASE_MIN(t->name.n, (size_t)80), t->name.p);
        return ERR_UNSUPPORTED;
    }
    return 0;
}

static int table_of_spec(binder *b, const ast *a, table_def *t) {
    int status = table_columns(b, a->table, t);
    if (!status)
        status = table_keys(b, a->table, t);
    for (int i = 0; i < t->nindexes && !status; i++)
        status = refuse_vector_keys(b, t, &t->indexes[i], a->name);
    t->nchecks = a->table->checks.n;
    t->checks = ARENA_ARRAY(b->mem, str, t->nchecks);
    for (int i = 0; i < t->nchecks; i++)
        t->checks[i] = ((check_spec *)a->table->checks.items[i])->sql;
    return status ? status : check_expressions(b, a->table, t);
}

static int table_of_query(binder *b, const ast *a, sql_stmt *s, table_def *t) {
    int status = bind_query(b, a->query, &s->query);
    if (status)
        return status;
    rel_settle_all(s->query);
    t->rowid_column = -1;
    t->ncolumns = s->query->ncols;
    t->columns = ARENA_ARRAY(b->mem, column_def, t->ncolumns);
    for (int i = 0; i < t->ncolumns; i++) {
        str name = s->query->cols[i].name;
        for (int k = 0; k < i; k++)
            if (str_equal_nocase(t->columns[k].name, name)) {
                fail(b, ERR_BIND, a->query->pos, a->query->len, "column \"%.*s\" is named twice",
                     (int)name.n, name.p);
                err_hint(b->e, "rename one of them with AS");
                return ERR_BIND;
            }
        const rel_column *c = &s->query->cols[i];
        t->columns[i] =
            (column_def){.name = name,
                         .type = c->type,
                         .dims = c->type == TYPE_VECTOR ? rel_column_dims(s->query, c->id) : 0};
    }
    return 0;
}

int bind_create_table(binder *b, ast *a, sql_stmt *s) {
    s->kind = a->query ? STMT_CREATE_TABLE_AS : STMT_CREATE_TABLE;
    s->if_not_exists = a->if_not_exists;
    s->name = s->create_table.name = a->name.name;
    int status = relation_free(b, a->name, "table", a->if_not_exists, false);
    if (status)
        return status;
    return a->query ? table_of_query(b, a, s, &s->create_table)
                    : table_of_spec(b, a, &s->create_table);
}

/* ---- CREATE INDEX, VIEW, MODEL --------------------------------------------------------------- */

/* Sets the option lists = n of an index. */
static int index_options(binder *b, const ast *a, vector_lists *lists) {
    enum { MOST = 32768 };
    for (int i = 0; i < a->items.n; i++) {
        const copy_option *o = a->items.items[i];
        if (!str_equal_nocase(o->name.name, STR("lists"))) {
            fail_ident(b, o->name, "an index has no option \"%.*s\"", (int)o->name.name.n,
                       o->name.name.p);
            err_hint(b->e, "the option is lists: WITH (lists = 1000)");
            return ERR_BIND;
        }
        if (!o->value || o->value->literal.type != TYPE_INTEGER || o->value->literal.i < 1 ||
            o->value->literal.i > MOST)
            return fail_ident(b, o->name, "lists must be a whole number from 1 to %d", MOST);
        lists->n = (uint32_t)o->value->literal.i;
    }
    return 0;
}

/* Binds CREATE INDEX … USING ivfflat (column class), as in pgvector. */
static int bind_lists(binder *b, const ast *a, sql_stmt *s, const list *names) {
    index_def *x = &s->create_index;
    const ident *class = a->columns.items[1];
    const column_def *c = &s->table->columns[x->columns[0]];
    vector_lists *lists = ARENA_NEW(b->mem, vector_lists);
    bool cosine = str_equal_nocase(class->name, STR("vector_cosine_ops"));
    if (!str_equal_nocase(a->column.name, STR("ivfflat"))) {
        fail_ident(b, a->column, "no index method \"%.*s\"", (int)a->column.name.n,
                   a->column.name.p);
        err_hint(b->e, "vectors: USING ivfflat (column vector_cosine_ops); others need no USING");
        return ERR_BIND;
    }
    if (a->unique)
        return fail_ident(b, a->column, "an ivfflat index cannot be UNIQUE");
    if (c->type != TYPE_VECTOR)
        return fail_ident(b, *(ident *)names->items[0],
                          "an ivfflat index needs a column of type VECTOR, not %s",
                          type_name(c->type));
    if (class->name.n && !cosine && !str_equal_nocase(class->name, STR("vector_l2_ops"))) {
        fail_ident(b, *class, "an ivfflat index has no class \"%.*s\"", (int)class->name.n,
                   class->name.p);
        err_hint(b->e, "vector_l2_ops (the default) for <->, vector_cosine_ops for <=>");
        return ERR_BIND;
    }
    lists->metric = cosine ? VECTOR_COSINE : VECTOR_L2;
    lists->dims = c->dims;
    x->lists = lists;
    return index_options(b, a, lists);
}

static int index_names(binder *b, const ast *a, list *names) {
    if (a->column.name.n)
        list_add(b->mem, names, a->columns.items[0]);
    for (int i = 0; i < a->items.n && !a->column.name.n; i++) {
        const order_item *o = a->items.items[i];
        const node *n = o->value;
        if (n->kind != NODE_COLUMN || n->qualifier.name.n)
            return fail(b, ERR_UNSUPPORTED, n->pos, n->len,
                        "%s not allowed in an index: only columns are",
                        n->kind == NODE_LLM ? "an LLM call is" : "expressions are");
        /* ASC, DESC and NULLS change nothing: an index is scanned in both directions */
        ident *name = ARENA_NEW(b->mem, ident);
        *name = n->name;
        list_add(b->mem, names, name);
    }
    return 0;
}

int bind_create_index(binder *b, ast *a, sql_stmt *s) {
    s->kind = STMT_CREATE_INDEX;
    s->if_not_exists = a->if_not_exists;
    s->name = a->name2.name;
    list names = {0};
    int status = find_table(b, a->name2, &s->table);
    if (!status)
        status = index_names(b, a, &names);
    if (status)
        return status;
    index_def *x = &s->create_index;
    x->unique = a->unique;
    x->ncolumns = names.n;
    status = find_columns(b, s->table, &names, &x->columns);
    if (!status)
        status = a->column.name.n ? bind_lists(b, a, s, &names)
                                  : refuse_vector_keys(b, s->table, x, *(ident *)names.items[0]);
    if (status)
        return status;
    const table_def *other;
    x->name =
        a->name.name.n ? a->name.name : joined_name(b, s->table, x->columns, x->ncolumns, "_idx");
    if (catalog_index(b->env->catalog, x->name, &other) && !a->if_not_exists)
        return fail_ident(b, a->name.name.n ? a->name : a->name2, "index \"%.*s\" already exists",
                          (int)x->name.n, x->name.p);
    return 0;
}

int bind_create_view(binder *b, ast *a, sql_stmt *s) {
    s->kind = STMT_CREATE_VIEW;
    s->if_not_exists = a->if_not_exists;
    s->or_replace = a->or_replace;
    s->name = a->name.name;
    int status = relation_free(b, a->name, "view", a->if_not_exists, a->or_replace);
    if (!status)
        status = bind_query(b, a->query, &s->query);
    if (status)
        return status;
    view_def *v = &s->create_view;
    v->name = a->name.name;
    v->sql = a->sql;
    v->ncolumns = a->columns.n;
    v->columns = ARENA_ARRAY(b->mem, str, v->ncolumns);
    if (v->ncolumns && v->ncolumns != s->query->ncols)
        return fail_ident(b, a->name, "the view lists %d columns, but its query returns %d",
                          v->ncolumns, s->query->ncols);
    for (int i = 0; i < v->ncolumns; i++)
        v->columns[i] = ((ident *)a->columns.items[i])->name;
    s->query = NULL;
    const view_def *old = a->or_replace ? catalog_view(b->env->catalog, v->name) : NULL;
    return old ? views_allow_view(b, old, v, a->name) : 0;
}

/* Copies the options; exec knows their names. */
static void model_options(binder *b, const ast *a, sql_stmt *s) {
    s->nmodel_options = a->items.n;
    s->model_options = ARENA_ARRAY(b->mem, model_option, BASE_MAX(a->items.n, 1));
    for (int i = 0; i < a->items.n; i++) {
        const copy_option *o = a->items.items[i];
        buf text = {0};
        value_print(&text, o->value ? o->value->literal : value_text(STR("on")));
        s->model_options[i] =
            (model_option){o->name.name, str_copy(b->mem, text.n > 0 ? buf_str(&text) : STR("")),
                           o->name.pos, o->name.len};
        buf_free(&text);
    }
}

int bind_create_model(binder *b, ast *a, sql_stmt *s) {
    s->kind = STMT_CREATE_MODEL;
    s->if_not_exists = a->if_not_exists;
    s->or_replace = a->or_replace;
    s->name = a->name.name;
    s->create_model = (model_def){.name = a->name.name, .source = a->path};
    model_options(b, a, s);
    if (a->path.n == 0)
        return fail_ident(b, a->name, "the file name of a model cannot be empty");
    if (catalog_model(b->env->catalog, a->name.name) && !a->if_not_exists && !a->or_replace)
        return fail_ident(b, a->name, "model \"%.*s\" already exists", (int)s->name.n, s->name.p);
    return 0;
}

/* ---- DROP, ALTER ----------------------------------------------------------------------------- */

int bind_drop(binder *b, ast *a, sql_stmt *s) {
    static const struct {
        stmt_kind kind;
        const char *name;
    } kinds[] = {{STMT_DROP_TABLE, "table"},
                 {STMT_DROP_VIEW, "view"},
                 {STMT_DROP_INDEX, "index"},
                 {STMT_DROP_MODEL, "model"}};
    const char *wanted = "";
    const table_def *t;
    const catalog *c = b->env->catalog;
    str name = a->name.name;
    s->kind = a->stmt;
    s->name = name;
    s->if_exists = a->if_exists;
    const table_def *table = a->stmt == STMT_DROP_TABLE ? catalog_table(c, name) : NULL;
    const view_def *view = a->stmt == STMT_DROP_VIEW ? catalog_view(c, name) : NULL;
    if (table)
        return views_allow_table(b, table, NULL, a->name);
    if (view)
        return views_allow_view(b, view, NULL, a->name);
    if ((a->stmt == STMT_DROP_INDEX && catalog_index(c, name, &t)) ||
        (a->stmt == STMT_DROP_MODEL && catalog_model(c, name)) || a->if_exists)
        return 0;
    for (size_t i = 0; i < BASE_COUNT(kinds); i++)
        if (kinds[i].kind == a->stmt)
            wanted = kinds[i].name;
    if (a->stmt == STMT_DROP_TABLE && !kind_of(b, name))
        return find_table(b, a->name, &t);
    fail_ident(b, a->name, "no %s \"%.*s\"", wanted, (int)name.n, name.p);
    if (kind_of(b, name))
        err_hint(b->e, "use DROP %s %.*s", kind_of(b, name), (int)BASE_MIN(name.n, (size_t)80),
                 name.p);
    return ERR_BIND;
}

static bool names_column(const node *n, str name) {
    return str_equal_nocase(n->name.name, name);
}

static bool names_table(const node *n, str name) {
    return str_equal_nocase(n->qualifier.name, name);
}

typedef bool (*column_says)(const node *column, str name);

static bool any_column(const node *n, column_says says, str name) {
    if (n->kind == NODE_COLUMN && says(n, name))
        return true;
    for (int i = 0; i < n->nargs; i++)
        if (any_column(n->args[i], says, name))
            return true;
    return false;
}

/* Returns the text of the first CHECK that has a column for which `says` is true; n = 0 if there is
 * none. The CHECK of column `skip` is not searched. */
static str find_check(binder *b, const table_def *t, int skip, column_says says, str name) {
    for (int i = 0; i < t->ncolumns + t->nchecks; i++) {
        str sql = i < t->ncolumns ? t->columns[i].check_sql : t->checks[i - t->ncolumns];
        node *n;
        err ignored = {0};
        if (sql.n && i != skip && sql_parse_expr(sql, b->mem, &n, &ignored) == 0 &&
            any_column(n, says, name))
            return sql;
    }
    return (str){NULL, 0};
}

/* Reports an error if another column's or the table's CHECK uses the column, which then cannot be
 * dropped. The column's own CHECK is dropped with it. */
static int not_in_checks(binder *b, const table_def *t, int at, ident name) {
    str sql = find_check(b, t, at, names_column, t->columns[at].name);
    return sql.n
               ? fail_ident(b, name, "column \"%.*s\" cannot be dropped: CHECK (%.*s) uses it",
                            (int)name.name.n, name.name.p, (int)BASE_MIN(sql.n, (size_t)200), sql.p)
               : 0;
}

static void add_places(binder *b, const node *n, str name, list *out) {
    if (n->kind == NODE_COLUMN && names_column(n, name))
        list_add(b->mem, out, (void *)(uintptr_t)&n->name);
    for (int i = 0; i < n->nargs; i++)
        add_places(b, n->args[i], name, out);
}

static int compare_places(const void *a, const void *b) {
    const ident *x = *(ident *const *)a, *y = *(ident *const *)b;
    return (x->pos > y->pos) - (x->pos < y->pos);
}

/* Returns the CHECK text with column `from` renamed to `to`; the rest stays as written. */
static str renamed_in(binder *b, str sql, str from, str to) {
    node *n;
    err ignored = {0};
    list places = {0};
    if (!sql.n || sql_parse_expr(sql, b->mem, &n, &ignored))
        return sql;
    add_places(b, n, from, &places);
    if (places.n == 0)
        return sql;
    qsort(places.items, (size_t)places.n, sizeof *places.items, compare_places);
    buf text = {0};
    size_t at = 0;
    for (int i = 0; i < places.n; i++) {
        const ident *place = places.items[i];
        buf_append(&text, sql.p + at, (size_t)place->pos - at);
        buf_append_str(&text, to);
        at = (size_t)(place->pos + place->len);
    }
    buf_append(&text, sql.p + at, sql.n - at);
    sql = str_copy(b->mem, buf_str(&text));
    buf_free(&text);
    return sql;
}

/* Returns the table with the column renamed, also in its CHECKs. */
static table_def renamed_table(binder *b, const table_def *t, int at, ident to) {
    table_def made = *t;
    str from = t->columns[at].name, written = {b->text.p + to.pos, (size_t)to.len};
    function_id function;
    /* without quotes a CHECK would not read these words as a column's name */
    if (keyword_code(written) || is_time_word(written, &function))
        written = str_from(arena_printf(b->mem, "\"%.*s\"", (int)written.n, written.p));
    made.columns = ARENA_ARRAY(b->mem, column_def, t->ncolumns);
    made.checks = ARENA_ARRAY(b->mem, str, t->nchecks);
    for (int i = 0; i < t->ncolumns; i++) {
        made.columns[i] = t->columns[i];
        made.columns[i].check_sql = renamed_in(b, t->columns[i].check_sql, from, written);
    }
    for (int i = 0; i < t->nchecks; i++)
        made.checks[i] = renamed_in(b, t->checks[i], from, written);
    made.columns[at].name = to.name;
    return made;
}

static int add_column(binder *b, const ast *a, sql_stmt *s) {
    const column_spec *c = a->spec;
    const table_def *t = s->table;
    s->kind = STMT_ADD_COLUMN;
    for (int i = 0; i < t->ncolumns; i++)
        if (str_equal_nocase(t->columns[i].name, c->name.name))
            return fail_ident(b, c->name, "table \"%.*s\" already has a column \"%.*s\"",
                              (int)t->name.n, t->name.p, (int)c->name.name.n, c->name.name.p);
    if (c->primary || c->unique) {
        fail(b, ERR_UNSUPPORTED, c->name.pos, c->name.len,
             "an added column cannot be UNIQUE or PRIMARY KEY");
        err_hint(b->e, "add the column, then CREATE UNIQUE INDEX");
        return ERR_UNSUPPORTED;
    }
    s->add_column =
        (column_def){c->name.name, c->type, c->dims, c->not_null, c->default_sql, c->check_sql};
    table_def wider = *t;
    wider.columns = ARENA_ARRAY(b->mem, column_def, t->ncolumns + 1);
    memcpy(wider.columns, t->columns, sizeof *t->columns * (size_t)t->ncolumns);
    wider.columns[wider.ncolumns++] = s->add_column;
    if (views_allow_table(b, t, &wider, c->name))
        return (int)b->e->code;
    scope row = {.outer = NULL};
    table_scope(b, &wider, t->name, &row);
    if (c->standard && bind_default_node(b, c->standard, &s->add_column))
        return (int)b->e->code;
    for (int i = 0; i < c->checks.n; i++)
        if (!bind_row_condition(b, c->checks.items[i], &row, "CHECK"))
            return (int)b->e->code;
    s->defaults = ARENA_ARRAY(b->mem, expr *, 1);
    return bind_default(b, &s->add_column, &s->defaults[0]);
}

/* Returns the table without the column and without indexes, to check whether the views remain
 * valid. */
static table_def table_without(binder *b, const table_def *t, int at) {
    table_def made = *t;
    made.columns = ARENA_ARRAY(b->mem, column_def, t->ncolumns);
    made.ncolumns = made.nindexes = 0;
    for (int i = 0; i < t->ncolumns; i++)
        if (i != at)
            made.columns[made.ncolumns++] = t->columns[i];
    made.rowid_column -= t->rowid_column > at;
    return made;
}

static int in_index(binder *b, const index_def *x, ident name) {
    if (x->primary)
        return fail_ident(b, name,
                          "column \"%.*s\" cannot be dropped: it belongs to the primary key",
                          (int)name.name.n, name.name.p);
    fail_ident(b, name, "column \"%.*s\" cannot be dropped: it belongs to index \"%.*s\"",
               (int)name.name.n, name.name.p, (int)x->name.n, x->name.p);
    err_hint(b->e, "DROP INDEX \"%.*s\" first", (int)BASE_MIN(x->name.n, (size_t)80), x->name.p);
    return ERR_BIND;
}

static int change_column(binder *b, const ast *a, sql_stmt *s) {
    const table_def *t = s->table;
    bool drop = a->kind == AST_DROP_COLUMN;
    s->kind = drop ? STMT_DROP_COLUMN : STMT_RENAME_COLUMN;
    s->column = find_column(b, t, a->column);
    if (s->column < 0)
        return (int)b->e->code;
    if (drop && t->ncolumns == 1)
        return fail_ident(b, a->column,
                          "column \"%.*s\" cannot be dropped: it is the table's only column",
                          (int)a->column.name.n, a->column.name.p);
    if (drop && s->column == t->rowid_column)
        return fail_ident(b, a->column, "column \"%.*s\" cannot be dropped: it is the primary key",
                          (int)a->column.name.n, a->column.name.p);
    for (int i = 0; drop && i < t->nindexes; i++)
        for (int k = 0; k < t->indexes[i].ncolumns; k++)
            if (t->indexes[i].columns[k] == s->column)
                return in_index(b, &t->indexes[i], a->column);
    for (int i = 0; !drop && i < t->ncolumns; i++)
        if (i != s->column && str_equal_nocase(t->columns[i].name, a->name2.name))
            return fail_ident(b, a->name2, "table \"%.*s\" already has a column \"%.*s\"",
                              (int)t->name.n, t->name.p, (int)a->name2.name.n, a->name2.name.p);
    int status = drop ? not_in_checks(b, t, s->column, a->column) : 0;
    if (status)
        return status;
    table_def changed =
        drop ? table_without(b, t, s->column) : renamed_table(b, t, s->column, a->name2);
    s->create_table = changed;
    s->new_name = a->name2.name;
    return views_allow_table(b, t, &changed, a->column);
}

int bind_alter(binder *b, ast *a, sql_stmt *s) {
    int status = find_table(b, a->name, &s->table);
    s->name = a->name.name;
    if (status)
        return status;
    if (a->kind == AST_ADD_COLUMN)
        return add_column(b, a, s);
    if (a->kind != AST_RENAME_TABLE)
        return change_column(b, a, s);
    s->kind = STMT_RENAME_TABLE;
    s->new_name = a->name2.name;
    if (str_equal_nocase(s->new_name, s->name))
        return 0;
    str sql = find_check(b, s->table, -1, names_table, s->table->name);
    if (sql.n)
        return fail_ident(
            b, a->name, "table \"%.*s\" cannot be renamed: CHECK (%.*s) refers to it by name",
            (int)s->table->name.n, s->table->name.p, (int)BASE_MIN(sql.n, (size_t)200), sql.p);
    if ((status = relation_free(b, a->name2, "table", false, false)) != 0)
        return status;
    table_def changed = *s->table;
    changed.name = s->new_name;
    return views_allow_table(b, s->table, &changed, a->name);
}
