/* resize.c: see resize.h. One way for all rules: rows are made across when a row of the output first needs
 * them, kept in a ring as high as the vertical weights reach, and summed down. What differs is the number in
 * between: u8 (Pillow's u8), i32 (OpenCV's u8) or f32 (all else). */
#include "media/resize.h"

#include "base/mem.h"
#include "media/taps.h"

#include <math.h>
#include <string.h>

bool resize_supports(resize_rule r, resize_filter f) {
    switch (r) {
    case RESIZE_PILLOW:
    case RESIZE_PILLOW_12: return (unsigned)f < RESIZE_FILTER_COUNT;
    case RESIZE_OPENCV: return (unsigned)f < RESIZE_FILTER_COUNT && f != RESIZE_HAMMING;
    case RESIZE_TORCHVISION: return f == RESIZE_NEAREST || f == RESIZE_BILINEAR || f == RESIZE_BICUBIC;
    default: return false;
    }
}

static size_t at_least_one(double x) {
    return x < 1.0 ? 1 : (size_t)x;
}

void resize_fit_size(resize_fit fit, size_t in_height, size_t in_width, size_t height, size_t width,
                     size_t *out_height, size_t *out_width) {
    const double h = (double)in_height, w = (double)in_width;
    const bool tall = in_height > in_width;
    const double a = (double)height / h, b = (double)width / w,
                 ratio = (fit == RESIZE_INSIDE) == (a < b) ? a : b;
    *out_height = height, *out_width = width;
    switch (fit) {
    case RESIZE_SHORTER:
    case RESIZE_LONGER: {
        const bool wide_moves = (fit == RESIZE_SHORTER) != tall; /* the side that follows is the width */
        *out_height = wide_moves ? height : at_least_one((double)height * h / w);
        *out_width = wide_moves ? at_least_one((double)height * w / h) : height;
        break;
    }
    case RESIZE_INSIDE:
        *out_height = at_least_one(rint(h * ratio));
        *out_width = at_least_one(rint(w * ratio));
        break;
    case RESIZE_COVER:
        *out_height = a >= b ? height : at_least_one(ceil(h * ratio));
        *out_width = b >= a ? width : at_least_one(ceil(w * ratio));
        break;
    default: break;
    }
}

/* ---- one image ------------------------------------------------------------------------------------------
 */

typedef enum middle { MIDDLE_U8, MIDDLE_I32, MIDDLE_F32 } middle;

typedef struct job {
    const kernels *k;
    const tensor *in;
    tensor *out;
    size_t channels, in_h, in_w, row; /* row: values of an output row */
    size_t from_x;                    /* of the window */
    taps across, down;
    bool across_none, down_none; /* same size: rows are taken as they are */
    bool down_first;             /* of rows as they are, then across */
    middle kind;
    bool f64;          /* sums in double (Pillow's mode F) */
    float last;        /* f32: the result's factor (INTER_AREA by whole factors) */
    bool two;          /* OpenCV's bilinear of u8 */
    bool halve;        /* INTER_AREA by 2 x 2: (sum + 2) / 4 */
    uint8_t *ring;     /* [down.per, row] of the kind */
    size_t ring_row;   /* bytes */
    size_t made;       /* input rows below this one are in the ring, as far as needed */
    const void **rows; /* [down.per] */
} job;

static size_t input_stride(const job *j) {
    return j->in_w * j->channels * elem_describe(j->in->type)->bytes;
}

static resize_taps view(const taps *t) {
    return (resize_taps){t->n, t->per, t->first, t->count, t->fixed, t->upper, t->lower};
}

static void across_i32(const job *j, const uint8_t *in, int32_t *out) {
    const taps *t = &j->across;
    const size_t n = j->channels;
    for (size_t i = 0; i < t->n; i++) {
        const int32_t *w = t->fixed + i * t->per;
        const uint8_t *p = in + t->first[i] * n;
        if (t->count[i] <= 2 && n == 3) { /* INTER_LINEAR of RGB */
            const int32_t a = w[0], b = t->count[i] == 2 ? w[1] : 0;
            const uint8_t *q = t->count[i] == 2 ? p + 3 : p;
            out[0] = p[0] * a + q[0] * b, out[1] = p[1] * a + q[1] * b, out[2] = p[2] * a + q[2] * b;
            out += 3;
            continue;
        }
        for (size_t c = 0; c < n; c++) {
            int32_t sum = 0;
            for (size_t k = 0; k < t->count[i]; k++) sum += p[k * n + c] * w[k];
            *out++ = sum;
        }
    }
}

