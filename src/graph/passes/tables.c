/* tables.c: chains of operators of elements between 8-bit values as one table of 256 bytes, or one a channel.
 *
 * Whatever lies between a value of 8 bits and what is quantized from it again - dequantization, functions,
 * arithmetic with constants, batch normalization, steps of quantization in between - is a function of a byte,
 * and of the channel where constants have one number a channel. It is computed by the operators themselves,
 * over all 256 codes of each channel, so that the table has their bits. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/qimage.h"

#include <string.h>

enum {
    CODES = 256,
    MOST_VALUES = 1 << 19,
    MOST_CONSTANT = 1 << 13
}; /* of a value; larger ones are computed */

/* What is known of a value: its numbers for every code of `root`, [256, .., channels or 1, ..]; or, without a
 * root, that it is this constant. */
typedef struct known {
    ir_value *root;
    tensor t;
    size_t steps; /* operators behind root */
} known;

typedef struct tables {
    rewriter *w;
    known *of; /* [n_values] by slot */
} tables;

static bool is_8_bit(const ir_value *v) {
    return v->type.kind == ONNX_TENSOR && (v->type.type == ELEM_U8 || v->type.type == ELEM_I8);
}

static size_t channel_axis(const ir_value *root) {
    return root->rank == 4 ? 1 : root->rank - 1;
}

static bool works_on_elements(const op_node *n) {
    static const char *const plain[] = {"QuantizeLinear",
                                        "DequantizeLinear",
                                        "Relu",
                                        "Clip",
                                        "Add",
                                        "Sub",
                                        "Mul",
                                        "Div",
                                        "Pow",
                                        "Sqrt",
                                        "Erf",
                                        "Exp",
                                        "Log",
                                        "Sigmoid",
                                        "Tanh",
                                        "HardSwish",
                                        "Abs",
                                        "Neg",
                                        "Floor",
                                        "HardSigmoid",
                                        "LeakyRelu",
                                        "Elu",
                                        "Selu",
                                        "Celu",
                                        "Ceil",
                                        "Round",
                                        "Softplus",
                                        "Softsign",
                                        "Mish",
                                        "Gelu",
                                        "Swish",
                                        "Min",
                                        "Max",
                                        "Sum",
                                        "Reciprocal",
                                        "Identity",
                                        "PRelu",
                                        "Constant",
                                        NULL};
    static const char *const microsoft[] = {"QuantizeLinear", "DequantizeLinear",
                                            "QLinearAdd",     "QLinearMul",
                                            "QLinearSigmoid", "QLinearLeakyRelu",
                                            "Gelu",           "FastGelu",
                                            "QuickGelu",      NULL};
    for (size_t i = 0; plain[i]; i++) {
        if (node_is(n, plain[i])) return true;
    }
    for (size_t i = 0; microsoft[i]; i++) {
        if (node_is_of(n, "com.microsoft", microsoft[i])) return true;
    }
    return node_is(n, "BatchNormalization") && node_int(n, "training_mode", 0) == 0;
}

/* The root's codes, in order of their bits. */
static status all_codes(const ir_value *root, tensor *out, error *err) {
    int64_t dims[TENSOR_MAX_RANK];
    for (size_t i = 0; i < root->rank; i++) dims[i] = i == 0 ? CODES : 1;
    TRY(tensor_alloc(out, root->type.type, root->rank, dims, err));
    for (size_t i = 0; i < CODES; i++) ((uint8_t *)out->data)[i] = (uint8_t)i;
    return CHURON_OK;
}

/* Is t what a function of the root's codes and channels makes of them? */
static bool fits(const ir_value *root, const tensor *t) {
    if (t->rank != root->rank) return false;
    for (size_t i = 0; i < t->rank; i++) {
        const bool channel = i == channel_axis(root) && dim_known(root->dims[i]);
        const int64_t most = i == 0 ? CODES : channel ? root->dims[i] : 1;
        if (t->dims[i] != most && (i == 0 || t->dims[i] != 1)) return false;
    }
    return true;
}

/* A copy with one channel's numbers for all channels. */
static status widen(const ir_value *root, const tensor *t, tensor *out, error *err) {
    const size_t axis = channel_axis(root), bytes = elem_describe(t->type)->bytes;
    int64_t dims[TENSOR_MAX_RANK];
    memcpy(dims, t->dims, t->rank * sizeof *dims);
    if (dims[axis] == 1 && dim_known(root->dims[axis])) dims[axis] = root->dims[axis];
    TRY(tensor_alloc(out, t->type, t->rank, dims, err));
    const size_t n = t->count ? out->count / t->count : 1;
    for (size_t i = 0; i < out->count; i++)
        memcpy((char *)out->data + i * bytes, (const char *)t->data + i / n * bytes, bytes);
    return CHURON_OK;
}

