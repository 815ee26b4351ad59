/* main.c: the program's entry: finds the subcommand and hands over. */
#include "churon.h"

#include <stdio.h>

int main(void) {
    puts(churon_version());
    return 0;
}
