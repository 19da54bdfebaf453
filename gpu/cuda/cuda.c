/*
 * cuda.c - the CUDA backend's entry points: finding a card, opening a model on it, and the table of
 * functions.
 *
 * Owns the engine's CUDA state. Invariant: the fingerprint covers what the bits of KV depend on:
 * the weights, the rope frequencies, the outputs of the products' probe, and the logits that this
 * card computes in a forward pass over fixed tokens.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_int.h"
#include "model/side_file_int.h"

enum { LEAST_CAPABILITY = 8 }; /* Ampere: the first cards with bf16 tensor cores and cp.async */

/* ---- the card -------------------------------------------------------------------------------- */

bool cuda_usable(int device, char *why, size_t size) {
    int count = 0, driver = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        if (driver == 0) {
            snprintf(why, size, "no NVIDIA driver is installed");
        } else {
            snprintf(why, size, "the NVIDIA driver supports CUDA %d.%d, but %d.%d is needed",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                     CUDART_VERSION % 1000 / 10);
        }
        return false;
    }
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
        snprintf(why, size, "no NVIDIA GPU was found");
        return false;
    }
    if (status != cudaSuccess || device >= count) {
        snprintf(why, size, status != cudaSuccess ? "%s" : "this machine has no such GPU",
                 status != cudaSuccess ? cudaGetErrorString(status) : "");
        return false;
    }
    int major = 0, minor = 0;
    status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (status != cudaSuccess || major < LEAST_CAPABILITY) {
        snprintf(why, size, "the GPU has compute capability %d.%d, but %d.0 is needed", major,
                 minor, LEAST_CAPABILITY);
        return false;
    }
    return true;
}

/* Fails if the weights and a minimum of work memory do not fit in the card's free memory. */
static int refuse_small_card(const llm_engine *engine, err *e) {
    static const size_t room = (size_t)768 << 20;
    size_t left = 0, total = 0,
           need = engine->file != NULL ? engine_parameters(engine->file) * sizeof(uint16_t) : 0;
    int code = cuda_check(cudaMemGetInfo(&left, &total), "asking for the GPU's memory", e);
    if (code == 0 && need + room > left) {
        buf sizes[3] = {{0}, {0}, {0}};
        buf_append_bytes(&sizes[0], need + room);
        buf_append_bytes(&sizes[1], left);
        buf_append_bytes(&sizes[2], total);
        code =
            err_set(e, ERR_FULL,
                    "not enough GPU memory for the model: it needs %s, but only %s of %s are free",
                    sizes[0].p, sizes[1].p, sizes[2].p);
        for (size_t i = 0; i < BASE_COUNT(sizes); i++)
            buf_free(&sizes[i]);
    }
    return code;
}

static int refuse_unsupported(const llm_engine *engine, err *e) {
    const model_config *c = &engine->config;
    if (!k_attend_fits(c->head_dim)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "the model's head dimension is %d; the CUDA backend supports 64, 96, 128 "
                       "and 256",
                       c->head_dim);
    }
    if (c->n_embd % 8 != 0 || c->ffn % 8 != 0 || c->n_embd > CUDA_WIDEST) {
        return err_set(
            e, ERR_UNSUPPORTED,
            "the model's width is %d and its ffn %d; the CUDA backend needs multiples of 8 and a "
            "width up to %d",
            c->n_embd, c->ffn, (int)CUDA_WIDEST);
    }
    return 0;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Returns the default size of KV memory, given the memory that is free after loading. The rest is
 * for activations, graphs and other programs. */
static size_t kv_share(size_t left) {
    return left / 4 * 3;
}

/* Returns the default size of host memory for evicted blocks: an eighth of the machine's memory. It
 * is not more because pinned memory cannot be swapped out for other programs. */
static size_t host_share(void) {
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && bytes > 0 ? (size_t)pages / 8 * (size_t)bytes : 0;
}

