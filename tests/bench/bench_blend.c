/*
 * bench_blend.c - bench_blend [--data DIR] [--model FILE] [--prompts N]: what blending the KV of
 * contexts does to answers, compared with the exact prompts.
 *
 * Three workloads over real reviews and synopses:
 *
 *   judge     is this review positive or negative? with the film's synopsis among three, as retrieval
 *             finds them: contexts that the answer hardly needs
 *   sum up    are these four reviews of a film positive or negative? the answer is in all contexts
 *   look up   which studio made the film that the review is about? the answer is in one of three
 *
 * For each rule and share: the mean KL divergence of the blended distribution over the allowed
 * answers from the exact one, the share of equal answers, and that where the exact answer's lead in
 * probability is over .1. Beside them what users accept anyway: the contexts in reverse order, exact.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_data.h"
#include "gpu/llm.h"
#include "storage/containers.h"

enum { MOST_CONTEXTS = 4, SYNOPSIS_BYTES = 600, REVIEW_LEAST = 60 };

typedef struct question {
    str contexts[MOST_CONTEXTS];
    int ncontexts;
    str review; /* n = 0: the question is about the contexts */
    str literals[MOST_CONTEXTS];
    int nliterals;
} question;

typedef struct workload {
    const char *name, *instruction, *context;
    question *items;
    int n;
} workload;

typedef struct answer {
    int choice;
    double probs[MOST_CONTEXTS];
} answer;

BASE_NORETURN static void die(const char *message) {
    fprintf(stderr, "bench_blend: %s\n", message);
    exit(2);
}

/* ---- questions ------------------------------------------------------------------------------- */

static const bench_film *film_of(const bench_set *set, const bench_row *row) {
    for (int i = 0; i < set->nfilms; i++)
        if (str_equal(set->films[i].id, row->cells[CELL_MOVIE]))
            return &set->films[i];
    return NULL;
}

static str synopsis_of(const bench_film *film) {
    return (str){film->synopsis.p, utf8_fit(film->synopsis, SYNOPSIS_BYTES)};
}

/* Sets `out` to the film and two others, in a seeded order. */
static void three_films(const bench_set *set, const bench_film *film, uint64_t seed,
                        const bench_film **out) {
    int at = (int)(hash_mix(seed, 1) % 3), filled = 0;
    for (uint64_t k = 2; filled < 3; k++) {
        const bench_film *other = &set->films[hash_mix(seed, k) % (uint64_t)set->nfilms];
        bool again = other == film;
        for (int i = 0; i < filled; i++)
            again = again || other == out[i] || str_equal(other->studio, out[i]->studio);
        if (filled == at)
            out[filled++] = film;
        else if (!again && !str_equal(other->studio, film->studio))
            out[filled++] = other;
    }
}

static const str kinds[] = {{"positive", 8}, {"negative", 8}};

static bool make_judge(const bench_set *set, int row, arena *mem, question *out) {
    const bench_film *films[3], *film = film_of(set, &set->rows[row]);
    (void)mem;
    three_films(set, film, (uint64_t)row, films);
    out->ncontexts = 3;
    for (int i = 0; i < 3; i++)
        out->contexts[i] = synopsis_of(films[i]);
    out->review = set->rows[row].cells[CELL_REVIEW];
    out->nliterals = 2;
    memcpy(out->literals, kinds, sizeof kinds);
    return out->review.n >= REVIEW_LEAST;
}

static bool make_sum_up(const bench_set *set, int row, arena *mem, question *out) {
    (void)mem;
    for (int i = row; i < set->nrows && out->ncontexts < MOST_CONTEXTS; i++)
        if (str_equal(set->rows[i].cells[CELL_MOVIE], set->rows[row].cells[CELL_MOVIE]) &&
            set->rows[i].cells[CELL_REVIEW].n >= REVIEW_LEAST)
            out->contexts[out->ncontexts++] = set->rows[i].cells[CELL_REVIEW];
    out->nliterals = 2;
    memcpy(out->literals, kinds, sizeof kinds);
    return out->ncontexts == MOST_CONTEXTS;
}

