/*
 * prompt.c - the text of a call's prompts: template, instruction, labels, examples, and one line per
 * field.
 *
 *   completion, instruction first          data first
 *     Is the review positive?\n              <before>
 *     \nreview: …\nanswer: yes\n             review: …\n
 *     \nreview: …\nsynopsis: …\nanswer:      \nIs the review positive?\nanswer:
 *
 * A call that goes on from another one's answer has that one's prompt, then " yes\n", then "\n",
 * its own instruction, its own fields, "answer:"; in a chat a second turn.
 *
 *   field mood of a STRUCT
 *     Read the review\n
 *     \nreview: …\nmood: positive\nstars: 4\n
 *     \nreview: …\nmood:
 *
 * Each text of contexts => is a line of the field context:
 *     \ncontext: …\ncontext: …\nquestion: …\nanswer:
 *
 * The labels of a call, a line each, stand before the examples in both layouts.
 *
 * Invariant: only this file and the engine's templates start a line of a prompt. A line break
 * inside a cell becomes a space, and values are tokenized as plain text, so a cell can forge
 * neither a line nor a control token. Each part is tokenized by itself, so that equal parts are
 * equal tokens; the space before a value and the line break after it belong to the value.
 */
#include <stdlib.h>
#include <string.h>

#include "llm_int.h"
#include "storage/containers.h"

void prompt_append_cell(buf *out, str cell) {
    for (size_t i = 0; i < cell.n; i++) {
        unsigned char c = (unsigned char)cell.p[i];
        if (c == '\r' && i + 1 < cell.n && cell.p[i + 1] == '\n')
            continue;
        if (c >= 0x0a && c <= 0x0d) {
            buf_append_char(out, ' ');
        } else if (c == 0xc2 && i + 1 < cell.n && (unsigned char)cell.p[i + 1] == 0x85) {
            buf_append_char(out, ' ');
            i++;
        } else if (c == 0xe2 && i + 2 < cell.n && (unsigned char)cell.p[i + 1] == 0x80 &&
                   ((unsigned char)cell.p[i + 2] == 0xa8 || (unsigned char)cell.p[i + 2] == 0xa9)) {
            buf_append_char(out, ' ');
            i += 2;
        } else {
            buf_append_char(out, cell.p[i]);
        }
    }
}

/* Makes a span of before, text and after, in `mem` or, if `mem` is NULL, on the heap. `cell`: line
 * breaks in `text` become spaces. */
static llm_span *span_printf(llm_engine *engine, llm_span_kind kind, const char *before, str text,
                             const char *after, bool cell, arena *mem) {
    buf b = {0};
    buf_append_c(&b, before);
    if (cell)
        prompt_append_cell(&b, text);
    else
        buf_append_str(&b, text);
    buf_append_c(&b, after);
    llm_span *span = mem ? llm_span_new_in(engine, kind, buf_str(&b), mem)
                         : llm_span_new(engine, kind, buf_str(&b));
    buf_free(&b);
    return span;
}

static size_t spans_tokens(llm_span *const *spans, int n) {
    size_t total = 0, count;
    for (int i = 0; i < n; i++) {
        llm_span_tokens(spans[i], &count);
        total += count;
    }
    return total;
}

/* ---- constraint ------------------------------------------------------------------------------ */

/* With prompt_format = 'auto', TEXT without examples is asked in the model's chat format: the default
 * model writes better there, and chooses better in completion format (tests/bench/README.md). All
 * fields of a STRUCT have one format, since their prompts begin alike. */
static llm_format wanted_format(const settings *s, const llm_call *call) {
    static const llm_format formats[] = {[FORMAT_AUTO] = LLM_FORMAT_AUTO,
                                         [FORMAT_CHAT] = LLM_FORMAT_CHAT,
                                         [FORMAT_COMPLETION] = LLM_FORMAT_COMPLETION};
    BASE_COVERS(formats, FORMATS);
    bool writes = call->returns == RETURNS_TEXT && call->examples == NULL && call->cue.n == 0;
    return s->prompt_format == FORMAT_AUTO && writes ? LLM_FORMAT_CHAT : formats[s->prompt_format];
}

/* Appends the line before a call's answer. */
static void append_answer_line(const llm_template *frame, const llm_call *call, buf *out) {
    if (call->cue.n > 0) {
        prompt_append_cell(out, call->cue);
        buf_append_char(out, ':');
    } else {
        buf_append_str(out, frame->after);
    }
}

static const llm_template *frame_of(const exec_ctx *ctx, const llm_call *call, llm_engine *engine) {
    return llm_engine_template(engine, wanted_format(ctx->settings, llm_call_root(call)));
}

/* Returns the template of a call. That of a STRUCT's field ends with the cue; the answer ends with
 * its line, also in a chat: the model would go on with the next field. */
