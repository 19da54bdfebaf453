/*
 * bench_labels.c - … | bench_labels [--labels N] [--rows N] [--all N]: a choice among N labels, the
 * likeliest found best first, beside scoring all of them.
 *
 * Standard input has a row of text per line. Labels are 1 to 4 of its words. --all: how many of the
 * rows are also answered by scoring all labels (all, unless given); these answers and probabilities
 * must be equal to the bit. Prints tokens of labels and of prompts, passes and CPU seconds per row,
 * and the ratios. The model: KVASIR_MODEL, else the default one.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/guide_int.h"
#include "storage/containers.h"

enum { LABEL_BYTES = 120, MOST_WORDS = 4 };

typedef struct answer {
    int choice;
    double prob;
} answer;

typedef struct measured {
    double seconds; /* CPU */
    llm_figures figures;
} measured;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

BASE_NORETURN static void die(const char *message) {
    fprintf(stderr, "bench_labels: %s\n", message);
    exit(2);
}

/* ---- rows and labels ------------------------------------------------------------------------- */

/* Texts, each once. */
typedef struct texts {
    str *items;
    size_t n, cap;
    hash_index index;
} texts;

static bool texts_add(texts *t, arena *mem, str text) {
    uint64_t hash = hash64(text.p, text.n, 0);
    for (hash_slot *s = hash_index_first(&t->index, hash); s; s = hash_index_next(&t->index, s))
        if (str_equal(t->items[s->item], text))
            return false;
    hash_index_add(&t->index, hash, (uint32_t)t->n);
    ARRAY_PUSH(t->items, t->n, t->cap, str_copy(mem, text));
    return true;
}

static void words_add(texts *words, arena *mem, str line) {
    for (size_t i = 0; i < line.n;) {
        size_t end = i;
        while (end < line.n && isalpha((unsigned char)line.p[end]))
            end++;
        if (end - i >= 3)
            texts_add(words, mem, (str){line.p + i, end - i});
        i = end + 1;
    }
}

static void rows_read(texts *rows, size_t most, texts *words, arena *mem) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        str text = {line, (size_t)n - (line[n - 1] == '\n')};
        words_add(words, mem, text);
        if (rows->n < most && text.n > 20 && utf8_valid(text))
            texts_add(rows, mem, text);
    }
    free(line);
}

