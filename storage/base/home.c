/*
 * home.c - where a user's own files are: the directories of the XDG base directory specification.
 *
 * Invariant: a path that is told is the user's, by the environment or by the passwd entry; where
 * neither says, there is none, and nothing is kept in a place that others can write to.
 */
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/base.h"

/* Of users that only run services, the entry names a directory that is not there. */
static bool passwd_home(buf *out) {
    enum { ENTRY_BYTES = 16 << 10 };
    char *bytes = mem_alloc(ENTRY_BYTES);
    struct passwd entry, *found = NULL;
    struct stat st;
    bool there = getpwuid_r(geteuid(), &entry, bytes, ENTRY_BYTES, &found) == 0 && found &&
                 found->pw_dir && found->pw_dir[0] == '/' && stat(found->pw_dir, &st) == 0 &&
                 S_ISDIR(st.st_mode);
    if (there)
        buf_append_c(out, found->pw_dir);
    free(bytes);
    return there;
}

/* Appends the home directory: HOME, else the passwd entry's if it is there. False, and nothing is
 * appended: this user has none. */
static bool home_find(buf *out) {
    const char *home = getenv("HOME");
    if (!home || home[0] != '/')
        return passwd_home(out);
    buf_append_c(out, home);
    return true;
}

bool home_place(const char *variable, const char *fallback, buf *out) {
    const char *base = getenv(variable);
    bool set = base && base[0] == '/'; /* the specification has others ignored */
    if (set)
        buf_append_c(out, base);
    else if (!home_find(out))
        return false;
    buf_printf(out, "%s%s/kvasir", set ? "" : "/", set ? "" : fallback);
    return true;
}
