/* test_kv_cache.c: pages side by side, shared, copied before they are written, found again, given up in
 * order; and a random walk in which every position of every sequence must hold what its tokens say, and
 * nothing stale lies behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lm/kv_cache.h"

#include <stdlib.h>
#include <string.h>

enum { DIM = 16, LAYERS = 2, HEADS = 2, CONTEXT = 400 };

static lm_config small_config(void) {
    return (lm_config){.n_layer = LAYERS, .n_head_kv = HEADS, .head_dim_k = DIM, .head_dim_v = DIM};
}

static kv_cache *new_cache(size_t pages) {
    const lm_config c = small_config();
    kv_cache *cache;
    error err;
    assert_int_equal(kv_cache_create(&cache, &c, KV_F16, pages, &err), CHURON_OK);
    return cache;
}

static prefix_space *space_of(kv_cache *c, const char *tenant, const char *salt) {
    prefix_space *s;
    error err;
    assert_int_equal(prefix_space_open(&s, kv_cache_prefix(c), tenant, salt, &err), CHURON_OK);
    return s;
}

/* ---- a sequence that writes what its tokens say ------------------------------------------------------ */

typedef struct writer {
    kv_seq kv;
    prefix_space *space;
    int32_t tokens[CONTEXT];
    size_t n; /* tokens; those before kv.length are written */
} writer;

static writer *new_writer(prefix_space *space) {
    writer *w = calloc(1, sizeof *w);
    error err;
    assert_non_null(w);
    assert_int_equal(kv_seq_open(&w->kv, CONTEXT, &err), CHURON_OK);
    w->space = space;
    return w;
}

static void drop_writer(kv_cache *c, writer *w) {
    kv_seq_close(c, &w->kv);
    free(w);
}

/* What a position holds depends on all tokens up to it, as in a model. Never 0. */
static uint16_t mark(const writer *w, size_t position) {
    uint32_t h = 1;
    for (size_t i = 0; i <= position; i++) h = (h ^ (uint32_t)w->tokens[i]) * 16777619u + 1;
    return (uint16_t)(h >> 16 | 1);
}

static void put(kv_cache *c, const writer *w, size_t position, uint16_t value) {
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        const uint32_t page = w->kv.pages[position / KV_PAGE];
        uint16_t *v = kv_values(kv_cache_pool(c), page, i / HEADS, i % HEADS);
        for (size_t d = 0; d < DIM; d++) v[position % KV_PAGE * DIM + d] = (uint16_t)(value + i);
    }
}

static bool holds(kv_cache *c, const writer *w, size_t position, uint16_t value) {
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        const uint32_t page = w->kv.pages[position / KV_PAGE];
        const uint16_t *v = kv_values(kv_cache_pool(c), page, i / HEADS, i % HEADS);
        for (size_t d = 0; d < DIM; d++) {
            if (v[position % KV_PAGE * DIM + d] != (value ? (uint16_t)(value + i) : 0)) return false;
        }
    }
    return true;
}

static void check(kv_cache *c, const writer *w) {
    for (size_t p = 0; p < w->kv.length; p++) assert_true(holds(c, w, p, mark(w, p)));
}

/* Behind the length nothing stale. */
static void check_behind(kv_cache *c, const writer *w) {
    for (size_t p = w->kv.length; p < w->kv.n_pages * KV_PAGE; p++) assert_true(holds(c, w, p, 0));
}

/* Writes up to `length`; false if pages lack. */
static bool write_to(kv_cache *c, writer *w, size_t length) {
    if (!kv_seq_reserve(c, &w->kv, length)) return false;
    check(c, w);
    check_behind(c, w);
    for (size_t p = w->kv.length; p < length; p++) put(c, w, p, mark(w, p));
    w->kv.length = length;
    return true;
}

static void add_tokens(writer *w, size_t n, int32_t first) {
    for (size_t i = 0; i < n; i++) w->tokens[w->n++] = first + (int32_t)i;
}

