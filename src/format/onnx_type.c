/* onnx_type.c: TypeProto, shapes, ValueInfoProto. */
#include "format/onnx_read.h"

#include <inttypes.h>

static status read_dim(onnx_reader *r, wire m, onnx_dim *out) {
    enum { VALUE = 1, PARAM = 2 };
    *out = (onnx_dim){.value = -1};
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number == VALUE) {
            TRY(wire_int(r, &f, "dim_value", &out->value));
            out->param = NULL;
            if (out->value < -1) { /* -1 is what many writers put for a size that they do not know */
                return onnx_fail(r, CHURON_CORRUPT, "dim_value: expected 0 or more, got %" PRId64,
                                 out->value);
            }
        } else if (f.number == PARAM) {
            TRY(wire_string(r, &f, "dim_param", &out->param));
            if (!out->param[0]) out->param = NULL;
            out->value = -1;
        }
    }
    return CHURON_OK;
}

static status read_shape(onnx_reader *r, wire m, onnx_type *out) {
    enum { DIM = 1 };
    size_t counts[WIRE_COUNTED], i = 0;
    TRY(wire_count(r, m, counts));
    onnx_dim *dims = NULL;
    TRY(onnx_take(r, counts[DIM], sizeof *dims, &dims));
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number != DIM) continue;
        ONNX_INSIDE(r, &f, "dim", i, read_dim, &dims[i]);
        i++;
    }
    out->has_shape = true;
    out->rank = i;
    out->dims = dims;
    return CHURON_OK;
}

static status read_elem(onnx_reader *r, const wire_field *f, const char *name, elem *out) {
    int64_t v = 0;
    TRY(wire_int(r, f, name, &v));
    if (v < ELEM_NONE || v >= ELEM_COUNT) {
        return onnx_fail(r, CHURON_UNSUPPORTED, "%s: expected 1..%d, got %" PRId64, name, ELEM_COUNT - 1, v);
    }
    *out = (elem)v;
    return CHURON_OK;
}

static status read_tensor_type(onnx_reader *r, wire m, onnx_type *out) {
    enum { ELEM_TYPE = 1, SHAPE = 2 };
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number == ELEM_TYPE) {
            TRY(read_elem(r, &f, "elem_type", &out->type));
        } else if (f.number == SHAPE) {
            ONNX_INSIDE(r, &f, "shape", SIZE_MAX, read_shape, out);
        }
    }
    return CHURON_OK;
}

/* Sequence, Optional: field 1 is the type of items. Map: field 1 the keys' type, field 2 the values'. */
static status read_container(onnx_reader *r, wire m, onnx_type *out) {
    uint32_t of = out->kind == ONNX_MAP ? 2 : 1;
    onnx_type *inner = NULL;
    TRY(onnx_take(r, 1, sizeof *inner, &inner));
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number == of) {
            ONNX_INSIDE(r, &f, of == 2 ? "value_type" : "elem_type", SIZE_MAX, onnx_read_type, inner);
        } else if (f.number == 1) {
            TRY(read_elem(r, &f, "key_type", &out->type));
        }
    }
    out->of = inner;
    return CHURON_OK;
}

status onnx_read_type(onnx_reader *r, wire m, onnx_type *out) {
    static const struct {
        onnx_kind kind;
        const char *name;
    } kinds[] = {[1] = {ONNX_TENSOR, "tensor_type"},
                 [4] = {ONNX_SEQUENCE, "sequence_type"},
                 [5] = {ONNX_MAP, "map_type"},
                 [7] = {ONNX_OPAQUE, "opaque_type"},
                 [8] = {ONNX_SPARSE, "sparse_tensor_type"},
                 [9] = {ONNX_OPTIONAL, "optional_type"}};
    *out = (onnx_type){0};
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number >= sizeof kinds / sizeof kinds[0] || kinds[f.number].kind == ONNX_UNKNOWN) continue;
        *out = (onnx_type){.kind = kinds[f.number].kind}; /* one of them: the last counts */
        if (out->kind == ONNX_OPAQUE) continue;
        if (out->kind == ONNX_TENSOR || out->kind == ONNX_SPARSE) {
            ONNX_INSIDE(r, &f, kinds[f.number].name, SIZE_MAX, read_tensor_type, out);
        } else {
            ONNX_INSIDE(r, &f, kinds[f.number].name, SIZE_MAX, read_container, out);
        }
    }
    return CHURON_OK;
}

status onnx_read_value_info(onnx_reader *r, wire m, onnx_value_info *out) {
    enum { NAME = 1, TYPE = 2 };
    *out = (onnx_value_info){.name = ""};
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number == NAME) {
            TRY(wire_string(r, &f, "name", &out->name));
        } else if (f.number == TYPE) {
            ONNX_INSIDE(r, &f, "type", SIZE_MAX, onnx_read_type, &out->type);
        }
    }
    return CHURON_OK;
}
