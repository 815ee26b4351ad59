/* pages.c: see pages.h. Runs are kept in lists by the number of their free pages. */
#include "lm/pages.h"

#include "base/mem.h"

#include <assert.h>

typedef struct page_run {
    uint32_t next, before; /* in the list of its count; NO_PAGE ends it */
    uint8_t free;          /* a bit for each free page */
} page_run;

struct page_pool {
    size_t n_pages, n_runs, n_free;
    uint32_t *refs; /* [n_pages] */
    page_run *runs; /* [n_runs] */
    uint32_t first[PAGE_RUN + 1];
};

static unsigned count_bits(uint8_t mask) {
    unsigned n = 0;
    for (; mask; mask &= (uint8_t)(mask - 1)) n++;
    return n;
}

static unsigned lowest_bit(unsigned mask) {
    unsigned i = 0;
    while (!(mask >> i & 1u)) i++;
    return i;
}

static void link_run(page_pool *p, uint32_t r) {
    page_run *run = &p->runs[r];
    uint32_t *first = &p->first[count_bits(run->free)];
    run->before = NO_PAGE;
    run->next = *first;
    if (run->next != NO_PAGE) p->runs[run->next].before = r;
    *first = r;
}

static void unlink_run(page_pool *p, uint32_t r) {
    const page_run *run = &p->runs[r];
    if (run->next != NO_PAGE) p->runs[run->next].before = run->before;
    *(run->before != NO_PAGE ? &p->runs[run->before].next : &p->first[count_bits(run->free)]) = run->next;
}

static void set_free(page_pool *p, uint32_t r, uint8_t mask) {
    unlink_run(p, r);
    p->runs[r].free = mask;
    link_run(p, r);
}

status page_pool_create(page_pool **out, size_t n_pages, error *err) {
    *out = NULL;
    page_pool *p = mem_calloc(1, sizeof *p);
    if (!p) return error_no_memory(err, "page pool", sizeof *p);
    p->n_pages = p->n_free = n_pages;
    p->n_runs = (n_pages + PAGE_RUN - 1) / PAGE_RUN;
    p->refs = mem_calloc(n_pages, sizeof *p->refs);
    p->runs = mem_calloc(p->n_runs, sizeof *p->runs);
    if (!p->refs || !p->runs) {
        page_pool_free(p);
        return error_no_memory(err, "page pool", n_pages * sizeof *p->refs);
    }
    for (size_t i = 0; i <= PAGE_RUN; i++) p->first[i] = NO_PAGE;
    for (size_t r = p->n_runs; r-- > 0;) {
        const size_t n = n_pages - r * PAGE_RUN;
        p->runs[r].free = (uint8_t)(n >= PAGE_RUN ? 0xff : (1u << n) - 1);
        link_run(p, (uint32_t)r);
    }
    *out = p;
    return CHURON_OK;
}

void page_pool_free(page_pool *p) {
    if (!p) return;
    mem_free(p->refs);
    mem_free(p->runs);
    mem_free(p);
}

size_t page_pool_size(const page_pool *p) {
    return p->n_pages;
}

size_t page_pool_n_free(const page_pool *p) {
    return p->n_free;
}

uint32_t page_take(page_pool *p, uint32_t after) {
    if (p->n_free == 0) return NO_PAGE;
    uint32_t r = after == NO_PAGE ? NO_PAGE : after / PAGE_RUN;
    if (r == NO_PAGE || !p->runs[r].free) {
        size_t n = PAGE_RUN;
        while (p->first[n] == NO_PAGE) n--;
        r = p->first[n];
    }
    const unsigned mask = p->runs[r].free;
    unsigned later = after != NO_PAGE && after / PAGE_RUN == r ? mask & ~0u << (after % PAGE_RUN) : mask;
    const unsigned in_run = lowest_bit(later ? later : mask);
    set_free(p, r, (uint8_t)(mask & ~(1u << in_run)));
    p->n_free--;
    const uint32_t page = r * PAGE_RUN + in_run;
    assert(p->refs[page] == 0);
    p->refs[page] = 1;
    return page;
}

uint32_t page_refs(const page_pool *p, uint32_t page) {
    return p->refs[page];
}

void page_ref(page_pool *p, uint32_t page) {
    p->refs[page]++;
}

uint32_t page_unref(page_pool *p, uint32_t page) {
    assert(p->refs[page] > 0);
    return --p->refs[page];
}

void page_give(page_pool *p, uint32_t page) {
    const uint32_t r = page / PAGE_RUN;
    const uint8_t bit = (uint8_t)(1u << page % PAGE_RUN);
    assert(p->refs[page] == 0 && !(p->runs[r].free & bit));
    set_free(p, r, (uint8_t)(p->runs[r].free | bit));
    p->n_free++;
}
