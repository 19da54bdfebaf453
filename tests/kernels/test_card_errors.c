/*
 * test_card_errors.c - the CUDA backend with no driver, an old driver, an old card, too little
 * memory, or any single allocation failing; and that the emulated card which this runs on
 * (host/card_int.h) detects a missing wait and rejects what a real card rejects or leaves
 * undefined.
 */
#include "test_kernels_int.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "card_int.h"

enum { BLOCKS = 40, ROWS = 90 };

static void a_missing_card_is_reported_in_one_clause(void **state) {
    (void)state;
    static const struct {
        cudaError_t status;
        int driver, capability;
        const char *says;
    } cases[] = {{cudaErrorInsufficientDriver, 0, 9, "no NVIDIA driver is installed"},
                 {cudaErrorInsufficientDriver, 11040, 9, "supports CUDA 11.4"},
                 {cudaErrorNoDevice, 13000, 9, "no NVIDIA GPU was found"},
                 {cudaSuccess, 13000, 7, "compute capability 7.0, but 8.0 is needed"}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        char why[200] = "";
        card_presence(cases[i].status, cases[i].driver, cases[i].capability);
        assert_false(cuda_usable(0, why, sizeof why));
        assert_non_null(strstr(why, cases[i].says));
        llm_engine_options options = {.path = "none.gguf", .device = "cuda:0"};
        llm_engine *engine = NULL;
        err e = {0};
        assert_int_equal(llm_engine_open(&options, &engine, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.message, cases[i].says));
        assert_null(engine);
    }
    card_presence(cudaSuccess, CUDART_VERSION, 9);
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct fixture {
    gguf_maker maker;
    gguf *g;
    llm_engine engine;
} fixture;

static int start_with(const atomic_bool *cancel, const char *cache_dir, fixture *f, err *e) {
    static const tiny_model tiny = {"llama", "llama", 1, 64, 0, 0, NULL, 0};
    *f = (fixture){0};
    str file = tiny_make(&f->maker, &tiny);
    assert_int_equal(gguf_open_memory(file.p, file.n, &f->g, e), 0);
    f->engine = (llm_engine){.backend = &backend_cuda, .file = f->g, .mem = arena_new()};
    assert_int_equal(config_read(f->g, &f->engine.config, e), 0);
    f->engine.info.threads = 1;
    cuda_state *s = mem_zalloc(sizeof *s);
    s->probe_rows = 32;
    s->cancel = cancel;
    s->cache_dir = cache_dir != NULL ? mem_strndup(cache_dir, strlen(cache_dir)) : NULL;
    f->engine.state = s;
    return cuda_start(&f->engine, 0, e);
}

static int start(fixture *f, err *e) {
    return start_with(NULL, NULL, f, e);
}

static void end(fixture *f) {
    backend_cuda.close(&f->engine);
    arena_free(f->engine.mem);
    gguf_close(f->g);
    make_free(&f->maker);
}

static void a_small_card_is_refused_in_one_line(void **state) {
    (void)state;
    fixture f;
    err e = {0};
    card_memory((size_t)64 << 20);
    assert_int_equal(start(&f, &e), ERR_FULL);
    assert_non_null(strstr(e.message, "not enough GPU memory for the model"));
    end(&f);
    card_memory((size_t)8 << 30);
    assert_int_equal(card_allocations(), 0);
}

/* Opens an engine with each of its allocations failing in turn: there is an error, and no memory
 * leaks. */
static void opening_survives_each_refusal(void **state) {
    (void)state;
    bool opened = false;
    for (long n = 0; !opened; n++) {
        fixture f;
        err e = {0};
        card_refuse(n);
        int code = start(&f, &e);
        card_refuse(-1);
        assert_true(code == 0 || (code == ERR_FULL && e.message[0] != '\0'));
        end(&f);
        assert_int_equal(card_allocations(), 0);
        opened = code == 0 && n > 60; /* failed work buffers are retried smaller */
        assert_true(n < 400);
    }
}

static void opening_can_be_cancelled(void **state) {
    (void)state;
    atomic_bool cancel = true;
    fixture f;
    err e = {0};
    assert_int_equal(start_with(&cancel, NULL, &f, &e), ERR_CANCELLED);
    end(&f);
    assert_int_equal(card_allocations(), 0);
}

/* Measured rates are stored per card, independently of how much of its memory is free. */
static void rates_are_found_again_on_the_same_card(void **state) {
    (void)state;
    static const size_t totals[] = {(size_t)8 << 30, (size_t)6 << 30};
    char dir[] = P_tmpdir "/kvasir-card-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < BASE_COUNT(totals); i++) {
        fixture f;
        err e = {0};
        card_memory(totals[i]);
        assert_int_equal(start_with(NULL, dir, &f, &e), 0);
        assert_true(f.engine.info.prefill_tok_s == (i == 0 ? 0 : 1000));
        assert_true(f.engine.info.decode_tok_s == (i == 0 ? 0 : 10));
        backend_cuda.keep_rates(&f.engine, 1000, 10);
        end(&f);
    }
    card_memory((size_t)8 << 30);
    DIR *d = opendir(dir);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;)
        unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
    rmdir(dir);
}

