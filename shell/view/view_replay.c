/*
 * view_replay.c - reads a recorded run (kvasir --mock FILE) into a view_state, for tests and
 * tutorials.
 *
 * A recording has one JSON object per line. Its keys, all optional, keep their value until a later
 * line changes it: the numbers of read_numbers, "phase", "field_order", "last_answer",
 * "last_input", and
 *   "statement": text                                      "finished": true
 *   "prefixes": [{"text", "tokens", "fanout", "done"}]     "rows": [{"name", "depth", "in", "out"}]
 *   "shared": [percent of each of the latest prompts]      "baselines": {"name": tokens}
 * "seconds" is the time at which the line is shown; "rows" are the plan's operators. Only
 * "finished" is not kept.
 */
#include <cjson/cJSON.h>
#include <string.h>

#include "view_int.h"

static const double most_counted = 1e15, most_int = 1e9;

/* Returns a number of a recording, limited to 0 … most so that it fits its type; `otherwise` if
 * there is none. */
static double number(const cJSON *object, const char *key, double otherwise, double most) {
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(n) ? BASE_MIN(BASE_MAX(n->valuedouble, 0.0), most) : otherwise;
}

static void read_numbers(const cJSON *object, exec_progress *x) {
#define NUMBER(key, member)                                                                        \
    x->member = (__typeof__(x->member))number(                                                     \
        object, key, (double)x->member, sizeof x->member == sizeof(int) ? most_int : most_counted)
    NUMBER("rows_total", rows_total);
    NUMBER("rows_done", rows_done);
    NUMBER("answers_stored", llm.answers_stored);
    NUMBER("answers_kept", answers_kept);
    NUMBER("head_tokens", llm.head_tokens);
    NUMBER("seconds", seconds);
    NUMBER("llm_seconds", llm_seconds);
    NUMBER("operator_number", operator_number);
    NUMBER("operators", operators);
    NUMBER("prompt_tokens", llm.prompt_tokens);
    NUMBER("computed_tokens", llm.computed_tokens);
    NUMBER("reused_memory", llm.reused_memory);
    NUMBER("reused_disk", llm.reused_disk);
    NUMBER("output_tokens", llm.output_tokens);
    NUMBER("evicted_blocks", llm.evicted_blocks);
    NUMBER("kv_bytes", memory.kv_bytes);
    NUMBER("kv_budget_bytes", memory.kv_budget_bytes);
    NUMBER("live_sequences", memory.live_sequences);
    NUMBER("stored_tokens", llm.stored_tokens);
    NUMBER("disk_bytes", disk_bytes);
    NUMBER("disk_budget_bytes", disk_budget_bytes);
#undef NUMBER
}

static int int_of(const cJSON *object, const char *key) {
    return (int)number(object, key, 0, most_int);
}

/* Copies a text of the recording; does not change `out` if there is none. */
static void copy_text(const cJSON *object, const char *key, char *out, size_t size) {
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, key);
    if (cJSON_IsString(text))
        utf8_copy(out, size, str_from(text->valuestring));
}

static void read_prefixes(const cJSON *list, exec_progress *x) {
    const cJSON *one;
    if (!cJSON_IsArray(list))
        return;
    x->nprefixes = 0;
    cJSON_ArrayForEach(one, list) {
        if (x->nprefixes == EXEC_PREFIXES)
            break;
        exec_prefix *p = &x->prefixes[x->nprefixes++];
        *p = (exec_prefix){.tokens = int_of(one, "tokens"),
                           .fanout = int_of(one, "fanout"),
                           .done = int_of(one, "done")};
        copy_text(one, "text", p->text, sizeof p->text);
    }
}

static void read_operators(const cJSON *list, exec_progress *x) {
    const cJSON *one;
    if (!cJSON_IsArray(list))
        return;
    x->noperators = 0;
    cJSON_ArrayForEach(one, list) {
        if (x->noperators == EXEC_OPERATORS)
            break;
        exec_operator *o = &x->operator_rows[x->noperators++];
        *o = (exec_operator){.depth = int_of(one, "depth"),
                             .source = !cJSON_HasObjectItem(one, "in"),
                             .rows_in = (uint64_t)int_of(one, "in"),
                             .rows_out = (uint64_t)int_of(one, "out")};
        copy_text(one, "name", o->name, sizeof o->name);
        o->model = strncmp(o->name, "LLM", 3) == 0;
    }
}

static void read_shared(const cJSON *list, exec_progress *x) {
    const cJSON *one;
    if (!cJSON_IsArray(list))
        return;
    x->nshared = 0;
    cJSON_ArrayForEach(one, list) {
        int percent = cJSON_IsNumber(one) ? one->valueint : 0;
        if (x->nshared < EXEC_SHARED)
            x->shared[x->nshared++] = (uint8_t)BASE_MIN(BASE_MAX(percent, 0), 100);
    }
}

static void read_baselines(const cJSON *object, view_state *v) {
    const cJSON *one;
    if (!cJSON_IsObject(object))
        return;
    v->nbaselines = 0;
    cJSON_ArrayForEach(one, object) {
        if (v->nbaselines == VIEW_BASELINES || !cJSON_IsNumber(one))
            continue;
        view_baseline *b = &v->baselines[v->nbaselines++];
        b->tokens = number(object, one->string, 0, most_counted);
        utf8_copy(b->name, sizeof b->name, str_from(one->string));
    }
}

bool view_replay_line(const char *line, view_state *v, double *wait_s, err *e) {
    cJSON *object = utf8_valid(str_from(line)) ? cJSON_Parse(line) : NULL;
    if (!cJSON_IsObject(object)) {
        cJSON_Delete(object);
        err_set(e, ERR_CORRUPT, "each line of a recorded run must be a JSON object");
        return false;
    }
    exec_progress x = v->now;
    read_numbers(object, &x);
    copy_text(object, "phase", x.phase, sizeof x.phase);
    copy_text(object, "field_order", x.field_order, sizeof x.field_order);
    copy_text(object, "last_answer", x.last_answer, sizeof x.last_answer);
    copy_text(object, "last_input", x.last_input, sizeof x.last_input);
    copy_text(object, "statement", v->statement, sizeof v->statement);
    v->finished = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "finished"));
    read_prefixes(cJSON_GetObjectItemCaseSensitive(object, "prefixes"), &x);
    read_operators(cJSON_GetObjectItemCaseSensitive(object, "rows"), &x);
    read_shared(cJSON_GetObjectItemCaseSensitive(object, "shared"), &x);
    read_baselines(cJSON_GetObjectItemCaseSensitive(object, "baselines"), v);
    *wait_s = BASE_MAX(x.seconds - v->now.seconds, 0.0);
    x.llm_running = true;
    view_update(v, &x);
    cJSON_Delete(object);
    return true;
}
