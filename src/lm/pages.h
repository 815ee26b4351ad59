/* pages.h: which pages of a pool are taken, by how many, and which one comes next. No memory of pages here.
 *
 * A page is free, or held by `refs` owners, or kept: held by nobody and not free (page_unref leaves it so
 * until page_give). Pages come in runs of PAGE_RUN that lie side by side in memory; a sequence that takes
 * page after page gets those of one run as long as nobody else needs them. Nothing allocates after create.
 * Owner: whoever holds the engine's lock. */
#ifndef LM_PAGES_H
#define LM_PAGES_H

#include "base/status.h"

enum { PAGE_RUN = 8 };
#define NO_PAGE UINT32_MAX

typedef struct page_pool page_pool;

MUST_USE status page_pool_create(page_pool **out, size_t n_pages, error *err);
void page_pool_free(page_pool *p);
size_t page_pool_size(const page_pool *p);
size_t page_pool_n_free(const page_pool *p);

/* A free page with one owner: of the run of `after` if that has any, the next one first; else of the run with
 * the most free pages. after: NO_PAGE at the beginning of a run. NO_PAGE if none is free. */
uint32_t page_take(page_pool *p, uint32_t after);
uint32_t page_refs(const page_pool *p, uint32_t page);
void page_ref(page_pool *p, uint32_t page);
uint32_t page_unref(page_pool *p, uint32_t page); /* owners that are left */
void page_give(page_pool *p, uint32_t page);      /* a page without owners becomes free */

#endif
