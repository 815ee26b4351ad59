/* conv.c: strips, padding and units of convolutions; the arithmetic is the instruction sets'. See conv.h. */
#include "kernel/conv.h"

#include "kernel/winograd.h"

#include <string.h>

/* Bytes of a strip's copied input, and of the weights that a unit takes through it: both stay in the
 * second-level cache. Units: enough for a few threads to share evenly. */
enum {
    STRIP_BYTES = 384 << 10,
    PART_BYTES = 512 << 10,
    LEAST_UNITS = 8,
    DIRECT_PIXELS = 168,
    MAX_RUNS = 4096
};

/* How a convolution is cut; follows from it alone. */
typedef struct conv_cut {
    bool direct;                   /* pixels of the image are the rows */
    bool windows;                  /* groups are of panels, not of channels: see window_of */
    size_t groups;                 /* what is computed apart: groups, windows, blocks of a depthwise one */
    size_t k, panels;              /* of one group; k: of the one with the longest chain */
    size_t rows, strips;           /* output rows of a strip (direct: pixels) */
    size_t columns, column_strips; /* output columns of a strip */
    size_t parts;                  /* the panels are cut into */
    size_t in_blocks;              /* of one group, the widest (planar: channels) */
    size_t run;
    size_t strip_h, strip_w; /* of the copied input */
    size_t strip_floats, spread_floats;
} conv_cut;

static size_t div_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* ---- groups ----------------------------------------------------------------------------------------- */

/* Groups are of whole blocks. */
static bool is_whole(const conv *c) {
    return c->groups == 1 ||
           (c->in_channels / c->groups % CONV_BLOCK == 0 && c->out_channels / c->groups % CONV_BLOCK == 0);
}

/* What one group of outputs reads: input channels [begin, end), which lie in `blocks` blocks from `first` on.
 * Where groups begin within blocks, outputs are taken by panels instead: each panel, or pair, reads the
 * channels of all groups that it has outputs of, with weights of 0 where channels do not belong together. */
typedef struct window {
    size_t begin, end, first, blocks;
} window;

static window window_of(const conv *c, bool by_panels, size_t panels, size_t group) {
    const size_t in = c->in_channels / c->groups, out = c->out_channels / c->groups;
    window w = {.begin = group * in, .end = (group + 1) * in};
    if (by_panels) {
        const size_t o = group * panels * CONV_BLOCK;
        w.begin = o / out * in;
        w.end = ((smaller(o + panels * CONV_BLOCK, c->out_channels) - 1) / out + 1) * in;
    }
    w.first = w.begin / CONV_BLOCK;
    w.blocks = (w.end - 1) / CONV_BLOCK + 1 - w.first;
    return w;
}

/* Channels that all windows of so many panels read; *most: blocks of the widest. */
static size_t window_cost(const conv *c, size_t panels, size_t *most) {
    size_t channels = 0;
    *most = 0;
    for (size_t w = 0; w * panels < conv_blocks(c->out_channels); w++) {
        const window at = window_of(c, true, panels, w);
        channels += (at.end - at.begin) * panels;
        if (at.blocks > *most) *most = at.blocks;
    }
    return channels;
}

/* Two panels where that reads no more: then each value meets twice as many weights. */
static size_t window_panels(const conv *c) {
    size_t most;
    const bool even = conv_blocks(c->out_channels) % 2 == 0;
    return even && window_cost(c, 2, &most) <= window_cost(c, 1, &most) ? 2 : 1;
}

bool conv_choose(const conv *c, conv_kind *kind) {
    const size_t in = c->in_channels / c->groups, out = c->out_channels / c->groups;
    const size_t taps = c->kernel_h * c->kernel_w;
    if (c->groups > 1 && in == 1 && out == 1) {
        *kind = CONV_DEPTHWISE;
        return taps <= MAX_RUNS;
    }
    if (c->groups == 1 && in <= 4) {
        *kind = CONV_PLANAR;
        return in * c->kernel_h <= MAX_RUNS;
    }
    *kind = CONV_BLOCKED;
    size_t blocks = conv_blocks(in);
    if (!is_whole(c)) (void)window_cost(c, 2, &blocks);
    return blocks * taps <= MAX_RUNS;
}

/* ---- several pixels at once ------------------------------------------------------------------------- */

bool conv_spreads(const conv *c) {
    return (c->kind == CONV_BLOCKED || c->kind == CONV_PLANAR) && (c->across > 1 || c->every);
}

/* Columns of the kernel of a product that makes `across` pixels. */
static size_t across_taps(const conv *c, size_t across) {
    return (c->kernel_w - 1) * c->dilation_w + 1 + (across - 1) * c->stride_w;
}

