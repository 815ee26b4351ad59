/* fft_body.h: the transform of kernel/fft.h, once for every instruction set.
 *
 * Each instruction set's fft.c includes its lanes.h and then this file; see unary_body.h for what that
 * defines. A point is FFT_LANES real parts and then as many imaginary ones. */

#include "kernel/fft.h"

typedef struct C { /* a complex number in each lane */
    V re, im;
} C;

static inline C c_load(const float *p) {
    return (C){v_load(p), v_load(p + FFT_LANES)};
}
static inline void c_store(float *p, C a) {
    v_store(p, a.re);
    v_store(p + FFT_LANES, a.im);
}
static inline C c_add(C a, C b) {
    return (C){v_add(a.re, b.re), v_add(a.im, b.im)};
}
static inline C c_sub(C a, C b) {
    return (C){v_sub(a.re, b.re), v_sub(a.im, b.im)};
}
static inline C c_minus_i(C a) { /* a * -i */
    return (C){a.im, v_sub(v_set(0.0f), a.re)};
}
static inline C c_scale(C a, float s) {
    return (C){v_mul(a.re, v_set(s)), v_mul(a.im, v_set(s))};
}
static inline C c_fma(C a, float s, C b) { /* a * s + b */
    return (C){v_fma(a.re, v_set(s), b.re), v_fma(a.im, v_set(s), b.im)};
}
static inline C c_mul(C a, const float *w) {
    const V re = v_set(w[0]), im = v_set(w[1]), minus = v_set(-w[1]);
    return (C){v_fma(a.re, re, v_mul(a.im, minus)), v_fma(a.re, im, v_mul(a.im, re))};
}

enum { POINT = 2 * FFT_LANES };

/* A stage: q + s * (p + i * m) -> q + s * (r * p + i). */
static void stage_2(const float *x, float *y, size_t m, size_t s, const float *w) {
    for (size_t p = 0; p < m; p++, w += 2) {
        for (size_t q = 0; q < s; q++) {
            const float *a = x + (q + s * p) * POINT;
            float *b = y + (q + s * 2 * p) * POINT;
            for (size_t l = 0; l < FFT_LANES; l += V_LANES) {
                const C a0 = c_load(a + l), a1 = c_load(a + s * m * POINT + l);
                c_store(b + l, c_add(a0, a1));
                c_store(b + s * POINT + l, c_mul(c_sub(a0, a1), w));
            }
        }
    }
}

static void stage_3(const float *x, float *y, size_t m, size_t s, const float *w) {
    const float half_root_3 = 0x1.bb67aep-1f;
    for (size_t p = 0; p < m; p++, w += 4) {
        for (size_t q = 0; q < s; q++) {
            const float *a = x + (q + s * p) * POINT;
            float *b = y + (q + s * 3 * p) * POINT;
            for (size_t l = 0; l < FFT_LANES; l += V_LANES) {
                const C a0 = c_load(a + l), a1 = c_load(a + s * m * POINT + l),
                        a2 = c_load(a + 2 * s * m * POINT + l);
                const C sum = c_add(a1, a2), middle = c_fma(sum, -0.5f, a0);
                const C turn = c_scale(c_minus_i(c_sub(a1, a2)), half_root_3);
                c_store(b + l, c_add(a0, sum));
                c_store(b + s * POINT + l, c_mul(c_add(middle, turn), w));
                c_store(b + 2 * s * POINT + l, c_mul(c_sub(middle, turn), w + 2));
            }
        }
    }
}

static void stage_4(const float *x, float *y, size_t m, size_t s, const float *w) {
    for (size_t p = 0; p < m; p++, w += 6) {
        for (size_t q = 0; q < s; q++) {
            const float *a = x + (q + s * p) * POINT;
            float *b = y + (q + s * 4 * p) * POINT;
            for (size_t l = 0; l < FFT_LANES; l += V_LANES) {
                const C a0 = c_load(a + l), a1 = c_load(a + s * m * POINT + l);
                const C a2 = c_load(a + 2 * s * m * POINT + l), a3 = c_load(a + 3 * s * m * POINT + l);
                const C even = c_add(a0, a2), odd = c_add(a1, a3);
                const C low = c_sub(a0, a2), turn = c_minus_i(c_sub(a1, a3));
                c_store(b + l, c_add(even, odd));
                c_store(b + s * POINT + l, c_mul(c_add(low, turn), w));
                c_store(b + 2 * s * POINT + l, c_mul(c_sub(even, odd), w + 2));
                c_store(b + 3 * s * POINT + l, c_mul(c_sub(low, turn), w + 4));
            }
        }
    }
}

