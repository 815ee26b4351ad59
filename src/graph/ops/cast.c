/* cast.c: Cast, CastLike, BitCast.
 *
 * Between numbers a value is rounded once. Integers to narrower ones keep their low bits; floats to integers
 * are cut toward zero. Text to numbers: decimal or scientific, "inf" and "nan" in any case; anything else is
 * an error. Numbers to text: the shortest decimal digits that read back as the same number of the type. */
#include "base/mem.h"
#include "graph/ops/integers.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum round_mode { ROUND_UP, ROUND_DOWN, ROUND_NEAREST } round_mode;

typedef struct cast_state {
    elem to; /* ELEM_NONE: the type of input 1 */
    bool saturate;
    int round;
} cast_state;

static status check_target(op_node *n, elem to, error *err) {
    elem_set set = op_version(n) < 9    ? TYPES_PLAIN_OLD
                   : op_version(n) < 13 ? TYPES_PLAIN_OLD | ELEM_BIT(ELEM_STRING)
                                        : ELEMS_ALL & ~ELEMS_COMPLEX;
    if (!(ELEM_BIT(to) & set))
        return op_error(n, err, CHURON_INVALID, "to: expected a type that this version can cast to, got %s",
                        elem_name(to));
    return CHURON_OK;
}

static status new_state(op_node *n, cast_state **out, error *err) {
    *out = mem_calloc(1, sizeof **out);
    if (*out == NULL) return error_no_memory(err, "operator state", sizeof **out);
    op_set_state(n, *out);
    (*out)->saturate = true;
    return CHURON_OK;
}

static status read_rules(op_node *n, cast_state *s, error *err) {
    if (op_version(n) >= 19) TRY(op_attr_bool(n, "saturate", true, &s->saturate, err));
    if (op_version(n) >= 24)
        TRY(op_attr_choice(n, "round_mode", (const char *const[]){"up", "down", "nearest", NULL}, ROUND_UP,
                           &s->round, err));
    return CHURON_OK;
}

static status read_to(op_node *n, cast_state *s, error *err) {
    int64_t to;
    if (!op_attr_present(n, "to"))
        return op_error(n, err, CHURON_INVALID, "to is required: expected an element type, got none");
    TRY(op_attr_int(n, "to", 0, 1, ELEM_COUNT - 1, &to, err));
    s->to = (elem)to;
    return CHURON_OK;
}

static status prepare_cast(op_node *n, error *err) {
    cast_state *s;
    TRY(new_state(n, &s, err));
    TRY(read_to(n, s, err));
    TRY(check_target(n, s->to, err));
    return read_rules(n, s, err);
}

/* Operator set 1 names the type. */
static status prepare_cast_1(op_node *n, error *err) {
    static const struct {
        const char *name;
        elem type;
    } names[] = {{"FLOAT", ELEM_F32},   {"UINT8", ELEM_U8},   {"INT8", ELEM_I8},    {"UINT16", ELEM_U16},
                 {"INT16", ELEM_I16},   {"INT32", ELEM_I32},  {"INT64", ELEM_I64},  {"BOOL", ELEM_BOOL},
                 {"FLOAT16", ELEM_F16}, {"DOUBLE", ELEM_F64}, {"UINT32", ELEM_U32}, {"UINT64", ELEM_U64}};
    cast_state *s;
    TRY(new_state(n, &s, err));
    const char *name;
    TRY(op_attr_string(n, "to", "", &name, err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) s->to = names[i].type;
    if (s->to == ELEM_NONE)
        return op_error(n, err, CHURON_INVALID,
                        "to: expected the name of a type (FLOAT, INT64, …), got \"%s\"", name);
    return CHURON_OK;
}

static status prepare_cast_like(op_node *n, error *err) {
    cast_state *s;
    TRY(new_state(n, &s, err));
    return read_rules(n, s, err);
}

static status prepare_bit_cast(op_node *n, error *err) {
    cast_state *s;
    TRY(new_state(n, &s, err));
    TRY(read_to(n, s, err));
    if (s->to == ELEM_STRING)
        return op_error(n, err, CHURON_INVALID, "to: expected a type other than string, got string");
    return CHURON_OK;
}

static status infer_cast(op_shapes *s, error *err) {
    const cast_state *state = shapes_state(s);
    if (state->to) shapes_out_type(s, 0, state->to); /* CastLike: the row says it */
    return infer_same(s, err);
}

static status infer_bit_cast(op_shapes *s, error *err) {
    const cast_state *state = shapes_state(s);
    const elem_info *from = elem_describe(shapes_in_type(s, 0)), *to = elem_describe(state->to);
    if (from && from->bits != to->bits)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "to: expected a type of %u bits as the input's %s, got %s with %u", from->bits,
                        from->name, to->name, to->bits);
    shapes_out_type(s, 0, state->to);
    return infer_same(s, err);
}

