/*
 * blend.c - blended prompts (llm_blend): the KV of chunks is computed behind the head alone and
 * moved to its place, and a share of it is computed again.
 *
 *   tree       head ──┬── chunk A ──── private node: chunk B, chunk C, question    the prompt
 *                     ├── chunk B                 ↑ moved  ↑ moved
 *                     └── chunk C
 *
 *   1  place   rows for head and chunk A, as of any prompt; for the chunks B and C, whose nodes other
 *              prompts share, too; moves of their KV into the private node
 *   2  probe   the rule's scores, in the same pass, from rows for the tokens of B and C (DEVIATION) or
 *              the question (QUESTION) that run through the first layers. EDGES needs none
 *   3  choose  after that pass
 *   4  place   rows for the chosen tokens, in place, then for the question
 *
 * Blocks for all of this are there before a request is probed, those of its answer as blocks that the
 * tree reserves: so requests that wait for the end of a pass can always go on.
 *
 * Invariant: chunk KV comes from the chunk's node, whether that was computed, in memory or stored;
 * all else is computed from it, in an order of operations that does not depend on other requests.
 */
#include <stdlib.h>
#include <string.h>

#include "session_int.h"
#include "storage/containers.h"

/* ---- lifetime -------------------------------------------------------------------------------- */

static const llm_span *chunks_of(const request *r, int *at) {
    for (*at = 0; *at < r->nspans; ++*at)
        if (r->spans[*at]->nchunks > 0)
            return r->spans[*at];
    return NULL;
}

blend_state *blend_new(const llm_session *s, const request *r, const llm_blend *how) {
    int at, first = r->prompt_tokens - (r->guide != NULL ? r->guide->nprefix : 0);
    const llm_span *span = chunks_of(r, &at);
    if (!s->engine->info.blends || span == NULL || span->nchunks < 2)
        return NULL;
    for (int i = at; i < r->nspans; i++)
        first -= (int)r->spans[i]->count;
    if (first + (int)span->count == r->prompt_tokens)
        return NULL; /* nothing asks about the chunks */
    blend_state *b = mem_zalloc(sizeof *b);
    b->how = *how;
    b->nchunks = span->nchunks;
    b->starts = mem_alloc(sizeof *b->starts * (size_t)(b->nchunks + 1));
    b->nodes = mem_zalloc(sizeof *b->nodes * (size_t)b->nchunks);
    for (int i = 0; i < b->nchunks; i++)
        b->starts[i + 1] = first + span->chunk_ends[i];
    bool named = at > 0 && r->spans[at - 1]->kind == LLM_SPAN_NAME;
    b->starts[0] = first - (named ? (int)r->spans[at - 1]->count : 0);
    return b;
}

void blend_free(blend_state *b) {
    if (b == NULL)
        return;
    free(b->starts);
    free(b->nodes);
    free((void *)b->scores);
    free(b->chosen);
    free(b);
}

int blend_blocks(const blend_state *b) {
    int blocks = 0;
    for (int i = 0; i < b->nchunks;
         i++) /* a node begins and ends with a block of which it uses a part */
        blocks += (b->starts[i + 1] - b->starts[i]) / LLM_BLOCK_TOKENS + 2;
    return blocks;
}

/* ---- the chunks' nodes ----------------------------------------------------------------------- */

/* Returns the position from which on a chunk's nodes are its own. */
static int own_from(const llm_session *s, const blend_state *b) {
    return s->options.reuse == LLM_REUSE_NONE ? 0 : b->starts[0];
}

prefix_node *blend_enter(llm_session *s, request *r, int count) {
    blend_state *b = r->blend;
    int head = b->starts[0], from = b->starts[1];
    llm_token *text = mem_alloc(sizeof *text * (size_t)from + sizeof *text * (size_t)count);
    memcpy(text, s->scratch, sizeof *text * (size_t)head);
    for (int i = 0; i < b->nchunks; i++) {
        int n = b->starts[i + 1] - b->starts[i];
        memcpy(text + head, s->scratch + b->starts[i], sizeof *text * (size_t)n);
        b->nodes[i] = s->options.reuse == LLM_REUSE_NONE
                          ? prefix_add_private(&s->tree, &s->tree.root, text, head + n, head + n)
                          : prefix_insert(&s->tree, text, head + n);
        if (i > 0)
            prefix_count_from(&s->tree, b->nodes[i], own_from(s, b), 1, 0);
    }
    free(text);
    return prefix_add_private(&s->tree, b->nodes[0], s->scratch + from, count - from, count - from);
}

