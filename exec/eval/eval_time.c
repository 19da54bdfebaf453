/*
 * eval_time.c - date and time functions as in sqlite: values as ISO 8601 text, modifiers, strftime.
 *
 * Invariant: results are within the years 0000 to 9999. If a text is not a time, a modifier
 * is unknown or the result is out of range, the result is NULL, so that one bad cell does not end a
 * query over a column. Only literals in the statement cause errors.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "eval_parts_int.h"

#define DAY_MS INT64_C(86400000)
#define UNIX_EPOCH_MS INT64_C(210866760000000) /* 1970-01-01 as jd_ms */
#define FIRST_MS INT64_C(148699540800000)      /* 0000-01-01 00:00:00 */
#define LAST_MS INT64_C(464269060799999)       /* 9999-12-31 23:59:59.999 */

typedef struct moment {
    /* Julian day times DAY_MS: the milliseconds since noon UTC on 24 November 4714 BC (proleptic
     * Gregorian). */
    int64_t jd_ms;
    /* The time was given as a number, which the modifiers 'unixepoch' and 'auto' may
     * reinterpret. */
    bool is_number;
    double number;  /* the number as given, if is_number */
    bool subsecond; /* print milliseconds */
} moment;

typedef struct civil {
    int year, month, day, hour, minute;
    int64_t ms; /* milliseconds since the minute began */
} civil;

static int64_t jd_of(int year, int month, int day) {
    if (month <= 2) {
        year--;
        month += 12;
    }
    int a = year / 100, b = 2 - a + a / 4;
    int64_t x1 = INT64_C(36525) * (year + 4716) / 100, x2 = INT64_C(306001) * (month + 1) / 10000;
    return (int64_t)(((double)(x1 + x2 + day + b) - 1524.5) * (double)DAY_MS);
}

static void civil_of(int64_t jd_ms, civil *c) {
    int z = (int)((jd_ms + DAY_MS / 2) / DAY_MS);
    int alpha = (int)((z - 1867216.25) / 36524.25);
    int a = z + 1 + alpha - alpha / 4, b = a + 1524;
    int century = (int)((b - 122.1) / 365.25), d = (36525 * (century & 32767)) / 100;
    int e = (int)((b - d) / 30.6001);
    c->day = b - d - (int)(30.6001 * e);
    c->month = e < 14 ? e - 1 : e - 13;
    c->year = c->month > 2 ? century - 4716 : century - 4715;
    int64_t ms = (jd_ms + DAY_MS / 2) % DAY_MS;
    c->hour = (int)(ms / 3600000);
    c->minute = (int)(ms / 60000 % 60);
    c->ms = ms % 60000;
}

/* ---- reading a time -------------------------------------------------------------------------- */

/* Reads a number of exactly `digits` digits and advances *p. Returns false if there is none, or if
 * it is not within [low, high]. */
static bool read_digits(const char **p, int digits, int low, int high, int *out) {
    int n = 0;
    for (int k = 0; k < digits; k++) {
        if (!isdigit((unsigned char)(*p)[k]))
            return false;
        n = n * 10 + ((*p)[k] - '0');
    }
    *p += digits;
    *out = n;
    return n >= low && n <= high;
}

/* Reads HH:MM[:SS[.SSS]] as milliseconds; advances *p. */
static bool read_clock(const char **p, int64_t *ms, bool *fraction) {
    int h, m, s = 0;
    double part = 0;
    if (!read_digits(p, 2, 0, 24, &h) || *(*p)++ != ':' || !read_digits(p, 2, 0, 59, &m))
        return false;
    if (**p == ':') {
        ++*p;
        if (!read_digits(p, 2, 0, 59, &s))
            return false;
        if (**p == '.' && isdigit((unsigned char)(*p)[1])) {
            double scale = 0.1;
            for (++*p; isdigit((unsigned char)**p); ++*p, scale /= 10)
                part += (**p - '0') * scale;
            *fraction = true;
        }
    }
    *ms = ((int64_t)h * 60 + m) * 60000 + (int64_t)s * 1000 + (int64_t)(part * 1000 + 0.5);
    return true;
}

/* Reads an optional Z, +HH:MM or -HH:MM to the end of the text. Sets *shift to the milliseconds to
 * add to get UTC. */