size_t conv_across(const conv *c) {
    if (c->groups != 1 || c->up_h != 0 || (c->kind != CONV_BLOCKED && c->kind != CONV_PLANAR)) return 1;
    const size_t rows = c->kernel_h * (c->kind == CONV_PLANAR ? c->in_channels : conv_blocks(c->in_channels));
    size_t best = 1, best_taps = c->kernel_w;
    for (size_t n = 2; n * c->out_channels <= GEMM_PANEL; n++) {
        const size_t taps = across_taps(c, n);
        /* A fifth less at least, since the pixels have to be taken apart. */
        const bool better = best == 1 ? 5 * taps < 4 * n * best_taps : taps * best < best_taps * n;
        if (!better || rows * (c->kind == CONV_PLANAR ? 1 : taps) > MAX_RUNS) continue;
        best = n;
        best_taps = taps;
    }
    return best;
}

/* The convolution that a product computes: its channels are those of all pixels that it makes. */
static conv product_of(const conv *c) {
    conv v = *c;
    if (!conv_spreads(c)) return v;
    v.single = false;
    if (c->every) {
        v.out_channels *= c->up_h * c->up_w;
        v.up_h = v.up_w = 0;
        v.out_h = c->in_h;
        v.out_w = c->in_w;
        return v;
    }
    v.out_channels *= c->across;
    v.kernel_w = across_taps(c, c->across);
    v.dilation_w = 1;
    v.stride_w = c->across * c->stride_w;
    v.out_w = div_up(c->out_w, c->across);
    return v;
}

/* ---- cutting ---------------------------------------------------------------------------------------- */

static size_t input_rows(const conv *c, size_t out_rows) {
    return (out_rows - 1) * c->stride_h + (c->kernel_h - 1) * c->dilation_h + 1;
}

static size_t input_columns(const conv *c, size_t out_columns) {
    return (out_columns - 1) * c->stride_w + (c->kernel_w - 1) * c->dilation_w + 1;
}

/* Floats of one position of a strip. */
static size_t depth(const conv *c, const conv_cut *t) {
    return c->kind == CONV_PLANAR      ? t->in_blocks
           : c->kind == CONV_DEPTHWISE ? CONV_BLOCK
                                       : t->in_blocks * CONV_BLOCK;
}

static void cut_image(const conv *c, conv_cut *t) {
    const size_t position = depth(c, t) * sizeof(float);
    t->columns = c->out_w;
    while (t->columns > 14 && input_rows(c, 1) * input_columns(c, t->columns) * position > STRIP_BYTES) {
        t->columns = div_up(t->columns, 2);
    }
    t->column_strips = div_up(c->out_w, t->columns);
    t->strip_w = input_columns(c, t->columns);
    t->rows = 1;
    while (t->rows < c->out_h && input_rows(c, t->rows + 1) * t->strip_w * position <= STRIP_BYTES) t->rows++;
    t->strips = div_up(c->out_h, t->rows);
    t->rows = div_up(c->out_h, t->strips);
    t->strips = div_up(c->out_h, t->rows);
    t->strip_h = input_rows(c, t->rows);
    t->strip_floats = (t->strip_h * t->strip_w * depth(c, t) + 15) / 16 * 16;
}

/* Of one strip of rows up to `most`: where there are few panels, their weights may be read again. */
static void shorten(const conv *c, conv_cut *t, size_t most) {
    if (t->strips != 1) return;
    t->rows = div_up(c->out_h, smaller(most, c->out_h));
    t->strips = div_up(c->out_h, t->rows);
    t->strip_h = input_rows(c, t->rows);
    t->strip_floats = (t->strip_h * t->strip_w * depth(c, t) + 15) / 16 * 16;
}

/* Channels of a run: whole blocks; or fewer, where blocks are not filled by a window's channels, so that the
 * others cost nothing. */
static size_t run_of(const conv *c, size_t blocks) {
    const size_t in = c->in_channels / c->groups, rest = in % CONV_BLOCK;
    const size_t run = rest % 8 == 0 ? 8 : rest % 4 == 0 ? 4 : 2;
    const bool worth = rest != 0 && rest % 2 == 0;
    return worth && c->kernel_h * c->kernel_w * blocks * (CONV_BLOCK / run) <= MAX_RUNS ? run : CONV_BLOCK;
}

/* Runs of a group; planar: of all. */
static size_t runs_of(const conv *c, const conv_cut *t, size_t group) {
    if (c->kind == CONV_PLANAR) return c->in_channels * c->kernel_h;
    const window w = window_of(c, t->windows, t->panels, group);
    return c->kernel_h * c->kernel_w * ((w.end + t->run - 1) / t->run - w.begin / t->run);
}

