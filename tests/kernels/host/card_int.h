/*
 * card_int.h - what tests ask of the card made of the host: its order, its memory, whether it is
 * there at all.
 */
#ifndef KVASIR_HOST_CARD_INT_H
#define KVASIR_HOST_CARD_INT_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When what a card may do in any order is done: at once; when somebody waits; by a seed, one
 * stream ahead of another wherever no event holds it (CARD_ORDER in the environment: early, late,
 * or a seed). */
typedef enum card_timing { CARD_EARLY, CARD_LATE, CARD_SEEDED } card_timing;
void card_order(card_timing order, uint64_t seed);
void card_order_given(void);      /* as the environment says */
void card_fail(const char *what); /* every call fails from now on */
/* What it was, and calls succeed again; NULL: nothing failed. */
const char *card_complaint(void);
void card_memory(size_t total); /* of the card, in bytes */
void card_refuse(long n);       /* the n-th request for memory from now on (from 0); -1: none */
size_t card_allocations(void);  /* not yet freed */
/* Is p a multiple of `alignment` bytes into an allocation of the card that has `bytes` from there
 * on? */
bool card_holds(const void *p, size_t bytes, size_t alignment);
bool card_keeps_the_host_out(void); /* a plain access to the card's memory ends the process */
int card_graphs_launched(void);
void card_presence(cudaError_t status, int driver, int capability);
/* For the library of products: run(ctx) in its turn on the stream. */
void card_enqueue_plain(cudaStream_t stream, void (*run)(void *), void *ctx);

#ifdef __cplusplus
}
#endif
#endif
