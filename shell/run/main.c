/*
 * main.c - main(), which calls shell_main of the library so that unit tests can link the rest.
 */
#include "shell/shell.h"

int main(int argc, char **argv) {
    return shell_main(argc, argv);
}
