/*
 * explain.c - plans as people read them: one node a line, its facts indented under it.
 *
 *   Project r.id                                              rows≈80
 *   └─ Filter LLM#1 = 'positive'                              rows≈80
 *      └─ LLM                                                 rows≈240
 *         │  #1 'Is the review positive or negative?' (synopsis, review; order by sample) RETURNS
 *            ENUM('positive', 'negative') by use
 *         │  240 distinct inputs, 49,100 prompt tokens, 10,200 computed, hit rate 79.2 %
 *         └─ Hash join r.movie = m.id                          rows≈240
 *
 * Invariant: nothing is printed that is not in the plan or in `actual`; without times the text
 * depends on statistics alone, so it can be a golden test.
 */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/planner.h"

enum { FACT_COLUMN = 58, PROMPT_WIDTH = 50, MAX_DEPTH = 64 };

typedef struct printer {
    const plan *plan;
    const plan_actual *actual;
    bool times;
    buf *out;
    bool last[MAX_DEPTH]; /* is the node at this depth the last child? */
    bool *shared_shown;
    bool idle; /* the node at work was never executed */
} printer;

/* ---- pieces ---------------------------------------------------------------------------------- */

/* 12345678 as 12,345,678. */
static void print_count(buf *out, double n) {
    char digits[40];
    int len = snprintf(digits, sizeof digits, "%.0f", n < 0 ? 0 : n);
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            buf_append_char(out, ',');
        buf_append_char(out, digits[i]);
    }
}

/* Some rows are at least one, as people count. */
static void print_rows(buf *out, const plan_estimate *e) {
    buf_append_c(out, "≈");
    print_count(out, e->rows > 0 ? BASE_MAX(1, e->rows) : 0);
}

static void print_ms(buf *out, double ms) {
    if (ms >= 60e3)
        buf_printf(out, "%.1f min", ms / 60e3);
    else if (ms >= 1e3)
        buf_printf(out, "%.1f s", ms / 1e3);
    else
        buf_printf(out, "%.*f ms", ms < 10 ? 2 : 0, ms);
}

static void print_exprs(buf *out, expr *const *exprs, int n) {
    for (int i = 0; i < n; i++) {
        if (i)
            buf_append_c(out, ", ");
        if (i == 8 && n > 10) {
            buf_printf(out, "… %d more", n - 8);
            return;
        }
        expr_print(exprs[i], out);
    }
}

/* ---- one line a node ------------------------------------------------------------------------- */

/* a = 1, a > 1, a <= 3, or 1 < a <= 3; low, high may be NULL. */
static void print_range(buf *out, str name, const expr *low, bool with_low, const expr *high,
                        bool with_high) {
    bool both = low && high, equal = both && expr_equal(low, high);
    if (both && !equal) {
        expr_print(low, out);
        buf_append_c(out, with_low ? " <= " : " < ");
    }
    buf_append_str(out, name);
    if (equal || !high)
        buf_append_c(out, equal ? " = " : with_low ? " >= " : " > ");
    else
        buf_append_c(out, with_high ? " <= " : " < ");
    expr_print(equal || !high ? low : high, out);
}

static void print_bounds(buf *out, const plan_node *n) {
    int parts = BASE_MAX(n->scan.nlow, n->scan.nhigh);
    for (int i = 0; i < parts; i++) {
        const expr *low = i < n->scan.nlow ? n->scan.low[i] : NULL,
                   *high = i < n->scan.nhigh ? n->scan.high[i] : NULL;
        int at = n->scan.index ? n->scan.index->columns[i] : n->scan.table->rowid_column;
        str name = at >= 0 ? n->scan.table->columns[at].name : STR("rowid");
        buf_append_c(out, i ? ", " : " [");
        if (n->scan.nin > 0 && n->scan.in_at == i) {
            buf_append_str(out, name);
            buf_printf(out, " IN %d value%s", n->scan.nin, n->scan.nin == 1 ? "" : "s");
            continue;
        }
        print_range(out, name, low, n->scan.low_inclusive || i + 1 < n->scan.nlow, high,
                    n->scan.high_inclusive || i + 1 < n->scan.nhigh);
    }
    if (parts)
        buf_append_char(out, ']');
}

