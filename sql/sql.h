/*
 * sql.h - the SQL front end: settings, functions, the parser, the binder and its logical plan.
 *
 *   text --sql_parse--> syntax tree (private) --sql_bind--> sql_stmt of `rel`s
 *
 * A bound query is relational algebra over *column ids*: every column that a node produces has an
 * id unique in the statement, and expressions name columns by id, never by position. A planner rule
 * can therefore move a node without rewriting the nodes above it. The planner resolves ids to
 * positions last.
 *
 * Ownership: a bound statement points into its arena, its text and the catalog it was bound to; all
 * three must outlive it. Bound trees are plain data that planner and exec read. The planner may
 * share and rebuild nodes, but never changes an `expr` or an `llm_call` in place.
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

/* X(name, type, default, allowed words or unit, help). Each row defines a member of `settings` and
 * its entry in SET, SHOW, .help and completion. The value of a WORD member is an index into the
 * allowed words ('a|b|c'); a TEXT member is owned by the struct. */
/* clang-format off */
#define SQL_SETTINGS(X)                                                                                                    \
    X(psm, WORD, "auto", "off|fixed|grouped|auto", "how rows and the fields in their prompts are ordered so that prompts share prefixes")        \
    X(field_order, TEXT, "keep", "keep|fresh|a, b, c", "field order of LLM calls: keep the recorded order, compute a new one, or the listed fields first") \
    X(dedup, BOOLEAN, "on", "", "ask the model once per distinct input")                                                  \
    X(kv_cache, BOOLEAN, "on", "", "reuse the KV of shared prefixes within a statement")                                  \
    X(llm_window, INTEGER, "0", "requests", "number of requests the engine schedules at a time (0: all)")                       \
    X(llm_schedule, WORD, "tree", "tree|fifo", "order of requests and eviction of KV blocks: by prefix tree, or first in, first out")   \
    X(kv_memory, BYTES, "auto", "auto|bytes", "memory for KV blocks (auto: 1GB; on a GPU three quarters of its free memory)") \
    X(kv_host, BYTES, "auto", "auto|bytes", "host memory for KV blocks moved off the GPU (auto: an eighth of the machine's memory)") \
    X(kv_disk, BYTES, "4GB", "bytes", "size limit of the cache on disk")                                                      \
    X(kv_keep, WORD, "shared", "shared|all|none", "which KV blocks the cache on disk stores")                                     \
    X(kv_evict, WORD, "cost", "cost|lru|fifo", "eviction policy of the cache on disk")                                     \
    X(kv_dtype, WORD, "bf16", "bf16|f32|int8", "number type of the keys and values in KV blocks")                                    \
    X(chunk_kv, WORD, "exact", "exact|blend", "KV of contexts: of the whole prompt, or blended: computed once for each context and moved, with a share computed again")  \
    X(blend_share, REAL, "0.15", "0 to 1", "blended contexts: share of the tokens behind the first context that are computed again") \
    X(blend_rule, WORD, "edges", "edges|deviation|question", "blended contexts: which tokens these are: the nearest to the contexts' ends; or half of them, and those whose values change most, or those that the question attends to") \
    X(cache, BOOLEAN, "on", "", "use the cache on disk, for KV blocks and for answers")                                                     \
    X(answer_cache, BOOLEAN, "on", "", "reuse answers stored in the cache on disk")                                                            \
    X(model, TEXT, "", "model name or path", "model of LLM calls without a model option (empty: the default model)")              \
    X(device, TEXT, "auto", "auto|cpu|cuda:0", "device the model runs on")                                                    \
    X(precision, WORD, "auto", "auto|f32|bf16|int8|int8x2", "number type of the model's matrix products")                                \
    X(attention, WORD, "full", "full|streaming", "attention over all tokens, or sinks and a sliding window")              \
    X(sink_tokens, INTEGER, "4", "tokens", "streaming attention: number of first tokens that stay visible")                  \
    X(window_tokens, INTEGER, "1024", "tokens", "streaming attention: number of latest tokens that stay visible")                   \
    X(threads, INTEGER, "0", "threads", "threads that run the model (0: one per core)")                                         \
    X(prompt_format, WORD, "auto", "auto|chat|completion", "the model's chat template, or plain completion; auto: chat for TEXT without examples")                                     \
    X(llm_layout, WORD, "instruction", "auto|instruction|data", "which part of a prompt comes first (of a STRUCT the instruction); auto chooses by counting the tokens of the rows that reach the call") \
    X(labels_in_prompt, BOOLEAN, "on", "", "list the answers of labels => t in the prompt, with their descriptions") \
    X(llm_prune, BOOLEAN, "off", "", "if the prompt names fields in braces, omit the other fields of t.*") \
    X(llm_on_error, WORD, "fail", "fail|null", "effect of a failed LLM call without ON ERROR: the statement fails, or the answer is NULL")                                \
    X(embed_model, TEXT, "", "model", "embedding model of EMBED() calls that name none (empty: all-MiniLM-L6-v2)") \
    X(vector_probes, INTEGER, "0", "lists", "lists of an ivfflat index that a search reads (0: a quarter of few lists, a sixteenth of many)") \
    X(llm_overflow, WORD, "error", "error|truncate", "prompts longer than the model's context: an error, or asked with some fields omitted") \
    X(llm_calibrate, WORD, "auto", "auto|off|batch|fresh", "decide by p(answer) / prior(answer), with priors from a sample of the call's inputs, recorded or fresh; auto: batch for BOOLEAN and ENUM of at most 8 answers, from 32 inputs on")  \
    X(llm_sample, INTEGER, "32", "rows", "rows asked first to estimate an LLM filter's selectivity")                              \
    X(llm_chunk, INTEGER, "128", "rows", "rows after which LLM filters may first be reordered (0: never)")       \
    X(temperature, REAL, "0", "", "sampling temperature of TEXT answers (0: greedy)")                                                 \
    X(top_p, REAL, "1", "0 to 1", "sampling: nucleus, the least set of tokens whose probabilities reach this sum")                                                                    \
    X(min_p, REAL, "0", "0 to 1", "sampling: least probability relative to that of the likeliest token")                                \
    X(top_k, INTEGER, "0", "tokens", "sampling: number of likeliest tokens considered (0: all)")                                                     \
    X(stop, TEXT, "", "text", "text that ends a TEXT answer and is not part of it (empty: none)")                       \
    X(seed, INTEGER, "0", "", "sampling: seed, mixed with each row's prompt")                                             \
    X(max_tokens, INTEGER, "32", "tokens", "maximum length of a TEXT answer")                                                         \
    X(max_tokens_total, INTEGER, "0", "tokens", "stop a statement that computes more tokens (0: no limit)")                        \
    X(max_cost, REAL, "0", "money", "stop a statement before models at servers cost more (0: no limit)") \
    X(max_seconds, REAL, "0", "seconds", "stop a statement that runs longer (0: no limit)")                                 \
    X(confirm, BOOLEAN, "off", "", "ask before running a statement estimated to take more than a minute, or to cost confirm_cost")                      \
    X(confirm_cost, REAL, "1", "money", "least price of a statement that counts as high before it runs (0: none does)")                      \
    X(view_keep, BOOLEAN, "on", "", "show the live view's last picture until a key is pressed")                              \
    X(cost_rates, WORD, "measured", "measured|nominal", "rates used by cost estimates: measured on this machine, or nominal")                                        \
    X(work_memory, BYTES, "256MB", "bytes", "memory an operator uses before it spills to a temporary file")                \
    X(max_temp_directory_size, BYTES, "auto", "auto|bytes", "total size of a statement's temporary files (auto: half of the free space in $TMPDIR at its start)") \
    X(busy_timeout, INTEGER, "5000", "ms", "longest wait for another process's write transaction")                    \
    X(rules_off, TEXT, "", "rule names", "planner rules that are switched off; SET rule.<name> = off adds one")
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
    const char *standard; /* the default, as SET reads it */
    const char *words;    /* the allowed words or the unit */
    const char *help;
} setting_info;

