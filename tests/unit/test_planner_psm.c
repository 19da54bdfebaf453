/*
 * test_planner_psm.c - the solver against brute force, and on random tables: nothing lost, nothing
 * miscounted.
 */
#include "planner/psm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ROWS = 40, MAX_FIELDS = 8, MAX_VALUES = 12, MAX_UNITS = 6 };

typedef struct table {
    psm_input in;
    psm_field field[PSM_MAX_FIELDS];
    uint32_t ids[PSM_MAX_FIELDS][MAX_ROWS];
    uint32_t length[PSM_MAX_FIELDS][MAX_VALUES];
    int32_t unit[PSM_MAX_FIELDS][MAX_VALUES][MAX_UNITS];
    const int32_t *units[PSM_MAX_FIELDS][MAX_VALUES];
} table;

static uint64_t random_state;

static uint32_t random_below(uint32_t n) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % n);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Values are told apart by their last unit, which stands for their separator too; the others are
 * few, so beginnings are often alike. */
static void fill_values(table *t, int f, bool known) {
    psm_field *field = &t->field[f];
    for (uint32_t v = 0; v < field->distinct; v++) {
        uint32_t n = random_below(MAX_UNITS);
        for (uint32_t i = 0; i < n; i++)
            t->unit[f][v][i] = (int32_t)random_below(2);
        t->unit[f][v][n++] = 100 + (int32_t)v;
        t->length[f][v] = n;
        t->units[f][v] = t->unit[f][v];
    }
    field->length = t->length[f];
    field->units = known ? t->units[f] : NULL;
}

static void random_table(table *t, uint32_t rows, int fields, uint32_t values) {
    *t = (table){.in = {rows, fields, t->field}};
    bool nulls = random_below(2) == 0;
    for (int f = 0; f < fields; f++) {
        psm_field *field = &t->field[f];
        field->distinct = 1 + random_below(values);
        field->name_units = random_below(3);
        field->value = t->ids[f];
        fill_values(t, f, random_below(4) != 0);
        int copy = f > 0 && random_below(4) == 0 ? (int)random_below((uint32_t)f) : -1;
        for (uint32_t r = 0; r < rows; r++) {
            uint32_t v = random_below(field->distinct);
            if (copy >= 0) /* a functional dependency */
                v = t->ids[copy][r] == PSM_ABSENT ? 0 : t->ids[copy][r] % field->distinct;
            t->ids[f][r] = nulls && random_below(5) == 0 ? PSM_ABSENT : v;
        }
    }
}

/* ---- the naive count ------------------------------------------------------------------------- */

/* One row as it is sent: names are units of their own, opaque values one unit repeated. */
static uint32_t send_row(const table *t, const uint8_t *order, uint32_t row, bool cells,
                         int64_t *out, uint32_t *weight) {
    uint32_t n = 0;
    for (int i = 0; i < t->in.nfields; i++) {
        int f = order[i];
        uint32_t v = t->ids[f][row], name = t->field[f].name_units;
        if (v == PSM_ABSENT)
            continue;
        if (cells || t->field[f].units == NULL) {
            if (!cells) {
                for (uint32_t k = 0; k < name; k++) {
                    out[n] = -1 - f;
                    weight[n++] = 1;
                }
                name = 0;
            }
            out[n] = INT64_C(1000) * (f + 1) + v;
            weight[n++] = name + t->length[f][v];
            continue;
        }
        for (uint32_t k = 0; k < name + t->length[f][v]; k++) {
            out[n] = k < name ? -1 - f : t->unit[f][v][k - name];
            weight[n++] = 1;
        }
    }
    return n;
}

typedef struct sent {
    int64_t unit[MAX_FIELDS * (MAX_UNITS + 4)];
    uint32_t weight[MAX_FIELDS * (MAX_UNITS + 4)];
    uint32_t n;
} sent;

static uint64_t common(const sent *a, const sent *b) {
    uint64_t sum = 0;
    for (uint32_t k = 0; k < a->n && k < b->n && a->unit[k] == b->unit[k]; k++)
        sum += a->weight[k];
    return sum;
}

static uint64_t naive_shared(const table *t, const uint8_t *field_order, const uint32_t *rows,
                             bool cells, bool adjacent) {
    static sent s[MAX_ROWS];
    uint64_t shared = 0;
    for (uint32_t i = 0; i < t->in.rows; i++) {
        uint32_t row = rows[i];
        s[i].n = send_row(t, field_order + row * (size_t)t->in.nfields, row, cells, s[i].unit,
                          s[i].weight);
        uint64_t most = 0;
        for (uint32_t j = adjacent && i > 0 ? i - 1 : 0; j < i; j++)
            most = BASE_MAX(most, common(&s[i], &s[j]));
        shared += most;
    }
    return shared;
}

