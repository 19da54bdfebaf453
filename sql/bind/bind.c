/*
 * bind.c - binds a statement: the passes over it, and the statements that are neither queries, DML
 * nor DDL.
 *
 * Invariant: binding changes neither the syntax tree nor the catalog, so a statement can be bound
 * again when the inferred type of an LLM call changes (llm_type.c).
 */
#include <stdio.h>
#include <string.h>

#include "bind_int.h"

enum { MAX_PASSES = 8 };

/* ---- settings -------------------------------------------------------------------------------- */

static str setting_name(binder *b, const ast *a) {
    if (!a->name2.name.n)
        return a->name.name;
    return str_from(arena_printf(b->mem, "%.*s.%.*s", (int)a->name.name.n, a->name.name.p,
                                 (int)a->name2.name.n, a->name2.name.p));
}

static int fail_setting(binder *b, const err *problem, int pos, int len) {
    fail(b, problem->code, pos, len, "%s", problem->message);
    if (problem->hint[0])
        err_hint(b->e, "%s", problem->hint);
    return (int)problem->code;
}

static bool is_rule(const ast *a) {
    return a->name2.name.n && str_equal_nocase(a->name.name, STR("rule"));
}

/* Sets the value on a copy of the settings, so that the error for a wrong value has a position. */
static int try_setting(binder *b, const ast *a, const sql_stmt *s) {
    settings copy = {0};
    err problem = {0};
    settings_copy(&copy, b->env->settings);
    int status = settings_set(&copy, s->name, s->set_value, &problem);
    settings_free(&copy);
    if (!status)
        return 0;
    if (problem.code == ERR_BIND || !a->value)
        return fail_setting(b, &problem, a->name.pos,
                            a->name2.name.n ? a->name2.pos + a->name2.len - a->name.pos
                                            : a->name.len);
    return fail_setting(b, &problem, a->value->pos, a->value->len);
}

static int bind_set(binder *b, const ast *a, sql_stmt *s) {
    s->kind = STMT_SET;
    s->name = setting_name(b, a);
    s->set_value = value_null();
    if (a->value->kind != NODE_DEFAULT) {
        expr *x = bind_expr(b, a->value);
        if (!x)
            return (int)b->e->code;
        s->set_value = x->literal;
    }
    if (!is_rule(a))
        return try_setting(b, a, s);
    bool on = true;
    if (s->set_value.type != TYPE_NULL && !parse_boolean(s->set_value, &on))
        return fail(b, ERR_TYPE, a->value->pos, a->value->len, "%.*s must be on or off",
                    (int)s->name.n, s->name.p);
    s->set_value = value_bool(on);
    return 0;
}

static int known_setting(binder *b, const ast *a, const sql_stmt *s) {
    buf ignored = {0};
    err problem = {0};
    int status = is_rule(a) ? 0 : settings_show(b->env->settings, s->name, &ignored, &problem);
    buf_free(&ignored);
    return status ? fail_setting(b, &problem, a->name.pos, a->name.len) : 0;
}

/* Binds SHOW name as SELECT * FROM kvasir_name, for every system table. */
static int bind_show_rows(binder *b, const ast *a, str table, sql_stmt *s) {
    node star = {.kind = NODE_STAR, .pos = a->name.pos, .len = a->name.len};
    select_item item = {.value = &star};
    void *items[1] = {&item};
    from_item from = {.kind = FROM_NAME, .pos = a->name.pos, .len = a->name.len, .name = a->name};
    query q = {.kind = QUERY_SELECT,
               .pos = a->name.pos,
               .len = a->name.len,
               .items = {items, 1, 1},
               .from = &from};
    from.name.name = table;
    s->kind = STMT_SELECT;
    s->name = STR("");
    return bind_query(b, &q, &s->query);
}

static int bind_show(binder *b, const ast *a, sql_stmt *s) {
    s->kind = STMT_SHOW;
    s->name = setting_name(b, a);
    if (str_equal_nocase(s->name, STR("cache")))
        s->kind = STMT_SHOW_CACHE;
    else if (s->name.n) {
        str table = str_from(arena_printf(b->mem, "kvasir_%.*s", (int)s->name.n, s->name.p));
        return is_system_table(b, table) ? bind_show_rows(b, a, table, s) : known_setting(b, a, s);
    }
    return 0;
}

static int bind_reset(binder *b, const ast *a, sql_stmt *s) {
    s->kind = STMT_RESET;
    s->name = setting_name(b, a);
    return s->name.n ? known_setting(b, a, s) : 0;
}

/* ---- other statements ------------------------------------------------------------------------ */

