/*
 * mixed_contents.c - what a database holds, as text to compare, and whether its trees agree.
 *
 * Contents are read by SQL, through the planner's choice of scans; trees by storage's scans, each
 * index in full.
 */
#include "mixed_int.h"

#include "crash_int.h"

int run_statement(db *d, str text, buf *rows, int64_t *changes) {
    err e;
    const batch *b;
    stmt *s = db_submit(d, text);
    stmt_status status;
    while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS) {
        for (int k = 0; rows && k < b->rows; k++) {
            for (int c = 0; c < b->ncols; c++) {
                value_print_sql(rows, column_get(&b->cols[c], k));
                buf_append_char(rows, c + 1 < b->ncols ? ' ' : '\n');
            }
        }
    }
    int code = status == STMT_ERROR ? (int)e.code : 0;
    *changes = code ? 0 : stmt_changes(s);
    stmt_free(s);
    return code;
}

static void append_query(db *d, buf *out, const char *format, const char *name) {
    int64_t changes;
    buf text = {0};
    buf_printf(&text, format, name);
    int code = run_statement(d, buf_str(&text), out, &changes);
    if (code)
        buf_printf(out, "error %d\n", code);
    buf_free(&text);
}

void contents_append(db *d, int writer, buf *out) {
    arena *mem = arena_new();
    db_object *objects;
    int count;
    err e;
    char prefix[16], own[16];
    snprintf(prefix, sizeof prefix, "w%d_", writer);
    snprintf(own, sizeof own, "%d", writer);
    CHECK(db_objects(d, mem, &objects, &count, &e) == 0, "%s", e.message);
    bool shares = false;
    for (int i = 0; i < count; i++) {
        const db_object *o = &objects[i];
        shares = shares || strcmp(o->name, "shared") == 0;
        if (strncmp(o->name, prefix, strlen(prefix)) != 0)
            continue;
        buf_printf(out, "%s %s: %s\n", o->kind, o->name, o->sql);
        if (strcmp(o->kind, "table") == 0)
            append_query(d, out, "SELECT rowid, * FROM %s", o->name);
        else if (strcmp(o->kind, "view") == 0)
            append_query(d, out, "SELECT * FROM %s", o->name);
        if (strcmp(o->kind, "table") == 0 && strcmp(o->name + strlen(prefix), "a") == 0)
            append_query(d, out,
                         "SELECT id, LLM('Red?', s AS t) RETURNS ENUM('red', 'green'), "
                         "LLM('Say it', s AS t) FROM %s WHERE id %% 29 = 0",
                         o->name);
    }
    /* another writer may have made the table */
    if (shares)
        append_query(d, out, "SELECT count(*) FROM shared WHERE writer = %s HAVING count(*) > 0",
                     own);
    arena_free(mem);
}

