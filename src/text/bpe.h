/* bpe.h: byte-pair merging of a sequence of symbols by rank.
 *
 * Always the adjacent pair of lowest rank merges next, the leftmost of equals: what the `tokenizers` library
 * does. Short sequences use a scan, longer ones a heap, and very long ones overlapping windows, so that time
 * is linear in the length and memory for the work is bounded. Windows rest on this: a tokenization is the one
 * BPE gives exactly if each two neighbours are what BPE gives for their own text, as long as no merge makes a
 * pair of lower rank than its own. Two windows that agree on a token where they meet can therefore be joined
 * there. The condition is watched while merging; where it fails the whole sequence goes through the heap. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "text/tokenizer.h"

typedef struct bpe_merge {
    uint64_t pair; /* (left << 32 | right) + 1; 0: an empty slot */
    uint32_t rank;
    int32_t id; /* what the pair becomes */
} bpe_merge;

#define BPE_NO_RANK UINT32_MAX

/* Open addressing, at most half full. Immutable once filled. */
typedef struct bpe_merges {
    bpe_merge *slots; /* zeroed pages, huge ones where there are any: look-ups are at random */
    size_t mask;      /* slots - 1 */
    size_t count;
} bpe_merges;

MUST_USE status bpe_merges_init(bpe_merges *m, size_t n, error *err); /* room for n */
void bpe_merges_free(bpe_merges *m);
/* False: the pair is there already. */
bool bpe_merges_add(bpe_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id);

static inline uint64_t bpe_pair(int32_t left, int32_t right) {
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static inline size_t bpe_hash(uint64_t pair) {
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 32);
}

/* NULL if the two do not merge. */
static inline const bpe_merge *bpe_find(const bpe_merges *m, int32_t left, int32_t right) {
    uint64_t pair = bpe_pair(left, right);
    for (size_t i = bpe_hash(pair) & m->mask;; i = (i + 1) & m->mask) {
        if (m->slots[i].pair == pair) return &m->slots[i];
        if (m->slots[i].pair == 0) return NULL;
    }
}

/* Working memory, kept between calls. One owner. */
typedef struct bpe_scratch bpe_scratch;
void bpe_scratch_free(bpe_scratch *s); /* NULL is fine */

/* Appends what symbols[n] become to *out. *scratch is made when it is first needed. */
MUST_USE status bpe_encode(const bpe_merges *m, bpe_scratch **scratch, const int32_t *symbols, size_t n,
                           token_list *out, error *err);

#endif
