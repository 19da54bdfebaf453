/*
 * bind_llm.c - one LLM call: its prompt, fields, options and examples, and which calls are equal.
 *
 * A call is identified by its key: prompt, names and values of the fields, options, examples, type.
 * Occurrences with equal keys share one llm_call, whose uses are collected over the whole statement
 * (llm_type.c). Each occurrence becomes a step of its clause (lift.c).
 */
#include <string.h>

#include "bind_int.h"

/* ---- identity -------------------------------------------------------------------------------- */

static void key_column(binder *b, buf *out, int id) {
    const id_info *info = id_of(b, id);
    if (info->call)
        buf_printf(out, "call %d", info->call->number);
    else if (info->table)
        buf_printf(out, "t%u.%d", info->table->id, info->column);
    else
        buf_printf(out, "#%d", info->same_as);
}

/* Writes a text that is equal for equal expressions. A base column is identified by table and
 * position, not by alias. */
static void expr_key(binder *b, buf *out, const expr *x) {
    buf_printf(out, "(%d:%d:", (int)x->kind, (int)x->type);
    switch (x->kind) {
    case EXPR_LITERAL:
        value_print_sql(out, x->literal);
        break;
    case EXPR_COLUMN:
        key_column(b, out, x->column.id);
        break;
    case EXPR_OP:
        buf_printf(out, "%d", (int)x->op);
        break;
    case EXPR_FUNC:
        buf_printf(out, "%d", (int)x->function);
        break;
    default:
        break;
    }
    for (int i = 0; i < x->nargs; i++)
        expr_key(b, out, x->args[i]);
    buf_append_char(out, ')');
}

static call_uses *uses_of(binder *b, const node *n, str key) {
    for (int i = 0; i < b->uses->n; i++)
        if (str_equal(((call_uses *)b->uses->items[i])->key, key))
            return b->uses->items[i];
    call_uses *uses = ARENA_NEW(b->mem, call_uses);
    *uses = (call_uses){.key = key, .pos = n->pos, .len = n->len};
    list_add(b->mem, b->uses, uses);
    return uses;
}

