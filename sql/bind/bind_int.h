/*
 * bind_int.h - the binder's inside: scopes, what waits to be lifted out of an expression, and who
 * binds what.
 *
 * A clause is bound in three steps: its expressions (which leave LLM calls and subqueries in
 * b->at.lift as *steps* and refer to their columns), then lift_place puts the steps as nodes on the
 * clause's input, then the clause's own node goes on top. Binding functions return NULL or non-zero
 * after filling b->e.
 *
 * Queries contain expressions and expressions contain queries, so the nine files that bind their
 * parts call each other. The others either use these (bind.c, bind_ddl.c, bind_dml.c, …) or are used
 * by them (scope.c, lift.c, bind_types.c, llm_type.c).
 */
#ifndef KVASIR_BIND_INT_H
#define KVASIR_BIND_INT_H

#include "parse/ast_int.h"
#include "tree/tree_int.h"

/* ---- scopes ---------------------------------------------------------------------------------- */

typedef struct scope_column {
    str table, name;
    int id;
    value_type type;
    bool merged;        /* the right column of USING: found only by its table's name */
    bool hidden_column; /* rowid: never part of a star */
} scope_column;

typedef struct step step;

typedef struct scope {
    struct scope *outer;
    int n, cap;
    scope_column *cols;
    list computed; /* of step*: LLM columns already there for every row */
} scope;

/* What an LLM column, a subquery's value or its mark waits for: a node to be put below the clause.
 */
struct step {
    bool is_apply, placed;
    llm_use use;
    str text; /* of a subquery */
    rel *right;
    join_kind kind;
    expr *predicate; /* IN: operand = column; a value: the rows that look at it (NULL: all) */
    int mark_id, value_id;
    bool mark_null;
    expr *guard; /* of a subquery: is_apply; calls inside it read it as the column guard_id */
    int guard_id;
    bool is_above; /* grouped queries: computed over the groups (HAVING), though its args still name
                      the input's columns */
    bool rewritten;
    int searched; /* the last search that came by: b->search */
};

typedef struct lift {
    list steps;
} lift;

/* How the statement uses the answer of one LLM call, collected while it is bound and kept for the
 * next pass. A call without RETURNS gets its type from it. */
typedef struct call_uses {
    str key;
    bool prob;            /* LLM_PROB() asks for it */
    bool number, boolean; /* compared with a number; with a BOOLEAN, or used as a condition */
    list literals;        /* of str*: the texts it is compared with */
    /* Texts it is compared with that the compared expression also has as a literal: 'none' in
     * COALESCE(LLM(…), 'none') = 'none'. They count as answers only if there are no `literals`. */
    list fallbacks;
    int literal_pos, literal_len; /* of the first text */
    int pos, len;                 /* of the first occurrence */
} call_uses;

/* One LLM call in one pass; its occurrences with equal keys share it. */
typedef struct call_info {
    call_uses *uses;
    int number;
    bool given;       /* RETURNS was written */
    bool text_option; /* an occurrence has an option that only a TEXT answer takes */
    bool lacks_prob;  /* LLM_PROB() asks for it, and a step was made before that was known */
    llm_call *call;
} call_info;

/* Where a column's values come from, for telling equal calls. */
typedef struct id_info {
    const table_def *table;
    int column;
    int same_as;     /* id of the column that was passed through, or its own */
    bool is_null;    /* NULL in every row, and TEXT for want of a better type */
    call_info *call; /* the LLM call whose answer it is */
    /* Of a computed column: what it was computed from, of a set operation's the columns of both
     * sides; else NULL. */
    const expr *made_of[2];
    int searched; /* the last search that came by: b->search */
} id_info;

typedef struct cte_binding {
    struct cte_binding *outer;
    const cte *def;
    rel *bound;
    int number, references;
    scope *scope; /* what its query sees */
    bool reads_itself;
    rel *last;    /* the only reference so far */
    rel *working; /* while its own recursive part is bound: what a reference reads */
} cte_binding;

typedef struct output {
    const node *value; /* NULL: a star's column */
    const scope_column *col;
    str name;
    str qualifier;
    expr *bound;
} output;

