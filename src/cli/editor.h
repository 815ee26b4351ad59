/* editor.h: editing a message on a terminal: several lines, paste, history, keys as in a shell.
 *
 * Enter ends the message; Alt-Enter or Ctrl-J begins a new line, as do line feeds in pasted text. The
 * terminal is in raw mode only while editor_read waits. Used by the main thread. */
#ifndef CLI_EDITOR_H
#define CLI_EDITOR_H

#include "base/str.h"

typedef struct editor editor;

typedef enum editor_result {
    EDITOR_TEXT,      /* a message, perhaps empty */
    EDITOR_INTERRUPT, /* Ctrl-C on an empty line */
    EDITOR_END,       /* Ctrl-D on an empty line, or the terminal has gone */
    EDITOR_FAILED     /* no memory, or the terminal refuses raw mode */
} editor_result;

MUST_USE status editor_create(editor **out, error *err);
void editor_free(editor *e);
/* Sets *text to the message and adds it to the history. `prompt`: plain text, one column for each byte. */
editor_result editor_read(editor *e, const char *prompt, str *text);
/* Puts the terminal back as it was; does nothing if it is. Async-signal-safe. */
void editor_restore_terminal(void);

#endif
