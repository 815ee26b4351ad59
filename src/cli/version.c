/* version.c: `churon version`. */
#include "cli/cli.h"

#include <stdio.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

int cmd_version(int argc, char **argv) {
    arg_common common = {0};
    const arg_command c = {.name = "version",
                           .synopsis = "",
                           .summary = "Prints the version and what it was built with.",
                           .example = "churon version --json"};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? EXIT_YES : EXIT_USAGE;
    str out = {0};
    if (common.json) {
        json_out j = json_out_begin(&out);
        json_out_object(&j, NULL);
        json_out_cstr(&j, "version", churon_version());
        json_out_cstr(&j, "compiler", COMPILER);
        json_out_end_object(&j);
        int code = cli_print_json(&out);
        str_free(&out);
        return code;
    }
    str_fmt(&out, "churon %s\ncompiler: %s\n", churon_version(), COMPILER);
    (void)cli_write(str_cstr(&out), out.len);
    str_free(&out);
    return cli_finish(EXIT_YES);
}
