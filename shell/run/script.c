/*
 * script.c - non-interactive input (-c, -f, stdin, .read): split into statements and commands,
 * which are run in order.
 *
 * Invariant: the first error ends the script unless --keep-going; error messages name file, line
 * and column. Standard input is read line by line, so that a program that writes statements into a
 * pipe gets the results of one before it writes the next.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "run_int.h"

typedef struct script {
    FILE *in;     /* NULL: `text` is the whole script */
    bool by_line; /* `in` is read line by line */
    bool eof;     /* `in` was read to its end */
    bool begun;   /* the start of the text was searched for a byte order mark */
    buf text;     /* input read; compact() removes the part that has been run */
    size_t at;    /* offset in text of the next piece */
    place where;  /* place of that piece */
} script;

enum { COMPACT_BYTES = 64 * 1024, READ_DEPTH = 32 };

/* Finds the first `;`, even inside of an open parenthesis: a statement that ends there gives an
 * error at once instead of a prompt that asks for more lines. */
static bool find_semicolon(str text, size_t *length) {
    token_class class;
    for (size_t at = 0, n; at < text.n && (n = sql_token(text, at, &class)) > 0; at += n) {
        if (class == TOKEN_OPERATOR && n == 1 && text.p[at] == ';') {
            *length = at + 1;
            return true;
        }
    }
    return false;
}

/* A command is one line, but a SELECT that begins on the line of an ARG_SELECT goes on up to ';'. */
static piece_kind command_piece(str text, bool last, size_t *length) {
    const char *newline = memchr(text.p, '\n', text.n);
    str line = {text.p, newline ? (size_t)(newline - text.p) : text.n};
    *length = line.n;
    if (newline == NULL && !last)
        return PIECE_PARTIAL;
    if (text.p[0] == '#')
        return PIECE_BLANK;
    size_t name = 0;
    while (name < line.n && !strchr(STR_SPACES ";", line.p[name]))
        name++;
    const command *found = command_find((str){line.p, name});
    str begun = found && found->arg == ARG_SELECT ? command_select(line) : (str){0};
    if (begun.n == 0)
        return PIECE_COMMAND;
    size_t before = (size_t)(begun.p - text.p), n;
    if (find_semicolon((str){begun.p, text.n - before}, &n))
        *length = before + n;
    else if (last)
        *length = text.n;
    else
        return PIECE_PARTIAL;
    return PIECE_COMMAND;
}

piece_kind script_piece(str text, bool last, size_t *length) {
    size_t n = 0;
    while (n < text.n && strchr(" \t\r\n\f", text.p[n]) && text.p[n])
        n++;
    token_class class = TOKEN_BLANK;
    if (n == 0 && text.n && text.p[0] != '#')
        n = sql_token(text, 0, &class) * (class == TOKEN_COMMENT);
    if (n > 0 || text.n == 0) {
        *length = n;
        return PIECE_BLANK;
    }
    /* '#': the line #!/… of an executable script */
    if (text.p[0] == '.' || text.p[0] == '\\' || text.p[0] == '#')
        return command_piece(text, last, length);
    bool empty = false;
    bool whole =
        sql_statement_end(text, length, &empty) || (!empty && find_semicolon(text, length));
    if (!whole && !last)
        return PIECE_PARTIAL;
    if (!whole)
        *length = text.n;
    return empty ? PIECE_BLANK : PIECE_STATEMENT;
}

static int count_lines(str s) {
    int lines = 0;
    for (const char *p = s.p, *end = s.p + s.n; p && (p = memchr(p, '\n', (size_t)(end - p)));) {
        lines++;
        p++;
    }
    return lines;
}

static void compact(script *sc) {
    if (sc->at < sc->text.n && sc->at < COMPACT_BYTES)
        return;
    sc->where.line += count_lines((str){sc->text.p, sc->at});
    if (sc->at)
        memmove(sc->text.p, sc->text.p + sc->at, sc->text.n - sc->at);
    sc->text.n -= sc->at;
    sc->at = 0;
}

static void set_place(script *sc) {
    sc->where.text = buf_str(&sc->text);
    sc->where.at = sc->at;
}

/* Removes a UTF-8 byte order mark. */
static void drop_bom(script *sc) {
    if (!sc->begun && sc->text.n >= 3 && memcmp(sc->text.p, "\xef\xbb\xbf", 3) == 0)
        memmove(sc->text.p, sc->text.p + 3, sc->text.n -= 3);
    sc->begun = true;
}

