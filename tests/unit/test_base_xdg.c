/* test_base_xdg.c - where a user's files are, by the environment and by the passwd entry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pwd.h>
#include <stdlib.h>

#include "storage/base.h"

/* This program's own comes before the C library's. NULL: there is no entry. */
static const char *entry_says;

int getpwuid_r(uid_t uid, struct passwd *entry, char *bytes, size_t n, struct passwd **out) {
    (void)uid, (void)bytes, (void)n;
    *entry = (struct passwd){.pw_dir = (char *)(uintptr_t)entry_says};
    *out = entry_says ? entry : NULL;
    return 0;
}

static void set(const char *name, const char *to) {
    if (to)
        setenv(name, to, 1);
    else
        unsetenv(name);
}

static void places(void **state) {
    (void)state;
    static const struct {
        const char *xdg, *home, *entry, *want;
    } cases[] = {
        {"/x", "/h", "/", "/x/kvasir"},
        {"/x", NULL, NULL, "/x/kvasir"},
        {NULL, "/h", "/", "/h/.cache/kvasir"},
        {"", "/h", "/", "/h/.cache/kvasir"},
        {"x", "/h", "/", "/h/.cache/kvasir"}, /* relative paths are to be ignored */
        {NULL, "h", "/usr", "/usr/.cache/kvasir"},
        {NULL, "", "/usr", "/usr/.cache/kvasir"},
        {NULL, NULL, "/usr", "/usr/.cache/kvasir"},
        {NULL, NULL, "/nonexistent", NULL},
        {NULL, NULL, "/dev/null", NULL},
        {NULL, NULL, "usr", NULL},
        {NULL, NULL, "", NULL},
        {NULL, NULL, NULL, NULL},
        {"x", "", NULL, NULL},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        buf place = {0};
        set("XDG_CACHE_HOME", cases[i].xdg);
        set("HOME", cases[i].home);
        entry_says = cases[i].entry;
        assert_true(xdg_path("XDG_CACHE_HOME", ".cache", &place) == (cases[i].want != NULL));
        if (cases[i].want)
            assert_string_equal(place.p, cases[i].want);
        else
            assert_int_equal(place.n, 0);
        buf_free(&place);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
