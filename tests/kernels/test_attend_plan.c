/*
 * test_attend_plan.c - the attention plan: every row processes each of its blocks once, in order,
 * and stores a state where one is needed; copies are sorted into levels that may run concurrently.
 * Plans random trees of rows and walks the tasks as the kernel would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/attend_plan_int.h"
#include "storage/base.h"

enum { MAX_ROWS = 700, MAX_BLOCKS = 64, GROUPS = 4 };

typedef struct rows {
    attend_row row[MAX_ROWS];
    int32_t tables[MAX_ROWS][MAX_BLOCKS];
    int n;
} rows;

static uint64_t seed_next(uint64_t *seed, uint64_t below) {
    *seed = hash_mix(*seed, 1);
    return *seed % below;
}

/* Makes sequences whose tables each share a prefix with the one before; each sequence contributes
 * one row or a run of rows. */
static void rows_make(rows *r, uint64_t seed) {
    int32_t next = 0;
    r->n = 0;
    int sequences = 1 + (int)seed_next(&seed, 40);
    for (int s = 0; s < sequences && r->n < MAX_ROWS; s++) {
        int32_t *table = r->tables[s];
        int shared = s > 0 ? (int)seed_next(&seed, MAX_BLOCKS) : 0;
        memcpy(table, r->tables[s > 0 ? s - 1 : 0], sizeof *table * (size_t)shared);
        for (int b = shared; b < MAX_BLOCKS; b++)
            table[b] = next++;
        int limit = seed_next(&seed, 2) ? ATTEND_BLOCK * MAX_BLOCKS : ATTEND_CHUNK;
        int first = (int)seed_next(&seed, (uint64_t)limit);
        int count = seed_next(&seed, 3) == 0 ? 1 + (int)seed_next(&seed, 200) : 1;
        for (int i = 0; i < count && first + i < limit && r->n < MAX_ROWS; i++)
            r->row[r->n++] = (attend_row){first + i, table};
    }
}

/* The state of the walk per row and query of its group: blocks processed in each chunk, whether a
 * state was stored, and whether the output was written. */
typedef struct walker {
    int processed[MAX_ROWS][GROUPS][MAX_BLOCKS / ATTEND_CHUNK_BLOCKS];
    bool stored[MAX_ROWS][GROUPS][MAX_BLOCKS / ATTEND_CHUNK_BLOCKS], answered[MAX_ROWS][GROUPS];
} walker;

static void task_walk(const attend_plan *p, const rows *r, int group, const attend_task *t,
                      int level, walker *w) {
    assert_true(t->b0 < t->b1 && t->b0 / ATTEND_CHUNK_BLOCKS == (t->b1 - 1) / ATTEND_CHUNK_BLOCKS);
    assert_int_equal(t->resumes, level > 0);
    int chunk = t->b0 / ATTEND_CHUNK_BLOCKS;
    for (int i = t->first_query; i < t->first_query + t->queries; i++) {
        int row = t->first_row + i / group, head = i % group, position = r->row[row].position;
        assert_true(t->least_position <= position && position / ATTEND_BLOCK >= t->b0);
        assert_int_equal(w->processed[row][head][chunk], t->b0 - chunk * ATTEND_CHUNK_BLOCKS);
        assert_true(level == 0 || w->stored[row][head][chunk]);
        for (int b = t->b0; b < t->b1 && b <= position / ATTEND_BLOCK; b++) {
            assert_int_equal(p->blocks[t->blocks_at + b - t->b0], r->row[row].table[b]);
            w->processed[row][head][chunk]++;
        }
        if (position < ATTEND_CHUNK && position / ATTEND_BLOCK < t->b1) {
            assert_false(w->answered[row][head]);
            w->answered[row][head] = true;
        } else {
            assert_true(p->states[row] >= 0 && p->states[row] + chunk < p->nstates);
            w->stored[row][head][chunk] = true;
        }
    }
}

