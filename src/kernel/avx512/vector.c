/* vector.c: what works on one row of values, 16 lanes at a time, tails by mask. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/vec.h"
#include "kernel/select.h"

static __m512 load(const float *x, __mmask16 m) {
    return _mm512_maskz_loadu_ps(m, x);
}

void rms_norm_avx512(const float *x, const float *w, size_t n, float eps, float *y) {
    __m512 lane = _mm512_setzero_ps();
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m512 v = _mm512_loadu_ps(x + i);
        lane = _mm512_fmadd_ps(v, v, lane);
    }
    if (i < n) {
        __m512 v = load(x + i, vec_tail(n - i));
        lane = _mm512_fmadd_ps(v, v, lane);
    }
    __m512 r = _mm512_set1_ps(1.0f / sqrtf(vec_sum(lane) / (float)n + eps));
    for (i = 0; i < n; i += LANES) {
        __mmask16 m = vec_tail(n - i);
        __m512 v = _mm512_mul_ps(load(x + i, m), r);
        if (w != NULL) v = _mm512_mul_ps(v, load(w + i, m));
        _mm512_mask_storeu_ps(y + i, m, v);
    }
}

void add_avx512(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = vec_tail(n - i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_add_ps(load(y + i, m), load(x + i, m)));
    }
}

void scale_avx512(float *y, float s, size_t n) {
    __m512 factor = _mm512_set1_ps(s);
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = vec_tail(n - i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(load(y + i, m), factor));
    }
}

/* x * sigmoid(a), see ref/vector.c */
static __m512 times_sigmoid(__m512 x, __m512 a) {
    __m512 minus =
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(a), _mm512_set1_epi32((int)0x80000000u)));
    __m512 e = vec_exp_negative(minus);
    __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    __m512 top = _mm512_mask_mul_ps(x, negative, x, e);
    return _mm512_div_ps(top, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

void silu_mul_avx512(const float *gate, const float *up, float *y, size_t n) {
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = vec_tail(n - i);
        __m512 x = load(gate + i, m);
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(times_sigmoid(x, x), load(up + i, m)));
    }
}

void gelu_tanh_mul_avx512(const float *gate, const float *up, float *y, size_t n) {
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = vec_tail(n - i);
        __m512 x = load(gate + i, m);
        __m512 u = _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(GELU_CUBIC), _mm512_set1_ps(1.0f));
        u = _mm512_mul_ps(_mm512_mul_ps(u, x), _mm512_set1_ps(GELU_SQRT_8_PI));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(times_sigmoid(x, u), load(up + i, m)));
    }
}

void soft_cap_avx512(float *y, float cap, size_t n) {
    __m512 c = _mm512_set1_ps(cap);
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = vec_tail(n - i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(c, vec_tanh(_mm512_div_ps(load(y + i, m), c))));
    }
}

/* 8 pairs in one register: a swapped copy times (-sin, sin), then x * cos by fused multiply-add. */
static void rope_pairs(float *head, const float *cos_sin, size_t n_rot) {
    for (size_t i = 0; i < n_rot; i += LANES) {
        __mmask16 m = vec_tail(n_rot - i);
        __m512 x = load(head + i, m), cs = load(cos_sin + i, m);
        __m512 turned = _mm512_mul_ps(_mm512_permute_ps(x, 0xb1), _mm512_movehdup_ps(cs));
        _mm512_mask_storeu_ps(head + i, m, _mm512_fmaddsub_ps(x, _mm512_moveldup_ps(cs), turned));
    }
}

static void rope_halves(float *head, const float *cos_sin, size_t half) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (size_t i = 0; i < half; i += LANES) {
        size_t left = half - i;
        __mmask16 m = vec_tail(left);
        __m512 lo = load(cos_sin + 2 * i, vec_tail(2 * left));
        __m512 hi = load(cos_sin + 2 * i + LANES, vec_tail(2 * left > LANES ? 2 * left - LANES : 0));
        __m512 c = _mm512_permutex2var_ps(lo, even, hi), s = _mm512_permutex2var_ps(lo, odd, hi);
        __m512 x0 = load(head + i, m), x1 = load(head + half + i, m);
        _mm512_mask_storeu_ps(head + i, m, _mm512_fmsub_ps(x0, c, _mm512_mul_ps(x1, s)));
        _mm512_mask_storeu_ps(head + half + i, m, _mm512_fmadd_ps(x1, c, _mm512_mul_ps(x0, s)));
    }
}

void rope_avx512(float *head, const float *cos_sin, size_t n_rot, bool interleaved) {
    if (interleaved) {
        rope_pairs(head, cos_sin, n_rot / 2 * 2);
    } else {
        rope_halves(head, cos_sin, n_rot / 2);
    }
}

