/* test_kernel_unary.c: .unary of every instruction set. The scalar reference is held against long double over
 * all exponents, the others against the reference bit for bit; rows end at pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel.h"

#include "guarded.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

typedef long double (*exact_fn)(long double x);

static long double sigmoid(long double x) {
    return 1 / (1 + expl(-x));
}
static long double softplus(long double x) {
    return log1pl(expl(-fabsl(x))) + (x > 0 ? x : 0);
}
/* Products of x and what goes to 0: at -infinity they are not a number, as in the formula. */
static long double gelu(long double x) {
    return isinf(x) && x < 0 ? NAN : x * erfcl(-x / sqrtl(2)) / 2;
}
static long double gelu_tanh(long double x) {
    return isinf(x) ? (x > 0 ? x : NAN) : x * sigmoid(2 * sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x));
}
static long double swish(long double x) {
    return isinf(x) ? (x > 0 ? x : NAN) : x * sigmoid(1.702L * x);
}
static long double mish(long double x) {
    return isinf(x) ? (x > 0 ? x : NAN) : x * tanhl(softplus(x));
}
static long double elu(long double x) {
    return x < 0 ? expm1l(x) : x;
}
static long double hard_swish(long double x) {
    const long double s = x / 6 + 0.5L;
    return isinf(x) && x < 0 ? NAN : x * (s < 0 ? 0 : s > 1 ? 1 : s);
}
static long double negate(long double x) {
    return -x;
}
static long double reciprocal(long double x) {
    return 1 / x;
}
static long double softsign(long double x) {
    return isinf(x) ? NAN : x / (1 + fabsl(x));
}
static long double relu(long double x) {
    return x < 0 ? 0 : x;
}
static long double leaky(long double x) {
    return x < 0 ? x * 0.25L : x;
}
static long double clip(long double x) {
    return x < -2 ? -2 : x > 3 ? 3 : x;
}
static long double hard_sigmoid(long double x) {
    return x < -2 ? 0 : x > 2 ? 1 : x / 4 + 0.5L;
}
static long double linear(long double x) {
    return 2 * x + 1;
}

typedef struct unary_case {
    const char *name;
    kernel_unary f;
    float p, q;
    exact_fn exact;
    double ulp;      /* limit, relative to the result … */
    double absolute; /* … or this much */
} unary_case;

