/*
 * confirm.c - what an LLM statement will cost, asked of EXPLAIN before it runs: a word of warning
 * before a long one, and the other strategies' tokens for the live view.
 *
 * Invariant: only a person at a terminal is told or asked. What EXPLAIN cannot say is left out: the
 * statement itself then tells what is wrong with it.
 */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shell_int.h"

enum { LONG_MS = 60 * 1000 };

static void collect_text(void *ctx, stmt *s, const batch *b) {
    (void)s;
    for (int i = 0; i < b->rows && b->ncols > 0; i++) {
        value_print(ctx, column_get(&b->cols[0], i));
        buf_append_char(ctx, '\n');
    }
}

/* The plan as JSON, or NULL. false: somebody pressed Ctrl-C and means the statement. */
static bool explain(shell *sh, const char *how, str text, cJSON **out) {
    buf sql = {0}, text_out = {0};
    err e;
    buf_printf(&sql, "EXPLAIN (%s) %.*s", how, (int)text.n, text.p);
    int code = shell_query(sh, buf_str(&sql), collect_text, &text_out, &e);
    *out = code == 0 && text_out.n ? cJSON_ParseWithLength(text_out.p, text_out.n) : NULL;
    buf_free(&sql);
    buf_free(&text_out);
    if (code == ERR_CANCELLED)
        shell_note(sh, "stopped before it began");
    return code != ERR_CANCELLED;
}

/* A statement with LLM( in it that EXPLAIN takes. */
static bool worth_asking(str text) {
    static const char *const starts[] = {"SELECT", "WITH",   "INSERT", "UPDATE",
                                         "DELETE", "VALUES", "FROM"};
    token_class class, first = TOKEN_BLANK;
    bool known = false;
    for (size_t at = 0, n; at < text.n && (n = sql_token(text, at, &class)) > 0; at += n) {
        if (class == TOKEN_BLANK || class == TOKEN_COMMENT)
            continue;
        str word = {text.p + at, n};
        for (size_t i = 0; first == TOKEN_BLANK && i < BASE_COUNT(starts); i++)
            known = known || str_equal_nocase(word, str_from(starts[i]));
        first = class;
        if (!known)
            return false;
        if (str_equal_nocase(word, STR("LLM")))
            return true;
    }
    return false;
}

static double number(const cJSON *object, const char *key) {
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(n) ? n->valuedouble : 0;
}

static void tell(shell *sh, const cJSON *total) {
    buf line = {0};
    buf_append_c(&line, "about ");
    progress_duration(&line, number(total, "cost_ms") / 1000);
    buf_append_c(&line, ": ");
    format_count(&line, (uint64_t)number(total, "distinct_inputs"));
    buf_append_c(&line, " prompts, ");
    format_count(&line, (uint64_t)number(total, "computed_tokens"));
    const settings *now = db_settings(sh->db);
    bool kept = now->cache && now->answer_cache;
    buf_append_c(&line, kept ? " tokens; Ctrl-C keeps the answers" : " tokens");
    shell_note(sh, "%s", line.p);
    buf_free(&line);
}

static bool ask(void) {
    char answer[16] = {0};
    fputs("run it? [y/N] ", stdout);
    fflush(stdout);
    ssize_t n = read(STDIN_FILENO, answer, sizeof answer - 1);
    if (n <= 0)
        putchar('\n');
    return n > 0 && (answer[0] == 'y' || answer[0] == 'Y');
}

bool estimate_confirm(shell *sh, str text) {
    if (!sh->term.interactive || sh->where != NULL || !worth_asking(text))
        return true;
    cJSON *json;
    if (!explain(sh, "FORMAT JSON", text, &json))
        return false;
    const cJSON *total = cJSON_GetObjectItemCaseSensitive(json, "total");
    bool go = true;
    if (number(total, "cost_ms") >= LONG_MS) {
        tell(sh, total);
        if (db_settings(sh->db)->confirm)
            go = ask();
        if (!go)
            shell_note(sh, "not run");
    }
    cJSON_Delete(json);
    return go;
}

/* ---- baselines ------------------------------------------------------------------------------- */

/* Every LLM node's strategies, summed by name. */
static void collect_strategies(const cJSON *node, view_state *v) {
    const cJSON *actual = cJSON_GetObjectItemCaseSensitive(node, "actual"), *one;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(actual, "strategies");
    cJSON_ArrayForEach(one, list) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(one, "strategy");
        if (cJSON_IsString(name))
            view_add_baseline(v, name->valuestring, number(one, "computed_tokens"));
    }
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(node, "inputs"))
        collect_strategies(one, v);
}

bool estimate_baselines(shell *sh, str text, view_state *v) {
    cJSON *json;
    v->nbaselines = 0;
    if (!worth_asking(text))
        return true;
    if (!explain(sh, "TOKENS, FORMAT JSON", text, &json))
        return false;
    collect_strategies(cJSON_GetObjectItemCaseSensitive(json, "plan"), v);
    cJSON_Delete(json);
    return true;
}
