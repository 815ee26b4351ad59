/* unary64_body.h: functions of one f64, once for every instruction set.
 *
 * Each instruction set's unary64.c defines a vector type and its operations and includes this file once:
 *   D, D_LANES      a vector of f64, how many
 *   d_set, d_load(x, n) and d_store(y, n, v): the first n lanes, or all
 *   d_add d_sub d_mul d_div d_fma(a,b,c)=a*b+c
 *   d_max(a,b) d_min(a,b)   b where either is NaN
 *   d_abs d_copysign(magnitude, sign) d_select_negative(x, yes, no)
 *   d_power(t)      2^n where t = n + D_MAGIC, -1022 <= n <= 1023
 * All make the same operations in the same order, so they agree bit for bit.
 *
 * exp(x) - 1 = (2^n - 1) + 2^n * p, n = round(x*log2(e)), p = exp(r) - 1 by its series, |r| <= ln(2)/2, where
 * the term behind the last is below 2^-58 of it. */

#define D_MAGIC  0x1.8p+52 /* the low bits of n + D_MAGIC are n */
#define D_LOG2E  0x1.71547652b82fep+0
#define D_LN2_HI 0x1.62e42feep-1 /* 32 bits: n * D_LN2_HI is exact */
#define D_LN2_LO 0x1.a39ef35793c76p-33

/* exp(r) - 1 of x = n*ln(2) + r; *magic: n + D_MAGIC. */
static inline D d_series(D x, D *magic) {
    static const double c[] = {1.0,
                               1.0 / 2,
                               1.0 / 6,
                               1.0 / 24,
                               1.0 / 120,
                               1.0 / 720,
                               1.0 / 5040,
                               1.0 / 40320,
                               1.0 / 362880,
                               1.0 / 3628800,
                               1.0 / 39916800,
                               1.0 / 479001600,
                               1.0 / 6227020800};
    *magic = d_fma(x, d_set(D_LOG2E), d_set(D_MAGIC));
    const D n = d_sub(*magic, d_set(D_MAGIC));
    const D r = d_fma(n, d_set(-D_LN2_LO), d_fma(n, d_set(-D_LN2_HI), x));
    D p = d_set(c[12]);
    for (size_t i = 12; i > 1; i--) p = d_fma(p, r, d_set(c[i - 1]));
    return d_fma(d_mul(r, r), p, r);
}

/* In two steps, so that results below the smallest normal are rounded once. */
static inline D d_exp(D x) {
    D magic;
    const D p = d_series(d_min(d_set(710.0), d_max(d_set(-746.0), x)), &magic);
    const D n = d_sub(magic, d_set(D_MAGIC));
    const D half = d_fma(n, d_set(0.5), d_set(D_MAGIC)), rest = d_sub(n, d_sub(half, d_set(D_MAGIC)));
    const D y = d_mul(d_add(d_set(1.0), p), d_power(half));
    return d_mul(y, d_power(d_add(rest, d_set(D_MAGIC))));
}

/* e / (e + 2), e = exp(2|x|) - 1; from 20 on it is 1. */
static inline D d_tanh(D x) {
    D magic;
    const D a = d_min(d_set(20.0), d_abs(x));
    const D p = d_series(d_add(a, a), &magic), power = d_power(magic);
    const D e = d_fma(power, p, d_sub(power, d_set(1.0)));
    return d_copysign(d_div(e, d_add(e, d_set(2.0))), x);
}

static inline D d_sigmoid(D x) {
    const D e = d_exp(d_sub(d_set(0.0), d_abs(x)));
    return d_div(d_select_negative(x, e, d_set(1.0)), d_add(d_set(1.0), e));
}

/* y may be x. */
#define D_LOOP(expression)                                                                                   \
    for (size_t i = 0; i < n; i += D_LANES) {                                                                \
        const D v = d_load(x + i, n - i);                                                                    \
        d_store(y + i, n - i, (expression));                                                                 \
    }                                                                                                        \
    break

static void unary64_all(kernel_unary f, const double *x, double *y, size_t n) {
    switch (f) {
    case UNARY_F32_EXP: D_LOOP(d_exp(v));
    case UNARY_F32_TANH: D_LOOP(d_tanh(v));
    case UNARY_F32_SIGMOID: D_LOOP(d_sigmoid(v));
    default: break;
    }
}
