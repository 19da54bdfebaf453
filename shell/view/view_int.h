/*
 * view_int.h - the display of a running LLM statement: the progress line, the keys read while it
 * runs, and the full-screen live view.
 *
 *   exec_progress ──view_update──> view_state ──view_render──> cells ──view.c──> screen
 *
 * A view_state has a fixed size and no pointers; the caller owns the cells.
 */
#ifndef KVASIR_VIEW_INT_H
#define KVASIR_VIEW_INT_H

#include <termios.h>

#include "format/format_int.h"

/* ---- the progress line (progress.c) ---------------------------------------------------------- */

typedef struct run_rates {
    double rows;          /* answers per second, smoothed; stored answers do not count */
    double tokens;        /* computed and output tokens per second, smoothed */
    double seconds;       /* time at the start of the interval that is being measured */
    uint64_t rows_then;   /* number of answers at that time, without stored answers */
    uint64_t tokens_then; /* number of computed and output tokens at that time */
} run_rates;

/* Updates the rates from x at the time `seconds` if the interval has lasted at least `least`
 * seconds. Returns whether it has. `weight`: share of the new interval in the smoothed rates. */
bool rates_update(run_rates *r, const exec_progress *x, double seconds, double least,
                  double weight);

typedef struct progress_line {
    bool shown;        /* the line is on the screen */
    bool keys;         /* show the hint "v view" */
    const char *label; /* text at the beginning of the line, or NULL */
    double drawn_ms;   /* clock_ms() when the line was drawn last; 0: never */
    run_rates rates;   /* of the running LLM operator */
} progress_line;

/* Draws the line on stderr, at most ten times a second. */
void progress_draw(progress_line *p, const term *t, const exec_progress *x);
void progress_clear(progress_line *p);
/* Appends the line, at most `width` columns wide. Updates the rates in p. */
void progress_render(progress_line *p, const exec_progress *x, int width, bool utf8, buf *out);
/* Returns the share of the prompt tokens sent so far whose KV was reused. */
double progress_hit_rate(const llm_figures *m);
void progress_duration(buf *out, double seconds);
/* Returns one column of a bar, of which `eighths` of 8 are filled. Less than 0 counts as 0, more
 * than 8 as 8. */
const char *progress_bar(int eighths, bool utf8);

/* ---- keys while a statement runs (keys.c) ---------------------------------------------------- */

typedef struct key_watch {
    bool open;
    struct termios before; /* the terminal's modes before keys_open */
    buf typed;             /* keys to pass to the next prompt */
} key_watch;

/* Puts the terminal on stdin into unbuffered mode without echo. */
void keys_open(key_watch *k);
/* Reads the pressed keys; true if one of them opens the live view. */
bool keys_view(key_watch *k);
/* Restores the terminal and appends the keys that did not open the view to typed_ahead. Does
 * nothing if k is not open. */
void keys_close(key_watch *k, buf *typed_ahead);

/* ---- the live view (view_state.c, view_render.c; canvas_int.h) --------------------------------- */

enum { VIEW_SAMPLES = 512, VIEW_ANSWERS = 32 };

typedef enum view_attr {
    VIEW_PLAIN,
    VIEW_DIM,
    VIEW_BOLD,
    VIEW_TITLE, /* reverse video */
    VIEW_GOOD,  /* KV reused from memory; progress */
    VIEW_DISK,  /* KV reused from disk */
    VIEW_KNOWN, /* answers found in the cache */
    VIEW_WORK,  /* computed tokens */
    VIEW_ATTRS
} view_attr;

/* One column of the screen: a grapheme one column wide, or half of a grapheme two columns wide. */
typedef struct view_cell {
    char text[16]; /* UTF-8, NUL-terminated; "": the right half of a wide grapheme */
    uint8_t attr;
} view_cell;

typedef struct view_answer {
    char input[80], answer[80];
} view_answer;

/* What the view shows; the keys 1 to 4 choose it. */
typedef enum view_panel { PANEL_RUN, PANEL_STRATEGIES, PANEL_TREE, PANEL_ROWS, PANELS } view_panel;

