/*
 * tables_file.c - a tables.mdb read without LMDB: its bytes and its definitions (damage_int.h).
 *
 * Invariant: nothing of the file is written, not even its locks' contents.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "damage_int.h"

/* ---- the file -------------------------------------------------------------------------------- */

/* Maps an open file, and asks for all of it to be read if it is small in comparison with the memory:
 * trees are not in the order of their pages. */
static int map_file(tables_file *f, int fd, const char *directory, err *e) {
    struct stat st;
    int status =
        fstat(fd, &st) != 0 ? err_set_errno(e, errno, "cannot open '%s/tables.mdb'", directory) : 0;
    f->n = status ? 0 : (size_t)st.st_size;
    void *map = f->n ? mmap(NULL, f->n, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    if (map == MAP_FAILED)
        status = err_set_errno(e, errno, "cannot map '%s/tables.mdb'", directory);
    else
        f->bytes = map;
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (!status && map && pages > 0 && f->n / (size_t)page_bytes < (size_t)pages / 2)
        madvise(map, f->n, MADV_WILLNEED);
    return status;
}

/* Begins an LMDB reader, so that the pages of its commit are not reused, and copies the commit's
 * meta page. Later commits may replace that page first: then a new reader is begun. If the meta page
 * is damaged, the walk chooses by itself. */
static int hold_commit(tables_file *f, err *e) {
    enum { TRIES = 100 };
    const struct timespec pause = {.tv_nsec = 2000000};
    MDB_stat pages;
    int rc = mdb_env_stat(f->store->env, &pages);
    for (int i = 0; i < TRIES && !rc && !f->meta; i++) {
        if (f->reader)
            mdb_txn_reset(f->reader);
        rc = f->reader ? mdb_txn_renew(f->reader)
                       : mdb_txn_begin(f->store->env, NULL, MDB_RDONLY, &f->reader);
        if (rc)
            break;
        uint64_t id = mdb_txn_id(f->reader);
        page_file file = {f->bytes, pages.ms_psize, f->n / pages.ms_psize, 1};
        if (file.pages >= 2 && !page_read_meta(&file, id & 1, &f->snapshot) &&
            f->snapshot.txn == id)
            f->meta = &f->snapshot;
        else
            nanosleep(&pause, NULL);
    }
    return lmdb_error(e, rc, "cannot read the database");
}

static int open_own(tables_file *f, store *s, const atomic_bool *cancel, err *e) {
    const txn_wait wait = {.busy_timeout_ms = FORMAT_TIMEOUT_MS, .cancel = cancel};
    mdb_filehandle_t fd;
    f->store = s;
    /* An open transaction holds the lock already. */
    f->locked = s->no_lock && !s->open_txns;
    int status = f->locked ? reader_lock(s, &wait, e) : 0;
    f->locked = f->locked && !status;
    if (!status) /* the open file: its name may be another one's by now */
        status = lmdb_error(e, mdb_env_get_fd(s->env, &fd), "cannot read the database");
    if (!status)
        status = map_file(f, fd, s->path, e);
    if (!status)
        status = hold_commit(f, e);
    return status;
}

/* Another directory: its lock keeps writers away. A directory without a lock file, or with one that
 * cannot be opened, is read all the same: it may be all that is left. */
static int open_other(tables_file *f, const char *from, const atomic_bool *cancel, err *e) {
    const txn_wait wait = {.busy_timeout_ms = FORMAT_TIMEOUT_MS, .cancel = cancel};
    buf path = {0};
    f->lock.path = path_without_slashes(from);
    buf_printf(&path, "%s/writer.lock", f->lock.path);
    f->lock.lock_fd = open(path.p, O_RDONLY | O_CLOEXEC);
    int status = reader_lock(&f->lock, &wait, e);
    buf_clear(&path);
    buf_printf(&path, "%s/tables.mdb", f->lock.path);
    int fd = status ? -1 : open(path.p, O_RDONLY | O_CLOEXEC);
    if (!status && fd < 0)
        status = err_set_errno(e, errno, "cannot open '%s'", path.p);
    if (!status)
        status = map_file(f, fd, f->lock.path, e);
    if (fd >= 0)
        close(fd);
    buf_free(&path);
    return status;
}

int tables_file_open(tables_file *f, store *s, const char *from, const atomic_bool *cancel,
                     err *e) {
    struct stat st;
    *f = (tables_file){.lock.lock_fd = -1};
    /* Closing any descriptor of a lock file gives up this process's lock. */
    bool own = !from || (stat(from, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode);
    int status = own ? open_own(f, s, cancel, e) : open_other(f, from, cancel, e);
    if (!status && f->n == 0)
        status = err_set(e, ERR_CORRUPT, "'%s/tables.mdb' is empty", from ? from : s->path);
    if (status)
        tables_file_close(f);
    return status;
}

void tables_file_close(tables_file *f) {
    if (f->bytes)
        munmap((void *)(uintptr_t)f->bytes, f->n);
    if (f->reader)
        mdb_txn_abort(f->reader);
    if (f->locked)
        writer_unlock(f->store);
    if (f->lock.lock_fd >= 0)
        close(f->lock.lock_fd);
    free(f->lock.path);
    *f = (tables_file){.lock.lock_fd = -1};
}

/* ---- values ---------------------------------------------------------------------------------- */

bool file_payload(bool has_sums, uint32_t tree, size_t head_bytes, const walk_value *v,
                  MDB_val *payload) {
    const sum_rule rule = {.seed = tree, .head_bytes = head_bytes};
    *payload = v->data;
    return !has_sums ||
           (sum_verify(&rule, v->key, v->data, SUM_BOTH) && sum_payload(v->data, payload));
}

bool file_tree_number(str name, uint32_t *out) {
    uint32_t n = 0;
    if (name.n < 2 || name.n > 5 || name.p[0] != 's')
        return false;
    for (size_t i = 1; i < name.n; i++) {
        if (name.p[i] < '0' || name.p[i] > '9')
            return false;
        n = n * 10 + (uint32_t)(name.p[i] - '0');
    }
    *out = n;
    return n < TREES_MAX;
}

walk_tree *file_find_tree(walk *w, uint32_t tree) {
    char name[16];
    snprintf(name, sizeof name, "s%u", tree);
    return walk_find(w, str_from(name));
}

/* ---- ranges of rowids ------------------------------------------------------------------------ */

static bool touches(const rowid_range *r, int64_t first) {
    return r->last == INT64_MAX || first <= r->last + 1;
}

void ranges_add(rowid_ranges *r, int64_t first, int64_t last) {
    rowid_range *end = r->n ? &r->ranges[r->n - 1] : NULL;
    if (end && first >= end->first && touches(end, first)) /* rows come in order */
        end->last = BASE_MAX(end->last, last);
    else
        ARRAY_PUSH(r->ranges, r->n, r->cap, ((rowid_range){first, last}));
}

void ranges_merge(rowid_ranges *r) {
    size_t n = 0;
    if (r->n)
        qsort(r->ranges, r->n, sizeof *r->ranges, rowid_compare); /* by `first` */
    for (size_t i = 0; i < r->n; i++) {
        rowid_range *end = n ? &r->ranges[n - 1] : NULL;
        if (end && touches(end, r->ranges[i].first))
            end->last = BASE_MAX(end->last, r->ranges[i].last);
        else
            r->ranges[n++] = r->ranges[i];
    }
    r->n = n;
}

bool ranges_have(const rowid_ranges *r, int64_t rowid) {
    size_t low = 0, high = r->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->ranges[middle].last < rowid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->n && r->ranges[low].first <= rowid;
}

/* ---- objects --------------------------------------------------------------------------------- */

/* The format version is 1 if any record of the catalog is one of version 1: the header's magic text
 * without a checksum. */
static int look_for_old_header(void *arg, const walk_value *v) {
    file_objects *o = arg;
    if (v->key.mv_size == 1 && *(const char *)v->key.mv_data == 'H' && catalog_is_header(v->data))
        o->has_sums = false;
    return 0;
}

void file_objects_begin(file_objects *o, walk *w) {
    walk_tree *t = walk_find(w, STR("catalog"));
    *o = (file_objects){.mem = arena_new(), .has_sums = true};
    if (!t)
        return;
    walk quiet = *w;
    quiet.arg = o;
    quiet.value = look_for_old_header;
    quiet.fault = walk_ignore_fault;
    quiet.spare = NULL;
    walk_again(&quiet, t);
    free(quiet.spare);
}

static void add_record(file_objects *o, MDB_val key, MDB_val bytes, bool copy) {
    const char *p = key.mv_data;
    uint32_t id;
    if (key.mv_size != 5)
        return;
    memcpy(&id, p + 1, 4);
    ARRAY_PUSH(o->records, o->nrecords, o->records_cap,
               ((file_record){.kind = *p,
                              .id = __builtin_bswap32(id),
                              .in_catalog = !copy,
                              .in_copies = copy,
                              .bytes = bytes}));
}

static void add_setting(file_objects *o, MDB_val bytes) {
    const size_t n = sizeof CATALOG_COPY - 1;
    bytes_reader r = {bytes.mv_data, (const uint8_t *)bytes.mv_data + bytes.mv_size, false};
    str key = get_str(&r);
    if (r.bad)
        return;
    str rest = {(const char *)r.p, (size_t)(r.end - r.p)};
    if (key.n > n && memcmp(key.p, CATALOG_COPY, n) == 0)
        add_record(o, (MDB_val){key.n - n, (void *)(uintptr_t)(key.p + n)},
                   (MDB_val){rest.n, (void *)(uintptr_t)rest.p}, true);
    else
        ARRAY_PUSH(o->settings, o->nsettings, o->settings_cap, ((file_setting){key, rest}));
}

bool file_objects_add(file_objects *o, bool of_catalog, const walk_value *v) {
    MDB_val bytes;
    if (!file_payload(o->has_sums, of_catalog ? TREE_CATALOG : TREE_META, SUM_WHOLE, v, &bytes))
        return false;
    if (!of_catalog) {
        add_setting(o, bytes);
    } else if (v->key.mv_size == 1 && catalog_is_header(bytes)) {
        o->has_header = true;
        o->header = bytes;
    } else {
        add_record(o, v->key, bytes, false);
    }
    return true;
}

static int compare_records(const void *pa, const void *pb) {
    const file_record *a = pa, *b = pb;
    if (a->kind != b->kind)
        return a->kind - b->kind;
    return a->id != b->id ? (a->id > b->id) - (a->id < b->id) : b->in_catalog - a->in_catalog;
}

/* Makes one of a record and its copy. */
static void merge_records(file_objects *o) {
    size_t n = 0;
    if (o->nrecords)
        qsort(o->records, o->nrecords, sizeof *o->records, compare_records);
    for (size_t i = 0; i < o->nrecords; i++) {
        file_record *last = n ? &o->records[n - 1] : NULL;
        const file_record *r = &o->records[i];
        if (!last || last->kind != r->kind || last->id != r->id) {
            o->records[n++] = *r;
            continue;
        }
        last->in_copies = last->in_copies || r->in_copies;
        last->differ = last->differ || last->bytes.mv_size != r->bytes.mv_size ||
                       memcmp(last->bytes.mv_data, r->bytes.mv_data, r->bytes.mv_size) != 0;
    }
    o->nrecords = n;
}

static void read_state(const file_objects *o, file_table *t) {
    t->info.rows = ROWS_UNKNOWN;
    for (size_t i = 0; i < o->nrecords; i++)
        if (o->records[i].kind == 'S' && o->records[i].id == t->def.id &&
            o->records[i].bytes.mv_size == 16)
            memcpy(&t->info.rows, (const char *)o->records[i].bytes.mv_data + 8, 8);
}

void file_objects_end(file_objects *o) {
    merge_records(o);
    o->tables = ARENA_ARRAY(o->mem, file_table, o->nrecords + 1);
    for (size_t i = 0; i < o->nrecords; i++) {
        file_record *r = &o->records[i];
        file_table *t = &o->tables[o->ntables];
        if (r->kind != 'T')
            continue;
        *t = (file_table){0};
        t->info.def = &t->def;
        if (!catalog_read_table(r->bytes, o->mem, &t->def, &t->info)) {
            r->kind = 0;
            continue;
        }
        t->def.id = r->id;
        row_layout_init(&t->info.layout, o->mem, &t->def);
        read_state(o, t);
        o->ntables++;
    }
}

void file_objects_free(file_objects *o) {
    free(o->records);
    free(o->settings);
    arena_free(o->mem);
    *o = (file_objects){0};
}
