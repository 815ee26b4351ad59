/* math.c: exponential, hyperbolic tangent and logarithm of one number.
 *
 * Own code because the C library chooses its variants, and so its last bits, by processor. */
#include "kernel/vector.h"

#include <math.h>
#include <string.h>

float exp_value(float x) {
    if (x < EXP_LOW) return 0.0f;
    if (x > EXP_HIGH) return INFINITY;
    float t = fmaf(x, EXP_LOG2E, EXP_MAGIC);
    float n = t - EXP_MAGIC;
    float r = fmaf(n, -EXP_LN2_HI, x);
    r = fmaf(n, -EXP_LN2_LO, r);
    float p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    if (n > 127.0f) { /* 2^128 is no float */
        t = EXP_MAGIC + 127.0f;
        p += p;
    }
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits <<= 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

float tanh_value(float x) {
    float a = fabsf(x), s = a * a, y;
    if (a < TANH_SMALL) {
        float p = fmaf(TANH_C6, s, TANH_C5);
        p = fmaf(p, s, TANH_C4);
        p = fmaf(p, s, TANH_C3);
        p = fmaf(p, s, TANH_C2);
        p = fmaf(p, s, TANH_C1);
        y = fmaf(p * s, a, a);
    } else {
        float e = exp_value(-2.0f * a);
        y = 1.0f - (e + e) / (1.0f + e);
    }
    return copysignf(y, x);
}

double log_value(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    /* x = m * 2^e with m in [sqrt(1/2), sqrt(2)): the bits of sqrt(1/2) are taken as the exponent's border */
    uint64_t shifted = bits - UINT64_C(0x3fe6a09e667f3bcd);
    int64_t e = (int64_t)shifted >> 52;
    bits -= (uint64_t)e << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1.0) / (m + 1.0), ss = s * s;
    double p = 0.0;
    for (int k = 23; k >= 1; k -= 2) p = p * ss + 1.0 / k;
    return 2.0 * s * p + (double)e * 0.69314718055994530942;
}
