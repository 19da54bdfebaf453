/* test_base_containers.c - growable arrays, the hash index and heaps, against naive models. */
#include "storage/containers.h"
#include "storage_help_int.h"

static uint64_t random_state;

static uint32_t random_below(uint32_t n) {
    random_state = hash_mix(random_state, 1);
    return (uint32_t)(random_state % n);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

typedef struct point {
    int x, y;
} point;

static void test_arrays_grow(void **state) {
    (void)state;
    arena *mem = arena_new();
    point *heap = NULL, *in_arena = NULL;
    int n = 0, cap = 0;
    uint32_t arena_n = 0, arena_cap = 0;
    for (int i = 0; i < 10000; i++) {
        ARRAY_PUSH(heap, n, cap, ((point){i, -i}));
        ARENA_PUSH(mem, in_arena, arena_n, arena_cap, ((point){i, -i}));
    }
    assert_int_equal(n, 10000);
    assert_int_equal(arena_n, 10000);
    for (int i = 0; i < n; i++)
        assert_true(heap[i].x == i && heap[i].y == -i && in_arena[i].x == i);
    int before = cap;
    ARRAY_RESERVE(heap, before, cap);
    assert_int_equal(cap, before);
    ARRAY_RESERVE(heap, before + 1, cap);
    assert_int_equal(cap, before * 2);
    ARRAY_RESERVE(heap, 100000, cap);
    assert_int_equal(cap, 100000);
    free(heap);
    arena_free(mem);
}

/* Room stops at what the type of cap can say, and the item before that still fits. */
static void test_arrays_stop_at_their_type(void **state) {
    (void)state;
    int8_t signed_cap = 0, signed_n = 0;
    uint8_t unsigned_cap = 0, unsigned_n = 0;
    char *p = NULL, *q = NULL;
    for (int i = 0; i < INT8_MAX; i++)
        ARRAY_PUSH(p, signed_n, signed_cap, 'a');
    for (int i = 0; i < UINT8_MAX; i++)
        ARRAY_PUSH(q, unsigned_n, unsigned_cap, 'b');
    assert_int_equal(signed_cap, INT8_MAX);
    assert_int_equal(unsigned_cap, UINT8_MAX);
    assert_true(ARRAY_CAP_MAX(random_state) == SIZE_MAX);
    free(p);
    free(q);
}

/* ---- hash index ------------------------------------------------------------------------------ */

enum { KEYS = 400, ITEMS = 20000 };

typedef struct hash_model {
    hash_index x;
    uint32_t key[ITEMS]; /* of each item */
    bool held[ITEMS];
    uint32_t items;
    bool poor; /* hashes with many collisions, some of them at the end of the slots */
} hash_model;

static uint64_t hash_of(const hash_model *m, uint32_t key) {
    return m->poor ? (key % 7 ? key % 7 : UINT32_MAX - key % 3) : hash_mix(3, key);
}

static uint32_t count_found(const hash_model *m, uint32_t key) {
    uint32_t n = 0;
    uint64_t hash = hash_of(m, key);
    for (hash_slot *s = hash_index_first(&m->x, hash); s; s = hash_index_next(&m->x, s)) {
        assert_true(s->item < m->items && m->held[s->item]);
        assert_int_equal(s->hash, (uint32_t)hash_of(m, m->key[s->item]));
        n += m->key[s->item] == key;
    }
    return n;
}

static void check_all(const hash_model *m) {
    uint32_t held[KEYS] = {0}, count = 0;
    for (uint32_t i = 0; i < m->items; i++) {
        held[m->key[i]] += m->held[i];
        count += m->held[i];
        bool found = hash_index_slot(&m->x, hash_of(m, m->key[i]), i) != NULL;
        assert_int_equal(found, m->held[i]);
    }
    assert_int_equal(m->x.count, count);
    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(count_found(m, key), held[key]);
}

static void add_item(hash_model *m) {
    uint32_t i = m->items++;
    m->key[i] = random_below(KEYS);
    m->held[i] = true;
    hash_index_add(&m->x, hash_of(m, m->key[i]), i);
}

static void remove_item(hash_model *m, uint32_t i) {
    if (!m->held[i])
        return;
    hash_index_remove(&m->x, hash_index_slot(&m->x, hash_of(m, m->key[i]), i));
    m->held[i] = false;
}

static void run_model(hash_model *m, uint32_t items) {
    check_all(m);
    for (uint32_t step = 1; m->items < items; step++) {
        if (random_below(5) < 3 || m->items == 0)
            add_item(m);
        else
            remove_item(m, random_below(m->items));
        if (step % 1000 == 0)
            check_all(m);
    }
    check_all(m);
}

static void test_index_follows_a_model(void **state) {
    (void)state;
    arena *mem = arena_new();
    hash_model *m = mem_alloc(sizeof *m);
    for (int round = 0; round < 4; round++) {
        memset(m, 0, sizeof *m);
        random_state = (uint64_t)round;
        m->x.mem = round % 2 ? mem : NULL;
        m->poor = round >= 2;
        run_model(m, m->poor ? 2000 : ITEMS - 1); /* one is added below */
        for (uint32_t i = 0; i < m->items; i++)
            remove_item(m, i);
        check_all(m);
        add_item(m);
        hash_index_clear(&m->x);
        assert_null(hash_index_first(&m->x, hash_of(m, m->key[m->items - 1])));
        hash_index_free(&m->x);
        assert_null(m->x.slots);
        assert_ptr_equal(m->x.mem, round % 2 ? mem : NULL);
    }
    free(m);
    arena_free(mem);
}

static void test_index_makes_room(void **state) {
    (void)state;
    hash_index x = {0};
    assert_int_equal(hash_index_slots_for(&x, 1), 64);
    hash_index_reserve(&x, 1000);
    assert_int_equal(x.mask, 2047);
    assert_int_equal(hash_index_slots_for(&x, 1024), 0);
    assert_int_equal(hash_index_slots_for(&x, 1025), 4096);
    const hash_slot *slots = x.slots;
    for (uint32_t i = 0; i < 1024; i++)
        hash_index_add(&x, hash_mix(0, i), i);
    assert_ptr_equal(x.slots, slots);
    hash_slot *own = mem_alloc(sizeof *own * 4096);
    free(x.slots);
    x = (hash_index){0};
    assert_true(hash_index_move(&x, own, 4096, NULL));
    hash_index_add(&x, 5, 0);
    assert_ptr_equal(x.slots, own);
    hash_index_first(&x, 5)->item = 9; /* another item of the same hash takes its place */
    assert_int_equal(hash_index_first(&x, 5)->item, 9);
    assert_null(hash_index_next(&x, hash_index_first(&x, 5)));
    hash_slot *more = mem_alloc(sizeof *more * 8192);
    const atomic_bool cancelled = true;
    assert_false(hash_index_move(&x, more, 8192, &cancelled));
    assert_ptr_equal(x.slots, own);
    assert_int_equal(hash_index_first(&x, 5)->item, 9);
    free(more);
    hash_index_free(&x);
}

/* ---- heaps ----------------------------------------------------------------------------------- */

/* Items are numbers whose order and place are elsewhere, so that `context` and `moved` are used. */
typedef struct ordering {
    uint32_t rank[512];
    size_t place[512]; /* in the heap */
} ordering;

static bool ranks_before(const ordering *o, uint32_t a, uint32_t b) {
    return o->rank[a] < o->rank[b];
}

#define NOTE_PLACE(o, item, at) ((o)->place[item] = (at))
HEAP_DEFINE(ranked, uint32_t, ordering *, ranks_before, NOTE_PLACE);

#define SMALLER(c, a, b) ((a) < (b))
HEAP_DEFINE(number, int, const void *, SMALLER, HEAP_NOT_TOLD);

static void check_heap(const ordering *o, const uint32_t *items, size_t n) {
    for (size_t at = 0; at < n; at++) {
        assert_int_equal(o->place[items[at]], at);
        assert_true(at == 0 || o->rank[items[(at - 1) / 2]] <= o->rank[items[at]]);
    }
}

static void test_heap_knows_places(void **state) {
    (void)state;
    static ordering o;
    uint32_t items[512], next = 0;
    size_t n = 0;
    random_state = 1;
    for (int step = 0; step < 5000; step++) {
        if (n == 0 || (random_below(3) == 0 && next < 512)) {
            uint32_t item = next < 512 ? next++ : 0;
            o.rank[item] = random_below(100);
            ranked_push(&o, items, &n, item);
        } else if (random_below(8) > 0 || next < 512) {
            uint32_t item = items[random_below((uint32_t)n)];
            o.rank[item] = random_below(100);
            ranked_update(&o, items, n, o.place[item], item);
        } else {
            size_t at = random_below((uint32_t)n);
            ranked_remove(&o, items, &n, at);
        }
        check_heap(&o, items, n);
    }
    assert_int_equal(next, 512);
    for (size_t i = 0; i < 512; i++) {
        items[i] = (uint32_t)i;
        o.rank[i] = random_below(1000);
    }
    ranked_build(&o, items, 512);
    check_heap(&o, items, 512);
    uint32_t last = 0;
    for (n = 512; n > 0;) {
        uint32_t item = ranked_pop(&o, items, &n);
        assert_true(last <= o.rank[item]);
        last = o.rank[item];
        check_heap(&o, items, n);
    }
}

static int compare_ints(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void test_heap_sorts(void **state) {
    (void)state;
    int items[1000], sorted[1000];
    random_state = 2;
    for (size_t n = 0; n <= 1000; n = n * 2 + 1) {
        size_t held = 0;
        for (size_t i = 0; i < n; i++) {
            sorted[i] = (int)random_below(50);
            number_push(NULL, items, &held, sorted[i]);
        }
        qsort(sorted, n, sizeof *sorted, compare_ints);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(number_pop(NULL, items, &held), sorted[i]);
        assert_int_equal(held, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays_grow),
        cmocka_unit_test(test_arrays_stop_at_their_type),
        cmocka_unit_test(test_index_follows_a_model),
        cmocka_unit_test(test_index_makes_room),
        cmocka_unit_test(test_heap_knows_places),
        cmocka_unit_test(test_heap_sorts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
