/*
 * prefix_int.h - the prefix tree: a radix tree over the tokens of a session's prompts, whose nodes
 * own KV blocks.
 *
 *   root ── "instruction" ──┬── "movie A" ──┬── "review 1"     an edge is a run of tokens at fixed
 *           0..79           │   80..389     └── "review 2"     positions; a node may be split at
 *                           └── "movie B" ── …                 any token
 *
 * (RadixAttention, Zheng et al., SGLang, arXiv 2312.07104; blocks as in PagedAttention, Kwon et
 * al., arXiv 2309.06180.)
 *
 * A node at positions [start, start + count) owns the blocks start/32 .. (start+count-1)/32. If
 * start falls inside a block, the node's first block is a copy of its parent's last block, or,
 * after a split, that same block with two references:
 *
 *   parent  |....|....|..      |          node.table  [p0 p1 n2 n3]
 *   node    |         |..xx|xxx |                            ^first_block
 *
 * A node is resident if it has a block table. Invariants: the ancestors of a resident node are
 * resident; a node with users > 0 (live requests whose path includes it) is not evicted; a private
 * node (decoded tokens, literals) is not in the lookup index and is never split.
 *
 * Eviction: when blocks run out, the evictable node with the lowest retention score loses its
 * blocks, leaves before parents. The cache on disk uses the same score (retention_score): how often
 * the node is wanted, what one of its blocks costs to compute or to read again, and how long ago it
 * was used. An unanswered request counts far more than an answered one.
 */
#ifndef KVASIR_PREFIX_INT_H
#define KVASIR_PREFIX_INT_H

#include "gpu/llm.h"
#include "storage/containers.h"

struct request;

typedef struct prefix_node prefix_node;
struct prefix_node {
    prefix_node *parent, *first_child, *last_child, *prev, *next;
    llm_token *tokens;
    int start;       /* position of the first token */
    int count;       /* number of tokens */
    int computed;    /* number of leading tokens whose KV is in the blocks */
    uint32_t number; /* index into prefix_tree.nodes; unused in a private node */
    bool is_private;

    int32_t *table;             /* [end_block] blocks of positions 0, 32, …; NULL: not resident */
    int first_block, end_block; /* the node owns table[first_block .. end_block) */
    int resident_children;

    /* numbers of requests whose path includes this node */
    int pending;                  /* unanswered requests */
    int waiting;                  /* unanswered requests that are not yet live */
    int users;                    /* live requests */
    int fanout;                   /* all requests so far */
    struct request *first, *last; /* list of the waiting requests whose prompt ends here */

    bool keep;          /* not pruned while resident (request.keep, llm_logprobs) */
    bool prefetched;    /* the store was asked whether it has the node's blocks */
    uint64_t load_from; /* the loader's number of the first block that the loader was asked for */
    int nloads;         /* number of leading blocks that the loader was asked for */
    hash128 *keys;      /* keys of the blocks that end in this node; NULL: not made */
    int loaded_blocks;  /* number of leading blocks that were read from the store */
    int stored_blocks;  /* number of leading blocks that were read from the store or put there */

    uint64_t used; /* the tree's clock at the last use */
    double score;  /* retention score, while in the heap */
    int heap_at;   /* 1 + index in the heap of evictable nodes; 0: not evictable */
};

typedef struct prefix_tree {
    prefix_node root;
    hash_index index;    /* finds a child by (parent, first token) */
    prefix_node **nodes; /* the index's items: all nodes except the root and private nodes */
    uint32_t nnodes, nodes_cap;

    /* evictable nodes: resident, without users or resident children; the lowest score first */
    prefix_node **heap;
    size_t nheap, heap_cap;
    bool first_in_first_out; /* the score is the time of use: the oldest node is evicted first */
    uint64_t clock;          /* each use of a node adds the number of its blocks */
    double read_cost;        /* cost of reading a block from the store; computing it costs 1 */
    uint64_t evicted;        /* number of blocks evicted so far */

    int nblocks;
    int32_t *refs;       /* [nblocks] number of nodes that own the block; 0: the block is free */
    uint32_t *lives;     /* [nblocks] how often the block has been allocated */
    prefix_node **owner; /* [nblocks] the topmost node that owns the block, if it is not free */
    int32_t *free_blocks;
    int nfree;
    int used_blocks; /* sum of the blocks owned by nodes with users */
    int reserved;    /* number of blocks that nodes with users leave free */
    int most_used;   /* upper limit of used_blocks */

    /* the caller's pointer to a node; set to the parent when that node is removed */
    prefix_node **cursor;
} prefix_tree;

