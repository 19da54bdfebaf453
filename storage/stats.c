/*
 * stats.c - ANALYZE: what the planner wants to know of a table's columns.
 *
 * One pass over all rows gives NULLs, bytes, extremes and distinct values (exact up to
 * EXACT_DISTINCT, then HyperLogLog, 1.6 % standard error); a reservoir of SAMPLE_ROWS rows, drawn
 * from a fixed seed, gives the p90 length and the common values. Invariant: the same rows give the
 * same statistics. Bytes are those of the value as printed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage_int.h"

enum {
    STATS_VERSION = 1,
    SAMPLE_ROWS = 8192,
    EXACT_DISTINCT = 1024,
    EXACT_SLOTS = 4096,
    HLL_BITS = 12,
    HLL_REGISTERS = 1 << HLL_BITS,
    BOUND_BYTES_MAX = 128, /* of a text kept as low, high or common value */
    COMMON_MAX = 8
};

typedef struct column_pass {
    uint64_t nulls, bytes;
    bool has_values;
    value low, high;
    uint64_t exact[EXACT_SLOTS]; /* open addressing by hash; 0: free */
    int nexact;                  /* beyond EXACT_DISTINCT: too many to tell */
    uint8_t hll[HLL_REGISTERS];
} column_pass;

typedef struct pass {
    arena *mem;
    uint64_t rows, random;
    int64_t *sample; /* rowids */
    int nsample;
    column_pass *columns;
    int ncolumns;
} pass;

/* ---- counting -------------------------------------------------------------------------------- */

static size_t int_bytes(int64_t i) {
    size_t n = i < 0 ? 2 : 1;
    for (; i / 10; i /= 10)
        n++;
    return n;
}

static size_t printed_bytes(value v) {
    char text[32];
    if (v.type == TYPE_TEXT || v.type == TYPE_BLOB)
        return v.s.n;
    return v.type == TYPE_REAL ? format_real(v.r, text) : int_bytes(v.i);
}

static void count_distinct(column_pass *c, uint64_t hash) {
    unsigned at = (unsigned)(hash >> (64 - HLL_BITS));
    uint64_t rest = hash << HLL_BITS;
    uint8_t rank = (uint8_t)(rest ? __builtin_clzll(rest) + 1 : 64 - HLL_BITS + 1);
    c->hll[at] = BASE_MAX(c->hll[at], rank);
    if (c->nexact > EXACT_DISTINCT)
        return;
    hash += hash == 0;
    size_t slot = hash % EXACT_SLOTS;
    while (c->exact[slot] && c->exact[slot] != hash)
        slot = (slot + 1) % EXACT_SLOTS;
    if (!c->exact[slot]) {
        c->exact[slot] = hash;
        c->nexact++;
    }
}

static double distinct_of(const column_pass *c) {
    if (c->nexact <= EXACT_DISTINCT)
        return c->nexact;
    double sum = 0, m = HLL_REGISTERS;
    int zeros = 0;
    for (int i = 0; i < HLL_REGISTERS; i++) {
        sum += ldexp(1.0, -c->hll[i]);
        zeros += c->hll[i] == 0;
    }
    double raw = 0.7213 / (1 + 1.079 / m) * m * m / sum;
    return raw <= 2.5 * m && zeros ? m * log(m / zeros) : raw;
}

/* A value kept beyond its row: long texts by their first bytes, which is enough for an estimate. */
static value keep(arena *a, value v) {
    if (v.type == TYPE_TEXT || v.type == TYPE_BLOB)
        v.s.n = BASE_MIN(v.s.n, (size_t)BOUND_BYTES_MAX);
    while (v.type == TYPE_TEXT && v.s.n && !utf8_valid(v.s))
        v.s.n--;
    return value_copy(a, v);
}

