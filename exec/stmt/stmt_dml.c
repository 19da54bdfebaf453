/*
 * stmt_dml.c - INSERT (row_sink.c), UPDATE, DELETE, their RETURNING (returning.c), and CREATE TABLE
 * AS.
 *
 * Invariant: a statement reads everything before its first write, so it never reads its own rows.
 * With LLM calls outside BEGIN the new rows are computed without a transaction. They are applied
 * only if no table that was read has changed since. Otherwise they are computed again; after three
 * attempts the statement fails. Stored answers make further attempts cheap.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/llm_runtime_int.h"
#include "ops/op_int.h"
#include "row_sink_int.h"

enum {
    ATTEMPTS = 3,
    /* ANALYZE follows an UPDATE of at least ANALYZE_ROWS rows and at least 1/ANALYZE_FRACTION of
     * all rows of the table. */
    ANALYZE_ROWS = 64,
    ANALYZE_FRACTION = 5
};

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

/* Writes the rows while they are computed. Only for a query that reads no table. */
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

/* Reads a row of UPDATE's query: a rowid and the row's new values. */
static void update_row_of(const rowset *rows, int64_t at, int n, int64_t *rowid, value *row) {
    *rowid = rowset_get(rows, at, 0).i;
    for (int c = 0; c < n; c++)
        row[c] = rowset_get(rows, at, c + 1);
}

/* Updates the rows. A new key may still belong to another row of the same UPDATE (SET id = id + 1).
 * So rows that fail are tried again, each time in reverse order, until all succeed or a pass makes
 * no progress. */
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

/* Refuses an UPDATE … FROM that matches a row twice: its result would depend on the join order. */
static int check_once(const row_sink *w, const rowset *rows, err *e) {
    int64_t count = w->x->update_from ? rowset_rows(rows) : 0, twice = 0;
    int64_t *rowids = mem_alloc(sizeof *rowids * (size_t)BASE_MAX(count, 1));
    for (int64_t k = 0; k < count; k++)
        rowids[k] = rowset_get(rows, k, 0).i;
    qsort(rowids, (size_t)count, sizeof *rowids, rowid_compare);
    for (int64_t k = 1; k < count && !twice; k++)
        twice = rowids[k] == rowids[k - 1] ? k : 0;
    if (twice) {
        err_set(e, ERR_CONSTRAINT,
                "UPDATE … FROM: the row of \"%.*s\" with rowid %lld matches several rows of FROM",
                (int)w->table->name.n, w->table->name.p, (long long)rowids[twice]);
        err_hint(e, "narrow WHERE, or add GROUP BY in FROM, to leave one match per row");
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
        b.cols++; /* skips the rowid, since CHECKs read only the table's columns */
        b.ncols--;
        if ((status = row_sink_check(w, &b, &bad, e)) != 0)
            return status;
    }
    return update_rows(w, rows, e);
}

/* Adds the rows of RETURNING for UPDATE and DELETE, which evaluate RETURNING over the rows of their
 * query. */
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

/* Whether x deletes all rows and nothing needs to read them: there is no RETURNING, and no EXPLAIN
 * ANALYZE, which counts them. */
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

/* Runs ANALYZE if the UPDATE changed enough rows to make the statistics outdated. */
static int recount(const row_sink *w, err *e) {
    uint64_t rows;
    int status = table_row_count(w->s->db->active, w->table, &rows, e);
    if (status || w->changes < ANALYZE_ROWS || (uint64_t)w->changes * ANALYZE_FRACTION < rows)
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

/* Computes the new rows without a transaction, then applies them. For LLM calls outside BEGIN,
 * where the transaction ended with the snapshot. */
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
            err_set(e, ERR_BUSY, "gave up after running the statement %d times: %s", ATTEMPTS, why);
            err_hint(e, "run it again when nothing else writes to the database");
            return ERR_BUSY;
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
