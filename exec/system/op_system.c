/*
 * op_system.c - the system tables kvasir_…: settings, functions, catalog, rules, models, cache.
 *
 * Each table is an entry of `tables`: its columns, and the function that computes all of its rows
 * at once.
 */
#include <string.h>
#include <sys/stat.h>

#include "llm/models_int.h"
#include "object_sql_int.h"
#include "ops/op_int.h"
#include "system_int.h"

/* Collects the rows of a system table, cell by cell. */
struct maker {
    op *o;
    rowset *rows;
    int ncols;
    column *row; /* the current row: ncols columns of one cell */
    int filled;  /* number of cells of the current row set so far */
    arena *mem;
};

exec_ctx *system_ctx(const maker *m) {
    return m->o->ctx;
}

arena *system_mem(const maker *m) {
    return m->mem;
}

void system_cell(maker *m, value v) {
    column_set(&m->row[m->filled], m->mem, 1, 0, v);
    if (++m->filled == m->ncols) {
        rowset_push(m->rows, m->row, 0);
        m->filled = 0;
    }
}

static void text_cell(maker *m, str s) {
    system_cell(m, value_text(s));
}

static void buf_cell(maker *m, buf *b) {
    text_cell(m, str_copy(m->mem, buf_str(b)));
    buf_clear(b);
}

static const rel_column settings_cols[] = {COLUMN("name", TYPE_TEXT), COLUMN("value", TYPE_TEXT),
                                           COLUMN("standard", TYPE_TEXT),
                                           COLUMN("words", TYPE_TEXT), COLUMN("help", TYPE_TEXT)};

static int settings_rows(maker *m, err *e) {
    size_t count;
    const setting_info *all = settings_table(&count);
    buf text = {0};
    int status = 0;
    for (size_t k = 0; k < count && status == 0; k++) {
        text_cell(m, str_from(all[k].name));
        status = settings_show(m->o->ctx->settings, str_from(all[k].name), &text, e);
        buf_cell(m, &text);
        text_cell(m, str_from(all[k].standard));
        text_cell(m, str_from(all[k].words));
        text_cell(m, str_from(all[k].help));
    }
    buf_free(&text);
    return status;
}

static const rel_column functions_cols[] = {COLUMN("name", TYPE_TEXT), COLUMN("kind", TYPE_TEXT),
                                            COLUMN("signature", TYPE_TEXT),
                                            COLUMN("help", TYPE_TEXT)};

static int functions_rows(maker *m, err *e) {
    (void)e;
    static const char *const classes[] = {[FUNCTION_SCALAR] = "scalar",
                                          [FUNCTION_AGGREGATE] = "aggregate",
                                          [FUNCTION_WINDOW] = "window",
                                          [FUNCTION_MODEL] = "model",
                                          [FUNCTION_TABLE] = "table"};
    BASE_COVERS(classes, FUNCTION_CLASSES);
    size_t count;
    const function_info *all = sql_functions(&count);
    for (size_t k = 0; k < count; k++) {
        text_cell(m, str_from(all[k].name));
        text_cell(m, str_from(classes[all[k].class]));
        text_cell(m, str_from(all[k].signature));
        text_cell(m, str_from(all[k].help));
    }
    return 0;
}

static const rel_column tables_cols[] = {
    COLUMN("name", TYPE_TEXT), COLUMN("kind", TYPE_TEXT), COLUMN("row_count", TYPE_INTEGER),
    COLUMN("column_count", TYPE_INTEGER), COLUMN("sql", TYPE_TEXT)};

static void object_row(maker *m, str name, str kind, value rows, value columns, buf *sql) {
    text_cell(m, name);
    text_cell(m, kind);
    system_cell(m, rows);
    system_cell(m, columns);
    buf_cell(m, sql);
}

static int tables_rows(maker *m, err *e) {
    const catalog *c = txn_catalog(m->o->ctx->txn);
    buf sql = {0};
    int status = 0;
    for (int k = 0; k < c->ntables && status == 0; k++) {
        const table_def *t = &c->tables[k];
        uint64_t rows = 0;
        status = table_row_count(m->o->ctx->txn, t, &rows, e);
        table_sql(t, &sql);
        object_row(m, t->name, STR("table"), value_int((int64_t)rows), value_int(t->ncolumns),
                   &sql);
    }
    for (int k = 0; k < c->nviews; k++) {
        view_sql(&c->views[k], &sql);
        object_row(m, c->views[k].name, STR("view"), value_null(), value_null(), &sql);
    }
    for (int k = 0; k < c->nmodels; k++) {
        model_sql(&c->models[k], &sql);
        object_row(m, c->models[k].name, STR("model"), value_null(), value_null(), &sql);
    }
    buf_free(&sql);
    return status;
}

