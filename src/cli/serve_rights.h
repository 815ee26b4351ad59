/* serve_rights.h: which API keys may ask which models: by the rights that the registry has for them. */
#ifndef CLI_SERVE_RIGHTS_H
#define CLI_SERVE_RIGHTS_H

#include "serve/keys.h"
#include "serve/served.h"

/* *callers: [models->n][keys->n], freed with mem_free; NULL: all may ask all. A key's subject is its tenant.
 * Without keys every model must be open to everybody: CHURON_INVALID names one that is not. */
MUST_USE status serve_rights(const served_list *models, const key_list *keys, bool **callers, error *err);

#endif
