/*
 * model_files.c - which entries of the cache belong to which model file.
 *
 *   the cache's note "model_files": array of {fingerprint, content, path, stamp}, one per file and
 *   way it was opened
 *
 * A fingerprint covers options, machine and samples of the weights (ENGINE 3): enough to tell
 * models apart without reading gigabytes at every start, not to tell that one weight was edited. So
 * a file whose stamp (size, times, inode) is not the one on record is read whole, and if its bytes
 * are others, what the old one left is dropped, with a notice; so is what another file left that
 * the samples do not tell from this one. Entries that another machine or another option made of the
 * same bytes stay. Invariant: this is decided before the first entry of the statement is looked up,
 * and entries are believed only of a fingerprint whose content is on record.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "db_int.h"
#include "llm_int.h"

enum { RECORDS_MAX = 256, CHUNK = 4 << 20 };

#define NOTE_KEY STR("model_files")

typedef struct file_record {
    hash128 fingerprint, content, path, stamp;
} file_record;

static const hash128 none;

/* ---- files ----------------------------------------------------------------------------------- */

hash128 model_files_stamp(const char *path) {
    buf b = {0}, name = {0};
    for (int i = 0; i < llm_shard_count(path); i++) {
        struct stat st;
        buf_clear(&name);
        llm_shard_path(path, i, &name);
        if (stat(name.p, &st) != 0)
            continue;
        int64_t facts[] = {(int64_t)st.st_size,        (int64_t)st.st_ino,
                           (int64_t)st.st_mtim.tv_sec, (int64_t)st.st_mtim.tv_nsec,
                           (int64_t)st.st_ctim.tv_sec, (int64_t)st.st_ctim.tv_nsec};
        buf_append(&b, facts, sizeof facts);
    }
    hash128 stamp = b.n ? hash_128(b.p, b.n) : none;
    buf_free(&b);
    buf_free(&name);
    return stamp;
}

/* Appends the hashes of a file's chunks. */
static void hash_file(const char *path, char *chunk, buf *hashes) {
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    for (size_t n; (n = fread(chunk, 1, CHUNK, f)) > 0;) {
        hash128 h = hash_128(chunk, n);
        buf_append(hashes, &h, sizeof h);
    }
    if (ferror(f))
        buf_clear(hashes);
    fclose(f);
}

/* A hash of the hashes of the files' chunks; zero for what cannot be read. */
static hash128 content_hash(const char *path) {
    char *chunk = mem_alloc(CHUNK);
    buf hashes = {0}, name = {0};
    for (int i = 0; i < llm_shard_count(path); i++) {
        buf_clear(&name);
        llm_shard_path(path, i, &name);
        hash_file(name.p, chunk, &hashes);
    }
    hash128 all = hashes.n ? hash_128(hashes.p, hashes.n) : none;
    buf_free(&hashes);
    buf_free(&name);
    free(chunk);
    return all;
}

static hash128 path_hash(const char *path) {
    char *real = realpath(path, NULL); /* NULL for what is no file: test:hash */
    const char *name = real ? real : path;
    hash128 h = hash_128(name, strlen(name));
    free(real);
    return h;
}

/* ---- records --------------------------------------------------------------------------------- */

static int records_read(cache *c, file_record *out) {
    buf bytes = {0};
    int n = 0;
    if (cache_note(c, NOTE_KEY, &bytes))
        n = (int)BASE_MIN(bytes.n / sizeof *out, (size_t)RECORDS_MAX);
    if (n)
        memcpy(out, bytes.p, sizeof *out * (size_t)n);
    buf_free(&bytes);
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

/* Whether the file is what it was, by its stamp. One that
 * is gone is what it was: the open engine still has it. */
static bool is_known(const file_record *records, int n, const file_record *now) {
    for (int i = 0; i < n; i++)
        if (hash128_equal(records[i].fingerprint, now->fingerprint) &&
            hash128_equal(records[i].path, now->path))
            return hash128_equal(now->stamp, records[i].stamp) || hash128_equal(now->stamp, none);
    return false;
}

/* What becomes of the records when a file is looked at. */
typedef struct review {
    file_record now, kept[RECORDS_MAX + 1];
    int nkept;
    bool on_record;      /* its content is on record for its fingerprint */
    bool changed, alike; /* the file was another; another file has its fingerprint */
    uint64_t dropped[2];
} review;

static int review_record(review *w, cache *c, file_record r, err *e) {
    bool same_print = hash128_equal(r.fingerprint, w->now.fingerprint);
    bool same_path = hash128_equal(r.path, w->now.path);
    if (hash128_equal(r.content, w->now.content)) {
        w->on_record = w->on_record || same_print;
        if (same_path) /* copied or touched: the bytes are the same */
            r.stamp = w->now.stamp;
        if (!same_path || !same_print)
            w->kept[w->nkept++] = r;
        return 0;
    }
    if (!same_print && !same_path) {
        w->kept[w->nkept++] = r;
        return 0;
    }
    w->changed = w->changed || same_path;
    w->alike = w->alike || !same_path;
    return drop_entries(c, r.fingerprint, true, true, w->dropped, e);
}

static void tell_review(exec_ctx *ctx, const review *w, const char *path) {
    unsigned long long blocks = w->dropped[0], answers = w->dropped[1];
    if (blocks + answers == 0)
        return;
    if (w->changed)
        exec_notice(ctx,
                    "the model file %s changed: %llu KV blocks and %llu answers of the old one "
                    "were dropped",
                    path, blocks, answers);
    else if (w->alike)
        exec_notice(ctx,
                    "%llu KV blocks and %llu answers were dropped: they are of another model "
                    "file, which differs from %s in few weights",
                    blocks, answers, path);
}

bool model_files_check(exec_ctx *ctx, cache *c, const llm_model_info *info) {
    file_record records[RECORDS_MAX];
    review w = {.now = {.fingerprint = info->fingerprint,
                        .path = path_hash(info->path),
                        .stamp = model_files_stamp(info->path)}};
    err ignored = {0};
    bool usable = true;
    int n = records_read(c, records);
    if (is_known(records, n, &w.now))
        return true;
    w.now.content = content_hash(info->path);
    for (int i = 0; i < n; i++)
        usable = review_record(&w, c, records[i], &ignored) == 0 && usable;
    uint64_t unknown[2] = {0, 0};
    if (!w.on_record) /* entries that no record vouches for */
        usable = drop_entries(c, info->fingerprint, true, true, unknown, &ignored) == 0 && usable;
    tell_review(ctx, &w, info->path);
    if (w.nkept == RECORDS_MAX)
        memmove(w.kept, w.kept + 1, sizeof *w.kept * (size_t)--w.nkept);
    w.kept[w.nkept++] = w.now;
    str bytes = {(const char *)w.kept, sizeof *w.kept * (size_t)w.nkept};
    bool kept = usable && cache_note_put(c, NOTE_KEY, bytes, &ignored) == 0;
    return kept || (usable && w.on_record);
}

int model_files_clear(cache *c, str source, int what, err *e) {
    file_record records[RECORDS_MAX];
    uint64_t dropped[2] = {0, 0};
    char *path = mem_strndup(source.p, source.n);
    hash128 of = path_hash(path);
    int status = 0, n = records_read(c, records);
    for (int i = 0; i < n && status == 0; i++)
        if (hash128_equal(records[i].path, of))
            status = drop_entries(c, records[i].fingerprint, what != 2, what != 1, dropped, e);
    free(path);
    return status;
}
