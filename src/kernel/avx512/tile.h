/* tile.h: the body of every quantized tile, to be instantiated with constant type, tokens and row vectors.
 *
 * The compiler unrolls all loops over constants; accumulators live in registers (12 of integers and 12 of
 * floats at 6 tokens and 2 row vectors). */
#ifndef KERNEL_AVX512_TILE_H
#define KERNEL_AVX512_TILE_H

#include "kernel/avx512/matmul.h"

#include <immintrin.h>

/* Sources of weights beyond the packed types. */
enum { PANEL_32 = DTYPE_COUNT, PANEL_32_MIN, PANEL_16, PANEL_16_MIN };

INLINE bool src_scale16(int src) {
    return src == PANEL_16 || src == PANEL_16_MIN || src == DTYPE_Q2_K || src == DTYPE_Q3_K ||
           src == DTYPE_Q6_K;
}

INLINE bool src_has_min(int src) {
    return src == PANEL_32_MIN || src == PANEL_16_MIN || src == DTYPE_Q4_1 || src == DTYPE_Q5_1 ||
           src == DTYPE_Q2_K || src == DTYPE_Q4_K || src == DTYPE_Q5_K;
}

INLINE bool src_is_k(int src) {
    return src == DTYPE_Q2_K || src == DTYPE_Q3_K || src == DTYPE_Q4_K || src == DTYPE_Q5_K ||
           src == DTYPE_Q6_K;
}

/* Bytes from one unit to the next, and where a unit has its parts (pack.c's table, as constants). */
INLINE size_t src_unit_bytes(int src) {
    switch (src) {
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL: return 288;
    case DTYPE_Q4_1: return 320;
    case DTYPE_Q5_0: return 352;
    case DTYPE_Q5_1: return 384;
    case DTYPE_Q8_0: return 544;
    case DTYPE_Q2_K: return 1344;
    case DTYPE_Q3_K: return 1824;
    case DTYPE_Q4_K: return 2368;
    case DTYPE_Q5_K: return 2880;
    case DTYPE_Q6_K: return 3360;
    case PANEL_32: return 576;
    case PANEL_16_MIN: return 768;
    default: return 640;
    }
}

INLINE size_t src_q(int src) {
    return src == DTYPE_Q3_K || src == DTYPE_Q6_K ? 288 : src_is_k(src) ? 320 : 0;
}

INLINE size_t src_q_bytes(int src) {
    switch (src) {
    case DTYPE_Q2_K: return 128;
    case DTYPE_Q3_K: return 192;
    case DTYPE_Q5_K:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1: return 320;
    case DTYPE_Q6_K: return 384;
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q4_K:
    case DTYPE_IQ4_NL: return 256;
    default: return 512;
    }
}

/* ---- values ------------------------------------------------------------------------------------------ */

INLINE __m512i load_line(const uint8_t *at) {
    return _mm512_loadu_si512(at);
}

/* (x shifted so that bit `from` comes to bit `to`) & mask | base: shift and one ternary logic operation. */
INLINE __m512i or_field(__m512i base, __m512i x, int from, int to, __m512i mask) {
    __m512i moved = from < to   ? _mm512_slli_epi32(x, (unsigned)(to - from))
                    : from > to ? _mm512_srli_epi32(x, (unsigned)(from - to))
                                : x;
    return _mm512_ternarylogic_epi32(base, moved, mask, 0xf8); /* a | (b & c) */
}

INLINE __m512i and_field(__m512i x, int from, __m512i mask) {
    return _mm512_and_si512(from > 0 ? _mm512_srli_epi32(x, (unsigned)from) : x, mask);
}