static bool make_look_up(const bench_set *set, int row, arena *mem, question *out) {
    const bench_film *films[3], *film = film_of(set, &set->rows[row]);
    three_films(set, film, (uint64_t)row, films);
    out->ncontexts = out->nliterals = 3;
    for (int i = 0; i < 3; i++) {
        str synopsis = synopsis_of(films[i]);
        out->literals[i] = films[i]->studio;
        out->contexts[i] = str_from(arena_printf(mem, "made by %.*s. %.*s", (int)films[i]->studio.n,
                                                 films[i]->studio.p, (int)synopsis.n, synopsis.p));
    }
    out->review = set->rows[row].cells[CELL_REVIEW];
    return out->review.n >= REVIEW_LEAST && film->studio.n > 0;
}

static void fill(workload *w, int most, const bench_set *set, arena *mem,
                 bool (*make)(const bench_set *, int, arena *, question *)) {
    w->items = ARENA_ARRAY(mem, question, most);
    for (int row = 0; row < set->nrows && w->n < most; row++) {
        question q = {0};
        if (film_of(set, &set->rows[row]) != NULL && make(set, row, mem, &q))
            w->items[w->n++] = q;
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static llm_span *new_span(llm_engine *engine, llm_span_kind kind, arena *mem, const char *before,
                          str text, const char *after) {
    buf b = {0};
    buf_printf(&b, "%s%.*s%s", before, (int)text.n, text.p, after);
    llm_span *span = llm_span_new_in(engine, kind, buf_str(&b), mem);
    buf_free(&b);
    return span;
}

static void submit(llm_session *s, llm_engine *engine, const workload *w, int at, bool reverse,
                   const llm_blend *blend, arena *mem) {
    const question *q = &w->items[at];
    const llm_template *frame = llm_engine_template(engine, LLM_FORMAT_COMPLETION);
    llm_span *parts[2 * MOST_CONTEXTS], *spans[8];
    err e = {0};
    int nparts = 0, n = 0;
    for (int i = 0; i < q->ncontexts; i++) {
        if (i > 0)
            parts[nparts++] = new_span(engine, LLM_SPAN_NAME, mem, w->context, STR(""), ":");
        parts[nparts++] = new_span(engine, LLM_SPAN_VALUE, mem, " ",
                                   q->contexts[reverse ? q->ncontexts - 1 - i : i], "\n");
    }
    spans[n++] = new_span(engine, LLM_SPAN_TEMPLATE, mem, "", frame->before, "");
    spans[n++] = new_span(engine, LLM_SPAN_INSTRUCTION, mem, w->instruction, STR("\n\n"), "");
    spans[n++] = new_span(engine, LLM_SPAN_NAME, mem, w->context, STR(":"), "");
    spans[n++] = llm_span_join(LLM_SPAN_VALUE, parts, nparts, mem);
    if (q->review.n > 0) {
        spans[n++] = new_span(engine, LLM_SPAN_NAME, mem, "review:", STR(""), "");
        spans[n++] = new_span(engine, LLM_SPAN_VALUE, mem, " ", q->review, "\n");
    }
    spans[n++] = new_span(engine, LLM_SPAN_TEMPLATE, mem, "", frame->after, "");
    llm_guide *guide =
        llm_guide_new(engine, LLM_GUIDE_CHOICE, q->literals, q->nliterals, frame, &e);
    llm_request r = {.tag = (uint64_t)at,
                     .spans = spans,
                     .nspans = n,
                     .guide = guide,
                     .all_probs = true,
                     .after = frame,
                     .blend = blend};
    if (guide == NULL || llm_submit(s, &r, &e) != 0)
        die(e.message);
    llm_guide_release(guide);
}

static void ask(llm_engine *engine, const workload *w, bool reverse, const llm_blend *blend,
                answer *out) {
    err e = {0};
    llm_session *s;
    llm_session_options options = {0};
    arena *mem = arena_new();
    if (llm_session_new(engine, &options, &s, &e) != 0)
        die(e.message);
    for (int i = 0; i < w->n; i++)
        submit(s, engine, w, i, reverse, blend, mem);
    for (bool idle = false; !idle;) {
        llm_event events[64];
        int count;
        if (llm_step(s, events, 64, &count, &idle, &e) != 0)
            die(e.message);
        for (int i = 0; i < count; i++) {
            answer *a = &out[events[i].tag];
            a->choice = events[i].choice;
            memcpy(a->probs, events[i].probs,
                   sizeof *a->probs * (size_t)w->items[events[i].tag].nliterals);
        }
    }
    llm_session_free(s);
    arena_free(mem);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static double lead_of(const answer *a, int n) {
    double second = 0;
    for (int i = 0; i < n; i++)
        if (i != a->choice)
            second = fmax(second, a->probs[i]);
    return a->probs[a->choice] - second;
}

static void compare(const workload *w, const char *name, const answer *exact, const answer *other) {
    double kl = 0;
    int same = 0, clear = 0, clear_same = 0;
    for (int i = 0; i < w->n; i++) {
        int n = w->items[i].nliterals;
        bool equal = exact[i].choice == other[i].choice;
        for (int k = 0; k < n; k++)
            kl += exact[i].probs[k] *
                  log(fmax(exact[i].probs[k], 1e-12) / fmax(other[i].probs[k], 1e-12));
        same += equal;
        if (lead_of(&exact[i], n) > 0.1) {
            clear++;
            clear_same += equal;
        }
    }
    printf("%-8s %-22s %8.4f %7.3f %9.3f (%d)\n", w->name, name, kl / w->n, (double)same / w->n,
           (double)clear_same / (clear > 0 ? clear : 1), clear);
    fflush(stdout);
}

static void measure(llm_engine *engine, const workload *w) {
    static const char *const rules[] = {"edges", "deviation", "question"};
    static const double shares[] = {0.05, 0.10, 0.15, 0.30};
    BASE_COVERS(rules, LLM_BLEND_RULES);
    answer *exact = mem_zalloc(sizeof *exact * (size_t)w->n),
           *other = mem_zalloc(sizeof *other * (size_t)w->n);
    ask(engine, w, false, NULL, exact);
    ask(engine, w, true, NULL, other);
    compare(w, "exact, reverse order", exact, other);
    ask(engine, w, false, &(llm_blend){.share = 0, .rule = LLM_BLEND_EDGES}, other);
    compare(w, "nothing again", exact, other);
    for (int r = 0; r < LLM_BLEND_RULES; r++) {
        for (size_t k = 0; k < BASE_COUNT(shares); k++) {
            char name[40];
            snprintf(name, sizeof name, "%s, %.0f %%", rules[r], 100 * shares[k]);
            llm_blend how = {.share = shares[k], .rule = (llm_blend_rule)r};
            ask(engine, w, false, &how, other);
            compare(w, name, exact, other);
        }
    }
    free(exact);
    free(other);
}

int main(int argc, char **argv) {
    const char *data = "../shared/data", *home = getenv("HOME");
    char path[4096];
    int prompts = 100;
    snprintf(path, sizeof path, "%s/.local/share/kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf",
             home != NULL ? home : "");
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--data") == 0)
            data = argv[i + 1];
        else if (strcmp(argv[i], "--model") == 0)
            snprintf(path, sizeof path, "%s", argv[i + 1]);
        else if (strcmp(argv[i], "--prompts") == 0 && atoi(argv[i + 1]) > 0)
            prompts = atoi(argv[i + 1]);
        else
            die("usage: bench_blend [--data DIR] [--model FILE] [--prompts N]");
    err e = {0};
    llm_engine *engine;
    bench_set set;
    arena *mem = arena_new();
    bench_movies(data, 5000, &set);
    if (llm_engine_open(&(llm_engine_options){.path = path}, &engine, &e) != 0)
        die(e.message);
    if (!llm_engine_info(engine)->blends)
        die("this model's backend does not blend");
    workload loads[] = {
        {"judge", "Is the review of the film positive or negative?", "context", NULL, 0},
        {"sum up", "Are the reviews of the film positive or negative?", "review", NULL, 0},
        {"look up", "Which studio made the film that the review is about?", "film", NULL, 0}};
    fill(&loads[0], prompts, &set, mem, make_judge);
    fill(&loads[1], prompts, &set, mem, make_sum_up);
    fill(&loads[2], prompts, &set, mem, make_look_up);
    printf("%s, %s\n%-8s %-22s %8s %7s %14s\n", llm_engine_info(engine)->name,
           llm_engine_info(engine)->precision, "", "", "KL", "equal", "lead over .1");
    for (size_t i = 0; i < BASE_COUNT(loads); i++)
        measure(engine, &loads[i]);
    llm_engine_close(engine);
    bench_set_free(&set);
    arena_free(mem);
    return 0;
}
