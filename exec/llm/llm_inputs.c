/*
 * llm_inputs.c - the distinct inputs of one LLM use: which rows need an answer, and what their
 * fields say.
 *
 * Invariant: two rows share an input exactly when the call could not tell them apart: the same
 * fields present, with the same texts. Field ids are ranks in bytewise order once gathering is
 * over, as the solver wants them. Texts stay in what spills: the rows kept, or, where they are no
 * cells as they stand, the runtime's `kept`; of them memory has places and hashes alone.
 */
#include <stdlib.h>
#include <string.h>

#include "llm_int.h"

/* ---- dictionaries ---------------------------------------------------------------------------- */

/* What only gathering needs, in memory that is freed behind it. */
typedef struct slots {
    uint32_t *entry; /* open addressing, id + 1; 0 is free */
    uint32_t count;
} slots;

typedef struct gathering {
    llm_inputs *in;
    slots *values;  /* by field */
    uint32_t *room; /* by field: for values */
    slots inputs;
    uint64_t *hash;    /* by input */
    uint32_t capacity; /* for inputs */
    arena *mem;
} gathering;

static uint32_t slot_of(uint64_t hash, const slots *s) {
    return (uint32_t)hash & (s->count - 1);
}

/* Twice as many slots for the ids 0 … count - 1, whose hashes are known to `of`. */
static void slots_grow(slots *s, uint32_t count, uint64_t (*hash_of)(const void *of, uint32_t id),
                       const void *of, arena *mem) {
    slots fresh = {.count = BASE_MAX(s->count * 2, 64u)};
    fresh.entry = ARENA_ARRAY(mem, uint32_t, fresh.count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = slot_of(hash_of(of, i), &fresh);
        while (fresh.entry[at])
            at = (at + 1) & (fresh.count - 1);
        fresh.entry[at] = i + 1;
    }
    *s = fresh;
}

static uint64_t value_hash_of(const void *of, uint32_t id) {
    return ((const field_values *)of)->key[id].low;
}

static uint64_t input_hash_of(const void *of, uint32_t id) {
    return ((const uint64_t *)of)[id];
}

static void *grown(arena *mem, const void *old, size_t old_bytes, size_t new_bytes) {
    void *p = arena_alloc(mem, new_bytes);
    if (old_bytes)
        memcpy(p, old, old_bytes);
    return p;
}

/* The id of a text; what is new is copied into `keep`, unless that is NULL: then it stays where it
 * is. */
static uint32_t field_intern(gathering *g, int field, str text, arena *keep) {
    field_values *f = &g->in->fields[field];
    slots *s = &g->values[field];
    if (f->count * 2 >= s->count)
        slots_grow(s, f->count, value_hash_of, f, g->mem);
    hash128 key = hash_128(text.p, text.n);
    uint32_t at = slot_of(key.low, s);
    for (; s->entry[at]; at = (at + 1) & (s->count - 1)) {
        uint32_t id = s->entry[at] - 1;
        if (hash128_equal(f->key[id], key) && str_equal(f->text[id], text))
            return id;
    }
    if (f->count == g->room[field]) {
        uint32_t more = BASE_MAX(f->count * 2, 64u);
        f->text = grown(g->mem, f->text, f->count * sizeof *f->text, more * sizeof *f->text);
        f->key = grown(g->mem, f->key, f->count * sizeof *f->key, more * sizeof *f->key);
        g->room[field] = more;
    }
    f->text[f->count] = keep ? str_copy(keep, text) : text;
    f->key[f->count] = key;
    s->entry[at] = ++f->count;
    return f->count - 1;
}

static bool input_equal(const llm_inputs *in, uint32_t i, const uint32_t *ids) {
    for (int f = 0; f < in->nfields; f++)
        if (in->value[f][i] != ids[f])
            return false;
    return true;
}

