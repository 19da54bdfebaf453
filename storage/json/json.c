/*
 * json.c - reading JSON: the objects of a file, one after the other or in one array, as batches of
 * typed rows.
 *
 * Invariant: f.line is the line of the byte at in.start; between objects all bytes but blanks are
 * checked, so that nothing in the file is skipped silently.
 */
#include <stdlib.h>
#include <string.h>

#include "json_int.h"

/* A batch ends after objects of this size, so that 2,048 long texts are not in memory at once. */
#define BATCH_BYTES ((size_t)64 << 20)

/* ---- objects --------------------------------------------------------------------------------- */

int json_error(const json *j, err *e, err_code code, const char *at, const char *why) {
    const json_object *o = &j->object;
    const char *start = j->f.in.p + j->f.in.start;
    const json_member *m = NULL; /* the last member that begins before `at` */
    for (int i = 0; at > start && i < o->n && o->members[i].key.p <= at; i++)
        m = &o->members[i];
    str key = m ? (str){m->key.p, m->key.n} : (str){0};
    return file_error(&j->f, e, code, at, m ? &key : NULL, "%s", why);
}

/* Moves to the next byte that is not blank. Sets *c to it, or to -1 at the end of the input. */
static int next_byte(json *j, int *c, err *e) {
    file_input *in = &j->f.in;
    for (;; in->start++) {
        int status = in->start == in->end ? file_input_fill(in, 1, e) : 0;
        if (status)
            return status;
        if (in->start == in->end) {
            *c = -1;
            return 0;
        }
        *c = (unsigned char)in->p[in->start];
        j->f.line += *c == '\n';
        if (*c != ' ' && *c != '\n' && *c != '\t' && *c != '\r')
            return 0;
    }
}

static int skip_byte(json *j, int *c, err *e) {
    j->f.in.start++;
    return next_byte(j, c, e);
}

/* Sets the error "expected an object, found …" for the byte at in.start. */
static int expected(const json *j, const char *what, err *e) {
    const char *p = j->f.in.p + j->f.in.start;
    char found[32];
    return file_error(&j->f, e, ERR_CORRUPT, p, NULL, "expected %s, found %s", what,
                      json_describe(p, j->f.in.p + j->f.in.end, found));
}

/* Sets the error for the byte c at in.start, which begins no object. */
static int no_object(json *j, int c, err *e) {
    bool is_value = c > 0 && strchr("\"[-0123456789tfn", c);
    if (!j->f.object || !is_value)
        return expected(j, "an object", e);
    const char *p = j->f.in.p + j->f.in.start;
    char found[32];
    j->f.object = 0;
    file_error(&j->f, e, ERR_CORRUPT, p, NULL, "element %lld of the array is %s, not an object",
               (long long)j->count + 1, json_describe(p, j->f.in.p + j->f.in.end, found));
    err_hint(e, "jq -c '.[] | {value: .}' '%s' makes objects of values", j->f.name);
    return ERR_CORRUPT;
}

/* Moves past brackets and commas to the next object. */
static int find_object(json *j, bool *end, err *e) {
    int c, status = next_byte(j, &c, e);
    bool comma = false;
    if (!status && j->place == JSON_BEGIN) {
        j->place = c == '[' ? JSON_FIRST : JSON_SEQUENCE;
        status = c == '[' ? skip_byte(j, &c, e) : 0;
    } else if (!status && j->place == JSON_NEXT && c != ']') {
        if (c != ',')
            return expected(j, "',' or ']'", e);
        comma = true;
        status = skip_byte(j, &c, e);
    }
    if (!status && c == ']' && !comma && (j->place == JSON_FIRST || j->place == JSON_NEXT)) {
        j->place = JSON_AFTER;
        j->f.object = 0;
        status = skip_byte(j, &c, e);
    }
    if (status)
        return status;
    *end = c < 0 && (j->place == JSON_SEQUENCE || j->place == JSON_AFTER);
    if (*end)
        return 0;
    if (j->place == JSON_AFTER)
        return expected(j, "the end of the file after the array", e);
    j->f.object = j->place == JSON_SEQUENCE ? 0 : j->count + 1;
    return c == '{' ? 0 : no_object(j, c, e);
}

static int too_long(const json *j, err *e) {
    file_error(&j->f, e, ERR_LIMIT, j->f.in.p + j->f.in.start, NULL,
               "this object is longer than 64 MB");
    err_hint(e, "if its rows are in an array inside, take that out: jq -c '.KEY[]' '%s'",
             j->f.name);
    return ERR_LIMIT;
}

