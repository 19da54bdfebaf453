/*
 * run_sessions.c - runs golden sessions: files with shell commands and the output they must print.
 *
 *   run_sessions [--update] KVASIR FILE...        KVASIR: the program under test
 *   run_sessions --type FILE COMMAND...           used by itself, see below
 *
 * In a .session file, sessions are indented by two blanks between lines of prose; in a .md file they
 * are in ```console fences:
 *
 *     $ kvasir -c 'SELECT 1 AS a' --csv      a command for sh; lines with `> ` continue it
 *                                            (here-documents)
 *     a                                      its output, stdout and stderr together
 *     1
 *     [1]                                    its exit code, unless it is 0
 *     ...                                    alone on a line: zero or more lines
 *
 *     $ kvasir films.kvasir                  a session at the prompt: what follows the prompts is
 *     kvasir> SELECT 1                       typed in a pseudo-terminal of 100 columns, then Ctrl-D;
 *        ...> AS a;                          what is printed before the first prompt is left out
 *
 * All commands of a file run in one sh, in a fresh directory that is removed afterwards; kvasir is
 * first in PATH, $TESTDIR is the file's directory, HOME and the XDG directories but XDG_DATA_HOME
 * are in the fresh one.
 *
 * Sessions of a .md file can use tutorials/data, as in the root of the checkout. A file with the
 * line <!-- needs the default model --> or <!-- needs the embedding model --> is skipped (exit code
 * 77) if that is not installed.
 * KVASIR_MODEL is ignored, because another model gives other answers.
 *
 * Expected and actual output are masked before they are compared (table `masks`): times, rates and
 * the fresh directory differ between runs. --update writes the masked output into the file. Exits 1
 * if a file differs.
 */
#include <errno.h>
#include <limits.h>
#include <pty.h>
#include <regex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "storage/base.h"

enum { TIME_LIMIT_S = 300, MARK_DIGITS = 16, SKIPPED = 77 };

/* Extended regular expressions, applied in order; # stands for a number. */
static const struct {
    const char *pattern, *with;
} masks[] = {
    {"127\\.0\\.0\\.1:[0-9]+", "127.0.0.1:#"},
    {"others do: .*", "others do: …"}, /* how a connection ends is the system's choice */
    {" +~?[0-9]+(\\.[0-9]+)? s +[0-9]+\\.[0-9]x", "         # s        #x"},
    {"[0-9][0-9,]*(\\.[0-9]+)? (µs|ms|s|min|h)([ ,;:.)]|$)", "# s\\3"},
    {"# (h|min) # (min|s)", "# s"},
    {"[0-9][0-9,]*(\\.[0-9]+)? (rows/s|tok/s|tokens/s)", "# \\2"},
    {"[0-9][0-9,]*(\\.[0-9]+)?/s( |$)", "#/s\\2"},
};

typedef struct lines {
    char **p;
    size_t n;
} lines;

/* A command with its expected and actual output. Positions are line numbers of the file, from 0. */
typedef struct step {
    buf command;
    buf typed; /* what is typed at the prompt; empty: no session at the prompt */
    size_t line, expected_from, expected_to;
    lines expected, actual;
} step;

typedef struct session {
    const char *path;
    lines text;
    size_t *indent; /* blanks before each line of a session */
    step *steps;
    size_t nsteps;
    char dir[PATH_MAX];
} session;

static _Noreturn void die(const char *what, const char *which) {
    fprintf(stderr, "run_sessions: %s '%s': %s\n", what, which, strerror(errno));
    exit(2);
}

static void lines_add(lines *l, const char *text, size_t n) {
    l->p = mem_realloc(l->p, sizeof(char *) * (l->n + 1));
    l->p[l->n++] = mem_strndup(text, n);
}

static void lines_free(lines *l) {
    for (size_t i = 0; i < l->n; i++)
        free(l->p[i]);
    free(l->p);
    *l = (lines){0};
}

static lines split(const char *text, size_t n) {
    lines out = {0};
    for (const char *p = text, *end = text + n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop : end;
        lines_add(&out, p, (size_t)(stop - p));
        p = stop + 1;
    }
    return out;
}

static void read_file(const char *path, buf *out) {
    FILE *in = fopen(path, "r");
    if (in == NULL)
        die("cannot read", path);
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        buf_append(out, block, n);
    fclose(in);
}

