/*
 * recover.c - .recover: copies all that is sound of a database into a new one.
 *
 * A row is copied if its checksum is right, from
 *   - the leaves that the table's tree refers to;
 *   - for the keys that these have lost: from damaged leaves, node by node, and from the leaves that
 *     neither a tree nor the free list refers to, which a damaged branch had. Without a sound free
 *     list it cannot be told which of the latter are old versions, so they are not used.
 *
 * If the tree of trees is lost as well, the file is searched for the newest one that is whole. If
 * there is none, every leaf of the file counts as one that a damaged branch had.
 *
 * A tree whose root is in a sound free list is an older version of the table's: of its leaves only those
 * that are not in that list belong to the last commit as well; the others count as lost.
 *
 * Invariants: the damaged file is not written; a row found at the second kind of place never
 * replaces one of the first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "damage_int.h"

enum { RANGES_MAX = 8 }; /* ranges of lost rows named in a line */

/* A row found outside of its table's tree. */
typedef struct found_row {
    int64_t rowid;
    MDB_val bytes; /* in the map */
} found_row;

typedef struct recovery {
    walk w;
    file_objects objects;
    buf *report;
    const atomic_bool *cancel;
    err *e;
    store *to;
    uint64_t *leaves; /* [nleaves] damaged ones */
    size_t nleaves, leaves_cap;
    bool orphans;           /* leaves that belong to no tree are lost ones */
    const uint16_t *owners; /* [w.nowner] owners of the pages, by read_structure */
    bool lost;              /* a fault was found in the tree at work */
    bool incomplete;
    /* the table at work */
    const file_table *table;
    txn *t;
    const table_info *made;
    value *row;
    uint64_t copied;
    rowid_ranges lost_rows; /* rowids whose rows were not found in the table's tree */
    found_row *found;       /* [nfound] */
    size_t nfound, found_cap;
    uint64_t page, sound;            /* the leaf at work, and the number of its sound rows */
    rowid_range page_keys, page_bad; /* the rowids it may have; the bad ones, if it has some */
    bool has_bad;
    uint64_t total_rows, total_lost;
    int total_tables;
    bool unknown_lost;
} recovery;

/* Appends a line about something that is lost. */
static void note(recovery *r, const char *format, ...) BASE_PRINTF(2, 3);
static void note(recovery *r, const char *format, ...) {
    char line[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    r->incomplete = true;
    buf_printf(r->report, "%s\n", line);
}

static bool is_cancelled(const recovery *r) {
    return r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed);
}

/* ---- the structure --------------------------------------------------------------------------- */

static int note_leaf(void *arg, const walk_fault *f) {
    recovery *r = arg;
    if (f->leaf)
        ARRAY_PUSH(r->leaves, r->nleaves, r->leaves_cap, f->leaf);
    return 0;
}

/* Reads the structure of the file: which pages are in use, and which leaves are damaged. */
static int read_structure(recovery *r, const tables_file *f, const page_meta *meta, bool *usable) {
    walk_free(&r->w);
    r->nleaves = 0;
    r->w.arg = r;
    r->w.value = NULL;
    r->w.fault = note_leaf;
    r->w.cancel = r->cancel;
    int status = walk_begin(&r->w, f->bytes, f->n, meta, usable);
    if (status || !*usable)
        return status;
    status = walk_free_list(&r->w);
    if (!status)
        status = walk_main(&r->w);
    for (size_t i = 0; i < r->w.ntrees && !status; i++)
        status = walk_named(&r->w, &r->w.trees[i]);
    r->owners = r->w.owner;
    return status;
}

/* Whether a tree's root is a page that the sound free list has: the page number is damaged, and names
 * an older version of the tree. */
static bool is_old_tree(const recovery *r, const walk_tree *t) {
    return r->w.free_is_sound && page_in_file(&r->w.file, t->record.root, 1) &&
           r->owners[t->record.root] == WALK_IS_FREE;
}

/* Whether a value's leaf belongs only to the older version of its tree. */
static bool is_old(const recovery *r, const walk_value *v) {
    return v->tree && r->owners[v->page] == WALK_IS_FREE && is_old_tree(r, v->tree);
}