static void adopt(kv_cache *c, writer *w, size_t most) {
    kv_seq_adopt(c, &w->kv, w->space, w->tokens, most);
    kv_seq_adopt_part(c, &w->kv, w->space, w->tokens, most);
    check(c, w);
}

static void publish(kv_cache *c, writer *w, bool part) {
    kv_seq_publish(c, &w->kv, w->space, w->tokens, part);
}

/* ---- by hand ---------------------------------------------------------------------------------------- */

static void test_pages_come_in_runs(void **state) {
    (void)state;
    kv_cache *c = new_cache(64);
    prefix_space *s = space_of(c, "a", "");
    writer *w[3];
    for (int i = 0; i < 3; i++) {
        w[i] = new_writer(s);
        add_tokens(w[i], CONTEXT, i * 1000);
    }
    /* Three that grow in turn still have each chunk in one run. */
    for (size_t n = 1; n <= 12 * KV_PAGE; n++) {
        for (int i = 0; i < 3; i++) assert_true(write_to(c, w[i], n));
    }
    for (int i = 0; i < 3; i++) {
        for (size_t p = 0; p < w[i]->kv.n_pages; p++) {
            assert_int_equal(w[i]->kv.pages[p], w[i]->kv.pages[p / PAGE_RUN * PAGE_RUN] + p % PAGE_RUN);
        }
        drop_writer(c, w[i]);
    }
    assert_int_equal(kv_cache_n_available(c), 64);
    prefix_space_close(kv_cache_prefix(c), s);
    kv_cache_free(c);
}

static void test_found_again_and_only_by_its_own(void **state) {
    (void)state;
    kv_cache *c = new_cache(32);
    prefix_space *spaces[] = {space_of(c, "a", ""),  space_of(c, "b", ""),  space_of(c, "a", "x"),
                              space_of(c, "ax", ""), space_of(c, NULL, ""), space_of(c, NULL, "a")};
    const size_t n = sizeof spaces / sizeof *spaces;
    writer *w = new_writer(spaces[0]);
    add_tokens(w, 3 * KV_PAGE + 10, 0);
    assert_true(write_to(c, w, w->n));
    publish(c, w, true);
    for (size_t i = 0; i < n; i++) {
        writer *again = new_writer(spaces[i]);
        add_tokens(again, 3 * KV_PAGE + 20, 0);
        adopt(c, again, again->n);
        assert_int_equal(again->kv.length, i == 0 ? w->n : 0);
        /* Whole pages are the same, the last one is a copy: both go on without seeing each other. */
        if (i == 0) {
            assert_memory_equal(again->kv.pages, w->kv.pages, 3 * sizeof(uint32_t));
            assert_true(again->kv.pages[3] != w->kv.pages[3]);
            assert_true(write_to(c, again, again->n));
            add_tokens(w, 5, 900);
            assert_true(write_to(c, w, w->n));
            check(c, again);
        }
        drop_writer(c, again);
    }
    /* The same tokens behind another beginning are not the same. */
    writer *other = new_writer(spaces[0]);
    other->tokens[other->n++] = 7;
    add_tokens(other, 3 * KV_PAGE, 1);
    adopt(c, other, other->n);
    assert_int_equal(other->kv.length, 0);
    drop_writer(c, other);
    /* Part of a page is found too. */
    other = new_writer(spaces[0]);
    add_tokens(other, KV_PAGE + 7, 0);
    other->tokens[other->n++] = 5000;
    adopt(c, other, other->n);
    assert_int_equal(other->kv.length, KV_PAGE + 7);
    drop_writer(c, other);
    drop_writer(c, w);
    assert_int_equal(kv_cache_n_available(c), 32);
    for (size_t i = 0; i < n; i++) prefix_space_close(kv_cache_prefix(c), spaces[i]);
    kv_cache_free(c);
}

