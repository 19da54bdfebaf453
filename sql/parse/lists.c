/*
 * lists.c - lists of values: json_group_array(), and the option contexts of LLM(), rewritten to what
 * they stand for.
 *
 *   json_group_array(x ORDER BY y)  '[' || coalesce(group_concat(json_quote(x), ',' ORDER BY y), '') || ']'
 *   contexts => (SELECT …)          (SELECT json_group_array(context) FROM (SELECT …) AS contexts(context))
 *   contexts => x                   the last field, named context; llm_call.field_lists
 */
#include "ast_int.h"

static node *call_of(parser *p, const char *name, node *x, node *y) {
    token at = {str_from(name), x->pos, x->len};
    list args = {0};
    list_add(p->mem, &args, x);
    if (y)
        list_add(p->mem, &args, y);
    return node_call(p, at, false, &args, at);
}

static node *text_at(parser *p, const node *n, str text) {
    return node_value(p, (token){{NULL, 0}, n->pos, n->len}, value_text(text));
}

node *node_aggregate(parser *p, node *call) {
    if (!str_equal_nocase(call->name.name, STR("json_group_array")))
        return call;
    if (call->star || call->nargs != 1) {
        parser_fail(p, ERR_BIND, call->pos, call->len, "json_group_array() takes one value");
        return call;
    }
    call->name.name = STR("group_concat");
    call->args[0] = call_of(p, "json_quote", call->args[0], NULL);
    node_arg(p, call, text_at(p, call, STR(",")));
    node *texts = call_of(p, "coalesce", call, text_at(p, call, STR("")));
    node *open = node_binary(p, OP_CONCAT, text_at(p, call, STR("[")), texts);
    node *array = node_binary(p, OP_CONCAT, open, text_at(p, call, STR("]")));
    return node_span(array, call->pos, call->pos + call->len);
}

static bool has_one_column(const query *q) {
    while (q->kind == QUERY_SETOP)
        q = q->terms.items[0];
    if (q->kind == QUERY_VALUES)
        return ((list *)q->rows.items[0])->n == 1;
    return q->items.n == 1 && ((select_item *)q->items.items[0])->value->kind != NODE_STAR;
}

/* Returns the query whose one row has the rows of q as a list. */
static node *rows_as_list(parser *p, query *q) {
    if (!has_one_column(q)) {
        parser_fail(p, ERR_BIND, q->pos, q->len, "contexts => takes a query of one column");
        err_hint(p->error, "contexts => (SELECT body FROM docs ORDER BY … LIMIT 3)");
    }
    token at = {STR("contexts"), q->pos, q->len}, name = {STR("context"), q->pos, q->len};
    list items = {0}, columns = {0}, args = {0};
    list_add(p->mem, &columns, ident_copy(p, name));
    list_add(p->mem, &args, node_column(p, &at, name));
    node *all = node_call(p, (token){STR("json_group_array"), q->pos, q->len}, false, &args, at);
    list_add(p->mem, &items, select_item_new(p, node_aggregate(p, all), NULL));
    from_item *from = from_alias(p, from_query(p, q), &at, &columns);
    query *made = query_select(p, at, false, &items, from, NULL, NULL, NULL);
    made->pos = q->pos;
    made->len = q->len;
    return node_subquery(p, made);
}

void node_contexts(parser *p, node *llm, const llm_arg *given) {
    node *x = given->value;
    if (x->kind == NODE_SUBQUERY)
        x = rows_as_list(p, x->query);
    llm->names[llm->nargs] = (ident){STR("context"), given->option.pos, given->option.len};
    llm->contexts = llm->nargs;
    node_arg(p, llm, x);
}
