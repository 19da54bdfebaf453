/*
 * key.c - order-preserving index keys (format: tables_int.h).
 *
 * Invariant: memcmp of two uncut keys orders them as value_compare orders their cells, then by
 * rowid. For cut keys this holds for their first KEY_CUT bytes only; beyond these the rows must be
 * compared.
 */
#include <math.h>
#include <string.h>

#include "tables_int.h"

static void append_be64(buf *b, uint64_t bits) {
    bits = __builtin_bswap64(bits);
    buf_append(b, &bits, sizeof bits);
}

/* Returns bits whose unsigned order is the order of REALs: NaN lowest, all NaNs equal, -0 equal to
 * 0. */
static uint64_t real_bits(double r) {
    uint64_t bits;
    if (isnan(r))
        return 0;
    if (r == 0)
        r = 0;
    memcpy(&bits, &r, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

static void append_text(buf *b, str s) {
    while (s.n) {
        const char *zero = memchr(s.p, 0, s.n);
        size_t n = zero ? (size_t)(zero - s.p) : s.n;
        buf_append(b, s.p, n);
        if (!zero)
            break;
        buf_append(b, "\0\377", 2);
        s.p += n + 1;
        s.n -= n + 1;
    }
    buf_append(b, "\0", 2); /* two zeros: the one in the literal, and its terminator */
}

void key_append_cell(buf *b, value_type type, value v) {
    if (v.type == TYPE_NULL) {
        buf_append_char(b, 0);
        return;
    }
    buf_append_char(b, KEY_NOT_NULL);
    switch (type) {
    case TYPE_BOOLEAN:
        buf_append_char(b, v.i != 0);
        break;
    case TYPE_REAL:
        append_be64(b, real_bits(v.r));
        break;
    case TYPE_TEXT:
    case TYPE_BLOB:
    case TYPE_VECTOR: /* no sorted index has one */
        append_text(b, v.s);
        break;
    case TYPE_NULL:
    case TYPE_INTEGER:
        append_be64(b, (uint64_t)v.i ^ (uint64_t)1 << 63);
        break;
    }
}

/* Appends the cells of `count` leading index columns, uncut. */
static void key_append_cells(buf *b, const table_def *def, const index_def *index, const value *row,
                             int count) {
    if (index->lists) {
        lists_append_cell(b, index->lists, row[index->columns[0]]);
        return;
    }
    for (int i = 0; i < count; i++)
        key_append_cell(b, def->columns[index->columns[i]].type, row[index->columns[i]]);
}

void key_make(buf *b, const table_def *def, const index_def *index, const value *row,
              int64_t rowid) {
    uint8_t tail[KEY_HASH + KEY_ROWID];
    buf_clear(b);
    key_append_cells(b, def, index, row, index->ncolumns);
    rowid_put(tail + KEY_HASH, rowid);
    if (b->n <= KEY_CUT) {
        buf_append(b, tail + KEY_HASH, KEY_ROWID);
        return;
    }
    hash128 h = hash_128(b->p, b->n);
    memcpy(tail, &h, KEY_HASH);
    b->n = KEY_CUT;
    buf_append(b, tail, sizeof tail);
}
