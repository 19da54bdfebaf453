/*
 * prefix.c - the radix tree of prefix_int.h: insertion, splitting, residency, eviction.
 *
 * Invariant: every resident node's parents are resident, and a block's reference count is the
 * number of nodes that own it. What to compute, and when, is schedule.c's; the blocks' bytes are
 * the backend's.
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

static size_t slot_hash(const prefix_node *parent, llm_token token) {
    return (size_t)hash_mix((uint64_t)(uintptr_t)parent, (uint64_t)(uint32_t)token);
}

static size_t slot_find(const prefix_tree *t, const prefix_node *parent, llm_token token) {
    size_t i = slot_hash(parent, token) & t->mask;
    while (t->slots[i] != NULL &&
           (t->slots[i]->parent != parent || t->slots[i]->tokens[0] != token))
        i = (i + 1) & t->mask;
    return i;
}

static void slots_grow(prefix_tree *t) {
    size_t old = t->mask + 1;
    prefix_node **slots = t->slots;
    t->mask = old * 2 - 1;
    t->slots = mem_zalloc(sizeof *t->slots * old * 2);
    for (size_t i = 0; i < old; i++)
        if (slots[i] != NULL)
            t->slots[slot_find(t, slots[i]->parent, slots[i]->tokens[0])] = slots[i];
    free(slots);
}

static void slot_add(prefix_tree *t, prefix_node *node) {
    if (++t->used * 2 > t->mask)
        slots_grow(t);
    t->slots[slot_find(t, node->parent, node->tokens[0])] = node;
}

static void slot_remove(prefix_tree *t, const prefix_node *node) {
    size_t hole = slot_find(t, node->parent, node->tokens[0]);
    t->slots[hole] = NULL;
    t->used--;
    for (size_t i = (hole + 1) & t->mask; t->slots[i] != NULL; i = (i + 1) & t->mask) {
        prefix_node *moved = t->slots[i];
        t->slots[i] = NULL;
        t->slots[slot_find(t, moved->parent, moved->tokens[0])] = moved;
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

/* `upper` takes the place of `node` among its siblings. */
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

/* ---- what may go ----------------------------------------------------------------------------- */

/* Counted from the clock's beginning, so that a worth holds until the node is used or wanted anew.
 */
static double node_worth(const prefix_tree *t, const prefix_node *node) {
    if (t->first_in_first_out)
        return (double)node->used;
    double blocks = BASE_MAX(blocks_owned(node), 1), stored = node->stored_blocks;
    double saves = (stored * t->read_cost + (blocks - stored)) / blocks;
    return retention_score(prefix_node_wanted(node), saves, -(double)node->used, t->nblocks);
}

static bool goes_before(const prefix_node *a, const prefix_node *b) {
    return a->worth != b->worth ? a->worth < b->worth : a->used < b->used;
}

static void heap_put(prefix_tree *t, int at, prefix_node *node) {
    t->heap[at - 1] = node;
    node->heap_at = at;
}

/* Up or down from `at` to where the node belongs. */
static void heap_settle(prefix_tree *t, int at, prefix_node *node) {
    for (; at > 1 && goes_before(node, t->heap[at / 2 - 1]); at /= 2)
        heap_put(t, at, t->heap[at / 2 - 1]);
    for (int child; (child = 2 * at) <= t->nheap; at = child) {
        child += child < t->nheap && goes_before(t->heap[child], t->heap[child - 1]);
        if (!goes_before(t->heap[child - 1], node))
            break;
        heap_put(t, at, t->heap[child - 1]);
    }
    heap_put(t, at, node);
}

static void heap_remove(prefix_tree *t, prefix_node *node) {
    int at = node->heap_at;
    prefix_node *last = t->heap[--t->nheap];
    node->heap_at = 0;
    if (last != node)
        heap_settle(t, at, last);
}

/* Into the heap, out of it or to another place in it, as users, children and wants have changed. */
static void node_rank(prefix_tree *t, prefix_node *node) {
    if (node->table == NULL || node->users > 0 || node->resident_children > 0) {
        if (node->heap_at > 0)
            heap_remove(t, node);
        return;
    }
    if (node->heap_at == 0) {
        if (t->nheap == t->heap_cap) {
            t->heap_cap = t->heap_cap * 2 + 64;
            t->heap = mem_realloc(t->heap, sizeof(*t->heap) * (size_t)t->heap_cap);
        }
        node->heap_at = ++t->nheap;
    }
    node->worth = node_worth(t, node);
    heap_settle(t, node->heap_at, node);
}

static void node_used(prefix_tree *t, prefix_node *node) {
    t->clock += (uint64_t)BASE_MAX(blocks_owned(node), 1);
    node->used = t->clock;
    node_rank(t, node);
}

