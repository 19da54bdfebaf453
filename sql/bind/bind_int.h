/*
 * bind_int.h - the binder's internals: scopes, lifted LLM calls and subqueries, and the functions
 * that bind each part of a statement.
 *
 * A clause is bound in three steps. Its expressions are bound: LLM calls and subqueries become
 * *steps* in b->at.lift, and the expressions read the columns of these steps. Then
 * lift_place adds the steps as nodes above the clause's input. Then the clause's own node is added.
 * Binding functions return NULL or non-zero after filling b->e.
 *
 * Queries contain expressions and expressions contain queries, so the nine files that bind their
 * parts call each other. The other files either only call these nine (bind.c, bind_ddl.c,
 * bind_dml.c, …) or are only called by them (scope.c, lift.c, bind_types.c, llm_type.c).
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
    /* visible only with its table's name: right column of a USING pair, column of `excluded` */
    bool merged;
    bool hidden_column; /* the rowid: left out of * */
} scope_column;

typedef struct step step;

typedef struct scope {
    struct scope *outer;
    int n, cap;
    scope_column *cols;
    list computed; /* of step*: LLM calls whose answers are columns of nodes below this clause */
} scope;

/* An LLM call or a subquery lifted out of an expression: becomes a node below the clause. */
struct step {
    bool is_apply; /* true: a subquery (`text` to `guard_id`); false: an LLM call (`site`) */
    bool placed;   /* lift_place has added its node */
    llm_site site;
    str text;       /* the text of the subquery */
    rel *right;     /* the bound subquery */
    join_kind kind; /* JOIN_MARK for IN and EXISTS, else JOIN_SINGLE */
    /* JOIN_MARK: the comparison of IN; NULL for EXISTS. JOIN_SINGLE: true for the rows that need
     * the value; NULL: all rows need the value. */
    expr *predicate;
    int mark_id;    /* JOIN_MARK: the result column; else -1 */
    int value_id;   /* JOIN_SINGLE: the result column; else -1 */
    bool mark_null; /* JOIN_MARK: see join_kind */
    /* true for the rows that need the subquery; the subquery's calls read it as column guard_id;
     * NULL: no call reads it */
    expr *guard;
    int guard_id; /* -1: no guard */
    /* computed above the groups, although its arguments still refer to columns of the groups'
     * input */
    bool is_above;
    bool rewritten; /* group_rewrite has replaced group keys in its expressions */
    int searched;   /* number of the last search (b->search) that visited it */
};

typedef struct lift {
    list steps; /* of step* */
} lift;

/* What LLM_PROB() or LLM_MEAN() reads of a call's answer. */
typedef struct prob_read {
    int literal; /* PROB_OF_ANSWER or PROB_MEAN; 0: the probability of `label` */
    str label;   /* p = NULL: none */
} prob_read;

/* How the statement uses the answers of one LLM call. All passes share it, because the type of a
 * call without RETURNS is inferred from its uses. */
typedef struct call_uses {
    str key;       /* text that identifies the call; see call_key in bind_llm.c */
    list probs;    /* of prob_read*: what LLM_PROB() and LLM_MEAN() read */
    bool number;   /* compared with a number */
    bool boolean;  /* compared with a BOOLEAN or used as a condition */
    list literals; /* of str*: the text literals it is compared with */
    /* Of str*: literals it is compared with that also occur in the compared expression, like
     * 'none' in COALESCE(LLM(…), 'none') = 'none', or are its DEFAULT ON ERROR. They are answers
     * only if `literals` is empty. */
    list fallbacks;
    int literal_pos, literal_len; /* position of the first literal */
    int pos, len;                 /* position of the first occurrence */
} call_uses;

/* One LLM call in one binder pass, shared by all occurrences with the same key. */
typedef struct call_info {
    call_uses *uses;
    int number; /* 1, 2, … in the order of binding; llm_call.number: in the order of placing */
    bool given; /* has a RETURNS clause */
    bool text_option; /* an occurrence has an option that is valid only for TEXT */
    /* LLM_PROB() reads the probability, but steps made before may have no column for it */
    bool lacks_prob;
    llm_call *call;
} call_info;

