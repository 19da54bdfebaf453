/*
 * test_gpu_prefix.c - the radix tree against a naive model: paths spell what was inserted, blocks
 * are counted right, eviction spares what is used, keys depend on the path alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session/prefix_int.h"

enum { PROMPTS = 300, LONGEST = 120, BLOCKS = 4000 };

static uint64_t next_random(uint64_t *seed) {
    *seed = hash_mix(*seed, 0x1234567);
    return *seed >> 13;
}

/* Few distinct tokens and copied beginnings, so that prompts share and split everywhere. */
static int prompt_make(uint64_t *seed, llm_token all[][LONGEST], const int *lengths, int done,
                       llm_token *out) {
    int n = 1 + (int)(next_random(seed) % (LONGEST - 1)), from = 0;
    if (done > 0) {
        int other = (int)(next_random(seed) % (uint64_t)done);
        from = BASE_MIN((int)(next_random(seed) % LONGEST), BASE_MIN(lengths[other], n));
        memcpy(out, all[other], sizeof(llm_token) * (size_t)from);
    }
    for (int i = from; i < n; i++)
        out[i] = (llm_token)(next_random(seed) % 3);
    return n;
}

static void resident_path(prefix_tree *t, prefix_node *node) {
    if (node->parent == NULL || node->table != NULL)
        return;
    resident_path(t, node->parent);
    assert_true(prefix_make_resident(t, node, 0));
    node->computed = node->count;
}

static void check_path(const prefix_node *end, const llm_token *tokens, int n) {
    llm_token got[LONGEST];
    assert_int_equal(end->start + end->count, n);
    prefix_tokens(end, 0, n, got);
    assert_memory_equal(got, tokens, sizeof(llm_token) * (size_t)n);
}

/* Allocated blocks = distinct blocks in the tables of resident nodes; those of nodes with users are
 * counted, every block is wanted as its topmost node is, and the heap has the evictable nodes. */
static void check_blocks(const prefix_tree *t) {
    static char seen[BLOCKS];
    memset(seen, 0, sizeof seen);
    int used = 0, of_users = 0;
    int may_go = 0;
    for (const prefix_node *n = prefix_next(&t->root, true); n != NULL; n = prefix_next(n, true)) {
        bool goes = n->table != NULL && n->users == 0 && n->resident_children == 0;
        may_go += goes;
        assert_true(goes ? t->heap[n->heap_at - 1] == n : n->heap_at == 0);
        if (goes && n->heap_at > 1)
            assert_true(t->heap[n->heap_at / 2 - 1]->score <= n->score);
        if (n->table == NULL)
            continue;
        assert_true(n->parent->parent == NULL || n->parent->table != NULL);
        for (int b = n->first_block; b < n->end_block; b++) {
            used += !seen[n->table[b]];
            seen[n->table[b]] = 1;
            bool shared = b == n->first_block && n->parent->table != NULL &&
                          n->parent->end_block > b && n->parent->table[b] == n->table[b];
            if (!shared)
                assert_int_equal(prefix_wanted(t, n->table[b]), prefix_node_wanted(n));
        }
        of_users += n->users > 0 ? n->end_block - n->first_block : 0;
    }
    assert_int_equal(may_go, t->nheap);
    assert_int_equal(used, t->nblocks - t->nfree);
    assert_int_equal(of_users, t->used_blocks);
}

