/* infer.c: types, attributes and shapes of every node, in order, when a graph is loaded. */
#include "graph/exec.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

typedef struct place {   /* a position of a signature */
    char letter, repeat; /* repeat: '*', '+' or 0 */
    bool optional;
} place;

enum { MAX_PLACES = 24 };

typedef struct signature {
    place in[MAX_PLACES], out[MAX_PLACES];
    size_t n_in, n_out;
} signature;

/* ---- signatures ------------------------------------------------------------------------------------- */

static bool read_signature(const char *text, signature *sig) {
    *sig = (signature){0};
    bool outputs = false, optional = false;
    place *last = NULL;
    for (const char *p = text; *p; p++) {
        if (*p == '>') {
            outputs = true;
            optional = false;
            last = NULL;
        } else if (*p == '=') {
            optional = true;
        } else if (*p == '*' || *p == '+') {
            if (!last) return false;
            last->repeat = *p;
        } else {
            size_t *n = outputs ? &sig->n_out : &sig->n_in;
            if (*n == MAX_PLACES) return false;
            last = outputs ? &sig->out[*n] : &sig->in[*n];
            *last = (place){.letter = *p, .optional = optional};
            ++*n;
        }
    }
    return outputs;
}

/* The position that input or output i stands at; NULL: beyond the end. */
static const place *place_of(const place *places, size_t n, size_t i) {
    if (i < n) return &places[i];
    return n > 0 && places[n - 1].repeat ? &places[n - 1] : NULL;
}

static elem_set fixed_types(char letter) {
    switch (letter) {
    case 'i': return ELEM_BIT(ELEM_I64);
    case 'b': return ELEM_BIT(ELEM_BOOL);
    case 'f': return ELEM_BIT(ELEM_F32);
    case 's': return ELEM_BIT(ELEM_STRING);
    case '#': return ELEMS_ALL;
    default: return 0;
    }
}

static elem_set types_of(const op_def *d, char letter) {
    for (size_t i = 0; i < OP_MAX_VARS; i++) {
        if (d->vars[i].letter == letter) return d->vars[i].types;
    }
    return fixed_types(letter);
}

static void list_types(elem_set types, str *out) {
    for (int e = 1; e < ELEM_COUNT; e++) {
        if (types & ELEM_BIT(e)) str_fmt(out, "%s%s", out->len ? ", " : "", elem_name((elem)e));
    }
}

static const char *kind_name(const onnx_type *t) {
    static const char *const words[] = {
        "a value of unknown type", "a tensor", "a sparse tensor", "a sequence", "a map", "an optional",
        "an opaque value"};
    return t->kind <= ONNX_OPAQUE ? words[t->kind] : words[0];
}

typedef struct bindings {
    elem of[26]; /* by letter */
} bindings;

static bool is_letter(char c) {
    return c >= 'A' && c <= 'Z';
}

static status check_input(const op_node *n, size_t i, const place *at, bindings *b, error *err) {
    const onnx_type *t = &n->inputs[i]->type;
    if (at->letter == '?') return CHURON_OK;
    if (t->kind != ONNX_TENSOR) {
        return op_error(n, err, CHURON_INVALID, "input %zu '%s': expected a tensor, got %s", i,
                        n->inputs[i]->name, kind_name(t));
    }
    elem_set types = types_of(n->def, at->letter);
    if (!(types & ELEM_BIT(t->type))) {
        str list = {0};
        list_types(types, &list);
        status st = op_error(n, err, CHURON_INVALID, "input %zu '%s': expected %s, got %s", i,
                             n->inputs[i]->name, str_cstr(&list), elem_name(t->type));
        str_free(&list);
        return st;
    }
    if (!is_letter(at->letter)) return CHURON_OK;
    elem *bound = &b->of[at->letter - 'A'];
    if (*bound == ELEM_NONE || at->repeat == '+') {
        *bound = t->type;
    } else if (*bound != t->type) {
        return op_error(n, err, CHURON_INVALID, "input %zu '%s': expected %s as the inputs before it, got %s",
                        i, n->inputs[i]->name, elem_name(*bound), elem_name(t->type));
    }
    return CHURON_OK;
}

