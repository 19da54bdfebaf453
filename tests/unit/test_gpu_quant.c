/*
 * test_gpu_quant.c - every tensor type against vectors of the gguf Python package
 * (tests/vectors/make_quant.py), bit for bit.
 */
#include "gpu_testing.h"

static size_t from_hex(const char *hex, uint8_t *out) {
    size_t n = strspn(hex, "0123456789abcdef") / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return n;
}

static const quant_type *find_by_name(const char *name) {
    for (uint32_t type = 0; type < 64; type++) {
        const quant_type *q = quant_find(type);
        if (q && strcmp(q->name, name) == 0)
            return q;
    }
    return NULL;
}

static void check_line(const char *name, const char *blocks_hex, const char *values_hex) {
    uint8_t blocks[1024];
    float out[512];
    const quant_type *q = find_by_name(name);
    assert_non_null(q);
    size_t bytes = from_hex(blocks_hex, blocks);
    assert_int_equal(bytes % (size_t)q->block_bytes, 0);
    size_t n = bytes / (size_t)q->block_bytes * (size_t)q->block_elements;
    assert_int_equal(strspn(values_hex, "0123456789abcdef"), n * 8);
    q->dequantize(blocks, out, n);
    for (size_t i = 0; i < n; i++) {
        unsigned expected;
        uint32_t bits;
        assert_int_equal(sscanf(values_hex + 8 * i, "%8x", &expected), 1);
        memcpy(&bits, &out[i], sizeof bits);
        if (bits != expected)
            fail_msg("%s: element %zu is %08x instead of %08x", name, i, bits, expected);
    }
}

static void equals_the_reference(void **state) {
    (void)state;
    char path[4096], name[16], blocks[2048], values[8192];
    FILE *f = fopen(source_path("tests/vectors/quant.txt", path), "r");
    assert_non_null(f);
    int lines = 0;
    while (fscanf(f, "%15s %2047s %8191s", name, blocks, values) == 3) {
        check_line(name, blocks, values);
        lines++;
    }
    fclose(f);
    int known = 0;
    for (uint32_t type = 0; type < 64; type++)
        known += quant_find(type) != NULL;
    assert_int_equal(lines, known);
}

static void halves_are_exact(void **state) {
    (void)state;
    assert_true(quant_f16(0x3c00) == 1.0f);
    assert_true(quant_f16(0xc000) == -2.0f);
    assert_true(quant_f16(0x7bff) == 65504.0f);
    assert_true(quant_f16(0x0400) == 0x1p-14f);
    assert_true(quant_f16(0x0001) == 0x1p-24f);
    assert_true(quant_f16(0x83ff) == -1023 * 0x1p-24f);
    assert_true(quant_f16(0x7c00) > 3e38f);
    assert_true(quant_f16(0x7e00) != quant_f16(0x7e00));
    float minus_zero = quant_f16(0x8000);
    uint32_t bits;
    memcpy(&bits, &minus_zero, sizeof bits);
    assert_int_equal(bits, 0x80000000u);
}

static void labels_name_what_is_refused(void **state) {
    (void)state;
    assert_null(quant_find(16));
    assert_string_equal(quant_type_label(16), "IQ2_XXS");
    assert_string_equal(quant_type_label(4000), "unknown");
    for (uint32_t type = 0; type < 64; type++) {
        const quant_type *q = quant_find(type);
        if (q)
            assert_string_equal(quant_type_label(type), q->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference),
        cmocka_unit_test(halves_are_exact),
        cmocka_unit_test(labels_name_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
