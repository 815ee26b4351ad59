/* blocked_transpose.c: transposed convolutions over blocked channels. A stride of s scatters: pixel o of the
 * result takes the taps k with (o + pad - k) divisible by s. So each of the s residues of o is a convolution
 * of stride 1 with every s-th tap, backwards, whose result lies s pixels apart. */
#include "graph/ops/blocked.h"

#include "base/mem.h"

#include <string.h>

void blocked_transpose_free(void *state) {
    blocked_transpose *st = state;
    if (!st) return;
    mem_free(st->phases);
    mem_free(st->bias);
    mem_free(st);
}

/* ---- phases ----------------------------------------------------------------------------------------- */

/* One axis of a residue. */
typedef struct residue {
    size_t first, taps, pad; /* first tap; how many, stride apart; padding before */
} residue;

/* False: the input would have to be cut instead of padded. */
static bool find_residue(size_t kernel, size_t stride, size_t pad, size_t at, residue *out) {
    out->first = (at + pad) % stride;
    if (out->first >= kernel) return false;
    out->taps = (kernel - 1 - out->first) / stride + 1;
    const size_t base = (at + pad) / stride;
    if (base >= out->taps) return false;
    out->pad = out->taps - 1 - base;
    return true;
}

static bool set_phase(const blocked_transpose *st, size_t y, size_t x, conv *c, residue r[2]) {
    if (!find_residue(st->kernel_h, st->stride_h, st->pad_top, y, &r[0]) ||
        !find_residue(st->kernel_w, st->stride_w, st->pad_left, x, &r[1]))
        return false;
    *c = st->c;
    c->kernel_h = r[0].taps;
    c->kernel_w = r[1].taps;
    c->pad_top = r[0].pad;
    c->pad_left = r[1].pad;
    c->up_h = st->stride_h;
    c->up_w = st->stride_w;
    c->at_h = y;
    c->at_w = x;
    return conv_choose(c, &c->kind) && c->kind == CONV_BLOCKED;
}

/* Without overlap, and where channels do not fill blocks: one product makes all pixels of a place. */
static bool at_once(const blocked_transpose *st, conv *c) {
    const size_t places = st->stride_h * st->stride_w, out = st->c.out_channels;
    if (st->kernel_h != st->stride_h || st->kernel_w != st->stride_w || st->pad_top || st->pad_left ||
        st->end_h || st->end_w || st->more_h || st->more_w ||
        conv_blocks(places * out) >= places * conv_blocks(out))
        return false;
    *c = st->c;
    c->kernel_h = c->kernel_w = 1;
    c->up_h = st->stride_h;
    c->up_w = st->stride_w;
    c->every = true;
    return conv_choose(c, &c->kind) && c->kind == CONV_BLOCKED;
}

bool blocked_transpose_choose(const blocked_transpose *st) {
    conv c;
    if (at_once(st, &c)) return true;
    residue r[2] = {{0}};
    for (size_t y = 0; y < st->stride_h; y++) {
        for (size_t x = 0; x < st->stride_w; x++) {
            if (!set_phase(st, y, x, &c, r)) return false;
        }
    }
    return true;
}

/* From ONNX's [in, out, kernel_h, kernel_w]: every tap as an output of its own. */
static void pick_all(const blocked_transpose *st, const float *weights, float *to) {
    const size_t in = st->c.in_channels, out = st->c.out_channels, taps = st->kernel_h * st->kernel_w;
    for (size_t t = 0; t < taps; t++) {
        for (size_t o = 0; o < out; o++) {
            for (size_t i = 0; i < in; i++) *to++ = weights[(i * out + o) * taps + t];
        }
    }
}

/* The taps of a phase, in a convolution's order. */
static void pick_taps(const blocked_transpose *st, const residue r[2], const float *weights, float *to) {
    const size_t in = st->c.in_channels, out = st->c.out_channels;
    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            const float *from = weights + (i * out + o) * st->kernel_h * st->kernel_w;
            for (size_t y = r[0].taps; y-- > 0;) {
                const size_t row = (r[0].first + y * st->stride_h) * st->kernel_w;
                for (size_t x = r[1].taps; x-- > 0;) *to++ = from[row + r[1].first + x * st->stride_w];
            }
        }
    }
}

status blocked_transpose_cut(blocked_transpose *st, error *err) {
    conv whole;
    residue r[2] = {{0}};
    const bool once = at_once(st, &whole);
    st->n_phases = once ? 1 : st->stride_h * st->stride_w;
    st->phases = mem_calloc(st->n_phases, sizeof *st->phases);
    if (!st->phases) return error_no_memory(err, "transposed convolution", st->n_phases * sizeof *st->phases);
    if (once) st->phases[0].c = whole;
    for (size_t i = 0; i < st->n_phases && !once; i++)
        (void)set_phase(st, i / st->stride_w, i % st->stride_w, &st->phases[i].c, r);
    return CHURON_OK;
}

