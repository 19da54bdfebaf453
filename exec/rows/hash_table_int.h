/*
 * hash_table_int.h - rows by equal keys: shared by GROUP BY, DISTINCT, joins, set operations,
 * partitions.
 *
 * Keys are columns of fixed types; each distinct key is an entry 0, 1, 2, … in order of first
 * appearance, and entry k's keys are row k of hash_table_keys(). Keys are compared, never only
 * hashed. Ownership: who makes a table frees it.
 */
#ifndef KVASIR_HASH_TABLE_INT_H
#define KVASIR_HASH_TABLE_INT_H

#include "rowset_int.h"

typedef struct hash_table hash_table;

hash_table *hash_table_new(const exec_ctx *ctx, const value_type *types, int nkeys);
void hash_table_free(hash_table *h); /* NULL is fine */
/* entries[k] = the entry of row k's keys, made if absent; NULL equals NULL. New entries are
 * numbered in row order, so row k is a first appearance iff entries[k] is one above all before.
 * rows <= BATCH_ROWS. ERR_FULL. */
int hash_table_add(hash_table *h, const column *keys, int rows, uint32_t *entries, err *e);
/* entries[k] = the entry of row k's keys, or -1.
 * Unless nulls_match, a row with a NULL key has none. */
void hash_table_find(hash_table *h, const column *keys, int rows, bool nulls_match,
                     int64_t *entries);
uint32_t hash_table_count(const hash_table *h);
const rowset *hash_table_keys(const hash_table *h);

#endif
