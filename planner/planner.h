/*
 * planner.h - from a bound statement to a physical plan, and EXPLAIN's output of plans.
 *
 *   rel tree  → rules (rules.c) →  rel tree  → plan.c →  plan_node tree: slots and algorithms
 *
 * The planner is pure: it reads a statement, and through plan_env statistics and rates. It never
 * runs, stores or measures anything. A plan is allocated in the arena passed to plan_build, refers
 * to the statement, and is never changed after plan_build returns. The state of a run is kept in
 * exec's operators; the figures measured in a run are passed to plan_print as plan_actual.
 */
#ifndef KVASIR_PLANNER_H
#define KVASIR_PLANNER_H

#include "planner/psm.h"
#include "sql/sql.h"

/* ---- the planner's environment --------------------------------------------------------------- */

/* What the planner reads besides the statement; the caller of plan_build provides it. Any function
 * may be NULL, which means the same as a function that always fails: the fact is unknown. */
typedef struct plan_env {
    const settings *settings;
    void *ctx; /* first argument of the functions */
    /* Reads the statistics of a table. Returns non-zero if there are none: the planner then assumes
     * 1,000 rows and marks the estimate as a guess. */
    int (*table_stats)(void *ctx, const table_def *table, arena *a, table_stats *out);
    /* Guesses a file's number of rows and average text bytes per row from its size. */
    void (*file_stats)(void *ctx, str path, double *rows, double *bytes_per_row);
    /* Evaluates a constant expression. Returns non-zero if only the run can evaluate it. */
    int (*constant)(void *ctx, const expr *x, arena *a, value *out);
    /* Counts the tokens of a text. NULL: the planner assumes 4.2 bytes per token. */
    double (*count_tokens)(void *ctx, str text);
    /* Returns the fraction of a call's answers that equal the literal, in earlier runs or in a
     * sample; negative: unknown. */
    double (*selectivity)(void *ctx, const llm_call *call, str literal);
    /* Returns the average tokens of an answer of the call in earlier runs; negative: unknown. */
    double (*output_tokens)(void *ctx, const llm_call *call);
    /* Returns the tokens that an answer computes to choose among its allowed answers. */
    double (*choice_tokens)(void *ctx, const llm_call *call);
    /* Returns what a call's prompts and answers cost in money; 0: nothing, or its price is unknown.
     * Prompt tokens that are not computed are taken to be in the server's cache. */
    double (*money)(void *ctx, const llm_call *call, double prompt, double computed, double output);
    const char *currency; /* of `money`; NULL if that is NULL */
    /* Copies to order[nfields] the field order that an earlier run recorded for a call (its text,
     * fields and model). Returns false if none is recorded. */
    bool (*field_order)(void *ctx, const llm_call *call, uint8_t *order);
    double prefill_tok_s; /* the machine's prefill rate, tokens per second; 0: nominal, 2,000 */
    double decode_tok_s;  /* the machine's decode rate, tokens per second; 0: nominal, 500 */
} plan_env;

/* ---- physical plans -------------------------------------------------------------------------- */

/* X(id, operator, name): defines PLAN_<id>, which exec's op_<operator> runs. EXPLAIN (FORMAT JSON)
 * prints `name`; the live view prints it with blanks for underscores. */
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
    X(NEAREST, nearest, "nearest")        /* the rows that may be among the `limit` with the least vector distance */              \
    X(LISTS, lists, "lists")              /* rows near a vector, by an index: left is the table, right the one row with the vector */ \
    X(LIMIT, limit, "limit")                                                                                                   \
    X(DISTINCT, distinct, "distinct")                                                                                          \
    X(SETOP, setop, "setop")                                                                                                   \
    X(LLM_PIPELINE, llm, "llm")           /* LLM calls and the filters on their answers */                                     \
    X(SHARED, shared, "shared")                                                                                                \
    X(SPLIT, split, "split")              /* for each row a row for each part of its text, and the part's number */                \
    X(NUMBER, number, "number")                                                                                                \
    X(WINDOW, window, "window")           /* the input's rows in input order, with a column for each window function */        \
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

