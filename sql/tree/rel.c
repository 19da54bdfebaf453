/*
 * rel.c - construction of relations and walks over them.
 *
 * Invariant: a node that neither adds nor drops columns shares the `cols` array of its child, so a
 * column type set in the child is also set in the node.
 */
#include <string.h>

#include "tree_int.h"

rel *rel_new(arena *a, rel_kind kind, rel *left, rel *right) {
    rel *r = ARENA_NEW(a, rel);
    r->kind = kind;
    r->left = left;
    r->right = right;
    if (left) {
        r->ncols = left->ncols;
        r->cols = left->cols;
    }
    return r;
}

const rel_column *rel_column_of(const rel *r, int id) {
    for (int i = 0; i < r->ncols; i++)
        if (r->cols[i].id == id)
            return &r->cols[i];
    return NULL;
}

/* Sets the node's columns to those of its left input followed by `more`. */
static void take_columns(arena *a, rel *r, const rel_column *more, int nmore) {
    const rel *left = r->left;
    rel_column *cols = nmore ? ARENA_ARRAY(a, rel_column, left->ncols + nmore) : left->cols;
    if (nmore && left->ncols)
        memcpy(cols, left->cols, sizeof *cols * (size_t)left->ncols);
    if (nmore)
        memcpy(cols + left->ncols, more, sizeof *cols * (size_t)nmore);
    r->cols = cols;
    r->ncols = left->ncols + nmore;
}

bool llm_call_is_calibrated(const llm_call *call) {
    if (call->calibrate == CALIBRATE_AUTO)
        return call->returns != RETURNS_INTEGER && call->nliterals > 0 &&
               call->nliterals <= LLM_AUTO_LITERALS && !call->reads_answers;
    return call->calibrate != CALIBRATE_OFF && call->nliterals > 0;
}

bool rel_is_calibrated(const rel *llm) {
    for (int i = 0; i < llm->llm.nsites; i++)
        if (llm_call_is_calibrated(llm->llm.sites[i].call))
            return true;
    return false;
}

int llm_site_prob(const llm_site *site, int id) {
    for (int i = 0; i < site->nprobs; i++)
        if (site->probs[i].id == id)
            return i;
    return -1;
}

bool llm_site_makes(const llm_site *site, int id) {
    return site->out_id == id || llm_site_prob(site, id) >= 0;
}

void llm_prob_print(const llm_call *call, int literal, buf *out) {
    buf_append_c(out, literal == PROB_MEAN ? "mean" : "prob");
    if (literal < 0 || call->nliterals == 0) /* labels => whose rows could not be read */
        return;
    buf_append_char(out, '(');
    value_print_sql(out, value_text(call->literals[literal]));
    buf_append_char(out, ')');
}

/* Returns the column of a call site's answer, or of its probability `p`. A column with this id that
 * the node already has is kept unchanged. */
static rel_column llm_column(arena *a, const rel *r, const llm_site *s, const llm_prob *p) {
    int id = p ? p->id : s->out_id;
    const rel_column *had = rel_column_of(r, id);
    if (had)
        return *had;
    buf name = {0};
    buf_printf(&name, "LLM#%d", s->call->number);
    if (p) {
        buf_append_char(&name, '.');
        llm_prob_print(s->call, p->literal, &name);
    }
    rel_column c = {
        id, p ? TYPE_REAL : llm_call_type(s->call), str_copy(a, buf_str(&name)), {NULL, 0}};
    buf_free(&name);
    return c;
}

static void set_llm_columns(arena *a, rel *r) {
    int n = 0;
    for (int i = 0; i < r->llm.nsites; i++)
        n += 1 + r->llm.sites[i].nprobs;
    rel_column *more = ARENA_ARRAY(a, rel_column, n);
    n = 0;
    for (int i = 0; i < r->llm.nsites; i++) {
        const llm_site *s = &r->llm.sites[i];
        more[n++] = llm_column(a, r, s, NULL);
        for (int k = 0; k < s->nprobs; k++)
            more[n++] = llm_column(a, r, s, &s->probs[k]);
    }
    take_columns(a, r, more, n);
}

static void set_join_columns(arena *a, rel *r) {
    rel_column mark = {r->join.mark_id, TYPE_BOOLEAN, STR("match"), {NULL, 0}};
    if (r->join.kind == JOIN_SEMI || r->join.kind == JOIN_ANTI)
        take_columns(a, r, NULL, 0);
    else if (r->join.kind == JOIN_MARK)
        take_columns(a, r, &mark, 1);
    else
        take_columns(a, r, r->right->cols, r->right->ncols);
}

static void set_window_columns(arena *a, rel *r) {
    rel_column *more = ARENA_ARRAY(a, rel_column, r->window.nfunctions);
    for (int i = 0; i < r->window.nfunctions; i++) {
        const rel_window *w = &r->window.functions[i];
        more[i] = (rel_column){w->id, w->type, STR("window"), {NULL, 0}};
    }
    take_columns(a, r, more, r->window.nfunctions);
}

