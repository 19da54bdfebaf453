/*
 * explain_json.c - EXPLAIN (FORMAT JSON): the same facts as explain.c prints, and more, as one
 * object a node.
 *
 *   {"plan": {"node": …, "columns": […], …, "estimate": {…}, "actual": {…}, "inputs": [{…}, …]},
 *    "examples": [{"call": 1, "plan": {…}}], "rules": [{"rule": …, "changed": …}], "total": {…}}
 *
 * Invariant: a fact has one key wherever it occurs, numbers are numbers, and nothing is left out
 * for being long; but figures are rounded as people read them.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/planner.h"

const char *plan_kind_name(plan_kind k) {
    static const char *const names[] = {
#define PLAN_NAME(id, operator, name) [PLAN_##id] = name,
        PLAN_KINDS(PLAN_NAME)
#undef PLAN_NAME
    };
    return names[k];
}

static void add_str(cJSON *o, const char *key, str s) {
    char *text = mem_strndup(s.p, s.n);
    cJSON_AddStringToObject(o, key, text);
    free(text);
}

static void add_item(cJSON *list, str s) {
    char *text = mem_strndup(s.p, s.n);
    cJSON_AddItemToArray(list, cJSON_CreateString(text));
    free(text);
}

static void add_expr(cJSON *o, const char *key, const expr *x) {
    buf b = {0};
    if (!x)
        return;
    expr_print(x, &b);
    add_str(o, key, buf_str(&b));
    buf_free(&b);
}

static void add_exprs(cJSON *o, const char *key, expr *const *exprs, int n) {
    cJSON *list = cJSON_AddArrayToObject(o, key);
    for (int i = 0; i < n; i++) {
        buf b = {0};
        expr_print(exprs[i], &b);
        cJSON_AddItemToArray(list, cJSON_CreateString(b.p ? b.p : ""));
        buf_free(&b);
    }
}

static void add_strs(cJSON *o, const char *key, const str *s, int n, const uint8_t *order) {
    cJSON *list = cJSON_AddArrayToObject(o, key);
    for (int i = 0; i < n; i++)
        add_item(list, s[order ? order[i] : i]);
}

/* To the microsecond. */
static void add_ms(cJSON *o, const char *key, double ms) {
    cJSON_AddNumberToObject(o, key, real_rounded(ms, 3));
}

/* A part of a whole. */
static void add_share(cJSON *o, const char *key, double share) {
    cJSON_AddNumberToObject(o, key, real_rounded(share, 4));
}

static void add_call(cJSON *list, const plan_llm_use *u) {
    const llm_call *call = u->call;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddNumberToObject(o, "call", call->number);
    add_str(o, "instruction", call->instruction);
    add_strs(o, "fields", call->field_names, call->nfields, u->field_order);
    cJSON_AddStringToObject(o, "field_order", order_origin_name(u->order_origin));
    cJSON_AddStringToObject(o, "layout", u->data_first ? "data first" : "instruction first");
    add_exprs(o, "arguments", u->args, call->nfields);
    cJSON_AddStringToObject(o, "returns", llm_returns_name(call->returns));
    cJSON_AddBoolToObject(o, "by_use", call->by_use);
    add_strs(o, "literals", call->literals, call->nliterals, NULL);
    if (call->model.n)
        add_str(o, "model", call->model);
    if (call->max_tokens)
        cJSON_AddNumberToObject(o, "max_tokens", call->max_tokens);
    cJSON_AddBoolToObject(o, "examples", call->examples != NULL);
    cJSON_AddBoolToObject(o, "prob", u->prob_slot >= 0);
    add_expr(o, "guard", u->guard);
}

static void add_keys(cJSON *o, const sort_key *keys, int n) {
    cJSON *list = cJSON_AddArrayToObject(o, "keys");
    for (int i = 0; i < n; i++) {
        cJSON *key = cJSON_CreateObject();
        cJSON_AddItemToArray(list, key);
        add_expr(key, "value", keys[i].value);
        cJSON_AddBoolToObject(key, "descending", keys[i].descending);
        cJSON_AddBoolToObject(key, "nulls_first", keys[i].nulls_first);
    }
}

