/*
 * commands_schema.c - commands that list or copy the contents of the database: .tables, .schema,
 * .dump, .import, .backup, .check, .recover.
 *
 * Invariant: .read of what .dump wrote restores the database. The dump has models and tables with
 * their rows first, then indexes, then views, each after the views that it reads.
 */
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "commands_int.h"

/* Whether the name matches a glob pattern in which % also means *, as in sqlite3. */
static bool matches(const char *pattern, const char *name) {
    if (pattern == NULL)
        return true;
    char glob[256];
    size_t n = 0;
    for (; pattern[n] && n + 1 < sizeof glob; n++)
        glob[n] = pattern[n] == '%' ? '*' : pattern[n];
    glob[n] = 0;
    return fnmatch(glob, name, FNM_CASEFOLD) == 0;
}

static bool is_kind(const db_object *o, const char *kind) {
    return strcmp(o->kind, kind) == 0;
}

/* ---- lists of names -------------------------------------------------------------------------- */

static bool list_objects(shell *sh, command_call *c, const char *const *kinds, size_t nkinds,
                         const char *none) {
    int n, found = 0;
    db_object *objects = shell_objects(sh, c->mem, &n);
    if (objects == NULL)
        return false;
    const char **names = ARENA_ARRAY(c->mem, const char *, n + 1);
    const char *pattern = c->argc ? c->argv[0] : NULL;
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < nkinds; k++)
            if (is_kind(&objects[i], kinds[k]) && matches(pattern, objects[i].name))
                names[found++] = objects[i].name;
    }
    if (found == 0) {
        shell_note(sh, "%s", none);
        return true;
    }
    buf out = {0};
    format_columns(&out, names, NULL, found, shell_columns(sh));
    shell_print(sh, &out);
    return true;
}

bool cmd_tables(shell *sh, command_call *c) {
    static const char *const kinds[] = {"table", "view"};
    return list_objects(sh, c, kinds, 2, "no tables");
}

bool cmd_views(shell *sh, command_call *c) {
    static const char *const kinds[] = {"view"};
    return list_objects(sh, c, kinds, 1, "no views");
}

bool cmd_indexes(shell *sh, command_call *c) {
    static const char *const kinds[] = {"index"};
    return list_objects(sh, c, kinds, 1, "no indexes");
}

bool cmd_functions(shell *sh, command_call *c) {
    size_t n;
    const function_info *table = sql_functions(&n);
    int columns = shell_columns(sh);
    buf out = {0};
    for (size_t i = 0; i < n; i++)
        if (matches(c->argc ? c->argv[0] : NULL, table[i].name))
            format_entry(&out, str_from(table[i].signature), 37, str_from(table[i].help), columns);
    bool found = out.n > 0;
    shell_print(sh, &out);
    return found ||
           shell_complain(sh, "no function matches '%s'; .functions lists all", c->argv[0]);
}

bool cmd_settings(shell *sh, command_call *c) {
    size_t n;
    const setting_info *table = settings_table(&n);
    const settings *now = sh->db ? db_settings(sh->db) : NULL;
    int columns = shell_columns(sh), widest = 16;
    buf out = {0}, left = {0}, text = {0}, shown = {0};
    for (size_t i = 0; i < n; i++)
        if (matches(c->argc ? c->argv[0] : NULL, table[i].name))
            widest = BASE_MAX(widest, (int)strlen(table[i].name));
    for (size_t i = 0; i < n; i++) {
        if (!matches(c->argc ? c->argv[0] : NULL, table[i].name))
            continue;
        err e = {.pos = -1};
        buf_clear(&shown);
        buf_clear(&left);
        buf_clear(&text);
        if (now == NULL || settings_show(now, str_from(table[i].name), &shown, &e) != 0)
            buf_append_c(&shown, table[i].standard);
        buf_printf(&left, "%-*s %s", widest, table[i].name, shown.n ? shown.p : "''");
        buf_append_c(&text, table[i].help);
        if (*table[i].words)
            buf_printf(&text, " (%s)", table[i].words);
        format_entry(&out, buf_str(&left), widest + 14, buf_str(&text), columns);
    }
    bool found = out.n > 0;
    shell_print(sh, &out);
    buf_free(&left);
    buf_free(&text);
    buf_free(&shown);
    return found || shell_complain(sh, "no setting matches '%s'; .settings lists all", c->argv[0]);
}

/* ---- .schema --------------------------------------------------------------------------------- */

static bool no_table(shell *sh, command_call *c, const char *wanted, const db_object *objects,
                     int n) {
    const char **names = ARENA_ARRAY(c->mem, const char *, n + 1);
    for (int i = 0; i < n; i++)
        names[i] = objects[i].name;
    const char *near = str_nearest(str_from(wanted), names, (size_t)n);
    if (near)
        return shell_complain(sh, "no table \"%s\"; did you mean \"%s\"?", wanted, near);
    return shell_complain(sh, "no table \"%s\"; .tables lists the tables", wanted);
}

/* True if the object's name matches the pattern, or the object is an index of a table whose name
 * matches. */
