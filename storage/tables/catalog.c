/*
 * catalog.c - the catalog of a transaction: loading, look-up, and the encoding of its records.
 *
 * Invariant: a snapshot never changes while anything besides the store refers to it. The store
 * keeps the last one. It loads a new one when the schema cookie differs; when only rows were
 * committed it updates the version counters in place, unless the snapshot is shared. Changes of the
 * catalog are in catalog_change.c.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tables_int.h"

static const char magic[8] = "kvasir\n";

/* ---- the header ------------------------------------------------------------------------------ */

static void header_write(buf *b, uint64_t cookie, uint32_t next_id) {
    buf_append(b, magic, sizeof magic);
    put_u32(b, FORMAT_VERSION);
    put_u64(b, cookie);
    put_u32(b, next_id);
}

bool catalog_is_header(MDB_val bytes) {
    return bytes.mv_size >= sizeof magic && memcmp(bytes.mv_data, magic, sizeof magic) == 0;
}

int catalog_check_header(const char *path, MDB_val header, uint64_t *cookie, uint32_t *next_id,
                         err *e) {
    if (header.mv_size < sizeof magic + 4 || memcmp(header.mv_data, magic, sizeof magic) != 0)
        return err_set(e, ERR_CORRUPT, "'%s' is not a kvasir database: its catalog has no header",
                       path);
    bytes_reader r = {(const uint8_t *)header.mv_data + sizeof magic,
                      (const uint8_t *)header.mv_data + header.mv_size, false};
    uint32_t version = get_u32(&r);
    if (version != FORMAT_VERSION && version != FORMAT_WITHOUT_SUMS) {
        err_set(e, ERR_UNSUPPORTED,
                "'%s' has format version %u; this kvasir reads versions %d to %d", path, version,
                FORMAT_WITHOUT_SUMS, FORMAT_VERSION);
        err_hint(e, version > FORMAT_VERSION ? "open it with a newer kvasir"
                                             : "open it with the older kvasir that wrote it, .dump "
                                               "it there and read the dump here");
        return ERR_UNSUPPORTED;
    }
    *cookie = get_u64(&r);
    *next_id = get_u32(&r);
    if (r.bad) {
        err_set(e, ERR_CORRUPT, "the catalog of '%s' is damaged", path);
        err_hint(e, DAMAGE_HINT);
        return ERR_CORRUPT;
    }
    return 0;
}

int catalog_initialise(store *s, MDB_txn *mdb, err *e) {
    buf b = {0};
    MDB_dbi catalog_dbi, meta_dbi;
    buf_append(&b, "\0\0\0\0", sum_bytes(0));
    header_write(&b, 1, 1);
    MDB_val key = {1, "H"}, data = {b.n, b.p};
    const sum_rule rule = {.seed = TREE_CATALOG, .head_bytes = SUM_WHOLE};
    size_t sums = sum_bytes(0);
    sum_write(&rule, key, b.p + sums, b.n - sums, (uint8_t *)b.p);
    int rc = mdb_dbi_open(mdb, "catalog", MDB_CREATE, &catalog_dbi);
    if (!rc)
        rc = mdb_dbi_open(mdb, "meta", MDB_CREATE, &meta_dbi);
    if (!rc)
        rc = mdb_put(mdb, catalog_dbi, &key, &data, 0);
    buf_free(&b);
    if (rc)
        return lmdb_error(e, rc, "cannot create the database");
    s->catalog_dbi = catalog_dbi;
    s->meta_dbi = meta_dbi;
    return 0;
}

int catalog_raise_cookie(txn *t, uint32_t next_id, err *e) {
    buf b = {0};
    header_write(&b, t->snap->cookie + 1, next_id);
    int status = catalog_put(t, (str){"H", 1}, buf_str(&b), e);
    buf_free(&b);
    return status;
}

