/*
 * guide.c - compiles constraints (llm_guide_new) and computes probabilities of answers from logits.
 *
 * Invariant: a guide is immutable and a function of (engine's tokenizer, kind, literals, template).
 * schedule.c runs the model over its segments.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "guide_int.h"
#include "storage/containers.h"

/* ---- the tree of literals -------------------------------------------------------------------- */

typedef struct literal_tokens {
    llm_token *ids;
    size_t count, cap;
} literal_tokens;

/* Returns the last token of the template's `after`, or -1. */
static llm_token template_end(const llm_engine *engine, const llm_template *after) {
    literal_tokens t = {0};
    engine_encode(engine, after->after, true, false, &t.ids, &t.count, &t.cap);
    llm_token last = t.count > 0 ? t.ids[t.count - 1] : -1;
    free(t.ids);
    return last;
}

/* `start`: whether the answer starts a text, as engine_encode takes it. */
static literal_tokens tokenize_literal(const llm_engine *engine, str literal,
                                       const llm_template *after, bool start) {
    buf text = {0};
    buf_append_str(&text, after->answer_lead);
    buf_append_str(&text, literal);
    literal_tokens t = {0};
    engine_encode(engine, buf_str(&text), false, start, &t.ids, &t.count, &t.cap);
    buf_free(&text);
    return t;
}

/* A tree that grows: its nodes by (parent, token), and the last child of each. */
typedef struct tree_maker {
    llm_guide *g;
    hash_index index;
    int *last; /* [nodes] the node's last child; -1: none */
} tree_maker;

static uint64_t child_hash(int parent, llm_token token) {
    return hash_mix((uint64_t)parent, (uint64_t)token);
}

static int node_add(tree_maker *m, int parent, llm_token token) {
    llm_guide *g = m->g;
    int id = g->nnodes++;
    g->nodes[id] = (guide_node){
        .token = token, .parent = parent, .child = -1, .sibling = -1, .literal = -1, .branch = -1};
    m->last[id] = -1;
    if (parent >= 0) {
        int last = m->last[parent];
        *(last >= 0 ? &g->nodes[last].sibling : &g->nodes[parent].child) = id;
        m->last[parent] = id;
        hash_index_add(&m->index, child_hash(parent, token), (uint32_t)id);
    }
    return id;
}

static int node_child(const tree_maker *m, int node, llm_token token) {
    const hash_slot *s = hash_index_first(&m->index, child_hash(node, token));
    for (; s != NULL; s = hash_index_next(&m->index, s)) {
        const guide_node *child = &m->g->nodes[s->item];
        if (child->parent == node && child->token == token)
            return (int)s->item;
    }
    return -1;
}

static void tree_insert(tree_maker *m, const llm_token *ids, size_t count, int literal) {
    int node = 0;
    for (size_t i = 0; i < count; i++) {
        int next = node_child(m, node, ids[i]);
        node = next >= 0 ? next : node_add(m, node, ids[i]);
    }
    if (m->g->nodes[node].literal < 0)
        m->g->nodes[node].literal = literal;
}

static int continuations(const llm_guide *g, int node) {
    int n = 0;
    for (int c = g->nodes[node].child; c >= 0; c = g->nodes[c].sibling)
        n++;
    return n + (g->nodes[node].literal >= 0 && n > 0 ? 1 : 0);
}

static void branch_fill(llm_guide *g, int node, int count) {
    guide_branch *b = &g->branches[g->nbranches];
    *b = (guide_branch){.node = node, .segment = -1};
    b->ids = ARENA_ARRAY(g->mem, llm_token, count);
    b->next = ARENA_ARRAY(g->mem, int, count);
    if (g->nodes[node].literal >= 0)
        b->ids[b->count++] = g->end;
    for (int c = g->nodes[node].child; c >= 0; c = g->nodes[c].sibling)
        b->ids[b->count++] = g->nodes[c].token;
    g->nodes[node].branch = g->nbranches++;
}

/* Fills the `next` of a branch, once all branches are made. */
static void branch_link(const llm_guide *g, guide_branch *b) {
    int n = 0;
    if (g->nodes[b->node].literal >= 0)
        b->next[n++] = guide_leaf(g->nodes[b->node].literal);
    for (int c = g->nodes[b->node].child; c >= 0; c = g->nodes[c].sibling) {
        int to = c;
        while (g->nodes[to].branch < 0 && g->nodes[to].child >= 0)
            to = g->nodes[to].child;
        b->next[n++] =
            g->nodes[to].branch >= 0 ? g->nodes[to].branch : guide_leaf(g->nodes[to].literal);
    }
}