static bool reads_in_place(const conv *c) {
    return c->kernel_h * c->kernel_w == 1 && c->up_h == 0 && c->stride_h == 1 && c->stride_w == 1 &&
           c->pad_top == 0 && c->pad_left == 0;
}

bool conv_takes_function(const conv *c) {
    return c->kind != CONV_WINOGRAD && c->kind != CONV_PLANAR && !c->every && !reads_in_place(c);
}

static conv_cut cut_of(const conv *c) {
    conv_cut t = {.run = CONV_BLOCK};
    const size_t in = c->in_channels / c->groups, taps = c->kernel_h * c->kernel_w;
    t.groups = c->groups;
    if (c->kind == CONV_DEPTHWISE) {
        t.groups = conv_blocks(c->out_channels);
        t.k = taps;
        t.parts = t.panels = t.in_blocks = 1;
        cut_image(c, &t);
        return t;
    }
    t.panels = conv_blocks(c->out_channels / c->groups);
    if (c->kind == CONV_PLANAR) {
        t.in_blocks = in;
        t.run = c->kernel_w;
    } else {
        t.in_blocks = conv_blocks(in);
        t.windows = !is_whole(c);
        if (t.windows) {
            t.panels = window_panels(c);
            t.groups = conv_blocks(c->out_channels) / t.panels;
            (void)window_cost(c, t.panels, &t.in_blocks);
        }
        t.run = run_of(c, t.in_blocks);
        t.direct = reads_in_place(c) && c->out_h == c->in_h && c->out_w == c->in_w;
    }
    for (size_t g = 0; g < (t.windows ? t.groups : 1); g++) {
        const size_t k = runs_of(c, &t, g) * t.run;
        if (k > t.k) t.k = k;
    }
    if (t.direct) {
        t.strips = div_up(c->out_h * c->out_w, DIRECT_PIXELS);
        t.rows = div_up(c->out_h * c->out_w, t.strips);
        t.strips = div_up(c->out_h * c->out_w, t.rows);
        t.column_strips = 1;
    } else {
        cut_image(c, &t);
    }
    const size_t fit = PART_BYTES / (t.k * GEMM_PANEL * sizeof(float));
    t.parts = div_up(t.panels, fit < 2 ? 2 : fit);
    if (conv_spreads(c)) { /* a pixel's channels lie in several panels */
        t.parts = 1;
        t.spread_floats = (t.direct ? t.rows : t.columns) * t.panels * GEMM_PANEL;
        return t;
    }
    const size_t units = t.strips * t.column_strips * t.groups;
    if (t.parts * units < LEAST_UNITS) t.parts = smaller(div_up(LEAST_UNITS, units), div_up(t.panels, 2));
    if (t.parts * units < LEAST_UNITS && !t.direct) shorten(c, &t, div_up(LEAST_UNITS, t.parts * units));
    return t;
}

size_t conv_units(const conv *c, size_t batch) {
    if (c->kind == CONV_WINOGRAD) return winograd_units(c, batch);
    const conv v = product_of(c);
    const conv_cut t = cut_of(&v);
    return batch * t.groups * t.strips * t.column_strips * t.parts;
}

size_t conv_scratch_floats(const conv *c) {
    if (c->kind == CONV_WINOGRAD) return winograd_scratch_floats(c);
    const conv v = product_of(c);
    const conv_cut t = cut_of(&v);
    return t.strip_floats + t.spread_floats + (c->kind == CONV_DEPTHWISE ? 0 : gemm_scratch_floats(t.k)) + 16;
}

/* ---- weights ---------------------------------------------------------------------------------------- */

/* Floats of the groups before this one. */
static size_t packed_at(const conv *c, const conv_cut *t, size_t group) {
    const size_t each = t->panels * t->run * GEMM_PANEL;
    if (!t->windows) return group * runs_of(c, t, 0) * each;
    size_t runs = 0;
    for (size_t g = 0; g < group; g++) runs += runs_of(c, t, g);
    return runs * each;
}

size_t conv_packed_floats(const conv *c) {
    if (c->kind == CONV_WINOGRAD) return winograd_packed_floats(c);
    const conv v = product_of(c);
    const conv_cut t = cut_of(&v);
    if (c->kind == CONV_DEPTHWISE) return conv_blocks(c->out_channels) * t.k * CONV_BLOCK;
    return packed_at(&v, &t, t.groups);
}

/* Where a run of weights comes from: input channel and tap. */
typedef struct source {
    uint32_t channel, tap;
} source;

