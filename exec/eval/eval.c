/*
 * eval.c - evaluates expressions over batches: dispatch by kind, and AND, OR, CASE, COALESCE,
 * NULLIF and IIF.
 *
 * Invariant: an operand of AND, OR, CASE, COALESCE and IIF that can fail is evaluated only for the
 * rows that need it, so a branch that is not taken causes no error. It is evaluated over a batch
 * gathered from these rows, and its values are scattered back. Arithmetic, comparison, casts and
 * functions are in eval_op.c, eval_cast.c, eval_func.c, eval_text.c, eval_time.c.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "eval_parts_int.h"

/* ---- operands -------------------------------------------------------------------------------- */

void operand_new(const eval_env *v, value_type type, int n, operand *out) {
    size_t bytes = cell_bytes(type) * (size_t)n;
    out->c = (column){.type = type, .null = NULL, .i = arena_alloc(v->mem, bytes)};
    out->step = 1;
}

void operand_null(const eval_env *v, value_type type, operand *out) {
    static const str empty = {"", 0};
    out->c = (column){
        .type = type, .null = arena_alloc(v->mem, 1), .i = arena_zalloc(v->mem, sizeof(str))};
    out->c.null[0] = 1;
    if (type_is_bytes(type))
        out->c.s[0] = empty;
    out->step = 0;
}

bool operand_is_null(const operand *a) {
    return a->step == 0 && operand_null_at(a, 0);
}

void operand_set_null(const eval_env *v, operand *o, int n, int row) {
    if (!o->c.null)
        o->c.null = arena_zalloc(v->mem, (size_t)n);
    o->c.null[row] = 1;
    if (type_is_bytes(o->c.type))
        o->c.s[row] = (str){"", 0};
    else
        o->c.i[row] = 0;
}

/* Turns a constant into a column of n rows. */
static void operand_spread(const eval_env *v, operand *o, int n) {
    if (o->step == 1)
        return;
    operand all;
    operand_new(v, o->c.type, n, &all);
    for (int k = 0; k < n; k++)
        operand_copy(&all, k, o, 0);
    if (operand_null_at(o, 0)) {
        all.c.null = arena_alloc(v->mem, (size_t)n);
        memset(all.c.null, 1, (size_t)n);
    }
    *o = all;
}

int eval_error(const eval_env *v, const expr *x, err_code code, const char *format, ...) {
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return err_set_at(v->e, code, x->pos, x->len, "%s", message);
}

/* out[rows[k]] = from[k] */
static void scatter(const eval_env *v, operand *out, int n, const operand *from, const int *rows,
                    int count) {
    for (int k = 0; k < count; k++)
        if (from->c.type == TYPE_NULL || operand_null_at(from, k))
            operand_set_null(v, out, n, rows[k]);
        else
            operand_copy(out, rows[k], from, k);
}

/* ---- some rows of a batch -------------------------------------------------------------------- */

/* Gathers the columns that x reads, and the value of EXPR_LET_VAR, at rows[0..count). */
static void gather_used(const eval_env *v, const expr *x, const int *rows, int count, batch *out,
                        operand *let_value) {
    if (x->kind == EXPR_COLUMN) {
        const column *from = &v->in->cols[x->column.slot];
        column *c = &out->cols[x->column.slot];
        if (!c->i && from->type != TYPE_NULL)
            column_gather(c, v->mem, from, rows, count);
    }
    if (x->kind == EXPR_LET_VAR && v->let_value && !let_value->c.i) {
        *let_value = *v->let_value;
        if (let_value->step == 1)
            column_gather(&let_value->c, v->mem, &v->let_value->c, rows, count);
    }
    for (int k = 0; k < x->nargs; k++)
        gather_used(v, x->args[k], rows, count, out, let_value);
}

/* Evaluates x over rows[0..count) of the input only. */
static int eval_narrow(const eval_env *v, const expr *x, const int *rows, int count, operand *out) {
    if (count == v->in->rows)
        return eval_any(v, x, out);
    if (x->kind == EXPR_LITERAL)
        return eval_any(v, x, out);
    batch some = {.rows = count, .ncols = v->in->ncols, .mem = v->mem};
    some.cols = ARENA_ARRAY(v->mem, column, BASE_MAX(some.ncols, 1));
    operand let_value = {0};
    gather_used(v, x, rows, count, &some, &let_value);
    eval_env narrow = {
        .in = &some, .mem = v->mem, .e = v->e, .let_value = v->let_value ? &let_value : NULL};
    return eval_any(&narrow, x, out);
}

