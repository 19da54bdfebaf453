/*
 * llm_options.c - the options of an LLM call, written name => value.
 *
 * Only their form is checked here. What an option means for the call's fields, type and examples is
 * decided where these are bound (bind_llm.c, bind_labels.c).
 */
#include <string.h>

#include "bind_int.h"
#include "words/words_int.h"

/* Converts x, the bound value of the option, to a constant of this type. */
static int option_constant(binder *b, const llm_option *o, expr *x, value_type type, value *out) {
    const char *what = arena_printf(b->mem, "%.*s", (int)o->name.name.n, o->name.name.p);
    if (!(x = to_type_implicit(b, x, type, what)))
        return (int)b->e->code;
    if (x->kind != EXPR_LITERAL || expr_is_null(x))
        return fail_node(b, o->value, "%s must be a constant", what);
    *out = x->literal;
    return 0;
}

int fail_model(binder *b, ident name) {
    const catalog *c = b->env->catalog;
    const char **names = ARENA_ARRAY(b->mem, const char *, c->nmodels + 1);
    for (int i = 0; i < c->nmodels; i++)
        names[i] = arena_strndup(b->mem, c->models[i].name.p, c->models[i].name.n);
    const char *meant = str_nearest(name.name, names, (size_t)c->nmodels);
    fail_ident(b, name, "no model \"%.*s\"", (int)name.name.n, name.name.p);
    if (meant)
        err_hint(b->e, "did you mean \"%s\"?", meant);
    else
        err_hint(b->e, "register it with CREATE MODEL %.*s FROM 'file.gguf'",
                 (int)BASE_MIN(name.name.n, (size_t)80), name.name.p);
    return ERR_BIND;
}

int option_model(binder *b, const llm_option *o, expr *x, llm_call *call) {
    const node *n = o->value;
    if (n->kind == NODE_COLUMN && !n->qualifier.name.n) {
        if (catalog_model(b->env->catalog, n->name.name)) {
            call->model = n->name.name;
            return 0;
        }
        return fail_model(b, n->name);
    }
    value v;
    int status = option_constant(b, o, x, TYPE_TEXT, &v);
    if (!status && v.s.n == 0)
        return fail_node(b, n, "the name of a model cannot be empty");
    if (!status)
        call->model = v.s;
    return status;
}

/* Binds the option stop, which can be given several times. */
static int option_stop(binder *b, const llm_option *o, expr *x, llm_call *call) {
    enum { MOST = 16 };
    value v;
    int status = option_constant(b, o, x, TYPE_TEXT, &v);
    if (status)
        return status;
    if (v.s.n == 0)
        return fail_node(b, o->value, "a stop text cannot be empty");
    if (call->nstop == MOST)
        return fail_node(b, o->value, "an LLM call has at most %d stop texts", MOST);
    if (!call->stop)
        call->stop = ARENA_ARRAY(b->mem, str, MOST);
    call->stop[call->nstop++] = v.s;
    return 0;
}

static int option_calibrate(binder *b, const llm_option *o, expr *x, llm_call *call) {
    static const char *const words[] = {"auto", "off", "batch", "fresh"};
    BASE_COVERS(words, CALIBRATES);
    value v;
    int status = option_constant(b, o, x, TYPE_TEXT, &v);
    if (status)
        return status;
    call->calibrate_given = true;
    for (call->calibrate = 0; call->calibrate < CALIBRATES; call->calibrate++)
        if (str_equal_nocase(v.s, str_from(words[call->calibrate])))
            return 0;
    fail_node(b, o->value, "calibrate must be auto, off, batch or fresh");
    err_hint(b->e, "calibrate => 'batch'");
    return ERR_BIND;
}

static int option_contexts_order(binder *b, const llm_option *o, expr *x, llm_call *call) {
    value v;
    int status = option_constant(b, o, x, TYPE_TEXT, &v);
    if (status)
        return status;
    call->contexts_ranked = str_equal_nocase(v.s, STR("ranked"));
    if (call->contexts_ranked || str_equal_nocase(v.s, STR("set")))
        return 0;
    fail_node(b, o->value, "contexts_order must be set or ranked");
    err_hint(b->e, "contexts_order => 'ranked'");
    return ERR_BIND;
}

static int option_chunk_kv(binder *b, const llm_option *o, expr *x, llm_call *call) {
    value v;
    int status = option_constant(b, o, x, TYPE_TEXT, &v);
    if (status)
        return status;
    call->blends = str_equal_nocase(v.s, STR("blend"));
    if (call->blends || str_equal_nocase(v.s, STR("exact")))
        return 0;
    fail_node(b, o->value, "chunk_kv must be exact or blend");
    err_hint(b->e, "chunk_kv => 'blend'");
    return ERR_BIND;
}