/* Runs of a group in their order; not of planar input. Returns how many. */
static size_t list_sources(const conv *c, const conv_cut *t, size_t group, source *out) {
    const window w = window_of(c, t->windows, t->panels, group);
    size_t n = 0;
    for (size_t b = w.first; b < w.first + w.blocks; b++) {
        for (size_t tap = 0; tap < c->kernel_h * c->kernel_w; tap++) {
            for (size_t i = b * CONV_BLOCK; i < (b + 1) * CONV_BLOCK; i += t->run) {
                if (i + t->run > w.begin && i < w.end) out[n++] = (source){(uint32_t)i, (uint32_t)tap};
            }
        }
    }
    return n;
}

/* The weight of output `own` and input `channel`, of all channels; NULL: they do not belong together. v is
 * c's product, whose outputs and taps these are. */
static const float *weight_of(const conv *c, const conv *v, const float *weights, size_t own, size_t channel,
                              size_t tap) {
    if (conv_spreads(c) && !c->every) { /* the pixel's own taps begin later by its place */
        const size_t pixel = own / c->out_channels, column = tap % v->kernel_w;
        const size_t begin = pixel * c->stride_w, at = (column - begin) / c->dilation_w;
        if (own >= v->out_channels || column < begin || (column - begin) % c->dilation_w || at >= c->kernel_w)
            return NULL;
        return weights +
               ((own % c->out_channels * c->in_channels + channel) * c->kernel_h + tap / v->kernel_w) *
                   c->kernel_w +
               at;
    }
    c = v;
    const size_t in = c->in_channels / c->groups, out = c->out_channels / c->groups;
    if (own >= c->out_channels || channel < own / out * in || channel >= (own / out + 1) * in) return NULL;
    return weights + (own * in + channel - own / out * in) * c->kernel_h * c->kernel_w + tap;
}

static void pack_row(const conv *c, const conv *v, const conv_cut *t, const float *weights, size_t group,
                     size_t panel, size_t channel, size_t tap, float *to) {
    const size_t out = v->out_channels / v->groups, lane0 = panel * GEMM_PANEL;
    const size_t first = t->windows ? group * t->panels * GEMM_PANEL : group * out;
    for (size_t l = 0; l < GEMM_PANEL; l++) {
        const bool there = (t->windows || lane0 + l < out) && channel < v->in_channels;
        const float *w = there ? weight_of(c, v, weights, first + lane0 + l, channel, tap) : NULL;
        to[l] = w ? *w : 0.0f;
    }
}

/* A panel of whole blocks of channels, which lie in the weights one after the other. */
static void pack_panel(const conv *v, const conv_cut *t, const float *weights, size_t group, size_t panel,
                       float *to) {
    const size_t in = v->in_channels / v->groups, out = v->out_channels / v->groups;
    const size_t taps = v->kernel_h * v->kernel_w, lanes = smaller(out - panel * GEMM_PANEL, GEMM_PANEL);
    const float *first = weights + (group * out + panel * GEMM_PANEL) * in * taps;
    for (size_t b = 0; b < t->in_blocks; b++, to += taps * CONV_BLOCK * GEMM_PANEL) {
        const size_t channels = smaller(in - b * CONV_BLOCK, CONV_BLOCK);
        if (channels < CONV_BLOCK || lanes < GEMM_PANEL)
            memset(to, 0, taps * CONV_BLOCK * GEMM_PANEL * sizeof *to);
        for (size_t l = 0; l < lanes; l++) {
            const float *from = first + (l * in + b * CONV_BLOCK) * taps;
            for (size_t tap = 0; tap < taps; tap++) {
                float *at = to + tap * CONV_BLOCK * GEMM_PANEL + l;
                for (size_t i = 0; i < channels; i++) at[i * GEMM_PANEL] = from[i * taps + tap];
            }
        }
    }
}

/* Panels [p0, p1) of a group, of which `to` is the first one. */
static void pack_group(const conv *c, const conv *v, const conv_cut *t, const float *weights, size_t group,
                       size_t p0, size_t p1, float *to) {
    source sources[MAX_RUNS];
    const size_t taps = v->kernel_h * v->kernel_w;
    const bool plain = v->kind == CONV_BLOCKED && !t->windows && t->run == CONV_BLOCK && !conv_spreads(c);
    const size_t n = v->kind == CONV_PLANAR || plain ? 0 : list_sources(v, t, group, sources);
    for (size_t p = p0; p < p1 && plain; p++)
        pack_panel(v, t, weights, group, p, to + (p - p0) * t->in_blocks * taps * CONV_BLOCK * GEMM_PANEL);
    for (size_t p = p0; p < p1 && !plain; p++) {
        for (size_t k = 0; v->kind == CONV_PLANAR && k < t->k; k++, to += GEMM_PANEL)
            pack_row(c, v, t, weights, group, p, k / taps, k % taps, to);
        for (size_t k = 0; k < n * t->run; k++, to += GEMM_PANEL) {
            const source *s = &sources[k / t->run];
            pack_row(c, v, t, weights, group, p, s->channel + k % t->run, s->tap, to);
        }
    }
}

