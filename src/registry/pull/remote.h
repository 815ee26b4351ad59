/* remote.h: a registry's folder that some server shows over HTTP, read-only: its index.json, blobs/ab/HEX,
 * and models/NAME/VERSION/PATH. https, or http on this machine. Nothing that comes is believed: names, paths
 * and digests are checked, each content is compared with the digest that the index states, and the whole with
 * the version's. */
#ifndef REGISTRY_PULL_REMOTE_H
#define REGISTRY_PULL_REMOTE_H

#include "registry/registry.h"

bool remote_is_url(const char *home);

/* As registry_list and registry_show answer, as far as the index knows. */
MUST_USE status remote_list_models(const char *url, const char *name, str *json, error *err);
MUST_USE status remote_show(const char *url, const char *ref, str *json, error *err);

/* Brings one version into a registry of this machine, with its signatures beside it; name NULL: as it is
 * called there. */
MUST_USE status remote_get(registry *r, const char *url, const char *ref, const char *name, str *json,
                           error *err);

#endif
