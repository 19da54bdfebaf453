/*
 * sql.h - SQL text to bound statements: what a statement means, before it is decided how to run it.
 *
 *   text --sql_parse--> syntax tree (private) --sql_bind--> sql_stmt of `rel`s
 *
 * A bound query is relational algebra over *column ids*: every column that any node produces has an
 * id unique in the statement, and expressions name columns by id, never by position. So a rule of
 * the planner may move a node without rewriting what is above it. The planner resolves ids to
 * positions last.
 *
 * Ownership: a bound statement refers to its arena, its text and the catalog it is bound to; all must
 * outlive it. Bound trees are plain data: planner and exec read them; the planner
 * may share and rebuild nodes, but never changes an `expr` or an `llm_call` in place.
 */
#ifndef KVASIR_SQL_H
#define KVASIR_SQL_H

#include "storage/storage.h"

/* ---- settings (settings.c) ------------------------------------------------------------------- */

typedef enum setting_type {
    SETTING_BOOLEAN,
    SETTING_INTEGER,
    SETTING_BYTES,
    SETTING_REAL,
    SETTING_WORD,
    SETTING_TEXT
} setting_type;

/* X(name, type, default, allowed words or unit, help). One row makes the struct's member, SET,
 * SHOW, .help and completion.
 * WORD members are indexes into the allowed words ('a|b|c'); TEXT members are owned by the
 * settings. */
/* clang-format off */
#define SQL_SETTINGS(X)                                                                                                    \
    X(psm, WORD, "auto", "off|fixed|grouped|auto", "how fields and rows of prompts are ordered to share prefixes")        \
    X(field_order, TEXT, "keep", "keep|fresh|a, b, c", "field order of LLM calls: keep the one on record, solve afresh, or as listed") \
    X(dedup, BOOLEAN, "on", "", "ask the model once per distinct input")                                                  \
    X(kv_cache, BOOLEAN, "on", "", "reuse the KV of shared prefixes within a statement")                                  \
    X(llm_window, INTEGER, "0", "requests", "how many requests the engine sees at a time (0: all)")                       \
    X(llm_schedule, WORD, "tree", "tree|fifo", "order and eviction in the engine: prefix tree, or first in first out")   \
    X(kv_memory, BYTES, "auto", "auto|bytes", "memory for KV blocks (auto: 1GB; on a card three quarters of what is free there)") \
    X(kv_host, BYTES, "auto", "auto|bytes", "host memory for KV blocks that leave a card (auto: an eighth of the machine's)") \
    X(kv_disk, BYTES, "4GB", "bytes", "budget of the cache on disk")                                                      \
    X(kv_keep, WORD, "shared", "shared|all|none", "which KV blocks are kept on disk")                                     \
    X(kv_evict, WORD, "cost", "cost|lru|fifo", "what the cache on disk evicts first")                                     \
    X(kv_dtype, WORD, "bf16", "bf16|f32|int8", "type of keys and values in KV blocks")                                    \
    X(cache, BOOLEAN, "on", "", "keep KV and answers on disk at all")                                                     \
    X(answer_cache, BOOLEAN, "on", "", "reuse stored answers")                                                            \
    X(model, TEXT, "", "model name or path", "the model of calls that name none (empty: the default model)")              \
    X(device, TEXT, "auto", "auto|cpu|cuda:0", "where the model runs")                                                    \
    X(precision, WORD, "auto", "auto|f32|bf16|int8|int8x2", "arithmetic of the model's matrices")                                \
    X(attention, WORD, "full", "full|streaming", "attention over all tokens, or sinks and a sliding window")              \
    X(sink_tokens, INTEGER, "4", "tokens", "streaming attention: tokens at the start that stay visible")                  \
    X(window_tokens, INTEGER, "1024", "tokens", "streaming attention: latest tokens that stay visible")                   \
    X(threads, INTEGER, "0", "threads", "threads of the model (0: one per core)")                                         \
    X(prompt_format, WORD, "auto", "auto|chat|completion", "how prompts are written")                                     \
    X(llm_layout, WORD, "instruction", "auto|instruction|data", "what stands first in a prompt; auto counts tokens of the rows that reach the call") \
    X(llm_prune, BOOLEAN, "off", "", "leave out the fields of t.* that the prompt does not name, where it names some in braces") \
    X(llm_on_error, WORD, "fail", "fail|null", "what a failed call does to its statement")                                \
    X(llm_overflow, WORD, "error", "error|truncate", "prompts longer than the model's context: refused, or asked without some fields") \
    X(llm_sample, INTEGER, "32", "rows", "rows asked first to learn a filter's selectivity")                              \
    X(llm_chunk, INTEGER, "128", "rows", "rows after which LLM filters may first change places (0: they never do)")       \
    X(temperature, REAL, "0", "", "sampling of TEXT answers (0: greedy)")                                                 \
    X(top_p, REAL, "1", "0 to 1", "sampling: nucleus")                                                                    \
    X(min_p, REAL, "0", "0 to 1", "sampling: least probability relative to the likeliest")                                \
    X(top_k, INTEGER, "0", "tokens", "sampling: candidates (0: all)")                                                     \
    X(stop, TEXT, "", "text", "a text that ends TEXT answers and is no part of them (empty: none)")                       \
    X(seed, INTEGER, "0", "", "sampling: seed, mixed with each row's prompt")                                             \
    X(max_tokens, INTEGER, "32", "tokens", "longest TEXT answer")                                                         \
    X(max_tokens_total, INTEGER, "0", "tokens", "stop a statement that computes more (0: no cap)")                        \
    X(max_seconds, REAL, "0", "seconds", "stop a statement that runs longer (0: no cap)")                                 \
    X(confirm, BOOLEAN, "off", "", "ask before a statement that is estimated to take over a minute")                      \
    X(cost_rates, WORD, "measured", "measured|nominal", "rates in cost estimates")                                        \
    X(work_memory, BYTES, "256MB", "bytes", "memory of one operator before it spills to a temporary file")                \
    X(max_temp_directory_size, BYTES, "auto", "auto|bytes", "temporary files of a statement together (auto: half of what is free in $TMPDIR at its start)") \
    X(busy_timeout, INTEGER, "5000", "ms", "how long to wait for another process's write transaction")                    \
    X(rules_off, TEXT, "", "rule names", "planner rules that are switched off; SET rule.<name> = off edits it")
