/*
 * cache_check.c - verifies the pages of an LMDB 0.9 file without LMDB.
 *
 * LMDB trusts its pages: a flipped bit can make it read or write anywhere in this process. So
 * before LMDB opens a cache, every page that LMDB could reach is read here, and every number is
 * checked before it is used. A file passes only if
 *   - both meta pages are valid and have the page size that this build writes;
 *   - each branch, leaf and overflow page is referenced once, has its own number and the flags of
 *     its kind; its nodes fill the page without gaps or overlaps; keys ascend; all leaves of a tree
 *     have the same depth; and the tree's counts match its record;
 *   - the pages of the free list are within the file, listed once, and not in use.
 * A file that passes can still hold wrong values; those fail their checksums. Formats: struct
 * MDB_page, MDB_node, MDB_db, MDB_meta of mdb.c, 64 bit, little-endian.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_int.h"

enum {
    PAGE = 4096,
    /* pgno u64, pad u16, flags u16, then lower u16, upper u16 or, of overflow pages, pages u32 */
    PAGE_HEADER = 16,
    NODE_HEADER = 8, /* lo u16, hi u16, flags u16, ksize u16 */
    P_BRANCH = 1,
    P_LEAF = 2,
    P_OVERFLOW = 4,
    P_META = 8,
    F_BIGDATA = 1,
    F_SUBDATA = 2,
    DEPTH_MAX = 32,
    KEY_BYTES_MAX = 511,
    FREE_DB_FLAGS =
        0x4008 /* MDB_INTEGERKEY, and the environment's persistent flags: MDB_NOSUBDIR */
};

#define META_MAGIC 0xBEEFC0DEu
#define NO_PAGE UINT64_MAX

/* struct MDB_db */
typedef struct db_record {
    uint32_t pad; /* in the record of the free list: the page size */
    uint16_t flags, depth;
    uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
} db_record;

/* struct MDB_meta, after the page header */
typedef struct meta_record {
    uint32_t magic, version;
    uint64_t address, map_bytes;
    db_record dbs[2]; /* [0]: of the free list; [1]: of the main tree */
    uint64_t last_page, txn;
} meta_record;

typedef enum tree_kind { TREE_FREE, TREE_MAIN, TREE_VALUES } tree_kind;

typedef struct walk {
    const uint8_t *map;
    uint64_t pages;     /* number of pages in the file */
    uint64_t last_page; /* highest page number in use */
    uint8_t *seen;      /* a bit per page, set when a reference to the page was found */
    meta_record meta;
    err *e;
} walk;

typedef struct tree {
    tree_kind kind;
    uint64_t branch, leaf, overflow, entries; /* pages of each kind and entries found so far */
    int leaf_depth;                           /* depth of the leaves; 0: no leaf found yet */
    uint8_t last_key[KEY_BYTES_MAX];          /* the last key found in a leaf */
    uint8_t least_key[KEY_BYTES_MAX];         /* lower bound of the next key: its branch's key */
    size_t last_bytes, least_bytes;
    bool has_last, has_least;
} tree;

static int damaged(const walk *w, uint64_t page, const char *what) {
    return err_set(w->e, ERR_CORRUPT, "page %llu: %s", (unsigned long long)page, what);
}

static uint16_t load16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Marks a run of pages as used; an error if a page is out of range or used already. in_file: the
 * pages must be within the file's size. */
static int use_pages(walk *w, uint64_t first, uint64_t count, bool in_file) {
    if (first < 2 || count == 0 || first > w->last_page || count > w->last_page - first + 1)
        return damaged(w, first, "is out of range");
    if (in_file && (first >= w->pages || count > w->pages - first))
        return damaged(w, first, "is beyond the end of the file");
    for (uint64_t p = first; p < first + count; p++) {
        if (w->seen[p / 8] >> (p % 8) & 1)
            return damaged(w, p, "is used twice");
        w->seen[p / 8] |= (uint8_t)(1u << (p % 8));
    }
    return 0;
}

static int check_tree_root(walk *w, const db_record *db, tree_kind kind);

/* ---- leaves ---------------------------------------------------------------------------------- */

static int compare_keys(const tree *t, const uint8_t *a, size_t na, const uint8_t *b, size_t nb) {
    if (t->kind == TREE_FREE && na == 8 && nb == 8)
        return (load64(a) > load64(b)) - (load64(a) < load64(b));
    return str_compare((str){(const char *)a, na}, (str){(const char *)b, nb});
}

static int check_key(walk *w, tree *t, uint64_t page, const uint8_t *key, size_t n) {
    if (n == 0 || n > KEY_BYTES_MAX || (t->kind == TREE_FREE && n != 8))
        return damaged(w, page, "has a key of a wrong length");
    if (t->has_last && compare_keys(t, t->last_key, t->last_bytes, key, n) >= 0)
        return damaged(w, page, "has keys out of order");
    return 0;
}

