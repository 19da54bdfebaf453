/*
 * attend_plan.c - builds the attention plan (attend_plan_int.h), and sorts block copies into
 * levels.
 *
 * Invariants: each pair of a query and a block up to the query's position is covered by exactly one
 * task. Within a chunk, a row's tasks have ascending levels in the order of its blocks. A row with
 * tasks in several levels has a number in `states`, under which its softmax state is stored.
 */
#include "attend_plan_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/containers.h"

typedef struct planner {
    attend_plan *p;
    const attend_row *rows;
    int group;
} planner;

static int last_block(const attend_row *row) {
    return row->position / ATTEND_BLOCK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int blocks_add(attend_plan *p, const int32_t *table, int b0, int b1) {
    int n = b1 - b0, at = p->nblocks;
    ARRAY_RESERVE(p->blocks, at + n, p->blocks_cap);
    memcpy(p->blocks + at, table + b0, (size_t)n * sizeof *p->blocks);
    p->nblocks += n;
    return at;
}

/* ---- runs of rows ---------------------------------------------------------------------------- */

/* Finds the blocks from b0 on that are the same in the tables of all rows [from, to), as far as
 * each row reaches. Returns the end of these blocks, at most chunk_end. Sets *longest to a row with
 * the highest number of blocks. */
static int shared_end(const planner *pl, int from, int to, int b0, int chunk_end, int *longest) {
    *longest = from;
    for (int i = from; i < to; i++)
        if (last_block(&pl->rows[i]) > last_block(&pl->rows[*longest]))
            *longest = i;
    const attend_row *model = &pl->rows[*longest];
    int end = BASE_MIN(chunk_end, last_block(model) + 1);
    for (int i = from; i < to; i++) {
        const attend_row *row = &pl->rows[i];
        if (row->table == model->table) /* the common case: rows of the same sequence */
            continue;
        int reach = BASE_MIN(end, last_block(row) + 1);
        for (int b = b0; b < reach; b++) {
            if (row->table[b] != model->table[b]) {
                end = b;
                break;
            }
        }
    }
    return end;
}

/* Splits the queries of rows [from, to) into tasks over blocks [b0, b1). A task ends at an earlier
 * block than b1 if its rows do. */
static void tasks_emit(const planner *pl, int from, int to, int b0, int b1, int blocks_at,
                       int level) {
    attend_plan *p = pl->p;
    int queries = (to - from) * pl->group;
    bool wide = queries > ATTEND_NARROW;
    int size = wide ? ATTEND_WIDE : ATTEND_NARROW;
    for (int q = 0; q < queries; q += size) {
        int n = BASE_MIN(size, queries - q), end = b0;
        int least = INT32_MAX;
        for (int i = from + q / pl->group; i <= from + (q + n - 1) / pl->group; i++) {
            end = BASE_MAX(end, BASE_MIN(b1, last_block(&pl->rows[i]) + 1));
            least = BASE_MIN(least, pl->rows[i].position);
        }
        attend_list *list = wide ? &p->wide[level] : &p->narrow[level];
        attend_task task = {from, q, n, b0, end, blocks_at, least, level > 0};
        ARRAY_PUSH(list->at, list->count, list->cap, task);
    }
}

/* Plans blocks [b0, chunk_end) for rows [from, to), which all have the same block at b0. */
static void run_plan(const planner *pl, int from, int to, int b0, int chunk_end, int level) {
    attend_plan *p = pl->p;
    int longest;
    int b1 = shared_end(pl, from, to, b0, chunk_end, &longest);
    assert(b1 > b0 && level < ATTEND_LEVELS);
    p->levels = BASE_MAX(p->levels, level + 1);
    tasks_emit(pl, from, to, b0, b1, blocks_add(p, pl->rows[longest].table, b0, b1), level);
    if (b1 == chunk_end)
        return;
    for (int i = from; i < to;) {
        const attend_row *row = &pl->rows[i];
        if (last_block(row) < b1) {
            i++;
            continue;
        }
        int end = i;
        while (end < to && last_block(&pl->rows[end]) >= b1 &&
               pl->rows[end].table[b1] == row->table[b1])
            p->states[end++] = 0; /* the row needs a state; states_assign sets its number */
        run_plan(pl, i, end, b1, chunk_end, level + 1);
        i = end;
    }
}

static void chunk_plan(const planner *pl, int nrows, int chunk) {
    int b0 = chunk * ATTEND_CHUNK_BLOCKS;
    for (int i = 0; i < nrows;) {
        const attend_row *row = &pl->rows[i];
        if (last_block(row) < b0) {
            i++;
            continue;
        }
        int end = i + 1;
        while (end < nrows && last_block(&pl->rows[end]) >= b0 &&
               pl->rows[end].table[b0] == row->table[b0])
            end++;
        run_plan(pl, i, end, b0, b0 + ATTEND_CHUNK_BLOCKS, 0);
        i = end;
    }
}

/* Numbers the states. A row with several chunks gets a state per chunk and a merge. A row with one
 * chunk gets a state only if tasks of several levels process it. */
static void states_assign(attend_plan *p, const attend_row *rows, int nrows) {
    for (int i = 0; i < nrows; i++) {
        int chunks = rows[i].position / ATTEND_CHUNK + 1;
        if (chunks == 1 && p->states[i] < 0)
            continue;
        p->states[i] = p->nstates;
        p->nstates += chunks;
        if (chunks > 1) {
            attend_merge merge = {i, p->states[i], chunks};
            ARRAY_PUSH(p->merges, p->nmerges, p->merges_cap, merge);
        }
    }
}

void attend_plan_make(attend_plan *p, const attend_row *rows, int nrows, int group) {
    for (int level = 0; level < ATTEND_LEVELS; level++)
        p->wide[level].count = p->narrow[level].count = 0;
    p->levels = p->nblocks = p->nmerges = p->nstates = 0;
    ARRAY_RESERVE(p->states, nrows, p->states_cap);
    int blocks = 0;
    for (int i = 0; i < nrows; i++) {
        p->states[i] = -1;
        blocks = BASE_MAX(blocks, last_block(&rows[i]) + 1);
    }
    planner pl = {p, rows, group};
    for (int chunk = 0; chunk * ATTEND_CHUNK_BLOCKS < blocks; chunk++)
        chunk_plan(&pl, nrows, chunk);
    states_assign(p, rows, nrows);
}

void attend_plan_free(attend_plan *p) {
    for (int level = 0; level < ATTEND_LEVELS; level++) {
        free(p->wide[level].at);
        free(p->narrow[level].at);
    }
    free(p->blocks);
    free(p->merges);
    free(p->states);
    *p = (attend_plan){0};
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* level[2 * block] is 1 + the highest level so far with a copy that writes the block.
 * level[2 * block + 1] is 1 + the highest level so far with a copy that reads the block. 0: there
 * is no such copy. */
int slot_copy_levels(const slot_copy *in, int count, int32_t *level, slot_copy *out, int *ends) {
    int levels = 0;
    int *of = mem_alloc(sizeof *of * (size_t)BASE_MAX(count, 1));
    for (int i = 0; i < count; i++) {
        int32_t *from = level + 2 * (size_t)in[i].from, *to = level + 2 * (size_t)in[i].to;
        of[i] = BASE_MAX(from[0], BASE_MAX(to[0], to[1]));
        to[0] = of[i] + 1;
        from[1] = BASE_MAX(from[1], of[i] + 1);
        levels = BASE_MAX(levels, of[i] + 1);
    }
    int n = 0;
    for (int l = 0; l < levels; l++) {
        for (int i = 0; i < count; i++)
            if (of[i] == l)
                out[n++] = in[i];
        ends[l] = n;
    }
    for (int i = 0; i < count; i++)
        level[2 * (size_t)in[i].to] = level[2 * (size_t)in[i].from + 1] = 0;
    free(of);
    return levels;
}
