/*
 * guard.c - verifies pages before LMDB reads them (what and why: guard_int.h).
 *
 * Invariant: no byte of a page is used before page_verify has accepted the page.
 */
#include <stdlib.h>
#include <string.h>

#include "guard_int.h"

/* A page on the path from the root to a leaf. */
typedef struct step {
    uint64_t page;
    int nodes;
    int at; /* index of the child that the path takes */
    bool leaf;
    MDB_val low, high; /* as in guard_range: the keys that the page may have */
} step;

typedef struct path {
    step steps[PAGE_DEPTH_MAX];
    int n;
} path;

void guard_free(page_guard *g) {
    free(g->seen);
    free(g->uses);
    *g = (page_guard){0};
}

/* ---- faults ---------------------------------------------------------------------------------- */

static bool fault(page_guard *g, uint64_t page, const char *what, const MDB_val *low,
                  const MDB_val *high) {
    g->fault = (guard_fault){.what = what, .page = page};
    if (low)
        g->fault.low = *low;
    if (high)
        g->fault.high = *high;
    return false;
}

static bool value_fault(page_guard *g, uint64_t page, const char *what, MDB_val key) {
    g->fault = (guard_fault){.what = what, .page = page, .low = key, .of_value = true};
    return false;
}

/* ---- the marks ------------------------------------------------------------------------------- */

static bool has_mark(const page_guard *g, uint64_t page, uint16_t mark) {
    return page < g->seen_pages && mark && g->seen[page] == mark;
}

static void set_mark(page_guard *g, uint64_t page, uint16_t mark) {
    if (page < g->seen_pages)
        g->seen[page] = mark;
}

/* The mark of overflow pages that were verified as the value of a key: a damaged page number may name
 * those of another value. Differs from the marks of trees. */
static uint16_t value_mark(const guard_tree *t, MDB_val key, size_t bytes) {
    enum { FIRST = 0x1000, COUNT = 0xe000 };
    uint64_t h = hash64(key.mv_data, key.mv_size, bytes ^ (uint64_t)t->mark << 48);
    return t->mark ? (uint16_t)(FIRST + h % COUNT) : 0;
}

static bool free_list_has(page_guard *g, const page_meta *meta, uint64_t page);

/* Whether a page is in the free list of a commit, as far as that was marked. This process's commits
 * since then may have taken the page from the list: then it is looked up, once. */
static bool is_free(page_guard *g, const page_meta *meta, uint64_t page) {
    if (!meta || page >= g->seen_pages || g->seen[page] != GUARD_MARK_FREE ||
        meta->txn + 1 < g->mark_txn)
        return false;
    if (meta->txn + 1 == g->mark_txn || free_list_has(g, meta, page))
        return true;
    g->seen[page] = 0;
    return false;
}

static void seen_resize(page_guard *g, uint64_t pages) {
    if (pages <= g->seen_pages)
        return;
    uint64_t room = BASE_MAX((pages | 0xffff) + 1, g->seen_pages * 2);
    g->seen = mem_realloc(g->seen, room * sizeof *g->seen);
    memset(g->seen + g->seen_pages, 0, (room - g->seen_pages) * sizeof *g->seen);
    g->seen_pages = room;
}

/* ---- one page -------------------------------------------------------------------------------- */

/* LMDB leaves a value that became short in its overflow pages. Values of this size are otherwise on
 * their leaf and verified with it, so this one is as well. */
static bool check_short_value(page_guard *g, const guard_tree *t, const page_node *n, MDB_val key) {
    const uint8_t *bytes;
    const char *what = page_overflow(&g->file, n->child, n->data_bytes, &bytes);
    MDB_val stored = {n->data_bytes, (void *)(uintptr_t)bytes};
    if (what)
        return value_fault(g, n->child, what, key);
    return !t->has_sums || sum_verify(&t->sums, key, stored, SUM_BOTH) ||
           value_fault(g, n->child, "does not match its checksum", key);
}