/* Line t (0..7) of the block of 32 at `q`: 16 rows x 4 stored values. */
INLINE __m512i values(int src, const uint8_t *q, int t) {
    const __m512i m4 = _mm512_set1_epi8(15), m2 = _mm512_set1_epi8(3);
    int j = t % 4, upper = t / 4;
    switch (src) {
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q4_K: return and_field(load_line(q + 64 * j), 4 * upper, m4);
    case DTYPE_IQ4_NL: {
        const __m512i codes = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)pack_iq4nl_codes));
        return _mm512_shuffle_epi8(codes, and_field(load_line(q + 64 * j), 4 * upper, m4));
    }
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q5_K:
        return or_field(and_field(load_line(q + 64 * j), 4 * upper, m4), load_line(q + 256), t, 4,
                        _mm512_set1_epi8(16));
    case DTYPE_Q6_K:
        return or_field(and_field(load_line(q + 64 * j), 4 * upper, m4), load_line(q + 256 + 64 * upper),
                        2 * j, 4, _mm512_set1_epi8(48));
    case DTYPE_Q2_K: return and_field(load_line(q + 64 * upper), 2 * j, m2);
    case DTYPE_Q3_K:
        return or_field(and_field(load_line(q + 64 * upper), 2 * j, m2), load_line(q + 128), t, 2,
                        _mm512_set1_epi8(4));
    default: return load_line(q + 64 * t);
    }
}

/* ---- scales ------------------------------------------------------------------------------------------ */

INLINE __m512 halves(const uint8_t *at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}

INLINE __m512 bytes_as_float(const uint8_t *at, bool is_signed) {
    __m128i b = _mm_loadu_si128((const __m128i *)at);
    return _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(b) : _mm512_cvtepu8_epi32(b));
}

/* Scale and minimum of part h (0 unless 16 values share a scale) of block b of a unit. */
INLINE __m512 scale_of(int src, const uint8_t *unit, int b, int h) {
    switch (src) {
    case PANEL_32:
    case PANEL_32_MIN:
    case PANEL_16:
    case PANEL_16_MIN: return _mm512_load_ps(unit + 512 + 64 * h);
    case DTYPE_Q2_K: {
        __m128i s = _mm_and_si128(_mm_loadu_si128((const __m128i *)(unit + 64 + 16 * (2 * b + h))),
                                  _mm_set1_epi8(15));
        return _mm512_mul_ps(halves(unit), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(s)));
    }
    case DTYPE_Q3_K:
    case DTYPE_Q6_K: return _mm512_mul_ps(halves(unit), bytes_as_float(unit + 32 + 16 * (2 * b + h), true));
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: return _mm512_mul_ps(halves(unit), bytes_as_float(unit + 64 + 16 * b, false));
    default: return halves(unit + src_q_bytes(src));
    }
}

INLINE __m512 negated(__m512 x) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
}

INLINE __m512 min_of(int src, const uint8_t *unit, int b, int h) {
    switch (src) {
    case PANEL_32_MIN: return _mm512_load_ps(unit + 576);
    case PANEL_16_MIN: return _mm512_load_ps(unit + 640 + 64 * h);
    case DTYPE_Q2_K: {
        __m128i s = _mm_loadu_si128((const __m128i *)(unit + 64 + 16 * (2 * b + h)));
        s = _mm_and_si128(_mm_srli_epi16(s, 4), _mm_set1_epi8(15));
        return negated(_mm512_mul_ps(halves(unit + 32), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(s))));
    }
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        return negated(_mm512_mul_ps(halves(unit + 32), bytes_as_float(unit + 192 + 16 * b, false)));
    default: return halves(unit + src_q_bytes(src) + 32);
    }
}

/* ---- the tile ---------------------------------------------------------------------------------------- */

INLINE __m512i broadcast4(const int8_t *q) {
    int32_t word;
    __builtin_memcpy(&word, q, 4);
    return _mm512_set1_epi32(word);
}

INLINE __m512 broadcast_side(const int32_t *side) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(*side));
}