static const rel_column columns_cols[] = {
    COLUMN("table_name", TYPE_TEXT),   COLUMN("position", TYPE_INTEGER),
    COLUMN("name", TYPE_TEXT),         COLUMN("type", TYPE_TEXT),
    COLUMN("not_null", TYPE_BOOLEAN),  COLUMN("primary_key", TYPE_BOOLEAN),
    COLUMN("default_value", TYPE_TEXT)};

static bool in_primary_key(const table_def *t, int column_at) {
    if (column_at == t->rowid_column)
        return true;
    for (int k = 0; k < t->nindexes; k++)
        for (int i = 0; t->indexes[k].primary && i < t->indexes[k].ncolumns; i++)
            if (t->indexes[k].columns[i] == column_at)
                return true;
    return false;
}

static int columns_rows(maker *m, err *e) {
    (void)e;
    const catalog *c = txn_catalog(m->o->ctx->txn);
    buf type = {0};
    for (int k = 0; k < c->ntables; k++) {
        const table_def *t = &c->tables[k];
        for (int i = 0; i < t->ncolumns; i++) {
            text_cell(m, t->name);
            system_cell(m, value_int(i + 1));
            text_cell(m, t->columns[i].name);
            type_print(&type, t->columns[i].type, t->columns[i].dims);
            buf_cell(m, &type);
            system_cell(m, value_bool(t->columns[i].not_null));
            system_cell(m, value_bool(in_primary_key(t, i)));
            system_cell(m, t->columns[i].default_sql.n ? value_text(t->columns[i].default_sql)
                                                       : value_null());
        }
    }
    buf_free(&type);
    return 0;
}

static const rel_column indexes_cols[] = {
    COLUMN("name", TYPE_TEXT), COLUMN("table_name", TYPE_TEXT), COLUMN("columns", TYPE_TEXT),
    COLUMN("is_unique", TYPE_BOOLEAN), COLUMN("is_primary", TYPE_BOOLEAN)};

static int indexes_rows(maker *m, err *e) {
    (void)e;
    const catalog *c = txn_catalog(m->o->ctx->txn);
    buf list = {0};
    for (int k = 0; k < c->ntables; k++) {
        const table_def *t = &c->tables[k];
        for (int i = 0; i < t->nindexes; i++) {
            const index_def *x = &t->indexes[i];
            for (int n = 0; n < x->ncolumns; n++) {
                buf_append_c(&list, n ? ", " : "");
                buf_append_str(&list, t->columns[x->columns[n]].name);
            }
            text_cell(m, x->name);
            text_cell(m, t->name);
            buf_cell(m, &list);
            system_cell(m, value_bool(x->unique || x->primary));
            system_cell(m, value_bool(x->primary));
        }
    }
    buf_free(&list);
    return 0;
}

static const rel_column rules_cols[] = {COLUMN("position", TYPE_INTEGER), COLUMN("name", TYPE_TEXT),
                                        COLUMN("is_on", TYPE_BOOLEAN), COLUMN("help", TYPE_TEXT)};

static int rules_rows(maker *m, err *e) {
    (void)e;
    str off = str_from(m->o->ctx->settings->rules_off);
    const plan_rule_info *rule;
    for (size_t k = 0; (rule = plan_rule(k)) != NULL; k++) {
        system_cell(m, value_int((int64_t)k + 1));
        text_cell(m, str_from(rule->name));
        system_cell(m, value_bool(!plan_rules_have(off, str_from(rule->name))));
        text_cell(m, str_from(rule->help));
    }
    return 0;
}

static const rel_column models_cols[] = {COLUMN("name", TYPE_TEXT), COLUMN("file", TYPE_TEXT),
                                         COLUMN("bytes", TYPE_INTEGER),
                                         COLUMN("is_standard", TYPE_BOOLEAN)};

/* Adds a row of kvasir_models. Its column `bytes` is NULL if the file does not exist. */
static void model_row(maker *m, value name, str file, bool standard) {
    struct stat st;
    char *path = arena_printf(m->mem, "%.*s", (int)file.n, file.p);
    system_cell(m, name);
    text_cell(m, file);
    system_cell(m, stat(path, &st) == 0 ? value_int(st.st_size) : value_null());
    system_cell(m, value_bool(standard));
}

