/* image_gif.c: the first frame of a GIF. What the frame leaves of the screen uncovered has the transparent
 * index, or index 0 (Pillow's rule). Without a palette an index is a gray. */
#include "media/image_part.h"

enum { LZW_CODES = 4096, LZW_NONE = 0xffff };

typedef struct cursor {
    const uint8_t *p;
    size_t n, at;
} cursor;

typedef struct frame {
    size_t left, top, width, height;
    bool interlaced;
    uint8_t palette[256][3];
    bool has_palette;
    int transparent; /* an index, or -1 */
} frame;

static const uint8_t *take(cursor *c, size_t n) {
    if (c->n - c->at < n) return NULL;
    const uint8_t *p = c->p + c->at;
    c->at += n;
    return p;
}

static bool skip_blocks(cursor *c) {
    for (;;) {
        const uint8_t *size = take(c, 1);
        if (!size) return false;
        if (*size == 0) return true;
        if (!take(c, *size)) return false;
    }
}

static bool take_palette(cursor *c, uint8_t flags, frame *f) {
    if (!(flags & 0x80)) return true;
    const size_t n = (size_t)2 << (flags & 7);
    const uint8_t *p = take(c, n * 3);
    if (!p) return false;
    memset(f->palette, 0, sizeof f->palette);
    memcpy(f->palette, p, n * 3);
    f->has_palette = true;
    return true;
}

/* Extensions up to the next picture: false at the end of the file or of the GIF. */
static bool find_picture(cursor *c, int *transparent) {
    for (;;) {
        const uint8_t *tag = take(c, 1);
        if (!tag || *tag == 0x3b) return false;
        if (*tag == 0x2c) return true;
        if (*tag != 0x21) continue; /* stray bytes between blocks: passed over, as viewers do */
        const uint8_t *label = take(c, 1);
        if (!label) return false;
        if (*label == 0xf9 && c->n - c->at >= 6 && c->p[c->at] == 4 && transparent) {
            const uint8_t *g = c->p + c->at;
            *transparent = g[1] & 1 ? g[4] : -1;
        }
        if (!skip_blocks(c)) return false;
    }
}

/* ---- LZW ------------------------------------------------------------------------------------------------
 */

typedef struct lzw {
    cursor *c;
    size_t block_left; /* bytes of the current sub-block */
    bool ended;        /* the terminating sub-block was read */
    uint32_t bits;
    unsigned n_bits;
    uint16_t prefix[LZW_CODES];
    uint8_t last[LZW_CODES], first[LZW_CODES];
    uint8_t stack[LZW_CODES];
} lzw;

/* -1: no more. */
static int lzw_byte(lzw *z) {
    while (z->block_left == 0) {
        const uint8_t *size = z->ended ? NULL : take(z->c, 1);
        if (!size || *size == 0) {
            z->ended = true;
            return -1;
        }
        z->block_left = *size;
    }
    const uint8_t *b = take(z->c, 1);
    if (!b) return -1;
    z->block_left--;
    return *b;
}

static int lzw_code(lzw *z, unsigned size) {
    while (z->n_bits < size) {
        const int b = lzw_byte(z);
        if (b < 0) return -1;
        z->bits |= (uint32_t)b << z->n_bits;
        z->n_bits += 8;
    }
    const int code = (int)(z->bits & ((1u << size) - 1));
    z->bits >>= size;
    z->n_bits -= size;
    return code;
}

/* Appends the string of `code` to out [at, n); what is more than n is dropped. Returns the new end. */
static size_t lzw_emit(lzw *z, uint32_t code, uint8_t *out, size_t at, size_t n) {
    size_t depth = 0;
    for (;; code = z->prefix[code]) {
        z->stack[depth++] = z->last[code];
        if (z->prefix[code] == LZW_NONE) break;
    }
    while (depth > 0 && at < n) out[at++] = z->stack[--depth];
    return at;
}

/* Indices of the frame in the order of the file; false when the data end or go wrong before all are there. */
static bool lzw_decode(lzw *z, unsigned min_size, uint8_t *out, size_t n) {
    const uint32_t clear = 1u << min_size, end = clear + 1;
    for (uint32_t i = 0; i < clear; i++) z->prefix[i] = LZW_NONE, z->last[i] = z->first[i] = (uint8_t)i;
    uint32_t next = end + 1, before = LZW_NONE;
    unsigned size = min_size + 1;
    size_t at = 0;
    while (at < n) {
        const int got = lzw_code(z, size);
        if (got < 0 || (uint32_t)got == end) return false;
        const uint32_t code = (uint32_t)got;
        if (code == clear) {
            next = end + 1, size = min_size + 1, before = LZW_NONE;
            continue;
        }
        if (before == LZW_NONE ? code >= clear : code > next || (code == next && next >= LZW_CODES))
            return false;
        if (before != LZW_NONE && next < LZW_CODES) {
            z->prefix[next] = (uint16_t)before;
            z->first[next] = z->first[before];
            z->last[next] = code == next ? z->first[before] : z->first[code];
            next++;
            if (next == 1u << size && size < 12) size++;
        }
        at = lzw_emit(z, code, out, at, n);
        before = code;
    }
    return true;
}

