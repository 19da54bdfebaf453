/*
 * csv_write.c - writes a row as a line of CSV.
 *
 * Invariant: the reader reads back the same cells. A cell is quoted if it is empty, equal to
 * null_text, or has special characters; a BLOB is written in hexadecimal digits (file_int.h).
 */
#include <string.h>

#include "csv_int.h"

/* Whether a file that begins with s would be taken for JSON, or lose a byte order mark. */
static bool begins_oddly(str s) {
    return s.p[0] == '[' || s.p[0] == '{' || (s.n >= 3 && memcmp(s.p, "\xef\xbb\xbf", 3) == 0);
}

static bool needs_quotes(str s, char delimiter, str null_text) {
    if (s.n == 0 || str_equal(s, null_text) || s.p[0] == ' ' || s.p[s.n - 1] == ' ' ||
        begins_oddly(s))
        return true;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == delimiter || s.p[i] == '"' || s.p[i] == '\n' || s.p[i] == '\r')
            return true;
    return false;
}

static void write_text(buf *out, str s, char delimiter, str null_text) {
    if (!needs_quotes(s, delimiter, null_text)) {
        buf_append_str(out, s);
        return;
    }
    buf_append_char(out, '"');
    while (s.n) {
        const char *quote = memchr(s.p, '"', s.n);
        size_t n = quote ? (size_t)(quote - s.p) + 1 : s.n;
        buf_append(out, s.p, n);
        if (quote)
            buf_append_char(out, '"');
        s.p += n;
        s.n -= n;
    }
    buf_append_char(out, '"');
}

static void write_blob(buf *out, str s, char delimiter, str null_text) {
    static const char digits[] = "0123456789abcdef";
    buf text = {0};
    buf_append_c(&text, "\\x");
    for (size_t i = 0; i < s.n; i++) {
        buf_append_char(&text, digits[(unsigned char)s.p[i] >> 4]);
        buf_append_char(&text, digits[(unsigned char)s.p[i] & 15]);
    }
    write_text(out, buf_str(&text), delimiter, null_text);
    buf_free(&text);
}

static void write_vector(buf *out, str v, char delimiter, str null_text) {
    buf text = {0};
    vector_print(&text, v);
    write_text(out, buf_str(&text), delimiter, null_text);
    buf_free(&text);
}

/* Writes a number or a BOOLEAN. It rarely equals null_text or contains the delimiter, so it is printed first and
 * quoted afterwards. */
static void write_number(buf *out, value v, char delimiter, str null_text) {
    size_t start = out->n;
    value_print(out, v);
    str text = {out->p + start, out->n - start};
    if (!str_equal(text, null_text) && !memchr(text.p, delimiter, text.n))
        return;
    buf_append_c(out, "\"\"");
    memmove(out->p + start + 1, out->p + start, text.n);
    out->p[start] = '"';
}

void csv_write_row(buf *out, const value *row, int n, char delimiter, str null_text) {
    for (int i = 0; i < n; i++) {
        if (i)
            buf_append_char(out, delimiter);
        if (row[i].type == TYPE_TEXT)
            write_text(out, row[i].s, delimiter, null_text);
        else if (row[i].type == TYPE_VECTOR)
            write_vector(out, row[i].s, delimiter, null_text);
        else if (row[i].type == TYPE_BLOB)
            write_blob(out, row[i].s, delimiter, null_text);
        else if (row[i].type == TYPE_NULL)
            buf_append_str(out, null_text);
        else
            write_number(out, row[i], delimiter, null_text);
    }
    buf_append_char(out, '\n');
}