/* clang-format on */

typedef struct settings {
#define SETTING_MEMBER_BOOLEAN bool
#define SETTING_MEMBER_INTEGER int64_t
#define SETTING_MEMBER_BYTES int64_t
#define SETTING_MEMBER_REAL double
#define SETTING_MEMBER_WORD int
#define SETTING_MEMBER_TEXT char *
#define SETTING_MEMBER(name, type, standard, words, help) SETTING_MEMBER_##type name;
    SQL_SETTINGS(SETTING_MEMBER)
#undef SETTING_MEMBER
} settings;

typedef struct setting_info {
    const char *name;
    setting_type type;
    const char *standard, *words, *help;
} setting_info;

/* Indexes of WORD settings' words, in their order, for reading the snapshot (test_sql_settings). */
enum { PSM_SETTING_OFF, PSM_SETTING_FIXED, PSM_SETTING_GROUPED, PSM_SETTING_AUTO, PSM_SETTINGS };
enum { SCHEDULE_TREE, SCHEDULE_FIFO, SCHEDULES };
enum { KEEP_SHARED, KEEP_ALL, KEEP_NONE, KEEPS };
enum { EVICT_COST, EVICT_LRU, EVICT_FIFO, EVICTS };
enum { DTYPE_BF16, DTYPE_F32, DTYPE_INT8, DTYPES };
enum {
    PRECISION_AUTO,
    PRECISION_F32,
    PRECISION_BF16,
    PRECISION_INT8,
    PRECISION_INT8X2,
    PRECISIONS
};
enum { ATTENTION_FULL, ATTENTION_STREAMING, ATTENTIONS };
enum { FORMAT_AUTO, FORMAT_CHAT, FORMAT_COMPLETION, FORMATS };
enum { LAYOUT_AUTO, LAYOUT_INSTRUCTION_FIRST, LAYOUT_DATA_FIRST, LAYOUTS };
enum { ON_ERROR_FAIL, ON_ERROR_NULL, ON_ERRORS };
enum { OVERFLOW_ERROR, OVERFLOW_TRUNCATE, OVERFLOWS };
enum { RATES_MEASURED, RATES_NOMINAL, RATES };

void settings_init(settings *s); /* the standards */
void settings_free(settings *s);
void settings_copy(settings *to, const settings *from); /* `to` is initialised or zero */
/* ERR_BIND with the nearest name; ERR_TYPE says what is allowed. '2GB', '512 kB',
 * on/off/true/false/1/0 are understood. */
int settings_set(settings *s, str name, value v, err *e);
int settings_show(const settings *s, str name, buf *out, err *e);
const setting_info *settings_table(size_t *count);

/* ---- functions (functions.c) ----------------------------------------------------------------- */

/* X(id, name, min args, max args (-1: any), parameters, result, volatile, signature, help).
 * `parameters` has a letter each, the last one repeated: t TEXT, i INTEGER, r REAL, n any number, a
 * anything, s TEXT made from anything, c condition, = the common type of all these, x comparable
 * with the first, b TEXT or BLOB, d TEXT or a number. `result` is a type, or SAME1: that of the first
 * argument, or COMMON: the common type of all, or NUMBER1: REAL if the first argument is REAL, else
 * INTEGER. */
