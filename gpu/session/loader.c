/*
 * loader.c - the thread that reads KV blocks from the store ahead of their use (loader_int.h).
 *
 * Invariant: a page is free, or belongs to one entry in state LOAD_READING or LOAD_HERE; only the
 * thread changes an entry in LOAD_READING. schedule.c decides what is read, and when it is used.
 */
#include "session_int.h"

#include <pthread.h>
#include <stdlib.h>

static const size_t PAGES_BYTES = (size_t)64 << 20;

typedef struct load {
    llm_kv_id id;
    load_state state;
    bool unwanted; /* dropped while it was being read */
    int page;
} load;

typedef struct page {
    void *plain; /* the page in plain memory; NULL: not needed so far */
    void *at;    /* the page in use: `plain` or the backend's */
} page;

struct loader {
    llm_engine *engine;
    void *work;
    llm_kv_store store;
    size_t block_bytes;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wanted; /* signalled when a block is asked for or a page becomes free */
    pthread_cond_t done;   /* signalled when a block was read */
    bool stop;
    load ring[LOADS];
    uint64_t asked; /* the last number given to a block */
    uint64_t next;  /* the last number that the thread has looked at */
    int coming;     /* number of entries in LOAD_COMING */
    double read_ms; /* time of reading `reads` blocks that the store had */
    uint64_t reads;
    page pages[KV_PAGES];
    int free_pages[KV_PAGES], nfree, npages;
};

static load *entry(loader *l, uint64_t number) {
    return &l->ring[number % LOADS];
}

static void page_free(loader *l, int index) {
    l->free_pages[l->nfree++] = index;
    pthread_cond_signal(&l->wanted);
}

/* Frees the entry. An entry that is being read is freed when the read ends. */
static void entry_forget(loader *l, load *e) {
    if (e->state == LOAD_READING) {
        e->unwanted = true;
        return;
    }
    if (e->state == LOAD_HERE)
        page_free(l, e->page);
    l->coming -= e->state == LOAD_COMING;
    e->state = LOAD_UNKNOWN;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Returns the page's memory. The backend first waits until the last transfer from its page has
 * ended. */
static void *page_memory(loader *l, int index) {
    const llm_backend *backend = l->engine->backend;
    page *p = &l->pages[index];
    p->at = backend->kv_page != NULL ? backend->kv_page(l->engine, l->work, index) : NULL;
    if (p->at == NULL) {
        p->plain = p->plain != NULL ? p->plain : mem_alloc(l->block_bytes);
        p->at = p->plain;
    }
    return p->at;
}

/* Returns the next entry to read, or NULL. */
static load *entry_next(loader *l) {
    while (l->next < l->asked) {
        load *e = entry(l, ++l->next);
        if (e->state == LOAD_COMING)
            return e;
    }
    return NULL;
}

static void entry_read(loader *l, load *e) {
    l->coming--;
    e->state = LOAD_READING;
    e->page = l->free_pages[--l->nfree];
    pthread_mutex_unlock(&l->mutex);
    void *memory = page_memory(l, e->page);
    double start = clock_ms();
    bool found = l->store.get(l->store.ctx, &e->id, memory, l->block_bytes);
    double ms = clock_ms() - start;
    pthread_mutex_lock(&l->mutex);
    e->state = found ? LOAD_HERE : LOAD_MISSING;
    if (found) {
        l->read_ms += ms;
        l->reads++;
    } else {
        page_free(l, e->page);
    }
    if (e->unwanted) {
        e->unwanted = false;
        entry_forget(l, e);
    }
    pthread_cond_broadcast(&l->done);
}

static void *thread_main(void *ctx) {
    loader *l = ctx;
    pthread_mutex_lock(&l->mutex);
    while (!l->stop) {
        load *e = l->nfree > 0 ? entry_next(l) : NULL;
        if (e != NULL)
            entry_read(l, e);
        else
            pthread_cond_wait(&l->wanted, &l->mutex);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* ---- lifetime -------------------------------------------------------------------------------- */

loader *loader_new(llm_engine *engine, void *work, const llm_kv_store *store, size_t block_bytes) {
    loader *l = mem_zalloc(sizeof *l);
    *l = (loader){.engine = engine, .work = work, .store = *store, .block_bytes = block_bytes};
    l->npages = (int)BASE_MIN(BASE_MAX(PAGES_BYTES / block_bytes, (size_t)2), (size_t)KV_PAGES);
    for (int i = 0; i < l->npages; i++)
        l->free_pages[l->nfree++] = i;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->wanted, NULL);
    pthread_cond_init(&l->done, NULL);
    if (pthread_create(&l->thread, NULL, thread_main, l) != 0) {
        free(l);
        return NULL;
    }
    return l;
}

void loader_free(loader *l) {
    if (l == NULL)
        return;
    pthread_mutex_lock(&l->mutex);
    l->stop = true;
    pthread_cond_signal(&l->wanted);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->thread, NULL);
    for (int i = 0; i < l->npages; i++)
        free(l->pages[i].plain);
    pthread_cond_destroy(&l->wanted);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->mutex);
    free(l);
}

