/*
 * savings.c - what each rule is worth to a statement: the plan's cost without it, less the plan's
 * cost.
 *
 * Invariant: a plan is compared with plans of the same statement, statistics and rates, so figures
 * are in the unit of all costs, milliseconds; rules that lean on each other each get the whole of
 * what they save together.
 */
#include <string.h>

#include "plan_int.h"

/* Less than this share of the cost without the rule is not worth a word. */
static const double LEAST_SAVING = 0.01;

/* The plan's cost without one rule; a negative one: there is no such plan. */
static double cost_without(const sql_stmt *stmt, const plan_env *env, const char *rule) {
    settings without = {0};
    plan_env other = *env;
    sql_stmt plain = *stmt;
    buf off = {0};
    plan *p;
    err e = {0};
    double cost = -1;
    arena *mem = arena_new();
    settings_copy(&without, env->settings);
    buf_printf(&off, "%s%s%s", without.rules_off, *without.rules_off ? ", " : "", rule);
    other.settings = &without;
    plain.explain.savings = plain.explain.rules = false;
    if (settings_set(&without, STR("rules_off"), value_text(buf_str(&off)), &e) == 0 &&
        plan_build(&plain, &other, mem, &p, &e) == 0)
        cost = p->total.cost_ms;
    buf_free(&off);
    settings_free(&without);
    arena_free(mem);
    return cost;
}

static bool is_off(const plan *p, const char *rule) {
    for (int i = 0; i < p->nrules; i++)
        if (strcmp(p->rules[i].name, rule) == 0)
            return !p->rules[i].changed;
    return false;
}

void plan_find_savings(plan *p, const plan_env *env, arena *a) {
    size_t n = 0;
    const plan_rule_info *rule;
    while (plan_rule(n))
        n++;
    p->savings = ARENA_ARRAY(a, plan_saving, n);
    for (size_t i = 0; (rule = plan_rule(i)) != NULL; i++) {
        double cost = is_off(p, rule->name) ? -1 : cost_without(p->stmt, env, rule->name);
        if (cost > 0 && cost - p->total.cost_ms >= LEAST_SAVING * cost)
            p->savings[p->nsavings++] = (plan_saving){rule->name, cost - p->total.cost_ms};
    }
}