static void print_scan(buf *out, const plan_node *n) {
    bool indexed = n->scan.index != NULL, bounded = n->scan.nlow + n->scan.nhigh > 0;
    buf_append_c(out, indexed ? "Index scan " : bounded ? "Key scan " : "Scan ");
    buf_append_str(out, n->scan.table->name);
    if (n->scan.alias.n && !str_equal_nocase(n->scan.alias, n->scan.table->name)) {
        buf_append_char(out, ' ');
        buf_append_str(out, n->scan.alias);
    }
    if (indexed) {
        buf_append_c(out, " by ");
        buf_append_str(out, n->scan.index->name.n ? n->scan.index->name : STR("primary key"));
    }
    if (n->scan.ordered)
        buf_append_c(out, n->scan.descending ? ", descending" : ", in its order");
    print_bounds(out, n);
    if (n->scan.filter) {
        buf_append_c(out, " where ");
        expr_print(n->scan.filter, out);
    }
}

static void print_join(buf *out, const plan_node *n) {
    const char *how = n->kind == PLAN_LOOP_JOIN ? n->join.nranges ? "Range" : "Loop"
                      : n->join.keyed           ? "Index"
                                                : "Hash";
    bool inner = n->join.kind == JOIN_INNER;
    buf_printf(out, "%s %s%sjoin", how, inner ? "" : join_kind_name(n->join.kind),
               inner ? "" : " ");
    const char *between = " ";
    for (int i = 0; i < n->join.nkeys; i++, between = " and ") {
        buf_append_c(out, between);
        expr_print(n->join.left_keys[i], out);
        buf_append_c(out, n->join.null_safe ? " is " : " = ");
        expr_print(n->join.right_keys[i], out);
    }
    if (n->join.predicate) {
        buf_append_c(out, between);
        expr_print(n->join.predicate, out);
    }
    if (n->join.nranges == 1 && n->join.ranges->first > 0) {
        buf_printf(out, ", %s %" PRId64 " by ", n->join.ranges->downward ? "last" : "first",
                   n->join.ranges->first);
        expr_print(n->join.ranges->right, out);
    }
}

static void print_group(buf *out, const plan_node *n) {
    buf_append_c(out, n->group.nkeys ? "Group by " : "Aggregate");
    print_exprs(out, n->group.keys, n->group.nkeys);
    for (int i = 0; i < n->group.naggs; i++) {
        const plan_agg *a = &n->group.aggs[i];
        buf_append_c(out, i == 0 && n->group.nkeys ? ": " : i ? ", " : " ");
        buf_printf(out, "%s(%s", agg_kind_name(a->kind), a->distinct ? "distinct " : "");
        if (a->arg)
            expr_print(a->arg, out);
        else
            buf_append_char(out, '*');
        sort_keys_print(" order by ", a->keys, a->nkeys, out);
        buf_append_char(out, ')');
        if (a->filter) {
            buf_append_c(out, " filter ");
            expr_print(a->filter, out);
        }
    }
}

static void print_partition(buf *out, const plan_node *n, const int *slots, int count) {
    for (int i = 0; i < count; i++) {
        buf_append_c(out, i ? ", " : " per ");
        buf_append_str(out, n->left->names[slots[i]]);
    }
}

static void print_sort(buf *out, const plan_node *n) {
    if (n->sort.limit >= 0)
        buf_printf(out, "Top %" PRId64, n->sort.limit);
    else
        buf_append_c(out, "Sort");
    print_partition(out, n, n->sort.partition, n->sort.npartition);
    sort_keys_print(" by ", n->sort.keys, n->sort.nkeys, out);
}

static bool same_spec(const rel_window *a, const rel_window *b) {
    return a->npartition == b->npartition && a->nkeys == b->nkeys &&
           window_frame_equal(&a->frame, &b->frame);
}

/* Functions over one window are named before it: "rank(), lag(x, 1) over (…), sum(y) over (…)". */
static void print_windows(buf *out, const plan_node *n) {
    for (int i = 0; i < n->window.nfunctions; i++) {
        const rel_window *w = &n->window.functions[i];
        bool last = i + 1 == n->window.nfunctions || !same_spec(w, w + 1);
        buf_append_c(out, i ? ", " : "Window ");
        window_print(w, n->window.keys, last, out);
    }
    if (n->window.limit >= 0)
        buf_printf(out, ", first %" PRId64 "%s%s", n->window.limit,
                   n->window.with_ties ? " with ties" : "",
                   n->window.functions[0].npartition ? " of each partition" : "");
}

