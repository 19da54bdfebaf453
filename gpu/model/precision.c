/*
 * precision.c - the names of weight precisions and KV types, in SET, side files and fingerprints.
 */
#include "gpu/llm.h"

const char *llm_precision_name(llm_precision precision) {
    static const char *const names[] = {[LLM_PRECISION_AUTO] = "auto",
                                        [LLM_F32] = "f32",
                                        [LLM_BF16] = "bf16",
                                        [LLM_INT8] = "int8",
                                        [LLM_INT8X2] = "int8x2"};
    BASE_COVERS(names, LLM_PRECISIONS);
    return names[precision];
}

const char *llm_kv_dtype_name(llm_kv_dtype dtype) {
    static const char *const names[] = {
        [LLM_KV_BF16] = "bf16", [LLM_KV_F32] = "f32", [LLM_KV_INT8] = "int8"};
    BASE_COVERS(names, LLM_KV_DTYPES);
    return names[dtype];
}
