/*
 * estimate.c - how many rows and distinct values each relation has, and what they cost.
 *
 * Invariant: estimates are functions of statistics, settings and learned facts handed in through plan_env; nothing is read or measured
 * here. Cost is milliseconds (DESIGN 4): token counts × rates for LLM nodes, rows × a constant for the rest.
 */
#include <math.h>
#include <string.h>

#include "planner_int.h"

static const double GUESSED_ROWS = 1000, GUESSED_BYTES = 40, BYTES_PER_TOKEN = 4.2;
static const double NOMINAL_PREFILL = 2000, NOMINAL_DECODE = 500;

typedef struct remembered {
    const rel *key;
    rel_estimate *value;
} remembered;

struct estimator {
    arena *mem;
    const plan_env *env;
    remembered *slots;
    uint32_t nslots, count;
};

estimator *estimator_new(arena *mem, const plan_env *env) {
    estimator *s = ARENA_NEW(mem, estimator);
    s->mem = mem;
    s->env = env;
    s->nslots = 64;
    s->slots = ARENA_ARRAY(mem, remembered, s->nslots);
    return s;
}

static remembered *memo_slot(remembered *slots, uint32_t n, const rel *key) {
    uint32_t at = (uint32_t)hash_mix(7, (uint64_t)(uintptr_t)key) & (n - 1);
    while (slots[at].key && slots[at].key != key)
        at = (at + 1) & (n - 1);
    return &slots[at];
}

static void memo_grow(estimator *s) {
    remembered *fresh = ARENA_ARRAY(s->mem, remembered, s->nslots * 2);
    for (uint32_t i = 0; i < s->nslots; i++)
        if (s->slots[i].key)
            *memo_slot(fresh, s->nslots * 2, s->slots[i].key) = s->slots[i];
    s->slots = fresh;
    s->nslots *= 2;
}

/* ---- columns ----------------------------------------------------------------------------------- */

static int column_at(const rel *r, int id) {
    for (int i = 0; i < r->ncols; i++)
        if (r->cols[i].id == id)
            return i;
    return -1;
}

static double type_bytes(value_type t) {
    return t == TYPE_TEXT || t == TYPE_BLOB ? GUESSED_BYTES : t == TYPE_BOOLEAN ? 5 : 6;
}

static column_estimate column_guess(value_type type, double rows) {
    return (column_estimate){.distinct = type == TYPE_BOOLEAN ? 2 : BASE_MAX(1, rows / 10), .bytes = type_bytes(type)};
}

static void cap_distinct(rel_estimate *e, const rel *r) {
    for (int i = 0; i < r->ncols; i++)
        e->columns[i].distinct = BASE_MAX(1, BASE_MIN(e->columns[i].distinct, e->rows));
}

static const column_estimate *column_of(estimator *s, const rel *r, int id) {
    int at = column_at(r, id);
    return at < 0 ? NULL : &estimate_rel(s, r)->columns[at];
}

/* The estimate of an expression's values over r. */
static column_estimate expr_estimate(estimator *s, const expr *x, const rel *r, double rows) {
    if (x->kind == EXPR_COLUMN) {
        const column_estimate *c = column_of(s, r, x->column.id);
        return c ? *c : column_guess(x->type, rows);
    }
    if (x->kind == EXPR_CAST && x->nargs == 1)
        return expr_estimate(s, x->args[0], r, rows);
    if (expr_is_constant(x)) {
        column_estimate c = {.distinct = 1, .bytes = type_bytes(x->type)};
        if (x->kind == EXPR_LITERAL && x->literal.type == TYPE_TEXT)
            c.bytes = (double)x->literal.s.n;
        return c;
    }
    column_estimate c = column_guess(x->type, rows);
    double distinct = 1, bytes = 0;
    for (int i = 0; i < x->nargs; i++) {
        column_estimate part = expr_estimate(s, x->args[i], r, rows);
        distinct = BASE_MIN(distinct * part.distinct, rows);
        bytes += part.bytes;
    }
    c.distinct = BASE_MAX(1, distinct);
    if (x->type == TYPE_TEXT)
        c.bytes = bytes;
    return c;
}