static void write_file(const char *path, const buf *text) {
    FILE *f = fopen(path, "w");
    if (f == NULL || fwrite(text->p ? text->p : "", 1, text->n, f) != text->n || fclose(f) != 0)
        die("cannot write", path);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void new_step(session *s, const char *command, size_t line) {
    s->steps = mem_realloc(s->steps, sizeof(step) * (s->nsteps + 1));
    step *st = &s->steps[s->nsteps++];
    *st = (step){.line = line, .expected_from = line + 1, .expected_to = line + 1};
    buf_append_c(&st->command, command);
    buf_append_char(&st->command, '\n');
}

static bool is_markdown(const char *path) {
    size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".md") == 0;
}

/* The prompt for a statement and the one for its further lines. */
static const char *const prompts[] = {"kvasir> ", "   ...> "};

static const char *after_prompt(const char *text) {
    for (size_t i = 0; i < BASE_COUNT(prompts); i++)
        if (strncmp(text, prompts[i], strlen(prompts[i])) == 0)
            return text + strlen(prompts[i]);
    return NULL;
}

static void parse_line(session *s, const char *text, size_t line, bool *open) {
    if (strncmp(text, "$ ", 2) == 0) {
        new_step(s, text + 2, line);
        *open = true;
        return;
    }
    if (!*open)
        return;
    step *st = &s->steps[s->nsteps - 1];
    st->expected_to = line + 1;
    if (text[0] == '>' && (text[1] == ' ' || text[1] == 0) && st->expected.n == 0) {
        buf_append_c(&st->command, text[1] ? text + 2 : "");
        buf_append_char(&st->command, '\n');
        st->expected_from = line + 1;
    } else {
        lines_add(&st->expected, text, strlen(text));
        const char *typed = after_prompt(text);
        if (typed && (st->typed.n || strncmp(text, prompts[0], 1) == 0)) {
            buf_append_c(&st->typed, typed);
            buf_append_char(&st->typed, '\n');
        }
    }
}

