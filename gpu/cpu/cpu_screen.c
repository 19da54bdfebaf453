/*
 * cpu_screen.c - finds the likeliest token of a row with the head screen (head_screen_int.h)
 * instead of the full product with the head.
 *
 * Each thread screens groups of tokens against the best lower bounds that it has seen itself and
 * lists the tokens that pass. The lists are then filtered by the best bounds of all threads, and
 * the logits of the remaining tokens are computed. A row with too many remaining tokens is left to
 * the full product; if a list overflows, all rows are. Invariant: the token and its logit are the
 * same, bit for bit, as the full product gives.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_int.h"

enum {
    TILE_ROWS = 64,       /* maximum number of rows of a screening task */
    GROUP = 1024,         /* number of tokens of a screening task */
    LANES = 16,           /* number of tokens of one call of pair_products */
    CANDIDATES_MAX = 512, /* a row with more candidates is left to the full product */
    LIST_MAX = 1 << 16    /* maximum number of candidates in a thread's list */
};

/* A candidate: a token that may be the likeliest of a row, with the upper bound of its logit. */
typedef struct candidate {
    int row;
    llm_token id;
    float upper;
} candidate;

typedef struct screen_list {
    candidate *all; /* [LIST_MAX] */
    float *best;    /* [rows] screen_unit.best */
    float *upper;   /* [TILE_ROWS, SCREEN_COLUMNS] screen_unit.upper */
    int count;      /* number of candidates in `all` */
    bool full;      /* the list overflowed: all rows are left to the full product */
    uint16_t *rows; /* [LANES, width]: rows of the head in bf16 */
} screen_list;

struct cpu_screen {
    int rows_cap, rows;
    int8_t *fine;         /* [rows, width] */
    screen_state *states; /* [rows] */
    int *index;           /* [rows]: index of the row in cpu_work.whole */
    bool *open;           /* [cpu_work.whole]: true: the row is left to the full product */
    int *counts;    /* [rows]: number of candidates; if above CANDIDATES_MAX, not all are in ids */
    llm_token *ids; /* [rows, CANDIDATES_MAX] the candidates */
    int workers;
    screen_list *lists; /* [workers] */
};

/* ---- lifetime -------------------------------------------------------------------------------- */

static void lists_free(cpu_screen *s) {
    for (int i = 0; i < s->workers; i++) {
        void *all[] = {s->lists[i].all, s->lists[i].best, s->lists[i].upper, s->lists[i].rows};
        for (size_t j = 0; j < BASE_COUNT(all); j++)
            free(all[j]);
    }
    free(s->lists);
}

void cpu_screen_free(cpu_screen *s) {
    if (s != NULL) {
        lists_free(s);
        void *all[] = {s->fine, s->states, s->index, s->open, s->counts, s->ids, s};
        for (size_t i = 0; i < BASE_COUNT(all); i++)
            free(all[i]);
    }
}

static cpu_screen *screen_reserve(cpu_work *w, int rows) {
    cpu_screen *s = w->screen;
    if (s != NULL && rows <= s->rows_cap)
        return s;
    cpu_screen_free(s);
    s = w->screen = mem_zalloc(sizeof *s);
    size_t n = (size_t)rows, width = (size_t)w->engine->config.n_embd;
    s->rows_cap = rows;
    s->fine = mem_alloc(n * width);
    s->states = mem_alloc(n * sizeof *s->states);
    s->index = mem_alloc(n * sizeof *s->index);
    s->open = mem_alloc(n * sizeof *s->open);
    s->counts = mem_alloc(n * sizeof *s->counts);
    s->ids = mem_alloc(n * CANDIDATES_MAX * sizeof *s->ids);
    s->workers = pool_threads(w->s->threads);
    s->lists = mem_zalloc(sizeof *s->lists * (size_t)s->workers);
    for (int i = 0; i < s->workers; i++) {
        screen_list *list = &s->lists[i];
        list->all = mem_alloc(sizeof *list->all * LIST_MAX);
        list->best = mem_alloc(sizeof *list->best * n);
        list->upper = mem_alloc(sizeof *list->upper * TILE_ROWS * SCREEN_COLUMNS);
        list->rows = mem_alloc(sizeof *list->rows * LANES * width);
    }
    return s;
}

/* ---- candidates ------------------------------------------------------------------------------ */

static void state_task(void *ctx, int task, int worker) {
    (void)worker;
    cpu_work *w = ctx;
    cpu_screen *s = w->screen;
    int width = w->engine->config.n_embd;
    const uint16_t *x = cpu_row_of(w->a, GEMM_BF16, task, width);
    const pass_want *want = &w->p->wants[w->whole[task]];
    s->open[task] = want->top != 1 || want->temperature > 0 ||
                    !head_screen_state(w->s->model.screen, x,
                                       s->fine + (size_t)task * (size_t)width, &s->states[task]);
}

