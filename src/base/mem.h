/* mem.h: the only way to the heap. One place to count, to fail on purpose and to forbid.
 *
 * mem_fail_at(n) makes the n-th allocation from now (1 = the next) return NULL: tests sweep n until a run
 * succeeds. mem_guard_begin/_end bracket code that must not allocate (decode after warm-up): in builds with
 * CHURON_MEM_GUARD an allocation on that thread inside the bracket aborts the process. All functions are
 * thread-safe; the guard is per thread, the failure counter is process-wide. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t bytes);                     /* NULL if none; bytes 0 gives a valid pointer */
void *mem_calloc(size_t count, size_t size);       /* zeroed; NULL on overflow of count*size too */
void *mem_realloc(void *p, size_t bytes);          /* on NULL the old block is untouched */
void *mem_aligned(size_t alignment, size_t bytes); /* alignment: a power of two; free with mem_free */
void mem_free(void *p);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n); /* copies n bytes and adds a zero */

/* Large, page-aligned, zeroed memory, on huge pages where the system grants them. Freed by mem_pages_free
 * with the same size. */
void *mem_pages(size_t bytes);
/* No huge pages for this memory, which nobody has written yet: where much is asked for at once, the system
 * may spend longer on finding them than they save. */
void mem_pages_ordinary(void *p, size_t bytes);
/* Has the system give the memory of a range of mem_pages now instead of at its first write; its content
 * stays. A piece of advice: where the system does not know it, nothing happens. */
void mem_pages_populate(void *p, size_t bytes);
void mem_pages_free(void *p, size_t bytes);

/* Gives whole pages inside a block of any of these functions back, now; what was in them is lost. */
void mem_forget(void *p, size_t bytes);
/* Gives free memory of the heap back to the system. Takes a while: after much was freed. */
void mem_trim(void);

void mem_fail_at(int64_t n); /* 0: never */
int64_t mem_count(void);     /* allocations since start */
void mem_guard_begin(void);
void mem_guard_end(void);

/* Checked sizes: false on overflow, and *out is untouched. */
static inline bool size_mul(size_t a, size_t b, size_t *out) {
    if (b != 0 && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}
static inline bool size_add(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return false;
    *out = a + b;
    return true;
}

#endif
