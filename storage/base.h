/*
 * base.h - the vocabulary every folder shares: strings, arenas, errors, values, batches, hashes,
 * UTF-8.
 *
 * Owns no file and knows no LMDB. Ownership: what an arena hands out lives until the arena is reset
 * or freed and is never freed singly; everything else says so at its declaration. Small allocations
 * cannot fail here: mem_* and arena_* end the process with a message when the system is out of
 * memory. Allocations whose size follows the user's data (KV pools, row sets) go through
 * mem_try_alloc or a spilling arena and report an error instead.
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
/* Does not compile when a table indexed by an enum ends before the enum's `count` does. */
#define BASE_COVERS(table, count)                                                                  \
    _Static_assert(BASE_COUNT(table) == (size_t)(count), "each of " #count " has its row")
#define BASE_MIN(a, b) ((a) < (b) ? (a) : (b))
#define BASE_MAX(a, b) ((a) > (b) ? (a) : (b))

/* ---- memory ---------------------------------------------------------------------------------- */

/* malloc, calloc, realloc, strdup and strndup that never return NULL; free with free(). */
void *mem_alloc(size_t bytes);
void *mem_zalloc(size_t bytes);
void *mem_realloc(void *p, size_t bytes);
char *mem_strdup(const char *c_string); /* NULL of NULL */
char *mem_strndup(const char *p, size_t n);
/* Like malloc, for sizes that follow the user's data: NULL when the system refuses. */
void *mem_try_alloc(size_t bytes);

/* What the arenas of one statement hold together, on the heap and in temporary files, and how large
 * these files may become. Arenas of one workmem may be used by several threads, each by one at a
 * time; it outlives them. */
typedef struct workmem workmem;

/* Bytes now, and the most at any moment since workmem_begin. */
typedef struct workmem_use {
    size_t heap_bytes, heap_peak_bytes;
    size_t file_bytes, file_peak_bytes;
} workmem_use;

/* Files are made in `dir` (NULL: $TMPDIR, else /tmp) and may have files_max_bytes together (-1: half
 * of what is free there when the first is made). */
workmem *workmem_new(const char *dir, int64_t files_max_bytes);
void workmem_free(workmem *w);                           /* NULL is fine */
void workmem_begin(workmem *w, int64_t files_max_bytes); /* as new, for another statement */
void workmem_usage(const workmem *w, workmem_use *out);

/* A chain of chunks; allocation bumps a pointer. 16-byte aligned. */
typedef struct arena arena;

arena *arena_new(void);
arena *arena_new_in(workmem *w); /* counted there; NULL is fine */
/* An arena that keeps at most `limit_bytes` on the heap; later chunks are mapped from a nameless
 * temporary file of the workmem (NULL: one of its own), so the system may write them out. A full
 * disk, or the workmem's limit, ends in arena_failed(), not in a signal: space is reserved with
 * posix_fallocate first. */
arena *arena_new_spilling(size_t limit_bytes, workmem *w);
void arena_free(arena *a);  /* NULL is fine */
void arena_reset(arena *a); /* forgets all, keeps a chunk of at most 1 MiB */
/* Never NULL; after a failed spill the memory comes from the heap and arena_failed() is true. */
void *arena_alloc(arena *a, size_t bytes);
void *arena_zalloc(arena *a, size_t bytes);
bool arena_failed(const arena *a);
size_t arena_bytes(const arena *a);                     /* handed out so far */
size_t arena_spilled_bytes(const arena *a);             /* of these, in the temporary file */
char *arena_strndup(arena *a, const char *p, size_t n); /* NUL-terminated copy */
char *arena_printf(arena *a, const char *format, ...) BASE_PRINTF(2, 3);

#define ARENA_NEW(a, type) ((type *)arena_zalloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_zalloc((a), sizeof(type) * (size_t)(n)))

/* ---- strings --------------------------------------------------------------------------------- */

/* Bytes with a length; not NUL-terminated, not owned. */
typedef struct str {
    const char *p;
    size_t n;
} str;

#define STR(literal) ((str){(literal), sizeof(literal) - 1})
str str_from(const char *c_string); /* NULL gives an empty str */
bool str_equal(str a, str b);
static inline char ascii_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}
bool str_equal_nocase(str a, str b); /* ASCII case only */
int str_compare_nocase(str a, str b);
uint64_t str_hash_nocase(str s); /* alike for texts that str_equal_nocase holds equal */
int str_compare(str a, str b);   /* bytewise, <0, 0, >0 */
/* Removes from *rest the text up to the first `separator`, and the separator, and returns that text;
 * all of *rest where there is no separator. */
