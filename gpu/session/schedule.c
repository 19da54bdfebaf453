/*
 * schedule.c - which tokens go into the next pass.
 *
 * With LLM_REUSE_TREE, prompts are taken in the order of a depth-first walk of the prefix tree:
 * every node is computed once, shortly before the prompts that share it. FIFO and NONE take
 * requests as submitted. A pass has one row for each live sequence that decodes, then new prompt
 * tokens up to options.pass_tokens. Invariant: nodes that a live request uses are not evicted, and
 * a request decodes only once blocks for its whole answer are allocated. answer.c interprets the
 * logits.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "session_int.h"

/* ---- the pass -------------------------------------------------------------------------------- */

void schedule_reset_pass(llm_session *s) {
    s->pass.nrows = s->pass.ncopies = s->pass.nwants = s->pass.nnext = 0;
    s->pass.nmoves = s->pass.nprobes = 0;
    memset(s->pass.probe_rows, 0, sizeof s->pass.probe_rows);
    s->nwant_infos = 0;
    s->logits_used = 0;
    s->nfinished = 0;
    s->prefill_rows = s->decode_rows = 0;
}

static void pass_row_add(llm_session *s, llm_token token, int position, const int32_t *table) {
    pass_row row = {.token = token, .position = position, .table = table};
    ARRAY_PUSH(s->pass.rows, s->pass.nrows, s->rows_cap, row);
}

/* Asks for logits after the pass's last row: those of the `count` tokens `ids`, or of the whole
 * vocabulary if `ids` is NULL. With top > 0, asks only for the `top` largest. */
static void pass_want_add(llm_session *s, request *r, int what, const llm_token *ids, int count,
                          int top) {
    pass_want want = {.row = s->pass.nrows - 1, .ids = ids, .count = count, .top = top};
    ARRAY_PUSH(s->pass.wants, s->pass.nwants, s->wants_cap, want);
    ARRAY_RESERVE(s->want_infos, s->nwant_infos + 1, s->want_infos_cap);
    want_info *info = &s->want_infos[s->nwant_infos++];
    info->r = r;
    info->what = what;
    info->logits_at = s->logits_used;
    s->logits_used += !s->runs_model ? 0 : (size_t)(top > 0 ? top : count);
}

void schedule_finish_pass(llm_session *s) {
    if (s->logits_used > s->logits_cap) {
        free(s->logits);
        s->logits_cap = s->logits_used;
        s->logits = mem_alloc(sizeof(float) * s->logits_cap);
    }
    for (int w = 0; w < s->pass.nwants && s->runs_model; w++) {
        s->pass.wants[w].logits = s->logits + s->want_infos[w].logits_at;
        s->pass.wants[w].top_ids = s->want_infos[w].top_ids;
    }
    for (int kind = 0; kind < PROBE_KINDS; kind++) {
        for (int i = 0; i < s->pass.nprobes; i++)
            if ((int)s->pass.probes[i].kind == kind)
                s->pass.probes[i].first += s->pass.nrows;
        for (int i = 0; i < s->pass.probe_rows[kind]; i++)
            ARRAY_PUSH(s->pass.rows, s->pass.nrows, s->rows_cap, s->probe_rows[kind][i]);
    }
}

int schedule_rows_left(const llm_session *s) {
    return s->options.pass_tokens - s->prefill_rows;
}

void schedule_computed(llm_session *s, request *r, int tokens) {
    r->computed += tokens;
    s->figures.computed_tokens += (uint64_t)tokens;
}

void schedule_row(llm_session *s, request *r, int position, row_keep keep) {
    const prefix_node *end = r->end;
    pass_row_add(s, end->tokens[position - end->start], position, end->table);
    s->pass.rows[s->pass.nrows - 1].keep = keep;
    s->prefill_rows++;
    schedule_computed(s, r, 1);
}

/* ---- blocks from the store ------------------------------------------------------------------- */

/* Limits of reading ahead. */
enum {
    AHEAD_BLOCKS = 128, /* blocks that the store is asked for in one call of read_ahead */
    AHEAD_NODES = 512,  /* nodes that a walk visits */
    AHEAD_NODE = 32     /* blocks of the same node */
};

