/*
 * guard_int.h - verifies the pages of tables.mdb before LMDB reads them.
 *
 * LMDB follows page numbers and offsets without checking them. So every call of LMDB that reads a
 * tree is preceded by guard_path, which walks from the tree's root to the key on LMDB's own map and
 * verifies each page that LMDB may read: the path, the leaves beside it, and in a write transaction
 * the pages that a deletion may merge with. A page met for the first time is verified as a whole,
 * with the checksums of its values; a mark per page remembers this, and for which tree: a page of
 * another tree is verified again, and found not to belong here. That a page belongs where it was
 * found (its depth, its keys within the bounds that its parent gives) is verified every time.
 *
 * Only pages of the last commit before the transaction are verified. Pages that the transaction
 * itself has written are in this process's memory and trusted.
 *
 * A page number that was damaged may name an older version of a page, which is sound by itself, but
 * is in the free list. A write transaction compares every page with that list, a read transaction the
 * roots of trees, unless the list is long: a damaged list must not make a sound table unreadable.
 *
 * The marks stay valid over this process's own commits, since a page is either as it was or was
 * written from this process's memory; they are cleared when another process has committed.
 */
#ifndef KVASIR_GUARD_INT_H
#define KVASIR_GUARD_INT_H

#include <lmdb.h>

#include "lmdb/pages_int.h"
#include "lmdb/sums_int.h"

/* Marks of the trees without a name, and of pages that a free list has. */
enum { GUARD_MARK_MAIN = 0xffff, GUARD_MARK_FREE_LIST = 0xfffe, GUARD_MARK_FREE = 0xfffd };

/* A tree as a snapshot has it. */
typedef struct guard_tree {
    page_tree record; /* root = NO_PAGE: empty */
    uint16_t mark;    /* differs between trees; 0: pages are not remembered as verified */
    bool free_list;   /* keys are u64 */
    bool of_trees;    /* the main tree: values are records of trees */
    bool has_sums;    /* values have checksums by `sums` */
    sum_rule sums;
    /* of a write transaction: the commit whose free list must have none of the tree's pages */
    const page_meta *free_of;
    bool counted;    /* the number of overflow pages was compared with the record */
    uint64_t commit; /* of the snapshot */
    /* the keys below it are verified, unless has_verified is false; in the map */
    MDB_val verified;
    bool has_verified;
    bool whole; /* every page is verified: guard_path need not be called */
} guard_tree;

/* The leaves beside a path's leaf. */
typedef enum guard_sides {
    GUARD_ALONE = 0,
    GUARD_LEFT = 1,
    GUARD_RIGHT = 2,
    GUARD_BOTH = 3
} guard_sides;

/* Keys whose leaf and the leaves on these sides of it are verified: from `low` (size 0: the first)
 * to below `high` (data NULL: no end). The bytes are in the map. */
typedef struct guard_range {
    bool valid;
    guard_sides sides;
    MDB_val low, high;
    /* the same for rowids, as numbers: from low_rowid on, span + 1 of them; has_rowids: the bounds
     * are rowids */
    bool has_rowids;
    uint64_t low_rowid, span;
} guard_range;

/* The fault found last. */
typedef struct guard_fault {
    const char *what; /* follows "page 12 " or "the value " */
    uint64_t page;
    MDB_val low, high; /* as in guard_range: the keys that the page should have */
    bool of_value;     /* a value of the page: its key is `low` */
} guard_fault;

/* A tree over all snapshots, with the marks. */
typedef struct guard_use {
    uint64_t paths;      /* number of calls of guard_path */
    uint64_t whole_from; /* from this commit on every page is verified, + 1; 0: it is not */
} guard_use;

