/*
 * stmt_ddl.c - CREATE, DROP, ALTER TABLE and ANALYZE. Storage keeps the catalog; this file
 * evaluates the DEFAULT and CHECK of a new column.
 */
#include <string.h>

#include "llm/models_int.h"
#include "stmt_int.h"
#include "system/object_sql_int.h"

/* Whether the object that a statement creates or drops is in the catalog. */
static bool object_exists(const catalog *c, const sql_stmt *x) {
    const table_def *of;
    switch (x->kind) {
    case STMT_CREATE_TABLE:
        return catalog_table(c, x->create_table.name) != NULL;
    case STMT_CREATE_INDEX:
        return catalog_index(c, x->create_index.name, &of) != NULL;
    case STMT_CREATE_VIEW:
        return catalog_view(c, x->create_view.name) != NULL;
    case STMT_CREATE_MODEL:
        return catalog_model(c, x->create_model.name) != NULL;
    case STMT_DROP_TABLE:
        return catalog_table(c, x->name) != NULL;
    case STMT_DROP_INDEX:
        return catalog_index(c, x->name, &of) != NULL;
    case STMT_DROP_VIEW:
        return catalog_view(c, x->name) != NULL;
    case STMT_DROP_MODEL:
        return catalog_model(c, x->name) != NULL;
    default:
        return true;
    }
}

/* Checks the options and appends them as the catalog has them. */
static int check_options(const sql_stmt *x, buf *out, err *e) {
    for (int i = 0; i < x->nmodel_options; i++) {
        const model_option *o = &x->model_options[i];
        if (!llm_is_remote(x->create_model.source))
            return err_set_at(e, ERR_BIND, o->pos, o->len, "a model in a file has no options");
        int status = llm_remote_check_option(o->name, o->text, e);
        if (status) {
            e->pos = o->pos;
            e->len = o->len;
            return status;
        }
        for (size_t k = 0; k < o->name.n; k++)
            buf_append_char(out, ascii_lower(o->name.p[k]));
        buf_printf(out, "=%.*s\n", (int)o->text.n, o->text.p);
    }
    return 0;
}

static int create_model(stmt *s, const sql_stmt *x, txn *t, err *e) {
    buf options = {0};
    model_def def = x->create_model;
    int status = check_options(x, &options, e);
    def.options = options.n > 0 ? buf_str(&options) : STR("");
    if (status == 0)
        status = models_check_source(&def, e);
    if (status == 0)
        status = catalog_create_model(t, &def, x->or_replace, e);
    if (status == 0 && s->db->typed)
        endpoints_typed(s->db, &def);
    buf_free(&options);
    return status;
}

/* Refuses a new column's CHECK that existing rows violate. */
static int check_existing(stmt *s, str table, const column_def *column_new, err *e) {
    buf sql = {0};
    value bad;
    if (column_new->check_sql.n == 0)
        return 0;
    buf_append_c(&sql, "SELECT COUNT(*) FROM ");
    sql_print_name(&sql, table);
    buf_printf(&sql, " WHERE NOT (%.*s)", (int)column_new->check_sql.n, column_new->check_sql.p);
    int status = stmt_scalar(s, buf_str(&sql), TYPE_INTEGER, &bad, e);
    if (status == 0 && bad.i > 0)
        status = err_set(e, ERR_CONSTRAINT, "CHECK (%.*s) fails for %lld existing row%s",
                         (int)column_new->check_sql.n, column_new->check_sql.p, (long long)bad.i,
                         bad.i == 1 ? "" : "s");
    buf_free(&sql);
    return status;
}

static int add_column(stmt *s, const sql_stmt *x, txn *t, err *e) {
    value fill = value_null();
    uint64_t rows = 0;
    const column_def *c = &x->add_column;
    const table_def *table = x->table;
    int status = c->default_sql.n ? stmt_scalar(s, c->default_sql, c->type, &fill, e) : 0;
    if (status == 0)
        status = table_row_count(t, table, &rows, e);
    if (status)
        return status;
    if (c->not_null && fill.type == TYPE_NULL && rows > 0) {
        err_set(e, ERR_CONSTRAINT,
                "column \"%.*s\" is NOT NULL, but existing rows would have no value for it",
                (int)c->name.n, c->name.p);
        err_hint(e, "give it a DEFAULT");
        return ERR_CONSTRAINT;
    }
    status = catalog_add_column(t, table->name, c, fill, &s->cancel, e);
    return status ? status : check_existing(s, table->name, c, e);
}

static int create_index(stmt *s, const sql_stmt *x, txn *t, err *e) {
    mem_budget memory = {.space = s->space,
                         .limit_bytes = (size_t)BASE_MAX(stmt_settings(s)->work_memory, 1)};
    return catalog_create_index(t, x->name, &x->create_index, &memory, &s->cancel, e);
}

int stmt_ddl(stmt *s, sql_stmt *x, err *e) {
    txn *t = s->db->active;
    bool exists = object_exists(txn_catalog(t), x);
    if ((x->if_not_exists && exists) || (x->if_exists && !exists))
        return 0;
    switch (x->kind) {
    case STMT_CREATE_TABLE:
        return catalog_create_table(t, &x->create_table, e);
    case STMT_CREATE_INDEX:
        return create_index(s, x, t, e);
    case STMT_CREATE_VIEW:
        return catalog_create_view(t, &x->create_view, x->or_replace, e);
    case STMT_CREATE_MODEL:
        return create_model(s, x, t, e);
    case STMT_DROP_TABLE:
        return catalog_drop_table(t, x->name, e);
    case STMT_DROP_INDEX:
        return catalog_drop_index(t, x->name, e);
    case STMT_DROP_VIEW:
        return catalog_drop_view(t, x->name, e);
    case STMT_DROP_MODEL:
        return catalog_drop_model(t, x->name, e);
    case STMT_ADD_COLUMN:
        return add_column(s, x, t, e);
    case STMT_DROP_COLUMN:
        return catalog_drop_column(t, x->table->name, x->column, &s->cancel, e);
    case STMT_RENAME_TABLE:
        return catalog_rename_table(t, x->table->name, x->new_name, e);
    case STMT_RENAME_COLUMN:
        return catalog_rename_column(t, x->table->name, x->column, &x->create_table, e);
    default:
        return err_set(e, ERR_INTERNAL, "unknown kind of definition %d", (int)x->kind);
    }
}

int stmt_analyze(stmt *s, sql_stmt *x, err *e) {
    txn *t = s->db->active;
    if (x->table)
        return stats_analyze(t, x->table, &s->cancel, e);
    const catalog *c = txn_catalog(t);
    int status = 0;
    for (int k = 0; k < c->ntables && status == 0; k++)
        status = stats_analyze(t, &c->tables[k], &s->cancel, e);
    return status;
}
