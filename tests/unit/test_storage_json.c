/* test_storage_json.c - JSON: columns and types, cells, errors that name the place, large files,
 * pipes, keys that the caller names. */
#include <pthread.h>
#include <zlib.h>

#include "file/file_int.h"
#include "storage_help_int.h"

static table_file *open_text(const char *text, const file_options *options) {
    table_file *f = NULL;
    OK(table_file_open_memory(text, strlen(text), options, &f, &e));
    return f;
}

/* Reads the whole file with its own types, as rows of values, and closes it. */
static void expect_rows(table_file *f, const char *expected) {
    buf out = {0};
    value_type types[64];
    int n = table_file_column_count(f);
    for (int i = 0; i < n; i++) {
        str name = table_file_column_name(f, i);
        types[i] = table_file_column_type(f, i);
        buf_printf(&out, "%s%.*s:%c", i ? "," : "", (int)name.n, name.p, type_name(types[i])[0]);
    }
    arena *mem = arena_new();
    batch b = {.mem = mem};
    do {
        OK(table_file_next(f, types, &b, NULL, &e));
        for (int r = 0; r < b.rows; r++)
            for (int i = 0; i < n; i++) {
                buf_append_c(&out, i ? "," : "|");
                value_print_sql(&out, column_get(&b.cols[i], r));
            }
    } while (b.rows);
    assert_string_equal(out.p, expected);
    arena_free(mem);
    buf_free(&out);
    table_file_close(f);
}

static void expect(const char *text, const char *expected) {
    expect_rows(open_text(text, NULL), expected);
}

static void test_columns(void **state) {
    (void)state;
    expect("{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n", "a:I,b:T|1,'x'|2,'y'");
    expect(" [ {\"a\" : 1 } ,\r\n\t{ \"a\":2 }\n] \n", "a:I|1|2");
    expect("\xef\xbb\xbf{\"a\":1}{\"a\":2}", "a:I|1|2");
    expect("[{\"b\":1},{},{\"a\":true,\"b\":null}]", "b:I,a:B|1,NULL|NULL,NULL|NULL,TRUE");
    expect("{\"a\":1,\"A\":2,\"\":3,\"a_2\":4}", "a:I,A_2:I,column3:I,a_2_2:I|1,2,3,4");
    expect("{\"a\":1,\"b\":2}{\"b\":3,\"a\":4}{\"\\u0061\":5}", "a:I,b:I|1,2|4,3|5,NULL");
    expect_rows(open_text("{\"a\":1,\"b\":[true]}", &(file_options){.all_text = true}),
                "a:T,b:T|'1','[true]'");
}

static void test_types(void **state) {
    (void)state;
    expect("{\"a\":1}{\"a\":2.5}{\"a\":-3e2}", "a:R|1.0|2.5|-300.0");
    expect("{\"a\":null}", "a:T|NULL");
    expect("{\"a\":false}{\"a\":0}", "a:T|'false'|'0'");
    expect("{\"a\":1}{\"a\":\"1\"}{\"a\":1.50}", "a:T|'1'|'1'|'1.50'");
    expect("{\"a\":9223372036854775807}", "a:I|9223372036854775807");
    expect("{\"a\":9223372036854775808}{\"a\":1}", "a:T|'9223372036854775808'|'1'");
    expect("{\"a\":1e999}", "a:T|'1e999'");
    expect("{\"a\":{\"b\": [1, {}]},\"c\":[ ]}", "a:T,c:T|'{\"b\": [1, {}]}','[ ]'");
}