static void pack_depthwise(const conv *c, const conv_cut *t, const float *weights, float *out) {
    for (size_t b = 0; b < conv_blocks(c->out_channels); b++) {
        for (size_t tap = 0; tap < t->k; tap++) {
            for (size_t l = 0; l < CONV_BLOCK; l++) {
                const size_t o = b * CONV_BLOCK + l;
                *out++ = o < c->out_channels ? weights[o * t->k + tap] : 0.0f;
            }
        }
    }
}

size_t conv_pack_parts(const conv *c) {
    if (c->kind == CONV_WINOGRAD) return conv_blocks(c->out_channels);
    const conv v = product_of(c);
    const conv_cut t = cut_of(&v);
    return c->kind == CONV_DEPTHWISE ? 1 : t.groups * t.panels;
}

void conv_pack(const conv *c, const float *weights, size_t part0, size_t part1, float *out) {
    if (c->kind == CONV_WINOGRAD) {
        winograd_pack(c, weights, part0, part1, out);
        return;
    }
    const conv v = product_of(c);
    const conv_cut t = cut_of(&v);
    if (c->kind == CONV_DEPTHWISE) {
        pack_depthwise(c, &t, weights, out);
        return;
    }
    for (size_t at = part0; at < part1;) {
        const size_t g = at / t.panels, p0 = at % t.panels, p1 = smaller(t.panels, p0 + part1 - at);
        const size_t begin = packed_at(&v, &t, g), all = packed_at(&v, &t, g + 1) - begin;
        pack_group(c, &v, &t, weights, g, p0, p1, out + begin + all / t.panels * p0);
        at += p1 - p0;
    }
}

size_t conv_bias_floats(const conv *c) {
    const conv v = product_of(c);
    return conv_blocks(v.out_channels) * CONV_BLOCK;
}

void conv_pack_bias(const conv *c, const float *bias, float *out) {
    const conv v = product_of(c);
    for (size_t i = 0; i < v.out_channels; i++) out[i] = bias[i % c->out_channels];
}

/* ---- strips ----------------------------------------------------------------------------------------- */

typedef struct place {
    size_t image, group;               /* depthwise: block of channels */
    size_t row, rows, column, columns; /* of the output; direct: pixels */
    size_t strip;                      /* number, to tell whether the copy is still the right one */
    size_t p0, p1;                     /* panels of the group */
} place;

static place place_of(const conv *c, const conv_cut *t, size_t unit) {
    place p = {0};
    const size_t part = unit % t->parts;
    p.p0 = t->panels * part / t->parts;
    p.p1 = t->panels * (part + 1) / t->parts;
    unit /= t->parts;
    p.strip = unit;
    const size_t column = unit % t->column_strips;
    unit /= t->column_strips;
    const size_t row = unit % t->strips;
    unit /= t->strips;
    p.group = unit % t->groups;
    p.image = unit / t->groups;
    p.row = row * t->rows;
    p.rows = smaller(t->rows, (t->direct ? c->out_h * c->out_w : c->out_h) - p.row);
    p.column = column * t->columns;
    p.columns = t->direct ? 0 : smaller(t->columns, c->out_w - p.column);
    return p;
}

/* One row of one plane or block into the strip: `width` positions from input column x on, zeros outside. */
static void copy_row(const kernels *k, const conv *c, const float *from, ptrdiff_t x, size_t width,
                     size_t floats, float *to) {
    size_t before = x < 0 ? smaller((size_t)-x, width) : 0;
    memset(to, 0, before * floats * sizeof *to);
    const size_t first = x < 0 ? 0 : (size_t)x;
    size_t inside = first < c->in_w ? smaller(c->in_w - first, width - before) : 0;
    if (inside && c->before) {
        k->unary(c->input, c->input_p, c->input_q, from + first * floats, to + before * floats,
                 inside * floats);
    } else if (inside) {
        memcpy(to + before * floats, from + first * floats, inside * floats * sizeof *to);
    }
    memset(to + (before + inside) * floats, 0, (width - before - inside) * floats * sizeof *to);
}

