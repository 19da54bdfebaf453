/*
 * cuda_kv.c - a session's KV blocks: those on the card, and the rest in pinned host memory.
 *
 * The scheduler numbers `blocks` blocks; the card holds `slots` of them. If there are fewer slots
 * than blocks, a part's blocks are copied to the card before the part runs. Known blocks of the
 * next part are copied while the part runs. The blocks with the lowest worth are evicted. The worth
 * is the retention score, as in the disk cache: it depends on how often a block is wanted and how
 * long it was unused. (Here all blocks have the same size and cost.)
 *
 * An evicted block that the session has freed is dropped. Other evicted blocks are kept in host
 * memory until they are needed again. Blocks read from and written to the store also go through
 * pinned memory. All copies are enqueued on one stream and run in order, so a copy may overwrite a
 * slot or page that an earlier copy reads.
 *
 * Invariants: a block is on the card, in host memory, or never written. At most one part runs at a
 * time. A slot that the running part uses is evicted only after the copy stream was made to wait
 * for the end of the part.
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

/* Allocates at most `most` slots. After each failed attempt, tries an eighth fewer, down to
 * `least`. */
static cudaError_t slots_new(cuda_kv *kv, int most, int least) {
    cudaError_t status = cudaErrorMemoryAllocation;
    for (int slots = most; slots >= least; slots = slots - BASE_MAX(slots / 8, 1)) {
        kv->slots = slots;
        void *at = NULL;
        status = cudaMalloc(&at, (size_t)slots * block_bytes(kv));
        if (status == cudaSuccess) {
            kv->pool = at;
            /* attention reads unwritten values and multiplies them by 0, so they must be finite */
            status = cudaMemset(at, 0, (size_t)slots * block_bytes(kv));
            return status == cudaSuccess ? cudaDeviceSynchronize() : status;
        }
        cudaGetLastError(); /* clears the error */
        if (status != cudaErrorMemoryAllocation)
            return status;
    }
    return status;
}

static cudaError_t copy_stream_new(cuda_kv *kv) {
    cudaError_t status = cudaStreamCreateWithFlags(&kv->copy, cudaStreamNonBlocking);
    if (status == cudaSuccess)
        status = cudaEventCreateWithFlags(&kv->computed, cudaEventDisableTiming);
    for (int i = 0; i < CUDA_TRIPS && status == cudaSuccess; i++)
        status = cudaEventCreateWithFlags(&kv->ended[i], cudaEventDisableTiming);
    for (int i = 0; i < CUDA_STAGES && status == cudaSuccess; i++) {
        status = cudaMallocHost((void **)&kv->stages[i], block_bytes(kv));
        if (status == cudaSuccess)
            status = cudaEventCreateWithFlags(&kv->staged[i], cudaEventDisableTiming);
    }
    return status;
}

int cuda_kv_new(cuda_kv *kv, const model_config *c, const work_size *size, int least_slots,
                err *e) {
    /* growing needs memory for the old and the new pool: start with a quarter at most, or with
     * all */
    int most = BASE_MIN(size->blocks, size->device_blocks);
    int first = size->likely_blocks > most / 4 ? most : BASE_MAX(size->likely_blocks, least_slots);
    kv->blocks = size->blocks;
    kv->most = most;
    kv->wanted = size->wanted;
    kv->life = size->life;
    kv->ctx = size->ctx;
    kv->layer_elements = (size_t)c->n_kv_heads * (size_t)c->head_dim * LLM_BLOCK_TOKENS * 2;
    kv->block_elements = kv->layer_elements * (size_t)c->n_layers;
    kv->host.chunk_pages = (int)BASE_MAX(CHUNK_BYTES / block_bytes(kv), (size_t)1);
    int code = cuda_check(slots_new(kv, BASE_MIN(most, first), BASE_MIN(most, least_slots)),
                          "memory for KV blocks", e);
    /* if memory was short, the pool will not grow */
    kv->most = kv->slots < BASE_MIN(most, first) ? kv->slots : most;
    return code != 0 ? code : cuda_check(copy_stream_new(kv), "creating a stream for KV blocks", e);
}

static int32_t *numbers(int count) {
    int32_t *list = mem_alloc(sizeof *list * (size_t)count);
    memset(list, 0xff, sizeof *list * (size_t)count); /* -1 */
    return list;
}

