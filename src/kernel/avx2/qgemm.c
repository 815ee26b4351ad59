/* qgemm.c: tiles of up to 3 rows and one panel. Both sides are widened to 16 bits and multiplied in pairs
 * (vpmaddwd), which never saturates: vpmaddubsw would, at 255 * 127 twice. A sum of four columns is eight
 * lanes, two for each column, that meet at the end. */
#include "kernel/qgemm.h"
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/matmul.h"
#include "kernel/avx2/vec.h"

#include <string.h>

enum { ROWS = 3, GROUPS = 4, LINE = QGEMM_PANEL * QGEMM_QUAD, HALF = 8 };

/* Four values of a row, widened, four times. */
INLINE __m256i quad(const uint8_t *a) {
    int32_t v;
    memcpy(&v, a, sizeof v);
    return _mm256_cvtepu8_epi16(_mm_set1_epi32(v));
}

INLINE __m256i correct(const qgemm_tile *t, size_t row, int half, __m256i sum) {
    const __m256i sums = _mm256_loadu_si256((const __m256i *)(t->b_sums + half * HALF));
    sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(sums, _mm256_set1_epi32(t->a_zero[row])));
    if (!t->b_zero) return sum;
    const __m256i zero = _mm256_loadu_si256((const __m256i *)(t->b_zero + half * HALF));
    return _mm256_sub_epi32(sum, _mm256_mullo_epi32(zero, _mm256_set1_epi32(t->a_rest[row])));
}

INLINE __m256 finish(const qgemm_tile *t, size_t row, int half, __m256i mask, __m256i sum) {
    const __m256 scale =
        _mm256_mul_ps(_mm256_set1_ps(t->a_scale[row]), _mm256_loadu_ps(t->b_scale + half * HALF));
    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale);
    if (t->bias) v = _mm256_add_ps(v, _mm256_loadu_ps(t->bias + half * HALF));
    if (t->add) v = _mm256_add_ps(v, vec_load(t->add + row * t->add_row + half * HALF, mask));
    v = _mm256_max_ps(_mm256_set1_ps(t->low), v); /* the second operand is what NaN in either gives */
    return _mm256_min_ps(_mm256_set1_ps(t->high), v);
}

/* See the AVX-512 form. */
INLINE __m256i narrowed(const qgemm_tile *t, size_t row, int half, __m256i sum) {
    sum = _mm256_add_epi32(sum, _mm256_loadu_si256((const __m256i *)(t->offset + half * HALF)));
    if (t->b_zero) {
        const __m256i zero = _mm256_loadu_si256((const __m256i *)(t->b_zero + half * HALF));
        sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(zero, _mm256_set1_epi32(t->a_rest[row])));
    }
    const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(t->b_scale + half * HALF));
    return _mm256_cvtps_epi32(_mm256_min_ps(v, _mm256_set1_ps(1e9f)));
}

static void store_bytes(const qgemm_tile *t, size_t rows, const __m256i *sums) {
    const size_t columns = (size_t)__builtin_popcount(t->mask);
    for (size_t i = 0; i < rows; i++, sums += 4) {
        __m256i v[2];
        for (int h = 0; h < 2; h++) {
            const __m256i sum =
                _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[2 * h], sums[2 * h + 1]), 0xd8);
            v[h] = narrowed(t, i, h, sum);
        }
        __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v[0], v[1]), 0xd8);
        words = _mm256_adds_epi16(words, _mm256_set1_epi16(t->y_zero));
        __m128i y = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        y = _mm_min_epu8(_mm_max_epu8(y, _mm_set1_epi8((char)t->y_low)), _mm_set1_epi8((char)t->y_high));
        if (columns == QGEMM_PANEL) {
            _mm_storeu_si128((__m128i *)(t->bytes + i * t->c_row), y);
            continue;
        }
        uint8_t last[QGEMM_PANEL];
        _mm_storeu_si128((__m128i *)last, y);
        memcpy(t->bytes + i * t->c_row, last, columns);
    }
}

static void store_rows(const qgemm_tile *t, size_t rows, const __m256i *sums) {
    const size_t columns = (size_t)__builtin_popcount(t->mask);
    const __m256i mask[2] = {vec_tail(columns), vec_tail(columns > HALF ? columns - HALF : 0)};
    for (size_t i = 0; i < rows; i++) {
        for (int h = 0; h < 2; h++, sums += 2) { /* hadd: columns 0 1 4 5 of both lanes, then 2 3 6 7 */
            __m256i sum = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[0], sums[1]), 0xd8);
            sum = correct(t, i, h, sum);
            const size_t at = i * t->c_row + (size_t)h * HALF;
            if (t->sums)
                _mm256_maskstore_epi32(t->sums + at, mask[h], sum);
            else
                _mm256_maskstore_ps(t->y + at, mask[h], finish(t, i, h, mask[h], sum));
        }
    }
}