static void print_limit(buf *out, const plan_node *n) {
    buf_append_c(out, "Limit");
    if (n->limit.limit >= 0)
        buf_printf(out, " %" PRId64, n->limit.limit);
    if (n->limit.offset > 0)
        buf_printf(out, " offset %" PRId64, n->limit.offset);
    print_partition(out, n, n->limit.partition, n->limit.npartition);
}

static void print_so_many(buf *out, int64_t rows) {
    buf_printf(out, "%" PRId64 " row%s", rows, rows == 1 ? "" : "s");
}

static void print_llm_title(buf *out, const plan_node *n) {
    buf_append_c(out, "LLM");
    for (int i = 0; n->llm.partner && i < n->llm.nown; i++) {
        buf_append_c(out, i ? " and " : " only where ");
        expr_print(n->llm.theirs[i], out);
        buf_append_c(out, n->llm.nulls_match ? " is " : " = ");
        expr_print(n->llm.own[i], out);
    }
    if (n->llm.wanted == 0 && n->llm.each == 0)
        return;
    buf_append_c(out, n->llm.partner ? ", in waves for " : " in waves for ");
    if (n->llm.wanted > 0)
        print_so_many(out, n->llm.wanted);
    buf_append_c(out, n->llm.wanted > 0 && n->llm.each > 0 ? ", " : "");
    if (n->llm.each > 0)
        print_so_many(out, n->llm.each);
    buf_append_c(out, n->llm.with_ties ? " with ties" : "");
    if (n->llm.each > 0 && n->llm.nby > 0) {
        buf_append_c(out, " per ");
        print_exprs(out, n->llm.by, n->llm.nby);
    }
    sort_keys_print(" by ", n->llm.order, n->llm.norder, out);
}

static void print_rounds(buf *out, const plan_node *n) {
    if (n->kind == PLAN_WORKING)
        buf_printf(out, "Rows that came last to #%d", n->working.number);
    else
        buf_printf(out, "Recursive union%s #%d", n->recursive.distinct ? "" : " all",
                   n->recursive.number);
}

static void print_file(buf *out, const plan_node *n) {
    buf_append_c(out, "File ");
    buf_append_str(out, n->file.path);
    if (!n->file.filter)
        return;
    buf_append_c(out, " where ");
    expr_print(n->file.filter, out);
}

static void print_title(buf *out, const plan_node *n) {
    switch (n->kind) {
    case PLAN_VALUES:
        buf_printf(out, "Values (%d row%s)", n->values.nrows, n->values.nrows == 1 ? "" : "s");
        return;
    case PLAN_SCAN:
        print_scan(out, n);
        return;
    case PLAN_FILE:
        print_file(out, n);
        return;
    case PLAN_SYSTEM:
        buf_append_c(out, "System table ");
        buf_append_str(out, n->system.name);
        return;
    case PLAN_SERIES:
        buf_printf(out, "Series from %lld by %lld", (long long)n->series.first,
                   (long long)n->series.step);
        return;
    case PLAN_FILTER:
        buf_append_c(out, "Filter ");
        expr_print(n->filter.predicate, out);
        return;
    case PLAN_PROJECT:
        buf_append_c(out, "Project ");
        print_exprs(out, n->project.exprs, n->ncols);
        return;
    case PLAN_HASH_JOIN:
    case PLAN_LOOP_JOIN:
        print_join(out, n);
        return;
    case PLAN_GROUP:
        print_group(out, n);
        return;
    case PLAN_SORT:
        print_sort(out, n);
        return;
    case PLAN_LIMIT:
        print_limit(out, n);
        return;
    case PLAN_DISTINCT:
        buf_append_c(out, "Distinct");
        return;
    case PLAN_SETOP:
        buf_append_char(out, (char)toupper((unsigned char)*set_op_name(n->setop.op)));
        buf_append_c(out, set_op_name(n->setop.op) + 1);
        return;
    case PLAN_LLM:
        print_llm_title(out, n);
        return;
    case PLAN_SHARED:
        buf_printf(out, "Shared #%d", n->shared.number);
        return;
    case PLAN_NUMBER:
        buf_append_c(out, "Number rows");
        return;
    case PLAN_WINDOW:
        print_windows(out, n);
        return;
    case PLAN_RECURSIVE:
    case PLAN_WORKING:
        print_rounds(out, n);
        return;
    case PLAN_RESIDUAL:
        buf_append_c(out, "Keep pairs where ");
        expr_print(n->residual.predicate, out);
        return;
    }
}

