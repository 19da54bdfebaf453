/*
 * op_nearest.c - exact top-k by vector distance: passes on, in input order, each row that may be
 * among the k nearest, and drops the rest. The sort above it picks the k rows.
 *
 *   input ──▶ blocks ──▶ distances, in parts, on all threads ──▶ rows not beyond the k-th so far
 *
 * A block is a batch of the input. The operator's thread reads blocks ahead and computes parts like
 * the other threads; it alone compares with the k-th least distance, in input order.
 * Invariant: a row is dropped only if k earlier rows have less distance, so the sort returns the
 * same rows as without this operator. A row whose distance is an error is kept: the node above
 * reports it.
 */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "join_nearest_int.h"
#include "op_scan_int.h"
#include "storage/containers.h"

/* PARALLEL_BYTES: vectors in a block for which a thread is started. */
enum { BLOCKS = 4, PART = 256, THREADS_MAX = 64, PARALLEL_BYTES = 1 << 19 };

typedef struct block {
    batch rows;
    arena *mem;             /* of all that the block points to */
    column x, y;            /* operands of the distance; y is unused if it is constant */
    double *distances;      /* infinite for NULL, NaN for an error */
    int parts, taken, done; /* parts of the rows: all; begun; computed */
} block;

typedef struct nearest_state {
    const expr *x, *y; /* operands of the distance */
    vector_metric metric;
    double sign;      /* the sort's key is sign × vector_distance */
    bool prepared;    /* the next members are set */
    bool constant;    /* y has the same value in all rows */
    value query;      /* this value */
    double y_norm;    /* its vector_norm */
    double *farthest; /* heap of the k least distances so far, the greatest on top */
    size_t nfarthest;
    bool ended;    /* the input has no more rows */
    bool returned; /* the rows of the first block were returned */
    int room;      /* number of blocks that may wait */
    int rows[BATCH_ROWS];
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t work, finished;
    block blocks[BLOCKS]; /* a ring of `room`: [first, first + nblocks) wait */
    int first, nblocks;
    bool stop;
    int nthreads, max_threads; /* besides the operator's own */
    pthread_t threads[THREADS_MAX];
} nearest_state;

/* ---- distances ------------------------------------------------------------------------------- */

/* Fetches the page of a row that is needed soon, once per page and whole. Rows in a table's pages
 * have gaps between them; a processor that follows the addresses stops at every gap and reads at
 * half of the speed at which it reads page after page. */
static inline void fetch_page(const char *row, uintptr_t *fetched) {
    enum { PAGE = 4096, LINE = 64 };
    uintptr_t page = (uintptr_t)row & ~(uintptr_t)(PAGE - 1);
    if (page == *fetched)
        return;
    *fetched = page;
    for (int at = 0; at < PAGE; at += LINE)
        __builtin_prefetch((const void *)(page + (uintptr_t)at));
}

/* The second operand of the row before, whose norm need not be computed again: it is often the same
 * in all rows, a subquery's value. */
typedef struct last_operand {
    const char *bytes;
    double norm;
} last_operand;

static double distance_of(const nearest_state *s, const block *b, int row, last_operand *last) {
    if (column_is_null(&b->x, row) ||
        (s->constant ? s->query.type == TYPE_NULL : column_is_null(&b->y, row)))
        return INFINITY;
    str x = b->x.s[row], y = s->constant ? s->query.s : b->y.s[row];
    if (x.n != y.n)
        return NAN;
    if (y.p != last->bytes)
        *last = (last_operand){y.p, s->metric == VECTOR_COSINE ? vector_norm(y) : 0};
    return s->sign * vector_distance(s->metric, x, y, last->norm);
}