/* Makes the segment that ends at branch `index` and starts after the nearest branching node above
 * it, or after the prompt. */
static void segment_fill(llm_guide *g, int index) {
    guide_branch *b = &g->branches[index];
    int count = 0, node = b->node;
    do {
        count++;
        node = g->nodes[node].parent;
    } while (node > 0 && g->nodes[node].branch < 0);
    guide_segment *s = &g->segments[g->nsegments];
    *s = (guide_segment){.count = count, .branch = index, .parent = -1};
    s->tokens = ARENA_ARRAY(g->mem, llm_token, count);
    int at = b->node;
    for (int i = count; i-- > 0; at = g->nodes[at].parent)
        s->tokens[i] = g->nodes[at].token;
    if (g->nodes[node].branch >= 0)
        s->parent = g->branches[g->nodes[node].branch].segment;
    s->depth = count;
    if (s->parent >= 0) {
        g->segments[s->parent].children++;
        s->depth += g->segments[s->parent].depth;
    }
    g->longest = BASE_MAX(g->longest, s->depth);
    g->all_tokens += count;
    b->segment = g->nsegments++;
}

/* Estimates how many tokens are computed to find the likeliest literal: the average, over all
 * literals, of the tokens on the path to the literal's last branch. */
static int likely_tokens(const llm_guide *g) {
    double sum = 0;
    for (int n = 0; n < g->nbranches; n++) {
        const guide_branch *b = &g->branches[n];
        for (int i = 0; i < b->count && b->segment >= 0; i++)
            sum += b->next[i] < 0 ? g->segments[b->segment].depth : 0;
    }
    return (int)ceil(sum / g->count);
}

/* Returns the next node in preorder, which puts parents before children; -1 at the end. */
static int node_next(const llm_guide *g, int node) {
    if (g->nodes[node].child >= 0)
        return g->nodes[node].child;
    while (node > 0 && g->nodes[node].sibling < 0)
        node = g->nodes[node].parent;
    return node > 0 ? g->nodes[node].sibling : -1;
}

static void tree_compile(llm_guide *g) {
    int branching = 0;
    for (int n = 0; n < g->nnodes; n++)
        branching += continuations(g, n) > 1;
    g->branches = ARENA_ARRAY(g->mem, guide_branch, branching + 1);
    g->segments = ARENA_ARRAY(g->mem, guide_segment, branching + 1);
    for (int n = 0; n >= 0; n = node_next(g, n)) {
        int count = continuations(g, n);
        if (count > 1) {
            branch_fill(g, n, count);
            if (n > 0)
                segment_fill(g, g->nbranches - 1);
        }
    }
    for (int b = 0; b < g->nbranches; b++)
        branch_link(g, &g->branches[b]);
    g->likely_tokens = likely_tokens(g);
}

