/*
 * psm.c - psm_solve: carries out a strategy and fills in the result.
 *
 * Invariants: each row has each field exactly once; the counts in psm_result are taken from the
 * finished orders, not from the search's estimates.
 */
#include "psm_int.h"

#include <math.h>
#include <string.h>

const char *psm_strategy_name(psm_strategy s) {
    static const char *const names[] = {
        [PSM_OFF] = "off", [PSM_FIXED] = "fixed", [PSM_GROUPED] = "grouped", [PSM_AUTO] = "auto"};
    BASE_COVERS(names, PSM_STRATEGIES);
    return names[s];
}

/* ---- groups of equal order ------------------------------------------------------------------- */

/* A field order and the number of its rows. */
typedef struct order_count {
    const uint8_t *order; /* [fields] in psm_result.field_order, at the first row with this order */
    uint32_t rows;
    int fields; /* number of fields sent */
} order_count;

/* Returns the number of fields of a row that are sent. */
static int present_fields(const psm_table *t, const uint8_t *order, uint32_t row) {
    int n = t->fields;
    while (n > 0 && psm_is_absent(t, order[n - 1], row))
        n--;
    return n;
}

/* Finds the entry of an order. If there is none, adds one with 0 rows. */
static order_count *find_order(scratch *mem, hash_index *by_order, order_count *all,
                               const uint8_t *order, int fields) {
    uint64_t hash = hash64(order, (size_t)fields, (uint64_t)fields);
    for (hash_slot *s = hash_index_first(by_order, hash); s; s = hash_index_next(by_order, s)) {
        order_count *c = &all[s->item];
        if (c->fields == fields && memcmp(c->order, order, (size_t)fields) == 0)
            return c;
    }
    order_count *c = &all[by_order->count];
    *c = (order_count){.order = order, .fields = fields};
    scratch_index_add(mem, by_order, hash, by_order->count);
    return c;
}

/* Inserts an order into result->groups if it is one of the largest. */
static void keep_largest(psm_result *result, const order_count *c) {
    int at = result->ngroups;
    while (at > 0 && result->groups[at - 1].rows < c->rows)
        at--;
    if (at == PSM_MAX_GROUPS)
        return;
    if (result->ngroups < PSM_MAX_GROUPS)
        result->ngroups++;
    for (int i = result->ngroups - 1; i > at; i--)
        result->groups[i] = result->groups[i - 1];
    result->groups[at] = (psm_group){.order = c->order, .fields = c->fields, .rows = c->rows};
}

/* Counts the rows of each field order, and lists the largest groups; groups of equal size are
 * listed in the order in which they are sent. */
static void count_orders(const psm_table *t, psm_result *result) {
    scratch_mark mark = scratch_save(t->mem);
    order_count *all = SCRATCH_ARRAY(t->mem, order_count, t->rows);
    hash_index by_order = {0};
    for (uint32_t i = 0; i < t->rows; i++) {
        uint32_t row = result->row_order[i];
        const uint8_t *order = result->field_order + (size_t)row * (size_t)t->fields;
        find_order(t->mem, &by_order, all, order, present_fields(t, order, row))->rows++;
    }
    result->orders = by_order.count;
    for (uint32_t i = 0; i < result->orders; i++)
        keep_largest(result, &all[i]);
    scratch_restore(t->mem, mark);
}

/* ---- strategies ------------------------------------------------------------------------------ */

static bool is_permutation(const uint8_t *order, int n) {
    field_set seen = 0;
    for (int i = 0; i < n; i++) {
        if (order[i] >= n)
            return false;
        seen |= set_of(order[i]);
    }
    return set_size(seen) == n;
}

/* A solution: field orders, sorted rows, and the units they share. */
typedef struct candidate {
    psm_paths paths;
    uint32_t *rows;
    uint64_t shared;
} candidate;

static candidate candidate_new(const psm_table *t) {
    size_t n = t->rows;
    return (candidate){.paths.order = SCRATCH_ARRAY(t->mem, uint8_t, n * (size_t)t->fields),
                       .paths.depth = SCRATCH_ZARRAY(t->mem, uint8_t, n),
                       .rows = SCRATCH_ARRAY(t->mem, uint32_t, n)};
}

