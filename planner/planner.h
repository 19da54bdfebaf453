/*
 * planner.h - from a bound statement to a physical plan, and EXPLAIN's output of plans.
 *
 *   rel tree  → rules (rules.c) →  rel tree  → plan.c →  plan_node tree: slots and algorithms
 *
 * The planner is pure: it reads a statement, and through plan_env statistics and rates; it never runs,
 * stores or measures anything. A plan is in the arena handed to plan_build, refers to the statement
 * and is never changed after plan_build. State of a run is in exec's operators; its measured figures
 * are handed to plan_print as plan_actual.
 */
#ifndef KVASIR_PLANNER_H
#define KVASIR_PLANNER_H

#include "planner/psm.h"
#include "sql/sql.h"

/* ---- the planner's environment --------------------------------------------------------------- */

/* What the planner reads besides the statement; its caller provides it. Any function may be NULL: then
 * nothing is known, as when it fails. */
typedef struct plan_env {
    const settings *settings;
    void *ctx; /* first argument of the functions */
    /* Statistics of a table. Non-zero: unknown; 1,000 rows are assumed and marked as a guess. */
    int (*table_stats)(void *ctx, const table_def *table, arena *a, table_stats *out);
    /* Rows and average text bytes of a file, guessed from its size; 0 rows: unknown. */
    void (*file_stats)(void *ctx, str path, double *rows, double *bytes_per_row);
    /* The value of a constant expression. Non-zero: it has to be evaluated during the run. */
    int (*constant)(void *ctx, const expr *x, arena *a, value *out);
    double (*count_tokens)(void *ctx, str text); /* NULL: bytes / 4 */
    /* The fraction of a call's answers that equal the literal, and the tokens of an answer, from earlier
     * runs or a sample; negative: unknown. */
    double (*selectivity)(void *ctx, const llm_call *call, str literal);
    double (*output_tokens)(void *ctx, const llm_call *call);
    /* The field order on record for a call (text, fields, model); false: none. */
    bool (*field_order)(void *ctx, const llm_call *call, uint8_t *order);
    double prefill_tok_s, decode_tok_s; /* the machine's rates; 0: nominal (2,000 and 500) */
} plan_env;

/* ---- physical plans -------------------------------------------------------------------------- */

/* X(id, operator, name): PLAN_<id>, run by exec's op_<operator>; its name in EXPLAIN (FORMAT JSON)
 * and, with blanks for underscores, in the live view. */
/* clang-format off */
#define PLAN_KINDS(X)                                                                                                          \
    X(VALUES, values, "values")                                                                                                \
    X(SCAN, scan, "scan")                 /* table or index range, with a pushed-down filter */                                \
    X(FILE, file, "file")                                                                                                      \
    X(SYSTEM, system, "system_table")                                                                                          \
    X(SERIES, series, "series")                                                                                                \
    X(FILTER, filter, "filter")                                                                                                \
    X(PROJECT, project, "project")                                                                                             \
    X(HASH_JOIN, hash_join, "hash_join")  /* right side is built, left side probes and keeps its order */                      \
    X(LOOP_JOIN, loop_join, "loop_join")  /* right side is materialised; any predicate */                                      \
    X(GROUP, group, "group")              /* hash aggregation; groups in order of first appearance */                          \
    X(SORT, sort, "sort")                 /* stable; keeps only the first `limit` rows when limit >= 0 */                      \
    X(LIMIT, limit, "limit")                                                                                                   \
    X(DISTINCT, distinct, "distinct")                                                                                          \
    X(SETOP, setop, "setop")                                                                                                   \
    X(LLM_PIPELINE, llm, "llm")           /* LLM calls and the filters on their answers */                                     \
    X(SHARED, shared, "shared")                                                                                                \
    X(NUMBER, number, "number")                                                                                                \
    X(WINDOW, window, "window")           /* its input, in its order, with a column for each window function */                \
    X(RECURSIVE, recursive, "recursive")  /* left once, then right repeatedly, over the rows of the round before */            \
    X(WORKING, working, "working")        /* the rows of the round before */                                                   \
    X(RESIDUAL, residual, "residual")     /* pairs of a left join that pass a condition, or the left row with NULLs */
