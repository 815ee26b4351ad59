/* image_webp.c: WebP by libwebp; the container is walked here for what the picture's decoder does not say:
 * EXIF, the profile, and the first frame of an animation, whose canvas is transparent black (as libwebp's own
 * player has it). */
#include "media/image_part.h"

#include <webp/decode.h>

typedef struct part {
    const uint8_t *bytes;
    size_t n;
} part;

typedef struct container {
    part exif, frame;           /* frame: bitstream of the first frame, with its ALPH chunk */
    size_t x, y, width, height; /* of the first frame */
    bool icc, alpha, animated;
    uint32_t canvas_width, canvas_height; /* 0: no VP8X chunk */
} container;

static uint32_t le24(const uint8_t *p) {
    return le16(p) | (uint32_t)p[2] << 16;
}

static status bad(error *err, const char *field, const char *expected) {
    return error_set(err, CHURON_CORRUPT, "WebP: %s: expected %s", field, expected);
}

/* The first ANMF chunk: place, size and bitstream of a frame. */
static status read_frame(container *c, const uint8_t *p, size_t n, error *err) {
    enum { FRAME_HEADER = 16 };
    if (n < FRAME_HEADER) return bad(err, "ANMF", "16 bytes and a picture");
    c->x = (size_t)le24(p) * 2, c->y = (size_t)le24(p + 3) * 2;
    c->width = (size_t)le24(p + 6) + 1, c->height = (size_t)le24(p + 9) + 1;
    c->frame = (part){p + FRAME_HEADER, n - FRAME_HEADER};
    return CHURON_OK;
}

static status read_container(container *c, const image_source *s, error *err) {
    enum { FLAG_ANIMATION = 0x02, FLAG_ALPHA = 0x10, FLAG_ICC = 0x20, VP8X_BYTES = 10 };
    *c = (container){0};
    const size_t riff = (size_t)le32(s->bytes + 4) + 8;
    if (riff > s->n) {
        return error_set(err, CHURON_CORRUPT, "WebP: truncated: expected %zu bytes, got %zu", riff, s->n);
    }
    for (size_t at = 12; riff - at >= 8 && at < riff;) {
        const uint8_t *tag = s->bytes + at, *body = tag + 8;
        const size_t n = le32(tag + 4), left = riff - at - 8;
        if (n > left) {
            return error_set(err, CHURON_CORRUPT,
                             "WebP: truncated: chunk at %zu: expected %zu bytes, got %zu", at, n, left);
        }
        if (memcmp(tag, "VP8X", 4) == 0) {
            if (n < VP8X_BYTES) return bad(err, "VP8X", "10 bytes");
            c->animated = (body[0] & FLAG_ANIMATION) != 0;
            c->alpha = (body[0] & FLAG_ALPHA) != 0;
            c->canvas_width = le24(body + 4) + 1, c->canvas_height = le24(body + 7) + 1;
        } else if (memcmp(tag, "ANMF", 4) == 0 && !c->frame.bytes) {
            TRY(read_frame(c, body, n, err));
        } else if (memcmp(tag, "EXIF", 4) == 0) {
            const bool named =
                n >= 6 && memcmp(body, "Exif\0\0", 6) == 0; /* some writers keep JPEG's prefix */
            c->exif = named ? (part){body + 6, n - 6} : (part){body, n};
        } else if (memcmp(tag, "ICCP", 4) == 0) {
            c->icc = true;
        }
        const size_t padded = n + (n & 1);
        if (padded >= left) break;
        at += 8 + padded;
    }
    return CHURON_OK;
}

static status webp_status(VP8StatusCode code, error *err) {
    switch (code) {
    case VP8_STATUS_OK: return CHURON_OK;
    case VP8_STATUS_OUT_OF_MEMORY: return error_no_memory(err, "WebP decoder", 0);
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED: return image_truncated(err, "WebP", "more of the picture");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return error_set(err, CHURON_UNSUPPORTED, "WebP: a feature that libwebp lacks");
    default: return bad(err, "picture", "a valid bitstream");
    }
}

