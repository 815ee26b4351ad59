/* kv_cache.c: see kv_cache.h. */
#include "lm/kv_cache.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct kv_cache {
    kv_pool *pool;
    page_pool *pages;
    prefix_cache *prefix;
    uint8_t *dirty; /* [n_pages]: was written, must be zeroed before it is used again */
    uint64_t evictions;
    size_t used, warm; /* pieces of memory: of pages that were ever taken; fetched */
};

status kv_cache_create(kv_cache **out, const lm_config *config, kv_type type, size_t n_pages, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    kv_cache *c = mem_calloc(1, sizeof *c);
    if (!c) return error_no_memory(err, "KV cache", sizeof *c);
    TRY_GOTO(kv_pool_create(&c->pool, config, type, n_pages, err));
    TRY_GOTO(page_pool_create(&c->pages, n_pages, err));
    TRY_GOTO(prefix_cache_create(&c->prefix, n_pages, KV_PAGE, err));
    c->dirty = mem_calloc(n_pages, 1);
    if (!c->dirty) {
        st = error_no_memory(err, "KV cache", n_pages);
        goto cleanup;
    }
    *out = c;
    c = NULL;
cleanup:
    kv_cache_free(c);
    return st;
}

void kv_cache_free(kv_cache *c) {
    if (!c) return;
    kv_pool_free(c->pool);
    page_pool_free(c->pages);
    prefix_cache_free(c->prefix);
    mem_free(c->dirty);
    mem_free(c);
}

kv_pool *kv_cache_pool(kv_cache *c) {
    return c->pool;
}

prefix_cache *kv_cache_prefix(kv_cache *c) {
    return c->prefix;
}

size_t kv_cache_pages(const kv_cache *c) {
    return page_pool_size(c->pages);
}

size_t kv_cache_n_kept(const kv_cache *c) {
    return prefix_cache_n_idle(c->prefix);
}

size_t kv_cache_n_available(const kv_cache *c) {
    return page_pool_n_free(c->pages) + prefix_cache_n_idle(c->prefix);
}

uint64_t kv_cache_evictions(const kv_cache *c) {
    return c->evictions;
}

/* ---- pages ------------------------------------------------------------------------------------------ */

/* A run's worth at once: the pages of one sequence are given up together, so that whoever takes them finds
 * them side by side. */
static void evict(kv_cache *c) {
    for (int i = 0; i < PAGE_RUN; i++) {
        const uint32_t page = prefix_oldest(c->prefix);
        if (page == NO_PAGE) return;
        prefix_remove(c->prefix, page);
        page_give(c->pages, page);
        c->evictions++;
    }
}

static uint32_t take_page(kv_cache *c, uint32_t after, bool clear) {
    if (page_pool_n_free(c->pages) == 0) evict(c);
    const uint32_t page = page_take(c->pages, after);
    assert(page != NO_PAGE);
    if (!c->dirty[page]) {
        const size_t pieces = kv_pool_pieces(c->pool, (size_t)page + 1);
        if (pieces > c->used) c->used = pieces;
    }
    if (clear && c->dirty[page]) kv_clear_page(c->pool, page);
    c->dirty[page] = 1;
    return page;
}

static void hold(kv_cache *c, uint32_t page) {
    if (page_refs(c->pages, page) == 0) prefix_use(c->prefix, page);
    page_ref(c->pages, page);
}

static void drop(kv_cache *c, uint32_t page) {
    if (page_unref(c->pages, page) > 0) return;
    if (prefix_tokens(c->prefix, page) > 0) {
        prefix_idle(c->prefix, page);
    } else {
        page_give(c->pages, page);
    }
}

size_t kv_cache_cold(kv_cache *c, size_t ahead, size_t most, size_t *first) {
    const size_t all = kv_pool_pieces(c->pool, kv_cache_pages(c));
    size_t end = c->used;
    if (end <= c->warm) {
        end = c->used + (ahead + KV_PIECE - 1) / KV_PIECE;
        if (end > c->warm + most) end = c->warm + most;
        if (end > all) end = all;
    }
    *first = c->warm;
    const size_t n = end > c->warm ? end - c->warm : 0;
    c->warm += n;
    return n;
}

size_t kv_cache_run_bytes(const kv_cache *c) {
    return kv_pool_pieces(c->pool, 1) * KV_PIECE;
}

/* ---- one sequence ----------------------------------------------------------------------------------- */

status kv_seq_open(kv_seq *s, size_t max_context, error *err) {
    *s = (kv_seq){0};
    size_t max_pages = (max_context + KV_PAGE - 1) / KV_PAGE;
    s->pages = mem_alloc(max_pages * sizeof *s->pages);
    if (!s->pages) return error_no_memory(err, "KV page table", max_pages * sizeof *s->pages);
    s->max_pages = max_pages;
    return CHURON_OK;
}

void kv_seq_close(kv_cache *c, kv_seq *s) {
    kv_seq_release(c, s);
    mem_free(s->pages);
    *s = (kv_seq){0};
}

/* The page that the next position goes to, if the sequence has it; NO_PAGE if it begins a page. */
static uint32_t open_page(const kv_seq *s) {
    return s->length % KV_PAGE ? s->pages[s->length / KV_PAGE] : NO_PAGE;
}

/* Its open page has other holders, or tokens of it that others may find lie behind the length. */
static bool must_copy(const kv_cache *c, const kv_seq *s) {
    const uint32_t page = open_page(s);
    if (page == NO_PAGE) return false;
    return page_refs(c->pages, page) > 1 || prefix_tokens(c->prefix, page) > s->length % KV_PAGE;
}

