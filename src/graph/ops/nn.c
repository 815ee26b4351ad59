#include "graph/ops/nn.h"

#include "base/mem.h"

#include <string.h>

void *nn_state(op_node *n, size_t bytes, error *err) {
    void *st = mem_calloc(1, bytes);
    if (st)
        op_set_state(n, st);
    else
        error_no_memory(err, "state of a node", bytes);
    return st;
}

/* ---- elements --------------------------------------------------------------------------------------- */

static void small_int_to_f32(elem e, const void *from, float *to, size_t n) {
    const uint8_t *u = from;
    const int8_t *s = from;
    if (e == ELEM_I8)
        for (size_t i = 0; i < n; i++) to[i] = (float)s[i];
    else
        for (size_t i = 0; i < n; i++) to[i] = (float)u[i];
}

status real_of(op_run *r, const tensor *t, elem work, const void **out, error *err) {
    *out = NULL;
    if (!t) return CHURON_OK;
    if (t->type == work) {
        *out = t->data;
        return CHURON_OK;
    }
    void *to;
    TRY(run_scratch(r, t->count * elem_describe(work)->bytes, &to, err));
    if (work == ELEM_F64) {
        elem_to_f64(t->type, t->data, to, t->count);
    } else if (t->type == ELEM_I8 || t->type == ELEM_U8 || t->type == ELEM_BOOL) {
        small_int_to_f32(t->type, t->data, to, t->count);
    } else if (t->type == ELEM_F16) {
        run_kernels(r)->widen_f16(t->data, to, t->count);
    } else if (t->type == ELEM_BF16) {
        elem_to_f32(t->type, t->data, to, t->count);
    } else {
        float *f = to;
        for (size_t i = 0; i < t->count; i++) f[i] = (float)real_at(t, i);
    }
    *out = to;
    return CHURON_OK;
}

status real_in(op_run *r, size_t i, elem work, const void **out, error *err) {
    return real_of(r, run_in(r, i), work, out, err);
}

status real_out_optional(op_run *r, size_t i, elem work, tensor **t, void **data, error *err) {
    *data = NULL;
    TRY(run_out(r, i, t, err));
    if (!*t) return CHURON_OK;
    if ((*t)->type == work) {
        *data = (*t)->data;
        return CHURON_OK;
    }
    return run_scratch(r, (*t)->count * elem_describe(work)->bytes, data, err);
}

status nn_need_first(const op_run *r, error *err) {
    if (op_has_output(run_node(r), 0)) return CHURON_OK;
    return run_error(r, err, CHURON_INVALID, "output 0: a name expected, got none");
}

status real_out(op_run *r, size_t i, elem work, tensor **t, void **data, error *err) {
    if (i == 0) TRY(nn_need_first(r, err));
    return real_out_optional(r, i, work, t, data, err);
}

void real_out_done(op_run *r, const tensor *t, elem work, const void *data) {
    if (t && t->type == ELEM_F16 && work == ELEM_F32)
        run_kernels(r)->narrow_f16(data, t->data, t->count);
    else
        real_done(t, work, data);
}

void real_done(const tensor *t, elem work, const void *data) {
    if (!t || t->type == work) return;
    if (work == ELEM_F64) {
        elem_from_f64(t->type, data, t->data, t->count, false);
    } else if (t->type == ELEM_F16 || t->type == ELEM_BF16) {
        elem_from_f32(t->type, data, t->data, t->count, false);
    } else {
        const float *f = data;
        size_t bytes = elem_describe(t->type)->bytes;
        for (size_t i = 0; i < t->count; i++) {
            double d = (double)f[i];
            elem_from_f64(t->type, &d, (char *)t->data + i * bytes, 1, false);
        }
    }
}

double real_at(const tensor *t, size_t i) {
    double d;
    elem_to_f64(t->type, (const char *)t->data + i * elem_describe(t->type)->bytes, &d, 1);
    return d;
}

int64_t int_at(const tensor *t, size_t i) {
    return t->type == ELEM_I32 ? ((const int32_t *)t->data)[i] : ((const int64_t *)t->data)[i];
}

/* ---- shapes ----------------------------------------------------------------------------------------- */

