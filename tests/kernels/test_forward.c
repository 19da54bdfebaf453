/*
 * test_forward.c - whole passes on the card: compared with reference.c for every architecture, and
 * bit for bit with each other: in one batch or alone, in one pass or several, with all blocks on
 * the card or some in host memory.
 */
#include "test_kernels_int.h"

#include "engine/sample_weight_int.h"
#include "reference.h"

#ifdef KVASIR_HOST_CARD
#include "card_int.h"
#endif

enum { LONGEST = 600, BLOCKS = 96 };

/* ---- an engine without a tokenizer ----------------------------------------------------------- */

typedef struct fixture {
    gguf_maker maker;
    gguf *g;
    reference *r;
    llm_engine *engine;
} fixture;

static void fixture_open(fixture *f, const tiny_model *t) {
    *f = (fixture){0};
    err e = {0};
    str file = tiny_make(&f->maker, t);
    assert_int_equal(gguf_open_memory(file.p, file.n, &f->g, &e), 0);
    assert_int_equal(reference_open(f->g, &f->r, &e), 0);
    f->engine = mem_zalloc(sizeof *f->engine);
    *f->engine = (llm_engine){.backend = &backend_cuda,
                              .file = f->g,
                              .mem = arena_new(),
                              .config = *reference_config(f->r)};
    f->engine->info.threads = 2;
    cuda_state *s = mem_zalloc(sizeof *s);
    s->probe_rows = 512;
    f->engine->state = s;
    if (cuda_start(f->engine, 0, &e) != 0)
        fail_msg("%s: %s", t->name, e.message);
}

static void fixture_close(fixture *f) {
    backend_cuda.close(f->engine);
    arena_free(f->engine->mem);
    free(f->engine);
    reference_close(f->r);
    gguf_close(f->g);
    make_free(&f->maker);
}

/* With `grows` the pool starts small and grows when more blocks are used. */
static cuda_work *work_made(fixture *f, int rows, int slots, bool grows) {
    err e = {0};
    void *work = NULL;
    int device = slots > 0 ? slots : BLOCKS;
    work_size size = {.blocks = BLOCKS, .device_blocks = device, .rows = rows};
    size.likely_blocks = grows ? 0 : device;
    if (cuda_work_new(f->engine, &size, &work, &e) != 0)
        fail_msg("%s", e.message);
    cuda_work *w = work;
    assert_true(grows ? w->kv.slots < device : w->kv.slots == device);
    w->kv.host.chunk_pages = 3; /* many chunks; the one that reaches the budget is shorter */
    return w;
}

static cuda_work *work_open(fixture *f, int rows, int slots) {
    return work_made(f, rows, slots, false);
}

/* ---- a small tree of sequences --------------------------------------------------------------- */

enum { SEQUENCES = 5, ASKED = 3 };

/* Makes sequences with a shared prefix of `head` tokens and their own ends, with blocks assigned as
 * by the scheduler. */
typedef struct tree {
    int head, length[SEQUENCES];
    llm_token tokens[SEQUENCES][LONGEST];
    int32_t head_table[LONGEST / LLM_BLOCK_TOKENS + 1],
        tables[SEQUENCES][LONGEST / LLM_BLOCK_TOKENS + 1];
} tree;

static void tree_make(tree *t, int head, int longest) {
    int32_t next = 0;
    t->head = head;
    for (int b = 0; b <= (head - 1) / LLM_BLOCK_TOKENS; b++)
        t->head_table[b] = next++;
    for (int s = 0; s < SEQUENCES; s++) {
        t->length[s] = s == 0 ? longest : head + 1 + (longest - head - 1) * s / (2 * SEQUENCES);
        for (int i = 0; i < t->length[s]; i++)
            t->tokens[s][i] = (i < head ? i * 7 + i / 5 : i * 11 + s * 3 + 1) % TINY_VOCAB;
        for (int b = 0; b <= (t->length[s] - 1) / LLM_BLOCK_TOKENS; b++)
            t->tables[s][b] = b < head / LLM_BLOCK_TOKENS ? t->head_table[b] : next++;
    }
    assert_true(next <= BLOCKS);
}

typedef struct answers {
    float logits[SEQUENCES][TINY_VOCAB], ids[SEQUENCES][ASKED];
} answers;

static const llm_token asked[ASKED] = {3, 17, 39};

static void rows_add(pass *p, const tree *t, int s, int from, int to, const int32_t *table) {
    for (int i = from; i < to; i++)
        p->rows[p->nrows++] = (pass_row){.token = t->tokens[s][i], .position = i, .table = table};
}