static bool has_catalog(recovery *r) {
    return walk_find(&r->w, STR("catalog")) && walk_find(&r->w, STR("meta"));
}

/* Depth of a tree whose root is `page` and whose first leaf has records of trees; 0: it is none. */
static int main_tree_depth(const page_file *f, uint64_t page) {
    enum { DEPTH = 3 };
    bool leaf = false;
    int nodes;
    for (int depth = 1; depth <= DEPTH; depth++) {
        if (page_verify(f, page, false, &leaf, &nodes))
            return 0;
        page_node first = page_get_node(f, page, leaf, 0);
        if (leaf)
            return first.flags == F_SUBDATA && first.data_bytes == sizeof(page_tree) ? depth : 0;
        page = first.child;
    }
    return 0;
}

/* The sum of all counters of a catalog, which every commit raises. */
typedef struct age {
    file_objects objects;
    uint64_t counters;
    bool sound;
} age;

static int add_counter(void *arg, const walk_value *v) {
    age *a = arg;
    MDB_val bytes;
    uint64_t counter = 0;
    a->sound = a->sound && file_payload(a->objects.has_sums, TREE_CATALOG, SUM_WHOLE, v, &bytes);
    if (!a->sound)
        return 0;
    char kind = *(const char *)v->key.mv_data;
    uint32_t next_id;
    if (kind == 'H')
        a->sound = catalog_check_header("", bytes, &counter, &next_id, NULL) == 0;
    else if (kind == 'S' && bytes.mv_size >= sizeof counter)
        memcpy(&counter, bytes.mv_data, sizeof counter);
    a->counters += counter;
    return 0;
}

static int not_sound(void *arg, const walk_fault *f) {
    age *a = arg;
    (void)f;
    a->sound = false;
    return 0;
}

/* The counters of the catalog below a tree of trees; 0: it is not whole. */
static uint64_t counters_of(const tables_file *f, const page_meta *meta) {
    age a = {.sound = true};
    bool usable;
    walk w = {.arg = &a, .value = add_counter, .fault = not_sound};
    walk_begin(&w, f->bytes, f->n, meta, &usable);
    walk_main(&w);
    a.sound = true; /* the tree's counts are not known */
    walk_tree *t = walk_find(&w, STR("catalog"));
    if (t && walk_find(&w, STR("meta"))) {
        file_objects_begin(&a.objects, &w);
        walk_named(&w, t);
    }
    uint64_t counters = a.sound ? a.counters : 0;
    file_objects_free(&a.objects);
    walk_free(&w);
    return counters;
}

/* A meta page of a file that has none: without a tree of trees if root is NO_PAGE. */
static page_meta make_meta(const recovery *r, uint64_t root, int depth) {
    const page_tree none = {.root = NO_PAGE};
    page_meta m = {.trees = {none, none}, .last_page = r->w.file.pages - 1};
    m.trees[0].flags = WALK_FREE_LIST_FLAGS;
    m.trees[1].root = root;
    m.trees[1].depth = (uint16_t)depth;
    return m;
}

/* Searches the file for the newest tree of trees. */
static bool search_root(recovery *r, const tables_file *f, page_meta *out) {
    uint64_t best = 0;
    page_file file = r->w.file;
    file.last_page = file.pages - 1;
    for (uint64_t p = 2; p < file.pages && !is_cancelled(r); p++) {
        int depth = main_tree_depth(&file, p);
        if (!depth)
            continue;
        page_meta meta = make_meta(r, p, depth);
        uint64_t counters = counters_of(f, &meta);
        if (counters > best) {
            best = counters;
            *out = meta;
        }
    }
    return best > 0;
}

