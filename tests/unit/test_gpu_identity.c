/*
 * test_gpu_identity.c - the hash of a model's files: what it sees, when a record of it is believed,
 * and what an engine does whose file changes under it.
 */
#include "gpu_testing.h"
#include "gpu_tiny.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>

#include "engine/engine_int.h"
#include "model/identity_int.h"
#include "model/side_file_int.h"

enum { MIB = 1 << 20 };

static char dir[64], model[128], shard[128], cache_dir[128];

/* ---- files ----------------------------------------------------------------------------------- */

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, P_tmpdir "/kvasir-identity-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(model, sizeof model, "%s/m-00001-of-00002.gguf", dir);
    snprintf(shard, sizeof shard, "%s/m-00002-of-00002.gguf", dir);
    snprintf(cache_dir, sizeof cache_dir, "%s/cache", dir);
    return 0;
}

static void remove_all(const char *path) {
    DIR *d = opendir(path);
    for (struct dirent *entry; d && (entry = readdir(d)) != NULL;) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(name);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static int remove_dir(void **state) {
    (void)state;
    remove_all(cache_dir);
    remove_all(dir);
    return 0;
}

static void write_bytes(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A tensor of two MiB and a half; split: the second of two files of that size. */
static void make_files(bool split) {
    static float w[5 * MIB / 8];
    for (size_t i = 0; i < BASE_COUNT(w); i++)
        w[i] = (float)(i % 1000);
    for (uint32_t i = 0; i < (split ? 2 : 1); i++) {
        gguf_maker m = {0};
        if (split) {
            make_u32(&m, "split.no", i);
            make_u32(&m, "split.count", 2);
        }
        make_tensor(&m, i ? "second" : "first", GGUF_F32, BASE_COUNT(w), 1, w, sizeof w);
        str file = make_file(&m, 3);
        write_bytes(i ? shard : model, file.p, file.n);
        make_free(&m);
    }
}

/* Until a change would give the file another stamp. */
static void let_settle(const char *path) {
    struct stat st;
    struct timespec now;
    do {
        usleep(10000);
        assert_int_equal(stat(path, &st), 0);
        clock_gettime(CLOCK_REALTIME, &now);
    } while (!identity_is_settled((int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
                                  (int64_t)now.tv_sec * 1000000000 + now.tv_nsec));
}

static void change_byte(const char *path, off_t at) {
    struct stat st;
    unsigned char byte = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    struct timespec times[2] = {st.st_atim, st.st_mtim}; /* as if nothing had been */
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static off_t size_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* ---- finding --------------------------------------------------------------------------------- */

typedef struct found {
    gguf *file;
    arena *mem;
    file_identity *id;
} found;

static found find(pool *threads) {
    found f = {.mem = arena_new()};
    err e = {0};
    if (gguf_open(model, &f.file, &e) != 0 ||
        identity_find(f.file, model, cache_dir, threads, f.mem, &f.id, &e) != 0)
        fail_msg("%s", e.message);
    return f;
}

static void let_go(found *f) {
    gguf_close(f->file);
    arena_free(f->mem);
}

/* The hash, and whether the bytes were read for it. */
static hash128 hash_of_file(bool *read) {
    found f = find(NULL);
    hash128 hash = f.id->hash;
    *read = f.id->read;
    let_go(&f);
    return hash;
}

static void every_byte_counts(void **state) {
    (void)state;
    enum { PLACES = 40 };
    hash128 seen[PLACES + 1];
    pool *threads = pool_new(3);
    make_files(false);
    off_t n = size_of(model);
    for (int i = 0; i <= PLACES; i++) {
        /* the alignment's padding and the tensor; the last change is taken back by the next */
        off_t at = n - 1 - (off_t)(i - 1) * (n / PLACES - 10);
        if (i > 0)
            change_byte(model, at);
        found f = find(i % 2 ? threads : NULL), again = find(i % 2 ? NULL : threads);
        assert_true(hash128_equal(f.id->hash, again.id->hash));
        seen[i] = f.id->hash;
        for (int k = 0; k < i; k++)
            assert_false(hash128_equal(seen[i], seen[k]));
        let_go(&f);
        let_go(&again);
        if (i > 0)
            change_byte(model, at);
    }
    bool read;
    assert_true(hash128_equal(hash_of_file(&read), seen[0]));
    pool_free(threads);
}

static void every_shard_counts(void **state) {
    (void)state;
    bool read;
    make_files(true);
    hash128 first = hash_of_file(&read);
    change_byte(shard, size_of(shard) - 4);
    hash128 second = hash_of_file(&read);
    assert_false(hash128_equal(first, second));
    change_byte(model, size_of(model) - 4); /* the same bytes, the other way round */
    change_byte(shard, size_of(shard) - 4);
    assert_false(hash128_equal(second, hash_of_file(&read)));
    change_byte(model, size_of(model) - 4);
    assert_true(hash128_equal(first, hash_of_file(&read)));
}

static void bytes_in_memory_have_the_same_hash(void **state) {
    (void)state;
    bool read;
    make_files(false);
    static unsigned char bytes[3 * MIB];
    FILE *f = fopen(model, "re");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    gguf *g;
    err e = {0};
    file_identity *id;
    arena *mem = arena_new();
    assert_int_equal(gguf_open_memory(bytes, n, &g, &e), 0);
    assert_int_equal(identity_find(g, model, cache_dir, NULL, mem, &id, &e), 0);
    assert_true(hash128_equal(id->hash, hash_of_file(&read)));
    assert_true(identity_unchanged(id, NULL, true));
    gguf_close(g);
    arena_free(mem);
}

/* ---- the record ------------------------------------------------------------------------------ */

static void a_record_spares_reading_until_anything_changes(void **state) {
    (void)state;
    bool read;
    struct stat st;
    char other[160];
    make_files(true);
    let_settle(shard);
    hash128 first = hash_of_file(&read);
    assert_true(read);
    assert_true(hash128_equal(first, hash_of_file(&read)));
    assert_false(read);

    assert_int_equal(chmod(shard, 0600), 0); /* it might have been written to */
    let_settle(shard);
    assert_true(hash128_equal(first, hash_of_file(&read)));
    assert_true(read);
    assert_true(hash128_equal(first, hash_of_file(&read)));
    assert_false(read);

    change_byte(shard, MIB); /* same size, same time of modification */
    let_settle(shard);
    hash128 second = hash_of_file(&read);
    assert_true(read);
    assert_false(hash128_equal(first, second));
    assert_true(hash128_equal(second, hash_of_file(&read)));
    assert_false(read);

    /* another file of its name, size and time of modification */
    snprintf(other, sizeof other, "%s/other", dir);
    assert_int_equal(stat(shard, &st), 0);
    assert_int_equal(rename(shard, other), 0);
    make_files(true);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, shard, times, 0), 0);
    let_settle(shard);
    assert_true(hash128_equal(first, hash_of_file(&read)));
    assert_true(read);
    assert_int_equal(rename(other, shard), 0);
    assert_true(hash128_equal(second, hash_of_file(&read)));
    assert_true(read);
}

static void what_has_just_changed_is_not_put_on_record(void **state) {
    (void)state;
    static const int64_t second = 1000000000, odd = 1234567;
    static const struct {
        int64_t changed, now;
        bool settled;
    } cases[] = {
        {100 * second + odd, 100 * second + odd, false},
        {100 * second + odd, 100 * second + odd + second / 50, false},
        {100 * second + odd, 100 * second + odd + second / 10, true},
        {100 * second, 100 * second + second / 10, false}, /* of full seconds, or of even ones */
        {100 * second, 102 * second, false},
        {100 * second, 103 * second, true},
        {200 * second + odd, 100 * second, false}, /* the clock went back */
        {200 * second + odd, 200 * second, false},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++)
        assert_true(identity_is_settled(cases[i].changed, cases[i].now) == cases[i].settled);
    make_files(false);
    for (int i = 0; i < 20; i++) { /* whatever the clock says by then */
        make_files(false);
        found f = find(NULL);
        hash128 hash;
        bool kept = side_file_identity_read(cache_dir, model, f.id->stamp, &hash);
        assert_true(kept == f.id->settled);
        let_go(&f);
    }
}

static void record_path(char out[512]) {
    DIR *d = opendir(cache_dir);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;)
        if (strncmp(entry->d_name, "file-", 5) == 0)
            snprintf(out, 512, "%s/%s", cache_dir, entry->d_name);
    closedir(d);
}

static void a_damaged_record_is_none(void **state) {
    (void)state;
    bool read;
    char record[512], bytes[256], bad[256];
    make_files(false);
    let_settle(model);
    hash128 hash = hash_of_file(&read);
    record_path(record);
    FILE *f = fopen(record, "re");
    size_t n = fread(bytes, 1, sizeof bytes - 1, f);
    fclose(f);
    for (size_t i = 0; i < n; i++) {
        memcpy(bad, bytes, n);
        bad[i] = (char)(bad[i] ^ 1);
        write_bytes(record, bad, n);
        assert_true(hash128_equal(hash, hash_of_file(&read)));
        assert_true(read);
        write_bytes(record, bytes, i); /* cut short */
        assert_true(hash128_equal(hash, hash_of_file(&read)));
        assert_true(read);
    }
    memcpy(bad, bytes, n);
    bad[n] = '0';
    write_bytes(record, bad, n + 1);
    assert_true(hash128_equal(hash, hash_of_file(&read)));
    assert_true(read);
    assert_true(hash128_equal(hash, hash_of_file(&read))); /* it was written anew */
    assert_false(read);
    assert_int_equal(unlink(record), 0);
    assert_int_equal(mkdir(record, 0700), 0); /* what cannot be written is done without */
    assert_true(hash128_equal(hash, hash_of_file(&read)));
    assert_true(hash128_equal(hash, hash_of_file(&read)));
    assert_true(read);
    assert_int_equal(rmdir(record), 0);
}

static void a_forged_record_is_found_out_by_reading(void **state) {
    (void)state;
    bool read;
    make_files(false);
    let_settle(model);
    hash128 hash = hash_of_file(&read), other = {1, 2};
    found f = find(NULL);
    side_file_identity_write(cache_dir, model, f.id->stamp, other);
    let_go(&f);
    f = find(NULL);
    assert_false(f.id->read);
    assert_true(hash128_equal(f.id->hash, other));
    assert_true(identity_unchanged(f.id, NULL, false));
    assert_false(identity_unchanged(f.id, NULL, true));
    assert_false(identity_unchanged(f.id, NULL, false));
    assert_false(identity_unchanged(f.id, NULL, true));
    let_go(&f);
    assert_true(hash128_equal(hash, hash_of_file(&read))); /* the record is right again */
    assert_false(read);
}

/* ---- while it is open ------------------------------------------------------------------------ */

static void what_leaves_the_bytes_alone_is_no_change(void **state) {
    (void)state;
    char other[160];
    snprintf(other, sizeof other, "%s/other", dir);
    make_files(false);
    found f = find(NULL);
    assert_true(identity_unchanged(f.id, NULL, false)); /* settled or not */
    assert_int_equal(chmod(model, 0600), 0);
    assert_true(identity_unchanged(f.id, NULL, false) && identity_same_at_path(f.id, model));
    assert_int_equal(link(model, other), 0);
    assert_true(identity_unchanged(f.id, NULL, false) && identity_same_at_path(f.id, other));
    assert_int_equal(unlink(model), 0);
    assert_true(identity_same_at_path(f.id, model)); /* gone is not replaced */
    make_files(false);
    assert_false(identity_same_at_path(f.id, model)); /* another file, be it of the same bytes */
    assert_true(identity_unchanged(f.id, NULL, true));
    let_go(&f);
    unlink(other);
    make_files(true);
    f = find(NULL);
    assert_true(identity_same_at_path(f.id, model));
    assert_int_equal(rename(shard, other), 0);
    make_files(true);
    assert_false(identity_same_at_path(f.id, model));
    let_go(&f);
}

static void what_was_written_to_is_lost(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        make_files(false);
        let_settle(model);
        found f = find(NULL);
        off_t n = size_of(model);
        assert_true(identity_unchanged(f.id, NULL, true));
        if (how < 2)
            change_byte(model, how ? n - 1 : 3 * MIB / 2);
        else
            assert_int_equal(truncate(model, how == 2 ? n / 2 : n + 1), 0);
        assert_false(identity_unchanged(f.id, NULL, false));
        if (how == 0)
            change_byte(model, 3 * MIB / 2); /* what was computed in between stays wrong */
        assert_false(identity_unchanged(f.id, NULL, false));
        assert_false(identity_same_at_path(f.id, model));
        let_go(&f);
    }
}