/* ---- the picture ----------------------------------------------------------------------------------------
 */

/* Row of the file's row i of an interlaced frame. */
static size_t interlaced_row(size_t i, size_t height) {
    static const size_t start[4] = {0, 4, 2, 1}, step[4] = {8, 8, 4, 2};
    for (size_t pass = 0; pass < 4; pass++) {
        const size_t rows = height > start[pass] ? (height - start[pass] + step[pass] - 1) / step[pass] : 0;
        if (i < rows) return start[pass] + i * step[pass];
        i -= rows;
    }
    return 0;
}

static void put_indices(const image_target *t, const frame *f, size_t y, size_t x, const uint8_t *index,
                        size_t n) {
    enum { AT_ONCE = 256 };
    uint8_t rgba[AT_ONCE][4];
    for (size_t from = 0; from < n; from += AT_ONCE) {
        const size_t count = n - from < AT_ONCE ? n - from : AT_ONCE;
        for (size_t i = 0; i < count; i++) {
            const uint8_t v = index[from + i];
            if (f->has_palette)
                memcpy(rgba[i], f->palette[v], 3);
            else
                memset(rgba[i], v, 3);
            rgba[i][3] = v == f->transparent ? 0 : 255;
        }
        image_target_put(t, y, x + from, count, RAW_RGBA, rgba[0]);
    }
}

static void put_frame(const image_target *t, const frame *f, const uint8_t *index) {
    const uint8_t fill = f->transparent >= 0 ? (uint8_t)f->transparent : 0;
    if (f->width != t->info->width || f->height != t->info->height) {
        for (size_t y = 0; y < t->info->height; y++) {
            for (size_t x = 0; x < t->info->width; x++) put_indices(t, f, y, x, &fill, 1);
        }
    }
    for (size_t i = 0; i < f->height; i++) {
        const size_t y = f->interlaced ? interlaced_row(i, f->height) : i;
        put_indices(t, f, f->top + y, f->left, index + i * f->width, f->width);
    }
}

static status read_frame(cursor *c, const frame *f, image_target *t, error *err) {
    const uint8_t *min_size = take(c, 1);
    if (!min_size) return image_truncated(err, "GIF", "the picture's first byte");
    if (*min_size < 1 || *min_size > 11) {
        return error_set(err, CHURON_CORRUPT, "GIF: code size: expected 1 to 11, got %u", *min_size);
    }
    const size_t n = f->width * f->height; /* below the limits that image_target_open checked */
    status st = CHURON_OK;
    uint8_t *index = mem_alloc(n);
    lzw *z = mem_calloc(1, sizeof *z);
    if (!index || !z) {
        st = error_no_memory(err, "a GIF frame", n);
    } else {
        z->c = c;
        if (!lzw_decode(z, *min_size, index, n)) {
            st = c->at == c->n
                     ? image_truncated(err, "GIF", "more of the picture")
                     : error_set(err, CHURON_CORRUPT, "GIF: picture: expected valid codes for %zux%zu pixels",
                                 f->width, f->height);
        } else {
            put_frame(t, f, index);
            /* What is left of the picture, then whether another follows. */
            if (take(c, z->block_left) && (z->ended || skip_blocks(c)))
                t->info->animated = find_picture(c, NULL);
        }
    }
    mem_free(index);
    mem_free(z);
    return st;
}

status image_gif_decode(const image_source *s, image_target *t, error *err) {
    cursor c = {s->bytes, s->n, 6};
    frame f = {.transparent = -1};
    const uint8_t *screen = take(&c, 7);
    if (!screen || !take_palette(&c, screen[4], &f))
        return image_truncated(err, "GIF", "the screen descriptor");
    if (!find_picture(&c, &f.transparent)) return image_truncated(err, "GIF", "a picture");
    const uint8_t *d = take(&c, 9);
    if (!d) return image_truncated(err, "GIF", "a picture descriptor");
    f.left = le16(d), f.top = le16(d + 2), f.width = le16(d + 4), f.height = le16(d + 6);
    f.interlaced = (d[8] & 0x40) != 0;
    if (!take_palette(&c, d[8], &f)) return image_truncated(err, "GIF", "a palette");
    /* A frame that reaches over the screen enlarges it. */
    const size_t width = le16(screen), height = le16(screen + 2);
    *t->info = (image_info){.format = IMAGE_GIF,
                            .width = (uint32_t)(f.left + f.width > width ? f.left + f.width : width),
                            .height = (uint32_t)(f.top + f.height > height ? f.top + f.height : height),
                            .channels = 1,
                            .bits = (screen[4] & 7u) + 1,
                            .orientation = 1,
                            .had_alpha = f.transparent >= 0};
    if (f.width == 0 || f.height == 0) {
        return error_set(err, CHURON_CORRUPT, "GIF: picture: expected at least 1x1, got %zux%zu", f.width,
                         f.height);
    }
    TRY(image_target_open(t, false, err));
    if (image_target_probes(t)) return CHURON_OK;
    return read_frame(&c, &f, t, err);
}