/* ---- leaves ------------------------------------------------------------------------------------ */

static bool is_key_column(const table_def *t, int at) {
    if (at < 0 || at == t->rowid_column)
        return true;
    for (int i = 0; i < t->nindexes; i++)
        if (t->indexes[i].unique && t->indexes[i].ncolumns == 1 && t->indexes[i].columns[0] == at)
            return true;
    return false;
}

static void estimate_scan(estimator *s, const rel *r, rel_estimate *e) {
    const table_def *t = r->scan.table;
    table_stats stats = {.rows = 0};
    bool known = s->env->table_stats && s->env->table_stats(s->env->ctx, t, s->mem, &stats) == 0;
    e->rows = known ? (double)stats.rows : GUESSED_ROWS;
    e->guess = !known || !stats.analyzed;
    for (int i = 0; i < r->ncols; i++) {
        int c = r->scan.columns[i];
        e->columns[i] = column_guess(r->cols[i].type, e->rows);
        if (is_key_column(t, c))
            e->columns[i].distinct = e->rows;
        if (known && stats.analyzed && c >= 0 && c < stats.ncolumns) {
            const column_stats *cs = &stats.columns[c];
            e->columns[i] = (column_estimate){cs->distinct, cs->null_fraction, cs->average_bytes, cs};
        }
    }
}

static void estimate_leaf(estimator *s, const rel *r, rel_estimate *e) {
    double bytes = 0;
    e->rows = r->kind == REL_VALUES ? r->values.nrows : 50;
    if (r->kind == REL_FILE) {
        e->guess = true;
        e->rows = GUESSED_ROWS;
        if (s->env->file_stats)
            s->env->file_stats(s->env->ctx, r->file.path, &e->rows, &bytes);
    }
    for (int i = 0; i < r->ncols; i++) {
        e->columns[i] = column_guess(r->cols[i].type, e->rows);
        if (r->kind == REL_VALUES)
            e->columns[i].distinct = BASE_MAX(1, e->rows);
    }
}

/* ---- selectivity ------------------------------------------------------------------------------- */

/* The LLM call whose answer column `id` is, looked for below r. */
static const llm_use *use_of_column(const rel *r, int id) {
    for (; r; r = r->left) {
        if (r->kind == REL_LLM)
            for (int i = 0; i < r->llm.nuses; i++)
                if (r->llm.uses[i].out_id == id)
                    return &r->llm.uses[i];
        if (r->right) {
            const llm_use *u = use_of_column(r->right, id);
            if (u)
                return u;
        }
    }
    return NULL;
}

static double literal_share(estimator *s, const llm_call *call, value v) {
    arena *a = s->mem;
    value text;
    err ignored = {0};
    double learned = -1;
    if (s->env->selectivity && value_cast(a, v, TYPE_TEXT, &text, &ignored) == 0 && text.type == TYPE_TEXT)
        learned = s->env->selectivity(s->env->ctx, call, text.s);
    if (learned >= 0)
        return learned;
    return call->nliterals > 0 ? 1.0 / call->nliterals : 0.1;
}

static double common_share(const column_estimate *c, value v) {
    if (!c->stats)
        return -1;
    for (int i = 0; i < c->stats->ncommon; i++)
        if (value_compare(c->stats->common[i], v) == 0)
            return c->stats->common_fraction[i];
    return -1;
}

