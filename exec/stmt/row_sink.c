/*
 * row_sink.c - writes rows into a table: constraints, ON CONFLICT, statistics, RETURNING. The inner
 * loop of INSERT, COPY FROM and CREATE TABLE AS.
 */
#include <string.h>

#include "eval/eval_int.h"
#include "row_sink_int.h"

/* INSERT updates statistics from its first batch that has at least MANY_ROWS rows and at least
 * 1/MIN_FRACTION of the table's rows. */
enum { MANY_ROWS = 64, MIN_FRACTION = 100 };

void row_sink_init(row_sink *w, stmt *s, const sql_stmt *x, const table_def *table) {
    *w = (row_sink){.s = s, .x = x, .table = table, .mem = arena_new()};
}

void row_sink_free(row_sink *w) {
    stats_feed_free(w->feed);
    arena_free(w->mem);
}

/* Adds the row's number, or its line in the file, to an error's message. */
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

int row_sink_check(row_sink *w, const batch *rows, int *bad, err *e) {
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
    return row_sink_check(w, &one, &bad, e);
}

/* ON CONFLICT DO UPDATE: evaluates the SET expressions over (existing row, new row) and updates the
 * existing row. Sets *written to the row's new values, or to NULL if WHERE was not true and the row
 * is unchanged. */
static int update_existing(row_sink *w, const value *row, int64_t rowid, const value **written,
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

/* Inserts a row, or applies ON CONFLICT. Sets *written to the row as it is now in the table, or to
 * NULL if nothing was written. */
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
        return update_existing(w, row, *rowid, written, e);
    w->changes++;
    *written = row;
    return table_insert(t, w->table, row, rowid, e);
}

/* Starts adding the rows to the table's statistics with the first batch that is large enough. For
 * fewer rows of INSERT, statistics would cost more than writing the rows. Does nothing with ON
 * CONFLICT, where a row may be an update. */
static int start_statistics(row_sink *w, int rows, err *e) {
    uint64_t there;
    bool always = w->x->kind != STMT_INSERT;
    if (w->feed || rows < (always ? 1 : MANY_ROWS) || w->x->on_conflict != CONFLICT_FAIL)
        return 0;
    int status = table_row_count(w->s->db->active, w->table, &there, e);
    if (status || (!always && there / MIN_FRACTION > (uint64_t)rows))
        return status;
    w->rowids = ARENA_ARRAY(w->s->mem, int64_t, BATCH_ROWS);
    return stats_feed_resume(w->s->db->active, w->table, &w->feed, e);
}

int row_sink_write(row_sink *w, const batch *rows, err *e) {
    int n = w->table->ncolumns, bad = 0;
    arena_reset(w->mem);
    int status = row_sink_check(w, rows, &bad, e);
    if (status)
        return name_row(w, bad, e);
    if ((status = start_statistics(w, rows->rows, e)) != 0)
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
