/*
 * json_texts.c - a text that is a JSON array of texts.
 */
#include <stdlib.h>
#include <string.h>

#include "json_int.h"

/* Sets the elements of the scanned array; false: one of them is nested. */
static bool take_texts(const json_object *array, arena *mem, str *out) {
    for (int i = 0; i < array->n; i++) {
        const json_member *m = &array->members[i];
        if (m->kind == JSON_NESTED)
            return false;
        if (m->kind == JSON_NULL)
            continue;
        char *p = arena_alloc(mem, m->value.n + 1);
        out[i] = (str){p, m->value.n};
        if (m->kind == JSON_STRING)
            out[i].n = json_unescape(m->value, p);
        else
            memcpy(p, m->value.p, m->value.n);
    }
    return true;
}

bool json_texts(str text, arena *mem, str **out, int *n) {
    json_object array = {0};
    char *copy = arena_alloc(mem, text.n + FILE_SLACK); /* the scanner loads bytes after the end */
    const char *p = copy, *end = copy + text.n;
    memset(copy + text.n, 0, FILE_SLACK);
    if (text.n)
        memcpy(copy, text.p, text.n);
    while (p < end && strchr(" \t\r\n", *p))
        p++;
    bool valid = p < end && *p == '[' && json_scan(p, end, true, &array) == JSON_DONE;
    while (valid && array.next < end && strchr(" \t\r\n", *array.next))
        array.next++;
    valid = valid && array.next == end;
    if (valid) {
        *n = array.n;
        *out = ARENA_ARRAY(mem, str, array.n + 1);
        valid = take_texts(&array, mem, *out);
    }
    free(array.members);
    return valid;
}
