/*
 * format_int.h - output modes, which print results as text, and text layout for all of the shell.
 *
 * All functions append to a buffer and depend only on their arguments.
 */
#ifndef KVASIR_FORMAT_INT_H
#define KVASIR_FORMAT_INT_H

#include "term/term_int.h"

/* Whether texts wider than their column go on in further lines. By default they do in the record
 * view, and in a box in which a text column would be cut to less than 20 columns. */
typedef enum format_wrapping { WRAP_AUTO, WRAP_ON, WRAP_OFF } format_wrapping;

typedef struct format_options {
    const char *null_text;    /* the text shown for NULL; if NULL: the mode's default */
    const char *insert_table; /* table name in mode insert; NULL: "t" */
    int width;                /* columns that a box and records must fit; 0: unlimited */
    format_wrapping wrap;
    uint64_t max_rows; /* rows that a box shows; 0: all */
    bool no_headers, types_row, color, utf8;
    /* the widths that .width sets, by result column; 0: by content; negative: right-aligned */
    const int *widths;
    int nwidths;
    workmem *space; /* accounts for rows that a mode keeps; NULL: not counted */
    /* Modes that read all rows before they draw call this before they draw each row or line of one, to empty
     * `out`. False: stop drawing. May be NULL. */
    bool (*drain)(void *ctx);
    void *drain_ctx;
} format_options;

typedef struct format format;

/* An output mode. Options, --help, .mode and completion use the table of modes. */
typedef struct format_mode {
    const char *name, *help;
    char delimiter; /* csv, tsv, list: between values; else 0 */
    bool needs_all; /* writes nothing before the last row is read */
    bool wraps;     /* heeds options.wrap */
    void (*begin)(format *f);
    void (*row)(format *f, const batch *b, int row);
    void (*end)(format *f);
} format_mode;

struct format {
    const format_mode *mode;
    format_options options;
    int ncols;
    const char *const *names;
    const value_type *types;
    buf *out;
    uint64_t rows;      /* rows read so far */
    uint64_t rows_kept; /* rows shown; in modes that do not keep rows, set by format_end */
    bool cut;           /* a value was cut off at its column's width */
    bool stopped;       /* `drain` returned false */
    arena *mem;         /* memory of a mode that keeps rows */
    void *state;        /* private data of the mode */
};

const format_mode *format_modes(size_t *count);
const format_mode *format_mode_find(const char *name); /* NULL: none */
/* Column names and types must outlive the format. The caller may empty `out` between calls. */
void format_begin(format *f, const format_mode *mode, const format_options *options, int ncols,
                  const char *const *names, const value_type *types, buf *out);
void format_rows(format *f, const batch *b);
int format_full_error(const format *f, err *e); /* the error if rows could not be kept, else 0 */
bool format_drain(format *f);                   /* calls options.drain; false: stop drawing */
void format_end(format *f);
void format_free(format *f); /* after format_end, or instead of it */

/* Appends a value for display: a NULL as null_text, a BLOB as x'...'. */
void format_cell(const format *f, buf *out, value v);
/* Appends text, each control character replaced by a visible character one column wide. */
void format_visible(buf *out, str text, bool utf8);
/* Does the same, but keeps the control characters that `kept` has. */
void format_visible_but(buf *out, str text, const char *kept, bool utf8);
void format_pad(buf *out, int columns);
/* Appends n texts in as many columns as fit the screen, in order down each column. columns = 0: one
 * text per line. `styles`: the style of each text; may be NULL. */
void format_columns(buf *out, const char *const *texts, const style *styles, int n, int columns);
/* Appends one entry of a two-column list: `left`, then `text` from column `indent` on, wrapped to
 * `columns` (0: not wrapped). If fewer than 20 columns remain for `text`, it starts a new line. */
void format_entry(buf *out, str left, int indent, str text, int columns);

/* Removes the next line of at most `columns` from the text and returns it, without blanks at its
 * end. A line ends at a line feed, at a blank, or beside a wide character; a word is broken only if
 * it is wider than a line. One cluster that is wider than `columns` is a line. (format_wrap.c) */
str format_wrap(str *text, int columns);
/* Appends the text in lines of at most `columns`, with `indent` blanks before each but the first,
 * and no line feed at the end. Tabs become blanks, to the next multiple of 8. */
void format_wrapped(buf *out, str text, int columns, int indent);
/* Appends a CREATE statement, without a semicolon. If a line of it is wider than `columns` (0:
 * unlimited), a table gets a line for each column and a view one for each clause; longer ones are
 * wrapped between tokens. A text with a -- comment is not changed. (format_sql.c) */
void format_sql(buf *out, str sql, int columns);
/* Appends an EXPLAIN plan with its lines wrapped to `columns` (0: not wrapped). (format_plan.c) */
void format_plan(buf *out, str text, int columns, bool utf8);
/* Appends the prompts of EXPLAIN (PROMPT), wrapped to `columns` (0: not wrapped) with their bars
 * repeated. With colour, shared prefixes are dim, and control tokens stand out. (format_prompt.c)
 */
void format_prompts(buf *out, str text, int columns, bool utf8, bool color);
/* Appends the tree of EXPLAIN (TREE), each line cut to `columns` (0: to FORMAT_TREE_COLUMNS) after
 * a whole word. */
enum { FORMAT_TREE_COLUMNS = 100 };
void format_tree(buf *out, str text, int columns, bool utf8);
/* Appends a line; if it is wider than `columns`, its beginning in whole words and an ellipsis. */
void format_cut(buf *out, str line, int columns);
/* Appends text with the glyphs of plans and prompts replaced by ASCII characters. */
void format_ascii(buf *out, str text);

/* ---- the modes' functions (format_box.c, format_text.c) -------------------------------------- */

void box_begin(format *f); /* box and markdown */
void box_row(format *f, const batch *b, int row);
void box_end(format *f);
void box_markdown_end(format *f);
void text_csv_begin(format *f); /* csv and tsv */
void text_csv_row(format *f, const batch *b, int row);
void text_json_row(format *f, const batch *b, int row);
void text_json_end(format *f);
void text_jsonl_row(format *f, const batch *b, int row);
void text_line_begin(format *f);
void text_line_row(format *f, const batch *b, int row);
void text_html_begin(format *f);
void text_html_row(format *f, const batch *b, int row);
void text_html_end(format *f);
void text_insert_row(format *f, const batch *b, int row);
void text_list_begin(format *f);
void text_list_row(format *f, const batch *b, int row);

#endif