/* ---- asking and taking ----------------------------------------------------------------------- */

/* Returns at most LOADS / 2, so that asking for the returned number of blocks overwrites at most
 * half of the ring. */
int loader_room(loader *l) {
    pthread_mutex_lock(&l->mutex);
    int room = LOADS / 2 - l->coming;
    /* an entry that is being read cannot be overwritten */
    for (int i = 1; i <= room; i++)
        if (entry(l, l->asked + (uint64_t)i)->state == LOAD_READING)
            room = i - 1;
    pthread_mutex_unlock(&l->mutex);
    return room;
}

uint64_t loader_ask(loader *l, const llm_kv_id *id) {
    pthread_mutex_lock(&l->mutex);
    uint64_t number = ++l->asked;
    load *e = entry(l, number);
    entry_forget(l, e);
    *e = (load){.id = *id, .state = LOAD_COMING};
    l->coming++;
    pthread_cond_signal(&l->wanted);
    pthread_mutex_unlock(&l->mutex);
    return number;
}

/* Returns the entry with this number if it still belongs to the block with this key, else NULL. */
static load *entry_find(loader *l, uint64_t number, hash128 key) {
    load *e = entry(l, number);
    bool known = number > 0 && number <= l->asked && l->asked - number < LOADS;
    return known && e->state != LOAD_UNKNOWN && hash128_equal(e->id.key, key) ? e : NULL;
}

load_state loader_status(loader *l, uint64_t number, hash128 key) {
    pthread_mutex_lock(&l->mutex);
    const load *e = entry_find(l, number, key);
    load_state state = e != NULL ? e->state : LOAD_UNKNOWN;
    pthread_mutex_unlock(&l->mutex);
    return state;
}

static void page_send(loader *l, int index, int32_t block) {
    const llm_backend *backend = l->engine->backend;
    const page *p = &l->pages[index];
    if (p->at == p->plain)
        backend->kv_write(l->engine, l->work, block, p->at);
    else
        backend->kv_send(l->engine, l->work, index, block);
}

load_state loader_take(loader *l, uint64_t number, hash128 key, int32_t block) {
    pthread_mutex_lock(&l->mutex);
    load *e = entry_find(l, number, key);
    while (e != NULL && e->state == LOAD_READING)
        pthread_cond_wait(&l->done, &l->mutex);
    load_state state = e == NULL || e->state == LOAD_COMING ? LOAD_UNKNOWN : e->state;
    if (state == LOAD_HERE) {
        pthread_mutex_unlock(&l->mutex);
        page_send(l, e->page, block); /* the thread does not touch an entry in LOAD_HERE */
        pthread_mutex_lock(&l->mutex);
    }
    if (e != NULL)
        entry_forget(l, e);
    pthread_mutex_unlock(&l->mutex);
    return state;
}

void loader_times(loader *l, double *ms, uint64_t *blocks) {
    pthread_mutex_lock(&l->mutex);
    *ms += l->read_ms;
    *blocks += l->reads;
    pthread_mutex_unlock(&l->mutex);
}

void loader_drop(loader *l, uint64_t number, int count) {
    pthread_mutex_lock(&l->mutex);
    for (int i = 0; i < count; i++) {
        uint64_t at = number + (uint64_t)i;
        if (at > 0 && at <= l->asked && l->asked - at < LOADS)
            entry_forget(l, entry(l, at));
    }
    pthread_mutex_unlock(&l->mutex);
}
