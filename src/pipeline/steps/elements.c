/* elements.c: see elements.h. */
#include "pipeline/steps/elements.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

/* ---- types ------------------------------------------------------------------------------------------ */

cell_type tensor_type(elem e, size_t rank, const int64_t *dims) {
    cell_type t = {.kind = CELL_TENSOR, .element = e, .has_rank = true, .rank = (uint32_t)rank};
    if (rank) memcpy(t.dims, dims, rank * sizeof *dims);
    return t;
}

cell_type text_type(bool optional) {
    cell_type t = CELL_TYPE_TEXT;
    t.optional = optional;
    return t;
}

bool element_type(elem e, cell_type *out) {
    *out = (cell_type){.element = e};
    if (e == ELEM_BOOL) {
        out->kind = CELL_BOOL;
    } else if (e == ELEM_STRING) {
        out->kind = CELL_TEXT;
    } else if (ELEM_BIT(e) & ELEMS_INT) {
        out->kind = CELL_INT;
    } else if (ELEM_BIT(e) & ELEMS_FLOAT) {
        out->kind = CELL_FLOAT;
        if (e != ELEM_F64) out->element = ELEM_F32;
    } else {
        return false;
    }
    return true;
}

elem number_element(const cell_type *t) {
    if (t->kind == CELL_BOOL) return ELEM_BOOL;
    if (t->element) return t->element;
    return t->kind == CELL_INT ? ELEM_I64 : ELEM_F64;
}

const cell_type *type_keep(arena *a, const cell_type *t) {
    cell_type *copy = arena_alloc(a, sizeof *copy);
    if (copy) *copy = *t;
    return copy;
}

status list_type(step_build *b, const cell_type *of, cell_type *out, error *err) {
    *out = (cell_type){.kind = CELL_LIST, .of = type_keep(b->memory, of)};
    return out->of ? CHURON_OK : arena_refused(b->memory, "a list's type", sizeof *of, err);
}

status record_type(step_build *b, size_t n, const char *const *names, const cell_type *types, cell_type *out,
                   error *err) {
    cell_member *members = arena_array(b->memory, n ? n : 1, sizeof *members);
    if (!members) return arena_refused(b->memory, "a record's type", n * sizeof *members, err);
    for (size_t i = 0; i < n; i++) {
        members[i] = (cell_member){.name = names[i], .type = type_keep(b->memory, &types[i])};
        if (!members[i].type) return arena_refused(b->memory, "a record's type", sizeof *types, err);
    }
    *out = (cell_type){.kind = CELL_RECORD, .members = members, .n_members = n};
    return CHURON_OK;
}

static bool join_dims(cell_type *out, const cell_type *y, uint32_t rank) {
    for (uint32_t i = 0; i < rank; i++) {
        if (out->dims[i] != y->dims[i]) out->dims[i] = -1;
    }
    return true;
}

static bool join_members(arena *a, const cell_type *x, const cell_type *y, cell_type *out) {
    if (x->n_members != y->n_members) return false;
    cell_member *members = arena_array(a, x->n_members + 1, sizeof *members);
    if (!members) return false;
    for (size_t i = 0; i < x->n_members; i++) {
        cell_type joined;
        if (strcmp(x->members[i].name, y->members[i].name) != 0) return false;
        if (!type_join(a, x->members[i].type, y->members[i].type, &joined)) return false;
        members[i] = (cell_member){.name = x->members[i].name, .type = type_keep(a, &joined)};
        if (!members[i].type) return false;
    }
    out->members = members;
    return true;
}

bool type_join(arena *a, const cell_type *x, const cell_type *y, cell_type *out) {
    *out = *x;
    out->optional = x->optional || y->optional;
    if (x->kind != y->kind) return false;
    switch (x->kind) {
    case CELL_BOOL: return true;
    case CELL_INT:
    case CELL_FLOAT: return number_element(x) == number_element(y);
    case CELL_IMAGE: return x->order == y->order && x->element == y->element && join_dims(out, y, 3);
    case CELL_AUDIO:
        if (x->rate != y->rate) out->rate = 0;
        return join_dims(out, y, 2);
    case CELL_TENSOR:
        if (x->element != y->element || x->has_rank != y->has_rank || x->rank != y->rank) return false;
        return join_dims(out, y, x->has_rank ? x->rank : 0);
    case CELL_LIST: {
        cell_type of;
        if (!type_join(a, x->of, y->of, &of)) return false;
        out->of = type_keep(a, &of);
        return out->of != NULL;
    }
    case CELL_RECORD: return join_members(a, x, y, out);
    default: return true;
    }
}

