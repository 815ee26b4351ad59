/* image.h: bytes of an image file to pixels: JPEG, PNG (APNG: its default image), WebP and GIF (first frame),
 * BMP.
 *
 * The format is found by content; a file's name or declared type plays no part. Pixels are u8 [height, width,
 * channels], as Pillow's Image.open(..).convert(mode) gives them: 16 bits keep their upper 8, 1 to 4 bits of
 * gray are spread over 0..255, palettes are looked up, CMYK and YCCK become RGB by Pillow's plain formula.
 * Colour profiles are left alone: image_info.had_icc says that one was there and ignored.
 *
 * Hostile bytes are normal. Width, height and the bytes of the result are checked before anything is decoded;
 * a truncated or damaged file is refused with CHURON_CORRUPT, never returned in part. Errors name the format,
 * the field, what was expected and what was there. libjpeg, libpng and libwebp take their working memory from
 * the system's heap themselves, a bounded multiple of the checked pixels. Threads: functions keep no state.
 */
#ifndef MEDIA_IMAGE_H
#define MEDIA_IMAGE_H

#include "base/str.h"
#include "tensor/tensor.h"

typedef enum image_format {
    IMAGE_UNKNOWN,
    IMAGE_JPEG,
    IMAGE_PNG,
    IMAGE_WEBP,
    IMAGE_GIF,
    IMAGE_BMP,
    IMAGE_FORMAT_COUNT
} image_format;

/* Channels of the result. L: (19595 R + 38470 G + 7471 B + 32768) / 65536, Pillow's rule (ITU-R 601-2). */
typedef enum image_order { IMAGE_RGB, IMAGE_BGR, IMAGE_L, IMAGE_RGBA, IMAGE_ORDER_COUNT } image_order;

/* What happens to alpha where the result has none. DROP: colours stay as they are in the file, Pillow's
 * convert("RGB"). BLEND: over `background`, (c * a + b * (255 - a)) / 255 to nearest. */
typedef enum image_alpha { IMAGE_ALPHA_DROP, IMAGE_ALPHA_BLEND, IMAGE_ALPHA_COUNT } image_alpha;

#define IMAGE_DEFAULT_PIXELS ((uint64_t)178956970) /* what Pillow refuses as a decompression bomb */
enum { IMAGE_DEFAULT_SIDE = 65535 };

typedef struct image_options { /* all zero: RGB, alpha dropped, turned as EXIF says, default limits */
    image_order order;
    image_alpha alpha;
    uint8_t background[3]; /* R, G, B */
    bool keep_orientation; /* pixels as stored; else the EXIF turn is applied */
    uint64_t max_pixels;   /* width * height; 0: IMAGE_DEFAULT_PIXELS */
    uint32_t max_side;     /* width and height; 0: IMAGE_DEFAULT_SIDE */
} image_options;

typedef struct image_info {
    image_format format;
    uint32_t width, height; /* as stored, before the EXIF turn */
    uint32_t channels;      /* of the file: 1 gray or palette, 2 gray and alpha, 3, 4 RGBA or CMYK */
    uint32_t bits;          /* of a channel; of an index for palettes */
    uint32_t orientation;   /* EXIF's 1..8; 1 where it says nothing or nonsense */
    bool had_alpha;         /* an alpha channel or a transparent colour */
    bool had_icc;           /* a colour profile, which was ignored */
    bool animated;          /* more frames than the one that is decoded */
} image_info;

const char *image_format_name(image_format f); /* "JPEG", .. ; "unknown" */
const char *image_order_name(image_order o);   /* "rgb", "bgr", "l", "rgba" */
size_t image_order_channels(image_order o);
/* By the first bytes. IMAGE_UNKNOWN: none of the formats above. */
image_format image_sniff(const void *bytes, size_t n);

/* Reads the header alone; checks the limits of options (NULL: the defaults). */
MUST_USE status image_probe(image_info *out, const void *bytes, size_t n, const image_options *options,
                            error *err);
/* *out: u8 [height, width, channels] after the turn, the caller's to free. info and options may be NULL. */
MUST_USE status image_decode(tensor *out, image_info *info, const void *bytes, size_t n,
                             const image_options *options, error *err);

/* Appends a PNG file to *out. t: u8 [height, width, 1, 3 (RGB) or 4 (RGBA)]. */
MUST_USE status image_encode_png(str *out, const tensor *t, error *err);
/* Appends a JPEG file. t: u8 [height, width, 1 or 3 (RGB)]; quality 1..100; colours at half resolution, which
 * is what Pillow writes. */
MUST_USE status image_encode_jpeg(str *out, const tensor *t, int quality, error *err);

#endif
