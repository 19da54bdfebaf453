/*
 * gguf.c - opens GGUF files: maps them, checks every field against the file's size, indexes keys
 * and tensors.
 *
 * Invariant: after a successful open, the whole extent of every key, value and tensor is inside a
 * mapping, and names are unique; nothing is checked again later. config.c interprets the tensors,
 * quant.c their bytes.
 *
 *   file     magic "GGUF" | version u32 | tensor count u64 | kv count u64 | kv… | tensor… |
 *            padding to general.alignment (32) | data
 *   kv       key str | type u32 | value
 *   tensor   name str | ndims u32 | dims u64… | type u32 | offset u64 from the data's start
 *   str      length u64 | bytes
 *   array    element type u32 | count u64 | elements
 */
#include "gguf_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum value_kind {
    VALUE_U8,
    VALUE_I8,
    VALUE_U16,
    VALUE_I16,
    VALUE_U32,
    VALUE_I32,
    VALUE_F32,
    VALUE_BOOL,
    VALUE_STRING,
    VALUE_ARRAY,
    VALUE_U64,
    VALUE_I64,
    VALUE_F64,
    VALUE_KINDS
};

/* Bytes of a value of fixed size; 0 for strings and arrays. */
static const uint8_t value_bytes[VALUE_KINDS] = {
    [VALUE_U8] = 1,  [VALUE_I8] = 1,  [VALUE_U16] = 2, [VALUE_I16] = 2,
    [VALUE_U32] = 4, [VALUE_I32] = 4, [VALUE_F32] = 4, [VALUE_BOOL] = 1,
    [VALUE_U64] = 8, [VALUE_I64] = 8, [VALUE_F64] = 8};

/* KV_MIN_BYTES, TENSOR_MIN_BYTES: lower bounds of the size of a kv and of a tensor's entry. */
enum { KV_MIN_BYTES = 13, TENSOR_MIN_BYTES = 32, MAX_SHARDS = 1000 };

/* Bounds on the memory and time of opening a file. The file's size is not one: a sparse file of
 * 100 GB takes a few blocks of the disk. */
enum {
    METADATA_BYTES_MAX = 1 << 28, /* all before the tensors' data; of published models up to 50 MB,
                                     most of it a whole tokenizer.json as one string */
    KEYS_MAX = 1 << 16,           /* published models have fewer than 100 */
    TENSORS_MAX = 1 << 17,        /* 61 layers of 256 experts with three tensors each: 47,000 */
    STRINGS_MAX = 1 << 22 /* of one array; the merges of gemma 3's 262,144 tokens: 514,906 */
};
#define IS_CUT_OFF "is cut off, or reaches past the first 256 MiB"

typedef struct kv {
    str key;
    uint32_t type;
    union {
        const uint8_t *scalar; /* unaligned */
        str string;
        gguf_array array;
    };
} kv;

typedef struct mapping {
    const uint8_t *p;
    size_t n;
    bool mapped; /* true: a file, with fd and opened; false: the bytes of gguf_open_memory */
    int fd;
    struct stat opened; /* fstat when the file was opened */
} mapping;

struct gguf {
    mapping *maps;
    size_t nmaps;
    kv *kvs; /* of the first shard, sorted by key */
    size_t nkvs;
    gguf_tensor *tensors; /* of all shards, in file order */
    size_t ntensors;
    const gguf_tensor **by_name;
};

/* The state of reading one shard. */
typedef struct parse {
    const char *called; /* the file's name in messages, quoted */
    const uint8_t *start, *at;
    const uint8_t *end; /* of what may be metadata: at most METADATA_BYTES_MAX from the start */
    size_t size;        /* of the whole file */
    kv *kvs;
    size_t nkvs;
    gguf_tensor *tensors;
    size_t ntensors;
    err *e;
} parse;

/* ---- reading -------------------------------------------------------------------------------- */

static int corrupt(parse *p, const char *format, ...) BASE_PRINTF(2, 3);

