/* interrupt.h: Ctrl-C ends an answer, not the program.
 *
 * One thread waits for SIGINT, SIGTERM and SIGHUP, which every other thread blocks. SIGINT cancels the
 * generation that is being watched; without one it ends the program with status 130, as SIGTERM and SIGHUP
 * always do with 143 and 129. Before the program ends so, the terminal's mode is restored. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include "bundle/lm_bundle.h"

enum { EXIT_INTERRUPTED = 130 };

/* To be called before any other thread is started. Once. */
MUST_USE status interrupt_begin(error *err);
/* From now on SIGINT cancels g (NULL: none). After this returns, an earlier generation is not touched. */
void interrupt_watch(generation *g);
/* Whether SIGINT came since the last call. */
bool interrupt_taken(void);
/* What to call before the program ends by a signal: must only restore the terminal. */
void interrupt_on_end(void (*restore)(void));

#endif