/* Moves the rows that can be screened to the front of `fine` and `states`. */
static void states_compact(cpu_work *w, int whole) {
    cpu_screen *s = w->screen;
    size_t width = (size_t)w->engine->config.n_embd;
    s->rows = 0;
    for (int i = 0; i < whole; i++) {
        if (s->open[i])
            continue;
        if (s->rows != i) {
            memcpy(s->fine + (size_t)s->rows * width, s->fine + (size_t)i * width, width);
            s->states[s->rows] = s->states[i];
        }
        s->index[s->rows++] = i;
    }
}

/* Drops candidates that later bounds rule out. */
static void list_prune(screen_list *list) {
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        candidate m = list->all[i];
        if (!(m.upper < list->best[m.row]))
            list->all[kept++] = m;
    }
    list->count = kept;
}

static void candidates_add(screen_list *list, int row, int first, uint64_t mask,
                           const float *upper) {
    for (; mask != 0; mask &= mask - 1) {
        int at = __builtin_ctzll(mask);
        list->all[list->count++] = (candidate){row, first + at, upper[at]};
    }
}

/* Task: screens up to TILE_ROWS rows for GROUP tokens. */
static void screen_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    cpu_screen *s = w->screen;
    const head_screen *head = w->s->model.screen;
    screen_list *list = &s->lists[worker];
    int tiles = (s->rows + TILE_ROWS - 1) / TILE_ROWS, base = task % tiles * TILE_ROWS;
    int rows = BASE_MIN(TILE_ROWS, s->rows - base), from = task / tiles * GROUP;
    uint64_t masks[TILE_ROWS];
    for (int first = from; first < BASE_MIN(from + GROUP, head->n); first += SCREEN_COLUMNS) {
        if (list->count > LIST_MAX - TILE_ROWS * SCREEN_COLUMNS) {
            list_prune(list);
            list->full = list->full || list->count > LIST_MAX / 2;
        }
        if (list->full)
            return;
        head_screen_run(head, first, s->fine + (size_t)base * (size_t)head->k, s->states + base,
                        rows, list->best + base, masks, list->upper);
        for (int i = 0; i < rows; i++)
            candidates_add(list, base + i, first, masks[i],
                           list->upper + (size_t)i * SCREEN_COLUMNS);
    }
}

/* Merges the threads' lists, filtered by the best bounds of all threads. Returns false if a list
 * overflowed. */
static bool lists_merge(cpu_screen *s) {
    float *best = s->lists[0].best;
    bool full = s->lists[0].full;
    for (int i = 1; i < s->workers; i++) {
        full = full || s->lists[i].full;
        for (int r = 0; r < s->rows; r++)
            best[r] = BASE_MAX(best[r], s->lists[i].best[r]);
    }
    memset(s->counts, 0, sizeof *s->counts * (size_t)s->rows);
    for (int i = 0; i < s->workers; i++) {
        for (int j = 0; j < s->lists[i].count; j++) {
            candidate m = s->lists[i].all[j];
            if (m.upper < best[m.row])
                continue;
            if (s->counts[m.row] < CANDIDATES_MAX)
                s->ids[(size_t)m.row * CANDIDATES_MAX + (size_t)s->counts[m.row]] = m.id;
            s->counts[m.row]++;
        }
    }
    return !full;
}

/* ---- exact logits ---------------------------------------------------------------------------- */

/* Computes the logits of up to LANES tokens, with the bits of the full product. */
static void lanes_run(cpu_work *w, uint16_t *rows, const uint16_t *x, const llm_token *ids,
                      int count, float *row, float *out) {
    int width = w->engine->config.n_embd;
    for (int i = 0; i < LANES; i++) {
        if (i < count) {
            model_head_row(&w->s->model, ids[i], row);
            w->s->k->to_bf16(row, width, rows + (size_t)i * (size_t)width);
        } else {
            memset(rows + (size_t)i * (size_t)width, 0, sizeof *rows * (size_t)width);
        }
    }
    w->s->k->pair_products(x, rows, width, w->s->model.screen->run, out);
}

