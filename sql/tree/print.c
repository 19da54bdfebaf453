/* print.c - prints bound expressions as SQL and relations as an indented tree: for EXPLAIN (RULES),
 * messages and tests. */
#include <string.h>

#include "tree_int.h"
#include "words/words_int.h"

/* Spelling and precedence of operators; an argument of lower precedence is put in parentheses. */
static const struct {
    const char *name;
    int precedence;
} operators[] = {
    [OP_ADD] = {"+", 6},
    [OP_SUB] = {"-", 6},
    [OP_MUL] = {"*", 7},
    [OP_DIV] = {"/", 7},
    [OP_MOD] = {"%", 7},
    [OP_NEG] = {"-", 9},
    [OP_CONCAT] = {"||", 8},
    [OP_EQ] = {"=", 4},
    [OP_NE] = {"<>", 4},
    [OP_LT] = {"<", 5},
    [OP_LE] = {"<=", 5},
    [OP_GT] = {">", 5},
    [OP_GE] = {">=", 5},
    [OP_IS] = {"IS NOT DISTINCT FROM", 4},
    [OP_IS_NOT] = {"IS DISTINCT FROM", 4},
    [OP_AND] = {"AND", 2},
    [OP_OR] = {"OR", 1},
    [OP_NOT] = {"NOT", 3},
    [OP_LIKE] = {"LIKE", 4},
    [OP_ILIKE] = {"ILIKE", 4},
    [OP_GLOB] = {"GLOB", 4},
};
BASE_COVERS(operators, EXPR_OPS);

static int precedence(const expr *x, const expr *let_value) {
    if (x->kind == EXPR_LET)
        return precedence(x->args[1], x->args[0]);
    if (x->kind == EXPR_LET_VAR && let_value)
        return precedence(let_value, NULL);
    if (x->kind == EXPR_IN)
        return 4;
    return x->kind == EXPR_OP ? operators[x->op].precedence : 10;
}

static void print(const expr *x, const expr *let_value, buf *out);

static void print_argument(const expr *x, const expr *let_value, int least, buf *out) {
    bool parentheses = precedence(x, let_value) < least;
    buf_append_c(out, parentheses ? "(" : "");
    print(x, let_value, out);
    buf_append_c(out, parentheses ? ")" : "");
}

static bool is_word_test(const expr *x) {
    const expr *r = x->args[1];
    return r->kind == EXPR_LITERAL &&
           (r->literal.type == TYPE_NULL || r->literal.type == TYPE_BOOLEAN);
}

static void print_op(const expr *x, const expr *let_value, buf *out) {
    int mine = precedence(x, let_value);
    if (x->nargs == 1) {
        buf_append_c(out, x->op == OP_NOT ? "NOT " : "-");
        print_argument(x->args[0], let_value, mine + 1, out);
        return;
    }
    print_argument(x->args[0], let_value, mine, out);
    if ((x->op == OP_IS || x->op == OP_IS_NOT) && is_word_test(x)) {
        buf_append_c(out, x->op == OP_IS ? " IS " : " IS NOT ");
        print(x->args[1], let_value, out);
        return;
    }
    for (int i = 1; i < x->nargs; i++) {
        bool escape = i == 2 && (x->op == OP_LIKE || x->op == OP_ILIKE || x->op == OP_GLOB);
        buf_printf(out, " %s ", escape ? "ESCAPE" : operators[x->op].name);
        /* a AND (b AND c) needs no parentheses */
        bool chain = x->op == OP_AND || x->op == OP_OR || x->op == OP_CONCAT;
        print_argument(x->args[i], let_value, chain ? mine : mine + 1, out);
    }
}

static void print_list(expr **args, int n, const expr *let_value, buf *out) {
    for (int i = 0; i < n; i++) {
        buf_append_c(out, i ? ", " : "");
        print(args[i], let_value, out);
    }
}