static void set_split_columns(arena *a, rel *r) {
    const rel_column more[] = {{r->split.text_id, TYPE_TEXT, STR("text"), r->split.alias},
                               {r->split.number_id, TYPE_INTEGER, STR("n"), r->split.alias}};
    take_columns(a, r, more, 2);
}

void rel_set_columns(arena *a, rel *r) {
    rel_column number;
    switch (r->kind) {
    case REL_FILTER:
    case REL_SORT:
    case REL_LIMIT:
    case REL_DISTINCT:
    case REL_PIPELINE:
    case REL_OUTER_RESIDUAL:
        take_columns(a, r, NULL, 0);
        return;
    case REL_JOIN:
    case REL_APPLY:
        set_join_columns(a, r);
        return;
    case REL_LLM:
        set_llm_columns(a, r);
        return;
    case REL_WINDOW:
        set_window_columns(a, r);
        return;
    case REL_SPLIT:
        set_split_columns(a, r);
        return;
    case REL_ROW_NUMBER:
        number = (rel_column){r->row_number.id, TYPE_INTEGER, STR("number"), {NULL, 0}};
        take_columns(a, r, &number, 1);
        return;
    default:
        return; /* kinds whose columns have ids of their own */
    }
}

rel *rel_make(arena *a, rel_kind kind, int ncols) {
    rel *r = rel_new(a, kind, NULL, NULL);
    r->ncols = ncols;
    r->cols = ARENA_ARRAY(a, rel_column, ncols);
    return r;
}

rel *rel_one_row(arena *a) {
    rel *r = rel_make(a, REL_VALUES, 0);
    r->values.nrows = 1;
    r->values.rows = ARENA_ARRAY(a, expr **, 1);
    return r;
}

rel *rel_filter(arena *a, rel *left, expr *predicate) {
    rel *r = rel_new(a, REL_FILTER, left, NULL);
    r->filter.predicate = predicate;
    return r;
}

rel *rel_project(arena *a, rel *left, int ncols) {
    rel *r = rel_make(a, REL_PROJECT, ncols);
    r->left = left;
    r->project.exprs = ARENA_ARRAY(a, rel_expr, ncols);
    return r;
}

rel *rel_join(arena *a, join_kind kind, rel *left, rel *right, expr *predicate) {
    rel *r = rel_new(a, REL_JOIN, left, right);
    r->join.kind = kind;
    r->join.predicate = predicate;
    r->join.mark_id = -1;
    rel_set_columns(a, r);
    return r;
}

rel *rel_apply(arena *a, join_kind kind, rel *left, rel *right, expr *predicate, int mark_id,
               bool mark_null) {
    rel *r = rel_new(a, REL_APPLY, left, right);
    r->join.kind = kind;
    r->join.predicate = predicate;
    r->join.mark_id = mark_id;
    r->join.mark_null = mark_null;
    rel_set_columns(a, r);
    return r;
}

rel *rel_llm(arena *a, rel *left, llm_site *sites, int nsites) {
    rel *r = rel_new(a, REL_LLM, left, NULL);
    r->llm.sites = sites;
    r->llm.nsites = nsites;
    rel_set_columns(a, r);
    return r;
}

rel *rel_row_number(arena *a, rel *left, int id) {
    rel *r = rel_new(a, REL_ROW_NUMBER, left, NULL);
    r->row_number.id = id;
    rel_set_columns(a, r);
    return r;
}

rel *rel_windows(arena *a, rel *left, sort_key *keys, int nkeys, rel_window *functions, int n) {
    rel *r = rel_new(a, REL_WINDOW, left, NULL);
    r->window.keys = keys;
    r->window.nkeys = nkeys;
    r->window.functions = functions;
    r->window.nfunctions = n;
    rel_set_columns(a, r);
    return r;
}

rel *rel_sort(arena *a, rel *left, sort_key *keys, int nkeys) {
    rel *r = rel_new(a, REL_SORT, left, NULL);
    r->sort.keys = keys;
    r->sort.nkeys = nkeys;
    return r;
}

rel *rel_limit(arena *a, rel *left, int64_t limit, int64_t offset) {
    rel *r = rel_new(a, REL_LIMIT, left, NULL);
    r->limit.limit = limit;
    r->limit.offset = offset;
    return r;
}

rel *rel_distinct(arena *a, rel *left) {
    return rel_new(a, REL_DISTINCT, left, NULL);
}

rel *rel_residual(arena *a, rel *left, int group_id, expr *predicate, int *null_ids, int nnull) {
    rel *r = rel_new(a, REL_OUTER_RESIDUAL, left, NULL);
    r->residual.group_id = group_id;
    r->residual.predicate = predicate;
    r->residual.null_ids = null_ids;
    r->residual.nnull = nnull;
    return r;
}

rel *rel_shared(arena *a, rel *left, int number) {
    rel *r = rel_make(a, REL_SHARED, left->ncols);
    r->left = left;
    r->shared.number = number;
    return r;
}