static const llm_template *template_of(const exec_ctx *ctx, const llm_call *call,
                                       llm_engine *engine) {
    const llm_template *frame = frame_of(ctx, call, engine);
    if (call->cue.n == 0)
        return frame;
    buf cue = {0};
    append_answer_line(frame, call, &cue);
    llm_template *own = ARENA_NEW(ctx->llm->mem, llm_template);
    *own = (llm_template){.name = frame->name,
                          .before = frame->before,
                          .after = str_copy(ctx->llm->mem, buf_str(&cue)),
                          .answer_lead = STR(" ")};
    buf_free(&cue);
    return own;
}

int call_guide(const exec_ctx *ctx, const llm_call *call, llm_engine *engine, llm_guide **out,
               err *e) {
    llm_guide **made = &ctx->llm->guides[call->number - 1];
    llm_guide_kind kind = LLM_GUIDE_CHOICE;
    *out = NULL;
    if (call->returns == RETURNS_TEXT || call->returns == RETURNS_VECTOR)
        return 0;
    if (call->nliterals == 0)
        kind = call->returns == RETURNS_REAL ? LLM_GUIDE_REAL : LLM_GUIDE_INTEGER;
    if (*made == NULL)
        *made = llm_guide_new(engine, kind, call->literals, call->nliterals,
                              template_of(ctx, call, engine), e);
    *out = *made;
    return *out ? 0 : (e->code ? (int)e->code : ERR_MODEL);
}

bool call_scores_all(const llm_call *call, const llm_guide *guide) {
    return call->all_probs || llm_call_is_calibrated(call) || llm_guide_is_small(guide);
}

/* ---- prefix and values ----------------------------------------------------------------------- */

/* Maximum length of prompt_part.before (template, instruction, labels, examples, blank line) and of
 * prompt_part.after. */
enum { PART_SPANS = 5 };

static void add_before(prompt_part *part, llm_span *span) {
    part->before[part->nbefore++] = span;
}

static void add_after(prompt_part *part, llm_span *span) {
    part->after[part->nafter++] = span;
}

static llm_span *template_span(const prompt *p, str text) {
    return llm_span_new(p->engine, LLM_SPAN_TEMPLATE, text);
}

static llm_span *instruction_span(const prompt *p, const char *before, str text) {
    return span_printf(p->engine, LLM_SPAN_INSTRUCTION, before, text, "\n", false, NULL);
}

/* Adds a line for each label: "Dress: a one-piece garment", or the label alone. */
static void add_labels(const prompt *p, prompt_part *part, const llm_labels *labels) {
    buf b = {0};
    for (int i = 0; i < labels->n; i++) {
        prompt_append_cell(&b, labels->labels[i]);
        if (labels->descriptions && labels->descriptions[i].n > 0) {
            buf_append_c(&b, ": ");
            prompt_append_cell(&b, labels->descriptions[i]);
        }
        buf_append_char(&b, '\n');
    }
    add_before(part, llm_span_new(p->engine, LLM_SPAN_INSTRUCTION, buf_str(&b)));
    buf_free(&b);
}

/* Makes the spans around a part's fields. */
static void build_part(prompt *p, prompt_part *part) {
    const llm_call *call = part->call;
    bool goes_on = part > p->parts, data_first = p->data_first && !goes_on;
    part->nbefore = part->nafter = 0;
    if (call->returns == RETURNS_VECTOR) /* the prompt is the text */
        return;
    if (!call->same_struct) {
        add_before(part, template_span(p, goes_on ? p->frame->turn : p->frame->before));
        if (!data_first)
            add_before(part, instruction_span(p, "", call->instruction));
        else
            add_after(part, instruction_span(p, "\n", call->instruction));
        if (call->shown_labels)
            add_labels(p, part, call->shown_labels);
        if (goes_on && part->end > part->first)
            add_before(part, instruction_span(p, "", STR("")));
        if (call->cue.n > 0 && p->frame->chat)
            add_after(part, template_span(p, p->frame->after));
    }
    buf line = {0};
    append_answer_line(p->frame, call, &line);
    add_after(part,
              llm_span_new(p->engine, call->cue.n > 0 ? LLM_SPAN_INSTRUCTION : LLM_SPAN_TEMPLATE,
                           buf_str(&line)));
    buf_free(&line);
}

static void build_parts(prompt *p) {
    const llm_call *call = p->call;
    for (p->nparts = 1; call->after; call = call->after)
        p->nparts++;
    p->parts = ARENA_ARRAY(p->mem, prompt_part, p->nparts);
    call = p->call;
    for (int i = p->nparts; i-- > 0; call = call->after) {
        p->parts[i] = (prompt_part){.call = call,
                                    .first = call->after ? call->after->nfields + 1 : 0,
                                    .end = call->nfields,
                                    .before = ARENA_ARRAY(p->mem, llm_span *, PART_SPANS),
                                    .after = ARENA_ARRAY(p->mem, llm_span *, PART_SPANS)};
        build_part(p, &p->parts[i]);
    }
}

