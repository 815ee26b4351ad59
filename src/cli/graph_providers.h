/* graph_providers.h: the option --provider of the commands of graphs. */
#ifndef CLI_GRAPH_PROVIDERS_H
#define CLI_GRAPH_PROVIDERS_H

#include "cli/cli.h"
#include "graph/graph.h"

enum { PROVIDERS_MOST = 8 };

/* Zero-initialise; `given` is the option's target. */
typedef struct provider_choice {
    const char *given; /* "onednn,cpu"; NULL: not given */
    str text;
    const char *names[PROVIDERS_MOST];
    size_t n;
} provider_choice;

#define PROVIDER_OPTION(choice)                                                                              \
    {                                                                                                        \
        .name = "provider", .kind = ARG_STRING, .target = &(choice)->given, .value = "NAME[,NAME]",          \
        .help = "what executes nodes, the preferred first (default: cpu; 'churon inspect' lists them)"       \
    }

/* Cuts what was given at commas, and checks the names. */
MUST_USE status provider_choice_read(provider_choice *c, error *err);
void provider_choice_free(provider_choice *c);

#endif
