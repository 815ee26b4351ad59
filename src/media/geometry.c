/* geometry.c: see geometry.h. */
#include "media/geometry.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

static status check_image(const tensor *in, const char *what, error *err) {
    if ((in->type != ELEM_U8 && in->type != ELEM_F32) || in->rank != 3 || in->count == 0 || in->dims[2] > 4) {
        return error_set(err, CHURON_INVALID,
                         "%s: image: expected uint8 or float32 [height, width, 1 to 4], not empty, got %s of "
                         "rank %u with %zu values",
                         what, elem_name(in->type), in->rank, in->count);
    }
    return CHURON_OK;
}

static status new_image(tensor *out, const tensor *in, size_t height, size_t width, error *err) {
    if (height > INT32_MAX || width > INT32_MAX) {
        return error_set(err, CHURON_LIMIT, "image: size: expected sides below %d, got %zu x %zu", INT32_MAX,
                         height, width);
    }
    const int64_t dims[3] = {(int64_t)height, (int64_t)width, in->dims[2]};
    return tensor_alloc(out, in->type, 3, dims, err);
}

static size_t pixel_bytes(const tensor *t) {
    return (size_t)t->dims[2] * elem_describe(t->type)->bytes;
}

static uint8_t *pixel_at(const tensor *t, size_t y, size_t x) {
    return (uint8_t *)t->data + (y * (size_t)t->dims[1] + x) * pixel_bytes(t);
}

/* ---- crop and pad ---------------------------------------------------------------------------------------
 */

status image_crop(tensor *out, const tensor *in, image_window w, error *err) {
    *out = (tensor){0};
    TRY(check_image(in, "crop", err));
    const size_t h = (size_t)in->dims[0], n = (size_t)in->dims[1];
    if (w.height < 1 || w.width < 1 || w.y > h || w.x > n || w.height > h - w.y || w.width > n - w.x) {
        return error_set(err, CHURON_INVALID,
                         "crop: window: expected one inside %zu x %zu, got %zu x %zu at %zu, %zu", h, n,
                         w.height, w.width, w.y, w.x);
    }
    TRY(new_image(out, in, w.height, w.width, err));
    for (size_t y = 0; y < w.height; y++) {
        memcpy(pixel_at(out, y, 0), pixel_at(in, w.y + y, w.x), w.width * pixel_bytes(in));
    }
    return CHURON_OK;
}

status image_centre_window(image_window *out, size_t in_height, size_t in_width, size_t height, size_t width,
                           bool round_half_even, error *err) {
    *out = (image_window){0};
    if (height < 1 || width < 1 || height > in_height || width > in_width) {
        return error_set(err, CHURON_INVALID, "crop: size: expected at most %zu x %zu, got %zu x %zu",
                         in_height, in_width, height, width);
    }
    const size_t y = in_height - height, x = in_width - width;
    *out = (image_window){y / 2, x / 2, height, width};
    if (round_half_even) {
        out->y = (size_t)rint((double)y / 2);
        out->x = (size_t)rint((double)x / 2);
    }
    return CHURON_OK;
}

/* The bytes of a pixel of `value`. */
static void pixel_of(const tensor *like, const float *from, uint8_t bytes[16]) {
    memset(bytes, 0, 16);
    for (size_t c = 0; from && c < (size_t)like->dims[2]; c++) {
        if (like->type == ELEM_F32) {
            memcpy(bytes + 4 * c, from + c, 4);
        } else {
            const float v = rintf(from[c]);
            bytes[c] = (uint8_t)(v > 0.0f ? (v < 255.0f ? v : 255.0f) : 0.0f);
        }
    }
}

static void fill(uint8_t *to, size_t pixels, const uint8_t *pixel, size_t bytes) {
    for (size_t i = 0; i < pixels; i++) memcpy(to + i * bytes, pixel, bytes);
}