static void what_is_written_while_it_is_opened_is_refused(void **state) {
    (void)state;
    err e = {0};
    gguf *g;
    file_identity *id;
    for (int how = 0; how < 2; how++) {
        make_files(false);
        let_settle(model);
        arena *mem = arena_new();
        assert_int_equal(gguf_open(model, &g, &e), 0); /* keys and vocabulary are read */
        if (how == 0)
            change_byte(model, 40);
        else
            assert_int_equal(truncate(model, MIB), 0);
        assert_int_equal(identity_find(g, model, cache_dir, NULL, mem, &id, &e), ERR_MODEL);
        assert_non_null(strstr(e.message, "changed after it was opened"));
        gguf_close(g);
        arena_free(mem);
    }
}

/* ---- engines --------------------------------------------------------------------------------- */

static int open_unless(const atomic_bool *cancel, llm_engine **out, err *e) {
    llm_engine_options options = {.path = model,
                                  .threads = 2,
                                  .device = "cpu",
                                  .precision = LLM_PRECISION_AUTO,
                                  .cache_dir = cache_dir,
                                  .cancel = cancel};
    return llm_engine_open(&options, out, e);
}

static llm_engine *open_tiny(void) {
    llm_engine *engine;
    err e = {0};
    if (open_unless(NULL, &engine, &e) != 0)
        fail_msg("%s", e.message);
    return engine;
}

