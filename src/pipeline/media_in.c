/* media_in.c: see media_in.h. */
#include "pipeline/media_in.h"

#include "pipeline/element.h"

#include "base/file.h"
#include "media/audio.h"
#include "media/image.h"
#include "pipeline/steps/media_part.h"
#include "tensor/npy.h"

#include <string.h>

enum { MAX_FILE = 1 << 30 };

status media_read_file(const record_source *source, const char *path, str *out, error *err) {
    if (source->bundle) return files_read(source->bundle, path, MAX_FILE, out, err);
    str whole = {0};
    if (path[0] != '/' && *source->folder) str_fmt(&whole, "%s/", source->folder);
    str_cat(&whole, path);
    status st = str_check(&whole, err);
    if (st == CHURON_OK) st = file_read(out, whole.data, MAX_FILE, err);
    str_free(&whole);
    return st;
}

status media_read_npy(const record_source *source, const char *path, const cell_type *type, arena *a,
                      cell *out, error *err) {
    str bytes = {0};
    tensor t = {0};
    void *data = NULL;
    status st = media_read_file(source, path, &bytes, err);
    if (st == CHURON_OK) {
        st = npy_parse(&t, bytes.data, bytes.len, err);
        if (st != CHURON_OK) error_prefix(err, "%.200s", path);
    }
    const elem_set numpy_lacks = ELEMS_F8 | ELEMS_LOWBIT | ELEM_BIT(ELEM_BF16);
    const bool widened = (ELEM_BIT(type->element) & numpy_lacks) && (t.type == ELEM_F32 || t.type == ELEM_I8);
    if (st == CHURON_OK && t.type != type->element && !widened)
        st = error_set(err, CHURON_INVALID, "%.200s: expected elements of %s, got %s", path,
                       elem_name(type->element), elem_name(t.type));
    if (st == CHURON_OK)
        st = cell_new_tensor(out, CELL_TENSOR, a, type->element, t.rank, t.dims, &data, path, err);
    if (st == CHURON_OK && t.type == ELEM_STRING) {
        cell borrowed;
        st = cell_borrow_tensor(&borrowed, CELL_TENSOR, a, &t, err);
        if (st == CHURON_OK) st = cell_copy(out, &borrowed, a, err);
    } else if (st == CHURON_OK && widened) {
        st = element_convert(&t, type->element, data, path, err);
    } else if (st == CHURON_OK && t.count) {
        memcpy(data, t.data, tensor_bytes(&t));
    }
    tensor_free(&t);
    str_free(&bytes);
    return st;
}

#if CHURON_MEDIA

status media_read_image(const input_field *f, const cell *bytes, arena *a, cell *out, error *err) {
    const image_options o = {.order = (image_order)f->type.order, .max_pixels = f->max_pixels};
    tensor t;
    TRY(image_decode(&t, NULL, bytes->bytes, bytes->len, &o, err));
    return media_adopt(out, CELL_IMAGE, a, &t, err);
}

status media_read_audio(const input_field *f, const cell *bytes, arena *a, cell *out, error *err) {
    tensor t;
    audio_info info;
    TRY(audio_decode(&t, &info, bytes->bytes, bytes->len, NULL, err));
    const double seconds = info.rate ? (double)info.samples / info.rate : 0;
    if (seconds > f->max_seconds) {
        tensor_free(&t);
        return error_set(err, CHURON_LIMIT, "expected at most %g seconds of audio, got %g", f->max_seconds,
                         seconds);
    }
    if (f->type.rate > 0 && f->type.rate != (double)info.rate) {
        tensor_free(&t);
        return error_set(err, CHURON_INVALID, "expected audio of %g samples a second, got %u", f->type.rate,
                         info.rate);
    }
    TRY(media_adopt(out, CELL_AUDIO, a, &t, err));
    out->rate = (double)info.rate;
    return CHURON_OK;
}

#else

status media_read_image(const input_field *f, const cell *bytes, arena *a, cell *out, error *err) {
    (void)bytes;
    (void)a;
    (void)out;
    return error_set(err, CHURON_UNSUPPORTED, "field %.100s: this build reads no images", f->name);
}

status media_read_audio(const input_field *f, const cell *bytes, arena *a, cell *out, error *err) {
    (void)bytes;
    (void)a;
    (void)out;
    return error_set(err, CHURON_UNSUPPORTED, "field %.100s: this build reads no audio", f->name);
}

#endif
