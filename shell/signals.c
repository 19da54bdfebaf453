/*
 * signals.c - Ctrl-C, resizing, stopping and being asked to leave.
 *
 * Invariant: handlers only set flags, cancel the watched statement (async-signal-safe by exec.h)
 * and restore the terminal. Whoever waits (the prompt, a running statement) looks at the flags.
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

static void install(int number, void (*handler)(int)) {
    struct sigaction action = {0};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

/* No SA_RESTART: a read at the prompt must come back to look at the flags. */
void signals_install(void) {
    install(SIGINT, on_interrupt);
    install(SIGTERM, on_terminate);
    install(SIGHUP, on_terminate);
    install(SIGWINCH, on_resize);
    install(SIGCONT, on_continue);
    install(SIGPIPE, SIG_IGN);
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
