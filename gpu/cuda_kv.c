/*
 * cuda_kv.c - the KV blocks of a session on the card, and those that do not fit it, in host memory.
 *
 * The scheduler counts `blocks` blocks; the card holds `slots` of them. Where that is fewer, a part's blocks are
 * brought in before it runs: the slots used longest ago give way, their content goes to pinned host memory and comes
 * back when it is asked for. Blocks from and to the disk's store go through pinned buffers on a stream of their own,
 * so that they travel while the card computes.
 * Invariant: a block is on the card, in host memory, or never written; between parts no copy out is under way.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_int.h"

static size_t block_bytes(const cuda_kv *kv) {
    return kv->block_elements * sizeof(uint16_t);
}

static uint16_t *slot_at(const cuda_kv *kv, int32_t slot) {
    return kv->pool + (size_t)slot * kv->block_elements;
}

/* ---- lifetime ---------------------------------------------------------------------------------- */

/* As many slots as the card takes, up to `most`: what it refuses is asked for again, smaller by an eighth. */
static cudaError_t slots_new(cuda_kv *kv, int most, int least) {
    cudaError_t status = cudaErrorMemoryAllocation;
    for (int slots = most; slots >= least; slots = slots - BASE_MAX(slots / 8, 1)) {
        kv->slots = slots;
        void *at = NULL;
        status = cudaMalloc(&at, (size_t)slots * block_bytes(kv));
        if (status == cudaSuccess) {
            kv->pool = at;
            status = cudaMemset(
                at, 0, (size_t)slots * block_bytes(kv)); /* unwritten values are read, times 0 */
            return status == cudaSuccess ? cudaDeviceSynchronize() : status;
        }
        cudaGetLastError(); /* taken note of */
        if (status != cudaErrorMemoryAllocation) {
            return status;
        }
    }
    return status;
}

static cudaError_t copy_stream_new(cuda_kv *kv) {
    cudaError_t status = cudaStreamCreateWithFlags(&kv->copy, cudaStreamNonBlocking);
    if (status == cudaSuccess) {
        status = cudaEventCreateWithFlags(&kv->arrived, cudaEventDisableTiming);
    }
    for (int i = 0; i < CUDA_STAGES && status == cudaSuccess; i++) {
        status = cudaMallocHost((void **)&kv->stages[i], block_bytes(kv));
        if (status == cudaSuccess) {
            status = cudaEventCreateWithFlags(&kv->staged[i], cudaEventDisableTiming);
        }
    }
    return status;
}

int cuda_kv_new(cuda_kv *kv, const model_config *c, int blocks, int least_slots, int most_slots,
                err *e) {
    kv->blocks = blocks;
    kv->layer_elements = (size_t)c->n_kv_heads * (size_t)c->head_dim * LLM_BLOCK_TOKENS * 2;
    kv->block_elements = kv->layer_elements * (size_t)c->n_layers;
    int code =
        cuda_check(slots_new(kv, BASE_MIN(blocks, most_slots), BASE_MIN(blocks, least_slots)),
                   "memory for KV blocks", e);
    code = code != 0 ? code : cuda_check(copy_stream_new(kv), "a stream for KV blocks", e);
    if (code != 0) {
        return code;
    }
    kv->paged = kv->slots < kv->blocks;
    if (!kv->paged) {
        return 0;
    }
    kv->slot_of = mem_alloc(sizeof *kv->slot_of * (size_t)blocks);
    kv->block_in = mem_alloc(sizeof *kv->block_in * (size_t)kv->slots);
    kv->used = mem_zalloc(sizeof *kv->used * (size_t)kv->slots);
    kv->host = mem_zalloc(sizeof *kv->host * (size_t)blocks);
    memset(kv->slot_of, 0xff, sizeof *kv->slot_of * (size_t)blocks);
    memset(kv->block_in, 0xff, sizeof *kv->block_in * (size_t)kv->slots);
    return 0;
}

void cuda_kv_free(cuda_kv *kv) {
    if (kv->copy != NULL) {
        cudaStreamSynchronize(kv->copy); /* nothing may still read the pinned memory */
    }
    for (int i = 0; i < CUDA_STAGES; i++) {
        cudaFreeHost(kv->stages[i]);
        if (kv->staged[i] != NULL) {
            cudaEventDestroy(kv->staged[i]);
        }
    }
    for (int i = 0; i < LOAD_PAGES; i++) {
        cudaFreeHost(kv->pages[i]);
        if (kv->page_sent[i] != NULL) {
            cudaEventDestroy(kv->page_sent[i]);
        }
    }
    if (kv->arrived != NULL) {
        cudaEventDestroy(kv->arrived);
    }
    if (kv->copy != NULL) {
        cudaStreamDestroy(kv->copy);
    }
    for (int i = 0; kv->host != NULL && i < kv->blocks; i++) {
        cudaFreeHost(kv->host[i]);
    }
    cudaFree(kv->pool);
    free(kv->slot_of);
    free(kv->block_in);
    free(kv->used);
    free(kv->host);
    *kv = (cuda_kv){0};
}

/* ---- paging ------------------------------------------------------------------------------------ */

/* The slot used longest ago that this part does not need; a free one first. */
static int32_t slot_choose(const cuda_kv *kv) {
    int32_t best = -1;
    for (int32_t i = 0; i < kv->slots; i++) {
        if (kv->block_in[i] < 0) {
            return i;
        }
        if (kv->used[i] < kv->part && (best < 0 || kv->used[i] < kv->used[best])) {
            best = i;
        }
    }
    return best;
}

