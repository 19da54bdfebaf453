/*
 * bind_group.c - GROUP BY, aggregates, HAVING.
 *
 * Expressions above the groups are first bound over the rows and then rewritten. An expression that
 * equals a group key becomes the column of that key. An aggregate already is a column. Any other
 * column of the rows is an error. LLM calls and subqueries of the select list and HAVING are
 * rewritten in the same way; a call or subquery that a key replaces is dropped.
 */
#include <string.h>

#include "bind_int.h"

/* A call answered for the rows and asked again for the groups. */
typedef struct clone {
    int below_id; /* column of the answers for the rows */
    step *above;  /* the call above the groups */
} clone;

/* ---- keys ------------------------------------------------------------------------------------ */

static expr *bind_key(binder *b, const node *n, const output *outs, int nouts) {
    if (n->kind != NODE_LITERAL || n->literal.type != TYPE_INTEGER)
        return bind_expr(b, n);
    if (n->literal.i < 1 || n->literal.i > nouts) {
        fail_node(b, n, "GROUP BY %lld: the select list has %d column%s", (long long)n->literal.i,
                  nouts, nouts == 1 ? "" : "s");
        return NULL;
    }
    const output *o = &outs[n->literal.i - 1];
    if (o->value)
        return bind_expr(b, o->value);
    return expr_column(b->mem, o->col->id, o->col->type, o->col->name);
}

static expr *with_key_subqueries(binder *b, const grouping *g, const lift *above, expr *x);

bool group_has_key(const grouping *g, const expr *x) {
    for (int i = 0; i < g->nkeys; i++)
        if (expr_equal(g->keys[i].value, x))
            return true;
    return false;
}

int group_keys(binder *b, grouping *g, query *q, const output *outs, int nouts) {
    g->keys = ARENA_ARRAY(b->mem, rel_expr, q->group_by.n);
    b->at.lift = &g->below;
    b->at.group = NULL;
    b->at.no_aggregate = "GROUP BY";
    for (int i = 0; i < q->group_by.n; i++) {
        expr *x = bind_key(b, q->group_by.items[i], outs, nouts);
        if (!x)
            return (int)b->e->code;
        bool is_null = is_untyped_null(b, x);
        if (is_null)
            x = to_type(b, x, TYPE_TEXT, "GROUP BY");
        x = with_key_subqueries(b, g, &g->below, x);
        if (group_has_key(g, x))
            continue;
        int id = new_id(b);
        id_copy(b, id, x);
        id_of(b, id)->is_null = is_null;
        g->keys[g->nkeys++] = (rel_expr){x, id};
    }
    lift_register(b, &g->below);
    b->at.no_aggregate = NULL;
    return 0;
}

int group_having(binder *b, grouping *g, const node *having, conjunct_list *out) {
    b->at.group = g;
    b->at.no_window = "HAVING";
    out->items = bind_conditions(b, having, true, &out->n);
    b->at.no_window = NULL;
    for (int i = 0; out->items && i < out->n; i++)
        for (int k = 0; k < out->items[i].steps.steps.n; k++)
            ((step *)out->items[i].steps.steps.items[k])->is_above = true;
    return out->items ? 0 : (int)b->e->code;
}

/* ---- rewriting ------------------------------------------------------------------------------- */

static expr *rewrite(binder *b, grouping *g, lift *above, expr *x);

static str key_name(const grouping *g, int i) {
    const expr *x = g->keys[i].value;
    return x->kind == EXPR_COLUMN ? x->column.name : STR("key");
}

static bool makes(const step *s, int id) {
    if (s->is_apply)
        return s->value_id == id || s->mark_id == id;
    return llm_site_makes(&s->site, id);
}

static step *find_step(const list *steps, int id) {
    for (int i = 0; i < steps->n; i++)
        if (makes(steps->items[i], id))
            return steps->items[i];
    return NULL;
}

typedef struct rewriting {
    binder *b;
    grouping *g;
    lift *above;
    bool failed;
} rewriting;

static void rewrite_inside(rel_visit *v, expr **x) {
    rewriting *w = v->ctx;
    if (w->failed)
        return;
    expr *y = rewrite(w->b, w->g, w->above, *x);
    if (y)
        *x = y;
    else
        w->failed = true;
}

static bool rewrite_step(binder *b, grouping *g, lift *above, step *s) {
    if (s->rewritten)
        return true;
    s->rewritten = true;
    if (s->predicate && !(s->predicate = rewrite(b, g, above, s->predicate)))
        return false;
    if (s->guard && !(s->guard = rewrite(b, g, above, s->guard)))
        return false;
    if (s->is_apply) {
        rewriting w = {b, g, above, false};
        rel_visit v = {.on_expr = rewrite_inside, .ctx = &w};
        rel_walk(s->right, &v);
        return !w.failed;
    }
    for (int i = 0; i < s->site.call->nfields; i++)
        if (!(s->site.args[i] = rewrite(b, g, above, s->site.args[i])))
            return false;
    return !s->site.guard || (s->site.guard = rewrite(b, g, above, s->site.guard)) != NULL;
}