/* Which input of a hash join, if any, is a table that is read by key: for each row of the other
 * input its keys are looked up in the table. */
typedef enum keyed_side { KEYED_NONE, KEYED_LEFT, KEYED_RIGHT } keyed_side;

/* Where an ordered scan returns the rows with NULL in the first column of the scan's order. An
 * index sorts NULL lowest. */
typedef enum scan_nulls {
    NULLS_BY_KEY,  /* where the index's order has them */
    NULLS_NOWHERE, /* the scan does not return these rows */
    NULLS_BEFORE,  /* before all other rows */
    NULLS_AFTER    /* after all other rows */
} scan_nulls;

/* A range of a range join: for a left row, the right rows with low <= right <= high, sorted by
 * `right`. A bound that is NULL does not limit the range. */
typedef struct plan_range {
    expr *right;         /* in slots of the right input */
    expr *low;           /* in slots of the left input; same type as `right` */
    expr *high;          /* in slots of the left input; same type as `right` */
    bool low_inclusive;  /* right = low is in the range */
    bool high_inclusive; /* right = high is in the range */
    bool exact;          /* the range is equivalent to the join's predicate */
    /* > 0: of the range only the first `first` rows are needed, and rows whose `right` equals that
     * of the last of them. */
    int64_t first;
    bool downward; /* `first` counts from the range's high end */
    /* The range has only right rows whose same_right[i] equals the left row's same_left[i], for
     * each i below nsame; both have the same type. */
    int nsame;
    expr **same_left, **same_right;
} plan_range;

/* Estimates for one line of EXPLAIN. */
typedef struct plan_estimate {
    double rows;
    double cost_ms; /* without the cost of the inputs */
    bool guess;     /* estimated without statistics */
    /* For the LLM calls of a line: */
    double distinct_inputs; /* number of prompts */
    double prompt_tokens;   /* tokens of all prompts */
    double computed_tokens; /* prompt tokens that are computed, not found in a shared prefix */
    double choice_tokens;   /* tokens of allowed answers, computed to choose among them */
    double hit_rate;        /* 1 - computed_tokens / prompt_tokens */
    double output_tokens;   /* tokens of all answers */
    double money;           /* price of the prompts and answers, in plan.currency */
    double selectivity;     /* fraction of the rows that pass the stage's filters */
} plan_estimate;

/* How the planner chose a call's field order, as EXPLAIN prints. Unless a setting determines the
 * order, the run solves it again over the real inputs. */
typedef enum order_origin {
    ORDER_WRITTEN,  /* SET psm = 'off': the order of the call's arguments */
    ORDER_LISTED,   /* SET field_order = 'a, b' */
    ORDER_RECORDED, /* the order that an earlier run recorded for this call */
    ORDER_SAMPLED,  /* the order with the fewest tokens by the tables' joint samples */
    ORDER_SCORED,   /* without samples: by falling tokens × rows / distinct values of a field */
    ORDER_ORIGINS
} order_origin;

typedef struct plan_node plan_node;

/* ---- LLM pipelines: one PLAN_LLM_PIPELINE node runs a chain of LLM calls and filters.
 *
 *   base (left)      stage 0           stage 1           …
 *   all rows  --->   ask calls  --->   ask calls  --->   rows that pass all filters, in the base's
 *                    filter rows       filter rows       order, with a column for each answer
 *
 * The stages are in planned order. The run may reorder the stages as far as `after` allows, and
 * passes rows through the stages in chunks, limit batches or top-n rounds (plan_demand).
 *
 * A field may be computed from the answers of earlier stages: it is then late. An answer is a
 * function of its call's input. So the inputs of all calls, and which rows share one, are known once
 * the base's rows are read; of a late field only the text is not. A call ends a pipeline, and a new
 * one begins above it, where a later call reads its answer and has to know all its own inputs before
 * the first row: that call is calibrated, or the field is volatile.
 *
 * Possible extensions:
 * - Retrieval becomes a kind of stage that adds columns without asking a model.
 * - A call site names the engine that answers it; today the call's model determines the engine. */