static int choice_compile(llm_guide *g, const llm_engine *engine, const llm_template *after,
                          err *e) {
    literal_tokens *t = mem_zalloc(sizeof *t * (size_t)g->count);
    size_t total = 1, common = SIZE_MAX;
    llm_token last = template_end(engine, after);
    bool start = last >= 0 && engine_starts_after(engine, last);
    for (int i = 0; i < g->count; i++) {
        t[i] = tokenize_literal(engine, g->literals[i], after, start);
        total += t[i].count;
        size_t same = 0;
        while (same < t[i].count && same < t[0].count && t[i].ids[same] == t[0].ids[same])
            same++;
        common = BASE_MIN(common, same);
    }
    g->prefix = ARENA_ARRAY(g->mem, llm_token, common + 1);
    g->nprefix = (int)common;
    memcpy(g->prefix, t[0].ids, common * sizeof(llm_token));
    g->nodes = ARENA_ARRAY(g->mem, guide_node, total);
    tree_maker m = {.g = g, .last = mem_alloc(sizeof *m.last * total)};
    node_add(&m, -1, -1);
    int code = 0;
    for (int i = 0; i < g->count; i++) {
        tree_insert(&m, t[i].ids + common, t[i].count - common, i);
        if (!after->chat && memchr(g->literals[i].p, '\n', g->literals[i].n) != NULL) {
            code = err_set(e, ERR_UNSUPPORTED,
                           "the answer '%.*s' has a line break, which in completion format ends "
                           "the answer",
                           (int)BASE_MIN(g->literals[i].n, 60), g->literals[i].p);
        }
    }
    for (int i = 0; i < g->count; i++)
        free(t[i].ids);
    free(t);
    free(m.last);
    hash_index_free(&m.index);
    if (code == 0)
        tree_compile(g);
    return code;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Returns the state after the byte c; -1: c is not allowed. Adds to *digits: the point counts as a
 * digit, and the first digit after the point does not. So the limit on digits always leaves room
 * for that first digit. */
static int number_step(llm_guide_kind kind, int state, char c, str lead, size_t *lead_at,
                       int *digits) {
    if (state == NUMBER_LEAD) {
        if (*lead_at < lead.n) {
            bool fits = lead.p[*lead_at] == c;
            *lead_at += 1;
            return !fits ? -1 : *lead_at == lead.n ? NUMBER_START : NUMBER_LEAD;
        }
        state = NUMBER_START;
    }
    if (c >= '0' && c <= '9') {
        *digits += state != NUMBER_POINT;
        return state >= NUMBER_POINT ? NUMBER_FRACTION : NUMBER_DIGITS;
    }
    if (c == '-' || c == '+')
        return state == NUMBER_START ? NUMBER_SIGN : -1;
    if (c != '.' || kind != LLM_GUIDE_REAL || state != NUMBER_DIGITS)
        return -1;
    *digits += 1;
    return NUMBER_POINT;
}

typedef struct number_token {
    llm_token id;
    int next, digits;
} number_token;

static int by_digits(const void *a, const void *b) {
    const number_token *x = a, *y = b;
    return x->digits != y->digits ? x->digits - y->digits : (x->id > y->id) - (x->id < y->id);
}

/* Whether a token's text is allowed in `state`; if so, sets out->next and out->digits. A text that
 * ends in the middle of `lead` is not allowed. */
static bool number_token_fits(llm_guide_kind kind, int state, str text, str lead,
                              number_token *out) {
    size_t lead_at = 0;
    int digits = 0;
    for (size_t i = 0; i < text.n; i++) {
        state = number_step(kind, state, text.p[i], lead, &lead_at, &digits);
        if (state < 0)
            return false;
    }
    out->next = state;
    out->digits = digits;
    return text.n > 0 && state != NUMBER_LEAD && digits <= GUIDE_MAX_DIGITS;
}

static void number_state_fill(llm_guide *g, int state, const number_token *tokens, int count) {
    guide_state *s = &g->states[state];
    s->ends = state == NUMBER_DIGITS || state == NUMBER_FRACTION;
    s->ids = ARENA_ARRAY(g->mem, llm_token, count + 1);
    s->next = ARENA_ARRAY(g->mem, uint8_t, count + 1);
    s->digits = ARENA_ARRAY(g->mem, uint8_t, count + 1);
    if (s->ends)
        s->ids[s->count++] = g->end;
    for (int i = 0; i < count; i++) {
        s->ids[s->count] = tokens[i].id;
        s->next[s->count] = (uint8_t)tokens[i].next;
        s->digits[s->count++] = (uint8_t)tokens[i].digits;
    }
}

static int number_compile(llm_guide *g, const llm_engine *engine, const llm_template *after,
                          err *e) {
    g->first = after->answer_lead.n > 0 ? NUMBER_LEAD : NUMBER_START;
    if (engine->tokenizer == NULL)
        return 0; /* the backend returns whole answers */
    int vocab = tokenizer_size(engine->tokenizer);
    number_token *fit = mem_alloc(sizeof *fit * (size_t)vocab);
    buf text = {0};
    for (int state = 0; state < NUMBER_STATES; state++) {
        int count = 0;
        for (llm_token id = 0; id < vocab; id++) {
            if (id == g->end || tokenizer_is_control(engine->tokenizer, id))
                continue;
            buf_clear(&text);
            tokenizer_decode(engine->tokenizer, id, false, &text);
            fit[count].id = id;
            count +=
                number_token_fits(g->kind, state, buf_str(&text), after->answer_lead, &fit[count]);
        }
        qsort(fit, (size_t)count, sizeof *fit, by_digits);
        number_state_fill(g, state, fit, count);
    }
    buf_free(&text);
    free(fit);
    for (int state = 0; state < NUMBER_STATES; state++) {
        /* after a point, a digit must be allowed even if the number has its maximum of digits */
        int digits = state == NUMBER_POINT ? GUIDE_MAX_DIGITS : 0;
        if (guide_allowed(g, (number_state)state, digits) == 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "this model's vocabulary has no tokens to write a number with");
    }
    return 0;
}

int guide_allowed(const llm_guide *guide, number_state state, int digits) {
    const guide_state *s = &guide->states[state];
    int count = s->count;
    while (count > (int)s->ends && s->digits[count - 1] + digits > GUIDE_MAX_DIGITS)
        count--;
    return count;
}

/* ---- deciding -------------------------------------------------------------------------------- */

void guide_softmax(const float *logits, int count, double *log_prob) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < count; i++)
        top = fmax(top, (double)logits[i]);
    for (int i = 0; i < count; i++)
        sum += exp((double)logits[i] - top);
    double log_sum = log(sum);
    for (int i = 0; i < count; i++)
        log_prob[i] = (double)logits[i] - top - log_sum;
}

