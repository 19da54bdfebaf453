/*
 * op_file.c - FROM 'f.csv' or 'f.json': reads a file, keeps the columns that the query uses, filters rows.
 *
 * Invariant: every cell is read as the type that the binder chose; a file that no longer fits these
 * types is an error.
 */
#include "core/notice_int.h"
#include "op_int.h"

typedef struct file_state {
    table_file *file;
    batch in;     /* all columns of the file */
    batch wanted; /* the columns of `in` that the query uses */
    int rows[BATCH_ROWS];
} file_state;

static int file_open(op *o, err *e) {
    file_state *s = o->state;
    const plan_node *p = o->node;
    op_init_out(o);
    s->wanted.cols = ARENA_ARRAY(o->mem, column, BASE_MAX(p->ncols, 1));
    s->wanted.ncols = p->ncols;
    file_options options = p->file.options;
    options.cancel = o->ctx->cancel;
    const char *path = arena_strndup(o->mem, p->file.path.p, p->file.path.n);
    int status = table_file_open(path, &options, &s->file, e);
    if (status == 0 && table_file_column_count(s->file) != p->file.nfile_columns)
        status =
            err_set(e, ERR_CORRUPT,
                    "'%.*s' changed while the statement was prepared: %d columns now, %d before",
                    (int)p->file.path.n, p->file.path.p, table_file_column_count(s->file),
                    p->file.nfile_columns);
    return status;
}

static int file_next(op *o, batch **out, err *e) {
    file_state *s = o->state;
    const plan_node *p = o->node;
    while (!*out) {
        if (check_cancel(o->ctx->cancel, e))
            return ERR_CANCELLED;
        arena_reset(o->pass);
        s->in = (batch){.mem = o->pass};
        int count, status = table_file_next(s->file, p->file.types, &s->in, NULL, e);
        if (status || s->in.rows == 0)
            return status;
        for (int c = 0; c < p->ncols; c++)
            s->wanted.cols[c] = s->in.cols[p->file.columns[c]];
        s->wanted.rows = s->in.rows;
        s->wanted.mem = o->pass;
        *out = &s->wanted;
        if (!p->file.filter)
            return 0;
        if ((status = eval_filter(p->file.filter, &s->wanted, o->pass, s->rows, &count, e)) != 0)
            return status;
        op_choose(o, &s->wanted, s->rows, count, out);
    }
    return 0;
}

static void file_close(op *o) {
    file_state *s = o->state;
    str path = o->node->file.path;
    notice_recoded(o->ctx, arena_strndup(o->mem, path.p, path.n), s->file);
    table_file_close(s->file);
}

const op_class op_file = {.name = "file",
                          .state_bytes = sizeof(file_state),
                          .open = file_open,
                          .next = file_next,
                          .close = file_close};
