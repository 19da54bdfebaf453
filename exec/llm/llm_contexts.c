/*
 * llm_contexts.c - the texts of contexts => as one value of a call's field: a line each, in the order
 * in which they are sent.
 *
 * Retrieved texts are a set: their order may be chosen so that prompts begin alike. The order is that
 * of a greedy tree: of a group of sets, the text that saves most, which is that of (sets that have it
 * - 1) * length, comes first in all sets that have it; these become a group without that text, and
 * the rest of the group goes on likewise. Texts that no other set of the group has follow as they
 * were retrieved.
 *
 * Invariant: a line break inside a text becomes a space, so lines of a value are texts, and two sets
 * have different values. The orders depend on the sets alone, not on the order of rows.
 */
#include <stdlib.h>
#include <string.h>

#include "llm_int.h"
#include "storage/containers.h"

struct context_sets {
    arena *mem;
    hash_index by_text, by_set;
    str *texts;
    uint32_t ntexts, texts_room;
    uint32_t *items;  /* texts of all sets, of each set as retrieved */
    uint32_t *sorted; /* the same, of each set in ascending order */
    uint32_t nitems, items_room, sorted_room;
    uint32_t *start; /* by set: its first item; start[nsets] is nitems */
    uint32_t nsets, start_room;
};

int contexts_read(const llm_call *call, str json, arena *mem, str **out, int *n, err *e) {
    buf clean = {0};
    int read = 0;
    *n = 0;
    if (!json_texts(json, mem, out, &read)) {
        err_set_at(e, ERR_TYPE, call->pos, call->len,
                   "the contexts of %.*s are no JSON array of texts: %.*s%s", (int)call->label.n,
                   call->label.p, (int)utf8_fit(json, 60), json.p, json.n > 60 ? "…" : "");
        err_hint(e, "contexts => (SELECT body FROM docs ORDER BY … LIMIT 3), or "
                    "json_group_array(body)");
        return ERR_TYPE;
    }
    for (int i = 0; i < read; i++) {
        if ((*out)[i].n == 0)
            continue;
        buf_clear(&clean);
        prompt_append_cell(&clean, (*out)[i]);
        (*out)[(*n)++] = str_copy(mem, buf_str(&clean));
    }
    buf_free(&clean);
    return 0;
}

str contexts_join(const str *texts, int n, arena *mem) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += texts[i].n + 1;
    char *p = arena_alloc(mem, bytes + 1), *at = p;
    for (int i = 0; i < n; i++) {
        memcpy(at, texts[i].p, texts[i].n);
        at += texts[i].n;
        *at++ = '\n';
    }
    return (str){p, bytes ? bytes - 1 : 0};
}

/* ---- sets ------------------------------------------------------------------------------------ */

context_sets *contexts_new(workmem *space) {
    arena *mem = arena_new_in(space);
    context_sets *s = ARENA_NEW(mem, context_sets);
    s->mem = s->by_text.mem = s->by_set.mem = mem;
    ARENA_RESERVE(mem, s->start, 1, s->start_room);
    s->start[0] = 0;
    return s;
}

void contexts_free(context_sets *s) {
    if (s)
        arena_free(s->mem);
}