/* Values of the WORD settings: indexes into the allowed words, in the order of SQL_SETTINGS
 * (checked by test_sql_settings). */
enum { PSM_SETTING_OFF, PSM_SETTING_FIXED, PSM_SETTING_GROUPED, PSM_SETTING_AUTO, PSM_SETTINGS };
enum { SCHEDULE_TREE, SCHEDULE_FIFO, SCHEDULES };
enum { KEEP_SHARED, KEEP_ALL, KEEP_NONE, KEEPS };
enum { EVICT_COST, EVICT_LRU, EVICT_FIFO, EVICTS };
enum { CALIBRATE_AUTO, CALIBRATE_OFF, CALIBRATE_BATCH, CALIBRATE_FRESH, CALIBRATES };
enum { CHUNK_KV_EXACT, CHUNK_KV_BLEND, CHUNK_KVS };
enum { BLEND_EDGES, BLEND_DEVIATION, BLEND_QUESTION, BLENDS };
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

void settings_init(settings *s); /* all defaults */
void settings_free(settings *s);
void settings_copy(settings *to, const settings *from); /* `to` must be initialised or all zero */
/* Sets a setting from a value; NULL resets it to its default. Sizes ('2GB', '512 kB') and switches
 * (on/off/true/false/1/0) are parsed from text. Errors: ERR_BIND for an unknown name, with the
 * nearest setting name as hint. ERR_TYPE for a value that is not allowed, with the allowed ones. */
int settings_set(settings *s, str name, value v, err *e);
/* Appends the value in the form that SET reads. ERR_BIND for an unknown name. */
int settings_show(const settings *s, str name, buf *out, err *e);
const setting_info *settings_table(size_t *count);

/* ---- functions (functions.c) ----------------------------------------------------------------- */

/* X(id, name, min args, max args (-1: no limit), parameters, result, volatile, signature, help).
 *
 * `parameters` has one letter per parameter; the last letter also applies to all further arguments:
 *   t  TEXT                 a  any type
 *   i  INTEGER              s  any type, cast to TEXT
 *   r  REAL                 =  any type, cast to the common type of all arguments marked =
 *   n  a number             x  a type that can be compared with the first argument's
 *   b  TEXT or BLOB         c  a condition
 *   d  TEXT or a number     v  VECTOR
 *
 * `result` is a type or a rule. SAME1: the first argument's type. COMMON: the common type of the
 * arguments marked = (of mod: of both arguments). NUMBER1: REAL if the first argument is REAL, else
 * INTEGER. `volatile` is 1 if equal arguments can give different results. */
