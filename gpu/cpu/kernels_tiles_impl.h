/*
 * kernels_tiles_impl.h - attention in products of tiles (AMX), part of kernels_impl.h where
 * KERNELS_TILES says so.
 *
 * 16 queries go through a block together: scores = q × K, then weights × V, with what
 * kernels_impl.h does between the two. KV blocks lie as the instructions read them: pairs of
 * dimensions of a key, pairs of keys of a value. Invariant: rows of a product do not see each
 * other, so what a tile holds beyond the last query (anything) changes no bit.
 */
#include "tiles_int.h"

enum { TILE_QUERIES = 16, TILE_COLUMNS = 16, TILE_DEPTH = 32 /* bf16 of a row */ };
_Static_assert((int)KEYS == (int)TILE_DEPTH,
               "a block's weights are one tile deep, its scores two wide");

static void k_tiles(bool on) {
    static const tile_config config = {.palette = 1,
                                       .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                       .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    if (on)
        TILES_CONFIGURE(&config);
    else
        TILES_RELEASE();
}

/* s[16, KEYS] = q [16, d] × kt */
static void tiles_scores(const uint16_t *q, int d, const uint16_t *kt, float *s) {
    TILE_ZERO(0);
    TILE_ZERO(1);
    for (int i = 0; i < d; i += TILE_DEPTH) {
        const uint16_t *keys = kt + i * KEYS;
        TILE_LOAD(4, q + i, sizeof *q * (size_t)d);
        TILE_LOAD(5, keys, sizeof *kt * 2 * KEYS);
        TILE_LOAD(6, keys + 2 * TILE_COLUMNS, sizeof *kt * 2 * KEYS);
        TILE_PRODUCT(0, 4, 5);
        TILE_PRODUCT(1, 4, 6);
    }
    TILE_STORE(0, s, sizeof *s * KEYS);
    TILE_STORE(1, s + TILE_COLUMNS, sizeof *s * KEYS);
}

/* o[16, d] = p [16, KEYS] × v */
static void tiles_gather(const uint16_t *p, int d, const uint16_t *v, float *o) {
    size_t from = sizeof *v * 2 * (size_t)d, to = sizeof *o * (size_t)d;
    TILE_LOAD(4, p, sizeof *p * KEYS);
    for (int c = 0; c < d; c += 2 * TILE_COLUMNS) {
        TILE_LOAD(5, v + 2 * c, from);
        TILE_LOAD(6, v + 2 * (c + TILE_COLUMNS), from);
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_PRODUCT(0, 4, 5);
        TILE_PRODUCT(1, 4, 6);
        TILE_STORE(0, o + c, to);
        TILE_STORE(1, o + c + TILE_COLUMNS, to);
    }
}

/* Scores of T queries from memory to weights, in registers between. */
static inline __attribute__((always_inline)) void
tiles_weigh(const attend_unit *u, int at, int T, const float *scored, float *p, float *old) {
    vf s[TILE][KV];
    for (int t = 0; t < T; t++)
        for (int k = 0; k < KV; k++)
            s[t][k] = load(scored + t * KEYS + k * W);
    weigh(u, at, T, s, p, old);
}

/* Queries [at, at + n) of the unit, n <= 16. */
static void attend_tiles(const attend_unit *u, int at, int n, const attend_ahead *ahead) {
    _Alignas(64) float sums[TILE_QUERIES * CONFIG_MAX_HEAD_DIM];
    _Alignas(64) float s[TILE_QUERIES * KEYS], p[TILE_QUERIES * KEYS];
    _Alignas(64) uint16_t narrow[TILE_QUERIES * KEYS];
    float old[TILE_QUERIES];
    int d = u->d, t = 0;
    for (int i = 0; i < d / 2; i++)
        ahead_ask(ahead, i);
    tiles_scores((const uint16_t *)u->q + at * d, d, u->kt, s);
    for (; t + TILE <= n; t += TILE)
        tiles_weigh(u, at + t, TILE, s + t * KEYS, p + t * KEYS, old + t);
    for (; t < n; t++)
        tiles_weigh(u, at + t, 1, s + t * KEYS, p + t * KEYS, old + t);
    k_to_bf16(p, n * KEYS, narrow);
    tiles_gather(narrow, d, u->v, sums);
    for (t = 0; t < n; t++) {
        float *out = u->out + (at + t) * d;
        for (int c = 0; c < d; c += W)
            store(out + c, fma_v(load(out + c), all(old[t]), load(sums + t * d + c)));
    }
}

static void k_attend_tiles(const attend_unit *u) {
    static const attend_ahead nothing = {0};
    if (u->wide) {
        k_attend(u);
        return;
    }
    for (int i = 0, tile = 0; i < u->nq; i += TILE_QUERIES, tile++)
        attend_tiles(u, i, BASE_MIN(TILE_QUERIES, u->nq - i),
                     tile < u->nahead ? u->ahead + tile : &nothing);
}
