/*
 * llm_names.c - calls by the names that other systems use, AI_FILTER(…) and the like, rewritten to
 * the calls of LLM() that they stand for (SQL_LLM_NAMES).
 *
 * Invariant: only the syntax tree differs from that of the LLM() call written out; what follows
 * treats both alike. The table's text is parsed, and its parts are replaced: `prompt` and `text` by
 * the first argument, {text} in an instruction by that field's name, {language} by the second
 * argument, {labels} and the answers of its ENUM, or the fields of its STRUCT, by the labels.
 * Arguments after `prompt` become fields. What else may be wrong, such as two equal labels, the binder reports in the result.
 */
#include <string.h>

#include "ast_int.h"

typedef struct rewrite {
    parser *p;
    const llm_name_info *info;
    token name;
    const node *form;   /* the call of LLM() that the name stands for */
    list given;         /* of llm_arg*: the arguments, without options */
    list out;           /* of llm_arg*: the arguments of LLM() */
    const node *labels; /* NODE_ROW: the labels, if written as a list */
} rewrite;

static const llm_arg *given_arg(const rewrite *r, int i) {
    return r->given.items[i];
}

static bool is_text(const node *n) {
    return n->kind == NODE_LITERAL && n->literal.type == TYPE_TEXT;
}

/* Reports an error at `at`, or at the name if it is NULL. */
static void complain(const rewrite *r, const node *at, const char *what) {
    int pos = at ? at->pos : r->name.pos, len = at ? at->len : r->name.len;
    if (r->p->failed)
        return;
    parser_fail(r->p, ERR_BIND, pos, len, "%s() %s", r->info->name, what);
    err_hint(r->p->error, "%s%s%s", r->info->signature, *r->info->instead ? "; " : "",
             r->info->instead);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static bool takes_prompt(const rewrite *r) {
    return r->form->args[0]->kind == NODE_COLUMN;
}

static bool returns_struct(const rewrite *r) {
    return r->form->returns.fields.n > 0;
}

static bool takes_labels(const rewrite *r) {
    return strstr(r->info->stands_for, "{labels}") != NULL || returns_struct(r);
}

static bool takes_language(const rewrite *r) {
    return strstr(r->info->stands_for, "{language}") != NULL;
}

/* The labels are the arguments after the text, or the items of a list. */
static int label_count(const rewrite *r) {
    return r->labels ? r->labels->nargs : r->given.n - 1;
}

static const node *label(const rewrite *r, int i) {
    return r->labels ? r->labels->args[i] : given_arg(r, i + 1)->value;
}

static void add_arg(rewrite *r, node *x, ident alias) {
    llm_arg *a = ARENA_NEW(r->p->mem, llm_arg);
    *a = (llm_arg){.value = x, .alias = alias};
    list_add(r->p->mem, &r->out, a);
}

/* Appends a text to an instruction, in which a brace is written twice. */
static void append_plain(buf *out, str s) {
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '{' || s.p[i] == '}')
            buf_append_char(out, s.p[i]);
        buf_append_char(out, s.p[i]);
    }
}

static void append_labels(const rewrite *r, buf *out) {
    int n = label_count(r);
    for (int i = 0; i < n; i++) {
        buf_append_c(out, i == 0 ? "" : i == n - 1 ? " or " : ", ");
        append_plain(out, label(r, i)->literal.s);
    }
}

/* Returns the instruction with {text} replaced by {field}, {labels} by the labels and {language} by
 * the second argument. */
static str fill_in(const rewrite *r, str field) {
    buf out = {0};
    str rest = r->form->args[0]->literal.s;
    while (rest.n) {
        str plain = str_split_next(&rest, '{'), place = str_split_next(&rest, '}');
        buf_append_str(&out, plain);
        if (str_equal(place, STR("labels")))
            append_labels(r, &out);
        else if (str_equal(place, STR("language")))
            append_plain(&out, given_arg(r, 1)->value->literal.s);
        else if (place.n)
            buf_printf(&out, "{%.*s}", (int)field.n, field.p);
    }
    str text = str_copy(r->p->mem, buf_str(&out));
    buf_free(&out);
    return text;
}

/* Adds the instruction, and the text that it is about. A text that is no column, or whose name
 * cannot stand in braces, is a field named text. */
static void add_text(rewrite *r) {
    const llm_arg *text = given_arg(r, 0);
    node *x = text->value;
    token place = {{NULL, 0}, x->pos, x->len};
    ident alias = text->alias, none = {{NULL, 0}, 0, 0};
    str field = alias.name.n ? alias.name : x->kind == NODE_COLUMN ? x->name.name : none.name;
    if (!field.n || memchr(field.p, '}', field.n)) {
        alias = (ident){STR("text"), x->pos, x->len};
        field = alias.name;
    }
    if (text->alias.name.n)
        place.len = text->alias.pos + text->alias.len - x->pos;
    add_arg(r, node_value(r->p, place, value_text(fill_in(r, field))), none);
    add_arg(r, x, alias);
}

static void add_prompt(rewrite *r) {
    for (int i = 0; i < r->given.n; i++)
        add_arg(r, given_arg(r, i)->value, given_arg(r, i)->alias);
}

static void add_labels(const rewrite *r, llm_type *type) {
    type->literals = (list){0};
    for (int i = 0; i < label_count(r); i++) {
        str *s = ARENA_NEW(r->p->mem, str);
        *s = label(r, i)->literal.s;
        list_add(r->p->mem, &type->literals, s);
    }
}