/* clang-format off */
#define SQL_FUNCTIONS(X)                                                                                                   \
    X(ABS, "abs", 1, 1, "n", NUMBER1, 0, "abs(x)", "absolute value")                                                      \
    X(ROUND, "round", 1, 2, "ri", REAL, 0, "round(x [, digits])", "rounded to this number of digits after the point (default 0)")                    \
    X(FLOOR, "floor", 1, 1, "n", NUMBER1, 0, "floor(x)", "largest whole number not above x")                              \
    X(TRUNC, "trunc", 1, 1, "n", NUMBER1, 0, "trunc(x)", "truncated to a whole number, towards zero")                                \
    X(CEIL, "ceil", 1, 1, "n", NUMBER1, 0, "ceil(x)", "smallest whole number not below x")                                \
    X(SIGN, "sign", 1, 1, "n", INTEGER, 0, "sign(x)", "-1, 0 or 1")                                                       \
    X(SQRT, "sqrt", 1, 1, "r", REAL, 0, "sqrt(x)", "square root; NULL if x < 0")                                        \
    X(POWER, "power", 2, 2, "r", REAL, 0, "power(x, y)", "x raised to the power y")                                                    \
    X(LN, "ln", 1, 1, "r", REAL, 0, "ln(x)", "natural logarithm; NULL if x <= 0")                                 \
    X(LOG10, "log10", 1, 1, "r", REAL, 0, "log10(x)", "logarithm to base 10; NULL if x <= 0")                     \
    X(EXP, "exp", 1, 1, "r", REAL, 0, "exp(x)", "e raised to the power x")                                                             \
    X(MOD, "mod", 2, 2, "n", COMMON, 0, "mod(x, y)", "remainder; NULL when y is 0")                                       \
    X(RANDOM, "random", 0, 0, "", INTEGER, 1, "random()", "a random 64-bit integer")                                      \
    X(LENGTH, "length", 1, 1, "b", INTEGER, 0, "length(text)", "number of characters of a text, of bytes of a blob")                   \
    X(LOWER, "lower", 1, 1, "t", TEXT, 0, "lower(text)", "the text in lower case")                                                 \
    X(UPPER, "upper", 1, 1, "t", TEXT, 0, "upper(text)", "the text in upper case")                                                 \
    X(TRIM, "trim", 1, 2, "t", TEXT, 0, "trim(text [, characters])", "removes blanks (or these characters) at both ends")   \
    X(LTRIM, "ltrim", 1, 2, "t", TEXT, 0, "ltrim(text [, characters])", "removes blanks (or these characters) at the left end")                            \
    X(RTRIM, "rtrim", 1, 2, "t", TEXT, 0, "rtrim(text [, characters])", "removes blanks (or these characters) at the right end")                           \
    X(SUBSTR, "substr", 2, 3, "ti", TEXT, 0, "substr(text, from [, count])", "characters from position `from` (1 is the first, negative counts from the end)") \
    X(REPLACE, "replace", 3, 3, "t", TEXT, 0, "replace(text, from, to)", "replaces every `from` by `to`")                 \
    X(INSTR, "instr", 2, 2, "t", INTEGER, 0, "instr(text, part)", "position of the first `part`, or 0 if not found")     \
    X(CONCAT, "concat", 1, -1, "s", TEXT, 0, "concat(a, b, …)", "concatenates its arguments as texts, skipping NULLs")                           \
    X(CONCAT_WS, "concat_ws", 2, -1, "s", TEXT, 0, "concat_ws(separator, a, b, …)", "concatenates texts with a separator between them, skipping NULLs") \
    X(LEFT_, "left", 2, 2, "ti", TEXT, 0, "left(text, n)", "the first n characters; if n < 0, all but the last -n")     \
    X(RIGHT_, "right", 2, 2, "ti", TEXT, 0, "right(text, n)", "the last n characters; if n < 0, all but the first -n")  \
    X(LPAD, "lpad", 2, 3, "tit", TEXT, 0, "lpad(text, n [, fill])", "padded at the left, or truncated, to n characters")           \
    X(RPAD, "rpad", 2, 3, "tit", TEXT, 0, "rpad(text, n [, fill])", "padded at the right, or truncated, to n characters")          \
    X(REVERSE, "reverse", 1, 1, "t", TEXT, 0, "reverse(text)", "the characters in reverse order")               \
    X(SPLIT_PART, "split_part", 3, 3, "tti", TEXT, 0, "split_part(text, separator, n)", "the n-th part between separators, or ''; if n < 0, counted from the end") \
    X(LEVENSHTEIN, "levenshtein", 2, 2, "t", INTEGER, 0, "levenshtein(a, b)", "edit distance: characters to insert, delete or replace to turn a into b") \
    X(REGEXP_MATCHES, "regexp_matches", 2, 2, "t", BOOLEAN, 0, "regexp_matches(text, pattern)", "whether the regular expression matches anywhere in the text; also text REGEXP pattern") \
    X(REGEXP_EXTRACT, "regexp_extract", 2, 3, "tti", TEXT, 0, "regexp_extract(text, pattern [, group])", "what the regular expression, or its n-th group, matches first, or ''") \
    X(REPEAT, "repeat", 2, 2, "ti", TEXT, 0, "repeat(text, n)", "the text repeated n times")                                       \
    X(HEX, "hex", 1, 1, "a", TEXT, 0, "hex(x)", "the bytes of x in hexadecimal")                                            \
    X(CHAR_, "char", 1, -1, "i", TEXT, 0, "char(n, …)", "the text of these code points")                                  \
    X(UNICODE, "unicode", 1, 1, "t", INTEGER, 0, "unicode(text)", "code point of the first character")                    \
    X(HASH, "hash", 1, -1, "a", INTEGER, 0, "hash(x, …), hash(*)", "a hash of the values; draws the same sample each time: ORDER BY hash(*) LIMIT 100") \
    X(JSON_QUOTE, "json_quote", 1, 1, "a", TEXT, 0, "json_quote(x)", "the value as JSON: a text in quotes, NULL as null")         \
    X(TYPEOF, "typeof", 1, 1, "a", TEXT, 0, "typeof(x)", "the name of the value's type")                                  \
    X(COALESCE, "coalesce", 1, -1, "=", COMMON, 0, "coalesce(a, b, …)", "the first argument that is not NULL")                     \
    X(IFNULL, "ifnull", 2, 2, "=", COMMON, 0, "ifnull(a, b)", "a, or b if a is NULL")                                     \
    X(NULLIF, "nullif", 2, 2, "ax", SAME1, 0, "nullif(a, b)", "NULL if a = b, else a")                                    \
    X(IIF, "iif", 3, 3, "c=", COMMON, 0, "iif(condition, a, b)", "a if the condition is true, else b")                    \
    X(GREATEST, "greatest", 1, -1, "=", COMMON, 0, "greatest(a, b, …)", "the largest argument, ignoring NULLs")                    \
    X(LEAST, "least", 1, -1, "=", COMMON, 0, "least(a, b, …)", "the smallest argument, ignoring NULLs")                            \
    X(DATE, "date", 0, -1, "dt", TEXT, 0, "date(time [, modifier …])", "the date YYYY-MM-DD of an ISO time")                       \
    X(TIME, "time", 0, -1, "dt", TEXT, 0, "time(time [, modifier …])", "the time of day HH:MM:SS of an ISO time")                         \
    X(DATETIME, "datetime", 0, -1, "dt", TEXT, 0, "datetime(time [, modifier …])", "date and time YYYY-MM-DD HH:MM:SS of an ISO time")  \
    X(STRFTIME, "strftime", 1, -1, "tdt", TEXT, 0, "strftime(format, time [, modifier …])", "an ISO time in a format of %Y, %m, %d, %H, %M, %S, …")    \
    X(JULIANDAY, "julianday", 0, -1, "dt", REAL, 0, "julianday(time [, modifier …])", "days since noon in Greenwich on 24 November 4714 B.C.") \
    X(UNIXEPOCH, "unixepoch", 0, -1, "dt", INTEGER, 0, "unixepoch(time [, modifier …])", "seconds since 1970-01-01")      \
    X(L2_DISTANCE, "l2_distance", 2, 2, "v", REAL, 0, "l2_distance(v, w)", "Euclidean distance of two vectors; also v <-> w") \
    X(COSINE_DISTANCE, "cosine_distance", 2, 2, "v", REAL, 0, "cosine_distance(v, w)", "1 - cosine of the angle between two vectors; also v <=> w") \
    X(INNER_PRODUCT, "inner_product", 2, 2, "v", REAL, 0, "inner_product(v, w)", "sum of the products of the elements of two vectors") \
    X(NEGATIVE_INNER_PRODUCT, "negative_inner_product", 2, 2, "v", REAL, 0, "negative_inner_product(v, w)", "-inner_product(v, w), least for the most similar; also v <#> w") \
    X(VECTOR_DIMS, "vector_dims", 1, 1, "v", INTEGER, 0, "vector_dims(v)", "number of elements of a vector") \
    X(VECTOR_NORM, "vector_norm", 1, 1, "v", REAL, 0, "vector_norm(v)", "length of a vector: the root of the sum of its squares") \
    X(L2_NORMALIZE, "l2_normalize", 1, 1, "v", VECTOR, 0, "l2_normalize(v)", "the vector divided by its length; a zero vector stays zero") \
    X(VERSION, "version", 0, 0, "", TEXT, 0, "version()", "kvasir's version")
/* clang-format on */

typedef enum function_id {
#define FUNCTION_ID(id, name, low, high, letters, result, volatile_, signature, help) FUNC_##id,
    SQL_FUNCTIONS(FUNCTION_ID)
#undef FUNCTION_ID
        FUNC_COUNT
} function_id;

/* X(id, name, min args, max args, signature, help): the functions that require OVER. Aggregates
 * accept OVER but do not require it. */
