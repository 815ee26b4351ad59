/* special.h: the tokens that are looked for in the raw text before anything else: control tokens and those
 * that the vocabulary's author added by hand ("user defined").
 *
 * A trie over bytes. The leftmost match wins, of those the longest. Time is linear in the text, whatever the
 * number of tokens, with the length of the longest as the worst factor. Immutable once built; any thread. */
#ifndef TEXT_SPECIAL_H
#define TEXT_SPECIAL_H

#include "base/status.h"

typedef struct special_edge {
    uint64_t key; /* (node << 8 | byte) + 1; 0: an empty slot */
    uint32_t node;
} special_edge;

typedef struct special_ends {
    int32_t control, user; /* the token that ends in this node, -1: none */
} special_ends;

typedef struct special_set {
    special_edge *edges; /* open addressing */
    size_t mask;
    special_ends *ends; /* [n_nodes]; node 0 is the root */
    size_t n_nodes;
    bool starts_user[256], starts_any[256];
} special_set;

/* Room for tokens of `bytes` bytes together. */
MUST_USE status special_set_init(special_set *s, size_t bytes, error *err);
void special_set_free(special_set *s);
/* text must not be empty. */
void special_set_add(special_set *s, const char *text, size_t len, int32_t id, bool control);

typedef struct special_match {
    const char *begin, *end;
    int32_t id;
} special_match;

/* The next match in [p, end); control tokens only if `control`. False: there is none. */
bool special_set_find(const special_set *s, const char *p, const char *end, bool control, special_match *out);

#endif
