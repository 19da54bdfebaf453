/* test_storage_csv.c - CSV and TSV: sniffing, cells, errors
 * that name the place, gzip, writing and reading back. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <zlib.h>

#include "file/file_int.h"
#include "storage_help_int.h"

static table_file *open_text(str text, const file_options *options) {
    table_file *c = NULL;
    OK(table_file_open_memory(text.p, text.n, options, &c, &e));
    return c;
}

/* Reads the whole file with its own types, as rows of values, and closes it. */
static void expect_rows(table_file *c, const char *expected) {
    buf out = {0};
    value_type types[64];
    int n = table_file_column_count(c);
    for (int i = 0; i < n; i++) {
        types[i] = table_file_column_type(c, i);
        buf_printf(&out, "%s%.*s:%c", i ? "," : "", (int)table_file_column_name(c, i).n,
                   table_file_column_name(c, i).p, type_name(types[i])[0]);
    }
    arena *mem = arena_new();
    batch b = {.mem = mem};
    do {
        OK(table_file_next(c, types, &b, NULL, &e));
        for (int r = 0; r < b.rows; r++)
            for (int i = 0; i < n; i++) {
                buf_append_c(&out, i ? "," : "|");
                value_print_sql(&out, column_get(&b.cols[i], r));
            }
    } while (b.rows);
    assert_string_equal(out.p, expected);
    arena_free(mem);
    buf_free(&out);
    table_file_close(c);
}

static void expect(const char *text, const file_options *options, const char *expected) {
    expect_rows(open_text(str_from(text), options), expected);
}

static void test_sniffing(void **state) {
    (void)state;
    expect("a,b\n1,x\n2,y\n", NULL, "a:I,b:T|1,'x'|2,'y'");
    expect("a\tb\r\n1.5\tx\r\n", NULL, "a:R,b:T|1.5,'x'");
    expect("a;b;c\n1;2;3", NULL, "a:I,b:I,c:I|1,2,3");
    expect("x|y\ntrue|F\nFALSE|G\n", NULL, "x:B,y:T|TRUE,'F'|FALSE,'G'");
    expect("1,2\n3,4\n", NULL, "column1:I,column2:I|1,2|3,4");
    expect("name,city\nAda,London\nAlan,Wilmslow\n", NULL,
           "name:T,city:T|'Ada','London'|'Alan','Wilmslow'");
    expect("Ada,London\nAda,Paris\n", NULL, "column1:T,column2:T|'Ada','London'|'Ada','Paris'");
    expect("zip,phone\n01234,+49123\n", NULL, "zip:T,phone:T|'01234','+49123'");
    expect("n\n99999999999999999999\n", NULL, "n:T|'99999999999999999999'");
    expect("n,m\n1,\n2.5,\n", NULL, "n:R,m:T|1.0,NULL|2.5,NULL");
    expect("\xef\xbb\xbf"
           "a,b\n1,2\n",
           NULL, "a:I,b:I|1,2");
    expect("a,a,,A\n1,2,3,4\n", NULL, "a:I,a_2:I,column3:I,A_3:I|1,2,3,4");
    expect("a,a_2,A,a_2,a\n1,2,3,4,5\n", NULL, "a:I,a_2:I,A_3:I,a_2_2:I,a_4:I|1,2,3,4,5");
    expect("one\n1\n\n3\n", NULL, "one:I|1|NULL|3");
    expect("a,b\n1,2\n\n3,4\n\n", NULL, "a:I,b:I|1,2|3,4");
    file_options text = {.all_text = true};
    expect("a,b\n1,2\n", &text, "a:T,b:T|'1','2'");
    file_options no_header = {.header = CSV_HEADER_NO, .delimiter = ';'};
    expect("a,b;c\n", &no_header, "column1:T,column2:T|'a,b','c'");
    file_options nulls = {.null_text = STR("NA")};
    expect("a,b\n1,NA\n2,\n", &nulls, "a:I,b:T|1,NULL|2,''");
}

