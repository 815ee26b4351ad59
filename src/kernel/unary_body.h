/* unary_body.h: functions of one f32, once for every instruction set.
 *
 * Each instruction set's unary.c defines a vector type and its operations and includes this file once:
 *   V, M            a vector of f32, a mask of its lanes
 *   V_LANES         how many
 *   v_set v_load v_store v_load_part v_store_part (first n lanes), v_load_fill: the rest is `fill`
 *   v_add v_sub v_mul v_div v_fma(a,b,c)=a*b+c v_sqrt v_floor v_ceil v_round (to nearest even)
 *   v_max(a,b) v_min(a,b)   b where either is NaN
 *   v_abs v_copysign(magnitude, sign) v_less(a,b) v_select(m, yes, no)
 *   v_exp v_tanh    (of math.c and vec.h), v_exp_low: v_exp of what is at most 1, or NaN
 *   v_exponent(x)   floor(log2) as f32 with the mantissa's border at sqrt(1/2), v_scale_back(x, e) = x *
 * 2^-e, for normal positive x All make the same operations in the same order, so they agree bit for bit.
 *
 * erf: x + x*P(x^2) below ERF_SMALL, else 1 - exp(Q(|x|)), Q fitted to log(erfc). log: x = m*2^e, with m in
 * [sqrt(1/2), sqrt(2)), f - f^2/2 + f^3*P(f), f = m - 1. Coefficients: minimax fits made for these intervals.
 */

#define ERF_SMALL    0.93f
#define ERF_LIMIT    3.92f /* from here on erf is 1 */
#define LOG_LN2_HI   0x1.62e4p-1f
#define LOG_LN2_LO   0x1.7f7d1cp-20f
#define LOG_SMALLEST 0x1p-126f

static inline V v_horner(V x, const float *c, size_t n) {
    V p = v_set(c[n - 1]);
    for (size_t i = n - 1; i > 0; i--) p = v_fma(p, x, v_set(c[i - 1]));
    return p;
}

static inline V v_erf(V x) {
    static const float small[] = {0x1.06eba8p-3f, -0x1.812744p-2f,  0x1.ce2e14p-4f, -0x1.b80f4ap-6f,
                                  0x1.54cd94p-8f, -0x1.aa690ap-11f, 0x1.5d4baep-14f};
    static const float large[] = {0x1.76a328p-13f, -0x1.212928p+0f, -0x1.4440d4p-1f, -0x1.bbb2e8p-4f,
                                  0x1.9c0b2cp-6f,  -0x1.121d46p-8f, 0x1.ca2462p-12f, -0x1.6590b4p-16f};
    const V a = v_min(v_set(ERF_LIMIT), v_abs(x));
    const V near = v_fma(v_horner(v_mul(x, x), small, 7), x, x);
    const V far = v_copysign(v_sub(v_set(1.0f), v_exp_low(v_horner(a, large, 8))), x);
    return v_select(v_less(v_abs(x), v_set(ERF_SMALL)), near, far);
}

/* Negative: NaN. Zero: -infinity. */
static inline V v_log(V x) {
    static const float c[] = {0x1.555554p-2f, -0x1.000228p-2f, 0x1.99a004p-3f, -0x1.547202p-3f,
                              0x1.22da4ep-3f, -0x1.0d8848p-3f, 0x1.055c66p-3f, -0x1.38a840p-4f};
    const M tiny = v_less(x, v_set(LOG_SMALLEST));
    const V normal = v_select(tiny, v_mul(x, v_set(0x1p+24f)), x);
    V e = v_exponent(normal);
    const V f = v_sub(v_scale_back(normal, e), v_set(1.0f)), ff = v_mul(f, f);
    e = v_select(tiny, v_sub(e, v_set(24.0f)), e);
    V y = v_mul(v_mul(v_horner(f, c, 8), f), ff);
    y = v_fma(e, v_set(LOG_LN2_LO), y);
    y = v_fma(v_set(-0.5f), ff, y);
    y = v_fma(e, v_set(LOG_LN2_HI), v_add(y, f));
    y = v_select(v_less(x, v_set(0.0f)), v_set(NAN), y);
    y = v_select(v_less(v_set(0.0f), v_abs(x)), y, v_set(-INFINITY)); /* also where denormals count as 0 */
    return v_select(v_less(v_set(FLT_MAX), x), x,
                    v_select(v_less(x, v_set(INFINITY)), y, x)); /* NaN, infinity */
}

/* log(1 + x) for x in [0, 1]: the rounding of 1 + x is made good. */
static inline V v_log1p(V x) {
    const V u = v_add(x, v_set(1.0f));
    return v_add(v_log(u), v_div(v_sub(x, v_sub(u, v_set(1.0f))), u));
}

/* exp(x) - 1. */
static inline V v_expm1(V x) {
    static const float c[] = {0x1p+0f,        0x1p-1f,         0x1.555556p-3f, 0x1.555554p-5f,
                              0x1.111112p-7f, 0x1.6c16c2p-10f, 0x1.a01a02p-13f};
    const V near = v_mul(v_horner(x, c, 7), x);
    return v_select(v_less(v_abs(x), v_set(0.35f)), near, v_sub(v_exp(x), v_set(1.0f)));
}