/* Returns the next node of the walk. Skips the nodes below `node` if no request waits there. */
static prefix_node *walk_next(const prefix_node *node) {
    return prefix_next(node, node->waiting > 0);
}

/* Returns the first node at or below `node` that has a request of its own. Requires node->waiting >
 * 0. */
static prefix_node *first_waiting(prefix_node *node) {
    while (node->first == NULL) {
        node = node->first_child;
        while (node->waiting == 0)
            node = node->next;
    }
    return node;
}

/* Makes the loader read the node's leading blocks, up to the first that the store does not have.
 * Returns how often the store was asked. */
static int node_prefetch(llm_session *s, prefix_node *node) {
    const llm_kv_store *store = &s->options.store;
    prefix_make_keys(node, s->engine->info.fingerprint);
    int most = BASE_MIN(prefix_full_blocks(node), (int)AHEAD_NODE);
    node->nloads = 0;
    node->prefetched = true;
    while (node->nloads < most) {
        llm_kv_id id;
        session_kv_id(s, node, node->nloads, &id);
        if (!store->prefetch(store->ctx, &id))
            return node->nloads + 1;
        uint64_t number = loader_ask(s->loader, &id);
        node->load_from = node->nloads++ == 0 ? number : node->load_from;
    }
    return most;
}

void schedule_prefetch(llm_session *s, prefix_node *node) {
    if (node->parent == NULL || node->table != NULL || node->prefetched)
        return;
    schedule_prefetch(s, node->parent);
    if (!node->is_private && loader_room(s->loader) >= AHEAD_NODE)
        node_prefetch(s, node);
}

/* Makes the loader read the blocks of the next requests while this pass runs. */
static void read_ahead(llm_session *s) {
    if (s->loader == NULL || !session_store_pays(s))
        return;
    prefix_node *node = s->cursor;
    for (int blocks = 0, seen = 0; node != NULL && blocks < AHEAD_BLOCKS && seen < AHEAD_NODES;
         seen++, node = walk_next(node)) {
        if (node->first != NULL && node->first->blend != NULL && !node->prefetched)
            blend_prefetch(s, node->first);
        if (node->waiting == 0 || node->prefetched || node->table != NULL || node->is_private ||
            node->parent == NULL)
            continue;
        if (loader_room(s->loader) < AHEAD_NODE)
            return;
        blocks += node_prefetch(s, node);
    }
}

static void predict_blocks(llm_session *s, const prefix_node *node, int from, int most) {
    for (int b = from; b < node->end_block && s->pass.nnext < most; b++)
        ARRAY_PUSH(s->pass.next, s->pass.nnext, s->next_cap, node->table[b]);
}

/* Lists the blocks of the next prompts in pass.next, up to the number that the device holds beside
 * the blocks of live requests. If KV may be in host memory, the backend fetches the listed blocks
 * early. */
static void predict_next_blocks(llm_session *s) {
    if (s->options.reuse != LLM_REUSE_TREE || s->device_blocks == s->tree.nblocks)
        return;
    int most = BASE_MAX(s->device_blocks - s->tree.used_blocks, 0);
    prefix_node *node = s->cursor;
    /* start where next_in_tree will start */
    while (node != NULL && node->waiting == 0)
        node = node->parent;
    prefix_node *above = node;
    while (above != NULL && above->table == NULL)
        above = above->parent;
    if (above != NULL)
        predict_blocks(s, above, 0, most);
    for (int seen = 0; node != NULL && seen < AHEAD_NODES; seen++, node = walk_next(node))
        if (node->waiting > 0 && node->table != NULL && node != above)
            predict_blocks(s, node, node->first_block, most);
}

/* Whether the loader has read all blocks of the node's path that it was asked for. */
static bool path_ready(llm_session *s, const prefix_node *node) {
    for (; node->parent != NULL && node->table == NULL; node = node->parent) {
        for (int i = 0; i < node->nloads; i++) {
            load_state state =
                loader_status(s->loader, node->load_from + (uint64_t)i, node->keys[i]);
            if (state == LOAD_COMING || state == LOAD_READING)
                return false;
        }
    }
    return true;
}

/* Returns the next node that has a request and whose path is ready; NULL: none within
 * AHEAD_NODES. */
