/*
 * canvas_int.h - the picture that the live view's panels draw into, and the panels that have a file
 * of their own.
 *
 * The panels write at the canvas's row and move it on. Functions that write text return the column
 * after it.
 */
#ifndef KVASIR_CANVAS_INT_H
#define KVASIR_CANVAS_INT_H

#include "view_int.h"

/* LABEL_COLUMNS: width of the names at the left of lines. SMALL_W: a screen less wide has less of
 * each panel. */
enum { LABEL_COLUMNS = 11, SMALL_W = 60 };

typedef struct canvas {
    const view_state *v;
    view_cell *cells;
    int w, h; /* size of the screen in columns and rows */
    int row;  /* the next row to draw */
} canvas;

void canvas_cell(canvas *c, int x, int y, str grapheme, view_attr attr);
/* Writes text from column x on, cut at the right edge. */
int canvas_put(canvas *c, int x, int y, view_attr attr, const char *text);
/* The next ones write in the canvas's row; those with a buf free it. */
int canvas_put_buf(canvas *c, int x, view_attr attr, buf *text);
/* Writes text from outside the program, such as names, with control characters made visible. */
int canvas_put_visible(canvas *c, int x, view_attr attr, const char *text);
/* Writes text that has line-drawing characters, which are replaced on a screen without UTF-8. */
int canvas_put_glyphs(canvas *c, int x, view_attr attr, buf *text);
void canvas_label(canvas *c, const char *text); /* the name of a line */
/* Writes a count, right-aligned in columns x to x + 9. */
void canvas_put_count(canvas *c, int x, uint64_t n);
/* Draws a bar of `columns`, filled to the fraction `part`. In UTF-8 the steps are 1/8 column. */
int canvas_bar(canvas *c, int x, int columns, double part, view_attr attr);
/* Writes text from column x, wrapped at blanks, and moves to the row after it. */
void canvas_put_wrapped(canvas *c, int x, int last_row, view_attr attr, const char *text);

void view_append_clock(buf *out, double seconds);          /* "1:02:03" */
void view_append_inputs(buf *out, const exec_progress *x); /* "120 of 240" */

/* Draws the prefix tree in `rows` rows, from its line `from` on; -1: from the branch that is being
 * answered (view_tree.c). */
void view_draw_tree(canvas *c, int rows, int from);
void view_tree_panel(canvas *c, int last_row); /* the tree alone */
int view_tree_rows(const exec_progress *x);    /* rows of the whole tree with its heading */
/* Draws the panel that compares this run with other strategies (view_strategies.c). */
void view_draw_strategies(canvas *c, int last_row);

#endif
