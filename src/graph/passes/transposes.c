/* transposes.c: transpositions move behind what works on single elements, if they meet another transposition
 * there, with which they join and mostly cancel, or a reduction that leaves the order of what it keeps.
 * Constants are transposed the other way. A shape that is asked of a transposed value is asked of the value.
 * What a convolution makes and an exporter turned to have its channels last is turned behind sums with others
 * of its kind too, wherever these end. */
#include "graph/passes/passes.h"

#include <string.h>

enum { LONGEST = 32 };

/* x transposed, then `n` nodes of single elements, each read by the next alone; `end` reads the last one. */
typedef struct chain {
    op_node *turn;
    size_t rank;
    const int64_t *perm;
    op_node *nodes[LONGEST];
    ir_value *main[LONGEST]; /* the input of each that is transposed */
    size_t n;
    op_node *end;
} chain;

static const int64_t *perm_of(const op_node *n, size_t rank) {
    size_t count;
    const int64_t *perm = node_is(n, "Transpose") ? node_ints(n, "perm", &count) : NULL;
    return perm && n->inputs[0]->has_rank && n->inputs[0]->rank == count && count == rank ? perm : NULL;
}

static bool is_one_of(const op_node *n, const char *const *list) {
    for (; *list; list++) {
        if (node_is(n, *list)) return true;
    }
    return false;
}

/* Functions of the first input alone, whose others are scalars. */
static bool is_function(const op_node *n) {
    static const char *const functions[] = {
        "Relu",     "Sigmoid",    "Tanh",  "Clip", "LeakyRelu", "Elu",  "HardSigmoid", "HardSwish",
        "Softplus", "Softsign",   "Gelu",  "Erf",  "Exp",       "Log",  "Sqrt",        "Abs",
        "Neg",      "Reciprocal", "Floor", "Ceil", "Round",     "Cast", "Mish",        "Selu",
        "Celu",     "Sin",        "Cos",   "Not",  "Identity",  NULL};
    return is_one_of(n, functions) || node_is_of(n, "churon", "Unary");
}

/* A second operand that can follow: transposed alike, or an f32 constant. */
static bool can_turn(const chain *c, const ir_value *v) {
    if (!v || !value_is_f32(v) || !v->has_rank || v->rank > c->rank) return false;
    if (v->is_constant) return true;
    const int64_t *perm = v->producer ? perm_of(v->producer, c->rank) : NULL;
    return perm && memcmp(perm, c->perm, c->rank * sizeof *perm) == 0;
}

static bool is_pair(const op_node *n) {
    static const char *const pairs[] = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", NULL};
    return is_one_of(n, pairs) && n->version >= 7 && n->n_inputs == 2;
}

static bool can_move(const chain *c, const op_node *n, const ir_value *v) {
    if (is_function(n)) return n->inputs[0] == v && n->n_outputs == 1;
    if (!is_pair(n)) return false;
    const ir_value *other = node_other_input(n, v);
    return other && other != v && can_turn(c, other);
}

static bool follow(rewriter *w, op_node *turn, chain *c) {
    const ir_value *x = turn->inputs[0];
    *c = (chain){.turn = turn, .rank = x && x->has_rank ? x->rank : 0};
    c->perm = perm_of(turn, c->rank);
    if (!c->perm || c->rank == 0 || x->is_constant) return false;
    ir_value *v = turn->outputs[0];
    for (;;) {
        op_node *next = rewrite_only_reader(w, v);
        c->end = next;
        if (!next || c->n == LONGEST) return false;
        if (!can_move(c, next, v)) return next->inputs[0] == v;
        c->main[c->n] = v;
        c->nodes[c->n++] = next;
        v = next->outputs[0];
        if (!v || !v->has_rank || v->rank != c->rank) return false;
    }
}

/* ---- changes ---------------------------------------------------------------------------------------- */