static int corrupt(parse *p, const char *format, ...) {
    char why[512];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return err_set(p->e, ERR_CORRUPT, "%s is damaged: %s (at byte %td)", p->called, why,
                   p->at - p->start);
}

static size_t left(const parse *p) {
    return (size_t)(p->end - p->at);
}

static bool read_raw(parse *p, void *out, size_t n) {
    if (left(p) < n)
        return false;
    memcpy(out, p->at, n);
    p->at += n;
    return true;
}

static bool read_str(parse *p, str *out) {
    uint64_t n;
    if (!read_raw(p, &n, sizeof n) || n > left(p))
        return false;
    *out = (str){(const char *)p->at, (size_t)n};
    p->at += n;
    return true;
}

/* Returns the length at which a name is cut in messages. */
static int shown(str s) {
    return (int)BASE_MIN(s.n, (size_t)80);
}

static int read_array(parse *p, str key, gguf_array *out) {
    if (!read_raw(p, &out->element_type, sizeof out->element_type) ||
        !read_raw(p, &out->count, sizeof out->count))
        return corrupt(p, "the array %.*s " IS_CUT_OFF, shown(key), key.p);
    if (out->element_type >= VALUE_KINDS)
        return corrupt(p, "the array %.*s has elements of unknown type %" PRIu32, shown(key), key.p,
                       out->element_type);
    if (out->element_type == VALUE_ARRAY)
        return err_set(p->e, ERR_UNSUPPORTED,
                       "%s: the value of %.*s is an array of arrays, which is not supported",
                       p->called, shown(key), key.p);
    out->data = p->at;
    size_t width = value_bytes[out->element_type];
    if (!width && out->count > STRINGS_MAX)
        return corrupt(p, "the array %.*s claims %" PRIu64 " strings; the limit is %d", shown(key),
                       key.p, out->count, STRINGS_MAX);
    if (width && out->count > left(p) / width)
        return corrupt(p, "the array %.*s claims %" PRIu64 " elements; at most %zu can follow",
                       shown(key), key.p, out->count, left(p) / width);
    if (width) {
        p->at += width * (size_t)out->count;
    } else {
        str ignored;
        for (uint64_t i = 0; i < out->count; i++) {
            if (!read_str(p, &ignored))
                return corrupt(p, "string %" PRIu64 " of the array %.*s " IS_CUT_OFF, i, shown(key),
                               key.p);
        }
    }
    out->end = p->at;
    return 0;
}

static int read_kv(parse *p, kv *out) {
    if (!read_str(p, &out->key) || out->key.n == 0)
        return corrupt(p, "a key is empty or " IS_CUT_OFF);
    if (!read_raw(p, &out->type, sizeof out->type))
        return corrupt(p, "the key %.*s has no value", shown(out->key), out->key.p);
    if (out->type >= VALUE_KINDS)
        return corrupt(p, "the key %.*s has unknown type %" PRIu32, shown(out->key), out->key.p,
                       out->type);
    if (out->type == VALUE_ARRAY)
        return read_array(p, out->key, &out->array);
    if (out->type == VALUE_STRING) {
        if (!read_str(p, &out->string))
            return corrupt(p, "the text of %.*s " IS_CUT_OFF, shown(out->key), out->key.p);
        return 0;
    }
    out->scalar = p->at;
    if (left(p) < value_bytes[out->type])
        return corrupt(p, "the value of %.*s " IS_CUT_OFF, shown(out->key), out->key.p);
    p->at += value_bytes[out->type];
    return 0;
}