/* clang-format off */
#define SQL_WINDOW_FUNCTIONS(X)                                                                                            \
    X(ROW_NUMBER, "row_number", 0, 0, "row_number() OVER (…)", "1, 2, 3, … in the window's order")                        \
    X(RANK, "rank", 0, 0, "rank() OVER (…)", "rank of the row; peers share a rank, with gaps after them")             \
    X(DENSE_RANK, "dense_rank", 0, 0, "dense_rank() OVER (…)", "rank of the row, without gaps")                            \
    X(PERCENT_RANK, "percent_rank", 0, 0, "percent_rank() OVER (…)", "(rank - 1) / (rows - 1): 0 to 1")                   \
    X(CUME_DIST, "cume_dist", 0, 0, "cume_dist() OVER (…)", "share of the partition's rows up to this row and its peers")          \
    X(NTILE, "ntile", 1, 1, "ntile(n) OVER (…)", "number of the row's bucket, of n buckets of (nearly) equal size")                   \
    X(LAG, "lag", 1, 3, "lag(x [, rows [, otherwise]]) OVER (…)", "x of the row that is `rows` (1) before this one; `otherwise` if none") \
    X(LEAD, "lead", 1, 3, "lead(x [, rows [, otherwise]]) OVER (…)", "x of the row that is `rows` (1) after this one; `otherwise` if none") \
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

/* Returns all functions, for .help and completion: scalars, aggregates, window functions, LLM(),
 * LLM_PROB(), the names of SQL_LLM_NAMES and generate_series(). */
const function_info *sql_functions(size_t *count);

typedef struct llm_option_info {
    const char *name, *example, *help;
} llm_option_info;
const llm_option_info *sql_llm_options(size_t *count);
/* Returns all keywords, reserved and not, in upper case, sorted. */
const char *const *sql_keywords(size_t *count);
/* Appends an identifier, quoted if it is a keyword, begins with a digit or has characters other
 * than ASCII letters, digits and underscores. */
void sql_print_name(buf *out, str name);

/* ---- expressions ----------------------------------------------------------------------------- */

typedef enum expr_kind {
    EXPR_LITERAL,
    /* column.id; column.slot: position in the input row, set by the planner (by the binder in an
     * expression over one row of a table: CHECK, ON CONFLICT, RETURNING) */
    EXPR_COLUMN,
    EXPR_OP,   /* op over args */
    EXPR_FUNC, /* function over args */
    /* args: when1, then1, when2, then2, …, else (always present; may be the literal NULL) */
    EXPR_CASE,
    EXPR_CAST, /* args[0] converted to `type`; a value that cannot be is a run-time error */
    EXPR_IN,   /* args[0] IN (args[1] …); three-valued; negated by OP_NOT */
    /* args: value, body. Evaluates `value` once per row, then `body`, in which EXPR_LET_VAR reads
     * that value. Used for a volatile operand of CASE, BETWEEN or a comparison of rows, which the
     * body reads more than once. */
    EXPR_LET,
    EXPR_LET_VAR
} expr_kind;

/* clang-format off */
typedef enum expr_op {
    OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD, OP_NEG, OP_CONCAT,
    OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE,
    /* NULL-safe: IS NOT DISTINCT FROM and IS DISTINCT FROM; also IS [NOT] NULL, TRUE, FALSE */
    OP_IS, OP_IS_NOT,
    /* AND and OR have two args, NOT has one; a chain of AND, OR or CONCAT is a balanced tree */
    OP_AND, OP_OR, OP_NOT,
    /* args: text, pattern [, escape]; LIKE is case-sensitive as in psql and duckdb, ILIKE is not */
    OP_LIKE, OP_ILIKE, OP_GLOB,
    EXPR_OPS
} expr_op;
/* clang-format on */

typedef struct expr expr;
struct expr {
    expr_kind kind;
    value_type type; /* of the result; TYPE_NULL only for the literal NULL */
    int pos, len;    /* span in the statement's text; pos -1: generated by the binder */
    union {
        value literal;
        struct {
            int id, slot;
            str name; /* for messages and EXPLAIN */
        } column;
        expr_op op;
        function_id function;
        struct { /* EXPR_CAST */
            bool
                exact; /* stored in a column: value_assign converts, without loss; else value_cast */
            int dims;  /* a VECTOR must have this number of elements; 0: any */
        };
    };
    int nargs;
    expr **args;
};

/* Operands are already cast: both sides of an arithmetic operator have the same type (INTEGER or
 * REAL), both sides of a comparison have comparable types. */

bool expr_equal(const expr *a, const expr *b); /* structural; positions and slots are ignored */
bool expr_is_constant(const expr *x);          /* no column and nothing volatile */
bool expr_is_volatile(const expr *x);          /* calls a volatile function such as random() */
/* Calls visit for every column reference in x, repeated ids included. */
void expr_columns(const expr *x, void (*visit)(void *ctx, int id), void *ctx);
/* Appends x as SQL text; a column without a name prints as #id. */
void expr_print(const expr *x, buf *out);

/* ---- LLM calls ------------------------------------------------------------------------------- */

typedef enum llm_returns {
    RETURNS_TEXT,
    RETURNS_ENUM,
    RETURNS_BOOLEAN,
    RETURNS_INTEGER,
    RETURNS_REAL,
    RETURNS_VECTOR /* EMBED(text): the call has one field and no instruction */
} llm_returns;

typedef struct rel rel;

/* The rows of labels =>. */
typedef struct llm_labels {
    int n;
    str *labels;
    str *descriptions; /* [n] p = NULL: none; NULL: there is no such column */
} llm_labels;

/* A distinct LLM() call of the statement. Calls that are equal in prompt, fields, model, options
 * and type share one llm_call. INTEGER BETWEEN a AND b is RETURNS_INTEGER with the allowed numbers
 * as literals. BOOLEAN has the literals true and false. Each field of a STRUCT is a call of its own,
 * which differs from the others in its cue and type. */
