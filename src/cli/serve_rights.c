/* serve_rights.c: see serve_rights.h. */
#include "cli/serve_rights.h"

#include "base/mem.h"
#include "registry/registry.h"

#include <string.h>

static bool any_stored(const served_list *models) {
    for (size_t i = 0; i < models->n; i++) {
        if (models->items[i]->stored) return true;
    }
    return false;
}

/* A model that the registry does not know (a store without a database) has no rights to keep. */
static status may_call(registry *r, const char *name, const char *subject, bool *may, error *err) {
    error e = {0};
    const status st = registry_allowed(r, name, subject, "call", may, &e);
    if (st == CHURON_OK) return st;
    *may = true;
    if (st == CHURON_NOT_FOUND) return CHURON_OK;
    if (err) *err = e;
    return st;
}

static status fill(registry *r, const served_list *models, const key_list *keys, bool *callers, error *err) {
    for (size_t i = 0; i < models->n; i++) {
        const served *v = models->items[i];
        for (size_t k = 0; k < keys->n; k++) {
            bool *may = &callers[i * keys->n + k];
            *may = true;
            if (v->stored) TRY(may_call(r, v->stored, keys->items[k].tenant, may, err));
        }
        bool everybody = true;
        if (keys->n == 0 && v->stored) TRY(may_call(r, v->stored, "*", &everybody, err));
        if (everybody) continue;
        return error_set(
            err, CHURON_INVALID,
            "field --keys: expected a file of keys, as not everybody may call '%.100s', got none", v->name);
    }
    return CHURON_OK;
}

status serve_rights(const served_list *models, const key_list *keys, bool **callers, error *err) {
    *callers = NULL;
    if (!any_stored(models)) return CHURON_OK;
    registry *r;
    bool *all = mem_calloc(models->n * keys->n + 1, sizeof *all);
    if (!all) return error_no_memory(err, "rights", models->n * keys->n);
    status st = registry_open(&r, &(registry_options){0}, err);
    if (st == CHURON_OK) {
        st = fill(r, models, keys, all, err);
        registry_close(r);
    }
    if (st == CHURON_OK) {
        *callers = all;
    } else {
        mem_free(all);
    }
    return st;
}