/* The origin of a column's values, used to recognise equal LLM calls. */
typedef struct id_info {
    const table_def *table; /* the table that the column is read from; NULL: none */
    int column;             /* index in `table`; -1: the rowid */
    int same_as;            /* id of the column that this one copies, or its own id */
    bool is_null;           /* NULL in every row; its type may still change */
    call_info *call;        /* the LLM call that answers this column; NULL: none */
    step *asked; /* the step whose site.out_id was this column's id, or that of a copied column */
    /* The expression that computes the column, or the columns of both sides of a set operation;
     * else NULL. */
    const expr *made_of[2];
    int searched; /* number of the last search (b->search) that visited it */
} id_info;

typedef struct cte_binding {
    struct cte_binding *outer;
    const cte *def;
    rel *bound;     /* its query */
    int number;     /* of its REL_SHARED and REL_RECURSIVE nodes */
    int references; /* number of references bound so far, without inlined ones */
    scope *scope;   /* the outer scope of its query */
    bool reads_itself;
    rel *last;    /* the node of the latest reference */
    rel *working; /* while the recursive part is bound: the rows of the previous round; else NULL */
} cte_binding;

/* A column of a select list. */
typedef struct output {
    const node *value;       /* the expression; NULL: a column of * */
    const scope_column *col; /* the column of *; else NULL */
    str name;                /* its heading */
    str qualifier;           /* table alias; n = 0: none */
    expr *bound;             /* NULL: not yet bound */
} output;

typedef struct grouping {
    int nkeys;
    rel_expr *keys;
    list aggs;   /* of rel_agg* */
    lift below;  /* steps of keys and aggregate arguments */
    rel *input;  /* the groups' input with the steps of `below` placed */
    list clones; /* of clone*: calls answered below the groups and asked again above them */
} grouping;

/* The sort keys of one window: the first npartition are PARTITION BY, the rest ORDER BY. */
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
    list functions;   /* of window_function*, without duplicates */
    list calls;       /* of window_call*: maps each call to its function */
    lift below;       /* steps of keys, arguments and filters */
} windowing;

/* The results of a condition that its context distinguishes. In TRUTH_TRUE (as in WHERE) only TRUE
 * differs from the rest, so NULL is like FALSE. In TRUTH_FALSE only FALSE differs, so NULL is like
 * TRUE. */
typedef enum truth_context { TRUTH_ANY, TRUTH_TRUE, TRUTH_FALSE } truth_context;

/* The context in which an expression is bound. A function that binds something in another
 * context saves this struct and restores it. */
typedef struct bind_place {
    scope *scope;
    lift *lift;               /* gets the steps; NULL: LLM calls and subqueries are errors */
    expr *guard;              /* condition under which the value is evaluated; NULL: always */
    truth_context truth;      /* context of the AND, OR, NOT or IN that is bound next */
    expr *inherited;          /* the guard that all calls of the query being bound have */
    grouping *group;          /* collects aggregates; NULL: none are allowed */
    const char *no_aggregate; /* names the clause in the error when group is NULL */
    /* for an error: the clause that would evaluate a select item again */
    const char *reevaluated_by;
    windowing *windows;    /* the bound window functions; NULL: none are allowed */
    const char *no_window; /* names the clause in the error; NULL: no_aggregate names the clause */
    const char *refuse;    /* not NULL: LLM calls and subqueries are errors in this clause */
    const char *instead;   /* hint for a subquery that `refuse` refuses; NULL: none */
    bool returning;        /* in RETURNING: subqueries cannot read the written rows */
    const output *aliases; /* select items that an unknown name may refer to */
    int naliases;
    const output *shown; /* the select list: LLM_PROB() accepts the alias of a call */
    int nshown;
} bind_place;

/* The inputs of a call that returns a STRUCT, bound once for all its columns. */
typedef struct bound_struct {
    node *const *args;     /* of the nodes of its columns, which share them */
    const lift *lift;      /* the clause in which the inputs are bound */
    const expr *guard;     /* bind_place.guard there */
    struct fields *fields; /* the inputs (bind_llm.c) */
} bound_struct;