status nn_rank(op_shapes *s, size_t i, size_t least, size_t most, const char *what, bool *known, size_t *rank,
               const dim **dims, error *err) {
    *known = shapes_in(s, i, rank, dims);
    if (!*known || (*rank >= least && *rank <= most)) return CHURON_OK;
    if (least == most)
        return op_error(shapes_node(s), err, CHURON_INVALID, "%s: rank %zu expected, got %zu", what, least,
                        *rank);
    return op_error(shapes_node(s), err, CHURON_INVALID, "%s: rank %zu to %zu expected, got %zu", what, least,
                    most, *rank);
}

static status broadcast_dim(op_shapes *s, dim a, dim b, dim *out, error *err) {
    if (a == b || b == 1) {
        *out = a;
    } else if (a == 1) {
        *out = b;
    } else if (dim_known(a) && dim_known(b)) {
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "dimensions %lld and %lld cannot be broadcast together", (long long)a, (long long)b);
    } else {
        *out = dim_known(a) ? a : dim_known(b) ? b : dim_fresh(s);
    }
    return CHURON_OK;
}

status nn_broadcast(op_shapes *s, const dim *a, size_t na, const dim *b, size_t nb, dim *out, size_t *n,
                    error *err) {
    *n = na > nb ? na : nb;
    for (size_t i = 0; i < *n; i++) {
        dim x = i < *n - na ? 1 : a[i - (*n - na)], y = i < *n - nb ? 1 : b[i - (*n - nb)];
        TRY(broadcast_dim(s, x, y, &out[i], err));
    }
    return CHURON_OK;
}

void nn_broadcast_strides(const int64_t *from, size_t nf, size_t rank, int64_t *strides) {
    int64_t step = 1;
    for (size_t i = rank; i-- > 0;) {
        int64_t d = i < rank - nf ? 1 : from[i - (rank - nf)];
        strides[i] = d == 1 ? 0 : step;
        step *= d;
    }
}

/* ---- spatial windows -------------------------------------------------------------------------------- */

static status read_list(op_node *n, const char *name, int64_t least, size_t most_items, int64_t *out,
                        size_t *count, error *err) {
    const int64_t *v;
    TRY(op_attr_ints(n, name, &v, count, err));
    if (*count > most_items)
        return op_error(n, err, CHURON_UNSUPPORTED, "%s: at most %zu numbers expected, got %zu", name,
                        most_items, *count);
    for (size_t i = 0; i < *count; i++) {
        if (v[i] < least || v[i] > INT64_C(0x7fffffff))
            return op_error(n, err, CHURON_INVALID, "%s[%zu]: %lld to 2147483647 expected, got %lld", name, i,
                            (long long)least, (long long)v[i]);
        out[i] = v[i];
    }
    return CHURON_OK;
}

