/* mem.c: see mem.h. */
#define _GNU_SOURCE
#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Relaxed is enough for both: they are counters that publish nothing else. */
static atomic_int_least64_t allocations;
static atomic_int_least64_t fail_at; /* value of `allocations` that fails; 0: none */

#ifdef CHURON_MEM_GUARD
static _Thread_local int guard_depth;
#endif

void mem_guard_begin(void) {
#ifdef CHURON_MEM_GUARD
    guard_depth++;
#endif
}

void mem_guard_end(void) {
#ifdef CHURON_MEM_GUARD
    guard_depth--;
#endif
}

void mem_fail_at(int64_t n) {
    int64_t now = atomic_load_explicit(&allocations, memory_order_relaxed);
    atomic_store_explicit(&fail_at, n > 0 ? now + n : 0, memory_order_relaxed);
}

int64_t mem_count(void) {
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

static bool may_allocate(void) {
#ifdef CHURON_MEM_GUARD
    if (guard_depth > 0) abort();
#endif
    int64_t n = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
    return n != atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *mem_alloc(size_t bytes) {
    return may_allocate() ? malloc(bytes ? bytes : 1) : NULL;
}

void *mem_calloc(size_t count, size_t size) {
    return may_allocate() ? calloc(count ? count : 1, size ? size : 1) : NULL;
}

void *mem_realloc(void *p, size_t bytes) {
    return may_allocate() ? realloc(p, bytes ? bytes : 1) : NULL;
}

void *mem_aligned(size_t alignment, size_t bytes) {
    void *p = NULL;
    if (!may_allocate() || posix_memalign(&p, alignment, bytes ? bytes : 1) != 0) return NULL;
    return p;
}

void mem_free(void *p) {
    free(p);
}

char *mem_strndup(const char *s, size_t n) {
    if (n == SIZE_MAX) return NULL;
    char *copy = mem_alloc(n + 1);
    if (!copy) return NULL;
    if (n) memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

char *mem_strdup(const char *s) {
    return mem_strndup(s, strlen(s));
}

void *mem_pages(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    if (!may_allocate() || bytes == 0 || bytes > SIZE_MAX - 2 * huge) return NULL;
    if (bytes < huge) {
        void *small = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return small == MAP_FAILED ? NULL : small;
    }
    /* Over-map by one huge page and give the ends back, so that the block starts on a huge-page border. */
    char *raw = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    const size_t page = 4096;
    size_t head = (huge - ((uintptr_t)raw & (huge - 1))) & (huge - 1);
    size_t kept = (bytes + page - 1) & ~(page - 1);
    if (head) munmap(raw, head);
    size_t total = (bytes + huge + page - 1) & ~(page - 1);
    if (total > head + kept) munmap(raw + head + kept, total - head - kept);
    (void)madvise(raw + head, kept, MADV_HUGEPAGE); /* advice: refused is fine */
    return raw + head;
}

void mem_pages_ordinary(void *p, size_t bytes) {
    (void)madvise(p, bytes, MADV_NOHUGEPAGE);
}

void mem_pages_populate(void *p, size_t bytes) {
#if defined(MADV_POPULATE_WRITE)
    (void)madvise(p, bytes, MADV_POPULATE_WRITE);
#else
    (void)madvise(p, bytes, 23); /* its number in Linux; older kernels refuse, which is fine */
#endif
}

void mem_pages_free(void *p, size_t bytes) {
    if (p && bytes) munmap(p, bytes);
}

void mem_forget(void *p, size_t bytes) {
    const uintptr_t page = 4096, from = ((uintptr_t)p + page - 1) & ~(page - 1),
                    to = ((uintptr_t)p + bytes) & ~(page - 1);
    if (p && from < to) (void)madvise((char *)p + (from - (uintptr_t)p), to - from, MADV_DONTNEED);
}

void mem_trim(void) {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
