/* vector.c: the scalar reference of what works on one row of values. It defines the order of every sum. */
#include "kernel/vector.h"
#include "kernel/ref/ref.h"

#include <math.h>

static float tree_sum(float lane[LANES]) {
    for (size_t step = LANES / 2; step > 0; step /= 2) {
        for (size_t l = 0; l < step; l++) lane[l] += lane[l + step];
    }
    return lane[0];
}

static float tree_max(float lane[LANES]) {
    for (size_t step = LANES / 2; step > 0; step /= 2) {
        for (size_t l = 0; l < step; l++) lane[l] = lane[l] > lane[l + step] ? lane[l] : lane[l + step];
    }
    return lane[0];
}

void rms_norm_ref(const float *x, const float *w, size_t n, float eps, float *y) {
    float lane[LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % LANES] = fmaf(x[i], x[i], lane[i % LANES]);
    float r = 1.0f / sqrtf(tree_sum(lane) / (float)n + eps);
    for (size_t i = 0; i < n; i++) {
        float v = x[i] * r;
        y[i] = w != NULL ? v * w[i] : v;
    }
}

void add_ref(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

void scale_ref(float *y, float s, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] *= s;
}

/* x * sigmoid(a), where a has the sign of x: no exponential that overflows, no cancellation. */
static float times_sigmoid(float x, float a) {
    float e = exp_value(-fabsf(a));
    return (x < 0.0f ? x * e : x) / (1.0f + e);
}

void silu_mul_ref(const float *gate, const float *up, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = times_sigmoid(gate[i], gate[i]) * up[i];
}

/* 0.5 * x * (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3) */
void gelu_tanh_mul_ref(const float *gate, const float *up, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float x = gate[i];
        float u = fmaf(x * x, GELU_CUBIC, 1.0f) * x * GELU_SQRT_8_PI;
        y[i] = times_sigmoid(x, u) * up[i];
    }
}

void soft_cap_ref(float *y, float cap, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = cap * tanh_value(y[i] / cap);
}

void rope_ref(float *head, const float *cos_sin, size_t n_rot, bool interleaved) {
    size_t half = n_rot / 2, distance = interleaved ? 1 : half, step = interleaved ? 2 : 1;
    for (size_t i = 0; i < half; i++) {
        float *a = head + i * step, *b = a + distance;
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], x0 = *a, x1 = *b;
        *a = fmaf(x0, c, -(x1 * s));
        *b = fmaf(x1, c, x0 * s);
    }
}

void kv_store_ref(void *k_page, void *v_page, size_t slot, const float *k, size_t head_dim_k, const float *v,
                  size_t head_dim_v) {
    uint16_t *tile = (uint16_t *)k_page + slot / 16 * head_dim_k * 16 + slot % 16;
    for (size_t d = 0; d < head_dim_k; d++) tile[d * 16] = f32_to_f16(k[d]);
    for (size_t d = 0; d < head_dim_v; d++) ((uint16_t *)v_page)[slot * head_dim_v + d] = f32_to_f16(v[d]);
}

/* Lanes are summed over LSE_BLOCK values in f32, blocks in double: 50,000 terms then lose no more than 64 do.
 */
void log_sum_exp_ref(const float *x, size_t n, float *max, float *lse) {
    float lane[LANES];
    for (size_t l = 0; l < LANES; l++) lane[l] = -INFINITY;
    for (size_t i = 0; i < n; i++) lane[i % LANES] = x[i] > lane[i % LANES] ? x[i] : lane[i % LANES];
    float m = tree_max(lane);
    double total = 0.0;
    for (size_t block = 0; block < n; block += LSE_BLOCK) {
        size_t end = block + LSE_BLOCK < n ? block + LSE_BLOCK : n;
        for (size_t l = 0; l < LANES; l++) lane[l] = 0.0f;
        for (size_t i = block; i < end; i++) lane[i % LANES] += exp_value(x[i] - m);
        total += (double)tree_sum(lane);
    }
    log_sum_exp_end(x, n, m, total, max, lse);
}

void log_sum_exp_end(const float *x, size_t n, float m, double total, float *max, float *lse) {
    if (total >= 1.0) { /* not NaN: neither NaN nor +infinity among x, and the largest is finite */
        *max = m;
        *lse = (float)log_value(total);
        return;
    }
    *max = -INFINITY;
    *lse = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != -INFINITY) *max = *lse = NAN;
    }
}

void sum_above_ref(const float *x, const float *w, size_t n, float least, double *sum, size_t *count) {
    *sum = 0.0;
    *count = 0;
    for (size_t block = 0; block < n; block += LSE_BLOCK) {
        size_t end = block + LSE_BLOCK < n ? block + LSE_BLOCK : n;
        float lane[LANES] = {0};
        for (size_t i = block; i < end; i++) {
            if (!(x[i] >= least)) continue;
            lane[i % LANES] += w[i];
            ++*count;
        }
        *sum += (double)tree_sum(lane);
    }
}

void exp_ref(const float *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = exp_value(x[i]);
}