typedef struct llm_call {
    int number;      /* 1, 2, …: LLM#1 in EXPLAIN */
    str label;       /* for messages: "LLM#1", "LLM#2 stars" of a STRUCT's field */
    str written_as;  /* the name of SQL_LLM_NAMES by which it was written; n = 0: LLM */
    value prompt;    /* TEXT as written; if NULL, the call's result is NULL */
    str instruction; /* the prompt with {x} replaced by the name of field x, {{ by {, }} by } */
    int nfields;
    str *field_names;
    bool *field_required; /* the prompt names the field in braces */
    bool *field_lists;    /* the value of contexts =>: a JSON array of texts */
    /* chunk_kv => or SET chunk_kv: the KV of contexts is blended; false also if it has none */
    bool blends;
    double blend_share; /* SET blend_share and blend_rule */
    int blend_rule;
    bool contexts_ranked; /* contexts_order => 'ranked': the texts are sent in the array's order */
    llm_returns returns;
    bool by_use; /* the type was inferred from the context, not given by RETURNS */
    str field;   /* the STRUCT's field that it answers; n = 0: the call returns no STRUCT */
    /* the line before the answer, without the colon: the field's name and description; n = 0: the
     * template's line */
    str cue;
    int nliterals;
    str *literals;    /* ENUM, BOOLEAN, INTEGER BETWEEN: the allowed answers, in order */
    bool from_labels; /* the answers are the rows of labels => */
    const llm_labels *shown_labels; /* the rows of labels =>, if the prompt lists them; or NULL */
    bool all_probs; /* LLM_PROB(call, answer) or LLM_MEAN() reads the probabilities of literals */
    str model;      /* n = 0: SET model applies */
    int max_tokens; /* 0: SET max_tokens applies */
    /* query for few-shot examples: columns for some of the fields, then the answers; NULL: no
     * examples */
    rel *examples;
    int nexample_fields;
    int *example_fields; /* per column of `examples` before the answers: index of its field */
    int nexample_answers;
    str *
        example_answers; /* names of the answers: "answer", or columns named as a STRUCT's fields */
    int example_answer;  /* index of the call's own answer */
    value temperature;   /* NULL: SET temperature applies */
    /* The prompt goes on from this call's prompt and answer (option after, or a STRUCT IN ORDER);
     * NULL: it begins anew. The fields are then first those of `after`, then its answer, which has
     * the name that the statement gives it, then the call's own. */
    const struct llm_call *after;
    bool same_struct;     /* `after` is the field before it of a STRUCT IN ORDER */
    bool goes_on;         /* it is the `after` of another call */
    int calibrate;        /* CALIBRATE_…: the call's option, or else the setting */
    bool calibrate_given; /* the call has the option */
    bool reads_answers;   /* a field is computed from another call's answer */
    /* [nfields] of such a field the most different texts, UINT32_MAX: unknown; 0: another field */
    uint32_t *answer_texts;
    int on_error;    /* ON_ERROR_…: the call's clause, or else SET llm_on_error */
    value otherwise; /* ON_ERROR_NULL: the answer of a failed call, NULL or DEFAULT's value */
    int nstop;       /* 0: SET stop applies */
    str *stop;       /* stop sequences of a TEXT answer */
    int pos, len;    /* span of the first occurrence; pos -1: it is in a view */
} llm_call;

/* Returns the first call of the chain (`after =>`) that `call` is in: every prompt of the chain
 * begins with its prompt. A call without `after` is its own root. */
const llm_call *llm_call_root(const llm_call *call);

/* Returns the literal, "true" or "false", that stands for a BOOLEAN in prompts and answers. */
static inline str llm_boolean_literal(bool x) {
    return x ? STR("true") : STR("false");
}

value_type llm_call_type(const llm_call *call); /* type of the result column */
const char *llm_returns_name(llm_returns r);    /* "TEXT", "ENUM", … */

/* LLM_PRIOR_INPUTS: maximum number of a call's inputs from which its priors are computed.
 * LLM_AUTO_INPUTS: 'auto' computes no priors from fewer. LLM_AUTO_LITERALS: 'auto' calibrates no
 * call with more allowed answers. */
enum { LLM_PRIOR_INPUTS = 64, LLM_AUTO_INPUTS = 32, LLM_AUTO_LITERALS = 8 };

/* Whether the call's answers may be decided by their probabilities divided by priors: it has a list
 * of answers, and SET llm_calibrate or its option says so. 'auto' leaves out INTEGER BETWEEN, where
 * calibration made no difference, and long lists, for which a sample says too little; also calls
 * that read answers, since the sample would cost the calls below for each of its inputs. */
bool llm_call_is_calibrated(const llm_call *call);

/* A column with a probability, for LLM_PROB() and LLM_MEAN(). `literal` is the index of the literal
 * whose probability it is, or one of the following. */
enum {
    PROB_OF_ANSWER = -1, /* of the answer */
    PROB_MEAN = -2       /* mean of the numbers of INTEGER BETWEEN, weighted by their
                          * probabilities; of BOOLEAN the probability of true */
};
typedef struct llm_prob {
    int literal;
    int id; /* REAL column */
} llm_prob;

/* An occurrence of a call in a REL_LLM node: computes column out_id for each input row. */
typedef struct llm_site {
    const llm_call *call;
    expr **args; /* [call->nfields]: the field values */
    /* condition: a row for which it is not true gets the answer NULL and the model is not asked; a
     * null pointer: the model is asked for all rows */
    expr *guard;
    int out_id;
    int nprobs;
    llm_prob *probs; /* [nprobs] */
} llm_site;

/* Returns the index in site->probs of the column `id`, or -1. */
int llm_site_prob(const llm_site *site, int id);
/* Whether the site makes the column `id`: its answer or one of its probabilities. */
bool llm_site_makes(const llm_site *site, int id);
/* Writes the name of a probability: prob, prob('yes') or mean. */
void llm_prob_print(const llm_call *call, int literal, buf *out);

/* Returns the maximum number of tokens of a TEXT answer: the call's option, or the setting if the
 * call has none. */
int llm_call_max_tokens(const settings *s, const llm_call *call);

/* True if the prompts of two calls about a row can share a prefix that ends with the row: the calls
 * have the same model, field names and values. And either both have cues, and their instruction,
 * examples, labels and the call that they go on from are the same, so that only their cues differ.
 * Or neither has a cue, examples or labels, goes on from a call or is gone on from, so that the row
 * can come before the instruction. */
bool llm_calls_share_row(const llm_call *a, expr *const *a_args, const llm_call *b,
                         expr *const *b_args);
/* Parses a field_order setting such as 'a, r.b' into order[nfields], which is always a permutation:
 * the listed fields first, then the remaining fields in the order of the call. A listed name may
 * have a qualifier that the field's name lacks. Returns false with *unknown set to the first name
 * that is not a field of the call. */
bool llm_call_listed_order(const llm_call *call, str names, uint8_t *order, str *unknown);

/* ---- relations ------------------------------------------------------------------------------- */

