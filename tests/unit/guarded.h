/* guarded.h: memory that ends at, or begins behind, a page that faults, and numbers drawn from a fixed seed.
 * For tests of kernels. */
#ifndef TESTS_UNIT_GUARDED_H
#define TESTS_UNIT_GUARDED_H

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct guarded {
    uint8_t *map;
    void *data;
    size_t map_bytes;
} guarded;

/* at_end: data ends at a guard page (as closely as `align` allows), else it begins behind one. */
static inline guarded guard_new(size_t bytes, size_t align, bool at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    guarded g = {.map_bytes = body + 2 * page};
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(g.map, MAP_FAILED);
    if (body > 0) assert_int_equal(mprotect(g.map + page, body, PROT_READ | PROT_WRITE), 0);
    g.data = g.map + page + (at_end ? (body - bytes) / align * align : 0);
    return g;
}

static inline guarded guard_copy(const void *from, size_t bytes, size_t align, bool at_end) {
    guarded g = guard_new(bytes, align, at_end);
    if (bytes > 0) memcpy(g.data, from, bytes);
    return g;
}

static inline void guard_free(guarded *g) {
    assert_int_equal(munmap(g->map, g->map_bytes), 0);
}

static uint64_t rng = 1;

static inline uint32_t next_random(void) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33);
}

static inline size_t random_below(size_t n) {
    return next_random() % n;
}

static inline float next_float(void) { /* -1..1 */
    return (float)((double)next_random() / 1073741824.0 - 1.0);
}

/* The same bits, or NaN both (which NaN it is may depend on the order of an instruction's operands). */
static inline bool same_floats(const float *a, const float *b, size_t n, size_t *at) {
    for (size_t i = 0; i < n; i++) {
        if (memcmp(a + i, b + i, sizeof *a) == 0 || (isnan(a[i]) && isnan(b[i]))) continue;
        *at = i;
        return false;
    }
    return true;
}

#endif
