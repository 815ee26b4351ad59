/* image_png.c: PNG by libpng. Its errors leave by longjmp: what must be freed then lies in `reader` or
 * `writer`, made before setjmp. */
#include "media/image_part.h"

#include <setjmp.h>
#include <stdio.h>

#include <png.h>

typedef struct reader {
    const image_source *source;
    size_t at;
    status code; /* of the error that left */
    char message[160];
    uint8_t *row;   /* [row bytes] */
    uint8_t *whole; /* [height, row bytes] of interlaced files */
    png_bytep *rows;
} reader;

static png_voidp png_alloc(png_structp p, png_alloc_size_t n) {
    (void)p;
    return mem_alloc(n);
}
static void png_release(png_structp p, png_voidp m) {
    (void)p;
    mem_free(m);
}
static void on_warning(png_structp p, png_const_charp message) {
    (void)p, (void)message;
}
static void on_error(png_structp p, png_const_charp message) {
    reader *r = png_get_error_ptr(p);
    const bool memory = strstr(message, "memory") != NULL;
    if (r->code == CHURON_OK) r->code = memory ? CHURON_NO_MEMORY : CHURON_CORRUPT;
    (void)snprintf(r->message, sizeof r->message, "%s", message);
    png_longjmp(p, 1);
}
static void on_read(png_structp p, png_bytep to, size_t n) {
    reader *r = png_get_io_ptr(p);
    if (r->source->n - r->at < n) png_error(p, "truncated: expected more bytes, got the end of the file");
    memcpy(to, r->source->bytes + r->at, n);
    r->at += n;
}

/* Text is passed over; a profile is kept as the bytes it is, so that nothing in it is unpacked. */
static void choose_chunks(png_structp p) {
    static const png_byte drop[] = "tEXt\0zTXt\0iTXt\0sPLT\0pCAL\0hIST", keep[] = "iCCP\0acTL";
    png_set_keep_unknown_chunks(p, PNG_HANDLE_CHUNK_NEVER, drop, 6);
    png_set_keep_unknown_chunks(p, PNG_HANDLE_CHUNK_ALWAYS, keep, 2);
    png_set_user_limits(p, PNG_UINT_31_MAX,
                        PNG_UINT_31_MAX); /* image_target_open refuses, with both numbers */
}

static void read_chunks(png_structp p, png_infop i, image_info *info) {
    png_unknown_chunkp chunks;
    const int n = png_get_unknown_chunks(p, i, &chunks);
    for (int c = 0; c < n; c++) {
        info->had_icc |= memcmp(chunks[c].name, "iCCP", 4) == 0;
        info->animated |= memcmp(chunks[c].name, "acTL", 4) == 0;
    }
    png_bytep exif;
    png_uint_32 bytes;
    if (png_get_eXIf_1(p, i, &bytes, &exif)) info->orientation = image_exif_orientation(exif, bytes);
}