static int one_answer(llm_session *s, llm_token first, float *logits, err *e) {
    llm_token tokens[] = {first, 2, 3, 4, 5};
    return llm_logprobs(s, tokens, BASE_COUNT(tokens), logits, e);
}

/* A session that has been asked once. */
static llm_session *asked_once(llm_engine *engine, float *logits) {
    llm_session_options options = {.kv_memory_bytes = 1 << 20};
    llm_session *s;
    err e = {0};
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    assert_int_equal(one_answer(s, 1, logits, &e), 0);
    return s;
}

static void make_tiny(void) {
    gguf_maker m = {0};
    tiny_vocabulary(&m);
    str file = tiny_make(&m, &tiny_models[0]);
    write_bytes(model, file.p, file.n);
    make_free(&m);
    let_settle(model);
}

/* What was not read to its end has no hash, and none is put on record. */
static void opening_can_be_cancelled(void **state) {
    (void)state;
    llm_engine *engine;
    err e = {0};
    atomic_bool cancel = true;
    make_tiny();
    for (int i = 0; i < 2; i++)
        assert_int_equal(open_unless(&cancel, &engine, &e), ERR_CANCELLED);
    engine = open_tiny();
    hash128 weights = llm_engine_info(engine)->weights;
    llm_engine_close(engine);
    assert_int_equal(open_unless(&cancel, &engine, &e), 0); /* nothing is left to read */
    assert_true(hash128_equal(llm_engine_info(engine)->weights, weights));
    llm_engine_close(engine);
}