static double equality_share(estimator *s, const expr *x, const rel *r, double rows) {
    const expr *a = x->args[0], *b = x->args[1];
    if (a->kind == EXPR_LITERAL) {
        const expr *swap = a;
        a = b;
        b = swap;
    }
    if (a->kind == EXPR_COLUMN && b->kind == EXPR_LITERAL) {
        const llm_use *u = use_of_column(r, a->column.id);
        if (u)
            return literal_share(s, u->call, b->literal);
    }
    column_estimate ca = expr_estimate(s, a, r, rows), cb = expr_estimate(s, b, r, rows);
    double share = b->kind == EXPR_LITERAL ? common_share(&ca, b->literal) : -1;
    return share >= 0 ? share : 1 / BASE_MAX(1, BASE_MAX(ca.distinct, cb.distinct));
}

static bool as_number(value v, double *out) {
    if (!type_is_number(v.type))
        return false;
    *out = v.type == TYPE_REAL ? v.r : (double)v.i;
    return true;
}

/* column < literal by interpolation between the column's extremes, else a third. */
static double range_share(estimator *s, const expr *x, const rel *r, double rows) {
    const expr *a = x->args[0], *b = x->args[1];
    bool less = x->op == OP_LT || x->op == OP_LE;
    double low, high, at;
    if (a->kind == EXPR_LITERAL) {
        const expr *swap = a;
        a = b;
        b = swap;
        less = !less;
    }
    column_estimate c = expr_estimate(s, a, r, rows);
    if (b->kind != EXPR_LITERAL || !c.stats || !as_number(c.stats->low, &low) || !as_number(c.stats->high, &high) ||
        !as_number(b->literal, &at) || high <= low)
        return 1.0 / 3;
    double below = BASE_MIN(1, BASE_MAX(0, (at - low) / (high - low)));
    return less ? below : 1 - below;
}

static double op_selectivity(estimator *s, const expr *x, const rel *r) {
    double rows = estimate_rel(s, r)->rows, share = 1;
    switch (x->op) {
    case OP_AND:
        for (int i = 0; i < x->nargs; i++)
            share *= estimate_selectivity(s, x->args[i], r);
        return share;
    case OP_OR:
        for (int i = 0; i < x->nargs; i++)
            share *= 1 - estimate_selectivity(s, x->args[i], r);
        return 1 - share;
    case OP_NOT:
        return 1 - estimate_selectivity(s, x->args[0], r);
    case OP_EQ:
        return equality_share(s, x, r, rows);
    case OP_NE:
        return 1 - equality_share(s, x, r, rows);
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
        return range_share(s, x, r, rows);
    case OP_IS:
    case OP_IS_NOT:
        share = x->args[1]->type == TYPE_NULL ? expr_estimate(s, x->args[0], r, rows).null_fraction
                                              : equality_share(s, x, r, rows);
        return x->op == OP_IS ? share : 1 - share;
    case OP_LIKE:
    case OP_ILIKE:
    case OP_GLOB:
        return 0.1;
    default:
        return 0.5;
    }
}

double estimate_selectivity(estimator *s, const expr *x, const rel *r) {
    double share = 0.5;
    if (x->kind == EXPR_LITERAL)
        share = x->literal.type != TYPE_NULL && x->literal.i != 0;
    else if (x->kind == EXPR_OP)
        share = op_selectivity(s, x, r);
    else if (x->kind == EXPR_IN)
        share = (x->nargs - 1) / BASE_MAX(1, expr_estimate(s, x->args[0], r, estimate_rel(s, r)->rows).distinct);
    return BASE_MIN(1, BASE_MAX(0, share));
}

/* ---- operators --------------------------------------------------------------------------------- */

static void copy_columns(rel_estimate *e, int at, const rel_estimate *from, int n) {
    memcpy(e->columns + at, from->columns, sizeof *e->columns * (size_t)n);
}

