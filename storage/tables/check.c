/*
 * check.c - .check: verifies a whole database and tells every fault.
 *
 * Verified besides pages and free list (walk_pages.c): checksums of all values, that rows decode by their
 * table's layout, that every index has exactly one entry for every row, that the catalog decodes,
 * that its copy is the same, and that it counts the rows that are there. Not verified: UNIQUE, NOT
 * NULL, CHECK.
 *
 * An index is compared with its rows by sums of the hashes of its keys, in BUCKETS sums by hash;
 * only for the buckets that differ the keys are collected, to find the rows they belong to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "damage_int.h"

enum {
    LINES_MAX = 20, /* lines about one table */
    BUCKETS = 4096,
    KEYS_MAX = 4 << 20 /* keys collected to compare an index */
};

/* The keys of an index: as its rows require, or as its entries are. */
typedef struct key_sums {
    uint64_t count, sums[BUCKETS];
} key_sums;

/* The hash of a key, and the row it belongs to. */
typedef struct hashed_key {
    uint64_t hash;
    int64_t rowid;
} hashed_key;

typedef struct hashed_keys {
    hashed_key *keys;
    size_t n, cap;
} hashed_keys;

/* Values of one page with the same fault, to be told in one line. */
typedef struct value_faults {
    uint64_t page, count;
    int64_t first, last; /* rowids */
    const char *one, *many;
} value_faults;

typedef struct check {
    walk w;
    file_objects objects;
    buf *out;
    uint64_t faults, rows;
    int damaged_tables, unsummed_tables;
    /* the object at work */
    buf object; /* begins its lines */
    const file_table *table;
    int index;     /* of the table; -1: its rows */
    uint64_t told; /* lines about the table */
    value_faults pending;
    rowid_ranges lost; /* of the table */
    bool index_faulty;
    uint64_t found; /* values of the tree at work */
    value *row;
    buf key;
    key_sums *wanted; /* [nindexes] by the rows of the table */
    key_sums *entries;
    const bool *buckets; /* [BUCKETS] to be collected */
    hashed_keys *keys;
} check;

/* ---- telling --------------------------------------------------------------------------------- */

static void tell(check *c, const char *text) {
    c->faults++;
    if (c->told++ < LINES_MAX)
        buf_printf(c->out, "%s: %s\n", c->object.p, text);
}

static void flush_values(check *c) {
    value_faults *v = &c->pending;
    buf b = {0};
    if (v->count == 1)
        buf_printf(&b, "%s %lld (page %llu) %s",
                   c->index < 0 ? "the row with rowid" : "the entry of rowid", (long long)v->first,
                   (unsigned long long)v->page, v->one);
    else if (v->count)
        buf_printf(&b, "%llu %s of rowids from %lld to %lld (page %llu) %s",
                   (unsigned long long)v->count, c->index < 0 ? "rows" : "entries",
                   (long long)v->first, (long long)v->last, (unsigned long long)v->page, v->many);
    if (v->count)
        tell(c, b.p);
    buf_free(&b);
    *v = (value_faults){0};
}

static void tell_value(check *c, const walk_value *v, int64_t rowid, const char *one,
                       const char *many) {
    value_faults *p = &c->pending;
    if (p->count && (p->page != v->page || p->one != one))
        flush_values(c);
    if (!p->count)
        *p = (value_faults){
            .page = v->page, .first = rowid, .last = rowid, .one = one, .many = many};
    p->count++;
    p->first = BASE_MIN(p->first, rowid);
    p->last = BASE_MAX(p->last, rowid);
    if (c->index < 0)
        ranges_add(&c->lost, rowid, rowid);
    else
        c->index_faulty = true;
}

/* Notes which rows a fault of the table's tree loses, and appends them. */
static void lose_rows(check *c, const walk_fault *f, buf *b) {
    int64_t first = rowid_or(f->low, INT64_MIN);
    int64_t end = f->of_value ? first : rowid_or(f->high, INT64_MAX);
    int64_t last = f->of_value || end == INT64_MAX ? end : end - 1;
    ranges_add(&c->lost, first, last);
    if (f->of_value)
        buf_printf(b, " (rowid %lld)", (long long)first);
    else if (first == INT64_MIN && last == INT64_MAX)
        buf_append_c(b, " (all rowids)");
    else if (first == INT64_MIN)
        buf_printf(b, " (rowids up to %lld)", (long long)last);
    else if (last == INT64_MAX)
        buf_printf(b, " (rowids from %lld on)", (long long)first);
    else
        buf_printf(b, " (rowids %lld to %lld)", (long long)first, (long long)last);
}

