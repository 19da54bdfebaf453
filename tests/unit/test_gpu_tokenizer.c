/*
 * test_gpu_tokenizer.c - pieces, merges, byte-level and SentencePiece vocabularies, control tokens,
 * the real model.
 */
#include "gpu_testing.h"
#include "text/tokenizer_parts_int.h"

#include <pthread.h>

/* ---- pieces --------------------------------------------------------------------------------- */

static void check_pieces(const char *line) {
    buf pre = {0}, text = {0}, expected = {0};
    pretokenizer *p;
    pieces walk;
    err e = {0};
    json_string(json_value(line, "pre"), &pre);
    json_string(json_value(line, "text"), &text);
    assert_int_equal(pretokenizer_new(buf_str(&pre), &p, &e), 0);
    pieces_open(&walk, p, buf_str(&text));
    const char *at = json_value(line, "pieces") + 1;
    for (str piece; pieces_next(&walk, &piece);) {
        buf_clear(&expected);
        if (*at == '"')
            at = json_string(at, &expected);
        if (!str_equal(piece, buf_str(&expected)))
            fail_msg("%s: [%.*s] instead of [%s] in: %s", pre.p, (int)piece.n, piece.p,
                     expected.p ? expected.p : "", line);
        at += strspn(at, ", ");
    }
    assert_int_equal(*at, ']');
    pieces_close(&walk);
    pretokenizer_free(p);
    buf_free(&pre);
    buf_free(&text);
    buf_free(&expected);
}

static void pieces_equal_another_engine(void **state) {
    (void)state;
    char path[4096], *line = NULL;
    size_t cap = 0;
    int n = 0;
    FILE *f = fopen(source_path("tests/vectors/pieces.jsonl", path), "r");
    assert_non_null(f);
    for (; getline(&line, &cap, f) > 0; n++)
        check_pieces(line);
    assert_true(n > 400);
    free(line);
    fclose(f);
}

static void pieces_cover_invalid_bytes(void **state) {
    (void)state;
    const str texts[] = {STR("\xff"), STR("a\xff\xfe b\xc3"), STR("\xed\xa0\x80x"),
                         STR("\xf0\x9f\x8e"), STR("a\0b\xc0\x80")};
    const size_t counts[] = {1, 4, 2, 1, 4};
    pretokenizer *p;
    err e = {0};
    assert_int_equal(pretokenizer_new(STR("gpt2"), &p, &e), 0);
    for (size_t i = 0; i < BASE_COUNT(texts); i++) {
        pieces walk;
        size_t at = 0, n = 0;
        pieces_open(&walk, p, texts[i]);
        for (str piece; pieces_next(&walk, &piece); at += piece.n, n++)
            assert_ptr_equal(piece.p, texts[i].p + at);
        assert_int_equal(at, texts[i].n);
        assert_int_equal(n, counts[i]);
        pieces_close(&walk);
    }
    pretokenizer_free(p);
    assert_int_equal(pretokenizer_new(STR("chatglm-bpe"), &p, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "chatglm-bpe"));
}

/* ---- merges --------------------------------------------------------------------------------- */

/* What "always the lowest rank, the leftmost of equals" means, word for word. */
static size_t merge_naive(const merge_table *m, const uint32_t ranks[8][8], int32_t *ids,
                          size_t n) {
    for (;;) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t r = ids[i] >= 0 && ids[i + 1] >= 0 ? ranks[ids[i]][ids[i + 1]] : UINT32_MAX;
            if (r < rank) {
                best = i;
                rank = r;
            }
        }
        if (best == n)
            return n;
        int32_t two[2] = {ids[best], ids[best + 1]};
        assert_int_equal(merge_run(m, two, 2), 1);
        ids[best] = two[0];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
    }
}

static void both_merge_loops_equal_the_naive_one(void **state) {
    (void)state;
    srand(7);
    for (int round = 0; round < 300; round++) {
        uint32_t ranks[8][8];
        merge_table *m = merge_table_new(0);
        for (int a = 0; a < 8; a++) {
            for (int b = 0; b < 8; b++) {
                ranks[a][b] = rand() % 3 ? UINT32_MAX : (uint32_t)(rand() % 12);
                if (ranks[a][b] != UINT32_MAX)
                    merge_table_add(m, a, b, ranks[a][b], rand() % 8);
            }
        }
        int32_t fast[200], slow[200];
        size_t n = (size_t)(rand() % (round % 2 ? 20 : 200));
        for (size_t i = 0; i < n; i++)
            fast[i] = slow[i] = rand() % 9 - 1;
        size_t a = merge_run(m, fast, n), b = merge_naive(m, ranks, slow, n);
        assert_int_equal(a, b);
        assert_memory_equal(fast, slow, a * sizeof *fast);
        merge_table_free(m);
    }
}

