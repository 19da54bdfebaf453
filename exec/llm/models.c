/*
 * models.c - from the name of a model to an open engine.
 *
 * The model is the first of these that is given: the name in the call, SET model, --model or
 * KVASIR_MODEL. Each is a name or a path. If none is given, the model is the file that the quick
 * start fetches.
 *
 * Invariant: an engine stays open while it is held. Of the engines that are not held, the last used
 * one stays open (MODELS_IDLE), so that the next statement need not load its weights again. Each
 * engine has its own copy of the weights. There is at most one current engine per path and options.
 * An engine that is outdated (llm.h), or whose file has changed, is not returned again, and is
 * closed once it is not held.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm_int.h"

static const char DEFAULT_MODEL[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
static const char DEFAULT_EMBEDDER[] = "all-MiniLM-L6-v2.F16.gguf";

typedef struct model_slot {
    char *key; /* path and options as text */
    llm_engine *engine;
    int holds;
    uint64_t used; /* models.time when the last hold ended */
} model_slot;

struct models {
    model_slot *slots;
    int count;
    uint64_t time; /* counts releases */
};

/* Number of engines that stay open although not held, besides the one in use. One is enough to
 * alternate between two models or settings. If the side file has the results of an
 * earlier load, opening an engine reads no weights until a prompt has to be computed. */
enum { MODELS_IDLE = 1 };

/* Finds the path of a model, or its URLs, with the options of CREATE MODEL. */
static int resolve(db *d, const settings *s, const catalog *c, str name, bool embeds, buf *path,
                   buf *options, err *e) {
    if (name.n == 0)
        name = str_from(embeds ? s->embed_model : s->model);
    if (name.n == 0 && !embeds)
        name = str_from(d->model_override);
    const model_def *def = c && name.n ? catalog_model(c, name) : NULL;
    if (def) {
        buf_append_str(path, def->source);
        buf_append_str(options, def->options);
        return 0;
    }
    if (name.n == 0) {
        bool place = xdg_path("XDG_DATA_HOME", ".local/share", path);
        buf_printf(path, "/models/%s", embeds ? DEFAULT_EMBEDDER : DEFAULT_MODEL);
        if (place && access(path->p, R_OK) == 0)
            return 0;
        const char *kind = embeds ? "embedding model" : "model";
        if (place)
            err_set(e, ERR_MODEL, "no %s is set, and the default one cannot be read: '%s': %s",
                    kind, path->p, strerror(errno));
        else
            err_set(e, ERR_MODEL,
                    "no %s is set, and there is no home directory to look for the default one",
                    kind);
        if (embeds)
            err_hint(e, "run sh tutorials/quickstart.sh --embedder to fetch it, or name a .gguf "
                        "file with SET embed_model");
        else
            err_hint(e, "run sh tutorials/quickstart.sh to fetch it, or name a .gguf file with "
                        "--model or KVASIR_MODEL");
        return ERR_MODEL;
    }
    buf_append_str(path, name);
    bool is_path = memchr(name.p, '/', name.n) ||
                   (name.n > 5 && memcmp(name.p + name.n - 5, ".gguf", 5) == 0) ||
                   (name.n > 5 && memcmp(name.p, "test:", 5) == 0) || access(path->p, R_OK) == 0;
    if (is_path)
        return 0;
    err_set(e, ERR_MODEL, "no model \"%.*s\"", (int)name.n, name.p);
    err_hint(e, "register it with CREATE MODEL %.*s FROM 'file.gguf'", (int)name.n, name.p);
    return ERR_MODEL;
}

int models_check_source(const model_def *def, err *e) {
    str source = def->source;
    if (llm_is_remote(source))
        return llm_remote_check(source, def->options, e);
    buf path = {0};
    int status = 0;
    buf_append_str(&path, source);
    if (strncmp(path.p, "test:", 5) != 0 && access(path.p, R_OK) != 0) {
        status = err_set(e, ERR_MODEL, "cannot open the model '%s': %s", path.p, strerror(errno));
        err_hint(e, "a model is a .gguf file%s",
                 path.p[0] == '/' ? "" : "; a relative path starts at the working directory");
    }
    buf_free(&path);
    return status;
}

int model_default_path(db *d, const settings *s, const catalog *c, buf *path, err *e) {
    buf options = {0};
    int status = resolve(d, s, c, (str){"", 0}, false, path, &options, e);
    buf_free(&options);
    return status;
}