static int on_fault(void *arg, const walk_fault *f) {
    check *c = arg;
    buf b = {0};
    flush_values(c);
    buf_printf(&b, "page %llu", (unsigned long long)f->page);
    if (c->table && f->loses && c->index < 0)
        lose_rows(c, f, &b);
    if (c->table && c->index >= 0)
        c->index_faulty = true;
    buf_printf(&b, " %s", f->what);
    tell(c, b.p);
    buf_free(&b);
    return 0;
}

static void begin_object(check *c, const char *name) {
    buf_clear(&c->object);
    buf_append_c(&c->object, name);
    c->table = NULL;
    c->told = 0;
}

static void end_object(check *c) {
    flush_values(c);
    if (c->told > LINES_MAX)
        buf_printf(c->out, "%s: %llu more faults\n", c->object.p,
                   (unsigned long long)(c->told - LINES_MAX));
    c->told = 0;
}

/* ---- the catalog ----------------------------------------------------------------------------- */

static int on_record(void *arg, const walk_value *v) {
    check *c = arg;
    bool of_catalog = str_equal(v->tree->name, STR("catalog"));
    buf b = {0};
    if (!file_objects_add(&c->objects, of_catalog, v)) {
        buf_printf(&b, "a value of page %llu does not match its checksum",
                   (unsigned long long)v->page);
        tell(c, b.p);
    }
    buf_free(&b);
    return 0;
}

static int read_fixed(check *c, str name, const char *object) {
    walk_tree *t = walk_find(&c->w, name);
    begin_object(c, object);
    c->w.value = on_record;
    int status = 0;
    if (!t)
        tell(c, "its tree is missing");
    else
        status = walk_named(&c->w, t);
    end_object(c);
    return status;
}

static bool decodes(const check *c, const file_record *r) {
    view_def view;
    model_def model;
    return r->kind == 'V'   ? catalog_read_view(r->bytes, c->objects.mem, &view)
           : r->kind == 'M' ? catalog_read_model(r->bytes, c->objects.mem, &model)
                            : r->kind != 0;
}

