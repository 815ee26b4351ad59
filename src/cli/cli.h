/* cli.h: what the commands share: messages on stderr, the one JSON object on stdout, the list of commands.
 *
 * stdout carries answers only. Every message is one line on stderr. Used by the main thread. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/json_out.h"
#include "cli/args.h"

enum { CLI_SIZE = 24 };

/* "churon: error: ..." as one line; control characters of what came from outside become '?'. */
void cli_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Reports err (prefixed with the command's name) and returns the exit status that belongs to it: 2 when a
 * value on the command line was wrong, else 1. */
int cli_fail(const char *command, const error *err);
/* The same for faults of what the command line names (a file, a model): always 1. */
int cli_refuse(const char *command, const error *err);
/* "412 bytes", "3.1 kB", "98.4 MB", "1.6 GB" (powers of 1000) into buf, which is returned. */
const char *cli_size(uint64_t bytes, char buf[CLI_SIZE]);
/* Appends text of a file (at most `most` bytes of it) for a terminal: backslashes stay, control characters,
 * those of C1 too, come as \n, \t, \x1b, …, so that names neither break lines nor steer the terminal. */
void cli_text(str *out, const char *text, size_t most);
/* Puts "PATH: " before the message unless that names the file already. */
void cli_name_file(error *err, const char *path);
/* A line on stderr unless `quiet`. */
void cli_note(bool quiet, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Writes bytes to stdout and flushes. False when the reader has gone (EPIPE), silently, or when writing
 * failed, which is reported once; cli_finish then gives the exit status. */
bool cli_write(const char *bytes, size_t n);
/* Exit status of a command that was otherwise `result`: 1 if something could not be written to stdout (a full
 * disk), unchanged if the reader left early: it had what it wanted. */
int cli_finish(int result);
/* Writes a JSON text and a line feed; returns the exit status. */
int cli_print_json(const str *json);

/* Colours are used on a terminal, unless NO_COLOR is set or TERM is "dumb". fd: 1 or 2. */
bool cli_is_terminal(int fd);
bool cli_use_color(int fd);

/* The commands: argv[0] is the command's name. */
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_bundle(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_registry(int argc, char **argv);
int cmd_version(int argc, char **argv);
/* The same for models that are graphs (ONNX), which the commands above turn to when graph_is_asked: the first
 * argument that is a model, a file or a name in the store, is one by its content. */
bool graph_is_asked(int argc, char **argv);
int graph_cmd_run(int argc, char **argv);
int graph_cmd_inspect(int argc, char **argv);
int graph_cmd_bench(int argc, char **argv);
int graph_cmd_verify(int argc, char **argv); /* verify MODEL: two ways of computing */
int graph_cmd_serve(int argc, char **argv);
/* And for bundles: a folder with bundle.yaml, a .churon file, a name of such in the store. */
bool bundle_is_asked(int argc, char **argv);
bool bundle_is_path(const char *model);
int bundle_cmd_run(int argc, char **argv);
int bundle_cmd_inspect(int argc, char **argv);
int bundle_cmd_verify(int argc, char **argv);
int bundle_cmd_bench(int argc, char **argv);

#endif