/* clang-format off */
#define SQL_FUNCTIONS(X)                                                                                                   \
    X(ABS, "abs", 1, 1, "n", NUMBER1, 0, "abs(x)", "absolute value")                                                      \
    X(ROUND, "round", 1, 2, "ri", REAL, 0, "round(x [, digits])", "rounded to digits after the point")                    \
    X(FLOOR, "floor", 1, 1, "n", NUMBER1, 0, "floor(x)", "largest whole number not above x")                              \
    X(TRUNC, "trunc", 1, 1, "n", NUMBER1, 0, "trunc(x)", "without what follows the point")                                \
    X(CEIL, "ceil", 1, 1, "n", NUMBER1, 0, "ceil(x)", "smallest whole number not below x")                                \
    X(SIGN, "sign", 1, 1, "n", INTEGER, 0, "sign(x)", "-1, 0 or 1")                                                       \
    X(SQRT, "sqrt", 1, 1, "r", REAL, 0, "sqrt(x)", "square root; NULL below zero")                                        \
    X(POWER, "power", 2, 2, "r", REAL, 0, "power(x, y)", "x to the y")                                                    \
    X(LN, "ln", 1, 1, "r", REAL, 0, "ln(x)", "natural logarithm; NULL at zero and below")                                 \
    X(LOG10, "log10", 1, 1, "r", REAL, 0, "log10(x)", "logarithm to base 10; NULL at zero and below")                     \
    X(EXP, "exp", 1, 1, "r", REAL, 0, "exp(x)", "e to the x")                                                             \
    X(MOD, "mod", 2, 2, "n", COMMON, 0, "mod(x, y)", "remainder; NULL when y is 0")                                       \
    X(RANDOM, "random", 0, 0, "", INTEGER, 1, "random()", "a random 64-bit integer")                                      \
    X(LENGTH, "length", 1, 1, "b", INTEGER, 0, "length(text)", "characters of a text, bytes of a blob")                   \
    X(LOWER, "lower", 1, 1, "t", TEXT, 0, "lower(text)", "in lower case")                                                 \
    X(UPPER, "upper", 1, 1, "t", TEXT, 0, "upper(text)", "in upper case")                                                 \
    X(TRIM, "trim", 1, 2, "t", TEXT, 0, "trim(text [, characters])", "without blanks (or the characters) at both ends")   \
    X(LTRIM, "ltrim", 1, 2, "t", TEXT, 0, "ltrim(text [, characters])", "trimmed at the left")                            \
    X(RTRIM, "rtrim", 1, 2, "t", TEXT, 0, "rtrim(text [, characters])", "trimmed at the right")                           \
    X(SUBSTR, "substr", 2, 3, "ti", TEXT, 0, "substr(text, from [, count])", "characters from position `from` (1 is the first, negative counts from the end)") \
    X(REPLACE, "replace", 3, 3, "t", TEXT, 0, "replace(text, from, to)", "every `from` replaced by `to`")                 \
    X(INSTR, "instr", 2, 2, "t", INTEGER, 0, "instr(text, part)", "position of the first `part`, 0 if there is none")     \
    X(CONCAT, "concat", 1, -1, "s", TEXT, 0, "concat(a, b, …)", "texts joined, NULLs left out")                           \
    X(CONCAT_WS, "concat_ws", 2, -1, "s", TEXT, 0, "concat_ws(separator, a, b, …)", "texts joined by a separator, NULLs left out") \
    X(LEFT_, "left", 2, 2, "ti", TEXT, 0, "left(text, n)", "the first n characters; below zero: all but the last -n")     \
    X(RIGHT_, "right", 2, 2, "ti", TEXT, 0, "right(text, n)", "the last n characters; below zero: all but the first -n")  \
    X(LPAD, "lpad", 2, 3, "tit", TEXT, 0, "lpad(text, n [, fill])", "n characters: filled at the left, or cut")           \
    X(RPAD, "rpad", 2, 3, "tit", TEXT, 0, "rpad(text, n [, fill])", "n characters: filled at the right, or cut")          \
    X(REVERSE, "reverse", 1, 1, "t", TEXT, 0, "reverse(text)", "its characters from the last to the first")               \
    X(SPLIT_PART, "split_part", 3, 3, "tti", TEXT, 0, "split_part(text, separator, n)", "the n-th part between separators, '' if there is none; below zero: counted from the end") \
    X(REPEAT, "repeat", 2, 2, "ti", TEXT, 0, "repeat(text, n)", "the text n times")                                       \
    X(HEX, "hex", 1, 1, "a", TEXT, 0, "hex(x)", "bytes as hexadecimal digits")                                            \
    X(CHAR_, "char", 1, -1, "i", TEXT, 0, "char(n, …)", "the text of these code points")                                  \
    X(UNICODE, "unicode", 1, 1, "t", INTEGER, 0, "unicode(text)", "code point of the first character")                    \
    X(TYPEOF, "typeof", 1, 1, "a", TEXT, 0, "typeof(x)", "the name of the value's type")                                  \
    X(COALESCE, "coalesce", 1, -1, "=", COMMON, 0, "coalesce(a, b, …)", "the first that is not NULL")                     \
    X(IFNULL, "ifnull", 2, 2, "=", COMMON, 0, "ifnull(a, b)", "a, or b if a is NULL")                                     \
    X(NULLIF, "nullif", 2, 2, "ax", SAME1, 0, "nullif(a, b)", "NULL if a = b, else a")                                    \
    X(IIF, "iif", 3, 3, "c=", COMMON, 0, "iif(condition, a, b)", "a if the condition is true, else b")                    \
    X(GREATEST, "greatest", 1, -1, "=", COMMON, 0, "greatest(a, b, …)", "the largest; NULLs left out")                    \
    X(LEAST, "least", 1, -1, "=", COMMON, 0, "least(a, b, …)", "the smallest; NULLs left out")                            \
    X(DATE, "date", 0, -1, "dt", TEXT, 0, "date(time [, modifier …])", "YYYY-MM-DD of an ISO time")                       \
    X(TIME, "time", 0, -1, "dt", TEXT, 0, "time(time [, modifier …])", "HH:MM:SS of an ISO time")                         \
    X(DATETIME, "datetime", 0, -1, "dt", TEXT, 0, "datetime(time [, modifier …])", "YYYY-MM-DD HH:MM:SS of an ISO time")  \
    X(STRFTIME, "strftime", 1, -1, "tdt", TEXT, 0, "strftime(format, time [, modifier …])", "an ISO time by a format")    \
    X(JULIANDAY, "julianday", 0, -1, "dt", REAL, 0, "julianday(time [, modifier …])", "days since noon in Greenwich on 24 November 4714 B.C.") \
    X(UNIXEPOCH, "unixepoch", 0, -1, "dt", INTEGER, 0, "unixepoch(time [, modifier …])", "seconds since 1970-01-01")      \
    X(VERSION, "version", 0, 0, "", TEXT, 0, "version()", "kvasir's version")
