/*
 * walk_int.h - walks a whole LMDB file without LMDB, and goes on after faults.
 *
 * A walk reads every page that LMDB could reach. Its caller gets the values that are sound as far as
 * their pages tell, in key order, and the faults. A file has no faults if
 *   - both meta pages are valid and their transactions follow each other;
 *   - each branch, leaf and overflow page is referenced once; page_verify accepts it; its keys are
 *     within the bounds that its parent gives; all leaves of a tree have the depth that the tree's
 *     record has, and the record's counts are right;
 *   - the pages of the free list are in the file's range, listed once, and not in use; the commit
 *     freed some of them;
 *   - every page is in use or in the free list.
 *
 * Order of calls: walk_begin, walk_free_list, walk_main, walk_named for each of trees[], walk_end,
 * walk_free; walk_all does all but the last. Any of them returns what a callback returned that was
 * not 0, which ends the walk, or ERR_CANCELLED.
 */
#ifndef KVASIR_WALK_INT_H
#define KVASIR_WALK_INT_H

#include <lmdb.h>
#include <stdatomic.h>

#include "lmdb/pages_int.h"

#include "storage/containers.h"

/* Of the free list's record. */
enum { WALK_FREE_LIST_FLAGS = F_INTEGER_KEYS | F_NOSUBDIR };

/* Owners of pages other than named trees, which have their position in trees[] + WALK_OWNERS. */
enum { WALK_NO_OWNER, WALK_IS_FREE, WALK_FREE_LIST, WALK_MAIN, WALK_OWNERS };

typedef struct walk_tree {
    str name;         /* in the map; the free list and the main tree have none */
    page_tree record; /* as the main tree or the meta page has it */
    page_tree found;  /* pages and entries that were found */
    uint16_t owner;
    bool walked; /* walk_named was called */
    bool faulty; /* a fault of the tree was reported */
} walk_tree;

typedef struct walk_value {
    const walk_tree *tree;
    uint64_t page; /* the leaf */
    MDB_val key, data;
    MDB_val low, high; /* the keys that the leaf may have, as in walk_fault */
} walk_value;

typedef struct walk_fault {
    const walk_tree *tree; /* NULL: the fault is the file's */
    uint64_t page;         /* the damaged page */
    uint64_t leaf;         /* the page that has the nodes of the lost values; 0: none */
    const char *what;      /* follows "page 12 " */
    bool loses;            /* the keys from `low` (size 0: the first) to below `high` are lost */
    bool of_value;         /* only the value of the key `low` is lost */
    MDB_val low, high;     /* in the map; high.mv_data = NULL: no end */
} walk_fault;

typedef struct walk {
    /* Set by the caller. */
    void *arg;
    int (*value)(void *arg, const walk_value *v); /* NULL: values are not wanted */
    int (*fault)(void *arg, const walk_fault *f);
    const atomic_bool *cancel; /* may be NULL */
    /* Set by the walk. */
    page_file file;
    page_meta meta;
    uint16_t *owner;      /* [last page + 1] */
    uint64_t nowner;      /* number of entries of owner */
    uint16_t *spare;      /* [nowner] owners in walk_again */
    bool free_is_sound;   /* walk_free_list found no fault */
    uint64_t newest_free; /* the transaction that freed the pages of the list's last record */
    uint64_t shared;      /* pages that a tree and the free list have */
    walk_tree free_list, main_tree;
    walk_tree *trees; /* [ntrees] the named trees, by name */
    size_t ntrees, trees_cap;
} walk;

/* Looks for the newest sound meta page in a file of n bytes, and tells faults of meta pages. `meta`:
 * the meta page to use instead, or NULL. *usable = false: there is none, and the walk is over. */
int walk_begin(walk *w, const void *bytes, size_t n, const page_meta *meta, bool *usable);
int walk_free_list(walk *w);
int walk_main(walk *w); /* sets trees[] */
int walk_named(walk *w, walk_tree *t);
int walk_end(walk *w); /* tells pages that are neither in use nor free */
int walk_all(walk *w, const void *bytes, size_t n);
void walk_free(walk *w);

int walk_ignore_fault(void *arg, const walk_fault *f); /* for walk.fault */
/* Walks a tree of trees[] again, as if none of its pages had been read. */
int walk_again(walk *w, const walk_tree *t);
/* Finds a named tree after walk_main; NULL: it was not found. */
walk_tree *walk_find(walk *w, str name);

/* Calls w->value for the nodes of a damaged leaf that may still be sound: its caller must verify
 * them by their checksums. Nodes that LMDB has deleted are left out as far as the page tells. */
int walk_salvage(walk *w, const walk_tree *t, uint64_t page);

#endif