static void info_fill(llm_engine *engine, const struct cudaDeviceProp *card) {
    cuda_state *s = engine->state;
    const model_config *c = &engine->config;
    llm_model_info *info = &engine->info;
    size_t left = 0, total = card->totalGlobalMem;
    bool known = cudaMemGetInfo(&left, &total) == cudaSuccess;
    buf reason = {0}, memory = {0};
    buf_append_bytes(&memory, total);
    buf_append_c(&memory, " (");
    buf_append_bytes(&memory, left);
    snprintf(s->card, sizeof s->card, "cuda %s", card->name);
    snprintf(s->name, sizeof s->name, "cuda:%d %s, %s free after loading)", s->device, card->name,
             memory.p);
    buf_free(&memory);
    cuda_gemm_describe(s->g, &reason);
    snprintf(s->reason, sizeof s->reason, "tensor cores; %s", reason.p);
    buf_free(&reason);
    engine_file_facts(engine);
    info->device = s->name;
    info->precision = "bf16";
    info->precision_reason = s->reason;
    info->weight_bytes = s->weight_bytes;
    info->kv_bytes_per_token =
        (size_t)c->n_layers * (size_t)c->n_kv_heads * (size_t)c->head_dim * 2 * sizeof(uint16_t);
    info->kv_block_tokens = LLM_BLOCK_TOKENS;
    if (known)
        info->kv_memory_bytes = kv_share(left);
    info->kv_host_bytes = BASE_MIN(host_share(), info->kv_memory_bytes);
}

/* Runs a pass over fixed tokens and mixes its logits into the digest, which then depends on the
 * bits that this card's kernels compute. */
static int forward_probe(llm_engine *engine, hash128 *digest, err *e) {
    enum { ROWS = 48 };
    const model_config *c = &engine->config;
    int32_t table[] = {0, 1};
    pass_row rows[ROWS];
    for (int i = 0; i < ROWS; i++)
        rows[i] = (pass_row){.token = (i * 7 + 3) % c->vocab, .position = i, .table = table};
    float *logits = mem_alloc(sizeof *logits * (size_t)c->vocab);
    pass_want want = {.row = ROWS - 1, .count = c->vocab, .logits = logits};
    pass p = {.rows = rows, .nrows = ROWS, .wants = &want, .nwants = 1};
    void *work = NULL;
    work_size size = {.blocks = 2, .device_blocks = 2, .likely_blocks = 2, .rows = ROWS};
    int code = cuda_work_new(engine, &size, &work, e);
    if (code == 0) {
        code = cuda_forward(engine, work, &p, e);
        cuda_work_free(engine, work);
    }
    for (int i = 0; i < c->vocab && code == 0; i++) {
        if (isfinite(logits[i]))
            continue;
        code = err_set(e, ERR_INTERNAL,
                       "the model's test run on the GPU computed logits that are not finite (NaN "
                       "or infinity)");
        err_hint(e, "SET device = 'cpu'");
    }
    hash128 both[2] = {*digest, hash_128(logits, sizeof *logits * (size_t)c->vocab)};
    *digest = hash_128(both, sizeof both);
    free(logits);
    return code;
}

static hash128 fingerprint(const llm_engine *engine, hash128 weights, hash128 probe) {
    const model_config *c = &engine->config;
    buf b = {0};
    buf_append(&b, &weights, sizeof weights);
    buf_append(&b, &probe, sizeof probe);
    for (int i = 0; i < c->n_layers; i++) {
        float frequencies[CONFIG_MAX_HEAD_DIM / 2];
        config_rope_frequencies(c, i, frequencies);
        buf_append(&b, frequencies, sizeof(float) * (size_t)(c->rope_dims / 2));
    }
    buf_printf(&b, "cuda kv-bf16 full %d 1", LLM_BLOCK_TOKENS);
    hash128 h = hash_128(b.p, b.n);
    buf_free(&b);
    return h;
}

/* Loads the weights from the model file; fails if the file changes meanwhile. Without a file (in
 * benchmarks), makes random weights. */
