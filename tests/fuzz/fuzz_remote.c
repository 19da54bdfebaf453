/*
 * fuzz_remote.c - any bytes as what a server sends: a body with its log-probabilities, headers, a
 * message to be shown, a URL. What is answered must be of its type, and no message has the key.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/guide_int.h"
#include "remote/dialect_int.h"
#include "remote/window_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_pieces(str text) {
    static const char key[] = "hunter22";
    buf shown = {0};
    endpoint at;
    err e = {0};
    arena *mem = arena_new();
    remote_mask(text, key, 200, &shown);
    if (shown.n > 0 && (strstr(shown.p, key) != NULL || !utf8_valid(buf_str(&shown))))
        abort();
    buf_free(&shown);
    if (endpoint_parse(text, mem, &at, &e) == 0 &&
        (strpbrk(at.base, "@?#\n \\") != NULL || strlen(at.origin) < 8))
        abort();
    double seconds = window_duration(text);
    if (!(seconds >= 0 || seconds == -1))
        abort();
    arena_free(mem);
}

#ifdef KVASIR_REMOTE
static void check_answer(const llm_guide *g, const reply *got) {
    int64_t i;
    double r, sum = 0;
    if (!isnan(got->prob) && !(got->prob >= 0 && got->prob <= 1))
        abort();
    for (int k = 0; got->probs != NULL && k < g->count; k++)
        sum += got->probs[k];
    if (got->probs != NULL && !(fabs(sum - 1) < 1e-6))
        abort();
    if (got->verdict != VERDICT_ANSWER || g == NULL)
        return;
    str text = got->text.n > 0 ? buf_str(&got->text) : STR("");
    if (g->kind == LLM_GUIDE_CHOICE ? got->choice < 0 || got->choice >= g->count
        : g->kind == LLM_GUIDE_REAL ? !parse_real(text, &r)
                                    : !parse_integer(text, &i))
        abort();
}

static void check_reply(uint8_t how, str body) {
    static const str literals[] = {{"yes", 3}, {"no", 2}, {"not sure", 8}};
    static const llm_token ids[] = {1, 2, 3};
    static const int statuses[] = {200, 200, 200, 400, 429, 500};
    static llm_engine *engine;
    static llm_guide *guides[3];
    err e = {0};
    if (engine == NULL) {
        llm_engine_options o = {.path = "http://127.0.0.1:9", .remote = STR("model=m\n")};
        if (llm_engine_open(&o, &engine, &e) != 0)
            abort();
        const llm_template *t = llm_engine_template(engine, LLM_FORMAT_AUTO);
        guides[0] = llm_guide_new(engine, LLM_GUIDE_CHOICE, literals, 3, t, &e);
        guides[1] = llm_guide_new(engine, LLM_GUIDE_INTEGER, NULL, 0, t, &e);
        guides[2] = llm_guide_new(engine, LLM_GUIDE_REAL, NULL, 0, t, &e);
    }
    way w = (way)(how % WAYS);
    bool likely = w == WAY_SCORE || w == WAY_TOP;
    llm_guide *g = w == WAY_TEXT ? NULL : guides[likely ? 0 : how / WAYS % 3];
    request r = {.guide = g, .max_tokens = 8};
    question q = {.engine = engine, .r = &r, .way = w, .ids = ids};
    reply got;
    dialect_read(&q, statuses[how % BASE_COUNT(statuses)], body, &got);
    check_answer(g, &got);
    reply_free(&got);
    dialect_read_tokenize(body);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    str text = {(const char *)data + 1, size - 1};
    check_pieces(text);
#ifdef KVASIR_REMOTE
    for (int w = 0; w < WAYS; w++)
        check_reply((uint8_t)(data[0] + w), text);
#endif
    return 0;
}
