/*
 * commands_model.c - commands about LLM statements: .model, .tokens, .cache, .stats, .explain,
 * .view.
 */
#include <string.h>
#include <unistd.h>

#include "commands_int.h"

/* ---- .model ---------------------------------------------------------------------------------- */

static void line_rate(buf *out, const char *name, double rate) {
    if (rate > 0)
        buf_printf(out, "%14s  %.0f tokens/s\n", name, rate);
}

static uint64_t budget(int64_t set, size_t standard) {
    return set < 0 ? (uint64_t)standard : (uint64_t)set;
}

/* Appends a line with a size and, if peak > 0, the maximum that the last statement used of it. */
static void line_bytes(buf *out, const char *name, uint64_t bytes, uint64_t peak) {
    buf_printf(out, "%14s  ", name);
    buf_append_bytes(out, bytes);
    if (peak > 0) {
        buf_append_c(out, " (the last statement used ");
        buf_append_bytes(out, peak);
        buf_append_char(out, ')');
    }
    buf_append_char(out, '\n');
}

static void show_kv(buf *out, const settings *s, const llm_model_info *m, const llm_memory *last) {
    uint64_t device = budget(s->kv_memory > 0 ? s->kv_memory : -1, m->kv_memory_bytes);
    uint64_t most = last->kv_peak_bytes, here = BASE_MIN(most, last->kv_budget_bytes);
    line_bytes(out, "KV budget", device, here);
    if (m->kv_host_bytes > 0) /* a GPU that may move KV blocks to host memory */
        line_bytes(out, "KV on host", budget(s->kv_host, m->kv_host_bytes), most - here);
}

static void show_attention(buf *out, const llm_model_info *m) {
    buf_printf(out, "%14s  %d tokens\n%14s  %d tokens\n", "context", m->context, "vocabulary",
               m->vocab);
    if (m->attention == LLM_ATTENTION_STREAMING)
        buf_printf(out, "%14s  streaming: the first %d and the latest %d tokens\n", "attention",
                   m->sink_tokens, m->window_tokens);
    buf_printf(out, "%14s  %zu bytes per token (%s), blocks of %d tokens\n", "KV",
               m->kv_bytes_per_token, llm_kv_dtype_name(m->kv_dtype), m->kv_block_tokens);
}

/* What servers of a model told about themselves. */
static void show_servers(buf *out, const llm_model_info *m) {
    buf_printf(out, "%14s  %s\n", "name", m->name);
    for (str rest = str_from(m->servers); rest.n > 0;) {
        str line = str_split_next(&rest, '\n'), name = str_split_next(&line, '\t');
        buf_printf(out, "%14.*s  %.*s\n", (int)name.n, name.p, (int)line.n, line.p);
    }
}

static bool show_model(shell *sh, arena *mem) {
    llm_model_info facts;
    const llm_model_info *m = &facts;
    err e = {.pos = -1};
    buf out = {0};
    if (db_model_info(sh->db, mem, &facts, signals_cancel_flag(), &e) != 0)
        return shell_failed(sh, &e);
    if (m->remote) {
        show_servers(&out, m);
        shell_print(sh, &out);
        return true;
    }
    buf_printf(&out, "%14s  %s\n%14s  %s\n", "name", m->name, "file", m->path);
    buf_printf(
        &out,
        "%14s  %s, %.1f M parameters, %d layers, width %d, %d heads (%d for keys and values)\n",
        "architecture", m->architecture, (double)m->parameters / 1e6, m->layers, m->width, m->heads,
        m->kv_heads);
    line_bytes(&out, "file size", m->file_bytes, 0);
    line_bytes(&out, "in memory", m->weight_bytes, 0);
    show_attention(&out, m);
    show_kv(&out, db_settings(sh->db), m, &sh->last.memory);
    bool only = m->device_reason != NULL; /* the reason why device = 'auto' took no other device */
    buf_printf(&out, "%14s  %s, %d threads%s%s%s\n", "device", m->device, m->threads,
               only ? " (" : "", only ? m->device_reason : "", only ? ")" : "");
    buf_printf(&out, "%14s  %s (%s)\n", "precision", m->precision,
               m->precision_reason ? m->precision_reason : "");
    bool only_texts = m->default_format != LLM_FORMAT_CHAT && strcmp(m->chat_family, "none") != 0;
    buf_printf(&out, "%14s  %s%s (chat family: %s)\n", "prompt format",
               m->default_format == LLM_FORMAT_CHAT ? "chat" : "completion",
               only_texts ? "; chat for TEXT without examples" : "", m->chat_family);
    line_rate(&out, "prefill", m->prefill_tok_s);
    line_rate(&out, "decode", m->decode_tok_s);
    shell_print(sh, &out);
    return true;
}

