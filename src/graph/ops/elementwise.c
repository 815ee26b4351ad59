/* elementwise.c: operators of one tensor, element by element; and Clip, IsNaN, IsInf, Not, BitwiseNot,
 * SwiGLU. */
#include "base/mem.h"
#include "graph/ops/binary.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"
#include "graph/ops/unary.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Attributes and their defaults, by operator; a later row replaces it for versions from `since`. */
typedef struct unary_row {
    const char *name;
    unary_op op;
    const char *first, *second; /* attribute names, or NULL */
    float a, b;
} unary_row;

static const unary_row unary_rows[] = {
    {"Abs", FUNC_ABS, NULL, NULL, 0, 0},
    {"Neg", FUNC_NEG, NULL, NULL, 0, 0},
    {"Sign", FUNC_SIGN, NULL, NULL, 0, 0},
    {"Ceil", FUNC_CEIL, NULL, NULL, 0, 0},
    {"Floor", FUNC_FLOOR, NULL, NULL, 0, 0},
    {"Round", FUNC_ROUND, NULL, NULL, 0, 0},
    {"Sqrt", FUNC_SQRT, NULL, NULL, 0, 0},
    {"Reciprocal", FUNC_RECIPROCAL, NULL, NULL, 0, 0},
    {"Exp", FUNC_EXP, NULL, NULL, 0, 0},
    {"Log", FUNC_LOG, NULL, NULL, 0, 0},
    {"Sin", FUNC_SIN, NULL, NULL, 0, 0},
    {"Cos", FUNC_COS, NULL, NULL, 0, 0},
    {"Tan", FUNC_TAN, NULL, NULL, 0, 0},
    {"Asin", FUNC_ASIN, NULL, NULL, 0, 0},
    {"Acos", FUNC_ACOS, NULL, NULL, 0, 0},
    {"Atan", FUNC_ATAN, NULL, NULL, 0, 0},
    {"Sinh", FUNC_SINH, NULL, NULL, 0, 0},
    {"Cosh", FUNC_COSH, NULL, NULL, 0, 0},
    {"Tanh", FUNC_TANH, NULL, NULL, 0, 0},
    {"Asinh", FUNC_ASINH, NULL, NULL, 0, 0},
    {"Acosh", FUNC_ACOSH, NULL, NULL, 0, 0},
    {"Atanh", FUNC_ATANH, NULL, NULL, 0, 0},
    {"Erf", FUNC_ERF, NULL, NULL, 0, 0},
    {"Relu", FUNC_RELU, NULL, NULL, 0, 0},
    {"LeakyRelu", FUNC_LEAKY_RELU, "alpha", NULL, 0.01f, 0},
    {"Elu", FUNC_ELU, "alpha", NULL, 1, 0},
    {"Selu", FUNC_SELU, "alpha", "gamma", 1.67326319217681884765625f, 1.05070102214813232421875f},
    {"Celu", FUNC_CELU, "alpha", NULL, 1, 0},
    {"ThresholdedRelu", FUNC_THRESHOLDED_RELU, "alpha", NULL, 1, 0},
    {"Sigmoid", FUNC_SIGMOID, NULL, NULL, 0, 0},
    {"HardSigmoid", FUNC_HARD_SIGMOID, "alpha", "beta", 0.2f, 0.5f},
    {"HardSwish", FUNC_HARD_SWISH, NULL, NULL, 0, 0},
    {"Swish", FUNC_SWISH, "alpha", NULL, 1, 0},
    {"SwiGLU", FUNC_SWISH, "alpha", NULL, 1, 0},
    {"Mish", FUNC_MISH, NULL, NULL, 0, 0},
    {"Gelu", FUNC_GELU, NULL, NULL, 0, 0},
    {"Softplus", FUNC_SOFTPLUS, NULL, NULL, 0, 0},
    {"Softsign", FUNC_SOFTSIGN, NULL, NULL, 0, 0},
    {"Shrink", FUNC_SHRINK, "lambd", "bias", 0.5f, 0},
};

typedef struct unary_state {
    unary_op op;
    float a, b;
} unary_state;

static status prepare_unary(op_node *n, error *err) {
    unary_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    const unary_row *row = unary_rows;
    while (strcmp(row->name, op_operator(n)) != 0) row++;
    s->op = row->op;
    s->a = row->a;
    s->b = row->b;
    if (row->op == FUNC_SELU && op_version(n) < 6) { /* older, coarser constants */
        s->a = 1.67320001125335693359375f;
        s->b = 1.05069994926452636718750f;
    }
    if (row->first) TRY(op_attr_float(n, row->first, s->a, &s->a, err));
    if (row->second) TRY(op_attr_float(n, row->second, s->b, &s->b, err));
    if (op_version(n) < 6) op_attr_ignore(n, "consumed_inputs");
    if (row->op == FUNC_CELU && s->a == 0)
        return op_error(n, err, CHURON_INVALID, "alpha: expected a number other than 0, got 0");
    if (row->op == FUNC_GELU) {
        int tanh_form;
        TRY(op_attr_choice(n, "approximate", (const char *const[]){"none", "tanh", NULL}, 0, &tanh_form,
                           err));
        if (tanh_form) s->op = FUNC_GELU_TANH;
    }
    return CHURON_OK;
}

