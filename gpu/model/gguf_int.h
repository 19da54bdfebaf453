/*
 * gguf_int.h - a GGUF file (versions 2 and 3), mapped read-only: its key-value pairs and its
 * tensors.
 *
 * Owns the mapping(s) and their descriptors; every pointer it returns points into them and lives until gguf_close.
 * Nothing in a file is believed: every count, length, offset and enum is checked against the file's
 * size before it is used, so that a bad file ends in ERR_CORRUPT with the reason (fuzzed). A
 * sharded file ("-00001-of-00003.gguf") is opened by its first shard. Spec:
 * github.com/ggml-org/ggml docs/gguf.md.
 */
#ifndef KVASIR_GGUF_INT_H
#define KVASIR_GGUF_INT_H

#include <sys/stat.h>

#include "storage/base.h"

/* Tensor types by their number in the file. */
typedef enum gguf_type {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q4_1 = 3,
    GGUF_Q5_0 = 6,
    GGUF_Q5_1 = 7,
    GGUF_Q8_0 = 8,
    GGUF_Q2_K = 10,
    GGUF_Q3_K = 11,
    GGUF_Q4_K = 12,
    GGUF_Q5_K = 13,
    GGUF_Q6_K = 14,
    GGUF_IQ4_NL = 20,
    GGUF_IQ4_XS = 23,
    GGUF_BF16 = 30
} gguf_type;

typedef struct gguf gguf;

typedef struct gguf_tensor {
    str name;
    gguf_type type;
    int ndims;
    uint64_t dims[4]; /* dims[0] is the contiguous one: a [N, K] weight has dims {K, N} */
    const void *data;
    size_t bytes;
} gguf_tensor;

/* An array value: `count` elements; strings are read with gguf_array_str. */
typedef struct gguf_array {
    uint32_t element_type; /* GGUF value type number */
    uint64_t count;
    const void *data;
    const void *end;
} gguf_array;

int gguf_open(const char *path, gguf **out, err *e);
/* The same over bytes in memory (for tests and the fuzzer); `bytes` must outlive the result. */
int gguf_open_memory(const void *bytes, size_t n, gguf **out, err *e);
void gguf_close(gguf *g);

/* false when the key is absent or not of a fitting type
 * (integers of any width fit u64 when not negative). */
bool gguf_get_u64(const gguf *g, const char *key, uint64_t *out);
bool gguf_get_f64(const gguf *g, const char *key, double *out);
bool gguf_get_bool(const gguf *g, const char *key, bool *out);
bool gguf_get_str(const gguf *g, const char *key, str *out);
bool gguf_get_array(const gguf *g, const char *key, gguf_array *out);
/* Splits an array of strings into `out`, allocated in
 * `a`, count entries; false if it is no string array. */
bool gguf_array_strs(const gguf_array *array, arena *a, str **out);
bool gguf_array_i32(const gguf_array *array, arena *a, int32_t **out); /* from any integer type */
bool gguf_array_f32(const gguf_array *array, arena *a, float **out);

/* Appends the path of shard i (from 0) to `out`, an empty buffer; `path` names shard 0. */
void gguf_shard_path(const char *path, int i, buf *out);

const gguf_tensor *gguf_find(const gguf *g, const char *name); /* NULL when absent */
size_t gguf_tensor_count(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i);
size_t gguf_file_bytes(const gguf *g);
/* The files that were opened, each shard one: their bytes, and what the system says of them now, or
 * said before any byte was read (false: it is in memory). */
size_t gguf_file_count(const gguf *g);
const uint8_t *gguf_file_data(const gguf *g, size_t i, size_t *bytes);
bool gguf_file_stat(const gguf *g, size_t i, bool opened, struct stat *out);
/* Tells the system that the mapped pages are not needed any more (after packing). */
void gguf_release_pages(const gguf *g);

/* One row of the table of tensor types: name, elements
 * and bytes of a block, and how a block run becomes f32. */
typedef struct quant_type {
    gguf_type type;
    const char *name;
    int block_elements, block_bytes;
    int levels; /* steps from the least to the largest of 32 neighbours; 0: they share no grid */
    void (*dequantize)(const void *blocks, float *out,
                       size_t elements); /* elements: a multiple of the block's */
} quant_type;

const quant_type *quant_find(uint32_t type); /* NULL: a type we do not know */
const char *
quant_type_label(uint32_t type); /* a name even for types that we refuse, for messages */
/* IEEE half precision as f32: what blocks keep their scales in. */
float quant_f16(uint16_t bits);

#endif
