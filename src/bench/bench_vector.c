/* bench_vector.c: see bench_vector.h. */
#include "bench/bench_vector.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kernel/gemm64.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 7, MAX_N = 49152, TOP = 40 };

/* ---- rows and logits, one thread ----------------------------------------------------------------------- */

typedef struct row_data {
    const kernels *k;
    size_t n;
    float *x, *w, *y; /* [MAX_N] */
    void *page[2];    /* keys and values, of any kv_type */
    uint32_t *index;  /* [TOP] */
} row_data;

static void run_rms_norm(const row_data *d) {
    d->k->rms_norm(d->x, d->w, d->n, 1e-5f, d->y);
}
static void run_add(const row_data *d) {
    d->k->add(d->y, d->x, d->n);
}
static void run_scale(const row_data *d) {
    d->k->scale(d->y, 1.0f, d->n);
}
static void run_silu_mul(const row_data *d) {
    d->k->silu_mul(d->x, d->w, d->y, d->n);
}
static void run_gelu_tanh_mul(const row_data *d) {
    d->k->gelu_tanh_mul(d->x, d->w, d->y, d->n);
}
static void run_soft_cap(const row_data *d) {
    d->k->soft_cap(d->y, 30.0f, d->n);
}
static void run_rope_pairs(const row_data *d) {
    d->k->rope(d->y, d->w, d->n, true);
}
static void run_rope_halves(const row_data *d) {
    d->k->rope(d->y, d->w, d->n, false);
}
static void run_kv_store(const row_data *d) {
    d->k->kv_store[KV_F16](d->page[0], d->page[1], 5, d->x, d->n, d->w, d->n);
}
static void run_kv_store_q8(const row_data *d) {
    d->k->kv_store[KV_Q8](d->page[0], d->page[1], 5, d->x, d->n, d->w, d->n);
}
static void run_attn_merge(const row_data *d) {
    attn_partial into = {1.0f, 1.0f}, from = {1.0f, 1e-30f};
    d->k->attn_merge(&into, d->y, &from, d->x, d->n);
}
static void run_attn_finish(const row_data *d) {
    attn_partial p = {1.0f, 2.0f};
    d->k->attn_finish(&p, d->x, d->n, d->y);
}
static void run_log_sum_exp(const row_data *d) {
    d->k->log_sum_exp(d->x, d->n, &d->y[0], &d->y[1]);
}
static void run_sum_above(const row_data *d) {
    double sum;
    size_t count;
    d->k->sum_above(d->x, d->w, d->n, 0.0f, &sum, &count);
    d->y[0] = (float)sum;
}
static void run_top_k(const row_data *d) {
    d->k->top_k(d->x, d->n, TOP, d->index, d->y);
}
static void run_exp(const row_data *d) {
    d->k->exp(d->x, d->y, d->n);
}

static void run_softmax(const row_data *d) {
    d->k->softmax(d->x, d->y, d->n);
}

static void run_layer_norm(const row_data *d) {
    d->k->layer_norm(d->x, d->x, d->x, d->n, 1e-5f, d->y);
}

/* 192 rows of 256 columns: d->x is 49152 values long. */
static void run_vector_matrix(const row_data *d) {
    d->k->vector_matrix(d->x, d->x, 256, d->n / 256, 256, d->y);
}

/* 8 rows of 128 values and 24 columns. */
static void run_gemm64(const row_data *d) {
    const double *x = (const double *)(const void *)d->x;
    gemm64_run(d->k, &(gemm64){.m = 8,
                               .n = 24,
                               .k = 128,
                               .a = x,
                               .a_row = 128,
                               .a_k = 1,
                               .b = x,
                               .b_k = 24,
                               .b_col = 1,
                               .c = (double *)(void *)d->y,
                               .c_row = 24});
}

static void run_widen_f16(const row_data *d) {
    d->k->widen_f16((const uint16_t *)(const void *)d->x, d->y, d->n);
}

static void run_narrow_f16(const row_data *d) {
    d->k->narrow_f16(d->x, (uint16_t *)(void *)d->y, d->n);
}

static void run_unary_erf(const row_data *d) {
    d->k->unary(UNARY_F32_ERF, 0, 0, d->x, d->y, d->n);
}

static void run_unary_log(const row_data *d) {
    d->k->unary(UNARY_F32_LOG, 0, 0, d->x, d->y, d->n);
}

static void run_unary64_tanh(const row_data *d) {
    d->k->unary64(UNARY_F32_TANH, (const double *)(const void *)d->x, (double *)(void *)d->y, d->n / 2);
}