int guide_best(const llm_guide *guide, double *const *log_prob, double *probs) {
    double *reach = mem_alloc(sizeof *reach * (size_t)(guide->nbranches + 1));
    for (int i = 0; i < guide->count; i++)
        probs[i] = -INFINITY;
    reach[0] = 0; /* the root, if it branches */
    if (guide->nbranches == 0)
        probs[0] = 0;
    for (int n = 0; n < guide->nbranches; n++) {
        const guide_branch *b = &guide->branches[n];
        for (int i = 0; i < b->count; i++) {
            double p = reach[n] + log_prob[n][i];
            *(b->next[i] >= 0 ? &reach[b->next[i]] : &probs[guide_leaf(b->next[i])]) = p;
        }
    }
    int best = 0;
    for (int i = 1; i < guide->count; i++)
        best = probs[i] > probs[best] ? i : best;
    for (int i = 0; i < guide->count; i++)
        probs[i] = exp(probs[i]);
    free(reach);
    return best;
}

int guide_path(const llm_guide *guide, int branch, llm_token *path) {
    int s = guide->branches[branch].segment, count = s >= 0 ? guide->segments[s].depth : 0;
    for (; s >= 0; s = guide->segments[s].parent) {
        const guide_segment *part = &guide->segments[s];
        memcpy(path + part->depth - part->count, part->tokens, sizeof *path * (size_t)part->count);
    }
    return count;
}

/* ---- lifetime -------------------------------------------------------------------------------- */

static hash128 guide_identity(llm_guide_kind kind, const str *literals, int count,
                              const llm_template *after) {
    buf b = {0};
    buf_printf(&b, "%d %s %d\n", (int)kind, after->name, count);
    for (int i = 0; i < count; i++) {
        buf_printf(&b, "%zu:", literals[i].n);
        buf_append_str(&b, literals[i]);
    }
    hash128 h = hash_128(b.p, b.n);
    buf_free(&b);
    return h;
}

llm_guide *llm_guide_new(const llm_engine *engine, llm_guide_kind kind, const str *literals,
                         int count, const llm_template *after, err *e) {
    if (kind == LLM_GUIDE_CHOICE && count < 1) {
        err_set(e, ERR_BIND, "a list of allowed answers needs at least one");
        return NULL;
    }
    llm_guide *g = mem_zalloc(sizeof *g);
    atomic_init(&g->refs, 1);
    g->mem = arena_new();
    g->kind = kind;
    g->end = after->chat ? engine->eos : engine->newline;
    if (g->end < 0) {
        err_set(e, ERR_UNSUPPORTED, "this model has no token that ends a %s answer", after->name);
        llm_guide_release(g);
        return NULL;
    }
    g->count = kind == LLM_GUIDE_CHOICE ? count : 0;
    g->key = guide_identity(kind, literals, g->count, after);
    g->literals = ARENA_ARRAY(g->mem, str, g->count + 1);
    for (int i = 0; i < g->count; i++)
        g->literals[i] = str_copy(g->mem, literals[i]);
    int code = kind == LLM_GUIDE_CHOICE ? choice_compile(g, engine, after, e)
                                        : number_compile(g, engine, after, e);
    if (code != 0) {
        llm_guide_release(g);
        return NULL;
    }
    return g;
}

llm_guide *llm_guide_retain(llm_guide *guide) {
    atomic_fetch_add_explicit(&guide->refs, 1, memory_order_relaxed);
    return guide;
}

void llm_guide_release(llm_guide *guide) {
    if (guide != NULL && atomic_fetch_sub_explicit(&guide->refs, 1, memory_order_acq_rel) == 1) {
        arena_free(guide->mem);
        free(guide);
    }
}

hash128 llm_guide_key(const llm_guide *guide) {
    return guide->key;
}

bool llm_guide_is_small(const llm_guide *guide) {
    enum { SMALL_BRANCHES = 8 };
    return guide->nbranches <= SMALL_BRANCHES;
}

int llm_guide_tokens(const llm_guide *guide, bool all_probs) {
    return all_probs ? guide->all_tokens : guide->likely_tokens;
}