static bool chosen_by(const char *pattern, const db_object *o) {
    return matches(pattern, o->name) || (o->table != NULL && matches(pattern, o->table));
}

static void print_system(buf *out, const db_object *o, int columns) {
    enum { INDENT = 4 };
    static const char mark[] = "-- ";
    int room = columns ? columns - INDENT - (int)strlen(mark) : INT_MAX;
    buf list = {0}, lines = {0};
    buf_printf(&list, "%s (", o->name);
    for (int k = 0; k < o->ncolumns; k++)
        buf_printf(&list, "%s%s %s", k ? ", " : "", o->columns[k], type_name(o->types[k]));
    buf_append_c(&list, ")");
    format_wrapped(&lines, buf_str(&list), room, INDENT);
    for (str rest = buf_str(&lines); rest.n;) {
        str line = str_split_next(&rest, '\n');
        buf_printf(out, "%s%.*s\n", mark, (int)line.n, line.p);
    }
    buf_free(&list);
    buf_free(&lines);
}

bool cmd_schema(shell *sh, command_call *c) {
    int n, found = 0;
    const char *wanted = c->argc ? c->argv[0] : NULL;
    db_object *objects = shell_objects(sh, c->mem, &n);
    if (objects == NULL)
        return false;
    int columns = sh->wrap == WRAP_OFF ? 0 : shell_wrap_columns(sh);
    buf out = {0};
    for (int i = 0; i < n; i++) {
        const db_object *o = &objects[i];
        if (!chosen_by(wanted, o))
            continue;
        if (is_kind(o, "system") && wanted) {
            print_system(&out, o, columns);
        } else if (*o->sql) {
            format_sql(&out, str_from(o->sql), columns ? BASE_MAX(columns - 1, 1) : 0);
            buf_append_c(&out, ";\n");
        }
        found++;
    }
    shell_print(sh, &out);
    if (found || wanted == NULL)
        return true;
    return no_table(sh, c, wanted, objects, n);
}

/* ---- .dump ----------------------------------------------------------------------------------- */

enum { DUMP_ROWS = 200, DUMP_BYTES = 256 * 1024 };

typedef struct dump {
    shell *sh;
    buf *out;
    const char *table;
    int rows;     /* rows in the INSERT being written */
    bool stopped; /* Ctrl-C or a failed write stopped the dump: rows are missing */
} dump;

static void dump_batch(void *ctx, stmt *s, const batch *b) {
    dump *d = ctx;
    if (d->sh->out.error || atomic_load(signals_cancel_flag())) {
        /* Batches that the worker has computed already are dropped. */
        d->stopped = true;
        stmt_cancel(s);
        return;
    }
    for (int i = 0; i < b->rows; i++) {
        if (d->rows == 0) {
            buf_append_c(d->out, "INSERT INTO ");
            sql_print_name(d->out, str_from(d->table));
            buf_append_c(d->out, " VALUES\n(");
        } else {
            buf_append_c(d->out, ",\n(");
        }
        for (int k = 0; k < b->ncols; k++) {
            if (k)
                buf_append_char(d->out, ',');
            value_print_sql(d->out, column_get(&b->cols[k], i));
        }
        buf_append_char(d->out, ')');
        if (++d->rows == DUMP_ROWS) {
            buf_append_c(d->out, ";\n");
            d->rows = 0;
        }
    }
    if (d->out->n > DUMP_BYTES)
        output_write(&d->sh->out, d->out);
}

static bool dump_table(shell *sh, const db_object *o, buf *out) {
    buf query = {0};
    err e;
    buf_append_c(&query, "SELECT * FROM ");
    sql_print_name(&query, str_from(o->name));
    dump d = {.sh = sh, .out = out, .table = o->name};
    buf_printf(out, "%s;\n", o->sql);
    int code = shell_query(sh, buf_str(&query), dump_batch, &d, &e);
    if (d.rows)
        buf_append_c(out, ";\n");
    buf_free(&query);
    if (code == 0 && d.stopped)
        code = err_set(&e, ERR_CANCELLED, "cancelled");
    /* A failed write is reported by shell_check_output(). */
    bool unwritten = sh->out.error != 0 && sh->out.error != EINTR;
    return code == 0 || (!unwritten && shell_failed(sh, &e));
}

/* True if the SQL of a view contains `name` as a word, and so may read that view. */
static bool mentions(const char *sql, const char *name) {
    str text = str_from(sql), wanted = str_from(name);
    token_class class;
    for (size_t at = 0, n; (n = sql_token(text, at, &class)) > 0; at += n) {
        str word = {sql + at, n};
        if (word.n >= 2 && word.p[0] == '"')
            word = (str){word.p + 1, word.n - 2};
        if (class == TOKEN_NAME && str_equal_nocase(word, wanted))
            return true;
    }
    return false;
}

