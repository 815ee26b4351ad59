/* meter.c: telling the caller how far a pull is; see pull_part.h. */
#include "base/clock.h"
#include "registry/pull/pull_part.h"

#include <time.h>

bool meter_tell(meter *m, pull_phase phase, uint64_t done, uint64_t total) {
    double now = clock_seconds();
    bool turn = phase != m->now.phase || m->last == 0 || (total && done == total);
    m->now.phase = phase;
    m->now.done = done;
    m->now.total = total;
    if (m->cancelled) return false;
    if (m->fn && (turn || now - m->last >= 0.1)) {
        m->last = now;
        m->cancelled = !m->fn(m->user, &m->now);
    }
    return !m->cancelled;
}

bool meter_sleep(meter *m, pull_phase phase, double seconds) {
    double until = clock_seconds() + seconds;
    do {
        if (!meter_tell(m, phase, m->now.done, m->now.total)) return false;
        (void)nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    } while (clock_seconds() < until);
    return true;
}

status meter_stopped(error *err) {
    return error_set(err, CHURON_CANCELLED,
                     "pull: stopped. What has arrived is kept; the same command goes on from there");
}
