/*
 * walk_pages.c - walks a whole LMDB file without LMDB (what is verified, and the callers: walk_int.h).
 *
 * Invariants: whatever the file holds, no byte outside it is read, and no page is entered twice for
 * the same tree, so a walk ends. After a fault the walk goes on with the page's neighbours.
 */
#include <stdlib.h>
#include <string.h>

#include "walk_int.h"

/* A page on the path from the root to a leaf. */
typedef struct level {
    uint64_t page;
    int nodes, at;
    bool leaf;
    MDB_val low, high; /* as in walk_fault: the keys that the page may have */
} level;

static uint64_t load64(const void *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint16_t load16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static bool is_cancelled(const walk *w) {
    return w->cancel && atomic_load_explicit(w->cancel, memory_order_relaxed);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static int tell(walk *w, walk_tree *t, walk_fault f) {
    f.tree = t;
    if (t)
        t->faulty = true;
    return w->fault(w->arg, &f);
}

/* A page whose keys are lost. `leaf`: its nodes may be salvaged. */
static int tell_page(walk *w, walk_tree *t, const level *l, const char *what, bool leaf) {
    return tell(w, t,
                (walk_fault){.page = l->page,
                             .leaf = leaf ? l->page : 0,
                             .what = what,
                             .loses = true,
                             .low = l->low,
                             .high = l->high});
}

static int tell_value(walk *w, walk_tree *t, uint64_t page, uint64_t leaf, const char *what,
                      MDB_val key) {
    return tell(
        w, t,
        (walk_fault){
            .page = page, .leaf = leaf, .what = what, .loses = true, .of_value = true, .low = key});
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Records the owner of a run of pages; the first owner stays. False: one of them has an owner.
 * *again: the owner is this tree. */
static bool own_pages(walk *w, uint16_t owner, uint64_t first, uint64_t count, bool *again) {
    bool unused = true;
    *again = false;
    for (uint64_t p = first; p < first + count; p++) {
        if (w->owner[p] == WALK_NO_OWNER) {
            w->owner[p] = owner;
            continue;
        }
        unused = false;
        *again = *again || w->owner[p] == owner;
    }
    return unused;
}

/* What is wrong with a page that own_pages refused. */
static const char *conflict(walk *w, uint64_t page) {
    bool is_free = w->owner[page] == WALK_IS_FREE;
    w->shared += is_free;
    return is_free ? "is used and free" : "is used twice";
}

static int compare(const walk_tree *t, MDB_val a, MDB_val b) {
    return page_compare_keys(t->owner == WALK_FREE_LIST, a.mv_data, a.mv_size, b.mv_data,
                             b.mv_size);
}

static MDB_val node_key(const walk *w, const level *l, int index) {
    page_node n = page_get_node(&w->file, l->page, l->leaf, index);
    return (MDB_val){n.key_bytes, (void *)(uintptr_t)n.key};
}

/* Verifies the page of a level at a depth from 1. *entered = false: its keys are lost, which was
 * told. */
static int enter(walk *w, walk_tree *t, level *l, int depth, bool *entered) {
    bool again, last = depth >= t->record.depth;
    *entered = false;
    if (is_cancelled(w))
        return ERR_CANCELLED;
    if (!page_in_file(&w->file, l->page, 1))
        return tell_page(w, t, l, "is not in the file", false);
    int status = 0;
    /* A page that another tree has as well belongs to one of them, which the checksums of its values
     * tell: so it is read. */
    if (!own_pages(w, t->owner, l->page, 1, &again))
        status = again ? tell_page(w, t, l, "is used twice", last)
                       : tell(w, t, (walk_fault){.page = l->page, .what = conflict(w, l->page)});
    if (status || again)
        return status;
    /* A reference to a page beyond the file's end is told of that page, and the page's other nodes are
     * read all the same. */
    page_file endless = w->file;
    endless.pages = endless.last_page = (uint64_t)1 << 48;
    const char *what =
        page_verify(&endless, l->page, t->owner == WALK_FREE_LIST, &l->leaf, &l->nodes);
    if (what)
        return tell_page(w, t, l, what, last);
    if (l->leaf != (depth == t->record.depth))
        return tell_page(w, t, l, "is at a wrong depth of its tree", l->leaf);
    if ((l->low.mv_size && compare(t, node_key(w, l, l->leaf ? 0 : 1), l->low) < 0) ||
        (l->high.mv_data && compare(t, node_key(w, l, l->nodes - 1), l->high) >= 0))
        return tell_page(w, t, l, "has keys that belong elsewhere", l->leaf);
    if (l->leaf)
        t->found.leaf_pages++;
    else
        t->found.branch_pages++;
    *entered = true;
    return 0;
}

/* Finds the data of a value in overflow pages; *data stays NULL if they are damaged. */
static int resolve(walk *w, walk_tree *t, uint64_t leaf, const page_node *n, MDB_val key,
                   const uint8_t **data) {
    bool again;
    const uint8_t *bytes;
    const char *what = page_overflow(&w->file, n->child, n->data_bytes, &bytes);
    if (what)
        return tell_value(w, t, n->child, leaf, what, key);
    uint64_t count = page_overflow_run(&w->file, n->child);
    if (!own_pages(w, t->owner, n->child, count, &again)) {
        int status =
            again ? tell_value(w, t, n->child, leaf, "is used twice", key)
                  : tell(w, t, (walk_fault){.page = n->child, .what = conflict(w, n->child)});
        if (status || again)
            return status;
    }
    t->found.overflow_pages += count;
    *data = bytes;
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Reads a record of the free list: a count, then page numbers in descending order. */
static int read_free_pages(walk *w, walk_tree *t, const walk_value *v) {
    const uint8_t *p = v->data.mv_data;
    size_t n = v->data.mv_size;
    if (n < 8 || n % 8 || load64(p) != n / 8 - 1)
        return tell_value(w, t, v->page, 0, "has a free list of a wrong length", v->key);
    uint64_t before = UINT64_MAX;
    w->newest_free = load64(v->key.mv_data);
    for (size_t i = 8; i < n; i += 8) {
        uint64_t page = load64(p + i);
        if (page >= before || page < 2 || page > w->file.last_page)
            return tell_value(w, t, v->page, 0, "has a free list with wrong page numbers", v->key);
        before = page;
        int status = 0;
        if (w->owner[page] == WALK_NO_OWNER)
            w->owner[page] = WALK_IS_FREE;
        else
            status = tell(w, t, (walk_fault){.page = page, .what = "is used and free"});
        if (status)
            return status;
    }
    return 0;
}

static int read_tree_record(walk *w, walk_tree *t, const walk_value *v) {
    walk_tree made = {.name = {v->key.mv_data, v->key.mv_size},
                      .owner = (uint16_t)(WALK_OWNERS + w->ntrees)};
    memcpy(&made.record, v->data.mv_data, sizeof made.record);
    if (made.record.flags || made.record.depth > PAGE_DEPTH_MAX)
        return tell_value(w, t, v->page, 0, "has a tree record with unknown settings", v->key);
    if (w->ntrees >= UINT16_MAX - WALK_OWNERS)
        return tell_value(w, t, v->page, 0, "has too many trees", v->key);
    ARRAY_PUSH(w->trees, w->ntrees, w->trees_cap, made);
    return 0;
}

static int visit_value(walk *w, walk_tree *t, const level *l, int index) {
    uint64_t page = l->page;
    page_node n = page_get_node(&w->file, page, true, index);
    walk_value v = {.tree = t,
                    .page = page,
                    .key = {n.key_bytes, (void *)(uintptr_t)n.key},
                    .low = l->low,
                    .high = l->high};
    const uint8_t *data = n.data;
    t->found.entries++;
    bool is_record = n.flags == F_SUBDATA;
    if (is_record != (t->owner == WALK_MAIN) || (is_record && n.data_bytes != sizeof(page_tree)))
        return tell_value(w, t, page, page, "has a value of an unknown kind", v.key);
    int status = n.flags & F_BIGDATA ? resolve(w, t, page, &n, v.key, &data) : 0;
    if (status || !data)
        return status;
    v.data = (MDB_val){n.data_bytes, (void *)(uintptr_t)data};
    if (t->owner == WALK_FREE_LIST)
        return read_free_pages(w, t, &v);
    if (t->owner == WALK_MAIN)
        return read_tree_record(w, t, &v);
    return w->value ? w->value(w->arg, &v) : 0;
}

/* ---- trees ----------------------------------------------------------------------------------- */

static int visit_leaf(walk *w, walk_tree *t, const level *l) {
    int status = 0;
    for (int i = 0; i < l->nodes && !status; i++)
        status = visit_value(w, t, l, i);
    return status;
}

/* Visits the leaves below levels[0], which was entered, in key order. */
static int visit_below(walk *w, walk_tree *t, level *levels) {
    int n = 1, status = 0;
    if (levels[0].leaf)
        return visit_leaf(w, t, &levels[0]);
    while (n > 0 && !status) {
        level *l = &levels[n - 1], *child = &levels[n];
        if (l->at == l->nodes) {
            n--;
            continue;
        }
        int i = l->at++;
        bool entered = false;
        *child = (level){.page = page_get_node(&w->file, l->page, false, i).child,
                         .low = i ? node_key(w, l, i) : l->low,
                         .high = l->at < l->nodes ? node_key(w, l, l->at) : l->high};
        status = enter(w, t, child, n + 1, &entered);
        if (status || !entered)
            continue;
        if (child->leaf)
            status = visit_leaf(w, t, child);
        else
            n++;
    }
    return status;
}

static int walk_tree_pages(walk *w, walk_tree *t) {
    level levels[PAGE_DEPTH_MAX + 2] = {{.page = t->record.root}};
    const page_tree *r = &t->record, *f = &t->found;
    bool entered = false;
    unsigned flags = t->owner == WALK_FREE_LIST ? WALK_FREE_LIST_FLAGS : 0;
    if (r->flags != flags || r->depth > PAGE_DEPTH_MAX)
        return tell_page(w, t, &levels[0], "is the root of a tree with unknown settings", false);
    if (r->root == NO_PAGE) {
        bool empty =
            !r->depth && !r->branch_pages && !r->leaf_pages && !r->overflow_pages && !r->entries;
        return empty ? 0
                     : tell(w, t, (walk_fault){.what = "an empty tree has entries", .loses = true});
    }
    int status = enter(w, t, &levels[0], 1, &entered);
    if (!status && entered)
        status = visit_below(w, t, levels);
    if (status || t->faulty)
        return status;
    if (f->branch_pages != r->branch_pages || f->leaf_pages != r->leaf_pages ||
        f->overflow_pages != r->overflow_pages || f->entries != r->entries)
        status = tell(
            w, t,
            (walk_fault){.page = r->root, .what = "is the root of a tree whose counts are wrong"});
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Chooses the newer of the sound meta pages. */
static int choose_meta(walk *w, const void *bytes, size_t n, bool *usable) {
    page_meta metas[2];
    bool sound[2];
    int status = 0;
    for (uint64_t i = 0; i < 2 && !status; i++) {
        const char *what = n < 2 * w->file.page_bytes ? "is beyond the end of the file"
                                                      : page_read_meta(&w->file, i, &metas[i]);
        sound[i] = !what;
        if (what)
            status = tell(w, NULL, (walk_fault){.page = i, .what = what});
    }
    if (status)
        return status;
    *usable = sound[0] || sound[1];
    bool newer = sound[1] && (!sound[0] || metas[1].txn > metas[0].txn);
    if (*usable)
        w->meta = metas[newer];
    size_t page_bytes;
    page_meta ignored;
    if (sound[0] && sound[1]) {
        const char *what = page_read_metas(bytes, n, &page_bytes, &ignored, NULL);
        if (what)
            status = tell(w, NULL, (walk_fault){.page = newer, .what = what});
    }
    return status;
}

/* Finds the page size: of the first meta page, or at the place where the second one is. */
static size_t find_page_size(const uint8_t *bytes, size_t n) {
    for (size_t size = 512; size <= 32768; size *= 2)
        for (size_t at = 0; at <= size; at += size) {
            page_meta m;
            if (n < at + PAGE_HEADER + sizeof m)
                continue;
            memcpy(&m, bytes + at + PAGE_HEADER, sizeof m);
            if (m.magic == META_MAGIC && m.trees[0].pad == size)
                return size;
        }
    return 4096;
}

int walk_begin(walk *w, const void *bytes, size_t n, const page_meta *meta, bool *usable) {
    w->file = (page_file){.map = bytes, .page_bytes = find_page_size(bytes, n)};
    w->file.pages = n / w->file.page_bytes;
    w->newest_free = w->shared = 0;
    *usable = meta != NULL;
    int status = 0;
    if (meta)
        w->meta = *meta;
    else
        status = choose_meta(w, bytes, n, usable);
    if (status || !*usable)
        return status;
    uint64_t last = w->meta.last_page;
    if (last > w->file.pages + PAGES_BEYOND) {
        status = tell(w, NULL,
                      (walk_fault){.page = w->meta.txn & 1,
                                   .what = "is a meta page whose last page is out of range"});
        w->meta.last_page = last = w->file.pages - 1;
    }
    w->file.last_page = last;
    w->nowner = last + 1;
    w->owner = mem_zalloc(w->nowner * sizeof *w->owner);
    w->free_list = (walk_tree){.record = w->meta.trees[0], .owner = WALK_FREE_LIST};
    w->main_tree = (walk_tree){.record = w->meta.trees[1], .owner = WALK_MAIN};
    return status;
}

int walk_free_list(walk *w) {
    walk_tree *t = &w->free_list;
    int status = walk_tree_pages(w, t);
    /* Each commit frees at least the page of the main tree's root before it. */
    if (!status && !t->faulty && t->record.root != NO_PAGE && w->newest_free != w->meta.txn)
        status = tell(w, t,
                      (walk_fault){.page = t->record.root, .what = "is the root of an older list"});
    w->free_is_sound = !w->free_list.faulty;
    return status;
}

int walk_main(walk *w) {
    return walk_tree_pages(w, &w->main_tree);
}

int walk_named(walk *w, walk_tree *t) {
    t->walked = true;
    return walk_tree_pages(w, t);
}

int walk_end(walk *w) {
    uint64_t lost = 0, first = 0;
    for (uint64_t p = w->nowner; p-- > 2;)
        if (w->owner[p] == WALK_NO_OWNER) {
            lost++;
            first = p;
        }
    bool told = w->free_list.faulty || w->main_tree.faulty;
    for (size_t i = 0; i < w->ntrees; i++)
        told = told || w->trees[i].faulty;
    /* After other faults, pages without an owner are their consequence. */
    return lost && !told
               ? tell(w, NULL,
                      (walk_fault){.page = first, .what = "is neither in use nor in the free list"})
               : 0;
}

int walk_all(walk *w, const void *bytes, size_t n) {
    bool usable;
    int status = walk_begin(w, bytes, n, NULL, &usable);
    if (status || !usable)
        return status;
    status = walk_free_list(w);
    if (!status)
        status = walk_main(w);
    for (size_t i = 0; i < w->ntrees && !status; i++)
        status = walk_named(w, &w->trees[i]);
    return status ? status : walk_end(w);
}

void walk_free(walk *w) {
    free(w->owner);
    free(w->spare);
    free(w->trees);
    w->owner = w->spare = NULL;
    w->trees = NULL;
    w->ntrees = w->trees_cap = 0;
}

int walk_ignore_fault(void *arg, const walk_fault *f) {
    (void)arg;
    (void)f;
    return 0;
}

int walk_again(walk *w, const walk_tree *t) {
    uint16_t *owner = w->owner;
    walk_tree again = {.name = t->name, .record = t->record, .owner = t->owner};
    if (!w->spare)
        w->spare = mem_alloc(w->nowner * sizeof *w->spare);
    memset(w->spare, 0, w->nowner * sizeof *w->spare);
    w->owner = w->spare;
    int status = walk_tree_pages(w, &again);
    w->owner = owner;
    return status;
}

walk_tree *walk_find(walk *w, str name) {
    for (size_t i = 0; i < w->ntrees; i++)
        if (str_equal(w->trees[i].name, name))
            return &w->trees[i];
    return NULL;
}

/* ---- damaged leaves -------------------------------------------------------------------------- */

/* Reads a node at any offset; false: it cannot be one. *used: its bytes in the page. */
static bool read_any_node(const walk *w, uint64_t page, size_t at, walk_value *v, size_t *used) {
    const uint8_t *p = page_at(&w->file, page);
    size_t end = w->file.page_bytes;
    if (at > end - NODE_HEADER)
        return false;
    uint64_t data = load16(p + at) | (uint64_t)load16(p + at + 2) << 16;
    size_t key = load16(p + at + 6), flags = load16(p + at + 4);
    uint64_t here = flags & F_BIGDATA ? 8 : data;
    if ((flags & ~(size_t)F_BIGDATA) || key == 0 || key > PAGE_KEY_MAX ||
        at + NODE_HEADER + key + here > end)
        return false;
    const uint8_t *bytes = p + at + NODE_HEADER + key;
    *used = (NODE_HEADER + key + here + 1) & ~(size_t)1;
    v->key = (MDB_val){key, (void *)(uintptr_t)(p + at + NODE_HEADER)};
    if (flags & F_BIGDATA) {
        uint64_t first = load64(bytes);
        if (!page_in_file(&w->file, first, page_overflow_count(&w->file, data)))
            return false;
        bytes = page_at(&w->file, first) + PAGE_HEADER;
    }
    v->data = (MDB_val){data, (void *)(uintptr_t)bytes};
    return true;
}

/* Whether nodes without gaps fill the page from `upper` on: then `upper` is right and there is no
 * deleted node behind it. */
static bool fills_page(const walk *w, uint64_t page, size_t upper) {
    walk_value v = {0};
    size_t used, at = upper;
    while (at < w->file.page_bytes) {
        if (!read_any_node(w, page, at, &v, &used))
            return false;
        at += used;
    }
    return at == w->file.page_bytes;
}

/* Bytes of deleted nodes stay in the page in front of `upper`, so nodes are taken from behind it, or
 * if it is doubtful, at the offsets in the page's header. */
int walk_salvage(walk *w, const walk_tree *t, uint64_t page) {
    const uint8_t *p = page_at(&w->file, page);
    size_t lower = load16(p + 12), upper = load16(p + 14), used;
    walk_value v = {.tree = t, .page = page};
    int status = 0;
    if (lower > w->file.page_bytes)
        lower = w->file.page_bytes;
    if (upper >= PAGE_HEADER && upper % 2 == 0 && fills_page(w, page, upper)) {
        for (size_t at = upper; at < w->file.page_bytes && !status; at += used)
            if (read_any_node(w, page, at, &v, &used))
                status = w->value(w->arg, &v);
        return status;
    }
    for (size_t i = PAGE_HEADER; i + 2 <= lower && !status; i += 2) {
        size_t at = load16(p + i);
        if (at >= PAGE_HEADER && at % 2 == 0 && read_any_node(w, page, at, &v, &used))
            status = w->value(w->arg, &v);
    }
    return status;
}
