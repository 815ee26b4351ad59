/* attention.c: the scalar reference of attention over a paged cache, one query head at a time, and of the f16
 * cache.
 *
 * It defines the order that every version keeps: score = one chain over d ascending, then scale and soft cap;
 * a block's maximum and sum in lanes (key j in lane j % LANES, see vector.h); o = one chain over the visible
 * keys ascending. Keys that a query may not see take no part at all. */
#include "kernel/ref/ref.h"
#include "kernel/vector.h"

#include <math.h>
#include <string.h>

/* Scores of the visible keys [from, to) of the block at `start`; the others get -infinity. */
static void block_scores(const attn_head *h, const float *q, size_t start, size_t from, size_t to,
                         float s[ATTN_BLOCK]) {
    for (size_t j = 0; j < ATTN_BLOCK; j++) {
        size_t key = start + j;
        s[j] = -INFINITY;
        if (key < from || key >= to) continue;
        const uint16_t *tile =
            (const uint16_t *)h->k_pages[key / KV_PAGE] + key % KV_PAGE / 16 * h->head_dim_k * 16 + key % 16;
        float acc = 0.0f;
        for (size_t d = 0; d < h->head_dim_k; d++) acc = fmaf(q[d], f16_to_f32(tile[d * 16]), acc);
        acc *= h->scale;
        s[j] = h->soft_cap != 0.0f ? h->soft_cap * tanh_value(acc / h->soft_cap) : acc;
    }
}

/* NaN never becomes the maximum; it reaches the sum and the values through its own weight. */
static float block_max(const float s[ATTN_BLOCK]) {
    float lane[LANES];
    for (size_t l = 0; l < LANES; l++) lane[l] = -INFINITY;
    for (size_t j = 0; j < ATTN_BLOCK; j++) {
        lane[j % LANES] = s[j] > lane[j % LANES] ? s[j] : lane[j % LANES];
    }
    for (size_t step = LANES / 2; step > 0; step /= 2) {
        for (size_t l = 0; l < step; l++) lane[l] = lane[l] > lane[l + step] ? lane[l] : lane[l + step];
    }
    return lane[0];
}

static float block_sum(const float p[ATTN_BLOCK]) {
    float lane[LANES];
    for (size_t l = 0; l < LANES; l++) lane[l] = (p[l] + p[l + 16]) + (p[l + 32] + p[l + 48]);
    for (size_t step = LANES / 2; step > 0; step /= 2) {
        for (size_t l = 0; l < step; l++) lane[l] += lane[l + step];
    }
    return lane[0];
}

void attn_soften_ref(float s[ATTN_BLOCK], size_t from, size_t to, attn_partial *state, float *o,
                     size_t dim_v) {
    float m = block_max(s);
    if (m > state->max) {
        float factor = exp_value(state->max - m);
        for (size_t d = 0; d < dim_v; d++) o[d] *= factor;
        state->sum *= factor;
        state->max = m;
    }
    for (size_t j = 0; j < ATTN_BLOCK; j++) s[j] = j >= from && j < to ? exp_value(s[j] - state->max) : 0.0f;
    state->sum += block_sum(s);
}

static void one_query(const attn_head *h, const float *q, size_t from, size_t to, attn_partial *partial,
                      float *o) {
    *partial = (attn_partial){-INFINITY, 0.0f};
    for (size_t d = 0; d < h->head_dim_v; d++) o[d] = 0.0f;
    for (size_t start = from / ATTN_BLOCK * ATTN_BLOCK; start < to; start += ATTN_BLOCK) {
        float s[ATTN_BLOCK];
        size_t first = from > start ? from : start;
        size_t end = to < start + ATTN_BLOCK ? to : start + ATTN_BLOCK;
        block_scores(h, q, start, from, to, s);
        attn_soften_ref(s, first - start, end - start, partial, o, h->head_dim_v);
        for (size_t key = first; key < end; key++) {
            const uint16_t *v = (const uint16_t *)h->v_pages[key / KV_PAGE] + key % KV_PAGE * h->head_dim_v;
            for (size_t d = 0; d < h->head_dim_v; d++) o[d] = fmaf(s[key - start], f16_to_f32(v[d]), o[d]);
        }
    }
}

void attn_each_query_ref(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                         attn_partial *partial, float *o, attn_query_fn one) {
    size_t first = c * ATTN_CHUNK, last = first + ATTN_CHUNK;
    for (size_t t = 0; t < n; t++) {
        size_t p = pos + t, from = first, to = p + 1 < last ? p + 1 : last;
        if (h->window != 0 && p + 1 > h->window && p + 1 - h->window > from) from = p + 1 - h->window;
        if (from >= to) from = to = 0; /* sees no key of this chunk */
        for (size_t g = 0; g < h->group; g++) {
            one(h, q + t * ldq + g * h->head_dim_k, from, to, partial + t * h->group + g,
                o + (t * h->group + g) * h->head_dim_v);
        }
    }
}

void attn_chunk_ref(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                    attn_partial *partial, float *o, void *scratch) {
    (void)scratch;
    attn_each_query_ref(h, q, ldq, n, pos, c, partial, o, one_query);
}

void attn_merge_ref(attn_partial *into, float *o_into, const attn_partial *from, const float *o_from,
                    size_t head_dim_v) {
    if (from->sum == 0.0f) return; /* it saw no key */
    if (into->sum == 0.0f) {
        *into = *from;
        memcpy(o_into, o_from, head_dim_v * sizeof *o_into);
        return;
    }
    float max = into->max > from->max ? into->max : from->max;
    float a = exp_value(into->max - max), b = exp_value(from->max - max);
    for (size_t d = 0; d < head_dim_v; d++) o_into[d] = fmaf(o_from[d], b, o_into[d] * a);
    *into = (attn_partial){max, fmaf(from->sum, b, into->sum * a)};
}

void attn_finish_ref(const attn_partial *p, const float *o, size_t head_dim_v, float *out) {
    for (size_t d = 0; d < head_dim_v; d++) out[d] = o[d] / p->sum;
}
