/*
 * damage_int.h - a tables.mdb as .check and .recover read it: without LMDB and whatever its state.
 *
 *   tables_file  the bytes of one commit, mapped; opened from an open store or from a directory
 *   file_objects the definitions in it: of the catalog, or where that is damaged, of the copies that
 *                the tree of settings has
 */
#ifndef KVASIR_DAMAGE_INT_H
#define KVASIR_DAMAGE_INT_H

#include "lmdb/walk_int.h"

#include "tables_int.h"

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct tables_file {
    const void *bytes;
    size_t n;
    const page_meta *meta; /* the commit to read; NULL: the newest */
    page_meta snapshot;    /* *meta */
    store *store;          /* if the store has the file open */
    MDB_txn *reader;       /* keeps the commit's pages from being reused */
    bool locked;           /* store's lock is held */
    store lock;            /* of another directory: path and lock file only */
} tables_file;

/* Opens the file of `s`, or of the directory `from` if it is not NULL. Until it is closed no process
 * can change the pages of the commit. */
int tables_file_open(tables_file *f, store *s, const char *from, const atomic_bool *cancel, err *e);
void tables_file_close(tables_file *f);

/* ---- objects --------------------------------------------------------------------------------- */

/* A record of the catalog: of the object `id` of the kind 'T', 'V', 'M' or 'S'. */
typedef struct file_record {
    char kind;
    uint32_t id;
    bool in_catalog, in_copies; /* where it was found */
    bool differ;                /* the two are not the same; `bytes` is the catalog's */
    MDB_val bytes;              /* without checksums */
} file_record;

typedef struct file_setting {
    str key, bytes;
} file_setting;

typedef struct file_table {
    table_def def;
    table_info info; /* rows: by the catalog, or ROWS_UNKNOWN */
} file_table;

typedef struct file_objects {
    arena *mem;
    bool has_header, has_sums; /* has_sums: the format version is 2 */
    MDB_val header;            /* without checksums */
    file_record *records;      /* [nrecords] by kind and id; without damaged ones */
    size_t nrecords, records_cap;
    file_setting *settings; /* [nsettings] the tree of settings without the copies */
    size_t nsettings, settings_cap;
    file_table *tables; /* [ntables] by id */
    size_t ntables;
} file_objects;

/* Adds a value of the tree "catalog" or "meta". False: its checksums are wrong. */
bool file_objects_add(file_objects *o, bool of_catalog, const walk_value *v);
/* Finds the format version; before the first file_objects_add. */
void file_objects_begin(file_objects *o, walk *w);
/* Merges the records and decodes the tables, once all values are added. Records that cannot be
 * decoded are set to kind 0. */
void file_objects_end(file_objects *o);
void file_objects_free(file_objects *o);

/* Whether a value of a tree is sound by its checksums, if it has any; *payload: without them. */
bool file_payload(bool has_sums, uint32_t tree, size_t head_bytes, const walk_value *v,
                  MDB_val *payload);
/* Ranges of rowids, from first to last. */
typedef struct rowid_range {
    int64_t first, last;
} rowid_range;

typedef struct rowid_ranges {
    rowid_range *ranges; /* [n] */
    size_t n, cap;
} rowid_ranges;

void ranges_add(rowid_ranges *r, int64_t first, int64_t last);
/* Sorts the ranges and merges adjacent and overlapping ones. */
void ranges_merge(rowid_ranges *r);
bool ranges_have(const rowid_ranges *r, int64_t rowid); /* after ranges_merge */

/* The rowid of a row's key; `otherwise` if there is no key or it is none of a row. */
static inline int64_t rowid_or(MDB_val key, int64_t otherwise) {
    return key.mv_data && key.mv_size == KEY_ROWID ? rowid_get(key.mv_data) : otherwise;
}
/* Number of the tree "s<n>"; false: the name is another one. */
bool file_tree_number(str name, uint32_t *out);
/* Finds the tree s<n>; NULL: the main tree lacks it. */
walk_tree *file_find_tree(walk *w, uint32_t tree);

#endif
