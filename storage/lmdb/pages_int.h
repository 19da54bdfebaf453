/*
 * pages_int.h - the pages of an LMDB 0.9 file, read and verified without LMDB.
 *
 * LMDB trusts its pages: a flipped bit can make it read or write anywhere in this process. The
 * functions here check a page before anything in it is used, and need no more than its bytes. Two
 * callers put pages together: walk_pages.c verifies a whole file, guard.c the pages that LMDB is about to
 * read. Formats: struct MDB_page, MDB_node, MDB_db, MDB_meta of mdb.c, 64 bit, little-endian.
 *
 * A tree's pages:
 *
 *   header   0 number u64 | 8 unused u16 | 10 flags u16 | 12 lower u16 | 14 upper u16
 *            overflow pages have 12 pages u32 instead of lower and upper
 *   branch   header | offsets of the nodes, u16 each, up to `lower` | free | nodes from `upper` on
 *   leaf     the same
 *   node     lo u16 | hi u16 | flags u16 | key bytes u16 | key | data
 *            branch: lo, hi, flags are the child's number; no data. The first key is not used.
 *            leaf: lo, hi are the data's size; with F_BIGDATA the data is a page number u64: the
 *            first page of a run of overflow pages, which has the data after its header.
 */
#ifndef KVASIR_PAGES_INT_H
#define KVASIR_PAGES_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "storage/base.h"

enum {
    PAGE_HEADER = 16,
    NODE_HEADER = 8,
    P_BRANCH = 1,
    P_LEAF = 2,
    P_OVERFLOW = 4,
    P_META = 8,
    F_BIGDATA = 1,       /* the data is in overflow pages */
    F_SUBDATA = 2,       /* the data is the record of a named tree */
    F_INTEGER_KEYS = 8,  /* of a tree: keys are u64 */
    F_NOSUBDIR = 0x4000, /* of the free list: the environment's MDB_NOSUBDIR */
    PAGE_DEPTH_MAX = 32,
    PAGES_BEYOND = 1 << 20, /* last pages, in use by no tree, that the file may lack */
    PAGE_KEY_MAX = 511
};

#define META_MAGIC 0xBEEFC0DEu
#define NO_PAGE UINT64_MAX

/* struct MDB_db: the record of a tree. */
typedef struct page_tree {
    uint32_t pad; /* in the record of the free list: the page size */
    uint16_t flags, depth;
    uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
} page_tree;

/* struct MDB_meta, after the page header. */
typedef struct page_meta {
    uint32_t magic, version;
    uint64_t address, map_bytes;
    page_tree trees[2]; /* [0]: of the free list; [1]: of the main tree, whose values are trees */
    uint64_t last_page, txn;
} page_meta;

/* The bytes of a file, mapped or in memory. */
typedef struct page_file {
    const uint8_t *map;
    size_t page_bytes; /* a power of two from 512 to 32768 */
    uint64_t pages;    /* number of whole pages in the file */
    uint64_t
        last_page; /* highest page number in use, by the meta page; may exceed the file's end */
} page_file;

typedef struct page_node {
    const uint8_t *key;
    size_t key_bytes;
    uint16_t flags;      /* of a leaf's node: F_BIGDATA, F_SUBDATA */
    uint64_t child;      /* branch: number of the child; F_BIGDATA: first overflow page */
    const uint8_t *data; /* of a leaf's node without F_BIGDATA */
    uint64_t data_bytes; /* of a leaf's node */
} page_node;

/* Reads both meta pages from the file's first bytes (n of them, at least 2 * 32768 unless the file
 * is shorter), checks them, and sets *out to the newer, *older to the other (may be NULL).
 * *page_bytes: the page size. NULL, or the fault as a constant text. */
const char *page_read_metas(const void *bytes, size_t n, size_t *page_bytes, page_meta *out,
                            page_meta *older);

static inline uint16_t page_load16(const void *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t page_load64(const void *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Whether a file that begins with these bytes is LMDB's, however damaged: one of the two meta pages
 * has LMDB's number in its place, for any page size. */
bool page_is_lmdb(const void *bytes, size_t n);
/* Reads meta page 0 or 1 of a file of at least two pages and checks it by itself. NULL, or the
 * fault. */
const char *page_read_meta(const page_file *f, uint64_t number, page_meta *out);

/* Whether page `number`, and `count` - 1 pages after it, are in the file and can be pages of a
 * tree. */
bool page_in_file(const page_file *f, uint64_t number, uint64_t count);

static inline const uint8_t *page_at(const page_file *f, uint64_t number) {
    return f->map + number * f->page_bytes;
}

/* Checks one page of a tree as far as its own bytes tell: it has its own number and the flags of a
 * branch or leaf; its nodes fill the page from `upper` on without gaps or overlaps; keys have
 * permitted lengths and ascend (integer_keys: as u64, else bytewise); page numbers in it are within
 * the file. Returns NULL and *leaf and *nodes, or the fault as a constant text ("is neither a
 * branch nor a leaf"). */
const char *page_verify(const page_file *f, uint64_t number, bool integer_keys, bool *leaf,
                        int *nodes);
/* Tells what page_verify told about a page that it accepted. */
static inline void page_shape(const page_file *f, uint64_t number, bool *leaf, int *nodes) {
    const uint8_t *p = page_at(f, number);
    *leaf = page_load16(p + 10) == P_LEAF;
    *nodes = (page_load16(p + 12) - PAGE_HEADER) / 2;
}

static inline page_node page_node_at(const uint8_t *node, bool leaf) {
    uint64_t low = page_load16(node) | (uint64_t)page_load16(node + 2) << 16;
    uint16_t flags = page_load16(node + 4);
    page_node out = {.key = node + NODE_HEADER, .key_bytes = page_load16(node + 6)};
    if (!leaf) {
        out.child = low | (uint64_t)flags << 32;
        return out;
    }
    out.flags = flags;
    out.data_bytes = low;
    out.data = out.key + out.key_bytes;
    if (flags & F_BIGDATA) {
        out.child = page_load64(out.data);
        out.data = NULL;
    }
    return out;
}

/* Reads a node of a page that page_verify accepted. */
static inline page_node page_get_node(const page_file *f, uint64_t number, bool leaf, int index) {
    const uint8_t *p = page_at(f, number);
    return page_node_at(p + page_load16(p + PAGE_HEADER + 2 * (size_t)index), leaf);
}

/* Least number of overflow pages that hold so many bytes. */
uint64_t page_overflow_count(const page_file *f, uint64_t data_bytes);
/* Checks the header of a run of overflow pages that hold data_bytes, and sets *data to them. NULL,
 * or the fault. */
const char *page_overflow(const page_file *f, uint64_t number, uint64_t data_bytes,
                          const uint8_t **data);
/* Number of pages of a run that page_overflow accepted. It can be more than its data needs: LMDB
 * keeps the run of a value that was made shorter in the same transaction. */
uint64_t page_overflow_run(const page_file *f, uint64_t number);

/* Compares keys as LMDB does. */
static inline int page_compare_keys(bool integer_keys, const void *a, size_t na, const void *b,
                                    size_t nb) {
    if (na == 8 && nb == 8) { /* rowids, and the keys of the free list */
        uint64_t x = page_load64(a), y = page_load64(b);
        if (!integer_keys) {
            x = __builtin_bswap64(x);
            y = __builtin_bswap64(y);
        }
        return (x > y) - (x < y);
    }
    size_t n = na < nb ? na : nb;
    int c = n ? memcmp(a, b, n) : 0;
    return c ? c : (na > nb) - (na < nb);
}

#endif