/* Makes an empty tree over blocks 0 .. blocks - 1. */
void prefix_init(prefix_tree *t, int blocks, prefix_node **cursor);
void prefix_free(prefix_tree *t);

/* Returns the node that ends exactly after tokens[count]: an existing node, one split off, or a new
 * one. Changes no counter on the path. */
prefix_node *prefix_insert(prefix_tree *t, const llm_token *tokens, int count);
/* Adds a private child of `parent` with a copy of the tokens and room for `capacity`. */
prefix_node *prefix_add_private(prefix_tree *t, prefix_node *parent, const llm_token *tokens,
                                int count, int capacity);
/* Adds to the counters of a node and of all nodes above it; pending > 0 also counts as fanout. */
void prefix_count(prefix_tree *t, prefix_node *node, int pending, int waiting, int users);
/* Does the same for the nodes that start at position `from` or later. */
void prefix_count_from(prefix_tree *t, prefix_node *node, int from, int pending, int users);

/* Returns how often a node is wanted: each prompt so far counts 1, plus PREFIX_CERTAIN if it is
 * unanswered, plus PREFIX_CERTAIN again if it is live. */
enum { PREFIX_CERTAIN = 1024 };
static inline int prefix_node_wanted(const prefix_node *node) {
    return node->fanout + PREFIX_CERTAIN * (node->pending + node->users);
}
/* work_size.wanted and work_size.life; ctx is the tree. */
int prefix_wanted(const void *tree, int32_t block);
uint32_t prefix_life(const void *tree, int32_t block);

/* Allocates blocks for the tokens of `node` and `extra` more tokens, and evicts other nodes as
 * needed. The node's ancestors must be resident. false: there is no room, or the node has users and
 * most_used would be exceeded or reserved blocks used. */
bool prefix_make_resident(prefix_tree *t, prefix_node *node, int extra);
/* Frees the blocks of a node that has no resident children and no users. */
void prefix_evict(prefix_tree *t, prefix_node *node);
/* Evicts every node without users. */
void prefix_evict_unused(prefix_tree *t);
/* Removes `node`, then its ancestors. Stops at the first node that has children, pending requests
 * or users, or that is resident and kept. Private nodes are not kept. Other nodes are kept if
 * keep_all or their `keep` is set, or if keep_shared is set and their fanout is greater than 1. */
void prefix_prune(prefix_tree *t, prefix_node *node, bool keep_shared, bool keep_all);
/* Removes a private node that has no children. */
void prefix_remove_private(prefix_tree *t, prefix_node *node);
/* Records a use of the node now, if the node is resident. */
void prefix_touch(prefix_tree *t, prefix_node *node);

/* Returns the next node of a depth-first walk over the tree, or NULL at the end. Skips the nodes
 * below `node` if `below` is false. */
prefix_node *prefix_next(const prefix_node *node, bool below);
/* Copies the tokens at positions [from, from + count) of the node's path. */
void prefix_tokens(const prefix_node *node, int from, int count, llm_token *out);
/* Returns the number of full blocks from block start/32 to the end of the node. */
int prefix_full_blocks(const prefix_node *node);
/* Makes the keys of the node and its ancestors. A key is the hash of (parent block's key, the
 * block's tokens); the first block's parent key is `seed`. */
void prefix_make_keys(prefix_node *node, hash128 seed);
/* Returns the key of block b of the node's path; for b = -1, the seed. */
hash128 prefix_key(const prefix_node *node, int b, hash128 seed);

#endif