static void wants_add(pass *p, int s, answers *out) {
    p->wants[p->nwants++] =
        (pass_want){.row = p->nrows - 1, .count = TINY_VOCAB, .logits = out->logits[s]};
    p->wants[p->nwants++] =
        (pass_want){.row = p->nrows - 1, .ids = asked, .count = ASKED, .logits = out->ids[s]};
}

static void copy_add(pass *p, const tree *t, int s) {
    int at = t->head / LLM_BLOCK_TOKENS;
    if (t->head % LLM_BLOCK_TOKENS)
        p->copies[p->ncopies++] = (pass_copy){.from = t->head_table[at],
                                              .to = t->tables[s][at],
                                              .tokens = t->head % LLM_BLOCK_TOKENS};
}

static void pass_run(fixture *f, cuda_work *w, pass *p) {
    err e = {0};
    if (cuda_forward(f->engine, w, p, &e) != 0)
        fail_msg("%s", e.message);
    p->nrows = p->ncopies = p->nwants = 0;
}

/* Runs all sequences in one pass, the shared prefix once. */
static void run_together(fixture *f, cuda_work *w, const tree *t, answers *out) {
    pass_row *rows = malloc(sizeof *rows * LONGEST * (SEQUENCES + 1));
    pass_copy copies[SEQUENCES];
    pass_want wants[2 * SEQUENCES];
    pass p = {.rows = rows, .copies = copies, .wants = wants};
    rows_add(&p, t, 0, 0, t->head, t->head_table);
    for (int s = 0; s < SEQUENCES; s++) {
        copy_add(&p, t, s);
        rows_add(&p, t, s, t->head, t->length[s], t->tables[s]);
        wants_add(&p, s, out);
    }
    pass_run(f, w, &p);
    free(rows);
}

/* Runs each sequence on its own, `step` tokens per pass; with `decodes` the last token alone. */
static void run_alone(fixture *f, cuda_work *w, const tree *t, int step, bool decodes,
                      answers *out) {
    pass_row *rows = malloc(sizeof *rows * LONGEST);
    pass_want wants[2];
    for (int s = 0; s < SEQUENCES; s++) {
        int32_t table[LONGEST / LLM_BLOCK_TOKENS + 1];
        for (int b = 0; b < LONGEST / LLM_BLOCK_TOKENS + 1; b++)
            table[b] = BLOCKS - 1 - b;
        pass p = {.rows = rows, .wants = wants};
        int end = t->length[s] - (decodes ? 1 : 0);
        for (int at = 0; at < end; at += step) {
            rows_add(&p, t, s, at, BASE_MIN(at + step, end), table);
            if (at + step >= t->length[s])
                wants_add(&p, s, out);
            pass_run(f, w, &p);
        }
        if (decodes) {
            rows_add(&p, t, s, end, end + 1, table);
            wants_add(&p, s, out);
            pass_run(f, w, &p);
        }
    }
    free(rows);
}

/* Runs the last token of each sequence again, on the KV blocks that run_together wrote. */
static void run_last(fixture *f, cuda_work *w, const tree *t, answers *out) {
    pass_row rows[SEQUENCES];
    pass_want wants[2 * SEQUENCES];
    pass p = {.rows = rows, .wants = wants};
    for (int s = 0; s < SEQUENCES; s++) {
        rows_add(&p, t, s, t->length[s] - 1, t->length[s], t->tables[s]);
        wants_add(&p, s, out);
    }
    pass_run(f, w, &p);
}

/* The same three times in one pass and for allowed tokens only, so that each part needs other
 * blocks than the one before and the host waits for nothing until a part's end. */
