/* pipeline_values.c: values of the public interface as cells, and back; see api_part.h. */
#include "api/api_part.h"

#include <inttypes.h>
#include <string.h>

_Static_assert((int)CHURON_RECORD == (int)CELL_RECORD && (int)CHURON_TIME == (int)CELL_TIME &&
                   (int)CHURON_IMAGE == (int)CELL_IMAGE && (int)CHURON_FLAG == (int)CELL_BOOL,
               "one numbering");

enum { MAX_DEPTH = 8 };

typedef struct taking {
    arena *memory;
    size_t record;
    const char *field;
} taking;

static status wrong(const taking *t, error *err, const char *expected) {
    return error_set(err, CHURON_INVALID, "inputs[%zu]: field %.100s: expected %s", t->record, t->field,
                     expected);
}

static bool is_known(elem e) {
    return e > ELEM_NONE && e < ELEM_COUNT && elem_describe(e)->bytes > 0;
}

static status take_tensor(const taking *t, const churon_value *v, cell *out, error *err) {
    const churon_tensor *from = v->tensor;
    size_t count;
    if (!from) return wrong(t, err, "a tensor, got NULL");
    if (!is_known((elem)from->dtype)) return wrong(t, err, "a tensor with an element type, got none");
    TRY(tensor_count((elem)from->dtype, from->rank, from->dims, &count, t->field, err));
    if (from->bytes != count * elem_describe((elem)from->dtype)->bytes || (count && !from->data)) {
        return error_set(err, CHURON_INVALID,
                         "inputs[%zu]: field %.100s: expected %zu bytes of data as the shape says, got %zu",
                         t->record, t->field, count * elem_describe((elem)from->dtype)->bytes,
                         from->data ? from->bytes : 0);
    }
    size_t alignment = elem_describe((elem)from->dtype)->bytes;
    if (alignment > sizeof(double)) alignment = sizeof(double);
    if ((uintptr_t)from->data % alignment) return wrong(t, err, "elements at an address aligned to them");
    if (v->kind == CHURON_IMAGE && (from->dtype != CHURON_U8 || from->rank != 3))
        return wrong(t, err, "an image as u8 [height, width, channels], got another tensor");
    if (v->kind == CHURON_AUDIO && (from->dtype != CHURON_F32 || from->rank != 2 || !(v->rate > 0)))
        return wrong(t, err, "audio as f32 [channels, samples] and a rate over 0, got another tensor");
    tensor *made = arena_alloc(t->memory, sizeof *made);
    if (!made) return arena_refused(t->memory, t->field, sizeof *made, err);
    *made = tensor_borrow((elem)from->dtype, from->rank, from->dims, from->data);
    *out = (cell){.kind = (cell_kind)v->kind, .t = made};
    if (v->kind == CHURON_AUDIO) out->rate = v->rate;
    return CHURON_OK;
}

static status take(const taking *t, const churon_value *v, cell *out, int depth, error *err);

static status take_list(const taking *t, const churon_value *v, cell *out, int depth, error *err) {
    cell *items;
    if (v->n && !v->items) return wrong(t, err, "items of a list, got NULL");
    TRY(cell_new_list(out, t->memory, v->n, &items, err));
    for (size_t i = 0; i < v->n; i++) TRY(take(t, &v->items[i], &items[i], depth + 1, err));
    return CHURON_OK;
}