/* clang-format on */

typedef enum function_id {
#define FUNCTION_ID(id, name, low, high, letters, result, volatile_, signature, help) FUNC_##id,
    SQL_FUNCTIONS(FUNCTION_ID)
#undef FUNCTION_ID
        FUNC_COUNT
} function_id;

/* X(id, name, min args, max args, signature, help): those that need OVER. Aggregates may have it. */
/* clang-format off */
#define SQL_WINDOW_FUNCTIONS(X)                                                                                            \
    X(ROW_NUMBER, "row_number", 0, 0, "row_number() OVER (…)", "1, 2, 3, … in the window's order")                        \
    X(RANK, "rank", 0, 0, "rank() OVER (…)", "the row's rank; rows of equal order have one, and leave a gap")             \
    X(DENSE_RANK, "dense_rank", 0, 0, "dense_rank() OVER (…)", "the row's rank, without gaps")                            \
    X(PERCENT_RANK, "percent_rank", 0, 0, "percent_rank() OVER (…)", "(rank - 1) / (rows - 1): 0 to 1")                   \
    X(CUME_DIST, "cume_dist", 0, 0, "cume_dist() OVER (…)", "the share of rows that do not come after this one")          \
    X(NTILE, "ntile", 1, 1, "ntile(n) OVER (…)", "which of n parts, as equal as can be, the row is in")                   \
    X(LAG, "lag", 1, 3, "lag(x [, rows [, otherwise]]) OVER (…)", "x some rows before (1), or `otherwise` where there is none") \
    X(LEAD, "lead", 1, 3, "lead(x [, rows [, otherwise]]) OVER (…)", "x some rows after (1), or `otherwise` where there is none") \
    X(FIRST_VALUE, "first_value", 1, 1, "first_value(x) OVER (…)", "x of the frame's first row")                          \
    X(LAST_VALUE, "last_value", 1, 1, "last_value(x) OVER (…)", "x of the frame's last row")                              \
    X(NTH_VALUE, "nth_value", 2, 2, "nth_value(x, n) OVER (…)", "x of the frame's n-th row")
/* clang-format on */

typedef enum window_kind {
#define WINDOW_ID(id, name, low, high, signature, help) WINDOW_##id,
    SQL_WINDOW_FUNCTIONS(WINDOW_ID)
#undef WINDOW_ID
        WINDOW_AGGREGATE
} window_kind;

typedef enum function_class {
    FUNCTION_SCALAR,
    FUNCTION_AGGREGATE,
    FUNCTION_WINDOW,
    FUNCTION_MODEL,
    FUNCTION_TABLE, /* called in FROM */
    FUNCTION_CLASSES
} function_class;

typedef struct function_info {
    const char *name;
    int min_args, max_args;
    bool is_volatile;
    function_class class;
    const char *signature, *help;
} function_info;

/* Scalars, aggregates, window functions, LLM(), LLM_PROB() and generate_series(), for .help and
 * completion. */
const function_info *sql_functions(size_t *count);
/* Reserved and other keywords, upper case, sorted. */
const char *const *sql_keywords(size_t *count);
/* Appends an identifier, quoted if it is a keyword or has characters other than letters, digits and
 * underscores. */
void sql_print_name(buf *out, str name);

/* ---- expressions ----------------------------------------------------------------------------- */

typedef enum expr_kind {
    EXPR_LITERAL,
    EXPR_COLUMN, /* column.id; column.slot is filled by the planner: position in the input batch */
    EXPR_OP,     /* op over args */
    EXPR_FUNC,   /* function over args */
    /* args: when1, then1, when2, then2, …, else (always there; may be the literal NULL) */
    EXPR_CASE,
    EXPR_CAST, /* args[0] to `type`; an error at run time when it does not convert */
    EXPR_IN,   /* args[0] IN (args[1] …); three-valued; negated by OP_NOT */
    /* args: value, body. Evaluates a volatile value once per row and then the body, in which
     * EXPR_LET_VAR is that value: the operand of CASE and BETWEEN, which the body uses twice */
    EXPR_LET,
    EXPR_LET_VAR
} expr_kind;

/* clang-format off */
typedef enum expr_op {
    OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD, OP_NEG, OP_CONCAT,
    OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE,
    /* IS [NOT] DISTINCT FROM reversed: NULL-safe equality; also IS NULL, IS TRUE */
    OP_IS, OP_IS_NOT,
    OP_AND, OP_OR, OP_NOT, /* chains of AND, OR and CONCAT are balanced trees of two args each */
    /* args: text, pattern [, escape]; LIKE is case-sensitive as in psql and duckdb, ILIKE is not */
    OP_LIKE, OP_ILIKE, OP_GLOB,
    EXPR_OPS
} expr_op;
/* clang-format on */

typedef struct expr expr;
struct expr {
    expr_kind kind;
    value_type type; /* of the result; TYPE_NULL only for the literal NULL */
    int pos, len;    /* where in the statement's text; -1: made by the binder */
    union {
        value literal;
        struct {
            int id, slot;
            str name; /* for messages and EXPLAIN */
        } column;
        expr_op op;
        function_id function;
        bool exact; /* of a cast into a column: what value_assign refuses is an error */
    };
    int nargs;
    expr **args;
};