/* Equality of one column of each side: 1 ÷ the larger number of distinct values; the rest multiplies. */
static double join_selectivity(estimator *s, const expr *x, const rel *r) {
    if (!x)
        return 1;
    if (x->kind == EXPR_OP && x->op == OP_AND) {
        double share = 1;
        for (int i = 0; i < x->nargs; i++)
            share *= join_selectivity(s, x->args[i], r);
        return share;
    }
    if (x->kind == EXPR_OP && (x->op == OP_EQ || x->op == OP_IS) && x->args[0]->kind == EXPR_COLUMN &&
        x->args[1]->kind == EXPR_COLUMN) {
        double most = 1;
        for (int i = 0; i < 2; i++) {
            const column_estimate *c = column_of(s, r->left, x->args[i]->column.id);
            if (!c)
                c = column_of(s, r->right, x->args[i]->column.id);
            if (c)
                most = BASE_MAX(most, c->distinct);
        }
        return 1 / most;
    }
    return 1.0 / 3;
}

static void estimate_join(estimator *s, const rel *r, rel_estimate *e) {
    const rel_estimate *left = estimate_rel(s, r->left), *right = estimate_rel(s, r->right);
    double pairs = left->rows * right->rows * join_selectivity(s, r->join.predicate, r);
    e->guess = left->guess || right->guess;
    e->rows = left->rows;
    if (r->join.kind == JOIN_INNER || r->join.kind == JOIN_CROSS)
        e->rows = pairs;
    else if (r->join.kind == JOIN_LEFT)
        e->rows = BASE_MAX(left->rows, pairs);
    else if (r->join.kind == JOIN_SEMI)
        e->rows = BASE_MIN(left->rows, pairs);
    else if (r->join.kind == JOIN_ANTI)
        e->rows = BASE_MAX(1, left->rows - BASE_MIN(left->rows, pairs));
    copy_columns(e, 0, left, r->left->ncols);
    for (int i = r->left->ncols; i < r->ncols; i++) {
        int from = i - r->left->ncols;
        bool of_right = r->join.kind != JOIN_MARK && from < r->right->ncols;
        e->columns[i] = of_right ? right->columns[from] : column_guess(r->cols[i].type, e->rows);
    }
}

static double keys_distinct(estimator *s, const rel *r, double rows) {
    double product = 1;
    for (int i = 0; i < r->group.nkeys; i++)
        product *= expr_estimate(s, r->group.keys[i].value, r->left, rows).distinct;
    return BASE_MAX(1, BASE_MIN(product, rows));
}

static void estimate_group(estimator *s, const rel *r, rel_estimate *e) {
    const rel_estimate *left = estimate_rel(s, r->left);
    e->rows = r->group.nkeys ? keys_distinct(s, r, left->rows) : 1;
    for (int i = 0; i < r->ncols; i++)
        e->columns[i] = i < r->group.nkeys ? expr_estimate(s, r->group.keys[i].value, r->left, left->rows)
                                           : column_guess(r->cols[i].type, e->rows);
}

static void estimate_setop(estimator *s, const rel *r, rel_estimate *e) {
    const rel_estimate *left = estimate_rel(s, r->left), *right = estimate_rel(s, r->right);
    copy_columns(e, 0, left, r->ncols);
    e->rows = left->rows + right->rows;
    if (r->setop.op == SETOP_UNION)
        e->rows *= 0.8;
    if (r->setop.op == SETOP_EXCEPT || r->setop.op == SETOP_INTERSECT)
        e->rows = left->rows / 2;
}

static double distinct_rows(const rel *r, const rel_estimate *left) {
    double product = 1;
    for (int i = 0; i < r->ncols; i++)
        product *= left->columns[i].distinct;
    return BASE_MIN(product, left->rows);
}

