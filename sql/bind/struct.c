/*
 * struct.c - the columns of LLM(…) RETURNS STRUCT(…): a call for each, all of one prompt, inputs and
 * options, that differ in the line before the answer (the cue) and in the type.
 *
 * Invariant: what is asked for a column does not depend on the other columns, except that IN ORDER a
 * column goes on from the prompt and answer of the one before it.
 */
#include <string.h>

#include "bind_int.h"

enum { STRUCT_MOST = 64 };

int struct_width(const node *n) {
    return n->kind == NODE_LLM && !n->field ? n->returns.fields.n : 0;
}

const llm_type *llm_given_type(const node *n) {
    return n->field ? &n->field->type : &n->returns;
}

static int check_struct_field(binder *b, const list *all, int at) {
    const struct_field *f = all->items[at];
    int shown = (int)BASE_MIN(f->name.name.n, (size_t)60);
    if (f->type.fields.n > 0) {
        fail(b, ERR_BIND, f->type.pos, f->type.len, "a field of a STRUCT cannot be a STRUCT");
        err_hint(b->e, "list its fields beside the others");
        return ERR_BIND;
    }
    if (!f->name.name.n || !utf8_valid(f->name.name) || !utf8_valid(f->description))
        return fail(b, ERR_BIND, f->pos, f->len,
                    "the name and the description of a field must be valid UTF-8, and the name "
                    "not empty");
    for (int i = 0; i < at; i++)
        if (str_equal_nocase(((const struct_field *)all->items[i])->name.name, f->name.name)) {
            fail_ident(b, f->name, "a STRUCT cannot have two fields named \"%.*s\"", shown,
                       f->name.name.p);
            err_hint(b->e, "rename one of them");
            return ERR_BIND;
        }
    return 0;
}

int struct_columns(binder *b, const node *n, const node **out) {
    const list *all = &n->returns.fields;
    node **args = ARENA_ARRAY(b->mem, node *, n->nargs + 1);
    if (all->n > STRUCT_MOST)
        return fail(b, ERR_LIMIT, n->returns.pos, n->returns.len,
                    "a STRUCT has at most %d fields, this one has %d", STRUCT_MOST, all->n);
    if (n->nargs)
        memcpy(args, n->args, sizeof *args * (size_t)n->nargs);
    for (int i = 0; i < all->n; i++) {
        const struct_field *f = all->items[i];
        node *made = ARENA_NEW(b->mem, node);
        if (check_struct_field(b, all, i))
            return ERR_BIND;
        *made = *n;
        made->args = args;
        made->field = f;
        made->pos = f->pos;
        made->len = f->len;
        made->previous = n->returns.in_order && i > 0 ? out[i - 1] : NULL;
        out[i] = made;
    }
    return 0;
}

str struct_cue(binder *b, const struct_field *f) {
    str name = f->name.name, more = f->description;
    return more.n ? str_from(arena_printf(b->mem, "%.*s (%.*s)", (int)name.n, name.p, (int)more.n,
                                          more.p))
                  : name;
}

bool struct_has(const node *n, bool (*fits)(const llm_type *t)) {
    bool found = false;
    for (int i = 0; i < n->returns.fields.n; i++)
        found = found || fits(&((const struct_field *)n->returns.fields.items[i])->type);
    return found;
}

bool struct_field_is_text(const llm_type *t) {
    value_type type;
    return type_parse(t->name.name, &type) && type == TYPE_TEXT;
}

bool struct_field_lists(const llm_type *t) {
    value_type type;
    return t->between || str_equal_nocase(t->name.name, STR("ENUM")) ||
           (type_parse(t->name.name, &type) && type == TYPE_BOOLEAN);
}
