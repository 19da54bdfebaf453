/*
 * test_kernels.c - compares each CUDA kernel with plain C over many shapes, and checks that bits do
 * not depend on the batch.
 *
 * Without a card it prints the reason and exits with 77. Inputs are random; outputs start as NaN.
 */
#include "test_kernels_int.h"

#include "engine/sample_weight_int.h"

enum { BF16_PLACES = 256 }; /* bf16 has 8 significant bits: relative step 1/256 */
enum { TOP_STRIDE = 1024 }; /* distance between the ids that one thread of k_draw reads */

/* ---- rows ------------------------------------------------------------------------------------ */

static float rms_scale(const float *x, int n, float eps) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)(1 / sqrt(sum / n + (double)eps));
}

/* x += rms(branch) * bw; out = rms(x) * w */
static void norm_plain(float *x, const float *branch, const float *bw, const float *w, int n,
                       float *out) {
    float scale = branch ? rms_scale(branch, n, 1e-5f) : 0;
    for (int i = 0; branch && i < n; i++)
        x[i] += branch[i] * scale * bw[i];
    scale = rms_scale(x, n, 1e-5f);
    for (int i = 0; i < n; i++)
        out[i] = x[i] * scale * w[i];
}

static void norm_case(int rows, int n, bool branched) {
    size_t count = (size_t)rows * (size_t)n, bytes = count * sizeof(float),
           width = (size_t)n * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes), *w = malloc(width), *bw = malloc(width),
          *expected = malloc(bytes);
    float *got = malloc(bytes);
    uint16_t *got16 = malloc(count * 2);
    fill(x, NULL, count, 1, 3);
    fill(y, NULL, count, 2, 2);
    fill(w, NULL, (size_t)n, 3, 2);
    fill(bw, NULL, (size_t)n, 4, 2);
    norm_args args = {.x = to_card(x, bytes),
                      .branch = branched ? to_card(y, bytes) : NULL,
                      .branch_weight = to_card(bw, width),
                      .weight = to_card(w, width),
                      .eps = 1e-5f,
                      .n = n,
                      .rows = rows,
                      .in_place = branched,
                      .out = to_card(NULL, count * 2)};
    must(k_norm(&args, NULL));
    from_card(got, args.x, bytes);
    from_card(got16, args.out, count * 2);
    for (int i = 0; i < rows; i++) {
        size_t at = (size_t)i * (size_t)n;
        norm_plain(x + at, branched ? y + at : NULL, bw, w, n, expected + at);
    }
    near("norm, x", got, branched ? expected : x, count, 1e-5);
    for (size_t i = 0; i < count; i++)
        got[i] = widen(got16[i]);
    near("norm, out", got, expected, count, 1.0 / BF16_PLACES);
    const void *card[] = {args.x, args.branch, args.branch_weight, args.weight, args.out};
    for (size_t i = 0; i < BASE_COUNT(card); i++)
        cudaFree((void *)(uintptr_t)card[i]);
    void *host[] = {x, y, w, bw, expected, got, got16};
    for (size_t i = 0; i < BASE_COUNT(host); i++)
        free(host[i]);
}

static void norms_equal_plain_c(void **state) {
    (void)state;
    norm_case(1, 576, false);
    norm_case(37, 576, true);
    norm_case(5, 32, false);
    norm_case(3, 4096, true);
    norm_case(2, 8, true);
    norm_case(2, 4104, true);
    norm_case(2, 8192, false);
    norm_case(1, 16384, true);
}

static void activations_equal_plain_c(void **state) {
    (void)state;
    enum { ROWS = 19, FFN = 48 };
    uint16_t in[ROWS * 2 * FFN], out[ROWS * FFN];
    float x[ROWS * 2 * FFN], expected[ROWS * FFN], got[ROWS * FFN];
    fill(x, in, ROWS * 2 * FFN, 5, 8);
    uint16_t *card = to_card(in, sizeof in), *h = to_card(NULL, sizeof out);
    for (int gelu = 0; gelu < 2; gelu++) {
        must(k_activate(card, FFN, gelu != 0, ROWS, h, NULL));
        from_card(out, h, sizeof out);
        for (int i = 0; i < ROWS * FFN; i++) {
            const float *row = x + i / FFN * 2 * FFN + i % FFN;
            float g = row[0], inner = 0.79788456f * (g + 0.044715f * g * g * g);
            expected[i] = row[FFN] * (gelu ? 0.5f * g * (1 + tanhf(inner)) : g / (1 + expf(-g)));
            got[i] = widen(out[i]);
        }
        near(gelu ? "gelu" : "silu", got, expected, ROWS * FFN, 1.0 / BF16_PLACES);
    }
    cudaFree(card);
    cudaFree(h);
}

