/* verify.c: `churon verify`: whether a model gives the answers that it should. */
#include "cli/graph_inputs.h"
#include "cli/timeout.h"

#include "base/file.h"
#include "base/mem.h"
#include "graph/suite.h"

#include <stdio.h>
#include <string.h>

typedef struct verify {
    arg_common common;
    suite_options suite;
    json_out json;
    str text;
    size_t passed, failed, skipped;
} verify;

/* ---- cases of the ONNX project ---------------------------------------------------------------------- */

static bool verify_case(void *user, const char *name, const char *path) {
    verify *v = user;
    suite_case c = suite_run_case(path, &v->suite);
    v->passed += c.result == SUITE_PASSED;
    v->failed += c.result == SUITE_FAILED;
    v->skipped += c.result == SUITE_SKIPPED;
    if (v->common.json) {
        json_out_object(&v->json, NULL);
        json_out_cstr(&v->json, "name", name);
        json_out_bool(&v->json, "ok", c.result == SUITE_PASSED);
        if (c.result == SUITE_SKIPPED) json_out_bool(&v->json, "skipped", true);
        json_out_double(&v->json, "max_abs", c.max_abs);
        json_out_double(&v->json, "max_rel", c.max_rel);
        if (c.why.len) json_out_cstr(&v->json, "why", c.why.data);
        json_out_end_object(&v->json);
    } else if (c.result != SUITE_PASSED) {
        str line = {0};
        str_fmt(&line, "%s %s: %s\n", c.result == SUITE_FAILED ? "FAILED" : "skipped", name,
                str_cstr(&c.why));
        if (line.data) (void)cli_write(line.data, line.len);
        str_free(&line);
    }
    str_free(&c.why);
    return true;
}

static int verify_suite(verify *v, const char *folder, bool one_case) {
    error err;
    status st = CHURON_OK;
    v->json = json_out_begin(&v->text);
    json_out_object(&v->json, NULL);
    json_out_array(&v->json, "cases");
    if (one_case) {
        const char *name = strrchr(folder, '/');
        (void)verify_case(v, name && name[1] ? name + 1 : folder, folder);
    } else {
        st = suite_each(folder, verify_case, v, &err);
    }
    json_out_end_array(&v->json);
    json_out_uint(&v->json, "passed", v->passed);
    json_out_uint(&v->json, "failed", v->failed);
    json_out_uint(&v->json, "skipped", v->skipped);
    json_out_end_object(&v->json);
    if (st == CHURON_OK && v->passed + v->failed + v->skipped == 0)
        st = error_set(&err, CHURON_NOT_FOUND,
                       "%s: expected folders with model.onnx and test_data_set_0, got none", folder);
    if (st != CHURON_OK) return cli_refuse("verify", &err);
    if (!v->common.json) {
        str line = {0};
        str_fmt(&line, "%zu passed, %zu failed, %zu skipped\n", v->passed, v->failed, v->skipped);
        if (line.data) (void)cli_write(line.data, line.len);
        str_free(&line);
    } else if (cli_print_json(&v->text) != EXIT_YES) {
        return EXIT_NO;
    }
    return cli_finish(v->failed || (one_case && !v->passed) ? EXIT_NO : EXIT_YES);
}

static int verify_folder(verify *v, const char *folder, bool one_case) {
    if (!file_is_dir(folder)) {
        error err;
        (void)error_set(&err, CHURON_NOT_FOUND, "%s: expected a folder, got none", folder);
        return cli_refuse("verify", &err);
    }
    int code = verify_suite(v, folder, one_case);
    str_free(&v->text);
    return code;
}

int cmd_verify(int argc, char **argv) {
    if (bundle_is_asked(argc, argv)) return bundle_cmd_verify(argc, argv);
    if (graph_is_asked(argc, argv)) return graph_cmd_verify(argc, argv);
    verify v = {.suite = {.tolerance = {.rtol = 1e-3, .atol = 1e-7}, .seconds = 60}};
    const char *data = NULL, *suite = NULL;
    error err;
    arg_list no_pass = {0};
    const arg_option options[] = {
        {.name = "data",
         .kind = ARG_STRING,
         .target = &data,
         .value = "DIR",
         .help = "a folder with model.onnx and test_data_set_*/{input,output}_*.pb"},
        {.name = "onnx-suite",
         .kind = ARG_STRING,
         .target = &suite,
         .value = "DIR",
         .help = "a folder of such folders"},
        {.name = "rtol",
         .kind = ARG_DOUBLE,
         .target = &v.suite.tolerance.rtol,
         .value = "R",
         .help = "relative difference that is allowed",
         .max = 1e9},
        {.name = "atol",
         .kind = ARG_DOUBLE,
         .target = &v.suite.tolerance.atol,
         .value = "A",
         .help = "absolute difference that is allowed",
         .max = 1e9},
        TIMEOUT_OPTION(&v.suite.seconds),
        {.name = "no-pass",
         .kind = ARG_LIST,
         .target = &no_pass,
         .value = "NAME",
         .help = "leaves out a pass of graphs, or 'all'"},
    };
    const arg_command c = {
        .name = "verify",
        .synopsis = "--data DIR | --onnx-suite DIR | MODEL.onnx",
        .summary = "Runs a model on inputs with known answers and compares.",
        .details =
            "With MODEL.onnx it compares two ways of computing, and takes --passes, --nodes,\n"
            "--against MODEL, --input, --shape and --provider: 'churon verify MODEL.onnx --help'. A bundle\n"
            "runs its golden cases: 'churon verify BUNDLE --help'.",
        .example = "churon verify --data resnet50/\nchuron verify --onnx-suite node/ --json\n"
                   "churon verify resnet50.onnx --passes",
        .options = options,
        .n_options = sizeof options / sizeof options[0]};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &v.common, argv, &n_args);
    int code = outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    if (outcome == ARGS_RUN && !data == !suite) {
        code = args_wrong(&c, "--data", "--data DIR or --onnx-suite DIR", data ? "both" : "neither");
    } else if (outcome == ARGS_RUN && graph_passes_check(&no_pass, &err) != CHURON_OK) {
        code = cli_fail("verify", &err);
    } else if (outcome == ARGS_RUN) {
        v.suite.graph = (graph_options){
            .threads = (size_t)v.common.threads, .no_pass = no_pass.items, .n_no_pass = no_pass.n};
        code = verify_folder(&v, data ? data : suite, data != NULL);
    }
    args_list_free(&no_pass);
    return code;
}