static void likeliest_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    cpu_screen *s = w->screen;
    int whole = s->index[task], count = s->counts[task];
    if (count > CANDIDATES_MAX || count == 0) {
        s->open[whole] = true;
        return;
    }
    const pass_want *want = &w->p->wants[w->whole[whole]];
    const llm_token *ids = s->ids + (size_t)task * CANDIDATES_MAX;
    const uint16_t *x = cpu_row_of(w->a, GEMM_BF16, whole, w->engine->config.n_embd);
    float best = -INFINITY;
    llm_token token = -1;
    for (int at = 0; at < count; at += LANES) {
        float logits[LANES];
        int n = BASE_MIN(LANES, count - at);
        lanes_run(w, s->lists[worker].rows, x, ids + at, n, cpu_scratch_of(w, worker), logits);
        for (int i = 0; i < n; i++) {
            if (logits[i] > best || (logits[i] == best && ids[at + i] < token)) {
                best = logits[i];
                token = ids[at + i];
            }
        }
    }
    want->logits[0] = best;
    want->top_ids[0] = token;
    cpu_final_cap(w, want->logits, 1);
}

/* Moves the rows that are left to the full product to the front. Returns the number of these
 * rows. */
static int open_compact(cpu_work *w, int whole) {
    int width = w->engine->config.n_embd, kept = 0;
    for (int i = 0; i < whole; i++) {
        if (!w->screen->open[i])
            continue;
        if (kept != i) {
            memcpy(cpu_row_of(w->a, GEMM_BF16, kept, width), cpu_row_of(w->a, GEMM_BF16, i, width),
                   gemm_row_bytes(GEMM_BF16, width));
            w->whole[kept] = w->whole[i];
        }
        kept++;
    }
    return kept;
}

int cpu_screen_run(cpu_work *w, int whole) {
    const head_screen *head = w->s->model.screen;
    if (head == NULL || whole == 0)
        return whole;
    cpu_screen *s = screen_reserve(w, whole);
    pool_run(w->s->threads, whole, state_task, w);
    states_compact(w, whole);
    if (s->rows == 0)
        return whole;
    for (int i = 0; i < s->workers; i++) {
        s->lists[i].count = 0;
        s->lists[i].full = false;
        for (int r = 0; r < s->rows; r++)
            s->lists[i].best[r] = -INFINITY;
    }
    int tiles = (s->rows + TILE_ROWS - 1) / TILE_ROWS, groups = (head->n + GROUP - 1) / GROUP;
    pool_run(w->s->threads, tiles * groups, screen_task, w);
    if (!lists_merge(s))
        return whole;
    pool_run(w->s->threads, s->rows, likeliest_task, w);
    return open_compact(w, whole);
}

/* ---- oneDNN's order of additions ------------------------------------------------------------- */

enum { CHECK_STATES = 4 };

/* True if pair_products with runs of `run` gives the bits of oneDNN's product for all tokens of a
 * part. want [CHECK_STATES, n] is oneDNN's product. */
static bool part_agrees(const cpu_state *s, const gemm_part *part, const uint16_t *a, int run,
                        const float *want, uint16_t *rows) {
    int width = s->model.head.k;
    float *row = mem_alloc(sizeof *row * (size_t)width), out[LANES];
    bool same = true;
    for (int first = 0; same && first + LANES <= part->n; first += LANES) {
        for (int i = 0; i < LANES; i++) {
            model_head_row(&s->model, part->first + first + i, row);
            s->k->to_bf16(row, width, rows + (size_t)i * (size_t)width);
        }
        for (int i = 0; i < CHECK_STATES; i++) {
            s->k->pair_products(a + (size_t)i * (size_t)width, rows, width, run, out);
            same = same && memcmp(out, want + (size_t)i * (size_t)part->n + first, sizeof out) == 0;
        }
    }
    free(row);
    return same;
}

int cpu_screen_order(cpu_state *s) {
    const gemm_weight *head = &s->model.head;
    int width = head->k, height = gemm_height(s->g, CHECK_STATES);
    const int runs[] = {width, 2048, 1024, 512, 256, 128, 64};
    uint16_t *a = mem_zalloc(sizeof *a * (size_t)height * (size_t)width);
    uint16_t *rows = mem_alloc(sizeof *rows * LANES * (size_t)width);
    for (int i = 0; i < CHECK_STATES * width; i++) {
        float x = (float)(hash_mix(11, (uint64_t)i) % 4001) / 1000.0f - 2.0f;
        s->k->to_bf16(&x, 1, a + i);
    }
    int found = 0;
    for (size_t r = 0; r < BASE_COUNT(runs) && found == 0; r++) {
        int parts[] = {0, head->nparts / 2, head->nparts - 1};
        bool same = true;
        for (size_t p = 0; p < BASE_COUNT(parts) && same; p++) {
            const float *want = gemm_run(s->g, head, parts[p], 0, CHECK_STATES, a);
            same = part_agrees(s, &head->parts[parts[p]], a, runs[r], want, rows);
        }
        found = same ? runs[r] : 0;
    }
    free(a);
    free(rows);
    return found;
}
