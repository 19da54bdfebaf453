/*
 * bind_copy.c - COPY table FROM 'file' and COPY table | (query) TO 'file', with their options.
 */
#include <string.h>

#include "bind_int.h"

int bind_switch(binder *b, const copy_option *o, bool *on) {
    str name = o->name.name;
    if (option_switch(o, on))
        return 0;
    return fail_ident(b, o->name, "%.*s must be on or off", (int)name.n, name.p);
}

static int delimiter_of(binder *b, const copy_option *o, char *out) {
    str s = o->value && o->value->literal.type == TYPE_TEXT ? o->value->literal.s : STR("");
    if (str_equal_nocase(s, STR("\\t")) || str_equal_nocase(s, STR("tab")))
        s = STR("\t");
    if (s.n != 1 || s.p[0] == '"' || s.p[0] == '\n' || s.p[0] == '\r')
        return fail_ident(b, o->name,
                          "DELIMITER must be one character, such as ',', '\\t', ';', '|'");
    *out = s.p[0];
    return 0;
}

static int header_of(binder *b, const copy_option *o, csv_header *out) {
    bool on;
    int status = bind_switch(b, o, &on);
    *out = on ? CSV_HEADER_YES : CSV_HEADER_NO;
    return status;
}

static int format_of(binder *b, const copy_option *o, file_options *out) {
    str s = o->value && o->value->literal.type == TYPE_TEXT ? o->value->literal.s : STR("");
    bool csv = str_equal_nocase(s, STR("csv")), tsv = str_equal_nocase(s, STR("tsv"));
    if (!csv && !tsv && !str_equal_nocase(s, STR("json")))
        return fail_ident(b, o->name, "FORMAT must be CSV, TSV or JSON");
    out->format = csv || tsv ? FILE_CSV : FILE_JSON;
    if (tsv)
        out->delimiter = '\t';
    return 0;
}

/* The text for NULL is written and recognised without quotes, so it cannot contain characters
 * that the format itself uses. */
static int null_of(binder *b, const copy_option *o, str *out) {
    if (!o->value || o->value->literal.type != TYPE_TEXT) {
        fail_ident(b, o->name, "the option NULL needs a text in single quotes");
        err_hint(b->e, "write NULL 'NA'");
        return ERR_BIND;
    }
    *out = o->value->literal.s;
    for (size_t i = 0; i < out->n; i++)
        if (out->p[i] == '"' || out->p[i] == '\n' || out->p[i] == '\r')
            return fail_ident(b, o->name, "the text for NULL cannot contain quotes or line breaks");
    return 0;
}

static int bind_options(binder *b, const ast *a, file_options *out) {
    static const char *const names[] = {"DELIMITER", "HEADER", "NULL", "FORMAT"};
    for (int i = 0; i < a->items.n; i++) {
        const copy_option *o = a->items.items[i];
        int status;
        if (str_equal_nocase(o->name.name, STR("DELIMITER")) ||
            str_equal_nocase(o->name.name, STR("DELIM"))) {
            status = delimiter_of(b, o, &out->delimiter);
        } else if (str_equal_nocase(o->name.name, STR("HEADER"))) {
            status = header_of(b, o, &out->header);
        } else if (str_equal_nocase(o->name.name, STR("NULL"))) {
            status = null_of(b, o, &out->null_text);
        } else if (str_equal_nocase(o->name.name, STR("FORMAT"))) {
            status = format_of(b, o, out);
        } else {
            fail_ident(b, o->name, "COPY has no option \"%.*s\"", (int)o->name.name.n,
                       o->name.name.p);
            const char *meant = str_nearest(o->name.name, names, BASE_COUNT(names));
            err_hint(b->e,
                     meant ? "did you mean %s?" : "options are DELIMITER, HEADER, NULL, FORMAT",
                     meant);
            return ERR_BIND;
        }
        if (status)
            return status;
    }
    return 0;
}

int bind_copy_from(binder *b, ast *a, sql_stmt *s) {
    s->kind = STMT_COPY_FROM;
    s->copy.path = a->path;
    int status = find_table(b, a->name, &s->table);
    if (!status && a->columns.n) {
        s->copy.ncolumns = a->columns.n;
        status = find_columns(b, s->table, &a->columns, &s->copy.columns);
    }
    if (!status)
        status = bind_options(b, a, &s->copy.options);
    if (status)
        return status;
    s->defaults = ARENA_ARRAY(b->mem, expr *, s->table->ncolumns);
    for (int i = 0; i < s->table->ncolumns && !status; i++)
        status = bind_default(b, &s->table->columns[i], &s->defaults[i]);
    return status ? status : bind_checks(b, s->table, s);
}

/* Binds COPY t (a, b) TO as COPY (SELECT a, b FROM t) TO; t may be a view. */
static int copied_table(binder *b, const ast *a, rel **out) {
    int n = a->columns.n ? a->columns.n : 1;
    node *values = ARENA_ARRAY(b->mem, node, n);
    select_item *items = ARENA_ARRAY(b->mem, select_item, n);
    query q = {.kind = QUERY_SELECT, .pos = a->name.pos, .len = a->name.len};
    from_item from = {.kind = FROM_NAME, .pos = a->name.pos, .len = a->name.len, .name = a->name};
    q.from = &from;
    for (int i = 0; i < n; i++) {
        values[i] = (node){.kind = NODE_STAR, .pos = a->name.pos, .len = a->name.len};
        if (a->columns.n) {
            const ident *c = a->columns.items[i];
            values[i] = (node){.kind = NODE_COLUMN, .pos = c->pos, .len = c->len, .name = *c};
        }
        items[i].value = &values[i];
        list_add(b->mem, &q.items, &items[i]);
    }
    return bind_query(b, &q, out);
}

static int not_written(binder *b, const char *format) {
    err_set(b->e, ERR_UNSUPPORTED, "COPY writes CSV and TSV, not '%s'", format);
    err_hint(b->e, "use .mode json, jsonl or markdown with .once FILE");
    return ERR_UNSUPPORTED;
}

/* Reports an error for file extensions of formats that COPY does not write. */
static int check_ending(binder *b, str path) {
    static const char *const others[] = {".json", ".jsonl", ".ndjson", ".parquet", ".xlsx", ".md"};
    for (size_t i = 0; i < BASE_COUNT(others); i++) {
        str ending = str_from(others[i]);
        if (path.n < ending.n ||
            !str_equal_nocase((str){path.p + path.n - ending.n, ending.n}, ending))
            continue;
        return not_written(b, others[i]);
    }
    return 0;
}

int bind_copy_to(binder *b, ast *a, sql_stmt *s) {
    s->kind = STMT_COPY_TO;
    s->copy.path = a->path;
    int status = check_ending(b, a->path);
    if (!status)
        status = bind_options(b, a, &s->copy.options);
    if (!status && s->copy.options.format == FILE_JSON)
        status = not_written(b, "json");
    if (!status)
        status = a->query ? bind_query(b, a->query, &s->query) : copied_table(b, a, &s->query);
    if (!status)
        rel_settle_all(s->query);
    return status;
}
