/*
 * llm_late_fields.c - late fields: fields of a call that are computed from answers of earlier stages.
 *
 * An answer is a function of its call's input. So a late value is known by what it is computed from:
 * cells of the row, and the inputs of calls (llm_inputs.c), as soon as the base's rows are there. Its
 * text is made when rows that need it are about to be asked. If it is NULL, the field is left out of
 * the prompt; if no field is left, or the prompt names a field that is NULL, the row has no input.
 *
 * Invariant: which rows share an input, the layout and the orders are fixed before the first prompt.
 * So a prompt has the same text whatever part of the rows is asked about.
 */
#include <string.h>

#include "eval/eval_int.h"
#include "op_llm_int.h"

/* Values of llm_inputs.resolved. INPUT_WITHOUT: the late fields are known, and the answer is NULL
 * without a call. */
enum { INPUT_OPEN, INPUT_RESOLVED, INPUT_WITHOUT };

/* ---- what late fields are computed from ------------------------------------------------------ */

/* The columns of the base, and the call sites, that a value is computed from. */
typedef struct origins {
    bool *cols;  /* [ncols of the base] */
    bool *sites; /* [nsites] */
} origins;

/* Returns the index of the call site that makes this slot; -1: it is a column of the base. */
static int site_of_slot(const llm_state *s, int slot) {
    for (int i = 0; i < s->nsites; i++) {
        const plan_call_site *site = s->sites[i].plan;
        if (site->out_slot == slot)
            return i;
        for (int k = 0; k < site->nprobs; k++)
            if (site->probs[k].slot == slot)
                return i;
    }
    return -1;
}

/* Whether a row has a call's answer also depends on the call's late guard. */
static void find_origins(const llm_state *s, const expr *x, origins *from) {
    if (x->kind == EXPR_COLUMN) {
        int at = site_of_slot(s, x->column.slot);
        if (at < 0) {
            from->cols[x->column.slot] = true;
        } else if (!from->sites[at]) {
            from->sites[at] = true;
            if (s->sites[at].plan->late_guard)
                find_origins(s, s->sites[at].plan->guard, from);
        }
    }
    for (int i = 0; i < x->nargs; i++)
        find_origins(s, x->args[i], from);
}

static void set_source(op *o, const expr *x, late_source *out) {
    const llm_state *s = o->state;
    int ncols = o->node->left->ncols, *cols = ARENA_ARRAY(o->mem, int, ncols + 1);
    const uint32_t **inputs = ARENA_ARRAY(o->mem, const uint32_t *, s->nsites + 1);
    origins from = {ARENA_ARRAY(o->mem, bool, ncols + 1), ARENA_ARRAY(o->mem, bool, s->nsites + 1)};
    find_origins(s, x, &from);
    *out = (late_source){.late = true, .cols = cols, .inputs = inputs};
    for (int c = 0; c < ncols; c++)
        if (from.cols[c])
            cols[out->ncols++] = c;
    for (int i = 0; i < s->nsites; i++)
        if (from.sites[i])
            inputs[out->nanswers++] = s->sites[i].in->of_row;
}

const late_source *llm_late_sources(op *o, const site_run *site, bool hidden) {
    int n = site->plan->call->nfields;
    late_source *out = ARENA_ARRAY(o->mem, late_source, n + 1);
    for (int f = 0; f < n; f++)
        if (hidden && site->plan->call->answer_texts[f] > 0)
            out[f] = (late_source){.late = true};
        else if (site->plan->late[f])
            set_source(o, site->plan->args[f], &out[f]);
    return out;
}

static double expected_tokens(const llm_state *s, const expr *x) {
    int at = x->kind == EXPR_COLUMN ? site_of_slot(s, x->column.slot) : -1;
    double tokens = at < 0 ? 0 : s->sites[at].plan->answer_tokens;
    for (int i = 0; i < x->nargs; i++)
        tokens += expected_tokens(s, x->args[i]);
    return tokens;
}

/* Returns the average tokens of a field's values, which are known. */
static double average_tokens(const prompt *p, int f) {
    double tokens = 0;
    for (uint32_t i = 0; i < p->nvalues[f]; i++) {
        size_t count;
        llm_span_tokens(p->values[f][i], &count);
        tokens += (double)count / p->nvalues[f];
    }
    return tokens;
}

double llm_answer_field_tokens(const op *o, const site_run *site) {
    double tokens = 0;
    for (int f = 0; f < site->plan->call->nfields; f++) {
        size_t name;
        if (site->plan->call->answer_texts[f] == 0)
            continue;
        llm_span_tokens(site->prompt->names[f], &name);
        tokens +=
            (double)name + (site->plan->late[f] ? expected_tokens(o->state, site->plan->args[f])
                                                : average_tokens(site->prompt, f));
    }
    return tokens;
}

