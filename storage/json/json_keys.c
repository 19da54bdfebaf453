/*
 * json_keys.c - which column a key is; detects the columns and types of a JSON file.
 *
 * It reads the complete objects of the first 8 MiB. Rules:
 *   columns  the keys, in the order in which they first appear. More than CSV's first MiB is read,
 *            because an optional key may be rare, and costs about 20 ms
 *   types    INTEGER, REAL or BOOLEAN if every value that is not null is one; integers beyond 64
 *            bits, reals out of range, strings, nested values and mixtures make the column TEXT
 * Invariant: no object is consumed.
 */
#include <stdlib.h>
#include <string.h>

#include "json_int.h"

#define SAMPLE_BYTES ((size_t)8 << 20)

/* ---- keys ------------------------------------------------------------------------------------ */

/* COPY's list has names of columns, which are equal in any case. */
static bool same_key(const json *j, str a, str b) {
    return j->f.options.keys ? str_equal_nocase(a, b) : str_equal(a, b);
}

static uint64_t hash_key(const json *j, str key) {
    return j->f.options.keys ? str_hash_nocase(key) : hash64(key.p, key.n, 0);
}

static int find_key(const json *j, str key) {
    for (hash_slot *s = hash_index_first(&j->by_key, hash_key(j, key)); s;
         s = hash_index_next(&j->by_key, s))
        if (same_key(j, j->keys[s->item].text, key))
            return (int)s->item;
    return -1;
}

static int find_escaped(const json *j, json_text key) {
    char *text = mem_alloc(key.n);
    int at = find_key(j, (str){text, json_unescape(key, text)});
    free(text);
    return at;
}

int json_column(json *j, int i) {
    json_text key = j->object.members[i].key;
    if (i < j->norder) {
        int at = j->order[i];
        if (at >= 0 && !key.escaped && str_equal(j->keys[at].text, (str){key.p, key.n}))
            return at;
    }
    int at = key.escaped ? find_escaped(j, key) : find_key(j, (str){key.p, key.n});
    while (j->norder <= i)
        ARRAY_PUSH(j->order, j->norder, j->order_cap, -1);
    j->order[i] = at;
    return at;
}

int json_note(json *j, int i, int at, err *e) {
    const json_member *m = &j->object.members[i];
    if (j->keys[at].seen == j->count + 1)
        return json_error(j, e, ERR_CORRUPT, m->key.p, "the object has this key twice");
    j->keys[at].seen = j->count + 1;
    return 0;
}

static int add_key(json *j, str key) {
    hash_index_add(&j->by_key, hash_key(j, key), (uint32_t)j->nkeys);
    ARRAY_PUSH(j->keys, j->nkeys, j->keys_cap, ((json_key){.text = key}));
    return j->nkeys - 1;
}

/* ---- detection ------------------------------------------------------------------------------- */

static value_type type_of(const json_member *m) {
    str text = {m->value.p, m->value.n};
    int64_t i;
    double r;
    switch (m->kind) {
    case JSON_BOOLEAN:
        return TYPE_BOOLEAN;
    case JSON_INTEGER:
        return parse_integer(text, &i) ? TYPE_INTEGER : TYPE_TEXT;
    case JSON_REAL:
        return parse_real(text, &r) ? TYPE_REAL : TYPE_TEXT;
    default:
        return TYPE_TEXT;
    }
}

static str key_text(json *j, json_text key) {
    char *text = arena_alloc(j->f.mem, key.n);
    return (str){text, json_unescape(key, text)};
}

/* Makes a column of member i's key. */
static int add_column(json *j, int i, err *e) {
    const json_member *m = &j->object.members[i];
    str key = key_text(j, m->key);
    if (key.n && memchr(key.p, 0, key.n))
        return json_error(j, e, ERR_CORRUPT, m->key.p,
                          "a key with the character \\u0000 cannot be a column");
    if (j->nkeys == JSON_COLUMNS_MAX) {
        json_error(j, e, ERR_LIMIT, m->key.p,
                   "this is one key more than the 2,000 columns that a table can have");
        err_hint(e, "CREATE TABLE t (…); COPY t (…) FROM '%s' reads the keys that it names",
                 j->f.name);
        return ERR_LIMIT;
    }
    j->order[i] = add_key(j, key);
    return 0;
}

static int sample_object(json *j, err *e) {
    int status = 0;
    for (int i = 0; i < j->object.n && !status; i++) {
        const json_member *m = &j->object.members[i];
        int at = json_column(j, i);
        if (at < 0 && (status = add_column(j, i, e)) != 0)
            return status;
        at = j->order[i];
        status = json_note(j, i, at, e);
        if (m->kind != JSON_NULL && j->keys[at].type != TYPE_TEXT)
            j->keys[at].type = file_join_types(j->keys[at].type, type_of(m));
    }
    return status;
}

/* Looks at the objects of the window, and goes back to the first. */
static int sample(json *j, err *e) {
    file_input *in = &j->f.in;
    const size_t start = in->start;
    bool end = false;
    in->keep = j->sampling = true;
    int status = file_input_fill(in, SAMPLE_BYTES, e);
    while (!status && in->start - start < SAMPLE_BYTES) {
        status = json_peek(j, &end, e);
        if (status || end)
            break;
        status = sample_object(j, e);
        json_advance(j);
    }
    bool empty = j->count == 0 && j->place == JSON_SEQUENCE;
    if (!status && empty)
        status = file_empty_error(&j->f, e);
    else if (!status && j->nkeys == 0 && !j->f.options.own_types)
        status = err_set(e, ERR_CORRUPT, "'%s' has no object with a key, so no columns", in->name);
    in->keep = j->sampling = false;
    j->place = JSON_BEGIN;
    in->start = start;
    j->f.line = 1;
    j->f.object = j->count = 0;
    for (int i = 0; i < j->nkeys; i++)
        j->keys[i].seen = 0;
    return status;
}

int json_detect(json *j, err *e) {
    const file_options *o = &j->f.options;
    for (int i = 0; o->keys && i < o->nkeys; i++)
        add_key(j, str_copy(j->f.mem, o->keys[i]));
    int status = o->keys ? 0 : sample(j, e);
    if (status)
        return status;
    j->f.ncolumns = j->nkeys;
    j->f.types = ARENA_ARRAY(j->f.mem, value_type, j->nkeys);
    str *names = ARENA_ARRAY(j->f.mem, str, j->nkeys);
    for (int i = 0; i < j->nkeys; i++) {
        bool text = o->all_text || j->keys[i].type == TYPE_NULL;
        j->f.types[i] = text ? TYPE_TEXT : j->keys[i].type;
        names[i] = j->keys[i].text;
    }
    file_make_names(&j->f, names);
    return 0;
}