static void dump_views(const db_object *objects, int n, const bool *chosen, bool *done, buf *out) {
    for (bool progress = true; progress;) {
        progress = false;
        for (int i = 0; i < n; i++) {
            bool ready = chosen[i] && !done[i] && is_kind(&objects[i], "view");
            for (int k = 0; k < n && ready; k++)
                ready = k == i || !chosen[k] || done[k] || !is_kind(&objects[k], "view") ||
                        !mentions(objects[i].sql, objects[k].name);
            if (!ready)
                continue;
            buf_printf(out, "%s;\n", objects[i].sql);
            done[i] = progress = true;
        }
    }
}

bool cmd_dump(shell *sh, command_call *c) {
    int n;
    db_object *objects = shell_objects(sh, c->mem, &n);
    if (objects == NULL)
        return false;
    bool *chosen = ARENA_ARRAY(c->mem, bool, n + 1), *done = ARENA_ARRAY(c->mem, bool, n + 1);
    for (int i = 0; i < n; i++)
        chosen[i] = c->argc == 0;
    for (int k = 0; k < c->argc; k++) {
        bool found = false;
        for (int i = 0; i < n; i++) {
            bool named = chosen_by(c->argv[k], &objects[i]) && !is_kind(&objects[i], "system");
            chosen[i] = chosen[i] || named;
            found = found || named;
        }
        if (!found)
            return no_table(sh, c, c->argv[k], objects, n);
    }
    buf out = {0};
    bool ok = true;
    output_begin(&sh->out, false);
    buf_append_c(&out, "BEGIN;\n");
    for (int i = 0; i < n && ok; i++) {
        if (chosen[i] && is_kind(&objects[i], "model"))
            buf_printf(&out, "%s;\n", objects[i].sql);
        if (chosen[i] && is_kind(&objects[i], "table"))
            ok = dump_table(sh, &objects[i], &out);
    }
    for (int i = 0; i < n && ok; i++)
        if (chosen[i] && is_kind(&objects[i], "index") && *objects[i].sql)
            buf_printf(&out, "%s;\n", objects[i].sql);
    dump_views(objects, n, chosen, done, &out);
    buf_append_c(&out, ok ? "COMMIT;\n" : "ROLLBACK; -- the dump is incomplete\n");
    output_write(&sh->out, &out);
    output_end(&sh->out);
    buf_free(&out);
    return ok;
}

/* ---- .import, .backup, .check, .recover ------------------------------------------------------ */

bool cmd_import(shell *sh, command_call *c) {
    const char *words[2] = {0};
    int given = 0, n;
    for (int i = 0; i < c->argc; i++) {
        /* sqlite3's options, such as --csv, are ignored: the format is detected. */
        if (c->argv[i][0] == '-' && c->argv[i][1])
            continue;
        if (given < 2)
            words[given] = c->argv[i];
        given++;
    }
    if (given != 2)
        return shell_complain(sh, "%s needs a file and a table", c->name);
    db_object *objects = shell_objects(sh, c->mem, &n);
    if (objects == NULL)
        return false;
    bool exists = false;
    for (int i = 0; i < n; i++)
        exists = exists || (is_kind(&objects[i], "table") &&
                            str_equal_nocase(str_from(objects[i].name), str_from(words[1])));
    buf sql = {0};
    buf_append_c(&sql, exists ? "COPY " : "CREATE TABLE ");
    sql_print_name(&sql, str_from(words[1]));
    buf_append_c(&sql, exists ? " FROM " : " AS SELECT * FROM ");
    value_print_sql(&sql, value_text(str_from(words[0])));
    bool ok = shell_sql(sh, sql.p);
    buf_free(&sql);
    return ok;
}

bool cmd_backup(shell *sh, command_call *c) {
    err e = {.pos = -1};
    if (c->argc == 0)
        return shell_complain(sh, "%s needs a directory", c->name);
    if (!shell_ready(sh))
        return false;
    if (db_backup(sh->db, c->argv[0], signals_cancel_flag(), &e) != 0)
        return shell_failed(sh, &e);
    shell_note(sh, "copied to '%s'", c->argv[0]);
    return true;
}

static void write_report(shell *sh, buf *report) {
    if (report->n == 0)
        return;
    output_begin(&sh->out, false);
    output_write(&sh->out, report);
    output_end(&sh->out);
}

bool cmd_check(shell *sh, command_call *c) {
    err e = {.pos = -1};
    buf report = {0};
    uint64_t faults = 0;
    const char *from = c->argc ? c->argv[0] : NULL;
    if (!shell_ready(sh))
        return false;
    int status = db_check(sh->db, from, signals_cancel_flag(), &report, &faults, &e);
    write_report(sh, &report);
    buf_free(&report);
    return status ? shell_failed(sh, &e) : faults == 0;
}

bool cmd_recover(shell *sh, command_call *c) {
    err e = {.pos = -1};
    buf report = {0};
    bool whole = false;
    const char *from = c->argc > 1 ? c->argv[1] : NULL;
    if (c->argc == 0)
        return shell_complain(sh, "%s needs the directory of the new database", c->name);
    if (!shell_ready(sh))
        return false;
    int status = db_recover(sh->db, c->argv[0], from, signals_cancel_flag(), &report, &whole, &e);
    write_report(sh, &report);
    buf_free(&report);
    return status ? shell_failed(sh, &e) : true;
}
