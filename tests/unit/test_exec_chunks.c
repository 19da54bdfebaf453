/*
 * test_exec_chunks.c - CHUNK(): random texts; what every division must keep to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llm/split_int.h"

enum { ROUNDS = 3000, BYTES = 600 };

static llm_engine *engine;

static int open_engine(void **state) {
    llm_engine_options options = {.path = "test:hash"};
    err e;
    (void)state;
    return llm_engine_open(&options, &engine, &e);
}

static int close_engine(void **state) {
    (void)state;
    llm_engine_close(engine);
    return 0;
}

static uint32_t pick(uint64_t *state, uint32_t n) {
    *state = hash_mix(*state, 1);
    return (uint32_t)((*state >> 33) % n);
}

static size_t draw_text(uint64_t *random, char *out) {
    static const char *const pieces[] = {"a",  "word ", " ", "\n", ". ", "é",   "日本",
                                         "? ", "\t",    "“", "x)", "!",  "long"};
    size_t n = 0, most = pick(random, BYTES);
    while (n < most) {
        const char *piece = pieces[pick(random, BASE_COUNT(pieces))];
        memcpy(out + n, piece, strlen(piece));
        n += strlen(piece);
    }
    return n;
}

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Tokens of a piece, word by word as split_chunks counts them; 0: only blanks. `words`: number of words,
 * a run of more than 32 bytes counting as several. */
static size_t tokens_of(str whole, str piece, int *words) {
    size_t sum = 0, count;
    *words = 0;
    for (size_t at = 0; at < piece.n;) {
        size_t start = at;
        while (at < piece.n && !is_blank(piece.p[at]) && at - start < 32)
            at++;
        while (at > start && at < piece.n && (piece.p[at] & 0xc0) == 0x80)
            at--;
        if (at == start) {
            at++;
            continue;
        }
        const char *from = piece.p + start;
        bool blank = from > whole.p && is_blank(from[-1]);
        char spaced[40] = {' '};
        memcpy(spaced + blank, from, at - start);
        free(llm_tokenize(engine, (str){spaced, at - start + blank}, false, false, &count));
        sum += count;
        ++*words;
    }
    return sum;
}

static void check_chunks(str text, const split_spec *spec, const str *chunks, uint32_t n) {
    const char *covered = text.p;
    for (uint32_t i = 0; i < n; i++) {
        int words;
        size_t tokens = tokens_of(text, chunks[i], &words);
        assert_true(utf8_valid(chunks[i]));
        assert_true(chunks[i].n > 0 && !is_blank(chunks[i].p[0]) &&
                    !is_blank(chunks[i].p[chunks[i].n - 1]));
        assert_true((int64_t)tokens <= spec->tokens || words == 1);
        /* nothing but blanks is left out, and each chunk goes on */
        for (const char *p = covered; p < chunks[i].p; p++)
            assert_true(is_blank(*p));
        assert_true(chunks[i].p + chunks[i].n > covered);
        if (chunks[i].p < covered) {
            str again = {chunks[i].p, (size_t)(covered - chunks[i].p)};
            assert_true((int64_t)tokens_of(text, again, &words) <= spec->overlap);
        }
        covered = chunks[i].p + chunks[i].n;
    }
    for (const char *p = covered; p < text.p + text.n; p++)
        assert_true(is_blank(*p));
}

static void test_random_texts(void **state) {
    (void)state;
    int several = 0;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        char bytes[BYTES + 16];
        uint64_t random = round;
        str text = {bytes, draw_text(&random, bytes)}, *chunks;
        uint32_t n;
        err e;
        split_spec spec = {.chunks = true, .tokens = 1 + pick(&random, 40)};
        spec.overlap = pick(&random, (uint32_t)spec.tokens);
        arena *mem = arena_new();
        assert_int_equal(split_chunks(engine, &spec, text, mem, &chunks, &n, NULL, &e), 0);
        check_chunks(text, &spec, chunks, n);
        several += n > 1;
        arena_free(mem);
    }
    assert_true(several > ROUNDS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_texts),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
