/*
 * cuda_work.c - allocates a session's work memory on the card.
 *
 * The weights are already loaded. Activation buffers are allocated first, since nothing runs
 * without them; KV blocks get what is left. If memory is short, the rows of a part are halved
 * first, and then more KV blocks stay in host memory (cuda_kv.c): slower, with the same bits.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_int.h"

enum {
    LEAST_ROWS = 64,
    /* number of attention states allocated per row; a row of up to 2 chunks needs no more */
    ROW_CHUNKS = 2
};
/* Device memory that is left free for the library's kernels, graphs and other programs. */
static const size_t SPARE_BYTES = (size_t)256 << 20;

static int round_rows(int rows) {
    return (rows + CUDA_GEMM_ROWS - 1) / CUDA_GEMM_ROWS * CUDA_GEMM_ROWS;
}

/* A device buffer of a session: its pointer, and its size as bytes per row, bytes per state and a
 * fixed number of bytes. */
typedef struct device_buffer {
    void **at;
    size_t per_row, per_state, fixed;
} device_buffer;

enum { BUFFERS = 15 };

static int buffers_list(cuda_work *w, device_buffer out[BUFFERS]) {
    const model_config *c = &w->engine->config;
    size_t width = (size_t)c->n_embd, heads = (size_t)(c->n_heads * c->head_dim);
    size_t qkv = heads + 2 * (size_t)(c->n_kv_heads * c->head_dim), f = sizeof(float),
           h = sizeof(uint16_t);
    size_t most = BASE_MAX(width, heads);
    int n = 0;
    out[n++] = (device_buffer){(void **)&w->x, width * f, 0, 0};
    out[n++] = (device_buffer){(void **)&w->qkv, BASE_MAX(qkv, width) * f, 0, 0};
    out[n++] = (device_buffer){(void **)&w->a, most * h, 0, 0};
    out[n++] = (device_buffer){(void **)&w->q, most * h, 0, 0};
    /* also holds the rows of a product with the head, which may be more than the part's rows */
    out[n++] = (device_buffer){(void **)&w->att, most * h, 0, CUDA_HEAD_ROWS * most * h};
    out[n++] = (device_buffer){(void **)&w->gate_up, 2 * (size_t)c->ffn * h, 0, 0};
    out[n++] = (device_buffer){(void **)&w->h, (size_t)c->ffn * h, 0, 0};
    out[n++] = (device_buffer){(void **)&w->angles, (size_t)c->rope_dims * f, 0, 0};
    if (c->post_norm)
        out[n++] = (device_buffer){(void **)&w->y, width * f, 0, 0};
    if (w->s->two_ropes)
        out[n++] = (device_buffer){(void **)&w->angles_local, (size_t)c->rope_dims * f, 0, 0};
    out[n++] = (device_buffer){(void **)&w->state_out, 0, heads * f, 0};
    out[n++] = (device_buffer){(void **)&w->state_norm, 0, (size_t)c->n_heads * 2 * f, 0};
    out[n++] = (device_buffer){(void **)&w->logits, 0, 0, CUDA_HEAD_ROWS * (size_t)c->vocab * f};
    out[n++] = (device_buffer){&w->workspace, 0, 0, cuda_gemm_workspace()};
    return n;
}

/* Allocates all buffers or none. They are zeroed, since kernels read padding rows. */
static cudaError_t buffers_new(cuda_work *w, const device_buffer *list, int n) {
    cudaError_t status = cudaSuccess;
    for (int i = 0; i < n && status == cudaSuccess; i++) {
        size_t bytes = list[i].per_row * (size_t)w->rows_cap +
                       list[i].per_state * (size_t)w->states_cap + list[i].fixed;
        status = cudaMalloc(list[i].at, bytes);
        status = status == cudaSuccess ? cudaMemset(*list[i].at, 0, bytes) : status;
    }
    if (status == cudaSuccess)
        return cudaDeviceSynchronize();
    cudaGetLastError(); /* clears the error */
    for (int i = 0; i < n; i++) {
        cudaFree(*list[i].at);
        *list[i].at = NULL;
    }
    return status;
}

