/*
 * shell.h - the `kvasir` program: argument parsing to exit code.
 *
 * The only header of shell/ that other rooms may include.
 */
#ifndef KVASIR_SHELL_H
#define KVASIR_SHELL_H

/* Exit codes, as `kvasir --help` documents them. */
enum {
    SHELL_OK = 0,
    SHELL_FAILED = 1,       /* a statement or command failed */
    SHELL_USAGE = 2,        /* wrong arguments, or the database cannot be opened */
    SHELL_INTERRUPTED = 130 /* Ctrl-C outside the prompt */
};

int shell_main(int argc, char **argv);

#endif