/* GELU and the other products lose what their factor loses near its zero: the absolute bound is that of x. */
static const unary_case cases[] = {
    {"abs", UNARY_F32_ABS, 0, 0, fabsl, 0, 0},
    {"neg", UNARY_F32_NEG, 0, 0, negate, 0, 0},
    {"sqrt", UNARY_F32_SQRT, 0, 0, sqrtl, 0.5, 0},
    {"reciprocal", UNARY_F32_RECIPROCAL, 0, 0, reciprocal, 0.5, 0},
    {"floor", UNARY_F32_FLOOR, 0, 0, floorl, 0, 0},
    {"ceil", UNARY_F32_CEIL, 0, 0, ceill, 0, 0},
    {"round", UNARY_F32_ROUND, 0, 0, rintl, 0, 0},
    {"exp", UNARY_F32_EXP, 0, 0, expl, 2, 0x1p-126},
    {"log", UNARY_F32_LOG, 0, 0, logl, 2, 0},
    {"tanh", UNARY_F32_TANH, 0, 0, tanhl, 2, 0},
    {"erf", UNARY_F32_ERF, 0, 0, erfl, 2, 0},
    {"sigmoid", UNARY_F32_SIGMOID, 0, 0, sigmoid, 3, 0x1p-125},
    {"swish", UNARY_F32_SWISH, 1.702f, 0, swish, 70, 0x1p-110},
    {"gelu", UNARY_F32_GELU, 0, 0, gelu, 4, 0x1p-22},
    {"gelu_tanh", UNARY_F32_GELU_TANH, 0, 0, gelu_tanh, 4, 0x1p-22},
    {"softplus", UNARY_F32_SOFTPLUS, 0, 0, softplus, 3, 0x1p-125},
    {"softsign", UNARY_F32_SOFTSIGN, 0, 0, softsign, 1.5, 0},
    {"mish", UNARY_F32_MISH, 0, 0, mish, 6, 0x1p-110},
    {"elu", UNARY_F32_ELU, 1, 1, elu, 3, 0},
    {"relu", UNARY_F32_RELU, 0, 0, relu, 0, 0},
    {"leaky_relu", UNARY_F32_LEAKY_RELU, 0.25f, 0, leaky, 0.5, 0},
    {"clip", UNARY_F32_CLIP, -2, 3, clip, 0, 0},
    {"hard_sigmoid", UNARY_F32_HARD_SIGMOID, 0.25f, 0.5f, hard_sigmoid, 1, 0},
    {"hard_swish", UNARY_F32_HARD_SWISH, 0, 0, hard_swish, 3, 0x1p-20},
    {"linear", UNARY_F32_LINEAR, 2, 1, linear, 0.5, 0},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* Every sign and exponent, many mantissas, and the values between which functions change their formula. */
enum { PER_EXPONENT = 61, N_VALUES = 2 * 256 * PER_EXPONENT };

static void make_values(float *x) {
    for (uint32_t e = 0; e < 512; e++) {
        for (uint32_t i = 0; i < PER_EXPONENT; i++) {
            uint32_t bits = e << 23 | (i == 0 ? 0 : i == 1 ? 0x7fffff : next_random() & 0x7fffff);
            memcpy(&x[e * PER_EXPONENT + i], &bits, sizeof bits);
        }
    }
}

static double ulps(float y, long double exact) {
    if (isnan(exact)) return isnan(y) ? 0 : INFINITY;
    if (isnan(y)) return INFINITY;
    const float nearest = (float)exact;
    if (y == nearest) return 0;
    if (isinf(nearest) || isinf(y)) return INFINITY;
    int e;
    (void)frexpl(exact, &e);
    return (double)(fabsl((long double)y - exact) / ldexpl(1, e - 24 > -149 ? e - 24 : -149));
}

static void test_accuracy(void **state) {
    (void)state;
    static float x[N_VALUES], y[N_VALUES];
    make_values(x);
    for (size_t c = 0; c < N_CASES; c++) {
        const unary_case *u = &cases[c];
        kernels_for(KERNEL_REF)->unary(u->f, u->p, u->q, x, y, N_VALUES);
        double worst = 0;
        for (size_t i = 0; i < N_VALUES; i++) {
            const long double exact = u->exact((long double)x[i]);
            const double off = ulps(y[i], exact);
            if (fabsl((long double)y[i] - exact) <= (long double)u->absolute || off <= worst) continue;
            worst = off;
            if (!(off <= u->ulp)) {
                fail_msg("%s(%a): expected %La, got %a, off by %.3g ulp", u->name, (double)x[i], exact,
                         (double)y[i], off);
            }
        }
        print_message("           %s: largest error %.3f ulp\n", u->name, worst);
    }
}

static void test_instruction_sets_agree(void **state) {
    (void)state;
    assert_int_equal(N_CASES, UNARY_F32_COUNT);
    static float x[N_VALUES], wanted[N_VALUES], y[N_VALUES];
    make_values(x);
    for (int isa = 1; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        for (size_t c = 0; k && c < N_CASES; c++) {
            const unary_case *u = &cases[c];
            kernels_for(KERNEL_REF)->unary(u->f, u->p, u->q, x, wanted, N_VALUES);
            k->unary(u->f, u->p, u->q, x, y, N_VALUES);
            for (size_t i = 0; i < N_VALUES; i++) {
                const bool both_nan = isnan(y[i]) && isnan(wanted[i]);
                if (!both_nan && memcmp(&y[i], &wanted[i], sizeof y[i]) != 0) {
                    fail_msg("%s %s(%a): reference %a, got %a", k->name, u->name, (double)x[i],
                             (double)wanted[i], (double)y[i]);
                }
            }
        }
    }
}

/* Every length around the vector, in place, at the edge of what may be read. */
static void test_lengths(void **state) {
    (void)state;
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        for (size_t n = 0; k && n < 70; n++) {
            for (int at_end = 0; at_end < 2; at_end++) {
                guarded g = guard_new(n * sizeof(float), 4, at_end != 0);
                float *x = g.data, wanted[70];
                for (size_t i = 0; i < n; i++) x[i] = (float)i - 20.5f;
                for (size_t c = 0; c < N_CASES; c++) {
                    kernels_for(KERNEL_REF)->unary(cases[c].f, cases[c].p, cases[c].q, x, wanted, n);
                    k->unary(cases[c].f, cases[c].p, cases[c].q, x, x, n);
                    assert_memory_equal(x, wanted, n * sizeof *x);
                    for (size_t i = 0; i < n; i++) x[i] = (float)i + 0.5f;
                }
                guard_free(&g);
            }
        }
    }
}

