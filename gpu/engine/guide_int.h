/*
 * guide_int.h - a compiled constraint: the token tree of the literals, or an automaton of numbers
 * over the vocabulary.
 *
 * CHOICE. A tree of the literals' tokens. The tokens that all literals begin with are `prefix`,
 * which is appended to the prompt; node 0, the root, comes after it:
 *
 *      root --" 1"--> A --END--> literal 0        branching nodes: root, A
 *                     A --"0"--> literal 1        ids of A: [END, "0"]
 *           --" 2"--> literal 2
 *
 * Only branching nodes (two or more continuations, END included) need logits; a single continuation
 * has probability 1. `segments` are the runs of tokens that the model must compute to get these
 * logits, parents before children.
 *
 * INTEGER, REAL. A state is the part of the number that has been written (sign, digits, …);
 * states[s] lists the tokens that may follow, the states they lead to, and the digits they add. END
 * may follow a digit.
 */
#ifndef KVASIR_GUIDE_INT_H
#define KVASIR_GUIDE_INT_H

#include "engine_int.h"

enum { GUIDE_MAX_DIGITS = 18 };

typedef struct guide_node {
    llm_token token; /* from the parent to this node; undefined for the root */
    int parent;
    int child;   /* the first child; -1: none */
    int sibling; /* the next child of the parent; -1: none */
    int literal; /* the literal that ends here; -1: none */
    int branch;  /* index into branches; -1: the node does not branch */
} guide_node;

/* A branching node. ids[count] are the tokens that may follow it. next[i] is where ids[i] and the
 * only continuations after it lead: to a branch, whose index it is, or to a literal, then it is
 * guide_leaf(literal). */
typedef struct guide_branch {
    int node;
    int count;
    llm_token *ids;
    int *next;
    int segment; /* the segment after which the logits are taken; -1: after the prompt */
} guide_branch;

/* A literal as a guide_branch.next, and back. */
static inline int guide_leaf(int literal) {
    return -1 - literal;
}

/* The tokens after a branching node (or the prompt), up to and including the token of the next
 * branching node. */
typedef struct guide_segment {
    int parent; /* the segment before it; -1: the prompt */
    int count;
    llm_token *tokens;
    int branch;   /* index of the branch at its end */
    int children; /* number of segments directly below it */
    int depth;    /* number of tokens from the prompt to its end */
} guide_segment;

typedef enum number_state {
    NUMBER_LEAD,  /* before the template's answer_lead */
    NUMBER_START, /* after answer_lead, or if the template has none */
    NUMBER_SIGN,
    NUMBER_DIGITS, /* may end */
    NUMBER_POINT,
    NUMBER_FRACTION, /* may end */
    NUMBER_STATES
} number_state;

typedef struct guide_state {
    int count;
    llm_token *ids;  /* by ascending `digits`, so a limit on digits allows the first ones */
    uint8_t *next;   /* the number_state after the token */
    uint8_t *digits; /* the number of digits that the token adds */
    bool ends;       /* END may follow, and is ids[0] */
} guide_state;

struct llm_guide {
    atomic_int refs;
    llm_guide_kind kind;
    arena *mem;
    hash128 key;
    llm_token end; /* the token END */
    int count;     /* number of literals */
    str *literals;
    llm_token *prefix;
    int nprefix;
    guide_node *nodes;
    int nnodes;
    guide_branch *branches;
    int nbranches;
    guide_segment *segments;
    int nsegments;
    int longest;       /* number of tokens of the longest chain of segments, from the prompt down */
    int all_tokens;    /* number of tokens of all segments: what scoring every literal computes */
    int likely_tokens; /* estimate of what finding the likeliest literal computes */
    guide_state states[NUMBER_STATES];
    number_state first; /* the state before the first token of a number */
};

/* Fills log_prob[count] with the logarithm of the softmax of logits[count]. */
void guide_softmax(const float *logits, int count, double *log_prob);
/* Fills probs[guide->count] with the probability of each literal, computed from
 * log_prob[branch][continuation], and returns the literal of largest probability. Of equally
 * probable literals the first is returned. */
int guide_best(const llm_guide *guide, double *const *log_prob, double *probs);
/* Writes the tokens from the prompt to a branch to path[guide->longest]. Returns their number. */
int guide_path(const llm_guide *guide, int branch, llm_token *path);
/* Returns the number of tokens allowed in `state` after `digits` digits. They are the first ones of
 * states[state].ids. */
int guide_allowed(const llm_guide *guide, number_state state, int digits);

#endif