/* Asks a call that is answered below the groups (in WHERE, a key, an aggregate) again, with the
 * group keys as arguments: the answers below are per row, not per group. */
static step *clone_step(binder *b, grouping *g, lift *above, const step *below) {
    step *s = ARENA_NEW(b->mem, step);
    s->site = below->site;
    s->value_id = s->mark_id = -1;
    s->site.args = ARENA_ARRAY(b->mem, expr *, below->site.call->nfields);
    for (int i = 0; i < below->site.call->nfields; i++)
        s->site.args[i] = below->site.args[i];
    s->site.out_id = new_id(b);
    *id_of(b, s->site.out_id) = *id_of(b, below->site.out_id);
    s->site.probs = ARENA_ARRAY(b->mem, llm_prob, below->site.nprobs + 1);
    for (int i = 0; i < below->site.nprobs; i++)
        s->site.probs[i] = (llm_prob){below->site.probs[i].literal, new_id(b)};
    if (!rewrite_step(b, g, above, s))
        return NULL;
    clone *c = ARENA_NEW(b->mem, clone);
    *c = (clone){below->site.out_id, s};
    list_add(b->mem, &g->clones, c);
    list_add(b->mem, &above->steps, s);
    return s;
}

/* Returns the column of the call above the groups that corresponds to column x of the step `below`
 * them. */
static expr *clone_below(binder *b, grouping *g, lift *above, const step *below, expr *x) {
    int prob = llm_site_prob(&below->site, x->column.id);
    step *s = NULL;
    for (int i = 0; i < g->clones.n && !s; i++) {
        const clone *c = g->clones.items[i];
        s = c->below_id == below->site.out_id ? c->above : NULL;
    }
    if (!s && !(s = clone_step(b, g, above, below)))
        return NULL;
    return expr_column(b->mem, prob < 0 ? s->site.out_id : s->site.probs[prob].id, x->type,
                       x->column.name);
}

static expr *ungrouped(binder *b, const grouping *g, const expr *x) {
    str name = x->column.name;
    fail(b, ERR_BIND, x->pos, x->len, "column \"%.*s\" is neither grouped nor aggregated",
         (int)name.n, name.p);
    if (g->nkeys)
        err_hint(b->e, "add it to GROUP BY, or write MIN(%.*s)", (int)BASE_MIN(name.n, (size_t)60),
                 name.p);
    else
        err_hint(b->e, "write GROUP BY %.*s, or MIN(%.*s)", (int)BASE_MIN(name.n, (size_t)60),
                 name.p, (int)BASE_MIN(name.n, (size_t)60), name.p);
    return NULL;
}

/* True if `guard`, which limits a subquery above the groups, implies `key`, which limits the equal
 * subquery of a group key. key NULL: the key's subquery is evaluated for all rows. */
static bool guard_agrees(binder *b, const grouping *g, const lift *above, expr *key, expr *guard) {
    return !key || (guard && guard_covers(with_key_subqueries(b, g, &g->below, key),
                                          with_key_subqueries(b, g, above, guard)));
}

/* True if two IN predicates have equal operands. x is above the groups, `key` belongs to a group
 * key. */
static bool same_operands(binder *b, const grouping *g, const lift *above, const expr *x,
                          const expr *key) {
    if (x->op != key->op)
        return false;
    if (x->op == OP_AND)
        return same_operands(b, g, above, x->args[0], key->args[0]) &&
               same_operands(b, g, above, x->args[1], key->args[1]);
    return expr_equal(key->args[0], with_key_subqueries(b, g, above, x->args[0]));
}

/* Returns the subquery of a group key that equals subquery s above the groups, or NULL. Each
 * occurrence of a subquery is bound separately, so they are compared by text, guard and, for IN,
 * operand. */
static const step *key_subquery(binder *b, const grouping *g, const lift *above, const step *s) {
    for (int i = 0; i < g->below.steps.n; i++) {
        const step *key = g->below.steps.items[i];
        if (key->is_apply && key->kind == s->kind && key->mark_null == s->mark_null &&
            str_equal(key->text, s->text) && guard_agrees(b, g, above, key->guard, s->guard) &&
            (s->kind != JOIN_SINGLE || guard_agrees(b, g, above, key->predicate, s->predicate)) &&
            (!s->mark_null || same_operands(b, g, above, s->predicate, key->predicate)))
            return key;
    }
    return NULL;
}

/* Returns x with the columns of subqueries replaced by the columns of equal subqueries of group
 * keys. */
