/* model.c: a graph as a step. The only step that puts records together: rows of the same shapes are laid
 * behind each other along the first dimension, run at once, and taken apart again. A row's result is that of
 * the row alone: only graphs of which that is proven (graph_output_rows) get several rows in a run; a run
 * that fails for several rows is repeated row by row, so that only the record that caused it fails. */
#include "pipeline/pipeline_part.h"
#include "pipeline/steps/steps.h"

#include "base/mem.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_NAME, KEY_INPUTS, KEY_OUTPUTS, KEY_BATCH, KEY_MAX_BATCH };

enum { MAX_BYTES = 64 << 20 };

typedef enum out_form { OUT_TENSOR, OUT_SCALAR, OUT_MAPS } out_form;

typedef struct model_port {
    const char *name;
    int32_t slot;   /* -1: left out */
    cell_type type; /* of the cell */
    elem element;   /* of the graph's port */
    uint32_t rank;  /* of the graph's port; UINT32_MAX: any */
    out_form form;
} model_port;

typedef struct model_state {
    size_t model;
    bool batch;
    size_t most; /* rows at once */
    model_port *inputs, *outputs;
    size_t n_inputs, n_outputs;
    bool *wanted; /* [n_outputs] */
} model_state;

static const key_spec KEYS[] = {
    {"name", KEY_MODEL, .doc = "Which of the bundle's models; left out where there is one"},
    {"inputs", KEY_NAMES,
     .doc = "A map from the model's inputs to values; those left out take the value of the same name"},
    {"outputs", KEY_NAMES,
     .doc = "A map from the model's outputs to names of new values; left out: all, under their own names"},
    {"batch", KEY_BOOL, .fallback = "true",
     .doc = "Records are put together along the first dimension, which a value then has not itself. false: "
            "the model runs once a "
            "record and values have its exact shapes"},
    {"max_batch", KEY_INT, .fallback = "1024", .least = 1, .most = 1000000,
     .doc = "Most records that run together; they never do where the graph could mix them"},
    {0}};

/* ---- check ------------------------------------------------------------------------------------------ */

static const char *renamed(const key_value *map, const char *name) {
    for (size_t i = 0; i < map->n; i++) {
        if (strcmp(map->texts[i], name) == 0) return map->others[i];
    }
    return NULL;
}

/* Every name on the left of a map must be a port. */
static status check_names(const step_build *b, size_t key, const graph *g, bool outputs, error *err) {
    enum { MOST = 256 };
    const char *names[MOST];
    const size_t n = outputs ? graph_n_outputs(g) : graph_n_inputs(g);
    for (size_t i = 0; i < n && i < MOST; i++)
        names[i] = outputs ? graph_output(g, i).name : graph_input(g, i).name;
    for (size_t k = 0; k < b->values[key].n; k++) {
        const char *got = b->values[key].texts[k];
        size_t i = 0;
        while (i < n && strcmp(outputs ? graph_output(g, i).name : graph_input(g, i).name, got) != 0) i++;
        if (i < n) continue;
        const char *near = keys_nearest(got, names, n < MOST ? n : MOST);
        return step_fault(b, KEYS[key].name, err, "expected an %s of the model%s%s%s, got '%.80s'",
                          outputs ? "output" : "input", near || n ? " such as '" : "",
                          near ? near
                          : n  ? names[0]
                               : "",
                          near || n ? "'" : "", got);
    }
    return CHURON_OK;
}

/* The type of a port as a value of the pipeline: without its first dimension if rows are put together. */
static void port_to_type(const onnx_type *t, bool batch, cell_type *out) {
    *out = (cell_type){.kind = CELL_TENSOR, .element = t->type, .has_rank = t->has_shape};
    if (!t->has_shape) return;
    const size_t from = batch && t->rank > 0;
    out->rank = (uint32_t)(t->rank - from);
    for (size_t i = from; i < t->rank; i++) out->dims[i - from] = t->dims[i].value;
}

static bool scalar_type(elem e, cell_type *out) {
    const elem_set ints = ELEMS_INT, floats = ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64);
    *out = (cell_type){.element = e};
    if (ELEM_BIT(e) & ints) {
        out->kind = CELL_INT;
    } else if (ELEM_BIT(e) & floats) {
        out->kind = CELL_FLOAT;
    } else if (e == ELEM_BOOL) {
        out->kind = CELL_BOOL;
    } else if (e == ELEM_STRING) {
        out->kind = CELL_TEXT;
    } else {
        return false;
    }
    return true;
}

