/* kv.h: keys and values of past tokens, in pages of KV_PAGE positions from one pool.
 *
 * A sequence has a table of pages; pages hold all layers' KV heads for KV_PAGE positions, laid out as the
 * attention kernels read them. The pool is memory alone: who holds which page is kv_cache.h's.
 * Owner: the thread that steps the engine. */
#ifndef LM_KV_H
#define LM_KV_H

#include "kernel/kernel.h"
#include "lm/config.h"

typedef struct kv_pool kv_pool;

typedef struct kv_seq { /* zero-initialise; kv_cache.h opens it for a number of tokens */
    uint32_t *pages;    /* page numbers, [n_pages] */
    size_t n_pages, max_pages;
    size_t length;  /* positions that are written */
    size_t indexed; /* leading pages that the prefix cache has whole */
    bool stale;     /* behind the length, the page that it ends in may not be zero */
} kv_seq;

size_t kv_bytes_per_token(const lm_config *c, kv_type type);
MUST_USE status kv_pool_create(kv_pool **out, const lm_config *c, kv_type type, size_t n_pages, error *err);
void kv_pool_free(kv_pool *p);
size_t kv_pool_pages(const kv_pool *p);
kv_type kv_pool_type(const kv_pool *p);

/* Page `page` of one layer and KV head, as kernel.h lays out the pool's type: keys, and values. */
void *kv_keys(const kv_pool *p, uint32_t page, uint32_t layer, uint32_t head);
void *kv_values(const kv_pool *p, uint32_t page, uint32_t layer, uint32_t head);

/* What is not written must be zero: see kernel.h. */
void kv_clear_page(const kv_pool *p, uint32_t page);
void kv_clear_tail(const kv_pool *p, uint32_t page, size_t from); /* positions from `from` of the page */
void kv_copy_page(const kv_pool *p, uint32_t to, uint32_t from);

/* The pool's memory comes from the system when it is first written, a piece of KV_PIECE bytes at a time,
 * which takes 1.5 to 5 ms (a guest's memory may have to be fetched from its host). How many pieces the pages
 * [0, n_pages) lie in; fetching one, which changes no content (any thread). */
enum { KV_PIECE = 2 << 20 };
size_t kv_pool_pieces(const kv_pool *p, size_t n_pages);
void kv_pool_fetch(const kv_pool *p, size_t piece);

#endif