static uint32_t text_intern(context_sets *s, str text) {
    uint64_t h = hash64(text.p, text.n, 0);
    for (hash_slot *x = hash_index_first(&s->by_text, h); x; x = hash_index_next(&s->by_text, x))
        if (str_equal(s->texts[x->item], text))
            return x->item;
    hash_index_add(&s->by_text, h, s->ntexts);
    ARENA_PUSH(s->mem, s->texts, s->ntexts, s->texts_room, str_copy(s->mem, text));
    return s->ntexts - 1;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool set_equal(const context_sets *s, uint32_t set, const uint32_t *sorted, uint32_t n) {
    return s->start[set + 1] - s->start[set] == n &&
           memcmp(s->sorted + s->start[set], sorted, sizeof *sorted * n) == 0;
}

uint32_t contexts_intern(context_sets *s, const str *texts, int n) {
    uint32_t from = s->nitems, count = 0, *items, *sorted;
    ARENA_RESERVE(s->mem, s->items, from + (uint32_t)n, s->items_room);
    ARENA_RESERVE(s->mem, s->sorted, from + (uint32_t)n, s->sorted_room);
    items = s->items + from;
    sorted = s->sorted + from;
    for (int i = 0; i < n; i++) {
        uint32_t text = text_intern(s, texts[i]), k = 0;
        while (k < count && items[k] != text)
            k++;
        items[k] = sorted[k] = text;
        count += k == count;
    }
    qsort(sorted, count, sizeof *sorted, by_number);
    uint64_t h = hash64(sorted, sizeof *sorted * count, 1);
    for (hash_slot *x = hash_index_first(&s->by_set, h); x; x = hash_index_next(&s->by_set, x))
        if (set_equal(s, x->item, sorted, count))
            return x->item;
    hash_index_add(&s->by_set, h, s->nsets);
    s->nitems += count;
    ARENA_RESERVE(s->mem, s->start, s->nsets + 2, s->start_room);
    s->start[++s->nsets] = s->nitems;
    return s->nsets - 1;
}

/* ---- the greedy tree ------------------------------------------------------------------------- */

/* A group of sets, members[from] to members[to - 1], which have all texts that they have sent so far
 * in common. */
typedef struct group {
    uint32_t from, to;
} group;

typedef struct tree {
    const context_sets *s;
    uint32_t *sent;    /* by set: number of texts whose places are decided */
    uint32_t *members; /* sets; a group's are adjacent */
    uint32_t *moved;   /* scratch: new order of a group's members */
    bool *taken;       /* by set: it is in a smaller group already */
    uint32_t *count;   /* by text: sets of the group that have it and are not taken; else 0 */
    uint32_t *begin;   /* by text: its first holder */
    uint32_t *fill;    /* by text: scratch */
    uint32_t *holders; /* sets of the group, by text */
    uint32_t *heap;    /* texts of the group; the one that saves most comes first */
    uint64_t *saves;   /* by text: what it saved when it was put where it is in the heap */
    uint32_t nheap;
    group *groups; /* still to be ordered */
    uint32_t ngroups, groups_room;
    arena *mem;
} tree;

static uint64_t saving(const tree *t, uint32_t text) {
    return t->count[text] < 2 ? 0 : (t->count[text] - 1) * (uint64_t)t->s->texts[text].n;
}

static bool saves_more(const tree *t, uint32_t a, uint32_t b) {
    if (t->saves[a] != t->saves[b])
        return t->saves[a] > t->saves[b];
    return str_compare(t->s->texts[a], t->s->texts[b]) < 0;
}

static void heap_sink(tree *t, uint32_t at) {
    uint32_t text = t->heap[at];
    for (uint32_t child; (child = 2 * at + 1) < t->nheap; at = child) {
        child += child + 1 < t->nheap && saves_more(t, t->heap[child + 1], t->heap[child]);
        if (!saves_more(t, t->heap[child], text))
            break;
        t->heap[at] = t->heap[child];
    }
    t->heap[at] = text;
}

/* Returns the text that saves most; false: none saves anything. What a text saves only shrinks, so
 * the first one in the heap is right once its saving is up to date. */
static bool best_text(tree *t, uint32_t *out) {
    while (t->nheap > 0) {
        uint32_t text = t->heap[0];
        uint64_t now = saving(t, text);
        if (now > 0 && now == t->saves[text]) {
            *out = text;
            return true;
        }
        t->saves[text] = now;
        if (now == 0)
            t->heap[0] = t->heap[--t->nheap];
        heap_sink(t, 0);
    }
    return false;
}

static uint32_t *unsent(const tree *t, uint32_t set, uint32_t *n) {
    uint32_t from = t->s->start[set] + t->sent[set];
    *n = t->s->start[set + 1] - from;
    return t->s->items + from;
}

/* Fills the heap with the texts that the sets of a group have, and finds who has each. */
static void find_texts(tree *t, const group *g) {
    uint32_t n, at = 0, ntexts = 0;
    for (uint32_t i = g->from; i < g->to; i++) {
        const uint32_t *items = unsent(t, t->members[i], &n);
        for (uint32_t k = 0; k < n; k++)
            if (t->count[items[k]]++ == 0)
                t->heap[ntexts++] = items[k];
    }
    for (uint32_t k = 0; k < ntexts; k++) {
        t->begin[t->heap[k]] = t->fill[t->heap[k]] = at;
        at += t->count[t->heap[k]];
    }
    for (uint32_t i = g->from; i < g->to; i++) {
        const uint32_t *items = unsent(t, t->members[i], &n);
        for (uint32_t k = 0; k < n; k++)
            t->holders[t->fill[items[k]]++] = t->members[i];
    }
    t->nheap = ntexts;
    for (uint32_t k = 0; k < ntexts; k++)
        t->saves[t->heap[k]] = saving(t, t->heap[k]);
    for (uint32_t k = ntexts / 2; k-- > 0;)
        heap_sink(t, k);
}

/* Makes `text` the next one of a set. The others stay as retrieved. */
static void send_next(tree *t, uint32_t set, uint32_t text) {
    uint32_t n, at = 0, *items = unsent(t, set, &n);
    while (items[at] != text)
        at++;
    memmove(items + 1, items, sizeof *items * at);
    items[0] = text;
    t->sent[set]++;
}

/* Moves the sets with `text` that are not taken into a group of their own, at members[at]. */
static uint32_t take_holders(tree *t, uint32_t text, uint32_t at) {
    group taken = {at, at};
    uint32_t n;
    for (uint32_t k = t->begin[text]; k < t->fill[text]; k++) {
        uint32_t set = t->holders[k];
        if (t->taken[set])
            continue;
        const uint32_t *items = unsent(t, set, &n);
        for (uint32_t i = 0; i < n; i++)
            t->count[items[i]]--;
        t->taken[set] = true;
        send_next(t, set, text);
        t->moved[taken.to++] = set;
    }
    ARENA_PUSH(t->mem, t->groups, t->ngroups, t->groups_room, taken);
    return taken.to;
}

/* Splits a group by the texts that its sets send next. */
static void order_group(tree *t, const group *g) {
    uint32_t at = g->from, text, n;
    find_texts(t, g);
    while (best_text(t, &text))
        at = take_holders(t, text, at);
    for (uint32_t i = g->from; i < g->to; i++) {
        uint32_t set = t->members[i];
        const uint32_t *items = unsent(t, set, &n);
        for (uint32_t k = 0; k < n && !t->taken[set]; k++)
            t->count[items[k]] = 0;
    }
    for (uint32_t i = g->from; i < at; i++) {
        t->members[i] = t->moved[i];
        t->taken[t->moved[i]] = false;
    }
}

int contexts_order(context_sets *s, const atomic_bool *cancel, err *e) {
    uint32_t *by_text[] = {NULL, NULL, NULL, NULL};
    arena *mem = s->mem;
    for (size_t i = 0; i < BASE_COUNT(by_text); i++)
        by_text[i] = ARENA_ARRAY(mem, uint32_t, s->ntexts + 1);
    tree t = {.s = s,
              .sent = ARENA_ARRAY(mem, uint32_t, s->nsets + 1),
              .members = ARENA_ARRAY(mem, uint32_t, s->nsets + 1),
              .moved = ARENA_ARRAY(mem, uint32_t, s->nsets + 1),
              .taken = ARENA_ARRAY(mem, bool, s->nsets + 1),
              .count = by_text[0],
              .begin = by_text[1],
              .fill = by_text[2],
              .heap = by_text[3],
              .holders = ARENA_ARRAY(mem, uint32_t, s->nitems + 1),
              .saves = ARENA_ARRAY(mem, uint64_t, s->ntexts + 1),
              .mem = mem};
    for (uint32_t i = 0; i < s->nsets; i++)
        t.members[i] = i;
    group all = {0, s->nsets};
    ARENA_PUSH(mem, t.groups, t.ngroups, t.groups_room, all);
    while (t.ngroups > 0) {
        group g = t.groups[--t.ngroups];
        if (check_cancel(cancel, e))
            return ERR_CANCELLED;
        if (g.to - g.from > 1)
            order_group(&t, &g);
    }
    return 0;
}

uint32_t contexts_count(const context_sets *s) {
    return s->nsets;
}

str contexts_text(const context_sets *s, uint32_t set, arena *mem) {
    uint32_t n = s->start[set + 1] - s->start[set];
    str *texts = ARENA_ARRAY(s->mem, str, n + 1);
    for (uint32_t i = 0; i < n; i++)
        texts[i] = s->texts[s->items[s->start[set] + i]];
    return contexts_join(texts, (int)n, mem);
}
