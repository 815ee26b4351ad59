/* cell.c: see cell.h. */
#include "pipeline/cell.h"

#include "base/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const cell_type CELL_TYPE_BOOL = {.kind = CELL_BOOL, .element = ELEM_BOOL};
const cell_type CELL_TYPE_INT = {.kind = CELL_INT, .element = ELEM_I64};
const cell_type CELL_TYPE_DOUBLE = {.kind = CELL_FLOAT, .element = ELEM_F64};
const cell_type CELL_TYPE_TEXT = {.kind = CELL_TEXT, .element = ELEM_STRING};
const cell_type CELL_TYPE_BYTES = {.kind = CELL_BYTES};

/* ---- types ------------------------------------------------------------------------------------------ */

static void dims_text(str *s, const cell_type *t, uint32_t rank) {
    str_cat(s, " [");
    for (uint32_t i = 0; i < rank; i++) {
        if (i) str_cat(s, ", ");
        if (t->dims[i] < 0) {
            str_put(s, '?');
        } else {
            str_fmt(s, "%" PRId64, t->dims[i]);
        }
    }
    str_put(s, ']');
}

static void type_text(str *s, const cell_type *t, int depth) {
    static const char *const plain[CELL_KINDS] = {"nothing", "bool", "int",       "float", "text",
                                                  "bytes",   "date", "timestamp", "image", "audio",
                                                  "tensor",  "list", "record"};
    if (depth > 8) {
        str_cat(s, "…");
        return;
    }
    switch (t->kind) {
    case CELL_INT:
    case CELL_FLOAT: str_cat(s, t->element ? elem_name(t->element) : plain[t->kind]); break;
    case CELL_IMAGE:
        str_cat(s, "image");
        dims_text(s, t, 3);
        break;
    case CELL_AUDIO:
        str_cat(s, "audio");
        dims_text(s, t, 2);
        if (t->rate > 0) str_fmt(s, " at %g Hz", t->rate);
        break;
    case CELL_TENSOR:
        str_cat(s, elem_name(t->element));
        if (t->has_rank) {
            dims_text(s, t, t->rank);
        } else {
            str_cat(s, " tensor");
        }
        break;
    case CELL_LIST:
        str_cat(s, "list of ");
        type_text(s, t->of, depth + 1);
        break;
    case CELL_RECORD:
        str_cat(s, "record {");
        for (size_t i = 0; i < t->n_members; i++) {
            str_fmt(s, "%s%s: ", i ? ", " : "", t->members[i].name);
            type_text(s, t->members[i].type, depth + 1);
        }
        str_put(s, '}');
        break;
    default: str_cat(s, plain[t->kind]);
    }
    if (t->optional) str_cat(s, " or missing");
}

const char *cell_type_text(const cell_type *t, char *buf, size_t room) {
    str s = {0};
    type_text(&s, t, 0);
    snprintf(buf, room, "%s", s.failed ? "a value" : str_cstr(&s));
    str_free(&s);
    return buf;
}

static bool dims_fit(const cell_type *wanted, const cell_type *got, uint32_t rank) {
    for (uint32_t i = 0; i < rank; i++) {
        if (wanted->dims[i] >= 0 && got->dims[i] >= 0 && wanted->dims[i] != got->dims[i]) return false;
    }
    return true;
}

bool cell_type_accepts(const cell_type *wanted, const cell_type *got) {
    if (wanted->kind != got->kind || (got->optional && !wanted->optional)) return false;
    switch (wanted->kind) {
    case CELL_INT:
    case CELL_FLOAT: return wanted->element == got->element;
    case CELL_IMAGE: return wanted->order == got->order && dims_fit(wanted, got, 3);
    case CELL_AUDIO: return (wanted->rate == 0 || wanted->rate == got->rate) && dims_fit(wanted, got, 2);
    case CELL_TENSOR:
        if (wanted->element != got->element) return false;
        if (!wanted->has_rank || !got->has_rank) return true;
        return wanted->rank == got->rank && dims_fit(wanted, got, wanted->rank);
    case CELL_LIST: return cell_type_accepts(wanted->of, got->of);
    case CELL_RECORD:
        if (wanted->n_members != got->n_members) return false;
        for (size_t i = 0; i < wanted->n_members; i++) {
            if (strcmp(wanted->members[i].name, got->members[i].name) != 0 ||
                !cell_type_accepts(wanted->members[i].type, got->members[i].type)) {
                return false;
            }
        }
        return true;
    default: return true;
    }
}

