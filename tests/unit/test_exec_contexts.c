/*
 * test_exec_contexts.c - the order of contexts: random sets, compared with the greedy tree computed
 * naively, and with other orders of the rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llm/llm_int.h"

enum { ROUNDS = 2000, SETS = 24, TEXTS = 12, MOST = 6 };

/* A set as numbers of texts; the first `sent` are in their places. */
typedef struct listed {
    int items[MOST], n, sent;
} listed;

static str texts[TEXTS];

static uint32_t pick(uint64_t *state, uint32_t n) {
    *state = hash_mix(*state, 1);
    return (uint32_t)((*state >> 33) % n);
}

static int place_of(const listed *x, int text) {
    for (int i = x->sent; i < x->n; i++)
        if (x->items[i] == text)
            return i;
    return -1;
}

/* Orders the sets of a group. */
static void order_naively(listed **group, int n) {
    listed *with[SETS];
    for (;;) {
        uint64_t most = 0;
        int best = -1, nwith = 0, rest = 0;
        for (int text = 0; text < TEXTS; text++) {
            uint64_t holders = 0;
            for (int i = 0; i < n; i++)
                holders += place_of(group[i], text) >= 0;
            uint64_t saved = holders < 2 ? 0 : (holders - 1) * texts[text].n;
            if (saved > most ||
                (saved > 0 && saved == most && str_compare(texts[text], texts[best]) < 0)) {
                most = saved;
                best = text;
            }
        }
        if (best < 0)
            return;
        for (int i = 0; i < n; i++) {
            int at = place_of(group[i], best);
            if (at < 0) {
                group[rest++] = group[i];
                continue;
            }
            memmove(group[i]->items + group[i]->sent + 1, group[i]->items + group[i]->sent,
                    sizeof(int) * (size_t)(at - group[i]->sent));
            group[i]->items[group[i]->sent++] = best;
            with[nwith++] = group[i];
        }
        order_naively(with, nwith);
        n = rest;
    }
}

static void draw_sets(uint64_t *random, listed *sets, int n) {
    uint32_t kinds = 1 + pick(random, TEXTS);
    for (int i = 0; i < n; i++) {
        sets[i] = (listed){.n = 0};
        for (uint32_t k = pick(random, MOST) + 1; k > 0; k--) {
            int text = (int)pick(random, kinds);
            if (place_of(&sets[i], text) < 0)
                sets[i].items[sets[i].n++] = text;
        }
    }
}

static int to_list(const listed *x, str *out) {
    for (int i = 0; i < x->n; i++)
        out[i] = texts[x->items[i]];
    return x->n;
}

/* Returns the orders of `n` sets, interned beginning with the set `first`; numbers[i]: of set i. */
static context_sets *order(workmem *space, const listed *sets, int n, int first,
                           uint32_t *numbers) {
    context_sets *s = contexts_new(space);
    str list[MOST];
    err e;
    for (int i = 0; i < n; i++) {
        int at = (first + i) % n;
        numbers[at] = contexts_intern(s, list, to_list(&sets[at], list));
    }
    assert_int_equal(contexts_order(s, NULL, &e), 0);
    return s;
}

static void test_random_sets(void **state) {
    (void)state;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        listed sets[SETS], *group[SETS];
        uint32_t numbers[SETS], rotated[SETS];
        uint64_t random = round;
        int n = 1 + (int)pick(&random, SETS), distinct = 0;
        char letters[TEXTS][16];
        for (int i = 0; i < TEXTS; i++) {
            snprintf(letters[i], sizeof letters[i], "%c%.*s", 'a' + (i * 5) % TEXTS,
                     (int)pick(&random, 4), "xxxx");
            texts[i] = str_from(letters[i]);
        }
        arena *mem = arena_new();
        workmem *space = workmem_new(NULL, -1);
        draw_sets(&random, sets, n);
        context_sets *s = order(space, sets, n, 0, numbers);
        for (int i = 0; i < n; i++)
            if (numbers[i] == (uint32_t)distinct)
                group[distinct++] = &sets[i];
        assert_int_equal(distinct, contexts_count(s));
        listed *all[SETS];
        memcpy(all, group, sizeof *all * (size_t)distinct);
        order_naively(all, distinct);
        for (int i = 0; i < distinct; i++) {
            str list[MOST], text = contexts_text(s, (uint32_t)i, mem);
            str expected = contexts_join(list, to_list(group[i], list), mem);
            assert_true(str_equal(text, expected));
        }
        /* the retrieved order of the rest is that of the first row with the set: so the rows are only
         * rotated where all sets are different */
        if (distinct == n) {
            context_sets *other = order(space, sets, n, n / 2, rotated);
            for (int i = 0; i < n; i++)
                assert_true(str_equal(contexts_text(other, rotated[i], mem),
                                      contexts_text(s, numbers[i], mem)));
            contexts_free(other);
        }
        contexts_free(s);
        workmem_free(space);
        arena_free(mem);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
