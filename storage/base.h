/*
 * base.h - the types that all rooms share: memory, strings, errors, values, batches, hashes, time,
 * UTF-8.
 *
 * No LMDB and no I/O except temporary files. Memory of an arena lives until the arena is reset or
 * freed; every other ownership is stated at the declaration. mem_* and arena_* never return NULL:
 * out of memory they end the process with a message. Allocations whose size depends on the user's
 * data (KV pools, row sets) use mem_try_alloc or a spilling arena, which report an error instead.
 */
#ifndef KVASIR_BASE_H
#define KVASIR_BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define BASE_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define BASE_NORETURN __attribute__((noreturn))
#else
#define BASE_PRINTF(fmt, args)
#define BASE_NORETURN
#endif

#define BASE_COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* Compile-time check that a table indexed by an enum has `count` entries. */
#define BASE_COVERS(table, count)                                                                  \
    _Static_assert(BASE_COUNT(table) == (size_t)(count), "the table needs " #count " entries")
#define BASE_MIN(a, b) ((a) < (b) ? (a) : (b))
#define BASE_MAX(a, b) ((a) > (b) ? (a) : (b))

/* ---- memory ---------------------------------------------------------------------------------- */

/* Like malloc, calloc, realloc, strdup and strndup, but end the process if memory runs out. Release
 * with free(). */
void *mem_alloc(size_t bytes);
void *mem_zalloc(size_t bytes);
void *mem_realloc(void *p, size_t bytes);
char *mem_strdup(const char *c_string); /* NULL for NULL */
char *mem_strndup(const char *p, size_t n);
/* Like malloc, returns NULL if memory runs out. For sizes that depend on the user's data. */
void *mem_try_alloc(size_t bytes);

/* Accounting of one statement's memory: bytes of all its arenas on the heap and in temporary files,
 * and a limit on the files. It must outlive its arenas, which may belong to different threads. */
typedef struct workmem workmem;

/* Current bytes, and peaks since workmem_begin. */
typedef struct workmem_use {
    size_t heap_bytes, heap_peak_bytes;
    size_t file_bytes, file_peak_bytes;
} workmem_use;

/* Temporary files are created in `dir` (NULL: $TMPDIR, else /tmp), with at most files_max_bytes in
 * all (-1: half of the free space there when the first one is created). */
workmem *workmem_new(const char *dir, int64_t files_max_bytes);
void workmem_free(workmem *w); /* NULL is fine */
/* Sets the peaks to the current bytes, and the limit to files_max_bytes. */
void workmem_begin(workmem *w, int64_t files_max_bytes);
void workmem_usage(const workmem *w, workmem_use *out);

/* A limit on the heap that arenas and arrays of one owner, such as an operator, share: when it is
 * used up, what they allocate is in unnamed temporary files of `space`. Its owner sets all but
 * heap_bytes, and it must outlive its arenas and arrays. For one thread at a time. */
typedef struct mem_budget {
    workmem *space;            /* not NULL */
    const atomic_bool *cancel; /* stops the growth of an index of items; may be NULL */
    size_t limit_bytes;        /* at least 1 */
    size_t heap_bytes;         /* on the heap now */
} mem_budget;

/* A bump allocator over a list of chunks. Allocations are 16-byte aligned. */
typedef struct arena arena;

arena *arena_new(void);
arena *arena_new_in(workmem *w); /* counted in w; NULL: not counted */
/* Makes an arena with at most `limit_bytes` on the heap; further chunks are mapped from an unnamed
 * temporary file of the workmem (NULL: of a workmem of its own). When the disk is full or the
 * workmem's limit is reached, arena_failed() becomes true; no signal is raised, because file space
 * is reserved by posix_fallocate. */
arena *arena_new_spilling(size_t limit_bytes, workmem *w);
arena *arena_new_sharing(mem_budget *m); /* the same, with the heap limit of a budget */
void arena_free(arena *a);               /* NULL is fine */
void arena_reset(arena *a);              /* frees everything but one chunk of at most 1 MiB */
/* Never NULL: once spilling has failed, memory comes from the heap. */
void *arena_alloc(arena *a, size_t bytes);
void *arena_zalloc(arena *a, size_t bytes);
bool arena_failed(const arena *a);
size_t arena_bytes(const arena *a); /* allocated since the last reset */
/* Returns how many of these bytes are in the temporary file. */
size_t arena_spilled_bytes(const arena *a);
char *arena_strndup(arena *a, const char *p, size_t n); /* NUL-terminated copy */
char *arena_printf(arena *a, const char *format, ...) BASE_PRINTF(2, 3);

#define ARENA_NEW(a, type) ((type *)arena_zalloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_zalloc((a), sizeof(type) * (size_t)(n)))

/* ---- strings --------------------------------------------------------------------------------- */

/* A byte string: not owned, not NUL-terminated. */
typedef struct str {
    const char *p;
    size_t n;
} str;

#define STR(literal) ((str){(literal), sizeof(literal) - 1})
str str_from(const char *c_string); /* NULL: empty */
bool str_equal(str a, str b);
static inline char ascii_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}
bool str_equal_nocase(str a, str b); /* ASCII case only */
int str_compare_nocase(str a, str b);
uint64_t str_hash_nocase(str s); /* equal for texts that str_equal_nocase calls equal */
int str_compare(str a, str b);   /* bytewise, <0, 0, >0 */
/* Returns the text of *rest before the first `separator` and removes both from *rest; without a
 * separator, returns all of *rest and empties it. */
