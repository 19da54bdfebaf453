/*
 * shell.h - people: the program `kvasir`, from its arguments to its exit code.
 *
 * Everything else of the shell is private (shell_int.h): nothing stands above this room.
 */
#ifndef KVASIR_SHELL_H
#define KVASIR_SHELL_H

/* Exit codes, as `kvasir --help` documents them. */
enum {
    SHELL_OK = 0,
    SHELL_FAILED = 1,       /* a statement or command failed */
    SHELL_USAGE = 2,        /* wrong arguments, or the database does not open */
    SHELL_INTERRUPTED = 130 /* Ctrl-C outside the prompt */
};

int shell_main(int argc, char **argv);

#endif
