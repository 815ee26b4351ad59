/* tile.h: the body of every quantized AVX2 tile, to be instantiated with constant source, tokens and row
 * vectors.
 *
 * Exactness: activations are within 127, so a pair of products of a stored value up to m is within 254 m.
 * Into one 16-bit sum go 8 pairs for m = 15 (30,480), 4 for m = 31 (31,496), 2 for m = 63 (32,004). Signed
 * bytes are multiplied as |w| by a with w's sign: a pair is within 254 * 128 = 32,512, and each is widened at
 * once. */
#ifndef KERNEL_AVX2_TILE_H
#define KERNEL_AVX2_TILE_H

#include "kernel/avx2/matmul.h"

#include <immintrin.h>

/* Sources of weights: the packed types, and panels. */
enum { SRC_PANEL = DTYPE_COUNT };

INLINE bool src_scale16(int src) {
    return src == SRC_PANEL + PANEL_U3_16 || src == SRC_PANEL + PANEL_U2_16_MIN ||
           src == SRC_PANEL + PANEL_U6_16 || src == DTYPE_Q2_K || src == DTYPE_Q3_K || src == DTYPE_Q6_K;
}

INLINE bool src_has_min(int src) {
    return src == SRC_PANEL + PANEL_U4_MIN || src == SRC_PANEL + PANEL_U5_MIN ||
           src == SRC_PANEL + PANEL_U2_16_MIN || src == DTYPE_Q4_1 || src == DTYPE_Q5_1 ||
           src == DTYPE_Q2_K || src == DTYPE_Q4_K || src == DTYPE_Q5_K;
}

INLINE bool src_is_signed(int src) {
    return src == SRC_PANEL + PANEL_S8 || src == DTYPE_Q8_0 || src == DTYPE_IQ4_NL;
}

/* Pairs that one 16-bit sum holds. */
INLINE int src_pairs(int src) {
    switch (src) {
    case DTYPE_Q8_0:
    case DTYPE_IQ4_NL:
    case SRC_PANEL + PANEL_S8: return 1;
    case DTYPE_Q6_K:
    case SRC_PANEL + PANEL_U6_16: return 2;
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q4_K:
    case SRC_PANEL + PANEL_U4:
    case SRC_PANEL + PANEL_U4_MIN: return 8;
    default: return 4;
    }
}

INLINE bool src_is_k(int src) {
    return src == DTYPE_Q2_K || src == DTYPE_Q3_K || src == DTYPE_Q4_K || src == DTYPE_Q5_K ||
           src == DTYPE_Q6_K;
}

INLINE size_t panel_bytes(int src) {
    return 256 + 32u * (src_scale16(src) ? 2 : 1) * (src_has_min(src) ? 2 : 1);
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
    default: return panel_bytes(src);
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
    case DTYPE_Q8_0: return 512;
    default: return 256;
    }
}

/* ---- values ------------------------------------------------------------------------------------------ */

INLINE __m256i load_half(const uint8_t *at) {
    return _mm256_loadu_si256((const __m256i *)at);
}

/* x shifted so that bit `from` comes to bit `to`, & mask. */
INLINE __m256i field(__m256i x, int from, int to, int mask) {
    __m256i moved = from < to   ? _mm256_slli_epi32(x, to - from)
                    : from > to ? _mm256_srli_epi32(x, from - to)
                                : x;
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)mask));
}

/* Half line t (0..7) of the block of 32 at `q` (offset to the half included): 8 rows x 4 values, as stored,
 * or signed for the 8-bit types. */
INLINE __m256i values(int src, const uint8_t *q, int t) {
    int j = t % 4, upper = t / 4;
    switch (src) {
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q4_K: return field(load_half(q + 64 * j), 4 * upper, 0, 15);
    case DTYPE_IQ4_NL: {
        __m128i codes =
            _mm_xor_si128(_mm_loadu_si128((const __m128i *)pack_iq4nl_codes), _mm_set1_epi8(-128));
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(codes),
                                   field(load_half(q + 64 * j), 4 * upper, 0, 15));
    }
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q5_K:
        return _mm256_or_si256(field(load_half(q + 64 * j), 4 * upper, 0, 15),
                               field(load_half(q + 256), t, 4, 16));
    case DTYPE_Q6_K:
        return _mm256_or_si256(field(load_half(q + 64 * j), 4 * upper, 0, 15),
                               field(load_half(q + 256 + 64 * upper), 2 * j, 4, 48));
    case DTYPE_Q2_K: return field(load_half(q + 64 * upper), 2 * j, 0, 3);
    case DTYPE_Q3_K:
        return _mm256_or_si256(field(load_half(q + 64 * upper), 2 * j, 0, 3),
                               field(load_half(q + 128), t, 2, 4));
    case DTYPE_Q8_0: return _mm256_xor_si256(load_half(q + 64 * t), _mm256_set1_epi8(-128));
    default: return load_half(q + 32 * t);
    }
}

