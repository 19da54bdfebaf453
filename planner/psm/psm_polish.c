/*
 * psm_polish.c - the ends of the rows: what follows the cells they share.
 *
 * A node of the prefix tree is a run of sorted rows. The rows that share no further cell stand
 * first in it ("ends"); each may continue with any field it has left, and shares with its siblings
 * what its next cell has in common with the nearest of theirs: ranks order cells by units, so the
 * nearest are the neighbours in rank. First all ends take the one field that shares most, then each
 * moves to a better one if there is one.
 *
 * Invariant: settled cells are never touched. A row that continues with a cell just like a
 * sibling's joins it, and is an end again one node further down; rounds go on until no row joins
 * another.
 */
#include "psm_int.h"

typedef struct polish {
    const psm_table *t;
    psm_paths *p;
    const uint32_t *keys; /* [rows * fields] */
    const uint32_t *rows; /* sorted by keys */
    uint32_t *kids;       /* [rows] ranks of a node's children, ascending */
    uint32_t *ranks;      /* [rows] ranks of the ends under one field */
    uint32_t *best;       /* [rows] the same for the best field so far */
    uint32_t *all;        /* [rows] kids and ends, ascending */
    field_set *left;      /* [rows] by place in `rows`: fields an end may continue with */
    uint8_t *next;        /* [rows] by place: the field chosen */
    uint64_t joined;
} polish;

static uint32_t key_at(const polish *w, uint32_t i, int depth) {
    size_t fields = (size_t)w->t->fields;
    return depth < w->t->fields ? w->keys[(size_t)w->rows[i] * fields + (size_t)depth] : 0;
}

/* First place in ranks[0 .. n-1] that is not below rank. */
static uint32_t lower_bound(const uint32_t *ranks, uint32_t n, uint32_t rank) {
    uint32_t low = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        bool right = ranks[low + half] < rank;
        low = right ? low + half + 1 : low;
        n = right ? n - half - 1 : half;
    }
    return low;
}

/* What a cell shares with the nearest of ranks[0 .. n-1]. */
static uint32_t nearest(const polish *w, const uint32_t *ranks, uint32_t n, uint32_t rank) {
    uint32_t at = lower_bound(ranks, n, rank), most = 0;
    if (at < n)
        most = psm_shared(w->t, ranks[at], rank);
    if (at > 0)
        most = BASE_MAX(most, psm_shared(w->t, ranks[at - 1], rank));
    return most;
}

/* ---- one field for all ends ------------------------------------------------------------------ */

typedef struct node {
    uint32_t first, ends; /* the ends are rows[first .. first+ends-1] */
    uint32_t nkids;
} node;

/* The ends' ranks under field f, ascending; rows that do not have it are left out. */
static uint32_t ranks_under(const polish *w, const node *d, int f, uint32_t *out) {
    uint32_t n = 0;
    for (uint32_t i = d->first; i < d->first + d->ends; i++)
        if (w->left[i] & set_of(f))
            out[n++] = psm_rank(w->t, f, w->rows[i]);
    psm_sort_ranks(out, n);
    return n;
}

static uint64_t gain_of(const polish *w, const node *d, const uint32_t *ranks, uint32_t n) {
    uint64_t gain = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t most = d->nkids > 0 ? nearest(w, w->kids, d->nkids, ranks[i]) : 0;
        if (i > 0)
            most = BASE_MAX(most, psm_shared(w->t, ranks[i - 1], ranks[i]));
        gain += most;
    }
    return gain;
}

/* Chooses the field for all ends; w->best has its ranks, returns how many. */
static uint32_t choose_field(polish *w, const node *d, int *field) {
    uint64_t most = 0;
    uint32_t count = 0;
    field_set any = 0;
    for (uint32_t i = d->first; i < d->first + d->ends; i++)
        any |= w->left[i];
    *field = -1;
    for (int i = 0; i < w->t->fields; i++) {
        int f = w->t->score_order[i];
        if (!(any & set_of(f)))
            continue;
        uint32_t n = ranks_under(w, d, f, w->ranks);
        uint64_t gain = gain_of(w, d, w->ranks, n);
        if (*field < 0 || gain > most) {
            uint32_t *spare = w->best;
            w->best = w->ranks;
            w->ranks = spare;
            *field = f;
            most = gain;
            count = n;
        }
    }
    return count;
}

/* ---- each end on its own --------------------------------------------------------------------- */

static void all_remove(polish *w, uint32_t *n, uint32_t rank) {
    uint32_t at = lower_bound(w->all, *n, rank);
    memmove(w->all + at, w->all + at + 1, sizeof *w->all * (*n - at - 1));
    --*n;
}

