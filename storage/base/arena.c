/*
 * arena.c - memory: mem_*, arenas, and the growable string.
 *
 * Invariant: a chunk never moves, so pointers into an arena are valid until its reset. Chunks
 * beyond a spilling arena's limit are mapped from an unnamed file (workmem.c), which the kernel can
 * page out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workmem_int.h"

enum {
    CHUNK_FIRST = 8 * 1024,
    CHUNK_MAX = 1024 * 1024,
    SPILL_FIRST = 1024 * 1024, /* later chunks double the file, up to SPILL_MAX each */
    SPILL_MAX = 16 * 1024 * 1024
};

typedef struct chunk {
    struct chunk *next; /* in the list of the arena's chunks */
    size_t size;        /* bytes after the header */
    size_t used;        /* bytes allocated after the header */
    bool mapped;        /* in the temporary file, not on the heap */
} chunk;

enum { CHUNK_HEADER = (sizeof(chunk) + 15) / 16 * 16 };

struct arena {
    chunk *head;
    size_t bytes;         /* allocated since the last reset */
    size_t spilled_bytes; /* allocated in the temporary file since the last reset */
    mem_budget own;       /* of an arena that shares none; limit_bytes is 0 if it never spills */
    mem_budget *budget;   /* counts the heap chunks, without headers */
    size_t step;          /* the next ordinary heap chunk has twice this size */
    int spill_fd;         /* the temporary file; -1: none */
    off_t spill_end;      /* size of the temporary file in bytes */
    bool failed;
    int reason;         /* why the file could not grow: errno or WORKMEM_LIMIT */
    workmem *own_space; /* made by the arena itself, or NULL */
};

static BASE_NORETURN void out_of_memory(size_t bytes) {
    fprintf(stderr, "kvasir: out of memory (%zu bytes)\n", bytes);
    exit(70);
}

void *mem_alloc(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        out_of_memory(bytes);
    return p;
}

void *mem_zalloc(size_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p)
        out_of_memory(bytes);
    return p;
}

void *mem_realloc(void *p, size_t bytes) {
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q)
        out_of_memory(bytes);
    return q;
}

char *mem_strndup(const char *p, size_t n) {
    char *copy = mem_alloc(n + 1);
    if (n)
        memcpy(copy, p, n);
    copy[n] = 0;
    return copy;
}

char *mem_strdup(const char *c_string) {
    return c_string ? mem_strndup(c_string, strlen(c_string)) : NULL;
}

void *mem_try_alloc(size_t bytes) {
    return malloc(bytes ? bytes : 1);
}

/* ---- arena ----------------------------------------------------------------------------------- */

arena *arena_new_in(workmem *w) {
    arena *a = mem_zalloc(sizeof *a);
    a->spill_fd = -1;
    a->own.space = w;
    a->budget = &a->own;
    return a;
}

arena *arena_new(void) {
    return arena_new_in(NULL);
}

arena *arena_new_spilling(size_t limit_bytes, workmem *w) {
    workmem *own = w ? NULL : workmem_new(NULL, -1);
    arena *a = arena_new_in(w ? w : own);
    a->own_space = own;
    a->own.limit_bytes = limit_bytes ? limit_bytes : 1;
    return a;
}

arena *arena_new_sharing(mem_budget *m) {
    arena *a = arena_new();
    a->budget = m;
    return a;
}

static void chunk_free(arena *a, chunk *c) {
    if (c->mapped) {
        munmap(c, c->size + CHUNK_HEADER);
        return;
    }
    workmem_heap(a->budget->space, 0, c->size + CHUNK_HEADER);
    a->budget->heap_bytes -= c->size;
    free(c);
}

static void spill_close(arena *a) {
    if (a->spill_fd < 0)
        return;
    close(a->spill_fd);
    workmem_shrink(a->budget->space, (size_t)a->spill_end);
    a->spill_fd = -1;
    a->spill_end = 0;
}

void arena_free(arena *a) {
    if (!a)
        return;
    for (chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        chunk_free(a, c);
    }
    spill_close(a);
    workmem_free(a->own_space);
    free(a);
}

/* Keeps the largest chunk of at most CHUNK_MAX, so that an arena that is reset for each batch soon
 * needs no malloc. */
void arena_reset(arena *a) {
    chunk *keep = NULL;
    for (chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        bool better = !c->mapped && c->size <= CHUNK_MAX && (!keep || c->size > keep->size);
        chunk *drop = better ? keep : c;
        if (better)
            keep = c;
        if (drop)
            chunk_free(a, drop);
    }
    if (keep) {
        keep->next = NULL;
        keep->used = 0;
        a->step = keep->size;
    }
    a->head = keep;
    a->bytes = a->spilled_bytes = 0;
    a->failed = false;
    spill_close(a);
}

static bool spill_open(arena *a) {
    if (a->spill_fd < 0)
        a->spill_fd = workmem_file(a->budget->space);
    return a->spill_fd >= 0;
}