/* Runs two passes in a new session and returns their logits. */
static int passes(fixture *f, float *logits, err *e) {
    int32_t table[] = {3, 5, 9, 11};
    pass_row rows[ROWS];
    pass_want wants[ROWS];
    void *work = NULL;
    work_size size = {.blocks = BLOCKS, .device_blocks = BLOCKS, .rows = 256};
    int code = cuda_work_new(&f->engine, &size, &work, e);
    for (int half = 0; half < 2 && code == 0; half++) {
        pass p = {.rows = rows, .wants = wants};
        for (int i = half * ROWS / 2; i < (half + 1) * ROWS / 2; i++) {
            wants[p.nwants++] = (pass_want){
                .row = p.nrows, .count = TINY_VOCAB, .logits = logits + (size_t)i * TINY_VOCAB};
            rows[p.nrows++] =
                (pass_row){.token = i * 5 % TINY_VOCAB, .position = i, .table = table};
        }
        code = cuda_forward(&f->engine, work, &p, e);
    }
    if (work != NULL)
        cuda_work_free(&f->engine, work);
    return code;
}

/* Runs a session with each of its allocations failing in turn: it continues with smaller parts and
 * the same bits, or fails with an error. */
static void sessions_survive_each_refusal(void **state) {
    (void)state;
    fixture f;
    err e = {0};
    assert_int_equal(start(&f, &e), 0);
    size_t count = (size_t)ROWS * TINY_VOCAB, before = card_allocations();
    float *expected = malloc(count * sizeof *expected), *got = malloc(count * sizeof *got);
    assert_int_equal(passes(&f, expected, &e), 0);
    int survived = 0, failed = 0;
    for (long n = 0; n < 40; n++) {
        memset(got, 0xff, count * sizeof *got);
        err_clear(&e);
        card_refuse(n);
        int code = passes(&f, got, &e);
        card_refuse(-1);
        assert_int_equal(card_allocations(), before);
        assert_true(code == 0 || code == ERR_FULL);
        survived += code == 0;
        failed += code != 0;
        if (code == 0)
            assert_memory_equal(got, expected, count * sizeof *got);
        err_clear(&e);
        if (passes(&f, got, &e) != 0) /* the failure does not persist */
            fail_msg("after failing allocation %ld: %s", n, e.message);
    }
    assert_true(survived > 20 && failed > 0);
    free(expected);
    free(got);
    end(&f);
}

/* By default a session uses three quarters of the memory that the weights leave; an explicit size
 * overrides that. */
static void kv_takes_its_share_of_the_card(void **state) {
    (void)state;
    static const size_t totals[] = {(size_t)2 << 30, (size_t)6 << 30};
    for (size_t i = 0; i < BASE_COUNT(totals); i++) {
        fixture f;
        err e = {0};
        card_memory(totals[i]);
        assert_int_equal(start(&f, &e), 0);
        size_t left = 0, total = 0, asked = (size_t)5 << 20;
        must(cudaMemGetInfo(&left, &total));
        for (int explicit = 0; explicit < 2; explicit ++) {
            llm_session_options options = {.kv_memory_bytes = explicit ? asked : 0};
            llm_session *s = NULL;
            llm_memory memory;
            assert_int_equal(llm_session_new(&f.engine, &options, &s, &e), 0);
            llm_session_memory(s, &memory);
            size_t share = explicit ? asked : left / 4 * 3;
            assert_true(memory.kv_budget_bytes <= share &&
                        memory.kv_budget_bytes > share / 100 * 99);
            assert_true(memory.kv_host_budget_bytes > 0 &&
                        memory.kv_host_budget_bytes <= f.engine.info.kv_memory_bytes);
            llm_session_free(s);
        }
        end(&f);
    }
    card_memory((size_t)8 << 30);
}

/* One stream reads memory that another overwrites later, with or without a wait between them.
 * Returns whether it read the old values. */