void prefix_touch(prefix_tree *t, prefix_node *node) {
    if (node->table != NULL)
        node_used(t, node);
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

/* Both halves of a resident node keep its blocks; the one that the cut falls into belongs to both.
 */
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
        /* the first may be shared with a node above */
        prefix_node **owner = &t->owner[upper->table[b]];
        *owner = *owner == lower ? upper : *owner;
    }
    t->used_blocks += upper->users > 0 && cut % LLM_BLOCK_TOKENS != 0;
    upper->stored_blocks = BASE_MIN(lower->stored_blocks, lower->first_block - upper->first_block);
    lower->stored_blocks -= upper->stored_blocks;
    upper->resident_children = 1;
    upper->used = lower->used;
    node_rank(t, lower);
}

static prefix_node *node_split(prefix_tree *t, prefix_node *node, int at) {
    prefix_node *upper = node_new(node->tokens, at, at, node->start);
    size_t slot = slot_find(t, node->parent, node->tokens[0]);
    child_replace(node, upper);
    t->slots[slot] = upper;
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
    node->loaded_blocks = node->nasked = 0;
    node->looked_ahead = false;
    child_append(upper, node);
    slot_add(t, node);
    if (node->table != NULL)
        split_blocks(t, upper, node);
    return upper;
}

prefix_node *prefix_insert(prefix_tree *t, const llm_token *tokens, int count) {
    prefix_node *at = &t->root;
    int done = 0;
    while (done < count) {
        prefix_node *child = t->slots[slot_find(t, at, tokens[done])];
        if (child == NULL) {
            child = node_new(tokens + done, count - done, count - done, done);
            child_append(at, child);
            slot_add(t, child);
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

void prefix_count(prefix_tree *t, prefix_node *node, int pending, int waiting, int users) {
    for (; node != NULL; node = node->parent) {
        bool was_used = node->users > 0, is_used = node->users + users > 0;
        t->used_blocks += (is_used - was_used) * blocks_owned(node);
        node->pending += pending;
        node->waiting += waiting;
        node->users += users;
        node->fanout += pending > 0;
        node_rank(t, node);
    }
}

static void node_remove(prefix_tree *t, prefix_node *node) {
    assert(node->first_child == NULL && node->table == NULL);
    if (*t->cursor == node)
        *t->cursor = node->parent;
    if (!node->is_private)
        slot_remove(t, node);
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
    node->looked_ahead = false;
    node->parent->resident_children--;
    node_rank(t, node);
    node_rank(t, node->parent);
}

static bool evict_one(prefix_tree *t) {
    if (t->nheap == 0)
        return false;
    prefix_node *node = t->heap[0];
    t->evicted += (uint64_t)(node->end_block - node->first_block);
    prefix_evict(t, node);
    prefix_prune(t, node, true, true);
    return true;
}

bool prefix_make_resident(prefix_tree *t, prefix_node *node, int extra) {
    int first = block_of(node->start);
    int end = blocks_for(node->start + node->count + extra);
    if (node->users > 0 && t->used_blocks + end - first > t->most_used)
        return false;
    while (t->nfree < end - first)
        if (!evict_one(t))
            return false;
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
    node_rank(t, node->parent);
    node_used(t, node);
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

void prefix_prune_one(prefix_tree *t, prefix_node *node) {
    t->used_blocks -= node->users > 0 ? blocks_owned(node) : 0;
    node->users = 0;
    if (node->table != NULL)
        prefix_evict(t, node);
    node_remove(t, node);
}

void prefix_evict_unused(prefix_tree *t) {
    while (t->nheap > 0) {
        prefix_node *node = t->heap[0];
        prefix_evict(t, node);
        prefix_prune(t, node, true, true);
    }
}

/* ---- identities ------------------------------------------------------------------------------ */

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
    *t = (prefix_tree){
        .mask = 1023, .nblocks = blocks, .cursor = cursor, .most_used = INT32_MAX, .read_cost = 1};
    t->owner = mem_zalloc(sizeof *t->owner * (size_t)BASE_MAX(blocks, 1));
    t->slots = mem_zalloc(sizeof *t->slots * (t->mask + 1));
    t->refs = mem_zalloc(sizeof(int32_t) * (size_t)BASE_MAX(blocks, 1));
    t->lives = mem_zalloc(sizeof *t->lives * (size_t)BASE_MAX(blocks, 1));
    t->free_blocks = mem_alloc(sizeof(int32_t) * (size_t)BASE_MAX(blocks, 1));
    for (int b = blocks; b-- > 0;)
        t->free_blocks[t->nfree++] = b; /* block 0 goes out first */
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
    free(t->slots);
    free(t->refs);
    free(t->lives);
    free(t->owner);
    free(t->free_blocks);
}