bool cell_fits(const cell_type *t, const cell *c) {
    if (c->kind == CELL_MISSING) return t->optional;
    if (!cell_has_tensor(c)) return true;
    uint32_t rank = t->rank;
    if (t->kind == CELL_IMAGE) rank = 3;
    if (t->kind == CELL_AUDIO) rank = 2;
    if (c->t->type != t->element) return t->kind != CELL_TENSOR;
    if (t->kind == CELL_TENSOR && !t->has_rank) return true;
    if (c->t->rank != rank) return false;
    for (uint32_t i = 0; i < rank; i++) {
        if (t->dims[i] >= 0 && t->dims[i] != c->t->dims[i]) return false;
    }
    return true;
}

static bool real_elements(elem e) {
    return (ELEM_BIT(e) & (ELEMS_NUMERIC | ELEM_BIT(ELEM_BOOL))) != 0;
}

status expect_numbers(const step_build *b, size_t key, int rank, error *err) {
    const key_value *v = &b->values[key];
    const cell_type *t = v->type;
    const char *name = b->kind->keys[key].name;
    char got[160];
    TRY(step_expect(b, key, KIND(CELL_TENSOR) | KIND(CELL_LIST) | KINDS_NUMBER, false, err));
    const bool list =
        t->kind == CELL_LIST && (rank < 0 || rank == 1) && cell_type_is_number(t->of) && !t->of->optional;
    const bool number = cell_type_is_number(t) && rank <= 0;
    const bool tensor_fits = t->kind == CELL_TENSOR && real_elements(t->element) && t->has_rank &&
                             (rank < 0 || (uint32_t)rank == t->rank);
    if (list || number || tensor_fits) return CHURON_OK;
    if (rank < 0)
        return step_fault(b, name, err, "expected numbers, got '%.60s', which is %s", v->text,
                          cell_type_text(t, got, sizeof got));
    return step_fault(b, name, err, "expected numbers of %d dimension%s, got '%.60s', which is %s", rank,
                      rank == 1 ? "" : "s", v->text, cell_type_text(t, got, sizeof got));
}

/* ---- items ------------------------------------------------------------------------------------------ */

status walk_check(const step_build *b, const char *key, const char *name, const cell_type *type,
                  cell_type *item, error *err) {
    char got[160];
    if (!type->optional && type->kind == CELL_LIST) {
        *item = *type->of;
        return CHURON_OK;
    }
    if (!type->optional && type->kind == CELL_TENSOR && type->has_rank && type->rank > 1) {
        *item = tensor_type(type->element, type->rank - 1, type->dims + 1);
        return CHURON_OK;
    }
    if (!type->optional && type->kind == CELL_TENSOR && type->has_rank && type->rank == 1 &&
        element_type(type->element, item)) {
        return CHURON_OK;
    }
    return step_fault(b, key, err,
                      "expected a list, or a tensor with a first dimension, got '%.60s', which is %s", name,
                      cell_type_text(type, got, sizeof got));
}

int64_t walk_length(const cell_type *t) {
    return t->kind == CELL_TENSOR && t->has_rank && t->rank ? t->dims[0] : -1;
}

size_t walk_count(const cell *c) {
    if (c->kind == CELL_LIST) return c->n;
    return cell_has_tensor(c) && c->t->rank ? (size_t)c->t->dims[0] : 0;
}