/* Operands are already cast: arithmetic has equal types on both sides (INTEGER or REAL),
 * comparisons have comparable ones. */

bool expr_equal(const expr *a, const expr *b); /* structural; places and slots ignored */
bool expr_is_constant(const expr *x);          /* no column, nothing volatile */
bool expr_is_volatile(const expr *x);
/* Calls visit for every column id in x. */
void expr_columns(const expr *x, void (*visit)(void *ctx, int id), void *ctx);
/* SQL text, with column names qualified where known. */
void expr_print(const expr *x, buf *out);

/* ---- LLM calls ------------------------------------------------------------------------------- */

typedef enum llm_returns {
    RETURNS_TEXT,
    RETURNS_ENUM,
    RETURNS_BOOLEAN,
    RETURNS_INTEGER,
    RETURNS_REAL
} llm_returns;

typedef struct rel rel;

/* One distinct call of the statement: equal calls (prompt, fields, model, options, type) are one.
 * INTEGER BETWEEN a AND b has kind INTEGER with literals; BOOLEAN has the literals yes, no. */
typedef struct llm_call {
    int number;      /* 1, 2, …: LLM#1 in EXPLAIN */
    value prompt;    /* TEXT as written, or NULL: then the call is NULL */
    str instruction; /* the prompt with {x} replaced by the field's name and {{ by { */
    int nfields;
    str *field_names;
    bool *field_required; /* named in braces */
    llm_returns returns;
    bool by_use; /* the type was given by use, not by RETURNS */
    int nliterals;
    str *literals;  /* ENUM, BOOLEAN, INTEGER BETWEEN: the answers, in order; else none */
    str model;      /* n = 0: the setting's */
    int max_tokens; /* 0: the setting's */
    rel *examples;  /* a relation of the columns example_columns…, answer; NULL: none */
    int nexample_fields;
    int *example_fields; /* which field each but the last of its columns is */
    value temperature;   /* NULL: the setting's */
    int nstop;           /* 0: the setting's */
    str *stop;           /* texts that end a TEXT answer */
    int pos, len;        /* of the first occurrence */
} llm_call;

value_type llm_call_type(const llm_call *call);
const char *llm_returns_name(llm_returns r); /* "TEXT", "ENUM", … */

/* One occurrence, in a REL_LLM node: computes column out_id
 * (and prob_id, REAL, when >= 0) for each input row. */
typedef struct llm_use {
    const llm_call *call;
    expr **args; /* call->nfields */
    /* a row needs the answer only where this is true;
     * NULL: always. Elsewhere the columns are NULL */
    expr *guard;
    int out_id, prob_id;
} llm_use;

/* The most tokens of a call's TEXT answers: its own option, else the setting. */
int llm_call_max_tokens(const settings *s, const llm_call *call);

/* Whether two calls ask about the same fields of the same
 * rows, so that prompts with the data first share them. */
bool llm_calls_share_fields(const llm_call *a, expr *const *a_args, const llm_call *b,
                            expr *const *b_args);
/* Reads `SET field_order = 'a, r.b'`: the fields listed first, the rest as written, into
 * order[nfields], always a permutation. A field's qualifier may be written where the field has
 * none. false: *unknown is a name in the list that is no field. */
bool llm_call_listed_order(const llm_call *call, str names, uint8_t *order, str *unknown);

/* ---- relations ------------------------------------------------------------------------------- */

typedef enum rel_kind {
    REL_VALUES,  /* rows of constant expressions; one row of no columns is SELECT without FROM */
    REL_SCAN,    /* a table */
    REL_FILE,    /* FROM 'f.csv' */
    REL_SYSTEM,  /* a system table: kvasir_settings, kvasir_functions, …; rows made by exec */
    REL_SERIES,  /* FROM generate_series(…): one INTEGER column */
    REL_FILTER,  /* left, predicate */
    REL_PROJECT, /* left, exprs -> new ids */
    REL_JOIN,    /* left, right, join_kind, predicate (NULL: none) */
    /* left, right (a subquery that may use left's columns),
     * join_kind; removed by the planner's unnesting */
    REL_APPLY,
    REL_GROUP, /* left, keys -> ids, aggregates -> ids; no keys: exactly one row */
    REL_SORT,  /* left, sort keys; stable */
    /* left, limit (-1: none), offset; per group of partition columns when there are any */
    REL_LIMIT,
    REL_DISTINCT, /* left: distinct rows, first occurrence kept, in order of first occurrence */
    REL_SETOP,    /* left, right; columns by position -> new ids */
    REL_LLM,      /* left, uses: adds columns */
    /* left: REL_LLM and REL_FILTER nodes that one operator runs; made by the planner alone */
    REL_PIPELINE,
    /* left: computed once, read by every reference with the same share number (CTE used twice);
     * columns by position -> new ids, so that each reference has its own */
    REL_SHARED,
    REL_ROW_NUMBER, /* left: adds an INTEGER column, 1, 2, … in input order */
    /* left: adds a column for each window function; rows stay in input order */
    REL_WINDOW,
    /* left, then right again and again, each time over the rows that came last (REL_WORKING), until
     * none come; columns by position -> new ids */
    REL_RECURSIVE,
    REL_WORKING, /* the rows that came last to the REL_RECURSIVE of the same number */
    /* left: rows of a LEFT JOIN's candidate pairs, those of one left row
     * consecutive (column group_id); keeps the pairs whose predicate is
     * true, else one with the columns null_ids NULL (LLM calls in ON) */
    REL_OUTER_RESIDUAL
} rel_kind;