str str_split_next(str *rest, char separator);
/* Returns s without leading and trailing characters of `blanks`. */
str str_trim(str s, const char *blanks);
#define STR_SPACES " \t\n\v\f\r" /* the characters of isspace() in the C locale */
str str_copy(arena *a, str s);   /* NUL-terminated after its n bytes */

/* A growable string on the heap. Zero-initialise. p is NULL until the first append, then
 * NUL-terminated. */
typedef struct buf {
    char *p;
    size_t n, cap;
} buf;

void buf_append(buf *b, const void *p, size_t n);
void buf_append_str(buf *b, str s);
void buf_append_c(buf *b, const char *c_string);
void buf_append_char(buf *b, char c);
void buf_printf(buf *b, const char *format, ...) BASE_PRINTF(2, 3);
void buf_append_bytes(buf *b, uint64_t bytes); /* "94 MB", "1.5 GB"; units are powers of 1,024 */
void buf_append_count(buf *b, uint64_t n);     /* with commas in any locale: 54,432 */
void buf_append_money(buf *b, double money, const char *currency); /* $0.0051; 0.0051 EUR */
void buf_clear(buf *b);                                            /* keeps the memory */
void buf_free(buf *b);
str buf_str(const buf *b);

/* Returns the candidate with the least edit distance to `word`, ignoring ASCII case; a swap of two
 * adjacent characters counts as one edit. The first, if several are equally near. NULL: every
 * distance exceeds max(1, word.n / 3). */
const char *str_nearest(str word, const char *const *candidates, size_t count);

/* ---- errors ---------------------------------------------------------------------------------- */

typedef enum err_code {
    ERR_NONE = 0,
    ERR_SYNTAX,      /* not valid SQL */
    ERR_BIND,        /* a name that is unknown, duplicate or wrongly used */
    ERR_TYPE,        /* a value cannot be converted to a type */
    ERR_CONSTRAINT,  /* NOT NULL, UNIQUE, CHECK, primary key */
    ERR_ARITHMETIC,  /* overflow */
    ERR_IO,          /* a system call failed */
    ERR_CORRUPT,     /* damaged or foreign data */
    ERR_BUSY,        /* another process holds a lock */
    ERR_FULL,        /* out of disk, map or memory */
    ERR_CANCELLED,   /* cancelled by the user */
    ERR_LIMIT,       /* a fixed limit of kvasir is exceeded */
    ERR_MODEL,       /* the model is missing or lacks an ability */
    ERR_UNSUPPORTED, /* valid, but not implemented */
    ERR_INTERNAL     /* a bug in kvasir */
} err_code;

