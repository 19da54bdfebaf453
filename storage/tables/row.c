/*
 * row.c - encoding and decoding of a row (format: tables_int.h).
 *
 * Invariant: no byte outside the row is read, whatever its content; an invalid row is ERR_CORRUPT.
 */
#include <string.h>

#include "tables_int.h"

static uint32_t slot_bytes(value_type t) {
    return t == TYPE_BOOLEAN ? 1 : type_is_bytes(t) ? 4 : 8;
}

static uint32_t load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

void row_layout_init(row_layout *l, arena *a, const table_def *def) {
    l->ncolumns = def->ncolumns;
    l->rowid_column = def->rowid_column;
    l->columns = def->columns;
    l->def = def;
    l->slot = ARENA_ARRAY(a, uint32_t, BASE_MAX(def->ncolumns, 1));
    l->text_start = ARENA_ARRAY(a, uint32_t, BASE_MAX(def->ncolumns, 1));
    uint32_t at = 2 + ((uint32_t)def->ncolumns + 7) / 8, last_text = 0;
    for (int i = 0; i < def->ncolumns; i++) {
        if (i == def->rowid_column)
            continue;
        l->slot[i] = at;
        if (type_is_bytes(def->columns[i].type)) {
            l->text_start[i] = last_text;
            last_text = at;
        }
        at += slot_bytes(def->columns[i].type);
    }
    l->slots_end = at;
}

size_t row_size(const row_layout *l, const value *row) {
    size_t n = l->slots_end;
    for (int i = 0; i < l->ncolumns; i++)
        if (type_is_bytes(l->columns[i].type) && row[i].type != TYPE_NULL)
            n += row[i].s.n;
    return n;
}

void row_encode(const row_layout *l, const value *row, uint8_t *out) {
    uint16_t ncolumns = (uint16_t)l->ncolumns;
    uint32_t end = 0;
    memset(out, 0, l->slots_end);
    memcpy(out, &ncolumns, 2);
    for (int i = 0; i < l->ncolumns; i++) {
        uint8_t *slot = out + l->slot[i];
        bool null = row[i].type == TYPE_NULL;
        if (i == l->rowid_column)
            continue;
        if (null)
            out[2 + i / 8] |= (uint8_t)(1u << (i % 8));
        switch (l->columns[i].type) {
        case TYPE_BOOLEAN:
            *slot = !null && row[i].i != 0;
            break;
        case TYPE_TEXT:
        case TYPE_BLOB:
        case TYPE_VECTOR:
            if (!null && row[i].s.n) {
                memcpy(out + l->slots_end + end, row[i].s.p, row[i].s.n);
                end += (uint32_t)row[i].s.n;
            }
            memcpy(slot, &end, 4);
            break;
        case TYPE_NULL:
        case TYPE_INTEGER:
        case TYPE_REAL:
            if (!null)
                memcpy(slot, &row[i].i, 8);
            break;
        }
    }
}

bool row_check(const row_layout *l, MDB_val bytes) {
    uint16_t ncolumns;
    if (bytes.mv_size < l->slots_end)
        return false;
    memcpy(&ncolumns, bytes.mv_data, 2);
    return ncolumns == l->ncolumns;
}

/* Decodes a cell of a row that passed row_check; false: its offsets are outside the row. */
static bool row_cell(const row_layout *l, MDB_val bytes, int64_t rowid, int at, value *out) {
    const uint8_t *p = bytes.mv_data;
    if (at < 0 || at == l->rowid_column) {
        *out = value_int(rowid);
        return true;
    }
    if (p[2 + at / 8] >> (at % 8) & 1) {
        *out = value_null();
        return true;
    }
    const uint8_t *slot = p + l->slot[at];
    *out = (value){.type = l->columns[at].type, .i = 0};
    switch (out->type) {
    case TYPE_BOOLEAN:
        out->i = *slot & 1;
        return true;
    case TYPE_TEXT:
    case TYPE_BLOB:
    case TYPE_VECTOR: {
        uint32_t start = l->text_start[at] ? load32(p + l->text_start[at]) : 0, end = load32(slot);
        if (start > end || end > bytes.mv_size - l->slots_end)
            return false;
        out->s = (str){(const char *)p + l->slots_end + start, end - start};
        return true;
    }
    case TYPE_NULL:
    case TYPE_INTEGER:
    case TYPE_REAL:
        break;
    }
    memcpy(&out->i, slot, 8);
    return true;
}

int row_corrupt(const row_layout *l, int64_t rowid, err *e) {
    err_set(e, ERR_CORRUPT, "table \"%.*s\" is damaged: the row with rowid %lld has a wrong form",
            (int)l->def->name.n, l->def->name.p, (long long)rowid);
    err_hint(e, DAMAGE_HINT);
    return ERR_CORRUPT;
}

int row_decode(const row_layout *l, MDB_val bytes, int64_t rowid, value *row, err *e) {
    if (!row_check(l, bytes))
        return row_corrupt(l, rowid, e);
    for (int i = 0; i < l->ncolumns; i++)
        if (!row_cell(l, bytes, rowid, i, &row[i]))
            return row_corrupt(l, rowid, e);
    return 0;
}
