/* kv.h: keys and values of past tokens, in pages of KV_PAGE positions from one pool.
 *
 * A sequence owns a table of pages; pages hold all layers' KV heads for KV_PAGE positions, laid out as the
 * attention kernels read them. The pool is sized once; taking a page never allocates.
 * Owner: the thread that steps the engine. */
#ifndef LM_KV_H
#define LM_KV_H

#include "kernel/kernel.h"
#include "lm/config.h"

typedef struct kv_pool kv_pool;

typedef struct kv_seq { /* zero-initialise; one block, sized at open for `max_context` */
    uint32_t *pages;    /* page numbers, [n_pages] */
    size_t n_pages, max_pages;
    size_t length; /* positions that are written */
} kv_seq;

size_t kv_bytes_per_token(const lm_config *c, kv_type type);
MUST_USE status kv_pool_create(kv_pool **out, const lm_config *c, kv_type type, size_t n_pages, error *err);
void kv_pool_free(kv_pool *p);
size_t kv_pool_free_pages(const kv_pool *p);
size_t kv_pool_pages(const kv_pool *p);
kv_type kv_pool_type(const kv_pool *p);

MUST_USE status kv_seq_open(kv_seq *s, size_t max_context, error *err);
/* Makes room for positions up to `length`; CHURON_LIMIT when the pool has too few pages (nothing taken). */
MUST_USE status kv_seq_reserve(kv_pool *p, kv_seq *s, size_t length, error *err);
void kv_seq_truncate(kv_pool *p, kv_seq *s, size_t length); /* gives pages back */
void kv_seq_close(kv_pool *p, kv_seq *s);

/* Page `page` of one layer and KV head, as kernel.h lays out the pool's type: keys, and values. */
void *kv_keys(const kv_pool *p, uint32_t page, uint32_t layer, uint32_t head);
void *kv_values(const kv_pool *p, uint32_t page, uint32_t layer, uint32_t head);

#endif
