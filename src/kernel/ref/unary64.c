/* unary64.c: functions of one f64, one at a time; see unary64_body.h. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

typedef double D;
enum { D_LANES = 1 };

static inline D d_set(double x) {
    return x;
}
static inline D d_load(const double *x, size_t n) {
    (void)n;
    return *x;
}
static inline void d_store(double *y, size_t n, D v) {
    (void)n;
    *y = v;
}
static inline D d_add(D a, D b) {
    return a + b;
}
static inline D d_sub(D a, D b) {
    return a - b;
}
static inline D d_mul(D a, D b) {
    return a * b;
}
static inline D d_div(D a, D b) {
    return a / b;
}
static inline D d_fma(D a, D b, D c) {
    return fma(a, b, c);
}
static inline D d_max(D a, D b) {
    return a > b ? a : b;
}
static inline D d_min(D a, D b) {
    return a < b ? a : b;
}
static inline D d_abs(D a) {
    return fabs(a);
}
static inline D d_copysign(D magnitude, D sign) {
    return copysign(magnitude, sign);
}
static inline D d_select_negative(D x, D yes, D no) {
    return x < 0 ? yes : no;
}
static inline D d_power(D t) {
    uint64_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&t, &bits, sizeof t);
    return t;
}

#include "kernel/unary64_body.h"

void unary64_ref(kernel_unary f, const double *x, double *y, size_t n) {
    unary64_all(f, x, y, n);
}