/* What the operator makes of what is known of its inputs; computed false: it fails or makes something else.
 */
static status evaluate(tables *s, op_node *n, known *const *in, tensor *out, bool *computed, error *err) {
    ir_value *values = mem_calloc(n->n_inputs + 1, sizeof *values);
    ir_value **list = mem_calloc(n->n_inputs + 1, sizeof *list);
    status st = values && list ? CHURON_OK : ir_no_memory(err);
    for (size_t i = 0; st == CHURON_OK && i < n->n_inputs; i++) {
        if (!n->inputs[i]) continue;
        values[i] = *n->inputs[i];
        values[i].is_constant = true;
        if (in[i]) values[i].constant = in[i]->t;
        list[i] = &values[i];
    }
    op_node copy = *n;
    ir_value *y = values ? &values[n->n_inputs] : NULL;
    if (y) {
        *y = *n->outputs[0];
        y->has_rank = false; /* codes stand where the graph has a batch */
    }
    copy.inputs = list;
    copy.outputs = &y;
    copy.n_outputs = 1;
    error why;
    const status made = st == CHURON_OK ? exec_constant_node(s->w->x, &copy, out, &why) : st;
    *computed = made == CHURON_OK;
    if (made == CHURON_NO_MEMORY) st = ir_no_memory(err);
    mem_free(values);
    mem_free(list);
    return st;
}

/* Constants, and functions of one root. NULL in a place: a constant of the graph. */
static bool gather(const tables *s, const op_node *n, known **in, ir_value **root, size_t *steps) {
    *root = NULL;
    *steps = 0;
    for (size_t i = 0; i < n->n_inputs; i++) {
        const ir_value *v = n->inputs[i];
        in[i] = NULL;
        if (!v) continue;
        if (v->is_constant) {
            if (v->constant.count > MOST_CONSTANT) return false;
            continue;
        }
        if (v->slot >= s->w->n_values) return false;
        known *k = &s->of[v->slot];
        if (!k->t.data) return false;
        in[i] = k;
        if (k->root && *root && k->root != *root) return false;
        if (k->root) *root = k->root;
        if (k->root && k->steps > *steps) *steps = k->steps;
    }
    return true;
}

static void forget(known *k) {
    tensor_free(&k->t);
    *k = (known){0};
}

/* A value of 8 bits that is no function of another begins a chain. */
static status begin(tables *s, ir_value *v, error *err) {
    if (!v || v->is_constant || v->slot >= s->w->n_values || !is_8_bit(v) || !v->has_rank || v->rank < 2 ||
        v->rank > TENSOR_MAX_RANK || s->of[v->slot].t.data)
        return CHURON_OK;
    s->of[v->slot].root = v;
    return all_codes(v, &s->of[v->slot].t, err);
}

static bool one_scale(const op_node *n) {
    const ir_value *scale = n->n_inputs > 1 ? n->inputs[1] : NULL;
    return scale && node_int(n, "block_size", 0) == 0 && scale->is_constant && scale->constant.count == 1;
}

static status learn(tables *s, op_node *n, error *err) {
    enum { MOST_INPUTS = 8 };
    known *in[MOST_INPUTS];
    ir_value *root, *y = n->outputs[0];
    size_t steps;
    if (!y || y->type.kind != ONNX_TENSOR || y->slot >= s->w->n_values || n->n_bodies ||
        n->n_inputs > MOST_INPUTS || !works_on_elements(n) || !gather(s, n, in, &root, &steps))
        return CHURON_OK;
    for (size_t i = 1; i < n->n_outputs; i++) {
        if (n->outputs[i]) return CHURON_OK;
    }
    const bool dequantizes = strcmp(n->op, "DequantizeLinear") == 0;
    if (root && (dequantizes || strcmp(n->op, "QuantizeLinear") == 0) && !one_scale(n)) return CHURON_OK;
    if (root && !value_same_shape(root, y)) return CHURON_OK;
    tensor out = {0};
    known wide = {0}, *const first = in[0];
    bool computed;
    if (root && node_is(n, "BatchNormalization")) {
        if (!first) return CHURON_OK;
        TRY(widen(root, &first->t, &wide.t, err));
        in[0] = &wide;
    }
    const status made = evaluate(s, n, in, &out, &computed, err);
    tensor_free(&wide.t);
    in[0] = first;
    TRY(made);
    if (!computed) return CHURON_OK;
    const size_t most = root ? MOST_VALUES : MOST_CONSTANT;
    if (out.count > most || (root && !fits(root, &out))) {
        tensor_free(&out);
        return CHURON_OK;
    }
    s->of[y->slot] = (known){.root = root, .t = out, .steps = steps + 1};
    for (size_t i = 0; i < n->n_inputs; i++) {
        const bool stays = !in[i] || !in[i]->root || is_8_bit(n->inputs[i]); /* may become a table yet */
        if (!stays && rewrite_only_reader(s->w, n->inputs[i]) == n) forget(in[i]);
    }
    return CHURON_OK;
}

