/*
 * cuda_kv.c - the KV blocks of a session on the card, and those that do not fit it, in pinned host
 * memory.
 *
 * The scheduler counts `blocks` blocks; the card holds `slots` of them. Where that is fewer, a
 * part's blocks are brought in before it runs: the slots whose blocks are worth least give way, by
 * the rule of the cache on disk (how often a block is wanted, by how long it was not; all cost the
 * same and are of one size). A block that nobody owns any more goes without a copy, all others to
 * host memory, from where they come back when they are asked for. Blocks from and to the store go
 * through pinned pages. All of it travels on a stream of its own, in order: a slot or a page may be
 * given to the next block as soon as the journey from it is enqueued. Invariant: a block is on the
 * card, in host memory, or never written; between parts no compute is under way.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_int.h"

static const size_t CHUNK_BYTES = (size_t)64 << 20;

static size_t block_bytes(const cuda_kv *kv) {
    return kv->block_elements * sizeof(uint16_t);
}

static uint16_t *slot_at(const cuda_kv *kv, int32_t slot) {
    return kv->pool + (size_t)slot * kv->block_elements;
}

/* ---- lifetime -------------------------------------------------------------------------------- */

/* As many slots as the card takes, up to `most`: what
 * it refuses is asked for again, smaller by an eighth. */
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

int cuda_kv_new(cuda_kv *kv, const model_config *c, const work_size *size, int least_slots,
                err *e) {
    /* a pool that is to grow needs room for both: few blocks, or all */
    int most = BASE_MIN(size->blocks, size->device_blocks);
    int first = size->likely_blocks > most / 4 ? most : BASE_MAX(size->likely_blocks, least_slots);
    kv->blocks = size->blocks;
    kv->most = most;
    kv->wanted = size->wanted;
    kv->ctx = size->ctx;
    kv->layer_elements = (size_t)c->n_kv_heads * (size_t)c->head_dim * LLM_BLOCK_TOKENS * 2;
    kv->block_elements = kv->layer_elements * (size_t)c->n_layers;
    kv->host.chunk_pages = (int)BASE_MAX(CHUNK_BYTES / block_bytes(kv), (size_t)1);
    int code = cuda_check(slots_new(kv, BASE_MIN(most, first), BASE_MIN(most, least_slots)),
                          "memory for KV blocks", e);
    kv->most = kv->slots < BASE_MIN(most, first) ? kv->slots : most; /* there was no more */
    return code != 0 ? code : cuda_check(copy_stream_new(kv), "a stream for KV blocks", e);
}

static int32_t *numbers(int count) {
    int32_t *list = mem_alloc(sizeof *list * (size_t)count);
    memset(list, 0xff, sizeof *list * (size_t)count); /* -1 */
    return list;
}

/* All slots are taken, each by the block of its number. */
static void paging_begin(cuda_kv *kv) {
    size_t slots = (size_t)kv->slots;
    kv->paged = true;
    kv->slot_of = numbers(kv->blocks);
    kv->block_in = numbers(kv->slots);
    kv->free_slots = numbers(kv->slots);
    kv->used = mem_zalloc(sizeof *kv->used * slots);
    kv->victims = mem_alloc(sizeof *kv->victims * slots);
    kv->host.page_of = numbers(kv->blocks);
    kv->host.free_pages = numbers(kv->blocks);
    kv->host.chunks = mem_zalloc(sizeof *kv->host.chunks * (size_t)kv->blocks);
    kv->host.budget = kv->blocks - kv->slots;
    for (int32_t i = 0; i < kv->slots; i++) {
        kv->slot_of[i] = kv->block_in[i] = i;
    }
}

/* As many slots as there may be, with what they
 * hold; where memory is short they stay as they are. */
static cudaError_t pool_grow(cuda_kv *kv) {
    uint16_t *old = kv->pool;
    int slots = kv->slots;
    cudaError_t status = slots_new(kv, kv->most, slots + 1);
    kv->most = kv->slots;
    if (status == cudaErrorMemoryAllocation) {
        kv->most = kv->slots = slots;
        return cudaSuccess;
    }
    if (status == cudaSuccess) { /* behind all that still travels to the old one */
        status = cudaMemcpyAsync(kv->pool, old, (size_t)slots * block_bytes(kv),
                                 cudaMemcpyDeviceToDevice, kv->copy);
    }
    if (status == cudaSuccess) {
        status = cudaStreamSynchronize(kv->copy);
    }
    cudaFree(old);
    kv->moved = true;
    return status;
}