typedef struct grouping {
    int nkeys;
    rel_expr *keys;
    list aggs;   /* of rel_agg* */
    lift below;  /* calls in keys and aggregate arguments */
    rel *input;  /* once placed */
    list clones; /* of clone*: calls computed below the groups that are asked again above them */
} grouping;

/* PARTITION BY and ORDER BY of one OVER: the first npartition keys are the partition's. */
typedef struct bound_window {
    const window_spec *spec;
    int npartition, nkeys;
    sort_key *keys;
} bound_window;

typedef struct window_function {
    rel_window w;
    bound_window *over;
} window_function;

/* The window functions of one SELECT. */
typedef struct windowing {
    const list *defs; /* of window_def*: the WINDOW clause */
    list windows;     /* of bound_window* */
    list functions;   /* of window_function*, each once */
    list calls;       /* of window_call*: which function each call is */
    lift below;       /* calls and subqueries in their parts */
} windowing;

/* What of a condition matters where it stands: NULL is as good as FALSE where only TRUE does. */
typedef enum truth_context { TRUTH_ANY, TRUTH_TRUE, TRUTH_FALSE } truth_context;

/* Where an expression stands: what its names mean, what it may hold and where that goes. Who binds
 * something of another place keeps this one and puts it back. */
typedef struct bind_place {
    scope *scope;
    lift *lift;
    expr *guard;
    truth_context truth;        /* of the AND, OR, NOT or IN that is bound next */
    expr *inherited;            /* of the query being bound: the guard that all its calls have */
    grouping *group;            /* aggregates are allowed and go here */
    const char *no_aggregate;   /* why not, where group is NULL */
    const char *reevaluated_by; /* what would evaluate a select item again, by its name */
    windowing *windows;         /* window functions are allowed and were bound before */
    const char *no_window;      /* why not, where windows is NULL; NULL: as no_aggregate says */
    const char *refuse;         /* LLM calls and subqueries are refused here: "CHECK" */
    bool returning;             /* subqueries here do not see the rows as they are written */
    const output *aliases;      /* select items an unknown name may stand for */
    int naliases;
    const output *shown; /* the select list: LLM_PROB() takes a call by the name it has there */
    int nshown;
} bind_place;

typedef struct binder {
    arena *mem;
    const bind_env *env;
    err *e;
    str text;
    int next_id, next_share;
    int ninlined; /* references to CTEs that were bound anew */
    bool mentions_rowid;
    bool compares_null;
    int view_depth; /* > 0: positions are another text's */
    str view;       /* whose text that is: the view at hand */
    bind_place at;
    scope
        *recursion_outer; /* of the query around a recursion, which does not see it: for an error */
    const scope *comma_tables; /* of an ON: the tables before the comma, which it does not see */
    str target;                /* of UPDATE … FROM: what the table that it changes is called */
    const list *where_aliases; /* select items whose aliases WHERE cannot see: for a hint */
    cte_binding *ctes;
    const cte *defining;    /* which is being bound: to hint at RECURSIVE */
    cte_binding *recursion; /* whose query is about to be bound */
    id_info *ids;
    int ids_cap;
    list calls;   /* of call_info* */
    list *uses;   /* of call_uses*: kept from pass to pass */
    bool learned; /* this pass added to `uses` */
    int ncalls;
    int search;
    int64_t copies,
        excess; /* how often what is being bound will stand in the tree; nodes beyond one each */
} binder;

int new_id(binder *b);
id_info *id_of(binder *b, int id);
void id_copy(binder *b, int to,
             const expr *from); /* when `from` is a column, `to` has the same values */
scope_column *scope_add(binder *b, scope *s, str table, str name, int id, value_type type);
/* A column as it is in another scope. */
void scope_add_column(binder *b, scope *s, const scope_column *c);
/* The column, or NULL with an error. */
const scope_column *scope_find(binder *b, const node *n);
/* The first column that the name may mean, without a word where there is none. */
const scope_column *scope_named(const binder *b, const node *n);
bool scope_has_table(const scope *s, str table);