typedef struct unary_job {
    const kernels *k;
    const unary_state *s;
    elem type;
    size_t size;
    const char *x, *second;
    char *y;
} unary_job;

static void unary_range(void *ctx, size_t from, size_t to) {
    const unary_job *j = ctx;
    unary_apply(j->k, j->s->op, j->type, j->x + from * j->size, j->y + from * j->size, to - from, j->s->a,
                j->s->b);
}

static status run_unary(op_run *r, error *err) {
    const unary_state *s = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    unary_job j = {run_kernels(r), s, x->type, tensor_elem_size(x), x->data, NULL, out->data};
    run_parallel(r, x->count, (double)x->count * unary_cost(s->op, x->type), unary_range, &j);
    return CHURON_OK;
}

/* swish(a) * b; halves are rounded once. */
enum { GLU_BLOCK = 512 };
static void glu_range(void *ctx, size_t from, size_t to) {
    const unary_job *j = ctx;
    for (size_t i = from; i < to; i += GLU_BLOCK) {
        size_t n = to - i < GLU_BLOCK ? to - i : GLU_BLOCK, at = i * j->size;
        if (j->type == ELEM_F64) {
            double gate[GLU_BLOCK];
            unary_apply(j->k, FUNC_SWISH, ELEM_F64, j->x + at, gate, n, j->s->a, 0);
            binary_apply(BINARY_MUL, ELEM_F64, gate, j->second + at, j->y + at, n, BINARY_BOTH);
        } else {
            float gate[GLU_BLOCK], up[GLU_BLOCK];
            elem_to_f32(j->type, j->x + at, gate, n);
            elem_to_f32(j->type, j->second + at, up, n);
            unary_f32(j->k, FUNC_SWISH, gate, gate, n, j->s->a, 0);
            for (size_t e = 0; e < n; e++) gate[e] *= up[e];
            elem_from_f32(j->type, gate, j->y + at, n, false);
        }
    }
}

static status run_swiglu(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    unary_job j = {run_kernels(r), run_state(r),       x->type,  tensor_elem_size(x),
                   x->data,        run_in(r, 1)->data, out->data};
    run_parallel(r, x->count, (double)x->count * 2, glu_range, &j);
    return CHURON_OK;
}

static status infer_swiglu(op_shapes *s, error *err) {
    size_t rank, rank_b;
    const dim *a, *b;
    if (shapes_in(s, 0, &rank, &a) && shapes_in(s, 1, &rank_b, &b)) {
        if (rank != rank_b)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "input 1: expected rank %zu as input 0, got %zu", rank, rank_b);
        for (size_t d = 0; d < rank; d++)
            TRY(shapes_same(s, a[d], b[d], "a dimension of inputs 0 and 1", NULL, err));
    }
    return infer_same(s, err);
}

/* ---- flags of floats ---------------------------------------------------------------------------------- */

typedef struct test_state {
    bool nan, negative, positive; /* what gives true */
} test_state;

static status prepare_isnan(op_node *n, error *err) {
    test_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    s->nan = true;
    return CHURON_OK;
}

static status prepare_isinf(op_node *n, error *err) {
    test_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    TRY(op_attr_bool(n, "detect_negative", true, &s->negative, err));
    return op_attr_bool(n, "detect_positive", true, &s->positive, err);
}

typedef struct test_job {
    const test_state *s;
    const tensor *x;
    uint8_t *y;
} test_job;

enum { TEST_BLOCK = 256 };
static void test_range(void *ctx, size_t from, size_t to) {
    const test_job *j = ctx;
    size_t size = tensor_elem_size(j->x);
    for (size_t i = from; i < to; i += TEST_BLOCK) {
        size_t n = to - i < TEST_BLOCK ? to - i : TEST_BLOCK;
        double v[TEST_BLOCK];
        elem_to_f64(j->x->type, (const char *)j->x->data + i * size, v, n);
        for (size_t e = 0; e < n; e++)
            j->y[i + e] = j->s->nan
                              ? v[e] != v[e]
                              : (j->s->positive && v[e] > DBL_MAX) || (j->s->negative && v[e] < -DBL_MAX);
    }
}

static status run_test(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    test_job j = {run_state(r), x, out->data};
    run_parallel(r, x->count, (double)x->count * 2, test_range, &j);
    return CHURON_OK;
}

