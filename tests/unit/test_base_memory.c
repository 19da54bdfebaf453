/* test_base_memory.c - arena.c, err.c, utf8.c, hash.c. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#include "storage_help_int.h"

static void test_arena_keeps_what_it_gave(void **state) {
    (void)state;
    arena *a = arena_new();
    for (int round = 0; round < 3; round++) {
        unsigned char *p[500];
        size_t n[500];
        for (size_t i = 0; i < 500; i++) {
            n[i] = (i * 7919) % 20000;
            p[i] = arena_alloc(a, n[i]);
            assert_int_equal((uintptr_t)p[i] % 16, 0);
            memset(p[i], (int)(i % 251), n[i]);
        }
        for (size_t i = 0; i < 500; i++)
            for (size_t k = 0; k < n[i]; k += 97)
                assert_int_equal(p[i][k], i % 251);
        arena_reset(a);
        assert_int_equal(arena_bytes(a), 0);
    }
    assert_string_equal(arena_printf(a, "%d-%s", 5, "x"), "5-x");
    arena_free(a);
    arena_free(NULL);
}

static workmem_use used(const workmem *w) {
    workmem_use u;
    workmem_usage(w, &u);
    return u;
}

/* Names in a directory, but for "." and "..". */
static int entries(const char *directory) {
    DIR *d = opendir(directory);
    int n = 0;
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void test_arena_spills(void **state) {
    (void)state;
    enum { LIMIT = 1 << 20, BIG = 6 << 20, SLACK = 4096 };
    workmem *w = workmem_new(scratch_dir, -1);
    int names = entries(scratch_dir);
    arena *a = arena_new_spilling(LIMIT, w);
    char *first = arena_alloc(a, 1000), *big[8];
    memset(first, 'a', 1000);
    for (int i = 0; i < 8; i++) {
        big[i] = arena_alloc(a, BIG);
        memset(big[i], 'b' + i, BIG);
    }
    assert_false(arena_failed(a));
    assert_true(arena_spilled_bytes(a) == (size_t)8 * BIG);
    assert_true(used(w).file_bytes >= (size_t)8 * BIG);
    assert_true(used(w).heap_peak_bytes <= LIMIT + SLACK);
    assert_int_equal(entries(scratch_dir), names); /* a kill would leave nothing */
    for (int i = 0; i < 8; i++)
        assert_int_equal(big[i][BIG - 1], 'b' + i);
    assert_int_equal(first[999], 'a');
    arena_reset(a);
    assert_int_equal(arena_spilled_bytes(a), 0);
    assert_int_equal(used(w).file_bytes, 0);
    memset(arena_alloc(a, 100), 1, 100);
    arena_free(a);
    assert_int_equal(used(w).heap_bytes, 0);
    workmem_free(w);
}

/* Small pieces fill the heap to the limit, and not beyond. */
static void test_an_arena_stays_within_its_limit(void **state) {
    (void)state;
    for (size_t limit = 1; limit < (size_t)8 << 20; limit = limit * 5 + 3000) {
        workmem *w = workmem_new(scratch_dir, -1);
        arena *a = arena_new_spilling(limit, w);
        for (int i = 0; i < 100000; i++)
            memset(arena_alloc(a, 100), i, 100);
        assert_true(used(w).heap_peak_bytes <= limit + 1024);
        assert_true(arena_bytes(a) - arena_spilled_bytes(a) <= limit);
        assert_true(limit > arena_bytes(a) || arena_spilled_bytes(a) > 0);
        arena_free(a);
        assert_int_equal(used(w).heap_bytes + used(w).file_bytes, 0);
        workmem_free(w);
    }
}

static void test_arena_survives_a_spill_that_fails(void **state) {
    (void)state;

    workmem *w = workmem_new(scratch("no-such-directory"), -1);
    arena *a = arena_new_spilling(1, w);
    assert_int_equal(arena_full_error(a, &e), 0);
    memset(arena_alloc(a, 5000), 1, 5000);
    assert_true(arena_failed(a));
    assert_int_equal(arena_full_error(a, &e), ERR_IO);
    assert_non_null(strstr(e.message, "no-such-directory': No such file"));
    arena_free(a);
    workmem_free(w);
}

/* Arrays and arenas of a budget have its heap together; an array that grows keeps its items. */
static void test_a_budget_is_shared(void **state) {
    (void)state;
    enum { LIMIT = 1 << 20, SLACK = 4096 };
    workmem *w = workmem_new(scratch_dir, -1);
    mem_budget m = {.space = w, .limit_bytes = LIMIT};
    arena *a = arena_new_sharing(&m);
    mem_array one = {0}, other = {0};
    uint32_t *items;
    memset(arena_alloc(a, LIMIT / 2), 1, LIMIT / 2);
    for (size_t n = 0; n < (size_t)1 << 20;) {
        size_t more = n ? n * 2 : 64;
        assert_int_equal(mem_array_resize(&one, &m, more * sizeof *items, &e), 0);
        for (items = one.p; n < more; n++)
            items[n] = (uint32_t)n;
        assert_true(used(w).heap_bytes <= LIMIT + SLACK);
        assert_int_equal(one.mapped, more * sizeof *items > LIMIT / 2);
    }
    for (size_t n = 0; n < (size_t)1 << 20; n++)
        assert_int_equal(items[n], n);
    assert_int_equal(mem_array_resize(&other, &m, LIMIT / 4, &e), 0);
    assert_false(other.mapped);
    memset(arena_alloc(a, LIMIT / 2), 1, LIMIT / 2);
    assert_int_equal(arena_spilled_bytes(a), LIMIT / 2);
    assert_true(used(w).heap_peak_bytes <= LIMIT + SLACK);
    mem_array_free(&one);
    mem_array_free(&other);
    arena_free(a);
    assert_int_equal(m.heap_bytes, 0);
    assert_int_equal(used(w).heap_bytes + used(w).file_bytes, 0);
    workmem_free(w);
}

/* An array that cannot grow stays as it was. */
static void test_an_array_meets_the_limit_of_files(void **state) {
    (void)state;
    enum { FILES = 1 << 20 };
    workmem *w = workmem_new(scratch_dir, FILES);
    mem_budget m = {.space = w, .limit_bytes = 1};
    mem_array a = {0};
    assert_int_equal(mem_array_resize(&a, &m, 100, &e), 0);
    memset(a.p, 'a', 100);
    assert_int_equal(mem_array_resize(&a, &m, FILES + 1, &e), ERR_FULL);
    assert_false(a.mapped);
    assert_int_equal(mem_array_resize(&a, &m, FILES, &e), 0);
    assert_int_equal(((const char *)a.p)[99], 'a');
    assert_int_equal(mem_array_resize(&a, &m, FILES + 1, &e), ERR_FULL);
    assert_int_equal(((const char *)a.p)[99], 'a');
    assert_int_equal(a.bytes, FILES);
    mem_array_free(&a);
    assert_int_equal(used(w).heap_bytes + used(w).file_bytes, 0);
    workmem_free(w);
    w = workmem_new(scratch("no-such-directory"), -1);
    m.space = w;
    assert_int_equal(mem_array_resize(&a, &m, FILES, &e), ERR_IO);
    mem_array_free(&a);
    workmem_free(w);
}

/* All files of a workmem count together, and what is given back may be taken again. */
static void test_temporary_files_have_a_limit(void **state) {
    (void)state;
    enum { LIMIT = 10 << 20, PIECE = 3 << 20 };

    workmem *w = workmem_new(scratch_dir, LIMIT);
    arena *one = arena_new_spilling(1, w), *other = arena_new_spilling(1, w);
    for (int i = 0; i < 3; i++)
        memset(arena_alloc(i % 2 ? one : other, PIECE), i, PIECE);
    assert_false(arena_failed(one) || arena_failed(other));
    memset(arena_alloc(one, PIECE), 3, PIECE);
    assert_int_equal(arena_full_error(other, &e), 0);
    assert_int_equal(arena_full_error(one, &e), ERR_FULL);
    assert_non_null(strstr(e.message, "max_temp_directory_size = 10 MB"));
    assert_true(used(w).file_peak_bytes <= LIMIT);
    arena_free(other);
    arena_reset(one);
    for (int i = 0; i < 3; i++)
        memset(arena_alloc(one, PIECE), i, PIECE);
    assert_false(arena_failed(one));
    arena_free(one);
    workmem_begin(w, 0);
    one = arena_new_spilling(1, w);
    memset(arena_alloc(one, 1), 1, 1);
    assert_int_equal(arena_full_error(one, &e), ERR_FULL);
    arena_free(one);
    workmem_free(w);
}

/* A disk that is full: fallocate is refused beyond the process's own limit, as by ENOSPC. */
static void test_a_full_disk_is_an_error(void **state) {
    (void)state;
    enum { LIMIT = 4 << 20 };
    struct rlimit before, small;

    workmem *w = workmem_new(scratch_dir, -1);
    arena *a = arena_new_spilling(1, w);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = LIMIT;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 8 && !arena_failed(a); i++)
        memset(arena_alloc(a, LIMIT / 4), i, LIMIT / 4);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(arena_full_error(a, &e), ERR_IO);
    assert_non_null(strstr(e.message, "File too large"));
    assert_true(used(w).file_bytes <= LIMIT);
    arena_free(a);
    assert_int_equal(used(w).heap_bytes + used(w).file_bytes, 0);
    workmem_free(w);
}

