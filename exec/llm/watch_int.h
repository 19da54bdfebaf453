/*
 * watch_int.h - what the live view shows of a running LLM operator, and how it pauses one.
 */
#ifndef KVASIR_WATCH_INT_H
#define KVASIR_WATCH_INT_H

#include "llm_int.h"

/* Records an answered prompt: the share of its tokens that was reused, and the text of its last
 * field, since inputs differ most there. `order`: the prompt's field order. */
void watch_prompt(exec_progress *p, const llm_event *event, const llm_inputs *in, uint32_t input,
                  const uint8_t *order);
/* Adds a stage's tokens to those of their strategy. */
void watch_baseline(exec_progress *p, const plan_tokens *counted);
/* Counts the tokens of a prompt whose answer was stored. */
void watch_stored(llm_runtime *r, llm_span *const *spans, int nspans);
/* Returns the number of stages of all pipelines in a plan. */
int watch_operators(const plan_node *n);
/* Fills branches, operators and the cache's size: at most four times a second, and only while the
 * view is open. `last`: the operator ends; fills them in any case, for a view opened later. */
void watch_details(exec_ctx *ctx, exec_progress *p, bool last);
/* Between two steps of the engine: waits while the statement is paused and not cancelled; returns
 * the seconds spent. Calls publish(o, …) when the wait begins. */
double watch_pause(const exec_ctx *ctx, exec_progress *p, void (*publish)(op *o, const char *phase),
                   op *o);

#endif
