/*
 * json_int.h - the structs and functions that the JSON files share.
 *
 *   json_scan.c   checks one object against RFC 8259 and finds its members
 *   json_keys.c   which column a key is; detects columns and types from the first objects
 *   json.c        objects of a file one after the other, batches of typed rows
 *
 * No tree is built: a member is the place of its key and of its value in the window, and only values
 * that become cells are converted. A nested object or array is a cell with its JSON text. So a
 * number that becomes TEXT is printed as it is in the file, and memory is that of one object.
 */
#ifndef KVASIR_JSON_INT_H
#define KVASIR_JSON_INT_H

#include "file/file_int.h"

enum {
    JSON_DEPTH_MAX = 500,   /* depth of nested objects and arrays: json_scan.c is recursive */
    JSON_COLUMNS_MAX = 2000 /* as of a table */
};
/* Maximum size of an object, which must be in the window as a whole. */
#define JSON_OBJECT_MAX ((size_t)64 << 20)

/* ---- one object ------------------------------------------------------------------------------ */

typedef enum json_kind {
    JSON_NULL,
    JSON_BOOLEAN,
    JSON_INTEGER, /* a number without fraction and exponent, of any length */
    JSON_REAL,
    JSON_STRING,
    JSON_NESTED /* an object or an array */
} json_kind;

/* Bytes in the window: of a string without its quotes, else of the whole value. */
typedef struct json_text {
    const char *p;
    size_t n;
    bool escaped; /* a string with backslashes */
} json_text;

typedef struct json_member {
    json_text key, value;
    json_kind kind;
} json_member;

typedef enum json_status {
    JSON_DONE = 0, /* members are filled */
    JSON_MORE,     /* the object does not end in the window */
    JSON_BAD       /* not JSON: why, at; members are those up to the error */
} json_status;

typedef struct json_object {
    json_member *members;
    int n, cap;
    const char *next; /* the byte after the object */
    const char *at;   /* the byte that is wrong */
    char why[200];
} json_object;

/* Scans the object at p, which is a '{'. `last`: the input ends at `end`. Everything is checked:
 * grammar, escapes, surrogates, UTF-8. Keys may occur twice. */
json_status json_scan(const char *p, const char *end, bool last, json_object *out);
/* Writes the string that `text` means to `out`, which has room for text.n bytes; returns its
 * length. */
size_t json_unescape(json_text text, char *out);
/* Returns what the byte at p begins, for messages: "an array", "a number", "'x'". `out` has room for
 * 32 bytes. */
const char *json_describe(const char *p, const char *end, char *out);

/* ---- the reader ------------------------------------------------------------------------------ */

/* What comes next in the file. */
typedef enum json_place {
    JSON_BEGIN,    /* [ or the first object */
    JSON_SEQUENCE, /* an object or the end */
    JSON_FIRST,    /* an object or ], after [ */
    JSON_NEXT,     /* a comma or ], after an element */
    JSON_AFTER     /* the end, after ] */
} json_place;

/* A key that is a column. */
typedef struct json_key {
    str text;
    value_type type; /* while types are detected; TYPE_NULL: no value yet */
    int64_t seen;    /* number of the last object that has this key, from 1 */
    int values;      /* number of values that are not NULL in the batch */
} json_key;

typedef struct json {
    table_file f;
    json_object object; /* the object at in.start */
    int64_t count;      /* number of objects before it */
    json_place place;
    bool sampling;  /* an object that is not in the window as a whole counts as the end */
    json_key *keys; /* [nkeys] by column */
    int nkeys, keys_cap;
    hash_index by_key;
    int *order; /* [i] column of the i-th member of an earlier object: objects are often alike */
    int norder, order_cap;
} json;

/* Finds the object at in.start and scans it, without consuming it. Sets *end if there is none. */
int json_peek(json *j, bool *end, err *e);
/* Moves past the object. */
void json_advance(json *j);
/* Sets an error at byte `at` of the object, with the key of the member that contains it. */
int json_error(const json *j, err *e, err_code code, const char *at, const char *why);

/* Detects keys and types of the columns, and leaves in.start at the first object. */
int json_detect(json *j, err *e);
/* Returns the column of member i of the object; -1: no column has this key. */
int json_column(json *j, int i);
/* Notes that member i is the object's value for column `at`. ERR_CORRUPT if it has another. */
int json_note(json *j, int i, int at, err *e);

#endif
