/*
 * stmt_dml.c - INSERT with ON CONFLICT, UPDATE, DELETE, and their RETURNING (returning.c).
 *
 * Invariant: all that a statement reads is read before its first write, so it never meets its own
 * rows. With LLM calls outside BEGIN the new rows are computed without a transaction; they are
 * applied only if no table that was read changed meanwhile, else computed again (stored answers
 * make that cheap), three times at most.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/llm_runtime_int.h"
#include "ops/op_int.h"
#include "row_sink_int.h"

enum {
    ATTEMPTS = 3,
    MANY_ROWS = 64, /* written by one statement: statistics are kept up with them */
    FEW_ROWS =
        100, /* a batch of INSERT smaller than one in so many of the table's rows is not counted */
    RECOUNT = 5 /* an UPDATE of at least one in so many rows */
};

/* ---- one row at a time ----------------------------------------------------------------------- */

void row_sink_init(row_sink *w, stmt *s, const sql_stmt *x, const table_def *table) {
    *w = (row_sink){.s = s, .x = x, .table = table, .mem = arena_new()};
}

void row_sink_free(row_sink *w) {
    stats_feed_free(w->feed);
    arena_free(w->mem);
}

/* Says which row an error is about. */
static int name_row(const row_sink *w, int row, err *e) {
    char message[sizeof e->message], hint[sizeof e->hint];
    err_code code = e->code;
    if (code != ERR_CONSTRAINT && code != ERR_TYPE && code != ERR_ARITHMETIC)
        return (int)code;
    memcpy(message, e->message, sizeof message);
    memcpy(hint, e->hint, sizeof hint);
    if (w->lines)
        err_set(e, code, "%s, line %lld: %s", w->path, (long long)w->lines[row], message);
    else if (w->name_rows)
        err_set_at(e, code, e->pos, e->len, "row %lld: %s", (long long)(w->rows + row + 1),
                   message);
    if (hint[0])
        err_hint(e, "%s", hint);
    return (int)code;
}

/* The first row of `rows` (a table's columns) that violates a CHECK. */
static int check_rows(row_sink *w, const batch *rows, int *bad, err *e) {
    for (int k = 0; k < w->x->nchecks; k++) {
        const row_check *c = &w->x->checks[k];
        column test;
        int status = eval_column(c->value, rows, w->mem, &test, e);
        *bad = 0;
        while (status && *bad + 1 < rows->rows &&
               eval_column_at(c->value, rows, bad, 1, w->mem, &test, e) == 0)
            ++*bad;
        if (status)
            return status;
        for (int row = 0; row < rows->rows; row++) {
            if (test.type == TYPE_NULL || column_is_null(&test, row) || test.i[row] != 0)
                continue;
            *bad = row;
            return err_set(e, ERR_CONSTRAINT, "CHECK (%.*s) of table \"%.*s\" fails",
                           (int)c->text.n, c->text.p, (int)w->table->name.n, w->table->name.p);
        }
    }
    return 0;
}

static int check_one(row_sink *w, const value *row, err *e) {
    if (w->x->nchecks == 0)
        return 0;
    int n = w->table->ncolumns, bad;
    batch one = {.rows = 1, .ncols = n, .mem = w->mem};
    one.cols = ARENA_ARRAY(w->mem, column, n);
    for (int c = 0; c < n; c++) {
        column_init(&one.cols[c], w->mem, w->table->columns[c].type, 1, false);
        column_set(&one.cols[c], w->mem, 1, 0, row[c]);
    }
    return check_rows(w, &one, &bad, e);
}

/* ON CONFLICT DO UPDATE: the standing row gets the SET expressions over (old row, excluded row).
 * *written: what it is then; NULL: WHERE keeps it as it is. */