static void add_partition(cJSON *o, const plan_node *n, const int *slots, int count) {
    cJSON *list = count ? cJSON_AddArrayToObject(o, "partition") : NULL;
    for (int i = 0; i < count; i++)
        add_item(list, n->left->names[slots[i]]);
}

static void add_sort_keys(cJSON *o, const plan_node *n) {
    add_keys(o, n->sort.keys, n->sort.nkeys);
    if (n->sort.limit >= 0)
        cJSON_AddNumberToObject(o, "limit", (double)n->sort.limit);
    add_partition(o, n, n->sort.partition, n->sort.npartition);
}

static void add_windows(cJSON *o, const plan_node *n) {
    add_keys(o, n->window.keys, n->window.nkeys);
    cJSON *list = cJSON_AddArrayToObject(o, "functions");
    for (int i = 0; i < n->window.nfunctions; i++) {
        const rel_window *w = &n->window.functions[i];
        cJSON *one = cJSON_CreateObject();
        buf b = {0};
        cJSON_AddItemToArray(list, one);
        window_print(w, n->window.keys, true, &b);
        add_str(one, "function", buf_str(&b));
        buf_free(&b);
        add_exprs(one, "arguments", w->args, w->nargs);
        add_expr(one, "filter", w->filter);
        cJSON_AddNumberToObject(one, "partition_keys", w->npartition);
        cJSON_AddNumberToObject(one, "order_keys", w->nkeys - w->npartition);
    }
    if (n->window.limit >= 0)
        cJSON_AddNumberToObject(o, "limit", (double)n->window.limit);
    if (n->window.with_ties)
        cJSON_AddBoolToObject(o, "with_ties", true);
}

