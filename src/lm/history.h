/* history.h: the tokens that a sampler has seen, and what they say about the next one.
 *
 * Keeps the last `max` tokens. Both questions are answered into one table of ids, valid until the next
 * question. Memory is taken in history_open only. Owner: the sampler. */
#ifndef LM_HISTORY_H
#define LM_HISTORY_H

#include "base/status.h"

typedef struct history_entry {
    int32_t id;
    uint32_t value;
} history_entry;

typedef struct history {
    int32_t *tokens; /* [2*max]: the last `length`; moved to the front when the end is reached */
    size_t max, length, start;
    uint32_t *run;          /* [max]: Z-array of the reversed tokens */
    history_entry *entries; /* [max]: the answer, n_entries */
    size_t n_entries;
    uint32_t *slots; /* [n_slots], a power of two: 1 + number of the entry, 0: empty; hashed by id */
    size_t n_slots;
} history;

MUST_USE status history_open(history *h, size_t max, error *err);
void history_close(history *h);
void history_accept(history *h, int32_t id);

/* How often each id occurs among the last n tokens. */
void history_counts(history *h, size_t last_n);

/* For each id that would continue a repetition: the length of the longest run of tokens that ends the last
 * last_n tokens, occurred before among them, and was followed by that id; only lengths of at least `least`.
 * No run reaches over a token of `breakers` (ascending), and a breaker itself is not reported. Linear in
 * last_n. */
void history_repeats(history *h, size_t last_n, size_t least, const int32_t *breakers, size_t n_breakers);

#endif