/* Tells records that cannot be decoded, and those whose copy is missing or another one. */
static void check_records(check *c) {
    begin_object(c, "the catalog");
    if (!c->objects.has_header)
        tell(c, "its header is missing");
    for (size_t i = 0; i < c->objects.nrecords; i++) {
        const file_record *r = &c->objects.records[i];
        bytes_reader name = {r->bytes.mv_data, (const uint8_t *)r->bytes.mv_data + r->bytes.mv_size,
                             false};
        const char *kind = r->kind == 'V' ? "view" : r->kind == 'M' ? "model" : "table";
        str s = get_str(&name);
        const char *what = NULL;
        if (!decodes(c, r))
            what = "cannot be decoded";
        else if (r->kind == 'S' || !c->objects.has_sums)
            continue;
        else if (!r->in_catalog)
            what = "is missing; its copy is sound";
        else if (!r->in_copies)
            what = "has no copy among the settings";
        else if (r->differ)
            what = "is not the same as its copy";
        if (!what)
            continue;
        buf b = {0};
        buf_printf(&b, "the definition of %s \"%.*s\" %s", kind, (int)BASE_MIN(s.n, (size_t)200),
                   s.p, what);
        tell(c, b.p);
        buf_free(&b);
    }
    end_object(c);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void sums_add(key_sums *s, MDB_val key) {
    uint64_t h = hash64(key.mv_data, key.mv_size, 0);
    s->sums[h % BUCKETS] += h;
    s->count++;
}

/* Decodes a row into c->row; false: it is not sound, which was told. */
static bool read_row(check *c, const walk_value *v, bool quiet) {
    const table_info *info = &c->table->info;
    int64_t rowid = rowid_or(v->key, 0);
    MDB_val bytes;
    if (!file_payload(info->has_sums, info->tree, info->layout.slots_end, v, &bytes)) {
        if (!quiet)
            tell_value(c, v, rowid, "does not match its checksum", "do not match their checksums");
        return false;
    }
    if (v->key.mv_size != KEY_ROWID || row_decode(&info->layout, bytes, rowid, c->row, NULL) != 0) {
        if (!quiet)
            tell_value(c, v, rowid, "is not a row of this table", "are not rows of this table");
        return false;
    }
    return true;
}

static MDB_val make_key(check *c, int index, const walk_value *v) {
    key_make(&c->key, &c->table->def, &c->table->def.indexes[index], c->row,
             rowid_get(v->key.mv_data));
    return (MDB_val){c->key.n, c->key.p};
}

static int on_row(void *arg, const walk_value *v) {
    check *c = arg;
    if (!read_row(c, v, false))
        return 0;
    c->found++;
    for (int i = 0; i < c->table->def.nindexes; i++)
        sums_add(&c->wanted[i], make_key(c, i, v));
    return 0;
}

static int check_rows(check *c) {
    const table_info *info = &c->table->info;
    walk_tree *t = file_find_tree(&c->w, info->tree);
    buf b = {0};
    uint64_t before = c->faults;
    c->index = -1;
    c->found = 0;
    c->w.value = on_row;
    int status = 0;
    if (t) {
        status = walk_named(&c->w, t);
    } else {
        ranges_add(&c->lost, INT64_MIN, INT64_MAX);
        tell(c, "its tree is missing");
    }
    flush_values(c);
    ranges_merge(&c->lost);
    c->rows += c->found;
    if (!status && c->faults == before && info->rows != ROWS_UNKNOWN && info->rows != c->found) {
        buf_printf(&b, "%llu rows are there, but the catalog counts %llu",
                   (unsigned long long)c->found, (unsigned long long)info->rows);
        tell(c, b.p);
    }
    buf_free(&b);
    return status;
}

/* ---- indexes --------------------------------------------------------------------------------- */

static bool read_entry(check *c, const walk_value *v, bool quiet) {
    const table_info *info = &c->table->info;
    MDB_val bytes;
    bool sound = file_payload(info->has_sums, info->index_trees[c->index], SUM_WHOLE, v, &bytes);
    const vector_lists *lists = c->table->def.indexes[c->index].lists;
    bool formed =
        v->key.mv_size > KEY_ROWID &&
        (!sound || bytes.mv_size == 0 || (lists && bytes.mv_size == lists_entry_bytes(lists)));
    int64_t rowid = formed ? key_rowid(v->key) : 0;
    if (sound && formed)
        return true;
    if (!quiet)
        tell_value(c, v, rowid, sound ? "is not an index entry" : "does not match its checksum",
                   sound ? "are not index entries" : "do not match their checksums");
    return false;
}

static int on_entry(void *arg, const walk_value *v) {
    check *c = arg;
    if (read_entry(c, v, false))
        sums_add(c->entries, v->key);
    return 0;
}

static void collect(check *c, MDB_val key) {
    uint64_t h = hash64(key.mv_data, key.mv_size, 0);
    if (c->buckets[h % BUCKETS])
        ARRAY_PUSH(c->keys->keys, c->keys->n, c->keys->cap, ((hashed_key){h, key_rowid(key)}));
}

static int collect_row(void *arg, const walk_value *v) {
    check *c = arg;
    if (read_row(c, v, true))
        collect(c, make_key(c, c->index, v));
    return 0;
}

static int collect_entry(void *arg, const walk_value *v) {
    check *c = arg;
    if (read_entry(c, v, true))
        collect(c, v->key);
    return 0;
}

static int compare_hashed(const void *pa, const void *pb) {
    const hashed_key *a = pa, *b = pb;
    return a->hash != b->hash ? (a->hash > b->hash) - (a->hash < b->hash)
                              : rowid_compare(&a->rowid, &b->rowid);
}

static void tell_key(check *c, const char *format, int64_t rowid) {
    char text[100];
    snprintf(text, sizeof text, format, (long long)rowid);
    tell(c, text);
}

/* Tells keys that only one of the two sorted lists has. Entries of rows that are lost are not told:
 * the rows were. */
static void tell_differences(check *c, const hashed_keys *rows, const hashed_keys *entries) {
    size_t i = 0, k = 0;
    while (i < rows->n || k < entries->n) {
        int order = i == rows->n      ? 1
                    : k == entries->n ? -1
                                      : compare_hashed(&rows->keys[i], &entries->keys[k]);
        if (order < 0)
            tell_key(c, "lacks an entry for the row with rowid %lld", rows->keys[i].rowid);
        if (order > 0 && !ranges_have(&c->lost, entries->keys[k].rowid))
            tell_key(c, "has an entry for rowid %lld that its row does not require",
                     entries->keys[k].rowid);
        i += order <= 0;
        k += order >= 0;
    }
}

/* Marks the buckets that differ, as many as hold KEYS_MAX keys. */
static bool choose_buckets(const key_sums *a, const key_sums *b, bool *out) {
    uint64_t per_bucket = BASE_MAX(a->count, b->count) / BUCKETS + 1, n = 0;
    for (int i = 0; i < BUCKETS; i++) {
        out[i] = a->sums[i] != b->sums[i] && n * per_bucket < KEYS_MAX;
        n += out[i];
    }
    return n > 0;
}

static int compare_index(check *c, const walk_tree *rows, const walk_tree *entries) {
    bool buckets[BUCKETS];
    hashed_keys of_rows = {0}, of_entries = {0};
    const key_sums *wanted = &c->wanted[c->index];
    if (!choose_buckets(wanted, c->entries, buckets))
        return 0;
    c->buckets = buckets;
    c->w.fault = walk_ignore_fault;
    c->w.value = collect_row;
    c->keys = &of_rows;
    int status = rows ? walk_again(&c->w, rows) : 0;
    c->w.value = collect_entry;
    c->keys = &of_entries;
    if (!status)
        status = walk_again(&c->w, entries);
    c->w.fault = on_fault;
    if (of_rows.n)
        qsort(of_rows.keys, of_rows.n, sizeof *of_rows.keys, compare_hashed);
    if (of_entries.n)
        qsort(of_entries.keys, of_entries.n, sizeof *of_entries.keys, compare_hashed);
    if (!status)
        tell_differences(c, &of_rows, &of_entries);
    free(of_rows.keys);
    free(of_entries.keys);
    return status;
}

static int check_index(check *c, int index) {
    const table_info *info = &c->table->info;
    const index_def *x = &c->table->def.indexes[index];
    walk_tree *t = file_find_tree(&c->w, info->index_trees[index]);
    c->index = index;
    c->index_faulty = false;
    memset(c->entries, 0, sizeof *c->entries);
    buf_clear(&c->object);
    buf_printf(&c->object, "index \"%s\" of table \"%s\"", x->name.p, c->table->def.name.p);
    if (!t) {
        tell(c, "its tree is missing");
        return 0;
    }
    c->w.value = on_entry;
    int status = walk_named(&c->w, t);
    flush_values(c);
    return status || c->index_faulty ? status
                                     : compare_index(c, file_find_tree(&c->w, info->tree), t);
}

/* ---- the database ---------------------------------------------------------------------------- */

static int check_table(check *c, const file_table *t) {
    buf name = {0};
    uint64_t before = c->faults;
    buf_printf(&name, "table \"%s\"", t->def.name.p);
    begin_object(c, name.p);
    c->table = t;
    c->lost.n = 0;
    c->row = mem_alloc(sizeof *c->row * (size_t)BASE_MAX(t->def.ncolumns, 1));
    c->wanted = mem_zalloc(sizeof *c->wanted * (size_t)(t->def.nindexes + 1));
    c->unsummed_tables += !t->info.has_sums;
    int status = check_rows(c);
    for (int i = 0; i < t->def.nindexes && !status; i++)
        status = check_index(c, i);
    buf_clear(&c->object);
    buf_append_str(&c->object, buf_str(&name));
    end_object(c);
    c->damaged_tables += c->faults > before;
    c->table = NULL;
    free(c->row);
    free(c->wanted);
    buf_free(&name);
    return status;
}

/* Whether a dropped table's tree was so damaged that it is not used again. */
static bool is_given_up(const check *c, uint32_t tree) {
    char key[40];
    snprintf(key, sizeof key, LOST_TREE "%u", tree);
    for (size_t i = 0; i < c->objects.nsettings; i++)
        if (str_equal(c->objects.settings[i].key, str_from(key)))
            return true;
    return false;
}

/* Checks the trees that belong to no object: they must be empty. *given_up: number of those that are
 * not read. */
static int check_other_trees(check *c, int *given_up) {
    buf b = {0};
    int status = 0;
    c->w.value = NULL;
    begin_object(c, "the tree of trees");
    for (size_t i = 0; i < c->w.ntrees && !status; i++) {
        walk_tree *t = &c->w.trees[i];
        uint32_t number;
        bool is_own = file_tree_number(t->name, &number);
        if (t->walked)
            continue;
        if (is_own && is_given_up(c, number)) {
            ++*given_up;
            continue;
        }
        if (t->record.entries) {
            buf_clear(&b);
            buf_printf(&b, "tree \"%.*s\" belongs to no table, but has %llu entries",
                       (int)BASE_MIN(t->name.n, (size_t)40), t->name.p,
                       (unsigned long long)t->record.entries);
            tell(c, b.p);
        }
        status = walk_named(&c->w, t);
    }
    end_object(c);
    buf_free(&b);
    return status;
}

static int check_trees(check *c) {
    int given_up = 0;
    begin_object(c, "the list of free pages");
    int status = walk_free_list(&c->w);
    end_object(c);
    begin_object(c, "the tree of trees");
    if (!status)
        status = walk_main(&c->w);
    end_object(c);
    file_objects_begin(&c->objects, &c->w);
    if (!status)
        status = read_fixed(c, STR("catalog"), "the catalog");
    if (!status)
        status = read_fixed(c, STR("meta"), "the tree of settings and statistics");
    if (!status) {
        file_objects_end(&c->objects);
        check_records(c);
    }
    for (size_t i = 0; i < c->objects.ntables && !status; i++)
        status = check_table(c, &c->objects.tables[i]);
    if (!status)
        status = check_other_trees(c, &given_up);
    begin_object(c, "the file");
    if (!status && !given_up)
        status = walk_end(&c->w);
    end_object(c);
    return status;
}

static void append_counted(buf *b, uint64_t n, const char *one, const char *many) {
    buf_append_count(b, n);
    buf_printf(b, " %s", n == 1 ? one : many);
}

static void append_size(buf *b, uint64_t bytes) {
    if (bytes >= 1000000000)
        buf_printf(b, "%.1f GB", (double)bytes / 1e9);
    else if (bytes >= 1000000)
        buf_printf(b, "%.1f MB", (double)bytes / 1e6);
    else
        buf_printf(b, "%.0f KB", (double)bytes / 1e3);
}

static void summarize(const check *c, const char *from, size_t bytes) {
    uint64_t indexes = 0;
    for (size_t i = 0; i < c->objects.ntables; i++)
        indexes += (uint64_t)c->objects.tables[i].def.nindexes;
    if (c->unsummed_tables) {
        append_counted(c->out, (uint64_t)c->unsummed_tables, "table has", "tables have");
        buf_append_c(c->out, " no checksums, since an older kvasir made them: their rows were "
                             "checked by their form only\n");
    }
    if (c->faults == 0) {
        buf_append_c(c->out, "ok: ");
        append_counted(c->out, c->objects.ntables, "table", "tables");
        buf_append_c(c->out, ", ");
        append_counted(c->out, indexes, "index", "indexes");
        buf_append_c(c->out, ", ");
        append_counted(c->out, c->rows, "row", "rows");
        buf_append_c(c->out, ", ");
        append_size(c->out, bytes);
        buf_append_c(c->out, "\n");
        return;
    }
    append_counted(c->out, c->faults, "fault", "faults");
    if (c->damaged_tables) {
        buf_append_c(c->out, " in ");
        append_counted(c->out, (uint64_t)c->damaged_tables, "table", "tables");
    }
    buf_append_c(c->out, from ? "; .recover NEW " : "; .recover DIRECTORY");
    if (from)
        append_path(c->out, from);
    buf_append_c(c->out, " copies what is sound\n");
}

int store_check(store *s, const char *from, const atomic_bool *cancel, buf *report,
                uint64_t *faults, err *e) {
    tables_file file;
    bool usable;
    int status = tables_file_open(&file, s, from, cancel, e);
    if (status)
        return status;
    check c = {.w = {.fault = on_fault, .cancel = cancel}, .out = report, .index = -1};
    c.w.arg = &c;
    c.entries = mem_zalloc(sizeof *c.entries);
    begin_object(&c, "the file");
    status = walk_begin(&c.w, file.bytes, file.n, file.meta, &usable);
    end_object(&c);
    if (!status && usable)
        status = check_trees(&c);
    if (status == ERR_CANCELLED)
        status = err_set(e, ERR_CANCELLED, "cancelled");
    else
        summarize(&c, from, file.n);
    *faults = c.faults;
    file_objects_free(&c.objects);
    walk_free(&c.w);
    free(c.entries);
    free(c.lost.ranges);
    buf_free(&c.object);
    buf_free(&c.key);
    tables_file_close(&file);
    return status;
}
