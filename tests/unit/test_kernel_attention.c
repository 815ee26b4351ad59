/* test_kernel_attention.c: .attn_chunk, .attn_merge, .attn_finish and attn_scratch.
 *
 * A sequence is written with kv_store token by token, and after each token the reference is asked for that
 * token alone: what decoding sees. This is held against double precision. Then every table is asked for all
 * queries at once, and in parts: each query must get the same bits as it got alone, whatever the cache holds
 * behind it. Pages, page lists, queries, results and scratch end at pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "guarded.h"
#include "kernel/kernel.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct shape {
    size_t dk, dv, group, pos, n, window;
    float soft_cap;
    bool odd; /* infinities and NaN among the keys and values */
    kv_type type;
} shape;

typedef struct cache {
    attn_head h;
    kv_type type;
    size_t n_pages;
    guarded *pages; /* [2 * n_pages]: keys, then values */
    guarded k_list, v_list;
} cache;

static void cache_new(cache *c, const shape *s) {
    size_t n_pages = (s->pos + s->n + KV_PAGE - 1) / KV_PAGE;
    c->n_pages = n_pages;
    c->type = s->type;
    c->pages = mem_calloc(2 * n_pages, sizeof *c->pages);
    assert_non_null(c->pages);
    c->k_list = guard_new(n_pages * sizeof(void *), 8, true);
    c->v_list = guard_new(n_pages * sizeof(void *), 8, true);
    for (size_t i = 0; i < n_pages; i++) {
        c->pages[i] = guard_new(kv_page_bytes(s->type, s->dk), 64, true);
        c->pages[n_pages + i] = guard_new(kv_page_bytes(s->type, s->dv), 64, true);
        ((void **)c->k_list.data)[i] = c->pages[i].data;
        ((void **)c->v_list.data)[i] = c->pages[n_pages + i].data;
    }
    c->h = (attn_head){.head_dim_k = s->dk,
                       .head_dim_v = s->dv,
                       .group = s->group,
                       .scale = 1.0f / sqrtf((float)s->dk),
                       .soft_cap = s->soft_cap,
                       .window = s->window,
                       .k_pages = c->k_list.data,
                       .v_pages = c->v_list.data};
}

static void cache_free(cache *c) {
    for (size_t i = 0; i < 2 * c->n_pages; i++) guard_free(&c->pages[i]);
    guard_free(&c->k_list), guard_free(&c->v_list);
    mem_free(c->pages);
}

static void store(const cache *c, const kernels *k, size_t position, const float *key, const float *value) {
    k->kv_store[c->type](c->pages[position / KV_PAGE].data, c->pages[c->n_pages + position / KV_PAGE].data,
                         position % KV_PAGE, key, c->h.head_dim_k, value, c->h.head_dim_v);
}

/* One token's key and value. Some keys score high so that the maximum keeps rising; odd ones are not finite.
 */
static void random_token(const shape *s, float *key, float *value) {
    float size = random_below(16) == 0 ? 8.0f : 1.5f;
    for (size_t d = 0; d < s->dk; d++) key[d] = next_float() * size;
    for (size_t d = 0; d < s->dv; d++) value[d] = next_float() * 2;
    if (s->odd && random_below(8) == 0) key[random_below(s->dk)] = random_below(2) ? INFINITY : NAN;
    if (s->odd && random_below(8) == 0) value[random_below(s->dv)] = random_below(2) ? -INFINITY : NAN;
}

/* Per query and head: partials and values of every chunk. */
typedef struct answers {
    size_t chunks, rows, dv; /* rows: n * group */
    attn_partial *partial;   /* [chunks, rows] */
    float *o;                /* [chunks, rows, dv] */
} answers;

static void answers_new(answers *a, const shape *s) {
    a->chunks = (s->pos + s->n + ATTN_CHUNK - 1) / ATTN_CHUNK;
    a->rows = s->n * s->group;
    a->dv = s->dv;
    a->partial = mem_calloc(a->chunks * a->rows, sizeof *a->partial);
    a->o = mem_calloc(a->chunks * a->rows * s->dv, sizeof *a->o);
    assert_true(a->partial != NULL && a->o != NULL);
}

static void answers_free(answers *a) {
    mem_free(a->partial), mem_free(a->o);
}

/* ---- the reference, one query at a time, against double precision -------------------------------------- */

