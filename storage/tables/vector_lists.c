/*
 * vector_lists.c - indexes USING ivfflat: the list and the entry of a vector.
 *
 * Invariants: which list a vector is in depends on its elements and the centroids alone, with the same
 * bits on every machine, so that a row's entry is found again; each row has one entry, as in a sorted
 * index, so the code for indexes of any kind writes, verifies and copies it. The centroids stay as they
 * were when the index was built.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vector_lists_int.h"

static str centroid(const vector_lists *l, uint32_t i) {
    return (str){(const char *)(l->centroids + (size_t)i * (size_t)l->dims),
                 sizeof(float) * (size_t)l->dims};
}

void lists_encode_centroids(const vector_lists *l, list_codes *out) {
    for (uint32_t i = 0; i < l->n; i++) {
        str c = centroid(l, i);
        out->scales[i] = vector_encode(c, out->codes + (size_t)i * (size_t)l->dims);
        out->squares[i] = l->metric == VECTOR_L2 ? vector_distance(VECTOR_INNER, c, c, 0) / 2 : 0;
    }
}

void lists_prepare(vector_lists *lists, arena *a) {
    list_codes *codes = ARENA_NEW(a, list_codes);
    *codes = (list_codes){ARENA_ARRAY(a, int8_t, (size_t)lists->n * (size_t)lists->dims),
                          ARENA_ARRAY(a, double, lists->n), ARENA_ARRAY(a, double, lists->n)};
    lists_encode_centroids(lists, codes);
    lists->codes = codes;
}

coded_query lists_query(str v) {
    coded_query q = {.codes = mem_alloc(sizeof *q.codes * (v.n / sizeof(float)))};
    q.scale = vector_encode_query(v, q.codes);
    return q;
}

double lists_farness(const vector_lists *l, uint32_t i, const coded_query *q) {
    size_t dims = (size_t)l->dims;
    int64_t sum = vector_codes_inner(l->codes->codes + i * dims, q->codes, dims);
    return l->codes->squares[i] - l->codes->scales[i] * q->scale * (double)sum;
}

uint32_t lists_nearest(const vector_lists *l, str v) {
    coded_query q = lists_query(v);
    uint32_t best = 0;
    double least = INFINITY;
    for (uint32_t i = 0; i < l->n; i++) {
        double d = lists_farness(l, i, &q);
        if (d < least) {
            least = d;
            best = i;
        }
    }
    free(q.codes);
    return best;
}

bool lists_has(const vector_lists *l, value v) {
    return v.type != TYPE_NULL && vector_dims(v.s) == l->dims &&
           (l->metric == VECTOR_L2 || vector_norm(v.s) > 0);
}

/* ---- entries --------------------------------------------------------------------------------- */

void lists_append_list(buf *b, uint32_t list) {
    list = __builtin_bswap32(list);
    buf_append_char(b, KEY_NOT_NULL);
    buf_append(b, &list, sizeof list);
}

void lists_append_cell(buf *b, const vector_lists *lists, value v) {
    if (lists_has(lists, v))
        lists_append_list(b, lists_nearest(lists, v.s));
    else
        buf_append_char(b, 0);
}

size_t lists_entry_bytes(const vector_lists *lists) {
    return sizeof(entry_head) + (size_t)lists->dims;
}

void lists_make_entry(buf *out, const index_def *index, const value *row) {
    const vector_lists *l = index->lists;
    buf_clear(out);
    if (!l || !lists_has(l, row[index->columns[0]]))
        return;
    str v = row[index->columns[0]].s;
    bool cosine = l->metric == VECTOR_COSINE;
    int8_t *codes = mem_alloc((size_t)l->dims);
    double scale = vector_encode(v, codes);
    entry_head head = {(float)(cosine ? scale / vector_norm(v) : scale),
                       (float)(cosine ? 0 : vector_distance(VECTOR_INNER, v, v, 0))};
    buf_append(out, &head, sizeof head);
    buf_append(out, codes, (size_t)l->dims);
    free(codes);
}