static status propagate_cast(op_shapes *s, error *err) {
    (void)err;
    const cast_state *state = shapes_state(s);
    elem to = state->to ? state->to : shapes_in_type(s, 1), from = shapes_in_type(s, 0);
    bool integers = (from == ELEM_I64 || from == ELEM_I32 || from == ELEM_BOOL) &&
                    (to == ELEM_I64 || to == ELEM_I32 || to == ELEM_BOOL);
    size_t n;
    const dim *v;
    if (!integers || !shapes_in_values(s, 0, &n, &v) || n > OP_MAX_VALUES) return CHURON_OK;
    dim out[OP_MAX_VALUES];
    for (size_t i = 0; i < n; i++) {
        out[i] = v[i];
        if (to == ELEM_I64 || from == ELEM_BOOL || from == to) continue;
        if (!dim_known(v[i])) {
            if (to == ELEM_BOOL) return CHURON_OK;
            continue; /* a dimension fits in 32 bits, or the run will not get that far */
        }
        if (to == ELEM_BOOL)
            out[i] = v[i] != 0;
        else if (v[i] > INT32_MAX || v[i] < INT32_MIN)
            return CHURON_OK;
    }
    shapes_out_values(s, 0, n, out);
    return CHURON_OK;
}

/* ---- numbers ------------------------------------------------------------------------------------------ */

enum { BLOCK = 256 };

/* A double that every narrower float rounds to as it would round the integer: beyond 53 bits rounded to odd
 * (S. Boldo, G. Melquiond: Emulation of FMA and correctly rounded sums, 2008). */
static double odd_double(int64_t v, bool is_unsigned) {
    bool negative = v < 0 && !is_unsigned;
    uint64_t m = negative ? 0 - (uint64_t)v : (uint64_t)v;
    unsigned shift = 0;
    uint64_t lost = 0;
    while (m >> 53) {
        lost |= m & 1;
        m >>= 1;
        shift++;
    }
    double d = ldexp((double)(m | lost), (int)shift);
    return negative ? -d : d;
}

static void integers_to_float(elem from, elem to, const int64_t *v, void *out, size_t n) {
    double d[BLOCK];
    if (to == ELEM_F32 && from != ELEM_U64) {
        for (size_t i = 0; i < n; i++) ((float *)out)[i] = (float)v[i];
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (to == ELEM_F64)
            d[i] = from == ELEM_U64 ? (double)(uint64_t)v[i] : (double)v[i];
        else
            d[i] = odd_double(v[i], from == ELEM_U64);
    }
    elem_from_f64(to, d, out, n, true);
}

/* Powers of two; code c is 2^(c-127), 255 is NaN. Zero and what is below the least: the least, or NaN. */
static uint8_t to_e8m0(double v, bool saturate, round_mode mode) {
    if (v != v || v < 0) return 255;
    if (isinf(v)) return saturate ? 254 : 255;
    if (v == 0) return saturate ? 0 : 255;
    int exponent;
    double fraction = frexp(v, &exponent); /* in [0.5, 1) */
    int code = exponent - 1 + 127;
    if ((mode == ROUND_UP && fraction > 0.5) || (mode == ROUND_NEAREST && fraction >= 0.75)) code++;
    if (code < 0) return saturate ? 0 : 255;
    if (code > 254) return saturate ? 254 : 255;
    return (uint8_t)code;
}

