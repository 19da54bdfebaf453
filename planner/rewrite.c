/*
 * rewrite.c - the tools of the rules: sets of ids, conjuncts, relations rebuilt around new inputs
 * (see rules_int.h).
 *
 * Invariant: what is handed in is never changed; what did not change is returned itself.
 */
#include <assert.h>
#include <string.h>

#include "rules_int.h"

/* ---- sets of column ids ---------------------------------------------------------------------- */

id_set id_set_new(arena *mem) {
    return (id_set){.mem = mem};
}

void id_set_add(id_set *s, int id) {
    int word = id / 64;
    if (word >= s->nwords) {
        int room = BASE_MAX(word + 1, s->nwords * 2);
        uint64_t *bits = ARENA_ARRAY(s->mem, uint64_t, room);
        if (s->nwords)
            memcpy(bits, s->bits, sizeof *bits * (size_t)s->nwords);
        s->bits = bits;
        s->nwords = room;
    }
    s->bits[word] |= (uint64_t)1 << (id % 64);
}

bool id_set_has(const id_set *s, int id) {
    return id >= 0 && id / 64 < s->nwords && (s->bits[id / 64] >> (id % 64) & 1);
}

void id_set_add_all(id_set *s, const id_set *from) {
    if (from->nwords == 0)
        return;
    if (from->nwords > s->nwords)
        id_set_add(s, from->nwords * 64 - 1), s->bits[from->nwords - 1] &= ~((uint64_t)1 << 63);
    for (int i = 0; i < from->nwords; i++)
        s->bits[i] |= from->bits[i];
}

static void add_id(void *ctx, int id) {
    id_set_add(ctx, id);
}

void id_set_add_expr(id_set *s, const expr *x) {
    if (x)
        expr_columns(x, add_id, s);
}

void id_set_add_columns(id_set *s, const rel *r) {
    for (int i = 0; i < r->ncols; i++)
        id_set_add(s, r->cols[i].id);
}

id_set id_set_copy(const id_set *s) {
    id_set copy = id_set_new(s->mem);
    id_set_add_all(&copy, s);
    return copy;
}

bool expr_only_in(const expr *x, const id_set *s) {
    if (x->kind == EXPR_COLUMN)
        return id_set_has(s, x->column.id);
    for (int i = 0; i < x->nargs; i++)
        if (!expr_only_in(x->args[i], s))
            return false;
    return true;
}

bool expr_touches(const expr *x, const id_set *s) {
    if (!x)
        return false;
    if (x->kind == EXPR_COLUMN)
        return id_set_has(s, x->column.id);
    for (int i = 0; i < x->nargs; i++)
        if (expr_touches(x->args[i], s))
            return true;
    return false;
}

/* ---- expressions ----------------------------------------------------------------------------- */

void expr_map_add(rule_ctx *r, expr_map *m, int id, expr *with) {
    if (m->n == m->room) {
        int room = BASE_MAX(8, m->room * 2);
        int *ids = ARENA_ARRAY(r->mem, int, room);
        expr **exprs = ARENA_ARRAY(r->mem, expr *, room);
        if (m->n) {
            memcpy(ids, m->ids, sizeof *ids * (size_t)m->n);
            memcpy(exprs, m->with, sizeof *exprs * (size_t)m->n);
        }
        m->ids = ids;
        m->with = exprs;
        m->room = room;
    }
    m->ids[m->n] = id;
    m->with[m->n++] = with;
}

expr *expr_map_get(const expr_map *m, int id) {
    for (int i = 0; i < m->n; i++)
        if (m->ids[i] == id)
            return m->with[i];
    return NULL;
}