static void test_spaces_are_one_per_name(void **state) {
    (void)state;
    kv_cache *c = new_cache(8);
    prefix_space *a = space_of(c, "a", "s"), *b = space_of(c, "a", "s"), *alone, *alone2;
    error err;
    assert_ptr_equal(a, b);
    assert_int_equal(prefix_space_open_alone(&alone, kv_cache_prefix(c), &err), CHURON_OK);
    assert_int_equal(prefix_space_open_alone(&alone2, kv_cache_prefix(c), &err), CHURON_OK);
    assert_ptr_not_equal(alone, alone2);
    prefix_space *all[] = {a, b, alone, alone2};
    for (size_t i = 0; i < 4; i++) prefix_space_close(kv_cache_prefix(c), all[i]);
    kv_cache_free(c);
}

static void test_least_recently_used_goes_first(void **state) {
    (void)state;
    kv_cache *c = new_cache(16);
    prefix_space *s = space_of(c, "", "");
    for (int32_t i = 0; i < 4; i++) { /* four of four pages fill the pool */
        writer *w = new_writer(s);
        add_tokens(w, 4 * KV_PAGE, i * 1000);
        assert_true(write_to(c, w, w->n));
        publish(c, w, true);
        drop_writer(c, w);
    }
    assert_int_equal(kv_cache_n_kept(c), 16);
    writer *used = new_writer(s); /* the first is used once more */
    add_tokens(used, 4 * KV_PAGE, 0);
    adopt(c, used, used->n);
    assert_int_equal(used->kv.length, 4 * KV_PAGE);
    drop_writer(c, used);
    writer *big = new_writer(s);
    add_tokens(big, 8 * KV_PAGE, 9000);
    assert_true(write_to(c, big, big->n));
    assert_int_equal(kv_cache_evictions(c), 8);
    static const size_t left[] = {4, 0, 0, 4};
    for (int32_t i = 0; i < 4; i++) {
        writer *w = new_writer(s);
        add_tokens(w, 4 * KV_PAGE, i * 1000);
        adopt(c, w, w->n);
        assert_int_equal(w->kv.length, left[i] * KV_PAGE);
        drop_writer(c, w);
    }
    /* What is held is never given up. */
    writer *more = new_writer(s);
    add_tokens(more, 9 * KV_PAGE, 20000);
    assert_false(write_to(c, more, more->n));
    assert_int_equal(more->kv.n_pages, 0);
    assert_true(write_to(c, more, 8 * KV_PAGE));
    check(c, big);
    drop_writer(c, more);
    drop_writer(c, big);
    prefix_space_close(kv_cache_prefix(c), s);
    kv_cache_free(c);
}

static void test_equal_pages_become_one(void **state) {
    (void)state;
    kv_cache *c = new_cache(16);
    prefix_space *s = space_of(c, "", "");
    writer *a = new_writer(s), *b = new_writer(s);
    add_tokens(a, 3 * KV_PAGE, 0);
    add_tokens(b, 3 * KV_PAGE, 0);
    assert_true(write_to(c, a, a->n) && write_to(c, b, b->n));
    assert_int_equal(kv_cache_n_available(c), 10);
    publish(c, a, false);
    publish(c, b, false);
    assert_int_equal(kv_cache_n_available(c), 13);
    assert_memory_equal(a->kv.pages, b->kv.pages, 3 * sizeof(uint32_t));
    drop_writer(c, a);
    check(c, b);
    drop_writer(c, b);
    prefix_space_close(kv_cache_prefix(c), s);
    kv_cache_free(c);
}

static void test_fork_copies_on_write(void **state) {
    (void)state;
    kv_cache *c = new_cache(16);
    prefix_space *s = space_of(c, "", "");
    writer *a = new_writer(s), *b = new_writer(s);
    add_tokens(a, KV_PAGE + 5, 0);
    assert_true(write_to(c, a, a->n));
    memcpy(b->tokens, a->tokens, a->n * sizeof *a->tokens);
    b->n = a->n;
    kv_seq_fork(c, &b->kv, &a->kv);
    assert_int_equal(kv_cache_n_available(c), 14);
    assert_int_equal(kv_seq_missing(c, &b->kv, b->n + 1), 1);
    add_tokens(a, 3, 100);
    add_tokens(b, 3, 200);
    assert_true(write_to(c, a, a->n) && write_to(c, b, b->n));
    assert_int_equal(kv_cache_n_available(c), 13);
    check(c, a);
    check(c, b);
    drop_writer(c, a);
    check(c, b);
    drop_writer(c, b);
    assert_int_equal(kv_cache_n_available(c), 16);
    prefix_space_close(kv_cache_prefix(c), s);
    kv_cache_free(c);
}

