/*
 * scope.c - name resolution: the column that a name refers to, and the errors and hints for unknown
 * and ambiguous names.
 *
 * Invariant: a column of an outer scope appears in a subquery only by its id. The planner finds
 * correlated columns as the ids that the subquery itself does not produce.
 */
#include <stdio.h>
#include <string.h>

#include "bind_int.h"

/* ---- errors ---------------------------------------------------------------------------------- */

static int fail_v(binder *b, err_code code, int pos, int len, const char *format, va_list args) {
    char message[sizeof b->e->message];
    vsnprintf(message, sizeof message, format, args);
    if (b->view_depth > 0)
        return err_set(b->e, code, "%s", message);
    return err_set_at(b->e, code, pos, len, "%s", message);
}

int fail(binder *b, err_code code, int pos, int len, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = fail_v(b, code, pos, len, format, args);
    va_end(args);
    return status;
}

int fail_node(binder *b, const node *n, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = fail_v(b, ERR_BIND, n->pos, n->len, format, args);
    va_end(args);
    return status;
}

int fail_ident(binder *b, ident i, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = fail_v(b, ERR_BIND, i.pos, i.len, format, args);
    va_end(args);
    return status;
}

void hint_nearest(binder *b, str word, const char *const *candidates, size_t count) {
    const char *meant = str_nearest(word, candidates, count);
    if (meant)
        err_hint(b->e, "did you mean \"%s\"?", meant);
}

/* ---- ids ------------------------------------------------------------------------------------- */

id_info *id_of(binder *b, int id) {
    if (id >= b->ids_cap) {
        int cap = BASE_MAX(2 * b->ids_cap, id + 64);
        id_info *ids = ARENA_ARRAY(b->mem, id_info, cap);
        if (b->ids_cap)
            memcpy(ids, b->ids, sizeof *ids * (size_t)b->ids_cap);
        b->ids = ids;
        b->ids_cap = cap;
    }
    return &b->ids[id];
}

int new_id(binder *b) {
    int id = b->next_id++;
    *id_of(b, id) = (id_info){.same_as = id};
    return id;
}

void id_copy(binder *b, int to, const expr *from) {
    if (from->kind != EXPR_COLUMN) {
        id_of(b, to)->made_of[0] = from;
        return;
    }
    id_info info = *id_of(b, from->column.id);
    *id_of(b, to) = info;
}

/* ---- columns --------------------------------------------------------------------------------- */

scope_column *scope_add(binder *b, scope *s, str table, str name, int id, value_type type) {
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 16;
        scope_column *cols = ARENA_ARRAY(b->mem, scope_column, cap);
        if (s->n)
            memcpy(cols, s->cols, sizeof *cols * (size_t)s->n);
        s->cols = cols;
        s->cap = cap;
    }
    scope_column *c = &s->cols[s->n++];
    *c = (scope_column){.table = table, .name = name, .id = id, .type = type};
    return c;
}

void scope_add_column(binder *b, scope *s, const scope_column *c) {
    *scope_add(b, s, c->table, c->name, c->id, c->type) = *c;
}

bool scope_has_table(const scope *s, str table) {
    for (int i = 0; i < s->n; i++)
        if (str_equal_nocase(s->cols[i].table, table))
            return true;
    return false;
}

static bool name_matches(const scope_column *c, const node *n) {
    if (!str_equal_nocase(c->name, n->name.name))
        return false;
    return n->qualifier.name.n ? str_equal_nocase(c->table, n->qualifier.name) : !c->merged;
}

const scope_column *scope_named(const binder *b, const node *n) {
    for (const scope *s = b->at.scope; s; s = s->outer)
        for (int i = 0; i < s->n; i++)
            if (name_matches(&s->cols[i], n))
                return &s->cols[i];
    return NULL;
}

static const scope_column *find_in(binder *b, const scope *s, const node *n, bool *failed) {
    const scope_column *found = NULL;
    for (int i = 0; i < s->n; i++) {
        const scope_column *c = &s->cols[i];
        if (!name_matches(c, n))
            continue;
        if (found) {
            *failed = true;
            fail_node(b, n, "column \"%.*s\" is ambiguous", (int)n->name.name.n, n->name.name.p);
            if (found->table.n && c->table.n && !str_equal_nocase(found->table, c->table))
                err_hint(b->e, "did you mean %.*s.%.*s or %.*s.%.*s?", (int)found->table.n,
                         found->table.p, (int)found->name.n, found->name.p, (int)c->table.n,
                         c->table.p, (int)c->name.n, c->name.p);
            return NULL;
        }
        found = c;
    }
    return found;
}

/* Writes " in reviews" or " in r, m": the first four tables of the scope. */
static void tables_of(binder *b, const scope *s, char *out, size_t room) {
    (void)b;
    size_t used = 0;
    out[0] = 0;
    str last = {NULL, 0};
    int count = 0;
    for (int i = 0; i < s->n && count < 4; i++) {
        if (!s->cols[i].table.n || str_equal_nocase(last, s->cols[i].table))
            continue;
        last = s->cols[i].table;
        int k = snprintf(out + used, room - used, "%s\"%.*s\"", count ? ", " : " in ",
                         (int)BASE_MIN(last.n, (size_t)40), last.p);
        if (k < 0 || (size_t)k >= room - used)
            return;
        used += (size_t)k;
        count++;
    }
}

bool hint_select_alias(binder *b, const node *n) {
    for (int i = 0; b->where_aliases && !n->qualifier.name.n && i < b->where_aliases->n; i++) {
        const select_item *item = b->where_aliases->items[i];
        if (!str_equal_nocase(item->alias.name, n->name.name))
            continue;
        err_hint(b->e,
                 "WHERE is evaluated before the select list: repeat the expression named \"%.*s\"",
                 (int)BASE_MIN(n->name.name.n, (size_t)60), n->name.name.p);
        return true;
    }
    return false;
}