static void fuzz(void **state) {
    (void)state;
    static llm_token all[PROMPTS][LONGEST];
    static int lengths[PROMPTS];
    static prefix_node *ends[PROMPTS];
    prefix_tree t;
    prefix_node *cursor = NULL;
    uint64_t seed = 42;
    prefix_init(&t, BLOCKS, &cursor);
    for (int i = 0; i < PROMPTS; i++) {
        lengths[i] = prompt_make(&seed, all, lengths, i, all[i]);
        ends[i] = prefix_insert(&t, all[i], lengths[i]);
        prefix_count(&t, ends[i], 1, 0, i % 4 == 0);
        if (i % 3 != 0)
            resident_path(&t, ends[i]);
        if (i % 9 == 8 && ends[i]->table != NULL) { /* an answer's tokens, for a while */
            prefix_node *tail = prefix_add_private(&t, ends[i], NULL, 0, 8);
            tail->users = 1;
            assert_true(prefix_make_resident(&t, tail, 8));
            check_blocks(&t);
            prefix_remove_private(&t, tail);
        }
        if (i % 10 == 0)
            check_blocks(&t);
    }
    for (int i = 0; i < PROMPTS; i++) {
        assert_ptr_equal(prefix_insert(&t, all[i], lengths[i]), ends[i]);
        check_path(ends[i], all[i], lengths[i]);
    }
    assert_int_equal(t.root.pending, PROMPTS);
    check_blocks(&t);
    for (int i = 0; i < PROMPTS; i++) {
        prefix_count(&t, ends[i], -1, 0, -(i % 4 == 0));
        prefix_prune(&t, ends[i], i % 2 == 0, false);
        if (i % 10 == 0)
            check_blocks(&t);
    }
    prefix_evict_unused(&t);
    assert_int_equal(t.nfree, BLOCKS);
    assert_int_equal(t.root.pending, 0);
    assert_int_equal(t.used_blocks, 0);
    prefix_free(&t);
}

/* What users hold stays within its bound, however many blocks there are. */
static void users_stay_within_their_bound(void **state) {
    (void)state;
    prefix_tree t;
    prefix_node *cursor = NULL, *ends[4];
    prefix_init(&t, 20, &cursor);
    t.most_used = 4;
    for (int i = 0; i < 4; i++) {
        llm_token tokens[64];
        for (int k = 0; k < 64; k++)
            tokens[k] = 100 * i + k;
        ends[i] = prefix_insert(&t, tokens, 64);
    }
    for (int i = 0; i < 3; i++) {
        prefix_count(&t, ends[i], 1, 0, 1);
        assert_int_equal(prefix_make_resident(&t, ends[i], 0), i < 2);
    }
    int32_t block = ends[0]->table[0];
    assert_int_equal(prefix_wanted(&t, block), 2 * PREFIX_CERTAIN + 1);
    prefix_count(&t, ends[0], 0, 0, -1); /* it stays, and makes room */
    assert_int_equal(prefix_wanted(&t, block), PREFIX_CERTAIN + 1);
    assert_true(prefix_make_resident(&t, ends[2], 0));
    assert_non_null(ends[0]->table);
    assert_true(prefix_make_resident(&t, ends[3], 0)); /* nobody uses it: no bound */
    prefix_evict(&t, ends[0]);
    assert_int_equal(prefix_wanted(&t, block), -1);
    check_blocks(&t);
    prefix_free(&t);
}

static void eviction_spares_the_used(void **state) {
    (void)state;
    prefix_tree t;
    prefix_node *cursor = NULL;
    prefix_init(&t, 4, &cursor);
    llm_token a[64], b[64];
    for (int i = 0; i < 64; i++) {
        a[i] = i;
        b[i] = 1000 + i;
    }
    prefix_node *first = prefix_insert(&t, a, 64), *second = prefix_insert(&t, b, 64);
    prefix_count(&t, first, 1, 0, 1);
    prefix_count(&t, second, 1, 0, 0);
    resident_path(&t, first);
    resident_path(&t, second);
    assert_int_equal(t.nfree, 0);
    llm_token c[40];
    for (int i = 0; i < 40; i++)
        c[i] = 2000 + i;
    prefix_node *third = prefix_insert(&t, c, 40);
    prefix_count(&t, third, 1, 0, 1);
    assert_true(prefix_make_resident(&t, third, 0));
    assert_null(second->table);
    assert_non_null(first->table);
    prefix_node *fourth = prefix_insert(&t, b, 10); /* splits `second` */
    assert_ptr_equal(fourth, second->parent);
    assert_false(prefix_make_resident(&t, fourth, 0)); /* all that is left is in use */
    assert_int_equal(t.evicted, 2);
    prefix_free(&t);
}

enum { KEPT = 6 };

/* Six prompts of two blocks, `wants[i]` waiting for the i-th, in that order. */
static void kept_make(prefix_tree *t, prefix_node **cursor, const int wants[KEPT],
                      prefix_node *ends[KEPT]) {
    prefix_init(t, 2 * KEPT, cursor);
    for (int i = 0; i < KEPT; i++) {
        llm_token tokens[64];
        for (int k = 0; k < 64; k++)
            tokens[k] = 100 * i + k;
        ends[i] = prefix_insert(t, tokens, 64);
        prefix_count(t, ends[i], wants[i], 0, 0);
        assert_true(prefix_make_resident(t, ends[i], 0));
    }
}