static void an_engine_computes_nothing_with_a_changed_file(void **state) {
    (void)state;
    static float logits[TINY_VOCAB];
    err e = {0};
    make_tiny();
    llm_engine *engine = open_tiny();
    hash128 weights = llm_engine_info(engine)->weights,
            print = llm_engine_info(engine)->fingerprint;
    llm_session *s = asked_once(engine, logits);
    assert_int_equal(chmod(model, 0600), 0);
    assert_int_equal(one_answer(s, 2, logits, &e), 0);
    assert_true(llm_engine_is_current(engine));
    change_byte(model, size_of(model) - 100);
    assert_int_equal(one_answer(s, 3, logits, &e), ERR_MODEL);
    assert_non_null(strstr(e.message, "changed after it was opened"));
    assert_true(llm_engine_outdated(engine) && !llm_engine_is_current(engine));
    llm_session_free(s);
    llm_engine *second = open_tiny();
    assert_false(hash128_equal(llm_engine_info(second)->weights, weights));
    assert_false(hash128_equal(llm_engine_info(second)->fingerprint, print));
    assert_true(llm_engine_is_current(second));
    llm_engine_close(second);
    llm_engine_close(engine);
}

/* What was measured of the one model, for the other hash. */
static void forge_facts(hash128 hash) {
    DIR *d = opendir(cache_dir);
    char from[512], to[512];
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        if (strncmp(entry->d_name, "model-", 6) != 0)
            continue;
        snprintf(from, sizeof from, "%s/%s", cache_dir, entry->d_name);
        snprintf(to, sizeof to, "%s/model-%016llx%s", cache_dir, (unsigned long long)hash.low,
                 entry->d_name + 22);
        if (strcmp(from, to) != 0)
            assert_int_equal(rename(from, to), 0);
    }
    closedir(d);
}