static void attend_plan_check(const attend_plan *p, const rows *r, int group) {
    walker *w = calloc(1, sizeof *w);
    for (int level = 0; level < p->levels; level++) {
        for (int i = 0; i < p->wide[level].count; i++) {
            assert_true(p->wide[level].at[i].queries <= ATTEND_WIDE);
            task_walk(p, r, group, &p->wide[level].at[i], level, w);
        }
        for (int i = 0; i < p->narrow[level].count; i++) {
            assert_true(p->narrow[level].at[i].queries <= ATTEND_NARROW);
            task_walk(p, r, group, &p->narrow[level].at[i], level, w);
        }
    }
    int merges = 0;
    for (int row = 0; row < r->n; row++) {
        int last = r->row[row].position / ATTEND_BLOCK, chunks = last / ATTEND_CHUNK_BLOCKS + 1;
        for (int head = 0; head < group; head++) {
            for (int c = 0; c < chunks; c++) {
                int want = BASE_MIN(ATTEND_CHUNK_BLOCKS, last + 1 - c * ATTEND_CHUNK_BLOCKS);
                assert_int_equal(w->processed[row][head][c], want);
                assert_true(chunks == 1 || w->stored[row][head][c]);
            }
            assert_int_equal(w->answered[row][head], chunks == 1);
        }
        if (chunks > 1) {
            assert_int_equal(p->merges[merges].row, row);
            assert_int_equal(p->merges[merges].chunks, chunks);
            assert_int_equal(p->merges[merges++].state, p->states[row]);
        }
    }
    assert_int_equal(merges, p->nmerges);
    free(w);
}

static void every_row_processes_its_blocks_in_order(void **state) {
    (void)state;
    attend_plan p = {0};
    rows *r = malloc(sizeof *r);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        rows_make(r, seed * 77);
        int group = 1 + (int)(seed % GROUPS);
        attend_plan_make(&p, r->row, r->n, group);
        attend_plan_check(&p, r, group);
    }
    attend_plan_free(&p);
    free(r);
}

/* 256 rows that share a prefix of 1,024 tokens and have their own last block: wide tasks process
 * the prefix for all rows together. */
static void a_shared_prefix_is_processed_together(void **state) {
    (void)state;
    rows *r = malloc(sizeof *r);
    r->n = 256;
    for (int i = 0; i < r->n; i++) {
        for (int b = 0; b < MAX_BLOCKS; b++)
            r->tables[i][b] = b < 32 ? b : 1000 + i * MAX_BLOCKS + b;
        r->row[i] = (attend_row){1024 + i % 32, r->tables[i]};
    }
    attend_plan p = {0};
    attend_plan_make(&p, r->row, r->n, 4);
    attend_plan_check(&p, r, 4);
    assert_int_equal(p.levels, 1);
    assert_int_equal(p.wide[0].count, 2 * 256 * 4 / ATTEND_WIDE); /* the prefix has two chunks */
    assert_int_equal(p.narrow[0].count, 256);
    attend_plan_free(&p);
    free(r);
}

/* Copies run level by level, in any order within a level, have the effect of their given order. */
static void copies_keep_their_order(void **state) {
    (void)state;
    enum { BLOCKS = 24, COPIES = 40 };
    int32_t level[2 * BLOCKS] = {0};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        slot_copy in[COPIES], out[COPIES];
        int ends[COPIES], plain[BLOCKS], levelled[BLOCKS], n = (int)(seed % COPIES);
        uint64_t s = seed;
        for (int i = 0; i < BLOCKS; i++)
            plain[i] = levelled[i] = i;
        for (int i = 0; i < n; i++) {
            in[i] = (slot_copy){(int32_t)seed_next(&s, BLOCKS), (int32_t)seed_next(&s, BLOCKS), 1};
            in[i].to = in[i].to == in[i].from ? (in[i].to + 1) % BLOCKS : in[i].to;
            plain[in[i].to] = plain[in[i].from];
        }
        int levels = slot_copy_levels(in, n, level, out, ends), from = 0;
        for (int l = 0; l < levels; l++) {
            int before[BLOCKS];
            memcpy(before, levelled, sizeof before);
            for (int i = ends[l] - 1; i >= from; i--)
                levelled[out[i].to] = before[out[i].from];
            from = ends[l];
        }
        assert_memory_equal(plain, levelled, sizeof plain);
        for (int i = 0; i < 2 * BLOCKS; i++)
            assert_int_equal(level[i], 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_processes_its_blocks_in_order),
        cmocka_unit_test(a_shared_prefix_is_processed_together),
        cmocka_unit_test(copies_keep_their_order),
    };
    return cmocka_run_group_tests_name("attend_plan", tests, NULL, NULL);
}
