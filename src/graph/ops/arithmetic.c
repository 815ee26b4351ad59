/* arithmetic.c: operators of two or more tensors: Add … Pow, comparisons, logic, bits, PRelu, Where, and the
 * variadic Max, Min, Sum, Mean.
 *
 * Operator sets before 7 broadcast only the second operand, to the shape of the first, and only if asked to.
 * Integers: a zero divisor is an error that names its place; see binary.h for what else has no usual value.
 */
#include "base/mem.h"
#include "graph/ops/binary.h"
#include "graph/ops/broadcast.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <math.h>
#include <string.h>

typedef struct named_op {
    const char *name;
    binary_op op;
    bool swap; /* Greater(a, b) is Less(b, a) */
} named_op;

static const named_op named_ops[] = {
    {"Add", BINARY_ADD, false},
    {"Sub", BINARY_SUB, false},
    {"Mul", BINARY_MUL, false},
    {"Div", BINARY_DIV, false},
    {"Pow", BINARY_POW, false},
    {"Mod", BINARY_MOD, false},
    {"Max", BINARY_MAX, false},
    {"Min", BINARY_MIN, false},
    {"Sum", BINARY_ADD, false},
    {"Mean", BINARY_ADD, false},
    {"PRelu", BINARY_PRELU, false},
    {"And", BINARY_AND, false},
    {"Or", BINARY_OR, false},
    {"Xor", BINARY_XOR, false},
    {"BitwiseAnd", BINARY_AND, false},
    {"BitwiseOr", BINARY_OR, false},
    {"BitwiseXor", BINARY_XOR, false},
    {"BitShift", BINARY_SHIFT_LEFT, false},
    {"Equal", BINARY_EQUAL, false},
    {"Less", BINARY_LESS, false},
    {"Greater", BINARY_LESS, true},
    {"LessOrEqual", BINARY_LESS_EQUAL, false},
    {"GreaterOrEqual", BINARY_LESS_EQUAL, true},
};

typedef struct pair_state {
    binary_op op;
    bool swap, mean;
    bool limited;         /* semantics of operator sets before 7 */
    bool broadcast, axed; /* their attributes */
    int64_t axis;
} pair_state;

/* ---- prepare ------------------------------------------------------------------------------------------ */

static status new_state(op_node *n, pair_state **out, error *err) {
    pair_state *s = mem_calloc(1, sizeof *s);
    *out = s;
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    for (size_t i = 0; i < sizeof named_ops / sizeof *named_ops; i++) {
        if (strcmp(named_ops[i].name, op_operator(n)) != 0) continue;
        s->op = named_ops[i].op;
        s->swap = named_ops[i].swap;
    }
    s->mean = strcmp(op_operator(n), "Mean") == 0;
    return CHURON_OK;
}

static status prepare_pair(op_node *n, error *err) {
    pair_state *s;
    return new_state(n, &s, err);
}

static status prepare_limited(op_node *n, error *err) {
    pair_state *s;
    TRY(new_state(n, &s, err));
    s->limited = true;
    op_attr_ignore(n, "consumed_inputs");
    TRY(op_attr_bool(n, "broadcast", false, &s->broadcast, err));
    s->axed = op_attr_present(n, "axis");
    return op_attr_int(n, "axis", 0, -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &s->axis, err);
}

static status prepare_variadic_1(op_node *n, error *err) {
    pair_state *s;
    TRY(new_state(n, &s, err));
    op_attr_ignore(n, "consumed_inputs");
    s->limited = true;
    return CHURON_OK;
}

static status prepare_mod(op_node *n, error *err) {
    pair_state *s;
    TRY(new_state(n, &s, err));
    bool fmod_rule;
    TRY(op_attr_bool(n, "fmod", false, &fmod_rule, err));
    if (fmod_rule) s->op = BINARY_FMOD;
    return CHURON_OK;
}

static status prepare_shift(op_node *n, error *err) {
    pair_state *s;
    TRY(new_state(n, &s, err));
    int right;
    TRY(op_attr_choice(n, "direction", (const char *const[]){"LEFT", "RIGHT", NULL}, -1, &right, err));
    if (right < 0)
        return op_error(n, err, CHURON_INVALID, "direction is required: expected LEFT or RIGHT, got none");
    if (right == 1) s->op = BINARY_SHIFT_RIGHT;
    return CHURON_OK;
}