/* Begins paging: every slot holds the block of the same number. */
static void paging_begin(cuda_kv *kv) {
    size_t slots = (size_t)kv->slots;
    kv->paged = true;
    kv->slot_of = numbers(kv->blocks);
    kv->block_in = numbers(kv->slots);
    kv->free_slots = numbers(kv->slots);
    kv->used = mem_zalloc(sizeof *kv->used * slots);
    kv->part_of = mem_zalloc(sizeof *kv->part_of * slots);
    kv->trip_of = mem_alloc(sizeof *kv->trip_of * slots);
    kv->victims = mem_alloc(sizeof *kv->victims * slots);
    kv->host.page_of = numbers(kv->blocks);
    kv->host.life = mem_zalloc(sizeof *kv->host.life * (size_t)kv->blocks);
    kv->host.free_pages = numbers(kv->blocks);
    kv->host.chunks = mem_zalloc(sizeof *kv->host.chunks * (size_t)kv->blocks);
    kv->host.budget = kv->blocks - kv->slots;
    for (int32_t i = 0; i < kv->slots; i++) {
        kv->slot_of[i] = kv->block_in[i] = i;
        /* trips were not recorded before paging, so assume the last trip */
        kv->trip_of[i] = kv->trips;
    }
}

/* Grows the pool to kv->most slots and keeps its content. If memory is short, the pool stays as it
 * is. */
static cudaError_t pool_grow(cuda_kv *kv) {
    uint16_t *old = kv->pool;
    int slots = kv->slots;
    cudaError_t status = slots_new(kv, kv->most, slots + 1);
    kv->most = kv->slots;
    if (status == cudaErrorMemoryAllocation) {
        kv->most = kv->slots = slots;
        return cudaSuccess;
    }
    if (status == cudaSuccess) {
        /* on kv->copy, so that it runs after the pending copies to the old pool */
        status = cudaMemcpyAsync(kv->pool, old, (size_t)slots * block_bytes(kv),
                                 cudaMemcpyDeviceToDevice, kv->copy);
    }
    if (status == cudaSuccess)
        status = cudaStreamSynchronize(kv->copy);
    cudaFree(old);
    kv->moved = true;
    return status;
}

cudaError_t cuda_kv_reach(cuda_kv *kv, int32_t highest) {
    cudaError_t status = cudaSuccess;
    if (!kv->paged && highest >= kv->slots && kv->slots < kv->most)
        status = pool_grow(kv);
    if (status == cudaSuccess && !kv->paged && highest >= kv->slots)
        paging_begin(kv);
    return status;
}

void cuda_kv_free(cuda_kv *kv) {
    if (kv->copy != NULL)
        cudaStreamSynchronize(kv->copy); /* nothing may still read the pinned memory */
    for (int i = 0; i < CUDA_STAGES; i++) {
        cudaFreeHost(kv->stages[i]);
        if (kv->staged[i] != NULL)
            cudaEventDestroy(kv->staged[i]);
    }
    for (int i = 0; i < KV_PAGES; i++) {
        cudaFreeHost(kv->pages[i]);
        if (kv->page_sent[i] != NULL)
            cudaEventDestroy(kv->page_sent[i]);
    }
    for (int i = 0; i < CUDA_TRIPS; i++)
        if (kv->ended[i] != NULL)
            cudaEventDestroy(kv->ended[i]);
    if (kv->computed != NULL)
        cudaEventDestroy(kv->computed);
    if (kv->copy != NULL)
        cudaStreamDestroy(kv->copy);
    for (int i = 0; i < kv->host.nchunks; i++)
        cudaFreeHost(kv->host.chunks[i]);
    cudaFree(kv->pool);
    free(kv->slot_of);
    free(kv->block_in);
    free(kv->free_slots);
    free(kv->used);
    free(kv->part_of);
    free(kv->trip_of);
    free(kv->victims);
    free(kv->host.chunks);
    free(kv->host.page_of);
    free(kv->host.life);
    free(kv->host.free_pages);
    *kv = (cuda_kv){0};
}

/* ---- host memory ----------------------------------------------------------------------------- */

/* True if the session has freed the block, so that its content is no longer needed. */
static bool is_unowned(const cuda_kv *kv, int32_t block) {
    return kv->wanted != NULL && kv->wanted(kv->ctx, block) < 0;
}