static uint64_t naive_total(const table *t) {
    uint64_t total = 0;
    for (int f = 0; f < t->in.nfields; f++) {
        for (uint32_t r = 0; r < t->in.rows; r++) {
            uint32_t v = t->ids[f][r];
            total += v == PSM_ABSENT ? 0 : t->field[f].name_units + t->length[f][v];
        }
    }
    return total;
}

/* ---- what every result must be --------------------------------------------------------------- */

static void check_orders(const table *t, const psm_result *r) {
    uint32_t seen[MAX_ROWS] = {0};
    for (uint32_t i = 0; i < t->in.rows; i++) {
        assert_true(r->row_order[i] < t->in.rows);
        seen[r->row_order[i]]++;
    }
    for (uint32_t row = 0; row < t->in.rows; row++) {
        assert_int_equal(seen[row], 1);
        uint64_t fields = 0;
        bool gone = false;
        for (int i = 0; i < t->in.nfields; i++) {
            int f = r->field_order[row * (size_t)t->in.nfields + (size_t)i];
            assert_true(f < t->in.nfields);
            fields |= UINT64_C(1) << f;
            bool absent = t->ids[f][row] == PSM_ABSENT;
            assert_true(absent || !gone);
            gone |= absent;
        }
        assert_int_equal(__builtin_popcountll(fields), t->in.nfields);
    }
}

static void check_groups(const table *t, const psm_result *r) {
    uint32_t rows = 0;
    assert_true((uint32_t)r->ngroups == BASE_MIN(r->orders, (uint32_t)PSM_MAX_GROUPS));
    for (int g = 0; g < r->ngroups; g++) {
        assert_true(g == 0 || r->groups[g].rows <= r->groups[g - 1].rows);
        assert_true(r->groups[g].fields <= t->in.nfields);
        rows += r->groups[g].rows;
    }
    assert_true(r->orders > PSM_MAX_GROUPS ? rows < t->in.rows : rows == t->in.rows);
}

static void check_counts(const table *t, const psm_result *r) {
    psm_score score;
    err e = {0};
    assert_int_equal(psm_evaluate(&t->in, r->field_order, r->row_order, &score, &e), 0);
    assert_true(r->total_units == naive_total(t) && score.total_units == r->total_units);
    uint64_t shared = naive_shared(t, r->field_order, r->row_order, false, false);
    assert_true(r->used == PSM_OFF || r->shared_units == shared);
    assert_true(score.shared_units == shared);
    assert_true(score.cell_units == naive_shared(t, r->field_order, r->row_order, true, false));
    assert_true(score.adjacent_units == naive_shared(t, r->field_order, r->row_order, false, true));
    if (!isnan(r->bound) && r->total_units > 0)
        assert_true((double)score.cell_units <= r->bound * (double)r->total_units + 1e-6);
}

static psm_result solve(const table *t, arena *mem, psm_options options) {
    psm_result r;
    err e = {0};
    assert_int_equal(psm_solve(&t->in, &options, mem, &r, &e), 0);
    return r;
}

static void test_random_tables(void **state) {
    (void)state;
    const char *seed = getenv("PSM_SEED");
    random_state = seed != NULL ? strtoull(seed, NULL, 10) : 20240607;
    print_message("seed %llu\n", (unsigned long long)random_state);
    table t;
    arena *mem = arena_new();
    for (int i = 0; i < 10000; i++) {
        random_table(&t, random_below(MAX_ROWS + 1), (int)random_below(MAX_FIELDS + 1),
                     1 + random_below(MAX_VALUES));
        psm_options options = {.strategy = (psm_strategy)(i % 4),
                               .one_order = random_below(3) == 0,
                               .work_limit = random_below(3) == 0 ? 1 + random_below(2000) : 0,
                               .bound = random_below(4) == 0};
        psm_result r = solve(&t, mem, options);
        assert_true(r.used != PSM_AUTO);
        psm_result fixed = solve(&t, mem, (psm_options){.strategy = PSM_FIXED});
        assert_true(options.strategy < PSM_GROUPED || r.shared_units >= fixed.shared_units);
        assert_true(isnan(r.bound) != options.bound);
        check_orders(&t, &r);
        check_groups(&t, &r);
        check_counts(&t, &r);
        arena_reset(mem);
    }
    arena_free(mem);
}