static void test_strings(void **state) {
    (void)state;
    expect("{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "a:T|'\"\\/\b\f\n\r\t'");
    expect("{\"a\":\"\\u00e4\\u20AC\\ud83d\\uDE00x\"}", "a:T|'ä€😀x'");
    expect("{\"a\":\"\"}{\"a\":\"null\"}", "a:T|''|'null'");
    expect("{\"a\":\"{\\\"}[\",\"b\":[\"]}\"]}", "a:T,b:T|'{\"}[','[\"]}\"]'");
}

static void fails(const char *text, err_code code, const char *message) {
    table_file *f = NULL;
    FAILS(code,
          table_file_open_memory(text, strlen(text), &(file_options){.format = FILE_JSON}, &f, &e));
    assert_string_equal(e.message, message);
}

static void test_errors_name_the_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"a\":1}\n{\"a\":1,\"b\":{\"c\":[NaN]}}",
         "memory, line 2, key \"b\": JSON has no NaN: write null"},
        {"{\"a\":-Infinity}", "memory, line 1, key \"a\": expected a digit, found 'Infinity'"},
        {"{\"a\":1,\n\"b\":2,\n\"a\":3}",
         "memory, line 3, key \"a\": the object has this key twice"},
        {"{\"a\":1,\n\"b\":[1,\n}", "memory, line 3, key \"b\": expected a value, found '}'"},
        {"{\"a\":01}", "memory, line 1, key \"a\": a number cannot begin with 0"},
        {"{\"a\":1.}", "memory, line 1, key \"a\": expected a digit, found '}'"},
        {"{\"a\":tru}", "memory, line 1, key \"a\": expected a value, found 'tru'"},
        {"{'a':1}", "memory, line 1: expected a key in double quotes, found a single quote"},
        {"{\"a\" 1}", "memory, line 1: expected ':', found a number"},
        {"{\"a\":1 \"b\":2}", "memory, line 1, key \"a\": expected ',' or '}', found a string"},
        {"{\"a\":\"x\ny\"}", "memory, line 1, key \"a\": this string is not closed on its line "
                             "(write \\n for a line end)"},
        {"{\"a\":\"x\ty\"}", "memory, line 1, key \"a\": a control character in a string must be "
                             "written as \\u0009"},
        {"{\"a\":\"\\x\"}", "memory, line 1, key \"a\": a backslash must be written as \\\\"},
        {"{\"a\":\"\\u12g4\"}", "memory, line 1, key \"a\": \\u needs four hexadecimal digits"},
        {"{\"a\":\"\\ud800\"}", "memory, line 1, key \"a\": \\ud800 is half of a character: no "
                                "second half after it"},
        {"{\"a\":\"\\ud800\\ud800\"}", "memory, line 1, key \"a\": \\ud800 is half of a character: "
                                       "no second half after it"},
        {"{\"a\":\"\\udc00\"}", "memory, line 1, key \"a\": \\udc00 is half of a character: no "
                                "first half before it"},
        {"{\"a\":\"ok\",\"b\":\"\xc3\x28\"}",
         "memory, line 1, key \"b\": the byte 0xc3 is not UTF-8"},
        {"{\"a\":\"\xed\xa0\x80\"}", "memory, line 1, key \"a\": the byte 0xed is not UTF-8"},
        {"{\"a\":1}\n{\"a\":[1,", "memory, line 2: the file ends inside this object"},
        {"{\"a\":1}\n,{\"a\":2}", "memory, line 2: expected an object, found ','"},
        {"{\"a\":1}\n\"x\"", "memory, line 2: expected an object, found a string"},
        {"[{\"a\":1},{\"a\":}]",
         "memory, line 1, object 2, key \"a\": expected a value, found '}'"},
        {"[{\"a\":1} {\"a\":2}]", "memory, line 1, object 1: expected ',' or ']', found an object"},
        {"[{\"a\":1},]", "memory, line 1, object 2: expected an object, found ']'"},
        {"[{\"a\":1}", "memory, line 1, object 1: expected ',' or ']', found the end of the file"},
        {"[{\"a\":1}]\n[", "memory, line 2: expected the end of the file after the array, found an "
                           "array"},
        {"[[1]]", "memory, line 1: element 1 of the array is an array, not an object"},
        {"[]", "'memory' has no object with a key, so no columns"},
        {"{} {}", "'memory' has no object with a key, so no columns"},
        {" \n", "'memory' is empty"}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++)
        fails(cases[i].text, ERR_CORRUPT, cases[i].message);
}

