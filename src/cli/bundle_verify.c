/* bundle_verify.c: `churon verify BUNDLE`: golden cases, and one version against another. */
#include "cli/bundle_records.h"
#include "cli/timeout.h"

#include "cli/bundle_against.h"
#include "pipeline/golden.h"

#include <stdio.h>
#include <string.h>

typedef struct bundle_verify {
    arg_common common;
    double timeout;
    json_out j;
    str text;
} bundle_verify;

static void report(void *user, const golden_result *r) {
    bundle_verify *v = user;
    if (v->common.json) {
        json_out_object(&v->j, NULL);
        json_out_cstr(&v->j, "name", r->name);
        json_out_bool(&v->j, "ok", r->ok);
        json_out_double(&v->j, "max_abs", r->max_abs);
        json_out_double(&v->j, "max_rel", r->max_rel);
        json_out_cstr(&v->j, "field", r->field.len ? r->field.data : NULL);
        if (r->step.len) json_out_cstr(&v->j, "step", r->step.data);
        if (r->why.len) json_out_cstr(&v->j, "why", r->why.data);
        json_out_end_object(&v->j);
    } else if (!r->ok) {
        str line = {0};
        str_fmt(&line, "FAILED %s: %s\n", r->name, str_cstr(&r->why));
        (void)cli_write(str_cstr(&line), line.len);
        str_free(&line);
    }
}

static int verify_golden(bundle_verify *v, pipeline *p) {
    error err = {0};
    golden_summary sum;
    v->j = json_out_begin(&v->text);
    json_out_object(&v->j, NULL);
    json_out_array(&v->j, "cases");
    if (golden_verify(p, v->timeout, report, v, &sum, &err) != CHURON_OK) return cli_refuse("verify", &err);
    json_out_end_array(&v->j);
    json_out_uint(&v->j, "passed", sum.passed);
    json_out_uint(&v->j, "failed", sum.failed);
    bundle_provenance(&v->j, p, v->common.threads);
    json_out_end_object(&v->j);
    if (v->common.json) {
        if (cli_print_json(&v->text) != EXIT_YES) return EXIT_NO;
    } else {
        char line[80];
        const int n = snprintf(line, sizeof line, "%zu passed, %zu failed\n", sum.passed, sum.failed);
        (void)cli_write(line, (size_t)n);
    }
    return cli_finish(sum.failed ? EXIT_NO : EXIT_YES);
}

int bundle_cmd_verify(int argc, char **argv) {
    bundle_verify v = {0};
    bundle_against a = {0};
    provider_choice providers = {0};
    const arg_option options[] = {
        PROVIDER_OPTION(&providers),
        TIMEOUT_OPTION(&v.timeout),
        {.name = "against",
         .kind = ARG_STRING,
         .target = &a.other,
         .value = "BUNDLE",
         .help = "compares the answers of two bundles instead: what changes for users; with --data"},
        {.name = "data",
         .kind = ARG_STRING,
         .target = &a.data,
         .value = "FILE",
         .help = "records for --against: .json, .jsonl or .csv"},
        {.name = "slice",
         .kind = ARG_LIST,
         .target = &a.slices,
         .value = "FIELD",
         .help = "counts changes for each value of this field too; may be given again"},
    };
    const arg_command c = {
        .name = "verify",
        .synopsis = "BUNDLE [--against BUNDLE --data FILE]",
        .summary = "Runs a bundle's golden cases, or compares two bundles over data.",
        .example = "churon verify fraud\n"
                   "churon verify fraud:4 --against fraud:3 --data last-week.jsonl --slice country",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
        .min_args = 1,
        .max_args = 1};
    size_t n_args;
    int code = EXIT_USAGE;
    const arg_outcome outcome = args_parse(&c, argc, argv, &v.common, argv, &n_args);
    if (outcome == ARGS_DONE) {
        code = cli_finish(EXIT_YES);
    } else if (outcome == ARGS_RUN && !a.other != !a.data) {
        code =
            args_wrong(&c, a.other ? "--data" : "--against",
                       a.other ? "a file of records beside --against" : "a bundle beside --data", "nothing");
    } else if (outcome == ARGS_RUN) {
        error err = {0};
        pipeline *p = NULL;
        if (bundle_open(&p, argv[0], v.common.threads, &providers, v.timeout, &err) != CHURON_OK) {
            code = cli_refuse("verify", &err);
        } else if (a.other) {
            a.common = v.common;
            a.timeout = v.timeout;
            a.p = p;
            code = bundle_against_run(&a);
        } else {
            code = verify_golden(&v, p);
        }
        pipeline_close(p);
    }
    args_list_free(&a.slices);
    provider_choice_free(&providers);
    str_free(&v.text);
    return code;
}