typedef struct binder {
    arena *mem;
    const bind_env *env;
    err *e;
    str text;
    int next_id, next_share;
    int ninlined;        /* CTE references bound inline instead of shared */
    bool mentions_rowid; /* as in sql_tree */
    bool compares_null;  /* as in sql_stmt */
    /* > 0: inside a view or a stored CHECK or DEFAULT, so positions refer to its text */
    int view_depth;
    str view; /* name of the innermost view */
    bind_place at;
    /* For an error: the scope outside the recursive CTE being bound, which cannot refer to it. */
    scope *recursion_outer;
    /* for an error: tables before the comma in FROM, which ON cannot refer to */
    const scope *comma_tables;
    /* for a hint: tables to the left of the subquery being bound, which lacks LATERAL */
    const scope *left_tables;
    str target;                /* alias of the updated table of UPDATE … FROM */
    const list *where_aliases; /* for a hint: select items, whose aliases WHERE cannot use */
    cte_binding *ctes;
    const cte *defining;    /* for hints about a CTE that reads itself: the CTE being bound */
    cte_binding *recursion; /* the RECURSIVE CTE whose query is bound next */
    id_info *ids;           /* indexed by column id */
    int ids_cap;
    list calls;                     /* of call_info* */
    list structs;                   /* of bound_struct* */
    const struct call_chain *chain; /* bind_llm.c */
    list *label_sets;               /* of label_set*: read so far, shared by all passes */
    list *uses;                     /* of call_uses*: shared by all passes */
    bool learned;                   /* this pass added to `uses` */
    int ncalls;                     /* the largest llm_call.number so far */
    int search;                     /* number of the current search through steps or columns */
    /* `copies`: how often the bound tree contains the expression being bound. `excess`: number of
     * nodes that all copies after the first add. */
    int64_t copies, excess;
} binder;

int new_id(binder *b);
id_info *id_of(binder *b, int id);
void id_copy(binder *b, int to, const expr *from); /* records that `to` is computed by `from` */
scope_column *scope_add(binder *b, scope *s, str table, str name, int id, value_type type);
/* Adds a copy of a column of another scope. */
void scope_add_column(binder *b, scope *s, const scope_column *c);
/* Returns the column that n names, or NULL with an error. */
const scope_column *scope_find(binder *b, const node *n);
/* Returns the first column that n may name, or NULL without an error. */
const scope_column *scope_named(const binder *b, const node *n);
bool scope_has_table(const scope *s, str table);

/* Reports an error at a position of the statement's text. An error inside a view has no
 * position. */
int fail(binder *b, err_code code, int pos, int len, const char *format, ...) BASE_PRINTF(5, 6);
int fail_node(binder *b, const node *n, const char *format, ...) BASE_PRINTF(3, 4);
int fail_ident(binder *b, ident i, const char *format, ...) BASE_PRINTF(3, 4);
int fail_model(binder *b, ident name); /* no such model */
void hint_nearest(binder *b, str word, const char *const *candidates, size_t count);
/* Adds a hint if n is an alias of the select list, which WHERE cannot use. Returns false if it is
 * not. */
bool hint_select_alias(binder *b, const node *n);

/* ---- expressions: bind_expr.c, bind_call.c, bind_types.c ------------------------------------- */

expr *bind_expr(binder *b, const node *n);
/* Like bind_expr. `used` is the type that the context gives to n if n is an LLM call without
 * RETURNS; TYPE_NULL: the context gives none. */
expr *bind_as(binder *b, const node *n, value_type used);
/* True for current_date, current_time and current_timestamp, functions written without
 * parentheses. */
bool is_time_word(str name, function_id *function);
/* Binds n as a condition; `matters` says which of its results the context distinguishes. */
expr *bind_condition(binder *b, const node *n, truth_context matters);
expr *bind_call(binder *b, const node *n);
bool node_has_aggregate(const node *n); /* true if n contains an aggregate without OVER */
bool window_has_aggregate(const window_spec *w);
/* Checks the number of arguments of the aggregate. Returns false with an error. */
bool aggregate_takes(binder *b, const node *n, agg_kind kind);
/* Binds argument, separator, FILTER and ORDER BY over the rows below the groups. */
int bind_aggregate_parts(binder *b, const node *n, rel_agg *agg);
/* Report an error and return NULL: the call n has too few or too many arguments, or no function has
 * its name. */
