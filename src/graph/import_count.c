/* import_count.c: how many nodes a model has once its functions stand where they are called, before any of
 * them does: a few functions that call each other ten times each are 10^12 nodes.
 *
 * Every function is looked at once. Of each we keep the nodes that one call becomes and, for each of its
 * attributes, how often a graph that a call gives in it is put in. A call counts as a node, and so does every
 * body, so that neither number can be larger than the limit without the other's being found too large. */
#include "graph/import.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

typedef enum state { UNSEEN, OPEN, COUNTED } state;

typedef struct function_count {
    state state;
    bool takes_graphs; /* some of `bodies` is not 0 */
    uint64_t nodes;
    uint64_t *bodies; /* [n_attributes + n_defaults] of the function */
} function_count;

typedef struct counter {
    const importer *im;
    function_count *functions; /* [n_functions] of the model */
} counter;

/* What is being counted: a function, or the model (NULL), and how often what stands here is put in. */
typedef struct place {
    const onnx_function *function;
    uint64_t times;
    size_t depth;
} place;

static function_count *of(const counter *c, const onnx_function *f) {
    return &c->functions[f - c->im->model->functions];
}

static status add(const place *p, uint64_t nodes, uint64_t *sum, error *err) {
    *sum += p->times * nodes; /* both are at most IR_MAX_NODES */
    if (*sum <= IR_MAX_NODES) return CHURON_OK;
    if (!p->function) {
        return error_set(err, CHURON_LIMIT,
                         "model: expected at most %d nodes with its functions inlined, got %" PRIu64
                         " or more",
                         IR_MAX_NODES, *sum);
    }
    return error_set(err, CHURON_LIMIT,
                     "function %s of '%s': expected at most %d nodes with the functions that it calls "
                     "inlined, got %" PRIu64 " or more",
                     p->function->name, p->function->domain, IR_MAX_NODES, *sum);
}

static const char *attribute_name(const onnx_function *f, size_t k) {
    return k < f->n_attributes ? f->attributes[k] : f->defaults[k - f->n_attributes].name;
}

static size_t n_attributes(const onnx_function *f) {
    return f->n_attributes + f->n_defaults;
}

/* A graph that the function's caller gives stands here so many times. */
static void refer(const counter *c, const place *p, const char *name, uint64_t times) {
    if (!p->function) return; /* a fault that the import reports */
    function_count *mine = of(c, p->function);
    for (size_t k = 0; k < n_attributes(p->function); k++) {
        if (strcmp(attribute_name(p->function, k), name) != 0) continue;
        mine->bodies[k] += times;
        mine->takes_graphs = true;
        return;
    }
}

static status count_nodes(const counter *c, const onnx_node *nodes, size_t n, const place *p, uint64_t *sum,
                          error *err);

static bool may_be_graphs(const onnx_attr *a) {
    return a->type == ONNX_ATTR_GRAPH || a->type == ONNX_ATTR_GRAPHS ||
           a->type == 0; /* 0: as the call says */
}

/* An attribute whose graphs are put in `times` times, for each time that what holds it is. */
static status count_attr(const counter *c, const onnx_attr *a, uint64_t times, const place *p, uint64_t *sum,
                         error *err) {
    if (a->reference && a->reference[0]) {
        TRY(add(p, times, sum, err));
        refer(c, p, a->reference, p->times * times);
        return CHURON_OK;
    }
    if (a->type != ONNX_ATTR_GRAPH && a->type != ONNX_ATTR_GRAPHS) return CHURON_OK;
    place inner = {.function = p->function, .depth = p->depth + 1};
    TRY(add(p, times * (a->n < IR_MAX_NODES ? a->n : IR_MAX_NODES), sum, err));
    inner.times = p->times * times;
    if (inner.depth > IR_MAX_DEPTH) return CHURON_OK; /* a fault that the import reports */
    for (size_t i = 0; i < a->n; i++)
        TRY(count_nodes(c, a->graphs[i]->nodes, a->graphs[i]->n_nodes, &inner, sum, err));
    return CHURON_OK;
}

static const onnx_attr *attr_named(const onnx_attr *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i].name, name) == 0) return &list[i];
    }
    return NULL;
}

static status count_function(const counter *c, const onnx_function *f, size_t depth, error *err) {
    function_count *mine = of(c, f);
    const place p = {.function = f, .times = 1, .depth = depth};
    mine->state = OPEN;
    if (n_attributes(f)) {
        mine->bodies = mem_calloc(n_attributes(f), sizeof *mine->bodies);
        if (!mine->bodies) return ir_no_memory(err);
    }
    uint64_t nodes = 0;
    TRY(count_nodes(c, f->nodes, f->n_nodes, &p, &nodes, err));
    mine->nodes = nodes;
    mine->state = COUNTED;
    return CHURON_OK;
}

static status count_call(const counter *c, const onnx_node *node, const onnx_function *f, const place *p,
                         uint64_t *sum, error *err) {
    const function_count *called = of(c, f);
    if (called->state == OPEN) {
        return error_set(err, CHURON_CORRUPT, "function %s of '%s' calls itself, by node '%s'", f->name,
                         f->domain, node->name);
    }
    if (p->depth >= IR_MAX_DEPTH) {
        return error_set(err, CHURON_LIMIT,
                         "function %s: expected at most %d calls inside one another, got more", f->name,
                         IR_MAX_DEPTH);
    }
    if (called->state == UNSEEN) TRY(count_function(c, f, p->depth + 1, err));
    TRY(add(p, called->nodes, sum, err));
    for (size_t k = 0; called->takes_graphs && k < n_attributes(f); k++) {
        const char *name = attribute_name(f, k);
        if (called->bodies[k] == 0) continue;
        const onnx_attr *a = attr_named(node->attrs, node->n_attrs, name);
        if (!a) a = attr_named(f->defaults, f->n_defaults, name);
        if (a) TRY(count_attr(c, a, called->bodies[k], p, sum, err));
    }
    return CHURON_OK;
}

static status count_nodes(const counter *c, const onnx_node *nodes, size_t n, const place *p, uint64_t *sum,
                          error *err) {
    TRY(add(p, n < IR_MAX_NODES ? n : IR_MAX_NODES + 1, sum, err));
    for (size_t i = 0; i < n; i++) {
        const onnx_function *f;
        TRY(import_find_function(c->im, &nodes[i], &f, err));
        if (f) {
            TRY(count_call(c, &nodes[i], f, p, sum, err));
            continue;
        }
        for (size_t k = 0; k < nodes[i].n_attrs; k++) {
            const onnx_attr *a = &nodes[i].attrs[k];
            if (may_be_graphs(a)) TRY(count_attr(c, a, 1, p, sum, err));
        }
    }
    return CHURON_OK;
}

status import_count(const importer *im, error *err) {
    const onnx_model *m = im->model;
    counter c = {.im = im, .functions = mem_calloc(m->n_functions + 1, sizeof *c.functions)};
    if (!c.functions) return ir_no_memory(err);
    const place p = {.times = 1};
    uint64_t sum = 0;
    const status st = count_nodes(&c, m->graph.nodes, m->graph.n_nodes, &p, &sum, err);
    for (size_t i = 0; i < m->n_functions; i++) mem_free(c.functions[i].bodies);
    mem_free(c.functions);
    return st;
}