static void stage_5(const float *x, float *y, size_t m, size_t s, const float *w) {
    const float c1 = 0x1.3c6ef4p-2f, c2 = -0x1.9e377ap-1f, s1 = 0x1.e6f0e2p-1f, s2 = 0x1.2cf230p-1f;
    for (size_t p = 0; p < m; p++, w += 8) {
        for (size_t q = 0; q < s; q++) {
            const float *a = x + (q + s * p) * POINT;
            float *b = y + (q + s * 5 * p) * POINT;
            for (size_t l = 0; l < FFT_LANES; l += V_LANES) {
                const C a0 = c_load(a + l), a1 = c_load(a + s * m * POINT + l),
                        a2 = c_load(a + 2 * s * m * POINT + l);
                const C a3 = c_load(a + 3 * s * m * POINT + l), a4 = c_load(a + 4 * s * m * POINT + l);
                const C p14 = c_add(a1, a4), p23 = c_add(a2, a3);
                const C d14 = c_minus_i(c_sub(a1, a4)), d23 = c_minus_i(c_sub(a2, a3));
                const C m1 = c_fma(p23, c2, c_fma(p14, c1, a0)), m2 = c_fma(p23, c1, c_fma(p14, c2, a0));
                const C t1 = c_fma(d23, s2, c_scale(d14, s1)), t2 = c_fma(d23, -s1, c_scale(d14, s2));
                c_store(b + l, c_add(a0, c_add(p14, p23)));
                c_store(b + s * POINT + l, c_mul(c_add(m1, t1), w));
                c_store(b + 2 * s * POINT + l, c_mul(c_add(m2, t2), w + 2));
                c_store(b + 3 * s * POINT + l, c_mul(c_sub(m2, t2), w + 4));
                c_store(b + 4 * s * POINT + l, c_mul(c_sub(m1, t1), w + 6));
            }
        }
    }
}

static void stage_any(const float *x, float *y, size_t r, size_t m, size_t s, const float *w,
                      const float *roots) {
    for (size_t p = 0; p < m; p++, w += 2 * (r - 1)) {
        for (size_t q = 0; q < s; q++) {
            const float *a = x + (q + s * p) * POINT;
            for (size_t k = 0; k < r; k++) {
                float *b = y + (q + s * (r * p + k)) * POINT;
                for (size_t l = 0; l < FFT_LANES; l += V_LANES) {
                    C sum = c_load(a + l);
                    for (size_t i = 1; i < r; i++) {
                        sum = c_add(sum, c_mul(c_load(a + i * s * m * POINT + l), roots + 2 * (i * k % r)));
                    }
                    c_store(b + l, k == 0 ? sum : c_mul(sum, w + 2 * (k - 1)));
                }
            }
        }
    }
}

/* z [n / 2] -> out [n / 2 + 1], which may not overlap: for k and n/2 - k at once, with a = z[k], b =
 * conj(z[n/2 - k]): X[k] = (a + b) / 2 - i/2 e^(-2 pi i k / n) (a - b). */
static void untangle(const rfft_plan *plan, const float *z, float *out) {
    const size_t half = plan->n / 2;
    const V h = v_set(0.5f), zero = v_set(0.0f);
    for (size_t k = 0; k <= half / 2; k++) {
        const float *w = plan->untangle + 2 * k;
        const float *za = z + k * POINT, *zb = z + (k == 0 ? 0 : half - k) * POINT;
        for (size_t l = 0; l < FFT_LANES; l += V_LANES) {
            const C a = c_load(za + l), b = c_load(zb + l);
            const V sum_re = v_mul(v_add(a.re, b.re), h), sum_im = v_mul(v_sub(a.im, b.im), h);
            const V dif_re = v_mul(v_sub(a.re, b.re), h), dif_im = v_mul(v_add(a.im, b.im), h);
            /* t = -i e^(-i angle) dif */
            const V co = v_set(w[0]), si = v_set(w[1]);
            const V t_re = v_sub(v_mul(co, dif_im), v_mul(si, dif_re));
            const V t_im = v_sub(zero, v_fma(co, dif_re, v_mul(si, dif_im)));
            c_store(out + k * POINT + l, (C){v_add(sum_re, t_re), v_add(sum_im, t_im)});
            c_store(out + (half - k) * POINT + l, (C){v_sub(sum_re, t_re), v_sub(t_im, sum_im)});
        }
    }
}

static void fft_real_all(const rfft_plan *plan, const float *x, float *out, float *scratch) {
    const size_t half = plan->n / 2;
    const float *from = x;
    float *to = scratch;
    size_t s = 1, rest = half;
    for (size_t i = 0; i < plan->n_stages; i++) {
        const rfft_stage *g = &plan->stage[i];
        const size_t m = rest / g->radix;
        switch (g->radix) {
        case 2: stage_2(from, to, m, s, g->twiddle); break;
        case 3: stage_3(from, to, m, s, g->twiddle); break;
        case 4: stage_4(from, to, m, s, g->twiddle); break;
        case 5: stage_5(from, to, m, s, g->twiddle); break;
        default: stage_any(from, to, g->radix, m, s, g->twiddle, g->roots); break;
        }
        from = to;
        to = to == scratch ? scratch + half * POINT : scratch;
        s *= g->radix, rest = m;
    }
    untangle(plan, from, out);
}

static void band_energies_all(const float *spectrum, size_t bins, bool magnitude, const spectrum_band *bands,
                              size_t n, const float *weights, float *power, float *out) {
    for (size_t b = 0; b < bins; b++) {
        for (size_t l = 0; l < FFT_LANES; l += V_LANES) {
            const C x = c_load(spectrum + b * POINT + l);
            const V p = v_fma(x.im, x.im, v_mul(x.re, x.re));
            v_store(power + b * FFT_LANES + l, magnitude ? v_sqrt(p) : p);
        }
    }
    for (size_t i = 0; i < n; i++) {
        const float *w = weights + bands[i].at;
        for (size_t l = 0; l < FFT_LANES; l += V_LANES) {
            const float *x = power + bands[i].first * FFT_LANES + l;
            V sum = v_set(0.0f);
            for (size_t k = 0; k < bands[i].count; k++, x += FFT_LANES)
                sum = v_fma(v_load(x), v_set(w[k]), sum);
            v_store(out + i * FFT_LANES + l, sum);
        }
    }
}