/* clang-format on */

typedef enum plan_kind {
#define PLAN_KIND(id, operator, name) PLAN_##id,
    PLAN_KINDS(PLAN_KIND)
#undef PLAN_KIND
} plan_kind;

const char *plan_kind_name(plan_kind k);

/* The input of a hash join that is a table and is read by the keys of the other input's rows. */
typedef enum keyed_side { KEYED_NONE, KEYED_LEFT, KEYED_RIGHT } keyed_side;

/* Which rows of an ordered scan have NULL in the first column of its order; an index has them lowest. */
typedef enum scan_nulls {
    NULLS_BY_KEY, /* where the index has them */
    NULLS_NOWHERE,
    NULLS_BEFORE, /* before all others */
    NULLS_AFTER   /* after all others */
} scan_nulls;

/* For a left row, the right rows with low <= right <= high (NULL: no bound), sorted by `right`. */
typedef struct plan_range {
    expr *right;      /* slots: the right input */
    expr *low, *high; /* slots: the left input; of right's type */
    bool low_inclusive, high_inclusive;
    bool exact; /* the range is equivalent to the join's predicate */
    int64_t
        first; /* > 0: only the first values of the range are needed, and those equal to the last */
    bool downward; /* … from its high end */
    /* only right rows whose same_right equal the left row's same_left, in pairs of one type */
    int nsame;
    expr **same_left, **same_right;
} plan_range;

/* Estimates for one line of EXPLAIN. */
typedef struct plan_estimate {
    double rows;
    double cost_ms; /* without the inputs' */
    bool guess;     /* made without statistics */
    /* of LLM calls: */
    double distinct_inputs, prompt_tokens, computed_tokens, hit_rate, output_tokens, selectivity;
} plan_estimate;

/* Where the field order in EXPLAIN comes from. Those that are not given by a setting are solved again
 * over the real inputs. */
typedef enum order_origin {
    ORDER_WRITTEN,  /* SET psm = 'off': the order of the call's arguments */
    ORDER_LISTED,   /* SET field_order = 'a, b' */
    ORDER_RECORDED, /* an earlier run's for this call; used while it is nearly as good as the best */
    ORDER_SAMPLED,  /* the best over the tables' joint samples */
    ORDER_SCORED,   /* without samples: by length × repetition */
    ORDER_ORIGINS
} order_origin;

typedef struct plan_node plan_node;

/* ---- LLM pipelines: one PLAN_LLM_PIPELINE node runs a chain of LLM calls and filters.
 *
 *   base (left)      stage 0           stage 1           …
 *   all rows  --->   ask calls  --->   ask calls  --->   rows that passed all filters, in the base's
 *                    filter rows       filter rows       order, with a column for each answer
 *
 * The stages are in planned order. The run may take them in any order that `after` allows, and rows
 * go through them in chunks, limit batches or top-n rounds (plan_demand). Since no call reads another's
 * answer in a field today, all inputs of all calls are known once the base's rows are.
 *
 * Where later work goes: a call that takes another call's answer as a field is an edge in `after` (its
 * inputs are then gathered when that stage is done) instead of the start of another pipeline;
 * retrieval is a kind of stage that adds columns without asking a model; a call site may name the
 * engine that answers it, which today follows from its call's model. */

/* The most stages of a pipeline: a bit each in `after`. */
enum { PIPELINE_STAGES = 32 };

