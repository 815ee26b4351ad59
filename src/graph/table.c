/* table.c: finding an operator's row. */
#include "graph/ops/ops.h"

#include <string.h>

static const op_table *const tables[] = {
#define X(name) &ops_##name,
    OP_TABLES(X)
#undef X
};

enum { N_TABLES = sizeof tables / sizeof tables[0] };

static bool is_called(const op_def *d, const char *domain, const char *name) {
    return d->name[0] == name[0] && strcmp(d->name, name) == 0 && strcmp(d->domain, domain) == 0;
}

const op_def *op_find(const char *domain, const char *name, int64_t version) {
    for (size_t t = 0; t < N_TABLES; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            const op_def *d = &tables[t]->rows[i];
            if (is_called(d, domain, name) && d->since <= version && (d->until == 0 || version <= d->until))
                return d;
        }
    }
    return NULL;
}

void op_versions(const char *domain, const char *name, str *out) {
    bool first = true;
    for (size_t t = 0; t < N_TABLES; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            const op_def *d = &tables[t]->rows[i];
            if (!is_called(d, domain, name)) continue;
            str_fmt(out, "%s%d", first ? "" : ", ", d->since);
            if (d->until == 0) {
                str_put(out, '+');
            } else if (d->until != d->since) {
                str_fmt(out, "-%d", d->until);
            }
            first = false;
        }
    }
}
