/*
 * complete_int.h - what completion knows about the text around the cursor; shared by complete.c
 * (which words may stand there) and complete_scope.c (reading the statement, both sides of the
 * cursor).
 */
#ifndef KVASIR_COMPLETE_INT_H
#define KVASIR_COMPLETE_INT_H

#include "edit_int.h"

/* One token that says something; blanks and comments are left out. */
typedef struct scope_token {
    token_class class;
    str text;
    int group; /* the parentheses around it: index into scope.parents; 0: none */
} scope_token;

/* A table the statement reads or writes, by the name it goes by. */
typedef struct scope_table {
    str name, alias; /* alias: as written, else the name */
    int group;       /* where it is visible: this group and those inside */
    /* group of a derived table or CTE whose select list gives the columns; -1: a table */
    int subquery;
} scope_table;

typedef struct scope {
    str text;
    size_t cursor, start; /* the word being typed is text[start, cursor) */
    bool in_string, in_comment;
    size_t string_start; /* of the literal the cursor stands in: behind its quote */
    scope_token *tokens;
    int ntokens;
    int before; /* tokens that end before the word */
    int *parents, ngroups;
    int group; /* the cursor's */
    scope_table *tables;
    int ntables;
    const char *clause; /* upper-case keyword that governs the cursor's place, or "" */
    bool expects_table;
} scope;

/* Reads the statement around `cursor`; everything in `a`. */
void scope_read(str text, size_t cursor, arena *a, scope *out);
bool scope_sees(const scope *s, int from_group, int table_group);
/* Calls visit for every column of a derived table or CTE that its select list names. */
void scope_subquery_columns(const scope *s, int group, void (*visit)(void *ctx, str name),
                            void *ctx);
static inline bool token_is(const scope_token *t, const char *word) {
    return t->class != TOKEN_STRING && str_equal_nocase(t->text, str_from(word));
}
/* A name without its quotes. */
str scope_unquote(str name);

#endif