/* May a value of type `got` go into a port whose rows have type `port`? */
static bool input_fits(const cell_type *port, const cell_type *got) {
    cell_type as = *got;
    if (got->optional) return false;
    switch (got->kind) {
    case CELL_TENSOR: return cell_type_accepts(port, got);
    case CELL_IMAGE:
    case CELL_AUDIO:
        as.kind = CELL_TENSOR;
        as.has_rank = true;
        as.rank = got->kind == CELL_IMAGE ? 3 : 2;
        return cell_type_accepts(port, &as);
    case CELL_BOOL:
    case CELL_INT:
    case CELL_FLOAT:
    case CELL_TEXT:
        if (got->element != port->element) return false;
        if (!port->has_rank) return true;
        return port->rank == 0 || (port->rank == 1 && (port->dims[0] == 1 || port->dims[0] < 0));
    default: return false;
    }
}

static status check_input(step_build *b, const model_state *m, graph_port port, model_port *out, error *err) {
    const char *name = renamed(&b->values[KEY_INPUTS], port.name);
    const onnx_type *type = port.type;
    const bool may_lack = type->kind == ONNX_OPTIONAL;
    const cell_type *got;
    *out = (model_port){.name = port.name, .slot = -1};
    if (may_lack && type->of) type = type->of;
    if (may_lack && !name) return CHURON_OK;
    if (type->kind != ONNX_TENSOR)
        return step_fault(
            b, NULL, err,
            "expected inputs that are tensors, got '%.80s' of the model, which is a sequence or a map",
            port.name);
    cell_type wanted;
    port_to_type(type, m->batch, &wanted);
    if (m->batch && type->has_shape && type->rank == 0)
        return step_fault(
            b, NULL, err,
            "expected inputs with a first dimension for records, got '%.80s', a scalar: say batch: false",
            port.name);
    if (m->batch && type->has_shape && type->dims[0].value > 1)
        return step_fault(b, NULL, err,
                          "expected inputs whose first dimension is open or 1, got %" PRId64
                          " of '%.80s': say batch: false and give "
                          "values with that dimension",
                          type->dims[0].value, port.name);
    TRY(step_find(b, name ? "inputs" : NULL, name ? name : port.name, &out->slot, &got, err));
    out->element = type->type;
    out->rank = type->has_shape ? (uint32_t)type->rank : UINT32_MAX;
    out->type = *got;
    if (input_fits(&wanted, got)) return CHURON_OK;
    char want[160], is[160];
    return step_fault(
        b, name ? "inputs" : NULL, err, "expected %s for the model's input '%.60s', got %s%s",
        cell_type_text(&wanted, want, sizeof want), port.name, cell_type_text(got, is, sizeof is),
        cell_type_is_number(got) || got->kind == CELL_TENSOR ? " (a cast or reshape step makes it fit)" : "");
}

static status map_type(step_build *b, const onnx_type *map, cell_type *out, error *err) {
    cell_type *key = arena_array(b->memory, 3, sizeof *key);
    cell_member *members = arena_array(b->memory, 2, sizeof *members);
    if (!key || !members) return arena_refused(b->memory, "a map's type", sizeof *key * 3, err);
    if (!scalar_type(map->type, &key[0]) || !map->of || !scalar_type(map->of->type, &key[1]))
        return step_fault(b, NULL, err,
                          "expected maps from int64 or string to numbers among the model's outputs");
    members[0] = (cell_member){"label", &key[0]};
    members[1] = (cell_member){"score", &key[1]};
    key[2] = (cell_type){.kind = CELL_RECORD, .members = members, .n_members = 2};
    *out = (cell_type){.kind = CELL_LIST, .of = &key[2]};
    return CHURON_OK;
}