/* An error. pos, len: offset and length in bytes of the part of the statement's text that the error
 * is about; pos = -1: of no part. */
typedef struct err {
    err_code code;
    int pos, len;
    char message[1024];
    char hint[256];
} err;

/* These return `code` as an int, so that a caller can `return err_set(e, …)`; 0 is success. e may
 * be NULL. Arguments may point into e: err_set(e, e->code, "%s: %s", where, e->message). */
int err_set(err *e, err_code code, const char *format, ...) BASE_PRINTF(3, 4);
int err_set_at(err *e, err_code code, int pos, int len, const char *format, ...) BASE_PRINTF(5, 6);
/* Appends ": " and strerror(errno_value). ERR_FULL for a full disk, else ERR_IO. */
int err_set_errno(err *e, int errno_value, const char *format, ...) BASE_PRINTF(3, 4);
void err_hint(err *e, const char *format, ...) BASE_PRINTF(2, 3);
void err_clear(err *e);
/* Sets the error that made arena_failed() true; returns 0 if arena_failed() is false. */
int arena_full_error(const arena *a, err *e);

/* If a file begins with the bytes of another program's format, such as Parquet or SQLite: sets
 * the error "'path' is a Parquet file" followed by `wanted`, with a way to CSV as hint, and returns
 * its code. Else 0. `head`: as much of the file as was read, at best its first 4 KiB. */
int refuse_foreign_file(err_code code, const char *path, str head, const char *wanted, err *e);

/* Returns ERR_CANCELLED if *cancel is true, else 0; `cancel` may be NULL. Loops call it once per
 * row or batch. */
static inline int check_cancel(const atomic_bool *cancel, err *why) {
    bool stop = cancel && atomic_load_explicit(cancel, memory_order_relaxed);
    return stop ? err_set(why, ERR_CANCELLED, "cancelled") : 0;
}

/* An array that grows: in its budget on the heap, else mapped from a temporary file of its own. At
 * most a page is on the heap in any case. Unlike in an arena, growing leaves no old copy behind.
 * Zero-initialise. */
typedef struct mem_array {
    mem_budget *budget;
    void *p;      /* the items; NULL before the first resize */
    size_t bytes; /* as passed to mem_array_resize */
    size_t size;  /* allocated bytes */
    int fd;       /* the temporary file, if `mapped` */
    bool mapped;
} mem_array;

/* Makes the array `bytes` bytes long, which may move it; new bytes are undefined. On failure it
 * stays as it was. ERR_FULL, ERR_IO. */
int mem_array_resize(mem_array *a, mem_budget *m, size_t bytes, err *e);
void mem_array_free(mem_array *a); /* the array is empty again */

/* Sorts like qsort, but can be cancelled; not stable. On ERR_CANCELLED and ERR_FULL the items are
 * undefined. */
int sort_array(void *items, size_t n, size_t size, int (*compare)(const void *, const void *),
               const atomic_bool *cancel, err *e);
/* The same; the second array that merging needs is in a budget. */
int sort_array_in(mem_budget *m, void *items, size_t n, size_t size,
                  int (*compare)(const void *, const void *), const atomic_bool *cancel, err *e);

/* ---- values ---------------------------------------------------------------------------------- */

typedef enum value_type {
    TYPE_NULL = 0, /* the type of every NULL value */
    TYPE_BOOLEAN,
    TYPE_INTEGER,
    TYPE_REAL,
    TYPE_TEXT,
    TYPE_BLOB,
    TYPE_VECTOR
} value_type;

const char *type_name(value_type t);        /* "INTEGER" */
bool type_parse(str name, value_type *out); /* INTEGER and the usual synonyms: INT, VARCHAR, … */
/* Appends the type of a column: "TEXT", "VECTOR(384)". dims: of a VECTOR column, else 0. */
void type_print(buf *b, value_type t, int dims);
static inline bool type_is_number(value_type t) {
    return t == TYPE_BOOLEAN || t == TYPE_INTEGER || t == TYPE_REAL;
}
/* Whether values of this type are `str` (value.s, column.s); all others are 8 bytes. */
static inline bool type_is_bytes(value_type t) {
    return t >= TYPE_TEXT;
}