/* An LLM call where it is asked. */
typedef struct plan_call_site {
    const llm_call *call;
    expr **args;             /* slots: the pipeline's output */
    expr *guard;             /* a row needs the answer only where this is true; NULL: always */
    bool late_guard;         /* the guard reads answers */
    int out_slot, prob_slot; /* in the pipeline's output; prob_slot -1: not wanted */
    /* sites with the same number ask about the same fields of all rows of the base */
    int group;
    /* of these rows, by the statement alone: each filter before is taken to keep half */
    double asked_share;
    /* As estimated (EXPLAIN); exec decides over the real inputs. */
    order_origin order_origin;
    uint8_t *field_order;
    bool data_first;
} plan_call_site;

/* Calls that are asked together, and the filters over their answers. */
typedef struct plan_stage {
    int nsites;
    plan_call_site *sites;
    int nfilters;
    expr **filters; /* applied in this order; slots: the pipeline's output */
    uint32_t after; /* bit i: stage i has to run first */
    int ncols;      /* columns of the output up to this stage's: base, earlier stages, its own */
    /* lines of EXPLAIN: estimates and numbers (index of plan_actual) of the calls and each filter */
    plan_estimate estimate, *filter_estimates;
    int number, *filter_numbers;
} plan_stage;

/* Which rows that pass are of use to the nodes above, so that fewer have to be asked about. Each
 * part is off while its first member is 0 or NULL. Slots: the base, where not said otherwise. */
typedef struct plan_demand {
    int64_t limit_hint; /* a LIMIT above uses about this many rows */
    /* per distinct value of `keys`, the first n rows by `order`, then in input order; with_ties: and
     * those that tie with the last of them */
    struct {
        int64_t n;
        int nkeys;
        expr **keys;
        int norder;
        sort_key *order;
        bool with_ties;
        double groups; /* estimated distinct values of `keys` */
    } top_n;
    /* rows whose `keys` equal the `partner_keys` of some row of `partner`; in pairs of one type.
     * nulls_match: NULL equals NULL; mark_null: NULL on either side could equal anything */
    struct {
        const plan_node *partner; /* has no LLM calls */
        int nkeys;
        expr **keys, **partner_keys; /* partner_keys: slots of the partner */
        bool nulls_match, mark_null;
    } semi_join;
} plan_demand;

typedef struct plan_agg {
    agg_kind kind;
    bool distinct;
    expr *arg, *separator, *filter;
    int nkeys;
    sort_key *keys;
    value_type type;
} plan_agg;