/* ---- Not, BitwiseNot ---------------------------------------------------------------------------------- */

static status run_not(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    const uint8_t *a = x->data;
    uint8_t *b = out->data;
    uint8_t mask = x->type == ELEM_BOOL ? 1 : 0xff;
    size_t n = tensor_bytes(x);
    for (size_t i = 0; i < n; i++) b[i] = a[i] ^ mask;
    return CHURON_OK;
}

/* ---- Clip --------------------------------------------------------------------------------------------- */

typedef struct clip_state {
    float low, high;
} clip_state;

static status prepare_clip_1(op_node *n, error *err) {
    clip_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    op_attr_ignore(n, "consumed_inputs");
    TRY(op_attr_float(n, "min", -FLT_MAX, &s->low, err));
    return op_attr_float(n, "max", FLT_MAX, &s->high, err);
}

typedef struct clip_job {
    const kernels *k;
    elem type;
    size_t size;
    const char *x;
    char *y;
    const void *low, *high; /* one element, or NULL */
} clip_job;

/* First the lower bound, then the upper, so that a lower bound above the upper gives the upper. NaN stays. */
static void clip_range(void *ctx, size_t from, size_t to) {
    const clip_job *j = ctx;
    const char *x = j->x + from * j->size;
    char *y = j->y + from * j->size;
    size_t n = to - from;
    if (j->low) {
        binary_apply(BINARY_MAX, j->type, x, j->low, y, n, BINARY_B_ONE);
        x = y;
    }
    if (j->high) {
        binary_apply(BINARY_MIN, j->type, x, j->high, y, n, BINARY_B_ONE);
        x = y;
    }
    if (x != y) memmove(y, x, n * j->size);
}

/* The usual case, one pass. */
static void clip_f32(void *ctx, size_t from, size_t to) {
    const clip_job *j = ctx;
    const float *x = (const float *)(const void *)j->x + from;
    float *y = (float *)(void *)j->y + from;
    j->k->unary(UNARY_F32_CLIP, *(const float *)j->low, *(const float *)j->high, x, y, to - from);
}