/* A cell. The bytes of TEXT, BLOB and VECTOR are not owned. A VECTOR is its elements as f32, at any
 * address; no element is NaN, infinite or -0, so equal vectors have equal bytes. */
typedef struct value {
    value_type type;
    union {
        int64_t i; /* BOOLEAN (0/1) and INTEGER */
        double r;
        str s; /* TEXT, BLOB and VECTOR */
    };
} value;

static inline value value_null(void) {
    return (value){.type = TYPE_NULL, .i = 0};
}
static inline value value_int(int64_t i) {
    return (value){.type = TYPE_INTEGER, .i = i};
}
static inline value value_bool(bool b) {
    return (value){.type = TYPE_BOOLEAN, .i = b};
}
static inline value value_real(double r) {
    return (value){.type = TYPE_REAL, .r = r};
}
static inline value value_text(str s) {
    return (value){.type = TYPE_TEXT, .s = s};
}

value value_copy(arena *a, value v);
/* Total order of sorting and grouping: NULL < numbers < TEXT < BLOB < VECTOR. BOOLEAN, INTEGER and
 * REAL compare by exact numeric value, NaN lowest; TEXT and BLOB bytewise; VECTORs by their first
 * element that differs, a shorter one before one that it begins. */
int value_compare(value a, value b);
uint64_t value_hash(value v); /* equal for values that compare equal: 1, 1.0, TRUE */
/* Converts a value explicitly (CAST). ERR_TYPE: "'abc' is not an INTEGER". NULL converts to every
 * type. TEXT made from another type is allocated in `a`. */
int value_cast(arena *a, value v, value_type to, value *out, err *e);
/* Converts a value to be stored in a column: like value_cast, except that a REAL with a fraction is
 * not converted to INTEGER. */
int value_assign(arena *a, value v, value_type to, value *out, err *e);
/* Parses a BOOLEAN, 1 or 0, or one of the texts on, true, yes, 1, off, false, no, 0 in any case;
 * false: v is none of these. */
bool parse_boolean(value v, bool *on);
/* Appends the value as text: REAL in its shortest form that parses back, BOOLEAN as true or
 * false, TEXT and BLOB as their bytes, VECTOR as [1,0.5], NULL as nothing. */
void value_print(buf *b, value v);
/* Appends the value as an SQL literal: 'it''s', NULL, X'00ff', 1.0, TRUE. A VECTOR is a text, which
 * is converted where a VECTOR is expected: '[1,0.5]'. */
void value_print_sql(buf *b, value v);
/* Appends the value as JSON: a VECTOR as an array, a BLOB as a string of hexadecimal digits, a REAL
 * that is not finite as null. */
void value_print_json(buf *b, value v);
/* Appends a text as a JSON string; bytes that are not UTF-8 become U+FFFD. */
void buf_append_json(buf *out, str text);
/* Parses an optional sign and decimal digits; false: s is anything else, or out of range. */
bool parse_integer(str s, int64_t *out);
/* Parses a decimal number, with '.' in every locale; false: s is anything else (also hex, nan or
 * inf), or out of range. */
bool parse_real(str s, double *out);
/* Writes the shortest text that parses back to r: with a '.' or an exponent, or inf, -inf, nan.
 * `out` has 32 bytes; returns the length. */
size_t format_real(double r, char *out);
/* Returns r rounded for display: to `decimals` places, or to more if three significant digits need
 * more (0.00012345 with 3 decimals: 0.000123). */
double real_rounded(double r, int decimals);

/* ---- vectors (vector.c) ---------------------------------------------------------------------- */

enum { VECTOR_DIMS_MAX = 16000 };