static void copy_strip(const kernels *k, const conv_job *job, const conv *c, const conv_cut *t,
                       const place *p, float *strip) {
    const size_t floats = c->kind == CONV_PLANAR ? 1 : CONV_BLOCK, plane = c->in_h * c->in_w * floats;
    const size_t planes = c->kind == CONV_PLANAR ? c->in_channels : conv_blocks(c->in_channels);
    const window w = window_of(c, t->windows, t->panels, p->group);
    const bool planar = c->kind == CONV_PLANAR, depthwise = c->kind == CONV_DEPTHWISE;
    const size_t first = planar ? 0 : depthwise ? p->group : w.first;
    const size_t copied = planar ? c->in_channels : depthwise ? 1 : w.blocks;
    const float *in = job->in + (p->image * planes + first) * plane;
    const size_t height = input_rows(c, p->rows), width = input_columns(c, p->columns);
    const ptrdiff_t x = (ptrdiff_t)(p->column * c->stride_w) - (ptrdiff_t)c->pad_left;
    for (size_t b = 0; b < copied; b++, in += plane) {
        for (size_t i = 0; i < height; i++) {
            const ptrdiff_t y = (ptrdiff_t)(p->row * c->stride_h + i) - (ptrdiff_t)c->pad_top;
            float *to = strip + (b * t->strip_h + i) * t->strip_w * floats;
            if (y < 0 || (size_t)y >= c->in_h) {
                memset(to, 0, width * floats * sizeof *to);
            } else {
                copy_row(k, c, in + (size_t)y * c->in_w * floats, x, width, floats, to);
            }
        }
    }
}

/* Offsets of the runs of a group from a pixel's first value. */
static size_t list_runs(const conv *c, const conv_cut *t, size_t group, ptrdiff_t *runs) {
    size_t n = 0;
    if (c->kind != CONV_BLOCKED) {
        const bool planar = c->kind == CONV_PLANAR;
        for (size_t b = 0; b < t->in_blocks; b++) {
            for (size_t i = 0; i < c->kernel_h; i++) {
                const size_t row = (b * t->strip_h + i * c->dilation_h) * t->strip_w;
                for (size_t j = 0; j < (planar ? 1 : c->kernel_w); j++)
                    runs[n++] = (ptrdiff_t)(planar ? row : (row + j * c->dilation_w) * CONV_BLOCK);
            }
        }
        return n;
    }
    source sources[MAX_RUNS];
    const size_t first = window_of(c, t->windows, t->panels, group).first;
    n = list_sources(c, t, group, sources);
    for (size_t s = 0; s < n; s++) {
        const size_t b = sources[s].channel / CONV_BLOCK - first, lane = sources[s].channel % CONV_BLOCK;
        const size_t row = b * t->strip_h + sources[s].tap / c->kernel_w * c->dilation_h;
        const size_t pixel = t->direct ? b * c->in_h * c->in_w
                                       : row * t->strip_w + sources[s].tap % c->kernel_w * c->dilation_w;
        runs[s] = (ptrdiff_t)(pixel * CONV_BLOCK + lane);
    }
    return n;
}

/* ---- running ---------------------------------------------------------------------------------------- */

void conv_activate(const kernels *k, const conv *c, float *y, size_t n) {
    if (c->activate) k->unary(c->function, c->p, c->q, y, y, n);
    if (c->affine) k->unary(UNARY_F32_LINEAR, c->scale, c->shift, y, y, n);
}

/* Floats of a pixel of the result. */
static size_t result_floats(const conv *c) {
    return c->single ? 1 : CONV_BLOCK;
}

/* Rows of outputs that were just written, still in the nearest cache. */
static void activate(const kernels *k, const conv *c, float *y, size_t pixels) {
    conv_activate(k, c, y, pixels * result_floats(c));
}

/* Pixels of the image that the result lies in, and the distance of two of a row. */
static size_t result_pixels(const conv *c) {
    return c->up_h ? c->full_h * c->full_w : c->out_h * c->out_w;
}

static size_t result_step(const conv *c) {
    return c->up_h ? c->up_w : 1;
}

/* Offset of a pixel of a block in the result, in floats. */
static size_t result_at(const conv *c, size_t block, size_t y, size_t x) {
    const size_t pixel =
        c->up_h ? (y * c->up_h + c->at_h) * c->full_w + x * c->up_w + c->at_w : y * c->out_w + x;
    return (block * result_pixels(c) + pixel) * result_floats(c);
}

static void run_depthwise(const kernels *k, const conv_job *job, const conv_cut *t, const place *p,
                          const ptrdiff_t *taps, const float *strip) {
    const conv *c = job->c;
    const size_t blocks = conv_blocks(c->out_channels);
    for (size_t i = 0; i < p->rows; i++) {
        const size_t at =
            (((p->image * blocks + p->group) * c->out_h + p->row + i) * c->out_w + p->column) * CONV_BLOCK;
        k->depthwise_row(strip + i * c->stride_h * t->strip_w * CONV_BLOCK, c->stride_w * CONV_BLOCK, taps,
                         t->k, job->packed + p->group * t->k * CONV_BLOCK,
                         job->bias ? job->bias + p->group * CONV_BLOCK : NULL,
                         job->add ? job->add + at : NULL, c->low, c->high, job->out + at, p->columns);
        activate(k, c, job->out + at, p->columns);
    }
}