static void labels_make(texts *labels, size_t count, const texts *words, arena *mem) {
    if (words->n < 100)
        die("standard input has too few words");
    for (uint64_t seed = 1; labels->n < count; seed++) {
        char text[LABEL_BYTES];
        size_t n = 0;
        for (uint64_t k = 0, parts = 1 + hash_mix(seed, 0) % MOST_WORDS; k < parts; k++) {
            str word = words->items[hash_mix(seed, 1 + k) % words->n];
            int room = (int)BASE_MIN(word.n, (size_t)20);
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s", k > 0 ? " " : "", room,
                                  word.p);
        }
        texts_add(labels, mem, (str){text, n});
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void submit(llm_session *s, llm_engine *engine, llm_guide *guide, str row, int at,
                   bool all_probs) {
    buf text = {0};
    err e = {0};
    buf_printf(&text, "text: %.*s\n", (int)row.n, row.p);
    llm_span *spans[] = {llm_span_new(engine, LLM_SPAN_TEMPLATE, STR("What is this about?\n\n")),
                         llm_span_new(engine, LLM_SPAN_VALUE, buf_str(&text)),
                         llm_span_new(engine, LLM_SPAN_TEMPLATE, STR("answer:"))};
    llm_request q = {.tag = (uint64_t)at,
                     .spans = spans,
                     .nspans = BASE_COUNT(spans),
                     .guide = guide,
                     .all_probs = all_probs,
                     .after = llm_engine_template(engine, LLM_FORMAT_COMPLETION)};
    if (llm_submit(s, &q, &e) != 0)
        die(e.message);
    for (size_t i = 0; i < BASE_COUNT(spans); i++)
        llm_span_release(spans[i]);
    buf_free(&text);
}

static measured run(llm_engine *engine, llm_guide *guide, const texts *rows, size_t nrows,
                    bool all_probs, answer *out) {
    err e = {0};
    llm_session *s;
    llm_session_options options = {0};
    if (llm_session_new(engine, &options, &s, &e) != 0)
        die(e.message);
    double start = cpu_seconds();
    for (size_t i = 0; i < nrows; i++)
        submit(s, engine, guide, rows->items[i], (int)i, all_probs);
    for (bool idle = false; !idle;) {
        llm_event events[64];
        int count;
        if (llm_step(s, events, 64, &count, &idle, &e) != 0)
            die(e.message);
        for (int i = 0; i < count; i++)
            out[events[i].tag] = (answer){events[i].choice, events[i].prob};
    }
    measured m = {.seconds = cpu_seconds() - start};
    llm_session_figures(s, &m.figures);
    llm_session_free(s);
    return m;
}

static void print(const char *what, const measured *m, size_t rows) {
    double n = (double)rows;
    printf("%-12s %6zu rows: per row %9.1f tokens of labels, %6.1f of the prompt, %.4f CPU s; %llu "
           "passes\n",
           what, rows, (double)m->figures.choice_tokens / n, (double)m->figures.computed_tokens / n,
           m->seconds / n, (unsigned long long)m->figures.passes);
}

static llm_engine *engine_open(void) {
    char path[4096];
    const char *model = getenv("KVASIR_MODEL"), *data = getenv("XDG_DATA_HOME"),
               *home = getenv("HOME");
    const char *file = "kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (model && *model)
        snprintf(path, sizeof path, "%s", model);
    else if (data && *data)
        snprintf(path, sizeof path, "%s/%s", data, file);
    else
        snprintf(path, sizeof path, "%s/.local/share/%s", home ? home : "", file);
    err e = {0};
    llm_engine *engine;
    llm_engine_options options = {.path = path, .load_now = true};
    if (llm_engine_open(&options, &engine, &e) != 0)
        die(e.message);
    return engine;
}

int main(int argc, char **argv) {
    size_t nlabels = 1000, nrows = 200, all = SIZE_MAX;
    for (int i = 1; i + 1 < argc; i += 2) {
        size_t *to = strcmp(argv[i], "--labels") == 0 ? &nlabels
                     : strcmp(argv[i], "--rows") == 0 ? &nrows
                     : strcmp(argv[i], "--all") == 0  ? &all
                                                      : NULL;
        if (!to)
            die("options: --labels N --rows N --all N");
        *to = (size_t)strtoull(argv[i + 1], NULL, 10);
    }
    arena *mem = arena_new();
    texts rows = {0}, words = {0}, labels = {0};
    rows_read(&rows, nrows, &words, mem);
    labels_make(&labels, nlabels, &words, mem);
    llm_engine *engine = engine_open();
    err e = {0};
    double start = cpu_seconds();
    llm_guide *guide = llm_guide_new(engine, LLM_GUIDE_CHOICE, labels.items, (int)labels.n,
                                     llm_engine_template(engine, LLM_FORMAT_COMPLETION), &e);
    if (!guide)
        die(e.message);
    printf("%zu labels: %d branches, %d tokens in all, %d expected; guide made in %.3f CPU s\n",
           labels.n, guide->nbranches, guide->all_tokens, guide->likely_tokens,
           cpu_seconds() - start);
    all = BASE_MIN(all, rows.n);
    answer *best = mem_zalloc(sizeof *best * (rows.n + 1)),
           *scored = mem_zalloc(sizeof *scored * (rows.n + 1));
    measured first = run(engine, guide, &rows, rows.n, false, best);
    print("best first", &first, rows.n);
    if (all > 0) {
        measured every = run(engine, guide, &rows, all, true, scored);
        print("all scored", &every, all);
        for (size_t i = 0; i < all; i++)
            if (best[i].choice != scored[i].choice ||
                memcmp(&best[i].prob, &scored[i].prob, sizeof(double)) != 0)
                die("best first gave another answer or probability");
        double share = (double)all / (double)rows.n;
        printf("ratio        tokens of labels %.4f, CPU seconds %.3f; equal answers and "
               "probabilities\n",
               (double)first.figures.choice_tokens * share / (double)every.figures.choice_tokens,
               first.seconds * share / every.seconds);
    }
    llm_guide_release(guide);
    llm_engine_close(engine);
    texts *sets[] = {&rows, &words, &labels};
    for (size_t i = 0; i < BASE_COUNT(sets); i++) {
        hash_index_free(&sets[i]->index);
        free(sets[i]->items);
    }
    arena_free(mem);
    free(best);
    free(scored);
    return 0;
}
