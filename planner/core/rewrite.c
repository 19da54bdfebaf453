/*
 * rewrite.c - the tools of the rules: sets of ids, conjuncts, relations rebuilt around new inputs
 * (see rewrite_int.h).
 *
 * Invariant: what is handed in is never changed; what did not change is returned itself.
 */
#include <assert.h>
#include <string.h>

#include "rewrite_int.h"

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

bool expr_compares(const expr *x, int at, expr_op *op) {
    static const struct {
        expr_op as_is, turned;
    } ops[] = {{OP_EQ, OP_EQ}, {OP_LT, OP_GT}, {OP_LE, OP_GE}, {OP_GT, OP_LT}, {OP_GE, OP_LE}};
    for (size_t i = 0; i < BASE_COUNT(ops) && x->kind == EXPR_OP; i++)
        if (x->op == ops[i].as_is) {
            *op = at == 0 ? ops[i].as_is : ops[i].turned;
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
    rel *p = rel_project(r->mem, x, like->ncols);
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
    rel_set_columns(r->mem, copy);
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
    for (int i = 0; i < c->n; i++) {
        if (is_never(c->list[i]))
            return make_empty(r, left);
        conjuncts_add(r, &all, c->list[i]);
    }
    rel *x = rel_new(r->mem, REL_FILTER, left, NULL);
    x->filter.predicate = conjuncts_join(r, &all);
    return x;
}

void project_set(rel *project, int at, rel_column c, expr *x) {
    assert(at < project->ncols);
    project->cols[at] = c;
    project->project.exprs[at] = (rel_expr){x, c.id};
}

rel *make_llm(rule_ctx *r, rel *left, const llm_use *uses, int nuses) {
    llm_use *own = ARENA_ARRAY(r->mem, llm_use, nuses);
    memcpy(own, uses, sizeof *own * (size_t)nuses);
    return rel_llm(r->mem, left, own, nuses);
}