int catalog_put(txn *t, str key, str bytes, err *e) {
    tree_cursor *c;
    int status = txn_fixed(t, TREE_CATALOG, &c, e);
    if (status)
        return status;
    int rc = tree_replace(c, (MDB_val){key.n, (void *)(uintptr_t)key.p},
                          (MDB_val){bytes.n, (void *)(uintptr_t)bytes.p});
    return tree_error(t, rc, "cannot write the catalog", e);
}

MDB_val catalog_key(uint8_t name[5], char kind, uint32_t id) {
    name[0] = (uint8_t)kind;
    id = __builtin_bswap32(id);
    memcpy(name + 1, &id, 4);
    return (MDB_val){5, name};
}

str catalog_make_copy_key(catalog_copy_key *out, char kind, uint32_t id) {
    size_t n = sizeof CATALOG_COPY - 1;
    memcpy(out->bytes, CATALOG_COPY, n);
    catalog_key((uint8_t *)out->bytes + n, kind, id);
    return (str){out->bytes, n + 5};
}

int catalog_put_state(txn *t, uint32_t table_id, uint64_t version, uint64_t rows, err *e) {
    uint8_t name[5];
    MDB_val key = catalog_key(name, 'S', table_id);
    uint64_t state[2] = {version, rows};
    return catalog_put(t, (str){key.mv_data, key.mv_size}, (str){(char *)state, sizeof state}, e);
}

/* ---- records --------------------------------------------------------------------------------- */

static void write_lists(buf *b, const vector_lists *l) {
    put_u8(b, (uint8_t)l->metric);
    put_u32(b, (uint32_t)l->dims);
    put_u64(b, l->rows);
    put_str(b, (str){(const char *)l->centroids, sizeof(float) * l->n * (size_t)l->dims});
}

static const vector_lists *read_lists(bytes_reader *r, arena *a, const table_def *def,
                                      const index_def *x) {
    vector_lists *l = ARENA_NEW(a, vector_lists);
    uint8_t metric = get_u8(r);
    uint32_t dims = get_u32(r);
    l->rows = get_u64(r);
    str bytes = get_str(r);
    size_t row = sizeof(float) * dims;
    if (metric > VECTOR_COSINE || x->ncolumns != 1 || dims == 0 || dims > VECTOR_DIMS_MAX ||
        def->columns[x->columns[0]].type != TYPE_VECTOR || bytes.n == 0 || bytes.n % row != 0) {
        r->bad = true;
        return NULL;
    }
    l->metric = (vector_metric)metric;
    l->dims = (int)dims;
    l->n = (uint32_t)(bytes.n / row);
    float *centroids = ARENA_ARRAY(a, float, bytes.n / sizeof(float));
    memcpy(centroids, bytes.p, bytes.n);
    l->centroids = centroids;
    lists_prepare(l, a);
    return l;
}

void catalog_write_table(buf *b, const table_info *info) {
    const table_def *def = info->def;
    put_str(b, def->name);
    put_u32(b, info->tree);
    put_u32(b, (uint32_t)def->ncolumns);
    for (int i = 0; i < def->ncolumns; i++) {
        const column_def *c = &def->columns[i];
        put_str(b, c->name);
        put_u8(b, (uint8_t)c->type);
        if (c->type == TYPE_VECTOR)
            put_u32(b, (uint32_t)c->dims);
        put_u8(b, c->not_null);
        put_str(b, c->default_sql);
        put_str(b, c->check_sql);
    }
    put_u32(b, (uint32_t)(def->rowid_column + 1));
    put_u32(b, (uint32_t)def->nindexes);
    for (int i = 0; i < def->nindexes; i++) {
        const index_def *x = &def->indexes[i];
        put_u32(b, x->id);
        put_str(b, x->name);
        put_u8(b, (uint8_t)(x->unique | x->primary << 1 | (x->lists != NULL) << 2));
        put_u32(b, info->index_trees[i]);
        put_u32(b, (uint32_t)x->ncolumns);
        for (int k = 0; k < x->ncolumns; k++)
            put_u32(b, (uint32_t)x->columns[k]);
        if (x->lists)
            write_lists(b, x->lists);
    }
    put_u32(b, (uint32_t)def->nchecks);
    for (int i = 0; i < def->nchecks; i++)
        put_str(b, def->checks[i]);
    put_u8(b, info->has_sums); /* since format version 2 */
}

