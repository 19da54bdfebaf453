/*
 * bind_call.c - function calls: scalar functions, whose parameter classes are the letters described
 * in sql.h, and aggregates, which are added to the query's grouping.
 */
#include <string.h>

#include "bind_int.h"
#include "words/words_int.h"

/* ---- scalars --------------------------------------------------------------------------------- */

static expr *fit_argument(binder *b, expr *x, char class, const char *name) {
    const char *what = arena_printf(b->mem, "%s()", name);
    switch (class) {
    case 't':
        return to_type_implicit(b, x, TYPE_TEXT, what);
    case 'i':
        return to_type_implicit(b, x, TYPE_INTEGER, what);
    case 'r':
        return (x = to_number(b, x, what)) ? to_type(b, x, TYPE_REAL, what) : NULL;
    case 'n':
        return to_number(b, x, what);
    case 's':
        return to_type(b, x, TYPE_TEXT, what);
    case 'c':
        return to_condition(b, x);
    case 'b':
        return x->type == TYPE_BLOB ? x : to_type_implicit(b, x, TYPE_TEXT, what);
    case 'v':
        return x->kind == EXPR_LITERAL && x->type == TYPE_TEXT
                   ? to_type(b, x, TYPE_VECTOR, what)
                   : to_type_implicit(b, x, TYPE_VECTOR, what);
    case 'd':
        return type_is_number(x->type) ? x : to_type_implicit(b, x, TYPE_TEXT, what);
    default:
        return expr_is_null(x) && class == 'a' ? to_type(b, x, TYPE_TEXT, what) : x;
    }
}

/* Returns the condition under which argument i is evaluated. For b of COALESCE(a, b) it is that a
 * is NULL; for a branch of IIF(c, a, b) it is that c selects the branch. */
static expr *argument_guard(binder *b, const expr *call, int i) {
    if (call->function == FUNC_IIF && i > 0)
        return i == 1 ? call->args[0] : is_true(b, call->args[0], true);
    if (call->function != FUNC_COALESCE && call->function != FUNC_IFNULL)
        return NULL;
    expr *guard = NULL;
    for (int k = 0; k < i; k++)
        guard = expr_and(b->mem, guard, is_null(b, call->args[k]));
    return guard;
}

static int bind_arguments(binder *b, const node *n, expr *call) {
    const function_info *info = function_of(call->function);
    const char *classes = function_parameters(call->function);
    size_t nclasses = strlen(classes);
    for (int i = 0; i < n->nargs; i++) {
        char class = nclasses ? classes[BASE_MIN((size_t)i, nclasses - 1)] : 'a';
        b->at.truth = call->function == FUNC_IIF && i == 0 ? TRUTH_TRUE : TRUTH_ANY;
        expr *x = bind_guarded(b, n->args[i], argument_guard(b, call, i));
        if (!x || !(x = fit_argument(b, x, class, info->name)))
            return (int)b->e->code;
        call->args[i] = x;
    }
    const char *same = strchr(classes, '=');
    if (same) {
        int from = (int)(same - classes);
        value_type type;
        if (unify_all(b, call->args + from, call->nargs - from, info->name, &type))
            return (int)b->e->code;
    }
    if (call->function == FUNC_MOD) {
        value_type type;
        return unify_all(b, call->args, 2, info->name, &type);
    }
    if (call->function == FUNC_NULLIF) {
        expr *first = call->args[0];
        if (is_untyped_null(b, first))
            call->args[0] = expr_literal(b->mem, value_null());
        return unify_comparison(b, OP_EQ, &first, &call->args[1], n->pos, n->len);
    }
    return 0;
}

static value_type result_type(const expr *call) {
    function_result r = function_result_of(call->function);
    if (r == RESULT_AS_FIRST)
        return call->args[0]->type;
    if (r == RESULT_AS_NUMBER)
        return call->args[0]->type == TYPE_REAL ? TYPE_REAL : TYPE_INTEGER;
    if (r == RESULT_AS_COMMON)
        return call->args[call->nargs - 1]->type;
    return (value_type)r;
}

