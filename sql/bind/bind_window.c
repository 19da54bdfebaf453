/*
 * bind_window.c - window functions: OVER, WINDOW, QUALIFY.
 *
 *   rows or groups -> steps of the windows -> WINDOW … WINDOW -> QUALIFY -> select list
 *
 * The window functions of the select list, QUALIFY and ORDER BY are found and bound before these
 * clauses, which then read each function as a column. Equal functions are computed once. A function
 * whose keys are a prefix of another function's keys shares that function's node and sort.
 * Invariant: a window sees all rows that pass WHERE and HAVING, even if the function occurs inside
 * CASE. So its keys, arguments and filter have only the guard of the query.
 */
#include <math.h>
#include <string.h>

#include "bind_int.h"
#include "words/words_int.h"

typedef struct window_call {
    const node *at;            /* the call in the syntax tree */
    const window_function *is; /* the bound function */
} window_call;

/* ---- frames ---------------------------------------------------------------------------------- */

static const window_frame standard_frame = {
    .unit = FRAME_RANGE, .start.kind = BOUND_UNBOUNDED_PRECEDING, .end.kind = BOUND_CURRENT};

static int fail_bound(binder *b, const bound_spec *s, const char *message) {
    return fail(b, ERR_BIND, s->pos, s->len, "%s", message);
}

/* Binds the offset of a frame: a constant that is not negative and, if `whole`, a whole number. */
static int offset_value(binder *b, const bound_spec *s, bool whole, value *out) {
    expr *x = bind_constant(b, s->offset, "the offset of a frame");
    if (!x)
        return (int)b->e->code;
    if (x->kind != EXPR_LITERAL || expr_is_null(x))
        return fail_bound(b, s, "the offset of a frame must be a constant number");
    *out = x->literal;
    if (whole && out->type == TYPE_REAL)
        return fail_bound(b, s, "the offset of ROWS and GROUPS must be a whole number");
    bool negative = out->type == TYPE_REAL ? out->r < 0 : out->i < 0;
    return negative ? fail_bound(b, s, "the offset of a frame cannot be negative") : 0;
}

/* Converts the offset to the type of the key. For INTEGER keys 1.5 is rounded down if the frame
 * extends from this bound towards the current row, else up. */
static value distance(value v, value_type key, bool inwards) {
    if (key == TYPE_REAL)
        return value_real(v.type == TYPE_REAL ? v.r : (double)v.i);
    if (v.type != TYPE_REAL)
        return value_int(v.i);
    double whole = inwards ? floor(v.r) : ceil(v.r);
    return value_int(whole < 0x1p63 ? (int64_t)whole : INT64_MAX);
}

static int bind_bound(binder *b, const frame_spec *f, const bound_spec *s, const bound_window *over,
                      frame_bound *out) {
    out->kind = s->kind;
    if (!s->offset)
        return 0;
    int norder = over->nkeys - over->npartition, status;
    value_type key = norder == 1 ? over->keys[over->npartition].value->type : TYPE_NULL;
    if (f->unit == FRAME_RANGE && !type_is_number(key)) {
        fail(b, ERR_BIND, s->pos, s->len,
             norder == 1 ? "RANGE with an offset needs a numeric ORDER BY key, not %s"
                         : "RANGE with an offset needs exactly one ORDER BY key",
             type_name(key));
        err_hint(b->e, "use ROWS to count rows, or GROUPS to count groups of rows with equal keys");
        return ERR_BIND;
    }
    if ((status = offset_value(b, s, f->unit != FRAME_RANGE, &out->offset)) != 0)
        return status;
    if (f->unit == FRAME_RANGE)
        out->offset = distance(out->offset, key, (s == &f->start) == (s->kind == BOUND_PRECEDING));
    return 0;
}