cudaError_t cuda_kv_reach(cuda_kv *kv, int32_t highest) {
    cudaError_t status = cudaSuccess;
    if (!kv->paged && highest >= kv->slots && kv->slots < kv->most) {
        status = pool_grow(kv);
    }
    if (status == cudaSuccess && !kv->paged && highest >= kv->slots) {
        paging_begin(kv);
    }
    return status;
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
    for (int i = 0; i < kv->host.nchunks; i++) {
        cudaFreeHost(kv->host.chunks[i]);
    }
    cudaFree(kv->pool);
    free(kv->slot_of);
    free(kv->block_in);
    free(kv->free_slots);
    free(kv->used);
    free(kv->victims);
    free(kv->host.chunks);
    free(kv->host.page_of);
    free(kv->host.free_pages);
    *kv = (cuda_kv){0};
}

/* ---- host memory ----------------------------------------------------------------------------- */

static bool is_nobodys(const cuda_kv *kv, int32_t block) {
    return kv->wanted != NULL && kv->wanted(kv->ctx, block) < 0;
}

static char *page_at(const cuda_kv *kv, int32_t page) {
    const host_tier *h = &kv->host;
    return h->chunks[page / h->chunk_pages] + (size_t)(page % h->chunk_pages) * block_bytes(kv);
}

static void page_give(host_tier *h, int32_t block) {
    h->free_pages[h->nfree++] = h->page_of[block];
    h->page_of[block] = -1;
}

/* Pages are numbered by chunk; the last within the budget may be short. */
static cudaError_t chunk_new(cuda_kv *kv) {
    host_tier *h = &kv->host;
    int left = (h->made < h->budget ? h->budget : kv->blocks) - h->made;
    int pages = BASE_MIN(h->chunk_pages, left), first = h->nchunks * h->chunk_pages;
    void *at = NULL;
    cudaError_t status = cudaMallocHost(&at, (size_t)pages * block_bytes(kv));
    if (status != cudaSuccess) {
        return status;
    }
    h->chunks[h->nchunks++] = at;
    for (int i = 0; i < pages; i++) {
        h->free_pages[h->nfree++] = first + i;
    }
    h->made += pages;
    return cudaSuccess;
}

/* A page for a block that leaves the card. Within the budget one is always to be had: no more
 * blocks have an owner than the card and the budget hold; unless the card held fewer than it was
 * asked for, which host memory makes up for. */
static cudaError_t page_take(cuda_kv *kv, int32_t block) {
    host_tier *h = &kv->host;
    if (h->nfree == 0 && h->made >= h->budget) {
        for (int32_t b = 0; b < kv->blocks; b++) {
            if (h->page_of[b] >= 0 && is_nobodys(kv, b)) {
                page_give(h, b);
            }
        }
    }
    cudaError_t status = h->nfree == 0 ? chunk_new(kv) : cudaSuccess;
    if (status == cudaSuccess) {
        h->page_of[block] = h->free_pages[--h->nfree];
    }
    return status;
}

/* ---- paging ---------------------------------------------------------------------------------- */

static double slot_worth(const cuda_kv *kv, int32_t slot) {
    int wanted = kv->wanted != NULL ? kv->wanted(kv->ctx, kv->block_in[slot]) : 0;
    return wanted < 0
               ? -INFINITY
               : worth_of(wanted, 1, (double)(kv->clock - kv->used[slot]), (double)kv->slots);
}

static int by_rank(const void *a, const void *b) {
    const slot_rank *x = a, *y = b;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : x->slot - y->slot;
}

