/*
 * llm_inputs.c - the distinct inputs of one LLM call: which rows need an answer, and their fields'
 * texts.
 *
 * Invariant: two rows share an input exactly when the call cannot tell them apart: the same fields
 * are present, with the same texts. For a field that is computed from answers the text is not known
 * yet; two rows then have the same value if it is computed from the same answers and the same cells.
 * The ids of texts are ranks in bytewise order, as the solver requires. Texts are in memory that
 * spills: in the rows themselves, or in llm_runtime.kept if a field is not a plain TEXT column; the
 * input tables hold only pointers and hashes.
 */
#include <stdlib.h>
#include <string.h>

#include "llm_int.h"
#include "storage/containers.h"

/* ---- dictionaries ---------------------------------------------------------------------------- */

/* The distinct texts of a field while they are gathered. */
typedef struct dictionary {
    hash_index index; /* by the key's low half */
    uint32_t ntexts, text_room, nkeys, key_room;
    str *texts;
    hash128 *keys;
    context_sets *sets; /* of contexts => whose order may be chosen: then it has no texts yet */
    arena *mem;
} dictionary;

/* State of inputs_gather() that is freed at its end. */
typedef struct gathering {
    llm_inputs *in;
    const late_source *sources; /* by field */
    buf made_of;                /* scratch: what the value of a late field is computed from */
    dictionary *fields;
    hash_index inputs;
    uint32_t *room; /* by field: capacity of in->value */
    arena *mem;
} gathering;

/* Returns the id of a text. A new text is copied into `keep`; if `keep` is NULL, it stays where it
 * is. */
static uint32_t field_intern(gathering *g, int field, str text, arena *keep) {
    dictionary *d = &g->fields[field];
    hash128 key = hash_128(text.p, text.n);
    for (hash_slot *s = hash_index_first(&d->index, key.low); s; s = hash_index_next(&d->index, s))
        if (hash128_equal(d->keys[s->item], key) && str_equal(d->texts[s->item], text))
            return s->item;
    hash_index_add(&d->index, key.low, d->ntexts);
    ARENA_PUSH(d->mem, d->texts, d->ntexts, d->text_room, keep ? str_copy(keep, text) : text);
    ARENA_PUSH(d->mem, d->keys, d->nkeys, d->key_room, key);
    return d->ntexts - 1;
}

/* Whether the order of a call's contexts is left as it is. Calls that go on from each other must send
 * the same prompt about a row, and each knows only its own rows. */
static bool contexts_are_ranked(const exec_ctx *ctx, const llm_call *call) {
    return call->contexts_ranked || call->after || call->goes_on ||
           ctx->settings->psm == PSM_SETTING_OFF;
}

/* Sets *id to the id of the texts in a JSON array; PSM_ABSENT: it has none. */
static int list_intern(gathering *g, const llm_call *call, int field, str json, arena *pass,
                       arena *keep, uint32_t *id, err *e) {
    dictionary *d = &g->fields[field];
    str *texts;
    int n, status = contexts_read(call, json, pass, &texts, &n, e);
    if (status || n == 0)
        *id = PSM_ABSENT;
    else if (d->sets)
        *id = contexts_intern(d->sets, texts, n);
    else
        *id = field_intern(g, field, contexts_join(texts, n, pass), keep);
    return status;
}

/* Orders the sets of contexts, and makes their texts. */
static int lists_finish(gathering *g, int field, arena *keep, const atomic_bool *cancel, err *e) {
    context_sets *sets = g->fields[field].sets;
    int status = sets ? contexts_order(sets, cancel, e) : 0;
    for (uint32_t i = 0; sets && i < contexts_count(sets) && !status; i++) {
        field_intern(g, field, contexts_text(sets, i, keep), NULL);
        if (i % BATCH_ROWS == 0)
            status = arena_full_error(keep, e);
    }
    return status;
}