static void run_unary_hard_swish(const row_data *d) {
    d->k->unary(UNARY_F32_HARD_SWISH, 0, 0, d->x, d->y, d->n);
}

/* n decisions of one row; their features and splits lie in w (zeros and small numbers will do), ranks in x.
 */
static void run_forest_u8(const row_data *d) {
    const uint8_t *nodes = (const uint8_t *)d->w;
    if (nodes[0] != 0 || nodes[1] != 0) memset(d->w, 0, d->n); /* once */
    d->k->forest_u8((const uint8_t *)d->x, 1, 64, nodes, nodes + d->n, d->n / 64, (uint64_t *)(void *)d->y,
                    0);
}

static void run_forest_u16(const row_data *d) {
    const uint8_t *nodes = (const uint8_t *)d->w;
    if (nodes[0] != 0 || nodes[1] != 0) memset(d->w, 0, d->n); /* once */
    d->k->forest_u16((const uint16_t *)(const void *)d->x, 1, 64, nodes,
                     (const uint16_t *)(const void *)(nodes + d->n), d->n / 64, (uint64_t *)(void *)d->y, 0);
}

/* n values of a row of maxima, 3x3, stride 1. */
static void run_pool_row(const row_data *d) {
    const size_t row = d->n + 32;
    ptrdiff_t taps[9];
    for (size_t t = 0; t < 9; t++) taps[t] = (ptrdiff_t)(t / 3 * row + t % 3 * 16);
    d->k->pool_row(d->x, 16, taps, 9, 0.0f, d->y, d->n / 16);
}

/* A pixel of n channels, windows of 5. */
static void run_lrn_pixel(const row_data *d) {
    d->k->lrn_pixel(d->x, 16, d->n / 16, 5, 0.25f, 1.0f, d->y + d->n, d->y);
}

/* A patch of one block. */
static void run_winograd_input(const row_data *d) {
    d->k->winograd_input(d->x, 58 * 16, d->y, 512);
}
static void run_winograd_output(const row_data *d) {
    d->k->winograd_output(d->x, 512, d->w, NULL, 0, 0.0f, INFINITY, d->y, 56 * 16);
}

/* n bytes of 64 channels of 3x3 taps, of a maximum, of a sum of two, through a table. */
static void run_qdepthwise_row(const row_data *d) {
    enum { TAPS = 12 };
    const size_t row = d->n + 128;
    ptrdiff_t taps[TAPS] = {0};
    for (size_t t = 0; t < 9; t++) taps[t] = (ptrdiff_t)(t / 3 * row + t % 3 * 64);
    const qdepthwise q = {.channels = 64,
                          .x_step = 64,
                          .taps = TAPS,
                          .tap = taps,
                          .w = (const int8_t *)d->w,
                          .offset = (const int32_t *)(const void *)d->w,
                          .scale = d->x,
                          .high = 255};
    d->k->qdepthwise_row(&q, (const uint8_t *)d->x, (uint8_t *)d->y, d->n / 64);
}
static void run_qpool_row(const row_data *d) {
    const size_t row = d->n + 128;
    ptrdiff_t taps[9];
    for (size_t t = 0; t < 9; t++) taps[t] = (ptrdiff_t)(t / 3 * row + t % 3 * 64);
    const qpool q = {.channels = 64, .x_step = 64, .taps = 9, .tap = taps};
    d->k->qpool_row(&q, (const uint8_t *)d->x, (uint8_t *)d->y, d->n / 64);
}
static void run_qpair(const row_data *d) {
    const qpair q = {.a_factor = 0.7f, .b_factor = 0.4f, .a_zero = 3, .b_zero = 120, .y_zero = 9};
    d->k->qpair(&q, (const uint8_t *)d->x, (const uint8_t *)d->w, (uint8_t *)d->y, d->n);
}
static void run_lookup(const row_data *d) {
    d->k->lookup((const uint8_t *)d->w, (const uint8_t *)d->x, (uint8_t *)d->y, d->n);
}

/* streams: arrays of n floats that are read. Kernels of few operations a value have the nearest memory that
 * the bounds know as theirs; for short rows, which lie nearer, none is claimed. */