static void across_f32(const job *j, const void *in, float *out) {
    const taps *t = &j->across;
    const size_t n = j->channels;
    const uint8_t *bytes = in;
    const float *floats = in;
    const bool u8 = j->in->type == ELEM_U8;
    for (size_t i = 0; i < t->n; i++) {
        const size_t at = t->first[i] * n;
        for (size_t c = 0; c < n; c++) {
            double wide = 0.0;
            float sum = 0.0f;
            for (size_t k = 0; k < t->count[i]; k++) {
                const float x = u8 ? (float)bytes[at + k * n + c] : floats[at + k * n + c];
                if (j->f64)
                    wide += (double)x * t->weight[i * t->per + k];
                else
                    sum += x * t->f32[i * t->per + k];
            }
            *out++ = j->f64 ? (float)wide : sum;
        }
    }
}

static const uint8_t *input_row(const job *j, size_t y) {
    return (const uint8_t *)j->in->data + y * input_stride(j);
}

static void across(const job *j, const void *in, void *out) {
    const resize_taps t = view(&j->across);
    if (j->kind == MIDDLE_U8)
        j->k->resize_across(&t, j->channels, in, j->in_w, 0, t.n, out);
    else if (j->kind == MIDDLE_I32)
        across_i32(j, in, out);
    else
        across_f32(j, in, out);
}

static uint8_t to_u8(float x) {
    const float r = rintf(x);
    return (uint8_t)(r > 0.0f ? (r < 255.0f ? r : 255.0f) : 0.0f); /* NaN: 0 */
}

static void down_i32(const job *j, size_t i, size_t n, uint8_t *out) {
    const int32_t *w = j->down.fixed + i * j->down.per;
    const size_t count = j->down.count[i];
    if (j->two) { /* OpenCV's way with two rows */
        const int32_t *a = j->rows[0], *b = j->rows[count - 1];
        const int32_t wa = w[0], wb = count == 2 ? w[1] : 0;
        for (size_t x = 0; x < n; x++) {
            out[x] = (uint8_t)((((wa * (a[x] >> 4)) >> 16) + ((wb * (b[x] >> 4)) >> 16) + 2) >> 2);
        }
        return;
    }
    for (size_t x = 0; x < n; x++) {
        int64_t sum = 1 << (2 * OPENCV_BITS - 1);
        for (size_t k = 0; k < count; k++) sum += (int64_t)((const int32_t *)j->rows[k])[x] * w[k];
        sum >>= 2 * OPENCV_BITS;
        out[x] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
    }
}

static void down_f32(const job *j, size_t i, size_t n, void *out) {
    const taps *t = &j->down;
    const float *const *rows = (const float *const *)j->rows;
    for (size_t x = 0; x < n; x++) {
        double wide = 0.0;
        float sum = 0.0f;
        for (size_t k = 0; k < t->count[i]; k++) {
            if (j->f64)
                wide += (double)rows[k][x] * t->weight[i * t->per + k];
            else
                sum += rows[k][x] * t->f32[i * t->per + k];
        }
        if (j->f64) sum = (float)wide;
        if (j->halve)
            ((uint8_t *)out)[x] = (uint8_t)(((uint32_t)sum + 2) / 4);
        else if (j->out->type == ELEM_U8)
            ((uint8_t *)out)[x] = to_u8(sum * j->last);
        else
            ((float *)out)[x] = sum * j->last;
    }
}

/* n values of output row i, from j->rows. */
static void down(const job *j, size_t i, size_t n, void *out) {
    const resize_taps t = view(&j->down);
    if (j->kind == MIDDLE_U8)
        j->k->resize_down(&t, i, (const uint8_t *const *)j->rows, n, out);
    else if (j->kind == MIDDLE_I32)
        down_i32(j, i, n, out);
    else
        down_f32(j, i, n, out);
}

/* Has the rows that output i needs in j->rows, as they are in the image from column `from` on. */
static void point_at_rows(const job *j, size_t i, size_t from) {
    const size_t pixel = j->channels * elem_describe(j->in->type)->bytes;
    for (size_t k = 0; k < j->down.count[i]; k++)
        j->rows[k] = input_row(j, j->down.first[i] + k) + from * pixel;
}

