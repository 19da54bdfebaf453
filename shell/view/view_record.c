/*
 * view_record.c - recorded runs: writes the updates of a view_state to a file (.view record FILE),
 * and applies such a file's lines to a view_state (kvasir --mock FILE).
 *
 * A recording has one JSON object per line. Its members, and those of the items of its lists, keep
 * their value until a later line changes it; "seconds" is the time at which the line is shown. The
 * tables below have all members, for the writer and for the reader. A line with an unknown member,
 * or with a value that does not fit, is damaged.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "view_int.h"

static const double most_counted = 1e15, most_int = 1e9;

/* ---- members --------------------------------------------------------------------------------- */

typedef enum member_type {
    MEMBER_BYTE,  /* uint8_t */
    MEMBER_INT,   /* int, at least 0 */
    MEMBER_COUNT, /* uint64_t */
    MEMBER_REAL,  /* double */
    MEMBER_FLAG,  /* bool */
    MEMBER_TEXT,  /* char[size] */
    MEMBER_LIST   /* an array of `list`, and its length */
} member_type;

typedef struct list_type list_type;
typedef struct member {
    const char *key; /* NULL: the items of the list are values, not objects */
    member_type type;
    size_t at, size; /* of the struct's member: its offset and sizeof */
    const list_type *list;
} member;

struct list_type {
    size_t length_at; /* offset of the array's length in the view_state */
    size_t item_size;
    const member *members; /* of an item */
    size_t nmembers;
};

#define TYPE_OF(x)                                                                                 \
    _Generic((x), uint8_t: MEMBER_BYTE, int: MEMBER_INT, uint64_t: MEMBER_COUNT,                   \
             double: MEMBER_REAL, bool: MEMBER_FLAG, char *: MEMBER_TEXT)
#define MEMBER(key, type, name)                                                                    \
    { key, TYPE_OF(((type *)0)->name), offsetof(type, name), sizeof(((type *)0)->name), NULL }

static const member branch_members[] = {
    MEMBER("text", exec_branch, text),     MEMBER("depth", exec_branch, depth),
    MEMBER("tokens", exec_branch, tokens), MEMBER("prompts", exec_branch, prompts),
    MEMBER("answered", exec_branch, done),
};
static const member operator_members[] = {
    MEMBER("name", exec_operator, name),     MEMBER("depth", exec_operator, depth),
    MEMBER("source", exec_operator, source), MEMBER("model", exec_operator, model),
    MEMBER("in", exec_operator, rows_in),    MEMBER("out", exec_operator, rows_out),
};
static const member place_members[] = {
    MEMBER("url", exec_place, url),
    MEMBER("state", exec_place, state),
    MEMBER("in_flight", exec_place, in_flight),
    MEMBER("window", exec_place, window),
    MEMBER("answered", exec_place, answered),
    MEMBER("refused", exec_place, refused),
    MEMBER("prompt_tokens", exec_place, prompt_tokens),
    MEMBER("cached_tokens", exec_place, cached_tokens),
    MEMBER("tokens_per_second", exec_place, tokens_s),
    MEMBER("median_ms", exec_place, median_ms),
    MEMBER("slow_ms", exec_place, slow_ms),
};
static const member baseline_members[] = {
    MEMBER("name", exec_baseline, name),
    MEMBER("prompt_tokens", exec_baseline, prompt_tokens),
    MEMBER("computed_tokens", exec_baseline, computed_tokens),
};
static const member percent[] = {{NULL, MEMBER_BYTE, 0, 1, NULL}};

#define LIST(length, item, members)                                                                \
    (&(const list_type){offsetof(view_state, length), sizeof(item), members, BASE_COUNT(members)})
#define LIST_MEMBER(key, name, length, item, members)                                              \
    {                                                                                              \
        key, MEMBER_LIST, offsetof(view_state, name), sizeof(((view_state *)0)->name),             \
            LIST(length, item, members)                                                            \
    }
#define STATE(key, name) MEMBER(key, view_state, name)

