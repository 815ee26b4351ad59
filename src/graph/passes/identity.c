/* identity.c: operators that change nothing, transpositions of transpositions, and casts of casts.
 *
 * Shapes count as equal only where they are known numbers: two dimensions of one name may differ when the
 * graph runs. */
#include "graph/passes/passes.h"

#include <string.h>

/* Somebody else's value takes the place of the output, or, if that has to stay because the graph hands it
 * out, the input's maker writes it. */
static void drop(rewriter *w, op_node *n) {
    ir_value *in = n->inputs[0], *out = n->outputs[0];
    if (!out->is_output) {
        rewrite_replace(w, out, in);
        rewrite_remove(w, n);
        return;
    }
    op_node *maker = in->producer;
    if (!maker || in->is_output || in->is_constant || rewrite_removed(maker) ||
        rewrite_only_reader(w, in) != n)
        return;
    for (size_t i = 0; i < maker->n_outputs; i++) {
        if (maker->outputs[i] != in) continue;
        maker->outputs[i] = out;
        out->producer = maker;
        rewrite_remove(w, n);
        return;
    }
}

static bool is_one(const op_node *n, size_t i) {
    float f;
    return value_scalar(n->inputs[i], &f) && f == 1.0f;
}

static bool is_zero(const op_node *n, size_t i) {
    float f;
    return value_scalar(n->inputs[i], &f) && f == 0.0f;
}

static bool same_known_shape(const op_node *n) {
    return value_known_shape(n->inputs[0]) && value_same_shape(n->inputs[0], n->outputs[0]);
}

/* The permutation of a Transpose of a known rank; the default reverses. */
static bool permutation(const op_node *n, size_t *rank, int64_t perm[TENSOR_MAX_RANK]) {
    const ir_value *in = n->inputs[0];
    if (!in->has_rank) return false;
    size_t count;
    const int64_t *said = node_ints(n, "perm", &count);
    *rank = in->rank;
    for (size_t i = 0; i < *rank; i++) perm[i] = said && count == *rank ? said[i] : (int64_t)(*rank - 1 - i);
    return true;
}

static bool keeps_order(const op_node *n) {
    size_t rank;
    int64_t perm[TENSOR_MAX_RANK];
    if (!permutation(n, &rank, perm)) return false;
    for (size_t i = 0; i < rank; i++) {
        if (perm[i] != (int64_t)i) return false;
    }
    return true;
}

static bool changes_nothing(const rewriter *w, const op_node *n) {
    if (n->n_inputs == 0 || !n->inputs[0] || !n->outputs[0]) return false;
    if (node_is(n, "Identity")) return true;
    if (node_is(n, "Cast") || node_is(n, "CastLike"))
        return n->inputs[0]->type.kind == ONNX_TENSOR && n->inputs[0]->type.type == n->outputs[0]->type.type;
    if (node_is(n, "Dropout"))
        return n->n_inputs < 3 &&
               (n->n_outputs < 2 || !n->outputs[1] || rewrite_n_uses(w, n->outputs[1]) == 0);
    if (node_is(n, "Transpose")) return keeps_order(n);
    if (node_is(n, "Reshape") || node_is(n, "Flatten") || node_is(n, "Expand") || node_is(n, "Squeeze") ||
        node_is(n, "Unsqueeze") || node_is(n, "Tile"))
        return same_known_shape(n);
    if (node_is(n, "Mul") || node_is(n, "Div")) return is_one(n, 1) && same_known_shape(n);
    if (node_is(n, "Sub")) return is_zero(n, 1) && same_known_shape(n); /* x + 0 would make 0 of -0 */
    return false;
}

