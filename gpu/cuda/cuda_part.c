/*
 * cuda_part.c - plans one part of a pass as host data: its rows, copies and attention tasks, in one
 * buffer that is sent to the card.
 *
 * A pass is split where its rows exceed the buffers or its blocks exceed the slots. The rows of a
 * pass are in the order of the prefix tree, parents first, so the KV that a part reads exists. The
 * split does not change any bit, since no kernel's result depends on the batch. Invariant: in a
 * part that may run as a graph, counts are padded to a few sizes, offsets of arrays depend only on
 * these counts, and padding has no effect: its tasks have no queries, and k and v of its rows are
 * not stored.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_int.h"
#include "storage/containers.h"

static int last_block(const pass_row *row) {
    return row->position / LLM_BLOCK_TOKENS;
}

/* ---- size of a part -------------------------------------------------------------------------- */

static void mark_block(cuda_work *w, int32_t block) {
    if (w->marks[block] == w->mark)
        return;
    w->marks[block] = w->mark;
    w->highest = BASE_MAX(w->highest, block);
    ARRAY_PUSH(w->used, w->nused, w->used_cap, block);
}

static void marks_begin(cuda_work *w) {
    w->mark++;
    w->nused = 0;
}

/* Marks row i's blocks. If the previous row has the same table, skips the blocks before that row's
 * last block, which are already marked. */
static void row_mark(cuda_work *w, const pass *p, int first, int i) {
    const pass_row *row = &p->rows[i], *before = i > first ? row - 1 : NULL;
    bool same = before != NULL && before->table == row->table;
    for (int b = same ? last_block(before) : 0; b <= last_block(row); b++)
        mark_block(w, row->table[b]);
}

int cuda_part_rows(cuda_work *w, const pass *p, int first, err *e) {
    size_t copies = 2 * (size_t)p->ncopies;
    bool tiers = w->kv.slots < w->kv.blocks;
    int states = 0, n = 0;
    size_t used = 0; /* number of blocks of the rows that fit */
    marks_begin(w);
    for (int i = 0; tiers && i < p->ncopies; i++)
        w->highest = BASE_MAX(w->highest, BASE_MAX(p->copies[i].from, p->copies[i].to));
    while (first + n < p->nrows && n < w->rows_cap) {
        const pass_row *row = &p->rows[first + n];
        states += row->position / ATTEND_CHUNK + 1;
        if (tiers) {
            row_mark(w, p, first, first + n);
            if (cuda_check(cuda_kv_reach(&w->kv, w->highest), "memory for KV blocks", e) != 0)
                return 0;
        }
        if (states > w->states_cap || (tiers && w->nused + copies > (size_t)w->kv.slots))
            break;
        used = w->nused;
        n++;
    }
    w->nused = used;
    if (n == 0) {
        err_set(e, ERR_FULL,
                "a prompt of %d tokens is too long for the GPU's memory, which has room for %d "
                "tokens",
                p->rows[first].position + 1, w->kv.slots * LLM_BLOCK_TOKENS);
        err_hint(e, "SET device = 'cpu', or shorten the input");
    }
    return n;
}

/* ---- wants ----------------------------------------------------------------------------------- */

static void wants_reserve(cuda_work *w, int n) {
    if (n > w->wants_cap) {
        w->wants_cap = 2 * n;
        w->wanted = mem_realloc(w->wanted, sizeof *w->wanted * (size_t)w->wants_cap);
        w->want_rows = mem_realloc(w->want_rows, sizeof *w->want_rows * (size_t)w->wants_cap);
        w->whole = mem_realloc(w->whole, sizeof(*w->whole) * (size_t)w->wants_cap);
    }
}

/* The result of a want of the whole vocabulary: the top k, the input of a draw, or all logits. */
typedef enum whole_kind { WHOLE_TOP, WHOLE_DRAW, WHOLE_RAW, WHOLE_KINDS } whole_kind;

static whole_kind kind_of(const pass_want *want) {
    return want->top == 0 ? WHOLE_RAW : want->temperature > 0 ? WHOLE_DRAW : WHOLE_TOP;
}

