/*
 * attend_plan_int.h - the attention plan: splits a pass's attention into tasks for the kernels, one
 * list of tasks per level (attend_plan.c). A KV block that several rows share is loaded once for
 * all of these rows.
 *
 * Positions are divided into chunks of ATTEND_CHUNK_BLOCKS blocks, aligned at position 0. Within a
 * chunk, a query processes its blocks in order; its chunks are then merged in order. A task covers
 * queries of neighbouring rows whose tables agree on blocks [b0, b1). Where the tables diverge,
 * each group of rows continues in a task of the next level, from the state that the previous level
 * stored:
 *
 *   rows 0..9   ├── blocks 0..7, shared, level 0 ──┬── rows 0..4: blocks 8, 9, level 1
 *                                                  └── rows 5..9: other blocks 8, 9, level 1
 *
 * States are stored as exact f32, so the cut into levels does not change a bit of the result. A
 * query is a (row, query head of the task's kv head) pair. A run is a group of consecutive rows
 * that share the blocks [b0, b1). The queries of a run are numbered row by row and split into tasks
 * of up to ATTEND_WIDE or ATTEND_NARROW queries. Host code without CUDA calls: built and tested on
 * every machine.
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
    ATTEND_BLOCK = 32,        /* positions per block */
    ATTEND_CHUNK_BLOCKS = 16, /* blocks per chunk */
    ATTEND_CHUNK = ATTEND_BLOCK * ATTEND_CHUNK_BLOCKS,
    ATTEND_LEVELS = ATTEND_CHUNK_BLOCKS, /* upper bound: each level covers at least one block */
    /* maximum number of queries in a wide task: 4 warps of 16 */
    ATTEND_WIDE = 64,
    ATTEND_NARROW = 16 /* maximum number of queries in a narrow task: 1 warp */
};

typedef struct attend_task {
    int32_t first_row; /* the run's first row; query i of the run is of row first_row + i / group */
    int32_t first_query;    /* number of the task's first query in the run */
    int32_t queries;        /* number of queries; 0: the task is padding */
    int32_t b0, b1;         /* indexes [b0, b1) in the rows' tables, within the same chunk */
    int32_t blocks_at;      /* block b's id is blocks[blocks_at + b - b0] */
    int32_t least_position; /* smallest position of the task's rows */
    int32_t resumes;        /* 1: start from the state that the previous level stored */
} attend_task;

typedef struct attend_merge {
    int32_t row;
    int32_t state;  /* number of chunk 0's state; the states of the next chunks follow */
    int32_t chunks; /* number of chunks; 0: the entry is padding */
} attend_merge;

/* Copies the first `tokens` positions of one block of the KV pool to another. */
typedef struct slot_copy {
    int32_t from, to, tokens;
} slot_copy;

/* One logit to compute: of token `id` after row `row`. */
typedef struct head_item {
    int32_t row, id;
} head_item;

/* A row as input of the plan. */
typedef struct attend_row {
    int32_t position;
    const int32_t *table; /* [position / ATTEND_BLOCK + 1]: block ids */
} attend_row;

typedef struct attend_list {
    attend_task *at;
    int count, cap;
} attend_list;

/* Zero-initialise it once. The next attend_plan_make reuses the buffers, which never shrink. */
typedef struct attend_plan {
    attend_list wide[ATTEND_LEVELS], narrow[ATTEND_LEVELS];
    int levels;
    int32_t *blocks; /* [nblocks]: block ids that tasks refer to by blocks_at */
    int nblocks, blocks_cap;
    attend_merge *merges;
    int nmerges, merges_cap;
    int32_t *states; /* [rows]: number of the row's first state, -1 if it needs none */
    int states_cap;
    int nstates; /* total number of states */
} attend_plan;

/* Plans the attention of rows[nrows]; each row has `group` queries per kv head. */
void attend_plan_make(attend_plan *p, const attend_row *rows, int nrows, int group);
void attend_plan_free(attend_plan *p);

/* Sorts copies into levels; the copies of one level may run concurrently. A copy gets a later level
 * than every earlier copy that writes a block which it reads or writes, or reads a block which it
 * writes. Fills out[count] and ends[i], the end of level i in out[]; ends has room for `count`
 * entries. `level` is scratch [2 * blocks], all zero before and after. Returns the number of
 * levels. */
int slot_copy_levels(const slot_copy *in, int count, int32_t *level, slot_copy *out, int *ends);

#ifdef __cplusplus
}
#endif
#endif
