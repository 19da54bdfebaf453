/*
 * llm_show.c - EXPLAIN (PROMPT) and EXPLAIN (TREE): the prompts that a statement sends, shown
 * without asking the model.
 *
 * Invariant: the prompts are those of a cold run, token for token (llm_prompt_tokens), in the order
 * of sending, except where answers decide which rows are asked about: all rows are taken to pass
 * the filters on answers.
 *
 * How EXPLAIN (PROMPT) prints a prompt; the shell colours and wraps these lines (format_plan.c):
 *
 *   prompt 2, row 7: 46 tokens, 38 shared with a prompt before it
 *   │ Is the review positive?          │ the line is part of the shared prefix
 *   │                                  ├ the prefix ends in this line, at the ▏
 *   ├ review: The▏ most honest         no bar: the line is this prompt's own
 *     answer:
 *
 * Control tokens stand in ⟦ ⟧, which text never does (prompt_text).
 */
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"
#include "prompt_tree_int.h"

/* SHOWN_PROMPTS: prompts printed for each call. SHOWN_LITERALS: allowed answers printed. */
enum { SHOWN_PROMPTS = 3, SHOWN_LITERALS = 20 };

typedef struct shown_prompt {
    uint64_t number; /* in the order of sending, from 1 */
    int64_t row;     /* the first row with this input, from 1 */
    const llm_token *tokens;
    int count;
    int shared; /* number of first tokens that an earlier prompt begins with */
} shown_prompt;

typedef struct shown_call {
    const llm_template *tmpl;
    uint64_t inputs;    /* number of distinct inputs */
    uint64_t repeated;  /* number of inputs whose prompt was sent before */
    bool reads_answers; /* a field is computed from answers of another pipeline */
    bool made_up;       /* a field is computed from answers of the same pipeline */
    int nprompts;
    shown_prompt prompts[SHOWN_PROMPTS];
} shown_call;

struct shown {
    llm_figures before; /* the figures of run.session when they were last read */
    count_run run;      /* a session that checks prompts, and the prompts asked so far */
    shown_call *calls;  /* by call number - 1 */
    prompt_tree *trees; /* one for each engine: engines share no KV */
    int ntrees, trees_cap;
    uint64_t sent;      /* number of prompts sent */
    uint64_t shortened; /* number of prompts from which fields were left out */
    bool waves;         /* the rows are those of the first wave */
    arena *mem;
};

void shown_free(shown *x) {
    if (!x)
        return;
    count_run_close(&x->run);
    for (int i = 0; i < x->ntrees; i++)
        prompt_tree_free(&x->trees[i]);
    free(x->trees);
    arena_free(x->mem);
    free(x);
}

/* ---- the driver ------------------------------------------------------------------------------ */

static shown_call *call_at(llm_sender *x, int at) {
    const site_run *site = &((llm_state *)x->o->state)->sites[at];
    return &((shown *)x->state)->calls[site->plan->call->number - 1];
}

static prompt_tree *tree_of(shown *x, const llm_engine *engine) {
    for (int i = 0; i < x->ntrees; i++)
        if (x->trees[i].engine == engine)
            return &x->trees[i];
    ARRAY_PUSH(x->trees, x->ntrees, x->trees_cap, ((prompt_tree){.engine = NULL}));
    prompt_tree *t = &x->trees[x->ntrees - 1];
    prompt_tree_init(t, engine, x->mem);
    return t;
}

static int show_open(llm_sender *x, llm_engine *engine, err *e) {
    shown *all = x->state;
    int status = count_run_open(&all->run, x->o->ctx, engine, LLM_REUSE_TREE, &x->session, e);
    if (status == 0)
        llm_session_figures(x->session, &all->before);
    return status;
}

static int show_select(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e) {
    uint64_t inputs, fresh;
    llm_mark_inputs(x, at, rows, count, &inputs, &fresh);
    call_at(x, at)->inputs += fresh;
    return check_cancel(x->o->ctx->cancel, e);
}

static bool show_is_known(llm_sender *x, int at, uint32_t input) {
    bool known = count_run_knows(&((shown *)x->state)->run, x, at, input);
    call_at(x, at)->repeated += known;
    return known;
}

static int show_submit(llm_sender *x, const llm_request *request, err *e) {
    shown *all = x->state;
    int at = (int)(request->tag >> 32), count;
    const site_run *site = &((llm_state *)x->o->state)->sites[at];
    const llm_token *tokens = llm_prompt_tokens(x->session, request, &count, e);
    if (!tokens)
        return (int)e->code;
    shown_call *call = call_at(x, at);
    shown_prompt p = {.number = ++all->sent,
                      .row = 1,
                      .count = count,
                      .shared = prompt_tree_add(tree_of(all, site->engine), tokens, count)};
    call->tmpl = request->after;
    if (call->nprompts == SHOWN_PROMPTS)
        return arena_full_error(all->mem, e);
    llm_token *own = arena_alloc(all->mem, sizeof *own * (size_t)count);
    memcpy(own, tokens, sizeof *own * (size_t)count);
    p.tokens = own;
    p.row = llm_row_of_input(site->in, (uint32_t)request->tag);
    call->prompts[call->nprompts++] = p;
    return arena_full_error(all->mem, e);
}