/* Chooses the commit to read. */
static int choose_commit(recovery *r, const tables_file *f) {
    bool usable = false;
    page_meta meta;
    int status = read_structure(r, f, f->meta, &usable);
    r->orphans = usable && r->w.free_is_sound;
    if (!status && usable && !f->meta) {
        size_t page_bytes;
        page_meta newest;
        if (page_read_metas(f->bytes, f->n, &page_bytes, &newest, NULL)) {
            note(r, "one of the file's first two pages is damaged: the last commit may be missing");
            r->unknown_lost = true;
        }
    }
    bool old = usable && is_old_tree(r, &r->w.main_tree);
    if (status || (!old && (r->orphans || (usable && has_catalog(r)))))
        return status;
    if (search_root(r, f, &meta)) {
        note(r, "the file's first pages are damaged: what follows is of the newest commit that was "
                "found");
        return read_structure(r, f, &meta, &usable);
    }
    note(r, "the list of all trees is damaged: rows that were changed or deleted may be old");
    meta = make_meta(r, NO_PAGE, 0);
    r->orphans = true;
    return read_structure(r, f, &meta, &usable);
}

/* Reports the pages that are both in a tree and in the free list. */
static void note_shared(recovery *r) {
    if (r->w.shared && r->w.free_is_sound) {
        note(r,
             "trees and the list of free pages share %llu pages: rows that were changed or deleted "
             "may be old",
             (unsigned long long)r->w.shared);
        r->unknown_lost = true;
    }
}

/* ---- lost leaves ----------------------------------------------------------------------------- */

/* Calls r->w.value for what may be nodes of a lost part of a tree. */
static int read_lost_leaves(recovery *r, const walk_tree *t) {
    int status = 0;
    for (size_t i = 0; i < r->nleaves && !status; i++)
        status = walk_salvage(&r->w, t, r->leaves[i]);
    if (!r->orphans)
        return status;
    uint64_t end = BASE_MIN(r->w.file.last_page + 1, r->w.file.pages);
    for (uint64_t p = 2; p < end && !status; p++) {
        uint16_t flags;
        memcpy(&flags, page_at(&r->w.file, p) + 10, 2);
        if (r->w.owner[p] == WALK_NO_OWNER && flags == P_LEAF)
            status = walk_salvage(&r->w, t, p);
        if (is_cancelled(r))
            status = ERR_CANCELLED;
    }
    return status;
}

/* ---- definitions and settings ---------------------------------------------------------------- */

static int add_catalog(void *arg, const walk_value *v) {
    recovery *r = arg;
    r->lost = is_old(r, v) || !file_objects_add(&r->objects, true, v) || r->lost;
    return 0;
}

static int add_setting(void *arg, const walk_value *v) {
    recovery *r = arg;
    r->lost = is_old(r, v) || !file_objects_add(&r->objects, false, v) || r->lost;
    return 0;
}

static int note_loss(void *arg, const walk_fault *f) {
    recovery *r = arg;
    (void)f;
    r->lost = true;
    return 0;
}

static int read_fixed(recovery *r, str name, int (*add)(void *, const walk_value *)) {
    walk_tree *t = walk_find(&r->w, name);
    r->lost = !t;
    r->w.value = add;
    r->w.fault = note_loss;
    int status = t ? walk_again(&r->w, t) : 0;
    return status || !r->lost || !r->objects.has_sums ? status : read_lost_leaves(r, t);
}

static int read_objects(recovery *r) {
    file_objects_begin(&r->objects, &r->w);
    int status = read_fixed(r, STR("catalog"), add_catalog);
    if (!status)
        status = read_fixed(r, STR("meta"), add_setting);
    if (status)
        return status;
    file_objects_end(&r->objects);
    for (size_t i = 0; i < r->objects.nrecords; i++)
        if (r->objects.records[i].kind == 0)
            note(r, "the definition of a table is damaged: the table is lost");
    return 0;
}

/* ---- the rows of a table --------------------------------------------------------------------- */

static rowid_range range_of(MDB_val low, MDB_val high) {
    int64_t end = rowid_or(high, INT64_MAX);
    return (rowid_range){rowid_or(low, INT64_MIN), end == INT64_MAX ? end : end - 1};
}

static int lose_keys(void *arg, const walk_fault *f) {
    recovery *r = arg;
    rowid_range keys = range_of(f->low, f->high);
    if (f->loses)
        ranges_add(&r->lost_rows, keys.first, f->of_value ? keys.first : keys.last);
    return 0;
}

