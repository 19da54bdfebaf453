/*
 * bind_views.c - checks that a change of tables or views leaves the other views valid.
 *
 * A view is stored as text and bound wherever it is used. Invariant: a change that would make a
 * view invalid is an error that names the view; a view that is already invalid blocks nothing.
 */
#include <string.h>

#include "bind_int.h"

static bool binds(binder *b, const catalog *c, const view_def *v, err *why) {
    bind_env env = *b->env;
    sql_stmt *s;
    env.catalog = c;
    env.rows = NULL; /* the stored rows need not fit that catalog */
    if (sql_bind_text(v->sql, &env, b->mem, &s, why))
        return false;
    if (v->ncolumns && v->ncolumns != s->query->ncols) {
        err_set(why, ERR_BIND, "the view lists %d columns, but its query returns %d", v->ncolumns,
                s->query->ncols);
        return false;
    }
    return true;
}

static int views_survive(binder *b, const catalog *after, ident place) {
    for (int i = 0; i < after->nviews; i++) {
        const view_def *v = &after->views[i];
        err why, before;
        if (binds(b, after, v, &why) || !binds(b, b->env->catalog, v, &before))
            continue;
        fail_ident(b, place, "view \"%.*s\" would break: %s", (int)v->name.n, v->name.p,
                   why.message);
        err_hint(b->e, "DROP VIEW %.*s first", (int)v->name.n, v->name.p);
        return ERR_BIND;
    }
    return 0;
}

int views_allow_table(binder *b, const table_def *old, const table_def *changed, ident place) {
    const catalog *now = b->env->catalog;
    if (now->nviews == 0)
        return 0;
    table_def *tables = ARENA_ARRAY(b->mem, table_def, now->ntables + 1);
    catalog after = *now;
    after.tables = tables;
    after.ntables = 0;
    for (int i = 0; i < now->ntables; i++) {
        const table_def *t = &now->tables[i];
        if (changed && str_compare_nocase(changed->name, t->name) < 0) {
            /* tables are sorted by name, and `changed` may have a new name */
            tables[after.ntables++] = *changed;
            changed = NULL;
        }
        if (t != old)
            tables[after.ntables++] = *t;
    }
    if (changed)
        tables[after.ntables++] = *changed;
    return views_survive(b, &after, place);
}

int views_allow_view(binder *b, const view_def *old, const view_def *changed, ident place) {
    const catalog *now = b->env->catalog;
    view_def *views = ARENA_ARRAY(b->mem, view_def, now->nviews);
    catalog after = *now;
    after.views = views;
    after.nviews = 0;
    for (int i = 0; i < now->nviews; i++)
        if (&now->views[i] != old)
            views[after.nviews++] = now->views[i];
        else if (changed)
            views[after.nviews++] = *changed;
    err why;
    if (changed && !binds(b, &after, changed, &why))
        return fail_ident(b, place, "view \"%.*s\" would read itself", (int)changed->name.n,
                          changed->name.p);
    return views_survive(b, &after, place);
}
