/* qimage_vbmi.c: a table of 256 bytes in four registers. */
#include "kernel/avx512/avx512.h"

#include <immintrin.h>

enum { BYTES = 64 };

void lookup_vbmi(const uint8_t *table, const uint8_t *x, uint8_t *y, size_t n) {
    const __m512i a = _mm512_loadu_si512(table), b = _mm512_loadu_si512(table + BYTES),
                  c = _mm512_loadu_si512(table + 2 * BYTES), d = _mm512_loadu_si512(table + 3 * BYTES);
    for (size_t i = 0; i < n; i += BYTES) {
        const __mmask64 m = n - i >= BYTES ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        const __m512i v = _mm512_maskz_loadu_epi8(m, x + i);
        _mm512_mask_storeu_epi8(y + i, m,
                                _mm512_mask_blend_epi8(_mm512_movepi8_mask(v),
                                                       _mm512_permutex2var_epi8(a, v, b),
                                                       _mm512_permutex2var_epi8(c, v, d)));
    }
}