static cudaError_t slot_empty(cuda_kv *kv, int32_t slot) {
    int32_t block = kv->block_in[slot];
    if (is_nobodys(kv, block)) {
        kv->dropped++;
    } else {
        cudaError_t status = page_take(kv, block);
        if (status == cudaSuccess) {
            status = cudaMemcpyAsync(page_at(kv, kv->host.page_of[block]), slot_at(kv, slot),
                                     block_bytes(kv), cudaMemcpyDeviceToHost, kv->copy);
        }
        if (status != cudaSuccess) {
            return status;
        }
        kv->moved_out++;
    }
    kv->slot_of[block] = kv->block_in[slot] = -1;
    kv->free_slots[kv->nfree++] = slot;
    return cudaSuccess;
}

/* At least `need` free slots, and some for the parts to come: ranking all of them is not for every
 * part. Those used at this moment of the clock stay. */
static cudaError_t slots_free(cuda_kv *kv, int need) {
    if (kv->nfree >= need) {
        return cudaSuccess;
    }
    int n = 0;
    for (int32_t i = 0; i < kv->slots; i++) {
        if (kv->block_in[i] >= 0 && kv->used[i] != kv->clock) {
            kv->victims[n++] = (slot_rank){slot_worth(kv, i), i};
        }
    }
    if (kv->nfree + n < need) {
        return cudaErrorMemoryAllocation; /* the caller promised that they fit */
    }
    qsort(kv->victims, (size_t)n, sizeof *kv->victims, by_rank);
    int spare = need + kv->slots / 32;
    cudaError_t status = cudaSuccess;
    for (int i = 0; i < n && kv->nfree < spare && status == cudaSuccess; i++) {
        status = slot_empty(kv, kv->victims[i].slot);
    }
    return kv->nfree >= need ? cudaSuccess : status;
}

/* A slot for the block; `content`: with what it had, if anything. On the copy stream. */
static cudaError_t block_bring(cuda_kv *kv, int32_t block, bool content) {
    host_tier *h = &kv->host;
    int32_t slot = kv->slot_of[block];
    cudaError_t status = cudaSuccess;
    if (slot < 0) {
        status = slots_free(kv, 1);
        if (status != cudaSuccess) {
            return status;
        }
        slot = kv->free_slots[--kv->nfree];
        if (content && h->page_of[block] >= 0) {
            status = cudaMemcpyAsync(slot_at(kv, slot), page_at(kv, h->page_of[block]),
                                     block_bytes(kv), cudaMemcpyHostToDevice, kv->copy);
            kv->moved_in++;
        }
        kv->slot_of[block] = slot;
        kv->block_in[slot] = block;
    }
    if (h->page_of[block] >= 0) {
        page_give(h, block);
    }
    kv->used[slot] = kv->clock;
    return status;
}

int cuda_kv_bring(cuda_kv *kv, const int32_t *blocks, size_t n, err *e) {
    if (!kv->paged) {
        return 0;
    }
    kv->clock += n;
    int missing = 0;
    for (size_t i = 0; i < n; i++) { /* what is here stays here */
        int32_t slot = kv->slot_of[blocks[i]];
        if (slot >= 0) {
            kv->used[slot] = kv->clock;
        }
        missing += slot < 0;
    }
    cudaError_t status = slots_free(kv, missing);
    for (size_t i = 0; i < n && status == cudaSuccess; i++) {
        status = block_bring(kv, blocks[i], true);
    }
    if (status == cudaSuccess) {
        status = cudaEventRecord(kv->arrived, kv->copy);
    }
    return cuda_check(status, "moving KV blocks between the card and host memory", e);
}

/* ---- blocks from and to the store ------------------------------------------------------------ */

/* From pinned memory to the block, on the copy stream; `left` is recorded behind it, and
 * cuda_forward waits for `arrived`. */
static cudaError_t block_send(cuda_kv *kv, int32_t block, const void *pinned, cudaEvent_t left) {
    cudaError_t status = cuda_kv_reach(kv, block);
    if (status == cudaSuccess && kv->paged) {
        kv->clock++;
        status = block_bring(kv, block, false);
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
        if (kv->host.page_of[block] < 0) {
            return cudaErrorInvalidValue; /* never written */
        }
        cudaError_t status = cudaStreamSynchronize(kv->copy); /* its journey out */
        memcpy(out, page_at(kv, kv->host.page_of[block]), block_bytes(kv));
        return status;
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
