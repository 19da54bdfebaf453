/*
 * plan.c - plan_build: runs the rules, then turns relations into plan nodes. Column ids become
 * slots, and joins get an algorithm.
 *
 * Invariant: a node returns its relation's columns in the relation's order. So the slot of a column
 * id is its position in the input relation's `cols`. This file never changes relations.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/pipeline_int.h"
#include "plan_int.h"

/* A join's left input, which pipelines in the join's right input may use as partner
 * (plan_demand). */
typedef struct built_left {
    const rel *rel;
    const plan_node *node;   /* built from `rel` */
    struct built_left *next; /* the left input of the next join further out */
} built_left;

typedef struct builder {
    arena *mem;
    rule_ctx *rules;
    plan_node **shared;     /* by number of a shared relation: its input; NULL: not built yet */
    built_left *lefts;      /* for the joins whose right input is being built, innermost first */
    const key_order *order; /* if the sort being built is replaced by a scan: the scan's order */
    column_names *names;
    bool has_llm; /* a pipeline has been built */
    err *e;
} builder;

/* The columns that an expression may read: those of one input, or the left input's columns followed
 * by the right input's. */
typedef struct scope {
    const rel *left, *right;
} scope;

static int slot_in(const rel *r, int id) {
    for (int i = 0; r && i < r->ncols; i++)
        if (r->cols[i].id == id)
            return i;
    return -1;
}

static int scope_slot(const scope *s, int id) {
    int slot = slot_in(s->left, id);
    if (slot >= 0)
        return slot;
    slot = slot_in(s->right, id);
    return slot < 0 ? -1 : slot + (s->left ? s->left->ncols : 0);
}

/* Returns a copy of x in which columns have their slots and printed names. Returns NULL if x is
 * NULL. */
static expr *resolve(builder *b, const expr *x, const scope *s) {
    if (!x)
        return NULL;
    expr *copy = ARENA_NEW(b->mem, expr);
    *copy = *x;
    if (x->kind == EXPR_COLUMN) {
        copy->column.slot = scope_slot(s, x->column.id);
        copy->column.name = names_of(b->names, x->column.id, x->column.name);
        if (copy->column.slot < 0 && b->e->code == ERR_NONE)
            err_set(b->e, ERR_INTERNAL, "column \"%.*s\" (#%d) is not in reach",
                    (int)x->column.name.n, x->column.name.p, x->column.id);
        return copy;
    }
    copy->args = ARENA_ARRAY(b->mem, expr *, x->nargs + 1);
    for (int i = 0; i < x->nargs; i++)
        copy->args[i] = resolve(b, x->args[i], s);
    return copy;
}

static expr **resolve_list(builder *b, expr *const *list, int n, const scope *in) {
    expr **out = ARENA_ARRAY(b->mem, expr *, n + 1);
    for (int i = 0; i < n; i++)
        out[i] = resolve(b, list[i], in);
    return out;
}

static expr **resolve_values(builder *b, const rel_expr *list, int n, const scope *in) {
    expr **out = ARENA_ARRAY(b->mem, expr *, n + 1);
    for (int i = 0; i < n; i++)
        out[i] = resolve(b, list[i].value, in);
    return out;
}

static sort_key *resolve_keys(builder *b, const sort_key *keys, int n, const scope *in) {
    sort_key *out = ARENA_ARRAY(b->mem, sort_key, n + 1);
    for (int i = 0; i < n; i++) {
        out[i] = keys[i];
        out[i].value = resolve(b, keys[i].value, in);
    }
    return out;
}

static plan_node *build(builder *b, const rel *r);

