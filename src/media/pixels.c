/* pixels.c: see pixels.h. u8 values go through a table of 256 results a channel, which f32 arithmetic fills
 * once. */
#include "media/pixels.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

pixels_norm pixels_norm_identity(void) {
    return (pixels_norm){.scale = 1.0f, .divide = 1.0f, .deviation = {1.0f, 1.0f, 1.0f, 1.0f}};
}

static status check(const tensor *in, const char *what, error *err) {
    if ((in->type != ELEM_U8 && in->type != ELEM_F32) || in->rank != 3 || in->dims[2] < 1 ||
        in->dims[2] > 4) {
        return error_set(err, CHURON_INVALID,
                         "%s: image: expected uint8 or float32 [height, width, 1 to 4], got %s of rank %u",
                         what, elem_name(in->type), in->rank);
    }
    return CHURON_OK;
}

static status check_norm(const tensor *in, const pixels_norm *n, error *err) {
    TRY(check(in, "normalize", err));
    if (n->divide == 0.0f || !isfinite(n->divide) || !isfinite(n->scale)) {
        return error_set(err, CHURON_INVALID,
                         "normalize: scale, divide: expected finite numbers, divide not 0, got %g, %g",
                         (double)n->scale, (double)n->divide);
    }
    for (int64_t c = 0; c < in->dims[2]; c++) {
        if (n->deviation[c] == 0.0f || !isfinite(n->deviation[c]) || !isfinite(n->mean[c])) {
            return error_set(
                err, CHURON_INVALID,
                "normalize: channel %lld: expected a finite mean and deviation, not 0, got %g, %g",
                (long long)c, (double)n->mean[c], (double)n->deviation[c]);
        }
    }
    if (n->reverse && in->dims[2] < 3) {
        return error_set(err, CHURON_INVALID, "normalize: reverse: expected 3 or 4 channels, got %lld",
                         (long long)in->dims[2]);
    }
    return CHURON_OK;
}

static float value_of(const pixels_norm *n, size_t channel, float x) {
    return (x * n->scale / n->divide - n->mean[channel]) / n->deviation[channel];
}

/* Input channel of an output channel. */
static size_t source_of(const pixels_norm *n, size_t c) {
    return n->reverse && c < 3 ? 2 - c : c;
}

static void run_u8(float *out, const uint8_t *in, size_t pixels, size_t channels, const pixels_norm *n) {
    float table[4][256];
    for (size_t c = 0; c < channels; c++) {
        for (size_t v = 0; v < 256; v++) table[c][v] = value_of(n, c, (float)v);
    }
    if (n->layout == PIXELS_CHW) {
        for (size_t c = 0; c < channels; c++) {
            const uint8_t *p = in + source_of(n, c);
            const float *t = table[c];
            for (size_t i = 0; i < pixels; i++) *out++ = t[p[i * channels]];
        }
        return;
    }
    for (size_t i = 0; i < pixels; i++, in += channels) {
        for (size_t c = 0; c < channels; c++) *out++ = table[c][in[source_of(n, c)]];
    }
}

static void run_f32(float *out, const float *in, size_t pixels, size_t channels, const pixels_norm *n) {
    const bool planes = n->layout == PIXELS_CHW;
    for (size_t c = 0; c < channels; c++) {
        float *to = planes ? out + c * pixels : out + c;
        const float *p = in + source_of(n, c);
        for (size_t i = 0; i < pixels; i++) to[planes ? i : i * channels] = value_of(n, c, p[i * channels]);
    }
}

status pixels_normalize_into(float *out, size_t count, const tensor *in, const pixels_norm *norm,
                             error *err) {
    TRY(check_norm(in, norm, err));
    if (count != in->count) {
        return error_set(err, CHURON_INVALID, "normalize: output: expected %zu values, got %zu", in->count,
                         count);
    }
    const size_t channels = (size_t)in->dims[2], pixels = in->count / channels;
    if (in->type == ELEM_U8)
        run_u8(out, in->data, pixels, channels, norm);
    else
        run_f32(out, in->data, pixels, channels, norm);
    return CHURON_OK;
}

status pixels_normalize(tensor *out, const tensor *in, const pixels_norm *norm, error *err) {
    *out = (tensor){0};
    TRY(check_norm(in, norm, err));
    const int64_t hwc[3] = {in->dims[0], in->dims[1], in->dims[2]},
                  chw[3] = {in->dims[2], in->dims[0], in->dims[1]};
    TRY(tensor_alloc(out, ELEM_F32, 3, norm->layout == PIXELS_CHW ? chw : hwc, err));
    return pixels_normalize_into(out->data, out->count, in, norm, err);
}

status pixels_resize_normalize(float *out, size_t count, const tensor *in, size_t height, size_t width,
                               image_window window, resize_rule rule, resize_filter filter,
                               const pixels_norm *norm, error *err) {
    tensor resized;
    TRY(check_norm(in, norm, err));
    TRY(image_resize_window(&resized, in, height, width, window, rule, filter, err));
    const status st = pixels_normalize_into(out, count, &resized, norm, err);
    tensor_free(&resized);
    return st;
}

status pixels_reverse(tensor *t, error *err) {
    TRY(check(t, "reverse", err));
    if (t->dims[2] < 3) {
        return error_set(err, CHURON_INVALID, "reverse: expected 3 or 4 channels, got %lld",
                         (long long)t->dims[2]);
    }
    const size_t bytes = elem_describe(t->type)->bytes, pixel = (size_t)t->dims[2] * bytes;
    uint8_t *p = t->data;
    for (size_t i = 0; i < t->count / (size_t)t->dims[2]; i++, p += pixel) {
        uint8_t first[4];
        memcpy(first, p, bytes);
        memcpy(p, p + 2 * bytes, bytes);
        memcpy(p + 2 * bytes, first, bytes);
    }
    return CHURON_OK;
}

status pixels_transpose(tensor *out, const tensor *in, bool to_chw, error *err) {
    *out = (tensor){0};
    if ((in->type != ELEM_U8 && in->type != ELEM_F32) || in->rank != 3) {
        return error_set(err, CHURON_INVALID,
                         "transpose: image: expected uint8 or float32 of rank 3, got %s of rank %u",
                         elem_name(in->type), in->rank);
    }
    /* [a, b] -> [b, a], where one of the two is pixels and the other channels. */
    const int64_t chw[3] = {in->dims[2], in->dims[0], in->dims[1]},
                  hwc[3] = {in->dims[1], in->dims[2], in->dims[0]};
    TRY(tensor_alloc(out, in->type, 3, to_chw ? chw : hwc, err));
    if (in->count == 0) return CHURON_OK;
    const size_t b = (size_t)(to_chw ? in->dims[2] : in->dims[1] * in->dims[2]), a = in->count / b;
    const size_t bytes = elem_describe(in->type)->bytes;
    uint8_t *to = out->data;
    for (size_t k = 0; k < b; k++) {
        for (size_t i = 0; i < a; i++, to += bytes)
            memcpy(to, (const uint8_t *)in->data + (i * b + k) * bytes, bytes);
    }
    return CHURON_OK;
}