expr *wrong_count(binder *b, const node *n, const function_info *info);
expr *unknown_function(binder *b, const node *n);
/* Binds n with `more` (may be NULL) added to the guard. */
expr *bind_guarded(binder *b, const node *n, expr *more);
expr *is_true(binder *b, expr *x, bool negated); /* x IS [NOT] TRUE */
expr *is_null(binder *b, expr *x);

/* True for a literal NULL and a column that is NULL in every row: these adapt to any type. */
bool is_untyped_null(binder *b, const expr *x);
expr *to_condition(binder *b, expr *x);
/* Converts x to `type`. A literal is converted now, or is an error; anything else is converted at
 * run time. `what` names the context in errors. */
expr *to_type(binder *b, expr *x, value_type type, const char *what);
/* Converts x to the type of column c. A conversion that would lose information is an error. */
expr *to_column(binder *b, expr *x, const column_def *c);
/* Converts as CAST does. dims: of VECTOR(n), else 0. */
expr *to_written_type(binder *b, expr *x, value_type type, int dims);
/* Converts x to `type` where no CAST is needed: an untyped NULL, a literal whose value allows it,
 * or a number to a higher numeric type. Anything else is an error. */
expr *to_type_implicit(binder *b, expr *x, value_type type, const char *what);
expr *to_number(binder *b, expr *x, const char *what);
/* Converts the operands of a comparison to types that can be compared; pos and len are the span for
 * an error. */
int unify_comparison(binder *b, expr_op op, expr **x, expr **y, int pos, int len);
int unify_all(binder *b, expr **xs, int n, const char *what, value_type *type);

/* ---- queries: bind_query.c, bind_from.c, bind_group.c ---------------------------------------- */

int bind_query(binder *b, query *q, rel **out);
/* Binds the CTEs of q->with, which then are visible. */
int bind_with(binder *b, query *q);
int bind_from(binder *b, from_item *f, scope *s, rel **out);
/* Binds LLM(…) RETURNS STRUCT(…) in FROM: adds its columns to the rows of `left`, whose columns are
 * in s. */
int bind_struct(binder *b, const from_item *f, scope *s, rel *left, rel **out);
int bind_scan(binder *b, const table_def *t, str alias, const list *columns, bool rowid, scope *s,
              rel **out);
int bind_table(binder *b, ident name, str alias, const list *columns, scope *s, rel **out);
/* Binds the rows of `n`, the name of a table, view or CTE or a query in parentheses, as a statement
 * of its own, which shares no node with the statement around it. */
int bind_apart(binder *around, const node *n, sql_stmt *out);
int bind_conjuncts(binder *b, const node *where, rel **r);
/* bind_group.c, its functions in the order in which they are called. */
typedef struct conjunct {
    expr *value;
    lift steps;
} conjunct;
typedef struct conjunct_list {
    int n;
    conjunct *items;
} conjunct_list;
/* Binds the conjuncts of `where`, each with its own steps. With `reuse`, a conjunct may use the
 * answers of earlier conjuncts. Returns NULL with an error. */
conjunct *bind_conditions(binder *b, const node *where, bool reuse, int *count);
int group_keys(binder *b, grouping *g, query *q, const output *outs, int nouts);
int group_having(binder *b, grouping *g, const node *having, conjunct_list *out);
/* True if x is one of the group keys. */
bool group_has_key(const grouping *g, const expr *x);
int group_place(binder *b, grouping *g, conjunct_list *having, rel *r, rel **out);
/* Adds filters above r: conditions over the groups, or over the rows if g is NULL. */
int group_filter(binder *b, grouping *g, conjunct_list *on, rel **r);
int group_rewrite(binder *b, grouping *g, lift *above, expr **x);
/* Removes the steps that no rewritten expression uses, because a group key replaced them. */
void group_prune(lift *above);
/* bind_window.c, its functions in the order in which they are called. g is NULL without grouping.
 * The select list is bound between windows_qualify and windows_place. */
