/*
 * main.c - where the program begins. Everything is in the library, where tests can reach it.
 */
#include "shell/shell.h"

int main(int argc, char **argv) {
    return shell_main(argc, argv);
}