/* Reads a count, at most the number of bytes left: a damaged record cannot request huge arrays. */
static int get_count(bytes_reader *r) {
    uint32_t n = get_u32(r);
    if (n > (size_t)(r->end - r->p)) {
        r->bad = true;
        return 0;
    }
    return (int)n;
}

static void read_index(bytes_reader *r, arena *a, const table_def *def, index_def *x,
                       uint32_t *tree) {
    x->id = get_u32(r);
    x->name = str_copy(a, get_str(r));
    uint8_t flags = get_u8(r);
    x->unique = flags & 1;
    x->primary = flags >> 1 & 1;
    *tree = get_u32(r);
    x->ncolumns = get_count(r);
    x->columns = ARENA_ARRAY(a, int, BASE_MAX(x->ncolumns, 1));
    for (int k = 0; k < x->ncolumns; k++) {
        x->columns[k] = (int)get_u32(r);
        if (x->columns[k] < 0 || x->columns[k] >= def->ncolumns) {
            x->columns[k] = 0;
            r->bad = true;
        }
    }
    if ((flags >> 2 & 1) && !r->bad)
        x->lists = read_lists(r, a, def, x);
}

static void read_columns(bytes_reader *r, arena *a, table_def *def) {
    def->ncolumns = get_count(r);
    def->columns = ARENA_ARRAY(a, column_def, BASE_MAX(def->ncolumns, 1));
    for (int i = 0; i < def->ncolumns; i++) {
        column_def *c = &def->columns[i];
        c->name = str_copy(a, get_str(r));
        uint8_t type = get_u8(r);
        c->type = (value_type)type;
        c->dims = type == TYPE_VECTOR ? (int)get_u32(r) : 0;
        c->not_null = get_u8(r);
        c->default_sql = str_copy(a, get_str(r));
        c->check_sql = str_copy(a, get_str(r));
        if (type < TYPE_BOOLEAN || type > TYPE_VECTOR || c->dims < 0 || c->dims > VECTOR_DIMS_MAX) {
            c->type = TYPE_BLOB;
            r->bad = true;
        }
    }
}

bool catalog_read_table(MDB_val data, arena *a, table_def *def, table_info *info) {
    bytes_reader r = {data.mv_data, (const uint8_t *)data.mv_data + data.mv_size, false};
    def->name = str_copy(a, get_str(&r));
    info->tree = get_u32(&r);
    read_columns(&r, a, def);
    uint32_t rowid_column = get_u32(&r); /* position + 1; 0: none */
    if (rowid_column > (uint32_t)def->ncolumns || def->ncolumns > COLUMNS_MAX) {
        rowid_column = 0;
        r.bad = true;
    }
    def->rowid_column = (int)rowid_column - 1;
    def->nindexes = get_count(&r);
    def->indexes = ARENA_ARRAY(a, index_def, BASE_MAX(def->nindexes, 1));
    info->index_trees = ARENA_ARRAY(a, uint32_t, BASE_MAX(def->nindexes, 1));
    for (int i = 0; i < def->nindexes; i++)
        read_index(&r, a, def, &def->indexes[i], &info->index_trees[i]);
    def->nchecks = get_count(&r);
    def->checks = ARENA_ARRAY(a, str, BASE_MAX(def->nchecks, 1));
    for (int i = 0; i < def->nchecks; i++)
        def->checks[i] = str_copy(a, get_str(&r));
    info->has_sums = r.p < r.end && get_u8(&r) != 0;
    return !r.bad;
}

void catalog_write_view(buf *b, const view_def *def) {
    put_str(b, def->name);
    put_u32(b, (uint32_t)def->ncolumns);
    for (int i = 0; i < def->ncolumns; i++)
        put_str(b, def->columns[i]);
    put_str(b, def->sql);
}