/* Makes a chunk in the temporary file. If the file cannot grow, returns NULL and sets a->reason. */
static chunk *chunk_spill(arena *a, size_t payload) {
    size_t page = WORKMEM_PAGE - 1, least = (payload + CHUNK_HEADER + page) & ~page;
    size_t wanted =
        BASE_MIN(BASE_MAX((size_t)a->spill_end, (size_t)SPILL_FIRST), (size_t)SPILL_MAX);
    if (!spill_open(a)) {
        a->reason = errno;
        return NULL;
    }
    size_t whole = workmem_extend(a->budget->space, a->spill_fd, a->spill_end,
                                  BASE_MAX(wanted, least), least, &a->reason);
    if (whole == 0)
        return NULL;
    off_t at = a->spill_end;
    a->spill_end += (off_t)whole;
    void *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, a->spill_fd, at);
    if (p == MAP_FAILED) {
        a->reason = errno;
        return NULL;
    }
    chunk *c = p;
    c->size = whole - CHUNK_HEADER;
    c->mapped = true;
    return c;
}

/* Makes a heap chunk twice the size of the last one, within the limit. An allocation of more than
 * half of that size gets a chunk of its own, and the current chunk stays in use. Otherwise large
 * allocations would double the chunks of small ones. */
static chunk *chunk_heap(arena *a, size_t bytes) {
    size_t size = BASE_MIN(BASE_MAX(a->step * 2, (size_t)CHUNK_FIRST), (size_t)CHUNK_MAX);
    bool own = bytes > size / 2;
    a->step = size;
    const mem_budget *m = a->budget;
    if (m->limit_bytes && m->heap_bytes < m->limit_bytes)
        size = BASE_MIN(size, m->limit_bytes - m->heap_bytes);
    if (own || size < bytes)
        size = bytes;
    chunk *c = mem_alloc(size + CHUNK_HEADER);
    *c = (chunk){.size = size};
    a->budget->heap_bytes += size;
    workmem_heap(a->budget->space, size + CHUNK_HEADER, 0);
    chunk **at = own && a->head ? &a->head->next : &a->head;
    c->next = *at;
    *at = c;
    return c;
}

static chunk *chunk_new(arena *a, size_t bytes) {
    const mem_budget *m = a->budget;
    if (m->limit_bytes == 0 || a->failed || m->heap_bytes + bytes <= m->limit_bytes)
        return chunk_heap(a, bytes);
    chunk *c = chunk_spill(a, bytes);
    if (!c) {
        a->failed = true;
        return chunk_heap(a, bytes);
    }
    c->used = 0;
    c->next = a->head;
    a->head = c;
    return c;
}

void *arena_alloc(arena *a, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    chunk *c = a->head;
    if (!c || c->size - c->used < bytes)
        c = chunk_new(a, bytes);
    void *p = (char *)c + CHUNK_HEADER + c->used;
    c->used += bytes;
    a->bytes += bytes;
    if (c->mapped)
        a->spilled_bytes += bytes;
    return p;
}

void *arena_zalloc(arena *a, size_t bytes) {
    void *p = arena_alloc(a, bytes);
    memset(p, 0, bytes);
    return p;
}

bool arena_failed(const arena *a) {
    return a->failed;
}

int arena_full_error(const arena *a, err *e) {
    return a->failed ? workmem_error(a->budget->space, a->reason, e) : 0;
}

size_t arena_bytes(const arena *a) {
    return a->bytes;
}

size_t arena_spilled_bytes(const arena *a) {
    return a->spilled_bytes;
}

char *arena_strndup(arena *a, const char *p, size_t n) {
    char *copy = arena_alloc(a, n + 1);
    if (n)
        memcpy(copy, p, n);
    copy[n] = 0;
    return copy;
}

char *arena_printf(arena *a, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *p = arena_alloc(a, (size_t)BASE_MAX(n, 0) + 1);
    vsnprintf(p, (size_t)BASE_MAX(n, 0) + 1, format, again);
    va_end(again);
    return p;
}

/* ---- buf ------------------------------------------------------------------------------------- */

static void buf_reserve(buf *b, size_t more) {
    if (b->cap - b->n > more)
        return;
    size_t cap = BASE_MAX(b->cap * 2, (size_t)64);
    while (cap - b->n <= more)
        cap *= 2;
    b->p = mem_realloc(b->p, cap);
    b->cap = cap;
}

void buf_append(buf *b, const void *p, size_t n) {
    buf_reserve(b, n);
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void buf_append_str(buf *b, str s) {
    buf_append(b, s.p, s.n);
}

void buf_append_c(buf *b, const char *c_string) {
    buf_append(b, c_string, strlen(c_string));
}

void buf_append_char(buf *b, char c) {
    buf_append(b, &c, 1);
}

void buf_printf(buf *b, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n > 0) {
        buf_reserve(b, (size_t)n);
        vsnprintf(b->p + b->n, (size_t)n + 1, format, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void buf_append_count(buf *b, uint64_t n) {
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            buf_append_char(b, ',');
        buf_append_char(b, digits[i]);
    }
}

void buf_append_money(buf *b, double money, const char *currency) {
    bool dollars = strcmp(currency, "USD") == 0;
    buf_printf(b, "%s%.4f", dollars ? "$" : "", money);
    if (!dollars)
        buf_printf(b, " %s", currency);
}

void buf_append_bytes(buf *b, uint64_t bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double n = (double)bytes;
    size_t unit = 0;
    for (; n >= 1023.5 && unit + 1 < BASE_COUNT(units); unit++)
        n /= 1024;
    buf_printf(b, n < 9.95 && unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
}

void buf_clear(buf *b) {
    b->n = 0;
    if (b->p)
        b->p[0] = 0;
}

void buf_free(buf *b) {
    free(b->p);
    *b = (buf){0};
}

str buf_str(const buf *b) {
    return (str){b->p ? b->p : "", b->n};
}