/* 500 levels are read, more are an error and not a stack overflow. */
static void test_depth(void **state) {
    (void)state;
    for (int levels = 500; levels <= 1000000; levels += 999500) {
        buf text = {0};
        table_file *f = NULL;
        buf_append_c(&text, "{\"a\":");
        for (int i = 1; i < levels; i++)
            buf_append_char(&text, '[');
        for (int i = 1; i < levels; i++)
            buf_append_char(&text, ']');
        buf_append_c(&text, "}");
        if (levels == 500) {
            OK(table_file_open_memory(text.p, text.n, NULL, &f, &e));
            table_file_close(f);
        } else {
            FAILS(ERR_CORRUPT, table_file_open_memory(text.p, text.n, NULL, &f, &e));
            assert_string_equal(e.message,
                                "memory, line 1, key \"a\": nested deeper than 500 levels");
        }
        buf_free(&text);
    }
}

static int read_all(table_file *f, const value_type *types, int64_t *rows, int64_t *last_line) {
    arena *mem = arena_new();
    batch b = {.mem = mem};
    int64_t lines[BATCH_ROWS];
    int status;
    *rows = 0;
    while ((status = table_file_next(f, types, &b, lines, &e)) == 0 && b.rows) {
        for (int i = 0; i < b.rows; i++)
            if (!column_is_null(&b.cols[0], i))
                assert_int_equal(b.cols[0].i[i], *rows + i);
        *rows += b.rows;
        *last_line = lines[b.rows - 1];
        arena_reset(mem);
        b.mem = mem;
    }
    arena_free(mem);
    return status;
}

enum { ROWS = 120000 };

/* More than the sample: an array over several lines per object. */
static void make_big(buf *out, const char *last) {
    buf_append_c(out, "[\n");
    for (int i = 0; i < ROWS; i++)
        buf_printf(out, "{\"id\": %d,\n \"text\": \"%0*d \\u00e4\", \"n\": [%d, {\"m\": null}]},\n",
                   i, i % 97 + 1, i, i);
    buf_printf(out, "%s\n]\n", last);
}

static void check_big(const char *path, int64_t rows) {
    table_file *f = NULL;
    OK(table_file_open(path, NULL, &f, &e));
    value_type types[] = {table_file_column_type(f, 0), table_file_column_type(f, 1),
                          table_file_column_type(f, 2)};
    assert_int_equal(types[0], TYPE_INTEGER);
    int64_t seen, line;
    OK(read_all(f, types, &seen, &line));
    assert_int_equal(seen, rows);
    assert_int_equal(line, 2 + 2 * (rows - 1));
    table_file_close(f);
}

static void test_files(void **state) {
    (void)state;
    buf big = {0};
    make_big(&big, "{\"id\": null}");
    FILE *f = fopen(scratch("big.json"), "w");
    fwrite(big.p, 1, big.n, f);
    fclose(f);
    check_big(scratch("big.json"), ROWS + 1);
    gzFile z = gzopen(scratch("big.json.gz"), "wb1");
    gzwrite(z, big.p, (unsigned)big.n);
    gzclose(z);
    check_big(scratch("big.json.gz"), ROWS + 1);
    buf_free(&big);
}

/* Keys and types are detected from the beginning only. */
static void test_what_comes_after_the_sample(void **state) {
    (void)state;
    static const struct {
        const char *last;
        err_code code;
        const char *message;
    } cases[] = {
        {"{\"id\": 1, \"late\": 2}", ERR_CORRUPT,
         "memory, line 240002, object 120001, key \"late\": this key is not in the first "
         "8 MB, from which the columns are detected"},
        {"{\"id\": \"x\"}", ERR_TYPE,
         "memory, line 240002, object 120001, key \"id\": 'x' is not an INTEGER"},
        {"{\"id\": 1", ERR_CORRUPT,
         "memory, line 240003, object 120001, key \"id\": expected ',' or '}', found ']'"}};
    value_type types[] = {TYPE_INTEGER, TYPE_TEXT, TYPE_TEXT};
    int64_t rows, line;
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        buf big = {0};
        make_big(&big, cases[i].last);
        table_file *f = NULL;
        OK(table_file_open_memory(big.p, big.n, NULL, &f, &e));
        assert_int_equal(table_file_column_count(f), 3);
        FAILS(cases[i].code, read_all(f, types, &rows, &line));
        assert_string_equal(e.message, cases[i].message);
        table_file_close(f);
        buf_free(&big);
    }
}

