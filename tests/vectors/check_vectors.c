/*
 * check_vectors.c - check_vectors TOKENS.jsonl GREEDY.jsonl [f32|bf16|int8|int8x2]
 * [kv-f32|kv-bf16|kv-int8] [cpu|cuda:0]:
 * the engine against frozen vectors of another engine.
 *
 * TOKENS: {"text", "ids"} a line; whole-string tokenization must be equal. GREEDY: {"ids", "steps":
 * [{"id", "top":
 * [[id, log-probability] x 10]}]}: fed the vector's own tokens, the mean KL over the ten listed
 * tokens (both sides renormalised over them) must be below 0.001, and the likeliest token equal in
 * 98 % of the steps whose reference margin is over 0.05 nat (KV in int8: 0.003 and
 * 97 %). The model: KVASIR_MODEL, else the
 * default one. Exits 0 at the gate, 1 below, 2 on errors, 77 without the
 * model or the vectors.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/llm.h"

static const double MARGIN = 0.05;
enum { TOP = 10 };

typedef struct sums {
    int tokens_equal, tokens_total, steps, clear_steps, top1;
    double kl;
} sums;

static llm_token *ids_of(const cJSON *array, size_t *count) {
    *count = (size_t)cJSON_GetArraySize(array);
    llm_token *ids = mem_alloc(sizeof *ids * (*count + 1));
    size_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        ids[n++] = item->valueint;
    }
    return ids;
}

/* cJSON ends a string at a NUL that it holds (a text of the vectors does): the text goes in with
 * \u0000 written as a private mark and comes out with its NULs. */
static const char NUL_ESCAPE[] = "\\u0000", NUL_MARK[] = "\\uf8ff";

static cJSON *parse_with_nuls(char *line) {
    for (char *at = line; (at = strstr(at, NUL_ESCAPE)) != NULL; at += sizeof NUL_MARK - 1)
        memcpy(at, NUL_MARK, sizeof NUL_MARK - 1);
    return cJSON_Parse(line);
}

static str text_with_nuls(char *text) {
    static const char mark[] = "\xef\xa3\xbf";
    size_t n = strlen(text), out = 0;
    for (size_t i = 0; i < n; out++) {
        bool nul = i + 3 <= n && memcmp(text + i, mark, 3) == 0;
        text[out] = nul ? '\0' : text[i];
        i += nul ? 3 : 1;
    }
    return (str){text, out};
}

static void tokens_line(const llm_engine *engine, const cJSON *line, sums *s) {
    char *text = cJSON_GetObjectItem(line, "text")->valuestring;
    size_t want_count, count;
    llm_token *want = ids_of(cJSON_GetObjectItem(line, "ids"), &want_count);
    llm_token *got = llm_tokenize(engine, text_with_nuls(text), false, false, &count);
    bool equal = count == want_count && memcmp(got, want, count * sizeof *got) == 0;
    s->tokens_total++;
    s->tokens_equal += equal;
    if (!equal)
        fprintf(stderr, "tokens differ: %s\n", text);
    free(want);
    free(got);
}

/* KL(reference || ours) over the listed tokens. */
static double step_kl(const double *ref, const double *ours) {
    double ref_sum = 0, our_sum = 0, kl = 0;
    for (int i = 0; i < TOP; i++) {
        ref_sum += exp(ref[i]);
        our_sum += exp(ours[i]);
    }
    for (int i = 0; i < TOP; i++) {
        double p = exp(ref[i]) / ref_sum, q = exp(ours[i]) / our_sum;
        kl += p * log(p / q);
    }
    return kl;
}

static void step_compare(const cJSON *step, const float *logprobs, int vocab, sums *s) {
    double ref[TOP], ours[TOP];
    int likeliest = -1;
    for (int i = 0; i < TOP; i++) {
        const cJSON *pair = cJSON_GetArrayItem(cJSON_GetObjectItem(step, "top"), i);
        int id = cJSON_GetArrayItem(pair, 0)->valueint;
        ref[i] = cJSON_GetArrayItem(pair, 1)->valuedouble;
        ours[i] = (double)logprobs[id];
        likeliest = i == 0 ? id : likeliest;
    }
    s->steps++;
    s->kl += step_kl(ref, ours);
    if (ref[0] - ref[1] > MARGIN) {
        int best = 0;
        for (int i = 1; i < vocab; i++)
            best = logprobs[i] > logprobs[best] ? i : best;
        s->clear_steps++;
        s->top1 += best == likeliest;
    }
}

static int greedy_line(llm_session *session, int vocab, const cJSON *line, sums *s, err *e) {
    size_t count;
    llm_token *ids = ids_of(cJSON_GetObjectItem(line, "ids"), &count);
    const cJSON *steps = cJSON_GetObjectItem(line, "steps"), *step;
    ids = mem_realloc(ids, sizeof *ids * (count + (size_t)cJSON_GetArraySize(steps) + 1));
    float *logprobs = mem_alloc(sizeof(float) * (size_t)vocab);
    int code = 0;
    cJSON_ArrayForEach(step, steps) {
        code = llm_logprobs(session, ids, count, logprobs, e);
        if (code != 0)
            break;
        step_compare(step, logprobs, vocab, s);
        ids[count++] = cJSON_GetObjectItem(step, "id")->valueint;
    }
    free(ids);
    free(logprobs);
    return code;
}

