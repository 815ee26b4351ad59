/* resize.h: images to another size, by the rule of the library that the model was trained with.
 *
 * The same words mean other pixels in each library, so rule and filter are named together.
 *
 * RESIZE_PILLOW: Pillow 13's Image.resize. Antialiased: the filter's support grows with the scale. u8:
 * coefficients of 22 bits, each pass rounded to u8: pixels equal Pillow's exactly. f32: Pillow's mode F, sums
 * in double. RESIZE_PILLOW_12: the releases before, which always go across first; 13 goes down first where
 * that saves work, and so rounds otherwise.
 *
 * RESIZE_OPENCV: cv2.resize, no antialias: NEAREST, BILINEAR (INTER_LINEAR), BICUBIC (INTER_CUBIC, a =
 * -0.75), LANCZOS (INTER_LANCZOS4); AREA (INTER_AREA), which when enlarging is a bilinear of its own. u8:
 * coefficients of 11 bits; equal to OpenCV's or one level off.
 *
 * RESIZE_TORCHVISION: resize(antialias=True) of float tensors (F.interpolate): BILINEAR, BICUBIC (a = -0.5)
 * with f32 weights; NEAREST is "nearest-exact" (torchvision's plain NEAREST is OpenCV's). u8: computed in
 * f32, rounded half to even and limited to 0..255 at the end, which torchvision's u8 path follows to one
 * level.
 *
 * Images are u8 or f32 [height, width, channels], 1 to 4 channels, channels independent of each other (so not
 * Pillow's premultiplied way with RGBA). Pixel centres lie at half integers. Threads: no state. */
#ifndef MEDIA_RESIZE_H
#define MEDIA_RESIZE_H

#include "tensor/tensor.h"

typedef enum resize_rule {
    RESIZE_PILLOW,
    RESIZE_OPENCV,
    RESIZE_TORCHVISION,
    RESIZE_PILLOW_12,
    RESIZE_RULE_COUNT
} resize_rule;

typedef enum resize_filter {
    RESIZE_NEAREST,
    RESIZE_BILINEAR,
    RESIZE_BICUBIC,
    RESIZE_AREA, /* Pillow: BOX; OpenCV: INTER_AREA */
    RESIZE_LANCZOS,
    RESIZE_HAMMING, /* Pillow alone */
    RESIZE_FILTER_COUNT
} resize_filter;

/* How a target size is reached. */
typedef enum resize_fit {
    RESIZE_EXACT,   /* height x width, whatever the shape was */
    RESIZE_SHORTER, /* the shorter side becomes `height`, the other int(height * long / short): torchvision's
                       rule */
    RESIZE_LONGER,  /* the longer side becomes `height`, the other int(height * short / long) */
    RESIZE_INSIDE, /* the largest size of the same shape inside height x width, round(side * ratio): letterbox
                    */
    RESIZE_COVER,  /* the smallest size of the same shape that covers it, rounded up */
    RESIZE_FIT_COUNT
} resize_fit;

enum { RESIZE_MAX_SIDE = 1 << 20 };

const char *resize_rule_name(resize_rule r); /* "pillow", "opencv", "torchvision", "pillow12" */
const char *resize_filter_name(
    resize_filter f); /* "nearest", "bilinear", "bicubic", "area", "lanczos", "hamming" */
bool resize_supports(resize_rule r, resize_filter f);

/* The size of an image of in_height x in_width after fitting; at least 1 x 1. */
void resize_fit_size(resize_fit fit, size_t in_height, size_t in_width, size_t height, size_t width,
                     size_t *out_height, size_t *out_width);

/* *out: same type and channels, [height, width, channels], the caller's to free. */
MUST_USE status image_resize(tensor *out, const tensor *in, size_t height, size_t width, resize_rule rule,
                             resize_filter filter, error *err);

typedef struct image_window { /* a rectangle of pixels */
    size_t y, x, height, width;
} image_window;

/* The rectangle `window` of what image_resize would give, the same pixels; the rest is not computed. */
MUST_USE status image_resize_window(tensor *out, const tensor *in, size_t height, size_t width,
                                    image_window window, resize_rule rule, resize_filter filter, error *err);

#endif
