/* vector.c: see vector.h. */
#include "pipeline/steps/vector.h"

#include <inttypes.h>
#include <string.h>

static const int64_t EXACT = INT64_C(1) << 53; /* every integer up to here is a float64 */

static bool element_is_number(elem e) {
    return (ELEM_BIT(e) & (ELEMS_NUMERIC | ELEM_BIT(ELEM_BOOL))) != 0;
}

bool vector_form_of(const cell_type *t, vector_form *out) {
    *out = (vector_form){.n = 1, .element = t->element, .single = true};
    if (t->optional) return false;
    switch (t->kind) {
    case CELL_BOOL: out->element = ELEM_BOOL; return true;
    case CELL_INT: return t->element != ELEM_U64; /* a cell alone does not tell 2^64 - 1 from -1 */
    case CELL_FLOAT: return true;
    case CELL_LIST:
        if (!vector_form_of(t->of, out) || !out->single) return false;
        *out = (vector_form){.n = -1, .element = out->element};
        return true;
    case CELL_TENSOR:
        out->single = false;
        if (!t->has_rank) out->n = -1;
        for (uint32_t i = 0; t->has_rank && i < t->rank && out->n >= 0; i++) {
            if (t->dims[i] < 0 || (t->dims[i] && out->n > INT32_MAX / t->dims[i])) {
                out->n = -1;
            } else {
                out->n *= t->dims[i];
            }
        }
        return element_is_number(t->element);
    default: return false;
    }
}

status vector_expect(const step_build *b, size_t key, vector_form *out, error *err) {
    const uint32_t kinds =
        1u << CELL_BOOL | 1u << CELL_INT | 1u << CELL_FLOAT | 1u << CELL_TENSOR | 1u << CELL_LIST;
    TRY(step_expect(b, key, kinds, false, err));
    if (vector_form_of(b->values[key].type, out)) return CHURON_OK;
    char got[160];
    return step_fault(b, b->kind->keys[key].name, err, "expected numbers, got '%.60s', which is %s",
                      b->values[key].text, cell_type_text(b->values[key].type, got, sizeof got));
}

cell_type vector_type(const cell_type *in, elem element) {
    cell_type out = *in;
    if (in->kind == CELL_LIST) {
        out = (cell_type){.kind = CELL_TENSOR, .has_rank = true, .rank = 1, .dims = {-1}};
    } else if (in->kind != CELL_TENSOR) {
        const bool is_int = (ELEM_BIT(element) & ELEMS_INT) != 0;
        out.kind = element == ELEM_BOOL ? CELL_BOOL : is_int ? CELL_INT : CELL_FLOAT;
    }
    out.element = element;
    return out;
}

elem vector_result(elem in) {
    return in == ELEM_F32 ? ELEM_F32 : ELEM_F64;
}

status vector_check_count(const step_build *b, size_t key, const vector_form *form, error *err) {
    const size_t n = b->values[key].n;
    const char *name = b->kind->keys[key].name;
    if (n == 0) return step_fault(b, name, err, "expected at least one number, got none");
    if (n == 1 || form->n < 0 || (int64_t)n == form->n) return CHURON_OK;
    return step_fault(b, name, err, "expected one number or %" PRId64 ", as many as the field has, got %zu",
                      form->n, n);
}

status vector_fits(size_t wanted, size_t n, error *err) {
    if (wanted == 1 || wanted == n) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "expected %zu numbers, got %zu", wanted, n);
}

/* ---- reading ---------------------------------------------------------------------------------------- */

static status inexact(error *err) {
    return error_set(err, CHURON_INVALID,
                     "expected integers up to 2^53 in size, which float64 has exactly, "
                     "got a greater one");
}

static bool cell_is_exact(const cell *c) {
    return c->kind != CELL_INT || (c->integer <= EXACT && c->integer >= -EXACT);
}

static bool tensor_is_exact(const tensor *t) {
    const int64_t *v = t->data;
    if (t->type != ELEM_I64 && t->type != ELEM_U64) return true; /* U64 beyond 2^63 looks negative */
    for (size_t i = 0; i < t->count; i++) {
        if (v[i] > EXACT || v[i] < (t->type == ELEM_I64 ? -EXACT : 0)) return false;
    }
    return true;
}

status vector_room(const step *s, run *r, size_t n, double **values, error *err) {
    *values = n <= SIZE_MAX / 16 ? arena_aligned(r->memory, (n ? n : 1) * sizeof **values, 64) : NULL;
    return *values ? CHURON_OK : run_no_memory(r, s, n * sizeof **values, err);
}

static status read_list(const step *s, run *r, const cell *c, const double **values, error *err) {
    double *room;
    TRY(vector_room(s, r, c->n, &room, err));
    for (uint32_t i = 0; i < c->n; i++) {
        if (!cell_is_exact(&c->items[i])) return inexact(err);
        room[i] = cell_number(&c->items[i]);
    }
    *values = room;
    return CHURON_OK;
}

status vector_read(const step *s, run *r, const cell *c, double *one, const double **values, size_t *n,
                   error *err) {
    if (c->kind == CELL_LIST) {
        *n = c->n;
        return read_list(s, r, c, values, err);
    }
    if (c->kind != CELL_TENSOR) {
        if (!cell_is_exact(c)) return inexact(err);
        *one = cell_number(c);
        *values = one;
        *n = 1;
        return CHURON_OK;
    }
    *n = c->t->count;
    *values = c->t->data;
    if (c->t->type == ELEM_F64) return CHURON_OK;
    double *room;
    if (!tensor_is_exact(c->t)) return inexact(err);
    TRY(vector_room(s, r, *n, &room, err));
    elem_to_f64(c->t->type, c->t->data, room, *n);
    *values = room;
    return CHURON_OK;
}

/* ---- results ---------------------------------------------------------------------------------------- */

static status store_tensor(const step *s, run *r, elem element, size_t rank, const int64_t *dims,
                           double *values, size_t n, cell *out, error *err) {
    void *data;
    if (element != ELEM_F64) {
        TRY(cell_new_tensor(out, CELL_TENSOR, r->memory, element, rank, dims, &data, s->label, err));
        elem_from_f64(element, values, data, n, true);
        return CHURON_OK;
    }
    const tensor t = tensor_borrow(element, rank, dims, values);
    return cell_borrow_tensor(out, CELL_TENSOR, r->memory, &t, err);
}

status vector_store_row(const step *s, run *r, elem element, double *values, size_t n, cell *out,
                        error *err) {
    const int64_t dims[1] = {(int64_t)n};
    return store_tensor(s, r, element, 1, dims, values, n, out, err);
}

status vector_store(const step *s, run *r, const cell *like, const cell_type *type, double *values, size_t n,
                    cell *out, error *err) {
    switch (type->kind) {
    case CELL_BOOL: *out = cell_of_bool(*values != 0); return CHURON_OK;
    case CELL_INT: *out = cell_of_int((int64_t)*values); return CHURON_OK;
    case CELL_FLOAT:
        *out = cell_of_float(type->element == ELEM_F32 ? (double)(float)*values : *values);
        return CHURON_OK;
    default: break;
    }
    if (like->kind == CELL_TENSOR)
        return store_tensor(s, r, type->element, like->t->rank, like->t->dims, values, n, out, err);
    return vector_store_row(s, r, type->element, values, n, out, err);
}

elem elem_named(const char *name, elem_set allowed) {
    for (int e = 1; e < ELEM_COUNT; e++) {
        if ((allowed >> e & 1) && strcmp(elem_name((elem)e), name) == 0) return (elem)e;
    }
    return ELEM_NONE;
}
