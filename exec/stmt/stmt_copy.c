/*
 * stmt_copy.c - COPY t FROM 'f.csv' or 'f.json', and COPY t TO 'f.csv'.
 *
 * Invariant: COPY FROM converts every cell to its column's type; a cell that does not convert is an
 * error with file, line, column and value, and no row of the file is stored. COPY TO writes a
 * temporary file that replaces the target when it is complete, so a failure leaves the old file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "ops/op_int.h"
#include "row_sink_int.h"

/* ---- COPY FROM ------------------------------------------------------------------------------- */

typedef struct copy_map {
    int nfile;         /* number of columns of the file */
    int *table_column; /* [file column] the table column to which it is copied */
    value_type *types; /* [file column] type of the table column */
    bool *from_file;   /* [table column] whether it is in the file; if not, it gets its default */
} copy_map;

static int column_named(const table_def *t, str name) {
    for (int c = 0; c < t->ncolumns; c++)
        if (str_equal_nocase(name, t->columns[c].name))
            return c;
    return -1;
}

/* Returns the table column for column k of a file whose columns have names but no order; -1, with
 * an error, if there is none. */
static int match_name(const sql_stmt *x, const table_file *file, int k, err *e) {
    str path = x->copy.path, table = x->table->name, name = table_file_column_name(file, k);
    int c = column_named(x->table, name);
    if (c >= 0)
        return c;
    err_set(e, ERR_CORRUPT, "'%.*s': the key \"%.*s\" is no column of \"%.*s\"", (int)path.n,
            path.p, (int)name.n, name.p, (int)table.n, table.p);
    err_hint(e, "COPY %.*s (…) FROM '%.*s' reads the keys that it names", (int)table.n, table.p,
             (int)path.n, path.p);
    return -1;
}

static int map_columns(stmt *s, const sql_stmt *x, table_file *file, copy_map *m, err *e) {
    const table_def *t = x->table;
    bool by_name = table_file_by_name(file) && x->copy.ncolumns == 0;
    int given = x->copy.ncolumns ? x->copy.ncolumns : t->ncolumns;
    m->nfile = table_file_column_count(file);
    if (m->nfile != given && !by_name)
        return err_set(e, ERR_CORRUPT, "'%.*s' has %d column%s, but the target has %d",
                       (int)x->copy.path.n, x->copy.path.p, m->nfile, m->nfile == 1 ? "" : "s",
                       given);
    m->table_column = ARENA_ARRAY(s->mem, int, BASE_MAX(m->nfile, 1));
    m->types = ARENA_ARRAY(s->mem, value_type, BASE_MAX(m->nfile, 1));
    m->from_file = ARENA_ARRAY(s->mem, bool, t->ncolumns);
    for (int k = 0; k < m->nfile; k++) {
        int c = x->copy.ncolumns ? x->copy.columns[k] : by_name ? match_name(x, file, k, e) : k;
        if (c < 0)
            return ERR_CORRUPT;
        m->table_column[k] = c;
        m->types[k] = t->columns[c].type;
        m->from_file[c] = true;
    }
    return 0;
}

/* CSV's columns are matched by position, as in psql and duckdb. Adds a notice if the file's header names
 * suggest another order. */
static void notice_order(stmt *s, const sql_stmt *x, const table_file *file, const copy_map *m) {
    const table_def *t = x->table;
    bool by_position = !table_file_by_name(file) && x->copy.ncolumns == 0;
    for (int k = 0; k < m->nfile && by_position; k++) {
        str name = table_file_column_name(file, k), into = t->columns[m->table_column[k]].name;
        for (int c = 0; c < t->ncolumns; c++) {
            if (str_equal_nocase(name, into) || !str_equal_nocase(name, t->columns[c].name))
                continue;
            exec_notice(
                &s->ctx,
                "'%.*s': column \"%.*s\" was read into \"%.*s\": columns are matched by position; "
                "COPY %.*s (%.*s, …) sets another order",
                (int)x->copy.path.n, x->copy.path.p, (int)name.n, name.p, (int)into.n, into.p,
                (int)t->name.n, t->name.p, (int)name.n, name.p);
            return;
        }
    }
}

/* Sets the columns that are not in the file to their defaults. */
static int fill_defaults(const sql_stmt *x, const copy_map *m, int rows, arena *mem, batch *out,
                         err *e) {
    for (int c = 0; c < x->table->ncolumns; c++) {
        if (m->from_file[c])
            continue;
        column *to = &out->cols[c];
        column_init(to, mem, x->table->columns[c].type, rows, false);
        for (int k = 0; k < rows; k++) {
            value v = value_null();
            int status =
                x->defaults && x->defaults[c] ? eval_value(x->defaults[c], NULL, 0, mem, &v, e) : 0;
            if (status)
                return status;
            column_set(to, mem, rows, k, v);
        }
    }
    return 0;
}

