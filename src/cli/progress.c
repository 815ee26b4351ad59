/* progress.c: see progress.h. */
#include "cli/progress.h"

#include "base/clock.h"
#include "cli/cli.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_COLUMNS = 24 };
static const double QUIET_SECONDS = 1.0, SECONDS_BETWEEN = 0.1;

progress progress_begin(bool quiet) {
    return (progress){.shown = !quiet && cli_is_terminal(STDERR_FILENO), .begun = clock_seconds()};
}

static size_t terminal_columns(void) {
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
}

void progress_update(progress *p, const char *what, double done, double total, const char *detail) {
    double now = clock_seconds();
    if (!p->shown || now - p->begun < QUIET_SECONDS || now - p->drawn < SECONDS_BETWEEN) return;
    p->drawn = now;
    p->is_drawn = true;
    char bar[BAR_COLUMNS + 1] = "", percent[16] = "", line[512];
    if (total > 0) {
        double part = done < total ? done / total : 1;
        for (int i = 0; i < BAR_COLUMNS; i++) bar[i] = i < (int)(part * BAR_COLUMNS) ? '#' : '.';
        bar[BAR_COLUMNS] = '\0';
        snprintf(percent, sizeof percent, " %3.0f %%", part * 100);
    }
    snprintf(line, sizeof line, "%.120s %s%s %.200s", what, bar, percent, detail);
    size_t columns = terminal_columns();
    if (columns < sizeof line) line[columns - 1] = '\0';
    fprintf(stderr, "\r\x1b[K%s", line);
    fflush(stderr);
}

void progress_end(progress *p) {
    if (p->is_drawn) fprintf(stderr, "\r\x1b[K");
    p->is_drawn = false;
    p->shown = false;
}
