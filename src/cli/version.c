/* version.c: `churon version`. */
#include "cli/cli.h"

#include "base/pool.h"
#include "kernel/kernel.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

/* Instruction sets that this processor has kernels for, best last. */
static size_t usable(const char *names[KERNEL_ISA_COUNT]) {
    size_t n = 0;
    for (int isa = KERNEL_REF; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (k) names[n++] = k->name;
    }
    return n;
}

static int print_json(const kernels *k) {
    const char *names[KERNEL_ISA_COUNT];
    size_t n = usable(names);
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "version", churon_version());
    json_out_cstr(&j, "compiler", COMPILER);
    json_out_cstr(&j, "isa", k->name);
    json_out_array(&j, "features");
    for (size_t i = 0; i < n; i++) json_out_cstr(&j, NULL, names[i]);
    json_out_end_array(&j);
    json_out_uint(&j, "cores", pool_physical_cores());
    json_out_end_object(&j);
    int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

static int print_text(const kernels *k) {
    const char *names[KERNEL_ISA_COUNT];
    size_t n = usable(names);
    str out = {0};
    str_fmt(&out, "churon %s\ncompiler      %s\nkernels       %s (usable here:", churon_version(), COMPILER,
            k->name);
    for (size_t i = 0; i < n; i++) str_fmt(&out, " %s", names[i]);
    str_fmt(&out, ")\ncores         %zu\n", pool_physical_cores());
    (void)cli_write(str_cstr(&out), out.len);
    str_free(&out);
    return cli_finish(EXIT_YES);
}

int cmd_version(int argc, char **argv) {
    arg_common common = {0};
    const arg_command c = {.name = "version",
                           .synopsis = "",
                           .summary = "Prints the version and what it was built with.",
                           .example = "churon version --json"};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    error err;
    const kernels *k;
    if (kernels_select(&k, &err) != CHURON_OK) return cli_refuse("version", &err);
    int code = common.json ? print_json(k) : print_text(k);
    return code;
}