static expr *with_key_subqueries(binder *b, const grouping *g, const lift *above, expr *x) {
    if (x->kind == EXPR_COLUMN) {
        const step *s = find_step(&above->steps, x->column.id);
        const step *key = s && s->is_apply ? key_subquery(b, g, above, s) : NULL;
        return key ? expr_column(b->mem, key->mark_id >= 0 ? key->mark_id : key->value_id, x->type,
                                 x->column.name)
                   : x;
    }
    expr **args = x->nargs ? ARENA_ARRAY(b->mem, expr *, x->nargs) : NULL;
    bool changed = false;
    for (int i = 0; i < x->nargs; i++) {
        args[i] = with_key_subqueries(b, g, above, x->args[i]);
        changed = changed || args[i] != x->args[i];
    }
    if (!changed)
        return x;
    expr *copy = ARENA_NEW(b->mem, expr);
    *copy = *x;
    copy->args = args;
    return copy;
}

static expr *rewrite_column(binder *b, grouping *g, lift *above, expr *x) {
    int id = x->column.id;
    step *s = find_step(&above->steps, id);
    if (s)
        return rewrite_step(b, g, above, s) ? x : NULL;
    s = find_step(&b->at.scope->computed, id);
    if (s && s->is_above)
        return x;
    if (s || (s = find_step(&g->below.steps, id)) != NULL) {
        if (!s->is_apply)
            return clone_below(b, g, above, s, x);
        return ungrouped(b, g, x);
    }
    for (int i = 0; i < g->input->ncols; i++)
        if (g->input->cols[i].id == id)
            return ungrouped(b, g, x);
    return x; /* a column of an aggregate or of an outer query */
}

static expr *rewrite(binder *b, grouping *g, lift *above, expr *x) {
    const expr *as_key = g->below.steps.n ? with_key_subqueries(b, g, above, x) : x;
    for (int i = 0; i < g->nkeys; i++)
        if (x->kind != EXPR_LITERAL && expr_equal(g->keys[i].value, as_key))
            return expr_at(expr_column(b->mem, g->keys[i].id, x->type, key_name(g, i)), x->pos,
                           x->len);
    if (x->kind == EXPR_COLUMN)
        return rewrite_column(b, g, above, x);
    if (x->nargs == 0)
        return x;
    expr *copy = ARENA_NEW(b->mem, expr);
    *copy = *x;
    copy->args = ARENA_ARRAY(b->mem, expr *, x->nargs);
    for (int i = 0; i < x->nargs; i++)
        if (!(copy->args[i] = rewrite(b, g, above, x->args[i])))
            return NULL;
    return copy;
}

int group_rewrite(binder *b, grouping *g, lift *above, expr **x) {
    *x = rewrite(b, g, above, *x);
    return *x ? 0 : (int)b->e->code;
}

void group_prune(lift *above) {
    int kept = 0;
    for (int i = 0; i < above->steps.n; i++)
        if (((step *)above->steps.items[i])->rewritten)
            above->steps.items[kept++] = above->steps.items[i];
    above->steps.n = kept;
}

/* ---- the node -------------------------------------------------------------------------------- */

static rel *group_node(binder *b, const grouping *g, rel *left) {
    rel *r = rel_make(b->mem, REL_GROUP, g->nkeys + g->aggs.n);
    r->left = left;
    r->group.nkeys = g->nkeys;
    r->group.keys = g->keys;
    r->group.naggs = g->aggs.n;
    r->group.aggs = ARENA_ARRAY(b->mem, rel_agg, g->aggs.n);
    for (int i = 0; i < g->nkeys; i++)
        r->cols[i] = (rel_column){g->keys[i].id, g->keys[i].value->type, key_name(g, i), {NULL, 0}};
    for (int i = 0; i < g->aggs.n; i++) {
        const rel_agg *a = g->aggs.items[i];
        r->group.aggs[i] = *a;
        r->cols[g->nkeys + i] = (rel_column){a->id, a->type, STR("aggregate"), {NULL, 0}};
    }
    return r;
}

int group_filter(binder *b, grouping *g, conjunct_list *on, rel **r) {
    for (int i = 0; i < on->n; i++) {
        conjunct *c = &on->items[i];
        int status = g ? group_rewrite(b, g, &c->steps, &c->value) : 0;
        if (status)
            return status;
        if (g)
            group_prune(&c->steps);
        *r = lift_place(b, &c->steps, *r);
        *r = rel_filter(b->mem, *r, c->value);
    }
    return 0;
}

int group_place(binder *b, grouping *g, conjunct_list *having, rel *r, rel **out) {
    r = lift_place(b, &g->below, r);
    g->input = r;
    r = group_node(b, g, r);
    *out = r;
    return group_filter(b, g, having, out);
}