static int bind_frame(binder *b, const frame_spec *f, const bound_window *over, window_frame *out) {
    out->unit = f->unit;
    out->exclude = f->exclude;
    if (f->start.kind == BOUND_UNBOUNDED_FOLLOWING)
        return fail_bound(b, &f->start, "a frame cannot start at UNBOUNDED FOLLOWING");
    if (f->end.kind == BOUND_UNBOUNDED_PRECEDING)
        return fail_bound(b, &f->end, "a frame cannot end at UNBOUNDED PRECEDING");
    if (f->start.kind > f->end.kind) {
        fail(b, ERR_BIND, f->pos, f->len, "the frame ends before it starts");
        err_hint(b->e, "write the bounds in the order PRECEDING, CURRENT ROW, FOLLOWING");
        return ERR_BIND;
    }
    int status = bind_bound(b, f, &f->start, over, &out->start);
    return status ? status : bind_bound(b, f, &f->end, over, &out->end);
}

/* ---- windows --------------------------------------------------------------------------------- */

static const window_def *find_window(binder *b, const windowing *w, ident name) {
    for (int i = 0; i < w->defs->n; i++)
        if (str_equal_nocase(((window_def *)w->defs->items[i])->name.name, name.name))
            return w->defs->items[i];
    fail_ident(b, name, "no window \"%.*s\"", (int)name.name.n, name.name.p);
    const char **names = ARENA_ARRAY(b->mem, const char *, w->defs->n + 1);
    for (int i = 0; i < w->defs->n; i++) {
        str s = ((window_def *)w->defs->items[i])->name.name;
        names[i] = arena_strndup(b->mem, s.p, s.n);
    }
    hint_nearest(b, name.name, names, (size_t)w->defs->n);
    if (!w->defs->n)
        err_hint(b->e, "define it before ORDER BY: WINDOW %.*s AS (…)",
                 (int)BASE_MIN(name.name.n, (size_t)60), name.name.p);
    return NULL;
}

int bind_sort_key(binder *b, const node *n, const order_item *item, sort_key *out) {
    expr *x = bind_expr(b, n);
    if (x && is_untyped_null(b, x))
        x = to_type(b, x, TYPE_TEXT, "ORDER BY");
    if (!x)
        return (int)b->e->code;
    *out = (sort_key){x, item && item->descending, item && item->nulls_first};
    return 0;
}

static int add_key(binder *b, bound_window *to, const node *n, const order_item *item) {
    return bind_sort_key(b, n, item, &to->keys[to->nkeys++]);
}

static int bind_keys(binder *b, const window_spec *s, const bound_window *base, bound_window *to) {
    int status = 0;
    to->keys =
        ARENA_ARRAY(b->mem, sort_key, s->partition_by.n + s->order_by.n + (base ? base->nkeys : 0));
    for (int i = 0; base && i < base->nkeys; i++)
        to->keys[to->nkeys++] = base->keys[i];
    for (int i = 0; i < s->partition_by.n && !status; i++)
        status = add_key(b, to, s->partition_by.items[i], NULL);
    to->npartition = base ? base->npartition : to->nkeys;
    for (int i = 0; i < s->order_by.n && !status; i++) {
        const order_item *item = s->order_by.items[i];
        status = add_key(b, to, item->value, item);
    }
    return status;
}

/* Checks that a window based on a named window only adds clauses that the named window lacks. */
static int check_base(binder *b, const window_spec *s, const window_spec *base) {
    int n = (int)s->base.name.n;
    const char *name = s->base.name.p;
    if (s->partition_by.n)
        return fail_ident(b, s->base, "cannot add PARTITION BY to the window \"%.*s\"", n, name);
    if (s->order_by.n && base->order_by.n)
        return fail_ident(b, s->base, "the window \"%.*s\" already has an ORDER BY", n, name);
    if (!base->frame)
        return 0;
    fail_ident(b, s->base, "the window \"%.*s\" already has a frame", n, name);
    err_hint(b->e, "write OVER %.*s without parentheses to use the window unchanged",
             BASE_MIN(n, 60), name);
    return ERR_BIND;
}