/* ---- scales of row vector v -------------------------------------------------------------------------- */

INLINE __m256 halves(const uint8_t *at) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

INLINE __m256 bytes_as_float(__m128i bytes, bool is_signed) {
    return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
}

INLINE __m128i load8(const uint8_t *at) {
    return _mm_loadl_epi64((const __m128i *)at);
}

/* Scale and minimum of part h (0 unless 16 values share a scale) of block b of a unit. */
INLINE __m256 scale_of(int src, const uint8_t *unit, int v, int b, int h) {
    switch (src) {
    case DTYPE_Q2_K: {
        __m128i s = _mm_and_si128(load8(unit + 64 + 16 * (2 * b + h) + 8 * v), _mm_set1_epi8(15));
        return _mm256_mul_ps(halves(unit + 16 * v), bytes_as_float(s, false));
    }
    case DTYPE_Q3_K:
    case DTYPE_Q6_K:
        return _mm256_mul_ps(halves(unit + 16 * v),
                             bytes_as_float(load8(unit + 32 + 16 * (2 * b + h) + 8 * v), true));
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        return _mm256_mul_ps(halves(unit + 16 * v), bytes_as_float(load8(unit + 64 + 16 * b + 8 * v), false));
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q8_0:
    case DTYPE_IQ4_NL: return halves(unit + src_q_bytes(src) + 16 * v);
    default: return _mm256_load_ps((const float *)(const void *)(unit + 256 + 32 * h));
    }
}

INLINE __m256 negated(__m256 x) {
    return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}

INLINE __m256 min_of(int src, const uint8_t *unit, int v, int b, int h) {
    switch (src) {
    case DTYPE_Q2_K: {
        __m128i s = _mm_srli_epi16(load8(unit + 64 + 16 * (2 * b + h) + 8 * v), 4);
        s = _mm_and_si128(s, _mm_set1_epi8(15));
        return negated(_mm256_mul_ps(halves(unit + 32 + 16 * v), bytes_as_float(s, false)));
    }
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        return negated(_mm256_mul_ps(halves(unit + 32 + 16 * v),
                                     bytes_as_float(load8(unit + 192 + 16 * b + 8 * v), false)));
    case DTYPE_Q4_1:
    case DTYPE_Q5_1: return halves(unit + src_q_bytes(src) + 32 + 16 * v);
    default:
        return _mm256_load_ps(
            (const float *)(const void *)(unit + 256 + 32 * (src_scale16(src) ? 2 : 1) + 32 * h));
    }
}

/* ---- the tile ---------------------------------------------------------------------------------------- */

INLINE __m256i broadcast4(const int8_t *q) {
    int32_t word;
    __builtin_memcpy(&word, q, 4);
    return _mm256_set1_epi32(word);
}

INLINE __m256i multiply(int src, __m256i w, __m256i magnitude, __m256i x) {
    return src_is_signed(src) ? _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w))
                              : _mm256_maddubs_epi16(w, x);
}

/* Keeps the compiler from turning a chain of integer additions into a tree, whose leaves it would spill. */
INLINE __m256i in_order(__m256i x) {
    __asm__("" : "+x"(x));
    return x;
}

