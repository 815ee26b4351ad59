/* replay.c: `churon replay`: a request that a server has on record, computed again. */
#include "cli/cli.h"

#include "serve/json_in.h"
#include "serve/recording.h"

typedef struct replay_request {
    arg_common common;
    const char *request, *record, *model;
} replay_request;

static int give(const replay_request *r, const str *answer, bool same) {
    if (!r->common.json) {
        (void)cli_write(str_cstr(answer), answer->len);
        (void)cli_write("\n", 1);
        if (!same) cli_error("replay: answer: expected the bytes on record, got others");
        return cli_finish(same ? EXIT_YES : EXIT_NO);
    }
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "request", r->request);
    json_out_bool(&j, "same", same);
    json_out_string(&j, "answer", str_cstr(answer), answer->len);
    json_out_end_object(&j);
    const int code = cli_print_json(&out);
    str_free(&out);
    return code == EXIT_YES && !same ? EXIT_NO : code;
}

int cmd_replay(int argc, char **argv) {
    replay_request r = {0};
    const arg_option options[] = {
        {.name = "request",
         .kind = ARG_STRING,
         .target = &r.request,
         .value = "ID",
         .help = "the answer's X-Churon-Request-Id"},
        {.name = "record",
         .kind = ARG_STRING,
         .target = &r.record,
         .value = "DIR",
         .help = "the folder that churon serve --record has written to"},
        {.name = "model",
         .kind = ARG_STRING,
         .target = &r.model,
         .value = "PATH",
         .help = "where the model is now (default: where it was); it must have the same digest"},
    };
    const arg_command c = {.name = "replay",
                           .synopsis = "--request ID --record DIR",
                           .summary = "Computes a recorded request again: the same bytes, or exit status 1.",
                           .example = "churon replay --request 1f0c9d --record requests/",
                           .options = options,
                           .n_options = sizeof options / sizeof *options,
                           .max_args = 0};
    size_t n_args;
    const arg_outcome outcome = args_parse(&c, argc, argv, &r.common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    if (!r.request) return args_wrong(&c, "--request", "an id", "nothing");
    if (!r.record) return args_wrong(&c, "--record", "a folder", "nothing");
    error err = {0};
    str answer = {0};
    bool same;
    json_in_setup();
    const status st =
        recording_replay(r.record, r.request, r.model, (size_t)r.common.threads, &answer, &same, &err);
    const int code = st == CHURON_OK ? give(&r, &answer, same) : cli_refuse("replay", &err);
    str_free(&answer);
    return code;
}