static status run_clip(op_run *r, error *err) {
    const clip_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *low = s ? NULL : run_in(r, 1), *high = s ? NULL : run_in(r, 2);
    const tensor *bounds[] = {low, high};
    for (size_t k = 0; k < 2; k++)
        if (bounds[k] && bounds[k]->count != 1)
            return run_error(r, err, CHURON_INVALID, "%s: expected one element, got %zu", k ? "max" : "min",
                             bounds[k]->count);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    clip_job j = {
        run_kernels(r),          x->type, tensor_elem_size(x), x->data, out->data, low ? low->data : NULL,
        high ? high->data : NULL};
    uint64_t fixed[2];
    if (s) {
        const double bound[2] = {(double)s->low, (double)s->high};
        /* The default bounds of f32 are no bounds for the smaller f16: infinity stays infinity there. */
        for (size_t k = 0; k < 2; k++) elem_from_f64(x->type, &bound[k], &fixed[k], 1, false);
        j.low = &fixed[0];
        j.high = &fixed[1];
    }
    bool f32 = x->type == ELEM_F32 && j.low && j.high;
    run_parallel(r, x->count, (double)x->count * 0.5, f32 ? clip_f32 : clip_range, &j);
    return CHURON_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define UNARY(name, since, until, types)                                                                     \
    {                                                                                                        \
        "", name, since, until, OP_INPLACE, "T>T", {{'T', types}}, prepare_unary, mem_free, infer_same,      \
            NULL, run_unary                                                                                  \
    }
/* From operator set 1, with `consumed_inputs` until 5, bfloat16 from 13. */
#define UNARY_1(name)                                                                                        \
    UNARY(name, 1, 5, TYPES_FLOAT_OLD), UNARY(name, 6, 12, TYPES_FLOAT_OLD), UNARY(name, 13, 0, ELEMS_FLOAT)
#define UNARY_22(name, since) UNARY(name, since, 21, TYPES_FLOAT_OLD), UNARY(name, 22, 0, ELEMS_FLOAT)
#define UNARY_1_22(name)                                                                                     \
    UNARY(name, 1, 5, TYPES_FLOAT_OLD), UNARY(name, 6, 21, TYPES_FLOAT_OLD), UNARY(name, 22, 0, ELEMS_FLOAT)
#define TEST(name, since, until, types, prepare)                                                             \
    { "", name, since, until, 0, "T>b", {{'T', types}}, prepare, mem_free, infer_same, NULL, run_test }
#define CLIP(since, until, signature, types, prepare)                                                        \
    {                                                                                                        \
        "", "Clip", since, until, OP_INPLACE, signature, {{'T', types}}, prepare, mem_free, infer_same,      \
            NULL, run_clip                                                                                   \
    }

static const op_def rows[] = {
    UNARY("Abs", 1, 5, TYPES_FLOAT_OLD),
    UNARY("Abs", 6, 12, TYPES_NUM_OLD),
    UNARY("Abs", 13, 0, ELEMS_NUMERIC),
    UNARY("Neg", 1, 5, TYPES_FLOAT_OLD),
    UNARY("Neg", 6, 12, TYPES_SIGNED_OLD),
    UNARY("Neg", 13, 0, TYPES_SIGNED),
    UNARY("Sign", 9, 12, TYPES_NUM_OLD),
    UNARY("Sign", 13, 0, ELEMS_NUMERIC),
    UNARY_1("Ceil"),
    UNARY_1("Floor"),
    UNARY_22("Round", 11),
    UNARY_1("Sqrt"),
    UNARY_1("Reciprocal"),
    UNARY_1("Exp"),
    UNARY_1("Log"),
    UNARY_22("Sin", 7),
    UNARY_22("Cos", 7),
    UNARY_22("Tan", 7),
    UNARY_22("Asin", 7),
    UNARY_22("Acos", 7),
    UNARY_22("Atan", 7),
    UNARY_22("Sinh", 9),
    UNARY_22("Cosh", 9),
    UNARY_1("Tanh"),
    UNARY_22("Asinh", 9),
    UNARY_22("Acosh", 9),
    UNARY_22("Atanh", 9),
    UNARY("Erf", 9, 12, TYPES_NUM_OLD),
    UNARY("Erf", 13, 0, ELEMS_FLOAT),
    UNARY("Relu", 1, 5, TYPES_FLOAT_OLD),
    UNARY("Relu", 6, 12, TYPES_FLOAT_OLD),
    UNARY("Relu", 13, 13, ELEMS_FLOAT),
    UNARY("Relu", 14, 0, TYPES_SIGNED),
    UNARY("LeakyRelu", 1, 5, TYPES_FLOAT_OLD),
    UNARY("LeakyRelu", 6, 15, TYPES_FLOAT_OLD),
    UNARY("LeakyRelu", 16, 0, ELEMS_FLOAT),
    UNARY_1_22("Elu"),
    UNARY_1_22("Selu"),
    UNARY("Celu", 12, 27, ELEM_BIT(ELEM_F32)),
    UNARY("Celu", 28, 0, ELEMS_FLOAT),
    UNARY("ThresholdedRelu", 1, 9, TYPES_FLOAT_OLD), /* an experiment then */
    UNARY_22("ThresholdedRelu", 10),
    UNARY_1("Sigmoid"),
    UNARY_1_22("HardSigmoid"),
    UNARY_22("HardSwish", 14),
    UNARY("Swish", 24, 0, ELEMS_FLOAT),
    UNARY_22("Mish", 18),
    UNARY("Gelu", 20, 0, ELEMS_FLOAT),
    UNARY_22("Softplus", 1),
    UNARY_22("Softsign", 1),
    UNARY("Shrink", 9, 0, TYPES_NUM_OLD),
    {"",
     "SwiGLU",
     28,
     0,
     OP_INPLACE | OP_INPLACE_1,
     "TT>T",
     {{'T', ELEMS_FLOAT}},
     prepare_unary,
     mem_free,
     infer_swiglu,
     NULL,
     run_swiglu},
    TEST("IsNaN", 9, 12, TYPES_FLOAT_OLD, prepare_isnan),
    TEST("IsNaN", 13, 19, ELEMS_FLOAT, prepare_isnan),
    TEST("IsNaN", 20, 0, ELEMS_FLOAT | ELEMS_F8, prepare_isnan),
    TEST("IsInf", 10, 19, ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64), prepare_isinf),
    TEST("IsInf", 20, 0, ELEMS_FLOAT | ELEMS_F8, prepare_isinf),
    {"", "Not", 1, 0, OP_INPLACE, "b>b", {{0}}, NULL, NULL, infer_same, NULL, run_not},
    {"", "BitwiseNot", 18, 0, OP_INPLACE, "T>T", {{'T', ELEMS_INT}}, NULL, NULL, infer_same, NULL, run_not},
    CLIP(1, 5, "T>T", TYPES_FLOAT_OLD, prepare_clip_1),
    CLIP(6, 10, "T>T", TYPES_FLOAT_OLD, prepare_clip_1),
    CLIP(11, 11, "T=TT>T", TYPES_FLOAT_OLD, NULL),
    CLIP(12, 12, "T=TT>T", TYPES_NUM_OLD, NULL),
    CLIP(13, 0, "T=TT>T", ELEMS_NUMERIC, NULL),
};
const op_table ops_elementwise = {rows, sizeof rows / sizeof *rows};
