/*
 * explain_json.c - EXPLAIN (FORMAT JSON): one object per plan node, with its facts (describe.c),
 * estimate and measured figures.
 *
 *   {"plan": {"node": …, "columns": […], …, "estimate": {…}, "actual": {…}, "inputs": [{…}, …]},
 *    "examples": [{"call": 1, "plan": {…}}], "rules": [{"rule": …, "changed": …}], "total": {…}}
 *
 * Invariant: a fact has the same key in every node, numbers are JSON numbers, and no list or text
 * is shortened. Milliseconds and fractions are rounded.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "explain_int.h"

const char *plan_kind_name(plan_kind k) {
    static const char *const names[] = {
#define PLAN_NAME(id, operator, name) [PLAN_##id] = name,
        PLAN_KINDS(PLAN_NAME)
#undef PLAN_NAME
    };
    return names[k];
}

/* Adds milliseconds, rounded to microseconds. */
static void add_ms(cJSON *o, const char *key, double ms) {
    cJSON_AddNumberToObject(o, key, real_rounded(ms, 3));
}

/* Adds a fraction (0 to 1), rounded to 4 digits. */
static void add_share(cJSON *o, const char *key, double share) {
    cJSON_AddNumberToObject(o, key, real_rounded(share, 4));
}

static void add_tokens(cJSON *o, const plan_actual *a) {
    cJSON *list = cJSON_AddArrayToObject(o, "strategies");
    for (int i = 0; i < a->ntokens; i++) {
        const plan_tokens *t = &a->tokens[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToArray(list, one);
        cJSON_AddStringToObject(one, "strategy", t->strategy);
        cJSON_AddNumberToObject(one, "rows", (double)t->rows);
        cJSON_AddNumberToObject(one, "distinct_inputs", (double)t->llm.distinct_inputs);
        cJSON_AddNumberToObject(one, "prompt_tokens", (double)t->llm.prompt_tokens);
        cJSON_AddNumberToObject(one, "head_tokens", (double)t->llm.head_tokens);
        cJSON_AddNumberToObject(one, "computed_tokens", (double)t->llm.computed_tokens);
        cJSON_AddNumberToObject(one, "choice_tokens", (double)t->llm.choice_tokens);
        if (t->llm.money > 0)
            cJSON_AddNumberToObject(one, "money", t->llm.money);
        cJSON_AddNumberToObject(one, "known_answers", (double)t->llm.answers_repeated);
        cJSON_AddBoolToObject(one, "scaled", t->scaled);
        cJSON_AddBoolToObject(one, "at_most", t->at_most);
    }
}

static void add_run(cJSON *actual, const plan_actual *a) {
#define ADD_COUNTER(name, label, always, key)                                                      \
    if (*(key))                                                                                    \
        cJSON_AddNumberToObject(actual, key, (double)a->llm.name);
    LLM_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
    if (a->llm.money > 0)
        cJSON_AddNumberToObject(actual, "money", a->llm.money);
}

static void add_actual(cJSON *o, plan_kind kind, const plan_actual *a) {
    cJSON *actual = cJSON_AddObjectToObject(o, "actual");
    if (a->idle)
        cJSON_AddTrueToObject(actual, "never_executed");
    cJSON_AddNumberToObject(actual, "rows", (double)a->rows);
    add_ms(actual, "ms", a->ms);
    if (kind != PLAN_LLM_PIPELINE)
        return;
    bool counted = a->ntokens > 0; /* EXPLAIN (TOKENS): tokens were counted and no call was made */
    if (!counted)
        add_run(actual, a);
    fact_str((facts){NULL, actual}, NULL, "field_order", a->field_order);
    if (a->calibrated.n)
        fact_str((facts){NULL, actual}, NULL, "calibrated", a->calibrated);
    if (a->reordered.n)
        fact_str((facts){NULL, actual}, NULL, "asked", a->reordered);
    if (counted && !isnan(a->bound))
        add_share(actual, "bound", a->bound);
    add_tokens(actual, a);
}

static void add_estimate(cJSON *o, const char *key, const plan_estimate *e, bool llm) {
    cJSON *estimate = cJSON_AddObjectToObject(o, key);
    cJSON_AddNumberToObject(estimate, "rows", round(e->rows));
    add_ms(estimate, "cost_ms", e->cost_ms);
    cJSON_AddBoolToObject(estimate, "guess", e->guess);
    if (!llm)
        return;
    cJSON_AddNumberToObject(estimate, "distinct_inputs", round(e->distinct_inputs));
    cJSON_AddNumberToObject(estimate, "prompt_tokens", round(e->prompt_tokens));
    cJSON_AddNumberToObject(estimate, "computed_tokens", round(e->computed_tokens));
    add_share(estimate, "hit_rate", e->hit_rate);
    cJSON_AddNumberToObject(estimate, "choice_tokens", round(e->choice_tokens));
    cJSON_AddNumberToObject(estimate, "output_tokens", round(e->output_tokens));
    if (e->money > 0)
        cJSON_AddNumberToObject(estimate, "money", e->money);
    add_share(estimate, "selectivity", e->selectivity);
}

static cJSON *line_json(const explain_line *l, const plan_actual *actual) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "number", l->number);
    cJSON_AddStringToObject(o, "node", plan_kind_name(l->kind));
    fact_strs((facts){NULL, o}, NULL, "columns", l->node->names, l->ncols);
    describe_line((facts){NULL, o}, l);
    add_estimate(o, "estimate", l->estimate, l->kind == PLAN_LLM_PIPELINE);
    if (actual && actual[l->number].known)
        add_actual(o, l->kind, &actual[l->number]);
    return o;
}