static void estimate_unary(estimator *s, const rel *r, rel_estimate *e) {
    const rel_estimate *left = estimate_rel(s, r->left);
    int same = BASE_MIN(r->ncols, r->left->ncols);
    e->rows = left->rows;
    copy_columns(e, 0, left, same);
    for (int i = same; i < r->ncols; i++)
        e->columns[i] = column_guess(r->cols[i].type, e->rows);
    switch (r->kind) {
    case REL_FILTER:
        e->rows *= estimate_selectivity(s, r->filter.predicate, r->left);
        break;
    case REL_PROJECT:
        for (int i = 0; i < r->ncols; i++)
            e->columns[i] = expr_estimate(s, r->project.exprs[i].value, r->left, left->rows);
        break;
    case REL_LIMIT:
        if (r->limit.limit >= 0 && r->limit.npartition == 0)
            e->rows = BASE_MIN(e->rows, (double)r->limit.limit);
        break;
    case REL_DISTINCT:
        e->rows = distinct_rows(r, left);
        break;
    case REL_LLM:
        for (int i = 0; i < r->llm.nuses; i++) {
            int at = column_at(r, r->llm.uses[i].out_id);
            if (at >= 0 && r->llm.uses[i].call->nliterals > 0)
                e->columns[at].distinct = r->llm.uses[i].call->nliterals;
        }
        break;
    default:
        break;
    }
}

const rel_estimate *estimate_rel(estimator *s, const rel *r) {
    remembered *slot = memo_slot(s->slots, s->nslots, r);
    if (slot->key)
        return slot->value;
    rel_estimate *e = ARENA_NEW(s->mem, rel_estimate);
    e->columns = ARENA_ARRAY(s->mem, column_estimate, r->ncols + 1);
    if (r->left)
        e->guess = estimate_rel(s, r->left)->guess;
    if (r->kind == REL_SCAN)
        estimate_scan(s, r, e);
    else if (!r->left)
        estimate_leaf(s, r, e);
    else if (r->kind == REL_JOIN || r->kind == REL_APPLY)
        estimate_join(s, r, e);
    else if (r->kind == REL_GROUP)
        estimate_group(s, r, e);
    else if (r->kind == REL_SETOP)
        estimate_setop(s, r, e);
    else
        estimate_unary(s, r, e);
    cap_distinct(e, r);
    if (s->count++ * 2 >= s->nslots)
        memo_grow(s);
    slot = memo_slot(s->slots, s->nslots, r);
    *slot = (remembered){r, e};
    return e;
}

/* ---- LLM nodes --------------------------------------------------------------------------------- */

typedef struct field_estimate {
    double tokens, distinct, score;
} field_estimate;

static double text_tokens(const estimator *s, str text) {
    return s->env->count_tokens ? s->env->count_tokens(s->env->ctx, text) : (double)text.n / BYTES_PER_TOKEN;
}

/* v1's order: average length × N ÷ cardinality, descending; or the one on record. */
static void choose_order(estimator *s, const llm_call *call, const field_estimate *f, uint8_t *order) {
    if (s->env->field_order && s->env->field_order(s->env->ctx, call, order))
        return;
    for (int i = 0; i < call->nfields; i++) {
        int at = i;
        for (; at > 0 && f[order[at - 1]].score < f[i].score; at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t)i;
    }
}

static double expected_output(estimator *s, const llm_call *call) {
    double learned = s->env->output_tokens ? s->env->output_tokens(s->env->ctx, call) : -1;
    if (learned >= 0)
        return learned;
    if (call->returns != RETURNS_TEXT)
        return 1;
    int64_t longest = call->max_tokens ? call->max_tokens : s->env->settings->max_tokens;
    return 0.7 * (double)longest;
}

