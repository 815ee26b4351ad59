/* flow_values.c: values that are made, named and taken apart: constant, record, pick, rename. */
#include "base/mem.h"
#include "pipeline/pipeline_part.h"
#include "pipeline/steps/elements.h"
#include "pipeline/steps/steps.h"
#include "tensor/npy.h"

#include <inttypes.h>
#include <string.h>

/* ---- constant --------------------------------------------------------------------------------------- */

enum { CONST_VALUE, CONST_FILE, CONST_TYPE, CONST_SHAPE, CONST_INTO };
enum { MAX_NPY = 256 << 20, MAX_NESTING = TENSOR_MAX_RANK };

static const key_spec CONSTANT_KEYS[] = {
    {"value", KEY_ANY, .doc = "A scalar, or a list (of lists) of numbers, all rows of one length"},
    {"file", KEY_FILE, .doc = "Or a file x.npy: a tensor as it is"},
    {"type", KEY_CHOICE, .fallback = "float32",
     .choices =
         "bool|text|float32|float64|float16|bfloat16|int8|int16|int32|int64|uint8|uint16|uint32|uint64",
     .doc = "Type of value, or of its elements"},
    {"shape", KEY_INTS, .least = 0, .most = 1e9,
     .doc = "Shape of the tensor: a scalar fills it, a list is laid out in it; left out: a scalar stays one"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the value"},
    {0}};

typedef struct constant_state {
    cell value;
    tensor from_file; /* released at the end */
} constant_state;

typedef struct nest { /* a list of lists, laid out */
    double *numbers;
    int64_t *integers;
    size_t n;
    bool whole;
} nest;

static elem element_named(const char *name) {
    for (int e = 1; e < ELEM_COUNT; e++) {
        if (strcmp(elem_name((elem)e), name) == 0) return (elem)e;
    }
    return ELEM_NONE;
}

static size_t leaves(const yaml_node *n) {
    if (n->kind != YAML_LIST) return 1;
    size_t total = 0;
    for (size_t i = 0; i < n->n; i++) total += leaves(&n->items[i]);
    return total;
}

/* False: rows of several lengths, or nested too deep. */
static bool shape_of(const yaml_node *n, size_t depth, size_t *rank, int64_t *dims) {
    if (n->kind != YAML_LIST) return depth == *rank;
    if (depth == MAX_NESTING) return false;
    if (depth == *rank) {
        dims[(*rank)++] = (int64_t)n->n;
    } else if (dims[depth] != (int64_t)n->n) {
        return false;
    }
    for (size_t i = 0; i < n->n; i++) {
        if (n->items[i].kind != YAML_LIST && depth + 1 != *rank) return false;
        if (n->items[i].kind == YAML_LIST && i > 0 && depth + 1 == *rank) return false;
        if (!shape_of(&n->items[i], depth + 1, rank, dims)) return false;
    }
    return true;
}

static bool scalar_number_of(const yaml_node *n, elem e, double *number, int64_t *integer) {
    bool flag;
    if (e == ELEM_BOOL) {
        if (!scalar_bool(n, &flag)) return false;
        *integer = flag;
        *number = flag;
        return true;
    }
    if (ELEM_BIT(e) & ELEMS_INT) {
        if (!scalar_int(n, integer)) return false;
        *number = (double)*integer;
        uint64_t there = 0;
        double back;
        if (e == ELEM_I64) return true;
        if (e == ELEM_U64) return *integer >= 0;
        elem_from_f64(e, number, &there, 1, true);
        elem_to_f64(e, &there, &back, 1);
        return back == *number;
    }
    return scalar_number(n, number);
}

static status flatten(const step_build *b, const yaml_node *n, elem e, nest *to, error *err) {
    if (n->kind == YAML_LIST) {
        for (size_t i = 0; i < n->n; i++) TRY(flatten(b, &n->items[i], e, to, err));
        return CHURON_OK;
    }
    char got[64];
    if (n->kind != YAML_SCALAR || !scalar_number_of(n, e, &to->numbers[to->n], &to->integers[to->n]))
        return step_fault(b, "value", err, "expected values of %s, got %s", elem_name(e),
                          yaml_describe(n, got));
    to->n++;
    return CHURON_OK;
}

static status constant_tensor(step_build *b, constant_state *c, elem e, error *err) {
    const key_value *v = b->values, *shape = &v[CONST_SHAPE];
    const yaml_node *n = v[CONST_VALUE].node;
    int64_t dims[TENSOR_MAX_RANK];
    size_t rank = 0, count, have = leaves(n);
    if (!shape_of(n, 0, &rank, dims))
        return step_fault(b, "value", err, "expected lists whose rows are all of one length");
    if (shape->given && shape->n > TENSOR_MAX_RANK)
        return step_fault(b, "shape", err, "expected at most %d dimensions, got %zu", TENSOR_MAX_RANK,
                          shape->n);
    if (shape->given) {
        rank = shape->n;
        if (rank) memcpy(dims, shape->integers, rank * sizeof *dims);
    }
    nest all = {.numbers = arena_array(b->memory, have + 1, sizeof(double)),
                .integers = arena_array(b->memory, have + 1, sizeof(int64_t))};
    if (!all.numbers || !all.integers) return arena_refused(b->memory, "constant", have * 16, err);
    TRY(flatten(b, n, e, &all, err));
    void *data;
    TRY(tensor_count(e, rank, dims, &count, "constant", err));
    if (n->kind == YAML_LIST && count != have)
        return step_fault(b, "shape", err, "expected a shape of %zu elements, got one of %zu", have, count);
    TRY(cell_new_tensor(&c->value, CELL_TENSOR, b->memory, e, rank, dims, &data, "constant", err));
    const size_t bytes = elem_describe(e)->bytes;
    for (size_t i = 0; i < count; i++) {
        const size_t from = n->kind == YAML_LIST ? i : 0;
        if (e == ELEM_I64 || e == ELEM_U64) {
            ((int64_t *)data)[i] = all.integers[from];
        } else {
            elem_from_f64(e, &all.numbers[from], (char *)data + i * bytes, 1, true);
        }
    }
    return CHURON_OK;
}

static status constant_scalar(const step_build *b, constant_state *c, elem e, error *err) {
    const yaml_node *n = b->values[CONST_VALUE].node;
    double number = 0;
    int64_t integer = 0;
    char got[64];
    if (e == ELEM_STRING) {
        c->value = cell_of_text(n->text, n->len);
        return CHURON_OK;
    }
    if (!scalar_number_of(n, e, &number, &integer))
        return step_fault(b, "value", err, "expected a value of %s, got %s", elem_name(e),
                          yaml_describe(n, got));
    if (e == ELEM_BOOL) {
        c->value = cell_of_bool(integer != 0);
    } else if (ELEM_BIT(e) & ELEMS_INT) {
        c->value = cell_of_int(integer);
    } else {
        c->value = cell_of_float(e == ELEM_F64 ? number : (double)(float)number);
    }
    return CHURON_OK;
}

static status constant_texts(step_build *b, constant_state *c, error *err) {
    const yaml_node *n = b->values[CONST_VALUE].node;
    cell *items;
    TRY(cell_new_list(&c->value, b->memory, n->n, &items, err));
    for (size_t i = 0; i < n->n; i++) {
        if (n->items[i].kind != YAML_SCALAR) return step_fault(b, "value", err, "expected a list of texts");
        items[i] = cell_of_text(n->items[i].text, n->items[i].len);
    }
    return CHURON_OK;
}

static status constant_file(step_build *b, constant_state *c, error *err) {
    str bytes = {0};
    status st = files_read(b->p->files, b->values[CONST_FILE].text, MAX_NPY, &bytes, err);
    if (st == CHURON_OK) st = npy_parse(&c->from_file, bytes.data, bytes.len, err);
    if (st == CHURON_OK) st = cell_borrow_tensor(&c->value, CELL_TENSOR, b->memory, &c->from_file, err);
    str_free(&bytes);
    return st;
}

static status check_constant(step_build *b, error *err) {
    const key_value *v = b->values;
    constant_state *c;
    TRY(step_state(b, sizeof *c, &c, err));
    if (v[CONST_VALUE].given == v[CONST_FILE].given)
        return step_fault(b, NULL, err, "expected either 'value' or 'file'");
    const yaml_node *n = v[CONST_VALUE].node;
    const bool text = strcmp(v[CONST_TYPE].text, "text") == 0;
    const elem e = text ? ELEM_STRING : element_named(v[CONST_TYPE].text);
    cell_type type;
    int32_t slot;
    if (v[CONST_FILE].given) {
        TRY(constant_file(b, c, err));
    } else if (n->kind == YAML_LIST && text) {
        TRY(constant_texts(b, c, err));
    } else if (n->kind == YAML_LIST || (v[CONST_SHAPE].given && !text)) {
        TRY(constant_tensor(b, c, e, err));
    } else if (n->kind == YAML_SCALAR) {
        TRY(constant_scalar(b, c, e, err));
    } else {
        return step_fault(b, "value", err, "expected a scalar or a list");
    }
    if (c->value.kind == CELL_TENSOR) {
        type = tensor_type(c->value.t->type, c->value.t->rank, c->value.t->dims);
    } else if (c->value.kind == CELL_LIST) {
        TRY(list_type(b, &CELL_TYPE_TEXT, &type, err));
    } else {
        (void)element_type(e, &type);
    }
    return step_output_named(b, v[CONST_INTO].text, &type, &slot, err);
}

static status run_constant(const step *s, run *r, cell *slots, error *err) {
    const constant_state *c = s->state;
    (void)r;
    (void)err;
    slots[s->out] = c->value;
    return CHURON_OK;
}

static void release_constant(step *s) {
    constant_state *c = s->state;
    if (c) tensor_free(&c->from_file);
}

const step_kind step_constant = {
    .name = "constant",
    .group = "flow",
    .doc = "A value that is the same for every record.",
    .reference = "numpy.array, numpy.full, numpy.load",
    .keys = CONSTANT_KEYS,
    .check = check_constant,
    .row = run_constant,
    .release = release_constant,
};

/* ---- record ----------------------------------------------------------------------------------------- */

enum { RECORD_MEMBERS, RECORD_EACH, RECORD_INTO };

static const key_spec RECORD_KEYS[] = {
    {"members", KEY_NAMES, .required = true, .doc = "{name of the member: field}"},
    {"each", KEY_BOOL, .fallback = "false",
     .doc = "true: the fields are lists (or tensors) of one length, and the result is a list of records"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the result"},
    {0}};

typedef struct record_state {
    const char *const *names;
    int32_t *from;
    size_t n;
    bool each;
} record_state;

static status check_record(step_build *b, error *err) {
    const key_value *v = b->values, *members = &v[RECORD_MEMBERS];
    record_state *rec;
    TRY(step_state(b, sizeof *rec, &rec, err));
    *rec = (record_state){.names = members->others, .n = members->n, .each = v[RECORD_EACH].flag};
    if (members->n == 0) return step_fault(b, "members", err, "expected at least one member, got none");
    rec->from = arena_array(b->memory, rec->n, sizeof *rec->from);
    cell_type *types = arena_array(b->memory, rec->n, sizeof *types), type, list;
    if (!rec->from || !types) return arena_refused(b->memory, "record", rec->n * sizeof *types, err);
    for (size_t i = 0; i < rec->n; i++) {
        const cell_type *t;
        TRY(step_find(b, "members", members->others[i], &rec->from[i], &t, err));
        types[i] = *t;
        if (rec->each) TRY(walk_check(b, "members", members->others[i], t, &types[i], err));
    }
    TRY(record_type(b, rec->n, members->texts, types, &type, err));
    int32_t slot;
    if (!rec->each) return step_output_named(b, v[RECORD_INTO].text, &type, &slot, err);
    TRY(list_type(b, &type, &list, err));
    return step_output_named(b, v[RECORD_INTO].text, &list, &slot, err);
}

static status run_record(const step *s, run *r, cell *slots, error *err) {
    const record_state *rec = s->state;
    size_t n = rec->each ? walk_count(&slots[rec->from[0]]) : 1, cells = 0, bytes = 0;
    for (size_t k = 1; rec->each && k < rec->n; k++) {
        const size_t other = walk_count(&slots[rec->from[k]]);
        if (other != n)
            return error_set(err, CHURON_INVALID, "%.60s: expected %zu items as in '%.60s', got %zu",
                             rec->names[k], n, rec->names[0], other);
    }
    const bool sized = size_mul(n ? n : 1, rec->n, &cells) && size_mul(cells, sizeof(cell), &bytes);
    cell *members = sized ? arena_alloc(r->memory, bytes) : NULL, *items;
    if (!members) return run_no_memory(r, s, cells, err);
    if (!rec->each) {
        for (size_t k = 0; k < rec->n; k++) members[k] = slots[rec->from[k]];
        slots[s->out] = (cell){.kind = CELL_RECORD, .n = (uint32_t)rec->n, .items = members};
        return CHURON_OK;
    }
    TRY(cell_new_list(&slots[s->out], r->memory, n, &items, err));
    for (size_t i = 0; i < n; i++) {
        cell *row = members + i * rec->n;
        for (size_t k = 0; k < rec->n; k++) TRY(walk_item(&slots[rec->from[k]], i, r->memory, &row[k], err));
        items[i] = (cell){.kind = CELL_RECORD, .n = (uint32_t)rec->n, .items = row};
    }
    return CHURON_OK;
}

const step_kind step_record = {
    .name = "record",
    .group = "flow",
    .doc = "Puts values together as a record, or lists of one length as a list of records.",
    .reference = "dict and zip in Python",
    .keys = RECORD_KEYS,
    .check = check_record,
    .row = run_record,
};

/* ---- pick ------------------------------------------------------------------------------------------- */

enum { PICK_FIELD, PICK_MEMBER, PICK_AT, PICK_INTO };

static const key_spec PICK_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A record, a list of records, a list or a tensor"},
    {"member", KEY_TEXT, .doc = "Of a record: the member's value; of a list of records: a list of theirs"},
    {"at", KEY_INT, .least = -1e9, .most = 1e9,
     .doc =
         "Of a list or a tensor's first dimension: the item there; -1 is the last. One that is not there is "
         "missing"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

typedef struct pick_state {
    bool has_at, each;
    int64_t at, member;
} pick_state;

static status check_pick(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[PICK_FIELD].type;
    pick_state *p;
    cell_type out;
    char got[160];
    TRY(step_state(b, sizeof *p, &p, err));
    b->s->in = v[PICK_FIELD].slot;
    p->has_at = v[PICK_AT].given;
    p->at = v[PICK_AT].integer;
    if (v[PICK_AT].given == v[PICK_MEMBER].given)
        return step_fault(b, NULL, err, "expected either 'member' or 'at'");
    if (p->has_at) {
        TRY(walk_check(b, "field", v[PICK_FIELD].text, t, &out, err));
        const int64_t n = walk_length(t), at = p->at < 0 ? p->at + n : p->at;
        if (n >= 0 && (at < 0 || at >= n))
            return step_fault(b, "at", err, "expected one of %" PRId64 " items, got %" PRId64, n, p->at);
        if (n < 0) out.optional = true;
        return step_output(b, PICK_INTO, PICK_FIELD, &out, err);
    }
    p->each = t->kind == CELL_LIST;
    const cell_type *record = p->each ? t->of : t;
    p->member = -1;
    for (size_t i = 0; record->kind == CELL_RECORD && i < record->n_members; i++) {
        if (strcmp(record->members[i].name, v[PICK_MEMBER].text) == 0) p->member = (int64_t)i;
    }
    if (p->member < 0 || (p->each && t->optional))
        return step_fault(b, "member", err, "expected a member of '%.60s', got '%.60s' of %s",
                          v[PICK_FIELD].text, v[PICK_MEMBER].text, cell_type_text(t, got, sizeof got));
    cell_type member = *record->members[p->member].type;
    if (record->optional) member.optional = true;
    if (!p->each) return step_output(b, PICK_INTO, PICK_FIELD, &member, err);
    TRY(list_type(b, &member, &out, err));
    return step_output(b, PICK_INTO, PICK_FIELD, &out, err);
}

static cell member_of(const cell *c, int64_t member) {
    return c->kind == CELL_MISSING ? *c : c->items[member];
}

static status run_pick(const step *s, run *r, cell *slots, error *err) {
    const pick_state *p = s->state;
    const cell from = slots[s->in];
    cell *out = &slots[s->out], *items;
    if (p->has_at) {
        const int64_t n = (int64_t)walk_count(&from), at = p->at < 0 ? p->at + n : p->at;
        *out = (cell){.kind = CELL_MISSING};
        return at < 0 || at >= n ? CHURON_OK : walk_item(&from, (size_t)at, r->memory, out, err);
    }
    if (!p->each) {
        *out = member_of(&from, p->member);
        return CHURON_OK;
    }
    TRY(cell_new_list(out, r->memory, from.n, &items, err));
    for (uint32_t i = 0; i < from.n; i++) items[i] = member_of(&from.items[i], p->member);
    return CHURON_OK;
}

const step_kind step_pick = {
    .name = "pick",
    .group = "flow",
    .doc = "A member of a record (of every record of a list), or the item at a place.",
    .reference = "indexing in Python",
    .keys = PICK_KEYS,
    .check = check_pick,
    .row = run_pick,
};

/* ---- rename ----------------------------------------------------------------------------------------- */

enum { RENAME_FIELD, RENAME_INTO };

static const key_spec RENAME_KEYS[] = {{"field", KEY_FIELD, .required = true, .doc = "A value"},
                                       {"into", KEY_INTO, .required = true, .doc = "Its other name"},
                                       {0}};

static status check_rename(step_build *b, error *err) {
    b->s->in = b->values[RENAME_FIELD].slot;
    return step_output(b, RENAME_INTO, RENAME_FIELD, b->values[RENAME_FIELD].type, err);
}

static status run_rename(const step *s, run *r, cell *slots, error *err) {
    (void)r;
    (void)err;
    slots[s->out] = slots[s->in];
    return CHURON_OK;
}

const step_kind step_rename = {
    .name = "rename",
    .group = "flow",
    .doc = "A value under another name.",
    .reference = "assignment in Python",
    .keys = RENAME_KEYS,
    .check = check_rename,
    .row = run_rename,
};