static bool check_values(page_guard *g, const guard_tree *t, uint64_t page, int nodes) {
    for (int i = 0; i < nodes; i++) {
        page_node n = page_get_node(&g->file, page, true, i);
        MDB_val key = {n.key_bytes, (void *)(uintptr_t)n.key};
        MDB_val stored = {n.data_bytes, (void *)(uintptr_t)n.data};
        if (n.flags == F_SUBDATA && (!t->of_trees || n.data_bytes != sizeof(page_tree)))
            return value_fault(g, page, "is of an unknown kind", key);
        if (t->has_sums && n.data && !sum_verify(&t->sums, key, stored, SUM_BOTH))
            return value_fault(g, page, "does not match its checksum", key);
        if (!n.data && n.data_bytes <= g->inline_bytes && !check_short_value(g, t, &n, key))
            return false;
    }
    return true;
}

static inline MDB_val node_key(const page_guard *g, const step *s, int index) {
    const uint8_t *p = page_at(&g->file, s->page);
    const uint8_t *node = p + page_load16(p + PAGE_HEADER + 2 * (size_t)index);
    return (MDB_val){page_load16(node + 6), (void *)(uintptr_t)(node + NODE_HEADER)};
}

static inline int compare(const guard_tree *t, MDB_val a, MDB_val b) {
    return page_compare_keys(t->free_list, a.mv_data, a.mv_size, b.mv_data, b.mv_size);
}

/* Verifies the page of a step, whose `page`, `low` and `high` are set, at a depth from 1. */
static bool enter(page_guard *g, const guard_tree *t, step *s, int depth) {
    if (has_mark(g, s->page, t->mark) && page_in_file(&g->file, s->page, 1)) {
        page_shape(&g->file, s->page, &s->leaf, &s->nodes);
    } else if (is_free(g, t->free_of, s->page)) {
        return fault(g, s->page, "is of an older commit: it is in the list of free pages", &s->low,
                     &s->high);
    } else {
        const char *what = page_verify(&g->file, s->page, t->free_list, &s->leaf, &s->nodes);
        if (what)
            return fault(g, s->page, what, &s->low, &s->high);
        if (s->leaf && !check_values(g, t, s->page, s->nodes))
            return false;
        set_mark(g, s->page, t->mark);
    }
    if (s->leaf != (depth == t->record.depth))
        return fault(g, s->page, "is at a wrong depth of its tree", &s->low, &s->high);
    int first = s->leaf ? 0 : 1;
    if ((s->low.mv_size && compare(t, node_key(g, s, first), s->low) < 0) ||
        (s->high.mv_data && compare(t, node_key(g, s, s->nodes - 1), s->high) >= 0))
        return fault(g, s->page, "has keys that belong elsewhere", &s->low, &s->high);
    return true;
}

