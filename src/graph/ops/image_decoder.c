/* image_decoder.c: ImageDecoder: what the room `media` decodes (JPEG, PNG, WebP, GIF, BMP), and read here PNM
 * (P4, P5, P6) and baseline TIFF (grey or RGB, 8 bits, in strips, no compression). JPEG 2000 and compressed
 * TIFF are refused by name. Pixels are as stored, without the turn of EXIF, and alpha is left out, as the
 * standard's reference has them. A stream that cannot be decoded is an error that says why, where the
 * standard would have an empty picture go on through the graph. Hostile bytes: every offset and size is
 * checked against the stream and the run's limit before memory is asked for. */
#include "base/mem.h"
#include "graph/exec.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#if CHURON_MEDIA
#include "media/image.h"
#endif

#include <string.h>

enum pixel_format { PIXEL_RGB, PIXEL_BGR, PIXEL_GREY };
enum { SIDE_MAX = 1 << 20 };

typedef struct decoder_state {
    int format;
} decoder_state;

typedef struct stream {
    const uint8_t *data;
    size_t n;
    bool big; /* TIFF: big-endian */
} stream;

/* A decoded picture as it lies in the stream: row y begins at offset row0 + y * step. */
typedef struct picture {
    int64_t width, height;
    int64_t row0, step;
    unsigned channels; /* bytes a pixel */
    bool bits, strips; /* bits: one a pixel, 1 is black; strips: rows are found through the strip table */
    size_t strip_table, n_strips, rows_per_strip;
} picture;

static status decoder_prepare(op_node *n, error *err) {
    static const char *const formats[] = {"RGB", "BGR", "Grayscale", NULL};
    decoder_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return op_attr_choice(n, "pixel_format", formats, PIXEL_RGB, &st->format, err);
}

static status decoder_infer(op_shapes *s, error *err) {
    const decoder_state *st = shapes_state(s);
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 1, 1, "encoded_stream", &known, &rank, &x, err));
    shapes_out_type(s, 0, ELEM_U8);
    if (shapes_running(s)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    return shapes_out(s, 0, 3, (dim[]){dim_fresh(s), dim_fresh(s), st->format == PIXEL_GREY ? 1 : 3}, err);
}

/* Little- or big-endian numbers; 0 beyond the end (sizes are checked where they matter). */
static uint32_t number(const stream *in, size_t at, size_t bytes) {
    uint32_t v = 0;
    if (at > in->n || bytes > in->n - at) return 0;
    for (size_t i = 0; i < bytes; i++) v = v << 8 | in->data[at + (in->big ? i : bytes - 1 - i)];
    return v;
}

/* NULL: read; else what is wrong. */
static const char *check_sides(const picture *p) {
    return p->width < 1 || p->height < 1 || p->width > SIDE_MAX || p->height > SIDE_MAX
               ? "sides of 1 to 1048576 pixels"
               : NULL;
}

/* A decimal number behind blanks and comments. */
static bool pnm_number(const stream *in, size_t *at, int64_t *out) {
    for (; *at < in->n; ++*at) {
        uint8_t c = in->data[*at];
        if (c == '#') {
            while (*at < in->n && in->data[*at] != '\n') ++*at;
        } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            break;
        }
    }
    size_t first = *at;
    for (*out = 0; *at < in->n && in->data[*at] >= '0' && in->data[*at] <= '9' && *out < 1 << 24; ++*at)
        *out = *out * 10 + in->data[*at] - '0';
    return *at > first;
}

static const char *read_pnm(const stream *in, picture *p) {
    size_t at = 2;
    int64_t most;
    *p = (picture){.channels = in->data[1] == '6' ? 3 : 1, .bits = in->data[1] == '4'};
    if (!pnm_number(in, &at, &p->width) || !pnm_number(in, &at, &p->height)) return "width and height";
    if (check_sides(p)) return check_sides(p);
    if (!p->bits && (!pnm_number(in, &at, &most) || most != 255)) return "a greatest value of 255";
    p->row0 = (int64_t)at + 1;
    p->step = p->bits ? (p->width + 7) / 8 : p->width * p->channels;
    return p->row0 + p->step * p->height > (int64_t)in->n ? "all rows" : NULL;
}