static prefix_node *node_ready(llm_session *s, prefix_node *node) {
    for (int seen = 0; node != NULL && seen < AHEAD_NODES; seen++, node = walk_next(node))
        if (node->first != NULL && (node->prefetched || node->table != NULL) && path_ready(s, node))
            return node;
    return NULL;
}

/* Loads the node's i-th block: from the loader, or from the store if the loader has not read it.
 * false: the store does not have the block. */
static bool load_block(llm_session *s, prefix_node *node, int i) {
    const llm_kv_store *store = &s->options.store;
    int32_t block = node->table[node->first_block + i];
    load_state state = i < node->nloads ? loader_take(s->loader, node->load_from + (uint64_t)i,
                                                      node->keys[i], block)
                                        : LOAD_UNKNOWN;
    if (state != LOAD_UNKNOWN)
        return state == LOAD_HERE;
    llm_kv_id id;
    session_kv_id(s, node, i, &id);
    double start = clock_ms();
    if (!store->get(store->ctx, &id, s->block_bytes, s->block_size))
        return false;
    s->read_ms += clock_ms() - start;
    s->reads++;
    s->engine->backend->kv_write(s->engine, s->work, block, s->block_bytes);
    return true;
}

/* Loads the leading full blocks of a node that has just become resident. Returns the number of the
 * node's tokens whose KV these blocks hold. */
static int load_blocks(llm_session *s, prefix_node *node) {
    int loaded = 0;
    if (s->options.store.get == NULL || !s->runs_model || node->is_private ||
        (node->nloads == 0 && !session_store_pays(s)))
        return 0;
    double start = clock_ms();
    prefix_make_keys(node, s->engine->info.fingerprint);
    int full = prefix_full_blocks(node);
    while (loaded < full && load_block(s, node, loaded))
        loaded++;
    /* blocks after a missing block cannot be used */
    if (node->nloads > loaded)
        loader_drop(s->loader, node->load_from + (uint64_t)loaded, node->nloads - loaded);
    node->nloads = 0;
    node->loaded_blocks = node->stored_blocks = loaded;
    s->figures.store_ms += clock_ms() - start;
    return loaded == 0 ? 0 : (node->first_block + loaded) * LLM_BLOCK_TOKENS - node->start;
}

/* ---- placing --------------------------------------------------------------------------------- */

/* Makes a node resident, loads those of its blocks that the store has, and schedules a copy of the
 * part of its first block that it shares with its parent. The node gets room for `extra` more
 * tokens. false: there are not enough blocks. */
static bool node_enter(llm_session *s, request *r, prefix_node *node, int extra) {
    if (!prefix_make_resident(&s->tree, node, extra))
        return false;
    node->computed = load_blocks(s, node);
    r->from_disk += node->computed;
    s->figures.reused_disk += (uint64_t)node->computed;
    int shared = node->start % LLM_BLOCK_TOKENS;
    if (shared != 0 && node->loaded_blocks == 0) {
        pass_copy copy = {.from = node->parent->table[node->first_block],
                          .to = node->table[node->first_block],
                          .tokens = shared,
                          .after_moves = r->blend != NULL && node->is_private && node != r->end};
        ARRAY_PUSH(s->pass.copies, s->pass.ncopies, s->copies_cap, copy);
    }
    return true;
}

/* Adds rows for the node's tokens that have no KV yet, which belong to the prompt or to literals.
 * false: the pass is full before the end of the node. */
static bool node_place(llm_session *s, request *r, prefix_node *node, bool prompt) {
    int n = BASE_MIN(node->count - node->computed, BASE_MAX(schedule_rows_left(s), 0));
    for (int i = 0; i < n; i++) {
        int at = node->computed + i;
        pass_row_add(s, node->tokens[at], node->start + at, node->table);
    }
    node->computed += n;
    s->prefill_rows += n;
    if (prompt)
        schedule_computed(s, r, n);
    else
        s->figures.choice_tokens += (uint64_t)n;
    if (n > 0 && node->computed == node->count)
        ARRAY_PUSH(s->finished_nodes, s->nfinished, s->finished_cap, node);
    return node->computed == node->count;
}