/* Whether a value is a sound row of the table. */
static bool is_row(const recovery *r, const walk_value *v, MDB_val *bytes) {
    const table_info *info = &r->table->info;
    return v->key.mv_size == KEY_ROWID &&
           file_payload(info->has_sums, info->tree, info->layout.slots_end, v, bytes) &&
           row_decode(&info->layout, *bytes, rowid_get(v->key.mv_data), r->row, NULL) == 0;
}

/* Of a page without sound rows not even the keys are believed: all that it may have are lost. */
static void end_page(recovery *r) {
    if (r->has_bad && r->sound == 0)
        ranges_add(&r->lost_rows, r->page_keys.first, r->page_keys.last);
    r->page = r->sound = 0;
    r->has_bad = false;
}

static int put_row(recovery *r, int64_t rowid, MDB_val bytes) {
    int status = table_put_bytes(r->t, r->made, rowid, bytes.mv_data, bytes.mv_size, r->e);
    r->copied += !status;
    return status;
}

static int copy_row(void *arg, const walk_value *v) {
    recovery *r = arg;
    MDB_val bytes;
    if (v->page != r->page) {
        end_page(r);
        r->page = v->page;
        r->page_keys = range_of(v->low, v->high);
    }
    if (!is_old(r, v) && is_row(r, v, &bytes)) {
        r->sound++;
        return put_row(r, rowid_get(v->key.mv_data), bytes);
    }
    r->has_bad = true;
    int64_t rowid = rowid_or(v->key, 0);
    ranges_add(&r->lost_rows, rowid, rowid);
    return 0;
}

static int find_row(void *arg, const walk_value *v) {
    recovery *r = arg;
    MDB_val bytes;
    if (!is_old(r, v) && is_row(r, v, &bytes) &&
        ranges_have(&r->lost_rows, rowid_get(v->key.mv_data)))
        ARRAY_PUSH(r->found, r->nfound, r->found_cap,
                   ((found_row){rowid_get(v->key.mv_data), bytes}));
    return 0;
}

static int compare_found(const void *a, const void *b) {
    return rowid_compare(&((const found_row *)a)->rowid, &((const found_row *)b)->rowid);
}

static bool same_bytes(MDB_val a, MDB_val b) {
    return a.mv_size == b.mv_size && memcmp(a.mv_data, b.mv_data, a.mv_size) == 0;
}

/* Copies the rows found outside of the tree. Of a row with several versions none is copied. */
static int put_found(recovery *r) {
    int status = 0;
    if (r->nfound)
        qsort(r->found, r->nfound, sizeof *r->found, compare_found);
    for (size_t i = 0, next; i < r->nfound && !status; i = next) {
        bool same = true, there = false;
        for (next = i + 1; next < r->nfound && r->found[next].rowid == r->found[i].rowid; next++)
            same = same && same_bytes(r->found[i].bytes, r->found[next].bytes);
        if (same)
            status = table_get(r->t, r->made->def, r->found[i].rowid, r->row, &there, r->e);
        if (same && !there && !status)
            status = put_row(r, r->found[i].rowid, r->found[i].bytes);
    }
    return status;
}

static int copy_rows(recovery *r) {
    const table_info *info = &r->table->info;
    walk_tree *t = file_find_tree(&r->w, info->tree);
    r->copied = r->lost_rows.n = r->nfound = 0;
    r->w.value = copy_row;
    r->w.fault = lose_keys;
    int status = 0;
    if (t)
        status = walk_again(&r->w, t);
    else
        ranges_add(&r->lost_rows, INT64_MIN, INT64_MAX);
    end_page(r);
    ranges_merge(&r->lost_rows);
    if (!status && r->lost_rows.n && info->has_sums) {
        r->w.value = find_row;
        status = read_lost_leaves(r, t);
    }
    return status ? status : put_found(r);
}

/* ---- reporting ------------------------------------------------------------------------------- */