static bool room_is_left(void) {
    size_t left = 0, total = 0;
    return cudaMemGetInfo(&left, &total) == cudaSuccess && left > SPARE_BYTES;
}

/* Allocates the buffers, halving the rows until they fit and leave SPARE_BYTES free. */
static int buffers_fit(cuda_work *w, int rows, err *e) {
    device_buffer list[BUFFERS];
    int n = buffers_list(w, list), states = w->engine->config.context / ATTEND_CHUNK + 1;
    cudaError_t status;
    for (w->rows_cap = round_rows(BASE_MIN(BASE_MAX(rows, LEAST_ROWS), CUDA_PASS_ROWS));;
         w->rows_cap = round_rows(w->rows_cap / 2)) {
        w->states_cap = ROW_CHUNKS * w->rows_cap + states;
        status = buffers_new(w, list, n);
        if (status == cudaSuccess && (room_is_left() || w->rows_cap <= LEAST_ROWS))
            return 0;
        for (int i = 0; i < n; i++) {
            cudaFree(*list[i].at);
            *list[i].at = NULL;
        }
        if ((status != cudaSuccess && status != cudaErrorMemoryAllocation) ||
            w->rows_cap <= LEAST_ROWS)
            return cuda_check(status, "memory for a pass's activations", e);
    }
}

static void host_new(cuda_work *w, int blocks) {
    size_t rows = (size_t)w->rows_cap, n = (size_t)blocks;
    w->all_rows = mem_alloc(sizeof *w->all_rows * rows);
    w->last_rows = mem_alloc(sizeof *w->last_rows * rows);
    w->marks = mem_zalloc(sizeof *w->marks * n);
    w->copy_levels = mem_zalloc(sizeof *w->copy_levels * 2 * n);
}

int cuda_work_new(llm_engine *engine, const work_size *size, void **work, err *e) {
    cuda_work *w = mem_zalloc(sizeof *w);
    w->engine = engine;
    w->s = engine->state;
    int code = cuda_check(cudaSetDevice(w->s->device), "choosing the GPU", e);
    code = code != 0 ? code
                     : cuda_check(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking),
                                  "creating a stream", e);
    code = code != 0 ? code : buffers_fit(w, size->rows, e);
    /* slots for a sequence that fills the context */
    int least = engine->config.context / LLM_BLOCK_TOKENS + 2;
    code = code != 0 ? code : cuda_kv_new(&w->kv, &engine->config, size, BASE_MIN(least, 256), e);
    if (code != 0) {
        cuda_work_free(engine, w);
        return code;
    }
    host_new(w, size->blocks);
    *work = w;
    return 0;
}

void cuda_graphs_drop(cuda_work *w) {
    for (int i = 0; i < w->ngraphs; i++)
        if (w->graphs[i].exec != NULL)
            cudaGraphExecDestroy(w->graphs[i].exec);
    w->ngraphs = 0;
}

void cuda_work_free(llm_engine *engine, void *work) {
    (void)engine;
    cuda_work *w = work;
    cudaSetDevice(w->s->device);
    if (w->stream != NULL)
        cudaStreamSynchronize(w->stream);
    cuda_graphs_drop(w);
    device_buffer list[BUFFERS];
    int n = buffers_list(w, list);
    for (int i = 0; i < n; i++)
        cudaFree(*list[i].at);
    cuda_kv_free(&w->kv);
    cudaFree(w->answers);
    cudaFree(w->part_device);
    cudaFreeHost(w->part_host);
    cudaFreeHost(w->back);
    if (w->stream != NULL)
        cudaStreamDestroy(w->stream);
    attend_plan_free(&w->plan);
    attend_plan_free(&w->last_plan);
    void *all[] = {
        w->all_rows, w->last_rows, w->tables, w->marks,  w->used,      w->copy_levels, w->copies,
        w->sorted,   w->copy_ends, w->copied, w->wanted, w->want_rows, w->whole,       w};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        free(all[i]);
}
