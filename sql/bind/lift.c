/*
 * lift.c - LLM calls and subqueries lifted out of the expressions of a clause: steps with guards,
 * which become REL_LLM and REL_APPLY nodes below the clause.
 *
 * Equal calls of one clause are one step with their guards joined by OR, unless two steps would
 * then depend on each other. Invariant: the guard and the arguments of a step refer only to columns
 * of the clause's input and of steps that can be placed before it.
 */
#include <string.h>

#include "bind_int.h"

/* ---- steps ----------------------------------------------------------------------------------- */

void lift_apply(binder *b, lift *l, step *s) {
    list_add(b->mem, &l->steps, s);
}

void lift_register(binder *b, const lift *l) {
    for (int i = 0; b->at.scope && i < l->steps.n; i++)
        if (!((step *)l->steps.items[i])->is_apply)
            list_add(b->mem, &b->at.scope->computed, l->steps.items[i]);
}

typedef struct search {
    int id;
    bool found;
} search;

static void search_id(void *ctx, int id) {
    search *s = ctx;
    s->found = s->found || s->id == id;
}

bool expr_mentions(const expr *x, int id) {
    search s = {id, false};
    if (x)
        expr_columns(x, search_id, &s);
    return s.found;
}

/* True if x reads a column of the step: an answer, its probability, the value or mark of a
 * subquery. */
static bool reads_step(const expr *x, const step *s) {
    if (s->is_apply)
        return (s->value_id >= 0 && expr_mentions(x, s->value_id)) ||
               (s->mark_id >= 0 && expr_mentions(x, s->mark_id));
    bool found = expr_mentions(x, s->site.out_id);
    for (int i = 0; i < s->site.nprobs; i++)
        found = found || expr_mentions(x, s->site.probs[i].id);
    return found;
}

/* True if x reads the step `of` directly or through other steps. A search visits each step once. */
static bool depends_through(binder *b, const lift *l, const expr *x, const step *of) {
    if (!x)
        return false;
    if (reads_step(x, of))
        return true;
    for (int i = 0; i < l->steps.n; i++) {
        step *s = l->steps.items[i];
        if (s == of || s->searched == b->search || !reads_step(x, s))
            continue;
        s->searched = b->search;
        if (depends_through(b, l, s->is_apply ? s->predicate : s->site.guard, of) ||
            depends_through(b, l, s->guard, of))
            return true;
        for (int k = 0; !s->is_apply && k < s->site.call->nfields; k++)
            if (depends_through(b, l, s->site.args[k], of))
                return true;
    }
    return false;
}

static bool depends(binder *b, const lift *l, const expr *x, const step *of) {
    b->search++;
    return depends_through(b, l, x, of);
}

static bool same_question(const step *s, const llm_call *call, expr **args) {
    if (s->is_apply || s->site.call != call)
        return false;
    for (int i = 0; i < call->nfields; i++)
        if (!expr_equal(s->site.args[i], args[i]))
            return false;
    return true;
}

static bool is_op(const expr *x, expr_op op) {
    return x && x->kind == EXPR_OP && x->op == op;
}

static bool is_test(const expr *x, expr_op op, bool of) {
    return is_op(x, op) && x->args[1]->kind == EXPR_LITERAL &&
           x->args[1]->literal.type == TYPE_BOOLEAN && x->args[1]->literal.i == of;
}

bool guard_covers(const expr *guard, const expr *wanted) {
    if (!guard || expr_equal(guard, wanted))
        return true;
    if (is_op(guard, OP_OR)) /* the joined guards of equal calls */
        return guard_covers(guard->args[0], wanted) || guard_covers(guard->args[1], wanted);
    if (is_op(guard, OP_AND))
        return guard_covers(guard->args[0], wanted) && guard_covers(guard->args[1], wanted);
    if (is_op(wanted, OP_AND))
        return guard_covers(guard, wanted->args[0]) || guard_covers(guard, wanted->args[1]);
    /* the guard that AND adds in a context where NULL differs from FALSE */
    if (is_test(guard, OP_IS_NOT, false))
        return expr_equal(guard->args[0], wanted);
    return is_test(guard, OP_IS_NOT, true) && is_test(wanted, OP_IS, false) &&
           expr_equal(guard->args[0], wanted->args[0]);
}

static step *find_same(binder *b, lift *l, const llm_call *call, expr **args) {
    for (int i = 0; b->at.scope && i < b->at.scope->computed.n; i++) {
        step *s = b->at.scope->computed.items[i];
        if (same_question(s, call, args) && guard_covers(s->site.guard, b->at.guard))
            return s;
    }
    for (int i = 0; i < l->steps.n; i++) {
        step *s = l->steps.items[i];
        if (!same_question(s, call, args))
            continue;
        if (guard_covers(s->site.guard, b->at.guard))
            return s;
        if (depends(b, l, b->at.guard, s))
            continue;
        s->site.guard = b->at.guard
                            ? expr_chain(b->mem, OP_OR, (expr *[]){s->site.guard, b->at.guard}, 2)
                            : NULL;
        return s;
    }
    return NULL;
}

/* Adds the columns for those of `reads` (of prob_read*) that the site has no column for. */
static void add_probs(binder *b, llm_site *site, const list *reads) {
    llm_prob *probs = ARENA_ARRAY(b->mem, llm_prob, site->nprobs + reads->n + 1);
    if (site->nprobs > 0)
        memcpy(probs, site->probs, sizeof *probs * (size_t)site->nprobs);
    site->probs = probs;
    for (int i = 0; i < reads->n; i++) {
        int literal = llm_read_literal(site->call, reads->items[i]), at = 0;
        while (at < site->nprobs && probs[at].literal != literal)
            at++;
        if (at == site->nprobs)
            probs[site->nprobs++] = (llm_prob){literal, new_id(b)};
    }
}