/* ---- when the answers are there -------------------------------------------------------------- */

static void set_text(op *o, site_run *site, int f, uint32_t id, str text, late_state state) {
    field_values *v = &site->in->fields[f];
    arena *kept = o->ctx->llm->kept;
    v->text[id] = str_copy(kept, text);
    v->key[id] = hash_128(text.p, text.n);
    v->state[id] = (uint8_t)state;
    prompt_add_value(site->prompt, site->in, f, id, kept);
}

/* Returns the text of a late field's value; p = NULL: it is absent. */
static int late_text(op *o, const site_run *site, int f, value v, str *out, err *e) {
    llm_state *s = o->state;
    const llm_call *call = site->plan->call;
    value text = v;
    str *texts;
    int n, status = value_cast(s->scratch, v, TYPE_TEXT, &text, e);
    *out = (str){NULL, 0};
    if (status || v.type == TYPE_NULL)
        return status;
    *out = text.s;
    if (!call->field_lists[f])
        return 0;
    status = contexts_read(call, text.s, s->scratch, &texts, &n, e);
    *out = status || n == 0 ? (str){NULL, 0} : contexts_join(texts, n, s->scratch);
    return status;
}

static int set_value(op *o, site_run *site, int f, uint32_t id, value v, err *e) {
    str text;
    int status = late_text(o, site, f, v, &text, e);
    if (status == 0 && text.p == NULL)
        site->in->fields[f].state[id] = LATE_NULL;
    else if (status == 0)
        set_text(o, site, f, id, text, LATE_KNOWN);
    return status;
}

/* Sets *view to some rows with the columns `read`, in s->scratch. */
static int view_rows(op *o, const bool *read, const int64_t *rows, int count, batch *view, err *e) {
    llm_state *s = o->state;
    *view = (batch){.rows = count, .ncols = o->node->ncols, .mem = s->scratch};
    view->cols = ARENA_ARRAY(s->scratch, column, o->node->ncols + 1);
    return llm_rows_columns(o, read, rows, count, view, e);
}

/* Makes the late values of some rows, at most a batch. */
static int resolve_rows(op *o, site_run *site, const int64_t *rows, int count, err *e) {
    llm_state *s = o->state;
    batch view;
    arena_reset(s->scratch);
    bool *read = ARENA_ARRAY(s->scratch, bool, o->node->ncols + 1);
    for (int f = 0; f < site->plan->call->nfields; f++)
        if (site->plan->late[f])
            llm_mark_slots(site->plan->args[f], read);
    int status = view_rows(o, read, rows, count, &view, e);
    for (int f = 0; f < site->plan->call->nfields && status == 0; f++) {
        column values;
        if (!site->plan->late[f])
            continue;
        status = eval_column(site->plan->args[f], &view, s->scratch, &values, e);
        for (int i = 0; i < count && status == 0; i++) {
            uint32_t id = site->in->value[f][site->in->of_row[rows[i]]];
            if (site->in->fields[f].state[id] == LATE_UNKNOWN)
                status = set_value(o, site, f, id, column_get(&values, i), e);
        }
    }
    return status ? status : check_cancel(o->ctx->cancel, e);
}

static uint8_t resolution_of(const site_run *site, uint32_t input) {
    const llm_call *call = site->plan->call;
    int present = 0;
    for (int f = 0; f < call->nfields; f++) {
        bool lacks = input_lacks(site->in, f, input);
        present += !lacks;
        if (lacks && call->field_required[f])
            return INPUT_WITHOUT;
    }
    return present > 0 ? INPUT_RESOLVED : INPUT_WITHOUT;
}

/* Takes the input from rows whose answer is NULL without a call. */
static void drop_inputs(site_run *site, const int64_t *rows, int64_t count) {
    llm_inputs *in = site->in;
    for (int64_t i = 0; i < count; i++) {
        uint32_t input = in->of_row[rows[i]];
        if (input == NO_INPUT || in->resolved[input] != INPUT_WITHOUT)
            continue;
        in->of_row[rows[i]] = NO_INPUT;
        in->empty[rows[i]] = 1;
        in->needed_rows--;
    }
}