static void angles_are_those_of_double(void **state) {
    (void)state;
    int32_t positions[] = {0, 1, 31, 4096, 131071};
    float frequencies[] = {1, 0.1f, 0.001f}, got[5][6], expected[5][6];
    int32_t *p = to_card(positions, sizeof positions);
    float *f = to_card(frequencies, sizeof frequencies), *out = to_card(NULL, sizeof got);
    must(k_angles(p, f, 3, 1.25f, 5, out, NULL));
    from_card(got, out, sizeof got);
    for (int r = 0; r < 5; r++) {
        for (int i = 0; i < 3; i++) {
            double angle = (double)positions[r] * (double)frequencies[i];
            expected[r][i] = (float)cos(angle) * 1.25f;
            expected[r][3 + i] = (float)sin(angle) * 1.25f;
        }
    }
    near("angles", &got[0][0], &expected[0][0], 30, 1e-6);
    cudaFree(p);
    cudaFree(f);
    cudaFree(out);
}

/* ---- heads ----------------------------------------------------------------------------------- */

typedef struct head_case {
    rope_kind rope;
    int d, rope_dims, heads, kv_heads;
    bool biased, normed;
} head_case;

enum { HEAD_ROWS = 5, HEAD_BLOCKS = 3 };

static const int32_t head_slots[HEAD_ROWS] = {40, 0, -1, 95, 63};

/* Bias, norm and rope of one head, as in the models' papers; angles: cosines, then sines. */
static void head_plain(const head_case *c, const float *in, const float *bias, const float *weight,
                       const float *angles, float *out) {
    int half = c->rope_dims / 2;
    float x[256];
    for (int i = 0; i < c->d; i++)
        x[i] = in[i] + (c->biased ? bias[i] : 0);
    float scale = weight != NULL ? rms_scale(x, c->d, 1e-5f) : 1;
    for (int i = 0; i < c->d; i++)
        out[i] = x[i] = x[i] * scale * (weight != NULL ? weight[i] : 1);
    for (int i = 0; angles != NULL && i < half; i++) {
        int low = c->rope == ROPE_KIND_HALVES ? i : 2 * i,
            high = c->rope == ROPE_KIND_HALVES ? i + half : 2 * i + 1;
        out[low] = x[low] * angles[i] - x[high] * angles[half + i];
        out[high] = x[low] * angles[half + i] + x[high] * angles[i];
    }
}

/* Returns where a row's head is stored: in q's buffer or in the pool; NULL if it is not stored. */
static float *head_goes_to(const head_case *c, int row, int head, float *q, float *kv) {
    if (head < c->heads)
        return q + (size_t)(row * c->heads + head) * (size_t)c->d;
    int of_kv = (head - c->heads) % c->kv_heads, is_v = head >= c->heads + c->kv_heads;
    int32_t slot = head_slots[row];
    size_t at = (size_t)(slot / ATTEND_BLOCK * c->kv_heads * 2 + of_kv * 2 + is_v) * ATTEND_BLOCK +
                (size_t)(slot % ATTEND_BLOCK);
    return slot < 0 ? NULL : kv + at * (size_t)c->d;
}

