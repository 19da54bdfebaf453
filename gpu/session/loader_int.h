/*
 * loader_int.h - KV blocks read from the store ahead of the walk, by a thread of their own.
 *
 *   schedule ──ask──> [coming] ──thread──> [reading] ──store.get──> [here] ──take──> a block of
 *                                                              └──> [missing]        the session
 *
 * A block asked for has a number; the last LOADS of them are remembered, in a ring. What the thread
 * reads lies in pages of a block's bytes: the backend's (pinned, sent to the card without another
 * copy), or plain memory. A block that is taken before the thread came to it is left to the taker,
 * so that nobody ever waits for a page. Ownership: the session owns the loader, the backend's work
 * the pages; ask, look, take and drop are called by the session's thread alone.
 */
#ifndef KVASIR_LOADER_INT_H
#define KVASIR_LOADER_INT_H

#include "engine/engine_int.h"

enum { LOADS = 256 };

typedef enum load_state {
    LOAD_UNKNOWN,
    LOAD_COMING,
    LOAD_READING,
    LOAD_HERE,
    LOAD_MISSING
} load_state;

typedef struct loader loader;

/* NULL: the system refuses a thread; then all is read when it is needed. */
loader *loader_new(llm_engine *engine, void *work, const llm_kv_store *store, size_t block_bytes);
void loader_free(loader *l); /* NULL is fine; waits for the block being read */
/* How many blocks may be asked for. */
int loader_room(loader *l);
/* Asks for a block, and returns its number, from 1; loader_room said that there is room. */
uint64_t loader_ask(loader *l, const llm_kv_id *id);
load_state loader_look(loader *l, uint64_t number, hash128 key);
/* Takes the block that is here to `block` of the session, LOAD_HERE;
 * waits for one being read. LOAD_MISSING: the store did not have it;
 * LOAD_UNKNOWN: the caller is to read it. It is forgotten in every case. */
load_state loader_take(loader *l, uint64_t number, hash128 key, int32_t block);
/* Adds to both: milliseconds of reading blocks that the store had, and how many. */
void loader_times(loader *l, double *ms, uint64_t *blocks);
/* Forgets blocks [number, number + count), whatever became of them. */
void loader_drop(loader *l, uint64_t number, int count);

#endif