static double q8_value(const void *page, size_t dim, size_t slot, size_t d, size_t at) {
    const uint16_t *scale = (const uint16_t *)(const void *)((const int8_t *)page + KV_PAGE * dim);
    return (double)f16_to_f32(scale[d / KV_Q8_BLOCK * KV_PAGE + slot]) * ((const int8_t *)page)[at];
}

static double key_at(const attn_head *h, kv_type type, size_t key, size_t d) {
    const void *page = h->k_pages[key / KV_PAGE];
    size_t slot = key % KV_PAGE, dim = h->head_dim_k;
    if (type == KV_Q8)
        return q8_value(page, dim, slot, d, ((slot / 16 * dim + d) / 2 * 16 + slot % 16) * 2 + d % 2);
    return (double)f16_to_f32(((const uint16_t *)page)[(slot / 16 * dim + d) * 16 + slot % 16]);
}

static double value_at(const attn_head *h, kv_type type, size_t key, size_t d) {
    const void *page = h->v_pages[key / KV_PAGE];
    size_t slot = key % KV_PAGE, dim = h->head_dim_v;
    if (type == KV_Q8) return q8_value(page, dim, slot, d, (slot / 2 * dim + d) * 2 + slot % 2);
    return (double)f16_to_f32(((const uint16_t *)page)[slot * dim + d]);
}

static double exact_score(const attn_head *h, kv_type type, const float *q, size_t key) {
    double s = 0;
    for (size_t d = 0; d < h->head_dim_k; d++) s += (double)q[d] * key_at(h, type, key, d);
    s *= (double)h->scale;
    return h->soft_cap != 0 ? (double)h->soft_cap * tanh(s / (double)h->soft_cap) : s;
}

/* out: [head_dim_v], attention of one head of the query at p over all it may see. */
static void exact_attention(const attn_head *h, kv_type type, const float *q, size_t p, double *out) {
    size_t from = h->window != 0 && p + 1 > h->window ? p + 1 - h->window : 0;
    double sum = 0;
    for (size_t d = 0; d < h->head_dim_v; d++) out[d] = 0;
    for (size_t key = from; key <= p; key++) {
        double w = exp(exact_score(h, type, q, key));
        sum += w;
        for (size_t d = 0; d < h->head_dim_v; d++) {
            out[d] += w * value_at(h, type, key, d);
        }
    }
    for (size_t d = 0; d < h->head_dim_v; d++) out[d] /= sum;
}

static void check_exact(const cache *c, const shape *s, const answers *a, const kernels *k, size_t row,
                        const float *q) {
    attn_partial whole = {-INFINITY, 0};
    float o[512], out[512];
    double exact[512];
    memset(o, 0, sizeof o);
    for (size_t i = 0; i < a->chunks; i++) {
        k->attn_merge(&whole, o, &a->partial[i * a->rows + row], &a->o[(i * a->rows + row) * s->dv], s->dv);
    }
    k->attn_finish(&whole, o, s->dv, out);
    exact_attention(&c->h, s->type, q, s->pos + row / s->group, exact);
    /* KV_Q8: queries and weights of 16 bits */
    const double most = s->type == KV_Q8 ? 1e-3 : 2e-5;
    for (size_t d = 0; d < s->dv; d++) {
        if (fabs((double)out[d] - exact[d]) <= most) continue;
        fail_msg("dk %zu dv %zu pos %zu row %zu: o[%zu] = %.9g, expected %.9g", s->dk, s->dv, s->pos, row, d,
                 (double)out[d], exact[d]);
    }
}

/* Fills the cache; asks the reference for each query when its own token is the last one stored. */
static void decode_alone(const cache *c, const shape *s, const float *q, answers *a) {
    const kernels *k = kernels_for(KERNEL_REF);
    float key[512], value[512];
    size_t ldq = s->group * s->dk;
    for (size_t p = 0; p < s->pos + s->n; p++) {
        random_token(s, key, value);
        store(c, k, p, key, value);
        if (p < s->pos) continue;
        size_t row = (p - s->pos) * s->group;
        for (size_t i = 0; i < a->chunks; i++) {
            k->attn_chunk[s->type](&c->h, q + (p - s->pos) * ldq, ldq, 1, p, i,
                                   &a->partial[i * a->rows + row], &a->o[(i * a->rows + row) * s->dv], NULL);
        }
        for (size_t g = 0; g < s->group && !s->odd; g++) {
            check_exact(c, s, a, k, row + g, q + (p - s->pos) * ldq + g * s->dk);
        }
    }
}

/* ---- every table -------------------------------------------------------------------------------------- */