static void heads_check(const head_case *c) {
    int all = c->heads + 2 * c->kv_heads;
    size_t d = (size_t)c->d, in = HEAD_ROWS * (size_t)all * d,
           nq = HEAD_ROWS * (size_t)c->heads * d,
           nkv = HEAD_BLOCKS * ATTEND_BLOCK * 2 * (size_t)c->kv_heads * d,
           dims = (size_t)c->rope_dims;
    float *x = malloc(in * 4), *bias = malloc((size_t)all * d * 4), *weights = malloc(2 * d * 4),
          *angles = malloc(HEAD_ROWS * dims * 4), *expected = calloc(nq + nkv, 4),
          *got = malloc((nq + nkv) * 4);
    uint16_t *out = calloc(nq + nkv, 2);
    fill(x, NULL, in, 40, 4);
    fill(bias, NULL, (size_t)all * d, 41, 2);
    fill(weights, NULL, 2 * d, 42, 2);
    fill(angles, NULL, HEAD_ROWS * dims, 43, 2);
    qkv_args a = {.qkv = to_card(x, in * 4),
                  .bias = c->biased ? to_card(bias, (size_t)all * d * 4) : NULL,
                  .q_norm = c->normed ? to_card(weights, d * 4) : NULL,
                  .k_norm = c->normed ? to_card(weights + d, d * 4) : NULL,
                  .angles = to_card(angles, HEAD_ROWS * dims * 4),
                  .slots = to_card(head_slots, sizeof head_slots),
                  .q = to_card(out, nq * 2),
                  .kv = to_card(out, nkv * 2),
                  .block_elements = (size_t)c->kv_heads * 2 * ATTEND_BLOCK * d,
                  .rope = c->rope,
                  .eps = 1e-5f,
                  .rows = HEAD_ROWS,
                  .heads = c->heads,
                  .kv_heads = c->kv_heads,
                  .d = c->d,
                  .rope_dims = c->rope_dims};
    must(k_qkv(&a, NULL));
    from_card(out, a.q, nq * 2);
    from_card(out + nq, a.kv, nkv * 2);
    for (int i = 0; i < HEAD_ROWS * all; i++) {
        int row = i / all, head = i % all;
        bool is_v = head >= c->heads + c->kv_heads;
        float *to = head_goes_to(c, row, head, expected, expected + nq);
        if (to != NULL) {
            head_plain(c, x + (size_t)i * d, bias + (size_t)head * d,
                       is_v || !c->normed ? NULL : weights + (head < c->heads ? 0 : d),
                       is_v || c->rope == ROPE_KIND_NONE ? NULL : angles + (size_t)row * dims, to);
        }
    }
    for (size_t i = 0; i < nq + nkv; i++) {
        got[i] = widen(out[i]);
        assert_true((expected[i] == 0) == (got[i] == 0)); /* nothing was written elsewhere */
    }
    near("heads", got, expected, nq + nkv, 1.0 / BF16_PLACES);
    const void *card[] = {a.qkv, a.bias, a.q_norm, a.k_norm, a.angles, a.slots, a.q, a.kv};
    for (size_t i = 0; i < BASE_COUNT(card); i++)
        cudaFree((void *)(uintptr_t)card[i]);
    void *host[] = {x, bias, weights, angles, expected, got, out};
    for (size_t i = 0; i < BASE_COUNT(host); i++)
        free(host[i]);
}

static void heads_are_rotated_and_stored(void **state) {
    (void)state;
    static const head_case cases[] = {{ROPE_KIND_NEIGHBOURS, 64, 64, 9, 3, false, false},
                                      {ROPE_KIND_HALVES, 64, 64, 2, 1, true, false},
                                      {ROPE_KIND_HALVES, 96, 96, 3, 3, false, false},
                                      {ROPE_KIND_NEIGHBOURS, 96, 32, 2, 1, true, true},
                                      {ROPE_KIND_HALVES, 128, 128, 4, 1, false, true},
                                      {ROPE_KIND_HALVES, 128, 50, 3, 1, true, false},
                                      {ROPE_KIND_NONE, 128, 128, 1, 1, false, false},
                                      {ROPE_KIND_HALVES, 256, 256, 4, 1, false, true}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++)
        heads_check(&cases[i]);
}

/* ---- the head -------------------------------------------------------------------------------- */

static void allowed_tokens_equal_plain_c(void **state) {
    (void)state;
    enum { ROWS = 3, N = 72, VOCAB = 50 };
    float x[ROWS * N], weights[VOCAB * N], got[7], expected[7];
    uint16_t head[VOCAB * N];
    head_item items[7];
    fill(x, NULL, ROWS * N, 8, 2);
    fill(weights, head, VOCAB * N, 9, 2);
    for (int i = 0; i < 7; i++) {
        items[i] = (head_item){i % ROWS, i * 7 % VOCAB};
        double sum = 0;
        for (int j = 0; j < N; j++)
            sum += (double)x[items[i].row * N + j] * (double)weights[items[i].id * N + j];
        expected[i] = (float)(3 * tanh(sum / 3));
    }
    float *xd = to_card(x, sizeof x), *out = to_card(NULL, sizeof got);
    uint16_t *hd = to_card(head, sizeof head);
    head_item *id = to_card(items, sizeof items);
    must(k_head_ids(id, 7, xd, hd, N, 3, out, NULL));
    from_card(got, out, sizeof got);
    near("allowed tokens", got, expected, 7, 1e-5);
    void *all[] = {xd, out, hd, id};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        cudaFree(all[i]);
}