/* The same with rows that were made across. */
static void gather_rows(job *j, size_t i) {
    const size_t first = j->down.first[i], count = j->down.count[i];
    if (j->made < first) j->made = first;
    for (; j->made < first + count; j->made++) {
        across(j, input_row(j, j->made), j->ring + j->made % j->down.per * j->ring_row);
    }
    for (size_t k = 0; k < count; k++) j->rows[k] = j->ring + (first + k) % j->down.per * j->ring_row;
}

static void run(job *j) {
    const size_t bytes = elem_describe(j->out->type)->bytes, pixel = j->channels * bytes,
                 out_row = j->row * bytes;
    uint8_t *out = j->out->data;
    for (size_t i = 0; i < j->down.n; i++, out += out_row) {
        const size_t y = j->down.first[i];
        if (j->across_none && j->down_none) {
            memcpy(out, input_row(j, y) + j->from_x * pixel, out_row);
        } else if (j->down_none) {
            across(j, input_row(j, y), out);
        } else if (j->across_none) {
            point_at_rows(j, i, j->from_x);
            down(j, i, j->row, out);
        } else if (j->down_first) {
            point_at_rows(j, i, 0);
            down(j, i, j->in_w * j->channels, j->ring);
            across(j, j->ring, out);
        } else {
            gather_rows(j, i);
            down(j, i, j->row, out);
        }
    }
}

/* ---- choices --------------------------------------------------------------------------------------------
 */

static void run_nearest(const job *j) {
    const size_t pixel = j->channels * elem_describe(j->in->type)->bytes;
    uint8_t *out = j->out->data;
    for (size_t y = 0; y < j->down.n; y++) {
        const uint8_t *in = input_row(j, j->down.first[y]);
        for (size_t x = 0; x < j->across.n; x++, out += pixel)
            memcpy(out, in + j->across.first[x] * pixel, pixel);
    }
}

static status check(const tensor *in, size_t height, size_t width, image_window w, resize_rule rule,
                    resize_filter filter, error *err) {
    if ((in->type != ELEM_U8 && in->type != ELEM_F32) || in->rank != 3 || in->dims[2] < 1 ||
        in->dims[2] > 4) {
        return error_set(
            err, CHURON_INVALID,
            "resize: image: expected uint8 or float32 [height, width, 1 to 4], got %s of rank %u",
            elem_name(in->type), in->rank);
    }
    if (in->count == 0 || in->dims[0] > RESIZE_MAX_SIDE || in->dims[1] > RESIZE_MAX_SIDE) {
        return error_set(err, CHURON_INVALID, "resize: image: expected sides of 1 to %d, got %lld x %lld",
                         RESIZE_MAX_SIDE, (long long)in->dims[0], (long long)in->dims[1]);
    }
    if (height < 1 || width < 1 || height > RESIZE_MAX_SIDE || width > RESIZE_MAX_SIDE) {
        return error_set(err, CHURON_INVALID, "resize: size: expected sides of 1 to %d, got %zu x %zu",
                         RESIZE_MAX_SIDE, height, width);
    }
    if (w.height < 1 || w.width < 1 || w.y > height || w.x > width || w.height > height - w.y ||
        w.width > width - w.x) {
        return error_set(err, CHURON_INVALID,
                         "resize: window: expected one inside %zu x %zu, got %zu x %zu at %zu, %zu", height,
                         width, w.height, w.width, w.y, w.x);
    }
    if (!resize_supports(rule, filter)) {
        return error_set(err, CHURON_UNSUPPORTED, "resize: expected a filter of the rule %s, got %s",
                         resize_rule_name(rule), resize_filter_name(filter));
    }
    return CHURON_OK;
}

static bool is_pillow(resize_rule r) {
    return r == RESIZE_PILLOW || r == RESIZE_PILLOW_12;
}

