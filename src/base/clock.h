/* clock.h: monotonic time. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

double clock_seconds(void); /* monotonic, arbitrary zero */
int64_t clock_unix(void);   /* wall clock, seconds since 1970 */

#endif
