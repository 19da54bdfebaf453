/*
 * stmt_query.c - plans and runs bound queries: planning, the snapshot of statements with LLM calls,
 * SELECT.
 *
 * Invariant: outside BEGIN no transaction is open while the model works. The rows that the query
 * reads are kept before the first call (snapshot.c), and the statement retains its catalog, so
 * nothing refers to the ended transaction.
 */
#include <string.h>
#include <sys/stat.h>

#include "llm/llm_runtime_int.h"
#include "ops/op_int.h"
#include "ops/snapshot_int.h"
#include "stmt_int.h"
#include "system/system_int.h"

/* ---- planning -------------------------------------------------------------------------------- */

static int table_stats_of(void *ctx, const table_def *table, arena *a, table_stats *out) {
    exec_ctx *c = ctx;
    err ignored; /* without statistics the planner guesses, which EXPLAIN shows */
    if (!c->txn)
        return ERR_INTERNAL;
    return stats_get(c->txn, table, c->stmt->ncalls > 0, a, out, &ignored);
}

enum { GUESSED_ROW_BYTES = 100 };

static void file_stats_of(void *ctx, str path, double *rows, double *bytes_per_row) {
    exec_ctx *c = ctx;
    struct stat st;
    *rows = 0;
    *bytes_per_row = GUESSED_ROW_BYTES;
    if (stat(arena_strndup(c->mem, path.p, path.n), &st) == 0 && S_ISREG(st.st_mode))
        *rows = (double)st.st_size / GUESSED_ROW_BYTES;
}

void stmt_release_plan(stmt *s) {
    exec_ctx *c = &s->ctx;
    for (int k = 0; c->kept.ready && k < c->plan->nnodes; k++)
        rowset_free(c->kept.ready[k]);
    for (int k = 0; k < s->nshared; k++)
        rowset_free(c->kept.shared[k]);
    c->kept.ready = c->kept.shared = NULL;
    s->nshared = 0;
}

static int constant_of(void *ctx, const expr *x, arena *a, value *out) {
    err e;
    (void)ctx;
    err_clear(&e);
    return eval_value(x, NULL, 0, a, out, &e);
}

