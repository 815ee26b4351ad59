/* stop.h: whether work that may take long should end early: its time is over, or somebody has cancelled it.
 *
 * Whoever starts the work makes a stop and says at its end, by stop_check, why it ended. Every thread that
 * takes part asks stop_now between pieces and leaves when the answer is true, which it then stays. What was
 * being computed is incomplete then and must be thrown away; what would be read from it as an index or a size
 * must not be. Asking reads the clock (20 to 30 ns): a piece should take a microsecond or more, and at most
 * some milliseconds. A pointer that is NULL stands for work without an end.
 * Owner: who made it; its threads only ask. */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct stop_flag {
    double started, deadline;  /* clock_seconds(); deadline 0: none */
    const atomic_bool *cancel; /* set by any thread; NULL: never */
    atomic_bool seen;
} stop_flag;

/* started: clock_seconds() of the begin, which may lie back. */
void stop_init(stop_flag *s, double started, double deadline, const atomic_bool *cancel);

bool stop_ask(stop_flag *s);
static inline bool stop_now(stop_flag *s) {
    return s && stop_ask(s);
}

/* For loops of cheap steps: asks at the last of every `every` (a power of two), short loops never. */
static inline bool stop_at(stop_flag *s, size_t step, size_t every) {
    return s && ((step + 1) & (every - 1)) == 0 && stop_ask(s);
}

/* The answer was true at least once. */
static inline bool stop_seen(const stop_flag *s) {
    /* Relaxed: nothing is read from whom has set it. */
    return s && atomic_load_explicit(&s->seen, memory_order_relaxed);
}

/* CHURON_LIMIT with both times, or CHURON_CANCELLED, if it should end; asks. */
MUST_USE status stop_check(stop_flag *s, error *err);

#endif