static const struct row_case {
    const char *name;
    size_t n, streams;
    void (*run)(const row_data *d);
} row_cases[] = {
    {"rms_norm 576", 576, 0, run_rms_norm},
    {"add 576", 576, 0, run_add},
    {"scale 576", 576, 0, run_scale},
    {"silu_mul 1536", 1536, 0, run_silu_mul},
    {"gelu_tanh_mul 1536", 1536, 0, run_gelu_tanh_mul},
    {"soft_cap 49152", 49152, 1, run_soft_cap},
    {"rope 64 pairs", 64, 0, run_rope_pairs},
    {"rope 64 halves", 64, 0, run_rope_halves},
    {"kv_store 64+64", 64, 0, run_kv_store},
    {"kv_store q8 64+64", 64, 0, run_kv_store_q8},
    {"attn_merge 64", 64, 0, run_attn_merge},
    {"attn_finish 64", 64, 0, run_attn_finish},
    {"log_sum_exp 49152", 49152, 1, run_log_sum_exp},
    {"sum_above 49152", 49152, 2, run_sum_above},
    {"top_k 40 of 49152", 49152, 1, run_top_k},
    {"exp 49152", 49152, 1, run_exp},
    {"softmax 1024", 1024, 0, run_softmax},
    {"layer_norm 768", 768, 0, run_layer_norm},
    {"vector_matrix 192x256", 49152, 0, run_vector_matrix},
    {"gemm64_tile 8x24x128", 24576, 0, run_gemm64},
    {"widen_f16 49152", 49152, 1, run_widen_f16},
    {"narrow_f16 49152", 49152, 1, run_narrow_f16},
    {"unary erf 49152", 49152, 1, run_unary_erf},
    {"unary log 49152", 49152, 1, run_unary_log},
    {"unary64 tanh 24576", 49152, 1, run_unary64_tanh},
    {"unary hard swish 49152", 49152, 1, run_unary_hard_swish},
    {"pool_row 3x3 of 56", 896, 0, run_pool_row},
    {"lrn_pixel 5 of 192", 192, 0, run_lrn_pixel},
    {"qdepthwise_row 3x3 of 28", 1792, 0, run_qdepthwise_row},
    {"qpool_row 3x3 of 28", 1792, 0, run_qpool_row},
    {"qpair 4096", 4096, 0, run_qpair},
    {"lookup 4096", 4096, 0, run_lookup},
    {"winograd_input 6x6", 576, 0, run_winograd_input},
    {"winograd_output 4x4", 256, 0, run_winograd_output},
    {"forest_u8 16384 nodes", 16384, 0, run_forest_u8},
    {"forest_u16 16384 nodes", 16384, 0, run_forest_u16},
};

static double time_row(const struct row_case *c, const row_data *d) {
    double best = INFINITY;
    size_t calls = 1 + 400000 / c->n;
    for (size_t round = 0; round < ROUNDS; round++) {
        double start = clock_seconds();
        for (size_t i = 0; i < calls; i++) c->run(d);
        double seconds = (clock_seconds() - start) / (double)calls;
        if (seconds < best) best = seconds;
    }
    return best;
}

static void row_data_fill(row_data *d) {
    for (size_t i = 0; i < MAX_N; i++) {
        uint32_t r = (uint32_t)i * 2654435761u;
        d->x[i] = (float)(r >> 16) / 8192.0f - 4.0f; /* -4 .. 4 */
        d->w[i] = (float)(r >> 8 & 0xff) / 256.0f;
        d->y[i] = d->x[i];
    }
}

static bool bench_rows(row_data *d, const bench_bounds *bounds, bench_visit visit, void *ctx) {
    for (size_t i = 0; i < sizeof row_cases / sizeof *row_cases; i++) {
        const struct row_case *c = &row_cases[i];
        bench_row row = {.isa = d->k->name, .threads = 1};
        d->n = c->n;
        row_data_fill(d);
        snprintf(row.name, sizeof row.name, "%s", c->name);
        row.seconds = time_row(c, d);
        if (c->streams > 0) {
            size_t bytes = c->streams * c->n * sizeof(float);
            row.bound = BENCH_BOUND_READ;
            row.gb_per_s = (double)bytes / row.seconds * 1e-9;
            row.fraction = row.gb_per_s / (bench_bounds_read(bounds, bytes) / (double)bounds->threads);
        }
        if (!visit(ctx, &row)) return false;
    }
    return true;
}

/* ---- attention, all threads ---------------------------------------------------------------------------- */

enum { LAYERS = 30, HEADS = 3, GROUP = 3, DIM = 64, KEYS = 4096, PAGES = KEYS / KV_PAGE, TOKENS = 64 };
enum { CHUNKS = KEYS / ATTN_CHUNK, QUERY = HEADS * GROUP * DIM };