/* Checks that a leaf's key is above the previous one and not below the key of its branch. */
static int check_order(walk *w, tree *t, uint64_t page, const uint8_t *key, size_t n) {
    int status = check_key(w, t, page, key, n);
    if (status)
        return status;
    if (t->has_least && compare_keys(t, t->least_key, t->least_bytes, key, n) > 0)
        return damaged(w, page, "has a key below its branch's");
    t->has_least = false;
    memcpy(t->last_key, key, n);
    t->last_bytes = n;
    t->has_last = true;
    return 0;
}

/* Checks a record of the free list: a count, then page numbers in descending order. */
static int check_free_pages(walk *w, uint64_t page, const uint8_t *data, size_t n) {
    if (n < 8 || load64(data) != n / 8 - 1 || n % 8)
        return damaged(w, page, "has a free list of a wrong length");
    uint64_t before = UINT64_MAX;
    for (size_t i = 8; i < n; i += 8) {
        uint64_t p = load64(data + i);
        if (p >= before)
            return damaged(w, page, "has a free list out of order");
        before = p;
        int status = use_pages(w, p, 1, false);
        if (status)
            return status;
    }
    return 0;
}

static int check_overflow(walk *w, tree *t, uint64_t page, uint64_t bytes, const uint8_t **data) {
    uint64_t count = (bytes + PAGE_HEADER + PAGE - 1) / PAGE;
    int status = use_pages(w, page, count, true);
    if (status)
        return status;
    const uint8_t *p = w->map + page * PAGE;
    uint32_t pages;
    memcpy(&pages, p + 12, sizeof pages);
    if (load64(p) != page || load16(p + 10) != P_OVERFLOW || pages != count)
        return damaged(w, page, "is not an overflow page of the right length");
    t->overflow += count;
    *data = p + PAGE_HEADER;
    return 0;
}

static int check_leaf_node(walk *w, tree *t, uint64_t page, const uint8_t *node, size_t room,
                           size_t *used) {
    size_t key_bytes = load16(node + 6), flags = load16(node + 4);
    uint64_t data_bytes = load16(node) | (uint64_t)load16(node + 2) << 16;
    bool big = flags == F_BIGDATA;
    uint64_t here = big ? 8 : data_bytes;
    if (flags != 0 && !big && !(flags == F_SUBDATA && t->kind == TREE_MAIN))
        return damaged(w, page, "has a node of an unknown kind");
    if (key_bytes > KEY_BYTES_MAX || NODE_HEADER + key_bytes + here > room)
        return damaged(w, page, "has a node that exceeds the page");
    *used = (NODE_HEADER + key_bytes + (size_t)here + 1) & ~(size_t)1;
    int status = check_order(w, t, page, node + NODE_HEADER, key_bytes);
    const uint8_t *data = node + NODE_HEADER + key_bytes;
    if (!status && big)
        status = check_overflow(w, t, load64(data), data_bytes, &data);
    if (status)
        return status;
    t->entries++;
    if (t->kind == TREE_FREE)
        return check_free_pages(w, page, data, data_bytes);
    if (flags != F_SUBDATA)
        return t->kind == TREE_MAIN ? damaged(w, page, "has a value in the tree of trees") : 0;
    db_record db;
    if (data_bytes != sizeof db)
        return damaged(w, page, "has a tree record of a wrong length");
    memcpy(&db, data, sizeof db);
    return check_tree_root(w, &db, TREE_VALUES);
}

/* ---- pages ----------------------------------------------------------------------------------- */