status image_pad(tensor *out, const tensor *in, image_padding p, const float *border_value, error *err) {
    *out = (tensor){0};
    TRY(check_image(in, "pad", err));
    const size_t most = INT32_MAX, h = (size_t)in->dims[0], w = (size_t)in->dims[1];
    if (p.top > most || p.bottom > most || p.left > most || p.right > most) {
        return error_set(err, CHURON_LIMIT, "pad: expected sides below %zu", most);
    }
    TRY(new_image(out, in, p.top + h + p.bottom, p.left + w + p.right, err));
    uint8_t pixel[16];
    pixel_of(in, border_value, pixel);
    const size_t bytes = pixel_bytes(in), width = (size_t)out->dims[1];
    fill(out->data, p.top * width, pixel, bytes);
    for (size_t y = 0; y < h; y++) {
        fill(pixel_at(out, p.top + y, 0), p.left, pixel, bytes);
        memcpy(pixel_at(out, p.top + y, p.left), pixel_at(in, y, 0), w * bytes);
        fill(pixel_at(out, p.top + y, p.left + w), p.right, pixel, bytes);
    }
    fill(pixel_at(out, p.top + h, 0), p.bottom * width, pixel, bytes);
    return CHURON_OK;
}

image_padding image_letterbox(size_t height, size_t width, size_t to_height, size_t to_width, bool centred) {
    const size_t y = to_height > height ? to_height - height : 0, x = to_width > width ? to_width - width : 0;
    const size_t top = centred ? y / 2 : 0, left = centred ? x / 2 : 0;
    return (image_padding){.top = top, .bottom = y - top, .left = left, .right = x - left};
}

/* ---- turns ----------------------------------------------------------------------------------------------
 */

/* out(y, x) = in at the offset of (0, 0) plus y and x steps, in pixels. */
static status remap(tensor *out, const tensor *in, bool swap, bool flip_y, bool flip_x, error *err) {
    *out = (tensor){0};
    TRY(check_image(in, "turn", err));
    const size_t h = (size_t)in->dims[0], w = (size_t)in->dims[1], bytes = pixel_bytes(in);
    TRY(new_image(out, in, swap ? w : h, swap ? h : w, err));
    const ptrdiff_t down = (ptrdiff_t)(w * bytes) * (flip_y ? -1 : 1),
                    right = (ptrdiff_t)bytes * (flip_x ? -1 : 1);
    const uint8_t *start = pixel_at(in, flip_y ? h - 1 : 0, flip_x ? w - 1 : 0);
    const ptrdiff_t step_y = swap ? right : down, step_x = swap ? down : right;
    uint8_t *to = out->data;
    for (size_t y = 0; y < (size_t)out->dims[0]; y++) {
        for (size_t x = 0; x < (size_t)out->dims[1]; x++, to += bytes) {
            memcpy(to, start + (ptrdiff_t)y * step_y + (ptrdiff_t)x * step_x, bytes);
        }
    }
    return CHURON_OK;
}

status image_rotate(tensor *out, const tensor *in, unsigned quarters, error *err) {
    const unsigned q = quarters % 4;
    return remap(out, in, q % 2 != 0, q == 1 || q == 2, q == 2 || q == 3, err);
}

status image_flip(tensor *out, const tensor *in, bool horizontally, error *err) {
    return remap(out, in, false, !horizontally, horizontally, err);
}

status image_orient(tensor *out, const tensor *in, uint32_t orientation, error *err) {
    /* Where the image's first row and column are to come from: EXIF 2.32, tag 274. */
    static const struct {
        bool swap, flip_y, flip_x;
    } turns[8] = {{false, false, false}, {false, false, true}, {false, true, true}, {false, true, false},
                  {true, false, false},  {true, true, false},  {true, true, true},  {true, false, true}};
    if (orientation < 1 || orientation > 8) {
        *out = (tensor){0};
        return error_set(err, CHURON_INVALID, "orientation: expected 1 to 8, got %u", orientation);
    }
    return remap(out, in, turns[orientation - 1].swap, turns[orientation - 1].flip_y,
                 turns[orientation - 1].flip_x, err);
}