/* Checks that a model or file exists; SET model does not check this. */
static bool model_exists(shell *sh, command_call *c) {
    int n, count = 0;
    const char *wanted = c->argv[0];
    if (*wanted == 0 || strncmp(wanted, "test:", 5) == 0 || access(wanted, R_OK) == 0)
        return true;
    const db_object *objects = shell_objects(sh, c->mem, &n);
    if (objects == NULL)
        return false;
    const char **names = ARENA_ARRAY(c->mem, const char *, n + 1);
    for (int i = 0; i < n; i++) {
        if (strcmp(objects[i].kind, "model") != 0)
            continue;
        if (str_equal_nocase(str_from(wanted), str_from(objects[i].name)))
            return true;
        names[count++] = objects[i].name;
    }
    const char *near = str_nearest(str_from(wanted), names, (size_t)count);
    if (near)
        return shell_complain(sh, "no model \"%s\"; did you mean \"%s\"?", wanted, near);
    return shell_complain(sh, "no model or file \"%s\"", wanted);
}

bool cmd_model(shell *sh, command_call *c) {
    if (!shell_ready(sh))
        return false;
    if (c->argc == 0)
        return show_model(sh, c->mem);
    if (!model_exists(sh, c))
        return false;
    buf sql = {0};
    buf_append_c(&sql, "SET model = ");
    value_print_sql(&sql, value_text(str_from(c->argv[0])));
    bool ok = shell_sql(sh, sql.p);
    buf_free(&sql);
    return ok;
}

bool cmd_tokens(shell *sh, command_call *c) {
    err e = {.pos = -1};
    buf out = {0};
    str text = command_unquote(c->rest);
    if (text.n == 0)
        return shell_complain(sh, "%s needs a text", c->name);
    if (!shell_ready(sh))
        return false;
    bool ok = db_tokenize(sh->db, text, &out, signals_cancel_flag(), &e) == 0;
    if (!ok) {
        buf_free(&out);
        return shell_failed(sh, &e);
    }
    if (out.n && out.p[out.n - 1] != '\n')
        buf_append_char(&out, '\n');
    shell_print(sh, &out);
    return true;
}

typedef struct summary {
    buf out;
    int columns;
} summary;

static void summary_batch(void *ctx, stmt *s, const batch *b) {
    enum { LEFT = 12 };
    summary *into = ctx;
    (void)s;
    for (int i = 0; i < b->rows; i++)
        format_entry(&into->out, b->cols[0].s[i], LEFT, b->cols[1].s[i], into->columns);
}

static bool show_cache(shell *sh) {
    summary lines = {.columns = shell_columns(sh)};
    err e = {.pos = -1};
    if (!shell_ready(sh))
        return false;
    bool ok = shell_query(sh, STR("SHOW CACHE"), summary_batch, &lines, &e) == 0;
    shell_print(sh, &lines.out);
    return ok || shell_failed(sh, &e);
}

bool cmd_cache(shell *sh, command_call *c) {
    if (c->argc == 0)
        return show_cache(sh);
    if (str_equal_nocase(str_from(c->argv[0]), STR("clear"))) {
        const char *what = c->argc > 1 ? c->argv[1] : "";
        return shell_sql(sh, arena_printf(c->mem, "CLEAR CACHE %s", what));
    }
    return shell_complain(sh, "usage: %s, or %s clear [kv|answers]", c->name, c->name);
}

/* ---- .stats ---------------------------------------------------------------------------------- */

