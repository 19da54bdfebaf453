/*
 * stmt_ddl.c - CREATE, DROP, ALTER, ANALYZE: the catalog is storage's; what needs evaluating
 * (DEFAULT, CHECK of a new column) is done here.
 */
#include <string.h>

#include "llm/models_int.h"
#include "stmt_int.h"
#include "system/object_sql_int.h"

typedef int (*ddl_fn)(stmt *s, const sql_stmt *x, txn *t, err *e);

static int create_table(stmt *s, const sql_stmt *x, txn *t, err *e) {
    (void)s;
    if (x->if_not_exists && catalog_table(txn_catalog(t), x->create_table.name))
        return 0;
    return catalog_create_table(t, &x->create_table, e);
}

static int create_index(stmt *s, const sql_stmt *x, txn *t, err *e) {
    const table_def *of;
    if (x->if_not_exists && catalog_index(txn_catalog(t), x->create_index.name, &of))
        return 0;
    return catalog_create_index(t, x->name, &x->create_index, &s->cancel, e);
}

static int create_view(stmt *s, const sql_stmt *x, txn *t, err *e) {
    (void)s;
    if (x->if_not_exists && catalog_view(txn_catalog(t), x->create_view.name))
        return 0;
    return catalog_create_view(t, &x->create_view, x->or_replace, e);
}

static int create_model(stmt *s, const sql_stmt *x, txn *t, err *e) {
    (void)s;
    if (x->if_not_exists && catalog_model(txn_catalog(t), x->create_model.name))
        return 0;
    int status = models_check_file(x->create_model.source, e);
    return status ? status : catalog_create_model(t, &x->create_model, x->or_replace, e);
}

static int drop_table(stmt *s, const sql_stmt *x, txn *t, err *e) {
    (void)s;
    if (x->if_exists && !catalog_table(txn_catalog(t), x->name))
        return 0;
    return catalog_drop_table(t, x->name, e);
}

static int drop_index(stmt *s, const sql_stmt *x, txn *t, err *e) {
    (void)s;
    const table_def *of;
    if (x->if_exists && !catalog_index(txn_catalog(t), x->name, &of))
        return 0;
    return catalog_drop_index(t, x->name, e);
}

static int drop_view(stmt *s, const sql_stmt *x, txn *t, err *e) {
    (void)s;
    if (x->if_exists && !catalog_view(txn_catalog(t), x->name))
        return 0;
    return catalog_drop_view(t, x->name, e);
}

static int drop_model(stmt *s, const sql_stmt *x, txn *t, err *e) {
    (void)s;
    if (x->if_exists && !catalog_model(txn_catalog(t), x->name))
        return 0;
    return catalog_drop_model(t, x->name, e);
}

/* Refuses a CHECK that rows already there violate. */
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
        status = err_set(e, ERR_CONSTRAINT, "CHECK (%.*s) fails for %lld row%s already there",
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
                "column \"%.*s\" is NOT NULL, but the rows already there would have no value",
                (int)c->name.n, c->name.p);
        err_hint(e, "give it a DEFAULT");
        return ERR_CONSTRAINT;
    }
    status = catalog_add_column(t, table->name, c, fill, &s->cancel, e);
    return status ? status : check_existing(s, table->name, c, e);
}

static int drop_column(stmt *s, const sql_stmt *x, txn *t, err *e) {
    return catalog_drop_column(t, x->table->name, x->column, &s->cancel, e);
}

static int rename_table(stmt *s, const sql_stmt *x, txn *t, err *e) {
    (void)s;
    return catalog_rename_table(t, x->table->name, x->new_name, e);
}

static int rename_column(stmt *s, const sql_stmt *x, txn *t, err *e) {
    (void)s;
    return catalog_rename_column(t, x->table->name, x->column, &x->create_table, e);
}

int stmt_ddl(stmt *s, sql_stmt *x, err *e) {
    static const struct {
        stmt_kind kind;
        ddl_fn run;
    } table[] = {
        {STMT_CREATE_TABLE, create_table}, {STMT_CREATE_INDEX, create_index},
        {STMT_CREATE_VIEW, create_view},   {STMT_CREATE_MODEL, create_model},
        {STMT_DROP_TABLE, drop_table},     {STMT_DROP_INDEX, drop_index},
        {STMT_DROP_VIEW, drop_view},       {STMT_DROP_MODEL, drop_model},
        {STMT_ADD_COLUMN, add_column},     {STMT_DROP_COLUMN, drop_column},
        {STMT_RENAME_TABLE, rename_table}, {STMT_RENAME_COLUMN, rename_column},
    };
    for (size_t k = 0; k < BASE_COUNT(table); k++)
        if (table[k].kind == x->kind)
            return table[k].run(s, x, s->db->active, e);
    return err_set(e, ERR_INTERNAL, "a definition of unknown kind %d", (int)x->kind);
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