/* Fills all but `data`: where the data starts is known only after the last tensor. */
static int read_tensor(parse *p, gguf_tensor *t, uint64_t *offset) {
    uint32_t ndims, type;
    if (!read_str(p, &t->name) || t->name.n == 0 || !read_raw(p, &ndims, sizeof ndims))
        return corrupt(p, "the tensor table " IS_CUT_OFF);
    if (ndims < 1 || ndims > 4)
        return corrupt(p, "the tensor %.*s has %" PRIu32 " dimensions", shown(t->name), t->name.p,
                       ndims);
    t->ndims = (int)ndims;
    uint64_t elements = 1;
    for (int i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < t->ndims && !read_raw(p, &t->dims[i], sizeof t->dims[i]))
            return corrupt(p, "the tensor table " IS_CUT_OFF);
        if (t->dims[i] == 0 || t->dims[i] > INT64_MAX ||
            __builtin_mul_overflow(elements, t->dims[i], &elements))
            return corrupt(p, "the tensor %.*s has a dimension that is 0 or too large",
                           shown(t->name), t->name.p);
    }
    if (!read_raw(p, &type, sizeof type) || !read_raw(p, offset, sizeof *offset))
        return corrupt(p, "the tensor table " IS_CUT_OFF);
    const quant_type *q = quant_find(type);
    if (!q)
        return err_set(p->e, ERR_UNSUPPORTED,
                       "%s: the tensor %.*s is of type %s (%" PRIu32 "), which is not supported",
                       p->called, shown(t->name), t->name.p, quant_type_label(type), type);
    t->type = q->type;
    if (t->dims[0] % (uint64_t)q->block_elements != 0)
        return corrupt(p, "rows of the tensor %.*s are not a whole number of %s blocks",
                       shown(t->name), t->name.p, q->name);
    uint64_t bytes;
    if (__builtin_mul_overflow(elements / (uint64_t)q->block_elements, (uint64_t)q->block_bytes,
                               &bytes) ||
        bytes > p->size)
        return corrupt(p, "the tensor %.*s is larger than the file", shown(t->name), t->name.p);
    t->bytes = (size_t)bytes;
    return 0;
}

static int compare_kv(const void *a, const void *b) {
    return str_compare(((const kv *)a)->key, ((const kv *)b)->key);
}

static const kv *find_kv(const kv *kvs, size_t n, const char *key) {
    kv wanted = {.key = str_from(key)};
    return n ? bsearch(&wanted, kvs, n, sizeof *kvs, compare_kv) : NULL;
}

static bool scalar_u64(const kv *k, uint64_t *out);

static int read_alignment(parse *p, uint64_t *alignment) {
    *alignment = 32;
    const kv *k = find_kv(p->kvs, p->nkvs, "general.alignment");
    if (!k)
        return 0;
    if (!scalar_u64(k, alignment) || *alignment < 8 || *alignment > 1 << 20 ||
        (*alignment & (*alignment - 1)) != 0)
        return corrupt(p, "general.alignment is not a power of two from 8 to 2^20");
    return 0;
}

/* Reads the tensor table and points every tensor at its data. */
static int read_tensors(parse *p, uint64_t count) {
    if (count > TENSORS_MAX)
        return corrupt(p, "it claims %" PRIu64 " tensors; the limit is %d", count, TENSORS_MAX);
    if (count > left(p) / TENSOR_MIN_BYTES)
        return corrupt(p, "it claims %" PRIu64 " tensors, more than it holds", count);
    p->tensors = mem_zalloc(sizeof *p->tensors * (size_t)(count + 1));
    uint64_t *offsets = mem_zalloc(sizeof *offsets * (size_t)(count + 1));
    int rc = 0;
    for (; p->ntensors < count && rc == 0; p->ntensors += rc == 0)
        rc = read_tensor(p, &p->tensors[p->ntensors], &offsets[p->ntensors]);
    uint64_t alignment = 32;
    if (rc == 0)
        rc = read_alignment(p, &alignment);
    uint64_t size = p->size;
    uint64_t head = ((uint64_t)(p->at - p->start) + alignment - 1) / alignment * alignment;
    head = BASE_MIN(head, size); /* a file without tensors may have no padding */
    for (size_t i = 0; i < p->ntensors && rc == 0; i++) {
        gguf_tensor *t = &p->tensors[i];
        if (offsets[i] % alignment != 0)
            rc =
                corrupt(p, "the data of the tensor %.*s is not aligned", shown(t->name), t->name.p);
        else if (offsets[i] > size - head || t->bytes > size - head - offsets[i])
            rc =
                corrupt(p, "the data of the tensor %.*s lies outside the file: it may be cut short",
                        shown(t->name), t->name.p);
        else
            t->data = p->start + head + offsets[i];
    }
    free(offsets);
    return rc;
}