/* ---- small vocabularies --------------------------------------------------------------------- */

typedef struct small {
    gguf_maker maker;
    gguf *g;
    tokenizer *t;
} small;

static int small_open(small *s, err *e) {
    str file = make_file(&s->maker, 3);
    assert_int_equal(gguf_open_memory(file.p, file.n, &s->g, e), 0);
    return tokenizer_new(s->g, &s->t, e);
}

static void small_close(small *s) {
    tokenizer_free(s->t);
    gguf_close(s->g);
    make_free(&s->maker);
    *s = (small){0};
}

static size_t encode(const tokenizer *t, str text, bool parse, llm_token *out, size_t room) {
    llm_token *ids = NULL;
    size_t n = 0, cap = 0;
    tokenizer_encode(t, text, parse, true, &ids, &n, &cap);
    assert_true(n <= room);
    if (n)
        memcpy(out, ids, n * sizeof *out);
    free(ids);
    return n;
}

static void expect_ids(const tokenizer *t, str text, bool parse, const llm_token *ids, size_t n) {
    llm_token got[64];
    assert_int_equal(encode(t, text, parse, got, 64), n);
    assert_memory_equal(got, ids, n * sizeof *got);
}

#define EXPECT(t, text, parse, ...)                                                                \
    expect_ids(t, STR(text), parse, (llm_token[]){__VA_ARGS__},                                    \
               sizeof((llm_token[]){__VA_ARGS__}) / sizeof(llm_token))

static void expect_text(const tokenizer *t, str text) {
    llm_token got[256];
    size_t n = encode(t, text, false, got, 256);
    buf out = {0};
    for (size_t i = 0; i < n; i++)
        tokenizer_decode(t, got[i], false, &out);
    assert_true(str_equal(buf_str(&out), text));
    buf_free(&out);
}

/* a b c ab abc Ġ Ġa | <ctl> (3) [MARK] (user-defined, in the template) <b> (user-defined) Ã (byte
 * C3) */
static void bpe_vocabulary(small *s) {
    const str tokens[] = {STR("a"),
                          STR("b"),
                          STR("c"),
                          STR("ab"),
                          STR("abc"),
                          STR("\xC4\xA0"),
                          STR("\xC4\xA0"
                              "a"),
                          STR("<|ctl|>"),
                          STR("[MARK]"),
                          STR("<b>"),
                          STR("\xC3\x83")};
    const int32_t kinds[] = {1, 1, 1, 1, 1, 1, 1, 3, 4, 4, 1};
    const str merges[] = {STR("a b"), STR("ab c"), STR("\xC4\xA0 a")};
    make_str(&s->maker, "tokenizer.ggml.model", "gpt2");
    make_str(&s->maker, "tokenizer.ggml.pre", "gpt2");
    make_str(&s->maker, "tokenizer.chat_template", "{{ '[MARK]' }}");
    make_strs(&s->maker, "tokenizer.ggml.tokens", tokens, BASE_COUNT(tokens));
    make_words(&s->maker, "tokenizer.ggml.token_type", 5, kinds, BASE_COUNT(kinds));
    make_strs(&s->maker, "tokenizer.ggml.merges", merges, BASE_COUNT(merges));
    make_u32(&s->maker, "tokenizer.ggml.eos_token_id", 7);
}