static status check_output(step_build *b, model_state *m, size_t i, graph_port port, error *err) {
    const key_value *names = &b->values[KEY_OUTPUTS];
    const char *name = names->given ? renamed(names, port.name) : port.name;
    const onnx_type *t = port.type;
    model_port *out = &m->outputs[i];
    *out = (model_port){.name = port.name, .slot = -1, .element = t->type};
    m->wanted[i] = name != NULL;
    if (!name) return CHURON_OK;
    const bool maps = m->batch && t->kind == ONNX_SEQUENCE && t->of && t->of->kind == ONNX_MAP;
    if (maps) {
        out->form = OUT_MAPS;
        TRY(map_type(b, t->of, &out->type, err));
    } else if (t->kind != ONNX_TENSOR) {
        return step_fault(
            b, NULL, err,
            "expected outputs that are tensors, got '%.80s' of the model: leave it out of outputs",
            port.name);
    } else {
        cell_type scalar;
        port_to_type(t, m->batch, &out->type);
        if (out->type.has_rank && out->type.rank == 0 && scalar_type(t->type, &scalar)) {
            out->form = OUT_SCALAR;
            out->type = scalar;
        }
    }
    TRY(step_output_named(b, name, &out->type, &out->slot, err));
    if (!names->given) step_output_spare(b);
    return CHURON_OK;
}

static status check(step_build *b, error *err) {
    model_state *m;
    TRY(step_state(b, sizeof *m, &m, err));
    m->model = (size_t)b->values[KEY_NAME].integer;
    m->batch = b->values[KEY_BATCH].flag;
    m->most = (size_t)b->values[KEY_MAX_BATCH].integer;
    const graph *g = b->p->models[m->model].graph;
    if (!g)
        return step_fault(b, "name", err,
                          "expected a graph (ONNX), got a language model: use the step generate");
    TRY(check_names(b, KEY_INPUTS, g, false, err));
    TRY(check_names(b, KEY_OUTPUTS, g, true, err));
    m->n_inputs = graph_n_inputs(g);
    m->n_outputs = graph_n_outputs(g);
    m->inputs = arena_array(b->memory, m->n_inputs + 1, sizeof *m->inputs);
    m->outputs = arena_array(b->memory, m->n_outputs + 1, sizeof *m->outputs);
    m->wanted = arena_array(b->memory, m->n_outputs + 1, sizeof *m->wanted);
    if (!m->inputs || !m->outputs || !m->wanted)
        return arena_refused(b->memory, "a model's ports", m->n_inputs * sizeof *m->inputs, err);
    for (size_t i = 0; i < m->n_inputs; i++) TRY(check_input(b, m, graph_input(g, i), &m->inputs[i], err));
    for (size_t i = 0; i < m->n_inputs; i++) {
        const onnx_type *t = graph_input(g, i).type;
        if (m->batch && t->kind == ONNX_TENSOR && t->has_shape && t->rank && t->dims[0].value == 1)
            m->most = 1;
    }
    if (m->n_inputs == 0) m->batch = false;
    for (size_t i = 0; i < m->n_outputs; i++) {
        TRY(check_output(b, m, i, graph_output(g, i), err));
        if (m->wanted[i] && graph_output_rows(g, i) != ROWS_APART) m->most = 1;
    }
    return CHURON_OK;
}

/* ---- values into the graph -------------------------------------------------------------------------- */

/* The elements of a cell as the bytes of elements of type e: into `scalar` where the cell holds no tensor. */
static const void *cell_elements(const cell *c, elem e, uint64_t scalar[2], size_t *count) {
    *count = 1;
    switch (c->kind) {
    case CELL_TENSOR:
    case CELL_IMAGE:
    case CELL_AUDIO: *count = c->t->count; return c->t->data;
    case CELL_BOOL: *(uint8_t *)scalar = c->flag; return scalar;
    case CELL_INT: scalar[0] = (uint64_t)c->integer; return scalar; /* little-endian: low bytes first */
    case CELL_FLOAT: elem_from_f64(e, &c->number, scalar, 1, true); return scalar;
    case CELL_TEXT: {
        const tensor_string s = {.data = c->bytes, .len = c->len};
        memcpy(scalar, &s, sizeof s);
        return scalar;
    }
    default: return NULL;
    }
}

static size_t row_dims(const cell *c, const model_port *port, bool batch, int64_t dims[TENSOR_MAX_RANK]) {
    const bool has_tensor = c->kind == CELL_TENSOR || c->kind == CELL_IMAGE || c->kind == CELL_AUDIO;
    if (has_tensor) {
        memcpy(dims, c->t->dims, c->t->rank * sizeof *dims);
        return c->t->rank;
    }
    const uint32_t rank = port->rank == UINT32_MAX ? batch : port->rank - (batch && port->rank);
    for (uint32_t i = 0; i < rank; i++) dims[i] = 1;
    return rank;
}