static inline V v_sigmoid(V x) {
    const V e = v_exp_low(v_sub(v_set(0.0f), v_abs(x))), d = v_add(v_set(1.0f), e);
    return v_div(v_select(v_less(x, v_set(0.0f)), e, v_set(1.0f)), d);
}

static inline V v_softplus(V x) {
    const V e = v_exp_low(v_sub(v_set(0.0f), v_abs(x)));
    return v_add(v_max(v_set(0.0f), x), v_log1p(e));
}

/* x * tanh(log(1 + e^x)) = x * n / (n + 2), n = e^x * (e^x + 2); above 20 the quotient is 1. */
static inline V v_mish(V x) {
    const V e = v_exp(v_min(v_set(20.0f), x)), n = v_mul(e, v_add(e, v_set(2.0f)));
    return v_mul(x, v_div(n, v_add(n, v_set(2.0f))));
}

static inline V v_gelu(V x) {
    const V half = v_mul(v_set(0.5f), x);
    return v_fma(half, v_erf(v_mul(x, v_set(0x1.6a09e6p-1f))), half);
}

static inline V v_gelu_tanh(V x) {
    V u = v_fma(v_mul(x, x), v_set(GELU_CUBIC), v_set(1.0f));
    u = v_mul(v_mul(u, x), v_set(GELU_SQRT_8_PI)); /* twice the argument of tanh */
    return v_mul(x, v_sigmoid(u));
}

/* gain * (x, or alpha * (e^x - 1) below 0) */
static inline V v_elu(V x, V alpha, V gain) {
    const V below = v_mul(alpha, v_expm1(v_min(v_set(0.0f), x)));
    return v_mul(gain, v_select(v_less(x, v_set(0.0f)), below, x));
}

static inline V v_limit(V x, V low, V high) {
    return v_min(high, v_max(low, x));
}

/* y may be x. */
#define V_LOOP(expression)                                                                                   \
    for (size_t i = 0; i < n; i += V_LANES) {                                                                \
        const size_t left = n - i;                                                                           \
        const V v = left >= V_LANES ? v_load(x + i) : v_load_part(x + i, left);                              \
        const V r = (expression);                                                                            \
        if (left >= V_LANES) {                                                                               \
            v_store(y + i, r);                                                                               \
        } else {                                                                                             \
            v_store_part(y + i, left, r);                                                                    \
        }                                                                                                    \
    }                                                                                                        \
    break

static void unary_all(kernel_unary f, float p, float q, const float *x, float *y, size_t n) {
    const V vp = v_set(p), vq = v_set(q), zero = v_set(0.0f), one = v_set(1.0f);
    switch (f) {
    case UNARY_F32_ABS: V_LOOP(v_abs(v));
    case UNARY_F32_NEG: V_LOOP(v_mul(v, v_set(-1.0f)));
    case UNARY_F32_SQRT: V_LOOP(v_sqrt(v));
    case UNARY_F32_RECIPROCAL: V_LOOP(v_div(one, v));
    case UNARY_F32_FLOOR: V_LOOP(v_floor(v));
    case UNARY_F32_CEIL: V_LOOP(v_ceil(v));
    case UNARY_F32_ROUND: V_LOOP(v_round(v));
    case UNARY_F32_EXP: V_LOOP(v_exp(v));
    case UNARY_F32_LOG: V_LOOP(v_log(v));
    case UNARY_F32_TANH: V_LOOP(v_tanh(v));
    case UNARY_F32_ERF: V_LOOP(v_erf(v));
    case UNARY_F32_SIGMOID: V_LOOP(v_sigmoid(v));
    case UNARY_F32_SWISH: V_LOOP(v_mul(v, v_sigmoid(v_mul(vp, v))));
    case UNARY_F32_GELU: V_LOOP(v_gelu(v));
    case UNARY_F32_GELU_TANH: V_LOOP(v_gelu_tanh(v));
    case UNARY_F32_SOFTPLUS: V_LOOP(v_softplus(v));
    case UNARY_F32_SOFTSIGN: V_LOOP(v_div(v, v_add(one, v_abs(v))));
    case UNARY_F32_MISH: V_LOOP(v_mish(v));
    case UNARY_F32_ELU: V_LOOP(v_elu(v, vp, vq));
    case UNARY_F32_RELU: V_LOOP(v_max(zero, v));
    case UNARY_F32_LEAKY_RELU: V_LOOP(v_select(v_less(v, zero), v_mul(vp, v), v));
    case UNARY_F32_CLIP: V_LOOP(v_limit(v, vp, vq));
    case UNARY_F32_HARD_SIGMOID: V_LOOP(v_limit(v_fma(vp, v, vq), zero, one));
    case UNARY_F32_HARD_SWISH:
        V_LOOP(v_mul(v, v_limit(v_fma(v_set(0x1.555556p-3f), v, v_set(0.5f)), zero, one)));
    case UNARY_F32_LINEAR: V_LOOP(v_fma(v, vp, vq));
    case UNARY_F32_COUNT: break;
    }
}