static bool read_zone(const char *p, int64_t *shift) {
    int h, m;
    *shift = 0;
    while (isspace((unsigned char)*p))
        p++;
    if (*p == '+' || *p == '-') {
        int sign = *p++ == '+' ? -1 : 1;
        if (!read_digits(&p, 2, 0, 14, &h) || *p++ != ':' || !read_digits(&p, 2, 0, 59, &m))
            return false;
        *shift = (int64_t)sign * (h * 60 + m) * 60000;
    } else if (*p == 'Z' || *p == 'z') {
        p++;
    }
    while (isspace((unsigned char)*p))
        p++;
    return *p == 0;
}

static bool read_iso(const char *p, moment *m) {
    int year = 2000, month = 1, day = 1;
    int64_t ms = 0, shift = 0;
    bool fraction = false;
    const char *start = p;
    if (read_digits(&p, 4, 0, 9999, &year) && *p == '-') {
        p++;
        if (!read_digits(&p, 2, 1, 12, &month) || *p++ != '-' || !read_digits(&p, 2, 1, 31, &day))
            return false;
        while (isspace((unsigned char)*p) || *p == 'T')
            p++;
        m->jd_ms = jd_of(year, month, day);
        if (*p == 0)
            return true;
    } else {
        p = start;
        m->jd_ms = jd_of(2000, 1, 1);
    }
    if (!read_clock(&p, &ms, &fraction) || !read_zone(p, &shift))
        return false;
    m->jd_ms += ms + shift;
    return true;
}

static bool set_number(moment *m, double r) {
    m->is_number = true;
    m->number = r;
    if (r >= 0 && r < 5373484.5)
        m->jd_ms = (int64_t)(r * (double)DAY_MS + 0.5);
    else
        m->jd_ms = -1; /* not a Julian day; a modifier may reinterpret it */
    return true;
}