static bool eval_cannot_fail(const expr *x) {
    if (x->kind == EXPR_LITERAL || x->kind == EXPR_COLUMN || x->kind == EXPR_LET_VAR)
        return true;
    if (x->kind != EXPR_OP && x->kind != EXPR_IN)
        return false;
    if (x->kind == EXPR_OP && (x->op <= OP_CONCAT || x->op >= OP_LIKE))
        return false;
    for (int k = 0; k < x->nargs; k++)
        if (!eval_cannot_fail(x->args[k]))
            return false;
    return true;
}

int eval_args(const eval_env *v, const expr *x, operand **out, int *n) {
    operand *args = arena_alloc(v->mem, sizeof *args * (size_t)BASE_MAX(x->nargs, 1));
    *n = 1;
    for (int k = 0; k < x->nargs; k++) {
        int status = eval_any(v, x->args[k], &args[k]);
        if (status)
            return status;
        if (args[k].step)
            *n = v->in->rows;
    }
    *out = args;
    return 0;
}

/* ---- AND, OR --------------------------------------------------------------------------------- */

enum { IS_FALSE, IS_TRUE, IS_NULL };

static inline int truth(const operand *a, int row) {
    return operand_null_at(a, row) ? IS_NULL : a->c.i[row * a->step] != 0;
}

static void combine(const eval_env *v, bool is_and, const operand *a, const operand *b, int n,
                    operand *out) {
    static const uint8_t and_table[3][3] = {
        {IS_FALSE, IS_FALSE, IS_FALSE}, {IS_FALSE, IS_TRUE, IS_NULL}, {IS_FALSE, IS_NULL, IS_NULL}};
    static const uint8_t or_table[3][3] = {
        {IS_FALSE, IS_TRUE, IS_NULL}, {IS_TRUE, IS_TRUE, IS_TRUE}, {IS_NULL, IS_TRUE, IS_NULL}};
    const uint8_t(*table)[3] = is_and ? and_table : or_table;
    operand_new(v, TYPE_BOOLEAN, n, out);
    for (int k = 0; k < n; k++) {
        int t = table[truth(a, k)][truth(b, k)];
        out->c.i[k] = t == IS_TRUE;
        if (t == IS_NULL)
            operand_set_null(v, out, n, k);
    }
}

static int eval_logic(const eval_env *v, const expr *x, operand *out) {
    bool is_and = x->op == OP_AND;
    int decided = is_and ? IS_FALSE : IS_TRUE, n = v->in->rows;
    operand a, b;
    int status = eval_any(v, x->args[0], &a);
    if (status)
        return status;
    if (a.step == 0 && a.c.type != TYPE_NULL && truth(&a, 0) == decided) {
        *out = a;
        return 0;
    }
    if (eval_cannot_fail(x->args[1])) {
        if ((status = eval_any(v, x->args[1], &b)) != 0)
            return status;
        combine(v, is_and, &a, &b, a.step || b.step ? n : 1, out);
        out->step = a.step || b.step;
        return 0;
    }
    int *rows = arena_alloc(v->mem, sizeof *rows * (size_t)n), count = 0;
    for (int k = 0; k < n; k++)
        if (truth(&a, k) != decided)
            rows[count++] = k;
    operand whole;
    operand_new(v, TYPE_BOOLEAN, n, &whole);
    for (int k = 0; k < n; k++)
        whole.c.i[k] = decided == IS_TRUE;
    if (count) {
        if ((status = eval_narrow(v, x->args[1], rows, count, &b)) != 0)
            return status;
        scatter(v, &whole, n, &b, rows, count);
    }
    combine(v, is_and, &a, &whole, n, out);
    return 0;
}

/* ---- CASE, IIF, COALESCE, NULLIF ------------------------------------------------------------- */

/* A CASE, IIF or COALESCE being evaluated: rows[0..count) are undecided (no branch was taken for
 * them yet), out is the result. */
typedef struct choice {
    const eval_env *v;
    int *rows, count, n;
    operand *out;
} choice;

static void choice_start(choice *c, const eval_env *v, value_type type, operand *out) {
    *c = (choice){.v = v, .count = v->in->rows, .n = v->in->rows, .out = out};
    c->rows = arena_alloc(v->mem, sizeof *c->rows * (size_t)c->n);
    for (int k = 0; k < c->n; k++)
        c->rows[k] = k;
    operand_new(v, type, c->n, out);
}

