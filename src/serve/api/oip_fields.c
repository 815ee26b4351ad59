/* oip_fields.c: the fields of a bundle in the inference protocol; see oip.h. */
#include "serve/api/oip.h"

#include "base/mem.h"
#include "pipeline/calendar.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- ports ------------------------------------------------------------------------------------------ */

static elem element_of(const cell_type *t) {
    switch (t->kind) {
    case CELL_BOOL: return ELEM_BOOL;
    case CELL_INT:
    case CELL_FLOAT:
    case CELL_TENSOR:
    case CELL_IMAGE:
    case CELL_AUDIO: return t->element;
    default: return ELEM_STRING;
    }
}

static bool is_file(const cell_type *t) {
    return t->kind == CELL_IMAGE || t->kind == CELL_AUDIO;
}

/* Dimensions behind the first. */
static size_t inner_rank(const cell_type *t, bool input) {
    if (t->kind == CELL_TENSOR) return t->rank;
    if (input) return 0;
    return t->kind == CELL_IMAGE ? 3 : t->kind == CELL_AUDIO ? 2 : 0;
}

static status add_port(oip_port *out, const char *name, const cell_type *t, bool input, arena *a,
                       error *err) {
    const size_t rank = inner_rank(t, input);
    onnx_type *of = arena_array(a, 1, sizeof *of);
    onnx_dim *dims = arena_array(a, rank + 1, sizeof *dims);
    if (!of || !dims) return arena_refused(a, "ports", sizeof *of, err);
    const elem type = input && is_file(t) ? ELEM_STRING : element_of(t);
    dims[0].value = -1;
    for (size_t i = 0; i < rank; i++) dims[i + 1].value = t->dims[i];
    *of = (onnx_type){.kind = ONNX_TENSOR,
                      .type = type,
                      .has_shape = t->kind != CELL_TENSOR || t->has_rank,
                      .rank = rank + 1,
                      .dims = dims};
    *out = (oip_port){.name = name, .datatype = oip_datatype(type), .type = type, .of = of};
    return CHURON_OK;
}

status oip_fields_create(oip_model *out, const pipeline *p, const char *name, arena *memory, error *err) {
    *out = (oip_model){0};
    status st = CHURON_OK;
    oip_model m = {.name = name,
                   .n_inputs = pipeline_n_inputs(p),
                   .n_outputs = pipeline_n_outputs(p),
                   .has_sequences = pipeline_manifest(p)->state != NULL};
    m.inputs = mem_calloc(m.n_inputs + 1, sizeof *m.inputs);
    m.outputs = mem_calloc(m.n_outputs + 1, sizeof *m.outputs);
    if (!m.inputs || !m.outputs) {
        st = error_no_memory(err, "ports", m.n_inputs + m.n_outputs);
        goto cleanup;
    }
    for (size_t i = 0; i < m.n_inputs; i++) {
        const input_field *f = pipeline_input(p, i);
        TRY_GOTO(add_port(&m.inputs[i], f->name, &f->type, true, memory, err));
        m.inputs[i].optional = !f->required;
        if (f->type.kind != CELL_LIST && m.inputs[i].datatype) continue;
        char type[120];
        st =
            error_set(err, CHURON_UNSUPPORTED,
                      "input '%.100s': expected a type that the inference protocol has, got %s: use :predict",
                      f->name, cell_type_text(&f->type, type, sizeof type));
        goto cleanup;
    }
    for (size_t i = 0; i < m.n_outputs; i++) {
        const pipeline_port port = pipeline_output(p, i);
        TRY_GOTO(add_port(&m.outputs[i], port.name, port.type, false, memory, err));
    }
    *out = m;
    return CHURON_OK;
cleanup:
    oip_model_free(&m);
    return st;
}

/* ---- a request as records --------------------------------------------------------------------------- */

static status count_records(const oip_model *m, const oip_request *r, size_t *n, error *err) {
    const char *first = NULL;
    *n = 1; /* nothing but optional inputs, none of them given: a record without fields */
    for (size_t i = 0; i < m->n_inputs; i++) {
        const tensor *t = &r->inputs[i].t;
        if (r->inputs[i].kind == VALUE_NONE) continue;
        if (t->rank == 0)
            return error_set(
                err, CHURON_INVALID,
                "input '%.100s': shape: expected a first dimension, the number of records, got []",
                m->inputs[i].name);
        if (first && (size_t)t->dims[0] != *n)
            return error_set(
                err, CHURON_INVALID,
                "input '%.100s': shape: expected a first dimension of %zu as input '%.100s' has, "
                "got %" PRId64,
                m->inputs[i].name, *n, first, t->dims[0]);
        first = m->inputs[i].name;
        *n = (size_t)t->dims[0];
    }
    return CHURON_OK;
}