static int explain_option(binder *b, const copy_option *o, sql_stmt *s) {
    static const char *const names[] = {"ANALYZE", "TOKENS", "RULES", "PROMPT", "TREE", "FORMAT"};
    bool *flags[] = {&s->explain.analyze, &s->explain.tokens, &s->explain.rules, &s->explain.prompt,
                     &s->explain.tree};
    for (size_t i = 0; i < BASE_COUNT(flags); i++)
        if (str_equal_nocase(o->name.name, str_from(names[i])))
            return bind_switch(b, o, flags[i]);
    if (str_equal_nocase(o->name.name, STR("FORMAT"))) {
        str word = o->value && o->value->literal.type == TYPE_TEXT ? o->value->literal.s : STR("");
        s->explain.json = str_equal_nocase(word, STR("json"));
        if (s->explain.json || str_equal_nocase(word, STR("text")))
            return 0;
        return fail_ident(b, o->name, "FORMAT must be JSON or TEXT");
    }
    fail_ident(b, o->name, "EXPLAIN has no option \"%.*s\"", (int)o->name.name.n, o->name.name.p);
    const char *meant = str_nearest(o->name.name, names, BASE_COUNT(names));
    if (str_equal_nocase(o->name.name, STR("COMPARE")))
        err_hint(b->e, "the shell's command .compare runs a query under each strategy");
    else
        err_hint(b->e,
                 meant ? "did you mean %s?"
                       : "options are ANALYZE, TOKENS, PROMPT, TREE, RULES, FORMAT JSON",
                 meant);
    return ERR_BIND;
}

/* PROMPT and TREE print prompts and no plan, so no other option goes with them. */
static int check_explain_options(binder *b, const ast *a, const sql_stmt *s) {
    int others = s->explain.analyze + s->explain.tokens + s->explain.rules + s->explain.json;
    if (s->explain.prompt + s->explain.tree == 0 ||
        s->explain.prompt + s->explain.tree + others == 1)
        return 0;
    const char *name = s->explain.prompt ? "PROMPT" : "TREE";
    for (int i = 0; i < a->items.n; i++) {
        const copy_option *o = a->items.items[i];
        if (str_equal_nocase(o->name.name, str_from(name)))
            fail_ident(b, o->name, "EXPLAIN (%s) cannot be combined with other options", name);
    }
    err_hint(b->e, s->explain.json ? "EXPLAIN (TOKENS, FORMAT JSON) has the token counts"
                                   : "run EXPLAIN once for each");
    return ERR_BIND;
}

static int bind_explain(binder *b, const ast *a, sql_stmt *s) {
    s->kind = STMT_EXPLAIN;
    s->explain.analyze = a->analyze;
    for (int i = 0; i < a->items.n; i++) {
        int status = explain_option(b, a->items.items[i], s);
        if (status)
            return status;
    }
    int status = check_explain_options(b, a, s);
    if (status)
        return status;
    s->explain.stmt = ARENA_NEW(b->mem, sql_stmt);
    s->explain.stmt->text = s->text;
    return bind_stmt(b, a->inner, s->explain.stmt);
}

static int bind_clear(binder *b, const ast *a, sql_stmt *s) {
    s->kind = STMT_CLEAR_CACHE;
    s->clear = a->clear;
    s->name = a->name.name;
    if (s->name.n && !catalog_model(b->env->catalog, s->name))
        return fail_model(b, a->name);
    return 0;
}

/* Binds WARM t USING LLM(…), which computes the KV of the prompts of SELECT LLM(…) FROM t. PIN also
 * keeps this KV in the cache, under the name of t. */
static int bind_warm(binder *b, const ast *a, sql_stmt *s) {
    s->kind = STMT_WARM;
    s->name = a->name.name;
    s->pin = a->pin;
    select_item item = {.value = a->llm};
    void *items[1] = {&item};
    from_item from = {.kind = FROM_NAME, .pos = a->name.pos, .len = a->name.len, .name = a->name};
    query q = {.kind = QUERY_SELECT,
               .pos = a->llm->pos,
               .len = a->llm->len,
               .items = {items, 1, 1},
               .from = &from};
    return bind_query(b, &q, &s->query);
}

static int bind_select_stmt(binder *b, ast *a, sql_stmt *s) {
    s->kind = STMT_SELECT;
    int status = bind_query(b, a->query, &s->query);
    if (!status)
        rel_settle_all(s->query);
    return status;
}

static int bind_analyze(binder *b, const ast *a, sql_stmt *s) {
    s->kind = STMT_ANALYZE;
    return a->name.name.n ? find_table(b, a->name, &s->table) : 0;
}