/* The second of two transpositions does both. */
static status join_transposes(rewriter *w, op_node *n, error *err) {
    op_node *first = n->inputs[0]->producer;
    size_t rank, count;
    int64_t inner[TENSOR_MAX_RANK], outer[TENSOR_MAX_RANK];
    if (!node_is(first, "Transpose") || !permutation(first, &rank, inner) || !permutation(n, &count, outer))
        return CHURON_OK;
    arena *memory = &w->program->memory;
    int64_t *both = arena_array(memory, rank, sizeof *both);
    onnx_attr *attr = arena_array(memory, 1, sizeof *attr);
    ir_attr *attrs = arena_array(memory, 1, sizeof *attrs);
    if (!both || !attr || !attrs) return ir_no_memory(err);
    for (size_t i = 0; i < rank; i++) both[i] = inner[outer[i]];
    *attr = (onnx_attr){.name = "perm", .type = ONNX_ATTR_INTS, .n = rank, .ints = both};
    attrs[0] = (ir_attr){.name = "perm", .attr = attr};
    if (n->state && n->def->release) n->def->release(n->state);
    n->state = NULL;
    n->attrs = attrs;
    n->n_attrs = 1;
    n->inputs[0] = first->inputs[0];
    w->changes++;
    return n->def->prepare ? n->def->prepare(n, err) : CHURON_OK;
}

/* Every value of type a is one of type b. */
static bool holds(elem b, elem a) {
    const elem_set small = ELEM_BIT(ELEM_BOOL) | ELEM_BIT(ELEM_U8) | ELEM_BIT(ELEM_I8);
    const elem_set to_11_bits = small | ELEM_BIT(ELEM_F16), bf16 = ELEM_BIT(ELEM_BF16);
    const elem_set to_16_bits = small | ELEM_BIT(ELEM_U16) | ELEM_BIT(ELEM_I16);
    const elem_set integers = to_16_bits | ELEM_BIT(ELEM_I32);
    switch (b) {
    case ELEM_F16: return (ELEM_BIT(a) & small) != 0;
    case ELEM_F32: return (ELEM_BIT(a) & (to_11_bits | to_16_bits | bf16)) != 0;
    case ELEM_F64:
        return (ELEM_BIT(a) & (integers | to_11_bits | bf16 | ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_U32))) != 0;
    case ELEM_I32: return (ELEM_BIT(a) & to_16_bits) != 0;
    case ELEM_I64: return (ELEM_BIT(a) & (integers | ELEM_BIT(ELEM_U32))) != 0;
    default: return false;
    }
}

/* Types whose conversions depend on the value alone. */
static bool is_plain_type(elem t) {
    const elem_set plain = ELEM_BIT(ELEM_BOOL) | ELEM_BIT(ELEM_U8) | ELEM_BIT(ELEM_I8) | ELEM_BIT(ELEM_U16) |
                           ELEM_BIT(ELEM_I16) | ELEM_BIT(ELEM_I32) | ELEM_BIT(ELEM_I64) | ELEM_BIT(ELEM_F16) |
                           ELEM_BIT(ELEM_BF16) | ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64);
    return (ELEM_BIT(t) & plain) != 0;
}

/* The second of two casts does both, if the first one loses nothing. */
static void join_casts(rewriter *w, op_node *n) {
    const op_node *first = n->inputs[0] ? n->inputs[0]->producer : NULL;
    if (!node_is(first, "Cast") || !n->outputs[0] || n->outputs[0]->type.kind != ONNX_TENSOR) return;
    const elem from = first->inputs[0]->type.type, between = n->inputs[0]->type.type,
               to = n->outputs[0]->type.type;
    if (!holds(between, from) || !is_plain_type(to)) return;
    n->inputs[0] = first->inputs[0];
    w->changes++;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (node_is(n, "Transpose")) TRY(join_transposes(w, n, err));
        if (node_is(n, "Cast")) join_casts(w, n);
        if (changes_nothing(w, n)) drop(w, n);
    }
    return CHURON_OK;
}

status pass_identity(rewriter *w, error *err) {
    return rewrite_each(w, sweep, err);
}
