/*
 * stmt_cache.c - SHOW CACHE, CLEAR CACHE and UNPIN.
 *
 * Invariant: pending cache writes are flushed first, so the figures include them. When CLEAR CACHE
 * ends, the entries are deleted. The system tables kvasir_cache, kvasir_prefixes and
 * kvasir_statements show the same figures as rows (system_cache.c).
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "llm/models_int.h"
#include "stmt_int.h"
#include "system/llm_history_int.h"
#include "system/system_int.h"

typedef struct shown {
    stmt *s;
    batch b;
} shown;

enum { SHOWN_MAX = 32, STATEMENTS_SHOWN = 3, PREFIXES_SHOWN = 5, TEXT_SHOWN = 60 };

static void show(shown *w, const char *name, const char *format, ...) BASE_PRINTF(3, 4);
static void show(shown *w, const char *name, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->b.cols[0].s[w->b.rows] = str_from(name);
    w->b.cols[1].s[w->b.rows++] = str_copy(w->s->mem, str_from(text));
}

static void show_count(shown *w, const char *name, uint64_t n) {
    show(w, name, "%llu", (unsigned long long)n);
}

static void show_rate(shown *w, const char *name, uint64_t part, uint64_t whole) {
    if (whole)
        show(w, name, "%.1f %%", 100.0 * (double)part / (double)whole);
    else
        show(w, name, "-");
}

/* Returns the text without line breaks, cut to TEXT_SHOWN columns. */
static str one_line(shown *w, str text) {
    str cut = str_copy(w->s->mem, (str){text.p, utf8_fit(text, TEXT_SHOWN)});
    for (size_t i = 0; i < cut.n; i++)
        if ((unsigned char)cut.p[i] < ' ')
            ((char *)(uintptr_t)cut.p)[i] = ' ';
    while (cut.n && cut.p[cut.n - 1] == ' ')
        cut.n--;
    return cut;
}

static void show_statement(shown *w, const history_entry *h, str text) {
    char name[40], rate[40] = "no tokens sent";
    uint64_t reused = h->prompt_tokens - BASE_MIN(h->computed_tokens, h->prompt_tokens);
    str line = one_line(w, text);
    if (h->prompt_tokens)
        snprintf(rate, sizeof rate, "%.1f %% of %llu tokens",
                 100.0 * (double)reused / (double)h->prompt_tokens,
                 (unsigned long long)h->prompt_tokens);
    snprintf(name, sizeof name, "statement %llu", (unsigned long long)h->number + 1);
    show(w, arena_strndup(w->s->mem, name, strlen(name)), "%s, %llu of %llu answers: %.*s", rate,
         (unsigned long long)h->answers_stored, (unsigned long long)h->distinct_inputs, (int)line.n,
         line.p);
}

/* Shows the reuse of all recorded statements together, and of each of the latest statements. */
static int show_statements(shown *w, err *e) {
    history_entry *all;
    str *texts;
    int n;
    uint64_t sent = 0, computed = 0, disk = 0, answers = 0, inputs = 0;
    int status = history_read(w->s->db->active, w->s->mem, &all, &texts, &n, e);
    if (status)
        return status;
    for (int i = 0; i < n; i++) {
        sent += all[i].prompt_tokens;
        computed += all[i].computed_tokens;
        disk += all[i].reused_disk;
        answers += all[i].answers_stored;
        inputs += all[i].distinct_inputs;
    }
    show_count(w, "statements", (uint64_t)n);
    show_rate(w, "token_hit_rate", sent - BASE_MIN(computed, sent), sent);
    show_rate(w, "from_disk", disk, sent);
    show_rate(w, "answers_reused", answers, inputs);
    for (int i = BASE_MAX(n - STATEMENTS_SHOWN, 0); i < n && status == 0; i++)
        show_statement(w, &all[i], texts[i]);
    return status;
}