static status check_shape(const input_field *f, const tensor *t, size_t n, error *err) {
    if (f->type.kind == CELL_TENSOR || t->count == n) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "input '%.100s': shape: expected [%zu], one value a record, got %zu values", f->name, n,
                     t->count);
}

static status read_text(const input_field *f, const tensor_string *s, size_t record, cell *out, error *err) {
    const cell_kind kind = f->type.kind;
    bool good = true;
    *out = (cell){.kind = is_file(&f->type) ? CELL_BYTES : kind};
    if (kind == CELL_DATE) {
        good = date_parse(s->data, s->len, &out->integer);
    } else if (kind == CELL_TIME) {
        good = time_parse(s->data, s->len, &out->integer);
    } else {
        out->bytes = s->data ? s->data : "";
        out->len = s->len;
    }
    if (good) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "record %zu: field %.100s: expected %s, got the string '%.*s'",
                     record, f->name,
                     kind == CELL_DATE ? "date (YYYY-MM-DD)" : "timestamp (YYYY-MM-DDThh:mm:ssZ)",
                     (int)(s->len < 60 ? s->len : 60), s->data);
}

static status read_cell(const input_field *f, const tensor *t, size_t record, size_t n, arena *a, cell *out,
                        error *err) {
    const size_t bytes = elem_describe(t->type)->bytes, per = n ? t->count / n : 0;
    char *at = (char *)t->data + record * per * bytes;
    double v;
    switch (f->type.kind) {
    case CELL_BOOL: *out = cell_of_bool(*(const uint8_t *)at != 0); return CHURON_OK;
    case CELL_INT:
        if (t->type == ELEM_I64 || t->type == ELEM_U64) {
            *out = cell_of_int(*(const int64_t *)(const void *)at);
            return CHURON_OK;
        }
        elem_to_f64(t->type, at, &v, 1);
        *out = cell_of_int((int64_t)v);
        return CHURON_OK;
    case CELL_FLOAT:
        elem_to_f64(t->type, at, &v, 1);
        *out = cell_of_float(v);
        return CHURON_OK;
    case CELL_TENSOR: {
        const tensor row = tensor_borrow(t->type, t->rank - 1, t->dims + 1, at);
        return cell_borrow_tensor(out, CELL_TENSOR, a, &row, err);
    }
    default: return read_text(f, (const tensor_string *)(const void *)at, record, out, err);
    }
}

status oip_fields_read(const oip_model *m, const pipeline *p, const oip_request *r, arena *a, cell **records,
                       size_t *n, error *err) {
    TRY(count_records(m, r, n, err));
    cell *made = arena_array(a, *n ? *n : 1, (m->n_inputs ? m->n_inputs : 1) * sizeof *made);
    if (!made) return arena_refused(a, "records", *n * m->n_inputs * sizeof *made, err);
    for (size_t k = 0; k < m->n_inputs; k++) {
        const input_field *f = pipeline_input(p, k);
        if (r->inputs[k].kind == VALUE_NONE) continue; /* zeroed cells are missing ones */
        const tensor *t = &r->inputs[k].t;
        TRY(check_shape(f, t, *n, err));
        for (size_t i = 0; i < *n; i++) TRY(read_cell(f, t, i, *n, a, &made[i * m->n_inputs + k], err));
    }
    *records = made;
    return CHURON_OK;
}

/* ---- answers as tensors ----------------------------------------------------------------------------- */

typedef struct column {
    const char *name;
    const cell_type *type;
    const pipeline_answer *answers;
    size_t n, output;
} column;

static const cell *cell_at(const column *c, size_t i) {
    return &c->answers[i].outputs[c->output];
}

static status no_value(const column *c, size_t i, error *err) {
    return error_set(
        err, CHURON_UNSUPPORTED,
        "output '%.100s': expected a value, which the inference protocol cannot leave out, got none of "
        "record %zu: use :predict",
        c->name, i);
}

