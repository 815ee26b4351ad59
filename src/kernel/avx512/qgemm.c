/* qgemm.c: tiles of up to 14 rows and 2 panels, or 6 rows and 4 panels, by VNNI: 28 or 24 sums in registers,
 * per four values of K one load a panel and one broadcast a row. vpdpbusd adds four products of uint8 and
 * int8 to 32 bits without saturation. */
#include "kernel/qgemm.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/matmul.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { ROWS = 14, FEW_ROWS = 6, LINE = QGEMM_PANEL * QGEMM_QUAD };

/* Multiples of the distance of two rows: rows are addressed as base + 1, 2, 4 or 8 times one of four
 * registers; left alone, the compiler keeps a pointer for every row, in memory. */
typedef struct row_steps {
    size_t one, three, five, seven;
} row_steps;

INLINE row_steps steps_of(size_t one) {
    row_steps s = {one, 3 * one, 5 * one, 7 * one};
    __asm__("" : "+r"(s.one), "+r"(s.three), "+r"(s.five), "+r"(s.seven));
    return s;
}

INLINE const uint8_t *row_at(const uint8_t *a, const row_steps *s, int i) {
    const uint8_t *base = i >= 8 ? a + 8 * s->one : a;
    switch (i % 8) {
    case 0: return base;
    case 1: return base + s->one;
    case 2: return base + 2 * s->one;
    case 3: return base + s->three;
    case 4: return base + 4 * s->one;
    case 5: return base + s->five;
    case 6: return base + 2 * s->three;
    default: return base + s->seven;
    }
}

INLINE __m512i quad(const uint8_t *a) {
    int32_t v;
    memcpy(&v, a, sizeof v);
    return _mm512_set1_epi32(v);
}

INLINE __m512i correct(const qgemm_tile *t, size_t row, size_t panel, __m512i sum) {
    const __m512i sums = _mm512_loadu_si512(t->b_sums + panel * QGEMM_PANEL);
    sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(sums, _mm512_set1_epi32(t->a_zero[row])));
    if (!t->b_zero) return sum;
    const __m512i zero = _mm512_loadu_si512(t->b_zero + panel * QGEMM_PANEL);
    return _mm512_sub_epi32(sum, _mm512_mullo_epi32(zero, _mm512_set1_epi32(t->a_rest[row])));
}

INLINE __m512 finish(const qgemm_tile *t, size_t row, size_t panel, __mmask16 mask, __m512i sum) {
    const __m512 scale =
        _mm512_mul_ps(_mm512_set1_ps(t->a_scale[row]), _mm512_loadu_ps(t->b_scale + panel * QGEMM_PANEL));
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
    if (t->bias) v = _mm512_add_ps(v, _mm512_loadu_ps(t->bias + panel * QGEMM_PANEL));
    if (t->add) {
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, t->add + row * t->add_row + panel * QGEMM_PANEL));
    }
    /* The second operand is what NaN in either gives. */
    v = _mm512_max_ps(_mm512_set1_ps(t->low), v);
    return _mm512_min_ps(_mm512_set1_ps(t->high), v);
}

/* The sum as a whole number of steps, not yet moved by the zero point. What lies beyond int32 above would
 * turn into its lowest number, so it stops short of it. */
INLINE __m512i narrowed(const qgemm_tile *t, size_t row, size_t panel, __m512i sum) {
    sum = _mm512_add_epi32(sum, _mm512_loadu_si512(t->offset + panel * QGEMM_PANEL));
    if (t->b_zero) {
        const __m512i zero = _mm512_loadu_si512(t->b_zero + panel * QGEMM_PANEL);
        sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(zero, _mm512_set1_epi32(t->a_rest[row])));
    }
    const __m512 v =
        _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(t->b_scale + panel * QGEMM_PANEL));
    return _mm512_cvtps_epi32(_mm512_min_ps(v, _mm512_set1_ps(1e9f)));
}

/* Two rows of two panels at a time, packed with saturation; pairs that do not exist are the first again. */
INLINE void store_bytes(int T, int R, const qgemm_tile *t, const __m512i *sums) {
    const __m512i zero = _mm512_set1_epi16(t->y_zero), low = _mm512_set1_epi8((char)t->y_low),
                  high = _mm512_set1_epi8((char)t->y_high);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    UNROLL
    for (int r = 0; r < R; r += 2) {
        const int q = r + 1 < R ? r + 1 : r;
        const __mmask32 columns = r + 2 < R   ? 0xffffffffu
                                  : r + 1 < R ? (__mmask32)t->mask << 16 | 0xffffu
                                              : (__mmask32)t->mask;
        uint8_t *y = t->bytes + (size_t)r * QGEMM_PANEL;
        UNROLL
        for (int i = 0; i < T; i += 2) {
            const int n = i + 1 < T ? i + 1 : i;
            __m512i a = _mm512_packs_epi32(narrowed(t, (size_t)i, (size_t)r, sums[r * T + i]),
                                           narrowed(t, (size_t)i, (size_t)q, sums[q * T + i]));
            __m512i b = _mm512_packs_epi32(narrowed(t, (size_t)n, (size_t)r, sums[r * T + n]),
                                           narrowed(t, (size_t)n, (size_t)q, sums[q * T + n]));
            __m512i v = _mm512_packus_epi16(_mm512_adds_epi16(a, zero), _mm512_adds_epi16(b, zero));
            v = _mm512_permutexvar_epi32(order, _mm512_min_epu8(_mm512_max_epu8(v, low), high));
            _mm256_mask_storeu_epi8(y + (size_t)i * t->c_row, columns, _mm512_castsi512_si256(v));
            if (n > i)
                _mm256_mask_storeu_epi8(y + (size_t)n * t->c_row, columns, _mm512_extracti64x4_epi64(v, 1));
        }
    }
}

