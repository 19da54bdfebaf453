/*
 * gguf_int.h - a GGUF file (versions 2 and 3), mapped read-only: its key-value pairs and tensors.
 *
 * Owns the mappings and their file descriptors; pointers that it returns point into them and live
 * until gguf_close. Every count, length, offset and enum is checked before it is used, against the
 * file's size and against fixed limits: a bad file gives ERR_CORRUPT with the reason (fuzzed). A
 * sharded file is opened by its first shard ("-00001-of-00003.gguf"). Specification:
 * github.com/ggml-org/ggml, docs/gguf.md.
 */
#ifndef KVASIR_GGUF_INT_H
#define KVASIR_GGUF_INT_H

#include <sys/stat.h>

#include "storage/base.h"

/* Tensor types, by their numbers in the file. */
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
    uint64_t dims[4]; /* dims[0] is contiguous: an [N, K] weight has dims {K, N} */
    const void *data;
    size_t bytes;
} gguf_tensor;

/* An array value; read with gguf_array_strs, gguf_array_i32 or gguf_array_f32. */
typedef struct gguf_array {
    uint32_t element_type; /* GGUF value type of the elements, by its number in the file */
    uint64_t count;
    const void *data;
    const void *end;
} gguf_array;

int gguf_open(const char *path, gguf **out, err *e);
/* The same for a file in memory (tests, fuzzer); `bytes` must outlive the result. */
int gguf_open_memory(const void *bytes, size_t n, gguf **out, err *e);
void gguf_close(gguf *g);

/* Get the value of a key. false: the key is absent or its value has another type. gguf_get_u64
 * accepts integers of any width that are not negative; gguf_get_f64 accepts integers. */
bool gguf_get_u64(const gguf *g, const char *key, uint64_t *out);
bool gguf_get_f64(const gguf *g, const char *key, double *out);
bool gguf_get_bool(const gguf *g, const char *key, bool *out);
bool gguf_get_str(const gguf *g, const char *key, str *out);
bool gguf_get_array(const gguf *g, const char *key, gguf_array *out);
/* Set *out to the array's `count` elements, allocated in `a`. false: the elements have another
 * type. gguf_array_i32 accepts all integer types; it also returns false if a value does not fit. */
bool gguf_array_strs(const gguf_array *array, arena *a, str **out);
bool gguf_array_i32(const gguf_array *array, arena *a, int32_t **out);
bool gguf_array_f32(const gguf_array *array, arena *a, float **out);

/* Appends the path of shard i (from 0) to the empty buffer `out`; `path` is that of shard 0. */
void gguf_shard_path(const char *path, int i, buf *out);

const gguf_tensor *gguf_find(const gguf *g, const char *name); /* NULL when absent */
size_t gguf_tensor_count(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i);
size_t gguf_file_bytes(const gguf *g);
size_t gguf_file_count(const gguf *g); /* number of opened files, one per shard */
/* Returns the mapped bytes of file i and sets *bytes to their number. */
const uint8_t *gguf_file_data(const gguf *g, size_t i, size_t *bytes);
/* Sets *out to the fstat of file i: when it was opened (`opened`), or now. false: the file is in
 * memory. */
bool gguf_file_stat(const gguf *g, size_t i, bool opened, struct stat *out);
/* Lets the system drop the mapped pages, after packing; they can still be read. */
void gguf_release_pages(const gguf *g);

/* A row of the table of tensor types. */
typedef struct quant_type {
    gguf_type type;
    const char *name;
    int block_elements, block_bytes;
    /* number of grid steps from the lowest to the highest value that a group of 32 neighbours can
     * have; 0: a group has no common grid */
    int levels;
    /* Converts `elements` elements, a multiple of the block's, to f32. */
    void (*dequantize)(const void *blocks, float *out, size_t elements);
} quant_type;

const quant_type *quant_find(uint32_t type); /* NULL: not supported */
const char *quant_type_label(uint32_t type); /* a name for messages, also if not supported */
float quant_f16(uint16_t bits);              /* IEEE half precision to f32 */

#endif
