/*
 * joint.c - the number of distinct combinations of several fields, estimated from the joint sample
 * of a table's statistics.
 *
 * The number of combinations has two bounds: the largest number of distinct values of one field,
 * and the product of all these numbers. In the sample, the actual number divides the interval
 * between the bounds at some ratio, on a logarithmic scale. The estimate for the table divides the
 * table's interval at the same ratio, so it is exact if the sample is the whole table. Fields of
 * different tables are assumed to be independent.
 *
 * Every subset of a call's fields is counted only once while a statement is planned.
 */
#include <math.h>
#include <string.h>

#include "estimate_int.h"

enum {
    JOINT_FIELDS = 10, /* maximum fields of a call, since all their subsets are counted */
    JOINT_SLOTS = 2048 /* slots of refine's hash table, more than a sample has rows */
};

/* Numbers the distinct combinations of parent[i] and cells[i] from 0, and writes to out[i] the
 * number of row i's combination. Returns how many distinct combinations there are. */
static uint32_t refine(const uint32_t *parent, const joint_cell *cells, int rows, uint32_t *out) {
    uint64_t keys[JOINT_SLOTS];
    uint32_t ids[JOINT_SLOTS] = {0}, count = 0;
    for (int i = 0; i < rows; i++) {
        uint64_t key = (uint64_t)parent[i] << 32 | cells[i].id;
        uint32_t at = (uint32_t)hash_mix(11, key) % JOINT_SLOTS;
        while (ids[at] && keys[at] != key)
            at = (at + 1) % JOINT_SLOTS;
        if (!ids[at]) {
            keys[at] = key;
            ids[at] = ++count;
        }
        out[i] = ids[at] - 1;
    }
    return count;
}

/* Counts for every subset of n fields, all of one source, the distinct combinations that the sample
 * has of the subset's fields. */
static double *count_subsets(arena *mem, const field_estimate *const *f, int n) {
    int rows = f[0]->joint.rows;
    double *counts = ARENA_ARRAY(mem, double, (size_t)1 << n);
    uint32_t *ids = ARENA_ARRAY(mem, uint32_t, ((size_t)rows + 1) << n);
    counts[0] = 1;
    for (uint32_t set = 1; set < 1u << n; set++) {
        int last = 31 - __builtin_clz(set);
        const uint32_t *parent = ids + (size_t)(set & ~(1u << last)) * (size_t)rows;
        counts[set] = refine(parent, f[last]->joint.cells, rows, ids + (size_t)set * (size_t)rows);
    }
    return counts;
}

/* Computes the minimum and maximum possible number of combinations of the fields in `set`. */
static void bounds_of(const double *distinct, int n, uint32_t set, double rows, double *low,
                      double *high) {
    *low = *high = 1;
    for (int i = 0; i < n; i++)
        if (set >> i & 1) {
            *low = BASE_MAX(*low, distinct[i]);
            *high = BASE_MIN(*high * distinct[i], rows);
        }
    *low = BASE_MIN(*low, *high);
}

/* Estimates the number of combinations of `set` in the relation from the sample's counts. */
static double scale_up(const double *counts, const double *distinct, int n, uint32_t set,
                       int sampled, double rows) {
    double ones[JOINT_FIELDS], low, high, from, to;
    for (int i = 0; i < n; i++)
        ones[i] = counts[1u << i];
    bounds_of(ones, n, set, sampled, &from, &to);
    bounds_of(distinct, n, set, rows, &low, &high);
    double ratio = to > from ? log(counts[set] / from) / log(to / from) : 0.5;
    return low * pow(high / low, ratio);
}

/* Returns count_subsets of the fields f, which are a call's fields from one source. Cached by the
 * call and the source's first field. */
static const double *counts_of(estimator *s, const llm_call *call, const field_estimate *const *f,
                               int n) {
    for (joint_counts *c = s->counted; c; c = c->next)
        if (c->call == call && c->first == f[0]->joint.cells && c->fields == n)
            return c->counts;
    joint_counts *made = ARENA_NEW(s->mem, joint_counts);
    *made = (joint_counts){s->counted, call, f[0]->joint.cells, n, count_subsets(s->mem, f, n)};
    s->counted = made;
    return made->counts;
}

/* For every subset of the call's fields: multiplies out[subset] by the estimated number of
 * combinations of the fields that are in the subset and come from the same source as field `first`.
 * The product is at most `rows`. */
static void add_source(estimator *s, const llm_call *call, const field_estimate *f, int first,
                       double rows, double *out) {
    const field_estimate *own[JOINT_FIELDS];
    double distinct[JOINT_FIELDS];
    int field[JOINT_FIELDS], n = 0;
    for (int i = first; i < call->nfields; i++)
        if (f[i].joint.source == f[first].joint.source) {
            own[n] = &f[i];
            distinct[n] = f[i].distinct;
            field[n++] = i;
        }
    const double *counts = counts_of(s, call, own, n);
    double *scaled = ARENA_ARRAY(s->mem, double, (size_t)1 << n);
    for (uint32_t set = 0; set < 1u << n; set++)
        scaled[set] = scale_up(counts, distinct, n, set, own[0]->joint.rows,
                               BASE_MIN(rows, own[0]->joint.table_rows));
    for (uint32_t set = 0; set < 1u << call->nfields; set++) {
        uint32_t part = 0;
        for (int k = 0; k < n; k++)
            part |= (set >> field[k] & 1) << k;
        out[set] = BASE_MIN(out[set] * scaled[part], BASE_MAX(1, rows));
    }
}

double *joint_distinct(estimator *s, const llm_call *call, const field_estimate *f, double rows) {
    if (call->nfields < 1 || call->nfields > JOINT_FIELDS)
        return NULL;
    for (int i = 0; i < call->nfields; i++)
        if (!f[i].joint.source || f[i].joint.rows < 1)
            return NULL;
    double *out = ARENA_ARRAY(s->mem, double, (size_t)1 << call->nfields);
    for (uint32_t set = 0; set < 1u << call->nfields; set++)
        out[set] = 1;
    for (int i = 0; i < call->nfields; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen = seen || f[k].joint.source == f[i].joint.source;
        if (!seen)
            add_source(s, call, f, i, rows, out);
    }
    return out;
}

void joint_order(estimator *s, const field_estimate *f, const double *distinct, int n,
                 uint8_t *order) {
    uint32_t full = (1u << n) - 1;
    /* cost[set]: minimum tokens of all fields that are not in `set`, if the fields in `set` come
     * first; next[set]: the field that follows them */
    double *cost = ARENA_ARRAY(s->mem, double, (size_t)full + 1);
    uint8_t *next = ARENA_ARRAY(s->mem, uint8_t, (size_t)full + 1);
    cost[full] = 0;
    for (uint32_t set = full; set-- > 0;) {
        cost[set] = INFINITY;
        for (int i = 0; i < n; i++) {
            uint32_t with = set | 1u << i;
            double total = with == set ? INFINITY : distinct[with] * f[i].tokens + cost[with];
            if (total < cost[set]) {
                cost[set] = total;
                next[set] = (uint8_t)i;
            }
        }
    }
    for (uint32_t set = 0, k = 0; set != full; set |= 1u << next[set])
        order[k++] = next[set];
}
