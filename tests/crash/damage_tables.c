/*
 * damage_tables.c - tables.mdb damaged in all ways: no crash, no hang, no wrong answer without an
 * error; tables whose pages are whole still read; .check tells what made a query fail; .backup
 * refuses what .check finds; .recover gives rows that are right, and all whose bytes are whole.
 *
 * Each round copies a reference database, damages a few of its pages, and asks the copy the same
 * queries as the reference, each in a child process with a time limit. A leaf whose older version is
 * in its place, or is named by its branch, is the one damage that a reader does not notice: there a
 * wrong answer is counted, but is no failure.
 *
 * KVASIR_DAMAGE_ROUNDS: number of rounds. A seed as argument begins there, and by default runs that
 * round only.
 */
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>

#include "lmdb/walk_int.h"
#include "tables/tables_int.h"

#include "crash_int.h"

enum {
    PAGE = 4096,
    ROWS_INTS = 8000,
    ROWS_TEXTS = 1200,
    ROWS_LONG = 120,
    TABLES = 5,
    TIME_LIMIT_S = 60,
    TOUCHED_MAX = 8
};

static const char *const table_names[TABLES] = {"ints", "texts", "long", "one", "empty"};

static err e;
static char folder[200];

/* ---- the reference --------------------------------------------------------------------------- */

static const table_def *find_table(txn *t, int i) {
    return catalog_table(txn_catalog(t), str_from(table_names[i]));
}

static store *open_store(const char *dir) {
    store *s = NULL;
    CHECK(store_open(&(store_options){.path = dir}, &s, &e) == 0, "%s", e.message);
    return s;
}

static txn *begin(store *s, bool write) {
    txn *t = NULL;
    CHECK(txn_begin(s, write, &(txn_wait){.busy_timeout_ms = 10000}, &t, &e) == 0, "%s", e.message);
    return t;
}

static void create_table(txn *t, const char *name, const char *const *columns,
                         const value_type *types, int n, int rowid_column, index_def *indexes,
                         int nindexes) {
    column_def defs[4] = {0};
    for (int i = 0; i < n; i++)
        defs[i] = (column_def){.name = str_from(columns[i]), .type = types[i]};
    table_def def = {.name = str_from(name),
                     .ncolumns = n,
                     .columns = defs,
                     .rowid_column = rowid_column,
                     .nindexes = nindexes,
                     .indexes = indexes};
    CHECK(catalog_create_table(t, &def, &e) == 0, "%s", e.message);
}

static void create_tables(txn *t) {
    int first[] = {0}, second[] = {1}, both[] = {2, 0};
    create_table(t, "ints", (const char *[]){"id", "n", "t"},
                 (value_type[]){TYPE_INTEGER, TYPE_INTEGER, TYPE_TEXT}, 3, 0,
                 &(index_def){.ncolumns = 1, .columns = second}, 1);
    index_def on_texts[] = {{.ncolumns = 1, .columns = first}, {.ncolumns = 2, .columns = both}};
    create_table(t, "texts", (const char *[]){"k", "b", "n"},
                 (value_type[]){TYPE_TEXT, TYPE_BLOB, TYPE_INTEGER}, 3, -1, on_texts, 2);
    create_table(t, "long", (const char *[]){"id", "t"}, (value_type[]){TYPE_INTEGER, TYPE_TEXT}, 2,
                 0, NULL, 0);
    create_table(t, "one", (const char *[]){"a", "b"}, (value_type[]){TYPE_INTEGER, TYPE_TEXT}, 2,
                 -1, &(index_def){.unique = true, .ncolumns = 1, .columns = first}, 1);
    create_table(t, "empty", (const char *[]){"a"}, (value_type[]){TYPE_TEXT}, 1, -1,
                 &(index_def){.unique = true, .ncolumns = 1, .columns = first}, 1);
    view_def view = {.name = STR("v"), .sql = STR("SELECT n FROM ints")};
    CHECK(catalog_create_view(t, &view, false, &e) == 0, "%s", e.message);
}

static str make_text(int64_t k, size_t n, char *out) {
    for (size_t i = 0; i < n; i++)
        out[i] = (char)('a' + (k * 31 + (int64_t)i * 7) % 26);
    int digits = snprintf(out, n, "%lld", (long long)(k % 700));
    if (n > (size_t)digits)
        out[digits] = ' ';
    return (str){out, n};
}

