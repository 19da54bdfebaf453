/*
 * card.cc - an emulated card on the host: threads as fibers, streams as queues, memory with guard pages.
 *
 * Implements card.h and the part of the CUDA runtime that gpu/ calls. Invariants: an operation of a stream runs once,
 * after the ones before it and after the events it waits for; in late order only when something waits for it; in seeded
 * order at random times, so that streams overtake each other where no event prevents it. What a real card rejects or
 * leaves undefined is an error here (card_fail): launches beyond its limits, memory of the wrong kind, forbidden calls
 * during a capture, host accesses to device memory.
 */
#include "card.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "card_int.h"

/* ---- fibers ------------------------------------------------------------------------------------ */

card_index threadIdx, blockIdx;
dim3 blockDim, gridDim;
unsigned char *card_shared;

enum { STACK = 128 << 10, SHARED = 256 << 10, GUARD = 0xa5 };

struct pending_copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* A barrier of the threads that have not returned yet; a round ends when all have arrived. */
struct barrier {
    unsigned alive, arrived;
    uint64_t round;
};

struct fiber {
    ucontext_t start;
    jmp_buf at;
    bool started, done;
    unsigned index;
    uint64_t exchanges;
    std::deque<std::vector<pending_copy>> groups;
    std::vector<pending_copy> open;
};

static card_timing timing;
static bool late; /* order of the current kernel's threads and copies */
static uint64_t chance;
static unsigned eager;  /* seeded: chance in 8 that enqueueing an operation also runs one */
static unsigned fickle; /* seeded: chance in 32 that the next operation may be of another stream */
static std::deque<fiber> fibers; /* never moved */
static jmp_buf home;
static unsigned running, count, left;
static const std::function<void()> *kernel;
static barrier whole;
static barrier warps[32];
static unsigned char exchanged[32][2][32][CARD_LANE];

/* The next random number below `n` (splitmix64). */
static unsigned chance_below(unsigned n) {
    uint64_t bits = chance += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return static_cast<unsigned>((bits ^ bits >> 31) >> 33) % n;
}

void card_order(card_timing order, uint64_t seed) {
    timing = order;
    late = order == CARD_LATE;
    chance = seed;
    eager = chance_below(3) * 2;
    fickle = 1u << chance_below(4);
}

/* CARD_ORDER: early, late, or a seed. */
__attribute__((constructor)) void card_order_given() {
    const char *order = getenv("CARD_ORDER");
    if (order != nullptr && strcmp(order, "late") == 0) {
        card_order(CARD_LATE, 0);
    } else if (order != nullptr && atoi(order) > 0) {
        card_order(CARD_SEEDED, static_cast<uint64_t>(atoi(order)));
    } else {
        card_order(CARD_EARLY, 0);
    }
}

static void fiber_main();

static void fiber_go(unsigned i) {
    running = i;
    fiber &f = fibers[i];
    if (f.started) {
        _longjmp(f.at, 1);
    }
    f.started = true;
    setcontext(&f.start);
}

/* The next thread that has not returned: in ascending order, or descending in late order. */
static unsigned fiber_after(unsigned i) {
    do {
        i = late ? (i + count - 1) % count : (i + 1) % count;
    } while (fibers[i].done);
    return i;
}

static void thread_enter(unsigned i) {
    threadIdx = {i, 0, 0};
}

static void yield() {
    unsigned me = running, next = fiber_after(me);
    if (next == me) {
        return;
    }
    if (_setjmp(fibers[me].at) == 0) {
        fiber_go(next);
    }
    thread_enter(me);
}

static void barrier_release(barrier &m) {
    if (m.arrived == m.alive) {
        m.arrived = 0;
        m.round++;
    }
}

static void barrier_wait(barrier &m) {
    uint64_t round = m.round;
    m.arrived++;
    barrier_release(m);
    while (m.round == round) {
        yield();
    }
}

void __syncthreads() {
    barrier_wait(whole);
}

void card_sync_warp() {
    barrier_wait(warps[running / 32]);
}

const unsigned char *card_exchange(const void *mine, size_t bytes) {
    unsigned warp = running / 32, side = fibers[running].exchanges++ % 2;
    memcpy(exchanged[warp][side][running % 32], mine, bytes);
    barrier_wait(warps[warp]);
    return &exchanged[warp][side][0][0];
}