static void test_objects_have_a_limit(void **state) {
    (void)state;
    size_t n = ((size_t)64 << 20) + 100;
    char *text = malloc(n);
    memset(text, 'x', n);
    memcpy(text, "{\"a\":\"", 6);
    memcpy(text + n - 2, "\"}", 2);
    table_file *f = NULL;
    FAILS(ERR_LIMIT, table_file_open_memory(text, n, NULL, &f, &e));
    assert_string_equal(e.message, "memory, line 1: this object is longer than 64 MB");
    free(text);
}

/* The caller names keys in any case; others are ignored wherever they are, missing ones are NULL. */
static void test_named_keys(void **state) {
    (void)state;
    str keys[] = {STR("b"), STR("none"), STR("A")};
    file_options o = {.keys = keys, .nkeys = 3};
    expect_rows(open_text("[{\"a\":1,\"x\":[2],\"B\":3},{\"x\":2,\"x\":3}]", &o),
                "b:T,none:T,A:T|'3',NULL,'1'|NULL,NULL,NULL");
    table_file *f = open_text("{\"a\":1,\"A\":2}", &o);
    value_type types[] = {TYPE_TEXT, TYPE_TEXT, TYPE_INTEGER};
    int64_t rows, line;
    FAILS(ERR_CORRUPT, read_all(f, types, &rows, &line));
    assert_string_equal(e.message, "memory, line 1, key \"A\": the object has this key twice");
    table_file_close(f);
}

typedef struct pipe_end {
    int fd;
    str text;
} pipe_end;

static void *write_all(void *arg) {
    const pipe_end *p = arg;
    for (size_t done = 0; done < p->text.n;) {
        ssize_t n = write(p->fd, p->text.p + done, BASE_MIN(p->text.n - done, (size_t)5000));
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    close(p->fd);
    return NULL;
}

/* Binding looks at a pipe's head, brackets and all; the scan then reads it from its beginning. */
static void test_pipes_are_read_from_where_they_were_looked_at(void **state) {
    (void)state;
    int ends[2];
    char path[32];
    pthread_t writer;
    buf big = {0};
    make_big(&big, "{\"id\": null}");
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(pthread_create(&writer, NULL, write_all, &(pipe_end){ends[1], buf_str(&big)}),
                     0);
    table_file *f = NULL;
    OK(table_file_open(path, NULL, &f, &e));
    table_file_close(f);
    check_big(path, ROWS + 1);
    pthread_join(writer, NULL);
    close(ends[0]);
    buf_free(&big);
}

/* By name or content; a delimiter or FILE_CSV means CSV. */
static void test_which_files_are_json(void **state) {
    (void)state;
    table_file *f = NULL;
    FILE *out = fopen(scratch("words.ndjson"), "w");
    fputs("a,b\n1,2\n", out);
    fclose(out);
    FAILS(ERR_CORRUPT, table_file_open(scratch("words.ndjson"), NULL, &f, &e));
    assert_non_null(strstr(e.message, "line 1: expected an object, found 'a'"));
    file_options csv = {.format = FILE_CSV}, comma = {.delimiter = ','}, header = {.header = 1};
    OK(table_file_open(scratch("words.ndjson"), &csv, &f, &e));
    expect_rows(f, "a:I,b:I|1,2");
    expect_rows(open_text("[{,b\n1,2\n", &comma), "[{:I,b:I|1,2");
    expect_rows(open_text("{a},[b]\n1,2\n", NULL), "{a}:I,[b]:I|1,2");
    fails("a,b\n", ERR_CORRUPT, "memory, line 1: expected an object, found 'a'");
    FAILS(ERR_UNSUPPORTED, table_file_open_memory("{\"a\":1}", 7, &header, &f, &e));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_errors_name_the_place),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_what_comes_after_the_sample),
        cmocka_unit_test(test_objects_have_a_limit),
        cmocka_unit_test(test_named_keys),
        cmocka_unit_test(test_pipes_are_read_from_where_they_were_looked_at),
        cmocka_unit_test(test_which_files_are_json),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