/* Binds the keys of a window, once per window. `depth` is the number of window names followed so
 * far, to detect cycles. */
static bound_window *bind_window(binder *b, windowing *w, const window_spec *s, int depth) {
    for (int i = 0; i < w->windows.n; i++)
        if (((bound_window *)w->windows.items[i])->spec == s)
            return w->windows.items[i];
    const window_def *def = NULL;
    bound_window *base = NULL;
    if (s->base.name.n && !(def = find_window(b, w, s->base)))
        return NULL;
    if (def && depth > w->defs->n) {
        fail_ident(b, s->base, "the window \"%.*s\" refers to itself", (int)s->base.name.n,
                   s->base.name.p);
        return NULL;
    }
    if (def && !(base = bind_window(b, w, def->spec, depth + 1)))
        return NULL;
    if (s->is_name)
        return base;
    bound_window *made = ARENA_NEW(b->mem, bound_window);
    made->spec = s;
    if ((def && check_base(b, s, def->spec)) || bind_keys(b, s, base, made))
        return NULL;
    list_add(b->mem, &w->windows, made);
    return made;
}

/* Returns the frame of OVER, or of the window that OVER names. */
static const frame_spec *frame_of(binder *b, const windowing *w, const window_spec *s) {
    if (!s->is_name)
        return s->frame;
    const window_def *def = find_window(b, w, s->base);
    return def ? def->spec->frame : NULL;
}

/* ---- functions ------------------------------------------------------------------------------- */

static bool reads_frame(window_kind k) {
    return k == WINDOW_AGGREGATE || k == WINDOW_FIRST_VALUE || k == WINDOW_LAST_VALUE ||
           k == WINDOW_NTH_VALUE;
}

static int bind_aggregate_over(binder *b, const node *n, rel_window *w) {
    rel_agg agg = {.kind = w->agg};
    if (!aggregate_takes(b, n, w->agg))
        return (int)b->e->code;
    int status = bind_aggregate_parts(b, n, &agg);
    w->agg = agg.kind;
    w->args = ARENA_ARRAY(b->mem, expr *, 1);
    w->args[0] = agg.arg;
    w->nargs = agg.arg != NULL;
    w->separator = agg.separator;
    w->filter = agg.filter;
    w->type = agg.type;
    return status;
}

/* Binds the arguments of lag(x, offset, default), nth_value(x, n), ntile(n) and similar functions.
 * Arguments that are counts are INTEGER. */
static int bind_arguments(binder *b, const node *n, rel_window *w) {
    const function_info *info = window_of(w->kind);
    int count = w->kind == WINDOW_NTILE ? 0 : 1;
    const char *what = arena_printf(b->mem, "%s()", info->name);
    if (n->star || n->nargs < info->min_args || n->nargs > info->max_args) {
        wrong_count(b, n, info);
        return ERR_BIND;
    }
    w->nargs = n->nargs;
    w->args = ARENA_ARRAY(b->mem, expr *, n->nargs);
    for (int i = 0; i < n->nargs; i++) {
        expr *x = bind_expr(b, n->args[i]);
        if (x && i == count)
            x = to_type_implicit(b, x, TYPE_INTEGER, what);
        if (!x)
            return (int)b->e->code;
        w->args[i] = x;
    }
    w->type =
        w->kind == WINDOW_PERCENT_RANK || w->kind == WINDOW_CUME_DIST ? TYPE_REAL : TYPE_INTEGER;
    if (count == 0 || w->nargs == 0)
        return 0;
    expr *both[2] = {w->args[0], w->nargs == 3 ? w->args[2] : w->args[0]};
    if (unify_all(b, both, 2, info->name, &w->type))
        return (int)b->e->code;
    for (int i = 0; i < 2 && w->type == TYPE_NULL; i++)
        both[i] = to_type(b, both[i], TYPE_TEXT, what);
    w->type = both[0]->type;
    w->args[0] = both[0];
    if (w->nargs == 3)
        w->args[2] = both[1];
    return 0;
}

