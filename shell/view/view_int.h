/*
 * view_int.h - the live view of an LLM statement: a state that grows with the run, a pure picture
 * of it, and the ncurses loop that shows the picture.
 *
 *   exec_progress ──view_update──> view_state ──view_render──> cells ──view.c──> screen
 *
 * Ownership: a view_state is plain data of fixed size; cells belong to the caller.
 */
#ifndef KVASIR_VIEW_INT_H
#define KVASIR_VIEW_INT_H

#include "run/shell_int.h"

enum { VIEW_SAMPLES = 512, VIEW_ANSWERS = 32, VIEW_BASELINES = 6 };

typedef enum view_attr {
    VIEW_PLAIN,
    VIEW_DIM,
    VIEW_BOLD,
    VIEW_TITLE, /* reverse */
    VIEW_GOOD,  /* saved work */
    VIEW_DISK,
    VIEW_KNOWN, /* answers that were stored */
    VIEW_WORK,  /* computed */
    VIEW_ATTRS
} view_attr;

/* One column of the screen: a grapheme of one column, or of two with the next cell empty. */
typedef struct view_cell {
    char text[16]; /* UTF-8, NUL-terminated; "" is the right half of a wide one */
    uint8_t attr;
} view_cell;

typedef struct view_answer {
    char input[80], answer[80];
} view_answer;

/* Tokens that another strategy computes for the same statement. */
typedef struct view_baseline {
    char name[24];
    double tokens;
} view_baseline;

/* Keys 1 to 4. */
typedef enum view_panel {
    PANEL_RUN,
    PANEL_STRATEGIES,
    PANEL_PREFIXES,
    PANEL_ROWS,
    PANELS
} view_panel;

typedef struct view_state {
    char statement[512];
    exec_progress now;
    bool utf8, help, finished;
    view_panel panel;
    int scroll;                            /* first row shown of a panel's list */
    double hit_now, rows_rate, token_rate; /* of the latest half second and more */
    float hit[VIEW_SAMPLES];               /* hit rates, oldest first */
    int nhit;
    double mark_seconds; /* what the rates are measured from */
    exec_progress mark;
    view_answer answers[VIEW_ANSWERS]; /* newest first */
    int nanswers;
    view_baseline baselines[VIEW_BASELINES];
    int nbaselines;
    /* the LLM operator whose baselines came last with the progress; 0: none did */
    int counted_operator;
} view_state;

void view_start(view_state *v, str statement, bool utf8);
void view_update(view_state *v, const exec_progress *x);
/* Fills cells[h][w]. All of it from 80 × 24 up, less
 * on smaller screens, one line on a row or two. */
void view_render(const view_state *v, int w, int h, view_cell *cells);
/* One recorded step, a JSON object a line; false: *e says
 * what is wrong with it. `wait_s`: since the step before. */
bool view_mock_line(const char *line, view_state *v, double *wait_s, err *e);

/* Whether the baselines of the operator at work are still to be asked for (stmt_compare). */
bool view_wants_baselines(const view_state *v);
void view_add_baseline(view_state *v, const char *name, double tokens);

/* Asks EXPLAIN what each strategy would compute for the statement; before it runs. false: stopped
 * by Ctrl-C. */
bool estimate_baselines(shell *sh, str text, view_state *v);

typedef struct view view;
/* Shows `state`, which the caller keeps up to date and which must outlive the view, of the running
 * statement s. NULL: the terminal cannot show it. */
view *view_open(const shell *sh, view_state *state, stmt *s);
/* Draws at most four times a second and reads keys;
 * false: back to the shell, the statement runs on. */
bool view_tick(view *v);
void view_close(view *v);
/* Replays a recorded run; its exit code. */
int view_mock(const term *t, const char *path);

#endif
