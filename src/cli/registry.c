/* registry.c: `churon registry COMMAND`: finds the command, reads its options, opens the registry, prints.
 * The commands themselves: registry_commands.c. */
#include "cli/registry.h"

#include "base/file.h"
#include "registry/pull/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 32 };

static void all_options(registry_args *a, arg_option out[OPTIONS_MAX], size_t *n) {
    const arg_option table[] = {
        {.name = "home",
         .kind = ARG_STRING,
         .target = &a->home,
         .value = "PATH",
         .help = "the registry's folder (default: CHURON_HOME); list, show, get: also a URL"},
        {.name = "by",
         .kind = ARG_STRING,
         .target = &a->by,
         .value = "WHO",
         .help = "who does this (default: CHURON_USER, else your login)"},
        {.name = "name",
         .kind = ARG_STRING,
         .target = &a->name,
         .value = "NAME",
         .help = "the model's name (default: from the source's)"},
        {.name = "version",
         .kind = ARG_STRING,
         .target = &a->version,
         .value = "V",
         .help = "the version (default: the next number)"},
        {.name = "notes",
         .kind = ARG_STRING,
         .target = &a->notes,
         .value = "TEXT",
         .help = "what is worth knowing about this version"},
        {.name = "licence",
         .kind = ARG_STRING,
         .target = &a->licence,
         .value = "TEXT",
         .help = "the licence, as SPDX names it"},
        {.name = "owner",
         .kind = ARG_STRING,
         .target = &a->owner,
         .value = "WHO",
         .help = "who answers for a new model (default: who adds it)"},
        {.name = "source",
         .kind = ARG_STRING,
         .target = &a->source,
         .value = "TEXT",
         .help = "where it came from (default: the path)"},
        {.name = "derived-from",
         .kind = ARG_STRING,
         .target = &a->derived_from,
         .value = "REF",
         .help = "lineage: the version that this one was made of"},
        {.name = "quantized-from",
         .kind = ARG_STRING,
         .target = &a->quantized_from,
         .value = "REF",
         .help = "lineage: the version that was quantized"},
        {.name = "trained-on",
         .kind = ARG_STRING,
         .target = &a->trained_on,
         .value = "DATA",
         .help = "lineage: the data"},
        {.name = "reason",
         .kind = ARG_STRING,
         .target = &a->reason,
         .value = "TEXT",
         .help = "why; kept with the change"},
        {.name = "alias",
         .kind = ARG_STRING,
         .target = &a->alias,
         .value = "ALIAS",
         .help = "the alias (default: champion if there is one, else latest)"},
        {.name = "key",
         .kind = ARG_STRING,
         .target = &a->key,
         .value = "FILE",
         .help = "the private key, PEM"},
        {.name = "keys",
         .kind = ARG_STRING,
         .target = &a->keys,
         .value = "PATH",
         .help = "public keys that are trusted: a PEM file or a folder of them"},
        {.name = "require-signature",
         .kind = ARG_STRING,
         .target = &a->require_signature,
         .value = "KEYS",
         .help = "refuse a source that none of these public keys has signed"},
        {.name = "note", .kind = ARG_STRING, .target = &a->note, .value = "TEXT", .help = "a remark"},
        {.name = "model",
         .kind = ARG_STRING,
         .target = &a->model,
         .value = "NAME",
         .help = "only entries about this model"},
        {.name = "format",
         .kind = ARG_STRING,
         .target = &a->format,
         .value = "FORMAT",
         .help = "plain, pack, mlflow or triton"},
        {.name = "keep-last",
         .kind = ARG_UINT,
         .target = &a->keep_last,
         .value = "N",
         .umax = 1000000,
         .given = &a->has_keep_last,
         .help = "keep the newest N versions"},
        {.name = "keep-days",
         .kind = ARG_UINT,
         .target = &a->keep_days,
         .value = "DAYS",
         .umax = 100000,
         .given = &a->has_keep_days,
         .help = "keep versions that are younger"},
        {.name = "dry-run",
         .kind = ARG_FLAG,
         .target = &a->dry_run,
         .help = "say what would be removed, and remove nothing"},
        {.name = "check", .kind = ARG_FLAG, .target = &a->check, .help = "recompute the chain of hashes"},
        {.name = "failed", .kind = ARG_FLAG, .target = &a->failed, .help = "the verification failed"},
        {.name = "lineage",
         .kind = ARG_FLAG,
         .target = &a->lineage,
         .help = "the same as 'registry lineage'"},
    };
    *n = sizeof table / sizeof *table;
    memcpy(out, table, sizeof table);
}

