/*
 * model_files.c - which entries of the cache belong to which model file.
 *
 *   fact/model_file/<path>   array of {fingerprint, bytes, mtime}, one per way the file was opened
 *
 * A fingerprint covers weights, options and machine (ENGINE 3), so entries of a file that changed are
 * never found again; this is what lets them go at once, and say so. Entries that another machine or
 * another option made of the same file stay.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "db_int.h"
#include "llm_int.h"

enum { FINGERPRINTS_MAX = 16 };

typedef struct file_record {
    hash128 fingerprint;
    uint64_t bytes;
    int64_t mtime_ns;
} file_record;

static void record_key(const char *path, buf *out) {
    char *real = realpath(path, NULL); /* NULL for what is no file: test:hash */
    buf_printf(out, "model_file/%s", real ? real : path);
    free(real);
}

static void look_at_file(const llm_model_info *info, file_record *out) {
    struct stat st;
    *out = (file_record){.fingerprint = info->fingerprint};
    if (stat(info->path, &st) == 0) {
        out->bytes = (uint64_t)st.st_size;
        out->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    }
}

/* The records of a path, at most FINGERPRINTS_MAX; a record that cannot be read is one not known. */
static int records_read(db *d, str key, file_record *out) {
    arena *a = arena_new();
    err ignored = {0};
    bool found = false;
    str bytes;
    int n = 0;
    if (db_recall(d, key, a, &bytes, &found, &ignored) == 0 && found)
        n = (int)BASE_MIN(bytes.n / sizeof *out, (size_t)FINGERPRINTS_MAX);
    if (n)
        memcpy(out, bytes.p, sizeof *out * (size_t)n);
    arena_free(a);
    return n;
}

static int drop_entries(cache *c, hash128 fingerprint, bool kv, bool answers, uint64_t dropped[2],
                        err *e) {
    str identity = {(const char *)&fingerprint, sizeof fingerprint};
    uint64_t n = 0;
    int status = kv ? cache_clear_matching(c, CACHE_KV, identity, &n, e) : 0;
    dropped[0] += n;
    n = 0;
    if (status == 0 && answers)
        status = cache_clear_matching(c, CACHE_ANSWERS, identity, &n, e);
    dropped[1] += n;
    return status;
}

void model_files_check(exec_ctx *ctx, cache *c, const llm_model_info *info) {
    file_record now, kept[FINGERPRINTS_MAX + 1];
    buf key = {0};
    err ignored = {0};
    uint64_t dropped[2] = {0, 0};
    bool known = false, changed = false;
    int n, nkept = 0;
    record_key(info->path, &key);
    n = records_read(ctx->db, buf_str(&key), kept);
    look_at_file(info, &now);
    for (int i = 0; i < n; i++)
        known = known || hash128_equal(kept[i].fingerprint, now.fingerprint);
    for (int i = 0; i < n; i++) {
        bool same = kept[i].bytes == now.bytes && kept[i].mtime_ns == now.mtime_ns;
        if (known || same) {
            kept[nkept++] = kept[i];
            continue;
        }
        changed = true;
        drop_entries(c, kept[i].fingerprint, true, true, dropped, &ignored);
    }
    if (changed)
        exec_notice(ctx, "the model file %s changed: %llu KV blocks and %llu answers of the old one were dropped",
                    info->path, (unsigned long long)dropped[0], (unsigned long long)dropped[1]);
    if (!known) {
        if (nkept == FINGERPRINTS_MAX)
            memmove(kept, kept + 1, sizeof *kept * (size_t)--nkept);
        kept[nkept++] = now;
        db_remember(ctx->db, buf_str(&key),
                    (str){(const char *)kept, sizeof *kept * (size_t)nkept}, &ignored);
    }
    buf_free(&key);
}

int model_files_clear(db *d, cache *c, str source, int what, err *e) {
    file_record records[FINGERPRINTS_MAX];
    uint64_t dropped[2] = {0, 0};
    buf key = {0};
    char *path = mem_strndup(source.p, source.n);
    record_key(path, &key);
    int status = 0, n = records_read(d, buf_str(&key), records);
    for (int i = 0; i < n && status == 0; i++)
        status = drop_entries(c, records[i].fingerprint, what != 2, what != 1, dropped, e);
    buf_free(&key);
    free(path);
    return status;
}