typedef enum join_kind {
    JOIN_INNER,
    JOIN_LEFT,
    JOIN_CROSS,
    JOIN_SEMI,   /* left rows with a match */
    JOIN_ANTI,   /* left rows without */
    JOIN_SINGLE, /* LEFT, and more than one match is an error (scalar subquery) */
    /* left rows with a BOOLEAN column mark_id: is there a match; `IN` semantics (NULL when unknown)
     * if mark_null, else true/false (EXISTS) */
    JOIN_MARK
} join_kind;
const char *join_kind_name(join_kind k); /* "inner", "left", … */

typedef enum set_op { SETOP_UNION_ALL, SETOP_UNION, SETOP_EXCEPT, SETOP_INTERSECT, SETOPS } set_op;
const char *set_op_name(set_op op); /* "union all", … */
const char *set_op_sql(set_op op);  /* "UNION ALL", … */

typedef enum agg_kind {
    AGG_COUNT_STAR,
    AGG_COUNT,
    AGG_SUM,
    AGG_AVG,
    AGG_MIN,
    AGG_MAX,
    AGG_GROUP_CONCAT,
    AGG_FIRST,
    AGG_MEDIAN,
    AGG_STDDEV
} agg_kind;
const char *
agg_kind_name(agg_kind k); /* as SQL calls it: "count", also that of count(*), "sum", … */

typedef struct rel_column {
    int id;
    value_type type;
    str name;      /* as a result column shows it */
    str qualifier; /* table alias; n = 0: none */
} rel_column;

typedef struct rel_expr {
    expr *value;
    int id;
} rel_expr;

typedef struct sort_key {
    expr *value;
    bool descending, nulls_first;
} sort_key;

typedef struct rel_agg {
    agg_kind kind;
    bool distinct;
    expr *arg;       /* NULL for COUNT(*) */
    expr *separator; /* GROUP_CONCAT; constant */
    expr *filter;    /* NULL: every row */
    int nkeys;       /* GROUP_CONCAT: in the order of these, rows of equal order as they come */
    sort_key *keys;
    int id;
    value_type type;
} rel_agg;

/* first, first + step, … `count` numbers, none of which overflows. */
typedef struct series {
    int64_t first, step, count;
} series;

typedef enum frame_unit { FRAME_RANGE, FRAME_ROWS, FRAME_GROUPS, FRAME_UNITS } frame_unit;
typedef enum bound_kind {
    BOUND_UNBOUNDED_PRECEDING,
    BOUND_PRECEDING,
    BOUND_CURRENT,
    BOUND_FOLLOWING,
    BOUND_UNBOUNDED_FOLLOWING,
    BOUND_KINDS
} bound_kind;
typedef enum frame_exclude {
    EXCLUDE_NO_OTHERS,
    EXCLUDE_CURRENT_ROW,
    EXCLUDE_GROUP,
    EXCLUDE_TIES,
    FRAME_EXCLUDES
} frame_exclude;

typedef struct frame_bound {
    bound_kind kind;
    value offset; /* of PRECEDING, FOLLOWING: INTEGER; for RANGE of the order key's type */
} frame_bound;

typedef struct window_frame {
    frame_unit unit;
    frame_bound start, end;
    frame_exclude exclude;
} window_frame;

/* One window function. Its partition is the node's keys 0 … npartition - 1, its order the next ones
 * up to nkeys: the node's sort serves each whose keys begin it. Rows of equal order are in input
 * order. */
typedef struct rel_window {
    window_kind kind;
    agg_kind agg; /* of WINDOW_AGGREGATE */
    int nargs;
    expr **args;     /* none: count(*) */
    expr *separator; /* GROUP_CONCAT; constant */
    expr *filter;    /* of aggregates; NULL: every row */
    int npartition, nkeys;
    window_frame frame;
    int id;
    value_type type;
} rel_window;

struct rel {
    rel_kind kind;
    int ncols;
    rel_column *cols; /* what it produces, in order */
    rel *left, *right;
    union {
        struct {
            int nrows;
            expr ***rows; /* [nrows][ncols] */
        } values;
        struct {
            const table_def *table;
            str alias;
            int *columns; /* cols[i] is this column of the table; -1: the rowid */
        } scan;
        struct {
            str path;
            csv_options options;
            value_type *types; /* of every column of the file */
            int nfile_columns;
            int *columns; /* cols[i] is this column of the file */
        } file;
        struct {
            str name;
        } system;
        series series;
        struct {
            expr *predicate;
        } filter;
        struct {
            rel_expr *exprs; /* ncols */
        } project;
        struct {
            join_kind kind;
            expr *predicate;
            int mark_id;
            bool mark_null;
            /* > 0: of the pairs of a left row only the first so many, by the column of the right
             * input that the predicate keeps in a range, and those equal to the last of them are
             * wanted (set by the planner) */
            int64_t first;
            bool first_descending;
        } join; /* REL_APPLY too */
        struct {
            int nkeys, naggs;
            rel_expr *keys;
            rel_agg *aggs;
        } group;
        struct {
            int nkeys;
            sort_key *keys;
            /* > 0: no more than the first so many rows are wanted, of each group of partition
             * columns when there are any (set by the planner) */
            int64_t first;
            int npartition;
            int *partition; /* column ids */
        } sort;
        struct {
            int64_t limit, offset;
            int npartition;
            int *partition; /* column ids */
        } limit;
        struct {
            set_op op;
        } setop;
        struct {
            int nuses;
            llm_use *uses;
        } llm;
        struct {
            const struct llm_pipeline *details; /* planner/core/pipeline_int.h */
            void (*print)(const struct llm_pipeline *details, buf *out);
        } pipeline;
        struct {
            int number;
            bool kept; /* MATERIALIZED: with a single reference, too */
        } shared;
        struct {
            int id;
        } row_number;
        struct {
            int number;
            bool distinct; /* UNION: a row that came before comes no more */
        } recursive;
        struct {
            int number;
        } working;
        struct {
            int nkeys;
            sort_key *keys;
            int nfunctions;
            rel_window *functions;
            /* > 0: of each partition no more than the first so many rows (and those that equal the
             * last of them) are wanted (set by the planner) */
            int64_t first;
            bool with_ties;
        } window;
        struct {
            int group_id;
            expr *predicate;
            int nnull;
            int *null_ids;
        } residual;
    };
};

