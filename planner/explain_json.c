/*
 * explain_json.c - EXPLAIN (FORMAT JSON): the same facts as explain.c prints, as one object a node.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

#include "planner_int.h"

static const char *kind_name(plan_kind k) {
    static const char *const names[] = {"values", "scan",  "file", "system_table", "filter", "project", "hash_join", "loop_join",
                                        "group",  "sort",  "limit", "distinct",     "setop",  "llm",     "shared",    "number",
                                        "residual"};
    return names[k];
}

static void add_str(cJSON *o, const char *key, str s) {
    char *text = mem_strndup(s.p, s.n);
    cJSON_AddStringToObject(o, key, text);
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
    for (int i = 0; i < n; i++) {
        str one = s[order ? order[i] : i];
        char *text = mem_strndup(one.p, one.n);
        cJSON_AddItemToArray(list, cJSON_CreateString(text));
        free(text);
    }
}

static void add_call(cJSON *list, const plan_llm_use *u) {
    static const char *const types[] = {"TEXT", "ENUM", "BOOLEAN", "INTEGER", "REAL"};
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddNumberToObject(o, "call", u->call->number);
    add_str(o, "instruction", u->call->instruction);
    add_strs(o, "fields", u->call->field_names, u->call->nfields, u->field_order);
    cJSON_AddStringToObject(o, "returns", types[u->call->returns]);
    cJSON_AddBoolToObject(o, "by_use", u->call->by_use);
    add_strs(o, "literals", u->call->literals, u->call->nliterals, NULL);
    add_expr(o, "guard", u->guard);
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
        cJSON_AddBoolToObject(one, "scaled", t->scaled);
    }
}

static void add_actual(cJSON *o, const plan_node *n, const plan_actual *a) {
    cJSON *actual = cJSON_AddObjectToObject(o, "actual");
    cJSON_AddNumberToObject(actual, "rows", (double)a->rows);
    cJSON_AddNumberToObject(actual, "ms", a->ms);
    if (n->kind != PLAN_LLM)
        return;
    cJSON_AddNumberToObject(actual, "distinct_inputs", (double)a->distinct_inputs);
    cJSON_AddNumberToObject(actual, "stored_answers", (double)a->stored_answers);
    cJSON_AddNumberToObject(actual, "prompt_tokens", (double)a->prompt_tokens);
    cJSON_AddNumberToObject(actual, "computed_tokens", (double)a->computed_tokens);
    cJSON_AddNumberToObject(actual, "reused_disk", (double)a->reused_disk);
    cJSON_AddNumberToObject(actual, "output_tokens", (double)a->output_tokens);
    add_str(actual, "field_order", a->field_order);
    add_tokens(actual, a);
}

static void add_estimate(cJSON *o, const plan_node *n) {
    const plan_estimate *e = &n->estimate;
    cJSON *estimate = cJSON_AddObjectToObject(o, "estimate");
    cJSON_AddNumberToObject(estimate, "rows", round(e->rows));
    cJSON_AddNumberToObject(estimate, "cost_ms", e->cost_ms);
    cJSON_AddBoolToObject(estimate, "guess", e->guess);
    if (n->kind != PLAN_LLM)
        return;
    cJSON_AddNumberToObject(estimate, "distinct_inputs", round(e->distinct_inputs));
    cJSON_AddNumberToObject(estimate, "prompt_tokens", round(e->prompt_tokens));
    cJSON_AddNumberToObject(estimate, "computed_tokens", round(e->computed_tokens));
    cJSON_AddNumberToObject(estimate, "hit_rate", e->hit_rate);
    cJSON_AddNumberToObject(estimate, "output_tokens", round(e->output_tokens));
}

static void add_details(cJSON *o, const plan_node *n) {
    cJSON *list;
    switch (n->kind) {
    case PLAN_SCAN:
        add_str(o, "table", n->scan.table->name);
        if (n->scan.index)
            add_str(o, "index", n->scan.index->name);
        add_exprs(o, "low", n->scan.low, n->scan.nlow);
        add_exprs(o, "high", n->scan.high, n->scan.nhigh);
        add_expr(o, "filter", n->scan.filter);
        break;
    case PLAN_FILE:
        add_str(o, "path", n->file.path);
        add_expr(o, "filter", n->file.filter);
        break;
    case PLAN_SYSTEM:
        add_str(o, "table", n->system.name);
        break;
    case PLAN_FILTER:
        add_expr(o, "predicate", n->filter.predicate);
        break;
    case PLAN_PROJECT:
        add_exprs(o, "exprs", n->project.exprs, n->ncols);
        break;
    case PLAN_HASH_JOIN:
    case PLAN_LOOP_JOIN:
        add_exprs(o, "left_keys", n->join.left_keys, n->join.nkeys);
        add_exprs(o, "right_keys", n->join.right_keys, n->join.nkeys);
        add_expr(o, "predicate", n->join.predicate);
        break;
    case PLAN_GROUP:
        add_exprs(o, "keys", n->group.keys, n->group.nkeys);
        break;
    case PLAN_LIMIT:
        cJSON_AddNumberToObject(o, "limit", (double)n->limit.limit);
        cJSON_AddNumberToObject(o, "offset", (double)n->limit.offset);
        break;
    case PLAN_LLM:
        list = cJSON_AddArrayToObject(o, "calls");
        for (int i = 0; i < n->llm.nuses; i++)
            add_call(list, &n->llm.uses[i]);
        break;
    default:
        break;
    }
}

static cJSON *node_json(const plan_node *n, const plan_actual *actual) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "node", kind_name(n->kind));
    add_strs(o, "columns", n->names, n->ncols, NULL);
    add_details(o, n);
    add_estimate(o, n);
    if (actual && actual[n->number].known)
        add_actual(o, n, &actual[n->number]);
    if (!n->left)
        return o;
    cJSON *inputs = cJSON_AddArrayToObject(o, "inputs");
    cJSON_AddItemToArray(inputs, node_json(n->left, actual));
    if (n->right)
        cJSON_AddItemToArray(inputs, node_json(n->right, actual));
    return o;
}

void plan_print_json(const plan *p, const plan_actual *actual, buf *out) {
    cJSON *root = cJSON_CreateObject();
    if (p->root)
        cJSON_AddItemToObject(root, "plan", node_json(p->root, actual));
    cJSON *rules = cJSON_AddArrayToObject(root, "rules");
    for (int i = 0; i < p->nrules; i++)
        if (p->rules[i].changed)
            cJSON_AddItemToArray(rules, cJSON_CreateString(p->rules[i].name));
    char *text = cJSON_Print(root);
    if (text)
        buf_append_c(out, text);
    buf_append_char(out, '\n');
    free(text);
    cJSON_Delete(root);
}