static void pass_value(pass *p, column_pass *c, value v) {
    if (v.type == TYPE_NULL) {
        c->nulls++;
        return;
    }
    c->bytes += printed_bytes(v);
    uint64_t hash = value_hash(v);
    count_distinct(c, hash64(&hash, sizeof hash, 1));
    if (!c->has_values || value_compare(v, c->low) < 0)
        c->low = keep(p->mem, v);
    if (!c->has_values || value_compare(v, c->high) > 0)
        c->high = keep(p->mem, v);
    c->has_values = true;
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void pass_batch(pass *p, const batch *b) {
    for (int i = 0; i < b->rows; i++) { /* the last column is the rowid */
        uint64_t at = p->rows + (uint64_t)i;
        int64_t rowid = b->cols[p->ncolumns].i[i];
        if (p->nsample < SAMPLE_ROWS)
            p->sample[p->nsample++] = rowid;
        else if ((at = next_random(&p->random) % (at + 1)) < SAMPLE_ROWS)
            p->sample[at] = rowid;
    }
    for (int k = 0; k < p->ncolumns; k++)
        for (int i = 0; i < b->rows; i++)
            pass_value(p, &p->columns[k], column_get(&b->cols[k], i));
    p->rows += (uint64_t)b->rows;
}

static int pass_run(txn *t, const table_def *def, pass *p, const atomic_bool *cancel, err *e) {
    int *columns = ARENA_ARRAY(p->mem, int, def->ncolumns + 1);
    for (int i = 0; i < def->ncolumns; i++)
        columns[i] = i;
    columns[def->ncolumns] = -1;
    scan_spec spec = {.table = def, .columns = columns, .ncolumns = def->ncolumns + 1};
    table_scan *s = NULL;
    int status = scan_open(t, &spec, &s, e);
    arena *mem = arena_new();
    batch b = {.rows = 1, .mem = mem};
    while (!status && b.rows) {
        arena_reset(mem);
        b.mem = mem;
        if (cancel && atomic_load(cancel))
            status = err_set(e, ERR_CANCELLED, "stopped");
        else if ((status = scan_next(s, &b, e)) == 0)
            pass_batch(p, &b);
    }
    arena_free(mem);
    scan_close(s);
    return status;
}

/* ---- the sample ------------------------------------------------------------------------------ */

static int compare_rowids(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int compare_values(const void *a, const void *b) {
    return value_compare(*(const value *)a, *(const value *)b);
}

static int compare_sizes(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Sorted values → the most frequent ones, those seen at least twice. */
static void find_common(column_stats *out, arena *a, const value *sorted, int n, int sampled) {
    int counts[COMMON_MAX] = {0};
    out->ncommon = 0;
    for (int i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && value_compare(sorted[i], sorted[next]) == 0;)
            next++;
        int count = next - i, at = out->ncommon;
        if (count < 2 || (at == COMMON_MAX && count <= counts[COMMON_MAX - 1]))
            continue;
        bool is_text = sorted[i].type == TYPE_TEXT || sorted[i].type == TYPE_BLOB;
        if (is_text && sorted[i].s.n > BOUND_BYTES_MAX)
            continue;
        if (at < COMMON_MAX)
            out->ncommon++;
        else
            at--;
        for (; at > 0 && counts[at - 1] < count; at--) {
            counts[at] = counts[at - 1];
            out->common[at] = out->common[at - 1];
            out->common_fraction[at] = out->common_fraction[at - 1];
        }
        counts[at] = count;
        out->common[at] = value_copy(a, sorted[i]);
        out->common_fraction[at] = (double)count / sampled;
    }
}

static void finish_column(const pass *p, int column_at, value *values, size_t *sizes, int n,
                          arena *a, column_stats *out) {
    const column_pass *c = &p->columns[column_at];
    uint64_t present = p->rows - c->nulls;
    out->distinct = distinct_of(c);
    out->null_fraction = p->rows ? (double)c->nulls / (double)p->rows : 0;
    out->average_bytes = present ? (double)c->bytes / (double)present : 0;
    out->low = c->has_values ? value_copy(a, c->low) : value_null();
    out->high = c->has_values ? value_copy(a, c->high) : value_null();
    if (n == 0)
        return;
    for (int i = 0; i < n; i++)
        sizes[i] = printed_bytes(values[i]);
    qsort(sizes, (size_t)n, sizeof *sizes, compare_sizes);
    out->p90_bytes = (double)sizes[BASE_MIN(n * 9 / 10, n - 1)];
    qsort(values, (size_t)n, sizeof *values, compare_values);
    find_common(out, a, values, n, p->nsample);
}

/* Reads the sampled rows and completes the statistics. */
static int finish(txn *t, const table_def *def, pass *p, table_stats *out, err *e) {
    int n = p->nsample, status = 0;
    value *cells = ARENA_ARRAY(p->mem, value, (size_t)BASE_MAX(n, 1) * (size_t)def->ncolumns);
    value *values = ARENA_ARRAY(p->mem, value, BASE_MAX(n, 1));
    size_t *sizes = ARENA_ARRAY(p->mem, size_t, BASE_MAX(n, 1));
    if (n)
        qsort(p->sample, (size_t)n, sizeof *p->sample, compare_rowids);
    for (int i = 0; i < n && !status; i++) {
        bool found;
        status =
            table_get(t, def, p->sample[i], cells + (size_t)i * (size_t)def->ncolumns, &found, e);
    }
    for (int k = 0; k < def->ncolumns && !status; k++) {
        int present = 0;
        for (int i = 0; i < n; i++) {
            value v = cells[(size_t)i * (size_t)def->ncolumns + (size_t)k];
            if (v.type != TYPE_NULL)
                values[present++] = v;
        }
        finish_column(p, k, values, sizes, present, p->mem, &out->columns[k]);
    }
    return status;
}

/* ---- keeping them ---------------------------------------------------------------------------- */

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
    if (v.type == TYPE_TEXT || v.type == TYPE_BLOB)
        put_str(b, v.s);
    else
        put_u64(b, (uint64_t)v.i);
}

static value get_value(bytes_reader *r, arena *a) {
    uint8_t type = get_u8(r);
    value v = {.type = (value_type)type, .i = 0};
    if (type > TYPE_BLOB) {
        r->bad = true;
        return value_null();
    }
    if (type == TYPE_TEXT || type == TYPE_BLOB)
        v.s = str_copy(a, get_str(r));
    else
        v.i = (int64_t)get_u64(r);
    return v;
}

static str stats_key(uint32_t table_id, char out[32]) {
    int n = snprintf(out, 32, "stats:%u", table_id);
    return (str){out, (size_t)n + 1}; /* its zero too: "stats:1" is no prefix of "stats:12" */
}

int stats_forget(txn *t, uint32_t table_id, err *e) {
    char name[32];
    return meta_delete_prefix(t, stats_key(table_id, name), e);
}

static void write_stats(buf *b, const table_stats *s) {
    put_u32(b, STATS_VERSION);
    put_u32(b, (uint32_t)s->ncolumns);
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
}

/* False when the bytes are of another version or shape: then there are no statistics. */
static bool read_stats(str bytes, arena *a, table_stats *out) {
    bytes_reader r = {(const uint8_t *)bytes.p, (const uint8_t *)bytes.p + bytes.n, false};
    if (get_u32(&r) != STATS_VERSION || get_u32(&r) != (uint32_t)out->ncolumns)
        return false;
    for (int i = 0; i < out->ncolumns && !r.bad; i++) {
        column_stats *c = &out->columns[i];
        c->distinct = get_double(&r);
        c->null_fraction = get_double(&r);
        c->average_bytes = get_double(&r);
        c->p90_bytes = get_double(&r);
        c->low = get_value(&r, a);
        c->high = get_value(&r, a);
        uint32_t n = get_u32(&r);
        r.bad = r.bad || n > COMMON_MAX;
        c->ncommon = r.bad ? 0 : (int)n;
        for (int k = 0; k < c->ncommon; k++) {
            c->common[k] = get_value(&r, a);
            c->common_fraction[k] = get_double(&r);
        }
    }
    return !r.bad;
}

int stats_analyze(txn *t, const table_def *def, const atomic_bool *cancel, err *e) {
    arena *mem = arena_new();
    pass p = {.mem = mem, .random = 1, .ncolumns = def->ncolumns};
    p.sample = ARENA_ARRAY(mem, int64_t, SAMPLE_ROWS);
    p.columns = ARENA_ARRAY(mem, column_pass, def->ncolumns);
    table_stats stats = {.analyzed = true, .ncolumns = def->ncolumns};
    stats.columns = ARENA_ARRAY(mem, column_stats, def->ncolumns);
    int status = pass_run(t, def, &p, cancel, e);
    if (!status)
        status = finish(t, def, &p, &stats, e);
    if (!status) {
        char name[32];
        buf b = {0};
        write_stats(&b, &stats);
        status = meta_put(t, stats_key(def->id, name), buf_str(&b), e);
        buf_free(&b);
    }
    arena_free(mem);
    return status;
}

int stats_get(txn *t, const table_def *def, arena *a, table_stats *out, err *e) {
    char name[32];
    str bytes;
    bool found;
    *out = (table_stats){.ncolumns = def->ncolumns};
    out->columns = ARENA_ARRAY(a, column_stats, BASE_MAX(def->ncolumns, 1));
    int status = table_row_count(t, def, &out->rows, e);
    if (!status)
        status = meta_get(t, stats_key(def->id, name), &bytes, &found, e);
    if (status || !found)
        return status;
    out->analyzed = read_stats(bytes, a, out);
    if (!out->analyzed)
        memset(out->columns, 0, sizeof *out->columns * (size_t)BASE_MAX(def->ncolumns, 1));
    return 0;
}