static int weights_load(llm_engine *engine, hash128 *probe, err *e) {
    cuda_state *s = engine->state;
    if (engine->file == NULL)
        return cuda_load(engine, probe, e);
    int code = engine_file_identify(engine, s->cache_dir, s->threads, e);
    s->weights = engine->info.weights;
    hash128 before = identity_stamp(engine->file);
    code = code != 0 ? code : cuda_load(engine, probe, e);
    code = code != 0 ? code : engine_file_check(engine, &before, s->threads, e);
    return code != 0 ? code : pool_check(s->threads, e);
}

/* Reads from the side file the token rates that were measured earlier on this card. Writes the side
 * file if there is none. */
static void rates_read(llm_engine *engine) {
    cuda_state *s = engine->state;
    side_facts facts;
    if (!side_file_read(s->cache_dir, s->weights, s->card, &facts))
        side_file_write(s->cache_dir, s->weights, s->card, &facts);
    engine->info.prefill_tok_s = facts.prefill_tok_s;
    engine->info.decode_tok_s = facts.decode_tok_s;
}

int cuda_start(llm_engine *engine, int device, err *e) {
    cuda_state *s = engine->state;
    s->device = device;
    int code = refuse_unsupported(engine, e);
    code = code != 0 ? code : cuda_check(cudaSetDevice(device), "choosing the GPU", e);
    code = code != 0 ? code : refuse_small_card(engine, e);
    code = code != 0 ? code
                     : cuda_check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking),
                                  "creating a stream", e);
    code = code != 0
               ? code
               : cuda_check(k_attend_prepare(engine->config.head_dim), "preparing attention", e);
    code = code != 0 ? code : cuda_gemm_new(&s->g, e);
    struct cudaDeviceProp card;
    code = code != 0
               ? code
               : cuda_check(cudaGetDeviceProperties(&card, device), "asking about the GPU", e);
    if (code != 0)
        return code;
    s->threads = pool_new(engine->info.threads);
    pool_let_cancel(s->threads, s->cancel);
    hash128 probe;
    code = weights_load(engine, &probe, e);
    pool_let_cancel(s->threads, NULL);
    code = code != 0 ? code : forward_probe(engine, &probe, e);
    if (code != 0)
        return code;
    info_fill(engine, &card);
    rates_read(engine);
    engine->info.fingerprint = fingerprint(engine, s->weights, probe);
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Parses a device name and returns the card's number: "auto", "cuda" and "cuda:0" are card 0.
 * Returns -1 and sets *e if the name is invalid. */
static int device_number(const char *name, err *e) {
    if (name == NULL || strcmp(name, "auto") == 0 || strcmp(name, "cuda") == 0)
        return 0;
    char *end = NULL;
    long number = strncmp(name, "cuda:", 5) == 0 ? strtol(name + 5, &end, 10) : -1;
    if (number < 0 || number > 63 || end == NULL || *end != '\0' || end == name + 5) {
        err_set(e, ERR_UNSUPPORTED, "no device '%s'", name);
        err_hint(e, "SET device = 'auto', 'cpu' or 'cuda:0'");
        return -1;
    }
    return (int)number;
}

static int refuse_options(const llm_engine_options *options, err *e) {
    const char *why = NULL, *set = NULL;
    if (options->precision != LLM_PRECISION_AUTO && options->precision != LLM_BF16) {
        why = "the CUDA backend computes in bf16 only";
        set = "precision = 'auto'";
    } else if (options->attention != LLM_ATTENTION_FULL) {
        why = "the CUDA backend does not support streaming attention";
        set = "attention = 'full'";
    } else if (options->kv_dtype != LLM_KV_BF16) {
        why = "the CUDA backend supports KV in bf16 only";
        set = "kv_dtype = 'bf16'";
    }
    if (why == NULL)
        return 0;
    err_set(e, ERR_UNSUPPORTED, "%s", why);
    err_hint(e, "SET %s, or SET device = 'cpu'", set);
    return ERR_UNSUPPORTED;
}

static int refuse_embedding_model(const llm_engine *engine, err *e) {
    if (engine->config.pooling == POOL_NONE)
        return 0;
    err_set(e, ERR_UNSUPPORTED, "embedding models run on the CPU only");
    err_hint(e, "SET device = 'auto' or 'cpu'");
    return ERR_UNSUPPORTED;
}

