/* load_knee.h: the highest rate at which a server still serves most requests within the objective.
 *
 * The rate is doubled (or halved) from the first one until one holds and one does not; then the two are
 * bisected, geometrically, until they are within LOAD_KNEE_RATIO. A rate holds when at least
 * LOAD_KNEE_SHARE of the requests sent at it are good. Pure: the caller measures. */
#ifndef BENCH_LOAD_KNEE_H
#define BENCH_LOAD_KNEE_H

#include <stdbool.h>
#include <stddef.h>

enum { LOAD_KNEE_STEPS = 20 };
#define LOAD_KNEE_SHARE 0.9
#define LOAD_KNEE_RATIO 1.1

typedef struct load_knee_step {
    double rate;               /* requests a second, offered */
    double share;              /* good of all that were offered; where gave_up, at most this */
    double ttft_p99, tpot_p99; /* seconds; NaN: none was answered */
    double tokens_per_s;
    bool gave_up;
} load_knee_step;

/* Zero-initialise, set `first` (over 0). */
typedef struct load_knee {
    double first;
    double holds, fails; /* highest rate that held, lowest that did not; 0: none yet */
    load_knee_step steps[LOAD_KNEE_STEPS];
    size_t n;
} load_knee;

/* The rate to measure next; 0 when `holds` is the answer (0: not even a sixteenth of `first` holds). */
double load_knee_next(const load_knee *k);
void load_knee_take(load_knee *k, const load_knee_step *step);

#endif