/* A constant as an operand of what is not transposed any more. */
static status turned_constant(rewriter *w, const chain *c, ir_value *v, ir_value **out, error *err) {
    const tensor *from = &v->constant;
    *out = v;
    if (from->count <= 1) return CHURON_OK;
    int64_t dims[TENSOR_MAX_RANK];
    size_t strides[TENSOR_MAX_RANK], step = 1; /* of the source, by axis of the result */
    for (size_t i = c->rank; i-- > 0;) {
        const size_t missing = c->rank - from->rank;
        const int64_t d = i < missing ? 1 : from->dims[i - missing];
        dims[c->perm[i]] = d;
        strides[c->perm[i]] = step;
        step *= (size_t)d;
    }
    tensor t;
    TRY(tensor_alloc(&t, ELEM_F32, c->rank, dims, err));
    for (size_t i = 0; i < t.count; i++) {
        size_t rest = i, at = 0;
        for (size_t d = c->rank; d-- > 0;) {
            at += rest % (size_t)dims[d] * strides[d];
            rest /= (size_t)dims[d];
        }
        ((float *)t.data)[i] = ((const float *)from->data)[at];
    }
    return rewrite_constant(w, v->name, t, out, err);
}

/* The nodes of the chain work on what is not transposed. */
static status move_chain(rewriter *w, const chain *c, error *err) {
    for (size_t i = 0; i < c->n; i++) {
        op_node *n = c->nodes[i];
        ir_value *y = n->outputs[0];
        const bool pair = !is_function(n);
        for (size_t k = 0; k < n->n_inputs; k++) {
            ir_value *v = n->inputs[k];
            if (v == c->main[i]) {
                if (i == 0) n->inputs[k] = c->turn->inputs[0];
            } else if (pair && v->is_constant) {
                TRY(turned_constant(w, c, v, &n->inputs[k], err));
            } else if (pair) {
                n->inputs[k] = v->producer->inputs[0];
            }
        }
        dim dims[TENSOR_MAX_RANK];
        for (size_t k = 0; k < c->rank; k++) dims[c->perm[k]] = y->dims[k];
        TRY(ir_value_set_shape(y, c->rank, dims, err));
        w->changes++;
    }
    return CHURON_OK;
}

static ir_value *end_of(const chain *c) {
    return c->n ? c->nodes[c->n - 1]->outputs[0] : c->turn->inputs[0];
}

static status join_end(rewriter *w, const chain *c, const int64_t *second, error *err) {
    int64_t both[TENSOR_MAX_RANK];
    for (size_t i = 0; i < c->rank; i++) both[i] = c->perm[second[i]];
    TRY(move_chain(w, c, err));
    ir_value *v = end_of(c);
    const node_attr attr = {.name = "perm", .ints = both, .n_ints = c->rank};
    TRY(rewrite_operator(w, c->end, "", "Transpose", 13, &attr, 1, &v, 1, c->end->outputs, 1, err));
    rewrite_remove(w, c->end);
    return CHURON_OK;
}

/* The end as a reduction that drops its axes and keeps the others in the order that they have in the source;
 * axes: those of the source. */