/* Prompts are not queued, so there is nothing to run. */
static int show_drain(llm_sender *x, err *e) {
    shown *all = x->state;
    llm_figures now;
    llm_session_figures(x->session, &now);
    all->shortened += now.truncated - all->before.truncated;
    all->before = now;
    return check_cancel(x->o->ctx->cancel, e);
}

const llm_driver llm_show_driver = {.open = show_open,
                                    .select = show_select,
                                    .is_known = show_is_known,
                                    .submit = show_submit,
                                    .drain = show_drain};

static shown *shown_of(const exec_ctx *ctx) {
    llm_runtime *r = ctx->llm;
    if (!r->shown) {
        shown *x = r->shown = mem_zalloc(sizeof *x);
        x->mem = arena_new_spilling((size_t)ctx->settings->work_memory, ctx->space);
        x->calls = ARENA_ARRAY(x->mem, shown_call, ctx->stmt->ncalls + 1);
    }
    return r->shown;
}

int llm_show_rows(op *o, err *e) {
    llm_state *s = o->state;
    const plan_demand *d = &o->node->pipeline.demand;
    shown *x = s->sender.state = shown_of(o->ctx);
    for (int i = 0; i < s->nsites; i++)
        for (int f = 0; f < s->sites[i].plan->call->nfields; f++) {
            bool late = s->sites[i].plan->late[f];
            call_at(&s->sender, i)->made_up |= late;
            call_at(&s->sender, i)->reads_answers |= !late && s->sites[i].plan->reads[f].n > 0;
        }
    x->waves |= d->limit_hint > 0 || d->top_n.n > 0;
    return llm_run_next(o, e);
}

/* ---- EXPLAIN (PROMPT) ------------------------------------------------------------------------ */

/* Prints a prompt's lines, of which the first `shared` bytes are the shared prefix. */
static void print_lines(buf *out, str text, size_t shared) {
    for (size_t at = 0, end; at < text.n; at = end + 1) {
        const char *line_end = memchr(text.p + at, '\n', text.n - at);
        end = line_end ? (size_t)(line_end - text.p) : text.n;
        str line = {text.p + at, end - at};
        if (at < shared && shared < end) {
            buf_append_c(out, "├ ");
            buf_append_str(out, (str){line.p, shared - at});
            buf_append_c(out, "▏");
            line = (str){text.p + shared, end - shared};
        } else if (line.n > 0) {
            buf_append_c(out, at < shared ? "│ " : "  ");
        } else if (at < shared) {
            buf_append_c(out, "│");
        }
        buf_append_str(out, line);
        buf_append_char(out, '\n');
    }
}

static void print_prompt(buf *out, const llm_engine *engine, const shown_prompt *p) {
    buf text = {0};
    buf_printf(out, "prompt %llu, row %lld: %d tokens", (unsigned long long)p->number,
               (long long)p->row, p->count);
    if (p->shared > 0)
        buf_printf(out, ", %d shared with a prompt before it", p->shared);
    buf_append_char(out, '\n');
    prompt_text(engine, p->tokens, (size_t)p->shared, &text);
    size_t shared = text.n;
    prompt_text(engine, p->tokens + p->shared, (size_t)(p->count - p->shared), &text);
    /* a token may end within a character */
    while (shared > 0 && shared < text.n && ((unsigned char)text.p[shared] & 0xc0) == 0x80)
        shared--;
    print_lines(out, buf_str(&text), shared);
    buf_free(&text);
}

static void print_allowed(buf *out, const exec_ctx *ctx, const llm_call *call, bool chat) {
    str own;
    const str *stops;
    if (call->returns == RETURNS_VECTOR) {
        buf_append_c(out, "answer: its vector\n");
        return;
    }
    buf_append_c(out, "allowed answers: ");
    for (int i = 0; i < call->nliterals && i < SHOWN_LITERALS; i++) {
        buf_append_c(out, i ? ", " : "");
        value_print_sql(out, value_text(call->literals[i]));
    }
    if (call->nliterals > SHOWN_LITERALS)
        buf_printf(out, " and %d more", call->nliterals - SHOWN_LITERALS);
    else if (call->nliterals == 0 && call->returns != RETURNS_TEXT)
        buf_append_c(out, call->returns == RETURNS_REAL ? "numbers" : "whole numbers");
    else if (call->nliterals == 0)
        buf_printf(out, "%s of at most %d tokens", chat ? "text" : "one line",
                   llm_call_max_tokens(ctx->settings, call));
    for (int i = 0, n = call_stops(ctx->settings, call, &own, &stops);
         call->returns == RETURNS_TEXT && i < n; i++) {
        buf_append_c(out, i ? " or " : ", ended by ");
        value_print_sql(out, value_text(stops[i]));
    }
    buf_append_char(out, '\n');
}

