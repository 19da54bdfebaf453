/*
 * signals.c - Ctrl-C, resizing, stopping and being asked to leave.
 *
 * Invariant: handlers only set flags, cancel the watched statement (async-signal-safe by exec.h)
 * and restore the terminal. Whoever waits (the prompt, a running statement) looks at the flags. A
 * signal that stops or ends the process finds the terminal restored.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "shell_int.h"

static _Atomic(stmt *) watched;
static atomic_int interrupts;
static atomic_int terminated;
static atomic_bool resized, continued;

static void on_interrupt(int number) {
    (void)number;
    atomic_fetch_add(&interrupts, 1);
    stmt *s = atomic_load(&watched);
    if (s != NULL)
        stmt_cancel(s);
}

/* The first request ends the statement and lets the
 * shell close its files; the second ends the process. */
static void on_terminate(int number) {
    if (atomic_exchange(&terminated, number) != 0) {
        term_restore();
        _exit(128 + number);
    }
    stmt *s = atomic_load(&watched);
    if (s != NULL)
        stmt_cancel(s);
    term_restore();
}

static void on_resize(int number) {
    (void)number;
    atomic_store(&resized, true);
}

static void on_continue(int number) {
    (void)number;
    atomic_store(&continued, true);
}

/* Blocked while it is handled and then no longer handled: it ends the process after all. */
static void on_fatal(int number) {
    term_restore();
    raise(number);
}

/* A write that nobody reads fails with EPIPE. Were the signal ignored instead, the programs that we
 * start would inherit that, and complain where they should end. */
static void on_pipe(int number) {
    (void)number;
}

static void install(int number, void (*handler)(int), int flags) {
    struct sigaction action = {0};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

/* The process stops in raise(), and goes on behind it; at once where no shell could continue it. */
static void on_stop(int number) {
    term_restore();
    raise(number);
    atomic_store(&continued, true);
    install(number, on_stop, (int)SA_RESETHAND | SA_NODEFER);
}

/* A sanitizer that wants to report it comes first. */
static void install_fatal(int number) {
    struct sigaction now;
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        install(number, on_fatal, (int)SA_RESETHAND);
}

/* No SA_RESTART: a read at the prompt must come back to look at the flags. */
void signals_install(void) {
    static const int fatal[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < BASE_COUNT(fatal); i++)
        install_fatal(fatal[i]);
    install(SIGINT, on_interrupt, 0);
    install(SIGTERM, on_terminate, 0);
    install(SIGHUP, on_terminate, 0);
    install(SIGWINCH, on_resize, 0);
    install(SIGTSTP, on_stop, (int)SA_RESETHAND | SA_NODEFER);
    install(SIGCONT, on_continue, 0);
    install(SIGPIPE, on_pipe, 0);
}

void signals_watch(stmt *s) {
    if (s != NULL)
        atomic_store(&interrupts, 0);
    atomic_store(&watched, s);
}

int signals_interrupts(void) {
    return atomic_load(&interrupts);
}

void signals_clear(void) {
    atomic_store(&interrupts, 0);
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