expr *expr_replace(rule_ctx *r, expr *x, const expr_map *m) {
    if (!x || m->n == 0)
        return x;
    if (x->kind == EXPR_COLUMN) {
        expr *with = expr_map_get(m, x->column.id);
        return with ? with : x;
    }
    expr **args = NULL;
    for (int i = 0; i < x->nargs; i++) {
        expr *arg = expr_replace(r, x->args[i], m);
        if (arg == x->args[i])
            continue;
        if (!args) {
            args = ARENA_ARRAY(r->mem, expr *, x->nargs);
            memcpy(args, x->args, sizeof *args * (size_t)x->nargs);
        }
        args[i] = arg;
    }
    if (!args)
        return x;
    expr *copy = ARENA_NEW(r->mem, expr);
    *copy = *x;
    copy->args = args;
    return copy;
}

bool expr_is_true(const expr *x) {
    return x->kind == EXPR_LITERAL && type_is_number(x->literal.type) &&
           x->literal.type != TYPE_REAL && x->literal.i != 0;
}

void conjuncts_add(rule_ctx *r, conjuncts *c, expr *x) {
    if (c->n == c->room) {
        int room = BASE_MAX(8, c->room * 2);
        expr **list = ARENA_ARRAY(r->mem, expr *, room);
        if (c->n)
            memcpy(list, c->list, sizeof *list * (size_t)c->n);
        c->list = list;
        c->room = room;
    }
    c->list[c->n++] = x;
}

void conjuncts_split(rule_ctx *r, conjuncts *c, expr *x) {
    if (!x)
        return;
    if (x->kind != EXPR_OP || x->op != OP_AND) {
        conjuncts_add(r, c, x);
        return;
    }
    for (int i = 0; i < x->nargs; i++)
        conjuncts_split(r, c, x->args[i]);
}

static expr *new_expr(rule_ctx *r, expr_kind kind, value_type type, int nargs) {
    expr *x = ARENA_NEW(r->mem, expr);
    x->kind = kind;
    x->type = type;
    x->pos = -1;
    x->nargs = nargs;
    x->args = ARENA_ARRAY(r->mem, expr *, nargs + 1);
    return x;
}

expr *make_op(rule_ctx *r, expr_op op, expr *a, expr *b) {
    expr *x = new_expr(r, EXPR_OP, TYPE_BOOLEAN, b ? 2 : 1);
    x->op = op;
    x->args[0] = a;
    if (b)
        x->args[1] = b;
    return x;
}

expr *make_literal(rule_ctx *r, value v) {
    expr *x = new_expr(r, EXPR_LITERAL, v.type, 0);
    x->literal = v;
    return x;
}

expr *make_func(rule_ctx *r, function_id function, value_type type, expr *a, expr *b) {
    expr *x = new_expr(r, EXPR_FUNC, type, 2);
    x->function = function;
    x->args[0] = a;
    x->args[1] = b;
    return x;
}

/* Balanced, as the binder's chains are; evaluated from left to right all the same. */
static expr *chain(rule_ctx *r, expr **list, int n) {
    if (n == 1)
        return list[0];
    int half = (n + 1) / 2;
    return make_op(r, OP_AND, chain(r, list, half), chain(r, list + half, n - half));
}

expr *conjuncts_join(rule_ctx *r, const conjuncts *c) {
    return c->n ? chain(r, c->list, c->n) : NULL;
}

expr *column_expr(rule_ctx *r, const rel_column *c) {
    expr *x = new_expr(r, EXPR_COLUMN, c->type, 0);
    x->column.id = c->id;
    x->column.slot = -1;
    x->column.name = c->name;
    if (c->qualifier.n)
        x->column.name = str_from(arena_printf(r->mem, "%.*s.%.*s", (int)c->qualifier.n,
                                               c->qualifier.p, (int)c->name.n, c->name.p));
    return x;
}

const rel_column *rel_column_of(const rel *x, int id) {
    for (int i = 0; i < x->ncols; i++)
        if (x->cols[i].id == id)
            return &x->cols[i];
    return NULL;
}

/* ---- columns of relations -------------------------------------------------------------------- */

rel *rel_copy(rule_ctx *r, const rel *from) {
    rel *copy = ARENA_NEW(r->mem, rel);
    *copy = *from;
    return copy;
}

