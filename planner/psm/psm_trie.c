/*
 * psm_trie.c - sorts rows by their prompts, and counts what they share.
 *
 * In lexicographic order, the longest prefix that a row shares with any earlier row is the prefix
 * that it shares with the previous row. So the sum over neighbours is the number of units that a
 * prefix tree shares, in whatever order the rows are sent. Rows are sorted by their first two
 * cells, and those that are equal in these by their next two, and so on; the radix sort makes this
 * linear in the number of rows.
 */
#include "psm_int.h"

#include <string.h>

enum {
    DIGIT_BITS = 11, /* bits of a digit of the radix sort */
    DIGITS = 1 << DIGIT_BITS,
    FEW = 24,  /* up to this many rows, insertion sort is fastest */
    SOME = 512 /* below this many rows, merge sort is faster than radix sort */
};

typedef struct sort_item {
    uint64_t key; /* the ranks of two cells, the first in the higher bits */
    uint32_t row;
} sort_item;

typedef struct trie_sort {
    const uint32_t *keys; /* [rows * fields] by psm_trie_keys */
    int fields;
    int rank_bits;          /* bits of the highest rank */
    sort_item *item;        /* [rows] the items being sorted */
    sort_item *spare;       /* [rows] where a pass writes the items; then becomes `item` */
    uint32_t count[DIGITS]; /* items with each digit, then the place of the digit's next item */
} trie_sort;

void psm_trie_keys(const psm_table *t, const psm_paths *p, uint32_t *keys) {
    size_t width = (size_t)t->fields;
    for (uint32_t r = 0; r < t->rows; r++) {
        const uint8_t *order = p->order + r * width;
        uint32_t *key = keys + r * width;
        size_t n = 0;
        for (int i = 0; i < p->depth[r]; i++) {
            uint32_t rank = psm_rank(t, order[i], r);
            if (rank != 0)
                key[n++] = rank;
        }
        memset(key + n, 0, sizeof *key * (width - n));
    }
}

/* Compares two rows by their cells from cell `depth` on. */
static int compare_from(const trie_sort *s, uint32_t a, uint32_t b, int depth) {
    const uint32_t *x = s->keys + (size_t)a * (size_t)s->fields;
    const uint32_t *y = s->keys + (size_t)b * (size_t)s->fields;
    for (int i = depth; i < s->fields; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

static void insertion_sort(const trie_sort *s, uint32_t *rows, uint32_t n, int depth) {
    for (uint32_t i = 1; i < n; i++) {
        uint32_t row = rows[i], at = i;
        while (at > 0 && compare_from(s, row, rows[at - 1], depth) < 0) {
            rows[at] = rows[at - 1];
            at--;
        }
        rows[at] = row;
    }
}

static void load_items(trie_sort *s, const uint32_t *rows, uint32_t n, int depth) {
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *key = s->keys + (size_t)rows[i] * (size_t)s->fields + depth;
        uint64_t second = depth + 1 < s->fields ? key[1] : 0;
        s->item[i] = (sort_item){(uint64_t)key[0] << s->rank_bits | second, rows[i]};
    }
}

/* Sorts by the least significant digit first. A digit that is the same in all keys is skipped. */
static void radix_sort(trie_sort *s, uint32_t n) {
    for (int shift = 0; shift < 2 * s->rank_bits; shift += DIGIT_BITS) {
        memset(s->count, 0, sizeof s->count);
        for (uint32_t i = 0; i < n; i++)
            s->count[s->item[i].key >> shift & (DIGITS - 1)]++;
        if (s->count[s->item[0].key >> shift & (DIGITS - 1)] == n)
            continue;
        uint32_t at = 0;
        for (uint32_t d = 0; d < DIGITS; d++) {
            uint32_t c = s->count[d];
            s->count[d] = at;
            at += c;
        }
        for (uint32_t i = 0; i < n; i++)
            s->spare[s->count[s->item[i].key >> shift & (DIGITS - 1)]++] = s->item[i];
        sort_item *sorted = s->spare;
        s->spare = s->item;
        s->item = sorted;
    }
}

static void merge_sort(trie_sort *s, uint32_t n) {
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t a = 0; a < n; a += 2 * width) {
            uint32_t i = a, half = BASE_MIN(a + width, n), j = half,
                     end = BASE_MIN(half + width, n);
            for (uint32_t k = a; k < end; k++) {
                bool left = i < half && (j == end || s->item[i].key <= s->item[j].key);
                s->spare[k] = left ? s->item[i++] : s->item[j++];
            }
        }
        sort_item *sorted = s->spare;
        s->spare = s->item;
        s->item = sorted;
    }
}

/* Sorts rows that are equal in their first `depth` cells. */
static void sort_from(trie_sort *s, uint32_t *rows, uint32_t n, int depth) {
    if (n <= FEW) {
        insertion_sort(s, rows, n, depth);
        return;
    }
    load_items(s, rows, n, depth);
    if (n < SOME)
        merge_sort(s, n);
    else
        radix_sort(s, n);
    for (uint32_t i = 0; i < n; i++)
        rows[i] = s->item[i].row;
    if (depth + 2 >= s->fields)
        return;
    for (uint32_t i = 0, end; i < n; i = end) {
        const uint32_t *key = s->keys + (size_t)rows[i] * (size_t)s->fields + depth;
        end = i + 1;
        while (end < n) {
            const uint32_t *next = s->keys + (size_t)rows[end] * (size_t)s->fields + depth;
            if (next[0] != key[0] || next[1] != key[1])
                break;
            end++;
        }
        if (end - i > 1 && key[1] != 0)
            sort_from(s, rows + i, end - i, depth + 2);
    }
}

void psm_trie_sort(const psm_table *t, const uint32_t *keys, uint32_t *rows) {
    for (uint32_t r = 0; r < t->rows; r++)
        rows[r] = r;
    if (t->fields == 0)
        return;
    scratch_mark mark = scratch_save(t->mem);
    trie_sort *s = SCRATCH_ARRAY(t->mem, trie_sort, 1);
    s->keys = keys;
    s->fields = t->fields;
    s->rank_bits = 32 - __builtin_clz(t->ranks);
    s->item = SCRATCH_ARRAY(t->mem, sort_item, t->rows);
    s->spare = SCRATCH_ARRAY(t->mem, sort_item, t->rows);
    sort_from(s, rows, t->rows, 0);
    scratch_restore(t->mem, mark);
}

uint64_t psm_trie_shared(const psm_table *t, const uint32_t *keys, const uint32_t *rows) {
    uint64_t shared = 0;
    size_t width = (size_t)t->fields;
    for (uint32_t i = 1; i < t->rows; i++) {
        const uint32_t *a = keys + rows[i - 1] * width, *b = keys + rows[i] * width;
        size_t k = 0;
        while (k < width && a[k] == b[k] && a[k] != 0) {
            shared += t->cell[a[k]].name_units + t->cell[a[k]].length;
            k++;
        }
        if (k < width)
            shared += psm_common(t, a[k], b[k]);
    }
    return shared;
}
