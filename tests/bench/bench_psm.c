/*
 * bench_psm.c - what the solver gains on a file, and what it costs.
 *
 *   bench_psm FILE.csv[.gz] [--json] [--rows N]
 *   bench_psm --synthetic ROWS,COLUMNS [--json]     families of five columns: an entity, three
 * attributes that depend on it, one free column; seeded, skewed
 *
 * Counts in characters, as the published evaluator does: the values of a row are concatenated
 * without names or separators, and a row's hit is its longest common prefix with any earlier row
 * (phr). `cell` counts whole equal cells of one field alone; `bound` says how much of that is
 * possible at all. cpu_seconds is the solve, without reading.
 */
#include "bench_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct table {
    arena *mem;
    uint32_t rows;
    int fields;
    psm_field *field;
    str **text; /* [fields][distinct] */
} table;

/* ---- a table made up ------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t a, uint64_t b) {
    return hash_mix(hash_mix(a, b), 0x5bd1e995);
}

/* Below n, small numbers more often. */
static uint32_t skewed(uint64_t seed, uint32_t n) {
    double u = (double)(seed >> 11) / (double)(UINT64_C(1) << 53);
    return (uint32_t)(u * u * n);
}

static str made_up_text(arena *mem, int f, uint32_t id) {
    char text[40];
    size_t n = 3 + mixed((uint64_t)f, id) % 24;
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + mixed(mixed((uint64_t)f, id), i) % 26);
    return (str){arena_printf(mem, "%.*s%u", (int)n, text, id),
                 n + (size_t)snprintf(NULL, 0, "%u", id)};
}

static void synthesize(arena *mem, const char *size, bench_table *out) {
    char *comma;
    *out = (bench_table){.rows = (uint32_t)strtoul(size, &comma, 10)};
    out->fields = *comma == ',' ? atoi(comma + 1) : 0;
    if (out->fields < 1 || out->fields > PSM_MAX_FIELDS)
        bench_fail("--synthetic wants ROWS,COLUMNS", NULL);
    out->cell = ARENA_ARRAY(mem, str, (size_t)out->rows * (size_t)out->fields);
    for (int f = 0; f < out->fields; f++) {
        uint32_t family = (uint32_t)f / 5, member = (uint32_t)f % 5,
                 many = 10U << (2 * (family % 6));
        for (uint32_t r = 0; r < out->rows; r++) {
            uint32_t id = skewed(mixed(family, r), many);
            if (member == 4)
                id = skewed(mixed(family + 100, r), 3U << (2 * (family % 6)));
            else if (member > 0)
                id = (uint32_t)(mixed(id, member) % ((many >> member) + 1));
            out->cell[(size_t)r * (size_t)out->fields + (size_t)f] = made_up_text(mem, f, id);
        }
    }
}

/* ---- encoding -------------------------------------------------------------------------------- */

static int32_t *code_points(arena *mem, str s, uint32_t *n) {
    int32_t *out = ARENA_ARRAY(mem, int32_t, s.n + 1);
    *n = 0;
    while (s.n > 0) {
        uint32_t cp;
        size_t bytes = utf8_next(s, &cp);
        out[(*n)++] = (int32_t)cp;
        s.p += bytes;
        s.n -= bytes;
    }
    return out;
}

static void encode_field(table *t, int f, const bench_table *cells) {
    bench_table_field(t->mem, cells, f, &t->field[f], &t->text[f]);
    uint32_t n = t->field[f].distinct;
    uint32_t *length = ARENA_ARRAY(t->mem, uint32_t, n);
    const int32_t **units = ARENA_ARRAY(t->mem, const int32_t *, n);
    for (uint32_t i = 0; i < n; i++)
        units[i] = code_points(t->mem, t->text[f][i], &length[i]);
    t->field[f].length = length;
    t->field[f].units = units;
}

static void load(table *t, const char *path, const char *synthetic, uint32_t most_rows) {
    bench_table cells;
    t->mem = arena_new();
    if (synthetic != NULL)
        synthesize(t->mem, synthetic, &cells);
    else
        bench_table_read(t->mem, path, most_rows, &cells);
    t->rows = cells.rows;
    t->fields = cells.fields;
    t->field = ARENA_ARRAY(t->mem, psm_field, t->fields);
    t->text = ARENA_ARRAY(t->mem, str *, t->fields);
    for (int f = 0; f < t->fields; f++)
        encode_field(t, f, &cells);
}