static const tensor *source(const op_node *n, const void *state) {
    const blocked_transpose *st = state;
    (void)n;
    return st->source.data ? &st->source : NULL;
}

static status pack(op_node *n, op_pack *p, error *err) {
    blocked_transpose *st = pack_state(p);
    conv whole;
    const bool once = at_once(st, &whole);
    float *taps = mem_calloc(st->source.count, sizeof *taps);
    const float *weights = st->source.data;
    if (st->factors) weights = pack_multiplied(p, st->factors, weights);
    bool made = taps && weights;
    for (size_t i = 0; i < st->n_phases && made; i++) {
        residue r[2] = {{0}};
        conv *c = &st->phases[i].c;
        if (once) {
            pick_all(st, weights, taps);
        } else {
            (void)set_phase(st, i / st->stride_w, i % st->stride_w, c, r);
            pick_taps(st, r, weights, taps);
        }
        st->phases[i].weights = pack_memory(p, conv_packed_floats(c) * sizeof(float));
        made = st->phases[i].weights != NULL;
        if (made) conv_pack(c, taps, 0, conv_pack_parts(c), st->phases[i].weights);
    }
    mem_free(taps);
    if (!made) return op_error(n, err, CHURON_NO_MEMORY, "no memory for its weights");
    st->source = (tensor){0};
    return CHURON_OK;
}

const op_packing blocked_transpose_packing = {.source = source, .pack = pack};

/* ---- the operator ----------------------------------------------------------------------------------- */

/* stride * (in - 1) + kernel + more - less */
static dim size_of(op_shapes *s, dim in, size_t stride, size_t kernel, size_t more, size_t less) {
    const dim reach = dim_mul(s, dim_sub(s, in, 1), (dim)stride);
    return dim_sub(s, dim_add(s, reach, (dim)(kernel + more)), (dim)less);
}

static status infer(op_shapes *s, error *err) {
    const blocked_transpose *st = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    TRY(shapes_same(s, in[1], (dim)conv_blocks(st->c.in_channels), "blocks of channels of X", NULL, err));
    dim out[BLOCKED_RANK] = {in[0], (dim)conv_blocks(st->c.out_channels), 0, 0, CONV_BLOCK};
    out[2] = size_of(s, in[2], st->stride_h, st->kernel_h, st->more_h, st->pad_top + st->end_h);
    out[3] = size_of(s, in[3], st->stride_w, st->kernel_w, st->more_w, st->pad_left + st->end_w);
    for (size_t i = 2; i < 4; i++) {
        if (dim_known(out[i]) && out[i] < 0)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "pads: at most the output expected, got more");
    }
    return st->c.single ? blocked_single(s, st->planar_rank, out, err)
                        : shapes_out(s, 0, BLOCKED_RANK, out, err);
}

static size_t pixels_of(size_t full, size_t at, size_t stride) {
    return full > at ? (full - at - 1) / stride + 1 : 0;
}

static status run(op_run *r, error *err) {
    const blocked_transpose *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    if (x->count == 0) {
        memset(y->data, 0, tensor_bytes(y));
        return CHURON_OK;
    }
    for (size_t i = 0; i < st->n_phases; i++) {
        conv c = st->phases[i].c;
        c.in_h = (size_t)x->dims[2];
        c.in_w = (size_t)x->dims[3];
        c.full_h = c.single && y->rank == 3 ? 1 : (size_t)y->dims[2];
        c.full_w = (size_t)y->dims[c.single ? y->rank - 1 : 3];
        c.out_h = pixels_of(c.full_h, c.at_h, c.up_h);
        c.out_w = pixels_of(c.full_w, c.at_w, c.up_w);
        const conv_job job = {.c = &c,
                              .packed = st->phases[i].weights,
                              .bias = st->bias,
                              .in = x->data,
                              .out = y->data,
                              .batch = (size_t)x->dims[0]};
        if (c.out_h && c.out_w) TRY(blocked_conv_run(r, &job, err));
    }
    return CHURON_OK;
}

const op_def op_blocked_transpose = {.domain = "churon",
                                     .name = "ConvTranspose",
                                     .since = 1,
                                     .signature = "T>T",
                                     .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                                     .release = blocked_transpose_free,
                                     .infer = infer,
                                     .run = run};