static inline int vector_dims(str v) {
    return (int)(v.n / sizeof(float));
}
/* Parses "[1, -2.5, 3e-2]" into *out, in `a`. ERR_TYPE names what is wrong, with its position in
 * the text, counted from 1: no element, more than VECTOR_DIMS_MAX, NaN, an element beyond f32. */
int vector_parse(arena *a, str text, str *out, err *e);
/* Makes a VECTOR of n elements in `a`. ERR_TYPE as vector_parse; the position is an element's. */
int vector_make(arena *a, const float *elements, int n, str *out, err *e);
void vector_print(buf *b, str v); /* each element in the shortest form that parses back */
int vector_compare(str x, str y); /* as value_compare */
/* Compares two values of a type whose values are `str`. */
static inline int bytes_compare(value_type t, str x, str y) {
    return t == TYPE_VECTOR ? vector_compare(x, y) : str_compare(x, y);
}
/* ERR_TYPE, "expected 3 dimensions, not 4", if v has not `dims` elements. dims = 0: any number. */
int vector_check(str v, int dims, err *e);

typedef enum vector_metric { VECTOR_L2, VECTOR_COSINE, VECTOR_INNER } vector_metric;

/* Returns the root of the sum of the squares of the elements. */
double vector_norm(str v);
/* Returns the distance of two vectors with equal numbers of elements: Euclidean; 1 - the cosine of
 * their angle, NaN if one of them is zero; the inner product. y_norm: vector_norm(y), only for
 * VECTOR_COSINE. Sums are f32 in 32 lanes, so the result has the same bits on every machine; a sum
 * beyond f32's range is computed in double. */
double vector_distance(vector_metric m, str x, str y, double y_norm);

/* Vectors in a quarter of their size: element i is about codes[i] times the returned scale. A query has
 * codes of 12 bits. vector_codes_inner: sum of the products of the codes, exact. */
double vector_encode(str v, int8_t *codes);
double vector_encode_query(str v, int16_t *codes);
int64_t vector_codes_inner(const int8_t *x, const int16_t *query, size_t n);

enum { VECTOR_TILE = 4 };

/* Sets out[i * VECTOR_TILE + j] to about the inner product of x[i] and y[j], vectors of n elements.
 * It differs from vector_distance's by at most vector_inner_error(n) × the norms of both. */
void vector_inner_tile(const char *const *x, int nx, const char *const y[VECTOR_TILE], size_t n,
                       float *out);
double vector_inner_error(size_t n);

/* ---- batches --------------------------------------------------------------------------------- */

enum { BATCH_ROWS = 2048 };

/*
 * One column of a batch.
 *
 *   null  [1 0 0 …]   a byte per row, 1 = NULL; a NULL pointer: no row is NULL
 *   data  i | r | s   an entry per row, zero for NULL
 */
typedef struct column {
    value_type type;
    uint8_t *null;
    union {
        int64_t *i; /* BOOLEAN, INTEGER */
        double *r;
        str *s; /* TEXT, BLOB, VECTOR */
    };
} column;

/* Up to BATCH_ROWS rows, by column. Columns and cells are in `mem` or in memory that outlives the
 * batch (the map of a read transaction, the arena of a parent). A batch that an operator returns is
 * valid until the operator's next call. */
typedef struct batch {
    int rows;
    int ncols;
    column *cols;
    arena *mem;
} batch;

/* Sets b to ncols columns of the given types with `capacity` rows allocated in `mem`. */
void batch_init(batch *b, arena *mem, const value_type *types, int ncols, int capacity);
void column_init(column *c, arena *mem, value_type type, int capacity, bool with_nulls);
value column_get(const column *c, int row);
/* Stores v, of c's type or NULL, at `row`. The first NULL allocates null bytes for `capacity` rows
 * in `mem`. The bytes of a `str` are referenced, not copied. */
void column_set(column *c, arena *mem, int capacity, int row, value v);
static inline bool column_is_null(const column *c, int row) {
    return c->null != NULL && c->null[row] != 0;
}
/* out[k] = in[rows[k]], allocated in `mem`; the bytes of a `str` are referenced, not copied. */
void column_gather(column *out, arena *mem, const column *in, const int *rows, int count);