static void add_group(cJSON *o, const plan_node *n) {
    add_exprs(o, "keys", n->group.keys, n->group.nkeys);
    cJSON *list = cJSON_AddArrayToObject(o, "aggregates");
    for (int i = 0; i < n->group.naggs; i++) {
        const plan_agg *a = &n->group.aggs[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToArray(list, one);
        cJSON_AddStringToObject(one, "function", agg_kind_name(a->kind));
        cJSON_AddBoolToObject(one, "distinct", a->distinct);
        add_expr(one, "argument", a->arg);
        if (a->nkeys)
            add_keys(one, a->keys, a->nkeys);
        add_expr(one, "filter", a->filter);
    }
}

static void add_limit(cJSON *o, const plan_node *n) {
    if (n->limit.limit >= 0)
        cJSON_AddNumberToObject(o, "limit", (double)n->limit.limit);
    cJSON_AddNumberToObject(o, "offset", (double)n->limit.offset);
    add_partition(o, n, n->limit.partition, n->limit.npartition);
}

static void add_scan(cJSON *o, const plan_node *n) {
    add_str(o, "table", n->scan.table->name);
    if (n->scan.alias.n)
        add_str(o, "alias", n->scan.alias);
    if (n->scan.index)
        add_str(o, "index", n->scan.index->name);
    if (n->scan.ordered)
        cJSON_AddBoolToObject(o, "descending", n->scan.descending);
    if (n->scan.nlow) {
        add_exprs(o, "low", n->scan.low, n->scan.nlow);
        cJSON_AddBoolToObject(o, "low_inclusive", n->scan.low_inclusive);
    }
    if (n->scan.nhigh) {
        add_exprs(o, "high", n->scan.high, n->scan.nhigh);
        cJSON_AddBoolToObject(o, "high_inclusive", n->scan.high_inclusive);
    }
    if (n->scan.nin) {
        add_exprs(o, "in", n->scan.in, n->scan.nin);
        cJSON_AddNumberToObject(o, "in_at", n->scan.in_at);
    }
    add_expr(o, "filter", n->scan.filter);
}

static void add_llm(cJSON *o, const plan_node *n) {
    cJSON *list = cJSON_AddArrayToObject(o, "calls");
    for (int i = 0; i < n->llm.nuses; i++)
        add_call(list, &n->llm.uses[i]);
    if (n->llm.wanted > 0)
        cJSON_AddNumberToObject(o, "wanted", (double)n->llm.wanted);
    if (n->llm.partner) {
        add_exprs(o, "theirs", n->llm.theirs, n->llm.nown);
        add_exprs(o, "own", n->llm.own, n->llm.nown);
    }
    if (n->llm.each == 0)
        return;
    cJSON_AddNumberToObject(o, "each", (double)n->llm.each);
    add_exprs(o, "by", n->llm.by, n->llm.nby);
    if (n->llm.norder > 0)
        add_keys(o, n->llm.order, n->llm.norder);
    if (n->llm.with_ties)
        cJSON_AddBoolToObject(o, "with_ties", true);
}

static void add_tokens(cJSON *o, const plan_actual *a) {
    cJSON *list = cJSON_AddArrayToObject(o, "strategies");
    for (int i = 0; i < a->ntokens; i++) {
        const plan_tokens *t = &a->tokens[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToArray(list, one);
        cJSON_AddStringToObject(one, "strategy", t->strategy);
        cJSON_AddNumberToObject(one, "rows", (double)t->rows);
        cJSON_AddNumberToObject(one, "distinct_inputs", (double)t->distinct_inputs);
        cJSON_AddNumberToObject(one, "prompt_tokens", (double)t->prompt_tokens);
        cJSON_AddNumberToObject(one, "head_tokens", (double)t->head_tokens);
        cJSON_AddNumberToObject(one, "computed_tokens", (double)t->computed_tokens);
        cJSON_AddNumberToObject(one, "known_answers", (double)t->known_answers);
        cJSON_AddBoolToObject(one, "scaled", t->scaled);
        cJSON_AddBoolToObject(one, "at_most", t->at_most);
    }
}

/* What the model did. */
static void add_run(cJSON *actual, const plan_actual *a) {
    cJSON_AddNumberToObject(actual, "distinct_inputs", (double)a->distinct_inputs);
    cJSON_AddNumberToObject(actual, "stored_answers", (double)a->stored_answers);
    cJSON_AddNumberToObject(actual, "known_answers", (double)a->known_answers);
    cJSON_AddNumberToObject(actual, "prompt_tokens", (double)a->prompt_tokens);
    cJSON_AddNumberToObject(actual, "computed_tokens", (double)a->computed_tokens);
    cJSON_AddNumberToObject(actual, "reused_disk", (double)a->reused_disk);
    cJSON_AddNumberToObject(actual, "output_tokens", (double)a->output_tokens);
}

static void add_actual(cJSON *o, const plan_node *n, const plan_actual *a) {
    cJSON *actual = cJSON_AddObjectToObject(o, "actual");
    if (a->idle)
        cJSON_AddTrueToObject(actual, "never_executed");
    cJSON_AddNumberToObject(actual, "rows", (double)a->rows);
    add_ms(actual, "ms", a->ms);
    if (n->kind != PLAN_LLM)
        return;
    bool counted = a->ntokens > 0; /* (TOKENS): it was not asked, and strategies have the figures */
    if (!counted)
        add_run(actual, a);
    add_str(actual, "field_order", a->field_order);
    if (a->reordered.n)
        add_str(actual, "asked", a->reordered);
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
    cJSON_AddNumberToObject(estimate, "output_tokens", round(e->output_tokens));
    add_share(estimate, "selectivity", e->selectivity);
}

static void add_join(cJSON *o, const plan_node *n) {
    cJSON_AddStringToObject(o, "join", join_kind_name(n->join.kind));
    add_exprs(o, "left_keys", n->join.left_keys, n->join.nkeys);
    add_exprs(o, "right_keys", n->join.right_keys, n->join.nkeys);
    cJSON_AddBoolToObject(o, "null_safe", n->join.null_safe);
    cJSON_AddBoolToObject(o, "ranges", n->join.nranges > 0);
    if (n->join.nranges == 1 && n->join.ranges->first > 0)
        cJSON_AddNumberToObject(o, "limit", (double)n->join.ranges->first);
    add_expr(o, "predicate", n->join.predicate);
}

static void add_details(cJSON *o, const plan_node *n) {
    switch (n->kind) {
    case PLAN_VALUES:
        cJSON_AddNumberToObject(o, "rows", n->values.nrows);
        break;
    case PLAN_SCAN:
        add_scan(o, n);
        break;
    case PLAN_FILE:
        add_str(o, "path", n->file.path);
        add_expr(o, "filter", n->file.filter);
        break;
    case PLAN_SYSTEM:
        add_str(o, "table", n->system.name);
        break;
    case PLAN_SERIES:
        cJSON_AddNumberToObject(o, "first", (double)n->series.first);
        cJSON_AddNumberToObject(o, "step", (double)n->series.step);
        break;
    case PLAN_FILTER:
        add_expr(o, "predicate", n->filter.predicate);
        break;
    case PLAN_PROJECT:
        add_exprs(o, "exprs", n->project.exprs, n->ncols);
        break;
    case PLAN_HASH_JOIN:
    case PLAN_LOOP_JOIN:
        add_join(o, n);
        break;
    case PLAN_GROUP:
        add_group(o, n);
        break;
    case PLAN_SORT:
        add_sort_keys(o, n);
        break;
    case PLAN_LIMIT:
        add_limit(o, n);
        break;
    case PLAN_SETOP:
        cJSON_AddStringToObject(o, "operation", set_op_name(n->setop.op));
        break;
    case PLAN_LLM:
        add_llm(o, n);
        break;
    case PLAN_SHARED:
        cJSON_AddNumberToObject(o, "shared", n->shared.number);
        break;
    case PLAN_WINDOW:
        add_windows(o, n);
        break;
    case PLAN_RECURSIVE:
        cJSON_AddNumberToObject(o, "recursion", n->recursive.number);
        cJSON_AddBoolToObject(o, "distinct", n->recursive.distinct);
        break;
    case PLAN_WORKING:
        cJSON_AddNumberToObject(o, "recursion", n->working.number);
        break;
    case PLAN_RESIDUAL:
        add_expr(o, "predicate", n->residual.predicate);
        break;
    case PLAN_DISTINCT:
    case PLAN_NUMBER:
        break;
    }
}

/* The tree under a shared relation is written where it occurs first. */
static cJSON *node_json(const plan_node *n, const plan_actual *actual, bool *written) {
    cJSON *o = cJSON_CreateObject();
    bool again = written[n->number];
    written[n->number] = true;
    cJSON_AddNumberToObject(o, "number", n->number);
    cJSON_AddStringToObject(o, "node", plan_kind_name(n->kind));
    add_strs(o, "columns", n->names, n->ncols, NULL);
    add_details(o, n);
    add_estimate(o, "estimate", &n->estimate, n->kind == PLAN_LLM);
    if (actual && actual[n->number].known)
        add_actual(o, n, &actual[n->number]);
    if (!n->left || again || (n->kind == PLAN_SHARED && written[n->left->number]))
        return o;
    cJSON *inputs = cJSON_AddArrayToObject(o, "inputs");
    cJSON_AddItemToArray(inputs, node_json(n->left, actual, written));
    if (n->right)
        cJSON_AddItemToArray(inputs, node_json(n->right, actual, written));
    return o;
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

/* cJSON's tabs as two spaces where they begin a line, else as one; inside texts there are none. */
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
