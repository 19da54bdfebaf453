/*
 * view_replay.c - reads a recorded run (kvasir --mock FILE) into a view_state, for tests and
 * tutorials.
 *
 * A recording has one JSON object per line. Its keys, all optional, keep their value until a later
 * line changes it: those of the tables `numbers` and `texts` below, and
 *   "statement": text                                      "finished": true
 *   "prefixes": [{"text", "tokens", "fanout", "done"}]     "rows": [{"name", "depth", "in", "out"}]
 *   "shared": [percent of each of the latest prompts]      "baselines": {"name": tokens}
 * "seconds" is the time at which the line is shown; "rows" are the plan's operators. Only "finished"
 * is not kept.
 */
#include <cjson/cJSON.h>
#include <string.h>

#include "view_int.h"

typedef enum number_kind { NUMBER_U64, NUMBER_SIZE, NUMBER_INT, NUMBER_DOUBLE } number_kind;

#define AT(member) offsetof(exec_progress, member)
static const struct {
    const char *key;
    size_t at;
    number_kind kind;
} numbers[] = {
    {"rows_total", AT(rows_total), NUMBER_U64},
    {"rows_done", AT(rows_done), NUMBER_U64},
    {"answers_stored", AT(llm.answers_stored), NUMBER_U64},
    {"answers_kept", AT(answers_kept), NUMBER_U64},
    {"head_tokens", AT(llm.head_tokens), NUMBER_U64},
    {"seconds", AT(seconds), NUMBER_DOUBLE},
    {"llm_seconds", AT(llm_seconds), NUMBER_DOUBLE},
    {"operator_number", AT(operator_number), NUMBER_INT},
    {"operators", AT(operators), NUMBER_INT},
    {"prompt_tokens", AT(llm.prompt_tokens), NUMBER_U64},
    {"computed_tokens", AT(llm.computed_tokens), NUMBER_U64},
    {"reused_memory", AT(llm.reused_memory), NUMBER_U64},
    {"reused_disk", AT(llm.reused_disk), NUMBER_U64},
    {"output_tokens", AT(llm.output_tokens), NUMBER_U64},
    {"evicted_blocks", AT(llm.evicted_blocks), NUMBER_U64},
    {"kv_bytes", AT(memory.kv_bytes), NUMBER_SIZE},
    {"kv_budget_bytes", AT(memory.kv_budget_bytes), NUMBER_SIZE},
    {"live_sequences", AT(memory.live_sequences), NUMBER_INT},
    {"stored_tokens", AT(llm.stored_tokens), NUMBER_U64},
    {"disk_bytes", AT(disk_bytes), NUMBER_U64},
    {"disk_budget_bytes", AT(disk_budget_bytes), NUMBER_U64},
};
static const struct {
    const char *key;
    size_t at, size;
} texts[] = {
    {"phase", AT(phase), sizeof((exec_progress *)0)->phase},
    {"field_order", AT(field_order), sizeof((exec_progress *)0)->field_order},
    {"last_answer", AT(last_answer), sizeof((exec_progress *)0)->last_answer},
    {"last_input", AT(last_input), sizeof((exec_progress *)0)->last_input},
};
#undef AT

/* Clamps a number of a recording to 0 .. most, so that it fits its type. */
static double clamp(double n, double most) {
    return BASE_MIN(BASE_MAX(n, 0.0), most);
}

static const double most_counted = 1e15, most_int = 1e9;

static void set_number(exec_progress *x, size_t i, double n) {
    void *to = (char *)x + numbers[i].at;
    switch (numbers[i].kind) {
    case NUMBER_U64:
        *(uint64_t *)to = (uint64_t)clamp(n, most_counted);
        break;
    case NUMBER_SIZE:
        *(size_t *)to = (size_t)clamp(n, most_counted);
        break;
    case NUMBER_INT:
        *(int *)to = (int)clamp(n, most_int);
        break;
    case NUMBER_DOUBLE:
        *(double *)to = clamp(n, most_counted);
        break;
    }
}

static int int_of(const cJSON *object, const char *key) {
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(n) ? (int)clamp(n->valuedouble, most_int) : 0;
}

static void copy_text(const cJSON *object, const char *key, char *out, size_t size) {
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, key);
    utf8_copy(out, size, str_from(cJSON_IsString(text) ? text->valuestring : ""));
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
        b->tokens = clamp(one->valuedouble, most_counted);
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
    for (size_t i = 0; i < BASE_COUNT(numbers); i++) {
        const cJSON *n = cJSON_GetObjectItemCaseSensitive(object, numbers[i].key);
        if (cJSON_IsNumber(n))
            set_number(&x, i, n->valuedouble);
    }
    for (size_t i = 0; i < BASE_COUNT(texts); i++) {
        const cJSON *s = cJSON_GetObjectItemCaseSensitive(object, texts[i].key);
        if (cJSON_IsString(s))
            utf8_copy((char *)&x + texts[i].at, texts[i].size, str_from(s->valuestring));
    }
    const cJSON *statement = cJSON_GetObjectItemCaseSensitive(object, "statement");
    if (cJSON_IsString(statement))
        utf8_copy(v->statement, sizeof v->statement, str_from(statement->valuestring));
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
