/*
 * eval_text.c - functions on texts, LIKE, ILIKE, GLOB, and regular expressions.
 *
 * Invariant: positions and lengths are in code points. A constant pattern is analysed once per
 * batch; `abc`, `abc%`, `%abc` and `%abc%` are matched without the general matcher.
 */
#include <stdlib.h>
#include <string.h>

#include "eval_parts_int.h"
#include "regexp_int.h"

enum { TEXT_LIMIT = 1 << 30 }; /* maximum size of a result, in bytes */

static int text_result(value *out, str s) {
    *out = value_text(s);
    return 0;
}

static str slice(str s, size_t from, size_t to) {
    return (str){s.p + from, to - from};
}

/* Returns a value as text. */
static str text_of(const call_env *c, value v) {
    if (v.type == TYPE_TEXT || v.type == TYPE_BLOB)
        return v.s;
    value text = value_text(STR(""));
    (void)value_cast(c->mem, v, TYPE_TEXT, &text, c->v->e); /* numbers always convert */
    return text.s;
}

static int fn_length(const call_env *c, const value *args, value *out) {
    str s = text_of(c, args[0]);
    *out = value_int((int64_t)(args[0].type == TYPE_BLOB ? s.n : utf8_length(s)));
    return 0;
}

static int fn_lower(const call_env *c, const value *args, value *out) {
    return text_result(out, utf8_lower(c->mem, text_of(c, args[0])));
}

static int fn_upper(const call_env *c, const value *args, value *out) {
    return text_result(out, utf8_upper(c->mem, text_of(c, args[0])));
}

/* Whether the first code point of s is in `set`; sets *n to that code point's length in bytes. */
static bool starts_with_any(str s, str set, size_t *n) {
    uint32_t cp, one;
    *n = utf8_next(s, &cp);
    for (size_t at = 0; *n && at < set.n;) {
        size_t m = utf8_next(slice(set, at, set.n), &one);
        if (m == *n && memcmp(set.p + at, s.p, m) == 0)
            return true;
        at += m;
    }
    return false;
}

static size_t last_start(str s) {
    size_t at = s.n - 1;
    while (at > 0 && ((unsigned char)s.p[at] & 0xc0) == 0x80)
        at--;
    return at;
}

static str trimmed(const call_env *c, const value *args, bool left, bool right) {
    str s = text_of(c, args[0]), set = c->x->nargs > 1 ? text_of(c, args[1]) : STR(" ");
    size_t n;
    while (left && s.n && starts_with_any(s, set, &n))
        s = slice(s, n, s.n);
    while (right && s.n && starts_with_any(slice(s, last_start(s), s.n), set, &n))
        s.n = last_start(s);
    return s;
}

static int fn_trim(const call_env *c, const value *args, value *out) {
    return text_result(out, trimmed(c, args, true, true));
}

static int fn_ltrim(const call_env *c, const value *args, value *out) {
    return text_result(out, trimmed(c, args, true, false));
}

static int fn_rtrim(const call_env *c, const value *args, value *out) {
    return text_result(out, trimmed(c, args, false, true));
}

/* As in sqlite: position 0 is before the first character, a negative position counts from the end,
 * and a negative count takes the characters before `from`. */
static int fn_substr(const call_env *c, const value *args, value *out) {
    str s = text_of(c, args[0]);
    int64_t n = (int64_t)utf8_length(s), from = args[1].i,
            count = c->x->nargs > 2 ? args[2].i : INT64_MAX / 4;
    int64_t far = INT64_MAX / 4;
    from = BASE_MAX(-far, BASE_MIN(from, far));
    count = BASE_MAX(-far, BASE_MIN(count, far));
    int64_t start = from > 0 ? from - 1 : from < 0 ? n + from : -1;
    if (from == 0 && count < 0)
        start = 0;
    int64_t end = start + count;
    if (count < 0) {
        end = start;
        start += count;
    }
    start = BASE_MAX(0, BASE_MIN(start, n));
    end = BASE_MAX(start, BASE_MIN(end, n));
    size_t first = utf8_offset(s, (size_t)start);
    str rest = slice(s, first, s.n);
    return text_result(out, slice(rest, 0, utf8_offset(rest, (size_t)(end - start))));
}

static const char *find(str in, str part) {
    return part.n > in.n ? NULL : memmem(in.p, in.n, part.p, part.n);
}