/* ---- layout ---------------------------------------------------------------------------------- */

static void print_indent(printer *p, int depth, bool node_line, bool has_child) {
    for (int d = 1; d < depth; d++)
        buf_append_c(p->out, p->last[d] ? "   " : "│  ");
    if (depth > 0)
        buf_append_c(p->out, !node_line       ? (p->last[depth] ? "   " : "│  ")
                             : p->last[depth] ? "└─ "
                                              : "├─ ");
    if (!node_line)
        buf_append_c(p->out, has_child ? "│  " : "   ");
}

static const plan_actual *actual_of(const printer *p, const plan_node *n) {
    return p->actual && p->actual[n->number].known ? &p->actual[n->number] : NULL;
}

static void print_figures(printer *p, const plan_node *n, size_t line_start) {
    const plan_actual *a = actual_of(p, n);
    int width = utf8_width((str){p->out->p + line_start, p->out->n - line_start});
    buf_printf(p->out, "%*s", BASE_MAX(2, FACT_COLUMN - width), "");
    if (p->idle) {
        buf_append_c(p->out, "never executed (");
        print_rows(p->out, &n->estimate);
        buf_append_char(p->out, ')');
    } else if (a) {
        buf_append_c(p->out, "rows ");
        print_count(p->out, (double)a->rows);
        buf_append_c(p->out, " (");
        print_rows(p->out, &n->estimate);
        buf_append_char(p->out, ')');
        if (p->times) {
            buf_append_c(p->out, ", ");
            print_ms(p->out, a->ms);
        }
    } else {
        buf_append_c(p->out, "rows");
        print_rows(p->out, &n->estimate);
        if (n->estimate.guess)
            buf_append_char(p->out, '?');
        if (n->kind == PLAN_LLM) {
            buf_append_c(p->out, ", cost≈");
            print_ms(p->out, n->estimate.cost_ms);
        }
    }
    buf_append_char(p->out, '\n');
}

const char *order_origin_name(order_origin o) {
    static const char *const names[] = {[ORDER_WRITTEN] = "as written",
                                        [ORDER_LISTED] = "as listed",
                                        [ORDER_RECORDED] = "order on record",
                                        [ORDER_SAMPLED] = "order by sample",
                                        [ORDER_SCORED] = "order by score"};
    BASE_COVERS(names, ORDER_ORIGINS);
    return names[o];
}

/* ---- LLM nodes ------------------------------------------------------------------------------- */

static void print_type(buf *out, const llm_call *call) {
    buf_printf(out, " RETURNS %s", llm_returns_name(call->returns));
    if (call->returns == RETURNS_ENUM) {
        buf_append_char(out, '(');
        for (int i = 0; i < call->nliterals; i++) {
            if (i)
                buf_append_c(out, ", ");
            if (i == 6 && call->nliterals > 8) {
                buf_printf(out, "… %d more", call->nliterals - 6);
                break;
            }
            value_print_sql(out, value_text(call->literals[i]));
        }
        buf_append_char(out, ')');
    } else if (call->returns == RETURNS_INTEGER && call->nliterals > 0) {
        buf_append_c(out, " BETWEEN ");
        buf_append_str(out, call->literals[0]);
        buf_append_c(out, " AND ");
        buf_append_str(out, call->literals[call->nliterals - 1]);
    }
    if (call->by_use)
        buf_append_c(out, " by use");
}

