/*
 * fuzz_sql.c - any text, parsed and bound over the fixture's catalog, must end in a tree or an
 * error with a place in the text. Also walks it by tokens and looks for its end, as the shell does
 * at every key, and composes a statement of a SELECT's parts, as .try does.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/sql_mutate_int.h"
#include "tests/sql/fixture.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static void walk_tokens(str text) {
    token_class class;
    size_t at = 0;
    while (at < text.n) {
        size_t n = sql_token(text, at, &class);
        check(n > 0 && n <= text.n - at, "a token has a length within the text");
        at += n;
    }
    size_t length;
    bool empty;
    sql_statement_end(text, &length, &empty);
    check(length <= text.n, "a statement ends within the text");
}

static void bind_one(str text, const bind_env *env) {
    arena *mem = arena_new();
    err e = {0};
    sql_stmt *s = NULL;
    buf out = {0};
    if (sql_bind_text(text, env, mem, &s, &e)) {
        check(e.code != ERR_NONE && e.code != ERR_INTERNAL && e.message[0],
              "a failure says what failed");
        check(e.pos <= (int)text.n && e.pos + e.len <= (int)text.n, "an error is within the text");
        sql_error_caret(text, &e, 80, &out);
    } else if (s->query) {
        rel_print(s->query, &out);
    }
    buf_free(&out);
    arena_free(mem);
}

/* What .try composes of a SELECT's parts is a statement, too. */
static void compose(str text) {
    arena *mem = arena_new();
    sql_tree tree;
    select_parts parts;
    err e = {0};
    buf out = {0};
    if (sql_parse(text, mem, &tree, &e) == 0 && sql_select_parts(&tree, mem, &parts, &e) == 0) {
        buf_append_str(&out, parts.head);
        for (int i = 0; i < parts.ncolumns; i++) {
            const select_column *c = &parts.columns[i];
            buf_append_c(&out, i > 0 ? ", " : "");
            buf_append(&out, c->text.p, (size_t)c->after_prompt);
            buf_append_c(&out, c->is_call ? ", calibrate => 'off'" : "");
            buf_append(&out, c->text.p + c->after_prompt, c->text.n - (size_t)c->after_prompt);
        }
        buf_append_char(&out, ' ');
        buf_append_str(&out, parts.from);
        buf_append_c(&out, " QUALIFY row_number() OVER (ORDER BY hash(*)) <= 9");
        check(sql_parse(buf_str(&out), mem, &tree, &e) == 0, "the parts of a SELECT make one");
    }
    buf_free(&out);
    arena_free(mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool ready;
    static fixture f;
    if (!ready) {
        fixture_init(&f);
        ready = freopen("/dev/null", "r", stdin) != NULL; /* FROM '-' would wait for it */
    }
    str text = {(const char *)data, size};
    uint64_t state = hash64(data, size, 1);
    walk_tokens(text);
    bind_one(text, &f.env);
    compose(text);
    for (int i = 0; i < 4; i++) {
        buf other = {0};
        sql_mutate(text, &state, &other);
        if (other.n) {
            bind_one(buf_str(&other), &f.env);
            compose(buf_str(&other));
        }
        buf_free(&other);
    }
    return 0;
}