/* One line of very many delimiters: nothing in it may go with the square of the columns, and no
 * batch be made of thousands of rows of them. */
static void test_wide_files(void **state) {
    (void)state;
    enum { COLUMNS = 300000, RECORDS = 20 };
    buf text = {0};
    for (int r = 0; r < RECORDS; r++)
        for (int i = 0; i < COLUMNS; i++)
            buf_append_c(&text, i == COLUMNS - 1 ? "x\n" : i % 2 ? "X," : "x,");
    file_options header = {.header = CSV_HEADER_YES};
    table_file *c = open_text(buf_str(&text), &header);
    assert_int_equal(table_file_column_count(c), COLUMNS);
    assert_true(str_equal(table_file_column_name(c, 1), STR("X_2")));
    assert_true(str_equal(table_file_column_name(c, COLUMNS - 1), STR("x_300000")));
    value_type *types = mem_zalloc(sizeof *types * COLUMNS);
    for (int i = 0; i < COLUMNS; i++)
        types[i] = TYPE_TEXT;
    arena *mem = arena_new();
    batch b = {.mem = mem};
    int rows = 0;
    do {
        OK(table_file_next(c, types, &b, NULL, &e));
        assert_true(arena_bytes(mem) < (size_t)128 << 20);
        rows += b.rows;
        arena_reset(mem);
    } while (b.rows);
    assert_int_equal(rows, RECORDS - 1);
    arena_free(mem);
    free(types);
    table_file_close(c);
    buf_free(&text);
}

static void test_quotes(void **state) {
    (void)state;
    expect("a,b\n\"x,\"\"y\"\"\nz\",1\n", NULL, "a:T,b:I|'x,\"y\"\nz',1");
    expect("a,b\n\"\",\n", NULL, "a:T,b:T|'',NULL");
    expect("a\tb\n5\" disk\t1\n", NULL, "a:T,b:I|'5\" disk',1");
    expect("a,b\r\n\"x\",\"1\"\r\n", NULL, "a:T,b:I|'x',1");
    expect("a,b\n\"x\",\"\"", NULL, "a:T,b:T|'x',''");
    expect("a,b\n1,\"2\"", NULL, "a:I,b:I|1,2");
}

static void read_fails(const char *text, const value_type *types, err_code code,
                       const char *message) {
    table_file *c = open_text(str_from(text), NULL);
    arena *mem = arena_new();
    batch b = {.mem = mem};
    FAILS(code, table_file_next(c, types, &b, NULL, &e));
    assert_string_equal(e.message, message);
    arena_free(mem);
    table_file_close(c);
}

static void test_errors_name_the_place(void **state) {
    (void)state;
    value_type integers[] = {TYPE_INTEGER, TYPE_INTEGER, TYPE_INTEGER};
    value_type mixed[] = {TYPE_TEXT, TYPE_INTEGER, TYPE_REAL};
    read_fails("a,b\n1,2\n3,x4\n", integers, ERR_TYPE,
               "memory, line 3, column \"b\": 'x4' is not an INTEGER");
    read_fails("a,b\n\"two\nlines\",2\n\"and\nmore\",\"\nz\"\n", mixed, ERR_TYPE,
               "memory, line 5, column \"b\": '\nz' is not an INTEGER");
    read_fails("a,b\n1,2\n3\n", integers, ERR_CORRUPT,
               "memory, line 3: 1 cell, but the header has 2");
    read_fails("a,b\n1,2\n3,4,5\n", integers, ERR_CORRUPT,
               "memory, line 3: 3 cells, but the header has 2");
    read_fails("a,b\n1,2\n3,\"4\n", integers, ERR_CORRUPT,
               "memory, line 3: this quote is never closed");
    read_fails("a,b\n1,2\n3,\"4\"x\n", integers, ERR_CORRUPT,
               "memory, line 3: cell 2 has text after its closing quote (write a quote inside "
               "as \"\")");
    table_file *c = NULL;
    FAILS(ERR_CORRUPT, table_file_open_memory("", 0, NULL, &c, &e));
    FAILS(ERR_CORRUPT, table_file_open_memory("a,b\0c", 5, NULL, &c, &e));
    OK(table_file_open_memory("{a},[b]\n1,2\n", 12, NULL, &c, &e));
    table_file_close(c);
    OK(table_file_open_memory("[{,b\n1,2\n", 9, &(file_options){.delimiter = ','}, &c, &e));
    table_file_close(c);
    FAILS(ERR_UNSUPPORTED, table_file_open_memory("\xff\xfe"
                                                  "a",
                                                  3, NULL, &c, &e));
    FAILS(ERR_UNSUPPORTED, table_file_open_memory("a,b\r1,2\r3,4\r", 12, NULL, &c, &e));
    assert_string_equal(e.message, "the lines of 'memory' end in CR alone");
    OK(table_file_open_memory("\"a\rb\",c\r", 8, NULL, &c, &e));
    table_file_close(c);
    FAILS(ERR_IO, table_file_open(scratch("absent.csv"), NULL, &c, &e));
    FAILS(ERR_IO, table_file_open(scratch_dir, NULL, &c, &e));
}