/* Adds the models of the catalog, and the default model. */
static int models_rows(maker *m, err *e) {
    const exec_ctx *ctx = m->o->ctx;
    const catalog *c = txn_catalog(ctx->txn);
    buf standard = {0};
    err none = {0};
    (void)e;
    bool known = model_default_path(ctx->db, ctx->settings, c, &standard, &none) == 0,
         listed_too = false;
    for (int k = 0; k < c->nmodels; k++) {
        bool is_standard = known && str_equal(c->models[k].source, buf_str(&standard));
        listed_too = listed_too || is_standard;
        model_row(m, value_text(c->models[k].name), c->models[k].source, is_standard);
    }
    if (known && !listed_too)
        model_row(m, value_null(), buf_str(&standard), true);
    buf_free(&standard);
    return 0;
}

#define SYSTEM_COLUMNS(cols) (int)(sizeof(cols) / sizeof((cols)[0]))
#define SYSTEM_TABLE(short_name)                                                                   \
    {                                                                                              \
        {"kvasir_" #short_name, SYSTEM_COLUMNS(short_name##_cols), short_name##_cols},             \
            short_name##_rows                                                                      \
    }

static const struct {
    system_table_info info;
    int (*rows)(maker *m, err *e);
} tables[] = {
    SYSTEM_TABLE(settings), SYSTEM_TABLE(functions),  SYSTEM_TABLE(tables), SYSTEM_TABLE(columns),
    SYSTEM_TABLE(indexes),  SYSTEM_TABLE(rules),      SYSTEM_TABLE(models), SYSTEM_TABLE(cache),
    SYSTEM_TABLE(prefixes), SYSTEM_TABLE(statements),
};

const system_table_info *system_table_at(size_t k) {
    return k < BASE_COUNT(tables) ? &tables[k].info : NULL;
}

const rel_column *system_table_columns(void *ctx, str name, int *ncols) {
    (void)ctx;
    for (size_t k = 0; k < BASE_COUNT(tables); k++)
        if (str_equal_nocase(name, str_from(tables[k].info.name))) {
            *ncols = tables[k].info.ncols;
            return tables[k].info.cols;
        }
    return NULL;
}

/* ---- the operator ---------------------------------------------------------------------------- */

typedef struct system_state {
    rowset *rows;
    int at;
} system_state;

static int system_open(op *o, err *e) {
    system_state *s = o->state;
    op_init_out(o);
    for (size_t k = 0; k < BASE_COUNT(tables); k++) {
        const system_table_info *info = &tables[k].info;
        if (!str_equal_nocase(o->node->system.name, str_from(info->name)))
            continue;
        if (!o->ctx->txn)
            return err_set(e, ERR_INTERNAL, "a system table is read after its snapshot ended");
        maker m = {.o = o, .ncols = info->ncols, .mem = o->mem};
        value_type *types = ARENA_ARRAY(o->mem, value_type, info->ncols);
        m.row = ARENA_ARRAY(o->mem, column, info->ncols);
        for (int c = 0; c < info->ncols; c++) {
            types[c] = info->cols[c].type;
            column_init(&m.row[c], o->mem, types[c], 1, false);
        }
        s->rows = m.rows = rowset_new(o->ctx, types, info->ncols);
        int status = tables[k].rows(&m, e);
        return status ? status : rowset_full_error(s->rows, e);
    }
    return err_set(e, ERR_INTERNAL, "there is no system table \"%.*s\"",
                   (int)o->node->system.name.n, o->node->system.name.p);
}

static int system_next(op *o, batch **out, err *e) {
    (void)e;
    system_state *s = o->state;
    if (s->at == rowset_batches(s->rows))
        return 0;
    const batch *b = rowset_batch(s->rows, s->at++);
    for (int c = 0; c < o->node->ncols; c++)
        o->out.cols[c] = b->cols[o->node->system.columns[c]];
    o->out.rows = b->rows;
    *out = &o->out;
    return 0;
}

static void system_close(op *o) {
    rowset_free(((system_state *)o->state)->rows);
}

const op_class op_system = {.name = "system",
                            .state_bytes = sizeof(system_state),
                            .open = system_open,
                            .next = system_next,
                            .close = system_close};