static int too_long(const call_env *c) {
    return eval_error(c->v, c->x, ERR_LIMIT, "the result is longer than %d bytes", TEXT_LIMIT);
}

static int fn_replace(const call_env *c, const value *args, value *out) {
    str s = text_of(c, args[0]), from = text_of(c, args[1]), to = text_of(c, args[2]);
    size_t hits = 0;
    str rest = s;
    for (const char *p; from.n && (p = find(rest, from)) != NULL; hits++)
        rest = slice(rest, (size_t)(p - rest.p) + from.n, rest.n);
    if (!hits)
        return text_result(out, s);
    size_t bytes = s.n - hits * from.n + hits * to.n;
    if (bytes > TEXT_LIMIT)
        return too_long(c);
    char *made = arena_alloc(c->mem, bytes), *q = made;
    rest = s;
    for (const char *p; (p = find(rest, from)) != NULL;) {
        size_t before = (size_t)(p - rest.p);
        q = (char *)memcpy(q, rest.p, before) + before;
        q = (char *)memcpy(q, to.p, to.n) + to.n;
        rest = slice(rest, before + from.n, rest.n);
    }
    memcpy(q, rest.p, rest.n);
    return text_result(out, (str){made, bytes});
}

static int fn_instr(const call_env *c, const value *args, value *out) {
    str s = text_of(c, args[0]), part = text_of(c, args[1]);
    const char *p = find(s, part);
    *out = value_int(p ? (int64_t)utf8_length(slice(s, 0, (size_t)(p - s.p))) + 1 : 0);
    return 0;
}

static int fn_concat(const call_env *c, const value *args, value *out) {
    buf b = {0};
    for (int k = 0; k < c->x->nargs; k++)
        if (args[k].type != TYPE_NULL)
            buf_append_str(&b, text_of(c, args[k]));
    *out = value_text(str_copy(c->mem, buf_str(&b)));
    buf_free(&b);
    return 0;
}

static int fn_repeat(const call_env *c, const value *args, value *out) {
    str s = text_of(c, args[0]);
    int64_t times = BASE_MAX(args[1].i, 0);
    if (s.n == 0)
        times = 0;
    if (s.n && times > TEXT_LIMIT / (int64_t)s.n)
        return too_long(c);
    char *made = arena_alloc(c->mem, s.n * (size_t)times);
    for (int64_t k = 0; k < times; k++)
        memcpy(made + s.n * (size_t)k, s.p, s.n);
    return text_result(out, (str){made, s.n * (size_t)times});
}

static int fn_concat_ws(const call_env *c, const value *args, value *out) {
    buf b = {0};
    bool some = false;
    *out = value_null();
    if (args[0].type == TYPE_NULL)
        return 0;
    for (int k = 1; k < c->x->nargs; k++) {
        if (args[k].type == TYPE_NULL)
            continue;
        if (some)
            buf_append_str(&b, text_of(c, args[0]));
        buf_append_str(&b, text_of(c, args[k]));
        some = true;
    }
    *out = value_text(str_copy(c->mem, buf_str(&b)));
    buf_free(&b);
    return 0;
}

/* Returns the length in bytes of the first n characters. A negative n means all characters except
 * the last -n. */
static size_t cut_at(str s, int64_t n) {
    if (n < 0)
        n = BASE_MAX(0, (int64_t)utf8_length(s) + BASE_MAX(n, -INT64_MAX / 2));
    return utf8_offset(s, (size_t)n);
}

static int fn_left(const call_env *c, const value *args, value *out) {
    str s = text_of(c, args[0]);
    return text_result(out, slice(s, 0, cut_at(s, args[1].i)));
}

static int fn_right(const call_env *c, const value *args, value *out) {
    str s = text_of(c, args[0]);
    int64_t n = args[1].i;
    size_t from = n == 0 ? s.n : cut_at(s, n == INT64_MIN ? INT64_MAX : -n);
    return text_result(out, slice(s, from, s.n));
}

/* Pads the text to args[1] characters, at its start if `left`, else at its end. Cuts a longer text
 * at its end. */
