/* cell_json.c: cells as JSON. */
#include "pipeline/cell.h"

#include "pipeline/calendar.h"
#include "pipeline/encode.h"

#include <math.h>
#include <stdio.h>

static void write_number(json_out *j, const char *key, double v, bool narrow) {
    if (isnan(v)) {
        json_out_cstr(j, key, "NaN");
    } else if (isinf(v)) {
        json_out_cstr(j, key, v < 0 ? "-Infinity" : "Infinity");
    } else if (narrow) {
        json_out_float(j, key, (float)v);
    } else {
        json_out_double(j, key, v);
    }
}

static void write_b64(json_out *j, const char *key, const void *bytes, size_t n) {
    str text = {0};
    base64_encode(bytes, n, &text);
    if (text.failed) j->to->failed = true;
    json_out_string(j, key, str_cstr(&text), text.len);
    str_free(&text);
}

static void write_element(json_out *j, const char *key, const tensor *t, size_t i) {
    const void *p = (const char *)t->data + i * elem_describe(t->type)->bytes;
    double v;
    if (t->type == ELEM_STRING) {
        const tensor_string *s = p;
        json_out_string(j, key, s->data, s->len);
    } else if (t->type == ELEM_BOOL) {
        json_out_bool(j, key, *(const uint8_t *)p != 0);
    } else if (t->type == ELEM_I64) {
        json_out_int(j, key, *(const int64_t *)p);
    } else if (t->type == ELEM_U64) {
        json_out_uint(j, key, *(const uint64_t *)p);
    } else if (ELEM_BIT(t->type) & ELEMS_COMPLEX) {
        const bool narrow = t->type == ELEM_C64;
        json_out_array(j, key);
        for (size_t k = 0; k < 2; k++)
            write_number(j, NULL, narrow ? (double)((const float *)p)[k] : ((const double *)p)[k], narrow);
        json_out_end_array(j);
    } else {
        elem_to_f64(t->type, p, &v, 1);
        if (ELEM_BIT(t->type) & ELEMS_INT) {
            json_out_int(j, key, (int64_t)v);
        } else {
            write_number(j, key, v, t->type != ELEM_F64);
        }
    }
}

static void write_nested(json_out *j, const char *key, const tensor *t, size_t level, size_t *at) {
    if (level == t->rank) {
        write_element(j, key, t, (*at)++);
        return;
    }
    json_out_array(j, key);
    for (int64_t i = 0; i < t->dims[level]; i++) write_nested(j, NULL, t, level + 1, at);
    json_out_end_array(j);
}

/* Elements of images are many: their bytes as they lie, with what it takes to read them. */
static void write_image(json_out *j, const char *key, const tensor *t) {
    json_out_object(j, key);
    json_out_cstr(j, "dtype", elem_name(t->type));
    json_out_array(j, "shape");
    for (uint32_t i = 0; i < t->rank; i++) json_out_int(j, NULL, t->dims[i]);
    json_out_end_array(j);
    write_b64(j, "b64", t->data, tensor_bytes(t));
    json_out_end_object(j);
}

void cell_write(json_out *j, const char *key, const cell_type *type, const cell *c) {
    char text[40];
    size_t at = 0;
    switch (c->kind) {
    case CELL_BOOL: json_out_bool(j, key, c->flag); break;
    case CELL_INT:
        if (type->element == ELEM_U64) {
            json_out_uint(j, key, (uint64_t)c->integer);
        } else {
            json_out_int(j, key, c->integer);
        }
        break;
    case CELL_FLOAT: write_number(j, key, c->number, type->element == ELEM_F32); break;
    case CELL_TEXT: json_out_string(j, key, c->bytes, c->len); break;
    case CELL_BYTES:
        json_out_object(j, key);
        write_b64(j, "b64", c->bytes, c->len);
        json_out_end_object(j);
        break;
    case CELL_DATE: json_out_cstr(j, key, date_text(c->integer, text)); break;
    case CELL_TIME: json_out_cstr(j, key, time_text(c->integer, text)); break;
    case CELL_IMAGE: write_image(j, key, c->t); break;
    case CELL_AUDIO:
    case CELL_TENSOR: write_nested(j, key, c->t, 0, &at); break;
    case CELL_LIST:
        json_out_array(j, key);
        for (uint32_t i = 0; i < c->n; i++) cell_write(j, NULL, type->of, &c->items[i]);
        json_out_end_array(j);
        break;
    case CELL_RECORD:
        json_out_object(j, key);
        for (uint32_t i = 0; i < c->n; i++)
            cell_write(j, type->members[i].name, type->members[i].type, &c->items[i]);
        json_out_end_object(j);
        break;
    default: json_out_null(j, key);
    }
}
