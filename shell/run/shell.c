/*
 * shell.c - shell_main: sets up the shell struct, opens the database, runs -c and -f, stdin or the
 * prompt, and returns the exit code.
 *
 * Models are opened by the statements that need them.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run_int.h"

static int usage(const err *e) {
    fprintf(stderr, "kvasir: %s\n", e->message);
    if (e->hint[0])
        fprintf(stderr, "hint: %s\n", e->hint);
    return SHELL_USAGE;
}

static bool run_init_file(shell *sh) {
    buf path = {0};
    if (xdg_path("XDG_CONFIG_HOME", ".config", &path))
        buf_append_c(&path, "/init.sql");
    bool ok = path.n == 0 || access(path.p, R_OK) != 0 || script_file(sh, path.p);
    buf_free(&path);
    return ok;
}

static bool run_inputs(shell *sh, const args *a) {
    bool ok = true;
    for (int i = 0; i < a->ninputs && !sh->quit && !signals_terminated(); i++) {
        const args_input *in = &a->inputs[i];
        if (in->kind == INPUT_FILE)
            ok = script_file(sh, in->text) && ok;
        else
            ok = script_text(sh, "-c", str_from(in->text)) && ok;
        if (signals_interrupts() || (!ok && !sh->keep_going))
            break;
    }
    return ok;
}

static int exit_code(const shell *sh, bool ok) {
    if (sh->quit)
        return sh->quit_code;
    if (signals_terminated())
        return 128 + signals_terminated();
    if (signals_interrupts() && !ok)
        return SHELL_INTERRUPTED;
    return ok ? SHELL_OK : SHELL_FAILED;
}

static int run_all(shell *sh, const args *a) {
    err e = {.pos = -1};
    if (shell_open(sh, a->db, &e) != 0)
        return usage(&e);
    for (int i = 0; i < a->nvariables; i++)
        if (!shell_set_variable(sh, a->variables[i].name, str_from(a->variables[i].value), &e))
            return usage(&e);
    if (a->ninputs > 0) {
        sh->term.interactive = false;
        bool ok = run_inputs(sh, a);
        return exit_code(sh, ok);
    }
    if (!sh->term.interactive) {
        bool ok = script_file(sh, "-");
        return exit_code(sh, ok);
    }
    if (!a->no_init)
        run_init_file(sh);
    signals_clear();
    return sh->quit ? sh->quit_code : repl_run(sh);
}

static void shell_setup(shell *sh, const args *a) {
    term_detect(&sh->term, a->no_color);
    term_save();
    signals_install();
    sh->out.file = stdout;
    sh->mode = format_mode_find(a->mode ? a->mode : "box");
    sh->headers = sh->pager = sh->progress = true;
    sh->keep_going = a->keep_going;
    sh->read_only = a->read_only;
    sh->max_rows = -1;
    sh->run_file = script_file;
    sh->want_view = a->view;
    sh->allow = a->allow;
    sh->model = mem_strdup(a->model ? a->model : getenv("KVASIR_MODEL"));
}

static int shell_finish(shell *sh, int code) {
    if (sh->lingering) {
        stmt_free(sh->lingering);
        sh->lingering = NULL;
    }
    shell_close(sh);
    output_close(&sh->out);
    if (sh->out.error && code == SHELL_OK) {
        fprintf(stderr, "kvasir: cannot write: %s\n", strerror(sh->out.error));
        code = SHELL_FAILED;
    }
    free(sh->db_path);
    free(sh->model);
    free(sh->null_text);
    free(sh->insert_table);
    for (int i = 0; i < sh->nvariables; i++) {
        free(sh->variables[i].name);
        free(sh->variables[i].text);
    }
    free(sh->variables);
    free(sh->last_view);
    err e = {.pos = -1};
    if (sh->recorder && view_record_close(sh->recorder, &e) != 0 && code == SHELL_OK)
        code = usage(&e);
    buf_free(&sh->last_text);
    buf_free(&sh->typed_ahead);
    return code;
}

/* Opens /dev/null for each standard stream that is closed. Otherwise the next file opened would get
 * the stream's number, and results would be written into that file. Stdin is opened for writing,
 * stdout and stderr for reading, so that using them fails. */
static void hold_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(SHELL_FAILED);
}

/* Prints what --help, --version or --generate ask for; returns the exit code. */
static int print_text(const args *a) {
    buf text = {0};
    err e = {.pos = -1};
    if (a->help) {
        args_help(&text);
    } else if (a->version) {
        buf_printf(&text, "kvasir %s\n", KVASIR_VERSION);
    } else if (!generate(a->generate, &text)) {
        err_set(&e, ERR_SYNTAX, "--generate takes man, bash or zsh, not '%s'", a->generate);
        return usage(&e);
    }
    bool written = fwrite(text.p, 1, text.n, stdout) == text.n && fflush(stdout) == 0;
    buf_free(&text);
    return written ? SHELL_OK : SHELL_FAILED;
}

int shell_main(int argc, char **argv) {
    hold_streams();
    args a;
    err e = {.pos = -1};
    int code = SHELL_OK;
    if (!args_parse(argc, argv, &a, &e)) {
        args_free(&a);
        return usage(&e);
    }
    if (a.version || a.help || a.generate) {
        code = print_text(&a);
    } else {
        shell sh = {0};
        shell_setup(&sh, &a);
        code = a.replay ? view_replay(&sh.term, a.replay) : run_all(&sh, &a);
        code = shell_finish(&sh, code);
    }
    args_free(&a);
    return code;
}
