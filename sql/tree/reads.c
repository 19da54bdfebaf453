/*
 * reads.c - which calls of a statement have a field that is computed from another call's answer.
 *
 * Invariant: this depends on the bound statement alone. What the planner does with it later, such as
 * merging projections, has no influence.
 */
#include <stdlib.h>
#include <string.h>

#include "tree_int.h"

typedef struct answer_search {
    bool *made;        /* by column id: its value is computed from an answer */
    bool *seen;        /* by number of a shared relation: visited in this round */
    bool changed;      /* this round has found another column */
    const rel *rounds; /* the innermost REL_RECURSIVE whose right input is being visited, or NULL */
} answer_search;

typedef struct column_search {
    const bool *made;
    bool found;
} column_search;

static void look_at(void *ctx, int id) {
    column_search *c = ctx;
    c->found = c->found || c->made[id];
}

static bool reads(const answer_search *s, const expr *x) {
    column_search c = {s->made, false};
    if (x != NULL)
        expr_columns(x, look_at, &c);
    return c.found;
}

static bool any_reads(const answer_search *s, expr *const *list, int n) {
    for (int i = 0; i < n; i++)
        if (reads(s, list[i]))
            return true;
    return false;
}

static bool keys_read(const answer_search *s, const sort_key *keys, int n) {
    for (int i = 0; i < n; i++)
        if (reads(s, keys[i].value))
            return true;
    return false;
}

static bool group_makes(const answer_search *s, const rel *x, int id) {
    for (int i = 0; i < x->group.nkeys; i++)
        if (x->group.keys[i].id == id)
            return reads(s, x->group.keys[i].value);
    for (int i = 0; i < x->group.naggs; i++) {
        const rel_agg *a = &x->group.aggs[i];
        if (a->id == id)
            return reads(s, a->arg) || reads(s, a->filter) || keys_read(s, a->keys, a->nkeys);
    }
    return false;
}

static bool window_makes(const answer_search *s, const rel *x, int id) {
    for (int i = 0; i < x->window.nfunctions; i++) {
        const rel_window *w = &x->window.functions[i];
        if (w->id == id)
            return any_reads(s, w->args, w->nargs) || reads(s, w->filter) ||
                   keys_read(s, x->window.keys, w->nkeys);
    }
    return false;
}

static bool site_makes(const rel *x, int id) {
    for (int i = 0; i < x->llm.nsites; i++)
        if (llm_site_makes(&x->llm.sites[i], id))
            return true;
    return false;
}

/* Whether the column at this position of an input is computed from an answer. */
static bool input_has(const answer_search *s, const rel *input, int at) {
    return input != NULL && s->made[input->cols[at].id];
}

/* Whether x computes the column at this position from an answer. */
static bool makes_of_answer(const answer_search *s, const rel *x, int at) {
    int id = x->cols[at].id;
    switch (x->kind) {
    case REL_PROJECT:
        return reads(s, x->project.exprs[at].value);
    case REL_GROUP:
        return group_makes(s, x, id);
    case REL_WINDOW:
        return window_makes(s, x, id);
    case REL_LLM:
        return site_makes(x, id);
    case REL_SHARED:
    case REL_SETOP:
    case REL_RECURSIVE:
        return input_has(s, x->left, at) || input_has(s, x->right, at);
    case REL_WORKING:
        return s->rounds != NULL && s->rounds->recursive.number == x->working.number &&
               s->made[s->rounds->cols[at].id];
    case REL_JOIN:
    case REL_APPLY:
        return id == x->join.mark_id && reads(s, x->join.predicate);
    default:
        return false;
    }
}

static void note_calls(const answer_search *s, const rel *x) {
    for (int i = 0; x->kind == REL_LLM && i < x->llm.nsites; i++) {
        const llm_site *site = &x->llm.sites[i];
        llm_call *call = (llm_call *)(uintptr_t)site->call;
        call->reads_answers = call->reads_answers || any_reads(s, site->args, call->nfields);
    }
}

static void visit(answer_search *s, const rel *x) {
    if (x == NULL || (x->kind == REL_SHARED && s->seen[x->shared.number]))
        return;
    if (x->kind == REL_SHARED)
        s->seen[x->shared.number] = true;
    const rel *outer = s->rounds;
    visit(s, x->left);
    s->rounds = x->kind == REL_RECURSIVE ? x : outer;
    visit(s, x->right);
    s->rounds = outer;
    note_calls(s, x);
    for (int i = 0; i < x->ncols; i++)
        if (!s->made[x->cols[i].id] && makes_of_answer(s, x, i))
            s->made[x->cols[i].id] = s->changed = true;
}

void rel_note_answer_fields(const rel *x, int next_id, int next_share) {
    answer_search s = {.made = mem_zalloc((size_t)next_id + 1),
                       .seen = mem_zalloc((size_t)next_share + 1),
                       .changed = true};
    while (s.changed) {
        s.changed = false;
        memset(s.seen, 0, (size_t)next_share + 1);
        visit(&s, x);
    }
    free(s.made);
    free(s.seen);
}
