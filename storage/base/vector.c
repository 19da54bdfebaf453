/*
 * vector.c - VECTOR values: parsing, printing, comparison, distances (base.h, section "vectors").
 *
 * Invariant: vector_make and vector_parse make every vector, so no element is NaN, infinite or -0.
 */
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vector_int.h"
#include "storage/base.h"

static float element(str v, size_t i) {
    float f;
    memcpy(&f, v.p + i * sizeof f, sizeof f);
    return f;
}

/* ---- making ---------------------------------------------------------------------------------- */

int vector_make(arena *a, const float *elements, int n, str *out, err *e) {
    if (n < 1 || n > VECTOR_DIMS_MAX)
        return err_set(e, ERR_TYPE, "a VECTOR has 1 to %d elements, not %d", VECTOR_DIMS_MAX, n);
    float *made = arena_alloc(a, sizeof *made * (size_t)n);
    for (int i = 0; i < n; i++) {
        made[i] = elements[i] + 0.0f; /* -0 becomes 0 */
        if (!isfinite(made[i]))
            return err_set(e, ERR_TYPE, "element %d of the VECTOR is %s", i + 1,
                           isnan(made[i]) ? "NaN" : "infinite");
    }
    *out = (str){(const char *)made, sizeof *made * (size_t)n};
    return 0;
}

int vector_check(str v, int dims, err *e) {
    return dims == 0 || vector_dims(v) == dims
               ? 0
               : err_set(e, ERR_TYPE, "expected %d dimensions, not %d", dims, vector_dims(v));
}

/* Sets the error of a text that is no VECTOR. at: offset in the text. */
static int malformed(str text, size_t at, const char *why, err *e) {
    size_t shown = text.n > 60 ? utf8_fit((str){text.p, 60}, 57) : text.n;
    return err_set(e, ERR_TYPE, "'%.*s%s' is not a VECTOR: %s at position %zu", (int)shown, text.p,
                   shown < text.n ? "…" : "", why, at + 1);
}

static size_t skip_blanks(str s, size_t at) {
    while (at < s.n && strchr(STR_SPACES, s.p[at]) && s.p[at])
        at++;
    return at;
}

static size_t skip_number(str s, size_t at) {
    while (at < s.n && s.p[at] && !strchr(",]" STR_SPACES, s.p[at]))
        at++;
    return at;
}

/* Parses one element; NULL, or what is wrong with it. */
static const char *parse_element(str word, float *out) {
    double r;
    str letters = word;
    if (letters.n && (*letters.p == '-' || *letters.p == '+'))
        letters = (str){letters.p + 1, letters.n - 1};
    if (str_equal_nocase(letters, STR("nan")))
        return "NaN is not allowed";
    if (str_equal_nocase(letters, STR("inf")) || str_equal_nocase(letters, STR("infinity")))
        return "an infinite element is not allowed";
    if (!parse_real(word, &r)) /* numbers beyond double included */
        return word.n ? "not a number" : "a number is missing";
    *out = (float)r;
    return isfinite(*out) ? NULL : "a number beyond the range of f32";
}

int vector_parse(arena *a, str text, str *out, err *e) {
    float few[512], *made = few;
    size_t at = skip_blanks(text, 0);
    int n = 0, cap = (int)BASE_COUNT(few);
    if (at == text.n || text.p[at] != '[')
        return malformed(text, at, "[ is missing", e);
    do {
        at = skip_blanks(text, at + 1);
        size_t end = skip_number(text, at);
        if (n == VECTOR_DIMS_MAX)
            return malformed(text, at, "more than 16000 elements", e);
        if (n == cap) {
            float *more = arena_alloc(a, sizeof *more * VECTOR_DIMS_MAX);
            memcpy(more, made, sizeof *made * (size_t)n);
            made = more;
            cap = VECTOR_DIMS_MAX;
        }
        const char *why = parse_element((str){text.p + at, end - at}, &made[n++]);
        if (why)
            return malformed(text, at, why, e);
        at = skip_blanks(text, end);
    } while (at < text.n && text.p[at] == ',');
    if (at == text.n || text.p[at] != ']')
        return malformed(text, at, "] is missing", e);
    at = skip_blanks(text, at + 1);
    if (at < text.n)
        return malformed(text, at, "text follows the ]", e);
    return vector_make(a, made, n, out, e);
}

/* ---- printing and comparing ------------------------------------------------------------------ */

