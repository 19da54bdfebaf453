/*
 * psm.c - the solver's front: which strategy is used, and what becomes of its orders.
 *
 * Invariant: whatever the search proposes, each row keeps each of its fields exactly once, and
 * psm_result's counts are taken from the finished orders, never from the search's own estimate.
 */
#include "psm_int.h"

#include <math.h>
#include <string.h>
#include <time.h>

const char *psm_strategy_name(psm_strategy s) {
    static const char *const names[] = {"off", "fixed", "grouped", "auto"};
    return names[s];
}

static double cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* ---- groups of equal order ---------------------------------------------------------------------
 */

typedef struct order_count {
    const uint8_t *order; /* of the first row that has it */
    uint32_t rows;
    int fields;
} order_count;

static int present_fields(const psm_table *t, const uint8_t *order, uint32_t row) {
    int n = t->fields;
    while (n > 0 && psm_is_absent(t, order[n - 1], row)) {
        n--;
    }
    return n;
}

static order_count *find_order(order_count *slot, uint32_t mask, const uint8_t *order, int fields) {
    uint32_t at = (uint32_t)hash64(order, (size_t)fields, (uint64_t)fields) & mask;
    while (slot[at].rows != 0 &&
           (slot[at].fields != fields || memcmp(slot[at].order, order, (size_t)fields) != 0)) {
        at = (at + 1) & mask;
    }
    return &slot[at];
}

static void keep_largest(psm_result *result, const order_count *c) {
    int at = result->ngroups;
    while (at > 0 && result->groups[at - 1].rows < c->rows) {
        at--;
    }
    if (at == PSM_MAX_GROUPS) {
        return;
    }
    if (result->ngroups < PSM_MAX_GROUPS) {
        result->ngroups++;
    }
    for (int i = result->ngroups - 1; i > at; i--) {
        result->groups[i] = result->groups[i - 1];
    }
    result->groups[at] = (psm_group){.order = c->order, .fields = c->fields, .rows = c->rows};
}

/* Listed in the order in which the rows are sent, so that equal sizes keep it. */
static void count_orders(const psm_table *t, psm_result *result) {
    scratch_mark mark = scratch_save(t->mem);
    uint32_t slots = 16;
    while (slots < 2 * (uint64_t)t->rows && slots < UINT32_C(1) << 31) {
        slots *= 2;
    }
    order_count *slot = SCRATCH_ZARRAY(t->mem, order_count, slots);
    uint32_t *first = SCRATCH_ARRAY(t->mem, uint32_t, t->rows);
    for (uint32_t i = 0; i < t->rows; i++) {
        uint32_t row = result->row_order[i];
        const uint8_t *order = result->field_order + (size_t)row * (size_t)t->fields;
        int fields = present_fields(t, order, row);
        order_count *c = find_order(slot, slots - 1, order, fields);
        if (c->rows++ == 0) {
            c->order = order;
            c->fields = fields;
            first[result->orders++] = (uint32_t)(c - slot);
        }
    }
    for (uint32_t i = 0; i < result->orders; i++) {
        keep_largest(result, &slot[first[i]]);
    }
    scratch_restore(t->mem, mark);
}

/* ---- strategies --------------------------------------------------------------------------------
 */

static bool is_permutation(const uint8_t *order, int n) {
    field_set seen = 0;
    for (int i = 0; i < n; i++) {
        if (order[i] >= n) {
            return false;
        }
        seen |= set_of(order[i]);
    }
    return set_size(seen) == n;
}

static void identity_rows(const psm_table *t, psm_result *result) {
    for (uint32_t r = 0; r < t->rows; r++) {
        result->row_order[r] = r;
    }
}

static void solve_fixed(const psm_table *t, psm_paths *p, const psm_options *options,
                        psm_result *result) {
    const uint8_t *order = options->given_order != NULL ? options->given_order : t->score_order;
    psm_order_all(t, p, order);
    result->used = PSM_FIXED;
}

static void solve_grouped(psm_table *t, psm_paths *p, const psm_options *options,
                          psm_result *result) {
    psm_search search;
    psm_find_atoms(t);
    psm_search_open(&search, t, p, options->work_limit, t->mem);
    psm_search_grouped(&search);
    psm_polish(t, p);
    psm_complete(t, p, t->score_order);
    result->used = PSM_GROUPED;
}

static void solve_table(psm_table *t, const psm_options *options, psm_result *result) {
    psm_paths p = {.order = result->field_order, .depth = SCRATCH_ARRAY(t->mem, uint8_t, t->rows)};
    uint8_t written[PSM_MAX_FIELDS];
    for (int f = 0; f < t->fields; f++) {
        written[f] = (uint8_t)f;
    }
    if (options->strategy == PSM_OFF) {
        psm_order_all(t, &p, written);
    } else if (options->strategy == PSM_GROUPED && options->given_order == NULL) {
        solve_grouped(t, &p, options, result);
    } else {
        solve_fixed(t, &p, options, result);
    }
    scratch_mark mark = scratch_save(t->mem);
    uint32_t *keys = SCRATCH_ARRAY(t->mem, uint32_t, (size_t)t->rows * (size_t)t->fields);
    psm_trie_keys(t, &p, keys);
    psm_trie_sort(t, keys, result->row_order);
    result->shared_units = psm_trie_shared(t, keys, result->row_order);
    scratch_restore(t->mem, mark);
    if (result->used == PSM_OFF) {
        identity_rows(t, result);
    }
    result->total_units = t->units;
    count_orders(t, result);
}

typedef struct solve_job {
    const psm_input *in;
    const psm_options *options;
    psm_result *result;
} solve_job;

static void solve_step(void *p, scratch *mem) {
    solve_job *job = p;
    psm_table t;
    psm_encode(&t, job->in, mem);
    solve_table(&t, job->options, job->result);
}

int psm_solve(const psm_input *in, const psm_options *options, arena *out, psm_result *result,
              err *e) {
    int status = psm_check(in, e);
    if (status != 0) {
        return status;
    }
    if (options->given_order != NULL && !is_permutation(options->given_order, in->nfields)) {
        return err_set(e, ERR_INTERNAL, "psm: the field order given is no permutation");
    }
    double start = cpu_ms();
    *result = (psm_result){.used = PSM_OFF, .bound = NAN};
    result->field_order = arena_alloc(out, (size_t)in->rows * (size_t)in->nfields + 1);
    result->row_order = arena_alloc(out, sizeof(uint32_t) * ((size_t)in->rows + 1));
    if (arena_failed(out)) {
        return err_set(e, ERR_FULL, "no space for the order of %u rows", in->rows);
    }
    solve_job job = {in, options, result};
    if (!scratch_run(solve_step, &job)) {
        return err_set(e, ERR_FULL, "no memory to order %u rows of %d fields", in->rows,
                       in->nfields);
    }
    result->solve_ms = cpu_ms() - start;
    return 0;
}
