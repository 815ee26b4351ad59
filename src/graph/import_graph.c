/* import_graph.c: names of one graph: inputs, initializers, outputs of nodes, and captures of outer values.
 */
#include "graph/import.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------ */

static ir_value *own_value(const scope *s, const char *name) {
    ir_value *v = names_get(&s->values, name, strlen(name));
    return v && v->graph == s->graph ? v : NULL;
}

static status declare(scope *s, const char *name, ir_value **out, error *err) {
    const char *inner =
        s->prefix[0] ? arena_printf(&s->graph->program->memory, "%s%s", s->prefix, name) : name;
    ir_value *v = inner ? ir_value_new(s->graph, inner) : NULL;
    if (!v || !names_set(&s->values, name, strlen(name), v)) return ir_no_memory(err);
    *out = v;
    return CHURON_OK;
}

/* The value of graph g that stands for v of a graph around it. */
static status capture(ir_graph *g, ir_value *v, ir_value **out, error *err) {
    if (v->graph == g) {
        *out = v;
        return CHURON_OK;
    }
    if (!g->parent) return error_set(err, CHURON_INTERNAL, "value '%s' is out of reach", v->name);
    ir_value *outer = NULL;
    TRY(capture(g->parent, v, &outer, err));
    ir_value *inner = ir_value_new(g, v->name);
    if (!inner || !arena_grow(&g->program->memory, (void **)&g->captures, g->n_captures, &g->cap_captures,
                              sizeof *g->captures)) {
        return ir_no_memory(err);
    }
    g->captures[g->n_captures++] = (ir_capture){outer, inner};
    *out = inner;
    return CHURON_OK;
}

status import_lookup(scope *s, const char *name, ir_value **out, error *err) {
    *out = NULL;
    size_t len = strlen(name);
    for (scope *at = s; at; at = at->parent) {
        ir_value *v = names_get(&at->values, name, len);
        if (!v) continue;
        TRY(capture(s->graph, v, out, err));
        /* Remembered: the next look-up of this name finds the capture at once. */
        if (at != s && !names_set(&s->values, name, len, *out)) return ir_no_memory(err);
        return CHURON_OK;
    }
    return CHURON_OK;
}

/* ---- constants -------------------------------------------------------------------------------------- */

static status import_initializer(scope *s, const onnx_tensor *t, error *err) {
    ir_program *p = s->graph->program;
    ir_value *v = own_value(s, t->name);
    if (v && v->is_constant) {
        ir_fault(p, "initializer '%s' is there twice", t->name);
        return CHURON_OK;
    }
    if (v) { /* an input with a default: the declared type must be that of the tensor */
        if (v->type.kind != ONNX_TENSOR || (v->type.type != ELEM_NONE && v->type.type != t->type)) {
            ir_fault(p, "input '%s': expected %s as declared, got an initializer of %s", t->name,
                     elem_name(v->type.type), elem_name(t->type));
            return CHURON_OK;
        }
    } else {
        TRY(declare(s, t->name, &v, err));
    }
    if (!t->contents.data && t->count > 0) {
        ir_fault(p, "initializer '%s': its data is outside the file and was not loaded", t->name);
        return CHURON_OK;
    }
    return ir_value_set_constant(v, t->contents, err);
}

/* Where element i of a sparse tensor lies: indices are linear [n] or coordinates [n, rank]. */
static bool sparse_place(const onnx_sparse *sp, size_t i, size_t count, size_t *at) {
    const int64_t *idx = sp->indices.contents.data;
    if (sp->indices.rank == 1) {
        if (idx[i] < 0 || (uint64_t)idx[i] >= count) return false;
        *at = (size_t)idx[i];
        return true;
    }
    size_t place = 0;
    for (size_t d = 0; d < sp->rank; d++) {
        int64_t k = idx[i * sp->rank + d];
        if (k < 0 || k >= sp->dims[d]) return false;
        place = place * (size_t)sp->dims[d] + (size_t)k;
    }
    *at = place;
    return true;
}