static cudaError_t slot_empty(cuda_kv *kv, int32_t slot) {
    int32_t block = kv->block_in[slot];
    if (block < 0) {
        return cudaSuccess;
    }
    cudaError_t status = cudaSuccess;
    if (kv->host[block] == NULL) {
        status = cudaMallocHost((void **)&kv->host[block], block_bytes(kv));
    }
    if (status == cudaSuccess) {
        status = cudaMemcpyAsync(kv->host[block], slot_at(kv, slot), block_bytes(kv),
                                 cudaMemcpyDeviceToHost, kv->copy);
    }
    if (status == cudaSuccess) {
        kv->slot_of[block] = kv->block_in[slot] = -1;
        kv->moved_out++;
    }
    return status;
}

/* A slot for the block, with the content that it had, if any; on the copy stream. */
static cudaError_t block_bring(cuda_kv *kv, int32_t block) {
    int32_t slot = kv->slot_of[block];
    cudaError_t status = cudaSuccess;
    if (slot < 0) {
        slot = slot_choose(kv);
        if (slot < 0) {
            return cudaErrorMemoryAllocation; /* the caller promised that they fit */
        }
        status = slot_empty(kv, slot);
        if (status == cudaSuccess && kv->host[block] != NULL) {
            status = cudaMemcpyAsync(slot_at(kv, slot), kv->host[block], block_bytes(kv),
                                     cudaMemcpyHostToDevice, kv->copy);
            kv->moved_in++;
        }
        if (status == cudaSuccess) {
            kv->slot_of[block] = slot;
            kv->block_in[slot] = block;
        }
    }
    kv->used[slot] = kv->part;
    return status;
}

int cuda_kv_bring(cuda_kv *kv, const int32_t *blocks, size_t n, err *e) {
    if (!kv->paged) {
        return 0;
    }
    kv->part++;
    for (size_t i = 0; i < n; i++) { /* what is here stays here */
        if (kv->slot_of[blocks[i]] >= 0) {
            kv->used[kv->slot_of[blocks[i]]] = kv->part;
        }
    }
    cudaError_t status = cudaSuccess;
    for (size_t i = 0; i < n && status == cudaSuccess; i++) {
        status = block_bring(kv, blocks[i]);
    }
    if (status == cudaSuccess) {
        status = cudaStreamSynchronize(kv->copy);
    }
    return cuda_check(status, "moving KV blocks between the card and host memory", e);
}

/* ---- blocks from and to the store -------------------------------------------------------------- */

/* From pinned memory to the block, on the copy stream; `left` is recorded behind it, and cuda_forward waits for
 * `arrived`. */
static cudaError_t block_send(cuda_kv *kv, int32_t block, const void *pinned, cudaEvent_t left) {
    cudaError_t status = cudaSuccess;
    if (kv->paged) {
        kv->part++;
        status = block_bring(kv, block);
    }
    if (status == cudaSuccess) {
        status = cudaMemcpyAsync(slot_at(kv, cuda_kv_slot(kv, block)), pinned, block_bytes(kv),
                                 cudaMemcpyHostToDevice, kv->copy);
    }
    if (status == cudaSuccess) {
        status = cudaEventRecord(left, kv->copy);
    }
    return status == cudaSuccess ? cudaEventRecord(kv->arrived, kv->copy) : status;
}

/* Returns as soon as the bytes are in a pinned buffer. */
cudaError_t cuda_kv_put(cuda_kv *kv, int32_t block, const void *in) {
    int stage = kv->stage;
    kv->stage = (stage + 1) % CUDA_STAGES;
    cudaError_t status = cudaEventSynchronize(kv->staged[stage]); /* the buffer's last journey */
    if (status != cudaSuccess) {
        return status;
    }
    memcpy(kv->stages[stage], in, block_bytes(kv));
    return block_send(kv, block, kv->stages[stage], kv->staged[stage]);
}

void *cuda_kv_page(cuda_kv *kv, int page) {
    if (kv->pages[page] == NULL) {
        void *at = NULL;
        if (cudaMallocHost(&at, block_bytes(kv)) != cudaSuccess ||
            cudaEventCreateWithFlags(&kv->page_sent[page], cudaEventDisableTiming) != cudaSuccess) {
            cudaGetLastError(); /* plain memory will do */
            cudaFreeHost(at);
            return NULL;
        }
        kv->pages[page] = at;
    }
    return cudaEventSynchronize(kv->page_sent[page]) == cudaSuccess ? kv->pages[page] : NULL;
}

cudaError_t cuda_kv_send(cuda_kv *kv, int page, int32_t block) {
    return block_send(kv, block, kv->pages[page], kv->page_sent[page]);
}

cudaError_t cuda_kv_get(cuda_kv *kv, int32_t block, void *out) {
    if (kv->paged && kv->slot_of[block] < 0) {
        if (kv->host[block] == NULL) {
            return cudaErrorInvalidValue; /* never written */
        }
        memcpy(out, kv->host[block], block_bytes(kv));
        return cudaSuccess;
    }
    int stage = kv->stage;
    cudaError_t status = cudaEventSynchronize(kv->staged[stage]);
    if (status == cudaSuccess) {
        status = cudaMemcpyAsync(kv->stages[stage], slot_at(kv, cuda_kv_slot(kv, block)),
                                 block_bytes(kv), cudaMemcpyDeviceToHost, kv->copy);
    }
    if (status == cudaSuccess) {
        status = cudaStreamSynchronize(kv->copy);
    }
    if (status == cudaSuccess) {
        memcpy(out, kv->stages[stage], block_bytes(kv));
    }
    return status;
}
