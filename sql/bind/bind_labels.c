/*
 * bind_labels.c - the answers of an ENUM that `labels =>` takes from a table, a view, a CTE or a
 * query.
 *
 * The answers are part of the call's type, so they are read while the statement is bound: their
 * query is bound as a statement of its own (bind_apart) and run by bind_env.rows in the statement's
 * transaction, from which the statement's other rows come too. Invariant: a statement runs each such
 * query once, however many passes bind it.
 */
#include <string.h>

#include "bind_int.h"

enum { MAX_LABELS = 100000, SHOWN = 60 };

/* The answers of one `labels =>`. */
struct label_set {
    str key; /* identifies the query in the statement */
    llm_labels rows;
};

const node *labels_option(const node *call) {
    for (int i = 0; i < call->options.n; i++) {
        const llm_option *o = call->options.items[i];
        if (str_equal_nocase(o->name.name, STR("labels")))
            return o->value;
    }
    return NULL;
}

/* ---- the columns ----------------------------------------------------------------------------- */

static int column_named(const rel *r, const char *name) {
    for (int i = 0; i < r->ncols; i++)
        if (str_equal_nocase(r->cols[i].name, str_from(name)))
            return i;
    return -1;
}

/* Projects the query to the columns label and, if there is one, description. */
static int project_labels(binder *b, const node *n, sql_stmt *source) {
    const rel *r = source->query;
    int columns[2] = {column_named(r, "label"), column_named(r, "description")};
    if (columns[0] < 0) {
        fail_node(b, n, "the labels need a column named label");
        err_hint(b->e, "labels => (SELECT \"%.*s\" AS label FROM …)",
                 (int)BASE_MIN(r->cols[0].name.n, (size_t)SHOWN), r->cols[0].name.p);
        return ERR_BIND;
    }
    rel *p = rel_project(b->mem, source->query, columns[1] < 0 ? 1 : 2);
    for (int i = 0; i < p->ncols; i++) {
        const rel_column *from = &r->cols[columns[i]];
        if (from->type == TYPE_BLOB)
            return fail_node(b, n, "column \"%.*s\" of the labels is a BLOB", (int)from->name.n,
                             from->name.p);
        expr *x = expr_column(b->mem, from->id, from->type, from->name);
        p->project.exprs[i] = (rel_expr){x, source->next_id++};
        p->cols[i] = (rel_column){p->project.exprs[i].id, x->type, from->name, {NULL, 0}};
    }
    source->query = p;
    return 0;
}

/* ---- its rows -------------------------------------------------------------------------------- */

/* Converts the cell to TEXT; a NULL gives p = NULL. */
static int cell_text(binder *b, value v, str *out) {
    value text;
    *out = (str){NULL, 0};
    if (v.type == TYPE_NULL)
        return 0;
    int status = value_cast(b->mem, v, TYPE_TEXT, &text, b->e);
    if (!status)
        *out = text.s;
    return status;
}

static int check_label(binder *b, const node *n, const label_set *set, int row) {
    if (!set->rows.labels[row].p) {
        fail_node(b, n, "row %d of the labels: the label is NULL", row + 1);
        err_hint(b->e, "leave it out: labels => (SELECT … WHERE label IS NOT NULL)");
        return ERR_BIND;
    }
    if (llm_is_one_line(set->rows.labels[row]))
        return 0;
    return fail_node(b, n,
                     "row %d of the labels: a label must be one line of valid UTF-8 and not "
                     "empty",
                     row + 1);
}

