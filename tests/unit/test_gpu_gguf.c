/*
 * test_gpu_gguf.c - GGUF files: what is read, and that every kind of damage is refused with its
 * reason.
 */
#include <sys/resource.h>

#include "engine/engine_int.h"
#include "gpu/llm.h"
#include "gpu_testing.h"

static void two_tensors(gguf_maker *m) {
    float w[64];
    for (int i = 0; i < 64; i++)
        w[i] = (float)i;
    make_str(m, "general.architecture", "llama");
    make_u32(m, "llama.block_count", 2);
    make_f32(m, "llama.eps", 0.5f);
    make_bool(m, "flag", true);
    make_strs(m, "words", (str[]){STR("one"), STR(""), STR("three")}, 3);
    make_words(m, "ints", 5, (int32_t[]){-1, 2}, 2);
    make_words(m, "reals", 6, (float[]){0.25f, 4.0f}, 2);
    make_tensor(m, "b", GGUF_F32, 32, 2, w, sizeof w);
    make_tensor(m, "a", GGUF_F32, 8, 1, w, 32);
}

static void reads_values_and_tensors(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_maker m = {0};
        two_tensors(&m);
        str file = make_file(&m, version);
        gguf *g;
        err e = {0};
        assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
        uint64_t u;
        double d;
        bool b;
        str s, *words;
        int32_t *ints;
        float *reals;
        gguf_array array;
        arena *a = arena_new();
        assert_true(gguf_get_u64(g, "llama.block_count", &u) && u == 2);
        assert_true(gguf_get_f64(g, "llama.eps", &d) && d == 0.5);
        assert_true(gguf_get_f64(g, "llama.block_count", &d) && d == 2.0);
        assert_true(gguf_get_bool(g, "flag", &b) && b);
        assert_true(gguf_get_str(g, "general.architecture", &s) && str_equal(s, STR("llama")));
        assert_true(gguf_get_array(g, "words", &array) && gguf_array_strs(&array, a, &words));
        assert_true(array.count == 3 && str_equal(words[2], STR("three")) && words[1].n == 0);
        assert_false(gguf_array_i32(&array, a, &ints));
        assert_true(gguf_get_array(g, "ints", &array) && gguf_array_i32(&array, a, &ints) &&
                    ints[0] == -1);
        assert_false(gguf_array_f32(&array, a, &reals));
        assert_true(gguf_get_array(g, "reals", &array) && gguf_array_f32(&array, a, &reals) &&
                    reals[1] == 4.0f);
        assert_false(gguf_get_u64(g, "flag", &u));
        assert_false(gguf_get_u64(g, "absent", &u));
        assert_false(gguf_get_str(g, "flag", &s));
        assert_int_equal(gguf_tensor_count(g), 2);
        assert_int_equal(gguf_file_bytes(g), file.n);
        const gguf_tensor *t = gguf_find(g, "a");
        assert_non_null(t);
        assert_true(t->dims[0] == 8 && t->dims[1] == 1 && t->bytes == 32);
        assert_null(gguf_find(g, "c"));
        assert_true(str_equal(gguf_tensor_at(g, 0)->name, STR("b")));
        assert_null(gguf_tensor_at(g, 2));
        arena_free(a);
        gguf_close(g);
        make_free(&m);
    }
}

static int open_bytes(str file, err *e) {
    gguf *g = NULL;
    memset(e, 0, sizeof *e);
    int rc = gguf_open_memory(file.p, file.n, &g, e);
    if (rc)
        assert_null(g);
    gguf_close(g);
    return rc;
}

static void refuses_with_a_reason(gguf_maker *m, uint32_t version, int code, const char *reason) {
    err e;
    assert_int_equal(open_bytes(make_file(m, version), &e), code);
    if (!strstr(e.message, reason))
        fail_msg("\"%s\" does not say \"%s\"", e.message, reason);
    make_free(m);
}