/* Error at a place of the statement's text, or without one inside a view. */
int fail(binder *b, err_code code, int pos, int len, const char *format, ...) BASE_PRINTF(5, 6);
int fail_node(binder *b, const node *n, const char *format, ...) BASE_PRINTF(3, 4);
int fail_ident(binder *b, ident i, const char *format, ...) BASE_PRINTF(3, 4);
void hint_nearest(binder *b, str word, const char *const *candidates, size_t count);
/* Hints at a select item of that name, which WHERE cannot see; false: there is none. */
bool hint_select_alias(binder *b, const node *n);

/* ---- expressions: bind_expr.c, bind_call.c, bind_types.c ------------------------------------- */

expr *bind_expr(binder *b, const node *n);
/* The same; if n is an LLM call without RETURNS, its answer is used as that type. */
expr *bind_as(binder *b, const node *n, value_type used);
/* current_date and the like: a function without parentheses, where no quotes make it a name. */
bool is_time_word(str name, function_id *function);
expr *bind_condition(binder *b, const node *n, truth_context matters);
expr *bind_call(binder *b, const node *n);
bool node_has_aggregate(const node *n); /* one that groups: without OVER */
bool window_has_aggregate(const window_spec *w);
/* Of a call by that many arguments: false with an error. */
bool aggregate_takes(binder *b, const node *n, agg_kind kind);
/* Argument, separator and FILTER, as they are without groups. */
int bind_aggregate_parts(binder *b, const node *n, rel_agg *agg);
expr *wrong_count(binder *b, const node *n, const function_info *info);
expr *unknown_function(binder *b, const node *n);
/* Binds with `more` added to the guard. */
expr *bind_guarded(binder *b, const node *n, expr *more);
expr *is_true(binder *b, expr *x, bool negated); /* x IS [NOT] TRUE */
expr *is_null(binder *b, expr *x);

/* A literal NULL, or a column of nothing else: it takes the type that its place wants. */
bool is_untyped_null(binder *b, const expr *x);
expr *to_condition(binder *b, expr *x);
/* The value as `type`: a literal converts now (or is an
 * error), anything else at run time. `what`: for the message. */
expr *to_type(binder *b, expr *x, value_type type, const char *what);
expr *to_column(binder *b, expr *x,
                const column_def *c); /* what is stored there: exactly, or an error */
expr *to_type_implicit(binder *b, expr *x, value_type type,
                       const char *what); /* only where no information is lost */
expr *to_number(binder *b, expr *x, const char *what);
int unify_comparison(binder *b, expr_op op, expr **x, expr **y, int pos, int len);
int unify_all(binder *b, expr **xs, int n, const char *what, value_type *type);

/* ---- queries: bind_query.c, bind_from.c, bind_group.c ---------------------------------------- */

int bind_query(binder *b, query *q, rel **out);
int bind_from(binder *b, from_item *f, scope *s, rel **out);
int bind_scan(binder *b, const table_def *t, str alias, const list *columns, bool rowid, scope *s,
              rel **out);
int bind_table(binder *b, ident name, str alias, const list *columns, scope *s, rel **out);
int bind_conjuncts(binder *b, const node *where, rel **r);
/* bind_group.c, in the order they are called. */
typedef struct conjunct {
    expr *value;
    lift steps;
} conjunct;
typedef struct conjunct_list {
    int n;
    conjunct *items;
} conjunct_list;
/* The conjuncts of `where`, each with its own steps. reuse: each may use what those before it
 * computed. NULL: an error. */
conjunct *bind_conditions(binder *b, const node *where, bool reuse, int *count);
int group_keys(binder *b, grouping *g, query *q, const output *outs, int nouts);
int group_having(binder *b, grouping *g, const node *having, conjunct_list *out);
/* Whether the groups are made by x. */
bool group_has_key(const grouping *g, const expr *x);
int group_place(binder *b, grouping *g, conjunct_list *having, rel *r, rel **out);
/* Filters by conditions over the groups; g NULL: over the rows. */
int group_filter(binder *b, grouping *g, conjunct_list *on, rel **r);
int group_rewrite(binder *b, grouping *g, lift *above, expr **x);
/* Forgets the steps that no rewritten expression needs: they stood for a key. */
void group_prune(lift *above);
/* bind_window.c, in the order they are called; g: NULL where nothing is grouped. The select list is
 * bound between the second and the third. */
