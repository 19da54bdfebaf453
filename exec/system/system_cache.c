/*
 * system_cache.c - the system tables kvasir_cache, kvasir_prefixes and kvasir_statements.
 *
 * Invariant: reading these tables does not change the cache. If the cache cannot be opened,
 * kvasir_cache shows the reason, and kvasir_prefixes has no rows.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/db_core_int.h"
#include "llm/models_int.h"
#include "llm_history_int.h"
#include "system_int.h"

static void int_cell(maker *m, uint64_t n) {
    system_cell(m, value_int((int64_t)n));
}

static void rate_cell(maker *m, uint64_t part, uint64_t whole) {
    double rate = whole ? real_rounded((double)part / (double)whole, 4) : 0;
    system_cell(m, whole ? value_real(rate) : value_null());
}

/* ---- kvasir_cache: one row per space --------------------------------------------------------- */

const rel_column cache_cols[CACHE_COLS] = {
    COLUMN("space", TYPE_TEXT),      COLUMN("entries", TYPE_INTEGER),
    COLUMN("bytes", TYPE_INTEGER),   COLUMN("budget_bytes", TYPE_INTEGER),
    COLUMN("pinned", TYPE_INTEGER),  COLUMN("pinned_bytes", TYPE_INTEGER),
    COLUMN("hits", TYPE_INTEGER),    COLUMN("misses", TYPE_INTEGER),
    COLUMN("hit_rate", TYPE_REAL),   COLUMN("written", TYPE_INTEGER),
    COLUMN("evicted", TYPE_INTEGER), COLUMN("dropped", TYPE_INTEGER),
    COLUMN("corrupt", TYPE_INTEGER), COLUMN("is_writing", TYPE_BOOLEAN),
    COLUMN("why_not", TYPE_TEXT)};

int cache_rows(maker *m, err *e) {
    static const char *const spaces[] = {"kv", "answers"};
    err why;
    cache_stats st = {0};
    (void)e;
    err_clear(&why);
    cache *c = store_cache(system_ctx(m)->db->store, &why);
    if (c)
        cache_get_stats(c, &st);
    const char *reason = c ? st.why_not : why.message;
    str kept = str_copy(system_mem(m), str_from(reason));
    for (int i = 0; i < 2; i++) {
        const cache_space_stats *s = &st.of[i];
        system_cell(m, value_text(str_from(spaces[i])));
        int_cell(m, s->entries);
        int_cell(m, s->bytes);
        int_cell(m, st.budget_bytes);
        int_cell(m, s->pinned);
        int_cell(m, s->pinned_bytes);
        int_cell(m, s->hits);
        int_cell(m, s->misses);
        rate_cell(m, s->hits, s->hits + s->misses);
        int_cell(m, st.written);
        int_cell(m, st.evicted);
        int_cell(m, st.dropped);
        int_cell(m, st.corrupt);
        system_cell(m, value_bool(c && st.writing));
        system_cell(m, kept.n ? value_text(kept) : value_null());
    }
    return 0;
}

/* ---- kvasir_prefixes: the stored prefixes that saved the most -------------------------------- */

const rel_column prefixes_cols[PREFIXES_COLS] = {
    COLUMN("tokens", TYPE_INTEGER), COLUMN("hits", TYPE_INTEGER), COLUMN("bytes", TYPE_INTEGER),
    COLUMN("text", TYPE_TEXT)};

enum { PREFIXES_SHOWN = 100, TEXT_BLOCKS = 2 };

typedef struct stored_block {
    cache_item item;
    int depth; /* number of blocks from the prefix's start up to this one; 0: not computed */
} stored_block;

static int by_key(const void *pa, const void *pb) {
    const cache_item *a = &((const stored_block *)pa)->item, *b = &((const stored_block *)pb)->item;
    if (a->key.high != b->key.high)
        return a->key.high < b->key.high ? -1 : 1;
    return (a->key.low > b->key.low) - (a->key.low < b->key.low);
}

static stored_block *find_block(stored_block *all, size_t n, hash128 key) {
    stored_block wanted = {.item = {.key = key}};
    return n ? bsearch(&wanted, all, n, sizeof *all, by_key) : NULL;
}

/* Returns the length of the chain b, its parent, its parent's parent, …, which ends at the prefix's
 * start or before a block that was evicted. */
static int depth_of(stored_block *all, size_t n, const stored_block *b) {
    int depth = 0;
    for (; b && depth < 100000; depth++)
        b = find_block(all, n, b->item.parent);
    return depth;
}

/* Returns about how many blocks of computation a prefix has saved: its blocks times its reads. Half
 * a read is added, so that prefixes never read are ordered by length. */
static double worth(const stored_block *b) {
    return (double)b->depth * ((double)b->item.hits + 0.5);
}

static int by_worth(const void *pa, const void *pb) {
    double a = worth(*(stored_block *const *)pa), b = worth(*(stored_block *const *)pb);
    return (a < b) - (a > b);
}

/* Returns the text of a prefix's last TEXT_BLOCKS blocks. Its pointer is NULL if the default model
 * did not compute the prefix. */
