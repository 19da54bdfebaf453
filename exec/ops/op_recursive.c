/*
 * op_recursive.c - WITH RECURSIVE: returns the rows of the first part, then runs the recursive part
 * in rounds, each over the rows of the round before, until a round returns no rows.
 *
 *   last   the rows of the round before, which PLAN_WORKING reads
 *   next   the rows of the current round so far
 *
 * Rows are returned at once, so a LIMIT above ends an infinite recursion. The operators of the
 * recursive part are rebuilt for each round. If only filters, projections and left sides of joins
 * are above the working rows, the operators are not rebuilt but continue, so that joins keep their
 * hash tables. Invariant: with UNION a row equal to an earlier one, of any round, is not returned.
 */
#include "op_int.h"
#include "rows/hash_table_int.h"

typedef struct recursive_state {
    rowset *last, *next;
    hash_table *seen; /* the rows returned so far, for UNION; NULL for UNION ALL */
    bool in_rounds;   /* the first part has ended */
    bool can_resume;  /* the recursive part need not be rebuilt */
    arena *round;     /* memory of operators that are rebuilt for each round */
    int rows[BATCH_ROWS];
} recursive_state;

static bool reads(const plan_node *p, int number) {
    for (; p; p = p->left)
        if ((p->kind == PLAN_WORKING && p->working.number == number) ||
            (p->right && reads(p->right, number)))
            return true;
    return false;
}

/* Whether the operators of p, after they have returned all rows, return more once the next round's
 * working rows are set. */
static bool can_resume(const plan_node *p, int number) {
    switch (p->kind) {
    case PLAN_WORKING:
        return true;
    case PLAN_FILTER:
    case PLAN_PROJECT:
        return can_resume(p->left, number);
    case PLAN_HASH_JOIN:
    case PLAN_LOOP_JOIN:
        return p->join.keyed == KEYED_NONE && !reads(p->right, number) &&
               can_resume(p->left, number);
    default:
        return false;
    }
}

/* Frees shared rows that were computed from the working rows of the round before. */
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
    s->last = rowset_new_in(&o->memory, p->types, p->ncols);
    s->next = rowset_new_in(&o->memory, p->types, p->ncols);
    if (p->recursive.distinct)
        s->seen = hash_table_new(&o->memory, p->types, p->ncols);
    s->can_resume = can_resume(p->right, p->recursive.number);
    return 0;
}

static void close_round(op *o) {
    if (o->right)
        o->actual.ms -= o->right->actual.ms; /* the round's operators report their own time */
    o->ctx->counts.adds_rounds = true;
    op_close(o->right);
    o->ctx->counts.adds_rounds = false;
    o->right = NULL;
}

/* Builds the operators of a round, in the round's arena. */
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

/* Starts the next round over the rows of the current round. *more = false if there are none. */
static int start_round(op *o, bool *more, err *e) {
    recursive_state *s = o->state;
    int number = o->node->recursive.number, status = 0;
    working_rows *w = &o->ctx->kept.working[number];
    rowset *fresh = s->next;
    s->next = s->last;
    s->last = fresh;
    rowset_clear(s->next);
    w->rows = s->last;
    w->round++;
    *more = rowset_rows(s->last) > 0;
    if (*more && s->in_rounds && !s->can_resume)
        status = build_round(o, e);
    s->in_rounds = true;
    return status;
}

/* Sets *out to the rows of `in`; for UNION, without rows that were returned before. Also adds
 * these rows to s->next, for the next round. *out is NULL if no rows are left. */
static int keep_new(op *o, batch *in, batch **out, err *e) {
    recursive_state *s = o->state;
    *out = in;
    if (s->seen) {
        int count, status = hash_table_add_new(s->seen, in->cols, in->rows, s->rows, &count, e);
        if (status)
            return status;
        arena_reset(o->pass);
        op_choose(o, in, s->rows, count, out);
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
    close_round(o); /* before the round's arena is freed */
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

/* ---- the working rows ------------------------------------------------------------------------ */

typedef struct working_state {
    uint64_t round; /* the round whose rows are being returned */
    int at;         /* batches of that round returned so far */
} working_state;

static int working_next(op *o, batch **out, err *e) {
    (void)e;
    working_state *s = o->state;
    const working_rows *w = &o->ctx->kept.working[o->node->working.number];
    if (s->round != w->round) {
        s->round = w->round;
        s->at = 0;
    }
    op_next_kept(o, w->rows, &s->at, out);
    return 0;
}

const op_class op_working = {
    .name = "working", .state_bytes = sizeof(working_state), .next = working_next};