/* `let_value`: the expression to print for EXPR_LET_VAR. */
static void print(const expr *x, const expr *let_value, buf *out) {
    switch (x->kind) {
    case EXPR_LITERAL:
        value_print_sql(out, x->literal);
        break;
    case EXPR_COLUMN:
        if (x->column.name.n)
            buf_append_str(out, x->column.name);
        else
            buf_printf(out, "#%d", x->column.id);
        break;
    case EXPR_OP:
        print_op(x, let_value, out);
        break;
    case EXPR_FUNC:
        buf_printf(out, "%s(", function_of(x->function)->name);
        print_list(x->args, x->nargs, let_value, out);
        buf_append_char(out, ')');
        break;
    case EXPR_CASE:
        buf_append_c(out, "CASE");
        for (int i = 0; i + 1 < x->nargs; i += 2) {
            buf_append_c(out, " WHEN ");
            print(x->args[i], let_value, out);
            buf_append_c(out, " THEN ");
            print(x->args[i + 1], let_value, out);
        }
        buf_append_c(out, " ELSE ");
        print(x->args[x->nargs - 1], let_value, out);
        buf_append_c(out, " END");
        break;
    case EXPR_CAST:
        buf_append_c(out, "CAST(");
        print(x->args[0], let_value, out);
        buf_append_c(out, " AS ");
        type_print(out, x->type, x->dims);
        buf_append_char(out, ')');
        break;
    case EXPR_IN:
        print_argument(x->args[0], let_value, 5, out);
        buf_append_c(out, " IN (");
        print_list(x->args + 1, x->nargs - 1, let_value, out);
        buf_append_char(out, ')');
        break;
    case EXPR_LET:
        print(x->args[1], x->args[0], out);
        break;
    case EXPR_LET_VAR:
        if (let_value)
            print(let_value, NULL, out);
        break;
    }
}

void expr_print(const expr *x, buf *out) {
    print(x, NULL, out);
}

/* ---- relations ------------------------------------------------------------------------------- */

const char *join_kind_name(join_kind k) {
    static const char *const names[] = {
        [JOIN_INNER] = "inner", [JOIN_LEFT] = "left", [JOIN_CROSS] = "cross",
        [JOIN_SEMI] = "semi",   [JOIN_ANTI] = "anti", [JOIN_SINGLE] = "single",
        [JOIN_MARK] = "mark"};
    return names[k];
}

static const struct {
    const char *name, *sql;
} set_ops[] = {
    [SETOP_UNION_ALL] = {"union all", "UNION ALL"},
    [SETOP_UNION] = {"union", "UNION"},
    [SETOP_EXCEPT] = {"except", "EXCEPT"},
    [SETOP_INTERSECT] = {"intersect", "INTERSECT"},
};
BASE_COVERS(set_ops, SETOPS);

const char *set_op_name(set_op op) {
    return set_ops[op].name;
}

const char *set_op_sql(set_op op) {
    return set_ops[op].sql;
}

static void print_call(const llm_site *u, buf *out) {
    const llm_call *c = u->call;
    buf_printf(out, " #%d = LLM#%d ", u->out_id, c->number);
    if (c->written_as.n)
        buf_printf(out, "%.*s ", (int)c->written_as.n, c->written_as.p);
    value_print_sql(out, c->prompt);
    for (int i = 0; i < c->nfields; i++) {
        buf_printf(out, ", %.*s%s: ", (int)c->field_names[i].n, c->field_names[i].p,
                   c->field_required[i] ? "!" : "");
        expr_print(u->args[i], out);
    }
    if (c->after)
        buf_printf(out, ", after #%d", c->after->number);
    if (c->cue.n)
        buf_printf(out, ", %.*s:", (int)c->cue.n, c->cue.p);
    buf_printf(out, " -> %s", llm_returns_name(c->returns));
    for (int i = 0; i < c->nliterals && c->nliterals <= 12; i++) {
        buf_append_c(out, i ? ", " : "(");
        value_print_sql(out, value_text(c->literals[i]));
    }
    buf_append_c(out, c->nliterals && c->nliterals <= 12 ? ")" : "");
    buf_append_c(out, c->by_use ? " by use" : "");
    if (c->model.n)
        buf_printf(out, " model %.*s", (int)c->model.n, c->model.p);
    if (c->max_tokens)
        buf_printf(out, " max_tokens %d", c->max_tokens);
    if (c->examples)
        buf_append_c(out, " with examples");
    if (c->on_error == ON_ERROR_NULL) {
        buf_append_c(out, " on error ");
        value_print_sql(out, c->otherwise);
    }
    for (int i = 0; i < u->nprobs; i++) {
        buf_append_char(out, ' ');
        llm_prob_print(c, u->probs[i].literal, out);
        buf_printf(out, " #%d", u->probs[i].id);
    }
    if (u->guard) {
        buf_append_c(out, " if ");
        expr_print(u->guard, out);
    }
}