static int read_header(parse *p, uint64_t *ntensors, uint64_t *nkvs) {
    char magic[4];
    uint32_t version;
    if (!read_raw(p, magic, sizeof magic) || memcmp(magic, "GGUF", 4) != 0)
        return err_set(p->e, ERR_CORRUPT, "%s is not a GGUF file", p->called);
    if (!read_raw(p, &version, sizeof version) || !read_raw(p, ntensors, sizeof *ntensors) ||
        !read_raw(p, nkvs, sizeof *nkvs))
        return corrupt(p, "its header is cut off");
    if (version == 0 || (version & 0xffff) == 0)
        return err_set(p->e, ERR_UNSUPPORTED,
                       "%s is a big-endian GGUF file, which is not supported", p->called);
    if (version != 2 && version != 3)
        return err_set(p->e, ERR_UNSUPPORTED,
                       "%s is GGUF version %" PRIu32 "; versions 2 and 3 are supported", p->called,
                       version);
    if (*nkvs > KEYS_MAX)
        return corrupt(p, "it claims %" PRIu64 " keys; the limit is %d", *nkvs, KEYS_MAX);
    if (*nkvs > left(p) / KV_MIN_BYTES)
        return corrupt(p, "it claims %" PRIu64 " keys, more than it holds", *nkvs);
    return 0;
}

/* Reads a whole shard. The caller frees p->kvs and p->tensors, also on failure. */
static int read_shard(parse *p) {
    uint64_t ntensors = 0, nkvs = 0;
    int rc = read_header(p, &ntensors, &nkvs);
    if (rc)
        return rc;
    p->kvs = mem_zalloc(sizeof *p->kvs * (size_t)(nkvs + 1));
    for (; p->nkvs < nkvs; p->nkvs++) {
        rc = read_kv(p, &p->kvs[p->nkvs]);
        if (rc)
            return rc;
    }
    if (p->nkvs)
        qsort(p->kvs, p->nkvs, sizeof *p->kvs, compare_kv);
    for (size_t i = 1; i < p->nkvs; i++) {
        str key = p->kvs[i].key;
        if (str_equal(p->kvs[i - 1].key, key))
            return corrupt(p, "the key %.*s occurs twice", shown(key), key.p);
    }
    return read_tensors(p, ntensors);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int map_file(const char *path, mapping *out, err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(e, errno, "cannot open the model '%s'", path);
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st) != 0)
        rc = err_set_errno(e, errno, "cannot read the model '%s'", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, ERR_IO, "the model '%s' is not a file", path);
    else if (st.st_size == 0)
        rc = err_set(e, ERR_CORRUPT, "the model '%s' is empty, not a GGUF file", path);
    if (rc == 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            rc = err_set_errno(e, errno, "cannot map the model '%s'", path);
        else
            *out =
                (mapping){.p = p, .n = (size_t)st.st_size, .mapped = true, .fd = fd, .opened = st};
    }
    if (rc != 0)
        close(fd);
    return rc;
}

/* Reads the shard `m`, which g then owns, and appends its tensors. The keys of the first shard
 * become those of the whole model; the keys of other shards are dropped. */