bool catalog_read_view(MDB_val data, arena *a, view_def *def) {
    bytes_reader r = {data.mv_data, (const uint8_t *)data.mv_data + data.mv_size, false};
    def->name = str_copy(a, get_str(&r));
    def->ncolumns = get_count(&r);
    def->columns = ARENA_ARRAY(a, str, BASE_MAX(def->ncolumns, 1));
    for (int i = 0; i < def->ncolumns; i++)
        def->columns[i] = str_copy(a, get_str(&r));
    def->sql = str_copy(a, get_str(&r));
    return !r.bad;
}

void catalog_write_model(buf *b, const model_def *def) {
    put_str(b, def->name);
    put_str(b, def->source);
    /* a record without options is that of older versions, which read no further */
    if (def->options.n > 0)
        put_str(b, def->options);
}

bool catalog_read_model(MDB_val data, arena *a, model_def *def) {
    bytes_reader r = {data.mv_data, (const uint8_t *)data.mv_data + data.mv_size, false};
    def->name = str_copy(a, get_str(&r));
    def->source = str_copy(a, get_str(&r));
    def->options = r.p < r.end ? str_copy(a, get_str(&r)) : STR("");
    return !r.bad;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* A record of the catalog while it is loaded; records are sorted by kind, then by name in lower
 * case. */
typedef struct loaded {
    char kind;
    uint32_t id;
    str name, lower;
    MDB_val data;
} loaded;

static int compare_loaded(const void *pa, const void *pb) {
    const loaded *a = pa, *b = pb;
    return a->kind != b->kind ? a->kind - b->kind : str_compare(a->lower, b->lower);
}

static str lower_copy(arena *a, str s) {
    char *p = arena_alloc(a, s.n + 1);
    for (size_t i = 0; i < s.n; i++)
        p[i] = ascii_lower(s.p[i]);
    p[s.n] = 0;
    return (str){p, s.n};
}

static int read_records(tree_cursor *c, arena *a, loaded **out, size_t *count) {
    size_t cap = 0, n = 0;
    loaded *records = NULL;
    MDB_val key, data;
    int rc = tree_get(c, &key, &data, MDB_FIRST);
    for (; rc == 0; rc = tree_get(c, &key, &data, MDB_NEXT)) {
        if ((rc = tree_whole_value(c, key, data)) != 0)
            break;
        char kind = *(const char *)key.mv_data;
        if (key.mv_size != 5 || kind == 'S')
            continue;
        bytes_reader r = {data.mv_data, (const uint8_t *)data.mv_data + data.mv_size, false};
        uint32_t id;
        memcpy(&id, (const char *)key.mv_data + 1, 4);
        str name = get_str(&r);
        ARRAY_PUSH(records, n, cap,
                   ((loaded){kind, __builtin_bswap32(id), name, lower_copy(a, name), data}));
    }
    if (n)
        qsort(records, n, sizeof *records, compare_loaded);
    *out = records;
    *count = n;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static bool load_objects(snapshot *s, const loaded *records, size_t count) {
    view_def *views = ARENA_ARRAY(s->mem, view_def, count + 1);
    model_def *models = ARENA_ARRAY(s->mem, model_def, count + 1);
    s->tables = ARENA_ARRAY(s->mem, table_def, count + 1);
    s->infos = ARENA_ARRAY(s->mem, table_info, count + 1);
    s->view_ids = ARENA_ARRAY(s->mem, uint32_t, count + 1);
    s->model_ids = ARENA_ARRAY(s->mem, uint32_t, count + 1);
    s->catalog = (catalog){.tables = s->tables, .views = views, .models = models};
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        const loaded *r = &records[i];
        if (r->kind == 'T') {
            int at = s->catalog.ntables++;
            table_info *info = &s->infos[at];
            info->def = &s->tables[at];
            good = catalog_read_table(r->data, s->mem, &s->tables[at], info);
            s->tables[at].id = r->id;
            row_layout_init(&info->layout, s->mem, &s->tables[at]);
        } else if (r->kind == 'V') {
            s->view_ids[s->catalog.nviews] = r->id;
            good = catalog_read_view(r->data, s->mem, &views[s->catalog.nviews++]);
        } else if (r->kind == 'M') {
            s->model_ids[s->catalog.nmodels] = r->id;
            good = catalog_read_model(r->data, s->mem, &models[s->catalog.nmodels++]);
        }
    }
    return good;
}

static int load_versions(txn *t, snapshot *s, err *e) {
    tree_cursor *c;
    int status = txn_fixed(t, TREE_CATALOG, &c, e);
    if (status)
        return status;
    for (int i = 0; i < s->catalog.ntables; i++) {
        uint8_t name[5];
        MDB_val data;
        int rc = tree_look_up(c, catalog_key(name, 'S', s->tables[i].id), &data);
        if (rc && rc != MDB_NOTFOUND)
            return tree_error(t, rc, "cannot read the catalog", e);
        if (rc || (data.mv_size != 8 && data.mv_size != 16)) {
            err_set(e, ERR_CORRUPT,
                    "the catalog of '%s' is damaged: it lacks the state of table \"%s\"",
                    t->store->path, s->tables[i].name.p);
            err_hint(e, DAMAGE_HINT);
            return ERR_CORRUPT;
        }
        memcpy(&s->tables[i].version, data.mv_data, 8);
        s->infos[i].rows = ROWS_UNKNOWN;
        if (data.mv_size == 16)
            memcpy(&s->infos[i].rows, (const char *)data.mv_data + 8, 8);
    }
    /* A write transaction sees what the one before it committed, and its id is one higher. */
    s->version_txn = mdb_txn_id(t->mdb) - (t->write ? 1 : 0);
    return 0;
}

static int snapshot_load(txn *t, uint64_t cookie, uint32_t next_id, snapshot **out, err *e) {
    tree_cursor *c = NULL;
    loaded *records = NULL;
    size_t count = 0;
    snapshot *s = mem_zalloc(sizeof *s);
    s->refs = 1;
    s->mem = arena_new();
    s->cookie = cookie;
    s->next_id = next_id;
    int status = txn_fixed(t, TREE_CATALOG, &c, e);
    if (!status) {
        int rc = read_records(c, s->mem, &records, &count);
        status = rc ? tree_error(t, rc, "cannot read the catalog", e) : 0;
    }
    if (!status && !load_objects(s, records, count)) {
        status = err_set(e, ERR_CORRUPT, "the catalog of '%s' is damaged", t->store->path);
        err_hint(e, DAMAGE_HINT);
    }
    if (!status)
        status = load_versions(t, s, e);
    free(records);
    if (status)
        snapshot_release(s);
    else
        *out = s;
    return status;
}

void snapshot_release(snapshot *s) {
    if (!s || --s->refs > 0)
        return;
    arena_free(s->mem);
    free(s);
}

static snapshot *snapshot_of(const catalog *c) {
    return (snapshot *)((uintptr_t)c - offsetof(snapshot, catalog));
}

const catalog *catalog_retain(const catalog *c) {
    snapshot_of(c)->refs++;
    return c;
}

void catalog_release(const catalog *c) {
    if (c)
        snapshot_release(snapshot_of(c));
}

static void store_keep(store *s, snapshot *snap) {
    snap->refs++;
    snapshot_release(s->snap);
    s->snap = snap;
}

static int first_load(txn *t, uint64_t cookie, uint32_t next_id, err *e) {
    store *s = t->store;
    uint64_t seen = mdb_txn_id(t->mdb) - (t->write ? 1 : 0);
    int status = 0;
    bool same = s->snap && s->snap->cookie == cookie;
    if (same && s->snap->version_txn != seen && s->snap->refs == 1)
        status = load_versions(t, s->snap, e);
    else if (!same || s->snap->version_txn != seen) {
        snapshot *fresh = NULL;
        status = snapshot_load(t, cookie, next_id, &fresh, e);
        if (!status) {
            store_keep(s, fresh);
            snapshot_release(fresh);
        }
    }
    if (!status) {
        t->snap = s->snap;
        t->snap->refs++;
    }
    return status;
}

/* Finds out whether values have checksums, before any tree is read: only a header with a checksum
 * does not begin with the magic text. */
static int read_format(txn *t, err *e) {
    store *s = t->store;
    page_guard *g = &s->guard;
    if (s->format_txn == t->base.txn + 1) {
        t->format = s->format;
        return 0;
    }
    guard_tree tree = {.has_sums = false /* not known yet */};
    MDB_val header;
    bool found = false;
    if (!guard_named(g, &t->base, "catalog", &tree.record, &found))
        return tree_damaged(t->store, NULL, TREE_MAIN, e);
    if (found && !guard_find(g, &tree, (MDB_val){1, "H"}, &header, &found))
        return tree_damaged(t->store, NULL, TREE_CATALOG, e);
    t->format = found && catalog_is_header(header) ? FORMAT_WITHOUT_SUMS : FORMAT_VERSION;
    s->format = t->format;
    s->format_txn = t->base.txn + 1;
    return 0;
}

int txn_load_catalog(txn *t, err *e) {
    MDB_val key = {1, "H"}, header = {0, NULL};
    uint64_t cookie = 0;
    uint32_t next_id = 0;
    tree_cursor *c;
    int status = t->format ? 0 : read_format(t, e);
    if (!status)
        status = txn_fixed(t, TREE_CATALOG, &c, e);
    if (status)
        return status;
    int rc = tree_look_up(c, key, &header);
    if (rc && rc != MDB_NOTFOUND)
        return tree_error(t, rc, "cannot read the catalog", e);
    status = catalog_check_header(t->store->path, header, &cookie, &next_id, e);
    if (status)
        return status;
    if (!t->snap)
        return first_load(t, cookie, next_id, e);
    snapshot *fresh = NULL;
    status = snapshot_load(t, cookie, next_id, &fresh, e);
    if (status)
        return status;
    snapshot_release(t->retired);
    t->retired = t->snap;
    t->snap = fresh;
    return 0;
}

/* ---- looking up ------------------------------------------------------------------------------ */

const table_def *catalog_table(const catalog *c, str name) {
    int low = 0, high = c->ntables;
    while (low < high) {
        int middle = (low + high) / 2;
        int order = str_compare_nocase(c->tables[middle].name, name);
        if (order == 0)
            return &c->tables[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const view_def *catalog_view(const catalog *c, str name) {
    for (int i = 0; i < c->nviews; i++)
        if (str_equal_nocase(c->views[i].name, name))
            return &c->views[i];
    return NULL;
}

const model_def *catalog_model(const catalog *c, str name) {
    for (int i = 0; i < c->nmodels; i++)
        if (str_equal_nocase(c->models[i].name, name))
            return &c->models[i];
    return NULL;
}

const index_def *catalog_index(const catalog *c, str name, const table_def **table) {
    for (int i = 0; i < c->ntables; i++)
        for (int k = 0; k < c->tables[i].nindexes; k++)
            if (str_equal_nocase(c->tables[i].indexes[k].name, name)) {
                if (table)
                    *table = &c->tables[i];
                return &c->tables[i].indexes[k];
            }
    return NULL;
}

int table_resolve(txn *t, const table_def *def, const table_info **out, err *e) {
    const snapshot *s = t->snap;
    if (def >= s->tables && def < s->tables + s->catalog.ntables) {
        *out = &s->infos[def - s->tables];
        return 0;
    }
    for (int i = 0; i < s->catalog.ntables; i++)
        if (s->tables[i].id == def->id) {
            if (s->tables[i].ncolumns != def->ncolumns || s->tables[i].nindexes != def->nindexes)
                break;
            *out = &s->infos[i];
            return 0;
        }
    return err_set(e, ERR_BIND,
                   "table \"%.*s\" was changed or dropped after this statement was prepared",
                   (int)def->name.n, def->name.p);
}
