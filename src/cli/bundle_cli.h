/* bundle_cli.h: the commands of bundles: folders with bundle.yaml, .churon files, names of such in the store.
 */
#ifndef CLI_BUNDLE_CLI_H
#define CLI_BUNDLE_CLI_H

#include "cli/cli.h"
#include "cli/graph_providers.h"
#include "pipeline/pipeline.h"

/* Resolves MODEL and opens it. */
MUST_USE status bundle_resolve(const char *model, str *path, error *err); /* appends where it is */
/* providers: NULL: cpu. timeout: seconds that loading its graphs may take; 0: any time. */
MUST_USE status bundle_open(pipeline **out, const char *model, uint64_t threads, provider_choice *providers,
                            double timeout, error *err);
/* The provenance object of an answer. */
void bundle_provenance(json_out *j, const pipeline *p, uint64_t threads);

#endif
