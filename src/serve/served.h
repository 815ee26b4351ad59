/* served.h: what a server answers with: versions of models under names. A version is a bundle (pipeline) or a
 * bare graph, which has a pipeline too where one can be made of it.
 *
 * A version's golden cases run when it is added; one that fails is kept with the reason and not served.
 * Filled before the server starts, then immutable: any thread may read. */
#ifndef SERVE_SERVED_H
#define SERVE_SERVED_H

#include "bundle/sign.h"
#include "pipeline/pipeline.h"
#include "serve/api/oip.h"

typedef struct served {
    size_t index;         /* in the list */
    char *name, *version; /* what clients call it */
    char *path;           /* where it was opened, from the root */
    char *stored;         /* its name in the store, or NULL */
    char *label;          /* an alias that it was asked for by, or NULL */
    char digest[DIGEST_HEX];
    pipeline *p;   /* NULL: a graph of which no bundle can be made; no_pipeline says why */
    graph *g;      /* NULL: a bundle */
    oip_model oip; /* ports in the inference protocol, unless no_oip says why not */
    arena memory;  /* of oip's ports, where they are of fields */
    error no_pipeline, no_oip;
    int lock; /* keeps a version of the store from being removed; -1: it is not of the store */
    bool available;
    size_t golden; /* cases that passed */
    str fault;     /* unless available: one line */
} served;

typedef struct served_list {
    served **items; /* [n]; versions of one name side by side, oldest first */
    size_t n;
} served_list;

typedef struct served_options {
    const char *name;             /* NULL: the manifest's, or the file's without its ending */
    const char *version;          /* NULL: the manifest\'s, or "1" */
    const char *label;            /* NULL: none */
    const char *stored;           /* name in the store; NULL: it is not from there */
    size_t threads;               /* of each session; 0: physical cores */
    const sign_keys *trusted;     /* one of these must have signed it; NULL: nobody needs to */
    const char *const *providers; /* of graphs; see graph_options */
    size_t n_providers;
} served_options;

/* Opens what lies at `path` and verifies it. A version whose golden cases fail is added all the same; what
 * cannot be opened, and a second version of the same name and number, is an error. *out (may be NULL) is
 * borrowed from the list. */
MUST_USE status served_add(served_list *l, const char *path, const served_options *o, const served **out,
                           error *err);
/* The providers that execute its graphs' nodes. Appended. */
void served_providers(const served *v, str *out);
void served_free(served_list *l);

/* The version that a request means: by number, by label, or (both NULL) the newest that is available. On an
 * error (CHURON_NOT_FOUND, or CHURON_BUSY for a version that is not available) NULL. name[n], version and
 * label need no terminating zero. */
typedef struct served_wanted {
    const char *name, *version, *label;
    size_t name_len, version_len, label_len;
} served_wanted;
const served *served_find(const served_list *l, const served_wanted *w, error *err);
bool served_is(const served *v,
               const served_wanted *w); /* that name, and the version or label if one is given */
/* Of versions that are numbers the larger one is newer; of "1.10" and "1.9" the first. */
int served_compare_versions(const char *a, const char *b);

#endif