int windows_bind(binder *b, query *q, const output *outs, int nouts, windowing *w);
int windows_qualify(binder *b, query *q, const output *outs, int nouts, windowing *w,
                    conjunct_list *out);
int windows_place(binder *b, windowing *w, grouping *g, conjunct_list *qualify, rel **r);
/* A key of an OVER or, in its parentheses, of an aggregate; item: NULL is no ORDER BY. */
int bind_sort_key(binder *b, const node *n, const order_item *item, sort_key *out);
expr *bind_window_call(binder *b, const node *n); /* the column of a call bound before */
int bind_terms(binder *b, query *q, int from, int to, rel **out);
/* Casts columns whose types differ from these. */
rel *cast_columns(binder *b, rel *r, const value_type *types);
/* bind_recursive.c: the query of a CTE that may read itself; *done is false where it does not. */
int bind_recursive(binder *b, cte_binding *c, query *q, rel **out, bool *done);
/* A select list over the columns of s. */
int bind_select_list(binder *b, const list *items, const scope *s, output **outs, int *count);
expr *bind_in_query(binder *b, const node *n);
/* Whether a row is one of nrows, as IN (VALUES …): equal[k * width + i] compares its part i with row
 * k's. NULL without an error: not all of these are constants of one type a column, or a subquery
 * may not stand here, or would not see the rows. */
expr *bind_in_rows(binder *b, expr *const *equal, int nrows, int width);
expr *bind_exists(binder *b, const node *n);
expr *bind_scalar(binder *b, const node *n);
int subquery(binder *b, query *q, rel **out);
/* A query in FROM: as subquery(), but what guards the query around it guards its calls too. */
int derived_query(binder *b, query *q, rel **out);
/* (…) AS t(a, b): renames, or an error when the counts differ. */
int rename_columns(binder *b, rel_column *cols, int ncols, const list *names, str table);

/* ---- VALUES: bind_values.c ------------------------------------------------------------------- */

/* One row of VALUES, or consecutive rows that ask the model the same: `cells` over `source`. */
typedef struct values_part {
    rel *source; /* NULL: no columns, one row */
    lift steps;
    expr **cells;
} values_part;
/* Binds what stands at column `at` of a row. */
typedef expr *cell_binder(binder *b, void *ctx, const node *n, int at);
/* rows: of list* of node*, all as long as the first. */
int bind_rows(binder *b, const list *rows, cell_binder *cell, void *ctx, values_part **parts,
              int *nparts);
/* cols: types and names; the ids are new. */
rel *values_rel(binder *b, values_part *parts, int nparts, const rel_column *cols, int ncols);
int bind_values(binder *b, query *q, rel **out);
/* l UNION ALL r, whose columns are alike; its own have new ids. */
rel *bind_union_all(binder *b, rel *l, rel *r);

/* ---- steps: lift.c --------------------------------------------------------------------------- */

/* The step that answers this call for these arguments: one already there, or a new one of `l`. */
step *lift_use(binder *b, lift *l, call_info *info, expr **args);
/* Puts the steps of `l` on r, in the order they need each other. */
rel *lift_place(binder *b, lift *l, rel *r);
/* Later expressions of the scope may use these columns. */
void lift_register(binder *b, const lift *l);
void lift_apply(binder *b, lift *l, step *s);
/* The call of `l`, or one that s had computed before, that column `id` is an answer of; NULL: none. */
const llm_use *lift_use_of(const scope *s, const lift *l, int id);
/* Whether what is there for rows with this guard (NULL: all) is there wherever `wanted` is true. */
bool guard_covers(const expr *guard, const expr *wanted);
/* Whether x (or NULL) names the column `id`. */
bool expr_mentions(const expr *x, int id);

/* ---- LLM calls: bind_llm.c, llm_type.c ------------------------------------------------------- */