/* Collects the wants of the part's rows: w->wanted, w->want_rows, and w->whole by kind. */
static void wants_find(cuda_work *w, cuda_part *part) {
    const pass *p = part->p;
    int at = part->want_first;
    while (at < p->nwants && p->wants[at].row < part->first + part->nrows)
        at++;
    part->nwants = at - part->want_first;
    wants_reserve(w, part->nwants);
    for (int i = 0; i < part->nwants; i++) {
        const pass_want *want = &p->wants[part->want_first + i];
        int row = want->row - part->first;
        if (part->nwanted == 0 || w->wanted[part->nwanted - 1] != row)
            w->wanted[part->nwanted++] = row;
        w->want_rows[i] = part->nwanted - 1;
        part->nitems += want->ids != NULL ? want->count : 0;
    }
    int ends[WHOLE_KINDS];
    for (int kind = 0; kind < WHOLE_KINDS; kind++) {
        for (int i = 0; i < part->nwants; i++) {
            pass_want *want = &p->wants[part->want_first + i];
            if (want->ids == NULL && kind_of(want) == (whole_kind)kind)
                w->whole[part->nwhole++] = want;
        }
        ends[kind] = part->nwhole;
    }
    part->ntops = ends[WHOLE_TOP];
    part->ndraws = ends[WHOLE_DRAW] - ends[WHOLE_TOP];
    part->all_wanted = part->nwanted == part->nrows;
}

/* ---- rows and copies by slots ---------------------------------------------------------------- */

/* Returns the end of the run of rows that share row i's table. Sets *blocks to the number of blocks
 * that the longest of these rows needs. */
static int table_run(const cuda_part *part, int i, int *blocks) {
    const pass_row *rows = part->p->rows + part->first;
    int end = i;
    *blocks = 0;
    while (end < part->nrows && rows[end].table == rows[i].table) {
        *blocks = BASE_MAX(*blocks, last_block(&rows[end]) + 1);
        end++;
    }
    return end;
}

/* Translates the rows' tables from blocks to slots. Adjacent rows that share a table share the
 * translation. */
static void tables_translate(cuda_work *w, const cuda_part *part) {
    size_t n = 0, at = 0;
    int blocks;
    for (int i = 0; i < part->nrows; i = table_run(part, i, &blocks)) {
        table_run(part, i, &blocks);
        n += (size_t)blocks;
    }
    ARRAY_RESERVE(w->tables, n, w->tables_cap);
    for (int i = 0; i < part->nrows;) {
        const int32_t *table = part->p->rows[part->first + i].table;
        int end = table_run(part, i, &blocks);
        for (int b = 0; b < blocks; b++)
            w->tables[at + (size_t)b] = cuda_kv_slot(&w->kv, table[b]);
        for (; i < end; i++)
            w->all_rows[i].table = w->tables + at;
        at += (size_t)blocks;
    }
}

static void rows_plan(cuda_work *w, const cuda_part *part) {
    const pass_row *rows = part->p->rows + part->first;
    for (int i = 0; i < part->nrows; i++)
        w->all_rows[i] = (attend_row){rows[i].position, rows[i].table};
    if (w->kv.paged)
        tables_translate(w, part);
    const model_config *c = &w->engine->config;
    int group = c->n_heads / c->n_kv_heads;
    attend_plan_make(&w->plan, w->all_rows, part->nrows, group);
    if (!part->all_wanted) {
        for (int i = 0; i < part->nwanted; i++)
            w->last_rows[i] = w->all_rows[w->wanted[i]];
        attend_plan_make(&w->last_plan, w->last_rows, part->nwanted, group);
    }
}

/* Collects in w->copies the copies whose target block the part uses. Marks their source blocks,
 * which may be targets of earlier copies. Returns the number of copies. */
static int copies_find(cuda_work *w, const cuda_part *part) {
    const pass *p = part->p;
    int n = 0;
    for (int i = p->ncopies; i-- > 0;) {
        const pass_copy *copy = &p->copies[i];
        if (!w->copied[i] && w->marks[copy->to] == w->mark) {
            mark_block(w, copy->from);
            w->copied[i] = part->first + 1;
            w->copies[n++] = (slot_copy){copy->from, copy->to, copy->tokens};
        }
    }
    /* the copies were found in reverse order */
    for (int i = 0; i < n / 2; i++) {
        slot_copy other = w->copies[i];
        w->copies[i] = w->copies[n - 1 - i];
        w->copies[n - 1 - i] = other;
    }
    return n;
}

static void copies_plan(cuda_work *w, cuda_part *part, int n) {
    for (int i = 0; i < n; i++) {
        w->copies[i].from = cuda_kv_slot(&w->kv, w->copies[i].from);
        w->copies[i].to = cuda_kv_slot(&w->kv, w->copies[i].to);
    }
    part->copy_levels = slot_copy_levels(w->copies, n, w->copy_levels, w->sorted, w->copy_ends);
}

/* ---- the buffer ------------------------------------------------------------------------------ */

/* Rounds a count up to the next 16 · 2^i if the part may run as a graph; 0 stays 0. */
static int padded(int n, bool graph) {
    int size = 16;
    while (graph && size < n)
        size *= 2;
    return graph && n > 0 ? size : n;
}

/* Returns the number of blocks that the tasks process, which measures their work. */
static long tasks_blocks(const attend_list *tasks) {
    long n = 0;
    for (int i = 0; i < tasks->count; i++)
        n += tasks->at[i].b1 - tasks->at[i].b0;
    return n;
}

