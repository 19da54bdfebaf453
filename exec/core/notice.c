/*
 * notice.c - what a statement tells beside its result: files read in another encoding, a model file
 * that changed.
 *
 * Invariant: the worker adds lines while the statement runs, the caller reads them once it has
 * finished; a notice never changes what the statement does.
 */
#include <stdarg.h>
#include <stdio.h>

#include "stmt/db_int.h"

void exec_notice(exec_ctx *ctx, const char *format, ...) {
    stmt *s = ctx->publish_ctx;
    char line[512];
    va_list args;
    if (!s)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (s->notice.n)
        buf_append_char(&s->notice, '\n');
    buf_append_c(&s->notice, line);
}

const char *stmt_notice(const stmt *s) {
    return s->notice.n ? s->notice.p : "";
}

void notice_recoded(exec_ctx *ctx, const char *path, const csv *file) {
    int64_t line, cells = file ? csv_recoded(file, &line) : 0;
    if (cells == 1)
        exec_notice(ctx, "%s: a cell on line %lld is not UTF-8: read as Windows-1252", path,
                    (long long)line);
    else if (cells > 1)
        exec_notice(ctx,
                    "%s: %lld cells are not UTF-8, the first on line %lld: read as Windows-1252",
                    path, (long long)cells, (long long)line);
}