static void bpe_guards_control_tokens(void **state) {
    (void)state;
    small s = {0};
    err e = {0};
    bpe_vocabulary(&s);
    assert_int_equal(small_open(&s, &e), 0);
    EXPECT(s.t, "abc", false, 4);
    EXPECT(s.t, "cab", false, 2, 3);
    EXPECT(s.t, "a ab", false, 0, 5, 3); /* "a b" is the first merge: " a" has no chance */
    EXPECT(s.t, "a a", false, 0, 6);
    EXPECT(s.t, "a<|ctl|>b", true, 0, 7, 1);
    EXPECT(s.t, "a[MARK]b", true, 0, 8, 1);
    EXPECT(s.t, "a<b>b", false, 0, 9, 1);
    llm_token got[64];
    size_t n = encode(s.t, STR("<|ctl|>[MARK]"), false, got, 64);
    for (size_t i = 0; i < n; i++)
        assert_true(got[i] != 7 && got[i] != 8);
    assert_true(tokenizer_is_control(s.t, 7) && tokenizer_is_end(s.t, 7) &&
                tokenizer_eos(s.t) == 7);
    assert_false(tokenizer_is_control(s.t, 9) || tokenizer_is_end(s.t, 9) ||
                 tokenizer_adds_bos(s.t));
    assert_int_equal(tokenizer_bos(s.t), -1);
    buf out = {0};
    tokenizer_decode(s.t, 7, false, &out);
    assert_int_equal(out.n, 0);
    tokenizer_decode(s.t, 7, true, &out);
    tokenizer_decode(s.t, 6, true, &out);
    tokenizer_decode(s.t, 10, true, &out);
    tokenizer_decode(s.t, -1, true, &out);
    tokenizer_decode(s.t, 11, true, &out);
    assert_true(str_equal(buf_str(&out), STR("<|ctl|> a\xC3")));
    buf_free(&out);
    small_close(&s);
}

static void spm_vocabulary(small *s, bool spaces_inside) {
    static const char *const words[] = {
        "<unk>",          "<s>",           "</s>", "\xE2\x96\x81", "h", "i", "hi",
        "\xE2\x96\x81hi", "\xE2\x96\x81h", "\n\n", "<s",           ">", "<", "s"};
    enum { WORDS = BASE_COUNT(words), ALL = WORDS + 256 + 1 };
    str tokens[ALL];
    int32_t kinds[ALL];
    float scores[ALL];
    static char bytes[256][8];
    for (size_t i = 0; i < ALL; i++) {
        kinds[i] = i == 0 ? 2 : i <= 2 ? 3 : i == 9 ? 4 : i < WORDS ? 1 : 6;
        scores[i] = i == 7   ? -1.0f
                    : i == 6 ? -2.0f
                    : i == 8 ? (spaces_inside ? -0.6f : -3.0f)
                             : -10.0f;
        if (i < WORDS) {
            tokens[i] = str_from(words[i]);
        } else if (i < WORDS + 256) {
            snprintf(bytes[i - WORDS], 8, "<0x%02X>", (unsigned)(i - WORDS));
            tokens[i] = str_from(bytes[i - WORDS]);
        }
    }
    tokens[ALL - 1] = spaces_inside ? STR("i\xE2\x96\x81h") : STR("x");
    kinds[ALL - 1] = 1;
    scores[ALL - 1] = spaces_inside ? -0.5f : -20.0f;
    make_str(&s->maker, "tokenizer.ggml.model", "llama");
    make_strs(&s->maker, "tokenizer.ggml.tokens", tokens, ALL);
    make_words(&s->maker, "tokenizer.ggml.token_type", 5, kinds, ALL);
    make_words(&s->maker, "tokenizer.ggml.scores", 6, scores, ALL);
    make_u32(&s->maker, "tokenizer.ggml.bos_token_id", 1);
    make_u32(&s->maker, "tokenizer.ggml.eos_token_id", 2);
    make_u32(&s->maker, "tokenizer.ggml.unknown_token_id", 0);
}