size_t kv_seq_missing(const kv_cache *c, const kv_seq *s, size_t length) {
    const size_t need = (length + KV_PAGE - 1) / KV_PAGE;
    return (need > s->n_pages ? need - s->n_pages : 0) + (length > s->length && must_copy(c, s));
}

static uint32_t before_in_run(const kv_seq *s, size_t at) {
    return at % PAGE_RUN ? s->pages[at - 1] : NO_PAGE;
}

static void copy_open_page(kv_cache *c, kv_seq *s) {
    const size_t at = s->length / KV_PAGE;
    const uint32_t old = s->pages[at], page = take_page(c, before_in_run(s, at), false);
    kv_copy_page(c->pool, page, old);
    kv_clear_tail(c->pool, page, s->length % KV_PAGE);
    s->pages[at] = page;
    s->stale = false;
    drop(c, old);
}

bool kv_seq_reserve(kv_cache *c, kv_seq *s, size_t length) {
    assert((length + KV_PAGE - 1) / KV_PAGE <= s->max_pages);
    if (kv_seq_missing(c, s, length) > kv_cache_n_available(c)) return false;
    if (length > s->length && must_copy(c, s)) {
        copy_open_page(c, s);
    } else if (length > s->length && s->stale) {
        if (open_page(s) != NO_PAGE) kv_clear_tail(c->pool, open_page(s), s->length % KV_PAGE);
        s->stale = false;
    }
    while (s->n_pages * KV_PAGE < length) {
        const uint32_t page = take_page(c, before_in_run(s, s->n_pages), true);
        s->pages[s->n_pages++] = page;
    }
    return true;
}

void kv_seq_truncate(kv_cache *c, kv_seq *s, size_t length) {
    const size_t keep = (length + KV_PAGE - 1) / KV_PAGE;
    while (s->n_pages > keep) drop(c, s->pages[--s->n_pages]);
    if (length >= s->length) return;
    s->length = length;
    if (s->indexed > length / KV_PAGE) s->indexed = length / KV_PAGE;
    s->stale = true; /* cleared when it is written: until then others may hold the page */
}

void kv_seq_release(kv_cache *c, kv_seq *s) {
    while (s->n_pages > 0) drop(c, s->pages[--s->n_pages]);
    s->length = s->indexed = 0;
    s->stale = false;
}

void kv_seq_fork(kv_cache *c, kv_seq *to, const kv_seq *from) {
    const size_t n = (from->length + KV_PAGE - 1) / KV_PAGE;
    assert(to->n_pages == 0 && n <= to->max_pages);
    for (size_t i = 0; i < n; i++) {
        to->pages[i] = from->pages[i];
        page_ref(c->pages, to->pages[i]);
    }
    to->n_pages = n;
    to->length = from->length;
    to->indexed = from->indexed;
    to->stale = from->stale;
}

/* ---- reuse ------------------------------------------------------------------------------------------ */

void kv_seq_adopt(kv_cache *c, kv_seq *s, const prefix_space *space, const int32_t *tokens, size_t n) {
    assert(s->n_pages == 0 && s->length == 0);
    uint32_t parent = NO_PAGE;
    for (; s->length + KV_PAGE <= n; s->length += KV_PAGE) {
        const uint32_t page = prefix_find(c->prefix, space, parent, tokens + s->length);
        if (page == NO_PAGE) break;
        hold(c, page);
        s->pages[s->n_pages++] = parent = page;
    }
    s->indexed = s->n_pages;
}

void kv_seq_adopt_part(kv_cache *c, kv_seq *s, const prefix_space *space, const int32_t *tokens, size_t n) {
    if (n <= s->length || s->length % KV_PAGE) return;
    const uint32_t parent = s->n_pages ? s->pages[s->n_pages - 1] : NO_PAGE;
    const size_t most = n - s->length < KV_PAGE ? n - s->length : KV_PAGE - 1;
    size_t common;
    const uint32_t found = prefix_find_part(c->prefix, space, parent, tokens + s->length, most, &common);
    if (found == NO_PAGE) return;
    const bool whole = page_refs(c->pages, found) == 0 && prefix_tokens(c->prefix, found) == common;
    hold(c, found);
    if (whole) { /* nobody else writes behind its tokens: it is ours */
        s->stale = true;
        s->pages[s->n_pages++] = found;
        s->length += common;
        return;
    }
    if (kv_cache_n_available(c) > 0) {
        const uint32_t page = take_page(c, before_in_run(s, s->n_pages), false);
        kv_copy_page(c->pool, page, found);
        kv_clear_tail(c->pool, page, common);
        s->pages[s->n_pages++] = page;
        s->length += common;
    }
    drop(c, found);
}

void kv_seq_publish(kv_cache *c, kv_seq *s, prefix_space *space, const int32_t *tokens, bool part) {
    for (; (s->indexed + 1) * KV_PAGE <= s->length; s->indexed++) {
        const size_t at = s->indexed;
        const uint32_t parent = at ? s->pages[at - 1] : NO_PAGE, own = s->pages[at];
        const uint32_t page = prefix_insert(c->prefix, space, parent, own, tokens + at * KV_PAGE);
        if (page == own) continue;
        hold(c, page);
        s->pages[at] = page;
        drop(c, own);
    }
    const size_t rest = s->length % KV_PAGE, at = s->length / KV_PAGE;
    if (!part || rest == 0) return;
    prefix_insert_part(c->prefix, space, at ? s->pages[at - 1] : NO_PAGE, s->pages[at], tokens + at * KV_PAGE,
                       rest);
}