/* Row k of a table; `version` differs between rewrites. */
static void make_row(int table, int64_t k, int64_t version, value *row, char *text) {
    size_t n = k % 9 == 0 ? 2500 + (size_t)(k * 37 % 9000) : (size_t)(8 + k * 13 % 300);
    switch (table) {
    case 0:
        row[0] = value_int(k);
        row[1] = k % 50 == 7 ? value_null() : value_int((k * 7919 + version) % 4000);
        row[2] = value_text(make_text(k, 90 + (size_t)k % 40, text));
        break;
    case 1:
        row[0] = value_text(make_text(k, k % 17 == 5 ? 430 + (size_t)k % 60 : n % 380 + 8, text));
        row[1] = k % 4 == 1 ? value_null() : value_text(make_text(k + version, n, text + 20000));
        row[1].type = row[1].type == TYPE_NULL ? TYPE_NULL : TYPE_BLOB;
        row[2] = value_int(k % 40);
        break;
    case 2:
        row[0] = value_int(k * 10);
        row[1] = value_text(make_text(k + version, 3000 + (size_t)(k * 977 % 40000), text));
        break;
    default:
        row[0] = value_int(k);
        row[1] = value_text(make_text(k, 20, text));
    }
}

static void insert_row(txn *t, int table, int64_t k, int64_t version) {
    static char text[70000];
    value row[3];
    make_row(table, k, version, row, text);
    CHECK(table_insert(t, find_table(t, table), row, NULL, &e) == 0, "%s", e.message);
}

static void fill_tables(txn *t) {
    for (int64_t k = 1; k <= ROWS_INTS; k++)
        insert_row(t, 0, k, 0);
    for (int64_t k = 1; k <= ROWS_TEXTS; k++)
        insert_row(t, 1, k, 0);
    for (int64_t k = 1; k <= ROWS_LONG; k++)
        insert_row(t, 2, k, 0);
    for (int64_t k = 1; k <= 5; k++)
        insert_row(t, 3, k, 0);
}

/* Rewrites and deletes rows, so that there are free pages and older versions of pages. */
static void rewrite_rows(txn *t) {
    static char text[70000];
    value row[3];
    for (int table = 0; table < 3; table++)
        for (int64_t k = 1; k <= (table == 0 ? 2000 : table == 1 ? 600 : 60); k++) {
            int64_t rowid = table == 2 ? k * 10 : k;
            make_row(table, k, 1, row, text);
            int status = k % 5 == 2 ? table_delete(t, find_table(t, table), rowid, &e)
                                    : table_update(t, find_table(t, table), rowid, row, &e);
            CHECK(status == 0, "%s", e.message);
        }
}

typedef struct bytes {
    uint8_t *p;
    size_t n;
} bytes;

static bytes read_file(const char *dir) {
    char path[600];
    struct stat st;
    snprintf(path, sizeof path, "%s/tables.mdb", dir);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "cannot open %s", path);
    bytes b = {malloc((size_t)st.st_size), (size_t)st.st_size};
    CHECK(b.p && read(fd, b.p, b.n) == (ssize_t)b.n, "cannot read %s", path);
    close(fd);
    return b;
}

static void write_file(const char *dir, bytes b) {
    char path[600];
    crash_remove(dir);
    CHECK(mkdir(dir, 0777) == 0, "mkdir");
    snprintf(path, sizeof path, "%s/tables.mdb", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, b.p, b.n) == (ssize_t)b.n, "cannot write %s", path);
    close(fd);
}

static bytes reference, older;

static void build_reference(const char *dir) {
    value row[2];
    char text[100];
    store *s = open_store(dir);
    txn *t = begin(s, true);
    create_tables(t);
    fill_tables(t);
    CHECK(txn_commit(t, &e) == 0, "%s", e.message);
    older = read_file(dir);
    t = begin(s, true);
    rewrite_rows(t);
    CHECK(txn_commit(t, &e) == 0, "%s", e.message);
    /* The last commit changes no content: without its meta page the rows are the same. */
    t = begin(s, true);
    make_row(3, 1, 0, row, text);
    CHECK(table_update(t, find_table(t, 3), 1, row, &e) == 0, "%s", e.message);
    CHECK(txn_commit(t, &e) == 0, "%s", e.message);
    store_close(s);
    reference = read_file(dir);
}

/* ---- where things are ------------------------------------------------------------------------ */

typedef enum page_class {
    CLASS_FREE,
    CLASS_META,
    CLASS_FREE_LIST,
    CLASS_MAIN,
    CLASS_CATALOG, /* the trees "catalog" and "meta" */
    CLASS_BRANCH,
    CLASS_LEAF,
    CLASS_INDEX,
    CLASS_OVERFLOW,
    CLASSES
} page_class;

typedef struct page_place {
    page_class class;
    int table; /* -1: none */
} page_place;

/* The bytes of a row in the reference. */
typedef struct row_place {
    int table;
    int64_t rowid;
    uint64_t page;
    size_t at, node_bytes;       /* of the node in the file */
    size_t overflow, more_bytes; /* of the overflow pages in the file */
} row_place;

static page_place *places; /* by page */
static uint64_t npages;
static row_place *rows;
static size_t nrows, rows_cap;
static uint32_t row_trees[TABLES], index_trees[TABLES][2];
static int nindexes[TABLES];

