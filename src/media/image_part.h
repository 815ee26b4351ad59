/* image_part.h: what the decoders of image files share. For this room's image files only.
 *
 * A decoder reads its header into image_info, calls image_target_open, which checks the limits and allocates
 * the result, and then gives rows: raw ones of some kind, which are converted, or straight into
 * image_target_line when image_target_takes says that its rows are already what is wanted. */
#ifndef MEDIA_IMAGE_PART_H
#define MEDIA_IMAGE_PART_H

#include "base/mem.h"
#include "media/image.h"

#include <string.h>

typedef enum raw_kind {
    RAW_L,
    RAW_LA,
    RAW_RGB,
    RAW_RGBA,
    RAW_CMYK,          /* 0: no ink */
    RAW_CMYK_INVERTED, /* 255: no ink, as Adobe writes it */
    RAW_KIND_COUNT
} raw_kind;

typedef struct image_source {
    const uint8_t *bytes;
    size_t n;
} image_source;

typedef struct image_target {
    const image_options *options;
    image_info *info;
    tensor *out; /* NULL: the header alone is wanted, and image_target_open ends the work */
} image_target;

/* Checks info's width and height against the limits; allocates *out, filled with zeros if `zero`. */
MUST_USE status image_target_open(image_target *t, bool zero, error *err);
static inline bool image_target_probes(const image_target *t) {
    return t->out == NULL;
}
uint8_t *image_target_line(const image_target *t, size_t y); /* [width, channels of the order] */
/* Rows of RGB need no conversion into this order (with alpha dropped). */
bool image_target_takes(const image_target *t, image_order order);
/* Converts n pixels of `raw` into row y from column x on. */
void image_target_put(const image_target *t, size_t y, size_t x, size_t n, raw_kind kind, const uint8_t *raw);

typedef status image_decoder(const image_source *s, image_target *t, error *err);
image_decoder image_jpeg_decode, image_png_decode, image_webp_decode, image_gif_decode, image_bmp_decode;

/* Orientation in an EXIF block (from its TIFF header on); 1 where there is none or nonsense. */
uint32_t image_exif_orientation(const uint8_t *tiff, size_t n);
/* "FORMAT: truncated: WHAT ..." */
status image_truncated(error *err, const char *format, const char *what);

static inline uint32_t le16(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static inline uint32_t le32(const uint8_t *p) {
    return le16(p) | le16(p + 2) << 16;
}

#endif
