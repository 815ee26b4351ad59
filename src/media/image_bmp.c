/* image_bmp.c: Windows and OS/2 bitmaps: 1, 2, 4, 8, 16, 24 and 32 bits, bit masks, RLE of 4 and 8 bits. */
#include "media/image_part.h"

typedef enum compression {
    BMP_RGB,
    BMP_RLE8,
    BMP_RLE4,
    BMP_BITFIELDS,
    BMP_JPEG,
    BMP_PNG,
    BMP_ALPHABITFIELDS
} compression;

typedef struct channel {
    uint32_t mask, shift, most; /* most: 0 where the channel is absent */
} channel;

typedef struct bitmap {
    const uint8_t *data; /* from the picture to the end of the file */
    size_t n;
    size_t width, height;
    bool top_down;
    uint32_t bits, compression;
    uint8_t palette[256][3];
    channel rgba[4];
} bitmap;

static status bad(error *err, const char *field, const char *expected, uint32_t got) {
    return error_set(err, CHURON_CORRUPT, "BMP: %s: expected %s, got %u", field, expected, got);
}

static bool set_mask(channel *c, uint32_t mask) {
    *c = (channel){.mask = mask};
    if (mask == 0) return true;
    while (!(mask >> c->shift & 1)) c->shift++;
    c->most = mask >> c->shift;
    return (c->most & (c->most + 1)) == 0; /* its bits are neighbours */
}

static status read_masks(bitmap *b, const uint8_t *masks, bool with_alpha, error *err) {
    static const uint32_t of_16[3] = {0x7c00, 0x03e0, 0x001f}, of_32[3] = {0xff0000, 0xff00, 0xff};
    static const char *const names[4] = {"red mask", "green mask", "blue mask", "alpha mask"};
    for (size_t i = 0; i < 4; i++) {
        uint32_t mask = 0;
        if (!masks && i < 3) mask = b->bits == 16 ? of_16[i] : of_32[i];
        if (masks && (i < 3 || with_alpha)) mask = le32(masks + 4 * i);
        if (!set_mask(&b->rgba[i], mask)) return bad(err, names[i], "neighbouring bits", mask);
    }
    return CHURON_OK;
}

static status read_palette(bitmap *b, const image_source *s, size_t at, size_t entry, uint32_t used,
                           error *err) {
    if (b->bits > 8) return CHURON_OK;
    const size_t most = (size_t)1 << b->bits;
    if (used > 256) return bad(err, "colors", "at most 256", used);
    const size_t n = used == 0 || used > most ? most : used;
    if (at > s->n || s->n - at < n * entry) return image_truncated(err, "BMP", "the palette");
    for (size_t i = 0; i < n; i++) {
        const uint8_t *bgr = s->bytes + at + i * entry;
        b->palette[i][0] = bgr[2], b->palette[i][1] = bgr[1], b->palette[i][2] = bgr[0];
    }
    return CHURON_OK;
}

static status check_kind(const bitmap *b, error *err) {
    const uint32_t bits = b->bits, c = b->compression;
    if (bits != 1 && bits != 2 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32) {
        return bad(err, "bits", "1, 2, 4, 8, 16, 24 or 32", bits);
    }
    if (c == BMP_JPEG || c == BMP_PNG) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "BMP: compression: expected none, RLE or bit fields, got %s",
                         c == BMP_JPEG ? "JPEG" : "PNG");
    }
    const bool masks = c == BMP_BITFIELDS || c == BMP_ALPHABITFIELDS;
    if (c > BMP_ALPHABITFIELDS || (c == BMP_RLE8 && bits != 8) || (c == BMP_RLE4 && bits != 4) ||
        (masks && bits != 16 && bits != 32)) {
        return error_set(err, CHURON_CORRUPT, "BMP: compression: expected one for %u bits, got %u", bits, c);
    }
    if (b->top_down && (c == BMP_RLE8 || c == BMP_RLE4))
        return bad(err, "height", "not negative with RLE", 0);
    return CHURON_OK;
}

