/*
 * rules.c - the rules in the order they run, and running them.
 *
 * Invariant: the root's columns (ids, order) are the same after every rule. A rule is one function,
 * one row here, one plan test; SET rule.<name> = off leaves it out.
 */
#include <string.h>

#include "rules_int.h"

typedef struct rule {
    plan_rule_info info;
    rule_fn run; /* NULL: a choice of plan.c's, made where the relation becomes a plan */
    plan_choice choice;
    bool of_pipelines; /* reads REL_PIPELINE nodes */
} rule;

/* A rule over relations. */
#define RULE(name, help)                                                                           \
    { {#name, help, false}, rule_##name, CHOICE_NONE, false }
/* A rule over relations whose pipelines are formed. */
#define PIPELINE_RULE(name, help)                                                                  \
    { {#name, help, false}, rule_##name, CHOICE_NONE, true }
/* A choice of plan.c's, which it asks about by its number. */
#define CHOICE(name, choice, help)                                                                 \
    { {#name, help, true}, NULL, choice, false }

static const rule table[] = {
    RULE(filters, "merge stacked filters; drop conditions that are always true"),
    RULE(factor, "write what all branches of an OR have in common once, beside it"),
    RULE(inline, "make a CTE that is read once part of the query"),
    RULE(unnest, "turn subqueries into joins, correlated ones too"),
    RULE(semi_joins, "IN and EXISTS in WHERE become semi and anti joins"),
    RULE(pushdown, "move conditions down to the tables and into joins"),
    RULE(llm_late, "move LLM projections above windows, ORDER BY and LIMIT"),
    RULE(llm_up, "lift LLM calls above joins, so that these can be ordered"),
    RULE(sort_first,
         "under a LIMIT, sort before LLM filters, so that these ask no more than it needs"),
    RULE(join_order, "order inner joins by estimated rows"),
    RULE(llm_placement,
         "order LLM filters by cost and rows removed; put LLM calls where fewest inputs are"),
    RULE(prune, "read and carry only columns that are used"),
    RULE(projects, "merge projections over projections"),
    RULE(top_k, "keep only the first rows of a sort under a LIMIT, and of partitions whose "
                "row_number() or rank() is bounded"),
    PIPELINE_RULE(
        waves, "ask the model only about as many rows as LIMIT, DISTINCT, IN, EXISTS or a bounded "
               "row_number() or rank() needs"),
    PIPELINE_RULE(reorder, "let LLM filters change places while they run, where what they keep "
                           "speaks for it"),
    CHOICE(keys, CHOICE_KEYS, "read only those rows of a table that its key or an index leads to"),
    CHOICE(key_lists, CHOICE_KEY_LISTS,
           "use a key or an index for IN lists, and for equalities joined by OR"),
    CHOICE(index_join, CHOICE_INDEX_JOIN, "join few rows to a large table by its key or an index"),
    CHOICE(range_join, CHOICE_RANGE_JOIN,
           "join by comparisons, or equalities joined by OR, over sorted rows"),
    CHOICE(
        key_order, CHOICE_KEY_ORDER,
        "read a table in the order of its key or an index, if ORDER BY, min() or max() wants that"),
};

const plan_rule_info *plan_rule(size_t i) {
    return i < BASE_COUNT(table) ? &table[i].info : NULL;
}

/* Its place in the table, or -1. */
static int rule_index(str name, err *e) {
    const char *names[BASE_COUNT(table)];
    for (size_t i = 0; i < BASE_COUNT(table); i++) {
        names[i] = table[i].info.name;
        if (str_equal_nocase(name, str_from(names[i])))
            return (int)i;
    }
    const char *nearest = str_nearest(name, names, BASE_COUNT(table));
    err_set(e, ERR_BIND, "no rule \"%.*s\"", (int)name.n, name.p);
    if (nearest)
        err_hint(e, "did you mean rule.%s?", nearest);
    else
        err_hint(e, "SELECT name FROM kvasir_rules lists them");
    return -1;
}

const plan_rule_info *plan_rule_find(str name, err *e) {
    int at = rule_index(name, e);
    return at >= 0 ? &table[at].info : NULL;
}

str plan_rules_take(str *list) {
    size_t n = 0;
    while (list->n && (list->p[0] == ' ' || list->p[0] == ','))
        *list = (str){list->p + 1, list->n - 1};
    while (n < list->n && list->p[n] != ',' && list->p[n] != ' ')
        n++;
    str name = {list->p, n};
    *list = (str){list->p + n, list->n - n};
    return name;
}

bool plan_rules_have(str list, str name) {
    for (str one; (one = plan_rules_take(&list)).n;)
        if (str_equal_nocase(one, name))
            return true;
    return false;
}

static int read_off(const settings *s, bool *off, err *e) {
    str list = str_from(s->rules_off);
    for (str name; (name = plan_rules_take(&list)).n;) {
        int at = rule_index(name, e);
        if (at < 0)
            return ERR_BIND;
        off[at] = true;
    }
    return 0;
}

static str tree_text(rule_ctx *r, const rel *x) {
    buf out = {0};
    rel_print(x, &out);
    str text = str_copy(r->mem, buf_str(&out));
    buf_free(&out);
    return text;
}

static void forget_shared(rule_ctx *r) {
    r->nshared = r->next_share;
    r->shared_before = ARENA_ARRAY(r->mem, rel *, r->nshared + 1);
    r->shared_after = ARENA_ARRAY(r->mem, rel *, r->nshared + 1);
}

static rel *apply(rule_ctx *r, rule_fn fn, rel *root) {
    forget_shared(r);
    return rel_like(r, fn(r, root), root);
}

static rel *run_one(rule_ctx *r, const rule *what, rel *root, str *before,
                    plan_rule_report *report) {
    double start = clock_ms();
    rel *after = apply(r, what->run, root);
    *report = (plan_rule_report){
        .name = what->info.name, .changed = after != root, .ms = clock_ms() - start};
    if (before && after != root) {
        str text = tree_text(r, after);
        report->changed = !str_equal(text, *before);
        report->after = text;
        *before = text;
    }
    return after;
}

rel *rules_run(rule_ctx *r, rel *root, bool print, plan *p) {
    bool off[BASE_COUNT(table)] = {false};
    if (read_off(r->env->settings, off, r->e))
        return root;
    plan_rule_report *reports = ARENA_ARRAY(r->mem, plan_rule_report, BASE_COUNT(table));
    str before = print ? tree_text(r, root) : (str){NULL, 0};
    bool formed = false;
    int n = 0;
    r->choices = 0;
    for (size_t i = 0; i < BASE_COUNT(table); i++)
        r->choices |= off[i] ? 0 : 1u << table[i].choice;
    for (size_t i = 0; i < BASE_COUNT(table) && r->e->code == ERR_NONE; i++) {
        if (table[i].of_pipelines && !formed) {
            root = apply(r, form_pipelines, root);
            before = print ? tree_text(r, root) : before;
            formed = true;
        }
        if (!off[i] && table[i].run)
            root = run_one(r, &table[i], root, print ? &before : NULL, &reports[n++]);
    }
    if (p && !p->rules) {
        p->rules = reports;
        p->nrules = n;
    }
    return root;
}