static void tops_come_in_order_with_ties(void **state) {
    (void)state;
    enum { ROWS = 3, VOCAB = 1003, K = 10 };
    static float x[ROWS * VOCAB];
    float values[ROWS * K];
    int32_t ids[ROWS * K];
    fill(x, NULL, ROWS * VOCAB, 10, 20);
    for (int i = 0; i < VOCAB; i++)
        x[VOCAB + i] = (float)(i % 3); /* row 1: many equal values */
    float *card = to_card(x, sizeof x), *v = to_card(NULL, sizeof values);
    int32_t *id = to_card(NULL, sizeof ids);
    must(k_top(card, VOCAB, ROWS, K, v, id, NULL));
    from_card(values, v, sizeof values);
    from_card(ids, id, sizeof ids);
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < K; k++) {
            int32_t id_k = ids[r * K + k];
            assert_true(id_k >= 0 && id_k < VOCAB);
            assert_true(values[r * K + k] == x[r * VOCAB + id_k]);
            int before = 0; /* tokens that come before it */
            for (int i = 0; i < VOCAB; i++) {
                float a = x[r * VOCAB + i], b = values[r * K + k];
                before += a > b || (a == b && i < id_k);
            }
            assert_int_equal(before, k);
        }
    }
    cudaFree(card);
    cudaFree(v);
    cudaFree(id);
}