/* ---- building ------------------------------------------------------------------------------- */

/* New expressions and relations in `a`; they refer to what they are made of and leave it as it is.
 * Columns have no slots yet. */
expr *expr_new(arena *a, expr_kind kind, value_type type, int nargs);
expr *expr_literal(arena *a, value v);
expr *expr_column(arena *a, int id, value_type type, str name);
expr *expr_op1(arena *a, expr_op op, value_type type, expr *l);
expr *expr_op2(arena *a, expr_op op, value_type type, expr *l, expr *r);
/* args[0] op args[1] op …, as a balanced tree; one: itself, none: NULL. */
expr *expr_chain(arena *a, expr_op op, expr **args, int nargs);

/* With the columns of `left`; rel_set_columns gives it those of its kind, once its parts are set. */
rel *rel_new(arena *a, rel_kind kind, rel *left, rel *right);
/* Columns of a node from its inputs and its kind; kinds whose columns have ids of their own keep
 * those they have. */
void rel_set_columns(arena *a, rel *r);
const rel_column *rel_column_of(const rel *r, int id); /* NULL: it has none */
rel *rel_project(arena *a, rel *left, int ncols);      /* its columns are to be filled in */
rel *rel_join(arena *a, join_kind kind, rel *left, rel *right, expr *predicate);
rel *rel_llm(arena *a, rel *left, llm_use *uses, int nuses);

/* Invariants the binder guarantees and the planner keeps:
 *   WHERE a AND b: one REL_FILTER per conjunct, in written order; a conjunct with LLM calls has its
 *   REL_LLM right below it;
 *   an LLM call in a REL_JOIN predicate does not occur: INNER ones became filters above, LEFT ones
 *   a REL_OUTER_RESIDUAL;
 *   guards cover CASE, AND/OR inside a conjunct, COALESCE/IFNULL/IIF, FILTER; not the conjuncts
 *   before. */

/* ---- statements ------------------------------------------------------------------------------ */

/* clang-format off */
typedef enum stmt_kind {
    STMT_SELECT, STMT_INSERT, STMT_UPDATE, STMT_DELETE,
    STMT_CREATE_TABLE, STMT_CREATE_TABLE_AS, STMT_CREATE_INDEX, STMT_CREATE_VIEW, STMT_CREATE_MODEL,
    STMT_DROP_TABLE, STMT_DROP_INDEX, STMT_DROP_VIEW, STMT_DROP_MODEL,
    STMT_ADD_COLUMN, STMT_DROP_COLUMN, STMT_RENAME_TABLE, STMT_RENAME_COLUMN,
    STMT_COPY_FROM, STMT_COPY_TO, STMT_BEGIN, STMT_COMMIT, STMT_ROLLBACK,
    STMT_SET, STMT_RESET, STMT_SHOW, STMT_EXPLAIN, STMT_ANALYZE,
    STMT_SHOW_CACHE, STMT_CLEAR_CACHE, STMT_WARM, STMT_UNPIN,
    STMT_KINDS
} stmt_kind;
/* clang-format on */

/* A condition or expression over one row of a table: columns have slot = position in the table. */
typedef struct row_check {
    expr *value;
    str text; /* as written, for the message */
} row_check;

/* What CLEAR CACHE clears, as a set. */
typedef enum clear_what {
    CLEAR_KV = 1,
    CLEAR_ANSWERS = 2,
    CLEAR_ALL = CLEAR_KV | CLEAR_ANSWERS
} clear_what;

typedef enum conflict_action { CONFLICT_FAIL, CONFLICT_NOTHING, CONFLICT_UPDATE } conflict_action;

typedef struct sql_stmt sql_stmt;
struct sql_stmt {
    stmt_kind kind;
    str text; /* of this statement alone, for history and messages */
    /* SELECT; rows to insert (in table column order, all columns,
     * cast); UPDATE: rowid, then all columns' new values, cast, for RETURNING
     * those of FROM too; DELETE: rowid, for RETURNING all columns too; COPY TO and CREATE TABLE AS: the rows; WARM: the query */
    rel *query;
    int ncalls;
    llm_call **calls; /* every LLM call in it */
    /* by = or the like, with the literal: which is never true, and seldom meant */
    bool compares_null;
    int next_id; /* first column id not in use: the planner makes new ones from here */
    int next_share;