/* Sets the undecided rows where `when` is true to the value of `then`. */
static int choice_when(choice *c, const expr *when, const expr *then) {
    operand test, chosen;
    int status = eval_narrow(c->v, when, c->rows, c->count, &test);
    if (status)
        return status;
    int *taken = arena_alloc(c->v->mem, sizeof *taken * (size_t)c->count), ntaken = 0, left = 0;
    for (int k = 0; k < c->count; k++)
        if (test.c.type != TYPE_NULL && truth(&test, k) == IS_TRUE)
            taken[ntaken++] = c->rows[k];
        else
            c->rows[left++] = c->rows[k];
    c->count = left;
    if (ntaken == 0)
        return 0;
    if ((status = eval_narrow(c->v, then, taken, ntaken, &chosen)) == 0)
        scatter(c->v, c->out, c->n, &chosen, taken, ntaken);
    return status;
}

/* Sets all undecided rows to the value of x. */
static int choice_else(choice *c, const expr *x) {
    operand chosen;
    if (c->count == 0)
        return 0;
    int status = eval_narrow(c->v, x, c->rows, c->count, &chosen);
    if (status == 0)
        scatter(c->v, c->out, c->n, &chosen, c->rows, c->count);
    return status;
}

static int eval_case(const eval_env *v, const expr *x, operand *out) {
    choice c;
    choice_start(&c, v, x->type, out);
    for (int k = 0; k + 1 < x->nargs && c.count; k += 2) {
        int status = choice_when(&c, x->args[k], x->args[k + 1]);
        if (status)
            return status;
    }
    return choice_else(&c, x->args[x->nargs - 1]);
}

static int eval_coalesce(const eval_env *v, const expr *x, operand *out) {
    choice c;
    choice_start(&c, v, x->type, out);
    for (int a = 0; a < x->nargs && c.count; a++) {
        operand part;
        int status = eval_narrow(v, x->args[a], c.rows, c.count, &part);
        if (status)
            return status;
        int left = 0;
        bool last = a == x->nargs - 1;
        for (int k = 0; k < c.count; k++) {
            int row = c.rows[k];
            bool null = part.c.type == TYPE_NULL || operand_null_at(&part, k);
            if (null && !last)
                c.rows[left++] = row;
            else if (null)
                operand_set_null(v, out, c.n, row);
            else
                operand_copy(out, row, &part, k);
        }
        c.count = left;
    }
    return 0;
}

static int eval_nullif(const eval_env *v, const expr *x, operand *out) {
    operand *args, same;
    int n, status = eval_args(v, x, &args, &n);
    if (status)
        return status;
    eval_compare(v, OP_EQ, &args[0], &args[1], n, &same);
    operand_new(v, x->type, n, out);
    int *all = arena_alloc(v->mem, sizeof *all * (size_t)n);
    for (int k = 0; k < n; k++)
        all[k] = k;
    scatter(v, out, n, &args[0], all, n);
    for (int k = 0; k < n; k++)
        if (truth(&same, k) == IS_TRUE)
            operand_set_null(v, out, n, k);
    out->step = args[0].step || args[1].step;
    return 0;
}