/* Makes room for another prompt of two blocks, and asserts that exactly ends[i] went for it. */
static void kept_loses(prefix_tree *t, prefix_node *ends[KEPT], int i) {
    static llm_token next = 10000;
    llm_token tokens[64];
    for (int k = 0; k < 64; k++)
        tokens[k] = next++;
    prefix_node *node = prefix_insert(t, tokens, 64);
    prefix_count(t, node, 1, 0, 1);
    assert_true(prefix_make_resident(t, node, 0));
    for (int k = 0; k < KEPT; k++)
        if (ends[k] != NULL)
            assert_true((ends[k]->table == NULL) == (k == i));
    ends[i] = NULL;
    check_blocks(t);
}

static void the_lowest_score_is_evicted_first(void **state) {
    (void)state;
    prefix_tree t;
    prefix_node *cursor = NULL, *ends[KEPT];
    kept_make(&t, &cursor, (int[]){7, 1, 1, 3, 1, 1}, ends);
    ends[4]->stored_blocks = 2; /* read again for a tenth */
    ends[5]->stored_blocks = 2;
    t.read_cost = 0.1;
    prefix_touch(&t, ends[4]);
    prefix_touch(&t, ends[5]);
    prefix_touch(&t, ends[1]);
    kept_loses(&t, ends, 4); /* cheapest, and used before ends[5] */
    kept_loses(&t, ends, 5);
    kept_loses(&t, ends, 2); /* equal to ends[1] but for being used before it */
    prefix_count(&t, ends[0], -6, 0, 0);
    kept_loses(&t, ends, 0);      /* six are answered: it is wanted as others are, and the oldest */
    for (int i = 0; i < 400; i++) /* what was wanted most, unused for long enough, goes */
        prefix_touch(&t, ends[1]);
    kept_loses(&t, ends, 3);
    prefix_free(&t);
}

/* By age alone, whoever waits and whatever it costs. */
static void first_in_goes_first_out(void **state) {
    (void)state;
    prefix_tree t;
    prefix_node *cursor = NULL, *ends[KEPT];
    kept_make(&t, &cursor, (int[]){9, 1, 5, 1, 1, 1}, ends);
    t.first_in_first_out = true;
    for (int i = 0; i < KEPT; i++)
        prefix_count(&t, ends[i], 1, 0, 0);
    for (int i = 0; i < 3; i++)
        kept_loses(&t, ends, i);
    prefix_free(&t);
}

static void keys_depend_on_the_path(void **state) {
    (void)state;
    prefix_tree whole, cut;
    prefix_node *cursor = NULL;
    prefix_init(&whole, 16, &cursor);
    prefix_init(&cut, 16, &cursor);
    llm_token a[100], b[100];
    for (int i = 0; i < 100; i++)
        a[i] = b[i] = i * 7;
    b[45] = 1;
    hash128 seed = {1, 2};
    prefix_node *one = prefix_insert(&whole, a, 100), *two = prefix_insert(&cut, a, 100);
    prefix_insert(&cut, b, 100);
    prefix_insert(&cut, a, 32);
    prefix_insert(&cut, a, 33);
    prefix_make_keys(one, seed);
    prefix_make_keys(two, seed);
    for (int i = 0; i < 3; i++)
        assert_true(hash128_equal(prefix_key(one, i, seed), prefix_key(two, i, seed)));
    prefix_node *other = prefix_insert(&cut, b, 100);
    prefix_make_keys(other, seed);
    assert_true(hash128_equal(prefix_key(one, 0, seed), prefix_key(other, 0, seed)));
    assert_false(hash128_equal(prefix_key(one, 1, seed), prefix_key(other, 1, seed)));
    assert_false(hash128_equal(prefix_key(one, 2, seed), prefix_key(other, 2, seed)));
    prefix_free(&whole);
    prefix_free(&cut);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fuzz),
        cmocka_unit_test(eviction_spares_the_used),
        cmocka_unit_test(users_stay_within_their_bound),
        cmocka_unit_test(the_lowest_score_is_evicted_first),
        cmocka_unit_test(first_in_goes_first_out),
        cmocka_unit_test(keys_depend_on_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
