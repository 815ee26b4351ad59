#include "graph/ops/broadcast.h"

/* Appends a dimension from the outside in, or merges it into the last one where every operand allows. */
static void add_dim(broadcast *b, size_t size, const size_t *strides) {
    if (size == 1) return;
    if (b->rank > 0) {
        size_t last = b->rank - 1;
        bool mergeable = true;
        for (size_t k = 0; k < b->n; k++) mergeable &= b->strides[k][last] == strides[k] * size;
        if (mergeable) {
            b->dims[last] *= size;
            for (size_t k = 0; k < b->n; k++) b->strides[k][last] = strides[k];
            return;
        }
    }
    b->dims[b->rank] = size;
    for (size_t k = 0; k < b->n; k++) b->strides[k][b->rank] = strides[k];
    b->rank++;
}

/* first[k]: the dimension of the output that operand k's dimension 0 lies at. */
static void plan(broadcast *b, const tensor *out, const tensor *const *in, const size_t *first, size_t n) {
    *b = (broadcast){.n = n};
    size_t full[BROADCAST_MAX][TENSOR_MAX_RANK];
    for (size_t k = 0; k < n; k++) {
        size_t stride = 1;
        for (size_t d = out->rank; d-- > 0;) {
            bool inside = d >= first[k] && d - first[k] < in[k]->rank;
            size_t size = inside ? (size_t)in[k]->dims[d - first[k]] : 1;
            full[k][d] = size == 1 ? 0 : stride;
            stride *= size;
        }
    }
    for (size_t d = 0; d < out->rank; d++) {
        size_t strides[BROADCAST_MAX];
        for (size_t k = 0; k < n; k++) strides[k] = full[k][d];
        add_dim(b, (size_t)out->dims[d], strides);
    }
    if (b->rank == 0) {
        b->rank = 1;
        b->dims[0] = 1;
        for (size_t k = 0; k < n; k++) b->strides[k][0] = 1;
    }
}

void broadcast_plan(broadcast *b, const tensor *out, const tensor *const *in, size_t n) {
    size_t first[BROADCAST_MAX];
    for (size_t k = 0; k < n; k++) first[k] = out->rank - in[k]->rank;
    plan(b, out, in, first, n);
}

void broadcast_plan_at(broadcast *b, const tensor *out, const tensor *a, const tensor *second, size_t axis) {
    const tensor *in[] = {a, second};
    plan(b, out, in, (const size_t[]){0, axis}, 2);
}

void broadcast_walk(const broadcast *b, size_t from, size_t to, broadcast_fn fn, void *ctx) {
    if (from >= to) return;
    size_t inner = b->rank - 1, width = b->dims[inner];
    size_t index[TENSOR_MAX_RANK], at[BROADCAST_MAX] = {0}, rest = from;
    for (size_t d = b->rank; d-- > 0;) {
        index[d] = rest % b->dims[d];
        rest /= b->dims[d];
        for (size_t k = 0; k < b->n; k++) at[k] += index[d] * b->strides[k][d];
    }
    while (from < to) {
        size_t n = width - index[inner];
        if (n > to - from) n = to - from;
        fn(ctx, from, at, n);
        from += n;
        if (from >= to) return;
        for (size_t k = 0; k < b->n; k++) at[k] -= index[inner] * b->strides[k][inner];
        index[inner] = 0;
        for (size_t d = inner; d-- > 0;) {
            for (size_t k = 0; k < b->n; k++) at[k] += b->strides[k][d];
            if (++index[d] < b->dims[d]) break;
            for (size_t k = 0; k < b->n; k++) at[k] -= b->dims[d] * b->strides[k][d];
            index[d] = 0;
        }
    }
}