void blend_begin(llm_session *s, request *r) {
    const blend_state *b = r->blend;
    for (int i = 1; i < b->nchunks; i++)
        prefix_count_from(&s->tree, b->nodes[i], own_from(s, b), 0, 1);
}

void blend_prefetch(llm_session *s, const request *r) {
    for (int i = 0; i < r->blend->nchunks; i++)
        schedule_prefetch(s, r->blend->nodes[i]);
    r->end->prefetched = true;
}

/* Lets go of all chunks but the first, above which the prompt ends. */
static void chunks_release(llm_session *s, request *r) {
    blend_state *b = r->blend;
    bool keep_shared = s->options.reuse == LLM_REUSE_TREE,
         keep_all = s->options.reuse == LLM_REUSE_FIFO;
    for (int i = 1; i < b->nchunks && b->nodes[i] != NULL; i++) {
        prefix_count_from(&s->tree, b->nodes[i], own_from(s, b), -1, r->live ? -1 : 0);
        prefix_prune(&s->tree, b->nodes[i], keep_shared, keep_all);
        b->nodes[i] = NULL;
    }
}

static void reserved_free(llm_session *s, blend_state *b) {
    s->tree.reserved -= b->reserved;
    b->reserved = 0;
}

void blend_release(llm_session *s, request *r) {
    chunks_release(s, r);
    reserved_free(s, r->blend);
}

/* Reserves the blocks that the answer will need; false: there are not enough. */
static bool answer_reserve(llm_session *s, request *r) {
    int need = schedule_answer_blocks(s, r);
    if (s->tree.used_blocks + s->tree.reserved + need > s->tree.nblocks)
        return false;
    s->tree.reserved += need;
    r->blend->reserved = need;
    return true;
}

/* ---- placing --------------------------------------------------------------------------------- */

/* Adds rows and moves for the chunks that are not in their places. */
static placing chunks_place(llm_session *s, request *r) {
    blend_state *b = r->blend;
    for (; b->moved < b->nchunks; b->moved++) {
        int i = b->moved;
        placing chunk = schedule_path(s, r, b->nodes[i]);
        if (chunk != PLACED)
            return chunk;
        if (i == 0 && b->reserved == 0 && !answer_reserve(s, r))
            return NO_BLOCKS;
        if (i == 0 && !schedule_node(s, r, r->end))
            return NO_BLOCKS;
        pass_move move = {.from_table = b->nodes[i]->table,
                          .to_table = r->end->table,
                          .from = b->starts[0],
                          .to = b->starts[i],
                          .count = b->starts[i + 1] - b->starts[i]};
        if (i > 0)
            ARRAY_PUSH(s->pass.moves, s->pass.nmoves, s->moves_cap, move);
    }
    return PLACED;
}

/* Adds rows of the probe, and the probe once its last row is there. PROBED: all rows are added. */
static placing probe_place(llm_session *s, request *r) {
    blend_state *b = r->blend;
    bool asks = b->how.rule == LLM_BLEND_QUESTION;
    probe_kind kind = asks ? PROBE_ATTENTION : PROBE_DEVIATION;
    int from = b->starts[1], to = b->starts[b->nchunks], end = r->end->start + r->end->count;
    int first = asks ? to : from, total = asks ? end - to : to - from;
    int n = BASE_MIN(total - b->probed, BASE_MAX(schedule_rows_left(s), 0));
    int *count = &s->pass.probe_rows[kind];
    if (b->scores == NULL)
        b->scores = mem_zalloc(sizeof *b->scores * (size_t)(to - from));
    pass_probe probe = {kind, *count, n, from, to, b->scores};
    for (int i = 0; i < n; i++) {
        int position = first + b->probed + i;
        pass_row row = {.token = r->end->tokens[position - from],
                        .position = position,
                        .keep = asks ? KEEP_FIRST : KEEP_NOT,
                        .table = r->end->table};
        ARRAY_PUSH(s->probe_rows[kind], *count, s->probe_rows_cap[kind], row);
    }
    b->probed += n;
    s->prefill_rows += n;
    /* these rows run through a part of the layers, those of DEVIATION through a quarter of the last */
    int layers = BASE_MAX(s->engine->info.layers, 1);
    int quarters = asks ? 4 * probe_layers(layers) : 4 * PROBE_VALUES + 1;
    schedule_computed(s, r, (n * quarters + 4 * layers - 1) / (4 * layers));
    if (asks && n > 0) { /* the last token's attention counts */
        probe.first = *count - 1;
        probe.count = b->probed == total;
    }
    if (n > 0 && probe.count > 0)
        ARRAY_PUSH(s->pass.probes, s->pass.nprobes, s->probes_cap, probe);
    return b->probed == total ? PROBED : PASS_FULL;
}

