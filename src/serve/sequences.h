/* sequences.h: the state of sequences that clients carry on over several requests, under their API key, the
 * version of the model and an id of theirs. Bounded in number; one that rests for too long is forgotten.
 *
 * Threads: all functions from any; a sequence that was taken belongs to its taker until it is given back. */
#ifndef SERVE_SEQUENCES_H
#define SERVE_SEQUENCES_H

#include "pipeline/pipeline.h"

typedef struct sequences sequences;
typedef struct sequence_slot sequence_slot; /* one that is taken */

enum { SEQUENCE_ID_MAX = 256 };

typedef struct sequence_key {
    size_t owner; /* which API key; 0 where there are none */
    const pipeline *p;
    const char *id; /* [len] */
    size_t len;
} sequence_key;

/* `max` sequences at a time; idle: seconds. */
MUST_USE status sequences_create(sequences **out, size_t max, double idle, error *err);
void sequences_free(sequences *q);
size_t sequences_count(sequences *q);

/* `start`: anew, forgetting one of the same key. Otherwise it must be there: CHURON_NOT_FOUND. CHURON_BUSY: a
 * request of the same sequence is under way, or there are as many sequences as may be. */
MUST_USE status sequences_take(sequences *q, const sequence_key *key, bool start, double now,
                               sequence_slot **out, error *err);
pipeline_sequence *sequence_state(const sequence_slot *s);
/* `end`: forgets it. */
void sequences_give_back(sequences *q, sequence_slot *s, bool end, double now);

#endif