/* Appends a cell so that equal bytes are equal values. */
static void append_cell(buf *out, const column *c, int row) {
    value v = c->type == TYPE_NULL ? value_null() : column_get(c, row);
    buf_append_char(out, (char)v.type);
    if (v.type == TYPE_TEXT || v.type == TYPE_BLOB) {
        buf_append(out, &v.s.n, sizeof v.s.n);
        buf_append(out, v.s.p, v.s.n);
    } else if (v.type == TYPE_REAL) {
        buf_append(out, &v.r, sizeof v.r);
    } else if (v.type != TYPE_NULL) {
        buf_append(out, &v.i, sizeof v.i);
    }
}

/* Returns the id of what a late field is computed from in row `row` of b, which is row `at` of all
 * rows. */
static uint32_t late_intern(gathering *g, int field, const batch *b, int row, int64_t at) {
    const late_source *from = &g->sources[field];
    dictionary *d = &g->fields[field];
    buf_clear(&g->made_of);
    for (int i = 0; i < from->ncols; i++)
        append_cell(&g->made_of, &b->cols[from->cols[i]], row);
    for (int i = 0; i < from->nanswers; i++)
        buf_append(&g->made_of, &from->inputs[i][at], sizeof(uint32_t));
    hash128 key = hash_128(g->made_of.p, g->made_of.n);
    for (hash_slot *s = hash_index_first(&d->index, key.low); s; s = hash_index_next(&d->index, s))
        if (hash128_equal(d->keys[s->item], key))
            return s->item;
    hash_index_add(&d->index, key.low, d->nkeys);
    ARENA_PUSH(d->mem, d->keys, d->nkeys, d->key_room, key);
    return d->nkeys - 1;
}

static bool input_equal(const llm_inputs *in, uint32_t i, const uint32_t *ids) {
    for (int f = 0; f < in->nfields; f++)
        if (in->value[f][i] != ids[f])
            return false;
    return true;
}

static uint32_t input_append(gathering *g, const uint32_t *ids) {
    llm_inputs *in = g->in;
    for (int f = 0; f < in->nfields; f++) {
        ARENA_RESERVE(g->mem, in->value[f], in->count + 1, g->room[f]);
        in->value[f][in->count] = ids[f];
    }
    return in->count++;
}

