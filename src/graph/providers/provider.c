/* provider.c: see provider.h. */
#include "graph/providers/provider.h"

#include "graph/providers/onednn.h"

#include <string.h>

static const provider list[] = {
    {.name = "cpu", .what = "every operator, with the kernels of this library"},
    {.name = "onednn",
     .what = "f32 convolutions and matrix products with constant weights, by oneDNN",
#if CHURON_ONEDNN
     .claim = onednn_claim,
     .packed_bytes = onednn_packed_bytes,
     .operations = onednn_operations
#else
     .option = "CHURON_ONEDNN"
#endif
    },
};
enum { N_PROVIDERS = sizeof list / sizeof *list };

const provider *provider_list(size_t *n) {
    *n = N_PROVIDERS;
    return list;
}

static const provider *find(const char *name) {
    for (size_t i = 0; i < N_PROVIDERS; i++) {
        if (strcmp(list[i].name, name) == 0) return &list[i];
    }
    return NULL;
}

/* Those of this build. */
static void put_names(str *out) {
    for (size_t i = 0; i < N_PROVIDERS; i++) {
        if (!list[i].option) str_fmt(out, "%s%s", i ? " or " : "", list[i].name);
    }
}

status providers_check(const graph_options *o, error *err) {
    status st = CHURON_OK;
    for (size_t i = 0; i < o->n_providers && st == CHURON_OK; i++) {
        const provider *p = find(o->providers[i]);
        if (p && !p->option) continue;
        str known = {0};
        put_names(&known);
        if (p) {
            st = error_set(err, CHURON_UNSUPPORTED,
                           "provider: expected %s, got '%s', which this build lacks (cmake -D%s=ON)",
                           str_cstr(&known), p->name, p->option);
        } else {
            st = error_set(err, CHURON_INVALID, "provider: expected %s, got '%.100s'", str_cstr(&known),
                           o->providers[i]);
        }
        str_free(&known);
    }
    return st;
}

static status claim_all(rewriter *w, const provider *p, size_t threads, error *err) {
    for (size_t i = 0; i < w->program->n_graphs; i++) {
        TRY(rewrite_begin(w, w->program->graphs[i], err));
        status st = CHURON_OK;
        for (size_t k = 0; k < w->g->n_nodes && st == CHURON_OK; k++)
            st = p->claim(w, w->g->nodes[k], threads, err);
        if (st != CHURON_OK) {
            rewrite_abandon(w);
            return st;
        }
        rewrite_end(w);
    }
    return CHURON_OK;
}

status providers_claim(rewriter *w, const graph_options *o, error *err) {
    const size_t threads = o->threads ? o->threads : pool_physical_cores();
    for (size_t i = 0; i < o->n_providers; i++) {
        const provider *p = find(o->providers[i]);
        if (!p || !p->claim) break;
        TRY(claim_all(w, p, threads, err));
    }
    return CHURON_OK;
}

const provider *provider_of(const op_node *n) {
    static const char ours[] = "churon.";
    const size_t length = sizeof ours - 1;
    const bool claimed = n->def && strncmp(n->def->domain, ours, length) == 0;
    const provider *p = claimed ? find(n->def->domain + length) : NULL;
    return p ? p : &list[0];
}