/* ---- at random -------------------------------------------------------------------------------------- */

enum { WRITERS = 7, POOL = 40, EVENTS = 30000 };

static uint32_t lcg(uint32_t *s) {
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* Pages that writers hold, each once. */
static size_t count_held(writer *const *w) {
    static uint8_t seen[POOL];
    size_t n = 0;
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < WRITERS; i++) {
        for (size_t p = 0; p < w[i]->kv.n_pages; p++) {
            n += seen[w[i]->kv.pages[p]] == 0;
            seen[w[i]->kv.pages[p]] = 1;
        }
    }
    return n;
}

/* Tokens from few choices, so that many sequences begin alike. */
static void extend(writer *w, uint32_t *r) {
    const size_t n = 1 + lcg(r) % 50;
    for (size_t i = 0; i < n && w->n < CONTEXT - 1; i++) {
        const uint32_t choice = w->n % 25 == 0 ? lcg(r) % 3 : 0;
        w->tokens[w->n] = (int32_t)(choice + w->n);
        w->n++;
    }
}

static void act(kv_cache *c, writer **w, prefix_space **spaces, uint32_t *r) {
    const size_t i = lcg(r) % WRITERS;
    writer *x = w[i];
    switch (lcg(r) % 8) {
    case 0: /* ends */
        publish(c, x, true);
        kv_seq_release(c, &x->kv);
        x->n = lcg(r) % 2 ? x->n : 0;
        if (x->n == 0) x->space = spaces[lcg(r) % 3];
        break;
    case 1: publish(c, x, lcg(r) % 2); break;
    case 2: /* goes back */
        x->n = x->n ? lcg(r) % x->n : 0;
        if (x->n < x->kv.length) kv_seq_truncate(c, &x->kv, x->n);
        break;
    case 3: /* becomes a copy of another */
        kv_seq_release(c, &x->kv);
        {
            const writer *of = w[(i + 1) % WRITERS];
            memcpy(x->tokens, of->tokens, sizeof x->tokens);
            x->n = of->n;
            x->space = of->space;
            kv_seq_fork(c, &x->kv, &of->kv);
        }
        break;
    default:
        if (x->kv.n_pages == 0 && x->n > 1) adopt(c, x, x->n - 1);
        extend(x, r);
        if (!write_to(c, x, x->kv.length + (x->n - x->kv.length + 1) / 2)) kv_seq_release(c, &x->kv);
    }
}

static void test_random_walk(void **state) {
    (void)state;
    kv_cache *c = new_cache(POOL);
    prefix_space *spaces[3] = {space_of(c, "a", ""), space_of(c, "b", ""), space_of(c, NULL, "")};
    writer *w[WRITERS];
    for (size_t i = 0; i < WRITERS; i++) w[i] = new_writer(spaces[i % 3]);
    uint32_t r = 17;
    const int64_t before = mem_count();
    for (size_t event = 0; event < EVENTS; event++) {
        act(c, w, spaces, &r);
        assert_int_equal(kv_cache_n_available(c) + count_held(w), POOL);
        for (size_t i = 0; i < WRITERS && event % 7 == 0; i++) check(c, w[i]);
    }
    assert_int_equal(mem_count(), before);
    assert_true(kv_cache_evictions(c) > 100);
    for (size_t i = 0; i < WRITERS; i++) drop_writer(c, w[i]);
    assert_int_equal(kv_cache_n_available(c), POOL);
    for (size_t i = 0; i < 3; i++) prefix_space_close(kv_cache_prefix(c), spaces[i]);
    kv_cache_free(c);
}