static void store_rows(const qgemm_tile *t, size_t rows, size_t panels, const __m512i *sums) {
    for (size_t r = 0; r < panels; r++) {
        const __mmask16 mask = r + 1 == panels ? t->mask : (__mmask16)0xffff;
        for (size_t i = 0; i < rows; i++, sums++) {
            const __m512i sum = correct(t, i, r, *sums);
            const size_t at = i * t->c_row + r * QGEMM_PANEL;
            if (t->sums)
                _mm512_mask_storeu_epi32(t->sums + at, mask, sum);
            else
                _mm512_mask_storeu_ps(t->y + at, mask, finish(t, i, r, mask, sum));
        }
    }
}

INLINE void tile_run(int T, int R, const qgemm_tile *t) {
    const row_steps steps = steps_of(t->a_row);
    __m512i acc[4][ROWS];
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int i = 0; i < T; i++) acc[r][i] = _mm512_setzero_si512();
    }
    const int8_t *b = t->b;
    const size_t b_panel = t->b_panel;
    for (size_t p = 0; p < t->n_parts; p++) {
        const uint8_t *a = t->a + t->part[p];
        for (size_t q = t->quads; q > 0; q--, a += QGEMM_QUAD, b += LINE) {
            __m512i w[4];
            UNROLL
            for (int r = 0; r < R; r++) w[r] = _mm512_load_si512(b + (size_t)r * b_panel);
            UNROLL
            for (int i = 0; i < T; i++) {
                const __m512i x = quad(row_at(a, &steps, i));
                UNROLL
                for (int r = 0; r < R; r++) acc[r][i] = _mm512_dpbusd_epi32(acc[r][i], x, w[r]);
            }
        }
    }
    /* A loop that is not unrolled reads the sums by number: from a copy, or they would live in memory. */
    __m512i done[4 * ROWS];
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int i = 0; i < T; i++) done[r * T + i] = acc[r][i];
    }
    if (!t->sums && !t->y)
        store_bytes(T, R, t, done);
    else
        store_rows(t, (size_t)T, (size_t)R, done);
}

typedef void (*qgemm_fn)(const qgemm_tile *t);

#define TILE(T, R)                                                                                           \
    static void tile_##T##x##R(const qgemm_tile *t) {                                                        \
        tile_run(T, R, t);                                                                                   \
    }
#define SIX(X, R)  X(1, R) X(2, R) X(3, R) X(4, R) X(5, R) X(6, R)
#define ALL(X, R)  SIX(X, R) X(7, R) X(8, R) X(9, R) X(10, R) X(11, R) X(12, R) X(13, R) X(14, R)
#define NAME(T, R) tile_##T##x##R,

ALL(TILE, 1)
ALL(TILE, 2)
SIX(TILE, 4)

void qgemm_tile_avx512(const qgemm_tile *t, size_t n_rows, size_t n_panels) {
    static const qgemm_fn tiles[3][ROWS] = {{ALL(NAME, 1)}, {ALL(NAME, 2)}, {SIX(NAME, 4)}};
    tiles[n_panels == 4 ? 2 : n_panels - 1][n_rows - 1](t);
}

/* ---- to and from 8 bits ----------------------------------------------------------------------------- */

enum { VEC = 16 };

INLINE __mmask16 tail(size_t n) {
    return n >= VEC ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1u);
}

void range_avx512(const float *x, size_t n, float *least, float *most) {
    __m512 low = _mm512_set1_ps(*least), high = _mm512_set1_ps(*most);
    for (size_t i = 0; i < n; i += VEC) { /* the second operand is what NaN in either gives */
        const __mmask16 m = tail(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
        low = _mm512_mask_min_ps(low, m, v, low);
        high = _mm512_mask_max_ps(high, m, v, high);
    }
    *least = _mm512_reduce_min_ps(low);
    *most = _mm512_reduce_max_ps(high);
}

/* v to nearest, ties to even, plus zero, to [low, high]; NaN gives zero. */
INLINE __m128i rounded(__m512 v, __m512 zero, __m512 low, __m512 high) {
    v = _mm512_add_ps(_mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), zero);
    v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), zero);
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(v, low), high)));
}

void quantize_u8_avx512(const float *x, size_t n, float scale, int32_t zero, uint8_t *y) {
    const __m512 s = _mm512_set1_ps(scale), z = _mm512_set1_ps((float)zero);
    for (size_t i = 0; i < n; i += VEC) {
        const __mmask16 m = tail(n - i);
        const __m512 v = _mm512_div_ps(_mm512_maskz_loadu_ps(m, x + i), s);
        _mm_mask_storeu_epi8(y + i, m, rounded(v, z, _mm512_setzero_ps(), _mm512_set1_ps(255.0f)));
    }
}

void requantize_avx512(const int32_t *x, const float *scale, size_t n, int32_t zero, int32_t low,
                       int32_t high, uint8_t *y) {
    const __m512 z = _mm512_set1_ps((float)zero), l = _mm512_set1_ps((float)low),
                 h = _mm512_set1_ps((float)high);
    for (size_t i = 0; i < n; i += VEC) {
        const __mmask16 m = tail(n - i);
        const __m512 v = _mm512_cvtepi32_ps(_mm512_maskz_loadu_epi32(m, x + i));
        _mm_mask_storeu_epi8(y + i, m,
                             rounded(_mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, scale + i)), z, l, h));
    }
}