expr *wrong_count(binder *b, const node *n, const function_info *info) {
    fail_node(b, n, "%s() takes %s%d argument%s, not %d", info->name,
              info->max_args < 0                                             ? "at least "
              : n->nargs < info->min_args && info->max_args > info->min_args ? "at least "
              : info->max_args > info->min_args                              ? "at most "
                                                                             : "",
              n->nargs < info->min_args ? info->min_args : info->max_args,
              (n->nargs < info->min_args ? info->min_args : info->max_args) == 1 ? "" : "s",
              n->nargs);
    err_hint(b->e, "%s", info->signature);
    return NULL;
}

/* hash(*): of all columns of FROM. */
static expr *bind_hash_star(binder *b, const node *n) {
    const scope *from = b->at.scope;
    if (!from || from->n == 0) {
        fail_node(b, n, "* needs FROM");
        return NULL;
    }
    expr *call = expr_new(b->mem, EXPR_FUNC, TYPE_INTEGER, from->n);
    call->function = FUNC_HASH;
    call->nargs = 0;
    for (int i = 0; i < from->n; i++) {
        const scope_column *c = &from->cols[i];
        if (!c->hidden_column && !c->merged)
            call->args[call->nargs++] = expr_column(b->mem, c->id, c->type, c->name);
    }
    return call;
}

static expr *bind_scalar_call(binder *b, const node *n, function_id id) {
    const function_info *info = function_of(id);
    if (id == FUNC_HASH && n->star && !n->filter)
        return bind_hash_star(b, n);
    if (n->star || n->distinct || n->filter || n->order_by.n) {
        fail_node(b, n, "%s() is not an aggregate: it takes no *, DISTINCT, ORDER BY or FILTER",
                  info->name);
        return NULL;
    }
    if (n->nargs < info->min_args || (info->max_args >= 0 && n->nargs > info->max_args))
        return wrong_count(b, n, info);
    expr *call = expr_new(b->mem, EXPR_FUNC, TYPE_NULL, n->nargs);
    call->function = id;
    if (bind_arguments(b, n, call))
        return NULL;
    call->type = result_type(call);
    if (call->type == TYPE_NULL) /* COALESCE(NULL, NULL), NULLIF(NULL, 1) */
        return expr_literal(b->mem, value_null());
    return call;
}

/* ---- aggregates ------------------------------------------------------------------------------ */

bool window_has_aggregate(const window_spec *w) {
    for (int i = 0; i < w->partition_by.n; i++)
        if (node_has_aggregate(w->partition_by.items[i]))
            return true;
    for (int i = 0; i < w->order_by.n; i++)
        if (node_has_aggregate(((order_item *)w->order_by.items[i])->value))
            return true;
    return false;
}

bool node_has_aggregate(const node *n) {
    agg_kind kind;
    if (n->kind == NODE_CALL && !n->over && aggregate_find(n->name.name, &kind))
        return true;
    if (n->over && (window_has_aggregate(n->over) || (n->filter && node_has_aggregate(n->filter))))
        return true;
    for (int i = 0; i < n->nargs; i++)
        if (node_has_aggregate(n->args[i]))
            return true;
    for (int i = 0; i < n->options.n; i++)
        if (node_has_aggregate(((llm_option *)n->options.items[i])->value))
            return true;
    return false;
}

static int aggregate_argument(binder *b, const node *n, rel_agg *agg) {
    const char *what = arena_printf(b->mem, "%s()", agg_kind_name(agg->kind));
    expr *x = bind_guarded(b, n->args[0], agg->filter);
    if (!x)
        return (int)b->e->code;
    switch (agg->kind) {
    case AGG_SUM:
    case AGG_AVG:
        x = to_number(b, x, what);
        break;
    case AGG_MEDIAN:
    case AGG_STDDEV:
        x = to_number(b, x, what);
        x = x ? to_type(b, x, TYPE_REAL, what) : NULL;
        break;
    case AGG_GROUP_CONCAT:
        x = to_type(b, x, TYPE_TEXT, what);
        break;
    default:
        x = expr_is_null(x) ? to_type(b, x, TYPE_TEXT, what) : x;
        break;
    }
    if (!x)
        return (int)b->e->code;
    agg->arg = x;
    agg->type = agg->kind == AGG_COUNT ? TYPE_INTEGER : agg->kind == AGG_AVG ? TYPE_REAL : x->type;
    return 0;
}

