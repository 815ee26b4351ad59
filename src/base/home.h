/* home.h: the folder that keeps what outlives a run: models, the registry, what was verified. */
#ifndef BASE_HOME_H
#define BASE_HOME_H

#include "base/str.h"

/* Appends CHURON_HOME, else $XDG_DATA_HOME/churon, else ~/.local/share/churon. Creates nothing.
 * CHURON_INVALID where none of them is set. */
MUST_USE status home_path(str *out, error *err);

#endif