str str_split_next(str *rest, char separator);
/* s without the characters of `blanks` at its ends. */
str str_trim(str s, const char *blanks);
#define STR_SPACES " \t\n\v\f\r" /* isspace's in C */
str str_copy(arena *a, str s);   /* the copy is NUL-terminated behind its n bytes */

/* A growable string on the heap; `p` is NUL-terminated
 * once anything was appended. Zero-initialise. */
typedef struct buf {
    char *p;
    size_t n, cap;
} buf;

void buf_append(buf *b, const void *p, size_t n);
void buf_append_str(buf *b, str s);
void buf_append_c(buf *b, const char *c_string);
void buf_append_char(buf *b, char c);
void buf_printf(buf *b, const char *format, ...) BASE_PRINTF(2, 3);
void buf_append_bytes(buf *b, uint64_t bytes); /* "94 MB", "1.5 GB": powers of 1,024, as in SET */
void buf_clear(buf *b);                        /* keeps the memory */
void buf_free(buf *b);
str buf_str(const buf *b);

/* The candidate nearest to `word` by Damerau-Levenshtein distance, ASCII case ignored, or NULL when
 * none is near enough (distance > max(1, n/3)). Ties go to the first. */
const char *str_nearest(str word, const char *const *candidates, size_t count);

/* ---- errors ---------------------------------------------------------------------------------- */

typedef enum err_code {
    ERR_NONE = 0,
    ERR_SYNTAX,      /* the text is not SQL */
    ERR_BIND,        /* a name, type or use that does not exist */
    ERR_TYPE,        /* a value that does not convert */
    ERR_CONSTRAINT,  /* NOT NULL, UNIQUE, CHECK, primary key */
    ERR_ARITHMETIC,  /* overflow */
    ERR_IO,          /* the operating system refused */
    ERR_CORRUPT,     /* bytes that cannot be what they claim */
    ERR_BUSY,        /* another process holds the lock */
    ERR_FULL,        /* disk, map or memory budget exhausted */
    ERR_CANCELLED,   /* the user stopped it */
    ERR_LIMIT,       /* beyond a fixed limit of ours */
    ERR_MODEL,       /* the model is missing or cannot do it */
    ERR_UNSUPPORTED, /* understood, but not offered */
    ERR_INTERNAL     /* our mistake */
} err_code;

/* What went wrong. `pos` is a byte offset into the statement's text, -1 when there is no place. */
typedef struct err {
    err_code code;
    int pos, len;
    char message[1024];
    char hint[256];
} err;

/* All return `code` as an int, so that a caller can `return
 * err_set(e, …)`; 0 is success everywhere. The arguments may be e's
 * own texts, as in err_set(e, e->code, "%s: %s", where, e->message). */
int err_set(err *e, err_code code, const char *format, ...) BASE_PRINTF(3, 4);
int err_set_at(err *e, err_code code, int pos, int len, const char *format, ...) BASE_PRINTF(5, 6);
/* Message ends in ": " and strerror(errno_value); ERR_IO, or ERR_FULL for a full disk. */
int err_set_errno(err *e, int errno_value, const char *format, ...) BASE_PRINTF(3, 4);
void err_hint(err *e, const char *format, ...) BASE_PRINTF(2, 3);
void err_clear(err *e);
int arena_full_error(const arena *a, err *e); /* ERR_FULL or ERR_IO: why it failed, if it has */

/* Looked at once a row, or a batch: ERR_CANCELLED once *cancel is true; NULL: never. */
static inline int check_cancel(const atomic_bool *cancel, err *why) {
    bool stop = cancel && atomic_load_explicit(cancel, memory_order_relaxed);
    return stop ? err_set(why, ERR_CANCELLED, "cancelled") : 0;
}

/* Sorts n items of `size` bytes as qsort does, items that are equal in any order. ERR_CANCELLED soon
 * after *cancel is true (NULL: never), ERR_FULL: the items are then of no use. */
int sort_array(void *items, size_t n, size_t size, int (*compare)(const void *, const void *),
               const atomic_bool *cancel, err *e);

/* ---- values ---------------------------------------------------------------------------------- */

typedef enum value_type {
    TYPE_NULL = 0, /* the type of the literal NULL alone */
    TYPE_BOOLEAN,
    TYPE_INTEGER,
    TYPE_REAL,
    TYPE_TEXT,
    TYPE_BLOB
} value_type;

const char *type_name(value_type t);        /* "INTEGER" */
bool type_parse(str name, value_type *out); /* INT, BIGINT, VARCHAR, … as the field knows them */
static inline bool type_is_number(value_type t) {
    return t == TYPE_BOOLEAN || t == TYPE_INTEGER || t == TYPE_REAL;
}

