/* prompt.h: what a chat is made of, as keys of a step: `prompt`, or `messages`, and `system`. */
#ifndef PIPELINE_STEPS_PROMPT_H
#define PIPELINE_STEPS_PROMPT_H

#include "bundle/lm_bundle.h"
#include "pipeline/step.h"

typedef struct prompt_keys {
    size_t prompt, messages, system; /* places of the keys */
} prompt_keys;

typedef struct prompt_source {
    int32_t prompt, messages; /* slots; -1: not given */
    uint32_t role, content;   /* members of a message */
    const char *system;       /* NULL: none */
} prompt_source;

#define PROMPT_KEYS                                                                                          \
    {"prompt", KEY_FIELD, .doc = "A text: what the user says"},                                              \
        {"messages", KEY_FIELD,                                                                              \
         .doc = "Instead of prompt: a list of records with the members role and content, texts"},            \
    {                                                                                                        \
        "system", KEY_TEXT, .doc = "A message of the system before all others"                               \
    }

MUST_USE status prompt_check(const step_build *b, prompt_keys keys, prompt_source *out, error *err);
/* The messages of a record, in the run's arena; texts are borrowed from the record. */
MUST_USE status prompt_messages(const step *s, run *r, const prompt_source *source, const cell *slots,
                                const chat_message **messages, size_t *n, error *err);

#endif
