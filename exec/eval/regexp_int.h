/*
 * regexp_int.h - regular expressions of PCRE2, with limits by which every match ends.
 */
#ifndef KVASIR_REGEXP_INT_H
#define KVASIR_REGEXP_INT_H

#include "storage/base.h"

/* The pattern compiled last, and where it matched last. */
typedef struct regexp regexp;

/* ERR_FULL; *out is to be freed then, too. */
int regexp_new(regexp **out, err *e);
void regexp_free(regexp *r); /* NULL is fine */
/* Compiles a pattern, unless it is the last one; its bytes must outlive the matches. ERR_TYPE with
 * PCRE2's message and the place; ERR_FULL. */
int regexp_compile(regexp *r, str pattern, err *e);
/* The number of groups of the compiled pattern. */
int regexp_groups(const regexp *r);
/* Sets *matched to whether the pattern matches anywhere in the text; parts of a text that are not
 * UTF-8 match nothing. ERR_LIMIT if the match takes too many steps, memory or nesting; ERR_FULL;
 * ERR_CANCELLED. */
int regexp_match(regexp *r, str text, bool *matched, err *e);
/* Returns what a group of the last match matched, a slice of its text: 0 is the whole match. '' if
 * the group took no part in it. */
str regexp_group(const regexp *r, int group, str text);
/* Sets the flag by which matches of this thread are cancelled; NULL: none. It must outlive them. */
void regexp_set_cancel(const atomic_bool *cancel);

#endif
