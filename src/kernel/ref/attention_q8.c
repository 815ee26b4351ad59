/* attention_q8.c: the scalar reference of the KV_Q8 cache; attn_q8.h says what it computes. */
#include "kernel/attn_q8.h"
#include "kernel/ref/ref.h"
#include "kernel/vector.h"

enum { DIM_MAX = 512 };

static uint32_t largest_magnitude(const float *x, size_t n) {
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        if (bits > most) most = bits;
    }
    return most;
}

/* ---- store ------------------------------------------------------------------------------------------- */

/* One block of up to 32 values to int8; returns the scale. */
static uint16_t quantize_block(const float *x, size_t n, int8_t *q) {
    q_scale s;
    uint16_t half = kv_q8_scale(largest_magnitude(x, n), &s);
    for (size_t i = 0; i < n; i++) {
        int v = q_round(x[i], s.inverse);
        q[i] = (int8_t)(v > KV_Q8_MOST ? KV_Q8_MOST : v < -KV_Q8_MOST ? -KV_Q8_MOST : v);
    }
    return half;
}

void kv_store_q8_ref(void *k_page, void *v_page, size_t slot, const float *k, size_t head_dim_k,
                     const float *v, size_t head_dim_v) {
    int8_t q[KV_Q8_BLOCK], *kq = k_page, *vq = v_page;
    uint16_t *k_scale = (uint16_t *)(void *)(kq + KV_PAGE * head_dim_k) + slot;
    uint16_t *v_scale = (uint16_t *)(void *)(vq + KV_PAGE * head_dim_v) + slot;
    for (size_t from = 0; from < head_dim_k; from += KV_Q8_BLOCK, k_scale += KV_PAGE) {
        size_t n = head_dim_k - from < KV_Q8_BLOCK ? head_dim_k - from : KV_Q8_BLOCK;
        *k_scale = quantize_block(k + from, n, q);
        for (size_t i = 0; i < n; i++) {
            size_t pair = slot / 16 * (head_dim_k / 2) + (from + i) / 2;
            kq[pair * 32 + slot % 16 * 2 + i % 2] = q[i];
        }
    }
    for (size_t from = 0; from < head_dim_v; from += KV_Q8_BLOCK, v_scale += KV_PAGE) {
        size_t n = head_dim_v - from < KV_Q8_BLOCK ? head_dim_v - from : KV_Q8_BLOCK;
        *v_scale = quantize_block(v + from, n, q);
        for (size_t i = 0; i < n; i++) vq[(slot / 2 * head_dim_v + from + i) * 2 + slot % 2] = q[i];
    }
}

/* ---- attention --------------------------------------------------------------------------------------- */

static float key_score(const int16_t *q, const void *page, size_t slot, size_t dim) {
    const int8_t *tile = (const int8_t *)page + slot / 16 * dim * 16 + slot % 16 * 2;
    const uint16_t *scale = kv_q8_scales(page, dim) + slot;
    float acc = 0.0f;
    for (size_t from = 0; from < dim; from += KV_Q8_BLOCK, scale += KV_PAGE) {
        int32_t sum = 0;
        for (size_t d = from; d < dim && d < from + KV_Q8_BLOCK; d++) {
            sum += q[d] * tile[d / 2 * 32 + d % 2];
        }
        acc = fmaf((float)sum, f16_to_f32(*scale), acc);
    }
    return acc;
}

/* Scores of the visible keys [from, to) of the block at `start`; the others get -infinity. */
static void block_scores(const attn_head *h, const int16_t *q, float factor, size_t start, size_t from,
                         size_t to, float s[ATTN_BLOCK]) {
    for (size_t j = 0; j < ATTN_BLOCK; j++) {
        size_t key = start + j;
        s[j] = -INFINITY;
        if (key < from || key >= to) continue;
        float x = key_score(q, h->k_pages[key / KV_PAGE], key % KV_PAGE, h->head_dim_k) * factor;
        s[j] = h->soft_cap != 0.0f ? h->soft_cap * tanh_value(x / h->soft_cap) : x;
    }
}

/* o += weights p of keys [from, to) of the block at `start`, times the values; 0 elsewhere. */
static void add_values(const attn_head *h, const float p[ATTN_BLOCK], size_t start, size_t from, size_t to,
                       float *o) {
    const size_t dim = h->head_dim_v;
    for (size_t b = 0; b < kv_q8_blocks(dim); b++) {
        float weight[ATTN_BLOCK] = {0};
        int32_t w[ATTN_BLOCK];
        for (size_t key = from; key < to; key++) {
            uint16_t scale = kv_q8_scales(h->v_pages[key / KV_PAGE], dim)[b * KV_PAGE + key % KV_PAGE];
            weight[key - start] = p[key - start] * f16_to_f32(scale);
        }
        q_scale s = q16_scale(largest_magnitude(weight, ATTN_BLOCK));
        for (size_t j = 0; j < ATTN_BLOCK; j++) w[j] = q_round(weight[j], s.inverse);
        for (size_t d = b * KV_Q8_BLOCK; d < dim && d < (b + 1) * KV_Q8_BLOCK; d++) {
            int32_t sum = 0;
            for (size_t key = from; key < to; key++) {
                const int8_t *v = h->v_pages[key / KV_PAGE];
                sum += w[key - start] * v[(key % KV_PAGE / 2 * dim + d) * 2 + key % 2];
            }
            o[d] = fmaf((float)sum, s.scale, o[d]);
        }
    }
}

static void one_query(const attn_head *h, const float *query, size_t from, size_t to, attn_partial *partial,
                      float *o) {
    int16_t q[DIM_MAX];
    q_scale qs = q16_scale(largest_magnitude(query, h->head_dim_k));
    for (size_t d = 0; d < h->head_dim_k; d++) q[d] = (int16_t)q_round(query[d], qs.inverse);
    *partial = (attn_partial){-INFINITY, 0.0f};
    for (size_t d = 0; d < h->head_dim_v; d++) o[d] = 0.0f;
    for (size_t start = from / ATTN_BLOCK * ATTN_BLOCK; start < to; start += ATTN_BLOCK) {
        float s[ATTN_BLOCK];
        size_t first = from > start ? from : start;
        size_t end = to < start + ATTN_BLOCK ? to : start + ATTN_BLOCK;
        block_scores(h, q, qs.scale * h->scale, start, from, to, s);
        attn_soften_ref(s, first - start, end - start, partial, o, h->head_dim_v);
        add_values(h, s, start, first, end, o);
    }
}

void attn_chunk_q8_ref(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                       attn_partial *partial, float *o, void *scratch) {
    (void)scratch;
    attn_each_query_ref(h, q, ldq, n, pos, c, partial, o, one_query);
}
