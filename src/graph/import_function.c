/* import_function.c: functions of the model stand where they are called: their nodes are imported again for
 * every call, with the call's attributes in place of references. */
#include "graph/import.h"

#include "base/mem.h"

#include <string.h>

status import_find_function(const importer *im, const onnx_node *node, const onnx_function **out,
                            error *err) {
    *out = NULL;
    if (im->functions.n == 0) return CHURON_OK;
    str key = {0};
    str_fmt(&key, "%s\x1f%s\x1f%s", node->domain, node->op, node->overload);
    const status st = str_check(&key, err);
    if (st == CHURON_OK) *out = names_get(&im->functions, key.data, key.len);
    str_free(&key);
    return st;
}

bool import_is_formal(const call *c, const char *name) {
    for (size_t i = 0; c && i < c->function->n_inputs; i++) {
        if (strcmp(c->function->inputs[i], name) == 0) return true;
    }
    return false;
}

/* What a reference stands for in the function that is being imported; NULL: the call left it out. */
static const call_attr *referenced(const call *c, const char *name) {
    for (size_t i = 0; c && i < c->n_attrs; i++) {
        if (strcmp(c->attrs[i].name, name) == 0) return &c->attrs[i];
    }
    return NULL;
}

static const onnx_attr *default_of(const onnx_function *f, const char *name) {
    for (size_t i = 0; i < f->n_defaults; i++) {
        if (strcmp(f->defaults[i].name, name) == 0) return &f->defaults[i];
    }
    return NULL;
}

status import_attrs(importer *im, const onnx_node *node, scope *s, call_attr **out, size_t *n, error *err) {
    *n = 0;
    *out = arena_array(&im->program->memory, node->n_attrs, sizeof **out);
    if (!*out) return ir_no_memory(err);
    for (size_t i = 0; i < node->n_attrs; i++) {
        const onnx_attr *a = &node->attrs[i];
        call_attr resolved = {.name = a->name, .attr = a, .where = s};
        for (size_t k = 0; k < *n; k++) {
            if (strcmp((*out)[k].name, a->name) == 0) {
                ir_fault(im->program, "node '%s' (%s): attribute '%s' is there twice", import_shown(node),
                         node->op, a->name);
            }
        }
        if (a->reference && a->reference[0]) {
            if (!s->call) {
                ir_fault(im->program,
                         "node '%s' (%s): attribute '%s' refers to '%s' of a function, but stands in none",
                         import_shown(node), node->op, a->name, a->reference);
                continue;
            }
            const call_attr *given = referenced(s->call, a->reference);
            if (!given) continue;
            if (a->type != 0 && given->attr->type != a->type) {
                ir_fault(im->program, "node '%s' (%s): attribute '%s' refers to '%s', which has another type",
                         import_shown(node), node->op, a->name, a->reference);
                continue;
            }
            resolved.attr = given->attr;
            resolved.where = given->where;
        }
        (*out)[(*n)++] = resolved;
    }
    return CHURON_OK;
}

/* The call's attributes, then the defaults of those that it leaves out. */
static status call_attributes(importer *im, const onnx_node *node, const onnx_function *f, scope *s, call *c,
                              error *err) {
    call_attr *given;
    size_t n;
    TRY(import_attrs(im, node, s, &given, &n, err));
    call_attr *all = arena_array(&im->program->memory, n + f->n_defaults, sizeof *all);
    if (!all) return ir_no_memory(err);
    if (n) memcpy(all, given, n * sizeof *all);
    c->attrs = all;
    c->n_attrs = n;
    for (size_t i = 0; i < n; i++) {
        bool known = default_of(f, given[i].name) != NULL;
        for (size_t k = 0; !known && k < f->n_attributes; k++)
            known = strcmp(f->attributes[k], given[i].name) == 0;
        if (!known) {
            ir_fault(im->program, "node '%s': function %s has no attribute '%s'", import_shown(node), f->name,
                     given[i].name);
        }
    }
    for (size_t i = 0; i < f->n_defaults; i++) {
        if (referenced(c, f->defaults[i].name)) continue;
        all[c->n_attrs++] = (call_attr){.name = f->defaults[i].name, .attr = &f->defaults[i], .where = s};
    }
    return CHURON_OK;
}