void kv_store_avx512(void *k_page, void *v_page, size_t slot, const float *k, size_t head_dim_k,
                     const float *v, size_t head_dim_v) {
    uint16_t *tile = (uint16_t *)k_page + slot / 16 * head_dim_k * 16 + slot % 16;
    for (size_t d = 0; d < head_dim_k; d += LANES) {
        uint16_t half[LANES];
        _mm256_storeu_si256((__m256i *)half,
                            _mm512_cvtps_ph(_mm512_loadu_ps(k + d), _MM_FROUND_TO_NEAREST_INT));
        for (size_t l = 0; l < LANES; l++) tile[(d + l) * 16] = half[l];
    }
    uint16_t *row = (uint16_t *)v_page + slot * head_dim_v;
    for (size_t d = 0; d < head_dim_v; d += LANES) {
        _mm256_storeu_si256((__m256i *)(row + d),
                            _mm512_cvtps_ph(_mm512_loadu_ps(v + d), _MM_FROUND_TO_NEAREST_INT));
    }
}

static float row_max(const float *x, size_t n) {
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 lane = lowest;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) lane = _mm512_max_ps(_mm512_loadu_ps(x + i), lane);
    if (i < n) lane = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, vec_tail(n - i), x + i), lane);
    return vec_max(lane);
}

void log_sum_exp_avx512(const float *x, size_t n, float *max, float *lse) {
    float m = row_max(x, n);
    __m512 top = _mm512_set1_ps(m);
    double total = 0.0;
    for (size_t block = 0; block < n; block += LSE_BLOCK) {
        size_t end = block + LSE_BLOCK < n ? block + LSE_BLOCK : n, i = block;
        __m512 lane = _mm512_setzero_ps();
        for (; i + LANES <= end; i += LANES) {
            lane = _mm512_add_ps(lane, vec_exp_negative(_mm512_sub_ps(_mm512_loadu_ps(x + i), top)));
        }
        if (i < end) {
            __mmask16 in = vec_tail(end - i);
            __m512 e = vec_exp_negative(_mm512_sub_ps(load(x + i, in), top));
            lane = _mm512_mask_add_ps(lane, in, lane, e);
        }
        total += (double)vec_sum(lane);
    }
    log_sum_exp_end(x, n, m, total, max, lse);
}

void sum_above_avx512(const float *x, const float *w, size_t n, float least, double *sum, size_t *count) {
    __m512 border = _mm512_set1_ps(least);
    *sum = 0.0;
    *count = 0;
    for (size_t block = 0; block < n; block += LSE_BLOCK) {
        size_t end = block + LSE_BLOCK < n ? block + LSE_BLOCK : n;
        __m512 lane = _mm512_setzero_ps();
        for (size_t i = block; i < end; i += LANES) {
            __mmask16 m = vec_tail(end - i);
            m = _mm512_mask_cmp_ps_mask(m, load(x + i, m), border, _CMP_GE_OQ);
            lane = _mm512_mask_add_ps(lane, m, lane, load(w + i, m));
            *count += (size_t)__builtin_popcount(m);
        }
        *sum += (double)vec_sum(lane);
    }
}

void exp_avx512(const float *x, float *y, size_t n) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m512 v = _mm512_loadu_ps(x + i);
        bool positive = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GT_OQ) != 0;
        _mm512_storeu_ps(y + i, positive ? vec_exp(v) : vec_exp_negative(v));
    }
    if (i < n) {
        __mmask16 m = vec_tail(n - i);
        _mm512_mask_storeu_ps(y + i, m, vec_exp(load(x + i, m)));
    }
}

/* Appends to keys those of a 16-value step that `in` names; returns the new count. */
static size_t collect(uint64_t *keys, size_t count, const float *x, size_t i, __mmask16 in) {
    for (unsigned m = in; m != 0; m &= m - 1) {
        size_t at = i + (size_t)__builtin_ctz(m);
        keys[count++] = select_key(x[at], (uint32_t)at);
    }
    return count;
}

/* The reference's running threshold; a step of 64 values costs four compares unless it holds a candidate. Not
 * "greater" but "not less or equal": before the threshold is a number everything is a candidate. */
void top_k_avx512(const float *x, size_t n, size_t k, uint32_t *index, float *value) {
    if (k == 0) return;
    uint64_t keys[SELECT_ROOM], spare[TOP_MAX];
    size_t count = 0, limit = 2 * k + 64, i = 0;
    __m512 least = _mm512_set1_ps(NAN);
    while (i < n) {
        __mmask16 in[4] = {0};
        size_t step = n - i < 64 ? n - i : 64;
        for (size_t v = 0; v < 4 && v * LANES < step; v++) {
            __mmask16 m = vec_tail(step - v * LANES);
            in[v] = _mm512_mask_cmp_ps_mask(m, load(x + i + v * LANES, m), least, _CMP_NLE_UQ);
        }
        if ((in[0] | in[1] | in[2] | in[3]) != 0) {
            for (size_t v = 0; v < 4; v++) count = collect(keys, count, x, i + v * LANES, in[v]);
            if (count >= limit) {
                least = _mm512_set1_ps(select_value(select_largest(keys, count, k)));
                count = k;
            }
        }
        i += step;
    }
    (void)select_largest(keys, count, k);
    select_sort(keys, spare, k);
    for (size_t j = 0; j < k; j++) {
        index[j] = select_index(keys[j]);
        value[j] = x[index[j]];
    }
}