static bool reduced_axes(const chain *c, int64_t axes[TENSOR_MAX_RANK], size_t *count) {
    static const char *const reductions[] = {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", NULL};
    const op_node *n = c->end;
    if (!is_one_of(n, reductions) || node_int(n, "keepdims", 1) != 0) return false;
    const int64_t *said = node_said_axes(n, count);
    bool reduced[TENSOR_MAX_RANK] = {false};
    for (size_t i = 0; said && i < *count; i++) {
        const int64_t a = said[i] < 0 ? said[i] + (int64_t)c->rank : said[i];
        if (a < 0 || a >= (int64_t)c->rank || reduced[a]) return false;
        reduced[a] = true;
        axes[i] = c->perm[a];
    }
    int64_t last = -1;
    for (size_t i = 0; i < c->rank; i++) {
        if (reduced[i]) continue;
        if (c->perm[i] < last) return false;
        last = c->perm[i];
    }
    return said != NULL;
}

static status reduce_end(rewriter *w, const chain *c, const int64_t *axes, size_t count, error *err) {
    const op_node *n = c->end;
    const bool by_input =
        n->n_inputs > 1 || n->version >= 18 || (node_is(n, "ReduceSum") && n->version >= 13);
    TRY(move_chain(w, c, err));
    ir_value *inputs[2] = {end_of(c), NULL};
    node_attr attrs[2] = {{.name = "keepdims", .i = 0}, {.name = "axes", .ints = axes, .n_ints = count}};
    if (by_input) {
        tensor t;
        TRY(tensor_alloc(&t, ELEM_I64, 1, (const int64_t[]){(int64_t)count}, err));
        memcpy(t.data, axes, count * sizeof *axes);
        TRY(rewrite_constant(w, n->name, t, &inputs[1], err));
    }
    TRY(rewrite_operator(w, c->end, "", n->op, n->version, attrs, by_input ? 1 : 2, inputs, by_input ? 2 : 1,
                         n->outputs, 1, err));
    rewrite_remove(w, c->end);
    return CHURON_OK;
}

static status lower(rewriter *w, op_node *turn, error *err) {
    chain c;
    size_t count;
    int64_t axes[TENSOR_MAX_RANK];
    if (!follow(w, turn, &c)) return CHURON_OK;
    const int64_t *second = perm_of(c.end, c.rank);
    if (second && c.n) return join_end(w, &c, second, err);
    return reduced_axes(&c, axes, &count) ? reduce_end(w, &c, axes, count, err) : CHURON_OK;
}

/* ---- channels last ---------------------------------------------------------------------------------- */

enum { IMAGE_RANK = 4, FAR = 24 };
static const int64_t channels_last[IMAGE_RANK] = {0, 2, 3, 1};

/* Made by a convolution or pool, but for what works on single elements. */
static bool is_convolved(const ir_value *v) {
    static const char *const makers[] = {"Conv",    "ConvTranspose", "BatchNormalization",
                                         "MaxPool", "AveragePool",   NULL};
    for (size_t i = 0; i < FAR && v && v->producer; i++) {
        const op_node *n = v->producer;
        if (is_one_of(n, makers)) return true;
        if (!is_function(n) && !is_pair(n)) return false;
        v = is_pair(n) && n->inputs[0] && n->inputs[0]->is_constant ? n->inputs[1] : n->inputs[0];
    }
    return false;
}

/* What v is the turned form of, if nobody needs that form who could not do without; else NULL. */
static ir_value *before_turn(const rewriter *w, const ir_value *v) {
    const op_node *turn = v && !v->is_output && v->has_rank && value_is_f32(v) ? v->producer : NULL;
    const int64_t *perm = turn ? perm_of(turn, IMAGE_RANK) : NULL;
    if (!perm || memcmp(perm, channels_last, sizeof channels_last) != 0 || !is_convolved(turn->inputs[0]))
        return NULL;
    for (size_t i = v->slot < w->n_values ? w->first[v->slot] : 0;
         v->slot < w->n_values && i < w->first[v->slot + 1]; i++) {
        const op_node *reader = w->readers[i];
        if (!rewrite_removed(reader) && !node_is(reader, "Transpose") && !is_function(reader) &&
            !is_pair(reader))
            return NULL;
    }
    return turn->inputs[0];
}

/* The node works on what is not turned; what it makes is turned. */
static status push(rewriter *w, op_node *n, error *err) {
    const bool pair = is_pair(n);
    if ((!pair && !is_function(n)) || n->n_outputs != 1 || n->n_inputs > 3) return CHURON_OK;
    const chain like = {.rank = IMAGE_RANK, .perm = channels_last};
    ir_value *inputs[3] = {0}, *y = n->outputs[0], *made;
    bool any = false;
    for (size_t i = 0; i < n->n_inputs; i++) {
        ir_value *v = n->inputs[i], *source = i == 0 || pair ? before_turn(w, v) : NULL;
        inputs[i] = source ? source : v;
        any = any || source;
        if (!source && (i == 0 || pair) &&
            (!v || !v->is_constant || !value_is_f32(v) || v->constant.rank > IMAGE_RANK))
            return CHURON_OK;
    }
    if (!any || !y || !value_is_f32(y) || !y->has_rank || y->rank != IMAGE_RANK) return CHURON_OK;
    for (size_t i = 0; pair && i < 2; i++) {
        if (inputs[i]->is_constant) TRY(turned_constant(w, &like, inputs[i], &inputs[i], err));
    }
    dim dims[IMAGE_RANK];
    for (size_t k = 0; k < IMAGE_RANK; k++) dims[channels_last[k]] = y->dims[k];
    TRY(rewrite_value(w, y->name, ELEM_F32, IMAGE_RANK, dims, &made, err));
    TRY(rewrite_operator_like(w, n, n, "", n->op, n->version, inputs, n->n_inputs, &made, 1, err));
    const node_attr attr = {.name = "perm", .ints = channels_last, .n_ints = IMAGE_RANK};
    TRY(rewrite_operator(w, n, "", "Transpose", 13, &attr, 1, &made, 1, &y, 1, err));
    rewrite_remove(w, n);
    return CHURON_OK;
}

static status push_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        if (!rewrite_removed(w->g->nodes[i])) TRY(push(w, w->g->nodes[i], err));
    }
    return CHURON_OK;
}