/* k_draw returns the candidates and the weight that the host computes, wherever the largest are. */
static void draws_have_the_hosts_candidates(void **state) {
    (void)state;
    enum { ROWS = 7, VOCAB = 50001, K = DRAWN_MOST };
    static const int vocabs[] = {VOCAB, 1024, 300, K};
    static const float temperatures[ROWS] = {0.7f, 1, 2.5f, 0.01f, 1, 1, 40};
    float *x = malloc(sizeof *x * ROWS * VOCAB), *temp = to_card(temperatures, sizeof temperatures);
    fill(x, NULL, (size_t)ROWS * VOCAB, 11, 30);
    for (size_t v = 0; v < BASE_COUNT(vocabs); v++) {
        int vocab = vocabs[v];
        for (int i = 0; i < vocab; i++) {
            x[4 * vocab + i] = (float)(i % 5 - 2) * 0.0f; /* all equal, some -0 */
            x[5 * vocab + i] +=
                i % TOP_STRIDE < K ? 100.0f : 0.0f; /* few threads read all of the largest */
        }
        drawn got[ROWS];
        float *card = to_card(x, sizeof *x * ROWS * (size_t)vocab);
        drawn *out = to_card(NULL, sizeof got);
        must(k_draw(card, vocab, ROWS, K, temp, out, NULL));
        from_card(got, out, sizeof got);
        for (int r = 0; r < ROWS; r++) {
            const float *row = x + (size_t)r * (size_t)vocab;
            float largest = row[got[r].ids[0]];
            uint64_t total = 0;
            for (int k = 0; k < K; k++) {
                int before = 0;
                for (int i = 0; i < vocab; i++)
                    before += row[i] > got[r].values[k] ||
                              (row[i] == got[r].values[k] && i < got[r].ids[k]);
                assert_int_equal(before, k);
                assert_true(row[got[r].ids[k]] == got[r].values[k]);
            }
            for (int i = 0; i < vocab; i++)
                total += sample_weight(row[i], largest, temperatures[r]);
            assert_true(got[r].total == total && total >= (uint64_t)1 << SAMPLE_BITS);
        }
        cudaFree(card);
        cudaFree(out);
    }
    cudaFree(temp);
    free(x);
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { KV_BLOCKS = 80, ATTEND_ROWS_MOST = 90 };

typedef struct attend_case {
    int d, heads, kv_heads, window;
    float cap;
    int rows;
    attend_row row[ATTEND_ROWS_MOST];
    int32_t tables[ATTEND_ROWS_MOST][KV_BLOCKS];
} attend_case;

static size_t kv_index(const attend_case *c, const attend_row *row, int key, int kv_head,
                       int is_v) {
    size_t block = (size_t)row->table[key / ATTEND_BLOCK];
    return ((block * (size_t)c->kv_heads * 2 + (size_t)(kv_head * 2 + is_v)) * ATTEND_BLOCK +
            (size_t)(key % ATTEND_BLOCK)) *
           (size_t)c->d;
}

static void attend_plain(const attend_case *c, const float *q, const float *kv, int row, int head,
                         float *out) {
    const attend_row *r = &c->row[row];
    int kv_head = head / (c->heads / c->kv_heads),
        first = c->window ? BASE_MAX(r->position - c->window + 1, 0) : 0;
    double sum = 0, top = -1e30, *acc = calloc((size_t)c->d, sizeof *acc),
           *s = calloc((size_t)r->position + 1, sizeof *s);
    q += ((size_t)row * (size_t)c->heads + (size_t)head) * (size_t)c->d;
    for (int k = first; k <= r->position; k++) {
        const float *key = kv + kv_index(c, r, k, kv_head, 0);
        for (int i = 0; i < c->d; i++)
            s[k] += (double)q[i] * (double)key[i];
        s[k] /= sqrt(c->d);
        s[k] = c->cap > 0 ? (double)c->cap * tanh(s[k] / (double)c->cap) : s[k];
        top = fmax(top, s[k]);
    }
    for (int k = first; k <= r->position; k++) {
        const float *values = kv + kv_index(c, r, k, kv_head, 1);
        double weight = exp(s[k] - top);
        sum += weight;
        for (int i = 0; i < c->d; i++)
            acc[i] += weight * (double)values[i];
    }
    for (int i = 0; i < c->d; i++)
        out[i] = (float)(acc[i] / sum);
    free(acc);
    free(s);
}

/* Computes attention of rows [from, to) with the kernels, into out[(to - from), heads * d]. */
static void attend_card(const attend_case *c, const uint16_t *q, const uint16_t *kv, int from,
                        int to, uint16_t *out) {
    int n = to - from;
    size_t width = (size_t)c->heads * (size_t)c->d,
           kv_count = (size_t)KV_BLOCKS * (size_t)c->kv_heads * 2 * ATTEND_BLOCK * (size_t)c->d;
    attend_plan p = {0};
    attend_plan_make(&p, c->row + from, n, c->heads / c->kv_heads);
    int32_t positions[ATTEND_ROWS_MOST];
    for (int i = 0; i < n; i++)
        positions[i] = c->row[from + i].position;
    size_t states = (size_t)BASE_MAX(p.nstates, 1);
    attend_args a = {.q = to_card(q + (size_t)from * width, (size_t)n * width * 2),
                     .kv = to_card(kv, kv_count * 2),
                     .block_elements = (size_t)c->kv_heads * 2 * ATTEND_BLOCK * (size_t)c->d,
                     .blocks = to_card(p.blocks, sizeof(int32_t) * (size_t)p.nblocks),
                     .positions = to_card(positions, sizeof(int32_t) * (size_t)n),
                     .states = to_card(p.states, sizeof(int32_t) * (size_t)n),
                     .out = to_card(NULL, (size_t)n * width * 2),
                     .state_out = to_card(NULL, states * width * sizeof(float)),
                     .state_norm = to_card(NULL, states * (size_t)c->heads * 2 * sizeof(float)),
                     .heads = c->heads,
                     .kv_heads = c->kv_heads,
                     .d = c->d,
                     .window = c->window,
                     .scale = 1 / sqrtf((float)c->d),
                     .cap = c->cap};
    must(k_attend_prepare(c->d));
    for (int level = 0; level < p.levels; level++) {
        for (int wide = 0; wide < 2; wide++) {
            const attend_list *list = wide ? &p.wide[level] : &p.narrow[level];
            a.count = list->count;
            a.wide = wide != 0;
            a.tasks = to_card(list->at, sizeof(attend_task) * (size_t)list->count);
            must(k_attend(&a, NULL));
            must(cudaDeviceSynchronize());
            cudaFree((void *)(uintptr_t)a.tasks);
        }
    }
    attend_merge *merges = to_card(p.merges, sizeof(attend_merge) * (size_t)p.nmerges);
    must(k_merge(merges, p.nmerges, a.state_out, a.state_norm, c->heads, c->d, a.out, NULL));
    from_card(out, a.out, (size_t)n * width * 2);
    const void *card[] = {a.q,   a.kv,        a.blocks,     a.positions, a.states,
                          a.out, a.state_out, a.state_norm, merges};
    for (size_t i = 0; i < BASE_COUNT(card); i++)
        cudaFree((void *)(uintptr_t)card[i]);
    attend_plan_free(&p);
}

/* Makes sequences that share a prefix and diverge in the first chunk, in the second, or never. */
static void attend_rows_make(attend_case *c, int longest) {
    static const int shared[] = {0, 9, 9, 3, 17, 17, 1};
    int32_t next = 0;
    c->rows = 0;
    for (int s = 0; s < 7; s++) {
        int32_t *table = c->tables[s];
        memcpy(table, c->tables[0], sizeof *table * KV_BLOCKS);
        for (int b = shared[s]; b < (longest + ATTEND_BLOCK - 1) / ATTEND_BLOCK; b++)
            table[b] = next++ % KV_BLOCKS;
        int rows = s == 1 ? 70 : 1;
        for (int i = 0; i < rows && c->rows < ATTEND_ROWS_MOST; i++) {
            int position = BASE_MAX(longest - 1 - s * 37 - i * 2, i);
            c->row[c->rows++] = (attend_row){position, table};
        }
    }
}

static void attend_check(attend_case *c) {
    size_t width = (size_t)c->heads * (size_t)c->d, count = (size_t)c->rows * width;
    size_t kv_count = (size_t)KV_BLOCKS * (size_t)c->kv_heads * 2 * ATTEND_BLOCK * (size_t)c->d;
    float *q = malloc(count * 4), *kv = malloc(kv_count * 4), *expected = malloc(count * 4),
          *got = malloc(count * 4);
    uint16_t *q16 = malloc(count * 2), *kv16 = malloc(kv_count * 2), *out = malloc(count * 2),
             *alone = malloc(width * 2);
    fill(q, q16, count, 20, 4);
    fill(kv, kv16, kv_count, 21, 4);
    attend_card(c, q16, kv16, 0, c->rows, out);
    for (int r = 0; r < c->rows; r++) {
        for (int h = 0; h < c->heads; h++)
            attend_plain(c, q, kv, r, h,
                         expected + ((size_t)r * (size_t)c->heads + (size_t)h) * (size_t)c->d);
    }
    for (size_t i = 0; i < count; i++)
        got[i] = widen(out[i]);
    char what[80];
    snprintf(what, sizeof what, "attention d=%d heads=%d/%d window=%d", c->d, c->heads, c->kv_heads,
             c->window);
    near(what, got, expected, count, 1e-2);
    for (int r = 0; r < c->rows; r += 1 + c->rows / 12) { /* alone, a row has the same bits */
        attend_card(c, q16, kv16, r, r + 1, alone);
        if (memcmp(alone, out + (size_t)r * width, width * 2) != 0)
            fail_msg("%s: row %d has other bits alone", what, r);
    }
    void *all[] = {q, kv, expected, got, q16, kv16, out, alone};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        free(all[i]);
}

static void attention_equals_plain_c_and_keeps_its_bits(void **state) {
    (void)state;
    static const struct {
        int d, heads, kv_heads, window;
        float cap;
        int longest;
    } cases[] = {{64, 9, 3, 0, 0, 600},    {64, 2, 2, 40, 0, 300},  {96, 8, 2, 0, 0, 70},
                 {128, 8, 1, 0, 0, 600},   {128, 4, 4, 0, 20, 200}, {256, 4, 1, 0, 0, 130},
                 {256, 2, 2, 600, 5, 700}, {64, 16, 1, 0, 0, 1},    {64, 7, 1, 0, 0, 33}};
    attend_case *c = calloc(1, sizeof *c);
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        *c = (attend_case){.d = cases[i].d,
                           .heads = cases[i].heads,
                           .kv_heads = cases[i].kv_heads,
                           .window = cases[i].window,
                           .cap = cases[i].cap};
        attend_rows_make(c, cases[i].longest);
        attend_check(c);
    }
    free(c);
}

