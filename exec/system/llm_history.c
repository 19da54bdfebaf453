/*
 * llm_history.c - the history of statements that called a model: the last 1,000, in the database.
 *
 *   fact/history/next   u64: number of records ever written
 *   fact/history/NNN    record n in slot n modulo 1,000: a history_entry, then the statement's text
 *
 * Invariant: writing history neither fails nor delays a statement. A record is written after the
 * statement has finished. It is dropped if another process is writing, a transaction is open or
 * the database is read-only.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/db_core_int.h"
#include "llm_history_int.h"

enum { HISTORY_VERSION = 1, HISTORY_SLOTS = 1000, TEXT_MAX = 8000 };

static const char next_key[] = "fact/history/next";

static str slot_key(char *out, size_t size, uint64_t number) {
    int n = snprintf(out, size, "fact/history/%03u", (unsigned)(number % HISTORY_SLOTS));
    return (str){out, (size_t)n};
}

static str trimmed_text(str text) {
    while (text.n && strchr(" \t\r\n", text.p[0]))
        text.p++, text.n--;
    while (text.n && strchr(" \t\r\n;", text.p[text.n - 1]))
        text.n--;
    if (text.n > TEXT_MAX) {
        text.n = TEXT_MAX;
        while (text.n && ((unsigned char)text.p[text.n] & 0xC0u) == 0x80u)
            text.n--;
    }
    return text;
}

void history_record(const exec_summary *sum, stmt_kind kind, str text, int status, buf *out) {
    if (sum->llm.requests + sum->llm.answers_stored == 0)
        return;
    history_entry h = {.version = HISTORY_VERSION,
                       .status = status,
                       .at = (int64_t)time(NULL),
                       .rows = sum->rows,
                       .seconds = sum->seconds};
#define COPY(name, column) h.name = sum->llm.name;
    HISTORY_FIGURES(COPY)
#undef COPY
    if (kind == STMT_WARM) {
        /* WARM computed only shared prefixes, not whole prompts */
        h.prompt_tokens = h.computed_tokens + h.reused_disk;
        h.reused_memory = 0;
    }
    buf_append(out, &h, sizeof h);
    buf_append_str(out, trimmed_text(text));
}

static int write_record(txn *t, buf *record, err *e) {
    char name[40];
    str bytes;
    bool found;
    uint64_t number = 0;
    int status = meta_get(t, STR("fact/history/next"), &bytes, &found, e);
    if (status == 0 && found && bytes.n == sizeof number)
        memcpy(&number, bytes.p, sizeof number);
    memcpy(record->p + offsetof(history_entry, number), &number, sizeof number);
    if (status == 0)
        status = meta_put(t, slot_key(name, sizeof name, number), buf_str(record), e);
    number++;
    if (status == 0)
        status = meta_put(t, str_from(next_key), (str){(const char *)&number, sizeof number}, e);
    return status;
}

void history_write(db *d, buf *record) {
    txn_wait at_once = {.busy_timeout_ms = 0};
    err ignored = {0};
    txn *t;
    if (record->n == 0 || d->active || d->txn || store_is_read_only(d->store) ||
        txn_begin(d->store, true, &at_once, &t, &ignored) != 0)
        return;
    if (write_record(t, record, &ignored) == 0)
        txn_commit(t, &ignored);
    else
        txn_abort(t);
}

int history_read(txn *t, arena *a, history_entry **out, str **texts, int *count, err *e) {
    char name[40];
    str bytes;
    bool found;
    uint64_t next = 0;
    int status = meta_get(t, str_from(next_key), &bytes, &found, e);
    if (status == 0 && found && bytes.n == sizeof next)
        memcpy(&next, bytes.p, sizeof next);
    uint64_t first = next > HISTORY_SLOTS ? next - HISTORY_SLOTS : 0;
    *out = ARENA_ARRAY(a, history_entry, (size_t)(next - first) + 1);
    *texts = ARENA_ARRAY(a, str, (size_t)(next - first) + 1);
    *count = 0;
    for (uint64_t k = first; k < next && status == 0; k++) {
        history_entry *h = &(*out)[*count];
        status = meta_get(t, slot_key(name, sizeof name, k), &bytes, &found, e);
        if (status || !found || bytes.n < sizeof *h)
            continue;
        memcpy(h, bytes.p, sizeof *h);
        if (h->version != HISTORY_VERSION || h->number != k)
            continue;
        (*texts)[(*count)++] = str_copy(a, (str){bytes.p + sizeof *h, bytes.n - sizeof *h});
    }
    return status;
}