static status take(const taking *t, const churon_value *v, cell *out, int depth, error *err) {
    *out = (cell){.kind = (cell_kind)v->kind};
    switch (v->kind) {
    case CHURON_MISSING: return CHURON_OK;
    case CHURON_FLAG: out->flag = v->flag; return CHURON_OK;
    case CHURON_INT:
    case CHURON_DATE:
    case CHURON_TIME: out->integer = v->integer; return CHURON_OK;
    case CHURON_FLOAT: out->number = v->number; return CHURON_OK;
    case CHURON_TEXT:
    case CHURON_BYTES:
        if (v->n && !v->text) return wrong(t, err, "bytes of a text, got NULL");
        out->len = v->n;
        out->bytes = v->text ? v->text : "";
        return CHURON_OK;
    case CHURON_IMAGE:
    case CHURON_AUDIO:
    case CHURON_TENSOR: return take_tensor(t, v, out, err);
    case CHURON_LIST:
        return depth < MAX_DEPTH ? take_list(t, v, out, depth, err)
                                 : wrong(t, err, "lists nested at most 8 deep, got more");
    case CHURON_RECORD:
    default: return wrong(t, err, "a kind of value that an input may have, got another");
    }
}

status api_take_inputs(churon_pipeline_session *s, const churon_value *inputs, size_t n, cell **out,
                       error *err) {
    const size_t fields = pipeline_n_inputs(s->p);
    *out = arena_array(&s->memory, n ? n : 1, (fields ? fields : 1) * sizeof **out);
    if (!*out) return arena_refused(&s->memory, "records", n * fields * sizeof **out, err);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < fields; k++) {
            const taking t = {&s->memory, i, pipeline_input(s->p, k)->name};
            TRY(take(&t, &inputs[i * fields + k], &(*out)[i * fields + k], 0, err));
        }
    }
    return CHURON_OK;
}

/* ---- and out ---------------------------------------------------------------------------------------- */

static status give(arena *a, const cell *c, churon_value *out, error *err) {
    *out = (churon_value){.kind = (churon_kind)c->kind};
    switch (c->kind) {
    case CELL_BOOL: out->flag = c->flag; return CHURON_OK;
    case CELL_INT:
    case CELL_DATE:
    case CELL_TIME: out->integer = c->integer; return CHURON_OK;
    case CELL_FLOAT: out->number = c->number; return CHURON_OK;
    case CELL_TEXT:
    case CELL_BYTES:
        out->n = c->len;
        out->text = c->bytes;
        return CHURON_OK;
    case CELL_IMAGE:
    case CELL_AUDIO:
    case CELL_TENSOR: {
        churon_tensor *t = arena_alloc(a, sizeof *t);
        if (!t) return arena_refused(a, "outputs", sizeof *t, err);
        *t = (churon_tensor){.dtype = (churon_dtype)c->t->type,
                             .rank = c->t->rank,
                             .data = c->t->data,
                             .bytes = tensor_bytes(c->t),
                             .lent = true};
        memcpy(t->dims, c->t->dims, sizeof t->dims);
        out->tensor = t;
        if (c->kind == CELL_AUDIO) out->rate = c->rate;
        return CHURON_OK;
    }
    case CELL_LIST:
    case CELL_RECORD: {
        churon_value *items = arena_array(a, c->n ? c->n : 1, sizeof *items);
        if (!items) return arena_refused(a, "outputs", c->n * sizeof *items, err);
        for (uint32_t i = 0; i < c->n; i++) TRY(give(a, &c->items[i], &items[i], err));
        out->n = c->n;
        out->items = items;
        return CHURON_OK;
    }
    default: return CHURON_OK;
    }
}

status api_give_outputs(churon_pipeline_session *s, const pipeline_answer *from, size_t n,
                        churon_answer *answers, error *err) {
    const size_t outputs = pipeline_n_outputs(s->p);
    churon_value *values = arena_array(&s->memory, n ? n : 1, (outputs ? outputs : 1) * sizeof *values);
    if (!values) return arena_refused(&s->memory, "outputs", n * outputs * sizeof *values, err);
    for (size_t i = 0; i < n; i++) {
        answers[i] = (churon_answer){.status = from[i].st, .message = from[i].message};
        if (from[i].st != CHURON_OK) continue;
        answers[i].outputs = &values[i * outputs];
        for (size_t k = 0; k < outputs; k++)
            TRY(give(&s->memory, &from[i].outputs[k], &values[i * outputs + k], err));
    }
    return CHURON_OK;
}