static void run_last_again(fixture *f, cuda_work *w, const tree *t, answers *out) {
    enum { TURNS = 3 };
    pass_row rows[TURNS * SEQUENCES];
    pass_want wants[TURNS * SEQUENCES];
    pass p = {.rows = rows, .wants = wants};
    for (int i = 0; i < TURNS * SEQUENCES; i++) {
        int s = i % SEQUENCES;
        rows_add(&p, t, s, t->length[s] - 1, t->length[s], t->tables[s]);
        wants[p.nwants++] = (pass_want){
            .row = p.nrows - 1, .ids = asked, .count = ASKED, .logits = out[i / SEQUENCES].ids[s]};
    }
    pass_run(f, w, &p);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const tiny_model models[] = {
    {"llama", "llama", 2, 64, 0, 0, NULL, 0},
    {"llama-head", "llama", 2, 128, TINY_HEAD, 0, NULL, 0},
    {"llama-bias", "llama", 2, 64, TINY_BIAS | TINY_OUT_BIAS, 0, NULL, 0},
    {"llama3", "llama", 1, 64, TINY_DIVISORS, 0, NULL, 0},
    {"llama-yarn", "llama", 2, 64, 0, 0, "yarn", 0},
    {"smollm3", "smollm3", 4, 64, 0, 0, NULL, 0},
    {"qwen2", "qwen2", 2, 64, TINY_BIAS, 0, NULL, 0},
    {"qwen3", "qwen3", 2, 128, TINY_QK_NORM, 0, NULL, 0},
    {"phi3", "phi3", 2, 96, TINY_FUSED | TINY_HEAD, 5, NULL, 0},
    {"gemma", "gemma", 2, 256, 0, 0, NULL, 0},
    {"gemma2", "gemma2", 3, 256, TINY_POST_NORM | TINY_CAPS, 5, NULL, 0},
    {"gemma3", "gemma3", 7, 256, TINY_POST_NORM | TINY_QK_NORM, 5, "linear", 0},
};

/* bf16 weights and activations differ from f32 by a few hundredths of the logits' size, since these
 * models have random weights. */
static void every_architecture_is_near_the_reference(void **state) {
    (void)state;
    tree *t = malloc(sizeof *t);
    tree_make(t, 37, 80);
    for (size_t i = 0; i < BASE_COUNT(models); i++) {
        fixture f;
        fixture_open(&f, &models[i]);
        cuda_work *w = work_open(&f, 512, 0);
        answers got;
        memset(&got, 0xff, sizeof got);
        run_together(&f, w, t, &got);
        for (int s = 0; s < SEQUENCES; s++) {
            float expected[TINY_VOCAB];
            err e = {0};
            assert_int_equal(
                reference_forward(f.r, t->tokens[s], t->length[s], t->length[s] - 1, expected, &e),
                0);
            near(models[i].name, got.logits[s], expected, TINY_VOCAB, 0.05);
            for (int k = 0; k < ASKED; k++) /* relative to the size of all logits */
                got.logits[s][asked[k]] = got.ids[s][k];
            near(models[i].name, got.logits[s], expected, TINY_VOCAB, 0.05);
        }
        cuda_work_free(f.engine, w);
        fixture_close(&f);
    }
    free(t);
}

static void same(const answers *a, const answers *b, const char *what) {
    for (int s = 0; s < SEQUENCES; s++)
        if (memcmp(a->logits[s], b->logits[s], sizeof a->logits[s]) != 0 ||
            memcmp(a->ids[s], b->ids[s], sizeof a->ids[s]) != 0)
            fail_msg("%s: sequence %d has other bits", what, s);
}

static void bits_do_not_depend_on_the_batch(void **state) {
    (void)state;
    static const int heads[] = {1, 32, 75, 523};
    tree *t = malloc(sizeof *t);
    fixture f;
    fixture_open(&f, &models[0]);
    for (size_t i = 0; i < BASE_COUNT(heads); i++) {
        answers one, other;
        tree_make(t, heads[i], BASE_MIN(heads[i] + 70, LONGEST));
        cuda_work *w = work_open(&f, 4096, 0);
        run_together(&f, w, t, &one);
        run_alone(&f, w, t, LONGEST, false, &other);
        same(&one, &other, "alone");
        run_alone(&f, w, t, 23, false, &other);
        same(&one, &other, "23 tokens a pass");
        run_alone(&f, w, t, 64, true, &other);
        same(&one, &other, "the last token decoded");
        run_alone(&f, w, t, 64, true, &other);
        same(&one, &other, "the last token decoded by a graph");
        int captured = 0;
        for (int k = 0; k < w->ngraphs; k++) {
            assert_false(w->graphs[k].refused);
            captured += w->graphs[k].exec != NULL;
        }
        assert_true(captured > 0);
        cuda_work_free(f.engine, w);
        w = work_open(&f, 64, 0); /* parts of 64 rows */
        run_together(&f, w, t, &other);
        same(&one, &other, "in parts");
        cuda_work_free(f.engine, w);
        w = work_made(&f, 4096, 0, true);
        run_together(&f, w, t, &other);
        same(&one, &other, "in a pool that grows");
        run_alone(&f, w, t, 64, true, &other);
        same(&one, &other, "in a pool that has grown");
        run_last(&f, w, t, &other);
        assert_int_equal(w->kv.slots, BLOCKS);
        cuda_work_free(f.engine, w);
        w = work_open(&f, 64, 40); /* 40 blocks on the card */
        run_together(&f, w, t, &other);
        same(&one, &other, "with blocks in host memory");
        run_alone(&f, w, t, 100, false, &other);
        same(&one, &other, "alone, with blocks in host memory");
        run_last(&f, w, t, &other);
        same(&one, &other, "with blocks that came back from host memory");
        assert_true(heads[i] < 500 || (w->kv.moved_out > 0 && w->kv.moved_in > 0));
        cuda_work_free(f.engine, w);
    }
    fixture_close(&f);
    free(t);
}

/* Parts that nearly fill the card: the next part's blocks take the running part's slots once it has
 * ended, in every order of the streams. */
static void a_part_takes_the_slots_of_the_one_before(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, &models[0]);
    tree *t = malloc(sizeof *t);
    tree_make(t, 64, 590);
    answers one, other, turns[3];
    cuda_work *w = work_open(&f, 4096, 0);
    run_together(&f, w, t, &one);
    cuda_work_free(f.engine, w);
    int seeds = 1;
#ifdef KVASIR_HOST_CARD
    seeds = 4;
#endif
    for (int seed = 1; seed <= seeds; seed++) {
#ifdef KVASIR_HOST_CARD
        card_order(CARD_SEEDED, (uint64_t)seed);
#endif
        w = work_open(&f, 64, 20); /* the longest sequence needs 19 */
        run_together(&f, w, t, &other);
        same(&one, &other, "on a card that is full");
        run_last_again(&f, w, t, turns);
        for (int i = 0; i < 3; i++)
            assert_memory_equal(one.ids, turns[i].ids, sizeof one.ids);
        assert_true(w->kv.in_ahead * 4 > w->kv.moved_in * 3 && w->kv.out_ahead > 0);
        print_message("20 of %d blocks on the card: %d of %d came during a part, %d of %d left "
                      "during one\n",
                      (int)BLOCKS, (int)w->kv.in_ahead, (int)w->kv.moved_in, (int)w->kv.out_ahead,
                      (int)w->kv.moved_out);
        cuda_work_free(f.engine, w);
    }
#ifdef KVASIR_HOST_CARD
    card_order_given();
#endif
    fixture_close(&f);
    free(t);
}

