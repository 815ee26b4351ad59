/* winograd.c: blocked 3x3 convolutions of stride 1 take kernel/winograd.h's weights. Images that give few
 * patches keep the direct form: the transformed weights, four times as many, would be read for too few
 * products. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/blocked.h"
#include "kernel/winograd.h"

enum { LEAST_PATCHES = 9, MOST_UNKNOWN_BYTES = 4 << 20 };

static bool worth(const op_node *n, const conv *c) {
    if (n->def != &op_blocked_conv || !winograd_can(c)) return false;
    const ir_value *y = n->outputs[0];
    if (!y->has_rank || !dim_known(y->dims[2]) || !dim_known(y->dims[3]))
        return winograd_packed_floats(c) * sizeof(float) <= MOST_UNKNOWN_BYTES;
    const size_t high = ((size_t)y->dims[2] + WINOGRAD_OUT - 1) / WINOGRAD_OUT,
                 wide = ((size_t)y->dims[3] + WINOGRAD_OUT - 1) / WINOGRAD_OUT;
    return high * wide >= LEAST_PATCHES;
}

static status convert(blocked_conv *st, error *err) {
    conv c = st->c;
    c.kind = CONV_WINOGRAD;
    float *weights = mem_calloc(c.out_channels * c.in_channels * 9, sizeof *weights);
    float *points = mem_aligned(64, winograd_packed_floats(&c) * sizeof *points);
    if (!weights || !points) {
        mem_free(weights);
        mem_free(points);
        return ir_no_memory(err);
    }
    conv_unpack(&st->c, st->weights, weights);
    winograd_pack(&c, weights, points);
    mem_free(weights);
    mem_free(st->weights);
    st->weights = points;
    st->c.kind = CONV_WINOGRAD;
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (rewrite_removed(n) || n->def != &op_blocked_conv) continue;
        blocked_conv *st = n->state;
        if (worth(n, &st->c)) TRY(convert(st, err));
    }
    return CHURON_OK;
}

status pass_winograd(rewriter *w, error *err) {
    return rewrite_each(w, sweep, err);
}
