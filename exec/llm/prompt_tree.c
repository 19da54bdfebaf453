/*
 * prompt_tree.c - the prefix tree of a statement's prompts: built prompt by prompt, and printed.
 *
 *     prompts       tokens  text
 *          24           12  Is the review positive or negative?↵↵synopsis:
 *          12          143  ├─ Four sisters inherit a lighthouse on the coast of …
 *           1           18  │  ├─ review: The most honest war film in years.↵answer:
 *           1           14  │  ├─ review: …
 *          10          152  │  └─ … 10 more, 14 to 17 tokens each
 *          12          131  └─ A chess prodigy …
 *
 * Invariant: each token of the tree is counted in one line, so the column of tokens adds up to what
 * is computed if every branch is computed once.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "prompt_tree_int.h"

/* ---- building -------------------------------------------------------------------------------- */

void prompt_tree_init(prompt_tree *t, const llm_engine *engine, arena *mem) {
    *t = (prompt_tree){.engine = engine, .mem = mem};
    ARRAY_PUSH(t->nodes, t->nnodes, t->nodes_cap, ((tree_node){.prompts = 0}));
}

void prompt_tree_free(prompt_tree *t) {
    free(t->nodes);
    hash_index_free(&t->index);
}

static uint64_t child_hash(uint32_t parent, llm_token first) {
    return hash_mix(parent, (uint64_t)first);
}

static hash_slot *find_child(const prompt_tree *t, uint32_t parent, llm_token first) {
    uint64_t hash = child_hash(parent, first);
    for (hash_slot *s = hash_index_first(&t->index, hash); s; s = hash_index_next(&t->index, s))
        if (t->nodes[s->item].parent == parent && t->nodes[s->item].tokens[0] == first)
            return s;
    return NULL;
}

static void add_leaf(prompt_tree *t, uint32_t parent, const llm_token *tokens, int count) {
    llm_token *own = arena_alloc(t->mem, sizeof *own * (size_t)count);
    memcpy(own, tokens, sizeof *own * (size_t)count);
    uint32_t at = t->nnodes, last = t->nodes[parent].last_child;
    tree_node leaf = {
        .tokens = own, .count = (uint32_t)count, .prompts = 1, .parent = parent, .prev = last};
    ARRAY_PUSH(t->nodes, t->nnodes, t->nodes_cap, leaf);
    hash_index_add(&t->index, child_hash(parent, own[0]), at);
    *(last ? &t->nodes[last].next : &t->nodes[parent].first_child) = at;
    t->nodes[parent].last_child = at;
    t->computed += (uint64_t)count;
}

/* Puts a new node with the first `count` tokens of a node in the node's place; the node, with the
 * other tokens, becomes its only child. Returns the new node. */
static uint32_t split(prompt_tree *t, hash_slot *slot, uint32_t count) {
    uint32_t lower = slot->item, upper = t->nnodes;
    tree_node above = t->nodes[lower];
    above.count = count;
    above.first_child = above.last_child = lower;
    slot->item = upper;
    ARRAY_PUSH(t->nodes, t->nnodes, t->nodes_cap, above);
    tree_node *below = &t->nodes[lower], *parent = &t->nodes[above.parent];
    *(above.prev ? &t->nodes[above.prev].next : &parent->first_child) = upper;
    *(above.next ? &t->nodes[above.next].prev : &parent->last_child) = upper;
    below->tokens += count;
    below->count -= count;
    below->parent = upper;
    below->prev = below->next = TREE_NONE;
    hash_index_add(&t->index, child_hash(upper, below->tokens[0]), lower);
    return upper;
}