/* ---- products -------------------------------------------------------------------------------- */

static void products_equal_plain_c(void **state) {
    (void)state;
    static const int shapes[][2] = {{40, 32}, {96, 48}, {960, 576}, {576, 1536}};
    for (size_t i = 0; i < BASE_COUNT(shapes); i++) {
        int n = shapes[i][0], k = shapes[i][1], rows = 21, height = 32;
        cuda_gemm *g;
        err e = {0};
        hash128 digest = {0};
        int code = cuda_gemm_new(&g, &e),
            plan = code == 0 ? cuda_gemm_declare(g, n, k, CUDA_GEMM_ADDS, 4096, &e) : -1;
        if (plan < 0 || cuda_gemm_probe(g, NULL, 600, &digest, &e) != 0)
            fail_msg("[%d, %d]: %s", n, k, e.message);
        size_t an = (size_t)height * (size_t)k, wn = (size_t)n * (size_t)k,
               on = (size_t)height * (size_t)n;
        float *a = malloc(an * 4), *w = malloc(wn * 4), *got = malloc(on * 4),
              *expected = malloc(on * 4);
        uint16_t *a16 = malloc(an * 2), *w16 = malloc(wn * 2);
        fill(a, a16, an, 30, 2);
        fill(w, w16, wn, 31, 2);
        fill(got, NULL, on, 32, 2);
        memcpy(expected, got, on * 4);
        for (int r = 0; r < rows; r++) {
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int x = 0; x < k; x++)
                    sum += (double)a[(size_t)r * (size_t)k + (size_t)x] *
                           (double)w[(size_t)j * (size_t)k + (size_t)x];
                expected[(size_t)r * (size_t)n + (size_t)j] += (float)sum;
            }
        }
        void *ad = to_card(a16, an * 2), *wd = to_card(w16, wn * 2), *od = to_card(got, on * 4),
             *space = to_card(NULL, cuda_gemm_workspace());
        assert_int_equal(cuda_gemm_run(g, plan, wd, ad, rows, od, space, NULL, &e), 0);
        from_card(got, od, on * 4);
        near("a product", got, expected, (size_t)rows * (size_t)n, 1e-4);
        void *card[] = {ad, wd, od, space}, *host[] = {a, w, got, expected, a16, w16};
        for (size_t x = 0; x < BASE_COUNT(card); x++)
            cudaFree(card[x]);
        for (size_t x = 0; x < BASE_COUNT(host); x++)
            free(host[x]);
        cuda_gemm_free(g);
    }
}

