/*
 * fuzz_view.c - feeds arbitrary lines to the replay of a recorded run: a line that is damaged must
 * give an error, and after any line the drawn view must fill the screen exactly.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/view_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static void check_picture(const view_state *v, int w, int h) {
    view_cell *cells = mem_alloc(sizeof *cells * (size_t)(w * h));
    buf line = {0};
    view_render(v, w, h, cells);
    for (int y = 0; y < h; y++) {
        buf_clear(&line);
        for (int x = 0; x < w; x++) {
            const view_cell *c = &cells[y * w + x];
            check(c->attr < VIEW_ATTRS, "a cell has an attribute");
            check(memchr(c->text, 0, sizeof c->text) != NULL, "a cell's text ends within it");
            buf_append_c(&line, c->text);
        }
        check(utf8_valid(buf_str(&line)), "a row is UTF-8");
        check(utf8_width(buf_str(&line)) == w, "a row is as wide as the screen");
    }
    buf_free(&line);
    free(cells);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t draw = hash64(data, size, 1);
    view_state v;
    view_start(&v, STR("SELECT 1"), draw & 1);
    for (size_t at = 0, n; at < size; at += n + 1) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        n = end ? (size_t)(end - data) - at : size - at;
        char *line = mem_strndup((const char *)data + at, n);
        double wait_s = 0;
        err e = {0};
        if (view_replay_line(line, &v, &wait_s, &e) != 0)
            check(e.message[0], "a failure has a message");
        check(wait_s >= 0, "the time between lines is not negative");
        draw = hash64(&draw, sizeof draw, n);
        v.panel = (view_panel)(draw % PANELS);
        v.scroll = (int)(draw >> 8 & 15);
        v.help = (draw >> 12 & 7) == 0;
        check_picture(&v, 80, 24);
        check_picture(&v, 1 + (int)(draw >> 16 & 255), 1 + (int)(draw >> 24 & 63));
        free(line);
    }
    return 0;
}
