/* kv_cache.h: the pages of all sequences: taken as tokens come, shared while they are equal, kept while there
 * is room.
 *
 * A sequence holds pages only while it is computed. What it computed is entered in the prefix cache
 * (kv_seq_publish) and stays there after kv_seq_release, until somebody needs the page: pages that nobody
 * holds are given up in order of their last use. A page with several holders, or whose entry covers the
 * position, is copied before it is written. Nothing that a page held before is ever seen: pages are zeroed
 * when taken. Only create and open allocate. Owner: whoever holds the engine's lock; writers of keys and
 * values hold the page alone. */
#ifndef LM_KV_CACHE_H
#define LM_KV_CACHE_H

#include "lm/kv.h"
#include "lm/prefix.h"

typedef struct kv_cache kv_cache;

MUST_USE status kv_cache_create(kv_cache **out, const lm_config *c, kv_type type, size_t n_pages, error *err);
void kv_cache_free(kv_cache *c);
kv_pool *kv_cache_pool(kv_cache *c);
prefix_cache *kv_cache_prefix(kv_cache *c);

size_t kv_cache_pages(const kv_cache *c);
size_t kv_cache_n_kept(const kv_cache *c);      /* held by nobody, but with an entry */
size_t kv_cache_n_available(const kv_cache *c); /* free or kept */
uint64_t kv_cache_evictions(const kv_cache *c); /* pages given up */

/* Pieces of the pool's memory (kv.h) that the caller shall fetch now, from *first on: those of pages that
 * were taken since; if there are none, those of pages to come, within `ahead` bytes behind, `most` of them.
 * Fresh pages are taken in the order in which they lie. */
size_t kv_cache_cold(kv_cache *c, size_t ahead, size_t most, size_t *first);
size_t kv_cache_run_bytes(const kv_cache *c); /* memory of the pages that are taken one after the other */

MUST_USE status kv_seq_open(kv_seq *s, size_t max_context, error *err);
void kv_seq_close(kv_cache *c, kv_seq *s);

/* Pages that kv_seq_reserve would take. */
size_t kv_seq_missing(const kv_cache *c, const kv_seq *s, size_t length);
/* Makes positions [s->length, length) writable; false, and nothing done, if too few pages are available. */
MUST_USE bool kv_seq_reserve(kv_cache *c, kv_seq *s, size_t length);
/* Forgets positions from `length` on. */
void kv_seq_truncate(kv_cache *c, kv_seq *s, size_t length);
void kv_seq_release(kv_cache *c, kv_seq *s);                   /* holds no page any more */
void kv_seq_fork(kv_cache *c, kv_seq *to, const kv_seq *from); /* `to` is empty and as long */

/* Takes over what is known of tokens [n]: whole pages for an empty sequence; then, from the page that begins
 * alike, a part by copy, for which a page must be available. Both set s->length. */
void kv_seq_adopt(kv_cache *c, kv_seq *s, const prefix_space *space, const int32_t *tokens, size_t n);
void kv_seq_adopt_part(kv_cache *c, kv_seq *s, const prefix_space *space, const int32_t *tokens, size_t n);
/* Enters the sequence's pages, tokens [s->length]; with `part` its last page too, if that is not full. A page
 * that somebody else entered meanwhile takes the place of the sequence's own. */
void kv_seq_publish(kv_cache *c, kv_seq *s, prefix_space *space, const int32_t *tokens, bool part);

#endif