static bool is_read_before(bool waits) {
    enum { BYTES = 64 };
    cudaStream_t reader, writer;
    cudaEvent_t read;
    char *shared = to_card(NULL, BYTES), *kept = to_card(NULL, BYTES), expected[BYTES], out[BYTES];
    must(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking));
    must(cudaStreamCreateWithFlags(&writer, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&read, cudaEventDisableTiming));
    must(cudaMemset(shared, 1, BYTES));
    must(cudaDeviceSynchronize());
    must(cudaMemcpyAsync(kept, shared, BYTES, cudaMemcpyDeviceToDevice, reader));
    must(cudaEventRecord(read, reader));
    if (waits)
        must(cudaStreamWaitEvent(writer, read, 0));
    must(cudaMemsetAsync(shared, 2, BYTES, writer));
    must(cudaStreamSynchronize(reader));
    must(cudaStreamSynchronize(writer));
    from_card(out, kept, BYTES);
    memset(expected, 1, BYTES);
    bool same = memcmp(out, expected, BYTES) == 0;
    must(cudaStreamDestroy(reader));
    must(cudaStreamDestroy(writer));
    must(cudaEventDestroy(read));
    must(cudaFree(shared));
    must(cudaFree(kept));
    return same;
}

static void a_missing_wait_shows_by_some_seed(void **state) {
    (void)state;
    enum { SEEDS = 64 };
    int overtaken = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        card_order(CARD_SEEDED, seed);
        assert_true(is_read_before(true));
        overtaken += !is_read_before(false);
    }
    card_order(CARD_EARLY, 0);
    bool in_turn = is_read_before(false);
    card_order_given();
    assert_true(in_turn && overtaken > SEEDS / 8);
}

/* No algorithm of host/blas.c keeps its bits at all heights and supports them all, so low products
 * must use one of their own with the same bits, also where products add. */
static void low_products_are_checked(cuda_gemm_out kind) {
    enum { N = 40, K = 32, TALLEST = 96, LOWEST = 16 };
    static uint16_t a[TALLEST * K], w[N * K];
    static float before[TALLEST * N], low[LOWEST * N], tall[TALLEST * N];
    cuda_gemm *g;
    err e = {0};
    hash128 digest = {0};
    assert_int_equal(cuda_gemm_new(&g, &e), 0);
    int plan = cuda_gemm_declare(g, N, K, kind, TALLEST, &e);
    if (plan < 0 || cuda_gemm_probe(g, NULL, TALLEST, &digest, &e) != 0)
        fail_msg("%s", e.message);
    buf chosen = {0};
    cuda_gemm_describe(g, &chosen);
    assert_non_null(strstr(chosen.p, ": 1 of 5 tuned"));
    buf_free(&chosen);
    fill(NULL, a, TALLEST * K, 1, 2);
    fill(NULL, w, N * K, 2, 2);
    fill(before, NULL, TALLEST * N, 3, 2);
    void *ad = to_card(a, sizeof a), *wd = to_card(w, sizeof w),
         *space = to_card(NULL, cuda_gemm_workspace()),
         *outs[] = {to_card(before, sizeof tall), to_card(before, sizeof low)};
    assert_int_equal(cuda_gemm_run(g, plan, wd, ad, TALLEST, outs[0], space, NULL, &e), 0);
    assert_int_equal(cuda_gemm_run(g, plan, wd, ad, LOWEST, outs[1], space, NULL, &e), 0);
    from_card(tall, outs[0], sizeof tall);
    from_card(low, outs[1], sizeof low);
    assert_memory_equal(low, tall, sizeof low);
    assert_true(tall[0] != before[0] && isfinite(tall[0]));
    void *all[] = {ad, wd, space, outs[0], outs[1]};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        cudaFree(all[i]);
    cuda_gemm_free(g);
}

static void low_products_have_an_algorithm_of_their_own(void **state) {
    (void)state;
    low_products_are_checked(CUDA_GEMM_F32);
    low_products_are_checked(CUDA_GEMM_ADDS);
}

/* ---- misuse ---------------------------------------------------------------------------------- */

enum { MISUSE_BYTES = 4096 };

/* The resources of a misuse: a stream, an event, and memory of each kind. */
typedef struct bench {
    cudaStream_t stream;
    cudaEvent_t event;
    char *card, *pinned, plain[MISUSE_BYTES];
} bench;

static void shared_memory_unasked(bench *b) {
    attend_args args = {.count = 1, .wide = true, .heads = 1, .kv_heads = 1, .d = 128};
    k_attend(&args, b->stream);
}

