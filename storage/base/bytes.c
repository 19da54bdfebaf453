/*
 * bytes.c - integers and texts as bytes of stored records.
 */
#include <string.h>

#include "bytes_int.h"

void put_u8(buf *b, uint8_t v) {
    buf_append(b, &v, 1);
}

void put_u32(buf *b, uint32_t v) {
    buf_append(b, &v, sizeof v);
}

void put_u64(buf *b, uint64_t v) {
    buf_append(b, &v, sizeof v);
}

void put_str(buf *b, str s) {
    put_u32(b, (uint32_t)s.n);
    buf_append_str(b, s);
}

static void get_bytes(bytes_reader *r, void *out, size_t n) {
    if ((size_t)(r->end - r->p) < n) {
        r->bad = true;
        r->p = r->end;
        memset(out, 0, n);
        return;
    }
    memcpy(out, r->p, n);
    r->p += n;
}

uint8_t get_u8(bytes_reader *r) {
    uint8_t v;
    get_bytes(r, &v, sizeof v);
    return v;
}

uint32_t get_u32(bytes_reader *r) {
    uint32_t v;
    get_bytes(r, &v, sizeof v);
    return v;
}

uint64_t get_u64(bytes_reader *r) {
    uint64_t v;
    get_bytes(r, &v, sizeof v);
    return v;
}

str get_str(bytes_reader *r) {
    uint32_t n = get_u32(r);
    if ((size_t)(r->end - r->p) < n) {
        r->bad = true;
        r->p = r->end;
        return (str){"", 0};
    }
    str s = {(const char *)r->p, n};
    r->p += n;
    return s;
}