int llm_late_resolve(op *o, site_run *site, const int64_t *rows, int64_t count, err *e) {
    llm_inputs *in = site->in;
    int64_t open[BATCH_ROWS];
    int status = 0;
    for (int64_t at = 0; site->plan->nlate > 0 && at < count && status == 0;) {
        int n = 0;
        for (; at < count && n < BATCH_ROWS; at++) {
            uint32_t input = in->of_row[rows[at]];
            if (input == NO_INPUT || in->resolved[input] != INPUT_OPEN)
                continue;
            in->resolved[input] = INPUT_RESOLVED;
            open[n++] = rows[at];
        }
        if (n > 0)
            status = resolve_rows(o, site, open, n, e);
        for (int i = 0; i < n && status == 0; i++)
            in->resolved[in->of_row[open[i]]] = resolution_of(site, in->of_row[open[i]]);
    }
    if (status == 0 && site->plan->nlate > 0)
        drop_inputs(site, rows, count);
    return status;
}

/* ---- without answers ------------------------------------------------------------------------- */

/* Made-up answers of one call: `start` with a number, then as many times `more` as make up the
 * expected number of tokens. */
typedef struct made_up {
    const site_run *of;
    int repeats;
} made_up;

static size_t text_tokens(const llm_engine *engine, const char *text) {
    size_t count;
    llm_span *span = llm_span_new(engine, LLM_SPAN_VALUE, str_from(text));
    llm_span_tokens(span, &count);
    llm_span_release(span);
    return count;
}

static const char more[] = " …";

static const char *start_of(const llm_call *call, uint32_t input, arena *mem) {
    return arena_printf(mem, "[%u: answer of #%d]", input + 1, call->number);
}

static made_up make_up(const site_run *of, arena *mem) {
    const char *start = start_of(of->plan->call, of->in->count, mem);
    double left = of->plan->answer_tokens - (double)text_tokens(of->engine, start);
    return (made_up){of, (int)BASE_MAX(left / (double)text_tokens(of->engine, more), 0)};
}

/* Returns a made-up answer to an input: of a call with allowed answers one of them, of a number the
 * input's number. */
static str made_up_text(const made_up *m, uint32_t input, arena *mem) {
    const llm_call *call = m->of->plan->call;
    if (call->nliterals > 0)
        return call->literals[input % (uint32_t)call->nliterals];
    if (call->returns != RETURNS_TEXT)
        return str_from(arena_printf(mem, "%u", input + 1));
    buf b = {0};
    buf_append_c(&b, start_of(call, input, mem));
    for (int i = 0; i < m->repeats; i++)
        buf_append_c(&b, more);
    str text = str_copy(mem, buf_str(&b));
    buf_free(&b);
    return text;
}

static int made_up_value(const made_up *m, uint32_t input, arena *mem, value *out, err *e) {
    const llm_call *call = m->of->plan->call;
    llm_answer a = {.text = made_up_text(m, input, mem), .choice = -1};
    if (call->nliterals > 0)
        a.choice = (int)(input % (uint32_t)call->nliterals);
    return answer_value(call, &a, out, e);
}

/* Fills those columns of a call's answers that are `read` in a view of some rows. */
static int fill_answers(op *o, const made_up *m, const bool *read, const int64_t *rows, batch *view,
                        err *e) {
    llm_state *s = o->state;
    const plan_call_site *site = m->of->plan;
    column *out = &view->cols[site->out_slot];
    int status = 0;
    if (read[site->out_slot])
        column_init(out, s->scratch, llm_call_type(site->call), view->rows, false);
    for (int i = 0; i < view->rows && status == 0 && read[site->out_slot]; i++) {
        uint32_t input = m->of->in->of_row[rows[i]];
        value v = value_null();
        if (input != NO_INPUT)
            status = made_up_value(m, input, s->scratch, &v, e);
        column_set(out, s->scratch, view->rows, i, v);
    }
    for (int k = 0; k < site->nprobs; k++) {
        if (!read[site->probs[k].slot])
            continue;
        out = &view->cols[site->probs[k].slot];
        column_init(out, s->scratch, TYPE_REAL, view->rows, false);
        for (int i = 0; i < view->rows; i++)
            column_set(out, s->scratch, view->rows, i,
                       value_real(1.0 / BASE_MAX(site->call->nliterals, 1)));
    }
    return status;
}

/* Returns the text of a late value whose expression has no value over made-up answers: of the first
 * answer that it reads. */
static str first_answer(op *o, const expr *x, const made_up *made, int64_t row) {
    llm_state *s = o->state;
    int at = x->kind == EXPR_COLUMN ? site_of_slot(s, x->column.slot) : -1;
    if (at >= 0) {
        uint32_t input = s->sites[at].in->of_row[row];
        return made_up_text(&made[at], input == NO_INPUT ? 0 : input, s->scratch);
    }
    for (int i = 0; i < x->nargs; i++) {
        str text = first_answer(o, x->args[i], made, row);
        if (text.p)
            return text;
    }
    return (str){NULL, 0};
}

