/*
 * settings.c - parsing and printing of settings, from the table SQL_SETTINGS.
 *
 * Invariant: a settings struct holds valid values only; its TEXT members are never NULL and owned
 * by it. A statement reads a copy, so SET never changes a running statement.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql/sql.h"

enum { WORK_MEMORY_MIN = 4096 };

static const setting_info infos[] = {
#define SETTING_INFO(name, type, standard, words, help)                                            \
    {#name, SETTING_##type, standard, words, help},
    SQL_SETTINGS(SETTING_INFO)
#undef SETTING_INFO
};

static const size_t offsets[] = {
#define SETTING_OFFSET(name, type, standard, words, help) offsetof(settings, name),
    SQL_SETTINGS(SETTING_OFFSET)
#undef SETTING_OFFSET
};

static void *member(const settings *s, size_t i) {
    return (char *)(uintptr_t)s + offsets[i];
}

const setting_info *settings_table(size_t *count) {
    *count = BASE_COUNT(infos);
    return infos;
}

static int find(str name, size_t *out, err *e) {
    const char *names[BASE_COUNT(infos)];
    for (size_t i = 0; i < BASE_COUNT(infos); i++) {
        names[i] = infos[i].name;
        if (str_equal_nocase(name, str_from(names[i]))) {
            *out = i;
            return 0;
        }
    }
    err_set(e, ERR_BIND, "no setting \"%.*s\"", (int)name.n, name.p);
    const char *meant = str_nearest(name, names, BASE_COUNT(names));
    if (meant)
        err_hint(e, "did you mean %s?", meant);
    else
        err_hint(e, "SHOW ALL lists the settings");
    return ERR_BIND;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int wrong(size_t i, str given, const char *allowed, err *e) {
    return err_set(e, ERR_TYPE, "%s cannot be '%.*s': %s", infos[i].name, (int)given.n, given.p,
                   allowed);
}

/* Parses '2GB', '512 kB', '1.5 GiB', '4096'. Decimal and binary prefixes both mean powers of 1,024,
 * as in psql. */
static bool parse_bytes(str s, int64_t *out) {
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0},     {"b", 0},   {"k", 10},   {"kb", 10}, {"kib", 10},
                 {"m", 20},   {"mb", 20}, {"mib", 20}, {"g", 30},  {"gb", 30},
                 {"gib", 30}, {"t", 40},  {"tb", 40},  {"tib", 40}};
    size_t n = 0;
    while (n < s.n && ((s.p[n] >= '0' && s.p[n] <= '9') || s.p[n] == '.'))
        n++;
    double number;
    if (n == 0 || !parse_real((str){s.p, n}, &number))
        return false;
    while (n < s.n && s.p[n] == ' ')
        n++;
    str unit = {s.p + n, s.n - n};
    for (size_t i = 0; i < BASE_COUNT(units); i++)
        if (str_equal_nocase(unit, str_from(units[i].name))) {
            double bytes = number * (double)(INT64_C(1) << units[i].shift);
            if (!(bytes >= 0 && bytes < 9e18) || (units[i].shift == 0 && bytes != floor(bytes)))
                return false;
            *out = (int64_t)bytes;
            return true;
        }
    return false;
}

/* Returns the index of `s` in 'a|b|c', or -1. */
static int word_index(const char *words, str s) {
    str rest = str_from(words);
    for (int index = 0; rest.n; index++)
        if (str_equal_nocase(s, str_split_next(&rest, '|')))
            return index;
    return -1;
}

static str word_at(const char *words, int index) {
    str rest = str_from(words);
    while (index-- > 0)
        str_split_next(&rest, '|');
    return str_split_next(&rest, '|');
}

static int none_of_words(size_t i, str text, err *e) {
    char allowed[200];
    snprintf(allowed, sizeof allowed, "use one of %s", infos[i].words);
    for (char *p = allowed; *p; p++)
        if (*p == '|')
            *p = '/';
    return wrong(i, text, allowed, e);
}

static int set_word(settings *s, size_t i, str text, err *e) {
    bool on;
    int index = word_index(infos[i].words, text);
    /* false means off, if off is an allowed word */
    if (index < 0 && parse_boolean(value_text(text), &on) && !on)
        index = word_index(infos[i].words, STR("off"));
    if (index < 0)
        return none_of_words(i, text, e);
    *(int *)member(s, i) = index;
    return 0;
}

static int set_text(settings *s, size_t i, str text, err *e) {
    if (memchr(text.p ? text.p : "", 0, text.n))
        return wrong(i, STR("…"), "use a text without NUL bytes", e);
    bool is_device = strcmp(infos[i].name, "device") == 0;
    if (is_device && word_index("auto|cpu", text) < 0 &&
        (text.n < 4 || memcmp(text.p, "cuda", 4) != 0))
        return none_of_words(i, text, e);
    char **held = member(s, i);
    free(*held);
    *held = mem_strndup(text.n ? text.p : "", text.n);
    return 0;
}

/* True if the setting accepts auto, stored as -1. */
static bool can_be_auto(size_t i) {
    return strncmp(infos[i].words, "auto|", 5) == 0;
}