static void report_rows(stmt *s, int64_t rows) {
    exec_progress p = {.rows_done = (uint64_t)rows, .phase = "copying"};
    progress_publish(&s->progress, &p);
}

static int copy_rows(stmt *s, const sql_stmt *x, table_file *file, copy_map *m, row_sink *w,
                     err *e) {
    int64_t lines[BATCH_ROWS];
    arena *mem = arena_new();
    batch in, out = {.ncols = x->table->ncolumns};
    int status;
    out.cols = ARENA_ARRAY(s->mem, column, BASE_MAX(out.ncols, 1));
    w->lines = lines;
    for (;;) {
        arena_reset(mem);
        in = (batch){.mem = mem};
        if ((status = table_file_next(file, m->types, &in, lines, e)) != 0 || in.rows == 0)
            break;
        for (int k = 0; k < m->nfile; k++)
            out.cols[m->table_column[k]] = in.cols[k];
        out.rows = in.rows;
        out.mem = mem;
        if ((status = fill_defaults(x, m, in.rows, mem, &out, e)) != 0 ||
            (status = row_sink_write(w, &out, e)) != 0)
            break;
        report_rows(s, w->rows);
    }
    w->lines = NULL;
    arena_free(mem);
    return status;
}

int stmt_copy_from(stmt *s, sql_stmt *x, err *e) {
    table_file *file;
    copy_map m;
    row_sink w;
    const char *path = arena_strndup(s->mem, x->copy.path.p, x->copy.path.n);
    file_options options = x->copy.options;
    options.own_types = true;
    options.cancel = &s->cancel;
    options.nkeys = x->copy.ncolumns;
    str *keys = options.nkeys ? ARENA_ARRAY(s->mem, str, options.nkeys) : NULL;
    for (int k = 0; k < options.nkeys; k++)
        keys[k] = x->table->columns[x->copy.columns[k]].name;
    options.keys = keys;
    int status = table_file_open(path, &options, &file, e);
    if (status)
        return status;
    row_sink_init(&w, s, x, x->table);
    w.path = path;
    if ((status = map_columns(s, x, file, &m, e)) == 0)
        status = copy_rows(s, x, file, &m, &w, e);
    if (status == 0)
        status = row_sink_end(&w, e);
    if (status == 0)
        notice_order(s, x, file, &m);
    s->changes = w.changes;
    row_sink_free(&w);
    notice_recoded(&s->ctx, path, file);
    table_file_close(file);
    return status;
}

/* ---- COPY TO --------------------------------------------------------------------------------- */

typedef struct copy_file {
    const char *path;
    const atomic_bool *cancel;
    gzFile file;        /* plain text is also written through zlib, in transparent mode */
    const char *target; /* the file that `part` replaces at the end */
    const char *part;   /* the temporary file; NULL: `path` is written directly */
    char delimiter;
    str null_text;
    buf text;
} copy_file;

enum { PIECE = 4 << 20 }; /* bytes buffered before a write */

static bool ends_with(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n >= m && strcmp(path + n - m, suffix) == 0;
}

/* Creates a temporary file beside the target, which replaces the target when complete: the query
 * may read the file that it writes, and a failure must not lose the old file. Killed processes with
 * the same process id may have left temporary files, so several names are tried. Returns -1 on
 * failure. */