/* How the numbers run, from the rule, the type and the sizes. */
static taps_form choose(job *j, size_t height, size_t width, resize_rule rule, resize_filter filter,
                        bool *area) {
    const bool u8 = j->in->type == ELEM_U8;
    const bool shrinks = j->in_h >= height && j->in_w >= width;
    j->last = 1.0f;
    *area = rule == RESIZE_OPENCV && filter == RESIZE_AREA && !shrinks;
    j->kind = MIDDLE_F32;
    if (is_pillow(rule)) {
        j->kind = u8 ? MIDDLE_U8 : MIDDLE_F32;
        j->f64 = !u8;
        return u8 ? TAPS_PILLOW_U8 : TAPS_F64;
    }
    if (rule == RESIZE_OPENCV && u8 && (filter != RESIZE_AREA || *area)) {
        j->kind = MIDDLE_I32;
        j->two = filter == RESIZE_BILINEAR || *area;
        return TAPS_OPENCV_U8;
    }
    if (rule == RESIZE_OPENCV && filter == RESIZE_AREA && shrinks) {
        const size_t by_y = j->in_h % height == 0 ? j->in_h / height : 1,
                     by_x = j->in_w % width == 0 ? j->in_w / width : 1;
        j->last = 1.0f / (float)(by_y * by_x);
        j->halve = u8 && by_y == 2 && by_x == 2;
    }
    return TAPS_F32;
}

static status prepare(job *j, size_t height, size_t width, image_window w, resize_rule rule,
                      resize_filter filter, error *err) {
    bool area;
    /* INTER_LINEAR that halves both sides is INTER_AREA. */
    if (rule == RESIZE_OPENCV && filter == RESIZE_BILINEAR && j->in_h == 2 * height && j->in_w == 2 * width)
        filter = RESIZE_AREA;
    const taps_form form = choose(j, height, width, rule, filter, &area);
    TRY(taps_make(&j->across, rule, filter, area, form, j->in_w, width, w.x, w.x + w.width, err));
    TRY(taps_make(&j->down, rule, filter, area, form, j->in_h, height, w.y, w.y + w.height, err));
    if (filter == RESIZE_NEAREST) return CHURON_OK;
    /* Pillow leaves an axis of the same size alone; the other rules' weights there are 1 and 0, to the same
     * end. */
    const bool pillow = is_pillow(rule);
    j->across_none = pillow && j->in_w == width;
    j->down_none = pillow && j->in_h == height;
    for (size_t i = 0; j->down_none && i < j->down.n; i++)
        j->down.first[i] = (uint32_t)(w.y + i), j->down.count[i] = 1;
    /* Pillow 13 goes down first where that leaves less than half as much of the rows as of the columns to be
     * saved: found by resizing with 13.0.0 in both orders, thousands of sizes, every filter. */
    j->down_first = rule == RESIZE_PILLOW && height < j->in_h &&
                    2 * ((ptrdiff_t)j->in_w - (ptrdiff_t)width) < (ptrdiff_t)(j->in_h - height);
    size_t bytes;
    j->ring_row = (j->down_first ? j->in_w * j->channels : j->row) * (j->kind == MIDDLE_U8 ? 1 : 4);
    j->rows = mem_alloc(j->down.per * sizeof *j->rows);
    j->ring = size_mul(j->ring_row, j->down_first ? 1 : j->down.per, &bytes) ? mem_alloc(bytes) : NULL;
    if (!j->rows || !j->ring) return error_no_memory(err, "rows of resizing", j->ring_row * j->down.per);
    return CHURON_OK;
}

status image_resize_window(tensor *out, const tensor *in, size_t height, size_t width, image_window window,
                           resize_rule rule, resize_filter filter, error *err) {
    *out = (tensor){0};
    TRY(check(in, height, width, window, rule, filter, err));
    tensor made = {0};
    job j = {.in = in,
             .out = &made,
             .channels = (size_t)in->dims[2],
             .in_h = (size_t)in->dims[0],
             .in_w = (size_t)in->dims[1],
             .row = window.width * (size_t)in->dims[2],
             .from_x = window.x};
    const int64_t dims[3] = {(int64_t)window.height, (int64_t)window.width, in->dims[2]};
    status st;
    TRY_GOTO(kernels_select(&j.k, err));
    TRY_GOTO(tensor_alloc(&made, in->type, 3, dims, err));
    TRY_GOTO(prepare(&j, height, width, window, rule, filter, err));
    if (filter == RESIZE_NEAREST)
        run_nearest(&j);
    else
        run(&j);
    *out = made;
    made = (tensor){0};
cleanup:
    tensor_free(&made);
    taps_free(&j.across);
    taps_free(&j.down);
    mem_free(j.ring);
    mem_free(j.rows);
    return st;
}

status image_resize(tensor *out, const tensor *in, size_t height, size_t width, resize_rule rule,
                    resize_filter filter, error *err) {
    return image_resize_window(out, in, height, width, (image_window){0, 0, height, width}, rule, filter,
                               err);
}