INLINE void tile_run(int T, const qgemm_tile *t) {
    __m256i acc[ROWS][GROUPS];
    UNROLL
    for (int i = 0; i < T; i++) {
        UNROLL
        for (int g = 0; g < GROUPS; g++) acc[i][g] = _mm256_setzero_si256();
    }
    const int8_t *b = t->b;
    for (size_t p = 0; p < t->n_parts; p++) {
        const uint8_t *a = t->a + t->part[p];
        for (size_t q = t->quads; q > 0; q--, a += QGEMM_QUAD, b += LINE) {
            __m256i x[ROWS];
            UNROLL
            for (int i = 0; i < T; i++) x[i] = quad(a + (size_t)i * t->a_row);
            UNROLL
            for (int g = 0; g < GROUPS; g++) {
                const __m256i w = _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(b + g * 16)));
                UNROLL
                for (int i = 0; i < T; i++)
                    acc[i][g] = _mm256_add_epi32(acc[i][g], _mm256_madd_epi16(x[i], w));
            }
        }
    }
    /* A loop that is not unrolled reads the sums by number: from a copy, or they would live in memory. */
    __m256i done[ROWS * GROUPS];
    UNROLL
    for (int i = 0; i < T; i++) {
        UNROLL
        for (int g = 0; g < GROUPS; g++) done[i * GROUPS + g] = acc[i][g];
    }
    if (!t->sums && !t->y)
        store_bytes(t, (size_t)T, done);
    else
        store_rows(t, (size_t)T, done);
}

static void tile_1(const qgemm_tile *t) {
    tile_run(1, t);
}
static void tile_2(const qgemm_tile *t) {
    tile_run(2, t);
}
static void tile_3(const qgemm_tile *t) {
    tile_run(3, t);
}

void qgemm_tile_avx2(const qgemm_tile *t, size_t n_rows, size_t n_panels) {
    static void (*const tiles[ROWS])(const qgemm_tile *) = {tile_1, tile_2, tile_3};
    (void)n_panels; /* 1, as the shape says */
    tiles[n_rows - 1](t);
}

/* ---- to and from 8 bits ----------------------------------------------------------------------------- */

void range_avx2(const float *x, size_t n, float *least, float *most) {
    __m256 low = _mm256_set1_ps(*least), high = _mm256_set1_ps(*most);
    size_t i = 0;
    for (; i + VEC <= n; i += VEC) { /* the second operand is what NaN in either gives */
        const __m256 v = _mm256_loadu_ps(x + i);
        low = _mm256_min_ps(v, low);
        high = _mm256_max_ps(v, high);
    }
    float l[VEC], h[VEC];
    _mm256_storeu_ps(l, low);
    _mm256_storeu_ps(h, high);
    for (size_t j = 0; j < VEC; j++) {
        if (l[j] < *least) *least = l[j];
        if (h[j] > *most) *most = h[j];
    }
    for (; i < n; i++) {
        if (x[i] < *least) *least = x[i];
        if (x[i] > *most) *most = x[i];
    }
}

/* v to nearest, ties to even, plus zero, to [low, high]; NaN gives zero. The eight bytes. */
INLINE int64_t rounded(__m256 v, __m256 zero, __m256 low, __m256 high) {
    v = _mm256_add_ps(_mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), zero);
    v = _mm256_blendv_ps(v, zero, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i i = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(v, low), high));
    const __m256i low_bytes =
        _mm256_shuffle_epi8(i, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                                0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    return _mm_cvtsi128_si64(
        _mm_unpacklo_epi32(_mm256_castsi256_si128(low_bytes), _mm256_extracti128_si256(low_bytes, 1)));
}

INLINE void store(uint8_t *y, size_t n, int64_t bytes) {
    memcpy(y, &bytes, n < VEC ? n : VEC);
}

void quantize_u8_avx2(const float *x, size_t n, float scale, int32_t zero, uint8_t *y) {
    const __m256 s = _mm256_set1_ps(scale), z = _mm256_set1_ps((float)zero), high = _mm256_set1_ps(255.0f);
    for (size_t i = 0; i < n; i += VEC) {
        const __m256 v = _mm256_div_ps(vec_load(x + i, vec_tail(n - i)), s);
        store(y + i, n - i, rounded(v, z, _mm256_setzero_ps(), high));
    }
}

void requantize_avx2(const int32_t *x, const float *scale, size_t n, int32_t zero, int32_t low, int32_t high,
                     uint8_t *y) {
    const __m256 z = _mm256_set1_ps((float)zero), l = _mm256_set1_ps((float)low),
                 h = _mm256_set1_ps((float)high);
    for (size_t i = 0; i < n; i += VEC) {
        const __m256i m = vec_tail(n - i);
        const __m256 v = _mm256_cvtepi32_ps(_mm256_maskload_epi32(x + i, m));
        store(y + i, n - i, rounded(_mm256_mul_ps(v, vec_load(scale + i, m)), z, l, h));
    }
}