typedef enum rel_kind {
    REL_VALUES, /* rows of expressions; SELECT without FROM reads one row of no columns */
    REL_SCAN,   /* a table */
    REL_FILE,   /* FROM 'f.csv' */
    REL_SYSTEM, /* a system table: kvasir_settings, kvasir_functions, …; exec produces its rows */
    REL_SERIES, /* FROM generate_series(…): one INTEGER column */
    REL_FILTER, /* rows of left for which the predicate is true */
    REL_PROJECT, /* expressions over left, as columns with new ids */
    REL_JOIN,    /* join of left and right, by join_kind and predicate (NULL: none) */
    /* lateral join: right is a subquery that may use left's columns; the planner's unnesting
     * removes this node */
    REL_APPLY,
    /* one row per group of left: keys and aggregates, with new ids; exactly one row if there are no
     * keys */
    REL_GROUP,
    REL_SORT,     /* left in the order of the sort keys; stable */
    REL_LIMIT,    /* LIMIT and OFFSET, per partition if there are partition columns */
    REL_DISTINCT, /* the first occurrence of each distinct row of left, in input order */
    REL_SETOP,    /* left and right, columns matched by position and given new ids */
    REL_LLM,      /* left, with the result columns of `sites` added */
    /* left: REL_LLM and REL_FILTER nodes that one operator runs; only the planner creates this
     * node */
    REL_PIPELINE,
    /* a reference to a CTE: left is computed once for all references with the same number; columns
     * are matched by position and get new ids in each reference */
    REL_SHARED,
    REL_SPLIT, /* for each row of left a row for each part of its text, with two more columns */
    REL_ROW_NUMBER, /* left with an INTEGER column 1, 2, … in input order */
    REL_WINDOW,     /* left with a column per window function; rows keep the input order */
    /* WITH RECURSIVE: runs left, then runs right repeatedly until a round returns no rows. Each
     * round reads the rows of the previous round (REL_WORKING). Columns are matched by position and
     * get new ids. */
    REL_RECURSIVE,
    REL_WORKING, /* rows of the previous round of the REL_RECURSIVE with the same number */
    /* The part of a LEFT JOIN's ON condition that has LLM calls. left has the candidate pairs; the
     * pairs of one left row are adjacent and equal in column group_id. Keeps each pair for which
     * the predicate is true. A left row without such a pair is kept once, with the columns null_ids
     * set to NULL. */
    REL_OUTER_RESIDUAL
} rel_kind;

typedef enum join_kind {
    JOIN_INNER,
    JOIN_LEFT,
    JOIN_CROSS,
    JOIN_SEMI,   /* left rows with a match */
    JOIN_ANTI,   /* left rows without a match */
    JOIN_SINGLE, /* scalar subquery: a LEFT join in which a second match is an error */
    /* Every left row, with a BOOLEAN column mark_id that is true if the row has a match. For a row
     * without a match the column is NULL if mark_null is set (for IN, not for EXISTS) and the
     * predicate is NULL for a right row, else false. */
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
const char *agg_kind_name(agg_kind k); /* "count" (also for count(*)), "sum", … */

typedef struct rel_column {
    int id;
    value_type type;
    str name;      /* heading in the result */
    str qualifier; /* table alias; n = 0: none */
} rel_column;

typedef struct rel_expr {
    expr *value;
    int id; /* of the column that it computes */
} rel_expr;

typedef struct sort_key {
    expr *value;
    bool descending, nulls_first;
} sort_key;

typedef struct rel_agg {
    agg_kind kind;
    bool distinct;
    expr *arg;       /* NULL for COUNT(*) */
    expr *separator; /* GROUP_CONCAT: a constant; other aggregates: NULL */
    expr *filter;    /* FILTER (WHERE …); NULL: all rows */
    int nkeys;
    sort_key *keys; /* GROUP_CONCAT: its ORDER BY; ties in input order */
    int id;         /* of the result column */
    value_type type;
} rel_agg;

/* How a text is divided. */
typedef struct split_spec {
    bool chunks;     /* CHUNK(), else string_split() */
    int64_t tokens;  /* CHUNK: the most tokens of a chunk */
    int64_t overlap; /* CHUNK: the most tokens of the end of a chunk that begin the next one */
    str model;       /* CHUNK: whose tokens; n = 0: the embedding model of SET embed_model */
} split_spec;

/* The `count` numbers first, first + step, …; none of them overflows. */
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
    /* PRECEDING and FOLLOWING: a number of rows (ROWS) or of groups of peers (GROUPS), an INTEGER;
     * in a RANGE frame a distance of the ORDER BY key, in the key's type */
    value offset;
} frame_bound;

typedef struct window_frame {
    frame_unit unit;
    frame_bound start, end;
    frame_exclude exclude;
} window_frame;

/* A window function of a REL_WINDOW node. Its PARTITION BY is the node's keys [0, npartition), its
 * ORDER BY the node's keys [npartition, nkeys). So functions whose keys are a prefix of the node's
 * keys share one sort. Ties are in input order. */
typedef struct rel_window {
    window_kind kind;
    agg_kind agg; /* of WINDOW_AGGREGATE */
    int nargs;
    expr **args;     /* an aggregate without args is count(*) */
    expr *separator; /* GROUP_CONCAT: a constant; other functions: NULL */
    expr *filter;    /* FILTER (WHERE …) of an aggregate; NULL: all rows */
    int npartition, nkeys;
    window_frame frame;
    int id; /* of the result column */
    value_type type;
} rel_window;