/* Maximum number of stages of a pipeline; `after` has one bit for each. */
enum { PIPELINE_STAGES = 32 };

typedef struct plan_prob {
    int literal; /* as llm_prob.literal */
    int slot;
} plan_prob;

/* The numbers of the calls whose answers a value is computed from, in this pipeline or below it. */
typedef struct plan_read {
    int n;
    int *calls; /* [n] ascending */
} plan_read;

/* An occurrence of an LLM call in a pipeline (llm_site). The slots in its expressions are those of
 * the pipeline's output. */
typedef struct plan_call_site {
    const llm_call *call;
    expr **args;     /* [call->nfields] the fields' values */
    bool *late;      /* [call->nfields] the field reads answers of the same pipeline */
    int nlate;       /* number of late fields */
    expr *guard;     /* only rows for which this is true need the answer; NULL: all rows */
    bool late_guard; /* the guard reads answers */
    int out_slot;    /* slot of the answer */
    int nprobs;
    plan_prob *probs; /* [nprobs] the probabilities that LLM_PROB() and LLM_MEAN() read */
    plan_read *reads; /* [call->nfields] the calls whose answers a field is computed from */
    /* Call sites with the same number ask about the same fields of all rows of the base, and their
     * prompts can share the row (llm_calls_share_row). */
    int group;
    /* Estimated share of the base's rows that this call is asked about. Each call before it whose
     * answer a filter reads halves the share. The share depends on the statement alone. */
    double asked_share;
    double answer_tokens; /* estimated tokens of an answer */
    /* Estimates for EXPLAIN; the run decides anew over the real inputs. */
    order_origin order_origin; /* how field_order was chosen */
    uint8_t *field_order;      /* [call->nfields] */
    bool data_first;           /* prompts begin with the row's data, not with the instruction */
} plan_call_site;

/* Calls that are asked together, and the filters that read their answers. */
typedef struct plan_stage {
    int nsites;
    plan_call_site *sites;
    int nfilters;
    expr **filters; /* [nfilters] applied in this order; in slots of the pipeline's output */
    uint32_t after; /* bit i: stage i has to run first */
    int ncols;      /* number of output columns of the base, the earlier stages and this stage */
    /* EXPLAIN prints one line for the stage's calls and one for each filter. A number is the line's
     * index in the array of plan_actual. */
    plan_estimate estimate;          /* for the line of the calls */
    plan_estimate *filter_estimates; /* [nfilters] */
    int number;                      /* of the line of the calls */
    int *filter_numbers;             /* [nfilters] */
} plan_stage;

/* Which of the rows that pass a pipeline's filters the nodes above need. The run then asks about
 * fewer rows. A part is unused if its first member is 0 or NULL. The slots of expressions are the
 * base's, unless stated otherwise. */
typedef struct plan_demand {
    int64_t limit_hint; /* a LIMIT above needs about this many rows */
    /* For each distinct value of `keys`, only the first n rows by `order` are needed; rows that are
     * equal by `order` count in input order. with_ties: rows that tie with the n-th are needed
     * too. */
    struct {
        int64_t n;
        int nkeys;
        expr **keys;
        int norder;
        sort_key *order;
        bool with_ties;
        double groups; /* estimated distinct values of `keys` */
    } top_n;
    /* Only rows whose `keys` equal the `partner_keys` of some row of `partner` are needed; keys[i]
     * and partner_keys[i] have the same type. nulls_match: NULL equals NULL. mark_null: NULL on
     * either side counts as equal to every value. */
    struct {
        const plan_node *partner; /* has no LLM calls */
        int nkeys;
        expr **keys;
        expr **partner_keys; /* in slots of the partner */
        bool nulls_match, mark_null;
    } semi_join;
} plan_demand;

/* An aggregate of a PLAN_GROUP: kind([DISTINCT] arg, separator ORDER BY keys) FILTER (filter). */
typedef struct plan_agg {
    agg_kind kind;
    bool distinct;
    expr *arg;       /* NULL: count(*) */
    expr *separator; /* of group_concat(); NULL: not given */
    expr *filter;    /* NULL: all rows */
    int nkeys;
    sort_key *keys;
    value_type type; /* type of the result */
} plan_agg;