static int eval_func(const eval_env *v, const expr *x, operand *out) {
    choice c;
    switch (x->function) {
    case FUNC_COALESCE:
    case FUNC_IFNULL:
        return eval_coalesce(v, x, out);
    case FUNC_NULLIF:
        return eval_nullif(v, x, out);
    case FUNC_IIF: {
        choice_start(&c, v, x->type, out);
        int status = choice_when(&c, x->args[0], x->args[1]);
        return status ? status : choice_else(&c, x->args[2]);
    }
    case FUNC_REGEXP_MATCHES:
    case FUNC_REGEXP_EXTRACT:
        return eval_regexp(v, x, out);
    default:
        return eval_function(v, x, out);
    }
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static void eval_literal(const eval_env *v, const expr *x, operand *out) {
    if (x->literal.type == TYPE_NULL) {
        operand_null(v, x->type, out);
        return;
    }
    operand_new(v, x->literal.type, 1, out);
    out->step = 0;
    operand_set(out, 0, x->literal);
}

static void eval_slot(const eval_env *v, const expr *x, operand *out) {
    assert(x->column.slot >= 0 && x->column.slot < v->in->ncols);
    out->c = v->in->cols[x->column.slot];
    out->step = 1;
    if (out->c.type == TYPE_NULL)
        operand_null(v, x->type, out);
}

/* Evaluates the volatile args[0] once per row; EXPR_LET_VAR in the body args[1] refers to it. May
 * be nested. */
static int eval_let(const eval_env *v, const expr *x, operand *out) {
    operand let_value;
    int status = eval_any(v, x->args[0], &let_value);
    if (status)
        return status;
    eval_env body = *v;
    body.let_value = &let_value;
    return eval_any(&body, x->args[1], out);
}

int eval_any(const eval_env *v, const expr *x, operand *out) {
    switch (x->kind) {
    case EXPR_LITERAL:
        eval_literal(v, x, out);
        return 0;
    case EXPR_COLUMN:
        eval_slot(v, x, out);
        return 0;
    case EXPR_OP:
        return x->op == OP_AND || x->op == OP_OR ? eval_logic(v, x, out) : eval_op(v, x, out);
    case EXPR_FUNC:
        return eval_func(v, x, out);
    case EXPR_CASE:
        return eval_case(v, x, out);
    case EXPR_CAST:
        return eval_cast(v, x, out);
    case EXPR_IN:
        return eval_in(v, x, out);
    case EXPR_LET:
        return eval_let(v, x, out);
    case EXPR_LET_VAR:
        *out = *v->let_value;
        return 0;
    }
    return err_set(v->e, ERR_INTERNAL, "unknown expression kind %d", (int)x->kind);
}

int eval_column(const expr *x, const batch *in, arena *mem, column *out, err *e) {
    eval_env v = {.in = in, .mem = mem, .e = e};
    operand o;
    int status = eval_any(&v, x, &o);
    if (status)
        return status;
    if (in->rows > 1)
        operand_spread(&v, &o, in->rows);
    *out = o.c;
    return 0;
}

int eval_column_at(const expr *x, const batch *in, const int *rows, int count, arena *mem,
                   column *out, err *e) {
    if (count == in->rows || eval_cannot_fail(x))
        return eval_column(x, in, mem, out, e);
    eval_env v = {.in = in, .mem = mem, .e = e};
    operand some, all;
    operand_new(&v, x->type, in->rows, &all);
    if (count > 0) {
        int status = eval_narrow(&v, x, rows, count, &some);
        if (status)
            return status;
        scatter(&v, &all, in->rows, &some, rows, count);
    }
    for (int k = 0, next = 0; k < in->rows; k++)
        if (next < count && rows[next] == k)
            next++;
        else
            operand_set_null(&v, &all, in->rows, k);
    *out = all.c;
    return 0;
}

static int filter_conjuncts(const eval_env *v, const expr *x, int *rows, int *count) {
    if (x->kind == EXPR_OP && x->op == OP_AND) {
        int status = filter_conjuncts(v, x->args[0], rows, count);
        return status || *count == 0 ? status : filter_conjuncts(v, x->args[1], rows, count);
    }
    operand test;
    int status = eval_narrow(v, x, rows, *count, &test);
    if (status)
        return status;
    int kept = 0;
    for (int k = 0; k < *count; k++) {
        rows[kept] = rows[k];
        kept += test.c.type != TYPE_NULL && truth(&test, k) == IS_TRUE;
    }
    *count = kept;
    return 0;
}

int eval_filter(const expr *x, const batch *in, arena *mem, int *rows, int *count, err *e) {
    eval_env v = {.in = in, .mem = mem, .e = e};
    for (int k = 0; k < in->rows; k++)
        rows[k] = k;
    *count = in->rows;
    return filter_conjuncts(&v, x, rows, count);
}

int eval_value(const expr *x, const value *row, int ncols, arena *mem, value *out, err *e) {
    batch one = {.rows = 1, .ncols = ncols, .mem = mem};
    one.cols = ncols ? arena_zalloc(mem, sizeof *one.cols * (size_t)ncols) : NULL;
    for (int c = 0; c < ncols; c++) {
        if (row[c].type == TYPE_NULL)
            continue; /* stays a column of type NULL */
        column_init(&one.cols[c], mem, row[c].type, 1, false);
        column_set(&one.cols[c], mem, 1, 0, row[c]);
    }
    eval_env v = {.in = &one, .mem = mem, .e = e};
    operand o;
    int status = eval_any(&v, x, &o);
    if (status == 0)
        *out = operand_get(&o, 0);
    return status;
}