/* Returns the object of a node's first line; each further line is the input of the line before it.
 * The tree below a shared relation is written only where it occurs first. */
static cJSON *node_json(const plan_node *n, const plan_actual *actual, bool *written) {
    explain_line line;
    bool again = written[n->number];
    written[n->number] = true;
    (void)explain_line_at(n, 0, &line);
    cJSON *top = line_json(&line, actual), *o = top;
    for (int i = 1; explain_line_at(n, i, &line); i++) {
        cJSON *below = line_json(&line, actual);
        cJSON_AddItemToArray(cJSON_AddArrayToObject(o, "inputs"), below);
        o = below;
    }
    if (!n->left || again || (n->kind == PLAN_SHARED && written[n->left->number]))
        return top;
    cJSON *inputs = cJSON_AddArrayToObject(o, "inputs");
    cJSON_AddItemToArray(inputs, node_json(n->left, actual, written));
    if (n->right)
        cJSON_AddItemToArray(inputs, node_json(n->right, actual, written));
    return top;
}

static void add_examples(cJSON *root, const plan *p, const plan_actual *actual, bool *written) {
    cJSON *list = NULL;
    for (int i = 0; i < p->stmt->ncalls; i++) {
        if (!p->examples[i])
            continue;
        list = list ? list : cJSON_AddArrayToObject(root, "examples");
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToArray(list, one);
        cJSON_AddNumberToObject(one, "call", p->stmt->calls[i]->number);
        cJSON_AddItemToObject(one, "plan", node_json(p->examples[i], actual, written));
    }
}

static void add_rules(cJSON *root, const plan *p) {
    cJSON *rules = cJSON_AddArrayToObject(root, "rules");
    for (int i = 0; i < p->nrules; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToArray(rules, one);
        cJSON_AddStringToObject(one, "rule", p->rules[i].name);
        cJSON_AddBoolToObject(one, "changed", p->rules[i].changed);
        for (int k = 0; k < p->nsavings; k++)
            if (strcmp(p->savings[k].rule, p->rules[i].name) == 0)
                add_ms(one, "saved_ms", p->savings[k].ms);
    }
}

/* Appends text with cJSON's tabs replaced: by two spaces at the beginning of a line, elsewhere by
 * one. Strings contain no tabs. */
static void append_indented(buf *out, const char *text) {
    bool begins = true;
    for (const char *p = text; *p; p++) {
        if (*p == '\t')
            buf_append_c(out, begins ? "  " : " ");
        else
            buf_append_char(out, *p);
        begins = *p == '\n' || (begins && *p == '\t');
    }
}

void plan_print_json(const plan *p, const plan_actual *actual, buf *out) {
    cJSON *root = cJSON_CreateObject();
    bool *written = mem_zalloc((size_t)p->nnodes + 1);
    if (p->root)
        cJSON_AddItemToObject(root, "plan", node_json(p->root, actual, written));
    add_examples(root, p, actual, written);
    add_rules(root, p);
    add_estimate(root, "total", &p->total, p->has_llm);
    char *text = cJSON_Print(root);
    if (text)
        append_indented(out, text);
    buf_append_char(out, '\n');
    free(text);
    free(written);
    cJSON_Delete(root);
}
