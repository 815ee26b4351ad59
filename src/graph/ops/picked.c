/* picked.c: see picked.h. */
#include "graph/ops/picked.h"

#include "base/mem.h"
#include "graph/ops/integers.h"

#include <string.h>

void picked_free(void *state) {
    picked_rows *st = state;
    if (!st) return;
    mem_free(st->rows);
    mem_free(st);
}

static status infer(op_shapes *s, error *err) {
    const picked_rows *st = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    dim out[TENSOR_MAX_RANK + 1];
    if (!st->open) {
        if (rank == 0)
            return op_error(shapes_node(s), err, CHURON_INVALID, "X: expected a last dimension, got none");
        TRY(shapes_same(s, in[rank - 1], 1, "last dimension of X", NULL, err));
        rank--;
    }
    if (rank == TENSOR_MAX_RANK)
        return op_error(shapes_node(s), err, CHURON_LIMIT, "X: expected at most rank %d, got %zu",
                        TENSOR_MAX_RANK - 1, rank);
    memcpy(out, in, rank * sizeof *in);
    out[rank] = (dim)st->n;
    return shapes_out(s, 0, rank + 1, out, err);
}

typedef struct job {
    const picked_rows *st;
    const tensor *x;
    float *y;
} job;

static void pick(void *ctx, size_t from, size_t to) {
    enum { BLOCK = 256 };
    const job *j = ctx;
    const picked_rows *st = j->st;
    const size_t bytes = elem_describe(j->x->type)->bytes;
    int64_t at[BLOCK];
    while (from < to) {
        const size_t n = to - from < BLOCK ? to - from : BLOCK;
        integers_load(j->x->type, (const char *)j->x->data + from * bytes, at, n);
        for (size_t i = 0; i < n; i++) {
            uint64_t row = (uint64_t)at[i] - (uint64_t)st->first;
            if (st->wraps && at[i] < 0) row += st->count;
            row = row < st->count ? row : st->count;
            memcpy(j->y + (from + i) * st->n, st->rows + row * st->n, st->n * sizeof(float));
        }
        from += n;
    }
}

static status run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    job j = {.st = run_state(r), .x = x, .y = y->data};
    run_parallel(r, x->count, 0.1 * (double)y->count, pick, &j);
    return CHURON_OK;
}

const op_def op_picked_rows = {.domain = "churon",
                               .name = "PickedRows",
                               .since = 1,
                               .signature = "I>f",
                               .vars = {{'I', ELEM_BIT(ELEM_I32) | ELEM_BIT(ELEM_I64)}},
                               .release = picked_free,
                               .infer = infer,
                               .run = run};
