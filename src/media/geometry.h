/* geometry.h: pixels moved without being changed (crop, pad, turns) and by a perspective (OpenCV's rule).
 *
 * Images are [height, width, channels], u8 or f32, 1 to 4 channels. Outputs are new tensors, the caller's to
 * free, of the input's type and channels. Threads: no state. */
#ifndef MEDIA_GEOMETRY_H
#define MEDIA_GEOMETRY_H

#include "media/resize.h"

/* The rectangle, which must lie inside. */
MUST_USE status image_crop(tensor *out, const tensor *in, image_window window, error *err);
/* The rectangle of height x width at the centre. Offsets: int(round((in - size) / 2.0)), half to even,
 * torchvision's rule, when `round_half_even`, else (in - size) / 2 rounded down. The size must not exceed the
 * image. */
MUST_USE status image_centre_window(image_window *out, size_t in_height, size_t in_width, size_t height,
                                    size_t width, bool round_half_even, error *err);

/* Adds a border of `value` [channels], in the element's own scale (u8: 0..255 whole). */
typedef struct image_padding {
    size_t top, bottom, left, right;
} image_padding;
MUST_USE status image_pad(tensor *out, const tensor *in, image_padding padding, const float *value,
                          error *err);
/* The padding that brings height x width (at most the target) to the target. centred: the odd pixel goes to
 * bottom and right; else all of it does. */
image_padding image_letterbox(size_t height, size_t width, size_t to_height, size_t to_width, bool centred);

/* Quarter turns clockwise, 0..3. */
MUST_USE status image_rotate(tensor *out, const tensor *in, unsigned quarters, error *err);
MUST_USE status image_flip(tensor *out, const tensor *in, bool horizontally, error *err);
/* The turn that shows an image stored with this EXIF orientation (1..8) upright. */
MUST_USE status image_orient(tensor *out, const tensor *in, uint32_t orientation, error *err);

/* ---- perspective ----------------------------------------------------------------------------------------
 */

typedef struct image_point {
    double x, y;
} image_point;
/* from[i] -> to[i], i = 0..3: (x', y', w') = m (x, y, 1), row major, m[8] = 1; cv2.getPerspectiveTransform.
 * CHURON_INVALID when no such map exists (three points on a line). */
MUST_USE status perspective_from_points(double m[9], const image_point from[4], const image_point to[4],
                                        error *err);

typedef enum image_border { IMAGE_BORDER_CONSTANT, IMAGE_BORDER_REPLICATE, IMAGE_BORDER_COUNT } image_border;

/* cv2.warpPerspective(in, m, (width, height), flags) of OpenCV 5: m maps input to output; it is inverted
 * here. filter: NEAREST, BILINEAR or BICUBIC (a = -0.75), at exact positions (releases before 5 round them to
 * 1/32 of a pixel, which moves sharp edges by some levels). u8 equal or one level off. `border_value`
 * [channels] for IMAGE_BORDER_CONSTANT, may be NULL (0). */
MUST_USE status image_warp_perspective(tensor *out, const tensor *in, const double m[9], size_t height,
                                       size_t width, resize_filter filter, image_border border,
                                       const float *value, error *err);

#endif
