/*
 * agg.c - computes the aggregates COUNT, SUM, AVG, MIN, MAX, GROUP_CONCAT, MEDIAN, STDDEV, FIRST,
 * with DISTINCT, FILTER and ORDER BY.
 *
 *   cells  the state of each group
 *   kept   for ORDER BY, until the input ends: group, sort keys and text of each row (may spill)
 *
 * Invariant: INTEGER sums do not depend on the order of rows: they have 128 bits and are
 * range-checked at the end. REAL sums depend on it as little as possible: they are compensated
 * (Neumaier).
 */
#include <math.h>
#include <string.h>

#include "agg_int.h"
#include "eval/eval_int.h"
#include "rows/cells_int.h"
#include "rows/row_sort_int.h"
#include "storage/containers.h"

struct agg {
    const exec_ctx *ctx;
    mem_budget *memory;
    const plan_agg *plan;
    value_type arg_type;
    agg_cell *cells;
    uint32_t ncells;      /* allocated length of `cells` */
    mem_array cells_in;   /* memory of `cells` */
    arena *texts;         /* agg_cell.text.p of all cells; NULL until there is one (may spill) */
    hash_table *distinct; /* DISTINCT: the (group, value) pairs so far; else NULL */
    int *new_rows;        /* scratch of choose_rows */
    int *rows;            /* numbers of the rows of the current batch to aggregate */
    str separator;
    bool separator_known;
    rowset *kept; /* NULL if there is no ORDER BY, or after its texts were joined */
    sort_key *by; /* order of `kept`: by the group (by[0], no expression), then by the sort keys */
    arena *mem;
};

static void keep_new(agg *a) {
    int n = a->plan->nkeys;
    value_type *types = ARENA_ARRAY(a->mem, value_type, n + 2);
    a->by = ARENA_ARRAY(a->mem, sort_key, n + 1);
    types[0] = TYPE_INTEGER;
    for (int k = 0; k < n; k++) {
        a->by[k + 1] = a->plan->keys[k];
        types[k + 1] = a->plan->keys[k].value->type;
    }
    types[n + 1] = a->arg_type;
    a->kept = rowset_new_in(a->memory, types, n + 2);
}

agg *agg_new(const exec_ctx *ctx, mem_budget *memory, const plan_agg *what, arena *mem) {
    agg *a = ARENA_NEW(mem, agg);
    a->ctx = ctx;
    a->memory = memory;
    a->plan = what;
    a->mem = mem;
    a->arg_type = what->arg ? what->arg->type : TYPE_NULL;
    a->rows = ARENA_ARRAY(mem, int, BATCH_ROWS);
    if (what->distinct && what->arg) {
        value_type types[2] = {TYPE_INTEGER, what->arg->type};
        a->distinct = hash_table_new(memory, types, 2);
        a->new_rows = ARENA_ARRAY(mem, int, BATCH_ROWS);
    }
    if (what->nkeys)
        keep_new(a);
    return a;
}

static bool keeps_text(const agg *a) {
    agg_kind k = a->plan->kind;
    return k == AGG_GROUP_CONCAT || k == AGG_MEDIAN ||
           ((k == AGG_MIN || k == AGG_MAX || k == AGG_FIRST) && type_is_bytes(a->arg_type));
}

void agg_free(agg *a) {
    if (!a)
        return;
    hash_table_free(a->distinct);
    rowset_free(a->kept);
    arena_free(a->texts);
    mem_array_free(&a->cells_in);
}

static int make_cells(agg *a, uint32_t ngroups, err *e) {
    if (ngroups <= a->ncells)
        return 0;
    uint32_t room = BASE_MAX(ngroups, a->ncells * 2);
    int status = mem_array_resize(&a->cells_in, a->memory, sizeof *a->cells * room, e);
    if (status)
        return status;
    a->cells = a->cells_in.p;
    memset(a->cells + a->ncells, 0, sizeof *a->cells * (room - a->ncells));
    a->ncells = room;
    return 0;
}

/* Returns the error of a file that `texts` could not grow. */
static int texts_full_error(const agg *a, err *e) {
    return a->texts ? arena_full_error(a->texts, e) : 0;
}

/* ---- adding values --------------------------------------------------------------------------- */