static status check_inputs(const op_node *n, const signature *sig, bindings *b, error *err) {
    if (n->n_inputs > 0 && !place_of(sig->in, sig->n_in, n->n_inputs - 1)) {
        return op_error(n, err, CHURON_INVALID, "expected at most %zu inputs, got %zu", sig->n_in,
                        n->n_inputs);
    }
    if (n->n_outputs > 0 && !place_of(sig->out, sig->n_out, n->n_outputs - 1)) {
        return op_error(n, err, CHURON_INVALID, "expected at most %zu outputs, got %zu", sig->n_out,
                        n->n_outputs);
    }
    for (size_t i = 0; i < n->n_inputs || i < sig->n_in; i++) {
        const place *at = place_of(sig->in, sig->n_in, i);
        if (i < n->n_inputs && n->inputs[i]) {
            TRY(check_input(n, i, at, b, err));
        } else if (i < sig->n_in && !at->optional) {
            return op_error(n, err, CHURON_INVALID, "input %zu: expected a value, got none", i);
        }
    }
    return CHURON_OK;
}

/* Output 0 is what kernels write without asking, unless the signature lets it be absent. */
static status check_outputs(const op_node *n, const signature *sig, error *err) {
    if (n->n_outputs == 0 || n->outputs[0] || sig->n_out == 0 || sig->out[0].optional || sig->out[0].repeat)
        return CHURON_OK;
    return op_error(n, err, CHURON_INVALID, "output 0: expected a name, got none");
}

/* Types of outputs that follow from the signature; '@' and '?' wait for infer. */
static void set_output_types(op_node *n, const signature *sig, const bindings *b) {
    for (size_t i = 0; i < n->n_outputs; i++) {
        ir_value *v = n->outputs[i];
        if (!v) continue;
        char c = place_of(sig->out, sig->n_out, i)->letter;
        v->type = (onnx_type){.kind = ONNX_UNKNOWN};
        if (c >= '0' && c <= '9') {
            size_t k = (size_t)(c - '0');
            if (k < n->n_inputs && n->inputs[k]) v->type = n->inputs[k]->type;
            continue;
        }
        elem_set types = is_letter(c) ? types_of(n->def, c) : c == '#' ? 0 : fixed_types(c);
        elem e = is_letter(c) ? b->of[c - 'A'] : ELEM_NONE;
        for (int k = 1; e == ELEM_NONE && k < ELEM_COUNT; k++) {
            if (types == ELEM_BIT(k)) e = (elem)k;
        }
        if (e != ELEM_NONE) v->type = (onnx_type){.kind = ONNX_TENSOR, .type = e};
    }
}

/* ---- one node --------------------------------------------------------------------------------------- */

typedef struct inference {
    ir_program *program;
    exec *x; /* computes constants */
} inference;

static status prepare(op_node *n, error *err) {
    if (n->prepared) return CHURON_OK;
    if (n->def->prepare) TRY(n->def->prepare(n, err));
    n->prepared = true;
    for (size_t i = 0; i < n->n_attrs; i++) {
        if (n->attrs[i].asked) continue;
        /* Operator sets before 6 had it on many operators; it tells how to save memory. */
        if (n->version < 6 && strcmp(n->attrs[i].name, "consumed_inputs") == 0) continue;
        return op_error(n, err, CHURON_UNSUPPORTED,
                        "attribute '%s': expected an attribute of %s %s-%" PRId64 ", got one "
                        "that has no meaning there",
                        n->attrs[i].name, n->op, n->domain[0] ? n->domain : "ai.onnx", n->version);
    }
    return CHURON_OK;
}

static status take_output(op_shapes *s, size_t i, error *err) {
    ir_value *v = s->node->outputs[i];
    const shape_out *o = &s->out[i];
    v->has_rank = false;
    v->known = NULL;
    if (o->value_type) {
        TRY(ir_value_set_type(v, o->value_type, err));
    } else if (o->type != ELEM_NONE) {
        v->type = (onnx_type){.kind = ONNX_TENSOR, .type = o->type};
    }
    if (v->type.kind == ONNX_UNKNOWN) {
        return op_error(s->node, err, CHURON_INTERNAL, "output %zu: the operator does not say its type", i);
    }
    if (o->state == SHAPE_KNOWN || o->state == SHAPE_PARTIAL)
        TRY(ir_value_set_shape(v, o->rank, o->dims, err));
    if (o->values && v->type.kind == ONNX_TENSOR) {
        v->known = o->values;
        v->n_known = o->n_values;
    }
    return CHURON_OK;
}