static void fiber_main() {
    for (;;) {
        unsigned me = running;
        thread_enter(me);
        (*kernel)();
        fiber &f = fibers[me];
        card_copy_commit();
        card_copy_wait(0);
        f.done = true;
        whole.alive--;
        warps[me / 32].alive--;
        barrier_release(whole);
        barrier_release(warps[me / 32]);
        if (_setjmp(f.at) == 0) {
            if (--left == 0) {
                _longjmp(home, 1);
            }
            fiber_go(fiber_after(me));
        }
    }
}

static void fibers_reserve(unsigned n) {
    while (fibers.size() < n) {
        fibers.emplace_back();
        fiber &f = fibers.back();
        getcontext(&f.start);
        f.start.uc_stack.ss_sp = malloc(STACK);
        f.start.uc_stack.ss_size = STACK;
        f.start.uc_link = nullptr;
        makecontext(&f.start, fiber_main, 0);
    }
}

static void block_run() {
    left = count;
    whole = {count, 0, 0};
    for (unsigned i = 0; i < count; i++) {
        warps[i / 32] = {i / 32 < count / 32 ? 32 : count % 32, 0, 0};
        fibers[i].done = false;
        fibers[i].exchanges = 0;
    }
    if (_setjmp(home) == 0) {
        fiber_go(late ? count - 1 : 0);
    }
}

static void kernel_run(dim3 grid, dim3 block, size_t shared, const std::function<void()> &body) {
    static unsigned char memory[SHARED] __attribute__((aligned(128)));
    count = block.x;
    late = timing == CARD_SEEDED ? chance_below(2) == 0 : late;
    fibers_reserve(count);
    kernel = &body;
    gridDim = grid;
    blockDim = block;
    card_shared = memory;
    for (unsigned y = 0; y < grid.y; y++) {
        for (unsigned x = 0; x < grid.x; x++) {
            blockIdx = {x, y, 0};
            memset(memory, 0xff, shared);
            memset(memory + shared, GUARD, 256);
            block_run();
            for (unsigned i = 0; i < 256; i++) {
                if (memory[shared + i] != GUARD) {
                    card_fail("a write past the end of shared memory");
                }
            }
        }
    }
}

void card_copy_begin(void *to, const void *from, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(to) % bytes != 0 ||
        reinterpret_cast<uintptr_t>(from) % bytes != 0) {
        card_fail("an unaligned copy");
    }
    if (late) {
        fibers[running].open.push_back({to, from, bytes});
    } else {
        memcpy(to, from, bytes);
    }
}

void card_copy_commit() {
    fiber &f = fibers[running];
    f.groups.push_back(f.open);
    f.open.clear();
}

void card_copy_wait(int open) {
    fiber &f = fibers[running];
    while (f.groups.size() > static_cast<size_t>(open)) {
        for (const pending_copy &c : f.groups.front()) {
            memcpy(c.to, c.from, c.bytes);
        }
        f.groups.pop_front();
    }
}

/* ---- streams ----------------------------------------------------------------------------------- */

/* An operation of a stream or graph: a function to run or, if `on` is set, a wait for operation `number` of that
 * stream. */
struct step {
    std::function<void()> run;
    CUstream_st *on;
    uint64_t number;
};

struct CUstream_st {
    std::deque<step> waiting;
    uint64_t done, enqueued;
    CUgraph_st *capture;
    pthread_t capturing;
};

struct CUevent_st {
    CUstream_st *stream;
    uint64_t number;
    bool timed, captured;
};

struct CUgraph_st {
    std::vector<step> steps;
};

struct CUgraphExec_st {
    std::vector<step> steps;
};

/* The runtime may be called from several threads: running, enqueueing and waiting hold this lock. */
static std::recursive_mutex runtime;
typedef std::lock_guard<std::recursive_mutex> holding;

static CUstream_st standard;
static std::vector<CUstream_st *> streams = {&standard};
static cudaError_t sticky;            /* set by card_fail: the error of every later call */
static const char *complaint;         /* its text */
static thread_local cudaError_t last; /* error of the thread's last failed call */

