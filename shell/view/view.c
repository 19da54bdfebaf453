/*
 * view.c - shows the cells of view_render.c with ncurses, handles the view's keys, replays recorded
 * runs.
 *
 * Invariant: without keys, the screen is drawn at most four times a second, with one doupdate each.
 * The terminal is restored however the view ends, also by signals: the escape sequences to restore
 * it are prepared when the view opens.
 */
#include <curses.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shell/shell.h"
#include "view_int.h"

enum { REDRAW_MS = 250 };

struct view {
    view_state *state;
    stmt *statement; /* NULL: a recorded or finished run */
    SCREEN *screen;
    view_cell *cells; /* [h][w] */
    int w, h;         /* size of the screen in columns and rows */
    bool color;
    double drawn_ms;   /* clock_ms() when the screen was drawn last; 0: draw at once */
    char restore[256]; /* escape sequences that restore the terminal */
};

/* Sets a cell's attribute. Without colour, bold, underline and reverse video replace the important
 * colours. */
static void set_attribute(const view *v, uint8_t attr) {
    static const attr_t colored[VIEW_ATTRS] = {
        [VIEW_DIM] = A_DIM, [VIEW_BOLD] = A_BOLD, [VIEW_TITLE] = A_REVERSE};
    static const attr_t plain[VIEW_ATTRS] = {[VIEW_BOLD] = A_BOLD,
                                             [VIEW_TITLE] = A_REVERSE,
                                             [VIEW_GOOD] = A_BOLD,
                                             [VIEW_KNOWN] = A_BOLD,
                                             [VIEW_WORK] = A_UNDERLINE};
    bool pair = v->color &&
                (attr == VIEW_GOOD || attr == VIEW_DISK || attr == VIEW_KNOWN || attr == VIEW_WORK);
    attr_set(v->color ? colored[attr] : plain[attr], pair ? (short)attr : (short)0, NULL);
}

static void fit_cells(view *v) {
    getmaxyx(stdscr, v->h, v->w);
    v->cells = mem_realloc(v->cells, sizeof(view_cell) * (size_t)(v->w * v->h + 1));
}

static void draw(view *v) {
    if (signals_continued()) { /* other programs used the terminal while the shell was stopped */
        endwin();
        refresh();
        curs_set(0);
    }
    if (signals_resized()) {
        int columns, rows;
        term_size(&columns, &rows);
        resizeterm(rows, columns);
        fit_cells(v);
        clearok(curscr, TRUE);
    }
    view_render(v->state, v->w, v->h, v->cells);
    werase(stdscr);
    for (int y = 0; y < v->h; y++) {
        for (int x = 0; x < v->w; x++) {
            const view_cell *cell = &v->cells[y * v->w + x];
            if (cell->text[0] == 0 || (cell->text[0] == ' ' && cell->attr == VIEW_PLAIN))
                continue;
            set_attribute(v, cell->attr);
            mvaddstr(y, x, cell->text);
        }
    }
    wnoutrefresh(stdscr);
    doupdate();
    v->drawn_ms = clock_ms();
}

static void prepare_restore(view *v) {
    const char *const names[] = {"sgr0", "cnorm", "rmcup"};
    size_t n = 0;
    for (size_t i = 0; i < BASE_COUNT(names); i++) {
        char *text = tigetstr(names[i]);
        if (text == NULL || text == (char *)-1 || n + strlen(text) + 1 > sizeof v->restore)
            continue;
        n += (size_t)snprintf(v->restore + n, sizeof v->restore - n, "%s", text);
    }
    term_set_restore_text(v->restore);
}

view *view_open(const term *t, view_state *state, stmt *s) {
    if (t->dumb)
        return NULL;
    view *v = mem_zalloc(sizeof *v);
    v->state = state;
    v->statement = s;
    fflush(stdout);
    v->screen = newterm(NULL, stdout, stdin);
    if (v->screen == NULL) {
        free(v);
        return NULL;
    }
    set_term(v->screen);
    prepare_restore(v);
    cbreak();
    noecho();
    nodelay(stdscr, TRUE);
    keypad(stdscr, TRUE);
    curs_set(0);
    v->color = t->color_out && has_colors();
    if (v->color) {
        start_color();
        use_default_colors();
        init_pair(VIEW_GOOD, COLOR_GREEN, -1);
        init_pair(VIEW_DISK, COLOR_CYAN, -1);
        init_pair(VIEW_KNOWN, COLOR_MAGENTA, -1);
        init_pair(VIEW_WORK, COLOR_YELLOW, -1);
    }
    fit_cells(v);
    if (s != NULL)
        stmt_watch(s, true);
    return v;
}

static void turn_to(view_state *state, int panel) {
    state->panel = (view_panel)((panel + PANELS) % PANELS);
    state->scroll = 0;
    state->help = false;
}

static void scroll_by(view_state *state, int rows) {
    int most = BASE_MAX(2 * (int)EXEC_BRANCHES, (int)VIEW_ANSWERS);
    state->scroll = BASE_MIN(BASE_MAX(state->scroll + rows, 0), most);
}

/* Handles a key of a running statement. False: close the view. */
static bool press_running(view *v, int key) {
    switch (key) {
    case 'q':
    case 'Q':
    case 27:
        return false;
    case 'c':
        if (v->statement != NULL)
            raise(SIGINT); /* exactly what Ctrl-C does */
        break;
    case 'p':
        if (v->statement != NULL)
            stmt_pause(v->statement, !v->state->now.paused);
        break;
    default:
        break;
    }
    return true;
}

