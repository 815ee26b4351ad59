/* conversation.h: the messages of a chat, and their file: {"model", "messages": [{"role", "content"}]}. */
#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H

#include "base/file.h"
#include "bundle/lm_bundle.h"

typedef struct message {
    const char *role; /* "user" or "assistant", static */
    str content;
} message;

/* Zero-initialise; free with conversation_free. */
typedef struct conversation {
    str system; /* empty: none */
    message *messages;
    size_t n, room;
} conversation;

void conversation_free(conversation *c);
MUST_USE status conversation_add(conversation *c, const char *role, const char *text, size_t len, error *err);
void conversation_drop(conversation *c, size_t n); /* the last n messages */
/* Role of the last message, or "". */
const char *conversation_last_role(const conversation *c);
/* What the template gets: a new array (freed by mem_free) whose text is borrowed from c. */
MUST_USE status conversation_view(const conversation *c, chat_message **out, size_t *n, error *err);

/* Writes beside the file and renames: a full disk leaves an older file as it was. */
MUST_USE status conversation_save(const conversation *c, const char *model, const char *path, error *err);
/* Replaces *c; on an error *c is as it was. */
MUST_USE status conversation_load(conversation *c, const char *path, error *err);

#endif