    /* INSERT, UPDATE, DELETE, COPY FROM, ALTER, ANALYZE (NULL: all tables) */
    const table_def *table;
    int nchecks;
    row_check *checks; /* CHECK constraints of `table`, for INSERT, UPDATE, COPY */
    expr **defaults;   /* COPY FROM: per column, NULL = NULL */
    conflict_action on_conflict;
    int nconflict;
    int *conflict_columns;
    /* per table column, or NULL: keep; slots: old row 0..n-1, excluded row n..2n-1 */
    expr **conflict_set;
    expr *conflict_where;
    bool update_from; /* UPDATE … FROM: a row may be there twice, which is an error */
    /* RETURNING, over each row once it is written; slots: 0 its rowid, 1..n its columns, then what
     * `query` gives behind the row */
    int nreturning;
    expr **returning;
    rel_column *returning_cols;

    /* CREATE TABLE [AS]; defaults and checks were bound once to prove them valid. DROP and RENAME
     * COLUMN: the table as it is then */
    table_def create_table;
    index_def create_index;
    view_def create_view;
    model_def create_model;
    bool if_exists, if_not_exists, or_replace;
    /* object to drop or rename; SET/SHOW/RESET: the
     * setting (n = 0: all); CREATE INDEX: its table */
    str name;
    str new_name;
    int column; /* DROP COLUMN, RENAME COLUMN */
    column_def add_column;
    value set_value;
    struct {
        str path;
        csv_options options;
        int ncolumns; /* columns of the target, in the file's order; 0: all in order */
        int *columns;
    } copy;
    struct {
        sql_stmt *stmt;
        bool analyze, tokens, json, rules; /* rules: print the tree after each rule */
        /* of the statement explained: find out what each rule saves */
        bool savings;
    } explain;
    clear_what clear; /* CLEAR CACHE */
    bool pin;         /* WARM that also pins what it warmed, under `name`: PIN */
};

/* What the binder may look at. System tables' columns come from exec. */
typedef struct bind_env {
    const catalog *catalog;
    const settings *settings;
    const rel_column *(*system_table)(void *ctx, str name, int *ncols); /* NULL: no such table */
    void *ctx;
    str *variables; /* :name values, nvariables pairs name, value; substituted as literals */
    int nvariables;
    const atomic_bool *cancel; /* ends waiting for the head of what a pipe brings; may be NULL */
} bind_env;

/* Finds the end of the first statement in text[0..n): *length bytes including its `;`. false: it is
 * incomplete (inside a string, comment, parenthesis, or without `;`). Used by the shell to know
 * when Enter runs. *empty: only blanks and comments. */
bool sql_statement_end(str text, size_t *length, bool *empty);

/* A parsed statement: its syntax tree, and what it needs before a catalog is at hand. */
typedef struct sql_tree {
    str text;        /* as given: positions of errors are byte offsets into it */
    str statement;   /* the part of it without blanks, comments and semicolons around */
    struct ast *ast; /* private to sql/ */
    /* Running it changes tables or the catalog: a write transaction. So does EXPLAIN ANALYZE of such
     * a statement. */
    bool writes;
    bool calls_model; /* running it makes LLM calls, not counting those of the views it reads */
    bool mentions_rowid;
} sql_tree;

/* Parses the one statement in `text` (with or without `;`), which the tree refers to. */
int sql_parse(str text, arena *a, sql_tree *out, err *e);
/* Binds a parsed statement to the environment's catalog. The tree stays as it is: it may be bound
 * again, to another catalog. */
int sql_bind(const sql_tree *tree, const bind_env *env, arena *a, sql_stmt **out, err *e);
#ifdef KVASIR_TEST_MODELS
/* Texts parsed and passes over bound trees in this process, for tests. */
extern atomic_uint sql_parsed, sql_bound;
#endif
/* sql_parse and sql_bind. */
int sql_bind_text(str text, const bind_env *env, arena *a, sql_stmt **out, err *e);

/* Line, column (both from 1) of a position, and the line with a caret under it, as the shell prints
 * an error: as much of it as fits `columns` cells, 80 at most. */
void sql_error_place(str text, int pos, int *line, int *column);
void sql_error_caret(str text, const err *e, int columns, buf *out);

/* Classes of tokens, for highlighting and completion. */
typedef enum token_class {
    TOKEN_KEYWORD,
    TOKEN_NAME,
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_OPERATOR,
    TOKEN_COMMENT,
    TOKEN_BLANK,
    TOKEN_BAD
} token_class;
/* The token at text[at]: its class and length (>= 1; 0 at the end). Never fails. */
size_t sql_token(str text, size_t at, token_class *out);

bool window_frame_equal(const window_frame *a, const window_frame *b);
/* "lag(x, 1) over (partition by a order by b desc rows …)": the function over the keys of its node,
 * without them where `spec` is false. */
void window_print(const rel_window *w, const sort_key *keys, bool spec, buf *out);
void sort_key_print(const sort_key *k, buf *out); /* x desc nulls last, the standard left out */
/* All of n keys with `before` in front of them; nothing for none. */
void sort_keys_print(const char *before, const sort_key *keys, int n, buf *out);
/* One line a node, indented: for tests and EXPLAIN (RULES). */
void rel_print(const rel *r, buf *out);

#endif
