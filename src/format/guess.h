/* guess.h: what a file is that is not what was expected, for messages. Looks at its first bytes only. */
#ifndef FORMAT_GUESS_H
#define FORMAT_GUESS_H

#include <stddef.h>

/* "a zip archive", with what to do about it where that is known; NULL: nothing that is known here. Static. */
const char *format_guess(const void *bytes, size_t n);

#endif