int windows_bind(binder *b, query *q, const output *outs, int nouts, windowing *w);
int windows_qualify(binder *b, query *q, const output *outs, int nouts, windowing *w,
                    conjunct_list *out);
int windows_place(binder *b, windowing *w, grouping *g, conjunct_list *qualify, rel **r);
/* Binds a sort key of OVER or of an aggregate; item is NULL for PARTITION BY. */
int bind_sort_key(binder *b, const node *n, const order_item *item, sort_key *out);
/* Returns the column of a call that windows_bind bound. */
expr *bind_window_call(binder *b, const node *n);
int bind_terms(binder *b, query *q, int from, int to, rel **out);
/* Projects r, with casts where its column types differ from `types`. */
rel *cast_columns(binder *b, rel *r, const value_type *types);
/* bind_recursive.c: binds the query of a RECURSIVE CTE. *done is false if the query does not read
 * the CTE itself. */
int bind_recursive(binder *b, cte_binding *c, query *q, rel **out, bool *done);
/* Binds a select list over the columns of s. */
int bind_select_list(binder *b, const list *items, const scope *s, output **outs, int *count);
expr *bind_in_query(binder *b, const node *n);
/* Binds a long IN list as IN (VALUES …); equal[k * width + i] compares part i of the left side with
 * part i of row k. Returns NULL without an error if the values are not constants of one type per
 * column, or if a subquery is not possible here. */
expr *bind_in_rows(binder *b, expr *const *equal, int nrows, int width);
expr *bind_exists(binder *b, const node *n);
expr *bind_scalar(binder *b, const node *n);
int subquery(binder *b, query *q, rel **out);
/* Binds a query in FROM. Its calls inherit the guard of the outer query; the calls of subquery() do
 * not. */
int derived_query(binder *b, query *q, rel **out);
/* Applies the column names of AS t(a, b). Too many names are an error. */
int rename_columns(binder *b, rel_column *cols, int ncols, const list *names, str table);

/* ---- VALUES: bind_values.c ------------------------------------------------------------------- */

/* One row of VALUES, or consecutive rows with the same LLM calls: the expressions `cells` over the
 * rows of `source`. */
typedef struct values_part {
    rel *source; /* NULL: one row without columns */
    lift steps;
    expr **cells;
} values_part;
/* Binds the value of column `at` of a row. */
typedef expr *cell_binder(binder *b, void *ctx, const node *n, int at);
/* rows: list of lists of node*, all of the same length. */
int bind_rows(binder *b, const list *rows, cell_binder *cell, void *ctx, values_part **parts,
              int *nparts);
/* Makes the relation of the parts. cols has its column types and names; the ids are new. */
rel *values_rel(binder *b, values_part *parts, int nparts, const rel_column *cols, int ncols);
int bind_values(binder *b, query *q, rel **out);
/* Returns l UNION ALL r with new ids; l and r must have the same column types. */
rel *bind_union_all(binder *b, rel *l, rel *r);

/* ---- steps: lift.c --------------------------------------------------------------------------- */

/* Returns the step that answers this call for these arguments: an existing step, or a new step of
 * `l`. */
step *lift_site(binder *b, lift *l, call_info *info, expr **args);
/* Gives the step's site a column for each probability that is known to be read. */
void lift_probs(binder *b, step *s, const call_info *info);
/* Adds the steps of `l` as nodes above r, each after the steps that it reads. */
rel *lift_place(binder *b, lift *l, rel *r);
/* Lets expressions of the scope that are bound later use the answers of `l`. */
void lift_register(binder *b, const lift *l);
/* Adds the step of a subquery. */
void lift_apply(binder *b, lift *l, step *s);
/* Returns the call of `l` or of s->computed that column `id` answers, or NULL. */
const llm_site *lift_site_of(const scope *s, const lift *l, int id);
/* True if `wanted` implies `guard` (NULL: always true), as far as a syntactic test can tell. */
bool guard_covers(const expr *guard, const expr *wanted);
/* True if x (may be NULL) refers to column `id`. */
bool expr_mentions(const expr *x, int id);