/* A pass of a session's default size whose rows are all in their second chunk fits in one part. */
static void prompts_of_two_chunks_are_not_cut(void **state) {
    (void)state;
    enum { ROWS = 8192 };
    fixture f;
    fixture_open(&f, &models[0]);
    cuda_work *w = work_open(&f, ROWS, 0);
    int32_t table[BLOCKS];
    for (int b = 0; b < BLOCKS; b++)
        table[b] = b;
    pass_row *rows = malloc(sizeof *rows * ROWS);
    for (int i = 0; i < ROWS; i++)
        rows[i] = (pass_row){
            .token = i % TINY_VOCAB, .position = ATTEND_CHUNK + i % ATTEND_CHUNK, .table = table};
    pass p = {.rows = rows, .nrows = ROWS};
    err e = {0};
    assert_int_equal(cuda_part_rows(w, &p, 0, &e), ROWS);
    free(rows);
    cuda_work_free(f.engine, w);
    fixture_close(&f);
}

/* A captured graph holds the pool's address: when the pool moves, the step is captured again. */
static void graphs_follow_the_pool(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, &models[0]);
    cuda_work *w = work_made(&f, 512, 0, true);
    tree *t = malloc(sizeof *t);
    tree_make(t, 1, 50);
    answers first, later;
    int32_t near_table[] = {0, 1}, far_table[] = {BLOCKS - 1, BLOCKS - 2};
    pass_row rows[64];
    pass_want wants[2];
    pass p = {.rows = rows, .wants = wants};
    rows_add(&p, t, 0, 0, 40, near_table);
    pass_run(&f, w, &p);
    for (int step = 0; step < 6; step++) {
        if (step == 3) {
            assert_true(w->ngraphs == 1 && w->graphs[0].exec != NULL);
            rows_add(&p, t, 0, 0, 40, far_table);
            pass_run(&f, w, &p);
            assert_int_equal(w->kv.slots, BLOCKS);
            assert_int_equal(w->ngraphs, 0);
        }
        memset(&later, 0xff, sizeof later);
        rows_add(&p, t, 0, 40, 41, near_table);
        wants_add(&p, 0, &later);
        pass_run(&f, w, &p);
        first = step == 0 ? later : first;
        assert_memory_equal(first.logits[0], later.logits[0], sizeof later.logits[0]);
    }
    assert_true(w->ngraphs == 1 && w->graphs[0].exec != NULL);
    free(t);
    cuda_work_free(f.engine, w);
    fixture_close(&f);
}

