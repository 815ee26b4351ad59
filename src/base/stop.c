#include "base/stop.h"

#include "base/clock.h"

#include <math.h>

void stop_init(stop_flag *s, double started, double deadline, const atomic_bool *cancel) {
    s->started = started;
    s->deadline = deadline;
    s->cancel = cancel;
    atomic_init(&s->seen, false);
}

/* All relaxed: the flags carry nothing but themselves. */
static bool cancelled(const stop_flag *s) {
    return s->cancel && atomic_load_explicit(s->cancel, memory_order_relaxed);
}

bool stop_ask(stop_flag *s) {
    if (stop_seen(s)) return true;
    if (!cancelled(s) && !(s->deadline != 0 && clock_seconds() > s->deadline)) return false;
    atomic_store_explicit(&s->seen, true, memory_order_relaxed);
    return true;
}

status stop_check(stop_flag *s, error *err) {
    if (!stop_now(s)) return CHURON_OK;
    if (cancelled(s)) return error_set(err, CHURON_CANCELLED, "cancelled");
    return error_set(err, CHURON_LIMIT, "time: expected at most %g s, got %.3f s",
                     rint((s->deadline - s->started) * 1e3) / 1e3, clock_seconds() - s->started);
}
