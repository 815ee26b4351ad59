/* signal.c: DFT, STFT, MelWeightMatrix and the windows.
 *
 * Transforms are computed in double whatever the type: lengths whose factors are 2, 3 and 5 by mixed radix,
 * others by Bluestein's chirp over a power of two (Bluestein 1970). */
#include "base/mem.h"
#include "graph/ops/move.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846
enum { DFT_MAX = 1 << 28 };

typedef struct complex_d {
    double re, im;
} complex_d;

enum { PART = 4096 }; /* values between looks at the stop */

/* ---- transforms ------------------------------------------------------------------------------------- */

typedef struct fft_plan {
    size_t n, m;        /* m: power of two of the chirp; 0: mixed radix */
    complex_d *roots;   /* [n]: exp(-2 pi i k / n) */
    complex_d *chirp;   /* [n]: exp(-pi i k^2 / n) */
    complex_d *kernel;  /* [m]: transform of the conjugate chirp */
    complex_d *m_roots; /* [m] */
    complex_d *a, *b;   /* work: [max(n, m)] each */
    stop_flag *stop;    /* what a stop leaves out is garbage */
} fft_plan;

static bool smooth(size_t n) {
    static const size_t primes[] = {2, 3, 5};
    for (size_t i = 0; i < 3; i++)
        while (n % primes[i] == 0) n /= primes[i];
    return n == 1;
}

/* exp(-2 pi i k / n): the angle is reduced to the first eighth, so that zeros and ones are exact. */
static complex_d root_of(size_t k, size_t n) {
    size_t eighth = 8 * k / n;                                 /* of the circle */
    double quarter_turn = PI / 2 / (double)n;                  /* times (4k mod n) */
    size_t quadrant = eighth / 2, rest = 4 * k - quadrant * n; /* 0 <= rest < n */
    double c, s;
    if (2 * rest <= n) {
        c = cos(quarter_turn * (double)rest), s = sin(quarter_turn * (double)rest);
    } else {
        c = sin(quarter_turn * (double)(n - rest)), s = cos(quarter_turn * (double)(n - rest));
    }
    switch (quadrant % 4) {
    case 0: return (complex_d){c, -s};
    case 1: return (complex_d){-s, -c};
    case 2: return (complex_d){-c, s};
    default: return (complex_d){s, c};
    }
}

