/*
 * vector_train.c - finds the centroids of an index USING ivfflat by k-means.
 *
 * Invariant: the same rows give the same centroids.
 */
#include <stdlib.h>
#include <string.h>

#include "vector_lists_int.h"

enum {
    ROWS_PER_LIST = 250,     /* of an index whose number of lists is not given */
    LISTS_MAX = 2048,        /* of such an index */
    ELEMENTS_MAX = 16 << 20, /* of all centroids: they are in the table's record */
    SAMPLE_PER_LIST = 64,    /* vectors that k-means reads for each list */
    SAMPLE_MAX = 256 << 20,  /* bytes of these vectors at most */
    ROUNDS = 10,             /* of k-means at most */
    VECTORS_PER_LOOK = 64    /* between two looks at the cancel flag */
};

typedef struct training {
    vector_lists lists; /* its centroids are `centroids` */
    float *centroids;
    list_codes codes;
    float *sample; /* [count][dims] */
    size_t count, room;
    uint32_t *member; /* [count] list of each vector of the sample */
    double *sums;     /* [n][dims] */
    uint32_t *sizes;  /* [n] */
    const atomic_bool *cancel;
} training;

static float *sample_at(const training *t, size_t i) {
    return t->sample + i * (size_t)t->lists.dims;
}

/* Divides a vector by its length. */
static void normalize(float *v, int dims) {
    double norm = vector_norm((str){(const char *)v, sizeof *v * (size_t)dims});
    for (int i = 0; i < dims && norm > 0; i++)
        v[i] = (float)(v[i] / norm);
}

/* Reads every step-th row's vector. */
static int read_sample(training *tr, txn *t, const table_info *info, int at_column, uint64_t step,
                       err *e) {
    txn_tree *tree;
    MDB_val key, data;
    value *row = mem_alloc(sizeof *row * (size_t)info->def->ncolumns);
    int status = txn_rows(t, info, &tree, e);
    int rc = status ? 0 : tree_get(&tree->cursor, &key, &data, MDB_FIRST);
    for (uint64_t at = 0; !status && rc == 0 && tr->count < tr->room; at++) {
        if (at % VECTORS_PER_LOOK == 0)
            status = check_cancel(tr->cancel, e);
        if (!status && at % step == 0 && (rc = tree_whole_value(&tree->cursor, key, data)) == 0) {
            status = row_decode(&info->layout, data, rowid_get(key.mv_data), row, e);
            if (!status && lists_has(&tr->lists, row[at_column])) {
                float *v = sample_at(tr, tr->count++);
                memcpy(v, row[at_column].s.p, row[at_column].s.n);
                if (tr->lists.metric == VECTOR_COSINE)
                    normalize(v, tr->lists.dims);
            }
        }
        if (!status && rc == 0)
            rc = tree_get(&tree->cursor, &key, &data, MDB_NEXT);
    }
    free(row);
    if (status || rc == 0 || rc == MDB_NOTFOUND)
        return status;
    return tree_error(t, rc, "cannot read a table", e);
}

/* Puts each vector of the sample into the list of the nearest centroid. *moved: how many changed. */
static int assign(training *tr, size_t *moved, err *e) {
    size_t bytes = sizeof(float) * (size_t)tr->lists.dims;
    *moved = 0;
    lists_encode_centroids(&tr->lists, &tr->codes);
    for (size_t i = 0; i < tr->count; i++) {
        str v = {(const char *)sample_at(tr, i), bytes};
        uint32_t list = lists_nearest(&tr->lists, v);
        *moved += list != tr->member[i];
        tr->member[i] = list;
        if (i % VECTORS_PER_LOOK == 0 && check_cancel(tr->cancel, e))
            return ERR_CANCELLED;
    }
    return 0;
}

/* Moves each centroid to the mean of its list; that of an empty list stays. */
static void move_centroids(training *tr) {
    size_t dims = (size_t)tr->lists.dims;
    memset(tr->sums, 0, sizeof *tr->sums * tr->lists.n * dims);
    memset(tr->sizes, 0, sizeof *tr->sizes * tr->lists.n);
    for (size_t i = 0; i < tr->count; i++) {
        double *sum = tr->sums + tr->member[i] * dims;
        for (size_t k = 0; k < dims; k++)
            sum[k] += sample_at(tr, i)[k];
        tr->sizes[tr->member[i]]++;
    }
    for (uint32_t i = 0; i < tr->lists.n; i++) {
        float *c = tr->centroids + i * dims;
        for (size_t k = 0; k < dims && tr->sizes[i] > 0; k++)
            c[k] = (float)(tr->sums[i * dims + k] / tr->sizes[i]);
        if (tr->lists.metric == VECTOR_COSINE)
            normalize(c, tr->lists.dims);
    }
}

