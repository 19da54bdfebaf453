/*
 * describe.c - writes the facts of each kind of plan node and of LLM calls to EXPLAIN's text and
 * JSON.
 *
 * Invariant: the same calls write text and JSON, in the order of the text. Estimates and measured
 * figures are written by explain.c and explain_json.c.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "explain_int.h"

enum {
    PROMPT_WIDTH = 50, /* screen columns shown of an instruction */
    EXPRS_SHOWN = 8,   /* expressions shown of a list of more than EXPRS_SHOWN + 2 */
    LITERALS_SHOWN = 6 /* literals shown of an ENUM of more than LITERALS_SHOWN + 2 */
};

/* ---- writing facts --------------------------------------------------------------------------- */

void fact_name(facts f, const char *before, const char *key, const char *name) {
    if (f.text && before)
        buf_printf(f.text, "%s%s", before, name);
    if (f.json && key)
        cJSON_AddStringToObject(f.json, key, name);
}

void fact_str(facts f, const char *before, const char *key, str s) {
    char *name = mem_strndup(s.p, s.n);
    fact_name(f, before, key, name);
    free(name);
}

void fact_number(facts f, const char *before, const char *key, int64_t n) {
    if (f.text && before)
        buf_printf(f.text, "%s%" PRId64, before, n);
    if (f.json && key)
        cJSON_AddNumberToObject(f.json, key, (double)n);
}

void fact_bool(facts f, const char *before, const char *key, bool on) {
    if (f.text && before && on)
        buf_append_c(f.text, before);
    if (f.json && key)
        cJSON_AddBoolToObject(f.json, key, on);
}

void fact_expr(facts f, const char *before, const char *key, const expr *x) {
    buf text = {0};
    if (!x)
        return;
    expr_print(x, &text);
    fact_str(f, before, key, buf_str(&text));
    buf_free(&text);
}

static void list_item(cJSON *list, str s) {
    char *text = mem_strndup(s.p, s.n);
    cJSON_AddItemToArray(list, cJSON_CreateString(text));
    free(text);
}

void fact_strs(facts f, const char *before, const char *key, const str *s, int n) {
    cJSON *list = f.json && key ? cJSON_AddArrayToObject(f.json, key) : NULL;
    for (int i = 0; i < n; i++) {
        if (list)
            list_item(list, s[i]);
        if (before)
            fact_words(f, "%s%.*s", i ? ", " : before, (int)s[i].n, s[i].p);
    }
}

void fact_exprs(facts f, const char *before, const char *key, expr *const *exprs, int n) {
    cJSON *list = f.json && key ? cJSON_AddArrayToObject(f.json, key) : NULL;
    bool all = n <= EXPRS_SHOWN + 2;
    for (int i = 0; i < n; i++) {
        buf text = {0};
        expr_print(exprs[i], &text);
        if (list)
            list_item(list, buf_str(&text));
        if (before && (all || i < EXPRS_SHOWN))
            fact_words(f, "%s%s", i ? ", " : before, text.p ? text.p : "");
        buf_free(&text);
    }
    if (before && !all)
        fact_words(f, ", … %d more", n - EXPRS_SHOWN);
}

void fact_keys(facts f, const char *before, const char *key, const sort_key *keys, int n) {
    facts list = key ? fact_list(f, key) : (facts){0};
    if (f.text && before)
        sort_keys_print(before, keys, n, f.text);
    for (int i = 0; i < n && list.json; i++) {
        facts one = fact_item(list);
        fact_expr(one, NULL, "value", keys[i].value);
        fact_bool(one, NULL, "descending", keys[i].descending);
        fact_bool(one, NULL, "nulls_first", keys[i].nulls_first);
    }
}

facts fact_list(facts f, const char *key) {
    return (facts){f.text, f.json ? cJSON_AddArrayToObject(f.json, key) : NULL};
}