placing schedule_path(llm_session *s, request *r, prefix_node *node) {
    if (node->parent == NULL)
        return PLACED;
    placing above = schedule_path(s, r, node->parent);
    if (above != PLACED)
        return above;
    if (node->table == NULL && !node_enter(s, r, node, 0))
        return NO_BLOCKS;
    if (s->options.reuse == LLM_REUSE_TREE)
        prefix_touch(&s->tree, node);
    return node_place(s, r, node, true) ? PLACED : PASS_FULL;
}

/* Ensures that the pass's last row is the prompt's last token. A token that has its KV already runs
 * again, for its logits. */
static void last_row_ensure(llm_session *s, request *r) {
    const pass *p = &s->pass;
    const prefix_node *end = r->end;
    int position = end->start + end->count - 1;
    if (p->nrows > 0 && p->rows[p->nrows - 1].table == end->table &&
        p->rows[p->nrows - 1].position == position)
        return;
    pass_row_add(s, end->tokens[end->count - 1], position, end->table);
    s->prefill_rows++;
    schedule_computed(s, r, 1);
}

/* Asks for the logits of the next token of free text. Greedy: only the largest. A draw: the largest
 * few if the backend can add up the weights of all tokens, else all. */
static void text_want(llm_session *s, request *r) {
    const llm_sampling *q = &r->sampling;
    int vocab = s->engine->info.vocab, most = BASE_MIN((int)PASS_DRAW, vocab), top = 1;
    if (q->temperature > 0) {
        bool few = s->engine->backend->draws && !r->wants_all && q->top_k <= most;
        top = !few ? 0 : q->top_k > 0 ? q->top_k : most;
    }
    pass_want_add(s, r, WANT_NEXT_TOKEN, NULL, vocab, top);
    s->pass.wants[s->pass.nwants - 1].temperature = q->temperature;
    r->wants_all = false;
}

static void prompt_wants(llm_session *s, request *r) {
    int vocab = s->engine->info.vocab;
    if (r->raw != NULL) {
        pass_want_add(s, r, WANT_RAW, NULL, vocab, 0);
        return;
    }
    if (s->options.keep_logits && s->runs_model)
        pass_want_add(s, r, WANT_TOP, NULL, vocab, LLM_TOP_LOGITS);
    const llm_guide *g = r->guide;
    if (g == NULL || !s->runs_model) {
        text_want(s, r);
    } else if (g->kind != LLM_GUIDE_CHOICE) {
        pass_want_add(s, r, WANT_NEXT_TOKEN, g->states[r->state].ids, guide_allowed(g, r->state, 0),
                      0);
    } else {
        if (g->nbranches > 0)
            pass_want_add(s, r, 0, g->branches[0].ids, g->branches[0].count, 0); /* the root */
    }
}

/* Adds rows for the guide's segments, each a private node below the prompt or its parent segment,
 * and wants for the branches at their ends. */
static placing segments_place(llm_session *s, request *r) {
    const llm_guide *g = r->guide;
    while (r->segments != NULL && s->runs_model && r->segments_placed < g->nsegments) {
        int i = r->segments_placed;
        const guide_segment *seg = &g->segments[i];
        if (r->segments[i] == NULL) {
            prefix_node *parent = seg->parent >= 0 ? r->segments[seg->parent] : r->end;
            r->segments[i] =
                prefix_add_private(&s->tree, parent, seg->tokens, seg->count, seg->count);
            r->segments[i]->users = 1;
        }
        prefix_node *node = r->segments[i];
        if (node->table == NULL && !node_enter(s, r, node, 0))
            return NO_BLOCKS;
        if (!node_place(s, r, node, false))
            return PASS_FULL;
        const guide_branch *b = &g->branches[seg->branch];
        pass_want_add(s, r, seg->branch, b->ids, b->count, 0);
        r->segments_placed++;
    }
    return PLACED;
}

/* ---- searches -------------------------------------------------------------------------------- */

/* Returns the number of computed tokens of the node that begin the path. */
static int tokens_shared(const prefix_node *node, const llm_token *path, int count) {
    int n = 0;
    while (n < node->computed && n < count && node->tokens[n] == path[n])
        n++;
    return n;
}