static void cell_append_text(agg *a, agg_cell *c, str s) {
    if (!a->texts)
        a->texts = arena_new_sharing(a->memory);
    ARENA_RESERVE(a->texts, c->text.p, c->text.n + s.n, c->text.cap);
    if (s.n)
        memcpy(c->text.p + c->text.n, s.p, s.n);
    c->text.n += s.n;
}

static void cell_set_text(agg *a, agg_cell *c, str s) {
    c->text.n = 0;
    cell_append_text(a, c, s);
}

static void add_counts(agg *a, const uint32_t *groups, int count) {
    for (int k = 0; k < count; k++)
        a->cells[groups[a->rows[k]]].count++;
}

static void add_ints(agg *a, const column *c, const uint32_t *groups, int count) {
    for (int k = 0; k < count; k++) {
        agg_cell *cell = &a->cells[groups[a->rows[k]]];
        cell->sum += c->i[a->rows[k]];
        cell->count++;
    }
}

static void add_reals(agg *a, const column *c, const uint32_t *groups, int count) {
    for (int k = 0; k < count; k++) {
        agg_cell *cell = &a->cells[groups[a->rows[k]]];
        agg_cell_add_real(cell, c->r[a->rows[k]]);
        cell->count++;
    }
}

static void add_spread(agg *a, const column *c, const uint32_t *groups, int count) {
    for (int k = 0; k < count; k++)
        agg_cell_add_spread(&a->cells[groups[a->rows[k]]], c->r[a->rows[k]]);
}

static void add_values(agg *a, const column *c, const uint32_t *groups, int count) {
    for (int k = 0; k < count; k++) {
        agg_cell *cell = &a->cells[groups[a->rows[k]]];
        cell_append_text(a, cell, (str){(const char *)&c->r[a->rows[k]], sizeof(double)});
        cell->count++;
    }
}

static void cell_keep(agg *a, agg_cell *cell, const column *c, int row) {
    if (type_is_bytes(a->arg_type))
        cell_set_text(a, cell, c->s[row]);
    else
        cell->i = c->i[row]; /* copies the 64 bits of a REAL */
}

/* Whether the row's value is greater (sign > 0) or less (sign < 0) than the cell's. */
static bool beyond(const agg *a, const agg_cell *cell, const column *c, int row, int sign) {
    if (type_is_bytes(a->arg_type))
        return bytes_compare(c->type, c->s[row], (str){cell->text.p, cell->text.n}) * sign > 0;
    if (a->arg_type == TYPE_REAL)
        return sign > 0 ? c->r[row] > cell->r : c->r[row] < cell->r;
    return sign > 0 ? c->i[row] > cell->i : c->i[row] < cell->i;
}

static void add_extremes(agg *a, const column *c, const uint32_t *groups, int count) {
    int sign = a->plan->kind == AGG_MIN ? -1 : 1;
    for (int k = 0; k < count; k++) {
        int row = a->rows[k];
        agg_cell *cell = &a->cells[groups[row]];
        if (cell->count++ == 0 || beyond(a, cell, c, row, sign))
            cell_keep(a, cell, c, row);
    }
}

/* Keeps the first value of each group. The count is -1 if that value is NULL. */
static void add_first(agg *a, const column *c, const uint32_t *groups, int count) {
    for (int k = 0; k < count; k++) {
        int row = a->rows[k];
        agg_cell *cell = &a->cells[groups[row]];
        if (cell->count)
            continue;
        bool null = cell_is_null(c, row);
        cell->count = null ? -1 : 1;
        if (!null)
            cell_keep(a, cell, c, row);
    }
}

static void join_text(agg *a, agg_cell *cell, str s) {
    if (cell->count++)
        cell_append_text(a, cell, a->separator);
    cell_append_text(a, cell, s);
}

static int add_texts(agg *a, const column *c, const uint32_t *groups, int count, arena *pass,
                     err *e) {
    for (int k = 0; k < count; k++) {
        value v = column_get(c, a->rows[k]);
        int status = value_cast(pass, v, TYPE_TEXT, &v, e);
        if (status)
            return status;
        join_text(a, &a->cells[groups[a->rows[k]]], v.s);
    }
    return 0;
}

static void group_numbers(const agg *a, const uint32_t *groups, int count, arena *pass,
                          column *out) {
    column_init(out, pass, TYPE_INTEGER, count, false);
    for (int k = 0; k < count; k++)
        out->i[k] = groups[a->rows[k]];
}

/* For ORDER BY: keeps the texts with their groups and sort keys. join_kept joins the texts when the
 * input has ended. */
