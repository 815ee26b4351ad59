/* pixels.h: pixels as a model's input: order of colours, scale, mean, deviation, layout.
 *
 * Images are [height, width, channels], 1 to 4 channels. Threads: no state. */
#ifndef MEDIA_PIXELS_H
#define MEDIA_PIXELS_H

#include "media/geometry.h"

typedef enum pixels_layout { PIXELS_HWC, PIXELS_CHW, PIXELS_LAYOUT_COUNT } pixels_layout;

/* y = ((x * scale) / divide - mean) / deviation, each operation rounded to f32 in this order, so that
 * NumPy's float32 arithmetic gives the same bits. scale 1, divide 1, mean 0, deviation 1 change nothing. */
typedef struct pixels_norm {
    float scale, divide; /* divide: 255 is the usual one */
    float mean[4];       /* of the output's channels */
    float deviation[4];  /* not 0 */
    bool reverse;        /* first and third channel change places before all else (RGB to BGR, and back) */
    pixels_layout layout;
} pixels_norm;

pixels_norm pixels_norm_identity(void); /* scale 1, divide 1, mean 0, deviation 1, HWC */

/* *out: f32 [height, width, channels] or [channels, height, width], the caller's to free. in: u8 or f32. */
MUST_USE status pixels_normalize(tensor *out, const tensor *in, const pixels_norm *norm, error *err);
/* The same into memory of the caller: [height * width * channels] floats, e.g. a row of a batch. */
MUST_USE status pixels_normalize_into(float *out, size_t count, const tensor *in, const pixels_norm *norm,
                                      error *err);
/* image_resize_window, then pixels_normalize_into, for what is done most: decode, this, run. */
MUST_USE status pixels_resize_normalize(float *out, size_t count, const tensor *in, size_t height,
                                        size_t width, image_window window, resize_rule rule,
                                        resize_filter filter, const pixels_norm *norm, error *err);

/* In place: exchanges the first and third of 3 or 4 channels. u8 or f32. */
MUST_USE status pixels_reverse(tensor *t, error *err);
/* *out: [channels, height, width] of the same type (to_chw), or back to [height, width, channels]. */
MUST_USE status pixels_transpose(tensor *out, const tensor *in, bool to_chw, error *err);

#endif