static status write_tensors(const column *c, value *out, error *err) {
    int64_t dims[TENSOR_MAX_RANK] = {(int64_t)c->n};
    const tensor *first = NULL;
    tensor t;
    for (size_t i = 0; i < c->n; i++) {
        if (cell_at(c, i)->kind == CELL_MISSING) return no_value(c, i, err);
        const tensor *one = cell_at(c, i)->t;
        if (!first) first = one;
        if (one->rank + 1 > TENSOR_MAX_RANK || one->rank != first->rank ||
            memcmp(one->dims, first->dims, first->rank * sizeof *first->dims) != 0) {
            return error_set(
                err, CHURON_UNSUPPORTED,
                "output '%.100s': expected one shape for all records, got another for record %zu: "
                "send them apart, or use :predict",
                c->name, i);
        }
    }
    const size_t rank = first ? first->rank : 0;
    if (rank) memcpy(dims + 1, first->dims, rank * sizeof *dims);
    TRY(tensor_alloc(&t, element_of(c->type), rank + 1, dims, err));
    *out = value_of_tensor(t);
    for (size_t i = 0; i < c->n; i++) {
        const tensor *one = cell_at(c, i)->t;
        if (t.type != ELEM_STRING) {
            if (one->count) memcpy((char *)t.data + i * tensor_bytes(one), one->data, tensor_bytes(one));
            continue;
        }
        for (size_t k = 0; k < one->count; k++) {
            const tensor_string *s = &((const tensor_string *)one->data)[k];
            TRY(tensor_string_set(&out->t, i * one->count + k, s->data, s->len, err));
        }
    }
    return CHURON_OK;
}

/* Texts and bytes as they are, other things that are no tensors as JSON. */
static status write_texts(const column *c, value *out, error *err) {
    const int64_t dims[1] = {(int64_t)c->n};
    tensor t;
    TRY(tensor_alloc(&t, ELEM_STRING, 1, dims, err));
    *out = value_of_tensor(t);
    for (size_t i = 0; i < c->n; i++) {
        const cell *v = cell_at(c, i);
        char text[40];
        str json = {0};
        status st;
        if (v->kind == CELL_TEXT || v->kind == CELL_BYTES) {
            st = tensor_string_set(&out->t, i, v->bytes, v->len, err);
        } else if (v->kind == CELL_DATE || v->kind == CELL_TIME) {
            const char *s = v->kind == CELL_DATE ? date_text(v->integer, text) : time_text(v->integer, text);
            st = tensor_string_set(&out->t, i, s, strlen(s), err);
        } else if (v->kind == CELL_MISSING) {
            st = tensor_string_set(&out->t, i, "", 0, err);
        } else {
            json_out j = json_out_begin(&json);
            cell_write(&j, NULL, c->type, v);
            st = str_check(&json, err);
            if (st == CHURON_OK) st = tensor_string_set(&out->t, i, str_cstr(&json), json.len, err);
            str_free(&json);
        }
        TRY(st);
    }
    return CHURON_OK;
}

static status write_numbers(const column *c, value *out, error *err) {
    const int64_t dims[1] = {(int64_t)c->n};
    const elem type = element_of(c->type);
    const size_t bytes = elem_describe(type)->bytes;
    tensor t;
    TRY(tensor_alloc(&t, type, 1, dims, err));
    *out = value_of_tensor(t);
    for (size_t i = 0; i < c->n; i++) {
        const cell *v = cell_at(c, i);
        char *to = (char *)t.data + i * bytes;
        if (v->kind == CELL_MISSING && c->type->kind != CELL_FLOAT) return no_value(c, i, err);
        if (type == ELEM_BOOL) {
            *(uint8_t *)to = v->flag;
        } else if (v->kind == CELL_INT) {
            memcpy(to, &v->integer, bytes); /* little-endian, as all that Churon runs on */
        } else {
            const double number = v->kind == CELL_MISSING ? (double)NAN : v->number;
            elem_from_f64(type, &number, to, 1, true);
        }
    }
    return CHURON_OK;
}

status oip_fields_write(const oip_model *m, const pipeline *p, const pipeline_answer *answers, size_t n,
                        value *outputs, error *err) {
    for (size_t k = 0; k < m->n_outputs; k++) {
        const pipeline_port port = pipeline_output(p, k);
        const column c = {port.name, port.type, answers, n, k};
        switch (port.type->kind) {
        case CELL_TENSOR:
        case CELL_IMAGE:
        case CELL_AUDIO: TRY(write_tensors(&c, &outputs[k], err)); break;
        case CELL_BOOL:
        case CELL_INT:
        case CELL_FLOAT: TRY(write_numbers(&c, &outputs[k], err)); break;
        default: TRY(write_texts(&c, &outputs[k], err));
        }
    }
    return CHURON_OK;
}