/* Reports an option that is given twice: one of the values would be ignored. */
static int option_once(binder *b, const llm_option *o, const llm_call *call, const node *examples) {
    const struct {
        str name;
        bool given;
    } options[] = {{STR("max_tokens"), call->max_tokens > 0},
                   {STR("temperature"), call->temperature.type != TYPE_NULL},
                   {STR("calibrate"), call->calibrate_given},
                   {STR("model"), call->model.n > 0},
                   {STR("examples"), examples != NULL},
                   {STR("labels"), call->from_labels}};
    for (size_t i = 0; i < BASE_COUNT(options); i++)
        if (options[i].given && str_equal_nocase(o->name.name, options[i].name))
            return fail_ident(b, o->name, "option %s is given twice", options[i].name.p);
    return 0;
}

/* Whether it is the option by which other systems ask for several columns. */
static bool names_schema(str option) {
    static const char *const names[] = {"output_schema", "response_format", "responseFormat",
                                        "schema", "json_schema"};
    bool found = false;
    for (size_t i = 0; i < BASE_COUNT(names); i++)
        found = found || str_equal_nocase(option, str_from(names[i]));
    return found;
}

/* Other words for the option labels. */
static bool names_labels(str name) {
    static const char *const words[] = {"options", "choices", "categories", "classes",
                                        "enum",    "values",  "candidates", "answers"};
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        if (str_equal_nocase(name, str_from(words[i])))
            return true;
    return false;
}

static int fail_option(binder *b, const llm_option *o) {
    static const char *const names[] = {
#define OPTION_NAME(name, example, help) name,
        SQL_LLM_OPTIONS(OPTION_NAME)
#undef OPTION_NAME
    };
    buf known = {0};
    fail_ident(b, o->name, "LLM() has no option \"%.*s\"", (int)o->name.name.n, o->name.name.p);
    const char *meant =
        names_labels(o->name.name) ? "labels" : str_nearest(o->name.name, names, BASE_COUNT(names));
    for (size_t i = 0; i < BASE_COUNT(names); i++)
        buf_printf(&known, "%s%s", i ? ", " : "", names[i]);
    if (names_schema(o->name.name))
        err_hint(b->e, "write LLM(…) RETURNS STRUCT(name TYPE, …)");
    else if (meant)
        err_hint(b->e, "did you mean %s?", meant);
    else
        err_hint(b->e, "options are %s", known.p);
    buf_free(&known);
    return ERR_BIND;
}

/* An option whose value is rows: a name or a query. */
static int check_rows(binder *b, const llm_option *o) {
    const node *n = o->value;
    if ((n->kind == NODE_COLUMN && !n->qualifier.name.n) || n->kind == NODE_SUBQUERY)
        return 0;
    return fail_node(b, n, "%.*s => takes a table, a view or a query in parentheses",
                     (int)o->name.name.n, o->name.name.p);
}

bool option_is_constant(const llm_option *o) {
    static const char *const names[] = {"max_tokens", "temperature",    "calibrate",
                                        "stop",       "contexts_order", "chunk_kv"};
    for (size_t i = 0; i < BASE_COUNT(names); i++)
        if (str_equal_nocase(o->name.name, str_from(names[i])))
            return true;
    const node *n = o->value;
    return str_equal_nocase(o->name.name, STR("model")) &&
           (n->kind != NODE_COLUMN || n->qualifier.name.n > 0);
}

int bind_option(binder *b, const llm_option *o, expr *x, llm_call *call, const node **examples) {
    value v;
    int status = option_once(b, o, call, *examples);
    if (status)
        return status;
    if (str_equal_nocase(o->name.name, STR("max_tokens"))) {
        if ((status = option_constant(b, o, x, TYPE_INTEGER, &v)) != 0)
            return status;
        if (v.i < 1 || v.i > 1000000)
            return fail_node(b, o->value, "max_tokens must be between 1 and 1,000,000");
        call->max_tokens = (int)v.i;
        return 0;
    }
    if (str_equal_nocase(o->name.name, STR("temperature"))) {
        if ((status = option_constant(b, o, x, TYPE_REAL, &v)) != 0)
            return status;
        if (!(v.r >= 0 && v.r <= 100))
            return fail_node(b, o->value, "temperature must be between 0 and 100");
        call->temperature = v;
        return 0;
    }
    if (str_equal_nocase(o->name.name, STR("calibrate")))
        return option_calibrate(b, o, x, call);
    if (str_equal_nocase(o->name.name, STR("contexts_order")))
        return option_contexts_order(b, o, x, call);
    if (str_equal_nocase(o->name.name, STR("chunk_kv")))
        return option_chunk_kv(b, o, x, call);
    if (str_equal_nocase(o->name.name, STR("stop")))
        return option_stop(b, o, x, call);
    if (str_equal_nocase(o->name.name, STR("model")))
        return option_model(b, o, x, call);
    if (str_equal_nocase(o->name.name, STR("after"))) /* bind_after */
        return 0;
    if (str_equal_nocase(o->name.name, STR("examples"))) {
        *examples = o->value;
        return 0;
    }
    if (str_equal_nocase(o->name.name, STR("labels"))) {
        call->from_labels = true; /* bind_labels */
        return check_rows(b, o);
    }
    return fail_option(b, o);
}