/* Makes up the values of one late field, of each the one of rows[i]; ids[i] is its id. */
static int assume_values(op *o, site_run *site, int f, const made_up *made, const int64_t *rows,
                         const uint32_t *ids, int count, err *e) {
    llm_state *s = o->state;
    const expr *x = site->plan->args[f];
    batch view;
    column values;
    err ignored = {0};
    arena_reset(s->scratch);
    bool *read = ARENA_ARRAY(s->scratch, bool, o->node->ncols + 1),
         *cells = ARENA_ARRAY(s->scratch, bool, o->node->ncols + 1);
    llm_mark_slots(x, read);
    memcpy(cells, read, (size_t)o->node->left->ncols);
    int status = view_rows(o, cells, rows, count, &view, e);
    for (int i = 0; i < s->nsites && status == 0; i++)
        status = fill_answers(o, &made[i], read, rows, &view, e);
    if (status)
        return status;
    bool failed = eval_column(x, &view, s->scratch, &values, &ignored) != 0;
    for (int i = 0; i < count; i++) {
        str text;
        value v = failed ? value_null() : column_get(&values, i);
        bool unread = late_text(o, site, f, v, &text, &ignored) != 0;
        if (text.p == NULL && !failed && !unread && o->ctx->count_only) {
            site->in->fields[f].state[ids[i]] = LATE_NULL;
            continue;
        }
        if (text.p == NULL)
            text = first_answer(o, x, made, rows[i]);
        set_text(o, site, f, ids[i], text, LATE_ASSUMED);
    }
    return check_cancel(o->ctx->cancel, e);
}

/* Makes up the unknown values of one late field. */
static int assume_field(op *o, site_run *site, int f, const made_up *made, err *e) {
    const llm_inputs *in = site->in;
    field_values *v = &in->fields[f];
    int64_t rows[BATCH_ROWS];
    uint32_t ids[BATCH_ROWS];
    int status = 0;
    for (int64_t at = 0; at < in->rows && status == 0;) {
        int n = 0;
        for (; at < in->rows && n < BATCH_ROWS; at++) {
            uint32_t input = in->of_row[at];
            if (input == NO_INPUT || v->state[in->value[f][input]] != LATE_UNKNOWN)
                continue;
            ids[n] = in->value[f][input];
            rows[n++] = at;
            v->state[ids[n - 1]] = LATE_ASSUMED;
        }
        if (n > 0)
            status = assume_values(o, site, f, made, rows, ids, n, e);
    }
    return status ? status : arena_full_error(o->ctx->llm->kept, e);
}

/* Makes up the unknown values of a call site. If no answer will follow, rows whose fields are NULL
 * whatever the answers are lose their input. */
static int assume_site(op *o, site_run *site, const made_up *made, err *e) {
    llm_inputs *in = site->in;
    int status = 0;
    for (int f = 0; f < in->nfields && status == 0; f++)
        if (site->plan->late[f])
            status = assume_field(o, site, f, made, e);
    for (int64_t r = 0; r < in->rows && status == 0 && o->ctx->count_only; r++)
        if (in->of_row[r] != NO_INPUT) {
            in->resolved[in->of_row[r]] = resolution_of(site, in->of_row[r]);
            drop_inputs(site, &r, 1);
        }
    return status;
}

int llm_late_assume(op *o, err *e) {
    llm_state *s = o->state;
    made_up *made = ARENA_ARRAY(o->mem, made_up, s->nsites + 1);
    int status = 0;
    for (int i = 0; i < s->nsites; i++)
        made[i] = make_up(&s->sites[i], o->mem);
    for (int i = 0; i < s->nsites && status == 0; i++)
        if (s->sites[i].plan->nlate > 0 && s->sites[i].leader == &s->sites[i])
            status = assume_site(o, &s->sites[i], made, e);
    return status;
}

void llm_late_forget(op *o) {
    llm_state *s = o->state;
    for (int i = 0; i < s->nsites; i++)
        for (int f = 0; f < s->sites[i].plan->call->nfields; f++) {
            field_values *v = &s->sites[i].in->fields[f];
            for (uint32_t id = 0; v->late && id < v->count; id++)
                if (v->state[id] == LATE_ASSUMED)
                    v->state[id] = LATE_UNKNOWN;
        }
}