/* ---- making cells ----------------------------------------------------------------------------------- */

status cell_new_tensor(cell *out, cell_kind kind, arena *a, elem type, size_t rank, const int64_t *dims,
                       void **data, const char *what, error *err) {
    size_t count;
    TRY(tensor_count(type, rank, dims, &count, what, err));
    const size_t bytes = count * elem_describe(type)->bytes;
    tensor *t = arena_alloc(a, sizeof *t);
    void *elements = t ? arena_aligned(a, bytes, 64) : NULL;
    if (!elements) return arena_refused(a, what, bytes, err);
    if (type == ELEM_STRING) memset(elements, 0, bytes);
    *t = tensor_borrow(type, rank, dims, elements);
    *data = elements;
    *out = (cell){.kind = kind, .t = t};
    return CHURON_OK;
}

status cell_borrow_tensor(cell *out, cell_kind kind, arena *a, const tensor *from, error *err) {
    tensor *t = arena_alloc(a, sizeof *t);
    if (!t) return arena_refused(a, "a tensor", sizeof *t, err);
    *t = tensor_borrow(from->type, from->rank, from->dims, from->data);
    *out = (cell){.kind = kind, .t = t};
    return CHURON_OK;
}

status cell_new_list(cell *out, arena *a, size_t n, cell **items, error *err) {
    if (n > UINT32_MAX)
        return error_set(err, CHURON_LIMIT, "list: expected at most %u items, got %zu", UINT32_MAX, n);
    cell *made = arena_array(a, n ? n : 1, sizeof *made);
    if (!made) return arena_refused(a, "a list", n * sizeof *made, err);
    *out = (cell){.kind = CELL_LIST, .n = (uint32_t)n, .items = made};
    *items = made;
    return CHURON_OK;
}

static status copy_bytes(const char **out, const char *from, size_t n, arena *a, error *err) {
    *out = arena_strndup(a, from, n);
    return *out ? CHURON_OK : arena_refused(a, "a text", n, err);
}

static status copy_tensor(cell *out, const cell *from, arena *a, error *err) {
    const tensor *t = from->t;
    void *data;
    TRY(cell_new_tensor(out, from->kind, a, t->type, t->rank, t->dims, &data, "a copy", err));
    out->rate = from->kind == CELL_AUDIO ? from->rate : 0;
    if (t->type != ELEM_STRING) {
        if (t->count) memcpy(data, t->data, tensor_bytes(t));
        return CHURON_OK;
    }
    tensor_string *to = data;
    const tensor_string *s = t->data;
    for (size_t i = 0; i < t->count; i++) {
        to[i].len = s[i].len;
        TRY(copy_bytes(&to[i].data, s[i].data, s[i].len, a, err));
    }
    return CHURON_OK;
}

status cell_copy(cell *out, const cell *from, arena *a, error *err) {
    cell *items;
    *out = *from;
    switch (from->kind) {
    case CELL_TEXT:
    case CELL_BYTES: return copy_bytes(&out->bytes, from->bytes, from->len, a, err);
    case CELL_IMAGE:
    case CELL_AUDIO:
    case CELL_TENSOR: return copy_tensor(out, from, a, err);
    case CELL_LIST:
    case CELL_RECORD:
        items = arena_array(a, from->n ? from->n : 1, sizeof *items);
        if (!items) return arena_refused(a, "a list", from->n * sizeof *items, err);
        out->items = items;
        for (uint32_t i = 0; i < from->n; i++) TRY(cell_copy(&items[i], &from->items[i], a, err));
        return CHURON_OK;
    default: return CHURON_OK;
    }
}
