/* load_knee.c: see load_knee.h. */
#include "bench/load_knee.h"

#include <math.h>

double load_knee_next(const load_knee *k) {
    if (k->n == 0) return k->first;
    if (k->n == LOAD_KNEE_STEPS) return 0;
    if (k->fails == 0) return k->holds * 2;
    if (k->holds == 0) return k->fails / 2 < k->first / 16 ? 0 : k->fails / 2;
    return k->fails / k->holds <= LOAD_KNEE_RATIO ? 0 : sqrt(k->fails * k->holds);
}

void load_knee_take(load_knee *k, const load_knee_step *step) {
    if (k->n == LOAD_KNEE_STEPS) return;
    k->steps[k->n++] = *step;
    if (step->share >= LOAD_KNEE_SHARE) {
        if (step->rate > k->holds) k->holds = step->rate;
    } else if (k->fails == 0 || step->rate < k->fails) {
        k->fails = step->rate;
    }
}
