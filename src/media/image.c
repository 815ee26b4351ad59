/* image.c: see image.h: which decoder, limits, conversion of rows, the turn. */
#include "media/image_part.h"

#include "media/geometry.h"

size_t image_order_channels(image_order o) {
    return o == IMAGE_L ? 1 : o == IMAGE_RGBA ? 4 : 3;
}

image_format image_sniff(const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    if (n >= 3 && memcmp(p, "\xff\xd8\xff", 3) == 0) return IMAGE_JPEG;
    if (n >= 8 && memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0) return IMAGE_PNG;
    if (n >= 12 && memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0) return IMAGE_WEBP;
    if (n >= 6 && (memcmp(p, "GIF87a", 6) == 0 || memcmp(p, "GIF89a", 6) == 0)) return IMAGE_GIF;
    if (n >= 2 && memcmp(p, "BM", 2) == 0) return IMAGE_BMP;
    return IMAGE_UNKNOWN;
}

status image_truncated(error *err, const char *format, const char *what) {
    return error_set(err, CHURON_CORRUPT, "%s: truncated: expected %s, got the end of the file", format,
                     what);
}

/* ---- orientation ----------------------------------------------------------------------------------------
 */

static uint32_t tiff_read(const uint8_t *p, size_t bytes, bool big) {
    uint32_t v = 0;
    for (size_t i = 0; i < bytes; i++) v |= (uint32_t)p[i] << 8 * (big ? bytes - 1 - i : i);
    return v;
}

uint32_t image_exif_orientation(const uint8_t *tiff, size_t n) {
    enum { TAG = 0x0112, SHORT = 3, LONG = 4 };
    if (n < 8) return 1;
    const bool big = memcmp(tiff, "MM", 2) == 0;
    if ((!big && memcmp(tiff, "II", 2) != 0) || tiff_read(tiff + 2, 2, big) != 42) return 1;
    const size_t at = tiff_read(tiff + 4, 4, big);
    if (at > n - 2) return 1;
    const size_t entries = tiff_read(tiff + at, 2, big);
    for (size_t i = 0; i < entries && n - at - 2 >= 12 * (i + 1); i++) {
        const uint8_t *e = tiff + at + 2 + 12 * i;
        if (tiff_read(e, 2, big) != TAG) continue;
        const uint32_t type = tiff_read(e + 2, 2, big);
        const uint32_t v = type == SHORT  ? tiff_read(e + 8, 2, big)
                           : type == LONG ? tiff_read(e + 8, 4, big)
                                          : 1;
        return v >= 1 && v <= 8 ? v : 1;
    }
    return 1;
}

/* ---- rows -----------------------------------------------------------------------------------------------
 */

status image_target_open(image_target *t, bool zero, error *err) {
    const image_info *i = t->info;
    const char *name = image_format_name(i->format);
    const uint64_t most = t->options->max_pixels ? t->options->max_pixels : IMAGE_DEFAULT_PIXELS;
    const uint32_t side = t->options->max_side ? t->options->max_side : IMAGE_DEFAULT_SIDE;
    if (i->width == 0 || i->height == 0) {
        return error_set(err, CHURON_CORRUPT, "%s: size: expected at least 1x1, got %ux%u", name, i->width,
                         i->height);
    }
    if (i->width > side || i->height > side) {
        return error_set(err, CHURON_LIMIT, "%s: size: expected sides of at most %u, got %ux%u", name, side,
                         i->width, i->height);
    }
    if ((uint64_t)i->width * i->height > most) {
        return error_set(err, CHURON_LIMIT, "%s: size: expected at most %llu pixels, got %ux%u", name,
                         (unsigned long long)most, i->width, i->height);
    }
    if (!t->out) return CHURON_OK;
    const int64_t dims[3] = {i->height, i->width, (int64_t)image_order_channels(t->options->order)};
    TRY(tensor_alloc(t->out, ELEM_U8, 3, dims, err));
    if (zero) memset(t->out->data, 0, t->out->count);
    return CHURON_OK;
}

uint8_t *image_target_line(const image_target *t, size_t y) {
    return (uint8_t *)t->out->data + y * (size_t)(t->out->dims[1] * t->out->dims[2]);
}

bool image_target_takes(const image_target *t, image_order order) {
    return t->options->order == order && (t->options->alpha == IMAGE_ALPHA_DROP || !t->info->had_alpha);
}

/* a * b / 255 to nearest. */
static uint32_t mul255(uint32_t a, uint32_t b) {
    const uint32_t v = a * b + 128;
    return (v + (v >> 8)) >> 8;
}

typedef struct pixel {
    uint8_t r, g, b, a;
} pixel;