static int cuda_open(llm_engine *engine, const llm_engine_options *options, err *e) {
    cuda_state *s = mem_zalloc(sizeof *s);
    engine->state = s;
    int device = device_number(options->device, e);
    char why[200];
    if (device < 0)
        return (int)e->code;
    if (!cuda_usable(device, why, sizeof why))
        return err_set(e, ERR_UNSUPPORTED, "cuda:%d: %s", device, why);
    int code = refuse_options(options, e);
    code = code != 0 ? code : engine_file_open(engine, options->path, e);
    code = code != 0 ? code : refuse_embedding_model(engine, e);
    if (code != 0)
        return code;
    engine->info.default_format =
        engine_prefers_chat(engine) ? LLM_FORMAT_CHAT : LLM_FORMAT_COMPLETION;
    s->cache_dir = mem_strdup(options->cache_dir);
    s->cancel = options->cancel;
    code = cuda_start(engine, device, e);
    if (code == 0)
        gguf_release_pages(engine->file);
    return code;
}

static void cuda_close(llm_engine *engine) {
    cuda_state *s = engine->state;
    if (s == NULL)
        return;
    if (s->nallocations > 0)
        cudaSetDevice(s->device);
    for (int i = 0; i < s->nallocations; i++)
        cudaFree(s->allocations[i]);
    cuda_gemm_free(s->g);
    if (s->stream != NULL)
        cudaStreamDestroy(s->stream);
    if (s->threads != NULL)
        pool_free(s->threads);
    free(s->allocations);
    free(s->cache_dir);
    free(s);
}

static void cuda_keep_rates(llm_engine *engine, double prefill_tok_s, double decode_tok_s) {
    cuda_state *s = engine->state;
    pool_lock(s->threads);
    side_file_keep_rates(s->cache_dir, s->weights, s->card, prefill_tok_s, decode_tok_s);
    pool_unlock(s->threads);
}

static int cuda_kv_read(llm_engine *engine, void *work, int32_t block, void *out, err *e) {
    cuda_work *w = work;
    cudaError_t status = cudaSetDevice(((cuda_state *)engine->state)->device);
    status = status == cudaSuccess ? cuda_kv_get(&w->kv, block, out) : status;
    return cuda_check(status, "reading a KV block", e);
}

/* Does not return an error: if the copy fails, the session's next pass returns the error. */
static void cuda_kv_write(llm_engine *engine, void *work, int32_t block, const void *in) {
    cuda_work *w = work;
    cudaError_t status = cudaSetDevice(((cuda_state *)engine->state)->device);
    status = status == cudaSuccess ? cuda_kv_put(&w->kv, block, in) : status;
    w->copy_error = status != cudaSuccess ? status : w->copy_error;
}

static void *cuda_page(llm_engine *engine, void *work, int page) {
    cuda_work *w = work;
    cudaError_t status = cudaSetDevice(((cuda_state *)engine->state)->device);
    return status == cudaSuccess ? cuda_kv_page(&w->kv, page) : NULL;
}

/* If the copy fails, the session's next pass returns the error, as for cuda_kv_write. */
static void cuda_send(llm_engine *engine, void *work, int page, int32_t block) {
    cuda_work *w = work;
    cudaError_t status = cudaSetDevice(((cuda_state *)engine->state)->device);
    status = status == cudaSuccess ? cuda_kv_send(&w->kv, page, block) : status;
    w->copy_error = status != cudaSuccess ? status : w->copy_error;
}

const llm_backend backend_cuda = {
    .name = "cuda",
    .pass_tokens = 8192,
    .max_batch = 1024,
    .draws = true,
    .open = cuda_open,
    .close = cuda_close,
    .encode = engine_file_encode,
    .decode = engine_file_decode,
    .work_new = cuda_work_new,
    .work_free = cuda_work_free,
    .forward = cuda_forward,
    .kv_read = cuda_kv_read,
    .kv_write = cuda_kv_write,
    .kv_page = cuda_page,
    .kv_send = cuda_send,
    .keep_rates = cuda_keep_rates,
};
