/*
 * model_files.c - which entries of the cache belong to which model file.
 *
 *   the cache's item "model_files": version u64 | array of {fingerprint, weights, path}
 *
 * There is a record for each version of a file's contents and each way of opening the file. The
 * last record of a path is for the contents that were used last.
 *
 * Invariant: no answer depends on this record. A fingerprint covers every byte of a file, so
 * entries of a file's old contents are not found until the file has these contents again. The
 * record only lets CLEAR CACHE FOR MODEL find the entries of all contents that the file had, and
 * lets a statement warn that a file has changed.
 */
#include <stdlib.h>
#include <string.h>

#include "llm_int.h"

enum { RECORDS_MAX = 256, RECORDS_VERSION = 2 };

#define NOTE_KEY STR("model_files")

typedef struct file_record {
    hash128 fingerprint; /* the identities of the file's cache entries begin with it */
    hash128 weights;     /* llm_model_info.weights: hash of the file's contents */
    hash128 path;        /* hash of the absolute path */
} file_record;

static hash128 path_hash(const char *path) {
    char *real = realpath(path, NULL); /* NULL if it is not a file, such as test:hash */
    const char *name = real ? real : path;
    hash128 h = hash_128(name, strlen(name));
    free(real);
    return h;
}

static int records_read(cache *c, file_record *out) {
    buf bytes = {0};
    uint64_t version = 0;
    size_t n = 0;
    if (cache_meta_get(c, NOTE_KEY, &bytes) && bytes.n >= sizeof version)
        memcpy(&version, bytes.p, sizeof version);
    if (version == RECORDS_VERSION)
        n = BASE_MIN((bytes.n - sizeof version) / sizeof *out, (size_t)RECORDS_MAX);
    if (n)
        memcpy(out, bytes.p + sizeof version, sizeof *out * n);
    buf_free(&bytes);
    return (int)n;
}

/* Finds the last record of the path, and the record of this fingerprint; -1: none. */
static void records_find(const file_record *records, int n, const file_record *now, int *last,
                         int *own) {
    *last = *own = -1;
    for (int i = 0; i < n; i++)
        if (hash128_equal(records[i].path, now->path)) {
            *last = i;
            *own = hash128_equal(records[i].fingerprint, now->fingerprint) ? i : *own;
        }
}

void model_files_note(exec_ctx *ctx, cache *c, const llm_model_info *info) {
    file_record records[RECORDS_MAX + 1];
    file_record now = {info->fingerprint, info->weights, path_hash(info->path)};
    int last, own, n = records_read(c, records);
    err ignored = {0}; /* the cache works without the record */
    records_find(records, n, &now, &last, &own);
    bool changed = last >= 0 && !hash128_equal(records[last].weights, now.weights);
    if (own >= 0 && !changed)
        return;
    if (changed)
        exec_notice(ctx, "the model '%s' has changed: answers and KV of the old file are not used",
                    info->path);
    if (own >= 0 || n == RECORDS_MAX) {
        int gone = BASE_MAX(own, 0);
        memmove(records + gone, records + gone + 1, sizeof *records * (size_t)(--n - gone));
    }
    records[n++] = now;
    uint64_t version = RECORDS_VERSION;
    buf note = {0};
    buf_append(&note, &version, sizeof version);
    buf_append(&note, records, sizeof *records * (size_t)n);
    cache_meta_put(c, NOTE_KEY, buf_str(&note), &ignored);
    buf_free(&note);
}

/* Deletes the entries of a fingerprint. */
static int clear_entries(cache *c, hash128 fingerprint, clear_what what, err *e) {
    str identity = {(const char *)&fingerprint, sizeof fingerprint};
    int status = what & CLEAR_KV ? cache_clear_matching(c, CACHE_KV, identity, NULL, e) : 0;
    if (status == 0 && (what & CLEAR_ANSWERS))
        status = cache_clear_matching(c, CACHE_ANSWERS, identity, NULL, e);
    return status;
}

int model_files_clear(cache *c, str source, clear_what what, err *e) {
    file_record records[RECORDS_MAX];
    char *path = mem_strndup(source.p, source.n);
    hash128 of = path_hash(path);
    int status = 0, n = records_read(c, records);
    for (int i = 0; i < n && status == 0; i++)
        if (hash128_equal(records[i].path, of))
            status = clear_entries(c, records[i].fingerprint, what, e);
    free(path);
    return status;
}
