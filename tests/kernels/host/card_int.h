/*
 * card_int.h - how tests control the emulated card: its order, its memory, whether it is present.
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

/* When enqueued operations run: at once; when something waits for them; or at random by a seed, so
 * that streams overtake each other where no event prevents it. */
typedef enum card_timing { CARD_EARLY, CARD_LATE, CARD_SEEDED } card_timing;
void card_order(card_timing order, uint64_t seed);
/* Sets the order from the environment: CARD_ORDER = early (default), late, or a seed. */
void card_order_given(void);
void card_fail(const char *what); /* reports `what`; every later call fails */
/* Returns the last card_fail's text, NULL if there was none, and lets calls succeed again. */
const char *card_complaint(void);
void card_memory(size_t total); /* sets the size of device memory, in bytes */
void card_refuse(long n);       /* fails the n-th allocation from now on (from 0); -1: none */
size_t card_allocations(void);  /* number of allocations not yet freed */
/* True if `bytes` bytes from p on are device memory of one allocation, and p is a multiple of
 * `alignment` bytes from its start. */
bool card_holds(const void *p, size_t bytes, size_t alignment);
/* True if host accesses to device memory end the process, which needs memory protection keys. */
bool card_keeps_the_host_out(void);
int card_graphs_launched(void);
/* Sets the status of finding the card, the driver's version, and the major compute capability. */
void card_presence(cudaError_t status, int driver, int capability);
/* For blas.c: enqueues run(ctx) on the stream. */
void card_enqueue_plain(cudaStream_t stream, void (*run)(void *), void *ctx);

#ifdef __cplusplus
}
#endif
#endif