static const member members[] = {
    STATE("seconds", now.seconds),
    STATE("statement", statement),
    STATE("phase", now.phase),
    STATE("paused", now.paused),
    STATE("finished", finished),
    STATE("operator", now.operator_number),
    STATE("operators", now.operators),
    STATE("operator_seconds", now.llm_seconds),
    STATE("inputs", now.rows_total),
    STATE("inputs_done", now.rows_done),
    STATE("answers_known", now.llm.answers_stored),
    STATE("prompt_tokens", now.llm.prompt_tokens),
    STATE("computed_tokens", now.llm.computed_tokens),
    STATE("reused_memory", now.llm.reused_memory),
    STATE("reused_disk", now.llm.reused_disk),
    STATE("known_tokens", now.llm.stored_tokens),
    STATE("output_tokens", now.llm.output_tokens),
    STATE("load_ms", now.llm.load_ms),
    STATE("prefill_ms", now.llm.prefill_ms),
    STATE("prefill_tokens_per_second", now.prefill_tok_s),
    STATE("evicted_blocks", now.llm.evicted_blocks),
    STATE("kv_bytes", now.memory.kv_bytes),
    STATE("kv_budget_bytes", now.memory.kv_budget_bytes),
    STATE("sequences", now.memory.live_sequences),
    STATE("disk_bytes", now.disk_bytes),
    STATE("disk_budget_bytes", now.disk_budget_bytes),
    STATE("field_order", now.field_order),
    STATE("last_answer", now.last_answer),
    STATE("last_input", now.last_input),
    LIST_MEMBER("shared", now.shared, now.nshared, uint8_t, percent),
    LIST_MEMBER("branches", now.branches, now.nbranches, exec_branch, branch_members),
    LIST_MEMBER("plan", now.operator_rows, now.noperators, exec_operator, operator_members),
    LIST_MEMBER("endpoints", now.places, now.nplaces, exec_place, place_members),
    LIST_MEMBER("strategies", baselines, nbaselines, exec_baseline, baseline_members),
};

/* ---- writing --------------------------------------------------------------------------------- */

struct view_recorder {
    FILE *file;
    bool begun;      /* what the file held before has been removed */
    view_state last; /* as the reader will have it after the lines so far */
};

/* A struct of a view_state: the view_state itself, or an item of one of its lists. */
typedef struct part {
    const view_state *of;
    const char *at; /* NULL: there is none */
} part;

static cJSON *json_of(const member *m, part p);
static cJSON *list_of(const list_type *list, part now, part before);

/* Makes a JSON object of the members of `now` that differ from those of `before`. */
static cJSON *object_of(const member *m, size_t n, part now, part before) {
    cJSON *object = cJSON_CreateObject();
    for (size_t i = 0; i < n; i++) {
        part mine = {now.of, now.at + m[i].at}, then = {before.of, NULL};
        if (before.at)
            then.at = before.at + m[i].at;
        cJSON *json = json_of(&m[i], mine), *old = before.at ? json_of(&m[i], then) : NULL;
        bool same = old != NULL && cJSON_Compare(json, old, true);
        if (!same && m[i].type == MEMBER_LIST) {
            cJSON_Delete(json);
            json = list_of(m[i].list, mine, then);
        }
        if (same)
            cJSON_Delete(json);
        else
            cJSON_AddItemToObject(object, m[i].key, json);
        cJSON_Delete(old);
    }
    return object;
}

static int length_of(const list_type *list, const view_state *v) {
    return *(const int *)(const void *)((const char *)v + list->length_at);
}

static cJSON *list_of(const list_type *list, part now, part before) {
    cJSON *array = cJSON_CreateArray();
    int n = length_of(list, now.of), old = before.at ? length_of(list, before.of) : 0;
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)i * list->item_size;
        part item = {now.of, now.at + at}, then = {before.of, i < old ? before.at + at : NULL};
        bool plain = list->members[0].key == NULL;
        cJSON_AddItemToArray(array, plain ? json_of(&list->members[0], item)
                                          : object_of(list->members, list->nmembers, item, then));
    }
    return array;
}

static cJSON *json_of(const member *m, part p) {
    const void *from = p.at;
    switch (m->type) {
    case MEMBER_BYTE:
        return cJSON_CreateNumber(*(const uint8_t *)from);
    case MEMBER_INT:
        return cJSON_CreateNumber(*(const int *)from);
    case MEMBER_COUNT:
        return cJSON_CreateNumber((double)*(const uint64_t *)from);
    case MEMBER_REAL:
        return cJSON_CreateNumber(*(const double *)from);
    case MEMBER_FLAG:
        return cJSON_CreateBool(*(const bool *)from);
    case MEMBER_TEXT:
        return cJSON_CreateString(from);
    case MEMBER_LIST:
        break;
    }
    return list_of(m->list, p, (part){p.of, NULL});
}

view_recorder *view_record_open(const char *path, err *e) {
    FILE *file = fopen(path, "a"); /* what it holds is kept until there is a run to record */
    if (file == NULL) {
        err_set(e, ERR_IO, "cannot write '%s': %s", path, strerror(errno));
        return NULL;
    }
    view_recorder *r = mem_zalloc(sizeof *r);
    r->file = file;
    return r;
}

