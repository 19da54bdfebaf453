/*
 * bind_from.c - FROM: tables, views, CTEs, files, derived tables and joins; and the conjuncts of
 * WHERE.
 *
 * A name refers to the first of: a CTE, a table, a view, a system table. Invariant: no join
 * predicate contains an LLM call or a subquery. A conjunct of ON that contains one becomes a filter
 * above an inner join. In a LEFT JOIN it becomes a residual condition on the candidate pairs.
 */
#include <string.h>

#include "bind_int.h"
#include "words/words_int.h"

enum { MAX_VIEW_DEPTH = 20 };

int rename_columns(binder *b, rel_column *cols, int ncols, const list *names, str table) {
    if (!names || names->n == 0)
        return 0;
    if (names->n > ncols) {
        ident *extra = names->items[ncols];
        return fail_ident(b, *extra, "\"%.*s\" has %d column%s, but %d names are given",
                          (int)table.n, table.p, ncols, ncols == 1 ? "" : "s", names->n);
    }
    for (int i = 0; i < names->n; i++)
        cols[i].name = ((ident *)names->items[i])->name;
    return 0;
}

/* Adds the columns of a relation to the scope, under an alias and with the names of `columns`, if
 * given. */
static int add_to_scope(binder *b, const rel *r, str alias, const list *columns, scope *s) {
    rel_column *cols = ARENA_ARRAY(b->mem, rel_column, r->ncols);
    if (r->ncols)
        memcpy(cols, r->cols, sizeof *cols * (size_t)r->ncols);
    int status = rename_columns(b, cols, r->ncols, columns, alias.n ? alias : STR("the query"));
    if (status)
        return status;
    for (int i = 0; i < r->ncols; i++)
        scope_add(b, s, alias, cols[i].name, cols[i].id, cols[i].type);
    return 0;
}