static int update_standing(row_sink *w, const value *row, int64_t rowid, const value **written,
                           err *e) {
    const sql_stmt *x = w->x;
    int n = w->table->ncolumns;
    bool found;
    value *both = ARENA_ARRAY(w->mem, value, 2 * n), *fresh = ARENA_ARRAY(w->mem, value, n),
          test = value_bool(true);
    *written = NULL;
    int status = table_get(w->s->db->active, w->table, rowid, both, &found, e);
    if (status)
        return status;
    for (int c = 0; c < n; c++) {
        both[c] = value_copy(w->mem, both[c]);
        both[n + c] = row[c];
    }
    if (x->conflict_where &&
        (status = eval_value(x->conflict_where, both, 2 * n, w->mem, &test, e)) != 0)
        return status;
    if (test.type == TYPE_NULL || test.i == 0)
        return 0;
    for (int c = 0; c < n; c++) {
        fresh[c] = both[c];
        if (x->conflict_set[c] &&
            (status = eval_value(x->conflict_set[c], both, 2 * n, w->mem, &fresh[c], e)) != 0)
            return status;
    }
    if ((status = check_one(w, fresh, e)) != 0)
        return status;
    w->changes++;
    *written = fresh;
    return table_update(w->s->db->active, w->table, rowid, fresh, e);
}

/* *written: the row as it is then in the table; NULL: nothing was written. */
static int insert_row(row_sink *w, const value *row, int64_t *rowid, const value **written,
                      err *e) {
    txn *t = w->s->db->active;
    const sql_stmt *x = w->x;
    bool found = false;
    *written = NULL;
    if (x->on_conflict != CONFLICT_FAIL) {
        int status = table_find_conflict(t, w->table, row, x->conflict_columns, x->nconflict, rowid,
                                         &found, e);
        if (status)
            return status;
    }
    if (found && x->on_conflict == CONFLICT_NOTHING)
        return 0;
    if (found)
        return update_standing(w, row, *rowid, written, e);
    w->changes++;
    *written = row;
    return table_insert(t, w->table, row, rowid, e);
}

/* Statistics begin with the first batch, of INSERT with the first of many
 * rows: single rows are not worth it, they age what is known. Rows that
 * may be in conflict with others may be changes, and are not counted. */
static int count_from_now(row_sink *w, int rows, err *e) {
    uint64_t there;
    bool always = w->x->kind != STMT_INSERT;
    if (w->feed || rows < (always ? 1 : MANY_ROWS) || w->x->on_conflict != CONFLICT_FAIL)
        return 0;
    int status = table_row_count(w->s->db->active, w->table, &there, e);
    if (status ||
        (!always &&
         there / FEW_ROWS > (uint64_t)rows)) /* keeping the counts would cost more than the rows */
        return status;
    w->rowids = ARENA_ARRAY(w->s->mem, int64_t, BATCH_ROWS);
    return stats_feed_resume(w->s->db->active, w->table, &w->feed, e);
}

int row_sink_write(row_sink *w, const batch *rows, err *e) {
    int n = w->table->ncolumns, bad = 0;
    arena_reset(w->mem);
    int status = check_rows(w, rows, &bad, e);
    if (status)
        return name_row(w, bad, e);
    if ((status = count_from_now(w, rows->rows, e)) != 0)
        return status;
    if (w->out)
        returned_begin(w->out, w->table, rows);
    value *row = ARENA_ARRAY(w->mem, value, BASE_MAX(n, 1));
    const value *written;
    int64_t rowid = 0;
    for (int k = 0; k < rows->rows; k++) {
        for (int c = 0; c < n; c++)
            row[c] = column_get(&rows->cols[c], k);
        if (insert_row(w, row, &rowid, &written, e) != 0)
            return name_row(w, k, e);
        if (w->feed)
            w->rowids[k] = rowid;
        if (w->out && written)
            returned_row(w->out, w->table, rowid, written, rows, k);
    }
    if (w->feed)
        stats_feed_rows(w->feed, rows, w->rowids);
    if (w->out && (status = returned_end(w->out, e)) != 0)
        return status;
    w->rows += rows->rows;
    return check_cancel(&w->s->cancel, e);
}