status window_prepare(op_node *n, window *w, bool kernel_required, bool dilations, bool auto_pad,
                      error *err) {
    static const char *const pads[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", NULL};
    *w = (window){0};
    TRY(read_list(n, "kernel_shape", 1, WINDOW_MAX, w->kernel, &w->n_kernel, err));
    if (kernel_required && !w->n_kernel) return op_error(n, err, CHURON_INVALID, "kernel_shape is required");
    TRY(read_list(n, "strides", 1, WINDOW_MAX, w->stride, &w->n_stride, err));
    if (dilations) TRY(read_list(n, "dilations", 1, WINDOW_MAX, w->dilation, &w->n_dilation, err));
    TRY(read_list(n, "pads", 0, 2 * (size_t)WINDOW_MAX, w->pad, &w->n_pad, err));
    if (auto_pad) TRY(op_attr_choice(n, "auto_pad", pads, PAD_NOTSET, &w->auto_pad, err));
    return CHURON_OK;
}

static status check_lengths(const op_node *node, const window *w, size_t n, error *err) {
    if (n < 1 || n > WINDOW_MAX)
        return op_error(node, err, CHURON_UNSUPPORTED, "1 to %d spatial dimensions expected, got %zu",
                        WINDOW_MAX, n);
    const struct {
        const char *name;
        size_t have, want;
    } lists[] = {{"kernel_shape", w->n_kernel, n},
                 {"strides", w->n_stride, n},
                 {"dilations", w->n_dilation, n},
                 {"pads", w->n_pad, 2 * n}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (lists[i].have && lists[i].have != lists[i].want)
            return op_error(node, err, CHURON_INVALID, "%s: %zu numbers expected, got %zu", lists[i].name,
                            lists[i].want, lists[i].have);
    return CHURON_OK;
}

static int64_t ceil_div(int64_t a, int64_t b) { /* a >= 0 */
    return a / b + (a % b != 0);
}

/* Output size of one axis when its input size is a number; negative: the window does not fit. */
static int64_t axis_out(const window *w, size_t n, size_t i, int64_t in, int64_t kernel) {
    int64_t stride = w->n_stride ? w->stride[i] : 1, dilation = w->n_dilation ? w->dilation[i] : 1;
    if (w->auto_pad == PAD_SAME_UPPER || w->auto_pad == PAD_SAME_LOWER) return ceil_div(in, stride);
    bool use = w->n_pad && w->auto_pad == PAD_NOTSET;
    int64_t begin = use ? w->pad[i] : 0, end = use ? w->pad[n + i] : 0;
    int64_t room = in + begin + end - ((kernel - 1) * dilation + 1);
    if (room < 0) return -1;
    if (!w->ceil) return room / stride + 1;
    int64_t out = ceil_div(room, stride) + 1;
    if ((out - 1) * stride >= in + begin) out--; /* a window that would start behind the input */
    return out;
}

status window_shape(op_shapes *s, const window *w, size_t n, const dim *in, const dim *kernel, dim *out,
                    error *err) {
    TRY(check_lengths(shapes_node(s), w, n, err));
    for (size_t i = 0; i < n; i++) {
        int64_t stride = w->n_stride ? w->stride[i] : 1, dilation = w->n_dilation ? w->dilation[i] : 1;
        if (dim_known(kernel[i]) && (kernel[i] < 1 || kernel[i] > INT64_C(0x7fffffff)))
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "kernel size of axis %zu: at least 1 expected, got %lld", i,
                            (long long)kernel[i]);
        if (dim_known(in[i]) && dim_known(kernel[i])) {
            out[i] = axis_out(w, n, i, in[i], kernel[i]);
            if (out[i] < 0)
                return op_error(
                    shapes_node(s), err, CHURON_INVALID,
                    "axis %zu: a window of %lld (kernel %lld, dilation %lld) does not fit into %lld "
                    "and its padding",
                    i, (long long)((kernel[i] - 1) * dilation + 1), (long long)kernel[i], (long long)dilation,
                    (long long)in[i]);
        } else if (w->auto_pad == PAD_SAME_UPPER || w->auto_pad == PAD_SAME_LOWER) {
            out[i] = dim_div_ceil(s, in[i], stride);
        } else if (w->ceil || !dim_known(kernel[i])) {
            out[i] = dim_fresh(s);
        } else {
            bool use = w->n_pad && w->auto_pad == PAD_NOTSET;
            int64_t add = (use ? w->pad[i] + w->pad[n + i] : 0) - ((kernel[i] - 1) * dilation + 1);
            out[i] = dim_add(s, dim_div_floor(s, dim_add(s, in[i], add), stride), 1);
        }
    }
    return CHURON_OK;
}

void window_geometry(const window *w, size_t n, const int64_t *in, const int64_t *out, const int64_t *kernel,
                     geometry *g) {
    size_t lead = WINDOW_MAX - n;
    for (size_t i = 0; i < lead; i++) {
        g->in[i] = g->out[i] = g->kernel[i] = g->stride[i] = g->dilation[i] = 1;
        g->pad[i] = g->pad_end[i] = 0;
    }
    for (size_t i = 0; i < n; i++) {
        size_t a = lead + i;
        g->in[a] = in[i], g->out[a] = out[i], g->kernel[a] = kernel[i];
        g->stride[a] = w->n_stride ? w->stride[i] : 1;
        g->dilation[a] = w->n_dilation ? w->dilation[i] : 1;
        g->pad[a] = g->pad_end[a] = 0;
        if (w->auto_pad == PAD_NOTSET && w->n_pad) {
            g->pad[a] = w->pad[i], g->pad_end[a] = w->pad[n + i];
        } else if (w->auto_pad == PAD_SAME_UPPER || w->auto_pad == PAD_SAME_LOWER) {
            int64_t total = (out[i] - 1) * g->stride[a] + (kernel[i] - 1) * g->dilation[a] + 1 - in[i];
            if (total < 0) total = 0;
            g->pad[a] = w->auto_pad == PAD_SAME_UPPER ? total / 2 : total - total / 2;
            g->pad_end[a] = total - g->pad[a];
        }
    }
    g->in_size = nn_product(g->in, WINDOW_MAX);
    g->out_size = nn_product(g->out, WINDOW_MAX);
    g->kernel_size = nn_product(g->kernel, WINDOW_MAX);
}
