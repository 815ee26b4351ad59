/* qconv.c: see qconv.h. */
#include "kernel/qconv.h"

#include "base/mem.h"

#include <string.h>

enum {
    STRIP_BYTES =
        96 << 10, /* of input that a strip of output rows reads: it stays in the second-level cache */
    DIRECT_BYTES = 256 << 10, /* likewise, where it is not copied */
    WEIGHT_BYTES = 384 << 10, /* that may pass through that cache while rows are there */
    LEAST_UNITS = 8,          /* so that threads get equal shares */
    EVEN_UNITS = 4,
    PART_PANELS = 2,   /* of a unit at least */
    MOST_PARTS = 4096, /* runs of a row */
    SLACK = 64         /* readable bytes behind a strip */
};

typedef struct cut {
    bool depthwise, direct; /* direct: the image is read where it is */
    bool flat;              /* rows of the image follow each other: a strip is one product */
    bool by_row;            /* a run is a kernel row, not a tap */
    size_t n_parts, quads, part_bytes;
    size_t panels; /* of a group */
    size_t rows, strips, strip_w, strip_h, strip_bytes;
    size_t parts; /* of the panels */
} cut;

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t div_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

bool qconv_is_depthwise(const qconv *c) {
    return c->groups > 1 && c->groups == c->in_channels && c->groups == c->out_channels;
}

static size_t parts_of(const qconv *c, bool *by_row) {
    const size_t taps = c->kernel_h * c->kernel_w;
    if (qconv_is_depthwise(c)) return div_up(taps, QDEPTHWISE_TAPS) * QDEPTHWISE_TAPS;
    *by_row = c->groups == 1 && c->dilation_w == 1;
    return *by_row ? c->kernel_h : taps;
}

bool qconv_suits(const qconv *c) {
    bool by_row = false;
    if (c->kernel_h == 0 || c->kernel_w == 0 || c->kernel_h > MOST_PARTS || c->kernel_w > MOST_PARTS ||
        parts_of(c, &by_row) > MOST_PARTS)
        return false;
    if (qconv_is_depthwise(c)) return !c->w_zeros;
    return c->out_channels / c->groups >= 4 && c->in_channels / c->groups <= SIZE_MAX / 64 / MOST_PARTS;
}

/* ---- cutting ---------------------------------------------------------------------------------------- */

static size_t input_rows(const qconv *c, size_t out_rows) {
    return (out_rows - 1) * c->stride_h + (c->kernel_h - 1) * c->dilation_h + 1;
}

static bool is_padded(const qconv *c) {
    return c->pad_top > 0 || c->pad_left > 0 || input_rows(c, c->out_h) > c->in_h ||
           (c->out_w - 1) * c->stride_w + (c->kernel_w - 1) * c->dilation_w + 1 > c->in_w;
}

static cut cut_weights(const qconv *c) {
    cut t = {.depthwise = qconv_is_depthwise(c)};
    const size_t in = c->in_channels / c->groups;
    t.n_parts = parts_of(c, &t.by_row);
    t.part_bytes = t.depthwise ? 1 : t.by_row ? c->kernel_w * in : in;
    t.quads = div_up(t.part_bytes, QGEMM_QUAD);
    t.panels = t.depthwise ? 1 : qgemm_panels(c->out_channels / c->groups);
    return t;
}