/* ---- shapes ------------------------------------------------------------------------------------------- */

/* Where the second operand's first dimension lies in the first, for operator sets before 7. */
static size_t limited_axis(const pair_state *s, size_t rank_a, size_t rank_b) {
    size_t last = rank_a - rank_b;
    if (!s->axed) return last;
    int64_t axis = s->axis < 0 ? s->axis + (int64_t)rank_a : s->axis;
    return axis < 0 || (size_t)axis > last ? last : (size_t)axis;
}

static status infer_limited(op_shapes *s, error *err) {
    const pair_state *state = shapes_state(s);
    size_t rank_a, rank_b;
    const dim *a, *b;
    if (!shapes_in(s, 0, &rank_a, &a) || !shapes_in(s, 1, &rank_b, &b)) {
        if (shapes_in(s, 0, &rank_a, &a)) return shapes_out(s, 0, rank_a, a, err);
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (!state->broadcast && rank_a != rank_b)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "input 1: expected rank %zu as input 0 (broadcast is 0), got %zu", rank_a, rank_b);
    if (rank_b > rank_a)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "input 1: expected a rank of at most %zu, got %zu", rank_a, rank_b);
    size_t axis = limited_axis(state, rank_a, rank_b);
    for (size_t d = 0; d < rank_b; d++) {
        if (state->broadcast && b[d] == 1) continue;
        TRY(shapes_same(s, a[axis + d], b[d], "a dimension of input 1 and of input 0", NULL, err));
    }
    return shapes_out(s, 0, rank_a, a, err);
}

/* PRelu: the slope is broadcast to the input, never the other way. */
static status infer_prelu(op_shapes *s, error *err) {
    size_t rank;
    const dim *dims;
    if (shapes_running(s)) {
        dim both[TENSOR_MAX_RANK];
        size_t n;
        TRY(shapes_broadcast(s, 0, 2, &n, both, err));
        (void)shapes_in(s, 0, &rank, &dims);
        bool same = n == rank;
        for (size_t d = 0; same && d < n; d++) same = both[d] == dims[d];
        if (!same)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "slope: expected a shape that broadcasts to the input's, got one that does not");
    }
    return infer_same(s, err);
}

/* Operator set 6 and before: one slope, or one for each channel (dimension 1). */
static status infer_prelu_1(op_shapes *s, error *err) {
    size_t rank, rank_slope;
    const dim *dims, *slope;
    if (shapes_in(s, 0, &rank, &dims) && shapes_in(s, 1, &rank_slope, &slope)) {
        dim count = 1;
        for (size_t d = 0; d < rank_slope; d++) count = dim_mul(s, count, slope[d]);
        if (count != 1)
            TRY(shapes_same(s, count,
                            rank > 1    ? dims[1]
                            : rank == 1 ? dims[0]
                                        : 1,
                            "the number of slopes and of channels", NULL, err));
    }
    return infer_same(s, err);
}

static status infer_equal_shapes(op_shapes *s, error *err) {
    size_t n = op_n_inputs(shapes_node(s)), rank, rank_k;
    const dim *dims, *other;
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    for (size_t k = 1; k < n; k++) {
        if (!shapes_in(s, k, &rank_k, &other)) continue;
        if (rank != rank_k)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "input %zu: expected rank %zu as input 0, got %zu", k, rank, rank_k);
        for (size_t d = 0; d < rank; d++)
            TRY(shapes_same(s, dims[d], other[d], "a dimension of two inputs", NULL, err));
    }
    return shapes_out(s, 0, rank, dims, err);
}

/* ---- values of shape computations --------------------------------------------------------------------- */