static status bind_inputs(importer *im, const onnx_node *node, const onnx_function *f, scope *outer,
                          scope *inner, error *err) {
    if (node->n_inputs > f->n_inputs || node->n_outputs > f->n_outputs) {
        ir_fault(im->program,
                 "node '%s': function %s takes %zu inputs and gives %zu outputs, got %zu and %zu",
                 import_shown(node), f->name, f->n_inputs, f->n_outputs, node->n_inputs, node->n_outputs);
        return CHURON_OK;
    }
    for (size_t i = 0; i < node->n_inputs; i++) {
        if (!node->inputs[i][0]) continue;
        ir_value *v;
        TRY(import_lookup(outer, node->inputs[i], &v, err));
        if (!v) {
            if (!import_is_formal(outer->call, node->inputs[i])) {
                ir_fault(im->program, "node '%s' (%s): input %zu '%s' is made by no node", import_shown(node),
                         node->op, i, node->inputs[i]);
            }
            continue;
        }
        if (!names_set(&inner->values, f->inputs[i], strlen(f->inputs[i]), v)) return ir_no_memory(err);
    }
    return CHURON_OK;
}

/* A node that gives a value another name: for outputs of a function that are its inputs. */
static status add_identity(importer *im, scope *s, ir_value *from, ir_value *to, error *err) {
    ir_program *p = im->program;
    ir_graph *g = s->graph;
    op_node *n = arena_array(&p->memory, 1, sizeof *n);
    ir_value **ends = arena_array(&p->memory, 2, sizeof *ends);
    if (!n || !ends ||
        !arena_grow(&p->memory, (void **)&g->nodes, g->n_nodes, &g->cap_nodes, sizeof *g->nodes)) {
        return ir_no_memory(err);
    }
    ends[0] = from;
    ends[1] = to;
    *n = (op_node){.name = to->name,
                   .op = "Identity",
                   .domain = "",
                   .version = 16,
                   .graph = g,
                   .inputs = &ends[0],
                   .outputs = &ends[1],
                   .n_inputs = 1,
                   .n_outputs = 1};
    n->def = op_find("", "Identity", n->version);
    if (!n->def) im->n_missing++;
    to->producer = n;
    g->nodes[g->n_nodes++] = n;
    return CHURON_OK;
}

/* Outputs of the function that the call asks for are the call's values; what its nodes make under these names
 * is written there. */
static status bind_outputs(importer *im, const onnx_node *node, const onnx_function *f, scope *outer,
                           scope *inner, error *err) {
    for (size_t i = 0; i < node->n_outputs && i < f->n_outputs; i++) {
        if (!node->outputs[i][0]) continue;
        ir_value *v = names_get(&outer->values, node->outputs[i], strlen(node->outputs[i]));
        if (!v) continue;
        ir_value *made = names_get(&inner->values, f->outputs[i], strlen(f->outputs[i]));
        if (!made) {
            ir_fault(im->program, "function %s: output '%s' is made by no node", f->name, f->outputs[i]);
            continue;
        }
        TRY(add_identity(im, outer, made, v, err));
    }
    return CHURON_OK;
}

static status check_call(const onnx_node *node, const onnx_function *f, const scope *s, error *err) {
    for (const call *c = s->call; c; c = c->outer) {
        if (c->function == f) {
            return error_set(err, CHURON_CORRUPT, "function %s of '%s' calls itself, by node '%s'", f->name,
                             f->domain, import_shown(node));
        }
    }
    if (s->depth >= IR_MAX_DEPTH) {
        return error_set(err, CHURON_LIMIT,
                         "function %s: expected at most %d calls inside one another, got more", f->name,
                         IR_MAX_DEPTH);
    }
    return CHURON_OK;
}

status import_call(importer *im, const onnx_node *node, const onnx_function *f, scope *s, error *err) {
    TRY(check_call(node, f, s, err));
    call c = {.outer = s->call, .function = f};
    const char *name = import_shown(node);
    scope inner = {.graph = s->graph,
                   .call = &c,
                   .prefix = arena_printf(&im->program->memory, "%s%s/", s->prefix, name),
                   .opsets = f->opsets,
                   .n_opsets = f->n_opsets,
                   .depth = s->depth + 1};
    if (!inner.prefix) return ir_no_memory(err);
    status st = call_attributes(im, node, f, s, &c, err);
    if (st == CHURON_OK) st = bind_inputs(im, node, f, s, &inner, err);
    if (st == CHURON_OK) st = import_nodes(im, f->nodes, f->n_nodes, &inner, err);
    if (st == CHURON_OK) st = bind_outputs(im, node, f, s, &inner, err);
    names_free(&inner.values);
    return st;
}