static int keep_texts(agg *a, const batch *in, const column *c, const uint32_t *groups, int count,
                      arena *pass, err *e) {
    int n = a->plan->nkeys, status = 0;
    column *cols = ARENA_ARRAY(pass, column, n + 2), key;
    group_numbers(a, groups, count, pass, &cols[0]);
    for (int k = 0; k < n && !status; k++) {
        status = eval_column_at(a->plan->keys[k].value, in, a->rows, count, pass, &key, e);
        if (!status)
            column_gather(&cols[k + 1], pass, &key, a->rows, count);
    }
    column_gather(&cols[n + 1], pass, c, a->rows, count);
    batch rows = {.rows = count, .ncols = n + 2, .cols = cols, .mem = pass};
    return status ? status : rowset_append(a->kept, &rows, e);
}

static int join_kept(agg *a, err *e) {
    int n = a->plan->nkeys;
    mem_array sorted = {0};
    int status = sort_rows(a->ctx, a->memory, a->kept, a->by, n + 1, &sorted, e);
    if (status)
        return status;
    const uint32_t *order = sorted.p;
    for (int64_t k = 0; k < rowset_rows(a->kept); k++) {
        const batch *rows = rowset_batch(a->kept, (int)(order[k] / BATCH_ROWS));
        uint32_t row = order[k] % BATCH_ROWS;
        join_text(a, &a->cells[rows->cols[0].i[row]], rows->cols[n + 1].s[row]);
    }
    mem_array_free(&sorted);
    rowset_free(a->kept);
    a->kept = NULL;
    return texts_full_error(a, e);
}

/* Sets a->rows to the rows where FILTER is true. */
static int filter_rows(agg *a, const batch *in, arena *pass, int *count, err *e) {
    if (a->plan->filter)
        return eval_filter(a->plan->filter, in, pass, a->rows, count, e);
    *count = in->rows;
    for (int k = 0; k < in->rows; k++)
        a->rows[k] = k;
    return 0;
}

/* Removes rows from a->rows: rows whose value is NULL and, with DISTINCT, rows whose value is not
 * new in its group. FIRST keeps all rows. */
static int choose_rows(agg *a, const column *arg, const uint32_t *groups, arena *pass, int *count,
                       err *e) {
    int n = *count;
    if (a->plan->kind == AGG_FIRST)
        return 0;
    if (arg->null || arg->type == TYPE_NULL) {
        int kept = 0;
        for (int k = 0; k < n; k++)
            if (arg->type != TYPE_NULL && !arg->null[a->rows[k]])
                a->rows[kept++] = a->rows[k];
        *count = n = kept;
    }
    if (!a->distinct || n == 0)
        return 0;
    column keys[2];
    group_numbers(a, groups, n, pass, &keys[0]);
    column_gather(&keys[1], pass, arg, a->rows, n);
    int status = hash_table_add_new(a->distinct, keys, n, a->new_rows, count, e);
    for (int k = 0; k < *count && status == 0; k++)
        a->rows[k] = a->rows[a->new_rows[k]];
    return status;
}

/* Evaluates the separator, which is constant, once. */
static int read_separator(agg *a, err *e) {
    value v = value_text(STR(","));
    int status = 0;
    if (a->separator_known)
        return 0;
    if (a->plan->separator)
        status = eval_value(a->plan->separator, NULL, 0, a->mem, &v, e);
    if (status == 0)
        status = value_cast(a->mem, v, TYPE_TEXT, &v, e);
    a->separator = v.type == TYPE_NULL ? STR("") : v.s;
    a->separator_known = status == 0;
    return status;
}

