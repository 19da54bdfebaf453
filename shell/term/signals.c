/*
 * signals.c - signal handlers: Ctrl-C, SIGTERM and SIGHUP, resizing, Ctrl-Z, crashes.
 *
 * Invariant: handlers only set flags, cancel the watched statement (stmt_cancel is
 * async-signal-safe) and restore the terminal; they preserve errno. Loops that wait (the prompt, a
 * running statement) poll the flags. The terminal is restored before a signal stops or ends the
 * process. The handler of SIGBUS also prints which mapped file was truncated.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "term_int.h"

static _Atomic(stmt *) watched;
static atomic_int interrupts;
static atomic_int terminated;
static atomic_bool cancel_flag; /* set by Ctrl-C, SIGTERM and SIGHUP */
static atomic_bool resized, continued;

static void cancel(void) {
    atomic_store(&cancel_flag, true);
    stmt *s = atomic_load(&watched);
    if (s != NULL)
        stmt_cancel(s);
}

static void on_interrupt(int number) {
    (void)number;
    atomic_fetch_add(&interrupts, 1);
    cancel();
}

/* The first SIGTERM cancels the statement, so that the shell closes its files and exits; a second
 * one ends the process at once. */
static void on_terminate(int number) {
    if (atomic_exchange(&terminated, number) != 0) {
        term_restore();
        _exit(128 + number);
    }
    int before = errno;
    cancel();
    term_restore();
    errno = before;
}

static void on_resize(int number) {
    (void)number;
    atomic_store(&resized, true);
}

static void on_continue(int number) {
    (void)number;
    atomic_store(&continued, true);
}

/* Raises the signal again. It is blocked until the handler returns and SA_RESETHAND has removed the
 * handler, so after the handler it ends the process. */
static void on_fatal(int number) {
    term_restore();
    raise(number);
}

/* ---- mapped files that are truncated --------------------------------------------------------- */

enum { LINE_BYTES = PATH_MAX + 128 };

static uintptr_t hex_value(const char **p) {
    uintptr_t v = 0;
    for (;; (*p)++) {
        char c = **p;
        if (c >= '0' && c <= '9')
            v = v * 16 + (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = v * 16 + (uintptr_t)(c - 'a' + 10);
        else
            return v;
    }
}

/* Returns the path in a line of /proc/self/maps ("from-to rwxp offset device inode path") if the
 * mapping contains the address and has a file; else NULL. */
static const char *mapped_file(const char *line, uintptr_t address) {
    uintptr_t from = hex_value(&line);
    if (*line++ != '-' || address < from || address >= hex_value(&line))
        return NULL;
    return strchr(line, '/');
}

static void write_error(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; /* stderr is closed: nothing can be reported */
}

/* Prints which file the address is mapped from. Runs in a handler: no malloc, no stdio. */
static void name_mapping(uintptr_t address) {
    static char line[LINE_BYTES];
    const char *path = NULL;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    char c;
    while (!path && fd >= 0 && read(fd, &c, 1) == 1) {
        line[n] = c == '\n' ? 0 : c;
        if (c == '\n')
            path = mapped_file(line, address);
        n = c == '\n' ? 0 : n + (n < LINE_BYTES - 2);
    }
    if (fd >= 0)
        close(fd);
    if (!path)
        return;
    write_error("kvasir: '");
    write_error(path);
    write_error("' was truncated while it was in use, or its disk failed\n");
}

static void on_bus(int number, siginfo_t *info, void *context) {
    (void)context;
    term_restore();
    if (info->si_code == BUS_ADRERR)
        name_mapping((uintptr_t)info->si_addr);
    raise(number);
}

/* The handler of SIGPIPE and SIGXFSZ does nothing, so that write fails with EPIPE or EFBIG. SIG_IGN
 * is not used, because programs that the shell starts would inherit it. */
static void on_refused_write(int number) {
    (void)number;
}

static void install(int number, void (*handler)(int), int flags) {
    struct sigaction action = {0};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

enum { STOP_FLAGS = (int)SA_RESETHAND | SA_NODEFER | SA_RESTART };

/* The process stops in raise() and later continues there. If its process group is orphaned it does
 * not stop, since no shell could continue it. */
static void on_stop(int number) {
    int before = errno;
    term_restore();
    raise(number);
    atomic_store(&continued, true);
    install(number, on_stop, STOP_FLAGS);
    errno = before;
}

/* Installs the handler of a fatal signal, unless a sanitizer installed its own before. */
static void install_fatal(int number) {
    struct sigaction now, bus = {.sa_flags = (int)SA_RESETHAND | SA_SIGINFO};
    if (sigaction(number, NULL, &now) != 0 || now.sa_handler != SIG_DFL)
        return;
    bus.sa_sigaction = on_bus;
    if (number == SIGBUS)
        sigaction(number, &bus, NULL);
    else
        install(number, on_fatal, (int)SA_RESETHAND);
}

/* SIGINT, SIGTERM and SIGHUP interrupt a blocked read or write. SIGWINCH and SIGCONT restart it, so
 * that a resize does not cut a result or a script short; the prompt waits in poll, which these two
 * signals interrupt nevertheless. */
void signals_install(void) {
    static const int fatal[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < BASE_COUNT(fatal); i++)
        install_fatal(fatal[i]);
    install(SIGINT, on_interrupt, 0);
    install(SIGTERM, on_terminate, 0);
    install(SIGHUP, on_terminate, 0);
    install(SIGWINCH, on_resize, SA_RESTART);
    install(SIGTSTP, on_stop, STOP_FLAGS);
    install(SIGCONT, on_continue, SA_RESTART);
    install(SIGPIPE, on_refused_write, 0);
    install(SIGXFSZ, on_refused_write, 0);
}

/* A signal that arrived before the statement was set, for example between two statements of a
 * script, cancels it as well. */
void signals_watch(stmt *s) {
    atomic_store(&watched, s);
    if (s != NULL && (atomic_load(&interrupts) != 0 || atomic_load(&terminated) != 0))
        stmt_cancel(s);
}

int signals_interrupts(void) {
    return atomic_load(&interrupts);
}

void signals_clear(void) {
    atomic_store(&cancel_flag, false);
    atomic_store(&interrupts, 0);
    if (atomic_load(&terminated) != 0)
        atomic_store(&cancel_flag, true);
}

const atomic_bool *signals_cancel_flag(void) {
    return &cancel_flag;
}

int signals_terminated(void) {
    return atomic_load(&terminated);
}

bool signals_resized(void) {
    return atomic_exchange(&resized, false);
}

bool signals_continued(void) {
    return atomic_exchange(&continued, false);
}
