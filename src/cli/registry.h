/* registry.h: what the files of `churon registry` share. */
#ifndef CLI_REGISTRY_H
#define CLI_REGISTRY_H

#include "cli/cli.h"
#include "registry/registry.h"

/* Values of all options of all its commands; a command's table names those that it has. */
typedef struct registry_args {
    const char *home, *by, *name, *version, *notes, *licence, *owner, *source, *derived_from, *quantized_from,
        *trained_on;
    const char *reason, *alias, *key, *keys, *require_signature, *note, *model, *format;
    uint64_t keep_last, keep_days;
    bool has_keep_last, has_keep_days, dry_run, check, failed, lineage;
    arg_common common;
    const arg_command *command;
    char **words; /* arguments that are no options */
    size_t n;
    registry *r; /* open when the command runs; NULL where it needs none */
    str out;     /* JSON of the answer */
} registry_args;

typedef enum registry_access { REGISTRY_NONE, REGISTRY_READ, REGISTRY_WRITE } registry_access;

typedef struct registry_command {
    const char *name, *synopsis, *summary, *details, *example, *options; /* options: names, space-separated */
    size_t min_args, max_args;
    registry_access access;
    /* Answers into a->out, or says a line itself. */
    status (*run)(registry_args *a, error *err);
    void (*print)(const str *json, str *text); /* a->out for people; NULL: nothing to show */
    bool remote; /* --home may be a URL; with REGISTRY_READ then no registry is open */
} registry_command;

extern const registry_command registry_commands[];
extern const size_t registry_n_commands;

/* The JSON of an answer as lines. */
void registry_print_list(const str *json, str *text);
void registry_print_show(const str *json, str *text);
void registry_print_lineage(const str *json, str *text);
void registry_print_audit(const str *json, str *text);
void registry_print_gc(const str *json, str *text);
void registry_print_check(const str *json, str *text);
void registry_print_added(const str *json, str *text);
/* One line of the answer's "line". */
void registry_print_line(const str *json, str *text);

#endif
