/*
 * value.c - values: type names, comparison, hashing, conversion, printing.
 *
 * Invariants: value_compare(a, b) == 0 implies value_hash(a) == value_hash(b); INTEGER and REAL are
 * compared exactly, without rounding an INTEGER to a double.
 */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/base.h"

static const struct {
    const char *name;
    value_type type;
} type_names[] = {
    {"INTEGER", TYPE_INTEGER},
    {"INT", TYPE_INTEGER},
    {"BIGINT", TYPE_INTEGER},
    {"SMALLINT", TYPE_INTEGER},
    {"TINYINT", TYPE_INTEGER},
    {"INT8", TYPE_INTEGER},
    {"INT4", TYPE_INTEGER},
    {"INT2", TYPE_INTEGER},
    {"REAL", TYPE_REAL},
    {"DOUBLE", TYPE_REAL},
    {"DOUBLE PRECISION", TYPE_REAL},
    {"FLOAT", TYPE_REAL},
    {"FLOAT8", TYPE_REAL},
    {"FLOAT4", TYPE_REAL},
    {"NUMERIC", TYPE_REAL},
    {"DECIMAL", TYPE_REAL},
    {"TEXT", TYPE_TEXT},
    {"VARCHAR", TYPE_TEXT},
    {"CHAR", TYPE_TEXT},
    {"STRING", TYPE_TEXT},
    {"DATE", TYPE_TEXT},
    {"TIME", TYPE_TEXT},
    {"TIMESTAMP", TYPE_TEXT},
    {"DATETIME", TYPE_TEXT},
    {"BOOLEAN", TYPE_BOOLEAN},
    {"BOOL", TYPE_BOOLEAN},
    {"BLOB", TYPE_BLOB},
    {"BYTEA", TYPE_BLOB},
    {"VECTOR", TYPE_VECTOR},
};

const char *type_name(value_type t) {
    switch (t) {
    case TYPE_NULL:
        return "NULL";
    case TYPE_BOOLEAN:
        return "BOOLEAN";
    case TYPE_INTEGER:
        return "INTEGER";
    case TYPE_REAL:
        return "REAL";
    case TYPE_TEXT:
        return "TEXT";
    case TYPE_BLOB:
        return "BLOB";
    case TYPE_VECTOR:
        return "VECTOR";
    }
    return NULL;
}

bool type_parse(str name, value_type *out) {
    for (size_t i = 0; i < BASE_COUNT(type_names); i++)
        if (str_equal_nocase(name, str_from(type_names[i].name))) {
            *out = type_names[i].type;
            return true;
        }
    return false;
}

void type_print(buf *b, value_type t, int dims) {
    buf_append_c(b, type_name(t));
    if (dims)
        buf_printf(b, "(%d)", dims);
}

value value_copy(arena *a, value v) {
    if (type_is_bytes(v.type))
        v.s = str_copy(a, v.s);
    return v;
}

/* ---- comparison and hashing ------------------------------------------------------------------ */

static int class_of(value_type t) {
    switch (t) {
    case TYPE_NULL:
        return 0;
    case TYPE_BOOLEAN:
    case TYPE_INTEGER:
    case TYPE_REAL:
        return 1;
    case TYPE_TEXT:
        return 2;
    case TYPE_BLOB:
        return 3;
    case TYPE_VECTOR:
        break;
    }
    return 4;
}

