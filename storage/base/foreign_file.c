/*
 * foreign_file.c - the files of other programs that are not text, by their first bytes, and how to
 * get a CSV file out of them.
 */
#include <string.h>

#include "storage/base.h"

/* A signature of letters alone could begin a CSV file: it counts only where control characters
 * follow. {} in a hint is the file's path. */
static const struct {
    size_t at; /* offset of the signature */
    str bytes;
    bool letters;
    const char *name, *hint;
} formats[] = {
    {0, STR("PAR1"), true, "a Parquet file", "duckdb -c \"COPY (FROM '{}') TO '{}.csv'\""},
    {0, STR("PK\3\4"), false, "a ZIP archive, as .xlsx and .ods are",
     "save the table as 'CSV UTF-8'; an archive: unzip -p '{}' | kvasir -c \"SELECT * FROM '-'\""},
    {0, STR("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), false, "an old Microsoft Office file",
     "open it there and save the table as 'CSV UTF-8'"},
    {0, STR("SQLite format 3"), false, "an SQLite database",
     "import a table as CSV: sqlite3 -header -csv '{}' 'SELECT * FROM t' | kvasir NEW \"CREATE "
     "TABLE t AS SELECT * FROM '-'\""},
    {8, STR("DUCK"), true, "a DuckDB database", "duckdb '{}' -c \"COPY t TO 't.csv'\""},
    {16, STR("\xde\xc0\xef\xbe"), false, "an LMDB file",
     "a kvasir database is the directory that the file is in"},
    {0, STR("ARROW1"), true, "an Arrow (Feather) file",
     "python3 -c \"import pandas; pandas.read_feather('{}').to_csv('{}.csv', index=False)\""},
    {0, STR("FEA1"), true, "a Feather file",
     "python3 -c \"import pandas; pandas.read_feather('{}').to_csv('{}.csv', index=False)\""},
    {0, STR("\x28\xb5\x2f\xfd"), false, "compressed with zstd",
     "zstd -dc '{}' | kvasir -c \"SELECT * FROM '-'\"; gzip is read directly"},
    {0,
     STR("\xfd"
         "7zXZ"),
     false, "compressed with xz",
     "xz -dc '{}' | kvasir -c \"SELECT * FROM '-'\"; gzip is read directly"},
    {0, STR("BZh"), true, "compressed with bzip2",
     "bzip2 -dc '{}' | kvasir -c \"SELECT * FROM '-'\"; gzip is read directly"},
    {0, STR("%PDF-"), false, "a PDF file",
     "pdftotext -layout '{}' - shows its text, not its cells"},
    {0, STR("GGUF"), true, "a model file", "CREATE MODEL m FROM '{}', or kvasir --model '{}'"},
    {0, STR("\xff\xfe"), false, "UTF-16 text", "iconv -f UTF-16 -t UTF-8 '{}' > utf8.csv"},
    {0, STR("\xfe\xff"), false, "UTF-16 text", "iconv -f UTF-16 -t UTF-8 '{}' > utf8.csv"},
};

static bool has_control(str s) {
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < '\b')
            return true;
    return false;
}

static void hint_with_path(const char *hint, const char *path, err *e) {
    buf text = {0};
    for (const char *at; (at = strstr(hint, "{}")) != NULL; hint = at + 2) {
        buf_append(&text, hint, (size_t)(at - hint));
        buf_append_c(&text, path);
    }
    buf_append_c(&text, hint);
    err_hint(e, "%s", text.p);
    buf_free(&text);
}

int refuse_foreign_file(err_code code, const char *path, str head, const char *wanted, err *e) {
    bool control = has_control(head);
    for (size_t i = 0; i < BASE_COUNT(formats); i++) {
        str sign = formats[i].bytes;
        if (head.n < formats[i].at + sign.n || (formats[i].letters && !control) ||
            memcmp(head.p + formats[i].at, sign.p, sign.n) != 0)
            continue;
        err_set(e, code, "'%s' is %s%s", path, formats[i].name, wanted);
        hint_with_path(formats[i].hint, path, e);
        return (int)code;
    }
    return 0;
}
