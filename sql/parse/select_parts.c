/*
 * select_parts.c - takes a SELECT apart into texts, for callers that compose statements of them
 * (.try asks each LLM call of a select list by a statement of its own).
 *
 * Invariant: all parts but names and answers are pieces of the statement's text, so that what is
 * composed of them means what the user wrote. Nothing is bound: whether names and types are right
 * is found by binding the statement itself.
 */
#include "ast_int.h"

static int refuse(err *e, int pos, int len, const char *what, const char *hint) {
    err_set_at(e, ERR_UNSUPPORTED, pos, len, "%s", what);
    err_hint(e, "%s", hint);
    return ERR_UNSUPPORTED;
}

static int check_shape(const query *q, str text, err *e) {
    const char *inner = "put it into a subquery: SELECT … FROM (SELECT …) AS t";
    if (q->kind != QUERY_SELECT || q->from == NULL || *text.p == '(')
        return refuse(e, q->pos, q->len, "this needs one SELECT with FROM", inner);
    if (q->distinct || q->group_by.n || q->having || q->windows.n || q->qualify)
        return refuse(e, q->pos, q->len,
                      "DISTINCT, GROUP BY, HAVING, WINDOW and QUALIFY are not allowed here", inner);
    if (q->order_by.n || q->limit || q->offset)
        return refuse(e, q->pos, q->len,
                      "ORDER BY and LIMIT are not allowed here: the rows are sampled",
                      "leave them out, or put them into a subquery: FROM (SELECT … LIMIT 50) AS t");
    for (int i = 0; i < q->items.n; i++) {
        const node *x = ((select_item *)q->items.items[i])->value;
        if (x->kind == NODE_STAR)
            return refuse(e, x->pos, x->len, "* is not allowed here",
                          "name the columns that are needed");
        if (x->kind == NODE_LLM && x->returns.fields.n > 0)
            return refuse(e, x->pos, x->len, "a STRUCT is not allowed here",
                          "ask for each of its fields by a call of its own");
    }
    return 0;
}

/* Sets the answers that RETURNS lists, if it lists any. What the binder will refuse lists none. */
static void list_answers(const llm_type *t, arena *a, select_column *out) {
    enum { MOST = 10000 };
    value_type type;
    if (t->literals.n) {
        out->answers = ARENA_ARRAY(a, value, t->literals.n);
        for (int i = 0; i < t->literals.n; i++)
            out->answers[out->nanswers++] = value_text(*(str *)t->literals.items[i]);
    } else if (t->between && t->low->literal.type == TYPE_INTEGER &&
               t->high->literal.type == TYPE_INTEGER) {
        int64_t low = t->low->literal.i, high = t->high->literal.i;
        if (low > high || (uint64_t)high - (uint64_t)low >= MOST)
            return;
        out->answers = ARENA_ARRAY(a, value, high - low + 1);
        for (int64_t i = low; i <= high; i++)
            out->answers[out->nanswers++] = value_int(i);
    } else if (t->given && type_parse(t->name.name, &type) && type == TYPE_BOOLEAN) {
        out->answers = ARENA_ARRAY(a, value, 2);
        out->answers[out->nanswers++] = value_bool(true);
        out->answers[out->nanswers++] = value_bool(false);
    }
}

static bool is_model_function(str word) {
    size_t count;
    const function_info *functions = sql_functions(&count);
    for (size_t i = 0; i < count; i++)
        if (functions[i].class == FUNCTION_MODEL &&
            str_equal_nocase(word, str_from(functions[i].name)))
            return true;
    return false;
}

static bool mentions_model(str text) {
    token_class class;
    for (size_t at = 0, n; at < text.n && (n = sql_token(text, at, &class)) > 0; at += n)
        if (is_model_function((str){text.p + at, n}))
            return true;
    return false;
}

static void describe(str text, const select_item *item, arena *a, select_column *out) {
    const node *x = item->value;
    *out = (select_column){.text = {text.p + x->pos, (size_t)x->len},
                           .name = item->alias.name.n       ? item->alias.name
                                   : x->kind == NODE_COLUMN ? x->name.name
                                                            : (str){0},
                           .pos = x->pos,
                           .len = x->len};
    out->is_call = x->kind == NODE_LLM && x->nargs > 0;
    out->calls_model = mentions_model(out->text);
    if (!out->is_call)
        return;
    const ident *alias = &x->names[0];
    out->after_prompt =
        (alias->name.n ? alias->pos + alias->len : x->args[0]->pos + x->args[0]->len) - x->pos;
    for (int i = 0; i < x->options.n; i++)
        out->calibrates |=
            str_equal_nocase(((llm_option *)x->options.items[i])->name.name, STR("calibrate"));
    list_answers(&x->returns, a, out);
}

int sql_select_parts(const sql_tree *tree, arena *a, select_parts *out, err *e) {
    const query *q = tree->ast->query;
    str text = tree->text;
    size_t start = (size_t)(tree->statement.p - text.p), end = start + tree->statement.n;
    if (tree->ast->kind != AST_QUERY)
        return refuse(e, (int)start, (int)tree->statement.n, "this needs a SELECT",
                      "SELECT …, LLM(…) RETURNS … AS name FROM …");
    int status = check_shape(q, tree->statement, e);
    if (status)
        return status;
    const select_item *first = q->items.items[0];
    *out = (select_parts){
        .head = {text.p + start, (size_t)first->value->pos - start},
        .ncolumns = q->items.n,
        .columns = ARENA_ARRAY(a, select_column, q->items.n),
        .from = {text.p + q->from->clause, end - (size_t)q->from->clause},
    };
    for (int i = 0; i < q->items.n; i++)
        describe(text, q->items.items[i], a, &out->columns[i]);
    return 0;
}