static void hint_column(binder *b, const node *n) {
    enum { MOST = 512 };
    if (hint_select_alias(b, n))
        return;
    const char *names[MOST];
    size_t count = 0;
    for (const scope *s = b->at.scope; s; s = s->outer)
        for (int i = 0; i < s->n && count < MOST; i++) {
            const scope_column *c = &s->cols[i];
            if (n->qualifier.name.n && !str_equal_nocase(c->table, n->qualifier.name))
                continue;
            /* a merged column, which is visible only with its table's name */
            if (str_equal_nocase(c->name, n->name.name)) {
                err_hint(b->e, "did you mean %.*s.%.*s?", (int)c->table.n, c->table.p,
                         (int)c->name.n, c->name.p);
                return;
            }
            names[count++] = arena_strndup(b->mem, c->name.p, c->name.n);
        }
    const char *meant = str_nearest(n->name.name, names, count);
    if (meant) {
        err_hint(b->e, "did you mean \"%s\"?", meant);
        return;
    }
    if (!n->qualifier.name.n && ident_quoted(n->name))
        err_hint(b->e, "write text in single quotes: '%.*s'",
                 (int)BASE_MIN(n->name.name.n, (size_t)100), n->name.name.p);
    else if (n->name.name.n >= 3 && memcmp(n->name.name.p, "\xe2\x80", 2) == 0) /* ‘ ’ “ ” */
        err_hint(b->e, "write text in straight single quotes: '…'");
    else if (!n->qualifier.name.n && n->name.name.n > 3 && !keyword_code(n->name.name) &&
             keyword_nearest(n->name.name))
        err_hint(b->e, "did you mean %s?", keyword_nearest(n->name.name));
    else if (!b->at.scope || b->at.scope->n == 0)
        err_hint(b->e, "the query has no FROM; write text in single quotes");
}

/* Reports a reference in ON to a table before the comma: FROM a, b JOIN c ON a.x = c.x. */
static bool fail_comma_table(binder *b, const node *n) {
    if (!b->comma_tables || !scope_has_table(b->comma_tables, n->qualifier.name))
        return false;
    fail_ident(b, n->qualifier, "table \"%.*s\" cannot be used in this ON",
               (int)n->qualifier.name.n, n->qualifier.name.p);
    if (b->target.n && str_equal_nocase(b->target, n->qualifier.name))
        err_hint(b->e, "put conditions on the updated table into WHERE");
    else
        err_hint(b->e, "JOIN binds tighter than a comma: write CROSS JOIN instead of the comma");
    return true;
}

/* Reports a reference from a recursive CTE to the query outside it: (WITH RECURSIVE r AS (SELECT
 * t.a …) …). */
static bool fail_recursion_outer(binder *b, const node *n) {
    bool failed = false;
    for (const scope *s = b->recursion_outer; s; s = s->outer)
        if (find_in(b, s, n, &failed) || failed) {
            fail_ident(b, n->name,
                       "a recursive CTE cannot refer to column \"%.*s\" of the outer query",
                       (int)n->name.name.n, n->name.name.p);
            err_hint(b->e, "read the outer table in the first part of the CTE, keep its key as a "
                           "column, and match that key in the outer query");
            return true;
        }
    return false;
}

static void unknown_table(binder *b, const node *n) {
    if (fail_comma_table(b, n))
        return;
    enum { MOST = 64 };
    const char *names[MOST];
    size_t count = 0;
    str last = {NULL, 0};
    for (const scope *s = b->at.scope; s; s = s->outer)
        for (int i = 0; i < s->n && count < MOST; i++)
            if (s->cols[i].table.n && !str_equal_nocase(last, s->cols[i].table)) {
                last = s->cols[i].table;
                names[count++] = arena_strndup(b->mem, last.p, last.n);
            }
    fail_ident(b, n->qualifier, "no table \"%.*s\" in FROM", (int)n->qualifier.name.n,
               n->qualifier.name.p);
    if (b->left_tables && scope_has_table(b->left_tables, n->qualifier.name))
        err_hint(b->e, "write LATERAL before a subquery that reads the tables to its left");
    else
        hint_nearest(b, n->qualifier.name, names, count);
    /* after FROM movies m, which hides the name movies, the hint lists m */
    if (count && !b->e->hint[0]) {
        buf all = {0};
        for (size_t i = 0; i < count; i++)
            buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
        err_hint(b->e, "FROM has %s", all.p);
        buf_free(&all);
    }
}

const scope_column *scope_find(binder *b, const node *n) {
    bool failed = false, table_seen = n->qualifier.name.n == 0;
    for (const scope *s = b->at.scope; s; s = s->outer) {
        const scope_column *c = find_in(b, s, n, &failed);
        if (c || failed)
            return c;
        table_seen = table_seen || scope_has_table(s, n->qualifier.name);
    }
    if (fail_recursion_outer(b, n))
        return NULL;
    if (!table_seen) {
        unknown_table(b, n);
        return NULL;
    }
    char where[256];
    where[0] = 0;
    if (n->qualifier.name.n)
        snprintf(where, sizeof where, " in \"%.*s\"",
                 (int)BASE_MIN(n->qualifier.name.n, (size_t)100), n->qualifier.name.p);
    else if (b->at.scope)
        tables_of(b, b->at.scope, where, sizeof where);
    fail_ident(b, n->name, "no column \"%.*s\"%s", (int)n->name.name.n, n->name.name.p, where);
    hint_column(b, n);
    return NULL;
}