static call_info *find_info(const binder *b, str key) {
    for (int i = 0; i < b->calls.n; i++)
        if (str_equal(((call_info *)b->calls.items[i])->uses->key, key))
            return b->calls.items[i];
    return NULL;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* The fields of a call; each array has an element per field. */
typedef struct fields {
    int n, cap;
    expr **args; /* values */
    str *names;
    str *tables; /* table of a field that is a column without alias; n = 0: any other field */
    int *positions, *lengths; /* spans in the statement's text */
    const node **stars;       /* the star (t.*) that the field comes from, or NULL */
    bool *lists;              /* the value of contexts => */
    const llm_call *exampled; /* a call about these fields whose examples are bound; NULL: none */
} fields;

static void add_field(binder *b, fields *f, expr *x, str name, str table, const node *n) {
    if (f->n == f->cap) {
        int cap = f->cap ? 2 * f->cap : 8;
        fields bigger = {f->n,
                         cap,
                         ARENA_ARRAY(b->mem, expr *, cap),
                         ARENA_ARRAY(b->mem, str, cap),
                         ARENA_ARRAY(b->mem, str, cap),
                         ARENA_ARRAY(b->mem, int, cap),
                         ARENA_ARRAY(b->mem, int, cap),
                         ARENA_ARRAY(b->mem, const node *, cap),
                         ARENA_ARRAY(b->mem, bool, cap),
                         NULL};
        for (int i = 0; i < f->n; i++) {
            bigger.args[i] = f->args[i];
            bigger.names[i] = f->names[i];
            bigger.tables[i] = f->tables[i];
            bigger.positions[i] = f->positions[i];
            bigger.lengths[i] = f->lengths[i];
            bigger.stars[i] = f->stars[i];
            bigger.lists[i] = f->lists[i];
        }
        *f = bigger;
    }
    f->args[f->n] = x;
    f->names[f->n] = name;
    f->tables[f->n] = table;
    f->positions[f->n] = n->pos;
    f->lengths[f->n] = n->len;
    f->stars[f->n] = n->kind == NODE_STAR ? n : NULL;
    f->lists[f->n++] = false;
}

static int add_star(binder *b, fields *f, const node *n) {
    int before = f->n;
    for (int i = 0; b->at.scope && i < b->at.scope->n; i++) {
        const scope_column *c = &b->at.scope->cols[i];
        if (c->hidden_column ||
            (n->qualifier.name.n ? !str_equal_nocase(c->table, n->qualifier.name) : c->merged))
            continue;
        add_field(b, f, expr_column(b->mem, c->id, c->type, c->name), c->name, c->table, n);
    }
    if (f->n > before)
        return 0;
    if (!n->qualifier.name.n)
        return fail_node(b, n, "* needs FROM");
    fail_ident(b, n->qualifier, "no table \"%.*s\" in FROM", (int)n->qualifier.name.n,
               n->qualifier.name.p);
    return ERR_BIND;
}

static int bind_field(binder *b, fields *f, const node *n, ident alias) {
    if (n->kind == NODE_STAR)
        return add_star(b, f, n);
    expr *x = bind_expr(b, n);
    if (!x)
        return (int)b->e->code;
    if (expr_is_null(x))
        x = to_type(b, x, TYPE_TEXT, "a field");
    if (x->type == TYPE_BLOB || x->type == TYPE_VECTOR)
        return fail_node(b, n, "a %s cannot be a field of LLM() or EMBED()", type_name(x->type));
    if (alias.name.n) {
        add_field(b, f, x, alias.name, (str){NULL, 0}, n);
        return 0;
    }
    if (n->kind != NODE_COLUMN) {
        fail_node(b, n, "a field of LLM() that is not a column needs a name");
        err_hint(b->e, "name it: expression AS name");
        return ERR_BIND;
    }
    /* the name is spelled as in the table, so that REVIEW and review give the same prompt */
    const scope_column *c = scope_named(b, n);
    add_field(b, f, x, c ? c->name : n->name.name, c ? c->table : n->qualifier.name, n);
    return 0;
}

/* Adds the field of contexts =>. */
static int bind_contexts(binder *b, fields *f, const node *n, ident name) {
    expr *x = bind_expr(b, n);
    if (!x || (expr_is_null(x) && !(x = to_type(b, x, TYPE_TEXT, "contexts"))))
        return (int)b->e->code;
    if (x->type != TYPE_TEXT) {
        fail_node(b, n, "contexts => takes a query of texts or a JSON array of texts, not %s",
                  type_name(x->type));
        err_hint(b->e, "contexts => (SELECT body FROM docs ORDER BY … LIMIT 3)");
        return ERR_BIND;
    }
    add_field(b, f, x, name.name, (str){NULL, 0}, n);
    f->lists[f->n - 1] = true;
    return 0;
}

/* Qualifies fields of equal name with the names of their tables: r.title, m.title. */
static int qualify_equal_names(binder *b, fields *f) {
    bool *clash = ARENA_ARRAY(b->mem, bool, f->n);
    for (int i = 0; i < f->n; i++)
        for (int k = i + 1; k < f->n; k++)
            if (str_equal_nocase(f->names[i], f->names[k]))
                clash[i] = clash[k] = true;
    for (int i = 0; i < f->n; i++)
        if (clash[i] && f->tables[i].n)
            f->names[i] = str_from(arena_printf(b->mem, "%.*s.%.*s", (int)f->tables[i].n,
                                                f->tables[i].p, (int)f->names[i].n, f->names[i].p));
    for (int i = 0; i < f->n; i++)
        for (int k = i + 1; k < f->n; k++)
            if (str_equal_nocase(f->names[i], f->names[k])) {
                fail(b, ERR_BIND, f->positions[k], f->lengths[k],
                     "field \"%.*s\" of LLM() is named twice", (int)f->names[k].n, f->names[k].p);
                err_hint(b->e, "rename one of them with AS");
                return ERR_BIND;
            }
    return 0;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

static int find_field(const fields *f, str name) {
    for (int i = 0; i < f->n; i++)
        if (str_equal_nocase(f->names[i], name))
            return i;
    return -1;
}

static int unknown_field(binder *b, const fields *f, str name, const node *prompt, size_t at) {
    const char **names = ARENA_ARRAY(b->mem, const char *, f->n + 1);
    for (int i = 0; i < f->n; i++)
        names[i] = arena_strndup(b->mem, f->names[i].p, f->names[i].n);
    /* the literal has no doubled quote, so offsets in its value are offsets in its source text */
    bool exact = prompt->kind == NODE_LITERAL && prompt->literal.type == TYPE_TEXT &&
                 (size_t)prompt->len == prompt->literal.s.n + 2;
    int pos = exact ? prompt->pos + 1 + (int)at : prompt->pos,
        len = exact ? (int)name.n : prompt->len;
    fail(b, ERR_BIND, pos, len, "the prompt uses {%.*s}, which is not a field of the call",
         (int)BASE_MIN(name.n, (size_t)80), name.p);
    const char *meant = str_nearest(name, names, (size_t)f->n);
    if (meant)
        err_hint(b->e, "did you mean {%s}? write {{ for a literal brace", meant);
    else
        err_hint(
            b->e,
            "list the fields after the prompt: LLM('…', column); write {{ for a literal brace");
    return ERR_BIND;
}

static bool names_field(str prompt, str field) {
    for (size_t i = 0; i < prompt.n; i++) {
        if (prompt.p[i] != '{')
            continue;
        if (i + 1 < prompt.n && prompt.p[i + 1] == '{') { /* an escaped brace */
            i++;
            continue;
        }
        const char *close = memchr(prompt.p + i, '}', prompt.n - i);
        if (close &&
            str_equal_nocase((str){prompt.p + i + 1, (size_t)(close - prompt.p) - i - 1}, field))
            return true;
    }
    return false;
}

static bool names_any_of_star(str prompt, const fields *f, const node *star) {
    for (int i = 0; i < f->n; i++)
        if (f->stars[i] == star && names_field(prompt, f->names[i]))
            return true;
    return false;
}

/* With SET llm_prune: if the prompt names some fields of a star, removes the star's other
 * fields. */
static void prune_stars(binder *b, str prompt, fields *f) {
    fields all = *f;
    bool *drop = ARENA_ARRAY(b->mem, bool, f->n + 1);
    for (int i = 0; i < f->n; i++)
        drop[i] = f->stars[i] && !names_field(prompt, f->names[i]) &&
                  names_any_of_star(prompt, f, f->stars[i]);
    f->n = 0;
    for (int i = 0; i < all.n; i++) {
        if (drop[i])
            continue;
        f->args[f->n] = all.args[i];
        f->names[f->n] = all.names[i];
        f->tables[f->n] = all.tables[i];
        f->positions[f->n] = all.positions[i];
        f->lengths[f->n] = all.lengths[i];
        f->lists[f->n] = all.lists[i];
        f->stars[f->n++] = all.stars[i];
    }
}

/* Replaces {x} by the name of the field, and {{ and }} by single braces. */
static int read_prompt(binder *b, llm_call *call, const fields *f, const node *prompt) {
    str s = call->prompt.s;
    buf out = {0};
    int status = 0;
    for (size_t i = 0; i < s.n && !status; i++) {
        bool twice = i + 1 < s.n && s.p[i + 1] == s.p[i];
        if (s.p[i] == '}' && twice) {
            i++;
            buf_append_char(&out, '}');
            continue;
        }
        if (s.p[i] != '{' || twice) {
            buf_append_char(&out, s.p[i]);
            i += s.p[i] == '{' && twice;
            continue;
        }
        const char *close = memchr(s.p + i, '}', s.n - i);
        if (!close) {
            status = fail_node(b, prompt, "a { in the prompt has no matching }");
            err_hint(b->e, "write {{ for a literal brace");
            break;
        }
        str name = {s.p + i + 1, (size_t)(close - s.p) - i - 1};
        int field = find_field(f, name);
        if (field < 0) {
            status = unknown_field(b, f, name, prompt, i + 1);
            break;
        }
        call->field_required[field] = true;
        buf_append_str(&out, f->names[field]);
        i += name.n + 1;
    }
    call->instruction = str_copy(b->mem, buf_str(&out));
    buf_free(&out);
    return status;
}

static int bind_prompt(binder *b, const node *n, value *out) {
    if (n->nargs == 0) {
        fail_node(b, n, "LLM() needs a prompt as its first argument");
        err_hint(b->e, "LLM('Is {review} positive?', review)");
        return ERR_BIND;
    }
    if (n->args[0]->kind == NODE_STAR || n->names[0].name.n) {
        fail_node(b, n->args[0], "the first argument of LLM() must be the prompt");
        return ERR_BIND;
    }
    expr *x = n->args[0]->kind == NODE_COLUMN ? NULL : bind_expr(b, n->args[0]);
    if (!x && n->args[0]->kind != NODE_COLUMN)
        return (int)b->e->code;
    if (!x || x->kind != EXPR_LITERAL) {
        fail_node(b, n->args[0], "the prompt must be a constant text");
        err_hint(
            b->e,
            "pass a value that differs by row as a field: LLM('… {name} …', expression AS name)");
        return ERR_BIND;
    }
    if (!expr_is_null(x) && x->type != TYPE_TEXT)
        return fail_node(b, n->args[0], "the prompt must be a text, not %s", type_name(x->type));
    if (!expr_is_null(x) && !utf8_valid(x->literal.s))
        return fail_node(b, n->args[0], "the prompt is not valid UTF-8");
    *out = x->literal;
    return 0;
}

/* ---- examples -------------------------------------------------------------------------------- */

/* Whether a column that is no field of the call is an answer. Any such column is one if the call
 * returns a STRUCT: what an example shows must not depend on which columns of it are asked. */
static bool is_answer(const llm_call *call, str name) {
    return call->field.n > 0 || str_equal_nocase(name, STR("answer"));
}

/* Returns the index of the call's answer among those of its examples, or -1. */
static int own_answer(const llm_call *call) {
    for (int i = 0; i < call->nexample_answers; i++)
        if (call->field.n == 0 || str_equal_nocase(call->example_answers[i], call->field))
            return i;
    return -1;
}

static int find_own_answer(binder *b, const node *n, llm_call *call) {
    call->example_answer = own_answer(call);
    if (call->example_answer >= 0)
        return 0;
    str name = call->field.n > 0 ? call->field : STR("answer");
    return fail_node(b, n, "the examples need a column named %.*s",
                     (int)BASE_MIN(name.n, (size_t)80), name.p);
}

static int example_columns(binder *b, const node *n, const fields *f, llm_call *call, rel *r) {
    int *columns = ARENA_ARRAY(b->mem, int, r->ncols),
        *answers = ARENA_ARRAY(b->mem, int, r->ncols);
    call->example_fields = ARENA_ARRAY(b->mem, int, r->ncols);
    call->example_answers = ARENA_ARRAY(b->mem, str, r->ncols);
    for (int i = 0; i < r->ncols; i++) {
        int field = find_field(f, r->cols[i].name);
        if (field >= 0) {
            columns[call->nexample_fields] = i;
            call->example_fields[call->nexample_fields++] = field;
        } else if (is_answer(call, r->cols[i].name)) {
            if (call->field.n == 0) /* the last one named answer */
                call->nexample_answers = 0;
            answers[call->nexample_answers] = i;
            call->example_answers[call->nexample_answers++] = r->cols[i].name;
        }
    }
    if (find_own_answer(b, n, call))
        return ERR_BIND;
    if (call->nexample_fields == 0 && f->n > 0) {
        fail_node(b, n, "no column of the examples has the same name as a field of the call");
        err_hint(b->e, "give a column of the examples the name of a field, such as \"%.*s\"",
                 (int)BASE_MIN(f->names[0].n, (size_t)80), f->names[0].p);
        return ERR_BIND;
    }
    memcpy(columns + call->nexample_fields, answers,
           sizeof *answers * (size_t)call->nexample_answers);
    rel *p = rel_project(b->mem, r, call->nexample_fields + call->nexample_answers);
    for (int i = 0; i < p->ncols; i++) {
        const rel_column *from = &r->cols[columns[i]];
        expr *x = expr_column(b->mem, from->id, from->type, from->name);
        p->project.exprs[i] = (rel_expr){x, new_id(b)};
        p->cols[i] = (rel_column){p->project.exprs[i].id, x->type, from->name, {NULL, 0}};
    }
    call->examples = p;
    return 0;
}

static void note_site(rel_visit *v, llm_site *u) {
    (void)u;
    *(bool *)v->ctx = true;
}

/* True if r contains an LLM call, also in a CTE or view that it reads. */
static bool has_llm_call(rel *r) {
    bool found = false;
    rel_visit v = {.on_site = note_site, .ctx = &found};
    rel_walk(r, &v);
    return found;
}

static int share_examples(binder *b, const node *n, const llm_call *from, llm_call *call) {
    call->examples = from->examples;
    call->nexample_fields = from->nexample_fields;
    call->example_fields = from->example_fields;
    call->nexample_answers = from->nexample_answers;
    call->example_answers = from->example_answers;
    return find_own_answer(b, n, call);
}

static int bind_examples(binder *b, const node *n, fields *f, llm_call *call) {
    if (f->exampled)
        return share_examples(b, n, f->exampled, call);
    bool is_name = n->kind == NODE_COLUMN && !n->qualifier.name.n;
    if (!is_name && n->kind != NODE_SUBQUERY)
        return fail_node(b, n, "examples => takes a table, a view or a query in parentheses");
    bind_place before = b->at;
    scope own = {.outer = NULL};
    rel *r = NULL;
    b->at.scope = NULL;
    b->at.refuse = "the examples query";
    b->at.instead =
        "write it as a join, or keep the rows: CREATE TABLE shots AS SELECT …, examples => shots";
    int status =
        is_name ? bind_table(b, n->name, n->name.name, NULL, &own, &r) : subquery(b, n->query, &r);
    b->at = before;
    f->exampled = call;
    if (status || !has_llm_call(r))
        return status ? status : example_columns(b, n, f, call, r);
    fail_node(b, n, "an LLM call is not allowed in the examples query");
    err_hint(b->e, "store the answers first: CREATE TABLE … AS SELECT …");
    return ERR_BIND;
}

/* ---- the inputs of a STRUCT ------------------------------------------------------------------- */

static int check_input_names(binder *b, const node *n, const fields *f) {
    if (find_field(f, n->field->name.name) < 0)
        return 0;
    fail_ident(b, n->field->name,
               "field \"%.*s\" of the STRUCT has the name of an input of the call",
               (int)BASE_MIN(n->field->name.name.n, (size_t)60), n->field->name.name.p);
    err_hint(b->e, "rename it, or the input with AS");
    return ERR_BIND;
}

/* Returns the inputs that another column of the same STRUCT has bound; NULL: none has. */
static fields *bound_inputs(const binder *b, const node *n) {
    for (int i = b->structs.n; n->field && i-- > 0;) {
        const bound_struct *s = b->structs.items[i];
        if (s->args == n->args && s->lift == b->at.lift && s->guard == b->at.guard)
            return s->fields;
    }
    return NULL;
}

static void keep_inputs(binder *b, const node *n, fields *f) {
    bound_struct *s = ARENA_NEW(b->mem, bound_struct);
    *s = (bound_struct){n->args, b->at.lift, b->at.guard, f};
    list_add(b->mem, &b->structs, s);
}

/* ---- calls that go on from other calls ------------------------------------------------------- */

/* A call that goes on from the prompt and the answer of another (option after, STRUCT IN ORDER) has
 * that call's fields, its answer, and its own fields. So the prompt of a row is known wherever the
 * call is asked, and what is true of fields computed from answers is true of it. A call never goes on
 * from itself, directly or through others. */

/* The calls that are being bound, the innermost first. */
typedef struct call_chain {
    const node *node;
    const struct call_chain *outer;
} call_chain;

/* The call whose prompt and answer another call goes on from. */
typedef struct chained {
    const llm_site *site; /* its site; NULL: the call begins anew */
    expr *answer;         /* the column of its answer */
    str name;             /* what the statement calls the answer */
} chained;

/* Sets *out to the value of the option after; NULL: it is not given. */
static int option_after(binder *b, const node *n, const node **out) {
    *out = NULL;
    for (int i = 0; i < n->options.n; i++) {
        const llm_option *o = n->options.items[i];
        if (!str_equal_nocase(o->name.name, STR("after")))
            continue;
        if (*out)
            return fail_ident(b, o->name, "option after is given twice");
        *out = o->value;
    }
    return 0;
}

/* Refuses options that only the call that begins the prompt can have. */
static int check_options(binder *b, const node *n, str name) {
    static const char *const firsts[] = {"examples", "model", "labels"};
    for (int i = 0; i < n->options.n; i++) {
        const llm_option *o = n->options.items[i];
        for (size_t k = 0; k < BASE_COUNT(firsts); k++) {
            if (!str_equal_nocase(o->name.name, str_from(firsts[k])))
                continue;
            fail_ident(b, o->name, "a call with the option after cannot have the option %s",
                       firsts[k]);
            err_hint(b->e, "drop it, or give it to the call \"%.*s\"",
                     (int)BASE_MIN(name.n, (size_t)60), name.p);
            return ERR_BIND;
        }
    }
    return 0;
}

static bool is_being_bound(const binder *b, const node *n) {
    for (const call_chain *c = b->chain; c; c = c->outer)
        if (c->node == n)
            return true;
    return false;
}

static int refuse(binder *b, const node *after) {
    fail_node(
        b, after,
        "after takes the name of an LLM call in the same select list, or a column of LLM() in "
        "FROM");
    const scope_column *c = after->kind == NODE_COLUMN ? scope_named(b, after) : NULL;
    if (c && id_of(b, c->id)->call)
        err_hint(b->e, "put both calls into one select list");
    else
        err_hint(b->e, "name the other call: LLM(…) AS mood, LLM('…', after => mood)");
    return ERR_BIND;
}

/* Binds the call that is written as `call` in the select list. */
static int bind_written(binder *b, const node *n, const node *call, chained *out) {
    call_chain link = {n, b->chain};
    b->chain = &link;
    out->answer = bind_expr(b, call);
    b->chain = link.outer;
    if (!out->answer)
        return (int)b->e->code;
    out->site = lift_site_of(b->at.scope, b->at.lift, out->answer->column.id);
    for (int f = 0; f < out->site->call->nfields; f++)
        if (expr_is_volatile(out->site->args[f])) {
            fail_node(b, n,
                      "a call cannot go on from \"%.*s\", which has a field that is not "
                      "deterministic",
                      (int)BASE_MIN(out->name.n, (size_t)60), out->name.p);
            err_hint(b->e, "compute the field in a subquery in FROM");
            return ERR_BIND;
        }
    return 0;
}

/* Finds the call that n goes on from, and binds it. */
static int bind_after(binder *b, const node *n, chained *out) {
    const node *after, *call = n->previous;
    *out = (chained){.site = NULL};
    if (call) {
        out->name = call->field->name.name;
        return bind_written(b, n, call, out);
    }
    int status = option_after(b, n, &after);
    if (status || !after)
        return status;
    call = named_call(b, after);
    out->name = after->name.name;
    if (call && (call == n || is_being_bound(b, call)))
        return fail_node(b, after, "a call cannot go on from itself");
    if (call)
        return check_options(b, n, out->name) ? (int)b->e->code : bind_written(b, n, call, out);
    step *s = asked_column(b, after);
    if (!s)
        return refuse(b, after);
    out->site = &s->site;
    out->answer = expr_column(b->mem, s->site.out_id, llm_call_type(s->site.call), out->name);
    return check_options(b, n, out->name);
}

/* ---- the call -------------------------------------------------------------------------------- */

static bool any_volatile(const fields *f) {
    for (int i = 0; i < f->n; i++)
        if (expr_is_volatile(f->args[i]))
            return true;
    return false;
}

/* Appends what identifies the rows that an option names: the name of a table or view, or the
 * position where a query or CTE is written. */
static void key_rows(const binder *b, buf *out, const char *option, const node *rows) {
    int written = rows->pos;
    if (rows->kind == NODE_COLUMN) {
        const cte_binding *c = b->ctes;
        while (c && !str_equal_nocase(c->def->name.name, rows->name.name))
            c = c->outer;
        if (!c) {
            buf_printf(out, "|%s %.*s", option, (int)rows->name.name.n, rows->name.name.p);
            return;
        }
        written = c->def->name.pos;
    }
    buf_printf(out, "|%s at %d in %zu:%.*s", option, written, b->view.n, (int)b->view.n,
               b->view.p ? b->view.p : "");
}

/* Gives the call the answers that its option labels names. */
static int bind_labels(binder *b, const node *n, llm_call *call) {
    const node *labels = labels_option(n);
    sql_stmt source;
    buf k = {0};
    key_rows(b, &k, "labels", labels);
    str key = str_copy(b->mem, buf_str(&k));
    buf_free(&k);
    const label_set *set = labels_known(b, key);
    int status = labels_check_type(b, n);
    if (!status && !set)
        status = bind_apart(b, labels, &source);
    if (!status && !set && has_llm_call(source.query)) {
        fail_node(b, labels, "an LLM call is not allowed in the labels query");
        err_hint(b->e, "store the answers first: CREATE TABLE … AS SELECT …");
        return ERR_BIND;
    }
    if (!status && !set)
        status = labels_read(b, labels, key, &source, &set);
    if (!status)
        labels_give(b, set, call);
    return status;
}

/* Appends the effective options: the options of the call, and the settings for options that it
 * lacks. */
static void key_options(const binder *b, buf *out, const llm_call *call) {
    const settings *s = b->env->settings;
    str model = call->model.n ? call->model : str_from(s->model), stop = str_from(s->stop);
    bool given = call->temperature.type == TYPE_REAL;
    buf_printf(out, "|%d|%zu:%.*s|", llm_call_max_tokens(s, call), model.n, (int)model.n, model.p);
    value_print_sql(out, value_real(given ? call->temperature.r : s->temperature));
    buf_printf(out, "|%d%d%d%d%d", call->calibrate, call->calibrate_given, call->on_error,
               call->contexts_ranked, call->blends);
    value_print_sql(out, call->otherwise);
    for (int i = 0; i < call->nstop; i++)
        value_print_sql(out, value_text(call->stop[i]));
    if (call->nstop == 0 && stop.n > 0)
        value_print_sql(out, value_text(stop));
}

static str call_key(binder *b, const node *n, const llm_call *call, const fields *f,
                    const node *examples) {
    buf k = {0};
    value_print_sql(&k, call->prompt);
    for (int i = 0; i < f->n; i++) {
        buf_printf(&k, "|%zu:", f->names[i].n);
        buf_append_str(&k, f->names[i]);
        buf_append_c(&k, f->lists[i] ? " list" : "");
        expr_key(b, &k, f->args[i]);
    }
    key_options(b, &k, call);
    if (examples)
        key_rows(b, &k, "examples", examples);
    if (labels_option(n))
        key_rows(b, &k, "labels", labels_option(n));
    const llm_type *t = llm_given_type(n);
    if (call->after)
        buf_printf(&k, "|after %d", call->same_struct);
    if (n->field)
        buf_printf(&k, "|cue %zu:%.*s", call->cue.n, (int)call->cue.n, call->cue.p);
    if (t->given) {
        str name = t->name.name;
        /* INT and INTEGER give equal keys; synonyms of TEXT do not, since some (DATE) are errors */
        value_type type;
        if (type_parse(name, &type) && type != TYPE_TEXT)
            name = str_from(type_name(type));
        buf_printf(&k, "|returns %.*s", (int)name.n, name.p);
        for (int i = 0; i < t->literals.n; i++)
            value_print_sql(&k, value_text(*(str *)t->literals.items[i]));
        if (t->between) {
            value_print_sql(&k, t->low->literal);
            value_print_sql(&k, t->high->literal);
        }
    }
    if (any_volatile(f))
        buf_printf(&k, "|occurrence %d", b->next_id);
    str key = str_copy(b->mem, buf_str(&k));
    buf_free(&k);
    return key;
}

/* Adds the fields that a call has because it goes on from another one: that one's fields, and its
 * answer. */
static void add_chain(binder *b, fields *f, const chained *from, const node *n) {
    const llm_call *after = from->site->call;
    for (int i = 0; i < after->nfields; i++) {
        add_field(b, f, from->site->args[i], after->field_names[i], (str){NULL, 0}, n);
        f->lists[i] = after->field_lists[i];
    }
    add_field(b, f, from->answer, from->name, (str){NULL, 0}, n);
}

/* Binds the fields (inputs) of a call. Those of a STRUCT are bound once for all its columns, unless
 * these go on from each other. */
static int bind_inputs(binder *b, const node *n, llm_call *call, fields **out) {
    chained from;
    fields *f = *out = n->previous ? NULL : bound_inputs(b, n);
    int status = bind_after(b, n, &from);
    if (status)
        return status;
    if (from.site) {
        call->after = from.site->call;
        call->same_struct = n->previous != NULL;
        call->model = call->after->model;
        ((llm_call *)(uintptr_t)call->after)->goes_on = true;
    }
    if (f)
        return check_input_names(b, n, f);
    f = *out = ARENA_NEW(b->mem, fields);
    if (from.site)
        add_chain(b, f, &from, n);
    for (int i = 1; i < n->nargs && !status && !n->previous; i++)
        status = i == n->contexts ? bind_contexts(b, f, n->args[i], n->names[i])
                                  : bind_field(b, f, n->args[i], n->names[i]);
    if (!status)
        status = qualify_equal_names(b, f);
    if (!status && b->env->settings->llm_prune && call->prompt.type == TYPE_TEXT)
        prune_stars(b, call->prompt.s, f);
    if (n->previous)
        return status ? status : check_input_names(b, n, f);
    if (status || !n->field)
        return status;
    if (any_volatile(f)) {
        fail_node(b, n,
                  "the inputs of a STRUCT must be deterministic: each of its columns is asked "
                  "about them");
        err_hint(b->e, "compute them in a subquery: FROM (SELECT random() AS x FROM …) AS t");
        return ERR_BIND;
    }
    keep_inputs(b, n, f);
    return check_input_names(b, n, f);
}

static int bind_parts(binder *b, const node *n, llm_call *call, fields **f, const node **examples) {
    int status = bind_prompt(b, n, &call->prompt);
    if (n->field) {
        call->field = n->field->name.name;
        call->cue = struct_cue(b, n->field);
    }
    call->calibrate = b->env->settings->llm_calibrate;
    call->on_error = b->env->settings->llm_on_error;
    call->blends = b->env->settings->chunk_kv == CHUNK_KV_BLEND;
    call->blend_share = b->env->settings->blend_share;
    call->blend_rule = b->env->settings->blend_rule;
    if (n->on_error.given)
        call->on_error = n->on_error.fails ? ON_ERROR_FAIL : ON_ERROR_NULL;
    if (n->on_error.otherwise)
        call->otherwise = n->on_error.otherwise->literal;
    if (!status)
        status = bind_inputs(b, n, call, f);
    for (int i = 0; i < n->options.n && !status; i++) {
        const llm_option *o = n->options.items[i];
        expr *x = option_is_constant(o) ? bind_expr(b, o->value) : NULL;
        status =
            x || !option_is_constant(o) ? bind_option(b, o, x, call, examples) : (int)b->e->code;
    }
    call->blends = call->after ? call->after->blends : call->blends && n->contexts;
    call->from_labels = call->from_labels && llm_is_open_enum(llm_given_type(n));
    if (n->field && !struct_field_lists(&n->field->type) && struct_has(n, struct_field_lists))
        call->calibrate_given = false;
    return status;
}

/* Converts the value of DEFAULT … ON ERROR to the type of the call. */
static int fit_default(binder *b, const node *n, llm_call *call) {
    expr *x = bind_expr(b, n);
    if (!x)
        return (int)b->e->code;
    if (!(x = to_type_implicit(b, x, llm_call_type(call), "DEFAULT … ON ERROR"))) {
        err_hint(b->e, "write a value of the call's type, or NULL ON ERROR");
        return (int)b->e->code;
    }
    call->otherwise = x->literal;
    return 0;
}

static int complete_call(binder *b, const node *n, llm_call *call, fields *f, const node *examples,
                         const call_uses *uses) {
    call->written_as = n->name.name;
    call->nfields = f->n;
    call->field_names = f->names;
    call->field_lists = f->lists;
    call->field_required = ARENA_ARRAY(b->mem, bool, f->n);
    call->answer_texts = ARENA_ARRAY(b->mem, uint32_t, f->n);
    call->pos = b->view_depth ? -1 : n->pos;
    call->len = b->view_depth ? 0 : n->len;
    int status = call->prompt.type == TYPE_NULL ? 0 : read_prompt(b, call, f, n->args[0]);
    if (call->after) /* no answer, nothing to go on from */
        call->field_required[call->after->nfields] = true;
    if (!status && labels_option(n))
        status = bind_labels(b, n, call);
    if (!status)
        status = llm_set_type(b, n, call, uses);
    if (!status && call->otherwise.type != TYPE_NULL)
        status = fit_default(b, n->on_error.otherwise, call);
    if (!status && examples)
        status = bind_examples(b, examples, f, call);
    return status;
}

/* Returns the option that has no effect on the vector of a text, or NULL. */
static const llm_option *vector_option(const node *n, const llm_call *call) {
    for (int i = 0; i < n->options.n && call->returns == RETURNS_VECTOR; i++) {
        const llm_option *o = n->options.items[i];
        if (!str_equal_nocase(o->name.name, STR("model")))
            return o;
    }
    return NULL;
}

/* Returns the option that is valid only for a TEXT answer, or NULL. An answer of another type ends
 * by itself and is always the likeliest one, so `stop` and a temperature above 0 would have no
 * effect. max_tokens and temperature => 0 are accepted, as is any option that another field of the
 * same STRUCT can have. */
static const llm_option *text_option(const node *n, const llm_call *call) {
    if (n->field && struct_has(n, struct_field_is_text))
        return NULL;
    for (int i = 0; i < n->options.n; i++) {
        const llm_option *o = n->options.items[i];
        if (str_equal_nocase(o->name.name, STR("stop")) ||
            (str_equal_nocase(o->name.name, STR("temperature")) && call->temperature.r > 0))
            return o;
    }
    return NULL;
}

static int refuse_option(binder *b, const llm_option *o, const llm_call *call) {
    fail_ident(b, o->name, "%.*s has no effect on an answer of type %s%s", (int)o->name.name.n,
               o->name.name.p, llm_returns_name(call->returns),
               call->by_use ? " (inferred from its use)" : "");
    if (call->returns != RETURNS_VECTOR)
        err_hint(b->e,
                 "drop the option, or write LLM(…) RETURNS TEXT: an answer of another type is "
                 "always the most likely one");
    return ERR_BIND;
}

/* Returns the call_info of n: an existing one with the same key, or a new one. NULL: an error. */
static call_info *call_of(binder *b, const node *n, llm_call *call, fields *f, const node *examples,
                          value_type used) {
    str key = call_key(b, n, call, f, examples);
    call_info *info = find_info(b, key);
    if (info)
        return info;
    info = ARENA_NEW(b->mem, call_info);
    info->uses = uses_of(b, n, key);
    info->number = b->calls.n + 1;
    info->given = llm_given_type(n)->given;
    info->call = call;
    list_add(b->mem, &b->calls, info);
    if (used == TYPE_NULL && call->otherwise.type != TYPE_TEXT)
        used = call->otherwise.type;
    if (used != TYPE_NULL && !info->given)
        llm_note_type(b, info, used);
    return complete_call(b, n, call, f, examples, info->uses) ? NULL : info;
}

/* What of an answer an occurrence of a call reads. */
typedef struct answer_read {
    enum { READ_ANSWER, READ_PROB, READ_MEAN } what;
    const node *named; /* the alias that refers to the call; NULL: the call itself */
    const node *label; /* READ_PROB: the answer whose probability is read; NULL: the call's own */
} answer_read;

/* Makes the column that LLM_PROB() or LLM_MEAN() reads known to all passes. `fresh`: the call was
 * first bound just now, so no step was made without the column. */
static int note_read(binder *b, call_info *info, const node *n, const answer_read *r, bool fresh,
                     prob_read *out) {
    *out = (prob_read){.literal = PROB_OF_ANSWER};
    if (r->what == READ_MEAN && llm_mean_read(b, info, n->pos, n->len, out))
        return ERR_BIND;
    if (r->label) {
        const expr *x = bind_expr(b, r->label);
        if (!x || llm_label_read(b, info, x, out))
            return ERR_BIND;
        /* the next pass knows the call's answers */
        info->lacks_prob = info->lacks_prob || llm_read_literal(info->call, out) < 0;
    }
    info->call->all_probs |= r->what == READ_MEAN || r->label != NULL;
    list *known = &info->uses->probs;
    for (int i = 0; i < known->n; i++) {
        const prob_read *p = known->items[i];
        if (p->literal == out->literal && str_equal(p->label, out->label))
            return 0;
    }
    prob_read *kept = ARENA_NEW(b->mem, prob_read);
    *kept = *out;
    list_add(b->mem, known, kept);
    b->learned = true;
    info->lacks_prob = info->lacks_prob || !fresh;
    return 0;
}

static expr *prob_column(binder *b, const llm_site *site, const prob_read *r) {
    int literal = llm_read_literal(site->call, r), at = 0;
    while (site->probs[at].literal != literal)
        at++;
    return expr_column(b->mem, site->probs[at].id, TYPE_REAL,
                       r->literal == PROB_MEAN ? STR("LLM_MEAN") : STR("LLM_PROB"));
}

static expr *refuse_struct(binder *b, const node *n) {
    fail_node(b, n,
              "a STRUCT is several columns, not a value: it can only be an item of a select "
              "list, or be in FROM");
    err_hint(b->e, "write FROM …, LLM(…) RETURNS STRUCT(…) AS x and use its columns: x.%.*s",
             (int)BASE_MIN(((struct_field *)n->returns.fields.items[0])->name.name.n, (size_t)60),
             ((struct_field *)n->returns.fields.items[0])->name.name.p);
    return NULL;
}

static expr *bind_answer(binder *b, const node *n, const answer_read *r, value_type used) {
    if (struct_width(n) > 0)
        return refuse_struct(b, n);
    if (b->at.refuse || !b->at.lift) {
        fail_node(b, n, "an LLM call is not allowed in %s",
                  b->at.refuse ? b->at.refuse : "this place");
        return NULL;
    }
    llm_call *call = ARENA_NEW(b->mem, llm_call);
    fields *f = NULL;
    const node *examples = NULL;
    if (bind_parts(b, n, call, &f, &examples))
        return NULL;
    if (r->named && any_volatile(f)) {
        fail_node(b, r->named,
                  "the LLM call \"%.*s\" has a field that is not deterministic: LLM_PROB() would "
                  "compute that field again and return the probability of another answer",
                  (int)r->named->name.name.n, r->named->name.name.p);
        return NULL;
    }
    int before = b->calls.n;
    call_info *info = call_of(b, n, call, f, examples, used);
    if (!info)
        return NULL;
    const llm_option *o = text_option(n, call);
    info->text_option = info->text_option || o;
    if (o && info->call->returns != RETURNS_TEXT && refuse_option(b, o, info->call))
        return NULL;
    if ((o = vector_option(n, info->call)) != NULL && refuse_option(b, o, info->call))
        return NULL;
    if (n->contexts && info->call->returns == RETURNS_VECTOR) {
        fail_node(b, n->args[n->contexts], "EMBED() takes no contexts");
        return NULL;
    }
    prob_read read;
    if (r->what != READ_ANSWER && note_read(b, info, n, r, info->number > before, &read))
        return NULL;
    /* grouping rewrites the arguments of one site */
    expr **args = ARENA_ARRAY(b->mem, expr *, f->n + 1);
    if (f->n > 0)
        memcpy(args, f->args, sizeof *args * (size_t)f->n);
    step *s = lift_site(b, b->at.lift, info, args);
    return r->what == READ_ANSWER ? expr_column(b->mem, s->site.out_id, llm_call_type(info->call),
                                                n->field ? n->field->name.name : STR("LLM"))
                                  : prob_column(b, &s->site, &read);
}

expr *bind_llm(binder *b, const node *n, value_type used) {
    return bind_answer(b, n, &(answer_read){.what = READ_ANSWER}, used);
}

expr *bind_step_prob(binder *b, const node *n, step *s, bool mean, const node *label) {
    answer_read r = {.what = mean ? READ_MEAN : READ_PROB, .label = label};
    call_info *info = id_of(b, s->site.out_id)->call;
    prob_read read;
    if (note_read(b, info, n, &r, false, &read))
        return NULL;
    lift_probs(b, s, info);
    return prob_column(b, &s->site, &read);
}

expr *bind_prob(binder *b, const node *n, const node *named, bool mean, const node *label) {
    answer_read r = {.what = mean ? READ_MEAN : READ_PROB, .named = named, .label = label};
    return bind_answer(b, n, &r, TYPE_NULL);
}
