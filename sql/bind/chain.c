/*
 * chain.c - calls that go on from the prompt and the answer of another call: the option after, and
 * the fields of a STRUCT IN ORDER.
 *
 * Such a call has the fields of the call that it goes on from, that call's answer, and its own. So
 * the prompt of a row is known wherever the call is asked, and what is true of fields computed from
 * answers is true of it. Invariant: a call never goes on from itself, directly or through others.
 */
#include "bind_int.h"

/* Sets *out to the value of the option after; NULL: it is not given. */
static int option_after(binder *b, const node *n, const node **out) {
    *out = NULL;
    for (int i = 0; i < n->options.n; i++) {
        const llm_option *o = n->options.items[i];
        if (!str_equal_nocase(o->name.name, STR("after")))
            continue;
        if (*out)
            return fail_ident(b, o->name, "option after is given twice");
        *out = o->value;
    }
    return 0;
}

/* Refuses options that only the call that begins the prompt can have. */
static int check_options(binder *b, const node *n, str name) {
    static const char *const firsts[] = {"examples", "model", "labels"};
    for (int i = 0; i < n->options.n; i++) {
        const llm_option *o = n->options.items[i];
        for (size_t k = 0; k < BASE_COUNT(firsts); k++) {
            if (!str_equal_nocase(o->name.name, str_from(firsts[k])))
                continue;
            fail_ident(b, o->name, "a call with the option after cannot have the option %s",
                       firsts[k]);
            err_hint(b->e, "drop it, or give it to the call \"%.*s\"",
                     (int)BASE_MIN(name.n, (size_t)60), name.p);
            return ERR_BIND;
        }
    }
    return 0;
}

static bool is_being_bound(const binder *b, const node *n) {
    for (const call_chain *c = b->chain; c; c = c->outer)
        if (c->node == n)
            return true;
    return false;
}

static int refuse(binder *b, const node *after) {
    fail_node(
        b, after,
        "after takes the name of an LLM call in the same select list, or a column of LLM() in "
        "FROM");
    const scope_column *c = after->kind == NODE_COLUMN ? scope_named(b, after) : NULL;
    if (c && id_of(b, c->id)->call)
        err_hint(b->e, "put both calls into one select list");
    else
        err_hint(b->e, "name the other call: LLM(…) AS mood, LLM('…', after => mood)");
    return ERR_BIND;
}

/* Binds the call that is written as `call` in the select list. */
static int bind_written(binder *b, const node *n, const node *call, chained *out) {
    call_chain link = {n, b->chain};
    b->chain = &link;
    out->answer = bind_expr(b, call);
    b->chain = link.outer;
    if (!out->answer)
        return (int)b->e->code;
    out->site = lift_site_of(b->at.scope, b->at.lift, out->answer->column.id);
    for (int f = 0; f < out->site->call->nfields; f++)
        if (expr_is_volatile(out->site->args[f])) {
            fail_node(b, n,
                      "a call cannot go on from \"%.*s\", which has a field that is not "
                      "deterministic",
                      (int)BASE_MIN(out->name.n, (size_t)60), out->name.p);
            err_hint(b->e, "compute the field in a subquery in FROM");
            return ERR_BIND;
        }
    return 0;
}

int bind_after(binder *b, const node *n, chained *out) {
    const node *after, *call = n->previous;
    *out = (chained){.site = NULL};
    if (call) {
        out->name = call->field->name.name;
        return bind_written(b, n, call, out);
    }
    int status = option_after(b, n, &after);
    if (status || !after)
        return status;
    call = named_call(b, after);
    out->name = after->name.name;
    if (call && (call == n || is_being_bound(b, call)))
        return fail_node(b, after, "a call cannot go on from itself");
    if (call)
        return check_options(b, n, out->name) ? (int)b->e->code : bind_written(b, n, call, out);
    step *s = asked_column(b, after);
    if (!s)
        return refuse(b, after);
    out->site = &s->site;
    out->answer = expr_column(b->mem, s->site.out_id, llm_call_type(s->site.call), out->name);
    return check_options(b, n, out->name);
}
