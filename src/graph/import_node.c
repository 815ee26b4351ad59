/* import_node.c: one node: its operator, its values, its attributes and bodies. */
#include "graph/import.h"

#include <inttypes.h>
#include <string.h>

/* The newest operator sets whose meaning is known here. */
static const onnx_opset newest[] = {{"", 28},
                                    {"ai.onnx.ml", 5},
                                    {"ai.onnx.preview", 1},
                                    {"ai.onnx.preview.training", 1},
                                    {"com.microsoft", 1}};

/* The version of the domain that the scope (model or function) asks for. */
static status opset_of(const scope *s, const onnx_node *node, const char *name, int64_t *version,
                       error *err) {
    const char *shown = node->domain[0] ? node->domain : "ai.onnx";
    *version = 0;
    for (size_t i = 0; i < s->n_opsets; i++) {
        if (strcmp(s->opsets[i].domain, node->domain) == 0) *version = s->opsets[i].version;
    }
    if (*version == 0) {
        return error_set(err, CHURON_CORRUPT,
                         "node '%s' (%s): expected its domain %s among the operator sets of the %s, got none",
                         name, node->op, shown, s->call ? "function" : "model");
    }
    for (size_t i = 0; i < sizeof newest / sizeof newest[0]; i++) {
        if (strcmp(newest[i].domain, node->domain) == 0 && *version > newest[i].version) {
            return error_set(err, CHURON_UNSUPPORTED,
                             "operator set of %s: expected at most version %" PRId64 ", got %" PRId64, shown,
                             newest[i].version, *version);
        }
    }
    return CHURON_OK;
}

static status import_values(importer *im, const onnx_node *node, op_node *n, scope *s, error *err) {
    arena *memory = &im->program->memory;
    n->n_inputs = node->n_inputs;
    n->n_outputs = node->n_outputs;
    n->inputs = arena_array(memory, n->n_inputs, sizeof *n->inputs);
    n->outputs = arena_array(memory, n->n_outputs, sizeof *n->outputs);
    if (!n->inputs || !n->outputs) return ir_no_memory(err);
    for (size_t i = 0; i < n->n_inputs; i++) {
        const char *name = node->inputs[i];
        if (!name[0]) continue;
        TRY(import_lookup(s, name, &n->inputs[i], err));
        if (!n->inputs[i] && !import_is_formal(s->call, name)) {
            ir_fault(im->program, "node '%s' (%s): input %zu '%s' is made by no node", n->name, n->op, i,
                     name);
        }
    }
    for (size_t i = 0; i < n->n_outputs; i++) {
        if (!node->outputs[i][0]) continue;
        n->outputs[i] = names_get(&s->values, node->outputs[i], strlen(node->outputs[i]));
        if (n->outputs[i]) n->outputs[i]->producer = n;
    }
    while (n->n_inputs > 0 && !n->inputs[n->n_inputs - 1]) n->n_inputs--;
    while (n->n_outputs > 0 && !n->outputs[n->n_outputs - 1]) n->n_outputs--;
    return CHURON_OK;
}

static status import_node_bodies(importer *im, op_node *n, const call_attr *attrs, scope *s, error *err) {
    size_t n_bodies = 0;
    for (size_t i = 0; i < n->n_attrs; i++) n_bodies += attrs[i].attr->type == ONNX_ATTR_GRAPH;
    n->bodies = arena_array(&im->program->memory, n_bodies, sizeof(ir_graph *));
    if (!n->bodies) return ir_no_memory(err);
    for (size_t i = 0; i < n->n_attrs; i++) {
        if (attrs[i].attr->type != ONNX_ATTR_GRAPH) continue;
        n->attrs[i].body = n->n_bodies;
        TRY(import_body(im, attrs[i].attr->graphs[0], attrs[i].where, s->graph, &n->bodies[n->n_bodies],
                        err));
        n->n_bodies++;
    }
    return CHURON_OK;
}

static status import_node_attrs(importer *im, const onnx_node *node, op_node *n, scope *s, error *err) {
    call_attr *attrs;
    TRY(import_attrs(im, node, s, &attrs, &n->n_attrs, err));
    n->attrs = arena_array(&im->program->memory, n->n_attrs, sizeof *n->attrs);
    if (!n->attrs) return ir_no_memory(err);
    for (size_t i = 0; i < n->n_attrs; i++)
        n->attrs[i] = (ir_attr){.name = attrs[i].name, .attr = attrs[i].attr};
    return import_node_bodies(im, n, attrs, s, err);
}

static const char *node_name(importer *im, const onnx_node *node, const scope *s) {
    const char *name = import_shown(node);
    return s->prefix[0] ? arena_printf(&im->program->memory, "%s%s", s->prefix, name) : name;
}

status import_node(importer *im, const onnx_node *node, scope *s, error *err) {
    ir_program *p = im->program;
    ir_graph *g = s->graph;
    op_node *n = arena_array(&p->memory, 1, sizeof *n);
    const char *name = node_name(im, node, s);
    if (!n || !name ||
        !arena_grow(&p->memory, (void **)&g->nodes, g->n_nodes, &g->cap_nodes, sizeof *g->nodes)) {
        return ir_no_memory(err);
    }
    *n = (op_node){.name = name, .op = node->op, .domain = node->domain, .graph = g};
    g->nodes[g->n_nodes++] = n;
    TRY(ir_check_stop(n, err));
    error e;
    if (opset_of(s, node, name, &n->version, &e) != CHURON_OK) {
        ir_fault_of(p, &e);
        return CHURON_OK;
    }
    n->def = op_find(n->domain, n->op, n->version);
    if (!n->def) im->n_missing++;
    TRY(import_values(im, node, n, s, err));
    return import_node_attrs(im, node, n, s, err);
}