static void candidate_count(const psm_table *t, candidate *c) {
    scratch_mark mark = scratch_save(t->mem);
    uint32_t *keys = SCRATCH_ARRAY(t->mem, uint32_t, (size_t)t->rows * (size_t)t->fields);
    psm_trie_keys(t, &c->paths, keys);
    psm_trie_sort(t, keys, c->rows);
    c->shared = psm_trie_shared(t, keys, c->rows);
    scratch_restore(t->mem, mark);
}

static void candidate_one_order(const psm_table *t, candidate *c, const uint8_t *order) {
    psm_order_all(t, &c->paths, order);
    candidate_count(t, c);
}

static void candidate_grouped(psm_search *s, candidate *c, psm_single *one) {
    s->paths = &c->paths;
    psm_search_grouped(s, one);
    psm_complete(s->t, &c->paths, one->order);
    candidate_count(s->t, c);
}

/* Sets *c to the better of the searched order and score_order. The search counts only equal cells,
 * so score_order may share more leading units of different cells. */
static void candidate_best_fixed(const psm_table *t, candidate *c, const psm_single *one) {
    candidate_one_order(t, c, t->score_order);
    scratch_mark mark = scratch_save(t->mem);
    candidate other = candidate_new(t);
    candidate_one_order(t, &other, one->order);
    if (other.shared >= c->shared) {
        memcpy(c->paths.order, other.paths.order, (size_t)t->rows * (size_t)t->fields);
        memcpy(c->rows, other.rows, sizeof *c->rows * t->rows);
        c->shared = other.shared;
    }
    scratch_restore(t->mem, mark);
}

static psm_search open_search(psm_table *t, const psm_options *options) {
    psm_search s;
    if (t->atom == NULL)
        psm_find_atoms(t);
    psm_search_open(&s, t, options->work_limit, t->mem);
    return s;
}

/* Whether grouping saves at least `percent` of the units that the fixed order computes, and at
 * least one unit. */
static bool grouping_pays(const psm_table *t, const candidate *grouped, const candidate *fixed,
                          uint32_t percent) {
    uint64_t computed = t->units - fixed->shared;
    return grouped->shared > fixed->shared &&
           (grouped->shared - fixed->shared) * 100 >= computed * percent;
}

enum {
    AUTO_PERCENT = 10, /* `percent` of grouping_pays for PSM_AUTO */
    SAMPLE_PERCENT = 2 /* `percent` of grouping_pays for a sample */
};
enum {
    SAMPLE_ROWS = 4096,
    SAMPLE_RUN = 32,               /* rows of a run of neighbouring rows */
    SAMPLED_FROM = 8 * SAMPLE_ROWS /* tables with at most this many rows are not sampled */
};

/* Whether a sample of a large table shows that grouping gains almost nothing. The sample consists
 * of evenly spaced runs of neighbouring rows, which are often similar. A sample shares less than
 * the whole table, so only an almost zero gain rules grouping out. */
static bool sample_rules_out(const psm_input *in, const psm_options *options, scratch *mem) {
    if (in->rows <= SAMPLED_FROM)
        return false;
    scratch_mark mark = scratch_save(mem);
    uint32_t *chosen = SCRATCH_ARRAY(mem, uint32_t, SAMPLE_ROWS), runs = SAMPLE_ROWS / SAMPLE_RUN;
    for (uint32_t i = 0; i < SAMPLE_ROWS; i++) {
        uint64_t run = i / SAMPLE_RUN;
        chosen[i] = (uint32_t)(run * (in->rows - SAMPLE_RUN) / (runs - 1)) + i % SAMPLE_RUN;
    }
    psm_table t;
    psm_encode_rows(&t, in, chosen, SAMPLE_ROWS, mem);
    psm_search s = open_search(&t, options);
    psm_single one = psm_single_new(&t);
    candidate grouped = candidate_new(&t), fixed = candidate_new(&t);
    candidate_grouped(&s, &grouped, &one);
    candidate_best_fixed(&t, &fixed, &one);
    bool pays = grouping_pays(&t, &grouped, &fixed, SAMPLE_PERCENT);
    scratch_restore(mem, mark);
    return !pays;
}