void view_record(view_recorder *r, const view_state *v) {
    cJSON *object = object_of(members, BASE_COUNT(members), (part){v, (const char *)v},
                              (part){&r->last, (const char *)&r->last});
    char *text = cJSON_PrintUnformatted(object);
    if (object->child != NULL && !r->begun)
        view_record_restart(r);
    r->begun = true;
    if (object->child != NULL)
        fprintf(r->file, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(object);
    r->last = *v;
}

void view_record_restart(view_recorder *r) {
    rewind(r->file);
    if (ftruncate(fileno(r->file), 0) != 0)
        clearerr(r->file); /* a pipe keeps what was written */
    memset(&r->last, 0, sizeof r->last);
    r->begun = false;
}

int view_record_close(view_recorder *r, err *e) {
    bool failed = ferror(r->file) != 0;
    failed = fclose(r->file) != 0 || failed;
    free(r);
    return failed ? err_set(e, ERR_IO, "cannot write the recording: %s", strerror(errno)) : 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int wrong(const char *key, const char *expected, err *e) {
    return err_set(e, ERR_CORRUPT, "\"%.40s\" must be %s", key, expected);
}

static int read_value(const member *m, const char *key, const cJSON *json, view_state *v, void *to,
                      err *e);

static int read_members(const member *m, size_t n, const cJSON *object, view_state *v, char *to,
                        err *e) {
    const cJSON *one;
    int status = 0;
    cJSON_ArrayForEach(one, object) {
        size_t i = 0;
        while (i < n && strcmp(m[i].key, one->string) != 0)
            i++;
        if (i == n)
            return err_set(e, ERR_CORRUPT, "unknown member \"%.40s\"", one->string);
        status = status ? status : read_value(&m[i], m[i].key, one, v, to + m[i].at, e);
    }
    return status;
}

static int read_list(const member *m, const cJSON *json, view_state *v, char *to, err *e) {
    const list_type *list = m->list;
    int most = (int)(m->size / list->item_size), status = 0, n = cJSON_GetArraySize(json);
    const cJSON *one;
    if (!cJSON_IsArray(json) || n > most)
        return err_set(e, ERR_CORRUPT, "\"%s\" must be a list of at most %d items", m->key, most);
    size_t kept = (size_t)length_of(list, v) * list->item_size;
    memset(to + kept, 0, m->size - kept);
    *(int *)(void *)((char *)v + list->length_at) = n;
    cJSON_ArrayForEach(one, json) {
        bool values = list->members[0].key == NULL;
        if (status == 0 && !values && !cJSON_IsObject(one))
            status = wrong(m->key, "a list of objects", e);
        else if (status == 0)
            status = values ? read_value(list->members, m->key, one, v, to, e)
                            : read_members(list->members, list->nmembers, one, v, to, e);
        to += list->item_size;
    }
    return status;
}

static int read_number(const char *key, const cJSON *json, double most, bool whole, double *out,
                       err *e) {
    *out = json->valuedouble;
    bool fits =
        cJSON_IsNumber(json) && *out >= 0 && *out <= most && (!whole || *out == floor(*out));
    return fits ? 0
                : err_set(e, ERR_CORRUPT, "\"%.40s\" must be a %snumber from 0 to %.0f", key,
                          whole ? "whole " : "", most);
}

static int read_value(const member *m, const char *key, const cJSON *json, view_state *v, void *to,
                      err *e) {
    double number = 0;
    int status = 0;
    switch (m->type) {
    case MEMBER_BYTE:
        status = read_number(key, json, 100, true, &number, e);
        *(uint8_t *)to = (uint8_t)(status ? 0 : number);
        return status;
    case MEMBER_INT:
        status = read_number(key, json, most_int, true, &number, e);
        *(int *)to = (int)(status ? 0 : number);
        return status;
    case MEMBER_COUNT:
        status = read_number(key, json, most_counted, true, &number, e);
        *(uint64_t *)to = (uint64_t)(status ? 0 : number);
        return status;
    case MEMBER_REAL:
        return read_number(key, json, most_counted, false, to, e);
    case MEMBER_FLAG:
        if (!cJSON_IsBool(json))
            return wrong(key, "true or false", e);
        *(bool *)to = cJSON_IsTrue(json);
        return 0;
    case MEMBER_TEXT:
        if (!cJSON_IsString(json))
            return wrong(key, "a text", e);
        utf8_copy(to, m->size, str_from(json->valuestring));
        return 0;
    case MEMBER_LIST:
        break;
    }
    return read_list(m, json, v, to, e);
}

int view_replay_line(const char *line, view_state *v, double *wait_s, err *e) {
    double before = v->now.seconds;
    int status = 0;
    cJSON *object = utf8_valid(str_from(line)) ? cJSON_ParseWithOpts(line, NULL, true) : NULL;
    if (!cJSON_IsObject(object))
        status = err_set(e, ERR_CORRUPT, "each line of a recorded run must be a JSON object");
    else
        status = read_members(members, BASE_COUNT(members), object, v, (char *)v, e);
    cJSON_Delete(object);
    if (status)
        return status;
    *wait_s = BASE_MAX(v->now.seconds - before, 0.0);
    exec_progress x = v->now;
    view_update(v, &x);
    return 0;
}