static int padded(const call_env *c, const value *args, bool left, value *out) {
    str s = text_of(c, args[0]), fill = c->x->nargs > 2 ? text_of(c, args[2]) : STR(" ");
    int64_t wanted = BASE_MAX(args[1].i, 0), missing = wanted - (int64_t)utf8_length(s);
    if (missing <= 0 || fill.n == 0)
        return text_result(out, slice(s, 0, utf8_offset(s, (size_t)wanted)));
    if (missing > TEXT_LIMIT / 4)
        return too_long(c);
    int64_t each = (int64_t)utf8_length(fill);
    size_t rest = utf8_offset(fill, (size_t)(missing % each));
    size_t bytes = (size_t)(missing / each) * fill.n + rest;
    if (bytes + s.n > TEXT_LIMIT)
        return too_long(c);
    char *made = arena_alloc(c->mem, bytes + s.n), *at = made + (left ? 0 : s.n);
    memcpy(left ? made + bytes : made, s.p, s.n);
    for (int64_t k = 0; k < missing / each; k++, at += fill.n)
        memcpy(at, fill.p, fill.n);
    memcpy(at, fill.p, rest);
    return text_result(out, (str){made, bytes + s.n});
}

static int fn_lpad(const call_env *c, const value *args, value *out) {
    return padded(c, args, true, out);
}

static int fn_rpad(const call_env *c, const value *args, value *out) {
    return padded(c, args, false, out);
}

static int fn_reverse(const call_env *c, const value *args, value *out) {
    str s = text_of(c, args[0]);
    char *made = arena_alloc(c->mem, s.n), *end = made + s.n;
    uint32_t cp;
    for (size_t at = 0, n; (n = utf8_next(slice(s, at, s.n), &cp)) > 0; at += n)
        memcpy(end -= n, s.p + at, n);
    return text_result(out, (str){made, s.n});
}

static int64_t count_parts(str s, str separator) {
    int64_t n = 1;
    for (const char *p; (p = find(s, separator)) != NULL; n++)
        s = slice(s, (size_t)(p - s.p) + separator.n, s.n);
    return n;
}

static int fn_split_part(const call_env *c, const value *args, value *out) {
    str s = text_of(c, args[0]), separator = text_of(c, args[1]);
    int64_t wanted = args[2].i;
    if (separator.n == 0)
        return text_result(out, wanted == 1 || wanted == -1 ? s : STR(""));
    if (wanted < 0)
        wanted += count_parts(s, separator) + 1;
    const char *p = NULL;
    for (int64_t k = 1; k < wanted && (p = find(s, separator)) != NULL; k++)
        s = slice(s, (size_t)(p - s.p) + separator.n, s.n);
    if (wanted < 1 || (wanted > 1 && !p))
        return text_result(out, STR(""));
    p = find(s, separator);
    return text_result(out, p ? slice(s, 0, (size_t)(p - s.p)) : s);
}

/* Decodes a text into its characters; returns their number. */
static size_t characters(const call_env *c, str s, uint32_t **out) {
    size_t n = 0;
    *out = ARENA_ARRAY(c->mem, uint32_t, s.n + 1);
    for (size_t at = 0; at < s.n; n++)
        at += utf8_next(slice(s, at, s.n), *out + n);
    return n;
}

/* Row by row of the table of distances between beginnings of a and of b (Wagner and Fischer 1974).
 * row[j]: the distance of a's first i characters to b's first j. */
static int fn_levenshtein(const call_env *c, const value *args, value *out) {
    enum { MOST = 250000 }; /* cells of the table; a batch of rows takes less than a second */
    uint32_t *a, *b;
    size_t n = characters(c, text_of(c, args[0]), &a), m = characters(c, text_of(c, args[1]), &b);
    if (n > 0 && m > MOST / n)
        return eval_error(c->v, c->x, ERR_LIMIT, "too many characters to compare: %zu with %zu", n,
                          m);
    uint32_t *row = ARENA_ARRAY(c->mem, uint32_t, m + 1);
    for (size_t j = 0; j <= m; j++)
        row[j] = (uint32_t)j;
    for (size_t i = 1; i <= n; i++) {
        uint32_t diagonal = row[0];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= m; j++) {
            uint32_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = BASE_MIN(replaced, BASE_MIN(row[j], row[j - 1]) + 1);
        }
    }
    *out = value_int(row[m]);
    return 0;
}

static int fn_hex(const call_env *c, const value *args, value *out) {
    static const char digits[] = "0123456789ABCDEF";
    str s = text_of(c, args[0]);
    char *made = arena_alloc(c->mem, s.n * 2);
    for (size_t k = 0; k < s.n; k++) {
        made[2 * k] = digits[(unsigned char)s.p[k] >> 4];
        made[2 * k + 1] = digits[(unsigned char)s.p[k] & 15];
    }
    return text_result(out, (str){made, s.n * 2});
}