static void test_bytes_that_are_not_utf8(void **state) {
    (void)state;
    table_file *c = open_text(STR("a,b\nok,\xe4\nbad\x80,gr\xc3\xbcn\n"), NULL);
    value_type types[] = {TYPE_TEXT, TYPE_TEXT};
    arena *mem = arena_new();
    batch b = {.mem = mem};
    int64_t lines[BATCH_ROWS], first;
    OK(table_file_next(c, types, &b, lines, &e));
    assert_int_equal(b.rows, 2);
    assert_true(str_equal(b.cols[1].s[0], STR("ä")));
    assert_true(str_equal(b.cols[0].s[1], STR("bad€")));
    assert_true(str_equal(b.cols[1].s[1], STR("grün")));
    assert_int_equal(lines[1], 3);
    assert_int_equal(table_file_recoded(c, &first), 2);
    assert_int_equal(first, 2);
    arena_free(mem);
    table_file_close(c);
}

static void make_big(buf *out, int rows) {
    buf_append_c(out, "id,text,x\n");
    for (int i = 0; i < rows; i++)
        buf_printf(out, "%d,\"line %d\nof \"\"%0*d\"\" text\",%d.5\n", i, i, i % 700 + 1, i, i);
}

static void check_big(const char *path, int rows) {
    table_file *c = NULL;
    OK(table_file_open(path, NULL, &c, &e));
    value_type types[] = {table_file_column_type(c, 0), table_file_column_type(c, 1),
                          table_file_column_type(c, 2)};
    assert_int_equal(types[0], TYPE_INTEGER);
    assert_int_equal(types[2], TYPE_REAL);
    arena *mem = arena_new();
    batch b = {.mem = mem};
    int64_t lines[BATCH_ROWS], seen = 0;
    char text[1000];
    for (;;) {
        arena_reset(mem);
        b.mem = mem;
        OK(table_file_next(c, types, &b, lines, &e));
        if (b.rows == 0)
            break;
        for (int i = 0; i < b.rows; i++, seen++) {
            snprintf(text, sizeof text, "line %d\nof \"%0*d\" text", (int)seen, (int)seen % 700 + 1,
                     (int)seen);
            assert_int_equal(b.cols[0].i[i], seen);
            assert_true(str_equal(b.cols[1].s[i], str_from(text)));
            assert_int_equal(lines[i], 2 + 2 * seen);
        }
    }
    assert_int_equal(seen, rows);
    arena_free(mem);
    table_file_close(c);
}

