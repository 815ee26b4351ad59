/* home.c: see home.h. */
#include "base/home.h"

#include <stdlib.h>

status home_path(str *out, error *err) {
    const char *home = getenv("CHURON_HOME"), *data = getenv("XDG_DATA_HOME"), *user = getenv("HOME");
    if (home && *home) {
        str_cat(out, home);
    } else if (data && *data == '/') { /* the XDG rule: a relative path there is to be ignored */
        str_fmt(out, "%s/churon", data);
    } else if (user && *user) {
        str_fmt(out, "%s/.local/share/churon", user);
    } else {
        return error_set(err, CHURON_INVALID,
                         "CHURON_HOME: expected a folder, got nothing (HOME is not set either)");
    }
    return str_check(out, err);
}