typedef struct member_data {
    attn_partial partial[TOKENS * GROUP];
    float o[TOKENS * GROUP * DIM];
    void *scratch;
} member_data;

typedef struct attn_data {
    const kernels *k;
    kv_type type;
    uint8_t *cache;       /* [CHUNKS, LAYERS, HEADS, pages of a chunk, keys and values] */
    const void **k_list;  /* [LAYERS*HEADS, PAGES] */
    const void **v_list;  /* [LAYERS*HEADS, PAGES] */
    float *q;             /* [TOKENS, QUERY] */
    member_data *members; /* [threads] */
    size_t n_members, cache_bytes;
} attn_data;

static attn_head head_of(const attn_data *a, size_t head) {
    return (attn_head){.head_dim_k = DIM,
                       .head_dim_v = DIM,
                       .group = GROUP,
                       .scale = 0.125f,
                       .k_pages = a->k_list + head * PAGES,
                       .v_pages = a->v_list + head * PAGES};
}

/* A token's attention in every layer, layers separated by a barrier as in a decoder. */
static void decode_member(void *ctx, const pool_member *me) {
    attn_data *a = ctx;
    member_data *m = &a->members[me->index];
    size_t from, to;
    pool_split(me, (size_t)HEADS * CHUNKS, 1, &from, &to);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t job = from; job < to; job++) {
            size_t head = job / CHUNKS;
            attn_head h = head_of(a, layer * HEADS + head);
            a->k->attn_chunk[a->type](&h, a->q + head * GROUP * DIM, QUERY, 1, KEYS - 1, job % CHUNKS,
                                      m->partial, m->o, m->scratch);
        }
        pool_barrier(me);
    }
}

/* TOKENS queries at the end of the context, every head of every member's own layers. */
static void prefill_member(void *ctx, const pool_member *me) {
    attn_data *a = ctx;
    member_data *m = &a->members[me->index];
    for (size_t head = 0; head < HEADS; head++) {
        attn_head h = head_of(a, me->index * HEADS + head);
        for (size_t c = 0; c < CHUNKS; c++) {
            a->k->attn_chunk[a->type](&h, a->q + head * GROUP * DIM, QUERY, TOKENS, KEYS - TOKENS, c,
                                      m->partial, m->o, m->scratch);
        }
    }
}

static bool show_decode(attn_data *a, const bench_bounds *bounds, pool *threads, bench_visit visit,
                        void *ctx) {
    bench_row row = {.isa = a->k->name, .threads = a->n_members, .bound = BENCH_BOUND_READ};
    size_t bytes = a->cache_bytes;
    snprintf(row.name, sizeof row.name, "attn_chunk %s decode %d, %d heads", kv_type_name(a->type), KEYS,
             LAYERS * HEADS);
    row.seconds = bench_best_time(threads, decode_member, a, ROUNDS);
    row.gb_per_s = (double)bytes / row.seconds * 1e-9;
    row.gop_per_s = (double)LAYERS * HEADS * GROUP * KEYS * DIM * 4 / row.seconds * 1e-9;
    row.fraction = row.gb_per_s / bench_bounds_read(bounds, bytes);
    return visit(ctx, &row);
}

static bool show_prefill(attn_data *a, const bench_bounds *bounds, pool *threads, bench_visit visit,
                         void *ctx) {
    bench_row row = {.isa = a->k->name, .threads = a->n_members, .bound = BENCH_BOUND_F32};
    double pairs = TOKENS * (KEYS - TOKENS) + TOKENS * (TOKENS + 1) / 2;
    snprintf(row.name, sizeof row.name, "attn_chunk %s prefill %d at %d", kv_type_name(a->type), TOKENS,
             KEYS - TOKENS);
    row.seconds = bench_best_time(threads, prefill_member, a, ROUNDS);
    row.gop_per_s = pairs * HEADS * GROUP * DIM * 4 * (double)a->n_members / row.seconds * 1e-9;
    row.fraction = bounds->f32_gflop_per_s > 0.0 ? row.gop_per_s / bounds->f32_gflop_per_s : 0.0;
    if (row.fraction == 0.0) row.bound = BENCH_BOUND_NONE;
    return visit(ctx, &row);
}