int bind_stmt(binder *b, ast *a, sql_stmt *s) {
    switch (a->kind) {
    case AST_NONE:
        break;
    case AST_QUERY:
        return bind_select_stmt(b, a, s);
    case AST_INSERT:
        return bind_insert(b, a, s);
    case AST_UPDATE:
        return bind_update(b, a, s);
    case AST_DELETE:
        return bind_delete(b, a, s);
    case AST_CREATE_TABLE:
        return bind_create_table(b, a, s);
    case AST_CREATE_INDEX:
        return bind_create_index(b, a, s);
    case AST_CREATE_VIEW:
        return bind_create_view(b, a, s);
    case AST_CREATE_MODEL:
        return bind_create_model(b, a, s);
    case AST_DROP:
        return bind_drop(b, a, s);
    case AST_ADD_COLUMN:
    case AST_DROP_COLUMN:
    case AST_RENAME_TABLE:
    case AST_RENAME_COLUMN:
        return bind_alter(b, a, s);
    case AST_COPY_FROM:
        return bind_copy_from(b, a, s);
    case AST_COPY_TO:
        return bind_copy_to(b, a, s);
    case AST_SIMPLE:
        s->kind = a->stmt;
        return 0;
    case AST_SET:
        return bind_set(b, a, s);
    case AST_RESET:
        return bind_reset(b, a, s);
    case AST_SHOW:
        return bind_show(b, a, s);
    case AST_EXPLAIN:
        return bind_explain(b, a, s);
    case AST_ANALYZE:
        return bind_analyze(b, a, s);
    case AST_CLEAR_CACHE:
        return bind_clear(b, a, s);
    case AST_WARM:
        return bind_warm(b, a, s);
    case AST_UNPIN: /* no check of the name: a dropped table may still have pinned KV */
        s->kind = STMT_UNPIN;
        s->name = a->name.name;
        return 0;
    }
    return err_set(b->e, ERR_INTERNAL, "unknown kind of statement");
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void collect_calls(binder *b, sql_stmt *s) {
    s->calls = ARENA_ARRAY(b->mem, llm_call *, b->ncalls);
    s->ncalls = b->ncalls;
    s->compares_null = b->compares_null;
    for (int i = 0; i < b->calls.n; i++) {
        call_info *info = b->calls.items[i];
        if (info->call->number)
            s->calls[info->call->number - 1] = info->call;
    }
    s->next_id = b->next_id;
    s->next_share = b->next_share;
    if (s->ncalls > 0)
        rel_note_answer_fields(s->explain.stmt ? s->explain.stmt->query : s->query, s->next_id,
                               s->next_share);
    if (s->explain.stmt) {
        s->explain.stmt->calls = s->calls;
        s->explain.stmt->ncalls = s->ncalls;
        s->explain.stmt->next_id = s->next_id;
        s->explain.stmt->next_share = s->next_share;
    }
}

#ifdef KVASIR_TEST_MODELS
atomic_uint sql_bound;
#endif

int sql_bind(const sql_tree *tree, const bind_env *env, arena *mem, sql_stmt **out, err *e) {
    list uses = {0}, label_sets = {0};
    for (int pass = 0; pass < MAX_PASSES; pass++) {
#ifdef KVASIR_TEST_MODELS
        sql_bound++;
#endif
        err_clear(e);
        sql_stmt *s = ARENA_NEW(mem, sql_stmt);
        s->text = tree->statement;
        binder b = {.mem = mem,
                    .env = env,
                    .e = e,
                    .text = tree->text,
                    .next_id = 1,
                    .next_share = 1,
                    .mentions_rowid = tree->mentions_rowid,
                    .uses = &uses,
                    .label_sets = &label_sets};
        int status = bind_stmt(&b, tree->ast, s);
        if (!status && llm_types_fit(&b)) {
            collect_calls(&b, s);
            s->read_rows = label_sets.n > 0;
            *out = s;
            return 0;
        }
        /* if this pass inferred a type, the next pass may succeed */
        if (status && !b.learned)
            return status;
    }
    err_set(e, ERR_BIND, "the types of the LLM calls depend on each other");
    err_hint(e, "write the type of each call: LLM(…) RETURNS ENUM('…', …)");
    return ERR_BIND;
}

int sql_bind_text(str text, const bind_env *env, arena *mem, sql_stmt **out, err *e) {
    sql_tree tree;
    int status = sql_parse(text, mem, &tree, e);
    return status ? status : sql_bind(&tree, env, mem, out, e);
}