static int open_engine(const settings *s, const char *path, str remote, bool load_now,
                       const atomic_bool *cancel, llm_engine **out, err *e) {
    static const llm_precision precisions[] = {[PRECISION_AUTO] = LLM_PRECISION_AUTO,
                                               [PRECISION_F32] = LLM_F32,
                                               [PRECISION_BF16] = LLM_BF16,
                                               [PRECISION_INT8] = LLM_INT8,
                                               [PRECISION_INT8X2] = LLM_INT8X2};
    BASE_COVERS(precisions, PRECISIONS);
    static const llm_kv_dtype dtypes[] = {
        [DTYPE_BF16] = LLM_KV_BF16, [DTYPE_F32] = LLM_KV_F32, [DTYPE_INT8] = LLM_KV_INT8};
    BASE_COVERS(dtypes, DTYPES);
    buf side = {0};
    bool keeps = xdg_path("XDG_CACHE_HOME", ".cache", &side);
    llm_engine_options options = {
        .path = path,
        .remote = remote,
        .threads = (int)s->threads,
        .precision = precisions[s->precision],
        .device = s->device,
        .attention =
            s->attention == ATTENTION_STREAMING ? LLM_ATTENTION_STREAMING : LLM_ATTENTION_FULL,
        .sink_tokens = (int)s->sink_tokens,
        .window_tokens = (int)s->window_tokens,
        .kv_dtype = dtypes[s->kv_dtype],
        .cache_dir = keeps ? side.p : NULL,
        .load_now = load_now,
        .cancel = cancel,
    };
    int status = llm_engine_open(&options, out, e);
    buf_free(&side);
    return status;
}

static model_slot *slot_add(struct models *m, const char *key, llm_engine *engine) {
    m->slots = mem_realloc(m->slots, sizeof *m->slots * (size_t)(m->count + 1));
    m->slots[m->count] = (model_slot){.key = mem_strdup(key), .engine = engine};
    return &m->slots[m->count++];
}

static void slot_close(struct models *m, int at) {
    llm_engine_close(m->slots[at].engine);
    free(m->slots[at].key);
    m->slots[at] = m->slots[--m->count];
}

/* Closes engines that are not held, the least recently used first, until MODELS_IDLE are left. */
static void close_idle(struct models *m) {
    for (;;) {
        int idle = 0, oldest = -1;
        for (int i = 0; i < m->count; i++) {
            if (m->slots[i].holds > 0)
                continue;
            idle++;
            if (oldest < 0 || m->slots[i].used < m->slots[oldest].used)
                oldest = i;
        }
        if (idle <= MODELS_IDLE)
            return;
        slot_close(m, oldest);
    }
}

/* Returns the current engine of a key, or NULL. *outdated: whether there was an engine that is no
 * longer current. */
static model_slot *slot_find(struct models *m, const char *key, bool *outdated) {
    *outdated = false;
    for (int i = m->count - 1; i >= 0; i--) {
        if (strcmp(m->slots[i].key, key) != 0)
            continue;
        if (llm_engine_is_current(m->slots[i].engine))
            return &m->slots[i];
        *outdated = true;
        if (m->slots[i].holds == 0)
            slot_close(m, i);
    }
    return NULL;
}

int engine_acquire(db *d, const settings *s, const catalog *c, str name, bool embeds,
                   const atomic_bool *cancel, llm_engine **out, err *e) {
    buf path = {0}, key = {0}, remote = {0};
    model_slot *slot = NULL;
    bool outdated = false;
    int status = resolve(d, s, c, name, embeds, &path, &remote, e);
    str options = remote.n > 0 ? buf_str(&remote) : STR("");
    if (status == 0 && llm_is_remote(buf_str(&path)))
        status = endpoints_allowed(d, buf_str(&path), options, e);
    if (!d->models)
        d->models = mem_zalloc(sizeof *d->models);
    struct models *m = d->models;
    buf_printf(&key, "%s|%d|%d|%d|%d|%d|%d|%s|%s", path.p ? path.p : "", (int)s->threads,
               s->precision, s->attention, (int)s->sink_tokens, (int)s->window_tokens, s->kv_dtype,
               s->device, remote.p ? remote.p : "");
    *out = NULL;
    if (status == 0 && !(slot = slot_find(m, key.p, &outdated))) {
        llm_engine *engine;
        close_idle(m);
        status = open_engine(s, path.p, options, outdated, cancel, &engine, e);
        slot = status ? NULL : slot_add(m, key.p, engine);
    }
    if (slot) {
        slot->holds++;
        *out = slot->engine;
    }
    buf_free(&path);
    buf_free(&key);
    buf_free(&remote);
    return status;
}

void engine_release(db *d, llm_engine *engine) {
    struct models *m = d->models;
    for (int i = 0; engine && i < m->count; i++)
        if (m->slots[i].engine == engine) {
            assert(m->slots[i].holds > 0);
            m->slots[i].holds--;
            m->slots[i].used = ++m->time;
        }
}

int models_open(db *d) {
    return d->models ? d->models->count : 0;
}

void models_close(db *d) {
    struct models *m = d->models;
    if (!m)
        return;
    while (m->count > 0) {
        assert(m->slots[m->count - 1].holds == 0);
        slot_close(m, m->count - 1);
    }
    free(m->slots);
    free(m);
    d->models = NULL;
}