int stmt_plan(stmt *s, const sql_stmt *x, err *e) {
    exec_ctx *c = &s->ctx;
    plan *p;
    stmt_release_plan(s);
    c->stmt = x;
    if (x->ncalls && !c->llm)
        c->llm = llm_runtime_new(c);
    plan_env env = {.settings = c->settings,
                    .ctx = c,
                    .table_stats = table_stats_of,
                    .file_stats = file_stats_of,
                    .constant = constant_of};
    if (x->ncalls)
        llm_plan_hooks(c, &env);
    int status = plan_build(x, &env, s->mem, &p, e);
    if (status)
        return status;
    c->plan = p;
    /* the new plan may have other nodes */
    if (c->counts.actual)
        c->counts.actual = ARENA_ARRAY(s->mem, plan_actual, BASE_MAX(p->nnodes, 1));
    s->nshared = p->nshared;
    if (s->nshared)
        c->kept.shared = ARENA_ARRAY(s->mem, rowset *, s->nshared);
    c->kept.working = ARENA_ARRAY(s->mem, working_rows, s->nshared + 1);
    c->counts.rows_out = p->has_llm ? ARENA_ARRAY(s->mem, uint64_t, BASE_MAX(p->nnodes, 1)) : NULL;
    if (p->has_llm)
        c->kept.ready = ARENA_ARRAY(s->mem, rowset *, BASE_MAX(p->nnodes, 1));
    return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

static int run_root(stmt *s, rowset *into, err *e) {
    op *root;
    batch *b;
    int status = op_build(&s->ctx, s->ctx.plan->root, &root, e);
    if (status)
        return status;
    while ((status = op_next(root, &b, e)) == 0 && b) {
        status = into ? rowset_append(into, b, e) : stmt_push(s, b, e);
        if (status)
            break;
    }
    op_close(root);
    return status;
}

/* If a sample of answers can change the plan, asks about a sample of rows and plans again with the
 * result. */
static int plan_by_sample(stmt *s, err *e) {
    bool learned;
    int status = llm_runtime_sample(&s->ctx, &learned, e);
    if (status || !learned)
        return status;
    status = stmt_plan(s, s->ctx.stmt, e);
    return status ? status : snapshot_take(&s->ctx, e);
}

int stmt_run_plan(stmt *s, rowset *into, err *e) {
    exec_ctx *c = &s->ctx;
    if (c->plan->has_llm) {
        bool alone = !s->db->txn;
        int status = snapshot_take(c, e);
        if (status == 0)
            status = llm_runtime_examples(c, e);
        if (status == 0)
            status = plan_by_sample(s, e);
        if (status == 0 && alone)
            status = stmt_end_txn(s, false, e);
        if (status)
            return status;
    }
    return run_root(s, into, e);
}

static void describe_query(stmt *s, const sql_stmt *x) {
    int n = x->query->ncols;
    str *names = ARENA_ARRAY(s->mem, str, BASE_MAX(n, 1));
    value_type *types = ARENA_ARRAY(s->mem, value_type, BASE_MAX(n, 1));
    for (int k = 0; k < n; k++) {
        names[k] = x->query->cols[k].name;
        types[k] = s->ctx.plan->root->types[k];
    }
    stmt_describe(s, n, names, types, TEXT_NONE);
}

/* Runs SELECT, WARM and PIN. WARM and PIN run their query to fill the cache, and return no rows. */
int stmt_select(stmt *s, sql_stmt *x, err *e) {
    const settings *set = s->ctx.settings;
    if (x->kind == STMT_WARM && (!set->cache || set->kv_keep == KEEP_NONE)) {
        err_set(e, ERR_BIND, "%s needs the cache, but %s", x->pin ? "PIN" : "WARM",
                set->cache ? "kv_keep is 'none'" : "cache is off");
        err_hint(e, set->cache ? "SET kv_keep = 'shared'" : "SET cache = on");
        return ERR_BIND;
    }
    int status = stmt_plan(s, x, e);
    if (status)
        return status;
    if (x->kind == STMT_WARM)
        s->drops_rows = true;
    else
        describe_query(s, x);
    status = stmt_run_plan(s, NULL, e);
    return status == 0 && x->pin ? llm_runtime_pin(&s->ctx, x->name, e) : status;
}

/* ---- the tables of a plan -------------------------------------------------------------------- */

static void collect(const table_def *t, const table_def **out, int *count) {
    for (int k = 0; k < *count; k++)
        if (out[k] == t)
            return;
    out[(*count)++] = t;
}

static void collect_scans(const plan_node *p, const table_def **out, int *count) {
    if (!p)
        return;
    if (p->kind == PLAN_SCAN)
        collect(p->scan.table, out, count);
    collect_scans(p->left, out, count);
    collect_scans(p->right, out, count);
}

static int count_scans(const plan_node *p) {
    return p ? (p->kind == PLAN_SCAN) + count_scans(p->left) + count_scans(p->right) : 0;
}

const table_def **plan_tables(stmt *s, int *count) {
    const sql_stmt *x = s->ctx.stmt;
    const plan *p = s->ctx.plan;
    int room = 1 + count_scans(p->root);
    for (int k = 0; k < x->ncalls; k++)
        room += count_scans(p->examples[k]);
    const table_def **out = ARENA_ARRAY(s->mem, const table_def *, room);
    *count = 0;
    if (x->table)
        collect(x->table, out, count);
    collect_scans(p->root, out, count);
    for (int k = 0; k < x->ncalls; k++)
        collect_scans(p->examples[k], out, count);
    return out;
}

/* ---- queries of a statement's own ------------------------------------------------------------ */

int stmt_rows(void *stmt_of, const sql_stmt *query, int64_t most, arena *a, value **out,
              int64_t *count, err *e) {
    stmt *s = stmt_of;
    exec_ctx outer = s->ctx;
    int outer_shared = s->nshared, ncols = query->query->ncols;
    s->ctx.kept.ready = s->ctx.kept.shared = NULL;
    s->ctx.counts.actual = NULL;
    s->nshared = 0;
    value_type *types = ARENA_ARRAY(s->mem, value_type, ncols + 1);
    for (int i = 0; i < ncols; i++)
        types[i] = query->query->cols[i].type;
    rowset *rows = rowset_new(&s->ctx, types, ncols);
    int status = stmt_plan(s, query, e);
    if (status == 0)
        status = run_root(s, rows, e);
    *count = status == 0 ? BASE_MIN(rowset_rows(rows), most) : 0;
    *out = ARENA_ARRAY(a, value, *count * ncols + 1);
    for (int64_t i = 0; i < *count * ncols; i++)
        (*out)[i] = value_copy(a, rowset_get(rows, i / ncols, (int)(i % ncols)));
    stmt_release_plan(s);
    s->ctx = outer;
    s->nshared = outer_shared;
    rowset_free(rows);
    return status;
}

int stmt_scalar(stmt *s, str sql, value_type type, value *out, err *e) {
    buf text = {0};
    buf_printf(&text, "SELECT CAST((%.*s) AS %s)", (int)sql.n, sql.p, type_name(type));
    bind_env env = {.catalog = txn_catalog(s->db->active),
                    .settings = s->ctx.settings,
                    .system_table = system_table_columns,
                    .ctx = s->db};
    sql_stmt *x;
    value *values;
    int64_t count;
    int status =
        sql_bind_text((str){arena_strndup(s->mem, text.p, text.n), text.n}, &env, s->mem, &x, e);
    if (status == 0)
        status = stmt_rows(s, x, 1, s->mem, &values, &count, e);
    *out = status == 0 && count == 1 ? values[0] : value_null();
    buf_free(&text);
    if (status)
        e->pos = -1; /* the position is in the text of `sql`, not in the statement */
    return status;
}
