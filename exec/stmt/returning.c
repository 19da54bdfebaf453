/*
 * returning.c - RETURNING: keeps rows while a statement writes them, and returns them at its end.
 *
 * Invariant: rows are returned only after the last one is written and, outside BEGIN, committed. So
 * every returned row is stored, and a caller that stops reading undoes nothing.
 */
#include <stdlib.h>

#include "eval/eval_int.h"
#include "returning_int.h"

struct returned {
    stmt *s;
    const sql_stmt *x;
    rowset *rows;
    arena *mem; /* reset for each batch */
    batch now;  /* INSERT: the rows written of the current batch, as returned_batch takes them */
    int room;   /* maximum number of rows in `now` */
};

returned *returned_new(stmt *s, const sql_stmt *x) {
    if (x->nreturning == 0)
        return NULL;
    returned *r = mem_zalloc(sizeof *r);
    value_type *types = ARENA_ARRAY(s->mem, value_type, x->nreturning);
    for (int i = 0; i < x->nreturning; i++)
        types[i] = x->returning_cols[i].type;
    *r = (returned){.s = s, .x = x, .mem = arena_new()};
    r->rows = rowset_new(&s->ctx, types, x->nreturning);
    return r;
}

void returned_free(returned *r) {
    if (!r)
        return;
    rowset_free(r->rows);
    arena_free(r->mem);
    free(r);
}

int returned_batch(returned *r, const batch *written, err *e) {
    int n = r->x->nreturning;
    batch out = {.rows = written->rows, .ncols = n, .mem = r->mem};
    out.cols = ARENA_ARRAY(r->mem, column, n);
    for (int i = 0; i < n; i++) {
        int status = eval_column(r->x->returning[i], written, r->mem, &out.cols[i], e);
        if (status)
            return status;
    }
    return written->rows ? rowset_append(r->rows, &out, e) : 0;
}

void returned_begin(returned *r, const table_def *t, const batch *from) {
    int nsteps = from->ncols - t->ncolumns;
    value_type *types = ARENA_ARRAY(r->mem, value_type, 1 + from->ncols);
    types[0] = TYPE_INTEGER;
    for (int i = 0; i < t->ncolumns; i++)
        types[1 + i] = t->columns[i].type;
    for (int i = 0; i < nsteps; i++)
        types[1 + t->ncolumns + i] = from->cols[t->ncolumns + i].type;
    r->room = from->rows;
    batch_init(&r->now, r->mem, types, 1 + from->ncols, r->room);
}

void returned_row(returned *r, const table_def *t, int64_t rowid, const value *row,
                  const batch *from, int at) {
    batch *b = &r->now;
    int key = t->rowid_column;
    /* DO UPDATE may have changed the rowid */
    if (key >= 0 && row[key].type != TYPE_NULL)
        rowid = row[key].i;
    column_set(&b->cols[0], r->mem, r->room, b->rows, value_int(rowid));
    for (int i = 0; i < t->ncolumns; i++)
        column_set(&b->cols[1 + i], r->mem, r->room, b->rows, i == key ? value_int(rowid) : row[i]);
    for (int i = t->ncolumns; i < from->ncols; i++)
        column_set(&b->cols[1 + i], r->mem, r->room, b->rows, column_get(&from->cols[i], at));
    b->rows++;
}

int returned_end(returned *r, err *e) {
    int status = returned_batch(r, &r->now, e);
    arena_reset(r->mem);
    return status;
}

/* Returns all rows. If the caller cancels, the remaining rows are dropped without an error, since
 * they are already written. */
static int push_all(returned *r, err *e) {
    int status = 0;
    for (int i = 0; i < rowset_batches(r->rows) && status == 0; i++)
        status = stmt_push(r->s, rowset_batch(r->rows, i), e);
    if (status != ERR_CANCELLED)
        return status;
    err_clear(e);
    return 0;
}

int returned_hand_out(returned *r, err *e) {
    stmt *s = r->s;
    int n = r->x->nreturning;
    if (s->drops_rows)
        return 0;
    str *names = ARENA_ARRAY(s->mem, str, n);
    value_type *types = ARENA_ARRAY(s->mem, value_type, n);
    /* names are copied, since the commit may free the catalog */
    for (int i = 0; i < n; i++) {
        names[i] = str_copy(s->mem, r->x->returning_cols[i].name);
        types[i] = r->x->returning_cols[i].type;
    }
    int status = s->db->txn ? 0 : stmt_end_txn(s, true, e);
    if (status)
        return status;
    stmt_describe(s, n, names, types, TEXT_NONE);
    return push_all(r, e);
}
