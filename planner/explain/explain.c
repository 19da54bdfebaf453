/*
 * explain.c - prints EXPLAIN as text: one line for each plan node (describe.c) with its figures,
 * and further lines for LLM calls.
 *
 *   Project r.id                                              rows≈80
 *   └─ Filter LLM#1 = 'positive'                              rows≈80
 *      └─ LLM                                                 rows≈240
 *         │  #1 'Is the review positive or negative?' (synopsis, review; order by sample) RETURNS
 *            ENUM('positive', 'negative') by use
 *         │  240 distinct inputs, 49,100 prompt tokens, 10,200 computed, hit rate 79.2 %
 *         └─ Hash join r.movie = m.id                          rows≈240
 *   Calls: #1 as s → #2; #1 as s, #2 as mood → #3 (depth 3)      only if calls read calls
 *
 * Invariant: everything printed is in the plan or in `actual`. Without times the text depends on
 * the statement and statistics alone, so tests can compare it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain_int.h"

enum {
    FACT_COLUMN = 58, /* screen column in which the figures of a line begin */
    MAX_DEPTH = 64    /* deeper nodes are printed as an ellipsis */
};

typedef struct printer {
    const plan *plan;
    const plan_actual *actual;
    bool times;
    buf *out;
    bool last[MAX_DEPTH]; /* by depth: the current node at this depth is the last child */
    bool *shared_shown;   /* by number of a shared relation: its input has been printed */
    bool idle;            /* the node being printed was never executed */
} printer;

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Prints a number with thousands separators: 12,345,678. */
static void print_count(buf *out, double n) {
    char digits[40];
    int len = snprintf(digits, sizeof digits, "%.0f", n < 0 ? 0 : n);
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            buf_append_char(out, ',');
        buf_append_char(out, digits[i]);
    }
}

/* Prints estimated rows; an estimate between 0 and 1 is printed as 1. */
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

/* ---- layout ---------------------------------------------------------------------------------- */

/* Prints the tree's branches, which are left of a line's text. node_line: the line is a node's
 * first. */
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

static const plan_actual *actual_of(const printer *p, const explain_line *l) {
    return p->actual && p->actual[l->number].known ? &p->actual[l->number] : NULL;
}

