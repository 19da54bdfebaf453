/*
 * join_nearest.c - exact top-k search for many vectors at once, as in faiss's IndexFlat: a thread
 * takes a few tiles of left rows and compares them with the right rows block by block, so that a block
 * stays in the processor's cache for all of these tiles.
 *
 * Inner products of a tile (vector_inner_tile) give a lower bound of each distance. Only for a pair
 * whose bound is below the k-th least distance so far, the distance itself is computed, by
 * vector_distance, as the expression does.
 * Invariant: the candidates of a left row are the first k of all right rows in a stable sort by their
 * distance.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "join_nearest_int.h"
#include "storage/containers.h"

/* BLOCK: right rows in a block. TILES: tiles that are compared with a block one after the other.
 * PAIRS_PER_THREAD: pairs for which a thread is started. */
enum { BLOCK = 256, TILES = 16, THREADS_MAX = 64, PAIRS_PER_THREAD = 1 << 15 };

typedef struct neighbour {
    double distance; /* infinite: NULL */
    uint32_t row;
} neighbour;

struct join_nearest {
    op *o;
    const rowset *right;
    vector_metric metric;
    double sign;               /* the sort's key is sign × vector_distance */
    int left_slot, right_slot; /* of the vectors, each in its input */
    bool left_first;           /* the left vector is the distance's first argument */
    size_t k;
    arena *mem;         /* of all arrays */
    const str *vectors; /* [right rows]; p = NULL: NULL */
    double *norms;      /* [right rows] */
    /* the current left batch */
    const column *queries;
    int rows;
    neighbour *heaps; /* [rows][k] */
    size_t *counts;   /* [rows] entries of its heap */
    int64_t *errors;  /* [rows] the first right row whose distance is an error; -1: none */
    uint32_t *lists;  /* [rows][k + 1] */
    int unit;         /* rows that a thread takes at once */
    _Atomic int next; /* the first row that no thread has taken */
};

int join_nearest_new(op *o, const rowset *right, join_nearest **out, err *e) {
    const expr *d = o->node->join.distance;
    int nleft = o->node->left->ncols, a = d->args[0]->column.slot, b = d->args[1]->column.slot;
    join_nearest *j = *out = mem_zalloc(sizeof *j);
    arena *mem = arena_new_sharing(&o->memory);
    *j = (join_nearest){.o = o,
                        .right = right,
                        .left_first = a < nleft,
                        .left_slot = BASE_MIN(a, b),
                        .right_slot = BASE_MAX(a, b) - nleft,
                        .k = (size_t)o->node->join.nearest,
                        .mem = mem};
    j->metric = nearest_metric(d, &j->sign);
    size_t n = (size_t)rowset_rows(right), at = 0;
    str *vectors = arena_alloc(mem, sizeof *vectors * BASE_MAX(n, 1u));
    j->vectors = vectors;
    j->norms = arena_alloc(mem, sizeof *j->norms * BASE_MAX(n, 1u));
    for (int i = 0; i < rowset_batches(right); i++) {
        const batch *of = rowset_batch(right, i);
        const column *c = &of->cols[j->right_slot];
        for (int row = 0; row < of->rows; row++, at++) {
            vectors[at] = column_is_null(c, row) ? (str){NULL, 0} : c->s[row];
            j->norms[at] = vectors[at].p ? vector_norm(vectors[at]) : 0;
        }
    }
    j->heaps = arena_alloc(mem, sizeof *j->heaps * BATCH_ROWS * j->k);
    j->lists = arena_alloc(mem, sizeof *j->lists * BATCH_ROWS * (j->k + 1));
    j->counts = ARENA_ARRAY(mem, size_t, BATCH_ROWS);
    j->errors = ARENA_ARRAY(mem, int64_t, BATCH_ROWS);
    return arena_full_error(mem, e);
}

void join_nearest_free(join_nearest *j) {
    if (!j)
        return;
    arena_free(j->mem);
    free(j);
}

/* ---- one pair -------------------------------------------------------------------------------- */

#define FARTHER(context, a, b)                                                                     \
    ((a).distance > (b).distance || ((a).distance == (b).distance && (a).row > (b).row))
HEAP_DEFINE(neighbours, neighbour, const void *, FARTHER, HEAP_NOT_TOLD);

static neighbour *heap_of(const join_nearest *j, int left) {
    return &j->heaps[(size_t)left * j->k];
}

/* Takes a pair into the left row's heap if it is nearer than the k-th. Rows come in input order. */
static void take(join_nearest *j, int left, uint32_t row, double distance) {
    neighbour *heap = heap_of(j, left), one = {distance, row};
    if (j->counts[left] < j->k)
        neighbours_push(NULL, heap, &j->counts[left], one);
    else if (distance < heap[0].distance)
        neighbours_update(NULL, heap, j->k, 0, one);
}

static bool is_full(const join_nearest *j, int left) {
    return j->counts[left] == j->k;
}

/* Computes a pair as the expression does. */
static void compare(join_nearest *j, int left, double left_norm, uint32_t row) {
    str q = j->queries->s[left], v = j->vectors[row];
    double d = q.n != v.n      ? NAN
               : j->left_first ? j->sign * vector_distance(j->metric, q, v, j->norms[row])
                               : j->sign * vector_distance(j->metric, v, q, left_norm);
    if (!isnan(d))
        take(j, left, row, d);
    else if (j->errors[left] < 0)
        j->errors[left] = row;
}