/* ---- STRUCT: struct.c ------------------------------------------------------------------------ */

/* Returns the number of columns of a call that returns a STRUCT; 0: the call returns none. */
int struct_width(const node *n);
/* Checks the fields of the STRUCT that n returns, and returns in out[struct_width(n)] a call for
 * each; these have the same array of arguments, which no other node has. */
int struct_columns(binder *b, const node *n, const node **out);
str struct_cue(binder *b, const struct_field *f); /* llm_call.cue */
/* Whether a field of the STRUCT that n returns has a type that `fits`. */
bool struct_has(const node *n, bool (*fits)(const llm_type *t));
bool struct_field_is_text(const llm_type *t);
bool struct_field_lists(const llm_type *t); /* it lists answers: ENUM, BOOLEAN, BETWEEN */
/* The type that RETURNS gives to the call, or to the column of a STRUCT that n is. */
const llm_type *llm_given_type(const node *n);

/* ---- LLM calls: bind_llm.c, llm_type.c ------------------------------------------------------- */

/* Returns the LLM call of the select list whose alias is n, or NULL. */
const node *named_call(const binder *b, const node *n);
/* Returns the step that answers the column n, if LLM() in FROM made it; else NULL. */
step *asked_column(binder *b, const node *n);
/* Binds a constant without LLM calls and subqueries; `what` names it in errors. Returns NULL with
 * an error. */
expr *bind_constant(binder *b, const node *n, const char *what);
/* Whether the option's value is a constant; else it is a name or a query. */
bool option_is_constant(const llm_option *o);
/* Sets call->model to the value of the option model. x: the value, bound, if option_is_constant(). */
int option_model(binder *b, const llm_option *o, expr *x, llm_call *call);
/* Gives the call an option; x is its bound value if that is a constant. *examples: the value of the
 * option examples, which is bound later. */
int bind_option(binder *b, const llm_option *o, expr *x, llm_call *call, const node **examples);
/* Binds an LLM call; `used` as in bind_as. */
expr *bind_llm(binder *b, const node *n, value_type used);
/* Binds LLM_PROB() or LLM_MEAN(), written as n, of the column that the step answers. */
expr *bind_step_prob(binder *b, const node *n, step *s, bool mean, const node *label);
/* Binds LLM_PROB() or LLM_MEAN() of the call n. `named` is the alias that refers to the call, or
 * NULL; `label` the second argument of LLM_PROB(), or NULL. */
expr *bind_prob(binder *b, const node *n, const node *named, bool mean, const node *label);
/* Records that an answer is used as a BOOLEAN or a number. */
void llm_note_type(binder *b, const call_info *info, value_type type);
/* Records the comparison of x with `with` as a use of each call without RETURNS whose answer may be
 * the value of x. A text compared by < or > is not recorded as an answer. Returns true if x gets
 * another type in the next pass: it must then not be unified in this pass. */
bool llm_note_use(binder *b, expr_op op, const expr *x, const expr *with);
bool llm_check_literal(binder *b, const expr *call, const expr *with);
/* Fills *out with the read of LLM_PROB(call, label); If the call has no
 * RETURNS, records the label as one of its answers. Reports an error if it cannot be one. */
int llm_label_read(binder *b, const call_info *info, const expr *label, prob_read *out);
/* The same for LLM_MEAN(call), at `pos`, `len`. */
int llm_mean_read(binder *b, const call_info *info, int pos, int len, prob_read *out);
/* Returns the llm_prob.literal of a read; PROB_OF_ANSWER if the label is not an answer of the call
 * as it is typed in this pass. */
int llm_read_literal(const llm_call *call, const prob_read *r);
call_info *llm_info_of(binder *b, const expr *x);
/* True if the text can be an answer: an answer ends at a line break and is never empty. */
bool llm_is_one_line(str answer);
/* Returns the index of the first text that is equal to one before it, whose index is *first; -1:
 * all differ. */
int first_repeated(const str *texts, int n, int *first);