facts fact_item(facts list) {
    cJSON *item = list.json ? cJSON_CreateObject() : NULL;
    if (item)
        cJSON_AddItemToArray(list.json, item);
    return (facts){list.text, item};
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Writes bounds as `a = 1`, `a > 1`, `a <= 3` or `1 < a <= 3`; low or high may be NULL. */
static void describe_range(facts f, str name, const expr *low, bool with_low, const expr *high,
                           bool with_high) {
    bool equal = low && high && expr_equal(low, high);
    if (low && high && !equal) {
        fact_expr(f, "", NULL, low);
        fact_words(f, with_low ? " <= " : " < ");
    }
    fact_str(f, "", NULL, name);
    if (equal || !high)
        fact_expr(f, equal ? " = " : with_low ? " >= " : " > ", NULL, low);
    else
        fact_expr(f, with_high ? " <= " : " < ", NULL, high);
}

static void describe_bounds(facts f, const plan_node *n) {
    int parts = BASE_MAX(n->scan.nlow, n->scan.nhigh);
    for (int i = 0; i < parts; i++) {
        const expr *low = i < n->scan.nlow ? n->scan.low[i] : NULL,
                   *high = i < n->scan.nhigh ? n->scan.high[i] : NULL;
        int at = n->scan.index ? n->scan.index->columns[i] : n->scan.table->rowid_column;
        str name = at >= 0 ? n->scan.table->columns[at].name : STR("rowid");
        fact_words(f, i ? ", " : " [");
        if (n->scan.nin > 0 && n->scan.in_at == i) {
            fact_str(f, "", NULL, name);
            fact_words(f, " IN %d value%s", n->scan.nin, n->scan.nin == 1 ? "" : "s");
        } else {
            describe_range(f, name, low, n->scan.low_inclusive || i + 1 < n->scan.nlow, high,
                           n->scan.high_inclusive || i + 1 < n->scan.nhigh);
        }
    }
    if (parts)
        fact_words(f, "]");
}

static void describe_scan(facts f, const plan_node *n) {
    bool keyed = n->scan.nlow + n->scan.nhigh > 0;
    fact_str(f,
             n->scan.index ? "Index scan "
             : keyed       ? "Key scan "
                           : "Scan ",
             "table", n->scan.table->name);
    if (n->scan.alias.n)
        fact_str(f, str_equal_nocase(n->scan.alias, n->scan.table->name) ? NULL : " ", "alias",
                 n->scan.alias);
    if (n->scan.index) {
        fact_str(f, " by ", "index", n->scan.index->name);
        fact_words(f, n->scan.index->name.n ? "" : "primary key");
    }
    if (n->scan.ordered) {
        fact_words(f, n->scan.descending ? ", descending" : ", in its order");
        fact_bool(f, NULL, "descending", n->scan.descending);
    }
    if (f.text)
        describe_bounds(f, n);
    if (n->scan.nlow) {
        fact_exprs(f, NULL, "low", n->scan.low, n->scan.nlow);
        fact_bool(f, NULL, "low_inclusive", n->scan.low_inclusive);
    }
    if (n->scan.nhigh) {
        fact_exprs(f, NULL, "high", n->scan.high, n->scan.nhigh);
        fact_bool(f, NULL, "high_inclusive", n->scan.high_inclusive);
    }
    if (n->scan.nin) {
        fact_exprs(f, NULL, "in", n->scan.in, n->scan.nin);
        fact_number(f, NULL, "in_at", n->scan.in_at);
    }
    fact_expr(f, " where ", "filter", n->scan.filter);
}

static void describe_join(facts f, const plan_node *n) {
    if (n->join.nearest) {
        fact_number(f, "Top-k join ", "limit", n->join.nearest);
        fact_expr(f, " by ", "distance", n->join.distance);
        return;
    }
    const char *how = n->kind == PLAN_LOOP_JOIN ? n->join.nranges ? "Range" : "Loop"
                      : n->join.keyed           ? "Index"
                                                : "Hash";
    bool inner = n->join.kind == JOIN_INNER, first = n->join.nranges == 1 && n->join.ranges->first;
    const char *between = " ";
    fact_words(f, "%s ", how);
    fact_name(f, inner ? NULL : "", "join", join_kind_name(n->join.kind));
    fact_words(f, inner ? "join" : " join");
    facts text = {f.text, NULL};
    for (int i = 0; i < n->join.nkeys; i++, between = " and ") {
        fact_expr(text, between, NULL, n->join.left_keys[i]);
        fact_expr(text, n->join.null_safe ? " is " : " = ", NULL, n->join.right_keys[i]);
    }
    fact_exprs(f, NULL, "left_keys", n->join.left_keys, n->join.nkeys);
    fact_exprs(f, NULL, "right_keys", n->join.right_keys, n->join.nkeys);
    fact_bool(f, NULL, "null_safe", n->join.null_safe);
    fact_bool(f, NULL, "ranges", n->join.nranges > 0);
    if (first)
        fact_number(f, NULL, "limit", n->join.ranges->first);
    fact_expr(f, between, "predicate", n->join.predicate);
    if (first) {
        fact_number(text, n->join.ranges->downward ? ", last " : ", first ", NULL,
                    n->join.ranges->first);
        fact_expr(text, " by ", NULL, n->join.ranges->right);
    }
}

static void describe_group(facts f, const plan_node *n) {
    fact_words(f, n->group.nkeys ? "Group by " : "Aggregate");
    fact_exprs(f, "", "keys", n->group.keys, n->group.nkeys);
    facts list = fact_list(f, "aggregates");
    for (int i = 0; i < n->group.naggs; i++) {
        const plan_agg *a = &n->group.aggs[i];
        facts one = fact_item(list);
        fact_name(one,
                  i == 0 && n->group.nkeys ? ": "
                  : i                      ? ", "
                                           : " ",
                  "function", agg_kind_name(a->kind));
        fact_words(one, "(");
        fact_bool(one, "distinct ", "distinct", a->distinct);
        fact_words(one, a->arg ? "" : "*");
        fact_expr(one, "", "argument", a->arg);
        if (a->nkeys)
            fact_keys(one, " order by ", "keys", a->keys, a->nkeys);
        fact_words(one, ")");
        fact_expr(one, " filter ", "filter", a->filter);
    }
}

/* Writes the names of the partition columns, which are slots of the node's input. */
static void describe_partition(facts f, const char *before, const char *key, const plan_node *n,
                               const int *slots, int count) {
    str *names = mem_alloc(sizeof *names * ((size_t)count + 1));
    for (int i = 0; i < count; i++)
        names[i] = n->left->names[slots[i]];
    if (count)
        fact_strs(f, before, key, names, count);
    free(names);
}

static void describe_nearest(facts f, const plan_node *n) {
    fact_number(f, "Top-k scan ", "limit", n->nearest.limit);
    fact_expr(f, " by ", "distance", n->nearest.distance);
    if (n->nearest.exact)
        fact_name(f, ", exact: ", "exact", n->nearest.exact);
    if (!n->nearest.index)
        return;
    fact_str(f, " with ", "index", n->nearest.index->name);
    fact_number(f, " of ", "lists", n->nearest.index->lists->n);
    fact_words(f, " lists");
}

static void describe_sort(facts f, const plan_node *n) {
    if (n->kind == PLAN_NEAREST || n->kind == PLAN_LISTS) {
        describe_nearest(f, n);
        return;
    }
    bool limited = n->sort.limit >= 0;
    if (limited)
        fact_number(f, "Top ", NULL, n->sort.limit);
    fact_words(f, limited ? "" : "Sort");
    describe_partition(f, " per ", NULL, n, n->sort.partition, n->sort.npartition);
    fact_keys(f, " by ", "keys", n->sort.keys, n->sort.nkeys);
    if (limited)
        fact_number(f, NULL, "limit", n->sort.limit);
    describe_partition(f, NULL, "partition", n, n->sort.partition, n->sort.npartition);
}

static void describe_limit(facts f, const plan_node *n) {
    fact_words(f, "Limit");
    if (n->limit.limit >= 0)
        fact_number(f, " ", "limit", n->limit.limit);
    fact_number(f, n->limit.offset > 0 ? " offset " : NULL, "offset", n->limit.offset);
    describe_partition(f, " per ", "partition", n, n->limit.partition, n->limit.npartition);
}

static bool same_window(const rel_window *a, const rel_window *b) {
    return a->npartition == b->npartition && a->nkeys == b->nkeys &&
           window_frame_equal(&a->frame, &b->frame);
}

/* Writes window functions. In the text, functions of the same window share one OVER:
 * "rank(), lag(x, 1) over (…), sum(y) over (…)". */
static void describe_windows(facts f, const plan_node *n) {
    fact_keys(f, NULL, "keys", n->window.keys, n->window.nkeys);
    facts list = fact_list(f, "functions");
    for (int i = 0; i < n->window.nfunctions; i++) {
        const rel_window *w = &n->window.functions[i];
        bool last = i + 1 == n->window.nfunctions || !same_window(w, w + 1);
        facts one = fact_item(list);
        buf function = {0};
        window_print(w, n->window.keys, last || f.json, &function);
        fact_str(one, i ? ", " : "Window ", "function", buf_str(&function));
        buf_free(&function);
        fact_exprs(one, NULL, "arguments", w->args, w->nargs);
        fact_expr(one, NULL, "filter", w->filter);
        fact_number(one, NULL, "partition_keys", w->npartition);
        fact_number(one, NULL, "order_keys", w->nkeys - w->npartition);
    }
    if (n->window.limit >= 0)
        fact_number(f, ", first ", "limit", n->window.limit);
    if (n->window.with_ties)
        fact_bool(f, " with ties", "with_ties", true);
    if (n->window.limit >= 0 && n->window.functions[0].npartition)
        fact_words(f, " of each partition");
}

static void describe_setop(facts f, const plan_node *n) {
    const char *name = set_op_name(n->setop.op);
    fact_words(f, "%c%s", toupper((unsigned char)*name), name + 1);
    fact_name(f, NULL, "operation", name);
}

static void describe_values(facts f, const plan_node *n) {
    fact_number(f, "Values (", "rows", n->values.nrows);
    fact_words(f, n->values.nrows == 1 ? " row)" : " rows)");
}

static void describe_series(facts f, const series *s) {
    fact_number(f, "Series from ", "first", s->first);
    fact_number(f, " by ", "step", s->step);
}

static void describe_recursive(facts f, const plan_node *n) {
    fact_number(f, n->recursive.distinct ? "Recursive union #" : "Recursive union all #",
                "recursion", n->recursive.number);
    fact_bool(f, NULL, "distinct", n->recursive.distinct);
}

static void describe_split(facts f, const plan_node *n) {
    fact_expr(f, n->split.spec.chunks ? "Chunks of " : "Parts of ", "text", n->split.text);
    if (n->split.separator)
        fact_expr(f, " between ", "separator", n->split.separator);
    if (n->split.spec.chunks)
        fact_number(f, ", tokens ", "tokens", n->split.spec.tokens);
    if (n->split.spec.overlap > 0)
        fact_number(f, ", overlap ", "overlap", n->split.spec.overlap);
}

/* ---- LLM nodes ------------------------------------------------------------------------------- */

static void describe_type(facts f, const llm_call *call) {
    int n = call->nliterals;
    bool all = n <= LITERALS_SHOWN + 2;
    fact_name(f, call->returns == RETURNS_VECTOR ? NULL : " RETURNS ", "returns",
              llm_returns_name(call->returns));
    if (call->returns == RETURNS_ENUM && f.text) {
        buf_append_char(f.text, '(');
        for (int i = 0; i < n && (all || i < LITERALS_SHOWN); i++) {
            buf_append_c(f.text, i ? ", " : "");
            value_print_sql(f.text, value_text(call->literals[i]));
        }
        if (!all)
            fact_words(f, ", … %d more", n - LITERALS_SHOWN);
        fact_words(f, ")");
    } else if (call->returns == RETURNS_INTEGER && n > 0) {
        fact_str((facts){f.text, NULL}, " BETWEEN ", NULL, call->literals[0]);
        fact_str((facts){f.text, NULL}, " AND ", NULL, call->literals[n - 1]);
    }
    fact_bool(f, " by use", "by_use", call->by_use);
    fact_strs(f, NULL, "literals", call->literals, n);
}

/* Writes an instruction; to the text at most PROMPT_WIDTH columns of it, on one line. */
static void describe_instruction(facts f, str text) {
    size_t fit = utf8_fit(text, PROMPT_WIDTH);
    fact_str(f, NULL, "instruction", text);
    fact_words(f, " '");
    for (size_t i = 0; i < fit; i++)
        fact_words(f, "%c", text.p[i] == '\n' ? ' ' : text.p[i]);
    fact_words(f, fit < text.n ? "…' (" : "' (");
}

/* Writes to JSON the numbers of the calls whose answers some field is computed from. */
static void describe_reads(facts f, const plan_call_site *u) {
    cJSON *list = f.json ? cJSON_AddArrayToObject(f.json, "reads") : NULL;
    for (int k = 0; k < u->call->nfields && list; k++)
        for (int i = 0; i < u->reads[k].n; i++) {
            const cJSON *item = list->child;
            while (item && item->valueint != u->reads[k].calls[i])
                item = item->next;
            if (!item)
                cJSON_AddItemToArray(list, cJSON_CreateNumber(u->reads[k].calls[i]));
        }
}

/* Writes the fields in parentheses; of a call that goes on from another, its own. */
static void describe_fields(facts f, const plan_call_site *u, bool as_written) {
    const llm_call *call = u->call;
    int first = call->after ? call->after->nfields + 1 : 0, n = call->nfields - first;
    str *fields = mem_alloc(sizeof *fields * ((size_t)call->nfields + 1));
    as_written = as_written || call->after;
    for (int k = 0; k < n; k++)
        fields[k] = call->field_names[as_written ? first + k : u->field_order[k]];
    if (call->after)
        fact_number(f, "after #", "after", call->after->number);
    fact_strs(f, call->after && n > 0 ? "; " : "", "fields", fields, n);
    fact_name(f, call->nfields > 1 && !as_written ? "; " : NULL, "field_order",
              order_origin_name(u->order_origin));
    fact_name(f, NULL, "layout", u->data_first ? "data first" : "instruction first");
    fact_words(f, u->data_first && !as_written ? ", before the instruction)" : ")");
    free(fields);
}

void describe_call(facts f, const plan_call_site *u, bool as_written) {
    const llm_call *call = u->call;
    fact_number(f, "#", "call", call->number);
    if (call->field.n)
        fact_str(f, " ", "field", call->field);
    if (call->written_as.n)
        fact_str(f, " ", "written_as", call->written_as);
    if (call->returns == RETURNS_VECTOR)
        fact_words(f, "(");
    else
        describe_instruction(f, call->instruction);
    describe_fields(f, u, as_written);
    fact_exprs(f, NULL, "arguments", u->args, call->nfields);
    describe_reads(f, u);
    describe_type(f, call);
    fact_words(f, call->examples ? " with examples" : "");
    if (call->model.n)
        fact_str(f, " by ", "model", call->model);
    _Static_assert(LLM_AUTO_INPUTS == 32, "the text below has the number");
    if (llm_call_is_calibrated(call))
        fact_bool(
            f, call->calibrate == CALIBRATE_AUTO ? ", calibrated from 32 inputs" : ", calibrated",
            "calibrated", true);
    if (call->blends) {
        static const char *const rules[] = {[BLEND_EDGES] = "edges",
                                            [BLEND_DEVIATION] = "deviation",
                                            [BLEND_QUESTION] = "question"};
        BASE_COVERS(rules, BLENDS);
        fact_words(f, ", contexts blended (%g %% by ", 100 * call->blend_share);
        fact_name(f, "", "blend_rule", rules[call->blend_rule]);
        fact_words(f, ")");
    }
    if (call->max_tokens)
        fact_number(f, NULL, "max_tokens", call->max_tokens);
    if (call->on_error == ON_ERROR_NULL) {
        buf otherwise = {0};
        value_print_sql(&otherwise, call->otherwise);
        fact_str(f, ", ", "on_error", buf_str(&otherwise));
        fact_words(f, " on error");
        buf_free(&otherwise);
    }
    fact_bool(f, NULL, "examples", call->examples != NULL);
    fact_bool(f, NULL, "prob", u->nprobs > 0);
    fact_expr(f, " only where ", "guard", u->guard);
}

static void describe_rows(facts f, const char *before, const char *key, int64_t rows) {
    fact_number(f, before, key, rows);
    fact_words(f, rows == 1 ? " row" : " rows");
}

static void describe_demand(facts f, const plan_demand *d) {
    const char *waves = d->semi_join.partner ? ", in waves for " : " in waves for ";
    facts text = {f.text, NULL};
    for (int i = 0; i < d->semi_join.nkeys; i++) {
        fact_expr(text, i ? " and " : " only where ", NULL, d->semi_join.partner_keys[i]);
        fact_expr(text, d->semi_join.nulls_match ? " is " : " = ", NULL, d->semi_join.keys[i]);
    }
    if (d->limit_hint > 0)
        describe_rows(f, waves, "wanted", d->limit_hint);
    if (d->semi_join.partner) {
        fact_exprs(f, NULL, "theirs", d->semi_join.partner_keys, d->semi_join.nkeys);
        fact_exprs(f, NULL, "own", d->semi_join.keys, d->semi_join.nkeys);
    }
    if (d->top_n.n == 0)
        return;
    describe_rows(f, d->limit_hint > 0 ? ", " : waves, "each", d->top_n.n);
    fact_words(f, d->top_n.with_ties ? " with ties" : "");
    fact_exprs(f, " per ", "by", d->top_n.keys, d->top_n.nkeys);
    if (d->top_n.norder > 0)
        fact_keys(f, " by ", "keys", d->top_n.order, d->top_n.norder);
    if (d->top_n.with_ties)
        fact_bool(f, NULL, "with_ties", true);
}

static void describe_stage(facts f, const plan_stage *t, const plan_demand *d) {
    facts list = f.json ? fact_list(f, "calls") : (facts){0};
    fact_words(f, "LLM");
    for (int i = 0; i < t->nsites && list.json; i++)
        describe_call(fact_item(list), &t->sites[i], false);
    describe_demand(f, d);
}

/* ---- all kinds ------------------------------------------------------------------------------- */

static void describe_filter(facts f, const expr *predicate) {
    fact_expr(f, "Filter ", "predicate", predicate);
}

static void describe_node(facts f, const plan_node *n) {
    switch (n->kind) {
    case PLAN_VALUES:
        describe_values(f, n);
        return;
    case PLAN_SCAN:
        describe_scan(f, n);
        return;
    case PLAN_FILE:
        fact_str(f, "File ", "path", n->file.path);
        fact_expr(f, " where ", "filter", n->file.filter);
        return;
    case PLAN_SYSTEM:
        fact_str(f, "System table ", "table", n->system.name);
        return;
    case PLAN_SERIES:
        describe_series(f, &n->series);
        return;
    case PLAN_FILTER:
        describe_filter(f, n->filter.predicate);
        return;
    case PLAN_PROJECT:
        fact_words(f, "Project ");
        fact_exprs(f, "", "exprs", n->project.exprs, n->ncols);
        return;
    case PLAN_HASH_JOIN:
    case PLAN_LOOP_JOIN:
        describe_join(f, n);
        return;
    case PLAN_GROUP:
        describe_group(f, n);
        return;
    case PLAN_SORT:
    case PLAN_NEAREST:
    case PLAN_LISTS:
        describe_sort(f, n);
        return;
    case PLAN_LIMIT:
        describe_limit(f, n);
        return;
    case PLAN_DISTINCT:
        fact_words(f, "Distinct");
        return;
    case PLAN_SETOP:
        describe_setop(f, n);
        return;
    case PLAN_LLM_PIPELINE: /* describe_line writes its lines */
        return;
    case PLAN_SHARED:
        fact_number(f, "Shared #", "shared", n->shared.number);
        return;
    case PLAN_SPLIT:
        describe_split(f, n);
        return;
    case PLAN_NUMBER:
        fact_words(f, "Number rows");
        return;
    case PLAN_WINDOW:
        describe_windows(f, n);
        return;
    case PLAN_RECURSIVE:
        describe_recursive(f, n);
        return;
    case PLAN_WORKING:
        fact_number(f, "Working rows of #", "recursion", n->working.number);
        return;
    case PLAN_RESIDUAL:
        fact_expr(f, "Keep pairs where ", "predicate", n->residual.predicate);
        return;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

bool explain_line_at(const plan_node *n, int i, explain_line *out) {
    *out = (explain_line){.node = n, .filter = -1};
    if (n->kind != PLAN_LLM_PIPELINE) {
        out->kind = n->kind;
        out->number = n->number;
        out->ncols = n->ncols;
        out->estimate = &n->estimate;
        return i == 0;
    }
    int at = n->pipeline.nstages - 1;
    for (; at >= 0 && i > n->pipeline.stages[at].nfilters; at--)
        i -= n->pipeline.stages[at].nfilters + 1;
    if (at < 0)
        return false;
    const plan_stage *t = out->stage = &n->pipeline.stages[at];
    out->filter = t->nfilters - 1 - i;
    bool calls = out->filter < 0;
    out->kind = calls ? PLAN_LLM_PIPELINE : PLAN_FILTER;
    out->number = calls ? t->number : t->filter_numbers[out->filter];
    out->ncols = t->ncols;
    out->estimate = calls ? &t->estimate : &t->filter_estimates[out->filter];
    return true;
}

void describe_line(facts f, const explain_line *l) {
    if (!l->stage)
        describe_node(f, l->node);
    else if (l->filter >= 0)
        describe_filter(f, l->stage->filters[l->filter]);
    else
        describe_stage(f, l->stage, &l->node->pipeline.demand);
}
