/*
 * pages.c - verifying the pages of an LMDB 0.9 file by their own bytes (formats: pages_int.h).
 *
 * Invariant: whatever the file holds, no byte outside it is read, and page_get_node returns only
 * what is within the page.
 */
#include <stdlib.h>
#include <string.h>

#include "pages_int.h"

enum { PAGE_BYTES_MIN = 512, PAGE_BYTES_MAX = 32768 };

/* ---- meta pages ------------------------------------------------------------------------------ */

const char *page_read_meta(const page_file *f, uint64_t number, page_meta *out) {
    const uint8_t *p = page_at(f, number);
    memcpy(out, p + PAGE_HEADER, sizeof *out);
    if (page_load64(p) != number || page_load16(p + 10) != P_META || out->magic != META_MAGIC)
        return "is not a meta page";
    if (out->version != 1)
        return "is a meta page of another LMDB version";
    if (out->txn != 0 && out->txn % 2 != number)
        return "is a meta page of the wrong parity";
    if (out->trees[0].pad != f->page_bytes || out->address != 0 || out->map_bytes % f->page_bytes ||
        (out->trees[0].flags & ~F_NOSUBDIR) != F_INTEGER_KEYS || out->trees[1].flags != 0)
        return "is a meta page with unknown settings";
    if (out->last_page < 1 || out->last_page >= out->map_bytes / f->page_bytes)
        return "is a meta page whose last page is out of range";
    return NULL;
}

bool page_is_lmdb(const void *bytes, size_t n) {
    for (size_t at = 0; at + PAGE_HEADER + 4 <= n; at = at ? at * 2 : PAGE_BYTES_MIN) {
        uint32_t magic;
        memcpy(&magic, (const uint8_t *)bytes + at + PAGE_HEADER, sizeof magic);
        if (magic == META_MAGIC)
            return true;
    }
    return false;
}

const char *page_read_metas(const void *bytes, size_t n, size_t *page_bytes, page_meta *out,
                            page_meta *older) {
    page_meta metas[2];
    if (n < PAGE_HEADER + sizeof metas[0])
        return "is beyond the end of the file";
    memcpy(&metas[0], (const uint8_t *)bytes + PAGE_HEADER, sizeof metas[0]);
    size_t size = metas[0].trees[0].pad;
    if (size < PAGE_BYTES_MIN || size > PAGE_BYTES_MAX || (size & (size - 1)))
        return "is not a meta page";
    if (n < 2 * size)
        return "is beyond the end of the file";
    page_file f = {.map = bytes, .page_bytes = size};
    for (uint64_t i = 0; i < 2; i++) {
        const char *fault = page_read_meta(&f, i, &metas[i]);
        if (fault)
            return fault;
    }
    /* Each commit writes one of the two pages, so their transactions follow each other. */
    bool second = metas[0].txn < metas[1].txn;
    if (metas[second].txn - metas[!second].txn > 1)
        return "is a meta page whose transaction does not follow the other's";
    *page_bytes = size;
    *out = metas[second];
    if (older)
        *older = metas[!second];
    return NULL;
}

/* ---- pages of trees -------------------------------------------------------------------------- */

bool page_in_file(const page_file *f, uint64_t number, uint64_t count) {
    uint64_t end = f->last_page + 1 < f->pages ? f->last_page + 1 : f->pages;
    return number >= 2 && count > 0 && number < end && count <= end - number;
}

uint64_t page_overflow_count(const page_file *f, uint64_t data_bytes) {
    return (data_bytes + PAGE_HEADER + f->page_bytes - 1) / f->page_bytes;
}

const char *page_overflow(const page_file *f, uint64_t number, uint64_t data_bytes,
                          const uint8_t **data) {
    uint64_t count = page_overflow_count(f, data_bytes);
    uint32_t pages;
    if (!page_in_file(f, number, count))
        return "is out of range";
    const uint8_t *p = page_at(f, number);
    memcpy(&pages, p + 12, sizeof pages);
    if (page_load64(p) != number || page_load16(p + 10) != P_OVERFLOW || pages < count ||
        !page_in_file(f, number, pages))
        return "is not an overflow page of the right length";
    *data = p + PAGE_HEADER;
    return NULL;
}

uint64_t page_overflow_run(const page_file *f, uint64_t number) {
    uint32_t pages;
    memcpy(&pages, page_at(f, number) + 12, sizeof pages);
    return pages;
}