static void compare(const kernels *k, const shape *s, const answers *want, size_t chunk, size_t row0,
                    size_t rows, const attn_partial *partial, const float *o) {
    size_t at;
    const attn_partial *p = &want->partial[chunk * want->rows + row0];
    if (!same_floats((const float *)partial, (const float *)p, rows * 2, &at)) {
        fail_msg(
            "%s dk %zu dv %zu group %zu pos %zu n %zu window %zu cap %g chunk %zu row %zu: max, sum %a %a, "
            "alone %a %a",
            k->name, s->dk, s->dv, s->group, s->pos, s->n, s->window, (double)s->soft_cap, chunk,
            row0 + at / 2, (double)partial[at / 2].max, (double)partial[at / 2].sum, (double)p[at / 2].max,
            (double)p[at / 2].sum);
    }
    const float *v = &want->o[(chunk * want->rows + row0) * s->dv];
    if (!same_floats(o, v, rows * s->dv, &at)) {
        fail_msg("%s dk %zu dv %zu group %zu pos %zu n %zu window %zu cap %g chunk %zu row %zu: o[%zu] = %a, "
                 "alone %a",
                 k->name, s->dk, s->dv, s->group, s->pos, s->n, s->window, (double)s->soft_cap, chunk,
                 row0 + at / s->dv, at % s->dv, (double)o[at], (double)v[at]);
    }
}

/* Queries [t0, t1) in one call for each chunk. */
static void check_part(const kernels *k, const cache *c, const shape *s, const float *q, const answers *want,
                       size_t t0, size_t t1) {
    size_t n = t1 - t0, rows = n * s->group, ldq = s->group * s->dk, dim = s->dk > s->dv ? s->dk : s->dv;
    size_t scratch_bytes = attn_scratch(dim, s->group, n);
    guarded queries = guard_copy(q + t0 * ldq, n * ldq * 4, 4, true);
    guarded partial = guard_new(rows * sizeof(attn_partial), 4, true);
    guarded o = guard_new(rows * s->dv * 4, 4, true), scratch = guard_new(scratch_bytes, 64, true);
    attn_head h = c->h;
    size_t pages = (s->pos + t1 + KV_PAGE - 1) / KV_PAGE; /* a list of no more pages than promised */
    guarded k_list = guard_copy(h.k_pages, pages * sizeof(void *), 8, true);
    guarded v_list = guard_copy(h.v_pages, pages * sizeof(void *), 8, true);
    h.k_pages = k_list.data, h.v_pages = v_list.data;
    for (size_t i = 0; i < want->chunks; i++) {
        memset(partial.data, 0xff, rows * sizeof(attn_partial));
        memset(o.data, 0xff, rows * s->dv * 4);
        memset(scratch.data, 0xff, scratch_bytes);
        k->attn_chunk[s->type](&h, queries.data, ldq, n, s->pos + t0, i, partial.data, o.data, scratch.data);
        compare(k, s, want, i, t0 * s->group, rows, partial.data, o.data);
    }
    guard_free(&queries), guard_free(&partial), guard_free(&o), guard_free(&scratch);
    guard_free(&k_list), guard_free(&v_list);
}

static void check_merge(const kernels *k, const shape *s, const answers *want) {
    const kernels *ref = kernels_for(KERNEL_REF);
    float o[2][512], out[2][512];
    attn_partial whole[2];
    for (size_t row = 0; row < want->rows; row++) {
        for (int which = 0; which < 2; which++) {
            const kernels *t = which ? k : ref;
            whole[which] = (attn_partial){-INFINITY, 0};
            memset(o[which], 0, sizeof o[which]);
            for (size_t i = 0; i < want->chunks; i++) {
                t->attn_merge(&whole[which], o[which], &want->partial[i * want->rows + row],
                              &want->o[(i * want->rows + row) * s->dv], s->dv);
            }
            t->attn_finish(&whole[which], o[which], s->dv, out[which]);
        }
        size_t at;
        assert_true(same_floats(&whole[0].max, &whole[1].max, 2, &at));
        assert_true(same_floats(out[0], out[1], s->dv, &at));
    }
}

