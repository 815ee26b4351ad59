/* progress.h: a bar on the terminal for work that takes longer than a second.
 *
 * Drawn on stderr, only on a terminal, at most ten times a second, and erased at the end. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool shown, is_drawn;
    double begun, drawn;
} progress;

progress progress_begin(bool quiet);
/* `what` is before the bar, `detail` (may be "") behind it; total 0: not known. */
void progress_update(progress *p, const char *what, double done, double total, const char *detail);
void progress_end(progress *p);

#endif