/* ---- perspective ----------------------------------------------------------------------------------------
 */

/* Gauss with row exchange; false: singular. a: [8][9], the right side last. */
static bool solve_8(double a[8][9], double x[8]) {
    for (size_t c = 0; c < 8; c++) {
        size_t best = c;
        for (size_t r = c + 1; r < 8; r++) {
            if (fabs(a[r][c]) > fabs(a[best][c])) best = r;
        }
        if (!(fabs(a[best][c]) > 1e-12)) return false;
        double row[9];
        memcpy(row, a[best], sizeof row);
        memcpy(a[best], a[c], sizeof row);
        memcpy(a[c], row, sizeof row);
        for (size_t r = c + 1; r < 8; r++) {
            const double f = a[r][c] / row[c];
            for (size_t k = c; k < 9; k++) a[r][k] -= f * row[k];
        }
    }
    for (size_t c = 8; c-- > 0;) {
        double v = a[c][8];
        for (size_t k = c + 1; k < 8; k++) v -= a[c][k] * x[k];
        x[c] = v / a[c][c];
    }
    return true;
}

status perspective_from_points(double m[9], const image_point from[4], const image_point to[4], error *err) {
    double a[8][9] = {{0}};
    for (size_t i = 0; i < 4; i++) {
        const double x = from[i].x, y = from[i].y, u = to[i].x, v = to[i].y;
        const double first[9] = {x, y, 1, 0, 0, 0, -x * u, -y * u, u},
                     second[9] = {0, 0, 0, x, y, 1, -x * v, -y * v, v};
        memcpy(a[i], first, sizeof first);
        memcpy(a[i + 4], second, sizeof second);
    }
    bool good = solve_8(a, m);
    for (size_t i = 0; good && i < 8; i++) good = isfinite(m[i]);
    m[8] = 1.0;
    if (!good) {
        return error_set(err, CHURON_INVALID,
                         "perspective: points: expected four, no three of them on a line");
    }
    return CHURON_OK;
}

static bool invert_3(const double m[9], double out[9]) {
    const double det = m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) +
                       m[2] * (m[3] * m[7] - m[4] * m[6]);
    if (det == 0.0 || !isfinite(det)) return false;
    const double d = 1.0 / det;
    const double inverse[9] = {
        (m[4] * m[8] - m[5] * m[7]) * d, (m[2] * m[7] - m[1] * m[8]) * d, (m[1] * m[5] - m[2] * m[4]) * d,
        (m[5] * m[6] - m[3] * m[8]) * d, (m[0] * m[8] - m[2] * m[6]) * d, (m[2] * m[3] - m[0] * m[5]) * d,
        (m[3] * m[7] - m[4] * m[6]) * d, (m[1] * m[6] - m[0] * m[7]) * d, (m[0] * m[4] - m[1] * m[3]) * d};
    memcpy(out, inverse, sizeof inverse);
    return true;
}

enum { TAPS = 4 };

typedef struct warp {
    const tensor *in;
    double m[9]; /* output to input */
    size_t taps; /* 1, 2 or 4 */
    image_border border;
    float outside[4];
} warp;

static void make_weights(size_t taps, float x, float t[TAPS]) {
    const float a = -0.75f;
    if (taps == 2) {
        t[0] = 1.0f - x, t[1] = x;
        return;
    }
    t[0] = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a;
    t[1] = ((a + 2) * x - (a + 3)) * x * x + 1;
    t[2] = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1;
    t[3] = 1.0f - t[0] - t[1] - t[2];
}