static void test_errors_chain(void **state) {
    (void)state;
    err x;
    err_set(&x, ERR_IO, "inner %d", 7);
    err_hint(&x, "hint");
    assert_int_equal(err_set(&x, ERR_TYPE, "outer: %s", x.message), ERR_TYPE);
    assert_string_equal(x.message, "outer: inner 7");
    assert_string_equal(x.hint, "");
    assert_int_equal(x.pos, -1);
    assert_int_equal(err_set_errno(&x, 28 /* ENOSPC */, "cannot write"), ERR_FULL);
    assert_non_null(strstr(x.message, "cannot write: "));
    assert_int_equal(err_set(NULL, ERR_IO, "nobody listens"), ERR_IO);
}

static void test_long_errors_end_at_a_code_point(void **state) {
    (void)state;
    err x;
    char text[3000];
    for (size_t i = 0; i < 999; i++)
        memcpy(text + i * 3, "日", 3);
    text[2997] = 0;
    for (int shift = 0; shift < 3; shift++) {
        err_set(&x, ERR_IO, "%.*s%s", shift, "ab", text);
        assert_true(strlen(x.message) > sizeof x.message - 5);
        assert_true(utf8_valid(str_from(x.message)));
    }
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const words[] = {"SELECT", "INSERT", "DELETE", "reviews"};
    assert_string_equal(str_nearest(STR("selec"), words, 4), "SELECT");
    assert_string_equal(str_nearest(STR("SELCET"), words, 4), "SELECT");
    assert_string_equal(str_nearest(STR("reveiws"), words, 4), "reviews");
    assert_null(str_nearest(STR("banana"), words, 4));
    assert_null(str_nearest(STR(""), words, 4));
}