int row_sink_end(row_sink *w, err *e) {
    return w->feed ? stats_feed_keep(w->feed, w->s->db->active, w->table, e) : 0;
}

/* ---- INSERT ---------------------------------------------------------------------------------- */

static int insert_rowset(row_sink *w, const rowset *rows, err *e) {
    int status = 0;
    w->name_rows = rowset_rows(rows) > 1;
    for (int k = 0; k < rowset_batches(rows) && status == 0; k++)
        status = row_sink_write(w, rowset_batch(rows, k), e);
    return status;
}

static bool reads_tables(const plan_node *p) {
    return p && (p->kind == PLAN_SCAN || p->kind == PLAN_SYSTEM || p->kind == PLAN_LLM_PIPELINE ||
                 reads_tables(p->left) || reads_tables(p->right));
}

/* Rows that come from no table are written as they are made. */
static int insert_stream(row_sink *w, err *e) {
    op *root;
    batch *b;
    const plan_node *p = w->s->ctx.plan->root;
    int status = op_build(&w->s->ctx, p, &root, e);
    while (p->left)
        p = p->left;
    w->name_rows = p->kind != PLAN_VALUES || p->values.nrows > 1;
    if (status)
        return status;
    while ((status = op_next(root, &b, e)) == 0 && b)
        if ((status = row_sink_write(w, b, e)) != 0)
            break;
    op_close(root);
    return status;
}

/* ---- UPDATE, DELETE -------------------------------------------------------------------------- */

/* A row's rowid and its new cells from UPDATE's query. */
static void update_row_of(const rowset *rows, int64_t at, int n, int64_t *rowid, value *row) {
    *rowid = rowset_get(rows, at, 0).i;
    for (int c = 0; c < n; c++)
        row[c] = rowset_get(rows, at, c + 1);
}

/* Rows in the way of each other (SET id = id + 1) wait until the other has moved: the waiting ones
 * are tried again in turns of changing direction, as long as that helps. */
static int update_rows(row_sink *w, const rowset *rows, err *e) {
    txn *t = w->s->db->active;
    int64_t count = rowset_rows(rows), waiting = count, rowid;
    int64_t *todo = arena_alloc(w->mem, sizeof *todo * (size_t)BASE_MAX(count, 1));
    value *row = ARENA_ARRAY(w->mem, value, w->table->ncolumns);
    err first;
    for (int64_t k = 0; k < count; k++)
        todo[k] = k;
    for (bool progress = true; waiting && progress;) {
        int64_t left = 0;
        for (int64_t k = 0; k < waiting; k++) {
            update_row_of(rows, todo[k], w->table->ncolumns, &rowid, row);
            int status = table_update(t, w->table, rowid, row, e);
            if (status && status != ERR_CONSTRAINT)
                return status;
            if (status && left == 0)
                first = *e;
            if (status)
                todo[left++] = todo[k];
            if (k % BATCH_ROWS == 0 && check_cancel(&w->s->cancel, e))
                return ERR_CANCELLED;
        }
        progress = left < waiting;
        waiting = left;
        for (int64_t k = 0; k < left / 2; k++) {
            int64_t other = todo[k];
            todo[k] = todo[left - 1 - k];
            todo[left - 1 - k] = other;
        }
    }
    if (waiting) {
        *e = first;
        return ERR_CONSTRAINT;
    }
    w->changes = count;
    return 0;
}