static void release_part(const prompt_part *part) {
    for (int i = 0; i < part->nbefore; i++)
        llm_span_release(part->before[i]);
    for (int i = 0; i < part->nafter; i++)
        llm_span_release(part->after[i]);
}

void prompt_set_data_first(prompt *p) {
    if (p->data_first)
        return;
    release_part(&p->parts[0]);
    p->data_first = p->shares_row = true;
    build_part(p, &p->parts[0]);
}

/* Makes the span of a list of texts, which are lines of `text`: " first\ncontext: second\n". Each
 * text is tokenized by itself, so that it has the same tokens at any place. */
static llm_span *list_span(const prompt *p, int field, str text, arena *mem) {
    int n = 0, cap = 0;
    llm_span **parts = NULL;
    while (text.n > 0) {
        str line = str_split_next(&text, '\n');
        if (n > 0)
            ARRAY_PUSH(parts, n, cap, llm_span_retain(p->names[field]));
        llm_span *one = span_printf(p->engine, LLM_SPAN_VALUE, " ", line, "\n", true, NULL);
        ARRAY_PUSH(parts, n, cap, one);
    }
    llm_span *all = llm_span_join(LLM_SPAN_VALUE, parts, n, mem);
    for (int i = 0; i < n; i++)
        llm_span_release(parts[i]);
    free(parts);
    return all;
}

/* Makes the span of a field's value. The answer to an earlier part ends with the line, but in a chat
 * with the turn. */
static llm_span *value_span(const prompt *p, int field, str text, arena *mem) {
    for (int i = 0; i + 1 < p->nparts; i++) {
        bool lines = !p->frame->chat || p->parts[i + 1].call->same_struct;
        const char *lead = p->parts[i].call->cue.n > 0 ? " " : p->frame->said_lead.p;
        if (p->parts[i].end == field)
            return span_printf(p->engine, LLM_SPAN_INSTRUCTION, lead, text, lines ? "\n" : "", true,
                               mem);
    }
    if (p->call->returns == RETURNS_VECTOR)
        return llm_span_new_in(p->engine, LLM_SPAN_VALUE, text, mem);
    if (p->call->field_lists[field])
        return list_span(p, field, text, mem);
    return span_printf(p->engine, LLM_SPAN_VALUE, " ", text, "\n", true, mem);
}

static int values_go_on(const exec_ctx *ctx, err *e) {
    if (check_cancel(ctx->cancel, e))
        return ERR_CANCELLED;
    return arena_full_error(ctx->llm->kept, e);
}

static void take_values(prompt *p, const prompt *from) {
    p->names = from->names;
    p->values = from->values;
    p->nvalues = from->nvalues;
    p->borrows = true;
}

/* Makes the spans of names and values. The spans of values are in memory that spills, since they
 * take more memory than the cells. */
static int build_values(prompt *p, const llm_inputs *in, const exec_ctx *ctx, err *e) {
    int status = 0;
    p->names = ARENA_ARRAY(p->mem, llm_span *, p->nfields + 1);
    p->values = ARENA_ARRAY(p->mem, llm_span **, p->nfields + 1);
    p->nvalues = ARENA_ARRAY(p->mem, uint32_t, p->nfields + 1);
    for (int f = 0; f < p->nfields; f++)
        p->names[f] =
            span_printf(p->engine, LLM_SPAN_NAME, "", p->call->field_names[f], ":", true, NULL);
    for (int f = 0; f < p->nfields && status == 0; f++) {
        const field_values *v = &in->fields[f];
        p->values[f] = ARENA_ARRAY(p->mem, llm_span *, v->count + 1);
        p->nvalues[f] = v->count;
        for (uint32_t i = 0; i < v->count && status == 0 && !v->late; i++) {
            p->values[f][i] = value_span(p, f, v->text[i], ctx->llm->kept);
            if (i % BATCH_ROWS == 0 || i + 1 == v->count)
                status = values_go_on(ctx, e);
        }
    }
    return status;
}

void prompt_add_value(prompt *p, const llm_inputs *in, int field, uint32_t id, arena *mem) {
    p->values[field][id] = value_span(p, field, in->fields[field].text[id], mem);
}