struct rel {
    rel_kind kind;
    int ncols;
    rel_column *cols; /* output columns */
    rel *left, *right;
    union {
        struct {
            int nrows;
            expr ***rows; /* [nrows][ncols] */
        } values;
        struct {
            const table_def *table;
            str alias;
            int *columns; /* [ncols]: the table column that cols[i] reads; -1: rowid */
        } scan;
        struct {
            str path;
            file_options options;
            value_type *types; /* [nfile_columns]: type of each column of the file */
            int nfile_columns;
            int *columns; /* [ncols]: the file column that cols[i] reads */
        } file;
        struct {
            str name;
        } system;
        series series;
        struct {
            expr *predicate;
        } filter;
        struct {
            rel_expr *exprs; /* [ncols] */
        } project;
        struct {
            join_kind kind;
            expr *predicate;
            int mark_id;    /* JOIN_MARK: see join_kind; other joins: -1 */
            bool mark_null; /* JOIN_MARK: see join_kind */
            /* Set by the planner. > 0: a range join that returns only the first `first` matches of
             * each left row, and the ties of the last match. Matches are ordered by the right
             * column that the predicate bounds. */
            int64_t first;
            bool first_descending; /* the matches are in descending order */
        } join;                    /* REL_JOIN and REL_APPLY */
        struct {
            int nkeys, naggs;
            rel_expr *keys;
            rel_agg *aggs;
        } group;
        struct {
            int nkeys;
            sort_key *keys;
            /* Set by the planner. > 0: top-N, only the first `first` rows are needed. With
             * partition columns: the first `first` rows per distinct value of these columns. */
            int64_t first;
            int npartition;
            int *partition; /* column ids */
        } sort;
        struct {
            int64_t limit; /* -1: none */
            int64_t offset;
            int npartition;
            int *partition; /* column ids */
        } limit;
        struct {
            set_op op;
        } setop;
        struct {
            int nsites;
            llm_site *sites;
        } llm;
        struct {
            const struct llm_pipeline *details; /* defined in planner/core/pipeline_int.h */
            void (*print)(const struct llm_pipeline *details, buf *out);
        } pipeline;
        struct {
            int number;
            bool kept; /* AS MATERIALIZED: not inlined even if there is only one reference */
        } shared;
        struct {
            int id;
        } row_number;
        struct {
            split_spec spec;
            expr *text, *separator; /* string_split: the separator; CHUNK: NULL */
            int text_id, number_id; /* the parts, and their numbers from 1 */
            str alias;
        } split;
        struct {
            int number;
            bool distinct; /* UNION: drops rows that an earlier round produced */
        } recursive;
        struct {
            int number;
        } working;
        struct {
            int nkeys;
            sort_key *keys;
            int nfunctions;
            rel_window *functions;
            /* Set by the planner. > 0: only the first `first` rows of each partition are needed.
             * with_ties: also all rows that tie with the last of these rows. */
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

/* Constructors of expressions and relations in arena `a`. A new node points to the nodes passed to
 * the constructor and does not change them. The slots of column references are not set. */
expr *expr_new(arena *a, expr_kind kind, value_type type, int nargs);
expr *expr_literal(arena *a, value v);
expr *expr_column(arena *a, int id, value_type type, str name);
expr *expr_op1(arena *a, expr_op op, value_type type, expr *l);
expr *expr_op2(arena *a, expr_op op, value_type type, expr *l, expr *r);
/* Returns args[0] op args[1] op … as a balanced tree; args[0] if nargs is 1, NULL if nargs is 0. */
expr *expr_chain(arena *a, expr_op op, expr **args, int nargs);

/* Returns a node with the columns of `left`. Call rel_set_columns once its members are set. */
rel *rel_new(arena *a, rel_kind kind, rel *left, rel *right);
/* Sets the node's columns from its kind, inputs and members. Does nothing for kinds whose columns
 * have ids of their own. */
void rel_set_columns(arena *a, rel *r);
/* Whether a call of this REL_LLM is calibrated. */
bool rel_is_calibrated(const rel *llm);
const rel_column *rel_column_of(const rel *r, int id); /* NULL: no such column */
rel *rel_project(arena *a, rel *left, int ncols);      /* the caller sets cols and project.exprs */
rel *rel_join(arena *a, join_kind kind, rel *left, rel *right, expr *predicate);
rel *rel_llm(arena *a, rel *left, llm_site *sites, int nsites);

/* ---- where columns come from (tree/source.c) -------------------------------------------------- */

/* Returns the node below x, or x itself, that makes the values of x's column *id, and sets *id to
 * its column: a table, a file, a REL_LLM, … Through an expression it follows the first column; then
 * *same is false. */
const rel *rel_column_source(const rel *x, int *id, bool *same);
int expr_first_column(const expr *x); /* the id of the first column in x; -1: none */
/* Returns a site of the call, and its REL_LLM in *node. NULL: the tree has none. */
const llm_site *rel_site_of_call(const rel *x, const llm_call *call, const rel **node);
/* Returns the name of the topmost column whose value is the call's answer; n = 0: there is none. */
str rel_name_of_call(const rel *x, const llm_call *call);

/* Invariants that the binder establishes and the planner keeps:
 *   WHERE a AND b is one REL_FILTER per conjunct, in written order (conjuncts without calls and
 *   subqueries share one after the first 64); the REL_LLM of a conjunct's calls is directly below
 *   its filter.
 *   A REL_JOIN predicate contains no LLM call: a condition with a call is a filter above an INNER
 *   JOIN, or the REL_OUTER_RESIDUAL of a LEFT JOIN.
 *   llm_site.guard contains the conditions of CASE, of AND and OR inside a conjunct, of
 *   COALESCE/IFNULL/IIF and of FILTER. It does not contain the preceding conjuncts of WHERE. */

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

/* A CHECK condition over a row of a table; a column's slot is its position in the table. */
typedef struct row_check {
    expr *value;
    str text; /* as written, for the error message */
} row_check;

/* Bit set of the caches that CLEAR CACHE deletes. */
typedef enum clear_what {
    CLEAR_KV = 1,
    CLEAR_ANSWERS = 2,
    CLEAR_ALL = CLEAR_KV | CLEAR_ANSWERS
} clear_what;

typedef enum conflict_action { CONFLICT_FAIL, CONFLICT_NOTHING, CONFLICT_UPDATE } conflict_action;

/* An option of CREATE MODEL … WITH, and its place in the statement. */
typedef struct model_option {
    str name, text;
    int pos, len;
} model_option;

typedef struct sql_stmt sql_stmt;
struct sql_stmt {
    stmt_kind kind;
    str text; /* the text of this statement alone, for history and messages */
    /* The rows that the statement reads or writes, by its kind:
     *   SELECT, COPY TO, CREATE TABLE AS, WARM: the query's rows
     *   INSERT: all columns of the table in its order, cast
     *   UPDATE: rowid, the new values of all columns, cast; for RETURNING also the columns of FROM
     *   DELETE: rowid; for RETURNING also all columns */
    rel *query;
    int ncalls;
    llm_call **calls; /* [ncalls]: all LLM calls of `query` */
    /* the statement has a comparison that is never true, such as x = NULL; causes a warning */
    bool compares_null;
    bool read_rows; /* binding read rows (bind_env.rows), so it must be repeated when they change */
    int next_id;    /* first unused column id; the planner allocates from here */
    int next_share; /* first unused number of a REL_SHARED */

    /* the target of INSERT, UPDATE, DELETE, COPY FROM, CREATE INDEX, ALTER and ANALYZE (ANALYZE,
     * NULL: all tables) */
    const table_def *table;
    int nchecks;
    row_check *checks; /* CHECK constraints of `table`, for INSERT, UPDATE, COPY */
    /* COPY FROM: [columns of the table]; ADD COLUMN: [1], of the new column; a NULL element: the
     * column has no DEFAULT */
    expr **defaults;
    conflict_action on_conflict;
    int nconflict;         /* 0: ON CONFLICT without columns: any unique key may be in conflict */
    int *conflict_columns; /* [nconflict]: indexes of the table columns of ON CONFLICT (…) */
    /* DO UPDATE SET: [columns of the table] new values; a NULL element: the column is unchanged.
     * Slots [0, n) are the existing row, slots [n, 2n) the excluded row. */
    expr **conflict_set;
    expr *conflict_where;
    bool update_from; /* UPDATE … FROM: a target row that `query` returns twice is an error */
    /* RETURNING, evaluated on each written row. Slots: 0 is the rowid, [1, n] are the table's
     * columns; the extra columns of `query` follow. */
    int nreturning;
    expr **returning;
    rel_column *returning_cols;