/* Those of `names`, in its order, and --home and --by. */
static size_t choose_options(registry_args *a, const char *names, arg_option out[OPTIONS_MAX]) {
    arg_option all[OPTIONS_MAX];
    size_t n_all, n = 0;
    char words[300];
    char *rest = words;
    all_options(a, all, &n_all);
    snprintf(words, sizeof words, "%s home by", names);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        for (size_t i = 0; i < n_all; i++) {
            if (strcmp(all[i].name, word) == 0) out[n++] = all[i];
        }
    }
    return n;
}

static void print_help(void) {
    str text = {0};
    str_cat(&text, "Usage: churon registry COMMAND [arguments]\n\nVersions of models: who made them, who "
                   "approved them, which "
                   "one answers.\n\n");
    for (size_t i = 0; i < registry_n_commands; i++) {
        str_fmt(&text, "  %-18s%s\n", registry_commands[i].name, registry_commands[i].summary);
    }
    str_cat(
        &text,
        "\nEvery command has --home, --by, --json, --quiet and --help with its own options.\n"
        "\nExample:\n  churon registry add fraud/ --name fraud\n"
        "  churon registry approve fraud:1 --by rita --reason \"golden cases pass\"\n"
        "  churon registry alias fraud champion 1\n  churon registry rollback fraud --reason \"drift\"\n");
    if (!text.failed) (void)cli_write(text.data, text.len);
    str_free(&text);
}

static const registry_command *find(const char *word) {
    for (size_t i = 0; i < registry_n_commands; i++) {
        if (strcmp(registry_commands[i].name, word) == 0) return &registry_commands[i];
    }
    return NULL;
}

static int unknown(const char *word) {
    const char *names[64];
    size_t n = registry_n_commands < 64 ? registry_n_commands : 64;
    for (size_t i = 0; i < n; i++) names[i] = registry_commands[i].name;
    int near = args_nearest(word, names, n);
    cli_error("registry: field COMMAND: expected a command of the registry, got %.60s.%s%s%s See 'churon "
              "registry --help'.",
              word, near >= 0 ? " Did you mean " : "", near >= 0 ? names[near] : "", near >= 0 ? "?" : "");
    return EXIT_USAGE;
}

static int print(const registry_command *c, registry_args *a) {
    if (a->common.json) return a->out.len ? cli_print_json(&a->out) : EXIT_YES;
    if (!c->print || !a->out.len || a->common.quiet) return EXIT_YES;
    str text = {0};
    error err;
    c->print(&a->out, &text);
    status st = str_check(&text, &err);
    if (st == CHURON_OK && text.len) (void)cli_write(text.data, text.len);
    str_free(&text);
    return st == CHURON_OK ? cli_finish(EXIT_YES) : cli_refuse("registry", &err);
}

static int run(const registry_command *c, registry_args *a) {
    error err;
    status st = CHURON_OK;
    char title[64];
    snprintf(title, sizeof title, "registry %s", c->name);
    if (a->home && remote_is_url(a->home) && !c->remote) {
        return args_wrong(a->command, "home", "a folder (a URL can only be read: list, show, get)", a->home);
    }
    if (a->home && !remote_is_url(a->home))
        setenv("CHURON_HOME", a->home, 1); /* store and registry are one folder */
    bool remote_only = a->home && remote_is_url(a->home) && c->access == REGISTRY_READ;
    if (c->access != REGISTRY_NONE && !remote_only) {
        const registry_options o = {.actor = a->by, .write = c->access == REGISTRY_WRITE};
        st = registry_open(&a->r, &o, &err);
    }
    if (st == CHURON_OK) st = c->run(a, &err);
    if (st == CHURON_OK) st = str_check(&a->out, &err);
    int code = EXIT_YES;
    if (st == CHURON_OK || (st == CHURON_CORRUPT && a->out.len)) code = print(c, a);
    if (st != CHURON_OK) code = cli_refuse(title, &err);
    registry_close(a->r);
    return code;
}

int cmd_registry(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        if (argc >= 2) print_help();
        if (argc < 2)
            cli_error(
                "registry: field COMMAND: expected a command, got nothing. See 'churon registry --help'.");
        return argc < 2 ? EXIT_USAGE : cli_finish(EXIT_YES);
    }
    const registry_command *c = find(argv[1]);
    if (!c) return unknown(argv[1]);
    registry_args a = {0};
    arg_option options[OPTIONS_MAX];
    char title[64];
    snprintf(title, sizeof title, "registry %s", c->name);
    const arg_command command = {.name = title,
                                 .synopsis = c->synopsis,
                                 .summary = c->summary,
                                 .details = c->details,
                                 .example = c->example,
                                 .options = options,
                                 .n_options = choose_options(&a, c->options, options),
                                 .min_args = c->min_args,
                                 .max_args = c->max_args};
    arg_outcome outcome = args_parse(&command, argc - 1, argv + 1, &a.common, argv, &a.n);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    a.words = argv;
    a.command = &command;
    int code = run(c, &a);
    str_free(&a.out);
    return code;
}