/* Block number i of the row (block b of its unit) into acc. */
INLINE void tile_block(int src, int T, int R, const tile *a, const uint8_t *unit, size_t i, int b,
                       __m512 acc[TILE_VECTORS][TILE_TOKENS]) {
    const int parts = src_scale16(src) ? 2 : 1, lines = 8 / parts;
    const size_t cols = a->blocks * 32;
    UNROLL
    for (int h = 0; h < parts; h++) {
        __m512i sum[TILE_VECTORS][TILE_TOKENS];
        const int32_t *side = a->side + i * (size_t)parts + h;
        const int8_t *q = a->q + i * 32;
        UNROLL
        for (int t = 0; t < T; t++) {
            __m512i start = src_has_min(src) ? _mm512_setzero_si512()
                                             : _mm512_set1_epi32(side[(size_t)t * a->blocks * (size_t)parts]);
            sum[0][t] = start;
            if (R > 1) sum[1][t] = start;
        }
        UNROLL
        for (int line = h * lines; line < h * lines + lines; line++) {
            const uint8_t *at = unit + src_q(src) + (size_t)b * src_q_bytes(src);
            __m512i w0 = values(src, at, line), w1 = w0;
            if (R > 1) w1 = values(src, at + a->w_stride, line);
            UNROLL
            for (int t = 0; t < T; t++) {
                __m512i x = broadcast4(q + (size_t)t * cols + 4 * line);
                sum[0][t] = _mm512_dpbusd_epi32(sum[0][t], w0, x);
                if (R > 1) sum[1][t] = _mm512_dpbusd_epi32(sum[1][t], w1, x);
            }
        }
        UNROLL
        for (int r = 0; r < R; r++) {
            const uint8_t *u = unit + (size_t)r * a->w_stride;
            __m512 scale = scale_of(src, u, b, h);
            __m512 min = src_has_min(src) ? min_of(src, u, b, h) : _mm512_setzero_ps();
            UNROLL
            for (int t = 0; t < T; t++) {
                __m512 s = _mm512_mul_ps(scale, _mm512_set1_ps(a->scale[i + (size_t)t * a->blocks]));
                acc[r][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][t]), s, acc[r][t]);
                if (!src_has_min(src)) continue;
                acc[r][t] = _mm512_fmadd_ps(min, broadcast_side(side + (size_t)t * a->blocks * (size_t)parts),
                                            acc[r][t]);
            }
        }
    }
}

INLINE void tile_run(int src, int T, int R, const tile *a) {
    const int per_unit = src_is_k(src) ? 8 : 1;
    const uint8_t *unit = a->w, *fetch = a->fetch;
    const size_t fetch_lines = a->fetch_lines;
    __m512 acc[TILE_VECTORS][TILE_TOKENS];
    UNROLL
    for (int t = 0; t < T; t++) acc[0][t] = acc[1][t] = _mm512_setzero_ps();
    for (size_t i = 0; i < a->blocks; i += (size_t)per_unit, unit += src_unit_bytes(src)) {
        for (size_t line = 0; line < fetch_lines; line++, fetch += 64) {
            _mm_prefetch((const char *)fetch, _MM_HINT_T1);
        }
        for (int b = 0; b < per_unit; b++) tile_block(src, T, R, a, unit, i + (size_t)b, b, acc);
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        float *y = a->y + (size_t)t * a->ldy;
        if (R > 1) _mm512_storeu_ps(y, acc[0][t]);
        _mm512_mask_storeu_ps(y + (R > 1 ? 16 : 0), a->mask, acc[R - 1][t]);
    }
}

/* Functions name_TxR for T = 1..6 tokens, and their list. */
#define TILE_FN(name, src, T, R)                                                                             \
    static void name##_##T##x##R(const tile *a) {                                                            \
        tile_run(src, T, R, a);                                                                              \
    }
#define TILE_FNS(name, src, R)                                                                               \
    TILE_FN(name, src, 1, R)                                                                                 \
    TILE_FN(name, src, 2, R)                                                                                 \
    TILE_FN(name, src, 3, R)                                                                                 \
    TILE_FN(name, src, 4, R)                                                                                 \
    TILE_FN(name, src, 5, R)                                                                                 \
    TILE_FN(name, src, 6, R)
#define TILE_LIST(name, R)                                                                                   \
    { name##_1x##R, name##_2x##R, name##_3x##R, name##_4x##R, name##_5x##R, name##_6x##R }

#endif