struct plan_node {
    plan_kind kind;
    /* index of the node's line in the array of plan_actual: from 0, in the order in which EXPLAIN
     * prints the lines; of a pipeline's lines, the top one */
    int number;
    int ncols;
    value_type *types; /* [ncols] */
    str *names;        /* [ncols] as EXPLAIN prints them */
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
            const index_def *index; /* NULL: the table is read by rowid */
            /* Bounds of the index columns: constant expressions of the columns' types, evaluated
             * when the scan is opened. If a bound's value is NULL, no row is read. */
            expr **low, **high;
            int nlow, nhigh;
            bool low_inclusive;  /* the last low bound itself is in the range */
            bool high_inclusive; /* the last high bound itself is in the range */
            /* nin > 0: index column in_at may have any of the values in[]; low[in_at] and
             * high[in_at] then hold one of these values. */
            int nin, in_at;
            expr **in;
            bool keyed;      /* the bounds are values that the join above computes (join.lookup) */
            bool ordered;    /* rows are returned in the order of the index or of rowids */
            bool descending; /* this order is descending */
            scan_nulls nulls;
            int64_t first; /* > 0: about this many rows of the ordered scan are needed */
            int *columns;  /* [ncols] the table's columns that are read; -1: the rowid */
            expr *filter;  /* over the output columns; NULL: no filter */
        } scan;
        struct {
            str path;
            file_options options;
            value_type *types; /* [nfile_columns] types of all columns of the file */
            int nfile_columns;
            int *columns; /* [ncols] the file's columns that are read */
            expr *filter; /* over the output columns; NULL: no filter */
        } file;
        struct {
            str name;
            int *columns; /* [ncols] positions in the system table */
        } system;
        series series;
        struct {
            split_spec spec;
            expr *text, *separator; /* in slots of the input; CHUNK: separator is NULL */
        } split;
        struct {
            expr *predicate;
        } filter;
        struct {
            expr **exprs;
        } project;
        struct {
            join_kind kind;
            /* Hash join: left_keys[i] equals right_keys[i]; both have the same type. */
            int nkeys;
            expr **left_keys;  /* in slots of the left input */
            expr **right_keys; /* in slots of the right input */
            /* The condition besides the equality of keys, or NULL. Its slots are the left input's
             * columns, then the right input's. */
            expr *predicate;
            bool null_safe; /* keys compare with IS: NULL matches NULL (decorrelated subqueries) */
            bool mark_null; /* JOIN_MARK: the mark is NULL where a match depends on a NULL */
            /* Loop join: the ranges that contain all matches of a left row. If there are none, a
             * left row is compared with all right rows. */
            int nranges;
            plan_range *ranges;
            /* Loop join: only these many right rows of each left row, the first by a distance of
             * two VECTOR columns, are needed; a PLAN_SORT above picks them. 0: all right rows. */
            int64_t nearest;
            expr *distance;
            /* Index join: `keyed` is the input that contains `key_scan`. The rows of the other
             * input are read first. The values of `lookup` for these rows become key_scan's bounds;
             * each expression yields one bound. */
            keyed_side keyed;
            const plan_node *key_scan;
            expr **lookup;
        } join; /* output: left columns, then right ones; SEMI, ANTI: left only; MARK: left, mark */
        struct {
            int nkeys, naggs;
            expr **keys;
            plan_agg *aggs;
        } group; /* output: keys, aggregates */
        struct {
            int nkeys;
            sort_key *keys;
            int64_t limit; /* number of first rows kept in each partition; -1: all rows */
            int npartition;
            int *partition; /* slots */
        } sort;
        struct {
            int64_t limit;  /* at least 1 */
            expr *distance; /* l2_distance, cosine_distance or negative_inner_product of a column
                             * and a column or constant; the first key of the sort above */
            /* PLAN_LISTS: `left` is a scan of the index's table. Reads `limit` rows, or the whole table if
             * the lists that are searched have fewer. `right` (NULL: none) has at most one row. */
            const index_def *index;
            const char *
                exact; /* PLAN_NEAREST: why an index of the column is not used; NULL: there is none */
        } nearest;     /* output: the input's columns; of PLAN_LISTS left's and right's */
        struct {
            int64_t limit; /* -1: none */
            int64_t offset;
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
            /* If not -1, only this many first rows of each partition are returned. All functions
             * then have the same partitions and order, and no arguments. */
            int64_t limit;
            bool with_ties; /* rows that tie with the last row of `limit` are returned too */
        } window;
        struct {
            int number;    /* the PLAN_WORKING nodes that read its rows have the same number */
            bool distinct; /* UNION: drops rows that an earlier round returned */
        } recursive;
        struct {
            int number; /* recursive.number of the PLAN_RECURSIVE whose rows it reads */
        } working;
        struct {
            int group_slot; /* slot of the left row's number, which its pairs have in common */
            expr *predicate;
            int nnull;
            int *null_slots; /* [nnull] columns set to NULL if no pair of a left row passes */
        } residual;
    };
};