/* Sets the launch sizes. If a level's narrow tasks process at most as many blocks as its wide
 * tasks, the narrow tasks join the wide launch and run at the same time. A task's result is the
 * same in both launches. */
static void shape_make(const attend_plan *plan, bool graph, attend_shape *s) {
    s->levels = plan->levels;
    for (int l = 0; l < plan->levels; l++) {
        const attend_list *wide = &plan->wide[l], *narrow = &plan->narrow[l];
        bool joins = wide->count > 0 && tasks_blocks(narrow) <= tasks_blocks(wide);
        s->wide[l] = padded(wide->count + (joins ? narrow->count : 0), graph);
        s->narrow[l] = padded(joins ? 0 : narrow->count, graph);
    }
    s->merges = padded(plan->nmerges, graph);
}

/* Reserves `bytes` in the buffer, rounded up to a multiple of 256. Returns their offset. */
static size_t place(size_t *end, size_t bytes) {
    size_t at = *end;
    *end = (at + bytes + 255) / 256 * 256;
    return at;
}

static void attend_place(const attend_plan *plan, const attend_shape *s, int rows,
                         attend_layout *at, size_t *end) {
    at->states = place(end, sizeof(int32_t) * (size_t)rows);
    for (int l = 0; l < s->levels; l++) {
        at->wide[l] = place(end, sizeof(attend_task) * (size_t)s->wide[l]);
        at->narrow[l] = place(end, sizeof(attend_task) * (size_t)s->narrow[l]);
    }
    at->merges = place(end, sizeof(attend_merge) * (size_t)s->merges);
    at->blocks = place(end, sizeof(int32_t) * (size_t)plan->nblocks);
}

/* Lays out the part's buffer. The arrays that graphs read come first. Of these arrays, the list of
 * blocks is last, since its length varies. So the arrays' offsets depend only on the shape. */
static void part_place(const cuda_work *w, cuda_part *part, int ncopies) {
    part_layout *at = &part->at;
    size_t end = 0, rows = sizeof(int32_t) * (size_t)part->shape.rows;
    at->tokens = place(&end, rows);
    at->positions = place(&end, rows);
    at->slots = place(&end, rows);
    attend_place(&w->plan, &part->shape.attend, part->shape.rows, &at->all, &end);
    if (!part->all_wanted) {
        at->wanted = place(&end, sizeof(int32_t) * (size_t)part->nwanted);
        at->wanted_positions = place(&end, sizeof(int32_t) * (size_t)part->nwanted);
        attend_place(&w->last_plan, &part->last, part->nwanted, &at->last, &end);
    }
    at->copies = place(&end, sizeof(slot_copy) * (size_t)ncopies);
    at->items = place(&end, sizeof(head_item) * (size_t)part->nitems);
    at->whole = place(&end, sizeof(int32_t) * (size_t)part->nwhole);
    at->temperatures = place(&end, sizeof(float) * (size_t)part->ndraws);
    at->bytes = end;
}

/* Writes the tasks of both lists (NULL: empty), then padding up to `count`. */
static void tasks_fill(attend_task *to, int count, const attend_list *first,
                       const attend_list *second) {
    const attend_list *lists[] = {first, second};
    int n = 0;
    for (int i = 0; i < 2; i++) {
        if (lists[i] != NULL && lists[i]->count > 0) {
            memcpy(to + n, lists[i]->at, sizeof *to * (size_t)lists[i]->count);
            n += lists[i]->count;
        }
    }
    if (count > n)
        memset(to + n, 0, sizeof *to * (size_t)(count - n));
}

static void attend_fill(const attend_plan *plan, const attend_shape *s, const attend_layout *at,
                        int nrows, int rows, char *base) {
    int32_t *states = (int32_t *)(void *)(base + at->states);
    memcpy(states, plan->states, sizeof *states * (size_t)nrows);
    memset(states + nrows, 0xff, sizeof *states * (size_t)(rows - nrows));
    for (int l = 0; l < s->levels; l++) {
        const attend_list *wide = &plan->wide[l], *narrow = &plan->narrow[l];
        bool joined = s->narrow[l] == 0;
        attend_task *to = (attend_task *)(void *)(base + at->wide[l]);
        tasks_fill(to, s->wide[l], wide, joined ? narrow : NULL);
        if (!joined)
            tasks_fill((attend_task *)(void *)(base + at->narrow[l]), s->narrow[l], narrow, NULL);
    }
    attend_merge *merges = (attend_merge *)(void *)(base + at->merges);
    if (s->merges > 0) {
        memcpy(merges, plan->merges, sizeof *merges * (size_t)plan->nmerges);
        memset(merges + plan->nmerges, 0, sizeof *merges * (size_t)(s->merges - plan->nmerges));
    }
    memcpy(base + at->blocks, plan->blocks, sizeof(int32_t) * (size_t)plan->nblocks);
}