/* Integer sums of part h of block b for T tokens and R row vectors. */
INLINE void tile_sums(int src, int T, int R, const tile *a, const uint8_t *unit, const int8_t *q, int b,
                      int h, __m256i sum[2][PANEL_TILE_TOKENS]) {
    const int lines = src_scale16(src) ? 4 : 8, pairs = src_pairs(src);
    const uint8_t *at = unit + src_q(src) + (size_t)b * src_q_bytes(src);
    const size_t cols = a->blocks * 32;
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL
    for (int line = 0; line < lines; line += pairs) {
        __m256i narrow[2][PANEL_TILE_TOKENS];
        UNROLL
        for (int p = 0; p < pairs; p++) {
            const int l = h * lines + line + p;
            UNROLL
            for (int v = 0; v < R; v++) {
                __m256i w = values(src, at + 32 * v, l);
                __m256i magnitude = src_is_signed(src) ? _mm256_abs_epi8(w) : w;
                UNROLL
                for (int t = 0; t < T; t++) {
                    __m256i x = broadcast4(q + (size_t)t * cols + 4 * l);
                    __m256i product = multiply(src, w, magnitude, x);
                    narrow[v][t] = p == 0 ? product : in_order(_mm256_add_epi16(narrow[v][t], product));
                }
            }
        }
        UNROLL
        for (int v = 0; v < R; v++) {
            UNROLL
            for (int t = 0; t < T; t++) {
                __m256i wide = _mm256_madd_epi16(narrow[v][t], ones);
                sum[v][t] = line == 0 ? wide : in_order(_mm256_add_epi32(sum[v][t], wide));
            }
        }
    }
}

/* Block number i of the row (block b of its unit) into acc. */
INLINE void tile_block(int src, int T, int R, const tile *a, const uint8_t *unit, size_t i, int b,
                       __m256 acc[2][PANEL_TILE_TOKENS]) {
    const int parts = src_scale16(src) ? 2 : 1;
    const size_t side_cols = a->blocks * (size_t)parts;
    UNROLL
    for (int h = 0; h < parts; h++) {
        __m256i sum[2][PANEL_TILE_TOKENS];
        const int32_t *side = a->side + i * (size_t)parts + h;
        tile_sums(src, T, R, a, unit, a->q + i * 32, b, h, sum);
        UNROLL
        for (int v = 0; v < R; v++) {
            __m256 scale = scale_of(src, unit, v, b, h);
            __m256 min = src_has_min(src) ? min_of(src, unit, v, b, h) : _mm256_setzero_ps();
            UNROLL
            for (int t = 0; t < T; t++) {
                __m256i whole = sum[v][t];
                __m256i extra = _mm256_set1_epi32(side[(size_t)t * side_cols]);
                if (!src_has_min(src) && !src_is_signed(src)) whole = _mm256_add_epi32(whole, extra);
                __m256 s = _mm256_mul_ps(scale, _mm256_set1_ps(a->scale[i + (size_t)t * a->blocks]));
                acc[v][t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), s, acc[v][t]);
                if (src_has_min(src)) acc[v][t] = _mm256_fmadd_ps(min, _mm256_castsi256_ps(extra), acc[v][t]);
            }
        }
    }
}

INLINE void store_rows(float *y, size_t rows, __m256 value) {
    if (rows >= VECTOR_ROWS) {
        _mm256_storeu_ps(y, value);
        return;
    }
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)rows), lane), value);
}

INLINE void tile_run(int src, int T, int R, const tile *a) {
    const int per_unit = src_is_k(src) ? 8 : 1;
    const uint8_t *unit = a->w;
    __m256 acc[2][PANEL_TILE_TOKENS];
    UNROLL
    for (int t = 0; t < T; t++) acc[0][t] = acc[1][t] = _mm256_setzero_ps();
    for (size_t i = 0; i < a->blocks; i += (size_t)per_unit, unit += src_unit_bytes(src)) {
        if (src < SRC_PANEL && a->ahead != 0) {
            UNROLL
            for (size_t at = 0; at < src_unit_bytes(src); at += 64) {
                _mm_prefetch((const char *)unit + a->ahead + at, _MM_HINT_T1);
            }
        }
        for (int b = 0; b < per_unit; b++) tile_block(src, T, R, a, unit, i + (size_t)b, b, acc);
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        float *y = a->y + (size_t)t * a->ldy;
        store_rows(y, a->rows, acc[0][t]);
        if (R > 1 && a->rows > VECTOR_ROWS) store_rows(y + VECTOR_ROWS, a->rows - VECTOR_ROWS, acc[1][t]);
    }
}

#define TILE_FN(name, src, T, R)                                                                             \
    static void name##_##T##x##R(const tile *a) {                                                            \
        tile_run(src, T, R, a);                                                                              \
    }

#endif
