/*
 * stmt_cache.c - SHOW CACHE, CLEAR CACHE and UNPIN.
 *
 * Invariant: pending cache writes are flushed first, so the figures include them. When CLEAR CACHE
 * ends, the entries are deleted. SHOW CACHE is a summary; the system tables kvasir_cache,
 * kvasir_prefixes and kvasir_statements have all figures (system_cache.c).
 */
#include <string.h>

#include "llm/models_int.h"
#include "stmt_int.h"
#include "system/llm_history_int.h"
#include "system/system_int.h"

/* The rows of SHOW CACHE. */
typedef struct shown {
    stmt *s;
    batch b;
} shown;

enum { SHOWN_MAX = 8 };

static void show(shown *w, const char *name, buf *text) {
    w->b.cols[0].s[w->b.rows] = str_from(name);
    w->b.cols[1].s[w->b.rows++] = str_copy(w->s->mem, buf_str(text));
    buf_free(text);
}

/* Appends a number of values and their size: "512 (27 MB)". */
static void append_size(buf *out, uint64_t count, uint64_t bytes) {
    buf_append_count(out, count);
    if (count) {
        buf_append_c(out, " (");
        buf_append_bytes(out, bytes);
        buf_append_char(out, ')');
    }
}

static void append_share(buf *out, uint64_t part, uint64_t whole) {
    buf_printf(out, "%.1f %%", whole ? 100.0 * (double)part / (double)whole : 0);
}

static void show_stored(shown *w, cache *c, const cache_stats *st) {
    cache_item *items;
    uint64_t unread = 0, unread_bytes = 0;
    size_t n = cache_items(c, CACHE_KV, w->s->mem, &items);
    const cache_space_stats *kv = &st->of[CACHE_KV];
    buf text = {0};
    for (size_t i = 0; i < n; i++)
        if (items[i].hits == 0) {
            unread++;
            unread_bytes += items[i].bytes;
        }
    append_size(&text, st->answers, st->of[CACHE_ANSWERS].bytes);
    show(w, "answers", &text);
    append_size(&text, kv->entries, kv->bytes);
    if (kv->pinned) {
        buf_append_c(&text, ", pinned ");
        append_size(&text, kv->pinned, kv->pinned_bytes);
    }
    if (unread) {
        buf_append_c(&text, ", never read ");
        append_size(&text, unread, unread_bytes);
    }
    show(w, "KV blocks", &text);
}

static void show_reads(shown *w, const cache_stats *st) {
    buf text = {0};
    uint64_t reads = st->hits + st->misses;
    buf_append_count(&text, reads);
    buf_append_c(&text, " by this process");
    if (reads) {
        buf_append_c(&text, ", of them found ");
        append_share(&text, st->hits, reads);
    }
    show(w, "reads", &text);
}

static void show_eviction(shown *w, const cache_stats *st) {
    static const struct {
        const char *name, *first;
    } policies[] = {{"cost", "values that save the least time per byte"},
                    {"lru", "what has not been used for longest"},
                    {"fifo", "what was stored first"}};
    BASE_COVERS(policies, EVICTS);
    int policy = w->s->ctx.settings->kv_evict;
    buf text = {0};
    buf_append_count(&text, st->evicted);
    buf_append_c(&text, " values by this process; when ");
    buf_append_bytes(&text, st->budget_bytes);
    buf_printf(&text, " are full, first %s (kv_evict = '%s')", policies[policy].first,
               policies[policy].name);
    show(w, "evicted", &text);
}

/* Shows how much all recorded statements together reused. */
static int show_statements(shown *w, err *e) {
    history_entry *all;
    str *texts;
    int n;
    uint64_t sent = 0, computed = 0, disk = 0, answers = 0, inputs = 0;
    buf text = {0};
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
    buf_append_count(&text, (uint64_t)n);
    if (n) {
        buf_append_c(&text, " on record; answers found ");
        append_share(&text, answers, inputs);
        buf_append_c(&text, ", prompt tokens reused ");
        append_share(&text, sent - BASE_MIN(computed, sent), sent);
        buf_append_c(&text, " (from disk ");
        append_share(&text, disk, sent);
        buf_append_c(&text, ")");
    }
    show(w, "statements", &text);
    return 0;
}

static int show_cache(stmt *s, cache *c, const err *why, err *e) {
    static const value_type types[] = {TYPE_TEXT, TYPE_TEXT};
    const str names[] = {STR("name"), STR("value")};
    cache_stats st = {0};
    shown w = {.s = s};
    buf text = {0};
    stmt_describe(s, 2, names, types, TEXT_NONE);
    batch_init(&w.b, s->mem, types, 2, SHOWN_MAX);
    if (c)
        cache_get_stats(c, &st);
    buf_append_bytes(&text, st.bytes);
    buf_append_c(&text, " of ");
    buf_append_bytes(&text, st.budget_bytes);
    if (!c || !st.writing)
        buf_printf(&text, "; not written: %s", c ? st.why_not : why->message);
    else if (!s->ctx.settings->cache)
        buf_append_c(&text, "; not used: cache is off");
    show(&w, "on disk", &text);
    if (c) {
        show_stored(&w, c, &st);
        show_reads(&w, &st);
        show_eviction(&w, &st);
    }
    int status = show_statements(&w, e);
    buf_append_c(&text, "the tables kvasir_cache, kvasir_prefixes and kvasir_statements");
    show(&w, "more", &text);
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
