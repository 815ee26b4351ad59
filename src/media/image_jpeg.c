/* image_jpeg.c: JPEG by libjpeg-turbo. Its errors leave by longjmp: what must be freed then lies in `reader`,
 * made before setjmp. A warning that means lost picture (early end, bad codes) is an error here. */
#include "media/image_part.h"

#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

enum {
    MAX_SCANS = 500, /* of a progressive file: each costs a pass over all coefficients */
    ICC_START = 12,  /* "ICC_PROFILE" and its zero */
    MAX_EXIF = 65533
};

typedef struct reader {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    status code;
    char message[JMSG_LENGTH_MAX];
    uint8_t *row; /* [width, 4] where rows are converted */
} reader;

static void leave(j_common_ptr c, status code) {
    reader *r = c->client_data;
    r->code = code;
    (*c->err->format_message)(c, r->message);
    longjmp(r->leave, 1);
}

static void on_error(j_common_ptr c) {
    const int code = c->err->msg_code;
    const bool unsupported = code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED ||
                             code == JERR_CONVERSION_NOTIMPL || code == JERR_ARITH_NOTIMPL ||
                             code == JERR_CCIR601_NOTIMPL || code == JERR_FRACT_SAMPLE_NOTIMPL;
    leave(c, code == JERR_OUT_OF_MEMORY ? CHURON_NO_MEMORY
             : unsupported              ? CHURON_UNSUPPORTED
                                        : CHURON_CORRUPT);
}

static void on_message(j_common_ptr c, int level) {
    if (level >= 0) return;
    const int code = c->err->msg_code;
    if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
        code == JWRN_MUST_RESYNC || code == JWRN_BOGUS_PROGRESSION) {
        leave(c, CHURON_CORRUPT);
    }
}

static void on_progress(j_common_ptr c) {
    if (((j_decompress_ptr)c)->input_scan_number <= MAX_SCANS) return;
    reader *r = c->client_data;
    r->code = CHURON_LIMIT;
    (void)snprintf(r->message, sizeof r->message, "scans: expected at most %d, got more", MAX_SCANS);
    longjmp(r->leave, 1);
}

static void read_markers(const reader *r, image_info *info) {
    for (const struct jpeg_marker_struct *m = r->c.marker_list; m; m = m->next) {
        if (m->marker == JPEG_APP0 + 1 && m->data_length > 6 && memcmp(m->data, "Exif\0\0", 6) == 0) {
            if (info->orientation == 1)
                info->orientation = image_exif_orientation(m->data + 6, m->data_length - 6);
        } else if (m->marker == JPEG_APP0 + 2 && m->data_length >= ICC_START &&
                   memcmp(m->data, "ICC_PROFILE", 12) == 0) {
            info->had_icc = true;
        }
    }
}

/* The kind of rows that libjpeg is asked for; `direct`: they are the result's own. */
static raw_kind choose_output(struct jpeg_decompress_struct *c, const image_target *t, bool *direct) {
    *direct = true;
    if (c->jpeg_color_space == JCS_CMYK || c->jpeg_color_space == JCS_YCCK) {
        c->out_color_space = JCS_CMYK;
        *direct = false;
        return c->saw_Adobe_marker ? RAW_CMYK_INVERTED : RAW_CMYK;
    }
    if (c->jpeg_color_space == JCS_GRAYSCALE && t->options->order == IMAGE_L) {
        c->out_color_space = JCS_GRAYSCALE;
        return RAW_L;
    }
    c->out_color_space = JCS_EXT_RGB;
    if (t->options->order == IMAGE_BGR) c->out_color_space = JCS_EXT_BGR;
    if (t->options->order == IMAGE_RGBA) c->out_color_space = JCS_EXT_RGBA;
    *direct = t->options->order != IMAGE_L;
    return RAW_RGB;
}

/* May leave by longjmp. */
static status read_picture(reader *r, const image_source *s, image_target *t, error *err) {
    struct jpeg_decompress_struct *c = &r->c;
    jpeg_mem_src(c, s->bytes, (unsigned long)s->n);
    jpeg_save_markers(c, JPEG_APP0 + 1, MAX_EXIF);
    jpeg_save_markers(c, JPEG_APP0 + 2, ICC_START);
    (void)jpeg_read_header(c, TRUE);
    *t->info = (image_info){.format = IMAGE_JPEG,
                            .width = c->image_width,
                            .height = c->image_height,
                            .channels = (uint32_t)c->num_components,
                            .bits = (uint32_t)c->data_precision,
                            .orientation = 1};
    read_markers(r, t->info);
    if (image_target_probes(t)) return image_target_open(t, false, err);
    TRY(image_target_open(t, false, err));
    bool direct;
    const raw_kind kind = choose_output(c, t, &direct);
    if (!direct) {
        r->row = mem_alloc((size_t)c->image_width * 4);
        if (!r->row) return error_no_memory(err, "a row of a JPEG", (size_t)c->image_width * 4);
    }
    (void)jpeg_start_decompress(c);
    while (c->output_scanline < c->output_height) {
        const size_t y = c->output_scanline;
        JSAMPROW row = direct ? image_target_line(t, y) : r->row;
        (void)jpeg_read_scanlines(c, &row, 1);
        if (!direct) image_target_put(t, y, 0, c->image_width, kind, r->row);
    }
    return CHURON_OK;
}

status image_jpeg_decode(const image_source *s, image_target *t, error *err) {
    reader *r = mem_calloc(1, sizeof *r);
    if (!r) return error_no_memory(err, "JPEG decoder", sizeof *r);
    status st;
    r->c.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->c.client_data = r;
    if (setjmp(r->leave) == 0) {
        jpeg_create_decompress(&r->c);
        r->c.client_data = r;
        r->progress.progress_monitor = on_progress;
        r->c.progress = &r->progress;
        st = read_picture(r, s, t, err);
    } else {
        const bool cut = r->errors.msg_code == JWRN_JPEG_EOF || r->errors.msg_code == JERR_INPUT_EOF;
        st = error_set(err, r->code, "JPEG: %s%s", cut ? "truncated: " : "", r->message);
    }
    jpeg_destroy_decompress(&r->c);
    mem_free(r->row);
    mem_free(r);
    return st;
}