/* Appends the ranges of rowids among which rows are lost. */
static void append_ranges(const recovery *r, buf *b) {
    const rowid_range *ranges = r->lost_rows.ranges;
    size_t n = r->lost_rows.n;
    buf_append_c(b, n == 1 && ranges[0].first == ranges[0].last ? "rowid " : "rowids ");
    for (size_t i = 0; i < n && i < RANGES_MAX; i++) {
        const rowid_range *x = &ranges[i];
        buf_append_c(b, i ? ", " : "");
        if (x->first == x->last)
            buf_printf(b, "%lld", (long long)x->first);
        else if (x->first == INT64_MIN && x->last == INT64_MAX)
            buf_append_c(b, "unknown");
        else if (x->first == INT64_MIN)
            buf_printf(b, "up to %lld", (long long)x->last);
        else if (x->last == INT64_MAX)
            buf_printf(b, "from %lld on", (long long)x->first);
        else
            buf_printf(b, "%lld to %lld", (long long)x->first, (long long)x->last);
    }
    if (n > RANGES_MAX)
        buf_printf(b, " and %zu more ranges", n - RANGES_MAX);
}

static void report_table(recovery *r) {
    const file_table *t = r->table;
    const walk_tree *tree = file_find_tree(&r->w, t->info.tree);
    uint64_t wanted = t->info.rows;
    r->total_rows += r->copied;
    r->total_tables++;
    if (wanted == ROWS_UNKNOWN && tree)
        wanted = tree->record.entries;
    bool known = wanted != ROWS_UNKNOWN;
    if (known && wanted <= r->copied)
        return;
    uint64_t lost = known ? wanted - r->copied : 0;
    if (!r->lost_rows.n && !lost)
        return;
    buf b = {0};
    buf_printf(&b, "table \"%s\": ", t->def.name.p);
    buf_append_count(&b, r->copied);
    buf_append_c(&b, r->copied == 1 ? " row copied, " : " rows copied, ");
    if (known)
        buf_append_count(&b, lost);
    else
        buf_append_c(&b, "an unknown number");
    buf_append_c(&b, " lost");
    if (r->lost_rows.n) {
        buf_append_c(&b, lost == 1 ? " of " : " among ");
        append_ranges(r, &b);
    }
    note(r, "%s", b.p);
    r->total_lost += lost;
    r->unknown_lost = r->unknown_lost || !known;
    buf_free(&b);
}

static void report_all(recovery *r) {
    int views = 0;
    buf *b = r->report;
    for (size_t i = 0; i < r->objects.nrecords; i++)
        views += r->objects.records[i].kind == 'V';
    buf_append_c(b, "copied ");
    buf_append_count(b, (uint64_t)r->total_tables);
    buf_append_c(b, r->total_tables == 1 ? " table, " : " tables, ");
    buf_append_count(b, r->total_rows);
    buf_append_c(b, r->total_rows == 1 ? " row" : " rows");
    if (views)
        buf_printf(b, ", %d view%s", views, views == 1 ? "" : "s");
    if (!r->incomplete) {
        buf_append_c(b, "; nothing is lost");
    } else if (r->total_lost) {
        buf_append_c(b, "; ");
        buf_append_count(b, r->total_lost);
        buf_append_c(b, r->total_lost == 1 ? " row is lost" : " rows are lost");
    } else if (!r->unknown_lost) {
        buf_append_c(b, "; no row is lost");
    }
    buf_append_c(b, "\n");
}

/* ---- writing --------------------------------------------------------------------------------- */

static int begin(recovery *r) {
    return txn_begin(r->to, true, &(txn_wait){.busy_timeout_ms = FORMAT_TIMEOUT_MS}, &r->t, r->e);
}

static int end(recovery *r, int status) {
    txn *t = r->t;
    r->t = NULL;
    if (!status)
        return txn_commit(t, r->e);
    txn_abort(t);
    return status;
}

/* Builds an index, in its own transaction; one that cannot be built is left out. */
static int copy_index(recovery *r, const index_def *x) {
    const table_def *def = &r->table->def;
    err why = {0}, *e = r->e;
    int status = begin(r);
    if (status)
        return status;
    r->e = &why;
    status = end(r, catalog_create_index(r->t, def->name, x, NULL, r->cancel, &why));
    r->e = e;
    if (status && status != ERR_CONSTRAINT && status != ERR_BIND) {
        *e = why;
        return status;
    }
    if (status)
        note(r, "table \"%s\": its %s \"%s\" is left out: %s", def->name.p,
             x->primary ? "primary key" : "index", x->name.p, why.message);
    return 0;
}

