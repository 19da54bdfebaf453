/*
 * edit.c - the line editor: libedit plus bracketed paste, Up into earlier lines of a statement,
 * Ctrl-C as a key, and completion lists.
 *
 * Invariant: keys are read one byte at a time (pastes in blocks), so that a pager or editor started
 * by a statement gets the keys that were typed after its start. Key bindings of ~/.editrc apply
 * except for the keys that bind_keys binds.
 */
#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "edit_int.h"

#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
static const char paste_end[] = "\033[201~";

enum { KEY_PREFILL = 0x1c, PASTE_BLOCK = 64 * 1024, HISTORY_SIZE = 5000 };

struct editor {
    shell *sh;
    EditLine *el;
    HistoryW *history;
    const char *prompt;
    buf prompt_text;
    str before;        /* lines of the statement already entered */
    str prefill;       /* text that KEY_PREFILL inserts */
    bool give_prefill; /* read_char returns KEY_PREFILL first */
    bool interrupted;  /* Ctrl-C ended the line */
    bool back;         /* Up on the first row ended the line */
    bool paste_enabled;
    bool fresh; /* no key was read since libedit entered raw mode */
    buf stash;  /* bytes, typed ahead or after a paste, that are read before the terminal's bytes */
    size_t stash_at;
    buf pasted;
    bool vi; /* ~/.editrc has `bind -v` */
    /* Number of statements Up went back: if it is 0, Down must not reach libedit, which would clear
     * the line. */
    int back_in_history;
    arena *names;       /* memory of `objects`; NULL: not read since the last statement */
    db_object *objects; /* for completion */
    int nobjects;
};

static editor *editor_of(EditLine *el) {
    void *data = NULL;
    el_get(el, EL_CLIENTDATA, &data);
    return data;
}

/* ---- text ------------------------------------------------------------------------------------ */

static wchar_t *widen(str s) {
    wchar_t *out = mem_alloc(sizeof(wchar_t) * (s.n + 1));
    size_t n = 0;
    for (size_t at = 0; at < s.n;) {
        uint32_t cp;
        at += utf8_next((str){s.p + at, s.n - at}, &cp);
        out[n++] = (wchar_t)cp;
    }
    out[n] = 0;
    return out;
}

static void narrow(const wchar_t *from, const wchar_t *to, buf *out) {
    for (; from < to; from++) {
        char bytes[4];
        buf_append(out, bytes, utf8_encode((uint32_t)*from, bytes));
    }
}

int editor_rows(str text, int indent, int columns, bool *exact) {
    int rows = 1, at = indent;
    *exact = true;
    while (text.n) {
        size_t n = utf8_fit(text, 1);
        n = n ? n : utf8_fit(text, 2);
        n = n ? n : 1;
        str one = {text.p, n};
        text = (str){text.p + n, text.n - n};
        if (one.p[0] == '\n') {
            rows++;
            at = 0;
            continue;
        }
        int width = one.p[0] == '\t' ? 8 - at % 8 : utf8_width(one);
        /* A grapheme of more than 4 bytes has several code points; libedit and terminals disagree
         * about its width. */
        if (n > 4)
            *exact = false;
        if (at + width > columns) {
            rows++;
            at = 0;
        }
        at += width;
    }
    if (at >= columns)
        *exact = false;
    return rows;
}

/* ---- reading keys ---------------------------------------------------------------------------- */

/* Returns 1 and sets *out to a byte. Returns 0 if the terminal was closed, and -1 after a signal:
 * the caller checks the flags of signals.c. */
static int read_byte(editor *ed, char *out) {
    if (ed->stash_at < ed->stash.n) {
        *out = ed->stash.p[ed->stash_at++];
        return 1;
    }
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    ssize_t n = poll(&keys, 1, -1) < 0 ? -1 : read(STDIN_FILENO, out, 1);
    if (n == 1)
        return 1;
    if (n < 0 && errno == EINTR)
        return -1;
    /* A program that the shell started may have left the terminal non-blocking. */
    int off = 0;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) &&
        ioctl(STDIN_FILENO, FIONBIO, &off) == 0)
        return -1;
    return 0;
}

/* Makes Ctrl-C a key instead of a signal. libedit undoes this whenever it enters raw mode, so it is
 * done again at the next key. */