    /* CREATE TABLE [AS], with defaults and checks already validated; RENAME COLUMN: the table's
     * definition after the change; DROP COLUMN: the same without indexes */
    table_def create_table;
    index_def create_index;
    view_def create_view;
    model_def create_model; /* without its options, which exec checks: */
    int nmodel_options;
    model_option *model_options; /* [nmodel_options] */
    bool if_exists, if_not_exists, or_replace;
    /* CREATE TABLE, VIEW, MODEL, DROP, ALTER: the object; SET, SHOW, RESET: the setting (n = 0:
     * all); CREATE INDEX: its table; CLEAR CACHE: the model (n = 0: all); WARM, PIN, UNPIN: the
     * table or view, whose name is also the name of the pin */
    str name;
    str new_name; /* RENAME */
    int column;   /* DROP COLUMN, RENAME COLUMN: its index */
    column_def add_column;
    value set_value;
    struct {
        str path;
        file_options options;
        int ncolumns; /* 0: COPY FROM fills all columns of the table */
        int *columns; /* [ncolumns]: COPY FROM, the table columns in the order of the file */
    } copy;
    struct {
        sql_stmt *stmt;
        bool analyze; /* run the statement, print measurements beside the estimates */
        bool tokens;  /* count the prompt tokens of each strategy without asking the model */
        bool json;    /* FORMAT JSON */
        bool rules;   /* print the tree after each planner rule that changes it */
        bool prompt;  /* print the first prompts of each call, without asking the model */
        bool tree;    /* print the prefix tree of all prompts, without asking the model */
        bool savings; /* estimate what each planner rule saves; set by exec */
    } explain;
    clear_what clear; /* CLEAR CACHE */
    bool pin;         /* PIN: STMT_WARM that also pins the warmed cache entries as `name` */
};

/* The binder's inputs besides the syntax tree. */
typedef struct bind_env {
    const catalog *catalog;
    const settings *settings;
    const rel_column *(*system_table)(void *ctx, str name, int *ncols); /* NULL: no such table */
    void *ctx; /* passed to system_table and rows */
    /* nvariables pairs of name and value; :name is replaced by its value as a literal */
    str *variables;
    int nvariables;
    const atomic_bool *cancel; /* true aborts reading the first records of a pipe; may be NULL */
    /* Runs a query without LLM calls in the statement's transaction; copies its first `most` rows
     * to out[*rows * columns] in `a`. NULL: not now; the answers of labels => are then unknown. */
    int (*rows)(void *ctx, const sql_stmt *query, int64_t most, arena *a, value **out,
                int64_t *rows, err *e);
} bind_env;

/* Finds the end of the first statement in `text`: *length is its length in bytes, the `;` included.
 * Returns false if the statement is incomplete (ends inside a string, comment or parenthesis, or
 * without `;`): the shell then reads another line. *empty is set if it consists only of blanks and
 * comments. */
bool sql_statement_end(str text, size_t *length, bool *empty);

/* A parsed statement: its syntax tree, and properties that follow from the tree alone. */
typedef struct sql_tree {
    str text;        /* the text given to sql_parse; error positions are byte offsets into it */
    str statement;   /* the part of `text` without surrounding blanks, comments and semicolons */
    struct ast *ast; /* private to sql/ */
    /* Needs a write transaction: changes tables or the catalog, or is EXPLAIN ANALYZE of such a
     * statement. */
    bool writes;
    bool is_query;       /* SELECT, VALUES or WITH */
    bool calls_model;    /* contains LLM calls; calls in the views that it reads do not count */
    bool mentions_rowid; /* a column reference is named rowid, in upper or lower case */
} sql_tree;

/* Parses the single statement in `text` (with or without `;`); the tree points into the text.
 * Errors: ERR_SYNTAX, ERR_LIMIT, ERR_UNSUPPORTED, ERR_BIND, with position and hint. */
int sql_parse(str text, arena *a, sql_tree *out, err *e);
/* Binds a parsed statement to the environment's catalog: resolves names and types into *out. The
 * tree is unchanged and may be bound again, to another catalog. */
int sql_bind(const sql_tree *tree, const bind_env *env, arena *a, sql_stmt **out, err *e);
/* A column of a SELECT as written, for a caller that composes statements of its parts. */
typedef struct select_column {
    str text;         /* the expression */
    str name;         /* its alias, else the column's name; n = 0: neither */
    int pos, len;     /* span of `text` in the statement */
    bool is_call;     /* the expression is an LLM call and nothing else */
    bool calls_model; /* it has LLM() or another function of the model anywhere */
    bool calibrates;  /* is_call: the call has the option calibrate */
    /* is_call: offset in `text`, after the first argument and its alias, at which ", option =>
     * value" can be inserted */
    int after_prompt;
    int nanswers;   /* is_call: number of answers that RETURNS lists; 0: it lists none */
    value *answers; /* TEXT of ENUM, BOOLEAN, INTEGER of INTEGER BETWEEN */
} select_column;

/* `head`, columns separated by commas, and `from` are the whole statement. */
typedef struct select_parts {
    str head; /* up to SELECT, with a WITH before it */
    int ncolumns;
    select_column *columns;
    str from; /* FROM and all that follows */
} select_parts;

/* Takes a parsed statement apart, allocated in `a` and pointing into its text. ERR_UNSUPPORTED,
 * with its place, unless it is one SELECT … FROM … [WHERE …], so that its columns may be replaced
 * and QUALIFY … appended. */
int sql_select_parts(const sql_tree *tree, arena *a, select_parts *out, err *e);

#ifdef KVASIR_TEST_MODELS
/* Counts of this process, for tests: texts parsed, binder passes. */
extern atomic_uint sql_parsed, sql_bound;
#endif
/* sql_parse followed by sql_bind. */
int sql_bind_text(str text, const bind_env *env, arena *a, sql_stmt **out, err *e);

/* Computes the line and column (both counted from 1) of byte offset `pos`. */
void sql_error_place(str text, int pos, int *line, int *column);
/* Appends the line of `text` that has the error, with a caret under the error's position, as the
 * shell prints it. A long line is cut to fit `columns` terminal cells, at most 80. */
void sql_error_caret(str text, const err *e, int columns, buf *out);

/* Token classes, for highlighting and completion. */
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
/* Sets *out to the class of the token at text[at]; returns its length in bytes, 0 at the end of the
 * text. Never fails. */
size_t sql_token(str text, size_t at, token_class *out);

bool window_frame_equal(const window_frame *a, const window_frame *b);
/* Appends a window function as "lag(x, 1) over (partition by a order by b desc rows …)"; without
 * `spec`, the part from `over` on is omitted. `keys` are the keys of its REL_WINDOW. */
void window_print(const rel_window *w, const sort_key *keys, bool spec, buf *out);
/* Appends a key as "x desc nulls last"; desc and nulls are omitted where they are the default. */
void sort_key_print(const sort_key *k, buf *out);
/* Appends `before` and the n keys separated by commas; nothing if n is 0. */
void sort_keys_print(const char *before, const sort_key *keys, int n, buf *out);
/* Appends the tree, one indented line per node: for tests and EXPLAIN (RULES). */
void rel_print(const rel *r, buf *out);

#endif