static int fn_json_quote(const call_env *c, const value *args, value *out) {
    buf made = {0};
    value_print_json(&made, args[0]);
    *out = value_text(str_copy(c->mem, buf_str(&made)));
    buf_free(&made);
    return 0;
}

static int fn_char(const call_env *c, const value *args, value *out) {
    char *made = arena_alloc(c->mem, 4 * (size_t)c->x->nargs);
    size_t n = 0;
    for (int k = 0; k < c->x->nargs; k++) {
        int64_t cp = args[k].type == TYPE_NULL ? 0xfffd : args[k].i;
        bool valid = cp >= 0 && cp <= 0x10ffff && !(cp >= 0xd800 && cp <= 0xdfff);
        n += utf8_encode(valid ? (uint32_t)cp : 0xfffd, made + n);
    }
    return text_result(out, (str){made, n});
}

static int fn_unicode(const call_env *c, const value *args, value *out) {
    uint32_t cp;
    *out = utf8_next(text_of(c, args[0]), &cp) ? value_int(cp) : value_null();
    return 0;
}

const function_row_entry text_functions[] = {
    {FUNC_LENGTH, false, fn_length},
    {FUNC_LOWER, false, fn_lower},
    {FUNC_UPPER, false, fn_upper},
    {FUNC_TRIM, false, fn_trim},
    {FUNC_LTRIM, false, fn_ltrim},
    {FUNC_RTRIM, false, fn_rtrim},
    {FUNC_SUBSTR, false, fn_substr},
    {FUNC_REPLACE, false, fn_replace},
    {FUNC_INSTR, false, fn_instr},
    {FUNC_CONCAT, true, fn_concat},
    {FUNC_REPEAT, false, fn_repeat},
    {FUNC_HEX, false, fn_hex},
    {FUNC_CHAR_, true, fn_char},
    {FUNC_UNICODE, false, fn_unicode},
    {FUNC_LEFT_, false, fn_left},
    {FUNC_RIGHT_, false, fn_right},
    {FUNC_LPAD, false, fn_lpad},
    {FUNC_RPAD, false, fn_rpad},
    {FUNC_REVERSE, false, fn_reverse},
    {FUNC_SPLIT_PART, false, fn_split_part},
    {FUNC_CONCAT_WS, true, fn_concat_ws},
    {FUNC_LEVENSHTEIN, false, fn_levenshtein},
    {FUNC_JSON_QUOTE, true, fn_json_quote},
};
const size_t text_function_count = BASE_COUNT(text_functions);

/* ---- LIKE, ILIKE, GLOB ----------------------------------------------------------------------- */

typedef struct wildcard {
    char any;   /* matches any number of characters: '%' in LIKE, '*' in GLOB */
    char one;   /* matches one character: '_' in LIKE, '?' in GLOB */
    bool sets;  /* [a-z] and [^x] are wildcards too, as in GLOB */
    str escape; /* the escape character; n = 0: none */
} wildcard;

/* Whether cp is in the [set] at the start of p; sets *n to the set's length in bytes, or to 0 if it
 * has no ']'. */
static bool in_set(str p, uint32_t cp, size_t *n) {
    size_t at = 1;
    bool negated = at < p.n && p.p[at] == '^', found = false, first = true;
    at += negated;
    for (uint32_t low, high; at < p.n && (first || p.p[at] != ']'); first = false) {
        at += utf8_next(slice(p, at, p.n), &low);
        high = low;
        if (at + 1 < p.n && p.p[at] == '-' && p.p[at + 1] != ']')
            at += 1 + utf8_next(slice(p, at + 1, p.n), &high);
        found |= cp >= low && cp <= high;
    }
    *n = at < p.n ? at + 1 : 0;
    return found != negated;
}

/* Matches one pattern element that is not `any` with the first character of s. If they match,
 * advances p and s past them. */