/* Verifies child `index` of a branch and sets *out to it. */
static bool enter_child(page_guard *g, const guard_tree *t, const step *s, int index, int depth,
                        step *out) {
    *out = (step){.page = page_get_node(&g->file, s->page, false, index).child,
                  .low = index ? node_key(g, s, index) : s->low,
                  .high = index + 1 < s->nodes ? node_key(g, s, index + 1) : s->high};
    return enter(g, t, out, depth);
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* Index of the child whose keys include `key`: the last whose first key is not above it. */
static int child_of(const page_guard *g, const guard_tree *t, const step *s, MDB_val key) {
    int low = 1, high = s->nodes;
    while (low < high) {
        int middle = (low + high) / 2;
        if (compare(t, node_key(g, s, middle), key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static bool descend(page_guard *g, const guard_tree *t, path *p, guard_place place, MDB_val key) {
    while (!p->steps[p->n - 1].leaf) {
        step *s = &p->steps[p->n - 1];
        s->at = place == GUARD_FIRST  ? 0
                : place == GUARD_LAST ? s->nodes - 1
                                      : child_of(g, t, s, key);
        if (p->n == PAGE_DEPTH_MAX)
            return fault(g, s->page, "is too deep", &s->low, &s->high);
        if (!enter_child(g, t, s, s->at, p->n + 1, &p->steps[p->n]))
            return false;
        p->n++;
    }
    return true;
}

/* Moves to the next leaf (by = 1) or the one before (by = -1); *moved = false: there is none. */
static bool move_leaf(page_guard *g, const guard_tree *t, path *p, int by, bool *moved) {
    int n = p->n - 1;
    while (n > 0 &&
           (p->steps[n - 1].at + by < 0 || p->steps[n - 1].at + by >= p->steps[n - 1].nodes))
        n--;
    *moved = n > 0;
    if (n == 0)
        return true;
    p->n = n;
    p->steps[n - 1].at += by;
    if (!enter_child(g, t, &p->steps[n - 1], p->steps[n - 1].at, n + 1, &p->steps[n]))
        return false;
    p->n++;
    return descend(g, t, p, by > 0 ? GUARD_FIRST : GUARD_LAST, (MDB_val){0, NULL});
}

/* Verifies up to `count` leaves on one side of a path's leaf. *last (may be NULL): the last but one of
 * these, or the last if there are no more. */
static bool check_beside(page_guard *g, const guard_tree *t, const path *from, int by, int count,
                         step *last) {
    path p;
    bool moved = true;
    p.n = from->n;
    memcpy(p.steps, from->steps, (size_t)p.n * sizeof *p.steps);
    for (int i = 0; i < count && moved; i++) {
        if (last)
            *last = p.steps[p.n - 1];
        if (!move_leaf(g, t, &p, by, &moved))
            return false;
    }
    return true;
}

/* Deletions merge a page with one beside it under the same parent, at each depth. */
static bool check_siblings(page_guard *g, const guard_tree *t, const path *p) {
    enum { REACH = 2 };
    for (int depth = 0; depth + 1 < p->n; depth++) {
        const step *s = &p->steps[depth];
        for (int at = BASE_MAX(s->at - REACH, 0); at <= s->at + REACH && at < s->nodes; at++) {
            step sibling;
            if (!enter_child(g, t, s, at, depth + 2, &sibling))
                return false;
        }
    }
    return true;
}

static bool path_to(page_guard *g, const guard_tree *t, guard_place place, MDB_val key, path *p) {
    p->n = 1;
    p->steps[0] = (step){.page = t->record.root};
    return enter(g, t, &p->steps[0], 1) && descend(g, t, p, place, key);
}

/* ---- whole trees ----------------------------------------------------------------------------- */

/* Verifies the headers of a leaf's overflow pages, and adds their number to *pages. */
static bool count_overflow_pages(page_guard *g, const step *s, uint64_t *pages) {
    for (int i = 0; i < s->nodes; i++) {
        page_node n = page_get_node(&g->file, s->page, true, i);
        const uint8_t *bytes;
        if (!(n.flags & F_BIGDATA))
            continue;
        const char *what = page_overflow(&g->file, n.child, n.data_bytes, &bytes);
        if (what)
            return fault(g, n.child, what, &s->low, &s->high);
        *pages += page_overflow_run(&g->file, n.child);
    }
    return true;
}

/* What verify_below verifies besides branches. */
typedef enum extent { BRANCHES, LEAVES, OVERFLOW_HEADERS } extent;

/* *pages: as in count_overflow_pages. */
static bool verify_below(page_guard *g, const guard_tree *t, const step *s, int depth, extent x,
                         uint64_t *pages) {
    if (s->leaf)
        return x < OVERFLOW_HEADERS || count_overflow_pages(g, s, pages);
    if (depth == PAGE_DEPTH_MAX)
        return fault(g, s->page, "is too deep", &s->low, &s->high);
    if (depth + 1 == t->record.depth && x == BRANCHES)
        return true;
    for (int i = 0; i < s->nodes; i++) {
        step child;
        if (!enter_child(g, t, s, i, depth + 1, &child) ||
            !verify_below(g, t, &child, depth + 1, x, pages))
            return false;
    }
    return true;
}

static bool verify_tree(page_guard *g, const guard_tree *t, extent x) {
    step root = {.page = t->record.root};
    uint64_t pages = 0;
    if (root.page == NO_PAGE)
        return true;
    if (!enter(g, t, &root, 1) || !verify_below(g, t, &root, 1, x, &pages))
        return false;
    return x < OVERFLOW_HEADERS || pages == t->record.overflow_pages ||
           fault(g, root.page, "is the root of a tree whose overflow pages are miscounted", NULL,
                 NULL);
}

bool guard_emptying(page_guard *g, const guard_tree *t) {
    return verify_tree(g, t, t->record.overflow_pages ? OVERFLOW_HEADERS : BRANCHES);
}

/* ---- paths for LMDB ---- */

/* A write transaction verifies two leaves on both sides: of a leaf that it emptied, LMDB reads the
 * neighbour's neighbour. */
static uint64_t rowid_of(MDB_val key) {
    return __builtin_bswap64(page_load64(key.mv_data));
}

static void set_rowids(guard_range *r) {
    r->has_rowids =
        (r->low.mv_size == 0 || r->low.mv_size == 8) && (!r->high.mv_data || r->high.mv_size == 8);
    if (!r->has_rowids)
        return;
    r->low_rowid = r->low.mv_size ? rowid_of(r->low) : 0;
    r->span = (r->high.mv_data ? rowid_of(r->high) - 1 : UINT64_MAX) - r->low_rowid;
}

void guard_use_tree(page_guard *g, guard_tree *t, const page_meta *meta, bool write) {
    if (t->mark >= g->nuses) {
        uint32_t n = BASE_MAX(t->mark + 1u, g->nuses * 2);
        g->uses = mem_realloc(g->uses, n * sizeof *g->uses);
        memset(g->uses + g->nuses, 0, (n - g->nuses) * sizeof *g->uses);
        g->nuses = n;
    }
    uint64_t from = g->uses[t->mark].whole_from;
    t->commit = meta->txn;
    t->free_of = write ? meta : NULL;
    t->has_verified = t->counted = false;
    t->whole = !write && from && from <= t->commit + 1;
}

static void set_whole(page_guard *g, guard_tree *t) {
    t->whole = true;
    g->uses[t->mark].whole_from = t->commit + 1;
}

/* Many look-ups in a tree of moderate size cost less after all of it was verified. */
static bool worth_whole(page_guard *g, const guard_tree *t) {
    enum { WHOLE_PAGES_MAX = 1 << 15 };
    uint64_t pages = t->record.branch_pages + t->record.leaf_pages;
    return ++g->uses[t->mark].paths > pages && pages <= WHOLE_PAGES_MAX;
}

/* Adds a verified range to the keys that are verified from the first on. */
static void add_verified(page_guard *g, guard_tree *t, const guard_range *r) {
    if (r->low.mv_size && (!t->has_verified || compare(t, r->low, t->verified) > 0))
        return;
    if (!r->high.mv_data)
        set_whole(g, t);
    else if (!t->has_verified || compare(t, r->high, t->verified) > 0)
        t->verified = r->high;
    t->has_verified = true;
}

bool guard_path(page_guard *g, guard_tree *t, guard_place place, MDB_val key, guard_sides sides,
                int ahead, bool write, guard_range *out) {
    enum { WRITE_REACH = 2 };
    path p;
    step first, last;
    *out =
        (guard_range){.valid = true, .sides = GUARD_BOTH, .has_rowids = true, .span = UINT64_MAX};
    if (!t->whole && t->record.root != NO_PAGE && worth_whole(g, t) && verify_tree(g, t, LEAVES))
        set_whole(g, t);
    if (t->record.root == NO_PAGE || t->whole)
        return true;
    *out = (guard_range){0};
    if (!path_to(g, t, place, key, &p))
        return false;
    first = last = p.steps[p.n - 1];
    if (write) {
        sides = GUARD_BOTH;
        if (!check_beside(g, t, &p, 1, WRITE_REACH, NULL) ||
            !check_beside(g, t, &p, -1, WRITE_REACH, NULL) || !check_siblings(g, t, &p))
            return false;
    } else if (((sides & GUARD_RIGHT) && !check_beside(g, t, &p, 1, ahead, &last)) ||
               ((sides & GUARD_LEFT) && !check_beside(g, t, &p, -1, ahead, &first))) {
        return false;
    }
    *out = (guard_range){.valid = true, .sides = sides, .low = first.low, .high = last.high};
    set_rowids(out);
    add_verified(g, t, out);
    return true;
}

bool guard_find(page_guard *g, const guard_tree *t, MDB_val key, MDB_val *data, bool *found) {
    path p;
    *found = false;
    if (t->record.root == NO_PAGE)
        return true;
    if (!path_to(g, t, GUARD_KEY, key, &p))
        return false;
    const step *leaf = &p.steps[p.n - 1];
    int low = 0, high = leaf->nodes;
    while (low < high) {
        int middle = (low + high) / 2;
        if (compare(t, node_key(g, leaf, middle), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == leaf->nodes || compare(t, node_key(g, leaf, low), key) != 0)
        return true;
    page_node n = page_get_node(&g->file, leaf->page, true, low);
    const uint8_t *bytes = n.data;
    if (!bytes) {
        const char *what = page_overflow(&g->file, n.child, n.data_bytes, &bytes);
        if (what)
            return fault(g, n.child, what, &key, NULL);
    }
    *data = (MDB_val){n.data_bytes, (void *)(uintptr_t)bytes};
    *found = true;
    return true;
}

bool guard_named(page_guard *g, const page_meta *meta, const char *name, page_tree *out,
                 bool *found) {
    guard_tree main_tree = {.record = meta->trees[1], .mark = GUARD_MARK_MAIN, .of_trees = true};
    MDB_val key = {strlen(name), (void *)(uintptr_t)name}, data;
    if (!guard_find(g, &main_tree, key, &data, found))
        return false;
    if (!*found)
        return true;
    if (data.mv_size != sizeof *out)
        return value_fault(g, 0, "is not a tree's record", key);
    memcpy(out, data.mv_data, sizeof *out);
    if (out->flags != 0 || out->depth > PAGE_DEPTH_MAX ||
        (out->root != NO_PAGE && !page_in_file(&g->file, out->root, 1)))
        return value_fault(g, 0, "is not a tree's record", key);
    return true;
}

/* ---- the free list --------------------------------------------------------------------------- */

/* What is done with the records of the free list: all of it is verified and its pages are set in
 * `listed`, or if `listed` is NULL, one page is looked for. */
typedef struct free_visit {
    uint8_t *listed; /* a bit per page */
    uint64_t newest; /* the transaction that freed the last record's pages */
    uint64_t page;
    bool found;
} free_visit;

/* Verifies the page numbers of a record: descending, and each once in the whole list. */
static bool list_pages(const page_guard *g, const uint8_t *pages, uint64_t count, uint8_t *listed) {
    uint64_t before = UINT64_MAX;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t page = page_load64(pages + 8 * i);
        if (page < 2 || page > g->file.last_page || page >= before ||
            listed[page / 8] >> (page % 8) & 1)
            return false;
        listed[page / 8] |= (uint8_t)(1u << (page % 8));
        before = page;
    }
    return true;
}

static bool has_page(const uint8_t *pages, uint64_t count, uint64_t page) {
    uint64_t low = 0, high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2, at = page_load64(pages + 8 * middle);
        if (at == page)
            return true;
        if (at > page)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Visits a record of the free list: a count, then page numbers. */
static bool visit_free_record(page_guard *g, const step *s, int index, free_visit *v) {
    page_node n = page_get_node(&g->file, s->page, true, index);
    const uint8_t *bytes = n.data;
    const char *what = bytes ? NULL : page_overflow(&g->file, n.child, n.data_bytes, &bytes);
    if (!what && (n.data_bytes < 8 || page_load64(bytes) > n.data_bytes / 8 - 1))
        what = "has a free list of a wrong length";
    if (what)
        return fault(g, bytes ? s->page : n.child, what, NULL, NULL);
    uint64_t count = page_load64(bytes);
    if (!v->listed)
        v->found = v->found || has_page(bytes + 8, count, v->page);
    else if (!list_pages(g, bytes + 8, count, v->listed))
        return fault(g, s->page, "has a free list with wrong page numbers", NULL, NULL);
    v->newest = page_load64(n.key);
    return true;
}

static bool free_below(page_guard *g, const guard_tree *t, const step *s, int depth,
                       free_visit *v) {
    if (depth == PAGE_DEPTH_MAX)
        return fault(g, s->page, "is too deep", NULL, NULL);
    for (int i = 0; i < s->nodes; i++) {
        step child;
        if (s->leaf ? !visit_free_record(g, s, i, v)
                    : !enter_child(g, t, s, i, depth + 1, &child) ||
                          !free_below(g, t, &child, depth + 1, v))
            return false;
    }
    return true;
}

static bool visit_free_list(page_guard *g, const page_meta *meta, free_visit *v) {
    guard_tree t = {.record = meta->trees[0], .mark = GUARD_MARK_FREE_LIST, .free_list = true};
    step root = {.page = t.record.root};
    return enter(g, &t, &root, 1) && free_below(g, &t, &root, 1, v);
}

static bool free_list_has(page_guard *g, const page_meta *meta, uint64_t page) {
    free_visit v = {.page = page};
    return meta->trees[0].root != NO_PAGE && visit_free_list(g, meta, &v) && v.found;
}

static void mark_free(page_guard *g, const uint8_t *listed, uint64_t last_page) {
    for (uint64_t p = 0; g->mark_txn && p < g->seen_pages; p++) /* of an earlier list */
        g->seen[p] = g->seen[p] == GUARD_MARK_FREE ? 0 : g->seen[p];
    for (uint64_t at = 0; at <= last_page / 8; at++)
        for (unsigned bits = listed[at]; bits; bits &= bits - 1)
            g->seen[at * 8 + (unsigned)__builtin_ctz(bits)] = GUARD_MARK_FREE;
}

bool guard_free_list(page_guard *g, const page_meta *meta) {
    uint64_t root = meta->trees[0].root;
    if (root == NO_PAGE || g->free_txn == meta->txn + 1)
        return true;
    free_visit v = {.listed = mem_zalloc(g->file.last_page / 8 + 1)};
    bool sound = visit_free_list(g, meta, &v);
    /* Each commit replaces at least the root of the main tree, whose page it frees. */
    if (sound && v.newest != meta->txn)
        sound = fault(g, root, "is the root of an older list", NULL, NULL);
    if (sound) {
        mark_free(g, v.listed, g->file.last_page);
        g->free_txn = g->mark_txn = meta->txn + 1;
    }
    free(v.listed);
    return sound;
}

bool guard_free_list_is_short(const page_meta *meta) {
    enum { SHORT_PAGES = 64 };
    const page_tree *t = &meta->trees[0];
    return t->branch_pages + t->leaf_pages + t->overflow_pages <= SHORT_PAGES;
}

bool guard_main(page_guard *g, const page_meta *meta) {
    guard_tree t = {
        .record = meta->trees[1], .mark = GUARD_MARK_MAIN, .of_trees = true, .free_of = meta};
    bool sound = verify_tree(g, &t, LEAVES);
    if (!sound)
        g->main_txn = 0;
    return sound;
}

bool guard_root(page_guard *g, const page_meta *meta, const page_tree *record) {
    return record->root == NO_PAGE || !is_free(g, meta, record->root) ||
           fault(g, record->root, "is of an older commit: it is in the list of free pages", NULL,
                 NULL);
}

/* ---- transactions ---------------------------------------------------------------------------- */

bool guard_begin(page_guard *g, size_t file_bytes, uint64_t txn, page_meta *meta, bool *moved) {
    g->fault = (guard_fault){0};
    g->file.pages = file_bytes / g->file.page_bytes;
    if (moved)
        *moved = false;
    if (g->file.pages < 2)
        return fault(g, txn & 1, "is beyond the end of the file", NULL, NULL);
    page_meta again;
    const char *what = page_read_meta(&g->file, txn & 1, meta);
    const char *second = page_read_meta(&g->file, txn & 1, &again);
    /* Another process may be writing its second commit since `txn` to this page. */
    if (moved && (what != second || memcmp(meta, &again, sizeof again) != 0))
        *moved = true;
    if (what)
        return fault(g, txn & 1, what, NULL, NULL);
    if (meta->txn != txn || (moved && *moved)) {
        if (moved)
            *moved = *moved || meta->txn > txn;
        return fault(g, txn & 1, "is the meta page of another commit", NULL, NULL);
    }
    if (meta->last_page > g->file.pages + PAGES_BEYOND)
        return fault(g, txn & 1, "is a meta page whose last page is out of range", NULL, NULL);
    g->file.last_page = meta->last_page;
    if (g->txn != txn) {
        if (g->seen)
            memset(g->seen, 0, g->seen_pages * sizeof *g->seen);
        if (g->uses)
            memset(g->uses, 0, g->nuses * sizeof *g->uses);
        g->txn = txn;
        g->main_txn = g->free_txn = g->mark_txn = 0;
    }
    seen_resize(g, meta->last_page + 1);
    if (!guard_main(g, meta))
        return false;
    g->main_txn = txn + 1;
    g->meta = *meta;
    return true;
}

void guard_committed(page_guard *g, uint64_t txn) {
    if (g->free_txn == g->txn + 1)
        g->free_txn = txn + 1;
    g->txn = txn;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* LMDB frees as many pages of a value as their header says. That can be more than the value needs, so
 * the sum over the tree tells whether it is right. */
static bool run_is_right(page_guard *g, guard_tree *t) {
    t->counted = t->counted || verify_tree(g, t, OVERFLOW_HEADERS);
    return t->counted;
}

bool guard_value(page_guard *g, guard_tree *t, MDB_val key, MDB_val stored, sum_part parts) {
    uintptr_t map = (uintptr_t)g->file.map, at = (uintptr_t)stored.mv_data;
    size_t page_bytes = g->file.page_bytes;
    if (at < map || at >= map + g->file.pages * page_bytes ||
        (at - map) % page_bytes != PAGE_HEADER)
        return true;
    uint64_t page = (at - map) / page_bytes, count = page_overflow_count(&g->file, stored.mv_size);
    bool one = count == 1;
    if (page > g->file.last_page) /* the transaction's own, spilled to the file */
        return true;
    if (t->free_of && page_in_file(&g->file, page, 1) &&
        page_overflow_run(&g->file, page) > count && !run_is_right(g, t))
        return false;
    uint16_t mark = value_mark(t, key, stored.mv_size);
    if ((!(parts & SUM_HEAD) || has_mark(g, page, mark)) &&
        (one || !(parts & SUM_TAIL) || has_mark(g, page + 1, mark)))
        return true;
    const uint8_t *bytes;
    const char *what = page_overflow(&g->file, page, stored.mv_size, &bytes);
    if (what)
        return fault(g, page, what, &key, NULL);
    if (t->has_sums && !sum_verify(&t->sums, key, stored, one ? SUM_BOTH : parts))
        return value_fault(g, page, "does not match its checksum", key);
    if (one || (parts & SUM_HEAD))
        set_mark(g, page, mark);
    if (!one && (parts & SUM_TAIL))
        set_mark(g, page + 1, mark);
    return true;
}