/* Larger than the window and the sample, plain, gzipped, gzipped in two members, and cut off. */
static void test_files(void **state) {
    (void)state;
    buf big = {0};
    make_big(&big, 12000);
    FILE *f = fopen(scratch("big.csv"), "w");
    fwrite(big.p, 1, big.n, f);
    fclose(f);
    check_big(scratch("big.csv"), 12000);
    for (int members = 1; members <= 2; members++) {
        size_t half = big.n / (size_t)members;
        for (int i = 0; i < members; i++) {
            gzFile z = gzopen(scratch("big.csv.gz"), i ? "ab" : "wb");
            gzwrite(z, big.p + (size_t)i * half,
                    (unsigned)(i == members - 1 ? big.n - (size_t)i * half : half));
            gzclose(z);
        }
        check_big(scratch("big.csv.gz"), 12000);
    }
    struct stat st;
    stat(scratch("big.csv.gz"), &st);
    truncate(scratch("big.csv.gz"), st.st_size - 100);
    table_file *c = NULL;
    OK(table_file_open(scratch("big.csv.gz"), NULL, &c, &e));
    value_type types[] = {TYPE_INTEGER, TYPE_TEXT, TYPE_REAL};
    arena *mem = arena_new();
    batch b = {.rows = 1, .mem = mem};
    int status = 0;
    while (!status && b.rows)
        status = table_file_next(c, types, &b, NULL, &e);
    assert_int_equal(status, ERR_CORRUPT);
    assert_non_null(strstr(e.message, "gzip"));
    arena_free(mem);
    table_file_close(c);
    buf_free(&big);
}

typedef struct pipe_end {
    int fd;
    str text;
} pipe_end;