static bool match_one(const wildcard *w, str *p, str *s) {
    uint32_t pc, sc;
    size_t sn = utf8_next(*s, &sc), pn = utf8_next(*p, &pc);
    if (sn == 0)
        return false;
    bool literal = false;
    if (w->escape.n && p->n > w->escape.n && memcmp(p->p, w->escape.p, w->escape.n) == 0) {
        *p = slice(*p, w->escape.n, p->n);
        pn = utf8_next(*p, &pc);
        literal = true;
    }
    bool same = pn == sn && memcmp(p->p, s->p, pn) == 0;
    if (!literal && pc == (uint32_t)w->one) {
        same = true;
    } else if (!literal && w->sets && pc == '[') {
        same = in_set(*p, sc, &pn);
        if (pn == 0)
            return false;
    }
    if (same) {
        *p = slice(*p, pn, p->n);
        *s = slice(*s, sn, s->n);
    }
    return same;
}

/* Whether c, a byte of the pattern, is an ASCII character that matches only itself. Such bytes are
 * compared without decoding. */
static bool is_plain(const wildcard *w, char c) {
    return (unsigned char)c < 0x80 && c != w->any && c != w->one && !(w->sets && c == '[') &&
           (w->escape.n == 0 || c != w->escape.p[0]);
}

/* Returns the next suffix of s where p, the pattern after the last `any`, could match. Its pointer
 * is NULL if there is none. */
static str next_start(const wildcard *w, str p, str s) {
    uint32_t cp;
    if (s.n == 0)
        return (str){NULL, 0};
    s = slice(s, utf8_next(s, &cp), s.n);
    if (p.n == 0 || !is_plain(w, p.p[0]))
        return s;
    const char *at = memchr(s.p, p.p[0], s.n);
    return at ? slice(s, (size_t)(at - s.p), s.n) : (str){NULL, 0};
}

/* Backtracks only to the last `any`: if the rest of the pattern matches, extending an earlier `any`
 * is never necessary. */
static bool match(const wildcard *w, str p, str s) {
    str back_p = {NULL, 0}, back_s = {NULL, 0};
    for (;;) {
        if (p.n && s.n && p.p[0] == s.p[0] && is_plain(w, p.p[0])) {
            p = slice(p, 1, p.n);
            s = slice(s, 1, s.n);
            continue;
        }
        if (p.n && p.p[0] == w->any && !(w->escape.n == 1 && w->escape.p[0] == w->any)) {
            p = slice(p, 1, p.n);
            if (p.n == 0)
                return true;
            back_p = p;
            back_s = s;
            continue;
        }
        if (p.n == 0 && s.n == 0)
            return true;
        if (p.n && match_one(w, &p, &s))
            continue;
        if (!back_p.p || (back_s = next_start(w, back_p, back_s)).p == NULL)
            return false;
        p = back_p;
        s = back_s;
    }
}

typedef enum pattern_shape {
    SHAPE_GENERAL,
    SHAPE_EXACT,
    SHAPE_PREFIX,
    SHAPE_SUFFIX,
    SHAPE_INFIX
} pattern_shape;

/* Returns the shape of a pattern. Sets *core to the text between leading and trailing `any`. */
static pattern_shape pattern_analyse(const wildcard *w, str p, str *core) {
    bool head = p.n && p.p[0] == w->any, tail = p.n > 1 && p.p[p.n - 1] == w->any;
    *core = slice(p, head, p.n - tail);
    if (w->escape.n)
        return SHAPE_GENERAL;
    for (size_t k = 0; k < core->n; k++)
        if (core->p[k] == w->any || core->p[k] == w->one || (w->sets && core->p[k] == '['))
            return SHAPE_GENERAL;
    return head ? (tail ? SHAPE_INFIX : SHAPE_SUFFIX) : (tail ? SHAPE_PREFIX : SHAPE_EXACT);
}

static bool match_shape(const wildcard *w, pattern_shape shape, str p, str core, str s) {
    switch (shape) {
    case SHAPE_EXACT:
        return str_equal(s, core);
    case SHAPE_PREFIX:
        return s.n >= core.n && memcmp(s.p, core.p, core.n) == 0;
    case SHAPE_SUFFIX:
        return s.n >= core.n && memcmp(s.p + (s.n - core.n), core.p, core.n) == 0;
    case SHAPE_INFIX:
        return find(s, core) != NULL;
    case SHAPE_GENERAL:
        break;
    }
    return match(w, p, s);
}

static int check_escape(const eval_env *v, const expr *x, const operand *escape, int row,
                        str *out) {
    uint32_t cp;
    *out = escape->c.s[row * escape->step];
    if (out->n == 0 || utf8_next(*out, &cp) != out->n)
        return eval_error(v, x->args[2], ERR_TYPE, "ESCAPE must be one character");
    return 0;
}