static cut cut_of(const qconv *c) {
    cut t = cut_weights(c);
    t.direct = !c->x_signed && !is_padded(c) && (t.depthwise || t.part_bytes % QGEMM_QUAD == 0);
    t.strip_w = t.direct ? c->in_w : (c->out_w - 1) * c->stride_w + (c->kernel_w - 1) * c->dilation_w + 1;
    t.flat =
        c->kernel_h == 1 && c->kernel_w == 1 && c->stride_h == 1 && c->stride_w == 1 && t.strip_w == c->out_w;
    t.rows = 1;
    /* Of a strip that is read where it is the result counts too: it is to be there when something is added.
     */
    const size_t most_bytes = t.direct ? DIRECT_BYTES : STRIP_BYTES,
                 out_row = t.direct ? 2 * c->out_w * c->out_channels : 0;
    while (t.rows < c->out_h &&
           input_rows(c, t.rows + 1) * t.strip_w * c->in_channels + (t.rows + 1) * out_row <= most_bytes)
        t.rows++;
    t.strips = div_up(c->out_h, t.rows);
    const size_t most = t.depthwise ? 1 : div_up(t.panels * c->groups, PART_PANELS);
    if (t.strips < LEAST_UNITS && most == 1) t.strips = LEAST_UNITS;
    if (t.strips > 2) t.strips = div_up(t.strips, EVEN_UNITS) * EVEN_UNITS;
    t.strips = smaller(t.strips, c->out_h);
    t.rows = div_up(c->out_h, t.strips);
    t.strip_h = input_rows(c, t.rows);
    t.strip_bytes = t.direct ? 0 : t.strip_h * t.strip_w * c->in_channels + SLACK;
    t.parts = t.strips < LEAST_UNITS ? smaller(div_up(LEAST_UNITS, t.strips), most) : 1;
    return t;
}

size_t qconv_units(const qconv *c, size_t batch) {
    const cut t = cut_of(c);
    return batch * t.strips * t.parts;
}

static size_t part_list_bytes(const cut *t) {
    return (t->n_parts * sizeof(ptrdiff_t) + 63) / 64 * 64;
}

/* Runs, a strip, and of weights with zero points the sums of a row of pixels. */
size_t qconv_scratch(const qconv *c) {
    const cut t = cut_of(c);
    const size_t rest = c->w_zeros ? c->out_w * (t.flat ? t.rows : 1) * sizeof(int32_t) : 0;
    return part_list_bytes(&t) + (t.strip_bytes + rest + 127) / 64 * 64;
}

/* ---- weights ---------------------------------------------------------------------------------------- */

size_t qconv_columns(const qconv *c) {
    if (qconv_is_depthwise(c)) return div_up(c->out_channels, QDEPTHWISE_BLOCK) * QDEPTHWISE_BLOCK;
    return c->groups * qgemm_panels(c->out_channels / c->groups) * QGEMM_PANEL;
}

size_t qconv_packed_bytes(const qconv *c) {
    const cut t = cut_weights(c);
    size_t bytes;
    const size_t each = t.depthwise ? t.n_parts : t.n_parts * t.quads * QGEMM_QUAD;
    return size_mul(qconv_columns(c), each, &bytes) ? bytes : 0;
}

/* The column of one output channel: run by run, quads 64 bytes apart. */
static void pack_column(const qconv *c, const cut *t, const uint8_t *weights, size_t out, uint8_t *to) {
    const size_t in = c->in_channels / c->groups, taps = c->kernel_h * c->kernel_w;
    const uint8_t flip = c->w_signed ? 0 : 0x80;
    for (size_t p = 0; p < t->n_parts; p++, to += t->quads * QGEMM_QUAD * QGEMM_PANEL) {
        size_t i = 0;
        for (size_t tap = t->by_row ? p * c->kernel_w : p; i < t->part_bytes; tap++) {
            const uint8_t *from = weights + out * in * taps + tap;
            for (size_t k = 0; k < in; k++, i++)
                to[i / QGEMM_QUAD * QGEMM_PANEL * QGEMM_QUAD + i % QGEMM_QUAD] = from[k * taps] ^ flip;
        }
    }
}

/* Place of an output channel among the columns. */
static size_t column_of(const qconv *c, const cut *t, size_t out) {
    if (t->depthwise)
        return out / QDEPTHWISE_BLOCK * QDEPTHWISE_BLOCK + qdepthwise_place(out % QDEPTHWISE_BLOCK);
    const size_t each = c->out_channels / c->groups;
    return out / each * t->panels * QGEMM_PANEL + out % each;
}