/* Begins with vectors of the sample at equal distances. */
static int find_clusters(training *tr, err *e) {
    size_t dims = (size_t)tr->lists.dims, moved = 1;
    for (uint32_t i = 0; i < tr->lists.n; i++)
        memcpy(tr->centroids + i * dims, sample_at(tr, i * tr->count / tr->lists.n),
               sizeof(float) * dims);
    int status = 0;
    for (int round = 0; round < ROUNDS && moved > 0 && status == 0; round++) {
        status = assign(tr, &moved, e);
        if (status == 0 && moved > 0)
            move_centroids(tr);
    }
    return status;
}

/* Without vectors there is one list, about any centroid. */
static void one_list(training *tr) {
    tr->lists.n = 1;
    memset(tr->centroids, 0, sizeof(float) * (size_t)tr->lists.dims);
    tr->centroids[0] = 1;
}

/* Sets *dims to the number of elements of the first vector; 1 if there is none. */
static int find_dims(txn *t, const table_info *info, int at_column, int *dims, err *e) {
    scan_spec spec = {.table = info->def, .columns = &at_column, .ncolumns = 1};
    table_scan *s = NULL;
    arena *mem = arena_new();
    batch b = {.rows = 1};
    *dims = 0;
    int status = scan_open(t, &spec, &s, e);
    while (!status && *dims == 0 && b.rows) {
        arena_reset(mem);
        b.mem = mem;
        status = scan_next(s, &b, e);
        for (int k = 0; !status && k < b.rows && *dims == 0; k++)
            *dims = column_is_null(&b.cols[0], k) ? 0 : vector_dims(b.cols[0].s[k]);
    }
    *dims = BASE_MAX(*dims, 1);
    scan_close(s);
    arena_free(mem);
    return status;
}

int lists_train(txn *t, const table_info *info, const index_def *index, const atomic_bool *cancel,
                arena *a, const vector_lists **out, err *e) {
    training tr = {.lists = *index->lists, .cancel = cancel};
    uint64_t rows = 0;
    int status = table_row_count(t, info->def, &rows, e);
    if (!status && tr.lists.dims == 0)
        status = find_dims(t, info, index->columns[0], &tr.lists.dims, e);
    if (status)
        return status;
    size_t dims = (size_t)tr.lists.dims, bytes = sizeof(float) * dims;
    uint32_t most = ELEMENTS_MAX / (uint32_t)dims;
    if (tr.lists.n > most)
        return err_set(e, ERR_LIMIT, "an index of vectors of %d has at most %u lists, not %u",
                       tr.lists.dims, most, tr.lists.n);
    if (tr.lists.n == 0)
        tr.lists.n =
            BASE_MIN(most, (uint32_t)BASE_MIN(rows / ROWS_PER_LIST + 1, (uint64_t)LISTS_MAX));
    tr.lists.n = (uint32_t)BASE_MAX(BASE_MIN(rows, (uint64_t)tr.lists.n), (uint64_t)1);
    uint64_t want = BASE_MIN((uint64_t)tr.lists.n * SAMPLE_PER_LIST, SAMPLE_MAX / bytes);
    want = BASE_MAX(want, (uint64_t)tr.lists.n);
    tr.room = (size_t)BASE_MIN(want, rows);
    tr.lists.rows = rows;
    size_t elements = tr.lists.n * dims;
    tr.centroids = ARENA_ARRAY(a, float, elements);
    tr.lists.centroids = tr.centroids;
    tr.sample = mem_alloc(bytes * (tr.room + 1));
    tr.member = mem_alloc(sizeof *tr.member * (tr.room + 1));
    tr.codes = (list_codes){mem_alloc(elements), mem_alloc(sizeof(double) * tr.lists.n),
                            mem_alloc(sizeof(double) * tr.lists.n)};
    tr.lists.codes = &tr.codes;
    tr.sums = mem_alloc(sizeof *tr.sums * elements);
    tr.sizes = mem_alloc(sizeof *tr.sizes * tr.lists.n);
    memset(tr.member, 0xff, sizeof *tr.member * (tr.room + 1));
    status = read_sample(&tr, t, info, index->columns[0], BASE_MAX(rows / BASE_MAX(want, 1), 1), e);
    tr.lists.n = (uint32_t)BASE_MIN((size_t)tr.lists.n, tr.count);
    if (tr.count == 0)
        one_list(&tr);
    else if (status == 0)
        status = find_clusters(&tr, e);
    vector_lists *made = ARENA_NEW(a, vector_lists);
    *made = tr.lists;
    lists_prepare(made, a);
    *out = made;
    free(tr.sample);
    free(tr.member);
    free(tr.codes.codes);
    free(tr.codes.scales);
    free(tr.codes.squares);
    free(tr.sums);
    free(tr.sizes);
    return status;
}