static int bind_parts(binder *b, const node *n, rel_window *w) {
    if (n->distinct)
        return fail(b, ERR_UNSUPPORTED, n->pos, n->len,
                    "DISTINCT is not supported in window functions");
    if (n->order_by.n) {
        fail(b, ERR_UNSUPPORTED, n->pos, n->len,
             "ORDER BY inside the parentheses is not supported with OVER");
        err_hint(b->e, "order the window instead: OVER (ORDER BY …)");
        return ERR_UNSUPPORTED;
    }
    if (w->kind == WINDOW_AGGREGATE)
        return bind_aggregate_over(b, n, w);
    if (n->filter)
        return fail_node(b, n, "FILTER needs an aggregate, which %s() is not",
                         window_of(w->kind)->name);
    return bind_arguments(b, n, w);
}

/* True if x and y have equal values. A volatile expression equals only itself, as the key of a
 * named window that two functions share. */
static bool same_value(const expr *x, const expr *y) {
    return x == y || (x && expr_equal(x, y) && !expr_is_volatile(x));
}

static bool same_keys(const sort_key *a, const sort_key *c, int n, bool directions) {
    for (int i = 0; i < n; i++)
        if (!same_value(a[i].value, c[i].value) ||
            (directions &&
             (a[i].descending != c[i].descending || a[i].nulls_first != c[i].nulls_first)))
            return false;
    return true;
}

static bool same_function(const window_function *f, const window_function *g) {
    const rel_window *a = &f->w, *c = &g->w;
    if (a->kind != c->kind || a->agg != c->agg || a->nargs != c->nargs ||
        a->npartition != c->npartition || a->nkeys != c->nkeys ||
        !window_frame_equal(&a->frame, &c->frame) || !same_value(a->separator, c->separator) ||
        !same_value(a->filter, c->filter) ||
        !same_keys(f->over->keys, g->over->keys, a->nkeys, true))
        return false;
    for (int i = 0; i < a->nargs; i++)
        if (!same_value(a->args[i], c->args[i]))
            return false;
    return true;
}

/* True if the function is NULL in every row, so that its type is still open. */
static bool gives_null(binder *b, const rel_window *w) {
    bool picks = w->kind == WINDOW_AGGREGATE ? w->agg == AGG_MIN || w->agg == AGG_MAX
                                             : w->kind >= WINDOW_LAG;
    return picks && is_untyped_null(b, w->args[0]) &&
           (w->nargs < 3 || is_untyped_null(b, w->args[2]));
}

static window_function *keep_function(binder *b, windowing *w, window_function *f) {
    for (int i = 0; i < w->functions.n; i++)
        if (same_function(w->functions.items[i], f))
            return w->functions.items[i];
    f->w.id = new_id(b);
    id_of(b, f->w.id)->is_null = gives_null(b, &f->w);
    list_add(b->mem, &w->functions, f);
    return f;
}

static int no_window_function(binder *b, const node *n) {
    function_id id;
    if (!function_find(n->name.name, &id)) {
        unknown_function(b, n);
        return ERR_BIND;
    }
    fail_node(b, n, "%s() is not a window function", function_of(id)->name);
    err_hint(b->e, "use OVER with an aggregate or a window function such as rank() or lag()");
    return ERR_BIND;
}

static int bind_function(binder *b, windowing *w, const node *n) {
    window_function *f = ARENA_NEW(b->mem, window_function);
    str name = n->name.name;
    bool aggregate = aggregate_find(name, &f->w.agg);
    if (aggregate)
        f->w.kind = WINDOW_AGGREGATE;
    else if (!window_find(name, &f->w.kind))
        return no_window_function(b, n);
    f->over = bind_window(b, w, n->over, 0);
    if (!f->over)
        return (int)b->e->code;
    f->w.npartition = f->over->npartition;
    f->w.nkeys = f->over->nkeys;
    f->w.frame = standard_frame;
    const frame_spec *given = frame_of(b, w, n->over);
    int status = given ? bind_frame(b, given, f->over, &f->w.frame) : 0;
    if (!status)
        status = bind_parts(b, n, &f->w);
    if (status)
        return status;
    if (!reads_frame(f->w.kind))
        f->w.frame = standard_frame;
    window_call *c = ARENA_NEW(b->mem, window_call);
    *c = (window_call){n, keep_function(b, w, f)};
    list_add(b->mem, &w->calls, c);
    return 0;
}