static bool read_time(value v, moment *m) {
    char text[64];
    double r;
    *m = (moment){0};
    if (v.type == TYPE_INTEGER || v.type == TYPE_BOOLEAN)
        return set_number(m, (double)v.i);
    if (v.type == TYPE_REAL)
        return set_number(m, v.r);
    if (v.s.n >= sizeof text)
        return false;
    memcpy(text, v.s.p, v.s.n);
    text[v.s.n] = 0;
    if (strcasecmp(text, "now") == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        m->jd_ms = UNIX_EPOCH_MS + (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
        return true;
    }
    if (read_iso(text, m))
        return true;
    return parse_real(v.s, &r) && set_number(m, r);
}

/* ---- modifiers ------------------------------------------------------------------------------- */

static int64_t local_offset_ms(int64_t utc_jd_ms) {
    time_t t = (time_t)((utc_jd_ms - UNIX_EPOCH_MS) / 1000);
    struct tm local;
    return localtime_r(&t, &local) ? (int64_t)local.tm_gmtoff * 1000 : 0;
}

static bool to_utc(moment *m) {
    int64_t guess = m->jd_ms - local_offset_ms(m->jd_ms);
    /* takes the offset at the UTC time `guess`, not at the local time read as UTC */
    m->jd_ms -= local_offset_ms(guess);
    return true;
}

static void add_months(moment *m, double months) {
    civil c;
    civil_of(m->jd_ms, &c);
    int64_t whole = (int64_t)months, at = (int64_t)c.year * 12 + c.month - 1 + whole;
    int64_t in_day = (m->jd_ms + DAY_MS / 2) % DAY_MS;
    int64_t year = at >= 0 ? at / 12 : -1;
    if (year < 0 || year > 9999) {
        m->jd_ms = -1;
        return;
    }
    m->jd_ms = jd_of((int)year, (int)(at % 12) + 1, c.day) + in_day;
    m->jd_ms += (int64_t)((months - (double)whole) * 30 * (double)DAY_MS);
}

/* Adds n units, as in `+3 days`, `-1.5 hours`, `2 months`. */
static bool add_units(moment *m, double n, const char *unit) {
    static const struct {
        const char *name;
        double ms;  /* length of the unit; 0: the unit is a number of months */
        int months; /* number of months in the unit, or 0 */
    } units[] = {{"second", 1000, 0},  {"minute", 60000, 0}, {"hour", 3600000, 0},
                 {"day", 86400000, 0}, {"month", 0, 1},      {"year", 0, 12}};
    size_t len = strlen(unit);
    if (len && (unit[len - 1] == 's' || unit[len - 1] == 'S'))
        len--;
    for (size_t k = 0; k < BASE_COUNT(units); k++) {
        if (strlen(units[k].name) != len || strncasecmp(unit, units[k].name, len) != 0)
            continue;
        if (fabs(n) > 1e13)
            return false;
        if (units[k].months)
            add_months(m, n * units[k].months);
        else if (fabs(n * units[k].ms) < 1e15)
            m->jd_ms += (int64_t)(n * units[k].ms + (n < 0 ? -0.5 : 0.5));
        else
            return false;
        return true;
    }
    return false;
}

static bool modify_shift(moment *m, const char *text) {
    const char *p = text;
    int sign = *p == '-' ? -1 : 1;
    int64_t ms;
    bool fraction = false;
    if (*p == '+' || *p == '-')
        p++;
    const char *clock = p;
    if (read_clock(&clock, &ms, &fraction) && *clock == 0) {
        m->jd_ms += sign * ms;
        return true;
    }
    size_t n = strspn(text, "+-.0123456789");
    double r;
    if (!n || !parse_real((str){text, n}, &r))
        return false;
    for (p = text + n; isspace((unsigned char)*p);)
        p++;
    return add_units(m, r, p);
}

static bool modify_start_of(moment *m, const char *what) {
    civil c;
    civil_of(m->jd_ms, &c);
    if (strcasecmp(what, "day") == 0)
        m->jd_ms = jd_of(c.year, c.month, c.day);
    else if (strcasecmp(what, "month") == 0)
        m->jd_ms = jd_of(c.year, c.month, 1);
    else if (strcasecmp(what, "year") == 0)
        m->jd_ms = jd_of(c.year, 1, 1);
    else
        return false;
    return true;
}

static bool from_unix(moment *m) {
    if (fabs(m->number) > 1e12)
        return false;
    m->jd_ms = UNIX_EPOCH_MS + (int64_t)floor(m->number * 1000 + 0.5);
    return true;
}

static bool modify_weekday(moment *m, const char *digit) {
    if (digit[0] < '0' || digit[0] > '6' || digit[1])
        return false;
    int64_t today = (m->jd_ms + DAY_MS * 3 / 2) / DAY_MS % 7; /* 0 is Sunday */
    m->jd_ms += ((digit[0] - '0') - today + 7) % 7 * DAY_MS;
    return true;
}

/* Applies a modifier. `first`: the modifier is the first after the time. */
static bool modify(moment *m, const char *text, bool first) {
    bool is_unix = strcasecmp(text, "unixepoch") == 0, is_auto = strcasecmp(text, "auto") == 0;
    if (is_unix || is_auto || strcasecmp(text, "julianday") == 0) {
        if (!first || !m->is_number)
            return is_auto && first;
        m->is_number = false;
        if (is_unix || (is_auto && (m->number < 0 || m->number >= 5373484.5)))
            return from_unix(m);
        return m->jd_ms >= 0;
    }
    if (m->jd_ms < 0)
        return false;
    if (strcasecmp(text, "localtime") == 0) {
        m->jd_ms += local_offset_ms(m->jd_ms);
        return true;
    }
    if (strcasecmp(text, "utc") == 0)
        return to_utc(m);
    if (strcasecmp(text, "subsec") == 0 || strcasecmp(text, "subsecond") == 0)
        return m->subsecond = true;
    if (strncasecmp(text, "start of ", 9) == 0)
        return modify_start_of(m, text + 9);
    if (strncasecmp(text, "weekday ", 8) == 0)
        return modify_weekday(m, text + 8);
    return modify_shift(m, text);
}

/* Computes the moment of the arguments (time, modifier, …). Without arguments, it is now. */
static bool moment_of(const value *args, int nargs, moment *m) {
    if (!read_time(nargs ? args[0] : value_text(STR("now")), m))
        return false;
    for (int k = 1; k < nargs; k++) {
        char text[64];
        if (args[k].type != TYPE_TEXT || args[k].s.n >= sizeof text)
            return false;
        memcpy(text, args[k].s.p, args[k].s.n);
        text[args[k].s.n] = 0;
        if (!modify(m, text, k == 1))
            return false;
    }
    return m->jd_ms >= FIRST_MS && m->jd_ms <= LAST_MS;
}

/* ---- printing -------------------------------------------------------------------------------- */

static int day_of_year(const civil *c) {
    return (int)((jd_of(c->year, c->month, c->day) - jd_of(c->year, 1, 1)) / DAY_MS);
}

/* Returns the ISO 8601 year of a day and sets *week. Both are the year and week of the Thursday in
 * the same week. */
static int iso_week(int64_t jd_ms, int *week) {
    int64_t from_monday = (jd_ms + DAY_MS / 2) / DAY_MS % 7;
    civil thursday;
    civil_of(jd_ms + (3 - from_monday) * DAY_MS, &thursday);
    *week = day_of_year(&thursday) / 7 + 1;
    return thursday.year;
}

static bool put_number(buf *b, const char *format, int n) {
    buf_printf(b, format, n);
    return true;
}

/* Appends the strftime field with letter f if it is a single number; else returns false. */
static bool format_number(char f, const moment *m, const civil *c, buf *b) {
    int week, hour12 = c->hour % 12 ? c->hour % 12 : 12, second = (int)(c->ms / 1000);
    int sunday = (int)((m->jd_ms + DAY_MS * 3 / 2) / DAY_MS % 7), monday = (sunday + 6) % 7;
    switch (f) {
    case 'd':
        return put_number(b, "%02d", c->day);
    case 'e':
        return put_number(b, "%2d", c->day);
    case 'g':
        return put_number(b, "%02d", iso_week(m->jd_ms, &week) % 100);
    case 'G':
        return put_number(b, "%04d", iso_week(m->jd_ms, &week));
    case 'H':
        return put_number(b, "%02d", c->hour);
    case 'I':
        return put_number(b, "%02d", hour12);
    case 'j':
        return put_number(b, "%03d", day_of_year(c) + 1);
    case 'k':
        return put_number(b, "%2d", c->hour);
    case 'l':
        return put_number(b, "%2d", hour12);
    case 'm':
        return put_number(b, "%02d", c->month);
    case 'M':
        return put_number(b, "%02d", c->minute);
    case 'S':
        return put_number(b, "%02d", second);
    case 'u':
        return put_number(b, "%d", monday + 1);
    case 'U':
        return put_number(b, "%02d", (day_of_year(c) + 7 - sunday) / 7);
    case 'V':
        iso_week(m->jd_ms, &week);
        return put_number(b, "%02d", week);
    case 'w':
        return put_number(b, "%d", sunday);
    case 'W':
        return put_number(b, "%02d", (day_of_year(c) + 7 - monday) / 7);
    case 'Y':
        return put_number(b, "%04d", c->year);
    default:
        return false;
    }
}

/* Appends the strftime field with letter f. Returns false if no field has this letter. */
static bool format_field(char f, const moment *m, const civil *c, buf *b) {
    char number[32];
    int64_t before_1970 = m->jd_ms < UNIX_EPOCH_MS ? 999 : 0;
    switch (f) {
    case 'f':
        buf_printf(b, "%02d.%03d", (int)(c->ms / 1000), (int)(c->ms % 1000));
        return true;
    case 'F':
        buf_printf(b, "%04d-%02d-%02d", c->year, c->month, c->day);
        return true;
    case 'J':
        buf_append(b, number, format_real((double)m->jd_ms / (double)DAY_MS, number));
        return true;
    case 'p':
        buf_append_c(b, c->hour < 12 ? "AM" : "PM");
        return true;
    case 'P':
        buf_append_c(b, c->hour < 12 ? "am" : "pm");
        return true;
    case 'R':
        buf_printf(b, "%02d:%02d", c->hour, c->minute);
        return true;
    case 's':
        buf_printf(b, "%lld", (long long)((m->jd_ms - UNIX_EPOCH_MS - before_1970) / 1000));
        return true;
    case 'T':
        buf_printf(b, "%02d:%02d:%02d", c->hour, c->minute, (int)(c->ms / 1000));
        return true;
    case '%':
        buf_append_char(b, '%');
        return true;
    default:
        return format_number(f, m, c, b);
    }
}

/* ---- the functions --------------------------------------------------------------------------- */

static bool is_modifier(value modifier) {
    const value days[] = {value_text(STR("2000-01-01")), value_int(0)};
    moment m;
    for (size_t k = 0; k < BASE_COUNT(days); k++)
        if (moment_of((const value[]){days[k], modifier}, 2, &m))
            return true;
    return false;
}

/* Called if the arguments from args[first] on are not a moment. Sets the result to NULL, as in
 * sqlite3, but returns an error if a literal among them is not a time or not a modifier. */
static int no_moment(const call_env *c, const value *args, int first, value *out) {
    *out = value_null();
    moment m;
    for (int k = first; k < c->x->nargs; k++) {
        const expr *x = c->x->args[k];
        if (x->kind != EXPR_LITERAL || x->type != TYPE_TEXT)
            continue;
        int shown = (int)BASE_MIN(args[k].s.n, (size_t)60);
        if (k == first && !read_time(args[k], &m)) {
            eval_error(c->v, x, ERR_TYPE, "'%.*s' is not a date or time", shown, args[k].s.p);
            err_hint(c->v->e, "write it as '2024-01-31', '13:45:00' or '2024-01-31 13:45:00'");
            return ERR_TYPE;
        }
        if (k > first && !is_modifier(args[k])) {
            eval_error(c->v, x, ERR_TYPE, "'%.*s' is not a time modifier", shown, args[k].s.p);
            err_hint(c->v->e,
                     "modifiers are '+1 day', '-2 months', 'start of month', 'weekday 0', …");
            return ERR_TYPE;
        }
    }
    return 0;
}

static int format_moment(const call_env *c, str format, const moment *m, value *out) {
    civil at;
    buf b = {0};
    bool good = true;
    size_t k = 0;
    civil_of(m->jd_ms, &at);
    for (; k < format.n && good; k++)
        if (format.p[k] != '%')
            buf_append_char(&b, format.p[k]);
        else
            good = ++k < format.n && format_field(format.p[k], m, &at, &b);
    if (!good && c->x->args[0]->kind == EXPR_LITERAL) {
        buf_free(&b);
        return eval_error(c->v, c->x->args[0], ERR_TYPE, "%%%.*s is not a field of strftime()",
                          (int)(format.n - (k - 1)), format.p + k - 1);
    }
    *out = good ? value_text(str_copy(c->mem, buf_str(&b))) : value_null();
    buf_free(&b);
    return 0;
}

/* Formats the moment of the arguments from args[first] on. The result is NULL if they are not a
 * moment. */
static int format_or_null(const call_env *c, const value *args, int first, str plain,
                          str with_subsecond, value *out) {
    moment m;
    if (!moment_of(args + first, c->x->nargs - first, &m))
        return no_moment(c, args, first, out);
    return format_moment(c, m.subsecond ? with_subsecond : plain, &m, out);
}

static int fn_date(const call_env *c, const value *args, value *out) {
    return format_or_null(c, args, 0, STR("%F"), STR("%F"), out);
}

static int fn_time(const call_env *c, const value *args, value *out) {
    return format_or_null(c, args, 0, STR("%T"), STR("%R:%f"), out);
}

static int fn_datetime(const call_env *c, const value *args, value *out) {
    return format_or_null(c, args, 0, STR("%F %T"), STR("%F %R:%f"), out);
}

static int fn_strftime(const call_env *c, const value *args, value *out) {
    if (args[0].type != TYPE_TEXT)
        return eval_error(c->v, c->x, ERR_TYPE, "the first argument of strftime() must be TEXT");
    return format_or_null(c, args, 1, args[0].s, args[0].s, out);
}

static int fn_julianday(const call_env *c, const value *args, value *out) {
    moment m;
    if (!moment_of(args, c->x->nargs, &m))
        return no_moment(c, args, 0, out);
    *out = value_real((double)m.jd_ms / (double)DAY_MS);
    return 0;
}

static int fn_unixepoch(const call_env *c, const value *args, value *out) {
    moment m;
    if (!moment_of(args, c->x->nargs, &m))
        return no_moment(c, args, 0, out);
    *out = value_int((int64_t)floor((double)(m.jd_ms - UNIX_EPOCH_MS) / 1000));
    return 0;
}

const function_row_entry time_functions[] = {
    {FUNC_DATE, false, fn_date},           {FUNC_TIME, false, fn_time},
    {FUNC_DATETIME, false, fn_datetime},   {FUNC_STRFTIME, false, fn_strftime},
    {FUNC_JULIANDAY, false, fn_julianday}, {FUNC_UNIXEPOCH, false, fn_unixepoch},
};
const size_t time_function_count = BASE_COUNT(time_functions);