/* Checks that a node is within its page; *used: its bytes, of which LMDB keeps an even number. */
static const char *check_node(const page_file *f, const uint8_t *node, size_t room, bool leaf,
                              size_t *used) {
    size_t key_bytes = page_load16(node + 6), flags = leaf ? page_load16(node + 4) : 0;
    uint64_t data = leaf ? page_load16(node) | (uint64_t)page_load16(node + 2) << 16 : 0;
    if (flags != 0 && flags != F_BIGDATA && flags != F_SUBDATA)
        return "has a node of an unknown kind";
    uint64_t here = flags == F_BIGDATA ? 8 : data;
    if (key_bytes > PAGE_KEY_MAX || NODE_HEADER + key_bytes + here > room)
        return "has a node that exceeds the page";
    *used = (NODE_HEADER + key_bytes + (size_t)here + 1) & ~(size_t)1;
    page_node n = page_node_at(node, leaf);
    if (!leaf && !page_in_file(f, n.child, 1))
        return "refers to a page that is not in the file";
    if (flags == F_BIGDATA && !page_in_file(f, n.child, page_overflow_count(f, data)))
        return "refers to an overflow page that is not in the file";
    return NULL;
}

/* The places of a page's nodes, in units of 2 bytes: LMDB keeps nodes at even offsets. */
typedef struct node_places {
    uint64_t starts[PAGE_BYTES_MAX / 2 / 64]; /* a bit for each place where a node starts */
    uint16_t ends[PAGE_BYTES_MAX / (NODE_HEADER + 2)];
    size_t total; /* bytes of all nodes */
} node_places;

static bool starts_at(const node_places *at, size_t unit) {
    return at->starts[unit / 64] >> (unit % 64) & 1;
}

/* Whether the nodes fill the page from `upper` to its end. From the node at `upper`, each node ends
 * where another starts or at the page's end, so these cover all bytes; a node besides them would
 * make the total too large. */
static bool nodes_tile(const node_places *at, int n, size_t upper, size_t page_bytes) {
    if (at->total != page_bytes - upper || !starts_at(at, upper / 2))
        return false;
    for (int i = 0; i < n; i++)
        if (at->ends[i] != page_bytes / 2 && !starts_at(at, at->ends[i]))
            return false;
    return true;
}

/* Checks the nodes of a page: their places, lengths, key order. */
static const char *check_nodes(const page_file *f, const uint8_t *p, int n, size_t upper, bool leaf,
                               bool integer_keys) {
    node_places places;
    page_node last = {0};
    memset(places.starts, 0, f->page_bytes / 2 / 8);
    places.total = 0;
    for (int i = 0; i < n; i++) {
        size_t at = page_load16(p + PAGE_HEADER + 2 * (size_t)i), used;
        if (at < upper || at > f->page_bytes - NODE_HEADER || at % 2)
            return "has a node outside the page";
        const char *fault = check_node(f, p + at, f->page_bytes - at, leaf, &used);
        if (fault)
            return fault;
        places.starts[at / 2 / 64] |= (uint64_t)1 << (at / 2 % 64);
        places.ends[i] = (uint16_t)((at + used) / 2);
        places.total += used;
        page_node node = page_node_at(p + at, leaf);
        bool has_key = leaf || i > 0;
        if (has_key && (node.key_bytes == 0 || (integer_keys && node.key_bytes != 8)))
            return "has a key of a wrong length";
        if (has_key && last.key &&
            page_compare_keys(integer_keys, last.key, last.key_bytes, node.key, node.key_bytes) >=
                0)
            return "has keys out of order";
        if (has_key)
            last = node;
    }
    return nodes_tile(&places, n, upper, f->page_bytes) ? NULL : "has nodes with gaps or overlaps";
}

const char *page_verify(const page_file *f, uint64_t number, bool integer_keys, bool *leaf,
                        int *nodes) {
    if (!page_in_file(f, number, 1))
        return "is not in the file";
    const uint8_t *p = page_at(f, number);
    unsigned flags = page_load16(p + 10);
    size_t lower = page_load16(p + 12), upper = page_load16(p + 14);
    *leaf = flags == P_LEAF;
    if (page_load64(p) != number || (flags != P_BRANCH && flags != P_LEAF))
        return "is neither a branch nor a leaf";
    if (lower < PAGE_HEADER || lower > upper || upper > f->page_bytes || lower % 2)
        return "has wrong bounds";
    *nodes = (int)((lower - PAGE_HEADER) / 2);
    if (*nodes < (*leaf ? 1 : 2))
        return "has too few nodes";
    if ((size_t)*nodes > f->page_bytes / (NODE_HEADER + 2))
        return "has too many nodes";
    return check_nodes(f, p, *nodes, upper, *leaf, integer_keys);
}
