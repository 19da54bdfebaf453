/*
 * vector_lists_int.h - indexes USING ivfflat: vectors in lists, by the nearest of some centroids.
 *
 *   build    sample of the rows --k-means--> centroids, kept in the table's definition
 *   write    the entry of a row is in the list of the centroid nearest to its vector
 *   search   the entries of the lists whose centroids are nearest to the query are read one after the
 *            other; the rows of the best ones are read and compared exactly
 *
 * An entry has the vector in codes of 8 bits, so that four times as many are read in the same time:
 *
 *   | f32 scale | f32 square | dims codes |     scale: what a code of 1 stands for, by cosine divided by the
 *                                            vector's length; square: by L2 its squared length, else 0
 *
 * Source: Jégou, Douze, Schmid, "Product quantization for nearest neighbor search", section 4 (IVF).
 */
#ifndef KVASIR_VECTOR_LISTS_INT_H
#define KVASIR_VECTOR_LISTS_INT_H

#include "tables_int.h"

enum { LIST_PREFIX = 1 + 4 /* bytes of a key before the rowid */ };

typedef struct entry_head {
    float scale, square;
} entry_head;

/* The centroids in codes of 8 bits, with which vectors are compared: a vector near two centroids may be in
 * the list of either, but always in the same. */
typedef struct list_codes {
    int8_t *codes;  /* [n][dims] */
    double *scales; /* [n] of the codes */
    double *
        squares; /* [n] by L2 half the squared length of each; by cosine 0, since all have length 1 */
} list_codes;

/* A vector to be compared with centroids and entries. */
typedef struct coded_query {
    int16_t *codes;
    double scale;
} coded_query;

/* Sets the codes of all centroids. */
void lists_encode_centroids(const vector_lists *l, list_codes *out);
coded_query lists_query(str v); /* the caller frees its codes */
/* Less for a centroid that is nearer: half of |c|² - 2 q·c, by cosine -q·c. */
double lists_farness(const vector_lists *l, uint32_t i, const coded_query *q);
uint32_t lists_nearest(const vector_lists *l, str v);
/* Whether a vector is in a list. The direction of a zero vector is unknown. */
bool lists_has(const vector_lists *l, value v);
/* Appends the beginning of the keys of a list. */
void lists_append_list(buf *b, uint32_t list);

#endif
