/*
 * prefix.c - the prefix tree of prefix_int.h: insertion, splitting, residency, eviction.
 *
 * Invariant: a resident node's ancestors are resident, and a block's reference count is the number
 * of nodes that own it. schedule.c decides what is computed, and when; the backend owns the bytes
 * of the blocks.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "prefix_int.h"

static int block_of(int position) {
    return position / LLM_BLOCK_TOKENS;
}

static int blocks_for(int tokens) {
    return (tokens + LLM_BLOCK_TOKENS - 1) / LLM_BLOCK_TOKENS;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static uint64_t child_hash(const prefix_node *parent, llm_token token) {
    return hash_mix((uint64_t)(uintptr_t)parent, (uint64_t)(uint32_t)token);
}

static prefix_node *child_find(const prefix_tree *t, const prefix_node *parent, llm_token token) {
    uint64_t hash = child_hash(parent, token);
    for (hash_slot *s = hash_index_first(&t->index, hash); s; s = hash_index_next(&t->index, s)) {
        prefix_node *node = t->nodes[s->item];
        if (node->parent == parent && node->tokens[0] == token)
            return node;
    }
    return NULL;
}

static hash_slot *node_slot(const prefix_tree *t, const prefix_node *node) {
    return hash_index_slot(&t->index, child_hash(node->parent, node->tokens[0]), node->number);
}

static void index_add(prefix_tree *t, prefix_node *node) {
    node->number = t->nnodes;
    hash_index_add(&t->index, child_hash(node->parent, node->tokens[0]), node->number);
    ARRAY_PUSH(t->nodes, t->nnodes, t->nodes_cap, node);
}

/* Removes a node from the index; the last node takes over its number. */
static void index_remove(prefix_tree *t, prefix_node *node) {
    prefix_node *last = t->nodes[--t->nnodes];
    hash_index_remove(&t->index, node_slot(t, node));
    if (last != node) {
        node_slot(t, last)->item = node->number;
        last->number = node->number;
        t->nodes[last->number] = last;
    }
}

/* ---- links ----------------------------------------------------------------------------------- */

static void child_append(prefix_node *parent, prefix_node *node) {
    node->parent = parent;
    node->prev = parent->last_child;
    node->next = NULL;
    *(parent->last_child != NULL ? &parent->last_child->next : &parent->first_child) = node;
    parent->last_child = node;
}

static void child_remove(prefix_node *node) {
    prefix_node *parent = node->parent;
    *(node->prev != NULL ? &node->prev->next : &parent->first_child) = node->next;
    *(node->next != NULL ? &node->next->prev : &parent->last_child) = node->prev;
}

/* Puts `upper` in the place of `node` among its siblings. */
static void child_replace(prefix_node *node, prefix_node *upper) {
    upper->parent = node->parent;
    upper->prev = node->prev;
    upper->next = node->next;
    *(upper->prev != NULL ? &upper->prev->next : &upper->parent->first_child) = upper;
    *(upper->next != NULL ? &upper->next->prev : &upper->parent->last_child) = upper;
}

static int blocks_owned(const prefix_node *node) {
    return node->table != NULL ? node->end_block - node->first_block : 0;
}

/* ---- eviction order -------------------------------------------------------------------------- */

/* Returns the node's score. retention_score gets an age that is counted from clock 0, not from now,
 * so a score changes only when its node is used or wanted. */
static double node_score(const prefix_tree *t, const prefix_node *node) {
    if (t->first_in_first_out)
        return (double)node->used;
    double blocks = BASE_MAX(blocks_owned(node), 1), stored = node->stored_blocks;
    double cost = (stored * t->read_cost + (blocks - stored)) / blocks;
    return retention_score(prefix_node_wanted(node), cost, -(double)node->used, t->nblocks);
}

static bool goes_before(prefix_tree *t, const prefix_node *a, const prefix_node *b) {
    (void)t;
    return a->score != b->score ? a->score < b->score : a->used < b->used;
}

#define NODE_MOVED(t, node, at) ((node)->heap_at = (int)(at) + 1)
typedef prefix_node *node_pointer;
HEAP_DEFINE(heap, node_pointer, prefix_tree *, goes_before, NODE_MOVED);

