/*
 * keys.c - reads the keys pressed while a statement runs: `v` or Ctrl-V opens the live view, all
 * other keys become input of the next prompt.
 *
 * Invariant: between keys_open and keys_close the terminal is unbuffered and does not echo; Ctrl-C
 * still interrupts; no byte is lost. `v` opens the view only if it is read alone and before other
 * keys, so that pasted text does not open it.
 */
#include <poll.h>
#include <unistd.h>

#include "view_int.h"

enum { CTRL_V = 'V' & 0x1f };

static void take_keys(const key_watch *k) {
    struct termios modes = k->before;
    modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    modes.c_cc[VMIN] = 1;
    modes.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

void keys_open(key_watch *k) {
    if (k->open || tcgetattr(STDIN_FILENO, &k->before) != 0)
        return;
    k->open = true;
    take_keys(k);
}

bool keys_view(key_watch *k) {
    char block[256];
    bool wanted = false;
    if (!k->open)
        return false;
    if (signals_continued())
        take_keys(k);
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    /* Polled before each read, which would block after a signal handler restored line mode. */
    for (ssize_t n; poll(&keys, 1, 0) > 0 && (n = read(STDIN_FILENO, block, sizeof block)) > 0;)
        if (n == 1 && (block[0] == CTRL_V || (block[0] == 'v' && k->typed.n == 0)))
            wanted = true;
        else
            buf_append(&k->typed, block, (size_t)n);
    return wanted;
}

void keys_close(key_watch *k, buf *typed_ahead) {
    if (!k->open)
        return;
    keys_view(k);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &k->before);
    buf_append_str(typed_ahead, buf_str(&k->typed));
    buf_free(&k->typed);
    k->open = false;
}
