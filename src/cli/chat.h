/* chat.h: a conversation on a terminal, and the /commands in it. */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include "cli/answer.h"
#include "cli/conversation.h"
#include "cli/run.h"

typedef struct chat {
    lm_bundle *bundle;
    engine_seq *seq; /* what is computed so far: a new prompt keeps the tokens that it has in common */
    conversation log;
    generation_request generation; /* sampling is changed by /set; the seed is the first answer's */
    uint64_t n_answers;            /* the seed of an answer is the chat's seed plus its number */
    str speed;                     /* of the last answer */
    bool shows_speed;
} chat;

/* Answers the last message, which is the user's. Errors are reported; the message is then taken back. */
void chat_answer(chat *c);

typedef enum chat_next { CHAT_STAY, CHAT_LEAVE } chat_next;
/* Carries out a /command (text without the slash, zero-terminated). */
chat_next chat_command(chat *c, const char *text);

#endif
