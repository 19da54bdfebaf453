/* Settings: standards are valid, values of every spelling, errors that help, copies of their own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sql/sql.h"

static void standards_are_valid_and_shown(void **state) {
    (void)state;
    settings s;
    size_t n;
    settings_init(&s);
    const setting_info *table = settings_table(&n);
    for (size_t i = 0; i < n; i++) {
        err e = {0};
        buf shown = {0};
        assert_int_equal(
            settings_set(&s, str_from(table[i].name), value_text(str_from(table[i].standard)), &e),
            0);
        assert_int_equal(settings_show(&s, str_from(table[i].name), &shown, &e), 0);
        assert_string_equal(shown.p ? shown.p : "", table[i].standard);
        assert_int_equal(settings_set(&s, str_from(table[i].name), value_null(), &e), 0);
        buf_free(&shown);
    }
    assert_int_equal(s.psm, PSM_SETTING_AUTO);
    assert_int_equal(s.kv_disk, 4LL << 30);
    assert_true(s.dedup);
    settings_free(&s);
}

/* What reads a word by its index has to know how many there are. */
static void words_have_indexes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int words;
    } known[] = {
        {"psm", PSM_SETTINGS},         {"llm_schedule", SCHEDULES}, {"kv_keep", KEEPS},
        {"kv_evict", EVICTS},          {"kv_dtype", DTYPES},        {"precision", PRECISIONS},
        {"attention", ATTENTIONS},     {"prompt_format", FORMATS},  {"llm_layout", LAYOUTS},
        {"llm_calibrate", CALIBRATES}, {"llm_on_error", ON_ERRORS}, {"llm_overflow", OVERFLOWS},
        {"cost_rates", RATES},         {"chunk_kv", CHUNK_KVS},     {"blend_rule", BLENDS},
    };
    size_t n, found = 0;
    const setting_info *table = settings_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (table[i].type != SETTING_WORD)
            continue;
        int words = 1;
        for (const char *p = table[i].words; *p; p++)
            words += *p == '|';
        size_t k = 0;
        while (k < BASE_COUNT(known) && strcmp(known[k].name, table[i].name) != 0)
            k++;
        assert_true(k < BASE_COUNT(known));
        assert_int_equal(words, known[k].words);
        found++;
    }
    assert_int_equal(found, BASE_COUNT(known));
}

static void values_are_understood(void **state) {
    (void)state;
    settings s;
    err e = {0};
    settings_init(&s);
    assert_int_equal(settings_set(&s, STR("KV_MEMORY"), value_text(STR("512 kB")), &e), 0);
    assert_int_equal(s.kv_memory, 512 << 10);
    assert_int_equal(settings_set(&s, STR("kv_memory"), value_text(STR("1.5GiB")), &e), 0);
    assert_int_equal(s.kv_memory, 3LL << 29);
    assert_int_equal(settings_set(&s, STR("kv_memory"), value_int(4096), &e), 0);
    assert_int_equal(s.kv_memory, 4096);
    assert_int_equal(settings_set(&s, STR("kv_memory"), value_text(STR("Auto")), &e), 0);
    assert_int_equal(s.kv_memory, -1);
    assert_int_equal(settings_set(&s, STR("kv_disk"), value_text(STR("auto")), &e), ERR_TYPE);
    static const char *const off[] = {"off", "FALSE", "no", "0"};
    for (size_t i = 0; i < BASE_COUNT(off); i++) {
        s.dedup = true;
        assert_int_equal(settings_set(&s, STR("dedup"), value_text(str_from(off[i])), &e), 0);
        assert_false(s.dedup);
    }
    assert_int_equal(settings_set(&s, STR("dedup"), value_bool(true), &e), 0);
    assert_true(s.dedup);
    assert_int_equal(settings_set(&s, STR("psm"), value_text(STR("Fixed")), &e), 0);
    assert_int_equal(s.psm, PSM_SETTING_FIXED);
    assert_int_equal(settings_set(&s, STR("temperature"), value_int(1), &e), 0);
    assert_true(s.temperature == 1.0);
    assert_int_equal(settings_set(&s, STR("seed"), value_int(-7), &e), 0);
    assert_int_equal(s.seed, -7);
    settings_free(&s);
}

static void wrong_values_say_what_is_right(void **state) {
    (void)state;
    static const struct {
        const char *name, *value, *part;
        err_code code;
    } cases[] = {
        {"psn", "off", "no setting", ERR_BIND},     {"psm", "fix", "off/fixed", ERR_TYPE},
        {"dedup", "maybe", "on or off", ERR_TYPE},  {"threads", "-1", "whole number", ERR_TYPE},
        {"kv_memory", "2XB", "512MB", ERR_TYPE},    {"temperature", "hot", "number", ERR_TYPE},
        {"max_tokens", "0", "1 or more", ERR_TYPE}, {"kv_memory", "-1", "512MB", ERR_TYPE},
        {"kv_disk", "0", "cache = off", ERR_TYPE},  {"kv_memory", "0", "KV memory", ERR_TYPE},
        {"kv_memory", "1e300", "512MB", ERR_TYPE},  {"work_memory", "1kB", "4kB or more", ERR_TYPE},
    };
    settings s;
    settings_init(&s);
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        err e = {0};
        assert_int_equal(
            settings_set(&s, str_from(cases[i].name), value_text(str_from(cases[i].value)), &e),
            cases[i].code);
        assert_non_null(strstr(e.message, cases[i].part));
    }
    err e = {0};
    settings_set(&s, STR("dedpu"), value_bool(true), &e);
    assert_non_null(strstr(e.hint, "dedup"));
    settings_free(&s);
}

static void copies_are_their_own(void **state) {
    (void)state;
    settings a, b = {0};
    err e = {0};
    settings_init(&a);
    settings_set(&a, STR("model"), value_text(STR("first")), &e);
    settings_copy(&b, &a);
    settings_set(&a, STR("model"), value_text(STR("second")), &e);
    assert_string_equal(b.model, "first");
    settings_copy(&b, &a);
    assert_string_equal(b.model, "second");
    settings_copy(&b, &b);
    assert_string_equal(b.model, "second");
    settings_free(&a);
    settings_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(standards_are_valid_and_shown),
        cmocka_unit_test(words_have_indexes),
        cmocka_unit_test(values_are_understood),
        cmocka_unit_test(wrong_values_say_what_is_right),
        cmocka_unit_test(copies_are_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