/* Puts the tokens that lead to the taken branch into the tail; they overwrite those of the branch
 * before it, from the first that differs. */
static void taken_enter(llm_session *s, request *r) {
    prefix_node *tail = r->tail;
    ARRAY_RESERVE(s->scratch, r->guide->longest, s->scratch_cap);
    int count = guide_path(r->guide, r->search->taken.branch, s->scratch);
    tail->computed = tokens_shared(tail, s->scratch, count);
    tail->count = count;
    memcpy(tail->tokens, s->scratch, sizeof *s->scratch * (size_t)count);
}

/* Adds rows for the next branch of a live request's search, and a want for it. */
static void search_place(llm_session *s, request *r) {
    search *x = r->search;
    if (x->taken.branch < 0) {
        if (!search_take(x))
            return;
        taken_enter(s, r);
    }
    if (x->placed || !node_place(s, r, r->tail, false))
        return;
    const guide_branch *b = &r->guide->branches[x->taken.branch];
    pass_want_add(s, r, x->taken.branch, b->ids, b->count, 0);
    x->placed = true;
}

/* Returns the room for tokens after the prompt, in the request's tail. There is none for a CHOICE
 * whose literals are all scored, since its segments have their own nodes. */
static int answer_room(const llm_session *s, const request *r) {
    bool decodes = s->runs_model && r->raw == NULL && (!request_is_choice(r) || r->search != NULL);
    return decodes ? request_answer_tokens(r) : 0;
}

bool schedule_node(llm_session *s, request *r, prefix_node *node) {
    return node->table != NULL || node_enter(s, r, node, 0);
}

int schedule_answer_blocks(const llm_session *s, const request *r) {
    int room = answer_room(s, r), blocks = room > 0 ? room / LLM_BLOCK_TOKENS + 2 : 0;
    for (int i = 0; r->segments != NULL && i < r->guide->nsegments; i++)
        blocks += r->guide->segments[i].count / LLM_BLOCK_TOKENS + 2;
    return blocks;
}

/* Adds rows for the part of the prompt that the store would keep; no answer is computed. */
static placing warm_place(llm_session *s, request *r) {
    placing path = PLACED;
    int chunks = r->blend != NULL ? r->blend->nchunks : 0;
    for (int i = 0; i <= chunks && path == PLACED; i++) {
        prefix_node *node = i < chunks ? r->blend->nodes[i] : r->end;
        while (node->parent != NULL &&
               (node->is_private || (node->fanout < 2 && !s->options.store.keep_all)))
            node = node->parent;
        path = schedule_path(s, r, node);
    }
    r->arrived = path == PLACED;
    return path;
}

static placing prompt_place(llm_session *s, request *r) {
    if (s->options.warm_only && s->runs_model && r->raw == NULL)
        return warm_place(s, r);
    if (!r->arrived && r->branches_left == 0 && request_is_choice(r) && s->runs_model &&
        !s->options.keep_logits)
        return PLACED; /* the guide has only one literal: no logits are needed */
    if (r->segments_placed == 0 && !r->arrived) {
        placing path = r->blend != NULL ? blend_place(s, r) : schedule_path(s, r, r->end);
        if (path != PLACED)
            return path;
        int room = answer_room(s, r);
        if (room > 0 && r->tail == NULL) {
            r->tail = prefix_add_private(&s->tree, r->end, NULL, 0, room);
            r->tail->users = 1;
        }
        if (room > 0 && r->tail->table == NULL && !node_enter(s, r, r->tail, room))
            return NO_BLOCKS;
        last_row_ensure(s, r);
        prompt_wants(s, r);
        r->arrived = true;
    }
    return segments_place(s, r);
}

/* Adds the row of the last decoded token, or of the prompt's last token if the first draw is
 * repeated with all logits. */
static void token_place(llm_session *s, request *r) {
    const prefix_node *last = r->tail->count > 0 ? r->tail : r->end;
    int at = last->count - 1;
    pass_row_add(s, last->tokens[at], last->start + at, last->table);
    r->tail->computed = r->tail->count;
    s->decode_rows++;
    if (r->guide == NULL) {
        text_want(s, r);
    } else {
        const llm_guide *g = r->guide;
        pass_want_add(s, r, WANT_NEXT_TOKEN, g->states[r->state].ids,
                      guide_allowed(g, r->state, r->digits), 0);
    }
}

