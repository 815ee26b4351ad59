/* ir.c: values of a program and the list of its faults. */
#include "graph/ir.h"
#include "graph/weights.h"

#include <stdio.h>
#include <string.h>

status ir_no_memory(error *err) {
    return error_set(err, CHURON_NO_MEMORY, "graph: no memory for its description");
}

/* ---- faults ----------------------------------------------------------------------------------------- */

void ir_fault(ir_program *p, const char *fmt, ...) {
    p->n_faults++;
    if (p->faults.len > sizeof((error *)NULL)->message) return; /* the line is full */
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    str_fmt(&p->faults, "%s%s", p->faults.len ? "; " : "", text);
}

void ir_fault_of(ir_program *p, const error *e) {
    ir_fault(p, "%s", e->message);
}

status ir_check_stop(const op_node *n, error *err) {
    error e;
    status st = stop_check(n->graph->program->stop, &e);
    return st == CHURON_OK ? st : op_error(n, err, st, "%s", e.message);
}

status ir_check_faults(ir_program *p, status code, error *err) {
    if (p->n_faults == 0) return CHURON_OK;
    if (p->n_faults == 1) return error_set(err, code, "%s", str_cstr(&p->faults));
    return error_set(err, code, "%zu faults: %s", p->n_faults, str_cstr(&p->faults));
}

/* ---- values ----------------------------------------------------------------------------------------- */

ir_value *ir_value_new(ir_graph *g, const char *name) {
    arena *memory = &g->program->memory;
    if (g->n_values >= INT32_MAX / 2) return NULL;
    ir_value *v = arena_array(memory, 1, sizeof *v);
    if (!v || !arena_grow(memory, (void **)&g->values, g->n_values, &g->cap_values, sizeof *g->values))
        return NULL;
    *v = (ir_value){.name = name, .graph = g, .slot = (uint32_t)g->n_values};
    g->values[g->n_values++] = v;
    return v;
}

status ir_keep_constant(ir_program *p, tensor t, tensor *kept, error *err) {
    if (!arena_grow(&p->memory, (void **)&p->constants, p->n_constants, &p->cap_constants, sizeof t)) {
        tensor_free(&t);
        return ir_no_memory(err);
    }
    p->constants[p->n_constants++] = t;
    *kept = tensor_borrow(t.type, t.rank, t.dims, t.data);
    return CHURON_OK;
}

status ir_value_set_shape(ir_value *v, size_t rank, const dim *dims, error *err) {
    dim *copy = arena_array(&v->graph->program->memory, rank, sizeof *copy);
    if (!copy) return ir_no_memory(err);
    if (rank) memcpy(copy, dims, rank * sizeof *copy);
    v->has_rank = true;
    v->rank = (uint32_t)rank;
    v->dims = copy;
    return CHURON_OK;
}

status ir_value_set_constant(ir_value *v, tensor constant, error *err) {
    v->type = (onnx_type){.kind = ONNX_TENSOR, .type = constant.type};
    v->is_constant = true;
    v->constant = constant;
    return ir_value_set_shape(v, constant.rank, constant.dims, err);
}

void factors_multiply(const op_factors *f, const float *from, size_t row0, size_t row1, float *to) {
    if (f->before) {
        factors_multiply(f->before, from, row0, row1, to);
        from = to;
    }
    for (size_t r = row0; r < row1; r++) {
        const float *a = from + r * f->each;
        float *b = to + r * f->each;
        const double by = f->by[r % f->n];
        for (size_t i = 0; i < f->each; i++) b[i] = (float)((double)a[i] * by);
    }
}

status ir_value_set_type(ir_value *v, const onnx_type *t, error *err) {
    ir_program *p = v->graph->program;
    v->type = *t;
    v->type.has_shape = false;
    v->type.rank = 0;
    v->type.dims = NULL;
    v->has_rank = false;
    if (t->kind != ONNX_TENSOR || !t->has_shape) return CHURON_OK;
    if (t->rank > TENSOR_MAX_RANK) {
        return error_set(err, CHURON_UNSUPPORTED, "value '%s': expected a rank of at most %d, got %zu",
                         v->name, TENSOR_MAX_RANK, t->rank);
    }
    dim dims[TENSOR_MAX_RANK];
    for (size_t i = 0; i < t->rank; i++) {
        const onnx_dim *d = &t->dims[i];
        bool named = d->value < 0 && d->param && d->param[0];
        dims[i] = d->value >= 0 ? d->value
                  : named       ? symbols_named(&p->symbols, d->param)
                                : symbols_fresh(&p->symbols);
    }
    return p->symbols.failed ? ir_no_memory(err) : ir_value_set_shape(v, t->rank, dims, err);
}

void ir_value_copy_type(ir_value *v, const ir_value *from) {
    v->type = from->type;
    v->has_rank = from->has_rank;
    v->rank = from->rank;
    v->dims = from->dims;
    v->known = from->known;
    v->n_known = from->n_known;
    v->poisoned = from->poisoned;
}

/* What a symbol is called in a port; NULL for dimensions of which nothing is known. */
static const char *dim_name(ir_program *p, dim d) {
    str text = {0};
    symbols_text(&p->symbols, d, &text);
    const char *name = text.failed || !text.data || memchr(text.data, '?', text.len)
                           ? NULL
                           : arena_strndup(&p->memory, text.data, text.len);
    str_free(&text);
    return name;
}

status ir_value_type(ir_value *v, onnx_type *out, error *err) {
    ir_program *p = v->graph->program;
    *out = v->type;
    if (v->type.kind != ONNX_TENSOR || !v->has_rank) return CHURON_OK;
    onnx_dim *dims = arena_array(&p->memory, v->rank, sizeof *dims);
    if (!dims) return ir_no_memory(err);
    for (size_t i = 0; i < v->rank; i++) {
        bool known = dim_known(v->dims[i]);
        dims[i] =
            (onnx_dim){.value = known ? v->dims[i] : -1, .param = known ? NULL : dim_name(p, v->dims[i])};
    }
    out->has_shape = true;
    out->rank = v->rank;
    out->dims = dims;
    return CHURON_OK;
}

const ir_attr *ir_find_attr(const op_node *n, const char *name) {
    for (size_t i = 0; i < n->n_attrs; i++) {
        if (strcmp(n->attrs[i].name, name) == 0) return &n->attrs[i];
    }
    return NULL;
}

void ir_release(ir_program *p) {
    for (size_t g = 0; g < p->n_graphs; g++) {
        for (size_t i = 0; i < p->graphs[g]->n_nodes; i++) {
            op_node *n = p->graphs[g]->nodes[i];
            if (n->state && n->def && n->def->release) n->def->release(n->state);
        }
    }
    for (size_t i = 0; i < p->n_constants; i++) tensor_free(&p->constants[i]);
    weights_free(p);
    symbols_free(&p->symbols);
    str_free(&p->faults);
    arena_free(&p->memory);
}
