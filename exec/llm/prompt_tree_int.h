/*
 * prompt_tree_int.h - a radix tree over the tokens of prompts, for EXPLAIN (TREE), and for the
 * shared prefixes in EXPLAIN (PROMPT).
 *
 *   0 ── 1 "instruction" ──┬── 2 "movie A" ──┬── 3 "review 1"
 *                          │                 └── 4 "review 2"
 *                          └── 5 "movie B" ── …
 *
 * Invariant: what a run computes if nothing is evicted are the tokens of all nodes; a node's
 * children stand in the order in which their first prompts were added.
 */
#ifndef KVASIR_PROMPT_TREE_INT_H
#define KVASIR_PROMPT_TREE_INT_H

#include "gpu/llm.h"
#include "storage/containers.h"

enum { TREE_ROOT = 0, TREE_NONE = 0 }; /* no node has the root as a child or a sibling */

typedef struct tree_node {
    const llm_token *tokens; /* [count] from the parent to this node */
    uint32_t count;
    uint32_t prompts; /* number of prompts that begin with the tokens of the path to this node */
    uint32_t parent, first_child, last_child, prev, next; /* numbers of nodes, or TREE_NONE */
} tree_node;

typedef struct prompt_tree {
    const llm_engine *engine;
    tree_node *nodes;
    uint32_t nnodes, nodes_cap;
    hash_index index;  /* finds a child by (parent, first token) */
    arena *mem;        /* memory of the nodes' tokens; may spill */
    uint64_t sent;     /* number of tokens of all prompts */
    uint64_t computed; /* number of tokens of all nodes */
} prompt_tree;

void prompt_tree_init(prompt_tree *t, const llm_engine *engine, arena *mem);
void prompt_tree_free(prompt_tree *t); /* `mem` is the caller's */
/* Adds a prompt. Returns how many of its first tokens it shares with the prompts added before. */
int prompt_tree_add(prompt_tree *t, const llm_token *tokens, int count);
/* Appends the text of tokens, each control token in ⟦ ⟧. In other text, these two characters become
 * [ and ], so that text never looks like a control token. */
void prompt_text(const llm_engine *engine, const llm_token *tokens, size_t count, buf *out);
/* Appends the beginning of a branch's text, its first tokens, on one line: a line break is ↵, and
 * there is an ellipsis before a text that begins within a word, and after one that is not the
 * `whole` branch. `before`: the last tokens before the branch. */
void prompt_branch_text(const llm_engine *engine, const llm_token *first, int nfirst,
                        const llm_token *before, int nbefore, bool whole, buf *out);
/* Appends the tree as text. Its few largest branches have lines of their own. Of the other children
 * of a node the first ones are shown, and the rest is one line. */
void prompt_tree_print(const prompt_tree *t, buf *out);

#endif