/* All kinds of PNG to 8 bits of gray, gray and alpha, RGB or RGBA. */
static void to_bytes(png_structp p, png_infop i) {
    if (png_get_bit_depth(p, i) == 16) png_set_strip_16(p);
    if (png_get_color_type(p, i) == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(p);
    if (png_get_color_type(p, i) == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(p);
    if (png_get_valid(p, i, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(p);
}

static status read_rows(reader *r, png_structp p, image_target *t, int passes, raw_kind kind,
                        size_t row_bytes, error *err) {
    const size_t width = t->info->width, height = t->info->height;
    if (passes == 1) {
        r->row = mem_alloc(row_bytes);
        if (!r->row) return error_no_memory(err, "a row of a PNG", row_bytes);
        const bool direct = kind == RAW_RGB && image_target_takes(t, IMAGE_RGB);
        for (size_t y = 0; y < height; y++) {
            png_read_row(p, direct ? image_target_line(t, y) : r->row, NULL);
            if (!direct) image_target_put(t, y, 0, width, kind, r->row);
        }
        return CHURON_OK;
    }
    size_t bytes;
    r->rows = mem_calloc(height, sizeof *r->rows);
    r->whole = size_mul(row_bytes, height, &bytes) ? mem_alloc(bytes) : NULL;
    if (!r->rows || !r->whole) return error_no_memory(err, "an interlaced PNG", row_bytes * height);
    for (size_t y = 0; y < height; y++) r->rows[y] = r->whole + y * row_bytes;
    png_read_image(p, r->rows);
    for (size_t y = 0; y < height; y++) image_target_put(t, y, 0, width, kind, r->rows[y]);
    return CHURON_OK;
}

/* May leave by longjmp. */
static status read_picture(reader *r, png_structp p, png_infop i, image_target *t, error *err) {
    static const raw_kind kinds[5] = {RAW_L, RAW_L, RAW_LA, RAW_RGB, RAW_RGBA};
    choose_chunks(p);
    png_read_info(p, i);
    const int color = png_get_color_type(p, i);
    image_info *info = t->info;
    *info = (image_info){.format = IMAGE_PNG,
                         .width = png_get_image_width(p, i),
                         .height = png_get_image_height(p, i),
                         .channels = png_get_channels(p, i),
                         .bits = png_get_bit_depth(p, i),
                         .orientation = 1,
                         .had_alpha =
                             (color & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(p, i, PNG_INFO_tRNS) != 0};
    read_chunks(p, i, info);
    TRY(image_target_open(t, false, err));
    if (image_target_probes(t)) return CHURON_OK;
    to_bytes(p, i);
    const int passes = png_set_interlace_handling(p);
    png_read_update_info(p, i);
    TRY(read_rows(r, p, t, passes, kinds[png_get_channels(p, i)], png_get_rowbytes(p, i), err));
    png_read_end(p, i);
    read_chunks(p, i, info);
    return CHURON_OK;
}

status image_png_decode(const image_source *s, image_target *t, error *err) {
    reader *r = mem_calloc(1, sizeof *r);
    if (!r) return error_no_memory(err, "PNG decoder", sizeof *r);
    r->source = s;
    png_infop i = NULL;
    status st;
    png_structp p = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, on_error, on_warning, NULL, png_alloc,
                                             png_release);
    if (p) i = png_create_info_struct(p);
    if (!i) {
        st = error_no_memory(err, "PNG decoder", 0);
    } else if (setjmp(png_jmpbuf(p)) == 0) {
        png_set_read_fn(p, r, on_read);
        st = read_picture(r, p, i, t, err);
    } else {
        st = error_set(err, r->code, "PNG: %s", r->message);
    }
    png_destroy_read_struct(&p, &i, NULL);
    mem_free(r->row);
    mem_free(r->rows);
    mem_free(r->whole);
    mem_free(r);
    return st;
}

/* ---- writing --------------------------------------------------------------------------------------------
 */

static void on_write(png_structp p, png_bytep from, size_t n) {
    str *out = png_get_io_ptr(p);
    str_add(out, (const char *)from, n);
    if (out->failed) png_error(p, "out of memory");
}
static void on_flush(png_structp p) {
    (void)p;
}

/* May leave by longjmp. */
static void write_picture(png_structp p, png_infop i, const tensor *t, str *out) {
    static const int colors[5] = {0, PNG_COLOR_TYPE_GRAY, 0, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    const size_t row = (size_t)(t->dims[1] * t->dims[2]);
    png_set_write_fn(p, out, on_write, on_flush);
    png_set_IHDR(p, i, (png_uint_32)t->dims[1], (png_uint_32)t->dims[0], 8, colors[t->dims[2]],
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(p, i);
    for (int64_t y = 0; y < t->dims[0]; y++) png_write_row(p, (png_const_bytep)t->data + (size_t)y * row);
    png_write_end(p, i);
}

status image_encode_png(str *out, const tensor *t, error *err) {
    if (t->type != ELEM_U8 || t->rank != 3 || t->count == 0 ||
        (t->dims[2] != 1 && t->dims[2] != 3 && t->dims[2] != 4) || t->dims[0] > 0x7fffffff ||
        t->dims[1] > 0x7fffffff) {
        return error_set(err, CHURON_INVALID,
                         "PNG: expected uint8 [height, width, 1, 3 or 4], got %s of rank %u",
                         elem_name(t->type), t->rank);
    }
    reader *r = mem_calloc(1, sizeof *r);
    if (!r) return error_no_memory(err, "PNG encoder", sizeof *r);
    png_infop i = NULL;
    status st = CHURON_OK;
    png_structp p = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, r, on_error, on_warning, NULL, png_alloc,
                                              png_release);
    if (p) i = png_create_info_struct(p);
    if (!i) {
        st = error_no_memory(err, "PNG encoder", 0);
    } else if (setjmp(png_jmpbuf(p)) == 0) {
        write_picture(p, i, t, out);
    } else {
        st = error_set(err, r->code, "PNG: %s", r->message);
    }
    png_destroy_write_struct(&p, &i);
    mem_free(r);
    return st;
}
