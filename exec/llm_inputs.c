/*
 * llm_inputs.c - the distinct inputs of one LLM use: which rows need an answer, and what their
 * fields say.
 *
 * Invariant: two rows share an input exactly when the call could not tell them apart: the same
 * fields present, with the same texts. Field ids are ranks in bytewise order once gathering is
 * over, as the solver wants them.
 */
#include <stdlib.h>
#include <string.h>

#include "llm_int.h"

/* ---- dictionaries ---------------------------------------------------------------------------- */

static void slots_rebuild(uint32_t **slots, uint32_t *nslots, const uint64_t *hash, uint32_t count,
                          arena *mem) {
    uint32_t n = BASE_MAX(*nslots * 2, 64u);
    uint32_t *fresh = ARENA_ARRAY(mem, uint32_t, n);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (uint32_t)hash[i] & (n - 1);
        while (fresh[at])
            at = (at + 1) & (n - 1);
        fresh[at] = i + 1;
    }
    *slots = fresh;
    *nslots = n;
}

static void *grown(arena *mem, const void *old, size_t old_bytes, size_t new_bytes) {
    void *p = arena_alloc(mem, new_bytes);
    if (old_bytes)
        memcpy(p, old, old_bytes);
    return p;
}

static uint32_t field_intern(field_values *f, str text, arena *mem) {
    if (f->count * 2 >= f->nslots)
        slots_rebuild(&f->slots, &f->nslots, f->hash, f->count, mem);
    uint64_t h = hash64(text.p, text.n, 0);
    uint32_t at = (uint32_t)h & (f->nslots - 1);
    for (; f->slots[at]; at = (at + 1) & (f->nslots - 1)) {
        uint32_t id = f->slots[at] - 1;
        if (f->hash[id] == h && str_equal(f->text[id], text))
            return id;
    }
    if (f->count == f->capacity) {
        uint32_t more = BASE_MAX(f->capacity * 2, 64u);
        f->text = grown(mem, f->text, f->count * sizeof *f->text, more * sizeof *f->text);
        f->hash = grown(mem, f->hash, f->count * sizeof *f->hash, more * sizeof *f->hash);
        f->capacity = more;
    }
    f->text[f->count] = str_copy(mem, text);
    f->hash[f->count] = h;
    f->slots[at] = ++f->count;
    return f->count - 1;
}

static bool input_equal(const llm_inputs *in, uint32_t i, const uint32_t *ids) {
    for (int f = 0; f < in->nfields; f++)
        if (in->value[f][i] != ids[f])
            return false;
    return true;
}

static uint32_t input_append(llm_inputs *in, const uint32_t *ids, uint64_t h) {
    if (in->count == in->capacity) {
        uint32_t more = BASE_MAX(in->capacity * 2, 256u);
        for (int f = 0; f < in->nfields; f++)
            in->value[f] =
                grown(in->mem, in->value[f], in->count * sizeof(uint32_t), more * sizeof(uint32_t));
        in->hash = grown(in->mem, in->hash, in->count * sizeof *in->hash, more * sizeof *in->hash);
        in->capacity = more;
    }
    for (int f = 0; f < in->nfields; f++)
        in->value[f][in->count] = ids[f];
    in->hash[in->count] = h;
    return in->count++;
}