/* Handles a key. False: close the view. */
static bool press(view *v, int key) {
    view_state *state = v->state;
    switch (key) {
    case '1':
    case '2':
    case '3':
    case '4':
        turn_to(state, key - '1');
        break;
    case '\t':
    case KEY_RIGHT:
        turn_to(state, (int)state->panel + 1);
        break;
    case KEY_LEFT:
        turn_to(state, (int)state->panel - 1);
        break;
    case KEY_UP:
    case KEY_DOWN:
        scroll_by(state, key == KEY_UP ? -1 : 1);
        break;
    case KEY_PPAGE:
    case KEY_NPAGE:
        scroll_by(state, key == KEY_PPAGE ? -10 : 10);
        break;
    case '?':
        state->help = !state->help;
        break;
    case KEY_RESIZE:
        break;
    default:
        return !state->finished && press_running(v, key);
    }
    return true;
}

/* Handles the keys pressed so far. Returns the key that closes the view; ERR: none. */
static int read_keys(view *v) {
    for (int key; (key = getch()) != ERR;) {
        v->drawn_ms = 0;
        if (!press(v, key))
            return key;
    }
    return ERR;
}

bool view_tick(view *v) {
    if (read_keys(v) != ERR)
        return false;
    if (v->statement != NULL)
        stmt_compare(v->statement, view_wants_baselines(v->state));
    if (clock_ms() - v->drawn_ms >= REDRAW_MS)
        draw(v);
    return true;
}

/* Also resumes a paused statement, because no key outside the view does. */
void view_close(view *v) {
    if (v->statement != NULL) {
        stmt_pause(v->statement, false);
        stmt_watch(v->statement, false);
    }
    endwin();
    delscreen(v->screen);
    term_set_restore_text(NULL);
    free(v->cells);
    free(v);
}

/* Shows the picture for some seconds, or until a key closes it. Returns that key; ERR: none. Sets
 * *stopped after Ctrl-C and SIGTERM. */
static int wait_and_draw(view *v, double seconds, bool *stopped) {
    for (double until = clock_ms() + seconds * 1e3;;) {
        int key = read_keys(v);
        *stopped = signals_interrupts() || signals_terminated();
        if (key != ERR || *stopped)
            return key;
        if (clock_ms() - v->drawn_ms >= REDRAW_MS)
            draw(v);
        if (clock_ms() >= until)
            return ERR;
        napms(20);
    }
}

void view_hold(view *v, buf *typed) {
    bool stopped = false;
    int key = ERR;
    v->state->finished = true;
    v->drawn_ms = 0;
    while (key == ERR && !stopped)
        key = wait_and_draw(v, 1, &stopped);
    if (stopped && !signals_terminated())
        signals_clear(); /* Ctrl-C closed the view; the result is still to be printed */
    if (key > ' ' && key < KEY_MIN && strchr("qQ", key) == NULL)
        buf_append_char(typed, (char)key);
}

/* ---- replaying ------------------------------------------------------------------------------- */

/* Prints the last picture as text. */
static void print_picture(const view_state *state) {
    int w, h;
    term_size(&w, &h);
    view_cell *cells = mem_alloc(sizeof(view_cell) * (size_t)(w * h));
    view_render(state, w, h, cells);
    for (int y = 0; y < h; y++) {
        buf line = {0};
        for (int x = 0; x < w; x++)
            buf_append_c(&line, cells[y * w + x].text);
        while (line.n && line.p[line.n - 1] == ' ')
            line.n--;
        printf("%.*s\n", (int)line.n, line.p);
        buf_free(&line);
    }
    free(cells);
}

static int replay_error(const char *path, int line, const char *message) {
    if (line)
        fprintf(stderr, "%s:%d:1: %s\n", path, line, message);
    else
        fprintf(stderr, "kvasir: cannot read '%s': %s\n", path, message);
    return SHELL_FAILED;
}

int view_replay(const term *t, const char *path) {
    FILE *in = fopen(path, "r");
    if (in == NULL)
        return replay_error(path, 0, strerror(errno));
    view_state state;
    view_start(&state, STR("a recorded run"), t->utf8);
    view *v = t->interactive ? view_open(t, &state, NULL) : NULL;
    char *line = NULL;
    size_t cap = 0;
    int number = 0, status = 0;
    err e = {.pos = -1};
    bool closed = false, stopped = false;
    while (status == 0 && !closed && getline(&line, &cap, in) > 0) {
        double wait_s = 0;
        number++;
        status = view_replay_line(line, &state, &wait_s, &e);
        if (status == 0 && v)
            closed = wait_and_draw(v, BASE_MIN(wait_s, 5.0), &stopped) != ERR || stopped;
    }
    if (v) {
        buf typed = {0};
        if (status == 0 && !closed)
            view_hold(v, &typed);
        view_close(v);
        buf_free(&typed);
    }
    if (status == 0 && number == 0)
        status = err_set(&e, ERR_CORRUPT, "it holds no recorded run");
    if (status == 0)
        print_picture(&state);
    free(line);
    fclose(in);
    return status == 0 ? SHELL_OK : replay_error(path, number, e.message);
}