struct plan_node {
    plan_kind kind;
    int number; /* 0, 1, … in print order: index of plan_actual; a pipeline's is its top line's */
    int ncols;
    value_type *types;
    str *names; /* as EXPLAIN prints them */
    plan_node *left, *right;
    plan_estimate estimate;
    union {
        struct {
            int nrows;
            expr ***rows;
        } values;
        struct {
            const table_def *table;
            str alias;
            const index_def *index; /* NULL: by rowid */
            /* bounds of the index columns, of their types: constant expressions that are evaluated
             * when the scan is opened; if one is NULL, no row is read */
            expr **low, **high;
            int nlow, nhigh;
            bool low_inclusive, high_inclusive; /* of the last bound */
            int nin,
                in_at; /* nin > 0: column in_at is any of in[]; low and high have one of them */
            expr **in;
            bool keyed; /* the bounds are values that the join above hands in (join.lookup) */
            bool ordered, descending; /* rows in the order of the index, or by falling rowid */
            scan_nulls nulls;
            int64_t first; /* > 0: of an ordered scan about this many rows are needed */
            int *columns;  /* as scan_spec.columns; ncols entries */
            expr *filter;  /* over the output columns, or NULL */
        } scan;
        struct {
            str path;
            csv_options options;
            value_type *types;
            int nfile_columns;
            int *columns;
            expr *filter;
        } file;
        struct {
            str name;
            int *columns; /* positions in the system table */
        } system;
        series series;
        struct {
            expr *predicate;
        } filter;
        struct {
            expr **exprs;
        } project;
        struct {
            join_kind kind;
            int nkeys;                      /* hash join: equal keys, same type on both sides */
            expr **left_keys, **right_keys; /* slots in the left, right input */
            expr *predicate; /* besides the keys; slots: left columns, then right ones; or NULL */
            bool null_safe;  /* keys compare with IS: NULL matches NULL (decorrelated subqueries) */
            bool mark_null;  /* JOIN_MARK: the mark is NULL where a match depends on a NULL */
            int nranges;     /* loop join: the ranges that hold all matches; 0: all right rows */
            plan_range *ranges;
            /* index join: the other input is read first; the values of `lookup` for its rows, one for
             * each bound, are handed to `key_scan` in this input */
            keyed_side keyed;
            const plan_node *key_scan;
            expr **lookup;
        } join; /* output: left columns, then right ones (SEMI, ANTI: left alone; MARK: left, mark) */
        struct {
            int nkeys, naggs;
            expr **keys;
            plan_agg *aggs;
        } group; /* output: keys, aggregates */
        struct {
            int nkeys;
            sort_key *keys;
            int64_t
                limit; /* -1: none; first rows kept, per distinct values of the partition columns */
            int npartition;
            int *partition; /* slots */
        } sort;
        struct {
            int64_t limit, offset;
            int npartition;
            int *partition; /* slots */
        } limit;
        struct {
            set_op op;
        } setop;
        struct {
            int nstages;
            plan_stage *stages;
            plan_demand demand;
            bool may_reorder; /* the run may change the planned order of stages */
        } pipeline;           /* output: the base's columns, then one or two for each call site */
        struct {
            int number; /* of the shared result; `left` is the same node in all references */
        } shared;
        struct {
            int nkeys;
            sort_key *keys;
            int nfunctions;
            rel_window *functions; /* output: input columns, then one for each function */
            /* -1: none; else only the first rows of each partition are returned. All functions then have
             * the same partitions and order, and no arguments. */
            int64_t limit;
            bool with_ties; /* … and rows that tie with the last of them */
        } window;
        struct {
            int number; /* of its working rows, as PLAN_WORKING's; below plan.nshared */
            bool distinct;
        } recursive;
        struct {
            int number;
        } working;
        struct {
            int group_slot; /* the number of the left row */
            expr *predicate;
            int nnull;
            int *null_slots; /* the right columns: NULL where no pair of a left row passes */
        } residual;
    };
};

typedef struct plan_rule_report {
    const char *name;
    bool changed;
    double ms;
    str after; /* EXPLAIN (RULES): the tree as text; else empty */
} plan_rule_report;

/* How much more the statement would cost without a rule. */
typedef struct plan_saving {
    const char *rule;
    double ms;
} plan_saving;

typedef struct plan {
    plan_node *root;
    int nnodes;  /* numbers of nodes and stages are below this */
    int nshared; /* numbers of shared results and recursions are below this */
    const sql_stmt *stmt;
    plan_node **examples; /* stmt->ncalls entries: the plan of calls[i]->examples, or NULL */
    int nrules;
    plan_rule_report *rules;
    int nsavings; /* set for EXPLAIN of a statement with LLM calls; those below 1 % are left out */
    plan_saving *savings;
    bool has_llm;
    double planning_ms;
    plan_estimate total;
} plan;

/* Plans stmt->query (and the calls' examples). ERR_BIND for an unknown rule in rules_off,
 * ERR_UNSUPPORTED for a correlation that cannot be unnested. */
int plan_build(const sql_stmt *stmt, const plan_env *env, arena *a, plan **out, err *e);

/* True if looking up `keys` keys in a table, and reading the `found` rows that they find, costs less
 * than reading its `rows` rows. */
bool plan_keys_pay(double keys, double found, double rows);