static int add_shard(gguf *g, const char *called, mapping m, err *e) {
    g->maps = mem_realloc(g->maps, sizeof *g->maps * (g->nmaps + 1));
    g->maps[g->nmaps++] = m;
    parse p = {.called = called,
               .start = m.p,
               .at = m.p,
               .end = m.p + BASE_MIN(m.n, (size_t)METADATA_BYTES_MAX),
               .size = m.n,
               .e = e};
    int rc = read_shard(&p);
    if (rc == 0 && g->nmaps > 1) {
        uint64_t number;
        const kv *k = find_kv(p.kvs, p.nkvs, "split.no");
        if (!k || !scalar_u64(k, &number) || number != g->nmaps - 1)
            rc = corrupt(&p, "its split.no is not %zu", g->nmaps - 1);
    }
    if (rc == 0 && p.ntensors) {
        g->tensors = mem_realloc(g->tensors, sizeof *g->tensors * (g->ntensors + p.ntensors));
        memcpy(g->tensors + g->ntensors, p.tensors, sizeof *g->tensors * p.ntensors);
        g->ntensors += p.ntensors;
    }
    free(p.tensors);
    if (rc == 0 && g->nmaps == 1) {
        g->kvs = p.kvs;
        g->nkvs = p.nkvs;
    } else {
        free(p.kvs);
    }
    return rc;
}

/* The end of a shard's name, such as "-00001-of-00003.gguf": its length, and the offset and length
 * of the shard's number in it. */
enum { SHARD_SUFFIX = sizeof "-00001-of-00003.gguf" - 1, SHARD_NUMBER = 1, SHARD_DIGITS = 5 };

void gguf_shard_path(const char *path, int i, buf *out) {
    if (i == 0) {
        buf_append_c(out, path);
        return;
    }
    size_t number = strlen(path) - SHARD_SUFFIX + SHARD_NUMBER;
    buf_printf(out, "%.*s%0*d%s", (int)number, path, SHARD_DIGITS, i + 1,
               path + number + SHARD_DIGITS);
}

static int add_other_shards(gguf *g, const char *path, uint64_t count, err *e) {
    char suffix[64];
    snprintf(suffix, sizeof suffix, "-00001-of-%05" PRIu64 ".gguf", count);
    size_t n = strlen(path), tail = strlen(suffix);
    if (count > MAX_SHARDS || n < tail || strcmp(path + n - tail, suffix) != 0)
        return err_set(e, ERR_CORRUPT,
                       "the model '%s' is one of %" PRIu64
                       " shards, but its name does not end in '%s'",
                       path, count, suffix);
    buf shard = {0}, called = {0};
    int rc = 0;
    for (int i = 1; i < (int)count && rc == 0; i++) {
        buf_clear(&shard);
        buf_clear(&called);
        gguf_shard_path(path, i, &shard);
        buf_printf(&called, "the model '%s'", shard.p);
        mapping m;
        rc = map_file(shard.p, &m, e);
        if (rc == 0)
            rc = add_shard(g, called.p, m, e);
    }
    buf_free(&shard);
    buf_free(&called);
    return rc;
}

static int compare_names(const void *a, const void *b) {
    return str_compare((*(const gguf_tensor *const *)a)->name,
                       (*(const gguf_tensor *const *)b)->name);
}

static int index_tensors(gguf *g, const char *called, err *e) {
    g->by_name = mem_zalloc(sizeof *g->by_name * (g->ntensors + 1));
    for (size_t i = 0; i < g->ntensors; i++)
        g->by_name[i] = &g->tensors[i];
    qsort(g->by_name, g->ntensors, sizeof *g->by_name, compare_names);
    for (size_t i = 1; i < g->ntensors; i++) {
        str name = g->by_name[i]->name;
        if (str_equal(g->by_name[i - 1]->name, name))
            return err_set(e, ERR_CORRUPT, "%s is damaged: the tensor %.*s occurs twice", called,
                           shown(name), name.p);
    }
    uint64_t expected;
    if (gguf_get_u64(g, "split.tensors.count", &expected) && expected != g->ntensors)
        return err_set(e, ERR_CORRUPT,
                       "%s is damaged: its shards hold %zu tensors instead of %" PRIu64, called,
                       g->ntensors, expected);
    return 0;
}