/* Value i of a directory entry at `entry`: inside it if it fits into 4 bytes, else where it points. */
static size_t tiff_value(const stream *in, size_t entry, size_t i) {
    size_t type = number(in, entry + 2, 2), count = number(in, entry + 4, 4),
           bytes = type == 3   ? 2
                   : type == 4 ? 4
                               : 1;
    size_t at = count * bytes <= 4 ? entry + 8 : number(in, entry + 8, 4);
    return i < count ? number(in, at + i * bytes, bytes) : 0;
}

static const char *read_tiff(stream *in, picture *p) {
    in->big = in->data[0] == 'M';
    size_t dir = number(in, 4, 4), n = number(in, dir, 2), bits = 1, compression = 1, photometric = 1,
           planar = 1;
    size_t entry_strips = 0;
    *p = (picture){.channels = 1, .strips = true, .rows_per_strip = SIZE_MAX};
    if (dir > in->n || n * 12 + 2 > in->n - dir) return "a whole directory";
    for (size_t i = 0; i < n; i++) {
        size_t e = dir + 2 + 12 * i;
        switch (number(in, e, 2)) {
        case 256: p->width = (int64_t)tiff_value(in, e, 0); break;
        case 257: p->height = (int64_t)tiff_value(in, e, 0); break;
        case 258: bits = tiff_value(in, e, 0); break;
        case 259: compression = tiff_value(in, e, 0); break;
        case 262: photometric = tiff_value(in, e, 0); break;
        case 273: entry_strips = e, p->n_strips = number(in, e + 4, 4); break;
        case 277: p->channels = (unsigned)tiff_value(in, e, 0); break;
        case 278: p->rows_per_strip = tiff_value(in, e, 0); break;
        case 284: planar = tiff_value(in, e, 0); break;
        default: break;
        }
    }
    if (check_sides(p)) return check_sides(p);
    if (bits != 8 || compression != 1 || planar != 1 || !entry_strips)
        return "8 bits, no compression, chunky strips";
    if (!(p->channels == 1 && photometric == 1) && !(p->channels == 3 && photometric == 2))
        return "grey or RGB";
    if (p->rows_per_strip == 0) return "rows in a strip";
    p->step = p->width * p->channels;
    p->strip_table = entry_strips;
    return NULL;
}

/* Bytes of row y; NULL: outside the stream. */
static const uint8_t *row_of(const stream *in, const picture *p, int64_t y) {
    int64_t at = p->row0 + y * p->step;
    if (p->strips) {
        size_t strip = (size_t)y / p->rows_per_strip;
        if (strip >= p->n_strips) return NULL;
        at = (int64_t)tiff_value(in, p->strip_table, strip) +
             (int64_t)((size_t)y % p->rows_per_strip) * p->step;
        if (at + p->step > (int64_t)in->n) return NULL;
    }
    return in->data + at;
}

static void store_pixel(const picture *p, const uint8_t *row, int64_t k, int format, uint8_t *to) {
    const uint8_t *from = row + k * p->channels;
    uint8_t r, g, b;
    if (p->bits)
        r = g = b = row[k / 8] >> (7 - k % 8) & 1 ? 0 : 255;
    else
        r = from[0], g = from[p->channels == 3 ? 1 : 0], b = from[p->channels == 3 ? 2 : 0];
    if (format == PIXEL_GREY) { /* luma of BT.601 in 16 bits */
        to[0] = (uint8_t)((19595U * r + 38470U * g + 7471U * b + 32768U) >> 16);
        return;
    }
    to[0] = format == PIXEL_RGB ? r : b, to[1] = g, to[2] = format == PIXEL_RGB ? b : r;
}