static bool same_shape(const cell *a, const cell *b) {
    const bool has_tensor = a->kind == CELL_TENSOR || a->kind == CELL_IMAGE || a->kind == CELL_AUDIO;
    return !has_tensor ||
           (a->t->rank == b->t->rank && memcmp(a->t->dims, b->t->dims, a->t->rank * sizeof *a->t->dims) == 0);
}

/* Do the rows' tensors follow each other in memory, as rows of a caller's array do? */
static bool lie_together(run_row *const *rows, size_t n, int32_t slot, size_t bytes) {
    const tensor *first = rows[0]->slots[slot].t;
    for (size_t i = 1; i < n; i++) {
        if ((const char *)rows[i]->slots[slot].t->data != (const char *)first->data + i * bytes) return false;
    }
    return true;
}

/* One input of n rows. */
static status gather_input(const step *s, const run *r, const model_port *port, bool batch, run_row **rows,
                           size_t n, value *out, error *err) {
    int64_t dims[TENSOR_MAX_RANK];
    const cell *first = &rows[0]->slots[port->slot];
    size_t rank = row_dims(first, port, batch, dims), total;
    const size_t bytes = elem_describe(port->element)->bytes;
    uint64_t scalar[2];
    size_t count;
    if (batch) {
        if (rank == TENSOR_MAX_RANK)
            return error_set(err, CHURON_INVALID, "input '%.80s': expected at most 11 dimensions",
                             port->name);
        memmove(dims + 1, dims, rank * sizeof *dims);
        dims[0] = (int64_t)n;
        rank++;
    }
    TRY(tensor_count(port->element, rank, dims, &total, port->name, err));
    const void *from = cell_elements(first, port->element, scalar, &count);
    void *data = (void *)(uintptr_t)from;
    if (from == scalar || !lie_together(rows, n, port->slot, count * bytes)) {
        data = arena_aligned(r->memory, total * bytes, 64);
        if (!data) return run_no_memory(r, s, total * bytes, err);
        for (size_t i = 0; i < n; i++) {
            from = cell_elements(&rows[i]->slots[port->slot], port->element, scalar, &count);
            if (count) memcpy((char *)data + i * count * bytes, from, count * bytes);
        }
    }
    *out = value_of_tensor(tensor_borrow(port->element, rank, dims, data));
    return CHURON_OK;
}

/* ---- and out of it ---------------------------------------------------------------------------------- */

static status copy_strings(const run *r, const step *s, tensor_string *to, const tensor_string *from,
                           size_t n, error *err) {
    for (size_t i = 0; i < n; i++) {
        char *copy = arena_strndup(r->memory, from[i].data, from[i].len);
        if (!copy) return run_no_memory(r, s, from[i].len, err);
        to[i] = (tensor_string){.data = copy, .len = from[i].len};
    }
    return CHURON_OK;
}

static status scalar_cell(const step *s, const run *r, const tensor *t, size_t at, cell *out, error *err) {
    const char *p = (const char *)t->data + at * elem_describe(t->type)->bytes;
    double v;
    switch (t->type) {
    case ELEM_STRING: {
        tensor_string copy = {0};
        TRY(copy_strings(r, s, &copy, (const tensor_string *)(const void *)p, 1, err));
        *out = cell_of_text(copy.data, copy.len);
        return CHURON_OK;
    }
    case ELEM_BOOL: *out = cell_of_bool(*(const uint8_t *)p != 0); return CHURON_OK;
    case ELEM_I64:
    case ELEM_U64: *out = cell_of_int(*(const int64_t *)(const void *)p); return CHURON_OK;
    default:
        elem_to_f64(t->type, p, &v, 1);
        *out = ELEM_BIT(t->type) & ELEMS_INT ? cell_of_int((int64_t)v) : cell_of_float(v);
        return CHURON_OK;
    }
}

/* The rows' tensors lie at equal distances, each on 64 bytes, so that who wants all of them can see one
 * array. */