static str prefix_text(arena *mem, const llm_engine *engine, cache *c, stored_block *all, size_t n,
                       const stored_block *b) {
    llm_token tokens[TEXT_BLOCKS * LLM_BLOCK_TOKENS];
    int at = TEXT_BLOCKS;
    bool ours = engine != NULL;
    for (const stored_block *x = b; x && at > 0 && ours; x = find_block(all, n, x->item.parent)) {
        buf identity = {0};
        llm_kv_id id;
        ours = cache_identity(c, CACHE_KV, x->item.key, &identity) &&
               identity.n == offsetof(llm_kv_id, depth);
        if (ours) {
            memcpy(&id, identity.p, identity.n);
            ours = hash128_equal(id.fingerprint, llm_engine_info(engine)->fingerprint);
            memcpy(tokens + --at * LLM_BLOCK_TOKENS, id.tokens, sizeof id.tokens);
        }
        buf_free(&identity);
    }
    if (!ours)
        return (str){NULL, 0};
    buf text = {0};
    llm_detokenize(engine, tokens + at * LLM_BLOCK_TOKENS,
                   (size_t)(TEXT_BLOCKS - at) * LLM_BLOCK_TOKENS, false, &text);
    /* a block may begin or end within a character */
    str copy = str_copy(mem, utf8_whole(buf_str(&text)));
    buf_free(&text);
    return copy;
}

/* Sorts the blocks by key and sets the depth of those where a prefix ends: at a block with no child
 * or with several. Writes these to `ends`, best first; returns their number. */
static size_t find_ends(stored_block *all, size_t n, stored_block **ends) {
    size_t count = 0;
    qsort(all, n, sizeof *all, by_key);
    for (size_t i = 0; i < n; i++)
        if (all[i].item.children != 1) {
            all[i].depth = depth_of(all, n, &all[i]);
            ends[count++] = &all[i];
        }
    qsort(ends, count, sizeof *ends, by_worth);
    return count;
}

int prefixes_rows(maker *m, err *e) {
    exec_ctx *ctx = system_ctx(m);
    arena *mem = system_mem(m);
    llm_engine *engine = NULL;
    cache_item *items;
    err ignored; /* without a cache there are no rows, without a model the prefixes have no text */
    (void)e;
    err_clear(&ignored);
    cache *c = store_cache(ctx->db->store, &ignored);
    if (!c)
        return 0;
    size_t n = cache_items(c, CACHE_KV, mem, &items);
    stored_block *all = ARENA_ARRAY(mem, stored_block, n + 1);
    stored_block **ends = ARENA_ARRAY(mem, stored_block *, n + 1);
    for (size_t i = 0; i < n; i++)
        all[i].item = items[i];
    size_t count = find_ends(all, n, ends);
    if (count)
        engine_acquire(ctx->db, ctx->settings, txn_catalog(ctx->txn), STR(""), false, ctx->cancel,
                       &engine, &ignored);
    for (size_t i = 0; i < count && i < PREFIXES_SHOWN; i++) {
        const stored_block *b = ends[i];
        str text = prefix_text(mem, engine, c, all, n, b);
        int_cell(m, (uint64_t)b->depth * LLM_BLOCK_TOKENS);
        int_cell(m, b->item.hits);
        int_cell(m, (uint64_t)b->depth * b->item.bytes);
        system_cell(m, text.p ? value_text(text) : value_null());
    }
    engine_release(ctx->db, engine);
    return 0;
}

/* ---- kvasir_statements ----------------------------------------------------------------------- */

#define FIGURE_COLUMN(name, column) COLUMN(column, TYPE_INTEGER),
const rel_column statements_cols[STATEMENTS_COLS] = {
    COLUMN("number", TYPE_INTEGER),    COLUMN("ended_at", TYPE_TEXT),
    COLUMN("text", TYPE_TEXT),         COLUMN("result", TYPE_TEXT),
    COLUMN("row_count", TYPE_INTEGER), HISTORY_FIGURES(FIGURE_COLUMN) COLUMN("hit_rate", TYPE_REAL),
    COLUMN("seconds", TYPE_REAL)};

static value time_value(maker *m, int64_t at) {
    char text[40];
    time_t t = (time_t)at;
    struct tm parts;
    gmtime_r(&t, &parts);
    size_t n = strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
    return value_text(str_copy(system_mem(m), (str){text, n}));
}

int statements_rows(maker *m, err *e) {
    history_entry *all;
    str *texts;
    int n;
    int status = history_read(system_ctx(m)->txn, system_mem(m), &all, &texts, &n, e);
    for (int i = 0; i < n && status == 0; i++) {
        const history_entry *h = &all[i];
        const char *ended = h->status == ERR_CANCELLED ? "cancelled"
                            : h->status                ? "failed"
                                                       : "done";
        int_cell(m, h->number + 1);
        system_cell(m, time_value(m, h->at));
        system_cell(m, value_text(texts[i]));
        system_cell(m, value_text(str_from(ended)));
        int_cell(m, h->rows);
#define FIGURE_CELL(name, column) int_cell(m, h->name);
        HISTORY_FIGURES(FIGURE_CELL)
        rate_cell(m, h->prompt_tokens - BASE_MIN(h->computed_tokens, h->prompt_tokens),
                  h->prompt_tokens);
        system_cell(m, value_real(real_rounded(h->seconds, 3)));
    }
    return status;
}
