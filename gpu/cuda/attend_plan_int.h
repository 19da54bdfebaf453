/*
 * attend_plan_int.h - how attention's work is cut for the card: by shared block, in levels
 * (attend_plan.c).
 *
 * Positions are cut into chunks of ATTEND_CHUNK_BLOCKS blocks, at absolute positions. Within a chunk
 * a query meets its blocks in order; chunks of a query are merged in order. A task takes queries of
 * neighbouring rows that share the blocks [b0, b1) through them; where rows part, tasks of the next
 * level go on from the state that was stored:
 *
 *   rows 0..9   ├── blocks 0..7 of all, level 0 ──┬── rows 0..4: blocks 8, 9, level 1
 *                                                 └── rows 5..9: blocks 8, 9 of their own, level 1
 *
 * A stored state is exact f32, so where the levels part does not show in the bits. A query is a
 * (row, head of the kv head's group); queries of a run of rows are numbered row by row, and cut
 * into tasks of ATTEND_WIDE or ATTEND_NARROW. Plain data and host code without CUDA: always built,
 * tested everywhere.
 */
#ifndef KVASIR_ATTEND_PLAN_INT_H
#define KVASIR_ATTEND_PLAN_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTEND_BLOCK = 32,        /* positions of a block */
    ATTEND_CHUNK_BLOCKS = 16, /* blocks of a chunk */
    ATTEND_CHUNK = ATTEND_BLOCK * ATTEND_CHUNK_BLOCKS,
    ATTEND_LEVELS = ATTEND_CHUNK_BLOCKS, /* every level takes at least one block */
    ATTEND_WIDE = 64,                    /* queries of a wide task: 4 warps of 16 */
    ATTEND_NARROW = 16
};

typedef struct attend_task {
    int32_t first_row;            /* of the run; query i is of row first_row + i / group */
    int32_t first_query, queries; /* queries 0: padding */
    int32_t b0, b1; /* blocks, all in one chunk; b1 is the end of what any row of the task sees */
    int32_t blocks_at;      /* block b's id is blocks[blocks_at + b - b0] */
    int32_t least_position; /* of the task's rows */
    int32_t resumes;        /* 1: the state of an earlier level comes first */
} attend_task;

typedef struct attend_merge {
    int32_t row, state, chunks; /* chunks 0: padding */
} attend_merge;

typedef struct slot_copy {
    int32_t from, to, tokens;
} slot_copy;

typedef struct head_item {
    int32_t row, id;
} head_item;

/* A row as the plan sees it; table lists the blocks of positions 0, 32, … up to its own. */
typedef struct attend_row {
    int32_t position;
    const int32_t *table;
} attend_row;

typedef struct attend_list {
    attend_task *at;
    int count, cap;
} attend_list;

/* Zero-initialise; grown, never shrunk. */
typedef struct attend_plan {
    attend_list wide[ATTEND_LEVELS], narrow[ATTEND_LEVELS];
    int levels;
    int32_t *blocks;
    int nblocks, blocks_cap;
    attend_merge *merges;
    int nmerges, merges_cap;
    int32_t *states; /* per row: its first state, or -1 */
    int states_cap, nstates;
} attend_plan;

/* Plans attention of `rows`, each with `group` queries per kv head. */
void attend_plan_make(attend_plan *p, const attend_row *rows, int nrows, int group);
void attend_plan_free(attend_plan *p);

/* Sorts copies into levels that may each run at once: a copy comes after all earlier ones that it
 * reads from or writes to. ends[i]: where level i of out[] ends; returns how many levels. `level`
 * is scratch [2 * blocks], all zero before and after; ends[] has room for `count`. */
int slot_copy_levels(const slot_copy *in, int count, int32_t *level, slot_copy *out, int *ends);

#ifdef __cplusplus
}
#endif
#endif
