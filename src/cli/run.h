/* run.h: what the one-shot and the chat form of `churon run` share. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "bundle/lm_bundle.h"
#include "cli/args.h"

typedef struct run_request {
    const char *model;  /* as written on the command line */
    const char *path;   /* the file that it means */
    const char *system; /* NULL: none */
    generation_request generation;
    arg_common common;
} run_request;

/* Text of a conversation through the model's template to tokens. A template that writes the
 * beginning-of-sequence token itself does not get a second one. */
MUST_USE status run_chat_tokens(lm_bundle *b, const chat_message *messages, size_t n, token_list *out,
                                error *err);
/* The error for a prompt of n tokens that leaves no room for an answer; CHURON_OK if it fits. */
MUST_USE status run_check_context(lm_bundle *b, size_t n, error *err);

/* The conversation on a terminal, until the user leaves. Returns the exit status. */
int chat_run(lm_bundle *b, const run_request *r);

#endif