static status infer_shapes(inference *inf, op_node *n, error *err) {
    shape_out few[4];
    shape_out *out = n->n_outputs <= 4 ? few : mem_alloc(n->n_outputs * sizeof *out);
    if (!out) return ir_no_memory(err);
    memset(out, 0, n->n_outputs * sizeof *out);
    op_shapes s = {.node = n, .program = inf->program, .out = out};
    status st = n->def->infer ? n->def->infer(&s, err) : CHURON_OK;
    if (st == CHURON_OK && n->def->propagate) st = n->def->propagate(&s, err);
    /* Inside a body a shape that cannot be is no fault yet: the branch may never be taken. */
    if (st != CHURON_OK && st != CHURON_NO_MEMORY && st != CHURON_INTERNAL && n->graph->parent) {
        for (size_t i = 0; i < n->n_outputs; i++) {
            out[i].state = SHAPE_UNKNOWN;
            out[i].values = NULL;
        }
        st = CHURON_OK;
    }
    if (s.out_of_memory || inf->program->symbols.failed) st = ir_no_memory(err);
    for (size_t i = 0; i < n->n_outputs && st == CHURON_OK; i++) {
        if (n->outputs[i]) st = take_output(&s, i, err);
    }
    if (out != few) mem_free(out);
    return st;
}

/* Operators without inputs whose output never changes (Constant) are computed now. */
static status compute_constant(inference *inf, op_node *n, error *err) {
    if (n->n_inputs > 0 || n->n_bodies > 0 || n->n_outputs != 1 ||
        (n->def->flags & (OP_RANDOM | OP_OWN_INFERENCE)) || n->outputs[0]->is_constant ||
        strcmp(n->op, "Constant") != 0) {
        return CHURON_OK;
    }
    tensor out = {0}, kept;
    TRY(exec_constant_node(inf->x, n, &out, err));
    TRY(ir_keep_constant(inf->program, out, &kept, err));
    return ir_value_set_constant(n->outputs[0], kept, err);
}

static bool reads_poison(const op_node *n) {
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (n->inputs[i] && n->inputs[i]->poisoned) return true;
    }
    for (size_t b = 0; b < n->n_bodies; b++) {
        for (size_t i = 0; i < n->bodies[b]->n_captures; i++) {
            if (n->bodies[b]->captures[i].outer->poisoned) return true;
        }
    }
    return false;
}

static status infer_node_strictly(inference *inf, op_node *n, error *err) {
    signature sig;
    bindings b = {{ELEM_NONE}};
    if (!read_signature(n->def->signature, &sig)) {
        return op_error(n, err, CHURON_INTERNAL, "signature '%s' cannot be read", n->def->signature);
    }
    TRY(check_inputs(n, &sig, &b, err));
    TRY(check_outputs(n, &sig, err));
    set_output_types(n, &sig, &b);
    TRY(prepare(n, err));
    TRY(infer_shapes(inf, n, err));
    return compute_constant(inf, n, err);
}

/* Faults of a node are noted and what depends on it is left alone; only lack of memory ends the walk. */
static status infer_node(inference *inf, op_node *n, error *err) {
    error e;
    bool poison = reads_poison(n);
    status st = poison ? CHURON_OK : infer_node_strictly(inf, n, &e);
    if (st == CHURON_NO_MEMORY) {
        if (err) *err = e;
        return st;
    }
    if (st != CHURON_OK) ir_fault_of(inf->program, &e);
    if (st != CHURON_OK || poison) {
        for (size_t i = 0; i < n->n_outputs; i++) {
            if (n->outputs[i]) n->outputs[i]->poisoned = true;
        }
    }
    return CHURON_OK;
}

static status infer_graph(inference *inf, ir_graph *g, error *err) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        TRY(ir_check_stop(g->nodes[i], err));
        TRY(infer_node(inf, g->nodes[i], err));
    }
    return CHURON_OK;
}

/* ---- bodies ----------------------------------------------------------------------------------------- */

