/*
 * view_tree.c - draws the prefix tree of a run's prompts: each branch, how many prompts begin with
 * it, and how many of these are answered.
 *
 * Invariant: a prompt that a branch has is in the line of one of the branches below it, or in the
 * line that ends the branch ("… 12 more").
 */
#include "canvas_int.h"

/* A line of the tree: a branch, or the prompts of a branch that no branch below it has. */
typedef struct tree_line {
    const exec_branch *branch; /* NULL: these prompts */
    int depth;
    int64_t prompts, done;
} tree_line;

typedef struct tree_lines {
    int n;
    tree_line line[2 * EXEC_BRANCHES];
    const exec_branch *open[EXEC_BRANCHES]; /* by depth: the branch whose lines are being added */
    int64_t prompts[EXEC_BRANCHES];         /* by depth: number of its prompts without a line */
    int64_t done[EXEC_BRANCHES];            /* by depth: number of these that are answered */
    int nopen;
} tree_lines;

/* Ends the lines of the open branches from `depth` on. */
static void close_branches(tree_lines *t, int depth) {
    for (; t->nopen > depth; t->nopen--) {
        int own = t->nopen - 1;
        bool parts = t->prompts[own] < t->open[own]->prompts;
        if (parts && t->prompts[own] > 0)
            t->line[t->n++] = (tree_line){NULL, own + 1, t->prompts[own], t->done[own]};
    }
}

static void list_branches(const exec_progress *x, tree_lines *t) {
    t->n = t->nopen = 0;
    for (int i = 0; i < x->nbranches; i++) {
        const exec_branch *b = &x->branches[i];
        int depth = BASE_MIN(b->depth, t->nopen);
        close_branches(t, depth);
        if (depth > 0) {
            t->prompts[depth - 1] -= b->prompts;
            t->done[depth - 1] -= b->done;
        }
        t->line[t->n++] = (tree_line){b, depth, b->prompts, b->done};
        t->open[depth] = b;
        t->prompts[depth] = b->prompts;
        t->done[depth] = b->done;
        t->nopen = depth + 1;
    }
    close_branches(t, 0);
}

/* Returns whether a line at `depth` with the same parent follows line i. */
static bool sibling_follows(const tree_lines *t, int i, int depth) {
    for (i++; i < t->n && t->line[i].depth > depth; i++)
        ;
    return i < t->n && t->line[i].depth == depth;
}

/* Returns the first line to show on the first panel: the branch that is being answered. */
static int first_unanswered(const tree_lines *t) {
    for (int i = 0; i < t->n; i++)
        if (t->line[i].done < t->line[i].prompts &&
            (i + 1 == t->n || t->line[i + 1].depth <= t->line[i].depth))
            return i;
    return 0;
}

static void append_number(buf *out, int64_t n, int width) {
    buf number = {0};
    buf_append_count(&number, (uint64_t)BASE_MAX(n, 0));
    buf_printf(out, "%*s", width, number.p);
    buf_free(&number);
}

/* Writes a line as EXPLAIN (TREE) does: its branches, and the beginning of its text. */
static void draw_branch(canvas *c, const tree_lines *t, int i, bool tokens) {
    enum { DEEPEST = 8 }; /* number of levels drawn */
    const tree_line *l = &t->line[i];
    bool all = l->done >= l->prompts;
    buf text = {0};
    append_number(&text, l->prompts, 8);
    int x = canvas_put_buf(c, 0, VIEW_PLAIN, &text);
    append_number(&text, l->done, 10);
    x = canvas_put_buf(c, x, all ? VIEW_GOOD : l->done > 0 ? VIEW_WORK : VIEW_DIM, &text);
    if (tokens && l->branch)
        append_number(&text, l->branch->tokens, 8);
    else if (tokens)
        buf_printf(&text, "%8s", "");
    buf_append_c(&text, "  ");
    for (int k = BASE_MAX(1, l->depth - DEEPEST); k < l->depth; k++)
        buf_append_c(&text, sibling_follows(t, i, k) ? "│  " : "   ");
    if (l->depth > 0)
        buf_append_c(&text, sibling_follows(t, i, l->depth) ? "├─ " : "└─ ");
    x = canvas_put_glyphs(c, x, VIEW_DIM, &text);
    if (l->branch) {
        buf whole = {0};
        format_visible(&whole, str_from(l->branch->text), c->v->utf8);
        format_cut(&text, buf_str(&whole), c->w - x);
        buf_free(&whole);
    } else {
        buf_append_c(&text, "… ");
        append_number(&text, l->prompts, 0);
        buf_append_c(&text, " more");
    }
    canvas_put_glyphs(c, x, VIEW_PLAIN, &text);
}

int view_tree_rows(const exec_progress *x) {
    tree_lines t;
    list_branches(x, &t);
    return t.n + (t.n > 0);
}

void view_draw_tree(canvas *c, int rows, int from) {
    tree_lines t;
    list_branches(&c->v->now, &t);
    if (t.n == 0 || rows < 2)
        return;
    bool tokens = c->w >= SMALL_W;
    canvas_put(c, 0, c->row++, VIEW_BOLD,
               tokens ? " " WORDS_PROMPTS "  answered  tokens  shared prefixes"
                      : " " WORDS_PROMPTS "  answered  shared prefixes");
    from = from < 0 ? first_unanswered(&t) : from;
    from = BASE_MAX(BASE_MIN(from, t.n - (rows - 1)), 0);
    for (int i = from; i < t.n && i - from < rows - 1; i++, c->row++)
        draw_branch(c, &t, i, tokens);
}

void view_tree_panel(canvas *c, int last_row) {
    if (c->v->now.nbranches > 0)
        view_draw_tree(c, last_row - c->row, c->v->scroll);
    else
        canvas_put_wrapped(c, 1, last_row, VIEW_DIM,
                           c->v->finished ? "no two prompts were sent that share a prefix"
                                          : "no prompts yet that share a prefix");
}