int agg_add(agg *a, const batch *in, const uint32_t *groups, uint32_t ngroups, arena *pass,
            err *e) {
    column arg = {0};
    int count = 0, status = make_cells(a, ngroups, e);
    if (status == 0)
        status = filter_rows(a, in, pass, &count, e);
    if (status == 0 && a->plan->arg && count > 0)
        status = eval_column_at(a->plan->arg, in, a->rows, count, pass, &arg, e);
    if (status == 0 && a->plan->arg && count > 0)
        status = choose_rows(a, &arg, groups, pass, &count, e);
    if (status || count == 0)
        return status;
    switch (a->plan->kind) {
    case AGG_COUNT_STAR:
    case AGG_COUNT:
        add_counts(a, groups, count);
        break;
    case AGG_SUM:
    case AGG_AVG:
        if (arg.type == TYPE_REAL)
            add_reals(a, &arg, groups, count);
        else
            add_ints(a, &arg, groups, count);
        break;
    case AGG_MIN:
    case AGG_MAX:
        add_extremes(a, &arg, groups, count);
        break;
    case AGG_FIRST:
        add_first(a, &arg, groups, count);
        break;
    case AGG_MEDIAN:
        add_values(a, &arg, groups, count);
        break;
    case AGG_STDDEV:
        add_spread(a, &arg, groups, count);
        break;
    case AGG_GROUP_CONCAT:
        status = read_separator(a, e);
        if (status == 0)
            status = a->kept ? keep_texts(a, in, &arg, groups, count, pass, e)
                             : add_texts(a, &arg, groups, count, pass, e);
    }
    return status ? status : texts_full_error(a, e);
}

/* ---- results --------------------------------------------------------------------------------- */

static int sum_value(agg_kind kind, value_type type, const agg_cell *c, value *out, err *e) {
    if (type == TYPE_REAL) {
        double r = c->real.sum + c->real.carry;
        if (kind == AGG_AVG)
            r /= (double)c->count;
        if (!isfinite(r))
            return err_set(e, ERR_ARITHMETIC, "%s() is out of range for REAL", agg_kind_name(kind));
        *out = value_real(r);
    } else if (kind == AGG_AVG) {
        *out = value_real((double)c->sum / (double)c->count);
    } else if (c->sum > INT64_MAX || c->sum < INT64_MIN) {
        return err_set(e, ERR_ARITHMETIC, "%s() is out of range for INTEGER", agg_kind_name(kind));
    } else {
        *out = value_int((int64_t)c->sum);
    }
    return 0;
}

static int compare_reals(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int median_of(const agg *a, const agg_cell *c, value *out, err *e) {
    double *x = (double *)(void *)c->text.p;
    int status =
        sort_array_in(a->memory, x, (size_t)c->count, sizeof *x, compare_reals, a->ctx->cancel, e);
    *out = agg_median(x, c->count);
    return status;
}

static int spread_value(const agg_cell *c, value *out, err *e) {
    if (c->count < 2)
        return 0;
    double r = sqrt(c->spread.squares / (double)(c->count - 1));
    if (!isfinite(r))
        return err_set(e, ERR_ARITHMETIC, "%s() is out of range for REAL",
                       agg_kind_name(AGG_STDDEV));
    *out = value_real(r);
    return 0;
}

int agg_cell_number(agg_kind kind, value_type arg_type, const agg_cell *c, value *out, err *e) {
    *out = value_null();
    if (kind == AGG_COUNT || kind == AGG_COUNT_STAR)
        *out = value_int(c->count);
    else if (c->count > 0 && (kind == AGG_SUM || kind == AGG_AVG))
        return sum_value(kind, arg_type, c, out, e);
    else if (c->count > 0 && kind == AGG_STDDEV)
        return spread_value(c, out, e);
    return 0;
}

static int cell_value(const agg *a, const agg_cell *c, value *out, err *e) {
    agg_kind kind = a->plan->kind;
    int status = agg_cell_number(kind, a->arg_type, c, out, e);
    if (status || out->type != TYPE_NULL || c->count <= 0 || kind == AGG_STDDEV)
        return status;
    if (kind == AGG_MEDIAN) {
        return median_of(a, c, out, e);
    } else if (keeps_text(a)) {
        value_type t = kind == AGG_GROUP_CONCAT ? TYPE_TEXT : a->arg_type;
        *out = (value){.type = t, .s = {c->text.n ? c->text.p : "", c->text.n}};
    } else {
        *out = (value){.type = a->arg_type, .i = c->i};
    }
    return 0;
}

int agg_result(agg *a, uint32_t first, int count, arena *pass, column *out, err *e) {
    int status = make_cells(a, first + (uint32_t)count, e);
    if (status == 0 && a->kept)
        status = join_kept(a, e);
    column_init(out, pass, a->plan->type, count, false);
    for (int k = 0; k < count && status == 0; k++) {
        value v;
        status = cell_value(a, &a->cells[first + (uint32_t)k], &v, e);
        if (status == 0 && v.type != a->plan->type)
            status = value_cast(pass, v, a->plan->type, &v, e);
        if (status == 0)
            column_set(out, pass, count, k, v);
    }
    return status;
}