static int32_t sum_of(const qconv *c, const uint8_t *weights, size_t out) {
    const size_t n = c->in_channels / c->groups * c->kernel_h * c->kernel_w;
    const uint8_t *from = weights + out * n, flip = c->w_signed ? 0 : 0x80;
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += (int8_t)(from[i] ^ flip);
    return (int32_t)sum;
}

void qconv_pack(const qconv *c, const uint8_t *weights, const int32_t *w_zero, const int32_t *bias,
                const float *scale, const qconv_packed *out) {
    const cut t = cut_weights(c);
    const size_t columns = qconv_columns(c), panel = t.n_parts * t.quads * QGEMM_QUAD * QGEMM_PANEL;
    const int32_t zero = c->x_zero + (c->x_signed ? 128 : 0);
    memset(out->w, 0, qconv_packed_bytes(c));
    for (size_t i = 0; i < columns; i++) {
        out->offset[i] = out->w_zero[i] = 0;
        out->scale[i] = 0.0f;
    }
    for (size_t o = 0; o < c->out_channels; o++) {
        const size_t at = column_of(c, &t, o);
        const uint32_t moved = (uint32_t)zero * (uint32_t)sum_of(c, weights, o);
        out->offset[at] = (int32_t)((bias ? (uint32_t)bias[o] : 0) - moved);
        out->w_zero[at] = w_zero[o] - (c->w_signed ? 0 : 128);
        out->scale[at] = scale[o];
        if (!t.depthwise) {
            uint8_t *to = (uint8_t *)out->w + at / QGEMM_PANEL * panel + at % QGEMM_PANEL * QGEMM_QUAD;
            pack_column(c, &t, weights, o, to);
            continue;
        }
        uint8_t *to = (uint8_t *)out->w + o / QDEPTHWISE_BLOCK * QDEPTHWISE_BLOCK * t.n_parts +
                      at % QDEPTHWISE_BLOCK * QDEPTHWISE_TAPS;
        for (size_t tap = 0; tap < c->kernel_h * c->kernel_w; tap++)
            to[tap / QDEPTHWISE_TAPS * QDEPTHWISE_BLOCK * QDEPTHWISE_TAPS + tap % QDEPTHWISE_TAPS] =
                weights[o * c->kernel_h * c->kernel_w + tap] ^ (c->w_signed ? 0 : 0x80);
    }
}

/* ---- running ---------------------------------------------------------------------------------------- */

typedef struct runner {
    const kernels *k;
    const qconv_job *job;
    const qconv *c;
    cut t;
    ptrdiff_t *part;
    uint8_t *strip;
    int32_t *rest;
    size_t held; /* image and strip in the copy, as a number; SIZE_MAX: none */
} runner;

/* Offsets of the runs from a pixel's first tap. */
static void list_parts(const runner *r) {
    const qconv *c = r->c;
    const size_t row = r->t.strip_w * c->in_channels, taps = c->kernel_h * c->kernel_w;
    for (size_t p = 0; p < r->t.n_parts; p++) {
        const size_t tap = p < taps ? p : 0, ky = r->t.by_row ? p : tap / c->kernel_w,
                     kx = r->t.by_row ? 0 : tap % c->kernel_w;
        r->part[p] = (ptrdiff_t)(ky * c->dilation_h * row + kx * c->dilation_w * c->in_channels);
    }
}

static void copy_row(const runner *r, const uint8_t *from, uint8_t *to) {
    const qconv *c = r->c;
    const uint8_t flip = c->x_signed ? 0x80 : 0, zero = (uint8_t)(c->x_zero + (c->x_signed ? 128 : 0));
    const size_t left = smaller(c->pad_left, r->t.strip_w), inside = smaller(c->in_w, r->t.strip_w - left);
    const size_t bytes = inside * c->in_channels;
    memset(to, zero, left * c->in_channels);
    to += left * c->in_channels;
    if (flip) {
        for (size_t i = 0; i < bytes; i++) to[i] = from[i] ^ flip;
    } else {
        memcpy(to, from, bytes);
    }
    memset(to + bytes, zero, (r->t.strip_w - left - inside) * c->in_channels);
}

