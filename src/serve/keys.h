/* keys.h: the file of API keys: who may ask, as which tenant, with which weight.
 *
 * A line is `KEY [tenant=NAME] [weight=W] [admin]`, words apart by blanks; empty lines and lines that begin
 * with # do not count. A key without tenant= is a tenant of its own, named #LINE after its line in the file:
 * such a name cannot be given in the file, so it is never another's, and it says nothing about the key.
 * Errors name the line and the word's field, never the key. */
#ifndef SERVE_KEYS_H
#define SERVE_KEYS_H

#include "lm/engine.h"

#define KEYS_WEIGHT_MAX 1000.0
enum { TENANT_NAME_MAX = 63 }; /* bytes; letters, digits and . _ - */

typedef struct api_key {
    char *key;
    char tenant[TENANT_NAME_MAX + 1];
    double weight; /* of the tenant, over 0 and up to KEYS_WEIGHT_MAX; 1 unless one of its lines says more */
    bool admin;
} api_key;

typedef struct key_list {
    api_key *items; /* [n] */
    size_t n;
} key_list;

/* At least one key, or an error. On an error *out is empty. */
MUST_USE status keys_read(key_list *out, const char *path, error *err);
/* The same from text. `name`: of the file, for errors. */
MUST_USE status keys_parse(key_list *out, const char *text, size_t len, const char *name, error *err);
void keys_free(key_list *l);

/* The tenants whose weight is not 1, each once: an array of at most l->n that borrows its names from the
 * list; freed with mem_free. */
MUST_USE status keys_tenants(const key_list *l, engine_tenant **out, size_t *n, error *err);

bool tenant_name_is_valid(const char *name, size_t len); /* 1 to TENANT_NAME_MAX of the characters above */

#endif