static int part_create(copy_file *f, const struct stat *old, arena *mem) {
    enum { TRIES = 1000 };
    char *real = realpath(f->path, NULL); /* follows links */
    f->target = real ? arena_strndup(mem, real, strlen(real)) : f->path;
    free(real);
    int fd = -1;
    for (int k = 0; k < TRIES && fd < 0 && (k == 0 || errno == EEXIST); k++) {
        f->part = arena_printf(mem, "%s.%ld.%d.part", f->target, (long)getpid(), k);
        fd = open(f->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (fd >= 0 && old)
        /* if the system refuses, the file keeps the mode of a new file */
        (void)fchmod(fd, old->st_mode & 07777);
    if (fd < 0)
        f->part = NULL;
    return fd;
}

/* Opens a named pipe once it has a reader. Returns -1 on failure, with errno ECANCELED if the
 * statement was cancelled. */
static int fifo_open(const copy_file *f) {
    enum { POLL_MS = 20 };
    int fd;
    while ((fd = open(f->path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0 && errno == ENXIO) {
        if (atomic_load(f->cancel)) {
            errno = ECANCELED;
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000}, NULL);
    }
    if (fd >= 0)
        fcntl(fd, F_SETFL, O_WRONLY); /* blocking writes */
    return fd;
}

/* Opens the file to write: a temporary file, or the path itself if it is a pipe, a device
 * (/dev/stdout may be a regular file to which others write too) or a link to a file that does not
 * exist, or if no file can be created in its directory. */
static int file_open(copy_file *f, arena *mem) {
    struct stat st;
    bool there = stat(f->path, &st) == 0;
    bool dangling_link = !there && lstat(f->path, &st) == 0;
    bool direct =
        dangling_link || (there && !S_ISREG(st.st_mode)) || strncmp(f->path, "/dev/", 5) == 0;
    if (there && access(f->path, W_OK) != 0)
        return -1;
    if (there && S_ISFIFO(st.st_mode))
        return fifo_open(f);
    int fd = direct ? -1 : part_create(f, there ? &st : NULL, mem);
    return fd >= 0 ? fd : open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

static int file_create(copy_file *f, const sql_stmt *x, arena *mem, err *e) {
    f->path = arena_strndup(mem, x->copy.path.p, x->copy.path.n);
    f->null_text = x->copy.options.null_text;
    f->delimiter = x->copy.options.delimiter;
    if (!f->delimiter)
        f->delimiter = ends_with(f->path, ".tsv") || ends_with(f->path, ".tsv.gz") ? '\t' : ',';
    if (f->null_text.n && memchr(f->null_text.p, f->delimiter, f->null_text.n))
        return err_set(e, ERR_BIND, "the text for NULL cannot contain the delimiter");
    errno = 0;
    int fd = strcmp(f->path, "-") == 0 ? dup(STDOUT_FILENO) : file_open(f, mem);
    if (fd < 0 && errno == ECANCELED)
        return err_set(e, ERR_CANCELLED, "cancelled");
    if (fd < 0)
        return err_set_errno(e, errno, "cannot write '%s'", f->path);
    f->file = gzdopen(fd, ends_with(f->path, ".gz") ? "wb6" : "wbT");
    if (f->file)
        return 0;
    close(fd);
    if (f->part)
        unlink(f->part);
    return err_set(e, ERR_FULL, "not enough memory to write '%s'", f->path);
}

static int file_flush(copy_file *f, err *e) {
    errno = 0;
    if (f->text.n && gzfwrite(f->text.p, 1, f->text.n, f->file) != f->text.n)
        return err_set_errno(e, errno ? errno : EIO, "cannot write '%s'", f->path);
    buf_clear(&f->text);
    return 0;
}

static void file_header(copy_file *f, const sql_stmt *x, arena *mem) {
    int n = x->query->ncols;
    value *names = ARENA_ARRAY(mem, value, BASE_MAX(n, 1));
    if (x->copy.options.header == CSV_HEADER_NO)
        return;
    for (int c = 0; c < n; c++)
        names[c] = value_text(x->query->cols[c].name);
    csv_write_row(&f->text, names, n, f->delimiter, f->null_text);
}

static int write_rows(stmt *s, copy_file *f, op *root, err *e) {
    batch *b;
    int status;
    value *row = ARENA_ARRAY(s->mem, value, BASE_MAX(s->ctx.plan->root->ncols, 1));
    s->changes = 0;
    while ((status = op_next(root, &b, e)) == 0 && b) {
        for (int k = 0; k < b->rows; k++) {
            for (int c = 0; c < b->ncols; c++)
                row[c] = column_get(&b->cols[c], k);
            csv_write_row(&f->text, row, b->ncols, f->delimiter, f->null_text);
            if (f->text.n >= PIECE && (status = file_flush(f, e)) != 0)
                break;
        }
        if (status || (status = file_flush(f, e)) != 0)
            break;
        s->changes += b->rows;
        report_rows(s, s->changes);
    }
    return status ? status : file_flush(f, e);
}

static int file_end(copy_file *f, int status, err *e) {
    struct stat st;
    errno = 0;
    int rc = gzclose(f->file);
    if (status == 0 && rc != Z_OK)
        status = err_set_errno(e, errno ? errno : EIO, "cannot write '%s'", f->path);
    if (status == 0 && f->part && rename(f->part, f->target) != 0)
        status = err_set_errno(e, errno, "cannot write '%s'", f->path);
    const char *written = f->part ? f->part : f->path;
    if (status && stat(written, &st) == 0 && S_ISREG(st.st_mode))
        unlink(written);
    buf_free(&f->text);
    return status;
}

int stmt_copy_to(stmt *s, sql_stmt *x, err *e) {
    copy_file f = {.cancel = &s->cancel};
    rowset *rows = NULL;
    op *root = NULL;
    int status = stmt_plan(s, x, e);
    if (status)
        return status;
    /* runs all calls before the file is created: a failed call must not change an existing file */
    if (s->ctx.plan->has_llm) {
        rows = rowset_new(&s->ctx, s->ctx.plan->root->types, s->ctx.plan->root->ncols);
        status = stmt_run_plan(s, rows, e);
        if (status == 0)
            s->ctx.kept.ready[s->ctx.plan->root->number] = rows; /* freed with the plan */
        else
            rowset_free(rows);
    }
    if (status == 0)
        status = op_build(&s->ctx, s->ctx.plan->root, &root, e);
    if (status == 0 && (status = file_create(&f, x, s->mem, e)) == 0) {
        file_header(&f, x, s->mem);
        status = write_rows(s, &f, root, e);
        status = file_end(&f, status, e);
    }
    op_close(root);
    return status;
}
