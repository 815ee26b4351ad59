/* winograd.c: patches, units and weights of F(4x4, 3x3); the arithmetic is the instruction sets'. See
 * winograd.h. */
#include "kernel/winograd.h"

#include <math.h>
#include <string.h>

/* Bytes of transformed patches that a unit goes through: they stay in the second-level cache. */
enum {
    PATCH_BYTES = 384 << 10,
    LEAST_PATCHES = 14,
    MOST_PATCHES = 112,
    LEAST_UNITS = 8,
    TOGETHER = 2, /* panels whose sums are kept at once, and whose weights lie together */
    PATCH = WINOGRAD_IN * WINOGRAD_IN * CONV_BLOCK,
    RESULT = WINOGRAD_OUT * WINOGRAD_OUT * CONV_BLOCK
};

typedef struct wino_cut {
    size_t across, patches; /* of an image */
    size_t group, groups;   /* patches that are transformed together */
    size_t panels, pairs;   /* of the output channels */
    size_t parts;           /* the pairs are cut into */
    size_t a_row, point;    /* floats from patch to patch and from point to point, transformed */
} wino_cut;

static size_t div_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

bool winograd_can(const conv *c) {
    return (c->kind == CONV_BLOCKED || c->kind == CONV_WINOGRAD) && c->groups == 1 && c->kernel_h == 3 &&
           c->kernel_w == 3 && c->stride_h == 1 && c->stride_w == 1 && c->dilation_h == 1 &&
           c->dilation_w == 1 && c->up_h == 0 && !c->single;
}

static wino_cut cut_of(const conv *c) {
    wino_cut t = {.across = div_up(c->out_w, WINOGRAD_OUT), .panels = conv_blocks(c->out_channels)};
    t.patches = t.across * div_up(c->out_h, WINOGRAD_OUT);
    t.a_row = conv_blocks(c->in_channels) * CONV_BLOCK;
    if (t.a_row % 512 == 0) t.a_row += CONV_BLOCK; /* rows 2 KiB apart meet in few sets of the cache */
    size_t most = PATCH_BYTES / (WINOGRAD_POINTS * t.a_row * sizeof(float));
    most = most < LEAST_PATCHES ? LEAST_PATCHES : smaller(most, MOST_PATCHES);
    t.groups = div_up(t.patches, most);
    t.group = div_up(t.patches, t.groups);
    t.groups = div_up(t.patches, t.group);
    t.pairs = div_up(t.panels, TOGETHER);
    t.parts = t.groups < LEAST_UNITS ? smaller(div_up(LEAST_UNITS, t.groups), t.pairs) : 1;
    if (2 * t.groups * t.parts < LEAST_UNITS && t.patches >= LEAST_PATCHES) { /* an even number, one tile high */
        t.group = div_up(t.patches, 2 * div_up(t.patches, 2 * LEAST_PATCHES));
        t.groups = div_up(t.patches, t.group);
    }
    t.point = t.group * t.a_row;
    return t;
}

size_t winograd_units(const conv *c, size_t batch) {
    const wino_cut t = cut_of(c);
    return batch * t.groups * t.parts;
}

size_t winograd_scratch_floats(const conv *c) {
    const wino_cut t = cut_of(c);
    return WINOGRAD_POINTS * (t.point + t.group * TOGETHER * GEMM_PANEL) + PATCH + 2 * RESULT;
}

/* ---- weights ---------------------------------------------------------------------------------------- */

size_t winograd_packed_floats(const conv *c) {
    return WINOGRAD_POINTS * conv_blocks(c->out_channels) * c->in_channels * GEMM_PANEL;
}

/* Rows of G: powers of a point over the product of its distances to the other finite points. */
static void point_rows(double g[WINOGRAD_IN][3]) {
    static const double at[] = {0, 0.75, -0.75, 1.5, -1.5};
    for (size_t i = 0; i < 5; i++) {
        double distances = 1;
        for (size_t j = 0; j < 5; j++) distances *= j == i ? 1 : at[i] - at[j];
        g[i][0] = 1 / distances;
        g[i][1] = at[i] / distances;
        g[i][2] = at[i] * at[i] / distances;
    }
    g[5][0] = g[5][1] = 0;
    g[5][2] = 1;
}