/* What is the same in all rows of a unit; v is the convolution that the product computes. */
static gemm product(const conv_job *job, const conv *v, const conv_cut *t, const place *p,
                    const ptrdiff_t *runs, size_t n_runs) {
    const size_t floats = v->kind == CONV_PLANAR ? 1 : CONV_BLOCK;
    return (gemm){.n = v->single ? 1 : t->panels * GEMM_PANEL,
                  .k = n_runs * t->run,
                  .a_row = v->stride_w * floats,
                  .a_k = v->kind == CONV_PLANAR ? v->dilation_w : 1,
                  .runs = runs,
                  .n_runs = n_runs,
                  .run = t->run,
                  .b = job->packed + packed_at(v, t, p->group),
                  .bias = job->bias ? job->bias + p->group * t->panels * GEMM_PANEL : NULL,
                  .low = v->low,
                  .high = v->high,
                  .half = v->groups == 1 && !v->single && conv_ends_half(v->out_channels),
                  .stop = job->stop};
}

/* Where the rows of a strip, or the image, begin. */
static const float *rows_at(const conv_job *job, const conv *v, const conv_cut *t, const place *p,
                            const float *strip) {
    if (!t->direct) return strip;
    const size_t begin = window_of(v, t->windows, t->panels, p->group).first;
    return job->in + (p->image * conv_blocks(v->in_channels) + begin) * v->in_h * v->in_w * CONV_BLOCK;
}

static void run_products(const kernels *k, const conv_job *job, const conv_cut *t, const place *p,
                         const ptrdiff_t *runs, size_t n_runs, const float *strip, float *scratch) {
    const conv *c = job->c;
    const size_t blocks = conv_blocks(c->out_channels), pixels = result_pixels(c);
    const size_t step = result_step(c) * result_floats(c),
                 to_next = c->single ? GEMM_PANEL : pixels * CONV_BLOCK;
    const size_t first = p->image * blocks + p->group * t->panels;
    const size_t floats = c->kind == CONV_PLANAR ? 1 : CONV_BLOCK;
    gemm g = product(job, c, t, p, runs, n_runs);
    g.a = rows_at(job, c, t, p, strip);
    g.c_row = g.add_row = step;
    g.c_panel = g.add_panel = to_next;
    if (t->direct) {
        g.c = job->out + first * pixels * result_floats(c);
        g.add = job->add ? job->add + first * pixels * result_floats(c) : NULL;
        gemm_run(k, &g, p->row, p->row + p->rows, p->p0, p->p1, scratch);
        for (size_t b = p->p0; b < p->p1; b++)
            activate(k, c, g.c + (b * pixels + p->row) * result_floats(c), p->rows);
        return;
    }
    for (size_t i = 0; i < p->rows; i++) {
        const size_t at = result_at(c, first, p->row + i, p->column);
        g.a = strip + i * c->stride_h * t->strip_w * floats;
        g.c = job->out + at;
        g.add = job->add ? job->add + at : NULL;
        gemm_run(k, &g, 0, p->columns, p->p0, p->p1, scratch);
        for (size_t b = p->p0; b < p->p1; b++) {
            float *y = g.c + b * pixels * result_floats(c);
            const bool apart = result_step(c) > 1;
            for (size_t j = 0; apart && j < p->columns; j++) activate(k, c, y + j * step, 1);
            if (!apart) activate(k, c, y, p->columns);
        }
    }
}

/* ---- several pixels at once ------------------------------------------------------------------------- */

/* One pixel's channels to its place in every block, zeros behind them. */
static void put_pixel(const conv *c, const float *from, size_t plane, float *to) {
    for (size_t o = 0; o < c->out_channels; o += CONV_BLOCK, to += plane) {
        const size_t n = smaller(c->out_channels - o, CONV_BLOCK);
        for (size_t l = 0; l < n; l++) to[l] = from[o + l];
        for (size_t l = n; l < CONV_BLOCK; l++) to[l] = 0.0f;
    }
}

/* Positions [0, n) of the product, the first at row y and column x of its own image, taken apart into the
 * result. from: [n][columns]. */