static void *write_all(void *arg) {
    const pipe_end *p = arg;
    for (size_t done = 0; done < p->text.n;) {
        ssize_t n = write(p->fd, p->text.p + done, p->text.n - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    close(p->fd);
    return NULL;
}

/* Binding looks at a pipe's head, the scan then reads all of it. */
static void test_pipes_are_read_from_where_they_were_looked_at(void **state) {
    (void)state;
    enum { ROWS = 8000 };
    int ends[2];
    char path[32];
    pthread_t writer;
    buf big = {0};
    make_big(&big, ROWS);
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(pthread_create(&writer, NULL, write_all, &(pipe_end){ends[1], buf_str(&big)}),
                     0);
    table_file *c = NULL;
    for (int i = 0; i < 2; i++) {
        OK(table_file_open(path, NULL, &c, &e));
        assert_int_equal(table_file_column_count(c), 3);
        table_file_close(c);
    }
    check_big(path, ROWS);
    pthread_join(writer, NULL);
    FAILS(ERR_CORRUPT, table_file_open(path, NULL, &c, &e));
    assert_non_null(strstr(e.hint, "once"));
    close(ends[0]);
    buf_free(&big);
}

/* What a long record has so far is scanned again with each new window: windows double. */
static void test_long_records_come_in_few_windows(void **state) {
    (void)state;
    enum { BYTES = 8 << 20, WINDOWS = 16 };
    int ends[2], windows = 0;
    char path[32];
    pthread_t writer;
    str text = {calloc(1, BYTES), BYTES};
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(pthread_create(&writer, NULL, write_all, &(pipe_end){ends[1], text}), 0);
    file_input in = {.fd = -1};
    OK(file_input_open(&in, path, NULL, &e));
    for (; !in.eof; windows += in.end >= 256 << 10)
        OK(file_input_more(&in, &e));
    assert_int_equal(in.end, BYTES);
    assert_in_range(windows, 1, WINDOWS);
    file_input_close(&in, false);
    pthread_join(writer, NULL);
    close(ends[0]);
    free((char *)(uintptr_t)text.p);
}

typedef struct later {
    atomic_bool *flag;
    const char *fifo; /* NULL: raise the flag, else write to it */
} later;

static void *do_later(void *arg) {
    const later *l = arg;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    if (l->fifo == NULL) {
        atomic_store(l->flag, true);
        return NULL;
    }
    return write_all(&(pipe_end){open(l->fifo, O_WRONLY), str_from("a,b\n1,2\n")});
}

/* Opens `path` with a flag, while another thread does what `how` says. */
static int open_meanwhile(const char *path, atomic_bool *cancel, const char *fifo, table_file **c) {
    pthread_t other;
    later how = {cancel, fifo};
    assert_int_equal(pthread_create(&other, NULL, do_later, &how), 0);
    int status = table_file_open(path, &(file_options){.cancel = cancel}, c, &e);
    pthread_join(other, NULL);
    return status;
}

static void test_waiting_for_a_pipe_can_be_cancelled(void **state) {
    (void)state;
    atomic_bool cancel = false;
    int ends[2];
    char path[32];
    table_file *c = NULL;
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    FAILS(ERR_CANCELLED, open_meanwhile(path, &cancel, NULL, &c));
    /* with its head read, which the next one to open it still finds */
    assert_int_equal(write(ends[1], "a,b\n1,", 6), 6);
    cancel = false;
    FAILS(ERR_CANCELLED, open_meanwhile(path, &cancel, NULL, &c));
    assert_int_equal(write(ends[1], "2\n", 2), 2);
    close(ends[1]);
    OK(table_file_open(path, NULL, &c, &e));
    expect_rows(c, "a:I,b:I|1,2");
    close(ends[0]);
}

/* A FIFO without a writer is waited for, as long as nobody cancels. */
static void test_fifos(void **state) {
    (void)state;
    atomic_bool cancel = false;
    table_file *c = NULL;
    const char *path = scratch("fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    FAILS(ERR_CANCELLED, open_meanwhile(path, &cancel, NULL, &c));
    cancel = false;
    OK(open_meanwhile(path, &cancel, path, &c));
    expect_rows(c, "a:I,b:I|1,2");
}

/* Whoever guesses the types has seen only the beginning. */
static void test_zero_bytes_far_behind(void **state) {
    (void)state;
    buf text = {0};
    buf_append_c(&text, "a,b\n");
    while (text.n < 2u << 20)
        buf_append_c(&text, "1,some text that is long enough to fill a file soon\n");
    buf_append(&text, "2,a\0b\n", 6);
    FILE *f = fopen(scratch("zero.csv"), "w");
    assert_int_equal(fwrite(text.p, 1, text.n, f), text.n);
    fclose(f);
    table_file *c = NULL;
    OK(table_file_open(scratch("zero.csv"), NULL, &c, &e));
    value_type types[] = {TYPE_INTEGER, TYPE_TEXT};
    arena *mem = arena_new();
    batch b = {.mem = mem};
    int status;
    while ((status = table_file_next(c, types, &b, NULL, &e)) == 0 && b.rows)
        arena_reset(mem);
    assert_int_equal(status, ERR_CORRUPT);
    assert_non_null(strstr(e.message, "a NUL byte"));
    arena_free(mem);
    table_file_close(c);
    buf_free(&text);
}

static void test_written_rows_read_back(void **state) {
    (void)state;
    static const str texts[] = {{"", 0},     {"a", 1},          {" a ", 3}, {"a,b", 3},
                                {"\"", 1},   {"line\nline", 9}, {"\r", 1},  {"日本", 6},
                                {"x\ty", 3}, {"\"\"", 2}};
    for (size_t d = 0; d < 3; d++) {
        char delimiter = ",\t,"[d];
        str null_text = d == 2 ? STR("a") : STR("");
        buf out = {0};
        buf_printf(&out, "a%cb\n", delimiter);
        for (size_t i = 0; i < BASE_COUNT(texts); i++) {
            value row[2] = {value_text(texts[i]),
                            i % 2 ? value_null() : value_text(texts[BASE_COUNT(texts) - 1 - i])};
            csv_write_row(&out, row, 2, delimiter, null_text);
        }
        file_options options = {
            .delimiter = delimiter, .header = CSV_HEADER_YES, .null_text = null_text};
        table_file *c = open_text(buf_str(&out), &options);
        value_type types[] = {TYPE_TEXT, TYPE_TEXT};
        arena *mem = arena_new();
        batch b = {.mem = mem};
        OK(table_file_next(c, types, &b, NULL, &e));
        assert_int_equal(b.rows, BASE_COUNT(texts));
        for (int i = 0; i < b.rows; i++) {
            assert_true(str_equal(b.cols[0].s[i], texts[i]));
            assert_int_equal(column_is_null(&b.cols[1], i), i % 2);
        }
        arena_free(mem);
        table_file_close(c);
        buf_free(&out);
    }
}

/* Numbers that read as NULL does, or hold the delimiter. */
static void test_written_numbers_read_back(void **state) {
    (void)state;
    static const struct {
        char delimiter;
        str null_text;
    } forms[] = {{',', STR("0")}, {';', STR("-1.5")}, {'.', STR("")}, {'1', STR("2")}};
    value rows[][3] = {{value_int(0), value_bool(false), value_real(-1.5)},
                       {value_null(), value_null(), value_null()},
                       {value_int(12), value_bool(true), value_real(1e300)}};
    value_type types[] = {TYPE_INTEGER, TYPE_BOOLEAN, TYPE_REAL};
    for (size_t f = 0; f < BASE_COUNT(forms); f++) {
        buf out = {0};
        for (size_t i = 0; i < BASE_COUNT(rows); i++)
            csv_write_row(&out, rows[i], 3, forms[f].delimiter, forms[f].null_text);
        file_options options = {.delimiter = forms[f].delimiter,
                                .header = CSV_HEADER_NO,
                                .null_text = forms[f].null_text};
        table_file *c = open_text(buf_str(&out), &options);
        arena *mem = arena_new();
        batch b = {.mem = mem};
        OK(table_file_next(c, types, &b, NULL, &e));
        assert_int_equal(b.rows, BASE_COUNT(rows));
        for (int i = 0; i < b.rows; i++)
            for (int k = 0; k < 3; k++) {
                value got = column_get(&b.cols[k], i);
                assert_int_equal(got.type, rows[i][k].type);
                assert_int_equal(value_compare(got, rows[i][k]), 0);
            }
        arena_free(mem);
        table_file_close(c);
        buf_free(&out);
    }
}

/* A file may begin with any text: none is taken for the mark of an encoding, or for JSON. */
static void test_first_cells_read_back(void **state) {
    (void)state;
    static const char *const firsts[] = {"\xef\xbb\xbfmark", "[{a", "[", "{", "{\"a\": 1}"};
    for (size_t i = 0; i < BASE_COUNT(firsts); i++) {
        buf out = {0};
        value first = value_text(str_from(firsts[i])), second = value_text(STR("{\"b\"}"));
        csv_write_row(&out, &first, 1, ',', STR(""));
        csv_write_row(&out, &second, 1, ',', STR(""));
        file_options options = {.header = CSV_HEADER_NO};
        table_file *c = open_text(buf_str(&out), &options);
        value_type type = TYPE_TEXT;
        arena *mem = arena_new();
        batch b = {.mem = mem};
        OK(table_file_next(c, &type, &b, NULL, &e));
        assert_int_equal(b.rows, 2);
        assert_true(str_equal(b.cols[0].s[0], first.s));
        arena_free(mem);
        table_file_close(c);
        buf_free(&out);
    }
}

/* A row's blobs: random bytes, among them those that the format uses. */
static str random_blob(arena *mem) {
    static const char special[] = "\\x\"\n\r,;\t| 0f\xff";
    size_t n = (size_t)rand() % 12;
    char *p = arena_alloc(mem, n + 1);
    for (size_t i = 0; i < n; i++)
        p[i] = rand() % 2 ? (char)rand() : special[(size_t)rand() % sizeof special];
    return (str){p, n};
}

/* Writes blobs as CSV, reads them into BLOB columns, and compares. */
static void check_blobs(char delimiter, str null_text) {
    enum { ROWS = 400 };
    arena *mem = arena_new();
    value(*rows)[3] = arena_alloc(mem, sizeof(value[3]) * ROWS);
    buf out = {0};
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 3; k++)
            rows[i][k] =
                rand() % 5 ? (value){.type = TYPE_BLOB, .s = random_blob(mem)} : value_null();
        csv_write_row(&out, rows[i], 3, delimiter, null_text);
    }
    assert_null(memchr(out.p, 0, out.n));
    file_options options = {
        .delimiter = delimiter, .header = CSV_HEADER_NO, .null_text = null_text};
    table_file *c = open_text(buf_str(&out), &options);
    value_type types[] = {TYPE_BLOB, TYPE_BLOB, TYPE_BLOB};
    batch b = {.mem = mem};
    OK(table_file_next(c, types, &b, NULL, &e));
    assert_int_equal(b.rows, ROWS);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < 3; k++)
            assert_int_equal(value_compare(column_get(&b.cols[k], i), rows[i][k]), 0);
    table_file_close(c);
    buf_free(&out);
    arena_free(mem);
}