static void refuses_each_kind_of_damage(void **state) {
    (void)state;
    float w[8] = {0};
    gguf_maker m = {0};
    refuses_with_a_reason(&m, 1, ERR_UNSUPPORTED, "version 1");
    m = (gguf_maker){0};
    refuses_with_a_reason(&m, 3u << 24, ERR_UNSUPPORTED, "big-endian");
    m = (gguf_maker){.nkvs = 1000};
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "keys, more than it holds");
    m = (gguf_maker){.ntensors = 1000};
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "tensors, more than it holds");
    m = (gguf_maker){0};
    make_u32(&m, "twice", 1);
    make_u32(&m, "twice", 2);
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "twice occurs twice");
    m = (gguf_maker){0};
    make_key(&m, "odd", 99);
    put_u64(&m.kvs, 0);
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "odd has unknown type 99");
    m = (gguf_maker){0};
    make_key(&m, "nested", 9);
    put_u32(&m.kvs, 9);
    put_u64(&m.kvs, 0);
    refuses_with_a_reason(&m, 3, ERR_UNSUPPORTED, "array of arrays");
    m = (gguf_maker){0};
    make_key(&m, "huge", 9);
    put_u32(&m.kvs, 5);
    put_u64(&m.kvs, UINT64_MAX / 2);
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "huge claims 9223372036854775807 elements");
    m = (gguf_maker){0};
    make_u32(&m, "general.alignment", 24);
    make_tensor(&m, "t", GGUF_F32, 8, 1, w, sizeof w);
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "power of two");
    m = (gguf_maker){0};
    make_tensor(&m, "t", GGUF_F32, UINT64_MAX / 2, 3, w, sizeof w);
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "a dimension that is 0 or too large");
    m = (gguf_maker){0};
    make_tensor(&m, "t", GGUF_Q4_1, 8, 1, w, sizeof w);
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "Q4_1 blocks");
    m = (gguf_maker){0};
    make_tensor(&m, "t", GGUF_F32, 16, 1, w, sizeof w);
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "outside the file");
    m = (gguf_maker){0};
    make_tensor(&m, "t", 16, 256, 1, w, sizeof w);
    refuses_with_a_reason(&m, 3, ERR_UNSUPPORTED, "IQ2_XXS");
    m = (gguf_maker){0};
    make_tensor(&m, "t", GGUF_F32, 8, 1, w, sizeof w);
    make_tensor(&m, "t", GGUF_F32, 8, 1, w, sizeof w);
    refuses_with_a_reason(&m, 3, ERR_CORRUPT, "tensor t occurs twice");
    m = (gguf_maker){0};
    make_u32(&m, "split.count", 2);
    refuses_with_a_reason(&m, 3, ERR_UNSUPPORTED, "sharded");
}

/* Every prefix of a good file, and the file with any
 * one byte changed: refused or read, never a crash. */
static void survives_cuts_and_flips(void **state) {
    (void)state;
    gguf_maker m = {0};
    two_tensors(&m);
    str file = make_file(&m, 3);
    err e;
    for (size_t n = 0; n < file.n; n++) {
        char *copy = malloc(n + 1); /* exact size, so that a sanitizer sees a byte too far */
        memcpy(copy, file.p, n);
        assert_int_not_equal(open_bytes((str){copy, n}, &e), 0);
        assert_true(e.message[0] != 0);
        free(copy);
    }
    char *copy = malloc(file.n);
    for (size_t i = 0; i < file.n; i++) {
        for (int flip = 1; flip < 256; flip = flip * 2 + 1) {
            memcpy(copy, file.p, file.n);
            copy[i] = (char)(copy[i] ^ flip);
            open_bytes((str){copy, file.n}, &e);
        }
    }
    free(copy);
    make_free(&m);
}

static void write_file(const char *path, str bytes) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.p, 1, bytes.n, f), bytes.n);
    assert_int_equal(fclose(f), 0);
}

/* Whatever is wrong with a file, the message says which one it is. */
static void names_the_file(void **state) {
    (void)state;
    char dir[64] = P_tmpdir "/kvasir-gguf-XXXXXX", path[128], quoted[132];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/odd one.gguf", dir);
    snprintf(quoted, sizeof quoted, "'%s'", path);
    gguf_maker bird = {0}, old = {0}, torn = {0};
    make_str(&bird, "general.architecture", "bird");
    torn.nkvs = 3;
    const struct {
        gguf_maker *maker;
        uint32_t version;
        const char *reason;
    } files[] = {{&bird, 3, "\"bird\" are not supported"},
                 {&old, 1, "version 1"},
                 {&torn, 3, "damaged"},
                 {NULL, 0, "cannot open"}};
    for (size_t i = 0; i < BASE_COUNT(files); i++) {
        llm_engine engine = {.mem = arena_new()};
        err e = {0};
        if (files[i].maker)
            write_file(path, make_file(files[i].maker, files[i].version));
        else
            unlink(path);
        assert_int_not_equal(engine_file_open(&engine, path, &e), 0);
        if (!strstr(e.message, quoted) || !strstr(e.message, files[i].reason))
            fail_msg("\"%s\" does not say %s and \"%s\"", e.message, quoted, files[i].reason);
        if (files[i].maker)
            make_free(files[i].maker);
        gguf_close(engine.file);
        arena_free(engine.mem);
    }
    rmdir(dir);
}

static long peak_kb(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
}

/* Opens the maker's file, extended to 100 GB by a hole, which reads as zeros. `read_bytes`: how much
 * of it has to be read, which counts as memory while it is mapped. */