static uint32_t input_intern(llm_inputs *in, const uint32_t *ids, bool dedup) {
    uint64_t h = hash64(ids, (size_t)in->nfields * sizeof *ids, 1);
    if (!dedup)
        return input_append(in, ids, h);
    if (in->count * 2 >= in->nslots)
        slots_rebuild(&in->slots, &in->nslots, in->hash, in->count, in->mem);
    uint32_t at = (uint32_t)h & (in->nslots - 1);
    for (; in->slots[at]; at = (at + 1) & (in->nslots - 1)) {
        uint32_t i = in->slots[at] - 1;
        if (in->hash[i] == h && input_equal(in, i, ids))
            return i;
    }
    uint32_t i = input_append(in, ids, h);
    in->slots[at] = i + 1;
    return i;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef struct ranked {
    str text;
    uint32_t id;
} ranked;

static int ranked_compare(const void *a, const void *b) {
    return str_compare(((const ranked *)a)->text, ((const ranked *)b)->text);
}

/* Renumbers a field's values by bytewise rank, so that
 * equal beginnings stand together when ids are sorted. */
static void field_rank(llm_inputs *in, int f) {
    field_values *v = &in->fields[f];
    ranked *order = mem_alloc(sizeof *order * BASE_MAX(v->count, 1u));
    uint32_t *rank = mem_alloc(sizeof *rank * BASE_MAX(v->count, 1u));
    for (uint32_t i = 0; i < v->count; i++)
        order[i] = (ranked){v->text[i], i};
    qsort(order, v->count, sizeof *order, ranked_compare);
    for (uint32_t i = 0; i < v->count; i++) {
        rank[order[i].id] = i;
        v->text[i] = order[i].text;
    }
    for (uint32_t i = 0; i < in->count; i++)
        if (in->value[f][i] != PSM_ABSENT)
            in->value[f][i] = rank[in->value[f][i]];
    free(rank);
    free(order);
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* One batch's fields and guard, evaluated. */
typedef struct gathered {
    column *fields;
    column guard;
    bool guarded;
} gathered;

static int evaluate_batch(const plan_llm_use *use, const batch *b, arena *pass, gathered *g,
                          err *e) {
    int status = 0;
    g->guarded = use->guard != NULL;
    if (g->guarded && (status = eval_column(use->guard, b, pass, &g->guard, e)) != 0)
        return status;
    for (int f = 0; f < use->call->nfields && status == 0; f++)
        status = eval_column(use->args[f], b, pass, &g->fields[f], e);
    return status;
}

/* The field ids of one row; false when its answer is NULL without a call (DIALECT 2, NULL). */
static int row_ids(llm_inputs *in, const llm_call *call, const gathered *g, int row, arena *pass,
                   uint32_t *ids, bool *needed, err *e) {
    int present = 0;
    *needed = !g->guarded || (!column_is_null(&g->guard, row) && g->guard.i[row] != 0);
    if (call->prompt.type == TYPE_NULL)
        *needed = false;
    for (int f = 0; f < in->nfields && *needed; f++) {
        value v = column_get(&g->fields[f], row), text;
        if (v.type == TYPE_NULL) {
            ids[f] = PSM_ABSENT;
            if (call->field_required[f])
                *needed = false;
            continue;
        }
        int status = value_cast(pass, v, TYPE_TEXT, &text, e);
        if (status)
            return status;
        ids[f] = field_intern(&in->fields[f], text.s, in->mem);
        present++;
    }
    if (in->nfields > 0 && present == 0)
        *needed = false;
    return 0;
}

int inputs_gather(exec_ctx *ctx, const plan_llm_use *use, const rowset *rows, bool dedup,
                  arena *mem, llm_inputs **out, err *e) {
    int n = use->call->nfields, status = 0;
    llm_inputs *in = ARENA_NEW(mem, llm_inputs);
    in->mem = mem;
    in->nfields = n;
    in->fields = ARENA_ARRAY(mem, field_values, n + 1);
    in->value = ARENA_ARRAY(mem, uint32_t *, n + 1);
    in->rows = rowset_rows(rows);
    in->of_row = arena_alloc(mem, sizeof(uint32_t) * (size_t)BASE_MAX(in->rows, 1));
    uint32_t *ids = ARENA_ARRAY(mem, uint32_t, n + 1);
    gathered g = {.fields = ARENA_ARRAY(mem, column, n + 1)};
    arena *pass = arena_new();
    int64_t at = 0;
    for (int i = 0; i < rowset_batches(rows) && status == 0; i++) {
        const batch *b = rowset_batch(rows, i);
        if (atomic_load_explicit(ctx->cancel, memory_order_relaxed))
            status = err_set(e, ERR_CANCELLED, "cancelled");
        if (status == 0)
            status = evaluate_batch(use, b, pass, &g, e);
        for (int row = 0; row < b->rows && status == 0; row++, at++) {
            bool needed = false;
            status = row_ids(in, use->call, &g, row, pass, ids, &needed, e);
            in->of_row[at] = needed && status == 0 ? input_intern(in, ids, dedup) : NO_INPUT;
            in->needed_rows += needed;
        }
        arena_reset(pass);
    }
    arena_free(pass);
    for (int f = 0; f < n && status == 0; f++)
        field_rank(in, f);
    *out = in;
    return status;
}

hash128 inputs_key(const llm_inputs *in, const llm_call *call, uint32_t input) {
    buf b = {0};
    uint32_t number = (uint32_t)call->number;
    buf_append(&b, &number, sizeof number);
    for (int f = 0; f < in->nfields; f++) {
        uint32_t id = in->value[f][input];
        if (id == PSM_ABSENT)
            continue;
        str text = in->fields[f].text[id];
        uint32_t header[2] = {(uint32_t)f, (uint32_t)text.n};
        buf_append(&b, header, sizeof header);
        buf_append_str(&b, text);
    }
    hash128 key = hash_128(b.p, b.n);
    buf_free(&b);
    return key;
}