/* test_kernels [--small [passes] | sessions]: --small runs the kernels only, or also a few passes,
 * which a checker like compute-sanitizer completes in a minute; sessions runs sessions only. */
int main(int argc, char **argv) {
    char why[200];
    if (!cuda_usable(0, why, sizeof why)) {
        printf("skipped: %s\n", why);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_equal_plain_c),
        cmocka_unit_test(activations_equal_plain_c),
        cmocka_unit_test(angles_are_those_of_double),
        cmocka_unit_test(heads_are_rotated_and_stored),
        cmocka_unit_test(allowed_tokens_equal_plain_c),
        cmocka_unit_test(tops_come_in_order_with_ties),
        cmocka_unit_test(draws_have_the_hosts_candidates),
        cmocka_unit_test(attention_equals_plain_c_and_keeps_its_bits),
    };
    if (argc > 1 && strcmp(argv[1], "sessions") == 0) {
        return _cmocka_run_group_tests("sessions", session_tests, session_tests_count,
                                       session_setup, session_teardown);
    }
    const struct CMUnitTest products[] = {cmocka_unit_test(products_equal_plain_c)};
    bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    bool passes = argc > 2 && strcmp(argv[2], "passes") == 0;
    int failed = cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
    if (!small) {
        failed += cmocka_run_group_tests_name("products", products, NULL, NULL);
        failed +=
            _cmocka_run_group_tests("forward", forward_tests, forward_tests_count, NULL, NULL);
        failed += _cmocka_run_group_tests("sessions", session_tests, session_tests_count,
                                          session_setup, session_teardown);
    } else if (passes) {
        failed += _cmocka_run_group_tests("forward", forward_tests, 1, NULL, NULL);
    }
    return failed;
}
