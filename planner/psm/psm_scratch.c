/*
 * psm_scratch.c - the solver's stack of scratch memory: recursive steps free all their tables at
 * once, and running out of memory is handled in one place (longjmp, see psm_int.h).
 */
#include "psm_int.h"

#include <stdlib.h>

enum { CHUNK_BYTES = 1 << 20 }; /* capacity of a chunk, unless one allocation needs more */

struct scratch_chunk {
    scratch_chunk *below; /* the chunk pushed before this one; NULL: this is the first */
    size_t used;          /* bytes allocated */
    size_t capacity;      /* bytes that `bytes` can hold */
    _Alignas(16) unsigned char bytes[];
};

/* Makes a chunk with room for an allocation the top of the stack. */
static scratch_chunk *chunk_push(scratch *s, size_t bytes) {
    scratch_chunk *c = s->spare;
    if (c != NULL && c->capacity >= bytes) {
        s->spare = NULL;
    } else {
        size_t capacity = BASE_MAX(bytes, (size_t)CHUNK_BYTES);
        c = mem_try_alloc(sizeof *c + capacity);
        if (c == NULL)
            longjmp(*s->full, 1);
        c->capacity = capacity;
    }
    c->used = 0;
    c->below = s->top;
    s->top = c;
    return c;
}

void *scratch_alloc(scratch *s, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (s->cancel && atomic_load_explicit(s->cancel, memory_order_relaxed))
        longjmp(*s->full, 1);
    scratch_chunk *c = s->top;
    if (c == NULL || c->capacity - c->used < bytes)
        c = chunk_push(s, bytes);
    void *p = c->bytes + c->used;
    c->used += bytes;
    return p;
}

scratch_mark scratch_save(const scratch *s) {
    return (scratch_mark){s->top, s->top != NULL ? s->top->used : 0};
}

void scratch_restore(scratch *s, scratch_mark m) {
    while (s->top != m.top) {
        scratch_chunk *c = s->top;
        s->top = c->below;
        if (s->spare == NULL || s->spare->capacity < c->capacity) {
            free(s->spare);
            s->spare = c;
        } else {
            free(c);
        }
    }
    if (s->top != NULL)
        s->top->used = m.used;
}

void scratch_index_add(scratch *s, hash_index *x, uint64_t hash, uint32_t item) {
    uint32_t nslots = hash_index_slots_for(x, x->count + 1);
    if (nslots > 0)
        hash_index_move(x, SCRATCH_ARRAY(s, hash_slot, nslots), nslots, NULL);
    hash_index_add(x, hash, item);
}

/* A function of its own: after a longjmp, locals that were changed since setjmp are undefined, and
 * this function changes none. Returns false if scratch_alloc has jumped. */
static bool run_guarded(scratch *s, jmp_buf *full, void (*step)(void *, scratch *), void *job) {
    if (setjmp(*full) != 0)
        return false;
    step(job, s);
    return true;
}

bool scratch_run(void (*step)(void *job, scratch *mem), void *job, const atomic_bool *cancel) {
    jmp_buf full;
    scratch s = {.full = &full, .cancel = cancel};
    bool done = run_guarded(&s, &full, step, job);
    scratch_restore(&s, (scratch_mark){NULL, 0});
    free(s.spare);
    return done;
}