static uint32_t input_intern(gathering *g, const uint32_t *ids, bool dedup) {
    if (!dedup)
        return input_append(g, ids);
    uint64_t h = hash64(ids, (size_t)g->in->nfields * sizeof *ids, 1);
    for (hash_slot *s = hash_index_first(&g->inputs, h); s; s = hash_index_next(&g->inputs, s))
        if (input_equal(g->in, s->item, ids))
            return s->item;
    hash_index_add(&g->inputs, h, g->in->count);
    return input_append(g, ids);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef struct ranked {
    str text;
    uint32_t id;
} ranked;

static int ranked_compare(const void *a, const void *b) {
    return str_compare(((const ranked *)a)->text, ((const ranked *)b)->text);
}

/* Copies what is needed later of a late field to `mem`, and frees the dictionary. */
static void late_finish(gathering *g, int f, arena *mem) {
    llm_inputs *in = g->in;
    uint32_t n = g->fields[f].nkeys;
    uint32_t *ids = arena_alloc(mem, sizeof *ids * BASE_MAX(in->count, 1u));
    if (in->count > 0)
        memcpy(ids, in->value[f], sizeof *ids * in->count);
    in->value[f] = ids;
    in->fields[f] = (field_values){.count = n,
                                   .text = ARENA_ARRAY(mem, str, n + 1),
                                   .key = ARENA_ARRAY(mem, hash128, n + 1),
                                   .late = true,
                                   .state = ARENA_ARRAY(mem, uint8_t, n + 1)};
    arena_free(g->fields[f].mem);
    g->fields[f].mem = NULL;
}

/* Renumbers a field's values by bytewise rank, so that texts with a common beginning are neighbours
 * when ids are sorted. Copies what is needed later to `mem`, and frees the dictionary. */
static int field_finish(gathering *g, int f, arena *mem, const atomic_bool *cancel, err *e) {
    llm_inputs *in = g->in;
    dictionary *d = &g->fields[f];
    field_values *v = &in->fields[f];
    *v = (field_values){.count = d->ntexts,
                        .text = ARENA_ARRAY(mem, str, d->ntexts + 1),
                        .key = ARENA_ARRAY(mem, hash128, d->ntexts + 1)};
    ranked *order = arena_alloc(d->mem, sizeof *order * BASE_MAX(v->count, 1u));
    uint32_t *rank = arena_alloc(d->mem, sizeof *rank * BASE_MAX(v->count, 1u));
    uint32_t *ids = arena_alloc(mem, sizeof *ids * BASE_MAX(in->count, 1u));
    for (uint32_t i = 0; i < v->count; i++)
        order[i] = (ranked){d->texts[i], i};
    int status = sort_array(order, v->count, sizeof *order, ranked_compare, cancel, e);
    if (status)
        return status;
    for (uint32_t i = 0; i < v->count; i++) {
        rank[order[i].id] = i;
        v->text[i] = order[i].text;
        v->key[i] = d->keys[order[i].id];
    }
    for (uint32_t i = 0; i < in->count; i++)
        ids[i] = in->value[f][i] == PSM_ABSENT ? PSM_ABSENT : rank[in->value[f][i]];
    in->value[f] = ids;
    arena_free(d->mem);
    d->mem = NULL;
    return 0;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* One batch's fields, without the late ones, and guard, evaluated. */
typedef struct evaluated {
    const batch *rows;
    column *fields;
    column guard;
    bool guarded;
} evaluated;

static int evaluate_batch(const gathering *g, const plan_call_site *site, const batch *b,
                          arena *pass, evaluated *v, err *e) {
    int status = 0;
    v->rows = b;
    v->guarded = site->guard != NULL;
    if (v->guarded && (status = eval_column(site->guard, b, pass, &v->guard, e)) != 0)
        return status;
    for (int f = 0; f < site->call->nfields && status == 0; f++)
        if (!g->sources[f].late)
            status = eval_column(site->args[f], b, pass, &v->fields[f], e);
    return status;
}

/* Whether a field is a TEXT column of the rows: its text need not be copied. */
static bool is_text_column(const expr *x) {
    return x->kind == EXPR_COLUMN && x->type == TYPE_TEXT;
}

/* ROW_INPUT: the row has an input. The answer of other rows is NULL without a call. ROW_GUARDED: the
 * guard is not true, or the prompt is NULL. ROW_EMPTY: all fields are NULL, or one that the prompt
 * names. */
typedef enum row_state { ROW_INPUT, ROW_GUARDED, ROW_EMPTY } row_state;

/* Finds the field ids of row `row` of a batch, which is row `at` of all rows. */
static int row_ids(gathering *g, const plan_call_site *site, const evaluated *of, int row,
                   int64_t at, arena *pass, arena *keep, uint32_t *ids, row_state *state, err *e) {
    const llm_call *call = site->call;
    int present = 0;
    bool guard = !of->guarded || (!column_is_null(&of->guard, row) && of->guard.i[row] != 0);
    *state = guard && call->prompt.type != TYPE_NULL ? ROW_INPUT : ROW_GUARDED;
    for (int f = 0; f < g->in->nfields && *state == ROW_INPUT; f++) {
        if (g->sources[f].late) {
            ids[f] = late_intern(g, f, of->rows, row, at);
            present++;
            continue;
        }
        value v = column_get(&of->fields[f], row), text;
        ids[f] = PSM_ABSENT;
        int status = value_cast(pass, v, TYPE_TEXT, &text, e);
        if (!status && v.type != TYPE_NULL && call->field_lists[f])
            status = list_intern(g, call, f, text.s, pass, keep, &ids[f], e);
        else if (!status && v.type != TYPE_NULL)
            ids[f] = field_intern(g, f, text.s, is_text_column(site->args[f]) ? NULL : keep);
        if (status)
            return status;
        present += ids[f] != PSM_ABSENT;
        if (ids[f] == PSM_ABSENT && call->field_required[f])
            *state = ROW_EMPTY;
    }
    if (*state == ROW_INPUT && g->in->nfields > 0 && present == 0)
        *state = ROW_EMPTY;
    return 0;
}

static int gather_rows(gathering *g, exec_ctx *ctx, const plan_call_site *site, const rowset *rows,
                       bool dedup, arena *keep, err *e) {
    llm_inputs *in = g->in;
    int status = 0;
    uint32_t *ids = ARENA_ARRAY(g->mem, uint32_t, in->nfields + 1);
    evaluated of = {.fields = ARENA_ARRAY(g->mem, column, in->nfields + 1)};
    arena *pass = arena_new(); /* a batch's memory is not counted in ctx->space, in no operator */
    int64_t at = 0;
    for (int i = 0; i < rowset_batches(rows) && status == 0; i++) {
        const batch *b = rowset_batch(rows, i);
        status = check_cancel(ctx->cancel, e);
        if (status == 0)
            status = evaluate_batch(g, site, b, pass, &of, e);
        for (int row = 0; row < b->rows && status == 0; row++, at++) {
            row_state state = ROW_GUARDED;
            status = row_ids(g, site, &of, row, at, pass, keep, ids, &state, e);
            bool needed = state == ROW_INPUT && status == 0;
            in->of_row[at] = needed ? input_intern(g, ids, dedup) : NO_INPUT;
            in->empty[at] = state == ROW_EMPTY;
            in->needed_rows += needed;
        }
        arena_reset(pass);
        if (status == 0)
            status = arena_full_error(keep, e);
    }
    arena_free(pass);
    return status;
}

int inputs_gather(exec_ctx *ctx, const plan_call_site *site, const late_source *sources,
                  const rowset *rows, bool dedup, arena *mem, llm_inputs **out, err *e) {
    int n = site->call->nfields;
    bool late = false, chosen = !contexts_are_ranked(ctx, site->call);
    llm_inputs *in = ARENA_NEW(mem, llm_inputs);
    gathering g = {.in = in, .sources = sources, .mem = arena_new_in(ctx->space)};
    g.fields = ARENA_ARRAY(g.mem, dictionary, n + 1);
    g.room = ARENA_ARRAY(g.mem, uint32_t, n + 1);
    g.inputs.mem = g.mem;
    for (int f = 0; f < n; f++) {
        dictionary *d = &g.fields[f];
        d->mem = d->index.mem = arena_new_in(ctx->space);
        if (chosen && site->call->field_lists[f] && !sources[f].late)
            d->sets = contexts_new(ctx->space);
    }
    in->nfields = n;
    in->fields = ARENA_ARRAY(mem, field_values, n + 1);
    in->value = ARENA_ARRAY(mem, uint32_t *, n + 1);
    in->rows = rowset_rows(rows);
    in->of_row = arena_alloc(mem, sizeof(uint32_t) * (size_t)BASE_MAX(in->rows, 1));
    in->empty = arena_alloc(mem, (size_t)BASE_MAX(in->rows, 1));
    int status = gather_rows(&g, ctx, site, rows, dedup, ctx->llm->kept, e);
    for (int f = 0; f < n && status == 0; f++) {
        late = late || sources[f].late;
        if (sources[f].late) {
            late_finish(&g, f, mem);
            continue;
        }
        status = lists_finish(&g, f, ctx->llm->kept, ctx->cancel, e);
        if (!status)
            status = field_finish(&g, f, mem, ctx->cancel, e);
    }
    if (late)
        in->resolved = ARENA_ARRAY(mem, uint8_t, in->count + 1);
    for (int f = 0; f < n; f++) {
        arena_free(g.fields[f].mem);
        contexts_free(g.fields[f].sets);
    }
    arena_free(g.mem);
    buf_free(&g.made_of);
    *out = in;
    return status;
}

hash128 inputs_key(const llm_inputs *in, const llm_call *call, uint32_t input) {
    uint64_t parts[1 + 3 * PSM_MAX_FIELDS] = {(uint64_t)call->number};
    size_t n = 1;
    for (int f = 0; f < in->nfields; f++) {
        uint32_t id = in->value[f][input];
        if (input_lacks(in, f, input))
            continue;
        parts[n++] = (uint64_t)f;
        parts[n++] = in->fields[f].key[id].low;
        parts[n++] = in->fields[f].key[id].high;
    }
    return hash_128(parts, n * sizeof *parts);
}