static status read_header(bitmap *b, const image_source *s, error *err) {
    enum { FILE_HEADER = 14, CORE = 12, INFO = 40, WITH_MASKS = 52, WITH_ALPHA = 56, LONGEST = 124 };
    if (s->n < FILE_HEADER + 4) return image_truncated(err, "BMP", "a header");
    const size_t offset = le32(s->bytes + 10), header = le32(s->bytes + FILE_HEADER);
    const uint8_t *h = s->bytes + FILE_HEADER;
    if (header != CORE && (header < INFO || header > LONGEST)) {
        return bad(err, "header size", "12 or 40 to 124", (uint32_t)header);
    }
    if (s->n < FILE_HEADER + header) return image_truncated(err, "BMP", "a header");
    uint32_t used = 0;
    const uint8_t *masks = NULL;
    size_t palette = FILE_HEADER + header;
    if (header == CORE) {
        b->width = le16(h + 4), b->height = le16(h + 6), b->bits = le16(h + 10);
    } else {
        const uint32_t width = le32(h + 4), height = le32(h + 8);
        if (width > INT32_MAX) return bad(err, "width", "not negative", width);
        b->top_down = height > INT32_MAX;
        b->width = width, b->height = b->top_down ? 0 - height : height;
        b->bits = le16(h + 14), b->compression = le32(h + 16), used = le32(h + 32);
    }
    TRY(check_kind(b, err));
    bool alpha = header >= WITH_ALPHA || b->compression == BMP_ALPHABITFIELDS;
    if (b->compression == BMP_BITFIELDS || b->compression == BMP_ALPHABITFIELDS) {
        masks = h + INFO;
        if (header < WITH_MASKS) palette += alpha ? 16 : 12;
        if (s->n < FILE_HEADER + INFO + (alpha ? 16u : 12u)) return image_truncated(err, "BMP", "masks");
    }
    TRY(read_masks(b, masks, alpha, err));
    TRY(read_palette(b, s, palette, header == CORE ? 3 : 4, used, err));
    if (offset < FILE_HEADER + header || offset >= s->n) return image_truncated(err, "BMP", "the picture");
    b->data = s->bytes + offset, b->n = s->n - offset;
    return CHURON_OK;
}

static uint8_t channel_of(const channel *c, uint32_t v) {
    return c->most ? (uint8_t)((uint64_t)((v & c->mask) >> c->shift) * 255 / c->most) : 0;
}

static void pixel_of(const bitmap *b, const uint8_t *row, size_t x, uint8_t p[4]) {
    p[3] = 255;
    if (b->bits <= 8) {
        const size_t bit = x * b->bits;
        memcpy(p, b->palette[row[bit / 8] >> (8 - b->bits - bit % 8) & ((1u << b->bits) - 1)], 3);
    } else if (b->bits == 24) {
        p[0] = row[3 * x + 2], p[1] = row[3 * x + 1], p[2] = row[3 * x];
    } else {
        const uint32_t v = b->bits == 16 ? le16(row + 2 * x) : le32(row + 4 * x);
        for (size_t c = 0; c < 3; c++) p[c] = channel_of(&b->rgba[c], v);
        if (b->rgba[3].most) p[3] = channel_of(&b->rgba[3], v);
    }
}

static void put_row(const bitmap *b, const image_target *t, size_t y, const uint8_t *row) {
    enum { AT_ONCE = 256 };
    uint8_t rgba[AT_ONCE][4];
    for (size_t from = 0; from < b->width; from += AT_ONCE) {
        const size_t n = b->width - from < AT_ONCE ? b->width - from : AT_ONCE;
        for (size_t i = 0; i < n; i++) pixel_of(b, row, from + i, rgba[i]);
        image_target_put(t, y, from, n, RAW_RGBA, rgba[0]);
    }
}