static candidate solve_fixed(psm_table *t, const psm_options *options, bool best) {
    candidate c = candidate_new(t);
    if (options->given_order != NULL) {
        candidate_one_order(t, &c, options->given_order);
    } else if (!best) {
        candidate_one_order(t, &c, t->score_order);
    } else {
        psm_search s = open_search(t, options);
        psm_single one = psm_single_new(t);
        psm_search_single(&s, &one);
        candidate_best_fixed(t, &c, &one);
    }
    return c;
}

static candidate solve_off(const psm_table *t, const psm_options *options) {
    uint8_t written[PSM_MAX_FIELDS];
    for (int f = 0; f < t->fields; f++)
        written[f] = (uint8_t)f;
    candidate c = candidate_new(t);
    candidate_one_order(t, &c, options->given_order != NULL ? options->given_order : written);
    for (uint32_t r = 0; r < t->rows; r++)
        c.rows[r] = r;
    return c;
}

/* Returns the grouped solution if grouping_pays; otherwise returns the best fixed order. */
static candidate solve_grouped(psm_table *t, const psm_options *options, uint32_t percent,
                               psm_result *result) {
    psm_search s = open_search(t, options);
    psm_single one = psm_single_new(t);
    candidate grouped = candidate_new(t), fixed = candidate_new(t);
    candidate_grouped(&s, &grouped, &one);
    candidate_best_fixed(t, &fixed, &one);
    if (!grouping_pays(t, &grouped, &fixed, percent))
        return fixed;
    result->used = PSM_GROUPED;
    return grouped;
}

static candidate solve_by_strategy(psm_table *t, const psm_input *in, const psm_options *options,
                                   psm_result *result) {
    result->used = PSM_FIXED;
    if (options->strategy == PSM_OFF) {
        result->used = PSM_OFF;
        return solve_off(t, options);
    }
    if (options->given_order != NULL || options->one_order)
        return solve_fixed(t, options, true);
    if (options->strategy == PSM_FIXED)
        return solve_fixed(t, options, false);
    if (options->strategy == PSM_GROUPED)
        return solve_grouped(t, options, 0, result);
    return sample_rules_out(in, options, t->mem) ? solve_fixed(t, options, true)
                                                 : solve_grouped(t, options, AUTO_PERCENT, result);
}

static void solve_table(psm_table *t, const psm_input *in, const psm_options *options,
                        psm_result *result) {
    candidate c = solve_by_strategy(t, in, options, result);
    memcpy(result->field_order, c.paths.order, (size_t)t->rows * (size_t)t->fields);
    memcpy(result->row_order, c.rows, sizeof *c.rows * t->rows);
    result->shared_units = c.shared;
    result->total_units = t->units;
    count_orders(t, result);
    if (options->bound) {
        size_t cells = (size_t)t->rows * (size_t)t->fields;
        uint32_t *keys = SCRATCH_ARRAY(t->mem, uint32_t, cells);
        uint64_t reached = psm_cell_units(t, &c.paths, keys, c.rows);
        psm_search s = open_search(t, options);
        result->bound = psm_bound(&s, reached);
    }
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
    solve_table(&t, job->in, job->options, job->result);
}

int psm_solve(const psm_input *in, const psm_options *options, arena *out, psm_result *result,
              err *e) {
    int status = psm_check(in, e);
    if (status != 0)
        return status;
    if (options->given_order != NULL && !is_permutation(options->given_order, in->nfields))
        return err_set(e, ERR_INTERNAL, "psm: the field order given is no permutation");
    double start = clock_thread_ms();
    *result = (psm_result){.used = PSM_OFF, .bound = NAN};
    result->field_order = arena_alloc(out, (size_t)in->rows * (size_t)in->nfields + 1);
    result->row_order = arena_alloc(out, sizeof(uint32_t) * ((size_t)in->rows + 1));
    if (arena_failed(out))
        return err_set(e, ERR_FULL, "not enough memory to order %u rows of %d fields", in->rows,
                       in->nfields);
    solve_job job = {in, options, result};
    if (!scratch_run(solve_step, &job, options->cancel)) {
        if ((status = check_cancel(options->cancel, e)) != 0)
            return status;
        return err_set(e, ERR_FULL, "not enough memory to order %u rows of %d fields", in->rows,
                       in->nfields);
    }
    result->solve_ms = clock_thread_ms() - start;
    return 0;
}