/* Fields in their estimated order, or as written where another line tells the true one. */
static void print_call(buf *out, const plan_llm_use *u, bool as_written) {
    const llm_call *call = u->call;
    buf_printf(out, "#%d ", call->number);
    str text = call->instruction;
    size_t fit = utf8_fit(text, PROMPT_WIDTH);
    buf_append_char(out, '\'');
    for (size_t i = 0; i < fit; i++)
        buf_append_char(out, text.p[i] == '\n' ? ' ' : text.p[i]);
    buf_append_c(out, fit < text.n ? "…' (" : "' (");
    for (int k = 0; k < call->nfields; k++) {
        if (k)
            buf_append_c(out, ", ");
        buf_append_str(out, call->field_names[as_written ? k : u->field_order[k]]);
    }
    if (call->nfields > 1 && !as_written)
        buf_printf(out, "; %s", order_origin_name(u->order_origin));
    buf_append_c(out, u->data_first && !as_written ? ", before the instruction)" : ")");
    print_type(out, call);
    if (call->examples)
        buf_append_c(out, " with examples");
    if (call->model.n) {
        buf_append_c(out, " by ");
        buf_append_str(out, call->model);
    }
    if (u->guard) {
        buf_append_c(out, " only where ");
        expr_print(u->guard, out);
    }
}

static void print_tokens_table(printer *p, const plan_actual *a, int depth, bool has_child) {
    print_indent(p, depth, false, has_child);
    buf_printf(p->out, "%-9s %9s %9s %14s %11s %9s\n", "strategy", "rows", "distinct", WORDS_PROMPT,
               WORDS_COMPUTED, WORDS_HIT_RATE);
    for (int i = 0; i < a->ntokens; i++) {
        const plan_tokens *t = &a->tokens[i];
        buf number = {0};
        print_indent(p, depth, false, has_child);
        buf_printf(p->out, "%-9s ", t->strategy);
        const double figures[] = {(double)t->rows, (double)t->distinct_inputs,
                                  (double)t->prompt_tokens, (double)t->computed_tokens};
        const int widths[] = {9, 9, 14, 11};
        for (size_t k = 0; k < BASE_COUNT(figures); k++) {
            buf_clear(&number);
            buf_append_c(&number, t->scaled ? "~" : t->at_most ? "≤" : "");
            print_count(&number, figures[k]);
            int padding = BASE_MAX(widths[k] - utf8_width(buf_str(&number)), 0);
            buf_printf(p->out, "%*s%s ", padding, "", number.p);
        }
        double rate =
            t->prompt_tokens ? 1 - (double)t->computed_tokens / (double)t->prompt_tokens : 0;
        buf_printf(p->out, "%7.1f %%", 100 * rate);
        if (t->known_answers > 0) {
            buf_append_c(p->out, "  ");
            print_count(p->out, (double)t->known_answers);
            buf_append_c(p->out, " asked before in this statement");
        }
        buf_append_char(p->out, '\n');
        buf_free(&number);
    }
}

static void print_llm_estimate(buf *out, const plan_estimate *e) {
    buf_append_c(out, "≈");
    print_count(out, e->distinct_inputs);
    buf_append_c(out, " " WORDS_INPUTS ", ≈");
    print_count(out, e->prompt_tokens);
    buf_append_c(out, " " WORDS_PROMPT ", ≈");
    print_count(out, e->computed_tokens);
    buf_printf(out, " " WORDS_COMPUTED ", " WORDS_HIT_RATE " ≈%.1f %%, ≈", 100 * e->hit_rate);
    print_count(out, e->output_tokens);
    buf_append_c(out, " " WORDS_OUTPUT);
    if (e->selectivity < 1)
        buf_printf(out, ", keeps ≈%.3g %% of rows", 100 * e->selectivity);
    buf_append_char(out, '\n');
}

static void print_llm_actual(buf *out, const plan_actual *a) {
    double rate = a->prompt_tokens ? 1 - (double)a->computed_tokens / (double)a->prompt_tokens : 0;
    print_count(out, (double)a->distinct_inputs);
    buf_append_c(out, " " WORDS_INPUTS ", ");
    print_count(out, (double)a->prompt_tokens);
    buf_append_c(out, " " WORDS_PROMPT ", ");
    print_count(out, (double)a->computed_tokens);
    buf_printf(out, " " WORDS_COMPUTED ", " WORDS_HIT_RATE " %.1f %%, ", 100 * rate);
    print_count(out, (double)a->output_tokens);
    buf_append_c(out, " " WORDS_OUTPUT);
    if (a->known_answers > 0) {
        buf_append_c(out, ", ");
        print_count(out, (double)a->known_answers);
        buf_append_c(out, " asked before in this statement");
    }
    if (a->stored_answers > 0) {
        buf_append_c(out, ", ");
        print_count(out, (double)a->stored_answers);
        buf_append_c(out, " " WORDS_KNOWN);
    }
    if (a->reused_disk > 0) {
        buf_append_c(out, ", ");
        print_count(out, (double)a->reused_disk);
        buf_append_c(out, " tokens from disk");
    }
    buf_append_char(out, '\n');
}

