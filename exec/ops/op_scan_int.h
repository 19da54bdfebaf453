/*
 * op_scan_int.h - reading a table by keys that only the run knows, for index joins.
 */
#ifndef KVASIR_OP_SCAN_INT_H
#define KVASIR_OP_SCAN_INT_H

#include "op_int.h"

extern const op_class op_scan;

/* Of a scan that is `keyed`, before its first op_next: looks up the rows of these keys (as many
 * columns as it has bounds; NULL matches nothing), any number of times; then op_scan_found. */
int op_scan_keys(op *o, const column *keys, int rows, err *e);
void op_scan_found(op *o);
size_t op_scan_found_rows(const op *o); /* so far, those of equal keys again */
/* There are too many keys: reads the whole table instead. */
int op_scan_whole(op *o, err *e);

#endif
