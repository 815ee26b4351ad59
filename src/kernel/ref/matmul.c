/* matmul.c: the scalar reference of matrix products, row look-up and quantization of activations.
 *
 * It spells out the law of sums in kernel.h; the other instruction sets must give the same bits. */
#include "kernel/pack.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 16 }; /* that share the decoding of a weight */

/* 32 weights of one row: w = scale[h] * q + min[h], h = which half (both the same unless 16 values share a
 * scale). */
typedef struct block {
    int q[32];
    float scale[2], min[2];
} block;

static float half_at(const uint8_t *at, size_t lane) {
    uint16_t h;
    memcpy(&h, at + 2 * lane, 2);
    return f16_to_f32(h);
}

static uint32_t word_at(const uint8_t *line, size_t lane) {
    uint32_t w;
    memcpy(&w, line + 4 * lane, 4);
    return w;
}

/* The eight words of stored values of a block. */
static void get_words(const pack_layout *l, const uint8_t *at, size_t lane, uint32_t w[8]) {
    const uint8_t *high = at + 64 * l->low_bits;
    for (size_t t = 0; t < 8; t++) {
        switch (l->low_bits) {
        case 8: w[t] = word_at(at + 64 * t, lane); break;
        case 4: w[t] = word_at(at + 64 * (t % 4), lane) >> (t / 4 * 4) & 0x0f0f0f0f; break;
        default: w[t] = word_at(at + 64 * (t / 4), lane) >> (t % 4 * 2) & 0x03030303; break;
        }
        if (l->high_bits == 1) {
            w[t] |= (word_at(high, lane) >> t & 0x01010101) << l->low_bits;
        } else if (l->high_bits == 2) {
            w[t] |= (word_at(high + 64 * (t / 4), lane) >> (t % 4 * 2) & 0x03030303) << l->low_bits;
        }
    }
}

static void get_scales(dtype type, const uint8_t *unit, size_t b, size_t lane, block *out) {
    const pack_layout *l = pack_describe(type);
    float d = half_at(unit + l->d, lane), m = l->has_min ? half_at(unit + l->m, lane) : 0.0f;
    for (size_t h = 0; h < 2; h++) {
        size_t sub = 16 * (l->scale16 ? 2 * b + h : b) + lane;
        const uint8_t *s = unit + l->sub_scale + sub;
        if (l->span == 32) {
            out->scale[h] = d;
            out->min[h] = m;
        } else if (type == DTYPE_Q2_K) {
            out->scale[h] = d * (float)(*s & 15);
            out->min[h] = -(m * (float)(*s >> 4));
        } else if (l->has_min) {
            out->scale[h] = d * (float)*s;
            out->min[h] = -(m * (float)unit[l->sub_min + sub]);
        } else {
            out->scale[h] = d * (float)(int8_t)*s;
            out->min[h] = 0.0f;
        }
    }
}

/* Block i (of 32 values) of one row. */
static void get_block(const packed *w, size_t row, size_t i, block *out) {
    const pack_layout *l = pack_describe(w->type);
    size_t per_unit = l->span / 32, b = i % per_unit, lane = row % PACK_ROWS;
    const uint8_t *unit = w->data + row / PACK_ROWS * w->group_bytes + i / per_unit * l->unit_bytes;
    uint32_t words[8];
    get_words(l, unit + l->q + b * l->q_bytes, lane, words);
    for (size_t k = 0; k < 32; k++) {
        uint32_t stored = words[k / 4] >> (k % 4 * 8) & 0xff;
        if (w->type == DTYPE_IQ4_NL) stored = pack_iq4nl_codes[stored];
        out->q[k] = (int)stored - l->bias;
    }
    get_scales(w->type, unit, b, lane, out);
}

