/*
 * stats.c - column statistics for the planner, computed by ANALYZE and while many rows are written.
 *
 *   rows --stats_feed_rows--> counts: NULLs, bytes, least and greatest value, hashes of values; a
 *                             reservoir of rowids
 *        --stats_feed_keep--> column_stats, and the counts, to which later rows are added
 *                             (stats_record.c encodes both)
 *
 * Distinct values are counted exactly up to EXACT_DISTINCT, then estimated by HyperLogLog (standard
 * error 1.6 %). The reservoir, sampled with a fixed seed, yields p90 lengths, common values and the
 * joint sample. Lengths are those of the printed value. Rows deleted or updated later are not
 * subtracted: stats_get scales the figures to the exact number of rows, and ANALYZE counts again.
 * Invariant: the same rows in the same order give the same statistics.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stats_int.h"

enum { BOUND_BYTES_MAX = 128 /* maximum bytes of a text kept as low, high or common value */ };

/* ---- counting -------------------------------------------------------------------------------- */

static size_t int_bytes(int64_t i) {
    size_t n = i < 0 ? 2 : 1;
    for (; i / 10; i /= 10)
        n++;
    return n;
}

/* About the length of a printed vector: printing each would be slow. */
static size_t vector_bytes(str v) {
    enum { PRINTED_ELEMENT = 11 };
    return (size_t)vector_dims(v) * PRINTED_ELEMENT;
}

static size_t printed_bytes(value v) {
    char text[32];
    if (v.type == TYPE_VECTOR)
        return vector_bytes(v.s);
    if (type_is_bytes(v.type))
        return v.s.n;
    return v.type == TYPE_REAL ? format_real(v.r, text) : int_bytes(v.i);
}

static void count_register(column_count *c, uint64_t hash) {
    unsigned at = (unsigned)(hash >> (64 - HLL_BITS));
    uint64_t rest = hash << HLL_BITS;
    uint8_t rank = (uint8_t)(rest ? __builtin_clzll(rest) + 1 : 64 - HLL_BITS + 1);
    c->hll[at] = BASE_MAX(c->hll[at], rank);
}

bool count_hash(column_count *c, uint64_t hash) {
    if (c->nexact > EXACT_DISTINCT) {
        count_register(c, hash);
        return true;
    }
    hash += hash == 0;
    size_t slot = hash % EXACT_SLOTS;
    while (c->exact[slot] && c->exact[slot] != hash)
        slot = (slot + 1) % EXACT_SLOTS;
    if (c->exact[slot])
        return false;
    c->exact[slot] = hash;
    if (++c->nexact > EXACT_DISTINCT)
        for (slot = 0; slot < EXACT_SLOTS; slot++)
            if (c->exact[slot])
                count_register(c, c->exact[slot]);
    return true;
}