/* False: not known. */
static bool combine(op_shapes *s, binary_op op, dim a, dim b, dim *out) {
    bool known = dim_known(a) && dim_known(b);
    switch (op) {
    case BINARY_ADD: *out = dim_add(s, a, b); return true;
    case BINARY_SUB: *out = dim_sub(s, a, b); return true;
    case BINARY_MUL: *out = dim_mul(s, a, b); return true;
    case BINARY_MAX: *out = dim_max(s, a, b); return true;
    case BINARY_MIN: *out = dim_min(s, a, b); return true;
    case BINARY_DIV: /* dimensions are not negative: toward zero is down */
        if (!dim_known(b) || b <= 0) return false;
        if (known)
            *out = a / b;
        else
            *out = dim_div_floor(s, a, b);
        return true;
    case BINARY_MOD:
    case BINARY_FMOD:
        if (!dim_known(b) || b <= 0) return false;
        if (known)
            *out = op == BINARY_FMOD || a >= 0 ? a % b : ((a % b) + b) % b;
        else
            *out = dim_sub(s, a, dim_mul(s, dim_div_floor(s, a, b), b));
        return true;
    case BINARY_EQUAL:
        if (!known && a != b) return false;
        *out = a == b;
        return true;
    case BINARY_LESS:
    case BINARY_LESS_EQUAL:
        if (!known) return false;
        *out = op == BINARY_LESS ? a < b : a <= b;
        return true;
    case BINARY_AND: *out = a & b; return known;
    case BINARY_OR: *out = a | b; return known;
    default: return false;
    }
}

static bool at_most_1d(const op_shapes *s, size_t i) {
    size_t rank;
    const dim *dims;
    return shapes_in(s, i, &rank, &dims) && rank <= 1;
}

static status propagate_pair(op_shapes *s, error *err) {
    (void)err;
    const pair_state *state = shapes_state(s);
    size_t n[2];
    const dim *v[2];
    dim out[OP_MAX_VALUES];
    for (size_t k = 0; k < 2; k++) {
        elem type = shapes_in_type(s, k);
        if ((type != ELEM_I64 && type != ELEM_I32 && type != ELEM_BOOL) || !at_most_1d(s, k) ||
            !shapes_in_values(s, k, &n[k], &v[k]))
            return CHURON_OK;
    }
    size_t count = n[0] == 1 ? n[1] : n[0];
    if (count > OP_MAX_VALUES || (n[1] != count && n[1] != 1)) return CHURON_OK;
    for (size_t i = 0; i < count; i++) {
        dim a = v[0][n[0] == 1 ? 0 : i], b = v[1][n[1] == 1 ? 0 : i];
        if (!combine(s, state->op, state->swap ? b : a, state->swap ? a : b, &out[i])) return CHURON_OK;
    }
    shapes_out_values(s, 0, count, out);
    return CHURON_OK;
}

static status propagate_variadic(op_shapes *s, error *err) {
    return op_n_inputs(shapes_node(s)) == 2 ? propagate_pair(s, err) : CHURON_OK;
}

static status propagate_where(op_shapes *s, error *err) {
    (void)err;
    size_t n[3], count = 1;
    const dim *v[3];
    dim out[OP_MAX_VALUES];
    for (size_t k = 0; k < 3; k++) {
        if (!at_most_1d(s, k) || !shapes_in_values(s, k, &n[k], &v[k])) return CHURON_OK;
        if (n[k] != 1) count = n[k];
    }
    if (count > OP_MAX_VALUES) return CHURON_OK;
    for (size_t k = 0; k < 3; k++)
        if (n[k] != 1 && n[k] != count) return CHURON_OK;
    for (size_t i = 0; i < count; i++) {
        dim c = v[0][n[0] == 1 ? 0 : i];
        if (!dim_known(c)) return CHURON_OK;
        size_t k = c ? 1 : 2;
        out[i] = v[k][n[k] == 1 ? 0 : i];
    }
    shapes_out_values(s, 0, count, out);
    return CHURON_OK;
}

/* ---- run ---------------------------------------------------------------------------------------------- */

static status refuse_zero(op_run *r, const tensor *b, error *err) {
    if (!(ELEM_BIT(b->type) & ELEMS_INT)) return CHURON_OK;
    size_t size = tensor_elem_size(b);
    const char *p = b->data;
    static const uint64_t zero;
    for (size_t i = 0; i < b->count; i++)
        if (memcmp(p + i * size, &zero, size) == 0)
            return run_error(r, err, CHURON_INVALID,
                             "input 1: element %zu is 0: an integer cannot be divided by it", i);
    return CHURON_OK;
}