/* u = G w G' of 16 outputs at once: w[tap * GEMM_PANEL + lane], u[point * GEMM_PANEL + lane]. */
static void transform_weights(double g[WINOGRAD_IN][3], const double *w, float *u) {
    double half[WINOGRAD_IN * 3 * GEMM_PANEL];
    for (size_t i = 0; i < WINOGRAD_IN; i++) {
        for (size_t j = 0; j < 3 * GEMM_PANEL; j++)
            half[i * 3 * GEMM_PANEL + j] =
                g[i][0] * w[j] + g[i][1] * w[3 * GEMM_PANEL + j] + g[i][2] * w[6 * GEMM_PANEL + j];
    }
    for (size_t i = 0; i < WINOGRAD_IN; i++) {
        const double *row = half + i * 3 * GEMM_PANEL;
        for (size_t j = 0; j < WINOGRAD_IN; j++, u += GEMM_PANEL) {
            for (size_t l = 0; l < GEMM_PANEL; l++)
                u[l] = (float)(row[l] * g[j][0] + row[GEMM_PANEL + l] * g[j][1] +
                               row[2 * GEMM_PANEL + l] * g[j][2]);
        }
    }
}

/* [pair][point][panel of the pair][in channel][16]: a unit reads from beginning to end. */
static size_t packed_at(const conv *c, size_t panel, size_t point) {
    const size_t panels = conv_blocks(c->out_channels), first = panel / TOGETHER * TOGETHER;
    const size_t pair = smaller(panels - first, TOGETHER);
    return ((first * WINOGRAD_POINTS + point * pair + panel - first) * c->in_channels) * GEMM_PANEL;
}

/* Written by whole lines, since points lie far apart. */
void winograd_pack(const conv *c, const float *weights, size_t p0, size_t p1, float *out) {
    const size_t in = c->in_channels;
    double g[WINOGRAD_IN][3];
    float lines[WINOGRAD_POINTS * GEMM_PANEL];
    double taps[9 * GEMM_PANEL] = {0};
    point_rows(g);
    for (size_t p = p0; p < p1; p++) {
        const size_t first = p * GEMM_PANEL, n = smaller(c->out_channels - first, GEMM_PANEL);
        if (n < GEMM_PANEL) memset(taps, 0, sizeof taps);
        for (size_t i = 0; i < in; i++) {
            for (size_t l = 0; l < n; l++) {
                for (size_t t = 0; t < 9; t++)
                    taps[t * GEMM_PANEL + l] = (double)weights[((first + l) * in + i) * 9 + t];
            }
            transform_weights(g, taps, lines);
            for (size_t k = 0; k < WINOGRAD_POINTS; k++)
                memcpy(out + packed_at(c, p, k) + i * GEMM_PANEL, lines + k * GEMM_PANEL,
                       GEMM_PANEL * sizeof *out);
        }
    }
}

/* ---- patches ---------------------------------------------------------------------------------------- */

/* A patch that reaches over the image's border, with zeros there. */
static void copy_patch(const conv *c, const float *block, ptrdiff_t y, ptrdiff_t x, float *to) {
    memset(to, 0, PATCH * sizeof *to);
    for (ptrdiff_t i = 0; i < WINOGRAD_IN; i++) {
        if (y + i < 0 || y + i >= (ptrdiff_t)c->in_h) continue;
        const ptrdiff_t from = x < 0 ? -x : 0,
                        end = x + WINOGRAD_IN > (ptrdiff_t)c->in_w ? (ptrdiff_t)c->in_w - x : WINOGRAD_IN;
        if (from >= end) continue;
        memcpy(to + (i * WINOGRAD_IN + from) * CONV_BLOCK,
               block + ((y + i) * (ptrdiff_t)c->in_w + x + from) * CONV_BLOCK,
               (size_t)(end - from) * CONV_BLOCK * sizeof *to);
    }
}

typedef struct wino_unit {
    size_t image, first, n; /* patches */
    size_t p0, p1;          /* panels */
} wino_unit;

static void transform_patches(const kernels *k, const conv_job *job, const wino_cut *t, const wino_unit *u,
                              float *v, float *patch) {
    const conv *c = job->c;
    const size_t blocks = conv_blocks(c->in_channels), plane = c->in_h * c->in_w * CONV_BLOCK;
    const float *in = job->in + u->image * blocks * plane;
    for (size_t i = 0; i < u->n; i++) {
        const size_t at = u->first + i;
        const ptrdiff_t y = (ptrdiff_t)(at / t->across * WINOGRAD_OUT) - (ptrdiff_t)c->pad_top;
        const ptrdiff_t x = (ptrdiff_t)(at % t->across * WINOGRAD_OUT) - (ptrdiff_t)c->pad_left;
        const bool inside = y >= 0 && x >= 0 && y + WINOGRAD_IN <= (ptrdiff_t)c->in_h &&
                            x + WINOGRAD_IN <= (ptrdiff_t)c->in_w;
        for (size_t b = 0; b < blocks; b++) {
            float *to = v + i * t->a_row + b * CONV_BLOCK;
            if (inside) {
                k->winograd_input(in + b * plane + (y * (ptrdiff_t)c->in_w + x) * CONV_BLOCK,
                                  c->in_w * CONV_BLOCK, to, t->point);
            } else {
                copy_patch(c, in + b * plane, y, x, patch);
                k->winograd_input(patch, WINOGRAD_IN * CONV_BLOCK, to, t->point);
            }
        }
    }
}

