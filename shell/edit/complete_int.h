/*
 * complete_int.h - the parsed statement around the cursor. complete_scope.c makes it; complete.c
 * uses it to choose the words to offer.
 */
#ifndef KVASIR_COMPLETE_INT_H
#define KVASIR_COMPLETE_INT_H

#include "edit_int.h"

/* A token that is not a blank or comment. */
typedef struct scope_token {
    token_class class;
    str text;
    int group; /* innermost parentheses around it: index into scope.parents; 0: none */
    int opens; /* if it is a parenthesis: the group inside it */
} scope_token;

enum { GROUP_WITH = -2 }; /* scope_table.group of a CTE, which is visible only in FROM */

/* A table that the statement reads or writes. */
typedef struct scope_table {
    str name;
    str alias;    /* if the statement gives none: the name */
    int group;    /* the table is visible in this group and those inside it */
    int subquery; /* group of the subquery of a derived table or CTE; -1: a table */
} scope_table;

typedef struct scope {
    str text;
    size_t cursor, start; /* the word being typed is text[start, cursor) */
    bool in_string, in_comment;
    size_t string_start; /* if in_string: offset of the literal's first byte after the quote */
    scope_token *tokens;
    int ntokens;
    int before;   /* number of tokens that end before the word */
    int *parents; /* by group: the group around it; -1: none */
    int ngroups;
    int group; /* the group that the cursor is in */
    scope_table *tables;
    int ntables;
    const char *clause; /* keyword of the clause that the cursor is in, such as "WHERE"; or "" */
    bool expects_table; /* a table name comes next */
} scope;

/* Sets *out to the statement around `cursor`; allocates in `a`. */
void scope_read(str text, size_t cursor, arena *a, scope *out);
/* Returns token i, or a blank token if there is no token i. */
const scope_token *scope_token_at(const scope *s, int i);
/* True if a table of group table_group is visible in group from_group. */
bool scope_sees(const scope *s, int from_group, int table_group);
/* Calls visit with the name of each named column of a subquery's select list. */
void scope_subquery_columns(const scope *s, int group, void (*visit)(void *ctx, str name),
                            void *ctx);
static inline bool token_is(const scope_token *t, const char *word) {
    return t->class != TOKEN_STRING && str_equal_nocase(t->text, str_from(word));
}
/* True if the token is one of the words, which are separated by blanks. */
bool token_in(const scope_token *t, const char *words);
/* Returns a name without its quotes. */
str scope_unquote(str name);

#endif