/* UPDATE … FROM: which of several rows would win hangs on the order of joins. */
static int check_once(const row_sink *w, const rowset *rows, err *e) {
    int64_t count = w->x->update_from ? rowset_rows(rows) : 0, twice = 0;
    int64_t *rowids = mem_alloc(sizeof *rowids * (size_t)BASE_MAX(count, 1));
    for (int64_t k = 0; k < count; k++)
        rowids[k] = rowset_get(rows, k, 0).i;
    qsort(rowids, (size_t)count, sizeof *rowids, rowid_compare);
    for (int64_t k = 1; k < count && !twice; k++)
        twice = rowids[k] == rowids[k - 1] ? k : 0;
    if (twice) {
        err_set(e, ERR_CONSTRAINT, "the row of \"%.*s\" with rowid %lld meets several rows of FROM",
                (int)w->table->name.n, w->table->name.p, (long long)rowids[twice]);
        err_hint(e, "let WHERE, or a GROUP BY in FROM, leave one");
    }
    free(rowids);
    return twice ? ERR_CONSTRAINT : 0;
}

static int update_rowset(row_sink *w, const rowset *rows, err *e) {
    int once = check_once(w, rows, e);
    if (once)
        return once;
    for (int k = 0; k < rowset_batches(rows); k++) {
        batch b = *rowset_batch(rows, k);
        int bad, status;
        b.cols++; /* CHECKs see the table's columns; the rowid stands before them */
        b.ncols--;
        if ((status = check_rows(w, &b, &bad, e)) != 0)
            return status;
    }
    return update_rows(w, rows, e);
}

/* The rows of UPDATE's and DELETE's query are what RETURNING sees. */
static int return_rows(row_sink *w, const rowset *rows, err *e) {
    int status = 0;
    for (int k = 0; w->out && k < rowset_batches(rows) && status == 0; k++)
        status = returned_batch(w->out, rowset_batch(rows, k), e);
    return status;
}

static int delete_rowset(row_sink *w, const rowset *rows, err *e) {
    int64_t count = rowset_rows(rows);
    for (int64_t k = 0; k < count; k++) {
        int status = table_delete(w->s->db->active, w->table, rowset_get(rows, k, 0).i, e);
        if (status)
            return status;
        if (k % BATCH_ROWS == 0 && check_cancel(&w->s->cancel, e))
            return ERR_CANCELLED;
    }
    w->changes = count;
    return 0;
}

/* DELETE of every row, none of which anyone wants to see: not even the plan's rows are read. */
static bool deletes_all(const stmt *s, const sql_stmt *x) {
    const plan_node *p = s->ctx.plan->root;
    while (p->kind == PLAN_PROJECT)
        p = p->left;
    return x->kind == STMT_DELETE && x->nreturning == 0 && !s->ctx.counts.actual &&
           p->kind == PLAN_SCAN && !p->scan.filter && !p->scan.index && p->scan.nlow == 0 &&
           p->scan.nhigh == 0 && p->scan.nin == 0;
}

static int delete_all(stmt *s, const sql_stmt *x, err *e) {
    uint64_t count = 0;
    int status = table_clear(s->db->active, x->table, &count, e);
    s->changes = (int64_t)count;
    return status;
}

/* What was counted of a column says nothing once an UPDATE has filled it. */
static int recount(const row_sink *w, err *e) {
    uint64_t rows;
    int status = table_row_count(w->s->db->active, w->table, &rows, e);
    if (status || w->changes < MANY_ROWS || (uint64_t)w->changes * RECOUNT < rows)
        return status;
    return stats_analyze(w->s->db->active, w->table, &w->s->cancel, e);
}

/* ---- computing and applying ------------------------------------------------------------------ */

static int apply(stmt *s, const sql_stmt *x, const rowset *rows, returned **out, err *e) {
    const table_def *table = catalog_table(txn_catalog(s->db->active), x->table->name);
    row_sink w;
    if (!table)
        return err_set(e, ERR_INTERNAL, "table \"%.*s\" is gone", (int)x->table->name.n,
                       x->table->name.p);
    row_sink_init(&w, s, x, table);
    w.out = *out = returned_new(s, x);
    int status;
    if (x->kind == STMT_UPDATE)
        status = update_rowset(&w, rows, e);
    else if (x->kind == STMT_DELETE)
        status = delete_rowset(&w, rows, e);
    else
        status = rows ? insert_rowset(&w, rows, e) : insert_stream(&w, e);
    if (status == 0 && x->kind != STMT_INSERT)
        status = return_rows(&w, rows, e);
    if (status == 0)
        status = x->kind == STMT_UPDATE ? recount(&w, e) : row_sink_end(&w, e);
    s->changes = w.changes;
    row_sink_free(&w);
    return status;
}

