/*
 * op_scan_int.h - table scans whose keys an index join sets at run time.
 */
#ifndef KVASIR_OP_SCAN_INT_H
#define KVASIR_OP_SCAN_INT_H

#include "op_int.h"

extern const op_class op_scan;

/* For a `keyed` scan, before its first op_next: finds the rows with the keys keys[k][0 … rows - 1],
 * where column k is for bound k. Keys with a NULL match nothing. May be called repeatedly; after
 * the last call, call op_scan_found. */
int op_scan_keys(op *o, const column *keys, int rows, err *e);
void op_scan_found(op *o);              /* makes the scan return the rows found */
size_t op_scan_found_rows(const op *o); /* rows found so far; a row found twice counts twice */
/* Makes a scan of a whole table, before its first op_next, return only the rows with these rowids. */
void op_scan_list(op *o, const rowid_list *rows); /* takes the list's memory */
/* Makes the scan read the whole table instead. */
int op_scan_whole(op *o, err *e);

#endif
