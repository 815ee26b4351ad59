/* winograd.c: lets blocked-layout, which comes next and packs the weights, use kernel/winograd.h, and says
 * where that is worth it. Images that give few patches keep the direct form: the transformed weights, four
 * times as many, would be read for too few products. */
#include "kernel/winograd.h"
#include "graph/passes/blocked.h"

enum { LEAST_PATCHES = 9, MOST_UNKNOWN_BYTES = 4 << 20 };

bool layout_worth_winograd(const layout *l, const op_node *n, const conv *c) {
    const ir_value *y = n->outputs[0];
    if (!l->w->winograd || !winograd_can(c)) return false;
    if (y->rank != 4 || !dim_known(y->dims[2]) || !dim_known(y->dims[3]))
        return winograd_packed_floats(c) * sizeof(float) <= MOST_UNKNOWN_BYTES;
    const size_t high = ((size_t)y->dims[2] + WINOGRAD_OUT - 1) / WINOGRAD_OUT,
                 wide = ((size_t)y->dims[3] + WINOGRAD_OUT - 1) / WINOGRAD_OUT;
    return high * wide >= LEAST_PATCHES;
}

status pass_winograd(rewriter *w, error *err) {
    (void)err;
    w->winograd = true;
    return CHURON_OK;
}