static void print_figures(printer *p, const explain_line *l, size_t line_start) {
    const plan_actual *a = actual_of(p, l);
    int width = utf8_width((str){p->out->p + line_start, p->out->n - line_start});
    buf_printf(p->out, "%*s", BASE_MAX(2, FACT_COLUMN - width), "");
    if (p->idle) {
        buf_append_c(p->out, "never executed (");
        print_rows(p->out, l->estimate);
        buf_append_char(p->out, ')');
    } else if (a) {
        buf_append_c(p->out, "rows ");
        print_count(p->out, (double)a->rows);
        buf_append_c(p->out, " (");
        print_rows(p->out, l->estimate);
        buf_append_char(p->out, ')');
        if (p->times) {
            buf_append_c(p->out, ", ");
            print_ms(p->out, a->ms);
        }
    } else {
        buf_append_c(p->out, "rows");
        print_rows(p->out, l->estimate);
        if (l->estimate->guess)
            buf_append_char(p->out, '?');
        if (l->kind == PLAN_LLM_PIPELINE) {
            buf_append_c(p->out, ", cost≈");
            print_ms(p->out, l->estimate->cost_ms);
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

static void print_counted(buf *out, const char *before, double n, const char *after) {
    buf_append_c(out, before);
    print_count(out, n);
    buf_append_c(out, after);
}

/* Prints a price; 0 is none. */
static void print_money(const printer *p, const char *before, double money) {
    if (!p->plan->currency || money <= 0)
        return;
    buf_append_c(p->out, before);
    buf_append_money(p->out, money, p->plan->currency);
}

/* Compares blended contexts, the last strategy, with the best of the exact ones. */
static void print_blending(printer *p, const plan_actual *a, int depth, bool has_child) {
    const plan_tokens *blend = &a->tokens[a->ntokens - 1];
    if (strcmp(blend->strategy, "blend") != 0)
        return;
    double least = (double)a->tokens[0].llm.computed_tokens,
           own = (double)blend->llm.computed_tokens;
    for (int i = 1; i + 1 < a->ntokens; i++)
        least = BASE_MIN(least, (double)a->tokens[i].llm.computed_tokens);
    print_indent(p, depth, false, has_child);
    if (own < least)
        buf_printf(p->out, "blended contexts compute %.0f %% of the best exact prompts' tokens",
                   100 * own / least);
    else
        buf_append_c(p->out, "blended contexts do not pay here: they are too short, or come back "
                             "too rarely or in the same order");
    buf_append_c(p->out,
                 blend->llm.evicted_blocks > 0 ? "; kv_memory does not hold them all\n" : "\n");
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
        const double figures[] = {(double)t->rows, (double)t->llm.distinct_inputs,
                                  (double)t->llm.prompt_tokens, (double)t->llm.computed_tokens};
        const int widths[] = {9, 9, 14, 11};
        for (size_t k = 0; k < BASE_COUNT(figures); k++) {
            buf_clear(&number);
            buf_append_c(&number, t->scaled ? "~" : t->at_most ? "≤" : "");
            print_count(&number, figures[k]);
            int padding = BASE_MAX(widths[k] - utf8_width(buf_str(&number)), 0);
            buf_printf(p->out, "%*s%s ", padding, "", number.p);
        }
        buf_printf(p->out, "%7.1f %%", 100 * llm_hit_rate(&t->llm));
        if (t->llm.choice_tokens > 0)
            print_counted(p->out,
                          t->scaled     ? "  ~"
                          : t->searched ? "  ≈"
                          : t->at_most  ? "  ≤"
                                        : "  ",
                          (double)t->llm.choice_tokens, " " WORDS_CHOICE);
        if (t->llm.answers_repeated > 0)
            print_counted(p->out, "  ", (double)t->llm.answers_repeated,
                          " asked before in this statement");
        print_money(p, "  ≈", t->llm.money);
        buf_append_char(p->out, '\n');
        buf_free(&number);
    }
    print_blending(p, a, depth, has_child);
}

/* Prints the figures of LLM calls. `about` is "≈" for estimates, and empty for measured figures. */
static void print_work(buf *out, const char *about, double inputs, double prompt, double computed,
                       double choice, double output) {
    double hit_rate = prompt > 0 ? BASE_MAX(0, 1 - computed / prompt) : 0;
    print_counted(out, about, inputs, " " WORDS_INPUTS ", ");
    print_counted(out, about, prompt, " " WORDS_PROMPT ", ");
    print_counted(out, about, computed, " " WORDS_COMPUTED ", ");
    buf_printf(out, WORDS_HIT_RATE " %s%.1f %%, ", about, 100 * hit_rate);
    if (choice >= 0.5)
        print_counted(out, about, choice, " " WORDS_CHOICE ", ");
    print_counted(out, about, output, " " WORDS_OUTPUT);
}

static void print_llm_estimate(const printer *p, const plan_estimate *e) {
    buf *out = p->out;
    print_work(out, "≈", e->distinct_inputs, e->prompt_tokens, e->computed_tokens, e->choice_tokens,
               e->output_tokens);
    print_money(p, ", ≈", e->money);
    if (e->selectivity < 1)
        buf_printf(out, ", keeps ≈%.3g %% of rows", 100 * e->selectivity);
    buf_append_char(out, '\n');
}

static void print_llm_actual(const printer *p, const plan_actual *a) {
    buf *out = p->out;
    print_work(out, "", (double)a->llm.distinct_inputs, (double)a->llm.prompt_tokens,
               (double)a->llm.computed_tokens, (double)a->llm.choice_tokens,
               (double)a->llm.output_tokens);
    if (a->llm.answers_repeated > 0)
        print_counted(out, ", ", (double)a->llm.answers_repeated,
                      " asked before in this statement");
    if (a->llm.answers_stored > 0)
        print_counted(out, ", ", (double)a->llm.answers_stored, " " WORDS_KNOWN);
    if (a->llm.reused_disk > 0)
        print_counted(out, ", ", (double)a->llm.reused_disk, " tokens from disk");
    if (a->llm.served > a->llm.unreported) /* the hit rate before it is what the servers report */
        print_counted(out, ", ", (double)a->llm.shared_tokens, " expected to be cached");
    print_money(p, ", ", a->llm.money);
    buf_append_char(out, '\n');
}

static void print_llm(printer *p, const explain_line *l, int depth) {
    const plan_actual *a = actual_of(p, l);
    for (int i = 0; i < l->stage->nsites; i++) {
        print_indent(p, depth, false, true);
        describe_call((facts){p->out, NULL}, &l->stage->sites[i], a && a->field_order.n);
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
    if (a && a->calibrated.n) {
        print_indent(p, depth, false, true);
        buf_append_c(p->out, "calibrated ");
        buf_append_str(p->out, a->calibrated);
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
        print_llm_actual(p, a);
    }
    print_indent(p, depth, false, true);
    print_llm_estimate(p, l->estimate);
}

/* ---- the tree -------------------------------------------------------------------------------- */

/* Shortens long literals of vectors from `start` on: '[0.25,-0.5,0.125,…]'. */
static void shorten_vectors(buf *out, size_t start) {
    enum { SHOWN = 3 };
    static const char digits[] = "0123456789+-.e";
    buf text = {0};
    size_t from = start;
    for (size_t at = start; at + 2 < out->n; at++) {
        if (memcmp(out->p + at, "'[", 2) != 0)
            continue;
        size_t end = at + 2, cut = 0;
        for (int n = 0; strchr(digits, out->p[end]) || out->p[end] == ','; end++)
            if (out->p[end] == ',' && ++n == SHOWN)
                cut = end + 1;
        if (!cut || out->p[end] != ']' || end < cut + sizeof "…")
            continue;
        buf_append(&text, out->p + from, cut - from);
        buf_append_c(&text, "…");
        from = at = end;
    }
    buf_append(&text, out->p + from, out->n - from);
    out->n = start;
    buf_append_str(out, buf_str(&text));
    buf_free(&text);
}

static void print_line(printer *p, const explain_line *l, int depth) {
    size_t start = p->out->n;
    const plan_actual *a = actual_of(p, l);
    /* rows of a node below an idle line may have been read ahead of a request: such a node is idle
     * only if it returned no rows */
    p->idle = a && (a->idle || (p->idle && a->rows == 0 && a->ms <= 0));
    print_indent(p, depth, true, false);
    describe_line((facts){p->out, NULL}, l);
    shorten_vectors(p->out, start);
    print_figures(p, l, start);
    if (l->kind == PLAN_LLM_PIPELINE)
        print_llm(p, l, depth);
}

static void print_node(printer *p, const plan_node *n, int depth) {
    explain_line line;
    for (int i = 0; depth < MAX_DEPTH && explain_line_at(n, i, &line); i++, depth++) {
        p->last[depth] |= i > 0; /* each line of a pipeline has one input */
        print_line(p, &line, depth);
    }
    bool idle = p->idle;
    if (depth >= MAX_DEPTH) {
        buf_append_c(p->out, "…\n");
        return;
    }
    if (n->kind == PLAN_SHARED) {
        bool shown = p->shared_shown[n->shared.number];
        p->shared_shown[n->shared.number] = true;
        if (shown) /* its input was printed at the first reference */
            return;
    }
    if (n->left) {
        p->last[depth] = n->right == NULL;
        print_node(p, n->left, depth);
    }
    if (n->right) {
        p->idle = idle;
        p->last[depth] = true;
        print_node(p, n->right, depth);
    }
}

/* ---- calls that read calls ------------------------------------------------------------------- */

/* Finds a call site of each call: sites[number]. */
static void find_sites(const plan_node *n, bool *seen, const plan_call_site **sites) {
    if (!n || seen[n->number])
        return;
    seen[n->number] = true;
    for (int i = 0; n->kind == PLAN_LLM_PIPELINE && i < n->pipeline.nstages; i++)
        for (int k = 0; k < n->pipeline.stages[i].nsites; k++) {
            const plan_call_site *site = &n->pipeline.stages[i].sites[k];
            sites[site->call->number] = site;
        }
    find_sites(n->left, seen, sites);
    find_sites(n->right, seen, sites);
}

/* Prints "#1 as s, #2 as mood → #3" for the fields of #3. Returns whether it reads any call. */
static bool print_reads(const plan_call_site *site, const char *before, buf *out) {
    bool any = false;
    for (int f = 0; f < site->call->nfields; f++) {
        const plan_read *r = &site->reads[f];
        for (int i = 0; i < r->n; i++) {
            buf_printf(out, "%s#%d", i ? " and " : any ? ", " : before, r->calls[i]);
            any = true;
        }
        if (r->n)
            buf_printf(out, " as %.*s", (int)site->call->field_names[f].n,
                       site->call->field_names[f].p);
    }
    if (any)
        buf_printf(out, " → #%d", site->call->number);
    return any;
}

/* Returns the number of calls on the longest chain of calls that read each other's answers. */
static int reads_depth(const plan_call_site *const *sites, int ncalls, int *depth) {
    int most = 0;
    bool deeper = true;
    for (int round = 0; deeper && round < ncalls; round++) {
        deeper = false;
        for (int c = 1; c <= ncalls; c++)
            for (int f = 0; sites[c] && f < sites[c]->call->nfields; f++)
                for (int i = 0; i < sites[c]->reads[f].n; i++) {
                    int of = sites[c]->reads[f].calls[i];
                    deeper = deeper || depth[of] >= depth[c];
                    depth[c] = BASE_MAX(depth[c], depth[of] + 1);
                }
    }
    for (int c = 1; c <= ncalls; c++)
        most = BASE_MAX(most, depth[c] + 1);
    return most;
}

static void print_graph(const plan *p, buf *out) {
    int ncalls = p->stmt->ncalls;
    const plan_call_site **sites = mem_zalloc(sizeof *sites * ((size_t)ncalls + 1));
    int *depth = mem_zalloc(sizeof *depth * ((size_t)ncalls + 1));
    bool *seen = mem_zalloc((size_t)p->nnodes + 1), any = false;
    find_sites(p->root, seen, sites);
    for (int c = 1; c <= ncalls; c++)
        if (sites[c])
            any = print_reads(sites[c], any ? "; " : "Calls: ", out) || any;
    if (any)
        buf_printf(out, " (depth %d)\n", reads_depth(sites, ncalls, depth));
    free(seen);
    free(depth);
    free(sites);
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
    print_graph(p, out);
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
