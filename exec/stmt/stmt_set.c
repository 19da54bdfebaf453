/*
 * stmt_set.c - SET, RESET, SHOW, BEGIN, COMMIT, ROLLBACK.
 *
 * Invariant: settings change only here, so they are constant while another statement runs.
 * `rule.<name>` is stored in the setting rules_off, a list of rule names separated by blanks or
 * commas.
 */
#include <stdlib.h>
#include <string.h>

#include "stmt_int.h"

/* ---- rule.<name> ----------------------------------------------------------------------------- */

static bool is_rule(str name, str *rule) {
    if (name.n < 5 || !str_equal_nocase((str){name.p, 5}, STR("rule.")))
        return false;
    *rule = (str){name.p + 5, name.n - 5};
    return true;
}

static int set_rule(settings *s, str name, bool on, err *e) {
    const plan_rule_info *rule = plan_rule_find(name, e);
    str off = str_from(s->rules_off);
    buf list = {0};
    if (!rule)
        return ERR_BIND;
    for (str other; (other = plan_rules_split_next(&off)).n;)
        if (!str_equal_nocase(other, str_from(rule->name)))
            buf_printf(&list, "%s%.*s", list.n ? " " : "", (int)other.n, other.p);
    if (!on)
        buf_printf(&list, "%s%s", list.n ? " " : "", rule->name);
    int status = settings_set(s, STR("rules_off"), value_text(buf_str(&list)), e);
    buf_free(&list);
    return status;
}

/* Refuses SET rules_off with a name that is not a rule. */
static int check_rules_off(value v, err *e) {
    buf text = {0};
    if (v.type != TYPE_NULL)
        value_print(&text, v);
    str list = buf_str(&text);
    int status = 0;
    for (str name; status == 0 && (name = plan_rules_split_next(&list)).n;)
        status = plan_rule_find(name, e) ? 0 : ERR_BIND;
    buf_free(&text);
    return status;
}

/* ---- SET, RESET, SHOW ------------------------------------------------------------------------ */

int stmt_set(stmt *s, sql_stmt *x, err *e) {
    str rule;
    if (is_rule(x->name, &rule))
        return set_rule(&s->db->settings, rule, x->set_value.i != 0, e);
    int status = str_equal_nocase(x->name, STR("rules_off")) ? check_rules_off(x->set_value, e) : 0;
    return status ? status : settings_set(&s->db->settings, x->name, x->set_value, e);
}

int stmt_reset(stmt *s, sql_stmt *x, err *e) {
    size_t count;
    const setting_info *all = settings_table(&count);
    settings *set = &s->db->settings;
    str rule;
    if (is_rule(x->name, &rule))
        return set_rule(set, rule, true, e);
    if (x->name.n && !str_equal_nocase(x->name, STR("all"))) {
        for (size_t k = 0; k < count; k++)
            if (str_equal_nocase(x->name, str_from(all[k].name)))
                return settings_set(set, x->name, value_text(str_from(all[k].standard)), e);
        /* fails, with a similar setting's name as the hint */
        return settings_set(set, x->name, value_null(), e);
    }
    int status = 0;
    for (size_t k = 0; k < count && status == 0; k++)
        status = settings_set(set, str_from(all[k].name), value_text(str_from(all[k].standard)), e);
    return status;
}

static int show_all(stmt *s, err *e) {
    static const value_type types[] = {TYPE_TEXT, TYPE_TEXT, TYPE_TEXT};
    const str names[] = {STR("setting"), STR("value"), STR("help")};
    size_t count;
    const setting_info *all = settings_table(&count);
    batch b;
    stmt_describe(s, 3, names, types, TEXT_NONE);
    batch_init(&b, s->mem, types, 3, (int)count);
    for (size_t k = 0; k < count; k++) {
        buf text = {0};
        int status = settings_show(&s->db->settings, str_from(all[k].name), &text, e);
        b.cols[0].s[k] = str_from(all[k].name);
        b.cols[1].s[k] = str_copy(s->mem, buf_str(&text));
        b.cols[2].s[k] = *all[k].words
                             ? str_from(arena_printf(s->mem, "%s (%s)", all[k].help, all[k].words))
                             : str_from(all[k].help);
        buf_free(&text);
        if (status)
            return status;
    }
    b.rows = (int)count;
    return stmt_push(s, &b, e);
}

int stmt_show(stmt *s, sql_stmt *x, err *e) {
    str rule;
    if (x->name.n == 0 || str_equal_nocase(x->name, STR("all")))
        return show_all(s, e);
    if (is_rule(x->name, &rule)) {
        bool off = plan_rules_have(str_from(s->db->settings.rules_off), rule);
        return plan_rule_find(rule, e)
                   ? stmt_push_text(s, x->name, off ? STR("off") : STR("on"), TEXT_NONE, e)
                   : ERR_BIND;
    }
    buf text = {0};
    int status = settings_show(&s->db->settings, x->name, &text, e);
    if (status == 0)
        status = stmt_push_text(s, x->name, str_copy(s->mem, buf_str(&text)), TEXT_NONE, e);
    buf_free(&text);
    return status;
}

/* ---- transactions ---------------------------------------------------------------------------- */

static int begin(stmt *s, err *e) {
    if (atomic_load(&s->db->in_transaction))
        return err_set(e, ERR_BIND, "a transaction is already open");
    atomic_store(&s->db->failed, false);
    atomic_store(&s->db->in_transaction, true);
    return 0;
}

static int end(stmt *s, bool commit, err *e) {
    db *d = s->db;
    if (!atomic_load(&d->in_transaction))
        return err_set(e, ERR_BIND, "no transaction is open");
    txn *t = d->txn;
    int status = 0;
    if (d->active == t)
        d->active = NULL;
    d->txn = NULL;
    atomic_store(&d->in_transaction, false);
    atomic_store(&d->failed, false);
    s->ctx.txn = NULL;
    if (t && commit && txn_is_write(t))
        status = txn_commit(t, e);
    else
        txn_abort(t);
    return status;
}

int stmt_transaction(stmt *s, sql_stmt *x, err *e) {
    if (x->kind == STMT_BEGIN)
        return begin(s, e);
    return end(s, x->kind == STMT_COMMIT, e);
}