status ir_sparse_to_dense(const onnx_sparse *sp, tensor *out, error *err) {
    const char *name = sp->values.name && sp->values.name[0] ? sp->values.name : "sparse tensor";
    size_t n = sp->values.count, count;
    bool linear = sp->indices.rank == 1;
    if (sp->values.rank != 1 || sp->indices.type != ELEM_I64 || (!linear && sp->indices.rank != 2) ||
        sp->indices.dims[0] != sp->values.dims[0] || (!linear && (uint64_t)sp->indices.dims[1] != sp->rank) ||
        sp->values.type == ELEM_STRING || !elem_describe(sp->values.type)) {
        return error_set(
            err, CHURON_CORRUPT,
            "%s: expected values [n] and int64 indices [n] or [n, rank] of a numeric type, got values of "
            "rank %zu and indices of rank %zu",
            name, sp->values.rank, sp->indices.rank);
    }
    TRY(tensor_count(sp->values.type, sp->rank, sp->dims, &count, name, err));
    TRY(tensor_alloc(out, sp->values.type, sp->rank, sp->dims, err));
    size_t bytes = elem_describe(sp->values.type)->bytes;
    memset(out->data, 0, count * bytes);
    for (size_t i = 0; i < n; i++) {
        size_t at;
        if (!sparse_place(sp, i, count, &at)) {
            tensor_free(out);
            return error_set(err, CHURON_CORRUPT, "%s: index %zu lies outside its shape", name, i);
        }
        memcpy((char *)out->data + at * bytes, (const char *)sp->values.contents.data + i * bytes, bytes);
    }
    return CHURON_OK;
}

static status import_sparse(scope *s, const onnx_sparse *sp, error *err) {
    ir_program *p = s->graph->program;
    tensor dense = {0}, kept;
    error e;
    status st = ir_sparse_to_dense(sp, &dense, &e);
    if (st == CHURON_NO_MEMORY) return ir_no_memory(err);
    if (st != CHURON_OK) {
        ir_fault_of(p, &e);
        return CHURON_OK;
    }
    TRY(ir_keep_constant(p, dense, &kept, err));
    const char *name = sp->values.name;
    ir_value *v = own_value(s, name);
    if (v && v->is_constant) ir_fault(p, "initializer '%s' is there twice", name);
    if (!v) TRY(declare(s, name, &v, err));
    return ir_value_set_constant(v, kept, err);
}

/* ---- graphs ----------------------------------------------------------------------------------------- */

static status import_inputs(scope *s, const onnx_graph *g, error *err) {
    ir_program *p = s->graph->program;
    ir_graph *ig = s->graph;
    for (size_t i = 0; i < g->n_inputs; i++) {
        const onnx_value_info *in = &g->inputs[i];
        ir_value *v = NULL;
        if (own_value(s, in->name)) {
            ir_fault(p, "input '%s' is there twice", in->name);
            continue;
        }
        TRY(declare(s, in->name, &v, err));
        TRY(ir_value_set_type(v, &in->type, err));
    }
    for (size_t i = 0; i < g->n_initializers; i++) TRY(import_initializer(s, &g->initializers[i], err));
    for (size_t i = 0; i < g->n_sparse; i++) TRY(import_sparse(s, &g->sparse_initializers[i], err));
    ig->inputs = arena_array(&p->memory, g->n_inputs, sizeof *ig->inputs);
    if (!ig->inputs) return ir_no_memory(err);
    for (size_t i = 0; i < g->n_inputs; i++) {
        ir_value *v = own_value(s, g->inputs[i].name);
        if (v && !v->is_constant) ig->inputs[ig->n_inputs++] = v;
    }
    return CHURON_OK;
}