typedef struct plan_rule_info {
    const char *name, *help;
    bool chooses; /* it rewrites nothing and keeps the order of rows: it permits an algorithm */
} plan_rule_info;
/* The rules in the order they run; NULL after the last. */
const plan_rule_info *plan_rule(size_t i);
/* The rule of that name, ignoring case; NULL and an error if there is none. */
const plan_rule_info *plan_rule_find(str name, err *e);
/* Removes the first name from a list of rules in the form of SET rules_off, and returns it; empty: the
 * list was. */
str plan_rules_split_next(str *list);
bool plan_rules_have(str list, str name);

/* "as written" and so on, as EXPLAIN prints it after a call's fields. */
const char *order_origin_name(order_origin o);

/* ---- reading a plan -------------------------------------------------------------------------- */

/* Whether the subtree asks an LLM; n may be NULL. */
bool plan_has_llm(const plan_node *n);
/* Whether x, over the rows of `in`, reads an answer or what is made of one. */
bool plan_reads_answers(const expr *x, const plan_node *in);
/* Whether a node is a filter that reads answers, outside of pipelines. */
bool plan_filters_answers(const plan_node *n);

/* A line of EXPLAIN: a node, or of a pipeline the calls or one filter of a stage. */
typedef struct explain_line {
    plan_kind kind; /* of a pipeline's filter: PLAN_FILTER */
    const plan_node *node;
    const plan_stage *stage; /* NULL: the node is no pipeline */
    int filter;              /* index of the stage's filter; -1: the stage's calls */
    int number;              /* index of plan_actual */
    int ncols;               /* of node->names and types, the columns that the line returns */
    const plan_estimate *estimate;
} explain_line;
/* Line i of a node, 0 at the top; false: it has fewer. */
bool explain_line_at(const plan_node *n, int i, explain_line *out);

/* ---- layout of prompts (layout.c) ------------------------------------------------------------ */

/* One of several calls about the same rows: tokens of its
 * instruction, and the share of the rows that are asked. */
typedef struct plan_question {
    double tokens, share;
} plan_question;

/* Whether the calls are better asked data first: all their rows make `inputs` distinct inputs and a
 * prefix tree of `data` tokens. */
bool plan_data_pays(double data, double inputs, const plan_question *questions, int count);
/* Different values left when `share` of `rows` rows stay, each value being carried by rows ÷
 * distinct of them. */
double plan_distinct_left(double distinct, double rows, double share);

/* ---- EXPLAIN --------------------------------------------------------------------------------- */

/* Exact token counts of the calls of one stage under one strategy. */
typedef struct plan_tokens {
    const char *strategy; /* "no cache", "FIFO", "fixed", "grouped" */
    uint64_t rows;
    llm_figures llm; /* inputs and prompt tokens: what follows without any answer */
    bool scaled;     /* above an unanswered LLM filter: marked ~ */
    bool at_most;    /* in waves, or where another answer says so: marked ≤ */
} plan_tokens;

/* The measured figures of one line of EXPLAIN. */
typedef struct plan_actual {
    bool known; /* false: nothing was measured */
    bool idle;  /* no row was requested from it */
    uint64_t rows;
    double ms; /* without the inputs' */
    /* of the calls of a stage: */
    llm_figures llm;
    str field_order; /* "m.synopsis, r.review"; several orders: the largest groups' with their rows */
    str reordered; /* "before #1 after 128 rows: …"; empty: the stage ran in its planned place */
    double bound;  /* the most that another order could share more, 0 to 1; NAN: unknown */
    int ntokens;
    const plan_tokens *tokens; /* EXPLAIN (TOKENS) */
} plan_actual;

/* Append EXPLAIN's output: text with a line per node or stage, and JSON. `actual` is NULL or has
 * p->nnodes entries; the text has times only if `times`. */
void plan_print(const plan *p, const plan_actual *actual, bool times, buf *out);
void plan_print_json(const plan *p, const plan_actual *actual, buf *out);
/* Appends the tree after each rule that changed it, if the statement is EXPLAIN (RULES). */
void plan_print_rules(const plan *p, buf *out);

#endif