static int compare_int(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

/* Compares i with r exactly. If r is within int64's range, compares i with r's integer part, then
 * looks at r's fraction. */
static int compare_int_real(int64_t i, double r) {
    if (isnan(r))
        return 1;
    if (r >= 9223372036854775808.0)
        return -1;
    if (r < -9223372036854775808.0)
        return 1;
    int64_t whole = (int64_t)r;
    int c = compare_int(i, whole);
    if (c)
        return c;
    double fraction = r - (double)whole;
    return (fraction < 0) - (fraction > 0);
}

static int compare_real(double a, double b) {
    if (isnan(a) || isnan(b))
        return isnan(b) - isnan(a);
    return (a > b) - (a < b);
}

int value_compare(value a, value b) {
    int ca = class_of(a.type), cb = class_of(b.type);
    if (ca != cb)
        return ca - cb;
    if (ca == 0)
        return 0;
    if (ca >= 2)
        return bytes_compare(a.type, a.s, b.s);
    if (a.type != TYPE_REAL && b.type != TYPE_REAL)
        return compare_int(a.i, b.i);
    if (a.type != TYPE_REAL)
        return compare_int_real(a.i, b.r);
    if (b.type != TYPE_REAL)
        return -compare_int_real(b.i, a.r);
    return compare_real(a.r, b.r);
}

uint64_t value_hash(value v) {
    switch (v.type) {
    case TYPE_NULL:
        return 0x6b7661736972u;
    case TYPE_BOOLEAN:
    case TYPE_INTEGER:
        return hash_mix(1, (uint64_t)v.i);
    case TYPE_REAL:
        if (v.r >= -9223372036854775808.0 && v.r < 9223372036854775808.0 && v.r == floor(v.r))
            return hash_mix(1, (uint64_t)(int64_t)v.r);
        if (isnan(v.r))
            return hash_mix(2, 0);
        {
            uint64_t bits;
            memcpy(&bits, &v.r, sizeof bits);
            return hash_mix(2, bits);
        }
    case TYPE_TEXT:
    case TYPE_BLOB:
    case TYPE_VECTOR:
        break;
    }
    return hash64(v.s.p, v.s.n, (uint64_t)v.type);
}

/* ---- text to numbers and back ---------------------------------------------------------------- */

bool parse_integer(str s, int64_t *out) {
    size_t i = 0;
    bool negative = false;
    if (s.n && (s.p[0] == '-' || s.p[0] == '+')) {
        negative = s.p[0] == '-';
        i = 1;
    }
    if (i == s.n)
        return false;
    int64_t n = 0; /* negated, because -INT64_MIN overflows */
    for (; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_sub_overflow(n, s.p[i] - '0', &n))
            return false;
    }
    if (!negative && n == INT64_MIN)
        return false;
    *out = negative ? n : -n;
    return true;
}

/* Whether s is digits with an optional sign, '.' and exponent. Checked because strtod also accepts
 * hex, nan, inf and leading blanks. */