static void spread(const conv_job *job, const conv *v, size_t image, size_t y, size_t x, size_t n,
                   const float *from, size_t columns) {
    const conv *c = job->c;
    const size_t high = c->every ? c->up_h : 1, wide = c->every ? c->up_w : c->across;
    const size_t row = c->every ? c->full_w : c->out_w, plane = result_pixels(c) * result_floats(c);
    float *out = job->out + image * conv_blocks(c->out_channels) * plane;
    for (size_t i = 0; i < n; i++, x++) {
        if (x == v->out_w) {
            x = 0;
            y++;
        }
        const size_t there = smaller(wide, row - x * wide);
        for (size_t h = 0; h < high; h++) {
            const float *pixel = from + i * columns + h * wide * c->out_channels;
            float *to = out + ((y * high + h) * row + x * wide) * result_floats(c);
            for (size_t w = 0; w < there; w++) {
                if (c->single) {
                    to[w] = pixel[w];
                } else {
                    put_pixel(c, pixel + w * c->out_channels, plane, to + w * CONV_BLOCK);
                }
            }
        }
    }
}

static void run_spread(const kernels *k, const conv_job *job, const conv *v, const conv_cut *t,
                       const place *p, const ptrdiff_t *runs, size_t n_runs, const float *strip, float *made,
                       float *scratch) {
    const conv *c = job->c;
    const size_t floats = v->kind == CONV_PLANAR ? 1 : CONV_BLOCK, columns = v->out_channels;
    gemm g = product(job, v, t, p, runs, n_runs);
    g.n = columns; /* rows lie one behind the other, without what fills a panel */
    g.c = made;
    g.c_row = columns;
    g.c_panel = GEMM_PANEL;
    const size_t rows = t->direct ? 1 : p->rows, n = t->direct ? p->rows : p->columns;
    for (size_t i = 0; i < rows; i++) {
        g.a = t->direct ? rows_at(job, v, t, p, strip) + p->row * CONV_BLOCK
                        : strip + i * v->stride_h * t->strip_w * floats;
        gemm_run(k, &g, 0, n, 0, t->panels, scratch);
        conv_activate(k, c, made, n * columns);
        const size_t y = t->direct ? p->row / v->out_w : p->row + i;
        spread(job, v, p->image, y, t->direct ? p->row % v->out_w : p->column, n, made, columns);
    }
}

/* ---- units ------------------------------------------------------------------------------------------ */

void conv_run(const kernels *k, const conv_job *job, size_t unit0, size_t unit1, float *scratch) {
    const conv *c = job->c;
    if (c->kind == CONV_WINOGRAD) {
        winograd_run(k, job, unit0, unit1, scratch);
        return;
    }
    const conv v = product_of(c);
    const conv_cut t = cut_of(&v);
    ptrdiff_t runs[MAX_RUNS];
    size_t n_runs = 0,
           listed = SIZE_MAX; /* the group whose runs they are; of one kind unless windows differ */
    float *strip = scratch, *made = strip + t.strip_floats;
    scratch = made + t.spread_floats;
    size_t copied = SIZE_MAX;
    for (size_t unit = unit0; unit < unit1 && !stop_now(job->stop); unit++) {
        const place p = place_of(&v, &t, unit);
        if (listed == SIZE_MAX || (t.windows && listed != p.group)) {
            n_runs = list_runs(&v, &t, p.group, runs);
            listed = p.group;
        }
        if (!t.direct && p.strip != copied) {
            copy_strip(k, job, &v, &t, &p, strip);
            copied = p.strip;
        }
        if (c->kind == CONV_DEPTHWISE) {
            run_depthwise(k, job, &t, &p, runs, strip);
        } else if (conv_spreads(c)) {
            run_spread(k, job, &v, &t, &p, runs, n_runs, strip, made, scratch);
        } else {
            run_products(k, job, &t, &p, runs, n_runs, strip, scratch);
        }
    }
}

/* ---- layout ----------------------------------------------------------------------------------------- */

void conv_block(const float *planar, size_t channels, size_t pixels, size_t b, float *blocked) {
    const size_t first = b * CONV_BLOCK, n = smaller(channels - first, CONV_BLOCK);
    const float *from = planar + first * pixels;
    for (size_t i = 0; i < pixels; i++) {
        for (size_t l = 0; l < CONV_BLOCK; l++)
            blocked[i * CONV_BLOCK + l] = l < n ? from[l * pixels + i] : 0.0f;
    }
}

void conv_unblock(const float *blocked, size_t channels, size_t pixels, size_t b, float *planar) {
    enum { TOGETHER = 64 }; /* pixels, which stay in the nearest cache */
    const size_t first = b * CONV_BLOCK, n = smaller(channels - first, CONV_BLOCK);
    float *to = planar + first * pixels;
    for (size_t p = 0; p < pixels; p += TOGETHER) {
        const size_t end = smaller(p + TOGETHER, pixels);
        for (size_t l = 0; l < n; l++) {
            for (size_t i = p; i < end; i++) to[l * pixels + i] = blocked[i * CONV_BLOCK + l];
        }
    }
}