/* ---- the published count --------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
    return str_compare(*(const str *)a, *(const str *)b);
}

/* Code points that both begin with. */
static uint64_t common_characters(str a, str b) {
    size_t k = 0, n = BASE_MIN(a.n, b.n);
    uint64_t whole = 0;
    while (k < n && a.p[k] == b.p[k]) {
        whole += ((unsigned char)a.p[k] & 0xc0) != 0x80;
        k++;
    }
    bool inside = (k < a.n && ((unsigned char)a.p[k] & 0xc0) == 0x80) ||
                  (k < b.n && ((unsigned char)b.p[k] & 0xc0) == 0x80);
    return whole - (inside && whole > 0);
}

static double published_phr(const table *t, const uint8_t *field_order, uint64_t total) {
    arena *mem = arena_new();
    str *row = ARENA_ARRAY(mem, str, t->rows);
    buf line = {0};
    for (uint32_t r = 0; r < t->rows; r++) {
        buf_clear(&line);
        for (int i = 0; i < t->fields; i++) {
            int f = field_order[(size_t)r * (size_t)t->fields + (size_t)i];
            buf_append_str(&line, t->text[f][t->field[f].value[r]]);
        }
        row[r] = str_copy(mem, buf_str(&line));
    }
    qsort(row, t->rows, sizeof *row, by_bytes);
    uint64_t shared = 0;
    for (uint32_t r = 1; r < t->rows; r++)
        shared += common_characters(row[r - 1], row[r]);
    buf_free(&line);
    arena_free(mem);
    return total > 0 ? 100.0 * (double)shared / (double)total : 0;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void run(const table *t, const char *name, psm_strategy strategy, bool one_order,
                bool json) {
    psm_input in = {t->rows, t->fields, t->field};
    psm_options options = {.strategy = strategy, .one_order = one_order};
    psm_result result, bounded;
    psm_score score;
    err e = {0};
    arena *mem = arena_new();
    if (psm_solve(&in, &options, mem, &result, &e) != 0 ||
        psm_evaluate(&in, result.field_order, result.row_order, &score, &e) != 0)
        bench_fail(name, e.message);
    options.bound = true;
    if (psm_solve(&in, &options, mem, &bounded, &e) != 0)
        bench_fail(name, e.message);
    double total = (double)BASE_MAX(score.total_units, 1u);
    double phr = published_phr(t, result.field_order, score.total_units);
    double cell = 100.0 * (double)score.cell_units / total, bound = 100.0 * bounded.bound;
    if (json) {
        printf("{\"strategy\":\"%s\",\"used\":\"%s\",\"rows\":%u,\"fields\":%d,\"phr\":%.3f,"
               "\"cell\":%.3f,"
               "\"bound\":%.3f,\"cpu_seconds\":%.4f,\"bound_seconds\":%.4f}\n",
               name, psm_strategy_name(result.used), t->rows, t->fields, phr, cell, bound,
               result.solve_ms / 1e3, (bounded.solve_ms - result.solve_ms) / 1e3);
    } else {
        printf("%-10s %8.3f %8.3f %8.3f %9.4f %9.4f\n", name, phr, cell, bound,
               result.solve_ms / 1e3, (bounded.solve_ms - result.solve_ms) / 1e3);
    }
    arena_free(mem);
}

int main(int argc, char **argv) {
    const char *path = NULL, *synthetic = NULL;
    bool json = false;
    uint32_t most_rows = UINT32_MAX;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc)
            most_rows = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--synthetic") == 0 && i + 1 < argc)
            synthetic = argv[++i];
        else
            path = argv[i];
    if (path == NULL && synthetic == NULL)
        bench_fail("usage: bench_psm FILE.csv[.gz] | --synthetic ROWS,COLUMNS [--json] [--rows N]",
                   NULL);
    table t;
    load(&t, path, synthetic, most_rows);
    if (!json) {
        printf("%-10s %8s %8s %8s %9s %9s\n", "strategy", "phr", "cell", "bound", "cpu s",
               "bound s");
    }
    run(&t, "original", PSM_OFF, false, json);
    run(&t, "fixed", PSM_FIXED, false, json);
    run(&t, "best_fixed", PSM_FIXED, true, json);
    run(&t, "grouped", PSM_GROUPED, false, json);
    run(&t, "auto", PSM_AUTO, false, json);
    arena_free(t.mem);
    return 0;
}