static void cast_numbers(const cast_state *s, elem from, elem to, const char *x, char *y, size_t n) {
    int64_t v[BLOCK];
    double d[BLOCK];
    if (integers_hold(from) && to != ELEM_F8E8M0) {
        integers_load(from, x, v, n);
        if (integers_hold(to))
            integers_store(to, v, y, n);
        else
            integers_to_float(from, to, v, y, n);
        return;
    }
    elem_to_f64(from, x, d, n);
    if (to == ELEM_F8E8M0) {
        for (size_t i = 0; i < n; i++) ((uint8_t *)y)[i] = to_e8m0(d[i], s->saturate, (round_mode)s->round);
    } else if (to == ELEM_BOOL) {
        for (size_t i = 0; i < n; i++) ((uint8_t *)y)[i] = d[i] != 0;
    } else {
        elem_from_f64(to, d, y, n, s->saturate);
    }
}

typedef struct cast_job {
    const cast_state *s;
    const tensor *x;
    tensor *out;
    const kernels *kernels;
} cast_job;

static void cast_range(void *ctx, size_t begin, size_t end) {
    const cast_job *j = ctx;
    elem from = j->x->type, to = j->out->type;
    size_t size = tensor_elem_size(j->x), out_size = tensor_elem_size(j->out);
    const char *x = j->x->data;
    char *y = j->out->data;
    if (from == ELEM_F32 && to == ELEM_F16) {
        j->kernels->narrow_f16((const float *)j->x->data + begin, (uint16_t *)j->out->data + begin,
                               end - begin);
        return;
    }
    if (from == ELEM_F16 && to == ELEM_F32) {
        j->kernels->widen_f16((const uint16_t *)j->x->data + begin, (float *)j->out->data + begin,
                              end - begin);
        return;
    }
    if (from == ELEM_F32 && to == ELEM_BOOL) {
        const float *v = (const float *)j->x->data + begin;
        for (size_t i = 0; i < end - begin; i++) ((uint8_t *)j->out->data)[begin + i] = v[i] != 0;
        return;
    }
    if (from == ELEM_F32 && to == ELEM_BF16) {
        elem_from_f32(to, (const float *)j->x->data + begin, y + begin * out_size, end - begin, false);
        return;
    }
    if (to == ELEM_F32 && from == ELEM_BF16) {
        elem_to_f32(from, x + begin * size, (float *)j->out->data + begin, end - begin);
        return;
    }
    for (size_t i = begin; i < end; i += BLOCK)
        cast_numbers(j->s, from, to, x + i * size, y + i * out_size, end - i < BLOCK ? end - i : BLOCK);
}

/* ---- text --------------------------------------------------------------------------------------------- */

enum { NUMBER_MAX = 64 };

/* The decimal point of the program's locale, where it is one byte that is no point. */
static char locale_point(void) {
    const char *point = localeconv()->decimal_point;
    return point && point[0] && !point[1] ? point[0] : '.';
}

static size_t float_text(elem e, const void *at, char *out) {
    double v;
    elem_to_f64(e, at, &v, 1);
    if (v != v) return (size_t)snprintf(out, NUMBER_MAX, "NaN");
    if (isinf(v)) return (size_t)snprintf(out, NUMBER_MAX, v < 0 ? "-INF" : "INF");
    size_t size = elem_describe(e)->bytes;
    int n = 0;
    for (int digits = 1; digits <= 17; digits++) {
        n = snprintf(out, NUMBER_MAX, "%.*g", digits, v);
        double back = strtod(out, NULL);
        uint64_t bits[2] = {0, 0};
        elem_from_f64(e, &back, bits, 1, true);
        if (memcmp(bits, at, size) == 0) break;
    }
    char point = locale_point();
    for (int i = 0; i < n; i++)
        if (out[i] == point) out[i] = '.';
    return (size_t)n;
}