/* Binds the window functions in n. Does not search the arguments of aggregates and window
 * functions: binding these arguments reports a window function in them as an error. */
static int bind_functions(binder *b, windowing *w, const node *n) {
    agg_kind kind;
    if (n->kind == NODE_CALL && n->over)
        return bind_function(b, w, n);
    if (n->kind == NODE_CALL && aggregate_find(n->name.name, &kind))
        return 0;
    int status = 0;
    for (int i = 0; i < n->nargs && !status; i++)
        status = bind_functions(b, w, n->args[i]);
    return status;
}

static int check_defs(binder *b, const list *defs) {
    for (int i = 0; i < defs->n; i++)
        for (int k = 0; k < i; k++) {
            const window_def *d = defs->items[i], *before = defs->items[k];
            if (str_equal_nocase(before->name.name, d->name.name))
                return fail_ident(b, d->name, "WINDOW defines \"%.*s\" twice", (int)d->name.name.n,
                                  d->name.name.p);
        }
    return 0;
}

int windows_bind(binder *b, query *q, const output *outs, int nouts, windowing *w) {
    int status = check_defs(b, w->defs);
    expr *guard = b->at.guard;
    b->at.lift = &w->below;
    b->at.guard = b->at.inherited;
    b->at.windows = NULL;
    b->at.no_window = "a window function";
    b->at.reevaluated_by = "the window";
    b->at.aliases = outs;
    b->at.naliases = nouts;
    for (int i = 0; i < nouts && !status; i++)
        if (outs[i].value)
            status = bind_functions(b, w, outs[i].value);
    if (!status && q->qualify)
        status = bind_functions(b, w, q->qualify);
    for (int i = 0; i < q->order_by.n && !status; i++)
        status = bind_functions(b, w, ((order_item *)q->order_by.items[i])->value);
    b->at.guard = guard;
    b->at.no_window = b->at.reevaluated_by = NULL;
    b->at.aliases = NULL;
    if (!status)
        lift_register(b, &w->below);
    for (int i = 0; i < w->below.steps.n; i++)
        ((step *)w->below.steps.items[i])->is_above = true;
    return status;
}

int windows_qualify(binder *b, query *q, const output *outs, int nouts, windowing *w,
                    conjunct_list *out) {
    if (!q->qualify)
        return 0;
    if (w->functions.n == 0) {
        fail_node(b, q->qualify, "QUALIFY without a window function");
        err_hint(b->e, "put conditions on rows into WHERE, conditions on groups into HAVING");
        return ERR_BIND;
    }
    b->at.windows = w;
    b->at.reevaluated_by = "QUALIFY";
    b->at.aliases = outs;
    b->at.naliases = nouts;
    out->items = bind_conditions(b, q->qualify, true, &out->n);
    b->at.windows = NULL;
    b->at.reevaluated_by = NULL;
    b->at.aliases = NULL;
    for (int i = 0; out->items && i < out->n; i++)
        for (int k = 0; k < out->items[i].steps.steps.n; k++)
            ((step *)out->items[i].steps.steps.items[k])->is_above = true;
    return out->items ? 0 : (int)b->e->code;
}

/* ---- the nodes ------------------------------------------------------------------------------- */

static int rewrite_function(binder *b, grouping *g, lift *above, rel_window *w) {
    int status = w->filter ? group_rewrite(b, g, above, &w->filter) : 0;
    for (int i = 0; i < w->nargs && !status; i++)
        status = group_rewrite(b, g, above, &w->args[i]);
    return status;
}