typedef struct page_guard {
    page_file file;      /* map: LMDB's own, or a temporary one */
    size_t inline_bytes; /* values up to this size are never in overflow pages */
    uint16_t *seen;      /* [seen_pages] the mark of the tree as whose page it was verified, or 0 */
    uint64_t seen_pages;
    guard_use *uses; /* [nuses] by mark; of named trees */
    uint32_t nuses;
    uint64_t txn;      /* the commit for which the marks are valid */
    uint64_t main_txn; /* the commit whose main tree was verified, + 1; 0: none */
    page_meta meta;    /* of that commit */
    uint64_t free_txn; /* the commit whose free list was verified, + 1; 0: none */
    uint64_t mark_txn; /* the commit whose free pages were marked, + 1; 0: none */
    guard_fault fault;
} page_guard;

void guard_free(page_guard *g);

/* Whether guard_begin was called for this commit and need not be called again. */
static inline bool guard_knows(const page_guard *g, uint64_t commit) {
    return g->main_txn == commit + 1;
}
/* Prepares for a transaction whose snapshot is the commit `txn`, of a file of file_bytes; sets
 * *meta to the commit's meta page and verifies the main tree. False: g->fault. *moved (may be
 * NULL): the fault is only that later commits have overwritten the meta page. */
bool guard_begin(page_guard *g, size_t file_bytes, uint64_t txn, page_meta *meta, bool *moved);
/* Tells that this process committed `txn`. */
void guard_committed(page_guard *g, uint64_t txn);
/* Verifies the free list, which LMDB uses when it writes, and marks its pages: once per commit of
 * another process. */
bool guard_free_list(page_guard *g, const page_meta *meta);
/* Whether the free list is so short that read transactions verify it. */
bool guard_free_list_is_short(const page_meta *meta);
/* Compares the pages of the main tree with the free list. */
bool guard_main(page_guard *g, const page_meta *meta);
/* Begins to use a tree, whose record and mark are set, in a snapshot. */
void guard_use_tree(page_guard *g, guard_tree *t, const page_meta *meta, bool write);
/* Compares the root of a tree with the free list of its commit. */
bool guard_root(page_guard *g, const page_meta *meta, const page_tree *record);

typedef enum guard_place { GUARD_FIRST, GUARD_KEY, GUARD_LAST } guard_place;
/* Verifies the path to a key, or to the first or last one, and `ahead` leaves on these sides of it,
 * at least one; the range then includes all of these but the last. write: all pages that LMDB may
 * read when it changes the tree at the key. */
bool guard_path(page_guard *g, guard_tree *t, guard_place place, MDB_val key, guard_sides sides,
                int ahead, bool write, guard_range *out);
/* Verifies all pages of a tree that LMDB reads when it empties the tree: leaves only if there are
 * overflow pages, whose headers are verified as well. */
bool guard_emptying(page_guard *g, const guard_tree *t);
/* Verifies the path to a named tree's record and reads it; *found = false: there is none. */
bool guard_named(page_guard *g, const page_meta *meta, const char *name, page_tree *out,
                 bool *found);
/* Finds a key's value in a tree. Of a value in overflow pages *data is the whole value as well.
 * Sums are not removed. */
bool guard_find(page_guard *g, const guard_tree *t, MDB_val key, MDB_val *data, bool *found);

static inline bool guard_in_range(const guard_range *r, MDB_val key) {
    if (r->has_rowids && key.mv_size == 8)
        return __builtin_bswap64(page_load64(key.mv_data)) - r->low_rowid <= r->span;
    return r->valid &&
           (r->low.mv_size == 0 || page_compare_keys(false, r->low.mv_data, r->low.mv_size,
                                                     key.mv_data, key.mv_size) <= 0) &&
           (!r->high.mv_data || page_compare_keys(false, key.mv_data, key.mv_size, r->high.mv_data,
                                                  r->high.mv_size) < 0);
}

/* Verifies a value that LMDB returned from overflow pages of the map (others are verified with
 * their page): its page's header, and the wanted parts of its sums. Values in other memory are
 * trusted. */
bool guard_value(page_guard *g, guard_tree *t, MDB_val key, MDB_val stored, sum_part parts);

#endif