/* An analysed pattern; for ILIKE in lower case. */
typedef struct pattern {
    wildcard w;
    str text, core;
    pattern_shape shape;
} pattern;

static int pattern_set(const eval_env *v, const expr *x, const operand *args, int row, pattern *p) {
    int status = x->nargs > 2 ? check_escape(v, x, &args[2], row, &p->w.escape) : 0;
    p->text = args[1].c.s[row * args[1].step];
    if (x->op == OP_ILIKE)
        p->text = utf8_lower(v->mem, p->text);
    p->shape = pattern_analyse(&p->w, p->text, &p->core);
    return status;
}

int eval_match(const eval_env *v, const expr *x, operand *out) {
    operand *args;
    int n, status = eval_args(v, x, &args, &n);
    if (status)
        return status;
    bool constant = true, glob = x->op == OP_GLOB;
    for (int a = 0; a < x->nargs; a++) {
        if (args[a].c.type == TYPE_NULL || operand_is_null(&args[a])) {
            operand_null(v, TYPE_BOOLEAN, out);
            return 0;
        }
        constant &= a == 0 || args[a].step == 0;
    }
    pattern p = {.w = {.any = glob ? '*' : '%', .one = glob ? '?' : '_', .sets = glob}};
    if (constant && (status = pattern_set(v, x, args, 0, &p)) != 0)
        return status;
    operand_new(v, TYPE_BOOLEAN, n, out);
    for (int k = 0; k < n; k++) {
        if (operand_null_at(&args[0], k) || operand_null_at(&args[1], k) ||
            (x->nargs > 2 && operand_null_at(&args[2], k))) {
            operand_set_null(v, out, n, k);
            continue;
        }
        if (!constant && (status = pattern_set(v, x, args, k, &p)) != 0)
            return status;
        str s = args[0].c.s[k * args[0].step];
        if (x->op == OP_ILIKE)
            s = utf8_lower(v->mem, s);
        out->c.i[k] = match_shape(&p.w, p.shape, p.text, p.core, s);
    }
    out->step = constant && args[0].step == 0 ? 0 : 1;
    return 0;
}

/* ---- regular expressions --------------------------------------------------------------------- */

static int regexp_row(const expr *x, regexp *r, const operand *args, int row, operand *out,
                      err *e) {
    str text = args[0].c.s[row * args[0].step];
    int64_t group = x->nargs > 2 ? args[2].c.i[row * args[2].step] : 0;
    bool matched = false;
    int status = regexp_compile(r, args[1].c.s[row * args[1].step], e);
    if (status)
        return status;
    int groups = regexp_groups(r);
    if (group < 0 || group > groups)
        return err_set(e, ERR_BIND, "group %lld: the regular expression has %d%s", (long long)group,
                       groups, groups == 0 ? ", write ( ) around a part" : "");
    if ((status = regexp_match(r, text, &matched, e)) != 0)
        return status;
    if (x->function == FUNC_REGEXP_MATCHES)
        out->c.i[row] = matched;
    else
        out->c.s[row] = matched ? regexp_group(r, (int)group, text) : STR("");
    return 0;
}

int eval_regexp(const eval_env *v, const expr *x, operand *out) {
    operand *args;
    int n, status = eval_args(v, x, &args, &n);
    if (status)
        return status;
    for (int a = 0; a < x->nargs; a++)
        if (args[a].c.type == TYPE_NULL || operand_is_null(&args[a])) {
            operand_null(v, x->type, out);
            return 0;
        }
    regexp *r;
    status = regexp_new(&r, v->e);
    operand_new(v, x->type, n, out);
    for (int k = 0; k < n && !status; k++) {
        bool null = false;
        for (int a = 0; a < x->nargs; a++)
            null = null || operand_null_at(&args[a], k);
        if (null)
            operand_set_null(v, out, n, k);
        else
            status = regexp_row(x, r, args, k, out, v->e);
    }
    regexp_free(r);
    out->step = operands_constant(args, x->nargs) ? 0 : 1;
    if (status && status != ERR_CANCELLED) {
        /* a bad pattern or group is marked in the statement, else the whole call */
        const expr *at = status == ERR_TYPE ? x->args[1] : status == ERR_BIND ? x->args[2] : x;
        v->e->pos = at->pos;
        v->e->len = at->len;
    }
    return status;
}