/* ---- labels: bind_labels.c, its functions in the order in which they are called --------------- */

typedef struct label_set label_set;
/* Returns the value of the option labels of an LLM call; NULL: the call has none. */
const node *labels_option(const node *call);
/* Whether the type is ENUM without a list of answers. */
bool llm_is_open_enum(const llm_type *t);
/* Reports an error unless the call's type, or that of a field of its STRUCT, is ENUM without a
 * list. */
int labels_check_type(binder *b, const node *call);
/* Returns the answers of the query that `key` identifies, if they have been read; else NULL. */
const label_set *labels_known(const binder *b, str key);
/* Reads the answers of `source`, the rows of `n`. */
int labels_read(binder *b, const node *n, str key, sql_stmt *source, const label_set **out);
void labels_give(const binder *b, const label_set *set, llm_call *call);
/* Sets the call's type: from RETURNS, or from the uses known so far. */
int llm_set_type(binder *b, const node *n, llm_call *call, const call_uses *uses);
/* Called after a pass without errors: sets the answers of calls that are used as texts. Returns
 * false if the type of a call differs from the type it was bound with, or if a call is used
 * wrongly. The next pass handles both cases. */
bool llm_types_fit(binder *b);

/* ---- statements ------------------------------------------------------------------------------ */

int bind_stmt(binder *b, ast *a, sql_stmt *s); /* bind.c */
/* bind_copy.c: binds the value of a boolean option; an option without a value is on. */
int bind_switch(binder *b, const copy_option *o, bool *on);
int bind_insert(binder *b, ast *a, sql_stmt *s); /* bind_dml.c */
int bind_update(binder *b, ast *a, sql_stmt *s);
int bind_delete(binder *b, ast *a, sql_stmt *s);
/* bind_returning.c: true if RETURNING mentions the column, or has a subquery, which may. */
bool returning_mentions(const ast *a, const scope_column *c);
/* Binds RETURNING after s->query. `alias` is the name of the target table. `from` has the columns
 * of an UPDATE's FROM, or is NULL. The columns of `from` that RETURNING mentions are the last
 * columns of the query. */
int bind_returning(binder *b, const ast *a, str alias, const scope *from, sql_stmt *s);
int bind_copy_from(binder *b, ast *a, sql_stmt *s);
int bind_copy_to(binder *b, ast *a, sql_stmt *s);
int bind_create_table(binder *b, ast *a, sql_stmt *s); /* bind_ddl.c */
int bind_create_index(binder *b, ast *a, sql_stmt *s);
int bind_create_view(binder *b, ast *a, sql_stmt *s);
int bind_create_model(binder *b, ast *a, sql_stmt *s);
int bind_drop(binder *b, ast *a, sql_stmt *s);
int bind_alter(binder *b, ast *a, sql_stmt *s);
/* bind_views.c: reports an error at `place` if a view would no longer bind after `old` is replaced
 * by `changed` (NULL: after `old` is dropped). */
int views_allow_table(binder *b, const table_def *old, const table_def *changed, ident place);
int views_allow_view(binder *b, const view_def *old, const view_def *changed, ident place);
bool is_system_table(const binder *b, str name); /* system tables are read-only */
int find_table(binder *b, ident name, const table_def **out);
/* Returns the column's index, or -1 with an error. */
int find_column(binder *b, const table_def *t, ident name);
int find_columns(binder *b, const table_def *t, const list *names, int **out);
/* Binds a condition over one row of a table, without LLM calls and subqueries. `refuse` names the
 * clause in errors. */
expr *bind_row_condition(binder *b, const node *n, scope *s, const char *refuse);
/* Sets the slot of each column of x to its position in s. */
void set_slots(expr *x, const scope *s);
void table_scope(binder *b, const table_def *t, str alias, scope *s);
int bind_checks(binder *b, const table_def *t, sql_stmt *s);
/* Binds the DEFAULT of a column. *out is NULL, without an error, if the column has none. */
int bind_default(binder *b, const column_def *c, expr **out);
int bind_default_node(binder *b, const node *n, const column_def *c);

#endif