static status run_pair(op_run *r, error *err) {
    const pair_state *s = run_state(r);
    const tensor *a = run_in(r, 0), *b = run_in(r, 1);
    tensor *out;
    if (s->op == BINARY_DIV || s->op == BINARY_MOD || s->op == BINARY_FMOD) TRY(refuse_zero(r, b, err));
    TRY(run_out(r, 0, &out, err));
    binary_run(r, s->op, a, b, out, s->limited ? limited_axis(s, a->rank, b->rank) : SIZE_MAX, s->swap);
    return CHURON_OK;
}

static status run_prelu(op_run *r, error *err) {
    const pair_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *slope = run_in(r, 1);
    if (!binary_known(BINARY_PRELU, x->type)) return run_view(r, err); /* unsigned: never below 0 */
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    tensor flat = *slope;
    if (s->limited) { /* slopes of channels, whatever the rank they come in */
        flat.rank = slope->count == 1 ? 0 : 1;
        flat.dims[0] = (int64_t)slope->count;
    }
    binary_run(r, BINARY_PRELU, x, &flat, out, s->limited ? (x->rank > 1 && flat.rank == 1) : SIZE_MAX,
               false);
    return CHURON_OK;
}

/* Pow with operands of different types. Integers to integers: exact modulo the width; else in double. */
typedef struct pow_job {
    broadcast plan;
    const tensor *x, *y;
    tensor *out;
    bool whole;
} pow_job;

