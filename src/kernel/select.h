/* select.h: order and selection of values with an index, for the tables' top_k and for the sampler.
 *
 * A key is a value and its index as one number that sorts descending by value, then ascending by index: the
 * value's order-preserving bits above (NaN lowest, -0 as +0), the complement of the index below. Keys are
 * distinct. Nothing allocates. */
#ifndef KERNEL_SELECT_H
#define KERNEL_SELECT_H

#include "kernel/kernel.h"

/* Candidates of a running top-k: those kept so far and those since. */
enum { SELECT_ROOM = 3072 }; /* TOP_MAX and twice as much before the next cut */

uint64_t select_key(float value, uint32_t index);
float select_value(uint64_t key); /* a NaN for every NaN, +0 for -0 */
static inline uint32_t select_index(uint64_t key) {
    return ~(uint32_t)key;
}
/* Moves the k largest of keys [n] to the front, in any order, and returns the smallest of them. 0 < k <= n.
 */
uint64_t select_largest(uint64_t *keys, size_t n, size_t k);
/* Sorts descending. spare: [n]. */
void select_sort(uint64_t *keys, uint64_t *spare, size_t n);

#endif