/* ---- choosing -------------------------------------------------------------------------------- */

typedef struct candidate {
    int position;
    int edge; /* distance from the nearer end of its chunk, doubled; odd: from the last token */
    uint64_t score;
} candidate;

static int nearer_edge_first(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->edge != y->edge ? x->edge - y->edge : x->position - y->position;
}

static int larger_score_first(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score)
                                : x->position - y->position;
}

static int earlier_first(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Chooses the tokens that are computed again. */
static void blend_choose(blend_state *b) {
    int from = b->starts[1], n = b->starts[b->nchunks] - from;
    int most = BASE_MIN((int)(b->how.share * n + 0.5), n);
    int edges = b->how.rule == LLM_BLEND_EDGES ? most : (most + 1) / 2;
    candidate *all = mem_alloc(sizeof *all * (size_t)BASE_MAX(n, 1));
    for (int i = 1, k = 0; i < b->nchunks; i++) {
        for (int p = b->starts[i]; p < b->starts[i + 1]; p++, k++) {
            int before = 2 * (p - b->starts[i]), after = 2 * (b->starts[i + 1] - 1 - p) + 1;
            all[k] = (candidate){p, BASE_MIN(before, after), b->scores != NULL ? b->scores[k] : 0};
        }
    }
    qsort(all, (size_t)n, sizeof *all, nearer_edge_first);
    qsort(all + edges, (size_t)(n - edges), sizeof *all, larger_score_first);
    b->chosen = mem_alloc(sizeof *b->chosen * (size_t)BASE_MAX(most, 1));
    for (; b->nchosen < most; b->nchosen++)
        b->chosen[b->nchosen] = all[b->nchosen].position;
    qsort(b->chosen, (size_t)most, sizeof *b->chosen, earlier_first);
    free(all);
}

void blend_choose_probed(llm_session *s) {
    request *r;
    while ((r = list_pop(&s->probing)) != NULL) {
        blend_choose(r->blend);
        chunks_release(s, r);
        list_push(&s->chosen, r);
    }
}

/* Adds rows for the chosen tokens and for what follows the chunks. */
static placing rows_place(llm_session *s, request *r) {
    blend_state *b = r->blend;
    int behind = b->starts[b->nchunks], end = r->end->start + r->end->count;
    int total = b->nchosen + end - behind;
    for (; b->placed < total && schedule_rows_left(s) > 0; b->placed++) {
        bool again = b->placed < b->nchosen;
        schedule_row(s, r, again ? b->chosen[b->placed] : behind + b->placed - b->nchosen,
                     again ? KEEP_MOVED : KEEP_FIRST);
    }
    if (b->placed < total)
        return PASS_FULL;
    r->end->computed = r->end->count;
    reserved_free(s, b); /* the answer takes them now */
    return PLACED;
}

placing blend_place(llm_session *s, request *r) {
    blend_state *b = r->blend;
    placing chunks = chunks_place(s, r);
    if (chunks != PLACED)
        return chunks;
    if (b->chosen == NULL && b->how.rule != LLM_BLEND_EDGES)
        return probe_place(s, r);
    if (b->chosen == NULL)
        blend_choose(b);
    return rows_place(s, r);
}