static void an_empty_grid(bench *b) {
    k_bias((float *)(void *)b->card, (float *)(void *)b->card, 8, 0, b->stream);
}

static void a_fill_of_plain_memory(bench *b) {
    cudaMemsetAsync(b->plain, 0, 1, b->stream);
}

static void a_fill_beyond_the_end(bench *b) {
    cudaMemsetAsync(b->card, 0, MISUSE_BYTES + 1, b->stream);
}

static void a_copy_the_wrong_way(bench *b) {
    cudaMemcpyAsync(b->card, b->pinned, 1, cudaMemcpyDeviceToHost, b->stream);
}

static void memory_freed_as_another_kind(bench *b) {
    cudaFree(b->pinned);
}

static void a_time_without_clocks(bench *b) {
    float ms;
    cudaEventRecord(b->event, b->stream);
    cudaEventElapsedTime(&ms, b->event, b->event);
}

static void a_wait_in_a_capture(bench *b) {
    cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal);
    cudaStreamSynchronize(b->stream);
}

static void an_allocation_in_a_capture(bench *b) {
    void *p;
    cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal);
    cudaMalloc(&p, 1);
}

static void plain_memory_in_a_capture(bench *b) {
    cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal);
    cudaMemcpyAsync(b->card, b->plain, 1, cudaMemcpyHostToDevice, b->stream);
}

static void an_event_from_before_a_capture(bench *b) {
    cudaEventRecord(b->event, b->stream);
    cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal);
    cudaStreamWaitEvent(b->stream, b->event, 0);
}

static void a_first_launch_in_a_capture(bench *b) {
    cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal);
    k_bias((float *)(void *)b->card, (float *)(void *)b->card, 8, 1, b->stream);
}

static void misuse_is_refused(void **state) {
    (void)state;
    static const struct {
        void (*misuse)(bench *b);
        const char *complaint;
    } cases[] = {{shared_memory_unasked, "more shared memory than"},
                 {an_empty_grid, "a grid with no blocks"},
                 {a_fill_of_plain_memory, "a fill of memory"},
                 {a_fill_beyond_the_end, "a fill of memory"},
                 {a_copy_the_wrong_way, "does not match its kind"},
                 {memory_freed_as_another_kind, "of the other kind"},
                 {a_time_without_clocks, "a time between events"},
                 {a_wait_in_a_capture, "while a graph is captured"},
                 {an_allocation_in_a_capture, "while a graph is captured"},
                 {plain_memory_in_a_capture, "memory that is not pinned"},
                 {an_event_from_before_a_capture, "a captured stream and one that is not"},
                 {a_first_launch_in_a_capture, "loaded while a graph is captured"}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        bench b;
        must(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
        must(cudaEventCreateWithFlags(&b.event, cudaEventDisableTiming));
        must(cudaMalloc((void **)&b.card, MISUSE_BYTES));
        must(cudaMallocHost((void **)&b.pinned, MISUSE_BYTES));
        memset(b.plain, 0, MISUSE_BYTES);
        cases[i].misuse(&b);
        cudaGraph_t graph = NULL;
        bool captured = cudaStreamEndCapture(b.stream, &graph) == cudaSuccess;
        const char *complaint = card_complaint();
        assert_false(captured);
        if (complaint == NULL || strstr(complaint, cases[i].complaint) == NULL)
            fail_msg("misuse %zu: %s", i, complaint != NULL ? complaint : "no complaint");
        must(cudaFree(b.card));
        must(cudaFreeHost(b.pinned));
        must(cudaEventDestroy(b.event));
        must(cudaStreamDestroy(b.stream));
    }
}

static void the_host_keeps_its_hands_off_the_card(void **state) {
    (void)state;
    if (!card_keeps_the_host_out()) {
        print_message("skipped: this processor has no memory protection keys\n");
        return;
    }
    volatile char *card = to_card(NULL, 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *card = 1;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    must(cudaFree((void *)(uintptr_t)card));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_card_is_reported_in_one_clause),
        cmocka_unit_test(a_missing_wait_shows_by_some_seed),
        cmocka_unit_test(low_products_have_an_algorithm_of_their_own),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(the_host_keeps_its_hands_off_the_card),
        cmocka_unit_test(a_small_card_is_refused_in_one_line),
        cmocka_unit_test(kv_takes_its_share_of_the_card),
        cmocka_unit_test(rates_are_found_again_on_the_same_card),
        cmocka_unit_test(opening_survives_each_refusal),
        cmocka_unit_test(opening_can_be_cancelled),
        cmocka_unit_test(sessions_survive_each_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