static status declare_outputs(importer *im, const onnx_node *node, scope *s, error *err) {
    for (size_t k = 0; k < node->n_outputs; k++) {
        const char *name = node->outputs[k];
        if (!name[0]) continue;
        ir_value *v = own_value(s, name);
        if (v) {
            ir_fault(im->program, "value '%s' is made twice, the second time by node '%s' (%s)", name,
                     import_shown(node), node->op);
            continue;
        }
        TRY(declare(s, name, &v, err));
    }
    return CHURON_OK;
}

status import_nodes(importer *im, const onnx_node *nodes, size_t n, scope *s, error *err) {
    for (size_t i = 0; i < n; i++) TRY(declare_outputs(im, &nodes[i], s, err));
    for (size_t i = 0; i < n; i++) {
        const onnx_function *f;
        TRY(import_find_function(im, &nodes[i], &f, err));
        TRY(f ? import_call(im, &nodes[i], f, s, err) : import_node(im, &nodes[i], s, err));
    }
    return CHURON_OK;
}

static status import_outputs(scope *s, const onnx_graph *g, error *err) {
    ir_graph *ig = s->graph;
    ig->outputs = arena_array(&ig->program->memory, g->n_outputs, sizeof *ig->outputs);
    if (!ig->outputs) return ir_no_memory(err);
    for (size_t i = 0; i < g->n_outputs; i++) {
        ir_value *v;
        TRY(import_lookup(s, g->outputs[i].name, &v, err));
        if (!v) {
            ir_fault(ig->program, "output '%s' of graph '%s' is made by no node", g->outputs[i].name,
                     g->name);
            continue;
        }
        v->is_output = true;
        ig->outputs[ig->n_outputs++] = v;
    }
    return CHURON_OK;
}

status import_graph(importer *im, const onnx_graph *source, scope *s, error *err) {
    s->graph->source = source;
    TRY(import_inputs(s, source, err));
    TRY(import_nodes(im, source->nodes, source->n_nodes, s, err));
    return import_outputs(s, source, err);
}

static ir_graph *new_graph(ir_program *p, ir_graph *parent, const char *name) {
    ir_graph *g = arena_array(&p->memory, 1, sizeof *g);
    if (!g || !arena_grow(&p->memory, (void **)&p->graphs, p->n_graphs, &p->cap_graphs, sizeof *p->graphs))
        return NULL;
    *g = (ir_graph){.program = p, .parent = parent, .name = name, .number = p->n_graphs};
    p->graphs[p->n_graphs++] = g;
    return g;
}

status import_body(importer *im, const onnx_graph *source, scope *outer, ir_graph *parent, ir_graph **out,
                   error *err) {
    *out = NULL;
    if (outer->depth >= IR_MAX_DEPTH) {
        return error_set(err, CHURON_LIMIT,
                         "graph '%s': expected at most %d bodies inside one another, got more", source->name,
                         IR_MAX_DEPTH);
    }
    ir_graph *g = new_graph(im->program, parent, source->name);
    if (!g) return ir_no_memory(err);
    scope inner = {.parent = outer,
                   .graph = g,
                   .call = outer->call,
                   .prefix = outer->prefix,
                   .opsets = outer->opsets,
                   .n_opsets = outer->n_opsets,
                   .depth = outer->depth + 1};
    status st = import_graph(im, source, &inner, err);
    names_free(&inner.values);
    *out = g;
    return st;
}

static status import_main(importer *im, error *err) {
    const onnx_model *m = im->model;
    /* Before opsets were declared there was only version 1 of the standard operators. */
    static const onnx_opset first = {"", 1};
    bool old = m->n_opsets == 0 && m->ir_version < 3;
    ir_program *p = im->program;
    p->main = new_graph(p, NULL, m->graph.name);
    if (!p->main) return ir_no_memory(err);
    scope s = {.graph = p->main,
               .prefix = "",
               .opsets = old ? &first : m->opsets,
               .n_opsets = old ? 1 : m->n_opsets};
    status st = import_graph(im, &m->graph, &s, err);
    names_free(&s.values);
    return st;
}