/* ---- tables in place of chains ---------------------------------------------------------------------- */

/* t as [channels, 256], or one table where all channels have the same. */
static status make_state(const ir_value *root, const tensor *t, qimage_table **out, error *err) {
    const size_t axis = channel_axis(root), n = t->count / CODES;
    qimage_table *st = mem_calloc(1, sizeof *st);
    uint8_t *bytes = st ? mem_alloc(t->count) : NULL;
    if (!bytes) {
        mem_free(st);
        return ir_no_memory(err);
    }
    bool same = true;
    for (size_t c = 0; c < n; c++) {
        for (size_t i = 0; i < CODES; i++) bytes[c * CODES + i] = ((const uint8_t *)t->data)[i * n + c];
        same = same && memcmp(bytes, bytes + c * CODES, CODES) == 0;
    }
    *st = (qimage_table){.axis = same ? SIZE_MAX : axis, .n = same ? 1 : n, .type = t->type, .bytes = bytes};
    *out = st;
    return CHURON_OK;
}

static bool is_identity(const qimage_table *st, const ir_value *root) {
    if (st->axis != SIZE_MAX || st->type != root->type.type) return false;
    for (size_t i = 0; i < CODES; i++) {
        if (st->bytes[i] != i) return false;
    }
    return true;
}

static status replace(tables *s, op_node *n, error *err) {
    ir_value *y = n->outputs[0], *root = s->of[y->slot].root;
    qimage_table *st = NULL;
    TRY(make_state(root, &s->of[y->slot].t, &st, err));
    forget(&s->of[y->slot]);
    if (is_identity(st, root) && !y->is_output) {
        qimage_table_free(st);
        rewrite_replace(s->w, y, root);
        return CHURON_OK;
    }
    TRY(rewrite_insert(s->w, n, &op_qimage_table, n->name, &root, 1, &y, 1, st, NULL, err));
    rewrite_remove(s->w, n);
    return CHURON_OK;
}

static bool ends_chain(const tables *s, const op_node *n) {
    const ir_value *y = n->outputs[0];
    if (!y || y->slot >= s->w->n_values || !is_8_bit(y)) return false;
    const known *k = &s->of[y->slot];
    return k->root && k->root != y && k->steps > 0;
}

static void need_inputs(const op_node *n, bool *needed) {
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (n->inputs[i]) needed[n->inputs[i]->slot] = true;
    }
    for (size_t b = 0; b < n->n_bodies; b++) {
        for (size_t i = 0; i < n->bodies[b]->n_captures; i++)
            needed[n->bodies[b]->captures[i].outer->slot] = true;
    }
}

/* From the last node to the first: a chain's end that somebody needs becomes a table, and what lies within
 * the chain is needed by nobody. */
static status settle(tables *s, bool *needed, error *err) {
    ir_graph *g = s->w->g;
    for (size_t i = g->n_nodes; i-- > 0;) {
        op_node *n = g->nodes[i];
        bool live = n->n_outputs == 0;
        for (size_t k = 0; k < n->n_outputs; k++) {
            const ir_value *y = n->outputs[k];
            live = live || (y && (y->is_output || needed[y->slot]));
        }
        if (!live || rewrite_removed(n)) continue;
        if (!ends_chain(s, n)) {
            need_inputs(n, needed);
            continue;
        }
        needed[s->of[n->outputs[0]->slot].root->slot] = true;
        TRY(replace(s, n, err));
    }
    return CHURON_OK;
}

static status walk(tables *s, error *err) {
    ir_graph *g = s->w->g;
    for (size_t i = 0; i < g->n_inputs; i++) TRY(begin(s, g->inputs[i], err));
    for (size_t i = 0; i < g->n_nodes; i++) {
        op_node *n = g->nodes[i];
        if (rewrite_removed(n) || n->n_outputs == 0) continue;
        TRY(learn(s, n, err));
        for (size_t k = 0; k < n->n_outputs; k++) TRY(begin(s, n->outputs[k], err));
    }
    bool *needed = mem_calloc(s->w->n_values + 1, sizeof *needed);
    if (!needed) return ir_no_memory(err);
    const status st = settle(s, needed, err);
    mem_free(needed);
    return st;
}

static status sweep(rewriter *w, error *err) {
    tables s = {.w = w, .of = mem_calloc(w->n_values + 1, sizeof *s.of)};
    if (!s.of) return ir_no_memory(err);
    const status st = walk(&s, err);
    for (size_t i = 0; i < w->n_values; i++) tensor_free(&s.of[i].t);
    mem_free(s.of);
    return st;
}

status pass_function_tables(rewriter *w, error *err) {
    TRY(rewrite_each(w, sweep, err));
    return pass_dead_code(w, err);
}