static void refuses_in_little_memory(gguf_maker *m, size_t read_bytes, const char *reason) {
    char path[64] = P_tmpdir "/kvasir-gguf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_file(path, make_file(m, 3));
    assert_int_equal(truncate(path, 100000000000), 0);
    gguf *g;
    err e = {0};
    long before = peak_kb();
    assert_int_equal(gguf_open(path, &g, &e), ERR_CORRUPT);
    if (!strstr(e.message, reason))
        fail_msg("\"%s\" does not say \"%s\"", e.message, reason);
    assert_in_range(peak_kb() - before, 0, (read_bytes + (16 << 20)) >> 10);
    unlink(path);
    make_free(m);
}

/* Counts and lengths that a file of this size could hold, and no model has. */
static void limits_what_a_sparse_file_claims(void **state) {
    (void)state;
    const uint64_t claimed = 10000000000, fitting = 1 << 22;
    gguf_maker m = {0};
    make_key(&m, "words", 9);
    put_u32(&m.kvs, 8);
    put_u64(&m.kvs, claimed);
    refuses_in_little_memory(&m, 0, "array words claims 10000000000 strings; the limit is 4194304");
    m = (gguf_maker){0};
    make_key(&m, "ints", 9);
    put_u32(&m.kvs, 5);
    put_u64(&m.kvs, claimed);
    refuses_in_little_memory(&m, 0,
                             "ints claims 10000000000 elements; at most 67108851 can follow");
    m = (gguf_maker){0};
    make_key(&m, "text", 8);
    put_u64(&m.kvs, claimed);
    refuses_in_little_memory(&m, 0,
                             "the text of text is cut off, or reaches past the first 256 MiB");
    m = (gguf_maker){.nkvs = 1000000000};
    refuses_in_little_memory(&m, 0, "claims 1000000000 keys; the limit is 65536");
    m = (gguf_maker){.ntensors = 1000000000};
    refuses_in_little_memory(&m, 0, "claims 1000000000 tensors; the limit is 131072");
    m = (gguf_maker){0}; /* an array that is within the limit, and zeros where a key should be */
    make_key(&m, "words", 9);
    put_u32(&m.kvs, 8);
    put_u64(&m.kvs, fitting);
    m.nkvs++;
    refuses_in_little_memory(&m, fitting * 8, "a key is empty or");
}

static void reads_shards(void **state) {
    (void)state;
    char dir[64] = P_tmpdir "/kvasir-gguf-XXXXXX", paths[2][128];
    assert_non_null(mkdtemp(dir));
    for (uint32_t i = 0; i < 2; i++) {
        gguf_maker m = {0};
        float w[8] = {(float)i};
        make_u32(&m, "split.no", i);
        make_u32(&m, "split.count", 2);
        make_u32(&m, "split.tensors.count", 2);
        make_tensor(&m, i ? "second" : "first", GGUF_F32, 8, 1, w, sizeof w);
        snprintf(paths[i], sizeof paths[i], "%s/m-%05u-of-00002.gguf", dir, i + 1);
        write_file(paths[i], make_file(&m, 3));
        make_free(&m);
    }
    gguf *g;
    err e = {0};
    assert_int_equal(gguf_open(paths[0], &g, &e), 0);
    assert_int_equal(gguf_tensor_count(g), 2);
    float first;
    memcpy(&first, gguf_find(g, "second")->data, sizeof first);
    assert_true(first == 1.0f);
    gguf_release_pages(g);
    size_t bytes;
    struct stat st;
    assert_int_equal(gguf_file_count(g), 2);
    assert_memory_equal(gguf_file_data(g, 1, &bytes), "GGUF", 4);
    assert_true(gguf_file_stat(g, 1, true, &st) && (size_t)st.st_size == bytes);
    gguf_close(g);
    assert_int_equal(gguf_open(paths[1], &g, &e), ERR_MODEL);
    assert_non_null(strstr(e.hint, "open the first shard"));
    unlink(paths[1]);
    assert_int_equal(gguf_open(paths[0], &g, &e), ERR_IO);
    unlink(paths[0]);
    assert_int_equal(gguf_open(paths[0], &g, &e), ERR_IO);
    assert_int_equal(gguf_open(dir, &g, &e), ERR_IO);
    rmdir(dir);
}

static void names_of_shards(void **state) {
    (void)state;
    static const char first[] = "a/m-00001-of-00012.gguf";
    buf path = {0};
    gguf_shard_path(first, 0, &path);
    assert_string_equal(path.p, first);
    buf_clear(&path);
    gguf_shard_path(first, 11, &path);
    assert_string_equal(path.p, "a/m-00012-of-00012.gguf");
    buf_free(&path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_values_and_tensors),
        cmocka_unit_test(refuses_each_kind_of_damage),
        cmocka_unit_test(survives_cuts_and_flips),
        cmocka_unit_test(names_the_file),
        cmocka_unit_test(limits_what_a_sparse_file_claims),
        cmocka_unit_test(reads_shards),
        cmocka_unit_test(names_of_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
