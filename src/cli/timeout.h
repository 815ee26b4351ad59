/* timeout.h: the option --timeout of the commands that run models: of loading, and of each run. */
#ifndef CLI_TIMEOUT_H
#define CLI_TIMEOUT_H

#include "base/clock.h"
#include "cli/args.h"

/* seconds: double *; what it points to is the default, 0: none */
#define TIMEOUT_OPTION(seconds)                                                                              \
    {                                                                                                        \
        .name = "timeout", .kind = ARG_DOUBLE, .target = (seconds), .value = "S",                            \
        .help = "seconds that loading the model, and each run of it, may take", .min = 0.001, .max = 1e6     \
    }

/* Of what begins now, as options of graphs and pipelines want it. */
static inline double timeout_deadline(double seconds) {
    return seconds > 0 ? clock_seconds() + seconds : 0;
}

#endif