static int64_t whole_at(const tensor *t, size_t i) {
    switch (t->type) {
    case ELEM_I8: return ((const int8_t *)t->data)[i];
    case ELEM_U8: return ((const uint8_t *)t->data)[i];
    case ELEM_I16: return ((const int16_t *)t->data)[i];
    case ELEM_U16: return ((const uint16_t *)t->data)[i];
    case ELEM_I32: return ((const int32_t *)t->data)[i];
    case ELEM_U32: return ((const uint32_t *)t->data)[i];
    case ELEM_U64: {
        uint64_t v = ((const uint64_t *)t->data)[i];
        return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
    default: return ((const int64_t *)t->data)[i];
    }
}

static void pow_part(void *ctx, size_t at, const size_t *in, size_t n) {
    const pow_job *j = ctx;
    size_t last = j->plan.rank - 1, sx = j->plan.strides[0][last], sy = j->plan.strides[1][last];
    for (size_t i = 0; i < n; i++) {
        size_t ix = in[0] + i * sx, iy = in[1] + i * sy;
        if (j->whole) {
            int64_t x = whole_at(j->x, ix), y = whole_at(j->y, iy), p;
            binary_apply(BINARY_POW, ELEM_I64, &x, &y, &p, 1, BINARY_BOTH);
            if (j->out->type == ELEM_I32)
                ((int32_t *)j->out->data)[at + i] = (int32_t)(uint32_t)(uint64_t)p;
            else
                ((int64_t *)j->out->data)[at + i] = p;
        } else {
            double x, y;
            size_t size = tensor_elem_size(j->out);
            elem_to_f64(j->x->type, (const char *)j->x->data + ix * size, &x, 1);
            elem_to_f64(j->y->type, (const char *)j->y->data + iy * tensor_elem_size(j->y), &y, 1);
            x = pow(x, y);
            elem_from_f64(j->out->type, &x, (char *)j->out->data + (at + i) * size, 1, false);
        }
    }
}

static void pow_range(void *ctx, size_t from, size_t to) {
    broadcast_walk(&((pow_job *)ctx)->plan, from, to, pow_part, ctx);
}

static status run_pow(op_run *r, error *err) {
    const tensor *x = run_in(r, 0), *y = run_in(r, 1);
    if (x->type == y->type) return run_pair(r, err);
    pow_job j = {.x = x, .y = y};
    TRY(run_out(r, 0, &j.out, err));
    j.whole = (ELEM_BIT(x->type) & ELEMS_INT) && (ELEM_BIT(y->type) & ELEMS_INT);
    broadcast_plan(&j.plan, j.out, (const tensor *[]){x, y}, 2);
    run_parallel(r, j.out->count, (double)j.out->count * 30, pow_range, &j);
    return CHURON_OK;
}

typedef struct divide_job {
    tensor *t;
    double by;
} divide_job;

static void divide_range(void *ctx, size_t from, size_t to) {
    const divide_job *j = ctx;
    size_t size = tensor_elem_size(j->t);
    char *p = (char *)j->t->data + from * size;
    if (j->t->type == ELEM_F64) {
        binary_apply(BINARY_DIV, ELEM_F64, p, &j->by, p, to - from, BINARY_B_ONE);
        return;
    }
    float by = (float)j->by;
    uint16_t half;
    if (j->t->type != ELEM_F32) elem_from_f32(j->t->type, &by, &half, 1, false);
    const void *divisor = j->t->type == ELEM_F32 ? (const void *)&by : &half;
    binary_apply(BINARY_DIV, j->t->type, p, divisor, p, to - from, BINARY_B_ONE);
}

static status run_variadic(op_run *r, error *err) {
    const pair_state *s = run_state(r);
    size_t n = op_n_inputs(run_node(r));
    if (n == 1) return run_view(r, err);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    tensor kept = *out; /* what lies where the output goes and is read again after it was begun */
    for (size_t k = 2; k < n; k++) {
        if (run_in(r, k)->data != out->data || kept.data != out->data) continue;
        TRY(run_scratch(r, tensor_bytes(out), &kept.data, err));
        memcpy(kept.data, out->data, tensor_bytes(out));
    }
    binary_run(r, s->op, run_in(r, 0), run_in(r, 1), out, SIZE_MAX, false);
    for (size_t k = 2; k < n; k++)
        binary_run(r, s->op, out, run_in(r, k)->data == out->data ? &kept : run_in(r, k), out, SIZE_MAX,
                   false);
    if (s->mean) {
        divide_job j = {out, (double)n};
        run_parallel(r, out->count, (double)out->count, divide_range, &j);
    }
    return CHURON_OK;
}

typedef struct where_job {
    broadcast plan;
    const uint8_t *condition;
    const char *x, *y;
    char *out;
    size_t size;
} where_job;

#define WHERE(T)                                                                                             \
    {                                                                                                        \
        const T *x = (const T *)(const void *)j->x + in[1], *y = (const T *)(const void *)j->y + in[2];      \
        T *o = (T *)(void *)j->out + at;                                                                     \
        if (sc && sx && sy) {                                                                                \
            for (size_t i = 0; i < n; i++) o[i] = c[i] ? x[i] : y[i];                                        \
        } else {                                                                                             \
            for (size_t i = 0; i < n; i++) o[i] = c[i * sc] ? x[i * sx] : y[i * sy];                         \
        }                                                                                                    \
    }

static void where_part(void *ctx, size_t at, const size_t *in, size_t n) {
    const where_job *j = ctx;
    size_t last = j->plan.rank - 1;
    size_t sc = j->plan.strides[0][last], sx = j->plan.strides[1][last], sy = j->plan.strides[2][last];
    const uint8_t *c = j->condition + in[0];
    if (!sc) { /* one side for the whole run */
        size_t side = *c ? 1 : 2, stride = *c ? sx : sy;
        const char *from = (*c ? j->x : j->y) + in[side] * j->size;
        if (stride)
            memmove(j->out + at * j->size, from, n * j->size);
        else
            move_fill(j->out + at * j->size, from, n, j->size);
        return;
    }
    switch (j->size) {
    case 1: WHERE(uint8_t) break;
    case 2: WHERE(uint16_t) break;
    case 4: WHERE(uint32_t) break;
    case 8: WHERE(uint64_t) break;
    default: WHERE(tensor_string) break;
    }
}

static void where_range(void *ctx, size_t from, size_t to) {
    broadcast_walk(&((where_job *)ctx)->plan, from, to, where_part, ctx);
}

static status run_where(op_run *r, error *err) {
    const tensor *in[] = {run_in(r, 0), run_in(r, 1), run_in(r, 2)};
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    where_job j = {.condition = in[0]->data,
                   .x = in[1]->data,
                   .y = in[2]->data,
                   .out = out->data,
                   .size = tensor_elem_size(out)};
    broadcast_plan(&j.plan, out, in, 3);
    run_parallel(r, out->count, (double)out->count, where_range, &j);
    return strings_own(out, err);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

enum { EITHER = OP_INPLACE | OP_INPLACE_1 };

#define PAIR(name, since, until, flags, signature, types, prepare, infer, run)                               \
    {                                                                                                        \
        "", name, since, until, flags, signature, {{'T', types}}, prepare, mem_free, infer, propagate_pair,  \
            run                                                                                              \
    }
#define ARITHMETIC(name)                                                                                     \
    PAIR(name, 1, 5, OP_INPLACE, "TT>T", TYPES_FLOAT_OLD, prepare_limited, infer_limited, run_pair),         \
        PAIR(name, 6, 6, OP_INPLACE, "TT>T", TYPES_WIDE_OLD, prepare_limited, infer_limited, run_pair),      \
        PAIR(name, 7, 12, EITHER, "TT>T", TYPES_WIDE_OLD, prepare_pair, infer_broadcast, run_pair),          \
        PAIR(name, 13, 13, EITHER, "TT>T", TYPES_WIDE, prepare_pair, infer_broadcast, run_pair),             \
        PAIR(name, 14, 0, EITHER, "TT>T", ELEMS_NUMERIC, prepare_pair, infer_broadcast, run_pair)
#define LOGIC(name)                                                                                          \
    PAIR(name, 1, 6, OP_INPLACE, "bb>b", 0, prepare_limited, infer_limited, run_pair),                       \
        PAIR(name, 7, 0, EITHER, "bb>b", 0, prepare_pair, infer_broadcast, run_pair)
#define BITS(name) PAIR(name, 18, 0, EITHER, "TT>T", ELEMS_INT, prepare_pair, infer_broadcast, run_pair)
#define COMPARE(name)                                                                                        \
    PAIR(name, 1, 6, 0, "TT>b", TYPES_FLOAT_OLD, prepare_limited, infer_limited, run_pair),                  \
        PAIR(name, 7, 8, 0, "TT>b", TYPES_FLOAT_OLD, prepare_pair, infer_broadcast, run_pair),               \
        PAIR(name, 9, 12, 0, "TT>b", TYPES_NUM_OLD, prepare_pair, infer_broadcast, run_pair),                \
        PAIR(name, 13, 0, 0, "TT>b", ELEMS_NUMERIC, prepare_pair, infer_broadcast, run_pair)
#define COMPARE_12(name)                                                                                     \
    PAIR(name, 12, 15, 0, "TT>b", TYPES_NUM_OLD, prepare_pair, infer_broadcast, run_pair),                   \
        PAIR(name, 16, 0, 0, "TT>b", ELEMS_NUMERIC, prepare_pair, infer_broadcast, run_pair)
#define EQUAL_OLD (ELEM_BIT(ELEM_BOOL) | TYPES_INDEX)
#define VARIADIC(name, since, until, types, prepare, infer)                                                  \
    {                                                                                                        \
        "", name, since, until, OP_INPLACE, "T*>T", {{'T', types}}, prepare, mem_free, infer,                \
            propagate_variadic, run_variadic                                                                 \
    }
#define EXTREME(name)                                                                                        \
    VARIADIC(name, 1, 5, TYPES_FLOAT_OLD, prepare_variadic_1, infer_equal_shapes),                           \
        VARIADIC(name, 6, 7, TYPES_FLOAT_OLD, prepare_pair, infer_equal_shapes),                             \
        VARIADIC(name, 8, 11, TYPES_FLOAT_OLD, prepare_pair, infer_broadcast),                               \
        VARIADIC(name, 12, 12, TYPES_NUM_OLD, prepare_pair, infer_broadcast),                                \
        VARIADIC(name, 13, 0, ELEMS_NUMERIC, prepare_pair, infer_broadcast)
#define AVERAGE(name)                                                                                        \
    VARIADIC(name, 1, 5, TYPES_FLOAT_OLD, prepare_variadic_1, infer_equal_shapes),                           \
        VARIADIC(name, 6, 7, TYPES_FLOAT_OLD, prepare_pair, infer_equal_shapes),                             \
        VARIADIC(name, 8, 12, TYPES_FLOAT_OLD, prepare_pair, infer_broadcast),                               \
        VARIADIC(name, 13, 0, ELEMS_FLOAT, prepare_pair, infer_broadcast)
#define POW(since, until, base, exponent)                                                                    \
    {                                                                                                        \
        "", "Pow", since, until, OP_INPLACE, "TU>T", {{'T', base}, {'U', exponent}}, prepare_pair, mem_free, \
            infer_broadcast, NULL, run_pow                                                                   \
    }
#define WHERE_ROW(since, until, types)                                                                       \
    {                                                                                                        \
        "", "Where", since, until, OP_INPLACE_1, "bTT>T", {{'T', types}}, NULL, NULL, infer_broadcast,       \
            propagate_where, run_where                                                                       \
    }

static const op_def rows[] = {
    ARITHMETIC("Add"),
    ARITHMETIC("Sub"),
    ARITHMETIC("Mul"),
    ARITHMETIC("Div"),
    PAIR("Mod", 10, 12, EITHER, "TT>T", TYPES_NUM_OLD, prepare_mod, infer_broadcast, run_pair),
    PAIR("Mod", 13, 0, EITHER, "TT>T", ELEMS_NUMERIC, prepare_mod, infer_broadcast, run_pair),
    PAIR("Pow", 1, 6, OP_INPLACE, "TT>T", TYPES_FLOAT_OLD, prepare_limited, infer_limited, run_pair),
    PAIR("Pow", 7, 11, EITHER, "TT>T", TYPES_FLOAT_OLD, prepare_pair, infer_broadcast, run_pair),
    POW(12, 12, TYPES_FLOAT_OLD | TYPES_INDEX, TYPES_NUM_OLD),
    POW(13, 14, ELEMS_FLOAT | TYPES_INDEX, TYPES_NUM_OLD),
    POW(15, 0, ELEMS_FLOAT | TYPES_INDEX, ELEMS_NUMERIC),
    EXTREME("Max"),
    EXTREME("Min"),
    AVERAGE("Sum"),
    AVERAGE("Mean"),
    PAIR("PRelu", 1, 5, OP_INPLACE, "TT>T", TYPES_FLOAT_OLD, prepare_limited, infer_prelu_1, run_prelu),
    PAIR("PRelu", 6, 6, OP_INPLACE, "TT>T", TYPES_FLOAT_OLD, prepare_limited, infer_prelu_1, run_prelu),
    PAIR("PRelu", 7, 8, OP_INPLACE, "TT>T", TYPES_FLOAT_OLD, prepare_pair, infer_prelu, run_prelu),
    PAIR("PRelu", 9, 15, OP_INPLACE, "TT>T", TYPES_WIDE_OLD, prepare_pair, infer_prelu, run_prelu),
    PAIR("PRelu", 16, 0, OP_INPLACE, "TT>T", TYPES_WIDE, prepare_pair, infer_prelu, run_prelu),
    LOGIC("And"),
    LOGIC("Or"),
    LOGIC("Xor"),
    BITS("BitwiseAnd"),
    BITS("BitwiseOr"),
    BITS("BitwiseXor"),
    PAIR("BitShift", 11, 27, EITHER, "TT>T", ELEMS_UNSIGNED, prepare_shift, infer_broadcast, run_pair),
    PAIR("BitShift", 28, 0, EITHER, "TT>T", ELEMS_INT, prepare_shift, infer_broadcast, run_pair),
    PAIR("Equal", 1, 6, 0, "TT>b", EQUAL_OLD, prepare_limited, infer_limited, run_pair),
    PAIR("Equal", 7, 10, 0, "TT>b", EQUAL_OLD, prepare_pair, infer_broadcast, run_pair),
    PAIR("Equal", 11, 12, 0, "TT>b", TYPES_PLAIN_OLD, prepare_pair, infer_broadcast, run_pair),
    PAIR("Equal", 13, 18, 0, "TT>b", TYPES_PLAIN, prepare_pair, infer_broadcast, run_pair),
    PAIR("Equal", 19, 0, 0, "TT>b", TYPES_PLAIN | ELEM_BIT(ELEM_STRING), prepare_pair, infer_broadcast,
         run_pair),
    COMPARE("Less"),
    COMPARE("Greater"),
    COMPARE_12("LessOrEqual"),
    COMPARE_12("GreaterOrEqual"),
    WHERE_ROW(9, 15, TYPES_ALL_1),
    WHERE_ROW(16, 0, TYPES_ALL_13),
};
const op_table ops_arithmetic = {rows, sizeof rows / sizeof *rows};