typedef struct view_state {
    char statement[512];
    exec_progress now;
    bool utf8, help, finished;
    view_panel panel;
    int scroll; /* first row shown of a panel's list */
    run_rates rates;
    llm_figures mark;        /* the figures at the start of the interval that is being measured */
    double hit_now;          /* hit rate of the last interval in which tokens were sent */
    float hit[VIEW_SAMPLES]; /* hit rates of the latest such intervals, oldest first */
    int nhit;
    view_answer answers[VIEW_ANSWERS]; /* newest first */
    int nanswers;
    exec_baseline baselines[EXEC_BASELINES]; /* of all LLM operators of the statement */
    int nbaselines;
    int counted_operator; /* number of the last LLM operator whose baselines were added; 0: none */
} view_state;

void view_start(view_state *v, str statement, bool utf8);
void view_update(view_state *v, const exec_progress *x);
/* The last update. `outcome`, "done" or "stopped", replaces the phase. */
void view_finish(view_state *v, const exec_progress *x, const char *outcome);
/* Fills cells[h][w]: all panels from 80 x 24 on, fewer if smaller, one line below 40 x 6. */
void view_render(const view_state *v, int w, int h, view_cell *cells);
/* What the view's help explains: a key or a word, and its meaning. Also printed by .help view. */
typedef struct view_help_line {
    const char *name, *text;
} view_help_line;
const view_help_line *view_help(size_t *count);

/* True if the panel shown needs the baselines (tokens of other strategies) of the running LLM
 * operator (stmt_compare). */
bool view_wants_baselines(const view_state *v);
void view_add_baseline(view_state *v, const exec_baseline *more);

/* Returns the tokens per second that this machine computes: in this run, or in earlier ones if this
 * run has computed too few to tell. 0: unknown. */
double view_tokens_per_second(const view_state *v);
/* Returns the tokens that the prompts so far would have taken if nothing had been reused. */
uint64_t view_tokens_without_reuse(const view_state *v);
/* Estimates the seconds that the statement would take under another strategy: its tokens at this
 * machine's rate, and what this run spends on loading the model and, for each input, on other work.
 * 0: unknown. */
double view_seconds_of(const view_state *v, const exec_baseline *b);
/* Returns how much longer the run so far would have taken without reuse, by the same estimate. 0:
 * unknown. */
double view_speed_up(const view_state *v);

/* ---- recorded runs (view_record.c) ----------------------------------------------------------- */

/* Writes a run to a file: one line for each update of a view_state. */
typedef struct view_recorder view_recorder;
view_recorder *view_record_open(const char *path, err *e); /* NULL, and an error: ERR_IO */
void view_record(view_recorder *r, const view_state *v);   /* after each update of v */
void view_record_restart(view_recorder *r);                /* empties the file */
/* Closes the file. Returns ERR_IO if not all of it was written. */
int view_record_close(view_recorder *r, err *e);
/* Updates v by one line of a recorded run. Sets *wait_s to the seconds since the previous line.
 * ERR_CORRUPT, and v is in part updated, if the line is not one that view_record writes. */
int view_replay_line(const char *line, view_state *v, double *wait_s, err *e);

/* ---- the screen (view.c) --------------------------------------------------------------------- */

typedef struct view view;
/* Opens the view of the running statement s, or of a finished run (s = NULL); NULL if the terminal
 * cannot show it. The caller updates `state`, which must outlive the view. */
view *view_open(const term *t, view_state *state, stmt *s);
/* Handles keys, and draws after a key, else at most four times a second. False: the user closed the
 * view. The statement keeps running. */
bool view_tick(view *v);
/* Shows the last picture until a key is pressed that neither changes panels nor scrolls. A key that
 * begins a statement or command is appended to `typed`. */
void view_hold(view *v, buf *typed);
void view_close(view *v);
/* Replays a recorded run (--mock FILE); returns the exit code. */
int view_replay(const term *t, const char *path);

#endif