static float read_value(const warp *w, ptrdiff_t y, ptrdiff_t x, size_t c) {
    const ptrdiff_t h = (ptrdiff_t)w->in->dims[0], n = (ptrdiff_t)w->in->dims[1];
    if (y < 0 || x < 0 || y >= h || x >= n) {
        if (w->border == IMAGE_BORDER_CONSTANT) return w->outside[c];
        y = y < 0 ? 0 : y >= h ? h - 1 : y;
        x = x < 0 ? 0 : x >= n ? n - 1 : x;
    }
    const size_t at = ((size_t)y * (size_t)n + (size_t)x) * (size_t)w->in->dims[2] + c;
    return w->in->type == ELEM_U8 ? (float)((const uint8_t *)w->in->data)[at]
                                  : ((const float *)w->in->data)[at];
}

/* Limited to what the integers below hold; NaN (0 / 0) is 0. */
static double position(double v) {
    const double most = 1 << 30;
    return isnan(v) ? 0.0 : v < -most ? -most : v > most ? most : v;
}

static void warp_pixel(const warp *w, double x, double y, float *out) {
    const double depth = w->m[6] * x + w->m[7] * y + w->m[8], unit = depth != 0.0 ? 1.0 / depth : 0.0;
    const double at_x = position((w->m[0] * x + w->m[1] * y + w->m[2]) * unit);
    const double at_y = position((w->m[3] * x + w->m[4] * y + w->m[5]) * unit);
    const size_t channels = (size_t)w->in->dims[2];
    if (w->taps == 1) {
        for (size_t c = 0; c < channels; c++)
            out[c] = read_value(w, (ptrdiff_t)rint(at_y), (ptrdiff_t)rint(at_x), c);
        return;
    }
    const double low_x = floor(at_x), low_y = floor(at_y);
    const ptrdiff_t back = (ptrdiff_t)w->taps / 2 - 1, left = (ptrdiff_t)low_x - back,
                    top = (ptrdiff_t)low_y - back;
    float wx[TAPS], wy[TAPS];
    make_weights(w->taps, (float)(at_x - low_x), wx);
    make_weights(w->taps, (float)(at_y - low_y), wy);
    for (size_t c = 0; c < channels; c++) {
        float sum = 0.0f;
        for (size_t i = 0; i < w->taps; i++) {
            for (size_t k = 0; k < w->taps; k++) {
                sum += read_value(w, top + (ptrdiff_t)i, left + (ptrdiff_t)k, c) * (wy[i] * wx[k]);
            }
        }
        out[c] = sum;
    }
}

status image_warp_perspective(tensor *out, const tensor *in, const double m[9], size_t height, size_t width,
                              resize_filter filter, image_border border, const float *border_value,
                              error *err) {
    *out = (tensor){0};
    TRY(check_image(in, "perspective", err));
    if (height < 1 || width < 1 || height > RESIZE_MAX_SIDE || width > RESIZE_MAX_SIDE) {
        return error_set(err, CHURON_INVALID, "perspective: size: expected sides of 1 to %d, got %zu x %zu",
                         RESIZE_MAX_SIDE, height, width);
    }
    if (filter != RESIZE_NEAREST && filter != RESIZE_BILINEAR && filter != RESIZE_BICUBIC) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "perspective: filter: expected nearest, bilinear or bicubic, got %s",
                         resize_filter_name(filter));
    }
    warp w = {.in = in,
              .taps = filter == RESIZE_NEAREST    ? 1
                      : filter == RESIZE_BILINEAR ? 2
                                                  : 4,
              .border = border};
    if (!invert_3(m, w.m))
        return error_set(err, CHURON_INVALID, "perspective: matrix: expected one that can be inverted");
    const size_t channels = (size_t)in->dims[2];
    for (size_t c = 0; border_value && c < channels; c++) w.outside[c] = border_value[c];
    TRY(new_image(out, in, height, width, err));
    uint8_t *to = out->data;
    for (size_t y = 0; y < height; y++) {
        for (size_t x = 0; x < width; x++, to += pixel_bytes(out)) {
            float v[4] = {0};
            uint8_t bytes[16];
            warp_pixel(&w, (double)x, (double)y, v);
            pixel_of(out, v, bytes);
            memcpy(to, bytes, pixel_bytes(out));
        }
    }
    return CHURON_OK;
}
