/*
 * savings.c - computes how much each rule saves: the estimated cost of the plan without the rule,
 * minus the cost of the plan with it.
 *
 * If several rules are only useful together, each rule is shown with their whole saving.
 */
#include <string.h>

#include "plan_int.h"

/* Smaller savings, as a fraction of the cost without the rule, are not shown. */
static const double LEAST_SAVING = 0.01;

/* Returns the plan's cost without one rule; -1: the statement cannot be planned without the
 * rule. */
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

/* Whether the rule ran and changed nothing, so that the plan without it is the same. */
static bool had_no_effect(const plan *p, const char *rule) {
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
        double cost = had_no_effect(p, rule->name) ? -1 : cost_without(p->stmt, env, rule->name);
        if (cost > 0 && cost - p->total.cost_ms >= LEAST_SAVING * cost)
            p->savings[p->nsavings++] = (plan_saving){rule->name, cost - p->total.cost_ms};
    }
}
