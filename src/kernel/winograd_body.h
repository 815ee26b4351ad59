/* winograd_body.h: the transforms of F(4x4, 3x3), once for every instruction set, over the operations that
 * lanes.h names. Points 0, +-3/4, +-3/2 and infinity: every coefficient is exact in f32, and sums of opposite
 * points share their even and odd parts.
 *
 * Input, along each axis: with d = d0 .. d5 and A = 9/16, B = 9/4 the squares of the points,
 *   v0 = AB d0 - (A+B) d2 + d4         v5 = AB d1 - (A+B) d3 + d5
 *   v1, v2 = (d4 - B d2) +- 3/4 (d3 - B d1)
 *   v3, v4 = (d4 - A d2) +- 3/2 (d3 - A d1)
 * Output: with s = m1 + m2, t = m1 - m2, u = m3 + m4, w = m3 - m4,
 *   y0 = m0 + s + u    y1 = 3/4 t + 3/2 w    y2 = A s + B u    y3 = 27/64 t + 27/8 w + m5 */

enum { WINO_IN = 6, WINO_OUT = 4, WINO_BLOCK = 16 };

static inline void wino_in(const V d[WINO_IN], V v[WINO_IN]) {
    const V a = v_set(-0.5625f), b = v_set(-2.25f), both = v_set(-2.8125f), product = v_set(1.265625f);
    v[0] = v_fma(product, d[0], v_fma(both, d[2], d[4]));
    v[5] = v_fma(product, d[1], v_fma(both, d[3], d[5]));
    const V even = v_fma(b, d[2], d[4]), odd = v_fma(b, d[1], d[3]);
    v[1] = v_fma(v_set(0.75f), odd, even);
    v[2] = v_fma(v_set(-0.75f), odd, even);
    const V even2 = v_fma(a, d[2], d[4]), odd2 = v_fma(a, d[1], d[3]);
    v[3] = v_fma(v_set(1.5f), odd2, even2);
    v[4] = v_fma(v_set(-1.5f), odd2, even2);
}

static inline void wino_out(const V m[WINO_IN], V y[WINO_OUT]) {
    const V s = v_add(m[1], m[2]), t = v_sub(m[1], m[2]), u = v_add(m[3], m[4]), w = v_sub(m[3], m[4]);
    y[0] = v_add(m[0], v_add(s, u));
    y[1] = v_fma(v_set(0.75f), t, v_mul(v_set(1.5f), w));
    y[2] = v_fma(v_set(0.5625f), s, v_mul(v_set(2.25f), u));
    y[3] = v_add(v_fma(v_set(0.421875f), t, v_mul(v_set(3.375f), w)), m[5]);
}

static void wino_input(const float *x, size_t x_row, float *v, size_t v_point) {
    for (size_t lane = 0; lane < WINO_BLOCK; lane += V_LANES) {
        V half[WINO_IN][WINO_IN], d[WINO_IN], r[WINO_IN];
        for (size_t j = 0; j < WINO_IN; j++) {
            for (size_t i = 0; i < WINO_IN; i++) d[i] = v_load(x + i * x_row + j * WINO_BLOCK + lane);
            wino_in(d, r);
            for (size_t i = 0; i < WINO_IN; i++) half[i][j] = r[i];
        }
        for (size_t i = 0; i < WINO_IN; i++) {
            wino_in(half[i], r);
            for (size_t j = 0; j < WINO_IN; j++) v_store(v + (i * WINO_IN + j) * v_point + lane, r[j]);
        }
    }
}

static void wino_output(const float *m, size_t m_point, const float *bias, const float *add, size_t add_row,
                        float low, float high, float *y, size_t y_row) {
    for (size_t lane = 0; lane < WINO_BLOCK; lane += V_LANES) {
        V half[WINO_OUT][WINO_IN], d[WINO_IN], r[WINO_OUT];
        for (size_t j = 0; j < WINO_IN; j++) {
            for (size_t i = 0; i < WINO_IN; i++) d[i] = v_load(m + (i * WINO_IN + j) * m_point + lane);
            wino_out(d, r);
            for (size_t i = 0; i < WINO_OUT; i++) half[i][j] = r[i];
        }
        for (size_t i = 0; i < WINO_OUT; i++) {
            wino_out(half[i], r);
            for (size_t j = 0; j < WINO_OUT; j++) {
                V v = r[j];
                if (bias) v = v_add(v, v_load(bias + lane));
                if (add) v = v_add(v, v_load(add + i * add_row + j * WINO_BLOCK + lane));
                v_store(y + i * y_row + j * WINO_BLOCK + lane, v_min(v_set(high), v_max(v_set(low), v)));
            }
        }
    }
}