static void claim_keys(void) {
    struct termios modes;
    if (tcgetattr(STDIN_FILENO, &modes) != 0 || (modes.c_lflag & ICANON))
        return;
    modes.c_cc[VINTR] = modes.c_cc[VQUIT] = _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

static void paste_mode(const editor *ed, bool on) {
    if (!ed->paste_enabled)
        return;
    fputs(on ? PASTE_ON : PASTE_OFF, stdout);
    fflush(stdout);
}

/* Moves the cursor to the start of the prompt and clears the screen after it. A terminal whose
 * width changes wraps its lines anew and keeps the cursor at the same character. */
static void go_to_start(const editor *ed, const LineInfoW *line) {
    int columns, rows;
    bool exact;
    buf before = {0};
    term_size(&columns, &rows);
    narrow(line->buffer, line->cursor, &before);
    int up = editor_rows(buf_str(&before), (int)strlen(ed->prompt), columns, &exact) - 1;
    if (BASE_MIN(up, rows - 1) > 0)
        printf("\033[%dA", BASE_MIN(up, rows - 1));
    fputs("\r\033[J", stdout);
    fflush(stdout);
    buf_free(&before);
}

/* libedit reads its screen buffer at the row and column of its cursor, even if the screen is now
 * smaller and has no such place. So before el_resize both cursors are moved home: the terminal's
 * cursor by go_to_start, libedit's cursor by drawing an empty line without a prompt. */
static void resize(editor *ed) {
    LineInfoW *line = (LineInfoW *)(uintptr_t)el_wline(ed->el), whole = *line;
    char *prompt = ed->prompt_text.p, none[] = "";
    if (!ed->sh->term.dumb)
        go_to_start(ed, line);
    ed->prompt_text.p = none;
    line->cursor = line->lastchar = line->buffer;
    el_set(ed->el, EL_REFRESH);
    el_resize(ed->el);
    ed->prompt_text.p = prompt;
    *line = whole;
    el_set(ed->el, EL_REFRESH);
}

static void after_signal(editor *ed) {
    if (signals_resized())
        resize(ed);
    if (signals_continued()) {
        el_set(ed->el, EL_PREP_TERM, 0); /* libedit assumes that its modes are still set */
        el_set(ed->el, EL_PREP_TERM, 1);
        claim_keys();
        paste_mode(ed, true);
        el_set(ed->el, EL_REFRESH);
    }
}

static int read_char(EditLine *el, wchar_t *out) {
    editor *ed = editor_of(el);
    if (ed->fresh)
        claim_keys();
    ed->fresh = false;
    if (ed->give_prefill) {
        ed->give_prefill = false;
        *out = KEY_PREFILL;
        return 1;
    }
    char bytes[5] = {0};
    size_t n = 0;
    for (;;) {
        if (signals_terminated())
            return 0;
        if (signals_interrupts()) { /* SIGINT sent by kill or by the terminal */
            signals_clear();
            *out = 0x03;
            return 1;
        }
        int got = read_byte(ed, &bytes[n]);
        if (got < 0) {
            after_signal(ed);
            continue;
        }
        if (got == 0)
            return 0;
        unsigned char lead = (unsigned char)bytes[0];
        size_t length = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        if (++n < length)
            continue;
        uint32_t cp;
        utf8_next((str){bytes, n}, &cp);
        *out = (wchar_t)cp;
        return 1;
    }
}

/* ---- pasting --------------------------------------------------------------------------------- */

/* Reads up to the end mark of a paste; keeps what follows it in the stash. */
static void read_paste(editor *ed, buf *text) {
    size_t mark = sizeof paste_end - 1;
    buf_append(text, ed->stash.p + ed->stash_at, ed->stash.n - ed->stash_at);
    buf_clear(&ed->stash);
    ed->stash_at = 0;
    char *block = mem_alloc(PASTE_BLOCK);
    for (size_t seen = 0;;) {
        char *end =
            text->n >= mark ? memmem(text->p + seen, text->n - seen, paste_end, mark) : NULL;
        if (end) {
            size_t length = (size_t)(end - text->p);
            buf_append(&ed->stash, end + mark, text->n - length - mark);
            text->n = length;
            break;
        }
        seen = text->n >= mark ? text->n - mark + 1 : 0;
        ssize_t n = read(STDIN_FILENO, block, PASTE_BLOCK);
        if (n > 0)
            buf_append(text, block, (size_t)n);
        else if (n == 0 || errno != EINTR || signals_terminated())
            break;
    }
    free(block);
}

/* Converts line ends to \n and removes other control characters but tabs, and trailing newlines. */
static void clean_paste(buf *text) {
    size_t to = 0;
    for (size_t i = 0; i < text->n; i++) {
        unsigned char c = (unsigned char)text->p[i];
        if (c == '\r') {
            if (i + 1 < text->n && text->p[i + 1] == '\n')
                continue;
            c = '\n';
        }
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            continue;
        text->p[to++] = (char)c;
    }
    while (to && text->p[to - 1] == '\n')
        to--;
    text->n = to;
}

static unsigned char insert_text(EditLine *el, str text) {
    if (text.n == 0)
        return CC_NORM;
    wchar_t *wide = widen(text);
    int failed = el_winsertstr(el, wide);
    free(wide);
    return failed ? CC_ERROR : CC_REFRESH;
}

static unsigned char on_paste(EditLine *el, int key) {
    (void)key;
    editor *ed = editor_of(el);
    buf_clear(&ed->pasted);
    read_paste(ed, &ed->pasted);
    clean_paste(&ed->pasted);
    if (!ed->vi)
        return insert_text(el, buf_str(&ed->pasted));
    /* The escape of the paste mark ended vi's insert mode; `a` enters it again at this place. */
    static const wchar_t again[] = {L'a', KEY_PREFILL, 0};
    ed->prefill = buf_str(&ed->pasted);
    el_wpush(el, again);
    return CC_NORM;
}

static unsigned char on_prefill(EditLine *el, int key) {
    (void)key;
    editor *ed = editor_of(el);
    str text = ed->prefill;
    ed->prefill = (str){0};
    return insert_text(el, text);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static unsigned char on_interrupt(EditLine *el, int key) {
    (void)key;
    editor_of(el)->interrupted = true;
    return CC_NEWLINE;
}

/* Returns the start of the row that p is in; row_end returns its end. */
static const wchar_t *row_start(const LineInfoW *line, const wchar_t *p) {
    while (p > line->buffer && p[-1] != L'\n')
        p--;
    return p;
}

static const wchar_t *row_end(const LineInfoW *line, const wchar_t *p) {
    while (p < line->lastchar && *p != L'\n')
        p++;
    return p;
}

/* Moves the cursor to the same column of the previous (direction -1) or next (+1) row. False: there
 * is no such row. */
static bool move_row(EditLine *el, int direction) {
    const LineInfoW *line = el_wline(el);
    const wchar_t *start = row_start(line, line->cursor), *end = row_end(line, line->cursor);
    if (direction < 0 ? start == line->buffer : end == line->lastchar)
        return false;
    const wchar_t *row = direction < 0 ? row_start(line, start - 1) : end + 1;
    long room = row_end(line, row) - row, offset = line->cursor - start;
    el_cursor(el, (int)(row + BASE_MIN(offset, room) - line->cursor));
    return true;
}

static unsigned char on_up(EditLine *el, int key) {
    (void)key;
    editor *ed = editor_of(el);
    if (move_row(el, -1))
        return CC_REFRESH;
    if (ed->before.n) {
        ed->back = true;
        return CC_NEWLINE;
    }
    ed->back_in_history++;
    el_wpush(el, L"\020"); /* Ctrl-P: previous statement in emacs and vi mode */
    return CC_NORM;
}

static unsigned char on_down(EditLine *el, int key) {
    (void)key;
    editor *ed = editor_of(el);
    if (move_row(el, 1))
        return CC_REFRESH;
    if (ed->back_in_history == 0)
        return CC_NORM;
    ed->back_in_history--;
    el_wpush(el, L"\016");
    return CC_NORM;
}

/* Moves the cursor to the start of the row, or from there to the start of the text. on_end does
 * the same with the ends of row and text. */
static unsigned char on_home(EditLine *el, int key) {
    (void)key;
    const LineInfoW *line = el_wline(el);
    const wchar_t *start = row_start(line, line->cursor);
    el_cursor(el, (int)((start == line->cursor ? line->buffer : start) - line->cursor));
    return CC_REFRESH;
}

static unsigned char on_end(EditLine *el, int key) {
    (void)key;
    const LineInfoW *line = el_wline(el);
    const wchar_t *end = row_end(line, line->cursor);
    el_cursor(el, (int)((end == line->cursor ? line->lastchar : end) - line->cursor));
    return CC_REFRESH;
}

/* ---- completion ------------------------------------------------------------------------------ */

static void learn_names(editor *ed) {
    if (ed->names != NULL || ed->sh->db == NULL || !shell_wait_for_previous(ed->sh, false))
        return;
    ed->names = arena_new();
    err e = {.pos = -1};
    if (db_objects(ed->sh->db, ed->names, &ed->objects, &ed->nobjects, &e) != 0)
        ed->nobjects = 0; /* no table names are offered; the next statement reports the error */
}

void editor_forget_names(editor *ed) {
    arena_free(ed->names);
    ed->names = NULL;
    ed->nobjects = 0;
}

static const style candidate_styles[] = {
    [CANDIDATE_KEYWORD] = STYLE_KEYWORD, [CANDIDATE_FUNCTION] = STYLE_FUNCTION,
    [CANDIDATE_TABLE] = STYLE_BOLD,      [CANDIDATE_MODEL] = STYLE_BOLD,
    [CANDIDATE_COLUMN] = STYLE_PLAIN,    [CANDIDATE_SETTING] = STYLE_PLAIN,
    [CANDIDATE_VALUE] = STYLE_PLAIN,     [CANDIDATE_FILE] = STYLE_PLAIN,
    [CANDIDATE_COMMAND] = STYLE_PLAIN,
};

static void list_notes(editor *ed, const completion *c, int shown, int widest, int columns,
                       buf *out) {
    bool color = ed->sh->term.color_out;
    for (int i = 0; i < shown; i++) {
        const candidate *k = &c->items[i];
        style_append(out, color, candidate_styles[k->kind], k->text);
        int room = columns - widest - 3;
        if (*k->note && room > 0) {
            str note = str_from(k->note);
            note.n = utf8_fit(note, room);
            format_pad(out, widest + 2 - utf8_width(str_from(k->text)));
            buf_append_c(out, style_on(color, STYLE_DIM));
            buf_append_str(out, note);
            buf_append_c(out, style_off(color, STYLE_DIM));
        }
        buf_append_char(out, '\n');
    }
}

static void list_columns(editor *ed, const completion *c, int shown, int columns, buf *out) {
    const char **texts = mem_alloc(sizeof *texts * (size_t)shown);
    style *styles = mem_alloc(sizeof *styles * (size_t)shown);
    for (int i = 0; i < shown; i++) {
        texts[i] = c->items[i].text;
        styles[i] = candidate_styles[c->items[i].kind];
    }
    format_columns(out, texts, ed->sh->term.color_out ? styles : NULL, shown, columns);
    free(texts);
    free(styles);
}

/* Prints at most a screenful of candidates, best first. libedit then redraws prompt and line. */
static void list_candidates(editor *ed, const completion *c) {
    int columns, rows, widest = 1;
    term_size(&columns, &rows);
    int room = BASE_MAX(rows - 4, 3);
    buf out = {0};
    buf_append_char(&out, '\n');
    int few = BASE_MIN(room, 14);
    for (int i = 0; i < c->count; i++)
        widest = BASE_MAX(widest, utf8_width(str_from(c->items[i].text)));
    int fit = room * BASE_MAX((columns + 2) / (widest + 2), 1);
    int shown = BASE_MIN(c->count, c->count <= few ? few : fit);
    if (c->count <= few)
        list_notes(ed, c, shown, widest, columns, &out);
    else
        list_columns(ed, c, shown, columns, &out);
    if (shown < c->count)
        buf_printf(&out, "... %d more\n", c->count - shown);
    fwrite(out.p, 1, out.n, stdout);
    fflush(stdout);
    buf_free(&out);
}

/* Moves the cursor below the last row of the line. */
static void go_below(const editor *ed, const LineInfoW *line) {
    int columns, rows, indent = (int)strlen(ed->prompt);
    bool exact;
    buf text = {0};
    term_size(&columns, &rows);
    narrow(line->buffer, line->cursor, &text);
    int row = editor_rows(buf_str(&text), indent, columns, &exact);
    narrow(line->cursor, line->lastchar, &text);
    for (int last = editor_rows(buf_str(&text), indent, columns, &exact); row < last; row++)
        putchar('\n');
    buf_free(&text);
}

/* If the text right of the cursor starts with the end of `chosen`, deletes that part and returns
 * its length in bytes. */
static size_t drop_tail(EditLine *el, str chosen, str right) {
    size_t n = BASE_MIN(chosen.n, right.n);
    while (n && memcmp(chosen.p + chosen.n - n, right.p, n) != 0)
        n--;
    int characters = (int)utf8_length((str){right.p, n});
    if (n > 0) {
        el_cursor(el, characters);
        el_deletestr(el, characters);
    }
    return n;
}

static unsigned char on_complete(EditLine *el, int key) {
    (void)key;
    editor *ed = editor_of(el);
    const LineInfoW *line = el_wline(el);
    buf text = {0};
    buf_append_str(&text, ed->before);
    narrow(line->buffer, line->cursor, &text);
    size_t cursor = text.n;
    narrow(line->cursor, line->lastchar, &text);
    learn_names(ed);
    arena *mem = arena_new();
    completion c = {0};
    complete_find(buf_str(&text), cursor, ed->objects, ed->nobjects, mem, &c);
    unsigned char result = CC_ERROR;
    size_t typed = cursor - c.start;
    if (c.count > 0 && (c.common > typed || c.count == 1 ||
                        memcmp(c.items[0].text, text.p + c.start, c.common) != 0)) {
        el_deletestr(el, (int)utf8_length((str){text.p + c.start, typed}));
        str chosen = {c.items[0].text, c.common};
        if (c.count == 1)
            cursor += drop_tail(el, chosen, (str){text.p + cursor, text.n - cursor});
        candidate_kind kind = c.items[0].kind;
        buf with_blank = {0};
        buf_append_str(&with_blank, chosen);
        char last = chosen.n ? chosen.p[chosen.n - 1] : 0;
        bool open = last == '(' || last == '/' || last == '.' || last == '{' || last == '}';
        /* no blank is added after a column or table, because a comma or dot often follows */
        bool more = kind == CANDIDATE_COLUMN || kind == CANDIDATE_TABLE;
        if (c.count == 1 && !open && !more && (cursor == text.n || text.p[cursor] != ' '))
            buf_append_char(&with_blank, ' ');
        insert_text(el, buf_str(&with_blank));
        buf_free(&with_blank);
        result = CC_REFRESH;
    } else if (c.count > 1) {
        go_below(ed, line);
        list_candidates(ed, &c);
        result = CC_REDISPLAY;
    }
    arena_free(mem);
    buf_free(&text);
    return result;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static char *give_prompt(EditLine *el) {
    editor *ed = editor_of(el);
    return ed->prompt_text.p;
}

/* In vi mode an escape must end insert mode at once, so there a key sequence is bound in command
 * mode without its escape, as libedit binds the arrows. */
static void bind_key(EditLine *el, bool vi, const char *keys, const char *name) {
    if (vi && keys[0] == '\\')
        el_set(el, EL_BIND, "-a", keys + 2, name, NULL);
    else
        el_set(el, EL_BIND, keys, name, NULL);
    /* A control key is bound in vi's command mode too. */
    if (vi && keys[0] == '^')
        el_set(el, EL_BIND, "-a", keys, name, NULL);
}

static void bind_keys(EditLine *el, bool vi) {
    static const struct {
        const wchar_t *name, *help;
        unsigned char (*run)(EditLine *, int);
        const char *keys[5];
    } table[] = {
        {L"kvasir-paste", L"insert pasted text", on_paste, {"\\e[200~"}},
        {L"kvasir-prefill", L"insert the earlier lines", on_prefill, {"^\\"}},
        {L"kvasir-interrupt", L"discard the statement", on_interrupt, {"^C"}},
        {L"kvasir-complete", L"complete the word", on_complete, {"^I"}},
        {L"kvasir-up", L"previous row or statement", on_up, {"\\e[A", "\\eOA"}},
        {L"kvasir-down", L"next row or statement", on_down, {"\\e[B", "\\eOB"}},
        {L"kvasir-home", L"start of the row", on_home, {"^A", "\\e[H", "\\eOH", "\\e[1~"}},
        {L"kvasir-end", L"end of the row", on_end, {"^E", "\\e[F", "\\eOF", "\\e[4~"}},
    };
    for (size_t i = 0; i < BASE_COUNT(table); i++) {
        char name[32];
        wcstombs(name, table[i].name, sizeof name);
        el_wset(el, EL_ADDFN, table[i].name, table[i].help, table[i].run);
        for (int k = 0; k < 5 && table[i].keys[k]; k++)
            bind_key(el, vi, table[i].keys[k], name);
    }
    el_set(el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    if (vi)
        return;
    el_set(el, EL_BIND, "\\e[1;5D", "ed-prev-word", NULL);
    el_set(el, EL_BIND, "\\e[1;5C", "em-next-word", NULL);
    el_set(el, EL_BIND, "\\e[3~", "ed-delete-next-char", NULL);
}

editor *editor_new(shell *sh, history_list *history) {
    editor *ed = mem_zalloc(sizeof *ed);
    ed->sh = sh;
    ed->el = el_init("kvasir", stdin, stdout, stderr);
    if (ed->el == NULL) {
        free(ed);
        return NULL;
    }
    HistEventW event;
    ed->history = history_winit();
    history_w(ed->history, &event, H_SETSIZE, HISTORY_SIZE);
    for (size_t i = 0; i < history->count; i++)
        editor_remember(ed, history->lines[i]);
    el_set(ed->el, EL_CLIENTDATA, ed);
    el_set(ed->el, EL_EDITOR, "emacs");
    el_wset(ed->el, EL_HIST, history_w, ed->history);
    el_source(ed->el, NULL); /* ~/.editrc, if there is one */
    const char *mode = NULL;
    ed->vi = el_get(ed->el, EL_EDITOR, &mode) == 0 && mode != NULL && strcmp(mode, "vi") == 0;
    bind_keys(ed->el, ed->vi);
    el_wset(ed->el, EL_GETCFN, read_char);
    el_set(ed->el, EL_PROMPT_ESC, give_prompt, '\1');
    el_set(ed->el, EL_SIGNAL, 0);
    ed->paste_enabled = !sh->term.dumb;
    if (ed->paste_enabled)
        term_set_restore_text(PASTE_OFF);
    return ed;
}

void editor_free(editor *ed) {
    if (ed == NULL)
        return;
    term_set_restore_text(NULL);
    el_end(ed->el);
    history_wend(ed->history);
    buf_free(&ed->prompt_text);
    buf_free(&ed->stash);
    buf_free(&ed->pasted);
    arena_free(ed->names);
    free(ed);
}

void editor_remember(editor *ed, const char *statement) {
    HistEventW event;
    wchar_t *wide = widen(str_from(statement));
    history_w(ed->history, &event, H_ENTER, wide);
    free(wide);
}

/* Escape sequences are between \1 marks, so that libedit counts no width for them. It prints them
 * together with the next character, so the colour ends before the prompt's last blank. */
static void set_prompt(editor *ed, const char *prompt) {
    bool color = ed->sh->term.color_out;
    size_t n = strlen(prompt) - 1;
    buf_clear(&ed->prompt_text);
    if (color)
        buf_printf(&ed->prompt_text, "\1%s\1", style_on(true, STYLE_PROMPT));
    buf_append(&ed->prompt_text, prompt, n);
    if (color)
        buf_printf(&ed->prompt_text, "\1%s\1", style_off(true, STYLE_PROMPT));
    buf_append_c(&ed->prompt_text, prompt + n);
}

void editor_feed(editor *ed, str typed) {
    buf_append(&ed->stash, typed.p, typed.n);
}

edit_status editor_read(editor *ed, const char *prompt, str before, str prefill, buf *line) {
    int count = 0;
    ed->prompt = prompt;
    set_prompt(ed, prompt);
    ed->before = before;
    ed->prefill = prefill;
    ed->give_prefill = prefill.n > 0;
    ed->interrupted = ed->back = false;
    ed->fresh = true;
    ed->back_in_history = 0;
    signals_clear();
    paste_mode(ed, true);
    /* Before the prompt, not after it as el_wgets does: a program that types as soon as it reads the
     * prompt would see its line twice, and its Ctrl-D would be lost. */
    el_set(ed->el, EL_PREP_TERM, 1);
    const wchar_t *text = el_wgets(ed->el, &count);
    paste_mode(ed, false);
    buf_clear(line);
    const LineInfoW *info = el_wline(ed->el);
    if (ed->interrupted) {
        narrow(info->buffer, info->lastchar, line);
        bool at_end = info->cursor == info->lastchar;
        go_below(ed, info);
        fputs(at_end ? "^C\n" : "\n", stdout);
        return EDIT_INTERRUPTED;
    }
    if (ed->back) {
        narrow(info->buffer, info->lastchar, line);
        return EDIT_BACK;
    }
    if (text == NULL || count <= 0)
        return EDIT_END;
    narrow(text, text + count, line);
    while (line->n && (line->p[line->n - 1] == '\n' || line->p[line->n - 1] == '\r'))
        line->n--;
    return EDIT_LINE;
}