void estimate_llm_use(estimator *s, const llm_use *use, const rel *input, plan_estimate *out, uint8_t *order) {
    const llm_call *call = use->call;
    double rows = estimate_rel(s, input)->rows, distinct = 1, body = 0;
    field_estimate *f = ARENA_ARRAY(s->mem, field_estimate, call->nfields + 1);
    if (use->guard)
        rows *= estimate_selectivity(s, use->guard, input);
    for (int i = 0; i < call->nfields; i++) {
        column_estimate c = expr_estimate(s, use->args[i], input, rows);
        f[i].tokens = c.bytes / BYTES_PER_TOKEN + (double)call->field_names[i].n / BYTES_PER_TOKEN + 2;
        f[i].distinct = BASE_MAX(1, BASE_MIN(c.distinct, rows));
        f[i].score = f[i].tokens * rows / f[i].distinct;
        distinct = BASE_MIN(distinct * f[i].distinct, rows);
        body += f[i].tokens;
    }
    choose_order(s, call, f, order);
    double head = text_tokens(s, call->instruction) + 3, tail = 2, computed = head, prefixes = 1;
    if (call->examples)
        head += estimate_rel(s, call->examples)->rows * (body + 4);
    for (int k = 0; k < call->nfields; k++) {
        prefixes = BASE_MIN(prefixes * f[order[k]].distinct, distinct);
        computed += prefixes * f[order[k]].tokens;
    }
    double answered = s->env->answered ? BASE_MAX(0, s->env->answered(s->env->ctx, call)) : 0;
    double prefill = s->env->prefill_tok_s > 0 ? s->env->prefill_tok_s : NOMINAL_PREFILL;
    double decode = s->env->decode_tok_s > 0 ? s->env->decode_tok_s : NOMINAL_DECODE;
    bool nominal = s->env->settings->cost_rates == RATES_NOMINAL;
    out->distinct_inputs += distinct;
    out->prompt_tokens += distinct * (head + body + tail);
    out->computed_tokens += (computed + distinct * tail) * (1 - answered);
    out->output_tokens += distinct * expected_output(s, call) * (1 - answered);
    out->cost_ms += 1e3 * ((computed + distinct * tail) / (nominal ? NOMINAL_PREFILL : prefill) +
                           distinct * (expected_output(s, call) - (call->returns != RETURNS_TEXT)) /
                               (nominal ? NOMINAL_DECODE : decode)) *
                    (1 - answered);
    out->hit_rate = out->prompt_tokens > 0 ? 1 - out->computed_tokens / out->prompt_tokens : 0;
    out->hit_rate = BASE_MAX(0, out->hit_rate);
}

/* ---- cost -------------------------------------------------------------------------------------- */

/* Milliseconds per row, of the order that one core needs; only their relation to token costs matters. */
static const double ROW_MS = 0.0002, SORT_ROW_MS = 0.00005, PAIR_MS = 0.00002;

double estimate_cost_ms(estimator *s, const rel *r) {
    double rows = estimate_rel(s, r)->rows;
    double in = r->left ? estimate_rel(s, r->left)->rows : rows;
    double right = r->right ? estimate_rel(s, r->right)->rows : 0;
    plan_estimate llm = {0};
    switch (r->kind) {
    case REL_JOIN:
    case REL_APPLY:
        return (in + right + rows) * ROW_MS + (r->join.predicate ? 0 : in * right * PAIR_MS);
    case REL_SORT:
        return in * log2(in + 2) * SORT_ROW_MS;
    case REL_LLM:
        for (int i = 0; i < r->llm.nuses; i++) {
            uint8_t *order = ARENA_ARRAY(s->mem, uint8_t, r->llm.uses[i].call->nfields + 1);
            estimate_llm_use(s, &r->llm.uses[i], r->left, &llm, order);
        }
        return llm.cost_ms;
    default:
        return (in + right) * ROW_MS;
    }
}

void estimate_node(estimator *s, const rel *r, plan_node *node) {
    const rel_estimate *e = estimate_rel(s, r);
    node->estimate.rows = e->rows;
    node->estimate.guess = e->guess;
    if (r->kind != REL_LLM) {
        node->estimate.cost_ms = estimate_cost_ms(s, r);
        return;
    }
    for (int i = 0; i < r->llm.nuses; i++)
        estimate_llm_use(s, &r->llm.uses[i], r->left, &node->estimate, node->llm.uses[i].field_order);
}