/* Returns a lower bound of a pair's key. inner: as vector_inner_tile has it. */
static double least_key(const join_nearest *j, double inner, double error, double nx, double ny) {
    static const double tiny = 1e-15; /* products of elements may be below f32's range */
    double both = nx * ny;
    if (nx < tiny || ny < tiny)
        return -INFINITY;
    if (j->metric == VECTOR_INNER)
        return -inner - error * both;
    if (j->metric == VECTOR_COSINE)
        return 1 - inner / both - error - 1e-6;
    double square = nx * nx + ny * ny - 2 * inner - 4 * error * (nx + ny) * (nx + ny);
    return square > 0 ? sqrt(square) * (1 - 1e-6) : 0;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Left rows whose vectors have one length. */
typedef struct tile {
    int n;
    int left[VECTOR_TILE];
    const char *y[VECTOR_TILE]; /* unused ones repeat the first */
    double norms[VECTOR_TILE];
    size_t bytes;
} tile;

/* Returns whether the row was added. */
static bool tile_add(tile *t, int left, str q) {
    if (t->n == VECTOR_TILE || (t->n > 0 && q.n != t->bytes))
        return false;
    t->bytes = q.n;
    t->left[t->n] = left;
    t->norms[t->n] = vector_norm(q);
    for (int k = t->n++; k < VECTOR_TILE; k++)
        t->y[k] = q.p;
    return true;
}

static void search_block(join_nearest *j, const tile *t, uint32_t from, uint32_t to) {
    float inner[BLOCK * VECTOR_TILE];
    const char *x[BLOCK];
    int place[BLOCK], n = 0; /* by row: its place in x; -1: its vector has another length */
    size_t dims = t->bytes / sizeof(float);
    double error = vector_inner_error(dims);
    for (uint32_t row = from; row < to; row++) {
        bool fits = j->vectors[row].p && j->vectors[row].n == t->bytes;
        place[row - from] = fits ? n : -1;
        if (fits)
            x[n++] = j->vectors[row].p;
    }
    vector_inner_tile(x, n, t->y, dims, inner);
    for (int q = 0; q < t->n; q++)
        for (uint32_t row = from; row < to; row++) {
            int left = t->left[q], at = place[row - from];
            if (!j->vectors[row].p)
                take(j, left, row, INFINITY);
            else if (at < 0 || !is_full(j, left) ||
                     !(least_key(j, (double)inner[at * VECTOR_TILE + q], error, t->norms[q],
                                 j->norms[row]) >= heap_of(j, left)[0].distance))
                compare(j, left, t->norms[q], row);
        }
}

/* Searches for left rows [from, to), of at most TILES tiles if their vectors have one length. A row
 * without a vector has the first k right rows, since all of its distances are NULL. */
static void search_rows(join_nearest *j, int from, int to) {
    uint32_t n = (uint32_t)rowset_rows(j->right);
    tile tiles[TILES];
    for (int left = from; left < to;) {
        int used = 0;
        memset(tiles, 0, sizeof tiles);
        for (; left < to; left++) {
            j->counts[left] = 0;
            j->errors[left] = -1;
            if (column_is_null(j->queries, left)) {
                for (uint32_t row = 0; row < n && !is_full(j, left); row++)
                    take(j, left, row, INFINITY);
                continue;
            }
            if (used > 0 && tile_add(&tiles[used - 1], left, j->queries->s[left]))
                continue;
            if (used == TILES)
                break;
            tile_add(&tiles[used++], left, j->queries->s[left]);
        }
        for (uint32_t row = 0; row < n && used > 0; row += BLOCK) {
            if (check_cancel(j->o->ctx->cancel, NULL))
                return;
            for (int k = 0; k < used; k++)
                search_block(j, &tiles[k], row, BASE_MIN(row + BLOCK, n));
        }
    }
}

/* ---- a left batch ---------------------------------------------------------------------------- */

static int compare_rows(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void make_list(join_nearest *j, int left) {
    uint32_t *list = &j->lists[(size_t)left * (j->k + 1)];
    size_t n = j->counts[left];
    for (size_t i = 0; i < n; i++)
        list[i] = heap_of(j, left)[i].row;
    if (j->errors[left] >= 0)
        list[n++] = (uint32_t)j->errors[left];
    qsort(list, n, sizeof *list, compare_rows);
}

static void *search_main(void *arg) {
    join_nearest *j = arg;
    for (int from; (from = atomic_fetch_add(&j->next, j->unit)) < j->rows;) {
        int to = BASE_MIN(from + j->unit, j->rows);
        search_rows(j, from, to);
        for (int left = from; left < to; left++)
            make_list(j, left);
    }
    return NULL;
}

int join_nearest_search(join_nearest *j, const batch *in, err *e) {
    pthread_t threads[THREADS_MAX];
    int64_t pairs = in->rows * rowset_rows(j->right);
    int most = nearest_threads(j->o), started = 0;
    most = (int)BASE_MIN(most, 1 + pairs / PAIRS_PER_THREAD);
    j->queries = &in->cols[j->left_slot];
    j->rows = in->rows;
    int share = (in->rows + most - 1) / most;
    j->unit = BASE_MIN(TILES * VECTOR_TILE, (share + VECTOR_TILE - 1) / VECTOR_TILE * VECTOR_TILE);
    atomic_store(&j->next, 0);
    while (started + 1 < most && pthread_create(&threads[started], NULL, search_main, j) == 0)
        started++;
    search_main(j);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return check_cancel(j->o->ctx->cancel, e);
}

const uint32_t *join_nearest_list(const join_nearest *j, int left, int64_t *n) {
    *n = (int64_t)j->counts[left] + (j->errors[left] >= 0);
    return &j->lists[(size_t)left * (j->k + 1)];
}
