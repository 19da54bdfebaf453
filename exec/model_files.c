/*
 * model_files.c - which entries of the cache belong to which model file.
 *
 *   fact/model_file/<path>   array of {fingerprint, content, bytes, mtime}, one per way it was
 *                            opened
 *
 * A fingerprint covers options, machine and samples of the weights (ENGINE 3): enough to tell
 * models apart without reading gigabytes at every start, not to tell that one weight was edited. So
 * a file whose size or time is not the one on record is read whole, and if its bytes are others,
 * what the old one left is dropped, with a notice. Entries that another machine or another option
 * made of the same bytes stay. Invariant: this is decided before the first entry of the statement
 * is looked up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "db_int.h"
#include "llm_int.h"

enum { FINGERPRINTS_MAX = 16, CHUNK = 4 << 20 };

typedef struct file_record {
    hash128 fingerprint, content;
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

/* A hash of the hashes of the file's chunks; zero for what cannot be read. */
static hash128 content_hash(const char *path) {
    hash128 zero = {0, 0};
    FILE *f = fopen(path, "re");
    if (!f)
        return zero;
    char *chunk = mem_alloc(CHUNK);
    buf hashes = {0};
    for (size_t n; (n = fread(chunk, 1, CHUNK, f)) > 0;) {
        hash128 h = hash_128(chunk, n);
        buf_append(&hashes, &h, sizeof h);
    }
    hash128 all = ferror(f) || hashes.n == 0 ? zero : hash_128(hashes.p, hashes.n);
    buf_free(&hashes);
    free(chunk);
    fclose(f);
    return all;
}

static bool same_stat(const file_record *a, const file_record *b) {
    return a->bytes == b->bytes && a->mtime_ns == b->mtime_ns;
}

/* The records of a path, at most FINGERPRINTS_MAX;
 * a record that cannot be read is one not known. */
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

/* Whether the record on hand is what the file still is, by size and time. */
static bool is_known(const file_record *records, int n, const file_record *now) {
    for (int i = 0; i < n; i++)
        if (hash128_equal(records[i].fingerprint, now->fingerprint))
            return same_stat(&records[i], now);
    return false;
}

bool model_files_check(exec_ctx *ctx, cache *c, const llm_model_info *info) {
    file_record now, records[FINGERPRINTS_MAX + 1];
    buf key = {0};
    err ignored = {0};
    uint64_t dropped[2] = {0, 0};
    bool usable = true;
    int kept = 0;
    record_key(info->path, &key);
    int n = records_read(ctx->db, buf_str(&key), records);
    look_at_file(info, &now);
    if (is_known(records, n, &now)) {
        buf_free(&key);
        return true;
    }
    now.content = content_hash(info->path);
    for (int i = 0; i < n; i++) {
        if (!hash128_equal(records[i].content, now.content)) {
            usable = drop_entries(c, records[i].fingerprint, true, true, dropped, &ignored) == 0 &&
                     usable;
        } else if (!hash128_equal(records[i].fingerprint, now.fingerprint)) {
            records[kept] = records[i];
            records[kept].mtime_ns = now.mtime_ns; /* copied or touched: the bytes are the same */
            records[kept++].bytes = now.bytes;
        }
    }
    if (dropped[0] + dropped[1] > 0)
        exec_notice(
            ctx,
            "the model file %s changed: %llu KV blocks and %llu answers of the old one were "
            "dropped",
            info->path, (unsigned long long)dropped[0], (unsigned long long)dropped[1]);
    if (kept == FINGERPRINTS_MAX)
        memmove(records, records + 1, sizeof *records * (size_t)--kept);
    records[kept++] = now;
    if (usable)
        db_remember(ctx->db, buf_str(&key),
                    (str){(const char *)records, sizeof *records * (size_t)kept}, &ignored);
    buf_free(&key);
    return usable;
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
