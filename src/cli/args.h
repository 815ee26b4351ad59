/* args.h: one table describes the options of a command; parsing, --help and the report of wrong usage follow
 * from it.
 *
 * An option is `--name VALUE` or `--name=VALUE`; `--` ends the options; "-" alone is an argument (stdin).
 * Every command has --json, --threads N, --quiet, --help and --version besides its own table. The targets in
 * a table are the caller's; strings point into argv. Wrong usage is one line on stderr that names the field,
 * what was expected and what came, with the nearest right name where there is one. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses of every command. */
enum { EXIT_YES = 0, EXIT_NO = 1, EXIT_USAGE = 2 };

typedef enum arg_kind {
    ARG_FLAG,   /* bool *: no value, sets true */
    ARG_UINT,   /* uint64_t *: decimal, from umin to umax (umax 0: no limit) */
    ARG_BYTES,  /* uint64_t *: decimal with an optional K, M, G or T (powers of 1024), at least umin */
    ARG_DOUBLE, /* double *: finite, from min to max (both 0: any); NaN and infinities are refused */
    ARG_STRING, /* const char **: the last one counts */
    ARG_LIST    /* arg_list *: may be given again, kept in order */
} arg_kind;

/* Zero-initialise; free with args_list_free. */
typedef struct arg_list {
    const char **items; /* [n], borrowed from argv */
    size_t n;
} arg_list;
void args_list_free(arg_list *l);

typedef struct arg_option {
    const char *name; /* without the dashes, e.g. "max-tokens" */
    arg_kind kind;
    void *target;
    const char *value; /* what --help calls the value: "N"; NULL for flags */
    const char *help;  /* one sentence, lower case, no full stop */
    uint64_t umin, umax;
    double min, max;
    bool *given;   /* set when the option was there; may be NULL */
    char shortcut; /* -o VALUE; 0: none */
} arg_option;

typedef struct arg_common {
    bool json, quiet;
    uint64_t threads; /* 0: physical cores */
} arg_common;

typedef struct arg_command {
    const char *name;     /* "run" */
    const char *synopsis; /* "MODEL [PROMPT]" */
    const char *summary;  /* what it does, one sentence */
    const char *details;  /* further lines for --help, or NULL */
    const char *example;  /* complete command lines, one a line */
    const arg_option *options;
    size_t n_options;
    size_t min_args, max_args; /* arguments that are no options */
} arg_command;

typedef enum arg_outcome {
    ARGS_RUN,  /* go on */
    ARGS_DONE, /* --help or --version was answered: exit 0 */
    ARGS_WRONG /* reported: exit 2 */
} arg_outcome;

/* Parses argv[1..argc) (argv[0] is the command's name). Arguments that are no options are moved, in order, to
 * args[0 .. *n_args), which must have room for argc entries; args may be argv itself. */
arg_outcome args_parse(const arg_command *c, int argc, char **argv, arg_common *common, char **args,
                       size_t *n_args);

/* Reports wrong usage that the table cannot express and returns EXIT_USAGE:
 * "churon: error: COMMAND: field FIELD: expected EXPECTED, got GOT. See 'churon COMMAND --help'." */
int args_wrong(const arg_command *c, const char *field, const char *expected, const char *got);

/* Sets one option's target from text. False: `expected` says what would have been right, the target is as it
 * was. */
enum { ARG_EXPECTED = 96 };
bool arg_option_set(const arg_option *o, const char *text, char expected[ARG_EXPECTED]);

/* "1,2,3" to numbers of at most `max`; at least one. A new array, freed with mem_free; NULL if the text is
 * no such list (or memory ran out). */
uint64_t *args_uint_list(const char *text, uint64_t max, size_t *n);

/* The index of the name that `got` most likely meant, or -1 when none is near. */
int args_nearest(const char *got, const char *const *names, size_t n);

#endif
