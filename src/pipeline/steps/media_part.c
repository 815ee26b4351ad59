/* media_part.c: see media_part.h. */
#include "pipeline/steps/media_part.h"

#include <string.h>

status media_adopt(cell *out, cell_kind kind, arena *a, tensor *t, error *err) {
    void *data;
    status st = cell_new_tensor(out, kind, a, t->type, t->rank, t->dims, &data, "an image or sound", err);
    if (st == CHURON_OK && t->count) memcpy(data, t->data, tensor_bytes(t));
    tensor_free(t);
    return st;
}

status expect_image(const step_build *b, size_t key, error *err) {
    const key_value *v = &b->values[key];
    const cell_type *t = v->type;
    TRY(step_expect(b, key, KINDS_IMAGE, false, err));
    if (t->kind == CELL_IMAGE) return CHURON_OK;
    const bool channels =
        t->has_rank && t->rank == 3 && (t->dims[2] < 0 || (t->dims[2] >= 1 && t->dims[2] <= 4));
    if (channels && (t->element == ELEM_U8 || t->element == ELEM_F32)) return CHURON_OK;
    char got[120];
    return step_fault(
        b, b->kind->keys[key].name, err,
        "expected an image or a tensor of uint8 or float32 [height, width, 1 to 4], got '%.60s', which is %s",
        v->text, cell_type_text(t, got, sizeof got));
}

cell_type image_type_sized(const cell_type *t, int64_t height, int64_t width) {
    cell_type out = *t;
    out.optional = false;
    out.dims[0] = height;
    out.dims[1] = width;
    return out;
}

status expect_signal(const step_build *b, size_t key, error *err) {
    const key_value *v = &b->values[key];
    const cell_type *t = v->type;
    TRY(step_expect(b, key, KIND(CELL_AUDIO) | KIND(CELL_TENSOR), false, err));
    if (t->kind == CELL_AUDIO || (t->has_rank && (t->rank == 1 || t->rank == 2) && t->element == ELEM_F32))
        return CHURON_OK;
    char got[120];
    return step_fault(
        b, b->kind->keys[key].name, err,
        "expected audio or a tensor of float32 [samples] or [channels, samples], got '%.60s', which is %s",
        v->text, cell_type_text(t, got, sizeof got));
}