static status read_plain(const bitmap *b, const image_target *t, error *err) {
    const size_t used = (b->width * b->bits + 7) / 8, stride = (b->width * b->bits + 31) / 32 * 4;
    const size_t need = stride * (b->height - 1) + used; /* the last row's padding may be missing */
    if (b->n < need) {
        return error_set(err, CHURON_CORRUPT, "BMP: truncated: expected %zu bytes of picture, got %zu", need,
                         b->n);
    }
    for (size_t i = 0; i < b->height; i++)
        put_row(b, t, b->top_down ? i : b->height - 1 - i, b->data + i * stride);
    return CHURON_OK;
}

/* ---- RLE ------------------------------------------------------------------------------------------------
 */

typedef struct rle {
    const bitmap *b;
    uint8_t *index; /* [height, width], from the bottom row up */
    size_t x, y, at;
} rle;

static void rle_put(rle *r, uint8_t index) {
    if (r->x < r->b->width && r->y < r->b->height) r->index[r->y * r->b->width + r->x] = index;
    r->x++;
}

/* The n-th index of bytes that hold one each (8 bits) or two (4 bits, the upper first). */
static uint8_t rle_index(const rle *r, const uint8_t *bytes, size_t n) {
    if (r->b->bits == 8) return bytes[n];
    return n % 2 ? bytes[n / 2] & 15 : bytes[n / 2] >> 4;
}

/* Runs up to the end mark; false when the file ends before it. A row's end stops a run that reaches over it.
 */
static bool rle_read(rle *r) {
    const bitmap *b = r->b;
    while (b->n - r->at >= 2) {
        const uint8_t count = b->data[r->at], code = b->data[r->at + 1];
        r->at += 2;
        if (count > 0) {
            const uint8_t both[2] = {code, code};
            for (size_t i = 0; i < count; i++) rle_put(r, r->b->bits == 8 ? code : rle_index(r, both, i % 2));
        } else if (code == 0) {
            r->x = 0, r->y++;
        } else if (code == 1) {
            return true;
        } else if (code == 2) {
            if (b->n - r->at < 2) return false;
            r->x += b->data[r->at], r->y += b->data[r->at + 1];
            r->at += 2;
        } else {
            const size_t bytes = b->bits == 8 ? code : (code + 1u) / 2, padded = bytes + bytes % 2;
            if (b->n - r->at < bytes) return false;
            for (size_t i = 0; i < code; i++) rle_put(r, rle_index(r, b->data + r->at, i));
            r->at += padded < b->n - r->at ? padded : b->n - r->at;
        }
    }
    return r->y + 1 == b->height ? r->x >= b->width
                                 : r->y >= b->height; /* all there, the mark alone is missing */
}

static status read_rle(const bitmap *b, const image_target *t, error *err) {
    rle r = {.b = b, .index = mem_calloc(b->height, b->width)};
    if (!r.index) return error_no_memory(err, "an RLE bitmap", b->width * b->height);
    status st = CHURON_OK;
    if (!rle_read(&r)) {
        st = image_truncated(err, "BMP", "more runs");
    } else {
        for (size_t y = 0; y < b->height; y++) {
            for (size_t x = 0; x < b->width; x++) {
                image_target_put(t, b->height - 1 - y, x, 1, RAW_RGB, b->palette[r.index[y * b->width + x]]);
            }
        }
    }
    mem_free(r.index);
    return st;
}

status image_bmp_decode(const image_source *s, image_target *t, error *err) {
    bitmap b = {0};
    TRY(read_header(&b, s, err));
    *t->info = (image_info){.format = IMAGE_BMP,
                            .width = (uint32_t)b.width,
                            .height = (uint32_t)b.height,
                            .channels = b.bits <= 8      ? 1
                                        : b.rgba[3].most ? 4
                                                         : 3,
                            .bits = b.bits <= 8    ? b.bits
                                    : b.bits == 16 ? 5
                                                   : 8,
                            .orientation = 1,
                            .had_alpha = b.bits > 8 && b.rgba[3].most != 0};
    TRY(image_target_open(t, false, err));
    if (image_target_probes(t)) return CHURON_OK;
    return b.compression == BMP_RLE8 || b.compression == BMP_RLE4 ? read_rle(&b, t, err)
                                                                  : read_plain(&b, t, err);
}