static void sentencepiece_prefixes_merges_and_falls_back(void **state) {
    (void)state;
    enum { BYTES = 14, LAST = BYTES + 256 };
    small s = {0};
    err e = {0};
    spm_vocabulary(&s, false);
    assert_int_equal(small_open(&s, &e), 0);
    assert_true(tokenizer_adds_bos(s.t) && tokenizer_bos(s.t) == 1);
    EXPECT(s.t, "hi hi", false, 7, 7);
    EXPECT(s.t, "hih", false, 7, 4);
    EXPECT(s.t, "  hi", false, 3, 3, 7);
    /* user-defined: found in plain text, and no prefix follows */
    EXPECT(s.t, "hi\n\nhi", false, 7, 9, 6);
    EXPECT(s.t, "z", false, 3, BYTES + 'z');
    EXPECT(s.t, "\xC3\xA9", false, 3, BYTES + 0xC3, BYTES + 0xA9);
    EXPECT(s.t, "<s>", true, 1);
    /* "<s" is a token of its own; <s> is not made by merging it with > */
    EXPECT(s.t, "<s>", false, 3, 10, 11);
    llm_token *ids = NULL;
    size_t n = 0, cap = 0;
    /* in the middle of a prompt: no prefix */
    tokenizer_encode(s.t, STR("hi"), false, false, &ids, &n, &cap);
    assert_true(n == 1 && ids[0] == 6);
    free(ids);
    buf out = {0};
    tokenizer_decode(s.t, 7, false, &out);
    tokenizer_decode(s.t, BYTES + 0xFF, false, &out);
    assert_true(str_equal(buf_str(&out), STR(" hi\xFF")));
    buf_free(&out);
    small_close(&s);
    spm_vocabulary(&s, true); /* a token over a space forbids cutting there */
    assert_int_equal(small_open(&s, &e), 0);
    EXPECT(s.t, "hi hi", false, 8, LAST, 5);
    small_close(&s);
}

static void any_bytes_come_back(void **state) {
    (void)state;
    small s = {0};
    err e = {0};
    spm_vocabulary(&s, false);
    make_bool(&s.maker, "tokenizer.ggml.add_space_prefix", false);
    assert_int_equal(small_open(&s, &e), 0);
    srand(11);
    for (int round = 0; round < 500; round++) {
        char bytes[64];
        size_t n = (size_t)(rand() % 64);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)(rand() % 3 ? "hi \n<s>"[rand() % 7] : rand());
        expect_text(s.t, (str){bytes, n});
    }
    small_close(&s);
}

/* One tokenizer, four threads, the tokens of one. */
static const char threads_text[] =
    "hi hih \xC3\xA9 hi\n\nhi  hi <s> \xFF zzzz hihihihihihihihihihihihihihihihihihi";

static void *encode_often(void *arg) {
    const tokenizer *t = arg;
    llm_token first[128], again[128];
    size_t n = encode(t, STR(threads_text), false, first, 128);
    for (int i = 0; i < 200; i++)
        if (encode(t, STR(threads_text), false, again, 128) != n ||
            memcmp(first, again, n * sizeof *first) != 0)
            return NULL;
    return arg;
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        small s = {0};
        err e = {0};
        pthread_t threads[4];
        if (kind)
            bpe_vocabulary(&s);
        else
            spm_vocabulary(&s, false);
        assert_int_equal(small_open(&s, &e), 0);
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, encode_often, s.t), 0);
        for (int i = 0; i < 4; i++) {
            void *same;
            assert_int_equal(pthread_join(threads[i], &same), 0);
            assert_ptr_equal(same, s.t);
        }
        small_close(&s);
    }
}

static void refuses(small *s, int code, const char *reason) {
    err e = {0};
    assert_int_equal(small_open(s, &e), code);
    assert_null(s->t);
    if (!strstr(e.message, reason))
        fail_msg("\"%s\" does not say \"%s\"", e.message, reason);
    small_close(s);
}

