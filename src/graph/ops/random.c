/* random.c: RandomNormal(Like), RandomUniform(Like), Multinomial, Bernoulli, and Dropout, which in inference
 * is none.
 *
 * Number i of a tensor is a function of the seed and i alone (Philox-4x32-10), so the answer depends on no
 * thread. With a seed attribute every run gives the same; without one no two runs do. */
#include "base/clock.h"
#include "base/mem.h"
#include "graph/ir.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

typedef struct random_state {
    int64_t type;                       /* of the output; 0: that of the input */
    bool seeded, drawn_in_turn, normal; /* drawn_in_turn: from `seed` and the number of draws before */
    uint64_t seed;
    atomic_uint_fast64_t draws;
    float a, b; /* mean and scale, or low and high */
    int64_t samples;
    size_t rank;
    int64_t dims[TENSOR_MAX_RANK];
} random_state;

/* J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011). */
static void philox(uint64_t seed, uint64_t index, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xd2511f53) * c0, b = UINT64_C(0xcd9e8d57) * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* In [0, 1), 53 bits. */
static double unit(uint32_t high, uint32_t low) {
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

static uint64_t seed_of(random_state *s) {
    static atomic_uint_fast64_t runs; /* relaxed, as `draws`: only that no two runs take the same number */
    if (s->seeded) return s->seed;
    if (s->drawn_in_turn)
        return s->seed +
               atomic_fetch_add_explicit(&s->draws, 1, memory_order_relaxed) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t n = atomic_fetch_add_explicit(&runs, 1, memory_order_relaxed) + 1;
    double now = clock_seconds();
    uint64_t bits;
    memcpy(&bits, &now, sizeof bits);
    return (bits ^ (uint64_t)clock_unix() << 32) + n * UINT64_C(0x9e3779b97f4a7c15);
}

/* ---- prepare ------------------------------------------------------------------------------------------ */

/* FNV-1a, so that nodes of one graph do not draw the same. */
static uint64_t seed_of_node(const op_node *n, uint64_t seed) {
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (const char *p = n->n_outputs && n->outputs[0] ? n->outputs[0]->name : n->name; *p; p++)
        h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    return h;
}

static status new_state(op_node *n, random_state **out, error *err) {
    *out = mem_calloc(1, sizeof **out);
    if (*out == NULL) return error_no_memory(err, "operator state", sizeof **out);
    op_set_state(n, *out);
    random_state *s = *out;
    float seed;
    TRY(op_attr_float(n, "seed", 0, &seed, err));
    s->seeded = op_attr_present(n, "seed");
    uint32_t bits;
    memcpy(&bits, &seed, sizeof bits);
    s->seed = bits;
    if (s->seeded || !n->graph->program->seeded) return CHURON_OK;
    s->drawn_in_turn = true;
    s->seed = seed_of_node(n, n->graph->program->seed);
    return CHURON_OK;
}

static status read_type(op_node *n, random_state *s, int64_t absent, elem_set set, error *err) {
    TRY(op_attr_int(n, "dtype", absent, 1, ELEM_COUNT - 1, &s->type, err));
    elem type = s->type ? (elem)s->type : op_input_type(n, 0);
    if (type != ELEM_NONE && !(ELEM_BIT(type) & set))
        return op_error(n, err, CHURON_INVALID, "dtype: expected a type that this operator gives, got %s",
                        elem_name(type));
    return CHURON_OK;
}

static status prepare_fill(op_node *n, bool like, error *err) {
    random_state *s;
    TRY(new_state(n, &s, err));
    TRY(read_type(n, s, like ? 0 : ELEM_F32, op_version(n) < 22 ? TYPES_FLOAT_OLD : ELEMS_FLOAT, err));
    s->normal = strncmp(op_operator(n), "RandomNormal", 12) == 0;
    TRY(op_attr_float(n, s->normal ? "mean" : "low", 0, &s->a, err));
    TRY(op_attr_float(n, s->normal ? "scale" : "high", 1, &s->b, err));
    if (like) return CHURON_OK;
    if (!op_attr_present(n, "shape"))
        return op_error(n, err, CHURON_INVALID, "shape is required: expected a list of integers, got none");
    const int64_t *v;
    TRY(op_attr_ints(n, "shape", &v, &s->rank, err));
    if (s->rank > TENSOR_MAX_RANK)
        return op_error(n, err, CHURON_LIMIT, "shape: expected at most %d dimensions, got %zu",
                        TENSOR_MAX_RANK, s->rank);
    for (size_t d = 0; d < s->rank; d++) {
        if (v[d] < 0)
            return op_error(n, err, CHURON_INVALID, "shape[%zu]: expected at least 0, got %lld", d,
                            (long long)v[d]);
        s->dims[d] = v[d];
    }
    return CHURON_OK;
}

static status prepare_shaped(op_node *n, error *err) {
    return prepare_fill(n, false, err);
}

static status prepare_like(op_node *n, error *err) {
    return prepare_fill(n, true, err);
}

static status prepare_multinomial(op_node *n, error *err) {
    random_state *s;
    TRY(new_state(n, &s, err));
    TRY(read_type(n, s, ELEM_I32, TYPES_INDEX, err));
    return op_attr_int(n, "sample_size", 1, 1, INT32_MAX, &s->samples, err);
}

static status prepare_bernoulli(op_node *n, error *err) {
    random_state *s;
    TRY(new_state(n, &s, err));
    return read_type(n, s, 0, TYPES_PLAIN, err);
}

/* ---- shapes ------------------------------------------------------------------------------------------- */

static status infer_shaped(op_shapes *s, error *err) {
    const random_state *state = shapes_state(s);
    shapes_out_type(s, 0, (elem)state->type);
    return shapes_out(s, 0, state->rank, state->dims, err);
}

static status infer_like(op_shapes *s, error *err) {
    const random_state *state = shapes_state(s);
    shapes_out_type(s, 0, state->type ? (elem)state->type : shapes_in_type(s, 0));
    return infer_same(s, err);
}

static status infer_multinomial(op_shapes *s, error *err) {
    const random_state *state = shapes_state(s);
    size_t rank;
    const dim *dims;
    shapes_out_type(s, 0, (elem)state->type);
    if (!shapes_in(s, 0, &rank, &dims))
        return shapes_out(s, 0, 2, (dim[]){dim_fresh(s), state->samples}, err);
    if (rank != 2)
        return op_error(shapes_node(s), err, CHURON_INVALID, "input: expected rank 2, got %zu", rank);
    return shapes_out(s, 0, 2, (dim[]){dims[0], state->samples}, err);
}

/* ---- run ---------------------------------------------------------------------------------------------- */

typedef struct random_job {
    random_state *s;
    const tensor *x;
    tensor *out;
    uint64_t seed;
} random_job;

static void fill_range(void *ctx, size_t begin, size_t end) {
    const random_job *j = ctx;
    size_t size = tensor_elem_size(j->out);
    for (size_t i = begin; i < end; i++) {
        uint32_t bits[4];
        philox(j->seed, i, bits);
        double u = unit(bits[0], bits[1]), v;
        if (j->s->normal) /* Box and Muller; 1 - u is not 0 */
            v = sqrt(-2 * log(1 - u)) * cos(6.28318530717958647693 * unit(bits[2], bits[3])) *
                    (double)j->s->b +
                (double)j->s->a;
        else
            v = (double)j->s->a + u * ((double)j->s->b - (double)j->s->a);
        elem_from_f64(j->out->type, &v, (char *)j->out->data + i * size, 1, false);
    }
}

static status run_fill(op_run *r, error *err) {
    random_job j = {.s = run_state(r)};
    TRY(run_out(r, 0, &j.out, err));
    j.seed = seed_of(j.s);
    run_parallel(r, j.out->count, (double)j.out->count * 40, fill_range, &j);
    return CHURON_OK;
}

static void bernoulli_range(void *ctx, size_t begin, size_t end) {
    const random_job *j = ctx;
    for (size_t i = begin; i < end; i++) {
        uint32_t bits[4];
        double p, v;
        philox(j->seed, i, bits);
        elem_to_f64(j->x->type, (const char *)j->x->data + i * tensor_elem_size(j->x), &p, 1);
        v = unit(bits[0], bits[1]) < p ? 1 : 0;
        elem_from_f64(j->out->type, &v, (char *)j->out->data + i * tensor_elem_size(j->out), 1, false);
    }
}

static status run_bernoulli(op_run *r, error *err) {
    random_job j = {.s = run_state(r), .x = run_in(r, 0)};
    TRY(run_out(r, 0, &j.out, err));
    j.seed = seed_of(j.s);
    run_parallel(r, j.out->count, (double)j.out->count * 20, bernoulli_range, &j);
    return CHURON_OK;
}

/* A class of unnormalised log-probabilities: the one with the largest x + g, g drawn from Gumbel's
 * distribution, is drawn with the softmax's probability. */
static void multinomial_range(void *ctx, size_t begin, size_t end) {
    const random_job *j = ctx;
    size_t classes = (size_t)j->x->dims[1], samples = (size_t)j->s->samples, size = tensor_elem_size(j->x);
    for (size_t i = begin; i < end; i++) {
        const char *row = (const char *)j->x->data + i / samples * classes * size;
        double best = -(double)INFINITY;
        int64_t at = 0;
        for (size_t c = 0; c < classes; c++) {
            uint32_t bits[4];
            double x;
            philox(j->seed, i * classes + c, bits);
            elem_to_f64(j->x->type, row + c * size, &x, 1);
            double v = x - log(-log(unit(bits[0], bits[1]) + 0x1p-54));
            if (v > best) best = v, at = (int64_t)c;
        }
        if (j->out->type == ELEM_I64)
            ((int64_t *)j->out->data)[i] = at;
        else
            ((int32_t *)j->out->data)[i] = (int32_t)at;
    }
}

static status run_multinomial(op_run *r, error *err) {
    random_job j = {.s = run_state(r), .x = run_in(r, 0)};
    if (j.x->dims[1] == 0)
        return run_error(r, err, CHURON_INVALID, "input: expected at least one class, got 0");
    TRY(run_out(r, 0, &j.out, err));
    j.seed = seed_of(j.s);
    run_parallel(r, j.out->count, (double)j.out->count * (double)j.x->dims[1] * 50, multinomial_range, &j);
    return CHURON_OK;
}

/* ---- Dropout ------------------------------------------------------------------------------------------ */

/* Sets 1 and 6 train unless is_test is set; without it the answer is random, unless the ratio is 0. */
static status prepare_dropout_1(op_node *n, error *err) {
    int64_t is_test;
    float ratio;
    op_attr_ignore(n, "consumed_inputs");
    TRY(op_attr_int(n, "is_test", 0, INT64_MIN, INT64_MAX, &is_test, err));
    TRY(op_attr_float(n, "ratio", 0.5f, &ratio, err));
    if (is_test == 0 && ratio != 0)
        return op_error(
            n, err, CHURON_UNSUPPORTED,
            "is_test: expected 1 (inference), got 0 (training) with ratio %g: export the model for "
            "inference",
            (double)ratio);
    return CHURON_OK;
}

static status prepare_dropout_7(op_node *n, error *err) {
    op_attr_ignore(n, "ratio");
    (void)err;
    return CHURON_OK;
}

static status prepare_dropout_12(op_node *n, error *err) {
    op_attr_ignore(n, "seed");
    (void)err;
    return CHURON_OK;
}

/* Training would be random, unless the ratio is 0. */
static status refuse_training(op_shapes *s, error *err) {
    const op_node *node = shapes_node(s);
    const tensor *training = op_has_input(node, 2) ? shapes_in_tensor(s, 2) : NULL;
    if (training == NULL || training->count != 1 || !*(const uint8_t *)training->data) return CHURON_OK;
    double ratio = 0.5;
    if (op_has_input(node, 1)) {
        const tensor *t = shapes_in_tensor(s, 1);
        if (t == NULL || t->count != 1) return CHURON_OK; /* the run will know */
        elem_to_f64(t->type, t->data, &ratio, 1);
    }
    if (ratio == 0) return CHURON_OK;
    return op_error(node, err, CHURON_UNSUPPORTED,
                    "training_mode: expected false (inference), got true with ratio %g: export the model for "
                    "inference",
                    ratio);
}

static status infer_dropout(op_shapes *s, error *err) {
    size_t rank;
    const dim *dims;
    TRY(refuse_training(s, err));
    if (op_has_output(shapes_node(s), 1)) {
        if (shapes_in(s, 0, &rank, &dims))
            TRY(shapes_out(s, 1, rank, dims, err));
        else
            shapes_out_unknown(s, 1);
    }
    return infer_same(s, err);
}

/* Output 0 is the input. The mask: nothing is dropped, all ones, in the type of the version. */
static status run_dropout(op_run *r, error *err) {
    tensor *mask;
    TRY(run_out(r, 1, &mask, err));
    if (mask == NULL) return CHURON_OK;
    const double one = 1;
    uint64_t bits = 0;
    elem_from_f64(mask->type, &one, &bits, 1, false);
    move_fill(mask->data, &bits, mask->count, tensor_elem_size(mask));
    return CHURON_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define RANDOM(name, since, until, signature, types, prepare, infer, run)                                    \
    { "", name, since, until, OP_RANDOM, signature, {{'T', types}}, prepare, mem_free, infer, NULL, run }
#define DROPOUT(since, until, signature, types, more, prepare)                                               \
    {                                                                                                        \
        "", "Dropout", since, until, OP_VIEW, signature, {{'T', types}, {'R', more}}, prepare, NULL,         \
            infer_dropout, NULL, run_dropout                                                                 \
    }

static const op_def rows[] = {
    RANDOM("RandomNormal", 1, 21, ">@", 0, prepare_shaped, infer_shaped, run_fill),
    RANDOM("RandomNormal", 22, 0, ">@", 0, prepare_shaped, infer_shaped, run_fill),
    RANDOM("RandomUniform", 1, 21, ">@", 0, prepare_shaped, infer_shaped, run_fill),
    RANDOM("RandomUniform", 22, 0, ">@", 0, prepare_shaped, infer_shaped, run_fill),
    RANDOM("RandomNormalLike", 1, 21, "T>@", TYPES_ALL_1, prepare_like, infer_like, run_fill),
    RANDOM("RandomNormalLike", 22, 0, "T>@", TYPES_ALL_13, prepare_like, infer_like, run_fill),
    RANDOM("RandomUniformLike", 1, 21, "T>@", TYPES_ALL_1, prepare_like, infer_like, run_fill),
    RANDOM("RandomUniformLike", 22, 0, "T>@", TYPES_ALL_13, prepare_like, infer_like, run_fill),
    RANDOM("Multinomial", 7, 21, "T>@", TYPES_FLOAT_OLD, prepare_multinomial, infer_multinomial,
           run_multinomial),
    RANDOM("Multinomial", 22, 0, "T>@", ELEMS_FLOAT, prepare_multinomial, infer_multinomial, run_multinomial),
    RANDOM("Bernoulli", 15, 21, "T>@", TYPES_FLOAT_OLD, prepare_bernoulli, infer_like, run_bernoulli),
    RANDOM("Bernoulli", 22, 0, "T>@", ELEMS_FLOAT, prepare_bernoulli, infer_like, run_bernoulli),
    DROPOUT(1, 5, "T>TT", TYPES_FLOAT_OLD, 0, prepare_dropout_1),
    DROPOUT(6, 6, "T>TT", TYPES_FLOAT_OLD, 0, prepare_dropout_1),
    DROPOUT(7, 9, "T>TT", TYPES_FLOAT_OLD, 0, prepare_dropout_7),
    DROPOUT(10, 11, "T>Tb", TYPES_FLOAT_OLD, 0, prepare_dropout_7),
    DROPOUT(12, 12, "T=Rb>Tb", TYPES_FLOAT_OLD, TYPES_FLOAT_OLD, prepare_dropout_12),
    DROPOUT(13, 21, "T=Rb>Tb", ELEMS_FLOAT, TYPES_FLOAT_OLD, prepare_dropout_12),
    DROPOUT(22, 0, "T=Rb>Tb", ELEMS_FLOAT | ELEMS_F8, ELEMS_FLOAT | ELEMS_F8, prepare_dropout_12),
};
const op_table ops_random = {rows, sizeof rows / sizeof *rows};