/* What one rule did to the statement's tree. */
typedef struct plan_rule_report {
    const char *name;
    bool changed; /* the rule changed the tree */
    double ms;    /* time that the rule took */
    str after;    /* EXPLAIN (RULES): the tree after the rule as text; otherwise empty */
} plan_rule_report;

/* How much more the statement would cost if one rule were off. */
typedef struct plan_saving {
    const char *rule;
    double ms; /* estimated cost */
} plan_saving;

typedef struct plan {
    plan_node *root;
    int nnodes;  /* numbers of nodes and stages are below this */
    int nshared; /* numbers of shared results and recursions are below this */
    const sql_stmt *stmt;
    plan_node **examples; /* stmt->ncalls entries: the plan of calls[i]->examples, or NULL */
    int nrules;
    plan_rule_report *rules; /* [nrules] the rules that ran, in their order */
    /* EXPLAIN with LLM calls: each rule that saves at least 1 % of what the plan without the rule
     * would cost; otherwise empty */
    int nsavings;
    plan_saving *savings;
    bool has_llm;
    double planning_ms;
    plan_estimate total;  /* for the whole plan; `rows` is the root's */
    const char *currency; /* of estimates of money; NULL: there are none */
} plan;

/* Plans stmt->query and the queries of the calls' examples. Fails with ERR_BIND for an unknown rule
 * in rules_off, and with ERR_UNSUPPORTED for a correlated subquery that cannot be unnested. */
int plan_build(const sql_stmt *stmt, const plan_env *env, arena *a, plan **out, err *e);

/* True if looking up `keys` keys in a table, and reading the `found` rows that they find, costs
 * less than reading its `rows` rows. */
bool plan_keys_pay(double keys, double found, double rows);

typedef struct plan_rule_info {
    const char *name, *help;
    bool chooses; /* only permits an algorithm: rewrites nothing, keeps the order of rows */
} plan_rule_info;
/* Returns rule i in the order in which the rules run, or NULL after the last rule. */
const plan_rule_info *plan_rule(size_t i);
/* Finds the rule with this name, ignoring case. Returns NULL and sets an error if no rule has
 * it. */
const plan_rule_info *plan_rule_find(str name, err *e);
/* Removes the first name from a list of rules in the form of SET rules_off, and returns the name.
 * Returns an empty string if the list is empty. */
str plan_rules_split_next(str *list);
/* Whether the list has this name, ignoring case. */
bool plan_rules_have(str list, str name);

/* Returns the text that EXPLAIN prints after a call's fields, such as "as written". */
const char *order_origin_name(order_origin o);

/* ---- reading a plan -------------------------------------------------------------------------- */

/* Whether the tree n asks an LLM; n may be NULL. */
bool plan_has_llm(const plan_node *n);
/* Whether n is a pipeline over constants: it reads no table and no file, and may run before they are
 * read. */
bool plan_asks_constants(const plan_node *n);
/* Whether the tree n asks an LLM about rows: it has a pipeline that is not over constants. */
bool plan_asks_rows(const plan_node *n);
/* Whether x, evaluated over the rows of `in`, reads an answer or a value computed from an
 * answer. */