static void print_llm(printer *p, const plan_node *n, int depth) {
    const plan_actual *a = actual_of(p, n);
    for (int i = 0; i < n->llm.nuses; i++) {
        print_indent(p, depth, false, true);
        print_call(p->out, &n->llm.uses[i], a && a->field_order.n);
        buf_append_char(p->out, '\n');
    }
    if (a && a->field_order.n) {
        print_indent(p, depth, false, true);
        buf_append_c(p->out, "field order: ");
        buf_append_str(p->out, a->field_order);
        if (!isnan(a->bound) && a->bound > 0)
            buf_printf(p->out, "; at most %.1f points more are possible", 100 * a->bound);
        buf_append_char(p->out, '\n');
    }
    if (a && a->reordered.n) {
        print_indent(p, depth, false, true);
        buf_append_c(p->out, "asked ");
        buf_append_str(p->out, a->reordered);
        buf_append_char(p->out, '\n');
    }
    if (a && a->ntokens > 0) {
        print_tokens_table(p, a, depth, true);
        return;
    }
    if (a) {
        print_indent(p, depth, false, true);
        print_llm_actual(p->out, a);
    }
    print_indent(p, depth, false, true);
    print_llm_estimate(p->out, &n->estimate);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void print_node(printer *p, const plan_node *n, int depth) {
    size_t start = p->out->n;
    const plan_actual *a = actual_of(p, n);
    /* What stands below an idle node may have been read
     * ahead; what one operator runs with it was not. */
    bool idle = a && (a->idle || (p->idle && a->rows == 0 && a->ms <= 0));
    p->idle = idle;
    print_indent(p, depth, true, false);
    print_title(p->out, n);
    print_figures(p, n, start);
    if (n->kind == PLAN_LLM)
        print_llm(p, n, depth);
    if (depth + 1 >= MAX_DEPTH) {
        buf_append_c(p->out, "…\n");
        return;
    }
    if (n->kind == PLAN_SHARED) {
        bool shown = p->shared_shown[n->shared.number];
        p->shared_shown[n->shared.number] = true;
        if (shown) /* its tree stands where it was named first */
            return;
    }
    if (n->left) {
        p->last[depth + 1] = n->right == NULL;
        print_node(p, n->left, depth + 1);
    }
    if (n->right) {
        p->idle = idle;
        p->last[depth + 1] = true;
        print_node(p, n->right, depth + 1);
    }
}

static void print_savings(const plan *p, buf *out) {
    for (int i = 0; i < p->nsavings; i++) {
        buf_printf(out, "%s%s saves ", i ? ", " : "Rules: ", p->savings[i].rule);
        print_ms(out, p->savings[i].ms);
    }
    if (p->nsavings)
        buf_append_char(out, '\n');
}

void plan_print(const plan *p, const plan_actual *actual, bool times, buf *out) {
    if (!p->root)
        return;
    bool *shown = mem_zalloc((size_t)p->nshared + 1);
    printer print = {
        .plan = p, .actual = actual, .times = times, .out = out, .shared_shown = shown};
    print_node(&print, p->root, 0);
    for (int i = 0; i < p->stmt->ncalls; i++)
        if (p->examples[i]) {
            buf_printf(out, "Examples of LLM#%d\n", p->stmt->calls[i]->number);
            print.last[1] = true;
            print.idle = false;
            print_node(&print, p->examples[i], 1);
        }
    free(shown);
    print_savings(p, out);
}

void plan_print_rules(const plan *p, buf *out) {
    for (int i = 0; i < p->nrules; i++) {
        const plan_rule_report *r = &p->rules[i];
        if (!r->changed)
            continue;
        buf_printf(out, "-- %s\n", r->name);
        buf_append_str(out, r->after);
    }
}
