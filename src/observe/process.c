/* process.c: see process.h. */
#include "observe/process.h"

#include <stdio.h>
#include <unistd.h>

double process_resident_bytes(void) {
    unsigned long long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%llu %llu", &pages, &resident) != 2) resident = 0;
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}