static plan_node *node_new(builder *b, plan_kind kind, const rel *r) {
    plan_node *n = ARENA_NEW(b->mem, plan_node);
    n->kind = kind;
    n->number = -1;
    n->ncols = r->ncols;
    n->types = ARENA_ARRAY(b->mem, value_type, r->ncols + 1);
    n->names = ARENA_ARRAY(b->mem, str, r->ncols + 1);
    for (int i = 0; i < r->ncols; i++) {
        n->types[i] = r->cols[i].type;
        n->names[i] = r->cols[i].name;
    }
    return n;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static plan_node *build_values(builder *b, const rel *r) {
    plan_node *n = node_new(b, PLAN_VALUES, r);
    scope none = {0};
    n->values.nrows = r->values.nrows;
    n->values.rows = ARENA_ARRAY(b->mem, expr **, r->values.nrows + 1);
    for (int i = 0; i < r->values.nrows; i++)
        n->values.rows[i] = resolve_list(b, r->values.rows[i], r->ncols, &none);
    return n;
}

/* Whether this scan must return its rows in the order of a sort above. */
static bool is_ordered(const builder *b, const rel *scan) {
    return b->order && b->order->scan == scan;
}

/* Makes a scan return its rows in the order b->order. Other scans return them in the order of
 * rowids. */
static void read_in_order(builder *b, const rel *scan, plan_node *n, const conjuncts *all,
                          conjuncts *rest) {
    const key_order *o = b->order;
    n->scan.ordered = o->index || o->descending;
    n->scan.descending = o->descending;
    n->scan.nulls = o->nulls;
    n->scan.first = o->first;
    if (n->scan.ordered)
        access_choose_along(b->rules, scan, all, o->index, n, rest);
    else
        access_choose(b->rules, scan, all, n, rest);
}

static plan_node *build_leaf(builder *b, const rel *r) {
    plan_node *n;
    if (r->kind == REL_SCAN) {
        conjuncts none = {0};
        n = node_new(b, PLAN_SCAN, r);
        n->scan.table = r->scan.table;
        n->scan.alias = r->scan.alias;
        n->scan.columns = r->scan.columns;
        if (is_ordered(b, r))
            read_in_order(b, r, n, &none, &none);
    } else if (r->kind == REL_FILE) {
        n = node_new(b, PLAN_FILE, r);
        n->file.path = r->file.path;
        n->file.options = r->file.options;
        n->file.types = r->file.types;
        n->file.nfile_columns = r->file.nfile_columns;
        n->file.columns = r->file.columns;
    } else if (r->kind == REL_SERIES) {
        n = node_new(b, PLAN_SERIES, r);
        n->series = r->series;
    } else {
        n = node_new(b, PLAN_SYSTEM, r);
        n->system.name = r->system.name;
        n->system.columns = ARENA_ARRAY(b->mem, int, r->ncols + 1);
        for (int i = 0; i < r->ncols; i++)
            n->system.columns[i] = i;
    }
    return n;
}

/* ---- joins ----------------------------------------------------------------------------------- */

/* Whether x can be a key of a hash join: a = b or a IS b, with one side from each input. */
static bool is_key(const expr *x, const id_set *left, const id_set *right, expr **lk, expr **rk) {
    if (x->kind != EXPR_OP || (x->op != OP_EQ && x->op != OP_IS) || expr_is_volatile(x))
        return false;
    for (int i = 0; i < 2; i++) {
        *lk = x->args[i];
        *rk = x->args[1 - i];
        if (expr_only_in(*lk, left) && expr_only_in(*rk, right) && !expr_is_constant(*lk) &&
            !expr_is_constant(*rk))
            return true;
    }
    return false;
}

static expr *cast_to(builder *b, expr *x, value_type type) {
    if (x->type == type)
        return x;
    expr *cast = ARENA_NEW(b->mem, expr);
    *cast = (expr){.kind = EXPR_CAST, .type = type, .pos = -1, .nargs = 1};
    cast->args = ARENA_ARRAY(b->mem, expr *, 1);
    cast->args[0] = x;
    return cast;
}

/* Casts two keys to a common type, which hashing requires. Returns false if they have none. Sets
 * *exact if equal keys imply equal values. An INTEGER cast to REAL may be rounded, so the
 * comparison itself must then be kept. */
static bool same_type(builder *b, expr **lk, expr **rk, bool *exact) {
    value_type l = (*lk)->type, r = (*rk)->type;
    *exact = true;
    if (l == r)
        return true;
    if (!type_is_number(l) || !type_is_number(r))
        return false;
    value_type common = l == TYPE_REAL || r == TYPE_REAL ? TYPE_REAL : TYPE_INTEGER;
    *exact = common == TYPE_INTEGER || l == TYPE_BOOLEAN || r == TYPE_BOOLEAN;
    *lk = cast_to(b, *lk, common);
    *rk = cast_to(b, *rk, common);
    return true;
}

/* Makes equalities the join's keys, and all other conditions its predicate. All keys of a join
 * compare by = or all compare by IS. If both occur, the keys are those that compare by IS:
 * unnesting joins outer columns by IS, and the = of an IN must stay in the predicate, where NULL
 * differs from FALSE. */
static void split_keys(builder *b, plan_node *n, const rel *r) {
    conjuncts all = {0}, rest = {0};
    expr *lk, *rk;
    scope left = {r->left, NULL}, right = {r->right, NULL}, both = {r->left, r->right};
    id_set left_ids = id_set_columns(b->mem, r->left), right_ids = id_set_columns(b->mem, r->right);
    conjuncts_split(b->rules, &all, r->join.predicate);
    n->join.left_keys = ARENA_ARRAY(b->mem, expr *, all.n + 1);
    n->join.right_keys = ARENA_ARRAY(b->mem, expr *, all.n + 1);
    for (int i = 0; i < all.n; i++)
        if (all.list[i]->kind == EXPR_OP && all.list[i]->op == OP_IS &&
            is_key(all.list[i], &left_ids, &right_ids, &lk, &rk))
            n->join.null_safe = true;
    for (int i = 0; i < all.n; i++) {
        expr *part = all.list[i];
        bool exact = false;
        bool key = is_key(part, &left_ids, &right_ids, &lk, &rk) &&
                   (part->op == OP_IS) == n->join.null_safe && same_type(b, &lk, &rk, &exact);
        if (key) {
            n->join.left_keys[n->join.nkeys] = resolve(b, lk, &left);
            n->join.right_keys[n->join.nkeys++] = resolve(b, rk, &right);
        }
        if (!key || !exact)
            conjuncts_add(b->rules, &rest, part);
    }
    n->join.predicate = resolve(b, conjuncts_join(b->rules, &rest), &both);
}

/* Casts a range's expressions to a common type. Returns false if they have none. An INTEGER cast to
 * REAL may be rounded to the bound, so the range then includes its bounds, and the predicate
 * decides. */
static bool same_range_type(builder *b, plan_range *g) {
    expr **parts[] = {&g->right, &g->low, &g->high};
    value_type common = g->right->type;
    for (int i = 1; i < 3; i++) {
        const expr *x = *parts[i];
        if (!x || x->type == common)
            continue;
        if (!type_is_number(x->type) || !type_is_number(common))
            return false;
        common = x->type == TYPE_REAL || common == TYPE_REAL ? TYPE_REAL : TYPE_INTEGER;
    }
    for (int i = 0; i < 3; i++)
        if (*parts[i] && (*parts[i])->type != common) {
            *parts[i] = cast_to(b, *parts[i], common);
            g->low_inclusive = g->high_inclusive = true;
            g->exact = false;
        }
    return true;
}

/* Replaces column ids in a range's expressions by slots. Returns false if the expressions have no
 * common type. */
static bool resolve_range(builder *b, plan_range *g, const rel *join) {
    scope left = {join->left, NULL}, right = {join->right, NULL};
    g->right = resolve(b, g->right, &right);
    g->low = resolve(b, g->low, &left);
    g->high = resolve(b, g->high, &left);
    g->same_left = resolve_list(b, g->same_left, g->nsame, &left);
    g->same_right = resolve_list(b, g->same_right, g->nsame, &right);
    return same_range_type(b, g);
}

static void set_ranges(builder *b, plan_node *n, const rel *r) {
    int count = range_join_choose(b->rules, r, &n->join.ranges);
    for (int i = 0; i < count; i++)
        if (!resolve_range(b, &n->join.ranges[i], r))
            return;
    n->join.nranges = count;
}

/* If each left row needs only its first pairs, and these are one end of a range: makes n a range
 * join, which makes no other pairs, even if the join has equal keys. Otherwise returns false. */
static bool set_first_range(builder *b, plan_node *n, const rel *r) {
    scope both = {r->left, r->right};
    plan_range *g = ARENA_NEW(b->mem, plan_range);
    if (r->join.first <= 0 || !range_join_first(b->rules, r, g) || !resolve_range(b, g, r) ||
        !g->exact)
        return false;
    g->first = r->join.first;
    g->downward = r->join.first_descending;
    n->join.predicate = resolve(b, r->join.predicate, &both);
    n->join.ranges = g;
    n->join.nranges = 1;
    return true;
}

/* Multiplies the estimates of n, and of the nodes below it on the left, by `share`. */
static void scale_estimates(plan_node *n, double share) {
    for (; n; n = n->left) {
        n->estimate.rows *= share;
        n->estimate.cost_ms *= share;
    }
}

/* Turns a hash join into an index join. Bounds that the scan already has become filter conditions
 * again. */
static void read_by_keys(builder *b, plan_node *n, const key_scan *k) {
    plan_node *scan = k->node;
    scope in = {k->top->kind == REL_SCAN ? k->top : k->top->left, NULL};
    expr **keys = k->side == KEYED_LEFT ? n->join.right_keys : n->join.left_keys;
    scan->scan.filter = k->top->kind == REL_SCAN ? NULL : resolve(b, k->top->filter.predicate, &in);
    scan->scan.keyed = scan->scan.low_inclusive = scan->scan.high_inclusive = true;
    scan->scan.nin = 0;
    scan->scan.index = k->index;
    scan->scan.nlow = scan->scan.nhigh = k->nkeys;
    scan->scan.low = scan->scan.high = n->join.lookup = ARENA_ARRAY(b->mem, expr *, k->nkeys);
    for (int i = 0; i < k->nkeys; i++)
        n->join.lookup[i] = keys[k->keys[i]];
    n->join.keyed = k->side;
    n->join.key_scan = scan;
    double all = estimate_rel(b->rules->estimates, in.left)->rows;
    scale_estimates(k->side == KEYED_LEFT ? n->left : n->right,
                    all > 0 ? BASE_MIN(1, k->found / all) : 1);
}

static plan_node *build_join(builder *b, const rel *r) {
    id_set outer = id_set_columns(b->mem, r->left);
    if (r->kind == REL_APPLY && reads_any_of(b->rules, r->right, &outer)) {
        err_set(b->e, ERR_UNSUPPORTED,
                "this subquery reads columns of the outer query, and rule.unnest is off");
        err_hint(b->e, "SET rule.unnest = on");
    }
    plan_node *left = build(b, r->left);
    built_left of_left = {r->left, left, b->lefts};
    b->lefts = &of_left;
    plan_node *right = build(b, r->right);
    b->lefts = of_left.next;
    plan_node *n = node_new(b, PLAN_LOOP_JOIN, r);
    n->left = left;
    n->right = right;
    n->join.kind = r->join.kind;
    n->join.mark_null = r->join.mark_null;
    if (set_first_range(b, n, r))
        return n;
    split_keys(b, n, r);
    if (n->join.nkeys == 0) {
        set_ranges(b, n, r);
        return n;
    }
    n->kind = PLAN_HASH_JOIN;
    key_scan k = index_join_choose(b->rules, r, n);
    if (k.side != KEYED_NONE)
        read_by_keys(b, n, &k);
    return n;
}

/* ---- one input ------------------------------------------------------------------------------- */

static plan_node *build_unary(builder *b, plan_kind kind, const rel *r) {
    plan_node *left = build(b, r->left);
    plan_node *n = node_new(b, kind, r);
    n->left = left;
    return n;
}

static plan_node *build_split(builder *b, const rel *r) {
    plan_node *n = build_unary(b, PLAN_SPLIT, r);
    scope in = {r->left, NULL};
    n->split.spec = r->split.spec;
    n->split.text = resolve(b, r->split.text, &in);
    n->split.separator = r->split.separator ? resolve(b, r->split.separator, &in) : NULL;
    return n;
}

static plan_node *build_project(builder *b, const rel *r) {
    plan_node *n = build_unary(b, PLAN_PROJECT, r);
    scope in = {r->left, NULL};
    n->project.exprs = resolve_values(b, r->project.exprs, r->ncols, &in);
    return n;
}

/* Builds the plan of a sort whose input is scanned in the sort's order: only the input, and a limit
 * above it if the sort keeps only the first rows. */
static plan_node *build_ordered(builder *b, const rel *sort, const key_order *o) {
    const key_order *outer = b->order;
    b->order = o;
    plan_node *left = build(b, sort->left);
    b->order = outer;
    scale_estimates(left, o->share);
    if (o->first <= 0)
        return left;
    plan_node *n = node_new(b, PLAN_LIMIT, sort);
    n->left = left;
    n->limit.limit = o->first;
    n->estimate = left->estimate;
    n->estimate.rows = BASE_MIN(left->estimate.rows, (double)o->first);
    n->estimate.cost_ms = 0;
    return n;
}

static plan_node *build_group(builder *b, const rel *r) {
    rel *extreme = key_order_extreme(b->rules, r);
    key_order o;
    bool first = extreme && key_order_choose(b->rules, extreme, &o);
    plan_node *left = first ? build_ordered(b, extreme, &o) : build(b, r->left);
    plan_node *n = node_new(b, PLAN_GROUP, r);
    n->left = left;
    scope in = {r->left, NULL};
    n->group.nkeys = r->group.nkeys;
    n->group.naggs = r->group.naggs;
    n->group.keys = resolve_values(b, r->group.keys, r->group.nkeys, &in);
    n->group.aggs = ARENA_ARRAY(b->mem, plan_agg, r->group.naggs + 1);
    for (int i = 0; i < r->group.naggs; i++) {
        const rel_agg *a = &r->group.aggs[i];
        n->group.aggs[i] = (plan_agg){.kind = a->kind,
                                      .distinct = a->distinct,
                                      .arg = resolve(b, a->arg, &in),
                                      .separator = resolve(b, a->separator, &in),
                                      .filter = resolve(b, a->filter, &in),
                                      .nkeys = a->nkeys,
                                      .keys = resolve_keys(b, a->keys, a->nkeys, &in),
                                      .type = a->type};
    }
    return n;
}

static int *slots_of(builder *b, const rel *in, const int *ids, int count) {
    scope s = {in, NULL};
    int *slots = ARENA_ARRAY(b->mem, int, count + 1);
    for (int i = 0; i < count; i++) {
        slots[i] = scope_slot(&s, ids[i]);
        assert(slots[i] >= 0);
    }
    return slots;
}

static bool is_near_key(const expr *x) {
    if (x->kind != EXPR_FUNC ||
        (x->function != FUNC_L2_DISTANCE && x->function != FUNC_COSINE_DISTANCE &&
         x->function != FUNC_NEGATIVE_INNER_PRODUCT))
        return false;
    bool columns = true;
    for (int i = 0; i < 2; i++)
        columns = columns && (x->args[i]->kind == EXPR_COLUMN || expr_is_constant(x->args[i]));
    return columns && !expr_is_constant(x);
}

static bool is_left_column(const plan_node *join, const expr *x) {
    return x->kind == EXPR_COLUMN && x->column.slot < join->left->ncols;
}

/* Whether all partition columns of a sort are columns of the left input of `join`, below projections. */
static bool is_per_left_row(const plan_node *sort, const plan_node *join) {
    for (int i = 0; i < sort->sort.npartition; i++) {
        int slot = sort->sort.partition[i];
        for (const plan_node *p = sort->left; p != join; p = p->left) {
            const expr *x = p->project.exprs[slot];
            if (x->kind != EXPR_COLUMN)
                return false;
            slot = x->column.slot;
        }
        if (slot >= join->left->ncols)
            return false;
    }
    return true;
}

/* If a sort keeps the first rows of each left row of a join without conditions by the distance `key`,
 * the join need only find these. */
static void find_nearest_of_each(const plan_node *sort, plan_node *join, expr *key) {
    enum { LIMIT_MAX = 1000 }; /* of each row of a batch: its distances are kept */
    double k = (double)sort->sort.limit, pairs = join->estimate.rows;
    if (sort->sort.limit > LIMIT_MAX || join->kind != PLAN_LOOP_JOIN ||
        join->join.kind != JOIN_CROSS || join->join.nranges || sort->sort.nkeys > 1 ||
        expr_is_constant(key->args[0]) || expr_is_constant(key->args[1]) ||
        is_left_column(join, key->args[0]) == is_left_column(join, key->args[1]) ||
        !is_per_left_row(sort, join))
        return;
    join->join.nearest = sort->sort.limit;
    join->join.distance = key;
    for (plan_node *p = sort->left; p != join->left; p = p->left)
        p->estimate.rows = BASE_MIN(pairs, join->left->estimate.rows * k);
}

/* Returns the ivfflat index of a scanned column, or NULL. */
static const index_def *lists_of_column(const plan_node *scan, int slot) {
    const table_def *t = scan->scan.table;
    for (int i = 0; i < t->nindexes; i++)
        if (t->indexes[i].lists && t->indexes[i].columns[0] == scan->scan.columns[slot])
            return &t->indexes[i];
    return NULL;
}

/* Finds the table and the column of a distance. Below a join that adds the one row with the other vector
 * is the table, too. NULL: the distance is not of one table's column and a vector. */
static plan_node *scan_of_distance(plan_node *in, const expr *key, int *slot) {
    bool single = in->kind == PLAN_LOOP_JOIN && in->join.kind == JOIN_SINGLE && !in->join.predicate;
    plan_node *scan = single ? in->left : in;
    if (scan->kind != PLAN_SCAN)
        return NULL;
    for (int i = 0; i < 2; i++) {
        const expr *x = key->args[i], *y = key->args[1 - i];
        bool vector = expr_is_constant(y) ||
                      (single && y->kind == EXPR_COLUMN && y->column.slot >= scan->ncols);
        *slot = x->kind == EXPR_COLUMN ? x->column.slot : -1;
        if (*slot >= 0 && *slot < scan->ncols && vector)
            return scan;
    }
    return NULL;
}

/* Returns why the first rows by a distance are not found by an index; NULL: they are. */
static const char *why_exact(const builder *b, const plan_node *scan, const index_def *index,
                             function_id distance, int64_t limit) {
    enum { ROWS_LEAST = 10000, LIMIT_MAX = 1000 };
    bool cosine = index->lists->metric == VECTOR_COSINE;
    if (!choice_is_on(b->rules, CHOICE_LISTS))
        return "rule.lists is off";
    if (distance != (cosine ? FUNC_COSINE_DISTANCE : FUNC_L2_DISTANCE))
        return cosine ? "the index is for <=>" : "the index is for <->";
    if (scan->scan.filter || scan->scan.nlow || scan->scan.nhigh || scan->scan.nin)
        return "there are conditions";
    if (limit > LIMIT_MAX)
        return "over 1,000 rows";
    return scan->estimate.rows < ROWS_LEAST ? "under 10,000 rows" : NULL;
}

/* Makes of a PLAN_NEAREST a PLAN_LISTS if there is an index for it. */
static void use_lists(builder *b, plan_node *n) {
    int slot;
    plan_node *in = n->left, *scan = scan_of_distance(in, n->nearest.distance, &slot);
    const index_def *index = scan ? lists_of_column(scan, slot) : NULL;
    if (!index)
        return;
    n->nearest.exact = why_exact(b, scan, index, n->nearest.distance->function, n->nearest.limit);
    if (n->nearest.exact)
        return;
    n->kind = PLAN_LISTS;
    n->nearest.index = index;
    n->left = scan;
    n->right = in == scan ? NULL : in->right;
    n->estimate.rows = BASE_MIN(n->estimate.rows, (double)n->nearest.limit);
}

/* If a sort keeps the first rows by a vector distance, puts a PLAN_NEAREST below it and below the
 * projections that compute the distance. */
static void find_nearest(builder *b, plan_node *sort) {
    enum { LIMIT_MAX = 100000 }; /* its distances are kept on the heap */
    const sort_key *by = sort->sort.keys;
    if (!choice_is_on(b->rules, CHOICE_NEAREST) || sort->sort.limit < 1 ||
        sort->sort.limit > LIMIT_MAX || by->descending || by->nulls_first)
        return;
    plan_node **at = &sort->left;
    expr *key = by->value;
    for (; (*at)->kind == PLAN_PROJECT && key->kind == EXPR_COLUMN; at = &(*at)->left)
        key = (*at)->project.exprs[key->column.slot];
    if (!is_near_key(key))
        return;
    if (sort->sort.npartition)
        find_nearest_of_each(sort, *at, key);
    if (sort->sort.npartition || plan_asks_rows(*at))
        return;
    plan_node *n = ARENA_NEW(b->mem, plan_node), *in = *at;
    double k = (double)sort->sort.limit, rows = in->estimate.rows;
    *n = (plan_node){.kind = PLAN_NEAREST,
                     .number = -1,
                     .ncols = in->ncols,
                     .types = in->types,
                     .names = in->names,
                     .left = in,
                     .estimate = {.guess = in->estimate.guess, .rows = rows}};
    n->nearest.limit = sort->sort.limit;
    n->nearest.distance = key;
    if (rows > k) /* in random order, row i is among the first k so far with probability k / i */
        n->estimate.rows = BASE_MIN(rows, k * (1 + log(rows / k)));
    use_lists(b, n);
    for (plan_node *p = sort->left; p != in; p = p->left)
        p->estimate.rows = n->estimate.rows;
    *at = n;
}

static plan_node *build_sort(builder *b, const rel *r) {
    key_order o;
    if (key_order_choose(b->rules, r, &o))
        return build_ordered(b, r, &o);
    plan_node *n = build_unary(b, PLAN_SORT, r);
    scope in = {r->left, NULL};
    n->sort.limit = r->sort.first > 0 ? r->sort.first : -1;
    n->sort.nkeys = r->sort.nkeys;
    n->sort.keys = resolve_keys(b, r->sort.keys, r->sort.nkeys, &in);
    n->sort.npartition = r->sort.npartition;
    n->sort.partition = slots_of(b, r->left, r->sort.partition, r->sort.npartition);
    find_nearest(b, n);
    return n;
}

/* Drops the limit that build_ordered made if only projections are between it and `limit`. */
static void drop_inner_limit(plan_node *limit, const rel *r) {
    plan_node **at = &limit->left;
    const rel *x = r->left;
    for (; x->kind == REL_PROJECT; x = x->left)
        at = &(*at)->left;
    if (x->kind == REL_SORT && (*at)->kind == PLAN_LIMIT)
        *at = (*at)->left;
}

static plan_node *build_limit(builder *b, const rel *r) {
    plan_node *n = build_unary(b, PLAN_LIMIT, r);
    n->limit.limit = r->limit.limit;
    n->limit.offset = r->limit.offset;
    n->limit.npartition = r->limit.npartition;
    n->limit.partition = slots_of(b, r->left, r->limit.partition, r->limit.npartition);
    drop_inner_limit(n, r);
    return n;
}

/* ---- LLM pipelines --------------------------------------------------------------------------- */

/* Sets d->semi_join if the partner is the left input of a join that is being built. */
static void build_semi_join(builder *b, const semi_join_demand *from, const scope *in,
                            plan_demand *d) {
    const built_left *left = b->lefts;
    while (left && left->rel != from->partner)
        left = left->next;
    if (!from->partner || !left)
        return;
    scope partner = {left->rel, NULL};
    d->semi_join.partner = left->node;
    d->semi_join.nulls_match = from->nulls_match;
    d->semi_join.mark_null = from->mark_null;
    d->semi_join.keys = ARENA_ARRAY(b->mem, expr *, from->keys.n + 1);
    d->semi_join.partner_keys = ARENA_ARRAY(b->mem, expr *, from->keys.n + 1);
    for (int i = 0; i < from->keys.n; i++) {
        expr *lk = from->partner_keys.list[i], *rk = from->keys.list[i];
        /* not used: keys that are equal only after rounding make the model be asked about rows that
         * the join above then drops */
        bool exact;
        if (!same_type(b, &lk, &rk, &exact))
            continue;
        d->semi_join.partner_keys[d->semi_join.nkeys] = resolve(b, lk, &partner);
        d->semi_join.keys[d->semi_join.nkeys++] = resolve(b, rk, in);
    }
}

static void build_demand(builder *b, const row_demand *from, const rel *base, const rel *top_llm,
                         plan_demand *d) {
    scope in = {base, NULL};
    const top_n_demand *top = &from->top_n;
    d->limit_hint = from->limit_hint;
    d->top_n.n = top->n;
    d->top_n.nkeys = top->keys.n;
    d->top_n.keys = resolve_list(b, top->keys.list, top->keys.n, &in);
    d->top_n.norder = top->norder;
    d->top_n.order = resolve_keys(b, top->order, top->norder, &in);
    d->top_n.with_ties = top->with_ties;
    d->top_n.groups =
        estimate_combinations(b->rules->estimates, top_llm->left, top->keys.list, top->keys.n);
    build_semi_join(b, &from->semi_join, &in, d);
}

static void build_site(builder *b, const llm_site *u, const rel *llm, plan_call_site *site) {
    scope in = {llm->left, NULL};
    site->call = u->call;
    site->guard = resolve(b, u->guard, &in);
    site->args = resolve_list(b, u->args, u->call->nfields, &in);
    site->late = ARENA_ARRAY(b->mem, bool, u->call->nfields + 1);
    site->reads = ARENA_ARRAY(b->mem, plan_read, u->call->nfields + 1);
    site->out_slot = slot_in(llm, u->out_id);
    site->nprobs = u->nprobs;
    site->probs = ARENA_ARRAY(b->mem, plan_prob, u->nprobs + 1);
    for (int i = 0; i < u->nprobs; i++)
        site->probs[i] = (plan_prob){u->probs[i].literal, slot_in(llm, u->probs[i].id)};
    site->field_order = ARENA_ARRAY(b->mem, uint8_t, u->call->nfields + 1);
    for (int f = 0; f < u->call->nfields; f++)
        site->field_order[f] = (uint8_t)f;
}

static void build_stage(builder *b, const chain_stage *from, plan_stage *t) {
    names_add(b->names, from->llm, NULL);
    t->ncols = from->llm->ncols;
    t->nsites = from->llm->llm.nsites;
    t->sites = ARENA_ARRAY(b->mem, plan_call_site, t->nsites + 1);
    for (int i = 0; i < t->nsites; i++)
        build_site(b, &from->llm->llm.sites[i], from->llm, &t->sites[i]);
    t->nfilters = from->nfilters;
    t->filters = ARENA_ARRAY(b->mem, expr *, t->nfilters + 1);
    t->filter_estimates = ARENA_ARRAY(b->mem, plan_estimate, t->nfilters + 1);
    t->filter_numbers = ARENA_ARRAY(b->mem, int, t->nfilters + 1);
    for (int i = 0; i < t->nfilters; i++) {
        scope in = {from->filters[i]->left, NULL};
        t->filters[i] = resolve(b, from->filters[i]->filter.predicate, &in);
    }
}

static plan_node *build_pipeline(builder *b, const rel *r) {
    const llm_pipeline *details = r->pipeline.details;
    const chain_stage *from = pipeline_stages(b->mem, r);
    const rel *base = pipeline_base(r);
    plan_node *left = build(b, base);
    plan_node *n = node_new(b, PLAN_LLM_PIPELINE, r);
    n->left = left;
    b->has_llm = true;
    n->pipeline.nstages = details->nstages;
    n->pipeline.stages = ARENA_ARRAY(b->mem, plan_stage, details->nstages);
    for (int i = 0; i < details->nstages; i++)
        build_stage(b, &from[i], &n->pipeline.stages[i]);
    build_demand(b, &details->demand, base, from[details->nstages - 1].llm, &n->pipeline.demand);
    n->pipeline.may_reorder = details->may_reorder;
    plan_order_stages(n);
    plan_find_reads(n, b->rules->stmt->ncalls, b->mem);
    return n;
}

/* Builds a reference to a shared relation. All references have the same node as input. */
static plan_node *build_shared(builder *b, const rel *r) {
    int number = r->shared.number;
    plan_node *n = node_new(b, PLAN_SHARED, r);
    n->shared.number = number;
    if (!b->shared[number])
        b->shared[number] = build(b, r->left);
    n->left = b->shared[number];
    return n;
}

static plan_node *build_window(builder *b, const rel *r) {
    plan_node *n = build_unary(b, PLAN_WINDOW, r);
    scope in = {r->left, NULL};
    n->window.nkeys = r->window.nkeys;
    n->window.keys = resolve_keys(b, r->window.keys, r->window.nkeys, &in);
    n->window.limit = r->window.first > 0 ? r->window.first : -1;
    n->window.with_ties = r->window.with_ties;
    n->window.nfunctions = r->window.nfunctions;
    n->window.functions = ARENA_ARRAY(b->mem, rel_window, r->window.nfunctions + 1);
    for (int i = 0; i < r->window.nfunctions; i++) {
        rel_window *w = &n->window.functions[i];
        *w = r->window.functions[i];
        w->args = resolve_list(b, w->args, w->nargs, &in);
        w->separator = resolve(b, w->separator, &in);
        w->filter = resolve(b, w->filter, &in);
    }
    return n;
}

static plan_node *build_residual(builder *b, const rel *r) {
    plan_node *n = build_unary(b, PLAN_RESIDUAL, r);
    scope in = {r->left, NULL};
    n->residual.group_slot = scope_slot(&in, r->residual.group_id);
    n->residual.predicate = resolve(b, r->residual.predicate, &in);
    n->residual.nnull = r->residual.nnull;
    n->residual.null_slots = slots_of(b, r->left, r->residual.null_ids, r->residual.nnull);
    return n;
}

/* Builds a filter. Directly above a table or file it becomes part of the scan, and for a table some
 * of its conditions may become bounds. */
static plan_node *build_filter(builder *b, const rel *r) {
    scope in = {r->left, NULL};
    conjuncts all = {0}, rest = {0};
    plan_node *n;
    if (r->left->kind != REL_SCAN && r->left->kind != REL_FILE) {
        n = build_unary(b, PLAN_FILTER, r);
        n->filter.predicate = resolve(b, r->filter.predicate, &in);
        return n;
    }
    n = build_leaf(b, r->left);
    if (r->left->kind == REL_FILE) {
        n->file.filter = resolve(b, r->filter.predicate, &in);
        return n;
    }
    conjuncts_split(b->rules, &all, r->filter.predicate);
    if (is_ordered(b, r->left))
        read_in_order(b, r->left, n, &all, &rest);
    else
        access_choose(b->rules, r->left, &all, n, &rest);
    n->scan.filter = resolve(b, conjuncts_join(b->rules, &rest), &in);
    return n;
}

static plan_node *build_node(builder *b, const rel *r) {
    plan_node *n = NULL;
    switch (r->kind) {
    case REL_VALUES:
        return build_values(b, r);
    case REL_SCAN:
    case REL_FILE:
    case REL_SYSTEM:
    case REL_SERIES:
        return build_leaf(b, r);
    case REL_FILTER:
        return build_filter(b, r);
    case REL_PROJECT:
        return build_project(b, r);
    case REL_JOIN:
    case REL_APPLY:
        return build_join(b, r);
    case REL_GROUP:
        return build_group(b, r);
    case REL_SORT:
        return build_sort(b, r);
    case REL_LIMIT:
        return build_limit(b, r);
    case REL_DISTINCT:
        return build_unary(b, PLAN_DISTINCT, r);
    case REL_SETOP:
        n = build_unary(b, PLAN_SETOP, r);
        n->right = build(b, r->right);
        n->setop.op = r->setop.op;
        return n;
    case REL_PIPELINE:
        return build_pipeline(b, r);
    case REL_LLM: /* always in a pipeline: build_pipeline */
        break;
    case REL_SHARED:
        return build_shared(b, r);
    case REL_SPLIT:
        return build_split(b, r);
    case REL_ROW_NUMBER:
        return build_unary(b, PLAN_NUMBER, r);
    case REL_WINDOW:
        return build_window(b, r);
    case REL_RECURSIVE:
        n = build_unary(b, PLAN_RECURSIVE, r);
        n->right = build(b, r->right);
        n->recursive.number = r->recursive.number;
        n->recursive.distinct = r->recursive.distinct;
        return n;
    case REL_WORKING:
        n = node_new(b, PLAN_WORKING, r);
        n->working.number = r->working.number;
        return n;
    case REL_OUTER_RESIDUAL:
        return build_residual(b, r);
    }
    return n;
}

static plan_node *build(builder *b, const rel *r) {
    plan_node *n = build_node(b, r);
    names_add(b->names, r, n);
    /* a sort without a PLAN_SORT has its estimates from build_ordered */
    if (r->kind != REL_SORT || n->kind == PLAN_SORT)
        estimate_node(b->rules->estimates, r, n);
    return n;
}

/* Numbers the lines of a pipeline from the top down. */
static void number_stages(plan *p, plan_node *n) {
    for (int i = n->pipeline.nstages; i-- > 0;) {
        plan_stage *t = &n->pipeline.stages[i];
        for (int k = t->nfilters; k-- > 0;)
            t->filter_numbers[k] = p->nnodes++;
        t->number = p->nnodes++;
    }
}

static void number_nodes(plan *p, plan_node *n) {
    if (!n || n->number >= 0)
        return;
    n->number = p->nnodes;
    if (n->kind == PLAN_LLM_PIPELINE)
        number_stages(p, n);
    else
        p->nnodes++;
    number_nodes(p, n->left);
    number_nodes(p, n->right);
}

static void plan_all(const sql_stmt *stmt, builder *b, plan *p) {
    rule_ctx *rules = b->rules;
    rel *query = stmt->query ? rules_run(rules, stmt->query, stmt->explain.rules, p) : NULL;
    rel **examples = ARENA_ARRAY(b->mem, rel *, stmt->ncalls + 1);
    for (int i = 0; i < stmt->ncalls; i++)
        if (stmt->calls[i]->examples)
            examples[i] = rules_run(rules, stmt->calls[i]->examples, false, NULL);
    if (b->e->code != ERR_NONE)
        return;
    p->nshared = rules->next_share;
    b->shared = ARENA_ARRAY(b->mem, plan_node *, rules->next_share + 1);
    b->names = names_new(b->mem, rules->next_id);
    p->root = query ? build(b, query) : NULL;
    p->has_llm = b->has_llm;
    number_nodes(p, p->root);
    for (int i = 0; i < stmt->ncalls; i++) {
        p->examples[i] = examples[i] ? build(b, examples[i]) : NULL;
        number_nodes(p, p->examples[i]);
    }
    estimate_plan(p, b->mem);
}

int plan_build(const sql_stmt *stmt, const plan_env *env, arena *a, plan **out, err *e) {
    double start = clock_ms();
    rule_ctx rules = {.mem = a,
                      .env = env,
                      .stmt = stmt,
                      .next_id = stmt->next_id,
                      .next_share = stmt->next_share,
                      .e = e};
    builder b = {.mem = a, .rules = &rules, .e = e};
    plan *p = ARENA_NEW(a, plan);
    err_clear(e);
    rules.estimates = estimator_new(a, env);
    p->stmt = stmt;
    p->currency = env->currency ? arena_strndup(a, env->currency, strlen(env->currency)) : NULL;
    p->examples = ARENA_ARRAY(a, plan_node *, stmt->ncalls + 1);
    plan_all(stmt, &b, p);
    p->planning_ms = clock_ms() - start;
    if (stmt->explain.savings && p->has_llm && e->code == ERR_NONE)
        plan_find_savings(p, env, a);
    *out = p;
    return (int)e->code;
}
