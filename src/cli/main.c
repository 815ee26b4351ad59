/* main.c: the program's entry: finds the command and hands over. */
#include "cli/cli.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} command;

static const command commands[] = {
    {"run", cmd_run, "answer a prompt, or chat on a terminal"},
    {"serve", cmd_serve, "serve a model over HTTP, with a chat page"},
    {"inspect", cmd_inspect, "what is in a model file, and the memory that it will need"},
    {"verify", cmd_verify, "whether a model gives the answers that it should"},
    {"tokenize", cmd_tokenize, "text to token ids and back"},
    {"perplexity", cmd_perplexity, "how well a model predicts a text"},
    {"bench", cmd_bench, "speed, as a fraction of the machine's bound and beside a peer"},
    {"pull", cmd_pull, "bring a model into the store"},
    {"bundle", cmd_bundle, "begin a bundle; what one may hold"},
    {"replay", cmd_replay, "a request on record, computed again"},
    {"pack", cmd_pack, "one reproducible file of a bundle"},
    {"registry", cmd_registry, "versions of models: approved, named, rolled back"},
    {"version", cmd_version, "version, compiler and instruction sets"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *to) {
    fprintf(to, "Churon %s: from a model file to its answers.\n\nUsage: churon COMMAND [arguments]\n\n",
            churon_version());
    for (size_t i = 0; i < N_COMMANDS; i++) fprintf(to, "  %-12s%s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n'churon COMMAND --help' shows a command's options and an example.\n"
                "Example:\n  churon run model.gguf \"Why is the sky blue?\"\n");
}

static int report_unknown(const char *word) {
    const char *names[N_COMMANDS];
    char list[256] = "";
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    int near = args_nearest(word, names, N_COMMANDS);
    char advice[64] = "See 'churon --help'.";
    if (near >= 0) snprintf(advice, sizeof advice, "Did you mean '%s'?", names[near]);
    cli_error("command line: field COMMAND: expected one of %s, got %.60s, which this version does not "
              "have. %s",
              list, word, advice);
    return EXIT_USAGE;
}

/* A standard descriptor that was closed must not become the first file that is opened: what is written to it
 * then still fails as it should. */
static void keep_standard_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!open("/dev/null", O_RDONLY);
    }
}

int main(int argc, char **argv) {
    keep_standard_descriptors();
    /* A reader that leaves (churon run … | head) shows as EPIPE where it is written, not as a killed
     * program. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit is an error of write */
    json_set_alloc_funcs(mem_alloc, mem_free);
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    static char help_flag[] = "--help";
    bool asks_help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
    if (asks_help && argc == 2) {
        print_help(stdout);
        return cli_finish(EXIT_YES);
    }
    if (asks_help) { /* churon help COMMAND */
        word = argv[2];
        argv[1] = argv[2];
        argv[2] = help_flag;
        argc = 3;
    }
    if (strcmp(word, "--version") == 0) word = "version";
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(word, commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    }
    return report_unknown(word);
}