void sort_key_print(const sort_key *k, buf *out) {
    expr_print(k->value, out);
    buf_append_c(out, k->descending ? " desc" : "");
    if (k->nulls_first != k->descending)
        buf_append_c(out, k->nulls_first ? " nulls first" : " nulls last");
}

void sort_keys_print(const char *before, const sort_key *keys, int n, buf *out) {
    for (int i = 0; i < n; i++) {
        buf_append_c(out, i ? ", " : before);
        sort_key_print(&keys[i], out);
    }
}

static void print_aggregate(const rel_agg *a, buf *out) {
    buf_printf(out, " #%d = %s(%s", a->id, agg_kind_name(a->kind), a->distinct ? "DISTINCT " : "");
    if (a->arg)
        expr_print(a->arg, out);
    else
        buf_append_char(out, '*');
    if (a->separator) {
        buf_append_c(out, ", ");
        expr_print(a->separator, out);
    }
    sort_keys_print(" order by ", a->keys, a->nkeys, out);
    buf_append_char(out, ')');
    if (a->filter) {
        buf_append_c(out, " FILTER ");
        expr_print(a->filter, out);
    }
}

static bool is_default_frame(const window_frame *f) {
    return f->unit == FRAME_RANGE && f->start.kind == BOUND_UNBOUNDED_PRECEDING &&
           f->end.kind == BOUND_CURRENT && f->exclude == EXCLUDE_NO_OTHERS;
}

static void print_bound(const frame_bound *f, buf *out) {
    static const char *const names[] = {[BOUND_UNBOUNDED_PRECEDING] = "unbounded preceding",
                                        [BOUND_PRECEDING] = " preceding",
                                        [BOUND_CURRENT] = "current row",
                                        [BOUND_FOLLOWING] = " following",
                                        [BOUND_UNBOUNDED_FOLLOWING] = "unbounded following"};
    BASE_COVERS(names, BOUND_KINDS);
    if (f->kind == BOUND_PRECEDING || f->kind == BOUND_FOLLOWING)
        value_print(out, f->offset);
    buf_append_c(out, names[f->kind]);
}

static void print_frame(const window_frame *f, buf *out) {
    static const char *const units[] = {
        [FRAME_RANGE] = "range", [FRAME_ROWS] = "rows", [FRAME_GROUPS] = "groups"};
    static const char *const excludes[] = {[EXCLUDE_NO_OTHERS] = "",
                                           [EXCLUDE_CURRENT_ROW] = " exclude current row",
                                           [EXCLUDE_GROUP] = " exclude group",
                                           [EXCLUDE_TIES] = " exclude ties"};
    BASE_COVERS(units, FRAME_UNITS);
    BASE_COVERS(excludes, FRAME_EXCLUDES);
    buf_printf(out, "%s between ", units[f->unit]);
    print_bound(&f->start, out);
    buf_append_c(out, " and ");
    print_bound(&f->end, out);
    buf_append_c(out, excludes[f->exclude]);
}

static void print_over(const rel_window *w, const sort_key *keys, buf *out) {
    const char *between = "";
    buf_append_c(out, " over (");
    for (int i = 0; i < w->nkeys; i++) {
        if (i == 0 || i == w->npartition)
            buf_printf(out, "%s%s", between, i < w->npartition ? "partition by " : "order by ");
        else
            buf_append_c(out, ", ");
        if (i < w->npartition)
            expr_print(keys[i].value, out);
        else
            sort_key_print(&keys[i], out);
        between = " ";
    }
    if (!is_default_frame(&w->frame)) {
        buf_append_c(out, between);
        print_frame(&w->frame, out);
    }
    buf_append_char(out, ')');
}

void window_print(const rel_window *w, const sort_key *keys, bool spec, buf *out) {
    bool aggregate = w->kind == WINDOW_AGGREGATE;
    buf_printf(out, "%s(", aggregate ? agg_kind_name(w->agg) : window_of(w->kind)->name);
    print_list(w->args, w->nargs, NULL, out);
    buf_append_c(out, aggregate && !w->nargs ? "*)" : ")");
    if (w->filter) {
        buf_append_c(out, " filter ");
        expr_print(w->filter, out);
    }
    if (spec)
        print_over(w, keys, out);
}

