/*
 * watch_int.h - what a live view sees of a running LLM operator, and how it pauses one: private to
 * op_llm.c and watch.c.
 */
#ifndef KVASIR_WATCH_INT_H
#define KVASIR_WATCH_INT_H

#include "llm_int.h"

/* Notes one finished prompt: how much of it was shared, and its input's text (the field that stands
 * last, so the one that tells inputs apart); `order`: its fields, of which it may lack some. */
void watch_prompt(exec_progress *p, const llm_event *event, const llm_inputs *in, uint32_t input,
                  const uint8_t *order);
/* Adds what a strategy computes to the figure under its name. */
void watch_baseline(exec_progress *p, const char *strategy, uint64_t computed_tokens);
/* Prompt tokens that a stored answer made unnecessary. */
void watch_stored(llm_runtime *r, llm_span *const *spans, int nspans);
/* How many LLM operators a plan has. */
int watch_operators(const plan_node *n);
/* Fills prefixes, operators and the cache's size, at most four times a second and only while
 * somebody watches; `last`: at the statement's end, whatever the time. */
void watch_details(exec_ctx *ctx, exec_progress *p, bool last);
/* Between two passes of the engine: waits while the statement is paused and not cancelled; returns
 * the seconds spent. `publish` is called with o once the wait begins and when it ends. */
double watch_pause(const exec_ctx *ctx, exec_progress *p, void (*publish)(op *o, const char *phase),
                   op *o);

#endif