bool cmd_stats(shell *sh, command_call *c) {
    buf out = {0};
    if (c->argc)
        return command_switch(sh, c, &sh->stats, "figures of each statement");
    shell_figures(&sh->last, &out);
    shell_print(sh, &out);
    return true;
}

/* ---- .explain, .view ------------------------------------------------------------------------- */

static bool starts_with_word(str *text, const char *word) {
    size_t n = strlen(word);
    if (text->n < n || !str_equal_nocase((str){text->p, n}, str_from(word)) ||
        (text->n > n && text->p[n] != ' '))
        return false;
    *text = (str){text->p + n, text->n - n};
    while (text->n && *text->p == ' ')
        *text = (str){text->p + 1, text->n - 1};
    return true;
}

/* Returns the statement without EXPLAIN [ANALYZE | (…)] before it. */
static str without_explain(str text) {
    if (!starts_with_word(&text, "explain"))
        return text;
    const char *end = text.n && *text.p == '(' ? memchr(text.p, ')', text.n) : NULL;
    if (end != NULL)
        return (str){end + 1, text.n - (size_t)(end + 1 - text.p)};
    starts_with_word(&text, "analyze");
    return text;
}

str command_statement(shell *sh, const command_call *c, str text) {
    if (text.n && text.p[text.n - 1] == ';')
        text.n--;
    if (text.n == 0)
        text = buf_str(&sh->last_text);
    text = without_explain(text);
    if (text.n == 0)
        shell_complain(sh, "%s needs a statement: none has run yet", c->name);
    return text;
}

bool cmd_explain(shell *sh, command_call *c) {
    str text = c->rest;
    const char *how = starts_with_word(&text, "tokens")    ? "(TOKENS) "
                      : starts_with_word(&text, "prompt")  ? "(PROMPT) "
                      : starts_with_word(&text, "tree")    ? "(TREE) "
                      : starts_with_word(&text, "analyze") ? "ANALYZE "
                                                           : "";
    text = command_statement(sh, c, text);
    return text.n &&
           shell_sql(sh, arena_printf(c->mem, "EXPLAIN %s%.*s", how, (int)text.n, text.p));
}

static bool record_next(shell *sh, command_call *c) {
    err e = {.pos = -1};
    if (c->argc != 2)
        return shell_complain(sh, "usage: %s record FILE", c->name);
    if (sh->recorder && view_record_close(sh->recorder, &e) != 0)
        shell_failed(sh, &e);
    sh->recorder = view_record_open(c->argv[1], &e);
    if (sh->recorder == NULL)
        return shell_failed(sh, &e);
    shell_note(sh, "the next LLM statement is recorded; kvasir --mock FILE replays it");
    return true;
}

static bool show_last(shell *sh) {
    if (sh->last_view == NULL)
        return shell_complain(sh, "no LLM statement has run yet");
    view *v = view_open(&sh->term, sh->last_view, NULL);
    if (v == NULL)
        return shell_complain(sh, "the terminal cannot show the live view");
    view_hold(v, &sh->typed_ahead);
    view_close(v);
    return true;
}

bool cmd_view(shell *sh, command_call *c) {
    str word = str_from(c->argc ? c->argv[0] : "");
    bool off = c->argc == 1 && str_equal_nocase(word, STR("off"));
    bool on = c->argc == 1 && str_equal_nocase(word, STR("on"));
    if (str_equal_nocase(word, STR("record")))
        return record_next(sh, c);
    if (!sh->term.interactive || sh->term.dumb)
        return shell_complain(sh, "%s needs a terminal", c->name);
    if (c->argc == 1 && str_equal_nocase(word, STR("last")))
        return show_last(sh);
    if (off || on || (c->argc == 0 && sh->last_text.n == 0)) {
        sh->want_view = !off;
        shell_note(sh, "live view: %s", off ? "off" : "on for LLM statements");
        return true;
    }
    str text = c->argc ? c->rest : buf_str(&sh->last_text);
    bool before = sh->want_view;
    sh->want_view = true;
    bool ok = shell_sql(sh, arena_strndup(c->mem, text.p, text.n));
    sh->want_view = before;
    return ok;
}