static void print_split(const rel *r, buf *out) {
    buf_append_char(out, ' ');
    expr_print(r->split.text, out);
    if (r->split.spec.chunks)
        buf_printf(out, " tokens %lld overlap %lld", (long long)r->split.spec.tokens,
                   (long long)r->split.spec.overlap);
    if (r->split.separator) {
        buf_append_c(out, " between ");
        expr_print(r->split.separator, out);
    }
}

static void print_windows(const rel *r, buf *out) {
    for (int i = 0; i < r->window.nfunctions; i++) {
        buf_printf(out, "%s #%d = ", i ? "," : "", r->window.functions[i].id);
        window_print(&r->window.functions[i], r->window.keys, true, out);
    }
    if (r->window.first > 0)
        buf_printf(out, ", first %lld%s", (long long)r->window.first,
                   r->window.with_ties ? " with ties" : "");
}

static void print_values(const rel *r, buf *out) {
    buf_printf(out, " %d row%s", r->values.nrows, r->values.nrows == 1 ? "" : "s");
    for (int i = 0; i < r->values.nrows && i < 3 && r->ncols; i++) {
        buf_append_c(out, " (");
        print_list(r->values.rows[i], r->ncols, NULL, out);
        buf_append_char(out, ')');
    }
}

static void print_named_exprs(const rel *r, buf *out) {
    for (int i = 0; i < r->ncols; i++) {
        buf_append_c(out, i ? ", " : " ");
        expr_print(r->project.exprs[i].value, out);
        buf_printf(out, " #%d", r->cols[i].id);
    }
}

static void print_partition(const int *ids, int n, buf *out) {
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s#%d", i ? ", " : " per ", ids[i]);
}

static void print_sort(const rel *r, buf *out) {
    for (int i = 0; i < r->sort.nkeys; i++) {
        const sort_key *k = &r->sort.keys[i];
        buf_append_c(out, i ? ", " : " ");
        expr_print(k->value, out);
        buf_append_c(out, k->descending ? " DESC" : "");
        if (k->nulls_first != k->descending)
            buf_append_c(out, k->nulls_first ? " NULLS FIRST" : " NULLS LAST");
    }
    if (r->sort.first > 0)
        buf_printf(out, ", first %lld", (long long)r->sort.first);
    print_partition(r->sort.partition, r->sort.npartition, out);
}

static void print_join(const rel *r, buf *out) {
    buf_printf(out, " %s", join_kind_name(r->join.kind));
    if (r->join.kind == JOIN_MARK)
        buf_printf(out, " #%d%s", r->join.mark_id, r->join.mark_null ? " null-aware" : "");
    if (r->join.predicate) {
        buf_append_c(out, " on ");
        expr_print(r->join.predicate, out);
    }
    if (r->join.first > 0)
        buf_printf(out, ", %s %lld", r->join.first_descending ? "last" : "first",
                   (long long)r->join.first);
}

static void print_group(const rel *r, buf *out) {
    for (int i = 0; i < r->group.nkeys; i++) {
        buf_append_c(out, i ? ", " : " by ");
        expr_print(r->group.keys[i].value, out);
        buf_printf(out, " #%d", r->group.keys[i].id);
    }
    for (int i = 0; i < r->group.naggs; i++)
        print_aggregate(&r->group.aggs[i], out);
}

static void print_limit(const rel *r, buf *out) {
    if (r->limit.limit >= 0)
        buf_printf(out, " %lld", (long long)r->limit.limit);
    if (r->limit.offset)
        buf_printf(out, " offset %lld", (long long)r->limit.offset);
    print_partition(r->limit.partition, r->limit.npartition, out);
}

static void print_llm(const rel *r, buf *out) {
    for (int i = 0; i < r->llm.nsites; i++) {
        buf_append_c(out, i ? ";" : "");
        print_call(&r->llm.sites[i], out);
    }
}

static void print_scan(const rel *r, buf *out) {
    buf_append_char(out, ' ');
    buf_append_str(out, r->scan.table->name);
    if (!str_equal(r->scan.alias, r->scan.table->name))
        buf_printf(out, " AS %.*s", (int)r->scan.alias.n, r->scan.alias.p);
}

static void print_series(const series *s, buf *out) {
    buf_printf(out, " %lld, + %lld, %lld times", (long long)s->first, (long long)s->step,
               (long long)s->count);
}