static int table_of_tree(str name, bool *is_index) {
    uint32_t n = (uint32_t)atoi(name.n > 1 ? name.p + 1 : "9999");
    char text[20];
    for (int i = 0; i < TABLES; i++)
        for (int k = -1; k < nindexes[i]; k++) {
            n = k < 0 ? row_trees[i] : index_trees[i][k];
            snprintf(text, sizeof text, "s%u", n);
            *is_index = k >= 0;
            if (str_equal(name, str_from(text)))
                return i;
        }
    return -1;
}

static int place_row(void *arg, const walk_value *v) {
    const walk *w = arg;
    bool is_index;
    int table = table_of_tree(v->tree->name, &is_index);
    if (table < 0 || is_index)
        return 0;
    const uint8_t *key = v->key.mv_data, *data = v->data.mv_data;
    row_place r = {.table = table, .rowid = rowid_get(key), .page = v->page};
    r.at = (size_t)(key - NODE_HEADER - w->file.map);
    r.node_bytes = NODE_HEADER + v->key.mv_size + v->data.mv_size;
    if (data != key + v->key.mv_size) {
        r.node_bytes = NODE_HEADER + v->key.mv_size + 8;
        r.overflow = (size_t)(data - PAGE_HEADER - w->file.map);
        r.more_bytes = PAGE_HEADER + v->data.mv_size;
    }
    ARRAY_PUSH(rows, nrows, rows_cap, r);
    return 0;
}

static int no_fault(void *arg, const walk_fault *f) {
    (void)arg;
    CHECK(false, "the reference has a fault: page %llu %s", (unsigned long long)f->page, f->what);
}

static page_place place_of(const walk *w, uint64_t p) {
    uint16_t owner = w->owner[p], flags;
    bool is_index = false;
    memcpy(&flags, page_at(&w->file, p) + 10, 2);
    if (p < 2)
        return (page_place){CLASS_META, -1};
    if (owner < WALK_OWNERS)
        return (page_place){owner == WALK_FREE_LIST ? CLASS_FREE_LIST
                            : owner == WALK_MAIN    ? CLASS_MAIN
                                                    : CLASS_FREE,
                            -1};
    int table = table_of_tree(w->trees[owner - WALK_OWNERS].name, &is_index);
    if (table < 0)
        return (page_place){CLASS_CATALOG, -1};
    return (page_place){flags == P_BRANCH ? CLASS_BRANCH
                        : flags == P_LEAF ? (is_index ? CLASS_INDEX : CLASS_LEAF)
                                          : CLASS_OVERFLOW,
                        table};
}