static int check_alias(binder *b, const scope *s, str alias, int pos, int len) {
    if (alias.n && scope_has_table(s, alias)) {
        fail(b, ERR_BIND, pos, len, "table \"%.*s\" is named twice in FROM", (int)alias.n, alias.p);
        err_hint(b->e, "rename one of them with AS");
        return ERR_BIND;
    }
    return 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Scans all columns of the table, and with `rowid` also the rowid. The name rowid is visible only
 * if no column has it. */
int bind_scan(binder *b, const table_def *t, str alias, const list *columns, bool rowid, scope *s,
              rel **out) {
    rel *r = rel_make(b->mem, REL_SCAN, t->ncolumns + rowid);
    r->scan.table = t;
    r->scan.alias = alias;
    r->scan.columns = ARENA_ARRAY(b->mem, int, r->ncols);
    bool taken = false;
    for (int i = 0; i < r->ncols; i++) {
        int id = new_id(b), at = i < t->ncolumns ? i : -1;
        *id_of(b, id) = (id_info){.table = t, .column = at, .same_as = id};
        str name = at >= 0 ? t->columns[i].name : STR("rowid");
        taken = taken || (at >= 0 && str_equal_nocase(name, STR("rowid")));
        r->cols[i] = (rel_column){id, at >= 0 ? t->columns[i].type : TYPE_INTEGER, name, alias};
        r->scan.columns[i] = at;
    }
    *out = r;
    int status = add_to_scope(b, r, alias, columns, s);
    if (!status && rowid && taken)
        s->n--;
    else if (!status && rowid)
        s->cols[s->n - 1].hidden_column = true;
    return status;
}

static int bind_view(binder *b, const view_def *v, str alias, const list *columns, scope *s,
                     rel **out) {
    if (b->view_depth >= MAX_VIEW_DEPTH)
        return fail(b, ERR_LIMIT, -1, 0, "views are nested more than %d deep at \"%.*s\"",
                    MAX_VIEW_DEPTH, (int)v->name.n, v->name.p);
    const struct {
        int view_depth;
        str view;
        bool mentions_rowid;
        err *e;
        cte_binding *ctes;
        scope *scope;
    } saved = {b->view_depth, b->view, b->mentions_rowid, b->e, b->ctes, b->at.scope};
    sql_tree tree;
    err inner = {0};
    rel *r = NULL;
    int status = sql_parse(v->sql, b->mem, &tree, &inner);
    if (!status && tree.ast->kind != AST_QUERY)
        status = err_set(&inner, ERR_CORRUPT, "its definition is not a query");
    if (!status) {
        b->view_depth++;
        b->view = v->name;
        b->mentions_rowid = tree.mentions_rowid;
        b->e = &inner;
        b->ctes = NULL;
        b->at.scope = NULL; /* a view cannot refer to the query that uses it */
        status = derived_query(b, tree.ast->query, &r);
        b->view_depth = saved.view_depth;
        b->view = saved.view;
        b->mentions_rowid = saved.mentions_rowid;
        b->e = saved.e;
        b->ctes = saved.ctes;
        b->at.scope = saved.scope;
    }
    if (status) {
        /* views nested too deep: naming every view on the way to the innermost would not help */
        if (inner.code == ERR_LIMIT)
            fail(b, inner.code, -1, 0, "%s", inner.message);
        else
            fail(b, inner.code, -1, 0, "in view \"%.*s\": %s", (int)v->name.n, v->name.p,
                 inner.message);
        if (inner.hint[0])
            err_hint(b->e, "%s", inner.hint);
        return status;
    }
    for (int i = 0; i < v->ncolumns && i < r->ncols; i++)
        r->cols[i].name = v->columns[i];
    *out = r;
    return add_to_scope(b, r, alias, columns, s);
}

/* Returns a reference to a CTE inside its own recursive part: the rows of the previous round. */
static rel *working_rows(binder *b, const cte_binding *c) {
    rel *r = rel_make(b->mem, REL_WORKING, c->working->ncols);
    r->working.number = c->number;
    return r;
}

static void find_volatile(rel_visit *v, expr **x) {
    *(bool *)v->ctx = *(bool *)v->ctx || expr_is_volatile(*x);
}

/* True if NOT MATERIALIZED makes this reference bind the CTE's query again. The first reference
 * uses the query already bound. A volatile or recursive CTE is always shared, so that all
 * references see the same rows. After MOST inlined references all CTEs are shared: in a chain of
 * CTEs that each read the previous one twice, the number of copies doubles with each CTE. */
static bool is_inlined(const binder *b, const cte_binding *c) {
    enum { MOST = 64 };
    bool is_volatile = false;
    rel_visit v = {.on_expr = find_volatile, .ctx = &is_volatile};
    if (c->def->sharing != CTE_INLINED || c->references == 0 || c->reads_itself ||
        b->ninlined >= MOST)
        return false;
    rel_walk(c->bound, &v);
    return !is_volatile;
}

static int bind_inlined(binder *b, const cte_binding *c, str alias, const list *columns, scope *s,
                        rel **out) {
    cte_binding *ctes = b->ctes;
    scope *around = b->at.scope;
    b->ninlined++;
    b->ctes = c->outer;
    b->at.scope = c->scope;
    int status = derived_query(b, c->def->query, out);
    b->ctes = ctes;
    b->at.scope = around;
    if (!status)
        status =
            rename_columns(b, (*out)->cols, (*out)->ncols, &c->def->columns, c->def->name.name);
    return status ? status : add_to_scope(b, *out, alias, columns, s);
}

static int bind_cte(binder *b, cte_binding *c, str alias, const list *columns, scope *s,
                    rel **out) {
    if (is_inlined(b, c))
        return bind_inlined(b, c, alias, columns, s, out);
    const rel *from = c->working ? c->working : c->bound;
    rel *r = c->working ? working_rows(b, c) : rel_shared(b->mem, c->bound, c->number);
    if (!c->working)
        r->shared.kept = c->def->sharing == CTE_KEPT;
    for (int i = 0; i < r->ncols; i++) {
        int id = new_id(b);
        if (!c->working)
            *id_of(b, id) = *id_of(b, from->cols[i].id);
        r->cols[i] = from->cols[i];
        r->cols[i].id = id;
        r->cols[i].qualifier = alias;
    }
    c->references++;
    c->last = r;
    *out = r;
    return add_to_scope(b, r, alias, columns, s);
}

static int bind_system(binder *b, const rel_column *cols, int ncols, ident name, str alias,
                       const list *columns, scope *s, rel **out) {
    rel *r = rel_make(b->mem, REL_SYSTEM, ncols);
    r->system.name = name.name;
    for (int i = 0; i < ncols; i++) {
        r->cols[i] = cols[i];
        r->cols[i].id = new_id(b);
        r->cols[i].qualifier = alias;
    }
    *out = r;
    return add_to_scope(b, r, alias, columns, s);
}

static void hint_table(binder *b, str name) {
    enum { MOST = 1024 };
    const cte *own = b->defining;
    if (own && str_equal_nocase(own->name.name, name)) {
        int n2 = (int)BASE_MIN(name.n, (size_t)60);
        err_hint(b->e,
                 own->recursive ? "write a recursive CTE as SELECT … UNION ALL SELECT … FROM %.*s"
                                : "write WITH RECURSIVE %.*s … for a CTE that reads itself",
                 n2, name.p);
        return;
    }
    const char *names[MOST];
    size_t n = 0;
    const catalog *c = b->env->catalog;
    for (cte_binding *w = b->ctes; w && n < MOST; w = w->outer)
        names[n++] = arena_strndup(b->mem, w->def->name.name.p, w->def->name.name.n);
    for (int i = 0; i < c->ntables && n < MOST; i++)
        names[n++] = arena_strndup(b->mem, c->tables[i].name.p, c->tables[i].name.n);
    for (int i = 0; i < c->nviews && n < MOST; i++)
        names[n++] = arena_strndup(b->mem, c->views[i].name.p, c->views[i].name.n);
    const char *meant = str_nearest(name, names, n);
    if (meant)
        err_hint(b->e, "did you mean \"%s\"?", meant);
    else if (str_equal_nocase(name, STR("sqlite_master")) ||
             str_equal_nocase(name, STR("sqlite_schema")))
        err_hint(b->e, "use SHOW TABLES to list the tables, .schema for their definitions");
    else if (memchr(name.p, '.', name.n))
        err_hint(b->e, "write a file name in single quotes: FROM '%.*s'",
                 (int)BASE_MIN(name.n, (size_t)100), name.p);
    else if (n == 0)
        err_hint(b->e, "there are no tables yet: use CREATE TABLE, or FROM 'file.csv'");
}

bool is_system_table(const binder *b, str name) {
    int ncols;
    return b->env->system_table && b->env->system_table(b->env->ctx, name, &ncols);
}

int find_table(binder *b, ident name, const table_def **out) {
    *out = catalog_table(b->env->catalog, name.name);
    if (*out)
        return 0;
    if (catalog_view(b->env->catalog, name.name)) {
        fail_ident(b, name, "\"%.*s\" is a view, not a table", (int)name.name.n, name.name.p);
        return ERR_BIND;
    }
    if (is_system_table(b, name.name))
        return fail_ident(b, name, "\"%.*s\" is a system table: it can only be read",
                          (int)name.name.n, name.name.p);
    fail_ident(b, name, "no table \"%.*s\"", (int)name.name.n, name.name.p);
    hint_table(b, name.name);
    return ERR_BIND;
}

int bind_table(binder *b, ident name, str alias, const list *columns, scope *s, rel **out) {
    for (cte_binding *c = b->ctes; c; c = c->outer)
        if (str_equal_nocase(c->def->name.name, name.name))
            return bind_cte(b, c, alias, columns, s, out);
    const table_def *t = catalog_table(b->env->catalog, name.name);
    if (t)
        return bind_scan(b, t, alias, columns, b->mentions_rowid, s, out);
    const view_def *v = catalog_view(b->env->catalog, name.name);
    if (v)
        return bind_view(b, v, alias, columns, s, out);
    int ncols = 0;
    const rel_column *cols =
        b->env->system_table ? b->env->system_table(b->env->ctx, name.name, &ncols) : NULL;
    if (cols)
        return bind_system(b, cols, ncols, name, alias, columns, s, out);
    return find_table(b, name, &t);
}

/* Returns the default alias of a file: its base name up to the first dot. */
static str file_alias(str path) {
    size_t start = path.n;
    while (start > 0 && path.p[start - 1] != '/')
        start--;
    size_t end = start;
    while (end < path.n && path.p[end] != '.')
        end++;
    return (str){path.p + start, end - start};
}

static int bind_file(binder *b, from_item *f, scope *s, rel **out) {
    file_options options = {0}, now = {.cancel = b->env->cancel};
    table_file *file;
    err problem = {0};
    if (memchr(f->path.p, 0, f->path.n) || f->path.n == 0)
        return fail(b, ERR_IO, f->pos, f->len, "a file name cannot be empty or contain a NUL byte");
    int status =
        table_file_open(arena_strndup(b->mem, f->path.p, f->path.n), &now, &file, &problem);
    if (status) {
        fail(b, problem.code, f->pos, f->len, "%s", problem.message);
        if (problem.hint[0])
            err_hint(b->e, "%s", problem.hint);
        return status;
    }
    str alias = f->alias.name.n ? f->alias.name : file_alias(f->path);
    int n = table_file_column_count(file);
    rel *r = rel_make(b->mem, REL_FILE, n);
    r->file.path = str_copy(b->mem, f->path);
    r->file.options = options;
    r->file.nfile_columns = n;
    r->file.types = ARENA_ARRAY(b->mem, value_type, n);
    r->file.columns = ARENA_ARRAY(b->mem, int, n);
    for (int i = 0; i < n; i++) {
        r->file.types[i] = table_file_column_type(file, i);
        r->file.columns[i] = i;
        r->cols[i] = (rel_column){new_id(b), r->file.types[i],
                                  str_copy(b->mem, table_file_column_name(file, i)), alias};
    }
    table_file_close(file);
    *out = r;
    return add_to_scope(b, r, alias, &f->columns, s);
}

/* ---- functions ------------------------------------------------------------------------------- */

static int no_table_function(binder *b, const from_item *f) {
    static const struct {
        const char *name, *instead;
    } others[] = {{"range", "use generate_series(0, 9): its last number is included"},
                  {"read_csv", "read a file directly: FROM 'f.csv'"},
                  {"read_csv_auto", "read a file directly: FROM 'f.csv'"},
                  {"read_json", "read a file directly: FROM 'f.json'"},
                  {"read_json_auto", "read a file directly: FROM 'f.json'"},
                  {"read_parquet", "kvasir reads CSV, TSV and JSON: FROM 'f.csv'"}};
    fail_ident(b, f->name, "no table function \"%.*s\"", (int)f->name.name.n, f->name.name.p);
    const char *instead = function_instead(f->name.name);
    if (instead)
        err_hint(b->e, "instead: %s", instead);
    else
        err_hint(b->e, "table functions are generate_series(), CHUNK() and string_split()");
    for (size_t i = 0; i < BASE_COUNT(others); i++)
        if (str_equal_nocase(f->name.name, str_from(others[i].name)))
            err_hint(b->e, "%s", others[i].instead);
    return ERR_BIND;
}

/* Returns the number of values from `first` to `last`, at most INT64_MAX. */
static int64_t series_count(int64_t first, int64_t last, int64_t by) {
    __int128 way = by > 0 ? (__int128)last - first : (__int128)first - last;
    __int128 n = way < 0 ? 0 : way / (by > 0 ? by : -(__int128)by) + 1;
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

static bool names_column(const node *n) {
    bool found = n->kind == NODE_COLUMN;
    for (int i = 0; i < n->nargs && !found; i++)
        found = names_column(n->args[i]);
    return found;
}

static int no_constant(binder *b, const node *n) {
    return fail_node(b, n, "the arguments of generate_series() must be constant whole numbers");
}

/* Binds generate_series(first, last [, step]), as in psql, duckdb and sqlite3. It has no rows if an
 * argument is NULL. */
static int bind_series(binder *b, const from_item *f, str alias, scope *s, rel **out) {
    int64_t given[3] = {0, 0, 1};
    bool null = false;
    const function_info *info = series_function();
    if (!str_equal_nocase(f->name.name, str_from(info->name)))
        return no_table_function(b, f);
    if (f->options.n)
        return fail_ident(b, ((llm_option *)f->options.items[0])->name, "%s() has no options",
                          info->name);
    if (f->args.n < info->min_args || f->args.n > info->max_args)
        return fail(b, ERR_BIND, f->pos, f->len,
                    "%s() takes a first number, a last number and an optional step", info->name);
    for (int i = 0; i < f->args.n; i++) {
        const node *n = f->args.items[i];
        if (names_column(n))
            return no_constant(b, n);
        expr *x = bind_constant(b, n, "generate_series()");
        if (!x)
            return (int)b->e->code;
        if (x->kind != EXPR_LITERAL || x->literal.type == TYPE_REAL)
            return no_constant(b, n);
        null = null || x->literal.type == TYPE_NULL;
        given[i] = x->literal.i;
    }
    if (!null && given[2] == 0)
        return fail_node(b, f->args.items[2], "the step of generate_series() cannot be zero");
    rel *r = *out = rel_make(b->mem, REL_SERIES, 1);
    r->series = (series){.first = given[0], .step = given[2]};
    r->series.count = null ? 0 : series_count(given[0], given[1], given[2]);
    r->cols[0] = (rel_column){new_id(b), TYPE_INTEGER, alias, alias};
    return add_to_scope(b, r, alias, &f->columns, s);
}

/* ---- functions with rows for each row to the left -------------------------------------------- */

/* Sets *out to the value of an option of CHUNK(), a constant from `least` to 1,000,000. */
static int chunk_number(binder *b, const llm_option *o, int64_t least, int64_t *out) {
    expr *x = bind_constant(b, o->value, "CHUNK()");
    if (!x)
        return (int)b->e->code;
    if (x->kind != EXPR_LITERAL || x->literal.type != TYPE_INTEGER || x->literal.i < least ||
        x->literal.i > 1000000)
        return fail_node(b, o->value, "%.*s must be a whole number from %lld to 1,000,000",
                         (int)o->name.name.n, o->name.name.p, (long long)least);
    *out = x->literal.i;
    return 0;
}

static int chunk_option(binder *b, const llm_option *o, split_spec *spec) {
    static const char *const names[] = {"tokens", "overlap", "model"};
    if (str_equal_nocase(o->name.name, STR("tokens")))
        return chunk_number(b, o, 16, &spec->tokens);
    if (str_equal_nocase(o->name.name, STR("overlap")))
        return chunk_number(b, o, 0, &spec->overlap);
    if (str_equal_nocase(o->name.name, STR("model"))) {
        llm_call named = {0};
        expr *x = option_is_constant(o) ? bind_expr(b, o->value) : NULL;
        int status = x || !option_is_constant(o) ? option_model(b, o, x, &named) : (int)b->e->code;
        spec->model = named.model;
        return status;
    }
    fail_ident(b, o->name, "CHUNK() has no option \"%.*s\"", (int)o->name.name.n, o->name.name.p);
    hint_nearest(b, o->name.name, names, BASE_COUNT(names));
    return ERR_BIND;
}

static int split_options(binder *b, const from_item *f, split_spec *spec) {
    spec->chunks = str_equal_nocase(f->name.name, STR("chunk"));
    spec->tokens = 128;
    for (int i = 0; i < f->options.n; i++) {
        const llm_option *o = f->options.items[i];
        if (!spec->chunks)
            return fail_ident(b, o->name, "string_split() has no options");
        int status = chunk_option(b, o, spec);
        if (status)
            return status;
    }
    if (spec->overlap >= spec->tokens)
        return fail(b, ERR_BIND, f->pos, f->len, "the overlap must be less than the tokens");
    return 0;
}

/* Binds string_split() or CHUNK(): *out has the rows of `left`, each with each part of its text. */
static int bind_split(binder *b, const from_item *f, scope *s, rel *left, rel **out) {
    split_spec spec = {0};
    lift steps = {{0}};
    expr *args[2] = {NULL, NULL};
    str alias = f->alias.name.n ? f->alias.name : f->name.name;
    int status = split_options(b, f, &spec), nargs = spec.chunks ? 1 : 2;
    if (!status && f->args.n != nargs)
        status =
            fail(b, ERR_BIND, f->pos, f->len,
                 spec.chunks ? "CHUNK() takes one text: CHUNK(text, tokens => 128, overlap => 16)"
                             : "string_split() takes a text and a separator");
    if (!status)
        status = check_alias(b, s, alias, f->pos, f->len);
    bind_place before = b->at;
    b->at.scope = s;
    b->at.lift = &steps;
    b->at.group = NULL;
    b->at.no_aggregate = "FROM";
    for (int i = 0; i < nargs && !status; i++) {
        args[i] = bind_expr(b, f->args.items[i]);
        if (!args[i] || !(args[i] = to_type_implicit(b, args[i], TYPE_TEXT, "the text to divide")))
            status = (int)b->e->code;
    }
    b->at = before;
    if (status)
        return status;
    rel *r = rel_new(b->mem, REL_SPLIT, lift_place(b, &steps, left), NULL);
    r->split.spec = spec;
    r->split.text = args[0];
    r->split.separator = args[1];
    r->split.text_id = new_id(b);
    r->split.number_id = new_id(b);
    r->split.alias = alias;
    rel_set_columns(b->mem, r);
    *out = r;
    rel_column own[2] = {r->cols[r->ncols - 2], r->cols[r->ncols - 1]};
    status = rename_columns(b, own, 2, &f->columns, alias);
    for (int i = 0; i < 2 && !status; i++)
        scope_add(b, s, alias, own[i].name, own[i].id, own[i].type);
    return status;
}

int bind_struct(binder *b, const from_item *f, scope *s, rel *left, rel **out) {
    int width = struct_width(f->llm), status;
    str alias = f->alias.name;
    lift steps = {{0}};
    if (width == 0) {
        fail_node(b, f->llm, "an LLM call in FROM must return a STRUCT");
        err_hint(b->e, "write RETURNS STRUCT(name TYPE, …), or put the call into the select list");
        return ERR_BIND;
    }
    const node **columns = ARENA_ARRAY(b->mem, const node *, width);
    rel_column *cols = ARENA_ARRAY(b->mem, rel_column, width);
    if ((status = struct_columns(b, f->llm, columns)) != 0 ||
        (status = check_alias(b, s, alias, f->alias.pos, f->alias.len)) != 0)
        return status;
    bind_place before = b->at;
    b->at.scope = s;
    b->at.lift = &steps;
    b->at.group = NULL;
    b->at.no_aggregate = "FROM";
    for (int i = 0; i < width && !status; i++) {
        const expr *x = bind_expr(b, columns[i]);
        if (x)
            cols[i] = (rel_column){x->column.id, x->type, columns[i]->field->name.name, alias};
        else
            status = (int)b->e->code;
    }
    b->at = before;
    if (!status)
        status = rename_columns(b, cols, width, &f->columns, alias);
    if (status)
        return status;
    *out = lift_place(b, &steps, left);
    for (int i = 0; i < width; i++)
        scope_add(b, s, alias, cols[i].name, cols[i].id, cols[i].type);
    return 0;
}

/* ---- joins ----------------------------------------------------------------------------------- */

static void flatten_and(binder *b, const node *n, list *out) {
    if (n->kind == NODE_OP && n->op == OP_AND)
        for (int i = 0; i < n->nargs; i++)
            flatten_and(b, n->args[i], out);
    else
        list_add(b->mem, out, (void *)(uintptr_t)n);
}

/* Binds conjuncts one by one: a conjunct without steps can become part of a join, a conjunct with
 * steps becomes a filter above the join. */
conjunct *bind_conditions(binder *b, const node *where, bool reuse, int *count) {
    list nodes = {0};
    flatten_and(b, where, &nodes);
    conjunct *all = ARENA_ARRAY(b->mem, conjunct, nodes.n);
    lift *before = b->at.lift;
    for (int i = 0; i < nodes.n; i++) {
        b->at.lift = &all[i].steps;
        all[i].value = bind_condition(b, nodes.items[i], TRUTH_TRUE);
        if (!all[i].value) {
            b->at.lift = before;
            return NULL;
        }
        if (reuse)
            lift_register(b, &all[i].steps);
    }
    b->at.lift = before;
    *count = nodes.n;
    return all;
}

static bool has_name(const scope *s, int from, int to, str name) {
    for (int k = from; k < to; k++)
        if (!s->cols[k].merged && !s->cols[k].hidden_column &&
            str_equal_nocase(s->cols[k].name, name))
            return true;
    return false;
}

/* Finds the USING columns of a NATURAL JOIN: the names that both sides have, in the order of the
 * left side. */
static int natural_columns(binder *b, const from_item *f, const scope *s, int split, list *out) {
    for (int k = 0; k < split; k++) {
        const scope_column *c = &s->cols[k];
        if (c->merged || c->hidden_column || has_name(s, 0, k, c->name) ||
            !has_name(s, split, s->n, c->name))
            continue;
        ident *name = ARENA_NEW(b->mem, ident);
        *name = (ident){c->name, f->natural.pos, f->natural.len};
        list_add(b->mem, out, name);
    }
    if (out->n)
        return 0;
    fail_ident(b, f->natural, "NATURAL JOIN: the two sides have no column name in common");
    err_hint(b->e, "use CROSS JOIN to combine every row with every row");
    return ERR_BIND;
}

static int using_predicate(binder *b, const list *columns, scope *s, int split, expr **predicate) {
    for (int i = 0; i < columns->n; i++) {
        ident *name = columns->items[i];
        scope_column *l = NULL, *r = NULL;
        for (int k = 0; k < s->n; k++) {
            scope_column **side = k < split ? &l : &r;
            if (s->cols[k].merged || !str_equal_nocase(s->cols[k].name, name->name))
                continue;
            if (*side)
                return fail_ident(b, *name, "column \"%.*s\" of USING is ambiguous",
                                  (int)name->name.n, name->name.p);
            *side = &s->cols[k];
        }
        if (!l || !r)
            return fail_ident(b, *name, "USING: no column \"%.*s\" on the %s side",
                              (int)name->name.n, name->name.p, l ? "right" : "left");
        expr *x = expr_column(b->mem, l->id, l->type, l->name),
             *y = expr_column(b->mem, r->id, r->type, r->name);
        if (unify_comparison(b, OP_EQ, &x, &y, name->pos, name->len))
            return (int)b->e->code;
        *predicate = expr_and(b->mem, *predicate, expr_op2(b->mem, OP_EQ, TYPE_BOOLEAN, x, y));
        r->merged = true;
    }
    return 0;
}

/* Joins two sides. lateral: the right one may read columns of the left one. */
static rel *combine(binder *b, bool lateral, join_kind kind, rel *left, rel *right,
                    expr *predicate) {
    bool on_true = predicate && predicate->kind == EXPR_LITERAL &&
                   predicate->literal.type == TYPE_BOOLEAN && predicate->literal.i;
    if (lateral && on_true)
        predicate = NULL;
    if (kind != JOIN_LEFT)
        kind = predicate ? JOIN_INNER : JOIN_CROSS;
    return lateral ? rel_apply(b->mem, kind, left, right, predicate, -1, false)
                   : rel_join(b->mem, kind, left, right, predicate);
}

/* Adds a column to the right side that is TRUE in each row. After the LEFT JOIN, a NULL in this
 * column marks a left row without a partner. */
static rel *with_matched(binder *b, rel *right, int id) {
    rel *p = rel_project(b->mem, right, right->ncols + 1);
    for (int i = 0; i < right->ncols; i++) {
        p->cols[i] = right->cols[i];
        p->project.exprs[i] = (rel_expr){
            expr_column(b->mem, right->cols[i].id, right->cols[i].type, right->cols[i].name),
            right->cols[i].id};
    }
    p->cols[right->ncols] = (rel_column){id, TYPE_BOOLEAN, STR("matched"), {NULL, 0}};
    p->project.exprs[right->ncols] = (rel_expr){expr_literal(b->mem, value_bool(true)), id};
    return p;
}

static void guard_steps(binder *b, lift *l, expr *guard) {
    for (int i = 0; i < l->steps.n; i++) {
        step *s = l->steps.items[i];
        if (!s->is_apply)
            s->site.guard = expr_and(b->mem, guard, s->site.guard);
    }
}

/* Binds LEFT JOIN … ON plain AND costly, where the costly conjuncts have steps. The plain conjuncts
 * select pairs; the costly conjuncts are evaluated only for these pairs. */
static rel *left_with_residual(binder *b, bool lateral, rel *left, rel *right, expr *plain,
                               conjunct *all, int n) {
    int group = new_id(b), matched = new_id(b);
    left = rel_row_number(b->mem, left, group);
    right = with_matched(b, right, matched);
    rel *r = combine(b, lateral, JOIN_LEFT, left, right, plain);
    expr *is_match = expr_column(b->mem, matched, TYPE_BOOLEAN, STR("matched"));
    expr *predicate = is_match;
    for (int i = 0; i < n; i++) {
        if (all[i].steps.steps.n == 0)
            continue;
        /* the model is asked only for pairs that satisfy the previous conjuncts */
        guard_steps(b, &all[i].steps, predicate);
        r = lift_place(b, &all[i].steps, r);
        predicate = expr_and(b->mem, predicate, all[i].value);
    }
    int *nulls = ARENA_ARRAY(b->mem, int, right->ncols);
    for (int i = 0; i < right->ncols; i++)
        nulls[i] = right->cols[i].id;
    return rel_residual(b->mem, r, group, predicate, nulls, right->ncols);
}

/* Whether an item has rows for each row to its left, to which it adds its columns. */
static bool extends_left(const from_item *f) {
    return f->kind == FROM_LLM || is_split(f);
}

static int bind_extension(binder *b, const from_item *f, scope *s, rel *left, rel **out) {
    return f->kind == FROM_LLM ? bind_struct(b, f, s, left, out) : bind_split(b, f, s, left, out);
}

/* right: NULL if the right side extends `left`, which has its columns. */
static int join_on(binder *b, const from_item *f, scope *s, rel *left, rel *right, rel **out) {
    int n = 0;
    bind_place before = b->at;
    b->at.scope = s;
    b->at.group = NULL;
    b->at.no_aggregate = "ON";
    conjunct *all = bind_conditions(b, f->on, false, &n);
    b->at = before;
    if (!all)
        return (int)b->e->code;
    expr *plain = NULL;
    bool costly = false;
    expr **plains = ARENA_ARRAY(b->mem, expr *, n);
    int nplain = 0;
    for (int i = 0; i < n; i++)
        if (all[i].steps.steps.n)
            costly = true;
        else
            plains[nplain++] = all[i].value;
    plain = expr_chain(b->mem, OP_AND, plains, nplain);
    if (f->join == JOIN_LEFT && costly) {
        *out = left_with_residual(b, f->right->lateral, left, right, plain, all, n);
        return 0;
    }
    rel *r = right ? combine(b, f->right->lateral, f->join, left, right, plain) : left;
    if (!right && plain)
        r = rel_filter(b->mem, r, plain);
    for (int i = 0; i < n; i++)
        if (all[i].steps.steps.n) {
            r = lift_place(b, &all[i].steps, r);
            r = rel_filter(b->mem, r, all[i].value);
        }
    *out = r;
    return 0;
}

/* Binds the right side of a join that extends the left one: *left gets its columns. */
static int join_extension(binder *b, const from_item *f, scope *both, rel **left) {
    if (f->join == JOIN_LEFT || f->using_columns.n || f->natural.name.n) {
        const char *name = f->right->kind == FROM_LLM ? "LLM()" : "a function of its left side";
        fail(b, ERR_BIND, f->right->pos, f->right->len,
             "%s in FROM cannot be joined by LEFT JOIN, USING or NATURAL", name);
        err_hint(b->e, "it has rows for each row to its left: write a comma before it, and the "
                       "condition in WHERE");
        return ERR_BIND;
    }
    return bind_extension(b, f->right, both, *left, left);
}

static int bind_join(binder *b, from_item *f, scope *s, rel **out) {
    scope both = {.outer = s->outer};
    rel *left, *right = NULL;
    int status = bind_from(b, f->left, &both, &left);
    if (status)
        return status;
    int split = both.n;
    scope left_scope = both; /* as a LATERAL subquery sees it */
    bool extends = extends_left(f->right);
    bind_place before_right = b->at;
    const scope *left_tables = b->left_tables;
    b->left_tables = f->right->kind == FROM_QUERY ? &left_scope : NULL;
    if (f->right->lateral)
        b->at.scope = &left_scope;
    status = extends ? join_extension(b, f, &both, &left) : bind_from(b, f->right, &both, &right);
    b->at = before_right;
    b->left_tables = left_tables;
    if (status)
        return status;
    if (f->on) {
        const scope *beside = b->comma_tables;
        b->comma_tables = s;
        status = join_on(b, f, &both, left, right, out);
        b->comma_tables = beside;
    } else if (extends) {
        *out = left;
    } else {
        expr *predicate = NULL;
        list columns = f->using_columns;
        if (f->natural.name.n)
            status = natural_columns(b, f, &both, split, &columns);
        if (!status)
            status = using_predicate(b, &columns, &both, split, &predicate);
        if (!status)
            *out = combine(b, f->right->lateral, f->join, left, right, predicate);
    }
    scope before = *s;
    for (int i = 0; i < both.n && !status; i++) {
        if (i == 0 || !str_equal(both.cols[i].table, both.cols[i - 1].table))
            status = check_alias(b, &before, both.cols[i].table, f->pos, f->len);
        if (!status)
            scope_add_column(b, s, &both.cols[i]);
    }
    return status;
}

/* Binds an item that extends its left side, of which there is none: it extends one row. */
static int bind_first_extension(binder *b, const from_item *f, scope *s, rel **out) {
    scope own = {.outer = s->outer};
    int status =
        f->kind == FROM_LLM ? check_alias(b, s, f->alias.name, f->alias.pos, f->alias.len) : 0;
    if (!status)
        status = bind_extension(b, f, &own, rel_one_row(b->mem), out);
    for (int i = 0; i < own.n && !status; i++)
        scope_add_column(b, s, &own.cols[i]);
    return status;
}

int bind_from(binder *b, from_item *f, scope *s, rel **out) {
    str alias = f->alias.name;
    if (is_split(f))
        return bind_first_extension(b, f, s, out);
    switch (f->kind) {
    case FROM_JOIN:
        return bind_join(b, f, s, out);
    case FROM_NAME:
    case FROM_FUNCTION:
        alias = alias.n ? alias : f->name.name;
        break;
    case FROM_FILE:
        alias = alias.n ? alias : file_alias(f->path);
        break;
    case FROM_LLM:
        return bind_first_extension(b, f, s, out);
    case FROM_QUERY:
        break;
    }
    int status = check_alias(b, s, alias, f->alias.name.n ? f->alias.pos : f->pos,
                             f->alias.name.n ? f->alias.len : f->len);
    if (status)
        return status;
    if (f->kind == FROM_NAME)
        return bind_table(b, f->name, alias, &f->columns, s, out);
    if (f->kind == FROM_FILE)
        return bind_file(b, f, s, out);
    if (f->kind == FROM_FUNCTION)
        return bind_series(b, f, alias, s, out);
    status = derived_query(b, f->query, out);
    return status ? status : add_to_scope(b, *out, alias, &f->columns, s);
}

/* ---- WHERE ----------------------------------------------------------------------------------- */

/* WHERE becomes one filter per conjunct, in the order written, up to this number of filters.
 * Further conjuncts without steps share one filter: a generated condition with thousands of
 * conjuncts would otherwise make a tree thousands of levels deep. */
enum { MAX_FILTERS = 64 };

int bind_conjuncts(binder *b, const node *where, rel **r) {
    int n = 0;
    const char *why = b->at.no_aggregate;
    b->at.no_aggregate = "WHERE";
    conjunct *all = bind_conditions(b, where, true, &n);
    b->at.no_aggregate = why;
    if (!all)
        return (int)b->e->code;
    expr **rest = ARENA_ARRAY(b->mem, expr *, n);
    int nrest = 0;
    for (int i = 0; i < n; i++) {
        if (all[i].steps.steps.n == 0 && i >= MAX_FILTERS) {
            rest[nrest++] = all[i].value;
            continue;
        }
        *r = lift_place(b, &all[i].steps, *r);
        *r = rel_filter(b->mem, *r, all[i].value);
    }
    if (nrest)
        *r = rel_filter(b->mem, *r, expr_chain(b->mem, OP_AND, rest, nrest));
    return 0;
}

/* ---- rows of an option of a call ------------------------------------------------------------- */

/* Binds the CTEs from `c` outwards, the outermost first. CTEs that are still being defined are left
 * out: no query may read them here. */
static int bind_ctes(binder *b, const cte_binding *c) {
    if (c == NULL)
        return 0;
    int status = bind_ctes(b, c->outer);
    if (status || c->working)
        return status;
    void *items[1] = {(void *)(uintptr_t)c->def};
    query with = {.with = {items, 1, 1}};
    return bind_with(b, &with);
}

static int bind_source(binder *b, const cte_binding *ctes, const node *n, rel **out) {
    scope own = {.outer = NULL};
    const cte_binding *c = ctes;
    if (n->kind == NODE_SUBQUERY) {
        int status = bind_ctes(b, ctes);
        return status ? status : bind_query(b, n->query, out);
    }
    while (c && !str_equal_nocase(c->def->name.name, n->name.name))
        c = c->outer;
    if (c && c->working)
        return fail_node(b, n, "a call in the definition of \"%.*s\" cannot read its rows",
                         (int)n->name.name.n, n->name.name.p);
    int status = bind_ctes(b, c);
    return status ? status : bind_table(b, n->name, n->name.name, NULL, &own, out);
}

int bind_apart(binder *around, const node *n, sql_stmt *out) {
    list uses = {0};
    binder b = {.mem = around->mem,
                .env = around->env,
                .e = around->e,
                .text = around->text,
                .next_id = 1,
                .next_share = 1,
                .mentions_rowid = around->mentions_rowid,
                .view_depth = around->view_depth,
                .view = around->view,
                .uses = &uses,
                .label_sets = around->label_sets};
    *out = (sql_stmt){.kind = STMT_SELECT, .text = around->text};
    int status = bind_source(&b, around->ctes, n, &out->query);
    if (!status)
        rel_settle_all(out->query);
    out->next_id = b.next_id;
    out->next_share = b.next_share;
    return status;
}
