/*
 * fuzz_csv.c - any bytes as a CSV file: read as the sniffed types, as texts, blobs and vectors; what was
 * read as texts or blobs is written, read again, and must be the same. What comes from a pipe in
 * pieces, as it is or gzipped, must read as what lies in memory.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "file/file_int.h"

enum { PIPE_BYTES = 1 << 18, PIECE_MAX = 4096, LONG_BYTES = 3 << 19, LONG_EVERY = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all rows and closes the reader, every column as `type` or (NULL) as sniffed; `copy`, when
 * there, gets them as CSV. False when the file is refused. */
static bool read_rows(table_file *c, value_type type, buf *copy) {
    err e;
    int ncolumns = table_file_column_count(c), status;
    value_type *types = malloc(sizeof *types * (size_t)ncolumns);
    value *row = malloc(sizeof *row * (size_t)ncolumns);
    arena *mem = arena_new();
    batch b = {.rows = 1, .mem = mem};
    for (int i = 0; i < ncolumns; i++)
        types[i] = type == TYPE_NULL ? table_file_column_type(c, i) : type;
    do {
        arena_reset(mem);
        b.mem = mem;
        status = table_file_next(c, types, &b, NULL, &e);
        for (int r = 0; !status && copy && r < b.rows; r++) {
            for (int i = 0; i < ncolumns; i++)
                row[i] = column_get(&b.cols[i], r);
            csv_write_row(copy, row, ncolumns, ',', STR(""));
        }
    } while (!status && b.rows);
    arena_free(mem);
    free(row);
    free(types);
    table_file_close(c);
    return status == 0;
}

static bool read_all(const void *bytes, size_t n, const file_options *options, value_type type,
                     buf *copy) {
    table_file *c = NULL;
    err e;
    return table_file_open_memory(bytes, n, options, &c, &e) == 0 && read_rows(c, type, copy);
}

/* A pipe that gives the bytes in many pieces, one a read; -1: it has not the room. */
static int pieces_pipe(const uint8_t *p, size_t n) {
    int ends[2], room;
    if (pipe2(ends, O_CLOEXEC | O_DIRECT | O_NONBLOCK) != 0)
        return -1;
    room = BASE_MAX(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES), 16 * PIECE_MAX);
    size_t piece = n / ((size_t)room / PIECE_MAX) + 1, at = 0;
    while (at < n && piece <= PIECE_MAX) {
        ssize_t put = write(ends[1], p + at, BASE_MIN(piece, n - at));
        if (put <= 0)
            break;
        at += (size_t)put;
    }
    close(ends[1]);
    if (at == n)
        return ends[0];
    close(ends[0]);
    return -1;
}

/* What memory holds in full, `whole` as CSV, is the same when it comes from a file; closes that. */
static void check_file(int fd, const file_options *options, str whole) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    table_file *c = NULL;
    err e;
    buf copy = {0};
    if (table_file_open(path, options, &c, &e) != 0 || !read_rows(c, TYPE_NULL, &copy) ||
        !str_equal(buf_str(&copy), whole))
        abort();
    buf_free(&copy);
    close(fd);
}

static void check_pieces(const uint8_t *p, size_t n, const file_options *options, str whole) {
    int fd = pieces_pipe(p, n);
    if (fd >= 0)
        check_file(fd, options, whole);
}

static void check_gzipped(const uint8_t *p, size_t n, const file_options *options, str whole) {
    z_stream z = {0};
    if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return;
    size_t bound = deflateBound(&z, n);
    uint8_t *out = malloc(bound);
    z.next_in = (uint8_t *)(uintptr_t)p;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)bound;
    if (deflate(&z, Z_FINISH) == Z_STREAM_END)
        check_pieces(out, z.total_out, options, whole);
    deflateEnd(&z);
    free(out);
}

/* Over and over, past what the sniffer looks at and the window holds. */
static void check_long(const uint8_t *p, size_t n) {
    buf text = {0}, whole = {0};
    while (text.n < LONG_BYTES)
        buf_append(&text, p, n);
    if (read_all(text.p, text.n, NULL, TYPE_NULL, &whole)) {
        int fd = memfd_create("csv", MFD_CLOEXEC);
        if (fd >= 0 && write(fd, text.p, text.n) == (ssize_t)text.n)
            check_file(fd, NULL, buf_str(&whole));
        else if (fd >= 0)
            close(fd);
    }
    buf_free(&text);
    buf_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const value_type kinds[] = {TYPE_TEXT, TYPE_BLOB, TYPE_VECTOR};
    file_options texts = {.all_text = true, .header = CSV_HEADER_NO};
    file_options written = {.all_text = true, .header = CSV_HEADER_NO, .delimiter = ','};
    buf sniffed = {0};
    bool gzip = size >= 2 && memcmp(data, "\x1f\x8b", 2) == 0; /* a file's, which memory is not */
    if (read_all(data, size, NULL, TYPE_NULL, &sniffed) && !gzip) {
        uint64_t draw = hash64(data, size, 1);
        if (draw % LONG_EVERY == 0 && size > 8)
            check_long(data, size);
        else if (draw % 2)
            check_pieces(data, size, NULL, buf_str(&sniffed));
        else
            check_gzipped(data, size, NULL, buf_str(&sniffed));
    }
    buf_free(&sniffed);
    for (size_t k = 0; k < BASE_COUNT(kinds); k++) {
        buf first = {0}, second = {0};
        if (read_all(data, size, &texts, kinds[k], &first) && first.n > 0) {
            bool zero = memchr(first.p, 0, first.n) != NULL;
            if (kinds[k] == TYPE_BLOB && zero)
                abort(); /* digits alone */
            if (!zero && (!read_all(first.p, first.n, &written, kinds[k], &second) ||
                          !str_equal(buf_str(&first), buf_str(&second))))
                abort();
        }
        buf_free(&first);
        buf_free(&second);
    }
    return 0;
}