static void check_type(const shape *s) {
    cache c;
    answers want;
    cache_new(&c, s);
    answers_new(&want, s);
    size_t n_q = s->n * s->group * s->dk;
    float *q = mem_alloc(n_q * 4);
    assert_non_null(q);
    for (size_t i = 0; i < n_q; i++) q[i] = next_float() * 2;
    decode_alone(&c, s, q, &want);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (k == NULL) continue;
        check_part(k, &c, s, q, &want, 0, s->n);
        if (isa == KERNEL_REF) continue; /* one query at a time in any case */
        check_part(k, &c, s, q, &want, s->n - 1, s->n);
        size_t cut = random_below(s->n);
        if (cut > 0) check_part(k, &c, s, q, &want, 0, cut);
        check_part(k, &c, s, q, &want, cut, s->n);
        check_merge(k, s, &want);
    }
    mem_free(q);
    answers_free(&want);
    cache_free(&c);
}

static void check_shape(const shape *s) {
    shape of_type = *s;
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        of_type.type = (kv_type)type;
        check_type(&of_type);
    }
}

static size_t one_of(size_t n, const size_t *values) {
    return values[random_below(n)];
}

static shape random_shape(size_t most_pos, size_t most_n) {
    static const size_t dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 192, 256},
                        windows[] = {1, 2, 31, 64, 100, 256};
    shape s = {.dk = one_of(10, dims), .group = 1 + random_below(8), .pos = random_below(most_pos + 1)};
    s.dv = random_below(4) == 0 ? one_of(10, dims) : s.dk;
    s.n = 1 + random_below(most_n);
    if (random_below(3) == 0) s.window = one_of(6, windows);
    if (random_below(4) == 0) s.soft_cap = 5.0f;
    return s;
}

static void test_short_sequences(void **state) {
    (void)state;
    for (size_t n = 1; n <= 40; n++) {
        shape s = {.dk = 32, .dv = 32, .group = 1 + n % 3, .n = n};
        check_shape(&s);
        s = random_shape(40, 1);
        s.n = n;
        check_shape(&s);
    }
}

static void test_random_shapes(void **state) {
    (void)state;
    for (int i = 0; i < 120; i++) {
        shape s = random_shape(700, 40);
        check_shape(&s);
    }
}

static void test_every_group_and_dimension(void **state) {
    (void)state;
    for (size_t group = 1; group <= 12; group++) {
        shape s = {.dk = 16 * group, .dv = 16 * (13 - group), .group = group, .pos = 250, .n = 9};
        check_shape(&s);
    }
    shape large = {.dk = 512, .dv = 512, .group = 1, .pos = 60, .n = 12};
    check_shape(&large);
}

/* Infinities and NaN in a key or value reach only the queries that may see it. */
static void test_odd_values_stay_where_they_belong(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        shape s = random_shape(300, 30);
        s.odd = true;
        check_shape(&s);
    }
}

static void test_long_prefill(void **state) {
    (void)state;
    shape s = {.dk = 64, .dv = 64, .group = 3, .pos = 129, .n = 200};
    check_shape(&s);
    s = (shape){.dk = 64, .dv = 64, .group = 1, .pos = 0, .n = 300, .window = 70};
    check_shape(&s);
}

/* Rows of q may be further apart than one KV head's queries: the heads of other groups lie between. */
static void check_query_stride(kv_type type) {
    enum { DIM = 32, N = 20, LDQ = 3 * DIM + 7 };
    shape s = {.dk = DIM, .dv = DIM, .group = 2, .pos = 10, .n = N, .type = type};
    cache c;
    answers want;
    cache_new(&c, &s);
    answers_new(&want, &s);
    float dense[N * 2 * DIM], wide[N * LDQ];
    for (size_t i = 0; i < N * LDQ; i++) wide[i] = NAN;
    for (size_t t = 0; t < N; t++) {
        for (size_t i = 0; i < 2 * DIM; i++) dense[t * 2 * DIM + i] = wide[t * LDQ + i] = next_float();
    }
    decode_alone(&c, &s, dense, &want);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (k == NULL) continue;
        guarded scratch = guard_new(attn_scratch(DIM, 2, N), 64, true);
        attn_partial partial[N * 2];
        float o[N * 2 * DIM];
        k->attn_chunk[s.type](&c.h, wide, LDQ, N, s.pos, 0, partial, o, scratch.data);
        compare(k, &s, &want, 0, 0, N * 2, partial, o);
        guard_free(&scratch);
    }
    answers_free(&want);
    cache_free(&c);
}

static void test_query_stride(void **state) {
    (void)state;
    check_query_stride(KV_F16);
    check_query_stride(KV_Q8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_sequences),
        cmocka_unit_test(test_random_shapes),
        cmocka_unit_test(test_every_group_and_dimension),
        cmocka_unit_test(test_odd_values_stay_where_they_belong),
        cmocka_unit_test(test_long_prefill),
        cmocka_unit_test(test_query_stride),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
