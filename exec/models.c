/*
 * models.c - which model a call means, and the engines that are open.
 *
 * Invariant: one engine per distinct (path, options) and db; it stays open until the db closes, so
 * that a second statement starts with packed weights; an outdated one (llm.h), or one whose file is
 * another by now, stays open too, since others may hold its facts, but is not handed out again.
 * What a call names comes first, then SET model, then --model or KVASIR_MODEL (each a name or a
 * path), then the file that the quick start fetches.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm_int.h"

static const char DEFAULT_MODEL[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

typedef struct model_slot {
    char *key; /* path and options as text */
    llm_engine *engine;
} model_slot;

struct models {
    model_slot *slots;
    int count;
};

/* The path that a model's name stands for. */
static int resolve(db *d, const settings *s, const catalog *c, str name, buf *path, err *e) {
    if (name.n == 0)
        name = str_from(s->model);
    if (name.n == 0)
        name = str_from(db_model_override(d));
    const model_def *def = c && name.n ? catalog_model(c, name) : NULL;
    if (def) {
        buf_append_str(path, def->source);
        return 0;
    }
    if (name.n == 0) {
        bool place = home_place("XDG_DATA_HOME", ".local/share", path);
        buf_printf(path, "/models/%s", DEFAULT_MODEL);
        if (place && access(path->p, R_OK) == 0)
            return 0;
        if (place)
            err_set(e, ERR_MODEL, "no model: '%s' is not there", path->p);
        else
            err_set(e, ERR_MODEL, "no model, and no home directory that the usual one could be in");
        err_hint(e, "sh tutorials/quickstart.sh fetches it; or name a .gguf file with --model or "
                    "KVASIR_MODEL");
        return ERR_MODEL;
    }
    buf_append_str(path, name);
    bool is_path = memchr(name.p, '/', name.n) ||
                   (name.n > 5 && memcmp(name.p + name.n - 5, ".gguf", 5) == 0) ||
                   (name.n > 5 && memcmp(name.p, "test:", 5) == 0) || access(path->p, R_OK) == 0;
    if (is_path)
        return 0;
    err_set(e, ERR_MODEL, "no model \"%.*s\"", (int)name.n, name.p);
    err_hint(e, "CREATE MODEL %.*s FROM 'file.gguf'", (int)name.n, name.p);
    return ERR_MODEL;
}

int models_check_file(str source, err *e) {
    buf path = {0};
    int status = 0;
    buf_append_str(&path, source);
    if (strncmp(path.p, "test:", 5) != 0 && access(path.p, R_OK) != 0) {
        status =
            err_set(e, ERR_MODEL, "cannot read the model file '%s': %s", path.p, strerror(errno));
        err_hint(e, "a model is a .gguf file; its path is from %s",
                 path.p[0] == '/' ? "the root" : "the working directory");
    }
    buf_free(&path);
    return status;
}

int models_standard(db *d, const settings *s, const catalog *c, buf *path, err *e) {
    return resolve(d, s, c, (str){"", 0}, path, e);
}

static int open_engine(const settings *s, const char *path, bool load_now,
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
    bool keeps = home_place("XDG_CACHE_HOME", ".cache", &side);
    llm_engine_options options = {
        .path = path,
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

int models_engine(db *d, const settings *s, const catalog *c, str name, const atomic_bool *cancel,
                  llm_engine **out, err *e) {
    struct models **slot = db_models(d);
    buf path = {0}, key = {0};
    int status = resolve(d, s, c, name, &path, e);
    if (!*slot)
        *slot = mem_zalloc(sizeof **slot);
    struct models *m = *slot;
    buf_printf(&key, "%s|%d|%d|%d|%d|%d|%d|%s", path.p ? path.p : "", (int)s->threads, s->precision,
               s->attention, (int)s->sink_tokens, (int)s->window_tokens, s->kv_dtype, s->device);
    *out = NULL;
    bool outdated = false;
    for (int i = 0; i < m->count && status == 0; i++)
        if (strcmp(m->slots[i].key, key.p) == 0) {
            outdated = !llm_engine_is_current(m->slots[i].engine);
            *out = outdated ? NULL : m->slots[i].engine;
        }
    if (status == 0 && !*out && (status = open_engine(s, path.p, outdated, cancel, out, e)) == 0) {
        m->slots = mem_realloc(m->slots, sizeof *m->slots * (size_t)(m->count + 1));
        m->slots[m->count++] = (model_slot){mem_strndup(key.p, key.n), *out};
    }
    buf_free(&path);
    buf_free(&key);
    return status;
}

void models_close(db *d) {
    struct models *m = *db_models(d);
    if (!m)
        return;
    for (int i = 0; i < m->count; i++) {
        llm_engine_close(m->slots[i].engine);
        free(m->slots[i].key);
    }
    free(m->slots);
    free(m);
    *db_models(d) = NULL;
}
