/* graph_providers.c: see graph_providers.h. */
#include "cli/graph_providers.h"

#include "graph/providers/provider.h"

#include <string.h>

status provider_choice_read(provider_choice *c, error *err) {
    if (!c->given) return CHURON_OK;
    str_cat(&c->text, c->given);
    TRY(str_check(&c->text, err));
    for (char *at = c->text.data; at;) {
        char *comma = strchr(at, ',');
        if (comma) *comma = 0;
        if (c->n == PROVIDERS_MOST)
            return error_set(err, CHURON_INVALID, "provider: expected at most %d names, got more",
                             PROVIDERS_MOST);
        c->names[c->n++] = at;
        at = comma ? comma + 1 : NULL;
    }
    const graph_options o = {.providers = c->names, .n_providers = c->n};
    return providers_check(&o, err);
}

void provider_choice_free(provider_choice *c) {
    str_free(&c->text);
}