/* ---- f64 ---------------------------------------------------------------------------------------------- */

static const struct wide_case {
    kernel_unary f;
    exact_fn exact;
} wide_cases[] = {{UNARY_F32_EXP, expl}, {UNARY_F32_TANH, tanhl}, {UNARY_F32_SIGMOID, sigmoid}};

enum { PER_WIDE_EXPONENT = 9, N_WIDE = 4096 * PER_WIDE_EXPONENT + 40000 };

/* Every sign and exponent, and many between -800 and 800. */
static void make_wide(double *x) {
    for (uint64_t e = 0; e < 4096; e++) {
        for (uint64_t i = 0; i < PER_WIDE_EXPONENT; i++) {
            const uint64_t fraction = ((uint64_t)next_random() << 31 | next_random()) & 0xfffffffffffff;
            const uint64_t bits = e << 52 | (i == 0 ? 0 : fraction);
            memcpy(&x[e * PER_WIDE_EXPONENT + i], &bits, sizeof bits);
        }
    }
    for (size_t i = 4096 * PER_WIDE_EXPONENT; i < N_WIDE; i++)
        x[i] = ((double)next_random() / 1073741824.0 - 1) * (i % 4 ? 3 : 800);
}

/* The reference within 3 ulp of long double, the others with its bits, at every length and in place. */
static void test_wide(void **state) {
    (void)state;
    static double x[N_WIDE], wanted[N_WIDE], y[N_WIDE];
    make_wide(x);
    for (size_t c = 0; c < sizeof wide_cases / sizeof *wide_cases; c++) {
        kernels_for(KERNEL_REF)->unary64(wide_cases[c].f, x, wanted, N_WIDE);
        for (size_t i = 0; i < N_WIDE; i++) {
            const long double exact = wide_cases[c].exact(x[i]);
            if (isnan(exact) || isinf((double)exact)) {
                assert_true(isnan(exact) ? isnan(wanted[i]) : wanted[i] == (double)exact);
                continue;
            }
            int e;
            (void)frexpl(exact, &e);
            const long double ulp = ldexpl(1, e - 53 > -1074 ? e - 53 : -1074);
            if (!(fabsl((long double)wanted[i] - exact) <= 3 * ulp))
                printf("f64 %zu: %a -> %a\n", c, x[i], wanted[i]);
            assert_true(fabsl((long double)wanted[i] - exact) <= 3 * ulp);
            assert_true(!signbit(wanted[i]) == !signbit(exact));
        }
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            k->unary64(wide_cases[c].f, x, y, N_WIDE);
            for (size_t i = 0; i < N_WIDE; i++)
                assert_true(isnan(wanted[i]) ? isnan(y[i]) : memcmp(&y[i], &wanted[i], sizeof *y) == 0);
            for (size_t n = 0; n < 19; n++) {
                guarded g = guard_new(n * sizeof(double), 8, true);
                if (n) memcpy(g.data, x + N_WIDE - 20, n * sizeof(double));
                k->unary64(wide_cases[c].f, g.data, g.data, n);
                if (n) assert_memory_equal(g.data, wanted + N_WIDE - 20, n * sizeof(double));
                guard_free(&g);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_instruction_sets_agree),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