static int each_line(const char *path, llm_engine *engine, llm_session *session, sums *s, err *e) {
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return err_set(e, ERR_IO, "cannot open %s", path);
    char *text = NULL;
    size_t cap = 0;
    int code = 0;
    while (code == 0 && getline(&text, &cap, f) > 0) {
        cJSON *line = parse_with_nuls(text);
        if (line == NULL)
            code = err_set(e, ERR_CORRUPT, "%s: a line is no JSON", path);
        else if (cJSON_HasObjectItem(line, "steps"))
            code = greedy_line(session, llm_engine_info(engine)->vocab, line, s, e);
        else
            tokens_line(engine, line, s);
        cJSON_Delete(line);
    }
    free(text);
    fclose(f);
    return code;
}

static const char *model_path(char *out, size_t cap) {
    const char *model = getenv("KVASIR_MODEL"), *data = getenv("XDG_DATA_HOME"),
               *home = getenv("HOME");
    if (model != NULL)
        return model;
    const char *file = "kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (data != NULL && data[0] != '\0')
        snprintf(out, cap, "%s/%s", data, file);
    else
        snprintf(out, cap, "%s/.local/share/%s", home != NULL ? home : "", file);
    return out;
}

/* false: no such word. */
static bool option_read(const char *word, llm_engine_options *o) {
    static const struct {
        const char *word;
        llm_kv_dtype dtype;
    } dtypes[] = {{"kv-bf16", LLM_KV_BF16}, {"kv-f32", LLM_KV_F32}, {"kv-int8", LLM_KV_INT8}};
    bool known = false;
    for (llm_precision p = LLM_PRECISION_AUTO; p < LLM_PRECISIONS; p++) {
        if (strcmp(word, llm_precision_name(p)) == 0) {
            o->precision = p;
            known = true;
        }
    }
    for (size_t i = 0; i < BASE_COUNT(dtypes); i++) {
        if (strcmp(word, dtypes[i].word) == 0) {
            o->kv_dtype = dtypes[i].dtype;
            known = true;
        }
    }
    if (strcmp(word, "cpu") == 0 || strncmp(word, "cuda", 4) == 0) {
        o->device = word;
        known = true;
    }
    return known;
}

int main(int argc, char **argv) {
    char path[4096];
    llm_engine_options options = {.path = model_path(path, sizeof path), .device = "cpu"};
    bool understood = argc >= 3;
    for (int i = 3; i < argc; i++)
        understood = option_read(argv[i], &options) && understood;
    if (!understood) {
        fprintf(stderr,
                "usage: check_vectors TOKENS.jsonl GREEDY.jsonl [auto|f32|bf16|int8|int8x2] "
                "[kv-bf16|kv-f32|kv-int8] [cpu|cuda:0]\n");
        return 2;
    }
    bool int8 = options.kv_dtype == LLM_KV_INT8;
    double kl_gate = int8 ? 0.003 : 0.001, top1_gate = int8 ? 0.97 : 0.98;
    err e = {0};
    llm_engine *engine = NULL;
    llm_session *session = NULL;
    llm_session_options session_options = {0};
    sums s = {0};
    const char *needed[] = {options.path, argv[1], argv[2]};
    for (size_t i = 0; i < BASE_COUNT(needed); i++)
        if (access(needed[i], R_OK) != 0) {
            printf("check_vectors: skipped: %s is absent\n", needed[i]);
            return 77;
        }
    int code = llm_engine_open(&options, &engine, &e);
    if (code == ERR_UNSUPPORTED && options.precision > LLM_F32) {
        printf("check_vectors: skipped: %s\n", e.message);
        return 77;
    }
    code = code != 0 ? code : llm_session_new(engine, &session_options, &session, &e);
    code = code != 0 ? code : each_line(argv[1], engine, session, &s, &e);
    code = code != 0 ? code : each_line(argv[2], engine, session, &s, &e);
    bool pass = false;
    if (code != 0) {
        fprintf(stderr, "check_vectors: %s\n", e.message);
    } else {
        double kl = s.kl / BASE_MAX(s.steps, 1), top1 = (double)s.top1 / BASE_MAX(s.clear_steps, 1);
        const llm_model_info *info = llm_engine_info(engine);
        printf("tokens_equal=%d/%d kl_mean=%.6f top1=%.4f\n", s.tokens_equal, s.tokens_total, kl,
               top1);
        fprintf(stderr, "%d steps, %d clear; %s, %s; loaded in %.0f ms\n", s.steps, s.clear_steps,
                info->device, info->precision, info->load_ms);
        pass = s.tokens_equal == s.tokens_total && s.steps > 0 && kl < kl_gate && top1 >= top1_gate;
    }
    llm_session_free(session);
    llm_engine_close(engine);
    return code != 0 ? 2 : pass ? 0 : 1;
}