/* ---- against the optimum --------------------------------------------------------------------- */

static uint64_t brute_best;

static void brute_force(table *t, uint8_t *orders, const uint8_t (*perm)[4], int perms,
                        uint32_t row) {
    uint32_t rows[MAX_ROWS] = {0, 1, 2, 3, 4};
    if (row == t->in.rows) {
        brute_best = BASE_MAX(brute_best, naive_shared(t, orders, rows, true, false));
        return;
    }
    for (int p = 0; p < perms; p++) {
        memcpy(orders + row * (size_t)t->in.nfields, perm[p], (size_t)t->in.nfields);
        brute_force(t, orders, perm, perms, row + 1);
    }
}

static const uint8_t permutations[6][4] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                           {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* The programme is exact among trees with one field per node, and
 * re-solves what is left alone: on tiny tables it is nearly always the
 * optimum over all orders of all rows, and the bound is never below it. */
static void test_tiny_optimum(void **state) {
    (void)state;
    random_state = 7;
    table t;
    arena *mem = arena_new();
    int optimal = 0, cases = 300;
    for (int i = 0; i < cases; i++) {
        random_table(&t, 4, 3, 3);
        for (int f = 0; f < 3; f++) {
            t.field[f].name_units = 0;
            t.field[f].units = NULL;
        }
        uint8_t orders[4 * 3];
        brute_best = 0;
        brute_force(&t, orders, permutations, 6, 0);
        psm_result r = solve(&t, mem, (psm_options){.strategy = PSM_GROUPED, .bound = true});
        assert_true(r.shared_units <= brute_best);
        assert_true((double)brute_best <= r.bound * (double)r.total_units + 1e-6);
        optimal += r.shared_units == brute_best;
        arena_reset(mem);
    }
    print_message("%d of %d optimal\n", optimal, cases);
    assert_true(optimal * 100 >= cases * 97);
    arena_free(mem);
}

static void test_best_single_order(void **state) {
    (void)state;
    random_state = 11;
    table t;
    arena *mem = arena_new();
    for (int i = 0; i < 500; i++) {
        random_table(&t, 20, 3, 4);
        for (int f = 0; f < 3; f++) {
            t.field[f].name_units = 0;
            t.field[f].units = NULL;
        }
        uint64_t best = 0;
        for (int p = 0; p < 6; p++) {
            psm_result r = solve(
                &t, mem, (psm_options){.strategy = PSM_FIXED, .given_order = permutations[p]});
            best = BASE_MAX(best, r.shared_units);
        }
        psm_result r = solve(&t, mem, (psm_options){.strategy = PSM_AUTO, .one_order = true});
        assert_int_equal(r.used, PSM_FIXED);
        assert_true(r.shared_units == best);
        arena_reset(mem);
    }
    arena_free(mem);
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void test_fixed_is_v1(void **state) {
    (void)state;
    /* scores: total units / distinct: a 4*2/4 = 2, b (6+6+6+2)/2 = 10, c 4*3/1 = 12 */
    static const uint32_t a[] = {3, 1, 2, 0}, b[] = {1, 0, 1, 1}, c[] = {0, 0, 0, 0};
    static const uint32_t la[] = {2, 2, 2, 2}, lb[] = {2, 6}, lc[] = {3};
    psm_field field[] = {{.distinct = 4, .value = a, .length = la},
                         {.distinct = 2, .value = b, .length = lb},
                         {.distinct = 1, .value = c, .length = lc}};
    psm_input in = {4, 3, field};
    psm_options options = {.strategy = PSM_FIXED};
    arena *mem = arena_new();
    psm_result r;
    err e = {0};
    assert_int_equal(psm_solve(&in, &options, mem, &r, &e), 0);
    static const uint8_t order[] = {2, 1, 0};
    static const uint32_t rows[] = {1, 3, 2, 0}; /* c, then b, then a, by rank */
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(r.field_order + i * 3, order, 3);
        assert_int_equal(r.row_order[i], rows[i]);
    }
    assert_int_equal(r.total_units, 40);
    assert_int_equal(r.shared_units, 3 * 3 + 2 * 6);
    assert_int_equal(r.orders, 1);
    arena_free(mem);
}

static void test_off_is_identity(void **state) {
    (void)state;
    static const uint32_t a[] = {1, PSM_ABSENT, 0}, b[] = {0, 0, 0};
    static const uint32_t la[] = {1, 1}, lb[] = {5};
    psm_field field[] = {{.distinct = 2, .value = a, .length = la},
                         {.distinct = 1, .value = b, .length = lb}};
    psm_input in = {3, 2, field};
    psm_options options = {.strategy = PSM_OFF};
    arena *mem = arena_new();
    psm_result r;
    err e = {0};
    assert_int_equal(psm_solve(&in, &options, mem, &r, &e), 0);
    static const uint8_t orders[] = {0, 1, 1, 0, 0, 1};
    static const uint32_t rows[] = {0, 1, 2};
    assert_memory_equal(r.field_order, orders, sizeof orders);
    assert_memory_equal(r.row_order, rows, sizeof rows);
    assert_int_equal(r.used, PSM_OFF);
    arena_free(mem);
}

/* Two halves that agree on different long fields: one order serves one half only. */
static void check_auto(uint32_t rows) {
    arena *mem = arena_new();
    uint32_t *a = ARENA_ARRAY(mem, uint32_t, rows), *b = ARENA_ARRAY(mem, uint32_t, rows);
    uint32_t *same = ARENA_ARRAY(mem, uint32_t, rows), *length = ARENA_ARRAY(mem, uint32_t, rows);
    for (uint32_t r = 0; r < rows; r++) {
        a[r] = r < rows / 2 ? 0 : r;
        b[r] = r < rows / 2 ? r : 0;
        same[r] = r % 4;
        length[r] = 10;
    }
    psm_field field[] = {{.distinct = rows, .value = a, .length = length},
                         {.distinct = rows, .value = b, .length = length},
                         {.distinct = rows, .value = same, .length = length}};
    psm_options options = {.strategy = PSM_AUTO};
    psm_result r;
    err e = {0};
    psm_input in = {rows, 2, field};
    assert_int_equal(psm_solve(&in, &options, mem, &r, &e), 0);
    assert_int_equal(r.used, PSM_GROUPED);
    assert_int_equal(r.shared_units, 2 * (rows / 2 - 1) * 10);
    assert_int_equal(r.orders, 2);
    options.one_order = true;
    assert_int_equal(psm_solve(&in, &options, mem, &r, &e), 0);
    assert_int_equal(r.used, PSM_FIXED);
    options.one_order = false;
    in = (psm_input){rows, 1, field + 2};
    assert_int_equal(psm_solve(&in, &options, mem, &r, &e), 0);
    assert_int_equal(r.used, PSM_FIXED);
    assert_int_equal(r.shared_units, (rows - 4) * 10);
    arena_free(mem);
}

static void test_auto_chooses(void **state) {
    (void)state;
    check_auto(40);
    check_auto(40000); /* enough for a sample to be asked first */
}

static void test_errors(void **state) {
    (void)state;
    static const uint32_t a[] = {2}, length[] = {1, 1};
    static const uint8_t twice[] = {0, 0};
    psm_field field[] = {{.distinct = 2, .value = a, .length = length},
                         {.distinct = 2, .value = a, .length = length}};
    arena *mem = arena_new();
    psm_result r;
    psm_score score;
    err e = {0};
    psm_options options = {.strategy = PSM_FIXED};
    atomic_bool cancel = true;
    psm_input in = {0, 2, field};
    options.cancel = &cancel;
    assert_int_equal(psm_solve(&in, &options, mem, &r, &e), ERR_CANCELLED);
    options.cancel = NULL;
    in = (psm_input){1, 1, field};
    assert_int_equal(psm_solve(&in, &options, mem, &r, &e), ERR_INTERNAL);
    assert_int_equal(psm_evaluate(&in, twice, NULL, &score, &e), ERR_INTERNAL);
    in = (psm_input){0, PSM_MAX_FIELDS + 1, field};
    assert_int_equal(psm_solve(&in, &options, mem, &r, &e), ERR_LIMIT);
    in = (psm_input){0, 2, field};
    options.given_order = twice;
    assert_int_equal(psm_solve(&in, &options, mem, &r, &e), ERR_INTERNAL);
    arena_free(mem);
}

static void test_many_fields(void **state) {
    (void)state;
    random_state = 3;
    table t;
    arena *mem = arena_new();
    random_table(&t, 30, PSM_MAX_FIELDS, 5);
    for (int s = 0; s < 4; s++) {
        psm_result r = solve(&t, mem, (psm_options){.strategy = (psm_strategy)s, .bound = true});
        check_orders(&t, &r);
    }
    arena_free(mem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_tables),
        cmocka_unit_test(test_tiny_optimum),
        cmocka_unit_test(test_best_single_order),
        cmocka_unit_test(test_fixed_is_v1),
        cmocka_unit_test(test_off_is_identity),
        cmocka_unit_test(test_auto_chooses),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_many_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
