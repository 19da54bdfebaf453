/*
 * reads.c - which fields of a statement's calls are computed from another call's answer.
 *
 * Invariant: this depends on the bound statement alone. What the planner does with it later, such as
 * placing calls below joins or merging projections, has no influence.
 */
#include <stdlib.h>
#include <string.h>

#include "tree_int.h"

enum { UNKNOWN = UINT32_MAX };

typedef struct answer_search {
    /* By column id: 0: it is not computed from an answer; otherwise the most different texts that its
     * values can have, or UNKNOWN. */
    uint32_t *texts;
    bool *seen;   /* by number of a shared relation: visited in this round */
    bool changed; /* this round has found something */
} answer_search;

static uint32_t times(uint32_t a, uint32_t b) {
    return (uint64_t)a * b < UNKNOWN ? a * b : UNKNOWN;
}

/* Returns the most different texts of an expression, as answer_search.texts. */
static uint32_t texts_of(const answer_search *s, const expr *x) {
    uint32_t texts = 1;
    bool answers = false, cells = x != NULL && expr_is_volatile(x);
    if (x == NULL)
        return 0;
    if (x->kind == EXPR_COLUMN)
        return s->texts[x->column.id];
    for (int i = 0; i < x->nargs; i++) {
        uint32_t of = texts_of(s, x->args[i]);
        answers = answers || of > 0;
        cells = cells || (of == 0 && expr_first_column(x->args[i]) >= 0);
        texts = times(texts, BASE_MAX(of, 1u));
    }
    return !answers ? 0 : cells ? UNKNOWN : texts;
}

static bool reads(const answer_search *s, const expr *x) {
    return texts_of(s, x) > 0;
}

static bool keys_read(const answer_search *s, const sort_key *keys, int n) {
    for (int i = 0; i < n; i++)
        if (reads(s, keys[i].value))
            return true;
    return false;
}

static uint32_t texts_of_group(const answer_search *s, const rel *x, int id) {
    for (int i = 0; i < x->group.nkeys; i++)
        if (x->group.keys[i].id == id)
            return texts_of(s, x->group.keys[i].value);
    for (int i = 0; i < x->group.naggs; i++) {
        const rel_agg *a = &x->group.aggs[i];
        if (a->id == id)
            return reads(s, a->arg) || reads(s, a->filter) || keys_read(s, a->keys, a->nkeys)
                       ? UNKNOWN
                       : 0;
    }
    return 0;
}

static uint32_t texts_of_window(const answer_search *s, const rel *x, int id) {
    for (int i = 0; i < x->window.nfunctions; i++) {
        const rel_window *w = &x->window.functions[i];
        if (w->id != id)
            continue;
        bool found = reads(s, w->filter) || keys_read(s, x->window.keys, w->nkeys);
        for (int k = 0; k < w->nargs; k++)
            found = found || reads(s, w->args[k]);
        return found ? UNKNOWN : 0;
    }
    return 0;
}

/* An answer is one of the literals or the DEFAULT of a failed call. */
static uint32_t texts_of_answer(const rel *x, int id) {
    for (int i = 0; i < x->llm.nsites; i++) {
        const llm_site *site = &x->llm.sites[i];
        if (site->out_id == id && site->call->nliterals > 0)
            return (uint32_t)site->call->nliterals + 1;
        if (llm_site_makes(site, id))
            return UNKNOWN;
    }
    return 0;
}

/* Of a column whose values are those of a column of one input or of the other. The recursive part of
 * a REL_RECURSIVE has no calls. */
static uint32_t texts_of_either(const answer_search *s, const rel *x, int at) {
    uint32_t left = s->texts[x->left->cols[at].id],
             right = x->right == NULL ? left : s->texts[x->right->cols[at].id];
    return left == right ? left : UNKNOWN;
}

/* Returns the most different texts of x's column at this position, as far as x makes it. */
static uint32_t texts_made(const answer_search *s, const rel *x, int at) {
    int id = x->cols[at].id;
    switch (x->kind) {
    case REL_PROJECT:
        return texts_of(s, x->project.exprs[at].value);
    case REL_GROUP:
        return texts_of_group(s, x, id);
    case REL_WINDOW:
        return texts_of_window(s, x, id);
    case REL_LLM:
        return texts_of_answer(x, id);
    case REL_SHARED:
    case REL_SETOP:
    case REL_RECURSIVE:
        return texts_of_either(s, x, at);
    case REL_JOIN:
    case REL_APPLY:
        return id == x->join.mark_id && reads(s, x->join.predicate) ? UNKNOWN : 0;
    default:
        return 0;
    }
}

static void note_calls(const answer_search *s, const rel *x) {
    for (int i = 0; x->kind == REL_LLM && i < x->llm.nsites; i++) {
        const llm_site *site = &x->llm.sites[i];
        llm_call *call = (llm_call *)(uintptr_t)site->call;
        for (int f = 0; f < call->nfields; f++) {
            uint32_t texts = texts_of(s, site->args[f]);
            call->answer_texts[f] = BASE_MAX(call->answer_texts[f], texts);
            call->reads_answers = call->reads_answers || texts > 0;
        }
    }
}

static void visit(answer_search *s, const rel *x) {
    if (x == NULL || (x->kind == REL_SHARED && s->seen[x->shared.number]))
        return;
    if (x->kind == REL_SHARED)
        s->seen[x->shared.number] = true;
    visit(s, x->left);
    visit(s, x->right);
    note_calls(s, x);
    for (int i = 0; i < x->ncols; i++) {
        uint32_t texts = texts_made(s, x, i), *known = &s->texts[x->cols[i].id];
        s->changed = s->changed || texts > *known;
        *known = BASE_MAX(*known, texts);
    }
}

void rel_note_answer_fields(const rel *x, int next_id, int next_share) {
    answer_search s = {.texts = mem_zalloc(sizeof(uint32_t) * ((size_t)next_id + 1)),
                       .seen = mem_zalloc((size_t)next_share + 1),
                       .changed = true};
    while (s.changed) {
        s.changed = false;
        memset(s.seen, 0, (size_t)next_share + 1);
        visit(&s, x);
    }
    free(s.texts);
    free(s.seen);
}