static uint32_t input_append(gathering *g, const uint32_t *ids, uint64_t h) {
    llm_inputs *in = g->in;
    if (in->count == g->capacity) {
        uint32_t more = BASE_MAX(g->capacity * 2, 256u);
        for (int f = 0; f < in->nfields; f++)
            in->value[f] =
                grown(g->mem, in->value[f], in->count * sizeof(uint32_t), more * sizeof(uint32_t));
        g->hash = grown(g->mem, g->hash, in->count * sizeof *g->hash, more * sizeof *g->hash);
        g->capacity = more;
    }
    for (int f = 0; f < in->nfields; f++)
        in->value[f][in->count] = ids[f];
    g->hash[in->count] = h;
    return in->count++;
}

static uint32_t input_intern(gathering *g, const uint32_t *ids, bool dedup) {
    llm_inputs *in = g->in;
    slots *s = &g->inputs;
    uint64_t h = hash64(ids, (size_t)in->nfields * sizeof *ids, 1);
    if (!dedup)
        return input_append(g, ids, h);
    if (in->count * 2 >= s->count)
        slots_grow(s, in->count, input_hash_of, g->hash, g->mem);
    uint32_t at = slot_of(h, s);
    for (; s->entry[at]; at = (at + 1) & (s->count - 1)) {
        uint32_t i = s->entry[at] - 1;
        if (g->hash[i] == h && input_equal(in, i, ids))
            return i;
    }
    uint32_t i = input_append(g, ids, h);
    s->entry[at] = i + 1;
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

/* Renumbers a field's values by bytewise rank, so that equal beginnings stand together when ids are
 * sorted, and gives what stays of them its last place, in `mem`. */
static int field_settle(gathering *g, int f, arena *mem, const atomic_bool *cancel, err *e) {
    llm_inputs *in = g->in;
    field_values *v = &in->fields[f];
    field_values settled = {.count = v->count,
                            .text = ARENA_ARRAY(mem, str, v->count + 1),
                            .key = ARENA_ARRAY(mem, hash128, v->count + 1)};
    ranked *order = arena_alloc(g->mem, sizeof *order * BASE_MAX(v->count, 1u));
    uint32_t *rank = arena_alloc(g->mem, sizeof *rank * BASE_MAX(v->count, 1u));
    uint32_t *ids = arena_alloc(mem, sizeof *ids * BASE_MAX(in->count, 1u));
    for (uint32_t i = 0; i < v->count; i++)
        order[i] = (ranked){v->text[i], i};
    int status = sort_array(order, v->count, sizeof *order, ranked_compare, cancel, e);
    if (status)
        return status;
    for (uint32_t i = 0; i < v->count; i++) {
        rank[order[i].id] = i;
        settled.text[i] = order[i].text;
        settled.key[i] = v->key[order[i].id];
    }
    for (uint32_t i = 0; i < in->count; i++)
        ids[i] = in->value[f][i] == PSM_ABSENT ? PSM_ABSENT : rank[in->value[f][i]];
    in->fields[f] = settled;
    in->value[f] = ids;
    return 0;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* One batch's fields and guard, evaluated. */
typedef struct evaluated {
    column *fields;
    column guard;
    bool guarded;
} evaluated;

static int evaluate_batch(const plan_call_site *site, const batch *b, arena *pass, evaluated *v,
                          err *e) {
    int status = 0;
    v->guarded = site->guard != NULL;
    if (v->guarded && (status = eval_column(site->guard, b, pass, &v->guard, e)) != 0)
        return status;
    for (int f = 0; f < site->call->nfields && status == 0; f++)
        status = eval_column(site->args[f], b, pass, &v->fields[f], e);
    return status;
}

/* Whether a field is a cell of the rows as it stands: its text need not be copied. */
static bool is_cell(const expr *x) {
    return x->kind == EXPR_COLUMN && x->type == TYPE_TEXT;
}

/* The field ids of one row; *needed: false when its answer is NULL without a call (DIALECT 2,
 * NULL). */
static int row_ids(gathering *g, const plan_call_site *site, const evaluated *of, int row,
                   arena *pass, arena *keep, uint32_t *ids, bool *needed, err *e) {
    const llm_call *call = site->call;
    int present = 0;
    *needed = !of->guarded || (!column_is_null(&of->guard, row) && of->guard.i[row] != 0);
    if (call->prompt.type == TYPE_NULL)
        *needed = false;
    for (int f = 0; f < g->in->nfields && *needed; f++) {
        value v = column_get(&of->fields[f], row), text;
        if (v.type == TYPE_NULL) {
            ids[f] = PSM_ABSENT;
            if (call->field_required[f])
                *needed = false;
            continue;
        }
        int status = value_cast(pass, v, TYPE_TEXT, &text, e);
        if (status)
            return status;
        ids[f] = field_intern(g, f, text.s, is_cell(site->args[f]) ? NULL : keep);
        present++;
    }
    if (g->in->nfields > 0 && present == 0)
        *needed = false;
    return 0;
}

static int gather_rows(gathering *g, exec_ctx *ctx, const plan_call_site *site, const rowset *rows,
                       bool dedup, arena *keep, err *e) {
    llm_inputs *in = g->in;
    int status = 0;
    uint32_t *ids = ARENA_ARRAY(g->mem, uint32_t, in->nfields + 1);
    evaluated of = {.fields = ARENA_ARRAY(g->mem, column, in->nfields + 1)};
    arena *pass = arena_new(); /* one batch, as every operator has: not counted */
    int64_t at = 0;
    for (int i = 0; i < rowset_batches(rows) && status == 0; i++) {
        const batch *b = rowset_batch(rows, i);
        status = check_cancel(ctx->cancel, e);
        if (status == 0)
            status = evaluate_batch(site, b, pass, &of, e);
        for (int row = 0; row < b->rows && status == 0; row++, at++) {
            bool needed = false;
            status = row_ids(g, site, &of, row, pass, keep, ids, &needed, e);
            in->of_row[at] = needed && status == 0 ? input_intern(g, ids, dedup) : NO_INPUT;
            in->needed_rows += needed;
        }
        arena_reset(pass);
        if (status == 0)
            status = arena_full_error(keep, e);
    }
    arena_free(pass);
    return status;
}

int inputs_gather(exec_ctx *ctx, const plan_call_site *site, const rowset *rows, bool dedup,
                  arena *mem, llm_inputs **out, err *e) {
    int n = site->call->nfields;
    llm_inputs *in = ARENA_NEW(mem, llm_inputs);
    gathering g = {.in = in, .mem = arena_new_in(ctx->space)};
    g.values = ARENA_ARRAY(g.mem, slots, n + 1);
    g.room = ARENA_ARRAY(g.mem, uint32_t, n + 1);
    in->nfields = n;
    in->fields = ARENA_ARRAY(mem, field_values, n + 1);
    in->value = ARENA_ARRAY(mem, uint32_t *, n + 1);
    in->rows = rowset_rows(rows);
    in->of_row = arena_alloc(mem, sizeof(uint32_t) * (size_t)BASE_MAX(in->rows, 1));
    int status = gather_rows(&g, ctx, site, rows, dedup, ctx->llm->kept, e);
    for (int f = 0; f < n && status == 0; f++)
        status = field_settle(&g, f, mem, ctx->cancel, e);
    arena_free(g.mem);
    *out = in;
    return status;
}

hash128 inputs_key(const llm_inputs *in, const llm_call *call, uint32_t input) {
    uint64_t parts[1 + 3 * PSM_MAX_FIELDS] = {(uint64_t)call->number};
    size_t n = 1;
    for (int f = 0; f < in->nfields; f++) {
        uint32_t id = in->value[f][input];
        if (id == PSM_ABSENT)
            continue;
        parts[n++] = (uint64_t)f;
        parts[n++] = in->fields[f].key[id].low;
        parts[n++] = in->fields[f].key[id].high;
    }
    return hash_128(parts, n * sizeof *parts);
}