static int set_parsed(settings *s, size_t i, str text, err *e) {
    bool on;
    int64_t integer;
    double real;
    switch (infos[i].type) {
    case SETTING_BOOLEAN:
        if (!parse_boolean(value_text(text), &on))
            return wrong(i, text, "use on or off", e);
        *(bool *)member(s, i) = on;
        return 0;
    case SETTING_INTEGER:
        /* A seed may be any integer; the other INTEGER settings are counts that must fit an int. */
        if (!parse_integer(text, &integer) ||
            ((integer < 0 || integer > INT32_MAX) && strcmp(infos[i].name, "seed") != 0))
            return wrong(i, text, "use a whole number from 0 to 2147483647", e);
        if (integer == 0 && strcmp(infos[i].name, "max_tokens") == 0)
            return wrong(i, text, "use 1 or more", e);
        *(int64_t *)member(s, i) = integer;
        return 0;
    case SETTING_BYTES:
        if (can_be_auto(i) && str_equal_nocase(text, STR("auto")))
            integer = -1;
        else if (!parse_bytes(text, &integer))
            return wrong(i, text,
                         can_be_auto(i) ? "use auto or a size such as 512MB or 2GB"
                                        : "use a size such as 512MB or 2GB",
                         e);
        if (integer == 0 && strcmp(infos[i].name, "kv_memory") == 0)
            return wrong(i, text, "a model needs KV memory; use auto or a size such as 2GB", e);
        if (integer < WORK_MEMORY_MIN && strcmp(infos[i].name, "work_memory") == 0)
            return wrong(i, text, "use 4kB or more: a page stays in memory in any case", e);
        if (integer == 0 && strcmp(infos[i].name, "kv_disk") == 0)
            return wrong(i, text, "to keep nothing on disk, use SET cache = off", e);
        *(int64_t *)member(s, i) = integer;
        return 0;
    case SETTING_REAL:
        if (!parse_real(text, &real) || !isfinite(real) || real < 0)
            return wrong(i, text, "use a number that is not negative", e);
        if (real > 1 && strcmp(infos[i].words, "0 to 1") == 0)
            return wrong(i, text, "use a number from 0 to 1", e);
        *(double *)member(s, i) = real;
        return 0;
    case SETTING_WORD:
        return set_word(s, i, text, e);
    case SETTING_TEXT:
        return set_text(s, i, text, e);
    }
    return 0;
}

int settings_set(settings *s, str name, value v, err *e) {
    size_t i;
    int status = find(name, &i, e);
    if (status)
        return status;
    if (v.type == TYPE_NULL)
        return set_parsed(s, i, str_from(infos[i].standard), e);
    buf text = {0};
    if (v.type == TYPE_BOOLEAN)
        buf_append_c(&text, v.i ? "on" : "off");
    else
        value_print(&text, v);
    status = set_parsed(s, i, str_trim(buf_str(&text), " "), e);
    buf_free(&text);
    return status;
}

static void show_bytes(int64_t bytes, buf *out) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t unit = 0;
    while (unit + 1 < BASE_COUNT(units) && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    buf_printf(out, "%lld%s", (long long)bytes, units[unit]);
}

int settings_show(const settings *s, str name, buf *out, err *e) {
    size_t i;
    int status = find(name, &i, e);
    if (status)
        return status;
    switch (infos[i].type) {
    case SETTING_BOOLEAN:
        buf_append_c(out, *(bool *)member(s, i) ? "on" : "off");
        break;
    case SETTING_INTEGER:
        buf_printf(out, "%lld", (long long)*(int64_t *)member(s, i));
        break;
    case SETTING_BYTES:
        if (*(int64_t *)member(s, i) < 0)
            buf_append_c(out, "auto");
        else
            show_bytes(*(int64_t *)member(s, i), out);
        break;
    case SETTING_REAL: {
        double r = *(double *)member(s, i);
        if (r == floor(r) && fabs(r) < 1e15)
            buf_printf(out, "%.0f", r);
        else
            value_print(out, value_real(r));
        break;
    }
    case SETTING_WORD:
        buf_append_str(out, word_at(infos[i].words, *(int *)member(s, i)));
        break;
    case SETTING_TEXT:
        buf_append_c(out, *(char **)member(s, i));
        break;
    }
    return 0;
}

/* ---- the struct ------------------------------------------------------------------------------ */

void settings_init(settings *s) {
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < BASE_COUNT(infos); i++) {
        err e = {0};
        /* cannot fail: a test sets every default */
        (void)set_parsed(s, i, str_from(infos[i].standard), &e);
    }
}

void settings_free(settings *s) {
    for (size_t i = 0; i < BASE_COUNT(infos); i++)
        if (infos[i].type == SETTING_TEXT)
            free(*(char **)member(s, i));
    memset(s, 0, sizeof *s);
}

void settings_copy(settings *to, const settings *from) {
    settings copy = *from;
    for (size_t i = 0; i < BASE_COUNT(infos); i++)
        if (infos[i].type == SETTING_TEXT) {
            char **held = member(&copy, i);
            *held = mem_strdup(*held);
        }
    settings_free(to);
    *to = copy;
}
