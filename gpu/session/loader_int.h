/*
 * loader_int.h - a thread that reads KV blocks from the store before they are needed.
 *
 *   schedule ──ask──> [coming] ──thread──> [reading] ──store.get──> [here] ──take──> a block of
 *                                                              └──> [missing]        the session
 *
 * Each block asked for gets a number; the last LOADS numbers are remembered, in a ring. The thread
 * reads into pages of one block's size: the backend's (pinned memory, sent to the card without
 * another copy) or plain memory. If a block is taken before the thread has begun to read it, the
 * caller reads it, so that the session never waits for a free page. Ownership: the session owns the
 * loader; the backend's session data own the backend's pages. All functions are called on the
 * session's thread.
 */
#ifndef KVASIR_LOADER_INT_H
#define KVASIR_LOADER_INT_H

#include "engine/engine_int.h"

enum { LOADS = 256 };

typedef enum load_state {
    LOAD_UNKNOWN, /* never asked for, or since then taken, dropped or overwritten */
    LOAD_COMING,
    LOAD_READING,
    LOAD_HERE,
    LOAD_MISSING
} load_state;

typedef struct loader loader;

/* Starts a loader. NULL: the system refuses a thread; blocks are then read when they are needed. */
loader *loader_new(llm_engine *engine, void *work, const llm_kv_store *store, size_t block_bytes);
void loader_free(loader *l); /* NULL is fine; waits for the block being read */
/* Returns the number of blocks that may be asked for now. */
int loader_room(loader *l);
/* Asks for a block, within loader_room, and returns its number, from 1. */
uint64_t loader_ask(loader *l, const llm_kv_id *id);
/* Returns the state of the block with this number and key. */
load_state loader_status(loader *l, uint64_t number, hash128 key);
/* Takes a block and forgets it. If the thread is reading the block, waits for the end of the
 * read. LOAD_HERE: the bytes were copied, or are being sent, to the session's `block`.
 * LOAD_MISSING: the store does not have the block. LOAD_UNKNOWN: the caller has to read it. */
load_state loader_take(loader *l, uint64_t number, hash128 key, int32_t block);
/* Adds to *ms the time that the thread has spent reading blocks that the store had, and to *blocks
 * the number of these blocks. */
void loader_times(loader *l, double *ms, uint64_t *blocks);
/* Forgets blocks [number, number + count). */
void loader_drop(loader *l, uint64_t number, int count);

#endif