static char *page_at(const cuda_kv *kv, int32_t page) {
    const host_tier *h = &kv->host;
    return h->chunks[page / h->chunk_pages] + (size_t)(page % h->chunk_pages) * block_bytes(kv);
}

static void page_release(host_tier *h, int32_t block) {
    h->free_pages[h->nfree++] = h->page_of[block];
    h->page_of[block] = -1;
}

/* Allocates another chunk of pages. Page numbers are chunk number * chunk_pages + index; the chunk
 * that reaches the budget may have fewer pages. */
static cudaError_t chunk_new(cuda_kv *kv) {
    host_tier *h = &kv->host;
    int left = (h->made < h->budget ? h->budget : kv->blocks) - h->made;
    int pages = BASE_MIN(h->chunk_pages, left), first = h->nchunks * h->chunk_pages;
    void *at = NULL;
    cudaError_t status = cudaMallocHost(&at, (size_t)pages * block_bytes(kv));
    if (status != cudaSuccess)
        return status;
    h->chunks[h->nchunks++] = at;
    for (int i = 0; i < pages; i++)
        h->free_pages[h->nfree++] = first + i;
    h->made += pages;
    return cudaSuccess;
}

static uint32_t life_of(const cuda_kv *kv, int32_t block) {
    return kv->life != NULL ? kv->life(kv->ctx, block) : 0;
}

/* True if a page holds the block's current content. */
static bool has_content(const cuda_kv *kv, int32_t block) {
    return kv->host.page_of[block] >= 0 && kv->host.life[block] == life_of(kv, block);
}

static void pages_reclaim(cuda_kv *kv) {
    for (int32_t b = 0; b < kv->blocks; b++)
        if (kv->host.page_of[b] >= 0 && (is_unowned(kv, b) || !has_content(kv, b)))
            page_release(&kv->host, b);
    kv->host.reclaimed = kv->clock;
}

static bool pages_used_up(const cuda_kv *kv) {
    return kv->host.nfree == 0 && kv->host.made >= kv->host.budget;
}

/* Takes a page for a block that is evicted. The budget normally suffices, since slots and budget
 * together hold all blocks. If it does not, pages beyond it are allocated. */
static cudaError_t page_take(cuda_kv *kv, int32_t block) {
    host_tier *h = &kv->host;
    if (pages_used_up(kv))
        pages_reclaim(kv);
    cudaError_t status = h->nfree == 0 ? chunk_new(kv) : cudaSuccess;
    if (status == cudaSuccess) {
        h->page_of[block] = h->free_pages[--h->nfree];
        h->life[block] = life_of(kv, block);
    }
    return status;
}

/* ---- trips ----------------------------------------------------------------------------------- */

/* Notes that a copy to or from the slot belongs to the current trip. */
static void slot_join_trip(cuda_kv *kv, int32_t slot) {
    kv->trip_open = true;
    if (kv->paged)
        kv->trip_of[slot] = kv->trips + 1;
}

static cudaError_t trip_end(cuda_kv *kv) {
    if (!kv->trip_open)
        return cudaSuccess;
    kv->trip_open = false;
    kv->trips++;
    return cudaEventRecord(kv->ended[kv->trips % CUDA_TRIPS], kv->copy);
}

/* Makes the stream wait for the needed trip. Events of old trips are reused: for such a trip, the
 * stream waits for the oldest trip that still has its event, which ends later. */
cudaError_t cuda_kv_wait(cuda_kv *kv, cudaStream_t stream) {
    uint64_t trip = kv->paged ? kv->needed : kv->trips;
    uint64_t known = kv->trips > CUDA_TRIPS ? kv->trips - CUDA_TRIPS + 1 : 1;
    if (trip <= kv->waited)
        return cudaSuccess;
    kv->waited = BASE_MAX(trip, known);
    return cudaStreamWaitEvent(stream, kv->ended[kv->waited % CUDA_TRIPS], 0);
}

cudaError_t cuda_kv_begin(cuda_kv *kv, cudaStream_t stream) {
    kv->computing = kv->paged;
    return kv->paged ? cudaEventRecord(kv->computed, stream) : cudaSuccess;
}

void cuda_kv_end(cuda_kv *kv) {
    kv->computing = kv->copy_waits = false;
}

/* True if the running part uses the slot. */
static bool in_flight(const cuda_kv *kv, int32_t slot) {
    return kv->computing && kv->part_of[slot] == kv->part;
}