void card_fail(const char *what) {
    fprintf(stderr, "card: %s\n", what);
    sticky = cudaErrorLaunchFailure;
    complaint = what;
}

const char *card_complaint() {
    const char *what = complaint;
    complaint = nullptr;
    sticky = last = cudaSuccess;
    return what;
}

static CUstream_st *stream_of(cudaStream_t s) {
    return s != nullptr ? s : &standard;
}

static void drain(CUstream_st *s, uint64_t number);

/* The memory protection key of device memory, if the processor has such keys. A thread has access only while it runs
 * an operation of the card (as_card). */
static int memory_key = -1;

__attribute__((constructor)) static void memory_key_make() {
    memory_key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
}

struct as_card {
    int before;
    as_card() : before(memory_key >= 0 ? pkey_get(memory_key) : 0) {
        hold(0);
    }
    ~as_card() {
        hold(before);
    }
    static void hold(int rights) {
        if (memory_key >= 0) {
            pkey_set(memory_key, static_cast<unsigned>(rights));
        }
    }
};

bool card_keeps_the_host_out() {
    return memory_key >= 0;
}

static void step_run(CUstream_st *s) {
    step next = s->waiting.front();
    s->waiting.pop_front();
    if (next.on != nullptr) {
        drain(next.on, next.number);
    } else {
        as_card here;
        next.run();
    }
    s->done++;
}

static bool is_ready(const CUstream_st *s) {
    return !s->waiting.empty() &&
           (s->waiting.front().on == nullptr || s->waiting.front().on->done >= s->waiting.front().number);
}

/* Runs one operation that is ready; mostly of the same stream as the last time, so that streams get far ahead of each
 * other. */
static void step_by_chance() {
    static CUstream_st *favourite;
    std::vector<CUstream_st *> ready;
    for (CUstream_st *s : streams) {
        if (is_ready(s)) {
            ready.push_back(s);
        }
    }
    if (ready.empty()) {
        return;
    }
    if (chance_below(32) < fickle || std::find(ready.begin(), ready.end(), favourite) == ready.end()) {
        favourite = ready[chance_below(static_cast<unsigned>(ready.size()))];
    }
    step_run(favourite);
}

static void drain(CUstream_st *s, uint64_t number) {
    holding lock(runtime);
    while (s->done < number && !s->waiting.empty()) {
        if (timing == CARD_SEEDED) {
            step_by_chance();
        } else {
            step_run(s);
        }
    }
}

static void enqueue(cudaStream_t stream, const step &next) {
    holding lock(runtime);
    CUstream_st *s = stream_of(stream);
    if (s->capture != nullptr) {
        s->capture->steps.push_back(next);
        return;
    }
    s->waiting.push_back(next);
    s->enqueued++;
    if (timing == CARD_EARLY) {
        drain(s, s->enqueued);
    }
    if (timing == CARD_SEEDED && chance_below(8) < eager) {
        step_by_chance();
    }
}

void card_enqueue(cudaStream_t stream, std::function<void()> run) {
    enqueue(stream, {run, nullptr, 0});
}

/* A thread that captures a stream must not wait or allocate. */
static cudaError_t capture_refuses() {
    holding lock(runtime);
    for (CUstream_st *s : streams) {
        if (s->capture != nullptr && pthread_equal(s->capturing, pthread_self()) != 0) {
            card_fail("a wait or an allocation while a graph is captured");
            return cudaErrorStreamCaptureUnsupported;
        }
    }
    return sticky;
}

/* ---- launches ---------------------------------------------------------------------------------- */

static std::map<const void *, size_t> shared_allowed;
static std::set<const void *> loaded; /* kernels that were launched */

cudaError_t card_shared_allow(const void *f, size_t bytes) {
    holding lock(runtime);
    if (bytes > 227 * 1024) {
        return last = cudaErrorInvalidValue;
    }
    shared_allowed[f] = bytes;
    return cudaSuccess;
}

