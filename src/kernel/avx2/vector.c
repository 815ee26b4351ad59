/* vector.c: what works on one row of values, 8 lanes at a time, tails by masked loads and stores. Sums run in
 * 16 lanes: two registers. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/vec.h"
#include "kernel/select.h"

void rms_norm_avx2(const float *x, const float *w, size_t n, float eps, float *y) {
    __m256 lo = _mm256_setzero_ps(), hi = lo;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + VEC);
        lo = _mm256_fmadd_ps(a, a, lo);
        hi = _mm256_fmadd_ps(b, b, hi);
    }
    if (i < n) {
        size_t left = n - i;
        __m256 a = vec_load(x + i, vec_tail(left));
        lo = _mm256_fmadd_ps(a, a, lo);
        if (left > VEC) {
            __m256 b = vec_load(x + i + VEC, vec_tail(left - VEC));
            hi = _mm256_fmadd_ps(b, b, hi);
        }
    }
    __m256 r = _mm256_set1_ps(1.0f / sqrtf(vec_sum(lo, hi) / (float)n + eps));
    for (i = 0; i < n; i += VEC) {
        __m256i m = vec_tail(n - i);
        __m256 v = _mm256_mul_ps(vec_load(x + i, m), r);
        if (w != NULL) v = _mm256_mul_ps(v, vec_load(w + i, m));
        _mm256_maskstore_ps(y + i, m, v);
    }
}

void add_avx2(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i += VEC) {
        __m256i m = vec_tail(n - i);
        _mm256_maskstore_ps(y + i, m, _mm256_add_ps(vec_load(y + i, m), vec_load(x + i, m)));
    }
}

void scale_avx2(float *y, float s, size_t n) {
    __m256 factor = _mm256_set1_ps(s);
    for (size_t i = 0; i < n; i += VEC) {
        __m256i m = vec_tail(n - i);
        _mm256_maskstore_ps(y + i, m, _mm256_mul_ps(vec_load(y + i, m), factor));
    }
}

/* x * sigmoid(a), see ref/vector.c */
static __m256 times_sigmoid(__m256 x, __m256 a) {
    __m256 e = vec_exp_negative(_mm256_or_ps(a, _mm256_set1_ps(-0.0f)));
    __m256 negative = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
    __m256 top = _mm256_blendv_ps(x, _mm256_mul_ps(x, e), negative);
    return _mm256_div_ps(top, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

void silu_mul_avx2(const float *gate, const float *up, float *y, size_t n) {
    for (size_t i = 0; i < n; i += VEC) {
        __m256i m = vec_tail(n - i);
        __m256 x = vec_load(gate + i, m);
        _mm256_maskstore_ps(y + i, m, _mm256_mul_ps(times_sigmoid(x, x), vec_load(up + i, m)));
    }
}

void gelu_tanh_mul_avx2(const float *gate, const float *up, float *y, size_t n) {
    for (size_t i = 0; i < n; i += VEC) {
        __m256i m = vec_tail(n - i);
        __m256 x = vec_load(gate + i, m);
        __m256 u = _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(GELU_CUBIC), _mm256_set1_ps(1.0f));
        u = _mm256_mul_ps(_mm256_mul_ps(u, x), _mm256_set1_ps(GELU_SQRT_8_PI));
        _mm256_maskstore_ps(y + i, m, _mm256_mul_ps(times_sigmoid(x, u), vec_load(up + i, m)));
    }
}

void soft_cap_avx2(float *y, float cap, size_t n) {
    __m256 c = _mm256_set1_ps(cap);
    for (size_t i = 0; i < n; i += VEC) {
        __m256i m = vec_tail(n - i);
        __m256 v = vec_tanh(_mm256_div_ps(vec_load(y + i, m), c));
        _mm256_maskstore_ps(y + i, m, _mm256_mul_ps(c, v));
    }
}

/* 4 pairs in one register: a swapped copy times (-sin, sin), then x * cos by fused multiply-add. */
static void rope_pairs(float *head, const float *cos_sin, size_t n_rot) {
    for (size_t i = 0; i < n_rot; i += VEC) {
        __m256i m = vec_tail(n_rot - i);
        __m256 x = vec_load(head + i, m), cs = vec_load(cos_sin + i, m);
        __m256 turned = _mm256_mul_ps(_mm256_permute_ps(x, 0xb1), _mm256_movehdup_ps(cs));
        _mm256_maskstore_ps(head + i, m, _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(cs), turned));
    }
}