static status set_formal_input(ir_value *v, const ir_value *given, error *err) {
    if (!given) {
        if (v->type.kind == ONNX_UNKNOWN) {
            return error_set(err, CHURON_CORRUPT, "input '%s' of a body: expected a declared type, got none",
                             v->name);
        }
        return CHURON_OK;
    }
    bool had = v->type.kind != ONNX_UNKNOWN && (v->type.kind != ONNX_TENSOR || v->type.type != ELEM_NONE);
    if (had && (v->type.kind != given->type.kind ||
                (v->type.kind == ONNX_TENSOR && v->type.type != given->type.type))) {
        return error_set(err, CHURON_INVALID, "input '%s' of a body: expected %s %s as declared, got %s %s",
                         v->name, kind_name(&v->type), elem_name(v->type.type), kind_name(&given->type),
                         elem_name(given->type.type));
    }
    v->type = given->type;
    v->has_rank = false;
    v->known = NULL;
    return given->has_rank ? ir_value_set_shape(v, given->rank, given->dims, err) : CHURON_OK;
}

status ir_infer_body(op_shapes *s, size_t body, ir_value *const *inputs, size_t n, error *err) {
    ir_graph *g = s->node->bodies[body];
    ir_program *p = s->program;
    if (g->n_inputs != n) {
        return op_error(s->node, err, CHURON_INVALID, "body '%s': expected %zu inputs, got %zu", g->name, n,
                        g->n_inputs);
    }
    for (size_t i = 0; i < n; i++) {
        error e;
        if (set_formal_input(g->inputs[i], inputs[i], &e) != CHURON_OK) {
            return op_error(s->node, err, e.code, "%s", e.message);
        }
    }
    for (size_t i = 0; i < g->n_captures; i++) {
        ir_value *inner = g->captures[i].inner;
        const ir_value *outer = g->captures[i].outer;
        ir_value_copy_type(inner, outer);
        inner->is_constant = outer->is_constant;
        inner->constant = outer->constant;
    }
    size_t faults = p->n_faults;
    inference *inf = p->inference;
    TRY(infer_graph(inf, g, err));
    if (p->n_faults != faults) {
        return op_error(s->node, err, CHURON_INVALID, "its body '%s' has faults", g->name);
    }
    return CHURON_OK;
}

/* ---- everything ------------------------------------------------------------------------------------- */

/* What the file declares of an output must be what its node makes. */
static void check_output(ir_program *p, const onnx_value_info *declared, const ir_value *v) {
    const onnx_type *t = &declared->type;
    if (v->poisoned || t->kind == ONNX_UNKNOWN) return;
    if (t->kind != v->type.kind) {
        ir_fault(p, "output '%s': expected %s as declared, got %s", v->name, kind_name(t),
                 kind_name(&v->type));
    } else if (t->kind == ONNX_TENSOR && t->type != ELEM_NONE && t->type != v->type.type) {
        ir_fault(p, "output '%s': expected %s as declared, got %s", v->name, elem_name(t->type),
                 elem_name(v->type.type));
    }
}

static void check_input_types(ir_program *p) {
    const ir_graph *g = p->main;
    for (size_t i = 0; i < g->n_inputs; i++) {
        ir_value *v = g->inputs[i];
        bool good =
            v->type.kind == ONNX_TENSOR
                ? elem_describe(v->type.type) != NULL
                : v->type.kind == ONNX_SEQUENCE || v->type.kind == ONNX_OPTIONAL || v->type.kind == ONNX_MAP;
        if (good) continue;
        ir_fault(p, "input '%s': expected a tensor, a sequence, a map or an optional of known type, got %s",
                 v->name, kind_name(&v->type));
        v->poisoned = true;
    }
}

status ir_infer(ir_program *p, error *err) {
    exec x;
    TRY(exec_init(&x, NULL, 1, 0, err));
    inference inf = {.program = p, .x = &x};
    p->inference = &inf;
    check_input_types(p);
    status st = infer_graph(&inf, p->main, err);
    p->inference = NULL;
    exec_free(&x, NULL);
    if (st != CHURON_OK) return st;
    const ir_graph *g = p->main;
    for (size_t i = 0; i < g->n_outputs; i++) check_output(p, &g->source->outputs[i], g->outputs[i]);
    return ir_check_faults(p, CHURON_INVALID, err);
}
