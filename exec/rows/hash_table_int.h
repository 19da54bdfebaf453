/*
 * hash_table_int.h - a hash table of rows: GROUP BY, DISTINCT, joins, set operations, partitions.
 *
 * Each distinct combination of key cells is an entry. Entries are numbered 0, 1, 2, … in order of
 * first appearance; the keys of entry k are row k of hash_table_keys(). Keys are columns of fixed
 * types; they are compared only if their hashes are equal. Ownership: the caller of hash_table_new
 * frees the table.
 */
#ifndef KVASIR_HASH_TABLE_INT_H
#define KVASIR_HASH_TABLE_INT_H

#include "rowset_int.h"

typedef struct hash_table hash_table;

/* Keys and slots are in `memory`. */
hash_table *hash_table_new(mem_budget *memory, const value_type *types, int nkeys);
void hash_table_free(hash_table *h); /* NULL is fine */
/* Sets entries[k] to the entry of row k's keys, which is added if absent. NULL equals NULL. `rows`
 * is at most BATCH_ROWS. ERR_FULL, ERR_IO, ERR_LIMIT. */
int hash_table_add(hash_table *h, const column *keys, int rows, uint32_t *entries, err *e);
/* As hash_table_add; sets new_rows[0..*count) to the rows that added an entry, ascending. */
int hash_table_add_new(hash_table *h, const column *keys, int rows, int *new_rows, int *count,
                       err *e);
/* Sets entries[k] to the entry of row k's keys, or -1 if there is none. Unless nulls_match, a row
 * with a NULL key matches no entry. */
void hash_table_find(hash_table *h, const column *keys, int rows, bool nulls_match,
                     int64_t *entries);
uint32_t hash_table_count(const hash_table *h);
const rowset *hash_table_keys(const hash_table *h);

#endif
