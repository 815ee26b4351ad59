/* key_ring.h: API keys as their digests, and who a request's Authorization says it is. */
#ifndef SERVE_KEY_RING_H
#define SERVE_KEY_RING_H

#include "serve/keys.h"

typedef struct key_ring key_ring; /* immutable */

MUST_USE status key_ring_create(key_ring **out, const api_key *keys, size_t n, error *err);
void key_ring_free(key_ring *r);
/* Does `authorization` (a header's value or NULL) say Bearer and a key of the ring? Takes the same time
 * whichever key it is. */
bool key_ring_knows(const key_ring *r, const char *authorization);
/* Its place in the ring; SIZE_MAX: it is none of them. */
size_t key_ring_find(const key_ring *r, const char *authorization);

#endif
