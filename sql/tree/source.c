/*
 * source.c - where the columns of a bound query come from: the LLM node of a call, the node that
 * makes a column's values, the name that a query gives to an answer.
 *
 * Invariant: column ids are unique in a statement, so a column is found in at most one branch of a
 * tree.
 */
#include "tree_int.h"

static int column_index(const rel *x, int id) {
    for (int i = 0; i < x->ncols; i++)
        if (x->cols[i].id == id)
            return i;
    return -1;
}

static void take_first(void *ctx, int id) {
    int *first = ctx;
    *first = *first < 0 ? id : *first;
}

int expr_first_column(const expr *x) {
    int id = -1;
    expr_columns(x, take_first, &id);
    return id;
}

/* Returns the expression that computes the column at this position of x's output. NULL: no expression
 * does, for example because the column is passed on from an input. */
static const expr *maker(const rel *x, int at) {
    int id = x->cols[at].id;
    if (x->kind == REL_PROJECT)
        return x->project.exprs[at].value;
    for (int k = 0; x->kind == REL_GROUP && k < x->group.nkeys; k++)
        if (x->group.keys[k].id == id)
            return x->group.keys[k].value;
    return NULL;
}

/* Returns the column of x's inputs from which the column at this position takes its values, and the
 * input in *input; -1: x itself makes them. *same: the values are passed on unchanged. */
static int step_down(const rel *x, int at, const rel **input, bool *same) {
    const expr *made = maker(x, at);
    *input = x->left;
    if (made != NULL) {
        const expr *inner = made->kind == EXPR_CAST ? made->args[0] : made;
        *same = *same && inner->kind == EXPR_COLUMN;
        return expr_first_column(made);
    }
    if (x->kind == REL_SHARED || x->kind == REL_SETOP || x->kind == REL_RECURSIVE)
        return x->left->cols[at].id;
    int id = x->cols[at].id;
    if (x->left != NULL && column_index(x->left, id) < 0)
        *input = x->right;
    return *input != NULL && column_index(*input, id) >= 0 ? id : -1;
}

const rel *rel_column_source(const rel *x, int *id, bool *same) {
    *same = true;
    for (int at = column_index(x, *id); at >= 0;) {
        const rel *input;
        int below = step_down(x, at, &input, same);
        if (below < 0 || input == NULL || column_index(input, below) < 0)
            break;
        x = input;
        *id = below;
        at = column_index(x, below);
    }
    return x;
}

int rel_column_dims(const rel *x, int id) {
    bool same = true;
    int at = column_index(x, id);
    for (; at >= 0 && x->kind != REL_SETOP && x->kind != REL_RECURSIVE; at = column_index(x, id)) {
        const expr *made = maker(x, at);
        if (made != NULL && made->kind == EXPR_CAST && made->dims)
            return made->dims;
        if (made != NULL && made->kind == EXPR_LITERAL && made->type == TYPE_VECTOR)
            return vector_dims(made->literal.s);
        if (x->kind == REL_SCAN)
            return same ? x->scan.table->columns[x->scan.columns[at]].dims : 0;
        id = step_down(x, at, &x, &same);
        if (id < 0 || x == NULL)
            return 0;
    }
    return 0;
}

typedef struct call_search {
    const llm_call *call;
    const llm_site *site; /* of the call; NULL: not found yet */
    const rel *node;      /* the site's REL_LLM */
    str name;             /* of the first column that passes the answer on; n = 0: not found yet */
    uint64_t seen;        /* bit n % 64: a shared relation n was visited */
} call_search;

static void find_site(call_search *s, const rel *x) {
    for (int i = 0; x->kind == REL_LLM && i < x->llm.nsites && s->site == NULL; i++)
        if (x->llm.sites[i].call == s->call) {
            s->site = &x->llm.sites[i];
            s->node = x;
        }
}

static void find_name(call_search *s, const rel *x) {
    for (int i = 0; x->kind == REL_PROJECT && i < x->ncols && s->name.n == 0; i++) {
        bool same;
        int id = x->cols[i].id;
        const rel *from = rel_column_source(x, &id, &same);
        for (int k = 0; from->kind == REL_LLM && same && k < from->llm.nsites; k++)
            if (from->llm.sites[k].call == s->call && from->llm.sites[k].out_id == id)
                s->name = x->cols[i].name;
    }
}

/* Calls `visit` for the nodes of the tree, a node before its inputs. Of the shared relations whose
 * numbers are equal modulo 64, only the first is visited. */
static void visit_nodes(call_search *s, const rel *x, void (*visit)(call_search *s, const rel *x)) {
    if (x == NULL)
        return;
    if (x->kind == REL_SHARED) {
        uint64_t bit = (uint64_t)1 << (x->shared.number & 63);
        if (s->seen & bit)
            return;
        s->seen |= bit;
    }
    visit(s, x);
    visit_nodes(s, x->left, visit);
    visit_nodes(s, x->right, visit);
}

const llm_site *rel_site_of_call(const rel *x, const llm_call *call, const rel **node) {
    call_search s = {.call = call};
    visit_nodes(&s, x, find_site);
    *node = s.node;
    return s.site;
}

str rel_name_of_call(const rel *x, const llm_call *call) {
    call_search s = {.call = call, .name = STR("")};
    visit_nodes(&s, x, find_name);
    return s.name;
}