static bool looks_real(str s) {
    size_t i = 0, digits = 0;
    if (i < s.n && (s.p[i] == '-' || s.p[i] == '+'))
        i++;
    for (; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
        digits++;
    if (i < s.n && s.p[i] == '.')
        for (i++; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
            digits++;
    if (!digits)
        return false;
    if (i < s.n && (s.p[i] == 'e' || s.p[i] == 'E')) {
        i++;
        if (i < s.n && (s.p[i] == '-' || s.p[i] == '+'))
            i++;
        size_t first = i;
        while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
            i++;
        if (i == first)
            return false;
    }
    return i == s.n;
}

/* Returns the C locale: numbers are parsed and printed the same in every locale. */
static locale_t c_locale(void) {
    static _Atomic(locale_t) made;
    locale_t l = atomic_load(&made);
    if (!l) {
        l = newlocale(LC_ALL_MASK, "C", NULL);
        locale_t expected = NULL;
        if (!atomic_compare_exchange_strong(&made, &expected, l)) {
            freelocale(l);
            l = expected;
        }
    }
    return l;
}

/* Parses numbers of at most 15 digits, in a tenth of strtod's time: digits and power of ten are
 * exact doubles, so their quotient is rounded correctly (Clinger 1990). */
static bool parse_short_real(str s, double *out) {
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    size_t i = s.n && s.p[0] == '-', decimals = 0, digits = 0;
    int64_t n = 0;
    bool point = false;
    for (; i < s.n; i++) {
        if (s.p[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (s.p[i] < '0' || s.p[i] > '9' || ++digits > 15)
            return false;
        n = n * 10 + (s.p[i] - '0');
        decimals += point;
    }
    if (!digits)
        return false;
    double r = (double)n / powers[decimals];
    *out = s.p[0] == '-' ? -r : r;
    return true;
}

bool parse_real(str s, double *out) {
    if (parse_short_real(s, out))
        return true;
    if (!looks_real(s))
        return false;
    char small[64];
    char *text = s.n < sizeof small ? small : mem_alloc(s.n + 1);
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    *out = strtod_l(text, NULL, c_locale());
    if (text != small)
        free(text);
    return isfinite(*out);
}

size_t format_real(double r, char *out) {
    if (isnan(r))
        return (size_t)snprintf(out, 32, "nan");
    if (isinf(r))
        return (size_t)snprintf(out, 32, r < 0 ? "-inf" : "inf");
    locale_t before = uselocale(c_locale());
    int n = 0;
    /* Fewer than 15 digits need not be tried: if they suffice, %.15g prints the same digits,
     * because it drops trailing zeros. This is not so for subnormal numbers. */
    for (int digits = fabs(r) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        n = snprintf(out, 32, "%.*g", digits, r);
        if (strtod(out, NULL) == r)
            break;
    }
    uselocale(before);
    if (!strpbrk(out, ".e"))
        n += snprintf(out + n, 32 - (size_t)n, ".0");
    return (size_t)n;
}

double real_rounded(double r, int decimals) {
    enum { EXACT = 22 }; /* powers of ten up to here are exact doubles */
    if (r == 0 || !isfinite(r))
        return r;
    int places = BASE_MAX(decimals, 2 - (int)floor(log10(fabs(r))));
    double scale = pow(10, BASE_MIN(places, EXACT)), scaled = r * scale;
    return places <= EXACT && isfinite(scaled) ? round(scaled) / scale : r;
}

void value_print(buf *b, value v) {
    char text[32];
    switch (v.type) {
    case TYPE_NULL:
        return;
    case TYPE_BOOLEAN:
        buf_append_c(b, v.i ? "true" : "false");
        return;
    case TYPE_INTEGER:
        buf_printf(b, "%lld", (long long)v.i);
        return;
    case TYPE_REAL:
        buf_append(b, text, format_real(v.r, text));
        return;
    case TYPE_TEXT:
    case TYPE_BLOB:
        buf_append_str(b, v.s);
        return;
    case TYPE_VECTOR:
        vector_print(b, v.s);
        return;
    }
}

void value_print_sql(buf *b, value v) {
    if (v.type == TYPE_NULL) {
        buf_append_c(b, "NULL");
    } else if (v.type == TYPE_BOOLEAN) {
        buf_append_c(b, v.i ? "TRUE" : "FALSE");
    } else if (v.type == TYPE_TEXT) {
        buf_append_char(b, '\'');
        for (size_t i = 0; i < v.s.n; i++) {
            if (v.s.p[i] == '\'')
                buf_append_char(b, '\'');
            buf_append_char(b, v.s.p[i]);
        }
        buf_append_char(b, '\'');
    } else if (v.type == TYPE_BLOB) {
        buf_append_c(b, "X'");
        for (size_t i = 0; i < v.s.n; i++)
            buf_printf(b, "%02x", (unsigned char)v.s.p[i]);
        buf_append_char(b, '\'');
    } else if (v.type == TYPE_VECTOR) {
        buf_append_char(b, '\'');
        vector_print(b, v.s);
        buf_append_char(b, '\'');
    } else {
        value_print(b, v);
    }
}

void buf_append_json(buf *out, str text) {
    static const char short_names[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    buf_append_char(out, '"');
    for (size_t i = 0; i < text.n;) {
        unsigned char c = (unsigned char)text.p[i];
        const char *name = c ? strchr(short_names, c) : NULL;
        if (c < 0x80) {
            if (name != NULL && (name - short_names) % 2 == 0)
                buf_printf(out, "\\%c", name[1]);
            else if (c == '"' || c == '\\')
                buf_printf(out, "\\%c", c);
            else if (c < 0x20)
                buf_printf(out, "\\u%04x", c);
            else
                buf_append_char(out, (char)c);
            i++;
            continue;
        }
        uint32_t cp; /* U+FFFD for invalid UTF-8, which JSON readers refuse */
        size_t n = utf8_next((str){text.p + i, text.n - i}, &cp);
        char encoded[4];
        buf_append(out, encoded, utf8_encode(cp, encoded));
        i += n;
    }
    buf_append_char(out, '"');
}

void value_print_json(buf *out, value v) {
    switch (v.type) {
    case TYPE_NULL:
        buf_append_c(out, "null");
        return;
    case TYPE_REAL:
        if (!isfinite(v.r)) /* JSON has no NaN or infinity */
            buf_append_c(out, "null");
        else
            value_print(out, v);
        return;
    case TYPE_BOOLEAN:
    case TYPE_INTEGER:
        value_print(out, v);
        return;
    case TYPE_TEXT:
        buf_append_json(out, v.s);
        return;
    case TYPE_VECTOR:
        vector_print(out, v.s);
        return;
    case TYPE_BLOB:
        buf_append_char(out, '"');
        for (size_t i = 0; i < v.s.n; i++)
            buf_printf(out, "%02x", (unsigned char)v.s.p[i]);
        buf_append_char(out, '"');
        return;
    }
}

/* ---- conversion ------------------------------------------------------------------------------ */

bool parse_boolean(value v, bool *on) {
    static const char *const words[] = {"off", "on", "false", "true", "no", "yes", "0", "1"};
    if (v.type == TYPE_BOOLEAN || (v.type == TYPE_INTEGER && (v.i == 0 || v.i == 1))) {
        *on = v.i != 0;
        return true;
    }
    for (size_t i = 0; v.type == TYPE_TEXT && i < BASE_COUNT(words); i++)
        if (str_equal_nocase(v.s, str_from(words[i]))) {
            *on = i % 2 != 0;
            return true;
        }
    return false;
}

/* Accepts t and f as well, as in PostgreSQL's COPY format. */
static bool text_to_boolean(str s, int64_t *out) {
    bool on = str_equal_nocase(s, STR("t"));
    bool valid = on || str_equal_nocase(s, STR("f")) || parse_boolean(value_text(s), &on);
    *out = on;
    return valid;
}

static bool real_to_integer(double r, int64_t *out) {
    if (!(r >= -9223372036854775808.0 && r < 9223372036854775808.0))
        return false;
    *out = (int64_t)r;
    return true;
}

static bool text_to_number(value_type to, str s, value *out) {
    s = str_trim(s, " \t");
    if (to == TYPE_BOOLEAN)
        return text_to_boolean(s, &out->i);
    if (to == TYPE_REAL)
        return parse_real(s, &out->r);
    double r;
    return parse_integer(s, &out->i) ||
           (parse_real(s, &r) && r == trunc(r) && real_to_integer(r, &out->i));
}

static bool cast_to_number(value v, value_type to, value *out) {
    if (v.type == TYPE_TEXT)
        return text_to_number(to, v.s, out);
    if (type_is_bytes(v.type))
        return false;
    if (to == TYPE_REAL) {
        out->r = v.type == TYPE_REAL ? v.r : (double)v.i;
        return true;
    }
    if (to == TYPE_BOOLEAN) {
        out->i = v.type == TYPE_REAL ? v.r != 0 : v.i != 0;
        return true;
    }
    if (v.type == TYPE_REAL)
        return real_to_integer(v.r, &out->i);
    out->i = v.i;
    return true;
}

static int refuse(value v, value_type to, err *e) {
    buf b = {0};
    value_print_sql(&b, v);
    if (b.n > 100) {
        b.n = utf8_fit((str){b.p, b.n}, 97);
        buf_append_c(&b, "…");
    }
    err_set(e, ERR_TYPE, "%s is not %s %s", b.p, to == TYPE_INTEGER ? "an" : "a", type_name(to));
    buf_free(&b);
    return ERR_TYPE;
}

int value_cast(arena *a, value v, value_type to, value *out, err *e) {
    if (v.type == to || v.type == TYPE_NULL) {
        *out = v;
        return 0;
    }
    *out = (value){.type = to, .i = 0};
    if (to == TYPE_BLOB && v.type == TYPE_TEXT) {
        out->s = v.s;
        return 0;
    }
    if (to == TYPE_TEXT) {
        buf b = {0};
        value_print(&b, v);
        if (v.type == TYPE_BLOB && !utf8_valid(v.s)) {
            buf_free(&b);
            return err_set(e, ERR_TYPE, "the BLOB is not UTF-8 text");
        }
        out->s = str_copy(a, buf_str(&b));
        buf_free(&b);
        return 0;
    }
    if (to == TYPE_VECTOR && v.type == TYPE_TEXT)
        return vector_parse(a, v.s, &out->s, e);
    if (!type_is_bytes(to) && cast_to_number(v, to, out))
        return 0;
    return refuse(v, to, e);
}

int value_assign(arena *a, value v, value_type to, value *out, err *e) {
    if (v.type == TYPE_REAL && to == TYPE_INTEGER && v.r != trunc(v.r))
        return refuse(v, to, e);
    return value_cast(a, v, to, out, e);
}