/* Length and offset skip ASCII by words: the same as a
 * code point at a time, wherever words begin and end. */
static void test_utf8_counts_by_code_point(void **state) {
    (void)state;
    const str text = STR("plain ASCII text, é, then more of it; 日本 and \xff\xc3, the end of it");
    for (size_t from = 0; from <= text.n; from++) {
        for (size_t to = from; to <= text.n; to++) {
            str part = {text.p + from, to - from};
            size_t count = 0;
            uint32_t cp;
            for (size_t at = 0; at < part.n; count++) {
                assert_int_equal(utf8_offset(part, count), at);
                at += utf8_next((str){part.p + at, part.n - at}, &cp);
            }
            assert_int_equal(utf8_length(part), count);
            assert_int_equal(utf8_offset(part, count + 1), part.n);
        }
    }
}

static void test_utf8_valid(void **state) {
    (void)state;
    assert_true(utf8_valid(STR("plain ascii that is longer than eight bytes")));
    assert_true(utf8_valid(STR("grün 日本 🎉 und so weiter")));
    static const char *const bad[] = {"\xa0",
                                      "abcdefgh\xff",
                                      "\xc3",
                                      "\xed\xa0\x80",
                                      "\xc0\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "aaaaaaaaaaaaaaa\xe2\x82"};
    for (size_t i = 0; i < BASE_COUNT(bad); i++)
        assert_false(utf8_valid(str_from(bad[i])));
    assert_int_equal(utf8_length(STR("a\xff日")), 3);
    assert_int_equal(utf8_offset(STR("a日b"), 2), 4);
}

/* Of any part of a text, the characters that are whole. */
static void test_utf8_whole(void **state) {
    (void)state;
    const str text = STR("aé日🎉z🎉日éa");
    for (size_t from = 0; from <= text.n; from++) {
        for (size_t end = from; end <= text.n; end++) {
            size_t first = from, last = from, at = 0;
            uint32_t cp;
            for (size_t n; at < end && (n = utf8_next((str){text.p + at, text.n - at}, &cp)) > 0;
                 at += n) {
                first = at < from ? at + n : first;
                last = at + n <= end ? at + n : last;
            }
            first = BASE_MIN(first, end);
            str whole = utf8_whole((str){text.p + from, end - from});
            assert_int_equal(whole.n, last > first ? last - first : 0);
            assert_true(whole.n == 0 || whole.p == text.p + first);
        }
    }
    assert_int_equal(utf8_whole(STR("")).n, 0);
}

static void test_utf8_copy(void **state) {
    (void)state;
    const str text = STR("aé日🎉z");
    static const size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    for (size_t room = 1; room <= BASE_COUNT(ends); room++) {
        char out[16];
        memset(out, '#', sizeof out);
        utf8_copy(out, room, text);
        assert_int_equal(strlen(out), ends[room - 1]);
        assert_memory_equal(out, text.p, ends[room - 1]);
        assert_int_equal(out[room], '#');
    }
    char none[1];
    utf8_copy(none, sizeof none, (str){NULL, 0});
    assert_int_equal(none[0], 0);
}

static void test_utf8_width(void **state) {
    (void)state;
    assert_int_equal(utf8_width(STR("abc")), 3);
    assert_int_equal(utf8_width(STR("日本")), 4);
    assert_int_equal(utf8_width(STR("e\xcc\x81")), 1);
    assert_int_equal(utf8_width(STR("🎉")), 2);
    assert_int_equal(utf8_width(STR("👩‍👩‍👧")), 2);
    assert_int_equal(utf8_width(STR("🇩🇪")), 2);
    assert_int_equal(utf8_width(STR("❤️")), 2);
    assert_int_equal(utf8_fit(STR("日本語"), 5), 6);
    assert_int_equal(utf8_fit(STR("e\xcc\x81x"), 1), 3);
}

static void test_utf8_case(void **state) {
    (void)state;
    arena *a = arena_new();
    assert_true(str_equal(utf8_upper(a, STR("grün\xff")), STR("GRÜN\xff")));
    assert_true(str_equal(utf8_lower(a, STR("ÄÖ Σ")), STR("äö σ")));
    arena_free(a);
}

static void test_hashes(void **state) {
    (void)state;
    assert_true(hash64("", 0, 1) != hash64("", 0, 2));
    assert_true(hash64(NULL, 0, 1) == hash64("", 0, 1));
    assert_false(hash128_equal(hash_128("a", 1), hash_128("b", 1)));
}

static void test_buf(void **state) {
    (void)state;
    buf b = {0};
    assert_int_equal(buf_str(&b).n, 0);
    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%d,", i);
    assert_int_equal(b.n, strlen(b.p));
    buf_clear(&b);
    buf_append(&b, "a\0b", 3);
    assert_int_equal(b.n, 3);
    assert_int_equal(b.p[3], 0);
    buf_free(&b);
    assert_null(b.p);
}

static void test_bytes(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1536, "1.5 kB"},
                 {98362432, "94 MB"},
                 {(10 << 20) - 1, "10 MB"},
                 {(1 << 30) - 700000, "1023 MB"},
                 {(1 << 30) - 500000, "1.0 GB"},
                 {UINT64_C(4) << 30, "4.0 GB"},
                 {UINT64_MAX, "16777216 TB"}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        buf b = {0};
        buf_append_bytes(&b, cases[i].bytes);
        assert_string_equal(b.p, cases[i].text);
        buf_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_counts_by_code_point),
        cmocka_unit_test(test_arena_keeps_what_it_gave),
        cmocka_unit_test(test_arena_spills),
        cmocka_unit_test(test_an_arena_stays_within_its_limit),
        cmocka_unit_test(test_arena_survives_a_spill_that_fails),
        cmocka_unit_test(test_a_budget_is_shared),
        cmocka_unit_test(test_an_array_meets_the_limit_of_files),
        cmocka_unit_test(test_temporary_files_have_a_limit),
        cmocka_unit_test(test_a_full_disk_is_an_error),
        cmocka_unit_test(test_errors_chain),
        cmocka_unit_test(test_long_errors_end_at_a_code_point),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_utf8_valid),
        cmocka_unit_test(test_utf8_whole),
        cmocka_unit_test(test_utf8_copy),
        cmocka_unit_test(test_utf8_width),
        cmocka_unit_test(test_utf8_case),
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_buf),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