static int aggregate_separator(binder *b, const node *n, rel_agg *agg) {
    if (agg->kind != AGG_GROUP_CONCAT)
        return 0;
    agg->separator = expr_literal(b->mem, value_text(STR(",")));
    if (n->nargs < 2)
        return 0;
    expr *x = bind_expr(b, n->args[1]);
    if (!x || !(x = to_type(b, x, TYPE_TEXT, "the separator")))
        return (int)b->e->code;
    if (!expr_is_constant(x))
        return fail_node(b, n->args[1], "the separator must be a constant");
    agg->separator = x;
    return 0;
}

/* True if x is the aggregate's DISTINCT argument, with or without the cast that was added to the
 * argument. Any other ORDER BY key could have several values for equal arguments. */
static bool is_argument(const expr *arg, const expr *x) {
    return expr_equal(arg, x) || (arg->kind == EXPR_CAST && expr_equal(arg->args[0], x));
}

static int aggregate_order(binder *b, const node *n, rel_agg *agg) {
    expr *guard = b->at.guard;
    agg->keys = ARENA_ARRAY(b->mem, sort_key, n->order_by.n);
    agg->nkeys = n->order_by.n;
    int status = 0;
    if (agg->filter && !expr_is_volatile(agg->filter))
        b->at.guard = expr_and(b->mem, guard, agg->filter);
    for (int i = 0; i < n->order_by.n && !status; i++) {
        const order_item *item = n->order_by.items[i];
        status = bind_sort_key(b, item->value, item, &agg->keys[i]);
        if (!status && agg->distinct && !is_argument(agg->arg, agg->keys[i].value))
            status = fail_node(
                b, item->value,
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list");
    }
    b->at.guard = guard;
    return status;
}

static bool has_volatile(const expr *x) {
    return x && expr_is_volatile(x);
}

static bool same_order(const rel_agg *a, const rel_agg *c) {
    for (int i = 0; i < a->nkeys && i < c->nkeys; i++) {
        const sort_key *x = &a->keys[i], *y = &c->keys[i];
        if (has_volatile(x->value) || !expr_equal(x->value, y->value) ||
            x->descending != y->descending || x->nulls_first != y->nulls_first)
            return false;
    }
    return a->nkeys == c->nkeys;
}

/* True if both compute the same value. Volatile aggregates are never the same: each is evaluated
 * separately. */
static bool same_aggregate(const rel_agg *a, const rel_agg *c) {
    if (has_volatile(a->arg) || has_volatile(a->filter))
        return false;
    return a->kind == c->kind && a->distinct == c->distinct && expr_equal(a->arg, c->arg) &&
           expr_equal(a->separator, c->separator) && expr_equal(a->filter, c->filter) &&
           same_order(a, c);
}

int bind_aggregate_parts(binder *b, const node *n, rel_agg *agg) {
    if (n->filter && !(agg->filter = bind_condition(b, n->filter, TRUTH_TRUE)))
        return (int)b->e->code;
    if (agg->kind == AGG_COUNT && (n->star || n->nargs == 0)) {
        agg->kind = AGG_COUNT_STAR;
        agg->type = TYPE_INTEGER;
        return agg->distinct ? fail_node(b, n, "count(DISTINCT *) is not supported: name a column")
                             : 0;
    }
    int status = aggregate_argument(b, n, agg);
    if (!status)
        status = aggregate_separator(b, n, agg);
    return status ? status : aggregate_order(b, n, agg);
}

bool aggregate_takes(binder *b, const node *n, agg_kind kind) {
    if (n->star ? kind != AGG_COUNT
                : (n->nargs > (kind == AGG_GROUP_CONCAT ? 2 : 1) ||
                   (n->nargs == 0 && kind != AGG_COUNT))) {
        fail_node(b, n, "%s() takes one %s", agg_kind_name(kind),
                  kind == AGG_GROUP_CONCAT ? "value and a separator" : "value");
        if (kind == AGG_MIN || kind == AGG_MAX)
            err_hint(b->e, "%s(a, b) returns the %s of several values",
                     kind == AGG_MIN ? "least" : "greatest",
                     kind == AGG_MIN ? "smallest" : "largest");
        return false;
    }
    return true;
}

typedef struct reading {
    const scope *s;
    /* an answer of one of these calls counts as the columns that the call reads */
    const lift *calls;
    bool own;   /* a column of the query itself is read */
    bool outer; /* a column of an outer query is read */
} reading;

static bool has_column(const scope *s, int id) {
    for (int i = 0; i < s->n; i++)
        if (s->cols[i].id == id)
            return true;
    return false;
}

static void read_column(void *ctx, int id) {
    reading *r = ctx;
    bool outer = false;
    const llm_site *asked = lift_site_of(r->s, r->calls, id);
    for (int i = 0; asked && i < asked->call->nfields; i++)
        expr_columns(asked->args[i], read_column, r);
    if (asked)
        return;
    for (const scope *s = r->s->outer; s && !outer; s = s->outer)
        outer = has_column(s, id);
    r->outer = r->outer || outer;
    r->own = r->own || !outer;
}

/* True if the aggregate reads only columns of outer queries. By the SQL standard it then belongs to
 * the outer query; evaluating it in the subquery would silently return another result. */
static bool aggregates_outer(const binder *b, const grouping *g, const rel_agg *agg) {
    reading r = {.s = b->at.scope, .calls = &g->below};
    if (!b->at.scope || !agg->arg)
        return false;
    expr_columns(agg->arg, read_column, &r);
    if (agg->filter)
        expr_columns(agg->filter, read_column, &r);
    for (int i = 0; i < agg->nkeys; i++)
        expr_columns(agg->keys[i].value, read_column, &r);
    return r.outer && !r.own;
}

static expr *bind_aggregate(binder *b, const node *n, agg_kind kind) {
    if (!aggregate_takes(b, n, kind))
        return NULL;
    if (!b->at.group) {
        fail_node(b, n, "%s() is not allowed in %s", agg_kind_name(kind),
                  b->at.no_aggregate ? b->at.no_aggregate : "this place");
        if (b->at.no_aggregate && strcmp(b->at.no_aggregate, "WHERE") == 0)
            err_hint(b->e, "put conditions on aggregates into HAVING");
        return NULL;
    }
    bind_place before = b->at;
    grouping *g = before.group;
    b->at.group = NULL;
    b->at.windows = NULL;
    b->at.no_aggregate = b->at.no_window = "an aggregate";
    b->at.lift = &g->below;
    b->at.guard = before.inherited;
    rel_agg *agg = ARENA_NEW(b->mem, rel_agg);
    agg->kind = kind;
    agg->distinct = n->distinct;
    int status = bind_aggregate_parts(b, n, agg);
    b->at = before;
    if (status)
        return NULL;
    if (aggregates_outer(b, g, agg)) {
        fail_node(
            b, n,
            "%s() refers only to columns of the outer query, so it would belong to that query",
            agg_kind_name(kind));
        err_hint(
            b->e,
            "move %s() to the outer query, or remove it: its argument is constant in the subquery",
            agg_kind_name(kind));
        return NULL;
    }
    if (kind != AGG_GROUP_CONCAT)
        agg->nkeys = 0; /* the order of rows matters only to group_concat() */
    for (int i = 0; i < g->aggs.n; i++)
        if (same_aggregate(g->aggs.items[i], agg)) {
            agg = g->aggs.items[i];
            return expr_column(b->mem, agg->id, agg->type, str_from(agg_kind_name(agg->kind)));
        }
    agg->id = new_id(b);
    id_of(b, agg->id)->is_null =
        (kind == AGG_MIN || kind == AGG_MAX) && is_untyped_null(b, agg->arg);
    if (kind == AGG_MIN || kind == AGG_MAX)
        id_of(b, agg->id)->made_of[0] = agg->arg;
    list_add(b->mem, &g->aggs, agg);
    return expr_column(b->mem, agg->id, agg->type, str_from(agg_kind_name(kind)));
}

expr *unknown_function(binder *b, const node *n) {
    str name = n->name.name;
    fail_ident(b, n->name, "no function \"%.*s\"", (int)name.n, name.p);
    const char *instead = function_instead(name), *meant = function_nearest(name);
    if (instead)
        err_hint(b->e, "instead: %s", instead);
    else if (meant)
        err_hint(b->e, "did you mean %s()?", meant);
    return NULL;
}

const node *named_call(const binder *b, const node *n) {
    for (int i = 0; n->kind == NODE_COLUMN && !n->qualifier.name.n && i < b->at.nshown; i++) {
        const output *o = &b->at.shown[i];
        if (o->value && o->value->kind == NODE_LLM && str_equal_nocase(o->name, n->name.name))
            return o->value;
    }
    return NULL;
}

step *asked_column(binder *b, const node *n) {
    const scope_column *c = n->kind == NODE_COLUMN ? scope_named(b, n) : NULL;
    step *s = c ? id_of(b, c->id)->asked : NULL;
    return s && s->site.out_id == c->id ? s : NULL;
}

/* Binds LLM_PROB(call [, label]) or LLM_MEAN(call). */
static expr *bind_llm_prob(binder *b, const node *n, bool mean) {
    const char *name = mean ? "LLM_MEAN" : "LLM_PROB";
    int most = mean ? 1 : 2;
    if (n->nargs < 1 || n->nargs > most) {
        fail_node(b, n, "%s() takes %s", name, mean ? "one argument" : "one or two arguments");
        return NULL;
    }
    const node *of = n->args[0], *named = named_call(b, of), *call = named ? named : of;
    const node *label = n->nargs == 2 ? n->args[1] : NULL;
    if (call->kind == NODE_LLM && !n->order_by.n)
        return bind_prob(b, call, named ? of : NULL, mean, label);
    step *asked = n->order_by.n ? NULL : asked_column(b, of);
    if (asked)
        return bind_step_prob(b, n, asked, mean, label);
    fail_node(b, n, "the argument of %s() must be an LLM call", name);
    const scope_column *answer = of->kind == NODE_COLUMN ? scope_named(b, of) : NULL;
    if (answer && id_of(b, answer->id)->call)
        err_hint(b->e, "write %s() in the query that calls LLM(), as another column", name);
    else if (of->kind != NODE_COLUMN || !hint_select_alias(b, of))
        err_hint(
            b->e,
            "write %s(LLM(…)), the alias of an LLM call in the same select list, or a column of "
            "LLM() in FROM",
            name);
    return NULL;
}

expr *bind_call(binder *b, const node *n) {
    agg_kind kind;
    function_id id;
    window_kind window;
    str name = n->name.name;
    if (n->over)
        return bind_window_call(b, n);
    if (aggregate_find(name, &kind))
        return bind_aggregate(b, n, kind);
    if (window_find(name, &window)) {
        fail_node(b, n, "%s() needs OVER", window_of(window)->name);
        err_hint(b->e, "%.*s OVER (PARTITION BY … ORDER BY …)", BASE_MIN(n->len, 60),
                 b->text.p + n->pos);
        return NULL;
    }
    if (str_equal_nocase(name, STR("llm_prob")))
        return bind_llm_prob(b, n, false);
    if (str_equal_nocase(name, STR("llm_mean")))
        return bind_llm_prob(b, n, true);
    if (function_find(name, &id))
        return bind_scalar_call(b, n, id);
    return unknown_function(b, n);
}