static pixel pixel_of(raw_kind kind, const uint8_t *p) {
    switch (kind) {
    case RAW_L: return (pixel){p[0], p[0], p[0], 255};
    case RAW_LA: return (pixel){p[0], p[0], p[0], p[1]};
    case RAW_RGB: return (pixel){p[0], p[1], p[2], 255};
    case RAW_RGBA: return (pixel){p[0], p[1], p[2], p[3]};
    default: break;
    }
    const uint8_t flip = kind == RAW_CMYK_INVERTED ? 255 : 0;
    const uint32_t light = 255u - (p[3] ^ flip);
    uint8_t rgb[3];
    for (size_t c = 0; c < 3; c++) rgb[c] = (uint8_t)(light - mul255((uint32_t)(p[c] ^ flip), light));
    return (pixel){rgb[0], rgb[1], rgb[2], 255};
}

static uint8_t over(uint32_t c, uint32_t a, uint32_t background) {
    return (uint8_t)((c * a + background * (255 - a) + 127) / 255);
}

static uint8_t *put_pixel(uint8_t *to, image_order order, pixel p) {
    switch (order) {
    case IMAGE_L: *to = (uint8_t)((p.r * 19595u + p.g * 38470u + p.b * 7471u + 32768u) >> 16); return to + 1;
    case IMAGE_RGBA: memcpy(to, &p, 4); return to + 4;
    case IMAGE_BGR: to[0] = p.b, to[1] = p.g, to[2] = p.r; return to + 3;
    default: to[0] = p.r, to[1] = p.g, to[2] = p.b; return to + 3;
    }
}

void image_target_put(const image_target *t, size_t y, size_t x, size_t n, raw_kind kind,
                      const uint8_t *raw) {
    static const size_t steps[RAW_KIND_COUNT] = {1, 2, 3, 4, 4, 4};
    const image_order order = t->options->order;
    const size_t step = steps[kind];
    const bool blend = t->options->alpha == IMAGE_ALPHA_BLEND && order != IMAGE_RGBA;
    const uint8_t *bg = t->options->background;
    uint8_t *to = image_target_line(t, y) + x * image_order_channels(order);
    for (size_t i = 0; i < n; i++, raw += step) {
        pixel p = pixel_of(kind, raw);
        if (blend && p.a != 255)
            p = (pixel){over(p.r, p.a, bg[0]), over(p.g, p.a, bg[1]), over(p.b, p.a, bg[2]), 255};
        to = put_pixel(to, order, p);
    }
}

/* ---- the way in -----------------------------------------------------------------------------------------
 */

static status check_options(const image_options *o, error *err) {
    if ((unsigned)o->order >= IMAGE_ORDER_COUNT) {
        return error_set(err, CHURON_INVALID, "image: order: expected below %d, got %d", IMAGE_ORDER_COUNT,
                         (int)o->order);
    }
    if ((unsigned)o->alpha >= IMAGE_ALPHA_COUNT) {
        return error_set(err, CHURON_INVALID, "image: alpha: expected below %d, got %d", IMAGE_ALPHA_COUNT,
                         (int)o->alpha);
    }
    return CHURON_OK;
}

static status decode(tensor *out, image_info *info, const void *bytes, size_t n, const image_options *options,
                     error *err) {
    static image_decoder *const decoders[IMAGE_FORMAT_COUNT] = {
        NULL, image_jpeg_decode, image_png_decode, image_webp_decode, image_gif_decode, image_bmp_decode};
    *info = (image_info){.format = image_sniff(bytes, n), .orientation = 1};
    TRY(check_options(options, err));
    if (info->format == IMAGE_UNKNOWN) {
        return error_set(err, n == 0 ? CHURON_INVALID : CHURON_UNSUPPORTED,
                         "image: format: expected JPEG, PNG, WebP, GIF or BMP, got %s",
                         n == 0 ? "0 bytes" : "bytes of none of these");
    }
    const image_source source = {bytes, n};
    image_target target = {options, info, out};
    const status st = decoders[info->format](&source, &target, err);
    if (st != CHURON_OK && out) tensor_free(out);
    return st;
}

static const image_options default_options;

status image_probe(image_info *out, const void *bytes, size_t n, const image_options *options, error *err) {
    return decode(NULL, out, bytes, n, options ? options : &default_options, err);
}

status image_decode(tensor *out, image_info *info, const void *bytes, size_t n, const image_options *options,
                    error *err) {
    image_info local;
    *out = (tensor){0};
    if (!info) info = &local;
    if (!options) options = &default_options;
    tensor stored = {0};
    TRY(decode(&stored, info, bytes, n, options, err));
    if (options->keep_orientation || info->orientation == 1) {
        *out = stored;
        return CHURON_OK;
    }
    const status st = image_orient(out, &stored, info->orientation, err);
    tensor_free(&stored);
    return st;
}