static double distinct_of(const column_count *c) {
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

/* Returns a copy of a value. A long text is cut to its first bytes, which suffice for an
 * estimate. */
static value keep(arena *a, value v) {
    if (type_is_bytes(v.type))
        v.s.n = BASE_MIN(v.s.n, (size_t)BOUND_BYTES_MAX);
    while (v.type == TYPE_TEXT && v.s.n && !utf8_valid(v.s))
        v.s.n--;
    return value_copy(a, v);
}

/* Returns the hash of an integer (splitmix64): each bit of i affects all bits of the result. */
static uint64_t spread(int64_t i) {
    uint64_t z = (uint64_t)i + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void count_extremes(arena *a, column_count *c, value v) {
    if (!c->has_values || value_compare(v, c->low) < 0)
        c->low = keep(a, v);
    if (!c->has_values || value_compare(v, c->high) > 0)
        c->high = keep(a, v);
    c->has_values = true;
}

/* Returns the first eight bytes of a text as a number that sorts like the text: enough to place
 * most texts between the extremes. */
static uint64_t head_of(str s) {
    uint8_t bytes[8] = {0};
    memcpy(bytes, s.n ? s.p : "", BASE_MIN(s.n, sizeof bytes));
    uint64_t head = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        head = head << 8 | bytes[i];
    return head;
}

static void count_texts(arena *a, column_count *c, const column *in, int rows) {
    uint64_t low = c->has_values ? head_of(c->low.s) : 0;
    uint64_t high = c->has_values ? head_of(c->high.s) : 0;
    for (int i = 0; i < rows; i++) {
        if (column_is_null(in, i)) {
            c->nulls++;
            continue;
        }
        str s = in->s[i];
        c->bytes += s.n;
        if (!count_hash(c, hash64(s.p, s.n, (uint64_t)in->type)))
            continue;
        uint64_t head = head_of(s);
        if (c->has_values && head > low && head < high)
            continue;
        count_extremes(a, c, (value){.type = in->type, .s = s});
        low = head_of(c->low.s);
        high = head_of(c->high.s);
    }
}

/* Vectors have no extremes: no estimate needs them. */
static void count_vectors(column_count *c, const column *in, int rows) {
    for (int i = 0; i < rows; i++) {
        bool null = column_is_null(in, i);
        c->nulls += null;
        c->bytes += null ? 0 : vector_bytes(in->s[i]);
        if (!null)
            count_hash(c, value_hash(column_get(in, i)));
    }
}

static void count_integer(arena *a, column_count *c, value v) {
    c->bytes += int_bytes(v.i);
    if (!count_hash(c, spread(v.i)))
        return;
    if (!c->has_values || v.i < c->low.i || v.i > c->high.i)
        count_extremes(a, c, v);
}

static void count_integers(arena *a, column_count *c, const column *in, int rows) {
    for (int i = 0; i < rows; i++)
        if (column_is_null(in, i))
            c->nulls++;
        else
            count_integer(a, c, (value){.type = in->type, .i = in->i[i]});
}

/* Lengths of REALs are taken from the sample: printing each one would be slow. */
static void count_reals(arena *a, column_count *c, const column *in, int rows) {
    for (int i = 0; i < rows; i++) {
        value v = column_get(in, i);
        if (v.type == TYPE_NULL)
            c->nulls++;
        else if (count_hash(c, spread((int64_t)value_hash(v))))
            count_extremes(a, c, v);
    }
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = spread((int64_t)*state);
    *state += 0x9e3779b97f4a7c15u;
    return z;
}

void stats_feed_rows(stats_feed *f, const batch *b, const int64_t *rowids) {
    for (int i = 0; i < b->rows; i++) {
        uint64_t at = f->rows + (uint64_t)i;
        if (f->nsample < SAMPLE_ROWS)
            f->sample[f->nsample++] = rowids[i];
        else if ((at = next_random(&f->random) % (at + 1)) < SAMPLE_ROWS)
            f->sample[at] = rowids[i];
    }
    for (int k = 0; k < f->ncolumns; k++) {
        const column *in = &b->cols[k];
        column_count *c = &f->columns[k];
        /* A batch may have NULLs in the rowid column, whose values are assigned by table_insert. */
        if (k == f->rowid_column)
            for (int i = 0; i < b->rows; i++)
                count_integer(f->mem, c, value_int(rowids[i]));
        else if (in->type == TYPE_VECTOR)
            count_vectors(c, in, b->rows);
        else if (type_is_bytes(in->type))
            count_texts(f->mem, c, in, b->rows);
        else if (in->type == TYPE_REAL)
            count_reals(f->mem, c, in, b->rows);
        else
            count_integers(f->mem, c, in, b->rows);
    }
    f->rows += (uint64_t)b->rows;
}

stats_feed *stats_feed_new(const table_def *def) {
    stats_feed *f = mem_zalloc(sizeof *f);
    f->mem = arena_new();
    f->random = 1;
    f->ncolumns = def->ncolumns;
    f->rowid_column = def->rowid_column;
    f->columns = ARENA_ARRAY(f->mem, column_count, BASE_MAX(def->ncolumns, 1));
    f->sample = ARENA_ARRAY(f->mem, int64_t, SAMPLE_ROWS);
    return f;
}

/* Resets f to what stats_feed_new returns. */
static void stats_feed_clear(stats_feed *f) {
    f->rows = 0;
    f->random = 1;
    f->nsample = 0;
    memset(f->columns, 0, sizeof *f->columns * (size_t)BASE_MAX(f->ncolumns, 1));
}

void stats_feed_free(stats_feed *f) {
    if (!f)
        return;
    arena_free(f->mem);
    free(f);
}

static int feed_table(txn *t, const table_def *def, stats_feed *f, const atomic_bool *cancel,
                      err *e) {
    int *columns = ARENA_ARRAY(f->mem, int, def->ncolumns + 1);
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
        if ((status = check_cancel(cancel, e)) == 0 && (status = scan_next(s, &b, e)) == 0 &&
            b.rows)
            stats_feed_rows(f, &b, b.cols[def->ncolumns].i);
    }
    arena_free(mem);
    scan_close(s);
    return status;
}

/* ---- the sample ------------------------------------------------------------------------------ */

static int compare_values(const void *a, const void *b) {
    return value_compare(*(const value *)a, *(const value *)b);
}

static int compare_sizes(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Finds the most frequent values that occur at least twice among the sorted ones. */
static void find_common(column_stats *out, arena *a, const value *sorted, int n, int sampled) {
    int counts[COMMON_MAX] = {0};
    out->ncommon = 0;
    for (int i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && value_compare(sorted[i], sorted[next]) == 0;)
            next++;
        int count = next - i, at = out->ncommon;
        if (count < 2 || (at == COMMON_MAX && count <= counts[COMMON_MAX - 1]))
            continue;
        if (type_is_bytes(sorted[i].type) && sorted[i].s.n > BOUND_BYTES_MAX)
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

static void finish_column(const stats_feed *f, int column_at, value *values, size_t *sizes, int n,
                          int sampled, column_stats *out) {
    const column_count *c = &f->columns[column_at];
    uint64_t present = f->rows - c->nulls;
    double sum = 0;
    out->distinct = distinct_of(c);
    out->null_fraction = f->rows ? (double)c->nulls / (double)f->rows : 0;
    out->average_bytes = present ? (double)c->bytes / (double)present : 0;
    out->low = c->has_values ? c->low : value_null();
    out->high = c->has_values ? c->high : value_null();
    if (n == 0)
        return;
    for (int i = 0; i < n; i++) {
        sizes[i] = printed_bytes(values[i]);
        sum += (double)sizes[i];
    }
    if (values[0].type == TYPE_REAL)
        out->average_bytes = sum / n;
    qsort(sizes, (size_t)n, sizeof *sizes, compare_sizes);
    out->p90_bytes = (double)sizes[BASE_MIN(n * 9 / 10, n - 1)];
    qsort(values, (size_t)n, sizeof *values, compare_values);
    find_common(out, f->mem, values, n, sampled);
}

/* Fills the joint sample: ids of the values, equal for equal values, and printed lengths. */
static void finish_joint(const stats_feed *f, const value *cells, int n, table_stats *out) {
    uint64_t *hashes = ARENA_ARRAY(f->mem, uint64_t, JOINT_ROWS);
    hash_index ids = {0};
    out->njoint = BASE_MIN(n, (int)JOINT_ROWS);
    for (int k = 0; k < f->ncolumns; k++) {
        column_stats *c = &out->columns[k];
        uint32_t count = 0;
        c->joint = ARENA_ARRAY(f->mem, joint_cell, BASE_MAX(out->njoint, 1));
        hash_index_free(&ids);
        for (int i = 0; i < out->njoint; i++) {
            /* The rows of the joint sample are spread evenly over the reservoir. */
            int64_t row = (int64_t)i * n / out->njoint;
            value v = cells[row * f->ncolumns + k];
            c->joint[i] = (joint_cell){JOINT_NULL, 0};
            if (v.type == TYPE_NULL)
                continue;
            uint64_t hash = value_hash(v);
            hash_slot *s = hash_index_first(&ids, hash);
            while (s && hashes[s->item] != hash)
                s = hash_index_next(&ids, s);
            uint32_t id = s ? s->item : count++;
            if (!s) {
                hashes[id] = hash;
                hash_index_add(&ids, hash, id);
            }
            size_t bytes = BASE_MIN(printed_bytes(v), (size_t)UINT32_MAX);
            c->joint[i] = (joint_cell){id, (uint32_t)bytes};
        }
    }
    hash_index_free(&ids);
}

/* Reads the sampled rows and completes the statistics. */
static int finish(txn *t, const table_def *def, stats_feed *f, table_stats *out, err *e) {
    int n = 0, status = 0;
    size_t width = (size_t)def->ncolumns;
    value *cells = ARENA_ARRAY(f->mem, value, (size_t)BASE_MAX(f->nsample, 1) * width);
    value *values = ARENA_ARRAY(f->mem, value, BASE_MAX(f->nsample, 1));
    size_t *sizes = ARENA_ARRAY(f->mem, size_t, BASE_MAX(f->nsample, 1));
    int64_t *rowids = ARENA_ARRAY(f->mem, int64_t, BASE_MAX(f->nsample, 1));
    /* The rows are read in the table's order, by a sorted copy: the reservoir keeps its order. */
    if (f->nsample) {
        memcpy(rowids, f->sample, sizeof *rowids * (size_t)f->nsample);
        qsort(rowids, (size_t)f->nsample, sizeof *rowids, rowid_compare);
    }
    for (int i = 0; i < f->nsample && !status; i++) {
        bool found;
        status = table_get(t, def, rowids[i], cells + (size_t)n * width, &found, e);
        n += found; /* a row that was deleted after it was sampled is left out */
    }
    if (status)
        return status;
    for (int k = 0; k < def->ncolumns; k++) {
        int present = 0;
        for (int i = 0; i < n; i++) {
            value v = cells[(size_t)i * width + (size_t)k];
            if (v.type != TYPE_NULL)
                values[present++] = v;
        }
        finish_column(f, k, values, sizes, present, n, &out->columns[k]);
    }
    finish_joint(f, cells, n, out);
    return 0;
}

/* ---- keeping them ---------------------------------------------------------------------------- */

int stats_feed_keep(stats_feed *f, txn *t, const table_def *def, err *e) {
    table_stats stats = {.analyzed = true, .counted_rows = f->rows, .ncolumns = def->ncolumns};
    stats.columns = ARENA_ARRAY(f->mem, column_stats, BASE_MAX(def->ncolumns, 1));
    int status = finish(t, def, f, &stats, e);
    return status ? status : stats_record_put(t, def, &stats, f, e);
}

int stats_feed_resume(txn *t, const table_def *def, stats_feed **out, err *e) {
    uint64_t rows;
    int status = table_row_count(t, def, &rows, e);
    *out = NULL;
    if (status)
        return status;
    *out = stats_feed_new(def);
    if (rows == 0)
        return 0;
    bool found;
    status = stats_record_counts(t, def, *out, &found, e);
    /* If no counts are stored, or the stored rows are off by more than a factor of 2, count the
     * whole table. */
    if (status == 0 && (!found || (*out)->rows > 2 * rows || rows > 2 * (*out)->rows)) {
        stats_feed_clear(*out);
        status = feed_table(t, def, *out, NULL, e);
    }
    if (status) {
        stats_feed_free(*out);
        *out = NULL;
    }
    return status;
}

int stats_analyze(txn *t, const table_def *def, const atomic_bool *cancel, err *e) {
    stats_feed *f = stats_feed_new(def);
    int status = feed_table(t, def, f, cancel, e);
    if (!status)
        status = stats_feed_keep(f, t, def, e);
    stats_feed_free(f);
    return status;
}

/* ---- reading them ---------------------------------------------------------------------------- */

/* Scales the number of distinct values from the counted rows to the current rows: multiplies it by
 * growth ^ (distinct / present), where growth is current rows / counted rows, and present the
 * number of counted values that are not NULL. So the number grows with the rows for a key, and
 * stays for a column with few values. */
static void age(table_stats *s) {
    double counted = (double)s->counted_rows, growth = (double)s->rows / BASE_MAX(1, counted);
    for (int i = 0; i < s->ncolumns && s->rows != s->counted_rows; i++) {
        column_stats *c = &s->columns[i];
        double present = counted * (1 - c->null_fraction);
        if (present > 0)
            c->distinct *= pow(growth, BASE_MIN(1, c->distinct / present));
        c->distinct = BASE_MIN(c->distinct, (double)s->rows * (1 - c->null_fraction));
    }
}

int stats_get(txn *t, const table_def *def, bool joint, arena *a, table_stats *out, err *e) {
    *out = (table_stats){.ncolumns = def->ncolumns};
    out->columns = ARENA_ARRAY(a, column_stats, BASE_MAX(def->ncolumns, 1));
    int status = table_row_count(t, def, &out->rows, e);
    if (!status)
        status = table_rowid_ends(t, def, &out->first_rowid, &out->last_rowid, e);
    if (status)
        return status;
    status = stats_record_get(t, def, joint, a, out, e);
    /* Plans do without statistics, and the rows are not damaged; .check tells it. */
    if (status == ERR_CORRUPT) {
        status = 0;
        out->analyzed = false;
    }
    if (!status && out->analyzed)
        age(out);
    return status;
}