static void test_blobs_come_back(void **state) {
    (void)state;
    static const char delimiters[] = ",;\t|x\\a0f";
    static const char *const nulls[] = {"", "NULL", "\\x", "\\xff", "\\N"};
    srand(7);
    for (size_t d = 0; delimiters[d]; d++)
        for (size_t n = 0; n < BASE_COUNT(nulls); n++)
            if (!strchr(nulls[n], delimiters[d])) /* else the mark itself would be cut */
                check_blobs(delimiters[d], str_from(nulls[n]));
}

static void test_blobs_as_others_write_them(void **state) {
    (void)state;
    table_file *c = open_text(STR("a,b\n\\x00FFfe,\"\\x2c\"\n\\x,x\xe4\\x41\n,\"\"\n"), NULL);
    value_type types[] = {TYPE_BLOB, TYPE_BLOB};
    arena *mem = arena_new();
    batch b = {.mem = mem};
    OK(table_file_next(c, types, &b, NULL, &e));
    assert_int_equal(b.rows, 3);
    assert_true(str_equal(b.cols[0].s[0], STR("\0\xff\xfe")));
    assert_true(str_equal(b.cols[1].s[0], STR(",")));
    assert_true(str_equal(b.cols[0].s[1], STR("")));
    assert_true(str_equal(b.cols[1].s[1], STR("x\xe4\\x41"))); /* its own bytes */
    assert_true(column_is_null(&b.cols[0], 2));
    assert_false(column_is_null(&b.cols[1], 2));
    arena_free(mem);
    table_file_close(c);
    read_fails("a,b\n\\x00,1\n\\x0,2\n", types, ERR_TYPE,
               "memory, line 3, column \"a\": '\\x0' is not a BLOB: \\x needs two "
               "hexadecimal digits per byte");
    read_fails("a,b\n1,\\x0g\n", types, ERR_TYPE,
               "memory, line 2, column \"b\": '\\x0g' is not a BLOB: \\x needs two "
               "hexadecimal digits per byte");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sniffing),
        cmocka_unit_test(test_wide_files),
        cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_errors_name_the_place),
        cmocka_unit_test(test_bytes_that_are_not_utf8),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_pipes_are_read_from_where_they_were_looked_at),
        cmocka_unit_test(test_long_records_come_in_few_windows),
        cmocka_unit_test(test_waiting_for_a_pipe_can_be_cancelled),
        cmocka_unit_test(test_fifos),
        cmocka_unit_test(test_zero_bytes_far_behind),
        cmocka_unit_test(test_written_rows_read_back),
        cmocka_unit_test(test_written_numbers_read_back),
        cmocka_unit_test(test_first_cells_read_back),
        cmocka_unit_test(test_blobs_come_back),
        cmocka_unit_test(test_blobs_as_others_write_them),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