/* Makes the copy stream wait for the end of the running part. */
static cudaError_t part_await(cuda_kv *kv) {
    if (!kv->computing || kv->copy_waits)
        return cudaSuccess;
    kv->copy_waits = true;
    return cudaStreamWaitEvent(kv->copy, kv->computed, 0);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Returns the worth of the block: its retention score, as in the disk cache. Blocks that the
 * session has freed are evicted first. */
static double block_worth(const cuda_kv *kv, int32_t block, uint64_t unused) {
    int wanted = kv->wanted != NULL ? kv->wanted(kv->ctx, block) : 0;
    return wanted < 0 ? -INFINITY : retention_score(wanted, 1, (double)unused, (double)kv->slots);
}

static int by_rank(const void *a, const void *b) {
    const slot_rank *x = a, *y = b;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : x->slot - y->slot;
}

/* True if the slot's block may be evicted now: it is not used at the current clock, and it is not a
 * block of the running part unless the copy stream waits for the end of this part. */
static bool may_empty(const cuda_kv *kv, int32_t slot) {
    return kv->block_in[slot] >= 0 && kv->used[slot] != kv->clock &&
           (kv->copy_waits || !in_flight(kv, slot));
}

static void slots_rank(cuda_kv *kv) {
    kv->nvictims = kv->next_victim = 0;
    for (int32_t i = 0; i < kv->slots; i++) {
        if (may_empty(kv, i)) {
            double worth = block_worth(kv, kv->block_in[i], kv->clock - kv->used[i]);
            kv->victims[kv->nvictims++] = (slot_rank){worth, kv->used[i], i};
        }
    }
    qsort(kv->victims, (size_t)kv->nvictims, sizeof *kv->victims, by_rank);
}

/* Returns the slot of the block with the lowest worth, or -1 if this worth is not below `below`. A
 * ranking is used for slots / 32 + 1 evictions at most. Slots used since the ranking are skipped; a
 * block that has lost worth since keeps its rank. `again`: rank anew if the old ranking gives no
 * slot. */
static int32_t victim_find(cuda_kv *kv, double below, bool again) {
    int most = kv->slots / 32 + 1;
    for (int round = 0; round <= again; round++) {
        while (kv->next_victim < BASE_MIN(kv->nvictims, most)) {
            const slot_rank *v = &kv->victims[kv->next_victim];
            if (v->rank >= below)
                break;
            kv->next_victim++;
            if (kv->used[v->slot] == v->used && may_empty(kv, v->slot))
                return v->slot;
        }
        if (again && round == 0)
            slots_rank(kv);
    }
    return -1;
}

static cudaError_t slot_empty(cuda_kv *kv, int32_t slot) {
    int32_t block = kv->block_in[slot];
    if (is_unowned(kv, block)) {
        kv->dropped++;
    } else {
        cudaError_t status = page_take(kv, block);
        if (status == cudaSuccess) {
            slot_join_trip(kv, slot);
            status = cudaMemcpyAsync(page_at(kv, kv->host.page_of[block]), slot_at(kv, slot),
                                     block_bytes(kv), cudaMemcpyDeviceToHost, kv->copy);
        }
        if (status != cudaSuccess)
            return status;
        kv->moved_out++;
        kv->out_ahead += kv->computing;
    }
    kv->slot_of[block] = kv->block_in[slot] = -1;
    kv->free_slots[kv->nfree++] = slot;
    return cudaSuccess;
}

/* Frees the slot of the block with the lowest worth if this worth is below `below`. Sets *found to
 * true if a slot was freed. */
static cudaError_t slot_free(cuda_kv *kv, double below, bool *found) {
    int32_t slot = victim_find(kv, below, true);
    *found = slot >= 0;
    return *found ? slot_empty(kv, slot) : cudaSuccess;
}

/* ---- paging ---------------------------------------------------------------------------------- */

/* Puts the block into a free slot. With `content`, copies its content there if a page holds it. */
static cudaError_t block_place(cuda_kv *kv, int32_t block, bool content) {
    int32_t slot = kv->free_slots[--kv->nfree];
    cudaError_t status = cudaSuccess;
    kv->slot_of[block] = slot;
    kv->block_in[slot] = block;
    kv->used[slot] = kv->clock;
    kv->part_of[slot] = 0;
    kv->taken++;
    if (content && has_content(kv, block)) {
        kv->moved_in++;
        kv->in_ahead += kv->computing;
        slot_join_trip(kv, slot);
        status = cudaMemcpyAsync(slot_at(kv, slot), page_at(kv, kv->host.page_of[block]),
                                 block_bytes(kv), cudaMemcpyHostToDevice, kv->copy);
    }
    if (kv->host.page_of[block] >= 0)
        page_release(&kv->host, block); /* later copies to the page run after this one */
    return status;
}

/* Puts the block into a slot unless it is already in one; evicts another block if needed. No part
 * may be running. */
static cudaError_t block_bring(cuda_kv *kv, int32_t block, bool content) {
    if (kv->slot_of[block] >= 0) {
        kv->used[kv->slot_of[block]] = kv->clock;
        return cudaSuccess;
    }
    bool found = kv->nfree > 0;
    cudaError_t status = found ? cudaSuccess : slot_free(kv, INFINITY, &found);
    if (status == cudaSuccess && !found)
        /* the caller asked for more blocks than there are slots */
        return cudaErrorMemoryAllocation;
    return status == cudaSuccess ? block_place(kv, block, content) : status;
}

/* Protects the listed blocks that are on the card from eviction at the current clock. */
static void resident_touch(cuda_kv *kv, const int32_t *blocks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int32_t slot = kv->slot_of[blocks[i]];
        if (slot >= 0)
            kv->used[slot] = kv->clock;
    }
}

