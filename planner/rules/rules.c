/*
 * rules.c - the table of rules, in the order they run, and the loop that runs them.
 *
 * Invariant: a rule does not change the root's columns (ids, order). A rule consists of one
 * function, one row of the table and one plan test; SET rule.<name> = off switches it off.
 */
#include <string.h>

#include "rules_int.h"

typedef struct rule {
    plan_rule_info info;
    rule_fn run; /* NULL: the rule only permits `choice` (choice_is_on) */
    plan_choice choice;
    bool of_pipelines; /* the rule reads REL_PIPELINE nodes, so it runs after form_pipelines */
} rule;

/* A rule that rewrites relations. */
#define RULE(name, function, help)                                                                 \
    { {#name, help, false}, function, CHOICE_NONE, false }
/* A rule that rewrites relations whose LLM nodes are in pipelines. */
#define PIPELINE_RULE(name, function, help)                                                        \
    { {#name, help, false}, function, CHOICE_NONE, true }
/* A rule that rewrites nothing: it permits plan/ and cost/ to choose a certain physical
 * operator. */
#define CHOICE(name, choice, help)                                                                 \
    { {#name, help, true}, NULL, choice, false }

static const rule table[] = {
    RULE(filters, merge_filters, "merge filters over filters; evaluate constant conditions"),
    RULE(factor, factor_common_or,
         "take the conditions that all branches of an OR share out of it"),
    RULE(inline, inline_ctes, "inline CTEs that are read once"),
    RULE(unnest, unnest_all, "turn subqueries into joins, also correlated ones"),
    RULE(semi_joins, marks_to_semi_joins, "turn IN and EXISTS in WHERE into semi and anti joins"),
    RULE(pushdown, push_conditions, "move conditions down to the tables and into joins"),
    RULE(llm_late, rule_llm_late, "move LLM projections above windows, ORDER BY and LIMIT"),
    RULE(llm_up, rule_llm_up, "move LLM calls above joins, so that join_order can order these"),
    RULE(sort_first, rule_sort_first,
         "sort below LLM filters under a LIMIT, so that they ask only until it is reached"),
    RULE(join_order, order_inner_joins, "order inner joins by estimated rows"),
    RULE(llm_placement, rule_llm_placement,
         "order LLM filters by cost and rows removed; place LLM calls where they have the fewest "
         "inputs"),
    RULE(prune, prune_columns, "read and carry only columns that are used"),
    RULE(projects, merge_projections, "merge projections over projections"),
    RULE(top_k, keep_first_rows,
         "keep only the first rows of a sort under a LIMIT, and of partitions whose "
         "row_number() or rank() is bounded"),
    PIPELINE_RULE(
        waves, rule_waves,
        "ask the model only about as many rows as LIMIT, DISTINCT, IN, EXISTS or a bounded "
        "row_number() or rank() needs"),
    PIPELINE_RULE(reorder, rule_reorder,
                  "reorder LLM filters while they run, by the rows that they are seen to keep"),
    CHOICE(keys, CHOICE_KEYS, "read a table by its key or an index where conditions allow it"),
    CHOICE(key_lists, CHOICE_KEY_LISTS,
           "use a key or an index for IN lists, and for equalities joined by OR"),
    CHOICE(index_join, CHOICE_INDEX_JOIN, "join few rows to a large table by its key or an index"),
    CHOICE(range_join, CHOICE_RANGE_JOIN,
           "join on <, >= and the like, or on equalities joined by OR, over sorted rows"),
    CHOICE(key_order, CHOICE_KEY_ORDER,
           "read a table in the order of its key or an index for ORDER BY, min() and max()"),
    CHOICE(nearest, CHOICE_NEAREST,
           "for ORDER BY a vector distance LIMIT k compute the distances on all threads, and sort "
           "only "
           "the rows that may be among the k"),
    CHOICE(lists, CHOICE_LISTS,
           "for ORDER BY a vector distance LIMIT k read the nearest lists of an ivfflat index, not "
           "the whole table"),
};

const plan_rule_info *plan_rule(size_t i) {
    return i < BASE_COUNT(table) ? &table[i].info : NULL;
}

/* Finds the rule's index in the table. Returns -1 and sets an error if no rule has this name. */
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
        err_hint(e, "SELECT name FROM kvasir_rules lists the rules");
    return -1;
}

const plan_rule_info *plan_rule_find(str name, err *e) {
    int at = rule_index(name, e);
    return at >= 0 ? &table[at].info : NULL;
}

str plan_rules_split_next(str *list) {
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
    for (str one; (one = plan_rules_split_next(&list)).n;)
        if (str_equal_nocase(one, name))
            return true;
    return false;
}

static int read_off(const settings *s, bool *off, err *e) {
    str list = str_from(s->rules_off);
    for (str name; (name = plan_rules_split_next(&list)).n;) {
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

static void clear_shared(rule_ctx *r) {
    r->nshared = r->next_share;
    r->shared_before = ARENA_ARRAY(r->mem, rel *, r->nshared + 1);
    r->shared_after = ARENA_ARRAY(r->mem, rel *, r->nshared + 1);
}

static rel *apply(rule_ctx *r, rule_fn fn, rel *root) {
    clear_shared(r);
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