bool plan_reads_answers(const expr *x, const plan_node *in);
/* Whether a node is a PLAN_FILTER whose predicate reads answers. A pipeline's own filters are parts
 * of its stages and are no PLAN_FILTER. */
bool plan_filters_answers(const plan_node *n);

/* A line of EXPLAIN. A pipeline has one line for the calls of each stage and one for each filter;
 * any other node has one line. */
typedef struct explain_line {
    plan_kind kind; /* the node's kind; for a filter of a pipeline: PLAN_FILTER */
    const plan_node *node;
    const plan_stage *stage; /* NULL if the node is not a pipeline */
    int filter;              /* index of the stage's filter; -1: the stage's calls */
    int number;              /* index of the line in the array of plan_actual */
    int ncols;               /* the line returns the first `ncols` columns of the node */
    const plan_estimate *estimate;
} explain_line;
/* Sets *out to line i of a node, counted from 0 at the top. Returns false if there is no line i. */
bool explain_line_at(const plan_node *n, int i, explain_line *out);

/* ---- layout of prompts (layout.c) ------------------------------------------------------------ */

/* One of several calls about the same rows. */
typedef struct plan_question {
    double tokens; /* tokens of its instruction */
    double share;  /* share of the rows that it is asked about, 0 to 1 */
} plan_question;

/* Whether prompts that begin with the row's data save enough tokens over prompts that begin with
 * the instruction. The rows have `inputs` distinct inputs, whose prefix tree has `data` tokens. */
bool plan_data_pays(double data, double inputs, const plan_question *questions, int count);
/* Estimates how many of `distinct` values remain if `share` of `rows` rows remain. Assumes that
 * each value occurs in rows ÷ distinct rows. */
double plan_distinct_left(double distinct, double rows, double share);

/* ---- EXPLAIN --------------------------------------------------------------------------------- */

/* Exact token counts of the calls of one stage under one strategy. */
typedef struct plan_tokens {
    const char *strategy; /* "no cache", "FIFO", "fixed", "grouped", "blend" */
    uint64_t rows;
    llm_figures llm; /* inputs and prompt tokens, as far as they are known without any answer; money
                           * with the expected tokens of answers */
    bool scaled; /* counts multiplied by the estimated selectivity of LLM filters below; marked ~ */
    bool at_most; /* upper bounds: a LIMIT or other answers may reduce them; marked ≤ */
    /* llm.choice_tokens is an estimate: some call finds its likeliest answer without scoring all;
     * marked ≈ */
    bool searched;
} plan_tokens;

/* The measured figures of one line of EXPLAIN. */
typedef struct plan_actual {
    bool known; /* false: nothing was measured */
    bool idle;  /* the node above requested no row */
    uint64_t rows;
    double ms; /* without the time of the inputs */
    /* For the calls of a stage: */
    llm_figures llm;
    /* "m.synopsis, r.review". If the run used several orders: the orders of the largest groups of
     * rows, each with its number of rows. */
    str field_order;
    str calibrated; /* "#1 by yes 0.80, no 0.20 (64 inputs), 12 answers changed"; or empty */
    str reordered;  /* "before #1 after 128 rows: …"; empty: the stage ran in its planned place */
    /* Upper bound (0 to 1) on how much another field order could raise the shared fraction of
     * tokens; NAN: unknown. */
    double bound;
    int ntokens;
    const plan_tokens *tokens; /* [ntokens] EXPLAIN (TOKENS): one for each strategy */
} plan_actual;

/* Append EXPLAIN's output: plan_print as text with explain_line's lines, plan_print_json as JSON.
 * `actual` is NULL or has p->nnodes entries. The text includes times only if `times` is set. */
void plan_print(const plan *p, const plan_actual *actual, bool times, buf *out);
void plan_print_json(const plan *p, const plan_actual *actual, buf *out);
/* Appends the tree after each rule that changed it, if the statement is EXPLAIN (RULES). */
void plan_print_rules(const plan *p, buf *out);

#endif