int cuda_kv_bring(cuda_kv *kv, const int32_t *blocks, size_t n, err *e) {
    if (!kv->paged)
        return 0;
    kv->clock += n;
    kv->part++;
    kv->taken = 0;
    resident_touch(kv, blocks, n);
    cudaError_t status = cudaSuccess;
    for (size_t i = 0; i < n && status == cudaSuccess; i++)
        status = block_bring(kv, blocks[i], true);
    status = status == cudaSuccess ? trip_end(kv) : status;
    kv->needed = 0;
    for (size_t i = 0; i < n && status == cudaSuccess; i++) {
        int32_t slot = kv->slot_of[blocks[i]];
        kv->part_of[slot] = kv->part;
        kv->needed = BASE_MAX(kv->needed, kv->trip_of[slot]);
    }
    return cuda_check(status, "moving KV blocks between GPU and host memory", e);
}

/* ---- prefetching ----------------------------------------------------------------------------- */

/* Blocks per prefetch trip. A part that needs one block of a trip waits for the whole trip, so
 * trips are small. */
enum { TRIP_BLOCKS = 8 };

/* True if the clock has advanced by at most slots / 32 since `since`: it is too soon to repeat a
 * search of all blocks that was made then. `since` 0: no search was made. */
static bool is_soon(const cuda_kv *kv, uint64_t since) {
    return since > 0 && kv->clock - since <= (uint64_t)kv->slots / 32;
}

/* Like slot_free, but allocates no pages beyond the budget of host memory. */
static cudaError_t slot_free_in_budget(cuda_kv *kv, double below, bool *found) {
    if (pages_used_up(kv) && !is_soon(kv, kv->host.reclaimed))
        pages_reclaim(kv);
    *found = false;
    int32_t slot = victim_find(kv, below, !is_soon(kv, kv->search_failed));
    if (slot < 0 || (pages_used_up(kv) && !is_unowned(kv, kv->block_in[slot]))) {
        kv->search_failed = kv->clock;
        return cudaSuccess;
    }
    *found = true;
    return slot_empty(kv, slot);
}

/* Brings those of blocks[n] to the card that are not on it, until no slot can be freed. Sets *left
 * to true if blocks remain. Without `sure`, brings only blocks whose content is in host memory. */
static cudaError_t blocks_prefetch(cuda_kv *kv, const int32_t *blocks, size_t n, bool sure,
                                   bool *left) {
    cudaError_t status = cudaSuccess;
    int brought = 0;
    *left = false;
    for (size_t i = 0; i < n && status == cudaSuccess && !*left; i++) {
        if (kv->slot_of[blocks[i]] >= 0 || (!sure && !has_content(kv, blocks[i])))
            continue;
        bool found = kv->nfree > 0;
        if (!found) {
            status = sure ? slot_free(kv, INFINITY, &found)
                          : slot_free_in_budget(kv, block_worth(kv, blocks[i], 0), &found);
        }
        *left = !found;
        if (status == cudaSuccess && found) {
            status = block_place(kv, blocks[i], true);
            brought++;
        }
        if (status == cudaSuccess && brought % TRIP_BLOCKS == 0)
            status = trip_end(kv);
    }
    return status;
}