static void take_columns(rule_ctx *r, rel *x, const rel *a, const rel_column *more, int nmore) {
    rel_column *cols = ARENA_ARRAY(r->mem, rel_column, a->ncols + nmore + 1);
    if (a->ncols)
        memcpy(cols, a->cols, sizeof *cols * (size_t)a->ncols);
    if (nmore)
        memcpy(cols + a->ncols, more, sizeof *cols * (size_t)nmore);
    x->cols = cols;
    x->ncols = a->ncols + nmore;
}

static rel_column llm_column(rule_ctx *r, const rel *x, const llm_use *u, bool prob) {
    const rel_column *had = rel_column_of(x, prob ? u->prob_id : u->out_id);
    if (had)
        return *had;
    rel_column c = {prob ? u->prob_id : u->out_id,
                    prob ? TYPE_REAL : llm_call_type(u->call),
                    {NULL, 0},
                    {NULL, 0}};
    c.name = str_from(arena_printf(r->mem, prob ? "LLM#%d.prob" : "LLM#%d", u->call->number));
    return c;
}

static void set_llm_columns(rule_ctx *r, rel *x) {
    rel_column *more = ARENA_ARRAY(r->mem, rel_column, 2 * x->llm.nuses + 1);
    int n = 0;
    for (int i = 0; i < x->llm.nuses; i++) {
        more[n++] = llm_column(r, x, &x->llm.uses[i], false);
        if (x->llm.uses[i].prob_id >= 0)
            more[n++] = llm_column(r, x, &x->llm.uses[i], true);
    }
    take_columns(r, x, x->left, more, n);
}

static void set_join_columns(rule_ctx *r, rel *x) {
    join_kind kind = x->join.kind;
    rel_column mark = {x->join.mark_id, TYPE_BOOLEAN, STR("match"), {NULL, 0}};
    if (kind == JOIN_SEMI || kind == JOIN_ANTI)
        take_columns(r, x, x->left, NULL, 0);
    else if (kind == JOIN_MARK)
        take_columns(r, x, x->left, &mark, 1);
    else
        take_columns(r, x, x->left, x->right->cols, x->right->ncols);
}

static void set_window_columns(rule_ctx *r, rel *x) {
    int n = x->window.nfunctions;
    rel_column *more = ARENA_ARRAY(r->mem, rel_column, n + 1);
    for (int i = 0; i < n; i++) {
        const rel_window *w = &x->window.functions[i];
        more[i] = (rel_column){w->id, w->type, STR("window"), {NULL, 0}};
    }
    take_columns(r, x, x->left, more, n);
}

void rel_set_columns(rule_ctx *r, rel *x) {
    rel_column number;
    switch (x->kind) {
    case REL_FILTER:
    case REL_SORT:
    case REL_LIMIT:
    case REL_DISTINCT:
    case REL_OUTER_RESIDUAL:
        x->cols = x->left->cols;
        x->ncols = x->left->ncols;
        return;
    case REL_JOIN:
    case REL_APPLY:
        set_join_columns(r, x);
        return;
    case REL_LLM:
        set_llm_columns(r, x);
        return;
    case REL_WINDOW:
        set_window_columns(r, x);
        return;
    case REL_NUMBER:
        number = (rel_column){x->number.id, TYPE_INTEGER, STR("number"), {NULL, 0}};
        take_columns(r, x, x->left, &number, 1);
        return;
    default:
        return; /* these name their own */
    }
}

static bool same_columns(const rel *a, const rel *b) {
    if (a->ncols != b->ncols)
        return false;
    for (int i = 0; i < a->ncols; i++)
        if (a->cols[i].id != b->cols[i].id)
            return false;
    return true;
}

rel *rel_like(rule_ctx *r, rel *x, const rel *like) {
    if (x == like || same_columns(x, like))
        return x;
    rel *p = make_project(r, x, like->ncols);
    for (int i = 0; i < like->ncols; i++)
        project_set(p, i, like->cols[i], column_expr(r, &like->cols[i]));
    return p;
}