static void print_call(buf *out, const exec_ctx *ctx, const llm_call *call, const shown_call *c) {
    if (call->returns == RETURNS_VECTOR && c->inputs == 0) {
        buf_printf(out, "%.*s: the vector of a constant, made already\n", (int)call->label.n,
                   call->label.p);
        return;
    }
    buf_printf(out, "%.*s: ", (int)call->label.n, call->label.p);
    buf_append_count(out, c->inputs);
    buf_append_c(out, c->inputs == 1 ? " distinct input" : " " WORDS_INPUTS);
    if (c->repeated > 0) {
        buf_append_c(out, ", ");
        buf_append_count(out, c->repeated);
        buf_append_c(out, " asked before in this statement");
    }
    if (c->inputs - c->repeated > (uint64_t)c->nprompts && c->nprompts > 0)
        buf_printf(out, "; the first %d as they are sent", c->nprompts);
    buf_append_char(out, '\n');
    for (int i = 0; i < c->nprompts; i++) {
        buf_append_char(out, '\n');
        print_prompt(out, ctx->llm->engines[call->number - 1], &c->prompts[i]);
    }
    buf_append_c(out, c->nprompts ? "\n" : "");
    print_allowed(out, ctx, call, c->tmpl && c->tmpl->chat);
}

/* ---- EXPLAIN (TREE) -------------------------------------------------------------------------- */

static void print_tree(buf *out, const shown *x, const prompt_tree *t) {
    llm_figures all = {.prompt_tokens = t->sent, .computed_tokens = t->computed};
    if (x->ntrees > 1)
        buf_printf(out, "model %s\n", llm_engine_info(t->engine)->name);
    prompt_tree_print(t, out);
    buf_append_count(out, t->nodes[TREE_ROOT].prompts);
    buf_append_c(out, t->nodes[TREE_ROOT].prompts == 1 ? " prompt, " : " prompts, ");
    buf_append_count(out, t->sent);
    buf_append_c(out, " tokens sent, ");
    buf_append_count(out, t->computed);
    buf_printf(out,
               " " WORDS_COMPUTED " if every branch is computed once: " WORDS_HIT_RATE " %.1f %%\n",
               100 * llm_hit_rate(&all));
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Whether the plan has filters that read answers. */
static bool filters_answers(const plan_node *n) {
    if (!n)
        return false;
    bool found = plan_filters_answers(n);
    for (int i = 0; n->kind == PLAN_LLM_PIPELINE && i < n->pipeline.nstages; i++)
        found = found || n->pipeline.stages[i].nfilters > 0;
    return found || filters_answers(n->left) || filters_answers(n->right);
}

/* Says what is unknown, since no model was asked. */
static void print_notes(buf *out, const exec_ctx *ctx, const shown *x) {
    if (x->sent == 0)
        buf_append_c(out, "no row needs a call: nothing would be sent\n");
    if (x->shortened > 0) {
        buf_append_count(out, x->shortened);
        buf_printf(out, " prompt%s too long for the context: fields are left out\n",
                   x->shortened == 1 ? " is" : "s are");
    }
    if (filters_answers(ctx->plan->root))
        buf_append_c(out, "assumed: all rows pass the filters on answers\n");
    if (x->waves)
        buf_append_c(out, "only the first wave of rows: more are asked about if too few pass\n");
    for (int i = 0; i < ctx->stmt->ncalls; i++) {
        const shown_call *c = &x->calls[ctx->stmt->calls[i]->number - 1];
        const char *as = c->made_up ? "shown as text of the expected length" : "taken as NULL";
        if (c->made_up || c->reads_answers)
            buf_printf(out, "LLM#%d has another call's answer as a field; it is %s\n",
                       ctx->stmt->calls[i]->number, as);
    }
}

void llm_show_print(const exec_ctx *ctx, buf *out) {
    const shown *x = shown_of(ctx);
    buf notes = {0};
    for (int i = 0; i < ctx->stmt->ncalls && ctx->show == SHOW_PROMPTS; i++) {
        const llm_call *call = ctx->stmt->calls[i];
        buf_append_c(out, i ? "\n" : "");
        print_call(out, ctx, call, &x->calls[call->number - 1]);
    }
    for (int i = 0; i < x->ntrees && ctx->show == SHOW_TREE; i++)
        print_tree(out, x, &x->trees[i]);
    print_notes(&notes, ctx, x);
    buf_append_c(out, notes.n && ctx->show == SHOW_PROMPTS ? "\n" : "");
    buf_append_str(out, buf_str(&notes));
    buf_free(&notes);
}
