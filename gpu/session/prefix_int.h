/*
 * prefix_int.h - the radix tree of prompts over tokens, and the KV blocks that its nodes hold.
 *
 *   root ── "instruction" ──┬── "movie A" ──┬── "review 1"     every edge is a run of tokens
 *           0..79           │   80..389     └── "review 2"     at fixed positions; a node
 *                           └── "movie B" ── …                 splits at any token
 *
 * A node at positions [start, start + count) owns the blocks start/32 .. (start+count-1)/32. Where
 * start falls inside a block, the node's first block is a copy of its parent's last (or the same
 * block, counted twice, after a split):
 *
 *   parent  |....|....|..      |          node.table  [p0 p1 n2 n3]
 *   node    |         |..xx|xxx |                            ^first_block
 *
 * A node is resident when it has a table; its parents then are, too. `computed` of its tokens have
 * their KV. Invariants: users > 0 (a live request passes through) forbids eviction; pending counts
 * requests not yet answered; waiting those of them not yet admitted. A private node (decoded
 * tokens, literals) is in no lookup and never splits. Where blocks run out, the resident node that
 * is worth least goes, leaves before their parents, by the rule of the cache on disk (retention_score):
 * how often it is wanted, what a block of it costs to compute or to read again, and how long it was
 * not used. A request that waits is certain to want it, one that came earlier a sign that more
 * will.
 */
#ifndef KVASIR_PREFIX_INT_H
#define KVASIR_PREFIX_INT_H

#include "gpu/llm.h"

struct request;

typedef struct prefix_node prefix_node;
struct prefix_node {
    prefix_node *parent, *first_child, *last_child, *prev, *next;
    llm_token *tokens;
    int start, count, computed;
    int32_t *table; /* NULL: not resident */
    int first_block, end_block;
    int resident_children;
    int pending, waiting, users, fanout;
    bool is_private, keep;
    bool looked_ahead;            /* the store was told that its blocks will be wanted */
    uint64_t asked;               /* the loader's number of its first block, */
    int nasked;                   /* and how many blocks it was asked for */
    struct request *first, *last; /* waiting requests that end here */
    hash128 *keys;     /* of blocks first_block.. that end in this node; NULL: not asked for yet */
    int loaded_blocks; /* of these, come from the store */
    int stored_blocks; /* of first_block.., come from the store or offered to it */
    uint64_t used;     /* the tree's clock when last used, or made resident */
    double worth;      /* by which it stands in the heap */
    int heap_at;       /* 1 + its place among those that may go; 0: it may not */
};

typedef struct prefix_tree {
    prefix_node root;
    prefix_node **slots; /* open addressing over (parent, first token) */
    size_t mask, used;
    prefix_node **heap; /* nodes that may go, the one worth least first */
    int nheap, heap_cap;
    uint64_t clock;             /* counts uses of blocks */
    double read_cost;           /* of a block from the store; computing one is 1 */
    int32_t *refs;              /* per block */
    uint32_t *lives;            /* per block: how often it was given out */
    prefix_node **owner;        /* per block in use: the topmost node that owns it */
    int used_blocks, most_used; /* blocks of nodes with users, and how many they may be */
    int32_t *free_blocks;
    int nfree, nblocks;
    uint64_t evicted;
    bool first_in_first_out; /* the oldest node goes, whatever it is worth */
    prefix_node **cursor;    /* set to the parent when the node it points to goes */
} prefix_tree;

void prefix_init(prefix_tree *t, int blocks, prefix_node **cursor);
void prefix_free(prefix_tree *t);
/* The node that ends exactly after tokens[count]; made, or
 * split off, as needed. Counts of its path are unchanged. */
prefix_node *prefix_insert(prefix_tree *t, const llm_token *tokens, int count);
/* A private child; tokens are copied, room for `capacity`. */
prefix_node *prefix_add_private(prefix_tree *t, prefix_node *parent, const llm_token *tokens,
                                int count, int capacity);
/* Adds to the counts of a node and all above it. */
void prefix_count(prefix_tree *t, prefix_node *node, int pending, int waiting, int users);
/* How often a node is wanted: a request not yet answered counts as so many that once were. */
enum { PREFIX_CERTAIN = 1024 };
static inline int prefix_node_wanted(const prefix_node *node) {
    return node->fanout + PREFIX_CERTAIN * (node->pending + node->users);
}
/* work_size.wanted of a tree. */
int prefix_wanted(const void *tree, int32_t block);
uint32_t prefix_life(const void *tree, int32_t block); /* work_size.life */
/* Gives `node` (parents resident) blocks for its tokens
 * and `extra` more. false: no room, nothing changed. */
bool prefix_make_resident(prefix_tree *t, prefix_node *node, int extra);
/* Takes its blocks away; its children must not be resident. */
void prefix_evict(prefix_tree *t, prefix_node *node);
/* Removes `node` and then its parents, as long as they have no children, requests, or KV worth
 * keeping
 * (`keep_shared`: nodes that several prompts shared stay; keep_all: all resident ones). */
void prefix_prune(prefix_tree *t, prefix_node *node, bool keep_shared, bool keep_all);
/* Removes a private node that has no children, and gives
 * its blocks back, its last user's; its parents stay. */
void prefix_prune_one(prefix_tree *t, prefix_node *node);
/* Evicts all that no live request uses. */
void prefix_evict_unused(prefix_tree *t);
void prefix_touch(prefix_tree *t, prefix_node *node); /* it is used now */
/* Copies the tokens of positions [from, from + count) of the node's path. */
void prefix_tokens(const prefix_node *node, int from, int count, llm_token *out);
/* Blocks first_block .. first_block + n - 1 of the node are full at its end. */
int prefix_full_blocks(const prefix_node *node);
/* Fills node->keys (and its parents'); key chains (parent key, tokens) from `seed`. */
void prefix_make_keys(prefix_node *node, hash128 seed);
/* The key of block b of the node's path; b = -1: the seed. */
hash128 prefix_key(const prefix_node *node, int b, hash128 seed);

#endif
