/*
 * op_recursive.c - WITH RECURSIVE: the first part's rows, then round by round those that the
 * recursive part makes of the rows of the round before, until a round makes none.
 *
 *   last   the rows of the round before, which PLAN_WORKING hands out
 *   next   those of the round at work, kept as they are given on
 *
 * Rows are given on as they come, so a LIMIT above ends a recursion that would not end by itself.
 * Where nothing but filters, projections and the left sides of joins stand over the working rows,
 * the recursive part simply goes on with each round's: what a join has hashed is kept. Else it is
 * built anew. Invariant: with UNION a row that came before, in any round, comes no more.
 */
#include "op_int.h"
#include "rows/hash_table_int.h"

typedef struct recursive_state {
    rowset *last, *next;
    hash_table *seen; /* UNION; else NULL */
    bool in_rounds, goes_on;
    arena *round; /* for the operators of a round that were built anew */
    uint32_t entries[BATCH_ROWS];
    int rows[BATCH_ROWS];
} recursive_state;

static bool reads(const plan_node *p, int number) {
    for (; p; p = p->left)
        if ((p->kind == PLAN_WORKING && p->working.number == number) ||
            (p->right && reads(p->right, number)))
            return true;
    return false;
}

/* Whether the operators of p give more rows once there are more working rows. */
static bool can_go_on(const plan_node *p, int number) {
    switch (p->kind) {
    case PLAN_WORKING:
        return true;
    case PLAN_FILTER:
    case PLAN_PROJECT:
        return can_go_on(p->left, number);
    case PLAN_HASH_JOIN:
    case PLAN_LOOP_JOIN:
        return p->join.keyed == KEYED_NONE && !reads(p->right, number) &&
               can_go_on(p->left, number);
    default:
        return false;
    }
}

/* What was shared within the round before is of other rows. */
static void forget_shared(exec_ctx *ctx, const plan_node *p, int number) {
    for (; p; p = p->left) {
        if (p->kind == PLAN_SHARED && ctx->kept.shared[p->shared.number] &&
            reads(p->left, number)) {
            rowset_free(ctx->kept.shared[p->shared.number]);
            ctx->kept.shared[p->shared.number] = NULL;
        }
        if (p->right)
            forget_shared(ctx, p->right, number);
    }
}

static int recursive_open(op *o, err *e) {
    (void)e;
    recursive_state *s = o->state;
    const plan_node *p = o->node;
    op_init_out(o);
    s->last = rowset_new(o->ctx, p->types, p->ncols);
    s->next = rowset_new(o->ctx, p->types, p->ncols);
    if (p->recursive.distinct)
        s->seen = hash_table_new(o->ctx, p->types, p->ncols);
    s->goes_on = can_go_on(p->right, p->recursive.number);
    return 0;
}

static void close_round(op *o) {
    if (o->right)
        o->actual.ms -= o->right->actual.ms; /* the round's own */
    o->ctx->counts.adds_rounds = true;
    op_close(o->right);
    o->ctx->counts.adds_rounds = false;
    o->right = NULL;
}

/* Operators live as long as the statement, but for those of a round. */
static int build_round(op *o, err *e) {
    recursive_state *s = o->state;
    arena *whole = o->ctx->mem;
    close_round(o);
    forget_shared(o->ctx, o->node->right, o->node->recursive.number);
    if (!s->round)
        s->round = arena_new();
    arena_reset(s->round);
    o->ctx->mem = s->round;
    int status = op_build(o->ctx, o->node->right, &o->right, e);
    o->ctx->mem = whole;
    return status;
}

/* The next round: what came in this one is what it works on. *more is false where nothing came. */
static int start_round(op *o, bool *more, err *e) {
    recursive_state *s = o->state;
    int number = o->node->recursive.number, status = 0;
    working_rows *w = &o->ctx->kept.working[number];
    rowset *came = s->next;
    s->next = s->last;
    s->last = came;
    rowset_clear(s->next);
    w->rows = s->last;
    w->round++;
    *more = rowset_rows(s->last) > 0;
    if (*more && s->in_rounds && !s->goes_on)
        status = build_round(o, e);
    s->in_rounds = true;
    return status;
}

/* in, or its rows that have not come before; *out = NULL: there are none. */
static int keep_new(op *o, batch *in, batch **out, err *e) {
    recursive_state *s = o->state;
    *out = in;
    if (s->seen) {
        uint32_t fresh = hash_table_count(s->seen);
        int count = 0, status = hash_table_add(s->seen, in->cols, in->rows, s->entries, e);
        if (status)
            return status;
        for (int k = 0; k < in->rows; k++)
            if (s->entries[k] == fresh) {
                s->rows[count++] = k;
                fresh++;
            }
        arena_reset(o->pass);
        *out = count ? in : NULL;
        if (count && count < in->rows) {
            op_gather(o, in, s->rows, count);
            *out = &o->out;
        }
    }
    return *out ? rowset_append(s->next, *out, e) : 0;
}

static int recursive_next(op *o, batch **out, err *e) {
    recursive_state *s = o->state;
    for (;;) {
        batch *in;
        bool more = true;
        int status = op_next(s->in_rounds ? o->right : o->left, &in, e);
        if (status == 0 && in)
            status = keep_new(o, in, out, e);
        else if (status == 0)
            status = start_round(o, &more, e);
        if (status || *out || !more)
            return status;
    }
}

static void recursive_close(op *o) {
    recursive_state *s = o->state;
    close_round(o); /* here: its memory may be the round's */
    arena_free(s->round);
    rowset_free(s->last);
    rowset_free(s->next);
    hash_table_free(s->seen);
}

const op_class op_recursive = {.name = "recursive",
                               .state_bytes = sizeof(recursive_state),
                               .open = recursive_open,
                               .next = recursive_next,
                               .close = recursive_close};

/* ---- the rows that came last ----------------------------------------------------------------- */

typedef struct working_state {
    uint64_t round; /* whose rows were handed out */
    int at;
} working_state;

static int working_next(op *o, batch **out, err *e) {
    (void)e;
    working_state *s = o->state;
    const working_rows *w = &o->ctx->kept.working[o->node->working.number];
    if (s->round != w->round) {
        s->round = w->round;
        s->at = 0;
    }
    if (s->at == rowset_batches(w->rows))
        return 0;
    o->out = *rowset_batch(w->rows, s->at++);
    *out = &o->out;
    return 0;
}

const op_class op_working = {
    .name = "working", .state_bytes = sizeof(working_state), .next = working_next};