/* The input of output rows from `row` on, in the copy. */
static void copy_strip(runner *r, const uint8_t *image, size_t row, size_t rows) {
    const qconv *c = r->c;
    const size_t bytes = r->t.strip_w * c->in_channels;
    for (size_t i = 0; i < input_rows(c, rows); i++) {
        const size_t at = row * c->stride_h + i; /* pad_top too low */
        uint8_t *to = r->strip + i * bytes;
        if (at < c->pad_top || at - c->pad_top >= c->in_h)
            memset(to, (uint8_t)(c->x_zero + (c->x_signed ? 128 : 0)), bytes);
        else
            copy_row(r, image + (at - c->pad_top) * c->in_w * c->in_channels, to);
    }
}

/* a_rest of m pixels x_step apart. */
static void sum_pixels(const runner *r, const uint8_t *x, size_t x_step, size_t m) {
    const qconv *c = r->c;
    const int32_t zero = c->x_zero + (c->x_signed ? 128 : 0);
    for (size_t i = 0; i < m; i++, x += x_step) {
        uint32_t sum = 0;
        for (size_t p = 0; p < r->t.n_parts; p++) {
            const uint8_t *a = x + r->part[p];
            for (size_t j = 0; j < r->t.part_bytes; j++) sum += a[j];
        }
        r->rest[i] = (int32_t)(sum - (uint32_t)(r->t.n_parts * r->t.part_bytes) * (uint32_t)zero);
    }
}

/* m pixels, of panels [p0, p1) of all groups. */
static void product(const runner *r, const uint8_t *x, uint8_t *y, size_t m, size_t p0, size_t p1) {
    const qconv *c = r->c;
    const qconv_packed *w = r->job->packed;
    const size_t panel = r->t.n_parts * r->t.quads * QGEMM_QUAD * QGEMM_PANEL,
                 in = c->in_channels / c->groups, out = c->out_channels / c->groups;
    const int32_t move = c->y_signed ? 128 : 0;
    for (size_t p = p0; p < p1;) {
        const size_t group = p / r->t.panels, first = group * r->t.panels,
                     end = smaller(p1, first + r->t.panels);
        const qgemm g = {.n = out,
                         .a = x + group * in,
                         .a_row = c->stride_w * c->in_channels,
                         .part = r->part,
                         .n_parts = r->t.n_parts,
                         .part_quads = r->t.quads,
                         .b = w->w + first * panel,
                         .b_zero = c->w_zeros ? w->w_zero + first * QGEMM_PANEL : NULL,
                         .a_rest = r->rest,
                         .bytes = y + group * out,
                         .offset = w->offset + first * QGEMM_PANEL,
                         .y_zero = (uint8_t)(c->y_zero + move),
                         .y_low = (uint8_t)(c->y_low + move),
                         .y_high = (uint8_t)(c->y_high + move),
                         .c_row = c->out_channels,
                         .b_scale = w->scale + first * QGEMM_PANEL};
        if (c->w_zeros) sum_pixels(r, g.a, g.a_row, m);
        qgemm_run(r->k, &g, 0, m, p - first, end - first);
        p = end;
    }
}

static void depthwise(const runner *r, const uint8_t *x, uint8_t *y, size_t m) {
    const qconv *c = r->c;
    const int32_t move = c->y_signed ? 128 : 0;
    const qdepthwise d = {.channels = c->in_channels,
                          .x_step = c->stride_w * c->in_channels,
                          .taps = r->t.n_parts,
                          .tap = r->part,
                          .w = r->job->packed->w,
                          .offset = r->job->packed->offset,
                          .scale = r->job->packed->scale,
                          .zero = (uint8_t)(c->y_zero + move),
                          .low = (uint8_t)(c->y_low + move),
                          .high = (uint8_t)(c->y_high + move)};
    r->k->qdepthwise_row(&d, x, y, m);
}