/* Puts the node into the heap, takes it out or moves it within the heap, after a change of the
 * node's blocks, users, children, last use, or how often it is wanted. */
static void node_update(prefix_tree *t, prefix_node *node) {
    bool evictable = node->table != NULL && node->users == 0 && node->resident_children == 0;
    if (!evictable && node->heap_at > 0)
        heap_remove(t, t->heap, &t->nheap, (size_t)node->heap_at - 1);
    if (!evictable) {
        node->heap_at = 0;
        return;
    }
    node->score = node_score(t, node);
    if (node->heap_at > 0) {
        heap_update(t, t->heap, t->nheap, (size_t)node->heap_at - 1, node);
    } else {
        ARRAY_RESERVE(t->heap, t->nheap + 1, t->heap_cap);
        heap_push(t, t->heap, &t->nheap, node);
    }
}

void prefix_touch(prefix_tree *t, prefix_node *node) {
    if (node->table == NULL)
        return;
    t->clock += (uint64_t)BASE_MAX(blocks_owned(node), 1);
    node->used = t->clock;
    node_update(t, node);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static prefix_node *node_new(const llm_token *tokens, int count, int capacity, int start) {
    prefix_node *node = mem_zalloc(sizeof *node);
    node->tokens = mem_alloc(sizeof(llm_token) * (size_t)BASE_MAX(capacity, 1));
    if (count > 0)
        memcpy(node->tokens, tokens, sizeof(llm_token) * (size_t)count);
    node->count = count;
    node->start = start;
    return node;
}

static void node_free(prefix_node *node) {
    free(node->tokens);
    free(node->table);
    free(node->keys);
    free(node);
}

/* Both halves of a resident node keep their blocks; a block that is cut in two belongs to both
 * halves. */
static void split_blocks(prefix_tree *t, prefix_node *upper, prefix_node *lower) {
    int cut = lower->start;
    upper->first_block = lower->first_block;
    upper->end_block = blocks_for(cut);
    size_t bytes = sizeof(int32_t) * (size_t)BASE_MAX(upper->end_block, 1);
    upper->table = mem_alloc(bytes);
    memcpy(upper->table, lower->table, sizeof(int32_t) * (size_t)upper->end_block);
    lower->first_block = block_of(cut);
    if (cut % LLM_BLOCK_TOKENS != 0)
        t->refs[lower->table[lower->first_block]]++;
    for (int b = upper->first_block; b < upper->end_block; b++) {
        /* the topmost owner of the first block may be a node above both */
        prefix_node **owner = &t->owner[upper->table[b]];
        *owner = *owner == lower ? upper : *owner;
    }
    t->used_blocks += upper->users > 0 && cut % LLM_BLOCK_TOKENS != 0;
    upper->stored_blocks = BASE_MIN(lower->stored_blocks, lower->first_block - upper->first_block);
    lower->stored_blocks -= upper->stored_blocks;
    upper->resident_children = 1;
    upper->used = lower->used;
    node_update(t, lower);
}

static prefix_node *node_split(prefix_tree *t, prefix_node *node, int at) {
    prefix_node *upper = node_new(node->tokens, at, at, node->start);
    child_replace(node, upper);
    /* `upper` takes the node's slot in the index, since parent and first token are the same */
    upper->number = node->number;
    t->nodes[upper->number] = upper;
    upper->pending = node->pending;
    upper->waiting = node->waiting;
    upper->users = node->users;
    upper->fanout = node->fanout;
    upper->keep = node->keep;
    upper->computed = BASE_MIN(node->computed, at);

    node->count -= at;
    node->start += at;
    node->computed -= upper->computed;
    memmove(node->tokens, node->tokens + at, sizeof(llm_token) * (size_t)node->count);
    free(node->keys);
    node->keys = NULL;
    node->loaded_blocks = node->nloads = 0;
    node->prefetched = false;
    child_append(upper, node);
    index_add(t, node);
    if (node->table != NULL)
        split_blocks(t, upper, node);
    return upper;
}

prefix_node *prefix_insert(prefix_tree *t, const llm_token *tokens, int count) {
    prefix_node *at = &t->root;
    int done = 0;
    while (done < count) {
        prefix_node *child = child_find(t, at, tokens[done]);
        if (child == NULL) {
            child = node_new(tokens + done, count - done, count - done, done);
            child_append(at, child);
            index_add(t, child);
            return child;
        }
        int same = 1, limit = BASE_MIN(child->count, count - done);
        while (same < limit && child->tokens[same] == tokens[done + same])
            same++;
        at = same < child->count ? node_split(t, child, same) : child;
        done += same;
    }
    return at;
}

prefix_node *prefix_add_private(prefix_tree *t, prefix_node *parent, const llm_token *tokens,
                                int count, int capacity) {
    (void)t;
    prefix_node *node = node_new(tokens, count, capacity, parent->start + parent->count);
    node->is_private = true;
    child_append(parent, node);
    return node;
}

static void node_count(prefix_tree *t, prefix_node *node, int pending, int waiting, int users) {
    bool was_used = node->users > 0, is_used = node->users + users > 0;
    t->used_blocks += (is_used - was_used) * blocks_owned(node);
    node->pending += pending;
    node->waiting += waiting;
    node->users += users;
    node->fanout += pending > 0;
    node_update(t, node);
}

void prefix_count(prefix_tree *t, prefix_node *node, int pending, int waiting, int users) {
    for (; node != NULL; node = node->parent)
        node_count(t, node, pending, waiting, users);
}

void prefix_count_from(prefix_tree *t, prefix_node *node, int from, int pending, int users) {
    for (; node->parent != NULL && node->start >= from; node = node->parent)
        node_count(t, node, pending, 0, users);
}

static void node_remove(prefix_tree *t, prefix_node *node) {
    assert(node->first_child == NULL && node->table == NULL);
    if (*t->cursor == node)
        *t->cursor = node->parent;
    if (!node->is_private)
        index_remove(t, node);
    child_remove(node);
    node_free(node);
}

/* ---- residency ------------------------------------------------------------------------------- */

static void block_release(prefix_tree *t, int32_t block) {
    if (--t->refs[block] == 0)
        t->free_blocks[t->nfree++] = block;
}

int prefix_wanted(const void *tree, int32_t block) {
    const prefix_tree *t = tree;
    return t->refs[block] > 0 ? prefix_node_wanted(t->owner[block]) : -1;
}

uint32_t prefix_life(const void *tree, int32_t block) {
    const prefix_tree *t = tree;
    return t->lives[block];
}

void prefix_evict(prefix_tree *t, prefix_node *node) {
    assert(node->resident_children == 0 && node->table != NULL && node->users == 0);
    for (int b = node->first_block; b < node->end_block; b++)
        block_release(t, node->table[b]);
    free(node->table);
    node->table = NULL;
    node->computed = 0;
    node->loaded_blocks = node->stored_blocks = 0;
    node->prefetched = false;
    node->parent->resident_children--;
    node_update(t, node);
    node_update(t, node->parent);
}

static void evict_first(prefix_tree *t) {
    prefix_node *node = t->heap[0];
    prefix_evict(t, node);
    prefix_prune(t, node, true, true);
}

bool prefix_make_resident(prefix_tree *t, prefix_node *node, int extra) {
    int first = block_of(node->start);
    int end = blocks_for(node->start + node->count + extra);
    int used = t->used_blocks + end - first;
    if (node->users > 0 &&
        (used > t->most_used || (t->reserved > 0 && used + t->reserved > t->nblocks)))
        return false;
    while (t->nfree < end - first) {
        if (t->nheap == 0)
            return false;
        t->evicted += (uint64_t)blocks_owned(t->heap[0]);
        evict_first(t);
    }
    node->table = mem_alloc(sizeof(int32_t) * (size_t)BASE_MAX(end, 1));
    if (first > 0)
        memcpy(node->table, node->parent->table, sizeof(int32_t) * (size_t)first);
    for (int b = first; b < end; b++) {
        node->table[b] = t->free_blocks[--t->nfree];
        t->refs[node->table[b]] = 1;
        t->lives[node->table[b]]++;
        t->owner[node->table[b]] = node;
    }
    t->used_blocks += node->users > 0 ? end - first : 0;
    node->first_block = first;
    node->end_block = end;
    node->computed = 0;
    node->parent->resident_children++;
    node_update(t, node->parent);
    prefix_touch(t, node);
    return true;
}

void prefix_prune(prefix_tree *t, prefix_node *node, bool keep_shared, bool keep_all) {
    while (node != &t->root && node->first_child == NULL && node->pending == 0 &&
           node->users == 0) {
        bool kept = keep_all || node->keep || (keep_shared && node->fanout > 1);
        if (node->table != NULL && kept && !node->is_private)
            return;
        prefix_node *parent = node->parent;
        if (node->table != NULL)
            prefix_evict(t, node);
        node_remove(t, node);
        node = parent;
    }
}

void prefix_remove_private(prefix_tree *t, prefix_node *node) {
    t->used_blocks -= node->users > 0 ? blocks_owned(node) : 0;
    node->users = 0;
    if (node->table != NULL)
        prefix_evict(t, node);
    node_remove(t, node);
}

void prefix_evict_unused(prefix_tree *t) {
    while (t->nheap > 0)
        evict_first(t);
}

/* ---- reading --------------------------------------------------------------------------------- */

prefix_node *prefix_next(const prefix_node *node, bool below) {
    if (below && node->first_child != NULL)
        return node->first_child;
    while (node != NULL && node->next == NULL)
        node = node->parent;
    return node != NULL ? node->next : NULL;
}

void prefix_tokens(const prefix_node *node, int from, int count, llm_token *out) {
    for (; node != NULL && count > 0; node = node->parent) {
        int end = from + count;
        int low = BASE_MAX(from, node->start), high = BASE_MIN(end, node->start + node->count);
        if (low < high) {
            memcpy(out + (low - from), node->tokens + (low - node->start),
                   sizeof(llm_token) * (size_t)(high - low));
            count = low - from;
        }
    }
}

int prefix_full_blocks(const prefix_node *node) {
    return BASE_MAX((node->start + node->count) / LLM_BLOCK_TOKENS - block_of(node->start), 0);
}

hash128 prefix_key(const prefix_node *node, int b, hash128 seed) {
    while (node->parent != NULL && b < block_of(node->start))
        node = node->parent;
    return b < 0 || node->keys == NULL ? seed : node->keys[b - block_of(node->start)];
}

void prefix_make_keys(prefix_node *node, hash128 seed) {
    if (node->parent == NULL || node->keys != NULL)
        return;
    prefix_make_keys(node->parent, seed);
    int n = prefix_full_blocks(node), first = block_of(node->start);
    node->keys = mem_alloc(sizeof(hash128) * (size_t)BASE_MAX(n, 1));
    for (int i = 0; i < n; i++) {
        struct {
            hash128 parent;
            llm_token tokens[LLM_BLOCK_TOKENS];
        } link;
        link.parent = i > 0 ? node->keys[i - 1] : prefix_key(node->parent, first - 1, seed);
        prefix_tokens(node, (first + i) * LLM_BLOCK_TOKENS, LLM_BLOCK_TOKENS, link.tokens);
        node->keys[i] = hash_128(&link, sizeof link);
    }
}

/* ---- the tree -------------------------------------------------------------------------------- */

void prefix_init(prefix_tree *t, int blocks, prefix_node **cursor) {
    *t = (prefix_tree){.nblocks = blocks, .cursor = cursor, .most_used = INT32_MAX, .read_cost = 1};
    size_t n = (size_t)BASE_MAX(blocks, 1);
    t->owner = mem_zalloc(sizeof *t->owner * n);
    t->refs = mem_zalloc(sizeof *t->refs * n);
    t->lives = mem_zalloc(sizeof *t->lives * n);
    t->free_blocks = mem_alloc(sizeof *t->free_blocks * n);
    for (int b = blocks; b-- > 0;)
        t->free_blocks[t->nfree++] = b; /* block 0 is allocated first */
}

void prefix_free(prefix_tree *t) {
    prefix_node *node = t->root.first_child;
    while (node != NULL && node != &t->root) {
        if (node->first_child != NULL) {
            node = node->first_child;
            continue;
        }
        prefix_node *next = node->next != NULL ? node->next : node->parent;
        if (node->next == NULL)
            node->parent->first_child = NULL;
        node_free(node);
        node = next;
    }
    free(t->heap);
    hash_index_free(&t->index);
    free(t->nodes);
    free(t->refs);
    free(t->lives);
    free(t->owner);
    free(t->free_blocks);
}