/* Opens a file from its mapping. `path` is NULL for a file in memory. */
static int open_mapping(const char *path, const char *called, mapping m, gguf **out, err *e) {
    gguf *g = mem_zalloc(sizeof *g);
    int rc = add_shard(g, called, m, e);
    uint64_t shards = 1, number = 0;
    if (rc == 0 && gguf_get_u64(g, "split.count", &shards) && shards > 1) {
        if (gguf_get_u64(g, "split.no", &number) && number != 0) {
            rc = err_set(e, ERR_MODEL, "%s is shard %" PRIu64 " of %" PRIu64 ", not the first",
                         called, number + 1, shards);
            err_hint(e, "open the first shard");
        } else if (!m.mapped)
            rc = err_set(e, ERR_UNSUPPORTED, "%s is sharded, which needs files on disk", called);
        else
            rc = add_other_shards(g, path, shards, e);
    }
    if (rc == 0)
        rc = index_tensors(g, called, e);
    if (rc) {
        gguf_close(g);
        g = NULL;
    }
    *out = g;
    return rc;
}

int gguf_open(const char *path, gguf **out, err *e) {
    *out = NULL;
    mapping m;
    int rc = map_file(path, &m, e);
    if (rc)
        return rc;
    buf called = {0};
    buf_printf(&called, "the model '%s'", path);
    rc = open_mapping(path, called.p, m, out, e);
    buf_free(&called);
    return rc;
}

int gguf_open_memory(const void *bytes, size_t n, gguf **out, err *e) {
    *out = NULL;
    return open_mapping(NULL, "the model in memory", (mapping){.p = bytes, .n = n}, out, e);
}

void gguf_close(gguf *g) {
    if (!g)
        return;
    for (size_t i = 0; i < g->nmaps; i++) {
        if (g->maps[i].mapped) {
            munmap((void *)(uintptr_t)g->maps[i].p, g->maps[i].n);
            close(g->maps[i].fd);
        }
    }
    free(g->maps);
    free(g->kvs);
    free(g->tensors);
    free(g->by_name);
    free(g);
}

/* ---- values --------------------------------------------------------------------------------- */

/* Reads an integer of `type` at the unaligned p. false: `type` is not an integer type, or the value
 * is over INT64_MAX. */
static bool load_integer(uint32_t type, const uint8_t *p, int64_t *out) {
    uint64_t raw = 0;
    if (type >= VALUE_KINDS)
        return false;
    memcpy(&raw, p, value_bytes[type]);
    switch (type) {
    case VALUE_U8:
    case VALUE_U16:
    case VALUE_U32:
    case VALUE_U64:
        *out = (int64_t)raw;
        return raw <= INT64_MAX;
    case VALUE_I8:
        *out = (int8_t)raw;
        return true;
    case VALUE_I16:
        *out = (int16_t)raw;
        return true;
    case VALUE_I32:
        *out = (int32_t)raw;
        return true;
    case VALUE_I64:
        *out = (int64_t)raw;
        return true;
    default:
        return false;
    }
}

static bool load_real(uint32_t type, const uint8_t *p, double *out) {
    if (type == VALUE_F64) {
        memcpy(out, p, sizeof *out);
        return true;
    }
    if (type == VALUE_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        *out = (double)f;
        return true;
    }
    return false;
}

static bool scalar_u64(const kv *k, uint64_t *out) {
    int64_t i;
    if (k->type == VALUE_STRING || k->type == VALUE_ARRAY ||
        !load_integer(k->type, k->scalar, &i) || i < 0)
        return false;
    *out = (uint64_t)i;
    return true;
}

bool gguf_get_u64(const gguf *g, const char *key, uint64_t *out) {
    const kv *k = find_kv(g->kvs, g->nkvs, key);
    return k && scalar_u64(k, out);
}

bool gguf_get_f64(const gguf *g, const char *key, double *out) {
    const kv *k = find_kv(g->kvs, g->nkvs, key);
    int64_t i;
    if (!k || k->type == VALUE_STRING || k->type == VALUE_ARRAY)
        return false;
    if (load_real(k->type, k->scalar, out))
        return true;
    if (!load_integer(k->type, k->scalar, &i))
        return false;
    *out = (double)i;
    return true;
}