/* Bytes [0, n) of each of m pixels: int8 back from uint8, then what is added. */
static void finish(const runner *r, uint8_t *y, const uint8_t *add, size_t m, size_t n) {
    const size_t step = r->c->out_channels;
    if (n == step) n *= m, m = 1;
    for (size_t i = 0; i < m; i++, y += step) {
        for (size_t j = 0; r->c->y_signed && j < n; j++) y[j] ^= 0x80;
        if (!add) continue;
        r->k->qpair(&r->job->pair, y, add, y, n);
        add += step;
    }
}

static void run_rows(const runner *r, const uint8_t *x, uint8_t *y, size_t rows, size_t p0, size_t p1) {
    const qconv *c = r->c;
    const size_t x_row = c->stride_h * r->t.strip_w * c->in_channels, y_row = c->out_w * c->out_channels;
    if (r->t.flat && !r->t.depthwise) {
        /* Pixels that stay in the first-level cache while all panels pass; all of them where panels are too
         * many to pass often. */
        const size_t all = rows * c->out_w, weights = (p1 - p0) * r->t.quads * QGEMM_QUAD * QGEMM_PANEL;
        const size_t most =
            weights > WEIGHT_BYTES ? all : smaller(all, 14 * (1 + 1200 / (c->in_channels + c->out_channels)));
        for (size_t i = 0; i < all; i += most)
            product(r, x + i * c->in_channels, y + i * c->out_channels, smaller(most, all - i), p0, p1);
        return;
    }
    if (r->t.depthwise) {
        for (size_t i = 0; i < rows; i++) depthwise(r, x + i * x_row, y + i * y_row, c->out_w);
        return;
    }
    /* A pair of panels meets all rows: it may be large. */
    const size_t step = c->w_zeros ? p1 - p0 : c->out_w <= r->k->qgemm_shape.few_rows ? 4 : PART_PANELS;
    for (size_t p = p0; p < p1; p += step) {
        for (size_t i = 0; i < rows; i++)
            product(r, x + i * x_row, y + i * y_row, c->out_w, p, smaller(p + step, p1));
    }
}

static void run_unit(runner *r, size_t unit) {
    const qconv *c = r->c;
    const cut *t = &r->t;
    const size_t part = unit % t->parts, place = unit / t->parts, image = place / t->strips,
                 strip = place % t->strips, row = c->out_h * strip / t->strips,
                 rows = c->out_h * (strip + 1) / t->strips - row;
    const uint8_t *from = r->job->in + image * c->in_h * c->in_w * c->in_channels, *x = r->strip;
    if (t->direct) {
        x = from + row * c->stride_h * c->in_w * c->in_channels;
    } else if (r->held != place) {
        copy_strip(r, from, row, rows);
        r->held = place;
    }
    const size_t all = t->panels * c->groups, p0 = all * part / t->parts, p1 = all * (part + 1) / t->parts;
    const size_t at = (image * c->out_h + row) * c->out_w * c->out_channels;
    run_rows(r, x, r->job->out + at, rows, p0, p1);
    if (!r->job->add && !c->y_signed) return;
    const size_t out = c->out_channels / c->groups;
    const size_t j0 = p0 / t->panels * out + p0 % t->panels * QGEMM_PANEL,
                 j1 = p1 / t->panels * out + p1 % t->panels * QGEMM_PANEL;
    finish(r, r->job->out + at + j0, r->job->add ? r->job->add + at + j0 : NULL, rows * c->out_w,
           t->depthwise ? c->out_channels : j1 - j0);
}

void qconv_run(const kernels *k, const qconv_job *job, size_t unit0, size_t unit1, void *scratch) {
    runner r = {.k = k, .job = job, .c = job->c, .t = cut_of(job->c), .part = scratch, .held = SIZE_MAX};
    r.strip = (uint8_t *)scratch + part_list_bytes(&r.t);
    r.rest = (int32_t *)(void *)(r.strip + (r.t.strip_bytes + 63) / 64 * 64);
    list_parts(&r);
    for (size_t i = unit0; i < unit1 && !stop_now(job->stop); i++) run_unit(&r, i);
}