/* ---- results ---------------------------------------------------------------------------------------- */

static void copy_rows(const float *from, size_t from_row, size_t rows, size_t floats, float *to,
                      size_t to_row) {
    for (size_t i = 0; i < rows; i++) memcpy(to + i * to_row, from + i * from_row, floats * sizeof *to);
}

/* Patch i of the unit, panel p: sums at m, m_point apart. spare: [2 * RESULT]. */
static void finish_patch(const kernels *k, const conv_job *job, const wino_cut *t, const wino_unit *u,
                         size_t i, size_t p, const float *m, size_t m_point, float *spare) {
    const conv *c = job->c;
    const size_t at = u->first + i, y = at / t->across * WINOGRAD_OUT, x = at % t->across * WINOGRAD_OUT;
    const size_t rows = smaller(WINOGRAD_OUT, c->out_h - y), columns = smaller(WINOGRAD_OUT, c->out_w - x);
    const size_t place = (((u->image * t->panels + p) * c->out_h + y) * c->out_w + x) * CONV_BLOCK;
    const size_t row = c->out_w * CONV_BLOCK, short_row = WINOGRAD_OUT * CONV_BLOCK;
    const float *bias = job->bias ? job->bias + p * CONV_BLOCK : NULL,
                *add = job->add ? job->add + place : NULL;
    if (rows == WINOGRAD_OUT && columns == WINOGRAD_OUT && !c->activate && !c->affine) {
        k->winograd_output(m, m_point, bias, add, row, c->low, c->high, job->out + place, row);
        return;
    }
    float *add_copy = spare + RESULT;
    if (add) {
        memset(add_copy, 0, RESULT * sizeof *add_copy);
        copy_rows(add, row, rows, columns * CONV_BLOCK, add_copy, short_row);
    }
    k->winograd_output(m, m_point, bias, add ? add_copy : NULL, short_row, c->low, c->high, spare, short_row);
    conv_activate(k, c, spare, RESULT);
    copy_rows(spare, short_row, rows, columns * CONV_BLOCK, job->out + place, row);
}

static void run_panels(const kernels *k, const conv_job *job, const wino_cut *t, const wino_unit *u, size_t p,
                       size_t panels, const float *v, float *m, float *spare) {
    const conv *c = job->c;
    const size_t width = TOGETHER * GEMM_PANEL, m_point = t->group * width;
    for (size_t point = 0; point < WINOGRAD_POINTS; point++) {
        const gemm g = {.n = panels * GEMM_PANEL,
                        .k = c->in_channels,
                        .a = v + point * t->point,
                        .a_row = t->a_row,
                        .a_k = 1,
                        .n_runs = 1,
                        .run = c->in_channels,
                        .b = job->packed + packed_at(c, p, point),
                        .c = m + point * m_point,
                        .c_row = width,
                        .c_panel = GEMM_PANEL,
                        .low = -INFINITY,
                        .high = INFINITY,
                        .half = p + panels == t->panels && conv_ends_half(c->out_channels)};
        gemm_run(k, &g, 0, u->n, 0, panels, NULL); /* rows are read in place: a_row is no multiple of 512 */
    }
    for (size_t i = 0; i < u->n; i++) {
        for (size_t q = 0; q < panels; q++)
            finish_patch(k, job, t, u, i, p + q, m + i * width + q * GEMM_PANEL, m_point, spare);
    }
}

void winograd_run(const kernels *k, const conv_job *job, size_t unit0, size_t unit1, float *scratch) {
    const wino_cut t = cut_of(job->c);
    float *v = scratch, *m = v + WINOGRAD_POINTS * t.point,
          *patch = m + WINOGRAD_POINTS * t.group * TOGETHER * GEMM_PANEL, *spare = patch + PATCH;
    size_t transformed = SIZE_MAX;
    for (size_t unit = unit0; unit < unit1 && !stop_now(job->stop); unit++) {
        const size_t group = unit / t.parts, part = unit % t.parts;
        wino_unit u = {.image = group / t.groups,
                       .first = group % t.groups * t.group,
                       .p0 = t.pairs * part / t.parts * TOGETHER,
                       .p1 = smaller(t.pairs * (part + 1) / t.parts * TOGETHER, t.panels)};
        u.n = smaller(t.group, t.patches - u.first);
        if (group != transformed) transform_patches(k, job, &t, &u, v, patch);
        transformed = group;
        for (size_t p = u.p0; p < u.p1 && !stop_now(job->stop);) {
            const size_t panels = smaller(TOGETHER, u.p1 - p);
            run_panels(k, job, &t, &u, p, panels, v, m, spare);
            p += panels;
        }
    }
}