static void show_prefixes(shown *w, cache *c) {
    cache_prefix list[PREFIXES_SHOWN];
    stmt *s = w->s;
    int n = cache_prefixes(&s->ctx, txn_catalog(s->db->active), c, s->mem, PREFIXES_SHOWN, list);
    for (int i = 0; i < n; i++) {
        str text = list[i].text.p ? one_line(w, list[i].text) : STR("(of another model)");
        show(w, "prefix", "%llu tokens, read %llu times: %.*s", (unsigned long long)list[i].tokens,
             (unsigned long long)list[i].hits, (int)text.n, text.p);
    }
}

static int show_cache(stmt *s, cache *c, const err *why, err *e) {
    static const value_type types[] = {TYPE_TEXT, TYPE_TEXT};
    const str names[] = {STR("name"), STR("value")};
    cache_stats st = {0};
    shown w = {.s = s};
    if (c)
        cache_get_stats(c, &st);
    stmt_describe(s, 2, names, types, TEXT_NONE);
    batch_init(&w.b, s->mem, types, 2, SHOWN_MAX);
    show_count(&w, "blocks", st.blocks);
    show_count(&w, "answers", st.answers);
    show_count(&w, "bytes", st.bytes);
    show_count(&w, "kv_bytes", st.of[CACHE_KV].bytes);
    show_count(&w, "answer_bytes", st.of[CACHE_ANSWERS].bytes);
    show_count(&w, "pinned_blocks", st.of[CACHE_KV].pinned);
    show_count(&w, "pinned_bytes", st.of[CACHE_KV].pinned_bytes);
    show_count(&w, "budget_bytes", st.budget_bytes);
    show_count(&w, "hits", st.hits);
    show_count(&w, "misses", st.misses);
    show_rate(&w, "hit_rate", st.hits, st.hits + st.misses);
    show_count(&w, "corrupt", st.corrupt);
    show_count(&w, "evicted", st.evicted);
    show_count(&w, "dropped", st.dropped);
    show_count(&w, "written", st.written);
    int status = show_statements(&w, e);
    if (c && status == 0)
        show_prefixes(&w, c);
    show(&w, "writing", "%s", !c ? why->message : st.writing ? "yes" : st.why_not);
    return status ? status : stmt_push(s, &w.b, e);
}

static int clear_model(stmt *s, cache *c, sql_stmt *x, err *e) {
    const model_def *m = catalog_model(txn_catalog(s->db->active), x->name);
    if (!m) {
        err_set(e, ERR_BIND, "no model \"%.*s\"", (int)x->name.n, x->name.p);
        err_hint(e, "register it with CREATE MODEL %.*s FROM 'file.gguf'",
                 (int)BASE_MIN(x->name.n, 80u), x->name.p);
        return ERR_BIND;
    }
    return model_files_clear(c, m->source, x->clear, e);
}

static int unpin(stmt *s, cache *c, str name, err *e) {
    cache_pins pins;
    int status = cache_unpin(c, name, &pins, e);
    if (status)
        return status;
    if (pins.records == 0)
        return err_set(e, ERR_BIND, "no pin \"%.*s\"", (int)name.n, name.p);
    buf bytes = {0};
    buf_append_bytes(&bytes, pins.bytes);
    exec_notice(&s->ctx, "UNPIN \"%.*s\": %llu block%s, %s, may be evicted",
                (int)BASE_MIN(name.n, 100u), name.p, (unsigned long long)pins.blocks,
                pins.blocks == 1 ? "" : "s", bytes.p);
    buf_free(&bytes);
    return 0;
}

int stmt_cache(stmt *s, sql_stmt *x, err *e) {
    err why;
    err_clear(&why);
    cache *c = store_cache(s->db->store, &why);
    if (c)
        cache_flush(c);
    if (x->kind == STMT_SHOW_CACHE)
        return show_cache(s, c, &why, e);
    if (!c) {
        *e = why;
        return (int)why.code;
    }
    if (x->kind == STMT_UNPIN)
        return unpin(s, c, x->name, e);
    if (x->name.n)
        return clear_model(s, c, x, e);
    int status = x->clear & CLEAR_KV ? cache_clear(c, CACHE_KV, e) : 0;
    return status == 0 && (x->clear & CLEAR_ANSWERS) ? cache_clear(c, CACHE_ANSWERS, e) : status;
}