/* Frees slots in advance until `spare` are free. */
static cudaError_t spare_slots_free(cuda_kv *kv, int spare) {
    cudaError_t status = cudaSuccess;
    for (bool found = true; found && kv->nfree < spare && status == cudaSuccess;)
        status = slot_free_in_budget(kv, INFINITY, &found);
    return status;
}

cudaError_t cuda_kv_prefetch(cuda_kv *kv, const int32_t *blocks, size_t n, bool sure) {
    if (!kv->computing)
        return cudaSuccess;
    /* the next part may need as many slots as this part */
    int spare = BASE_MIN(kv->taken, kv->slots / 8);
    bool left;
    kv->clock++;
    resident_touch(kv, blocks, n);
    cudaError_t status = blocks_prefetch(kv, blocks, n, sure, &left);
    if (status == cudaSuccess && sure && left) {
        /* the remaining blocks replace blocks of the running part after its end */
        status = trip_end(kv);
        status = status == cudaSuccess ? part_await(kv) : status;
        status = status == cudaSuccess ? blocks_prefetch(kv, blocks, n, true, &left) : status;
    } else if (status == cudaSuccess && !sure) {
        status = spare_slots_free(kv, spare);
    }
    /* if host memory is short, the next part brings the remaining blocks */
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        status = cudaSuccess;
    }
    return status == cudaSuccess ? trip_end(kv) : status;
}

/* ---- blocks from and to the store ------------------------------------------------------------ */

/* Copies pinned memory to the block, as a trip of its own. Records the event `left` after the
 * copy. */
static cudaError_t block_send(cuda_kv *kv, int32_t block, const void *pinned, cudaEvent_t left) {
    cudaError_t status = cuda_kv_reach(kv, block);
    if (status == cudaSuccess && kv->paged) {
        kv->clock++;
        status = block_bring(kv, block, false);
    }
    if (status == cudaSuccess) {
        int32_t slot = cuda_kv_slot(kv, block);
        slot_join_trip(kv, slot);
        status = cudaMemcpyAsync(slot_at(kv, slot), pinned, block_bytes(kv), cudaMemcpyHostToDevice,
                                 kv->copy);
    }
    if (status == cudaSuccess)
        status = cudaEventRecord(left, kv->copy);
    return status == cudaSuccess ? trip_end(kv) : status;
}

cudaError_t cuda_kv_put(cuda_kv *kv, int32_t block, const void *in) {
    int stage = kv->stage;
    kv->stage = (stage + 1) % CUDA_STAGES;
    /* waits for the buffer's last copy */
    cudaError_t status = cudaEventSynchronize(kv->staged[stage]);
    if (status != cudaSuccess)
        return status;
    memcpy(kv->stages[stage], in, block_bytes(kv));
    return block_send(kv, block, kv->stages[stage], kv->staged[stage]);
}

void *cuda_kv_page(cuda_kv *kv, int page) {
    if (kv->pages[page] == NULL) {
        void *at = NULL;
        if (cudaMallocHost(&at, block_bytes(kv)) != cudaSuccess ||
            cudaEventCreateWithFlags(&kv->page_sent[page], cudaEventDisableTiming) != cudaSuccess) {
            cudaGetLastError(); /* not an error: the caller falls back to pageable memory */
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
        if (!has_content(kv, block))
            return cudaErrorInvalidValue; /* never written */
        /* waits for the block's copy to host memory */
        cudaError_t status = cudaStreamSynchronize(kv->copy);
        memcpy(out, page_at(kv, kv->host.page_of[block]), block_bytes(kv));
        return status;
    }
    int stage = kv->stage;
    cudaError_t status = cudaEventSynchronize(kv->staged[stage]);
    if (status == cudaSuccess) {
        status = cudaMemcpyAsync(kv->stages[stage], slot_at(kv, cuda_kv_slot(kv, block)),
                                 block_bytes(kv), cudaMemcpyDeviceToHost, kv->copy);
    }
    if (status == cudaSuccess)
        status = cudaStreamSynchronize(kv->copy);
    if (status == cudaSuccess)
        memcpy(out, kv->stages[stage], block_bytes(kv));
    return status;
}