static void rows_fill(const cuda_work *w, const cuda_part *part, char *base) {
    int32_t *tokens = (int32_t *)(void *)(base + part->at.tokens);
    int32_t *positions = (int32_t *)(void *)(base + part->at.positions);
    int32_t *slots = (int32_t *)(void *)(base + part->at.slots);
    for (int i = 0; i < part->shape.rows; i++) {
        bool real = i < part->nrows;
        const attend_row *row = &w->all_rows[i];
        tokens[i] = real ? part->p->rows[part->first + i].token : 0;
        positions[i] = real ? row->position : 0;
        slots[i] = real ? row->table[row->position / ATTEND_BLOCK] * ATTEND_BLOCK +
                              row->position % ATTEND_BLOCK
                        : -1;
    }
    if (!part->all_wanted) {
        int32_t *wanted = (int32_t *)(void *)(base + part->at.wanted);
        int32_t *at = (int32_t *)(void *)(base + part->at.wanted_positions);
        for (int i = 0; i < part->nwanted; i++) {
            wanted[i] = w->wanted[i];
            at[i] = w->last_rows[i].position;
        }
    }
}

static void wants_fill(const cuda_work *w, const cuda_part *part, char *base) {
    head_item *items = (head_item *)(void *)(base + part->at.items);
    int32_t *whole = (int32_t *)(void *)(base + part->at.whole);
    const pass_want *first = part->p->wants + part->want_first;
    for (int i = 0; i < part->nwants; i++)
        for (int k = 0; first[i].ids != NULL && k < first[i].count; k++)
            *items++ = (head_item){w->want_rows[i], first[i].ids[k]};
    for (int i = 0; i < part->nwhole; i++)
        whole[i] = w->want_rows[w->whole[i] - first];
    float *temperatures = (float *)(void *)(base + part->at.temperatures);
    for (int i = 0; i < part->ndraws; i++)
        temperatures[i] = w->whole[part->ntops + i]->temperature;
}

int cuda_pinned_reserve(char **p, size_t *cap, size_t bytes, err *e) {
    if (bytes <= *cap)
        return 0;
    cudaFreeHost(*p); /* may be NULL */
    *p = NULL;
    *cap = 0;
    size_t size = bytes + bytes / 2 + 4096;
    int code = cuda_check(cudaMallocHost((void **)p, size), "pinned memory", e);
    *cap = code == 0 ? size : 0;
    return code;
}

static int buffers_reserve(cuda_work *w, size_t bytes, err *e) {
    size_t host_cap = w->part_cap;
    int code = cuda_pinned_reserve(&w->part_host, &host_cap, bytes, e);
    if (code != 0 || host_cap == w->part_cap) {
        w->part_cap = host_cap;
        return code;
    }
    cudaFree(w->part_device);
    w->part_device = NULL;
    w->part_cap = 0;
    cuda_graphs_drop(w);
    code =
        cuda_check(cudaMalloc((void **)&w->part_device, host_cap), "memory for a pass's rows", e);
    w->part_cap = code == 0 ? host_cap : 0;
    return code;
}

int cuda_part_make(cuda_work *w, cuda_part *part, err *e) {
    const pass *p = part->p;
    marks_begin(w);
    for (int i = part->first; i < part->first + part->nrows; i++)
        row_mark(w, p, part->first, i);
    int ncopies = copies_find(w, part);
    int code = cuda_kv_bring(&w->kv, w->used, w->nused, e);
    if (code != 0)
        return code;
    wants_find(w, part);
    rows_plan(w, part);
    copies_plan(w, part, ncopies);
    part->graph = part->nrows <= CUDA_GRAPH_ROWS && part->all_wanted && ncopies == 0 &&
                  padded(part->nrows, true) <= w->rows_cap;
    part->shape = (graph_shape){.rows = padded(part->nrows, part->graph)};
    shape_make(&w->plan, part->graph, &part->shape.attend);
    part->last = (attend_shape){0};
    if (!part->all_wanted)
        shape_make(&w->last_plan, false, &part->last);
    part_place(w, part, ncopies);
    code = buffers_reserve(w, part->at.bytes, e);
    if (code != 0)
        return code;
    char *base = w->part_host;
    rows_fill(w, part, base);
    attend_fill(&w->plan, &part->shape.attend, &part->at.all, part->nrows, part->shape.rows, base);
    if (!part->all_wanted && part->nwanted > 0)
        attend_fill(&w->last_plan, &part->last, &part->at.last, part->nwanted, part->nwanted, base);
    if (ncopies > 0)
        memcpy(base + part->at.copies, w->sorted, sizeof *w->sorted * (size_t)ncopies);
    wants_fill(w, part, base);
    return 0;
}