static void refuses_broken_vocabularies(void **state) {
    (void)state;
    const str tokens[] = {STR("a"), STR("b")};
    small s = {0};
    refuses(&s, ERR_UNSUPPORTED, "no tokenizer");
    make_str(&s.maker, "tokenizer.ggml.model", "t5");
    refuses(&s, ERR_UNSUPPORTED, "\"t5\"");
    make_str(&s.maker, "tokenizer.ggml.model", "bert");
    make_strs(&s.maker, "tokenizer.ggml.tokens", (str[]){STR("[CLS]"), STR("[SEP]")}, 2);
    refuses(&s, ERR_CORRUPT, "no token [UNK]");
    make_str(&s.maker, "tokenizer.ggml.model", "gpt2");
    refuses(&s, ERR_CORRUPT, "no vocabulary");
    make_str(&s.maker, "tokenizer.ggml.model", "gpt2");
    make_strs(&s.maker, "tokenizer.ggml.tokens", tokens, 2);
    refuses(&s, ERR_UNSUPPORTED, "does not name its pre-tokenizer");
    make_str(&s.maker, "tokenizer.ggml.model", "gpt2");
    make_str(&s.maker, "tokenizer.ggml.pre", "gpt2");
    make_strs(&s.maker, "tokenizer.ggml.tokens", tokens, 2);
    refuses(&s, ERR_CORRUPT, "no merges");
    make_str(&s.maker, "tokenizer.ggml.model", "gpt2");
    make_str(&s.maker, "tokenizer.ggml.pre", "gpt2");
    make_strs(&s.maker, "tokenizer.ggml.tokens", tokens, 2);
    make_strs(&s.maker, "tokenizer.ggml.merges", tokens, 1);
    refuses(&s, ERR_CORRUPT, "merge 0");
    make_str(&s.maker, "tokenizer.ggml.model", "llama");
    make_strs(&s.maker, "tokenizer.ggml.tokens", tokens, 2);
    refuses(&s, ERR_CORRUPT, "no scores");
    make_str(&s.maker, "tokenizer.ggml.model", "llama");
    make_strs(&s.maker, "tokenizer.ggml.tokens", tokens, 2);
    make_u32(&s.maker, "tokenizer.ggml.eos_token_id", 2);
    refuses(&s, ERR_CORRUPT, "eos_token_id names a token that");
    make_str(&s.maker, "tokenizer.ggml.model", "llama");
    make_strs(&s.maker, "tokenizer.ggml.tokens", tokens, 2);
    make_words(&s.maker, "tokenizer.ggml.token_type", 5, (int32_t[]){1}, 1);
    refuses(&s, ERR_CORRUPT, "token types do not match");
    static const char zeros[5000];
    make_str(&s.maker, "tokenizer.ggml.model", "llama");
    make_strs(&s.maker, "tokenizer.ggml.tokens", (str[]){STR("a"), {zeros, sizeof zeros}}, 2);
    refuses(&s, ERR_CORRUPT, "token 1 of the model's vocabulary is too long: 5000 bytes");
}

/* ---- vocabularies that other engines made --------------------------------------------------- */

/* An array of strings of the line as a GGUF array; nothing where the line has none. */
static void copy_strings(gguf_maker *m, const char *line, const char *name, const char *key) {
    enum { MOST = 1000 };
    static str list[MOST];
    static buf texts[MOST];
    const char *at = json_value(line, name);
    size_t n = 0;
    if (!at)
        return;
    for (at++; *at == '"' && n < MOST; n++) {
        buf_clear(&texts[n]);
        at = json_string(at, &texts[n]);
        at += strspn(at, ", ");
        list[n] = buf_str(&texts[n]);
    }
    assert_int_equal(*at, ']');
    make_strs(m, key, list, n);
    for (size_t i = 0; i < n; i++)
        buf_free(&texts[i]);
}

static void copy_scores(gguf_maker *m, const char *line) {
    float scores[1000];
    size_t n = 0;
    const char *at = json_value(line, "scores");
    if (!at)
        return;
    for (at++; *at != ']' && n < BASE_COUNT(scores); n++) {
        char *end;
        scores[n] = strtof(at, &end);
        at = end + strspn(end, ", ");
    }
    make_words(m, "tokenizer.ggml.scores", 6, scores, n);
}

static void copy_text(gguf_maker *m, const char *line, const char *name, const char *key) {
    buf copy = {0};
    const char *at = json_value(line, name);
    if (at) {
        json_string(at, &copy);
        make_str(m, key, copy.p);
    }
    buf_free(&copy);
}

static void copy_number(gguf_maker *m, const char *line, const char *name, const char *key) {
    const char *at = json_value(line, name);
    if (at)
        make_u32(m, key, (uint32_t)strtoul(at, NULL, 10));
}