static cell element_cell(const tensor *t, size_t i) {
    const char *at = (const char *)t->data + i * elem_describe(t->type)->bytes;
    double v;
    switch (t->type) {
    case ELEM_BOOL: return cell_of_bool(*(const uint8_t *)at != 0);
    case ELEM_STRING: {
        const tensor_string *s = (const tensor_string *)(const void *)at;
        return cell_of_text(s->data, s->len);
    }
    case ELEM_I64:
    case ELEM_U64: return cell_of_int(*(const int64_t *)(const void *)at);
    default:
        elem_to_f64(t->type, at, &v, 1);
        return ELEM_BIT(t->type) & ELEMS_INT ? cell_of_int((int64_t)v) : cell_of_float(v);
    }
}

status walk_item(const cell *c, size_t i, arena *a, cell *out, error *err) {
    if (c->kind == CELL_LIST) {
        *out = c->items[i];
        return CHURON_OK;
    }
    if (c->t->rank == 1) {
        *out = element_cell(c->t, i);
        return CHURON_OK;
    }
    const size_t n = (size_t)c->t->dims[0], each = c->t->count / n;
    char *data = (char *)c->t->data + i * each * elem_describe(c->t->type)->bytes;
    const tensor slice = tensor_borrow(c->t->type, c->t->rank - 1, c->t->dims + 1, data);
    return cell_borrow_tensor(out, CELL_TENSOR, a, &slice, err);
}

status gather_items(const cell *from, const size_t *places, size_t n, const char *name, arena *a, cell *out,
                    error *err) {
    if (from->kind == CELL_LIST) {
        cell *items;
        const cell *old = from->items;
        TRY(cell_new_list(out, a, n, &items, err));
        for (size_t i = 0; i < n; i++) items[i] = old[places[i]];
        return CHURON_OK;
    }
    const tensor *t = from->t;
    int64_t dims[TENSOR_MAX_RANK];
    void *data;
    memcpy(dims, t->dims, sizeof dims);
    dims[0] = (int64_t)n;
    TRY(cell_new_tensor(out, CELL_TENSOR, a, t->type, t->rank, dims, &data, name, err));
    const size_t each = t->dims[0] ? tensor_bytes(t) / (size_t)t->dims[0] : 0;
    for (size_t i = 0; i < n && each; i++)
        memcpy((char *)data + i * each, (const char *)t->data + places[i] * each, each);
    return CHURON_OK;
}

status stack_type(const step_build *b, const char *name, const cell_type *item, int64_t length,
                  cell_type *out, error *err) {
    char got[160];
    if (!item->optional && (item->kind == CELL_BOOL || cell_type_is_number(item))) {
        *out = tensor_type(number_element(item), 1, &length);
        return CHURON_OK;
    }
    const bool image = item->kind == CELL_IMAGE;
    const uint32_t rank = image ? 3 : item->rank;
    if (item->optional || !(image || (item->kind == CELL_TENSOR && item->has_rank)) ||
        item->element == ELEM_STRING || rank + 1 > TENSOR_MAX_RANK)
        return step_fault(b, "stack", err,
                          "expected numbers or tensors of a known rank, got '%.60s', which is %s: collect it",
                          name, cell_type_text(item, got, sizeof got));
    *out = (cell_type){.kind = CELL_TENSOR,
                       .element = image && !item->element ? ELEM_U8 : item->element,
                       .has_rank = true,
                       .rank = rank + 1};
    out->dims[0] = length;
    memcpy(out->dims + 1, item->dims, rank * sizeof *item->dims);
    return CHURON_OK;
}

static void put_number(elem e, const cell *c, void *to) {
    const double v = cell_number(c);
    if (e == ELEM_I64 || e == ELEM_U64) {
        memcpy(to, &c->integer, sizeof c->integer);
    } else {
        elem_from_f64(e, &v, to, 1, true);
    }
}