static complex_d times(complex_d a, complex_d b) {
    return (complex_d){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static size_t smallest_factor(size_t n) {
    return n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : n % 3 == 0 ? 3 : n % 5 == 0 ? 5 : n;
}

/* y [n] = transform of x [n], x `step` apart; roots of n_total, of which n * root_step is the whole circle.
 * Depth: log2 n. */
static void mixed_radix(const complex_d *x, size_t step, complex_d *y, size_t n, const complex_d *roots,
                        size_t root_step, stop_flag *stop) {
    if (n == 1) {
        y[0] = x[0];
        return;
    }
    if (n >= PART && stop_now(stop)) return;
    size_t p = smallest_factor(n), m = n / p;
    for (size_t q = 0; q < p; q++)
        mixed_radix(x + q * step, step * p, y + q * m, m, roots, root_step * p, stop);
    for (size_t k = 0; k < m && !(k % PART == PART - 1 && stop_now(stop)); k++) {
        complex_d t[5], out[5];
        for (size_t q = 0; q < p; q++) t[q] = times(y[q * m + k], roots[q * k * root_step]);
        for (size_t j = 0; j < p; j++) {
            complex_d sum = t[0];
            for (size_t q = 1; q < p; q++) {
                complex_d v = times(t[q], roots[j * q % p * (m * root_step)]);
                sum.re += v.re, sum.im += v.im;
            }
            out[j] = sum;
        }
        for (size_t j = 0; j < p; j++) y[j * m + k] = out[j];
    }
}

static status fft_prepare(op_run *r, fft_plan *f, size_t n, error *err) {
    *f = (fft_plan){.n = n, .stop = run_stop(r)};
    if (n > DFT_MAX)
        return run_error(r, err, CHURON_LIMIT, "dft_length: at most %d expected, got %zu", DFT_MAX, n);
    if (!smooth(n))
        for (f->m = 1; f->m < 2 * n - 1;) f->m *= 2;
    size_t most = f->m > n ? f->m : n;
    void *memory;
    TRY(run_scratch(r, (2 * n + 2 * f->m + 2 * most + 1) * sizeof(complex_d), &memory, err));
    f->roots = memory;
    f->chirp = f->roots + n, f->kernel = f->chirp + n, f->m_roots = f->kernel + f->m;
    f->a = f->m_roots + f->m, f->b = f->a + most;
    for (size_t k = 0; k < n && !stop_at(f->stop, k, PART); k++) f->roots[k] = root_of(k, n);
    if (!f->m) return CHURON_OK;
    for (size_t k = 0; k < f->m && !stop_at(f->stop, k, PART); k++) f->m_roots[k] = root_of(k, f->m);
    for (size_t k = 0; k < n && !stop_at(f->stop, k, PART); k++)
        f->chirp[k] = root_of((size_t)((uint64_t)k * k % (2 * n)), 2 * n);
    TRY(run_check(r, err));
    memset(f->a, 0, f->m * sizeof *f->a);
    for (size_t k = 0; k < n; k++) {
        complex_d c = {f->chirp[k].re, -f->chirp[k].im};
        f->a[k] = c;
        if (k) f->a[f->m - k] = c;
    }
    mixed_radix(f->a, 1, f->kernel, f->m, f->m_roots, 1, f->stop);
    return CHURON_OK;
}

/* x, y: [n], not the same. */
static void fft_forward(const fft_plan *f, const complex_d *x, complex_d *y) {
    size_t n = f->n, m = f->m;
    if (!m) {
        mixed_radix(x, 1, y, n, f->roots, 1, f->stop);
        return;
    }
    memset(f->a, 0, m * sizeof *f->a);
    for (size_t k = 0; k < n; k++) f->a[k] = times(x[k], f->chirp[k]);
    mixed_radix(f->a, 1, f->b, m, f->m_roots, 1, f->stop);
    if (stop_seen(f->stop)) return;
    for (size_t k = 0; k < m; k++) { /* the inverse by conjugation */
        complex_d v = times(f->b[k], f->kernel[k]);
        f->a[k] = (complex_d){v.re, -v.im};
    }
    mixed_radix(f->a, 1, f->b, m, f->m_roots, 1, f->stop);
    for (size_t k = 0; k < n; k++) {
        complex_d v = {f->b[k].re / (double)m, -f->b[k].im / (double)m};
        y[k] = times(v, f->chirp[k]);
    }
}

/* ---- DFT -------------------------------------------------------------------------------------------- */

typedef struct dft_state {
    int64_t axis;
    bool inverse, onesided;
} dft_state;

static status dft_prepare(op_node *n, error *err) {
    dft_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->axis = -2;
    if (op_version(n) < 20) TRY(op_attr_int(n, "axis", 1, INT32_MIN, INT32_MAX, &st->axis, err));
    TRY(op_attr_bool(n, "inverse", false, &st->inverse, err));
    return op_attr_bool(n, "onesided", false, &st->onesided, err);
}

/* The signal axis: never the last, which holds real and imaginary parts. */
static status dft_axis(const op_node *n, int64_t axis, size_t rank, size_t *out, error *err) {
    TRY(op_axis(n, axis, rank, "axis", out, err));
    if (*out + 1 == rank)
        return op_error(n, err, CHURON_INVALID, "axis: one before the last expected, got %lld of rank %zu",
                        (long long)axis, rank);
    return CHURON_OK;
}

/* Shapes know a number only where there is one: what a kernel reads as one is looked at again. */
static status one_element(op_run *r, size_t i, const char *name, error *err) {
    const tensor *t = run_in(r, i);
    if (!t || t->count == 1) return CHURON_OK;
    return run_error(r, err, CHURON_INVALID, "%s: one element expected, got %zu", name, t->count);
}

static bool scalar_value(const op_shapes *s, size_t i, dim *out) {
    size_t n;
    const dim *v;
    if (!shapes_in_values(s, i, &n, &v) || n != 1) return false;
    *out = v[0];
    return true;
}

static status dft_infer(op_shapes *s, error *err) {
    const dft_state *st = shapes_state(s);
    const op_node *node = shapes_node(s);
    bool known;
    size_t rank, axis;
    const dim *x;
    dim given = st->axis, length, out[TENSOR_MAX_RANK];
    TRY(nn_rank(s, 0, 2, TENSOR_MAX_RANK, "input", &known, &rank, &x, err));
    bool axis_known = !op_has_input(node, 2) || (scalar_value(s, 2, &given) && dim_known(given));
    if (!known || !axis_known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    TRY(dft_axis(node, given, rank, &axis, err));
    bool inverse_real = st->inverse && st->onesided;
    if (!op_has_input(node, 1))
        length = inverse_real ? dim_mul(s, dim_sub(s, x[axis], 1), 2) : x[axis];
    else if (!scalar_value(s, 1, &length))
        length = dim_fresh(s);
    if (dim_known(x[rank - 1]) && x[rank - 1] != 1 && x[rank - 1] != 2)
        return op_error(node, err, CHURON_INVALID, "input: a last dimension of 1 or 2 expected, got %lld",
                        (long long)x[rank - 1]);
    if (dim_known(length) && length < 1 && !(dim_known(x[axis]) && x[axis] == 0))
        return op_error(node, err, CHURON_INVALID, "dft_length: at least 1 expected, got %lld",
                        (long long)length);
    for (size_t i = 0; i < rank; i++) out[i] = x[i];
    out[axis] = st->onesided && !st->inverse ? dim_add(s, dim_div_floor(s, length, 2), 1) : length;
    out[rank - 1] = inverse_real ? 1 : 2;
    return shapes_out(s, 0, rank, out, err);
}

typedef struct dft_sizes {
    size_t outer, in, inner, out, parts_in, parts_out;
} dft_sizes;

/* One line of x, cut or filled with zeros to n. */
static void take_line(const double *x, const dft_sizes *z, size_t o, size_t i, size_t n, complex_d *line) {
    for (size_t k = 0; k < n; k++) {
        const double *v = x + ((o * z->in + k) * z->inner + i) * z->parts_in;
        line[k] = k < z->in ? (complex_d){v[0], z->parts_in == 2 ? v[1] : 0} : (complex_d){0, 0};
    }
}

/* Inverse: conjugate, forward, conjugate, / n. One-sided: the upper half is the conjugate of the lower. */
static void prepare_inverse(complex_d *line, size_t n, bool onesided) {
    if (onesided) {
        line[0].im = 0;
        if (n % 2 == 0) line[n / 2].im = 0;
        for (size_t k = n / 2 + 1; k < n; k++) line[k] = (complex_d){line[n - k].re, -line[n - k].im};
    }
    for (size_t k = 0; k < n; k++) line[k].im = -line[k].im;
}

static status dft_run(op_run *r, error *err) {
    const dft_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *length = run_in(r, 1), *axis_in = run_in(r, 2);
    const void *from;
    void *to, *memory;
    tensor *y;
    size_t axis;
    TRY(one_element(r, 1, "dft_length", err));
    TRY(one_element(r, 2, "axis", err));
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    if (y->count == 0) return CHURON_OK;
    TRY(real_in(r, 0, ELEM_F64, &from, err));
    TRY(dft_axis(run_node(r), axis_in ? int_at(axis_in, 0) : st->axis, x->rank, &axis, err));
    dft_sizes z = {.outer = (size_t)nn_product(x->dims, axis),
                   .in = (size_t)x->dims[axis],
                   .inner = (size_t)nn_product(x->dims + axis + 1, x->rank - axis - 2),
                   .out = (size_t)y->dims[axis],
                   .parts_in = (size_t)x->dims[x->rank - 1],
                   .parts_out = (size_t)y->dims[y->rank - 1]};
    size_t n = length ? (size_t)int_at(length, 0) : st->inverse && st->onesided ? 2 * (z.in - 1) : z.in;
    fft_plan f;
    TRY(fft_prepare(r, &f, n, err));
    TRY(run_scratch(r, (2 * n + 1) * sizeof(complex_d), &memory, err));
    complex_d *line = memory, *result = line + n;
    for (size_t o = 0; o < z.outer; o++)
        for (size_t i = 0; i < z.inner; i++) {
            TRY(run_check(r, err));
            take_line(from, &z, o, i, n, line);
            if (st->inverse) prepare_inverse(line, n, st->onesided);
            fft_forward(&f, line, result);
            for (size_t k = 0; k < z.out; k++) {
                double *v = (double *)to + ((o * z.out + k) * z.inner + i) * z.parts_out;
                complex_d c = result[k];
                if (st->inverse) c.re /= (double)n, c.im /= -(double)n;
                v[0] = c.re;
                if (z.parts_out == 2) v[1] = c.im;
            }
        }
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

/* ---- STFT: signal, frame_step, window, frame_length ------------------------------------------------- */

static status stft_prepare(op_node *n, error *err) {
    dft_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return op_attr_bool(n, "onesided", true, &st->onesided, err);
}

static status stft_infer(op_shapes *s, error *err) {
    const dft_state *st = shapes_state(s);
    const op_node *node = shapes_node(s);
    bool known, kw = false;
    size_t rank, rw;
    const dim *x, *w = NULL;
    dim step = 0, length = 0;
    TRY(nn_rank(s, 0, 2, 3, "signal", &known, &rank, &x, err));
    if (op_has_input(node, 2)) TRY(nn_rank(s, 2, 1, 1, "window", &kw, &rw, &w, err));
    bool has_length = op_has_input(node, 3) ? scalar_value(s, 3, &length) : kw;
    if (!op_has_input(node, 3) && kw) length = w[0];
    if (!op_has_input(node, 3) && !op_has_input(node, 2) && known) length = x[1], has_length = true;
    if (has_length && kw) TRY(shapes_same(s, length, w[0], "frame_length and window", &length, err));
    if (!known || !has_length || !scalar_value(s, 1, &step)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if ((dim_known(step) && step < 1) || (dim_known(length) && length < 1))
        return op_error(node, err, CHURON_INVALID,
                        "frame_step and frame_length: at least 1 expected, got %lld and %lld",
                        (long long)step, (long long)length);
    if (dim_known(length) && dim_known(x[1]) && length > x[1])
        return op_error(node, err, CHURON_INVALID,
                        "frame_length: at most the signal's %lld expected, got %lld", (long long)x[1],
                        (long long)length);
    dim frames =
        dim_known(step) ? dim_add(s, dim_div_floor(s, dim_sub(s, x[1], length), step), 1) : dim_fresh(s);
    dim bins = st->onesided ? dim_add(s, dim_div_floor(s, length, 2), 1) : length;
    return shapes_out(s, 0, 4, (dim[]){x[0], frames, bins, 2}, err);
}

static status stft_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0), *weighting = run_in(r, 2), *length = run_in(r, 3);
    const void *from, *weights;
    void *to, *memory;
    tensor *y;
    TRY(one_element(r, 1, "frame_step", err));
    TRY(one_element(r, 3, "frame_length", err));
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    TRY(real_in(r, 0, ELEM_F64, &from, err));
    TRY(real_in(r, 2, ELEM_F64, &weights, err));
    size_t n = length ? (size_t)int_at(length, 0) : weighting ? weighting->count : (size_t)x->dims[1];
    size_t step = (size_t)int_at(run_in(r, 1), 0), samples = (size_t)x->dims[1];
    size_t parts = x->rank == 3 ? (size_t)x->dims[2] : 1, frames = (size_t)y->dims[1],
           bins = (size_t)y->dims[2];
    if (parts != 1 && parts != 2)
        return run_error(r, err, CHURON_INVALID, "signal: a last dimension of 1 or 2 expected, got %zu",
                         parts);
    fft_plan f;
    TRY(fft_prepare(r, &f, n, err));
    TRY(run_scratch(r, (2 * n + 1) * sizeof(complex_d), &memory, err));
    complex_d *line = memory, *result = line + n;
    for (size_t b = 0; b < (size_t)x->dims[0]; b++)
        for (size_t t = 0; t < frames; t++) {
            TRY(run_check(r, err));
            const double *v = (const double *)from + (b * samples + t * step) * parts;
            for (size_t k = 0; k < n; k++) {
                double w = weights ? ((const double *)weights)[k] : 1;
                line[k] = (complex_d){v[k * parts] * w, parts == 2 ? v[k * 2 + 1] * w : 0};
            }
            fft_forward(&f, line, result);
            double *out = (double *)to + (b * frames + t) * bins * 2;
            for (size_t k = 0; k < bins; k++) out[2 * k] = result[k].re, out[2 * k + 1] = result[k].im;
        }
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

/* ---- windows ---------------------------------------------------------------------------------------- */

enum window_kind { WINDOW_HANN, WINDOW_HAMMING, WINDOW_BLACKMAN };

typedef struct window_state {
    enum window_kind kind;
    bool periodic;
    elem type;
} window_state;

static status read_datatype(op_node *n, elem *out, error *err) {
    int64_t type;
    TRY(op_attr_int(n, "output_datatype", ELEM_F32, 1, ELEM_COUNT - 1, &type, err));
    *out = (elem)type;
    if (!(ELEM_BIT(type) & ELEMS_NUMERIC))
        return op_error(n, err, CHURON_INVALID, "output_datatype: a number type expected, got %s",
                        elem_name(*out));
    return CHURON_OK;
}

static status window_read(op_node *n, enum window_kind kind, error *err) {
    window_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->kind = kind;
    TRY(op_attr_bool(n, "periodic", true, &st->periodic, err));
    return read_datatype(n, &st->type, err);
}

static status hann_prepare(op_node *n, error *err) {
    return window_read(n, WINDOW_HANN, err);
}

static status hamming_prepare(op_node *n, error *err) {
    return window_read(n, WINDOW_HAMMING, err);
}

static status blackman_prepare(op_node *n, error *err) {
    return window_read(n, WINDOW_BLACKMAN, err);
}

static status window_infer(op_shapes *s, error *err) {
    const window_state *st = shapes_state(s);
    dim size;
    shapes_out_type(s, 0, st->type);
    if (!scalar_value(s, 0, &size)) size = dim_fresh(s);
    if (dim_known(size) && size < 0)
        return op_error(shapes_node(s), err, CHURON_INVALID, "size: at least 0 expected, got %lld",
                        (long long)size);
    return shapes_out(s, 0, 1, &size, err);
}

static status window_run(op_run *r, error *err) {
    const window_state *st = run_state(r);
    tensor *y;
    void *to;
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    double *w = to, n = (double)y->count - (st->periodic ? 0 : 1);
    for (size_t i = 0; i < y->count; i++) {
        if (i % 65536 == 0) TRY(run_check(r, err));
        double x = n > 0 ? 2 * PI * (double)i / n : 0;
        switch (st->kind) {
        case WINDOW_HANN: w[i] = n > 0 ? 0.5 - 0.5 * cos(x) : 1; break;
        case WINDOW_HAMMING: w[i] = n > 0 ? 25.0 / 46 - 21.0 / 46 * cos(x) : 1; break;
        case WINDOW_BLACKMAN: w[i] = n > 0 ? 0.42 - 0.5 * cos(x) + 0.08 * cos(2 * x) : 1; break;
        }
    }
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

/* ---- MelWeightMatrix: num_mel_bins, dft_length, sample_rate, lower, upper --------------------------- */

static status mel_prepare(op_node *n, error *err) {
    window_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return read_datatype(n, &st->type, err);
}

static status mel_infer(op_shapes *s, error *err) {
    const window_state *st = shapes_state(s);
    dim bins, length;
    shapes_out_type(s, 0, st->type);
    if (!scalar_value(s, 0, &bins)) bins = dim_fresh(s);
    if (!scalar_value(s, 1, &length)) length = dim_fresh(s);
    if ((dim_known(bins) && (bins < 0 || bins > INT32_MAX)) ||
        (dim_known(length) && (length < 0 || length > INT32_MAX)))
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "num_mel_bins, dft_length: 0 to 2147483647 expected, got %lld, %lld", (long long)bins,
                        (long long)length);
    return shapes_out(s, 0, 2, (dim[]){dim_add(s, dim_div_floor(s, length, 2), 1), bins}, err);
}

static status mel_run(op_run *r, error *err) {
    tensor *y;
    void *to, *memory;
    static const char *const names[] = {"num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz",
                                        "upper_edge_hertz"};
    for (size_t i = 0; i < 5; i++) TRY(one_element(r, i, names[i], err));
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    int64_t bins = y->dims[1], rows = y->dims[0], length = int_at(run_in(r, 1), 0),
            rate = int_at(run_in(r, 2), 0);
    double low = 2595 * log1p(real_at(run_in(r, 3), 0) / 700) / log(10);
    double high = 2595 * log1p(real_at(run_in(r, 4), 0) / 700) / log(10);
    if (rate < 1)
        return run_error(r, err, CHURON_INVALID, "sample_rate: at least 1 expected, got %lld",
                         (long long)rate);
    TRY(run_scratch(r, ((size_t)bins + 2) * sizeof(int64_t), &memory, err));
    int64_t *edge = memory;
    for (int64_t i = 0; i < bins + 2; i++) {
        double mel = (double)i * ((high - low) / (double)(bins + 2)) + low;
        double bin = floor(((double)length + 1) * (700 * expm1(mel / 2595 * log(10))) / (double)rate);
        if (!(bin >= 0) || bin > (double)rows - 1)
            return run_error(
                r, err, CHURON_INVALID,
                "lower_edge_hertz, upper_edge_hertz: spectrogram bins 0 to %lld expected, got %g",
                (long long)(rows - 1), bin);
        edge[i] = (int64_t)bin;
    }
    double *out = to;
    const double zero = 0;
    move_fill_run(r, out, &zero, y->count, sizeof *out);
    for (int64_t i = 0; i < bins; i++) {
        if (i % 64 == 0) TRY(run_check(r, err));
        int64_t a = edge[i], b = edge[i + 1], c = edge[i + 2];
        if (a == b) out[b * bins + i] = 1;
        for (int64_t j = a; a != b && j <= b; j++) out[j * bins + i] = (double)(j - a) / (double)(b - a);
        for (int64_t j = b; j < c; j++) out[j * bins + i] = (double)(c - j) / (double)(c - b);
    }
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define INDEX (ELEM_BIT(ELEM_I32) | ELEM_BIT(ELEM_I64))
#define ROW(op, first, last, sign, prep, inf, fn)                                                            \
    {                                                                                                        \
        .domain = "", .name = op, .since = first, .until = last, .signature = sign,                          \
        .vars = {{'T', ELEMS_FLOAT}, {'I', INDEX}}, .prepare = prep, .release = mem_free, .infer = inf,      \
        .run = fn                                                                                            \
    }

static const op_def rows[] = {
    ROW("DFT", 17, 19, "T=I>T", dft_prepare, dft_infer, dft_run),
    ROW("DFT", 20, 0, "T=Ii>T", dft_prepare, dft_infer, dft_run),
    ROW("STFT", 17, 0, "TI=TI>T", stft_prepare, stft_infer, stft_run),
    ROW("HannWindow", 17, 0, "I>@", hann_prepare, window_infer, window_run),
    ROW("HammingWindow", 17, 0, "I>@", hamming_prepare, window_infer, window_run),
    ROW("BlackmanWindow", 17, 0, "I>@", blackman_prepare, window_infer, window_run),
    ROW("MelWeightMatrix", 17, 0, "IIITT>@", mel_prepare, mel_infer, mel_run),
};
NN_TABLE(signal);