bool gguf_get_bool(const gguf *g, const char *key, bool *out) {
    const kv *k = find_kv(g->kvs, g->nkvs, key);
    if (!k || k->type != VALUE_BOOL)
        return false;
    *out = *k->scalar != 0;
    return true;
}

bool gguf_get_str(const gguf *g, const char *key, str *out) {
    const kv *k = find_kv(g->kvs, g->nkvs, key);
    if (!k || k->type != VALUE_STRING)
        return false;
    *out = k->string;
    return true;
}

bool gguf_get_array(const gguf *g, const char *key, gguf_array *out) {
    const kv *k = find_kv(g->kvs, g->nkvs, key);
    if (!k || k->type != VALUE_ARRAY)
        return false;
    *out = k->array;
    return true;
}

bool gguf_array_strs(const gguf_array *array, arena *a, str **out) {
    if (array->element_type != VALUE_STRING)
        return false;
    *out = ARENA_ARRAY(a, str, array->count + 1);
    const uint8_t *at = array->data, *end = array->end;
    for (uint64_t i = 0; i < array->count; i++) {
        uint64_t n;
        memcpy(&n, at, sizeof n);
        at += sizeof n;
        (*out)[i] = (str){(const char *)at, (size_t)n};
        at += n;
    }
    return at == end;
}

bool gguf_array_i32(const gguf_array *array, arena *a, int32_t **out) {
    *out = ARENA_ARRAY(a, int32_t, array->count + 1);
    size_t width = value_bytes[array->element_type];
    for (uint64_t i = 0; i < array->count; i++) {
        int64_t v;
        if (!load_integer(array->element_type, (const uint8_t *)array->data + i * width, &v) ||
            v < INT32_MIN || v > INT32_MAX)
            return false;
        (*out)[i] = (int32_t)v;
    }
    return array->element_type != VALUE_STRING;
}

bool gguf_array_f32(const gguf_array *array, arena *a, float **out) {
    *out = ARENA_ARRAY(a, float, array->count + 1);
    size_t width = value_bytes[array->element_type];
    for (uint64_t i = 0; i < array->count; i++) {
        double v;
        if (!load_real(array->element_type, (const uint8_t *)array->data + i * width, &v))
            return false;
        (*out)[i] = (float)v;
    }
    return array->element_type == VALUE_F32 || array->element_type == VALUE_F64;
}

/* ---- tensors -------------------------------------------------------------------------------- */

const gguf_tensor *gguf_find(const gguf *g, const char *name) {
    gguf_tensor wanted = {.name = str_from(name)};
    const gguf_tensor *key = &wanted;
    const gguf_tensor **hit =
        g->ntensors ? bsearch(&key, g->by_name, g->ntensors, sizeof *g->by_name, compare_names)
                    : NULL;
    return hit ? *hit : NULL;
}

size_t gguf_tensor_count(const gguf *g) {
    return g->ntensors;
}

const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i) {
    return i < g->ntensors ? &g->tensors[i] : NULL;
}

size_t gguf_file_bytes(const gguf *g) {
    size_t bytes = 0;
    for (size_t i = 0; i < g->nmaps; i++)
        bytes += g->maps[i].n;
    return bytes;
}

size_t gguf_file_count(const gguf *g) {
    return g->nmaps;
}

const uint8_t *gguf_file_data(const gguf *g, size_t i, size_t *bytes) {
    *bytes = g->maps[i].n;
    return g->maps[i].p;
}

bool gguf_file_stat(const gguf *g, size_t i, bool opened, struct stat *out) {
    const mapping *m = &g->maps[i];
    if (!m->mapped)
        return false;
    *out = m->opened;
    if (!opened && fstat(m->fd, out) != 0)
        out->st_size = -1; /* differs from any file that can be read */
    return true;
}

void gguf_release_pages(const gguf *g) {
    for (size_t i = 0; i < g->nmaps; i++)
        if (g->maps[i].mapped)
            madvise((void *)(uintptr_t)g->maps[i].p, g->maps[i].n, MADV_DONTNEED);
}