static status tensor_cells(const step *s, const run *r, const model_port *port, const tensor *t, bool batch,
                           run_row **rows, size_t n, error *err) {
    enum { ALIGN = 64 };
    const size_t per_row = batch ? t->count / n : t->count, bytes = per_row * elem_describe(t->type)->bytes;
    const size_t distance = bytes > SIZE_MAX - ALIGN ? SIZE_MAX : (bytes + ALIGN - 1) / ALIGN * ALIGN;
    size_t all;
    char *data = size_mul(distance, n, &all) ? arena_aligned(r->memory, all, ALIGN) : NULL;
    tensor *tensors = arena_array(r->memory, n, sizeof *tensors);
    if (!data || !tensors) return run_no_memory(r, s, n * bytes, err);
    for (size_t i = 0; i < n; i++) {
        char *to = data + i * distance;
        const char *from = (const char *)t->data + i * bytes;
        tensors[i] = tensor_borrow(t->type, t->rank - batch, t->dims + batch, to);
        rows[i]->slots[port->slot] = (cell){.kind = CELL_TENSOR, .t = &tensors[i]};
        if (t->type == ELEM_STRING) {
            TRY(copy_strings(r, s, (tensor_string *)(void *)to, (const tensor_string *)(const void *)from,
                             per_row, err));
        } else if (bytes) {
            memcpy(to, from, bytes);
        }
    }
    return CHURON_OK;
}

static status tensor_rows(const step *s, const run *r, const model_port *port, const tensor *t, bool batch,
                          run_row **rows, size_t n, error *err) {
    if (batch && (t->rank == 0 || t->dims[0] != (int64_t)n)) {
        return error_set(err, CHURON_INVALID,
                         "output '%.60s': expected a first dimension of %zu (a row each record), got %" PRId64
                         ": say batch: false",
                         port->name, n, t->rank ? t->dims[0] : 0);
    }
    if (port->form != OUT_SCALAR) return tensor_cells(s, r, port, t, batch, rows, n, err);
    for (size_t i = 0; i < n; i++) TRY(scalar_cell(s, r, t, i, &rows[i]->slots[port->slot], err));
    return CHURON_OK;
}

static status map_rows(const step *s, const run *r, const model_port *port, const value *v, run_row **rows,
                       size_t n, error *err) {
    if (v->kind != VALUE_SEQUENCE || value_count(v) != n)
        return error_set(err, CHURON_INVALID, "output '%.60s': expected %zu maps, got %zu", port->name, n,
                         value_count(v));
    for (size_t i = 0; i < n; i++) {
        const value *map = value_item(v, i);
        const tensor *scores = &value_item(map, 0)->t;
        cell *items;
        TRY(cell_new_list(&rows[i]->slots[port->slot], r->memory, map->t.count, &items, err));
        for (size_t k = 0; k < map->t.count; k++) {
            cell *pair = arena_array(r->memory, 2, sizeof *pair);
            if (!pair) return run_no_memory(r, s, 2 * sizeof *pair, err);
            TRY(scalar_cell(s, r, &map->t, k, &pair[0], err));
            TRY(scalar_cell(s, r, scores, k, &pair[1], err));
            items[k] = (cell){.kind = CELL_RECORD, .n = 2, .items = pair};
        }
    }
    return CHURON_OK;
}

static status scatter(const step *s, const run *r, const model_state *m, const value *outputs, run_row **rows,
                      size_t n, error *err) {
    for (size_t i = 0; i < m->n_outputs; i++) {
        const model_port *port = &m->outputs[i];
        if (port->slot < 0) continue;
        if (port->form == OUT_MAPS) {
            TRY(map_rows(s, r, port, &outputs[i], rows, n, err));
        } else if (outputs[i].kind != VALUE_TENSOR || outputs[i].t.type != port->element) {
            return error_set(err, CHURON_INTERNAL, "output '%.60s': expected a tensor of %s", port->name,
                             elem_name(port->element));
        } else {
            TRY(tensor_rows(s, r, port, &outputs[i].t, m->batch, rows, n, err));
        }
    }
    return CHURON_OK;
}

