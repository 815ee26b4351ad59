/* prefix.h: which page holds which tokens after which beginning: an index of computed pages, without their
 * memory.
 *
 * An entry is a page with its tokens, behind the page that holds the tokens before (its parent), in a space.
 * It is found by a hash of all that and then compared, token by token; a parent stays as long as it has
 * children, so the chain behind a page is its whole beginning. Spaces never share: one is named by tenant and
 * salt, or by the salt alone for what is shared between tenants; each part of the name goes with its length,
 * so that no two names can be the same bytes. A page that is not full has an entry too: its tokens may be
 * copied, and grow. Full ones are there once. Pages that nobody holds lie in order of their last use; the
 * oldest without children goes first. Only prefix_space_open allocates. Owner: whoever holds the engine's
 * lock. */
#ifndef LM_PREFIX_H
#define LM_PREFIX_H

#include "lm/pages.h"

typedef struct prefix_cache prefix_cache;
typedef struct prefix_space prefix_space;

MUST_USE status prefix_cache_create(prefix_cache **out, size_t n_pages, size_t page_tokens, error *err);
void prefix_cache_free(prefix_cache *c);
size_t prefix_cache_n_idle(const prefix_cache *c); /* pages that nobody holds */

/* The space of a name: the same for the same name. tenant NULL: of all who say that they share. */
MUST_USE status prefix_space_open(prefix_space **out, prefix_cache *c, const char *tenant, const char *salt,
                                  error *err);
/* A space that no other open finds. */
MUST_USE status prefix_space_open_alone(prefix_space **out, prefix_cache *c, error *err);
prefix_space *prefix_space_ref(prefix_space *s);
void prefix_space_close(prefix_cache *c, prefix_space *s); /* its pages stay until they are removed */

/* The full page that holds tokens [page_tokens] after `parent` (NO_PAGE: the beginning), or NO_PAGE. */
uint32_t prefix_find(const prefix_cache *c, const prefix_space *s, uint32_t parent, const int32_t *tokens);
/* The page after `parent` that begins with the most of tokens [n]: *common of them, or NO_PAGE. Of many
 * children the newest are looked at. */
uint32_t prefix_find_part(const prefix_cache *c, const prefix_space *s, uint32_t parent,
                          const int32_t *tokens, size_t n, size_t *common);

/* Enters a full page, or makes one that was entered in part full. If those tokens have a page already, that
 * one is returned, and `page` has no entry any more. */
uint32_t prefix_insert(prefix_cache *c, prefix_space *s, uint32_t parent, uint32_t page,
                       const int32_t *tokens);
/* Enters the first n < page_tokens tokens of a page that its owner goes on writing, or more of them. Nothing
 * is entered if another page begins with them. */
void prefix_insert_part(prefix_cache *c, prefix_space *s, uint32_t parent, uint32_t page,
                        const int32_t *tokens, size_t n);
size_t prefix_tokens(const prefix_cache *c, uint32_t page); /* entered, 0: no entry */
bool prefix_has_children(const prefix_cache *c, uint32_t page);
void prefix_remove(prefix_cache *c, uint32_t page); /* has an entry and no children */

void prefix_idle(prefix_cache *c, uint32_t page); /* nobody holds it any more: the newest of those */
void prefix_use(prefix_cache *c, uint32_t page);  /* somebody holds it again */
uint32_t prefix_oldest(const prefix_cache *c);    /* of the idle ones; NO_PAGE if there is none */

#endif
