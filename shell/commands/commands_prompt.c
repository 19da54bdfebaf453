/*
 * commands_prompt.c - commands that work only at a prompt: .history and .edit.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands_int.h"

bool cmd_history(shell *sh, command_call *c) {
    if (sh->history == NULL)
        return shell_complain(sh, "%s works only at a prompt", c->name);
    int64_t n = 20;
    if (c->argc && (!parse_integer(str_from(c->argv[0]), &n) || n < 1))
        return shell_complain(sh, "%s takes a number of statements, not '%s'", c->name, c->argv[0]);
    const history_list *h = sh->history;
    size_t from = h->count > (size_t)n ? h->count - (size_t)n : 0;
    buf out = {0};
    for (size_t i = from; i < h->count; i++)
        buf_printf(&out, "%s\n", h->lines[i]);
    shell_print(sh, &out);
    return true;
}

static bool read_file(const char *path, buf *out) {
    FILE *in = fopen(path, "r");
    if (in == NULL)
        return false;
    char block[4096];
    size_t n;
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        buf_append(out, block, n);
    bool ok = !ferror(in);
    fclose(in);
    return ok;
}

static const char *editor_program(void) {
    static const char *const names[] = {"VISUAL", "EDITOR"};
    for (size_t i = 0; i < BASE_COUNT(names); i++)
        if (getenv(names[i]))
            return getenv(names[i]);
    return "vi";
}

/* Opens the last statement in an editor and runs the saved text, like psql's \e. */
bool cmd_edit(shell *sh, command_call *c) {
    if (sh->run_typed == NULL || !sh->term.interactive)
        return shell_complain(sh, "%s works only at a prompt", c->name);
    const char *program = editor_program();
    const char *dir = getenv("TMPDIR") && *getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    char *path = arena_printf(c->mem, "%s/kvasir-edit-XXXXXX", dir);
    int fd = mkstemp(path);
    if (fd < 0)
        return shell_complain(sh, "cannot create a file in '%s': %s", dir, strerror(errno));
    bool ok = write(fd, sh->last_text.p ? sh->last_text.p : "", sh->last_text.n) ==
              (ssize_t)sh->last_text.n;
    close(fd);
    buf text = {0};
    int status = ok ? system(arena_printf(c->mem, "%s '%s'", program, path)) : -1;
    ok = status == 0 && read_file(path, &text);
    unlink(path);
    while (text.n && strchr(" \t\n;", text.p[text.n - 1]))
        text.n--;
    if (!ok) {
        shell_complain(sh, "'%s' failed; nothing was run", program);
    } else if (text.n) {
        buf_append_c(&text, ";\n");
        ok = sh->run_typed(sh, buf_str(&text));
    }
    buf_free(&text);
    return ok;
}