static void find_places(const char *dir) {
    store *s = open_store(dir);
    txn *t = begin(s, false);
    for (int i = 0; i < TABLES; i++) {
        const table_info *info = NULL;
        CHECK(table_resolve(t, find_table(t, i), &info, &e) == 0, "%s", e.message);
        row_trees[i] = info->tree;
        nindexes[i] = info->def->nindexes;
        for (int k = 0; k < nindexes[i]; k++)
            index_trees[i][k] = info->index_trees[k];
    }
    txn_abort(t);
    store_close(s);
    walk w = {.value = place_row, .fault = no_fault};
    w.arg = &w;
    CHECK(walk_all(&w, reference.p, reference.n) == 0, "walk");
    npages = w.file.pages;
    places = calloc(npages, sizeof *places);
    for (uint64_t p = 0; p < npages; p++)
        places[p] = p < w.nowner ? place_of(&w, p) : (page_place){CLASS_FREE, -1};
    walk_free(&w);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static const char *const kind_names[] = {"flipped bits",
                                         "zeroed",
                                         "random bytes",
                                         "swapped",
                                         "another page",
                                         "an older version",
                                         "cut at a page",
                                         "cut at a byte",
                                         "an older root",
                                         "an older record",
                                         "an older root in a meta page",
                                         "an older child"};
enum {
    FLIPPED,
    ZEROED,
    RANDOM,
    SWAPPED,
    ANOTHER,
    OLDER,
    CUT_PAGE,
    CUT_BYTE,
    OLDER_ROOT,   /* a tree's record has the root that the tree had before */
    OLDER_RECORD, /* or is the whole record of before */
    OLDER_META,   /* the same of the two trees that the meta page has */
    OLDER_CHILD,  /* a branch refers to the leaf of before */
    KINDS
};

static uint64_t choose_page(void) {
    for (;;) {
        page_class class = (page_class)crash_random(CLASSES);
        for (int i = 0; i < 2000; i++) {
            uint64_t p = crash_random((uint32_t)npages);
            if (class == CLASS_META)
                return crash_random(2);
            if (places[p].class == class && (class != CLASS_FREE || crash_random(20) == 0))
                return p;
        }
    }
}

/* The trees of the last commit and of an older one, and where their records are in the file. */
typedef struct tree_places {
    page_tree now, before;
    size_t at;
} tree_places;

static tree_places tree_records[64], meta_records[2];
static int ntree_records;

static int ignore_value(void *arg, const walk_value *v) {
    (void)arg;
    (void)v;
    return 0;
}

/* Finds the trees whose older root is a free page now, which has not been overwritten. */
static void find_older_roots(void) {
    walk now = {.value = ignore_value, .fault = no_fault};
    walk before = {.value = ignore_value, .fault = no_fault};
    CHECK(walk_all(&now, reference.p, reference.n) == 0, "walk");
    CHECK(walk_all(&before, older.p, older.n) == 0, "walk");
    for (size_t i = 0; i < now.ntrees; i++) {
        const walk_tree *a = &now.trees[i], *b = walk_find(&before, a->name);
        uint64_t root = b ? b->record.root : NO_PAGE;
        if (root != NO_PAGE && places[root].class == CLASS_FREE &&
            memcmp(reference.p + root * PAGE, older.p + root * PAGE, PAGE) == 0)
            tree_records[ntree_records++] = (tree_places){
                a->record, b->record, (size_t)(a->name.p + a->name.n - (char *)reference.p)};
    }
    for (int i = 0; i < 2; i++)
        meta_records[i] =
            (tree_places){now.meta.trees[i], before.meta.trees[i],
                          (now.meta.txn & 1) * PAGE + PAGE_HEADER + offsetof(page_meta, trees) +
                              (size_t)i * sizeof(page_tree)};
    CHECK(ntree_records > 5, "only %d trees have an older root", ntree_records);
    walk_free(&now);
    walk_free(&before);
}

static void set_older_root(bytes *b, int kind) {
    const tree_places *t = kind == OLDER_META
                               ? &meta_records[crash_random(2)]
                               : &tree_records[crash_random((uint32_t)ntree_records)];
    if (kind == OLDER_RECORD || (kind == OLDER_META && crash_random(2)))
        memcpy(b->p + t->at, &t->before, sizeof t->before);
    else
        memcpy(b->p + t->at + offsetof(page_tree, root), &t->before.root, 8);
}

/* Makes a branch refer to a free leaf whose keys fit: an older version of the leaf that it has. */
static void set_older_child(bytes *b) {
    page_file f = {b->p, PAGE, b->n / PAGE, b->n / PAGE - 1};
    for (int tries = 0; tries < 1000; tries++) {
        uint64_t page = crash_random((uint32_t)npages), free = crash_random((uint32_t)npages);
        bool leaf;
        int nodes, children;
        if (places[page].class != CLASS_BRANCH || page_verify(&f, page, false, &leaf, &children))
            continue;
        for (uint64_t i = 0; i < npages; i++, free = (free + 1) % npages) {
            if (places[free].class != CLASS_FREE || page_verify(&f, free, false, &leaf, &nodes) ||
                !leaf)
                continue;
            page_node first = page_get_node(&f, free, true, 0);
            for (int k = 1; k < children; k++) {
                page_node c = page_get_node(&f, page, false, k);
                if (c.key_bytes != first.key_bytes || memcmp(c.key, first.key, c.key_bytes) != 0)
                    continue;
                memcpy((uint8_t *)(uintptr_t)c.key - NODE_HEADER, &free, 6);
                return;
            }
        }
    }
}

/* Damages b, a copy of the reference. A free page can be an old version of another,
 * too: *old is then set. */
static void damage(bytes *b, int kind, bool *old) {
    uint64_t page = choose_page(), other = choose_page();
    uint8_t *p = b->p + page * PAGE, *q = b->p + other * PAGE, kept[PAGE];
    *old = kind == OLDER || kind == OLDER_CHILD;
    switch (kind) {
    case FLIPPED:
        for (uint32_t i = 0, n = 1 + crash_random(8); i < n; i++)
            p[crash_random(4) ? crash_random(PAGE) : crash_random(64)] ^=
                (uint8_t)(1u << crash_random(8));
        break;
    case ZEROED:
        memset(p, 0, PAGE);
        break;
    case RANDOM:
        for (int i = 0; i < PAGE; i++)
            p[i] = (uint8_t)crash_random(256);
        break;
    case SWAPPED:
    case ANOTHER: {
        bool patched = kind == ANOTHER || crash_random(2);
        *old = places[page].class == CLASS_FREE || places[other].class == CLASS_FREE;
        memcpy(kept, p, PAGE);
        memcpy(p, q, PAGE);
        if (kind == SWAPPED)
            memcpy(q, kept, PAGE);
        if (patched) {
            memcpy(p, &page, 8);
            memcpy(q, &other, 8);
        }
        break;
    }
    case OLDER:
        if ((page + 1) * PAGE <= older.n)
            memcpy(p, older.p + page * PAGE, PAGE);
        break;
    case OLDER_ROOT:
    case OLDER_RECORD:
    case OLDER_META:
        set_older_root(b, kind);
        break;
    case OLDER_CHILD:
        set_older_child(b);
        break;
    case CUT_PAGE:
        b->n = crash_random((uint32_t)npages) * (size_t)PAGE;
        break;
    default:
        b->n = crash_random((uint32_t)b->n);
    }
}

/* Whether bytes of the reference are the same in the damaged file. */
static bool is_whole(const bytes *b, size_t at, size_t n) {
    return at + n <= b->n && memcmp(reference.p + at, b->p + at, n) == 0;
}

static bool row_is_whole(const bytes *b, const row_place *r) {
    size_t page = r->page * PAGE, slots;
    uint16_t lower;
    memcpy(&lower, reference.p + page + 12, 2);
    slots = lower;
    return is_whole(b, page, slots) && is_whole(b, r->at, r->node_bytes) &&
           is_whole(b, r->overflow, r->more_bytes);
}

/* Whether bytes changed that belong to a row and not to its page. */
static bool row_is_hit(const bytes *b, const row_place *r) {
    size_t more = r->more_bytes ? r->more_bytes - PAGE_HEADER : 0;
    return !is_whole(b, r->at, r->node_bytes) || !is_whole(b, r->overflow + PAGE_HEADER, more);
}

typedef struct damage_facts {
    bool whole[TABLES]; /* no page of the table nor one that all tables need was touched */
    int structure;      /* touched pages that are not leaves or overflow pages */
    bool in_use;        /* a page in use was touched */
    bool row;           /* bytes of a row were */
} damage_facts;

static damage_facts look_at_damage(const bytes *b) {
    damage_facts f = {0};
    bool common = false;
    for (int i = 0; i < TABLES; i++)
        f.whole[i] = true;
    for (uint64_t p = 0; p < npages; p++) {
        page_place at = places[p];
        if (at.class == CLASS_FREE || is_whole(b, p * PAGE, PAGE))
            continue;
        if (at.table >= 0)
            f.whole[at.table] = false;
        else
            common = true;
        f.structure +=
            at.class != CLASS_LEAF && at.class != CLASS_INDEX && at.class != CLASS_OVERFLOW;
    }
    for (int i = 0; i < TABLES; i++)
        f.whole[i] = f.whole[i] && !common && b->n >= reference.n;
    for (size_t i = 0; i < nrows && !f.row; i++)
        f.row = row_is_hit(b, &rows[i]);
    return f;
}

/* ---- queries --------------------------------------------------------------------------------- */

typedef struct answer {
    int status;
    uint64_t count, hash;
} answer;

static void add_row(answer *a, const batch *b, int row, int ncolumns) {
    buf text = {0};
    for (int i = 0; i < ncolumns; i++) {
        value v = column_get(&b->cols[i], row);
        value_print(&text, v);
        buf_append_char(&text, v.type == TYPE_NULL ? 1 : 2);
    }
    a->hash = hash64(text.p, text.n, a->hash);
    a->count++;
    buf_free(&text);
}

static void run_scan(table_scan *s, int ncolumns, answer *a) {
    arena *mem = arena_new();
    batch b = {.rows = 1, .mem = mem};
    while (b.rows && !a->status) {
        arena_reset(mem);
        b.mem = mem;
        a->status = scan_next(s, &b, &e);
        for (int i = 0; i < b.rows && !a->status; i++)
            add_row(a, &b, i, ncolumns);
    }
    arena_free(mem);
}

static answer scan_rows(txn *t, const table_def *def, const index_def *x, bool descending,
                        const value *low, const value *high) {
    static const int columns[] = {-1, 0, 1, 2};
    answer a = {0};
    table_scan *s = NULL;
    scan_spec spec = {.table = def,
                      .index = x,
                      .descending = descending,
                      .columns = columns,
                      .ncolumns = def->ncolumns + 1};
    if (low)
        spec.low = (scan_bound){.values = low, .n = 1, .inclusive = true};
    if (high)
        spec.high = (scan_bound){.values = high, .n = 1, .inclusive = true};
    a.status = scan_open(t, &spec, &s, &e);
    if (!a.status)
        run_scan(s, spec.ncolumns, &a);
    scan_close(s);
    return a;
}

static answer look_up(txn *t, const table_def *def, int64_t rowid) {
    answer a = {0};
    value row[4];
    bool found = false;
    a.status = table_get(t, def, rowid, row, &found, &e);
    buf text = {0};
    for (int i = 0; i < def->ncolumns && found && !a.status; i++)
        value_print(&text, row[i]);
    a.count = found;
    a.hash = hash64(text.p ? text.p : "", text.n, 0);
    buf_free(&text);
    return a;
}

enum { QUERIES = 64 };

/* Query q of a table: whole scans, counts, look-ups, ranges; by rowid and by each index. */
static answer run_query(txn *t, int table, int q) {
    static char text[70000];
    const table_def *def = find_table(t, table);
    answer a = {0};
    value row[3], high[3];
    uint32_t keys = table == 0 ? ROWS_INTS + 50 : table == 1 ? ROWS_TEXTS + 50 : ROWS_LONG;
    int64_t k = 1 + (int64_t)((uint32_t)q * 2654435761u % keys);
    if (!def) {
        a.status = ERR_BIND;
        return a;
    }
    const index_def *x = def->nindexes ? &def->indexes[q % def->nindexes] : NULL;
    value first = value_int(k), last = value_int(k + 200);
    make_row(table, k, q % 2, row, text);
    if (q < 2)
        return scan_rows(t, def, NULL, q, NULL, NULL);
    if (q < 6)
        return scan_rows(t, def, x, q / 2 % 2, NULL, NULL);
    if (q == 6) {
        a.status = table_row_count(t, def, &a.count, &e);
        return a;
    }
    if (q < 24)
        return look_up(t, def, table == 2 ? k * 10 : k);
    if (q < 32 || !x)
        return scan_rows(t, def, NULL, q % 2, &first, &last);
    const value *key = &row[x->columns[0]];
    if (table == 4)
        row[0] = value_text((str){"x", 1});
    if (key->type == TYPE_NULL)
        return scan_rows(t, def, x, false, NULL, key);
    high[0] = *key;
    if (q % 3 == 0 && key->type == TYPE_INTEGER)
        high[0].i += 20;
    return scan_rows(t, def, x, q / 2 % 2, key, high);
}

static answer expected[TABLES][QUERIES];

static void ask_reference(const char *dir) {
    store *s = open_store(dir);
    txn *t = begin(s, false);
    for (int i = 0; i < TABLES; i++)
        for (int q = 0; q < QUERIES; q++) {
            expected[i][q] = run_query(t, i, q);
            CHECK(expected[i][q].status == 0, "%s", e.message);
        }
    txn_abort(t);
    store_close(s);
}

/* ---- in a child process ---------------------------------------------------------------------- */

typedef struct outcome {
    bool told[TABLES]; /* a query failed */
    bool opened;
    int wrong; /* wrong answers */
    bool check_failed;
    uint64_t faults;
} outcome;

static bool same_answer(answer a, answer b) {
    return a.count == b.count && a.hash == b.hash;
}

static void ask(txn *t, int table, int q, answer want, const char *when, outcome *o) {
    answer got = run_query(t, table, q);
    if (got.status) {
        o->told[table] = true;
    } else if (!same_answer(got, want)) {
        o->wrong++;
        printf("  wrong%s: table %s, query %d: %llu rows, %llu expected\n", when,
               table_names[table], q, (unsigned long long)got.count,
               (unsigned long long)want.count);
    }
}

static txn *try_begin(store *s, bool write) {
    txn *t = NULL;
    return txn_begin(s, write, &(txn_wait){.busy_timeout_ms = 1000}, &t, &e) == 0 ? t : NULL;
}

static void child_reads(const char *dir, outcome *o) {
    store *s = NULL;
    txn *t = NULL;
    o->opened =
        store_open(&(store_options){.path = dir}, &s, &e) == 0 && (t = try_begin(s, false)) != NULL;
    for (int i = 0; i < TABLES && t; i++)
        for (int q = 0; q < QUERIES; q++)
            ask(t, i, q, expected[i][q], "", o);
    txn_abort(t);
    store_close(s);
}

/* One statement that writes. Returns its status. */
static int write_something(store *s, int table, int what) {
    static char text[70000];
    value row[3];
    txn *t = try_begin(s, true);
    if (!t)
        return ERR_CORRUPT;
    const table_def *def = find_table(t, table);
    if (!def) { /* an older catalog may lack it */
        txn_abort(t);
        return ERR_BIND;
    }
    int64_t k = 50 + what, rowid = table == 2 ? k * 10 : table == 3 ? 2 : k;
    int second[] = {1};
    index_def x = {.name = STR("made"), .ncolumns = 1, .columns = second};
    make_row(table, what == 0 ? 1000000 : k, 2, row, text);
    if (table == 0 && what > 0)
        row[0] = value_int(rowid);
    int status = what == 0   ? table_insert(t, def, row, NULL, &e)
                 : what == 1 ? table_update(t, def, rowid, row, &e)
                 : what == 2 ? table_delete(t, def, rowid, &e)
                 : what == 3 ? catalog_create_index(t, def->name, &x, NULL, NULL, &e)
                             : catalog_drop_table(t, def->name, &e);
    if (!status)
        return txn_commit(t, &e);
    txn_abort(t);
    return status;
}

/* Writes to the damaged database; what succeeds is repeated in a copy of the reference, and then
 * both must give the same answers. */
static void child_writes(const char *dir, outcome *o) {
    char sound[300];
    store *s = NULL;
    snprintf(sound, sizeof sound, "%s/sound", folder);
    write_file(sound, reference);
    if (store_open(&(store_options){.path = dir}, &s, &e) != 0)
        return;
    store *r = open_store(sound);
    for (int table = 0; table < 4; table++)
        for (int what = 0; what < (table == 3 ? 5 : 4); what++)
            if (write_something(s, table, what) == 0)
                CHECK(write_something(r, table, what) == 0, "%s", e.message);
    txn *t = try_begin(s, false), *want = begin(r, false);
    for (int i = 0; i < TABLES && t; i++)
        for (int q = 0; q < QUERIES; q++) {
            answer a = run_query(want, i, q);
            if (!a.status)
                ask(t, i, q, a, " after writing", o);
        }
    txn_abort(t);
    txn_abort(want);
    store_close(s);
    store_close(r);
}

static store *checker(void) {
    store *s = NULL;
    CHECK(store_open(&(store_options){0}, &s, &e) == 0, "%s", e.message);
    return s;
}

/* A damaged database is not copied. */
static void back_up(const char *dir, outcome *o) {
    char made[300];
    store *s = NULL;
    snprintf(made, sizeof made, "%s/recovered", folder);
    crash_remove(made);
    if (store_open(&(store_options){.path = dir}, &s, &e) == 0 &&
        store_backup(s, made, NULL, &e) == 0 && o->faults) {
        o->wrong++;
        printf("  backed up\n");
    }
    store_close(s);
}

static void child_checks(const char *dir, outcome *o) {
    buf report = {0};
    store *s = checker();
    o->check_failed = store_check(s, dir, NULL, &report, &o->faults, &e) != 0;
    if (getenv("KVASIR_DAMAGE_VERBOSE"))
        printf("%s", report.p ? report.p : e.message);
    buf_free(&report);
    store_close(s);
    back_up(dir, o);
}

/* Compares the rows of a recovered table with those of the reference. */
static void compare_table(txn *t, txn *want, int table, const bytes *damaged, bool complete,
                          outcome *o) {
    const table_def *def = find_table(t, table), *all = find_table(want, table);
    uint64_t extra = 0, n = 0, missing = 0;
    for (size_t i = 0; i < nrows; i++) {
        const row_place *r = &rows[i];
        if (r->table != table)
            continue;
        answer a = look_up(want, all, r->rowid), got = {0};
        if (def)
            got = look_up(t, def, r->rowid);
        if (got.count && (got.status || !same_answer(a, got))) {
            o->wrong++;
            printf("  recovered another row %lld of %s\n", (long long)r->rowid, table_names[table]);
        }
        n += got.count;
        missing += !got.count && complete && row_is_whole(damaged, r);
    }
    if (def && (table_row_count(t, def, &extra, &e) != 0 || extra != n)) {
        o->wrong++;
        printf("  recovered %llu rows of %s that never were\n", (unsigned long long)(extra - n),
               table_names[table]);
    }
    if (missing) {
        o->wrong++;
        printf("  not recovered: %llu whole rows of %s\n", (unsigned long long)missing,
               table_names[table]);
    }
}

static void child_recovers(const char *dir, const bytes *damaged, bool complete, outcome *o) {
    char made[300], pristine[300];
    buf report = {0};
    bool whole = false;
    snprintf(made, sizeof made, "%s/recovered", folder);
    snprintf(pristine, sizeof pristine, "%s/reference", folder);
    crash_remove(made);
    store *s = checker();
    int status = store_recover(s, made, dir, NULL, &report, &whole, &e);
    if (getenv("KVASIR_DAMAGE_VERBOSE"))
        printf("%s", report.p ? report.p : e.message);
    if (status) {
        bool tiny = damaged->n < 2 * PAGE; /* nothing is left to recover */
        o->wrong += !tiny;
        if (!tiny)
            printf("  not recovered: %s\n", e.message);
    } else {
        CHECK(store_check(s, made, NULL, &report, &o->faults, &e) == 0, "%s", e.message);
        if (o->faults) {
            o->wrong++;
            printf("  the recovered database has faults:\n%s", report.p);
        }
        store *m = open_store(made), *r = open_store(pristine);
        txn *t = begin(m, false), *want = begin(r, false);
        for (int i = 0; i < TABLES; i++)
            compare_table(t, want, i, damaged, complete, o);
        txn_abort(t);
        txn_abort(want);
        store_close(m);
        store_close(r);
    }
    buf_free(&report);
    store_close(s);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

typedef enum child_kind { READS, WRITES, CHECKS, RECOVERS } child_kind;

/* Runs one of the children; false: it crashed or took too long. */
static bool run_child(child_kind kind, const char *dir, const bytes *damaged, bool complete,
                      outcome *o) {
    static const char *const names[] = {"reading", "writing", "checking", "recovering"};
    int ends[2], status = 0;
    CHECK(pipe(ends) == 0, "pipe");
    fflush(stdout);
    *o = (outcome){0};
    pid_t pid = fork();
    if (pid == 0) {
        alarm(TIME_LIMIT_S);
        if (kind == READS)
            child_reads(dir, o);
        else if (kind == WRITES)
            child_writes(dir, o);
        else if (kind == CHECKS)
            child_checks(dir, o);
        else
            child_recovers(dir, damaged, complete, o);
        fflush(stdout);
        CHECK(write(ends[1], o, sizeof *o) == sizeof *o, "write");
        _exit(0);
    }
    close(ends[1]);
    bool got = read(ends[0], o, sizeof *o) == sizeof *o;
    close(ends[0]);
    waitpid(pid, &status, 0);
    if (got)
        return true;
    if (WIFSIGNALED(status))
        printf("  %s while %s (signal %d)\n", WTERMSIG(status) == SIGALRM ? "HANG" : "CRASH",
               names[kind], WTERMSIG(status));
    else
        printf("  CRASH while %s (exit %d)\n", names[kind], WEXITSTATUS(status));
    return false;
}

static int crashes, wrongs, stale, untold, unread, told;

/* One round; returns the number of failures. */
static int one_round(uint64_t seed) {
    char dir[300];
    crash_state = seed;
    snprintf(dir, sizeof dir, "%s/damaged", folder);
    bytes b = {malloc(reference.n), reference.n};
    memcpy(b.p, reference.p, b.n);
    bool old;
    int kind = (int)(seed % KINDS), before = crashes + wrongs + untold + unread;
    damage(&b, kind, &old);
    damage_facts facts = look_at_damage(&b);
    outcome reads = {0}, writes = {0}, checks = {0}, recovers = {0};
    write_file(dir, b);
    crashes += !run_child(READS, dir, &b, false, &reads);
    write_file(dir, b);
    crashes += !run_child(WRITES, dir, &b, false, &writes);
    write_file(dir, b);
    crashes += !run_child(CHECKS, dir, &b, false, &checks);
    bool complete = facts.structure <= 1;
    crashes += !run_child(RECOVERS, dir, &b, complete, &recovers);
    int wrong = (reads.wrong > 0) + (writes.wrong > 0) + (recovers.wrong > 0);
    wrongs += checks.wrong > 0;
    *(old ? &stale : &wrongs) += wrong;
    bool any_told = !reads.opened;
    for (int i = 0; i < TABLES; i++) {
        any_told = any_told || reads.told[i];
        if (facts.whole[i] && (!reads.opened || reads.told[i])) {
            unread++;
            printf("  the whole table %s cannot be read\n", table_names[i]);
        }
    }
    told += any_told;
    /* A whole page of other bytes, a row with other bytes, and what failed a query must be found. */
    bool planted = (facts.in_use && (kind == ZEROED || kind == RANDOM)) || (facts.row && !old);
    if ((planted || any_told || (reads.wrong && !old)) && !checks.faults && !checks.check_failed) {
        untold++;
        printf("  .check finds nothing\n");
    }
    int failures = crashes + wrongs + untold + unread - before;
    if (failures || (old && wrong) || getenv("KVASIR_DAMAGE_VERBOSE"))
        printf("seed %llu: %s%s\n", (unsigned long long)seed, kind_names[kind],
               failures ? "" : " (not a failure)");
    free(b.p);
    return failures;
}

int main(int argc, char **argv) {
    const char *tmp = getenv("TMPDIR"), *wanted = getenv("KVASIR_DAMAGE_ROUNDS");
    char dir[300];
    int failures = 0;
    int rounds = wanted ? atoi(wanted) : argc > 1 ? 1 : getenv("KVASIR_LONG") ? 2000 : 25;
    snprintf(folder, sizeof folder, "%s/kvasir-damage-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    CHECK(mkdtemp(folder), "mkdtemp");
    snprintf(dir, sizeof dir, "%s/reference", folder);
    build_reference(dir);
    find_places(dir);
    find_older_roots();
    ask_reference(dir);
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL) * 1000;
    for (int i = 0; i < rounds; i++)
        failures += one_round(seed + (uint64_t)i) > 0;
    printf("%d rounds from seed %llu: %d told; %d crashes or hangs, %d with wrong answers, %d that "
           ".check missed, %d whole tables unread; %d wrong by older pages\n",
           rounds, (unsigned long long)seed, told, crashes, wrongs, untold, unread, stale);
    const char *const names[] = {"reference", "damaged", "sound", "recovered"};
    for (int i = 0; i < 4; i++) {
        snprintf(dir, sizeof dir, "%s/%s", folder, names[i]);
        crash_remove(dir);
    }
    rmdir(folder);
    return failures > 0;
}