rel *rel_over(rule_ctx *r, rel *x, rel *left, rel *right) {
    if (left == x->left && right == x->right)
        return x;
    if (x->kind == REL_SETOP || x->kind == REL_DISTINCT || x->kind == REL_SHARED ||
        x->kind == REL_RECURSIVE) {
        left = rel_like(r, left, x->left);
        right = right ? rel_like(r, right, x->right) : NULL;
    }
    rel *copy = rel_copy(r, x);
    copy->left = left;
    copy->right = right;
    rel_set_columns(r, copy);
    return copy;
}

/* What references share is rewritten once, so that it stays one relation and no chain of CTEs is
 * walked twice as often a step. */
static rel *shared_input(rule_ctx *r, rel *x, rule_fn fn) {
    int number = x->shared.number;
    if (number >= r->nshared)
        return fn(r, x->left);
    if (r->shared_before[number] != x->left) {
        r->shared_after[number] = rel_like(r, fn(r, x->left), x->left);
        r->shared_before[number] = x->left;
    }
    return r->shared_after[number];
}

rel *rel_each_input(rule_ctx *r, rel *x, rule_fn fn) {
    if (x->kind == REL_SHARED)
        return rel_over(r, x, shared_input(r, x, fn), NULL);
    rel *left = x->left ? fn(r, x->left) : NULL;
    rel *right = x->right ? fn(r, x->right) : NULL;
    return rel_over(r, x, left, right);
}

/* ---- new nodes ------------------------------------------------------------------------------- */

rel *make_node(rule_ctx *r, rel_kind kind, rel *left, rel *right) {
    rel *x = ARENA_NEW(r->mem, rel);
    x->kind = kind;
    x->left = left;
    x->right = right;
    if (left &&
        (kind == REL_FILTER || kind == REL_SORT || kind == REL_LIMIT || kind == REL_DISTINCT))
        rel_set_columns(r, x);
    return x;
}

rel *make_filter(rule_ctx *r, rel *left, const conjuncts *c) {
    conjuncts all = {0};
    if (c->n == 0)
        return left;
    if (left->kind == REL_FILTER) {
        conjuncts_split(r, &all, left->filter.predicate);
        left = left->left;
    }
    for (int i = 0; i < c->n; i++)
        conjuncts_add(r, &all, c->list[i]);
    rel *x = make_node(r, REL_FILTER, left, NULL);
    x->filter.predicate = conjuncts_join(r, &all);
    return x;
}

rel *make_join(rule_ctx *r, join_kind kind, rel *left, rel *right, expr *predicate) {
    rel *x = make_node(r, REL_JOIN, left, right);
    x->join.kind = kind;
    x->join.predicate = predicate;
    x->join.mark_id = -1;
    rel_set_columns(r, x);
    return x;
}

rel *make_project(rule_ctx *r, rel *left, int ncols) {
    rel *x = make_node(r, REL_PROJECT, left, NULL);
    x->ncols = ncols;
    x->cols = ARENA_ARRAY(r->mem, rel_column, ncols + 1);
    x->project.exprs = ARENA_ARRAY(r->mem, rel_expr, ncols + 1);
    return x;
}

void project_set(rel *project, int at, rel_column c, expr *x) {
    assert(at < project->ncols);
    project->cols[at] = c;
    project->project.exprs[at] = (rel_expr){x, c.id};
}

rel *make_llm(rule_ctx *r, rel *left, const llm_use *uses, int nuses) {
    rel *x = make_node(r, REL_LLM, left, NULL);
    x->llm.uses = ARENA_ARRAY(r->mem, llm_use, nuses + 1);
    memcpy(x->llm.uses, uses, sizeof *uses * (size_t)nuses);
    x->llm.nuses = nuses;
    rel_set_columns(r, x);
    return x;
}