/* ---- hashes ---------------------------------------------------------------------------------- */

typedef struct hash128 {
    uint64_t low, high;
} hash128;

uint64_t hash64(const void *p, size_t n, uint64_t seed); /* XXH3 */
hash128 hash_128(const void *p, size_t n);               /* XXH3-128 */
static inline bool hash128_equal(hash128 a, hash128 b) {
    return a.low == b.low && a.high == b.high;
}
static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
    uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Monotonic time in milliseconds; only differences have a meaning. */
double clock_ms(void);
static inline double clock_seconds(void) {
    return clock_ms() / 1e3;
}
/* CPU time of this thread in milliseconds. */
double clock_thread_ms(void);

/* ---- figures of LLM work --------------------------------------------------------------------- */

/* The names of figures wherever they are printed: EXPLAIN, .stats, the line after a result and the
 * live view. */
#define WORDS_ASKED "rows asked" /* rows that needed an answer, for each call */
#define WORDS_INPUTS "distinct inputs"
#define WORDS_INPUTS_SHORT "inputs" /* where a line has little room */
#define WORDS_PROMPTS "prompts"     /* sent to the model: distinct inputs without known answers */
#define WORDS_PROMPT "prompt tokens"
#define WORDS_COMPUTED "computed"
#define WORDS_CHOICE "choice tokens" /* tokens of allowed answers, computed to choose among them */
#define WORDS_HIT_RATE "hit rate"
#define WORDS_OUTPUT "output tokens"
#define WORDS_KNOWN "answers known"

/* The counters of LLM work, from the engine to the screen. LLM operators count the first seven, an
 * engine's session the rest; both are summed over a plan node and over a statement.
 *
 * X(name, label, always, key): `label` names the figure in .stats; "": it is not printed there.
 * `always`: .stats prints it even if it is 0. `key` names it in EXPLAIN (FORMAT JSON); "": it is
 * not written. */
/* clang-format off */
#define LLM_COUNTERS(X)                                                                             \
    X(inputs, WORDS_ASKED, true, "")                /* answers that rows needed */                  \
    X(distinct_inputs, WORDS_INPUTS, true, "distinct_inputs")                                       \
    X(answers_stored, WORDS_KNOWN, true, "stored_answers")     /* found in the cache */             \
    X(answers_repeated, "", false, "known_answers") /* the statement had sent an equal prompt */    \
    X(answers_calibrated, "changed by priors", false, "") /* answers that were not likeliest */ \
    X(answers_ended, "ended by max_tokens", false, "")                                              \
    X(prompts_shortened, "fields left out", false, "") /* prompts cut to fit the context */         \
    X(stored_tokens, "", false, "")                 /* prompt tokens of stored answers */           \
    X(requests, WORDS_PROMPTS, true, "")                                                              \
    X(done, "", false, "")                          /* requests with an answer */                   \
    /* all tokens of an answered prompt; of an unanswered one those computed or read so far */      \
    X(prompt_tokens, WORDS_PROMPT, true, "prompt_tokens")                                           \
    X(head_tokens, "of these shared head", true, "")  /* prompt tokens in a head */                 \
    X(computed_tokens, WORDS_COMPUTED, true, "computed_tokens") /* went through the model */        \
    X(choice_tokens, WORDS_CHOICE, false, "choice_tokens") /* of allowed answers, computed */    \
    X(reused_memory, "reused from memory", true, "") /* tokens whose KV was in memory */            \
    X(reused_disk, "reused from disk", true, "reused_disk") /* tokens whose KV was on disk */       \
    X(output_tokens, WORDS_OUTPUT, true, "output_tokens")                                           \
    X(passes, "model passes", true, "")                                                             \
    X(evicted_blocks, "", false, "")                                                                \
    X(truncated, "", false, "")                     /* requests cut to fit the context */           \
    /* how often a request waited for its KV while another request, or the pass, went first */      \
    X(yielded, "", false, "")                                                                       \
    /* of models at servers */                                                                      \
    X(served, "", false, "")                        /* requests that a server answered */           \
    X(unreported, "", false, "")  /* of these: the server did not report cached tokens */           \
    X(shared_tokens, "expected to be cached", false, "expected_cached") /* by our prefix tree */    \
    X(retries, "sent again", false, "retries")                                                      \
    X(refused, "refused for now (429)", false, "")                                                  \
    X(failed, "", false, "")                        /* requests that failed after they were sent */ \
    X(broken_cells, "", false, "")  /* values with names of control tokens, which were broken up */