static status decode_into(const part *p, uint8_t *to, size_t stride, size_t height, WEBP_CSP_MODE mode,
                          error *err) {
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return error_set(err, CHURON_INTERNAL, "WebP: libwebp of another version");
    config.output.colorspace = mode;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = to;
    config.output.u.RGBA.stride = (int)stride;
    config.output.u.RGBA.size = stride * height;
    const VP8StatusCode code = WebPDecode(p->bytes, p->n, &config);
    WebPFreeDecBuffer(&config.output);
    return webp_status(code, err);
}

/* Through a buffer of RGBA: where alpha has to be seen or the frame does not fill the canvas. */
static status decode_through(const container *c, const part *p, size_t width, size_t height, image_target *t,
                             error *err) {
    size_t bytes;
    uint8_t *rgba = size_mul(width * 4, height, &bytes) ? mem_alloc(bytes) : NULL;
    if (!rgba) return error_no_memory(err, "a WebP frame", width * height * 4);
    const status st = decode_into(p, rgba, width * 4, height, MODE_RGBA, err);
    if (st == CHURON_OK) {
        for (size_t y = 0; y < height; y++)
            image_target_put(t, c->y + y, c->x, width, RAW_RGBA, rgba + y * width * 4);
    }
    mem_free(rgba);
    return st;
}

/* The canvas around a frame: black, transparent where the file has alpha. */
static void clear_canvas(const image_target *t) {
    const uint8_t nothing[4] = {0, 0, 0, t->info->had_alpha ? 0 : 255};
    for (uint32_t y = 0; y < t->info->height; y++) {
        for (uint32_t x = 0; x < t->info->width; x++) image_target_put(t, y, x, 1, RAW_RGBA, nothing);
    }
}

status image_webp_decode(const image_source *s, image_target *t, error *err) {
    container c;
    WebPBitstreamFeatures f;
    TRY(read_container(&c, s, err));
    if (c.animated && !c.frame.bytes) return bad(err, "ANMF", "a frame in an animation");
    const part picture = c.animated ? c.frame : (part){s->bytes, s->n};
    TRY(webp_status(WebPGetFeatures(picture.bytes, picture.n, &f), err));
    const bool alpha = c.alpha || f.has_alpha;
    image_info *info = t->info;
    *info = (image_info){.format = IMAGE_WEBP,
                         .width = c.animated ? c.canvas_width : (uint32_t)f.width,
                         .height = c.animated ? c.canvas_height : (uint32_t)f.height,
                         .channels = alpha ? 4 : 3,
                         .bits = 8,
                         .orientation = c.exif.bytes ? image_exif_orientation(c.exif.bytes, c.exif.n) : 1,
                         .had_alpha = alpha,
                         .had_icc = c.icc,
                         .animated = c.animated};
    TRY(image_target_open(t, false, err));
    if (image_target_probes(t)) return CHURON_OK;
    const size_t width = (size_t)f.width, height = (size_t)f.height;
    if (c.animated && (width != c.width || height != c.height || c.x > info->width || c.y > info->height ||
                       width > info->width - c.x || height > info->height - c.y)) {
        return bad(err, "ANMF", "a frame inside the canvas, as large as its picture");
    }
    const image_order order = t->options->order;
    const bool whole = width == info->width && height == info->height;
    if (whole && (order == IMAGE_RGBA || image_target_takes(t, order)) && order != IMAGE_L) {
        const WEBP_CSP_MODE mode = order == IMAGE_RGBA ? MODE_RGBA : order == IMAGE_BGR ? MODE_BGR : MODE_RGB;
        return decode_into(&picture, image_target_line(t, 0), width * image_order_channels(order), height,
                           mode, err);
    }
    if (!whole) clear_canvas(t);
    return decode_through(&c, &picture, width, height, t, err);
}
