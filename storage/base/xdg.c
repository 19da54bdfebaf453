/*
 * xdg.c - the directories of a user's own files, by the XDG base directory specification.
 *
 * Invariant: a path comes from the environment or the user's passwd entry; there is no fallback to
 * a directory that other users can write to.
 */
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/base.h"

/* Appends the home directory of the passwd entry, if it exists; a service's user may have none. */
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

/* Appends the home directory: HOME, else that of the passwd entry. False: there is none. */
static bool append_home(buf *out) {
    const char *home = getenv("HOME");
    if (!home || home[0] != '/')
        return passwd_home(out);
    buf_append_c(out, home);
    return true;
}

bool xdg_path(const char *variable, const char *fallback, buf *out) {
    const char *base = getenv(variable);
    bool set = base && base[0] == '/'; /* the specification: relative paths are ignored */
    if (set)
        buf_append_c(out, base);
    else if (!append_home(out))
        return false;
    buf_printf(out, "%s%s/kvasir", set ? "" : "/", set ? "" : fallback);
    return true;
}
