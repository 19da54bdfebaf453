/*
 * arena.c - memory: the allocators that cannot fail, arenas and the growable string.
 *
 * Invariant: a chunk never moves, so what an arena handed out stays where it is until reset. Chunks
 * beyond a spilling arena's limit live in a mapping of an unlinked file: the system pages them out,
 * and pointers need no swizzling.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "storage/base.h"

enum { CHUNK_FIRST = 8 * 1024, CHUNK_MAX = 1024 * 1024, SPILL_CHUNK = 16 * 1024 * 1024 };

typedef struct chunk {
    struct chunk *next; /* older */
    size_t size, used;  /* payload bytes behind the header */
    bool mapped;
} chunk;

enum { CHUNK_HEADER = (sizeof(chunk) + 15) / 16 * 16 };

struct arena {
    chunk *head;
    size_t bytes, heap_bytes, spilled_bytes;
    size_t limit_bytes; /* 0: never spills */
    int spill_fd;
    off_t spill_end;
    bool failed;
    char *spill_dir;
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

void *mem_try_alloc(size_t bytes) {
    return malloc(bytes ? bytes : 1);
}

/* ---- arena ----------------------------------------------------------------------------------- */

arena *arena_new(void) {
    arena *a = mem_zalloc(sizeof *a);
    a->spill_fd = -1;
    return a;
}

arena *arena_new_spilling(size_t limit_bytes, const char *dir) {
    arena *a = arena_new();
    if (!dir)
        dir = getenv("TMPDIR");
    if (!dir || !*dir)
        dir = "/tmp";
    a->limit_bytes = limit_bytes ? limit_bytes : 1;
    a->spill_dir = mem_strndup(dir, strlen(dir));
    return a;
}

static void chunk_free(chunk *c) {
    if (c->mapped)
        munmap(c, c->size + CHUNK_HEADER);
    else
        free(c);
}

void arena_free(arena *a) {
    if (!a)
        return;
    for (chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        chunk_free(c);
    }
    if (a->spill_fd >= 0)
        close(a->spill_fd);
    free(a->spill_dir);
    free(a);
}

/* Keeps the largest ordinary chunk: an arena reset once
 * a batch settles on one chunk and asks malloc no more. */
void arena_reset(arena *a) {
    chunk *keep = NULL;
    for (chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        bool better = !c->mapped && c->size <= CHUNK_MAX && (!keep || c->size > keep->size);
        chunk *drop = better ? keep : c;
        if (better)
            keep = c;
        if (drop)
            chunk_free(drop);
    }
    if (keep) {
        keep->next = NULL;
        keep->used = 0;
    }
    a->head = keep;
    a->bytes = a->spilled_bytes = 0;
    a->heap_bytes = keep ? keep->size : 0;
    a->failed = false;
    if (a->spill_fd >= 0)
        close(a->spill_fd);
    a->spill_fd = -1;
    a->spill_end = 0;
}

static bool spill_open(arena *a) {
    if (a->spill_fd >= 0)
        return true;
    buf path = {0};
    buf_printf(&path, "%s/kvasir-spill-XXXXXX", a->spill_dir);
    a->spill_fd = mkostemp(path.p, O_CLOEXEC);
    if (a->spill_fd >= 0)
        unlink(path.p);
    buf_free(&path);
    return a->spill_fd >= 0;
}

/* A chunk in the temporary file, or NULL when the file cannot grow. */
static chunk *chunk_spill(arena *a, size_t payload) {
    size_t whole = BASE_MAX(payload + CHUNK_HEADER, (size_t)SPILL_CHUNK);
    whole = (whole + 4095) & ~(size_t)4095;
    if (!spill_open(a) || posix_fallocate(a->spill_fd, a->spill_end, (off_t)whole) != 0)
        return NULL;
    void *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, a->spill_fd, a->spill_end);
    if (p == MAP_FAILED)
        return NULL;
    a->spill_end += (off_t)whole;
    chunk *c = p;
    c->size = whole - CHUNK_HEADER;
    c->mapped = true;
    return c;
}

static chunk *chunk_new(arena *a, size_t bytes) {
    chunk *c = NULL;
    if (a->limit_bytes && !a->failed && a->heap_bytes + bytes > a->limit_bytes) {
        c = chunk_spill(a, bytes);
        if (!c)
            a->failed = true;
    }
    if (!c) {
        size_t size =
            a->head ? BASE_MIN(a->head->size * 2, (size_t)CHUNK_MAX) : (size_t)CHUNK_FIRST;
        size = BASE_MAX(size, bytes);
        c = mem_alloc(size + CHUNK_HEADER);
        c->size = size;
        c->mapped = false;
        a->heap_bytes += size;
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