/* Writes the shortest text that parses back to f; returns its length. */
static size_t format_float(float f, char out[32]) {
    int n = 0;
    /* %g drops trailing zeros, so of a normal number fewer than 6 digits need not be tried */
    for (int digits = fabsf(f) < FLT_MIN ? 1 : 6; digits <= 9; digits++) {
        n = snprintf(out, 32, "%.*g", digits, (double)f);
        double back;
        if (parse_real((str){out, (size_t)n}, &back) && (float)back == f)
            break;
    }
    return (size_t)n;
}

void vector_print(buf *b, str v) {
    char text[32];
    for (size_t i = 0; i < v.n / sizeof(float); i++) {
        buf_append_char(b, i ? ',' : '[');
        buf_append(b, text, format_float(element(v, i), text));
    }
    buf_append_char(b, ']');
}

int vector_compare(str x, str y) {
    size_t n = BASE_MIN(x.n, y.n) / sizeof(float);
    for (size_t i = 0; i < n; i++) {
        float a = element(x, i), b = element(y, i);
        if (a != b)
            return a < b ? -1 : 1;
    }
    return (x.n > y.n) - (x.n < y.n);
}

/* ---- distances ------------------------------------------------------------------------------- */

static const vector_kernel *best_kernel(void) {
    static _Atomic(const vector_kernel *) best;
    const vector_kernel *k = atomic_load_explicit(&best, memory_order_relaxed);
    if (!k) {
        const vector_kernel *all[VECTOR_KERNELS];
        vector_kernels(all);
        atomic_store_explicit(&best, k = all[0], memory_order_relaxed);
    }
    return k;
}

/* Sum of products of two vectors, or of the squares of their differences, in double. */
static double wide_sum(str x, str y, bool differences) {
    double sum = 0;
    for (size_t i = 0; i < x.n / sizeof(float); i++) {
        double a = element(x, i), b = element(y, i);
        sum += differences ? (a - b) * (a - b) : a * b;
    }
    return sum;
}

/* Whether a sum of squares is within f32's range and was not lost below it. */
static bool square_is_sound(float sum) {
    return sum >= FLT_MIN / FLT_EPSILON && sum <= FLT_MAX;
}

double vector_norm(str v) {
    float sum = best_kernel()->inner(v.p, v.p, v.n / sizeof(float));
    return sqrt(square_is_sound(sum) ? (double)sum : wide_sum(v, v, false));
}

double vector_distance(vector_metric m, str x, str y, double y_norm) {
    const vector_kernel *k = best_kernel();
    size_t n = x.n / sizeof(float);
    float xy, xx;
    if (m == VECTOR_L2) {
        xy = k->apart(x.p, y.p, n);
        return sqrt(square_is_sound(xy) ? (double)xy : wide_sum(x, y, true));
    }
    if (m == VECTOR_INNER) {
        xy = k->inner(x.p, y.p, n);
        return isfinite(xy) ? (double)xy : wide_sum(x, y, false);
    }
    k->angle(x.p, y.p, n, &xy, &xx);
    bool sound = isfinite(xy) && square_is_sound(xx) && square_is_sound((float)(y_norm * y_norm));
    double inner = sound ? (double)xy : wide_sum(x, y, false);
    double cosine = inner / (sqrt(sound ? (double)xx : wide_sum(x, x, false)) * y_norm);
    return isnan(cosine) ? cosine : 1 - BASE_MAX(-1, BASE_MIN(1, cosine));
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Returns the value of the code 1 if the largest element is to have the code `most`. */
static double code_scale(str v, int most) {
    float largest = 0;
    for (size_t i = 0; i < v.n / sizeof(float); i++)
        largest = fmaxf(largest, fabsf(element(v, i)));
    return (double)largest / most;
}

double vector_encode(str v, int8_t *codes) {
    double scale = code_scale(v, INT8_MAX);
    for (size_t i = 0; i < v.n / sizeof(float); i++)
        codes[i] = (int8_t)(scale > 0 ? lrint(element(v, i) / scale) : 0);
    return scale;
}

double vector_encode_query(str v, int16_t *codes) {
    enum { MOST = 2047 };
    double scale = code_scale(v, MOST);
    for (size_t i = 0; i < v.n / sizeof(float); i++)
        codes[i] = (int16_t)(scale > 0 ? lrint(element(v, i) / scale) : 0);
    return scale;
}

int64_t vector_codes_inner(const int8_t *x, const int16_t *query, size_t n) {
    return best_kernel()->codes(x, query, n);
}