/* ---- the walk --------------------------------------------------------------------------------------- */

/* Shape of a transposed value: of the value, its elements in another order. */
static status ask_the_source(rewriter *w, op_node *n, error *err) {
    const op_node *turn = n->inputs[0] ? n->inputs[0]->producer : NULL;
    const size_t rank = n->inputs[0] && n->inputs[0]->has_rank ? n->inputs[0]->rank : 0;
    const int64_t *perm = turn && rank ? perm_of(turn, rank) : NULL;
    int64_t start = node_int(n, "start", 0), end = node_int(n, "end", INT64_MAX), one = (int64_t)rank;
    if (!perm) return CHURON_OK;
    start = start < 0 ? start + one : start;
    end = end < 0 ? end + one : end > one ? one : end;
    if (start < 0 || end <= start) return CHURON_OK;
    tensor t;
    ir_value *shape, *inputs[2], *source = turn->inputs[0];
    TRY(tensor_alloc(&t, ELEM_I64, 1, (const int64_t[]){end - start}, err));
    memcpy(t.data, perm + start, t.count * sizeof *perm);
    TRY(rewrite_constant(w, n->name, t, &inputs[1], err));
    TRY(rewrite_value(w, n->name, ELEM_I64, 1, (const dim[]){one}, &shape, err));
    TRY(rewrite_operator(w, n, "", "Shape", 13, NULL, 0, &source, 1, &shape, 1, err));
    inputs[0] = shape;
    TRY(rewrite_operator(w, n, "", "Gather", 13, NULL, 0, inputs, 2, n->outputs, 1, err));
    rewrite_remove(w, n);
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (node_is(n, "Transpose") && !rewrite_removed(n)) TRY(lower(w, n, err));
        if (node_is(n, "Shape")) TRY(ask_the_source(w, n, err));
    }
    return CHURON_OK;
}

/* Only dimensions of one element change places: a Reshape, which shares memory. */
static status reshape_instead(rewriter *w, op_node *n, error *err) {
    const ir_value *in = n->inputs[0], *out = n->outputs[0];
    const size_t rank = in && in->has_rank ? in->rank : 0;
    const int64_t *perm = rank ? perm_of(n, rank) : NULL;
    int64_t last = -1;
    if (!perm || !value_known_shape(in) || !value_known_shape(out)) return CHURON_OK;
    for (size_t i = 0; i < rank; i++) {
        if (in->dims[perm[i]] == 1) continue;
        if (in->dims[perm[i]] == 0 || perm[i] < last) return CHURON_OK;
        last = perm[i];
    }
    tensor shape;
    ir_value *inputs[2] = {n->inputs[0]};
    TRY(tensor_alloc(&shape, ELEM_I64, 1, (const int64_t[]){(int64_t)rank}, err));
    memcpy(shape.data, out->dims, rank * sizeof *out->dims);
    TRY(rewrite_constant(w, n->name, shape, &inputs[1], err));
    TRY(rewrite_operator(w, n, "", "Reshape", 13, NULL, 0, inputs, 2, n->outputs, 1, err));
    rewrite_remove(w, n);
    return CHURON_OK;
}

static status reshape_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        if (node_is(w->g->nodes[i], "Transpose")) TRY(reshape_instead(w, w->g->nodes[i], err));
    }
    return CHURON_OK;
}

/* Twice: what was joined may have been the beginning of a chain. */
status pass_transposes(rewriter *w, error *err) {
    TRY(rewrite_each(w, push_sweep, err));
    TRY(pass_identity(w, err));
    for (size_t i = 0; i < 2; i++) {
        TRY(rewrite_each(w, sweep, err));
        TRY(pass_dead_code(w, err));
        TRY(pass_identity(w, err));
    }
    return rewrite_each(w, reshape_sweep, err);
}