/* ---- release --------------------------------------------------------------------------------- */

static void answer_nodes_release(llm_session *s, request *r) {
    for (int i = r->segments != NULL ? r->guide->nsegments : 0; i-- > 0;)
        if (r->segments[i] != NULL)
            schedule_segment_done(s, r, i);
    if (r->tail != NULL) {
        prefix_remove_private(&s->tree, r->tail);
        r->tail = NULL;
    }
}

void schedule_segment_done(llm_session *s, request *r, int segment) {
    prefix_remove_private(&s->tree, r->segments[segment]);
    r->segments[segment] = NULL;
}

/* ---- admission ------------------------------------------------------------------------------- */

static request *node_take(prefix_node *node) {
    request *r = node->first;
    node->first = r->next;
    if (node->first == NULL)
        node->last = NULL;
    r->next = NULL;
    return r;
}

request *schedule_take_waiting(llm_session *s) {
    prefix_node *root = &s->tree.root;
    return root->waiting > 0 ? node_take(first_waiting(root)) : NULL;
}

/* Returns the node to continue with: `node` if the loader has read its KV, else the next ready
 * node. If no node is ready: NULL if the pass is a quarter full, so that the pass runs first;
 * otherwise `node`, for whose KV the caller then waits. */
static prefix_node *node_or_ready_one(llm_session *s, prefix_node *node) {
    if (node->table == NULL && !node->prefetched)
        read_ahead(s);
    if (path_ready(s, node))
        return node;
    prefix_node *ready = node_ready(s, node);
    bool busy = s->pass.nrows >= s->options.pass_tokens / 4;
    s->figures.yielded += ready != NULL || busy;
    return ready != NULL || busy ? ready : node;
}

/* Takes the next request of the depth-first walk. NULL: there is none, or the pass should run
 * first. */
static request *next_in_tree(llm_session *s) {
    prefix_node *node = s->cursor;
    while (node != NULL && node->waiting == 0)
        node = node->parent;
    if (node == NULL)
        return NULL;
    s->cursor = node = first_waiting(node);
    if (s->loader != NULL && (node = node_or_ready_one(s, node)) == NULL)
        return NULL;
    s->cursor = node;
    return node_take(node);
}

int schedule_flatten(llm_session *s, const request *r) {
    ARRAY_RESERVE(s->scratch, r->prompt_tokens + 1, s->scratch_cap);
    int n = 0;
    if (r->raw != NULL) {
        memcpy(s->scratch, r->raw, sizeof(llm_token) * (size_t)r->prompt_tokens);
        return r->prompt_tokens;
    }
    size_t spans = 0;
    for (int i = 0; i < r->nspans; i++)
        spans += r->spans[i]->count;
    int prefix = r->guide != NULL ? r->guide->nprefix : 0;
    if ((size_t)r->prompt_tokens > spans + (size_t)prefix)
        s->scratch[n++] = s->engine->bos;
    for (int i = 0; i < r->nspans; i++) {
        memcpy(s->scratch + n, r->spans[i]->tokens, sizeof(llm_token) * r->spans[i]->count);
        n += (int)r->spans[i]->count;
    }
    if (prefix > 0) {
        memcpy(s->scratch + n, r->guide->prefix, sizeof(llm_token) * (size_t)prefix);
        n += prefix;
    }
    assert(n == r->prompt_tokens);
    return n;
}

static uint64_t request_seed(const llm_session *s, const request *r) {
    return hash64(s->scratch, sizeof(llm_token) * (size_t)r->prompt_tokens, r->sampling.seed);
}

/* Moves a request from the queue into the tree. With LLM_REUSE_NONE, its prompt becomes a private
 * node, which is not shared. */
static request *request_enter(llm_session *s) {
    request *r = list_pop(&s->queue);
    int n = schedule_flatten(s, r);
    r->sample_seed = request_seed(s, r);
    if (r->blend != NULL)
        r->end = blend_enter(s, r, n);
    else
        r->end = s->options.reuse == LLM_REUSE_NONE
                     ? prefix_add_private(&s->tree, &s->tree.root, s->scratch, n, n)
                     : prefix_insert(&s->tree, s->scratch, n);
    prefix_count(&s->tree, r->end, 1, 1, 0);
    s->in_window++;
    return r;
}