static void an_engine_reads_what_a_record_says(void **state) {
    (void)state;
    static float logits[TINY_VOCAB];
    err e = {0};
    make_tiny();
    llm_engine_close(open_tiny()); /* measures */
    llm_engine *engine = open_tiny();
    hash128 print = llm_engine_info(engine)->fingerprint;
    assert_false(engine->identity->read);
    llm_session *s = asked_once(engine, logits);
    assert_true(engine->identity->read); /* with the weights */
    llm_session_free(s);

    hash128 other = {1, 2};
    side_file_identity_write(cache_dir, model, engine->identity->stamp, other);
    llm_engine *forged = open_tiny(); /* nothing is known of that hash: all is read at once */
    assert_true(hash128_equal(llm_engine_info(forged)->fingerprint, print));
    llm_engine_close(forged);

    side_file_identity_write(cache_dir, model, engine->identity->stamp, other);
    forge_facts(other);
    forged = open_tiny();
    assert_false(forged->identity->read);
    assert_false(hash128_equal(llm_engine_info(forged)->fingerprint, print));
    llm_session_options options = {.kv_memory_bytes = 1 << 20};
    int code = llm_session_new(forged, &options, &s, &e);
    if (code == 0) {
        code = one_answer(s, 1, logits, &e);
        llm_session_free(s);
    }
    assert_int_equal(code, ERR_MODEL);
    assert_true(llm_engine_outdated(forged));
    llm_engine_close(forged);
    /* what was measured of these weights is gone: another precision may be the fastest now */
    forged = open_tiny();
    assert_true(hash128_equal(llm_engine_info(forged)->weights, llm_engine_info(engine)->weights));
    llm_engine_close(forged);
    llm_engine_close(engine);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_dir, remove_dir)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_byte_counts),
        TEST(every_shard_counts),
        TEST(bytes_in_memory_have_the_same_hash),
        TEST(a_record_spares_reading_until_anything_changes),
        TEST(what_has_just_changed_is_not_put_on_record),
        TEST(a_damaged_record_is_none),
        TEST(a_forged_record_is_found_out_by_reading),
        TEST(what_leaves_the_bytes_alone_is_no_change),
        TEST(what_was_written_to_is_lost),
        TEST(what_is_written_while_it_is_opened_is_refused),
        TEST(opening_can_be_cancelled),
        TEST(an_engine_computes_nothing_with_a_changed_file),
        TEST(an_engine_reads_what_a_record_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