/* n rows of the same shapes at once. */
static status run_group(const step *s, run *r, run_row **rows, size_t n, error *err) {
    const model_state *m = s->state;
    graph_session *session;
    TRY(pipeline_graph_session(r, m->model, &session, err));
    value *inputs = arena_array(r->memory, m->n_inputs + 1, sizeof *inputs);
    value *outputs = arena_array(r->memory, m->n_outputs + 1, sizeof *outputs);
    if (!inputs || !outputs) return run_no_memory(r, s, (m->n_inputs + m->n_outputs) * sizeof *inputs, err);
    for (size_t i = 0; i < m->n_inputs; i++) {
        if (m->inputs[i].slot >= 0)
            TRY(gather_input(s, r, &m->inputs[i], m->batch, rows, n, &inputs[i], err));
    }
    const graph_run_options o = {.deadline = r->deadline, .cancel = r->cancel, .wanted = m->wanted};
    const double started = clock_seconds();
    status st = graph_run(session, inputs, outputs, &o, err);
    r->session->model_s += clock_seconds() - started;
    if (st == CHURON_OK) {
        st = scatter(s, r, m, outputs, rows, n, err);
        for (size_t i = 0; i < m->n_outputs; i++) value_free(&outputs[i]);
    }
    return st;
}

static bool is_of_run(const run *r, status st) {
    error none;
    return st == CHURON_NO_MEMORY || st == CHURON_CANCELLED || st == CHURON_INTERNAL ||
           run_may_go_on(r, &none) != CHURON_OK;
}

static status fail_row(const step *s, run_row *row, status st, const error *e) {
    row->st = st;
    row->err = *e;
    error_prefix(&row->err, "step %s", s->label);
    return CHURON_OK;
}

static status run_or_isolate(const step *s, run *r, run_row **rows, size_t n, error *err) {
    error e = {0};
    status st = run_group(s, r, rows, n, &e);
    if (st == CHURON_OK) return CHURON_OK;
    if (is_of_run(r, st)) {
        if (err) *err = e;
        return st;
    }
    if (n == 1) return fail_row(s, rows[0], st, &e);
    for (size_t i = 0; i < n; i++) TRY(run_or_isolate(s, r, &rows[i], 1, err));
    return CHURON_OK;
}

static bool fits_together(const model_state *m, const run_row *a, const run_row *b) {
    for (size_t i = 0; i < m->n_inputs; i++) {
        const int32_t slot = m->inputs[i].slot;
        if (slot >= 0 && !same_shape(&a->slots[slot], &b->slots[slot])) return false;
    }
    return true;
}

static size_t row_bytes(const model_state *m, const run_row *row) {
    size_t bytes = 1;
    for (size_t i = 0; i < m->n_inputs; i++) {
        if (m->inputs[i].slot < 0) continue;
        const cell *c = &row->slots[m->inputs[i].slot];
        bytes += c->kind == CELL_TENSOR || c->kind == CELL_IMAGE || c->kind == CELL_AUDIO ? tensor_bytes(c->t)
                                                                                          : 16;
    }
    return bytes;
}

static status run_all(const step *s, run *r, run_row *rows, size_t n, error *err) {
    const model_state *m = s->state;
    run_row **group = arena_alloc(r->memory, (n ? n : 1) * sizeof(run_row *));
    bool *done = arena_array(r->memory, n ? n : 1, sizeof *done);
    if (!group || !done) return run_no_memory(r, s, n * sizeof(run_row *), err);
    for (size_t i = 0; i < n; i++) {
        if (done[i] || rows[i].st != CHURON_OK) continue;
        const size_t by_bytes = MAX_BYTES / row_bytes(m, &rows[i]);
        const size_t most = !m->batch || by_bytes == 0 ? 1 : by_bytes < m->most ? by_bytes : m->most;
        size_t have = 0;
        for (size_t k = i; k < n && have < most; k++) {
            if (done[k] || rows[k].st != CHURON_OK || !fits_together(m, &rows[i], &rows[k])) continue;
            done[k] = true;
            group[have++] = &rows[k];
        }
        TRY(run_or_isolate(s, r, group, have, err));
    }
    return CHURON_OK;
}

const step_kind step_model = {
    .name = "model",
    .group = "flow",
    .doc = "Runs a graph (ONNX) of the bundle. Element types must be those of the model's ports: nothing is "
           "converted on the "
           "way. Numbers, booleans and texts are rows of one element; maps that a model gives (ZipMap) "
           "become lists of "
           "{label, score}.",
    .reference = "ONNX Runtime",
    .keys = KEYS,
    .check = check,
    .rows = run_all,
};