/* Reads more text: the whole file, or, if by_line, one line. To complete a statement that has
 * begun, reads lines up to one with a ';', since the statement cannot end before. */
static bool read_more(shell *sh, script *sc) {
    if (sc->in == NULL || sc->eof)
        return false;
    if (!sc->by_line) {
        char block[COMPACT_BYTES];
        size_t n;
        while ((n = fread(block, 1, sizeof block, sc->in)) > 0)
            buf_append(&sc->text, block, n);
        drop_bom(sc);
    } else {
        char *line = NULL;
        size_t cap = 0;
        ssize_t n;
        bool fresh = sc->at == sc->text.n;
        while ((n = getline(&line, &cap, sc->in)) > 0) {
            buf_append(&sc->text, line, (size_t)n);
            drop_bom(sc);
            if (fresh || memchr(line, ';', (size_t)n))
                break;
        }
        free(line);
        if (n > 0)
            return true;
    }
    sc->eof = true;
    set_place(sc);
    if (ferror(sc->in) && !signals_interrupts() && !signals_terminated())
        return shell_complain(sh, "cannot read '%s': %s", sc->where.file, strerror(errno));
    return true;
}

static bool run_piece(shell *sh, script *sc, piece_kind kind, str piece) {
    if (kind == PIECE_BLANK)
        return true;
    if (sh->echo)
        output_echo(&sh->out, piece);
    if (kind == PIECE_COMMAND)
        return command_line(sh, piece);
    return shell_statement(sh, piece, &sc->where);
}

static bool stopped(const shell *sh) {
    return sh->quit || signals_terminated() || signals_interrupts();
}

static bool run_script(shell *sh, script *sc) {
    const place *before = sh->where;
    sh->where = &sc->where;
    bool ok = true;
    while (!stopped(sh)) {
        compact(sc);
        set_place(sc);
        str rest = {sc->text.p + sc->at, sc->text.n - sc->at};
        bool last = sc->in == NULL || sc->eof;
        if (rest.n == 0 && last)
            break;
        size_t length = 0;
        piece_kind kind = rest.n ? script_piece(rest, last, &length) : PIECE_PARTIAL;
        if (kind == PIECE_PARTIAL) {
            if (!read_more(sh, sc)) {
                ok = false;
                break;
            }
            continue;
        }
        /* The piece points into sc->text, which does not change while it runs. */
        if (!run_piece(sh, sc, kind, (str){rest.p, length})) {
            ok = false;
            if (!sh->keep_going)
                break;
        }
        sc->at += length;
    }
    sh->where = before;
    return ok && !signals_interrupts();
}

bool script_text(shell *sh, const char *name, str text) {
    script sc = {.where = {.file = name, .line = 1}};
    buf_append_str(&sc.text, text);
    bool ok = run_script(sh, &sc);
    buf_free(&sc.text);
    return ok;
}

bool script_prompt(shell *sh, str text, size_t *used) {
    *used = 0;
    size_t length;
    while (*used < text.n && !sh->quit) {
        piece_kind kind = script_piece((str){text.p + *used, text.n - *used}, false, &length);
        if (kind == PIECE_PARTIAL)
            return true;
        script sc = {.where = {.text = text, .at = *used, .line = 1}};
        bool ok = run_piece(sh, &sc, kind, (str){text.p + *used, length});
        *used += length;
        if (!ok) {
            *used = text.n;
            return false;
        }
    }
    return true;
}

bool script_file(shell *sh, const char *path) {
    bool is_stdin = strcmp(path, "-") == 0;
    if (sh->read_depth >= READ_DEPTH)
        return shell_complain(sh, ".read is nested more than %d deep", READ_DEPTH);
    FILE *in = is_stdin ? stdin : fopen(path, "r");
    struct stat facts = {0};
    if (in != NULL && !is_stdin && fstat(fileno(in), &facts) == 0 && S_ISDIR(facts.st_mode)) {
        fclose(in);
        in = NULL;
        errno = EISDIR;
    }
    if (in == NULL)
        return shell_complain(sh, "cannot open '%s': %s", path, strerror(errno));
    script sc = {
        .in = in, .by_line = is_stdin, .where = {.file = is_stdin ? "<stdin>" : path, .line = 1}};
    sh->read_depth++;
    bool ok = run_script(sh, &sc);
    sh->read_depth--;
    buf_free(&sc.text);
    if (!is_stdin)
        fclose(in);
    return ok;
}