status stack_items(const cell_type *type, const cell *items, size_t n, const char *what, arena *a, cell *out,
                   error *err) {
    int64_t dims[TENSOR_MAX_RANK] = {(int64_t)n};
    void *data;
    const uint32_t rank = type->rank;
    for (uint32_t i = 1; i < rank; i++) dims[i] = type->dims[i] < 0 ? 0 : type->dims[i];
    const bool tensors = n && cell_has_tensor(&items[0]);
    if (tensors) {
        if (items[0].t->rank + 1 != rank || items[0].t->type != type->element)
            return error_set(err, CHURON_INTERNAL, "%s: expected items of the type that it was given", what);
        memcpy(dims + 1, items[0].t->dims, (rank - 1) * sizeof *dims);
    }
    TRY(cell_new_tensor(out, CELL_TENSOR, a, type->element, rank, dims, &data, what, err));
    const size_t bytes = elem_describe(type->element)->bytes, each = n ? out->t->count / n : 0;
    for (size_t i = 0; i < n; i++) {
        char *to = (char *)data + i * each * bytes;
        if (!tensors) {
            put_number(type->element, &items[i], to);
            continue;
        }
        const tensor *t = items[i].t;
        if (t->rank + 1 != rank || memcmp(t->dims, dims + 1, t->rank * sizeof *dims) != 0)
            return error_set(err, CHURON_INVALID,
                             "%s: expected items of one shape to stack, got another at item %zu", what, i);
        if (each) memcpy(to, t->data, each * bytes);
    }
    return CHURON_OK;
}

status size_check(const step_build *b, size_t key, error *err) {
    const cell_type *t = b->values[key].type;
    if (t->kind == CELL_IMAGE && !t->optional) return CHURON_OK;
    TRY(step_expect(b, key, KIND(CELL_IMAGE) | KIND(CELL_TENSOR) | KIND(CELL_LIST), false, err));
    return expect_numbers(b, key, 1, err);
}

status size_read(const cell *c, arena *a, size_t *height, size_t *width, error *err) {
    const double *v = NULL;
    size_t n = 0;
    if (c->kind == CELL_IMAGE) {
        *height = (size_t)c->t->dims[0];
        *width = (size_t)c->t->dims[1];
        return CHURON_OK;
    }
    TRY(cell_numbers(&v, &n, c, a, "size", err));
    if (!v || n != 2 || !(v[0] >= 0 && v[0] <= 1e9 && v[1] >= 0 && v[1] <= 1e9))
        return error_set(err, CHURON_INVALID,
                         "expected [height, width] of 0 to 1000000000, got %zu numbers that are none", n);
    *height = (size_t)v[0];
    *width = (size_t)v[1];
    return CHURON_OK;
}

/* ---- numbers ---------------------------------------------------------------------------------------- */

status cell_numbers(const double **out, size_t *n, const cell *c, arena *a, const char *what, error *err) {
    *n = cell_has_tensor(c) ? c->t->count : c->kind == CELL_LIST ? c->n : 1;
    size_t bytes;
    double *numbers = size_mul(*n ? *n : 1, sizeof *numbers, &bytes) ? arena_alloc(a, bytes) : NULL;
    if (!numbers) return arena_refused(a, what, *n * sizeof *numbers, err);
    if (cell_has_tensor(c)) {
        elem_to_f64(c->t->type, c->t->data, numbers, *n);
    } else if (c->kind == CELL_LIST) {
        for (size_t i = 0; i < *n; i++) numbers[i] = cell_number(&c->items[i]);
    } else {
        numbers[0] = cell_number(c);
    }
    *out = numbers;
    return CHURON_OK;
}

status tensor_of_numbers(cell *out, arena *a, elem e, size_t rank, const int64_t *dims, const double *numbers,
                         const char *what, error *err) {
    void *data;
    TRY(cell_new_tensor(out, CELL_TENSOR, a, e, rank, dims, &data, what, err));
    elem_from_f64(e, numbers, data, out->t->count, true);
    return CHURON_OK;
}

cell number_cell(const cell_type *t, double v) {
    if (t->kind == CELL_INT) return cell_of_int((int64_t)v);
    return cell_of_float(t->element == ELEM_F32 ? (double)(float)v : v);
}

status cell_number_rows(const cell *c, number_rows *out, arena *a, const char *what, error *err) {
    size_t n;
    TRY(cell_numbers(&out->data, &n, c, a, what, err));
    const bool wide = cell_has_tensor(c) && c->t->rank > 0;
    out->columns = wide ? (size_t)c->t->dims[c->t->rank - 1] : n;
    out->rows = out->columns ? n / out->columns : 0;
    return CHURON_OK;
}
