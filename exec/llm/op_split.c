/*
 * op_split.c - string_split() and CHUNK() in FROM: for each row of the input a row for each part of
 * its text, with the part and its number. A NULL has no parts.
 *
 * Invariant: parts point into the texts of the input's batch, which stays until its last part was
 * returned.
 */
#include <string.h>

#include "core/db_core_int.h"
#include "models_int.h"
#include "ops/op_int.h"
#include "split_int.h"
#include "storage/containers.h"

typedef struct split_state {
    llm_engine *engine; /* CHUNK: whose tokens are counted */
    batch *in;          /* NULL: the next batch is to be read */
    int row;            /* of `in`: its parts are returned next */
    column text, separator;
    str *parts; /* of the row */
    uint32_t nparts, at;
    arena *of_batch, *of_row; /* columns of `in`; parts */
    int *rows;                /* by row of the output: the row of `in` */
} split_state;

static int split_open(op *o, err *e) {
    split_state *s = o->state;
    const split_spec *spec = &o->node->split.spec;
    const catalog *c = o->ctx->txn ? txn_catalog(o->ctx->txn) : NULL;
    s->of_batch = arena_new();
    s->of_row = arena_new();
    s->rows = ARENA_ARRAY(o->mem, int, BATCH_ROWS);
    op_init_out(o);
    return spec->chunks ? engine_acquire(o->ctx->db, o->ctx->settings, c, spec->model, true,
                                         o->ctx->cancel, &s->engine, e)
                        : 0;
}

static void split_close(op *o) {
    split_state *s = o->state;
    engine_release(o->ctx->db, s->engine);
    if (s->of_batch)
        arena_free(s->of_batch);
    if (s->of_row)
        arena_free(s->of_row);
}

/* Divides a text at each separator. An empty one is nowhere. */
static void split_at(str text, str separator, arena *mem, str **out, uint32_t *n) {
    uint32_t room = 0;
    const char *end = text.p + text.n, *found;
    *n = 0;
    while (separator.n > 0 && (found = memmem(text.p, text.n, separator.p, separator.n)) != NULL) {
        ARENA_PUSH(mem, *out, *n, room, ((str){text.p, (size_t)(found - text.p)}));
        text.p = found + separator.n;
        text.n = (size_t)(end - text.p);
    }
    ARENA_PUSH(mem, *out, *n, room, text);
}

/* Finds the parts of the current row. */
static int read_row(op *o, err *e) {
    split_state *s = o->state;
    const split_spec *spec = &o->node->split.spec;
    arena_reset(s->of_row);
    s->parts = NULL;
    s->nparts = s->at = 0;
    if (column_is_null(&s->text, s->row) ||
        (!spec->chunks && column_is_null(&s->separator, s->row)))
        return 0;
    str text = s->text.s[s->row];
    if (spec->chunks)
        return split_chunks(s->engine, spec, text, s->of_row, &s->parts, &s->nparts, o->ctx->cancel,
                            e);
    split_at(text, s->separator.s[s->row], s->of_row, &s->parts, &s->nparts);
    return 0;
}

static int read_batch(op *o, err *e) {
    split_state *s = o->state;
    int status = op_next(o->left, &s->in, e);
    if (status || !s->in)
        return status;
    arena_reset(s->of_batch);
    status = eval_column(o->node->split.text, s->in, s->of_batch, &s->text, e);
    if (!status && o->node->split.separator)
        status = eval_column(o->node->split.separator, s->in, s->of_batch, &s->separator, e);
    s->row = 0;
    return status ? status : read_row(o, e);
}

/* Moves to the next row with a part that was not returned. Does nothing if the batch has none. */
static int find_part(op *o, err *e) {
    split_state *s = o->state;
    int status = 0;
    while (!status && s->at == s->nparts && s->row + 1 < s->in->rows) {
        s->row++;
        status = read_row(o, e);
    }
    return status;
}

static int split_next(op *o, batch **out, err *e) {
    split_state *s = o->state;
    int count = 0, status = 0;
    arena_reset(o->pass);
    column text, number;
    column_init(&text, o->pass, TYPE_TEXT, BATCH_ROWS, false);
    column_init(&number, o->pass, TYPE_INTEGER, BATCH_ROWS, false);
    while (!status && count == 0) {
        status = s->in ? 0 : read_batch(o, e);
        if (status || !s->in)
            return status;
        while (!(status = find_part(o, e)) && count < BATCH_ROWS && s->at < s->nparts) {
            text.s[count] = s->parts[s->at++];
            number.i[count] = s->at;
            s->rows[count++] = s->row;
        }
        if (!status && count == 0)
            s->in = NULL;
    }
    int n = o->node->left->ncols;
    for (int c = 0; c < n && !status; c++)
        column_gather(&o->out.cols[c], o->pass, &s->in->cols[c], s->rows, count);
    o->out.cols[n] = text;
    o->out.cols[n + 1] = number;
    o->out.rows = count;
    *out = status ? NULL : &o->out;
    return status;
}

const op_class op_split = {.name = "split",
                           .state_bytes = sizeof(split_state),
                           .open = split_open,
                           .next = split_next,
                           .close = split_close};