/* A number that may read no rows and ask no model: a literal, or what only looks like one. `what` it
 * is, for errors; NULL: failed. */
expr *bind_constant(binder *b, const node *n, const char *what);
/* `used`: the type that its answer is used as, TYPE_NULL if that is not known yet. */
expr *bind_llm(binder *b, const node *n, value_type used);
/* LLM_PROB() of the call n. `named`: the name by which a select item's call is meant, else NULL. */
expr *bind_prob(binder *b, const node *n, const node *named);
/* Notes a use of a call's answer as BOOLEAN or a number. */
void llm_note_type(binder *b, const call_info *info, value_type type);
/* Notes with what x is compared as a use of the untyped calls whose answers x may be; a text that x
 * is ordered against (<) is no answer. true: x gets another type in the next pass, do not unify now.
 */
bool llm_note_use(binder *b, expr_op op, const expr *x, const expr *with);
bool llm_check_literal(binder *b, const expr *call, const expr *with);
call_info *llm_info_of(binder *b, const expr *x);
/* Sets what the call returns: as RETURNS says, or by the uses known so far. */
int llm_set_type(binder *b, const node *n, llm_call *call, const call_uses *uses);
/* After a pass without an error: gives the calls that were used as texts their answers. false: a
 * call was bound as another type than its uses show, or is used wrongly; the next pass knows. */
bool llm_types_fit(binder *b);

/* ---- statements ------------------------------------------------------------------------------ */

int bind_stmt(binder *b, ast *a, sql_stmt *s); /* bind.c */
/* bind_copy.c: whether an option is on, as its value says, or where it has none. */
int bind_switch(binder *b, const copy_option *o, bool *on);
int bind_insert(binder *b, ast *a, sql_stmt *s); /* bind_dml.c */
int bind_update(binder *b, ast *a, sql_stmt *s);
int bind_delete(binder *b, ast *a, sql_stmt *s);
/* bind_returning.c: after s->query. `alias`: what the table is called there; `from` (or NULL): the
 * columns of UPDATE's FROM; the query's last are those of them that RETURNING mentions. */
bool returning_mentions(const ast *a, const scope_column *c); /* or may: a subquery stands in it */
int bind_returning(binder *b, const ast *a, str alias, const scope *from, sql_stmt *s);
int bind_copy_from(binder *b, ast *a, sql_stmt *s);
int bind_copy_to(binder *b, ast *a, sql_stmt *s);
int bind_create_table(binder *b, ast *a, sql_stmt *s); /* bind_ddl.c */
int bind_create_index(binder *b, ast *a, sql_stmt *s);
int bind_create_view(binder *b, ast *a, sql_stmt *s);
int bind_create_model(binder *b, ast *a, sql_stmt *s);
int bind_drop(binder *b, ast *a, sql_stmt *s);
int bind_alter(binder *b, ast *a, sql_stmt *s);
/* bind_views.c: whether the views there are allow that `old` goes (changed: NULL) or becomes
 * `changed`. */
int views_allow_table(binder *b, const table_def *old, const table_def *changed, ident place);
int views_allow_view(binder *b, const view_def *old, const view_def *changed, ident place);
bool is_system_table(const binder *b, str name); /* can be read, and that alone */
int find_table(binder *b, ident name, const table_def **out);
int find_column(binder *b, const table_def *t, ident name); /* its position; -1: an error */
int find_columns(binder *b, const table_def *t, const list *names, int **out);
/* Expressions over one row of a table, not over a relation:
 * no calls, no subqueries. `refuse` names the place. */
expr *bind_row_condition(binder *b, const node *n, scope *s, const char *refuse);
/* Columns of x in s: slot = position in s. */
void set_slots(expr *x, const scope *s);
void table_scope(binder *b, const table_def *t, str alias, scope *s);
int bind_checks(binder *b, const table_def *t, sql_stmt *s);
/* NULL without an error: there is none. */
int bind_default(binder *b, const column_def *c, expr **out);
int bind_default_node(binder *b, const node *n, const column_def *c);

#endif