static void rope_halves(float *head, const float *cos_sin, size_t half) {
    const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
    for (size_t i = 0; i < half; i += VEC) {
        size_t left = half - i;
        __m256i m = vec_tail(left);
        __m256 lo = vec_load(cos_sin + 2 * i, vec_tail(2 * left));
        __m256 hi = _mm256_setzero_ps();
        if (2 * left > VEC) hi = vec_load(cos_sin + 2 * i + VEC, vec_tail(2 * left - VEC));
        /* within 128-bit halves: cos 0 1 4 5 2 3 6 7; the permutation puts them in order */
        __m256 c = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(lo, hi, 0x88), order);
        __m256 s = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(lo, hi, 0xdd), order);
        __m256 x0 = vec_load(head + i, m), x1 = vec_load(head + half + i, m);
        _mm256_maskstore_ps(head + i, m, _mm256_fmsub_ps(x0, c, _mm256_mul_ps(x1, s)));
        _mm256_maskstore_ps(head + half + i, m, _mm256_fmadd_ps(x1, c, _mm256_mul_ps(x0, s)));
    }
}

void rope_avx2(float *head, const float *cos_sin, size_t n_rot, bool interleaved) {
    if (interleaved) {
        rope_pairs(head, cos_sin, n_rot / 2 * 2);
    } else {
        rope_halves(head, cos_sin, n_rot / 2);
    }
}

void kv_store_avx2(void *k_page, void *v_page, size_t slot, const float *k, size_t head_dim_k, const float *v,
                   size_t head_dim_v) {
    uint16_t *tile = (uint16_t *)k_page + slot / 16 * head_dim_k * 16 + slot % 16;
    for (size_t d = 0; d < head_dim_k; d += VEC) {
        uint16_t half[VEC];
        _mm_storeu_si128((__m128i *)half, _mm256_cvtps_ph(_mm256_loadu_ps(k + d), _MM_FROUND_TO_NEAREST_INT));
        for (size_t l = 0; l < VEC; l++) tile[(d + l) * 16] = half[l];
    }
    uint16_t *row = (uint16_t *)v_page + slot * head_dim_v;
    for (size_t d = 0; d < head_dim_v; d += VEC) {
        _mm_storeu_si128((__m128i *)(row + d),
                         _mm256_cvtps_ph(_mm256_loadu_ps(v + d), _MM_FROUND_TO_NEAREST_INT));
    }
}

/* x where m, else the value that does not count. */
static __m256 load_or(const float *x, __m256i m, __m256 other) {
    return _mm256_blendv_ps(other, vec_load(x, m), _mm256_castsi256_ps(m));
}

static float row_max(const float *x, size_t n) {
    const __m256 lowest = _mm256_set1_ps(-INFINITY);
    __m256 lo = lowest, hi = lowest;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lo = _mm256_max_ps(_mm256_loadu_ps(x + i), lo);
        hi = _mm256_max_ps(_mm256_loadu_ps(x + i + VEC), hi);
    }
    if (i < n) lo = _mm256_max_ps(load_or(x + i, vec_tail(n - i), lowest), lo);
    if (i + VEC < n) hi = _mm256_max_ps(load_or(x + i + VEC, vec_tail(n - i - VEC), lowest), hi);
    return vec_max(lo, hi);
}

static __m256 exp_below(const float *x, __m256i m, __m256 top) {
    __m256 e = vec_exp_negative(_mm256_sub_ps(vec_load(x, m), top));
    return _mm256_and_ps(e, _mm256_castsi256_ps(m));
}

void log_sum_exp_avx2(const float *x, size_t n, float *max, float *lse) {
    float m = row_max(x, n);
    __m256 top = _mm256_set1_ps(m);
    double total = 0.0;
    for (size_t block = 0; block < n; block += LSE_BLOCK) {
        size_t end = block + LSE_BLOCK < n ? block + LSE_BLOCK : n, i = block;
        __m256 lo = _mm256_setzero_ps(), hi = lo;
        for (; i + LANES <= end; i += LANES) {
            lo = _mm256_add_ps(lo, vec_exp_negative(_mm256_sub_ps(_mm256_loadu_ps(x + i), top)));
            hi = _mm256_add_ps(hi, vec_exp_negative(_mm256_sub_ps(_mm256_loadu_ps(x + i + VEC), top)));
        }
        if (i < end) lo = _mm256_add_ps(lo, exp_below(x + i, vec_tail(end - i), top));
        if (i + VEC < end) hi = _mm256_add_ps(hi, exp_below(x + i + VEC, vec_tail(end - i - VEC), top));
        total += (double)vec_sum(lo, hi);
    }
    log_sum_exp_end(x, n, m, total, max, lse);
}