/* X(name): milliseconds; `money` is in the model's currency. */
#define LLM_TIMES(X)                                                                                \
    X(prefill_ms)                                                                                   \
    X(decode_ms)                                                                                    \
    X(load_ms)  /* opening the model and reading its weights */                                     \
    X(store_ms) /* looking up KV blocks on disk and reading them */                                 \
    X(held_ms)  /* requests waited for a server's limits */                                         \
    X(money)    /* price of the requests to servers */
/* clang-format on */

#define LLM_COUNTER_MEMBER(name, label, always, key) uint64_t name;
#define LLM_TIME_MEMBER(name) double name;
typedef struct llm_figures {
    LLM_COUNTERS(LLM_COUNTER_MEMBER)
    LLM_TIMES(LLM_TIME_MEMBER)
} llm_figures;

void llm_figures_add(llm_figures *sum, const llm_figures *more);
/* Adds to *sum what was counted from *before to *now. */
void llm_figures_add_since(llm_figures *sum, const llm_figures *before, const llm_figures *now);
/* Returns the share of prompt tokens that were not computed; 0 if there are no prompt tokens.
 * Negative if prefixes were evicted and computed again. */
double llm_hit_rate(const llm_figures *f);

/* ---- eviction -------------------------------------------------------------------------------- */

/* The score of a cache entry: of two entries the one with the lower score is evicted first.
 *
 *   uses    how often the entry was, or will be, used
 *   saves   what one use saves, per byte of the entry, in any unit
 *   unused  uses of other entries since its last use
 *   held    how many entries fit the cache
 *
 * The score is the log2 of a value that is (uses + 1) * saves at the entry's last use, and halves
 * whenever `unused` grows by 4 * held. The difference of two entries' scores stays the same while
 * neither is used, so `unused` may be counted from any moment that is the same for all entries. */
double retention_score(double uses, double saves, double unused, double held);

/* ---- directories for user files -------------------------------------------------------------- */

/* Appends kvasir's directory for one kind of files (XDG base directory specification):
 * "$variable/kvasir" if the variable is an absolute path, else "~/fallback/kvasir". False: the user
 * has no home directory either. */
bool xdg_path(const char *variable, const char *fallback, buf *out);

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

/* Decodes the code point at s.p[0] into *cp and returns its length in bytes. An invalid byte gives
 * one U+FFFD. Returns 0 if s is empty. */
size_t utf8_next(str s, uint32_t *cp);
size_t utf8_encode(uint32_t cp, char out[4]); /* returns the bytes written */
bool utf8_valid(str s);
/* Returns s without incomplete characters at its ends. */
str utf8_whole(str s);
/* Copies as many whole characters of s to out[size] as fit with a NUL after them. */
void utf8_copy(char *out, size_t size, str s);
size_t utf8_length(str s); /* in code points; an invalid byte counts as one */
/* Returns the byte offset of the code point with this index, at most s.n. */
size_t utf8_offset(str s, size_t code_points);
/* Returns the length in bytes of the grapheme cluster at the start of s, and sets *width to its
 * terminal columns: CJK and emoji 2, combining marks 0, control characters 1. */
size_t utf8_cluster(str s, int *width);
int utf8_width(str s); /* the sum over the clusters of s */
/* Returns the length in bytes of the longest prefix of whole grapheme clusters that is at most
 * `columns` wide. */
size_t utf8_fit(str s, int columns);
str utf8_lower(arena *a, str s); /* simple case mapping */
str utf8_upper(arena *a, str s);

#endif