static bool window_open(const llm_session *s) {
    return s->queue.count > 0 && (s->options.window == 0 || s->in_window < s->options.window);
}

/* Fills the window: each request waits in the list of the node where its prompt ends. */
static void requests_enter(llm_session *s) {
    while (window_open(s)) {
        request *r = request_enter(s);
        r->next = NULL;
        *(r->end->last != NULL ? &r->end->last->next : &r->end->first) = r;
        r->end->last = r;
    }
}

static request *next_request(llm_session *s) {
    if (s->options.reuse != LLM_REUSE_TREE)
        return window_open(s) ? request_enter(s) : NULL;
    requests_enter(s);
    return next_in_tree(s);
}

static void live_add(llm_session *s, request *r) {
    ARRAY_PUSH(s->live, s->nlive, s->live_cap, r);
    r->live = true;
}

/* Restarts a prompt that does not fit because each node on its path wastes part of a block. The
 * prompt becomes one private node, and all unused nodes are evicted. */
static void request_isolate(llm_session *s, request *r) {
    answer_nodes_release(s, r);
    prefix_count(&s->tree, r->end, -1, 0, -1);
    prefix_prune(&s->tree, r->end, true, true);
    int n = schedule_flatten(s, r);
    r->end = prefix_add_private(&s->tree, &s->tree.root, s->scratch, n, n);
    prefix_count(&s->tree, r->end, 1, 0, 1);
    request_begin(r);
    prefix_evict_unused(&s->tree);
}

bool schedule_fill_one(llm_session *s, request *r) {
    return prompt_place(s, r) == PLACED;
}

bool schedule_fill(llm_session *s) {
    schedule_reset_pass(s);
    for (int i = 0; i < s->nlive; i++) {
        request *r = s->live[i];
        if (r == s->current)
            continue;
        if (r->search != NULL)
            search_place(s, r);
        else if (r->tail != NULL && (r->tail->count > 0 || r->wants_all))
            token_place(s, r);
    }
    if (s->loader != NULL) {
        requests_enter(s);
        read_ahead(s);
    }
    while (s->chosen.count > 0 && prompt_place(s, s->chosen.first) == PLACED)
        list_pop(&s->chosen);
    bool isolated = false;
    while (schedule_rows_left(s) > 0) {
        if (s->current == NULL) {
            if (s->nlive >= s->options.max_batch || (s->current = next_request(s)) == NULL)
                break;
            prefix_count(&s->tree, s->current->end, 0, -1, 1);
            request_begin(s->current);
            if (s->current->blend != NULL)
                blend_begin(s, s->current);
            live_add(s, s->current);
        }
        placing done = prompt_place(s, s->current);
        if (done == NO_BLOCKS && s->nlive == 1 && s->pass.nrows == 0 && !isolated &&
            s->current->blend == NULL) {
            request_isolate(s, s->current);
            isolated = true;
            continue;
        }
        if (done == PROBED)
            list_push(&s->probing, s->current);
        else if (done != PLACED)
            break;
        s->current = NULL;
    }
    schedule_finish_pass(s);
    read_ahead(s);
    predict_next_blocks(s);
    /* live requests without a row get their answers when this pass's logits are taken */
    return s->pass.nrows > 0 || s->nlive > 1 || s->current == NULL;
}

void schedule_release(llm_session *s, request *r) {
    bool keep_shared = s->options.reuse == LLM_REUSE_TREE,
         keep_all = s->options.reuse == LLM_REUSE_FIFO;
    answer_nodes_release(s, r);
    request_end(r);
    if (r->blend != NULL)
        blend_release(s, r);
    if (r->end != NULL) {
        prefix_count(&s->tree, r->end, -1, r->live ? 0 : -1, r->live ? -1 : 0);
        r->end->keep |= r->keep && keep_shared;
        prefix_prune(&s->tree, r->end, keep_shared, keep_all);
        r->end = NULL;
        s->in_window -= r->raw == NULL;
    }
    r->live = false;
}
