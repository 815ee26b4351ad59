/* function.c: which operators are limits or a kernel function of one f32 element; for epilogues. */
#include "graph/passes/rewrite.h"

#include "graph/ops/blocked.h"

#include <math.h>
#include <string.h>

static bool read_clip(const op_node *n, node_function *out) {
    *out = (node_function){.limits = true, .low = -INFINITY, .high = INFINITY};
    if (n->version < 11) {
        out->low = node_float(n, "min", -INFINITY);
        out->high = node_float(n, "max", INFINITY);
        return true;
    }
    if (n->n_inputs > 1 && n->inputs[1] && !value_scalar(n->inputs[1], &out->low)) return false;
    return !(n->n_inputs > 2 && n->inputs[2]) || value_scalar(n->inputs[2], &out->high);
}

bool node_reads_function(const op_node *n, node_function *out) {
    *out = (node_function){0};
    if (node_is(n, "Relu")) {
        *out = (node_function){.limits = true, .low = 0.0f, .high = INFINITY};
        return true;
    }
    if (node_is(n, "Clip")) return read_clip(n, out);
    if (node_is_of(n, "churon", "Unary")) {
        const unary_state *st = n->state;
        *out = (node_function){.f = st->function, .p = st->p, .q = st->q};
        return true;
    }
    static const struct {
        const char *op;
        kernel_unary f;
    } plain[] = {{"Sigmoid", UNARY_F32_SIGMOID},      {"Tanh", UNARY_F32_TANH},
                 {"HardSwish", UNARY_F32_HARD_SWISH}, {"Softplus", UNARY_F32_SOFTPLUS},
                 {"Softsign", UNARY_F32_SOFTSIGN},    {"Mish", UNARY_F32_MISH}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (!node_is(n, plain[i].op)) continue;
        out->f = plain[i].f;
        return true;
    }
    if (node_is(n, "Gelu") || node_is_of(n, "com.microsoft", "Gelu") ||
        (node_is_of(n, "com.microsoft", "FastGelu") && n->n_inputs < 2)) {
        const ir_attr *a = ir_find_attr(n, "approximate");
        const bool tanh_form = node_is_of(n, "com.microsoft", "FastGelu") ||
                               (a && a->attr->s.len == 4 && memcmp(a->attr->s.data, "tanh", 4) == 0);
        out->f = tanh_form ? UNARY_F32_GELU_TANH : UNARY_F32_GELU;
        return true;
    }
    if (node_is_of(n, "com.microsoft", "QuickGelu")) {
        *out = (node_function){.f = UNARY_F32_SWISH, .p = node_float(n, "alpha", 1.702f)};
        return true;
    }
    if (node_is(n, "LeakyRelu")) {
        *out = (node_function){.f = UNARY_F32_LEAKY_RELU, .p = node_float(n, "alpha", 0.01f)};
        return true;
    }
    if (node_is(n, "HardSigmoid")) {
        *out = (node_function){
            .f = UNARY_F32_HARD_SIGMOID, .p = node_float(n, "alpha", 0.2f), .q = node_float(n, "beta", 0.5f)};
        return true;
    }
    if (node_is(n, "Elu")) {
        *out = (node_function){.f = UNARY_F32_ELU, .p = node_float(n, "alpha", 1.0f), .q = 1.0f};
        return true;
    }
    return false;
}
