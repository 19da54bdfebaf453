/*
 * notice_int.h - notices: warnings of a statement that did not fail, for stmt_notice.
 */
#ifndef KVASIR_NOTICE_INT_H
#define KVASIR_NOTICE_INT_H

#include "core/exec_ctx_int.h"

/* Adds a line to the statement's notices; printf arguments, without a newline. */
void exec_notice(exec_ctx *ctx, const char *format, ...) BASE_PRINTF(2, 3);
/* Adds a notice if the file has cells that are not valid UTF-8; `file` may be NULL. */
void notice_recoded(exec_ctx *ctx, const char *path, const table_file *file);

#endif