static void add_columns(const rewrite *r, llm_type *type) {
    const struct_field *form = type->fields.items[0];
    type->fields = (list){0};
    for (int i = 0; i < label_count(r); i++) {
        const node *n = label(r, i);
        struct_field *f = ARENA_NEW(r->p->mem, struct_field);
        *f = *form;
        f->name = (ident){n->literal.s, n->pos, n->len};
        f->pos = f->type.pos = n->pos;
        f->len = f->type.len = n->len;
        list_add(r->p->mem, &type->fields, f);
    }
}

static bool has_option(const rewrite *r, str name) {
    for (int i = 0; i < r->out.n; i++)
        if (str_equal_nocase(((llm_arg *)r->out.items[i])->option.name, name))
            return true;
    return false;
}

/* Adds the options of the table's call that are not given. */
static void add_options(rewrite *r) {
    for (int i = 0; i < r->form->options.n; i++) {
        const llm_option *o = r->form->options.items[i];
        if (has_option(r, o->name.name))
            continue;
        llm_arg *a = ARENA_NEW(r->p->mem, llm_arg);
        *a = (llm_arg){.value = o->value, .option = {o->name.name, r->name.pos, r->name.len}};
        a->value->pos = r->name.pos;
        a->value->len = r->name.len;
        list_add(r->p->mem, &r->out, a);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* True for 'Is it kind?' and 'Is it kind: ' || review: in other systems the prompt comes second,
 * after a model. */
static bool is_prompt(const node *n) {
    return is_text(n) || (n->kind == NODE_OP && n->op == OP_CONCAT && is_text(n->args[0]));
}

static bool has_right_count(const rewrite *r) {
    bool labels = takes_labels(r), language = takes_language(r);
    int least = returns_struct(r) ? 1 : 2; /* labels */
    int most = r->labels || language ? 2 : labels || takes_prompt(r) ? r->given.n : 1;
    if (r->given.n < 1 + language || (labels && label_count(r) < least))
        complain(r, NULL, "has too few arguments");
    else if (r->given.n > most)
        complain(r, given_arg(r, most)->value, "has too many arguments");
    return !r->p->failed;
}

static bool has_right_arguments(const rewrite *r) {
    const llm_arg *second = r->given.n > 1 ? given_arg(r, 1) : NULL;
    if (!takes_prompt(r) && given_arg(r, 0)->value->kind == NODE_STAR)
        complain(r, given_arg(r, 0)->value, "takes one text, not all columns");
    if (takes_prompt(r) && second && is_prompt(second->value) && !second->alias.name.n)
        complain(r, second->value, "takes one prompt, and columns after it");
    if (takes_language(r) && !is_text(second->value))
        complain(r, second->value, "needs the language as a text");
    for (int i = 0; takes_labels(r) && i < label_count(r); i++)
        if (!is_text(label(r, i)))
            complain(r, label(r, i), "needs its labels as texts");
    return !r->p->failed;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* EMBED('text') is (SELECT EMBED('text')): computed once, not for each row of FROM. */
static node *computed_once(parser *p, node *call, token name) {
    list *items = list_new(p->mem);
    list_add(p->mem, items, select_item_new(p, call, NULL));
    query *q = query_select(p, name, false, items, NULL, NULL, NULL, NULL);
    q->pos = call->pos;
    q->len = call->len;
    return node_subquery(p, q);
}

node *node_llm_name(parser *p, token name, const list *args, llm_on_error on_error, token end) {
    const llm_name_info *info = llm_name_find(name.text);
    rewrite r = {.p = p, .info = info, .name = name};
    node *form, *call;
    if (sql_parse_expr(str_from(info->stands_for), p->mem, &form, p->error)) {
        p->failed = true; /* not enough memory: that the table's texts are right is tested */
        return node_new(p, NODE_LITERAL, name.pos, name.len);
    }
    bool mean = form->kind == NODE_CALL;
    r.form = mean ? form->args[0] : form;
    for (int i = 0; i < args->n; i++) {
        llm_arg *a = args->items[i];
        if (!a->option.name.n)
            list_add(p->mem, &r.given, a);
    }
    if (r.given.n == 2 && takes_labels(&r) && given_arg(&r, 1)->value->kind == NODE_ROW)
        r.labels = given_arg(&r, 1)->value;
    llm_type *type = ARENA_NEW(p->mem, llm_type);
    *type = r.form->returns;
    type->pos = name.pos;
    type->len = end.pos + end.len - name.pos;
    if (has_right_count(&r) && has_right_arguments(&r)) {
        if (takes_prompt(&r))
            add_prompt(&r);
        else
            add_text(&r);
        if (returns_struct(&r))
            add_columns(&r, type);
        else if (takes_labels(&r))
            add_labels(&r, type);
    }
    for (int i = 0; i < args->n; i++)
        if (((llm_arg *)args->items[i])->option.name.n)
            list_add(p->mem, &r.out, args->items[i]);
    add_options(&r);
    call = node_llm(p, name, &r.out, on_error, type, end);
    call->name = (ident){str_from(info->name), name.pos, name.len};
    bool vector = str_equal(r.form->returns.name.name, STR("VECTOR"));
    if (vector && !p->failed && is_text(given_arg(&r, 0)->value))
        return computed_once(p, call, name);
    if (!mean)
        return call;
    list only = {0};
    list_add(p->mem, &only, call);
    return node_call(p, (token){form->name.name, name.pos, name.len}, false, &only, end);
}