static int compute(stmt *s, rowset **out, err *e) {
    const plan_node *root = s->ctx.plan->root;
    *out = rowset_new(&s->ctx, root->types, root->ncols);
    int status = stmt_run_plan(s, *out, e);
    if (status) {
        rowset_free(*out);
        *out = NULL;
    }
    return status;
}

/* Outside BEGIN, with LLM calls: the transaction ended with the snapshot. */
static int compute_then_apply(stmt *s, sql_stmt *x, returned **out, err *e) {
    for (int attempt = 1;; attempt++) {
        rowset *rows;
        int nseen = 0, status = stmt_plan(s, x, e);
        const table_def **seen = status ? NULL : plan_tables(s, &nseen);
        if (status || (status = compute(s, &rows, e)) != 0)
            return status;
        status = stmt_begin_txn(s, true, e);
        bool stale = false;
        for (int k = 0; k < nseen && status == 0 && !stale; k++)
            stale = version_check(seen[k], txn_catalog(s->db->active), e) != 0;
        if (status == 0 && !stale)
            status = apply(s, x, rows, out, e);
        rowset_free(rows);
        if (!stale)
            return status;
        if (attempt == ATTEMPTS) {
            char why[sizeof e->message];
            memcpy(why, e->message, sizeof why);
            return err_set(e, ERR_BUSY, "gave up after %d attempts: %s", ATTEMPTS, why);
        }
        err ignored;
        stmt_release_plan(s);
        llm_runtime_free(s->ctx.llm);
        s->ctx.llm = NULL;
        stmt_end_txn(s, false, &ignored);
        if ((status = stmt_prepare(s, false, e)) != 0)
            return status;
        x = s->bound->kind == STMT_EXPLAIN ? s->bound->explain.stmt : s->bound;
    }
}

static int compute_and_apply(stmt *s, const sql_stmt *x, returned **out, err *e) {
    rowset *rows = NULL;
    int status = stmt_plan(s, x, e);
    if (status)
        return status;
    if (deletes_all(s, x))
        return delete_all(s, x, e);
    if (x->kind != STMT_INSERT || reads_tables(s->ctx.plan->root))
        status = compute(s, &rows, e);
    if (status == 0)
        status = apply(s, x, rows, out, e);
    rowset_free(rows);
    return status;
}

int stmt_dml(stmt *s, sql_stmt *x, err *e) {
    returned *out = NULL;
    int status = x->ncalls && !s->db->txn ? compute_then_apply(s, x, &out, e)
                                          : compute_and_apply(s, x, &out, e);
    if (status == 0 && out)
        status = returned_hand_out(out, e);
    returned_free(out);
    return status;
}

int stmt_create_table_as(stmt *s, sql_stmt *x, err *e) {
    rowset *rows = NULL;
    const catalog *c = txn_catalog(s->db->active);
    if (x->if_not_exists && catalog_table(c, x->create_table.name))
        return 0;
    int status = stmt_plan(s, x, e);
    if (status == 0)
        status = compute(s, &rows, e);
    if (status == 0 && !s->db->active)
        status = stmt_begin_txn(s, true, e);
    if (status == 0)
        status = catalog_create_table(s->db->active, &x->create_table, e);
    if (status == 0) {
        row_sink w;
        row_sink_init(&w, s, x, catalog_table(txn_catalog(s->db->active), x->create_table.name));
        status = insert_rowset(&w, rows, e);
        if (status == 0)
            status = row_sink_end(&w, e);
        s->changes = w.changes;
        row_sink_free(&w);
    }
    rowset_free(rows);
    return status;
}