static float float_weight(const packed *w, size_t row, size_t k) {
    const uint8_t *group = w->data + row / PACK_ROWS * w->group_bytes;
    size_t i = k * PACK_ROWS + row % PACK_ROWS;
    uint16_t h;
    if (w->type == DTYPE_F32) return pack_word_as_float(word_at(group, i));
    memcpy(&h, group + 2 * i, 2);
    return w->type == DTYPE_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

/* ---- products ---------------------------------------------------------------------------------------- */

/* acc[t] for one row and n <= TOKENS tokens, float weights. */
static void row_float(const packed *w, size_t row, const activations *x, size_t t0, size_t n, float *acc) {
    for (size_t k = 0; k < w->cols; k++) {
        float value = float_weight(w, row, k);
        for (size_t t = 0; t < n; t++) acc[t] = fmaf(value, x->f32[(t0 + t) * x->cols + k], acc[t]);
    }
}

/* The same for a block of quantized weights. */
static void row_block(const pack_layout *l, const block *b, const activations *x, size_t token, size_t i,
                      float *acc) {
    const int8_t *q = x->q + token * x->cols + i * 32;
    const int16_t *sum16 = x->sum16 + token * (x->cols / 16) + i * 2;
    float a_scale = x->scale[token * (x->cols / 32) + i];
    int dot[2] = {0, 0}, sum[2] = {sum16[0], sum16[1]};
    size_t parts = l->scale16 ? 2 : 1;
    for (size_t k = 0; k < 32; k++) dot[k / 16] += b->q[k] * q[k];
    if (parts == 1) {
        dot[0] += dot[1];
        sum[0] += sum[1];
    }
    for (size_t h = 0; h < parts; h++) {
        *acc = fmaf((float)dot[h], b->scale[h] * a_scale, *acc);
        if (l->has_min) *acc = fmaf(b->min[h], a_scale * (float)sum[h], *acc);
    }
}

static void row_quantized(const packed *w, size_t row, const activations *x, size_t t0, size_t n,
                          float *acc) {
    const pack_layout *l = pack_describe(w->type);
    for (size_t i = 0; i < w->cols / 32; i++) {
        block b;
        get_block(w, row, i, &b);
        for (size_t t = 0; t < n; t++) row_block(l, &b, x, t0 + t, i, &acc[t]);
    }
}

void matmul_ref(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y, size_t ldy,
                void *scratch) {
    (void)scratch;
    size_t end = g1 * PACK_ROWS < w->rows ? g1 * PACK_ROWS : w->rows;
    for (size_t row = g0 * PACK_ROWS; row < end; row++) {
        for (size_t t0 = 0; t0 < n; t0 += TOKENS) {
            size_t count = n - t0 < TOKENS ? n - t0 : TOKENS;
            float acc[TOKENS] = {0.0f};
            if (dtype_is_float(w->type)) {
                row_float(w, row, x, t0, count, acc);
            } else {
                row_quantized(w, row, x, t0, count, acc);
            }
            for (size_t t = 0; t < count; t++) y[(t0 + t) * ldy + row] = acc[t];
        }
    }
}

void unpack_row_ref(const packed *w, size_t row, float *out) {
    if (dtype_is_float(w->type)) {
        for (size_t k = 0; k < w->cols; k++) out[k] = float_weight(w, row, k);
        return;
    }
    bool has_min = pack_describe(w->type)->has_min;
    for (size_t i = 0; i < w->cols / 32; i++) {
        block b;
        get_block(w, row, i, &b);
        for (size_t k = 0; k < 32; k++) {
            float value = b.scale[k / 16] * (float)b.q[k];
            out[i * 32 + k] = has_min ? value + b.min[k / 16] : value;
        }
    }
}

/* ---- activations ------------------------------------------------------------------------------------- */

/* Magnitudes are compared as integers: there NaN is above infinity, and both are above every number. */
static uint32_t largest_magnitude(const float *x) {
    uint32_t max = 0;
    for (size_t i = 0; i < ACT_BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        bits &= 0x7fffffff;
        if (bits > max) max = bits;
    }
    return max;
}

void quantize_ref(const float *x, size_t n, int8_t *q, float *scale, int16_t *sum16) {
    for (size_t i = 0; i < n / ACT_BLOCK; i++, x += ACT_BLOCK, q += ACT_BLOCK, sum16 += 2) {
        uint32_t bits = largest_magnitude(x);
        float max = pack_word_as_float(bits), inverse = 0.0f;
        scale[i] = bits >= 0x7f800000 ? NAN : max / 127.0f;
        if (bits < 0x7f800000 && max >= QUANTIZE_LEAST) inverse = 127.0f / max;
        if (max < QUANTIZE_LEAST) scale[i] = 0.0f;
        int sum[2] = {0, 0};
        for (size_t k = 0; k < ACT_BLOCK; k++) {
            int value = inverse == 0.0f ? 0 : (int)nearbyintf(x[k] * inverse);
            q[k] = (int8_t)value;
            sum[k / 16] += value;
        }
        sum16[0] = (int16_t)sum[0];
        sum16[1] = (int16_t)sum[1];
    }
}
