/*
 * op_scan_int.h - table scans whose keys an index join sets at run time.
 */
#ifndef KVASIR_OP_SCAN_INT_H
#define KVASIR_OP_SCAN_INT_H

#include "op_int.h"

extern const op_class op_scan;

/* For a `keyed` scan, before its first op_next: looks up the rows of these keys, a column for each of
 * its bounds; NULL matches nothing. May be called repeatedly; then call op_scan_found. */
int op_scan_keys(op *o, const column *keys, int rows, err *e);
void op_scan_found(op *o);              /* the scan returns the rows found */
size_t op_scan_found_rows(const op *o); /* so far; a row found twice counts twice */
/* Makes the scan read the whole table instead. */
int op_scan_whole(op *o, err *e);

#endif