/* Creates the table under its old id, since settings refer to it, and copies its rows. */
static int copy_table(recovery *r) {
    const file_table *from = r->table;
    table_def def = from->def;
    def.nindexes = 0;
    int status = begin(r);
    if (status)
        return status;
    if (from->def.id >= r->t->snap->next_id)
        r->t->snap->next_id = from->def.id;
    err why = {0};
    status = catalog_create_table(r->t, &def, &why);
    if (status == ERR_BIND) { /* two definitions, of which one is old */
        note(r, "table \"%s\" is left out: %s", def.name.p, why.message);
        end(r, status);
        return 0;
    }
    if (status)
        *r->e = why;
    const table_def *made = status ? NULL : catalog_table(txn_catalog(r->t), def.name);
    if (made)
        status = table_resolve(r->t, made, &r->made, r->e);
    if (!status) {
        txn_mark_dirty(r->t, made->id);
        r->row = mem_alloc(sizeof *r->row * (size_t)BASE_MAX(def.ncolumns, 1));
        status = copy_rows(r);
        free(r->row);
    }
    status = end(r, status);
    if (!status)
        report_table(r);
    for (int i = 0; i < from->def.nindexes && !status; i++)
        status = copy_index(r, &from->def.indexes[i]);
    return status;
}

static int copy_object(recovery *r, const file_record *record) {
    view_def view = {0};
    model_def model = {0};
    err why = {0};
    int status = 0;
    if (record->kind == 'V' && catalog_read_view(record->bytes, r->objects.mem, &view))
        status = catalog_create_view(r->t, &view, false, &why);
    else if (record->kind == 'M' && catalog_read_model(record->bytes, r->objects.mem, &model))
        status = catalog_create_model(r->t, &model, false, &why);
    else if (record->kind == 'V' || record->kind == 'M')
        note(r, "the definition of a %s is damaged: it is lost",
             record->kind == 'V' ? "view" : "model");
    if (status == ERR_BIND) { /* the name is taken: one of the two definitions is old */
        note(r, "%s", why.message);
        return 0;
    }
    if (status)
        *r->e = why;
    return status;
}

/* Copies views, models and settings. */
static int copy_others(recovery *r) {
    int status = begin(r);
    if (status)
        return status;
    for (size_t i = 0; i < r->objects.nrecords && !status; i++)
        status = copy_object(r, &r->objects.records[i]);
    for (size_t i = 0; i < r->objects.nsettings && !status; i++) {
        const file_setting *x = &r->objects.settings[i];
        const size_t n = sizeof LOST_TREE - 1;
        if (x->key.n && !(x->key.n > n && memcmp(x->key.p, LOST_TREE, n) == 0))
            status = meta_put(r->t, x->key, x->bytes, r->e);
    }
    return end(r, status);
}

int tables_recover(store *s, const char *from, store *to, const atomic_bool *cancel, buf *report,
                   bool *whole, err *e) {
    tables_file file;
    int status = tables_file_open(&file, s, from, cancel, e);
    if (status)
        return status;
    recovery r = {.report = report, .cancel = cancel, .e = e, .to = to};
    r.w.arg = &r;
    status = choose_commit(&r, &file);
    if (!status) {
        note_shared(&r);
        status = read_objects(&r);
    }
    for (size_t i = 0; i < r.objects.ntables && !status; i++) {
        r.table = &r.objects.tables[i];
        status = copy_table(&r);
    }
    if (!status)
        status = copy_others(&r);
    if (!status)
        report_all(&r);
    if (status == ERR_CANCELLED)
        err_set(e, ERR_CANCELLED, "cancelled");
    *whole = !r.incomplete;
    file_objects_free(&r.objects);
    walk_free(&r.w);
    free(r.leaves);
    free(r.lost_rows.ranges);
    free(r.found);
    tables_file_close(&file);
    return status;
}