int prompt_tree_add(prompt_tree *t, const llm_token *tokens, int count) {
    uint32_t at = TREE_ROOT;
    int shared = 0;
    t->sent += (uint64_t)count;
    t->nodes[TREE_ROOT].prompts++;
    while (shared < count) {
        hash_slot *slot = find_child(t, at, tokens[shared]);
        if (!slot) {
            add_leaf(t, at, tokens + shared, count - shared);
            break;
        }
        const tree_node *child = &t->nodes[slot->item];
        uint32_t common = 1, most = BASE_MIN(child->count, (uint32_t)(count - shared));
        while (common < most && child->tokens[common] == tokens[shared + (int)common])
            common++;
        at = common < child->count ? split(t, slot, common) : slot->item;
        shared += (int)common;
        t->nodes[at].prompts++;
    }
    return shared;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Appends text that is no control token: ⟦ and ⟧ (E2 9F A6 and A7) become [ and ]. */
static void append_plain(buf *out, str text) {
    for (size_t i = 0; i < text.n; i++)
        if (i + 2 < text.n && memcmp(text.p + i, "\xe2\x9f", 2) == 0 &&
            ((unsigned char)text.p[i + 2] & 0xfe) == 0xa6) {
            buf_append_char(out, (unsigned char)text.p[i + 2] == 0xa6 ? '[' : ']');
            i += 2;
        } else {
            buf_append_char(out, text.p[i]);
        }
}

void prompt_text(const llm_engine *engine, const llm_token *tokens, size_t count, buf *out) {
    buf plain = {0};
    for (size_t i = 0; i < count; i++) {
        size_t before = plain.n;
        llm_detokenize(engine, &tokens[i], 1, false, &plain);
        if (plain.n > before)
            continue;
        append_plain(out, buf_str(&plain));
        buf_clear(&plain);
        buf_append_c(out, "⟦");
        llm_detokenize(engine, &tokens[i], 1, true, out);
        buf_append_c(out, "⟧");
    }
    append_plain(out, buf_str(&plain));
    buf_free(&plain);
}

static bool is_letter(char c) {
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

/* Whether text may end within a word: it ends in a letter, and not in a control token. */
static bool ends_in_letter(str text) {
    static const char token_end[] = "⟧";
    size_t n = sizeof token_end - 1;
    return text.n > 0 && is_letter(text.p[text.n - 1]) &&
           (text.n < n || memcmp(text.p + text.n - n, token_end, n) != 0);
}

void prompt_branch_text(const llm_engine *engine, const llm_token *first, int nfirst,
                        const llm_token *before, int nbefore, bool whole, buf *out) {
    buf text = {0}, above = {0};
    prompt_text(engine, first, (size_t)nfirst, &text);
    prompt_text(engine, before, (size_t)nbefore, &above);
    str s = text.n ? utf8_whole(buf_str(&text)) : STR("");
    if (ends_in_letter(buf_str(&above)) && s.n && is_letter(s.p[0]))
        buf_append_c(out, "…");
    s = str_trim(s, " ");
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\n')
            buf_append_c(out, "↵");
        else
            buf_append_char(out, s.p[i]);
    buf_append_c(out, whole ? "" : " …");
    buf_free(&text);
    buf_free(&above);
}

/* ---- what is shown --------------------------------------------------------------------------- */

/* BRANCHES: most inner nodes whose children are shown. SMALL: the subtree of such a node saves at
 * least this fraction of what the largest one below the top saves. ALL, SOME: of children without a
 * line of their own that follow each other, up to ALL are shown, else the first SOME. */
enum { BRANCHES = 12, SMALL = 20, ALL = 3, SOME = 2 };

/* Sums over a node and all nodes below it. */
typedef struct subtree {
    uint64_t tokens;
    uint64_t saved; /* number of tokens that prompts need not compute because they share nodes */
} subtree;

typedef struct tree_printer {
    const prompt_tree *tree;
    subtree *sums; /* by node */
    bool *shown;   /* by node: it has a line, and lines for its children */
    buf indent;
    buf *out;
} tree_printer;

/* Returns the node after `at` in a depth-first walk; TREE_NONE: none. */
static uint32_t next_node(const prompt_tree *t, uint32_t at) {
    if (t->nodes[at].first_child)
        return t->nodes[at].first_child;
    while (at != TREE_ROOT && !t->nodes[at].next)
        at = t->nodes[at].parent;
    return t->nodes[at].next;
}

static void add_up(tree_printer *p) {
    const tree_node *nodes = p->tree->nodes;
    uint32_t *order = mem_alloc(sizeof *order * p->tree->nnodes), n = 0, at = TREE_ROOT;
    do
        order[n++] = at;
    while ((at = next_node(p->tree, at)) != TREE_NONE);
    while (n-- > 1) { /* children before their parents */
        const tree_node *node = &nodes[order[n]];
        subtree *own = &p->sums[order[n]], *above = &p->sums[node->parent];
        own->tokens += node->count;
        own->saved += (uint64_t)(node->prompts - 1) * node->count;
        above->tokens += own->tokens;
        above->saved += own->saved;
    }
    free(order);
}

/* Returns the inner node below the shown ones whose subtree saves most. */
static uint32_t next_branch(const tree_printer *p) {
    const tree_node *nodes = p->tree->nodes;
    uint32_t best = TREE_NONE;
    for (uint32_t i = TREE_ROOT + 1; i < p->tree->nnodes; i++)
        if (!p->shown[i] && p->shown[nodes[i].parent] && nodes[i].first_child &&
            (best == TREE_NONE || p->sums[i].saved > p->sums[best].saved))
            best = i;
    return best;
}

static void choose_branches(tree_printer *p, uint32_t top) {
    uint64_t most = 0;
    uint32_t next;
    p->shown[top] = true;
    for (int n = 1; n < BRANCHES && (next = next_branch(p)) != TREE_NONE; n++) {
        most = BASE_MAX(most, p->sums[next].saved);
        if (p->sums[next].saved * SMALL < most)
            break;
        p->shown[next] = true;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void print_number(buf *out, uint64_t n, int width) {
    buf number = {0};
    buf_append_count(&number, n);
    buf_printf(out, "%*s  ", width, number.p);
    buf_free(&number);
}

static void begin_line(tree_printer *p, uint64_t prompts, uint64_t tokens, const char *branch) {
    print_number(p->out, prompts, 9);
    print_number(p->out, tokens, 11);
    buf_append_str(p->out, buf_str(&p->indent));
    buf_append_c(p->out, branch);
}

/* Prints the beginning of a node's text. */
static void print_text(tree_printer *p, uint32_t at) {
    const tree_node *n = &p->tree->nodes[at], *up = &p->tree->nodes[n->parent];
    int count = (int)BASE_MIN(n->count, (uint32_t)LLM_BRANCH_TOKENS),
        before = (int)BASE_MIN(up->count, (uint32_t)LLM_BRANCH_BEFORE);
    const llm_token *end = up->count > 0 ? up->tokens + up->count : NULL;
    prompt_branch_text(p->tree->engine, n->tokens, count, before ? end - before : NULL, before,
                       (uint32_t)count == n->count, p->out);
    buf_append_char(p->out, '\n');
}

/* Prints one line for the children from `first` up to `end`, which is not among them. */
static void print_rest(tree_printer *p, uint32_t first, uint32_t end) {
    const tree_node *nodes = p->tree->nodes;
    uint64_t prompts = 0, tokens = 0, children = 0;
    uint32_t least = UINT32_MAX, most = 0;
    bool leaves = true;
    for (uint32_t i = first; i != end; i = nodes[i].next, children++) {
        prompts += nodes[i].prompts;
        tokens += p->sums[i].tokens;
        leaves = leaves && !nodes[i].first_child;
        least = BASE_MIN(least, nodes[i].count);
        most = BASE_MAX(most, nodes[i].count);
    }
    begin_line(p, prompts, tokens, end == TREE_NONE ? "└─ … " : "├─ … ");
    buf_append_count(p->out, children);
    if (!leaves)
        buf_append_c(p->out, " more branches");
    else if (least == most)
        buf_printf(p->out, " more, %u token%s each", least, least == 1 ? "" : "s");
    else
        buf_printf(p->out, " more, %u to %u tokens each", least, most);
    buf_append_char(p->out, '\n');
}

static void print_children(tree_printer *p, uint32_t parent);

/* Prints a node's line and, if it is shown, its children. If it is not, the line begins with + and
 * its tokens include the nodes below it. */
static void print_child(tree_printer *p, uint32_t at) {
    const tree_node *n = &p->tree->nodes[at];
    size_t indent = p->indent.n;
    bool last = n->next == TREE_NONE;
    begin_line(p, n->prompts, p->shown[at] ? n->count : p->sums[at].tokens, last ? "└─ " : "├─ ");
    buf_append_c(p->out, p->shown[at] || !n->first_child ? "" : "+ ");
    print_text(p, at);
    if (!p->shown[at])
        return;
    buf_append_c(&p->indent, last ? "   " : "│  ");
    print_children(p, at);
    p->indent.n = indent;
    p->indent.p[indent] = 0;
}

static void print_children(tree_printer *p, uint32_t parent) {
    const tree_node *nodes = p->tree->nodes;
    for (uint32_t at = nodes[parent].first_child, end; at != TREE_NONE; at = end) {
        int run = 0;
        for (end = at; end != TREE_NONE && !p->shown[end]; end = nodes[end].next)
            run++;
        for (int k = run <= ALL ? run : SOME; k > 0; k--, at = nodes[at].next)
            print_child(p, at);
        if (run > ALL)
            print_rest(p, at, end);
        if (run == 0) {
            print_child(p, at);
            end = nodes[at].next;
        }
    }
}

void prompt_tree_print(const prompt_tree *t, buf *out) {
    tree_printer p = {.tree = t,
                      .sums = mem_zalloc(sizeof(subtree) * t->nnodes),
                      .shown = mem_zalloc(t->nnodes),
                      .out = out};
    const tree_node *root = &t->nodes[TREE_ROOT];
    /* what all prompts share is the tree's first line */
    uint32_t top =
        root->first_child && !t->nodes[root->first_child].next ? root->first_child : TREE_ROOT;
    buf_append_c(out, "  prompts       tokens  text\n");
    add_up(&p);
    choose_branches(&p, top);
    begin_line(&p, root->prompts, t->nodes[top].count, "");
    if (top == TREE_ROOT)
        buf_append_c(out, "(the prompts share nothing)\n");
    else
        print_text(&p, top);
    print_children(&p, top);
    buf_free(&p.indent);
    free(p.sums);
    free(p.shown);
}
