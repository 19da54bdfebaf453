/*
 * bytes_int.h - integers and texts as bytes of stored records: little-endian, texts with a u32
 * length before them.
 */
#ifndef KVASIR_BYTES_INT_H
#define KVASIR_BYTES_INT_H

#include "storage/base.h"

void put_u8(buf *b, uint8_t v);
void put_u32(buf *b, uint32_t v);
void put_u64(buf *b, uint64_t v);
void put_str(buf *b, str s);

/* Reads what put_* wrote. Reading past the end returns zeros and sets `bad`. */
typedef struct bytes_reader {
    const uint8_t *p, *end;
    bool bad;
} bytes_reader;

uint8_t get_u8(bytes_reader *r);
uint32_t get_u32(bytes_reader *r);
uint64_t get_u64(bytes_reader *r);
str get_str(bytes_reader *r); /* points into the bytes read */

#endif
