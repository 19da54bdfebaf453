/*
 * guide_int.h - a compiled constraint: the literals' token tree, or the automaton of numbers over
 * the vocabulary.
 *
 * CHOICE (DIALECT 2). Nodes lie in preorder, node 0 is the root, after `prefix` (what all literals
 * share, which joins the prompt):
 *
 *      root --" 1"--> A --END--> literal 0        branching nodes: root, A
 *                     A --"0"--> literal 1        ids of A: [END, "0"]
 *           --" 2"--> literal 2
 *
 * Only branching nodes (two continuations or more, END included) need logits; a chain of single
 * continuations has probability one. `segments` are the token runs that must pass through the model
 * to get them, parents first.
 *
 * INTEGER, REAL. A state is how far the text of the number has come; `states[s]` lists the tokens
 * that may follow, the state they lead to, and how many digits they add. END may follow once there
 * is a digit.
 */
#ifndef KVASIR_GUIDE_INT_H
#define KVASIR_GUIDE_INT_H

#include "engine_int.h"

enum { GUIDE_MAX_DIGITS = 18, GUIDE_END = -1 };

typedef struct guide_node {
    llm_token token;            /* that leads here; the root's means nothing */
    int parent, child, sibling; /* -1: none */
    int literal;                /* that ends here, or -1 */
    int branch;                 /* index into branches, or -1 */
} guide_node;

/* A node with several continuations: logits of `ids` decide. next[i] is a node, or GUIDE_END. */
typedef struct guide_branch {
    int node;
    int count;
    llm_token *ids;
    int *next;
    int segment; /* its logits come after this segment's last token; -1: after the prompt's */
} guide_branch;

/* Tokens from one branching node (exclusive) to another (inclusive); parent -1: the prompt. */
typedef struct guide_segment {
    int parent;
    int count;
    llm_token *tokens;
    int branch;
    int children; /* segments below this one */
} guide_segment;

typedef enum number_state {
    NUMBER_LEAD,  /* the answer's lead has not come yet */
    NUMBER_START, /* lead seen (or none asked for) */
    NUMBER_SIGN,
    NUMBER_DIGITS, /* may end */
    NUMBER_POINT,
    NUMBER_FRACTION, /* may end */
    NUMBER_STATES
} number_state;

typedef struct guide_state {
    int count;
    llm_token *ids;  /* ascending digits added, so that a limit on digits is a prefix of the list */
    uint8_t *next;   /* number_state */
    uint8_t *digits; /* that the token adds */
    bool ends;       /* END is ids[0] */
} guide_state;

struct llm_guide {
    atomic_int refs;
    llm_guide_kind kind;
    arena *mem;
    hash128 key;
    llm_token end;
    int count; /* literals */
    str *literals;
    llm_token *prefix;
    int nprefix;
    guide_node *nodes;
    int nnodes;
    guide_branch *branches;
    int nbranches;
    guide_segment *segments;
    int nsegments;
    int longest; /* tokens of the deepest path of segments */
    guide_state states[NUMBER_STATES];
    number_state first;
};

/* Log-probabilities of a branch's continuations: a softmax over logits[count], in double. */
void guide_softmax(const float *logits, int count, double *log_prob);
/* The best literal, given for each branch its continuations'
 * log-probabilities; ties go to the first listed. */
int guide_best(const llm_guide *guide, double *const *log_prob, double *prob);
/* Of the tokens allowed in `state` with `digits` already
 * there, how many (a prefix of states[state].ids). */
int guide_allowed(const llm_guide *guide, number_state state, int digits);

#endif
