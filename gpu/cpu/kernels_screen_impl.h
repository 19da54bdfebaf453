/*
 * kernels_screen_impl.h - the part of kernels_impl.h that computes the head screen's bounds and the
 * exact products of the tokens that remain; for processors with VNNI and AVX-512 BF16.
 */

enum { SCREEN_VECTORS = SCREEN_COLUMNS / W, SCREEN_TILE = 6 };

/* Computes the products of T states' fine digits with SCREEN_COLUMNS tokens. Callers pass a
 * constant T, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void screen_sums(const screen_unit *u, int at, int T,
                                                              __m512i out[][SCREEN_VECTORS]) {
    __m512i sum[SCREEN_TILE][SCREEN_VECTORS];
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < SCREEN_VECTORS; v++)
            sum[t][v] = _mm512_set1_epi32(u->states[at + t].fine_start);
    }
    const int8_t *fine = u->fine + (size_t)at * (size_t)u->k;
    for (int i = 0; i < u->k; i += 4) {
        __m512i bytes[SCREEN_VECTORS];
        UNROLL
        for (int v = 0; v < SCREEN_VECTORS; v++)
            bytes[v] = _mm512_loadu_si512(u->bytes + (size_t)i * SCREEN_COLUMNS + v * 64);
        UNROLL
        for (int t = 0; t < T; t++) {
            int32_t digits;
            memcpy(&digits, fine + (size_t)t * (size_t)u->k + i, sizeof digits);
            __m512i x = _mm512_set1_epi32(digits);
            UNROLL
            for (int v = 0; v < SCREEN_VECTORS; v++)
                sum[t][v] = _mm512_dpbusd_epi32(sum[t][v], bytes[v], x);
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < SCREEN_VECTORS; v++)
            out[t][v] = sum[t][v];
    }
}

/* Screens SCREEN_COLUMNS tokens for T states, from state `at` on. */
static inline __attribute__((always_inline)) void screen_tile(const screen_unit *u, int at, int T) {
    enum { V = SCREEN_VECTORS };
    __m512i sum[SCREEN_TILE][V];
    screen_sums(u, at, T, sum);
    for (int t = 0; t < T; t++) {
        const screen_state *s = &u->states[at + t];
        __m512i coarse[V];
        vf above[V], low = all(-INFINITY);
        for (int v = 0; v < V; v++)
            coarse[v] = _mm512_set1_epi32(s->coarse_start);
        for (int q = 0; q < SCREEN_QUADS; q++) {
            int32_t digits;
            memcpy(&digits, s->coarse[q], sizeof digits);
            const uint8_t *from = u->bytes + (size_t)s->quads[q] * 4 * SCREEN_COLUMNS;
            for (int v = 0; v < V; v++) {
                coarse[v] = _mm512_dpbusd_epi32(coarse[v], _mm512_loadu_si512(from + v * 64),
                                                _mm512_set1_epi32(digits));
            }
        }
        for (int v = 0; v < V; v++) {
            vf x = (vf)_mm512_cvtepi32_ps(sum[t][v]) * all(s->fine_scale);
            x = fma_v((vf)_mm512_cvtepi32_ps(coarse[v]), all(s->coarse_scale), x);
            x *= load(u->scale + v * W);
            vf off =
                fma_v(load(u->norm + v * W), all(s->rest), load(u->rest + v * W) * all(s->size));
            above[v] = x + off;
            low = max_v(x - off, low);
        }
        float best = max_v(max_lanes(low), all(u->best[at + t]))[0];
        uint64_t mask = 0;
        for (int v = 0; v < V; v++) {
            /* _CMP_NLT_UQ, "not less than": a token whose bound is NaN is kept */
            mask |= (uint64_t)_mm512_cmp_ps_mask((__m512)above[v], (__m512)all(best), _CMP_NLT_UQ)
                    << (v * W);
            store(u->upper + (size_t)(at + t) * SCREEN_COLUMNS + v * W, above[v]);
        }
        u->best[at + t] = best;
        u->masks[at + t] = mask;
    }
}

static void k_screen(const screen_unit *u) {
    int i = 0;
    for (; i + SCREEN_TILE <= u->rows; i += SCREEN_TILE)
        screen_tile(u, i, SCREEN_TILE);
    for (; i + 4 <= u->rows; i += 4)
        screen_tile(u, i, 4);
    for (; i < u->rows; i++)
        screen_tile(u, i, 1);
}

/* Implements kernels.pair_products; lane i of the vectors belongs to row i. */
static void k_pair_products(const uint16_t *x, const uint16_t *rows, int k, int run, float *out) {
    vf sum = {0};
    __m512i lane =
        _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                           _mm512_set1_epi32(k * (int)sizeof *rows));
    for (int from = 0; from < k; from += run) {
        vf part = {0};
        for (int i = from; i < BASE_MIN(from + run, k); i += 2) {
            uint32_t pair;
            memcpy(&pair, x + i, sizeof pair);
            part = dot_pairs(part, pair, (vu)_mm512_i32gather_epi32(lane, rows + i, 1));
        }
        sum = from == 0 ? part : sum + part;
    }
    store(out, sum);
}