/* Blocks read from one session and written to another give the same bits there. */
static void blocks_travel(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, &models[7]);
    tree *t = malloc(sizeof *t);
    tree_make(t, 64, 100);
    answers one, other;
    pass_row rows[LONGEST];
    pass_want wants[2];
    pass p = {.rows = rows, .wants = wants};
    cuda_work *a = work_open(&f, 512, 0), *b = work_open(&f, 512, 20);
    rows_add(&p, t, 0, 0, t->length[0], t->tables[0]);
    wants_add(&p, 0, &one);
    pass_run(&f, a, &p);
    char *block = malloc(a->kv.block_elements * 2);
    for (int i = 0; i < 64 / LLM_BLOCK_TOKENS; i++) {
        err e = {0};
        assert_int_equal(backend_cuda.kv_read(f.engine, a, t->tables[0][i], block, &e), 0);
        backend_cuda.kv_write(f.engine, b, t->tables[0][i], block);
    }
    rows_add(&p, t, 0, 64, t->length[0], t->tables[0]);
    wants_add(&p, 0, &other);
    pass_run(&f, b, &p);
    assert_memory_equal(one.logits[0], other.logits[0], sizeof one.logits[0]);
    assert_memory_equal(one.ids[0], other.ids[0], sizeof one.ids[0]);
    free(block);
    cuda_work_free(f.engine, a);
    cuda_work_free(f.engine, b);
    free(t);
    fixture_close(&f);
}

/* Top-k wants and draws return the same tokens, values and weights as all logits would. */
static void tops_are_those_of_the_logits(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, &models[2]);
    cuda_work *w = work_open(&f, 512, 0);
    enum { N = 150, K = 4 };
    int32_t table[N / LLM_BLOCK_TOKENS + 1] = {0, 1, 2, 3, 4};
    pass_row rows[N];
    pass_want *wants = malloc(sizeof *wants * 2 * N);
    float(*logits)[TINY_VOCAB] = malloc(sizeof *logits * N), (*tops)[K] = malloc(sizeof *tops * N);
    llm_token(*ids)[K] = malloc(sizeof *ids * N);
    pass p = {.rows = rows, .nrows = N, .wants = wants};
    for (int i = 0; i < N; i++) {
        rows[i] = (pass_row){.token = i * 13 % TINY_VOCAB, .position = i, .table = table};
        wants[p.nwants++] = (pass_want){.row = i, .count = TINY_VOCAB, .logits = logits[i]};
        wants[p.nwants++] = (pass_want){.row = i,
                                        .count = TINY_VOCAB,
                                        .logits = tops[i],
                                        .top = 1 + i % K,
                                        .top_ids = ids[i],
                                        .temperature = i % 3 == 2 ? 0.5f : 0};
    }
    pass_run(&f, w, &p);
    for (int i = 0; i < N; i++) {
        int best = 0;
        for (int j = 0; j < TINY_VOCAB; j++)
            best = logits[i][j] > logits[i][best] ? j : best;
        assert_int_equal(ids[i][0], best);
        for (int k = 0; k <= i % K; k++)
            assert_true(tops[i][k] == logits[i][ids[i][k]] &&
                        (k == 0 || tops[i][k] <= tops[i][k - 1]));
        uint64_t total = 0;
        for (int j = 0; j < TINY_VOCAB; j++)
            total += sample_weight(logits[i][j], tops[i][0], 0.5f);
        assert_true(i % 3 != 2 || wants[2 * i + 1].total == total);
    }
    void *all[] = {wants, logits, tops, ids};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        free(all[i]);
    cuda_work_free(f.engine, w);
    fixture_close(&f);
}

/* The fastest test is first: `--small passes` runs it alone. */
const struct CMUnitTest forward_tests[] = {
    cmocka_unit_test(blocks_travel),
    cmocka_unit_test(every_architecture_is_near_the_reference),
    cmocka_unit_test(bits_do_not_depend_on_the_batch),
    cmocka_unit_test(a_part_takes_the_slots_of_the_one_before),
    cmocka_unit_test(prompts_of_two_chunks_are_not_cut),
    cmocka_unit_test(graphs_follow_the_pool),
    cmocka_unit_test(tops_are_those_of_the_logits),
};
const size_t forward_tests_count = BASE_COUNT(forward_tests);