static bool begins(const stream *in, size_t at, const char *magic, size_t n) {
    return at + n <= in->n && memcmp(in->data + at, magic, n) == 0;
}

static status decode_here(op_run *r, const stream *in, const picture *p, int format, const char *name,
                          error *err) {
    int64_t channels = format == PIXEL_GREY ? 1 : 3;
    tensor *y;
    TRY(run_out_shaped(r, 0, ELEM_U8, 3, (int64_t[]){p->height, p->width, channels}, &y, err));
    for (int64_t i = 0; i < p->height; i++) {
        const uint8_t *row = row_of(in, p, i);
        if (!row)
            return run_error(r, err, CHURON_CORRUPT, "encoded_stream: %s: row %lld expected", name,
                             (long long)i);
        for (int64_t k = 0; k < p->width; k++)
            store_pixel(p, row, k, format, (uint8_t *)y->data + (i * p->width + k) * channels);
    }
    return CHURON_OK;
}

#if CHURON_MEDIA
static status decode_media(op_run *r, const stream *in, int format, error *err) {
    static const image_order orders[] = {IMAGE_RGB, IMAGE_BGR, IMAGE_L};
    const image_options options = {.order = orders[format], .keep_orientation = true};
    image_info info;
    error told = {0};
    tensor y;
    status st = image_probe(&info, in->data, in->n, &options, &told);
    if (st == CHURON_OK) {
        const uint64_t bytes = (uint64_t)info.width * info.height * image_order_channels(options.order);
        TRY(exec_charge(r, bytes, err));
        st = image_decode(&y, &info, in->data, in->n, &options, &told);
        exec_uncharge(r, bytes);
    }
    if (st != CHURON_OK) return run_error(r, err, st, "encoded_stream: %s", told.message);
    run_out_tensor(r, 0, y);
    return CHURON_OK;
}
#else
static status decode_media(op_run *r, const stream *in, int format, error *err) {
    (void)in, (void)format;
    return run_error(
        r, err, CHURON_UNSUPPORTED,
        "encoded_stream: PNM or TIFF expected, got another format: this library was built without "
        "CHURON_MEDIA, which decodes JPEG, PNG, WebP, GIF and BMP");
}
#endif

static status decoder_run(op_run *r, error *err) {
    const decoder_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    stream in = {.data = x->data, .n = x->count};
    picture p;
    if (begins(&in, 4, "jP  ", 4) || begins(&in, 0, "\xff\x4f\xff\x51", 4))
        return run_error(r, err, CHURON_UNSUPPORTED,
                         "encoded_stream: JPEG, PNG, WebP, GIF, BMP, PNM or TIFF expected, got JPEG 2000");
    if (begins(&in, 0, "P4", 2) || begins(&in, 0, "P5", 2) || begins(&in, 0, "P6", 2)) {
        const char *missing = read_pnm(&in, &p);
        return missing ? run_error(r, err, CHURON_CORRUPT, "encoded_stream: PNM: %s expected", missing)
                       : decode_here(r, &in, &p, st->format, "PNM", err);
    }
    if (begins(&in, 0, "II*\0", 4) || begins(&in, 0, "MM\0*", 4)) {
        const char *missing = read_tiff(&in, &p);
        return missing ? run_error(r, err, CHURON_CORRUPT, "encoded_stream: TIFF: %s expected", missing)
                       : decode_here(r, &in, &p, st->format, "TIFF", err);
    }
    return decode_media(r, &in, st->format, err);
}

static const op_def rows[] = {
    {.domain = "",
     .name = "ImageDecoder",
     .since = 20,
     .signature = "T>@",
     .vars = {{'T', ELEM_BIT(ELEM_U8)}},
     .prepare = decoder_prepare,
     .release = mem_free,
     .infer = decoder_infer,
     .run = decoder_run},
};
NN_TABLE(image_decoder);