static void open_vocabulary(small *s, const char *line) {
    gguf_maker *m = &s->maker;
    llm_token kinds[1000];
    err e = {0};
    copy_text(m, line, "model", "tokenizer.ggml.model");
    copy_text(m, line, "pre", "tokenizer.ggml.pre");
    copy_strings(m, line, "tokens", "tokenizer.ggml.tokens");
    copy_strings(m, line, "merges", "tokenizer.ggml.merges");
    copy_scores(m, line);
    size_t n = json_ints(json_value(line, "token_type"), kinds, BASE_COUNT(kinds));
    make_words(m, "tokenizer.ggml.token_type", 5, kinds, n);
    copy_number(m, line, "bos_token_id", "tokenizer.ggml.bos_token_id");
    copy_number(m, line, "eos_token_id", "tokenizer.ggml.eos_token_id");
    copy_number(m, line, "unknown_token_id", "tokenizer.ggml.unknown_token_id");
    const char *prefix = json_value(line, "space_prefix");
    if (prefix)
        make_bool(m, "tokenizer.ggml.add_space_prefix", *prefix == 't');
    if (small_open(s, &e) != 0)
        fail_msg("%s", e.message);
}

static void check_vector(const tokenizer *t, const char *line);

static void other_engines_agree(void **state) {
    (void)state;
    char path[4096], *line = NULL;
    size_t cap = 0;
    int vocabularies = 0, texts = 0;
    small s = {0};
    FILE *f = fopen(source_path("tests/vectors/vocabularies.jsonl", path), "r");
    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        if (json_value(line, "vocabulary")) {
            small_close(&s);
            open_vocabulary(&s, line);
            vocabularies++;
        } else {
            check_vector(s.t, line);
            texts++;
        }
    }
    assert_true(vocabularies == 7 && texts > 600);
    small_close(&s);
    free(line);
    fclose(f);
}

/* ---- the real model ------------------------------------------------------------------------- */

static void check_vector(const tokenizer *t, const char *line) {
    buf text = {0}, back = {0};
    json_string(json_value(line, "text"), &text);
    size_t room = text.n + 1, n = 0, cap = 0;
    llm_token *expected = malloc(room * sizeof *expected), *ids = NULL;
    size_t count = json_ints(json_value(line, "ids"), expected, room);
    tokenizer_encode(t, buf_str(&text), false, true, &ids, &n, &cap);
    if (n != count || memcmp(ids ? ids : expected, expected, n * sizeof *ids) != 0)
        fail_msg("tokens differ for: %s", line);
    for (size_t i = 0; i < n; i++)
        tokenizer_decode(t, ids[i], false, &back);
    str shown = buf_str(&back);
    if (t->kind == KIND_SENTENCEPIECE && t->adds_space_prefix && shown.n)
        shown = (str){shown.p + 1, shown.n - 1};
    if (t->kind != KIND_WORDPIECE)
        assert_true(str_equal(buf_str(&text), shown));
    free(expected);
    free(ids);
    buf_free(&text);
    buf_free(&back);
}

static void equals_the_token_vectors(void **state) {
    (void)state;
    char model[4096], vectors[4096], *line = NULL;
    size_t cap = 0;
    if (!model_path(model) || !shared_vectors("tokens.jsonl", vectors))
        skip();
    gguf *g;
    tokenizer *t;
    err e = {0};
    assert_int_equal(gguf_open(model, &g, &e), 0);
    assert_int_equal(tokenizer_new(g, &t, &e), 0);
    FILE *f = fopen(vectors, "r");
    assert_non_null(f);
    int n = 0;
    for (; getline(&line, &cap, f) > 0; n++)
        check_vector(t, line);
    print_message("%d texts\n", n);
    assert_int_equal(n, 338);
    /* Control tokens: ours when asked for, text otherwise. */
    llm_token ids[16];
    assert_int_equal(encode(t, STR("<|im_start|>user\n"), true, ids, 16), 3);
    assert_int_equal(ids[0], 1);
    size_t plain = encode(t, STR("<|im_end|><|endoftext|>"), false, ids, 16);
    for (size_t i = 0; i < plain; i++)
        assert_false(tokenizer_is_control(t, ids[i]));
    assert_true(tokenizer_is_end(t, 2) && tokenizer_is_end(t, 0) && !tokenizer_adds_bos(t));
    free(line);
    fclose(f);
    tokenizer_free(t);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_equal_another_engine),
        cmocka_unit_test(pieces_cover_invalid_bytes),
        cmocka_unit_test(both_merge_loops_equal_the_naive_one),
        cmocka_unit_test(bpe_guards_control_tokens),
        cmocka_unit_test(sentencepiece_prefixes_merges_and_falls_back),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(refuses_broken_vocabularies),
        cmocka_unit_test(other_engines_agree),
        cmocka_unit_test(equals_the_token_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
