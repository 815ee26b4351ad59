/* bundle_open.c: what the commands of bundles share. */
#include "cli/bundle_cli.h"

#include "base/file.h"
#include "base/pool.h"
#include "cli/timeout.h"
#include "kernel/kernel.h"
#include "registry/store.h"

#include <string.h>

/* The store names a version's first file: a bundle's version is the folder of it. */
static void to_folder(str *path) {
    const char *slash = path->data && !file_is_dir(path->data) ? strrchr(path->data, '/') : NULL;
    if (!slash) return;
    str beside = {0};
    str_add(&beside, path->data, (size_t)(slash - path->data));
    str_cat(&beside, "/bundle.yaml");
    if (!beside.failed && file_exists(beside.data)) {
        path->len = (size_t)(slash - path->data);
        path->data[path->len] = 0;
    }
    str_free(&beside);
}

status bundle_resolve(const char *model, str *path, error *err) {
    TRY(store_resolve(model, path, err));
    to_folder(path);
    return CHURON_OK;
}

status bundle_open(pipeline **out, const char *model, uint64_t threads, provider_choice *providers,
                   double timeout, error *err) {
    str path = {0};
    *out = NULL;
    status st = providers ? provider_choice_read(providers, err) : CHURON_OK;
    if (st == CHURON_OK) st = bundle_resolve(model, &path, err);
    pipeline_options o = {.threads = (size_t)threads, .deadline = timeout_deadline(timeout)};
    if (providers) {
        o.providers = providers->names;
        o.n_providers = providers->n;
    }
    if (st == CHURON_OK) st = pipeline_open(out, str_cstr(&path), &o, err);
    if (st == CHURON_OK) st = store_check(str_cstr(&path), pipeline_digest(*out), err);
    if (st != CHURON_OK) {
        pipeline_close(*out);
        *out = NULL;
    }
    str_free(&path);
    return st;
}

void bundle_provenance(json_out *j, const pipeline *p, uint64_t threads) {
    const manifest *m = pipeline_manifest(p);
    const kernels *k = NULL;
    (void)!kernels_select(&k, NULL);
    json_out_object(j, "provenance");
    json_out_cstr(j, "bundle", m->name);
    json_out_cstr(j, "bundle_version", m->version);
    json_out_cstr(j, "digest", pipeline_digest(p));
    json_out_cstr(j, "version", churon_version());
    json_out_cstr(j, "isa", k ? k->name : NULL);
    str providers = {0};
    pipeline_provider_names(p, &providers);
    json_out_cstr(j, "provider", str_cstr(&providers));
    str_free(&providers);
    json_out_uint(j, "threads", threads ? threads : pool_physical_cores());
    json_out_end_object(j);
}