void lift_probs(binder *b, step *s, const call_info *info) {
    add_probs(b, &s->site, &info->uses->probs);
}

step *lift_site(binder *b, lift *l, call_info *info, expr **args) {
    step *s = find_same(b, l, info->call, args);
    if (!s) {
        s = ARENA_NEW(b->mem, step);
        s->value_id = s->mark_id = -1;
        s->site =
            (llm_site){.call = info->call, .args = args, .guard = b->at.guard, .out_id = new_id(b)};
        id_of(b, s->site.out_id)->call = info;
        id_of(b, s->site.out_id)->asked = s;
        list_add(b->mem, &l->steps, s);
    }
    lift_probs(b, s, info);
    return s;
}

static const llm_site *site_among(const list *steps, int id) {
    for (int i = 0; i < steps->n; i++) {
        const step *s = steps->items[i];
        if (!s->is_apply && llm_site_makes(&s->site, id))
            return &s->site;
    }
    return NULL;
}

const llm_site *lift_site_of(const scope *s, const lift *l, int id) {
    const llm_site *site = site_among(&l->steps, id);
    return site || !s ? site : site_among(&s->computed, id);
}

/* ---- placing --------------------------------------------------------------------------------- */

static bool depends_on(const step *s, const step *other) {
    if (s->is_apply)
        return reads_step(s->predicate, other) || reads_step(s->guard, other);
    if (reads_step(s->site.guard, other))
        return true;
    for (int k = 0; k < s->site.call->nfields; k++)
        if (reads_step(s->site.args[k], other))
            return true;
    return false;
}

static bool is_ready(const lift *l, const step *s) {
    for (int i = 0; i < l->steps.n; i++) {
        const step *other = l->steps.items[i];
        if (other != s && !other->placed && depends_on(s, other))
            return false;
    }
    return true;
}

/* Returns r with one more column, computed by x. */
static rel *with_column(binder *b, rel *r, int id, const char *name, expr *x) {
    rel *p = rel_project(b->mem, r, r->ncols + 1);
    for (int i = 0; i < r->ncols; i++) {
        const rel_column *c = &r->cols[i];
        p->cols[i] = *c;
        p->project.exprs[i] = (rel_expr){expr_column(b->mem, c->id, c->type, c->name), c->id};
    }
    p->cols[r->ncols] = (rel_column){id, x->type, str_from(name), {NULL, 0}};
    p->project.exprs[r->ncols] = (rel_expr){x, id};
    return p;
}

/* Evaluates a volatile left operand of IN in a new column, once per row, so that all comparisons
 * with the row see the same value. */
static expr *project_volatile_operands(binder *b, rel **r, expr *p) {
    expr *x = p->args[0], *y = p->args[1];
    if (!expr_is_volatile(p))
        return p;
    if (p->op == OP_AND) {
        x = project_volatile_operands(b, r, x);
        return expr_op2(b->mem, OP_AND, TYPE_BOOLEAN, x, project_volatile_operands(b, r, y));
    }
    expr *drawn = expr_column(b->mem, new_id(b), x->type, STR("operand"));
    *r = with_column(b, *r, drawn->column.id, "operand", x);
    return expr_op2(b->mem, p->op, TYPE_BOOLEAN, drawn, y);
}

static rel *place_applies(binder *b, lift *l, rel *r, int *left) {
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < l->steps.n; i++) {
            step *s = l->steps.items[i];
            if (!s->is_apply || s->placed || !is_ready(l, s))
                continue;
            if (s->guard)
                r = with_column(b, r, s->guard_id, "guard", s->guard);
            if (s->kind == JOIN_MARK && s->predicate)
                s->predicate = project_volatile_operands(b, &r, s->predicate);
            r = rel_apply(b->mem, s->kind, r, s->right, s->predicate, s->mark_id, s->mark_null);
            s->placed = again = true;
            --*left;
        }
    }
    return r;
}

static rel *place_sites(binder *b, lift *l, rel *r, int *left) {
    llm_site *sites = ARENA_ARRAY(b->mem, llm_site, l->steps.n);
    step **ready = ARENA_ARRAY(b->mem, step *, l->steps.n);
    int n = 0;
    for (int i = 0; i < l->steps.n; i++) {
        step *s = l->steps.items[i];
        if (!s->is_apply && !s->placed && is_ready(l, s))
            ready[n++] = s;
    }
    for (int i = 0; i < n; i++) {
        ready[i]->placed = true;
        sites[i] = ready[i]->site;
        llm_call *call = (llm_call *)(uintptr_t)sites[i].call;
        if (call->number)
            continue;
        call->number = ++b->ncalls;
        call->label =
            str_from(arena_printf(b->mem, "LLM#%d%s%.*s", call->number, call->field.n ? " " : "",
                                  (int)call->field.n, call->field.p));
    }
    *left -= n;
    return n ? rel_llm(b->mem, r, sites, n) : r;
}

rel *lift_place(binder *b, lift *l, rel *r) {
    int left = l->steps.n;
    while (left > 0) {
        int before = left;
        r = place_applies(b, l, r, &left);
        r = place_sites(b, l, r, &left);
        if (left == before) { /* cannot happen: find_same never creates a cycle */
            fail(b, ERR_INTERNAL, -1, 0, "LLM calls depend on each other");
            return r;
        }
    }
    return r;
}