static void print_residual(const rel *r, buf *out) {
    buf_printf(out, " per #%d keep ", r->residual.group_id);
    expr_print(r->residual.predicate, out);
}

static void print_details(const rel *r, buf *out) {
    switch (r->kind) {
    case REL_VALUES:
        print_values(r, out);
        break;
    case REL_SCAN:
        print_scan(r, out);
        break;
    case REL_FILE:
        buf_printf(out, " %.*s", (int)r->file.path.n, r->file.path.p);
        break;
    case REL_SYSTEM:
        buf_printf(out, " %.*s", (int)r->system.name.n, r->system.name.p);
        break;
    case REL_SERIES:
        print_series(&r->series, out);
        break;
    case REL_FILTER:
        buf_append_char(out, ' ');
        expr_print(r->filter.predicate, out);
        break;
    case REL_PROJECT:
        print_named_exprs(r, out);
        break;
    case REL_JOIN:
    case REL_APPLY:
        print_join(r, out);
        break;
    case REL_GROUP:
        print_group(r, out);
        break;
    case REL_SORT:
        print_sort(r, out);
        break;
    case REL_LIMIT:
        print_limit(r, out);
        break;
    case REL_SETOP:
        buf_printf(out, " %s", set_op_sql(r->setop.op));
        break;
    case REL_LLM:
        print_llm(r, out);
        break;
    case REL_PIPELINE:
        r->pipeline.print(r->pipeline.details, out);
        break;
    case REL_SHARED:
        buf_printf(out, " %d%s", r->shared.number, r->shared.kept ? " materialized" : "");
        break;
    case REL_SPLIT:
        print_split(r, out);
        break;
    case REL_ROW_NUMBER:
        buf_printf(out, " #%d", r->row_number.id);
        break;
    case REL_WINDOW:
        print_windows(r, out);
        break;
    case REL_RECURSIVE:
        buf_printf(out, " %d%s", r->recursive.number, r->recursive.distinct ? " UNION" : "");
        break;
    case REL_WORKING:
        buf_printf(out, " %d", r->working.number);
        break;
    case REL_OUTER_RESIDUAL:
        print_residual(r, out);
        break;
    case REL_DISTINCT:
        break;
    }
}

/* Numbers of the shared relations already printed: a CTE's tree is printed only at its first
 * reference. */
typedef struct printed {
    int n;
    int numbers[256];
} printed;

static bool is_printed(printed *p, const rel *r) {
    if (r->kind != REL_SHARED)
        return false;
    for (int i = 0; i < p->n; i++)
        if (p->numbers[i] == r->shared.number)
            return true;
    if (p->n < (int)BASE_COUNT(p->numbers))
        p->numbers[p->n++] = r->shared.number;
    return false;
}

static const char *const kind_names[] = {
    [REL_VALUES] = "Values",     [REL_SCAN] = "Scan",
    [REL_FILE] = "File",         [REL_SYSTEM] = "System",
    [REL_SERIES] = "Series",     [REL_FILTER] = "Filter",
    [REL_PROJECT] = "Project",   [REL_JOIN] = "Join",
    [REL_APPLY] = "Apply",       [REL_GROUP] = "Group",
    [REL_SORT] = "Sort",         [REL_LIMIT] = "Limit",
    [REL_DISTINCT] = "Distinct", [REL_SETOP] = "SetOp",
    [REL_LLM] = "LLM",           [REL_PIPELINE] = "Pipeline",
    [REL_SHARED] = "Shared",     [REL_ROW_NUMBER] = "Number",
    [REL_WINDOW] = "Window",     [REL_RECURSIVE] = "Recursive",
    [REL_WORKING] = "Working",   [REL_OUTER_RESIDUAL] = "OuterResidual",
    [REL_SPLIT] = "Split",
};

static void print_tree(const rel *r, int depth, printed *p, buf *out) {
    for (bool again = false; r && !again; r = r->left) {
        again = is_printed(p, r);
        for (int i = 0; i < depth; i++)
            buf_append_c(out, "  ");
        buf_append_c(out, kind_names[r->kind]);
        print_details(r, out);
        buf_append_c(out, again ? " again\n" : "\n");
        depth++;
        if (r->right) {
            print_tree(r->left, depth, p, out);
            print_tree(r->right, depth, p, out);
            return;
        }
    }
}

void rel_print(const rel *r, buf *out) {
    printed p = {0};
    print_tree(r, 0, &p, out);
}