/* One cell. TEXT and BLOB bytes are not owned. */
typedef struct value {
    value_type type;
    union {
        int64_t i; /* BOOLEAN (0/1) and INTEGER */
        double r;
        str s; /* TEXT and BLOB */
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
/* Total order for sorting and grouping: NULL < numbers (BOOLEAN, INTEGER and REAL compare as
 * numbers, exactly, NaN lowest) < TEXT < BLOB (both bytewise). Equal means the same group. */
int value_compare(value a, value b);
uint64_t value_hash(value v); /* equal values (1, 1.0, TRUE) hash alike */
/* Strict conversion; ERR_TYPE with a message like `'abc' is not an INTEGER` when the value does not
 * convert. NULL converts to every type. TEXT made from other types is allocated in `a`. */
int value_cast(arena *a, value v, value_type to, value *out, err *e);
/* As value_cast, but a REAL with a fraction is no
 * INTEGER: what a column of that type may be given. */
int value_assign(arena *a, value v, value_type to, value *out, err *e);
/* *on is what v says: a BOOLEAN, 1 or 0, or on, true, yes, off, false, no in any case. False: v is
 * none of these. */
bool parse_boolean(value v, bool *on);
/* Appends the value as machine output prints it: shortest round-trip REAL, BOOLEAN as 0/1, TEXT
 * raw, NULL empty, BLOB as its bytes. */
void value_print(buf *b, value v);
/* Appends it as an SQL literal: 'it''s', NULL, X'00ff', 1.0, TRUE. */
void value_print_sql(buf *b, value v);
bool parse_integer(str s, int64_t *out); /* whole string, optional sign, decimal, in range */
bool parse_real(str s, double *out);     /* whole string, never by locale; no hex; no nan, no inf */
/* Shortest text that reads back as `r`; always has a
 * '.', an exponent, or is inf/nan. `out` holds 32 bytes. */
size_t format_real(double r, char *out);
/* A figure for people: r to so many decimals, or to three digits where it would have fewer. */
double real_rounded(double r, int decimals);

/* ---- batches --------------------------------------------------------------------------------- */

enum { BATCH_ROWS = 2048 };

/*
 * One column of a batch.
 *
 *   null  [1 0 0 …]   one byte a row, 1 = NULL; NULL pointer: no row is NULL
 *   data  i | r | s   one entry a row; the entry of a NULL row is defined (zero) but means nothing
 */
typedef struct column {
    value_type type;
    uint8_t *null;
    union {
        int64_t *i; /* BOOLEAN, INTEGER */
        double *r;
        str *s; /* TEXT, BLOB */
    };
} column;

/* Up to BATCH_ROWS rows of columns. Columns and cells live in `mem` or in memory that outlives the
 * batch (a read transaction's map, a parent's arena); a batch an operator returns is valid until
 * that operator is asked again. */
typedef struct batch {
    int rows;
    int ncols;
    column *cols;
    arena *mem;
} batch;

/* Sets up `b` with ncols columns of the given types and room for `capacity` rows in `mem`. */
void batch_init(batch *b, arena *mem, const value_type *types, int ncols, int capacity);
void column_init(column *c, arena *mem, value_type type, int capacity, bool with_nulls);
value column_get(const column *c, int row);
/* Stores v (already of c's type, or NULL) at `row`; allocates the null bytes for `capacity` rows in
 * `mem` on the first NULL. TEXT is referenced, not copied. */
void column_set(column *c, arena *mem, int capacity, int row, value v);
static inline bool column_is_null(const column *c, int row) {
    return c->null != NULL && c->null[row] != 0;
}
/* out[k] = in[rows[k]]: a new column in `mem`; cells are referenced, not copied. */
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

/* Milliseconds since some moment in the past; differences count. */
double clock_ms(void);
static inline double clock_seconds(void) {
    return clock_ms() / 1e3;
}
/* The same of the processor time that this thread had: what others do meanwhile is not in it. */
double clock_thread_ms(void);

/* ---- figures of LLM work --------------------------------------------------------------------- */

/* The names of figures wherever they are printed: EXPLAIN, .stats, the line after a result and the
 * live view. */
#define WORDS_INPUTS "distinct inputs"
#define WORDS_PROMPT "prompt tokens"
#define WORDS_COMPUTED "computed"
#define WORDS_HIT_RATE "hit rate"
#define WORDS_OUTPUT "output tokens"
#define WORDS_KNOWN "answers known"

/* The counters of LLM work, from the engine to the screen. LLM operators count the first seven, an
 * engine's session the rest; both are summed over a plan node and over a statement.
 *
 * X(name, label, always, key): `label` names the figure in .stats ("": it is not printed there),
 * where it is printed even if it is 0 or not; `key` in EXPLAIN (FORMAT JSON) ("": not written). */
/* clang-format off */
#define LLM_COUNTERS(X)                                                                             \
    X(inputs, "LLM inputs", true, "")               /* answers that rows needed */                  \
    X(distinct_inputs, WORDS_INPUTS, true, "distinct_inputs")                                       \
    X(answers_stored, WORDS_KNOWN, true, "stored_answers")     /* found in the cache */             \
    X(answers_repeated, "", false, "known_answers") /* the statement had sent an equal prompt */    \
    X(answers_ended, "ended by max_tokens", false, "")                                              \
    X(prompts_shortened, "fields left out", false, "")         /* llm_overflow = 'truncate' */      \
    X(stored_tokens, "", false, "")                 /* of prompts whose answers were stored */      \
    X(requests, "requests", true, "")                                                               \
    X(done, "", false, "")                          /* requests with an answer */                   \
    /* sent, as if each prompt stood alone; of an unfinished prompt what was computed or read */    \
    X(prompt_tokens, WORDS_PROMPT, true, "prompt_tokens")                                           \
    X(head_tokens, "of these shared head", true, "")           /* llm_request.head_tokens */        \
    X(computed_tokens, WORDS_COMPUTED, true, "computed_tokens") /* went through the model */        \
    X(reused_memory, "reused from memory", true, "")           /* tokens */                         \
    X(reused_disk, "reused from disk", true, "reused_disk")    /* tokens */                         \
    X(output_tokens, WORDS_OUTPUT, true, "output_tokens")                                           \
    X(passes, "model passes", true, "")                                                             \
    X(evicted_blocks, "", false, "")                                                                \
    X(truncated, "", false, "")                     /* requests that lost fields */                 \
    X(yielded, "", false, "") /* requests whose KV was being read when another went first */
/* X(name): milliseconds. */
#define LLM_TIMES(X)                                                                                \
    X(prefill_ms)                                                                                   \
    X(decode_ms)                                                                                    \
    X(load_ms)  /* opening the model and reading its weights */                                     \
    X(store_ms) /* looking for KV blocks in the store and reading them */
/* clang-format on */

#define LLM_COUNTER_MEMBER(name, label, always, key) uint64_t name;
#define LLM_TIME_MEMBER(name) double name;
typedef struct llm_figures {
    LLM_COUNTERS(LLM_COUNTER_MEMBER)
    LLM_TIMES(LLM_TIME_MEMBER)
} llm_figures;

void llm_figures_add(llm_figures *sum, const llm_figures *more);
/* Adds what was counted since `before`. */
void llm_figures_add_since(llm_figures *sum, const llm_figures *before, const llm_figures *now);
/* The share of prompt tokens that were not computed; 0 where none was sent. Negative where prefixes
 * were evicted and computed again. */
double llm_hit_rate(const llm_figures *f);

/* ---- eviction -------------------------------------------------------------------------------- */

/* The score of a cache entry: of two entries the one with the lower score is evicted first.
 *
 *   uses    how often the entry was, or will be, used
 *   saves   what one use saves, per unit of the room that the entry takes
 *   unused  uses of other entries since its last use
 *   held    how many entries the cache has room for
 *
 * The score is log2 of a value that halves with `unused`. The difference of two entries' scores
 * stays the same while neither is used, so `unused` may be counted from any moment that is the same
 * for all entries. */
double retention_score(double uses, double saves, double unused, double held);

/* ---- a user's own files ---------------------------------------------------------------------- */

/* Appends kvasir's directory for one kind of files (XDG base directory specification):
 * "$variable/kvasir" where the variable is an absolute path, else "~/fallback/kvasir". False: the
 * user has no home directory either. */
bool xdg_path(const char *variable, const char *fallback, buf *out);

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

/* Bytes of the code point at s.p[0] (1 for an invalid byte,
 * 0 at the end); its value in *cp (U+FFFD if invalid). */
size_t utf8_next(str s, uint32_t *cp);
size_t utf8_encode(uint32_t cp, char out[4]); /* returns the bytes written */
bool utf8_valid(str s);
/* `s` without the bytes of characters that its ends cut in two. */
str utf8_whole(str s);
/* As many whole characters of `s` as out[size] has room for, and a NUL. */
void utf8_copy(char *out, size_t size, str s);
size_t utf8_length(str s); /* code points; an invalid byte counts as one */
size_t utf8_offset(str s,
                   size_t code_points); /* byte offset of the n-th code point, s.n if beyond */
/* Terminal columns: grapheme clusters, CJK and emoji two, combining marks none, control characters
 * as they are shown by utf8_escape_control (one each). */
int utf8_width(str s);
/* The longest prefix, at a grapheme boundary, of at
 * most `columns` terminal columns; returns its bytes. */
size_t utf8_fit(str s, int columns);
str utf8_lower(arena *a, str s); /* simple case mapping */
str utf8_upper(arena *a, str s);

#endif