static void compute_part(const nearest_state *s, block *b, int part) {
    enum { AHEAD = 2 };
    uintptr_t fetched = 0;
    last_operand last = {s->constant ? s->query.s.p : NULL, s->y_norm};
    int end = BASE_MIN((part + 1) * PART, b->rows.rows);
    for (int row = part * PART; row < end; row++) {
        if (row + AHEAD < end)
            fetch_page(b->x.s[row + AHEAD].p, &fetched);
        b->distances[row] = distance_of(s, b, row, &last);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Computes a part that no thread has begun; false: there is none. The lock is held, but not while
 * computing. */
static bool compute_any(nearest_state *s) {
    for (int i = 0; i < s->nblocks; i++) {
        block *b = &s->blocks[(s->first + i) % s->room];
        if (b->taken == b->parts)
            continue;
        int part = b->taken++;
        pthread_mutex_unlock(&s->lock);
        compute_part(s, b, part);
        pthread_mutex_lock(&s->lock);
        if (++b->done == b->parts)
            pthread_cond_signal(&s->finished);
        return true;
    }
    return false;
}

static void *thread_main(void *arg) {
    nearest_state *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop)
        if (!compute_any(s))
            pthread_cond_wait(&s->work, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int nearest_threads(const op *o) {
    cpu_set_t set;
    int wanted = (int)BASE_MIN(o->ctx->settings->threads, THREADS_MAX);
    if (wanted <= 0)
        wanted = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return BASE_MIN(wanted, THREADS_MAX);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Evaluates a constant operand, which must wait for the first row: without rows it is no error. */
static int prepare(op *o, err *e) {
    nearest_state *s = o->state;
    s->prepared = true;
    s->constant = expr_is_constant(s->y);
    int status = s->constant ? eval_value(s->y, NULL, 0, o->mem, &s->query, e) : 0;
    if (status == 0 && s->constant && s->query.type == TYPE_VECTOR)
        s->y_norm = vector_norm(s->query.s);
    s->farthest = ARENA_ARRAY(o->mem, double, o->node->nearest.limit);
    return status;
}

/* Hands a block to the threads, and starts one more if it is large. */
static void share_block(nearest_state *s, block *b) {
    size_t bytes = 0;
    for (int row = 0; row < b->rows.rows; row++)
        bytes += b->x.s[row].n;
    b->parts = (b->rows.rows + PART - 1) / PART;
    b->taken = b->done = 0;
    pthread_mutex_lock(&s->lock);
    s->nblocks++;
    if (s->nthreads)
        pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (bytes >= PARALLEL_BYTES && s->nthreads < s->max_threads &&
        pthread_create(&s->threads[s->nthreads], NULL, thread_main, s) == 0)
        s->nthreads++;
}

/* Reads the input's next batch as a block. */
static int read_block(op *o, err *e) {
    nearest_state *s = o->state;
    op *in = o->left;
    block *b = &s->blocks[(s->first + s->nblocks) % s->room];
    arena *own = in->pass;
    batch *got;
    arena_reset(b->mem);
    if (s->room > 1)
        in->pass = b->mem; /* so that the batch outlives the next one */
    int status = op_next(in, &got, e);
    in->pass = own;
    s->ended = got == NULL;
    if (status || !got)
        return status;
    b->rows = *got;
    b->rows.cols = ARENA_ARRAY(b->mem, column, got->ncols);
    memcpy(b->rows.cols, got->cols, sizeof *got->cols * (size_t)got->ncols);
    b->distances = arena_alloc(b->mem, sizeof(double) * (size_t)got->rows);
    if (!s->prepared)
        status = prepare(o, e);
    if (status == 0)
        status = eval_column(s->x, &b->rows, b->mem, &b->x, e);
    if (status == 0 && !s->constant)
        status = eval_column(s->y, &b->rows, b->mem, &b->y, e);
    if (status == 0)
        share_block(s, b);
    return status;
}

/* Waits until the distances of the first block are computed, and helps. */
static block *finish_first(nearest_state *s) {
    block *b = &s->blocks[s->first];
    pthread_mutex_lock(&s->lock);
    while (b->done < b->parts)
        if (!compute_any(s))
            pthread_cond_wait(&s->finished, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return b;
}

static void drop_first(nearest_state *s) {
    pthread_mutex_lock(&s->lock);
    s->first = (s->first + 1) % s->room;
    s->nblocks--;
    pthread_mutex_unlock(&s->lock);
    s->returned = false;
}

/* ---- the operator ---------------------------------------------------------------------------- */

#define FARTHER(context, a, b) ((a) > (b))
HEAP_DEFINE(farthest, double, const void *, FARTHER, HEAP_NOT_TOLD);

/* Sets s->rows to the rows that may be among the k nearest; returns their number. */
static int choose_rows(nearest_state *s, const block *b, size_t k) {
    int count = 0;
    for (int row = 0; row < b->rows.rows; row++) {
        double d = b->distances[row];
        bool full = s->nfarthest == k;
        if (full && d > s->farthest[0])
            continue;
        s->rows[count++] = row;
        if (isnan(d))
            continue;
        if (full)
            farthest_update(NULL, s->farthest, k, 0, d);
        else
            farthest_push(NULL, s->farthest, &s->nfarthest, d);
    }
    return count;
}

static int nearest_next(op *o, batch **out, err *e) {
    nearest_state *s = o->state;
    while (!*out) {
        int status = 0;
        if (s->returned)
            drop_first(s);
        while (!s->ended && s->nblocks < s->room && status == 0)
            status = read_block(o, e);
        if (status || s->nblocks == 0)
            return status;
        block *b = finish_first(s);
        s->returned = true;
        arena_reset(o->pass);
        op_choose(o, &b->rows, s->rows, choose_rows(s, b, (size_t)o->node->nearest.limit), out);
    }
    return 0;
}

vector_metric nearest_metric(const expr *distance, double *sign) {
    vector_metric m = distance->function == FUNC_L2_DISTANCE       ? VECTOR_L2
                      : distance->function == FUNC_COSINE_DISTANCE ? VECTOR_COSINE
                                                                   : VECTOR_INNER;
    *sign = m == VECTOR_INNER ? -1 : 1;
    return m;
}

static int nearest_open(op *o, err *e) {
    (void)e;
    nearest_state *s = o->state;
    const expr *d = o->node->nearest.distance;
    bool first = d->args[0]->kind == EXPR_COLUMN;
    s->x = d->args[first ? 0 : 1];
    s->y = d->args[first ? 1 : 0];
    s->metric = nearest_metric(d, &s->sign);
    s->max_threads = nearest_threads(o) - 1;
    /* Cells of these inputs live as long as the plan, or are in the arena that they are given. */
    bool stays = o->left->class == &op_scan || o->left->class == &op_rowset;
    s->room = stays && s->max_threads > 0 ? BLOCKS : 1;
    for (int i = 0; i < s->room; i++)
        s->blocks[i].mem = arena_new();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->finished, NULL);
    op_init_out(o);
    return 0;
}

static void nearest_close(op *o) {
    nearest_state *s = o->state;
    if (s->room == 0)
        return; /* not opened */
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->nthreads; i++)
        pthread_join(s->threads[i], NULL);
    for (int i = 0; i < s->room; i++)
        arena_free(s->blocks[i].mem);
    pthread_cond_destroy(&s->finished);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
}

const op_class op_nearest = {.name = "nearest",
                             .state_bytes = sizeof(nearest_state),
                             .open = nearest_open,
                             .next = nearest_next,
                             .close = nearest_close};