static int check_set(binder *b, const node *n, const label_set *set) {
    int first, at;
    for (int i = 0; i < set->rows.n; i++)
        if (check_label(b, n, set, i))
            return ERR_BIND;
    if (set->rows.n < 2)
        return fail_node(b, n, "the labels have %s; a choice needs at least two",
                         set->rows.n == 0 ? "no row" : "one row");
    if ((at = first_repeated(set->rows.labels, set->rows.n, &first)) < 0)
        return 0;
    fail_node(b, n, "row %d of the labels: '%.*s' is already in row %d", at + 1,
              (int)BASE_MIN(set->rows.labels[at].n, (size_t)SHOWN), set->rows.labels[at].p,
              first + 1);
    err_hint(b->e, "list each label once: labels => (SELECT DISTINCT label FROM …)");
    return ERR_BIND;
}

static int read_rows(binder *b, const node *n, const sql_stmt *source, label_set *set) {
    value *cells;
    int64_t rows;
    if (!b->env->rows)
        return 0;
    int status = b->env->rows(b->env->ctx, source, MAX_LABELS + 1, b->mem, &cells, &rows, b->e);
    if (status)
        return status;
    if (rows > MAX_LABELS) {
        fail(b, ERR_LIMIT, n->pos, n->len, "a call can have at most %d labels", MAX_LABELS);
        err_hint(b->e, "labels => (SELECT … LIMIT %d)", MAX_LABELS);
        return ERR_LIMIT;
    }
    int ncols = source->query->ncols;
    set->rows.n = (int)rows;
    set->rows.labels = ARENA_ARRAY(b->mem, str, rows + 1);
    set->rows.descriptions = ncols > 1 ? ARENA_ARRAY(b->mem, str, rows + 1) : NULL;
    for (int i = 0; i < set->rows.n && !status; i++) {
        status = cell_text(b, cells[i * ncols], &set->rows.labels[i]);
        if (!status && ncols > 1)
            status = cell_text(b, cells[i * ncols + 1], &set->rows.descriptions[i]);
    }
    return status ? status : check_set(b, n, set);
}

/* ---- the call -------------------------------------------------------------------------------- */

bool llm_is_open_enum(const llm_type *t) {
    return t->given && str_equal_nocase(t->name.name, STR("ENUM")) && t->literals.n == 0 &&
           !t->between;
}

int labels_check_type(binder *b, const node *call) {
    const node *labels = labels_option(call);
    const llm_type *t = &call->returns;
    bool is_enum = t->given && str_equal_nocase(t->name.name, STR("ENUM"));
    if (llm_is_open_enum(t) || struct_has(call, llm_is_open_enum))
        return 0;
    if (t->fields.n > 0) {
        fail_node(b, labels,
                  "labels are the answers of an ENUM, but no field of the STRUCT is one "
                  "without a list");
        err_hint(b->e, "write RETURNS STRUCT(kind ENUM, …)");
        return ERR_BIND;
    }
    if (is_enum)
        fail_node(b, labels, "the call has labels and a list of answers");
    else
        fail_node(b, labels, "labels are the answers of an ENUM, but the call %s",
                  t->given ? "returns another type" : "has no RETURNS");
    err_hint(b->e, "write LLM('…', x, labels => t) RETURNS ENUM");
    return ERR_BIND;
}

const label_set *labels_known(const binder *b, str key) {
    for (int i = 0; i < b->label_sets->n; i++)
        if (str_equal(((label_set *)b->label_sets->items[i])->key, key))
            return b->label_sets->items[i];
    return NULL;
}

int labels_read(binder *b, const node *n, str key, sql_stmt *source, const label_set **out) {
    label_set *set = ARENA_NEW(b->mem, label_set);
    set->key = key;
    *out = set;
    int status = project_labels(b, n, source);
    if (!status)
        status = read_rows(b, n, source, set);
    if (!status)
        list_add(b->mem, b->label_sets, set);
    return status;
}

void labels_give(const binder *b, const label_set *set, llm_call *call) {
    call->shown_labels = b->env->settings->labels_in_prompt ? &set->rows : NULL;
    if (!call->from_labels)
        return; /* another field of a STRUCT */
    call->returns = RETURNS_ENUM;
    call->nliterals = set->rows.n;
    call->literals = set->rows.labels;
}