int prompt_new(const prompt_spec *spec, const llm_inputs *in, prompt **out, err *e) {
    prompt *p = mem_zalloc(sizeof *p);
    *out = p;
    p->mem = arena_new_in(spec->ctx->space);
    p->call = spec->call;
    p->engine = spec->engine;
    p->nfields = spec->call->nfields;
    p->nsolved = llm_call_root(spec->call)->nfields;
    p->data_first = spec->data_first && llm_call_root(spec->call)->cue.n == 0;
    p->shares_row = (p->data_first && !spec->call->after) || spec->call->cue.n > 0;
    p->frame = frame_of(spec->ctx, spec->call, spec->engine);
    p->tmpl = template_of(spec->ctx, spec->call, spec->engine);
    int status = call_guide(spec->ctx, p->call, p->engine, &p->guide, e);
    if (status)
        return status;
    static const llm_blend_rule rules[] = {[BLEND_EDGES] = LLM_BLEND_EDGES,
                                           [BLEND_DEVIATION] = LLM_BLEND_DEVIATION,
                                           [BLEND_QUESTION] = LLM_BLEND_QUESTION};
    BASE_COVERS(rules, BLENDS);
    p->blends = p->call->blends && llm_engine_info(p->engine)->blends;
    p->blend = (llm_blend){.share = p->call->blend_share, .rule = rules[p->call->blend_rule]};
    p->all_probs = p->guide == NULL || call_scores_all(p->call, p->guide);
    build_parts(p);
    if (!spec->like)
        return build_values(p, in, spec->ctx, e);
    take_values(p, spec->like);
    return 0;
}

/* The blank line before the row is a span of its own: if "\n\n" were tokenized together, it might
 * be one token, not two. */
void prompt_finish_prefix(prompt *p, const prompt_example *examples, int count,
                          const uint8_t *order) {
    buf b = {0};
    const llm_call *call = p->parts[0].call;
    /* a line stands before the examples */
    bool begun = !p->data_first || call->shown_labels;
    for (int i = 0; i < count; i++) {
        if (begun || i > 0)
            buf_append_char(&b, '\n');
        for (int k = 0; k < p->nfields; k++) {
            int f = order ? order[k] : k;
            if (f >= call->nfields || !examples[i].fields[f].p)
                continue;
            prompt_append_cell(&b, call->field_names[f]);
            buf_append_c(&b, ": ");
            prompt_append_cell(&b, examples[i].fields[f]);
            buf_append_char(&b, '\n');
        }
        if (p->data_first) {
            buf_append_char(&b, '\n');
            buf_append_str(&b, call->instruction);
            buf_append_char(&b, '\n');
        }
        for (int k = 0; k < call->nexample_answers; k++) {
            if (!examples[i].answers[k].p)
                continue;
            prompt_append_cell(&b, call->example_answers[k]);
            buf_append_c(&b, ": ");
            prompt_append_cell(&b, examples[i].answers[k]);
            buf_append_char(&b, '\n');
        }
    }
    if (b.n)
        add_before(&p->parts[0], llm_span_new(p->engine, LLM_SPAN_EXAMPLE, buf_str(&b)));
    if (call->nfields > 0 && (begun || b.n) && call->returns != RETURNS_VECTOR)
        add_before(&p->parts[0], instruction_span(p, "", STR("")));
    buf_free(&b);
    p->head_tokens = spans_tokens(p->parts[0].before, p->parts[0].nbefore);
}

void prompt_free(prompt *p) {
    if (!p)
        return;
    for (int i = 0; i < p->nparts; i++)
        release_part(&p->parts[i]);
    for (int f = 0; p->names && !p->borrows && f < p->nfields; f++)
        llm_span_release(p->names[f]);
    arena_free(p->mem);
    free(p);
}

int prompt_max_spans(const prompt *p) {
    return 2 * PART_SPANS * p->nparts + 2 * p->nfields;
}

int prompt_named_field(const prompt *p, const llm_span *span) {
    for (int f = 0; f < p->nfields; f++)
        if (span == p->names[f])
            return f;
    return -1;
}

static int copy_spans(llm_span *const *from, int count, llm_span **out) {
    if (count > 0)
        memcpy(out, from, sizeof *out * (size_t)count);
    return count;
}

int prompt_spans(const prompt *p, const llm_inputs *in, uint32_t input, const uint8_t *order,
                 llm_span **out) {
    int n = 0;
    for (int i = 0; i < p->nparts; i++) {
        const prompt_part *part = &p->parts[i];
        n += copy_spans(part->before, part->nbefore, out + n);
        for (int k = 0; k < p->nfields; k++) {
            int f = i == 0 ? order[k] : k;
            if (f < part->first || f >= part->end || input_lacks(in, f, input))
                continue;
            if (p->call->returns != RETURNS_VECTOR)
                out[n++] = p->names[f];
            out[n++] = p->values[f][in->value[f][input]];
        }
        n += copy_spans(part->after, part->nafter, out + n);
        if (i + 1 < p->nparts) /* without this answer, the row has no input */
            out[n++] = p->values[part->end][in->value[part->end][input]];
    }
    return n;
}