static int compare_offsets(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Whether the nodes fill the page from `upper` to its end. spans: offset << 16 | size. */
static bool nodes_tile(uint32_t *spans, int n, uint32_t upper) {
    qsort(spans, (size_t)n, sizeof *spans, compare_offsets);
    uint32_t at = upper;
    for (int i = 0; i < n; i++) {
        if (spans[i] >> 16 != at)
            return false;
        at += spans[i] & 0xffff;
    }
    return at == PAGE;
}

static int check_page(walk *w, tree *t, uint64_t page, int depth);

static int check_branch_node(walk *w, tree *t, uint64_t page, const uint8_t *node, size_t room,
                             bool first, int depth, size_t *used) {
    size_t key_bytes = load16(node + 6);
    uint64_t child =
        load16(node) | (uint64_t)load16(node + 2) << 16 | (uint64_t)load16(node + 4) << 32;
    if (key_bytes > KEY_BYTES_MAX || NODE_HEADER + key_bytes > room || (key_bytes == 0) != first)
        return damaged(w, page, "has a node that exceeds the page");
    *used = (NODE_HEADER + key_bytes + 1) & ~(size_t)1;
    if (!first) {
        int status = check_key(w, t, page, node + NODE_HEADER, key_bytes);
        if (status)
            return status;
        memcpy(t->least_key, node + NODE_HEADER, key_bytes);
        t->least_bytes = key_bytes;
        t->has_least = true;
    }
    return check_page(w, t, child, depth + 1);
}

static int check_page(walk *w, tree *t, uint64_t page, int depth) {
    if (depth > DEPTH_MAX)
        return damaged(w, page, "is too deep");
    int status = use_pages(w, page, 1, true);
    if (status)
        return status;
    const uint8_t *p = w->map + page * PAGE;
    unsigned flags = load16(p + 10), lower = load16(p + 12), upper = load16(p + 14);
    bool leaf = flags == P_LEAF;
    if (load64(p) != page || (flags != P_BRANCH && !leaf) || load16(p + 8) != 0)
        return damaged(w, page, "is neither a branch nor a leaf");
    if (lower < PAGE_HEADER || lower > upper || upper > PAGE || lower % 2)
        return damaged(w, page, "has wrong bounds");
    int n = (int)(lower - PAGE_HEADER) / 2;
    if (n < (leaf ? 1 : 2))
        return damaged(w, page, "has too few nodes");
    if (leaf && t->leaf_depth && t->leaf_depth != depth)
        return damaged(w, page, "is a leaf at another depth than the others");
    if (leaf)
        t->leaf_depth = depth;
    t->leaf += leaf;
    t->branch += !leaf;
    uint32_t spans[PAGE / 2];
    for (int i = 0; i < n; i++) {
        unsigned at = load16(p + PAGE_HEADER + 2 * i);
        size_t used = 0;
        if (at < upper || at > PAGE - NODE_HEADER || at % 2)
            return damaged(w, page, "has a node outside the page");
        status = leaf ? check_leaf_node(w, t, page, p + at, PAGE - at, &used)
                      : check_branch_node(w, t, page, p + at, PAGE - at, i == 0, depth, &used);
        if (status)
            return status;
        spans[i] = at << 16 | (uint32_t)used;
    }
    return nodes_tile(spans, n, upper) ? 0 : damaged(w, page, "has nodes with gaps or overlaps");
}

static int check_tree_root(walk *w, const db_record *db, tree_kind kind) {
    tree t = {.kind = kind};
    if (db->flags != (kind == TREE_FREE ? FREE_DB_FLAGS : 0))
        return damaged(w, db->root, "is the root of a tree with unknown flags");
    if (db->root == NO_PAGE) {
        if (db->depth || db->branch_pages || db->leaf_pages || db->overflow_pages || db->entries)
            return damaged(w, 0, "an empty tree has entries");
        return 0;
    }
    int status = check_page(w, &t, db->root, 1);
    if (status)
        return status;
    if (t.leaf_depth != db->depth || t.branch != db->branch_pages || t.leaf != db->leaf_pages ||
        t.overflow != db->overflow_pages || t.entries != db->entries)
        return damaged(w, db->root, "is the root of a tree whose counts are wrong");
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Picks the meta page with the higher transaction id, as LMDB does. Commits with even ids write one
 * page, commits with odd ids the other. */
static int pick_meta(walk *w) {
    meta_record metas[2];
    for (uint64_t i = 0; i < 2; i++) {
        const uint8_t *p = w->map + i * PAGE;
        memcpy(&metas[i], p + PAGE_HEADER, sizeof metas[i]);
        if (load64(p) != i || load16(p + 10) != P_META || metas[i].magic != META_MAGIC ||
            metas[i].version != 1)
            return damaged(w, i, "is not a meta page");
        if (metas[i].txn != 0 && metas[i].txn % 2 != i)
            return damaged(w, i, "is a meta page of the wrong parity");
        if (metas[i].dbs[0].pad != PAGE || metas[i].address != 0 || metas[i].map_bytes % PAGE)
            return damaged(w, i, "is a meta page with unknown settings");
    }
    w->meta = metas[metas[0].txn < metas[1].txn];
    w->last_page = w->meta.last_page;
    if (w->last_page < 1 || w->last_page > (w->meta.map_bytes / PAGE) ||
        w->last_page > w->pages + (1u << 20))
        return damaged(w, 0, "the last page is out of range");
    return 0;
}

static int walk_file(walk *w) {
    int status = pick_meta(w);
    if (status)
        return status;
    w->seen = calloc(w->last_page / 8 + 1, 1);
    if (!w->seen)
        return err_set(w->e, ERR_FULL, "not enough memory to check the cache");
    status = check_tree_root(w, &w->meta.dbs[0], TREE_FREE);
    if (!status)
        status = check_tree_root(w, &w->meta.dbs[1], TREE_MAIN);
    free(w->seen);
    return status;
}

int cache_check_bytes(const void *bytes, size_t n, err *e) {
    walk w = {.map = bytes, .pages = n / PAGE, .e = e};
    return n < 2 * PAGE ? err_set(e, ERR_CORRUPT, "the file is truncated") : walk_file(&w);
}

int cache_check(const char *path, err *e) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return err_set_errno(e, error, "cannot open '%s'", path);
    }
    /* An empty file is valid: LMDB writes the first pages. */
    if (st.st_size == 0) {
        close(fd);
        return 0;
    }
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return err_set_errno(e, errno, "cannot map '%s'", path);
    madvise(map, (size_t)st.st_size, MADV_RANDOM);
    int status = cache_check_bytes(map, (size_t)st.st_size, e);
    munmap(map, (size_t)st.st_size);
    return status;
}