static void all_insert(polish *w, uint32_t *n, uint32_t rank) {
    uint32_t at = lower_bound(w->all, *n, rank);
    memmove(w->all + at + 1, w->all + at, sizeof *w->all * (*n - at));
    w->all[at] = rank;
    ++*n;
}

static void move_end(polish *w, uint32_t i, uint32_t *n, int common) {
    uint32_t row = w->rows[i];
    int field = -1;
    uint32_t most = 0, rank = 0;
    if (w->left[i] & set_of(common)) {
        field = common;
        rank = psm_rank(w->t, common, row);
        all_remove(w, n, rank);
        most = nearest(w, w->all, *n, rank);
    }
    for (field_set left = w->left[i] & ~set_of(common); left != 0; left &= left - 1) {
        int f = set_first(left);
        uint32_t r = psm_rank(w->t, f, row), shares = nearest(w, w->all, *n, r);
        if (shares > most || field < 0) {
            field = f;
            most = shares;
            rank = r;
        }
    }
    if (field >= 0) {
        uint32_t before = *n;
        all_insert(w, n, rank);
        w->joined += before > 0 && most == w->t->cell[rank].name_units + w->t->cell[rank].length;
        w->next[i] = (uint8_t)field;
    }
}

static void place_ends(polish *w, const node *d) {
    int common;
    uint32_t n = choose_field(w, d, &common);
    if (common < 0)
        return;
    uint32_t a = 0, b = 0, all = 0;
    while (a < d->nkids || b < n) {
        bool kid = b == n || (a < d->nkids && w->kids[a] <= w->best[b]);
        w->all[all++] = kid ? w->kids[a++] : w->best[b++];
    }
    for (uint32_t i = d->first; i < d->first + d->ends; i++) {
        if (w->left[i] != 0) {
            move_end(w, i, &all, common);
            uint32_t row = w->rows[i];
            size_t at = (size_t)row * (size_t)w->t->fields + w->p->depth[row]++;
            w->p->order[at] = w->next[i];
        }
    }
}

/* ---- the tree -------------------------------------------------------------------------------- */

static field_set fields_left(const polish *w, uint32_t row) {
    const uint8_t *order = w->p->order + (size_t)row * (size_t)w->t->fields;
    field_set left = 0;
    for (int f = 0; f < w->t->fields; f++)
        left |= psm_is_absent(w->t, f, row) ? 0 : set_of(f);
    for (int i = 0; i < w->p->depth[row]; i++)
        left &= ~set_of(order[i]);
    return left;
}

/* Rows [a, b) are alike in their first depth cells. Children come after the node's own ends, and
 * need its key columns no more, so one set of arrays serves all nodes. */
static void polish_node(polish *w, uint32_t a, uint32_t b, int depth) {
    if (b - a < 2)
        return;
    node d = {.first = a};
    while (a + d.ends < b && key_at(w, a + d.ends, depth) == 0) {
        w->left[a + d.ends] = fields_left(w, w->rows[a + d.ends]);
        d.ends++;
    }
    uint32_t first_kid = a + d.ends;
    if (d.ends > 0) {
        for (uint32_t i = first_kid; i < b; i++)
            if (d.nkids == 0 || key_at(w, i, depth) != w->kids[d.nkids - 1])
                w->kids[d.nkids++] = key_at(w, i, depth);
        place_ends(w, &d);
    }
    for (uint32_t i = first_kid, end; i < b; i = end) {
        end = i + 1;
        while (end < b && key_at(w, end, depth) == key_at(w, i, depth))
            end++;
        polish_node(w, i, end, depth + 1);
    }
}

void psm_polish(const psm_table *t, psm_paths *p) {
    scratch_mark mark = scratch_save(t->mem);
    size_t n = t->rows;
    uint32_t *keys = SCRATCH_ARRAY(t->mem, uint32_t, n * (size_t)t->fields);
    uint32_t *rows = SCRATCH_ARRAY(t->mem, uint32_t, n);
    polish w = {.t = t, .p = p, .keys = keys, .rows = rows};
    w.kids = SCRATCH_ARRAY(t->mem, uint32_t, n);
    w.ranks = SCRATCH_ARRAY(t->mem, uint32_t, n);
    w.best = SCRATCH_ARRAY(t->mem, uint32_t, n);
    w.all = SCRATCH_ARRAY(t->mem, uint32_t, n);
    w.left = SCRATCH_ARRAY(t->mem, field_set, n);
    w.next = SCRATCH_ARRAY(t->mem, uint8_t, n);
    for (int round = 0; round < t->fields; round++) {
        psm_trie_keys(t, p, keys);
        psm_trie_sort(t, keys, rows);
        w.joined = 0;
        polish_node(&w, 0, t->rows, 0);
        if (w.joined == 0)
            break;
    }
    scratch_restore(t->mem, mark);
}