static status to_text(op_run *r, const tensor *x, tensor *out, error *err) {
    size_t size = tensor_elem_size(x);
    for (size_t i = 0; i < x->count; i++) {
        const char *at = (const char *)x->data + i * size;
        char text[NUMBER_MAX];
        size_t n;
        if (x->type == ELEM_BOOL) {
            n = (size_t)snprintf(text, sizeof text, *at ? "True" : "False");
        } else if (x->type == ELEM_U64) {
            n = (size_t)snprintf(text, sizeof text, "%llu",
                                 (unsigned long long)((const uint64_t *)x->data)[i]);
        } else if (integers_hold(x->type)) {
            int64_t v;
            integers_load(x->type, at, &v, 1);
            n = (size_t)snprintf(text, sizeof text, "%lld", (long long)v);
        } else {
            n = float_text(x->type, at, text);
        }
        TRY(tensor_string_set(out, i, text, n, err));
        if (i % 4096 == 0) TRY(run_check(r, err));
    }
    return CHURON_OK;
}

/* False: not a whole number that 64 bits hold. */
static bool parse_integer(const char *z, int64_t *out, bool is_unsigned) {
    const char *p = z;
    bool negative = *p == '-';
    if (*p == '+' || *p == '-') p++;
    if (*p == 0) return false;
    uint64_t v = 0, most = is_unsigned ? UINT64_MAX : (uint64_t)INT64_MAX + negative;
    for (; *p; p++) {
        if (*p < '0' || *p > '9' || v > (most - (uint64_t)(*p - '0')) / 10) return false;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    *out = (int64_t)(negative ? 0 - v : v);
    return true;
}

static bool parse_number(const char *z, double *out) {
    char text[NUMBER_MAX * 8];
    size_t n = strlen(z);
    if (n == 0 || n >= sizeof text) return false;
    for (size_t i = 0; i <= n; i++) { /* hexadecimal and "nan(…)" are not decimal numbers */
        text[i] = z[i] == '.' ? locale_point() : z[i];
        if (z[i] == 'x' || z[i] == 'X' || z[i] == '(') return false;
    }
    char *end;
    *out = strtod(text, &end);
    return *end == 0 && end != text;
}

static status from_text(op_run *r, const cast_state *s, const tensor *x, tensor *out, error *err) {
    const tensor_string *strings = x->data;
    size_t size = tensor_elem_size(out);
    for (size_t i = 0; i < x->count; i++) {
        char z[NUMBER_MAX * 8];
        size_t n = strings[i].len, first = 0;
        const char *text = strings[i].data;
        while (first < n && (text[first] == ' ' || (text[first] >= '\t' && text[first] <= '\r'))) first++;
        while (n > first && (text[n - 1] == ' ' || (text[n - 1] >= '\t' && text[n - 1] <= '\r'))) n--;
        n -= first;
        bool fits = n < sizeof z && (n == 0 || memchr(text + first, 0, n) == NULL);
        if (fits && n > 0) memcpy(z, text + first, n);
        z[fits ? n : 0] = 0;
        char *to = (char *)out->data + i * size;
        int64_t v;
        double d;
        if (fits && integers_hold(out->type) && parse_integer(z, &v, out->type == ELEM_U64)) {
            integers_store(out->type, &v, to, 1);
        } else if (fits && parse_number(z, &d)) {
            if (out->type == ELEM_F32) { /* rounded once, not by way of double */
                char point = locale_point();
                for (char *p = z; *p; p++)
                    if (*p == '.') *p = point;
                ((float *)out->data)[i] = strtof(z, NULL);
            } else {
                cast_numbers(s, ELEM_F64, out->type, (const char *)&d, to, 1);
            }
        } else {
            return run_error(r, err, CHURON_INVALID, "element %zu: expected a number, got \"%.*s\"", i,
                             (int)(strings[i].len < 40 ? strings[i].len : 40), text ? text : "");
        }
    }
    return CHURON_OK;
}

/* ---- run ---------------------------------------------------------------------------------------------- */

static status run_cast(op_run *r, error *err) {
    const cast_state *s = run_state(r);
    const tensor *x = run_in(r, 0);
    elem to = s->to ? s->to : run_in(r, 1)->type;
    if (to == x->type && to != ELEM_F8E8M0) return run_view(r, err);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    if (to == ELEM_STRING) return to_text(r, x, out, err);
    if (x->type == ELEM_STRING) return from_text(r, s, x, out, err);
    cast_job j = {s, x, out, run_kernels(r)};
    run_parallel(r, x->count, (double)x->count * 3, cast_range, &j);
    return CHURON_OK;
}

/* Types below 8 bits lie in a byte each: signed ones are extended, the others have nothing above their bits.
 */
static status run_bit_cast(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    unsigned bits = elem_describe(x->type)->bits;
    if (bits >= 8) {
        memmove(out->data, x->data, tensor_bytes(x));
        return CHURON_OK;
    }
    bool with_sign = out->type == ELEM_I4 || out->type == ELEM_I2;
    for (size_t i = 0; i < x->count; i++)
        ((uint8_t *)out->data)[i] =
            (uint8_t)integers_low_bits(((const uint8_t *)x->data)[i], bits, with_sign);
    return CHURON_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define CAST(since, until, types, prepare)                                                                   \
    {                                                                                                        \
        "", "Cast", since, until, 0, "T>@", {{'T', types}}, prepare, mem_free, infer_cast, propagate_cast,   \
            run_cast                                                                                         \
    }
#define CAST_LIKE(since, until, types)                                                                       \
    {                                                                                                        \
        "", "CastLike", since, until, 0, "TU>1", {{'T', types}, {'U', types}}, prepare_cast_like, mem_free,  \
            infer_cast, propagate_cast, run_cast                                                             \
    }
#define CASTABLE(all) ((all) & ~ELEMS_COMPLEX)
#define CASTABLE_28   (CASTABLE(TYPES_ALL_25) | ELEM_BIT(ELEM_F6E2M3) | ELEM_BIT(ELEM_F6E3M2))

static const op_def rows[] = {
    CAST(1, 5, TYPES_PLAIN_OLD, prepare_cast_1),
    CAST(6, 8, TYPES_PLAIN_OLD, prepare_cast),
    CAST(9, 12, TYPES_PLAIN_OLD | ELEM_BIT(ELEM_STRING), prepare_cast),
    CAST(13, 18, CASTABLE(TYPES_ALL_13), prepare_cast),
    CAST(19, 20, CASTABLE(TYPES_ALL_19), prepare_cast),
    CAST(21, 22, CASTABLE(TYPES_ALL_21), prepare_cast),
    CAST(23, 23, CASTABLE(TYPES_ALL_23), prepare_cast),
    CAST(24, 24, CASTABLE(TYPES_ALL_24), prepare_cast),
    CAST(25, 27, CASTABLE(TYPES_ALL_25), prepare_cast),
    CAST(28, 0, CASTABLE_28, prepare_cast),
    CAST_LIKE(15, 18, CASTABLE(TYPES_ALL_13)),
    CAST_LIKE(19, 20, CASTABLE(TYPES_ALL_19)),
    CAST_LIKE(21, 22, CASTABLE(TYPES_ALL_21)),
    CAST_LIKE(23, 23, CASTABLE(TYPES_ALL_23)),
    CAST_LIKE(24, 24, CASTABLE(TYPES_ALL_24)),
    CAST_LIKE(25, 0, CASTABLE_28),
    {"",
     "BitCast",
     26,
     0,
     0,
     "T>@",
     {{'T', TYPES_ALL_25 & ~ELEM_BIT(ELEM_STRING)}},
     prepare_bit_cast,
     mem_free,
     infer_bit_cast,
     NULL,
     run_bit_cast},
};
const op_table ops_cast = {rows, sizeof rows / sizeof *rows};