rel *rel_recursive(arena *a, rel *left, rel *right, int number, bool distinct) {
    rel *r = rel_make(a, REL_RECURSIVE, left->ncols);
    r->left = left;
    r->right = right;
    r->recursive.number = number;
    r->recursive.distinct = distinct;
    return r;
}

/* ---- walks ----------------------------------------------------------------------------------- */

static void each(rel_visit *v, expr **x) {
    if (*x)
        v->on_expr(v, x);
}

static void each_llm(rel *r, rel_visit *v) {
    for (int i = 0; i < r->llm.nsites; i++) {
        llm_site *u = &r->llm.sites[i];
        if (v->on_site)
            v->on_site(v, u);
        for (int k = 0; v->on_expr && k < u->call->nfields; k++)
            each(v, &u->args[k]);
        if (v->on_expr)
            each(v, &u->guard);
    }
}

static void each_group(rel *r, rel_visit *v) {
    for (int i = 0; i < r->group.nkeys; i++)
        each(v, &r->group.keys[i].value);
    for (int i = 0; i < r->group.naggs; i++) {
        each(v, &r->group.aggs[i].arg);
        each(v, &r->group.aggs[i].separator);
        each(v, &r->group.aggs[i].filter);
        for (int k = 0; k < r->group.aggs[i].nkeys; k++)
            each(v, &r->group.aggs[i].keys[k].value);
    }
}

static void each_window(rel *r, rel_visit *v) {
    for (int i = 0; i < r->window.nkeys; i++)
        each(v, &r->window.keys[i].value);
    for (int i = 0; i < r->window.nfunctions; i++) {
        rel_window *w = &r->window.functions[i];
        for (int k = 0; k < w->nargs; k++)
            each(v, &w->args[k]);
        each(v, &w->separator);
        each(v, &w->filter);
    }
}

static void each_expr(rel *r, rel_visit *v) {
    switch (r->kind) {
    case REL_VALUES:
        for (int i = 0; i < r->values.nrows; i++)
            for (int k = 0; k < r->ncols; k++)
                each(v, &r->values.rows[i][k]);
        break;
    case REL_FILTER:
        each(v, &r->filter.predicate);
        break;
    case REL_PROJECT:
        for (int i = 0; i < r->ncols; i++)
            each(v, &r->project.exprs[i].value);
        break;
    case REL_JOIN:
    case REL_APPLY:
        each(v, &r->join.predicate);
        break;
    case REL_GROUP:
        each_group(r, v);
        break;
    case REL_SORT:
        for (int i = 0; i < r->sort.nkeys; i++)
            each(v, &r->sort.keys[i].value);
        break;
    case REL_WINDOW:
        each_window(r, v);
        break;
    case REL_OUTER_RESIDUAL:
        each(v, &r->residual.predicate);
        break;
    case REL_SPLIT:
        each(v, &r->split.text);
        each(v, &r->split.separator);
        break;
    default:
        break;
    }
}

/* True if r is a shared relation that the walk has already visited; marks it visited. */
static bool walked(rel_visit *v, const rel *r) {
    if (r->kind != REL_SHARED || r->shared.number >= (int)(64 * BASE_COUNT(v->seen)))
        return false;
    unsigned number = (unsigned)r->shared.number;
    uint64_t bit = UINT64_C(1) << (number % 64);
    bool before = (v->seen[number / 64] & bit) != 0;
    v->seen[number / 64] |= bit;
    return before;
}

void rel_walk(rel *r, rel_visit *v) {
    for (; r && !walked(v, r); r = r->left) {
        if (r->kind == REL_LLM)
            each_llm(r, v);
        else if (v->on_expr)
            each_expr(r, v);
        if (r->right)
            rel_walk(r->right, v);
    }
}

void rel_settle(rel *r, int at, value_type type) {
    if (r->cols[at].type != TYPE_NULL)
        return;
    r->cols[at].type = type;
    switch (r->kind) {
    case REL_VALUES:
        for (int i = 0; i < r->values.nrows; i++)
            r->values.rows[i][at]->type = type;
        break;
    case REL_PROJECT: {
        expr *x = r->project.exprs[at].value;
        if (x->kind == EXPR_COLUMN)
            for (int i = 0; i < r->left->ncols; i++)
                if (r->left->cols[i].id == x->column.id)
                    rel_settle(r->left, i, type);
        x->type = type;
        break;
    }
    case REL_SETOP:
        rel_settle(r->left, at, type);
        rel_settle(r->right, at, type);
        break;
    case REL_FILTER:
    case REL_SORT:
    case REL_LIMIT:
    case REL_DISTINCT:
    case REL_LLM:
    case REL_WINDOW:
        /* the child may share `cols`, and rel_settle skips a column that has a type */
        r->cols[at].type = TYPE_NULL;
        if (at < r->left->ncols)
            rel_settle(r->left, at, type);
        r->cols[at].type = type;
        break;
    default:
        break;
    }
}

void rel_settle_all(rel *r) {
    for (int i = 0; i < r->ncols; i++)
        rel_settle(r, i, TYPE_TEXT);
}