void contents_check_shared(db *d) {
    int64_t changes;
    buf rows = {0};
    int code = run_statement(
        d, STR("SELECT count(*) - max(id), min(id), count(DISTINCT id) - max(id) FROM shared"),
        &rows, &changes);
    CHECK(code == ERR_BIND || strcmp(rows.p, "0 1 0\n") == 0 ||
              strcmp(rows.p, "NULL NULL NULL\n") == 0,
          "ids of shared: %d, %s", code, rows.p ? rows.p : "");
    buf_free(&rows);
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* A row as a scan returned it. */
typedef struct seen_row {
    int64_t rowid;
    uint64_t hash; /* of its cells */
} seen_row;

typedef struct seen_rows {
    seen_row *rows;
    size_t n;
} seen_rows;

static int by_rowid(const void *a, const void *b) {
    const seen_row *x = a, *y = b;
    return (x->rowid > y->rowid) - (x->rowid < y->rowid);
}

/* Whether row k of a batch of all columns, after the rowid, is not below `last`, the former row's
 * key, which is set to the row's. */
static bool is_in_order(const index_def *x, const batch *b, int k, value *last, arena *mem) {
    int order = 0;
    for (int i = 0; x && i < x->ncolumns && order == 0; i++)
        order = value_compare(column_get(&b->cols[x->columns[i] + 1], k), last[i]);
    for (int i = 0; x && i < x->ncolumns; i++)
        last[i] = value_copy(mem, column_get(&b->cols[x->columns[i] + 1], k));
    return order >= 0;
}

/* Reads a table through an index (NULL: by rowid); *out is sorted by rowid. */
static void read_through(txn *t, const table_def *def, const index_def *x, seen_rows *out) {
    err e;
    arena *mem = arena_new(), *kept = arena_new();
    int *columns = ARENA_ARRAY(kept, int, def->ncolumns + 1);
    value *last = ARENA_ARRAY(kept, value, def->ncolumns);
    for (int c = 0; c <= def->ncolumns; c++)
        columns[c] = c - 1;
    for (int c = 0; c < def->ncolumns; c++)
        last[c] = value_null();
    scan_spec spec = {.table = def, .index = x, .columns = columns, .ncolumns = def->ncolumns + 1};
    table_scan *s = NULL;
    batch b = {.rows = 1};
    CHECK(scan_open(t, &spec, &s, &e) == 0, "%s", e.message);
    while (b.rows) {
        arena_reset(mem);
        b.mem = mem;
        CHECK(scan_next(s, &b, &e) == 0, "%s: %s", def->name.p, e.message);
        out->rows = mem_realloc(out->rows, (out->n + (size_t)b.rows) * sizeof *out->rows);
        for (int k = 0; k < b.rows; k++) {
            uint64_t hash = 0;
            for (int c = 1; c <= def->ncolumns; c++)
                hash = hash_mix(hash, value_hash(column_get(&b.cols[c], k)));
            CHECK(is_in_order(x, &b, k, last, kept), "%s: %s is out of order", def->name.p,
                  x->name.p);
            out->rows[out->n++] = (seen_row){b.cols[0].i[k], hash};
        }
    }
    scan_close(s);
    arena_free(mem);
    arena_free(kept);
    if (out->n)
        qsort(out->rows, out->n, sizeof *out->rows, by_rowid);
}

/* Whether the lists of an index have each row once, with the row's vector: a search in all lists returns
 * all rows in the order of their distances. */
static void check_lists(txn *t, const table_def *def, const index_def *x, const seen_rows *rows) {
    err e;
    const float query[2] = {3, 4};
    str vector = {(const char *)query, sizeof query};
    value *row = mem_alloc(sizeof *row * (size_t)def->ncolumns);
    double before = -1;
    rowid_list found = {0};
    CHECK(lists_search(t, def, x, vector, x->lists->n, rows->n + 1, NULL, &found, &e) == 0, "%s",
          e.message);
    size_t zeros = 0;
    for (size_t i = 0; i < found.n; i++) {
        bool there = false;
        CHECK(table_get(t, def, found.ids[i], row, &there, &e) == 0 && there, "%s: rowid %lld",
              x->name.p, (long long)found.ids[i]);
        double d = vector_distance(x->lists->metric, row[x->columns[0]].s, vector, 5);
        CHECK(d >= before, "%s: a vector of another row", x->name.p);
        before = d;
    }
    for (size_t i = 0; i < rows->n && x->lists->metric == VECTOR_COSINE; i++) {
        bool there = false;
        CHECK(table_get(t, def, rows->rows[i].rowid, row, &there, &e) == 0, "%s", e.message);
        zeros += vector_norm(row[x->columns[0]].s) == 0;
    }
    rowid_list_sort(&found);
    CHECK(found.n + zeros == rows->n, "%s: %zu entries for %zu rows", x->name.p, found.n, rows->n);
    rowid_list_free(&found);
    free(row);
}

static void check_table(txn *t, const table_def *def) {
    err e;
    uint64_t count;
    seen_rows rows = {0};
    table_stats stats;
    arena *mem = arena_new();
    read_through(t, def, NULL, &rows);
    CHECK(table_row_count(t, def, &count, &e) == 0, "%s", e.message);
    CHECK(count == rows.n, "%s: a count of %llu, but %zu rows", def->name.p,
          (unsigned long long)count, rows.n);
    for (int i = 0; i < def->nindexes; i++) {
        seen_rows entries = {0};
        if (def->indexes[i].lists) {
            check_lists(t, def, &def->indexes[i], &rows);
            continue;
        }
        read_through(t, def, &def->indexes[i], &entries);
        CHECK(entries.n == rows.n &&
                  (rows.n == 0 || memcmp(entries.rows, rows.rows, rows.n * sizeof *rows.rows) == 0),
              "%s: %s has other rows than the table", def->name.p, def->indexes[i].name.p);
        free(entries.rows);
    }
    CHECK(stats_get(t, def, true, mem, &stats, &e) == 0, "%s: %s", def->name.p, e.message);
    CHECK(stats.rows == rows.n, "%s: statistics of other rows", def->name.p);
    free(rows.rows);
    arena_free(mem);
}

void contents_check(const char *database) {
    err e;
    store *s = NULL;
    txn *t = NULL;
    CHECK(store_open(&(store_options){.path = database}, &s, &e) == 0, "%s", e.message);
    CHECK(txn_begin(s, false, &(txn_wait){0}, &t, &e) == 0, "%s", e.message);
    const catalog *c = txn_catalog(t);
    for (int i = 0; i < c->ntables; i++)
        check_table(t, &c->tables[i]);
    txn_abort(t);
    store_close(s);
}
