/*
 * rewrite.c - the functions of rewrite_int.h, except those that visit a node's expressions
 * (walk.c).
 */
#include <assert.h>
#include <string.h>

#include "rewrite_int.h"

/* ---- sets of column ids ---------------------------------------------------------------------- */

id_set id_set_new(arena *mem) {
    return (id_set){.mem = mem};
}

void id_set_add(id_set *s, int id) {
    while (id / 64 >= s->nwords)
        ARENA_PUSH(s->mem, s->bits, s->nwords, s->room, 0);
    s->bits[id / 64] |= (uint64_t)1 << (id % 64);
}

bool id_set_has(const id_set *s, int id) {
    return id >= 0 && id / 64 < s->nwords && (s->bits[id / 64] >> (id % 64) & 1);
}

void id_set_add_all(id_set *s, const id_set *from) {
    while (s->nwords < from->nwords)
        ARENA_PUSH(s->mem, s->bits, s->nwords, s->room, 0);
    for (int i = 0; i < from->nwords; i++)
        s->bits[i] |= from->bits[i];
}

bool id_set_meets(const id_set *a, const id_set *b) {
    for (int i = 0; i < a->nwords && i < b->nwords; i++)
        if (a->bits[i] & b->bits[i])
            return true;
    return false;
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

void id_set_add_answers(id_set *s, const llm_site *site) {
    id_set_add(s, site->out_id);
    for (int i = 0; i < site->nprobs; i++)
        id_set_add(s, site->probs[i].id);
}

id_set id_set_copy(const id_set *s) {
    id_set copy = id_set_new(s->mem);
    id_set_add_all(&copy, s);
    return copy;
}

id_set id_set_columns(arena *mem, const rel *r) {
    id_set s = id_set_new(mem);
    id_set_add_columns(&s, r);
    return s;
}

bool expr_compares(const expr *x, int at, expr_op *op) {
    static const struct {
        expr_op written, mirrored;
    } ops[] = {{OP_EQ, OP_EQ}, {OP_LT, OP_GT}, {OP_LE, OP_GE}, {OP_GT, OP_LT}, {OP_GE, OP_LE}};
    for (size_t i = 0; i < BASE_COUNT(ops) && x->kind == EXPR_OP; i++)
        if (x->op == ops[i].written) {
            *op = at == 0 ? ops[i].written : ops[i].mirrored;
            return true;
        }
    return false;
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
    ARENA_PUSH(r->mem, m->list, m->n, m->room, ((rel_expr){with, id}));
}

expr *expr_map_get(const expr_map *m, int id) {
    for (int i = 0; i < m->n; i++)
        if (m->list[i].id == id)
            return m->list[i].value;
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
    ARENA_PUSH(r->mem, c->list, c->n, c->room, x);
}

void conjuncts_add_all(rule_ctx *r, conjuncts *c, const conjuncts *from) {
    for (int i = 0; i < from->n; i++)
        conjuncts_add(r, c, from->list[i]);
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

bool conjuncts_same(const conjuncts *a, const conjuncts *b) {
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = a->list[i] == b->list[i];
    return same;
}

void conjuncts_sort_out(rule_ctx *r, const conjuncts *all, const id_set *ids, conjuncts *within,
                        conjuncts *others) {
    for (int i = 0; i < all->n; i++)
        conjuncts_add(r, expr_only_in(all->list[i], ids) ? within : others, all->list[i]);
}

expr *make_func(rule_ctx *r, function_id function, value_type type, expr *a, expr *b) {
    expr *x = expr_new(r->mem, EXPR_FUNC, type, 2);
    x->function = function;
    x->args[0] = a;
    x->args[1] = b;
    return x;
}

expr *conjuncts_join(rule_ctx *r, const conjuncts *c) {
    return expr_chain(r->mem, OP_AND, c->list, c->n);
}

expr *column_expr(rule_ctx *r, const rel_column *c) {
    str name = c->name;
    if (c->qualifier.n)
        name = str_from(arena_printf(r->mem, "%.*s.%.*s", (int)c->qualifier.n, c->qualifier.p,
                                     (int)c->name.n, c->name.p));
    return expr_column(r->mem, c->id, c->type, name);
}

/* ---- columns of relations -------------------------------------------------------------------- */

rel *rel_copy(rule_ctx *r, const rel *from) {
    rel *copy = ARENA_NEW(r->mem, rel);
    *copy = *from;
    return copy;
}

rel *rel_rebuild(rule_ctx *r, const rel *from, rel *left, rel *right) {
    rel *copy = rel_copy(r, from);
    copy->left = left;
    copy->right = right;
    rel_set_columns(r->mem, copy);
    return copy;
}

rel *pass_columns(rule_ctx *r, rel *input, const rel_column *cols, int ncols, int more) {
    rel *p = rel_project(r->mem, input, ncols + more);
    for (int i = 0; i < ncols; i++)
        project_set(p, i, cols[i], column_expr(r, &cols[i]));
    return p;
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
    return x == like || same_columns(x, like) ? x : pass_columns(r, x, like->cols, like->ncols, 0);
}

rel *rel_over(rule_ctx *r, rel *x, rel *left, rel *right) {
    if (left == x->left && right == x->right)
        return x;
    if (x->kind == REL_SETOP || x->kind == REL_DISTINCT || x->kind == REL_SHARED ||
        x->kind == REL_RECURSIVE) {
        left = rel_like(r, left, x->left);
        right = right ? rel_like(r, right, x->right) : NULL;
    }
    return rel_rebuild(r, x, left, right);
}

/* Rewrites the input of a shared relation once for all references, so that the references keep
 * sharing one relation. This also avoids 2^n visits for a chain of n CTEs, each of which reads the
 * previous CTE twice. */
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

bool is_never(const expr *x) {
    return x->kind == EXPR_LITERAL &&
           (x->literal.type == TYPE_NULL || (x->literal.type == TYPE_BOOLEAN && x->literal.i == 0));
}

rel *make_empty(rule_ctx *r, const rel *like) {
    rel *x = rel_new(r->mem, REL_VALUES, NULL, NULL);
    x->ncols = like->ncols;
    x->cols = like->cols;
    x->values.rows = ARENA_ARRAY(r->mem, expr **, 1);
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
        if (is_never(c->list[i]))
            return make_empty(r, left);
    conjuncts_add_all(r, &all, c);
    rel *x = rel_new(r->mem, REL_FILTER, left, NULL);
    x->filter.predicate = conjuncts_join(r, &all);
    return x;
}

void project_set(rel *project, int at, rel_column c, expr *x) {
    assert(at < project->ncols);
    project->cols[at] = c;
    project->project.exprs[at] = (rel_expr){x, c.id};
}

rel *make_llm(rule_ctx *r, rel *left, const llm_site *sites, int nsites) {
    llm_site *own = ARENA_ARRAY(r->mem, llm_site, nsites);
    memcpy(own, sites, sizeof *own * (size_t)nsites);
    return rel_llm(r->mem, left, own, nsites);
}