/* Adds w where x reaches the border and m; returns how many do. */
static size_t add_above(const float *x, const float *w, __m256i m, __m256 border, __m256 *lane) {
    __m256 in = _mm256_and_ps(_mm256_cmp_ps(vec_load(x, m), border, _CMP_GE_OQ), _mm256_castsi256_ps(m));
    *lane = _mm256_blendv_ps(*lane, _mm256_add_ps(*lane, vec_load(w, m)), in);
    return (size_t)__builtin_popcount((unsigned)_mm256_movemask_ps(in));
}

void sum_above_avx2(const float *x, const float *w, size_t n, float least, double *sum, size_t *count) {
    __m256 border = _mm256_set1_ps(least);
    *sum = 0.0;
    *count = 0;
    for (size_t block = 0; block < n; block += LSE_BLOCK) {
        size_t end = block + LSE_BLOCK < n ? block + LSE_BLOCK : n;
        __m256 lo = _mm256_setzero_ps(), hi = lo;
        size_t i = block;
        for (; i + LANES <= end; i += LANES) {
            const __m256i all = _mm256_set1_epi32(-1);
            *count += add_above(x + i, w + i, all, border, &lo);
            *count += add_above(x + i + VEC, w + i + VEC, all, border, &hi);
        }
        for (; i < end; i += LANES) {
            *count += add_above(x + i, w + i, vec_tail(end - i), border, &lo);
            if (i + VEC >= end) break;
            *count += add_above(x + i + VEC, w + i + VEC, vec_tail(end - i - VEC), border, &hi);
        }
        *sum += (double)vec_sum(lo, hi);
    }
}

void exp_avx2(const float *x, float *y, size_t n) {
    size_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        __m256 v = _mm256_loadu_ps(x + i);
        bool positive = _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_GT_OQ)) != 0;
        _mm256_storeu_ps(y + i, positive ? vec_exp(v) : vec_exp_negative(v));
    }
    if (i < n) {
        __m256i m = vec_tail(n - i);
        _mm256_maskstore_ps(y + i, m, vec_exp(vec_load(x + i, m)));
    }
}

/* Appends to keys those of a 32-value step that `in` names; returns the new count. */
static size_t collect(uint64_t *keys, size_t count, const float *x, size_t i, unsigned in) {
    for (; in != 0; in &= in - 1) {
        size_t at = i + (size_t)__builtin_ctz(in);
        keys[count++] = select_key(x[at], (uint32_t)at);
    }
    return count;
}

/* The reference's running threshold, 32 values a step. Not "greater" but "not less or equal": before the
 * threshold is a number everything is a candidate. */
void top_k_avx2(const float *x, size_t n, size_t k, uint32_t *index, float *value) {
    if (k == 0) return;
    uint64_t keys[SELECT_ROOM], spare[TOP_MAX];
    size_t count = 0, limit = 2 * k + 64, step = 4 * VEC;
    __m256 least = _mm256_set1_ps(NAN);
    for (size_t i = 0; i < n; i += step) {
        unsigned in = 0;
        for (size_t v = 0; v < 4 && i + v * VEC < n; v++) {
            __m256i m = vec_tail(n - i - v * VEC);
            __m256 over = _mm256_cmp_ps(vec_load(x + i + v * VEC, m), least, _CMP_NLE_UQ);
            over = _mm256_and_ps(over, _mm256_castsi256_ps(m));
            in |= (unsigned)_mm256_movemask_ps(over) << (v * VEC);
        }
        if (in == 0) continue;
        count = collect(keys, count, x, i, in);
        if (count >= limit) {
            least = _mm256_set1_ps(select_value(select_largest(keys, count, k)));
            count = k;
        }
    }
    (void)select_largest(keys, count, k);
    select_sort(keys, spare, k);
    for (size_t j = 0; j < k; j++) {
        index[j] = select_index(keys[j]);
        value[j] = x[index[j]];
    }
}