/* ---- everything ------------------------------------------------------------------------------------- */

/* One kind of operator that is missing, and the nodes that ask for it. */
typedef struct missing_op {
    const op_node *first;
    str nodes;
    size_t n;
} missing_op;

static void list_missing(const ir_program *p, names *seen, missing_op *list, size_t *n, bool all_names) {
    for (size_t g = 0; g < p->n_graphs; g++) {
        for (size_t i = 0; i < p->graphs[g]->n_nodes; i++) {
            const op_node *node = p->graphs[g]->nodes[i];
            if (node->def) continue;
            size_t len = strlen(node->op);
            missing_op *m = names_get(seen, node->op, len);
            if (!m || strcmp(m->first->domain, node->domain) != 0) {
                m = &list[(*n)++];
                *m = (missing_op){.first = node};
                if (!names_set(seen, node->op, len, m)) m->nodes.failed = true;
            }
            if (m->n++ == 0 || all_names) str_fmt(&m->nodes, "%s'%s'", m->nodes.len ? ", " : "", node->name);
        }
    }
}

static void describe_missing(const missing_op *m, str *out) {
    const char *domain = m->first->domain[0] ? m->first->domain : "ai.onnx";
    str_fmt(out, "%s%s (%s %" PRId64, out->len ? "; " : "", m->first->op, domain, m->first->version);
    str known = {0};
    op_versions(m->first->domain, m->first->op, &known);
    if (known.len) str_fmt(out, ", known: %s", str_cstr(&known));
    str_free(&known);
    size_t more = m->n > 1 && !memchr(m->nodes.data, ',', m->nodes.len) ? m->n - 1 : 0;
    str_fmt(out, ") at %s", str_cstr(&m->nodes));
    if (more) str_fmt(out, " and %zu more", more);
}

/* All operators that are missing, with the names of their nodes as far as one line has room for them. */
static status report_missing(const ir_program *p, size_t n_missing, error *err) {
    missing_op *list = mem_calloc(n_missing, sizeof *list);
    if (!list) return ir_no_memory(err);
    str text = {0};
    for (int all = 1; all >= 0; all--) {
        names seen = {0};
        size_t n = 0;
        list_missing(p, &seen, list, &n, all == 1);
        names_free(&seen);
        str_clear(&text);
        for (size_t i = 0; i < n; i++) {
            describe_missing(&list[i], &text);
            str_free(&list[i].nodes);
        }
        if (text.len < sizeof err->message - 40) break;
    }
    mem_free(list);
    status st = error_set(err, CHURON_UNSUPPORTED, "%zu node%s with missing operators: %s", n_missing,
                          n_missing == 1 ? "" : "s", str_cstr(&text));
    str_free(&text);
    return st;
}

static status index_functions(importer *im, error *err) {
    const onnx_model *m = im->model;
    for (size_t i = 0; i < m->n_functions; i++) {
        const onnx_function *f = &m->functions[i];
        const char *key =
            arena_printf(&im->program->memory, "%s\x1f%s\x1f%s", f->domain, f->name, f->overload);
        if (!key) return ir_no_memory(err);
        if (names_get(&im->functions, key, strlen(key))) {
            ir_fault(im->program, "function %s of '%s' is there twice", f->name, f->domain);
        }
        if (!names_set(&im->functions, key, strlen(key), (void *)(uintptr_t)f)) return ir_no_memory(err);
    }
    return CHURON_OK;
}

status ir_import(ir_program *p, const onnx_model *m, error *err) {
    importer im = {.program = p, .model = m};
    status st = index_functions(&im, err);
    if (st == CHURON_OK) st = import_count(&im, err);
    if (st == CHURON_OK) st = import_main(&im, err);
    names_free(&im.functions);
    if (st != CHURON_OK) return st;
    TRY(ir_check_faults(p, CHURON_CORRUPT, err));
    return im.n_missing ? report_missing(p, im.n_missing, err) : CHURON_OK;
}
