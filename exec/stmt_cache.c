/*
 * stmt_cache.c - SHOW CACHE and CLEAR CACHE.
 *
 * Invariant: what is shown includes what was put before; clearing is over when the statement is.
 * The same figures as rows are kvasir_cache, kvasir_prefixes and kvasir_statements (system_cache.c).
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "history_int.h"

typedef struct shown {
    stmt *s;
    batch b;
} shown;

enum { SHOWN_MAX = 24 };

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

/* Token hit rates of the statements on record: overall, and of the last one. */
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
        inputs += all[i].inputs;
    }
    show_count(w, "statements", (uint64_t)n);
    show_rate(w, "token_hit_rate", sent - BASE_MIN(computed, sent), sent);
    show_rate(w, "from_disk", disk, sent);
    show_rate(w, "answers_reused", answers, inputs);
    return 0;
}

static int show_cache(stmt *s, cache *c, const err *why, err *e) {
    static const value_type types[] = {TYPE_TEXT, TYPE_TEXT};
    const str names[] = {STR("name"), STR("value")};
    cache_stats st = {0};
    shown w = {.s = s};
    if (c)
        cache_get_stats(c, &st);
    stmt_describe(s, 2, names, types, false);
    batch_init(&w.b, s->mem, types, 2, SHOWN_MAX);
    show_count(&w, "blocks", st.blocks);
    show_count(&w, "answers", st.answers);
    show_count(&w, "bytes", st.bytes);
    show_count(&w, "kv_bytes", st.of[CACHE_KV].bytes);
    show_count(&w, "answer_bytes", st.of[CACHE_ANSWERS].bytes);
    show_count(&w, "budget_bytes", st.budget_bytes);
    show_count(&w, "hits", st.hits);
    show_count(&w, "misses", st.misses);
    show_rate(&w, "hit_rate", st.hits, st.hits + st.misses);
    show_count(&w, "corrupt", st.corrupt);
    show_count(&w, "evicted", st.evicted);
    show_count(&w, "dropped", st.dropped);
    show_count(&w, "written", st.written);
    int status = show_statements(&w, e);
    show(&w, "writing", "%s", !c ? why->message : st.writing ? "yes" : st.why_not);
    return status ? status : stmt_push(s, &w.b, e);
}

static int clear_model(stmt *s, cache *c, sql_stmt *x, err *e) {
    const model_def *m = catalog_model(txn_catalog(s->db->active), x->name);
    if (!m)
        return err_set(e, ERR_BIND, "no model \"%.*s\"", (int)x->name.n, x->name.p);
    return model_files_clear(s->db, c, m->source, x->clear, e);
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
    if (x->name.n)
        return clear_model(s, c, x, e);
    int status = x->clear != 2 ? cache_clear(c, CACHE_KV, e) : 0;
    return status == 0 && x->clear != 1 ? cache_clear(c, CACHE_ANSWERS, e) : status;
}