static void parse(session *s) {
    bool markdown = is_markdown(s->path), fenced = false, open = false;
    for (size_t i = 0; i < s->text.n; i++) {
        const char *text = s->text.p[i];
        bool in_session = markdown ? fenced : strncmp(text, "  ", 2) == 0;
        if (markdown && strncmp(text, "```", 3) == 0) {
            fenced = !fenced && strcmp(text, "```console") == 0;
            open = false;
            continue;
        }
        if (in_session)
            parse_line(s, markdown ? text : text + 2, i, &open);
        else
            open = false;
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static void set_in(const char *name, const char *dir, const char *below) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", dir, below);
    mkdir(path, 0700);
    setenv(name, path, 1);
}

/* Sets up the same environment in the child on every machine. */
static void set_environment(const session *s, const char *program) {
    char path[2 * PATH_MAX], *real = realpath(program, NULL),
                             *slash = real ? strrchr(real, '/') : NULL;
    if (slash == NULL)
        die("cannot find", program);
    *slash = 0;
    const char *old = getenv("PATH"), *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    snprintf(path, sizeof path, "%s:%s", real, old ? old : "/usr/bin:/bin");
    setenv("PATH", path, 1);
    if (data == NULL && home != NULL) {
        snprintf(path, sizeof path, "%s/.local/share", home);
        setenv("XDG_DATA_HOME", path, 1);
    }
    char *file = realpath(s->path, NULL);
    if (file == NULL)
        die("cannot find", s->path);
    *strrchr(file, '/') = 0;
    setenv("TESTDIR", file, 1);
    set_in("HOME", s->dir, "/.home");
    set_in("XDG_CACHE_HOME", s->dir, "/.home/cache");
    set_in("XDG_STATE_HOME", s->dir, "/.home/state");
    set_in("XDG_CONFIG_HOME", s->dir, "/.home/config");
    set_in("TMPDIR", s->dir, "/.tmp");
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("TERM", "dumb", 1);
    setenv("TZ", "UTC", 1);
    unsetenv("NO_COLOR");
    unsetenv("COLUMNS");
    unsetenv("LINES");
    unsetenv("PAGER");
    unsetenv("KVASIR_MODEL");
    free(real);
    free(file);
}

/* The script for sh: after each command it prints a mark with the command's number and exit code.
 * A session at the prompt runs under run_sessions --type, which is beside kvasir in PATH. */
static void write_script(const session *s, const char *mark, buf *out) {
    for (size_t i = 0; i < s->nsteps; i++) {
        if (s->steps[i].typed.n) {
            char path[PATH_MAX + 32];
            snprintf(path, sizeof path, "%s/.typed-%zu", s->dir, i);
            write_file(path, &s->steps[i].typed);
            buf_printf(out, "run_sessions --type '%s' ", path);
        }
        buf_append_str(out, buf_str(&s->steps[i].command));
        buf_printf(out, "printf '\\n%s %zu %%d\\n' $?\n", mark, i);
    }
}

static void run_shell(const session *s, const char *program, const char *script, buf *out) {
    int to[2];
    if (pipe(to) != 0)
        die("cannot make", "pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        die("cannot start", "sh");
    if (child == 0) {
        setpgid(0, 0);
        set_environment(s, program);
        if (chdir(s->dir) != 0)
            die("cannot change to", s->dir);
        close(STDIN_FILENO);
        dup2(to[1], STDOUT_FILENO);
        dup2(to[1], STDERR_FILENO);
        close(to[0]);
        close(to[1]);
        execlp("sh", "sh", script, (char *)NULL);
        die("cannot start", "sh");
    }
    close(to[1]);
    char block[65536];
    ssize_t n;
    while ((n = read(to[0], block, sizeof block)) > 0)
        buf_append(out, block, (size_t)n);
    close(to[0]);
    int status;
    waitpid(child, &status, 0);
}

/* Splits the output of sh at the marks. Adds a missing newline at the end of a command's output. */
static void take_output(session *s, const buf *out, const char *mark) {
    size_t at = 0, k = 0;
    buf pattern = {0};
    for (; k < s->nsteps; k++) {
        buf_clear(&pattern);
        buf_printf(&pattern, "\n%s %zu ", mark, k);
        char *found = out->n > at ? memmem(out->p + at, out->n - at, pattern.p, pattern.n) : NULL;
        size_t end = found ? (size_t)(found - out->p) : out->n;
        s->steps[k].actual = split(out->p + at, end - at);
        if (found == NULL)
            break;
        int code = atoi(found + pattern.n);
        char text[16];
        if (code != 0)
            lines_add(&s->steps[k].actual, text, (size_t)snprintf(text, sizeof text, "[%d]", code));
        char *next = memchr(found + 1, '\n', out->n - end - 1);
        at = next ? (size_t)(next + 1 - out->p) : out->n;
    }
    buf_free(&pattern);
    if (k < s->nsteps)
        lines_add(&s->steps[k].actual, "[the shell ended here]", 22);
}

/* ---- the prompt ------------------------------------------------------------------------------ */

static bool ends_with(const buf *out, const char *text) {
    size_t n = strlen(text);
    return out->n >= n && memcmp(out->p + out->n - n, text, n) == 0;
}

/* Reads what the program prints until it prompts; false: it has ended. */
static bool read_to_prompt(int terminal, buf *out) {
    char block[4096];
    ssize_t n;
    while ((n = read(terminal, block, sizeof block)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            if (block[i] != '\r')
                buf_append_char(out, block[i]);
        for (size_t i = 0; i < BASE_COUNT(prompts); i++)
            if (ends_with(out, prompts[i]))
                return true;
    }
    return false;
}

/* Prints a transcript without the lines of progress, which another terminal than TERM=dumb would
 * erase: they have a bar, or the model is being opened. */
static void print_typed(const char *text, size_t n) {
    lines all = split(text, n);
    printf("%s", prompts[0]);
    for (size_t i = 0; i < all.n; i++)
        if (strstr(all.p[i], "▕") == NULL && strcmp(all.p[i], "opening the model") != 0)
            printf("%s\n", all.p[i]);
    lines_free(&all);
}

/* Runs a program in a pseudo-terminal, types the lines of a file, each when it prompts, then
 * Ctrl-D, and prints what the terminal shows from the first prompt up to the last. Returns the exit
 * code. */
static int type_lines(const char *path, char **argv) {
    static const struct winsize size = {.ws_row = 40, .ws_col = 100};
    static const char end_of_file = 4;
    buf text = {0}, out = {0};
    int terminal, status;
    read_file(path, &text);
    lines typed = split(text.p, text.n);
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    if (child < 0)
        die("cannot start", argv[0]);
    if (child == 0) {
        execvp(argv[0], argv);
        die("cannot start", argv[0]);
    }
    bool prompted = read_to_prompt(terminal, &out);
    if (prompted)
        out.n = 0;
    for (size_t i = 0; i < typed.n && prompted; i++) {
        buf line = {0};
        buf_printf(&line, "%s\n", typed.p[i]);
        prompted =
            write(terminal, line.p, line.n) == (ssize_t)line.n && read_to_prompt(terminal, &out);
        buf_free(&line);
    }
    size_t shown = prompted ? out.n - strlen(prompts[0]) : out.n;
    if (prompted && write(terminal, &end_of_file, 1) == 1)
        read_to_prompt(terminal, &out);
    print_typed(out.p, shown);
    waitpid(child, &status, 0);
    lines_free(&typed);
    buf_free(&text);
    buf_free(&out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* ---- masks ----------------------------------------------------------------------------------- */

static char *substitute(const regex_t *re, const char *text, const char *with) {
    buf out = {0};
    regmatch_t m[4];
    int flags = 0;
    while (regexec(re, text, 4, m, flags) == 0) {
        buf_append(&out, text, (size_t)m[0].rm_so);
        for (const char *p = with; *p; p++) {
            int group = *p == '\\' && p[1] >= '1' && p[1] <= '3' ? p[1] - '0' : 0;
            if (group == 0) {
                buf_append_char(&out, *p);
                continue;
            }
            if (m[group].rm_so >= 0)
                buf_append(&out, text + m[group].rm_so, (size_t)(m[group].rm_eo - m[group].rm_so));
            p++;
        }
        text += m[0].rm_eo;
        flags = REG_NOTBOL;
        if (m[0].rm_eo == m[0].rm_so)
            break;
    }
    buf_append_c(&out, text);
    return out.p;
}

static void replace_dir(char **text, const char *dir) {
    char *found = strstr(*text, dir);
    if (found == NULL)
        return;
    buf out = {0};
    buf_append(&out, *text, (size_t)(found - *text));
    buf_append_c(&out, "$DIR");
    buf_append_c(&out, found + strlen(dir));
    free(*text);
    *text = out.p;
}

static void mask(lines *l, const char *dir) {
    for (size_t k = 0; k < BASE_COUNT(masks); k++) {
        regex_t re;
        if (regcomp(&re, masks[k].pattern, REG_EXTENDED) != 0)
            die("bad pattern", masks[k].pattern);
        for (size_t i = 0; i < l->n; i++) {
            char *masked = substitute(&re, l->p[i], masks[k].with);
            free(l->p[i]);
            l->p[i] = masked;
        }
        regfree(&re);
    }
    for (size_t i = 0; i < l->n; i++)
        replace_dir(&l->p[i], dir);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool same(const lines *e, size_t i, const lines *a, size_t k) {
    for (; i < e->n; i++, k++) {
        if (strcmp(e->p[i], "...") == 0) {
            for (size_t j = k; j <= a->n; j++)
                if (same(e, i + 1, a, j))
                    return true;
            return false;
        }
        if (k >= a->n || strcmp(e->p[i], a->p[k]) != 0)
            return false;
    }
    return k == a->n;
}

/* Prints the difference, with a few of the equal lines at both ends. */
static void show_difference(const session *s, const step *st) {
    const lines *e = &st->expected, *a = &st->actual;
    size_t head = 0, tail = 0;
    while (head < e->n && head < a->n && strcmp(e->p[head], a->p[head]) == 0)
        head++;
    while (tail < e->n - head && tail < a->n - head &&
           strcmp(e->p[e->n - 1 - tail], a->p[a->n - 1 - tail]) == 0)
        tail++;
    printf("%s:%zu: $ %.*s", s->path, st->line + 1, (int)st->command.n, st->command.p);
    for (size_t i = head > 3 ? head - 3 : 0; i < head; i++)
        printf("   %s\n", e->p[i]);
    for (size_t i = head; i < e->n - tail; i++)
        printf(" - %s\n", e->p[i]);
    for (size_t i = head; i < a->n - tail; i++)
        printf(" + %s\n", a->p[i]);
    for (size_t i = e->n - tail; i < e->n && i < e->n - tail + 3; i++)
        printf("   %s\n", e->p[i]);
}

static void update_file(const session *s) {
    bool markdown = is_markdown(s->path);
    const char *indent = markdown ? "" : "  ";
    FILE *out = fopen(s->path, "w");
    if (out == NULL)
        die("cannot write", s->path);
    size_t line = 0;
    for (size_t k = 0; k < s->nsteps; k++) {
        const step *st = &s->steps[k];
        for (; line < st->expected_from; line++)
            fprintf(out, "%s\n", s->text.p[line]);
        const lines *l = same(&st->expected, 0, &st->actual, 0) ? &st->expected : &st->actual;
        for (size_t i = 0; i < l->n; i++)
            fprintf(out, "%s%s\n", indent, l->p[i]);
        line = st->expected_to;
    }
    for (; line < s->text.n; line++)
        fprintf(out, "%s\n", s->text.p[line]);
    if (fclose(out) != 0)
        die("cannot write", s->path);
}

static void remove_dir(const char *dir) {
    pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-rf", dir, (char *)NULL);
        _exit(127);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}

/* True if the file needs a model that is not installed. */
static bool lacks_model(const session *s) {
    static const struct {
        const char *mark, *model;
    } needs[] = {
        {"<!-- needs the default model -->", "SmolLM2-135M-Instruct.Q4_1.gguf"},
        {"<!-- needs the embedding model -->", "all-MiniLM-L6-v2.F16.gguf"},
    };
    char path[2 * PATH_MAX];
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    for (size_t i = 0; i < s->text.n; i++) {
        for (size_t k = 0; k < BASE_COUNT(needs); k++) {
            if (strcmp(s->text.p[i], needs[k].mark) != 0)
                continue;
            snprintf(path, sizeof path, "%s%s/kvasir/models/%s",
                     data && *data ? data
                     : home        ? home
                                   : "",
                     data && *data ? "" : "/.local/share", needs[k].model);
            if (access(path, R_OK) != 0)
                return true;
        }
    }
    return false;
}

/* Links the tutorials and their data into the fresh directory. */
static void link_tutorials(const session *s) {
    char link[PATH_MAX + 16];
    snprintf(link, sizeof link, "%s/tutorials", s->dir);
    if (symlink(KVASIR_SOURCE_DIR "/tutorials", link) != 0)
        die("cannot link", link);
}

static bool run_session(const char *program, const char *path, bool update, bool *skipped) {
    session s = {.path = path};
    buf text = {0}, script = {0}, out = {0};
    read_file(path, &text);
    s.text = split(text.p, text.n);
    if (lacks_model(&s)) {
        printf("%s: skipped, the default model is not installed\n", path);
        *skipped = true;
        lines_free(&s.text);
        buf_free(&text);
        return true;
    }
    parse(&s);
    const char *tmp = getenv("TMPDIR");
    snprintf(s.dir, sizeof s.dir, "%s/kvasir-session-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (mkdtemp(s.dir) == NULL)
        die("cannot make", s.dir);
    if (is_markdown(path))
        link_tutorials(&s);
    char mark[MARK_DIGITS + 8], file[PATH_MAX + 16];
    snprintf(mark, sizeof mark, "--%0*lx--", MARK_DIGITS,
             (unsigned long)hash64(s.dir, strlen(s.dir), 1));
    write_script(&s, mark, &script);
    snprintf(file, sizeof file, "%s/.script", s.dir);
    write_file(file, &script);
    run_shell(&s, program, file, &out);
    take_output(&s, &out, mark);
    bool ok = true;
    for (size_t k = 0; k < s.nsteps; k++) {
        step *st = &s.steps[k];
        mask(&st->expected, s.dir);
        mask(&st->actual, s.dir);
        if (!same(&st->expected, 0, &st->actual, 0)) {
            ok = false;
            if (!update)
                show_difference(&s, st);
        }
    }
    if (update && !ok)
        update_file(&s);
    printf("%s: %zu commands, %s\n", path, s.nsteps,
           ok       ? "as expected"
           : update ? "updated"
                    : "DIFFERENT");
    for (size_t k = 0; k < s.nsteps; k++) {
        buf_free(&s.steps[k].command);
        buf_free(&s.steps[k].typed);
        lines_free(&s.steps[k].expected);
        lines_free(&s.steps[k].actual);
    }
    free(s.steps);
    lines_free(&s.text);
    remove_dir(s.dir);
    buf_free(&text);
    buf_free(&script);
    buf_free(&out);
    return ok || update;
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "--type") == 0) {
        alarm(TIME_LIMIT_S);
        return type_lines(argv[2], argv + 3);
    }
    int first = 1;
    bool update = argc > 1 && strcmp(argv[1], "--update") == 0, ok = true, skipped = false;
    first += update;
    if (argc - first < 2) {
        fprintf(stderr, "usage: run_sessions [--update] KVASIR FILE...\n");
        return 2;
    }
    alarm(TIME_LIMIT_S); /* a session that hangs fails */
    for (int i = first + 1; i < argc; i++)
        ok = run_session(argv[first], argv[i], update, &skipped) && ok;
    return !ok ? 1 : skipped ? SKIPPED : 0;
}
