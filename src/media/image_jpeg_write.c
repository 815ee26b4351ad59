/* image_jpeg_write.c: pixels to JPEG by libjpeg-turbo. Its errors leave by longjmp, as in image_jpeg.c. */
#include "base/mem.h"
#include "media/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

typedef struct writer {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    jmp_buf leave;
    char message[JMSG_LENGTH_MAX];
    unsigned char *bytes; /* libjpeg's, from malloc */
    unsigned long n;
} writer;

static void on_error(j_common_ptr c) {
    writer *w = c->client_data;
    (*c->err->format_message)(c, w->message);
    longjmp(w->leave, 1);
}

static void on_message(j_common_ptr c, int level) {
    (void)c;
    (void)level;
}

/* May leave by longjmp. */
static void write_picture(writer *w, const tensor *t, int quality) {
    struct jpeg_compress_struct *c = &w->c;
    const size_t stride = (size_t)t->dims[1] * (size_t)t->dims[2];
    jpeg_mem_dest(c, &w->bytes, &w->n);
    c->image_width = (JDIMENSION)t->dims[1];
    c->image_height = (JDIMENSION)t->dims[0];
    c->input_components = (int)t->dims[2];
    c->in_color_space = t->dims[2] == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(c); /* 4:2:0, the accurate integer transform, the standard tables: Pillow's defaults */
    jpeg_set_quality(c, quality, TRUE);
    jpeg_start_compress(c, TRUE);
    while (c->next_scanline < c->image_height) {
        JSAMPROW row = (JSAMPROW)t->data + c->next_scanline * stride;
        (void)jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
}

status image_encode_jpeg(str *out, const tensor *t, int quality, error *err) {
    const bool fits = t->type == ELEM_U8 && t->rank == 3 && (t->dims[2] == 1 || t->dims[2] == 3) &&
                      t->dims[0] > 0 && t->dims[1] > 0 && t->dims[0] <= JPEG_MAX_DIMENSION &&
                      t->dims[1] <= JPEG_MAX_DIMENSION;
    if (!fits)
        return error_set(err, CHURON_INVALID,
                         "JPEG: expected pixels of uint8 [1 to %ld, 1 to %ld, 1 or 3], got others",
                         JPEG_MAX_DIMENSION, JPEG_MAX_DIMENSION);
    if (quality < 1 || quality > 100)
        return error_set(err, CHURON_INVALID, "JPEG: quality: expected 1 to 100, got %d", quality);
    writer *w = mem_calloc(1, sizeof *w);
    if (!w) return error_no_memory(err, "JPEG", sizeof *w);
    w->c.err = jpeg_std_error(&w->errors);
    w->errors.error_exit = on_error;
    w->errors.emit_message = on_message;
    w->c.client_data = w;
    status st = CHURON_OK;
    if (setjmp(w->leave) == 0) {
        jpeg_create_compress(&w->c);
        w->c.client_data = w;
        write_picture(w, t, quality);
        str_add(out, (const char *)w->bytes, w->n);
        st = str_check(out, err);
    } else {
        st = error_set(err, CHURON_INTERNAL, "JPEG: %s", w->message);
    }
    jpeg_destroy_compress(&w->c);
    free(w->bytes);
    mem_free(w);
    return st;
}