/* The same page everywhere; a chunk's pages of one head lie side by side, as in the pool. */
static void attn_data_fill(attn_data *a, size_t heads) {
    enum { IN_CHUNK = PAGES / CHUNKS };
    const size_t side = kv_page_bytes(a->type, DIM), page = 2 * side;
    for (size_t h = 0; h < heads; h++) {
        for (size_t p = 0; p < PAGES; p++) {
            uint8_t *at = a->cache + ((p / IN_CHUNK * heads + h) * IN_CHUNK + p % IN_CHUNK) * page;
            a->k_list[h * PAGES + p] = at;
            a->v_list[h * PAGES + p] = at + side;
            if (at != a->cache) continue;
            for (size_t slot = 0; slot < KV_PAGE; slot++) {
                float key[DIM], value[DIM];
                for (size_t d = 0; d < DIM; d++) {
                    key[d] = (float)(int)((slot * 31 + d * 7) % 61) / 64.0f - 0.5f;
                    value[d] = (float)(int)((slot * 17 + d * 5) % 53) / 64.0f - 0.4f;
                }
                a->k->kv_store[a->type](at, at + side, slot, key, DIM, value, DIM);
            }
        }
    }
    for (size_t at = page; at < a->cache_bytes; at += page) memcpy(a->cache + at, a->cache, page);
}

static bool attn_data_make(attn_data *a) {
    size_t heads = (size_t)LAYERS * HEADS;
    a->cache_bytes = heads * PAGES * 2 * kv_page_bytes(a->type, DIM);
    a->cache = mem_pages(a->cache_bytes);
    a->k_list = mem_alloc(heads * PAGES * sizeof *a->k_list);
    a->v_list = mem_alloc(heads * PAGES * sizeof *a->v_list);
    a->q = mem_aligned(64, TOKENS * QUERY * sizeof *a->q);
    a->members = mem_calloc(a->n_members, sizeof *a->members);
    if (!a->cache || !a->k_list || !a->v_list || !a->q || !a->members) return false;
    for (size_t i = 0; i < a->n_members; i++) {
        a->members[i].scratch = mem_aligned(64, attn_scratch(DIM, GROUP, TOKENS));
        if (!a->members[i].scratch) return false;
    }
    for (size_t i = 0; i < TOKENS * QUERY; i++) a->q[i] = (float)(int)(i * 7 % 31) / 16.0f - 1.0f;
    attn_data_fill(a, heads);
    return true;
}

static void attn_data_free(attn_data *a) {
    for (size_t i = 0; a->members && i < a->n_members; i++) mem_free(a->members[i].scratch);
    mem_pages_free(a->cache, a->cache_bytes);
    mem_free(a->k_list);
    mem_free(a->v_list);
    mem_free(a->q);
    mem_free(a->members);
}

static bool bench_attention(const kernels *k, kv_type type, const bench_bounds *bounds, pool *threads,
                            bench_visit visit, void *ctx, bool *go_on) {
    attn_data a = {.k = k, .type = type, .n_members = pool_threads(threads)};
    bool made = a.n_members <= LAYERS && attn_data_make(&a);
    *go_on =
        made && show_decode(&a, bounds, threads, visit, ctx) && show_prefill(&a, bounds, threads, visit, ctx);
    attn_data_free(&a);
    return made;
}

status bench_vectors(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit,
                     void *ctx, error *err) {
    status st = CHURON_OK;
    row_data d = {
        .k = k,
        .x = mem_aligned(64, MAX_N * sizeof(float)),
        .w = mem_aligned(64, MAX_N * sizeof(float)),
        .y = mem_aligned(64, MAX_N * sizeof(float)),
        .page = {mem_aligned(64, kv_page_bytes(KV_F16, DIM)), mem_aligned(64, kv_page_bytes(KV_F16, DIM))},
        .index = mem_alloc(TOP * sizeof(uint32_t))};
    bool go_on = true;
    if (!d.x || !d.w || !d.y || !d.page[0] || !d.page[1] || !d.index) {
        st = error_no_memory(err, "rows to measure", 3 * MAX_N * sizeof(float));
        goto cleanup;
    }
    go_on = bench_rows(&d, bounds, visit, ctx);
    for (int type = 0; go_on && type < KV_TYPE_COUNT; type++) {
        if (!bench_attention(k, (kv_type)type, bounds, threads, visit, ctx, &go_on)) {
            st = error_no_memory(err, "a KV cache to measure", KEYS * LAYERS * HEADS * DIM * 4);
            goto cleanup;
        }
    }
cleanup:
    mem_free(d.x);
    mem_free(d.w);
    mem_free(d.y);
    mem_free(d.page[0]);
    mem_free(d.page[1]);
    mem_free(d.index);
    return st;
}
