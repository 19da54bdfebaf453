/*
 * database.c - opens and closes the database, lists its objects, sets variables.
 */
#include <stdlib.h>

#include "shell_int.h"
#include "storage/containers.h"

void shell_close(shell *sh) {
    if (sh->db && !sh->lingering && db_in_transaction(sh->db))
        fprintf(stderr, "notice: the open transaction was rolled back\n");
    db_close(sh->db);
    sh->db = NULL;
}

int shell_open(shell *sh, const char *path, err *e) {
    if (!shell_wait_for_previous(sh, true))
        return err_set(e, ERR_BUSY, "the previous statement has not stopped yet");
    /* `path` may be sh->db_path itself. */
    char *kept = mem_strdup(path);
    db_options options = {.path = kept,
                          .read_only = sh->read_only,
                          .must_exist = sh->read_only && kept,
                          .model = sh->model};
    db *opened = NULL;
    int status = db_open(&options, &opened, e);
    if (status == ERR_BUSY && sh->db) { /* reopening the database that is open */
        shell_close(sh);
        err_clear(e);
        status = db_open(&options, &opened, e);
    }
    if (status) {
        free(kept);
        return status;
    }
    shell_close(sh);
    free(sh->db_path);
    sh->db = opened;
    sh->db_path = kept;
    if (sh->allow)
        db_allow_endpoints(opened, sh->allow);
    for (int i = 0; i < sh->nvariables; i++)
        db_set_variable(opened, str_from(sh->variables[i].name), str_from(sh->variables[i].text));
    return 0;
}

bool shell_ready(shell *sh) {
    if (sh->db == NULL)
        return shell_complain(sh, "no database is open; .open DIRECTORY opens one");
    return shell_wait_for_previous(sh, true);
}

db_object *shell_objects(shell *sh, arena *a, int *count) {
    db_object *objects = NULL;
    err e = {.pos = -1};
    *count = 0;
    if (!shell_ready(sh))
        return NULL;
    if (db_objects(sh->db, a, &objects, count, &e) != 0) {
        shell_failed(sh, &e);
        return NULL;
    }
    return objects ? objects : ARENA_NEW(a, db_object);
}

bool shell_set_variable(shell *sh, str name, str text, err *e) {
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9')) {
            err_set(e, ERR_SYNTAX, "'%.*s' is not a variable name: use letters, digits and _",
                    (int)name.n, name.p);
            return false;
        }
    }
    int i = 0;
    while (i < sh->nvariables && !str_equal(name, str_from(sh->variables[i].name)))
        i++;
    if (i == sh->nvariables)
        ARRAY_PUSH(sh->variables, sh->nvariables, sh->variables_cap,
                   ((shell_variable){.name = mem_strndup(name.p, name.n)}));
    free(sh->variables[i].text);
    sh->variables[i].text = mem_strndup(text.p, text.n);
    if (sh->db != NULL)
        db_set_variable(sh->db, name, text);
    return true;
}