static const char *launch_fault(const void *f, dim3 grid, dim3 block, size_t shared, bool captured) {
    size_t threads = static_cast<size_t>(block.x) * block.y * block.z;
    auto allowed = shared_allowed.find(f);
    if (threads == 0 || threads > 1024 || block.y * block.z != 1) {
        return "a block with no threads, too many, or more than one dimension";
    }
    if (grid.x == 0 || grid.y == 0 || grid.z != 1 || grid.x > INT32_MAX || grid.y > 65535) {
        return "a grid with no blocks, too many, or three dimensions";
    }
    if (shared > 48 * 1024 && (allowed == shared_allowed.end() || allowed->second < shared)) {
        return "a launch with more shared memory than its kernel is allowed";
    }
    return captured && loaded.count(f) == 0 ? "a kernel loaded while a graph is captured" : nullptr;
}

void card_launch(const void *f, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                 std::function<void()> body) {
    holding lock(runtime);
    const char *fault = launch_fault(f, grid, block, shared, stream_of(stream)->capture != nullptr);
    if (fault != nullptr) {
        card_fail(fault);
        return;
    }
    loaded.insert(f);
    card_enqueue(stream, [=] { kernel_run(grid, block, shared, body); });
}

extern "C" {

void card_enqueue_plain(cudaStream_t stream, void (*run)(void *), void *ctx) {
    card_enqueue(stream, [=] { run(ctx); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned) {
    *out = new CUstream_st();
    streams.push_back(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    cudaError_t status = capture_refuses();
    drain(stream_of(s), stream_of(s)->enqueued);
    return status != cudaSuccess ? status : sticky;
}

cudaError_t cudaDeviceSynchronize() {
    cudaError_t status = capture_refuses();
    for (CUstream_st *s : streams) {
        drain(s, s->enqueued);
    }
    return status != cudaSuccess ? status : sticky;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    holding lock(runtime);
    drain(s, s->enqueued);
    streams.erase(std::find(streams.begin(), streams.end(), s));
    for (CUstream_st *other : streams) {
        for (step &next : other->waiting) {
            if (next.on == s) { /* a drained stream: nothing is left to wait for */
                next = {[] {}, nullptr, 0};
            }
        }
    }
    delete s;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    *out = new CUevent_st();
    (*out)->timed = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    holding lock(runtime);
    e->stream = stream_of(s);
    e->number = stream_of(s)->enqueued;
    e->captured = stream_of(s)->capture != nullptr;
    return cudaSuccess;
}

/* An event recorded during a capture is a node of the graph and never completes itself. */
static cudaError_t event_refuses(cudaEvent_t e) {
    if (e->captured) {
        card_fail("a wait for an event of a capture");
        return cudaErrorCapturedEvent;
    }
    return capture_refuses();
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    holding lock(runtime);
    cudaError_t status = event_refuses(e);
    if (e->stream != nullptr) {
        drain(e->stream, e->number);
    }
    return status;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    *ms = 1;
    for (cudaEvent_t e : {begin, end}) {
        if (!e->timed || e->stream == nullptr || e->captured) {
            card_fail("a time between events without timing");
            return cudaErrorInvalidResourceHandle;
        }
    }
    return cudaSuccess;
}

/* On a real card a stream that waits for an event of a capture joins the capture; gpu/ never does that. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    holding lock(runtime);
    CUevent_st now = *e;
    if (now.stream != nullptr && (now.captured || stream_of(s)->capture != nullptr)) {
        card_fail("a wait between a captured stream and one that is not");
        return cudaErrorStreamCaptureIsolation;
    }
    if (now.stream != nullptr) {
        enqueue(s, {nullptr, now.stream, now.number});
    }
    return cudaSuccess;
}

/* ---- graphs ------------------------------------------------------------------------------------ */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    holding lock(runtime);
    if (s == nullptr || s->capture != nullptr) {
        return last = s == nullptr ? cudaErrorStreamCaptureUnsupported : cudaErrorIllegalState;
    }
    s->capture = new CUgraph_st();
    s->capturing = pthread_self();
    return cudaSuccess;
}

/* Returns no graph if the capture was invalidated. */
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out) {
    holding lock(runtime);
    *out = nullptr;
    if (s->capture == nullptr || pthread_equal(s->capturing, pthread_self()) == 0) {
        return last = s->capture == nullptr ? cudaErrorIllegalState : cudaErrorStreamCaptureWrongThread;
    }
    if (sticky != cudaSuccess) {
        delete s->capture;
    } else {
        *out = s->capture;
    }
    s->capture = nullptr;
    return sticky == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    *out = new CUgraphExec_st{graph->steps};
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}

static int launched;

int card_graphs_launched() {
    return launched;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    launched++;
    for (const step &next : exec->steps) {
        enqueue(s, next);
    }
    return cudaSuccess;
}

/* ---- memory ------------------------------------------------------------------------------------ */

struct allocation {
    void *map;
    size_t mapped, bytes;
    bool device;
};

static std::map<const unsigned char *, allocation> allocations; /* by start address */
static size_t total_bytes = static_cast<size_t>(8) << 30, used_bytes;
static long refuse_at = -1, asked;

void card_memory(size_t total) {
    total_bytes = total;
}

void card_refuse(long n) {
    refuse_at = n;
    asked = 0;
}

/* Allocates memory that is filled with 0xff and followed by an inaccessible page. */
static cudaError_t allocate(void **out, size_t bytes, bool device) {
    holding lock(runtime);
    cudaError_t status = capture_refuses();
    *out = nullptr;
    if (status != cudaSuccess || bytes == 0) {
        return status;
    }
    bool refused = refuse_at >= 0 && asked++ == refuse_at;
    if (refused || (device && bytes > total_bytes - used_bytes)) {
        return last = cudaErrorMemoryAllocation;
    }
    size_t page = 4096, whole_pages = (bytes + page - 1) / page * page,
           room = (bytes + 15) / 16 * 16;
    unsigned char *map =
        static_cast<unsigned char *>(mmap(nullptr, whole_pages + page, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (map == MAP_FAILED) {
        return cudaErrorMemoryAllocation;
    }
    mprotect(map + whole_pages, page, PROT_NONE);
    if (device && memory_key >= 0) {
        pkey_mprotect(map, whole_pages, PROT_READ | PROT_WRITE, memory_key);
    }
    as_card here;
    *out = map + whole_pages - room;
    memset(*out, 0xff, bytes < (4u << 20) ? bytes : 0); /* large ones stay unfilled, which saves pages */
    allocations[map + whole_pages - room] = {map, whole_pages + page, bytes, device};
    used_bytes += device ? bytes : 0;
    return cudaSuccess;
}

static cudaError_t memory_free(void *p, bool device) {
    holding lock(runtime);
    if (p == nullptr) {
        return cudaSuccess;
    }
    cudaDeviceSynchronize();
    auto at = allocations.find(static_cast<unsigned char *>(p));
    if (at == allocations.end() || at->second.device != device) {
        card_fail("a free of memory that was not allocated, or is of the other kind");
        return cudaErrorInvalidValue;
    }
    used_bytes -= at->second.device ? at->second.bytes : 0;
    munmap(at->second.map, at->second.mapped);
    allocations.erase(at);
    return cudaSuccess;
}

/* The kind of the memory [p, p + bytes); BROKEN: it exceeds its allocation. */
enum memory_kind { PAGEABLE, PINNED, DEVICE, BROKEN };

static memory_kind kind_of(const void *p, size_t bytes, size_t *offset = nullptr) {
    holding lock(runtime);
    const unsigned char *from = static_cast<const unsigned char *>(p);
    auto at = allocations.upper_bound(from);
    if (at == allocations.begin()) {
        return PAGEABLE;
    }
    --at;
    size_t begin = static_cast<size_t>(from - at->first);
    if (begin >= at->second.bytes) {
        return PAGEABLE;
    }
    if (offset != nullptr) {
        *offset = begin;
    }
    return bytes > at->second.bytes - begin ? BROKEN : at->second.device ? DEVICE : PINNED;
}

bool card_holds(const void *p, size_t bytes, size_t alignment) {
    size_t offset = 0;
    return kind_of(p, bytes, &offset) == DEVICE && offset % alignment == 0;
}

size_t card_allocations() {
    return allocations.size();
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    return allocate(out, bytes, true);
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return allocate(out, bytes, false);
}

cudaError_t cudaFree(void *p) {
    return memory_free(p, true);
}

cudaError_t cudaFreeHost(void *p) {
    return memory_free(p, false);
}

cudaError_t cudaMemGetInfo(size_t *left_bytes, size_t *total) {
    *left_bytes = total_bytes - used_bytes;
    *total = total_bytes;
    return sticky;
}

/* True if both sides of the copy are memory of the kind that `kind` states; else fails the card. */
static bool copy_fits(const void *to, size_t to_bytes, const void *from, size_t from_bytes,
                      cudaMemcpyKind kind) {
    memory_kind left = kind_of(to, to_bytes), right = kind_of(from, from_bytes);
    bool to_card = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
         from_card = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool fits = left != BROKEN && right != BROKEN && (left == DEVICE) == to_card && (right == DEVICE) == from_card;
    if (!fits) {
        card_fail("a copy whose memory does not match its kind, or past its end");
    }
    return fits;
}

static void bytes_copy(void *to, const void *from, size_t bytes) {
    as_card here;
    memcpy(to, from, bytes);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    cudaError_t status = cudaStreamSynchronize(nullptr);
    if (bytes > 0 && copy_fits(to, bytes, from, bytes, kind)) {
        bytes_copy(to, from, bytes);
    }
    return status != cudaSuccess ? status : sticky;
}

/* Pageable memory is read or written before the call returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s) {
    holding lock(runtime);
    if (bytes == 0 || !copy_fits(to, bytes, from, bytes, kind)) {
        return sticky;
    }
    bool reads = kind_of(from, bytes) == PAGEABLE, writes = kind_of(to, bytes) == PAGEABLE;
    if ((reads || writes) && stream_of(s)->capture != nullptr) {
        card_fail("a copy of memory that is not pinned while a graph is captured");
    } else if (reads) {
        const unsigned char *begin = static_cast<const unsigned char *>(from);
        std::vector<unsigned char> kept(begin, begin + bytes);
        card_enqueue(s, [=] { memcpy(to, kept.data(), bytes); });
    } else if (writes) {
        drain(stream_of(s), stream_of(s)->enqueued);
        bytes_copy(to, from, bytes);
    } else {
        card_enqueue(s, [=] { memcpy(to, from, bytes); });
    }
    return sticky;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s) {
    if (width > to_pitch || width > from_pitch) {
        return last = cudaErrorInvalidPitchValue;
    }
    if (height == 0 ||
        !copy_fits(to, (height - 1) * to_pitch + width, from, (height - 1) * from_pitch + width, kind)) {
        return sticky;
    }
    card_enqueue(s, [=] {
        for (size_t i = 0; i < height; i++) {
            memcpy(static_cast<char *>(to) + i * to_pitch,
                   static_cast<const char *>(from) + i * from_pitch, width);
        }
    });
    return sticky;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s) {
    if (bytes > 0 && kind_of(to, bytes) != DEVICE) {
        card_fail("a fill of memory that is not on the card, or past its end");
        return sticky;
    }
    card_enqueue(s, [=] { memset(to, value, bytes); });
    return sticky;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    return cudaMemsetAsync(to, value, bytes, nullptr);
}

/* ---- the device -------------------------------------------------------------------------------- */

static cudaError_t presence;
static int capability = 9, driver_version = CUDART_VERSION;

void card_presence(cudaError_t status, int driver, int major) {
    presence = status;
    driver_version = driver;
    capability = major;
}

cudaError_t cudaGetDeviceCount(int *out) {
    *out = presence == cudaSuccess ? 1 : 0;
    return presence;
}

cudaError_t cudaDriverGetVersion(int *out) {
    *out = driver_version;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return presence != cudaSuccess ? presence : device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr attribute, int) {
    *out = attribute == cudaDevAttrComputeCapabilityMajor ? capability : 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int) {
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "host");
    out->totalGlobalMem = total_bytes;
    out->multiProcessorCount = 1;
    return cudaSuccess;
}

cudaError_t cudaGetLastError() {
    cudaError_t status = sticky != cudaSuccess ? sticky : last;
    last = cudaSuccess;
    return status;
}

const char *cudaGetErrorString(cudaError_t status) {
    return status == cudaErrorMemoryAllocation ? "out of memory"
           : status == cudaErrorLaunchFailure  ? "unspecified launch failure"
           : status == cudaErrorInvalidDevice  ? "invalid device ordinal"
                                               : "an error";
}
}