static int rewrite_all(binder *b, grouping *g, windowing *w) {
    int status = 0;
    for (int i = 0; i < w->windows.n && !status; i++) {
        bound_window *over = w->windows.items[i];
        for (int k = 0; k < over->nkeys && !status; k++)
            status = group_rewrite(b, g, &w->below, &over->keys[k].value);
    }
    for (int i = 0; i < w->functions.n && !status; i++)
        status = rewrite_function(b, g, &w->below, &((window_function *)w->functions.items[i])->w);
    if (!status)
        group_prune(&w->below);
    return status;
}

static bool has_key(const sort_key *keys, int n, const expr *x) {
    for (int i = 0; i < n; i++)
        if (same_value(keys[i].value, x))
            return true;
    return false;
}

/* True if rows sorted for `by` have the partitions of f adjacent and ordered as f needs. */
static bool sort_serves(const bound_window *by, const window_function *f) {
    int n = f->w.npartition, order = f->w.nkeys - n;
    if (f->w.nkeys > by->nkeys)
        return false;
    for (int i = 0; i < n; i++)
        if (!has_key(by->keys, n, f->over->keys[i].value) ||
            !has_key(f->over->keys, n, by->keys[i].value))
            return false;
    return same_keys(by->keys + n, f->over->keys + n, order, true);
}

/* Adds a WINDOW node for the unplaced function with the most keys and for all other functions that
 * its sort serves (sort_serves). Then recurses for the remaining functions. */
static rel *place_node(binder *b, windowing *w, bool *placed, rel *r) {
    int longest = -1, n = 0;
    rel_window *functions = ARENA_ARRAY(b->mem, rel_window, w->functions.n);
    for (int i = 0; i < w->functions.n; i++) {
        const window_function *f = w->functions.items[i];
        if (!placed[i] &&
            (longest < 0 || f->w.nkeys > ((window_function *)w->functions.items[longest])->w.nkeys))
            longest = i;
    }
    if (longest < 0)
        return r;
    const bound_window *by = ((window_function *)w->functions.items[longest])->over;
    for (int i = 0; i < w->functions.n; i++) {
        const window_function *f = w->functions.items[i];
        if (placed[i] || (f->over != by && !sort_serves(by, f)))
            continue;
        placed[i] = true;
        functions[n++] = f->w;
    }
    r = rel_windows(b->mem, r, by->keys, by->nkeys, functions, n);
    return place_node(b, w, placed, r);
}

int windows_place(binder *b, windowing *w, grouping *g, conjunct_list *qualify, rel **r) {
    if (w->functions.n == 0)
        return 0;
    int status = g ? rewrite_all(b, g, w) : 0;
    if (status)
        return status;
    *r = lift_place(b, &w->below, *r);
    *r = place_node(b, w, ARENA_ARRAY(b->mem, bool, w->functions.n), *r);
    return group_filter(b, g, qualify, r);
}

/* ---- calls ----------------------------------------------------------------------------------- */

expr *bind_window_call(binder *b, const node *n) {
    for (int i = 0; b->at.windows && i < b->at.windows->calls.n; i++) {
        const window_call *c = b->at.windows->calls.items[i];
        if (c->at == n)
            return expr_column(b->mem, c->is->w.id, c->is->w.type, STR("window"));
    }
    const char *where = b->at.no_window      ? b->at.no_window
                        : b->at.refuse       ? b->at.refuse
                        : b->at.no_aggregate ? b->at.no_aggregate
                                             : "this place";
    fail_node(b, n, "a window function is not allowed in %s", where);
    if (strcmp(where, "WHERE") == 0 || strcmp(where, "HAVING") == 0)
        err_hint(b->e, "filter by window functions in QUALIFY, after WHERE, GROUP BY and HAVING");
    else
        err_hint(b->e, "use window functions in the select list, QUALIFY or ORDER BY");
    return NULL;
}