static void test_every_allocation_can_fail(void **state) {
    (void)state;
    const lm_config config = small_config();
    bool done = false;
    for (int64_t n = 1; !done && n < 100; n++) {
        mem_fail_at(n);
        kv_cache *c;
        prefix_space *s = NULL;
        error err;
        status st = kv_cache_create(&c, &config, KV_F16, 8, &err);
        if (st == CHURON_OK) st = prefix_space_open(&s, kv_cache_prefix(c), "t", "s", &err);
        mem_fail_at(0);
        if (st == CHURON_OK) prefix_space_close(kv_cache_prefix(c), s);
        assert_true(st == CHURON_OK || st == CHURON_NO_MEMORY);
        done = st == CHURON_OK;
        kv_cache_free(c);
    }
    assert_true(done);
}

/* Memory is fetched in the order of use, each piece once: first what was taken, then what comes. */
static void test_memory_is_fetched_ahead(void **state) {
    (void)state;
    const lm_config config = {.n_layer = 30, .n_head_kv = 3, .head_dim_k = 64, .head_dim_v = 64};
    kv_cache *c;
    kv_seq s;
    error err;
    assert_int_equal(kv_cache_create(&c, &config, KV_F16, 4 * PAGE_RUN, &err), CHURON_OK);
    assert_int_equal(kv_seq_open(&s, 4 * PAGE_RUN * KV_PAGE, &err), CHURON_OK);
    const size_t all = kv_pool_pieces(kv_cache_pool(c), kv_cache_pages(c));
    const size_t run = kv_pool_pieces(kv_cache_pool(c), 1);
    assert_int_equal(run, 3); /* 5.9 MB */
    assert_int_equal(all, 12);
    assert_int_equal(kv_cache_run_bytes(c), run * KV_PIECE);
    size_t first;
    assert_int_equal(kv_cache_cold(c, 0, 8, &first), 0);
    assert_int_equal(kv_cache_cold(c, KV_PIECE + 1, 1, &first), 1); /* two pieces ahead, one at a time */
    assert_int_equal(first, 0);
    assert_int_equal(kv_cache_cold(c, KV_PIECE + 1, 8, &first), 1);
    assert_int_equal(first, 1);
    assert_int_equal(kv_cache_cold(c, KV_PIECE + 1, 8, &first), 0);
    assert_true(kv_seq_reserve(c, &s, 2 * PAGE_RUN * KV_PAGE));
    assert_int_equal(kv_cache_cold(c, (size_t)1 << 40, 1, &first),
                     4); /* the rest of two runs, whatever `most` */
    assert_int_equal(first, 2);
    uint8_t *data = kv_keys(kv_cache_pool(c), s.pages[0], 0, 0);
    memset(data, 7, 64);
    kv_pool_fetch(kv_cache_pool(c), 0);
    for (size_t i = 0; i < 64; i++) assert_int_equal(data[i], 7);
    assert_int_equal(kv_cache_cold(c, (size_t)1 << 40, 100, &first), all - 6);
    assert_int_equal(first, 6);
    kv_pool_fetch(kv_cache_pool(c), all - 1); /* the last one may be short */
    assert_int_equal(kv_cache_cold(c, (size_t)1 << 40, 100, &first), 0);
    kv_seq_close(c, &s);
    kv_cache_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_come_in_runs),
        cmocka_unit_test(test_found_again_and_only_by_its_own),
        cmocka_unit_test(test_spaces_are_one_per_name),
        cmocka_unit_test(test_least_recently_used_goes_first),
        cmocka_unit_test(test_equal_pages_become_one),
        cmocka_unit_test(test_fork_copies_on_write),
        cmocka_unit_test(test_random_walk),
        cmocka_unit_test(test_memory_is_fetched_ahead),
        cmocka_unit_test(test_every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
