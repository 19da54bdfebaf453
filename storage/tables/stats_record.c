/*
 * stats_record.c - encoding of statistics in the meta tree: column_stats under "stats:<table id>",
 * the column_counts that they are made from under "counts:<table id>".
 *
 *   stats   version, columns, counted rows; per column its column_stats; joint rows; per column a
 *           joint cell (value id, bytes) per joint row
 *   counts  version, columns, rows, random state, reservoir; per column its column_count, which has
 *           nexact hashes or, if nexact is above EXACT_DISTINCT, the registers
 *
 * A record of another version, or for another number of columns, is ignored: the table then is not
 * analyzed.
 */
#include <stdio.h>
#include <string.h>

#include "stats_int.h"

enum { STATS_VERSION = 3 };

static void put_double(buf *b, double d) {
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    put_u64(b, bits);
}

static double get_double(bytes_reader *r) {
    uint64_t bits = get_u64(r);
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static void put_value(buf *b, value v) {
    put_u8(b, (uint8_t)v.type);
    if (type_is_bytes(v.type))
        put_str(b, v.s);
    else
        put_u64(b, (uint64_t)v.i);
}

static value get_value(bytes_reader *r, arena *a) {
    uint8_t type = get_u8(r);
    value v = {.type = (value_type)type, .i = 0};
    if (type > TYPE_VECTOR) {
        r->bad = true;
        return value_null();
    }
    if (type_is_bytes(v.type))
        v.s = str_copy(a, get_str(r));
    else
        v.i = (int64_t)get_u64(r);
    return v;
}

/* The key includes the terminating zero, so that "stats:1" is not a prefix of "stats:12". */
static str record_key(const char *what, uint32_t table_id, char out[32]) {
    int n = snprintf(out, 32, "%s:%u", what, table_id);
    return (str){out, (size_t)n + 1};
}

int stats_forget(txn *t, uint32_t table_id, err *e) {
    char name[32];
    int status = meta_delete_prefix(t, record_key("stats", table_id, name), e);
    return status ? status : meta_delete_prefix(t, record_key("counts", table_id, name), e);
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void write_stats(buf *b, const table_stats *s) {
    put_u32(b, STATS_VERSION);
    put_u32(b, (uint32_t)s->ncolumns);
    put_u64(b, s->counted_rows);
    for (int i = 0; i < s->ncolumns; i++) {
        const column_stats *c = &s->columns[i];
        put_double(b, c->distinct);
        put_double(b, c->null_fraction);
        put_double(b, c->average_bytes);
        put_double(b, c->p90_bytes);
        put_value(b, c->low);
        put_value(b, c->high);
        put_u32(b, (uint32_t)c->ncommon);
        for (int k = 0; k < c->ncommon; k++) {
            put_value(b, c->common[k]);
            put_double(b, c->common_fraction[k]);
        }
    }
    put_u32(b, (uint32_t)s->njoint);
    for (int i = 0; i < s->ncolumns; i++)
        for (int k = 0; k < s->njoint; k++) {
            put_u32(b, s->columns[i].joint[k].id);
            put_u32(b, s->columns[i].joint[k].bytes);
        }
}

static void read_column(bytes_reader *r, arena *a, column_stats *c) {
    c->distinct = get_double(r);
    c->null_fraction = get_double(r);
    c->average_bytes = get_double(r);
    c->p90_bytes = get_double(r);
    c->low = get_value(r, a);
    c->high = get_value(r, a);
    uint32_t n = get_u32(r);
    r->bad = r->bad || n > COMMON_MAX;
    c->ncommon = r->bad ? 0 : (int)n;
    for (int k = 0; k < c->ncommon; k++) {
        c->common[k] = get_value(r, a);
        c->common_fraction[k] = get_double(r);
    }
}

static void read_joint(bytes_reader *r, int rows, arena *a, column_stats *c) {
    c->joint = ARENA_ARRAY(a, joint_cell, BASE_MAX(rows, 1));
    for (int k = 0; k < rows; k++) {
        c->joint[k].id = get_u32(r);
        c->joint[k].bytes = get_u32(r);
        r->bad = r->bad || (c->joint[k].id != JOINT_NULL && c->joint[k].id >= (uint32_t)rows);
    }
}

static bool read_stats(str bytes, bool joint, arena *a, table_stats *out) {
    bytes_reader r = {(const uint8_t *)bytes.p, (const uint8_t *)bytes.p + bytes.n, false};
    if (get_u32(&r) != STATS_VERSION || get_u32(&r) != (uint32_t)out->ncolumns)
        return false;
    out->counted_rows = get_u64(&r);
    for (int i = 0; i < out->ncolumns && !r.bad; i++)
        read_column(&r, a, &out->columns[i]);
    if (!joint || r.bad)
        return !r.bad;
    out->njoint = (int)get_u32(&r);
    r.bad = r.bad || out->njoint < 0 || out->njoint > JOINT_ROWS;
    for (int i = 0; i < out->ncolumns && !r.bad; i++)
        read_joint(&r, out->njoint, a, &out->columns[i]);
    return !r.bad;
}

int stats_record_get(txn *t, const table_def *def, bool joint, arena *a, table_stats *out, err *e) {
    char name[32];
    str bytes;
    bool found;
    int status = meta_get(t, record_key("stats", def->id, name), &bytes, &found, e);
    if (status || !found)
        return status;
    out->analyzed = read_stats(bytes, joint, a, out);
    if (!out->analyzed) {
        out->njoint = 0;
        memset(out->columns, 0, sizeof *out->columns * (size_t)BASE_MAX(def->ncolumns, 1));
    }
    return 0;
}

/* ---- counts ---------------------------------------------------------------------------------- */

static void write_counts(buf *b, const stats_feed *f) {
    put_u32(b, STATS_VERSION);
    put_u32(b, (uint32_t)f->ncolumns);
    put_u64(b, f->rows);
    put_u64(b, f->random);
    put_str(b, (str){(const char *)f->sample, sizeof *f->sample * (size_t)f->nsample});
    for (int i = 0; i < f->ncolumns; i++) {
        const column_count *c = &f->columns[i];
        put_u64(b, c->nulls);
        put_u64(b, c->bytes);
        put_u8(b, c->has_values);
        put_value(b, c->has_values ? c->low : value_null());
        put_value(b, c->has_values ? c->high : value_null());
        put_u32(b, (uint32_t)c->nexact);
        if (c->nexact > EXACT_DISTINCT)
            put_str(b, (str){(const char *)c->hll, sizeof c->hll});
        for (int k = 0; k < EXACT_SLOTS && c->nexact <= EXACT_DISTINCT; k++)
            if (c->exact[k])
                put_u64(b, c->exact[k]);
    }
}

static void read_count(bytes_reader *r, arena *a, column_count *c) {
    c->nulls = get_u64(r);
    c->bytes = get_u64(r);
    c->has_values = get_u8(r) != 0;
    c->low = get_value(r, a);
    c->high = get_value(r, a);
    uint32_t n = get_u32(r);
    if (n <= EXACT_DISTINCT) {
        for (uint32_t k = 0; k < n && !r->bad; k++)
            count_hash(c, get_u64(r));
        r->bad = r->bad || c->nexact != (int)n;
        return;
    }
    str registers = get_str(r);
    c->nexact = EXACT_DISTINCT + 1;
    r->bad = r->bad || registers.n != sizeof c->hll;
    if (!r->bad)
        memcpy(c->hll, registers.p, sizeof c->hll);
}

static bool read_counts(str bytes, stats_feed *f) {
    bytes_reader r = {(const uint8_t *)bytes.p, (const uint8_t *)bytes.p + bytes.n, false};
    if (get_u32(&r) != STATS_VERSION || get_u32(&r) != (uint32_t)f->ncolumns)
        return false;
    f->rows = get_u64(&r);
    f->random = get_u64(&r);
    str sample = get_str(&r);
    if (r.bad || sample.n > sizeof *f->sample * SAMPLE_ROWS || sample.n % sizeof *f->sample)
        return false;
    memcpy(f->sample, sample.p, sample.n);
    f->nsample = (int)(sample.n / sizeof *f->sample);
    for (int i = 0; i < f->ncolumns && !r.bad; i++)
        read_count(&r, f->mem, &f->columns[i]);
    return !r.bad;
}

int stats_record_counts(txn *t, const table_def *def, stats_feed *f, bool *found, err *e) {
    char name[32];
    str bytes;
    int status = meta_get(t, record_key("counts", def->id, name), &bytes, found, e);
    if (status || !*found)
        return status;
    *found = read_counts(bytes, f);
    return 0;
}

int stats_record_put(txn *t, const table_def *def, const table_stats *s, const stats_feed *f,
                     err *e) {
    char name[32];
    buf b = {0};
    write_stats(&b, s);
    int status = meta_put(t, record_key("stats", def->id, name), buf_str(&b), e);
    buf_clear(&b);
    write_counts(&b, f);
    if (!status)
        status = meta_put(t, record_key("counts", def->id, name), buf_str(&b), e);
    buf_free(&b);
    return status;
}