int json_peek(json *j, bool *end, err *e) {
    file_input *in = &j->f.in;
    j->object.n = 0;
    int status = find_object(j, end, e);
    while (!status && !*end) {
        const char *p = in->p + in->start;
        json_status scanned = json_scan(p, in->p + in->end, in->eof, &j->object);
        if (scanned == JSON_BAD)
            return json_error(j, e, ERR_CORRUPT, j->object.at, j->object.why);
        const char *stop = scanned == JSON_DONE ? j->object.next : in->p + in->end;
        if ((size_t)(stop - p) > JSON_OBJECT_MAX)
            return too_long(j, e);
        if (scanned == JSON_DONE)
            return 0;
        *end = j->sampling && j->count > 0;
        status = *end ? 0 : file_input_more(in, e);
    }
    return status;
}

void json_advance(json *j) {
    file_input *in = &j->f.in;
    const char *p = in->p + in->start;
    j->f.line += file_count_lines(p, j->object.next);
    in->start = (size_t)(j->object.next - in->p);
    j->count++;
    if (j->place == JSON_FIRST)
        j->place = JSON_NEXT;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int late_key(const json *j, const json_member *m, err *e) {
    json_error(j, e, ERR_CORRUPT, m->key.p,
               "this key is not in the first 8 MB, from which the columns are detected");
    err_hint(e, "%sCOPY t (…) FROM '%s' reads the keys that it names",
             j->f.options.own_types ? "" : "use CREATE TABLE t (…); ", j->f.name);
    return ERR_CORRUPT;
}

static int store_member(json *j, text_pieces *texts, column *out, int row, int at,
                        const json_member *m, err *e) {
    str text = {m->value.p, m->value.n};
    if (m->value.escaped) {
        char *own = file_text_alloc(texts, m->value.n);
        text = (str){own, json_unescape(m->value, own)};
    }
    out->null[row] = 0;
    j->keys[at].values++;
    return file_store_text(&j->f, texts, out, row, at, text, m->value.escaped, m->value.p, e);
}

static int store_object(json *j, text_pieces *texts, batch *out, err *e) {
    int status = 0;
    for (int i = 0; i < j->object.n && !status; i++) {
        const json_member *m = &j->object.members[i];
        int at = json_column(j, i);
        if (at < 0 && j->f.options.keys)
            continue;
        if (at < 0)
            return late_key(j, m, e);
        status = json_note(j, i, at, e);
        if (!status && m->kind != JSON_NULL)
            status = store_member(j, texts, &out->cols[at], out->rows, at, m, e);
    }
    return status;
}

/* All cells are NULL until a member is stored, so that an object costs as much as it has members,
 * not columns. */
static void begin_nulls(json *j, batch *out) {
    for (int k = 0; k < j->nkeys; k++) {
        j->keys[k].values = 0;
        out->cols[k].null = arena_alloc(out->mem, (size_t)j->f.batch_rows);
        memset(out->cols[k].null, 1, (size_t)j->f.batch_rows);
    }
}

static void end_nulls(const json *j, batch *out) {
    for (int k = 0; k < j->nkeys; k++) {
        column *c = &out->cols[k];
        bool texts = type_is_bytes(c->type);
        if (j->keys[k].values == out->rows)
            c->null = NULL;
        for (int row = 0; texts && c->null && row < out->rows; row++)
            if (c->null[row])
                c->s[row] = (str){"", 0}; /* numbers are zero already */
    }
}

/* ---- the class ------------------------------------------------------------------------------- */

static int json_open(table_file *f, err *e) {
    const file_options *o = &f->options;
    if (o->null_text.n || o->header != CSV_HEADER_AUTO)
        return err_set(e, ERR_UNSUPPORTED, "'%s' is JSON: the options HEADER and NULL are for CSV",
                       f->in.name);
    return json_detect((json *)f, e);
}

static int json_next(table_file *f, const value_type *types, batch *out, int64_t *lines, err *e) {
    (void)types;
    json *j = (json *)f;
    text_pieces texts = {.mem = out->mem};
    bool end = false;
    int status = 0;
    begin_nulls(j, out);
    for (size_t bytes = 0; out->rows < f->batch_rows && bytes < BATCH_BYTES;) {
        if ((status = json_peek(j, &end, e)) != 0 || end)
            break;
        if ((status = store_object(j, &texts, out, e)) != 0)
            break;
        if (lines)
            lines[out->rows] = f->line;
        out->rows++;
        bytes += (size_t)(j->object.next - (f->in.p + f->in.start));
        json_advance(j);
    }
    end_nulls(j, out);
    return status;
}

static void json_close(table_file *f) {
    json *j = (json *)f;
    free(j->object.members);
    free(j->keys);
    free(j->order);
    hash_index_free(&j->by_key);
}

const file_class file_json = {.bytes = sizeof(json),
                              .cell = "key",
                              .sample = "the first 8 MB",
                              .by_name = true,
                              .open = json_open,
                              .next = json_next,
                              .close = json_close};
