/* kv.c: see kv.h. */
#include "lm/kv.h"

#include "base/mem.h"
#include "lm/pages.h"

#include <string.h>

/* Pages that lie side by side for one layer and head: as many as a chunk of attention reads, so that it reads
 * one stream (measured at 4,096 keys: pages 700 kB apart come at a third of the bandwidth). Sequences take
 * pages run by run (pages.h), so their chunks are runs as long as the pool is not much fragmented. */
enum { RUN_PAGES = ATTN_CHUNK / KV_PAGE };
_Static_assert((int)RUN_PAGES == (int)PAGE_RUN, "pages are given out in the runs in which they lie");

struct kv_pool {
    size_t n_pages;
    uint8_t *data;
    kv_type type;
    size_t key_bytes;  /* of a page's keys, one layer and head */
    size_t head_bytes; /* keys and values */
    size_t bytes;
    uint32_t n_layer, n_head;
    size_t head_dim_v;
};

size_t kv_bytes_per_token(const lm_config *c, kv_type type) {
    const size_t head = kv_page_bytes(type, c->head_dim_k) + kv_page_bytes(type, c->head_dim_v);
    return (size_t)c->n_layer * c->n_head_kv * (head / KV_PAGE);
}

status kv_pool_create(kv_pool **out, const lm_config *c, kv_type type, size_t n_pages, error *err) {
    *out = NULL;
    kv_pool *p = mem_calloc(1, sizeof *p);
    if (!p) return error_no_memory(err, "KV cache", sizeof *p);
    p->n_layer = c->n_layer;
    p->n_head = c->n_head_kv;
    p->type = type;
    p->head_dim_v = c->head_dim_v;
    p->key_bytes = kv_page_bytes(type, c->head_dim_k);
    p->head_bytes = p->key_bytes + kv_page_bytes(type, c->head_dim_v);
    p->n_pages = n_pages;
    const size_t whole = (n_pages + RUN_PAGES - 1) / RUN_PAGES * RUN_PAGES;
    const size_t page_bytes = p->head_bytes * p->n_head * p->n_layer;
    bool fits = n_pages > 0 && n_pages < UINT32_MAX && size_mul(whole, page_bytes, &p->bytes);
    p->data = fits ? mem_pages(p->bytes) : NULL;
    if (!p->data) {
        status st = error_set(err, CHURON_NO_MEMORY,
                              "KV cache: no memory for %zu bytes; a smaller context or kv_memory needs less",
                              p->bytes);
        kv_pool_free(p);
        return st;
    }
    *out = p;
    return CHURON_OK;
}

void kv_pool_free(kv_pool *p) {
    if (!p) return;
    mem_pages_free(p->data, p->bytes);
    mem_free(p);
}

size_t kv_pool_pages(const kv_pool *p) {
    return p->n_pages;
}

kv_type kv_pool_type(const kv_pool *p) {
    return p->type;
}

void *kv_keys(const kv_pool *p, uint32_t page, uint32_t layer, uint32_t head) {
    const size_t run = page / RUN_PAGES, in_run = page % RUN_PAGES;
    return p->data + (((run * p->n_layer + layer) * p->n_head + head) * RUN_PAGES + in_run) * p->head_bytes;
}

void *kv_values(const kv_pool *p, uint32_t page, uint32_t layer, uint32_t head) {
    return (uint8_t *)kv_keys(p, page, layer, head) + p->key_bytes;
}

size_t kv_pool_pieces(const kv_pool *p, size_t n_pages) {
    const size_t run_bytes = RUN_PAGES * p->head_bytes * p->n_head * p->n_layer;
    return ((n_pages + RUN_PAGES - 1) / RUN_PAGES * run_bytes + KV_PIECE - 1) / KV_PIECE;
}

void kv_pool_fetch(const kv_pool *p, size_t piece) {
    const size_t from = piece * KV_PIECE, to = from + KV_PIECE < p->bytes ? from + KV_PIECE : p->bytes;
    mem_pages_populate(p->data + from, to - from);
}

void kv_clear_page(const kv_pool *p, uint32_t page) {
    for (uint32_t layer = 0; layer < p->n_layer; layer++) {
        for (uint32_t head = 0; head < p->n_head; head++) {
            memset(kv_keys(p, page, layer, head), 0, p->head_bytes);
        }
    }
}

/* What lies behind the length must be zero again: a stale infinity times a masked weight of 0 would be NaN.
 * The weights of KV_Q8 are masked together with its scales: nothing stale takes part. */
void kv_clear_tail(const kv_pool *p, uint32_t page, size_t from) {
    if (p->type == KV_Q8) return;
    for (uint32_t layer = 0; layer < p->n_layer; layer++) {
        for (uint32_t head = 0; head < p->n_head; head++) {
            uint16_t *values = kv_values(p, page, layer, head);
            memset(values + from * p->head_dim_v, 0, (KV_PAGE - from) * p->head_dim_v * sizeof *values);
        }
    }
}

void kv_copy_page(const kv_pool *p, uint32_t to, uint32_t from) {
    for (uint32_t layer = 0; layer < p->n_layer; layer++) {
        for (uint32_t head = 0; head < p->n_head; head++) {
            memcpy(kv_keys(p, to, layer, head), kv_keys(p, from, layer, head), p->head_bytes);
        }
    }
}
