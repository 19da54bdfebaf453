/*
 * engine.c - opens and closes engines: the choice of the backend, and the facts about an engine.
 *
 * Owns what all backends share: file, tokenizer, template. A backend owns weights and kernels.
 * Invariant: an engine returned by llm_engine_open is complete and does not change.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_int.h"

/* Default size of KV memory; a backend with memory of its own sets another default. */
static const size_t KV_DEFAULT_BYTES = (size_t)1 << 30;

static int usable_threads(const llm_engine_options *options) {
    if (options->threads > 0)
        return BASE_MIN(options->threads, 256);
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? BASE_MAX(CPU_COUNT(&set), 1) : 1;
}

/* Lists the backends in this build that a device name selects, best first. Returns their number. */
static int backends_for(const llm_engine_options *options, const llm_backend *out[2]) {
    const char *device = options->device != NULL ? options->device : "auto";
    int n = 0;
#ifdef KVASIR_TEST_MODELS
    if (strncmp(options->path, "test:hash", 9) == 0) {
        out[0] = &backend_test;
        return 1;
    }
#endif
#ifdef KVASIR_REMOTE
    if (llm_is_remote(str_from(options->path))) {
        out[0] = &backend_remote;
        return 1;
    }
#endif
    bool any = strcmp(device, "auto") == 0;
    (void)any;
#ifdef KVASIR_CUDA
    if (any || strncmp(device, "cuda", 4) == 0)
        out[n++] = &backend_cuda;
#endif
#ifdef KVASIR_CPU
    if (any || strcmp(device, "cpu") == 0)
        out[n++] = &backend_cpu;
#endif
    return n;
}

/* Returns the token that ends an answer in completion format: the last token of "\n", or -1. */
static llm_token newline_token(const llm_engine *engine) {
    llm_token *tokens = NULL;
    size_t count = 0, cap = 0;
    engine_encode(engine, STR("\n"), false, false, &tokens, &count, &cap);
    llm_token id = count > 0 ? tokens[count - 1] : -1;
    free(tokens);
    return id;
}

/* Sets *again if opening failed because the side file's facts were wrong. They have been corrected,
 * so the caller opens once more. */
static int open_once(const llm_backend *backend, const llm_engine_options *options,
                     llm_engine **out, bool *again, err *e) {
    double start = clock_ms();
    llm_engine *engine = mem_zalloc(sizeof *engine);
    engine->backend = backend;
    engine->mem = arena_new();
    engine->bos = engine->eos = -1;
    engine->info.path = arena_strndup(engine->mem, options->path, strlen(options->path));
    engine->info.threads = usable_threads(options);
    engine->info.kv_block_tokens = LLM_BLOCK_TOKENS;
    engine->info.kv_memory_bytes = KV_DEFAULT_BYTES;
    int code = backend->open(engine, options, e);
    *again = code != 0 && llm_engine_outdated(engine);
    if (code != 0) {
        llm_engine_close(engine);
        return code;
    }
    engine->newline = newline_token(engine);
    engine->info.blends =
        backend->blends && engine->info.generates && engine->info.attention == LLM_ATTENTION_FULL;
    engine->info.load_ms = clock_ms() - start;
    *out = engine;
    return 0;
}

static int open_with(const llm_backend *backend, const llm_engine_options *options,
                     llm_engine **out, err *e) {
    bool again;
    int code = open_once(backend, options, out, &again, e);
    if (!again)
        return code;
    err_clear(e);
    return open_once(backend, options, out, &again, e);
}

int llm_engine_open(const llm_engine_options *options, llm_engine **out, err *e) {
    *out = NULL;
    if (options->path == NULL || options->path[0] == '\0')
        return err_set(e, ERR_MODEL, "no model is set");
    if (llm_is_remote(str_from(options->path))) {
        int status = llm_remote_check(str_from(options->path), options->remote, e);
        if (status != 0)
            return status;
    }
    const llm_backend *backends[2];
    int n = backends_for(options, backends);
    if (n == 0) {
        err_set(e, ERR_UNSUPPORTED, "this build does not support the device '%s'", options->device);
        err_hint(e, "SET device = 'auto', 'cpu' or 'cuda:0'");
        return ERR_UNSUPPORTED;
    }
    int code = open_with(backends[0], options, out, e);
    /* 'auto' goes on to the next device and records why the first one failed */
    if (code != 0 && n > 1) {
        err first = *e;
        err_clear(e);
        code = open_with(backends[1], options, out, e);
        if (code == 0) {
            (*out)->info.device_reason =
                arena_strndup((*out)->mem, first.message, strlen(first.message));
        }
    }
    return code;
}

void llm_engine_close(llm_engine *engine) {
    if (engine == NULL)
        return;
    engine->backend->close(engine);
    tokenizer_free(engine->tokenizer);
    gguf_close(engine->file);
    arena_free(engine->mem);
    free(engine);
}

const llm_model_info *llm_engine_info(const llm_engine *engine) {
    return &engine->info;
}

double llm_price(const llm_model_info *info, double prompt, double cached, double output) {
    return ((prompt - cached) * info->price_in + cached * info->price_cached +
            output * info->price_out) /
           1e6;
}

void llm_engine_info_copy(const llm_engine *engine, arena *mem, llm_model_info *out) {
    *out = engine->info;
    const char **const texts[] = {
        &out->path,          &out->name,      &out->architecture,     &out->device,
        &out->device_reason, &out->precision, &out->precision_reason, &out->chat_family,
        &out->currency,      &out->servers};
    for (size_t i = 0; i < BASE_COUNT(texts); i++)
        if (*texts[i] != NULL)
            *texts[i] = arena_strndup(mem, *texts[i], strlen(*texts[i]));
}

bool llm_engine_outdated(const llm_engine *engine) {
    return atomic_load(&engine->outdated);
}

bool llm_engine_is_current(const llm_engine *engine) {
    return !llm_engine_outdated(engine) &&
           (engine->identity == NULL || identity_same_at_path(engine->identity, engine->info.path));
}

const llm_template *llm_engine_template(const llm_engine *engine, llm_format format) {
    if (format == LLM_FORMAT_AUTO)
        format = engine->info.default_format;
    return format == LLM_FORMAT_CHAT && engine->chat != NULL ? engine->chat : template_completion();
}
