/*
 * notice.c - notices: warnings of a statement that did not fail.
 *
 * Invariant: the worker adds lines while the statement runs; the caller reads them after its end.
 */
#include <stdarg.h>
#include <stdio.h>

#include "notice_int.h"

void exec_notice(exec_ctx *ctx, const char *format, ...) {
    char line[512];
    va_list args;
    if (!ctx->notices)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (ctx->notices->n)
        buf_append_char(ctx->notices, '\n');
    buf_append_c(ctx->notices, line);
}

void notice_recoded(exec_ctx *ctx, const char *path, const table_file *file) {
    int64_t line, cells = file ? table_file_recoded(file, &line) : 0;
    if (cells == 1)
        exec_notice(ctx, "'%s': a cell on line %lld is not UTF-8: read as Windows-1252", path,
                    (long long)line);
    else if (cells > 1)
        exec_notice(ctx,
                    "'%s': %lld cells are not UTF-8, the first on line %lld: read as Windows-1252",
                    path, (long long)cells, (long long)line);
}
